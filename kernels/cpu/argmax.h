/* The index of the largest value of each row of x [rows, k]: the first of equals; NaN is larger
 * than any number, and the first NaN wins. */
#ifndef DR_KERNELS_CPU_ARGMAX_H
#define DR_KERNELS_CPU_ARGMAX_H
#include "kernels/cpu/cpu.h"
#include <stdbool.h>
/* y [rows]: u8 (k at most 256) or i32. */
void dr_cpu_argmax(struct dr_cpu *cpu, int64_t rows, int64_t k, const float *x, bool u8, void *y);
#endif
