/* random_erasing, mixup and cutmix: what a sample gets, for every device. Meanings are
 * torchvision.transforms.v2's (RandomErasing, MixUp, CutMix), but that every sample of mixup and
 * cutmix draws a share of its own; its partner depends on (seed, step) alone. */
#ifndef DR_KERNELS_MIX_H
#define DR_KERNELS_MIX_H
#include "kernels/batch.h"
#include "kernels/exact.h"
#include <stdbool.h>

/* Pixels [x0, x1) of rows [y0, y1). */
struct dr_box {
    int32_t x0, y0, x1, y1;
};

/* ---- random_erasing ---- */
struct dr_erase {
    int64_t n;
    int32_t h, w, c;
    bool u8; /* else f32 */
    float value;
    double p, scale[2], log_ratio[2]; /* of height / width, as torchvision has it */
    uint64_t seed, key;
};
/* Empty: nothing is erased. */
DR_HD static inline struct dr_box dr_erase_of(const struct dr_erase *e,
                                              const struct dr_batch *batch, int64_t i) {
    const struct dr_box none = {0, 0, 0, 0};
    const uint64_t sample = batch->sample[i];
    if (dr_between(dr_philox(e->seed, e->key, batch->epoch, sample, 0).x[0], 0, 1) >= e->p) {
        return none;
    }
    for (uint32_t k = 1; k <= 10; k++) {
        const struct dr_draw d = dr_philox(e->seed, e->key, batch->epoch, sample, k);
        const double area = (double)e->h * e->w * dr_between(d.x[0], e->scale[0], e->scale[1]);
        const double shape = dr_exact_exp(dr_between(d.x[1], e->log_ratio[0], e->log_ratio[1]));
        const double h = rint(sqrt(area * shape)), w = rint(sqrt(area / shape));
        if (h < e->h && w < e->w) {
            const int32_t y = dr_below(d.x[2], e->h - (int32_t)h + 1);
            const int32_t x = dr_below(d.x[3], e->w - (int32_t)w + 1);
            const struct dr_box b = {x, y, x + (int32_t)w, y + (int32_t)h};
            return b;
        }
    }
    return none;
}

/* ---- Beta(alpha, alpha) ---- */
/* A word as a number of (0, 1). */
DR_HD static inline double dr_inside(uint32_t x) {
    return ((double)x + 0.5) * 0x1p-32;
}

/* Logarithm of a Gamma(alpha) number: Marsaglia and Tsang, "A simple method for generating gamma
 * variables" (2000), for alpha + 1, times U^(1 / alpha) (their section 6), which is right for every
 * alpha and does not underflow as a logarithm. A try fails with probability below 0.05. */
DR_HD static inline double dr_log_gamma(double alpha, uint64_t seed, uint64_t key, uint32_t epoch,
                                        uint64_t sample, uint32_t first) {
    const double d = alpha + 1 - 1.0 / 3, c = 1 / sqrt(9 * d);
    double log_v = 0, log_u = 0;
    for (uint32_t k = 0; k < 32; k++) {
        const struct dr_draw w = dr_philox(seed, key, epoch, sample, first + k);
        double sine, cosine;
        dr_exact_turn(360 * dr_inside(w.x[1]), &sine, &cosine);
        const double z = sqrt(-2 * dr_exact_log(dr_inside(w.x[0]))) * cosine; /* Box, Muller */
        const double t = 1 + c * z, v = t * t * t;
        log_u = dr_exact_log(dr_inside(w.x[3]));
        if (t <= 0) {
            continue;
        }
        log_v = dr_exact_log(v);
        if (dr_exact_log(dr_inside(w.x[2])) < 0.5 * z * z + d - d * v + d * log_v) {
            break;
        }
        log_v = 0;
    }
    return dr_exact_log(d) + log_v + log_u / alpha;
}

/* ---- mixup, cutmix ---- */
struct dr_mix {
    int64_t n;
    int32_t h, w;
    bool cut; /* cutmix */
    double alpha;
    uint64_t seed, key;
};
/* What becomes of a sample: own * itself + other * its partner; cutmix: the partner in the box. */
struct dr_mixed {
    int64_t partner;
    float own, other;
    struct dr_box box;
};

/* All samples of a batch take partners at one distance, which (seed, step) draws; those past
 * n_valid stay alone. */
DR_HD static inline int64_t dr_mix_partner(const struct dr_mix *m, const struct dr_batch *batch,
                                           int64_t i) {
    const int64_t n = batch->n_valid;
    if (i >= n || n < 2) {
        return i;
    }
    const struct dr_draw d = dr_philox(m->seed, m->key, 0, batch->step, UINT32_MAX);
    return (i + 1 + dr_below(d.x[0], (int32_t)(n - 1))) % n;
}

DR_HD static inline struct dr_mixed dr_mix_of(const struct dr_mix *m, const struct dr_batch *batch,
                                              int64_t i) {
    const uint64_t sample = batch->sample[i];
    const double a = dr_log_gamma(m->alpha, m->seed, m->key, batch->epoch, sample, 1);
    const double b = dr_log_gamma(m->alpha, m->seed, m->key, batch->epoch, sample, 33);
    double own = 1 / (1 + dr_exact_exp(b - a));
    struct dr_mixed r = {dr_mix_partner(m, batch, i), 0, 0, {0, 0, 0, 0}};
    if (m->cut) {
        const struct dr_draw d = dr_philox(m->seed, m->key, batch->epoch, sample, 0);
        const double half = 0.5 * sqrt(1 - own);
        const int32_t x = dr_below(d.x[0], m->w), y = dr_below(d.x[1], m->h);
        const int32_t dx = (int32_t)(half * m->w), dy = (int32_t)(half * m->h);
        r.box.x0 = x < dx ? 0 : x - dx;
        r.box.y0 = y < dy ? 0 : y - dy;
        r.box.x1 = x + dx > m->w ? m->w : x + dx;
        r.box.y1 = y + dy > m->h ? m->h : y + dy;
        own = 1 - (double)(r.box.x1 - r.box.x0) * (r.box.y1 - r.box.y0) / ((double)m->w * m->h);
    }
    r.own = (float)own;
    r.other = (float)(1 - own);
    return r;
}

/* One operand: pixels [n, h, w, c], classes [n, rows] or numbers [n, rows]. */
enum dr_mix_kind {
    DR_MIX_BYTES,   /* u8, mixed and rounded to nearest */
    DR_MIX_FLOATS,  /* f32, mixed */
    DR_MIX_PIXELS,  /* c elements of `item` bytes a pixel: the box is the partner's */
    DR_MIX_CLASSES, /* i32 -> f32 [n, rows, c], a share for each class; NaN for what is none */
};
struct dr_mix_operand {
    int32_t kind, c, item;
    int64_t per_sample; /* elements of the result */
    const void *x;
    void *y;
};
#define DR_MIX_OPERANDS 4 /* of one launch */

DR_HD static inline float dr_mix_floats(const struct dr_mixed *m, float own, float other) {
    return m->own * own + m->other * other;
}
DR_HD static inline float dr_mix_classes(const struct dr_mixed *m, int32_t own, int32_t other,
                                         int32_t class_id, int32_t classes) {
    if (own < 0 || own >= classes || other < 0 || other >= classes) {
        return NAN;
    }
    return dr_mix_floats(m, own == class_id ? 1.0f : 0.0f, other == class_id ? 1.0f : 0.0f);
}
#endif
