/* The matrix of conv12_im2col.h: a thread writes 16 bytes of it, read at once where channels are a
 * multiple of that, value by value elsewhere. Neighbours in a row of the matrix are neighbours in
 * a row of x, so reads hit the caches, and the writes bound it. */
#include "kernels/cuda/divide.cuh"
#include "tests/bench/conv12_im2col.h"
#include <algorithm>
#include <cuda_runtime.h>

namespace {

struct windows {
    dr_divisor chunks;  /* of 16 bytes, in a row of the matrix */
    dr_divisor line, c; /* kw * c and c, in values (narrow) or in 16 bytes (wide) */
    dr_divisor wo, ho;
    int h, w, kw, kh, sh, sw, dh, dw, pt, pl;
    int64_t total; /* chunks of the matrix */
};

/* Where a window begins in x: image, row, column. */
struct corner {
    int64_t image;
    int y, x;
};
__device__ __forceinline__ corner corner_of(const windows &p, int64_t row) {
    const int64_t line = dr_divide(p.wo, row), image = dr_divide(p.ho, line);
    return {image, (int)(line - image * p.ho.d) * p.sh - p.pt,
            (int)(row - line * p.wo.d) * p.sw - p.pl};
}

/* Channels are whole chunks. */
__global__ void wide_kernel(const windows p, const uint4 *x, uint4 *matrix) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < p.total;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = dr_divide(p.chunks, i), j = i - row * p.chunks.d;
        const corner at = corner_of(p, row);
        const int kh = (int)dr_divide(p.line, j), in_line = (int)(j - kh * p.line.d);
        const int kw = (int)dr_divide(p.c, in_line);
        const int iy = at.y + kh * p.dh, ix = at.x + kw * p.dw;
        const bool inside = (unsigned)iy < (unsigned)p.h && (unsigned)ix < (unsigned)p.w;
        const int64_t from = ((at.image * p.h + iy) * p.w + ix - kw) * p.c.d + in_line;
        matrix[i] = inside ? __ldg(x + from) : make_uint4(0, 0, 0, 0);
    }
}

template <class T> __global__ void narrow_kernel(const windows p, const T *x, uint4 *matrix) {
    constexpr int V = 16 / sizeof(T);
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < p.total;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = dr_divide(p.chunks, i), j = (i - row * p.chunks.d) * V;
        const corner at = corner_of(p, row);
        const T *const image = x + at.image * p.h * p.w * p.c.d;
        int kh = (int)dr_divide(p.line, j), in_line = (int)(j - kh * p.line.d);
        int kw = (int)dr_divide(p.c, in_line), c = in_line - kw * (int)p.c.d;
        alignas(16) T value[V];
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int iy = at.y + kh * p.dh, ix = at.x + kw * p.dw;
            const bool inside =
                kh < p.kh && (unsigned)iy < (unsigned)p.h && (unsigned)ix < (unsigned)p.w;
            value[v] = inside ? __ldg(image + (iy * p.w + ix) * (int)p.c.d + c) : T(0);
            if (++c == (int)p.c.d) {
                c = 0;
                kh += ++kw == p.kw;
                kw = kw == p.kw ? 0 : kw;
            }
        }
        matrix[i] = *reinterpret_cast<const uint4 *>(value);
    }
}

} // namespace

extern "C" int conv12_im2col_matrix(const struct dr_conv *c, enum dr_type t, int64_t ld,
                                    const void *x, void *matrix, dr_stream s) {
    const int64_t v = 16 / dr_type_bytes(t);
    const bool wide = c->c % v == 0;
    windows p = {};
    p.chunks = dr_divisor_of(ld / v);
    p.c = dr_divisor_of(wide ? c->c / v : c->c);
    p.line = dr_divisor_of(c->kw * p.c.d);
    p.wo = dr_divisor_of(c->wo), p.ho = dr_divisor_of(c->ho);
    p.h = (int)c->h, p.w = (int)c->w, p.kh = (int)c->kh, p.kw = (int)c->kw;
    p.sh = (int)c->sh, p.sw = (int)c->sw, p.dh = (int)c->dh, p.dw = (int)c->dw;
    p.pt = (int)c->pt, p.pl = (int)c->pl;
    p.total = c->n * c->ho * c->wo * (ld / v);
    const int grid = (int)std::min<int64_t>((p.total + 255) / 256, 132 * 8 * 8);
    const cudaStream_t stream = (cudaStream_t)s;
    if (wide) {
        wide_kernel<<<grid, 256, 0, stream>>>(p, (const uint4 *)x, (uint4 *)matrix);
    } else if (t == DR_TYPE_F32) {
        narrow_kernel<<<grid, 256, 0, stream>>>(p, (const uint32_t *)x, (uint4 *)matrix);
    } else {
        narrow_kernel<<<grid, 256, 0, stream>>>(p, (const uint16_t *)x, (uint4 *)matrix);
    }
    return (int)cudaGetLastError();
}
