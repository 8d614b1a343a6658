/* Cases of average pools, max_pool2d's ceil_mode, upsample, slice, pad, transpose, argmax, dropout
 * and matmul. */
#include "kernels/batch.h"
#include "ops/common.h"
#include "tests/fake_cuda_lab.h"
#include <stdlib.h>

static void one(struct lab *l, const char *op, const char *yaml, struct dr_shape s, bool odd) {
    struct lab_case c = lab_case(l, s.dim[0]);
    const uint32_t x = odd ? lab_odd_floats(&c, "x", s) : lab_floats(&c, "x", s, NULL);
    const uint32_t node = lab_node(&c, op, yaml, DR_ACT_NONE, &x, 1);
    if (dr_op_find(dr_ops(), op)->grad) {
        lab_grads(&c, node);
    }
    lab_check(&c);
}

static void bytes(struct lab *l, const char *op, const char *yaml, struct dr_shape s) {
    struct lab_case c = lab_case(l, s.dim[0]);
    const uint32_t x = lab_bytes(&c, "x", s, DR_MASK, 256);
    lab_node(&c, op, yaml, DR_ACT_NONE, &x, 1);
    lab_check(&c);
}

static void literal(struct lab *l, const char *op, const char *yaml, struct dr_shape s,
                    const float *x, const float *y) {
    struct lab_case c = lab_case(l, s.dim[0]);
    const uint32_t v = lab_floats(&c, "x", s, x);
    lab_node(&c, op, yaml, DR_ACT_NONE, &v, 1);
    lab_expect(&c, op, y);
    lab_check(&c);
}

static void average_cases(struct lab *l) {
    for (int odd = 0; odd < 2; odd++) {
        one(l, "max_pool2d", "{kernel: 3, stride: 2, ceil_mode: yes}", DR_SHAPE(2, 10, 7, 65), odd);
        one(l, "max_pool2d", "{kernel: 2, stride: 3, padding: 1, ceil_mode: yes}",
            DR_SHAPE(1, 9, 40, 3), odd);
        one(l, "avg_pool2d", "{kernel: 1}", DR_SHAPE(1, 1, 1, 1), odd);
        one(l, "avg_pool2d", "{kernel: 2}", DR_SHAPE(2, 4, 5, 3), odd);
        one(l, "avg_pool2d", "{kernel: 3, stride: 2, padding: 1}", DR_SHAPE(2, 9, 12, 70), odd);
        one(l, "avg_pool2d", "{kernel: 3, stride: 2, padding: 1, ceil_mode: yes}",
            DR_SHAPE(2, 10, 12, 5), odd);
        one(l, "avg_pool2d",
            "{kernel: [3, 5], stride: 1, padding: {top: 1, left: 0, bottom: 0, right: 2}, "
            "count_include_pad: no}",
            DR_SHAPE(2, 7, 8, 33), odd);
        one(l, "avg_pool2d", "{kernel: [1, 5], stride: [3, 2], padding: [0, 2]}",
            DR_SHAPE(1, 7, 40, 2), odd);
        one(l, "avg_pool2d", "{kernel: 5, stride: 1, padding: same}", DR_SHAPE(1, 7, 40, 2), odd);
        one(l, "avg_pool2d", "{kernel: 2, stride: 5}", DR_SHAPE(3, 12, 13, 4), odd);
        one(l, "avg_pool2d", "{kernel: 40}", DR_SHAPE(1, 40, 41, 3), odd);
        one(l, "avg_pool2d", "{kernel: 3, stride: 2, padding: 1}", DR_SHAPE(2, 9, 7, 48), odd);
        one(l, "global_avg_pool", "{}", DR_SHAPE(3, 7, 5, 10), odd);
    }
    static const int64_t channels[] = {1, 2, 3, 31, 32, 33, 200};
    for (size_t i = 0; i < DR_COUNT(channels); i++) {
        one(l, "global_avg_pool", "{}", DR_SHAPE(2, 9, 11, channels[i]), false);
    }
    one(l, "global_avg_pool", "{}", DR_SHAPE(70000, 1, 2, 3), false); /* more than 65535 samples */
    one(l, "global_avg_pool", "{}", DR_SHAPE(1, 1, 1, 1), false);
    float *ones = malloc(sizeof *ones * 4097 * 4097); /* CONV-13 (b) */
    DR_ASSERT(ones);
    for (int64_t i = 0; i < INT64_C(4097) * 4097; i++) {
        ones[i] = 1;
    }
    literal(l, "global_avg_pool", "{}", DR_SHAPE(1, 300, 300, 1), ones, (const float[]){1});
    literal(l, "global_avg_pool", "{}", DR_SHAPE(1, 4097, 4097, 1), ones, (const float[]){1});
    literal(l, "avg_pool2d", "{kernel: 300}", DR_SHAPE(1, 300, 300, 1), ones, (const float[]){1});
    free(ones);
    literal(l, "avg_pool2d", "{kernel: 2, padding: 1}", DR_SHAPE(1, 3, 3, 1),
            (const float[]){1, 2, 3, 4, 5, 6, 7, 8, 9}, (const float[]){0.25F, 1.25F, 2.75F, 7});
}

