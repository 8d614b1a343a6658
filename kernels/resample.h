/* Crops and resizing: which part of an image an output shows, and how a pixel of it is made, for
 * every device.
 *
 * Every such op shows a window: a part of the input, brought to a size, of which the output is a
 * cutout. Moved pixels (masks; crops that do not resize) take the input's pixel floor(o * in /
 * out), as torch's "nearest", and the fill where that lies outside. Images that are resized take
 * torchvision's bilinear with antialias: a triangle as wide as the larger of an input and an output
 * pixel, its weights divided by their sum (PyTorch's UpSampleKernel, after Pillow). Columns first,
 * then rows. Draws follow torchvision.transforms.v2: RandomCrop, RandomResizedCrop. */
#ifndef DR_KERNELS_RESAMPLE_H
#define DR_KERNELS_RESAMPLE_H
#include "kernels/batch.h"
#include "kernels/exact.h"
#include "kernels/plane.h"

struct dr_window {
    int32_t top, left, h, w; /* the part; it may reach over the input's edge */
    int32_t full_h, full_w;  /* the size it is brought to */
    int32_t off_y, off_x;    /* where in that the output begins */
};
enum dr_windows {
    DR_WINDOW_FIXED, /* window, for every sample */
    DR_WINDOW_SHIFT, /* window, moved by up to places - 1 */
    DR_WINDOW_PART,  /* a random area and shape */
};
struct dr_resample {
    int32_t how, h, w, ho, wo; /* x [n, h, w, c], y [n, ho, wo, c] */
    int64_t n;
    struct dr_window window;
    int32_t places_y, places_x;
    double scale[2], ratio[2], log_ratio[2]; /* PART: least and most */
    uint64_t seed, key;
};

/* RandomResizedCrop.make_params: ten tries, else the largest middle part of a permitted shape. */
DR_HD static inline struct dr_window dr_window_part(const struct dr_resample *r, uint32_t epoch,
                                                    uint64_t sample) {
    struct dr_window v = {0, 0, r->h, r->w, r->ho, r->wo, 0, 0};
    for (uint32_t i = 0; i < 10; i++) {
        const struct dr_draw d = dr_philox(r->seed, r->key, epoch, sample, i);
        const double area = (double)r->h * r->w * dr_between(d.x[0], r->scale[0], r->scale[1]);
        const double shape = dr_exact_exp(dr_between(d.x[1], r->log_ratio[0], r->log_ratio[1]));
        const double w = rint(sqrt(area * shape)), h = rint(sqrt(area / shape));
        if (w >= 1 && w <= r->w && h >= 1 && h <= r->h) {
            v.w = (int32_t)w;
            v.h = (int32_t)h;
            v.top = dr_below(d.x[2], r->h - v.h + 1);
            v.left = dr_below(d.x[3], r->w - v.w + 1);
            return v;
        }
    }
    const double shape = (double)r->w / r->h;
    if (shape < r->ratio[0]) {
        const double h = rint(r->w / r->ratio[0]);
        v.h = h < 1 ? 1 : (int32_t)h;
    } else if (shape > r->ratio[1]) {
        const double w = rint(r->h * r->ratio[1]);
        v.w = w < 1 ? 1 : (int32_t)w;
    }
    v.top = (r->h - v.h) / 2;
    v.left = (r->w - v.w) / 2;
    return v;
}

/* The window of sample i of a batch; FIXED needs no batch. */
DR_HD static inline struct dr_window dr_window_of(const struct dr_resample *r,
                                                  const struct dr_batch *batch, int64_t i) {
    struct dr_window v = r->window;
    if (r->how == DR_WINDOW_PART) {
        return dr_window_part(r, batch->epoch, batch->sample[i]);
    }
    if (r->how == DR_WINDOW_SHIFT) {
        const struct dr_draw d = dr_philox(r->seed, r->key, batch->epoch, batch->sample[i], 0);
        v.top += dr_below(d.x[0], r->places_y);
        v.left += dr_below(d.x[1], r->places_x);
    }
    return v;
}

/* Where pixel o of the output's axis is moved from. */
DR_HD static inline int32_t dr_moved_from(int32_t o, int32_t off, int32_t first, int32_t in,
                                          int32_t full) {
    const uint32_t at = (uint32_t)(o + off);
    return first + (int32_t)(in == full ? at : at * (uint32_t)in / (uint32_t)full);
}

/* Pixels [first, first + n) of an axis, and how much of each is in one output: share(j) of pixel
 * first + j, to be divided by the sum of the shares. */
struct dr_taps {
    int32_t first, n;
    float at, slope; /* distance of pixel `first` from the centre; 1 / half width */
};
DR_HD static inline struct dr_taps dr_taps_of(int32_t o, int32_t off, int32_t first, int32_t in,
                                              int32_t full) {
    const double scale = (double)in / full, support = scale > 1 ? scale : 1;
    const double centre = scale * ((double)(o + off) + 0.5);
    const double low = dr_floor_d(centre - support + 0.5);
    const double high = dr_floor_d(centre + support + 0.5);
    const int32_t begin = low > 0 ? (int32_t)low : 0, end = high < in ? (int32_t)high : in;
    const struct dr_taps t = {first + begin, end - begin, (float)(begin + 0.5 - centre),
                              (float)(1 / support)};
    return t;
}
DR_HD static inline float dr_tap_share(const struct dr_taps *t, int32_t j) {
    const float far = fabsf(t->at + (float)j) * t->slope;
    return far < 1.0f ? 1.0f - far : 0.0f;
}
DR_HD static inline float dr_taps_sum(const struct dr_taps *t) {
    float sum = 0;
    for (int32_t j = 0; j < t->n; j++) {
        sum += dr_tap_share(t, j);
    }
    return sum;
}

/* A byte as torchvision rounds what it interpolated: to nearest, halves to even. */
DR_HD static inline uint8_t dr_round_u8(float v) {
    return (uint8_t)dr_nearest_f(v < 0.0f ? 0.0f : (v > 255.0f ? 255.0f : v));
}
#endif
