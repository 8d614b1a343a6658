/* How augmentation kernels write: the elements of one sample by the blocks of a row of the grid,
 * bytes four at once where a sample's size allows it. */
#ifndef DR_KERNELS_CUDA_MAKE_CUH
#define DR_KERNELS_CUDA_MAKE_CUH
#include "kernels/cuda/grid.cuh"

template <class T, int V> struct alignas(sizeof(T) * V) dr_pack { T at[V]; };

/* y[0, count) in packs of V, element e made by f(e). */
template <int V, class T, class F> __device__ void dr_make_packs(T *y, int32_t count, F f) {
    DR_GRID_LOOP(i, count / V) {
        dr_pack<T, V> p;
#pragma unroll
        for (int k = 0; k < V; k++) {
            p.at[k] = f((int32_t)i * V + k);
        }
        reinterpret_cast<dr_pack<T, V> *>(y)[i] = p;
    }
}
/* y: of a sample in a tensor that is 64-byte aligned. */
template <class T, class F> __device__ void dr_make(T *y, int32_t count, F f) {
    if (sizeof(T) == 1 && count % 4 == 0) {
        dr_make_packs<4>(y, count, f);
    } else {
        dr_make_packs<1>(y, count, f);
    }
}

/* Blocks for the elements of a sample; samples; operands. About 2048 blocks in all: each one begins
 * with a draw, during which its threads wait. */
static inline dim3 dr_sample_grid(int64_t elements, int64_t n, uint32_t operands) {
    const int64_t most = (elements + DR_THREADS - 1) / DR_THREADS, share = 2048 / (n * operands);
    const int64_t b = most < share ? most : share;
    return dim3((unsigned)(b < 1 ? 1 : b), (unsigned)(n < 65535 ? n : 65535), operands);
}
#endif
