/* Cases of the augmentation ops that crop, turn, colour, blur and mix, and of cross_entropy against
 * the shares of classes that mixing makes. */
#include "kernels/batch.h"
#include "ops/common.h"
#include "tests/fake_cuda_lab.h"
#include <stdlib.h>

/* Samples of a later epoch, anywhere in the data. */
static struct lab_case samples(struct lab *l, int64_t batch, uint32_t n_valid) {
    struct lab_case c = lab_case(l, batch);
    rig_header(&c.r, 7, n_valid);
    struct dr_batch *h = c.r.at[c.r.g->header];
    h->epoch = 3;
    for (int64_t i = 0; i < batch; i++) {
        h->sample[i] = (uint64_t)lab_below(l, INT64_C(1) << 40);
    }
    return c;
}

/* An f32 image in [0, 1]. */
static uint32_t unit_floats(struct lab_case *c, const char *name, struct dr_shape s) {
    const uint32_t v = rig_input(&c->r, name, DR_F32, s, DR_IMAGE, NULL);
    rig_set(&c->r, v, NULL);
    for (int64_t i = 0, n = rig_elements(&c->r, v); i < n; i++) {
        rig_f32(&c->r, v)[i] = 0.5f * lab_uniform(c->lab) + 0.5f;
    }
    return v;
}
static uint32_t wide_mask(struct lab_case *c, struct dr_shape s) {
    const uint32_t v = rig_input(&c->r, "wide", DR_I32, s, DR_MASK, NULL);
    rig_set(&c->r, v, NULL);
    for (int64_t i = 0, n = rig_elements(&c->r, v); i < n; i++) {
        ((int32_t *)c->r.at[v])[i] = (int32_t)lab_below(c->lab, 100000);
    }
    return v;
}

/* Images and masks of several types by one draw: more than one launch. */
static void geometry(struct lab *l, const char *op, const char *yaml, int64_t n, int64_t h,
                     int64_t w, int64_t channels) {
    struct lab_case c = samples(l, n, (uint32_t)n);
    const uint32_t in[] = {
        lab_bytes(&c, "image", DR_SHAPE(n, h, w, channels), DR_IMAGE, 256),
        lab_bytes(&c, "mask", DR_SHAPE(n, h, w), DR_MASK, 256),
        unit_floats(&c, "floats", DR_SHAPE(n, h, w, channels)),
        wide_mask(&c, DR_SHAPE(n, h, w)),
        lab_bytes(&c, "grey", DR_SHAPE(n, h, w, 1), DR_IMAGE, 256),
        unit_floats(&c, "flat", DR_SHAPE(n, h, w)),
    };
    lab_node(&c, op, yaml, DR_ACT_NONE, in, DR_COUNT(in));
    lab_check(&c);
}

static void geometry_cases(struct lab *l) {
    static const struct {
        const char *op, *yaml;
    } row[] = {
        {"center_crop", "{size: [3, 4]}"},
        {"random_crop", "{size: [3, 4]}"},
        {"random_crop", "{size: [4, 8], padding: 3, fill: 9}"},
        {"random_crop", "{size: [5, 8], padding: {top: 9, right: 1}, fill: 200}"},
        {"random_crop_eval", "{size: [9, 8], padding: {top: 5, right: 1}}"},
        {"resize", "{size: [7, 9]}"},
        {"resize", "{size: [1, 2]}"},
        {"resize", "{size: [8, 40]}"},
        {"random_resized_crop", "{size: [4, 6]}"},
        {"random_resized_crop", "{size: [16, 12], scale: [0.9, 1], ratio: [0.1, 10]}"},
        {"random_resized_crop", "{size: 3, scale: [0, 0.01]}"}, /* none of the ten tries */
        {"random_resized_crop", "{size: 3, ratio: [3, 4], scale: [1, 1]}"},
        {"random_resized_crop_eval", "{size: 4}"},
        {"random_resized_crop_eval", "{size: [3, 20]}"},
        {"rotate", "{degrees: [-180, 180]}"},
        {"rotate", "{degrees: [90, 90], fill: 3}"},
        {"rotate", "{degrees: [-45, 30], interpolation: bilinear, fill: 77}"},
        {"affine", "{}"},
        {"affine", "{degrees: [-20, 20], translate: [0.4, 1], scale: [0.5, 2], shear: [-30, 30]}"},
        {"affine", "{scale: [0.1, 0.9], shear: [-60, 60, 5, 20], interpolation: bilinear}"},
    };
    for (size_t i = 0; i < DR_COUNT(row); i++) {
        geometry(l, row[i].op, row[i].yaml, 33, 6, 7, 3);
        geometry(l, row[i].op, row[i].yaml, 3, 8, 12, 4);
        geometry(l, row[i].op, row[i].yaml, 2, 9, 11, 5);
    }
    geometry(l, "resize", "{size: [100, 90]}", 2, 130, 140, 3);
    geometry(l, "resize", "{size: [11, 260]}", 1, 400, 170, 1);
    geometry(l, "random_resized_crop", "{size: 224}", 2, 301, 260, 3);
    geometry(l, "random_crop", "{size: [120, 128], padding: 8}", 2, 130, 140, 3);
    geometry(l, "rotate", "{degrees: [-30, 30]}", 2, 130, 140, 3);
    geometry(l, "affine", "{scale: [0.5, 2], interpolation: bilinear}", 2, 130, 140, 3);
    geometry(l, "random_crop", "{size: 1}", 70000, 2, 1, 1); /* more samples than a grid has rows */
    geometry(l, "random_resized_crop", "{size: 1}", 70000, 2, 1, 1);
    geometry(l, "rotate", "{degrees: [0, 90]}", 70000, 2, 1, 1);
}

