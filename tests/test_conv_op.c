/* The op conv2d: what it refuses, the shapes, states and costs that it gives, its launchers with
 * the planned workspace, its gradients against finite differences. */
#include "kernels/cpu/conv.h"
#include "kernels/cpu/conv_ref.h"
#include "ops/table.h"
#include <criterion/criterion.h>
#include <math.h>
#include <pthreadpool.h>
#include <stdlib.h>
#include <string.h>

/* One conv2d over a value x, from the text of its attributes. */
struct one {
    struct dr_arena *arena;
    struct dr_diag *diag;
    struct dr_graph *g;
    uint32_t x, node; /* DR_NONE after an error */
};

static struct one conv(const char *attrs, struct dr_shape x, enum dr_dtype dtype) {
    struct one o = {.arena = dr_arena_create(), .x = DR_NONE, .node = DR_NONE};
    o.diag = dr_diag_create(o.arena);
    o.g = dr_graph_create(o.arena, o.diag, "test");
    const struct dr_op *op = dr_op_find(dr_ops(), "conv2d");
    const struct dr_yaml *map = dr_yaml_read(o.arena, o.diag, "c.yaml", attrs, strlen(attrs));
    cr_assert_not_null(map, "%s", dr_diag_text(o.diag));
    void *a = dr_alloc(o.arena, op->attrs_bytes);
    if (dr_attrs_read(o.diag, o.arena, dr_ops(), op, map, "conv2d 'c'", NULL, 0, a)) {
        o.x = dr_graph_value(o.g, "x", DR_STEP, dtype, x, map->mark);
        if (o.x != DR_NONE) {
            o.node = dr_graph_emit(o.g, "c", op, a, &o.x, 1, DR_ROLE_FORWARD, map->mark);
        }
    }
    return o;
}

static void refused(const char *attrs, struct dr_shape x, const char *says) {
    struct one o = conv(attrs, x, DR_F32);
    const char *text = dr_diag_text(o.diag);
    cr_expect_eq(o.node, DR_NONE, "%s", attrs);
    cr_expect_gt(dr_diag_errors(o.diag), 0, "%s", attrs);
    cr_expect_not_null(strstr(text, says), "%s: no \"%s\" in:\n%s", attrs, says, text);
    cr_expect_not_null(strstr(text, "c.yaml:1:"), "%s", text);
    dr_arena_destroy(o.arena);
}

static void gives(const char *attrs, struct dr_shape x, struct dr_shape y, struct dr_shape w) {
    struct one o = conv(attrs, x, DR_F32);
    cr_assert_neq(o.node, DR_NONE, "%s: %s", attrs, dr_diag_text(o.diag));
    const struct dr_node *n = &o.g->node.at[o.node];
    const struct dr_value *out = &o.g->value.at[n->out[0]], *weight = &o.g->value.at[n->in[1]];
    cr_expect(dr_shape_equal(&out->shape, &y), "%s: %s", attrs,
              dr_shape_text(o.arena, &out->shape));
    cr_expect(dr_shape_equal(&weight->shape, &w), "%s: %s", attrs,
              dr_shape_text(o.arena, &weight->shape));
    dr_arena_destroy(o.arena);
}

Test(conv_op, CONV_05_impossible_geometry_is_refused) {
    const struct dr_shape x5 = DR_SHAPE(1, 5, 5, 1), x2 = DR_SHAPE(1, 2, 2, 1);
    refused("{filters: 1, kernel: 3}", x2, "effective kernel 3 > padded input 2");
    refused("{filters: 1, kernel: 3, dilation: 3}", x5, "effective kernel 7 > padded input 5");
    refused("{filters: 1, kernel: [1, 3]}", x2, "along its width");
    refused("{filters: 1, kernel: 3, stride: 0}", x5, "stride");
    refused("{filters: 1, kernel: 3, dilation: 0}", x5, "dilation");
    refused("{filters: 1, kernel: 3, groups: 0}", x5, "groups");
    refused("{filters: 1, kernel: 3, groups: -1}", x5, "groups");
    refused("{filters: 0, kernel: 3}", x5, "filters");
    refused("{filters: 1, kernel: 0}", x5, "kernel");
    refused("{filters: 1, kernel: 3, padding: -1}", x5, "padding");
    refused("{kernel: 3}", x5, "filters");
    refused("{filters: 1, kernel: 3, padding: same, stride: 2}", x5, "stride of 1, not 2x2");
    gives("{filters: 1, kernel: 3, padding: 1}", DR_SHAPE(1, 1, 1, 1), DR_SHAPE(1, 1, 1, 1),
          DR_SHAPE(1, 3, 3, 1));
}

