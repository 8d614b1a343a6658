/* Convolutions on the CPU: cases from other projects' bugs with values worked out by hand, and a
 * random sweep of fprop, dgrad and wgrad against naive double loops, on every tile set that the
 * machine runs. Outputs and workspaces are NaN before each call; buffers have exactly the size that
 * is asked for, so that AddressSanitizer sees each step beside them. */
#include "kernels/cpu/conv.h"
#include "kernels/cpu/conv_ref.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NONE, RELU, TANH }; /* kernels/cpu/activation.h */
static struct dr_cpu no_pool = {NULL};

static void *nan_bytes(size_t bytes) {
    void *p = NULL;
    cr_assert_eq(posix_memalign(&p, 64, bytes ? bytes : 1), 0);
    memset(p, 0xff, bytes); /* a NaN in every float and double */
    return p;
}

static float *nan_floats(int64_t n) {
    return nan_bytes((size_t)n * sizeof(float));
}

/* 1 x 1 x ... shapes: fills in what the others follow from. */
static struct dr_conv shape(struct dr_conv s) {
    const int64_t one = 1;
    int64_t *const defaults[] = {&s.n, &s.c, &s.k, &s.sh, &s.sw, &s.dh, &s.dw, &s.groups};
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        *defaults[i] = *defaults[i] ? *defaults[i] : one;
    }
    s.ho = (s.h + s.pt + s.pb - (s.dh * (s.kh - 1) + 1)) / s.sh + 1;
    s.wo = (s.w + s.pl + s.pr - (s.dw * (s.kw - 1) + 1)) / s.sw + 1;
    return s;
}
static int64_t x_size(const struct dr_conv *s) {
    return s->n * s->h * s->w * s->c;
}
static int64_t w_size(const struct dr_conv *s) {
    return s->k * s->kh * s->kw * (s->c / s->groups);
}
static int64_t y_size(const struct dr_conv *s) {
    return s->n * s->ho * s->wo * s->k;
}

static float *fprop(struct dr_cpu *cpu, const struct dr_tiles *t, const struct dr_conv *s,
                    const float *x, const float *w, const float *bias, int act) {
    float *y = nan_floats(y_size(s));
    void *ws = nan_bytes((size_t)dr_conv_fprop_workspace(s));
    dr_conv_fprop(cpu, t, s, x, w, &(struct dr_epilogue){.bias = bias, .act = act}, y, ws);
    free(ws);
    return y;
}
static float *dgrad(struct dr_cpu *cpu, const struct dr_tiles *t, const struct dr_conv *s,
                    const float *dy, const float *w) {
    float *dx = nan_floats(x_size(s));
    void *ws = nan_bytes((size_t)dr_conv_dgrad_workspace(s));
    dr_conv_dgrad(cpu, t, s, dy, w, dx, ws);
    free(ws);
    return dx;
}
static float *wgrad(struct dr_cpu *cpu, const struct dr_tiles *t, const struct dr_conv *s,
                    const float *x, const float *dy) {
    float *dw = nan_floats(w_size(s));
    void *ws = nan_bytes((size_t)dr_conv_wgrad_workspace(s));
    dr_conv_wgrad(cpu, t, s, x, dy, dw, ws);
    free(ws);
    return dw;
}

static void equal(const char *what, const struct dr_tiles *t, const float *got, const float *want,
                  int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        cr_expect_eq(got[i], want[i], "%s (%s): [%d] is %g, not %g", what, dr_tiles_name(t), (int)i,
                     (double)got[i], (double)want[i]);
    }
}

/* from, from + 1, ... */
static float *counting(int64_t n) {
    float *p = nan_floats(n);
    for (int64_t i = 0; i < n; i++) {
        p[i] = (float)(i + 1);
    }
    return p;
}
static float *filled(int64_t n, float value) {
    float *p = nan_floats(n);
    for (int64_t i = 0; i < n; i++) {
        p[i] = value;
    }
    return p;
}

