/* Fused graphs of real ops: which nodes become one, which must not, and that no bit changes. */
#include "graph/passes.h"
#include "ops/common.h"
#include "tests/fake_harness.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a kernel and what may follow it ---- */
struct base {
    const char *op, *attrs;
    struct dr_shape x;
};
static const struct base bases[] = {
    {"conv2d", "{filters: 5, kernel: 3, padding: 1}", {4, {2, 6, 7, 3}}},
    {"conv2d", "{filters: 40, kernel: 1, bias: no}", {4, {1, 13, 14, 9}}},
    {"conv2d", "{filters: 33, kernel: [3, 2], stride: 2, dilation: 2}", {4, {3, 9, 8, 17}}},
    {"conv2d", "{filters: 12, kernel: 3, groups: 3}", {4, {1, 5, 40, 6}}},
    {"conv2d", "{filters: 37, kernel: 3, padding: 1, groups: 37}", {4, {2, 4, 5, 37}}},
    {"conv_transpose2d",
     "{filters: 6, kernel: 2, stride: 3, output_padding: 1}",
     {4, {2, 4, 5, 3}}},
    {"conv_transpose2d", "{filters: 34, kernel: 3, stride: 2, bias: no}", {4, {1, 6, 5, 8}}},
    {"linear", "{features: 70}", {2, {130, 9}}},
    {"linear", "{features: 3, bias: no}", {3, {2, 5, 4}}},
    {"batch_norm_infer", "{}", {4, {2, 3, 4, 5}}},
    {"batch_norm", "{}", {2, {300, 3}}},
};

static float *random_floats(int64_t n, uint32_t seed) {
    float *x = malloc((size_t)n * sizeof *x);
    DR_ASSERT(x);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)seed * 0x1p-30f;
    }
    return x;
}
static void fill(struct rig *r, uint32_t v, uint32_t seed, bool positive) {
    float *x = random_floats(rig_elements(r, v), seed);
    for (int64_t i = 0, n = rig_elements(r, v); i < n && positive; i++)
        x[i] = x[i] * x[i] + 0.1f;
    rig_set(r, v, x);
    free(x);
}
static void fill_states(struct rig *r) {
    for (uint32_t v = 0; v < r->g->value.n; v++) {
        const struct dr_value *s = &r->g->value.at[v];
        if (s->kind == DR_STATE && s->dtype == DR_F32 && s->cls <= DR_BUFFER)
            fill(r, v, (uint32_t)dr_hash(s->name, strlen(s->name)), strstr(s->name, "running_var"));
    }
}
static uint32_t output_of(struct rig *r, const char *name, const char *op, const char *attrs,
                          const uint32_t *in, uint32_t n) {
    const uint32_t node = rig_op(r, name, op, attrs, in, n);
    cr_assert_neq(node, DR_NONE, "%s", rig_text(r));
    return rig_out(r, node, 0);
}
static const struct dr_node *find(const struct dr_graph *g, const char *name) {
    for (uint32_t i = 0; i < g->node.n; i++)
        if (strcmp(g->node.at[i].name, name) == 0)
            return &g->node.at[i];
    return NULL;
}

/* add 0: none; 1: the kernel's value first; 2: second. Norms take no norm. */
static void check_base(const struct base *b, bool norm, int add, int act) {
    struct rig r = rig_create(b->x.dim[0]);
    uint32_t v = rig_floats(&r, "x", b->x, NULL);
    fill(&r, v, 7, false);
    v = output_of(&r, "k", b->op, b->attrs, &v, 1);
    const uint32_t other = rig_floats(&r, "other", r.g->value.at[v].shape, NULL);
    fill(&r, other, 8, false);
    struct dr_text text = {.arena = r.g->arena};
    dr_text_add(&text, "%s", b->op);
    if (norm) {
        v = output_of(&r, "n", "batch_norm_infer", "{eps: 0.01}", &v, 1);
        dr_text_add(&text, " + batch_norm");
    }
    if (add) {
        v = output_of(&r, "s", "add", "{}",
                      add == 1 ? (uint32_t[]){v, other} : (uint32_t[]){other, v}, 2);
        dr_text_add(&text, " + add");
    }
    if (act) {
        v = output_of(&r, "a", dr_activation_word[act], "{}", &v, 1);
        dr_text_add(&text, " + %s", dr_activation_word[act]);
    }
    const char *name = r.g->value.at[v].name;
    const size_t bytes = (size_t)r.g->value.at[v].bytes;
    fill_states(&r);
    rig_run(&r);
    void *want = malloc(bytes);
    DR_ASSERT(want);
    memcpy(want, r.at[v], bytes);
    rig_fuse(&r);
    rig_run(&r);
    const struct dr_node *k = find(r.g, "k");
    if (norm || add || act)
        cr_expect(k && k->fused && strcmp(k->fused, text.at) == 0, "%s: %s", text.at,
                  k && k->fused ? k->fused : "not fused");
    cr_expect(memcmp(want, r.at[rig_find(&r, name)], bytes) == 0, "%s %s: other bits", text.at,
              b->attrs);
    free(want);
    rig_free(&r);
}

