/* Pools, upsample, slice, pad, transpose, argmax, dropout and matmul: values worked out by hand,
 * shapes, and what is refused. Gradients against finite differences are in test_ops_grad.c. */
#include "kernels/batch.h"
#include "kernels/cpu/dropout.h"
#include "tests/fake_harness.h"
#include <criterion/criterion.h>
#include <math.h>
#include <pthreadpool.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void same(const float *got, const float *want, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++)
        cr_assert(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])), "%s[%zu]: %g, not %g",
                  what, i, (double)got[i], (double)want[i]);
}

struct by_hand {
    const char *op, *attrs;
    struct dr_shape in;
    const float *x;
    struct dr_shape out;
    const float *y, *dy, *dx; /* dy NULL: no gradient asked for */
};
static void check_by_hand(const struct by_hand *row, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const struct by_hand *t = &row[i];
        struct rig r = rig_create(t->in.dim[0]);
        const uint32_t in = rig_floats(&r, "x", t->in, t->x);
        const uint32_t node = rig_op(&r, "op", t->op, t->attrs, &in, 1);
        cr_assert_neq(node, DR_NONE, "%s", rig_text(&r));
        const uint32_t y = rig_out(&r, node, 0);
        cr_assert(dr_shape_equal(&r.g->value.at[y].shape, &t->out), "%s %s: %s", t->op, t->attrs,
                  dr_shape_text(r.g->arena, &r.g->value.at[y].shape));
        uint32_t dx = DR_NONE;
        if (t->dy) {
            const uint32_t dy = rig_floats(&r, "dy", t->out, t->dy);
            uint32_t both[2];
            rig_grad(&r, node, &dy, (const bool[]){true, false}, 1, both);
            dx = both[0];
        }
        rig_run(&r);
        same(rig_f32(&r, y), t->y, (size_t)rig_elements(&r, y), t->op);
        if (t->dy)
            same(rig_f32(&r, dx), t->dx, (size_t)rig_elements(&r, in), "gradient");
        rig_free(&r);
    }
}

