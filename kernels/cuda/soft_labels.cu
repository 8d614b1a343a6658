/* Cross-entropy against shares of classes: one warp a row, lanes across the classes, sums in double
 * by a fixed tree; sums of DR_CUDA_SOFT_ROWS rows make one partial. */
#include "kernels/cuda/soft_labels.h"
#include "kernels/cuda/classes.cuh"

namespace {

constexpr int WARPS = 8; /* of a block */

__device__ double share(const dr_soft_labels &l, int64_t row, int64_t j) {
    return (1 - l.smoothing) * l.target[row * l.k + j] + l.smoothing / (double)l.k;
}

__global__ void loss_kernel(const dr_soft_labels l, const dr_batch *header, const float *x,
                            double *partial) {
    __shared__ double part[WARPS][2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double sum = 0, count = 0;
    for (int i = warp; i < DR_CUDA_SOFT_ROWS; i += WARPS) {
        const int64_t row = (int64_t)blockIdx.x * DR_CUDA_SOFT_ROWS + i;
        if (row >= l.rows || row / l.rows_per_sample >= header->n_valid) {
            continue;
        }
        const float *const at = x + row * l.k;
        const float m = row_max(at, l.k, lane);
        const double lse = log(exp_sum(at, l.k, m, lane));
        double own = 0;
        for (int64_t j = lane; j < l.k; j += 32) {
            const double t = share(l, row, j);
            own += t != 0 ? t * (lse - ((double)at[j] - m)) : 0; /* not 0 * inf */
        }
        sum += warp_sum(own);
        count += 1;
    }
    if (lane == 0) {
        part[warp][0] = sum;
        part[warp][1] = count;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        double all = 0;
        for (int i = 0; i < WARPS; i++) {
            all += part[i][threadIdx.x];
        }
        partial[2 * (int64_t)blockIdx.x + threadIdx.x] = all;
    }
}

__global__ void dgrad_kernel(const dr_soft_labels l, const dr_batch *header, const float *x,
                             double weight, const double *partial, float *dx) {
    const int lane = threadIdx.x % 32;
    const double scale = partial[1] != 0 ? weight / partial[1] : 0;
    for (int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; row < l.rows;
         row += (int64_t)gridDim.x * WARPS) {
        const float *const at = x + row * l.k;
        float *const to = dx + row * l.k;
        if (row / l.rows_per_sample >= header->n_valid || scale == 0) {
            for (int64_t j = lane; j < l.k; j += 32) {
                to[j] = 0;
            }
            continue;
        }
        const float m = row_max(at, l.k, lane);
        const float shift = m + (float)log(exp_sum(at, l.k, m, lane));
        double total = 0;
        for (int64_t j = lane; j < l.k; j += 32) {
            total += share(l, row, j);
        }
        total = warp_sum(total);
        for (int64_t j = lane; j < l.k; j += 32) {
            to[j] = (float)(scale * (total * expf(at[j] - shift) - share(l, row, j)));
        }
    }
}

} // namespace

extern "C" int dr_cuda_soft_labels(const struct dr_soft_labels *l, const struct dr_batch *header,
                                   const float *x, void *workspace, float *mean, double *partial,
                                   cudaStream_t s) {
    const int64_t blocks = (l->rows + DR_CUDA_SOFT_ROWS - 1) / DR_CUDA_SOFT_ROWS;
    loss_kernel<<<(unsigned)blocks, WARPS * 32, 0, s>>>(*l, header, x, (double *)workspace);
    merge_kernel<<<1, 32, 0, s>>>((const double *)workspace, blocks, mean, partial);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_soft_labels_dgrad(const struct dr_soft_labels *l,
                                         const struct dr_batch *header, const float *x,
                                         double weight, const double *partial, float *dx,
                                         cudaStream_t s) {
    const int64_t blocks = (l->rows + WARPS - 1) / WARPS;
    dgrad_kernel<<<(unsigned)(blocks < 2048 ? blocks : 2048), WARPS * 32, 0, s>>>(
        *l, header, x, weight, partial, dx);
    return (int)cudaGetLastError();
}
