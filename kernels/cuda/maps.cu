/* Pointwise functions: a kernel a map, one thread an element in a grid-stride loop. Memory-bound:
 * an operand that a map does not read is not loaded, since the compiler drops what is not used. */
#include "kernels/cuda/maps.h"
#include "kernels/cuda/grid.cuh"

namespace {

#define X(name, expression)                                                                        \
    __global__ void name##_kernel(int64_t n, const dr_map_args k) {                                \
        const float p = k.p, q = k.q;                                                              \
        DR_GRID_LOOP(i, n) {                                                                       \
            const float a = k.a[i], b = k.b[i], c = k.c[i];                                        \
            (void)b, (void)c, (void)p, (void)q;                                                    \
            k.y[i] = expression;                                                                   \
        }                                                                                          \
    }
DR_MAPS(X)
#undef X

} // namespace

extern "C" int dr_cuda_map(enum dr_fn fn, int64_t n, const struct dr_map_args *args,
                           cudaStream_t s) {
    void (*const kernels[DR_FN_COUNT])(int64_t, const dr_map_args) = {
#define X(name, expression) name##_kernel,
        DR_MAPS(X)
#undef X
    };
    dr_map_args k = *args;
    k.b = k.b ? k.b : k.a;
    k.c = k.c ? k.c : k.a;
    kernels[fn]<<<dr_blocks(n), DR_THREADS, 0, s>>>(n, k);
    return (int)cudaGetLastError();
}
