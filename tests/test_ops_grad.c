/* Every op that has a gradient: the fp32 forward against a naive reference in double, and its
 * gradient nodes against central differences of that reference.
 *
 * The scalar differentiated is sum(dy * y) with a random dy; of a loss, weight * mean. */
#include "tests/fake_harness.h"
#include "tests/fake_references.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the cases ---- */
struct grad_case {
    const char *op, *attrs;
    reference *ref;
    int p[9];
    uint32_t n_in;
    struct dr_shape in[3];
    int64_t classes; /* the second input is a target below this (and 255s, where masks) */
    bool spread;     /* distinct values, 0.05 apart: no maximum changes within a difference */
};
#define S2(a, b)                                                                                   \
    {                                                                                              \
        .rank = 2, .dim = { a, b }                                                                 \
    }
#define S3(a, b, c)                                                                                \
    {                                                                                              \
        .rank = 3, .dim = { a, b, c }                                                              \
    }
#define S4(a, b, c, d)                                                                             \
    {                                                                                              \
        .rank = 4, .dim = { a, b, c, d }                                                           \
    }

static const struct grad_case cases[] = {
    {"relu", "{}", ref_relu, {0}, 1, {S4(2, 3, 2, 3)}, 0, true},
    {"tanh", "{}", ref_tanh, {0}, 1, {S2(3, 5)}, 0, false},
    {"add", "{}", ref_add, {0}, 3, {S3(2, 3, 2), S3(2, 3, 2), S3(2, 3, 2)}, 0, false},
    {"sub", "{}", ref_map, {0}, 2, {S3(2, 3, 2), S3(2, 3, 2)}, 0, false},
    {"mul", "{}", ref_map, {1}, 2, {S3(2, 3, 2), S3(2, 3, 2)}, 0, false},
    {"div", "{}", ref_map, {2, 1}, 2, {S3(2, 3, 2), S3(2, 3, 2)}, 0, true},
    {"abs", "{}", ref_map, {3}, 1, {S3(2, 3, 2)}, 0, true},
    {"sqrt", "{}", ref_map, {4, 1}, 1, {S3(2, 3, 2)}, 0, true},
    {"clamp", "{min: -0.5, max: 0.75}", ref_map, {5}, 1, {S3(5, 3, 3)}, 0, true},
    {"clamp", "{min: -0.25}", ref_map, {6}, 1, {S3(5, 3, 3)}, 0, true},
    {"leaky_relu", "{}", ref_map, {7}, 1, {S3(2, 3, 2)}, 0, true},
    {"leaky_relu", "{negative_slope: -0.5}", ref_map, {8}, 1, {S3(2, 3, 2)}, 0, true},
    {"sigmoid", "{}", ref_map, {9}, 1, {S2(3, 7)}, 0, false},
    {"silu", "{}", ref_map, {10}, 1, {S2(3, 7)}, 0, false},
    {"gelu", "{}", ref_map, {11}, 1, {S2(3, 7)}, 0, false},
    {"gelu", "{approximate: tanh}", ref_map, {12}, 1, {S2(3, 7)}, 0, false},
    {"linear", "{features: 4}", ref_linear, {0}, 1, {S2(3, 5)}, 0, false},
    {"linear", "{features: 1, bias: no}", ref_linear, {0}, 1, {S2(33, 2)}, 0, false},
    {"linear", "{features: 35}", ref_linear, {0}, 1, {S4(2, 2, 3, 2)}, 0, false},
    {"flatten", "{}", ref_flatten, {0}, 1, {S4(2, 3, 4, 5)}, 0, false},
    {"flatten", "{}", ref_flatten, {0}, 1, {S4(2, 1, 1, 5)}, 0, false},
    {"flatten", "{}", ref_copy, {0}, 1, {S3(2, 3, 4)}, 0, false},
    {"reshape", "{shape: [2, -1, 3]}", ref_copy, {0}, 1, {S3(2, 3, 4)}, 0, false},
    {"concat", "{}", ref_concat, {3}, 3, {S4(2, 2, 3, 1), S4(2, 2, 3, 4), S4(2, 2, 3, 2)}, 0, 0},
    {"concat", "{axis: 1}", ref_concat, {1}, 2, {S4(2, 2, 3, 2), S4(2, 1, 3, 2)}, 0, false},
    {"softmax", "{}", ref_softmax, {0}, 1, {S3(2, 3, 5)}, 0, false},
    {"max_pool2d", "{kernel: 2}", ref_max_pool, {2, 2, 2, 2, 0, 0}, 1, {S4(2, 4, 5, 3)}, 0, true},
    {"max_pool2d",
     "{kernel: 3, stride: 2, padding: 1}",
     ref_max_pool,
     {3, 3, 2, 2, 1, 1},
     1,
     {S4(1, 5, 6, 2)},
     0,
     true},
    {"max_pool2d",
     "{kernel: [2, 3], stride: 1, padding: {top: 1, left: 0, bottom: 0, right: 1}}",
     ref_max_pool,
     {2, 3, 1, 1, 1, 0},
     1,
     {S4(2, 3, 4, 70)},
     0,
     true},
    {"max_pool2d",
     "{kernel: 3, stride: 2, ceil_mode: yes}",
     ref_max_pool,
     {3, 3, 2, 2, 0, 0},
     1,
     {S4(2, 6, 4, 3)},
     0,
     true},
    {"avg_pool2d",
     "{kernel: 2}",
     ref_avg_pool,
     {2, 2, 2, 2, 0, 0, 0, 0, 1},
     1,
     {S4(2, 4, 5, 3)},
     0,
     0},
    {"avg_pool2d",
     "{kernel: [3, 2], stride: [1, 2], padding: {top: 1, left: 1, bottom: 0, right: 1}}",
     ref_avg_pool,
     {3, 2, 1, 2, 1, 1, 0, 1, 1},
     1,
     {S4(1, 4, 5, 70)},
     0,
     0},
    {"avg_pool2d",
     "{kernel: 3, stride: 2, padding: 1, ceil_mode: yes}",
     ref_avg_pool,
     {3, 3, 2, 2, 1, 1, 1, 1, 1},
     1,
     {S4(2, 6, 4, 2)},
     0,
     0},
    {"avg_pool2d",
     "{kernel: 3, stride: 2, padding: 1, ceil_mode: yes, count_include_pad: no}",
     ref_avg_pool,
     {3, 3, 2, 2, 1, 1, 1, 1, 0},
     1,
     {S4(2, 6, 4, 2)},
     0,
     0},
    {"avg_pool2d",
     "{kernel: 1, stride: 3}",
     ref_avg_pool,
     {1, 1, 3, 3, 0, 0, 0, 0, 1},
     1,
     {S4(1, 5, 4, 1)},
     0,
     0},
    {"global_avg_pool", "{}", ref_global_avg, {0}, 1, {S4(2, 3, 5, 67)}, 0, 0},
    {"global_avg_pool", "{}", ref_global_avg, {0}, 1, {S4(3, 1, 1, 2)}, 0, 0},
    {"upsample", "{scale: 2}", ref_upsample, {0}, 1, {S4(2, 3, 2, 3)}, 0, 0},
    {"upsample", "{size: [7, 2]}", ref_upsample, {0}, 1, {S4(1, 3, 5, 2)}, 0, 0},
    {"upsample", "{scale: [3, 2], mode: bilinear}", ref_upsample, {1}, 1, {S4(2, 3, 2, 67)}, 0, 0},
    {"upsample", "{size: [5, 7], mode: bilinear}", ref_upsample, {1}, 1, {S4(1, 4, 3, 2)}, 0, 0},
    {"upsample", "{size: [2, 3], mode: bilinear}", ref_upsample, {1}, 1, {S4(1, 7, 10, 1)}, 0, 0},
    {"upsample", "{size: [4, 1], mode: bilinear}", ref_upsample, {1}, 1, {S4(1, 1, 4, 3)}, 0, 0},
    {"slice", "{begin: 1, end: 3}", ref_slice, {3, 1}, 1, {S4(2, 2, 3, 5)}, 0, 0},
    {"slice", "{axis: 1, begin: -2}", ref_slice, {1, 3}, 1, {S4(2, 5, 3, 2)}, 0, 0},
    {"slice", "{axis: -2, end: -1}", ref_slice, {2, 0}, 1, {S4(2, 2, 4, 3)}, 0, 0},
    {"pad",
     "{padding: {top: 1, left: 2, bottom: 0, right: 3}, value: -4}",
     ref_pad,
     {1, 2, -4},
     1,
     {S4(2, 3, 2, 3)},
     0,
     0},
    {"pad", "{padding: 1}", ref_pad, {1, 1, 0}, 1, {S3(2, 3, 2)}, 0, 0},
    {"transpose", "{axes: [3, 1, 2]}", ref_transpose, {0, 3, 1, 2}, 1, {S4(2, 3, 4, 5)}, 0, 0},
    {"transpose", "{axes: [2, 1, 3]}", ref_transpose, {0, 2, 1, 3}, 1, {S4(2, 3, 4, 5)}, 0, 0},
    {"transpose", "{axes: [3, 2, 1]}", ref_transpose, {0, 3, 2, 1}, 1, {S4(2, 3, 4, 5)}, 0, 0},
    {"transpose", "{axes: [1, 2]}", ref_transpose, {0, 1, 2}, 1, {S3(2, 3, 4)}, 0, 0},
    {"transpose",
     "{axes: [3, 1, 4, 2]}",
     ref_transpose,
     {0, 3, 1, 4, 2},
     1,
     {{.rank = 5, .dim = {2, 3, 4, 2, 5}}},
     0,
     0},
    {"matmul", "{}", ref_matmul, {0}, 2, {S3(2, 3, 5), S3(2, 5, 4)}, 0, 0},
    {"matmul", "{}", ref_matmul, {0}, 2, {S4(2, 3, 130, 2), S4(2, 3, 2, 3)}, 0, 0},
    {"matmul", "{}", ref_matmul, {0}, 2, {S3(3, 1, 2), S3(3, 2, 1)}, 0, 0},
    {"dropout", "{}", ref_dropout, {50}, 1, {S4(3, 3, 2, 5)}, 0, 0},
    {"dropout", "{p: 0.25}", ref_dropout, {25}, 1, {S2(5, 7)}, 0, 0},
    {"dropout", "{p: 0}", ref_dropout, {0}, 1, {{.rank = 1, .dim = {3}}}, 0, 0},
    {"conv2d",
     "{filters: 4, kernel: 3, padding: 1}",
     ref_conv,
     {1, 1, 1, 1, 1},
     1,
     {S4(2, 4, 5, 3)},
     0,
     0},
    {"conv2d",
     "{filters: 4, kernel: [2, 3], stride: 2, dilation: 2, groups: 2, bias: no, padding: {top: 2, "
     "left: 1, bottom: 0, right: 3}}",
     ref_conv,
     {2, 2, 2, 1, 2},
     1,
     {S4(2, 6, 7, 4)},
     0,
     false},
    {"conv_transpose2d",
     "{filters: 4, kernel: 2, stride: 2}",
     ref_conv_transpose,
     {2, 1, 0, 0, 1},
     1,
     {S4(2, 3, 4, 3)},
     0,
     false},
    {"conv_transpose2d",
     "{filters: 3, kernel: 3, stride: 2, padding: 1, output_padding: 1, bias: no}",
     ref_conv_transpose,
     {2, 1, 1, 1, 1},
     1,
     {S4(1, 4, 3, 5)},
     0,
     false},
    {"conv_transpose2d",
     "{filters: 6, kernel: [2, 3], stride: 3, dilation: 2, groups: 2, output_padding: [2, 0], "
     "padding: {top: 2, left: 1, bottom: 0, right: 3}}",
     ref_conv_transpose,
     {3, 2, 2, 1, 2},
     1,
     {S4(2, 3, 4, 4)},
     0,
     false},
    {"conv_transpose2d", /* more output_padding than stride */
     "{filters: 3, kernel: 2, dilation: 4, groups: 3, output_padding: 3}",
     ref_conv_transpose,
     {1, 4, 0, 0, 3},
     1,
     {S4(1, 2, 3, 3)},
     0,
     false},
    {"batch_norm", "{}", ref_norm, {1}, 1, {S4(3, 2, 2, 3)}, 0, false},
    {"batch_norm", "{}", ref_norm, {1}, 1, {S2(5, 2)}, 0, false},
    {"batch_norm_infer", "{}", ref_norm, {0}, 1, {S4(3, 2, 2, 3)}, 0, false},
    {"normalize",
     "{mean: [0.5, 0.25], std: [2, 0.5]}",
     ref_normalize,
     {0},
     1,
     {S4(2, 3, 2, 2)},
     0,
     0},
    {"cross_entropy",
     "{}",
     ref_cross_entropy,
     {2, -100, 0, 0},
     2,
     {S2(3, 4), {.rank = 1, .dim = {3}}},
     4,
     0},
    {"cross_entropy",
     "{ignore_index: 1, label_smoothing: 0.1, class_weights: [0.5, 2, 1, 3]}",
     ref_cross_entropy,
     {2, 1, 10, 1},
     2,
     {S4(2, 2, 3, 4), S3(2, 2, 3)},
     4,
     false},
    {"bce", "{}", ref_pair, {0, -1, 10, 0, 0, 2}, 2, {S2(3, 1), {.rank = 1, .dim = {3}}}, 2, false},
    {"bce", "{}", ref_pair, {0, -9, 10, 0, 0, 3}, 2, {S3(3, 2, 2), S3(3, 2, 2)}, 0, false},
    {"bce",
     "{pos_weight: 2.5}",
     ref_pair,
     {0, -9, 25, 0, 0, 2},
     2,
     {S3(3, 2, 1), S2(3, 2)},
     2,
     false},
    {"mse", "{}", ref_pair, {1, 0, 0, 0, 0, 2}, 2, {S3(3, 2, 2), S3(3, 2, 2)}, 0, false},
    {"mse", "{}", ref_pair, {1, 0, 0, 0, 0, 3}, 2, {S2(3, 2), S3(3, 2, 1)}, 5, false},
    {"l1", "{}", ref_pair, {2, 0, 0, 0, 0, 2}, 2, {S3(3, 2, 2), S3(3, 2, 2)}, 0, false},
    {"dice", "{}", ref_dice, {-100, 10, 0, 0, 0, 2}, 2, {S3(3, 5, 4), S2(3, 5)}, 4, false},
    {"dice",
     "{smooth: 0, ignore_index: 1}",
     ref_dice,
     {1, 0, 0, 0, 0, 3},
     2,
     {S4(3, 2, 3, 3), S3(3, 2, 3)},
     3,
     false},
    {"dice", "{}", ref_dice, {-100, 10, 0, 0, 0, 3}, 2, {S4(3, 2, 3, 1), S3(3, 2, 3)}, 2, false},
};

