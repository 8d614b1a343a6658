/* Dropout (kernels/dropout.h): y, of the shape of x, [n, elements]. Its gradient is the same
 * function of dy. */
#ifndef DR_KERNELS_CPU_DROPOUT_H
#define DR_KERNELS_CPU_DROPOUT_H
#include "kernels/cpu/cpu.h"
#include "kernels/dropout.h"
void dr_cpu_dropout(struct dr_cpu *cpu, const struct dr_dropout *d, const struct dr_batch *batch,
                    const float *x, float *y);
#endif
