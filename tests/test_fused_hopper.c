/* Convolutions that read u8 pixels and normalize them as they load, or store the largest of 2 x 2
 * outputs: where that is done, where it must not be, and how plans show it. The bits are compared
 * on a GPU, by main_cuda_conv. */
#include "kernels/cuda/conv_small.h"
#include "kernels/cuda/conv_table.h"
#include "kernels/cuda/conv_way.h"
#include "ops/table.h"
#include "scheduler/plan.h"
#include "scheduler/session.h"
#include "tests/fake_cli.h"
#include "tests/fake_harness.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- shapes ---- */
static const struct dr_conv_card card = {.arch = 90, .sms = 132, .hopper = true, .tf32 = true};

static struct dr_conv square(int64_t n, int64_t size, int64_t c, int64_t k, int64_t kernel,
                             int64_t stride, int64_t pad) {
    const int64_t out = (size + 2 * pad - kernel) / stride + 1;
    return (struct dr_conv){n,      size,   size, c, k,   kernel, kernel, out, out,
                            stride, stride, 1,    1, pad, pad,    pad,    pad, 1};
}

Test(fused_hopper, first_layers_read_bytes) {
    const struct dr_conv layer[] = {
        square(128, 227, 3, 96, 11, 4, 0), square(128, 227, 3, 64, 7, 2, 0),
        square(128, 224, 3, 64, 3, 1, 0),  square(32, 224, 3, 64, 7, 2, 3),
        square(512, 28, 1, 32, 5, 1, 2),   square(64, 64, 4, 32, 3, 1, 1),
        square(64, 64, 8, 64, 3, 1, 1),
    };
    static const char *const name[] = {"im2win tf32 u8 small", "im2win fp16 u8 small",
                                       "im2win bf16 u8 small"};
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++) {
        for (int t = 0; t < 3; t++) {
            struct dr_conv_way way, usual[DR_CONV_WAYS];
            cr_assert(dr_cuda_conv_u8_way(&layer[i], (enum dr_type)t, 1, &card, &way), "%zu, %d", i,
                      t);
            cr_expect_str_eq(way.name, name[t]);
            dr_cuda_conv_ways(&layer[i], (enum dr_type)t, 1, &card, usual);
            cr_expect_eq(way.way, usual[0].way);
            cr_expect_eq(way.workspace_bytes, 0);
        }
    }
}

Test(fused_hopper, what_reads_no_bytes) {
    const struct dr_conv good = square(2, 226, 3, 64, 7, 2, 3);
    struct dr_conv bad[5];
    struct dr_conv_card other = card;
    struct dr_conv_way way;
    for (int i = 0; i < 5; i++) {
        bad[i] = good;
    }
    bad[0].c = 9, bad[1].k = 60, bad[2].groups = 3, bad[3].dh = bad[3].dw = 2, bad[4].kw = 13;
    cr_expect(dr_cuda_conv_u8_way(&good, DR_TYPE_F16, 4, &card, &way));
    for (int i = 0; i < 5; i++) {
        cr_expect_not(dr_cuda_conv_u8_way(&bad[i], DR_TYPE_F16, 4, &card, &way), "%d", i);
    }
    cr_expect_not(dr_cuda_conv_u8_way(&good, DR_TYPE_F16, 2, &card, &way), "tanh");
    other.hopper = false;
    cr_expect_not(dr_cuda_conv_u8_way(&good, DR_TYPE_F16, 0, &other, &way), "another card");
    other = card;
    other.tf32 = false;
    cr_expect_not(dr_cuda_conv_u8_way(&good, DR_TYPE_F32, 0, &other, &way), "fp32");
    /* 2 * 227 * 227 * 3 bytes end two bytes into a word */
    const struct dr_conv odd = square(2, 227, 3, 64, 7, 2, 3);
    cr_expect_not(dr_cuda_conv_u8_way(&odd, DR_TYPE_BF16, 0, &card, &way), "words past the end");
    cr_expect(dr_cuda_conv_u8_way(&odd, DR_TYPE_F32, 0, &card, &way), "one by one");
}

