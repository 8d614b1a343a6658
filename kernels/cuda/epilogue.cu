/* The epilogue over an array: one thread an element in a grid-stride loop. */
#include "kernels/cuda/epilogue.h"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/grid.cuh"
#include <type_traits>

namespace {

template <typename T>
__global__ void finish_kernel(int64_t n, int64_t c, const dr_epilogue e, T *y) {
    DR_GRID_LOOP(i, n) {
        dr_store(y + i, dr_finish<T>(e, dr_column_of(e, i % c), dr_load(y + i), i));
    }
}

} // namespace

extern "C" int dr_cuda_epilogue(enum dr_type t, int64_t rows, int64_t c,
                                const struct dr_epilogue *e, void *y, cudaStream_t s) {
    if (!e->bias && !e->norm_var && !e->add && !e->act) {
        return cudaSuccess;
    }
    return dr_real(t, [&](auto *zero) {
        using T = std::remove_pointer_t<decltype(zero)>;
        finish_kernel<T><<<dr_blocks(rows * c), DR_THREADS, 0, s>>>(rows * c, c, *e, (T *)y);
        return (int)cudaGetLastError();
    });
}
