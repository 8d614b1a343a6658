/* The geometry of a pooling, shared by its kernels on every device. NHWC. */
#ifndef DR_KERNELS_POOL_SHAPE_H
#define DR_KERNELS_POOL_SHAPE_H
#include <stdint.h>
#if defined(__CUDACC__)
#define DR_POOL_HD __host__ __device__
#else
#define DR_POOL_HD
#endif
struct dr_pool {
    int64_t n, h, w, c, ho, wo; /* x [n, h, w, c], y [n, ho, wo, c] */
    int64_t kh, kw, sh, sw, pt, pl;
    int64_t pb, pr; /* averages that count padding end here; maxima do not look */
};

/* The part of a window inside the image, and what an average over it divides by: all of the window
 * that lies in the padded image (PyTorch's count_include_pad), or the part inside the image. */
struct dr_pool_window {
    int64_t h0, h1, w0, w1;
    double count;
};
DR_POOL_HD static inline struct dr_pool_window dr_pool_window(const struct dr_pool *p, int64_t ho,
                                                              int64_t wo, int count_pad) {
    const int64_t top = ho * p->sh - p->pt, left = wo * p->sw - p->pl;
    const int64_t bottom = top + p->kh < p->h + p->pb ? top + p->kh : p->h + p->pb;
    const int64_t right = left + p->kw < p->w + p->pr ? left + p->kw : p->w + p->pr;
    struct dr_pool_window v;
    v.h0 = top < 0 ? 0 : top;
    v.w0 = left < 0 ? 0 : left;
    v.h1 = bottom < p->h ? bottom : p->h;
    v.w1 = right < p->w ? right : p->w;
    v.count = count_pad ? (double)(bottom - top) * (double)(right - left)
                        : (double)(v.h1 - v.h0) * (double)(v.w1 - v.w0);
    return v;
}

/* The windows [first, end) that cover place i along one axis. */
DR_POOL_HD static inline int64_t dr_pool_first(int64_t i, int64_t pad, int64_t kernel,
                                               int64_t stride) {
    const int64_t past = i + pad - kernel;
    return past < 0 ? 0 : past / stride + 1;
}
DR_POOL_HD static inline int64_t dr_pool_end(int64_t i, int64_t pad, int64_t stride, int64_t out) {
    const int64_t end = (i + pad) / stride + 1;
    return end < out ? end : out;
}
#endif
