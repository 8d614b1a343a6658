/* Max pooling; see max_pool.h. Windows are scanned row by row with the channels innermost, so that
 * the compiler makes vectors of them. Forward: one output row is an item. Backward: one sample and
 * block of channels is an item, which owns that part of dx, and finds the winners again. */
#include "kernels/cpu/max_pool.h"
#include <string.h>

#define CHANNELS 64 /* a block, on the stack */

struct pool {
    const struct dr_pool *p;
    const float *x, *dy;
    float *y;
    int64_t blocks; /* of channels */
};

/* The window of output (ho, wo) inside the image; never empty, as padding is at most half the
 * kernel. */
struct window {
    int64_t h0, h1, w0, w1;
};
static struct window window_of(const struct dr_pool *p, int64_t ho, int64_t wo) {
    struct window v = {.h0 = ho * p->sh - p->pt, .w0 = wo * p->sw - p->pl};
    v.h1 = v.h0 + p->kh < p->h ? v.h0 + p->kh : p->h;
    v.w1 = v.w0 + p->kw < p->w ? v.w0 + p->kw : p->w;
    v.h0 = v.h0 < 0 ? 0 : v.h0;
    v.w0 = v.w0 < 0 ? 0 : v.w0;
    return v;
}

/* Larger, or the first NaN. */
static inline int wins(float x, float best) {
    return x > best || (x != x && best == best);
}

static void fprop_row(void *ctx, size_t i) {
    const struct pool *t = ctx;
    const struct dr_pool *p = t->p;
    const int64_t n = (int64_t)i / p->ho, ho = (int64_t)i % p->ho, c = p->c;
    const float *image = t->x + n * p->h * p->w * c;
    for (int64_t wo = 0; wo < p->wo; wo++) {
        const struct window v = window_of(p, ho, wo);
        float *restrict y = t->y + ((int64_t)i * p->wo + wo) * c;
        memcpy(y, image + (v.h0 * p->w + v.w0) * c, (size_t)c * sizeof *y);
        for (int64_t h = v.h0; h < v.h1; h++)
            for (int64_t w = v.w0; w < v.w1; w++) {
                const float *restrict x = image + (h * p->w + w) * c;
                for (int64_t k = 0; k < c; k++)
                    y[k] = wins(x[k], y[k]) ? x[k] : y[k];
            }
    }
}

void dr_cpu_max_pool_fprop(struct dr_cpu *cpu, const struct dr_pool *p, const float *x, float *y) {
    struct pool t = {.p = p, .x = x, .y = y};
    dr_cpu_for(cpu, fprop_row, &t, (size_t)(p->n * p->ho),
               (double)(p->wo * p->c * p->kh * p->kw) * 0.4);
}

static void dgrad_block(void *ctx, size_t i) {
    const struct pool *t = ctx;
    const struct dr_pool *p = t->p;
    const int64_t n = (int64_t)i / t->blocks, first = (int64_t)i % t->blocks * CHANNELS, c = p->c;
    const int64_t m = c - first < CHANNELS ? c - first : CHANNELS;
    const float *image = t->x + n * p->h * p->w * c + first;
    const float *dy = t->dy + n * p->ho * p->wo * c + first;
    float *dx = t->y + n * p->h * p->w * c + first;
    for (int64_t q = 0; q < p->h * p->w; q++)
        memset(dx + q * c, 0, (size_t)m * sizeof *dx);
    for (int64_t o = 0; o < p->ho * p->wo; o++) {
        const struct window v = window_of(p, o / p->wo, o % p->wo);
        float best[CHANNELS];
        int64_t winner[CHANNELS];
        for (int64_t k = 0; k < m; k++) {
            winner[k] = v.h0 * p->w + v.w0;
            best[k] = image[winner[k] * c + k];
        }
        for (int64_t h = v.h0; h < v.h1; h++)
            for (int64_t w = v.w0; w < v.w1; w++) {
                const float *x = image + (h * p->w + w) * c;
                for (int64_t k = 0; k < m; k++) {
                    const int win = wins(x[k], best[k]);
                    best[k] = win ? x[k] : best[k];
                    winner[k] = win ? h * p->w + w : winner[k];
                }
            }
        for (int64_t k = 0; k < m; k++)
            dx[winner[k] * c + k] += dy[o * c + k];
    }
}

void dr_cpu_max_pool_dgrad(struct dr_cpu *cpu, const struct dr_pool *p, const float *x,
                           const float *dy, float *dx) {
    struct pool t = {.p = p, .x = x, .dy = dy, .y = dx, .blocks = (p->c + CHANNELS - 1) / CHANNELS};
    dr_cpu_for(cpu, dgrad_block, &t, (size_t)(p->n * t.blocks),
               (double)(p->ho * p->wo * CHANNELS * p->kh * p->kw) * 0.8);
}
