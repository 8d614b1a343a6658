/* Average pooling, NHWC: a thread an element, neighbours along the channels; sums in double. The
 * gradient gathers from the windows that cover a pixel. The global average is a block for each
 * sample and group of channels: its threads take every R-th row, then add up in order of threads.
 */
#include "kernels/cuda/avg_pool.h"
#include "kernels/cuda/grid.cuh"

namespace {

__global__ void fprop_kernel(const dr_pool p, int count_pad, const float *x, float *y, int64_t n) {
    DR_GRID_LOOP(i, n) {
        const int64_t ch = i % p.c, wo = i / p.c % p.wo, ho = i / p.c / p.wo % p.ho;
        const float *const image = x + i / p.c / p.wo / p.ho * p.h * p.w * p.c + ch;
        const struct dr_pool_window v = dr_pool_window(&p, ho, wo, count_pad);
        double sum = 0;
        for (int64_t h = v.h0; h < v.h1; h++) {
            for (int64_t w = v.w0; w < v.w1; w++) {
                sum += image[(h * p.w + w) * p.c];
            }
        }
        y[i] = (float)(sum / v.count);
    }
}

__global__ void dgrad_kernel(const dr_pool p, int count_pad, const float *dy, float *dx,
                             int64_t n) {
    DR_GRID_LOOP(i, n) {
        const int64_t ch = i % p.c, w = i / p.c % p.w, h = i / p.c / p.w % p.h;
        const float *const image = dy + i / p.c / p.w / p.h * p.ho * p.wo * p.c + ch;
        const int64_t h1 = dr_pool_end(h, p.pt, p.sh, p.ho);
        const int64_t w0 = dr_pool_first(w, p.pl, p.kw, p.sw);
        const int64_t w1 = dr_pool_end(w, p.pl, p.sw, p.wo);
        double sum = 0;
        for (int64_t ho = dr_pool_first(h, p.pt, p.kh, p.sh); ho < h1; ho++) {
            for (int64_t wo = w0; wo < w1; wo++) {
                sum += image[(ho * p.wo + wo) * p.c] *
                       (1.0 / dr_pool_window(&p, ho, wo, count_pad).count);
            }
        }
        dx[i] = (float)sum;
    }
}

/* blockDim.x channels side by side, DR_THREADS / blockDim.x rows at a time. */
__global__ void global_kernel(int64_t n, int64_t rows, int64_t c, const float *x, float *y) {
    __shared__ double part[DR_THREADS];
    const int64_t groups = (c + blockDim.x - 1) / blockDim.x;
    const unsigned me = threadIdx.y * blockDim.x + threadIdx.x;
    for (int64_t b = blockIdx.x; b < n * groups; b += gridDim.x) {
        const int64_t ch = b % groups * blockDim.x + threadIdx.x;
        const float *const image = x + b / groups * rows * c + ch;
        double sum = 0;
        for (int64_t r = threadIdx.y; r < rows && ch < c; r += blockDim.y) {
            sum += image[r * c];
        }
        part[me] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && ch < c) {
            for (unsigned r = 1; r < blockDim.y; r++) {
                sum += part[r * blockDim.x + threadIdx.x];
            }
            y[b / groups * c + ch] = (float)(sum / (double)rows);
        }
        __syncthreads();
    }
}

} // namespace

extern "C" int dr_cuda_avg_pool_fprop(const struct dr_pool *p, int count_pad, const float *x,
                                      float *y, cudaStream_t s) {
    const int64_t n = p->n * p->ho * p->wo * p->c;
    fprop_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(*p, count_pad, x, y, n);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_avg_pool_dgrad(const struct dr_pool *p, int count_pad, const float *dy,
                                      float *dx, cudaStream_t s) {
    const int64_t n = p->n * p->h * p->w * p->c;
    dgrad_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(*p, count_pad, dy, dx, n);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_global_avg_pool(int64_t n, int64_t rows, int64_t c, const float *x, float *y,
                                       cudaStream_t s) {
    unsigned across = 1; /* few channels leave more threads to the rows */
    while (across < 32 && across < c) {
        across *= 2;
    }
    const int64_t blocks = n * ((c + across - 1) / across);
    global_kernel<<<(unsigned)(blocks < 65535 ? blocks : 65535), dim3(across, DR_THREADS / across),
                    0, s>>>(n, rows, c, x, y);
    return (int)cudaGetLastError();
}
