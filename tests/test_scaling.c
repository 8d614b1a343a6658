/* Dynamic loss scaling (fp16's) on the CPU, where gradients are f32: the scale by hand-worked
 * numbers, that a skipped step leaves no trace, that a scale which is a power of two changes no
 * bit, checkpoints, and how a run ends that no scale can save. */
#include "graph/passes.h"
#include "kernels/guard.h"
#include "scheduler/run.h"
#include "tests/fake_cli.h"
#include "tests/fake_harness.h"
#include "tests/fake_ops.h"
#include "tests/fake_runs.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct dr_mark no_mark = {0};

/* ---- one weight: loss = w * x, so that its gradient is x ---- */
struct one {
    struct rig r;
    uint32_t x, node;
};

static struct one one_weight(struct dr_loss_scaling scaling, double clip_norm, double lr,
                             const char *op) {
    struct one o = {.r = rig_create(1)};
    struct dr_graph *g = o.r.g;
    g->scaling = scaling;
    g->clip_norm = clip_norm;
    o.x = rig_floats(&o.r, "x", DR_SHAPE(1, 1, 1, 1), (float[]){1});
    o.node = rig_op(&o.r, "c", "conv2d", "{filters: 1, kernel: 1, bias: no}", &o.x, 1);
    g->node.at[o.node].optimizer = 0;
    rig_set(&o.r, rig_in(&o.r, o.node, 1), (float[]){1});
    const uint32_t in[] = {rig_out(&o.r, o.node, 0), g->header};
    const uint32_t loss =
        dr_graph_emit(g, "loss", fake_op("loss"), NULL, in, 2, DR_ROLE_FORWARD, no_mark);
    struct dr_term *t = dr_push(g->arena, &g->term);
    *t = (struct dr_term){.name = "loss", .weight = 1, .node = loss};
    t->scalar = rig_out(&o.r, loss, 0);
    t->partial = rig_out(&o.r, loss, 1);
    const struct dr_total_loss_attrs attrs = {.weight = {.n = 1, .at = &t->weight}};
    const uint32_t total = rig_node(&o.r, "total", "total_loss", &attrs, &t->scalar, 1);
    g->total_loss = rig_out(&o.r, total, 0);
    *dr_push(g->arena, &g->optimizer) = (struct dr_optimizer){.op = dr_op_find(dr_ops(), op),
                                                              .attrs = rig_attrs(&o.r, op, "{}"),
                                                              .lr = {.base = lr},
                                                              .where = "train"};
    cr_assert_eq(dr_pass_frozen(g), g, "%s", rig_text(&o.r));
    cr_assert_eq(dr_pass_gradients(g, dr_ops()), g, "%s", rig_text(&o.r));
    const char *why = "";
    cr_assert(dr_graph_verify(g, &why), "%s", why);
    return o;
}

static void one_step(struct one *o, uint64_t step, float x) {
    rig_set(&o->r, o->x, &x);
    rig_header(&o->r, step, 1);
    rig_run(&o->r);
}

static float f32_of(const struct one *o, const char *name) {
    return rig_f32(&o->r, rig_find(&o->r, name))[0];
}
static int64_t i64_of(const struct one *o, const char *name, int i) {
    return ((const int64_t *)o->r.at[rig_find(&o->r, name)])[i];
}

/* sgd with a rate of 1/2: w falls by x / 2. A gradient of 3e38 is finite, 4 times that is not. */
Test(scaling, scale_and_weight_by_hand) {
    static const struct {
        float x;
        double scale, w;
        int64_t good, health[2];
    } step[] = {
        {1, 4, 0.5, 1, {0, 0}},        {3e38f, 2, 0.5, 0, {2, 1}},  {-1, 2, 1, 1, {0, 0}},
        {1, 2, 0.5, 2, {0, 0}},        {-1, 4, 1, 0, {0, 0}},       {1, 4, 0.5, 1, {0, 0}},
        {INFINITY, 2, 0.5, 0, {2, 6}}, {NAN, 1, 0.5, 0, {2, 7}},    {1, 1, 0, 1, {0, 0}},
        {-INFINITY, 1, 0, 1, {1, 9}}, /* no smaller scale */
        {1, 1, 0, 1, {1, 9}},          {INFINITY, 1, 0, 1, {1, 9}},
    };
    struct one o = one_weight((struct dr_loss_scaling){4, 2, 0.5, 3}, 0, 0.5, "sgd");
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        one_step(&o, i, step[i].x);
        cr_expect_eq((double)f32_of(&o, "train:scale"), step[i].scale, "scale, step %zu", i);
        cr_expect_eq((double)f32_of(&o, "c.weight"), step[i].w, "weight, step %zu", i);
        cr_expect_eq(i64_of(&o, "train:scale:good", 0), step[i].good, "good, step %zu", i);
        for (int k = 0; k < 2; k++)
            cr_expect_eq(i64_of(&o, "train:health", k), step[i].health[k], "health, step %zu", i);
    }
    rig_free(&o.r);
}

