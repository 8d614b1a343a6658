/* The run loop: epochs, evaluations, results, and what happens when a loss is not finite. */
#include "scheduler/run.h"

#include "kernels/guard.h"
#include "scheduler/keep.h"
#include "scheduler/outputs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- numbers ---- */

static uint32_t partial_items(const struct dr_graph *g, uint32_t term) {
    const struct dr_value *v = &g->value.at[g->term.at[term].partial];
    return (uint32_t)(v->bytes / (int64_t)sizeof(double));
}

static void tally_init(struct dr_tally *t, const struct dr_graph *g, struct dr_arena *a) {
    *t = (struct dr_tally){.g = g};
    t->loss = DR_NEW_N(a, struct dr_number, g->term.n + 1);
    t->metric = DR_NEW_N(a, struct dr_number, g->term.n + 1);
    t->sum = DR_NEW_N(a, double *, g->term.n + 1);
    for (uint32_t i = 0; i < g->term.n; i++) {
        struct dr_number *n =
            g->term.at[i].metric ? &t->metric[t->n_metrics++] : &t->loss[t->n_losses++];
        *n = (struct dr_number){.name = g->term.at[i].name, .last = NAN, .mean = NAN};
        t->sum[i] = DR_NEW_N(a, double, partial_items(g, i) + 1);
    }
    t->total_last = t->total_mean = NAN;
}

static void tally_reset(struct dr_tally *t) {
    for (uint32_t i = 0; i < t->g->term.n; i++)
        memset(t->sum[i], 0, partial_items(t->g, i) * sizeof(double));
    t->steps = 0;
}

/* Loss scaling updates nothing in this step, and goes on with a smaller scale. */
static bool is_skipped(const struct dr_record *r) {
    const struct dr_graph *g = r->plan->g;
    const int64_t *health = g->health == DR_NONE ? NULL : dr_record_value(r, g->health);
    return health && health[0] == DR_HEALTH_SKIP;
}

static void tally_add(struct dr_tally *t, const struct dr_record *r) {
    const float *total = t->g->total_loss == DR_NONE ? NULL : dr_record_value(r, t->g->total_loss);
    const bool void_step = is_skipped(r) && total && !isfinite(*total);
    uint32_t loss = 0;
    for (uint32_t i = 0; i < t->g->term.n; i++) {
        const struct dr_term *term = &t->g->term.at[i];
        const double *partial = dr_record_value(r, term->partial);
        for (uint32_t k = 0; partial && !void_step && k < partial_items(t->g, i); k++)
            t->sum[i][k] += partial[k];
        if (term->metric)
            continue;
        const float *scalar = dr_record_value(r, term->scalar);
        const struct dr_node *n = &t->g->node.at[term->node];
        t->loss[loss++].last = scalar    ? (double)*scalar
                               : partial ? n->op->finish(n->attrs, partial, partial_items(t->g, i))
                                         : (double)NAN;
    }
    t->total_last = total ? (double)*total : (double)NAN;
    t->steps += !void_step;
}

/* Fills the means; adding may go on. */
static void tally_finish(struct dr_tally *t) {
    uint32_t loss = 0, metric = 0;
    double total = 0;
    for (uint32_t i = 0; i < t->g->term.n; i++) {
        const struct dr_term *term = &t->g->term.at[i];
        const struct dr_node *n = &t->g->node.at[term->node];
        const double mean =
            t->steps ? n->op->finish(n->attrs, t->sum[i], partial_items(t->g, i)) : (double)NAN;
        if (term->metric) {
            t->metric[metric++].mean = mean;
        } else {
            t->loss[loss++].mean = mean;
            total += term->weight * mean;
        }
    }
    t->total_mean = loss ? total : (double)NAN;
}

/* ---- one pass of a lane ---- */

struct pass {
    struct dr_session *s;
    const struct dr_watcher *w;
    struct dr_tally *tally;
    struct dr_keep *keep;             /* training; NULL */
    struct dr_outputs_files *outputs; /* inference; NULL */
    struct dr_results *results;       /* training; NULL */
    int64_t bad_step;                 /* -1: all finite */
    int64_t batches;                  /* training: epochs are reported; 0 */
    int64_t end;
};

