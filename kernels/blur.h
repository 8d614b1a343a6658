/* gaussian_blur: the weights of a sample, for every device. torchvision.transforms.v2's
 * GaussianBlur: one width for both axes, a kernel of fixed size normalized to 1, borders reflected
 * without the edge pixel. Rows are summed first, then along the row. */
#ifndef DR_KERNELS_BLUR_H
#define DR_KERNELS_BLUR_H
#include "kernels/batch.h"
#include "kernels/exact.h"
#include <stdbool.h>

#define DR_BLUR_MAX 255 /* the largest kernel */

struct dr_blur {
    int64_t n;
    int32_t h, w, c, kh, kw; /* kh, kw odd, kh / 2 < h, kw / 2 < w */
    bool u8;                 /* else f32 */
    double sigma[2];         /* least and most */
    uint64_t seed, key;
};

DR_HD static inline double dr_blur_sigma(const struct dr_blur *b, const struct dr_batch *batch,
                                         int64_t i) {
    const struct dr_draw d = dr_philox(b->seed, b->key, batch->epoch, batch->sample[i], 0);
    return dr_between(d.x[0], b->sigma[0], b->sigma[1]);
}
/* Weight of pixel `at` of a kernel of k, but for the factor that makes the sum 1. */
DR_HD static inline double dr_blur_weight(double sigma, int32_t k, int32_t at) {
    const double x = (at - k / 2) / sigma;
    return dr_exact_exp(-0.5 * x * x);
}
DR_HD static inline double dr_blur_sum(double sigma, int32_t k) {
    double sum = 0;
    for (int32_t i = 0; i < k; i++) {
        sum += dr_blur_weight(sigma, k, i);
    }
    return sum;
}
/* Pixel `at` of an axis of n, reflected where it is outside by less than n. */
DR_HD static inline int32_t dr_reflect(int32_t at, int32_t n) {
    at = at < 0 ? -at : at;
    return at < n ? at : 2 * (n - 1) - at;
}
#endif