static uint64_t state;
static double uniform(void) { /* -1 .. 1 */
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state >> 11) * 0x1p-52 - 1.0;
}

static void fill(float *x, int64_t n, bool spread) {
    for (int64_t i = 0; i < n; i++)
        x[i] = spread ? 0.05f * (float)(i - n / 2) + 0.02f : (float)(2 * uniform());
    for (int64_t i = n - 1; spread && i > 0; i--) { /* Fisher-Yates */
        const int64_t j = (int64_t)((uniform() + 1) / 2 * (double)(i + 1)) % (i + 1);
        const float t = x[i];
        x[i] = x[j], x[j] = t;
    }
}

/* The node of a case, all its operands set. */
static uint32_t build(struct rig *r, const struct grad_case *c) {
    uint32_t in[REF_OPERANDS];
    rig_header(r, 0,
               c->ref == ref_cross_entropy ? (uint32_t)c->p[0]
               : c->p[5]                   ? (uint32_t)c->p[5]
                                           : (uint32_t)c->in[0].dim[0]);
    for (uint32_t i = 0; i < c->n_in; i++) {
        char name[] = "x0";
        name[1] = (char)('0' + i);
        if (i == 1 && c->classes) {
            in[i] = rig_input(r, name, DR_I32, c->in[i], DR_LABEL, NULL);
            rig_set(r, in[i], NULL);
            for (int64_t k = 0; k < ref_count(&c->in[i]); k++)
                ((int32_t *)r->at[in[i]])[k] = (int32_t)(k * 7 % c->classes);
        } else {
            in[i] = rig_floats(r, name, c->in[i], NULL);
            rig_set(r, in[i], NULL);
            fill(rig_f32(r, in[i]), ref_count(&c->in[i]), c->spread);
            for (int64_t k = 0; c->ref == ref_map && c->p[1] && k < ref_count(&c->in[i]); k++)
                rig_f32(r, in[i])[k] = fabsf(rig_f32(r, in[i])[k]) + 0.5f;
        }
    }
    const uint32_t n = rig_op(r, "op", c->op, c->attrs, in, c->n_in);
    cr_assert_neq(n, DR_NONE, "%s %s: %s", c->op, c->attrs, rig_text(r));
    for (uint32_t i = 0; i < r->g->node.at[n].n_in; i++) {
        const uint32_t v = rig_in(r, n, i);
        if (r->g->value.at[v].kind != DR_STATE)
            continue;
        rig_set(r, v, NULL);
        fill(rig_f32(r, v), rig_elements(r, v), false);
        for (int64_t k = 0; i == 4 && k < rig_elements(r, v); k++) /* a variance */
            rig_f32(r, v)[k] = fabsf(rig_f32(r, v)[k]) + 0.5f;
    }
    return n;
}

