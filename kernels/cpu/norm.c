/* Batch normalization, forward and backward; see norm.h.
 *
 * A chunk of rows stays in cache while its mean and then its squared deviations are summed; chunks
 * are merged in order by the update of Chan, Golub and LeVeque, "Algorithms for computing the
 * sample variance" (1983). Backward is Ioffe and Szegedy's formula (arXiv 1502.03167, section 3):
 * dx = gamma * rstd * (dy - mean(dy) - xhat * mean(dy * xhat)). */
#include "kernels/cpu/norm.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/sums.h"
#include <math.h>
#include <string.h>

struct norm {
    int64_t rows, c, chunk;
    const float *x, *dy, *add, *mean, *var;
    const float *shift, *scale, *bias, *slope; /* [c] each, per-channel terms of one pass */
    int act;
    float *y;
    double *partial; /* [chunks, 2, c] */
};

int64_t dr_cpu_norm_bytes(int64_t rows, int64_t c) {
    return (dr_cpu_chunks(rows) * 2 + 2) * c * (int64_t)sizeof(double);
}

static int64_t rows_of(const struct norm *n, size_t i) {
    const int64_t left = n->rows - (int64_t)i * n->chunk;
    return left < n->chunk ? left : n->chunk;
}

/* Items of about 16 Ki elements for passes that sum nothing. */
static void run_rows(struct dr_cpu *cpu, void (*f)(void *, size_t), struct norm *n) {
    n->chunk = n->c < 16384 ? 16384 / n->c : 1;
    dr_cpu_for(cpu, f, n, (size_t)((n->rows + n->chunk - 1) / n->chunk),
               (double)(n->chunk * n->c) * 0.4);
}

static void run_sums(struct dr_cpu *cpu, void (*f)(void *, size_t), struct norm *n) {
    n->chunk = dr_cpu_chunk_rows(n->rows);
    dr_cpu_for(cpu, f, n, (size_t)dr_cpu_chunks(n->rows), (double)(n->chunk * n->c) * 1.5);
}

static void stats_chunk(void *ctx, size_t i) {
    const struct norm *n = ctx;
    const int64_t rows = rows_of(n, i), c = n->c;
    const float *x = n->x + (int64_t)i * n->chunk * c;
    double *mean = n->partial + (int64_t)i * 2 * c, *m2 = mean + c;
    memset(mean, 0, (size_t)c * 2 * sizeof *mean);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < c; k++)
            mean[k] += x[r * c + k];
    for (int64_t k = 0; k < c; k++)
        mean[k] /= (double)rows;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < c; k++) {
            const double d = x[r * c + k] - mean[k];
            m2[k] += d * d;
        }
}

void dr_cpu_norm_stats(struct dr_cpu *cpu, int64_t rows, int64_t c, const float *x, void *workspace,
                       float *mean, float *var) {
    struct norm n = {.rows = rows, .c = c, .x = x, .partial = workspace};
    run_sums(cpu, stats_chunk, &n);
    const int64_t chunks = dr_cpu_chunks(rows);
    for (int64_t k = 0; k < c; k++) {
        double m = 0, m2 = 0, count = 0;
        for (int64_t i = 0; i < chunks; i++) {
            const double *part = n.partial + i * 2 * c;
            const double more = (double)rows_of(&n, (size_t)i), d = part[k] - m;
            m += d * more / (count + more);
            m2 += part[c + k] + d * d * count * more / (count + more);
            count += more;
        }
        mean[k] = (float)m;
        var[k] = (float)(m2 / count);
    }
}

static void apply_rows(void *ctx, size_t i) {
    const struct norm *n = ctx;
    const int64_t rows = rows_of(n, i), c = n->c, first = (int64_t)i * n->chunk * c;
    const float *restrict x = n->x + first;
    float *restrict y = n->y + first;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < c; k++)
            y[r * c + k] = (x[r * c + k] - n->shift[k]) * n->scale[k] + n->bias[k];
    for (int64_t k = 0; n->add && k < rows * c; k++)
        y[k] += n->add[first + k];
    dr_cpu_activate(y, rows * c, n->act);
}

