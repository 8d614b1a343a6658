/* Cases of conv_transpose2d with its gradients: strides 1 to 4, output_padding, dilation, groups,
 * odd channels, taps that no table holds, random shapes. */
#include "tests/fake_cuda_lab.h"
#include "ops/common.h"

/* One case by its input [n, h, w, c]; 0 where 1 is meant. */
struct transpose {
    int64_t n, h, w, c, filters, kh, kw, sh, sw, dh, dw, groups;
    int64_t pt, pl, pb, pr, oh, ow; /* pads taken off; output_padding */
};

/* The convolution from the output back to the input; false: no output is left. */
static bool settle(struct transpose *t, struct dr_conv *s) {
    int64_t *const ones[] = {&t->n, &t->c, &t->filters, &t->sh, &t->sw, &t->dh, &t->dw, &t->groups};
    for (size_t i = 0; i < DR_COUNT(ones); i++) {
        *ones[i] = *ones[i] ? *ones[i] : 1;
    }
    *s = (struct dr_conv){.n = t->n,
                          .h = (t->h - 1) * t->sh + t->dh * (t->kh - 1) + 1 + t->oh - t->pt - t->pb,
                          .w = (t->w - 1) * t->sw + t->dw * (t->kw - 1) + 1 + t->ow - t->pl - t->pr,
                          .c = t->filters,
                          .k = t->c,
                          .kh = t->kh,
                          .kw = t->kw,
                          .ho = t->h,
                          .wo = t->w,
                          .sh = t->sh,
                          .sw = t->sw,
                          .dh = t->dh,
                          .dw = t->dw,
                          .pt = t->pt,
                          .pl = t->pl,
                          .pb = t->pb,
                          .pr = t->pr,
                          .groups = t->groups};
    return s->h > 0 && s->w > 0;
}

static void check(struct lab *l, struct transpose t, int act, bool bias) {
    struct dr_conv s;
    char yaml[350];
    const bool fits = settle(&t, &s);
    DR_ASSERT(fits);
    snprintf(yaml, sizeof yaml,
             "{filters: %d, kernel: [%d, %d], stride: [%d, %d], dilation: [%d, %d], groups: %d, "
             "padding: {top: %d, left: %d, bottom: %d, right: %d}, output_padding: [%d, %d], "
             "bias: %s}",
             (int)t.filters, (int)t.kh, (int)t.kw, (int)t.sh, (int)t.sw, (int)t.dh, (int)t.dw,
             (int)t.groups, (int)t.pt, (int)t.pl, (int)t.pb, (int)t.pr, (int)t.oh, (int)t.ow,
             bias ? "yes" : "no");
    struct lab_case c = lab_case(l, t.n);
    c.conv = &s;
    const uint32_t x = lab_floats(&c, "x", DR_SHAPE(t.n, t.h, t.w, t.c), NULL);
    lab_grads(&c, lab_node(&c, "conv_transpose2d", yaml, act, &x, 1));
    lab_check(&c);
}

