/* The pointwise functions of kernels/maps.h over arrays, fp32, by blocks of a fixed size. */
#ifndef DR_KERNELS_CPU_MAPS_H
#define DR_KERNELS_CPU_MAPS_H
#include "kernels/cpu/cpu.h"
#include "kernels/maps.h"
void dr_cpu_map(struct dr_cpu *cpu, enum dr_fn fn, int64_t n, const struct dr_map_args *args);
void dr_cpu_chain(struct dr_cpu *cpu, int64_t n, const struct dr_map_chain *chain);
#endif
