/* Losses of a number x against a target t, one definition for host and device: bce of logits, mse
 * and l1. Formulas are PyTorch's (BCEWithLogitsLoss, MSELoss, L1Loss, reduction mean). */
#ifndef DR_KERNELS_PAIRS_H
#define DR_KERNELS_PAIRS_H
#include "kernels/maps.h"
#include <stdbool.h>

enum dr_pair_loss { DR_PAIR_BCE, DR_PAIR_MSE, DR_PAIR_L1 };
enum dr_pair_target { DR_PAIR_U8, DR_PAIR_I32, DR_PAIR_F32 };
struct dr_pairs {
    int32_t loss, type;
    int64_t n, per_sample; /* elements; of a sample */
    const float *x;
    const void *target; /* [n] */
    int64_t ignore;     /* bce of integers: this one does not count */
    double pos_weight;  /* bce: weight of the positive part */
};

/* Whether element i of a valid sample counts, and its target. An integer that is no class of two
 * makes a bce NaN. */
DR_MAP_FN bool dr_pair_counts(const struct dr_pairs *p, int64_t i, float *t) {
    if (p->type == DR_PAIR_F32) {
        *t = ((const float *)p->target)[i];
        return true;
    }
    const int64_t v = p->type == DR_PAIR_U8 ? (int64_t)((const uint8_t *)p->target)[i]
                                            : (int64_t)((const int32_t *)p->target)[i];
    *t = (float)v;
    if (p->loss != DR_PAIR_BCE) {
        return true;
    }
    if (v != 0 && v != 1) {
        *t = NAN;
    }
    return v != p->ignore;
}

/* log(1 + exp(x)), without overflow and without losing small results. */
DR_MAP_FN float dr_softplus(float x) {
    return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}

/* bce: w t softplus(-x) + (1 - t) softplus(x), both terms of one sign, so that nothing cancels. A
 * term with a factor 0 is left out: 0 * inf would hide that the loss is 0. */
DR_MAP_FN double dr_pair_value(const struct dr_pairs *p, float x, float t) {
    const double d = (double)x - t;
    double v = 0;
    if (p->loss == DR_PAIR_MSE) {
        return d * d;
    }
    if (p->loss == DR_PAIR_L1) {
        return fabs(d);
    }
    if (t != 0.0f) {
        v += p->pos_weight * t * dr_softplus(-x);
    }
    if (t != 1.0f) {
        v += (1.0 - t) * dr_softplus(x);
    }
    return v;
}

/* Its derivative by x, or by t. */
DR_MAP_FN double dr_pair_slope(const struct dr_pairs *p, float x, float t, bool of_target) {
    const double d = (double)x - t, sign = of_target ? -1.0 : 1.0;
    if (p->loss == DR_PAIR_MSE) {
        return sign * 2.0 * d;
    }
    if (p->loss == DR_PAIR_L1) {
        return d > 0 ? sign : (d < 0 ? -sign : d * 0.0);
    }
    if (of_target) {
        return p->pos_weight * dr_softplus(-x) - dr_softplus(x);
    }
    return (1.0 - t) * dr_sigmoid(x) - p->pos_weight * t * dr_sigmoid(-x);
}
#endif