/* PyTorch's constants double 65536 after 2000 good steps, and not one earlier. */
Test(scaling, two_thousand_good_steps) {
    struct one o = one_weight((struct dr_loss_scaling){65536, 2, 0.5, 2000}, 0, 0, "sgd");
    for (uint64_t i = 0; i < 2000; i++) {
        cr_assert_eq(f32_of(&o, "x"), 1);
        one_step(&o, i, 1);
        cr_assert_eq((double)f32_of(&o, "train:scale"), i < 1999 ? 65536.0 : 131072.0);
    }
    rig_free(&o.r);
}

/* A scale that would not be finite stays as it is. */
Test(scaling, the_scale_stays_finite) {
    const struct dr_scaler c = {.growth = 4, .backoff = 0.5, .interval = 1};
    int64_t health[2] = {0}, good = 0;
    float scale = 0x1p126f;
    dr_scaler_update(&c, true, 0, health, &scale, &good);
    cr_assert(scale == 0x1p126f && good == 0 && health[0] == 0);
}

/* Adam's moments and count stand still in a skipped step, and the next step is what it would have
 * been without it. */
Test(scaling, a_skipped_step_is_no_step_of_adam) {
    static const float x[2][5] = {{1, INFINITY, 2, NAN, -1}, {1, 2, -1}};
    float w[2], m[2], v[2];
    for (int k = 0; k < 2; k++) {
        struct one o = one_weight((struct dr_loss_scaling){1024, 2, 0.5, 100}, 0, 0.1, "adam");
        for (int i = 0; i < (k ? 3 : 5); i++)
            one_step(&o, (uint64_t)i, x[k][i]);
        w[k] = f32_of(&o, "c.weight");
        m[k] = f32_of(&o, "c.weight:adam.exp_avg");
        v[k] = f32_of(&o, "c.weight:adam.exp_avg_sq");
        cr_expect_eq(i64_of(&o, "c.weight:adam.step", 0), 3);
        cr_expect_eq((double)f32_of(&o, "train:scale"), k ? 1024.0 : 256.0);
        rig_free(&o.r);
    }
    cr_expect(w[0] == w[1] && m[0] == m[1] && v[0] == v[1]);
}

/* The norm that is clipped is that of the gradients without the scale: 8 down to 2. */
Test(scaling, clip_norm_sees_no_scale) {
    for (double scale = 1; scale <= 0x1p60; scale *= 0x1p15) {
        struct one o = one_weight((struct dr_loss_scaling){scale, 2, 0.5, 9}, 2, 0.5, "sgd");
        one_step(&o, 0, 8);
        cr_expect(fabs((double)f32_of(&o, "c.weight") - 0.0) < 1e-6);
        cr_expect(fabs((double)f32_of(&o, "train:clip") * scale - 0.25) < 1e-7);
        one_step(&o, 1, 2); /* at the bound nothing is clipped */
        cr_expect_eq((double)f32_of(&o, "train:clip") * scale, 1.0);
        rig_free(&o.r);
    }
}

static uint32_t node_of(const struct dr_graph *g, const char *name) {
    uint32_t i = 0;
    while (i < g->node.n && strcmp(g->node.at[i].name, name) != 0)
        i++;
    return i < g->node.n ? i : DR_NONE;
}

