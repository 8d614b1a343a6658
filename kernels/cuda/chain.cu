/* Chains of pointwise functions: a thread takes 16 neighbouring bytes of y through all steps in
 * registers. The steps are interpreted; a step is decoded once for these elements, which leaves the
 * loads and stores as the cost. */
#include "kernels/cuda/chain.h"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/pack.cuh"

namespace {

/* Operand i of these elements: an input, or (-1) the last result. */
template <int V, typename T>
__device__ __forceinline__ void take(const dr_map_chain &k, int i, int64_t at, int64_t n,
                                     const float (&last)[V], float (&v)[V]) {
    if (i >= 0) {
        dr_load_some<V>((const T *)k.x[i] + at, n - at, v);
        return;
    }
#pragma unroll
    for (int e = 0; e < V; e++) {
        v[e] = last[e];
    }
}

template <typename T> __global__ void chain_kernel(int64_t n, const dr_map_chain k) {
    constexpr int V = DR_PACK<T>;
    DR_PACK_LOOP(V, at, n) {
        float y[V] = {};
        for (int s = 0; s < k.n; s++) {
            const dr_map_step &m = k.step[s];
            const float p = m.p, q = m.q;
            float va[V], vb[V], vc[V];
            take<V, T>(k, m.a, at, n, y, va);
            take<V, T>(k, m.b, at, n, y, vb);
            take<V, T>(k, m.c, at, n, y, vc);
            (void)p, (void)q;
            switch (m.fn) {
#define X(name, expression)                                                                        \
    case DR_FN_##name:                                                                             \
        _Pragma("unroll") for (int e = 0; e < V; e++) {                                            \
            const float a = va[e], b = vb[e], c = vc[e];                                           \
            (void)b, (void)c;                                                                      \
            y[e] = expression;                                                                     \
        }                                                                                          \
        break;
                DR_MAPS(X)
#undef X
            }
        }
        dr_store_some<V>((T *)k.y + at, n - at, y);
    }
}

} // namespace

extern "C" int dr_cuda_chain(enum dr_type t, int64_t n, const struct dr_map_chain *chain,
                             cudaStream_t s) {
    return dr_real(t, [&](auto *zero) {
        using T = std::remove_pointer_t<decltype(zero)>;
        chain_kernel<T>
            <<<dr_blocks((n + DR_PACK<T> - 1) / DR_PACK<T>), DR_THREADS, 0, s>>>(n, *chain);
        return (int)cudaGetLastError();
    });
}
