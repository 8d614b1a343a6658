/* y = epilogue(x w^T) and its gradients, fp32, by OpenBLAS on one thread a block; the blocks are
 * cut by shape. OpenBLAS itself must be set to one thread (the executor does). */
#ifndef DR_KERNELS_CPU_LINEAR_H
#define DR_KERNELS_CPU_LINEAR_H
#include "kernels/cpu/cpu.h"
#include "kernels/epilogue.h"
#include <stdint.h>
/* x [m, in], w [out, in], y [m, out]. */
void dr_cpu_linear_fprop(struct dr_cpu *cpu, int64_t m, int64_t in, int64_t out, const float *x,
                         const float *w, const struct dr_epilogue *e, float *y);
/* dy [m, out], w [out, in] -> dx [m, in]. */
void dr_cpu_linear_dgrad(struct dr_cpu *cpu, int64_t m, int64_t in, int64_t out, const float *dy,
                         const float *w, float *dx);
/* x [m, in], dy [m, out] -> dw [out, in]. */
void dr_cpu_linear_wgrad(struct dr_cpu *cpu, int64_t m, int64_t in, int64_t out, const float *x,
                         const float *dy, float *dw);
#endif