Test(scaling, the_scale_is_part_of_what_a_step_changes) {
    struct one o = one_weight((struct dr_loss_scaling){4, 2, 0.5, 3}, 0, 0.5, "sgd");
    const struct dr_graph *g = o.r.g;
    const uint32_t scaled = node_of(g, "loss:scaled"), clip = node_of(g, "train:clip");
    const uint32_t guard = node_of(g, "train:guard"), sgd = node_of(g, "c.weight:sgd");
    cr_assert(scaled < clip && clip < guard && guard < sgd && sgd < g->readback);
    for (uint32_t i = 0; i < g->node.n; i++)
        for (uint32_t j = 0; j < g->node.at[i].n_in; j++)
            if (g->node.at[i].in[j] == g->loss_scale)
                cr_expect(g->node.at[i].cls == DR_UPDATED, "%s", g->node.at[i].name);
    const struct dr_value *v = &g->value.at[g->loss_scale];
    cr_expect(v->kind == DR_STATE && v->cls == DR_MOMENT && v->dtype == DR_F32 && !v->frozen);
    bool read = false;
    for (uint32_t j = 0; j < g->node.at[g->readback].n_in; j++)
        read |= g->node.at[g->readback].in[j] == g->loss_scale;
    cr_expect(read, "the host sees the scale");
    rig_free(&o.r);
}

/* ---- whole runs ---- */

/* Plans training with scaling; scaling.initial 0: without. */
static bool plan_scaled(struct dr_session *s, struct dr_loss_scaling scaling) {
    struct dr_graph *g = dr_pass_load(s->model, DR_MODE_TRAIN, s->total_steps);
    if (!g)
        return false;
    g->scaling = scaling;
    g = dr_pass_shapes(g);
    g = dr_pass_frozen(g);
    g = g ? dr_pass_gradients(g, dr_ops()) : NULL;
    if (!g)
        return false;
    s->main.graph = g;
    s->main.plan = dr_plan_make(s->arena, g, &s->main.wish, &s->dev, &s->main.too_large);
    return s->main.plan != NULL;
}

static bool is_scaling(const struct dr_graph *g, uint32_t v) {
    return v == g->health || strncmp(g->value.at[v].name, "train:scale", 11) == 0;
}

/* Values of states by name, in one text: hexadecimal, without what scaling itself keeps. */
static void print_states(const struct runs *r, const struct runs_tape *t, struct dr_text *out) {
    const struct dr_graph *g = r->s->main.graph;
    for (uint32_t v = 0; v < g->value.n; v++) {
        const struct dr_value *x = &g->value.at[v];
        if (x->kind == DR_STATE && !is_scaling(g, v))
            dr_text_add(out, "%s %016llx\n", x->name,
                        (unsigned long long)dr_hash(runs_tape_state(r, t, v), (size_t)x->bytes));
    }
}

static struct dr_plan *open_scaled(struct runs *r, const char *yaml, const char *const *sets,
                                   struct dr_loss_scaling scaling) {
    cr_assert(runs_open(r, yaml, DR_MODE_TRAIN, sets), "%s", runs_why(r));
    cr_assert(plan_scaled(r->s, scaling), "%s", runs_why(r));
    return r->s->main.plan;
}

/* Scaled gradients, their norm and the factor that undoes it are exact: weights, moments and
 * statistics have the bits of a run without scaling. */
Test(scaling, a_power_of_two_changes_no_bit) {
    static const double initial[] = {0, 1, 1024, 0x1p40};
    static const char *const yaml[] = {runs_classifier, runs_segment, runs_branches};
    for (size_t y = 0; y < 3; y++) {
        char *want = NULL;
        for (size_t i = 0; i < sizeof initial / sizeof *initial; i++) {
            struct runs r;
            struct runs_tape t;
            const struct dr_loss_scaling scaling = {initial[i], 2, 0.5, 7};
            const struct dr_plan *p = open_scaled(&r, yaml[y], NULL, scaling);
            cr_assert(runs_once(&r, p, NULL, 20, &t), "%s", runs_why(&r));
            struct dr_text text = {.arena = r.s->arena};
            print_states(&r, &t, &text);
            want = want ? want : strdup(text.at);
            cr_expect_str_eq(text.at, want, "a scale of %g", initial[i]);
            runs_tape_free(&t);
            runs_close(&r);
        }
        free(want);
    }
}

