/* Element by element, fp32, split into blocks of a fixed size. Outputs never alias inputs. */
#ifndef DR_KERNELS_CPU_POINTWISE_H
#define DR_KERNELS_CPU_POINTWISE_H
#include "kernels/cpu/cpu.h"
#include <stdint.h>
void dr_cpu_relu_fprop(struct dr_cpu *cpu, int64_t n, const float *x, float *y);
/* dx = dy where y > 0 (or y is NaN), else 0. */
void dr_cpu_relu_dgrad(struct dr_cpu *cpu, int64_t n, const float *y, const float *dy, float *dx);
void dr_cpu_tanh_fprop(struct dr_cpu *cpu, int64_t n, const float *x, float *y);
/* dx = dy * (1 - y * y). */
void dr_cpu_tanh_dgrad(struct dr_cpu *cpu, int64_t n, const float *y, const float *dy, float *dx);
/* y = x[0] + x[1] + ... left to right, then the activation (activation.h). */
void dr_cpu_add(struct dr_cpu *cpu, int64_t n, const void *const *x, uint32_t n_x, int act,
                float *y);
#endif
