/* Conversions between the storage types of kernels/dtype.h. */
#ifndef DR_KERNELS_CPU_CAST_H
#define DR_KERNELS_CPU_CAST_H
#include "kernels/cpu/cpu.h"
#include "kernels/dtype.h"
#include <stdint.h>
/* y[i] = x[i] * scale, computed in fp32; to halves rounded to nearest even, past the largest number
 * to infinity; NaN stays NaN. */
void dr_cpu_cast(struct dr_cpu *cpu, int64_t n, enum dr_type from, const void *x, float scale,
                 enum dr_type to, void *y);
/* One number: IEEE 754 binary16, bfloat16. */
uint16_t dr_cpu_to_f16(float x);
uint16_t dr_cpu_to_bf16(float x);
float dr_cpu_from_f16(uint16_t h);
float dr_cpu_from_bf16(uint16_t h);
#endif
