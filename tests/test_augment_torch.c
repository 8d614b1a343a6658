/* Crops, rotations, colours and blur against torchvision: tests/data/augment.safetensors holds what
 * it made of an image (tests/data/make_augment.py), by these parameters. */
#include "graph/safetensors.h"
#include "kernels/cpu/blur.h"
#include "kernels/cpu/colour.h"
#include "kernels/cpu/geometry.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 11, W = 17, C = 3 };

static struct dr_arena *arena;
static struct dr_safetensors file;
static struct dr_cpu cpu;
static struct dr_batch *batch; /* one sample */

static void begin(void) {
    char why[256];
    arena = dr_arena_create();
    batch = calloc(1, dr_batch_bytes(1));
    batch->n_valid = 1;
    cr_assert(dr_safetensors_open(arena, DR_SOURCE_DIR "/tests/data/augment.safetensors", &file,
                                  why, sizeof why),
              "%s", why);
}
static void end(void) {
    dr_safetensors_close(&file);
    free(batch);
    dr_arena_destroy(arena);
}
TestSuite(augment_torch, .init = begin, .fini = end);

static const struct dr_tensor *tensor(bool u8, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "%s.%s", u8 ? "byte" : "float", name);
    const struct dr_tensor *t = dr_safetensors_find(&file, full);
    cr_assert(t && strcmp(t->dtype, u8 ? "U8" : "F32") == 0, "%s", full);
    return t;
}
static double value(const struct dr_tensor *t, const unsigned char *data, uint64_t i) {
    float f;
    if (t->dtype[0] == 'U')
        return data[i];
    memcpy(&f, data + 4 * i, sizeof f);
    return (double)f;
}

/* `got` is within `tolerance` of the reference; of bytes, at most `others` differ, by 1. */
static void same(bool u8, const char *name, const void *got, double tolerance, int others) {
    const struct dr_tensor *t = tensor(u8, name);
    int other = 0;
    for (uint64_t i = 0; i < t->elements; i++) {
        const double right = value(t, t->data, i), v = value(t, got, i);
        cr_assert(fabs(v - right) <= (u8 ? 1 : tolerance), "%s[%d]: %.9g, not %.9g", t->name,
                  (int)i, v, right);
        other += u8 && v != right;
    }
    cr_expect_leq(other, others, "%s: %d bytes differ", t->name, other);
}

/* The image as a plane of its own memory; y has room for 40 * 40 pixels. */
static struct dr_plane plane(bool u8, bool smooth) {
    const struct dr_tensor *t = tensor(u8, "x");
    const float outside = u8 ? 7.0f : 0.25f;
    struct dr_plane p = {
        .outside = outside, .fill = 7, .c = C, .item = u8 ? 1 : 4, .smooth = smooth};
    void *x = dr_alloc(arena, t->bytes);
    memcpy(x, t->data, t->bytes);
    if (!u8)
        memcpy(&p.fill, &outside, sizeof outside);
    p.x = x;
    p.y = dr_alloc(arena, 40 * 40 * C * sizeof(float));
    return p;
}

Test(augment_torch, resize_and_resized_parts) {
    static const struct {
        int32_t top, left, h, w, ho, wo;
    } t[] = {{0, 0, H, W, 5, 9}, {0, 0, H, W, 11, 17}, {0, 0, H, W, 20, 33}, {0, 0, H, W, 3, 40},
             {0, 0, H, W, 1, 1}, {2, 3, 7, 9, 4, 4},   {0, 5, 11, 1, 6, 7},  {10, 16, 1, 1, 3, 2}};
    for (size_t k = 0; k < 2 * sizeof t / sizeof *t; k++) {
        const bool u8 = k % 2;
        const int32_t *p = &t[k / 2].top;
        const struct dr_plane x = plane(u8, true);
        float rows[2048];
        char name[64];
        if (p[2] == H && p[3] == W)
            snprintf(name, sizeof name, "resize_%dx%d", p[4], p[5]);
        else
            snprintf(name, sizeof name, "part_%d_%d_%d_%d_%dx%d", p[0], p[1], p[2], p[3], p[4],
                     p[5]);
        const struct dr_resample r = {.h = H,
                                      .w = W,
                                      .ho = p[4],
                                      .wo = p[5],
                                      .n = 1,
                                      .window = {p[0], p[1], p[2], p[3], p[4], p[5], 0, 0}};
        dr_cpu_resample(&cpu, &r, NULL, &x, rows);
        same(u8, name, x.y, 2e-6, 8); /* halves that sums in another order round otherwise */
    }
}