#define T(...) ((struct transpose){__VA_ARGS__})
static void table(struct lab *l) {
    const struct transpose row[] = {
        T(.h = 1, .w = 1, .kh = 1, .kw = 1),
        T(.h = 2, .w = 2, .kh = 2, .kw = 2, .sh = 2, .sw = 2),
        /* odd channels and filters, around vectors, warps and tiles */
        T(.n = 2, .h = 7, .w = 9, .c = 3, .filters = 5, .kh = 2, .kw = 2, .sh = 2, .sw = 2),
        T(.n = 2, .h = 5, .w = 19, .c = 17, .filters = 33, .kh = 2, .kw = 2, .sh = 2, .sw = 2),
        T(.h = 6, .w = 6, .c = 65, .filters = 63, .kh = 3, .kw = 3, .pt = 1, .pl = 1, .pb = 1,
          .pr = 1),
        T(.h = 8, .w = 8, .c = 64, .filters = 32, .kh = 2, .kw = 2, .sh = 2, .sw = 2),
        T(.h = 9, .w = 4, .c = 1, .filters = 7, .kh = 3, .kw = 3),
        T(.h = 9, .w = 4, .c = 7, .filters = 1, .kh = 5, .kw = 3, .sh = 2, .sw = 1),
        /* overlaps and gaps, strides 1 to 4, different ones along the axes */
        T(.n = 2, .h = 6, .w = 5, .c = 3, .filters = 4, .kh = 3, .kw = 3, .sh = 2, .sw = 2),
        T(.n = 2, .h = 6, .w = 5, .c = 3, .filters = 4, .kh = 4, .kw = 4, .sh = 2, .sw = 2, .pt = 1,
          .pl = 1, .pb = 1, .pr = 1),
        T(.n = 2, .h = 6, .w = 5, .c = 3, .filters = 4, .kh = 3, .kw = 5, .sh = 3, .sw = 4),
        T(.h = 6, .w = 5, .c = 3, .filters = 4, .kh = 2, .kw = 1, .sh = 4, .sw = 3),
        T(.h = 4, .w = 7, .c = 2, .filters = 3, .kh = 1, .kw = 1, .sh = 4, .sw = 4),
        T(.h = 3, .w = 3, .c = 2, .filters = 3, .kh = 3, .kw = 3, .sh = 9, .sw = 9),
        T(.h = 3, .w = 2, .c = 2, .filters = 3, .kh = 2, .kw = 2, .sh = 70, .sw = 50),
        /* output_padding, of a stride, of a dilation above the stride */
        T(.n = 2, .h = 6, .w = 5, .c = 3, .filters = 4, .kh = 3, .kw = 3, .sh = 2, .sw = 2, .pt = 1,
          .pl = 1, .pb = 1, .pr = 1, .oh = 1, .ow = 1),
        T(.h = 6, .w = 5, .c = 3, .filters = 4, .kh = 2, .kw = 2, .sh = 4, .sw = 3, .oh = 3,
          .ow = 2),
        T(.h = 6, .w = 5, .c = 3, .filters = 4, .kh = 2, .kw = 3, .dh = 3, .dw = 4, .oh = 2,
          .ow = 3),
        T(.h = 6, .w = 5, .c = 3, .filters = 4, .kh = 3, .kw = 2, .sh = 2, .sw = 3, .dh = 5,
          .dw = 7, .oh = 4, .ow = 6, .pt = 3, .pl = 2),
        /* dilation with strides that share a factor with it and that do not */
        T(.h = 6, .w = 5, .c = 3, .filters = 4, .kh = 3, .kw = 3, .sh = 2, .sw = 2, .dh = 2,
          .dw = 2),
        T(.h = 6, .w = 5, .c = 3, .filters = 4, .kh = 3, .kw = 3, .sh = 2, .sw = 3, .dh = 3,
          .dw = 2, .pt = 2, .pr = 1),
        T(.h = 6, .w = 5, .c = 2, .filters = 3, .kh = 4, .kw = 4, .sh = 4, .sw = 6, .dh = 6,
          .dw = 4, .pt = 3, .pl = 1, .pb = 2, .pr = 5),
        /* pads: four different ones, more than the kernel reaches */
        T(.h = 9, .w = 9, .c = 3, .filters = 2, .kh = 3, .kw = 2, .pl = 1, .pb = 2, .pr = 3),
        T(.h = 9, .w = 12, .c = 3, .filters = 2, .kh = 1, .kw = 2, .sh = 2, .sw = 1, .pt = 3,
          .pl = 5, .pb = 6, .pr = 4),
        /* groups, depthwise, a multiple of filters */
        T(.n = 2, .h = 6, .w = 7, .c = 9, .filters = 15, .kh = 3, .kw = 3, .sh = 2, .sw = 2,
          .groups = 3),
        T(.h = 6, .w = 7, .c = 21, .filters = 35, .kh = 2, .kw = 2, .sh = 2, .sw = 1, .groups = 7,
          .oh = 1),
        T(.h = 6, .w = 7, .c = 130, .filters = 66, .kh = 2, .kw = 2, .sh = 2, .sw = 2, .groups = 2),
        T(.n = 2, .h = 9, .w = 19, .c = 3, .filters = 3, .kh = 3, .kw = 3, .groups = 3),
        T(.n = 2, .h = 5, .w = 9, .c = 65, .filters = 65, .kh = 4, .kw = 4, .sh = 2, .sw = 2,
          .pt = 1, .pl = 1, .pb = 1, .pr = 1, .groups = 65),
        T(.h = 5, .w = 6, .c = 17, .filters = 51, .kh = 3, .kw = 3, .sh = 3, .sw = 2, .groups = 17),
        T(.h = 5, .w = 6, .c = 34, .filters = 17, .kh = 3, .kw = 3, .sh = 2, .dw = 2, .groups = 17),
        /* the direct kernel */
        T(.h = 9, .w = 8, .c = 3, .filters = 4, .kh = 40, .kw = 33, .pt = 20, .pl = 16, .pb = 17,
          .pr = 15),
        T(.h = 4, .w = 5, .c = 2, .filters = 3, .kh = 34, .kw = 2, .sh = 9, .sw = 8, .ow = 7),
        /* many pixels, many images */
        T(.h = 130, .w = 135, .c = 2, .filters = 3, .kh = 2, .kw = 2, .sh = 2, .sw = 2),
        T(.n = 300, .h = 2, .w = 3, .c = 3, .filters = 5, .kh = 3, .kw = 3, .sh = 2, .sw = 2),
    };
    for (size_t i = 0; i < DR_COUNT(row); i++) {
        check(l, row[i], (int)(i % 3), i % 2 == 0);
    }
}

