/* Nearest and bilinear resizing (kernels/upsample_shape.h), NHWC fp32. */
#ifndef DR_KERNELS_CPU_UPSAMPLE_H
#define DR_KERNELS_CPU_UPSAMPLE_H
#include "kernels/cpu/cpu.h"
#include "kernels/upsample_shape.h"
void dr_cpu_upsample_fprop(struct dr_cpu *cpu, const struct dr_upsample *u, const float *x,
                           float *y);
/* dx: what each output took of it, summed in double in the order of the outputs. */
void dr_cpu_upsample_dgrad(struct dr_cpu *cpu, const struct dr_upsample *u, const float *dy,
                           float *dx);
#endif
