/* sgd, learning rates and clipping, alone and behind the gradients pass; gradients of values that
 * are used more than once. */
#include "graph/passes.h"
#include "tests/fake_harness.h"
#include "tests/fake_ops.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const struct dr_mark no_mark = {0};
static const struct dr_shape scalar = {0};

static void near(double got, double want, const char *what) {
    cr_assert(fabs(got - want) <= 1e-6, "%s: %.9g, not %.9g", what, got, want);
}

/* One weight of value 1 with a constant gradient, three steps. */
struct sgd_case {
    const char *attrs;
    struct dr_lr lr;
    float gradient, clip; /* clip 0: no operand */
    double want[3];
};

static void check_sgd(const struct sgd_case *c) {
    struct rig r = rig_create(1);
    const uint32_t w = rig_state(&r, "w", DR_WEIGHT, DR_F32, DR_SHAPE(1), (float[]){1});
    const uint32_t h = rig_state(&r, "health", DR_HEALTH, DR_I64, DR_SHAPE(2), (int64_t[2]){0});
    const struct dr_lr_attrs rate = {.lr = c->lr};
    const uint32_t lr = rig_node(&r, "lr", "lr", &rate, &r.g->header, 1);
    const uint32_t g = rig_floats(&r, "g", DR_SHAPE(1), &c->gradient);
    const uint32_t clip = rig_floats(&r, "clip", scalar, &c->clip);
    const uint32_t in[] = {w, g, rig_out(&r, lr, 0), h, clip};
    const uint32_t n = rig_op(&r, "w:sgd", "sgd", c->attrs, in, c->clip != 0 ? 5 : 4);
    cr_assert_neq(n, DR_NONE, "%s", rig_text(&r));
    for (uint64_t step = 0; step < 3; step++) {
        rig_header(&r, step, 1);
        rig_run(&r);
        near(rig_f32(&r, w)[0], c->want[step], c->attrs);
    }
    rig_set(&r, h, (int64_t[]){1, 3}); /* from here on nothing is written */
    const float before = rig_f32(&r, w)[0];
    rig_run(&r);
    cr_assert_eq(rig_f32(&r, w)[0], before, "%s", c->attrs);
    for (uint32_t v = 0; v < r.g->value.n; v++)
        cr_assert(r.g->value.at[v].cls != DR_MOMENT ||
                  rig_in(&r, n, r.g->node.at[n].n_in - 1) == v);
    rig_free(&r);
}

