/* Max pooling, NHWC: a thread an element, neighbours along the channels. The gradient gathers: each
 * input asks the windows that cover it, in output order, whether it won; nothing is added
 * atomically. */
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/norm.h"

namespace {

/* The winner of a window, as an offset into the image: the first largest, NaN above all. */
__device__ int64_t winner(const dr_pool &p, const float *x, int64_t oy, int64_t ox, int64_t ch) {
    int64_t best = -1;
    float top = 0;
    for (int64_t kh = 0; kh < p.kh; kh++) {
        const int64_t iy = oy * p.sh + kh - p.pt;
        if (iy < 0 || iy >= p.h) {
            continue;
        }
        for (int64_t kw = 0; kw < p.kw; kw++) {
            const int64_t ix = ox * p.sw + kw - p.pl;
            if (ix < 0 || ix >= p.w) {
                continue;
            }
            const int64_t at = (iy * p.w + ix) * p.c + ch;
            const float v = x[at];
            if (best < 0 || v > top || (v != v && top == top)) {
                best = at;
                top = v;
            }
        }
    }
    return best;
}

__global__ void fprop_kernel(const dr_pool p, const float *x, float *y, int64_t n) {
    DR_GRID_LOOP(i, n) {
        const int64_t ch = i % p.c, ox = i / p.c % p.wo, oy = i / p.c / p.wo % p.ho;
        const float *const image = x + i / p.c / p.wo / p.ho * p.h * p.w * p.c;
        y[i] = image[winner(p, image, oy, ox, ch)];
    }
}

__global__ void dgrad_kernel(const dr_pool p, const float *x, const float *dy, float *dx,
                             int64_t n) {
    DR_GRID_LOOP(i, n) {
        const int64_t ch = i % p.c, ix = i / p.c % p.w, iy = i / p.c / p.w % p.h;
        const int64_t image = i / p.c / p.w / p.h;
        const float *const xi = x + image * p.h * p.w * p.c;
        const float *const dyi = dy + image * p.ho * p.wo * p.c;
        const int64_t own = (iy * p.w + ix) * p.c + ch;
        const int64_t y0 = max((iy + p.pt - p.kh) / p.sh, (int64_t)0);
        const int64_t x0 = max((ix + p.pl - p.kw) / p.sw, (int64_t)0);
        float sum = 0;
        for (int64_t oy = y0; oy < p.ho && oy * p.sh - p.pt <= iy; oy++) {
            for (int64_t ox = x0; ox < p.wo && ox * p.sw - p.pl <= ix; ox++) {
                if (winner(p, xi, oy, ox, ch) == own) {
                    sum += dyi[(oy * p.wo + ox) * p.c + ch];
                }
            }
        }
        dx[i] = sum;
    }
}

} // namespace

extern "C" int dr_cuda_max_pool_fprop(const struct dr_pool *p, const float *x, float *y,
                                      cudaStream_t s) {
    const int64_t n = p->n * p->ho * p->wo * p->c;
    fprop_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(*p, x, y, n);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_max_pool_dgrad(const struct dr_pool *p, const float *x, const float *dy,
                                      float *dx, cudaStream_t s) {
    const int64_t n = p->n * p->h * p->w * p->c;
    dgrad_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(*p, x, dy, dx, n);
    return (int)cudaGetLastError();
}
