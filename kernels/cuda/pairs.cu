/* bce, mse and l1: one thread an element; a block sums PAIRS of them in double by a fixed tree. */
#include "kernels/cuda/pairs.h"
#include "kernels/cuda/classes.cuh"
#include "kernels/cuda/grid.cuh"

namespace {

constexpr int64_t PAIRS = DR_CUDA_PAIRS;

__global__ void value_kernel(const dr_pairs p, const dr_batch *header, double *partial) {
    __shared__ double part[DR_THREADS / 32][2];
    const int64_t first = (int64_t)blockIdx.x * PAIRS, valid = header->n_valid * p.per_sample;
    const int64_t last = min(min(first + PAIRS, p.n), valid);
    double sum = 0, count = 0;
    float t;
    for (int64_t i = first + threadIdx.x; i < last; i += DR_THREADS) {
        if (dr_pair_counts(&p, i, &t)) {
            sum += dr_pair_value(&p, p.x[i], t);
            count += 1;
        }
    }
    sum = warp_sum(sum);
    count = warp_sum(count);
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32][0] = sum;
        part[threadIdx.x / 32][1] = count;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        double total = 0;
        for (int i = 0; i < DR_THREADS / 32; i++) {
            total += part[i][threadIdx.x];
        }
        partial[2 * (int64_t)blockIdx.x + threadIdx.x] = total;
    }
}

__global__ void slope_kernel(const dr_pairs p, const dr_batch *header, double weight,
                             const double *partial, bool of_target, float *dx) {
    const int64_t valid = header->n_valid * p.per_sample;
    const double scale = partial[1] > 0 ? weight / partial[1] : 0;
    DR_GRID_LOOP(i, p.n) {
        float t;
        const bool used = i < valid && scale != 0 && dr_pair_counts(&p, i, &t);
        dx[i] = used ? (float)(scale * dr_pair_slope(&p, p.x[i], t, of_target)) : 0.0f;
    }
}

} // namespace

extern "C" int dr_cuda_pairs(const struct dr_pairs *p, const struct dr_batch *header,
                             void *workspace, float *mean, double *partial, cudaStream_t s) {
    const int64_t blocks = (p->n + PAIRS - 1) / PAIRS;
    value_kernel<<<(unsigned)blocks, DR_THREADS, 0, s>>>(*p, header, (double *)workspace);
    merge_kernel<<<1, 32, 0, s>>>((const double *)workspace, blocks, mean, partial);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_pairs_dgrad(const struct dr_pairs *p, const struct dr_batch *header,
                                   double weight, const double *partial, bool of_target, float *dx,
                                   cudaStream_t s) {
    slope_kernel<<<dr_blocks(p->n), DR_THREADS, 0, s>>>(*p, header, weight, partial, of_target, dx);
    return (int)cudaGetLastError();
}
