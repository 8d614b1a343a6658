/* Average pooling, NHWC: a thread takes neighbouring channels of a pixel, 16 bytes of them where
 * that divides the channels; sums in double. The gradient gathers from the windows that cover a
 * pixel; where those are few it adds them in fp32. The global average is a block for each sample
 * and group of channels: its threads take every so many rows, then add up by a fixed tree. */
#include "kernels/cuda/avg_pool.h"
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/walk.cuh"

namespace {

struct job {
    dr_pool p;
    int count_pad;
    dr_grid_of x, y;
    dr_divisor sh, sw;
    double full, share; /* what most windows divide by, and its inverse */
};

job job_of(const dr_pool &p, int count_pad) {
    const double full = (double)p.kh * (double)p.kw;
    return {p,
            count_pad,
            dr_grid_of_shape(p.h, p.w, p.c),
            dr_grid_of_shape(p.ho, p.wo, p.c),
            dr_divisor_of(p.sh),
            dr_divisor_of(p.sw),
            full,
            1.0 / full};
}

__device__ double share_of(const job &j, const struct dr_pool_window &win) {
    return win.count == j.full ? j.share : 1.0 / win.count;
}

template <typename T, int V>
__global__ void fprop_kernel(const job j, const T *x, T *y, int64_t n) {
    const dr_pool &p = j.p;
    DR_PACK_LOOP(V, i, n) {
        const dr_place o = dr_place_of(j.y, i);
        const T *const image = x + o.image * p.h * p.w * p.c + o.c;
        const struct dr_pool_window win = dr_pool_window(&p, o.row, o.column, j.count_pad);
        double sum[V] = {};
        for (int64_t h = win.h0; h < win.h1; h++) {
#pragma unroll 2
            for (int64_t w = win.w0; w < win.w1; w++) {
                float v[V];
                dr_load<V>(image + (h * p.w + w) * p.c, v);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += v[k];
                }
            }
        }
        const double share = share_of(j, win);
        float mean[V];
#pragma unroll
        for (int k = 0; k < V; k++) {
            mean[k] = (float)(sum[k] * share);
        }
        dr_store<V>(y + i, mean);
    }
}

/* S: what the shares are added in. */
template <typename T, int V, typename S>
__global__ void dgrad_kernel(const job j, const T *dy, T *dx, int64_t n) {
    const dr_pool &p = j.p;
    DR_PACK_LOOP(V, i, n) {
        const dr_place in = dr_place_of(j.x, i);
        const T *const image = dy + in.image * p.ho * p.wo * p.c + in.c;
        const int64_t y = in.row + p.pt, x = in.column + p.pl; /* in the padded image */
        const int64_t y0 = y < p.kh ? 0 : dr_divide(j.sh, y - p.kh) + 1;
        const int64_t x0 = x < p.kw ? 0 : dr_divide(j.sw, x - p.kw) + 1;
        const int64_t y1 = min(dr_divide(j.sh, y) + 1, p.ho);
        const int64_t x1 = min(dr_divide(j.sw, x) + 1, p.wo);
        S sum[V] = {};
        for (int64_t ho = y0; ho < y1; ho++) {
            for (int64_t wo = x0; wo < x1; wo++) {
                const S share = (S)share_of(j, dr_pool_window(&p, ho, wo, j.count_pad));
                float v[V];
                dr_load<V>(image + (ho * p.wo + wo) * p.c, v);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += v[k] * share;
                }
            }
        }
        float out[V];
#pragma unroll
        for (int k = 0; k < V; k++) {
            out[k] = (float)sum[k];
        }
        dr_store<V>(dx + i, out);
    }
}

/* blockIdx.x: the channels; blockIdx.y: the sample. A run of rows is added in fp32. */
template <typename T, int V>
__global__ void __launch_bounds__(DR_THREADS, 2)
    global_kernel(int64_t n, int64_t rows, int64_t c, const T *x, T *y) {
    __shared__ double part[V][DR_THREADS];
    const int64_t ch = dr_walk_column<V>();
    for (int64_t image = blockIdx.y; image < n; image += gridDim.y) {
        const T *const at = x + image * rows * c + ch;
        double sum[V] = {};
        for (int64_t r = threadIdx.y; r < rows && ch < c; r += DR_RUN * (int64_t)blockDim.y) {
            float run[V] = {}, v[DR_RUN][V];
            dr_load_rows(at, r, blockDim.y, rows, c, v);
#pragma unroll
            for (int i = 0; i < DR_RUN; i++) {
                const bool there = r + i * (int64_t)blockDim.y < rows;
#pragma unroll
                for (int k = 0; k < V; k++) {
                    run[k] += there ? v[i][k] : 0.0f;
                }
            }
#pragma unroll
            for (int k = 0; k < V; k++) {
                sum[k] += run[k];
            }
        }
        dr_walk_sums<V>(part, sum);
        if (threadIdx.y == 0 && ch < c) {
            float mean[V];
#pragma unroll
            for (int k = 0; k < V; k++) {
                mean[k] = (float)(sum[k] / (double)rows);
            }
            dr_store<V>(y + image * c + ch, mean);
        }
        __syncthreads();
    }
}

/* Few samples of few channels and many rows: narrower blocks, as long as they read 32 bytes side by
 * side, so that there are more of them. */
dr_walk global_walk(int64_t n, int64_t rows, int64_t c, int v) {
    dr_walk k = dr_walk_of(c, v);
    while (v > 1 && k.across > 2 && k.blocks * n < 264 && rows > k.down) {
        k.across /= 2;
        k.down *= 2;
        k.blocks = ((c + v - 1) / v + k.across - 1) / k.across;
    }
    return k;
}

} // namespace

extern "C" int dr_cuda_avg_pool_fprop(enum dr_type t, const struct dr_pool *p, int count_pad,
                                      const void *x, void *y, cudaStream_t s) {
    const int64_t n = p->n * p->ho * p->wo * p->c;
    const job j = job_of(*p, count_pad);
    return dr_real_packs(t, p->c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        fprop_kernel<T, V><<<dr_blocks(n / V), DR_THREADS, 0, s>>>(j, (const T *)x, (T *)y, n);
        return (int)cudaGetLastError();
    });
}

extern "C" int dr_cuda_avg_pool_dgrad(enum dr_type t, const struct dr_pool *p, int count_pad,
                                      const void *dy, void *dx, cudaStream_t s) {
    const int64_t n = p->n * p->h * p->w * p->c;
    const int64_t windows = (p->kh + p->sh - 1) / p->sh * ((p->kw + p->sw - 1) / p->sw);
    const job j = job_of(*p, count_pad);
    return dr_real_packs(t, p->c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        (windows <= 16 ? dgrad_kernel<T, V, float>
                       : dgrad_kernel<T, V, double>)<<<dr_blocks(n / V), DR_THREADS, 0, s>>>(
            j, (const T *)dy, (T *)dx, n);
        return (int)cudaGetLastError();
    });
}

extern "C" int dr_cuda_global_avg_pool(enum dr_type t, int64_t n, int64_t rows, int64_t c,
                                       const void *x, void *y, cudaStream_t s) {
    return dr_real_packs(t, c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        const dr_walk k = global_walk(n, rows, c, V);
        const dim3 grid((unsigned)k.blocks, (unsigned)(n < 65535 ? n : 65535));
        global_kernel<T, V>
            <<<grid, dim3(k.across, k.down), 0, s>>>(n, rows, c, (const T *)x, (T *)y);
        return (int)cudaGetLastError();
    });
}
