/* Max pooling, NHWC: a thread takes neighbouring channels of a pixel, 16 bytes of them where that
 * divides the channels. The gradient gathers: each input asks the windows that cover it, in output
 * order, whether it won; nothing is added atomically. */
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/pack.cuh"

namespace {

/* Calls f(row, column, offset of the pixel) for the pixels of a window, in order. */
template <typename F> __device__ void walk(const dr_pool &p, int64_t oy, int64_t ox, F f) {
    const int64_t top = oy * p.sh - p.pt, left = ox * p.sw - p.pl;
    const int64_t y1 = min(top + p.kh, p.h), x1 = min(left + p.kw, p.w);
    for (int64_t iy = max(top, (int64_t)0); iy < y1; iy++) {
        for (int64_t ix = max(left, (int64_t)0); ix < x1; ix++) {
            f(iy * p.w + ix);
        }
    }
}

/* The first largest, NaN above all. best: where it is, at first -1. */
__device__ void challenge(float v, int64_t at, float *top, int64_t *best) {
    if (*best < 0 || v > *top || (v != v && *top == *top)) {
        *best = at;
        *top = v;
    }
}

template <typename T, int V>
__global__ void fprop_kernel(const dr_pool p, const T *x, T *y, int64_t n) {
    DR_PACK_LOOP(V, i, n) {
        const int64_t ch = i % p.c, ox = i / p.c % p.wo, oy = i / p.c / p.wo % p.ho;
        const T *const image = x + i / p.c / p.wo / p.ho * p.h * p.w * p.c + ch;
        float top[V] = {};
        int64_t best[V];
#pragma unroll
        for (int k = 0; k < V; k++) {
            best[k] = -1;
        }
        walk(p, oy, ox, [&](int64_t at) {
            float v[V];
            dr_load<V>(image + at * p.c, v);
#pragma unroll
            for (int k = 0; k < V; k++) {
                challenge(v[k], at, &top[k], &best[k]);
            }
        });
        dr_store<V>(y + i, top);
    }
}

template <typename T, int V>
__global__ void dgrad_kernel(const dr_pool p, const T *x, const T *dy, T *dx, int64_t n) {
    DR_PACK_LOOP(V, i, n) {
        const int64_t ch = i % p.c, ix = i / p.c % p.w, iy = i / p.c / p.w % p.h;
        const int64_t image = i / p.c / p.w / p.h, own = iy * p.w + ix;
        const T *const xi = x + image * p.h * p.w * p.c + ch;
        const T *const dyi = dy + image * p.ho * p.wo * p.c + ch;
        const int64_t y1 = dr_pool_end(iy, p.pt, p.sh, p.ho);
        const int64_t x0 = dr_pool_first(ix, p.pl, p.kw, p.sw);
        const int64_t x1 = dr_pool_end(ix, p.pl, p.sw, p.wo);
        float sum[V] = {};
        for (int64_t oy = dr_pool_first(iy, p.pt, p.kh, p.sh); oy < y1; oy++) {
            for (int64_t ox = x0; ox < x1; ox++) {
                float top[V] = {}, d[V];
                int64_t best[V];
#pragma unroll
                for (int k = 0; k < V; k++) {
                    best[k] = -1;
                }
                walk(p, oy, ox, [&](int64_t at) {
                    float v[V];
                    dr_load<V>(xi + at * p.c, v);
#pragma unroll
                    for (int k = 0; k < V; k++) {
                        challenge(v[k], at, &top[k], &best[k]);
                    }
                });
                dr_load<V>(dyi + (oy * p.wo + ox) * p.c, d);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += best[k] == own ? d[k] : 0.0f;
                }
            }
        }
        dr_store<V>(dx + i, sum);
    }
}

} // namespace

extern "C" int dr_cuda_max_pool_fprop(enum dr_type t, const struct dr_pool *p, const void *x,
                                      void *y, cudaStream_t s) {
    const int64_t n = p->n * p->ho * p->wo * p->c;
    return dr_real_packs(t, p->c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        fprop_kernel<T, V><<<dr_blocks(n / V), DR_THREADS, 0, s>>>(*p, (const T *)x, (T *)y, n);
        return (int)cudaGetLastError();
    });
}

extern "C" int dr_cuda_max_pool_dgrad(enum dr_type t, const struct dr_pool *p, const void *x,
                                      const void *dy, void *dx, cudaStream_t s) {
    const int64_t n = p->n * p->h * p->w * p->c;
    return dr_real_packs(t, p->c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        dgrad_kernel<T, V>
            <<<dr_blocks(n / V), DR_THREADS, 0, s>>>(*p, (const T *)x, (const T *)dy, (T *)dx, n);
        return (int)cudaGetLastError();
    });
}
