/* color_jitter, grayscale, gaussian_blur and random_erasing as ops: ranges, order, what is drawn,
 * what stays, and what is refused. tests/test_augment_torch.c has torchvision's values of each
 * step. */
#include "kernels/cpu/colour.h"
#include "kernels/mix.h"
#include "tests/test_augment.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct dr_cpu cpu;

static uint32_t run(struct rig *r, const char *op, const char *yaml, uint32_t x) {
    const uint32_t node = rig_op(r, "op", op, yaml, &x, 1);
    cr_assert_neq(node, DR_NONE, "%s %s: %s", op, yaml, rig_text(r));
    rig_run(r);
    return node;
}
static void *out(const struct rig *r, uint32_t node) {
    return r->at[rig_out(r, node, 0)];
}

/* ---- AUG-04 ---- */

/* One step by a fixed factor of the pixels of one sample. */
static void step(int what, double factor, int32_t c, const uint8_t *x, int64_t pixels, uint8_t *y) {
    struct dr_batch *b = calloc(1, dr_batch_bytes(1));
    struct dr_colour k = {.n = 1, .pixels = pixels, .c = c, .u8 = true};
    k.on[what] = true;
    k.least[what] = k.most[what] = factor;
    dr_cpu_colour(&cpu, &k, b, x, y);
    free(b);
}

Test(augment_colour, AUG_04_bytes_do_not_wrap) {
    uint8_t y[2];
    step(DR_BRIGHTNESS, 1.125, 1, (const uint8_t[]){240, 8}, 2, y); /* 240 + 30 */
    cr_expect(y[0] == 255 && y[1] == 9);
    step(DR_CONTRAST, 3, 1, (const uint8_t[]){5, 25}, 2, y); /* mean 15: 15 - 30, 15 + 30 */
    cr_expect(y[0] == 0 && y[1] == 45);
    step(DR_BRIGHTNESS, 1.5, 1, (const uint8_t[]){200, 170}, 2, y);
    cr_expect(y[0] == 255 && y[1] == 255);
}

/* A grey ramp stays one under every factor that is drawn: whatever wraps would break it. */
Test(augment_colour, AUG_04_a_ramp_stays_a_ramp) {
    enum { N = 500 };
    static uint8_t ramp[N * 256];
    static float real[N * 256];
    for (int i = 0; i < N * 256; i++) {
        ramp[i] = (uint8_t)i;
        real[i] = (float)(i % 256) / 255;
    }
    for (int u8 = 0; u8 < 2; u8++) {
        struct rig r = rig_create(N);
        const uint32_t x = rig_input(&r, "x", u8 ? DR_U8 : DR_F32, DR_SHAPE(N, 1, 256, 1), DR_IMAGE,
                                     u8 ? (void *)ramp : (void *)real);
        const void *y = out(&r, run(&r, "color_jitter", "{brightness: 0.9, contrast: 0.9}", x));
        for (int i = 0; i < N * 256; i++) {
            const float v = u8 ? (float)((const uint8_t *)y)[i] / 255 : ((const float *)y)[i];
            const float before = i % 256 == 0 ? 0
                                 : u8         ? (float)((const uint8_t *)y)[i - 1] / 255
                                              : ((const float *)y)[i - 1];
            cr_assert(v >= before && v <= 1, "%d: %g after %g", i, (double)v, (double)before);
        }
        rig_free(&r);
    }
}

