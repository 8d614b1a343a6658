/* What kernels over rows of logits share: the largest of a row, and whether a row counts. */
#ifndef DR_KERNELS_CPU_CLASSES_H
#define DR_KERNELS_CPU_CLASSES_H
#include "kernels/cpu/softmax.h"

/* NaN wins, so that it is not hidden behind a finite maximum. */
static inline float row_max(const float *x, int64_t k) {
    float m = x[0];
    for (int64_t j = 1; j < k; j++)
        m = x[j] <= m ? m : x[j];
    return m;
}

/* Whether a row counts, and its class. */
static inline bool counts(const struct dr_cpu_classes *c, int64_t row, int64_t *class) {
    if (row / c->rows_per_sample >= c->n_valid)
        return false;
    *class = c->u8 ? ((const uint8_t *)c->target)[row] : ((const int32_t *)c->target)[row];
    return *class != c->ignore;
}
#endif
