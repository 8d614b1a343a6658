/* Chains of pointwise functions: a thread takes a few elements, a grid apart, through all steps in
 * registers. The steps are interpreted; a step is decoded once for these elements, which leaves the
 * loads and stores as the cost. */
#include "kernels/cuda/chain.h"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/real.cuh"
#include <type_traits>

namespace {

constexpr int EACH = 4;

/* Operand i of these elements: an input, or (-1) the last result. */
template <typename T>
__device__ __forceinline__ void take(const dr_map_chain &k, int i, int64_t at, int64_t step,
                                     int64_t n, const float *last, float *v) {
    const T *x = i < 0 ? nullptr : (const T *)k.x[i];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        v[e] = !x ? last[e] : at + e * step < n ? dr_load(x + at + e * step) : 0.0f;
    }
}

template <typename T> __global__ void chain_kernel(int64_t n, const dr_map_chain k) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += EACH * step) {
        float y[EACH] = {};
        for (int s = 0; s < k.n; s++) {
            const dr_map_step &m = k.step[s];
            const float p = m.p, q = m.q;
            float va[EACH], vb[EACH], vc[EACH];
            take<T>(k, m.a, at, step, n, y, va);
            take<T>(k, m.b, at, step, n, y, vb);
            take<T>(k, m.c, at, step, n, y, vc);
            (void)p, (void)q;
            switch (m.fn) {
#define X(name, expression)                                                                        \
    case DR_FN_##name:                                                                             \
        _Pragma("unroll") for (int e = 0; e < EACH; e++) {                                         \
            const float a = va[e], b = vb[e], c = vc[e];                                           \
            (void)b, (void)c;                                                                      \
            y[e] = expression;                                                                     \
        }                                                                                          \
        break;
                DR_MAPS(X)
#undef X
            }
        }
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            if (at + e * step < n) {
                dr_store((T *)k.y + at + e * step, y[e]);
            }
        }
    }
}

} // namespace

extern "C" int dr_cuda_chain(enum dr_type t, int64_t n, const struct dr_map_chain *chain,
                             cudaStream_t s) {
    return dr_real(t, [&](auto *zero) {
        using T = std::remove_pointer_t<decltype(zero)>;
        chain_kernel<T><<<dr_blocks((n + EACH - 1) / EACH), DR_THREADS, 0, s>>>(n, *chain);
        return (int)cudaGetLastError();
    });
}
