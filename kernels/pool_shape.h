/* The geometry of a pooling, shared by its kernels on every device. NHWC. */
#ifndef DR_KERNELS_POOL_SHAPE_H
#define DR_KERNELS_POOL_SHAPE_H
#include <stdint.h>
struct dr_pool {
    int64_t n, h, w, c, ho, wo; /* x [n, h, w, c], y [n, ho, wo, c] */
    int64_t kh, kw, sh, sw, pt, pl;
};
#endif
