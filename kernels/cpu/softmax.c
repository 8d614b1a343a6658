/* Softmax, cross-entropy and accuracy by rows. Sums over rows go by chunks (sums.h). */
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/classes.h"
#include "kernels/cpu/sums.h"
#include <math.h>
#include <string.h>

#define NS_EACH 6.0 /* one expf */

struct rows {
    int64_t n, k, chunk;
    const float *x, *dy;
    float *y;
    const struct dr_cpu_classes *classes;
    const struct dr_cpu_loss *loss;
    double scale;    /* gradient: weight / count */
    double weight_k; /* sum of the class weights */
    int64_t top;
    double *partial; /* [chunks, 2] */
};

static void run(struct dr_cpu *cpu, void (*f)(void *, size_t), struct rows *r) {
    r->chunk = dr_cpu_chunk_rows(r->n);
    if (r->k >= 64 && r->chunk == 256 && !r->partial)
        r->chunk = 16; /* few long rows: smaller items of work, which no sum depends on */
    dr_cpu_for(cpu, f, r, (size_t)((r->n + r->chunk - 1) / r->chunk),
               (double)(r->chunk * r->k) * NS_EACH);
}

static int64_t first_row(const struct rows *r, size_t i, int64_t *end) {
    const int64_t begin = (int64_t)i * r->chunk;
    *end = begin + r->chunk < r->n ? begin + r->chunk : r->n;
    return begin;
}

static void softmax_chunk(void *ctx, size_t i) {
    const struct rows *r = ctx;
    int64_t end;
    for (int64_t row = first_row(r, i, &end); row < end; row++) {
        const float *x = r->x + row * r->k;
        float *y = r->y + row * r->k;
        const float m = row_max(x, r->k);
        double sum = 0;
        for (int64_t j = 0; j < r->k; j++)
            sum += y[j] = expf(x[j] - m);
        const float scale = (float)(1.0 / sum);
        for (int64_t j = 0; j < r->k; j++)
            y[j] *= scale;
    }
}

void dr_cpu_softmax(struct dr_cpu *cpu, int64_t rows, int64_t k, const float *x, float *y) {
    run(cpu, softmax_chunk, &(struct rows){.n = rows, .k = k, .x = x, .y = y});
}

static void softmax_dgrad_chunk(void *ctx, size_t i) {
    const struct rows *r = ctx;
    int64_t end;
    for (int64_t row = first_row(r, i, &end); row < end; row++) {
        const float *y = r->x + row * r->k, *dy = r->dy + row * r->k;
        float *dx = r->y + row * r->k;
        double dot = 0;
        for (int64_t j = 0; j < r->k; j++)
            dot += (double)y[j] * dy[j];
        for (int64_t j = 0; j < r->k; j++)
            dx[j] = y[j] * (dy[j] - (float)dot);
    }
}

void dr_cpu_softmax_dgrad(struct dr_cpu *cpu, int64_t rows, int64_t k, const float *y,
                          const float *dy, float *dx) {
    run(cpu, softmax_dgrad_chunk, &(struct rows){.n = rows, .k = k, .x = y, .dy = dy, .y = dx});
}

/* log(sum(exp(x - m))), so that log p[j] = x[j] - m - that. */
static double log_sum(const float *x, int64_t k, float m) {
    double sum = 0;
    for (int64_t j = 0; j < k; j++)
        sum += expf(x[j] - m);
    return log(sum);
}

static double weight_of(const struct dr_cpu_loss *loss, int64_t class) {
    return loss->class_weight ? loss->class_weight[class] : 1.0;
}

/* PyTorch: (1 - s) * w[t] * -log p[t] + s / K * sum_j w[j] * -log p[j]. */
static double row_loss(const struct rows *r, const float *x, int64_t class) {
    const double s = r->loss->smoothing;
    const float m = row_max(x, r->k);
    const double lse = log_sum(x, r->k, m);
    double loss = (1.0 - s) * weight_of(r->loss, class) * (lse - ((double)x[class] - m));
    if (s > 0) {
        double all = 0;
        for (int64_t j = 0; j < r->k; j++)
            all += weight_of(r->loss, j) * (lse - ((double)x[j] - m));
        loss += s / (double)r->k * all;
    }
    return loss;
}