Test(conv_op, CONV_07_channels_must_divide) {
    refused("{filters: 4, kernel: 1, groups: 2}", DR_SHAPE(1, 5, 5, 7),
            "7 input channels are not divisible by groups 2");
    refused("{filters: 3, kernel: 1, groups: 2}", DR_SHAPE(1, 5, 5, 8),
            "3 filters are not divisible by groups 2");
    refused("{filters: 4, kernel: 1}", DR_SHAPE(1, 5), "[N, H, W, C]");
    struct one o = conv("{filters: 4, kernel: 1}", DR_SHAPE(1, 5, 5, 3), DR_U8);
    cr_expect_eq(o.node, DR_NONE);
    cr_expect_not_null(strstr(dr_diag_text(o.diag), "u8"));
    dr_arena_destroy(o.arena);
}

Test(conv_op, CONV_09_sizes_in_64_bits) {
    /* (b) */
    const struct dr_shape x = DR_SHAPE(1, 2048, 2048, 514);
    struct one o = conv("{filters: 1, kernel: 3, padding: 1}", x, DR_F32);
    cr_assert_neq(o.node, DR_NONE);
    cr_expect_eq(o.g->value.at[o.x].bytes, INT64_C(8623489024));
    const struct dr_node *n = &o.g->node.at[o.node];
    cr_expect_float_eq(n->op->cost(o.g, n).flops, 2.0 * 2048 * 2048 * 9 * 514, 1);
    cr_expect_gt(n->op->choose(o.g, n, false).workspace_bytes, 0);
    dr_arena_destroy(o.arena);
    /* (c) */
    refused("{filters: 1, kernel: 1}", DR_SHAPE(65536, 65536, 65536, 65536), "impossible");
    /* what follows from x is too large */
    refused("{filters: 2147483647, kernel: 1}", DR_SHAPE(1, 1 << 20, 1 << 20, 1), "impossible");
    refused("{filters: 1, kernel: 65535, padding: 65535}", DR_SHAPE(1, 1, 1, 1 << 29),
            "impossible");
    refused("{filters: 1, kernel: 65535, padding: 65535}", DR_SHAPE(1, 1, 1, 1L << 57),
            "too large");
}

Test(conv_op, shapes) {
    gives("{filters: 8, kernel: [3, 5], stride: [2, 3], padding: {top: 1, left: 2, bottom: 3, "
          "right: 4}, dilation: [1, 2]}",
          DR_SHAPE(4, 10, 20, 6), DR_SHAPE(4, 6, 6, 8), DR_SHAPE(8, 3, 5, 6));
    gives("{filters: 6, kernel: 3, groups: 3, padding: same}", DR_SHAPE(2, 7, 8, 3),
          DR_SHAPE(2, 7, 8, 6), DR_SHAPE(6, 3, 3, 1));
    gives("{filters: 2, kernel: [4, 2], dilation: 3, padding: same}", DR_SHAPE(2, 7, 8, 3),
          DR_SHAPE(2, 7, 8, 2), DR_SHAPE(2, 4, 2, 3));
}

Test(conv_op, states) {
    struct one o = conv("{filters: 8, kernel: 3, groups: 2}", DR_SHAPE(2, 7, 8, 6), DR_F32);
    const struct dr_node *n = &o.g->node.at[o.node];
    cr_assert_eq(n->n_in, 3);
    const struct dr_value *w = &o.g->value.at[n->in[1]], *b = &o.g->value.at[n->in[2]];
    cr_expect_str_eq(w->name, "c.weight");
    cr_expect(w->init.kind == DR_INIT_HE_NORMAL && w->init.fan_in == 27);
    cr_expect_str_eq(b->name, "c.bias");
    cr_expect(b->init.kind == DR_INIT_ZERO && b->shape.rank == 1 && b->shape.dim[0] == 8);
    dr_arena_destroy(o.arena);
    o = conv("{filters: 8, kernel: 3, bias: false}", DR_SHAPE(2, 7, 8, 6), DR_F32);
    cr_expect_eq(o.g->node.at[o.node].n_in, 2);
    dr_arena_destroy(o.arena);
}

