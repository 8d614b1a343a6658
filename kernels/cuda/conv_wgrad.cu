/* The weight gradient of im2win convolution: in fp32 on CUDA cores here, in other precisions on
 * Tensor cores (conv_wgrad_mma.cu); and column sums (bias gradients).
 *
 * dw[k, j] = sum over output pixels of dy[pixel, k] * window[pixel, j], j = (kh, kw, c). A block
 * takes a tile of filters by 64 window positions and a fixed chunk of pixels, 16 at a time: sixteen
 * threads work out where the next pixels' windows begin, all of them load one window column each.
 * Partial sums go to the workspace and are added in chunk order, in double; chunks depend on the
 * shape alone, so no result depends on the grid or the device. Inside a chunk, which may be long,
 * sums of FOLD pixels are added up: one running sum would lose the small terms. */
#include "kernels/cuda/conv_wgrad.cuh"

#include <algorithm>

namespace dr {
namespace {

constexpr int WP = 16; /* pixels a step */
constexpr int TJ = 64; /* window positions a block */
constexpr int THREADS = 256;
constexpr int FOLD = 2048; /* pixels of an inner sum */

/* What a block works on, and what each thread loads. */
template <int TK> struct share {
    int k0, group;
    int64_t j0, chunk, first, last; /* window positions, pixels */
    int lj, lp, oy, ox, lk, lq; /* this thread's window column and filter, and their first pixel */
    bool column, filter_in;
    int64_t channel, filter;
    __device__ share(const wgrad &p) {
        const int tiles_k = (p.kg + TK - 1) / TK;
        const int64_t tiles_j = (p.columns + TJ - 1) / TJ;
        int64_t id = blockIdx.x;
        k0 = (int)(id % tiles_k) * TK;
        id /= tiles_k;
        j0 = id % tiles_j * TJ;
        id /= tiles_j;
        group = (int)(id % p.c.groups);
        chunk = id / p.c.groups;
        first = chunk * p.chunk;
        last = min(first + p.chunk, p.pixels);
        lj = threadIdx.x % TJ, lp = threadIdx.x / TJ;
        const int64_t j = j0 + lj;
        column = j < p.columns;
        ox = (int)(j / p.cg % p.c.kw) * (int)p.c.dw;
        oy = (int)(j / p.cg / p.c.kw) * (int)p.c.dh;
        channel = (int64_t)group * p.cg + j % p.cg;
        lk = threadIdx.x % TK, lq = threadIdx.x / TK;
        filter_in = k0 + lk < p.kg;
        filter = (int64_t)group * p.kg + k0 + lk;
    }
    __device__ float window(const wgrad &p, const float *x, const origin &o) const {
        const int iy = o.iy + oy, ix = o.ix + ox;
        return column && iy >= 0 && ix >= 0 && iy < p.c.h && ix < p.c.w
                   ? x[o.at + ((int64_t)oy * p.c.w + ox) * p.c.c + channel]
                   : 0.0f;
    }
    __device__ float gradient(const wgrad &p, const float *dy, int64_t pixel) const {
        return pixel < last && filter_in ? dy[pixel * p.c.k + filter] : 0.0f;
    }
    __device__ void store(const wgrad &p, float *partial, int k, int64_t j, float v) const {
        if (k0 + k < p.kg && j0 + j < p.columns) {
            partial[chunk * p.elements + ((int64_t)group * p.kg + k0 + k) * p.columns + j0 + j] = v;
        }
    }
};

/* TK filters a block: each thread sums TK / 16 filters by 4 window positions. */
template <int TK>
__global__ void __launch_bounds__(THREADS)
    wgrad_kernel(const wgrad p, const float *x, const float *dy, float *partial) {
    constexpr int KT = TK / 16;
    __shared__ float a[WP][TK + 4], b[WP][TJ + 4];
    __shared__ origin at[2][WP];
    const share<TK> s(p);
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;

    float acc[KT][4] = {}, total[KT][4] = {};
    if (threadIdx.x < WP) {
        at[0][threadIdx.x] = origin_of(p, s.first + threadIdx.x, s.last);
    }
    int now = 0;
    for (int64_t p0 = s.first; p0 < s.last; p0 += WP, now ^= 1) {
        __syncthreads();
        if (threadIdx.x < WP) {
            at[now ^ 1][threadIdx.x] = origin_of(p, p0 + WP + threadIdx.x, s.last);
        }
        for (int q = s.lp; q < WP; q += THREADS / TJ) {
            b[q][s.lj] = s.window(p, x, at[now][q]);
        }
        for (int q = s.lq; q < WP; q += THREADS / TK) {
            a[q][s.lk] = s.gradient(p, dy, p0 + q);
        }
        __syncthreads();
#pragma unroll
        for (int q = 0; q < WP; q++) {
            const float4 v = *reinterpret_cast<const float4 *>(&b[q][tx * 4]);
            float u[KT];
#pragma unroll
            for (int i = 0; i < KT; i++) {
                u[i] = a[q][ty * KT + i];
            }
#pragma unroll
            for (int i = 0; i < KT; i++) {
                acc[i][0] = fmaf(u[i], v.x, acc[i][0]);
                acc[i][1] = fmaf(u[i], v.y, acc[i][1]);
                acc[i][2] = fmaf(u[i], v.z, acc[i][2]);
                acc[i][3] = fmaf(u[i], v.w, acc[i][3]);
            }
        }
        if ((p0 - s.first) % FOLD == FOLD - WP || p0 + WP >= s.last) {
#pragma unroll
            for (int i = 0; i < KT; i++) {
#pragma unroll
                for (int m = 0; m < 4; m++) {
                    total[i][m] += acc[i][m];
                    acc[i][m] = 0.0f;
                }
            }
        }
    }
    for (int i = 0; i < KT; i++) {
        for (int m = 0; m < 4; m++) {
            s.store(p, partial, ty * KT + i, tx * 4 + m, total[i][m]);
        }
    }
}

template <int TK>
void launch_wgrad(const wgrad &p, int64_t blocks, const float *x, const float *dy, float *partial,
                  cudaStream_t s) {
    wgrad_kernel<TK><<<(unsigned)blocks, THREADS, 0, s>>>(p, x, dy, partial);
}

/* On CUDA cores. */
int wgrad_f32(const wgrad &p, const float *x, const float *dy, float *partial, cudaStream_t s) {
    const int tk = p.kg <= 16 ? 16 : p.kg <= 32 ? 32 : 64;
    const int64_t chunks = (p.pixels + p.chunk - 1) / p.chunk;
    const int64_t blocks =
        ((p.kg + tk - 1) / tk) * ((p.columns + TJ - 1) / TJ) * p.c.groups * chunks;
    if (blocks > INT32_MAX) {
        return (int)cudaErrorInvalidConfiguration;
    }
    (tk == 16   ? launch_wgrad<16>
     : tk == 32 ? launch_wgrad<32>
                : launch_wgrad<64>)(p, blocks, x, dy, partial, s);
    return (int)cudaGetLastError();
}

/* out[i] = sum over chunks of partial[chunk][i], in order, in double: long sums stay right. Eight
 * threads an element, each every eighth chunk; their sums are added in order. */
__global__ void add_partials(const float *partial, int64_t chunks, int64_t n, float *out) {
    __shared__ double part[8][33];
    const int64_t i = (int64_t)blockIdx.x * 32 + threadIdx.x;
    double sum = 0.0;
    if (i < n) {
        for (int64_t c = threadIdx.y; c < chunks; c += 8) {
            sum += partial[c * n + i];
        }
    }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && i < n) {
        double total = 0.0;
        for (int t = 0; t < 8; t++) {
            total += part[t][threadIdx.x];
        }
        out[i] = (float)total;
    }
}

int launch_add(const float *partial, int64_t chunks, int64_t n, float *out, cudaStream_t s) {
    add_partials<<<(unsigned)((n + 31) / 32), dim3(32, 8), 0, s>>>(partial, chunks, n, out);
    return (int)cudaGetLastError();
}

} // namespace
} // namespace dr