/* Colours work on [0, 1]: after `normalize` they are refused, before it they are fine. */
Test(augment_colour, AUG_04_colours_come_before_normalize) {
    struct rig r = rig_create(1);
    const uint32_t x = rig_input(&r, "x", DR_U8, DR_SHAPE(1, 2, 2, 3), DR_IMAGE, NULL);
    const uint32_t norm = rig_op(&r, "norm", "normalize", "{mean: [0.5], std: [0.25]}", &x, 1);
    const uint32_t normed = rig_out(&r, norm, 0);
    const uint32_t flip = rig_op(&r, "flip", "random_flip", "{}", &normed, 1);
    const uint32_t flipped = rig_out(&r, flip, 0);
    cr_expect_eq(rig_op(&r, "jitter", "color_jitter", "{brightness: 0.2}", &flipped, 1), DR_NONE);
    cr_expect(strstr(rig_text(&r), "'norm' normalizes it; put colours before it"), "%s",
              rig_text(&r));
    const uint32_t wide = rig_op(&r, "wide", "normalize", "{std: [1, 0.5, 1]}", &x, 1);
    const uint32_t widened = rig_out(&r, wide, 0);
    cr_expect_eq(rig_op(&r, "grey", "grayscale", "{}", &widened, 1), DR_NONE);
    cr_expect(strstr(rig_text(&r), "'wide' normalizes it"), "%s", rig_text(&r));
    const uint32_t scale = /* to [0, 1] */
        rig_op(&r, "scale", "normalize", "{mean: [0], std: [1, 1, 1]}", &x, 1);
    const uint32_t scaled = rig_out(&r, scale, 0);
    const uint32_t fine = rig_op(&r, "fine", "color_jitter", "{brightness: 0.2}", &scaled, 1);
    cr_assert_neq(fine, DR_NONE);
    const uint32_t jittered = rig_out(&r, fine, 0);
    cr_expect_neq(rig_op(&r, "last", "normalize", "{mean: [0.5]}", &jittered, 1), DR_NONE);
    rig_free(&r);
}

/* ---- color_jitter ---- */

/* All 24 orders, factors over their ranges, a sample's own each. */
Test(augment_colour, jitter_draws) {
    enum { N = 5000 };
    struct dr_batch *b = calloc(1, dr_batch_bytes(1));
    const struct dr_colour c = {.least = {0.6, 0.5, 0, -0.1},
                                .most = {1.4, 1.5, 2, 0.1},
                                .on = {true, true, true, true},
                                .seed = 5,
                                .key = 11};
    int order[256] = {0}, orders = 0;
    float low[4] = {9, 9, 9, 9}, high[4] = {-9, -9, -9, -9};
    for (b->sample[0] = 0; b->sample[0] < N; b->sample[0]++) {
        const struct dr_coloured r = dr_colour_of(&c, b, 0);
        int at = 0;
        for (int k = 0; k < 4; k++) {
            at = at * 4 + r.order[k];
            low[k] = fminf(low[k], r.factor[k]);
            high[k] = fmaxf(high[k], r.factor[k]);
            cr_assert_float_eq((double)r.rest[k], 1 - (double)r.factor[k], 1e-6);
        }
        orders += order[at]++ == 0;
    }
    cr_expect_eq(orders, 24);
    for (int i = 0; i < 256; i++)
        cr_expect(order[i] == 0 || (order[i] > 130 && order[i] < 290), "order %d: %d", i, order[i]);
    for (int k = 0; k < 4; k++) {
        const double range = c.most[k] - c.least[k];
        cr_expect((double)low[k] >= c.least[k] - 1e-6 &&
                  (double)low[k] < c.least[k] + 0.01 * range);
        cr_expect((double)high[k] <= c.most[k] + 1e-6 &&
                  (double)high[k] > c.most[k] - 0.01 * range);
    }
    free(b);
}

