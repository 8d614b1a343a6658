/* Cross-entropy of logits x [rows, k] against shares of classes (kernels/soft_labels.h): fp32, sums
 * in double; the rows of the first n_valid samples count. */
#ifndef DR_KERNELS_CPU_SOFT_LABELS_H
#define DR_KERNELS_CPU_SOFT_LABELS_H
#include "kernels/cpu/cpu.h"
#include "kernels/soft_labels.h"

/* partial = {sum, rows that count}, mean = their quotient, 0 where nothing counts. workspace:
 * dr_cpu_soft_labels_bytes. */
int64_t dr_cpu_soft_labels_bytes(int64_t rows);
void dr_cpu_soft_labels(struct dr_cpu *cpu, const struct dr_soft_labels *l, int64_t n_valid,
                        const float *x, void *workspace, float *mean, double *partial);
/* dx = weight * d mean / d x; `count` is partial[1]. */
void dr_cpu_soft_labels_dgrad(struct dr_cpu *cpu, const struct dr_soft_labels *l, int64_t n_valid,
                              const float *x, double weight, double count, float *dx);
#endif
