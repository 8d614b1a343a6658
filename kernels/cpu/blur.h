/* gaussian_blur; see kernels/blur.h. */
#ifndef DR_KERNELS_CPU_BLUR_H
#define DR_KERNELS_CPU_BLUR_H
#include "kernels/blur.h"
#include "kernels/cpu/cpu.h"

/* Scratch: two rows of floats a sample, one of them with its reflections. */
static inline int64_t dr_cpu_blur_bytes(const struct dr_blur *b) {
    return b->n * (2 * b->w + b->kw - 1) * b->c * (int64_t)sizeof(float);
}
/* x, y [n, h, w, c], both u8 or both f32. */
void dr_cpu_blur(struct dr_cpu *cpu, const struct dr_blur *b, const struct dr_batch *batch,
                 const void *x, void *workspace, void *y);
#endif