/* The op is its steps one by one, in the order and by the factors that were drawn. */
Test(augment_colour, jitter_is_its_steps) {
    enum { N = 60, P = 35 };
    static uint8_t x[N * P * 3];
    for (int i = 0; i < N * P * 3; i++)
        x[i] = (uint8_t)(i * 37 % 256);
    struct rig r = rig_create(N);
    const uint32_t v = rig_input(&r, "x", DR_U8, DR_SHAPE(N, 5, 7, 3), DR_IMAGE, x);
    const uint32_t node =
        run(&r, "color_jitter", "{brightness: 0.3, contrast: 0.4, saturation: 0.5, hue: 0.2}", v);
    const uint8_t *y = out(&r, node);
    const struct dr_colour c = {.least = {0.7, 0.6, 0.5, -0.2},
                                .most = {1.3, 1.4, 1.5, 0.2},
                                .seed = 1, /* the rig's */
                                .key = r.g->node.at[node].key};
    for (int i = 0; i < N; i++) {
        const struct dr_batch *b = r.at[r.g->header];
        const struct dr_coloured d = dr_colour_of(&c, b, i);
        const struct dr_draw w = dr_philox(c.seed, c.key, b->epoch, b->sample[i], 0);
        uint8_t at[P * 3], next[P * 3];
        memcpy(at, x + i * P * 3, sizeof at);
        for (int k = 0; k < 4; k++) {
            const int what = d.order[k];
            const double factor = dr_between(w.x[what], c.least[what], c.most[what]);
            step(what, factor, 3, at, P, next);
            memcpy(at, next, sizeof at);
        }
        cr_assert_eq(memcmp(at, y + i * P * 3, sizeof at), 0, "sample %d", i);
    }
    rig_free(&r);
}

/* ---- grayscale ---- */

Test(augment_colour, grayscale_at_random) {
    enum { N = 2000 };
    static uint8_t x[N * 3];
    for (int i = 0; i < N; i++)
        x[3 * i] = 200, x[3 * i + 1] = 100, x[3 * i + 2] = 50;
    struct rig r = rig_create(N);
    const uint32_t v = rig_input(&r, "x", DR_U8, DR_SHAPE(N, 1, 1, 3), DR_IMAGE, x);
    const uint8_t *y = out(&r, run(&r, "grayscale", "{p: 0.25}", v));
    int grey = 0;
    for (int i = 0; i < N; i++) {
        const uint8_t *p = y + 3 * i;
        if (p[0] == 124) /* 0.2989 * 200 + 0.587 * 100 + 0.114 * 50 = 124.18 */
            cr_assert(++grey && p[1] == 124 && p[2] == 124);
        else
            cr_assert(p[0] == 200 && p[1] == 100 && p[2] == 50);
    }
    cr_expect(grey > 410 && grey < 590, "%d of %d", grey, N);
    rig_free(&r);
}

/* ---- gaussian_blur ---- */

/* A point becomes the outer product of the weights; they sum to 1 and differ by sample. */
Test(augment_colour, blur_of_a_point) {
    enum { N = 8, S = 11, K = 5 };
    static float x[N * S * S];
    for (int i = 0; i < N; i++)
        x[i * S * S + S * S / 2] = 1;
    struct rig r = rig_create(N);
    const uint32_t v = rig_floats(&r, "x", DR_SHAPE(N, S, S, 1), x);
    const float *y = out(&r, run(&r, "gaussian_blur", "{kernel: 5, sigma: [0.5, 3]}", v));
    double last = 0;
    for (int i = 0; i < N; i++) {
        const float *at = y + i * S * S + S * S / 2;
        /* weight[1] / weight[0] = exp(-1 / (2 sigma^2)). */
        const double q = (double)at[1] / (double)at[0], sigma = sqrt(-0.5 / log(q));
        double sum = 0;
        cr_expect(sigma >= 0.499 && sigma <= 3.001 && sigma != last, "%g", sigma);
        last = sigma;
        for (int dy = -K / 2; dy <= K / 2; dy++)
            for (int dx = -K / 2; dx <= K / 2; dx++) {
                const double want = (double)at[0] * pow(q, dx * dx + dy * dy);
                cr_expect_float_eq((double)at[dy * S + dx], want, 1e-6);
                sum += (double)at[dy * S + dx];
            }
        cr_expect_float_eq(sum, 1, 1e-6);
        cr_expect_eq(at[3], 0);
    }
    rig_free(&r);
}

/* ---- random_erasing ---- */

