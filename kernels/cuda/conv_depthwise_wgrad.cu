/* The weight gradient of groups with few channels and filters (depthwise: one of each), on CUDA
 * cores in fp32 whatever is stored.
 *
 * A thread sums for one pair of filter and channel of a group; lanes run along the pairs of all
 * groups, so loads are whole rows of channels. Eight workers of a block share the output rows of a
 * chunk, and add up in order at its end. For square filters of 3 or 5 with stride 1 or 2 a worker
 * walks along a row with the whole window in registers, and loads each input column once; other
 * filters go row of taps by row of taps, EIGHT at a time. Sums of a chunk are fixed chains: the
 * same bits on any grid. */
#include "kernels/cuda/conv_wgrad.cuh"
#include "kernels/cuda/real.cuh"

#include <type_traits>

namespace dr {
namespace {

constexpr int WORKERS = 8, EIGHT = 8;

/* A thread's filter and channel (of N neighbouring pairs: the first), if there is one. */
struct pair {
    int64_t at, k, channel;
    bool real;
};
template <int N> __device__ __forceinline__ pair pair_of(const wgrad &p) {
    pair q;
    q.at = ((int64_t)blockIdx.x * 32 + threadIdx.x) * N;
    q.real = q.at < p.c.k * p.cg;
    q.k = q.at / p.cg;
    q.channel = q.k / p.kg * p.cg + q.at % p.cg;
    return q;
}

/* Adds the workers' sums, and stores tap (kh, kw) of pair q.at + i. */
__device__ __forceinline__ void add_workers(const wgrad &p, const pair &q, int i, float sum,
                                            int64_t tap, float *partial) {
    __shared__ float part[WORKERS][32];
    __syncthreads();
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && q.real) {
        float total = 0.0f;
        for (int worker = 0; worker < WORKERS; worker++) {
            total += part[worker][threadIdx.x];
        }
        const int64_t chunk = blockIdx.y, at = q.at + i;
        partial[chunk * p.elements + at / p.cg * p.columns + tap * p.cg + at % p.cg] = total;
    }
}

/* The output rows of the block's chunk that this worker sums: f(image, oy). */
template <class F> __device__ __forceinline__ void each_row(const wgrad &p, F f) {
    const int64_t rows = p.c.n * p.c.ho, of_chunk = p.chunk / p.c.wo;
    const int64_t first = blockIdx.y * of_chunk, last = min(first + of_chunk, rows);
    for (int64_t row = first + threadIdx.y; row < last; row += WORKERS) {
        const int64_t image = row / p.c.ho;
        f(image, row - image * p.c.ho);
    }
}

/* N > 1 (depthwise): neighbouring channels. */
template <class T, int K, int S, int N>
__global__ void __launch_bounds__(32 * WORKERS)
    square_kernel(const __grid_constant__ wgrad p, const T *x, const T *dy, float *partial) {
    struct alignas(N * sizeof(T)) pack {
        T at[N];
    };
    const pair q = pair_of<N>(p);
    float acc[K][K][N] = {};
    const int w = (int)p.c.w, wo = (int)p.c.wo, pl = (int)p.c.pl;
    each_row(p, [&](int64_t image, int64_t oy) {
        if (!q.real) {
            return;
        }
        const int64_t iy0 = oy * S - p.c.pt, row = p.c.w * p.c.c;
        const T *source = x + (image * p.c.h + iy0) * row - pl * p.c.c + q.channel;
        const T *d = dy + (image * p.c.ho + oy) * p.c.wo * p.c.k + q.k;
        bool inside[K];
#pragma unroll
        for (int i = 0; i < K; i++) {
            inside[i] = iy0 + i >= 0 && iy0 + i < p.c.h;
        }
        float win[K][K][N] = {};
        const auto column = [&](int i, int ix) { /* source: at column ix */
#pragma unroll
                                                 for (int kh = 0; kh < K; kh++) {
                                                     pack v = {};
                                                     if (inside[kh] && (unsigned)ix < (unsigned)w) {
                                                         v = *(const pack *)(source + kh * row);
                                                     }
#pragma unroll
                                                     for (int n = 0; n < N; n++) {
                                                         win[kh][i][n] = dr_load(&v.at[n]);
                                                     }
                                                 }
                                                 source += p.c.c;
        };
#pragma unroll
        for (int i = S; i < K; i++) { /* to be shifted into place */
            column(i, i - S - pl);
        }
#pragma unroll K
        for (int ox = 0; ox < wo; ox++, d += p.c.k) {
#pragma unroll
            for (int kh = 0; kh < K; kh++) {
#pragma unroll
                for (int i = 0; i + S < K; i++) {
#pragma unroll
                    for (int n = 0; n < N; n++) {
                        win[kh][i][n] = win[kh][i + S][n];
                    }
                }
            }
#pragma unroll
            for (int i = K - S; i < K; i++) {
                column(i, ox * S + i - pl);
            }
            const pack g = *(const pack *)d;
#pragma unroll
            for (int n = 0; n < N; n++) {
                const float v = dr_load(&g.at[n]);
#pragma unroll
                for (int i = 0; i < K * K; i++) {
                    acc[i / K][i % K][n] = fmaf(v, win[i / K][i % K][n], acc[i / K][i % K][n]);
                }
            }
        }
    });
#pragma unroll
    for (int i = 0; i < K * K; i++) {
#pragma unroll
        for (int n = 0; n < N; n++) {
            add_workers(p, q, n, acc[i / K][i % K][n], i, partial);
        }
    }
}

/* Blocks z: a filter row and EIGHT of its taps. */
template <class T>
__global__ void __launch_bounds__(32 * WORKERS)
    any_kernel(const __grid_constant__ wgrad p, const T *x, const T *dy, float *partial) {
    const pair q = pair_of<1>(p);
    const int eights = (int)((p.c.kw + EIGHT - 1) / EIGHT);
    const int64_t kh = blockIdx.z / eights, kw0 = blockIdx.z % eights * EIGHT;
    float acc[EIGHT] = {};
    each_row(p, [&](int64_t image, int64_t oy) {
        const int64_t iy = oy * p.c.sh + kh * p.c.dh - p.c.pt;
        const bool row = iy >= 0 && iy < p.c.h;
        const T *const source = x + (image * p.c.h + iy) * p.c.w * p.c.c + q.channel;
        const T *const d = dy + (image * p.c.ho + oy) * p.c.wo * p.c.k + q.k;
        for (int64_t ox = 0; ox < p.c.wo && q.real; ox++) {
            const float g = dr_load(d + ox * p.c.k);
            for (int i = 0; i < EIGHT; i++) {
                const int64_t ix = ox * p.c.sw + (kw0 + i) * p.c.dw - p.c.pl;
                const bool in = row && ix >= 0 && ix < p.c.w && kw0 + i < p.c.kw;
                acc[i] = fmaf(g, in ? dr_load(source + ix * p.c.c) : 0.0f, acc[i]);
            }
        }
    });
#pragma unroll
    for (int i = 0; i < EIGHT; i++) {
        if (kw0 + i < p.c.kw) {
            add_workers(p, q, 0, acc[i], kh * p.c.kw + kw0 + i, partial);
        }
    }
}

template <class T, int N>
int launch(const wgrad &p, const T *x, const T *dy, float *partial, cudaStream_t s) {
    const dr_conv &c = p.c;
    const bool plain = c.kh == c.kw && c.sh == c.sw && c.dh == 1 && c.dw == 1;
    const int kind = plain && (c.kh == 3 || c.kh == 5) && c.sh <= 2 ? (int)(c.kh * 10 + c.sh) : 0;
    const auto kernel = kind == 31   ? square_kernel<T, 3, 1, N>
                        : kind == 32 ? square_kernel<T, 3, 2, N>
                        : kind == 51 ? square_kernel<T, 5, 1, N>
                        : kind == 52 ? square_kernel<T, 5, 2, N>
                                     : any_kernel<T>;
    const int64_t each = kind ? 32 * N : 32, tiles = (c.k * p.cg + each - 1) / each;
    const int64_t chunks = (p.pixels + p.chunk - 1) / p.chunk;
    const int64_t filter_rows = kind ? 1 : c.kh * ((c.kw + EIGHT - 1) / EIGHT);
    if (tiles > INT32_MAX || chunks > 65535 || filter_rows > 65535) {
        return (int)cudaErrorInvalidConfiguration;
    }
    kernel<<<dim3((unsigned)tiles, (unsigned)chunks, (unsigned)filter_rows), dim3(32, WORKERS), 0,
             s>>>(p, x, dy, partial);
    return (int)cudaGetLastError();
}
} // namespace

int wgrad_few(const wgrad &p, enum dr_type t, const void *x, const void *dy, float *partial,
              cudaStream_t s) {
    return dr_real(t, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        const bool pairs = p.kg == 1 && p.cg == 1 && p.c.k % 2 == 0 && (uintptr_t)x % 8 == 0 &&
                           (uintptr_t)dy % 8 == 0;
        return (pairs ? launch<T, 2> : launch<T, 1>)(p, (const T *)x, (const T *)dy, partial, s);
    });
}

} // namespace dr
