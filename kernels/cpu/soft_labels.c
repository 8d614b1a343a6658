/* Cross-entropy against shares of classes, by rows; sums go by chunks (sums.h). */
#include "kernels/cpu/soft_labels.h"
#include "kernels/cpu/classes.h"
#include "kernels/cpu/sums.h"
#include <math.h>
#include <string.h>

struct job {
    const struct dr_soft_labels *l;
    int64_t n_valid, chunk;
    const float *x;
    double scale; /* gradient: weight / count */
    double *partial;
    float *dx;
};

/* log(sum(exp(x))) and, in *m, the largest. */
static double log_sum(const float *x, int64_t k, float *m) {
    double sum = 0;
    *m = row_max(x, k);
    for (int64_t j = 0; j < k; j++)
        sum += expf(x[j] - *m);
    return log(sum);
}

static inline double share(const struct dr_soft_labels *l, int64_t row, int64_t j) {
    return (1 - l->smoothing) * l->target[row * l->k + j] + l->smoothing / (double)l->k;
}

static int64_t first_row(const struct job *j, size_t i, int64_t *end) {
    const int64_t begin = (int64_t)i * j->chunk;
    *end = begin + j->chunk < j->l->rows ? begin + j->chunk : j->l->rows;
    return begin;
}

static void loss_chunk(void *ctx, size_t i) {
    const struct job *j = ctx;
    const struct dr_soft_labels *l = j->l;
    double sum = 0, count = 0;
    int64_t end;
    for (int64_t row = first_row(j, i, &end); row < end; row++) {
        const float *x = j->x + row * l->k;
        if (row / l->rows_per_sample >= j->n_valid)
            continue;
        float m;
        const double lse = log_sum(x, l->k, &m);
        for (int64_t k = 0; k < l->k; k++) {
            const double t = share(l, row, k);
            sum += t != 0 ? t * (lse - ((double)x[k] - m)) : 0; /* not 0 * inf */
        }
        count++;
    }
    j->partial[2 * i] = sum;
    j->partial[2 * i + 1] = count;
}

int64_t dr_cpu_soft_labels_bytes(int64_t rows) {
    return dr_cpu_chunks(rows) * 2 * (int64_t)sizeof(double);
}

void dr_cpu_soft_labels(struct dr_cpu *cpu, const struct dr_soft_labels *l, int64_t n_valid,
                        const float *x, void *workspace, float *mean, double *partial) {
    struct job j = {.l = l,
                    .n_valid = n_valid,
                    .chunk = dr_cpu_chunk_rows(l->rows),
                    .x = x,
                    .partial = workspace};
    const int64_t chunks = dr_cpu_chunks(l->rows);
    dr_cpu_for(cpu, loss_chunk, &j, (size_t)chunks, 8.0 * (double)(j.chunk * l->k));
    partial[0] = partial[1] = 0;
    for (int64_t i = 0; i < chunks; i++) {
        partial[0] += j.partial[2 * i];
        partial[1] += j.partial[2 * i + 1];
    }
    *mean = partial[1] != 0 ? (float)(partial[0] / partial[1]) : 0.0f;
}

/* d/dx of sum_j t[j] (lse - x[j]) = softmax(x) * sum(t) - t. */
static void dgrad_chunk(void *ctx, size_t i) {
    const struct job *j = ctx;
    const struct dr_soft_labels *l = j->l;
    int64_t end;
    for (int64_t row = first_row(j, i, &end); row < end; row++) {
        const float *x = j->x + row * l->k;
        float *dx = j->dx + row * l->k, m;
        if (row / l->rows_per_sample >= j->n_valid || j->scale == 0) {
            memset(dx, 0, (size_t)l->k * sizeof *dx);
            continue;
        }
        const double lse = log_sum(x, l->k, &m);
        double total = 0;
        for (int64_t k = 0; k < l->k; k++)
            total += share(l, row, k);
        for (int64_t k = 0; k < l->k; k++)
            dx[k] = (float)(j->scale * (total * expf(x[k] - (m + (float)lse)) - share(l, row, k)));
    }
}

void dr_cpu_soft_labels_dgrad(struct dr_cpu *cpu, const struct dr_soft_labels *l, int64_t n_valid,
                              const float *x, double weight, double count, float *dx) {
    struct job j = {.l = l,
                    .n_valid = n_valid,
                    .chunk = dr_cpu_chunk_rows(l->rows),
                    .x = x,
                    .scale = count != 0 ? weight / count : 0,
                    .dx = dx};
    dr_cpu_for(cpu, dgrad_chunk, &j, (size_t)dr_cpu_chunks(l->rows),
               16.0 * (double)(j.chunk * l->k));
}