static bool on_record(const struct dr_record *r, void *ctx) {
    struct pass *p = ctx;
    const struct dr_graph *g = r->plan->g;
    const int64_t *health = g->health == DR_NONE ? NULL : dr_record_value(r, g->health);
    if (health && health[0] == DR_HEALTH_BAD) {
        p->bad_step = health[1];
        return false;
    }
    if (p->results && g->loss_scale != DR_NONE) {
        const float *scale = dr_record_value(r, g->loss_scale);
        p->results->loss_scale = (double)*scale;
        p->results->skipped += is_skipped(r);
    }
    if (p->w && p->w->record && !p->w->record(p->w->ctx, r))
        return false;
    tally_add(p->tally, r);
    if (p->outputs && !dr_outputs_add(p->outputs, r))
        return false;
    if (!p->batches)
        return true;
    dr_keep_step(p->keep, r->step, p->tally);
    if (p->w && p->w->step)
        p->w->step(p->w->ctx, r->step, p->tally);
    const int64_t steps = r->step + 1;
    if (steps % p->batches == 0 || steps == p->end) {
        tally_finish(p->tally);
        if (p->w && p->w->epoch)
            p->w->epoch(p->w->ctx, (steps - 1) / p->batches, steps, p->tally);
        if (steps % p->batches == 0) /* else a checkpoint wants the sums */
            tally_reset(p->tally);
    }
    return true;
}

static bool report_bad_step(struct dr_session *s, int64_t step) {
    uint32_t node = DR_NONE;
    const struct dr_batch *b = NULL;
    if (!dr_session_check(s, dr_lane_recheck(&s->lane, step, &node, &b)))
        return false;
    char samples[160];
    size_t at = 0;
    uint32_t shown = 0;
    samples[0] = 0;
    for (; shown < b->n_valid && shown < 8; shown++)
        at += (size_t)snprintf(samples + at, sizeof samples - at, "%s%llu", shown ? ", " : "",
                               (unsigned long long)b->sample[shown]);
    if (b->n_valid > shown)
        snprintf(samples + at, sizeof samples - at, " and %u more", b->n_valid - shown);
    const char *name = node == DR_NONE ? NULL : s->main.graph->node.at[node].name;
    const bool scaled = s->main.graph->loss_scale != DR_NONE;
    dr_session_fail(s, DR_FAILED, "step %lld: the loss%s is not finite%s; %s%s%s; samples %s",
                    (long long)step, scaled ? " or a gradient" : "",
                    scaled ? ", at the least loss scale" : "",
                    name ? "first at node '" : "no node's values are at fault", name ? name : "",
                    name ? "'" : "", samples);
    s->status.node = node;
    return false;
}

static bool evaluate(struct dr_session *s, int64_t steps, const struct dr_watcher *w,
                     struct dr_results *r) {
    const int64_t batches = dr_dataset_batches(s->eval_data);
    struct pass p = {.s = s, .tally = &r->eval, .bad_step = -1};
    int64_t done;
    tally_reset(&r->eval);
    if (!dr_session_check(s, dr_lane_feed(&s->eval_lane, 0, (uint64_t)batches)) ||
        !dr_session_check(s, dr_lane_run(&s->eval_lane, 0, batches, on_record, &p, &done)))
        return false;
    if (done < batches)
        return dr_session_fail(s, DR_INTERRUPTED, "interrupted in the evaluation after step %lld",
                               (long long)steps);
    tally_finish(&r->eval);
    r->evaluated = true;
    if (w && w->evaluated)
        w->evaluated(w->ctx, steps, &r->eval);
    return true;
}

/* ---- the whole run ---- */

/* Steps between evaluations; 0: none. */
static int64_t eval_period(const struct dr_session *s) {
    if (!s->with_eval)
        return 0;
    return s->model->eval.every_steps > 0 ? s->model->eval.every_steps
                                          : s->model->eval.every_epochs * s->batches;
}

