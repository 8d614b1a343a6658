/* Cases of softmax, losses, metrics, normalization, the scalars of a step and the optimizer. */
#include "tests/fake_cuda_lab.h"
#include "ops/common.h"
#include <math.h>
#include <string.h>

static const struct dr_shape scalar = {0};

/* ---- softmax ---- */
static void softmax(struct lab *l, struct dr_shape s, bool odd) {
    struct lab_case c = lab_case(l, s.dim[0]);
    const uint32_t x = odd ? lab_odd_floats(&c, "x", s) : lab_floats(&c, "x", s, NULL);
    for (int64_t i = 0, n = rig_elements(&c.r, x); i < n && !odd; i++) {
        rig_f32(&c.r, x)[i] *= 4;
    }
    lab_grads(&c, lab_node(&c, "softmax", "{}", DR_ACT_NONE, &x, 1));
    lab_check(&c);
}

static void softmax_cases(struct lab *l) {
    static const int64_t size[][2] = {{1, 1},  {7, 2},   {64, 31},  {65, 32},  {5, 33},
                                      {9, 65}, {3, 600}, {2, 5000}, {5000, 3}, {40000, 2}};
    for (size_t i = 0; i < DR_COUNT(size); i++) {
        softmax(l, DR_SHAPE(size[i][0], size[i][1]), false);
        softmax(l, DR_SHAPE(size[i][0], size[i][1]), true);
    }
    softmax(l, DR_SHAPE(2, 3, 4, 5), false);
    struct lab_case c = lab_case(l, 3); /* rows of -inf, of one +inf, far apart */
    const uint32_t x = lab_floats(
        &c, "x", DR_SHAPE(3, 3),
        (const float[]){-INFINITY, -INFINITY, -INFINITY, 1, INFINITY, 2, -1e30F, 0, 1e30F});
    lab_grads(&c, lab_node(&c, "softmax", "{}", DR_ACT_NONE, &x, 1));
    lab_check(&c);
}

/* ---- cross_entropy and accuracy ---- */
struct classes {
    int64_t batch, pixels, k; /* pixels 0: labels [batch] */
    uint32_t n_valid;
    const char *loss; /* attributes */
    int64_t wrong;    /* target of one row; -1: none is wrong */
    bool odd, ignored;
};

/* Logits and a target: i32 labels, or u8 masks [batch, 1, pixels] with 255 here and there. */
static struct lab_case class_case(struct lab *l, const struct classes *t, uint32_t in[2]) {
    struct lab_case c = lab_case(l, t->batch);
    rig_header(&c.r, 3, t->n_valid);
    struct dr_shape x = DR_SHAPE(t->batch, 1, t->pixels, t->k),
                    y = DR_SHAPE(t->batch, 1, t->pixels);
    if (t->pixels == 0) {
        x = DR_SHAPE(t->batch, t->k), y = DR_SHAPE(t->batch);
    }
    in[0] = t->odd ? lab_odd_floats(&c, "x", x) : lab_floats(&c, "x", x, NULL);
    if (t->pixels != 0) {
        in[1] = lab_bytes(&c, "t", y, DR_MASK, t->k < 256 ? t->k : 256);
        uint8_t *at = c.r.at[in[1]];
        for (int64_t i = 0, n = rig_elements(&c.r, in[1]); i < n; i++) {
            at[i] = t->ignored && lab_below(l, 4) == 0 ? 255 : at[i];
        }
        at[0] = t->wrong < 0 ? at[0] : (uint8_t)t->wrong;
    } else {
        in[1] = rig_input(&c.r, "t", DR_I32, y, DR_LABEL, NULL);
        rig_set(&c.r, in[1], NULL);
        int32_t *at = c.r.at[in[1]];
        for (int64_t i = 0; i < t->batch; i++) {
            at[i] = t->ignored && lab_below(l, 4) == 0 ? 1 : (int32_t)lab_below(l, t->k);
        }
        at[0] = t->wrong < 0 ? at[0] : (int32_t)t->wrong;
    }
    return c;
}

static void cross_entropy(struct lab *l, struct classes t) {
    uint32_t in[2];
    struct lab_case c = class_case(l, &t, in);
    lab_grads(&c, lab_node(&c, "cross_entropy", t.loss, DR_ACT_NONE, in, 2));
    lab_check(&c);
}

