/* Half precision in the graph: what the precision pass stores as fp16 or bf16 and where it puts
 * casts, and that plans stay what they are in fp32. Nothing is run here: a CPU computes in fp32. */
#include "kernels/cpu/cast.h"
#include "ops/table.h"
#include "scheduler/cli.h"
#include "tests/fake_cli.h"
#include "tests/fake_ops.h"
#include "tests/fake_runs.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(precision, .timeout = 120);

static bool is_half(const struct dr_value *v) {
    return v->dtype == DR_F16 || v->dtype == DR_BF16;
}
static bool is_float(const struct dr_value *v) {
    return is_half(v) || v->dtype == DR_F32;
}
static bool is_cast(const struct dr_node *n) {
    return strcmp(n->op->name, "cast") == 0;
}
static bool permits(uint32_t mask, uint32_t i) {
    return mask >> (i < 31 ? i : 31) & 1;
}
static uint32_t node_of(const struct dr_graph *g, const char *name) {
    uint32_t i = 0;
    while (i < g->node.n && strcmp(g->node.at[i].name, name) != 0)
        i++;
    return i < g->node.n ? i : DR_NONE;
}
static uint32_t value_of(const struct dr_graph *g, const char *name) {
    const uint32_t v = dr_map_get(g->value_by_name, name);
    cr_assert_neq(v, DR_NONE, "%s is not there", name);
    return v;
}

/* ---- conversions ---- */
/* By hand from the formats: fp16 has 10 bits of fraction and exponents from -14 to 15, bf16 7 bits
 * and a float's exponents. */
Test(precision, numbers) {
    static const struct {
        float x;
        uint16_t f16, bf16;
    } row[] = {
        {0, 0, 0},
        {-0.0f, 0x8000, 0x8000},
        {1, 0x3C00, 0x3F80},
        {-2, 0xC000, 0xC000},
        {65504, 0x7BFF, 0x4780},        /* fp16's largest; bf16: 65536 */
        {65519.996f, 0x7BFF, 0x4780},   /* just below half way to 65536 */
        {65520, 0x7C00, 0x4780},        /* half way: to even, past the largest */
        {1 + 0x1p-11f, 0x3C00, 0x3F80}, /* half way between two fp16: to even */
        {1 + 0x3p-11f, 0x3C02, 0x3F80},
        {1 + 0x1p-8f, 0x3C04, 0x3F80}, /* half way between two bf16 */
        {1 + 0x3p-8f, 0x3C0C, 0x3F82},
        {0x1p-14f, 0x0400, 0x3880},  /* fp16's least normal number */
        {0x1p-24f, 0x0001, 0x3380},  /* its least number */
        {0x1p-25f, 0x0000, 0x3300},  /* half of that: to even */
        {0x3p-26f, 0x0001, 0x3340},  /* three quarters */
        {-0x5p-25f, 0x8002, 0xB420}, /* 2.5 times: to even */
        {1e-30f, 0, 0x0DA2},
        {3.4e38f, 0x7C00, 0x7F80}, /* bf16's largest is 3.3895e38 */
        {-INFINITY, 0xFC00, 0xFF80},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        cr_expect_eq(dr_cpu_to_f16(row[i].x), row[i].f16, "row %zu: %#x", i,
                     dr_cpu_to_f16(row[i].x));
        cr_expect_eq(dr_cpu_to_bf16(row[i].x), row[i].bf16, "row %zu: %#x", i,
                     dr_cpu_to_bf16(row[i].x));
    }
    for (uint32_t h = 0; h < 65536; h++) { /* there and back */
        const float x = dr_cpu_from_f16((uint16_t)h), y = dr_cpu_from_bf16((uint16_t)h);
        cr_assert(isnan(x) ? isnan(dr_cpu_from_f16(dr_cpu_to_f16(x))) : dr_cpu_to_f16(x) == h);
        cr_assert(isnan(y) ? isnan(dr_cpu_from_bf16(dr_cpu_to_bf16(y))) : dr_cpu_to_bf16(y) == h);
    }
    cr_expect_eq((double)dr_cpu_from_f16(0x7BFF), 65504.0);
    cr_expect_eq((double)dr_cpu_from_f16(0x8001), -0x1p-24);
    cr_expect_eq((double)dr_cpu_from_bf16(0x4049), 3.140625);
}

