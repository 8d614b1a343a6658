/* rotate and affine: where the pixel of an output comes from, for every device. As
 * torchvision.transforms.v2 (RandomRotation, RandomAffine, functional.affine): around the middle,
 * the size stays. Nearest takes the pixel whose centre is nearest, the later one of two. */
#ifndef DR_KERNELS_TURN_H
#define DR_KERNELS_TURN_H
#include "kernels/batch.h"
#include "kernels/exact.h"
#include "kernels/plane.h"

struct dr_turn {
    int32_t h, w;
    int64_t n;
    /* Least and most: angles in degrees, clockwise; the last two are of shear along y. */
    double degrees[2], scale[2], shear[4];
    double translate[2]; /* largest shift in x and in y, in pixels */
    uint64_t seed, key;
};

/* Output pixel (x, y) shows the input at (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]), both
 * counted from the middle, the input shifted by (cx, cy) in the end. */
struct dr_turned {
    double m[6], cx, cy;
};
DR_HD static inline struct dr_turned dr_turn_of(const struct dr_turn *t,
                                                const struct dr_batch *batch, int64_t i) {
    const uint64_t sample = batch->sample[i];
    const struct dr_draw d = dr_philox(t->seed, t->key, batch->epoch, sample, 0);
    const struct dr_draw e = dr_philox(t->seed, t->key, batch->epoch, sample, 1);
    const double angle = dr_between(d.x[0], t->degrees[0], t->degrees[1]);
    const double dx = rint(dr_between(d.x[1], -t->translate[0], t->translate[0]));
    const double dy = rint(dr_between(d.x[2], -t->translate[1], t->translate[1]));
    const double scale = dr_between(d.x[3], t->scale[0], t->scale[1]);
    const double shear_y = dr_between(e.x[1], t->shear[2], t->shear[3]);
    double sine, cosine, sine_y, cosine_y, sine_sum, cosine_sum, sine_x, cosine_x;
    dr_exact_turn(angle, &sine, &cosine);
    dr_exact_turn(dr_between(e.x[0], t->shear[0], t->shear[1]), &sine_x, &cosine_x);
    dr_exact_turn(shear_y, &sine_y, &cosine_y);
    dr_exact_turn(angle - shear_y, &sine_sum, &cosine_sum);
    /* Rotation, then shear (functional._geometry._get_inverse_affine_matrix), inverted. */
    const double tan_x = sine_x / cosine_x;
    const double a = cosine_sum / cosine_y, b = -a * tan_x - sine;
    const double c = sine_sum / cosine_y, f = -c * tan_x + cosine;
    struct dr_turned r = {
        {f / scale, -b / scale, 0, -c / scale, a / scale, 0}, 0.5 * (t->w - 1), 0.5 * (t->h - 1)};
    r.m[2] = -(r.m[0] * dx + r.m[1] * dy);
    r.m[5] = -(r.m[3] * dx + r.m[4] * dy);
    return r;
}

/* The place in the input, in pixels; pixel k's centre is at k. */
struct dr_place {
    double x, y;
};
DR_HD static inline struct dr_place dr_turned_from(const struct dr_turned *t, int32_t x,
                                                   int32_t y) {
    const double px = x - t->cx, py = y - t->cy;
    const struct dr_place p = {t->m[0] * px + t->m[1] * py + t->m[2] + t->cx,
                               t->m[3] * px + t->m[4] * py + t->m[5] + t->cy};
    return p;
}

/* The nearest pixel, -1: outside. */
DR_HD static inline int32_t dr_nearest_pixel(struct dr_place p, int32_t h, int32_t w) {
    const double x = dr_floor_d(p.x + 0.5), y = dr_floor_d(p.y + 0.5);
    return x >= 0 && x < w && y >= 0 && y < h ? (int32_t)y * w + (int32_t)x : -1;
}

/* The four pixels around a place (-1: outside) and how far it lies from the first. */
struct dr_corners {
    int32_t at[4];
    float right, down;
};
DR_HD static inline struct dr_corners dr_corners_of(struct dr_place p, int32_t h, int32_t w) {
    struct dr_corners k = {{-1, -1, -1, -1}, 0, 0};
    const double x = dr_floor_d(p.x), y = dr_floor_d(p.y);
    if (!(x >= -1 && x < w && y >= -1 && y < h)) {
        return k;
    }
    const int32_t xi = (int32_t)x, yi = (int32_t)y;
    k.right = (float)(p.x - x);
    k.down = (float)(p.y - y);
    for (int i = 0; i < 4; i++) {
        const int32_t cx = xi + i % 2, cy = yi + i / 2;
        k.at[i] = cx >= 0 && cx < w && cy >= 0 && cy < h ? cy * w + cx : -1;
    }
    return k;
}
DR_HD static inline float dr_blend_corners(const struct dr_corners *k, const float v[4]) {
    const float top = (1.0f - k->right) * v[0] + k->right * v[1];
    const float bottom = (1.0f - k->right) * v[2] + k->right * v[3];
    return (1.0f - k->down) * top + k->down * bottom;
}
#endif
