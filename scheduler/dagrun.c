/* The embedding API over a session. */
#include "scheduler/dagrun.h"

#include "scheduler/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct dagrun {
    struct dr_session *s;
    struct dagrun_options o;
    struct dr_results r;
    volatile sig_atomic_t stop;
    bool ran;
    struct dr_text plan;
};

static int say(const struct dr_session *s, char *why, size_t why_bytes) {
    if (why && why_bytes)
        snprintf(why, why_bytes, "%s",
                 s->status.code != DR_OK ? s->status.text : dr_diag_text(s->diag));
    return (int)dr_session_exit(s);
}

struct dagrun *dagrun_open(const char *yaml, const struct dagrun_options *options, char *why,
                           size_t why_bytes) {
    const struct dagrun_options o = options ? *options : (struct dagrun_options){0};
    struct dr_session *s = dr_session_create();
    struct dagrun *d = DR_NEW(s->arena, struct dagrun);
    d->s = s;
    d->o = o;
    bool good = dr_session_load(s, yaml, o.set, (uint32_t)o.n_set) &&
                dr_session_device(s, o.device, o.threads);
    if (good) {
        const enum dr_graph_mode mode = s->model->train.present ? DR_MODE_TRAIN : DR_MODE_INFER;
        good = dr_session_data(s, mode) && dr_session_plan(s, mode, NULL, NULL) &&
               dr_session_start(s, &d->stop);
    }
    if (good)
        return d;
    say(s, why, why_bytes);
    dr_session_destroy(s);
    return NULL;
}

void dagrun_close(struct dagrun *d) {
    if (d)
        dr_session_destroy(d->s); /* d is in its arena */
}

const char *dagrun_plan(struct dagrun *d) {
    if (!d->plan.at) {
        d->plan.arena = d->s->arena;
        dr_plan_text(d->s->main.plan, &d->s->dev, 0, &d->plan);
    }
    return d->plan.at;
}

static void on_step(void *ctx, int64_t step, const struct dr_tally *t) {
    struct dagrun *d = ctx;
    if (d->o.on_step && d->o.on_step(d->o.ctx, step, t->total_last))
        d->stop = 1;
}

int dagrun_run(struct dagrun *d, char *why, size_t why_bytes) {
    const struct dr_watcher w = {.step = on_step, .ctx = d};
    if (d->ran)
        dr_session_fail(d->s, DR_FAILED, "this handle has run already: open the file again");
    else if (dr_run(d->s, 0, &w, &d->r) || (d->stop && d->s->status.code == DR_INTERRUPTED))
        d->s->status.code = DR_OK; /* the caller asked for the stop */
    d->ran = true;
    return d->s->status.code == DR_OK ? 0 : say(d->s, why, why_bytes);
}

static double find(const struct dr_number *n, uint32_t count, const char *name) {
    for (uint32_t i = 0; i < count; i++)
        if (!strcmp(n[i].name, name))
            return n[i].mean;
    return (double)NAN;
}

double dagrun_loss(const struct dagrun *d, const char *name) {
    const struct dr_tally *t = d->s->mode == DR_MODE_TRAIN ? &d->r.train : &d->r.eval;
    const double x = find(t->loss, t->n_losses, name);
    return isnan(x) && d->ran && !strcmp(name, "total") ? t->total_mean : x;
}

double dagrun_metric(const struct dagrun *d, const char *name) {
    return d->r.evaluated ? find(d->r.eval.metric, d->r.eval.n_metrics, name) : (double)NAN;
}

int64_t dagrun_steps(const struct dagrun *d) {
    return d->r.steps;
}

size_t dagrun_weight(struct dagrun *d, const char *name, float *to, size_t n) {
    const struct dr_graph *g = d->s->main.graph;
    const uint32_t id = dr_map_get(g->value_by_name, name);
    if (id == DR_NONE || g->value.at[id].kind != DR_STATE || g->value.at[id].dtype != DR_F32)
        return 0;
    const size_t elements = (size_t)g->value.at[id].bytes / sizeof *to;
    const struct dr_memory m = dr_session_memory(d->s);
    if (n < elements)
        return elements;
    return dr_state_download(&m, d->s->main.plan, id, to).code == DR_OK ? elements : 0;
}
