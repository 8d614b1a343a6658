/* Cases of conv2d and linear with their gradients: awkward shapes, random ones, values from other
 * projects' bugs, numbers that are not finite. */
#include "tests/fake_cuda_lab.h"
#include "ops/common.h"
#include <math.h>
#include <stdlib.h>

/* What is 0 and should not be, and the output's size; false: the kernel is larger than the input.
 */
static bool settle(struct dr_conv *s) {
    int64_t *const ones[] = {&s->n, &s->c, &s->k, &s->sh, &s->sw, &s->dh, &s->dw, &s->groups};
    for (size_t i = 0; i < DR_COUNT(ones); i++) {
        *ones[i] = *ones[i] ? *ones[i] : 1;
    }
    const int64_t h = s->h + s->pt + s->pb - (s->dh * (s->kh - 1) + 1);
    const int64_t w = s->w + s->pl + s->pr - (s->dw * (s->kw - 1) + 1);
    s->ho = h / s->sh + 1;
    s->wo = w / s->sw + 1;
    return h >= 0 && w >= 0;
}

static double products(const struct dr_conv *s) {
    return (double)(s->n * s->ho * s->wo) * (double)(s->k * s->kh * s->kw) *
           (double)(s->c / s->groups);
}

/* A case of conv2d over x (NULL: random) up to its node. */
static struct lab_case conv_case(struct lab *l, struct dr_conv *s, int act, bool bias,
                                 const float *x, uint32_t *node) {
    char yaml[300];
    const bool fits = settle(s);
    DR_ASSERT(fits);
    snprintf(yaml, sizeof yaml,
             "{filters: %d, kernel: [%d, %d], stride: [%d, %d], dilation: [%d, %d], groups: %d, "
             "padding: {top: %d, left: %d, bottom: %d, right: %d}, bias: %s}",
             (int)s->k, (int)s->kh, (int)s->kw, (int)s->sh, (int)s->sw, (int)s->dh, (int)s->dw,
             (int)s->groups, (int)s->pt, (int)s->pl, (int)s->pb, (int)s->pr, bias ? "yes" : "no");
    struct lab_case c = lab_case(l, s->n);
    c.conv = s;
    const uint32_t v = lab_floats(&c, "x", DR_SHAPE(s->n, s->h, s->w, s->c), x);
    *node = lab_node(&c, "conv2d", yaml, act, &v, 1);
    return c;
}

static void check_conv(struct lab *l, struct dr_conv s, int act, bool bias) {
    uint32_t node;
    struct lab_case c = conv_case(l, &s, act, bias, NULL, &node);
    lab_grads(&c, node);
    lab_check(&c);
}

