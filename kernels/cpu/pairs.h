/* bce, mse and l1 over arrays (kernels/pairs.h): fp32 in, sums in double by chunks (sums.h). */
#ifndef DR_KERNELS_CPU_PAIRS_H
#define DR_KERNELS_CPU_PAIRS_H
#include "kernels/cpu/cpu.h"
#include "kernels/pairs.h"
/* partial[0] = sum of the losses of the first n_valid samples, partial[1] = how many there are;
 * mean = their quotient, 0 where nothing counts. workspace: dr_cpu_pairs_bytes. */
int64_t dr_cpu_pairs_bytes(int64_t n);
void dr_cpu_pairs(struct dr_cpu *cpu, const struct dr_pairs *p, int64_t n_valid, void *workspace,
                  float *mean, double *partial);
/* dx = weight * d mean / dx, or by the target; `count` is partial[1]. */
void dr_cpu_pairs_dgrad(struct dr_cpu *cpu, const struct dr_pairs *p, int64_t n_valid,
                        double weight, double count, bool of_target, float *dx);
#endif
