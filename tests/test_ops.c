/* Ops one by one: values worked out by hand, shapes, and what is refused, with its message. */
#include "kernels/batch.h"
#include "tests/fake_harness.h"
#include <criterion/criterion.h>
#include <math.h>
#include <pthreadpool.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
static const struct dr_shape scalar = {0};

static void same(const float *got, const float *want, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++)
        cr_assert(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])), "%s[%zu]: %g, not %g",
                  what, i, (double)got[i], (double)want[i]);
}

/* One op on one input, and its gradient for dy (NULL: none). */
static void run_one(const char *op, const char *attrs, struct dr_shape s, const float *x,
                    const float *y, size_t n_y, const float *dy, const float *dx, size_t n_x) {
    struct rig r = rig_create(s.dim[0]);
    const uint32_t in = rig_floats(&r, "x", s, x), n = rig_op(&r, "op", op, attrs, &in, 1);
    cr_assert_neq(n, DR_NONE, "%s", rig_text(&r));
    uint32_t grad = DR_NONE;
    if (dy) {
        const uint32_t g = rig_floats(&r, "dy", r.g->value.at[rig_out(&r, n, 0)].shape, dy);
        rig_grad(&r, n, &g, (const bool[]){true}, 1, &grad);
    }
    rig_run(&r);
    cr_assert_eq((size_t)rig_elements(&r, rig_out(&r, n, 0)), n_y, "%s", op);
    same(rig_f32(&r, rig_out(&r, n, 0)), y, n_y, op);
    if (dy)
        same(rig_f32(&r, grad), dx, n_x, "gradient");
    rig_free(&r);
}

Test(ops, CONV_11_nan_and_infinity) {
    const float inf = INFINITY, nan = NAN;
    /* (a) a NaN anywhere in the window, -inf alone */
    run_one("max_pool2d", "{kernel: [1, 2], stride: 2}", DR_SHAPE(1, 1, 6, 1),
            (float[]){nan, 3, 3, nan, -inf, -inf}, (float[]){nan, nan, -inf}, 3, NULL, NULL, 0);
    /* the same in each of 70 channels: a tail behind the vectors */
    float wide[6 * 70], out[3 * 70];
    for (int k = 0; k < 70; k++) {
        const float x[] = {nan, 3, 3, nan, -inf, -inf}, y[] = {nan, nan, -inf};
        for (int i = 0; i < 6; i++)
            wide[i * 70 + k] = x[i];
        for (int i = 0; i < 3; i++)
            out[i * 70 + k] = y[i];
    }
    run_one("max_pool2d", "{kernel: [1, 2], stride: 2}", DR_SHAPE(1, 1, 6, 70), wide, out, 210,
            NULL, NULL, 0);
    /* (b) padding never wins, not even over negative values */
    run_one("max_pool2d", "{kernel: 2, stride: 2, padding: 1}", DR_SHAPE(1, 2, 2, 1),
            (float[]){-1, -1, -1, -1}, (float[]){-1, -1, -1, -1}, 4, NULL, NULL, 0);
    /* (d) relu keeps NaN; the gradient at 0 and below is 0 */
    run_one("relu", "{}", DR_SHAPE(1, 4), (float[]){nan, -1, -0.0f, 2}, (float[]){nan, 0, 0, 2}, 4,
            (float[]){5, 5, 5, 1}, (float[]){5, 0, 0, 1}, 4);
    /* (e) one winner, the first; of NaNs too */
    run_one("max_pool2d", "{kernel: [1, 2]}", DR_SHAPE(1, 1, 2, 1), (float[]){3, 3}, (float[]){3},
            1, (float[]){1}, (float[]){1, 0}, 2);
    run_one("max_pool2d", "{kernel: [1, 3]}", DR_SHAPE(1, 1, 3, 1), (float[]){9, nan, nan},
            (float[]){nan}, 1, (float[]){1}, (float[]){0, 1, 0}, 3);
}

/* Overlapping windows add to the gradient of a shared winner. */
Test(ops, max_pool_overlap) {
    run_one("max_pool2d", "{kernel: [1, 2], stride: 1}", DR_SHAPE(1, 1, 4, 1),
            (float[]){1, 7, 2, 3}, (float[]){7, 7, 3}, 3, (float[]){10, 20, 40},
            (float[]){0, 30, 0, 40}, 4);
}