static void upsample_cases(struct lab *l) {
    static const char *const modes[] = {"nearest", "bilinear"};
    static const struct {
        const char *how;
        int64_t in[4];
    } row[] = {
        {"scale: 2", {2, 3, 4, 5}},       {"scale: [3, 1]", {1, 7, 5, 70}},
        {"scale: 1", {2, 3, 3, 1}},       {"size: [5, 7]", {2, 4, 3, 3}},
        {"size: [2, 3]", {1, 17, 10, 2}}, {"size: 1", {2, 6, 5, 3}},
        {"size: [9, 1]", {1, 1, 40, 3}},  {"size: [71, 45]", {2, 35, 22, 16}},
        {"scale: 40", {1, 3, 2, 1}},      {"size: [100, 3]", {2, 99, 101, 4}},
        {"scale: 2", {2, 5, 4, 32}},
    };
    for (size_t m = 0; m < DR_COUNT(modes); m++) {
        for (size_t i = 0; i < DR_COUNT(row); i++) {
            char yaml[80];
            const int64_t *d = row[i].in;
            snprintf(yaml, sizeof yaml, "{%s, mode: %s}", row[i].how, modes[m]);
            one(l, "upsample", yaml, DR_SHAPE(d[0], d[1], d[2], d[3]), false);
        }
    }
    one(l, "upsample", "{scale: 3}", DR_SHAPE(2, 5, 4, 3), true);
    literal(l, "upsample", "{scale: [1, 2], mode: bilinear}", DR_SHAPE(1, 1, 2, 1),
            (const float[]){0, 4}, (const float[]){0, 1, 3, 4});
}

static void move_cases(struct lab *l) {
    static const int64_t last[] = {1, 3, 4, 16, 70};
    for (size_t i = 0; i < DR_COUNT(last); i++) {
        const struct dr_shape s = DR_SHAPE(3, 7, 5, last[i]);
        static const char *const cut[] = {"{axis: 1, begin: 1, end: 4}", "{axis: 2, begin: -2}",
                                          "{axis: 1, begin: 6}", "{end: 1}", "{}"};
        static const char *const border[] = {
            "{padding: 1}", "{padding: [0, 3], value: 7}", "{padding: 0}",
            "{padding: {top: 1, left: 2, bottom: 3, right: 4}, value: 255}"};
        static const char *const turn[] = {"{axes: [3, 1, 2]}", "{axes: [2, 3, 1]}",
                                           "{axes: [2, 1, 3]}", "{axes: [3, 2, 1]}",
                                           "{axes: [1, 3, 2]}", "{axes: [1, 2, 3]}"};
        for (size_t k = 0; k < DR_COUNT(cut); k++) {
            one(l, "slice", cut[k], s, true);
            bytes(l, "slice", cut[k], s);
        }
        for (size_t k = 0; k < DR_COUNT(border); k++) {
            one(l, "pad", border[k], s, true);
            bytes(l, "pad", border[k], s);
        }
        for (size_t k = 0; k < DR_COUNT(turn); k++) {
            one(l, "transpose", turn[k], s, true);
            bytes(l, "transpose", turn[k], s);
        }
    }
    one(l, "pad", "{padding: 2, value: -3}", DR_SHAPE(2, 3, 4), false); /* no channels */
    bytes(l, "pad", "{padding: 2, value: 255}", DR_SHAPE(2, 3, 4));
    one(l, "slice", "{begin: 100, end: 300}", DR_SHAPE(2, 400), false);
    one(l, "transpose", "{axes: [4, 2, 1, 3]}", DR_SHAPE(2, 3, 4, 5, 6), false);
    one(l, "transpose", "{axes: [3, 4, 1, 2]}", DR_SHAPE(2, 3, 4, 5, 6), false);
    one(l, "transpose", "{axes: [2, 1]}", DR_SHAPE(3, 100, 70), false);
    one(l, "transpose", "{axes: [1]}", DR_SHAPE(3, 70), false);
    one(l, "transpose", "{axes: [3, 1, 2]}", DR_SHAPE(2, 130, 140, 66), false);
}

