/* How element-wise kernels are launched: a grid-stride loop over at most 2048 blocks. */
#ifndef DR_KERNELS_CUDA_GRID_CUH
#define DR_KERNELS_CUDA_GRID_CUH
#include <cuda_runtime.h>
#include <stdint.h>
#define DR_THREADS 256
static inline unsigned dr_blocks(int64_t n) {
    const int64_t b = (n + DR_THREADS - 1) / DR_THREADS;
    return (unsigned)(b < 1 ? 1 : b > 2048 ? 2048 : b);
}
#define DR_GRID_LOOP(i, n)                                                                         \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n);                      \
         i += (int64_t)gridDim.x * blockDim.x)
#endif