static void random_shapes(struct lab *l, int count) {
    static const int64_t sizes[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 33, 64, 65};
    static const int64_t odd[] = {3, 5, 7};
    for (int i = 0; i < count;) {
        struct transpose t = {.n = 1 + lab_below(l, 3),
                              .h = 1 + lab_below(l, 20),
                              .w = 1 + lab_below(l, 20),
                              .c = sizes[lab_below(l, 13)],
                              .filters = sizes[lab_below(l, 13)],
                              .kh = 1 + lab_below(l, 6),
                              .kw = 1 + lab_below(l, 6),
                              .sh = 1 + lab_below(l, 4),
                              .sw = 1 + lab_below(l, 4),
                              .dh = 1 + lab_below(l, 3),
                              .dw = 1 + lab_below(l, 3),
                              .pt = lab_below(l, 4),
                              .pl = lab_below(l, 4),
                              .pb = lab_below(l, 4),
                              .pr = lab_below(l, 4),
                              .groups = 1};
        const int64_t kind = lab_below(l, 3);
        if (kind == 1) {
            t.groups = t.c, t.filters = t.c * (1 + lab_below(l, 2));
        } else if (kind == 2) {
            t.groups = odd[lab_below(l, 3)];
            t.c = t.groups * (1 + lab_below(l, 5)), t.filters = t.groups * (1 + lab_below(l, 6));
        }
        t.oh = lab_below(l, t.sh > t.dh ? t.sh : t.dh);
        t.ow = lab_below(l, t.sw > t.dw ? t.sw : t.dw);
        const int act = (int)lab_below(l, 3);
        const bool bias = lab_below(l, 2) != 0;
        struct dr_conv s;
        const double products = (double)(t.n * t.h * t.w) * (double)(t.c * t.kh * t.kw) *
                                (double)(t.filters / t.groups);
        if (settle(&t, &s) && products < 1.5e6) {
            check(l, t, act, bias);
            i++;
        }
    }
}

void lab_conv_transpose_cases(struct lab *l) {
    table(l);
    random_shapes(l, 100);
}
