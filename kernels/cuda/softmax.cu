/* Softmax and what is computed from it: one warp a row, lanes across the classes, sums in double by
 * a fixed tree. Losses and counts of ROWS rows make one partial sum; a last block adds them in
 * order. */
#include "kernels/cuda/softmax.h"
#include "kernels/cuda/classes.cuh"
#include "kernels/cuda/grid.cuh"

namespace {

constexpr int WARPS = 8;                 /* of a block */
constexpr int ROWS = DR_CUDA_CLASS_ROWS; /* rows of a block */

__global__ void softmax_kernel(int64_t rows, int64_t k, const float *x, float *y) {
    const int lane = threadIdx.x % 32;
    for (int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; r < rows;
         r += (int64_t)gridDim.x * WARPS) {
        const float m = row_max(x + r * k, k, lane);
        const float scale = (float)(1.0 / exp_sum(x + r * k, k, m, lane));
        for (int64_t j = lane; j < k; j += 32) {
            y[r * k + j] = expf(x[r * k + j] - m) * scale;
        }
    }
}

__global__ void softmax_dgrad_kernel(int64_t rows, int64_t k, const float *y, const float *dy,
                                     float *dx) {
    const int lane = threadIdx.x % 32;
    for (int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; r < rows;
         r += (int64_t)gridDim.x * WARPS) {
        double dot = 0;
        for (int64_t j = lane; j < k; j += 32) {
            dot += (double)y[r * k + j] * dy[r * k + j];
        }
        dot = warp_sum(dot);
        for (int64_t j = lane; j < k; j += 32) {
            dx[r * k + j] = y[r * k + j] * (dy[r * k + j] - (float)dot);
        }
    }
}

__device__ double weight_of(const classes &c, int64_t cls) {
    return c.class_weight ? c.class_weight[cls] : 1.0;
}

/* PyTorch: (1 - s) * w[t] * -log p[t] + s / K * sum_j w[j] * -log p[j]. */
__device__ double row_loss(const classes &c, const float *x, int64_t cls, int lane) {
    const float m = row_max(x, c.k, lane);
    const double lse = log(exp_sum(x, c.k, m, lane)), s = c.smoothing;
    double loss = (1.0 - s) * weight_of(c, cls) * (lse - ((double)x[cls] - m));
    if (s > 0) {
        double all = 0;
        for (int64_t j = lane; j < c.k; j += 32) {
            all += weight_of(c, j) * (lse - ((double)x[j] - m));
        }
        loss += s / (double)c.k * warp_sum(all);
    }
    return loss;
}

__device__ double row_right(const float *x, int64_t k, int64_t cls, int64_t top, int lane) {
    if (cls < 0 || cls >= k || x[cls] != x[cls]) {
        return 0;
    }
    double above = 0;
    for (int64_t j = lane; j < k; j += 32) {
        above += !(x[j] <= x[cls]) || (x[j] == x[cls] && j < cls);
    }
    return warp_sum(above) < (double)top;
}

/* partial[block] = {sum, count} of ROWS rows; top 0: the loss, else accuracy. */
__global__ void rows_kernel(const classes c, int64_t top, const float *x, double *partial) {
    __shared__ double part[WARPS][2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double sum = 0, count = 0;
    for (int i = warp; i < ROWS; i += WARPS) {
        const int64_t row = (int64_t)blockIdx.x * ROWS + i;
        int64_t cls;
        if (row >= c.rows || !counts(c, row, &cls)) {
            continue;
        }
        if (top > 0) {
            sum += row_right(x + row * c.k, c.k, cls, top, lane);
            count += 1;
        } else if (cls < 0 || cls >= c.k) {
            sum = NAN;
            count += 1;
        } else {
            sum += row_loss(c, x + row * c.k, cls, lane);
            count += weight_of(c, cls);
        }
    }
    if (lane == 0) {
        part[warp][0] = sum;
        part[warp][1] = count;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        double total = 0;
        for (int i = 0; i < WARPS; i++) {
            total += part[i][threadIdx.x];
        }
        partial[2 * (int64_t)blockIdx.x + threadIdx.x] = total;
    }
}

__global__ void loss_dgrad_kernel(const classes c, const float *x, double weight,
                                  const double *partial, float *dx) {
    const int lane = threadIdx.x % 32;
    const double scale = partial[1] != 0 ? weight / partial[1] : 0;
    const double s = c.smoothing, spread = s / (double)c.k;
    double weight_k = (double)c.k;
    if (c.class_weight) {
        weight_k = 0;
        for (int64_t j = lane; j < c.k; j += 32) {
            weight_k += c.class_weight[j];
        }
        weight_k = warp_sum(weight_k);
    }
    for (int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; r < c.rows;
         r += (int64_t)gridDim.x * WARPS) {
        const float *const row = x + r * c.k;
        float *const d = dx + r * c.k;
        int64_t cls;
        const bool used = counts(c, r, &cls) && scale != 0;
        const bool wrong = used && (cls < 0 || cls >= c.k);
        if (!used || wrong) { /* a class out of range: its loss is NaN, nothing will be updated */
            for (int64_t j = lane; j < c.k; j += 32) {
                d[j] = wrong ? NAN : 0.0f;
            }
            continue;
        }
        const float m = row_max(row, c.k, lane);
        const float shift = m + (float)log(exp_sum(row, c.k, m, lane));
        const double own = (1.0 - s) * weight_of(c, cls), total = own + spread * weight_k;
        for (int64_t j = lane; j < c.k; j += 32) {
            float v = (float)(scale * total) * expf(row[j] - shift);
            if (s > 0) {
                v -= (float)(scale * spread * weight_of(c, j));
            }
            if (j == cls) {
                v -= (float)(scale * own);
            }
            d[j] = v;
        }
    }
}

/* Host numbers reach the device as kernel arguments: nothing to keep alive, nothing to copy. */
constexpr int FILL = 256;
struct numbers {
    double v[FILL];
};
__global__ void fill_kernel(const numbers a, int n, double *to) {
    if (threadIdx.x < n) {
        to[threadIdx.x] = a.v[threadIdx.x];
    }
}

int64_t chunks(int64_t rows) {
    return (rows + ROWS - 1) / ROWS;
}
unsigned warp_blocks(int64_t rows) {
    const int64_t b = (rows + WARPS - 1) / WARPS;
    return (unsigned)(b < 4096 ? b : 4096);
}

classes on_device(const dr_cuda_classes *c, void *workspace, cudaStream_t s) {
    classes d = {c->target, c->u8,     c->rows,      c->k,   c->rows_per_sample,
                 c->ignore, c->header, c->smoothing, nullptr};
    if (c->class_weight) {
        double *const to = (double *)workspace + 2 * chunks(c->rows);
        for (int64_t at = 0; at < c->k; at += FILL) {
            numbers a;
            const int n = (int)(c->k - at < FILL ? c->k - at : FILL);
            for (int i = 0; i < n; i++) {
                a.v[i] = c->class_weight[at + i];
            }
            fill_kernel<<<1, FILL, 0, s>>>(a, n, to + at);
        }
        d.class_weight = to;
    }
    return d;
}

int sum_rows(const dr_cuda_classes *c, int64_t top, const float *x, void *workspace, float *mean,
             double *partial, cudaStream_t s) {
    const classes d = on_device(c, workspace, s);
    double *const part = (double *)workspace;
    rows_kernel<<<(unsigned)chunks(c->rows), WARPS * 32, 0, s>>>(d, top, x, part);
    merge_kernel<<<1, 32, 0, s>>>(part, chunks(c->rows), mean, partial);
    return (int)cudaGetLastError();
}

} // namespace

extern "C" int dr_cuda_softmax(int64_t rows, int64_t k, const float *x, float *y, cudaStream_t s) {
    softmax_kernel<<<warp_blocks(rows), WARPS * 32, 0, s>>>(rows, k, x, y);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_softmax_dgrad(int64_t rows, int64_t k, const float *y, const float *dy,
                                     float *dx, cudaStream_t s) {
    softmax_dgrad_kernel<<<warp_blocks(rows), WARPS * 32, 0, s>>>(rows, k, y, dy, dx);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_cross_entropy(const struct dr_cuda_classes *c, const float *x,
                                     void *workspace, float *mean, double *partial,
                                     cudaStream_t s) {
    return sum_rows(c, 0, x, workspace, mean, partial, s);
}

extern "C" int dr_cuda_cross_entropy_dgrad(const struct dr_cuda_classes *c, const float *x,
                                           double weight, const double *partial, void *workspace,
                                           float *dx, cudaStream_t s) {
    const classes d = on_device(c, workspace, s);
    loss_dgrad_kernel<<<warp_blocks(c->rows), WARPS * 32, 0, s>>>(d, x, weight, partial, dx);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_accuracy(const struct dr_cuda_classes *c, int64_t top, const float *x,
                                void *workspace, double *partial, cudaStream_t s) {
    return sum_rows(c, top, x, workspace, nullptr, partial, s);
}
