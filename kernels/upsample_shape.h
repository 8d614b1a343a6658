/* Where the pixels of a resized image come from, for every device. NHWC.
 *
 * Pixel centres are at halves (align_corners false): output o of `out` lies at (o + 1/2) * in / out
 * - 1/2 of the input. That is computed in integers, so that every device finds the same pixels; it
 * needs 4 * in * out to fit 64 bits. Nearest takes floor(o * in / out), as torch's "nearest". */
#ifndef DR_KERNELS_UPSAMPLE_SHAPE_H
#define DR_KERNELS_UPSAMPLE_SHAPE_H
#include <stdint.h>
#if defined(__CUDACC__)
#define DR_UPSAMPLE_HD __host__ __device__
#else
#define DR_UPSAMPLE_HD
#endif
struct dr_upsample {
    int64_t n, h, w, c, ho, wo; /* x [n, h, w, c], y [n, ho, wo, c] */
    int bilinear;
};

/* Output o is (1 - part) * x[lo] + part * x[hi]. */
struct dr_tap {
    int64_t lo, hi;
    float part;
};
DR_UPSAMPLE_HD static inline struct dr_tap dr_tap(int64_t o, int64_t in, int64_t out,
                                                  int bilinear) {
    struct dr_tap t;
    if (!bilinear) {
        t.lo = t.hi = o * in / out;
        t.part = 0;
        return t;
    }
    const int64_t at = (2 * o + 1) * in - out; /* in units of 1 / (2 out) */
    t.lo = at < 0 ? 0 : at / (2 * out);
    t.hi = t.lo + 1 < in ? t.lo + 1 : t.lo;
    t.part = at < 0 ? 0 : (float)((double)(at % (2 * out)) / (double)(2 * out));
    return t;
}
/* How much of input i is in it. */
DR_UPSAMPLE_HD static inline float dr_tap_weight(const struct dr_tap *t, int64_t i) {
    return (t->lo == i ? 1.0f - t->part : 0.0f) + (t->hi == i ? t->part : 0.0f);
}
/* The first output whose `lo` is at least i (out: there is none). The outputs that read input i are
 * those from dr_tap_first(i - bilinear) to before dr_tap_first(i + 1). */
DR_UPSAMPLE_HD static inline int64_t dr_tap_first(int64_t i, int64_t in, int64_t out,
                                                  int bilinear) {
    if (i <= 0) {
        return 0;
    }
    if (i >= in) {
        return out;
    }
    const int64_t at = bilinear ? (2 * i + 1) * out - in : i * out;
    const int64_t unit = bilinear ? 2 * in : in;
    const int64_t first = at <= 0 ? 0 : (at + unit - 1) / unit;
    return first < out ? first : out;
}
#endif
