/* How a block of DR_THREADS walks a matrix [rows, c] whose columns each have something of their own
 * (a sum, a scale): `across` threads side by side, of V neighbouring columns each, by `down` rows.
 */
#ifndef DR_KERNELS_CUDA_WALK_CUH
#define DR_KERNELS_CUDA_WALK_CUH
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/pack.cuh"

struct dr_walk {
    unsigned across, down; /* powers of two, DR_THREADS together */
    int64_t blocks;        /* of all columns */
};
static inline dr_walk dr_walk_of(int64_t c, int v) {
    const int64_t packs = (c + v - 1) / v;
    unsigned across = 1; /* few columns leave more threads to the rows */
    while (across < 32 && across < packs) {
        across *= 2;
    }
    return {across, DR_THREADS / across, (packs + across - 1) / across};
}
/* Blocks along the rows of a pass that does not sum: a few rows a thread. */
static inline unsigned dr_walk_turns(const dr_walk &k, int64_t rows) {
    const int64_t wanted = (rows + 4 * k.down - 1) / (4 * k.down);
    const int64_t most = k.blocks < 4096 ? 4096 / k.blocks : 1;
    return (unsigned)(wanted < most ? wanted : most);
}
/* The first column of this thread. */
template <int V> static __device__ __forceinline__ int64_t dr_walk_column() {
    return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
}

/* Rows that a thread has on their way at once where it sums; __launch_bounds__(DR_THREADS, 2) gives
 * it the registers. */
#define DR_RUN 8

/* v = columns [0, V) of p of N rows, every step-th from row `first` on; past the end (of `rows`)
 * the last one, which the caller leaves out. */
template <int N, int V, typename T>
static __device__ __forceinline__ void dr_load_rows(const T *p, int64_t first, int64_t step,
                                                    int64_t rows, int64_t c, float (&v)[N][V]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        dr_load<V>(p + min(first + i * step, rows - 1) * c, v[i]);
    }
}

/* Adds the numbers of the threads of a column, by a fixed tree; the sums are those of threadIdx.y
 * 0. part: [N][DR_THREADS], shared. */
template <int N, typename S>
static __device__ __forceinline__ void dr_walk_sums(S (*part)[DR_THREADS], S (&v)[N]) {
    const unsigned me = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
    for (int i = 0; i < N; i++) {
        part[i][me] = v[i];
    }
    for (unsigned down = blockDim.y / 2; down > 0; down /= 2) {
        __syncthreads();
        if (threadIdx.y < down) {
#pragma unroll
            for (int i = 0; i < N; i++) {
                v[i] += part[i][me + down * blockDim.x];
                part[i][me] = v[i];
            }
        }
    }
}
#endif
