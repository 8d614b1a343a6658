/* Crops, resizing, rotation on CUDA (kernels/cpu/geometry.h with the same bits). A block has a
 * sample of a plane and draws its window or angle once; then a thread makes output elements (four
 * bytes at once, where a sample's size allows it), or, where pixels are interpolated, one pixel. */
#include "kernels/cuda/geometry.h"
#include "kernels/cuda/make.cuh"

namespace {

constexpr int CHUNK = 4; /* channels of a pixel that a thread sums at once */

struct planes {
    dr_plane at[DR_PLANES];
};

/* The elements of a sample, of any size: f(T of an element, e). */
template <class F>
__device__ void make_items(const dr_plane &p, int64_t sample, int32_t count, F f) {
    const int64_t at = sample * count;
    if (p.item == 1) {
        dr_make((uint8_t *)p.y + at, count, [&](int32_t e) { return f(uint8_t(), e); });
    } else if (p.item == 2) {
        dr_make((uint16_t *)p.y + at, count, [&](int32_t e) { return f(uint16_t(), e); });
    } else if (p.item == 4) {
        dr_make((uint32_t *)p.y + at, count, [&](int32_t e) { return f(uint32_t(), e); });
    } else {
        dr_make((uint64_t *)p.y + at, count, [&](int32_t e) { return f(uint64_t(), e); });
    }
}

__device__ void store(const dr_plane &p, int64_t at, float v) {
    if (p.item == 1) {
        ((uint8_t *)p.y)[at] = dr_round_u8(v);
    } else {
        ((float *)p.y)[at] = v;
    }
}
__device__ float load(const dr_plane &p, int64_t at) {
    return p.item == 1 ? (float)((const uint8_t *)p.x)[at] : ((const float *)p.x)[at];
}

__device__ void move_sample(const dr_resample &r, const dr_plane &p, const dr_window &v,
                            int64_t sample) {
    const int64_t from = sample * r.h * r.w * p.c;
    const uint32_t c = (uint32_t)p.c, wo = (uint32_t)r.wo;
    make_items(p, sample, r.ho * r.wo * p.c, [&](auto t, int32_t e) {
        using T = decltype(t);
        const uint32_t pixel = (uint32_t)e / c, ch = (uint32_t)e - pixel * c, row = pixel / wo;
        const int32_t y = dr_moved_from((int32_t)row, v.off_y, v.top, v.h, v.full_h);
        const int32_t x =
            dr_moved_from((int32_t)(pixel - row * wo), v.off_x, v.left, v.w, v.full_w);
        if (y < 0 || y >= r.h || x < 0 || x >= r.w) {
            return (T)p.fill;
        }
        return ((const T *)p.x)[from + (int64_t)(y * r.w + x) * p.c + ch];
    });
}

__device__ void resize_sample(const dr_resample &r, const dr_plane &p, const dr_window &v,
                              int64_t sample) {
    const int64_t from = sample * r.h * r.w * p.c, to = sample * r.ho * r.wo * p.c;
    DR_GRID_LOOP(pixel, (int64_t)r.ho * r.wo) {
        const int32_t oy = (int32_t)pixel / r.wo, ox = (int32_t)pixel - oy * r.wo;
        const dr_taps down = dr_taps_of(oy, v.off_y, v.top, v.h, v.full_h);
        const dr_taps across = dr_taps_of(ox, v.off_x, v.left, v.w, v.full_w);
        const float scale = 1.0f / (dr_taps_sum(&down) * dr_taps_sum(&across));
        for (int32_t c0 = 0; c0 < p.c; c0 += CHUNK) {
            float sum[CHUNK] = {};
            for (int32_t i = 0; i < across.n; i++) {
                const float share = dr_tap_share(&across, i);
                float column[CHUNK] = {};
                for (int32_t j = 0; j < down.n; j++) {
                    const float part = dr_tap_share(&down, j);
                    const int64_t at =
                        from + (int64_t)((down.first + j) * r.w + across.first + i) * p.c + c0;
#pragma unroll
                    for (int k = 0; k < CHUNK; k++) {
                        if (c0 + k < p.c) {
                            column[k] = column[k] + part * load(p, at + k);
                        }
                    }
                }
#pragma unroll
                for (int k = 0; k < CHUNK; k++) {
                    sum[k] = sum[k] + share * column[k];
                }
            }
#pragma unroll
            for (int k = 0; k < CHUNK; k++) {
                if (c0 + k < p.c) {
                    store(p, to + pixel * p.c + c0 + k, sum[k] * scale);
                }
            }
        }
    }
}

__global__ void resample_kernel(const dr_resample r, const dr_batch *batch, const planes all) {
    __shared__ dr_window window;
    const dr_plane &p = all.at[blockIdx.z];
    for (int64_t sample = blockIdx.y; sample < r.n; sample += gridDim.y) {
        __syncthreads();
        if (threadIdx.x == 0) {
            window = dr_window_of(&r, batch, sample);
        }
        __syncthreads();
        if (p.smooth) {
            resize_sample(r, p, window, sample);
        } else {
            move_sample(r, p, window, sample);
        }
    }
}

__device__ void turn_smooth(const dr_turn &t, const dr_plane &p, const dr_turned &m,
                            int64_t sample) {
    const int64_t base = sample * t.h * t.w * p.c;
    DR_GRID_LOOP(pixel, (int64_t)t.h * t.w) {
        const int32_t y = (int32_t)pixel / t.w, x = (int32_t)pixel - y * t.w;
        const dr_corners k = dr_corners_of(dr_turned_from(&m, x, y), t.h, t.w);
        for (int32_t ch = 0; ch < p.c; ch++) {
            float v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                v[i] = k.at[i] < 0 ? p.outside : load(p, base + (int64_t)k.at[i] * p.c + ch);
            }
            store(p, base + pixel * p.c + ch, dr_blend_corners(&k, v));
        }
    }
}

