/* Max pooling, NHWC fp32, padding never wins. The winner of a window is its first largest value in
 * row order; NaN is larger than any number, and the first NaN wins. */
#ifndef DR_KERNELS_CPU_MAX_POOL_H
#define DR_KERNELS_CPU_MAX_POOL_H
#include "kernels/cpu/cpu.h"
#include "kernels/pool_shape.h"
#include <stdint.h>
void dr_cpu_max_pool_fprop(struct dr_cpu *cpu, const struct dr_pool *p, const float *x, float *y);
/* dx: each dy added, in the order of the outputs, to its window's winner. */
void dr_cpu_max_pool_dgrad(struct dr_cpu *cpu, const struct dr_pool *p, const float *x,
                           const float *dy, float *dx);
#endif