static struct operands operands_of(const struct rig *r, uint32_t node, const struct grad_case *c) {
    const struct dr_node *n = &r->g->node.at[node];
    struct operands o = {.n = n->n_in, .y = r->g->value.at[n->out[0]].shape, .p = c->p};
    cr_assert_leq(o.n, REF_OPERANDS);
    for (uint32_t i = 0; i < o.n; i++) {
        const struct dr_value *v = &r->g->value.at[n->in[i]];
        o.s[i] = v->shape;
        o.x[i] = calloc((size_t)ref_count(&v->shape), sizeof(double));
        for (int64_t k = 0; k < ref_count(&v->shape); k++)
            o.x[i][k] = v->dtype == DR_F32   ? ((float *)r->at[n->in[i]])[k]
                        : v->dtype == DR_I32 ? ((int32_t *)r->at[n->in[i]])[k]
                                             : 0;
    }
    return o;
}

static double objective(const struct operands *o, reference *ref, const float *dy, double weight,
                        double *y) {
    ref(o, y);
    double sum = 0;
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++)
        sum += y[i] * (dy ? dy[i] : weight);
    return sum;
}

static void check_near(double got, double want, const struct grad_case *c, const char *what,
                       uint32_t input, int64_t at) {
    cr_assert(fabs(got - want) <= 2e-5 + 1e-4 * fabs(want),
              "%s %s: %s of input %u at %lld: %g, not %g", c->op, c->attrs, what, input,
              (long long)at, got, want);
}

