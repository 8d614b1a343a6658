/* Crops, resizing and rotation as ops: an image and its mask stay together, what lies outside,
 * which windows are drawn, evaluation, and what is refused. tests/test_augment_torch.c has the
 * values of pixels that are interpolated. */
#include "kernels/resample.h"
#include "tests/test_augment.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthreadpool.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static uint32_t run(struct rig *r, const char *op, const char *yaml, const uint32_t *in,
                    uint32_t n_in) {
    const uint32_t node = rig_op(r, "op", op, yaml, in, n_in);
    cr_assert_neq(node, DR_NONE, "%s %s: %s", op, yaml, rig_text(r));
    rig_run(r);
    return node;
}
static uint8_t *bytes_out(const struct rig *r, uint32_t node, uint32_t i) {
    return r->at[rig_out(r, node, i)];
}
static struct dr_batch *header(const struct rig *r) {
    return r->at[r->g->header];
}

/* A u8 image and mask of one sample, h x w, through an op. */
static void small(const char *op, const char *yaml, int h, int w, const uint8_t *image,
                  const uint8_t *mask, const uint8_t *want, const uint8_t *want_mask) {
    struct rig r = rig_create(1);
    const uint32_t in[] = {rig_input(&r, "x", DR_U8, DR_SHAPE(1, h, w, 1), DR_IMAGE, image),
                           rig_input(&r, "m", DR_U8, DR_SHAPE(1, h, w), DR_MASK, mask)};
    const uint32_t node = run(&r, op, yaml, in, 2);
    const size_t n = (size_t)rig_elements(&r, rig_out(&r, node, 0));
    cr_expect_eq(memcmp(bytes_out(&r, node, 0), want, n), 0, "%s %s: image", op, yaml);
    cr_expect_eq(memcmp(bytes_out(&r, node, 1), want_mask, n), 0, "%s %s: mask", op, yaml);
    rig_free(&r);
}

/* ---- AUG-01 ---- */

/* image = 10 * mask at every pixel before and after, but where both are from outside. */
static void together(const char *op, const char *yaml) {
    enum { N = 1000, H = 5, W = 7 };
    static uint8_t image[N * H * W * 2], mask[N * H * W];
    static int32_t wide[N * H * W];
    for (int i = 0; i < N * H * W; i++) {
        mask[i] = (uint8_t)(i % (H * W) % 23); /* no row or column is like another */
        wide[i] = mask[i] * 100000;
        image[2 * i] = (uint8_t)(10 * mask[i]);
        image[2 * i + 1] = (uint8_t)(10 * mask[i] + 1);
    }
    struct rig r = rig_create(N);
    const uint32_t in[] = {rig_input(&r, "x", DR_U8, DR_SHAPE(N, H, W, 2), DR_IMAGE, image),
                           rig_input(&r, "m", DR_U8, DR_SHAPE(N, H, W), DR_MASK, mask),
                           rig_input(&r, "wide", DR_I32, DR_SHAPE(N, H, W), DR_MASK, wide)};
    const uint32_t node = run(&r, op, yaml, in, 3);
    const uint8_t *y = bytes_out(&r, node, 0), *m = bytes_out(&r, node, 1);
    const int32_t *far = r.at[rig_out(&r, node, 2)];
    int64_t outside = 0;
    const int64_t n = rig_elements(&r, rig_out(&r, node, 1));
    for (int64_t i = 0; i < n; i++) {
        outside += m[i] == 255;
        cr_assert_eq(y[2 * i], m[i] == 255 ? 77 : 10 * m[i], "%s %s", op, yaml);
        cr_assert_eq(y[2 * i + 1], m[i] == 255 ? 77 : 10 * m[i] + 1, "%s %s", op, yaml);
        cr_assert_eq(far[i], m[i] == 255 ? 255 : m[i] * 100000, "%s %s", op, yaml);
    }
    cr_expect_lt(outside, n, "%s %s: nothing is left", op, yaml);
    rig_free(&r);
}