/* ---- awkward shapes ---- */
#define C(...) ((struct dr_conv){__VA_ARGS__})
static void table(struct lab *l) {
    const struct dr_conv row[] = {
        /* channels and filters around vectors, warps and tiles */
        C(.h = 5, .w = 5, .c = 1, .k = 1, .kh = 1, .kw = 1),
        C(.h = 1, .w = 1, .c = 1, .k = 1, .kh = 1, .kw = 1),
        C(.n = 3, .h = 1, .w = 1, .c = 65, .k = 65, .kh = 1, .kw = 1),
        C(.n = 2, .h = 7, .w = 9, .c = 2, .k = 3, .kh = 3, .kw = 3),
        C(.n = 2, .h = 7, .w = 9, .c = 3, .k = 5, .kh = 2, .kw = 2),
        C(.n = 2, .h = 9, .w = 7, .c = 5, .k = 7, .kh = 3, .kw = 3, .pt = 1, .pl = 1),
        C(.n = 1, .h = 8, .w = 18, .c = 7, .k = 8, .kh = 4, .kw = 4, .pb = 2, .pr = 1),
        C(.n = 1, .h = 8, .w = 18, .c = 8, .k = 9, .kh = 5, .kw = 5, .pt = 2, .pb = 2),
        C(.n = 1, .h = 12, .w = 17, .c = 9, .k = 15, .kh = 3, .kw = 3),
        C(.n = 1, .h = 11, .w = 20, .c = 15, .k = 16, .kh = 3, .kw = 3, .pl = 1, .pr = 1),
        C(.n = 1, .h = 6, .w = 19, .c = 16, .k = 17, .kh = 3, .kw = 3),
        C(.n = 1, .h = 6, .w = 19, .c = 17, .k = 33, .kh = 3, .kw = 3),
        C(.n = 1, .h = 6, .w = 10, .c = 33, .k = 64, .kh = 3, .kw = 3),
        C(.n = 1, .h = 6, .w = 10, .c = 64, .k = 65, .kh = 3, .kw = 3),
        C(.n = 1, .h = 5, .w = 6, .c = 65, .k = 32, .kh = 3, .kw = 3, .pt = 1, .pr = 1),
        C(.n = 1, .h = 9, .w = 9, .c = 31, .k = 31, .kh = 2, .kw = 3),
        C(.n = 1, .h = 40, .w = 1, .c = 3, .k = 4, .kh = 3, .kw = 1),
        C(.n = 1, .h = 1, .w = 40, .c = 3, .k = 4, .kh = 1, .kw = 3),
        /* kernels that are not square, 7 and 11 */
        C(.n = 2, .h = 13, .w = 16, .c = 3, .k = 8, .kh = 7, .kw = 7, .sh = 2, .sw = 2, .pt = 3,
          .pl = 3, .pb = 3, .pr = 3),
        C(.n = 1, .h = 23, .w = 25, .c = 3, .k = 5, .kh = 11, .kw = 11, .sh = 4, .sw = 4, .pt = 2,
          .pl = 2, .pb = 2, .pr = 2),
        C(.n = 1, .h = 20, .w = 14, .c = 2, .k = 3, .kh = 11, .kw = 1),
        C(.n = 1, .h = 14, .w = 20, .c = 2, .k = 3, .kh = 1, .kw = 11, .sw = 3),
        C(.n = 2, .h = 9, .w = 12, .c = 4, .k = 6, .kh = 2, .kw = 5, .pl = 4),
        C(.n = 1, .h = 12, .w = 9, .c = 4, .k = 6, .kh = 6, .kw = 3, .sh = 3, .sw = 2),
        /* strides, larger than the kernel too; outputs that leave a rest of the input */
        C(.n = 2, .h = 10, .w = 11, .c = 3, .k = 4, .kh = 1, .kw = 1, .sh = 2, .sw = 3),
        C(.n = 2, .h = 10, .w = 11, .c = 3, .k = 4, .kh = 2, .kw = 2, .sh = 4, .sw = 3),
        C(.n = 1, .h = 37, .w = 40, .c = 5, .k = 6, .kh = 3, .kw = 3, .sh = 4, .sw = 4, .pt = 1),
        C(.n = 1, .h = 16, .w = 33, .c = 8, .k = 16, .kh = 3, .kw = 3, .sh = 2, .sw = 2, .pt = 1,
          .pl = 1, .pb = 1, .pr = 1),
        C(.n = 1, .h = 16, .w = 33, .c = 8, .k = 16, .kh = 3, .kw = 3, .sh = 1, .sw = 2),
        C(.n = 1, .h = 16, .w = 33, .c = 8, .k = 16, .kh = 3, .kw = 3, .sh = 2, .sw = 1),
        C(.n = 1, .h = 40, .w = 40, .c = 2, .k = 2, .kh = 3, .kw = 3, .sh = 9, .sw = 9),
        C(.n = 1, .h = 40, .w = 40, .c = 2, .k = 2, .kh = 3, .kw = 3, .sh = 39, .sw = 50),
        C(.n = 1, .h = 3, .w = 3, .c = 2, .k = 2, .kh = 3, .kw = 3, .sh = 65535, .sw = 65535),
        /* dilation, alone, with strides that share a factor with it and that do not */
        C(.n = 1, .h = 13, .w = 14, .c = 3, .k = 4, .kh = 3, .kw = 3, .dh = 2, .dw = 3),
        C(.n = 1, .h = 13, .w = 14, .c = 3, .k = 4, .kh = 3, .kw = 3, .dh = 2, .dw = 2, .sh = 2,
          .sw = 2),
        C(.n = 1, .h = 15, .w = 16, .c = 3, .k = 4, .kh = 3, .kw = 3, .dh = 3, .dw = 2, .sh = 2,
          .sw = 3, .pt = 1, .pl = 2),
        C(.n = 1, .h = 25, .w = 26, .c = 2, .k = 3, .kh = 4, .kw = 4, .dh = 6, .dw = 4, .sh = 4,
          .sw = 6, .pt = 3, .pl = 1, .pb = 2, .pr = 5),
        C(.n = 1, .h = 30, .w = 30, .c = 1, .k = 1, .kh = 2, .kw = 2, .dh = 29, .dw = 17),
        /* pads: four different ones, wider than the kernel, of taps that all lie outside */
        C(.n = 2, .h = 6, .w = 5, .c = 3, .k = 2, .kh = 3, .kw = 2, .pl = 1, .pb = 2, .pr = 3),
        C(.n = 2, .h = 6, .w = 5, .c = 3, .k = 2, .kh = 3, .kw = 2, .pt = 5, .pl = 4, .pb = 6,
          .pr = 7),
        C(.n = 1, .h = 2, .w = 3, .c = 3, .k = 2, .kh = 1, .kw = 1, .pt = 9, .pl = 4, .pb = 1,
          .pr = 20, .sh = 2, .sw = 3),
        C(.n = 1, .h = 1, .w = 1, .c = 3, .k = 2, .kh = 5, .kw = 5, .pt = 2, .pl = 2, .pb = 2,
          .pr = 2),
        C(.n = 1, .h = 1, .w = 1, .c = 2, .k = 3, .kh = 3, .kw = 3, .pt = 30, .pl = 30, .pb = 30,
          .pr = 30, .sh = 7, .sw = 7),
        /* groups: odd ones, one a channel, filters a multiple of channels */
        C(.n = 2, .h = 6, .w = 7, .c = 9, .k = 15, .kh = 3, .kw = 3, .groups = 3, .pt = 1),
        C(.n = 2, .h = 6, .w = 7, .c = 15, .k = 5, .kh = 3, .kw = 3, .groups = 5),
        C(.n = 1, .h = 6, .w = 7, .c = 21, .k = 35, .kh = 2, .kw = 2, .groups = 7, .sh = 2),
        C(.n = 1, .h = 6, .w = 7, .c = 66, .k = 132, .kh = 1, .kw = 1, .groups = 2),
        C(.n = 1, .h = 6, .w = 7, .c = 130, .k = 130, .kh = 1, .kw = 1, .groups = 2),
        C(.n = 2, .h = 9, .w = 19, .c = 3, .k = 3, .kh = 3, .kw = 3, .groups = 3, .pt = 1, .pl = 1),
        C(.n = 2, .h = 9, .w = 19, .c = 65, .k = 65, .kh = 3, .kw = 3, .groups = 65),
        C(.n = 1, .h = 9, .w = 9, .c = 33, .k = 66, .kh = 3, .kw = 3, .groups = 33, .sh = 2,
          .sw = 2, .pt = 1, .pl = 1, .pb = 1, .pr = 1),
        C(.n = 1, .h = 12, .w = 12, .c = 17, .k = 51, .kh = 5, .kw = 5, .groups = 17, .dh = 2),
        /* taps that no table and no shared memory holds */
        C(.n = 1, .h = 41, .w = 42, .c = 3, .k = 4, .kh = 40, .kw = 40),
        C(.n = 1, .h = 9, .w = 8, .c = 3, .k = 4, .kh = 40, .kw = 40, .pt = 16, .pl = 20, .pb = 17,
          .pr = 15, .sh = 2, .sw = 3),
        C(.n = 2, .h = 6, .w = 7, .c = 4, .k = 6, .kh = 33, .kw = 2, .groups = 2, .pt = 14,
          .pb = 15),
        C(.n = 1, .h = 5, .w = 90, .c = 2, .k = 3, .kh = 2, .kw = 70, .dw = 1, .pr = 3),
        C(.n = 1, .h = 33, .w = 34, .c = 33, .k = 2, .kh = 31, .kw = 32),
        C(.n = 1, .h = 40, .w = 63, .c = 2, .k = 2, .kh = 32, .kw = 32, .dw = 2, .sh = 4),
        C(.n = 1, .h = 70, .w = 900, .c = 1, .k = 1, .kh = 5, .kw = 5, .sw = 200, .dw = 200),
        C(.n = 1, .h = 9, .w = 30, .c = 3, .k = 3, .kh = 3, .kw = 3, .sh = 9, .sw = 8),
        /* many pixels, many images */
        C(.n = 3, .h = 40, .w = 40, .c = 2, .k = 3, .kh = 3, .kw = 3, .pt = 1, .pl = 1, .pb = 1,
          .pr = 1),
        C(.n = 300, .h = 2, .w = 3, .c = 3, .k = 5, .kh = 2, .kw = 2),
        C(.n = 1, .h = 260, .w = 270, .c = 1, .k = 2, .kh = 1, .kw = 2),
    };
    for (size_t i = 0; i < DR_COUNT(row); i++) {
        check_conv(l, row[i], (int)(i % 3), i % 2 == 0);
    }
}

