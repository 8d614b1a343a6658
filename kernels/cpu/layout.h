/* Moving values without computing: copies of row blocks, transposes, borders. */
#ifndef DR_KERNELS_CPU_LAYOUT_H
#define DR_KERNELS_CPU_LAYOUT_H
#include "kernels/cpu/cpu.h"
#include "kernels/layout_shape.h"
#include <stdint.h>
/* `rows` pieces of `bytes` bytes, from `from` every `from_step` bytes to `to` every `to_step`. */
void dr_cpu_copy_rows(struct dr_cpu *cpu, int64_t rows, int64_t bytes, const void *from,
                      int64_t from_step, void *to, int64_t to_step);
/* x [n, a, b] -> y [n, b, a], fp32. */
void dr_cpu_transpose(struct dr_cpu *cpu, int64_t n, int64_t a, int64_t b, const float *x,
                      float *y);
/* Items of any size in another order. */
void dr_cpu_permute(struct dr_cpu *cpu, const struct dr_permute *p, const void *x, void *y);
/* Pictures x into frames y, around them the value: `unit` (1 or 4) bytes at `value`. And back. */
void dr_cpu_pad(struct dr_cpu *cpu, const struct dr_border *b, int64_t unit, const void *value,
                const void *x, void *y);
void dr_cpu_crop(struct dr_cpu *cpu, const struct dr_border *b, const void *x, void *y);
#endif
