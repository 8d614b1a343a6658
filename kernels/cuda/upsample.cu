/* Nearest and bilinear resizing, NHWC: a thread an element, neighbours along the channels. The
 * gradient gathers, in double, from the outputs that read a pixel; nothing is added atomically. */
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/upsample.h"

namespace {

__global__ void fprop_kernel(const dr_upsample u, const float *x, float *y, int64_t n) {
    DR_GRID_LOOP(i, n) {
        const int64_t ch = i % u.c, wo = i / u.c % u.wo, ho = i / u.c / u.wo % u.ho;
        const float *const image = x + i / u.c / u.wo / u.ho * u.h * u.w * u.c + ch;
        const struct dr_tap v = dr_tap(ho, u.h, u.ho, u.bilinear);
        const struct dr_tap w = dr_tap(wo, u.w, u.wo, u.bilinear);
        const float *const above = image + v.lo * u.w * u.c, *const below =
                                                                 image + v.hi * u.w * u.c;
        const float a = above[w.lo * u.c];
        if (!u.bilinear) {
            y[i] = a;
            continue;
        }
        const float top = (1.0f - w.part) * a + w.part * above[w.hi * u.c];
        const float bottom = (1.0f - w.part) * below[w.lo * u.c] + w.part * below[w.hi * u.c];
        y[i] = (1.0f - v.part) * top + v.part * bottom;
    }
}

__global__ void dgrad_kernel(const dr_upsample u, const float *dy, float *dx, int64_t n) {
    const int64_t back = u.bilinear ? 1 : 0;
    DR_GRID_LOOP(i, n) {
        const int64_t ch = i % u.c, w = i / u.c % u.w, h = i / u.c / u.w % u.h;
        const float *const image = dy + i / u.c / u.w / u.h * u.ho * u.wo * u.c + ch;
        const int64_t h1 = dr_tap_first(h + 1, u.h, u.ho, u.bilinear);
        const int64_t w0 = dr_tap_first(w - back, u.w, u.wo, u.bilinear);
        const int64_t w1 = dr_tap_first(w + 1, u.w, u.wo, u.bilinear);
        double sum = 0;
        for (int64_t ho = dr_tap_first(h - back, u.h, u.ho, u.bilinear); ho < h1; ho++) {
            const struct dr_tap v = dr_tap(ho, u.h, u.ho, u.bilinear);
            const double tall = dr_tap_weight(&v, h);
            for (int64_t wo = w0; wo < w1; wo++) {
                const struct dr_tap q = dr_tap(wo, u.w, u.wo, u.bilinear);
                sum += image[(ho * u.wo + wo) * u.c] * (tall * dr_tap_weight(&q, w));
            }
        }
        dx[i] = (float)sum;
    }
}

} // namespace

extern "C" int dr_cuda_upsample_fprop(const struct dr_upsample *u, const float *x, float *y,
                                      cudaStream_t s) {
    const int64_t n = u->n * u->ho * u->wo * u->c;
    fprop_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(*u, x, y, n);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_upsample_dgrad(const struct dr_upsample *u, const float *dy, float *dx,
                                      cudaStream_t s) {
    const int64_t n = u->n * u->h * u->w * u->c;
    dgrad_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(*u, dy, dx, n);
    return (int)cudaGetLastError();
}
