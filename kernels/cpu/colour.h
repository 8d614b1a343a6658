/* color_jitter and grayscale; see kernels/colour.h. */
#ifndef DR_KERNELS_CPU_COLOUR_H
#define DR_KERNELS_CPU_COLOUR_H
#include "kernels/colour.h"
#include "kernels/cpu/cpu.h"

/* x, y [n, pixels, c], both u8 or both f32. */
void dr_cpu_colour(struct dr_cpu *cpu, const struct dr_colour *c, const struct dr_batch *batch,
                   const void *x, void *y);
#endif
