/* Pointwise functions: a kernel a map, 16 neighbouring bytes of y a thread in a grid-stride loop.
 * Memory-bound: an operand that a map does not read is not loaded, since the compiler drops what is
 * not used. */
#include "kernels/cuda/maps.h"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/pack.cuh"

namespace {

#define X(name, expression)                                                                        \
    template <typename T> __global__ void name##_kernel(int64_t n, const dr_map_args k) {          \
        constexpr int V = DR_PACK<T>;                                                              \
        const float p = k.p, q = k.q;                                                              \
        (void)p, (void)q;                                                                          \
        DR_PACK_LOOP(V, i, n) {                                                                    \
            float va[V], vb[V], vc[V], y[V];                                                       \
            dr_load_some<V>((const T *)k.a + i, n - i, va);                                        \
            dr_load_some<V>((const T *)k.b + i, n - i, vb);                                        \
            dr_load_some<V>((const T *)k.c + i, n - i, vc);                                        \
            _Pragma("unroll") for (int e = 0; e < V; e++) {                                        \
                const float a = va[e], b = vb[e], c = vc[e];                                       \
                (void)b, (void)c;                                                                  \
                y[e] = expression;                                                                 \
            }                                                                                      \
            dr_store_some<V>((T *)k.y + i, n - i, y);                                              \
        }                                                                                          \
    }
DR_MAPS(X)
#undef X

template <typename T> int map(enum dr_fn fn, int64_t n, const dr_map_args &k, cudaStream_t s) {
    void (*const kernels[DR_FN_COUNT])(int64_t, const dr_map_args) = {
#define X(name, expression) name##_kernel<T>,
        DR_MAPS(X)
#undef X
    };
    kernels[fn]<<<dr_blocks((n + DR_PACK<T> - 1) / DR_PACK<T>), DR_THREADS, 0, s>>>(n, k);
    return (int)cudaGetLastError();
}

} // namespace

extern "C" int dr_cuda_map(enum dr_type t, enum dr_fn fn, int64_t n, const struct dr_map_args *args,
                           cudaStream_t s) {
    dr_map_args k = *args;
    k.b = k.b ? k.b : k.a;
    k.c = k.c ? k.c : k.a;
    return dr_real(
        t, [&](auto *type) { return map<std::remove_pointer_t<decltype(type)>>(fn, n, k, s); });
}
