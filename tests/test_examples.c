/* The examples: what their plans promise, and that each wait is needed. */
#include "scheduler/session.h"
#include "tests/fake_cli.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(examples, .timeout = 300);

static const char *const examples[] = {
    "augment",        "branches",           "digits",  "pretrain_encoder", "resnet18",
    "segment_frozen", "segment_pretrained", "siamese", "two_heads",        "unet"};
enum { N_EXAMPLES = sizeof examples / sizeof *examples };

static struct dr_session *planned(const char *example, const char *const *sets, uint32_t n_sets) {
    char path[1024];
    snprintf(path, sizeof path, "%s/examples/%s.yaml", DR_SOURCE_DIR, example);
    struct dr_session *s = dr_session_create();
    cr_assert(dr_session_load(s, path, sets, n_sets) && dr_session_device(s, "cpu", 2) &&
                  dr_session_plan(s, DR_MODE_TRAIN, NULL, NULL),
              "%s", dr_diag_text(s->diag));
    return s;
}

static void each_wait_is_needed(const struct dr_plan *p, struct dr_arena *a, const char *what) {
    const struct dr_race none = dr_plan_prove(p, DR_NONE, a);
    cr_expect(!none.found, "%s: %s", what, none.text);
    for (uint32_t w = 0; w < p->wait.n; w++) {
        const struct dr_race r = dr_plan_prove(p, w, a);
        cr_expect(r.found && r.first == p->wait.at[w].from && r.second == p->wait.at[w].to,
                  "%s, without wait %u: %s", what, w, r.found ? r.text : "no race");
    }
}

Test(examples, a_missing_wait_is_a_race) {
    static const char *const policies[] = {"schedule.policy=stage", "schedule.policy=matching",
                                           "schedule.policy=list"};
    static const char *const depths[] = {"schedule.pipeline=auto", "schedule.pipeline=off"};
    for (int e = 0; e < N_EXAMPLES; e++)
        for (int k = 0; k < 6; k++) {
            const char *const sets[] = {policies[k / 2], depths[k % 2], "schedule.streams=8"};
            struct dr_session *s = planned(examples[e], sets, 3);
            char what[128];
            snprintf(what, sizeof what, "%s %s %s", examples[e], sets[0], sets[1]);
            each_wait_is_needed(s->main.plan, s->arena, what);
            each_wait_is_needed(s->eval.plan, s->arena, what);
            dr_session_destroy(s);
        }
}

static void runs(const char *example, const char *options, const char *says) {
    /* The file that segment_pretrained begins with is another example's result. */
    const bool pretrained = strcmp(example, "segment_pretrained") == 0;
    char args[1024];
    snprintf(args, sizeof args, "%s %s %s/examples/%s.yaml", options,
             pretrained ? "--set subgraphs.encoder.weights=random" : "", DR_SOURCE_DIR, example);
    struct cli_run r = cli_run(DR_BINARY, args);
    cr_expect_eq(r.code, 0, "%s: %s", args, r.err);
    cr_expect(strstr(r.out, says), "%s: %s", args, r.out);
    cli_run_free(&r);
}

Test(examples, check) {
    for (int e = 0; e < N_EXAMPLES; e++)
        runs(examples[e], "--check", "proved free of races");
}

Test(examples, verify) {
    for (int e = 0; e < N_EXAMPLES; e++)
        runs(examples[e], "--verify --steps 3", "equal bit for bit");
}

/* Those that write no files, for an epoch. */
Test(examples, run) {
    static const char *const fileless[] = {"augment",        "branches", "digits",    "resnet18",
                                           "segment_frozen", "siamese",  "two_heads", "unet"};
    for (size_t e = 0; e < sizeof fileless / sizeof *fileless; e++)
        runs(fileless[e], "--set train.epochs=1", "; eval ");
}

static uint32_t node(const struct dr_graph *g, const char *name) {
    uint32_t v = 0;
    while (v < g->node.n && strcmp(g->node.at[v].name, name) != 0)
        v++;
    cr_assert(v < g->node.n, "no node %s", name);
    return v;
}

/* Augment, encoder and decoder on three streams, each a step ahead of the next. */
Test(examples, segment_frozen_is_three_stages) {
    struct dr_session *s = planned("segment_frozen", NULL, 0);
    const struct dr_plan *p = s->main.plan;
    cr_expect(p->n_stages == 3 && p->n_streams == 3);
    static const char *const names[][2] = {{"decoder.d1", "decoder.logits"},
                                           {"encoder.c1", "encoder.c3"},
                                           {"augment.flip", "data.image"}};
    for (uint8_t stage = 0; stage < 3; stage++)
        for (int i = 0; i < 2; i++) {
            const uint32_t v = node(p->g, names[stage][i]);
            cr_expect_eq(p->stage[v], stage, "%s", names[stage][i]);
            cr_expect_eq(p->stream[v], p->stream[node(p->g, names[stage][0])]);
        }
    cr_expect(p->stream[node(p->g, "decoder.d1")] != p->stream[node(p->g, "encoder.c1")] &&
              p->stream[node(p->g, "encoder.c1")] != p->stream[node(p->g, "augment.flip")]);
    dr_session_destroy(s);
}

/* Every branch of both blocks has a stream of its own. */
Test(examples, branches_are_on_separate_streams) {
    struct dr_session *s = planned("branches", NULL, 0);
    const struct dr_plan *p = s->main.plan;
    static const char *const ends[] = {"one", "three", "five", "pooled"};
    for (int block = 0; block < 2; block++) {
        uint32_t used = 0;
        for (int i = 0; i < 4; i++) {
            char name[64];
            snprintf(name, sizeof name, "net.mix.%d.%s", block, ends[i]);
            used |= 1u << p->stream[node(p->g, name)];
        }
        cr_expect_eq(__builtin_popcount(used), 4, "block %d: streams %x", block, used);
    }
    dr_session_destroy(s);
}
