/* Average pooling, NHWC: a thread takes neighbouring channels of a pixel, 16 bytes of them where
 * that divides the channels; sums in double. The gradient gathers from the windows that cover a
 * pixel. The global average is a block for each sample and group of channels: its threads take
 * every so many rows, then add up by a fixed tree. */
#include "kernels/cuda/avg_pool.h"
#include "kernels/cuda/walk.cuh"

namespace {

template <typename T, int V>
__global__ void fprop_kernel(const dr_pool p, int count_pad, const T *x, T *y, int64_t n) {
    DR_PACK_LOOP(V, i, n) {
        const int64_t ch = i % p.c, wo = i / p.c % p.wo, ho = i / p.c / p.wo % p.ho;
        const T *const image = x + i / p.c / p.wo / p.ho * p.h * p.w * p.c + ch;
        const struct dr_pool_window win = dr_pool_window(&p, ho, wo, count_pad);
        double sum[V] = {};
        for (int64_t h = win.h0; h < win.h1; h++) {
            for (int64_t w = win.w0; w < win.w1; w++) {
                float v[V];
                dr_load<V>(image + (h * p.w + w) * p.c, v);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += v[k];
                }
            }
        }
        float mean[V];
#pragma unroll
        for (int k = 0; k < V; k++) {
            mean[k] = (float)(sum[k] / win.count);
        }
        dr_store<V>(y + i, mean);
    }
}

template <typename T, int V>
__global__ void dgrad_kernel(const dr_pool p, int count_pad, const T *dy, T *dx, int64_t n) {
    DR_PACK_LOOP(V, i, n) {
        const int64_t ch = i % p.c, w = i / p.c % p.w, h = i / p.c / p.w % p.h;
        const T *const image = dy + i / p.c / p.w / p.h * p.ho * p.wo * p.c + ch;
        const int64_t h1 = dr_pool_end(h, p.pt, p.sh, p.ho);
        const int64_t w0 = dr_pool_first(w, p.pl, p.kw, p.sw);
        const int64_t w1 = dr_pool_end(w, p.pl, p.sw, p.wo);
        double sum[V] = {};
        for (int64_t ho = dr_pool_first(h, p.pt, p.kh, p.sh); ho < h1; ho++) {
            for (int64_t wo = w0; wo < w1; wo++) {
                const double share = 1.0 / dr_pool_window(&p, ho, wo, count_pad).count;
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

/* blockIdx.x: the channels; blockIdx.y: the sample. */
template <typename T, int V>
__global__ void global_kernel(int64_t n, int64_t rows, int64_t c, const T *x, T *y) {
    __shared__ double part[V][DR_THREADS];
    const int64_t ch = dr_walk_column<V>();
    for (int64_t image = blockIdx.y; image < n; image += gridDim.y) {
        double sum[V] = {};
        if (ch < c) {
#pragma unroll 2
            for (int64_t r = threadIdx.y; r < rows; r += blockDim.y) {
                float v[V];
                dr_load<V>(x + (image * rows + r) * c + ch, v);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    sum[k] += v[k];
                }
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

} // namespace

extern "C" int dr_cuda_avg_pool_fprop(enum dr_type t, const struct dr_pool *p, int count_pad,
                                      const void *x, void *y, cudaStream_t s) {
    const int64_t n = p->n * p->ho * p->wo * p->c;
    return dr_real_packs(t, p->c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        fprop_kernel<T, V>
            <<<dr_blocks(n / V), DR_THREADS, 0, s>>>(*p, count_pad, (const T *)x, (T *)y, n);
        return (int)cudaGetLastError();
    });
}

extern "C" int dr_cuda_avg_pool_dgrad(enum dr_type t, const struct dr_pool *p, int count_pad,
                                      const void *dy, void *dx, cudaStream_t s) {
    const int64_t n = p->n * p->h * p->w * p->c;
    return dr_real_packs(t, p->c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        dgrad_kernel<T, V>
            <<<dr_blocks(n / V), DR_THREADS, 0, s>>>(*p, count_pad, (const T *)dy, (T *)dx, n);
        return (int)cudaGetLastError();
    });
}

extern "C" int dr_cuda_global_avg_pool(enum dr_type t, int64_t n, int64_t rows, int64_t c,
                                       const void *x, void *y, cudaStream_t s) {
    return dr_real_packs(t, c, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        const dr_walk k = dr_walk_of(c, V);
        const dim3 grid((unsigned)k.blocks, (unsigned)(n < 65535 ? n : 65535));
        global_kernel<T, V>
            <<<grid, dim3(k.across, k.down), 0, s>>>(n, rows, c, (const T *)x, (T *)y);
        return (int)cudaGetLastError();
    });
}