Test(ops, values_by_hand) {
    /* [1, 2, 2, 2] NHWC: pixel p, channel c is 10 p + c */
    run_one("flatten", "{}", DR_SHAPE(1, 2, 2, 2), (float[]){0, 1, 10, 11, 20, 21, 30, 31},
            (float[]){0, 10, 20, 30, 1, 11, 21, 31}, 8, (float[]){1, 2, 3, 4, 5, 6, 7, 8},
            (float[]){1, 5, 2, 6, 3, 7, 4, 8}, 8);
    run_one("reshape", "{shape: [3, -1]}", DR_SHAPE(1, 6), (float[]){1, 2, 3, 4, 5, 6},
            (float[]){1, 2, 3, 4, 5, 6}, 6, NULL, NULL, 0);
    /* 1000 would overflow exp */
    run_one("softmax", "{}", DR_SHAPE(2, 2), (float[]){1000, 1000, 0, -INFINITY},
            (float[]){0.5f, 0.5f, 1, 0}, 4, (float[]){1, 3, 1, 1}, (float[]){-0.5f, 0.5f, 0, 0}, 4);
    run_one("softmax", "{}", DR_SHAPE(1, 2), (float[]){NAN, 1}, (float[]){NAN, NAN}, 2, NULL, NULL,
            0);
}

Test(ops, concat_by_hand) {
    struct rig r = rig_create(1);
    const uint32_t in[] = {rig_floats(&r, "a", DR_SHAPE(1, 2, 1), (float[]){1, 2}),
                           rig_floats(&r, "b", DR_SHAPE(1, 2, 2), (float[]){3, 4, 5, 6})};
    const uint32_t n = rig_op(&r, "cat", "concat", "{}", in, 2);
    const uint32_t dy = rig_floats(&r, "dy", DR_SHAPE(1, 2, 3), (float[]){1, 2, 3, 4, 5, 6});
    uint32_t dx[2];
    rig_grad(&r, n, &dy, (const bool[]){true, true}, 1, dx);
    rig_run(&r);
    same(rig_f32(&r, rig_out(&r, n, 0)), (float[]){1, 3, 4, 2, 5, 6}, 6, "concat");
    same(rig_f32(&r, dx[0]), (float[]){1, 4}, 2, "da");
    same(rig_f32(&r, dx[1]), (float[]){2, 3, 5, 6}, 4, "db");
    rig_free(&r);
}

/* What the fuse pass asks for by the first field of the attributes. */
Test(ops, fused_activations) {
    struct rig r = rig_create(1);
    const uint32_t x = rig_floats(&r, "x", DR_SHAPE(1, 2), (float[]){1, -3});
    int32_t *a = rig_attrs(&r, "add", "{}"), *l = rig_attrs(&r, "linear", "{features: 2}");
    a[0] = DR_ACT_RELU, l[0] = DR_ACT_TANH;
    const uint32_t sum = rig_node(&r, "sum", "add", a, (uint32_t[]){x, x, x}, 3);
    const uint32_t fc = rig_node(&r, "fc", "linear", l, &x, 1);
    rig_set(&r, rig_find(&r, "fc.weight"), (float[]){2, 1, 0, 1});
    rig_set(&r, rig_find(&r, "fc.bias"), (float[]){1, 2});
    rig_run(&r);
    same(rig_f32(&r, rig_out(&r, sum, 0)), (float[]){3, 0}, 2, "relu(3 x)");
    const float *y = rig_f32(&r, rig_out(&r, fc, 0));
    cr_assert_float_eq(y[0], 0, 1e-6);
    cr_assert_float_eq(y[1], tanh(-1), 1e-6);
    rig_free(&r);
}

/* ---- shapes ---- */
Test(ops, shapes) {
    const struct {
        const char *op, *attrs;
        struct dr_shape in, out;
    } row[] = {
        {"max_pool2d", "{kernel: 2}", DR_SHAPE(1, 143, 90, 3), DR_SHAPE(1, 71, 45, 3)},
        {"max_pool2d", "{kernel: 2}", DR_SHAPE(1, 71, 45, 3), DR_SHAPE(1, 35, 22, 3)},
        {"max_pool2d", "{kernel: 3, stride: 2, padding: 1}", DR_SHAPE(2, 112, 112, 64),
         DR_SHAPE(2, 56, 56, 64)},
        {"max_pool2d", "{kernel: 3, stride: 1, padding: same}", DR_SHAPE(1, 5, 4, 1),
         DR_SHAPE(1, 5, 4, 1)},
        {"max_pool2d", "{kernel: [3, 1], padding: [1, 0]}", DR_SHAPE(1, 1, 2, 1),
         DR_SHAPE(1, 1, 2, 1)},
        {"flatten", "{}", DR_SHAPE(4, 5, 6, 7), DR_SHAPE(4, 210)},
        {"flatten", "{}", DR_SHAPE(4), DR_SHAPE(4, 1)},
        {"reshape", "{shape: [2, -1]}", DR_SHAPE(3, 4, 5), DR_SHAPE(3, 2, 10)},
        {"reshape", "{shape: []}", DR_SHAPE(3, 1), DR_SHAPE(3)},
        {"linear", "{features: 9}", DR_SHAPE(2, 3, 4, 5), DR_SHAPE(2, 3, 4, 9)},
        {"softmax", "{}", DR_SHAPE(2, 3), DR_SHAPE(2, 3)},
        {"batch_norm", "{}", DR_SHAPE(2, 3), DR_SHAPE(2, 3)},
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rig r = rig_create(row[i].in.dim[0]);
        const uint32_t in = rig_floats(&r, "x", row[i].in, NULL);
        const uint32_t n = rig_op(&r, "op", row[i].op, row[i].attrs, &in, 1);
        cr_assert_neq(n, DR_NONE, "%s", rig_text(&r));
        const struct dr_shape *got = &r.g->value.at[rig_out(&r, n, 0)].shape;
        cr_assert(dr_shape_equal(got, &row[i].out), "%s %s: %s", row[i].op, row[i].attrs,
                  dr_shape_text(r.g->arena, got));
        rig_free(&r);
    }
}