Test(augment_colour, erasing) {
    enum { N = 2000, H = 20, W = 30 };
    static uint8_t x[N * H * W];
    memset(x, 9, sizeof x);
    struct rig r = rig_create(N);
    const uint32_t v = rig_input(&r, "x", DR_U8, DR_SHAPE(N, H, W, 1), DR_IMAGE, x);
    const uint8_t *y = out(&r, run(&r, "random_erasing",
                                   "{p: 0.5, scale: [0.1, 0.3], ratio: [0.5, 2], value: 200}", v));
    int erased = 0;
    for (int i = 0; i < N; i++) {
        int top = H, left = W, bottom = -1, right = -1, count = 0;
        for (int k = 0; k < H * W; k++) {
            const uint8_t p = y[i * H * W + k];
            cr_assert(p == 9 || p == 200);
            if (p == 9)
                continue;
            count++;
            top = k / W < top ? k / W : top;
            bottom = k / W > bottom ? k / W : bottom;
            left = k % W < left ? k % W : left;
            right = k % W > right ? k % W : right;
        }
        if (count == 0)
            continue;
        const int h = bottom - top + 1, w = right - left + 1;
        erased++;
        cr_assert_eq(count, h * w, "not a rectangle");
        cr_assert(count > 600 * 0.1 - 12 && count < 600 * 0.3 + 12, "%d pixels", count);
        cr_assert((double)h / w > 0.43 && (double)h / w < 2.3, "%d x %d", h, w);
    }
    cr_expect(erased > 900 && erased < 1100, "%d of %d", erased, N);
    rig_free(&r);
}

/* ---- refused ---- */

Test(augment_colour, refuses) {
    static const struct rig_refused t[] = {
        {"color_jitter",
         "{hue: 0.1}",
         DR_U8,
         {3, {4, 3, 3}},
         DR_MASK,
         "'v' is a mask: color_jitter changes images alone"},
        {"grayscale", "{}", DR_U8, {3, {4, 3, 3}}, DR_MASK, "changes images alone"},
        {"gaussian_blur", "{kernel: 3}", DR_U8, {3, {4, 3, 3}}, DR_MASK, "changes images alone"},
        {"random_erasing", "{}", DR_U8, {3, {4, 3, 3}}, DR_MASK, "changes images alone"},
        {"random_erasing", "{}", DR_I32, {1, {4}}, DR_LABEL, "'v' is a label"},
        {"color_jitter", "{}", DR_U8, {4, {4, 3, 3, 4}}, DR_IMAGE, "'v' has 4 channels"},
        {"color_jitter", "{}", DR_U16, {4, {4, 3, 3, 3}}, DR_IMAGE, "'v' is u16"},
        {"color_jitter", "{hue: 0.6}", DR_U8, {4, {4, 3, 3, 3}}, DR_IMAGE, "hue"},
        {"color_jitter", "{brightness: -0.1}", DR_U8, {4, {4, 3, 3, 3}}, DR_IMAGE, "brightness"},
        {"grayscale", "{p: 2}", DR_U8, {4, {4, 3, 3, 3}}, DR_IMAGE, "p"},
        {"gaussian_blur", "{kernel: 4}", DR_U8, {4, {4, 9, 9, 3}}, DR_IMAGE, "sizes are odd"},
        {"gaussian_blur", "{kernel: 7}", DR_U8, {4, {4, 3, 9, 3}}, DR_IMAGE, "reflection of 'v'"},
        {"gaussian_blur",
         "{kernel: 3, sigma: [0, 1]}",
         DR_U8,
         {4, {4, 3, 9, 3}},
         DR_IMAGE,
         "sigma"},
        {"gaussian_blur",
         "{kernel: 3, sigma: [2, 1]}",
         DR_U8,
         {4, {4, 3, 9, 3}},
         DR_IMAGE,
         "is above the most"},
        {"gaussian_blur", "{}", DR_U8, {4, {4, 3, 9, 3}}, DR_IMAGE, "'kernel' is missing"},
        {"random_erasing",
         "{value: -1}",
         DR_U8,
         {4, {4, 3, 3, 3}},
         DR_IMAGE,
         "value -1 is no value of 'v'"},
        {"random_erasing", "{scale: [0, 2]}", DR_U8, {4, {4, 3, 3, 3}}, DR_IMAGE, "scale"},
    };
    rig_refuses(t, COUNT(t), false);
}
