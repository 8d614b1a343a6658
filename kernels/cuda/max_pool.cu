/* Max pooling, NHWC: a thread takes neighbouring channels of a pixel, 16 bytes of them where that
 * divides the channels. The gradient first notes where in each window its winner is; then each
 * input asks the windows that cover it, in output order, whether it is that one: a window is
 * searched once and nothing is added atomically. */
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/pack.cuh"

namespace {

struct job {
    dr_pool p;
    dr_grid_of x, y;
    dr_divisor sh, sw;
};

job job_of(const dr_pool &p) {
    return {p, dr_grid_of_shape(p.h, p.w, p.c), dr_grid_of_shape(p.ho, p.wo, p.c),
            dr_divisor_of(p.sh), dr_divisor_of(p.sw)};
}

/* The first largest of a window, NaN above all, and its place in the window, kw * row + column. */
template <int V> struct winner {
    float top[V];
    uint32_t at[V];
};

/* Unordered counts as greater: what is not at most the winner beats it, unless that is NaN. */
template <int V> __device__ void challenge(winner<V> &best, const float (&v)[V], uint32_t at) {
#pragma unroll
    for (int k = 0; k < V; k++) {
        const bool beats = !(v[k] <= best.top[k]) && best.top[k] == best.top[k];
        best.top[k] = beats ? v[k] : best.top[k];
        best.at[k] = beats ? at : best.at[k];
    }
}

/* Window (oy, ox) of an image at its channels. K: the size of a square kernel, unrolled so that all
 * of it is on its way at once; 0: any. A place outside the image stands for the nearest one inside,
 * which is in the window, too (padding is at most half the kernel): to meet a number again next to
 * itself does not change who is first. */
template <typename T, int V, int K>
__device__ winner<V> search(const dr_pool &p, const T *image, int64_t oy, int64_t ox) {
    const int64_t top = oy * p.sh - p.pt, left = ox * p.sw - p.pl;
    winner<V> best;
    if constexpr (K > 0) {
        float v[K * K][V];
        uint32_t at[K * K];
#pragma unroll
        for (int i = 0; i < K * K; i++) {
            const int64_t iy = min(max(top + i / K, (int64_t)0), p.h - 1);
            const int64_t ix = min(max(left + i % K, (int64_t)0), p.w - 1);
            dr_load<V>(image + (iy * p.w + ix) * p.c, v[i]);
            at[i] = (uint32_t)((iy - top) * K + (ix - left));
        }
#pragma unroll
        for (int k = 0; k < V; k++) {
            best.top[k] = v[0][k];
            best.at[k] = at[0];
        }
#pragma unroll
        for (int i = 1; i < K * K; i++) {
            challenge<V>(best, v[i], at[i]);
        }
    } else {
        const int64_t y1 = min(top + p.kh, p.h), x1 = min(left + p.kw, p.w);
        const int64_t y0 = max(top, (int64_t)0), x0 = max(left, (int64_t)0);
        const uint32_t first = (uint32_t)((y0 - top) * p.kw + (x0 - left));
        dr_load<V>(image + (y0 * p.w + x0) * p.c, best.top);
#pragma unroll
        for (int k = 0; k < V; k++) {
            best.at[k] = first;
        }
        for (int64_t iy = y0; iy < y1; iy++) {
            for (int64_t ix = x0; ix < x1;
                 ix++) { /* the first once more: it does not beat itself */
                float v[V];
                dr_load<V>(image + (iy * p.w + ix) * p.c, v);
                challenge<V>(best, v, (uint32_t)((iy - top) * p.kw + (ix - left)));
            }
        }
    }
    return best;
}

template <typename T, int V, int K>
__global__ void fprop_kernel(const job j, const T *x, T *y, int64_t n) {
    DR_PACK_LOOP(V, i, n) {
        const dr_place o = dr_place_of(j.y, i);
        const T *const image = x + o.image * j.p.h * j.p.w * j.p.c + o.c;
        const winner<V> best = search<T, V, K>(j.p, image, o.row, o.column);
        dr_store<V>(y + i, best.top);
    }
}

/* Neighbouring places in windows, in one access of up to 16 bytes. */
template <typename I, int V> union places {
    typename dr_word<(V * sizeof(I) < 16 ? V * (int)sizeof(I) : 16)>::type
        word[V * sizeof(I) < 16 ? 1 : V * sizeof(I) / 16];
    I at[V];
};

template <typename T, int V, int K, typename I>
__global__ void note_kernel(const job j, const T *x, I *won, int64_t n) {
    DR_PACK_LOOP(V, i, n) {
        const dr_place o = dr_place_of(j.y, i);
        const T *const image = x + o.image * j.p.h * j.p.w * j.p.c + o.c;
        const winner<V> best = search<T, V, K>(j.p, image, o.row, o.column);
        places<I, V> w;
#pragma unroll
        for (int k = 0; k < V; k++) {
            w.at[k] = (I)best.at[k];
        }
        *(places<I, V> *)(won + i) = w;
    }
}

template <typename T, int V, typename I>
__global__ void gather_kernel(const job j, const I *won, const T *dy, T *dx, int64_t n) {
    const dr_pool &p = j.p;
    DR_PACK_LOOP(V, i, n) {
        const dr_place in = dr_place_of(j.x, i);
        const int64_t y = in.row + p.pt, x = in.column + p.pl; /* in the padded image */
        const int64_t base = in.image * p.ho * p.wo * p.c + in.c;
        const int64_t y0 = y < p.kh ? 0 : dr_divide(j.sh, y - p.kh) + 1;
        const int64_t x0 = x < p.kw ? 0 : dr_divide(j.sw, x - p.kw) + 1;
        const int64_t y1 = min(dr_divide(j.sh, y) + 1, p.ho);
        const int64_t x1 = min(dr_divide(j.sw, x) + 1, p.wo);
        float sum[V] = {};
        for (int64_t oy = y0; oy < y1; oy++) {
#pragma unroll 2
            for (int64_t ox = x0; ox < x1; ox++) {
                const int64_t o = base + (oy * p.wo + ox) * p.c;
                const uint32_t own = (uint32_t)((y - oy * p.sh) * p.kw + (x - ox * p.sw));
                const places<I, V> w = *(const places<I, V> *)(won + o);
                float d[V];
                dr_load<V>(dy + o, d);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += w.at[k] == (I)own ? d[k] : 0.0f;
                }
            }
        }
        dr_store<V>(dx + i, sum);
    }
}