/* (x / 255 - mean) / std as one multiply-add. */
Test(fused_hopper, normalize_says_what_it_does) {
    struct rig r = rig_create(1);
    const uint32_t x = rig_input(&r, "x", DR_U8, DR_SHAPE(1, 2, 2, 3), DR_IMAGE, NULL);
    const uint32_t f = rig_floats(&r, "f", DR_SHAPE(1, 2, 2, 3), NULL);
    const uint32_t wide = rig_input(&r, "w", DR_U8, DR_SHAPE(1, 2, 2, 9), DR_IMAGE, NULL);
    const char *const yaml = "{mean: [0.5, 0.25, 0], std: [0.25, 0.5, 2]}";
    const uint32_t n = rig_op(&r, "n", "normalize", yaml, &x, 1);
    const uint32_t scaled = rig_op(&r, "s", "normalize", "{scale: 0.5, std: [4]}", &x, 1);
    const uint32_t real = rig_op(&r, "r", "normalize", yaml, &f, 1);
    const uint32_t many = rig_op(&r, "m", "normalize", "{}", &wide, 1);
    const struct dr_op *op = dr_op_find(dr_ops(), "normalize");
    struct dr_pixels p = {0};
    cr_assert(op->pixels(r.g, &r.g->node.at[n], &p));
    const float mul[] = {4.0f / 255, 2.0f / 255, 0.5f / 255}, add[] = {-2, -0.5f, 0};
    cr_expect_eq(p.n, 3);
    for (int i = 0; i < 3; i++) {
        cr_expect_float_eq(p.mul[i], mul[i], 1e-9);
        cr_expect_float_eq(p.add[i], add[i], 0);
    }
    cr_assert(op->pixels(r.g, &r.g->node.at[scaled], &p));
    cr_expect(p.n == 3 && p.mul[2] == 0.125f && p.add[2] == 0);
    cr_expect_not(op->pixels(r.g, &r.g->node.at[real], &p));
    cr_expect_not(op->pixels(r.g, &r.g->node.at[many], &p));
    rig_free(&r);
}

/* ---- plans ---- */
static const struct dr_device_info h200 = {
    .name = "cuda:0 NVIDIA H200 (sm_90, 132 SMs)",
    .card = "NVIDIA H200 (sm_90, 132 SMs)",
    .cuda = true,
    .copies_ahead = true,
    .caps = {.arch = 90, .sms = 132, .hopper = true},
    .threads = 2,
    .flops_per_s = 6.7e13,
    .tf32_flops_per_s = 4.9e14,
    .fp16 = true,
    .bf16 = true,
    .half_flops_per_s = 9.9e14,
    .bytes_per_s = 4.8e12,
    .launch_us = 0.6,
};

#define NORM "n: {op: normalize, in: image, mean: [0.5], std: [0.25]}\n"
#define Y "y: {in: "
#define Z ", npy: y.npy}"
#define N Z ", n: {in: enc.n, npy: n.npy}"
#define CONV "op: conv2d, in: enc.n, filters: 32, kernel: 3, padding: 1"

