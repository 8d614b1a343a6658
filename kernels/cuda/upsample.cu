/* Nearest and bilinear resizing, NHWC: a thread takes neighbouring channels of a pixel, 16 bytes of
 * them where that divides the channels. The gradient gathers from the outputs that read a pixel, in
 * fp32 where those are few; nothing is added atomically. */
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/upsample.h"

namespace {

/* One direction: dr_tap and dr_tap_first of upsample_shape.h, whose quotients are by numbers known
 * beforehand. */
struct axis {
    int64_t in, out, bilinear;
    dr_divisor to_in, to_out; /* by 2 out and 2 in, nearest: by out and in */
};

axis axis_of(int64_t in, int64_t out, int bilinear) {
    const int64_t two = bilinear ? 2 : 1;
    return {in, out, bilinear, dr_divisor_of(two * out), dr_divisor_of(two * in)};
}

__device__ struct dr_tap tap(const axis &a, int64_t o) {
    struct dr_tap t;
    if (!a.bilinear) {
        t.lo = t.hi = dr_divide(a.to_in, o * a.in);
        t.part = 0;
        return t;
    }
    const int64_t at = max((2 * o + 1) * a.in - a.out, (int64_t)0), unit = a.to_in.d;
    t.lo = dr_divide(a.to_in, at);
    t.hi = min(t.lo + 1, a.in - 1);
    const int64_t rest = at - t.lo * unit;
    /* Up to 2^24 both are floats, and their quotient rounds as the double one does twice. */
    t.part = unit <= 1 << 24 ? (float)rest / (float)unit : (float)((double)rest / (double)unit);
    return t;
}

__device__ int64_t tap_first(const axis &a, int64_t i) {
    if (i <= 0) {
        return 0;
    }
    if (i >= a.in) {
        return a.out;
    }
    const int64_t at = a.bilinear ? (2 * i + 1) * a.out - a.in : i * a.out;
    const int64_t first = at <= 0 ? 0 : dr_divide(a.to_out, at + a.to_out.d - 1);
    return min(first, a.out);
}

struct job {
    dr_upsample u;
    dr_grid_of x, y;
    axis h, w;
};

job job_of(const dr_upsample &u) {
    return {u, dr_grid_of_shape(u.h, u.w, u.c), dr_grid_of_shape(u.ho, u.wo, u.c),
            axis_of(u.h, u.ho, u.bilinear), axis_of(u.w, u.wo, u.bilinear)};
}

/* a = (1 - part) * a + part * b */
template <int V> __device__ void mix(float (&a)[V], const float (&b)[V], float part) {
#pragma unroll
    for (int k = 0; k < V; k++) {
        a[k] = (1.0f - part) * a[k] + part * b[k];
    }
}

template <typename T, int V>
__global__ void fprop_kernel(const job j, const T *x, T *y, int64_t n) {
    const dr_upsample &u = j.u;
    DR_PACK_LOOP(V, i, n) {
        const dr_place o = dr_place_of(j.y, i);
        const T *const image = x + o.image * u.h * u.w * u.c + o.c;
        const struct dr_tap v = tap(j.h, o.row), w = tap(j.w, o.column);
        const T *const above = image + v.lo * u.w * u.c, *const below = image + v.hi * u.w * u.c;
        float top[V];
        dr_load<V>(above + w.lo * u.c, top);
        if (u.bilinear) {
            float right[V], bottom[V], corner[V];
            dr_load<V>(above + w.hi * u.c, right);
            dr_load<V>(below + w.lo * u.c, bottom);
            dr_load<V>(below + w.hi * u.c, corner);
            mix<V>(top, right, w.part);
            mix<V>(bottom, corner, w.part);
            mix<V>(top, bottom, v.part);
        }
        dr_store<V>(y + i, top);
    }
}

/* S: what the shares are added in. */
template <typename T, int V, typename S>
__global__ void dgrad_kernel(const job j, const T *dy, T *dx, int64_t n) {
    const dr_upsample &u = j.u;
    const int64_t back = u.bilinear ? 1 : 0;
    DR_PACK_LOOP(V, i, n) {
        const dr_place in = dr_place_of(j.x, i);
        const T *const image = dy + in.image * u.ho * u.wo * u.c + in.c;
        const int64_t h1 = tap_first(j.h, in.row + 1);
        const int64_t w0 = tap_first(j.w, in.column - back), w1 = tap_first(j.w, in.column + 1);
        S sum[V] = {};
        for (int64_t ho = tap_first(j.h, in.row - back); ho < h1; ho++) {
            const struct dr_tap v = tap(j.h, ho);
            const S tall = dr_tap_weight(&v, in.row);
#pragma unroll 2
            for (int64_t wo = w0; wo < w1; wo++) {
                const struct dr_tap q = tap(j.w, wo);
                const S share = tall * dr_tap_weight(&q, in.column);
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

/* How many outputs read an input away from the edges, at most; there it may be half as many again a
 * direction. */
int64_t readers(const dr_upsample &u) {
    const int64_t reach = u.bilinear ? 2 : 1;
    return (reach * u.ho / u.h + 1) * (reach * u.wo / u.w + 1);
}

} // namespace

extern "C" int dr_cuda_upsample_fprop(enum dr_type t, const struct dr_upsample *u, const void *x,
                                      void *y, cudaStream_t s) {
    const int64_t n = u->n * u->ho * u->wo * u->c;
    const job j = job_of(*u);
    return dr_real_packs(t, u->c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        fprop_kernel<T, V><<<dr_blocks(n / V), DR_THREADS, 0, s>>>(j, (const T *)x, (T *)y, n);
        return (int)cudaGetLastError();
    });
}

extern "C" int dr_cuda_upsample_dgrad(enum dr_type t, const struct dr_upsample *u, const void *dy,
                                      void *dx, cudaStream_t s) {
    const int64_t n = u->n * u->h * u->w * u->c;
    const job j = job_of(*u);
    return dr_real_packs(t, u->c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        (readers(*u) <= 32 ? dgrad_kernel<T, V, float>
                           : dgrad_kernel<T, V, double>)<<<dr_blocks(n / V), DR_THREADS, 0, s>>>(
            j, (const T *)dy, (T *)dx, n);
        return (int)cudaGetLastError();
    });
}