/* Worked out with torch.optim.SGD's rule by hand. */
Test(optimizer, sgd_values) {
    const struct dr_lr tenth = {.base = 0.1};
    const struct sgd_case row[] = {
        {"{}", tenth, 1, 0, {0.9, 0.8, 0.7}},
        {"{}", tenth, 4, 0.25f, {0.9, 0.8, 0.7}},
        {"{momentum: 0.9}", tenth, 1, 0, {0.9, 0.71, 0.439}},
        {"{momentum: 0.9}", tenth, 2, 0.5f, {0.9, 0.71, 0.439}},
        {"{momentum: 0.9, nesterov: yes}", tenth, 1, 0, {0.81, 0.539, 0.1951}},
        {"{weight_decay: 0.5}", tenth, 0, 0, {0.95, 0.9025, 0.857375}},
        /* decay is added after clipping */
        {"{weight_decay: 0.5}", tenth, 4, 0.25f, {0.85, 0.7075, 0.572125}},
        /* what the bug of FRZ-03 would do to a frozen weight */
        {"{weight_decay: 0.01, momentum: 0.9}", tenth, 0, 0, {0.999, 0.997101, 0.994394799}},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        check_sgd(&row[i]);
}

Test(optimizer, STR_02_rates_of_a_schedule) {
    const struct sgd_case c = {"{}",
                               {.base = 0.1, .gamma = 0.1, .every = 1, .schedule = DR_LR_STEP},
                               1,
                               0,
                               {0.9, 0.89, 0.889}};
    check_sgd(&c);
}

/* By hand: warm-up is linear and ends at base; what follows is counted from its end. */
Test(optimizer, rates_of_steps) {
    const struct dr_lr flat = {.base = 0.1, .total = 100},
                       ramp = {.base = 0.1, .warmup = 20, .total = 100},
                       wave = {.base = 0.1,
                               .end = 0.02,
                               .schedule = DR_LR_COSINE,
                               .warmup = 20,
                               .total = 100},
                       stairs = {.base = 0.1,
                                 .gamma = 0.5,
                                 .every = 30,
                                 .schedule = DR_LR_STEP,
                                 .warmup = 20,
                                 .total = 100},
                       bare = {.base = 0.1, .schedule = DR_LR_COSINE, .total = 100};
    const struct {
        const struct dr_lr *lr;
        uint64_t step;
        double want;
    } row[] = {
        {&flat, 0, 0.1},      {&flat, 50, 0.1},          {&flat, 99, 0.1},
        {&ramp, 0, 0.005},    {&ramp, 1, 0.01},          {&ramp, 19, 0.1},
        {&ramp, 20, 0.1},     {&ramp, 99, 0.1},          {&wave, 0, 0.005},
        {&wave, 19, 0.1},     {&wave, 20, 0.1},          {&wave, 40, 0.0882842712},
        {&wave, 60, 0.06},    {&wave, 80, 0.0317157288}, {&wave, 99, 0.0200308375},
        {&wave, 100, 0.02},   {&wave, 1000, 0.02},       {&stairs, 0, 0.005},
        {&stairs, 19, 0.1},   {&stairs, 20, 0.1},        {&stairs, 49, 0.1},
        {&stairs, 50, 0.05},  {&stairs, 79, 0.05},       {&stairs, 80, 0.025},
        {&stairs, 99, 0.025}, {&bare, 0, 0.1},           {&bare, 50, 0.05},
        {&bare, 100, 0},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct rig r = rig_create(1);
        const struct dr_lr_attrs attrs = {.lr = *row[i].lr};
        const uint32_t n = rig_node(&r, "lr", "lr", &attrs, &r.g->header, 1);
        rig_header(&r, row[i].step, 1);
        rig_run(&r);
        const double got = rig_f32(&r, rig_out(&r, n, 0))[0];
        cr_expect(fabs(got - row[i].want) <= 1e-8, "row %d: %.9g, not %.9g", (int)i, got,
                  row[i].want);
        rig_free(&r);
    }
}

Test(optimizer, nesterov_needs_momentum) {
    struct rig r = rig_create(1);
    const uint32_t w = rig_state(&r, "w", DR_WEIGHT, DR_F32, DR_SHAPE(1), NULL);
    const uint32_t g = rig_floats(&r, "g", DR_SHAPE(1), NULL);
    cr_assert_eq(rig_op(&r, "w:sgd", "sgd", "{nesterov: yes}", (uint32_t[]){w, g, g, w}, 4),
                 DR_NONE);
    cr_assert(strstr(rig_text(&r), "nesterov needs a momentum above 0"), "%s", rig_text(&r));
    rig_free(&r);
}

/* ---- whole graphs: forward, the frozen and gradients passes, one or more steps ---- */
static uint32_t conv(struct rig *r, const char *name, uint32_t x, float w) {
    const uint32_t n = rig_op(r, name, "conv2d", "{filters: 1, kernel: 1, bias: no}", &x, 1);
    r->g->node.at[n].optimizer = 0;
    rig_set(r, rig_in(r, n, 1), &w);
    return rig_out(r, n, 0);
}

static void freeze(struct rig *r, uint32_t value) {
    struct dr_node *n = &r->g->node.at[r->g->value.at[value].producer];
    n->frozen = true;
    r->g->value.at[n->in[1]].frozen = true;
}

static uint32_t add(struct rig *r, const char *name, uint32_t a, uint32_t b) {
    return rig_out(r, rig_op(r, name, "add", "{}", (uint32_t[]){a, b}, 2), 0);
}

/* loss = y, then everything that training adds. */
static void train(struct rig *r, uint32_t y, double lr, const char *op, const char *attributes) {
    struct dr_graph *g = r->g;
    const uint32_t in[] = {y, g->header};
    const uint32_t loss =
        dr_graph_emit(g, "loss", fake_op("loss"), NULL, in, 2, DR_ROLE_FORWARD, no_mark);
    struct dr_term *t = dr_push(g->arena, &g->term);
    *t = (struct dr_term){.name = "loss", .weight = 1, .node = loss};
    t->scalar = rig_out(r, loss, 0);
    t->partial = rig_out(r, loss, 1);
    const struct dr_total_loss_attrs attrs = {.weight = {.n = 1, .at = &t->weight}};
    g->total_loss = rig_out(r, rig_node(r, "total", "total_loss", &attrs, &t->scalar, 1), 0);
    struct dr_optimizer *o = dr_push(g->arena, &g->optimizer);
    *o = (struct dr_optimizer){.op = dr_op_find(dr_ops(), op),
                               .attrs = rig_attrs(r, op, attributes),
                               .lr = {.base = lr},
                               .where = "train"};
    cr_assert_eq(dr_pass_frozen(g), g, "%s", rig_text(r));
    cr_assert_eq(dr_pass_gradients(g, dr_ops()), g, "%s", rig_text(r));
    const char *why = "";
    cr_assert(dr_graph_verify(g, &why), "%s", why);
}

static float weight(struct rig *r, const char *name) {
    return rig_f32(r, rig_find(r, name))[0];
}

Test(optimizer, CONV_14_a_value_used_twice) {
    struct rig r = rig_create(1);
    const uint32_t x = rig_floats(&r, "x", DR_SHAPE(1, 1, 1, 1), (float[]){2});
    const uint32_t h = conv(&r, "c0", x, 3);
    const uint32_t a = conv(&r, "ca", h, 2), b = conv(&r, "cb", h, 5);
    const uint32_t y = add(&r, "y", a, b);
    train(&r, y, 1, "sgd", "{}"); /* lr 1: weight - gradient */
    rig_run(&r);
    cr_assert_eq(rig_f32(&r, h)[0], 6);
    cr_assert_eq(rig_f32(&r, y)[0], 42);
    cr_assert_eq(weight(&r, "c0:sum"), 7, "dh");
    cr_assert_eq(weight(&r, "c0.weight"), 3 - 14);
    cr_assert_eq(weight(&r, "ca.weight"), 2 - 6);
    cr_assert_eq(weight(&r, "cb.weight"), 5 - 6);
    rig_free(&r);
}

Test(optimizer, CONV_14_the_same_value_twice) {
    struct rig r = rig_create(1);
    const uint32_t x = rig_floats(&r, "x", DR_SHAPE(1, 1, 1, 1), (float[]){2});
    const uint32_t h = conv(&r, "c0", x, 3), y = add(&r, "y", h, h);
    train(&r, y, 1, "sgd", "{}");
    rig_run(&r);
    cr_assert_eq(rig_f32(&r, y)[0], 12);
    cr_assert_eq(weight(&r, "c0:sum"), 2, "dh");
    cr_assert_eq(weight(&r, "c0.weight"), 3 - 4);
    rig_free(&r);
}

/* Three diamonds: each node is visited once, or this would count paths twice: y = 8 h. */
Test(optimizer, CONV_14_diamonds) {
    struct rig r = rig_create(1);
    const uint32_t x = rig_floats(&r, "x", DR_SHAPE(1, 1, 1, 1), (float[]){2});
    uint32_t h = conv(&r, "c0", x, 3);
    static const char *const names[][3] = {
        {"a0", "b0", "s0"}, {"a1", "b1", "s1"}, {"a2", "b2", "s2"}};
    for (int i = 0; i < 3; i++) {
        const uint32_t a = conv(&r, names[i][0], h, 1), b = conv(&r, names[i][1], h, 1);
        h = add(&r, names[i][2], a, b);
    }
    train(&r, h, 1, "sgd", "{}");
    rig_run(&r);
    cr_assert_eq(rig_f32(&r, h)[0], 48);
    cr_assert_eq(weight(&r, "c0:sum"), 8);
    cr_assert_eq(weight(&r, "c0.weight"), 3 - 16);
    cr_assert_eq(weight(&r, "a0.weight"), 1 - 6 * 4);
    cr_assert_eq(weight(&r, "b2.weight"), 1 - 24);
    rig_free(&r);
}

/* w = 1 is frozen beside a trainable weight whose gradient is 3; clip_norm 3 clips nothing. */
Test(optimizer, FRZ_03_decay_and_momentum_leave_frozen_weights) {
    struct rig r = rig_create(1);
    const uint32_t x = rig_floats(&r, "x", DR_SHAPE(1, 1, 1, 1), (float[]){3});
    const uint32_t f = conv(&r, "f", x, 1);
    freeze(&r, f);
    const uint32_t y = conv(&r, "t", f, 2);
    r.g->clip_norm = 3;
    train(&r, y, 0.1, "sgd", "{momentum: 0.9, weight_decay: 0.01}");
    for (uint32_t i = 0; i < r.g->node.n; i++)
        for (uint32_t j = 0; j < r.g->node.at[i].n_out; j++)
            cr_assert_neq(r.g->node.at[i].out[j], rig_find(&r, "f.weight"), "'%s' writes it",
                          r.g->node.at[i].name);
    cr_assert_eq(dr_map_get(r.g->value_by_name, "f.weight:sgd.momentum"), DR_NONE);
    double w = 2, m = 0;
    for (int step = 0; step < 3; step++) {
        rig_run(&r);
        m = 0.9 * m + 3 + 0.01 * w;
        w -= 0.1 * m;
        near(weight(&r, "t.weight"), w, "trained");
        cr_assert_eq(weight(&r, "f.weight"), 1, "step %d", step);
        cr_assert_eq(weight(&r, "train:clip"), 1, "the frozen weight is not in the norm");
    }
    rig_free(&r);
}

/* The same with adam and adamw, whose moments and count the frozen weight has not either; of a
 * constant gradient a step is the rate. */
Test(optimizer, FRZ_03_adam_leaves_frozen_weights) {
    static const struct {
        const char *op, *attrs;
        double keep;
    } row[] = {{"adam", "{}", 1}, {"adamw", "{weight_decay: 0.5}", 1 - 0.1 * 0.5}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct rig r = rig_create(1);
        const uint32_t x = rig_floats(&r, "x", DR_SHAPE(1, 1, 1, 1), (float[]){3});
        const uint32_t f = conv(&r, "f", x, 1);
        freeze(&r, f);
        const uint32_t y = conv(&r, "t", f, 2);
        r.g->clip_norm = 3;
        train(&r, y, 0.1, row[i].op, row[i].attrs);
        uint32_t moments = 0;
        for (uint32_t v = 0; v < r.g->value.n; v++) {
            const struct dr_value *value = &r.g->value.at[v];
            if (value->kind == DR_STATE && value->cls == DR_MOMENT) {
                cr_assert_eq(strncmp(value->name, "t.weight:", 9), 0, "%s", value->name);
                moments++;
            }
        }
        cr_assert_eq(moments, 3);
        double w = 2;
        for (int step = 0; step < 3; step++) {
            rig_run(&r);
            w = w * row[i].keep - 0.1;
            near(weight(&r, "t.weight"), w, row[i].op);
            cr_assert_eq(weight(&r, "f.weight"), 1, "step %d", step);
        }
        rig_free(&r);
    }
}

/* All weights of an optimizer and a subgraph are one node, whose moments bear the weights' names.
 */
Test(optimizer, one_node_a_group) {
    struct rig r = rig_create(1);
    struct dr_graph *g = r.g;
    const uint32_t x = rig_floats(&r, "x", DR_SHAPE(1, 1, 1, 1), (float[]){1});
    uint32_t h = x;
    for (uint32_t i = 0; i < 5; i++) { /* two in "one", two in "two", of which "own" is apart */
        static const char *const names[] = {"one.a", "one.b", "two.a", "two.own", "two.b"};
        h = conv(&r, names[i], h, 2);
        g->node.at[g->value.at[h].producer].subgraph = i >= 2;
        g->node.at[g->value.at[h].producer].optimizer = i == 3;
    }
    dr_push(g->arena, &g->subgraph)->name = "one";
    dr_push(g->arena, &g->subgraph)->name = "two";
    *dr_push(g->arena, &g->optimizer) =
        (struct dr_optimizer){.op = dr_op_find(dr_ops(), "sgd"),
                              .attrs = rig_attrs(&r, "sgd", "{momentum: 0.5}"),
                              .lr = {.base = 1},
                              .where = "train"};
    train(&r, h, 0.5, "adam", "{}");
    g->optimizer.at[1].where = "two.own";
    static const struct {
        const char *name;
        uint32_t n_in, n_out;
    } want[] = {{"one:sgd", 8, 4}, {"two:sgd", 8, 4}, {"two.own.weight:adam", 7, 4}};
    for (size_t k = 0; k < sizeof want / sizeof want[0]; k++) {
        uint32_t n = 0;
        while (n < g->node.n && strcmp(g->node.at[n].name, want[k].name) != 0) {
            n++;
        }
        cr_assert_lt(n, g->node.n, "%s", want[k].name);
        cr_assert_eq(g->node.at[n].n_in, want[k].n_in, "%s", want[k].name);
        cr_assert_eq(g->node.at[n].n_out, want[k].n_out, "%s", want[k].name);
        cr_assert_eq(g->node.at[n].subgraph, k > 0);
    }
    rig_run(&r); /* each gradient is 16; adam's step is the rate */
    cr_assert_eq(weight(&r, "one.b.weight"), 2 - 16);
    cr_assert_eq(weight(&r, "two.b.weight"), 2 - 16);
    cr_assert_eq(weight(&r, "two.a.weight:sgd.momentum"), 16);
    near(weight(&r, "two.own.weight"), 1.5, "adam");
    rig_free(&r);
}

/* A loss that is not finite: the step is noted, no weight moves, then or later. */
Test(optimizer, not_finite_writes_nothing) {
    struct rig r = rig_create(1);
    const uint32_t x = rig_floats(&r, "x", DR_SHAPE(1, 1, 1, 1), (float[]){1});
    const uint32_t y = conv(&r, "c", x, 2);
    train(&r, y, 0.5, "sgd", "{momentum: 0.5}");
    rig_run(&r);
    cr_assert_eq(weight(&r, "c.weight"), 1.5f);
    rig_set(&r, x, (float[]){INFINITY});
    rig_header(&r, 1, 1);
    rig_run(&r);
    cr_assert_eq(weight(&r, "c.weight"), 1.5f);
    rig_set(&r, x, (float[]){1});
    rig_header(&r, 2, 1);
    rig_run(&r);
    cr_assert_eq(weight(&r, "c.weight"), 1.5f);
    cr_assert_eq(weight(&r, "c.weight:sgd.momentum"), 1);
    const int64_t *h = r.at[r.g->health];
    cr_assert(h[0] == 1 && h[1] == 1);
    rig_free(&r);
}