struct plan_case {
    const char *what, *precision, *dtype, *nodes; /* of the subgraph `enc`, 6 columns in */
    const char *frozen, *outputs;
    enum dr_graph_mode mode;
    const char *fused; /* what node enc.c does; NULL: n stays */
    int channels;
    const char *last; /* what the head reads */
};
static const struct plan_case cases[] = {
    {"inference", "fp16", "u8", NORM "      c: {" CONV ", activation: relu}\n", "false",
     Y "enc.c" Z, DR_MODE_INFER, "normalize + conv2d + relu", 3, "enc.c"},
    {"with a norm", "bf16", "u8",
     NORM "      c: {" CONV ", bias: false}\n      b: {op: batch_norm, activation: relu}\n",
     "false", Y "enc.b" Z, DR_MODE_INFER, "normalize + conv2d + batch_norm + relu", 3, "enc.c"},
    {"tf32", "tf32", "u8", NORM "      c: {" CONV "}\n", "false", Y "enc.c" Z, DR_MODE_INFER,
     "normalize + conv2d", 3, "enc.c"},
    {"a frozen encoder", "fp16", "u8", NORM "      c: {" CONV "}\n", "true", Y "enc.c" Z,
     DR_MODE_TRAIN, "normalize + conv2d", 3, "enc.c"},
    {"evaluation", "fp16", "u8", NORM "      c: {" CONV "}\n", "false", Y "enc.c" Z, DR_MODE_EVAL,
     "normalize + conv2d", 3, "enc.c"},
    {"the weight's gradient reads it", "fp16", "u8", NORM "      c: {" CONV "}\n", "false",
     Y "enc.c" Z, DR_MODE_TRAIN, NULL, 3, "enc.c"},
    {"another reader", "fp16", "u8",
     NORM "      c: {" CONV ", activation: relu}\n      d: {" CONV "}\n"
          "      s: {op: sub, in: [enc.c, enc.d]}\n",
     "false", Y "enc.s" Z, DR_MODE_INFER, NULL, 3, "enc.c"},
    {"an output", "fp16", "u8", NORM "      c: {" CONV "}\n", "false", Y "enc.c" N, DR_MODE_INFER,
     NULL, 3, "enc.c"},
    {"floats", "fp16", "f32", NORM "      c: {" CONV "}\n", "false", Y "enc.c" Z, DR_MODE_INFER,
     NULL, 3, "enc.c"},
    {"fp32", "fp32", "u8", NORM "      c: {" CONV "}\n", "false", Y "enc.c" Z, DR_MODE_INFER, NULL,
     3, "enc.c"},
    {"tanh", "fp16", "u8", NORM "      c: {" CONV ", activation: tanh}\n", "false", Y "enc.c" Z,
     DR_MODE_INFER, NULL, 3, "enc.c"},
    {"something between", "fp16", "u8",
     NORM "      r: {op: abs}\n      c: {op: conv2d, filters: 32, kernel: 3}\n", "false",
     Y "enc.c" Z, DR_MODE_INFER, NULL, 3, "enc.c"},
};

static struct dr_arena *arena;
static char *folder;
static void setup(void) {
    arena = dr_arena_create();
    folder = cli_folder();
}
static void teardown(void) {
    dr_arena_destroy(arena);
    cli_folder_remove(folder);
}

static const char *yaml_of(const struct plan_case *c) {
    return dr_printf(
        arena,
        "dagrun: 1\nprecision: %s\n"
        "inputs: {image: {shape: [28, 28, %d], dtype: %s}, label: {shape: [], dtype: u8}}\n"
        "data:\n  batch: 8\n"
        "  train: {image: {synthetic: uniform}, label: {synthetic: uniform}}\n"
        "  infer: {image: {synthetic: uniform}}\n"
        "subgraphs:\n  enc:\n    frozen: %s\n%s    nodes:\n      %s"
        "  head:\n    nodes:\n      p: {op: global_avg_pool, in: %s}\n      f: {op: flatten}\n"
        "      logits: {op: linear, features: 10}\n"
        "train:\n  losses: {ce: {op: cross_entropy, in: [head.logits, label]}}\n"
        "  optimizer: {op: sgd, lr: 0.1}\n  steps: 10\n"
        "eval: {on: train, metrics: {a: {op: accuracy, in: [head.logits, label]}}}\n"
        "outputs: {%s}\n",
        c->precision, c->channels, c->dtype, c->frozen,
        strcmp(c->frozen, "true") ? "" : "    weights: random\n", c->nodes, c->last, c->outputs);
}

static struct dr_session *planned(const struct plan_case *c, bool cuda) {
    static const struct dr_exec_ops ops = {.name = "fake"};
    char *yaml = cli_file(folder, "m.yaml", yaml_of(c));
    struct dr_session *s = dr_session_create();
    s->ops = &ops;
    s->dev = h200;
    if (!cuda) {
        s->dev.cuda = s->dev.fp16 = s->dev.bf16 = false;
        s->dev.caps = (struct dr_device_caps){0};
    }
    cr_assert(dr_session_load(s, yaml, NULL, 0) && dr_session_plan(s, c->mode, NULL, NULL),
              "%s: %s", c->what, dr_diag_text(s->diag));
    free(yaml);
    return s;
}