Test(ops_shapes, values_by_hand) {
    static const float nine[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const struct by_hand row[] = {
        /* torch: AvgPool2d(2, 2, padding=1, ceil_mode=...) of 1..9 */
        {"avg_pool2d", "{kernel: 2, padding: 1}", DR_SHAPE(1, 3, 3, 1), nine, DR_SHAPE(1, 2, 2, 1),
         (float[]){0.25f, 1.25f, 2.75f, 7}, (float[]){4, 8, 12, 16},
         (float[]){1, 2, 2, 3, 4, 4, 3, 4, 4}},
        {"avg_pool2d", "{kernel: 2, padding: 1, count_include_pad: no}", DR_SHAPE(1, 3, 3, 1), nine,
         DR_SHAPE(1, 2, 2, 1), (float[]){1, 2.5f, 5.5f, 7}, (float[]){4, 8, 12, 16},
         (float[]){4, 4, 4, 6, 4, 4, 6, 4, 4}},
        /* what sticks out of the padded image never counts */
        {"avg_pool2d", "{kernel: 2, ceil_mode: yes}", DR_SHAPE(1, 3, 3, 1), nine,
         DR_SHAPE(1, 2, 2, 1), (float[]){3, 4.5f, 7.5f, 9}, (float[]){4, 2, 2, 1},
         (float[]){1, 1, 1, 1, 1, 1, 1, 1, 1}},
        {"avg_pool2d", "{kernel: 3, stride: 2, padding: 1, ceil_mode: yes}", DR_SHAPE(1, 1, 2, 1),
         (float[]){6, 12}, DR_SHAPE(1, 1, 2, 1), (float[]){2, 2}, NULL, NULL},
        {"avg_pool2d", "{kernel: 3, ceil_mode: yes}", DR_SHAPE(1, 2, 1, 1), (float[]){1, 5},
         DR_SHAPE(1, 1, 1, 1), (float[]){3}, NULL, NULL},
        {"max_pool2d", "{kernel: 2, ceil_mode: yes}", DR_SHAPE(1, 3, 3, 1), nine,
         DR_SHAPE(1, 2, 2, 1), (float[]){5, 6, 8, 9}, (float[]){1, 2, 3, 4},
         (float[]){0, 0, 0, 0, 1, 2, 0, 3, 4}},
        {"global_avg_pool", "{}", DR_SHAPE(1, 2, 1, 2), (float[]){1, 10, 3, 40}, DR_SHAPE(1, 2),
         (float[]){2, 25}, (float[]){8, 2}, (float[]){4, 1, 4, 1}},
        {"upsample", "{scale: 2}", DR_SHAPE(1, 1, 2, 1), (float[]){3, 7}, DR_SHAPE(1, 2, 4, 1),
         (float[]){3, 3, 7, 7, 3, 3, 7, 7}, (float[]){1, 2, 3, 4, 5, 6, 7, 8}, (float[]){14, 22}},
        /* torch: [0, 4] at twice the width is [0, 1, 3, 4] */
        {"upsample", "{scale: [1, 2], mode: bilinear}", DR_SHAPE(1, 1, 2, 1), (float[]){0, 4},
         DR_SHAPE(1, 1, 4, 1), (float[]){0, 1, 3, 4}, (float[]){4, 8, 16, 32}, (float[]){14, 46}},
        {"upsample", "{size: [2, 1], mode: bilinear}", DR_SHAPE(1, 4, 2, 1),
         (float[]){0, 2, 4, 6, 8, 10, 12, 14}, DR_SHAPE(1, 2, 1, 1), (float[]){3, 11},
         (float[]){4, 8}, (float[]){1, 1, 1, 1, 2, 2, 2, 2}},
        {"upsample", "{size: [1, 3]}", DR_SHAPE(1, 1, 5, 1), (float[]){0, 1, 2, 3, 4},
         DR_SHAPE(1, 1, 3, 1), (float[]){0, 1, 3}, (float[]){1, 2, 3}, (float[]){1, 2, 0, 3, 0}},
        {"slice", "{axis: 1, begin: 1, end: 2}", DR_SHAPE(1, 3, 3), nine, DR_SHAPE(1, 1, 3),
         (float[]){4, 5, 6}, (float[]){7, 8, 9}, (float[]){0, 0, 0, 7, 8, 9, 0, 0, 0}},
        {"pad", "{padding: {top: 0, left: 1, bottom: 1, right: 0}, value: 5}", DR_SHAPE(1, 1, 2),
         nine, DR_SHAPE(1, 2, 3), (float[]){5, 1, 2, 5, 5, 5}, nine, (float[]){2, 3}},
        {"transpose", "{axes: [2, 1]}", DR_SHAPE(1, 3, 3), nine, DR_SHAPE(1, 3, 3),
         (float[]){1, 4, 7, 2, 5, 8, 3, 6, 9}, nine, (float[]){1, 4, 7, 2, 5, 8, 3, 6, 9}},
        {"dropout", "{p: 0}", DR_SHAPE(1, 9), nine, DR_SHAPE(1, 9), nine, ones, ones},
        {"dropout", "{p: 1}", DR_SHAPE(1, 9), nine, DR_SHAPE(1, 9), (float[9]){0}, ones,
         (float[9]){0}},
    };
    check_by_hand(row, COUNT(row));
}

Test(ops_shapes, matmul_by_hand) {
    struct rig r = rig_create(2);
    const uint32_t in[] = {
        rig_floats(&r, "a", DR_SHAPE(2, 1, 2), (float[]){1, 2, 3, 4}),
        rig_floats(&r, "b", DR_SHAPE(2, 2, 2), (float[]){1, 0, 10, 1, 2, 3, 4, 5})};
    const uint32_t n = rig_op(&r, "mm", "matmul", "{}", in, 2);
    cr_assert_neq(n, DR_NONE, "%s", rig_text(&r));
    const uint32_t dy = rig_floats(&r, "dy", DR_SHAPE(2, 1, 2), (float[]){1, 2, 3, 4});
    uint32_t dx[2];
    rig_grad(&r, n, &dy, (const bool[]){true, true}, 1, dx);
    rig_run(&r);
    same(rig_f32(&r, rig_out(&r, n, 0)), (float[]){21, 2, 22, 29}, 4, "matmul");
    same(rig_f32(&r, dx[0]), (float[]){1, 12, 18, 32}, 4, "da");
    same(rig_f32(&r, dx[1]), (float[]){1, 2, 2, 4, 9, 12, 12, 16}, 8, "db");
    rig_free(&r);
}

/* ---- argmax, and moves of bytes ---- */
Test(ops_shapes, argmax_by_hand) {
    const float nan = NAN, inf = INFINITY;
    const float x[] = {1, 3, 3, 2, -inf, -inf, -inf, -inf, 5, nan, inf, nan, -0.0f, 0, -1, 0};
    struct rig r = rig_create(4);
    const uint32_t in = rig_floats(&r, "x", DR_SHAPE(4, 4), x);
    const uint32_t y = rig_out(&r, rig_op(&r, "m", "argmax", "{}", &in, 1), 0);
    rig_run(&r);
    cr_assert_eq(r.g->value.at[y].dtype, DR_U8);
    cr_assert(dr_shape_equal(&r.g->value.at[y].shape, &DR_SHAPE(4)));
    cr_assert_eq(memcmp(r.at[y], (uint8_t[]){1, 0, 1, 0}, 4), 0);
    rig_free(&r);
    for (int64_t k = 256; k <= 257; k++) { /* u8 as long as every index fits */
        struct rig s = rig_create(1);
        const uint32_t v = rig_floats(&s, "x", DR_SHAPE(1, 1, k), NULL);
        rig_set(&s, v, NULL);
        for (int64_t j = 0; j < k; j++)
            rig_f32(&s, v)[j] = (float)j;
        const uint32_t out = rig_out(&s, rig_op(&s, "m", "argmax", "{}", &v, 1), 0);
        rig_run(&s);
        cr_assert_eq(s.g->value.at[out].dtype, k == 256 ? DR_U8 : DR_I32);
        cr_assert_eq(k == 256 ? *(uint8_t *)s.at[out] : *(int32_t *)s.at[out], k - 1);
        rig_free(&s);
    }
    cr_assert_null(dr_op_find(dr_ops(), "argmax")->grad);
}

Test(ops_shapes, masks_move_too) {
    struct rig r = rig_create(1);
    const uint32_t m =
        rig_input(&r, "m", DR_U8, DR_SHAPE(1, 2, 2), DR_MASK, (uint8_t[]){1, 2, 3, 4});
    const uint32_t pad =
        rig_out(&r, rig_op(&r, "p", "pad", "{padding: {right: 1}, value: 255}", &m, 1), 0);
    const uint32_t cut = rig_out(&r, rig_op(&r, "s", "slice", "{axis: 2, begin: 1}", &m, 1), 0);
    const uint32_t turn = rig_out(&r, rig_op(&r, "t", "transpose", "{axes: [2, 1]}", &m, 1), 0);
    rig_run(&r);
    cr_assert_eq(memcmp(r.at[pad], (uint8_t[]){1, 2, 255, 3, 4, 255}, 6), 0);
    cr_assert_eq(memcmp(r.at[cut], (uint8_t[]){2, 4}, 2), 0);
    cr_assert_eq(memcmp(r.at[turn], (uint8_t[]){1, 3, 2, 4}, 4), 0);
    cr_assert_eq(r.g->value.at[pad].meaning, DR_MASK);
    cr_assert_eq(r.g->value.at[cut].meaning, DR_MASK);
    rig_free(&r);
}

/* ---- averages are exact ---- */
Test(ops_shapes, CONV_13_b_averages) {
    const struct {
        const char *op, *attrs;
        struct dr_shape in;
        float x;
    } row[] = {
        {"global_avg_pool", "{}", DR_SHAPE(1, 300, 300, 1), 1},
        /* a float that counts sticks at 2^24 */
        {"global_avg_pool", "{}", DR_SHAPE(1, 4097, 4097, 1), 1},
        {"global_avg_pool", "{}", DR_SHAPE(1, 300, 300, 2), 0.1f},
        {"avg_pool2d", "{kernel: 4097}", DR_SHAPE(1, 4097, 4097, 1), 1},
        {"avg_pool2d", "{kernel: 3, stride: 1}", DR_SHAPE(1, 5, 5, 3), 0.1f},
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rig r = rig_create(1);
        const uint32_t x = rig_floats(&r, "x", row[i].in, NULL);
        rig_set(&r, x, NULL);
        for (int64_t k = 0; k < rig_elements(&r, x); k++)
            rig_f32(&r, x)[k] = row[i].x;
        const uint32_t y = rig_out(&r, rig_op(&r, "op", row[i].op, row[i].attrs, &x, 1), 0);
        rig_run(&r);
        for (int64_t k = 0; k < rig_elements(&r, y); k++)
            cr_assert_eq(rig_f32(&r, y)[k], row[i].x, "%s %s: %.9g", row[i].op, row[i].attrs,
                         (double)rig_f32(&r, y)[k]);
        rig_free(&r);
    }
}

/* ---- dropout ---- */
#define ELEMENTS 4096
static void draw_mask(uint64_t seed, uint64_t key, uint32_t epoch, uint64_t sample, float *y) {
    struct dr_cpu cpu = {0};
    struct dr_batch *b = calloc(1, dr_batch_bytes(1));
    float x[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++)
        x[i] = 1;
    b->epoch = epoch;
    b->sample[0] = sample;
    const struct dr_dropout d = dr_dropout_of(0.5, seed, key, 1, ELEMENTS);
    dr_cpu_dropout(&cpu, &d, b, x, y);
    free(b);
}

/* Each batch has its mask; the same key draws the same; seed, node, epoch and sample all count. */
Test(ops_shapes, STR_01_masks) {
    static float mask[23][ELEMENTS], again[ELEMENTS];
    for (uint32_t i = 0; i < 20; i++) /* 4 epochs over 5 samples */
        draw_mask(1, 77, i / 5, i % 5, mask[i]);
    draw_mask(2, 77, 0, 0, mask[20]);
    draw_mask(1, 78, 0, 0, mask[21]);
    draw_mask(1, 77, 0, UINT64_C(1) << 32, mask[22]);
    for (int i = 0; i < 23; i++) {
        int kept = 0;
        for (int k = 0; k < ELEMENTS; k++) {
            cr_assert(mask[i][k] == 0 || mask[i][k] == 2);
            kept += mask[i][k] != 0;
        }
        cr_assert(abs(kept - ELEMENTS / 2) < 5 * 32, "%d of %d kept", kept, ELEMENTS); /* 5 sigma */
        for (int j = 0; j < i; j++) {
            int differ = 0;
            for (int k = 0; k < ELEMENTS; k++)
                differ += mask[i][k] != mask[j][k];
            cr_assert(abs(differ - ELEMENTS / 2) < 6 * 32, "masks %d and %d: %d", i, j, differ);
        }
    }
    for (uint32_t i = 0; i < 20; i++) {
        draw_mask(1, 77, i / 5, i % 5, again);
        same(again, mask[i], ELEMENTS, "again");
    }
}

/* The threshold is exact: u = k / 2^24 is dropped where u < p. */
Test(ops_shapes, dropout_threshold) {
    static const double p[] = {0, 1e-9, 0x1p-24, 0.1, 0.5, 1 - 0x1p-24, 1 - 0x1p-30, 1};
    for (size_t i = 0; i < COUNT(p); i++) {
        const struct dr_dropout d = dr_dropout_of(p[i], 1, 1, 1, 1);
        cr_assert_leq(d.below, UINT32_C(1) << 24);
        cr_assert(d.below == 0 || (double)(d.below - 1) * 0x1p-24 < p[i], "%g", p[i]);
        cr_assert((double)d.below * 0x1p-24 >= p[i], "%g", p[i]);
        cr_assert(isfinite(d.scale));
    }
}

/* Frozen parts and evaluation never see it: the op passes through there (graph/build.c). */
Test(ops_shapes, dropout_passes_in_eval) {
    const uint32_t flags = dr_op_find(dr_ops(), "dropout")->flags;
    cr_assert(flags & DR_OP_EVAL_PASS);
    cr_assert(flags & DR_OP_HEADER);
    cr_assert(flags & DR_OP_RANDOM);
}

/* ---- shapes and refusals ---- */
Test(ops_shapes, shapes) {
    const struct {
        const char *op, *attrs;
        struct dr_shape in, out;
    } row[] = {
        {"avg_pool2d", "{kernel: 2}", DR_SHAPE(1, 143, 90, 3), DR_SHAPE(1, 71, 45, 3)},
        {"avg_pool2d", "{kernel: 2, ceil_mode: yes}", DR_SHAPE(1, 143, 90, 3),
         DR_SHAPE(1, 72, 45, 3)},
        {"avg_pool2d", "{kernel: 3, stride: 1, padding: same}", DR_SHAPE(1, 5, 4, 1),
         DR_SHAPE(1, 5, 4, 1)},
        /* torch: the last window must start inside the image or the padding before it */
        {"max_pool2d", "{kernel: 2, stride: 3, ceil_mode: yes}", DR_SHAPE(1, 3, 4, 1),
         DR_SHAPE(1, 1, 2, 1)},
        {"max_pool2d", "{kernel: 3, stride: 2, padding: 1, ceil_mode: yes}", DR_SHAPE(1, 112, 5, 1),
         DR_SHAPE(1, 57, 3, 1)},
        {"max_pool2d", "{kernel: 1, stride: 4, ceil_mode: yes}", DR_SHAPE(1, 4, 5, 1),
         DR_SHAPE(1, 1, 2, 1)},
        {"global_avg_pool", "{}", DR_SHAPE(4, 7, 5, 9), DR_SHAPE(4, 9)},
        {"upsample", "{scale: [2, 3]}", DR_SHAPE(1, 70, 44, 3), DR_SHAPE(1, 140, 132, 3)},
        {"upsample", "{size: [71, 45], mode: bilinear}", DR_SHAPE(1, 35, 22, 3),
         DR_SHAPE(1, 71, 45, 3)},
        {"slice", "{end: 2}", DR_SHAPE(1, 3, 5), DR_SHAPE(1, 3, 2)},
        {"slice", "{}", DR_SHAPE(1, 3, 5), DR_SHAPE(1, 3, 5)},
        {"slice", "{axis: 1, begin: -3, end: -1}", DR_SHAPE(1, 4, 5), DR_SHAPE(1, 2, 5)},
        {"pad", "{padding: [1, 2]}", DR_SHAPE(1, 3, 5, 2), DR_SHAPE(1, 5, 9, 2)},
        {"transpose", "{axes: [3, 1, 2]}", DR_SHAPE(2, 3, 4, 5), DR_SHAPE(2, 5, 3, 4)},
        {"argmax", "{}", DR_SHAPE(2, 3, 4, 5), DR_SHAPE(2, 3, 4)},
        {"dropout", "{}", DR_SHAPE(2, 3), DR_SHAPE(2, 3)},
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

struct refusal {
    const char *op, *attrs;
    struct dr_shape in[2];
    enum dr_dtype type[2];
    const char *says;
};
static void check_refusals(const struct refusal *row, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct rig r = rig_create(2);
        uint32_t in[2], n_in = 0;
        for (; n_in < 2 && row[i].in[n_in].rank != 0; n_in++)
            in[n_in] =
                rig_input(&r, n_in ? "b" : "a", row[i].type[n_in], row[i].in[n_in], DR_PLAIN, NULL);
        cr_assert_eq(rig_op(&r, "net.x", row[i].op, row[i].attrs, in, n_in), DR_NONE, "%s %s",
                     row[i].op, row[i].attrs);
        cr_assert(strstr(rig_text(&r), row[i].says), "%s %s says:\n%s", row[i].op, row[i].attrs,
                  rig_text(&r));
        rig_free(&r);
    }
}

Test(ops_shapes, CONV_05_average_geometry) {
    const struct dr_shape x = DR_SHAPE(2, 2, 2, 1);
    const struct refusal row[] = {
        {"avg_pool2d", "{kernel: 3}", {x}, {DR_F32}, "kernel 3x3 > padded input 2x2"},
        {"avg_pool2d", "{kernel: 5, stride: 2, ceil_mode: yes}", {x}, {DR_F32}, "kernel 5x5 >"},
        {"avg_pool2d", "{kernel: 0}", {x}, {DR_F32}, "kernel"},
        {"avg_pool2d", "{kernel: 2, stride: 0}", {x}, {DR_F32}, "stride"},
        {"avg_pool2d", "{kernel: 2, padding: 2}", {x}, {DR_F32}, "at most half the kernel 2x2"},
        {"avg_pool2d", "{kernel: 2, stride: 2, padding: same}", {x}, {DR_F32}, "stride of 1"},
        {"avg_pool2d", "{}", {x}, {DR_F32}, "kernel"},
        {"avg_pool2d", "{kernel: 2}", {DR_SHAPE(2, 4)}, {DR_F32}, "[N, H, W, C]"},
        {"avg_pool2d", "{kernel: 2}", {x}, {DR_U8}, "is u8, not f32"},
        {"avg_pool2d", "{kernel: 2, ceil_mode: 1}", {x}, {DR_F32}, "ceil_mode"},
        {"max_pool2d", "{kernel: 2, count_include_pad: no}", {x}, {DR_F32}, "count_include_pad"},
        {"global_avg_pool", "{}", {DR_SHAPE(2, 4)}, {DR_F32}, "[N, H, W, C]"},
        {"global_avg_pool", "{}", {x}, {DR_U8}, "is u8, not f32"},
    };
    check_refusals(row, COUNT(row));
}

Test(ops_shapes, AUG_09_refusals) {
    const struct dr_shape x = DR_SHAPE(2, 3, 4, 5), a = DR_SHAPE(2, 3, 4);
    const struct refusal row[] = {
        {"upsample", "{}", {x}, {DR_F32}, "give `scale` or `size`"},
        {"upsample", "{scale: 2, size: 8}", {x}, {DR_F32}, "not both"},
        {"upsample", "{scale: 0}", {x}, {DR_F32}, "scale"},
        {"upsample", "{scale: 2, mode: cubic}", {x}, {DR_F32}, "cubic"},
        {"upsample", "{scale: 2}", {a}, {DR_F32}, "'a' is [2, 3, 4], but should be [N, H, W, C]"},
        {"upsample", "{scale: 2}", {x}, {DR_U8}, "is u8, not f32"},
        {"upsample", "{scale: 65535}", {DR_SHAPE(2, 65535, 1, 1)}, {DR_F32}, "2^30"},
        {"upsample", "{size: 1}", {DR_SHAPE(2, INT64_C(2000000000), 1, 1)}, {DR_F32}, "2^30"},
        {"slice", "{axis: 0, end: 1}", {x}, {DR_F32}, "axis 0 of [2, 3, 4, 5] is the batch"},
        {"slice", "{axis: 4, end: 1}", {x}, {DR_F32}, "not there"},
        {"slice", "{axis: -4, end: 1}", {x}, {DR_F32}, "the batch"},
        {"slice", "{begin: 5}", {x}, {DR_F32}, "begin 5 is outside axis 3 of [2, 3, 4, 5]"},
        {"slice", "{begin: -6}", {x}, {DR_F32}, "begin -6 is outside"},
        {"slice", "{end: 6}", {x}, {DR_F32}, "end 6 is outside axis 3"},
        {"slice", "{begin: 2, end: 2}", {x}, {DR_F32}, "end 2 is not behind begin 2"},
        {"slice", "{begin: 2, end: -4}", {x}, {DR_F32}, "end -4 is not behind begin 2"},
        {"pad", "{}", {x}, {DR_F32}, "padding"},
        {"pad", "{padding: same}", {x}, {DR_F32}, "'same' has no meaning"},
        {"pad", "{padding: -1}", {x}, {DR_F32}, "padding"},
        {"pad", "{padding: 1}", {DR_SHAPE(2, 3)}, {DR_F32}, "[N, H, W, C] or [N, H, W]"},
        {"pad", "{padding: 1, value: 256}", {a}, {DR_U8}, "value 256 is not a u8"},
        {"pad", "{padding: 1, value: 0.5}", {a}, {DR_I32}, "value 0.5 is not a i32"},
        {"pad", "{padding: 1}", {a}, {DR_F16}, "not f32, u8 or i32"},
        {"transpose", "{axes: [1, 2]}", {x}, {DR_F32}, "2 axes for a sample of 3: [2, 3, 4, 5]"},
        {"transpose", "{axes: [1, 2, 2]}", {x}, {DR_F32}, "axis 2 of [2, 3, 4, 5] is given twice"},
        {"transpose", "{axes: [1, 2, 4]}", {x}, {DR_F32}, "axis 4 of [2, 3, 4, 5] is not there"},
        {"transpose", "{axes: [0, 1, 2]}", {x}, {DR_F32}, "axes"},
        {"transpose", "{}", {x}, {DR_F32}, "axes"},
        {"argmax", "{}", {DR_SHAPE(2)}, {DR_F32}, "no axis of channels"},
        {"argmax", "{}", {x}, {DR_U8}, "is u8, not f32"},
        {"dropout", "{p: 1.5}", {x}, {DR_F32}, "p"},
        {"dropout", "{}", {x}, {DR_U8}, "is u8, not f32"},
        {"matmul", "{}", {a, DR_SHAPE(2, 5, 3)}, {0}, "is u8"},
        {"matmul",
         "{}",
         {a, DR_SHAPE(2, 5, 3)},
         {DR_F32, DR_F32},
         "'a' is [2, 3, 4], 'b' is [2, 5, 3]"},
        {"matmul", "{}", {a, DR_SHAPE(1, 4, 3)}, {DR_F32, DR_F32}, "'b' is [1, 4, 3]"},
        {"matmul", "{}", {a, x}, {DR_F32, DR_F32}, "'b' is [2, 3, 4, 5]"},
        {"matmul", "{}", {DR_SHAPE(2, 3), DR_SHAPE(3, 4)}, {DR_F32, DR_F32}, "[N, .., m, k]"},
    };
    check_refusals(row, COUNT(row));
}

/* Odd sizes name both nodes and their shapes: 143 x 90 pooled twice and doubled is 70 x 44. */
Test(ops_shapes, AUG_09_odd_sizes_of_upsample) {
    struct rig r = rig_create(1);
    const uint32_t x = rig_floats(&r, "x", DR_SHAPE(1, 143, 90, 3), NULL);
    const uint32_t p1 = rig_out(&r, rig_op(&r, "p1", "avg_pool2d", "{kernel: 2}", &x, 1), 0);
    const uint32_t p2 = rig_out(&r, rig_op(&r, "p2", "avg_pool2d", "{kernel: 2}", &p1, 1), 0);
    const uint32_t up = rig_out(&r, rig_op(&r, "up", "upsample", "{scale: 2}", &p2, 1), 0);
    const uint32_t fits =
        rig_out(&r, rig_op(&r, "fits", "upsample", "{size: [71, 45]}", &p2, 1), 0);
    cr_assert_eq(rig_op(&r, "cat", "concat", "{}", (uint32_t[]){p1, up}, 2), DR_NONE);
    const char *says = rig_text(&r);
    cr_assert(strstr(says, "'p1' is [1, 71, 45, 3], 'up' is [1, 70, 44, 3]"), "%s", says);
    cr_assert(strstr(says, "x [1, 143, 90, 3] -> p1 [1, 71, 45, 3] -> p2 [1, 35, 22, 3] -> up "
                           "[1, 70, 44, 3]"),
              "%s", says);
    cr_assert_neq(rig_op(&r, "ok", "concat", "{}", (uint32_t[]){p1, fits}, 2), DR_NONE);
    rig_free(&r);
}

/* ---- the same bits whatever the threads ---- */
static uint64_t hash_of_run(size_t threads) {
    static const char *const chain[][2] = {
        {"avg_pool2d", "{kernel: 3, stride: 2, padding: 1}"},
        {"upsample", "{scale: 2, mode: bilinear}"},
        {"pad", "{padding: 1, value: 2}"},
        {"dropout", "{p: 0.3}"},
        {"slice", "{axis: 1, begin: 1}"},
        {"transpose", "{axes: [3, 1, 2]}"},
        {"transpose", "{axes: [2, 3, 1]}"},
        {"global_avg_pool", "{}"},
    };
    struct rig r = rig_create(64);
    if (threads)
        r.cpu.pool = pthreadpool_create(threads);
    uint32_t v = rig_floats(&r, "x", DR_SHAPE(64, 23, 17, 70), NULL), node[COUNT(chain)], bits = 1;
    rig_set(&r, v, NULL);
    for (int64_t i = 0; i < rig_elements(&r, v); i++, bits = bits * 1664525 + 1013904223)
        rig_f32(&r, v)[i] = (float)(bits >> 8) * 0x1p-23f - 1;
    for (size_t i = 0; i < COUNT(chain); i++) {
        node[i] = rig_op(&r, dr_printf(r.g->arena, "n%zu", i), chain[i][0], chain[i][1], &v, 1);
        cr_assert_neq(node[i], DR_NONE, "%s", rig_text(&r));
        v = rig_out(&r, node[i], 0);
    }
    const uint32_t a = rig_out(&r, node[5], 0); /* [64, 70, h, w] and its transpose */
    const uint32_t b = rig_out(&r, rig_op(&r, "b", "transpose", "{axes: [1, 3, 2]}", &a, 1), 0);
    cr_assert_neq(rig_op(&r, "mm", "matmul", "{}", (uint32_t[]){a, b}, 2), DR_NONE);
    uint32_t dy = v;
    for (size_t i = COUNT(chain); i-- > 0;) {
        uint32_t dx[2];
        rig_grad(&r, node[i], &dy, (const bool[]){true, false}, 1, dx);
        dy = dx[0];
    }
    rig_run(&r);
    uint64_t hash = 0;
    for (uint32_t i = 0; i < r.g->value.n; i++)
        if (i < r.n_at && r.at[i])
            hash = hash * 31 + dr_hash(r.at[i], (size_t)r.g->value.at[i].bytes);
    pthreadpool_destroy(r.cpu.pool);
    rig_free(&r);
    return hash;
}

Test(ops_shapes, CONV_13_fixed_orders) {
    const uint64_t alone = hash_of_run(0);
    for (size_t threads = 1; threads <= 8; threads *= 2)
        cr_assert_eq(hash_of_run(threads), alone, "%zu threads", threads);
}
