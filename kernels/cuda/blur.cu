/* gaussian_blur on CUDA: a block makes runs of elements of a row. It works out the sample's weights
 * once; for each run it sums the rows above and below into shared memory, as many elements more on
 * either side as the kernel reaches, then along the row. */
#include "kernels/cuda/blur.h"
#include "kernels/cuda/make.cuh"
#include "kernels/resample.h"

namespace {

constexpr int RUN = 256;    /* pixels of a run, ... */
constexpr int CHANNELS = 4; /* of so many channels at once */
constexpr int WIDE = RUN + DR_BLUR_MAX - 1;

/* weight[0, k): by the whole block. */
__device__ void weights(double sigma, int32_t k, double *raw, float *weight) {
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        raw[i] = dr_blur_weight(sigma, k, i);
    }
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < k; i++) { /* the CPU's order */
        sum += raw[i];
    }
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        weight[i] = (float)(raw[i] / sum);
    }
    __syncthreads();
}

__device__ float load(const void *x, bool u8, int64_t at) {
    return u8 ? (float)((const uint8_t *)x)[at] : ((const float *)x)[at];
}

__global__ void blur_kernel(const __grid_constant__ dr_blur b, const dr_batch *batch, const void *x,
                            void *y) {
    __shared__ double raw[DR_BLUR_MAX];
    __shared__ float down[DR_BLUR_MAX], across[DR_BLUR_MAX], row[WIDE * CHANNELS];
    const int32_t reach = b.kw / 2, runs = (b.w + RUN - 1) / RUN;
    for (int64_t sample = blockIdx.y; sample < b.n; sample += gridDim.y) {
        const double sigma = dr_blur_sigma(&b, batch, sample);
        const int64_t base = sample * b.h * b.w * b.c;
        weights(sigma, b.kh, raw, down);
        weights(sigma, b.kw, raw, across);
        for (int32_t job = (int32_t)blockIdx.x; job < b.h * runs; job += (int32_t)gridDim.x) {
            const int32_t at_y = job / runs, first = (job - at_y * runs) * RUN;
            const int32_t n = min(RUN, b.w - first);
            for (int32_t c0 = 0; c0 < b.c; c0 += CHANNELS) {
                const int32_t c = min(CHANNELS, b.c - c0);
                for (int32_t i = threadIdx.x; i < (n + 2 * reach) * c; i += blockDim.x) {
                    const int32_t pixel = dr_reflect(first + i / c - reach, b.w);
                    float sum = 0;
                    for (int32_t k = 0; k < b.kh; k++) {
                        const int32_t from = dr_reflect(at_y + k - b.kh / 2, b.h) * b.w + pixel;
                        sum =
                            sum + down[k] * load(x, b.u8, base + (int64_t)from * b.c + c0 + i % c);
                    }
                    row[i] = sum;
                }
                __syncthreads();
                for (int32_t i = threadIdx.x; i < n * c; i += blockDim.x) {
                    float sum = 0;
                    for (int32_t k = 0; k < b.kw; k++) {
                        sum = sum + across[k] * row[i + k * c];
                    }
                    const int64_t to =
                        base + (int64_t)(at_y * b.w + first + i / c) * b.c + c0 + i % c;
                    if (b.u8) {
                        ((uint8_t *)y)[to] = dr_round_u8(sum);
                    } else {
                        ((float *)y)[to] = sum;
                    }
                }
                __syncthreads();
            }
        }
    }
}

} // namespace

extern "C" int dr_cuda_blur(const struct dr_blur *b, const struct dr_batch *batch, const void *x,
                            void *y, cudaStream_t s) {
    const int64_t runs = (int64_t)b->h * ((b->w + RUN - 1) / RUN);
    const dim3 grid = dr_sample_grid(runs * DR_THREADS, b->n, 1); /* a block a run, at most */
    blur_kernel<<<grid, DR_THREADS, 0, s>>>(*b, batch, x, y);
    return (int)cudaGetLastError();
}