static void image(struct lab *l, const char *op, const char *yaml, struct dr_shape s, bool u8) {
    struct lab_case c = samples(l, s.dim[0], (uint32_t)s.dim[0]);
    const uint32_t x = u8 ? lab_bytes(&c, "x", s, DR_IMAGE, 256) : unit_floats(&c, "x", s);
    lab_node(&c, op, yaml, DR_ACT_NONE, &x, 1);
    lab_check(&c);
}

static void image_cases(struct lab *l) {
    static const struct {
        const char *op, *yaml;
    } row[] = {
        {"color_jitter", "{}"},
        {"color_jitter", "{brightness: 0.4}"},
        {"color_jitter", "{contrast: 0.9}"},
        {"color_jitter", "{saturation: 3, hue: 0.5}"},
        {"color_jitter", "{brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}"},
        {"grayscale", "{}"},
        {"grayscale", "{p: 0.5}"},
        {"grayscale", "{p: 1}"},
        {"gaussian_blur", "{kernel: 1}"},
        {"gaussian_blur", "{kernel: 3}"},
        {"gaussian_blur", "{kernel: [1, 9], sigma: [0.001, 5]}"},
        {"gaussian_blur", "{kernel: [9, 5], sigma: [3, 3]}"},
        {"random_erasing", "{}"},
        {"random_erasing", "{p: 1, value: 255}"},
        {"random_erasing", "{p: 1, scale: [0.01, 0.99], ratio: [0.1, 10], value: 1}"},
    };
    for (size_t i = 0; i < DR_COUNT(row); i++) {
        for (int u8 = 0; u8 < 2; u8++) {
            image(l, row[i].op, row[i].yaml, DR_SHAPE(33, 6, 7, 3), u8);
            image(l, row[i].op, row[i].yaml, DR_SHAPE(3, 8, 12, 1), u8);
            image(l, row[i].op, row[i].yaml, DR_SHAPE(2, 6, 6), u8);
            image(l, row[i].op, row[i].yaml, DR_SHAPE(2, 101, 99, 3),
                  u8); /* several sums of greys */
            image(l, row[i].op, row[i].yaml, DR_SHAPE(1, 128, 300, 3), u8);
        }
    }
    for (int u8 = 0; u8 < 2; u8++) {
        image(l, "color_jitter", "{contrast: 1}", DR_SHAPE(70000, 2, 1, 1), u8);
        image(l, "grayscale", "{p: 0.5}", DR_SHAPE(70000, 1, 1, 3), u8);
        image(l, "random_erasing", "{p: 0.5, scale: [0.4, 0.6]}", DR_SHAPE(70000, 2, 2, 1), u8);
        image(l, "gaussian_blur", "{kernel: 3}", DR_SHAPE(70000, 2, 2, 1), u8);
        image(l, "gaussian_blur", "{kernel: [255, 3]}", DR_SHAPE(1, 130, 5, 9), u8);
        image(l, "gaussian_blur", "{kernel: [3, 255]}", DR_SHAPE(1, 3, 700, 6), u8);
        image(l, "random_erasing", "{p: 1}", DR_SHAPE(9, 20, 21, 5), u8);
    }
}

