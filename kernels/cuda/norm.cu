/* Batch normalization over [rows, c]: column sums over fixed chunks of rows, in double, then one
 * pass that applies the statistics. A thread keeps its channels, 16 bytes of them where that
 * divides c, and walks the rows: a run of them in fp32, runs in double (conversions to double are
 * few a cycle). */
#include "kernels/cuda/norm.h"
#include "kernels/cuda/activate.cuh"
#include "kernels/cuda/walk.cuh"

namespace {

int64_t chunks(int64_t rows) {
    return (rows + dr_cuda_norm_chunk(rows) - 1) / dr_cuda_norm_chunk(rows);
}

/* The first value of a channel. Variances are those of x minus it: squares of a mean far from 0
 * would drown a small variance, and a constant channel's is 0. */
template <typename T> __device__ double origin_of(const T *x, int64_t k) {
    const float v = dr_load(x + k);
    return isfinite(v) ? (double)v : 0.0;
}

/* partial[chunk][2][c]: the sums of d and d^2, d = x - origin. blockIdx.y: the chunk. A thread sums
 * differences from its own first number, whose roundings are small beside its own share of the
 * variance however far it is from the origin, and moves the sums there at the end. */
template <typename T, int V>
__global__ void __launch_bounds__(DR_THREADS, 2)
    stats_kernel(int64_t rows, int64_t chunk, int64_t c, const T *x, double *partial) {
    __shared__ double part[2 * V][DR_THREADS];
    const int64_t k = dr_walk_column<V>();
    const int64_t last = min((blockIdx.y + 1) * chunk, rows);
    const int64_t first = blockIdx.y * chunk + threadIdx.y, down = blockDim.y;
    double sum[2 * V] = {};
    if (k < c && first < last) {
        float pivot[V];
        for (int64_t r = first; r < last; r += DR_RUN * down) {
            float v[DR_RUN][V], a[V] = {}, b[V] = {};
            dr_load_rows(x + k, r, down, last, c, v);
            if (r == first) {
#pragma unroll
                for (int i = 0; i < V; i++) {
                    pivot[i] = isfinite(v[0][i]) ? v[0][i] : 0.0f;
                }
            }
#pragma unroll
            for (int j = 0; j < DR_RUN; j++) {
                const bool there = r + j * down < last;
#pragma unroll
                for (int i = 0; i < V; i++) {
                    const float d = there ? v[j][i] - pivot[i] : 0.0f;
                    a[i] += d;
                    b[i] += d * d;
                }
            }
#pragma unroll
            for (int i = 0; i < V; i++) {
                sum[i] += a[i];
                sum[V + i] += b[i];
            }
        }
        const double n = (double)((last - first + down - 1) / down);
#pragma unroll
        for (int i = 0; i < V; i++) {
            const double far = pivot[i] - origin_of(x, k + i);
            sum[V + i] += far * (2 * sum[i] + n * far);
            sum[i] += n * far;
        }
    }
    dr_walk_sums<2 * V>(part, sum);
    if (threadIdx.y == 0 && k < c) {
#pragma unroll
        for (int i = 0; i < 2 * V; i++) {
            partial[(blockIdx.y * 2 + i / V) * c + k + i % V] = sum[i];
        }
    }
}

/* partial[chunk][2][c]: the sums of dy and dy * xhat. */
template <typename T, int V>
__global__ void __launch_bounds__(DR_THREADS, 2)
    wgrad_kernel(int64_t rows, int64_t chunk, int64_t c, const T *x, const T *dy, const float *mean,
                 const float *var, double eps, double *partial) {
    __shared__ double part[2 * V][DR_THREADS];
    const int64_t k = dr_walk_column<V>();
    const int64_t last = min((blockIdx.y + 1) * chunk, rows);
    const int64_t first = blockIdx.y * chunk + threadIdx.y, down = blockDim.y;
    double sum[2 * V] = {};
    if (k < c && first < last) {
        float m[V];
        dr_load<V>(mean + k, m);
        for (int64_t r = first; r < last; r += DR_RUN / 2 * down) {
            float v[DR_RUN / 2][V], w[DR_RUN / 2][V], a[V] = {}, b[V] = {};
            dr_load_rows(x + k, r, down, last, c, v);
            dr_load_rows(dy + k, r, down, last, c, w);
#pragma unroll
            for (int j = 0; j < DR_RUN / 2; j++) {
                const bool there = r + j * down < last;
#pragma unroll
                for (int i = 0; i < V; i++) {
                    a[i] += there ? w[j][i] : 0.0f;
                    b[i] += there ? w[j][i] * (v[j][i] - m[i]) : 0.0f;
                }
            }
#pragma unroll
            for (int i = 0; i < V; i++) {
                sum[i] += a[i];
                sum[V + i] += b[i];
            }
        }
#pragma unroll
        for (int i = 0; i < V; i++) {
            sum[V + i] *= 1.0 / sqrt(var[k + i] + eps);
        }
    }
    dr_walk_sums<2 * V>(part, sum);
    if (threadIdx.y == 0 && k < c) {
#pragma unroll
        for (int i = 0; i < 2 * V; i++) {
            partial[(blockIdx.y * 2 + i / V) * c + k + i % V] = sum[i];
        }
    }
}

/* rows > 0: mean and biased variance of x from its sums; rows 0: the two sums themselves. A column
 * and a part of its partial sums a thread. */
template <typename T>
__global__ void __launch_bounds__(DR_THREADS, 2)
    merge_kernel(int64_t n, int64_t c, int64_t rows, const T *x, const double *partial,
                 float *out_a, float *out_b) {
    __shared__ double part[2][DR_THREADS];
    const int64_t k = dr_walk_column<1>();
    double sum[2] = {};
    const int64_t end = k < c ? n : 0, down = blockDim.y;
    for (int64_t i = threadIdx.y; i < end; i += DR_RUN * down) {
        double a[DR_RUN], b[DR_RUN];
#pragma unroll
        for (int j = 0; j < DR_RUN; j++) {
            const int64_t at = min(i + j * down, end - 1);
            a[j] = partial[2 * at * c + k];
            b[j] = partial[(2 * at + 1) * c + k];
        }
#pragma unroll
        for (int j = 0; j < DR_RUN; j++) {
            sum[0] += i + j * down < end ? a[j] : 0.0;
            sum[1] += i + j * down < end ? b[j] : 0.0;
        }
    }
    dr_walk_sums<2>(part, sum);
    if (threadIdx.y > 0 || k >= c) {
        return;
    }
    if (rows > 0) {
        const double m = sum[0] / (double)rows, v = sum[1] / (double)rows - m * m;
        out_a[k] = (float)(origin_of(x, k) + m);
        out_b[k] = (float)(v < 0 ? 0 : v); /* NaN stays NaN */
    } else {
        out_a[k] = (float)sum[1];
        out_b[k] = (float)sum[0];
    }
}

__device__ float rstd_of(const float *var, int64_t k, double eps) {
    return 1.0f / sqrtf(var[k] + (float)eps);
}

template <typename T, int V>
__global__ void apply_kernel(int64_t rows, int64_t c, const T *x, const float *mean,
                             const float *var, const float *gamma, const float *beta, double eps,
                             const T *add, int act, T *y) {
    const int64_t k = dr_walk_column<V>();
    if (k >= c) {
        return;
    }
    float m[V], scale[V], shift[V];
    dr_load<V>(mean + k, m);
    dr_load<V>(beta + k, shift);
#pragma unroll
    for (int i = 0; i < V; i++) {
        scale[i] = rstd_of(var, k + i, eps) * gamma[k + i];
    }
#pragma unroll 2
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < rows;
         r += (int64_t)gridDim.y * blockDim.y) {
        float v[V], more[V] = {};
        dr_load<V>(x + r * c + k, v);
        if (add) {
            dr_load<V>(add + r * c + k, more);
        }
#pragma unroll
        for (int i = 0; i < V; i++) {
            v[i] = (v[i] - m[i]) * scale[i] + shift[i];
            v[i] = dr_activate(add ? v[i] + more[i] : v[i], act);
        }
        dr_store<V>(y + r * c + k, v);
    }
}