/* CONV-07: every pair of channel counts, in one group, a group a channel, odd groups. */
static void channel_counts(struct lab *l) {
    static const int64_t count[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 33};
    for (size_t i = 0; i < DR_COUNT(count); i++) {
        for (size_t j = 0; j < DR_COUNT(count); j++) {
            const int64_t c = count[i], k = count[j];
            struct dr_conv s = C(.n = 2, .h = 4, .w = 5, .c = c, .k = k, .kh = 3, .kw = 3, .pt = 1);
            check_conv(l, s, DR_ACT_NONE, true);
            const int64_t groups[] = {3, 5, c};
            for (size_t g = 0; g < DR_COUNT(groups); g++) {
                s.groups = groups[g];
                if (c % s.groups == 0 && k % s.groups == 0 && s.groups > 1) {
                    check_conv(l, s, DR_ACT_RELU, false);
                }
            }
        }
    }
}

/* Where Tensor core and depthwise kernels change their ways: 16 bytes of channels at a time, chunks
 * of 128 bytes, tiles of 32, 64 and 128 filters, boxes of several small images, taps that take
 * several turns, whole windows in registers. */
static void kernel_edges(struct lab *l) {
    const struct dr_conv row[] = {
        C(.n = 9, .h = 5, .w = 5, .c = 8, .k = 8, .kh = 3, .kw = 3),
        C(.n = 9, .h = 5, .w = 5, .c = 16, .k = 32, .kh = 3, .kw = 3, .pt = 1, .pl = 1),
        C(.n = 5, .h = 6, .w = 7, .c = 24, .k = 40, .kh = 3, .kw = 3, .pt = 1, .pr = 1),
        C(.n = 4, .h = 4, .w = 4, .c = 32, .k = 64, .kh = 3, .kw = 3),
        C(.n = 3, .h = 5, .w = 4, .c = 40, .k = 72, .kh = 2, .kw = 3),
        C(.n = 3, .h = 4, .w = 4, .c = 64, .k = 128, .kh = 3, .kw = 3, .pt = 1, .pb = 1),
        C(.n = 2, .h = 4, .w = 3, .c = 72, .k = 136, .kh = 3, .kw = 2),
        C(.n = 2, .h = 3, .w = 3, .c = 96, .k = 24, .kh = 3, .kw = 3, .pl = 1),
        C(.n = 3, .h = 3, .w = 3, .c = 136, .k = 64, .kh = 2, .kw = 2),
        C(.n = 7, .h = 3, .w = 3, .c = 256, .k = 40, .kh = 1, .kw = 1),
        C(.n = 2, .h = 9, .w = 9, .c = 264, .k = 8, .kh = 1, .kw = 1, .sh = 2, .sw = 2),
        C(.n = 2, .h = 9, .w = 10, .c = 16, .k = 16, .kh = 3, .kw = 3, .sh = 2, .sw = 2, .dh = 2,
          .dw = 2, .pt = 2),
        C(.n = 1, .h = 33, .w = 35, .c = 8, .k = 16, .kh = 7, .kw = 7, .sh = 2, .sw = 2, .pt = 3,
          .pl = 3),
        C(.n = 2, .h = 14, .w = 14, .c = 4, .k = 4, .kh = 11, .kw = 3),
        C(.n = 2, .h = 12, .w = 12, .c = 6, .k = 10, .kh = 9, .kw = 3),
        C(.n = 1, .h = 4, .w = 4, .c = 96, .k = 96, .kh = 3, .kw = 3, .groups = 4),
        C(.n = 2, .h = 9, .w = 11, .c = 64, .k = 64, .kh = 3, .kw = 3, .groups = 64, .pt = 1,
          .pl = 1, .pb = 1, .pr = 1),
        C(.n = 2, .h = 9, .w = 12, .c = 36, .k = 36, .kh = 5, .kw = 5, .groups = 36, .pt = 2,
          .pl = 2),
        C(.n = 2, .h = 9, .w = 13, .c = 34, .k = 34, .kh = 3, .kw = 3, .groups = 34, .sh = 2,
          .sw = 2, .pt = 1, .pl = 1),
        C(.n = 2, .h = 11, .w = 13, .c = 132, .k = 132, .kh = 5, .kw = 5, .groups = 132, .sh = 2,
          .sw = 2, .pt = 2, .pl = 2),
        C(.n = 2, .h = 9, .w = 9, .c = 8, .k = 8, .kh = 3, .kw = 9, .groups = 8, .pl = 4),
        C(.n = 2, .h = 7, .w = 9, .c = 64, .k = 64, .kh = 3, .kw = 3, .groups = 16, .pt = 1),
        C(.n = 2, .h = 7, .w = 9, .c = 32, .k = 64, .kh = 3, .kw = 3, .groups = 8, .sh = 2),
        C(.n = 2, .h = 7, .w = 9, .c = 64, .k = 32, .kh = 3, .kw = 3, .groups = 8, .pt = 1),
        C(.n = 2, .h = 7, .w = 9, .c = 18, .k = 54, .kh = 3, .kw = 3, .groups = 9, .dh = 2),
    };
    for (size_t i = 0; i < DR_COUNT(row); i++) {
        check_conv(l, row[i], (int)(i % 3), i % 2 == 0);
    }
}