/* ---- what is refused ---- */
struct refusal {
    const char *op, *attrs;
    struct dr_shape in[2];
    enum dr_dtype type[2];
    const char *says;
};
static const struct dr_shape none = {.rank = DR_NONE};

static void check_refusals(const struct refusal *row, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct rig r = rig_create(2);
        uint32_t in[2], n_in = 0;
        for (; n_in < 2 && row[i].in[n_in].rank != DR_NONE; n_in++)
            in[n_in] =
                rig_input(&r, n_in ? "b" : "a", row[i].type[n_in], row[i].in[n_in], DR_PLAIN, NULL);
        cr_assert_eq(rig_op(&r, "net.x", row[i].op, row[i].attrs, in, n_in), DR_NONE, "%s %s",
                     row[i].op, row[i].attrs);
        cr_assert(strstr(rig_text(&r), row[i].says), "%s %s says:\n%s", row[i].op, row[i].attrs,
                  rig_text(&r));
        rig_free(&r);
    }
}

Test(ops, CONV_05_pool_geometry) {
    const struct dr_shape x = DR_SHAPE(2, 2, 2, 1);
    const struct refusal row[] = {
        {"max_pool2d", "{kernel: 3}", {x, none}, {DR_F32}, "kernel 3x3 > padded input 2x2"},
        {"max_pool2d", "{kernel: 0}", {x, none}, {DR_F32}, "kernel"},
        {"max_pool2d", "{kernel: -1}", {x, none}, {DR_F32}, "kernel"},
        {"max_pool2d", "{kernel: 2, stride: 0}", {x, none}, {DR_F32}, "stride"},
        {"max_pool2d", "{kernel: 2, padding: -1}", {x, none}, {DR_F32}, "padding"},
        {"max_pool2d",
         "{kernel: 2, padding: 2}",
         {x, none},
         {DR_F32},
         "at most half the kernel 2x2"},
        {"max_pool2d",
         "{kernel: 1, padding: 1}",
         {x, none},
         {DR_F32},
         "at most half the kernel 1x1"},
        {"max_pool2d", "{kernel: 2, padding: {bottom: 2}}", {x, none}, {DR_F32}, "at most half"},
        {"max_pool2d",
         "{kernel: [1, 3], stride: [2, 1], padding: same}",
         {x, none},
         {DR_F32},
         "stride of 1"},
        {"max_pool2d", "{}", {x, none}, {DR_F32}, "kernel"},
        {"max_pool2d", "{kernel: 2, ceil: yes}", {x, none}, {DR_F32}, "ceil_mode"},
        {"max_pool2d", "{kernel: 2}", {DR_SHAPE(2, 4), none}, {DR_F32}, "[N, H, W, C]"},
        {"max_pool2d", "{kernel: 2}", {x, none}, {DR_U8}, "is u8, not f32"},
    };
    check_refusals(row, COUNT(row));
    /* kernel 3 on 1 pixel with pads 1 + 1 is legal */
    run_one("max_pool2d", "{kernel: 3, padding: 1}", DR_SHAPE(1, 1, 1, 1), (float[]){-5},
            (float[]){-5}, 1, NULL, NULL, 0);
}