Test(augment_geometry, AUG_01_image_and_mask_move_together) {
    static const char *const t[][2] = {
        {"random_crop", "{size: [3, 4], fill: 77}"},
        {"random_crop", "{size: [6, 7], padding: 2, fill: 77}"},
        {"rotate", "{degrees: [90, 90], fill: 77}"},
        {"rotate", "{degrees: [-180, 180], fill: 77}"},
        {"affine",
         "{degrees: [-30, 30], translate: [0.3, 0.3], scale: [0.5, 1.5], shear: [-20, 20, "
         "-9, 9], fill: 77}"},
        {"center_crop", "{size: [2, 5]}"},
    };
    for (size_t k = 0; k < COUNT(t); k++)
        together(t[k][0], t[k][1]);
}

/* Interpolated images follow their mask to within a pixel: both hold the column they come from. */
Test(augment_geometry, AUG_01_resized_image_follows_its_mask) {
    enum { N = 300, H = 9, W = 25 };
    static uint8_t image[N * H * W], mask[N * H * W];
    for (int i = 0; i < N * H * W; i++) {
        mask[i] = (uint8_t)(i % W);
        image[i] = (uint8_t)(10 * mask[i]);
    }
    static const char *const t[][2] = {
        {"random_resized_crop", "{size: [6, 30]}"},
        {"random_resized_crop", "{size: [6, 12], scale: [0.5, 1]}"},
        {"resize", "{size: [3, 40]}"},
        {"random_resized_crop_eval", "{size: [8, 20]}"},
    };
    for (size_t k = 0; k < COUNT(t); k++) {
        struct rig r = rig_create(N);
        const uint32_t in[] = {rig_input(&r, "x", DR_U8, DR_SHAPE(N, H, W, 1), DR_IMAGE, image),
                               rig_input(&r, "m", DR_U8, DR_SHAPE(N, H, W), DR_MASK, mask)};
        const uint32_t node = run(&r, t[k][0], t[k][1], in, 2);
        const uint8_t *y = bytes_out(&r, node, 0), *m = bytes_out(&r, node, 1);
        for (int64_t i = 0; i < rig_elements(&r, rig_out(&r, node, 1)); i++)
            cr_assert(abs(y[i] - 10 * m[i]) <= 12, "%s: %d, mask %d", t[k][1], y[i], m[i]);
        rig_free(&r);
    }
}

/* ---- AUG-03 ---- */

/* The offset of each sample of a batch: a crop of one pixel of a row that counts. */
static void offsets(uint32_t epoch, uint64_t first, int64_t n, uint8_t *out) {
    uint8_t row[64 * 100];
    for (int i = 0; i < 64 * 100; i++)
        row[i] = (uint8_t)(i % 100); /* every sample has the same content */
    struct rig r = rig_create(n);
    const uint32_t x = rig_input(&r, "x", DR_U8, DR_SHAPE(n, 1, 100, 1), DR_IMAGE, row);
    header(&r)->epoch = epoch;
    for (int64_t i = 0; i < n; i++)
        header(&r)->sample[i] = first + (uint64_t)i;
    memcpy(out, bytes_out(&r, run(&r, "random_crop", "{size: 1}", &x, 1), 0), (size_t)n);
    rig_free(&r);
}

Test(augment_geometry, AUG_03_offsets_belong_to_epoch_and_sample) {
    uint8_t epoch[2][64], again[64];
    for (uint32_t e = 0; e < 2; e++)
        offsets(e, 0, 64, epoch[e]);
    cr_expect_neq(memcmp(epoch[0], epoch[1], 64), 0, "epoch 1 repeats epoch 0");
    bool seen[100] = {false};
    int distinct = 0;
    for (int i = 0; i < 64; i++) {
        cr_assert_lt(epoch[0][i], 100);
        distinct += !seen[epoch[0][i]];
        seen[epoch[0][i]] = true;
    }
    cr_expect_geq(distinct, 30);
    for (uint64_t first = 0; first < 64; first += 4) { /* other batches, from epoch 1 on */
        offsets(1, first, 4, again);
        cr_expect_eq(memcmp(again, epoch[1] + first, 4), 0);
    }
}