/* Outputs of tile - 1, tile and tile + 1 rows, columns and filters. */
static void tails(struct lab *l) {
    static const int64_t wo[] = {15, 16, 17, 33}, ho[] = {3, 4, 5, 8, 9, 17}, k[] = {63, 64, 65};
    static const int64_t few[] = {15, 16, 17, 31, 32, 33}, c[] = {1, 2, 3, 5, 8, 17};
    for (size_t i = 0; i < DR_COUNT(wo); i++) {
        for (size_t j = 0; j < DR_COUNT(ho); j++) {
            const size_t m = i * DR_COUNT(ho) + j;
            struct dr_conv s = {.h = ho[j], .w = wo[i], .c = c[m % 6], .k = k[m % 3]};
            s.kh = s.kw = 1;
            check_conv(l, s, DR_ACT_NONE, false);
            s.k = few[(m + 1) % 6], s.kh = s.kw = 3, s.pt = s.pl = s.pb = s.pr = 1;
            check_conv(l, s, DR_ACT_RELU, true);
        }
    }
}

static void random_shapes(struct lab *l, int count) {
    static const int64_t sizes[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 33, 64, 65};
    static const int64_t odd[] = {3, 5, 7};
    for (int i = 0; i < count;) {
        struct dr_conv s = {.n = 1 + lab_below(l, 3),
                            .h = 1 + lab_below(l, 40),
                            .w = 1 + lab_below(l, 40),
                            .c = sizes[lab_below(l, 13)],
                            .k = sizes[lab_below(l, 13)],
                            .kh = lab_below(l, 12) ? 1 + lab_below(l, 7) : 11,
                            .kw = lab_below(l, 12) ? 1 + lab_below(l, 7) : 11,
                            .sh = 1 + lab_below(l, 4),
                            .sw = 1 + lab_below(l, 4),
                            .dh = 1 + lab_below(l, 3),
                            .dw = 1 + lab_below(l, 3),
                            .pt = lab_below(l, 5),
                            .pl = lab_below(l, 5),
                            .pb = lab_below(l, 5),
                            .pr = lab_below(l, 5),
                            .groups = 1};
        const int64_t kind = lab_below(l, 3);
        if (kind == 1) {
            s.groups = s.c, s.k = s.c * (1 + lab_below(l, 2));
        } else if (kind == 2) {
            s.groups = odd[lab_below(l, 3)];
            s.c = s.groups * (1 + lab_below(l, 5)), s.k = s.groups * (1 + lab_below(l, 6));
        }
        const int act = (int)lab_below(l, 3);
        const bool bias = lab_below(l, 2) != 0;
        if (settle(&s) && products(&s) < 1.5e6) {
            check_conv(l, s, act, bias);
            i++;
        }
    }
}