Test(ops, AUG_09_nothing_is_broadcast) {
    const struct dr_shape skip = DR_SHAPE(1, 71, 45, 2), up = DR_SHAPE(1, 70, 44, 2);
    const struct refusal row[] = {
        {"add", "{}", {skip, up}, {DR_F32, DR_F32}, "'a' is [1, 71, 45, 2], 'b' is [1, 70, 44, 2]"},
        {"concat",
         "{}",
         {skip, up},
         {DR_F32, DR_F32},
         "'a' is [1, 71, 45, 2], 'b' is [1, 70, 44, 2]"},
        {"add", "{}", {skip, DR_SHAPE(1, 1, 1, 2)}, {DR_F32, DR_F32}, "[1, 1, 1, 2]"},
        {"add", "{}", {skip, DR_SHAPE(1, 71, 45, 1)}, {DR_F32, DR_F32}, "[1, 71, 45, 1]"},
        {"add", "{}", {skip, DR_SHAPE(1, 71, 45)}, {DR_F32, DR_F32}, "[1, 71, 45]"},
        {"concat", "{}", {skip, DR_SHAPE(1, 71, 45)}, {DR_F32, DR_F32}, "[1, 71, 45]"},
        {"concat", "{axis: 0}", {skip, skip}, {DR_F32, DR_F32}, "the batch"},
        {"concat", "{axis: 4}", {skip, skip}, {DR_F32, DR_F32}, "not there"},
        {"concat", "{axis: -4}", {skip, skip}, {DR_F32, DR_F32}, "the batch"},
        {"concat", "{}", {skip, skip}, {DR_F32, DR_U8}, "differ in type"},
    };
    check_refusals(row, COUNT(row));
}

Test(ops, refusals) {
    const struct dr_shape x = DR_SHAPE(2, 6), l = DR_SHAPE(2);
    const struct refusal row[] = {
        {"linear", "{features: 0}", {x, none}, {DR_F32}, "features"},
        {"linear", "{}", {x, none}, {DR_F32}, "features"},
        {"linear", "{features: 3}", {l, none}, {DR_F32}, "no axis of features"},
        {"linear", "{features: 3}", {x, none}, {DR_U8}, "'normalize'"},
        {"linear", "{features: 3}", {DR_SHAPE(2, INT64_C(3000000000)), none}, {DR_F32}, "2^31"},
        {"reshape", "{shape: [4, -1]}", {x, none}, {DR_F32}, "6 elements a sample do not fit"},
        {"reshape", "{shape: [5]}", {x, none}, {DR_F32}, "6 elements a sample do not fit"},
        {"reshape", "{shape: [-1, -1]}", {x, none}, {DR_F32}, "more than one -1"},
        {"reshape", "{shape: [0, 6]}", {x, none}, {DR_F32}, "a 0"},
        {"reshape", "{shape: [1, 2, 3, 1, 1]}", {x, none}, {DR_F32}, "5 axes"},
        {"reshape", "{shape: [4294967296, 4294967296]}", {x, none}, {DR_F32}, "too large"},
        {"cross_entropy", "{}", {x, l}, {DR_F32, DR_F32}, "classes are integers"},
        {"cross_entropy",
         "{}",
         {x, x},
         {DR_F32, DR_I32},
         "a target of shape [2], but 'b' is [2, 6]"},
        {"cross_entropy", "{}", {l, l}, {DR_F32, DR_I32}, "no axis of classes"},
        {"cross_entropy",
         "{class_weights: [1, 2]}",
         {x, l},
         {DR_F32, DR_I32},
         "2 class_weights for 6"},
        {"cross_entropy", "{label_smoothing: 1.5}", {x, l}, {DR_F32, DR_I32}, "label_smoothing"},
        {"accuracy", "{top: 7}", {x, l}, {DR_F32, DR_I32}, "top 7 of 6"},
        {"batch_norm", "{}", {DR_SHAPE(1, 6), none}, {DR_F32}, "more than one value a channel"},
        {"batch_norm", "{}", {l, none}, {DR_F32}, "no axis of channels"},
    };
    check_refusals(row, COUNT(row));
}

/* ---- losses and metrics ---- */
struct labels_case {
    const char *op, *attrs;
    struct dr_shape logits, target;
    const float *x;
    const int32_t *t;
    enum dr_meaning meaning;
    uint32_t n_valid;
    double sum, count;
};

