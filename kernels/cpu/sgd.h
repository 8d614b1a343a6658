/* One weight's SGD update, in place. */
#ifndef DR_KERNELS_CPU_SGD_H
#define DR_KERNELS_CPU_SGD_H
#include "kernels/cpu/cpu.h"
#include <stdbool.h>
#include <stdint.h>
struct dr_cpu_sgd {
    float lr, clip, momentum, decay;
    bool nesterov;
};
/* g, w, m [n]; m NULL: no momentum. */
void dr_cpu_sgd(struct dr_cpu *cpu, const struct dr_cpu_sgd *s, int64_t n, const float *g, float *w,
                float *m);
#endif