/* ---- launching ---- */
static float *random_floats(int64_t n, uint64_t state) {
    float *p = malloc((size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        p[i] = (float)(state >> 40) * 0x1p-23F - 1;
    }
    return p;
}

/* Memory for each value, random; what a node writes is NaN. */
static void **memory(const struct dr_graph *g) {
    void **at = calloc(g->value.n, sizeof *at);
    for (uint32_t v = 0; v < g->value.n; v++) {
        at[v] = random_floats(g->value.at[v].bytes / 4, v + 1);
    }
    for (uint32_t n = 0; n < g->node.n; n++) {
        const uint32_t out = g->node.at[n].out[0];
        memset(at[out], 0xff, (size_t)g->value.at[out].bytes);
    }
    return at;
}

static void launch(const struct dr_graph *g, uint32_t node, void **at) {
    const struct dr_node *n = &g->node.at[node];
    const int64_t bytes = n->op->choose(g, n, false).workspace_bytes;
    void *in[4], *out[1] = {at[n->out[0]]}, *workspace = NULL;
    for (uint32_t i = 0; i < n->n_in; i++) {
        in[i] = at[n->in[i]];
    }
    cr_assert_eq(posix_memalign(&workspace, 64, (size_t)bytes + 64), 0);
    memset(workspace, 0xff, (size_t)bytes + 64);
    struct dr_cpu cpu = {NULL};
    const struct dr_launch l = {
        .node = n, .value = g->value.at, .in = in, .out = out, .workspace = workspace};
    n->op->cpu(&l, &cpu);
    for (int64_t i = 0; i < 64; i++) {
        cr_expect_eq(((unsigned char *)workspace)[bytes + i], 0xff, "past its workspace");
    }
    free(workspace);
}

static void free_memory(const struct dr_graph *g, void **at) {
    for (uint32_t v = 0; v < g->value.n; v++) {
        free(at[v]);
    }
    free(at);
}

/* The geometry, written down once more. */
static struct dr_conv geometry(void) {
    return (struct dr_conv){.n = 2,
                            .h = 7,
                            .w = 9,
                            .c = 6,
                            .k = 4,
                            .kh = 3,
                            .kw = 2,
                            .ho = 4,
                            .wo = 9,
                            .sh = 2,
                            .sw = 1,
                            .dh = 1,
                            .dw = 2,
                            .pt = 1,
                            .pl = 2,
                            .pb = 2,
                            .pr = 0,
                            .groups = 2};
}
#define GEOMETRY                                                                                   \
    "filters: 4, kernel: [3, 2], stride: [2, 1], dilation: [1, 2], groups: 2, "                    \
    "padding: {top: 1, left: 2, bottom: 2, right: 0}"

static void near(const char *what, const float *got, const double *want, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        cr_expect(fabs(got[i] - want[i]) < 1e-4, "%s[%d] is %g, not %g", what, (int)i,
                  (double)got[i], want[i]);
    }
}

Test(conv_op, launchers_against_double) {
    struct one o = conv("{" GEOMETRY "}", DR_SHAPE(2, 7, 9, 6), DR_F32);
    cr_assert_neq(o.node, DR_NONE, "%s", dr_diag_text(o.diag));
    struct dr_graph *g = o.g;
    const uint32_t y = g->node.at[o.node].out[0], w = g->node.at[o.node].in[1],
                   b = g->node.at[o.node].in[2];
    const uint32_t dy =
        dr_graph_value(g, "dy", DR_STEP, DR_F32, g->value.at[y].shape, g->value.at[y].mark);
    uint32_t dx[3] = {DR_NONE, DR_NONE, DR_NONE};
    struct dr_grad grad = {
        .g = g, .node = o.node, .dy = &dy, .need = (bool[]){true, true, true}, .dx = dx};
    g->node.at[o.node].op->grad(&grad);
    cr_assert(dx[0] != DR_NONE && dx[1] != DR_NONE && dx[2] != DR_NONE);
    cr_expect(dr_shape_equal(&g->value.at[dx[0]].shape, &g->value.at[o.x].shape));
    cr_expect(dr_shape_equal(&g->value.at[dx[1]].shape, &g->value.at[w].shape));
    cr_expect(dr_shape_equal(&g->value.at[dx[2]].shape, &g->value.at[b].shape));
    void **at = memory(g);
    const struct dr_conv s = geometry();
    double out[2 * 4 * 9 * 4], in[2 * 7 * 9 * 6], weight[4 * 3 * 2 * 3], bias[4] = {0};
    dr_conv_ref_fprop(&s, at[o.x], at[w], at[b], out);
    dr_conv_ref_dgrad(&s, at[dy], at[w], in);
    dr_conv_ref_wgrad(&s, at[o.x], at[dy], weight);
    for (int i = 0; i < 2 * 4 * 9 * 4; i++) {
        bias[i % 4] += ((float *)at[dy])[i];
    }
    for (uint32_t n = 0; n < g->node.n; n++) {
        launch(g, n, at);
        const double flops = g->node.at[n].op->cost(g, &g->node.at[n]).flops;
        cr_expect_eq(flops, n < 3 ? 2.0 * (2 * 4 * 9 * 4) * (3 * 2 * 3) : 2 * 4 * 9 * 4, "%s",
                     g->node.at[n].name);
    }
    near("y", at[y], out, 2 * 4 * 9 * 4);
    near("dx", at[dx[0]], in, 2 * 7 * 9 * 6);
    near("dw", at[dx[1]], weight, 4 * 3 * 2 * 3);
    near("db", at[dx[2]], bias, 4);
    free_memory(g, at);
    dr_arena_destroy(o.arena);
}