using namespace dr;

extern "C" int dr_cuda_conv_wgrad(const struct dr_conv *c, enum dr_type t, const void *x,
                                  const void *dy, float *dw, void *workspace,
                                  const struct dr_cuda *cuda) {
    if (std::max({c->h, c->w, c->c, c->k}) > INT32_MAX) {
        return (int)cudaErrorInvalidConfiguration;
    }
    wgrad p = {};
    p.c = *c;
    p.cg = (int)(c->c / c->groups), p.kg = (int)(c->k / c->groups);
    p.pixels = c->n * c->ho * c->wo;
    p.columns = c->kh * c->kw * p.cg;
    p.elements = c->k * p.columns;
    p.chunk = dr_cuda_wgrad_chunk(c);
    const int64_t chunks = (p.pixels + p.chunk - 1) / p.chunk;
    float *const partial = chunks == 1 ? dw : static_cast<float *>(workspace);
    const int err = dr_cuda_conv_few(c) ? wgrad_few(p, t, x, dy, partial, cuda->stream)
                    : t == DR_TYPE_F32 && !cuda->tf32
                        ? wgrad_f32(p, (const float *)x, (const float *)dy, partial, cuda->stream)
                        : wgrad_mma(p, t, x, dy, partial, cuda->stream);
    return err || chunks == 1 ? err : launch_add(partial, chunks, p.elements, dw, cuda->stream);
}
