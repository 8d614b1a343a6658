/* Average pooling, NHWC fp32; sums in double, in row order. A kernel as large as the image is the
 * global average. */
#ifndef DR_KERNELS_CPU_AVG_POOL_H
#define DR_KERNELS_CPU_AVG_POOL_H
#include "kernels/cpu/cpu.h"
#include "kernels/pool_shape.h"
#include <stdbool.h>
void dr_cpu_avg_pool_fprop(struct dr_cpu *cpu, const struct dr_pool *p, bool count_pad,
                           const float *x, float *y);
/* dx: the shares of the windows over it, added in the order of the outputs. */
void dr_cpu_avg_pool_dgrad(struct dr_cpu *cpu, const struct dr_pool *p, bool count_pad,
                           const float *dy, float *dx);
#endif