static void loss_chunk(void *ctx, size_t i) {
    const struct rows *r = ctx;
    double sum = 0, count = 0;
    int64_t end, class;
    for (int64_t row = first_row(r, i, &end); row < end; row++) {
        if (!counts(r->classes, row, &class))
            continue;
        if (class < 0 || class >= r->k) {
            sum = NAN;
            count += 1;
            continue;
        }
        sum += row_loss(r, r->x + row * r->k, class);
        count += weight_of(r->loss, class);
    }
    r->partial[2 * i] = sum;
    r->partial[2 * i + 1] = count;
}

static void merge(const struct rows *r, double *partial) {
    double a = 0, b = 0;
    for (int64_t i = 0, n = dr_cpu_chunks(r->n); i < n; i++) {
        a += r->partial[2 * i];
        b += r->partial[2 * i + 1];
    }
    partial[0] = a;
    partial[1] = b;
}

int64_t dr_cpu_cross_entropy_bytes(int64_t rows) {
    return dr_cpu_chunks(rows) * 2 * (int64_t)sizeof(double);
}

void dr_cpu_cross_entropy(struct dr_cpu *cpu, const struct dr_cpu_classes *c,
                          const struct dr_cpu_loss *loss, const float *x, void *workspace,
                          float *mean, double *partial) {
    struct rows r = {
        .n = c->rows, .k = c->k, .x = x, .classes = c, .loss = loss, .partial = workspace};
    run(cpu, loss_chunk, &r);
    merge(&r, partial);
    *mean = partial[1] != 0 ? (float)(partial[0] / partial[1]) : (float)(partial[0] * 0.0);
}

static void loss_dgrad_chunk(void *ctx, size_t i) {
    const struct rows *r = ctx;
    const double s = r->loss->smoothing;
    int64_t end, class;
    for (int64_t row = first_row(r, i, &end); row < end; row++) {
        const float *x = r->x + row * r->k;
        float *dx = r->y + row * r->k;
        if (!counts(r->classes, row, &class) || r->scale == 0) {
            memset(dx, 0, (size_t)r->k * sizeof *dx);
            continue;
        }
        if (class < 0 || class >= r->k) { /* its loss is NaN: nothing will be updated */
            for (int64_t j = 0; j < r->k; j++)
                dx[j] = NAN;
            continue;
        }
        const float m = row_max(x, r->k);
        const double lse = log_sum(x, r->k, m), own = (1.0 - s) * weight_of(r->loss, class);
        const double spread = s / (double)r->k, total = own + spread * r->weight_k;
        const float scale = (float)(r->scale * total), shift = m + (float)lse;
        for (int64_t j = 0; j < r->k; j++)
            dx[j] = scale * expf(x[j] - shift);
        if (s > 0)
            for (int64_t j = 0; j < r->k; j++)
                dx[j] -= (float)(r->scale * spread * weight_of(r->loss, j));
        dx[class] -= (float)(r->scale * own);
    }
}

void dr_cpu_cross_entropy_dgrad(struct dr_cpu *cpu, const struct dr_cpu_classes *c,
                                const struct dr_cpu_loss *loss, const float *x, double weight,
                                double count, float *dx) {
    struct rows r = {.n = c->rows, .k = c->k, .x = x, .y = dx, .classes = c, .loss = loss};
    r.scale = count != 0 ? weight / count : 0;
    for (int64_t j = 0; j < c->k; j++)
        r.weight_k += weight_of(loss, j);
    run(cpu, loss_dgrad_chunk, &r);
}

static bool among_top(const float *x, int64_t k, int64_t class, int64_t top) {
    if (class < 0 || class >= k || x[class] != x[class])
        return false;
    int64_t above = 0;
    for (int64_t j = 0; j < k; j++)
        above += !(x[j] <= x[class]) || (x[j] == x[class] && j < class);
    return above < top;
}

static void accuracy_chunk(void *ctx, size_t i) {
    const struct rows *r = ctx;
    double right = 0, count = 0;
    int64_t end, class;
    for (int64_t row = first_row(r, i, &end); row < end; row++) {
        if (!counts(r->classes, row, &class))
            continue;
        count += 1;
        right += among_top(r->x + row * r->k, r->k, class, r->top);
    }
    r->partial[2 * i] = right;
    r->partial[2 * i + 1] = count;
}

void dr_cpu_accuracy(struct dr_cpu *cpu, const struct dr_cpu_classes *c, int64_t top,
                     const float *x, void *workspace, double *partial) {
    struct rows r = {
        .n = c->rows, .k = c->k, .x = x, .classes = c, .top = top, .partial = workspace};
    run(cpu, accuracy_chunk, &r);
    merge(&r, partial);
}
