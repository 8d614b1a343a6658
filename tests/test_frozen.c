/* The shapes and frozen passes: classes by dependency, shared weights, frozen norms, dead nodes. */
#include "tests/fake_ops.h"
#include <criterion/criterion.h>
#include <string.h>

#define HAS(text, part) cr_assert(strstr((text), (part)), "'%s' is not in:\n%s", (part), (text))
#define ONE DR_SHAPE(1, 1, 1, 1)

struct want {
    const char *name;
    enum dr_frozen_class cls;
    bool needs_grad;
};
static void expect(const struct dr_graph *g, const struct want *want, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t id = fake_node(g, want[i].name);
        cr_assert_neq(id, DR_NONE, "%s", want[i].name);
        cr_assert_eq(g->node.at[id].cls, want[i].cls, "%s is %s", want[i].name,
                     dr_frozen_class_name(g->node.at[id].cls));
        cr_assert_eq(g->node.at[id].needs_grad, want[i].needs_grad, "%s", want[i].name);
    }
}

/* x -> augment -> frozen encoder -> trainable -> frozen -> loss, and a branch without weights. */
static struct dr_graph *three_classes(enum dr_graph_mode mode) {
    struct dr_graph *g = fake_graph(mode, 1);
    uint32_t v = fake_data(g, "x", ONE);
    v = fake_add1(g, "aug", "augment", v);
    fake_subgraph(g, "enc", true);
    v = fake_add1(g, "enc.norm", "norm", fake_add1(g, "enc.a", "scale", v));
    fake_subgraph(g, "net", false);
    const uint32_t side = fake_add1(g, "net.side", "unary", v);
    v = fake_add1(g, "net.t", "scale", v);
    fake_subgraph(g, "top", true);
    v = fake_add1(g, "top.b", "scale", v);
    fake_subgraph(g, "end", false);
    v = fake_add2(g, "end.sum", "add", v, side);
    fake_loss(g, "loss", 1, v);
    return g;
}

Test(frozen, classes_by_dependency_in_every_mode) {
    static const struct want want[] = {
        {"data.x", DR_UPSTREAM, false},   {"data.header", DR_UPSTREAM, false},
        {"aug", DR_UPSTREAM, false},      {"enc.a", DR_UPSTREAM, false},
        {"enc.norm", DR_UPSTREAM, false}, {"net.side", DR_UPSTREAM, false},
        {"net.t", DR_UPDATED, true},      {"top.b", DR_IN_PATH, true},
        {"end.sum", DR_IN_PATH, true},    {"loss", DR_IN_PATH, true}};
    for (enum dr_graph_mode m = DR_MODE_TRAIN; m <= DR_MODE_INFER; m++) {
        struct dr_graph *g = three_classes(m);
        g = fake_passes(g);
        cr_assert(g);
        expect(g, want, sizeof want / sizeof *want);
        cr_assert(g->value.at[fake_value(g, "enc.a.weight")].frozen);
        cr_assert(g->value.at[fake_value(g, "top.b.weight")].frozen);
        cr_assert(!g->value.at[fake_value(g, "net.t.weight")].frozen);
        fake_free(g);
    }
}

/* Running statistics are part of M: a norm that trains is updated even with nothing else to train
 * above, and so is its evaluation form. */
Test(frozen, norms_that_train_are_updated) {
    for (enum dr_graph_mode m = DR_MODE_TRAIN; m <= DR_MODE_EVAL; m++) {
        struct dr_graph *g = fake_graph(m, 2);
        const uint32_t x = fake_data(g, "x", DR_SHAPE(2, 1));
        const uint32_t n = fake_add1(g, "net.n", "norm", x);
        fake_loss(g, "loss", 1, fake_add1(g, "net.u", "unary", n));
        g = fake_passes(g);
        cr_assert(g);
        static const struct want want[] = {{"net.n", DR_UPDATED, true},
                                           {"net.u", DR_IN_PATH, true}};
        expect(g, want, 2);
        cr_assert_eq(fake_node(g, "net.n:stats") != DR_NONE, m == DR_MODE_TRAIN);
        fake_free(g);
    }
}

Test(frozen, FRZ_01_frozen_norms_never_move) {
    for (int frozen = 0; frozen < 2; frozen++) {
        struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 2);
        const uint32_t x = fake_data(g, "x", DR_SHAPE(2, 1));
        fake_subgraph(g, "first", false);
        uint32_t v = fake_add1(g, "first.t", "scale", x);
        fake_subgraph(g, "bn", frozen);
        v = fake_add1(g, "bn.n", "norm", v);
        fake_loss(g, "loss", 1, v);
        g = fake_passes(g);
        cr_assert(g);
        struct fake_run r = fake_run_create(g);
        fake_f32(&r, "x")[0] = 1;
        fake_f32(&r, "x")[1] = 3;
        fake_run_step(&r, 0);
        const float mean = *fake_f32(&r, "bn.n.running_mean"), *y = fake_f32(&r, "bn.n");
        cr_assert_eq(fake_node(g, "bn.n:stats") == DR_NONE, frozen == 1);
        if (frozen) { /* by stored statistics, which stay; the gradient still goes through */
            cr_assert(y[0] == 1 && y[1] == 3 && mean == 0);
            cr_assert_neq(fake_node(g, "bn.n:dgrad"), DR_NONE);
            cr_assert_eq(fake_node(g, "bn.n:wgrad"), DR_NONE);
        } else { /* by the batch's */
            cr_assert(y[0] == -1 && y[1] == 1);
            cr_assert_float_eq((double)mean, 0.2, 1e-6);
        }
        fake_free(g);
    }
}