Test(fused, kernels_do_what_the_nodes_did) {
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        for (int norm = 0; norm < (strncmp(bases[i].op, "batch", 5) == 0 ? 1 : 2); norm++)
            for (int add = 0; add < 3; add++)
                for (int act = DR_ACT_NONE; act < DR_ACTIVATIONS; act++)
                    check_base(&bases[i], norm, add, act);
}

/* CONV-11 (d): an activation that a kernel applies hides no NaN either. */
static void check_nan(const struct base *b, int act) {
    struct rig r = rig_create(b->x.dim[0]);
    uint32_t v = rig_floats(&r, "x", b->x, NULL);
    float *x = random_floats(rig_elements(&r, v), 7);
    x[0] = NAN;
    rig_set(&r, v, x);
    free(x);
    const uint32_t k = output_of(&r, "k", b->op, b->attrs, &v, 1);
    v = output_of(&r, "a", dr_activation_word[act], "{}", &k, 1);
    fill_states(&r);
    rig_run(&r);
    const int64_t n = rig_elements(&r, v);
    bool *want = malloc((size_t)n * sizeof *want);
    DR_ASSERT(want);
    int64_t nans = 0;
    for (int64_t i = 0; i < n; i++)
        nans += want[i] = isnan(((const float *)r.at[k])[i]);
    rig_fuse(&r);
    rig_run(&r);
    const float *y = r.at[rig_find(&r, "a")];
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        kept += want[i] && isnan(y[i]);
    cr_expect(nans > 0 && kept == nans, "%s + %s: %lld of %lld NaNs", b->op,
              dr_activation_word[act], (long long)kept, (long long)nans);
    free(want);
    rig_free(&r);
}

Test(fused, CONV_11_kernels_keep_nan) {
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        for (int act = DR_ACT_NONE + 1; act < DR_ACTIVATIONS; act++)
            check_nan(&bases[i], act);
}

/* ---- chains ---- */
static const char *attrs_of(const char *op) {
    return strcmp(op, "clamp") == 0 ? "{min: -0.5, max: 0.75}" : "{}";
}
/* Ops one after the other; what has more operands takes new ones, before or after the chain. */
static void check_chain(const char *const *ops, uint32_t n, uint32_t seed) {
    const struct dr_shape s = DR_SHAPE(7, 401);
    struct rig r = rig_create(7);
    struct dr_text text = {.arena = r.g->arena};
    uint32_t v = rig_floats(&r, "x", s, NULL), inputs = 1;
    fill(&r, v, seed, false);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t n_in = dr_op_find(dr_ops(), ops[i])->min_in, at = (seed + i) % n_in;
        uint32_t in[3];
        inputs += n_in - 1;
        for (uint32_t k = 0; k < n_in; k++) {
            if (k == at) {
                in[k] = v;
            } else {
                in[k] = rig_floats(&r, dr_printf(r.g->arena, "x%u.%u", i, k), s, NULL);
                fill(&r, in[k], seed + 10 * i + k, false);
            }
        }
        const char *name = dr_printf(r.g->arena, "n%u", i);
        const uint32_t node =
            rig_node(&r, name, ops[i], rig_attrs(&r, ops[i], attrs_of(ops[i])), in, n_in);
        cr_assert_neq(node, DR_NONE, "%s", rig_text(&r));
        v = rig_out(&r, node, 0);
        dr_text_add(&text, "%s%s", i ? " + " : "", ops[i]);
    }
    const char *name = r.g->value.at[v].name;
    float want[7 * 401];
    rig_run(&r);
    memcpy(want, r.at[v], sizeof want);
    rig_fuse(&r);
    rig_run(&r);
    const struct dr_node *first = find(r.g, "n0");
    cr_expect(n > DR_CHAIN_STEPS || inputs > DR_CHAIN_INPUTS ||
                  (first && first->fused && strcmp(first->fused, text.at) == 0),
              "%s: %s", text.at, first && first->fused ? first->fused : "not fused");
    cr_expect(memcmp(want, r.at[rig_find(&r, name)], sizeof want) == 0, "%s: other bits", text.at);
    rig_free(&r);
}

