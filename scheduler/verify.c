/* --verify: one seed, two schedules, the same bits.
 *
 * The model runs as planned and then sequentially (one stream, no pipeline) over the same steps;
 * every value that is read back must agree in every step, and every state afterwards, bit for bit.
 * Frozen states must be what they were before. */
#include "scheduler/cli.h"

#include <stdlib.h>
#include <string.h>

struct tape { /* what one run left */
    size_t record_bytes;
    unsigned char *records;   /* [steps * record_bytes] */
    uint64_t *before, *after; /* checksums by value id */
    unsigned char *states;    /* all states, one after another, in id order */
    int64_t steps;
};

static bool keep(const struct dr_record *r, void *ctx) {
    struct tape *t = ctx;
    memcpy(t->records + (size_t)r->step * t->record_bytes, r->base, t->record_bytes);
    return true;
}

static size_t states_bytes(const struct dr_graph *g) {
    size_t n = 0;
    for (uint32_t i = 0; i < g->value.n; i++)
        if (g->value.at[i].kind == DR_STATE)
            n += (size_t)g->value.at[i].bytes;
    return n;
}

static bool save_states(struct dr_session *s, const struct dr_plan *p, struct tape *t) {
    const struct dr_memory m = dr_session_memory(s);
    unsigned char *to = t->states;
    for (uint32_t i = 0; i < p->g->value.n; i++) {
        if (p->g->value.at[i].kind != DR_STATE)
            continue;
        if (!dr_session_check(s, dr_state_download(&m, p, i, to)))
            return false;
        to += p->g->value.at[i].bytes;
    }
    return dr_session_check(s, dr_state_checksums(&m, p, s->arena, &t->after));
}

/* Runs `steps` steps with a plan, from fresh states in a fresh slab. */
static bool record_run(struct dr_session *s, struct dr_plan *plan, int64_t steps,
                       const volatile sig_atomic_t *stop, struct tape *t) {
    struct dr_plan *const planned = s->main.plan;
    s->main.plan = plan;
    bool good = dr_session_start(s, stop);
    int64_t done = 0;
    if (good) {
        const struct dr_memory m = dr_session_memory(s);
        *t = (struct tape){.record_bytes = s->lane.readback.record_bytes, .steps = steps};
        t->records = malloc((size_t)steps * t->record_bytes + 1);
        t->states = malloc(states_bytes(plan->g) + 1);
        good = (t->records && t->states) ||
               dr_session_fail(s, DR_NO_DEVICE, "out of host memory: the runs' records");
        good = good && dr_session_check(s, dr_state_checksums(&m, plan, s->arena, &t->before)) &&
               dr_session_check(s, dr_lane_feed(&s->lane, 0, (uint64_t)steps)) &&
               dr_session_check(s, dr_lane_run(&s->lane, 0, steps, keep, t, &done)) &&
               save_states(s, plan, t);
        if (good && done < steps)
            good = dr_session_fail(s, DR_INTERRUPTED, "interrupted after step %lld of %lld",
                                   (long long)done, (long long)steps);
    }
    dr_lane_close(&s->lane);
    if (s->slab.base)
        s->ops->free(s->device, &s->slab);
    s->main.plan = planned;
    return good;
}

static const char *first_number(struct dr_arena *a, enum dr_dtype t, const void *x, const void *y,
                                size_t i) {
    if (t == DR_F32)
        return dr_printf(a, "%.9g and %.9g", (double)((const float *)x)[i],
                         (double)((const float *)y)[i]);
    if (t == DR_F64)
        return dr_printf(a, "%.17g and %.17g", ((const double *)x)[i], ((const double *)y)[i]);
    return "other bits";
}

static const char *describe(struct dr_arena *a, const struct dr_value *v, const char *where,
                            const unsigned char *x, const unsigned char *y) {
    size_t i = 0;
    const size_t item = dr_dtype_bytes(v->dtype);
    while (!memcmp(x + i * item, y + i * item, item))
        i++;
    return dr_printf(a, "%s: '%s' differs at element %zu: %s (as planned, sequential)", where,
                     v->name, i, first_number(a, v->dtype, x, y, i));
}

static const char *compare_records(struct dr_session *s, const struct tape *a, const struct tape *b,
                                   uint32_t *values) {
    const struct dr_graph *g = s->main.graph;
    if (g->readback == DR_NONE)
        return NULL;
    const struct dr_node *n = &g->node.at[g->readback];
    *values = n->n_in;
    for (int64_t step = 0; step < a->steps; step++) {
        size_t at = (size_t)step * a->record_bytes;
        for (uint32_t i = 0; i < n->n_in; i++) {
            const struct dr_value *v = &g->value.at[n->in[i]];
            if (memcmp(a->records + at, b->records + at, (size_t)v->bytes))
                return describe(s->arena, v, dr_printf(s->arena, "step %lld", (long long)step),
                                a->records + at, b->records + at);
            at += ((size_t)v->bytes + 7) / 8 * 8;
        }
    }
    return NULL;
}

static const char *compare_states(struct dr_session *s, const struct tape *a, const struct tape *b,
                                  struct dr_verify *out) {
    const struct dr_graph *g = s->main.graph;
    size_t at = 0;
    for (uint32_t i = 0; i < g->value.n; i++) {
        const struct dr_value *v = &g->value.at[i];
        if (v->kind != DR_STATE)
            continue;
        out->states++;
        out->frozen += v->frozen;
        if (memcmp(a->states + at, b->states + at, (size_t)v->bytes))
            return describe(s->arena, v, "after the run", a->states + at, b->states + at);
        at += (size_t)v->bytes;
    }
    const struct tape *const runs[] = {a, b};
    for (int i = 0; i < 2; i++) {
        const uint32_t v = dr_state_frozen_changed(s->main.plan, runs[i]->before, runs[i]->after);
        if (v != DR_NONE)
            return dr_printf(s->arena, "%s: the frozen state '%s' has changed",
                             i ? "sequential" : "as planned", g->value.at[v].name);
    }
    return NULL;
}

bool dr_verify(struct dr_session *s, int64_t steps, const volatile sig_atomic_t *stop,
               struct dr_verify *v) {
    *v = (struct dr_verify){.steps = steps};
    const struct dr_plan_wish wish = {
        .pipeline = 0, .streams = 1, .policy = DR_POLICY_SEQUENTIAL, .graph = s->main.wish.graph};
    struct dr_plan *sequential =
        dr_plan_make(s->arena, s->main.graph, &wish, &s->dev, &s->main.too_large);
    struct tape a = {0}, b = {0};
    const bool with_eval = s->with_eval;
    s->with_eval = false; /* one lane is enough */
    const bool good = sequential && record_run(s, s->main.plan, steps, stop, &a) &&
                      record_run(s, sequential, steps, stop, &b);
    s->with_eval = with_eval;
    if (good) {
        v->difference = compare_records(s, &a, &b, &v->values);
        const char *states = compare_states(s, &a, &b, v);
        v->difference = v->difference ? v->difference : states;
    }
    free(a.records);
    free(a.states);
    free(b.records);
    free(b.states);
    return good;
}
