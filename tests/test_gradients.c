/* The gradients pass: sums, order, frozen parts, updates; run by the fakes' interpreter. */
#include "tests/fake_ops.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define HAS(text, part) cr_assert(strstr((text), (part)), "'%s' is not in:\n%s", (part), (text))
#define ONE DR_SHAPE(1, 1, 1, 1)

static uint32_t count(const struct dr_graph *g, const char *op) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->node.n; i++) {
        n += strcmp(g->node.at[i].op->name, op) == 0;
    }
    return n;
}

static void expect(struct fake_run *r, const char *value, float want) {
    cr_assert_neq(fake_value(r->g, value), DR_NONE, "no value '%s'", value);
    cr_assert_eq(*fake_f32(r, value), want, "%s is %g, not %g", value, (double)*fake_f32(r, value),
                 (double)want);
}

/* 1x1 convolutions of 1x1 images: x = 2, h = 3 x, a = 2 h, b = 5 h, y = a + b. */
Test(gradients, CONV_14_two_branches_add) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", ONE), h = fake_add1(g, "h", "scale", x);
    const uint32_t a = fake_add1(g, "a", "scale", h), b = fake_add1(g, "b", "scale", h);
    fake_loss(g, "loss", 1, fake_add2(g, "y", "add", a, b));
    g = fake_passes(g);
    cr_assert(g);
    struct fake_run r = fake_run_create(g);
    *fake_f32(&r, "x") = 2;
    *fake_f32(&r, "h.weight") = 3;
    *fake_f32(&r, "a.weight") = 2;
    *fake_f32(&r, "b.weight") = 5;
    fake_run_step(&r, 0);
    expect(&r, "y", 42);
    expect(&r, "h:sum", 7);
    expect(&r, "h:wgrad", 14);
    expect(&r, "a:wgrad", 6);
    expect(&r, "b:wgrad", 6);
    expect(&r, "h.weight", 3 - 0.1f * 14);
    cr_assert_eq(count(g, "add"), 2, "one forward, one sum");
    cr_assert_eq(count(g, "scale_dgrad"), 2, "none for the data");
    fake_free(g);
}

Test(gradients, CONV_14_one_value_twice_in_one_node) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", ONE), h = fake_add1(g, "h", "scale", x);
    fake_loss(g, "loss", 1, fake_add2(g, "y", "add", h, h));
    g = fake_passes(g);
    cr_assert(g);
    struct fake_run r = fake_run_create(g);
    *fake_f32(&r, "x") = 2;
    *fake_f32(&r, "h.weight") = 3;
    fake_run_step(&r, 0);
    expect(&r, "y", 12);
    expect(&r, "h:sum", 2);
    expect(&r, "h:wgrad", 4);
    fake_free(g);
}

/* Three diamonds, one below another: 2^3 paths, but each node is visited once. */
Test(gradients, CONV_14_diamond_three_levels_deep) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", ONE);
    uint32_t h = fake_add1(g, "h0", "scale", x);
    for (int i = 1; i <= 3; i++) {
        const uint32_t a = fake_add1(g, dr_printf(g->arena, "a%d", i), "unary", h);
        const uint32_t b = fake_add1(g, dr_printf(g->arena, "b%d", i), "unary", h);
        h = fake_add2(g, dr_printf(g->arena, "h%d", i), "add", a, b);
    }
    fake_loss(g, "loss", 1, h);
    g = fake_passes(g);
    cr_assert(g);
    struct fake_run r = fake_run_create(g);
    *fake_f32(&r, "x") = 2;
    fake_run_step(&r, 0);
    expect(&r, "h0:sum", 64); /* (2 + 2)^3 */
    expect(&r, "h0:wgrad", 128);
    cr_assert_eq(count(g, "unary_grad"), 6);
    cr_assert_eq(count(g, "add"), 6);
    fake_free(g);
}

Test(gradients, many_uses_are_one_sum_in_a_fixed_order) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", ONE), h = fake_add1(g, "h", "scale", x);
    uint32_t in[4];
    for (uint32_t i = 0; i < 4; i++) {
        in[i] = fake_add1(g, dr_printf(g->arena, "u%u", i), "unary", h);
    }
    fake_loss(g, "loss", 1, fake_add(g, "y", "add", in, 4));
    g = fake_passes(g);
    cr_assert(g);
    const struct dr_node *sum = &g->node.at[fake_node(g, "h:sum")];
    cr_assert_eq(sum->n_in, 4);
    cr_assert_eq(sum->role, DR_ROLE_BACKWARD);
    for (uint32_t i = 0; i < 4; i++) { /* in the order of visits: last reader first */
        cr_assert_str_eq(g->value.at[sum->in[i]].name, dr_printf(g->arena, "u%u:dgrad", 3 - i));
    }
    fake_free(g);
}