/* ---- graphs ---- */
/* A session whose device computes in halves, as far as plans go. */
static struct dr_session *session(const char *yaml, const char *precision, bool halves) {
    struct dr_session *s = dr_session_create();
    const char *const sets[] = {precision, "subgraphs.encoder.weights=random"};
    const bool encoder = strstr(yaml, "segment_pretrained") != NULL;
    cr_assert(dr_session_load(s, yaml, sets, encoder ? 2 : 1) && dr_session_device(s, "cpu", 2),
              "%s", dr_diag_text(s->diag));
    s->dev.fp16 = s->dev.bf16 = halves;
    s->dev.copies_ahead = true;
    return s;
}

/* The graph up to the precision pass, before anything is fused. */
static struct dr_graph *graph_of(struct dr_session *s, enum dr_graph_mode mode, enum dr_dtype t) {
    struct dr_graph *g = dr_pass_load(s->model, mode, 10);
    cr_assert(g, "%s", dr_diag_text(s->diag));
    g->half = t;
    if (t == DR_F16 && mode == DR_MODE_TRAIN)
        g->scaling = (struct dr_loss_scaling){65536, 2, 0.5, 2000};
    g = dr_pass_frozen(dr_pass_shapes(g));
    g = g ? dr_pass_gradients(g, dr_ops()) : NULL;
    g = g ? dr_pass_precision(g, dr_ops()) : NULL;
    cr_assert(g, "%s", dr_diag_text(s->diag));
    const char *why = "";
    cr_assert(dr_graph_verify(g, &why), "%s", why);
    return g;
}

/* Each node is wholly half or wholly f32, and no operand is half that its op does not permit. */
static void check_nodes(const struct dr_graph *g) {
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        uint32_t half = 0, full = 0;
        for (uint32_t j = 0; j < n->n_in + n->n_out; j++) {
            const bool input = j < n->n_in;
            const uint32_t k = input ? j : j - n->n_in;
            const struct dr_value *v = &g->value.at[input ? n->in[k] : n->out[k]];
            if (is_cast(n) || !is_float(v))
                continue;
            if (permits(input ? n->op->half_in : n->op->half_out, k))
                *(is_half(v) ? &half : &full) += 1;
            else
                cr_expect(!is_half(v), "%s: '%s' is %s", n->name, v->name, dr_dtype_name(v->dtype));
            cr_expect(!is_half(v) || v->dtype == g->half, "%s", v->name);
        }
        cr_expect(half == 0 || full == 0, "%s: %u operands are half, %u are not", n->name, half,
                  full);
    }
}

/* States are f32 masters; losses, what updates read and what the host reads is not half. */
static void check_values(const struct dr_graph *g) {
    for (uint32_t i = 0; i < g->value.n; i++)
        cr_expect(g->value.at[i].kind == DR_STEP || !is_half(&g->value.at[i]), "%s",
                  g->value.at[i].name);
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        const bool whole = n->role == DR_ROLE_UPDATE || n->role == DR_ROLE_READBACK ||
                           (n->op->flags & (DR_OP_LOSS | DR_OP_METRIC | DR_OP_OPTIMIZER));
        for (uint32_t j = 0; whole && j < n->n_in; j++)
            cr_expect(!is_half(&g->value.at[n->in[j]]), "%s reads '%s'", n->name,
                      g->value.at[n->in[j]].name);
    }
    for (uint32_t i = 0; i < g->output.n; i++)
        cr_expect(!is_half(&g->value.at[g->output.at[i]]));
}

/* One cast a value, to the other storage, right behind the producer (to half) or right before the
 * first reader (to f32, and of weights); read by somebody. */
