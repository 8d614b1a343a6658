/* im2win convolution: fp32 on CUDA cores, or (cuda->tf32) with operands rounded to tf32 on Tensor
 * cores; fp16 and bf16 on Tensor cores with fp32 sums; groups of few channels on CUDA cores. Right
 * for every shape, on every card. NHWC, weights [K, Kh, Kw, C/groups]; x, w, y, dy, dx are stored
 * as `t`, dw always in fp32; outputs are overwritten; fixed summation order (the same bits on any
 * grid). */
#ifndef DR_KERNELS_CUDA_CONV_H
#define DR_KERNELS_CUDA_CONV_H

#include "kernels/conv_shape.h"
#include "kernels/cuda/pointwise.h"
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include "kernels/epilogue.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Groups with few channels and filters (depthwise: one of each) have kernels of their own, which
 * multiply in fp32 whatever is stored, and whatever `tf32` says. */
static inline bool dr_cuda_conv_few(const struct dr_conv *c) {
    const int64_t cg = c->c / c->groups, kg = c->k / c->groups;
    return c->groups > 1 && cg <= 8 && kg <= 8 && cg * kg <= 32 && c->kh <= 255 && c->kw <= 255;
}
/* What computes it, for people. */
static inline const char *dr_cuda_conv_name(const struct dr_conv *c, enum dr_type t, bool tf32) {
    static const char *const few[2][3] = {
        {"im2win grouped", "im2win fp16 grouped", "im2win bf16 grouped"},
        {"im2win depthwise", "im2win fp16 depthwise", "im2win bf16 depthwise"}};
    static const char *const mma[] = {"im2win tf32 mma", "im2win fp16 mma", "im2win bf16 mma"};
    return dr_cuda_conv_few(c)         ? few[c->c == c->groups && c->k == c->groups][t]
           : t == DR_TYPE_F32 && !tf32 ? "im2win f32"
                                       : mma[t];
}
/* y = epilogue(conv(x, w)), in one of the ways that conv_way.h lists for this shape, type,
 * activation and card; workspace: that way's. */
int dr_cuda_conv_fprop(const struct dr_conv *c, enum dr_type t, int way, const void *x,
                       const void *w, const struct dr_epilogue *e, void *y, void *workspace,
                       const struct dr_cuda *cuda);
/* The same of pixels, x [n, h, w, c] u8 that `u8` normalizes as they are loaded, in the way of
 * dr_cuda_conv_u8_way: the bits of dr_cuda_normalize, stored as t, and that way after it. */
int dr_cuda_conv_u8(const struct dr_conv *c, enum dr_type t, const void *x,
                    const struct dr_cuda_affine *u8, const void *w, const struct dr_epilogue *e,
                    void *y, const struct dr_cuda *cuda);
/* y [n, ho / 2, wo / 2, k] = the largest of each 2 x 2 outputs (NaN, if one is), in the way of
 * dr_cuda_conv_pool_way: the bits of that way and dr_cuda_max_pool_fprop after it. e: without
 * `add`, the activation relu. */
int dr_cuda_conv_pool(const struct dr_conv *c, enum dr_type t, int way, const void *x,
                      const void *w, const struct dr_epilogue *e, void *y,
                      const struct dr_cuda *cuda);
/* The same by the kernels for every shape and card. */
int dr_cuda_conv_generic(const struct dr_conv *c, enum dr_type t, const void *x, const void *w,
                         const struct dr_epilogue *e, void *y, const struct dr_cuda *cuda);
/* The same in fp32 (tf32 is not set) by a row of conv_f32_tile.h, if it has few enough blocks: the
 * bits of dr_cuda_conv_generic. */
int dr_cuda_conv_f32(const struct dr_conv *c, int row, const void *x, const void *w,
                     const struct dr_epilogue *e, void *y, const struct dr_cuda *cuda);
/* dx = epilogue(dgrad(dy, w)), the transposed convolution, in one of the ways that conv_way.h
 * lists; its columns are x's channels. */
int dr_cuda_conv_back(const struct dr_conv *c, enum dr_type t, int way, const void *dy,
                      const void *w, const struct dr_epilogue *e, void *dx, void *workspace,
                      const struct dr_cuda *cuda);
/* By the kernels for every shape and card: without an epilogue, and with one. */
int dr_cuda_conv_dgrad(const struct dr_conv *c, enum dr_type t, const void *dy, const void *w,
                       void *dx, const struct dr_cuda *cuda);
int dr_cuda_conv_transpose(const struct dr_conv *c, enum dr_type t, const void *dy, const void *w,
                           const struct dr_epilogue *e, void *dx, const struct dr_cuda *cuda);
int dr_cuda_conv_f32_back(const struct dr_conv *c, int row, const void *dy, const void *w,
                          const struct dr_epilogue *e, void *dx, const struct dr_cuda *cuda);
/* Partial sums over chunks of pixels, then added in index order. Chunks are cut by the shape alone:
 * the fewest that leave at most a sixth of the waves of blocks idle (256 blocks of 128 filters by
 * 128 window positions, more of smaller ones), of 128 to 65536 pixels. Workspace in bytes; with one
 * chunk there is none. */
static inline int64_t dr_cuda_wgrad_chunk(const struct dr_conv *c) {
    const int64_t columns = c->kh * c->kw * (c->c / c->groups), filters = c->k / c->groups;
    const int64_t pixels = c->n * c->ho * c->wo;
    if (dr_cuda_conv_few(c)) { /* whole rows, a multiple of 8 workers */
        const int64_t tiles = (c->k * (c->c / c->groups) + 31) / 32, rows = c->n * c->ho;
        const int64_t chunks = tiles < 1024 ? 1024 / tiles : 1;
        return ((rows + chunks - 1) / chunks + 7) / 8 * 8 * c->wo;
    }
    const int64_t tiles = (columns + 127) / 128 * ((filters + 127) / 128) * c->groups;
    const int64_t wave = filters <= 32 || columns <= 32 ? 1024 : filters <= 64 ? 512 : 256;
    const int64_t fewest = (wave * 5 / 6 + tiles - 1) / tiles, cut = (pixels + 65535) / 65536;
    int64_t chunks = fewest > cut ? fewest : cut;
    while (tiles * chunks < wave * 16 &&
           (tiles * chunks + wave - 1) / wave * wave * 5 > tiles * chunks * 6) {
        chunks++;
    }
    const int64_t chunk = ((pixels + chunks - 1) / chunks + 63) / 64 * 64;
    return chunk < 128 ? 128 : chunk;
}
static inline int64_t dr_cuda_conv_wgrad_bytes(const struct dr_conv *c) {
    const int64_t chunk = dr_cuda_wgrad_chunk(c);
    const int64_t chunks = (c->n * c->ho * c->wo + chunk - 1) / chunk;
    return chunks == 1
               ? 0
               : chunks * c->k * c->kh * c->kw * (c->c / c->groups) * (int64_t)sizeof(float);
}
int dr_cuda_conv_wgrad(const struct dr_conv *c, enum dr_type t, const void *x, const void *dy,
                       float *dw, void *workspace, const struct dr_cuda *cuda);
#ifdef __cplusplus
}
#endif
#endif