Test(gradients, shared_weights_sum_once) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t xa = fake_data(g, "xa", ONE), xb = fake_data(g, "xb", ONE);
    const uint32_t a = fake_add1(g, "a", "scale", xa), b = fake_share(g, "b", "a", xb);
    fake_loss(g, "loss", 1, fake_add2(g, "y", "add", a, b));
    g = fake_passes(g);
    cr_assert(g);
    struct fake_run r = fake_run_create(g);
    *fake_f32(&r, "xa") = 3;
    *fake_f32(&r, "xb") = 5;
    *fake_f32(&r, "a.weight") = 2;
    fake_run_step(&r, 0);
    expect(&r, "a.weight:sum", 8);
    expect(&r, "a.weight", 2 - 0.1f * 8);
    cr_assert_eq(count(g, "sgd"), 1);
    fake_free(g);
}

/* f1 is above everything trainable, f2 below t1: only f2 passes a gradient on, none owns one. */
Test(gradients, frozen_parts_pass_on_only_what_is_needed) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    uint32_t v = fake_data(g, "x", ONE);
    fake_subgraph(g, "frozen", true);
    v = fake_add1(g, "f1", "scale", v);
    fake_subgraph(g, "net", false);
    v = fake_add1(g, "t1", "scale", v);
    fake_subgraph(g, "loss net", true);
    v = fake_add1(g, "f2", "scale", v);
    fake_loss(g, "loss", 1, v);
    g = fake_passes(g);
    cr_assert(g);
    cr_assert_neq(fake_node(g, "f2:dgrad"), DR_NONE);
    static const char *const none[] = {"f2:wgrad",
                                       "f1:dgrad",
                                       "f1:wgrad",
                                       "t1:dgrad",
                                       "f1.weight:sgd",
                                       "f2.weight:sgd",
                                       "f1.weight:sgd.momentum"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        cr_assert_eq(fake_node(g, none[i]), DR_NONE, "%s", none[i]);
        cr_assert_eq(fake_value(g, none[i]), DR_NONE, "%s", none[i]);
    }
    static const struct {
        const char *name;
        enum dr_frozen_class cls;
    } cls[] = {{"data.x", DR_UPSTREAM},   {"f1", DR_UPSTREAM},
               {"t1", DR_UPDATED},        {"f2", DR_IN_PATH},
               {"loss", DR_IN_PATH},      {"f2:dgrad", DR_IN_PATH},
               {"t1:wgrad", DR_IN_PATH},  {"train:guard", DR_UPDATED},
               {"train:lr", DR_UPSTREAM}, {"t1.weight:sgd", DR_UPDATED},
               {"readback", DR_UPDATED}};
    for (size_t i = 0; i < sizeof cls / sizeof *cls; i++) {
        cr_assert_eq(g->node.at[fake_node(g, cls[i].name)].cls, cls[i].cls, "%s", cls[i].name);
    }
    const struct dr_node *d = &g->node.at[fake_node(g, "f2:dgrad")];
    cr_assert_str_eq(g->node.at[d->forward].name, "f2");
    cr_assert_eq(d->subgraph, 2);
    fake_free(g);
}