static void accuracy(struct lab *l, struct classes t) {
    for (int64_t top = 1; top <= t.k && top <= 17; top += 4) {
        uint32_t in[2];
        char yaml[64];
        struct lab_case c = class_case(l, &t, in);
        float *x = rig_f32(&c.r, in[0]);
        for (int64_t i = 0, n = rig_elements(&c.r, in[0]); i < n && !t.odd; i++) {
            x[i] = roundf(x[i] * 3); /* ties */
        }
        snprintf(yaml, sizeof yaml, "{top: %d%s}", (int)top,
                 t.ignored && t.pixels == 0 ? ", ignore_index: 1" : "");
        lab_node(&c, "accuracy", yaml, DR_ACT_NONE, in, 2);
        lab_check(&c);
    }
}

void lab_class_cases(struct lab *l) {
    softmax_cases(l);
    char many[8000] = "{class_weights: [";
    for (int i = 0; i < 600; i++) {
        snprintf(many + strlen(many), sizeof many - strlen(many), "%s%d.%d", i ? ", " : "", i % 5,
                 i % 9 + 1);
    }
    strcat(many, "], label_smoothing: 0.05}");
    const char *five = "{class_weights: [0.5, 2, 1, 0, 3]}";
    const char *all = "{class_weights: [0.5, 2, 1, 4, 3], label_smoothing: 0.1, ignore_index: 1}";
    const struct classes row[] = {
        {1, 0, 1, 1, "{}", -1, false, false},
        {1, 0, 2, 1, "{}", -1, false, false},
        {64, 0, 10, 64, "{}", -1, false, false},
        {65, 0, 33, 65, "{label_smoothing: 0.2}", -1, false, false},
        {70, 0, 5, 33, five, -1, false, false},
        {70, 0, 5, 33, all, -1, false, true},
        {70, 0, 5, 70, "{ignore_index: 1}", -1, false, true},
        {40, 0, 600, 37, many, -1, false, false},
        {9, 0, 257, 9, "{label_smoothing: 1}", -1, false, false},
        {9, 0, 7, 0, "{}", -1, false, false}, /* nothing counts: 0 */
        {9, 0, 7, 9, "{}", 7, false, false},  /* out of range: NaN */
        {9, 0, 7, 9, "{label_smoothing: 0.1}", -1000, false, false},
        {9, 0, 5, 9, five, 5, false, false},
        {9, 0, 7, 4, "{}", 2147483647, false, false},
        {3, 50, 4, 2, "{}", 4, false, true},
        {3, 50, 4, 2, "{}", -1, false, true},
        {3, 500, 21, 3, "{label_smoothing: 0.1}", -1, false, true},
        {2, 33, 5, 2, five, -1, false, true},
        {2, 33, 300, 1, "{}", -1, false, true},
        {2, 40000, 2, 2, "{}", -1, false, true},
        {3, 50001, 3, 3, "{label_smoothing: 0.1}", -1, false, true}, /* chunks of two tiles */
        {5, 0, 32, 5, "{}", -1, false, false},
        {20, 0, 7, 20, "{}", -1, true, false}, /* logits that are not finite */
        {20, 0, 5, 20, all, -1, true, true},
    };
    for (size_t i = 0; i < DR_COUNT(row); i++) {
        cross_entropy(l, row[i]);
        accuracy(l, row[i]);
    }
}

/* ---- batch_norm ---- */
/* op batch_norm or batch_norm_infer; the statistics' update too, with and without health. */
static void norm(struct lab *l, const char *op, struct dr_shape s, int act, float constant) {
    struct lab_case c = lab_case(l, s.dim[0]);
    const uint32_t x = lab_floats(&c, "x", s, NULL);
    const int64_t k = s.dim[s.rank - 1], n = rig_elements(&c.r, x);
    for (int64_t i = 0; i < n; i++) { /* means apart; constant != 0: the last channel is */
        float *at = &rig_f32(&c.r, x)[i];
        *at = constant != 0 && i % k == k - 1 ? constant : *at + (float)(i % k % 5);
    }
    const uint32_t node = lab_node(&c, op, "{momentum: 0.3}", act, &x, 1);
    if (node != DR_NONE && c.r.g->node.at[node].op->track) {
        for (int64_t bad = 0; bad < 2; bad++) {
            const char *name = bad ? "ill" : "health";
            c.r.g->health = rig_state(&c.r, name, DR_HEALTH, DR_I64, DR_SHAPE(2),
                                      (const int64_t[]){bad, 7 * bad});
            if (bad) { /* a second update of one node needs another name */
                c.r.g->node.at[node].name = "sick";
            }
            c.r.g->node.at[node].op->track(c.r.g, node);
        }
    }
    if (n / k > 2) { /* of two values a channel the gradient is all rounding */
        lab_grads(&c, node);
    }
    lab_check(&c);
}

