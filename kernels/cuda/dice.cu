/* Soft Dice: a block sums a chunk of one sample's rows for 32 classes, a warp a row and a lane a
 * class, in registers; chunks are added in order, so the bits do not depend on the grid. */
#include "kernels/cuda/dice.h"
#include "kernels/cuda/classes.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/maps.h"

namespace {

constexpr int WARPS = 8; /* of a block */

/* p of class `j` in this row; k = 1: of class 1. All lanes of the warp call it. */
__device__ double probability(const float *x, int64_t k, int64_t j, int lane) {
    if (k == 1) {
        return j == 0 ? (double)dr_sigmoid(x[0]) : 0.0;
    }
    const float m = row_max(x, k, lane);
    const double sum = exp_sum(x, k, m, lane);
    return j < k ? (double)expf(x[j] - m) / sum : 0.0;
}

/* Block (sample, chunk) of x, class group of y: partial[block][I, P, T by class, rows]. */
__global__ void sums_kernel(const classes c, int64_t chunk, int64_t chunks, const float *x,
                            double *partial) {
    __shared__ double part[WARPS][4][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t n = blockIdx.x / chunks, begin = blockIdx.x % chunks * chunk;
    const int64_t end = min(begin + chunk, c.rows_per_sample), k = c.k;
    double *const out = partial + (int64_t)blockIdx.x * (3 * k + 1);
    for (int64_t j = (int64_t)blockIdx.y * 32 + lane; j - lane < k; j += (int64_t)gridDim.y * 32) {
        double both = 0, p = 0, t = 0, rows = 0;
        for (int64_t i = begin + warp; i < end; i += WARPS) {
            const int64_t row = n * c.rows_per_sample + i;
            int64_t cls;
            if (!counts(c, row, &cls)) {
                continue;
            }
            rows += 1;
            if (cls < 0 || cls >= (k == 1 ? 2 : k)) {
                both = j == 0 ? NAN : both;
                continue;
            }
            const double one = probability(x + row * k, k, j, lane);
            const bool own = k == 1 ? j == 0 && cls == 1 : j == cls;
            p += one;
            both += own ? one : 0.0;
            t += own;
        }
        __syncthreads();
        part[warp][0][lane] = both;
        part[warp][1][lane] = p;
        part[warp][2][lane] = t;
        part[warp][3][lane] = rows;
        __syncthreads();
        if (warp < 4) {
            double total = 0;
            for (int w = 0; w < WARPS; w++) {
                total += part[w][warp][lane];
            }
            if (warp < 3 && j < k) {
                out[warp * k + j] = total;
            } else if (warp == 3 && j == 0) {
                out[3 * k] = total;
            }
        }
    }
}

__global__ void add_chunks_kernel(int64_t n, int64_t width, int64_t chunks, const double *partial,
                                  double *sums) {
    DR_GRID_LOOP(i, n * width) {
        double total = 0;
        for (int64_t k = 0; k < chunks; k++) {
            total += partial[(i / width * chunks + k) * width + i % width];
        }
        sums[i] = total;
    }
}

/* One warp: lane l adds samples l, l + 32, ... in order, then a fixed tree. */
__global__ void mean_kernel(int64_t samples, int64_t k, double smooth, const double *sums,
                            float *mean, double *partial) {
    double total = 0, count = 0;
    for (int64_t n = threadIdx.x; n < samples; n += 32) {
        const double *s = sums + n * (3 * k + 1);
        double dice = 0;
        if (s[3 * k] == 0) {
            continue;
        }
        for (int64_t j = 0; j < k; j++) {
            const double below = s[k + j] + s[2 * k + j] + smooth;
            dice += below == 0 ? 1 : (2 * s[j] + smooth) / below;
        }
        total += 1 - dice / (double)k;
        count += 1;
    }
    total = warp_sum(total);
    count = warp_sum(count);
    if (threadIdx.x == 0) {
        partial[0] = total;
        partial[1] = count;
        *mean = count > 0 ? (float)(total / count) : 0.0f;
    }
}

/* dL/dp of a class at every row of a sample, and what the rows of the class itself add. */
__global__ void slopes_kernel(int64_t samples, int64_t k, double smooth, double weight,
                              const double *partial, const double *sums, double *slope) {
    const double scale = partial[1] > 0 ? weight / partial[1] / (double)k : 0;
    DR_GRID_LOOP(i, samples * k) {
        const int64_t j = i % k;
        const double *s = sums + i / k * (3 * k + 1), below = s[k + j] + s[2 * k + j] + smooth;
        slope[2 * i] = below == 0 ? 0 : scale * (2 * s[j] + smooth) / (below * below);
        slope[2 * i + 1] = below == 0 ? 0 : -2 * scale / below;
    }
}

__global__ void dgrad_kernel(const classes c, const float *x, const double *slopes, float *dx) {
    const int lane = threadIdx.x % 32;
    const int64_t k = c.k;
    for (int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; r < c.rows;
         r += (int64_t)gridDim.x * WARPS) {
        const float *const row = x + r * k;
        float *const d = dx + r * k;
        const double *const slope = slopes + r / c.rows_per_sample * 2 * k;
        int64_t cls;
        if (!counts(c, r, &cls)) {
            for (int64_t j = lane; j < k; j += 32) {
                d[j] = 0.0f;
            }
            continue;
        }
        if (k == 1) {
            const double slope_of_p = (double)dr_sigmoid(row[0]) * dr_sigmoid(-row[0]);
            if (lane == 0) {
                d[0] = (float)(slope_of_p * (slope[0] + (cls == 1 ? slope[1] : 0)));
            }
            continue;
        }
        const float m = row_max(row, k, lane);
        const double scale = 1.0 / exp_sum(row, k, m, lane);
        double dot = 0;
        for (int64_t j = lane; j < k; j += 32) {
            dot += scale * expf(row[j] - m) * (slope[2 * j] + (j == cls ? slope[2 * j + 1] : 0));
        }
        dot = warp_sum(dot);
        for (int64_t j = lane; j < k; j += 32) {
            d[j] = (float)(scale * expf(row[j] - m) *
                           (slope[2 * j] + (j == cls ? slope[2 * j + 1] : 0) - dot));
        }
    }
}

classes on_device(const dr_cuda_classes *c) {
    return {c->target, c->u8, c->rows, c->k, c->rows_per_sample, c->ignore, c->header, 0, nullptr};
}

} // namespace

extern "C" int dr_cuda_dice(const struct dr_cuda_classes *c, double smooth, const float *x,
                            void *workspace, float *mean, double *partial, double *sums,
                            cudaStream_t s) {
    const int64_t samples = c->rows / c->rows_per_sample, width = 3 * c->k + 1;
    const int64_t chunk = dr_cuda_dice_chunk(c->rows_per_sample);
    const int64_t chunks = dr_cuda_dice_chunks(c->rows_per_sample), groups = (c->k + 31) / 32;
    const dim3 grid((unsigned)(samples * chunks), (unsigned)(groups < 65535 ? groups : 65535));
    double *const part = (double *)workspace;
    sums_kernel<<<grid, WARPS * 32, 0, s>>>(on_device(c), chunk, chunks, x, part);
    add_chunks_kernel<<<dr_blocks(samples * width), DR_THREADS, 0, s>>>(samples, width, chunks,
                                                                        part, sums);
    mean_kernel<<<1, 32, 0, s>>>(samples, c->k, smooth, sums, mean, partial);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_dice_dgrad(const struct dr_cuda_classes *c, double smooth, const float *x,
                                  double weight, const double *partial, const double *sums,
                                  void *workspace, float *dx, cudaStream_t s) {
    const int64_t samples = c->rows / c->rows_per_sample, blocks = (c->rows + WARPS - 1) / WARPS;
    double *const slopes = (double *)workspace;
    slopes_kernel<<<dr_blocks(samples * c->k), DR_THREADS, 0, s>>>(samples, c->k, smooth, weight,
                                                                   partial, sums, slopes);
    dgrad_kernel<<<(unsigned)(blocks < 4096 ? blocks : 4096), WARPS * 32, 0, s>>>(on_device(c), x,
                                                                                  slopes, dx);
    return (int)cudaGetLastError();
}