/* ---- values worked out by hand ---- */
/* w, dy NULL: random, and so is what follows from them; want_* NULL: not looked at. */
struct literal {
    struct dr_conv s;
    const float *x, *w, *bias, *dy, *want_y, *want_dx, *want_dw;
};
static void check_literal(struct lab *l, struct literal t) {
    uint32_t node;
    struct lab_case c = conv_case(l, &t.s, DR_ACT_NONE, t.bias != NULL, t.x, &node);
    if (t.w) {
        rig_set(&c.r, rig_in(&c.r, node, 1), t.w);
    }
    if (t.bias) {
        rig_set(&c.r, rig_in(&c.r, node, 2), t.bias);
    }
    lab_grads(&c, node);
    if (t.dy) {
        rig_set(&c.r, rig_find(&c.r, dr_printf(c.r.g->arena, "dy%u", node)), t.dy);
    }
    if (t.want_y) {
        lab_expect(&c, "conv2d", t.want_y);
    }
    if (t.want_dx) {
        lab_expect(&c, "conv2d_dgrad", t.want_dx);
    }
    if (t.want_dw) {
        lab_expect(&c, "conv2d_wgrad", t.want_dw);
    }
    lab_check(&c);
}

#define F(...) ((const float[]){__VA_ARGS__})
static const float counting[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
                                 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36};