static void check_labels(const struct labels_case *c) {
    struct rig r = rig_create(c->logits.dim[0]);
    rig_header(&r, 0, c->n_valid);
    const uint32_t in[] = {rig_floats(&r, "x", c->logits, c->x),
                           rig_input(&r, "t", DR_I32, c->target, c->meaning, c->t)};
    const uint32_t n = rig_op(&r, "m", c->op, c->attrs, in, 2);
    cr_assert_neq(n, DR_NONE, "%s", rig_text(&r));
    rig_run(&r);
    const struct dr_node *node = &r.g->node.at[n];
    const double *partial = r.at[node->out[node->n_out - 1]];
    const struct dr_op *op = node->op;
    cr_assert(fabs(partial[0] - c->sum) < 1e-6 || (isnan(c->sum) && isnan(partial[0])),
              "%s %s: sum %g, not %g", c->op, c->attrs, partial[0], c->sum);
    cr_assert_eq(partial[1], c->count, "%s %s: count %g", c->op, c->attrs, partial[1]);
    const double mean = c->count > 0 ? c->sum / c->count : 0;
    cr_assert(fabs(op->finish(node->attrs, partial, 2) - mean) < 1e-6 || isnan(mean));
    if (op->flags & DR_OP_LOSS) {
        const float got = rig_f32(&r, rig_out(&r, n, 0))[0];
        cr_assert(fabs((double)got - mean) < 1e-6 || (isnan(mean) && isnan(got)), "%g",
                  (double)got);
    }
    cr_assert_eq(r.g->value.at[in[1]].classes, c->logits.dim[c->logits.rank - 1]);
    rig_free(&r);
}

Test(ops, cross_entropy_values) {
    const double ln2 = log(2), ln4 = log(4);
    static const float zero[16] = {0}, big[] = {1000, -1000, -1000, 1000}, bad[] = {NAN, 0, 0, 0};
    const struct labels_case row[] = {
        {"cross_entropy", "{}", DR_SHAPE(2, 4), DR_SHAPE(2), zero, (int32_t[]){0, 3}, DR_LABEL, 2,
         2 * ln4, 2},
        {"cross_entropy", "{}", DR_SHAPE(2, 4), DR_SHAPE(2), zero, (int32_t[]){0, 3}, DR_LABEL, 1,
         ln4, 1},
        {"cross_entropy", "{}", DR_SHAPE(2, 4), DR_SHAPE(2), zero, (int32_t[]){-100, 3}, DR_LABEL,
         2, ln4, 1},
        {"cross_entropy", "{}", DR_SHAPE(2, 4), DR_SHAPE(2), zero, (int32_t[]){-100, -100},
         DR_LABEL, 2, 0, 0},
        {"cross_entropy", "{ignore_index: 3}", DR_SHAPE(2, 4), DR_SHAPE(2), zero, (int32_t[]){0, 3},
         DR_LABEL, 2, ln4, 1},
        {"cross_entropy", "{ignore_index: -1}", DR_SHAPE(2, 4), DR_SHAPE(2), zero,
         (int32_t[]){-1, 3}, DR_LABEL, 2, ln4, 1},
        /* 255 is ignored in masks, and out of range in labels; padding hides it */
        {"cross_entropy", "{}", DR_SHAPE(2, 4), DR_SHAPE(2), zero, (int32_t[]){0, 255}, DR_MASK, 2,
         ln4, 1},
        {"cross_entropy", "{}", DR_SHAPE(2, 4), DR_SHAPE(2), zero, (int32_t[]){0, 255}, DR_LABEL, 2,
         NAN, 2},
        {"cross_entropy", "{}", DR_SHAPE(2, 4), DR_SHAPE(2), zero, (int32_t[]){0, 255}, DR_LABEL, 1,
         ln4, 1},
        {"cross_entropy", "{}", DR_SHAPE(2, 4), DR_SHAPE(2), zero, (int32_t[]){0, INT32_MIN},
         DR_LABEL, 2, NAN, 2},
        {"cross_entropy", "{}", DR_SHAPE(2, 4), DR_SHAPE(2), zero, (int32_t[]){4, 0}, DR_LABEL, 2,
         NAN, 2},
        /* exp would overflow: the right class costs 0, the wrong one 2000 */
        {"cross_entropy", "{}", DR_SHAPE(2, 2), DR_SHAPE(2), big, (int32_t[]){0, 0}, DR_LABEL, 2,
         2000, 2},
        {"cross_entropy", "{}", DR_SHAPE(2, 2), DR_SHAPE(2), bad, (int32_t[]){1, 0}, DR_LABEL, 2,
         NAN, 2},
        /* weights 1 and 3 of the classes; the mean is over their sum */
        {"cross_entropy", "{class_weights: [1, 3]}", DR_SHAPE(2, 2), DR_SHAPE(2), zero,
         (int32_t[]){0, 1}, DR_LABEL, 2, 4 * ln2, 4},
        {"cross_entropy", "{class_weights: [0, 0]}", DR_SHAPE(2, 2), DR_SHAPE(2), zero,
         (int32_t[]){0, 1}, DR_LABEL, 2, 0, 0},
        /* a mask: [N, H, W, K] against [N, H, W]; the second sample is padding */
        {"cross_entropy", "{}", DR_SHAPE(2, 1, 2, 4), DR_SHAPE(2, 1, 2), zero,
         (int32_t[]){0, 255, 1, 2}, DR_MASK, 1, ln4, 1},
    };
    for (size_t i = 0; i < COUNT(row); i++)
        check_labels(&row[i]);
}