/* ---- AUG-06 ---- */

Test(augment_geometry, AUG_06_crop_larger_than_the_image) {
    const uint8_t image[] = {1, 2, 3, 4}, mask[] = {1, 1, 1, 1};
    struct rig r = rig_create(1);
    const uint32_t in[] = {rig_input(&r, "photo", DR_U8, DR_SHAPE(1, 2, 2, 1), DR_IMAGE, image),
                           rig_input(&r, "mask", DR_U8, DR_SHAPE(1, 2, 2), DR_MASK, mask)};
    static const char *const ops[] = {"random_crop", "center_crop", "random_crop_eval"};
    for (size_t k = 0; k < COUNT(ops); k++) {
        cr_expect_eq(rig_op(&r, dr_printf(r.g->arena, "op%d", (int)k), ops[k], "{size: 3}", in, 2),
                     DR_NONE);
    }
    cr_expect(strstr(rig_text(&r), "a crop of 3x3 does not fit into 'photo', which is 2x2; "
                                   "`padding` adds a border"),
              "%s", rig_text(&r));
    rig_free(&r);
    /* The one window that fits: asked for, the border is filled. */
    const uint8_t want[] = {1, 2, 9, 3, 4, 9, 9, 9, 9};
    const uint8_t want_mask[] = {1, 1, 255, 1, 1, 255, 255, 255, 255};
    small("random_crop", "{size: 3, padding: {bottom: 1, right: 1}, fill: 9}", 2, 2, image, mask,
          want, want_mask);
    small("random_crop_eval", "{size: 3, padding: {bottom: 1, right: 1}, fill: 9}", 2, 2, image,
          mask, want, want_mask);
}

Test(augment_geometry, AUG_06_rotation) {
    uint8_t ones[25], turned[25];
    memset(ones, 1, sizeof ones);
    memset(turned, 1, sizeof turned);
    turned[0] = turned[4] = turned[20] = turned[24] = 255;
    uint8_t zeros[25];
    for (int i = 0; i < 25; i++)
        zeros[i] = turned[i] == 255 ? 0 : 1; /* the image's fill */
    small("rotate", "{degrees: [45, 45]}", 5, 5, ones, ones, zeros, turned);
    small("rotate", "{degrees: [-45, -45]}", 5, 5, ones, ones, zeros, turned);
    const uint8_t four[] = {1, 2, 3, 4}, left[] = {2, 4, 1, 3}, right[] = {3, 1, 4, 2};
    const uint8_t half[] = {4, 3, 2, 1};
    for (int k = 0; k < 2; k++) { /* exact by either interpolation */
        char yaml[64];
        const char *how = k ? "bilinear" : "nearest";
        snprintf(yaml, sizeof yaml, "{degrees: [90, 90], interpolation: %s}", how);
        small("rotate", yaml, 2, 2, four, four, left, left);
        snprintf(yaml, sizeof yaml, "{degrees: [-90, -90], interpolation: %s}", how);
        small("rotate", yaml, 2, 2, four, four, right, right);
        snprintf(yaml, sizeof yaml, "{degrees: [180, 180], interpolation: %s}", how);
        small("rotate", yaml, 2, 2, four, four, half, half);
        snprintf(yaml, sizeof yaml, "{degrees: [360, 360], interpolation: %s}", how);
        small("rotate", yaml, 2, 2, four, four, four, four);
        snprintf(yaml, sizeof yaml, "{degrees: [90, 90], interpolation: %s}", how);
        small("affine", yaml, 2, 2, four, four, right, right); /* clockwise, as torchvision's */
    }
}

