/* Nearest and bilinear resizing, NHWC: a thread takes neighbouring channels of a pixel, 16 bytes of
 * them where that divides the channels. The gradient gathers, in double, from the outputs that read
 * a pixel; nothing is added atomically. */
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/upsample.h"

namespace {

/* a = (1 - part) * a + part * b */
template <int V> __device__ void mix(float (&a)[V], const float (&b)[V], float part) {
#pragma unroll
    for (int k = 0; k < V; k++) {
        a[k] = (1.0f - part) * a[k] + part * b[k];
    }
}

template <typename T, int V>
__global__ void fprop_kernel(const dr_upsample u, const T *x, T *y, int64_t n) {
    DR_PACK_LOOP(V, i, n) {
        const int64_t ch = i % u.c, wo = i / u.c % u.wo, ho = i / u.c / u.wo % u.ho;
        const T *const image = x + i / u.c / u.wo / u.ho * u.h * u.w * u.c + ch;
        const struct dr_tap v = dr_tap(ho, u.h, u.ho, u.bilinear);
        const struct dr_tap w = dr_tap(wo, u.w, u.wo, u.bilinear);
        const T *const above = image + v.lo * u.w * u.c, *const below = image + v.hi * u.w * u.c;
        float top[V];
        dr_load<V>(above + w.lo * u.c, top);
        if (u.bilinear) {
            float right[V], bottom[V];
            dr_load<V>(above + w.hi * u.c, right);
            mix<V>(top, right, w.part);
            dr_load<V>(below + w.lo * u.c, bottom);
            dr_load<V>(below + w.hi * u.c, right);
            mix<V>(bottom, right, w.part);
            mix<V>(top, bottom, v.part);
        }
        dr_store<V>(y + i, top);
    }
}

template <typename T, int V>
__global__ void dgrad_kernel(const dr_upsample u, const T *dy, T *dx, int64_t n) {
    const int64_t back = u.bilinear ? 1 : 0;
    DR_PACK_LOOP(V, i, n) {
        const int64_t ch = i % u.c, w = i / u.c % u.w, h = i / u.c / u.w % u.h;
        const T *const image = dy + i / u.c / u.w / u.h * u.ho * u.wo * u.c + ch;
        const int64_t h1 = dr_tap_first(h + 1, u.h, u.ho, u.bilinear);
        const int64_t w0 = dr_tap_first(w - back, u.w, u.wo, u.bilinear);
        const int64_t w1 = dr_tap_first(w + 1, u.w, u.wo, u.bilinear);
        double sum[V] = {};
        for (int64_t ho = dr_tap_first(h - back, u.h, u.ho, u.bilinear); ho < h1; ho++) {
            const struct dr_tap v = dr_tap(ho, u.h, u.ho, u.bilinear);
            const double tall = dr_tap_weight(&v, h);
            for (int64_t wo = w0; wo < w1; wo++) {
                const struct dr_tap q = dr_tap(wo, u.w, u.wo, u.bilinear);
                const double share = tall * dr_tap_weight(&q, w);
                float d[V];
                dr_load<V>(image + (ho * u.wo + wo) * u.c, d);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += d[k] * share;
                }
            }
        }
        float out[V];
#pragma unroll
        for (int k = 0; k < V; k++) {
            out[k] = (float)sum[k];
        }
        dr_store<V>(dx + i, out);
    }
}

} // namespace

extern "C" int dr_cuda_upsample_fprop(enum dr_type t, const struct dr_upsample *u, const void *x,
                                      void *y, cudaStream_t s) {
    const int64_t n = u->n * u->ho * u->wo * u->c;
    return dr_real_packs(t, u->c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        fprop_kernel<T, V><<<dr_blocks(n / V), DR_THREADS, 0, s>>>(*u, (const T *)x, (T *)y, n);
        return (int)cudaGetLastError();
    });
}

extern "C" int dr_cuda_upsample_dgrad(enum dr_type t, const struct dr_upsample *u, const void *dy,
                                      void *dx, cudaStream_t s) {
    const int64_t n = u->n * u->h * u->w * u->c;
    return dr_real_packs(t, u->c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        dgrad_kernel<T, V><<<dr_blocks(n / V), DR_THREADS, 0, s>>>(*u, (const T *)dy, (T *)dx, n);
        return (int)cudaGetLastError();
    });
}
