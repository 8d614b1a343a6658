/* The op conv_transpose2d: values worked out by hand, shapes, states, refusals, and the path of
 * shapes of AUG-09. Its gradients are in test_ops_grad, every geometry on CUDA in main_cuda_ops. */
#include "tests/fake_harness.h"
#include <criterion/criterion.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define F(...) ((const float[]){__VA_ARGS__})

/* ---- values ---- */
struct value_case {
    const char *attrs;
    struct dr_shape x, y;
    const float *in, *w, *bias, *want;
    int32_t act;
};
#define X(h, w, c)                                                                                 \
    {                                                                                              \
        .rank = 4, .dim = { 1, h, w, c }                                                           \
    }

static const float nine[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
static const struct value_case values[] = {
    /* no two taps meet */
    {"{filters: 1, kernel: 2, stride: 2, bias: no}", X(2, 2, 1), X(4, 4, 1), F(1, 2, 3, 4),
     F(1, 2, 3, 4), NULL, F(1, 2, 2, 4, 3, 4, 6, 8, 3, 6, 4, 8, 9, 12, 12, 16), DR_ACT_NONE},
    {"{filters: 1, kernel: 2, stride: 2}", X(2, 2, 1), X(4, 4, 1), F(1, 2, 3, 4), F(1, 2, 3, 4),
     F(-8), F(-7, -6, -6, -4, -5, -4, -2, 0, -5, -2, -4, 0, 1, 4, 4, 8), DR_ACT_NONE},
    {"{filters: 1, kernel: 2, stride: 2}", X(2, 2, 1), X(4, 4, 1), F(1, 2, 3, 4), F(1, 2, 3, 4),
     F(-8), F(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4, 4, 8), DR_ACT_RELU},
    /* the middle row and column belong to two pixels */
    {"{filters: 1, kernel: 3, stride: 2, bias: no}", X(2, 2, 1), X(5, 5, 1), F(1, 2, 3, 4), nine,
     NULL, F(1, 1, 3, 2, 2, 1, 1, 3, 2, 2, 4, 4, 10, 6, 6, 3, 3, 7, 4, 4, 3, 3, 7, 4, 4),
     DR_ACT_NONE},
    {"{filters: 1, kernel: 3, stride: 2, padding: 1, bias: no}", X(2, 2, 1), X(3, 3, 1),
     F(1, 2, 3, 4), nine, NULL, F(1, 3, 2, 4, 10, 6, 3, 7, 4), DR_ACT_NONE},
    {"{filters: 1, kernel: 3, stride: 2, padding: 1, output_padding: 1, bias: no}", X(2, 2, 1),
     X(4, 4, 1), F(1, 2, 3, 4), nine, NULL, F(1, 3, 2, 2, 4, 10, 6, 6, 3, 7, 4, 4, 3, 7, 4, 4),
     DR_ACT_NONE},
    {"{filters: 1, kernel: 3, stride: 2, padding: {top: 0, left: 1, bottom: 4, right: 2}, bias: "
     "no}",
     X(2, 2, 1), X(1, 2, 1), F(1, 2, 3, 4), nine, NULL, F(1, 3), DR_ACT_NONE},
    /* one pixel shows the filter, not flipped */
    {"{filters: 1, kernel: [2, 3], bias: no}", X(1, 1, 1), X(2, 3, 1), F(2), F(1, 2, 3, 4, 5, 6),
     NULL, F(2, 4, 6, 8, 10, 12), DR_ACT_NONE},
    /* taps 3 apart; what output_padding adds beyond the stride is bias alone */
    {"{filters: 1, kernel: 2, dilation: 3, output_padding: [2, 0]}", X(1, 1, 1), X(6, 4, 1), F(2),
     F(1, 2, 3, 4), F(9),
     F(11, 9, 9, 13, 9, 9, 9, 9, 9, 9, 9, 9, 15, 9, 9, 17, 9, 9, 9, 9, 9, 9, 9, 9), DR_ACT_NONE},
    /* pixels that no tap reaches are act(bias) */
    {"{filters: 1, kernel: 1, stride: 3}", X(2, 2, 1), X(4, 4, 1), F(1, 2, 3, -4), F(-1), F(0.5f),
     F(0, 0.5f, 0.5f, 0, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0, 0.5f, 0.5f, 4.5f),
     DR_ACT_RELU},
    {"{filters: 1, kernel: 1, stride: 2}", X(1, 2, 1), X(1, 3, 1), F(1, 2), F(1), F(-0.5f),
     F(0.5f, 0, 1.5f), DR_ACT_RELU},
    /* channels are summed within a group, weight [C, Kh, Kw, filters / groups] */
    {"{filters: 3, kernel: 1}", X(1, 1, 2), X(1, 1, 3), F(1, 10), F(1, 2, 3, 4, 5, 6),
     F(100, 200, 300), F(141, 252, 363), DR_ACT_NONE},
    {"{filters: 2, kernel: 1, groups: 2, bias: no}", X(1, 1, 4), X(1, 1, 2), F(1, 10, 100, 1000),
     F(1, 2, 3, 4), NULL, F(21, 4300), DR_ACT_NONE},
    {"{filters: 4, kernel: 1, groups: 2, bias: no}", X(1, 1, 4), X(1, 1, 4), F(1, 10, 100, 1000),
     F(1, 2, 3, 4, 5, 6, 7, 8), NULL, F(31, 42, 7500, 8600), DR_ACT_NONE},
    {"{filters: 3, kernel: [1, 2], stride: 2, groups: 3}", X(1, 1, 3), X(1, 2, 3), F(1, 2, 3),
     F(1, 2, 3, 4, 5, 6), F(100, 200, 300), F(101, 206, 315, 102, 208, 318), DR_ACT_NONE},
};

Test(conv_transpose, values) {
    for (size_t i = 0; i < COUNT(values); i++) {
        const struct value_case *c = &values[i];
        struct rig r = rig_create(1);
        const uint32_t x = rig_floats(&r, "x", c->x, c->in);
        void *attrs = rig_attrs(&r, "conv_transpose2d", c->attrs);
        cr_assert_not_null(attrs, "%s", rig_text(&r));
        *(int32_t *)attrs = c->act;
        const uint32_t n = rig_node(&r, "t", "conv_transpose2d", attrs, &x, 1);
        cr_assert_neq(n, DR_NONE, "%s", rig_text(&r));
        rig_set(&r, rig_in(&r, n, 1), c->w);
        if (c->bias)
            rig_set(&r, rig_in(&r, n, 2), c->bias);
        rig_run(&r);
        const uint32_t y = rig_out(&r, n, 0);
        cr_assert(dr_shape_equal(&r.g->value.at[y].shape, &c->y), "%s: %s", c->attrs,
                  dr_shape_text(r.g->arena, &r.g->value.at[y].shape));
        for (int64_t k = 0; k < rig_elements(&r, y); k++)
            cr_expect_eq(rig_f32(&r, y)[k], c->want[k], "%s: [%d] is %g, not %g", c->attrs, (int)k,
                         (double)rig_f32(&r, y)[k], (double)c->want[k]);
        rig_free(&r);
    }
}

/* ---- shapes, states and refusals ---- */
static uint32_t build(struct rig *r, const char *attrs, struct dr_shape s) {
    const uint32_t x = rig_floats(r, "x", s, NULL);
    return rig_op(r, "t", "conv_transpose2d", attrs, &x, 1);
}

Test(conv_transpose, shapes_and_states) {
    static const struct {
        const char *attrs;
        struct dr_shape x, y, w;
        int64_t fan_in;
    } row[] = {
        {"{filters: 8, kernel: 2, stride: 2}",
         X(5, 7, 6),
         X(10, 14, 8),
         {.rank = 4, .dim = {6, 2, 2, 8}},
         32},
        {"{filters: 6, kernel: [3, 5], stride: [2, 3], padding: [1, 2], output_padding: [1, 2], "
         "groups: 3}",
         X(4, 5, 9),
         X(8, 15, 6),
         {.rank = 4, .dim = {9, 3, 5, 2}},
         30},
        {"{filters: 1, kernel: 3, dilation: 2, padding: {top: 1, left: 2, bottom: 3, right: 0}}",
         X(4, 4, 2),
         X(4, 6, 1),
         {.rank = 4, .dim = {2, 3, 3, 1}},
         9},
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rig r = rig_create(1);
        const uint32_t n = build(&r, row[i].attrs, row[i].x);
        cr_assert_neq(n, DR_NONE, "%s", rig_text(&r));
        const struct dr_value *y = &r.g->value.at[rig_out(&r, n, 0)];
        const struct dr_value *w = &r.g->value.at[rig_in(&r, n, 1)];
        const struct dr_value *b = &r.g->value.at[rig_in(&r, n, 2)];
        cr_expect(dr_shape_equal(&y->shape, &row[i].y), "%s", dr_shape_text(r.g->arena, &y->shape));
        cr_expect(dr_shape_equal(&w->shape, &row[i].w), "%s", dr_shape_text(r.g->arena, &w->shape));
        cr_expect_str_eq(w->name, "t.weight");
        cr_expect(w->init.kind == DR_INIT_HE_NORMAL && w->init.fan_in == row[i].fan_in);
        cr_expect(b->shape.rank == 1 && b->shape.dim[0] == y->shape.dim[3]);
        const struct dr_node *node = &r.g->node.at[n];
        int64_t macs = 0;
        dr_shape_elements(&row[i].x, &macs);
        cr_expect_eq(node->op->cost(r.g, node).flops,
                     2.0 * (double)(macs * w->shape.dim[1] * w->shape.dim[2] * w->shape.dim[3]));
        rig_free(&r);
    }
}

Test(conv_transpose, refusals) {
    static const struct {
        const char *attrs;
        struct dr_shape x;
        const char *says;
    } row[] = {
        {"{filters: 4, kernel: 2, stride: 2, output_padding: 2}", X(3, 3, 2),
         "output_padding 2 is not below stride 2 or dilation 1"},
        {"{filters: 4, kernel: 2, stride: 2, dilation: [1, 3], output_padding: [0, 3]}", X(3, 3, 2),
         "output_padding 3 is not below stride 2 or dilation 3"},
        {"{filters: 4, kernel: 2, output_padding: 1}", X(3, 3, 2), "output_padding 1"},
        {"{filters: 4, kernel: 2, groups: 2}", X(3, 3, 3),
         "3 input channels are not divisible by groups 2"},
        {"{filters: 3, kernel: 2, groups: 2}", X(3, 3, 4),
         "3 filters are not divisible by groups 2"},
        {"{filters: 3, kernel: 2, padding: 2}", X(3, 9, 4),
         "padding takes 4 off an output of 4 along its height; nothing is left"},
        {"{filters: 3, kernel: 2, padding: [0, 9]}", X(3, 9, 4), "along its width"},
        {"{filters: 3, kernel: 2, padding: same}", X(3, 3, 4), "not for transposed convolutions"},
        {"{filters: 3, kernel: 2, stride: 0}", X(3, 3, 4), "stride"},
        {"{kernel: 2}", X(3, 3, 4), "filters"},
        {"{filters: 3}", X(3, 3, 4), "kernel"},
        {"{filters: 3, kernel: 2}", {.rank = 2, .dim = {3, 3}}, "[N, H, W, C]"},
        {"{filters: 2147483647, kernel: 65535, stride: 65535}", X(65535, 65535, 1), "impossible"},
        {"{filters: 1, kernel: 1, stride: 65535}", X(1L << 57, 1, 1), "too large"},
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rig r = rig_create(1);
        cr_expect_eq(build(&r, row[i].attrs, row[i].x), DR_NONE, "%s", row[i].attrs);
        cr_expect_not_null(strstr(rig_text(&r), row[i].says), "%s: no \"%s\" in:\n%s", row[i].attrs,
                           row[i].says, rig_text(&r));
        rig_free(&r);
    }
}

/* 143 x 90 -> 71 x 45 -> 35 x 22, and back beside the 71 x 45. */
static uint32_t pools_and_back(struct rig *r, const char *attrs) {
    const uint32_t x = rig_floats(r, "image", DR_SHAPE(1, 143, 90, 3), NULL);
    const uint32_t p1 = rig_op(r, "p1", "max_pool2d", "{kernel: 2}", &x, 1);
    const uint32_t skip = rig_out(r, p1, 0);
    const uint32_t p2 = rig_op(r, "p2", "max_pool2d", "{kernel: 2}", &skip, 1);
    const uint32_t up =
        rig_op(r, "up", "conv_transpose2d", attrs, &(uint32_t){rig_out(r, p2, 0)}, 1);
    cr_assert_neq(up, DR_NONE, "%s", rig_text(r));
    return rig_op(r, "join", "concat", "{}", (uint32_t[]){rig_out(r, up, 0), skip}, 2);
}

Test(conv_transpose, AUG_09_odd_sizes) {
    struct rig r = rig_create(1);
    cr_assert_eq(pools_and_back(&r, "{filters: 3, kernel: 2, stride: 2}"), DR_NONE);
    static const char *const says[] = {
        "concat 'join'",
        ("its input 'up' is [1, 70, 44, 3]: image [1, 143, 90, 3] -> p1 [1, 71, 45, 3] -> "
         "p2 [1, 35, 22, 3] -> up [1, 70, 44, 3]"),
        "its input 'p1' is [1, 71, 45, 3]: image [1, 143, 90, 3] -> p1 [1, 71, 45, 3]"};
    for (size_t i = 0; i < COUNT(says); i++)
        cr_expect_not_null(strstr(rig_text(&r), says[i]), "no \"%s\" in:\n%s", says[i],
                           rig_text(&r));
    rig_free(&r);
    r = rig_create(1);
    const uint32_t n =
        pools_and_back(&r, "{filters: 3, kernel: 2, stride: 2, output_padding: [1, 1]}");
    cr_assert_neq(n, DR_NONE, "%s", rig_text(&r));
    const struct dr_shape want = DR_SHAPE(1, 71, 45, 6);
    cr_expect(dr_shape_equal(&r.g->value.at[rig_out(&r, n, 0)].shape, &want));
    rig_free(&r);
}