/* dx = (dy - (dbeta + xhat * dgamma) / rows) * gamma * rstd; by stored statistics (no dgamma)
 * without the sums. */
template <typename T, int V>
__global__ void dgrad_kernel(int64_t rows, int64_t c, const T *x, const T *dy, const float *mean,
                             const float *var, const float *gamma, const float *dgamma,
                             const float *dbeta, double eps, T *dx) {
    const int64_t k = dr_walk_column<V>();
    if (k >= c) {
        return;
    }
    const float inv = (float)(1.0 / (double)rows);
    float m[V] = {}, rstd[V], g[V], sum[V] = {}, dot[V] = {};
    dr_load<V>(gamma + k, g);
#pragma unroll
    for (int i = 0; i < V; i++) {
        rstd[i] = rstd_of(var, k + i, eps);
    }
    if (dgamma) {
        dr_load<V>(mean + k, m);
        dr_load<V>(dbeta + k, sum);
        dr_load<V>(dgamma + k, dot);
    }
#pragma unroll 2
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < rows;
         r += (int64_t)gridDim.y * blockDim.y) {
        float v[V], w[V];
        dr_load<V>(dy + r * c + k, w);
        if (dgamma) {
            dr_load<V>(x + r * c + k, v);
#pragma unroll
            for (int i = 0; i < V; i++) {
                w[i] -= (sum[i] + (v[i] - m[i]) * rstd[i] * dot[i]) * inv;
            }
        }
#pragma unroll
        for (int i = 0; i < V; i++) {
            w[i] = w[i] * g[i] * rstd[i];
        }
        dr_store<V>(dx + r * c + k, w);
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

/* The sums of x (and dy) into two vectors; see the kernels. */
int column_sums(enum dr_type t, int64_t rows, int64_t c, const void *x, const void *dy,
                const float *mean, const float *var, double eps, double *partial, float *out_a,
                float *out_b, cudaStream_t s) {
    return dr_real_packs(t, c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        const dr_walk k = dr_walk_of(c, V);
        const dim3 grid((unsigned)k.blocks, (unsigned)chunks(rows)), block(k.across, k.down);
        if (dy) {
            wgrad_kernel<T, V><<<grid, block, 0, s>>>(rows, dr_cuda_norm_chunk(rows), c,
                                                      (const T *)x, (const T *)dy, mean, var, eps,
                                                      partial);
        } else {
            stats_kernel<T, V>
                <<<grid, block, 0, s>>>(rows, dr_cuda_norm_chunk(rows), c, (const T *)x, partial);
        }
        merge_kernel<T><<<(unsigned)((c + 7) / 8), dim3(8, DR_THREADS / 8), 0, s>>>(
            chunks(rows), c, dy ? 0 : rows, (const T *)x, partial, out_a, out_b);
        return (int)cudaGetLastError();
    });
}

} // namespace