static const struct dr_node *find(const struct dr_graph *g, const char *name) {
    for (uint32_t i = 0; i < g->node.n; i++) {
        if (!strcmp(g->node.at[i].name, name)) {
            return &g->node.at[i];
        }
    }
    return NULL;
}

Test(fused_hopper, plans_that_read_bytes, .init = setup, .fini = teardown) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct plan_case *c = &cases[i];
        struct dr_session *s = planned(c, true);
        const struct dr_graph *g = s->main.graph;
        const struct dr_node *conv = find(g, "enc.c");
        const char *why = "";
        cr_assert(dr_graph_verify(g, &why), "%s: %s", c->what, why);
        cr_assert(conv, "%s", c->what);
        const char *kernel = s->main.plan->choice[conv - g->node.at].kernel;
        const bool reads = g->value.at[conv->in[0]].dtype == DR_U8;
        cr_expect_eq(reads, c->fused != NULL, "%s", c->what);
        cr_expect_eq(find(g, "enc.n") == NULL, c->fused != NULL, "%s", c->what);
        cr_expect_eq(strstr(kernel, " u8 small") != NULL, c->fused != NULL, "%s: %s", c->what,
                     kernel);
        if (c->fused) {
            struct dr_text text = {.arena = arena};
            cr_expect(conv->fused && !strcmp(conv->fused, c->fused), "%s: %s", c->what,
                      conv->fused);
            cr_expect_str_eq(g->value.at[conv->in[0]].name, "image");
            dr_plan_text(s->main.plan, &s->dev, 1, &text);
            cr_expect(strstr(text.at, dr_printf(arena, "  1 x %s\n", c->fused)), "%s", text.at);
            cr_expect(strstr(text.at, " of u8: im2win "), "%s", text.at);
        }
        dr_session_destroy(s);
    }
}

#define WIDE "c: {op: conv2d, in: image, filters: 64, kernel: 3, padding: 1"
#define POOL "      p: {op: max_pool2d, in: enc.c, kernel: 2"
#define P Y "enc.p" Z
static const struct plan_case pools[] = {
    {"inference", "fp16", "f32", WIDE ", activation: relu}\n" POOL "}\n", "false", P, DR_MODE_INFER,
     "conv2d + relu + max_pool2d", 64, "enc.p"},
    {"with a norm", "bf16", "f32",
     WIDE "}\n      b: {op: batch_norm, activation: relu}\n      p: {op: max_pool2d, kernel: 2}\n",
     "false", P, DR_MODE_INFER, "conv2d + batch_norm + relu + max_pool2d", 64, "enc.p"},
    {"a frozen encoder", "fp16", "f32", WIDE ", activation: relu}\n" POOL "}\n", "true", P,
     DR_MODE_TRAIN, "conv2d + relu + max_pool2d", 64, "enc.p"},
    {"evaluation", "fp16", "f32", WIDE ", activation: relu}\n" POOL "}\n", "false", P, DR_MODE_EVAL,
     "conv2d + relu + max_pool2d", 64, "enc.p"},
    {"its gradient reads all outputs", "fp16", "f32", WIDE ", activation: relu}\n" POOL "}\n",
     "false", P, DR_MODE_TRAIN, NULL, 64, "enc.p"},
    {"another reader", "fp16", "f32",
     WIDE ", activation: relu}\n" POOL "}\n      q: {op: max_pool2d, in: enc.c, kernel: 2}\n"
          "      s: {op: sub, in: [enc.p, enc.q]}\n",
     "false", Y "enc.s" Z, DR_MODE_INFER, NULL, 64, "enc.s"},
    {"an output", "fp16", "f32", WIDE ", activation: relu}\n" POOL "}\n", "false",
     P ", c: {in: enc.c, npy: c.npy}", DR_MODE_INFER, NULL, 64, "enc.p"},
    {"no relu", "fp16", "f32", WIDE "}\n" POOL "}\n", "false", P, DR_MODE_INFER, NULL, 64, "enc.p"},
    {"floats", "tf32", "f32", WIDE ", activation: relu}\n" POOL "}\n", "false", P, DR_MODE_INFER,
     NULL, 64, "enc.p"},
    {"windows that overlap", "fp16", "f32", WIDE ", activation: relu}\n" POOL ", stride: 1}\n",
     "false", P, DR_MODE_INFER, NULL, 64, "enc.p"},
    {"padding", "fp16", "f32", WIDE ", activation: relu}\n" POOL ", padding: 1}\n", "false", P,
     DR_MODE_INFER, NULL, 64, "enc.p"},
    {"a mean", "fp16", "f32",
     WIDE ", activation: relu}\n      p: {op: avg_pool2d, in: enc.c, kernel: 2}\n", "false", P,
     DR_MODE_INFER, NULL, 64, "enc.p"},
    {"a sum before it", "fp16", "f32",
     WIDE "}\n      s: {op: add, in: [enc.c, image], activation: relu}\n"
          "      p: {op: max_pool2d, kernel: 2}\n",
     "false", P, DR_MODE_INFER, NULL, 64, "enc.p"},
    {"a kernel that cannot", "fp16", "f32", WIDE ", activation: relu}\n" POOL "}\n", "false", P,
     DR_MODE_INFER, NULL, 128, "enc.p"},
    {"only once", "fp16", "f32",
     WIDE ", activation: relu}\n" POOL "}\n      q: {op: max_pool2d, kernel: 2}\n", "false",
     Y "enc.q" Z, DR_MODE_INFER, "conv2d + relu + max_pool2d", 64, "enc.q"},
};