static void check_casts(const struct dr_graph *g) {
    const struct dr_users users = dr_graph_users(g, g->arena);
    bool *cast = DR_NEW_N(g->arena, bool, g->value.n);
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        if (!is_cast(n) || (n->n_in == 2 && n->in[1] == g->loss_scale))
            continue;
        uint32_t first = DR_NONE;
        for (uint32_t k = 0; k < n->n_out; k++) {
            const struct dr_value *x = &g->value.at[n->in[k]], *y = &g->value.at[n->out[k]];
            cr_expect(!cast[n->in[k]], "%s is cast twice", x->name);
            cast[n->in[k]] = true;
            cr_expect(is_half(x) != is_half(y) && dr_shape_equal(&x->shape, &y->shape));
            cr_assert(users.first[n->out[k]] < users.first[n->out[k] + 1], "%s", n->name);
            const uint32_t reader = users.user[users.first[n->out[k]]];
            first = reader < first ? reader : first;
            if (x->kind == DR_STEP && is_half(y))
                for (uint32_t j = x->producer + 1; j < i; j++)
                    cr_expect(is_cast(&g->node.at[j]), "%s is late", n->name);
        }
        if (n->n_out > 1 || !is_half(&g->value.at[n->out[0]]))
            for (uint32_t j = i + 1; j < first; j++)
                cr_expect(is_cast(&g->node.at[j]), "%s is early", n->name);
    }
}

/* Nodes of the fp32 graph are there, in their order, with their classes and marks. */
static void check_same(const struct dr_graph *g, const struct dr_graph *f32) {
    uint32_t i = 0, j = 0;
    for (;; i++, j++) {
        while (i < f32->node.n && strncmp(f32->node.at[i].name, "train:", 6) == 0)
            i++; /* loss scaling adds to these and has another order */
        while (j < g->node.n &&
               (is_cast(&g->node.at[j]) || strncmp(g->node.at[j].name, "train:", 6) == 0))
            j++;
        if (i == f32->node.n || j == g->node.n)
            break;
        const struct dr_node *x = &f32->node.at[i], *y = &g->node.at[j];
        cr_assert_str_eq(y->name, x->name);
        cr_expect(y->op == x->op && y->role == x->role && y->subgraph == x->subgraph &&
                      y->frozen == x->frozen && y->n_out == x->n_out,
                  "%s", x->name);
        cr_expect(y->cls == x->cls, "%s is %s, in fp32 %s", x->name, dr_frozen_class_name(y->cls),
                  dr_frozen_class_name(x->cls));
        const char *of = x->forward == DR_NONE ? "" : f32->node.at[x->forward].name;
        cr_expect_str_eq(y->forward == DR_NONE ? "" : g->node.at[y->forward].name, of);
    }
    cr_expect(i == f32->node.n && j == g->node.n);
}

static void check_graphs(const char *yaml) {
    for (int m = DR_MODE_TRAIN; m <= DR_MODE_INFER; m++)
        for (int t = 0; t < 2; t++) {
            const enum dr_graph_mode mode = (enum dr_graph_mode)m;
            struct dr_session *s = session(yaml, t ? "precision=bf16" : "precision=fp16", true);
            if (mode == DR_MODE_INFER && !s->model->output.n) {
                dr_session_destroy(s);
                continue;
            }
            const struct dr_graph *f32 = graph_of(s, mode, DR_F32);
            const struct dr_graph *g = graph_of(s, mode, t ? DR_BF16 : DR_F16);
            cr_expect(g->half == (t ? DR_BF16 : DR_F16));
            check_nodes(g);
            check_values(g);
            check_casts(g);
            check_same(g, f32);
            dr_session_destroy(s);
        }
}

static const char *const examples[] = {"branches", "digits",         "pretrain_encoder",
                                       "resnet18", "segment_frozen", "segment_pretrained",
                                       "siamese",  "two_heads",      "unet"};
enum { N_EXAMPLES = sizeof examples / sizeof *examples };

Test(precision, examples_in_every_mode) {
    for (int e = 0; e < N_EXAMPLES; e++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/examples/%s.yaml", DR_SOURCE_DIR, examples[e]);
        check_graphs(path);
    }
}

/* What is stored how, value by value. */
static void expect_types(const struct dr_graph *g, const char *const *names, enum dr_dtype t) {
    for (uint32_t i = 0; names[i]; i++)
        cr_expect_eq(g->value.at[value_of(g, names[i])].dtype, t, "%s is %s", names[i],
                     dr_dtype_name(g->value.at[value_of(g, names[i])].dtype));
}