Test(fused, chains_do_what_the_nodes_did) {
    const char *step[64];
    uint32_t n = 0, seed = 1;
    for (uint32_t i = 0; i < dr_ops()->n; i++)
        if (dr_ops()->op[i]->step)
            step[n++] = dr_ops()->op[i]->name;
    cr_assert_gt(n, 20);
    for (uint32_t i = 0; i < n; i++) /* each after and before each: no add takes an activation */
        for (uint32_t k = 0; k < n; k++)
            if (strcmp(step[i], "add") != 0)
                check_chain((const char *[]){step[i], step[k]}, 2, seed++);
    for (uint32_t length = 3; length < 40; length++) {
        const char *ops[40] = {"mul"};
        for (uint32_t i = 1; i < length; i++) {
            seed = seed * 1664525u + 1013904223u;
            ops[i] = step[(seed >> 16) % n];
        }
        check_chain(ops, length, seed);
    }
}

/* ---- any graph ---- */
static uint32_t below(uint32_t *seed, uint32_t n) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

/* Nodes over whatever values there are, several readers of some, some asked for: what is left has
 * the bits that it had. */
static void check_random(uint32_t seed) {
    static const struct {
        const char *op, *attrs;
    } kind[] = {
        {"conv2d", "{filters: 3, kernel: 3, padding: 1}"},
        {"conv2d", "{filters: 3, kernel: 1, bias: no}"},
        {"linear", "{features: 3}"},
        {"batch_norm_infer", "{}"},
        {"batch_norm", "{}"},
        {"add", "{}"},
        {"add", "{}"},
        {"relu", "{}"},
        {"tanh", "{}"},
        {"silu", "{}"},
        {"sub", "{}"},
        {"mul", "{}"},
        {"abs", "{}"},
        {"clamp", "{min: -1, max: 2}"},
        {"relu_grad", "{}"},
    };
    struct rig r = rig_create(2);
    uint32_t value[40], n = 0;
    for (; n < 2; n++) {
        value[n] = rig_floats(&r, n ? "b" : "a", DR_SHAPE(2, 4, 5, 3), NULL);
        fill(&r, value[n], seed + n, false);
    }
    for (; n < 40; n++) {
        const uint32_t k = below(&seed, sizeof kind / sizeof *kind);
        const uint32_t n_in = dr_op_find(dr_ops(), kind[k].op)->min_in;
        const uint32_t near = n < 6 ? n : 6; /* recent values: long chains */
        const uint32_t in[] = {value[n - 1 - below(&seed, near)],
                               value[n - 1 - below(&seed, near)]};
        value[n] =
            output_of(&r, dr_printf(r.g->arena, "n%u", n), kind[k].op, kind[k].attrs, in, n_in);
        if (below(&seed, 12) == 0)
            *dr_push(r.g->arena, &r.g->output) = value[n];
    }
    fill_states(&r);
    rig_run(&r);
    const struct dr_graph *plain = r.g;
    float *was[40];
    for (uint32_t i = 0; i < 40; i++) {
        const size_t bytes = (size_t)r.g->value.at[value[i]].bytes;
        was[i] = malloc(bytes);
        DR_ASSERT(was[i]);
        memcpy(was[i], r.at[value[i]], bytes);
    }
    rig_fuse(&r);
    rig_run(&r);
    cr_expect_lt(r.g->node.n, plain->node.n);
    for (uint32_t i = 0; i < 40; i++) {
        const struct dr_value *v = &plain->value.at[value[i]];
        const uint32_t id = dr_map_get(r.g->value_by_name, v->name);
        cr_expect(id == DR_NONE || memcmp(was[i], r.at[id], (size_t)v->bytes) == 0, "'%s'",
                  v->name);
        free(was[i]);
    }
    for (uint32_t i = 0; i < plain->output.n; i++)
        cr_expect_str_eq(r.g->value.at[r.g->output.at[i]].name,
                         plain->value.at[plain->output.at[i]].name);
    rig_free(&r);
}