void lab_norm_cases(struct lab *l) {
    static const int64_t size[][2] = {{2, 3},    {5, 1},      {3, 31},     {30, 32},    {64, 33},
                                      {255, 64}, {256, 65},   {257, 2},    {1000, 300}, {8192, 8},
                                      {9, 2049}, {131072, 2}, {131073, 1}, {150001, 3}};
    int act = DR_ACT_NONE;
    for (size_t i = 0; i < DR_COUNT(size); i++) {
        const struct dr_shape s = DR_SHAPE(size[i][0], size[i][1]);
        norm(l, "batch_norm", s, act, 0);
        norm(l, "batch_norm_infer", s, act, 0);
        act = (act + 1) % DR_ACT_FUSED;
    }
    norm(l, "batch_norm", DR_SHAPE(3, 4, 5, 6), DR_ACT_RELU, 0);
    norm(l, "batch_norm_infer", DR_SHAPE(3, 4, 5, 6), DR_ACT_RELU, 0);
    norm(l, "batch_norm", DR_SHAPE(300, 3), DR_ACT_NONE, 1000.1F);
    norm(l, "batch_norm", DR_SHAPE(300, 1), DR_ACT_NONE, 60000.1F); /* fits fp16 */
    /* NaN and infinities keep to their channels */
    static const char *const ops[] = {"batch_norm", "batch_norm_infer"};
    for (size_t i = 0; i < DR_COUNT(ops); i++) {
        struct lab_case c = lab_case(l, 3);
        const float x[] = {1, 2, INFINITY, 1, NAN, 5, 1, 3, 3, 4, 7, 2};
        const uint32_t v = lab_floats(&c, "x", DR_SHAPE(3, 4), x);
        lab_grads(&c, lab_node(&c, ops[i], "{}", DR_ACT_RELU, &v, 1));
        lab_check(&c);
    }
}

/* ---- scalars of a step ---- */
static void rates(struct lab *l) {
    static const struct dr_lr lr[] = {
        {.base = 0.1},
        {.base = 0.1, .schedule = DR_LR_COSINE, .total = 5000, .warmup = 100, .end = 0.001},
        {.base = 0.1, .schedule = DR_LR_COSINE, .total = 100, .warmup = 100},
        {.base = 0.1, .schedule = DR_LR_STEP, .every = 30, .gamma = 0.5, .warmup = 10},
        {.base = 0.1, .schedule = DR_LR_STEP, .every = 0, .gamma = 0.5},
    };
    static const uint64_t steps[] = {0,   1,   9,    10,   39,   40,       99,
                                     100, 101, 2550, 4999, 5000, 123456789};
    for (size_t i = 0; i < DR_COUNT(lr); i++) {
        for (size_t k = 0; k < DR_COUNT(steps); k++) {
            struct lab_case c = lab_case(l, 3);
            const struct dr_lr_attrs attrs = {.lr = lr[i]};
            snprintf(c.label, sizeof c.label, "lr %zu at step %llu", i,
                     (unsigned long long)steps[k]);
            rig_header(&c.r, steps[k], 3);
            rig_node(&c.r, "lr", "lr", &attrs, &c.r.g->header, 1);
            lab_check(&c);
        }
    }
}

static void guards(struct lab *l) {
    static const float total[] = {1, -0.0F, 3.4e38F, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < DR_COUNT(total); i++) {
        for (int64_t bad = 0; bad < 2; bad++) {
            struct lab_case c = lab_case(l, 3);
            snprintf(c.label, sizeof c.label, "guard of %g", (double)total[i]);
            rig_header(&c.r, 41, 3);
            const uint32_t health = rig_state(&c.r, "health", DR_HEALTH, DR_I64, DR_SHAPE(2),
                                              (const int64_t[]){bad, 3 * bad});
            const uint32_t v = lab_floats(&c, "total", scalar, &total[i]);
            rig_node(&c.r, "guard", "guard", NULL, (uint32_t[]){v, c.r.g->header, health}, 3);
            lab_check(&c);
        }
    }
}

/* Losses and factors that are finite or not, in every health, at the least scale and above it,
 * before the scale grows and not. */
