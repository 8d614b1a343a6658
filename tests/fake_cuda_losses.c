/* Cases of bce, mse, l1 and dice, pixel_accuracy and mean_iou. */
#include "tests/fake_cuda_lab.h"
#include "ops/common.h"
#include <math.h>

static uint32_t integers(struct lab_case *c, enum dr_dtype type, struct dr_shape s, int64_t classes,
                         int64_t ignored) {
    const uint32_t v = rig_input(&c->r, "t", type, s, type == DR_U8 ? DR_MASK : DR_LABEL, NULL);
    rig_set(&c->r, v, NULL);
    for (int64_t i = 0, n = rig_elements(&c->r, v); i < n; i++) {
        const int64_t t = lab_below(c->lab, 5) == 0 ? ignored : lab_below(c->lab, classes);
        if (type == DR_U8) {
            ((uint8_t *)c->r.at[v])[i] = (uint8_t)t;
        } else {
            ((int32_t *)c->r.at[v])[i] = (int32_t)t;
        }
    }
    return v;
}

static void pair(struct lab *l, const char *op, const char *yaml, enum dr_dtype type, int64_t n,
                 int64_t each, uint32_t n_valid, bool odd) {
    const bool bce = op[0] == 'b';
    if (lab_skip(l, op, "pair_loss_grad")) {
        return;
    }
    struct lab_case c = lab_case(l, n);
    rig_header(&c.r, 3, n_valid);
    const struct dr_shape s = DR_SHAPE(n, each, 1), t = DR_SHAPE(n, each);
    const uint32_t x = odd ? lab_odd_floats(&c, "x", s) : lab_floats(&c, "x", s, NULL);
    uint32_t in[2] = {x};
    if (n * each == 1) {
        rig_f32(&c.r, x)[0] = 0.5f; /* far from where a gradient is 0 */
    }
    if (type != DR_F32) {
        in[1] = integers(&c, type, t, bce ? 2 : 200, bce && type == DR_I32 ? -100 : 255);
    } else {
        in[1] = lab_floats(&c, "t", s, NULL);
        for (int64_t i = 0; i < n * each && bce; i++) {
            float *at = &rig_f32(&c.r, in[1])[i];
            *at = n * each == 1 ? 0.25f : fabsf(*at);
        }
    }
    lab_grads(&c, lab_node(&c, op, yaml, DR_ACT_NONE, in, 2));
    lab_check(&c);
}

static void pairs(struct lab *l) {
    static const int64_t size[][3] = {{1, 1, 1},    {3, 5, 2},        {7, 1000, 7},
                                      {2, 4096, 1}, {300, 1024, 299}, {4, 9, 0}};
    static const enum dr_dtype types[] = {DR_U8, DR_I32, DR_F32};
    for (size_t i = 0; i < DR_COUNT(size) * DR_COUNT(types); i++) {
        const int64_t *s = size[i / DR_COUNT(types)];
        const enum dr_dtype t = types[i % DR_COUNT(types)];
        for (int odd = 0; odd < 2; odd++) {
            pair(l, "bce", "{}", t, s[0], s[1], (uint32_t)s[2], odd);
            pair(l, "bce", "{pos_weight: 2.5}", t, s[0], s[1], (uint32_t)s[2], odd);
            pair(l, "mse", "{}", t, s[0], s[1], (uint32_t)s[2], odd);
            pair(l, "l1", "{}", t, s[0], s[1], (uint32_t)s[2], odd);
        }
    }
    pair(l, "bce", "{ignore_index: 1}", DR_I32, 40, 30, 33, false);
    struct lab_case c = lab_case(l, 4); /* class 2 of two: NaN */
    const uint32_t in[] = {
        lab_floats(&c, "x", DR_SHAPE(4, 1), NULL),
        rig_input(&c.r, "t", DR_I32, DR_SHAPE(4), DR_LABEL, (const int32_t[]){0, 1, 2, 1})};
    lab_grads(&c, lab_node(&c, "bce", "{}", DR_ACT_NONE, in, 2));
    lab_check(&c);
}

struct pixels {
    int64_t n, h, w, k;
    uint32_t n_valid;
    const char *dice, *metric; /* attributes */
    int64_t wrong;             /* class of the first pixel; -1: none is wrong */
};
static void segmentation(struct lab *l, const struct pixels *p, const char *op, bool odd) {
    if (lab_skip(l, op, op)) {
        return;
    }
    struct lab_case c = lab_case(l, p->n);
    rig_header(&c.r, 3, p->n_valid);
    const struct dr_shape s = DR_SHAPE(p->n, p->h, p->w, p->k), t = DR_SHAPE(p->n, p->h, p->w);
    const enum dr_dtype type = p->wrong < 0 && p->k < 255 ? DR_U8 : DR_I32;
    uint32_t in[2] = {odd ? lab_odd_floats(&c, "x", s) : lab_floats(&c, "x", s, NULL)};
    for (int64_t i = 0, n = rig_elements(&c.r, in[0]); i < n && !odd; i++) {
        float *x = &rig_f32(&c.r, in[0])[i];
        *x = op[0] == 'd' ? *x * 4 : roundf(*x * 3); /* ties */
    }
    in[1] = integers(&c, type, t, p->k == 1 ? 2 : p->k, type == DR_U8 ? 255 : -100);
    if (p->wrong >= 0) {
        *(int32_t *)c.r.at[in[1]] = (int32_t)p->wrong;
    }
    const uint32_t node = lab_node(&c, op, op[0] == 'd' ? p->dice : p->metric, DR_ACT_NONE, in, 2);
    if (op[0] == 'd') {
        lab_grads(&c, node);
    }
    lab_check(&c);
}

void lab_loss_cases(struct lab *l) {
    static const struct pixels row[] = {
        {1, 1, 1, 1, 1, "{}", "{}", -1},
        {3, 4, 5, 1, 2, "{}", "{}", -1},
        {2, 40, 33, 1, 2, "{smooth: 0}", "{ignore_index: 1}", -1},
        {3, 4, 5, 2, 3, "{ignore_index: 1}", "{}", -1},
        {2, 60, 70, 11, 2, "{}", "{}", -1},
        {5, 9, 7, 31, 4, "{smooth: 0.5}", "{ignore_index: 3}", -1},
        {4, 3, 7, 32, 4, "{}", "{}", -1},
        {4, 3, 7, 33, 0, "{}", "{}", -1},
        {2, 8, 8, 100, 2, "{smooth: 0}", "{}", -1},
        {1, 2, 3, 1500, 1, "{}", "{}", -1},
        {33, 1, 1, 7, 30, "{}", "{}", -1},
        {2, 3, 5, 4, 2, "{}", "{}", 4},
        {2, 3, 5, 1, 2, "{}", "{}", 2},
        {16, 224, 224, 3, 15, "{}", "{}", -1},
    };
    static const char *const ops[] = {"dice", "pixel_accuracy", "mean_iou"};
    pairs(l);
    for (size_t i = 0; i < DR_COUNT(row) * DR_COUNT(ops) * 2; i++) {
        segmentation(l, &row[i / 2 / DR_COUNT(ops)], ops[i / 2 % DR_COUNT(ops)], i % 2);
    }
}