static void conv_01_to_05(struct lab *l) {
    check_literal(
        l, (struct literal){.s = C(.h = 3, .w = 3, .kh = 2, .kw = 2, .pl = 1, .pb = 2, .pr = 3),
                            .x = counting,
                            .w = F(1, 2, 3, 4),
                            .dy = counting,
                            .want_y = F(18, 37, 47, 21, 0, 0, 36, 67, 77, 33, 0, 0, 14, 23, 26, 9,
                                        0, 0, 0, 0, 0, 0, 0, 0),
                            .want_dx = F(4, 7, 10, 32, 42, 52, 92, 102, 112),
                            .want_dw = F(519, 474, 265, 226)});
    const float *w = F(1, 10, 100);
    check_literal(l, (struct literal){.s = C(.h = 5, .w = 4, .kh = 3, .kw = 1),
                                      .x = counting,
                                      .w = w,
                                      .want_y = F(951, 1062, 1173, 1284, 1395, 1506, 1617, 1728,
                                                  1839, 1950, 2061, 2172)});
    check_literal(
        l, (struct literal){.s = C(.h = 5, .w = 4, .kh = 1, .kw = 3),
                            .x = counting,
                            .w = w,
                            .want_y = F(321, 432, 765, 876, 1209, 1320, 1653, 1764, 2097, 2208)});
    check_literal(l, (struct literal){.s = C(.h = 5, .w = 4, .kh = 3, .kw = 1, .sh = 2, .sw = 2),
                                      .x = counting,
                                      .w = w,
                                      .want_y = F(951, 1173, 1839, 2061)});
    float ones[45], rising[45];
    for (int i = 0; i < 45; i++) {
        ones[i] = 1, rising[i] = (float)(i / 9 + 1);
    }
    check_literal(l, (struct literal){.s = C(.h = 6, .w = 6, .kh = 3, .kw = 3, .sh = 2, .sw = 2),
                                      .x = counting,
                                      .w = ones,
                                      .want_y = F(72, 90, 180, 198)});
    check_literal(l, (struct literal){.s = C(.h = 3, .w = 3, .kh = 3, .kw = 3),
                                      .x = counting,
                                      .w = ones,
                                      .want_y = F(45)});
    check_literal(l, (struct literal){.s = C(.h = 3, .w = 3, .k = 5, .kh = 3, .kw = 3),
                                      .x = counting,
                                      .w = rising,
                                      .want_y = F(45, 90, 135, 180, 225)});
    check_literal(l, (struct literal){.s = C(.h = 1, .w = 7, .kh = 1, .kw = 2, .sw = 3),
                                      .x = counting,
                                      .w = F(1, 10),
                                      .want_y = F(21, 54)});
    check_literal(l, (struct literal){.s = C(.h = 1, .w = 1, .kh = 3, .kw = 3, .pt = 1, .pl = 1,
                                             .pb = 1, .pr = 1),
                                      .x = F(2),
                                      .w = counting,
                                      .want_y = F(10)});
}

