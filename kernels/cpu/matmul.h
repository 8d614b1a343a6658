/* Batched matrix products, fp32, by OpenBLAS on one thread a block of rows (kernels/cpu/linear.h).
 */
#ifndef DR_KERNELS_CPU_MATMUL_H
#define DR_KERNELS_CPU_MATMUL_H
#include "kernels/cpu/cpu.h"
#include "kernels/matmul_shape.h"
void dr_cpu_matmul(struct dr_cpu *cpu, const struct dr_matmul *p, const float *a, const float *b,
                   float *c);
#endif