static void check_case(const struct grad_case *c) {
    state = 11;
    struct rig r = rig_create(c->in[0].dim[0]);
    const uint32_t node = build(&r, c);
    const bool loss = r.g->node.at[node].op->flags & DR_OP_LOSS;
    const double weight = 0.7;
    const uint32_t n_out = r.g->node.at[node].n_out, y = rig_out(&r, node, 0);
    uint32_t dy[REF_OPERANDS] = {DR_NONE, DR_NONE, DR_NONE}, dx[REF_OPERANDS];
    bool need[REF_OPERANDS] = {false};
    cr_assert_leq(n_out, 3);
    if (!loss) {
        dy[0] = rig_floats(&r, "dy", r.g->value.at[y].shape, NULL);
        rig_set(&r, dy[0], NULL);
        fill(rig_f32(&r, dy[0]), rig_elements(&r, dy[0]), false);
    }
    for (uint32_t i = 0; i < r.g->node.at[node].n_in; i++) {
        const struct dr_value *v = &r.g->value.at[rig_in(&r, node, i)];
        need[i] = v->dtype == DR_F32 && (v->kind == DR_STEP || v->cls == DR_WEIGHT);
    }
    rig_grad(&r, node, dy, need, weight, dx);
    rig_run(&r);

    struct operands o = operands_of(&r, node, c);
    double *t = calloc((size_t)ref_count(&o.y), sizeof *t);
    c->ref(&o, t);
    for (int64_t i = 0; i < ref_count(&o.y); i++)
        check_near(rig_f32(&r, y)[i], t[i], c, "forward", 0, i);
    for (uint32_t i = 0; i < o.n; i++) {
        cr_assert_eq(dx[i] != DR_NONE, need[i], "%s: gradient of input %u", c->op, i);
        for (int64_t k = 0; need[i] && k < ref_count(&o.s[i]); k++) {
            const double x = o.x[i][k], h = 1e-5;
            o.x[i][k] = x + h;
            const double up = objective(&o, c->ref, loss ? NULL : rig_f32(&r, dy[0]), weight, t);
            o.x[i][k] = x - h;
            const double down = objective(&o, c->ref, loss ? NULL : rig_f32(&r, dy[0]), weight, t);
            o.x[i][k] = x;
            check_near(rig_f32(&r, dx[i])[k], (up - down) / (2 * h), c, "gradient", i, k);
        }
    }
    for (uint32_t i = 0; i < o.n; i++)
        free(o.x[i]);
    free(t);
    rig_free(&r);
}