extern "C" int dr_cuda_norm_stats(enum dr_type t, int64_t rows, int64_t c, const void *x,
                                  void *workspace, float *mean, float *var, cudaStream_t s) {
    return column_sums(t, rows, c, x, nullptr, nullptr, nullptr, 0, (double *)workspace, mean, var,
                       s);
}

extern "C" int dr_cuda_norm_wgrad(enum dr_type t, int64_t rows, int64_t c, const void *x,
                                  const void *dy, const float *mean, const float *var, double eps,
                                  void *workspace, float *dgamma, float *dbeta, cudaStream_t s) {
    return column_sums(t, rows, c, x, dy, mean, var, eps, (double *)workspace, dgamma, dbeta, s);
}

extern "C" int dr_cuda_norm_apply(enum dr_type t, int64_t rows, int64_t c, const void *x,
                                  const float *mean, const float *var, const float *gamma,
                                  const float *beta, double eps, const void *add, int act, void *y,
                                  cudaStream_t s) {
    return dr_real_packs(t, c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        const dr_walk k = dr_walk_of(c, V);
        apply_kernel<T, V>
            <<<dim3((unsigned)k.blocks, dr_walk_turns(k, rows)), dim3(k.across, k.down), 0, s>>>(
                rows, c, (const T *)x, mean, var, gamma, beta, eps, (const T *)add, act, (T *)y);
        return (int)cudaGetLastError();
    });
}

extern "C" int dr_cuda_norm_dgrad(enum dr_type t, int64_t rows, int64_t c, const void *x,
                                  const void *dy, const float *mean, const float *var,
                                  const float *gamma, const float *dgamma, const float *dbeta,
                                  double eps, void *dx, cudaStream_t s) {
    return dr_real_packs(t, c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        const dr_walk k = dr_walk_of(c, V);
        dgrad_kernel<T, V>
            <<<dim3((unsigned)k.blocks, dr_walk_turns(k, rows)), dim3(k.across, k.down), 0, s>>>(
                rows, c, (const T *)x, (const T *)dy, mean, var, gamma, dgamma, dbeta, eps,
                (T *)dx);
        return (int)cudaGetLastError();
    });
}

extern "C" int dr_cuda_norm_track(int64_t c, const float *mean, const float *var, double momentum,
                                  double unbiased, const int64_t *health, float *running_mean,
                                  float *running_var, cudaStream_t s) {
    track_kernel<<<(unsigned)((c + 63) / 64), 64, 0, s>>>(c, mean, var, momentum, unbiased, health,
                                                          running_mean, running_var);
    return (int)cudaGetLastError();
}