Test(conv_op, gradients_only_where_needed) {
    for (int i = 0; i < 4; i++) {
        struct one o = conv(i < 3 ? "{" GEOMETRY "}" : "{" GEOMETRY ", bias: false}",
                            DR_SHAPE(2, 7, 9, 6), DR_F32);
        const uint32_t y = o.g->node.at[o.node].out[0];
        const uint32_t dy = dr_graph_value(o.g, "dy", DR_STEP, DR_F32, o.g->value.at[y].shape,
                                           o.g->value.at[y].mark);
        uint32_t dx[3] = {DR_NONE, DR_NONE, DR_NONE};
        const bool need[3] = {i == 0, i == 1, i == 2};
        struct dr_grad grad = {.g = o.g, .node = o.node, .dy = &dy, .need = need, .dx = dx};
        o.g->node.at[o.node].op->grad(&grad);
        cr_expect_eq(o.g->node.n, i < 3 ? 2 : 1);
        for (int j = 0; j < 3; j++) {
            cr_expect_eq(dx[j] != DR_NONE, need[j]);
        }
        dr_arena_destroy(o.arena);
    }
}

/* sum(dy * conv(x, w)) is linear in x and in w: central differences are exact but for rounding, and
 * the double reference has hardly any. */
static double inner(const double *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void difference(const char *what, float *operand, int64_t n, const float *gradient,
                       const float *x, const float *w, const float *dy) {
    const struct dr_conv s = geometry();
    double up[2 * 4 * 9 * 4], down[2 * 4 * 9 * 4];
    for (int64_t i = 0; i < n; i++) {
        const float was = operand[i];
        operand[i] = was + 0.5F;
        const double step = (double)operand[i];
        dr_conv_ref_fprop(&s, x, w, NULL, up);
        operand[i] = was - 0.5F;
        const double width = step - (double)operand[i];
        dr_conv_ref_fprop(&s, x, w, NULL, down);
        operand[i] = was;
        const double slope =
            (inner(up, dy, 2 * 4 * 9 * 4) - inner(down, dy, 2 * 4 * 9 * 4)) / width;
        cr_expect(fabs(slope - (double)gradient[i]) < 1e-4, "%s[%d] is %g, not %g", what, (int)i,
                  (double)gradient[i], slope);
    }
}

Test(conv_op, gradients_against_finite_differences) {
    const struct dr_conv s = geometry();
    float *x = random_floats(2 * 7 * 9 * 6, 1), *w = random_floats(4 * 3 * 2 * 3, 2);
    float *dy = random_floats(2 * 4 * 9 * 4, 3);
    float dx[2 * 7 * 9 * 6], dw[4 * 3 * 2 * 3];
    struct dr_cpu cpu = {NULL};
    void *ws = NULL;
    cr_assert_eq(posix_memalign(&ws, 64, (size_t)dr_conv_dgrad_workspace(&s)), 0);
    dr_conv_dgrad(&cpu, dr_tiles(), &s, dy, w, dx, ws);
    free(ws);
    cr_assert_eq(posix_memalign(&ws, 64, (size_t)dr_conv_wgrad_workspace(&s)), 0);
    dr_conv_wgrad(&cpu, dr_tiles(), &s, x, dy, dw, ws);
    free(ws);
    difference("dx", x, 2 * 7 * 9 * 6, dx, x, w, dy);
    difference("dw", w, 4 * 3 * 2 * 3, dw, x, w, dy);
    free(x);
    free(w);
    free(dy);
}
