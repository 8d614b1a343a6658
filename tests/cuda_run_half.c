/* Runs in half precision on a device: losses near those of fp32, the same bits under every
 * schedule, gradients that overflow and a scale that recovers. A dry run computes in fp32. */
#include "tests/cuda_run.h"

#include "kernels/guard.h"

#include <math.h>
#include <string.h>

enum { STEPS = 30 };

static const char *open_model(struct runs *r, const char *yaml, const char *precision,
                              const char *more) {
    const char *const sets[] = {dr_printf(arena, "precision=%s", precision), more, NULL};
    const enum dr_dtype want = !strcmp(precision, "fp16")   ? DR_F16
                               : !strcmp(precision, "bf16") ? DR_BF16
                                                            : DR_F32;
    if (!runs_open(r, yaml, DR_MODE_TRAIN, sets))
        WRONG("%s", runs_why(r));
    if (cuda && r->s->main.graph->half != want)
        WRONG("%s: values are stored as %s", precision, dr_dtype_name(r->s->main.graph->half));
    return NULL;
}

static double loss_of(const struct runs *r, const struct runs_tape *t, int64_t step) {
    const float *x = runs_tape_value(r, t, step, r->s->main.graph->total_loss);
    return (double)*x;
}

static const char *sequential(struct runs *r, struct runs_tape *t) {
    const struct dr_plan_wish wish = runs_wish(DR_POLICY_SEQUENTIAL, 1, 0, false);
    const struct dr_plan *p = runs_plan(r, arena, wish);
    return p && runs_once(r, p, NULL, STEPS, t) ? NULL : dr_printf(arena, "%s", runs_why(r));
}

static const char *same_bits(struct runs *r, const struct runs_tape *want) {
    const struct dr_plan_wish wish[] = {
        runs_wish(DR_POLICY_STAGE, DR_AUTO, DR_AUTO, true),
        runs_wish(DR_POLICY_STAGE, DR_AUTO, DR_AUTO, false),
        runs_wish(DR_POLICY_LIST, 8, DR_AUTO, true),
        runs_wish(DR_POLICY_MATCHING, 8, 0, true),
    };
    const char *wrong = NULL;
    for (size_t i = 0; i < sizeof wish / sizeof *wish && !wrong; i++) {
        struct runs_tape got = {0};
        const struct dr_plan *p = runs_plan(r, arena, wish[i]);
        wrong = p && runs_once(r, p, NULL, STEPS, &got) ? runs_difference(r, arena, &got, want)
                                                        : dr_printf(arena, "%s", runs_why(r));
        wrong = wrong ? dr_printf(arena, "%s: %s", runs_wish_text(arena, wish[i]), wrong) : NULL;
        runs_tape_free(&got);
    }
    return wrong;
}

/* The first loss, before anything was learnt, and the mean over the run. */
static const char *near_fp32(const double *loss, const double *full, double first, double mean) {
    double a = 0, b = 0;
    for (int i = 0; i < STEPS; i++)
        a += loss[i] / STEPS, b += full[i] / STEPS;
    if (!(fabs(loss[0] - full[0]) <= first * fabs(full[0])))
        WRONG("the first loss is %.6g, in fp32 %.6g", loss[0], full[0]);
    if (!(fabs(a - b) <= mean * fabs(b)))
        WRONG("the mean loss is %.6g, in fp32 %.6g", a, b);
    say("first loss %.6g (fp32 %.6g), mean %.6g (%.6g)", loss[0], full[0], a, b);
    return NULL;
}

static const char *one_model(const char *yaml) {
    static const char *const precision[] = {"fp32", "fp16", "bf16"};
    static const double first[] = {0, 4e-3, 2e-2}, mean[] = {0, 1e-2, 5e-2};
    double loss[3][STEPS];
    const char *wrong = NULL;
    for (int i = 0; i < 3 && !wrong; i++) {
        struct runs r;
        struct runs_tape t = {0};
        wrong = open_model(&r, yaml, precision[i], NULL);
        wrong = wrong ? wrong : sequential(&r, &t);
        for (int s = 0; s < STEPS && !wrong; s++)
            loss[i][s] = loss_of(&r, &t, s);
        wrong = wrong || i == 0 ? wrong : near_fp32(loss[i], loss[0], first[i], mean[i]);
        wrong = wrong || i == 0 ? wrong : same_bits(&r, &t);
        wrong = wrong ? dr_printf(arena, "%s: %s", precision[i], wrong) : NULL;
        runs_tape_free(&t);
        runs_close(&r);
    }
    return wrong;
}

/* A loss weighted so that fp16's first gradients overflow, however small the batch's. */
static const char *recovers(void) {
    struct runs r;
    struct runs_tape t = {0};
    const char *wrong =
        open_model(&r, runs_classifier, "fp16",
                   "train.losses={ce: {op: cross_entropy, in: [net.logits, label], weight: 1000}}");
    wrong = wrong ? wrong : sequential(&r, &t);
    const struct dr_graph *g = r.s->main.graph;
    int64_t skipped = 0;
    double scale = 65536;
    for (int64_t s = 0; s < STEPS && !wrong && g->loss_scale != DR_NONE; s++) {
        const int64_t *health = runs_tape_value(&r, &t, s, g->health);
        const float *now = runs_tape_value(&r, &t, s, g->loss_scale);
        const bool skip = health[0] == DR_HEALTH_SKIP;
        skipped += skip;
        scale = skip ? scale / 2 : scale;
        if (health[0] == DR_HEALTH_BAD || (double)*now != scale)
            wrong = dr_printf(arena, "step %lld: health %lld, scale %g instead of %g", (long long)s,
                              (long long)health[0], (double)*now, scale);
    }
    if (!wrong && cuda && (skipped == 0 || skipped > STEPS / 2))
        wrong = dr_printf(arena, "%lld of %d steps were skipped", (long long)skipped, STEPS);
    if (!wrong && !isfinite(loss_of(&r, &t, STEPS - 1)))
        wrong = "the last loss is not finite";
    if (!wrong)
        say("fp16: %lld steps skipped, then a scale of %g", (long long)skipped, scale);
    wrong = wrong ? wrong : same_bits(&r, &t);
    runs_tape_free(&t);
    runs_close(&r);
    return wrong;
}

const char *half_runs(void) {
    const char *wrong = one_model(runs_classifier);
    wrong = wrong ? wrong : one_model(runs_segment);
    wrong = wrong ? wrong : one_model(runs_branches);
    return wrong ? wrong : recovers();
}
