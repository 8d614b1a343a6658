/* The run loop with real ops: exactly `steps` updates, the same bits whatever the schedule, eval
 * beside training, losses that are not finite, interruption, the embedding API. */
#include "augment/npy.h"
#include "scheduler/dagrun.h"
#include "scheduler/run.h"
#include "tests/fake_cli.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct outcome {
    bool good;
    enum dr_exit code;
    char text[256];
    struct dr_results r;
    uint64_t records, weights; /* digests; records of training steps, states by id */
    uint64_t encoder;          /* digest of the frozen weight */
    int64_t next;              /* records came in the order 0, 1, ... below it */
    bool in_order;
    uint32_t epochs, evals;
    double acc, ce, eval_ce;
    int64_t stop_at; /* in: set the flag at this step; < 0 */
    volatile sig_atomic_t stop;
};

static bool on_record(void *ctx, const struct dr_record *r) {
    struct outcome *o = ctx;
    const uint64_t pair[2] = {o->records, dr_hash(r->base, r->at->record_bytes)};
    o->records = dr_hash(pair, sizeof pair);
    o->in_order &= r->step == o->next++;
    return true;
}

static void on_step(void *ctx, int64_t step, const struct dr_tally *t) {
    struct outcome *o = ctx;
    (void)t;
    if (o->stop_at >= 0 && step == o->stop_at)
        o->stop = 1;
}

static void on_epoch(void *ctx, int64_t epoch, int64_t steps, const struct dr_tally *t) {
    struct outcome *o = ctx;
    (void)steps;
    cr_expect_eq(epoch, (int64_t)o->epochs++);
    o->ce = t->loss[0].mean;
}

static void on_evaluated(void *ctx, int64_t steps, const struct dr_tally *t) {
    struct outcome *o = ctx;
    (void)steps;
    o->evals++;
    o->acc = t->metric[0].mean;
    o->eval_ce = t->loss[0].mean;
}

/* `sets`: assignments of --set, ended by NULL. */
static void run(const struct cli_place *p, const char *const *sets, uint32_t threads, int64_t steps,
                struct outcome *o) {
    uint32_t n = 0;
    while (sets[n])
        n++;
    const struct dr_watcher w = {on_step, on_epoch, on_evaluated, on_record, o};
    struct dr_session *s = dr_session_create();
    o->in_order = true;
    const bool ready = dr_session_load(s, p->yaml, sets, n) &&
                       dr_session_device(s, "cpu", threads) && dr_session_data(s, DR_MODE_TRAIN) &&
                       dr_session_plan(s, DR_MODE_TRAIN, NULL, NULL) &&
                       dr_session_start(s, &o->stop);
    cr_assert(ready, "%s%s", dr_diag_text(s->diag), s->status.text);
    o->good = dr_run(s, steps, &w, &o->r);
    o->code = dr_session_exit(s);
    snprintf(o->text, sizeof o->text, "%s", s->status.text);
    const struct dr_memory m = dr_session_memory(s);
    uint64_t *sums;
    cr_assert_eq(dr_state_checksums(&m, s->main.plan, s->arena, &sums).code, DR_OK);
    const struct dr_graph *g = s->main.graph;
    for (uint32_t i = 0; i < g->value.n; i++) {
        if (g->value.at[i].kind != DR_STATE || g->value.at[i].cls == DR_HEALTH)
            continue;
        const uint64_t pair[2] = {o->weights, sums[i]};
        o->weights = dr_hash(pair, sizeof pair);
        if (!strcmp(g->value.at[i].name, "encoder.c0.weight"))
            o->encoder = sums[i];
    }
    dr_session_destroy(s);
}

Test(run, exactly_the_steps_in_order) {
    struct cli_place p = cli_place_create();
    static const char *const none[] = {NULL};
    for (int64_t steps = 1; steps <= 17; steps++) {
        struct outcome o = {.stop_at = -1};
        run(&p, none, 2, steps, &o);
        cr_expect(o.good, "%s", o.text);
        cr_expect_eq(o.r.steps, steps);
        cr_expect(o.in_order && o.next == steps, "%lld records", (long long)o.next);
        cr_expect_eq(o.epochs, (uint32_t)((steps + 7) / 8)); /* 64 samples, batch 8 */
        cr_expect_eq(o.evals, (uint32_t)((steps + 7) / 8));
    }
    cli_place_remove(&p);
}

