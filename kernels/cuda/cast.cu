/* Casts: bound by memory. A thread moves 8 neighbouring elements in whole 16- or 32-byte accesses;
 * a block of 256 threads takes 2048 elements of one value, and finds its value by the list of first
 * blocks. */
#include "kernels/cuda/cast.h"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/real.cuh"
#include <type_traits>

namespace {

constexpr int EACH = 8;
constexpr int64_t CHUNK = EACH * DR_THREADS;

struct group {
    dr_cuda_casts c;
    unsigned first[DR_CUDA_CASTS + 1]; /* block of each value, and how many there are */
};
static_assert(sizeof(group) <= 4000, "kernel arguments have 4 KB");

template <typename T> struct alignas(EACH * sizeof(T) < 16 ? EACH * sizeof(T) : 16) eight {
    T x[EACH];
};

template <typename From, typename To>
__global__ void cast_kernel(const __grid_constant__ group g, const float *scale) {
    uint32_t id = 0;
    for (uint32_t step = DR_CUDA_CASTS; step > 0;
         step /= 2) { /* the last that begins here or before */
        if (id + step < g.c.n && g.first[id + step] <= blockIdx.x) {
            id += step;
        }
    }
    const From *const x = (const From *)g.c.at[id].x;
    To *const y = (To *)g.c.at[id].y;
    const int64_t n = g.c.at[id].n;
    const int64_t i = (int64_t)(blockIdx.x - g.first[id]) * CHUNK + threadIdx.x * EACH;
    const float factor = scale ? *scale : 1.0f;
    if (i + EACH <= n) {
        const eight<From> in = *(const eight<From> *)(x + i);
        eight<To> out;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            dr_store(&out.x[k], dr_load(&in.x[k]) * factor);
        }
        *(eight<To> *)(y + i) = out;
    } else {
        for (int64_t k = i; k < n; k++) {
            dr_store(y + k, dr_load(x + k) * factor);
        }
    }
}

} // namespace

extern "C" int dr_cuda_cast(const struct dr_cuda_casts *c, enum dr_type from, const float *scale,
                            enum dr_type to, cudaStream_t s) {
    group g = {};
    g.c = *c;
    for (uint32_t i = 0; i < c->n; i++) {
        g.first[i + 1] = g.first[i] + (unsigned)((c->at[i].n + CHUNK - 1) / CHUNK);
    }
    return dr_real(from, [&](auto *x) {
        return dr_real(to, [&](auto *y) {
            using From = std::remove_pointer_t<decltype(x)>;
            using To = std::remove_pointer_t<decltype(y)>;
            cast_kernel<From, To><<<g.first[c->n], DR_THREADS, 0, s>>>(g, scale);
            return (int)cudaGetLastError();
        });
    });
}