Test(precision, which_values_are_half) {
    static const char *const half[] = {"encoder.norm",
                                       "encoder.c1.weight:bf16",
                                       "encoder.c1:pre",
                                       "encoder.c2",
                                       "decoder.d1.weight:bf16",
                                       "decoder.logits.weight:bf16",
                                       "decoder.d1",
                                       "decoder.n1",
                                       "decoder.logits",
                                       "loss.seg:dgrad:bf16",
                                       "decoder.logits:dgrad",
                                       "decoder.n1:relu:dgrad",
                                       "decoder.n1:dgrad",
                                       NULL};
    static const char *const full[] = {"encoder.c1.weight",
                                       "encoder.c1.bias",
                                       "decoder.d1.weight",
                                       "decoder.n1.mean",
                                       "decoder.n1.var",
                                       "decoder.n1.running_var",
                                       "decoder.logits:f32",
                                       "loss.seg",
                                       "total_loss",
                                       "loss.seg:dgrad",
                                       "decoder.logits:wgrad",
                                       "decoder.logits:bgrad",
                                       "decoder.n1:wgrad",
                                       "decoder.n1:wgrad.bias",
                                       "decoder.d1:wgrad",
                                       "train:lr",
                                       NULL};
    char *folder = cli_folder(), *yaml = cli_file(folder, "m.yaml", runs_segment);
    struct dr_session *s = session(yaml, "precision=bf16", true);
    const struct dr_graph *g = graph_of(s, DR_MODE_TRAIN, DR_BF16);
    expect_types(g, half, DR_BF16);
    expect_types(g, full, DR_F32);
    cr_expect_eq(g->loss_scale, DR_NONE, "bf16 has fp32's exponents");
    cr_expect_eq(g->value.at[value_of(g, "encoder.norm")].bytes, 2 * 4 * 16 * 16 * 3);
    /* frozen weights are cast upstream, in one launch, trainable ones in their step */
    const struct dr_node *frozen = &g->node.at[node_of(g, "encoder:frozen:bf16")];
    const struct dr_node *trained = &g->node.at[node_of(g, "decoder:bf16")];
    cr_expect(frozen->n_out == 2 && frozen->cls == DR_UPSTREAM && frozen->frozen);
    cr_expect(trained->n_out == 2 && trained->cls == DR_UPDATED && !trained->frozen);
    cr_expect(frozen->role == DR_ROLE_FORWARD && trained->role == DR_ROLE_FORWARD);
    cr_expect_str_eq(g->subgraph.at[frozen->subgraph].name, "encoder");
    cr_expect_str_eq(g->subgraph.at[trained->subgraph].name, "decoder");
    dr_session_destroy(s);
    free(yaml);
    cli_folder_remove(folder);
}

/* With fp16 the gradient of the loss is scaled as it is cast: one pass over it, not two. */
Test(precision, fp16_scales_in_the_cast) {
    char *folder = cli_folder(), *yaml = cli_file(folder, "m.yaml", runs_segment);
    struct dr_session *s = session(yaml, "precision=fp16", true);
    const struct dr_graph *g = graph_of(s, DR_MODE_TRAIN, DR_F16);
    const struct dr_node *n = &g->node.at[node_of(g, "loss.seg:scaled")];
    cr_assert(is_cast(n) && n->n_in == 2 && n->in[1] == g->loss_scale);
    cr_expect_eq(g->value.at[n->in[0]].dtype, DR_F32);
    cr_expect_eq(g->value.at[n->out[0]].dtype, DR_F16);
    cr_expect_eq(n->cls, DR_UPDATED);
    cr_expect_eq(dr_map_get(g->value_by_name, "loss.seg:scaled:f16"), DR_NONE);
    dr_session_destroy(s);
    free(yaml);
    cli_folder_remove(folder);
}

