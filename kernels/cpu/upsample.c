/* Nearest and bilinear resizing; see upsample.h. A row is an item: of the output forward, of the
 * input backward, which gathers from the outputs that read it. */
#include "kernels/cpu/upsample.h"
#include <string.h>

#define CHANNELS 64 /* a block, on the stack */

struct upsample {
    const struct dr_upsample *u;
    const float *x;
    float *y;
};

static void fprop_row(void *ctx, size_t i) {
    const struct upsample *t = ctx;
    const struct dr_upsample *u = t->u;
    const int64_t n = (int64_t)i / u->ho, c = u->c;
    const struct dr_tap v = dr_tap((int64_t)i % u->ho, u->h, u->ho, u->bilinear);
    const float *above = t->x + (n * u->h + v.lo) * u->w * c;
    const float *below = t->x + (n * u->h + v.hi) * u->w * c;
    float *restrict y = t->y + (int64_t)i * u->wo * c;
    for (int64_t wo = 0; wo < u->wo; wo++, y += c) {
        const struct dr_tap w = dr_tap(wo, u->w, u->wo, u->bilinear);
        if (!u->bilinear) {
            memcpy(y, above + w.lo * c, (size_t)c * sizeof *y);
            continue;
        }
        const float *a = above + w.lo * c, *b = above + w.hi * c;
        const float *d = below + w.lo * c, *e = below + w.hi * c;
        const float left = 1.0f - w.part, right = w.part, up = 1.0f - v.part, down = v.part;
        for (int64_t k = 0; k < c; k++)
            y[k] = up * (left * a[k] + right * b[k]) + down * (left * d[k] + right * e[k]);
    }
}

/* One pixel of dx, channels [first, first + m). */
static void dgrad_pixel(const struct upsample *t, int64_t row, int64_t w, int64_t first,
                        int64_t m) {
    const struct dr_upsample *u = t->u;
    const int64_t h = row % u->h, c = u->c, back = u->bilinear ? 1 : 0;
    const float *image = t->x + row / u->h * u->ho * u->wo * c + first;
    const int64_t h1 = dr_tap_first(h + 1, u->h, u->ho, u->bilinear);
    const int64_t w0 = dr_tap_first(w - back, u->w, u->wo, u->bilinear);
    const int64_t w1 = dr_tap_first(w + 1, u->w, u->wo, u->bilinear);
    double sum[CHANNELS] = {0};
    for (int64_t ho = dr_tap_first(h - back, u->h, u->ho, u->bilinear); ho < h1; ho++) {
        const struct dr_tap v = dr_tap(ho, u->h, u->ho, u->bilinear);
        for (int64_t wo = w0; wo < w1; wo++) {
            const struct dr_tap q = dr_tap(wo, u->w, u->wo, u->bilinear);
            const double share = (double)dr_tap_weight(&v, h) * (double)dr_tap_weight(&q, w);
            const float *dy = image + (ho * u->wo + wo) * c;
            for (int64_t k = 0; k < m; k++)
                sum[k] += dy[k] * share;
        }
    }
    float *dx = t->y + (row * u->w + w) * c + first;
    for (int64_t k = 0; k < m; k++)
        dx[k] = (float)sum[k];
}

static void dgrad_row(void *ctx, size_t i) {
    const struct upsample *t = ctx;
    const int64_t c = t->u->c;
    for (int64_t w = 0; w < t->u->w; w++)
        for (int64_t first = 0; first < c; first += CHANNELS)
            dgrad_pixel(t, (int64_t)i, w, first, c - first < CHANNELS ? c - first : CHANNELS);
}

void dr_cpu_upsample_fprop(struct dr_cpu *cpu, const struct dr_upsample *u, const float *x,
                           float *y) {
    struct upsample t = {u, x, y};
    dr_cpu_for(cpu, fprop_row, &t, (size_t)(u->n * u->ho),
               (double)u->wo * (10.0 + (double)u->c * (u->bilinear ? 1.0 : 0.2)));
}

void dr_cpu_upsample_dgrad(struct dr_cpu *cpu, const struct dr_upsample *u, const float *dy,
                           float *dx) {
    struct upsample t = {u, dy, dx};
    const double outputs = (double)(u->ho * u->wo) / (double)u->h * (u->bilinear ? 4.0 : 1.0);
    dr_cpu_for(cpu, dgrad_row, &t, (size_t)(u->n * u->h), outputs * (10.0 + (double)u->c * 0.5));
}
