/* One weight's update by Adam (Kingma and Ba, arXiv 1412.6980) or AdamW (Loshchilov and Hutter,
 * arXiv 1711.05101), in place. */
#ifndef DR_KERNELS_CPU_ADAM_H
#define DR_KERNELS_CPU_ADAM_H
#include "kernels/cpu/cpu.h"
#include <stdbool.h>
#include <stdint.h>
struct dr_cpu_adam {
    double beta1, beta2, eps, decay;
    bool decoupled; /* adamw: the weight shrinks by lr * decay; else decay * weight joins g */
    float lr, clip;
    int64_t step; /* of this update, from 1 */
};
/* g, w, m, v [n]. */
void dr_cpu_adam(struct dr_cpu *cpu, const struct dr_cpu_adam *s, int64_t n, const float *g,
                 float *w, float *m, float *v);
#endif
