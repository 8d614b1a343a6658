/* The norm of all gradients in two launches: blocks of 256 threads sum the squares of 16384
 * elements each, then one block adds the partial sums, both in an order that shapes alone decide.
 * No gradient is looked at twice: the sum in double is finite if and only if all of them are. */
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/guard.h"

namespace {

struct group {
    dr_cuda_gradients g;
    unsigned first[DR_CUDA_GRADIENTS + 1]; /* block of each gradient, and how many there are */
};
static_assert(sizeof(group) <= 4000, "kernel arguments have 4 KB");

/* Sum of `v` over a block of DR_THREADS in a fixed order; the result is thread 0's. */
__device__ double block_sum(double v) {
    __shared__ double part[DR_THREADS / 32];
    for (int o = 16; o > 0; o >>= 1) {
        v += __shfl_down_sync(0xffffffffu, v, o);
    }
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = v;
    }
    __syncthreads();
    double sum = 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < DR_THREADS / 32; i++) {
            sum += part[i];
        }
    }
    return sum;
}

__global__ void squares_kernel(const __grid_constant__ group g, double *partial) {
    uint32_t id = 0;
    while (blockIdx.x >= g.first[id + 1]) {
        id++;
    }
    const float *const x = g.g.at[id].x;
    const int64_t begin = (int64_t)(blockIdx.x - g.first[id]) * DR_CUDA_SQUARES;
    const int64_t end = min(begin + DR_CUDA_SQUARES, g.g.at[id].n);
    double sum = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += DR_THREADS) {
        sum += (double)x[i] * x[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
    }
}

__global__ void clip_kernel(const double *partial, int64_t n, double max_norm, const float *scale,
                            float *out) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += DR_THREADS) {
        sum += partial[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        *out = dr_clip_factor(sum, max_norm, scale);
    }
}

__global__ void guard_kernel(const float *total, const dr_batch *header, int64_t *health) {
    if (health[0] == 0 && !isfinite(*total)) {
        health[0] = DR_HEALTH_BAD;
        health[1] = (int64_t)header->step;
    }
}

__global__ void guard_scaled_kernel(const dr_scaler c, const float *total, const float *factor,
                                    const dr_batch *header, int64_t *health, float *scale,
                                    int64_t *good) {
    dr_scaler_update(&c, isfinite(*total) && isfinite(*factor), (int64_t)header->step, health,
                     scale, good);
}

} // namespace

extern "C" int dr_cuda_squares(const struct dr_cuda_gradients *g, double *partial, cudaStream_t s) {
    group l = {};
    l.g = *g;
    for (uint32_t i = 0; i < g->n; i++) {
        l.first[i + 1] = l.first[i] + (unsigned)dr_cuda_square_blocks(g->at[i].n);
    }
    squares_kernel<<<l.first[g->n], DR_THREADS, 0, s>>>(l, partial);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_clip(const double *partial, int64_t n, double max_norm, const float *scale,
                            float *out, cudaStream_t s) {
    clip_kernel<<<1, DR_THREADS, 0, s>>>(partial, n, max_norm, scale, out);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_guard(const float *total, const struct dr_batch *header, int64_t *health,
                             cudaStream_t s) {
    guard_kernel<<<1, 1, 0, s>>>(total, header, health);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_guard_scaled(const struct dr_scaler *c, const float *total,
                                    const float *factor, const struct dr_batch *header,
                                    int64_t *health, float *scale, int64_t *good, cudaStream_t s) {
    guard_scaled_kernel<<<1, 1, 0, s>>>(*c, total, factor, header, health, scale, good);
    return (int)cudaGetLastError();
}
