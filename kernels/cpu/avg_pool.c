/* Average pooling; see avg_pool.h. One row and block of channels is an item, of the output forward
 * and of the input backward, which gathers from the windows that cover it. */
#include "kernels/cpu/avg_pool.h"

#define CHANNELS 64 /* a block, on the stack */

struct pool {
    const struct dr_pool *p;
    bool count_pad;
    const float *x;
    float *y;
    int64_t blocks; /* of channels */
};

static int64_t channels_of(const struct pool *t, int64_t first) {
    return t->p->c - first < CHANNELS ? t->p->c - first : CHANNELS;
}

static void fprop_row(void *ctx, size_t i) {
    const struct pool *t = ctx;
    const struct dr_pool *p = t->p;
    const int64_t row = (int64_t)i / t->blocks, first = (int64_t)i % t->blocks * CHANNELS;
    const int64_t m = channels_of(t, first), c = p->c;
    const float *image = t->x + row / p->ho * p->h * p->w * c + first;
    for (int64_t wo = 0; wo < p->wo; wo++) {
        const struct dr_pool_window v = dr_pool_window(p, row % p->ho, wo, t->count_pad);
        float *y = t->y + (row * p->wo + wo) * c + first;
        double sum[CHANNELS] = {0};
        for (int64_t h = v.h0; h < v.h1; h++)
            for (int64_t w = v.w0; w < v.w1; w++) {
                const float *x = image + (h * p->w + w) * c;
                for (int64_t k = 0; k < m; k++)
                    sum[k] += x[k];
            }
        for (int64_t k = 0; k < m; k++)
            y[k] = (float)(sum[k] / v.count);
    }
}

static void dgrad_row(void *ctx, size_t i) {
    const struct pool *t = ctx;
    const struct dr_pool *p = t->p;
    const int64_t row = (int64_t)i / t->blocks, first = (int64_t)i % t->blocks * CHANNELS;
    const int64_t m = channels_of(t, first), c = p->c, h = row % p->h;
    const float *image = t->x + row / p->h * p->ho * p->wo * c + first;
    const int64_t h0 = dr_pool_first(h, p->pt, p->kh, p->sh);
    const int64_t h1 = dr_pool_end(h, p->pt, p->sh, p->ho);
    for (int64_t w = 0; w < p->w; w++) {
        const int64_t w0 = dr_pool_first(w, p->pl, p->kw, p->sw);
        const int64_t w1 = dr_pool_end(w, p->pl, p->sw, p->wo);
        double sum[CHANNELS] = {0};
        for (int64_t ho = h0; ho < h1; ho++)
            for (int64_t wo = w0; wo < w1; wo++) {
                const double share = 1.0 / dr_pool_window(p, ho, wo, t->count_pad).count;
                const float *dy = image + (ho * p->wo + wo) * c;
                for (int64_t k = 0; k < m; k++)
                    sum[k] += dy[k] * share;
            }
        float *dx = t->y + (row * p->w + w) * c + first;
        for (int64_t k = 0; k < m; k++)
            dx[k] = (float)sum[k];
    }
}

void dr_cpu_avg_pool_fprop(struct dr_cpu *cpu, const struct dr_pool *p, bool count_pad,
                           const float *x, float *y) {
    struct pool t = {p, count_pad, x, y, (p->c + CHANNELS - 1) / CHANNELS};
    dr_cpu_for(cpu, fprop_row, &t, (size_t)(p->n * p->ho * t.blocks),
               (double)(p->wo * p->kh * p->kw) * (double)channels_of(&t, 0) * 0.4);
}

void dr_cpu_avg_pool_dgrad(struct dr_cpu *cpu, const struct dr_pool *p, bool count_pad,
                           const float *dy, float *dx) {
    struct pool t = {p, count_pad, dy, dx, (p->c + CHANNELS - 1) / CHANNELS};
    dr_cpu_for(cpu, dgrad_row, &t, (size_t)(p->n * p->h * t.blocks),
               (double)(p->w * (p->kh / p->sh + 1) * (p->kw / p->sw + 1)) *
                   (double)channels_of(&t, 0) * 0.4);
}
