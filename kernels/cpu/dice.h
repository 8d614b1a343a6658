/* Soft Dice loss of logits x [rows, k] against classes, sample by sample.
 *
 * p = softmax of a row (k = 1: sigmoid, and the class is 0 or 1), t = 1 at its class. Over the rows
 * of a sample that count, and for each class (k = 1: class 1 alone):
 *   I = sum p t, P = sum p, T = sum t, D = (2 I + smooth) / (P + T + smooth), 0 / 0 being 1.
 * The loss of a sample is 1 - mean of D over the classes (Milletari et al., V-Net, arXiv
 * 1606.04797, with MONAI's unsquared denominator); of a batch, the mean over the valid samples with
 * a row that counts. */
#ifndef DR_KERNELS_CPU_DICE_H
#define DR_KERNELS_CPU_DICE_H
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/sums.h"

/* sums: [samples, 3 k + 1], I, P, T by class and the rows that count. A class that does not exist
 * makes them NaN. partial: sum of the samples' losses, their number. */
static inline int64_t dr_cpu_dice_bytes(int64_t samples, int64_t rows_per_sample, int64_t k) {
    return samples * dr_cpu_chunks(rows_per_sample) * (3 * k + 1) * (int64_t)sizeof(double);
}
void dr_cpu_dice(struct dr_cpu *cpu, const struct dr_cpu_classes *c, double smooth, const float *x,
                 void *workspace, float *mean, double *partial, double *sums);
/* dx = weight * d mean / dx; workspace: dr_cpu_dice_dgrad_bytes. */
static inline int64_t dr_cpu_dice_dgrad_bytes(int64_t samples, int64_t k) {
    return samples * 2 * k * (int64_t)sizeof(double);
}
void dr_cpu_dice_dgrad(struct dr_cpu *cpu, const struct dr_cpu_classes *c, double smooth,
                       const float *x, double weight, double count, const double *sums,
                       void *workspace, float *dx);
#endif
