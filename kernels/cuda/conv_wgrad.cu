/* The weight gradient of im2win convolution in fp32, on CUDA cores or, in tf32, on Tensor cores;
 * and column sums (bias gradients).
 *
 * dw[k, j] = sum over output pixels of dy[pixel, k] * window[pixel, j], j = (kh, kw, c). A block
 * takes a tile of filters by 64 window positions and a fixed chunk of pixels, 16 at a time: sixteen
 * threads work out where the next pixels' windows begin, all of them load one window column each.
 * Partial sums go to the workspace and are added in chunk order, in double; chunks depend on the
 * shape alone, so no result depends on the grid or the device. Inside a chunk, which may be long,
 * sums of FOLD pixels are added up: one running sum would lose the small terms. */
#include "kernels/cuda/conv.h"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/mma.cuh"

#include <algorithm>

namespace {

constexpr int WP = 16; /* pixels a step */
constexpr int TJ = 64; /* window positions a block */
constexpr int THREADS = 256;
constexpr int FOLD = 2048; /* pixels of an inner sum */

struct wgrad {
    dr_conv c;
    int64_t pixels, columns, elements; /* of dw: columns = Kh * Kw * C/groups */
    int64_t chunk;
    int kg, cg;
};

/* Where a pixel's window begins: the image, and the row and column of tap (0, 0). */
struct origin {
    int64_t image; /* offset of the image in x, or -1: no such pixel */
    int iy, ix;
};

__device__ origin origin_of(const wgrad &p, int64_t pixel, int64_t last) {
    if (pixel >= last) {
        return {-1, 0, 0};
    }
    const int64_t row = pixel / p.c.wo, image = row / p.c.ho;
    const int wo = (int)(pixel - row * p.c.wo), ho = (int)(row - image * p.c.ho);
    return {image * p.c.h * p.c.w * p.c.c, (int)(ho * p.c.sh - p.c.pt),
            (int)(wo * p.c.sw - p.c.pl)};
}

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
        return o.image >= 0 && column && iy >= 0 && ix >= 0 && iy < p.c.h && ix < p.c.w
                   ? x[o.image + ((int64_t)iy * p.c.w + ix) * p.c.c + channel]
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

/* The same on Tensor cores: M = filters, N = window positions, K = pixels, 32 pixels between
 * barriers. Eight warps of 32 x 16 (TK = 64: 2 x 4 warps) or 16 x 16 (TK = 32) or 16 x 8 (TK = 16)
 * results. Pitches of TK + 8 and TJ + 8 keep the fragments free of bank conflicts. */
template <int TK>
__global__ void __launch_bounds__(THREADS)
    wgrad_tf32_kernel(const wgrad p, const float *x, const float *dy, float *partial) {
    constexpr int QP = 32, WARPS_M = TK > 16 ? 2 : 1, WARPS_N = 8 / WARPS_M;
    constexpr int MT = TK / 16 / WARPS_M, NT = TJ / 8 / WARPS_N;
    __shared__ float a[QP][TK + 8], b[QP][TJ + 8];
    __shared__ origin at[2][QP];
    const share<TK> s(p);
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int m0 = warp / WARPS_N * MT * 16, n0 = warp % WARPS_N * NT * 8;

    float acc[MT][NT][4] = {}, total[MT][NT][4] = {};
    if (threadIdx.x < QP) {
        at[0][threadIdx.x] = origin_of(p, s.first + threadIdx.x, s.last);
    }
    int now = 0;
    for (int64_t p0 = s.first; p0 < s.last; p0 += QP, now ^= 1) {
        __syncthreads();
        if (threadIdx.x < QP) {
            at[now ^ 1][threadIdx.x] = origin_of(p, p0 + QP + threadIdx.x, s.last);
        }
        for (int q = s.lp; q < QP; q += THREADS / TJ) {
            b[q][s.lj] = dr_to_tf32(s.window(p, x, at[now][q]));
        }
        for (int q = s.lq; q < QP; q += THREADS / TK) {
            a[q][s.lk] = dr_to_tf32(s.gradient(p, dy, p0 + q));
        }
        __syncthreads();
#pragma unroll
        for (int q = 0; q < QP; q += 8) {
            uint32_t fa[MT][4], fb[NT][2];
#pragma unroll
            for (int m = 0; m < MT; m++) {
                const int k = m0 + m * 16 + g;
                fa[m][0] = __float_as_uint(a[q + t][k]);
                fa[m][1] = __float_as_uint(a[q + t][k + 8]);
                fa[m][2] = __float_as_uint(a[q + t + 4][k]);
                fa[m][3] = __float_as_uint(a[q + t + 4][k + 8]);
            }
#pragma unroll
            for (int n = 0; n < NT; n++) {
                fb[n][0] = __float_as_uint(b[q + t][n0 + n * 8 + g]);
                fb[n][1] = __float_as_uint(b[q + t + 4][n0 + n * 8 + g]);
            }
#pragma unroll
            for (int m = 0; m < MT; m++) {
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    dr_mma_tf32(acc[m][n], fa[m], fb[n]);
                }
            }
        }
        if ((p0 - s.first) % FOLD == FOLD - QP || p0 + QP >= s.last) {
#pragma unroll
            for (int m = 0; m < MT; m++) {
#pragma unroll
                for (int n = 0; n < NT; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        total[m][n][i] += acc[m][n][i];
                        acc[m][n][i] = 0.0f;
                    }
                }
            }
        }
    }
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s.store(p, partial, m0 + m * 16 + g + i / 2 * 8, n0 + n * 8 + 2 * t + i % 2,
                        total[m][n][i]);
            }
        }
    }
}