/* Frozen w = 1, decay 0.01, momentum 0.9, clip norm 3, beside a gradient of exactly 3. */
Test(gradients, FRZ_03_decay_momentum_and_clip_leave_frozen_weights_alone) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    g->clip_norm = 3;
    *(struct fake_sgd_attrs *)g->optimizer.at[0].attrs =
        (struct fake_sgd_attrs){.momentum = 0.9, .weight_decay = 0.01};
    const uint32_t x = fake_data(g, "x", ONE);
    fake_subgraph(g, "frozen", true);
    const uint32_t f = fake_add1(g, "f", "scale", x);
    fake_subgraph(g, "net", false);
    fake_loss(g, "loss", 1, fake_add1(g, "t", "scale", f));
    g = fake_passes(g);
    cr_assert(g);
    struct fake_run r = fake_run_create(g);
    *fake_f32(&r, "x") = 3;
    fake_run_step(&r, 0);
    expect(&r, "t:wgrad", 3);
    cr_assert_float_eq((double)*fake_f32(&r, "train:clip"), 1, 1e-6);
    cr_assert_eq(g->node.at[fake_node(g, "train:clip")].n_in, 1, "frozen weights have no norm");
    for (uint64_t step = 1; step < 3; step++) {
        fake_run_step(&r, step);
    }
    expect(&r, "f.weight", 1);
    cr_assert_neq(*fake_f32(&r, "t.weight"), 1);
    uint32_t moments = 0;
    for (uint32_t i = 0; i < g->value.n; i++) {
        moments += g->value.at[i].kind == DR_STATE && g->value.at[i].cls == DR_MOMENT;
    }
    cr_assert_eq(moments, 1);
    fake_free(g);
}

Test(gradients, losses_are_weighted) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 2);
    const uint32_t x = fake_data(g, "x", DR_SHAPE(2, 2)), h = fake_add1(g, "h", "scale", x);
    fake_loss(g, "loss.a", 2, h);
    fake_loss(g, "loss.b", 0.5, fake_add1(g, "u", "unary", h));
    g = fake_passes(g);
    cr_assert(g);
    struct fake_run r = fake_run_create(g);
    for (int i = 0; i < 4; i++) {
        fake_f32(&r, "x")[i] = 1;
    }
    fake_run_step(&r, 0);
    expect(&r, "total_loss", 2 * 1 + 0.5f * 3);
    expect(&r, "h:sum", 2 * 0.25f + 0.5f * 0.25f * 2);
    fake_free(g);
}

Test(gradients, updates_stand_in_a_fixed_order) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    g->clip_norm = 1;
    struct dr_optimizer *o = dr_push(g->arena, &g->optimizer);
    *o = g->optimizer.at[0];
    o->where = "net.c";
    const uint32_t x = fake_data(g, "x", ONE);
    const uint32_t a = fake_add1(g, "net.a", "scale", x), b = fake_add1(g, "net.b", "norm", a);
    const uint32_t c = fake_add1(g, "net.c", "scale", b);
    g->node.at[fake_node(g, "net.c")].optimizer = 1;
    fake_loss(g, "loss.x", 1, c);
    g = fake_passes(g);
    cr_assert(g);
    static const char *const want[] = {"train:guard",      "train:clip",       "train:lr",
                                       "net.c:lr",         "net.a.weight:sgd", "net.b.weight:sgd",
                                       "net.c.weight:sgd", "net.b:stats",      "readback"};
    const uint32_t n = sizeof want / sizeof *want;
    for (uint32_t i = 0; i < n; i++) {
        cr_assert_str_eq(g->node.at[g->node.n - n + i].name, want[i]);
    }
    static const char *const record[] = {"total_loss", "loss.x", "loss.x.partial", "train:health",
                                         "data.header"};
    const struct dr_node *rb = &g->node.at[g->readback];
    cr_assert_eq(rb->n_in, 5);
    for (uint32_t i = 0; i < 5; i++) {
        cr_assert_str_eq(g->value.at[rb->in[i]].name, record[i]);
    }
    const struct dr_node *s = &g->node.at[fake_node(g, "net.c.weight:sgd")];
    cr_assert_str_eq(g->value.at[s->in[2]].name, "net.c:lr");
    cr_assert_str_eq(g->value.at[s->in[4]].name, "train:clip");
    const struct dr_value *health = &g->value.at[g->health];
    cr_assert(health->cls == DR_HEALTH && health->dtype == DR_I64 && health->bytes == 16);
    fake_free(g);
}

Test(gradients, a_loss_that_is_not_finite_stops_all_updates) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", ONE), a = fake_add1(g, "net.a", "scale", x);
    fake_loss(g, "loss", 1, fake_add1(g, "net.b", "norm", a));
    g = fake_passes(g);
    cr_assert(g);
    struct fake_run r = fake_run_create(g);
    *fake_f32(&r, "x") = 2;
    fake_run_step(&r, 0);
    const float w = *fake_f32(&r, "net.a.weight"), m = *fake_f32(&r, "net.b.running_mean");
    cr_assert_neq(m, 0);
    *fake_f32(&r, "x") = NAN;
    fake_run_step(&r, 1);
    *fake_f32(&r, "x") = 2;
    fake_run_step(&r, 2);
    expect(&r, "net.a.weight", w);
    expect(&r, "net.b.running_mean", m);
    const int64_t *health = r.at[g->health];
    cr_assert(health[0] == 1 && health[1] == 1);
    fake_free(g);
}