static void scaled_guards(struct lab *l) {
    static const float total[] = {1, NAN, INFINITY}, factor[] = {0.25F, NAN}, scale[] = {1, 1024};
    for (size_t i = 0; i < DR_COUNT(total) * 2 * 3 * 2 * 2; i++) {
        const size_t of = i % DR_COUNT(total), k = i / DR_COUNT(total);
        const int64_t bad = (int64_t)(k / 2 % 3), good = k / 12 % 2 ? 3 : 4;
        struct lab_case c = lab_case(l, 3);
        snprintf(c.label, sizeof c.label, "scaled guard %zu", i);
        rig_header(&c.r, 41, 3);
        const uint32_t in[] = {
            lab_floats(&c, "total", scalar, &total[of]),
            c.r.g->header,
            lab_floats(&c, "factor", scalar, &factor[k % 2]),
            rig_state(&c.r, "health", DR_HEALTH, DR_I64, DR_SHAPE(2),
                      (const int64_t[]){bad, 3 * bad}),
            rig_state(&c.r, "scale", DR_MOMENT, DR_F32, scalar, &scale[k / 6 % 2]),
            rig_state(&c.r, "good", DR_MOMENT, DR_I64, scalar, &good),
        };
        const struct dr_guard_scaled_attrs attrs = {{65536, 2, 0.5, 5}};
        rig_node(&c.r, "guard", "guard_scaled", &attrs, in, 6);
        lab_check(&c);
    }
}

static void totals(struct lab *l) {
    static const uint32_t count[] = {1, 2, 3, 16, 17, 128, 129, 300};
    for (size_t i = 0; i < DR_COUNT(count); i++) {
        struct lab_case c = lab_case(l, 1);
        double weight[300];
        uint32_t in[300];
        for (uint32_t k = 0; k < count[i]; k++) {
            weight[k] = 0.25 + k % 3;
            const float loss = lab_uniform(l) + 1.5F;
            in[k] = lab_floats(&c, dr_printf(c.r.g->arena, "loss%u", k), scalar, &loss);
        }
        const struct dr_total_loss_attrs attrs = {.weight = {.n = count[i], .at = weight}};
        snprintf(c.label, sizeof c.label, "%u losses", count[i]);
        rig_node(&c.r, "total", "total_loss", &attrs, in, count[i]);
        lab_check(&c);
    }
}

static void clips(struct lab *l) {
    static const int64_t size[] = {1, 16383, 16384, 16385, 100000, 7};
    static const double most[] = {1e-3, 1, 1e6, (double)INFINITY};
    for (size_t i = 0; i < 2 * DR_COUNT(most); i++) {
        const bool scaled = i % 2;
        for (uint32_t n = 1; n <= DR_COUNT(size); n++) {
            for (int bad = 0; bad < 2; bad++) {
                struct lab_case c = lab_case(l, 1);
                uint32_t in[DR_COUNT(size) + 1];
                for (uint32_t k = 0; k < n; k++) {
                    in[k] =
                        lab_floats(&c, dr_printf(c.r.g->arena, "g%u", k), DR_SHAPE(size[k]), NULL);
                }
                if (bad) {
                    rig_f32(&c.r, in[n - 1])[size[n - 1] - 1] = n % 2 ? NAN : INFINITY;
                }
                in[n] = rig_state(&c.r, "scale", DR_MOMENT, DR_F32, scalar, (float[]){256});
                const struct dr_clip_attrs attrs = {.max_norm = most[i / 2], .scaled = scaled};
                snprintf(c.label, sizeof c.label, "clip of %u gradients to %g%s", n, most[i / 2],
                         scaled ? ", scaled" : "");
                rig_node(&c.r, "clip", "clip", &attrs, in, n + scaled);
                lab_check(&c);
            }
        }
    }
    struct lab_case many = lab_case(l, 1); /* more than one launch takes */
    uint32_t in[300];
    for (uint32_t k = 0; k < DR_COUNT(in); k++) {
        in[k] = lab_floats(&many, dr_printf(many.r.g->arena, "g%u", k),
                           DR_SHAPE(size[k % 5] % 40000), NULL);
    }
    rig_node(&many.r, "clip", "clip", &(struct dr_clip_attrs){.max_norm = 1}, in, DR_COUNT(in));
    lab_check(&many);
}

void lab_step_cases(struct lab *l) {
    rates(l);
    guards(l);
    scaled_guards(l);
    totals(l);
    clips(l);
}