void dr_cpu_norm_apply(struct dr_cpu *cpu, int64_t rows, int64_t c, const float *x,
                       const float *mean, const float *var, const float *gamma, const float *beta,
                       double eps, const float *add, int act, void *workspace, float *y) {
    float *scale = workspace;
    for (int64_t k = 0; k < c; k++)
        scale[k] = (float)(gamma[k] / sqrt((double)var[k] + eps));
    struct norm n = {.rows = rows,
                     .c = c,
                     .x = x,
                     .add = add,
                     .shift = mean,
                     .scale = scale,
                     .bias = beta,
                     .act = act,
                     .y = y};
    run_rows(cpu, apply_rows, &n);
}

static void wgrad_chunk(void *ctx, size_t i) {
    const struct norm *n = ctx;
    const int64_t rows = rows_of(n, i), c = n->c, first = (int64_t)i * n->chunk * c;
    const float *x = n->x + first, *dy = n->dy + first;
    double *dgamma = n->partial + (int64_t)i * 2 * c, *dbeta = dgamma + c;
    memset(dgamma, 0, (size_t)c * 2 * sizeof *dgamma);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < c; k++) {
            dgamma[k] += (double)dy[r * c + k] * (x[r * c + k] - n->mean[k]);
            dbeta[k] += dy[r * c + k];
        }
}

void dr_cpu_norm_wgrad(struct dr_cpu *cpu, int64_t rows, int64_t c, const float *x, const float *dy,
                       const float *mean, const float *var, double eps, void *workspace,
                       float *dgamma, float *dbeta) {
    struct norm n = {.rows = rows, .c = c, .x = x, .dy = dy, .mean = mean, .partial = workspace};
    run_sums(cpu, wgrad_chunk, &n);
    const int64_t chunks = dr_cpu_chunks(rows);
    for (int64_t k = 0; k < c; k++) {
        double g = 0, b = 0;
        for (int64_t i = 0; i < chunks; i++) {
            g += n.partial[i * 2 * c + k];
            b += n.partial[(i * 2 + 1) * c + k];
        }
        dgamma[k] = (float)(g / sqrt((double)var[k] + eps));
        dbeta[k] = (float)b;
    }
}

static void dgrad_rows(void *ctx, size_t i) {
    const struct norm *n = ctx;
    const int64_t rows = rows_of(n, i), c = n->c, first = (int64_t)i * n->chunk * c;
    const float *restrict x = n->x + first, *restrict dy = n->dy + first;
    float *restrict dx = n->y + first;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < c; k++)
            dx[r * c + k] = n->scale[k] * (dy[r * c + k] - n->bias[k] -
                                           (x[r * c + k] - n->shift[k]) * n->slope[k]);
}

static void scale_rows(void *ctx, size_t i) {
    const struct norm *n = ctx;
    const int64_t rows = rows_of(n, i), c = n->c, first = (int64_t)i * n->chunk * c;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < c; k++)
            n->y[first + r * c + k] = n->scale[k] * n->dy[first + r * c + k];
}

void dr_cpu_norm_dgrad(struct dr_cpu *cpu, int64_t rows, int64_t c, const float *x, const float *dy,
                       const float *mean, const float *var, const float *gamma, const float *dgamma,
                       const float *dbeta, double eps, void *workspace, float *dx) {
    float *scale = workspace, *bias = scale + c, *slope = bias + c;
    for (int64_t k = 0; k < c; k++) {
        const double rstd = 1.0 / sqrt((double)var[k] + eps);
        scale[k] = (float)(gamma[k] * rstd);
        if (dgamma) {
            bias[k] = (float)(dbeta[k] / (double)rows);
            slope[k] = (float)(dgamma[k] * rstd / (double)rows);
        }
    }
    struct norm n = {.rows = rows,
                     .c = c,
                     .x = x,
                     .dy = dy,
                     .shift = mean,
                     .scale = scale,
                     .bias = bias,
                     .slope = slope,
                     .y = dx};
    run_rows(cpu, dgamma ? dgrad_rows : scale_rows, &n);
}