Test(gradients, ops_without_a_gradient_are_an_error) {
    static const char *const through[] = {"argmax", "half"};
    for (size_t i = 0; i < sizeof through / sizeof *through; i++) {
        struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
        const uint32_t x = fake_data(g, "x", DR_SHAPE(1, 2, 2, 1));
        const uint32_t h = fake_add1(g, "net.h", "scale", x);
        fake_loss(g, "loss", 1, fake_add1(g, "net.cut", through[i], h));
        cr_assert_null(fake_passes(g));
        HAS(fake_text(g),
            dr_printf(g->arena, "no gradient goes through '%s': 'net.cut'", through[i]));
        cr_assert_eq(dr_diag_errors(g->diag), 1);
        fake_free(g);
    }
}

Test(gradients, what_needs_no_gradient_may_be_anything) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", ONE),
                   h = fake_add1(g, "net.h", "half", fake_add1(g, "net.t", "twice", x));
    fake_loss(g, "loss", 1, fake_add1(g, "net.a", "scale", h));
    cr_assert(fake_passes(g), "%s", fake_text(g));
    fake_free(g);
}

Test(gradients, nothing_to_train_is_an_error) {
    static const struct {
        bool weights;
        const char *text;
    } cases[] = {{true, "every weight that a loss reads is frozen"},
                 {false, "no loss reads an op with weights"}};
    for (size_t i = 0; i < 2; i++) {
        struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
        const uint32_t x = fake_data(g, "x", ONE);
        fake_subgraph(g, "enc", true);
        fake_loss(g, "loss", 1, fake_add1(g, "enc.a", cases[i].weights ? "scale" : "unary", x));
        cr_assert_null(fake_passes(g));
        HAS(fake_text(g), cases[i].text);
        fake_free(g);
    }
}

/* A target computed by the network itself ends the path: no gradient, and a warning for what only
 * it reaches. */
Test(gradients, weights_that_no_loss_reaches_are_warned_about) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", ONE), h = fake_add1(g, "net.h", "scale", x);
    const uint32_t other = fake_add1(g, "net.ids", "argmax", fake_add1(g, "net.o", "scale", x));
    const uint32_t loss = fake_loss(g, "loss", 1, h);
    struct dr_node *n = &g->node.at[g->value.at[loss].producer];
    uint32_t *in = DR_NEW_N(g->arena, uint32_t, 3);
    memcpy(in, n->in, sizeof *in * 2);
    in[2] = other; /* a target behind the fake loss's operands */
    n->in = in;
    n->n_in = 3;
    g = fake_passes(g);
    cr_assert(g);
    HAS(fake_text(g), "warning: 'net.o.weight' is not trained: no loss reaches it");
    cr_assert_eq(count(g, "sgd"), 1);
    cr_assert_eq(dr_diag_warnings(g->diag), 1);
    fake_free(g);
}

Test(gradients, other_modes_pass_through) {
    struct dr_graph *g = fake_graph(DR_MODE_EVAL, 1);
    const uint32_t x = fake_data(g, "x", ONE);
    fake_loss(g, "loss", 1, fake_add1(g, "net.h", "scale", x));
    const uint32_t n = g->node.n;
    cr_assert_eq(dr_pass_gradients(g, &fake_ops), g);
    cr_assert_eq(g->node.n, n);
    fake_free(g);
}

/* 20,000 nodes that all read one value: linear time. */
Test(gradients, large_graphs, .timeout = 20) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", ONE), h = fake_add1(g, "h", "scale", x);
    const uint32_t n = 20000;
    uint32_t *in = DR_NEW_N(g->arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) {
        in[i] = fake_add1(g, dr_printf(g->arena, "u%u", i), "unary", h);
    }
    fake_loss(g, "loss", 1, fake_add(g, "y", "add", in, n));
    g = fake_passes(g);
    cr_assert(g);
    cr_assert_eq(g->node.at[fake_node(g, "h:sum")].n_in, n);
    fake_free(g);
}
