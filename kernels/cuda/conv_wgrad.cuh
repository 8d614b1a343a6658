/* Private to kernels/cuda/conv_wgrad*.cu and conv_depthwise.cu: the weight gradient as partial sums
 * over chunks of output pixels, partial[chunk][k][kh][kw][c / groups]. */
#ifndef DR_KERNELS_CUDA_CONV_WGRAD_CUH
#define DR_KERNELS_CUDA_CONV_WGRAD_CUH

#include "kernels/cuda/conv.h"
#include <cuda_runtime.h>

namespace dr {

struct wgrad {
    dr_conv c;
    int64_t pixels, columns, elements; /* of dw: columns = Kh * Kw * C/groups */
    int64_t chunk;                     /* pixels */
    int kg, cg;                        /* filters and channels of a group */
};

/* Where a pixel's window begins: the row and column of tap (0, 0), and the offset of its channel 0
 * in x. No such pixel: a row that no tap leads back into the image. */
struct origin {
    int64_t at;
    int iy, ix;
};
__device__ __forceinline__ origin origin_of(const wgrad &p, int64_t pixel, int64_t last) {
    if (pixel >= last) {
        return {0, INT32_MIN / 2, 0};
    }
    int64_t row, image;
    if (p.pixels <= UINT32_MAX) { /* a fraction of the 64-bit division's time */
        row = (uint32_t)pixel / (uint32_t)p.c.wo;
        image = (uint32_t)row / (uint32_t)p.c.ho;
    } else {
        row = pixel / p.c.wo;
        image = row / p.c.ho;
    }
    const int64_t wo = pixel - row * p.c.wo, ho = row - image * p.c.ho;
    const int64_t iy = ho * p.c.sh - p.c.pt, ix = wo * p.c.sw - p.c.pl;
    return {((image * p.c.h + iy) * p.c.w + ix) * p.c.c, (int)iy, (int)ix};
}

/* On Tensor cores, in fp16, bf16, or (fp32 in memory) tf32. */
int wgrad_mma(const wgrad &p, enum dr_type t, const void *x, const void *dy, float *partial,
              cudaStream_t s);
/* For dr_cuda_conv_few; multiplies in fp32. */
int wgrad_few(const wgrad &p, enum dr_type t, const void *x, const void *dy, float *partial,
              cudaStream_t s);

} // namespace dr
#endif
