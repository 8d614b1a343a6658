/* random_erasing, mixup and cutmix; see kernels/mix.h. */
#ifndef DR_KERNELS_CPU_MIX_H
#define DR_KERNELS_CPU_MIX_H
#include "kernels/cpu/cpu.h"
#include "kernels/mix.h"

/* x, y [n, h, w, c], both u8 or both f32. */
void dr_cpu_erase(struct dr_cpu *cpu, const struct dr_erase *e, const struct dr_batch *batch,
                  const void *x, void *y);
void dr_cpu_mix(struct dr_cpu *cpu, const struct dr_mix *m, const struct dr_batch *batch,
                const struct dr_mix_operand *o);
#endif
