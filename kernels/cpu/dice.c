/* Soft Dice: an item of work is a chunk of the rows of one sample. */
#include "kernels/cpu/dice.h"
#include "kernels/cpu/classes.h"
#include "kernels/maps.h"
#include <string.h>

struct dice {
    const struct dr_cpu_classes *c;
    const float *x;
    int64_t samples, chunks, chunk; /* of a sample's rows */
    double *partial;                /* [samples, chunks, 3 k + 1] */
    double *slope;                  /* [samples, k, 2]: dL/dp of every row, and what its own adds */
    float *dx;
};

static struct dice start(const struct dr_cpu_classes *c, const float *x) {
    return (struct dice){.c = c,
                         .x = x,
                         .samples = c->rows / c->rows_per_sample,
                         .chunks = dr_cpu_chunks(c->rows_per_sample),
                         .chunk = dr_cpu_chunk_rows(c->rows_per_sample)};
}
static void go(struct dr_cpu *cpu, void (*f)(void *, size_t), struct dice *d) {
    dr_cpu_for(cpu, f, d, (size_t)(d->samples * d->chunks), (double)(d->chunk * d->c->k) * 12.0);
}
static int64_t first_row(const struct dice *d, size_t i, int64_t *end) {
    const int64_t per = d->c->rows_per_sample, sample = (int64_t)i / d->chunks;
    const int64_t begin = (int64_t)i % d->chunks * d->chunk, left = per - begin;
    *end = sample * per + begin + (left < d->chunk ? left : d->chunk);
    return sample * per + begin;
}

/* p of class j is scale * exp(x[j] - m). */
static double softmax_of(const float *x, int64_t k, float *m) {
    double sum = 0;
    *m = row_max(x, k);
    for (int64_t j = 0; j < k; j++)
        sum += expf(x[j] - *m);
    return 1.0 / sum;
}

static void sums_chunk(void *ctx, size_t i) {
    const struct dice *d = ctx;
    const int64_t k = d->c->k;
    double *both = d->partial + (int64_t)i * (3 * k + 1), *p = both + k, *t = p + k;
    int64_t end, class;
    memset(both, 0, (size_t)(3 * k + 1) * sizeof *both);
    for (int64_t row = first_row(d, i, &end); row < end; row++) {
        const float *x = d->x + row * k;
        if (!counts(d->c, row, &class))
            continue;
        t[k] += 1;
        if (class < 0 || class >= (k == 1 ? 2 : k)) {
            both[0] = NAN;
            continue;
        }
        if (k == 1) {
            const float one = dr_sigmoid(x[0]);
            p[0] += one;
            both[0] += class ? one : 0.0f;
            t[0] += (double)class;
            continue;
        }
        float m;
        const double scale = softmax_of(x, k, &m);
        for (int64_t j = 0; j < k; j++)
            p[j] += scale * expf(x[j] - m);
        both[class] += scale * expf(x[class] - m);
        t[class] += 1;
    }
}

void dr_cpu_dice(struct dr_cpu *cpu, const struct dr_cpu_classes *c, double smooth, const float *x,
                 void *workspace, float *mean, double *partial, double *sums) {
    struct dice d = start(c, x);
    const int64_t k = c->k, width = 3 * k + 1;
    d.partial = workspace;
    go(cpu, sums_chunk, &d);
    double total = 0, count = 0;
    for (int64_t n = 0; n < d.samples; n++) {
        double *s = sums + n * width, dice = 0;
        memset(s, 0, (size_t)width * sizeof *s);
        for (int64_t i = 0; i < d.chunks; i++)
            for (int64_t j = 0; j < width; j++)
                s[j] += d.partial[(n * d.chunks + i) * width + j];
        if (s[3 * k] == 0)
            continue;
        for (int64_t j = 0; j < k; j++) {
            const double below = s[k + j] + s[2 * k + j] + smooth;
            dice += below == 0 ? 1 : (2 * s[j] + smooth) / below;
        }
        total += 1 - dice / (double)k;
        count += 1;
    }
    partial[0] = total;
    partial[1] = count;
    *mean = count > 0 ? (float)(total / count) : 0.0f;
}

static void dgrad_chunk(void *ctx, size_t i) {
    const struct dice *d = ctx;
    const int64_t k = d->c->k, n = (int64_t)i / d->chunks;
    const double *slope = d->slope + n * 2 * k;
    int64_t end, class;
    for (int64_t row = first_row(d, i, &end); row < end; row++) {
        const float *x = d->x + row * k;
        float *dx = d->dx + row * k;
        if (!counts(d->c, row, &class)) {
            memset(dx, 0, (size_t)k * sizeof *dx);
            continue;
        }
        if (k == 1) {
            const double slope_of_p = (double)dr_sigmoid(x[0]) * dr_sigmoid(-x[0]);
            dx[0] = (float)(slope_of_p * (slope[0] + (class == 1 ? slope[1] : 0)));
            continue;
        }
        float m;
        const double scale = softmax_of(x, k, &m);
        double dot = 0;
        for (int64_t j = 0; j < k; j++)
            dot += scale * expf(x[j] - m) * (slope[2 * j] + (j == class ? slope[2 * j + 1] : 0));
        for (int64_t j = 0; j < k; j++)
            dx[j] = (float)(scale * expf(x[j] - m) *
                            (slope[2 * j] + (j == class ? slope[2 * j + 1] : 0) - dot));
    }
}

/* dD/dp = (2 t B - A) / B^2 with D = A / B; the loss falls by 1 / k of it. */
void dr_cpu_dice_dgrad(struct dr_cpu *cpu, const struct dr_cpu_classes *c, double smooth,
                       const float *x, double weight, double count, const double *sums,
                       void *workspace, float *dx) {
    struct dice d = start(c, x);
    const int64_t k = c->k;
    const double scale = count > 0 ? weight / count / (double)k : 0;
    d.slope = workspace;
    d.dx = dx;
    for (int64_t n = 0; n < d.samples; n++)
        for (int64_t j = 0; j < k; j++) {
            const double *s = sums + n * (3 * k + 1), below = s[k + j] + s[2 * k + j] + smooth;
            double *slope = d.slope + (n * k + j) * 2;
            slope[0] = below == 0 ? 0 : scale * (2 * s[j] + smooth) / (below * below);
            slope[1] = below == 0 ? 0 : -2 * scale / below;
        }
    go(cpu, dgrad_chunk, &d);
}
