/* Batch normalization over [rows, c]: column sums by blocks of 32 channels x 8 rows over fixed
 * chunks of rows, in double; then one pass that applies the statistics element by element. */
#include "kernels/cuda/norm.h"
#include "kernels/cuda/activate.cuh"
#include "kernels/cuda/grid.cuh"

namespace {

int64_t chunks(int64_t rows) {
    return (rows + dr_cuda_norm_chunk(rows) - 1) / dr_cuda_norm_chunk(rows);
}

/* The first value of a channel. Variances are those of x minus it: squares of a mean far from 0
 * would drown a small variance, and a constant channel's is 0. */
__device__ double origin_of(const float *x, int64_t k) {
    return isfinite(x[k]) ? (double)x[k] : 0.0;
}

/* partial[chunk][2][c]: the sums of a and b, where (a, b) = (d, d^2) of d = x - origin, or, with
 * dy, (dy, dy * xhat). */
__global__ void sums_kernel(int64_t rows, int64_t chunk, int64_t c, const float *x, const float *dy,
                            const float *mean, const float *var, double eps, double *partial) {
    __shared__ double part[2][8][33];
    const int64_t k = (int64_t)blockIdx.x * 32 + threadIdx.x;
    const int64_t first = blockIdx.y * chunk, last = min(first + chunk, rows);
    double a = 0, b = 0;
    if (k < c) {
        const double m = dy ? mean[k] : origin_of(x, k), rstd = dy ? 1.0 / sqrt(var[k] + eps) : 1;
        for (int64_t r = first + threadIdx.y; r < last; r += 8) {
            const double d = x[r * c + k] - m;
            const double g = dy ? (double)dy[r * c + k] : d;
            a += g;
            b += g * (d * rstd);
        }
    }
    part[0][threadIdx.y][threadIdx.x] = a;
    part[1][threadIdx.y][threadIdx.x] = b;
    __syncthreads();
    if (threadIdx.y < 2 && k < c) {
        double sum = 0;
        for (int i = 0; i < 8; i++) {
            sum += part[threadIdx.y][i][threadIdx.x];
        }
        partial[(blockIdx.y * 2 + threadIdx.y) * c + k] = sum;
    }
}

/* rows > 0: mean and biased variance of x from its sums; rows 0: the two sums themselves. 32
 * channels by 8 threads, each every eighth partial; their sums are added in order. */
__global__ void merge_kernel(int64_t n, int64_t c, int64_t rows, const float *x,
                             const double *partial, float *out_a, float *out_b) {
    __shared__ double part[2][8][33];
    const int64_t k = (int64_t)blockIdx.x * 32 + threadIdx.x;
    double a = 0, b = 0;
    if (k < c) {
        for (int64_t i = threadIdx.y; i < n; i += 8) {
            a += partial[(2 * i) * c + k];
            b += partial[(2 * i + 1) * c + k];
        }
    }
    part[0][threadIdx.y][threadIdx.x] = a;
    part[1][threadIdx.y][threadIdx.x] = b;
    __syncthreads();
    if (threadIdx.y > 0 || k >= c) {
        return;
    }
    a = b = 0;
    for (int t = 0; t < 8; t++) {
        a += part[0][t][threadIdx.x];
        b += part[1][t][threadIdx.x];
    }
    if (rows > 0) {
        const double m = a / (double)rows, v = b / (double)rows - m * m;
        out_a[k] = (float)(origin_of(x, k) + m);
        out_b[k] = (float)(v < 0 ? 0 : v); /* NaN stays NaN */
    } else {
        out_a[k] = (float)b;
        out_b[k] = (float)a;
    }
}

__global__ void apply_kernel(int64_t n, int64_t c, const float *x, const float *mean,
                             const float *var, const float *gamma, const float *beta, double eps,
                             const float *add, int act, float *y) {
    DR_GRID_LOOP(i, n) {
        const int64_t k = i % c;
        const float scale = (float)(1.0 / sqrt((double)var[k] + eps)) * gamma[k];
        const float v = (x[i] - mean[k]) * scale + beta[k];
        y[i] = dr_activate(add ? v + add[i] : v, act);
    }
}

__global__ void dgrad_kernel(int64_t n, int64_t c, const float *x, const float *dy,
                             const float *mean, const float *var, const float *gamma,
                             const float *dgamma, const float *dbeta, double eps, float *dx) {
    const float inv = (float)((double)c / (double)n); /* 1 / rows */
    DR_GRID_LOOP(i, n) {
        const int64_t k = i % c;
        const float rstd = (float)(1.0 / sqrt((double)var[k] + eps));
        float g = dy[i];
        if (dgamma) {
            const float xhat = (x[i] - mean[k]) * rstd;
            g -= (dbeta[k] + xhat * dgamma[k]) * inv;
        }
        dx[i] = g * gamma[k] * rstd;
    }
}

__global__ void track_kernel(int64_t c, const float *mean, const float *var, double momentum,
                             double unbiased, const int64_t *health, float *running_mean,
                             float *running_var) {
    const int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= c || health[0] != 0) {
        return;
    }
    const double keep = 1.0 - momentum;
    running_mean[k] = (float)(keep * running_mean[k] + momentum * mean[k]);
    running_var[k] = (float)(keep * running_var[k] + momentum * (var[k] * unbiased));
}

