/* The fuse pass: what folds, what must not, and that no number changes. */
#include "tests/fake_ops.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define ONE DR_SHAPE(1, 1, 1, 1)

static int32_t act_of(const struct dr_graph *g, const char *name) {
    return *(const int32_t *)g->node.at[fake_node(g, name)].attrs;
}

/* As the loader writes `activation:`: node X makes "X:pre", node "X:relu" makes "X". */
static uint32_t with_activation(struct dr_graph *g, const char *name, const char *act, uint32_t x) {
    const char **pre = DR_NEW_N(g->arena, const char *, 1),
               **post = DR_NEW_N(g->arena, const char *, 1);
    pre[0] = dr_printf(g->arena, "%s:pre", name);
    post[0] = name;
    const uint32_t n =
        dr_graph_node(g, name, fake_op("scale"), NULL, &x, 1, DR_ROLE_FORWARD, (struct dr_mark){0});
    g->node.at[n].out_names = pre;
    g->node.at[n].optimizer = 0;
    struct dr_infer c = {.g = g, .node = n};
    cr_assert(fake_op("scale")->infer(&c));
    const uint32_t in = g->node.at[n].out[0];
    const uint32_t r = dr_graph_node(g, dr_printf(g->arena, "%s:%s", name, act), fake_op(act), NULL,
                                     &in, 1, DR_ROLE_FORWARD, (struct dr_mark){0});
    g->node.at[r].out_names = post;
    c.node = r;
    cr_assert(fake_op(act)->infer(&c));
    return g->node.at[r].out[0];
}

/* two layers and a loss, up to gradients; fused or not */
static struct dr_graph *two_layers(enum dr_graph_mode mode, bool fuse) {
    struct dr_graph *g = fake_graph(mode, 1);
    const uint32_t x = fake_data(g, "x", ONE);
    uint32_t v = with_activation(g, "net.a", "tanh", x);
    v = with_activation(g, "net.b", "relu", v);
    fake_loss(g, "loss", 1, v);
    fake_total(g);
    g = dr_pass_frozen(dr_pass_shapes(g));
    cr_assert(g);
    g = dr_pass_gradients(g, &fake_ops);
    return fuse ? dr_pass_fuse(g, &fake_ops) : g;
}

Test(fuse, activations_fold_into_the_op_above) {
    for (enum dr_graph_mode m = DR_MODE_TRAIN; m <= DR_MODE_EVAL; m++) {
        struct dr_graph *g = two_layers(m, true);
        const char *why = "";
        cr_assert(dr_graph_verify(g, &why), "%s", why);
        cr_assert_eq(fake_node(g, "net.a:tanh"), DR_NONE);
        cr_assert_eq(fake_value(g, "net.a:pre"), DR_NONE);
        const struct dr_node *a = &g->node.at[fake_node(g, "net.a")];
        cr_assert_str_eq(a->fused, "scale + tanh");
        cr_assert_str_eq(g->value.at[a->out[0]].name, "net.a");
        cr_assert_eq(act_of(g, "net.a"), DR_ACT_TANH);
        cr_assert_eq(act_of(g, "net.b"), DR_ACT_RELU);
        cr_assert_neq(fake_value(g, "net.a.weight"), DR_NONE);
        fake_free(g);
    }
}

Test(fuse, gradients_follow_and_keep_their_own_attributes) {
    struct dr_graph *g = two_layers(DR_MODE_TRAIN, true);
    const struct dr_node *relu = &g->node.at[fake_node(g, "net.b:relu:dgrad")];
    cr_assert_str_eq(g->node.at[relu->forward].name, "net.b");
    cr_assert_str_eq(g->value.at[relu->in[0]].name, "net.b");
    cr_assert_eq(act_of(g, "net.b:dgrad"), DR_ACT_NONE);
    cr_assert_str_eq(g->value.at[g->total_loss].name, "total_loss");
    cr_assert_str_eq(g->node.at[g->term.at[0].node].name, "loss");
    cr_assert_str_eq(g->value.at[g->term.at[0].scalar].name, "loss");
    cr_assert_str_eq(g->value.at[g->term.at[0].partial].name, "loss.partial");
    cr_assert_str_eq(g->value.at[g->header].name, "data.header");
    cr_assert_str_eq(g->value.at[g->health].name, "train:health");
    cr_assert_str_eq(g->node.at[g->readback].name, "readback");
    cr_assert_str_eq(g->value.at[g->input.at[0]].name, "x");
    cr_assert_eq(g->value.at[fake_value(g, "net.b.weight")].owner, fake_node(g, "net.b"));
    fake_free(g);
}

Test(fuse, not_a_bit_changes) {
    float w[2][2];
    for (int fused = 0; fused < 2; fused++) {
        struct dr_graph *g = two_layers(DR_MODE_TRAIN, fused);
        struct fake_run r = fake_run_create(g);
        *fake_f32(&r, "x") = 0.7f;
        for (uint64_t s = 0; s < 5; s++) {
            fake_run_step(&r, s);
        }
        w[fused][0] = *fake_f32(&r, "net.a.weight");
        w[fused][1] = *fake_f32(&r, "net.b.weight");
        fake_free(g);
    }
    cr_assert_eq(memcmp(w[0], w[1], sizeof w[0]), 0);
    cr_assert_neq(w[0][0], 1);
}

Test(fuse, other_readers_prevent_it) {
    enum { ANOTHER_NODE, AN_OUTPUT, NO_FUSES, SECOND, TWICE, CASES };
    for (int i = 0; i < CASES; i++) {
        struct dr_graph *g = fake_graph(DR_MODE_INFER, 1);
        const uint32_t x = fake_data(g, "x", ONE);
        const uint32_t a = fake_add1(g, "net.a", i == NO_FUSES ? "unary" : "scale", x);
        uint32_t r = fake_add1(g, "net.r", "relu", a);
        if (i == ANOTHER_NODE) {
            r = fake_add2(g, "net.s", "add", r, a);
        } else if (i == AN_OUTPUT) {
            *dr_push(g->arena, &g->output) = a;
        } else if (i == SECOND) {
            r = fake_add1(g, "net.t", "tanh", r);
        } else if (i == TWICE) {
            r = fake_add2(g, "net.s", "add", r, fake_add1(g, "net.q", "relu", a));
        }
        *dr_push(g->arena, &g->output) = r;
        g = dr_pass_fuse(dr_pass_frozen(g), &fake_ops);
        const char *why = "";
        cr_assert(dr_graph_verify(g, &why), "%s", why);
        cr_assert_eq(fake_node(g, "net.r") == DR_NONE, i == SECOND, "case %d", i);
        if (i == SECOND) { /* one activation a node */
            cr_assert_neq(fake_node(g, "net.t"), DR_NONE);
            cr_assert_eq(act_of(g, "net.a"), DR_ACT_RELU);
        }
        cr_assert_neq(fake_value(g, "net.r"), DR_NONE);
        fake_free(g);
    }
}

Test(fuse, a_graph_without_activations_stays_the_same_one) {
    struct dr_graph *g = fake_graph(DR_MODE_EVAL, 1);
    fake_loss(g, "loss", 1, fake_add1(g, "net.a", "scale", fake_data(g, "x", ONE)));
    cr_assert_eq(dr_pass_fuse(g, &fake_ops), g);
    fake_free(g);
}
