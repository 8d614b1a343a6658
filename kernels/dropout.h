/* Which elements dropout keeps, for every device: element e of a sample has word e % 4 of its draw
 * e / 4, so that the mask depends on nothing but (seed, node, epoch, sample, e). */
#ifndef DR_KERNELS_DROPOUT_H
#define DR_KERNELS_DROPOUT_H
#include "kernels/batch.h"
#include "kernels/philox.h"

struct dr_dropout {
    uint64_t seed, key;  /* of the model, of the node */
    uint32_t below;      /* draws of 24 bits below this are dropped */
    float scale;         /* of those kept */
    int64_t n, elements; /* samples, elements of each: at most DR_DROPOUT_ELEMENTS */
};
#define DR_DROPOUT_ELEMENTS (INT64_C(1) << 34) /* draws are numbered in 32 bits */

/* p in [0, 1]: u = k / 2^24 is below p just where k is below p * 2^24, rounded up. */
static inline struct dr_dropout dr_dropout_of(double p, uint64_t seed, uint64_t key, int64_t n,
                                              int64_t elements) {
    const double all = p * 16777216.0;
    struct dr_dropout d = {seed, key, (uint32_t)all, 0, n, elements};
    d.below += (double)d.below < all;
    d.scale = p < 1.0 ? (float)(1.0 / (1.0 - p)) : 0.0f;
    return d;
}

/* y[0 .. m) from x[0 .. m): elements [4 i, 4 i + m) of a sample, m <= 4. */
DR_HD static inline void dr_dropout_four(const struct dr_dropout *d, uint32_t epoch,
                                         uint64_t sample, int64_t i, int64_t m, const float *x,
                                         float *y) {
    const struct dr_draw u = dr_philox(d->seed, d->key, epoch, sample, (uint32_t)i);
    for (int64_t k = 0; k < m; k++) {
        y[k] = u.x[k] >> 8 < d->below ? 0.0f : x[k] * d->scale;
    }
}
#endif