Test(augment_geometry, AUG_06_crop_of_the_whole_image) {
    static uint8_t image[320 * 320], mask[320 * 320];
    for (int i = 0; i < 320 * 320; i++) {
        image[i] = (uint8_t)(i * 7 % 251);
        mask[i] = (uint8_t)(i % 19);
    }
    static const char *const ops[] = {"random_crop", "random_crop_eval", "center_crop", "resize"};
    for (size_t k = 0; k < COUNT(ops); k++)
        small(ops[k], "{size: 320}", 320, 320, image, mask, image, mask);
    small("affine", "{}", 320, 320, image, mask, image, mask);
    small("affine", "{interpolation: bilinear}", 320, 320, image, mask, image, mask);
}

/* ---- values by hand ---- */

/* Python's round: 0.5 to 0, 1.5 to 2, 2.5 to 2. */
Test(augment_geometry, center_crop_rounds_as_torchvision) {
    const uint8_t row[] = {0, 1, 2, 3, 4, 5, 6};
    small("center_crop", "{size: [1, 2]}", 1, 3, row, row, row, row);
    small("center_crop", "{size: [1, 2]}", 1, 5, row, row, row + 2, row + 2);
    small("center_crop", "{size: [1, 2]}", 1, 7, row, row, row + 2, row + 2);
    small("center_crop", "{size: [1, 3]}", 1, 7, row, row, row + 2, row + 2);
}

Test(augment_geometry, resize_by_hand) {
    const uint8_t row[] = {0, 100, 200, 40};
    /* Twice as wide: centres at a quarter and three quarters of the way. Half: a triangle over four
     * pixels, 1/8 3/8 3/8 1/8, cut off at the edge: 3/7 3/7 1/7. */
    const uint8_t twice[] = {0, 25, 75, 125, 175, 160, 80, 40},
                  near[] = {0, 0, 100, 100, 200, 200, 40, 40};
    const uint8_t half[] = {71, 117}, picked[] = {0, 200};
    small("resize", "{size: [1, 8]}", 1, 4, row, row, twice, near);
    small("resize", "{size: [1, 2]}", 1, 4, row, row, half, picked);
    small("resize", "{size: [8, 1]}", 4, 1, row, row, twice, near);
}

Test(augment_geometry, a_constant_image_stays_constant) {
    static uint8_t image[40 * 31], mask[40 * 31], want[70 * 70];
    memset(image, 201, sizeof image);
    memset(mask, 201, sizeof mask);
    memset(want, 201, sizeof want);
    static const char *const yaml[] = {"{size: [7, 70]}", "{size: [70, 3]}", "{size: [33, 32]}"};
    for (size_t k = 0; k < COUNT(yaml); k++) {
        small("resize", yaml[k], 40, 31, image, mask, want, want);
        small("random_resized_crop", yaml[k], 40, 31, image, mask, want, want);
    }
}

/* ---- windows ---- */

Test(augment_geometry, windows_are_within_their_ranges) {
    struct dr_batch *b = calloc(1, dr_batch_bytes(1));
    struct dr_resample r = {.how = DR_WINDOW_PART,
                            .h = 100,
                            .w = 80,
                            .ho = 5,
                            .wo = 5,
                            .n = 1,
                            .scale = {0.08, 1},
                            .ratio = {0.75, 4.0 / 3},
                            .log_ratio = {log(0.75), log(4.0 / 3)},
                            .seed = 3,
                            .key = 9};
    double area = 0;
    enum { N = 4000 };
    for (b->sample[0] = 0; b->sample[0] < N; b->sample[0]++) {
        const struct dr_window v = dr_window_of(&r, b, 0);
        cr_assert(v.top >= 0 && v.left >= 0 && v.top + v.h <= r.h && v.left + v.w <= r.w);
        const double share = v.h * v.w / 8000.0, ratio = (double)v.w / v.h;
        cr_assert(share > 0.075 && share <= 1.0, "%g", share);
        cr_assert(ratio > 0.70 && ratio < 1.42, "%g", ratio);
        area += share / N;
    }
    /* Uniform in [0.08, 1], but that the largest seldom fit: a bit below 0.54. */
    cr_expect(area > 0.44 && area < 0.54, "%g", area);
    /* None of ten tries fits: the largest middle part of a permitted shape. */
    r.scale[0] = r.scale[1] = 1;
    r.ratio[0] = r.ratio[1] = 2;
    r.log_ratio[0] = r.log_ratio[1] = log(2);
    struct dr_window v = dr_window_of(&r, b, 0);
    cr_expect(v.w == 80 && v.h == 40 && v.top == 30 && v.left == 0);
    r.ratio[0] = r.ratio[1] = 0.5;
    r.log_ratio[0] = r.log_ratio[1] = log(0.5);
    v = dr_window_of(&r, b, 0);
    cr_expect(v.w == 50 && v.h == 100 && v.top == 0 && v.left == 15);
    free(b);
}

