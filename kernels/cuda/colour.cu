/* color_jitter and grayscale on CUDA: a block has pixels of one sample and draws what becomes of it
 * once; then a thread takes four pixels of bytes as whole words, or one of floats. Contrast needs a
 * mean over the sample as it is before it: a first kernel leaves sums of greys, integers, by blocks
 * of pixels. */
#include "kernels/cuda/colour.h"
#include "kernels/cuda/make.cuh"

namespace {

/* V pixels of C channels, in and out. */
template <class T, int C, int V> struct alignas(sizeof(T) * V) pixels { T at[C * V]; };

template <class T, int C, int V>
__device__ void unpack(const pixels<T, C, V> &in, int k, float *p) {
#pragma unroll
    for (int i = 0; i < C; i++) {
        p[i] = (float)in.at[k * C + i];
    }
}

/* Sum of `v` over a block, for thread 0; integers, so that the order does not matter. */
__device__ int64_t block_sum(int64_t v) {
    __shared__ int64_t part[DR_THREADS / 32];
    for (int o = 16; o > 0; o >>= 1) {
        v += __shfl_down_sync(0xffffffffu, v, o);
    }
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = v;
    }
    __syncthreads();
    int64_t sum = 0;
    for (int i = 0; i < DR_THREADS / 32 && threadIdx.x == 0; i++) {
        sum += part[i];
    }
    return sum;
}

template <class T, int C, int V>
__global__ void greys_kernel(const __grid_constant__ dr_colour c, const dr_batch *batch, const T *x,
                             int64_t *sums) {
    __shared__ dr_coloured r;
    const int64_t sample = blockIdx.y + (int64_t)blockIdx.z * gridDim.y;
    if (sample >= c.n) {
        return;
    }
    if (threadIdx.x == 0) {
        r = dr_colour_of(&c, batch, sample);
    }
    __syncthreads();
    const int steps = dr_colour_before_contrast(&r);
    const auto *const from = reinterpret_cast<const pixels<T, C, V> *>(x + sample * c.pixels * C);
    const int64_t first = (int64_t)blockIdx.x * DR_CUDA_GREYS / V;
    const int64_t last = min(first + DR_CUDA_GREYS / V, c.pixels / V);
    int64_t sum = 0;
    for (int64_t i = first + threadIdx.x; i < last; i += DR_THREADS) {
        const pixels<T, C, V> in = from[i];
        for (int k = 0; k < V; k++) {
            float p[3];
            unpack(in, k, p);
            dr_colour_pixel(&c, &r, 0, steps, p);
            sum += dr_grey_units(dr_grey(p, C, c.u8), c.u8);
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        sums[sample * gridDim.x + blockIdx.x] = sum;
    }
}

template <class T, int C, int V>
__global__ void colour_kernel(const __grid_constant__ dr_colour c, const dr_batch *batch,
                              const int64_t *sums, int64_t n_sums, const T *x, T *y) {
    __shared__ dr_coloured r;
    __shared__ float mean;
    for (int64_t sample = blockIdx.y; sample < c.n; sample += gridDim.y) {
        __syncthreads();
        if (threadIdx.x == 0) {
            int64_t sum = 0;
            for (int64_t i = 0; i < n_sums; i++) {
                sum += sums[sample * n_sums + i];
            }
            r = dr_colour_of(&c, batch, sample);
            mean = dr_grey_mean(sum, c.pixels, c.u8);
        }
        __syncthreads();
        const auto *const from =
            reinterpret_cast<const pixels<T, C, V> *>(x + sample * c.pixels * C);
        auto *const to = reinterpret_cast<pixels<T, C, V> *>(y + sample * c.pixels * C);
        DR_GRID_LOOP(i, c.pixels / V) {
            const pixels<T, C, V> in = from[i];
            pixels<T, C, V> out = in;
            for (int k = 0; k < V && (!c.grayscale || r.grey); k++) {
                float p[3];
                unpack(in, k, p);
                if (c.grayscale) {
                    dr_colour_grey(&c, p);
                } else {
                    dr_colour_pixel(&c, &r, mean, DR_JITTERS, p);
                }
#pragma unroll
                for (int j = 0; j < C; j++) {
                    out.at[k * C + j] = (T)p[j];
                }
            }
            to[i] = out;
        }
    }
}

template <class T, int C, int V>
int run(const dr_colour &c, const dr_batch *batch, const T *x, T *y, int64_t *sums,
        cudaStream_t s) {
    const int64_t n_sums = dr_cuda_colour_bytes(&c) / (int64_t)sizeof(int64_t) / c.n;
    if (n_sums > 0) {
        const unsigned rows = (unsigned)(c.n < 32768 ? c.n : 32768);
        const dim3 grid((unsigned)n_sums, rows, (unsigned)((c.n + rows - 1) / rows));
        greys_kernel<T, C, V><<<grid, DR_THREADS, 0, s>>>(c, batch, x, sums);
    }
    const dim3 grid = dr_sample_grid(c.pixels / V, c.n, 1);
    colour_kernel<T, C, V><<<grid, DR_THREADS, 0, s>>>(c, batch, sums, n_sums, x, y);
    return (int)cudaGetLastError();
}

template <class T, int V>
int by_channels(const dr_colour &c, const dr_batch *batch, const void *x, void *y, void *sums,
                cudaStream_t s) {
    return c.c == 3 ? run<T, 3, V>(c, batch, (const T *)x, (T *)y, (int64_t *)sums, s)
                    : run<T, 1, V>(c, batch, (const T *)x, (T *)y, (int64_t *)sums, s);
}

} // namespace

extern "C" int dr_cuda_colour(const struct dr_colour *c, const struct dr_batch *batch,
                              const void *x, void *y, void *workspace, cudaStream_t s) {
    if (!c->u8) {
        return by_channels<float, 1>(*c, batch, x, y, workspace, s);
    }
    return c->pixels % 4 == 0 ? by_channels<uint8_t, 4>(*c, batch, x, y, workspace, s)
                              : by_channels<uint8_t, 1>(*c, batch, x, y, workspace, s);
}
