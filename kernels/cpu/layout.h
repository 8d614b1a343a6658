/* Moving values without computing: copies of row blocks, transposes. */
#ifndef DR_KERNELS_CPU_LAYOUT_H
#define DR_KERNELS_CPU_LAYOUT_H
#include "kernels/cpu/cpu.h"
#include <stdint.h>
/* `rows` pieces of `bytes` bytes, from `from` every `from_step` bytes to `to` every `to_step`. */
void dr_cpu_copy_rows(struct dr_cpu *cpu, int64_t rows, int64_t bytes, const void *from,
                      int64_t from_step, void *to, int64_t to_step);
/* x [n, a, b] -> y [n, b, a], fp32. */
void dr_cpu_transpose(struct dr_cpu *cpu, int64_t n, int64_t a, int64_t b, const float *x,
                      float *y);
#endif