static void conv_07(struct lab *l) {
    float ones[9 * 17], planes[9 * 17];
    for (int i = 0; i < 9 * 17; i++) {
        ones[i] = 1;
    }
    check_literal(
        l, (struct literal){.s = C(.h = 1, .w = 1, .c = 4, .k = 16, .kh = 1, .kw = 1, .groups = 2),
                            .x = F(0, 0, 0, 1),
                            .w = ones,
                            .want_y = F(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1)});
    check_literal(
        l, (struct literal){.s = C(.h = 1, .w = 1, .c = 6, .k = 9, .kh = 1, .kw = 1, .groups = 3),
                            .x = counting,
                            .w = ones,
                            .want_y = F(3, 3, 3, 7, 7, 7, 11, 11, 11)});
    check_literal(
        l, (struct literal){.s = C(.h = 2, .w = 2, .c = 3, .k = 3, .kh = 2, .kw = 2, .groups = 3),
                            .x = F(1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3),
                            .w = ones,
                            .dy = F(10, 20, 30),
                            .want_y = F(4, 8, 12),
                            .want_dw = F(10, 10, 10, 10, 40, 40, 40, 40, 90, 90, 90, 90)});
    for (int64_t c = 9; c <= 17; c += 8) {
        for (int64_t i = 0; i < 9 * c; i++) {
            planes[i] = (float)(i % c + 1);
        }
        check_literal(l, (struct literal){.s = C(.h = 3, .w = 3, .c = c, .kh = 3, .kw = 3),
                                          .x = ones,
                                          .w = planes,
                                          .want_y = c == 9 ? F(405) : F(1377)});
    }
    const float zeros[3] = {0};
    check_literal(l, (struct literal){.s = C(.n = 2, .h = 1, .w = 3, .k = 3, .kh = 1, .kw = 1),
                                      .w = zeros,
                                      .bias = F(10, 20, 30),
                                      .want_y = F(10, 20, 30, 10, 20, 30, 10, 20, 30, 10, 20, 30,
                                                  10, 20, 30, 10, 20, 30)});
}

/* (a) cancels, whatever is stored in halves; (c) twice the largest half is infinite in fp16 alone,
 * twice the largest float always; (e) fp32 is not rounded to tf32; (d) 16,781,312 ones are added
 * right. */
static void conv_13(struct lab *l) {
    float x[512], w[512];
    for (int i = 0; i < 512; i++) {
        x[i] = 16, w[i] = i < 256 ? 16 : -16;
    }
    const struct dr_conv point = C(.h = 1, .w = 1, .kh = 1, .kw = 1);
    struct dr_conv wide = point;
    wide.c = 512;
    check_literal(l, (struct literal){.s = wide, .x = x, .w = w, .want_y = F(0)});
    check_literal(l, (struct literal){.s = point, .x = F(65504), .w = F(2), .want_y = F(131008)});
    check_literal(l, (struct literal){.s = point, .x = F(3e38F), .w = F(2), .want_y = F(INFINITY)});
    check_literal(l,
                  (struct literal){
                      .s = point, .x = F(1.00048828125F), .w = F(1), .want_y = F(1.00048828125F)});

    struct dr_conv s = C(.n = 4097, .h = 64, .w = 64, .kh = 1, .kw = 1);
    const int64_t n = 4097 * 64 * 64;
    float *ones = malloc((size_t)n * sizeof *ones);
    DR_ASSERT(ones);
    for (int64_t i = 0; i < n; i++) {
        ones[i] = 1;
    }
    uint32_t node, dx[2];
    struct lab_case c = conv_case(l, &s, DR_ACT_NONE, false, ones, &node);
    const uint32_t dy = lab_floats(&c, "dy", DR_SHAPE(s.n, 64, 64, 1), ones);
    rig_grad(&c.r, node, &dy, (const bool[]){false, true}, 1, dx);
    c.first = node + 1;
    lab_expect(&c, "conv2d_wgrad", F(16781312));
    lab_check(&c);
    free(ones);
}

/* What is not finite reaches exactly the outputs that kernels/cpu/conv.h says: padded taps are
 * multiplied, taps that a stride skips are not. */