Test(ops, accuracy_values) {
    static const float x[] = {1, 3, 2, 0, 5, 5, 5, 1}; /* order of row 0: 1, 2, 0, 3 */
    static const float bad[] = {NAN, 1, 2, 0, 1, 2, 3, 4};
    const struct dr_shape l = DR_SHAPE(2, 4), t = DR_SHAPE(2);
    const struct labels_case row[] = {
        {"accuracy", "{}", l, t, x, (int32_t[]){1, 0}, DR_LABEL, 2, 2, 2},
        {"accuracy", "{}", l, t, x, (int32_t[]){2, 1}, DR_LABEL, 2, 0,
         2}, /* ties: the lowest wins */
        {"accuracy", "{top: 2}", l, t, x, (int32_t[]){2, 1}, DR_LABEL, 2, 2, 2},
        {"accuracy", "{top: 2}", l, t, x, (int32_t[]){0, 2}, DR_LABEL, 2, 0, 2},
        {"accuracy", "{top: 4}", l, t, x, (int32_t[]){3, 3}, DR_LABEL, 2, 2, 2},
        {"accuracy", "{}", l, t, x, (int32_t[]){1, 0}, DR_LABEL, 1, 1, 1},
        {"accuracy", "{}", l, t, x, (int32_t[]){-100, 0}, DR_LABEL, 2, 1, 1},
        {"accuracy", "{}", l, t, x, (int32_t[]){255, 0}, DR_MASK, 2, 1, 1},
        {"accuracy", "{}", l, t, x, (int32_t[]){4, -1}, DR_LABEL, 2, 0,
         2}, /* out of range: wrong */
        {"accuracy", "{}", l, t, bad, (int32_t[]){0, 3}, DR_LABEL, 2, 1, 2}, /* NaN: never right */
        {"accuracy", "{}", l, t, bad, (int32_t[]){2, 3}, DR_LABEL, 2, 1,
         2}, /* ... and in the way */
        {"accuracy", "{}", l, t, x, (int32_t[]){-100, -100}, DR_LABEL, 2, 0, 0},
    };
    for (size_t i = 0; i < COUNT(row); i++)
        check_labels(&row[i]);
}

/* Targets of a mask are u8 on the device. */
Test(ops, cross_entropy_u8_and_classes) {
    struct rig r = rig_create(1);
    static const float zero[8] = {0};
    const uint32_t x = rig_floats(&r, "x", DR_SHAPE(1, 1, 2, 4), zero);
    const uint32_t t = rig_input(&r, "t", DR_U8, DR_SHAPE(1, 1, 2), DR_MASK, (uint8_t[]){3, 255});
    const uint32_t wide = rig_floats(&r, "w", DR_SHAPE(1, 1, 2, 9), NULL);
    const uint32_t n = rig_op(&r, "m", "cross_entropy", "{}", (uint32_t[]){x, t}, 2);
    cr_assert_eq(r.g->value.at[t].classes, 4);
    rig_op(&r, "acc", "accuracy", "{}", (uint32_t[]){wide, t}, 2);
    cr_assert_eq(r.g->value.at[t].classes, 4); /* what both accept */
    rig_run_node(&r, n);
    cr_assert_float_eq(rig_f32(&r, rig_out(&r, n, 0))[0], log(4), 1e-6);
    rig_free(&r);
}

/* ---- the internal ones ---- */
Test(ops, guard_and_total) {
    struct rig r = rig_create(1);
    const double weight[] = {1, 0.25};
    const struct dr_total_loss_attrs attrs = {.weight = {.n = 2, .at = weight}};
    const uint32_t a = rig_floats(&r, "a", scalar, (float[]){3});
    const uint32_t b = rig_floats(&r, "b", scalar, (float[]){8});
    const uint32_t total = rig_node(&r, "total", "total_loss", &attrs, (uint32_t[]){a, b}, 2);
    const uint32_t health =
        rig_state(&r, "health", DR_HEALTH, DR_I64, DR_SHAPE(2), (int64_t[2]){0});
    rig_node(&r, "guard", "guard", NULL, (uint32_t[]){rig_out(&r, total, 0), r.g->header, health},
             3);
    const int64_t *h = r.at[health];
    rig_header(&r, 7, 1);
    rig_run(&r);
    cr_assert_eq(rig_f32(&r, rig_out(&r, total, 0))[0], 5);
    cr_assert(h[0] == 0 && h[1] == 0);
    rig_set(&r, b, (float[]){INFINITY});
    rig_header(&r, 8, 1);
    rig_run(&r);
    cr_assert(h[0] == 1 && h[1] == 8);
    rig_set(&r, b, (float[]){NAN});
    rig_header(&r, 9, 1);
    rig_run(&r);
    cr_assert(h[0] == 1 && h[1] == 8, "the first step stays");
    rig_free(&r);
}

