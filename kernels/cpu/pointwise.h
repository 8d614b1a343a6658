/* Element by element, fp32, split into blocks of a fixed size. Outputs never alias inputs. */
#ifndef DR_KERNELS_CPU_POINTWISE_H
#define DR_KERNELS_CPU_POINTWISE_H
#include "kernels/cpu/cpu.h"
#include <stdint.h>
/* y = x[0] + x[1] + ... left to right, then the activation (activation.h). */
void dr_cpu_add(struct dr_cpu *cpu, int64_t n, const void *const *x, uint32_t n_x, int act,
                float *y);
#endif