static void not_finite(struct lab *l) {
    for (int i = 0; i < 60; i++) {
        struct dr_conv s = {.n = 1 + i % 2,
                            .h = 6 + i % 5,
                            .w = 7 + i % 4,
                            .c = 2 + i % 3,
                            .k = 3,
                            .kh = 1 + i % 4,
                            .kw = 1 + i / 2 % 3,
                            .sh = 1 + i % 3,
                            .sw = 1 + i / 3 % 4,
                            .dh = 1 + i / 4 % 3,
                            .dw = 1 + i / 5 % 2,
                            .pt = i % 4,
                            .pl = i / 2 % 5,
                            .pb = i / 3 % 4,
                            .pr = i / 4 % 5};
        if (i % 10 == 9) { /* the direct kernel */
            s.kh = 34, s.dh = 1, s.pt = 20, s.pb = 20;
        }
        if (!settle(&s)) {
            continue;
        }
        uint32_t node;
        struct lab_case c = conv_case(l, &s, i % 2 ? DR_ACT_RELU : DR_ACT_NONE, true, NULL, &node);
        lab_grads(&c, node);
        const uint32_t dy = rig_find(&c.r, dr_printf(c.r.g->arena, "dy%u", node));
        const uint32_t operands[] = {rig_in(&c.r, node, 0), rig_in(&c.r, node, 1), dy};
        static const float bad[] = {NAN, INFINITY, -INFINITY};
        float *at = rig_f32(&c.r, operands[i % 3]);
        for (int k = 0; k < 2; k++) {
            at[lab_below(l, rig_elements(&c.r, operands[i % 3]))] = bad[(i / 3 + k) % 3];
        }
        lab_check(&c);
    }
}

void lab_conv_cases(struct lab *l) {
    conv_01_to_05(l);
    conv_07(l);
    conv_13(l);
    channel_counts(l);
    table(l);
    kernel_edges(l);
    tails(l);
    not_finite(l);
    random_shapes(l, 200);
}

/* ---- linear ---- */
void lab_linear_cases(struct lab *l) {
    static const int64_t size[][3] = {{1, 1, 1},     {1, 5, 3},    {2, 3, 1},    {3, 1, 7},
                                      {7, 33, 65},   {17, 64, 10}, {64, 64, 64}, {65, 127, 63},
                                      {128, 784, 9}, {33, 300, 5}, {5, 2000, 3}, {600, 7, 13},
                                      {31, 257, 255}};
    char yaml[64];
    for (size_t i = 0; i < DR_COUNT(size); i++) {
        for (int act = DR_ACT_NONE; act < DR_ACT_FUSED; act++) {
            const bool bias = (i + (size_t)act) % 2 == 0;
            struct lab_case c = lab_case(l, size[i][0]);
            const uint32_t x = lab_floats(&c, "x", DR_SHAPE(size[i][0], size[i][1]), NULL);
            snprintf(yaml, sizeof yaml, "{features: %d, bias: %s}", (int)size[i][2],
                     bias ? "yes" : "no");
            lab_grads(&c, lab_node(&c, "linear", yaml, act, &x, 1));
            lab_check(&c);
        }
    }
    struct lab_case c = lab_case(l, 2);
    const uint32_t x = lab_floats(&c, "x", DR_SHAPE(2, 3, 5, 9), NULL);
    lab_grads(&c, lab_node(&c, "linear", "{features: 4}", DR_ACT_TANH, &x, 1));
    lab_check(&c);
    /* column sums: tails of 32 columns and of 1024 rows, and more than 65535 chunks of rows */
    static const int64_t sums[][2] = {{1, 1},     {1023, 31}, {1024, 32},           {1025, 33},
                                      {7000, 65}, {2, 5000},  {65537 * 1024 + 1, 1}};
    for (size_t i = 0; i < DR_COUNT(sums); i++) {
        if (i == DR_COUNT(sums) - 1 && !l->device.cuda) {
            continue; /* 268 MB, some of it several times */
        }
        struct lab_case t = lab_case(l, sums[i][0]);
        const uint32_t dy = lab_floats(&t, "dy", DR_SHAPE(sums[i][0], sums[i][1]), NULL);
        lab_node(&t, "linear_bgrad", "{}", DR_ACT_NONE, &dy, 1);
        lab_check(&t);
    }
}