Test(ops, clip_factor) {
    struct rig r = rig_create(1);
    const struct dr_clip_attrs attrs = {.max_norm = 5};
    const uint32_t a = rig_floats(&r, "a", DR_SHAPE(2), (float[]){3, 0});
    const uint32_t b = rig_floats(&r, "b", DR_SHAPE(1), (float[]){4});
    const uint32_t n = rig_node(&r, "clip", "clip", &attrs, (uint32_t[]){a, b}, 2);
    rig_run(&r);
    cr_assert_eq(rig_f32(&r, rig_out(&r, n, 0))[0], 1, "a norm of exactly max_norm is not clipped");
    rig_set(&r, b, (float[]){-40});
    rig_run(&r);
    cr_assert_float_eq(rig_f32(&r, rig_out(&r, n, 0))[0], 5 / sqrt(1609), 1e-6);
    rig_set(&r, b, (float[]){0});
    rig_run(&r);
    cr_assert_eq(rig_f32(&r, rig_out(&r, n, 0))[0], 1);
    rig_free(&r);
}

Test(ops, learning_rates) {
    const struct dr_lr constant = {.base = 0.5}, warm = {.base = 1, .warmup = 4};
    const struct dr_lr cosine = {
        .base = 1, .end = 0.2, .schedule = DR_LR_COSINE, .warmup = 2, .total = 10};
    const struct dr_lr step = {.base = 0.8, .gamma = 0.5, .every = 3, .schedule = DR_LR_STEP};
    const struct {
        const struct dr_lr *lr;
        uint64_t step;
        double rate;
    } row[] = {
        {&constant, 0, 0.5},
        {&constant, 1000000, 0.5},
        {&warm, 0, 0.25},
        {&warm, 2, 0.75},
        {&warm, 3, 1},
        {&warm, 4, 1},
        {&warm, 99, 1},
        {&cosine, 0, 0.5},
        {&cosine, 1, 1},
        {&cosine, 2, 1},
        {&cosine, 4, 0.2 + 0.4 * (1 + sqrt(0.5))},
        {&cosine, 6, 0.6},
        {&cosine, 10, 0.2},
        {&cosine, 50, 0.2},
        {&step, 0, 0.8},
        {&step, 2, 0.8},
        {&step, 3, 0.4},
        {&step, 8, 0.2},
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rig r = rig_create(1);
        const struct dr_lr_attrs attrs = {.lr = *row[i].lr};
        const uint32_t n = rig_node(&r, "lr", "lr", &attrs, &r.g->header, 1);
        rig_header(&r, row[i].step, 1);
        rig_run(&r);
        cr_assert_float_eq(rig_f32(&r, rig_out(&r, n, 0))[0], row[i].rate, 1e-6, "row %zu: %g", i,
                           (double)rig_f32(&r, rig_out(&r, n, 0))[0]);
        rig_free(&r);
    }
}

/* ---- the table ---- */
Test(ops, table_is_whole) {
    const struct dr_op_table *t = dr_ops();
    for (uint32_t i = 0; i < t->n; i++) {
        const struct dr_op *op = t->op[i];
        cr_assert(op->name && op->doc && op->doc[0], "op %u", i);
        cr_assert_eq(dr_op_find(t, op->name), op, "'%s' is there twice", op->name);
        const bool copied = strcmp(op->name, "data") == 0 || strcmp(op->name, "readback") == 0;
        cr_assert(copied || (op->infer && op->cpu && op->cost), "%s", op->name);
        cr_assert(!(op->flags & (DR_OP_LOSS | DR_OP_METRIC)) || op->finish, "%s", op->name);
        for (uint32_t j = 0; j < op->n_attrs; j++) {
            const struct dr_attr *a = &op->attrs[j];
            cr_assert(a->name && a->doc && a->doc[0], "%s", op->name);
            cr_assert_lt(a->offset, op->attrs_bytes, "%s.%s", op->name, a->name);
            cr_assert(a->kind != DR_ATTR_WORD || a->n_words > 0, "%s.%s", op->name, a->name);
            cr_assert(a->kind == DR_ATTR_BOOL || a->kind == DR_ATTR_WORD || a->min < a->max,
                      "%s.%s", op->name, a->name);
        }
    }
}