/* 6 epochs of 8 steps. What plans only does not know how many an epoch has. */
Test(run, a_warmup_that_never_ends) {
    struct cli_place p = cli_place_create();
    static const struct {
        const char *sets[2], *says;
        bool planned;
    } cases[] = {
        {{"train.optimizer={op: sgd, lr: {base: 0.5, warmup: 48}}"}, "", false},
        {{"train.optimizer={op: sgd, lr: {base: 0.5, warmup: 49}}"},
         ":1:51: warning: train: warmup: 49 steps are more than the run has, 48: the rate never "
         "comes to its base, 0.5\n",
         false},
        {{"subgraphs.net.optimizer={op: sgd, lr: {base: 0.25, warmup: 60}}"},
         ":1:60: warning: net: warmup: 60 steps are more than the run has, 48: the rate never "
         "comes to its base, 0.25\n",
         false},
        {{"train.optimizer={op: sgd, lr: {base: 0.5, warmup: 49}}"}, "", true},
        {{"train={steps: 9, losses: {ce: {op: cross_entropy, in: [net.logits, label]}}, "
          "optimizer: {op: sgd, lr: {base: 1, warmup: 10}}}"},
         "train: warmup: 10 steps are more than the run has, 9",
         true},
        {{"subgraphs.net.nodes.p1={block: twin, in: n1, repeat: 3}",
          "blocks={twin: {nodes: {a: {op: conv2d, filters: 8, kernel: 1, "
          "optimizer: {op: sgd, lr: {base: 1, warmup: 77}}}}}}"},
         "warmup: 77 steps are more than the run has, 48", /* once, for three */
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dr_session *s = dr_session_create();
        cr_assert(dr_session_load(s, p.yaml, cases[i].sets, cases[i].sets[1] ? 2 : 1) &&
                  dr_session_device(s, "cpu", 1) &&
                  (cases[i].planned || dr_session_data(s, DR_MODE_TRAIN)) &&
                  dr_session_plan(s, DR_MODE_TRAIN, NULL, NULL));
        const char *said = dr_diag_text(s->diag);
        cr_expect(*cases[i].says ? strstr(said, cases[i].says) != NULL : !*said, "%zu: %s", i,
                  said);
        const char *first = strstr(said, ": warmup: ");
        cr_expect(!first || !strstr(first + 1, ": warmup: "), "%zu: %s", i, said);
        dr_session_destroy(s);
    }
    cli_place_remove(&p);
}

Test(run, same_bits_for_every_schedule) {
    struct cli_place p = cli_place_create();
    static const char *const policies[] = {"sequential", "stage", "matching", "list"};
    static const char *const depths[] = {"off", "1", "2", "auto"};
    for (int64_t steps = 9; steps <= 12; steps++) { /* every remainder of U = 1, 2, 4 */
        static const char *const plain[] = {"schedule={policy: sequential, pipeline: off}", NULL};
        struct outcome want = {.stop_at = -1};
        run(&p, plain, 1, steps, &want);
        for (int i = 0; i < 4; i++)
            for (int d = 0; d < 4; d++)
                for (int n = 1; n <= 4; n += 3) {
                    char set[128];
                    snprintf(set, sizeof set, "schedule={policy: %s, pipeline: %s, streams: %d}",
                             policies[i], depths[d], n);
                    const char *const sets[] = {set, NULL};
                    struct outcome o = {.stop_at = -1};
                    run(&p, sets, (uint32_t)n, steps, &o);
                    cr_expect(o.records == want.records && o.weights == want.weights, "%s, %lld",
                              set, (long long)steps);
                    cr_expect_eq(o.encoder, want.encoder);
                }
    }
    cli_place_remove(&p);
}

Test(run, evaluation_changes_nothing) {
    struct cli_place p = cli_place_create();
    static const char *const sets[][2] = {
        {"eval.every=1 epoch", NULL}, {"eval.every=3 steps", NULL}, {"eval.every=4 epochs", NULL}};
    struct outcome o[3];
    for (int i = 0; i < 3; i++) {
        o[i] = (struct outcome){.stop_at = -1};
        run(&p, sets[i], 2, 16, &o[i]);
        cr_expect(o[i].good, "%s", o[i].text);
        cr_expect_eq(o[i].records, o[0].records, "%s", sets[i][0]);
        cr_expect_eq(o[i].weights, o[0].weights, "%s", sets[i][0]);
        cr_expect_float_eq(o[i].acc, o[0].acc, 1e-12);
    }
    cr_expect_eq(o[0].evals, 2u);
    cr_expect_eq(o[1].evals, 6u); /* after steps 3, 6, 9, 12, 15 and at the end */
    cr_expect_eq(o[2].evals, 1u);
    cli_place_remove(&p);
}

/* 20 samples in batches of 8: the padding must not count. */
Test(run, every_sample_is_evaluated_once) {
    struct cli_place p = cli_place_create();
    struct outcome o = {.stop_at = -1};
    static const char *const none[] = {NULL};
    run(&p, none, 2, 5, &o);
    const double hits = o.acc * 20;
    cr_expect_float_eq(hits, round(hits), 1e-9, "accuracy %g is no multiple of 1/20", o.acc);
    cli_place_remove(&p);
}

Test(run, a_loss_that_is_not_finite) {
    struct cli_place p = cli_place_create();
    static const char *const depths[] = {"schedule.pipeline=off", "schedule.pipeline=auto"};
    for (int i = 0; i < 2; i++) {
        /* the decay alone multiplies each weight by about -1e5 a step */
        const char *const sets[] = {"train.optimizer={op: sgd, lr: 1e6, weight_decay: 0.1}",
                                    depths[i], NULL};
        struct outcome o = {.stop_at = -1}, before = {.stop_at = -1};
        run(&p, sets, 2, 40, &o);
        cr_expect_not(o.good);
        cr_expect_eq(o.code, DR_FAILED);
        cr_expect_not_null(strstr(o.text, "the loss is not finite; first at node 'net."), "%s",
                           o.text);
        cr_expect_not_null(strstr(o.text, "samples "), "%s", o.text);
        long long step = -1;
        cr_assert_eq(sscanf(o.text, "step %lld", &step), 1, "%s", o.text);
        cr_expect(step > 0 && step < 40);
        cr_expect_eq(o.r.steps, step);
        run(&p, sets, 2, step, &before); /* M froze before the bad step's updates */
        cr_expect(before.good, "%s", before.text);
        cr_expect_eq(o.weights, before.weights);
    }
    cli_place_remove(&p);
}

/* The total of an epoch is what its losses weigh. */
Test(run, the_total_is_weighted) {
    struct cli_place p = cli_place_create();
    const char *const sets[] = {"train.losses.ce.weight=0.25", NULL};
    struct outcome o = {.stop_at = -1};
    run(&p, sets, 2, 16, &o);
    cr_expect(o.good, "%s", o.text);
    cr_expect(o.ce > 0 && o.r.train.total_mean == 0.25 * o.ce, "%g, %g", o.ce,
              o.r.train.total_mean);
    cr_expect_eq(o.r.eval.total_mean, 0.25 * o.eval_ce);
    cli_place_remove(&p);
}

/* Where nothing counts the loss is 0, in each step and over an epoch or an evaluation. */
Test(run, a_loss_where_nothing_counts) {
    struct cli_place p = cli_place_create();
    const char *const sets[] = {"train.losses.ce.class_weights=[0, 0, 0, 0]", NULL};
    struct outcome o = {.stop_at = -1, .ce = 7};
    run(&p, sets, 2, 16, &o);
    cr_expect(o.good, "%s", o.text);
    cr_expect(o.epochs == 2 && o.evals == 2);
    cr_expect(o.ce == 0 && o.r.train.total_mean == 0, "%g, %g", o.ce, o.r.train.total_mean);
    cr_expect(o.eval_ce == 0 && o.r.eval.total_mean == 0, "%g", o.eval_ce);
    cli_place_remove(&p);
}

/* A NaN in the data: the message names the node that copies it and a batch with that sample. */
Test(run, a_sample_that_is_not_finite) {
    struct cli_place p = cli_place_create();
    enum { N = 84, BAD = 37 };
    static float image[N * 16];
    char path[1024];
    for (int i = 0; i < N * 16; i++)
        image[i] = (float)(i % 7) / 7.0f;
    image[BAD * 16 + 3] = NAN;
    snprintf(path, sizeof path, "%s/images.npy", p.folder);
    const int64_t dim[] = {N, 4, 4, 1};
    cr_assert_eq(dr_npy_write(path, "<f4", dim, 4, image, sizeof image), 0);
    static const char *const sets[] = {"inputs.image.dtype=f32", NULL};
    struct outcome o = {.stop_at = -1};
    run(&p, sets, 2, 40, &o);
    cr_expect_eq(o.code, DR_FAILED);
    cr_expect_not_null(strstr(o.text, "first at node 'data.image'"), "%s", o.text);
    cr_expect_not_null(strstr(o.text, "37"), "%s", o.text);
    cr_expect(o.r.steps < 8, "every sample comes in the first epoch");
    cli_place_remove(&p);
}

Test(run, interruption_finishes_the_step) {
    struct cli_place p = cli_place_create();
    static const char *const none[] = {NULL};
    struct outcome o = {.stop_at = 10}, same = {.stop_at = -1};
    run(&p, none, 2, 48, &o);
    cr_expect_not(o.good);
    cr_expect_eq(o.code, DR_INTERRUPTED);
    cr_expect(o.r.steps > 10 && o.r.steps < 48, "%lld", (long long)o.r.steps);
    cr_expect_eq(o.next, o.r.steps);
    run(&p, none, 2, o.r.steps, &same);
    cr_expect_eq(o.records, same.records);
    cr_expect_eq(o.weights, same.weights);
    cli_place_remove(&p);
}

static int count_steps(void *ctx, int64_t step, double loss) {
    (void)loss;
    *(int64_t *)ctx = step + 1;
    return 0;
}

Test(run, embedding) {
    struct cli_place p = cli_place_create();
    char why[512] = "";
    int64_t seen = 0;
    cr_expect_null(dagrun_open("/nowhere.yaml", NULL, why, sizeof why));
    cr_expect_not_null(strstr(why, "/nowhere.yaml"), "%s", why);
    struct dagrun *d = dagrun_open(p.yaml, NULL, why, sizeof why);
    cr_assert(d, "%s", why);
    cr_expect_not_null(strstr(dagrun_plan(d), "stream"));
    dagrun_close(d);
    const char *const fewer[] = {"train.epochs=2"};
    const struct dagrun_options two = {
        .set = fewer, .n_set = 1, .on_step = count_steps, .ctx = &seen};
    d = dagrun_open(p.yaml, &two, why, sizeof why);
    cr_assert(d, "%s", why);
    cr_expect_eq(dagrun_run(d, why, sizeof why), 0, "%s", why);
    cr_expect_eq(seen, 16);
    cr_expect_eq(dagrun_steps(d), 16);
    cr_expect(dagrun_loss(d, "ce") > 0 && dagrun_loss(d, "total") > 0);
    cr_expect(dagrun_metric(d, "acc") >= 0 && dagrun_metric(d, "acc") <= 1);
    cr_expect(isnan(dagrun_loss(d, "none")) && isnan(dagrun_metric(d, "none")));
    float w[16];
    cr_expect_eq(dagrun_weight(d, "net.logits.bias", NULL, 0), 4u);
    cr_expect_eq(dagrun_weight(d, "net.logits.bias", w, 16), 4u);
    cr_expect(isfinite(w[0]));
    cr_expect_eq(dagrun_weight(d, "net.logits.nothing", w, 16), 0u);
    cr_expect_eq(dagrun_run(d, why, sizeof why), 1);
    dagrun_close(d);
    cli_place_remove(&p);
}