int column_sums(int64_t rows, int64_t c, const float *x, const float *dy, const float *mean,
                const float *var, double eps, double *partial, cudaStream_t s) {
    const dim3 grid((unsigned)((c + 31) / 32), (unsigned)chunks(rows));
    sums_kernel<<<grid, dim3(32, 8), 0, s>>>(rows, dr_cuda_norm_chunk(rows), c, x, dy, mean, var,
                                             eps, partial);
    return (int)cudaGetLastError();
}

} // namespace

extern "C" int dr_cuda_norm_stats(int64_t rows, int64_t c, const float *x, void *workspace,
                                  float *mean, float *var, cudaStream_t s) {
    double *const partial = (double *)workspace;
    const int err = column_sums(rows, c, x, nullptr, nullptr, nullptr, 0, partial, s);
    if (err) {
        return err;
    }
    merge_kernel<<<(unsigned)((c + 31) / 32), dim3(32, 8), 0, s>>>(chunks(rows), c, rows, x,
                                                                   partial, mean, var);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_norm_apply(int64_t rows, int64_t c, const float *x, const float *mean,
                                  const float *var, const float *gamma, const float *beta,
                                  double eps, const float *add, int act, float *y, cudaStream_t s) {
    apply_kernel<<<dr_blocks(rows * c), DR_THREADS, 0, s>>>(rows * c, c, x, mean, var, gamma, beta,
                                                            eps, add, act, y);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_norm_wgrad(int64_t rows, int64_t c, const float *x, const float *dy,
                                  const float *mean, const float *var, double eps, void *workspace,
                                  float *dgamma, float *dbeta, cudaStream_t s) {
    double *const partial = (double *)workspace;
    const int err = column_sums(rows, c, x, dy, mean, var, eps, partial, s);
    if (err) {
        return err;
    }
    merge_kernel<<<(unsigned)((c + 31) / 32), dim3(32, 8), 0, s>>>(chunks(rows), c, 0, x, partial,
                                                                   dgamma, dbeta);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_norm_dgrad(int64_t rows, int64_t c, const float *x, const float *dy,
                                  const float *mean, const float *var, const float *gamma,
                                  const float *dgamma, const float *dbeta, double eps, float *dx,
                                  cudaStream_t s) {
    dgrad_kernel<<<dr_blocks(rows * c), DR_THREADS, 0, s>>>(rows * c, c, x, dy, mean, var, gamma,
                                                            dgamma, dbeta, eps, dx);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_norm_track(int64_t c, const float *mean, const float *var, double momentum,
                                  double unbiased, const int64_t *health, float *running_mean,
                                  float *running_var, cudaStream_t s) {
    track_kernel<<<(unsigned)((c + 63) / 64), 64, 0, s>>>(c, mean, var, momentum, unbiased, health,
                                                          running_mean, running_var);
    return (int)cudaGetLastError();
}