/* The scaled graph under other schedules: the same bits, skipped steps among them. */
Test(scaling, schedules_agree_and_skipped_steps_leave_no_trace) {
    static const char *const heavy[] = {
        "train.losses={ce: {op: cross_entropy, in: [net.logits, label], weight: 1e6}}",
        "train.clip_norm=1", NULL};
    struct runs r;
    struct runs_tape first, second;
    const struct dr_loss_scaling scaling = {0x1p127, 2, 0.5, 4};
    struct dr_plan *p = open_scaled(&r, runs_classifier, heavy, scaling);
    const struct dr_graph *g = r.s->main.graph;
    cr_assert(runs_once(&r, p, NULL, 30, &first), "%s", runs_why(&r));
    const struct dr_plan_wish wish = runs_wish(DR_POLICY_SEQUENTIAL, 1, 0, false);
    const struct dr_plan *q = runs_plan(&r, r.s->arena, wish);
    cr_assert(runs_once(&r, q, NULL, 30, &second), "%s", runs_why(&r));
    const char *difference = runs_difference(&r, r.s->arena, &first, &second);
    cr_expect(!difference, "%s", difference);
    int64_t skipped = 0;
    while (((const int64_t *)runs_tape_value(&r, &first, skipped, g->health))[0] == 2) {
        const float *scale = runs_tape_value(&r, &first, skipped, g->loss_scale);
        skipped++;
        cr_expect_eq((double)*scale, ldexp(1, 127 - (int)skipped));
    }
    cr_assert(skipped > 3 && skipped < 25, "%d steps were skipped", (int)skipped);
    runs_tape_free(&first);
    runs_tape_free(&second);
    cr_assert(runs_once(&r, p, NULL, skipped, &first), "%s", runs_why(&r));
    for (uint32_t v = 0; v < g->value.n; v++) { /* all is as it was drawn */
        const struct dr_value *x = &g->value.at[v];
        void *start = malloc((size_t)x->bytes + 1);
        dr_state_initial(x, r.s->model->seed, start);
        if (x->kind == DR_STATE && !is_scaling(g, v))
            cr_expect(!memcmp(start, runs_tape_state(&r, &first, v), (size_t)x->bytes), "%s",
                      x->name);
        free(start);
    }
    runs_tape_free(&first);
    runs_close(&r);
}

/* ---- sessions ---- */
struct job {
    const char *yaml, *set, *resume, *save;
    struct dr_loss_scaling scaling;
    int64_t steps;
};
struct done {
    int code;
    struct dr_results r;
    double ce;
    char said[512];
};

static struct done run(const struct job *j) {
    struct done d = {0};
    struct dr_session *s = dr_session_create();
    s->resume = j->resume;
    s->save = j->save;
    if (dr_session_load(s, j->yaml, &j->set, j->set ? 1 : 0) && dr_session_device(s, "cpu", 2) &&
        dr_session_data(s, DR_MODE_TRAIN) && dr_session_plan(s, DR_MODE_TRAIN, NULL, NULL)) {
        s->with_eval = false;
        if (plan_scaled(s, j->scaling) && dr_session_start(s, NULL)) {
            dr_run(s, j->steps, NULL, &d.r);
            d.ce = d.r.train.loss[0].mean;
        }
    }
    d.code = (int)dr_session_exit(s);
    snprintf(d.said, sizeof d.said, "%s%s", s->status.text, dr_diag_text(s->diag));
    dr_session_destroy(s);
    return d;
}

static bool same_files(const char *a, const char *b) {
    static char x[1 << 20], y[1 << 20];
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    cr_assert(f && g);
    const size_t n = fread(x, 1, sizeof x, f), m = fread(y, 1, sizeof y, g);
    fclose(f);
    fclose(g);
    return n > 0 && n == m && memcmp(x, y, n) == 0;
}

/* A scale from which the first steps overflow, and that changes often. */
#define LIVELY ((struct dr_loss_scaling){0x1p127, 2, 0.5, 3})
#define HEAVY "train.losses={ce: {op: cross_entropy, in: [net.logits, label], weight: 1e4}}"

