/* The epilogue over an array: a thread keeps its columns, 16 bytes of them where that divides the
 * columns, and walks the rows. */
#include "kernels/cuda/epilogue.h"
#include "kernels/cuda/walk.cuh"
#include "kernels/cuda/epilogue.cuh"

namespace {

template <typename T, int V>
__global__ void finish_kernel(int64_t rows, int64_t c, const dr_epilogue e, T *y) {
    const int64_t k = dr_walk_column<V>();
    if (k >= c) {
        return;
    }
    dr_column column[V];
#pragma unroll
    for (int i = 0; i < V; i++) {
        column[i] = dr_column_of(e, k + i);
    }
#pragma unroll 2
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < rows;
         r += (int64_t)gridDim.y * blockDim.y) {
        float v[V], add[V];
        dr_load<V>(y + r * c + k, v);
        if (e.add) {
            dr_load<V>((const T *)e.add + r * c + k, add);
        }
#pragma unroll
        for (int i = 0; i < V; i++) {
            v[i] =
                e.norm_var ? fmaf(v[i], column[i].scale, column[i].shift) : v[i] + column[i].shift;
            v[i] = dr_activate(e.add ? v[i] + add[i] : v[i], e.act);
        }
        dr_store<V>(y + r * c + k, v);
    }
}

} // namespace

extern "C" int dr_cuda_epilogue(enum dr_type t, int64_t rows, int64_t c,
                                const struct dr_epilogue *e, void *y, cudaStream_t s) {
    if (!e->bias && !e->norm_var && !e->add && !e->act) {
        return cudaSuccess;
    }
    return dr_real_packs(t, c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        const dr_walk k = dr_walk_of(c, V);
        finish_kernel<T, V>
            <<<dim3((unsigned)k.blocks, dr_walk_turns(k, rows)), dim3(k.across, k.down), 0, s>>>(
                rows, c, *e, (T *)y);
        return (int)cudaGetLastError();
    });
}