/* Calls f with a null pointer of the storage type, V, and K as types with a value. */
template <typename F> int shapes(enum dr_type t, const dr_pool &p, F f) {
    return dr_real_packs(t, p.c, [&](auto *type, auto v) {
        constexpr bool PACKED = decltype(v)::value > 1; /* else not worth code of its own */
        if (PACKED && p.kh == 2 && p.kw == 2) {
            return f(type, v, std::integral_constant < int, PACKED ? 2 : 0 > ());
        }
        if (PACKED && p.kh == 3 && p.kw == 3) {
            return f(type, v, std::integral_constant < int, PACKED ? 3 : 0 > ());
        }
        return f(type, v, std::integral_constant<int, 0>());
    });
}

template <typename I>
int dgrad(enum dr_type t, const dr_pool &p, const void *x, const void *dy, I *won, void *dx,
          cudaStream_t s) {
    const int64_t n = p.n * p.h * p.w * p.c, windows = p.n * p.ho * p.wo * p.c;
    const job j = job_of(p);
    return shapes(t, p, [&](auto *type, auto v, auto size) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value, K = sizeof(I) == 1 ? decltype(size)::value : 0;
        note_kernel<T, V, K>
            <<<dr_blocks(windows / V), DR_THREADS, 0, s>>>(j, (const T *)x, won, windows);
        gather_kernel<T, V>
            <<<dr_blocks(n / V), DR_THREADS, 0, s>>>(j, won, (const T *)dy, (T *)dx, n);
        return (int)cudaGetLastError();
    });
}

} // namespace

extern "C" int dr_cuda_max_pool_fprop(enum dr_type t, const struct dr_pool *p, const void *x,
                                      void *y, cudaStream_t s) {
    const int64_t n = p->n * p->ho * p->wo * p->c;
    const job j = job_of(*p);
    return shapes(t, *p, [&](auto *type, auto v, auto size) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value, K = decltype(size)::value;
        fprop_kernel<T, V, K><<<dr_blocks(n / V), DR_THREADS, 0, s>>>(j, (const T *)x, (T *)y, n);
        return (int)cudaGetLastError();
    });
}

extern "C" int dr_cuda_max_pool_dgrad(enum dr_type t, const struct dr_pool *p, const void *x,
                                      const void *dy, void *workspace, void *dx, cudaStream_t s) {
    return dr_cuda_max_pool_place_bytes(p) == 1 ? dgrad(t, *p, x, dy, (uint8_t *)workspace, dx, s)
                                                : dgrad(t, *p, x, dy, (uint32_t *)workspace, dx, s);
}