/* The gradients of a shared weight are summed in f32; those of a value read twice in half. */
Test(precision, sums_of_gradients) {
    char *folder = cli_folder(), *yaml = cli_file(folder, "m.yaml", runs_branches);
    struct dr_session *s = session(yaml, "precision=bf16", true);
    const struct dr_graph *g = graph_of(s, DR_MODE_TRAIN, DR_BF16);
    expect_types(g, (const char *const[]){"net.l.weight:sum", "net.l.bias:sum", NULL}, DR_F32);
    expect_types(g, (const char *const[]){"net.m:sum", "image:bf16", "net.l.weight:bf16", NULL},
                 DR_BF16);
    cr_expect_eq(dr_map_get(g->value_by_name, "net.l.weight:bf162"), DR_NONE, "cast once");
    cr_expect_eq(g->value.at[value_of(g, "image")].dtype, DR_F32, "as the file has it");
    dr_session_destroy(s);
    free(yaml);
    cli_folder_remove(folder);
}

/* ---- plans ---- */
/* dr_session_plan runs all passes, the proof among them. Stages of the fp32 plan stay. */
static void check_plan(const char *yaml, const char *precision, enum dr_dtype t) {
    struct dr_session *full = session(yaml, "precision=fp32", true);
    struct dr_session *half = session(yaml, precision, true);
    cr_assert(dr_session_plan(full, DR_MODE_TRAIN, NULL, NULL), "%s", dr_diag_text(full->diag));
    cr_assert(dr_session_plan(half, DR_MODE_TRAIN, NULL, NULL), "%s", dr_diag_text(half->diag));
    const struct dr_graph *g = half->main.graph, *f = full->main.graph;
    cr_expect(g->half == t && f->half == DR_F32);
    cr_expect(half->main.plan->n_stages == full->main.plan->n_stages, "%s: %u stages, in fp32 %u",
              yaml, half->main.plan->n_stages, full->main.plan->n_stages);
    for (uint32_t i = 0; i < f->node.n; i++) {
        const uint32_t j = node_of(g, f->node.at[i].name);
        cr_expect(j == DR_NONE || half->main.plan->stage[j] == full->main.plan->stage[i],
                  "%s: %s in stage %u, in fp32 %u", yaml, f->node.at[i].name,
                  j == DR_NONE ? 0 : half->main.plan->stage[j], full->main.plan->stage[i]);
    }
    cr_expect(half->main.plan->slab_bytes < full->main.plan->slab_bytes,
              "%s: %llu bytes, in fp32 %llu", yaml, (unsigned long long)half->main.plan->slab_bytes,
              (unsigned long long)full->main.plan->slab_bytes);
    dr_session_destroy(full);
    dr_session_destroy(half);
}

Test(precision, stages_are_those_of_fp32) {
    for (int e = 0; e < N_EXAMPLES; e++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/examples/%s.yaml", DR_SOURCE_DIR, examples[e]);
        check_plan(path, "precision=fp16", DR_F16);
        check_plan(path, "precision=bf16", DR_BF16);
    }
}

/* A device without halves, a CPU among them, has the plan of fp32 whatever the YAML says. */
Test(precision, the_device_decides) {
    char *folder = cli_folder(), *yaml = cli_file(folder, "m.yaml", runs_classifier);
    static const struct {
        const char *precision;
        bool fp16, bf16;
        enum dr_dtype t;
    } row[] = {
        {"precision=fp32", true, true, DR_F32},   {"precision=tf32", true, true, DR_F32},
        {"precision=fp16", false, false, DR_F32}, {"precision=bf16", false, false, DR_F32},
        {"precision=fp16", true, false, DR_F16},  {"precision=bf16", true, false, DR_F32},
        {"precision=bf16", true, true, DR_BF16},
    };
    struct dr_text want = {0};
    struct dr_session *first = session(yaml, "precision=fp32", false);
    cr_assert(dr_session_plan(first, DR_MODE_TRAIN, NULL, NULL));
    want.arena = first->arena;
    dr_graph_dump(first->main.graph, &want);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct dr_session *s = session(yaml, row[i].precision, false);
        s->dev.fp16 = row[i].fp16;
        s->dev.bf16 = row[i].bf16;
        cr_assert(dr_session_plan(s, DR_MODE_TRAIN, NULL, NULL));
        cr_expect_eq(s->main.graph->half, row[i].t, "%s", row[i].precision);
        cr_expect((s->main.graph->loss_scale != DR_NONE) == (row[i].t == DR_F16));
        struct dr_text got = {.arena = s->arena};
        dr_graph_dump(s->main.graph, &got);
        cr_expect((strcmp(got.at, want.at) == 0) == (row[i].t == DR_F32), "%s", row[i].precision);
        dr_session_destroy(s);
    }
    dr_session_destroy(first);
    free(yaml);
    cli_folder_remove(folder);
}