template <int TK>
void launch_wgrad(const wgrad &p, int64_t blocks, const float *x, const float *dy, float *partial,
                  const struct dr_cuda *cuda) {
    if (cuda->tf32) {
        wgrad_tf32_kernel<TK><<<(unsigned)blocks, THREADS, 0, cuda->stream>>>(p, x, dy, partial);
    } else {
        wgrad_kernel<TK><<<(unsigned)blocks, THREADS, 0, cuda->stream>>>(p, x, dy, partial);
    }
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

constexpr int64_t ROWS = DR_CUDA_SUM_CHUNK; /* rows a partial column sum */

/* Blocks: the 32-column tiles of the first chunk of rows, of the second, ... */
__global__ void column_sum_kernel(const float *a, int64_t rows, int64_t columns, unsigned tiles,
                                  float *partial) {
    __shared__ float sum[8][33];
    const int64_t chunk = blockIdx.x / tiles;
    const int64_t col = (int64_t)(blockIdx.x % tiles) * 32 + threadIdx.x;
    const int64_t first = chunk * ROWS, last = min(first + ROWS, rows);
    float acc = 0.0f;
    if (col < columns) {
        for (int64_t r = first + threadIdx.y; r < last; r += 8) {
            acc += a[r * columns + col];
        }
    }
    sum[threadIdx.y][threadIdx.x] = acc;
    __syncthreads();
    if (threadIdx.y == 0 && col < columns) {
        float total = 0.0f;
        for (int i = 0; i < 8; i++) {
            total += sum[i][threadIdx.x];
        }
        partial[chunk * columns + col] = total;
    }
}

} // namespace

extern "C" int dr_cuda_conv_wgrad(const struct dr_conv *c, enum dr_type t, const void *xs,
                                  const void *dys, float *dw, void *workspace,
                                  const struct dr_cuda *cuda) {
    const float *const x = (const float *)xs, *const dy = (const float *)dys;
    if (t != DR_TYPE_F32 || std::max({c->h, c->w, c->c, c->k}) > INT32_MAX) {
        return (int)cudaErrorInvalidConfiguration;
    }
    wgrad p = {};
    p.c = *c;
    p.cg = (int)(c->c / c->groups), p.kg = (int)(c->k / c->groups);
    p.pixels = c->n * c->ho * c->wo;
    p.columns = c->kh * c->kw * p.cg;
    p.elements = c->k * p.columns;
    p.chunk = dr_cuda_wgrad_chunk(c);
    const int tk = p.kg <= 16 ? 16 : p.kg <= 32 ? 32 : 64;
    const int64_t chunks = (p.pixels + p.chunk - 1) / p.chunk;
    const int64_t blocks =
        ((p.kg + tk - 1) / tk) * ((p.columns + TJ - 1) / TJ) * c->groups * chunks;
    if (blocks > INT32_MAX) {
        return (int)cudaErrorInvalidConfiguration;
    }
    float *const partial = static_cast<float *>(workspace);
    if (tk == 16) {
        launch_wgrad<16>(p, blocks, x, dy, partial, cuda);
    } else if (tk == 32) {
        launch_wgrad<32>(p, blocks, x, dy, partial, cuda);
    } else {
        launch_wgrad<64>(p, blocks, x, dy, partial, cuda);
    }
    return launch_add(partial, chunks, p.elements, dw, cuda->stream);
}

extern "C" int dr_cuda_column_sum(const float *a, int64_t rows, int64_t columns, float *out,
                                  void *workspace, cudaStream_t s) {
    const int64_t chunks = (rows + ROWS - 1) / ROWS, tiles = (columns + 31) / 32;
    if (chunks > INT32_MAX / tiles) {
        return (int)cudaErrorInvalidConfiguration;
    }
    float *const partial = static_cast<float *>(workspace);
    column_sum_kernel<<<(unsigned)(chunks * tiles), dim3(32, 8), 0, s>>>(a, rows, columns,
                                                                         (unsigned)tiles, partial);
    return launch_add(partial, chunks, columns, out, s);
}