Test(ops_grad, finite_differences) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_case(&cases[i]);
}

/* A gradient that is not asked for is not made. */
Test(ops_grad, only_what_is_needed) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct grad_case *c = &cases[i];
        state = 3;
        struct rig r = rig_create(c->in[0].dim[0]);
        const uint32_t node = build(&r, c), y = rig_out(&r, node, 0);
        uint32_t dy[REF_OPERANDS] = {DR_NONE, DR_NONE, DR_NONE}, dx[REF_OPERANDS];
        const bool need[REF_OPERANDS] = {false};
        dy[0] = rig_floats(&r, "dy", r.g->value.at[y].shape, NULL);
        const uint32_t before = r.g->node.n;
        rig_grad(&r, node, dy, need, 1, dx);
        cr_assert_eq(r.g->node.n, before, "%s", c->op);
        rig_free(&r);
    }
}

/* No op with a gradient is missing from the table above. */
Test(ops_grad, every_op_is_covered) {
    for (uint32_t i = 0; i < dr_ops()->n; i++) {
        const struct dr_op *op = dr_ops()->op[i];
        bool found = !op->grad;
        for (size_t j = 0; j < sizeof cases / sizeof cases[0] && !found; j++)
            found = strcmp(cases[j].op, op->name) == 0;
        cr_assert(found || strcmp(op->name, "random_flip") == 0, "%s has no gradient test",
                  op->name);
    }
}