/* The ops that the format promises, computed or not. */
Test(ops, known_names) {
    static const char *const names[] = {"conv2d",
                                        "conv_transpose2d",
                                        "linear",
                                        "matmul",
                                        "batch_norm",
                                        "max_pool2d",
                                        "avg_pool2d",
                                        "global_avg_pool",
                                        "upsample",
                                        "concat",
                                        "slice",
                                        "pad",
                                        "reshape",
                                        "flatten",
                                        "transpose",
                                        "add",
                                        "sub",
                                        "mul",
                                        "div",
                                        "abs",
                                        "sqrt",
                                        "clamp",
                                        "relu",
                                        "leaky_relu",
                                        "gelu",
                                        "silu",
                                        "sigmoid",
                                        "tanh",
                                        "softmax",
                                        "argmax",
                                        "dropout",
                                        "cross_entropy",
                                        "bce",
                                        "mse",
                                        "l1",
                                        "dice",
                                        "sgd",
                                        "adam",
                                        "adamw",
                                        "accuracy",
                                        "pixel_accuracy",
                                        "mean_iou",
                                        "random_resized_crop",
                                        "random_crop",
                                        "center_crop",
                                        "resize",
                                        "random_flip",
                                        "rotate",
                                        "affine",
                                        "color_jitter",
                                        "grayscale",
                                        "gaussian_blur",
                                        "random_erasing",
                                        "normalize",
                                        "mixup",
                                        "cutmix"};
    for (size_t i = 0; i < COUNT(names); i++)
        cr_assert(dr_op_find(dr_ops(), names[i]), "%s", names[i]);
}

/* ---- the same bits whatever the threads ---- */
static uint64_t hash_of_run(size_t threads) {
    struct rig r = rig_create(64);
    if (threads)
        r.cpu.pool = pthreadpool_create(threads);
    float *x = malloc(sizeof *x * 64 * 12 * 12 * 24);
    uint32_t bits = 1;
    for (size_t i = 0; i < 64 * 12 * 12 * 24; i++, bits = bits * 1664525 + 1013904223)
        x[i] = (float)(bits >> 8) * 0x1p-23f - 1;
    int32_t t[64];
    for (int i = 0; i < 64; i++)
        t[i] = i % 10;
    const uint32_t in = rig_floats(&r, "x", DR_SHAPE(64, 12, 12, 24), x);
    const uint32_t target = rig_input(&r, "t", DR_I32, DR_SHAPE(64), DR_LABEL, t);
    const uint32_t bn = rig_op(&r, "bn", "batch_norm", "{}", &in, 1);
    const uint32_t pool =
        rig_op(&r, "p", "max_pool2d", "{kernel: 3, stride: 2}", &(uint32_t){rig_out(&r, bn, 0)}, 1);
    const uint32_t flat = rig_op(&r, "f", "flatten", "{}", &(uint32_t){rig_out(&r, pool, 0)}, 1);
    const uint32_t fc =
        rig_op(&r, "fc", "linear", "{features: 100}", &(uint32_t){rig_out(&r, flat, 0)}, 1);
    const uint32_t loss =
        rig_op(&r, "loss", "cross_entropy", "{}", (uint32_t[]){rig_out(&r, fc, 0), target}, 2);
    rig_set(&r, rig_in(&r, fc, 1), x);
    uint32_t dy[3] = {DR_NONE, DR_NONE, DR_NONE}, dx[5];
    const bool need[5] = {true, true, true, false, false};
    const bool logits_only[5] = {true};
    uint32_t clipped[6], n = 0;
    const uint32_t order[] = {loss, fc, flat, pool, bn};
    for (size_t i = 0; i < COUNT(order); i++) {
        rig_grad(&r, order[i], dy, order[i] == loss ? logits_only : need, 1, dx);
        dy[0] = dx[0];
        if (order[i] == fc || order[i] == bn)
            clipped[n++] = dx[1], clipped[n++] = dx[2];
    }
    clipped[n++] = dy[0];
    rig_node(&r, "clip", "clip", &(struct dr_clip_attrs){.max_norm = 1e-3}, clipped, n);
    rig_run(&r);
    uint64_t hash = 0;
    for (uint32_t v = 0; v < r.g->value.n; v++)
        if (v < r.n_at && r.at[v])
            hash = hash * 31 + dr_hash(r.at[v], (size_t)r.g->value.at[v].bytes);
    pthreadpool_destroy(r.cpu.pool);
    free(x);
    rig_free(&r);
    return hash;
}

Test(ops, CONV_13_fixed_orders) {
    const uint64_t alone = hash_of_run(0);
    for (size_t threads = 1; threads <= 8; threads *= 2)
        cr_assert_eq(hash_of_run(threads), alone, "%zu threads", threads);
}