static void argmax_cases(struct lab *l) {
    static const int64_t k[] = {1, 2, 10, 31, 32, 33, 64, 255, 256, 257, 1000, 5000};
    for (size_t i = 0; i < DR_COUNT(k); i++) {
        one(l, "argmax", "{}", DR_SHAPE(2, 3, 5, k[i]), false);
        one(l, "argmax", "{}", DR_SHAPE(2, 3, 5, k[i]), true); /* ties, NaN, infinities */
    }
    one(l, "argmax", "{}", DR_SHAPE(70000, 3), true);
    one(l, "argmax", "{}", DR_SHAPE(70000, 40), true);
}

/* Several epochs' worth of samples; masks by the same bits, forward and back. */
static void dropout(struct lab *l, const char *yaml, struct dr_shape s) {
    struct lab_case c = lab_case(l, s.dim[0]);
    const uint32_t x = lab_odd_floats(&c, "x", s);
    struct dr_batch *h = c.r.at[c.r.g->header];
    h->epoch = 3;
    for (int64_t i = 0; i < s.dim[0]; i++) {
        h->sample[i] = (uint64_t)lab_below(l, INT64_C(1) << 40);
    }
    lab_grads(&c, lab_node(&c, "dropout", yaml, DR_ACT_NONE, &x, 1));
    lab_check(&c);
}
static void dropout_cases(struct lab *l) {
    static const char *const p[] = {"{p: 0}", "{p: 0.1}", "{}", "{p: 0.9999}", "{p: 1}"};
    for (size_t i = 0; i < DR_COUNT(p); i++) {
        dropout(l, p[i], DR_SHAPE(3, 1));
        dropout(l, p[i], DR_SHAPE(33, 3, 5, 7)); /* 105: a tail of one */
        dropout(l, p[i], DR_SHAPE(2, 8190));
        dropout(l, p[i], DR_SHAPE(3, 5, 8)); /* whole draws */
        dropout(l, p[i], DR_SHAPE(1, 70, 71, 65));
    }
    dropout(l, "{}", DR_SHAPE(70000, 5));
    dropout(l, "{}", DR_SHAPE(5));
}

static void matmul(struct lab *l, struct dr_shape a, struct dr_shape b) {
    struct lab_case c = lab_case(l, a.dim[0]);
    const uint32_t in[] = {lab_floats(&c, "a", a, NULL), lab_floats(&c, "b", b, NULL)};
    lab_grads(&c, lab_node(&c, "matmul", "{}", DR_ACT_NONE, in, 2));
    lab_check(&c);
}
static void matmul_cases(struct lab *l) {
    static const int64_t size[][4] = {{1, 1, 1, 1},    {2, 3, 5, 4},      {7, 1, 64, 1},
                                      {3, 65, 33, 17}, {2, 128, 64, 256}, {1, 300, 200, 100},
                                      {5, 4, 1, 9},    {70000, 2, 3, 2}};
    for (size_t i = 0; i < DR_COUNT(size); i++) {
        const int64_t *d = size[i];
        matmul(l, DR_SHAPE(d[0], d[1], d[2]), DR_SHAPE(d[0], d[2], d[3]));
    }
    matmul(l, DR_SHAPE(2, 3, 17, 8), DR_SHAPE(2, 3, 8, 9));
}

void lab_shape_cases(struct lab *l) {
    average_cases(l);
    upsample_cases(l);
    move_cases(l);
    argmax_cases(l);
    dropout_cases(l);
    matmul_cases(l);
}