/* ---- evaluation ---- */

/* 256 is 224 / 0.875: nothing is resized, and what is left is center_crop. */
Test(augment_geometry, evaluation_of_random_resized_crop) {
    cr_assert_str_eq(dr_op_find(dr_ops(), "random_resized_crop")->eval_form->name,
                     "random_resized_crop_eval");
    cr_assert_str_eq(dr_op_find(dr_ops(), "random_crop")->eval_form->name, "random_crop_eval");
    enum { H = 256, W = 321, S = 224 };
    static uint8_t image[H * W], mask[H * W];
    for (int i = 0; i < H * W; i++) {
        image[i] = (uint8_t)(i * 7 % 251);
        mask[i] = (uint8_t)(i % 19);
    }
    static uint8_t want[S * S], want_mask[S * S];
    for (int y = 0; y < S; y++)
        for (int x = 0; x < S; x++) { /* round(97 / 2) = 48 */
            want[y * S + x] = image[(y + 16) * W + x + 48];
            want_mask[y * S + x] = mask[(y + 16) * W + x + 48];
        }
    small("random_resized_crop_eval", "{size: 224}", H, W, image, mask, want, want_mask);
    small("random_crop_eval", "{size: 224}", H, W, image, mask, want, want_mask);
    small("center_crop", "{size: 224}", H, W, image, mask, want, want_mask);
}

/* ---- threads ---- */

Test(augment_geometry, threads_change_nothing) {
    enum { N = 24, H = 60, W = 50 };
    static uint8_t image[N * H * W * 3], first[N * 40 * 40 * 3];
    for (int i = 0; i < N * H * W * 3; i++)
        image[i] = (uint8_t)(i * 31 % 253);
    static const char *const t[][2] = {{"random_resized_crop", "{size: 40}"},
                                       {"affine", "{scale: [0.5, 2], interpolation: bilinear}"}};
    for (size_t k = 0; k < COUNT(t); k++) {
        for (int threads = 0; threads < 2; threads++) {
            struct rig r = rig_create(N);
            const uint32_t x = rig_input(&r, "x", DR_U8, DR_SHAPE(N, H, W, 3), DR_IMAGE, image);
            pthreadpool_t pool = threads ? pthreadpool_create(4) : NULL;
            r.cpu.pool = pool;
            const uint8_t *y = bytes_out(&r, run(&r, t[k][0], t[k][1], &x, 1), 0);
            if (threads)
                cr_expect_eq(memcmp(first, y, sizeof first), 0, "%s", t[k][0]);
            else
                memcpy(first, y, sizeof first);
            rig_free(&r);
            if (pool)
                pthreadpool_destroy(pool);
        }
    }
}

/* ---- refused ---- */

