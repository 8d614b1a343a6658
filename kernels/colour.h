/* color_jitter and grayscale: what becomes of a pixel, for every device. Meanings, constants and
 * rounding are torchvision.transforms.v2's for tensors (functional/_color.py): bytes are clamped to
 * 0..255 and truncated after each step, floats are clamped to 0..1. A byte is a whole number held
 * in a float here. */
#ifndef DR_KERNELS_COLOUR_H
#define DR_KERNELS_COLOUR_H
#include "kernels/batch.h"
#include "kernels/exact.h"
#include <stdbool.h>

enum { DR_BRIGHTNESS, DR_CONTRAST, DR_SATURATION, DR_HUE, DR_JITTERS };

struct dr_colour {
    int64_t n, pixels; /* samples; of a sample */
    int32_t c;         /* 1 or 3 */
    bool u8;           /* else f32 */
    bool grayscale;    /* with probability p; else the four below */
    double p;
    double least[DR_JITTERS], most[DR_JITTERS];
    bool on[DR_JITTERS];
    uint64_t seed, key;
};

/* What one sample gets. */
struct dr_coloured {
    bool grey;
    int32_t order[DR_JITTERS];
    float factor[DR_JITTERS], rest[DR_JITTERS]; /* and 1 - factor; hue: the shift */
};
DR_HD static inline struct dr_coloured dr_colour_of(const struct dr_colour *c,
                                                    const struct dr_batch *batch, int64_t i) {
    const struct dr_draw d = dr_philox(c->seed, c->key, batch->epoch, batch->sample[i], 0);
    struct dr_coloured r = {dr_between(d.x[0], 0, 1) < c->p, {0, 1, 2, 3}, {0}, {0}};
    if (c->grayscale) {
        return r;
    }
    const struct dr_draw e = dr_philox(c->seed, c->key, batch->epoch, batch->sample[i], 1);
    for (int k = 0; k < DR_JITTERS; k++) {
        const double f = dr_between(d.x[k], c->least[k], c->most[k]);
        r.factor[k] = (float)f;
        r.rest[k] = (float)(1.0 - f);
    }
    for (int k = DR_JITTERS - 1; k > 0; k--) { /* Fisher-Yates */
        const int j = dr_below(e.x[k], k + 1), other = r.order[j];
        r.order[j] = r.order[k];
        r.order[k] = other;
    }
    return r;
}

/* A value after a step: clamped; a byte loses its fraction. */
DR_HD static inline float dr_colour_store(float v, bool u8) {
    const float bound = u8 ? 255.0f : 1.0f;
    v = v < 0.0f ? 0.0f : (v > bound ? bound : v);
    return u8 ? dr_floor_f(v) : v;
}

DR_HD static inline float dr_luma(const float *p) {
    return p[0] * 0.2989f + p[1] * 0.587f + p[2] * 0.114f;
}
/* The grey that contrast and saturation blend with; a byte loses its fraction. */
DR_HD static inline float dr_grey(const float *p, int32_t c, bool u8) {
    const float v = c == 3 ? dr_luma(p) : p[0];
    return u8 ? dr_floor_f(v) : v;
}

DR_HD static inline float dr_unit(float v) {
    return v < 0.0f ? 0.0f : (v > 1.0f ? 1.0f : v);
}

/* RGB of [0, 1] with its hue turned by a part of the circle (through HSV, after Pillow). */
DR_HD static inline void dr_turn_hue(float *p, float shift) {
    const float r = p[0], g = p[1], b = p[2];
    const float upper = g > b ? g : b, lower = g < b ? g : b;
    const float most = r > upper ? r : upper, range = most - (r < lower ? r : lower);
    const float s = range / (range == 0.0f ? 1.0f : most), by = range == 0.0f ? 1.0f : range;
    const float rc = (most - r) / by, gc = (most - g) / by, bc = (most - b) / by;
    const float sixth = most == r ? bc - gc : (most == g ? rc + 2.0f - bc : gc + 4.0f - rc);
    float h = sixth * (1.0f / 6.0f) + 1.0f;
    h = h - dr_floor_f(h);
    h = h + shift;
    h = h - dr_floor_f(h);
    const float h6 = h * 6.0f, i = dr_floor_f(h6), f = h6 - i;
    const float x = dr_unit((1.0f - s) * most), q = dr_unit((1.0f - s * f) * most);
    const float t = dr_unit((s * f + (1.0f - s)) * most);
    const int32_t side = i >= 6.0f ? 0 : (int32_t)i;
    p[0] = side == 0 || side == 5 ? most : (side == 1 ? q : (side == 4 ? t : x));
    p[1] = side == 1 || side == 2 ? most : (side == 0 ? t : (side == 3 ? q : x));
    p[2] = side == 3 || side == 4 ? most : (side == 2 ? t : (side == 5 ? q : x));
}

DR_HD static inline void dr_colour_hue(float *p, float shift, bool u8) {
    if (!u8) {
        dr_turn_hue(p, shift);
        return;
    }
    for (int k = 0; k < 3; k++) {
        p[k] = p[k] * (float)(1.0 / 255);
    }
    dr_turn_hue(p, shift);
    for (int k = 0; k < 3; k++) { /* 256 equal parts, but for a little: to_dtype_image */
        p[k] = dr_floor_f(p[k] * 255.999f);
    }
}

/* A pixel after the steps order[0, steps). `mean`: of the grey before contrast. */
DR_HD static inline void dr_colour_pixel(const struct dr_colour *c, const struct dr_coloured *r,
                                         float mean, int steps, float *p) {
    for (int k = 0; k < steps; k++) {
        const int what = r->order[k];
        if (!c->on[what] || (what >= DR_SATURATION && c->c == 1)) {
            continue;
        }
        if (what == DR_HUE) {
            dr_colour_hue(p, r->factor[what], c->u8);
            continue;
        }
        const float with = what == DR_CONTRAST     ? mean
                           : what == DR_SATURATION ? dr_grey(p, c->c, c->u8)
                                                   : 0.0f;
        for (int32_t i = 0; i < c->c; i++) {
            p[i] = dr_colour_store(p[i] * r->factor[what] + with * r->rest[what], c->u8);
        }
    }
}
/* How many steps come before contrast. */
DR_HD static inline int dr_colour_before_contrast(const struct dr_coloured *r) {
    int k = 0;
    while (r->order[k] != DR_CONTRAST) {
        k++;
    }
    return k;
}

/* Greys are added up as integers, so that the mean does not depend on their order: bytes as they
 * are, floats of [0, 1] in units of 2^-31. */
DR_HD static inline int64_t dr_grey_units(float grey, bool u8) {
    return u8 ? (int64_t)grey : (int64_t)((double)dr_unit(grey) * 2147483648.0 + 0.5);
}
DR_HD static inline float dr_grey_mean(int64_t units, int64_t pixels, bool u8) {
    return (float)((double)units / ((double)pixels * (u8 ? 1.0 : 2147483648.0)));
}

/* grayscale: every channel the luma; a byte loses its fraction. */
DR_HD static inline void dr_colour_grey(const struct dr_colour *c, float *p) {
    if (c->c == 3) {
        const float v = dr_luma(p);
        p[0] = p[1] = p[2] = c->u8 ? dr_floor_f(v) : v;
    }
}
#endif