/* 28 x 28 outputs of 64 filters, of which 14 x 14 leave. */
Test(fused_hopper, plans_that_pool, .init = setup, .fini = teardown) {
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        const struct plan_case *c = &pools[i];
        struct dr_session *s = planned(c, true);
        const struct dr_graph *g = s->main.graph;
        const struct dr_node *conv = find(g, "enc.c");
        const char *why = "";
        cr_assert(dr_graph_verify(g, &why), "%s: %s", c->what, why);
        cr_assert(conv, "%s", c->what);
        const struct dr_choice *choice = &s->main.plan->choice[conv - g->node.at];
        const struct dr_value *y = &g->value.at[conv->out[0]];
        cr_expect_eq(find(g, "enc.p") == NULL, c->fused != NULL, "%s", c->what);
        cr_expect_eq(strstr(choice->kernel, " pool") != NULL, c->fused != NULL, "%s: %s", c->what,
                     choice->kernel);
        cr_expect_eq(y->shape.dim[1], c->fused ? 14 : 28, "%s", c->what);
        cr_expect_float_eq(s->main.plan->cost[conv - g->node.at].flops,
                           2.0 * 8 * 28 * 28 * 64 * 9 * c->channels, 0.5);
        if (c->fused) {
            struct dr_text text = {.arena = arena};
            cr_expect(conv->fused && !strcmp(conv->fused, c->fused), "%s: %s", c->what,
                      conv->fused);
            cr_expect_str_eq(y->name, "enc.p");
            dr_plan_text(s->main.plan, &s->dev, 1, &text);
            cr_expect(strstr(text.at, dr_printf(arena, "  1 x %s\n", c->fused)), "%s", text.at);
            cr_expect(strstr(text.at, " padding 1, pooled: im2win "), "%s", text.at);
        }
        dr_session_destroy(s);
    }
}

/* Its kernels read floats. */
Test(fused_hopper, not_on_a_cpu, .init = setup, .fini = teardown) {
    struct dr_session *s = planned(&cases[0], false);
    const struct dr_node *conv = find(s->main.graph, "enc.c");
    cr_assert(conv && find(s->main.graph, "enc.n"));
    cr_expect_str_eq(conv->fused, "conv2d + relu");
    dr_session_destroy(s);
}