Test(scaling, a_resumed_run_leaves_the_same_bytes) {
    struct cli_place p = cli_place_create();
    char whole[1024], half[1024], rest[1024];
    snprintf(whole, sizeof whole, "%s/whole", p.folder);
    snprintf(half, sizeof half, "%s/half", p.folder);
    snprintf(rest, sizeof rest, "%s/rest", p.folder);
    char *yaml = cli_file(p.folder, "runs.yaml", runs_classifier);
    const struct job all = {yaml, HEAVY, NULL, whole, LIVELY, 0};
    const struct done want = run(&all);
    cr_assert_eq(want.code, 0, "%s", want.said);
    cr_assert(want.r.skipped > 2 && want.r.steps == 40 && want.r.loss_scale > 1);
    static const int64_t at[] = {2, 17, 23};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        const struct job first = {yaml, HEAVY, NULL, half, LIVELY, at[i]};
        const struct job second = {yaml, HEAVY, half, rest, LIVELY, 0};
        const struct done d = run(&first), e = run(&second);
        cr_assert(d.code == 0 && e.code == 0, "%s%s", d.said, e.said);
        cr_expect_eq(d.r.skipped + e.r.skipped, want.r.skipped);
        cr_expect_eq(e.r.loss_scale, want.r.loss_scale);
        cr_expect(same_files(whole, rest), "resumed at %d", (int)at[i]);
    }
    struct job other = {.yaml = yaml, .set = HEAVY, .resume = half};
    cr_expect_eq(run(&other).code, 0, "what is more is left");
    other = (struct job){.yaml = yaml, .set = HEAVY, .save = half, .steps = 9};
    cr_expect_eq(run(&other).code, 0);
    other = (struct job){.yaml = yaml, .set = HEAVY, .resume = half, .scaling = LIVELY};
    const struct done d = run(&other);
    cr_expect(d.code == 2 && strstr(d.said, "it has no 'train:scale': another optimizer or "
                                            "precision wrote it"),
              "%s", d.said);
    free(yaml);
    cli_place_remove(&p);
}

/* Every batch is infinite: the scale falls from 4 to 1 in two steps, and the third is the last. */
Test(scaling, no_scale_saves_a_loss_that_is_not_finite) {
    struct cli_place p = cli_place_create();
    char *yaml = cli_file(p.folder, "runs.yaml", runs_classifier);
    const struct job j = {
        .yaml = yaml, .set = "subgraphs.net.nodes.norm.std=[1e-300]", .scaling = {4, 2, 0.5, 2000}};
    const struct done d = run(&j);
    cr_expect_eq(d.code, 1, "%s", d.said);
    cr_expect(strstr(d.said, "step 2: the loss or a gradient is not finite, at the least loss "
                             "scale; first at node 'net.norm'; samples "),
              "%s", d.said);
    cr_expect(d.r.skipped == 2 && d.r.steps == 2 && d.r.loss_scale == 1);
    free(yaml);
    cli_place_remove(&p);
}

/* images.npy of f32, one of them with an infinite pixel. */
static void spoil_an_image(const char *folder, int n, int bad) {
    char path[1024], head[128];
    snprintf(path, sizeof path, "%s/images.npy", folder);
    const int used = snprintf(head, sizeof head,
                              "%cNUMPY%c%cv%c{'descr': '<f4', 'fortran_order': False, 'shape': "
                              "(%d, 4, 4, 1), }",
                              0x93, 1, 0, 0, n);
    memset(head + used, ' ', sizeof head - (size_t)used);
    head[sizeof head - 1] = '\n';
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(head, sizeof head, 1, f) == 1);
    for (int i = 0; i < n * 16; i++) {
        const float x = i == bad * 16 ? INFINITY : (float)(i % 7) / 7;
        cr_assert(fwrite(&x, sizeof x, 1, f) == 1);
    }
    fclose(f);
}

/* The one batch of each epoch that cannot be learnt from is passed over; the epoch's mean is that
 * of the others. */
Test(scaling, a_bad_sample_costs_a_step_an_epoch) {
    struct cli_place p = cli_place_create();
    spoil_an_image(p.folder, 84, 37);
    const struct job j = {
        .yaml = p.yaml, .set = "inputs.image.dtype=f32", .scaling = {1024, 2, 0.5, 2000}};
    const struct done d = run(&j);
    cr_expect_eq(d.code, 0, "%s", d.said);
    cr_expect(d.r.steps == 48 && d.r.skipped == 6 && d.r.loss_scale == 16, "%d of %d steps",
              (int)d.r.skipped, (int)d.r.steps);
    cr_expect(isfinite(d.ce) && d.ce > 0.5 && d.ce < 3, "%g", d.ce);
    cli_place_remove(&p);
}
