/* Softmax and what is computed from it: over the last axis of [rows, k], fp32 in and out, sums in
 * double. */
#ifndef DR_KERNELS_CPU_SOFTMAX_H
#define DR_KERNELS_CPU_SOFTMAX_H
#include "kernels/cpu/cpu.h"
#include <stdbool.h>
#include <stdint.h>

void dr_cpu_softmax(struct dr_cpu *cpu, int64_t rows, int64_t k, const float *x, float *y);
/* dx = y * (dy - sum(dy * y)). */
void dr_cpu_softmax_dgrad(struct dr_cpu *cpu, int64_t rows, int64_t k, const float *y,
                          const float *dy, float *dx);

/* Classes of rows, and which rows count: those of the first n_valid samples whose class is not
 * `ignore`. */
struct dr_cpu_classes {
    const void *target; /* [rows] u8 or i32 */
    bool u8;
    int64_t rows, k, rows_per_sample, n_valid, ignore;
};

struct dr_cpu_loss {
    double smoothing;
    const double *class_weight; /* [k] or NULL: all 1 */
};
/* Cross-entropy of logits x [rows, k]: partial[0] = sum of the losses, partial[1] = sum of the
 * weights of their classes; mean = their quotient, 0 where nothing counts. A class outside [0, k)
 * makes the sum NaN and reads nothing. workspace: dr_cpu_cross_entropy_bytes. */
int64_t dr_cpu_cross_entropy_bytes(int64_t rows);
void dr_cpu_cross_entropy(struct dr_cpu *cpu, const struct dr_cpu_classes *c,
                          const struct dr_cpu_loss *loss, const float *x, void *workspace,
                          float *mean, double *partial);
/* dx = weight * d mean / d x; `count` is partial[1]. */
void dr_cpu_cross_entropy_dgrad(struct dr_cpu *cpu, const struct dr_cpu_classes *c,
                                const struct dr_cpu_loss *loss, const float *x, double weight,
                                double count, float *dx);

/* partial[0] = rows whose class is among the `top` largest, partial[1] = rows that count. Of equal
 * values the lowest index is the larger; NaN is larger than any number, but a row whose own class
 * has NaN, or is outside [0, k), is never right. */
void dr_cpu_accuracy(struct dr_cpu *cpu, const struct dr_cpu_classes *c, int64_t top,
                     const float *x, void *workspace, double *partial);
#endif