static void turn(struct dr_turn t, const char *name) {
    t.h = H;
    t.w = W;
    t.n = 1;
    for (int k = 0; k < 4; k++) {
        const bool u8 = k % 2, smooth = k / 2;
        const struct dr_plane x = plane(u8, smooth);
        char full[64];
        snprintf(full, sizeof full, name, smooth ? "bilinear" : "nearest");
        dr_cpu_turn(&cpu, &t, batch, &x);
        same(u8, full, x.y, 5e-5, smooth ? 4 : 0); /* torchvision's grid is float */
    }
}

Test(augment_torch, rotate) {
    turn((struct dr_turn){.degrees = {-33, -33}, .scale = {1, 1}}, "rotate_%s_33");
    turn((struct dr_turn){.degrees = {121, 121}, .scale = {1, 1}}, "rotate_%s_-121");
    turn((struct dr_turn){.degrees = {-180, -180}, .scale = {1, 1}}, "rotate_%s_180");
}

/* Angles and scales have ranges of one number; a shift is drawn from a range around 0, so a sample
 * is looked for that draws the wanted one. */
static void affine(double angle, int dx, int dy, double scale, double shear_x, double shear_y,
                   const char *name) {
    const struct dr_turn t = {.h = H,
                              .w = W,
                              .n = 1,
                              .degrees = {angle, angle},
                              .scale = {scale, scale},
                              .shear = {shear_x, shear_x, shear_y, shear_y},
                              .translate = {fabs((double)dx), fabs((double)dy)}};
    for (batch->sample[0] = 0; batch->sample[0] < 100000; batch->sample[0]++) {
        const struct dr_draw d = dr_philox(0, 0, 0, batch->sample[0], 0);
        if (rint(dr_between(d.x[1], -t.translate[0], t.translate[0])) == dx &&
            rint(dr_between(d.x[2], -t.translate[1], t.translate[1])) == dy)
            break;
    }
    cr_assert_lt(batch->sample[0], 100000);
    turn(t, name);
    batch->sample[0] = 0;
}

Test(augment_torch, affine) {
    affine(10, 3, -2, 1.3, 0, 0, "affine_%s_0");
    affine(-75, 0, 1, 0.6, 12, 0, "affine_%s_1");
    affine(200, -4, 0, 1.0, -20, 9, "affine_%s_2");
}

static void colour(bool u8, int what, double factor, const char *name) {
    struct dr_colour c = {.n = 1, .pixels = (int64_t)H * W, .c = C, .u8 = u8};
    const struct dr_plane x = plane(u8, false);
    c.grayscale = what == DR_JITTERS;
    c.p = 1;
    if (!c.grayscale) {
        c.on[what] = true;
        c.least[what] = c.most[what] = factor;
    }
    dr_cpu_colour(&cpu, &c, batch, x.x, x.y);
    same(u8, name, x.y, what == DR_HUE ? 2e-6 : 5e-7, 0);
}

Test(augment_torch, colours) {
    static const double factors[] = {0, 0.55, 1.45, 3}, shifts[] = {-0.5, -0.13, 0, 0.3};
    static const char *const names[] = {"brightness", "contrast", "saturation", "hue"};
    for (int u8 = 0; u8 < 2; u8++) {
        for (int what = 0; what < DR_JITTERS; what++)
            for (int k = 0; k < 4; k++) {
                const double by = what == DR_HUE ? shifts[k] : factors[k];
                char name[64];
                snprintf(name, sizeof name, "%s_%.2f", names[what], by);
                colour(u8, what, by, name);
            }
        colour(u8, DR_JITTERS, 0, "grey");
    }
}

Test(augment_torch, gaussian_blur) {
    static const struct {
        int32_t kh, kw;
        double sigma;
    } t[] = {{3, 3, 0.8}, {5, 9, 2.0}, {21, 1, 0.1}, {1, 33, 5.0}};
    for (size_t k = 0; k < 2 * sizeof t / sizeof *t; k++) {
        const bool u8 = k % 2;
        const struct dr_plane x = plane(u8, false);
        const struct dr_blur b = {.n = 1,
                                  .h = H,
                                  .w = W,
                                  .c = C,
                                  .kh = t[k / 2].kh,
                                  .kw = t[k / 2].kw,
                                  .u8 = u8,
                                  .sigma = {t[k / 2].sigma, t[k / 2].sigma}};
        float rows[2048];
        char name[64];
        snprintf(name, sizeof name, "blur_%dx%d_%.1f", b.kh, b.kw, t[k / 2].sigma);
        dr_cpu_blur(&cpu, &b, batch, x.x, rows, x.y);
        same(u8, name, x.y, 1e-6, 0);
    }
}