Test(augment_geometry, refuses) {
    static const struct rig_refused t[] = {
        {"random_crop", "{size: 2}", DR_I32, {1, {4}}, DR_LABEL, "'v' is a label"},
        {"resize", "{size: 2}", DR_F32, {2, {4, 10}}, DR_PLAIN, "'v' is [4, 10]"},
        {"resize", "{size: 2}", DR_I32, {4, {4, 3, 3, 1}}, DR_IMAGE, "'v' is i32"},
        {"resize", "{size: 2}", DR_F64, {3, {4, 3, 3}}, DR_MASK, "masks hold integers"},
        {"resize", "{size: 0}", DR_U8, {3, {4, 3, 3}}, DR_MASK, "size"},
        {"resize", "{size: 70000}", DR_U8, {3, {4, 3, 3}}, DR_MASK, "size"},
        {"resize", "{}", DR_U8, {3, {4, 3, 3}}, DR_MASK, "'size' is missing"},
        {"resize", "{size: 65535}", DR_U8, {3, {4, 3, 3}}, DR_MASK, "2^31 values"},
        {"center_crop", "{size: 2}", DR_U8, {3, {1, 70000, 3}}, DR_MASK, "65535 pixels a side"},
        {"center_crop", "{size: 2}", DR_U8, {4, {1, 60000, 60000, 1}}, DR_IMAGE, "2^31 values"},
        {"random_crop",
         "{size: 2, fill: 256}",
         DR_U8,
         {4, {1, 3, 3, 1}},
         DR_IMAGE,
         "fill 256 is no value of 'v', which is u8"},
        {"random_crop", "{size: 2, fill: 0.5}", DR_U8, {4, {1, 3, 3, 1}}, DR_IMAGE, "fill 0.5"},
        {"random_crop",
         "{size: 2, padding: same}",
         DR_U8,
         {4, {1, 3, 3, 1}},
         DR_IMAGE,
         "a number of pixels"},
        {"random_crop",
         "{size: 9, padding: 2}",
         DR_U8,
         {4, {1, 3, 3, 1}},
         DR_IMAGE,
         "not with its padding either"},
        {"random_resized_crop",
         "{size: 2, scale: [0.5]}",
         DR_U8,
         {4, {1, 3, 3, 1}},
         DR_IMAGE,
         "scale must be [least, most]"},
        {"random_resized_crop",
         "{size: 2, scale: [0.5, 0.2]}",
         DR_U8,
         {4, {1, 3, 3, 1}},
         DR_IMAGE,
         "the least, 0.5, is above the most, 0.2"},
        {"random_resized_crop",
         "{size: 2, ratio: [0, 1]}",
         DR_U8,
         {4, {1, 3, 3, 1}},
         DR_IMAGE,
         "ratio"},
        {"random_resized_crop_eval",
         "{size: [9, 9]}",
         DR_U8,
         {4, {1, 2, 20000, 1}},
         DR_IMAGE,
         "would first be resized to 10x100000"},
        {"rotate", "{}", DR_U8, {4, {1, 3, 3, 1}}, DR_IMAGE, "'degrees' is missing"},
        {"rotate", "{degrees: []}", DR_U8, {4, {1, 3, 3, 1}}, DR_IMAGE, "[least, most]"},
        {"rotate",
         "{degrees: [0, 1], interpolation: cubic}",
         DR_U8,
         {4, {1, 3, 3, 1}},
         DR_IMAGE,
         "cubic"},
        {"affine",
         "{translate: [0.1]}",
         DR_U8,
         {4, {1, 3, 3, 1}},
         DR_IMAGE,
         "translate must be [x, y]"},
        {"affine", "{shear: [1, 2, 3]}", DR_U8, {4, {1, 3, 3, 1}}, DR_IMAGE, "shear must be"},
        {"affine", "{shear: [1, 2, 4, 3]}", DR_U8, {4, {1, 3, 3, 1}}, DR_IMAGE, "is above"},
        {"affine", "{shear: [0, 90]}", DR_U8, {4, {1, 3, 3, 1}}, DR_IMAGE, "shear"},
    };
    rig_refuses(t, COUNT(t), false);
    struct rig r = rig_create(1);
    const uint32_t in[] = {rig_input(&r, "x", DR_U8, DR_SHAPE(1, 4, 6, 1), DR_IMAGE, NULL),
                           rig_input(&r, "m", DR_U8, DR_SHAPE(1, 4, 5), DR_MASK, NULL)};
    cr_expect_eq(rig_op(&r, "op", "random_crop", "{size: 2}", in, 2), DR_NONE);
    cr_expect(strstr(rig_text(&r), "must have the same height and width"), "%s", rig_text(&r));
    rig_free(&r);
}