static bool says(const char *text, const char *what) {
    return text && strstr(text, what);
}

/* --plan, --dump and --check show the storage. */
Test(precision, it_is_printed) {
    char *folder = cli_folder(), *yaml = cli_file(folder, "m.yaml", runs_classifier);
    struct dr_session *s = session(yaml, "precision=bf16", true);
    cr_assert(dr_session_plan(s, DR_MODE_TRAIN, NULL, NULL));
    struct dr_text plan = {.arena = s->arena}, dump = plan, dot = plan;
    dr_plan_text(s->main.plan, &s->dev, 1, &plan);
    cr_expect(says(plan.at, "\nbf16: ") && says(plan.at, " casts\n"), "%s", plan.at);
    cr_expect(says(plan.at, "conv2d bf16 ") && says(plan.at, "cross_entropy "), "%s", plan.at);
    dr_graph_dump(s->main.graph, &dump);
    cr_expect(says(dump.at, "-> net.c1 bf16 [8, 12, 12, 16]"), "%s", dump.at);
    dr_plan_dot(s->main.plan, true, &dot);
    cr_expect(says(dot.at, "bf16 [8, 12, 12, 16]"), "%s", dot.at);
    /* a cast's weights count where they are used: 16 filters of 3x3x3 */
    struct dr_text layers = {.arena = s->arena};
    dr_report_layers(s, &layers);
    const char *c1 = strstr(layers.at, "\n  net.c1 "), *cast = strstr(layers.at, "\n  net:bf16 ");
    cr_assert(c1 && cast, "%s", layers.at);
    cr_expect(says(dr_strndup(s->arena, c1, strcspn(c1 + 1, "\n") + 1),
                   "bf16 [8, 12, 12, 16]          432 "));
    cr_expect(says(dr_strndup(s->arena, cast, strcspn(cast + 1, "\n") + 1),
                   "bf16 [16, 3, 3, 3]              0 "));
    dr_session_destroy(s);
    free(yaml);
    cli_folder_remove(folder);
}

/* A CPU has none of them: it says so, and plans and computes as in fp32. */
Test(precision, a_cpu_says_so) {
    static const char *const names[] = {"fp32", "tf32", "fp16", "bf16"};
    struct cli_place p = cli_place_create();
    char *plan = NULL;
    for (int i = 0; i < 4; i++) {
        char args[1200], want[64];
        snprintf(args, sizeof args, "--plan --set precision=%s %s", names[i], p.yaml);
        snprintf(want, sizeof want, "dagrun: precision %s: the CPU computes in fp32\n", names[i]);
        struct cli_run r = cli_run(DR_BINARY, args);
        cr_expect_eq(r.code, 0, "%s", r.err);
        cr_expect_str_eq(r.err, i ? want : "");
        plan = plan ? plan : strdup(r.out);
        cr_expect_str_eq(r.out, plan, "%s", names[i]);
        cli_run_free(&r);
        snprintf(args, sizeof args, "-q --json --set precision=%s %s", names[i], p.yaml);
        r = cli_run(DR_BINARY, args);
        cr_expect(r.code == 0 && !*r.err && strstr(r.out, "\"precision\": \"fp32\"") &&
                      !strstr(r.out, "loss_scale"),
                  "%s%s", r.err, r.out);
        cli_run_free(&r);
    }
    free(plan);
    cli_place_remove(&p);
}

/* ---- small graphs of other ops ---- */
/* Pointwise ops between losses and data are not worth a cast: the graph is as it was. */
Test(precision, nothing_to_gain) {
    struct dr_graph *g = fake_graph(DR_MODE_EVAL, 1);
    g->half = DR_F16;
    fake_loss(g, "loss", 1, fake_add1(g, "net.a", "unary", fake_data(g, "x", DR_SHAPE(1, 1))));
    const uint32_t n = g->node.n;
    cr_assert_eq(dr_pass_precision(g, dr_ops()), g);
    cr_expect(g->half == DR_F32 && g->node.n == n);
    fake_free(g);
}