Test(fused, random_graphs) {
    for (uint32_t seed = 1; seed <= 300; seed++)
        check_random(seed * 7919);
}

/* ---- whole models ---- */
static struct dr_graph *load(struct dr_arena *a, enum dr_graph_mode mode, const char *nodes) {
    struct dr_diag *d = dr_diag_create(a);
    const char *text = dr_printf(
        a,
        "dagrun: 1\ninputs: {x: {shape: [6, 6, 3], dtype: f32}, t: {shape: [], dtype: i32}}\n"
        "data: {batch: 3, train: {x: {synthetic: normal}, t: {synthetic: uniform}}}\n"
        "subgraphs:\n%s"
        "      f: {op: flatten}\n      z: {op: linear, features: 3}\n"
        "train: {losses: {ce: {op: cross_entropy, in: [net.z, t]}}, optimizer: {op: sgd, lr: 0.1}, "
        "steps: 4}\n",
        nodes);
    const struct dr_yaml *root = dr_yaml_read(a, d, "m.yaml", text, strlen(text));
    struct dr_model *m = root ? dr_model_from_tree(a, d, dr_ops(), root, "m.yaml") : NULL;
    struct dr_graph *g = m ? dr_pass_load(m, mode, 4) : NULL;
    g = g ? dr_pass_frozen(dr_pass_shapes(g)) : NULL;
    g = g ? dr_pass_gradients(g, dr_ops()) : NULL;
    cr_assert(g, "%s\n%s", text, dr_diag_text(d));
    return g;
}

#define NET "  net:\n    nodes:\n"
#define FROZEN "  enc:\n    frozen: true\n    weights: random\n    nodes:\n"
#define CONV "{op: conv2d, filters: 3, kernel: 3, padding: 1"
static const struct {
    const char *what, *nodes;
    enum dr_graph_mode mode;
    const char *node, *fused; /* NULL: nothing is */
} models[] = {
    {"a frozen norm",
     FROZEN "      c: " CONV ", in: x}\n      n: {op: batch_norm, activation: relu}\n" NET
            "      l: " CONV ", in: enc.n}\n",
     DR_MODE_TRAIN, "enc.c", "conv2d + batch_norm + relu"},
    {"... in the path: its gradient reads no x",
     NET "      a: " CONV ", in: x}\n"
         "      c: " CONV ", frozen: true, weights: random}\n"
         "      n: {op: batch_norm, frozen: true, weights: random, activation: tanh}\n",
     DR_MODE_TRAIN, "net.c", "conv2d + batch_norm + tanh"},
    {"a norm in training", NET "      c: " CONV ", in: x}\n      n: {op: batch_norm}\n",
     DR_MODE_TRAIN, "net.c", NULL},
    {"... in evaluation",
     NET "      c: " CONV ", in: x}\n      n: {op: batch_norm, activation: silu}\n", DR_MODE_EVAL,
     "net.c", "conv2d + batch_norm + silu"},
    {"a block of ResNet in training",
     NET "      a: " CONV ", in: x}\n      b: {op: batch_norm, activation: relu}\n"
         "      c: " CONV "}\n      d: {op: batch_norm}\n"
         "      s: {op: add, in: [d, x], activation: relu}\n",
     DR_MODE_TRAIN, "net.d", "batch_norm + add + relu"},
    {"... in evaluation, with a shortcut that may run beside it",
     NET "      a: " CONV ", in: x}\n      b: {op: batch_norm, activation: relu}\n"
         "      c: " CONV "}\n      d: {op: batch_norm}\n"
         "      e: {op: conv2d, in: x, filters: 3, kernel: 1}\n      g: {op: batch_norm}\n"
         "      s: {op: add, in: [d, g], activation: relu}\n",
     DR_MODE_EVAL, "net.c", "conv2d + batch_norm + add + relu"},
    {"a sum of itself", NET "      c: " CONV ", in: x}\n      s: {op: add, in: [c, c]}\n",
     DR_MODE_TRAIN, "net.c", NULL},
    {"a sum of three", NET "      c: " CONV ", in: x}\n      s: {op: add, in: [c, x, x]}\n",
     DR_MODE_TRAIN, "net.c", NULL},
    {"what runs ahead must not wait for the step",
     FROZEN
     "      c: " CONV ", in: x}\n" NET "      a: {op: tanh, in: enc.c}\n"
     "      p: {op: conv2d, in: a, filters: 3, kernel: 1}\n      q: {op: max_pool2d, kernel: 1}\n"
     "      s: {op: add, in: [enc.c, q]}\n",
     DR_MODE_TRAIN, "enc.c", NULL},
    {"silu's gradient reads its input", NET "      c: " CONV ", in: x, activation: silu}\n",
     DR_MODE_TRAIN, "net.c", NULL},
    {"two sums: the second is a node",
     NET "      c: " CONV
         ", in: x}\n      s: {op: add, in: [c, x]}\n      u: {op: add, in: [x, s]}\n",
     DR_MODE_TRAIN, "net.c", "conv2d + add"},
    {"the gradients of a fork",
     NET "      a: " CONV ", in: x, activation: relu}\n      b: " CONV ", in: a}\n"
         "      s: {op: mul, in: [a, b]}\n",
     DR_MODE_TRAIN, "net.a", "conv2d + relu"},
    {"a shared kernel stays above its twin",
     NET "      a: " CONV ", in: x}\n      p: {op: max_pool2d, kernel: 1, in: x}\n"
         "      b: {share: a, in: p}\n      s: {op: add, in: [a, b]}\n",
     DR_MODE_TRAIN, "net.b", "conv2d + add"},
};

