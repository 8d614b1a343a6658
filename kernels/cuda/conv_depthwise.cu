/* Convolution of groups with few channels and filters (depthwise: one of each), forward and data
 * gradient, on CUDA cores in fp32 whatever is stored: a Tensor core's tile would be nearly empty,
 * and these wait for memory anyway.
 *
 * NHWC puts the same tap of neighbouring channels side by side, so vectors and lanes run along the
 * channels of all groups: a block packs as many groups as fit. A thread sums STRIP output pixels of
 * a row; of a filter row it holds the input columns that they share in registers (depthwise,
 * dilation 1), or loads them tap by tap. Weights of the block's filters stand in shared memory in
 * fp32, [tap][channel][filter].
 *
 * Each output is one chain over kw, kh, c (depthwise: kh, then x): the same bits on any grid. */
#include "kernels/cuda/conv_corr.cuh"

#include <algorithm>
#include <type_traits>

namespace dr {
namespace {

constexpr int THREADS = 256, STRIP = 4;

struct few_args {
    corr p;
    int64_t strips; /* of STRIP pixels of a row: n * ho * strips_x */
    int strips_x;
    int lanes, lanes_log; /* threads along the filters: 2^lanes_log */
    int tile_k;           /* filters (of all groups) a block */
};

/* A strip's image, row and first column. */
struct strip {
    int64_t image;
    int oy, ox;
};
__device__ __forceinline__ strip strip_of(const few_args &a, int64_t i) {
    int64_t row, image;
    if (a.strips <= UINT32_MAX) { /* a fraction of the 64-bit division's time */
        row = (uint32_t)i / (uint32_t)a.strips_x;
        image = (uint32_t)row / (uint32_t)a.p.ho;
    } else {
        row = i / a.strips_x;
        image = row / a.p.ho;
    }
    return {image, (int)(row - image * a.p.ho), (int)(i - row * a.strips_x) * STRIP};
}

/* N neighbours in memory, as floats. */
template <class T, int N> struct alignas(N * sizeof(T)) pack { T at[N]; };
template <class T, int N> __device__ __forceinline__ void load(const T *from, float (&v)[N]) {
    const pack<T, N> q = *(const pack<T, N> *)from;
#pragma unroll
    for (int i = 0; i < N; i++) {
        v[i] = dr_load(&q.at[i]);
    }
}

/* Weights of filters [k0, k0 + tile_k) of all groups: slab[(kh * nx + kw) * c + ch][k]. */
template <class T>
__device__ void load_slab(const few_args &a, const T *w, int64_t k0, float *slab) {
    const corr &p = a.p;
    const int rows = p.ty.n * p.tx.n * p.c;
    for (int i = threadIdx.x; i < rows * a.tile_k; i += THREADS) {
        const int row = i / a.tile_k, k = (int)k0 + i - row * a.tile_k;
        const int tap = p.c == 1 ? row : row / p.c, group = p.k == 1 ? k : k / p.k;
        const int kh = tap / p.tx.n, kw = tap - kh * p.tx.n;
        slab[i] = k < p.k_total ? dr_load(w + group * p.w_group + (k - group * p.k) * p.w_k +
                                          (row - tap * p.c) * p.w_c + p.ty.weight[kh] * p.w_kh +
                                          p.tx.weight[kw] * p.w_kw)
                                : 0.0f;
    }
}

/* One strip of V channels. NX > 0: taps along x at distance 1, as many, outputs SX apart. */
template <class T, int V, int NX, int SX>
__device__ __forceinline__ void depthwise_sum(const corr &p, const T *src, const strip &s,
                                              const float *slab, int tile_k,
                                              float (&acc)[STRIP][V]) {
    for (int kh = 0; kh < p.ty.n; kh++) {
        const int iy = s.oy * p.sh + p.ty.at[kh];
        const bool row = iy >= 0 && iy < p.h;
        const T *const line = src + (int64_t)(row ? iy : 0) * p.w * p.c_total;
        if constexpr (NX > 0) {
            constexpr int COLUMNS = (STRIP - 1) * SX + NX;
            const int ix0 = s.ox * SX + p.tx.low;
            const T *from = line + (int64_t)ix0 * p.c_total;
            float x[COLUMNS][V];
#pragma unroll
            for (int i = 0; i < COLUMNS; i++, from += p.c_total) {
                if (row && (unsigned)(ix0 + i) < (unsigned)p.w) {
                    load<T, V>(from, x[i]);
                } else {
#pragma unroll
                    for (int v = 0; v < V; v++) {
                        x[i][v] = 0.0f;
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < NX; i++) { /* taps stand in order of `at`, forwards or backwards */
                const int kw = p.tx.at[0] == p.tx.low ? i : NX - 1 - i;
                const float *const at = slab + (kh * NX + kw) * tile_k;
                float w[V];
#pragma unroll
                for (int v = 0; v < V; v++) {
                    w[v] = at[v];
                }
#pragma unroll
                for (int r = 0; r < STRIP; r++) {
#pragma unroll
                    for (int v = 0; v < V; v++) {
                        acc[r][v] = fmaf(x[r * SX + i][v], w[v], acc[r][v]);
                    }
                }
            }
        } else {
            for (int kw = 0; kw < p.tx.n; kw++) {
                const float *const w = slab + (kh * p.tx.n + kw) * tile_k;
#pragma unroll
                for (int r = 0; r < STRIP; r++) {
                    const int ix = (s.ox + r) * p.sw + p.tx.at[kw];
                    float x[V] = {};
                    if (row && ix >= 0 && ix < p.w) {
                        load<T, V>(line + ix * p.c_total, x);
                    }
#pragma unroll
                    for (int v = 0; v < V; v++) {
                        acc[r][v] = fmaf(x[v], w[v], acc[r][v]);
                    }
                }
            }
        }
    }
}

template <class T, int F>
__device__ __forceinline__ void finish(const corr &p, const strip &s, int64_t k,
                                       const dr_column (&column)[F], const float (&acc)[STRIP][F],
                                       T *y) {
    const bool relu = p.e.act == 1;
    int64_t at = pixel_of(p, s.image, s.oy, s.ox) * p.k_total + k;
#pragma unroll
    for (int r = 0; r < STRIP; r++, at += p.ox_step * p.k_total) {
        if (s.ox + r >= p.wo) {
            break;
        }
        pack<T, F> out, add = {};
        if (p.e.add) {
            add = *(const pack<T, F> *)((const T *)p.e.add + at);
        }
#pragma unroll
        for (int f = 0; f < F; f++) {
            float v = fmaf(acc[r][f], column[f].scale, column[f].shift);
            if (p.e.add) {
                v += dr_load(&add.at[f]);
            }
            dr_store(&out.at[f],
                     p.e.act <= 1 ? (relu && v <= 0.0f ? 0.0f : v) : dr_activate_long(v, p.e.act));
        }
        *(pack<T, F> *)(y + at) = out;
    }
}

/* One channel and one filter a group: V of them a thread. */
template <class T, int V, int NX, int SX>
__global__ void __launch_bounds__(THREADS)
    depthwise_kernel(const __grid_constant__ few_args a, const T *x, const T *w, T *y) {
    extern __shared__ float slab[];
    const corr &p = a.p;
    const int64_t k0 = (int64_t)blockIdx.y * a.tile_k;
    load_slab(a, w, k0, slab);
    __syncthreads();
    const int lane = threadIdx.x & (a.lanes - 1), workers = THREADS >> a.lanes_log;
    const int64_t k = k0 + lane * V;
    if (k >= p.k_total) {
        return;
    }
    dr_column column[V];
#pragma unroll
    for (int v = 0; v < V; v++) {
        column[v] = dr_column_of(p.e, k + v);
    }
    const int64_t step = (int64_t)gridDim.x * workers;
    for (int64_t i = (int64_t)blockIdx.x * workers + (threadIdx.x >> a.lanes_log); i < a.strips;
         i += step) {
        const strip s = strip_of(a, i);
        float acc[STRIP][V] = {};
        depthwise_sum<T, V, NX, SX>(p, x + s.image * p.h * p.w * p.c_total + k, s, slab + lane * V,
                                    a.tile_k, acc);
        finish<T, V>(p, s, k, column, acc, y);
    }
}

/* C channels a group (0: p.c of them, one at a time), F filters of one group a thread. */
template <class T, int C, int F>
__global__ void __launch_bounds__(THREADS)
    grouped_kernel(const __grid_constant__ few_args a, const T *x, const T *w, T *y) {
    extern __shared__ float slab[];
    constexpr int N = C ? C : 1;
    const corr &p = a.p;
    const int64_t k0 = (int64_t)blockIdx.y * a.tile_k;
    load_slab(a, w, k0, slab);
    __syncthreads();
    const int lane = threadIdx.x & (a.lanes - 1), workers = THREADS >> a.lanes_log;
    const int64_t k = k0 + lane * F;
    if (k >= p.k_total) {
        return;
    }
    dr_column column[F];
#pragma unroll
    for (int f = 0; f < F; f++) {
        column[f] = dr_column_of(p.e, k + f);
    }
    const int64_t step = (int64_t)gridDim.x * workers;
    for (int64_t i = (int64_t)blockIdx.x * workers + (threadIdx.x >> a.lanes_log); i < a.strips;
         i += step) {
        const strip s = strip_of(a, i);
        const T *const src = x + s.image * p.h * p.w * p.c_total + k / p.k * p.c;
        float acc[STRIP][F] = {};
        for (int kw = 0; kw < p.tx.n; kw++) {
            for (int kh = 0; kh < p.ty.n; kh++) {
                const int iy = s.oy * p.sh + p.ty.at[kh];
                const bool row = iy >= 0 && iy < p.h;
                for (int c0 = 0; c0 < p.c; c0 += N) {
                    const float *const from =
                        slab + ((kh * p.tx.n + kw) * p.c + c0) * a.tile_k + lane * F;
                    float wv[N][F];
#pragma unroll
                    for (int c = 0; c < N; c++) {
#pragma unroll
                        for (int f = 0; f < F; f++) {
                            wv[c][f] = from[c * a.tile_k + f];
                        }
                    }
#pragma unroll
                    for (int r = 0; r < STRIP; r++) {
                        const int ix = (s.ox + r) * p.sw + p.tx.at[kw];
                        float v[N] = {};
                        if (row && ix >= 0 && ix < p.w) {
                            load<T, N>(src + ((int64_t)iy * p.w + ix) * p.c_total + c0, v);
                        }
#pragma unroll
                        for (int c = 0; c < N; c++) {
#pragma unroll
                            for (int f = 0; f < F; f++) {
                                acc[r][f] = fmaf(v[c], wv[c][f], acc[r][f]);
                            }
                        }
                    }
                }
            }
        }
        finish<T, F>(p, s, k, column, acc, y);
    }
}

/* `width` filters a thread; *fits is false where the weights do not fit in shared memory. */
template <class T, class K>
int launch(K kernel, const corr &p, int width, const T *x, const T *w, T *y, bool *fits,
           cudaStream_t s) {
    few_args a = {p};
    const int64_t vectors = p.k_total / width;
    const size_t row = sizeof(float) * width * p.ty.n * p.tx.n * p.c; /* weights of one thread */
    while (a.lanes_log < 5 && 1 << a.lanes_log < vectors &&
           row << (a.lanes_log + 1) <= SHARED_WANTED / 2) {
        a.lanes_log++;
    }
    a.lanes = 1 << a.lanes_log;
    a.tile_k = a.lanes * width;
    a.strips_x = (p.wo + STRIP - 1) / STRIP;
    a.strips = (int64_t)p.n * p.ho * a.strips_x;
    const size_t bytes = row << a.lanes_log;
    const int64_t tiles = (vectors + a.lanes - 1) / a.lanes;
    const int64_t workers = THREADS >> a.lanes_log, most = (a.strips + workers - 1) / workers;
    *fits = bytes <= SHARED_WANTED / 2 && tiles <= 65535;
    if (!*fits || most == 0) {
        return (int)cudaSuccess;
    }
    const int64_t blocks = std::min(most, std::max<int64_t>(1, 1024 / tiles));
    kernel<<<dim3((unsigned)blocks, (unsigned)tiles), THREADS, bytes, s>>>(a, x, w, y);
    return (int)cudaGetLastError();
}

template <class T, int V>
int depthwise(const corr &p, const T *x, const T *w, T *y, bool *fits, cudaStream_t s) {
    const bool rows = p.tx.n > 0 && p.tx.high - p.tx.low == p.tx.n - 1;
    const int nx = rows && (p.sw == 1 || p.sw == 2) ? p.tx.n : 0;
    if (p.sw == 2) {
        return nx == 3   ? launch(depthwise_kernel<T, V, 3, 2>, p, V, x, w, y, fits, s)
               : nx == 5 ? launch(depthwise_kernel<T, V, 5, 2>, p, V, x, w, y, fits, s)
                         : launch(depthwise_kernel<T, V, 0, 0>, p, V, x, w, y, fits, s);
    }
    return nx == 2   ? launch(depthwise_kernel<T, V, 2, 1>, p, V, x, w, y, fits, s)
           : nx == 3 ? launch(depthwise_kernel<T, V, 3, 1>, p, V, x, w, y, fits, s)
           : nx == 5 ? launch(depthwise_kernel<T, V, 5, 1>, p, V, x, w, y, fits, s)
                     : launch(depthwise_kernel<T, V, 0, 0>, p, V, x, w, y, fits, s);
}

template <class T, int C>
int grouped(const corr &p, const T *x, const T *w, T *y, bool *fits, cudaStream_t s) {
    return p.k % 4 == 0   ? launch(grouped_kernel<T, C, 4>, p, 4, x, w, y, fits, s)
           : p.k % 2 == 0 ? launch(grouped_kernel<T, C, 2>, p, 2, x, w, y, fits, s)
                          : launch(grouped_kernel<T, C, 1>, p, 1, x, w, y, fits, s);
}

template <class T>
int launch_few(const corr &p, const T *x, const T *w, T *y, bool *fits, cudaStream_t s) {
    if (p.c == 1 && p.k == 1) {
        return p.c_total % 4 == 0 ? depthwise<T, 4>(p, x, w, y, fits, s)
                                  : depthwise<T, 1>(p, x, w, y, fits, s);
    }
    return p.c == 4   ? grouped<T, 4>(p, x, w, y, fits, s)
           : p.c == 2 ? grouped<T, 2>(p, x, w, y, fits, s)
                      : grouped<T, 0>(p, x, w, y, fits, s);
}

} // namespace

int corr_few(const corr &p, enum dr_type t, const void *x, const void *w, void *y, bool *fits,
             cudaStream_t s) {
    *fits = (uintptr_t)x % 16 == 0 && (uintptr_t)y % 16 == 0 && (uintptr_t)p.e.add % 16 == 0;
    return !*fits ? (int)cudaSuccess : dr_real(t, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return launch_few<T>(p, (const T *)x, (const T *)w, (T *)y, fits, s);
    });
}

} // namespace dr