Test(frozen, FRZ_04_shared_weight_with_one_user_frozen) {
    static const char *const text[] = {
        "'net.a.weight' is frozen by 'net.a' and trained by 'net.b'",
        "'net.a.weight' is frozen by 'net.b' and trained by 'net.a'"};
    for (int second = 0; second < 2; second++) {
        struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
        const uint32_t xa = fake_data(g, "xa", ONE), xb = fake_data(g, "xb", ONE);
        fake_subgraph(g, "s0", second == 0);
        const uint32_t a = fake_add1(g, "net.a", "scale", xa);
        fake_subgraph(g, "s1", second == 1);
        const uint32_t b = fake_share(g, "net.b", "net.a", xb);
        fake_loss(g, "loss", 1, fake_add2(g, "net.y", "add", a, b));
        cr_assert_null(fake_passes(g));
        HAS(fake_text(g), text[second]);
        cr_assert_eq(dr_diag_errors(g->diag), 1);
        fake_free(g);
    }
}

/* x -> A -> loss; x -> B, read by a metric; x -> C, frozen, read by nobody. */
Test(frozen, STR_05_dead_nodes_are_dropped_with_a_warning) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", ONE);
    fake_data(g, "unused", ONE);
    fake_loss(g, "loss", 1, fake_add1(g, "net.a", "scale", x));
    fake_metric(g, "metric", fake_add1(g, "net.b", "scale", x));
    fake_subgraph(g, "enc", true);
    fake_add1(g, "enc.d", "unary", fake_add1(g, "enc.c", "scale", x));
    fake_add1(g, "enc.e", "unary", x); /* an output of inference */
    g->node.at[fake_node(g, "enc.e")].elsewhere = true;
    g = fake_passes(g);
    cr_assert(g);
    static const char *const gone[] = {"enc.c", "enc.d", "enc.e", "data.unused"};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        cr_assert_eq(fake_node(g, gone[i]), DR_NONE, "%s", gone[i]);
    }
    cr_assert_eq(fake_value(g, "enc.c.weight"), DR_NONE);
    cr_assert_neq(fake_node(g, "net.b"), DR_NONE);
    cr_assert_eq(g->input.n, 2);
    cr_assert_eq(g->input.at[1], DR_NONE);
    HAS(fake_text(g), "unary 'enc.d' is dropped: no loss, metric or output needs it");
    HAS(fake_text(g), "input 'unused' is not used");
    cr_assert_eq(dr_diag_warnings(g->diag), 3, "%s", fake_text(g)); /* and net.b is not trained */
    fake_free(g);
}

Test(frozen, dead_nodes_go_silently_in_evaluation) {
    struct dr_graph *g = fake_graph(DR_MODE_EVAL, 1);
    const uint32_t x = fake_data(g, "x", ONE);
    fake_loss(g, "loss", 1, fake_add1(g, "net.a", "scale", x));
    fake_add1(g, "net.c", "scale", x);
    g = fake_passes(g);
    cr_assert(g && fake_node(g, "net.c") == DR_NONE);
    cr_assert_eq(dr_diag_warnings(g->diag), 0);
    fake_free(g);
}

/* The owner of shared weights stays, although only the sharing node is needed. */
Test(frozen, owners_of_shared_weights_stay) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", ONE);
    fake_add1(g, "net.a", "scale", x);
    fake_loss(g, "loss", 1, fake_share(g, "net.b", "net.a", x));
    g = fake_passes(g);
    cr_assert(g && fake_node(g, "net.a") != DR_NONE);
    cr_assert_eq(g->node.at[fake_node(g, "net.b")].share, fake_node(g, "net.a"));
    fake_free(g);
}

/* Losses say how many classes a label or mask may have; geometry passes that on to the data. */
Test(frozen, classes_travel_back_to_the_data) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", DR_SHAPE(1, 4, 4, 10));
    const uint32_t m = fake_data(g, "mask", DR_SHAPE(1, 4, 4));
    g->value.at[m].dtype = DR_U8;
    g->value.at[m].bytes = 16;
    g->value.at[m].meaning = DR_MASK;
    const uint32_t f = fake_add2(g, "flip", "flip", x, m);
    const uint32_t fm = g->node.at[g->value.at[f].producer].out[1];
    fake_loss(g, "loss", 1, fake_add1(g, "net.a", "scale", f));
    struct dr_node *n = &g->node.at[fake_node(g, "loss")];
    n->in = memcpy(DR_NEW_N(g->arena, uint32_t, 3), (uint32_t[]){n->in[0], fm, g->header}, 12);
    n->n_in = 3;
    g = dr_pass_shapes(g);
    cr_assert_eq(g->value.at[fake_value(g, "mask")].classes, 10);
    cr_assert_eq(g->value.at[fake_value(g, "x")].classes, 0);
    fake_free(g);
}