static bool train(struct dr_session *s, int64_t steps, const struct dr_watcher *w,
                  struct dr_keep *keep, struct dr_results *r) {
    const int64_t period = eval_period(s);
    struct pass p = {.s = s, .w = w, .tally = &r->train, .bad_step = -1, .end = steps};
    p.batches = s->batches;
    p.keep = keep;
    p.results = r;
    if (!dr_session_check(s, dr_lane_feed(&s->lane, (uint64_t)r->first, (uint64_t)steps)))
        return false;
    while (r->steps < steps) {
        int64_t end = steps;
        if (period && period - r->steps % period < steps - r->steps)
            end = r->steps + period - r->steps % period;
        int64_t done = r->steps;
        const double start = dr_now_s();
        const bool good =
            dr_session_check(s, dr_lane_run(&s->lane, r->steps, end, on_record, &p, &done));
        r->seconds += dr_now_s() - start;
        r->steps = p.bad_step >= 0 ? p.bad_step : done;
        if (!good)
            return false;
        if (p.bad_step >= 0)
            return report_bad_step(s, p.bad_step);
        if (done < end)
            return dr_session_fail(s, DR_INTERRUPTED, "interrupted after step %lld of %lld",
                                   (long long)done, (long long)steps);
        if (period && !(evaluate(s, r->steps, w, r) && dr_keep_evaluated(keep, &r->eval)))
            return false;
    }
    return true;
}

static bool train_and_keep(struct dr_session *s, int64_t steps, const struct dr_watcher *w,
                           struct dr_results *r) {
    struct dr_keep keep;
    bool good = dr_keep_open(&keep, s, r);
    const bool opened = good;
    good = good && train(s, steps, w, &keep, r);
    const struct dr_status why = s->status;
    const bool save = opened && (good || why.code == DR_INTERRUPTED);
    if (!dr_keep_close(&keep, r, save))
        return false;
    s->status = why;
    return good;
}

static bool pass_over(struct dr_session *s, int64_t steps, const struct dr_watcher *w,
                      struct dr_results *r) {
    struct pass p = {.s = s, .w = w, .tally = &r->eval, .bad_step = -1};
    if (s->mode == DR_MODE_INFER && !(p.outputs = dr_outputs_open(s)))
        return false;
    bool good = dr_session_check(s, dr_lane_feed(&s->lane, 0, (uint64_t)steps));
    const double start = dr_now_s();
    good = good && dr_session_check(s, dr_lane_run(&s->lane, 0, steps, on_record, &p, &r->steps));
    r->seconds = dr_now_s() - start;
    tally_finish(&r->eval);
    good = good && s->status.code == DR_OK; /* an output could be written */
    r->evaluated = good && r->steps == steps;
    good = dr_outputs_close(p.outputs, r->evaluated) && good;
    if (!good)
        return false;
    if (!r->evaluated)
        return dr_session_fail(s, DR_INTERRUPTED, "interrupted after batch %lld of %lld",
                               (long long)r->steps, (long long)steps);
    if (w && w->evaluated)
        w->evaluated(w->ctx, steps, &r->eval);
    return true;
}

bool dr_run(struct dr_session *s, int64_t steps, const struct dr_watcher *w, struct dr_results *r) {
    const struct dr_memory m = dr_session_memory(s);
    uint64_t *before, *after;
    *r = (struct dr_results){0};
    tally_init(&r->train, s->main.graph, s->arena);
    tally_init(&r->eval, s->with_eval ? s->eval.graph : s->main.graph, s->arena);
    steps = steps ? steps : s->total_steps;
    r->first = r->steps = s->mode == DR_MODE_TRAIN ? s->first_step : 0;
    if (!dr_session_check(s, dr_state_checksums(&m, s->main.plan, s->arena, &before)))
        return false;
    const bool good =
        s->mode == DR_MODE_TRAIN ? train_and_keep(s, steps, w, r) : pass_over(s, steps, w, r);
    if (r->train.steps) /* an epoch was cut short */
        tally_finish(&r->train);
    const struct dr_status why = s->status;
    if (!dr_session_check(s, dr_state_checksums(&m, s->main.plan, s->arena, &after)))
        return false;
    const uint32_t changed = dr_state_frozen_changed(s->main.plan, before, after);
    if (changed != DR_NONE)
        return dr_session_fail(s, DR_NOT_VERIFIED,
                               "internal: the run changed the frozen state '%s'",
                               s->main.graph->value.at[changed].name);
    s->status = why;
    return good;
}