/* All states and the loss after three steps. */
static uint64_t after_steps(struct dr_graph *g) {
    struct rig r = {.g = g};
    uint64_t hash = 0;
    for (uint32_t i = 0; i < g->input.n; i++) {
        const uint32_t v = g->input.at[i];
        if (v != DR_NONE && g->value.at[v].dtype == DR_F32)
            fill(&r, v, 3, false);
        else if (v != DR_NONE)
            rig_set(&r, v, (const int32_t[]){2, 0, 1});
    }
    rig_set(&r, g->header, NULL);
    fill_states(&r);
    for (uint64_t step = 0; step < 3; step++) {
        rig_header(&r, step, 3);
        rig_run(&r);
    }
    for (uint32_t i = 0; i < g->term.n; i++)
        hash = hash * 31 + dr_hash(r.at[g->term.at[i].scalar], sizeof(float));
    for (uint32_t v = 0; v < g->value.n; v++) {
        const struct dr_value *s = &g->value.at[v];
        if (s->kind == DR_STATE && s->dtype == DR_F32) /* by name: ids differ */
            hash += dr_hash(s->name, strlen(s->name)) ^ dr_hash(r.at[v], (size_t)s->bytes) * 2;
    }
    cr_expect(isfinite(*rig_f32(&r, g->term.at[0].scalar)));
    for (uint32_t v = 0; v < r.n_at; v++)
        free(r.at[v]);
    free(r.at);
    return hash;
}

Test(fused, models) {
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct dr_arena *a = dr_arena_create();
        struct dr_graph *plain = load(a, models[i].mode, models[i].nodes);
        struct dr_graph *g = dr_pass_fuse(load(a, models[i].mode, models[i].nodes), dr_ops());
        const char *why = "";
        cr_assert(dr_graph_verify(g, &why), "%s: %s", models[i].what, why);
        const struct dr_node *n = find(g, models[i].node);
        cr_assert(n, "%s", models[i].what);
        const char *want = models[i].fused ? models[i].fused : "nothing";
        cr_expect_str_eq(n->fused ? n->fused : "nothing", want, "%s: %s", models[i].what,
                         n->fused ? n->fused : "nothing");
        cr_expect_eq(after_steps(plain), after_steps(g), "%s: other bits", models[i].what);
        dr_arena_destroy(a);
    }
}

/* A sum of gradients and the gradient of the activation above are one node. */
Test(fused, backward_chains) {
    struct dr_arena *a = dr_arena_create();
    const struct dr_graph *g = dr_pass_fuse(
        load(a, DR_MODE_TRAIN,
             NET "      a: " CONV ", in: x, activation: relu}\n      b: " CONV ", in: a}\n"
                 "      c: " CONV ", in: a}\n      s: {op: add, in: [b, c]}\n"),
        dr_ops());
    bool found = false;
    for (uint32_t i = 0; i < g->node.n; i++)
        found |= g->node.at[i].fused && strcmp(g->node.at[i].fused, "add + relu_grad") == 0;
    cr_expect(found);
    dr_arena_destroy(a);
}
