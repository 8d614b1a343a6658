/* The geometry of a convolution, shared by its forward, data-gradient and weight-gradient kernels
 * on every device. NHWC, cross-correlation; weights [K, Kh, Kw, C/groups]. */
#ifndef DR_KERNELS_CONV_SHAPE_H
#define DR_KERNELS_CONV_SHAPE_H
#include <stdint.h>
struct dr_conv {
    int64_t n, h, w, c;     /* input x [n, h, w, c] */
    int64_t k, kh, kw;      /* filters */
    int64_t ho, wo;         /* output y [n, ho, wo, k] */
    int64_t sh, sw, dh, dw; /* stride, dilation */
    int64_t pt, pl, pb, pr; /* padding top, left, bottom, right */
    int64_t groups;
};
#endif