/* Labels of `classes`, one of which may be none. */
static uint32_t labels(struct lab_case *c, int64_t n, int64_t classes, bool wrong) {
    const uint32_t v = rig_input(&c->r, "label", DR_I32, DR_SHAPE(n), DR_LABEL, NULL);
    rig_set(&c->r, v, NULL);
    for (int64_t i = 0; i < n; i++) {
        ((int32_t *)c->r.at[v])[i] = (int32_t)lab_below(c->lab, classes);
    }
    if (wrong) {
        ((int32_t *)c->r.at[v])[n / 2] = (int32_t)classes;
    }
    return v;
}

static void mix(struct lab *l, const char *op, double alpha, struct dr_shape s, uint32_t n_valid,
                bool wrong) {
    const int64_t n = s.dim[0], classes = 10;
    struct lab_case c = samples(l, n, n_valid);
    uint32_t in[6] = {lab_bytes(&c, "image", s, DR_IMAGE, 256), labels(&c, n, classes, wrong),
                      unit_floats(&c, "floats", s), lab_floats(&c, "value", DR_SHAPE(n, 3), NULL)};
    uint32_t n_in = 4;
    if (op[0] == 'c') {
        const struct dr_shape flat = DR_SHAPE(n, s.dim[1], s.dim[2]);
        in[n_in++] = lab_bytes(&c, "mask", flat, DR_MASK, 256);
        in[n_in++] = wide_mask(&c, flat);
    }
    char yaml[64];
    snprintf(yaml, sizeof yaml, "{alpha: %g, classes: %d}", alpha, (int)classes);
    const uint32_t node = lab_node(&c, op, yaml, DR_ACT_NONE, in, n_in);
    if (node != DR_NONE) {
        const uint32_t soft = rig_out(&c.r, node, 1);
        const uint32_t logits = lab_floats(&c, "logits", DR_SHAPE(n, classes), NULL);
        const uint32_t loss = lab_node(&c, "cross_entropy", "{label_smoothing: 0.1}", DR_ACT_NONE,
                                       (uint32_t[]){logits, soft}, 2);
        lab_grads(&c, loss);
    }
    lab_check(&c);
}

static void mix_cases(struct lab *l) {
    static const char *const ops[] = {"mixup", "cutmix"};
    static const double alphas[] = {1e-6, 0.2, 1, 40};
    for (size_t i = 0; i < DR_COUNT(ops); i++) {
        for (size_t k = 0; k < DR_COUNT(alphas); k++) {
            mix(l, ops[i], alphas[k], DR_SHAPE(33, 6, 7, 3), 33, false);
            mix(l, ops[i], alphas[k], DR_SHAPE(5, 8, 12, 4), 3, false);
        }
        mix(l, ops[i], 1, DR_SHAPE(2, 130, 140, 3), 2, false);
        mix(l, ops[i], 1, DR_SHAPE(1, 3, 3, 1), 1, false);
        mix(l, ops[i], 1, DR_SHAPE(4, 3, 3, 1), 0, false);
        mix(l, ops[i], 1, DR_SHAPE(4, 3, 3, 1), 4, true);
        mix(l, ops[i], 0.3, DR_SHAPE(70000, 1, 2, 1), 69999, false);
    }
}

/* Shares by pixel, many classes. */
static void shares(struct lab *l, struct dr_shape s, uint32_t n_valid) {
    struct lab_case c = samples(l, s.dim[0], n_valid);
    const uint32_t t = rig_input(&c.r, "t", DR_F32, s, DR_LABEL, NULL);
    rig_set(&c.r, t, NULL);
    for (int64_t i = 0, n = rig_elements(&c.r, t); i < n; i++) {
        const float v = lab_uniform(l);
        rig_f32(&c.r, t)[i] = v < 0 ? 0 : v;
    }
    const uint32_t x = lab_floats(&c, "x", s, NULL);
    lab_grads(&c, lab_node(&c, "cross_entropy", "{}", DR_ACT_NONE, (uint32_t[]){x, t}, 2));
    lab_check(&c);
}

void lab_augment_cases(struct lab *l) {
    geometry_cases(l);
    image_cases(l);
    mix_cases(l);
    shares(l, DR_SHAPE(3, 7, 5, 33), 2);
    shares(l, DR_SHAPE(70, 1000), 70);
}