__device__ void turn_nearest(const dr_turn &t, const dr_plane &p, const dr_turned &m,
                             int64_t sample) {
    const int64_t base = sample * t.h * t.w * p.c;
    const uint32_t c = (uint32_t)p.c, w = (uint32_t)t.w;
    make_items(p, sample, t.h * t.w * p.c, [&](auto kind, int32_t e) {
        using T = decltype(kind);
        const uint32_t pixel = (uint32_t)e / c, ch = (uint32_t)e - pixel * c, y = pixel / w;
        const dr_place from = dr_turned_from(&m, (int32_t)(pixel - y * w), (int32_t)y);
        const int32_t at = dr_nearest_pixel(from, t.h, t.w);
        return at < 0 ? (T)p.fill : ((const T *)p.x)[base + (int64_t)at * p.c + ch];
    });
}

__global__ void turn_kernel(const dr_turn t, const dr_batch *batch, const planes all) {
    __shared__ dr_turned turned;
    const dr_plane &p = all.at[blockIdx.z];
    for (int64_t sample = blockIdx.y; sample < t.n; sample += gridDim.y) {
        __syncthreads();
        if (threadIdx.x == 0) {
            turned = dr_turn_of(&t, batch, sample);
        }
        __syncthreads();
        if (p.smooth) {
            turn_smooth(t, p, turned, sample);
        } else {
            turn_nearest(t, p, turned, sample);
        }
    }
}

planes planes_of(const dr_plane *p, uint32_t n) {
    planes all = {};
    for (uint32_t i = 0; i < n; i++) {
        all.at[i] = p[i];
    }
    return all;
}

} // namespace

extern "C" int dr_cuda_resample(const struct dr_resample *r, const struct dr_batch *batch,
                                const struct dr_plane *p, uint32_t n_planes, cudaStream_t s) {
    resample_kernel<<<dr_sample_grid((int64_t)r->ho * r->wo, r->n, n_planes), DR_THREADS, 0, s>>>(
        *r, batch, planes_of(p, n_planes));
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_turn(const struct dr_turn *t, const struct dr_batch *batch,
                            const struct dr_plane *p, uint32_t n_planes, cudaStream_t s) {
    turn_kernel<<<dr_sample_grid((int64_t)t->h * t->w, t->n, n_planes), DR_THREADS, 0, s>>>(
        *t, batch, planes_of(p, n_planes));
    return (int)cudaGetLastError();
}