#define EACH_TILES(t)                                                                              \
    for (unsigned i_##t = 0; dr_tiles_at(i_##t) != NULL; i_##t++)                                  \
        for (const struct dr_tiles *t = dr_tiles_at(i_##t), *once_##t = t; once_##t;               \
             once_##t = NULL)

static void check_fprop(const char *what, struct dr_conv s, const float *x, const float *w,
                        const float *want) {
    EACH_TILES(t) {
        float *y = fprop(&no_pool, t, &s, x, w, NULL, NONE);
        equal(what, t, y, want, y_size(&s));
        free(y);
    }
}

Test(conv, CONV_01_four_pads) {
    const struct dr_conv s =
        shape((struct dr_conv){.h = 3, .w = 3, .kh = 2, .kw = 2, .pl = 1, .pb = 2, .pr = 3});
    cr_assert(s.ho == 4 && s.wo == 6);
    const float w[] = {1, 2, 3, 4};
    const float y[] = {18, 37, 47, 21, 0, 0, 36, 67, 77, 33, 0, 0,
                       14, 23, 26, 9,  0, 0, 0,  0,  0,  0,  0, 0};
    const float dx[] = {4, 7, 10, 32, 42, 52, 92, 102, 112};
    const float dw[] = {519, 474, 265, 226};
    float *x = counting(9), *dy = counting(24);
    check_fprop("y", s, x, w, y);
    EACH_TILES(t) {
        float *got_dx = dgrad(&no_pool, t, &s, dy, w), *got_dw = wgrad(&no_pool, t, &s, x, dy);
        equal("dx", t, got_dx, dx, 9);
        equal("dw", t, got_dw, dw, 4);
        free(got_dx);
        free(got_dw);
    }
    free(x);
    free(dy);
}

Test(conv, CONV_03_nx1_kernels) {
    const float w[] = {1, 10, 100};
    float *x = counting(20);
    const float a[] = {951, 1062, 1173, 1284, 1395, 1506, 1617, 1728, 1839, 1950, 2061, 2172};
    check_fprop("3x1", shape((struct dr_conv){.h = 5, .w = 4, .kh = 3, .kw = 1}), x, w, a);
    const float b[] = {321, 432, 765, 876, 1209, 1320, 1653, 1764, 2097, 2208};
    check_fprop("1x3", shape((struct dr_conv){.h = 5, .w = 4, .kh = 1, .kw = 3}), x, w, b);
    const float c[] = {951, 1173, 1839, 2061};
    check_fprop("3x1 stride 2",
                shape((struct dr_conv){.h = 5, .w = 4, .kh = 3, .kw = 1, .sh = 2, .sw = 2}), x, w,
                c);
    free(x);
}

Test(conv, CONV_04_stride_tails_overwrite) {
    float *x = counting(36), *ones = filled(9, 1);
    const struct dr_conv a =
        shape((struct dr_conv){.h = 6, .w = 6, .kh = 3, .kw = 3, .sh = 2, .sw = 2});
    const float y_a[] = {72, 90, 180, 198};
    check_fprop("(a)", a, x, ones, y_a);
    const float y_b[] = {45};
    check_fprop("(b)", shape((struct dr_conv){.h = 3, .w = 3, .kh = 3, .kw = 3}), x, ones, y_b);
    float w_c[45];
    for (int i = 0; i < 45; i++) {
        w_c[i] = (float)(i / 9 + 1);
    }
    const float y_c[] = {45, 90, 135, 180, 225};
    check_fprop("(c)", shape((struct dr_conv){.h = 3, .w = 3, .kh = 3, .kw = 3, .k = 5}), x, w_c,
                y_c);
    EACH_TILES(t) { /* (d): a second run over the first one's output and workspace */
        float *y = nan_floats(4);
        void *ws = nan_bytes((size_t)dr_conv_fprop_workspace(&a));
        dr_conv_fprop(&no_pool, t, &a, x, ones, &(struct dr_epilogue){0}, y, ws);
        dr_conv_fprop(&no_pool, t, &a, x, ones, &(struct dr_epilogue){0}, y, ws);
        equal("(d)", t, y, y_a, 4);
        free(ws);
        free(y);
    }
    const float w_e[] = {1, 10}, y_e[] = {21, 54};
    check_fprop("(e)", shape((struct dr_conv){.h = 1, .w = 7, .kh = 1, .kw = 2, .sw = 3}), x, w_e,
                y_e);
    free(x);
    free(ones);
}

Test(conv, CONV_05_kernel_3_on_input_1_with_pads) {
    const struct dr_conv s = shape(
        (struct dr_conv){.h = 1, .w = 1, .kh = 3, .kw = 3, .pt = 1, .pl = 1, .pb = 1, .pr = 1});
    cr_assert(s.ho == 1 && s.wo == 1);
    float *w = counting(9);
    const float x[] = {2}, y[] = {10};
    check_fprop("y", s, x, w, y);
    free(w);
}

Test(conv, CONV_07_channels) {
    float *ones = filled(9 * 17, 1);
    const float x_a[] = {0, 0, 0, 1};
    const float y_a[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    check_fprop(
        "(a)",
        shape((struct dr_conv){.h = 1, .w = 1, .c = 4, .k = 16, .kh = 1, .kw = 1, .groups = 2}),
        x_a, ones, y_a);
    const float x_b[] = {1, 2, 3, 4, 5, 6}, y_b[] = {3, 3, 3, 7, 7, 7, 11, 11, 11};
    check_fprop(
        "(b)",
        shape((struct dr_conv){.h = 1, .w = 1, .c = 6, .k = 9, .kh = 1, .kw = 1, .groups = 3}), x_b,
        ones, y_b);
    const struct dr_conv c =
        shape((struct dr_conv){.h = 2, .w = 2, .c = 3, .k = 3, .kh = 2, .kw = 2, .groups = 3});
    const float x_c[] = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}, y_c[] = {4, 8, 12};
    const float dy_c[] = {10, 20, 30}, dw_c[] = {10, 10, 10, 10, 40, 40, 40, 40, 90, 90, 90, 90};
    check_fprop("(c)", c, x_c, ones, y_c);
    EACH_TILES(t) {
        float *dw = wgrad(&no_pool, t, &c, x_c, dy_c);
        equal("(c) dw", t, dw, dw_c, 12);
        free(dw);
    }
    for (int64_t n = 9; n <= 17; n += 8) {
        float w[9 * 17];
        for (int64_t i = 0; i < 9 * n; i++) {
            w[i] = (float)(i % n + 1);
        }
        const float want[] = {n == 9 ? 405 : 1377};
        check_fprop("(d)", shape((struct dr_conv){.h = 3, .w = 3, .c = n, .kh = 3, .kw = 3}), ones,
                    w, want);
    }
    const struct dr_conv e =
        shape((struct dr_conv){.n = 2, .h = 1, .w = 3, .k = 3, .kh = 1, .kw = 1});
    const float w_e[3] = {0}, bias[] = {10, 20, 30};
    EACH_TILES(t) {
        float *y = fprop(&no_pool, t, &e, ones, w_e, bias, NONE);
        for (int i = 0; i < 18; i++) {
            cr_expect_eq(y[i], bias[i % 3]);
        }
        free(y);
    }
    free(ones);
}

/* The shape alone is 10^10 bytes: sizes are worked out in 64 bits and stick where they overflow. */
Test(conv, CONV_09_sizes_of_workspaces) {
    const struct dr_conv b = shape((struct dr_conv){
        .h = 2048, .w = 2048, .c = 514, .kh = 3, .kw = 3, .pt = 1, .pl = 1, .pb = 1, .pr = 1});
    cr_expect_eq(x_size(&b), INT64_C(2155872256));
    cr_expect_gt(dr_conv_fprop_workspace(&b), 0);
    cr_expect_lt(dr_conv_fprop_workspace(&b), INT64_C(1) << 28, "a tile at a time, not the tensor");
    const int64_t big = INT64_C(1) << 28;
    const struct dr_conv c = shape((struct dr_conv){
        .h = big, .w = big, .c = big, .k = big, .kh = big, .kw = big, .groups = big});
    cr_expect_eq(dr_conv_fprop_workspace(&c), INT64_MAX);
    cr_expect_eq(dr_conv_dgrad_workspace(&c), INT64_MAX);
    cr_expect_eq(dr_conv_wgrad_workspace(&c), INT64_MAX);
}

Test(conv, CONV_13_long_sums) {
    /* (a) 256 times +256, then 256 times -256 */
    float x_a[512], w_a[512];
    for (int i = 0; i < 512; i++) {
        x_a[i] = 16;
        w_a[i] = i < 256 ? 16 : -16;
    }
    const float zero[] = {0};
    check_fprop("(a)", shape((struct dr_conv){.h = 1, .w = 1, .c = 512, .kh = 1, .kw = 1}), x_a,
                w_a, zero);
    /* (e) no TF32 */
    const float x_e[] = {1.00048828125F}, one[] = {1};
    check_fprop("(e)", shape((struct dr_conv){.h = 1, .w = 1, .kh = 1, .kw = 1}), x_e, one, x_e);
    /* (c) at fp32's limit: infinity stays */
    const float x_c[] = {3e38F}, two[] = {2}, inf[] = {INFINITY};
    check_fprop("(c)", shape((struct dr_conv){.h = 1, .w = 1, .kh = 1, .kw = 1}), x_c, two, inf);
    /* (d) one fp32 sum sticks at 16,777,216 */
    const struct dr_conv s = shape((struct dr_conv){.n = 4097, .h = 64, .w = 64, .kh = 1, .kw = 1});
    const float want[] = {16781312};
    float *x = filled(x_size(&s), 1);
    EACH_TILES(t) {
        float *dw = wgrad(&no_pool, t, &s, x, x);
        equal("(d)", t, dw, want, 1);
        free(dw);
    }
    free(x);
}

Test(conv, relu_and_tanh_keep_nan) {
    const struct dr_conv s = shape((struct dr_conv){.h = 1, .w = 5, .k = 3, .kh = 1, .kw = 1});
    const float x[] = {NAN, -1, -0.0F, 2, -INFINITY}, w[] = {1, 1, 1};
    EACH_TILES(t) {
        float *relu = fprop(&no_pool, t, &s, x, w, NULL, RELU);
        float *tanhs = fprop(&no_pool, t, &s, x, w, NULL, TANH);
        for (int k = 0; k < 3; k++) {
            cr_expect(isnan(relu[k]) && relu[3 + k] == 0 && relu[6 + k] == 0 && relu[9 + k] == 2 &&
                      relu[12 + k] == 0);
            cr_expect(isnan(tanhs[k]) && tanhs[3 + k] == tanhf(-1) && tanhs[12 + k] == -1);
        }
        free(relu);
        free(tanhs);
    }
}

/* ---- random sweep ---- */
static uint64_t state;
static uint32_t next(void) { /* SplitMix64 */
    uint64_t z = (state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}
static int64_t between(int64_t a, int64_t b) {
    return a + (int64_t)(next() % (uint32_t)(b - a + 1));
}
static float *random_floats(int64_t n) {
    float *p = nan_floats(n);
    for (int64_t i = 0; i < n; i++) {
        p[i] = (float)next() * 0x1p-31F - 1;
    }
    return p;
}

static const int64_t channels[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 33};
static int64_t pick_channels(void) {
    return channels[next() % (sizeof channels / sizeof *channels)];
}

/* Groups 1, C (depthwise, one or two filters a channel) or an odd number; both channel counts are
 * multiples of it. */
static void pick_groups(struct dr_conv *s) {
    s->c = pick_channels();
    s->k = pick_channels();
    s->groups = 1;
    if (next() % 3 == 0) {
        s->groups = s->c;
        s->k = s->c * between(1, 2);
    } else if (next() % 2 == 0) {
        const int64_t odd[] = {3, 5, 7};
        s->groups = odd[next() % 3];
        s->c = s->groups * between(1, 6);
        s->k = s->groups * between(1, 6);
    }
}

static struct dr_conv random_shape(void) {
    struct dr_conv s = {.n = between(1, 3)};
    pick_groups(&s);
    s.kh = between(1, 7);
    s.kw = between(1, 7);
    s.sh = between(1, 4);
    s.sw = between(1, 4);
    s.dh = between(1, 3);
    s.dw = between(1, 3);
    s.pt = between(0, 4);
    s.pl = between(0, 4);
    s.pb = between(0, 4);
    s.pr = between(0, 4);
    const int64_t least_h = s.dh * (s.kh - 1) + 1 - s.pt - s.pb;
    const int64_t least_w = s.dw * (s.kw - 1) + 1 - s.pl - s.pr;
    s.h = (least_h < 1 ? 1 : least_h) + between(0, 7);
    s.w = (least_w < 1 ? 1 : least_w) + between(0, 9);
    return shape(s);
}

static double relative_error(const float *got, const double *want, int64_t n) {
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

static void near(const char *what, const struct dr_tiles *t, const struct dr_conv *s, float *got,
                 const double *want, int64_t n) {
    const double e = relative_error(got, want, n);
    cr_expect(e < 1e-5,
              "%s (%s): error %g; x [%d, %d, %d, %d] k %d kernel %dx%d stride %d %d dilation %d %d "
              "pads %d %d %d %d groups %d",
              what, dr_tiles_name(t), e, (int)s->n, (int)s->h, (int)s->w, (int)s->c, (int)s->k,
              (int)s->kh, (int)s->kw, (int)s->sh, (int)s->sw, (int)s->dh, (int)s->dw, (int)s->pt,
              (int)s->pl, (int)s->pb, (int)s->pr, (int)s->groups);
    free(got);
}

static void against_reference(const struct dr_conv *s) {
    float *x = random_floats(x_size(s)), *w = random_floats(w_size(s));
    float *dy = random_floats(y_size(s)), *bias = random_floats(s->k);
    double *y = nan_bytes((size_t)y_size(s) * sizeof *y);
    double *dx = nan_bytes((size_t)x_size(s) * sizeof *dx);
    double *dw = nan_bytes((size_t)w_size(s) * sizeof *dw);
    dr_conv_ref_fprop(s, x, w, bias, y);
    dr_conv_ref_dgrad(s, dy, w, dx);
    dr_conv_ref_wgrad(s, x, dy, dw);
    EACH_TILES(t) {
        near("y", t, s, fprop(&no_pool, t, s, x, w, bias, NONE), y, y_size(s));
        near("dx", t, s, dgrad(&no_pool, t, s, dy, w), dx, x_size(s));
        near("dw", t, s, wgrad(&no_pool, t, s, x, dy), dw, w_size(s));
    }
    void *const all[] = {x, w, dy, bias, y, dx, dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

Test(conv, random_shapes_against_double) {
    state = 1;
    for (int i = 0; i < 600; i++) {
        const struct dr_conv s = random_shape();
        against_reference(&s);
    }
}

/* Tiles of one row that is cut into segments, tiles of several images, windows over 1 MiB, strides
 * that leave dgrad phases without taps. */
Test(conv, tilings_against_double) {
    const struct dr_conv table[] = {
        {.n = 1, .h = 3, .w = 700, .c = 3, .k = 17, .kh = 3, .kw = 5, .pl = 2, .pr = 1},
        {.n = 1, .h = 4, .w = 391, .c = 2, .k = 3, .kh = 2, .kw = 4, .sw = 2, .dw = 3, .pl = 3},
        {.n = 70, .h = 1, .w = 1, .c = 9, .k = 33, .kh = 1, .kw = 1},
        {.n = 9,
         .h = 7,
         .w = 7,
         .c = 4,
         .k = 40,
         .kh = 3,
         .kw = 3,
         .pt = 1,
         .pl = 1,
         .pb = 1,
         .pr = 1},
        {.n = 1, .h = 7, .w = 80, .c = 900, .k = 2, .kh = 7, .kw = 2},
        {.n = 2, .h = 11, .w = 10, .c = 5, .k = 6, .kh = 2, .kw = 1, .sh = 4, .sw = 3},
        {.n = 2, .h = 9, .w = 9, .c = 16, .k = 64, .kh = 1, .kw = 1, .sh = 2, .sw = 2},
        {.n = 1, .h = 5, .w = 5, .c = 1, .k = 1, .kh = 1, .kw = 1, .pt = 3, .pl = 4, .pb = 2},
        {.n = 1, .h = 3, .w = 400, .c = 40, .k = 40, .kh = 3, .kw = 3, .pl = 2, .groups = 40},
        {.n = 3, .h = 5, .w = 4, .c = 65, .k = 65, .kh = 1, .kw = 1, .groups = 65},
        {.n = 2,
         .h = 9,
         .w = 9,
         .c = 70,
         .k = 70,
         .kh = 5,
         .kw = 3,
         .sh = 2,
         .dw = 2,
         .groups = 70},
    };
    state = 2;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct dr_conv s = shape(table[i]);
        against_reference(&s);
    }
}

/* Infinities and NaN land where the definition puts them, also through padding. */
static void same_non_finite(const char *what, const struct dr_tiles *t, float *got,
                            const double *want, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        cr_expect(isnan(want[i])   ? isnan(got[i])
                  : isinf(want[i]) ? (double)got[i] == want[i]
                                   : isfinite(got[i]),
                  "%s (%s): [%d] is %g, not %g", what, dr_tiles_name(t), (int)i, (double)got[i],
                  want[i]);
    }
    free(got);
}

Test(conv, non_finite_values_follow_the_definition) {
    state = 3;
    for (int i = 0; i < 60; i++) {
        const struct dr_conv s = random_shape();
        float *x = random_floats(x_size(&s)), *w = random_floats(w_size(&s));
        float *dy = random_floats(y_size(&s));
        float *const poisoned = i % 3 == 0 ? x : i % 3 == 1 ? w : dy;
        const int64_t n = i % 3 == 0 ? x_size(&s) : i % 3 == 1 ? w_size(&s) : y_size(&s);
        poisoned[next() % (uint32_t)n] = i % 2 ? INFINITY : NAN;
        double *y = nan_bytes((size_t)y_size(&s) * sizeof *y);
        double *dx = nan_bytes((size_t)x_size(&s) * sizeof *dx);
        double *dw = nan_bytes((size_t)w_size(&s) * sizeof *dw);
        dr_conv_ref_fprop(&s, x, w, NULL, y);
        dr_conv_ref_dgrad(&s, dy, w, dx);
        dr_conv_ref_wgrad(&s, x, dy, dw);
        EACH_TILES(t) {
            same_non_finite("y", t, fprop(&no_pool, t, &s, x, w, NULL, NONE), y, y_size(&s));
            same_non_finite("dx", t, dgrad(&no_pool, t, &s, dy, w), dx, x_size(&s));
            same_non_finite("dw", t, wgrad(&no_pool, t, &s, x, dy), dw, w_size(&s));
        }
        void *const all[] = {x, w, dy, y, dx, dw};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++) {
            free(all[j]);
        }
    }
}

Test(conv, bits_do_not_depend_on_threads) {
    const struct dr_conv s = shape((struct dr_conv){.n = 8,
                                                    .h = 28,
                                                    .w = 29,
                                                    .c = 12,
                                                    .k = 36,
                                                    .kh = 3,
                                                    .kw = 3,
                                                    .pt = 1,
                                                    .pl = 1,
                                                    .groups = 2});
    state = 4;
    float *x = random_floats(x_size(&s)), *w = random_floats(w_size(&s));
    float *dy = random_floats(y_size(&s));
    float *y = fprop(&no_pool, dr_tiles(), &s, x, w, NULL, NONE);
    float *dx = dgrad(&no_pool, dr_tiles(), &s, dy, w),
          *dw = wgrad(&no_pool, dr_tiles(), &s, x, dy);
    for (size_t threads = 2; threads <= 5; threads += 3) {
        struct dr_cpu cpu = {pthreadpool_create(threads)};
        float *y2 = fprop(&cpu, dr_tiles(), &s, x, w, NULL, NONE);
        float *dx2 = dgrad(&cpu, dr_tiles(), &s, dy, w), *dw2 = wgrad(&cpu, dr_tiles(), &s, x, dy);
        cr_expect_eq(memcmp(y, y2, (size_t)y_size(&s) * sizeof *y), 0);
        cr_expect_eq(memcmp(dx, dx2, (size_t)x_size(&s) * sizeof *dx), 0);
        cr_expect_eq(memcmp(dw, dw2, (size_t)w_size(&s) * sizeof *dw), 0);
        free(y2);
        free(dx2);
        free(dw2);
        pthreadpool_destroy(cpu.pool);
    }
    void *const all[] = {x, w, dy, y, dx, dw};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++) {
        free(all[j]);
    }
}

/* One parameter a filter, all of them at once, bit for bit what separate passes give; full and
 * partial vectors of filters, depthwise too. */
Test(conv, epilogues_of_every_tile_set) {
    static const struct {
        int64_t c, k, groups;
    } row[] = {{3, 64, 1}, {2, 5, 1}, {8, 40, 2}, {37, 37, 37}};
    state = 9;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const struct dr_conv s = shape((struct dr_conv){.n = 2,
                                                        .h = 7,
                                                        .w = 9,
                                                        .c = row[i].c,
                                                        .k = row[i].k,
                                                        .kh = 3,
                                                        .kw = 2,
                                                        .pt = 1,
                                                        .groups = row[i].groups});
        const int64_t n = y_size(&s), k = s.k;
        float *x = random_floats(x_size(&s)), *w = random_floats(w_size(&s));
        float *v[5], *add = random_floats(n);
        for (int j = 0; j < 5; j++) {
            v[j] = random_floats(k);
        }
        for (int64_t j = 0; j < k; j++) {
            v[4][j] = v[4][j] * v[4][j] + 0.1f;
        }
        for (int parts = 0; parts < 8; parts++) {
            const bool norm = parts & 1, sum = parts & 2, relu = parts & 4;
            struct dr_epilogue e = {.bias = v[0], .add = sum ? add : NULL, .act = relu};
            if (norm) {
                e.norm_weight = v[1], e.norm_bias = v[2], e.norm_mean = v[3], e.norm_var = v[4];
                e.eps = 1e-3;
            }
            EACH_TILES(t) {
                float *want = fprop(&no_pool, t, &s, x, w, v[0], NONE), *y = nan_floats(n);
                void *ws = nan_bytes((size_t)dr_conv_fprop_workspace(&s));
                for (int64_t j = 0; j < n; j++) {
                    const int64_t f = j % k;
                    if (norm) {
                        const float scale = (float)(v[1][f] / sqrt((double)v[4][f] + 1e-3));
                        want[j] = (want[j] - v[3][f]) * scale + v[2][f];
                    }
                    want[j] = sum ? want[j] + add[j] : want[j];
                    want[j] = relu && want[j] <= 0 ? 0 : want[j];
                }
                dr_conv_fprop(&no_pool, t, &s, x, w, &e, y, ws);
                cr_expect_eq(memcmp(y, want, (size_t)n * sizeof *y), 0, "row %zu, parts %d, %s", i,
                             parts, dr_tiles_name(t));
                free(ws);
                free(y);
                free(want);
            }
        }
        void *const all[] = {x, w, add, v[0], v[1], v[2], v[3], v[4]};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++) {
            free(all[j]);
        }
    }
}
