/* Private to kernels/cuda/conv*.cu: one correlation, which is what forward convolution and each
 * phase of the data gradient have in common, and how its outputs are cut into tiles. */
#ifndef DR_KERNELS_CUDA_CONV_CORR_CUH
#define DR_KERNELS_CUDA_CONV_CORR_CUH

#include "kernels/cuda/conv.h"
#include "kernels/cuda/epilogue.cuh"
#include <cuda_runtime.h>

namespace dr {

constexpr int TW = 16;   /* output pixels of a tile's row */
constexpr int TAPS = 32; /* along one axis; more go to the direct kernel */
constexpr size_t SHARED_WANTED = 64 * 1024, SHARED_MOST = 96 * 1024;

/* The taps along one axis: where each reads in the source (relative to output * stride), and its
 * offset in the weights. */
struct taps {
    int n, low, high; /* low, high: the least and greatest `at` */
    int at[TAPS];
    int weight[TAPS]; /* index of the tap in the filter */
};

/* One correlation: what fprop and each phase of dgrad have in common. */
struct corr {
    int n, h, w, c; /* source [n, h, w, c_total]; c, k: of one group */
    int k, ho, wo;  /* outputs of this phase */
    int sh, sw;     /* source rows and columns from one output to the next */
    taps ty, tx;
    int groups;
    dr_epilogue e;
    int64_t c_total, k_total;
    int64_t w_group, w_k, w_kh, w_kw, w_c; /* strides of the weights */
    /* output (oy, ox) of this phase is stored at row oy * oy_step + oy_first of [n, out_h, out_w]
     */
    int oy_first, ox_first, oy_step, ox_step;
    int64_t out_h, out_w;
    int cc, cols, pitch; /* chunk of channels, window columns, pitch of a column */
};

__device__ __forceinline__ float source(const corr &p, const float *src, int iy, int ix, int ch) {
    return iy >= 0 && ix >= 0 && iy < p.h && ix < p.w
               ? src[((int64_t)iy * p.w + ix) * p.c_total + ch]
               : 0.0f;
}

/* Where a block's tile begins. */
struct tile {
    int64_t image;
    int group, oy, ox, k;
};
template <int TH, int TK> __device__ __forceinline__ tile tile_of(const corr &p) {
    const int tiles_x = (p.wo + TW - 1) / TW, tiles_y = (p.ho + TH - 1) / TH;
    const int tiles_k = (p.k + TK - 1) / TK;
    tile t;
    int64_t id = blockIdx.x;
    t.k = (int)(id % tiles_k) * TK;
    id /= tiles_k;
    t.ox = (int)(id % tiles_x) * TW;
    id /= tiles_x;
    t.oy = (int)(id % tiles_y) * TH;
    id /= tiles_y;
    t.group = (int)(id % p.groups);
    t.image = id / p.groups;
    return t;
}
static inline int64_t blocks_of(const corr &p, int th, int tk) {
    return (int64_t)((p.k + tk - 1) / tk) * ((p.wo + TW - 1) / TW) * ((p.ho + th - 1) / th) *
           p.groups * p.n;
}
/* Window columns of a tile's row. */
static inline int window_columns(const corr &p) {
    return (TW - 1) * p.sw + (p.tx.n ? p.tx.high - p.tx.low : 0) + 1;
}
/* The pixel of [n, out_h, out_w] that is output (oy, ox) of this phase. */
__device__ __forceinline__ int64_t pixel_of(const corr &p, int64_t image, int oy, int ox) {
    return (image * p.out_h + oy * p.oy_step + p.oy_first) * p.out_w + ox * p.ox_step + p.ox_first;
}

/* A forward convolution of at most TAPS taps along each axis. */
corr fprop_corr(const dr_conv *c, const dr_epilogue &e);

/* *fits is false, and nothing was launched, where the tile does not fit in shared memory. row: of
 * conv_f32_tile.h; -1: the one for the shape. */
int corr_f32(const corr &p, int row, const float *x, const float *w, float *y, bool *fits, int sms,
             cudaStream_t s);
/* In fp16, bf16, or (fp32 in memory) tf32. */
int corr_mma(const corr &p, enum dr_type t, const void *x, const void *w, void *y, bool *fits,
             cudaStream_t s);
/* For groups with few channels and filters; multiplies in fp32. */
int corr_few(const corr &p, enum dr_type t, const void *x, const void *w, void *y, bool *fits,
             cudaStream_t s);

} // namespace dr
#endif
