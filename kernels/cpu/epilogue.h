/* kernels/epilogue.h on the CPU. The arithmetic is that of separate passes over memory, in their
 * order: sum with its bias, (x - mean) * scale + norm_bias, + add, activation. */
#ifndef DR_KERNELS_CPU_EPILOGUE_H
#define DR_KERNELS_CPU_EPILOGUE_H
#include "kernels/cpu/activation.h"
#include "kernels/epilogue.h"

/* What the norm multiplies columns k to k + n - 1 by. */
static inline void dr_cpu_norm_scale(const struct dr_epilogue *e, int64_t k, int64_t n,
                                     float *scale) {
    for (int64_t i = 0; i < n; i++)
        scale[i] = (float)(e->norm_weight[k + i] / sqrt((double)e->norm_var[k + i] + e->eps));
}

/* Finishes rows of c columns that have their bias already, in place; add: these rows of e->add, or
 * NULL. */
static inline void dr_cpu_finish(const struct dr_epilogue *e, int64_t rows, int64_t c,
                                 const float *add, float *y) {
    enum { COLUMNS = 64 };
    float scale[COLUMNS];
    for (int64_t first = 0; e->norm_var && first < c; first += COLUMNS) {
        const int64_t n = c - first < COLUMNS ? c - first : COLUMNS;
        const float *mean = e->norm_mean + first, *shift = e->norm_bias + first;
        dr_cpu_norm_scale(e, first, n, scale);
        for (int64_t r = 0; r < rows; r++) {
            float *to = y + r * c + first;
            for (int64_t i = 0; i < n; i++)
                to[i] = (to[i] - mean[i]) * scale[i] + shift[i];
        }
    }
    for (int64_t i = 0; add && i < rows * c; i++)
        y[i] += add[i];
    dr_cpu_activate(y, rows * c, e->act);
}
#endif
