/* Running a plan over a range of steps: loader, launches, records. See lane.h. */
#include "scheduler/lane.h"

#include "graph/builtin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double dr_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct dr_status fail(enum dr_exit code, const char *fmt, const char *arg) {
    struct dr_status s = {.code = code, .node = DR_NONE};
    snprintf(s.text, sizeof s.text, fmt, arg);
    return s;
}

static struct dr_status ok(void) {
    return (struct dr_status){.code = DR_OK, .node = DR_NONE};
}

/* ---- records ---- */

const void *dr_record_value(const struct dr_record *r, uint32_t value) {
    const struct dr_graph *g = r->plan->g;
    const struct dr_node *n = &g->node.at[g->readback];
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i] == value)
            return r->base + r->at->offset[i];
    return NULL;
}

static bool record_there(const struct dr_lane *l, uint64_t step) {
    return atomic_load_explicit(&l->readback.done[step % l->readback.slots],
                                memory_order_acquire) == step + 1;
}

/* Also where a later record has taken its place. */
static bool was_there(const struct dr_lane *l, uint64_t step) {
    return atomic_load_explicit(&l->readback.done[step % l->readback.slots], memory_order_acquire) >
           step;
}

/* The executor's callback: a slot was released or a record was done. */
static void moved(void *ctx) {
    struct dr_lane *l = ctx;
    pthread_mutex_lock(&l->lock);
    while (l->stamped < l->n_stamps && was_there(l, l->stamped))
        l->stamp_s[l->stamped++] = dr_now_s();
    pthread_cond_broadcast(&l->moved);
    if (l->loader)
        dr_loader_wake(l->loader);
    pthread_mutex_unlock(&l->lock);
}

/* ---- opening ---- */

void dr_lane_want(const struct dr_graph *g, struct dr_column_want *want) {
    for (uint32_t i = 0; i < g->input.n; i++)
        want[i] = (struct dr_column_want){.input = DR_NONE};
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        const struct dr_data_attrs *a = n->attrs;
        if (n->role != DR_ROLE_DATA || a->input == DR_NONE)
            continue;
        const struct dr_value *v = &g->value.at[n->out[0]];
        want[a->input] = (struct dr_column_want){
            .input = a->input,
            .dtype = v->dtype,
            .shape = v->shape,
            .classes = v->classes,
            .ignore = v->ignored,
        };
    }
}

/* Blocks b - 1 and b may be under way, and the slot of a step is released by the data node with
 * the lowest stage: two blocks and the spread of stages must fit, with room for the loader. */
static uint32_t ring_slots(const struct dr_plan *p) {
    uint32_t low = DR_MAX_STAGE, high = 0;
    for (uint32_t i = 0; i < p->n_nodes; i++)
        if (p->g->node.at[i].role == DR_ROLE_DATA) {
            low = p->stage[i] < low ? p->stage[i] : low;
            high = p->stage[i] > high ? p->stage[i] : high;
        }
    const uint32_t least = 2 * p->unroll + (high > low ? high - low : 0);
    return p->ring_slots > least ? p->ring_slots : least;
}

static bool make_ring(struct dr_lane *l) {
    const struct dr_plan *p = l->c.plan;
    l->n_want = p->g->input.n;
    l->want = DR_NEW_N(l->arena, struct dr_column_want, l->n_want + 1);
    dr_lane_want(p->g, l->want);
    dr_ring_layout(l->arena, &l->ring, l->want, l->n_want, p->g->batch);
    l->ring.slots = ring_slots(p);
    l->ring.base = l->c.ops->host_alloc(l->c.device, l->ring.slots * l->ring.slot_bytes);
    const size_t tags = l->ring.slots * sizeof *l->ring.filled;
    l->ring.filled = l->c.ops->host_alloc(l->c.device, tags);
    l->ring.released = l->c.ops->host_alloc(l->c.device, tags);
    return l->ring.base && l->ring.filled && l->ring.released;
}

static bool make_readback(struct dr_lane *l) {
    const struct dr_graph *g = l->c.plan->g;
    if (g->readback == DR_NONE)
        return true;
    const struct dr_node *n = &g->node.at[g->readback];
    size_t *offset = DR_NEW_N(l->arena, size_t, n->n_in + 1);
    size_t at = 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        offset[i] = at;
        at += ((size_t)g->value.at[n->in[i]].bytes + 7) / 8 * 8;
    }
    struct dr_readback *r = &l->readback;
    r->slots = 4 * l->c.plan->unroll;
    r->record_bytes = at;
    r->offset = offset;
    r->base = l->c.ops->host_alloc(l->c.device, r->slots * (at ? at : 8));
    r->done = l->c.ops->host_alloc(l->c.device, r->slots * sizeof *r->done);
    return r->base && r->done;
}

struct dr_status dr_lane_open(struct dr_lane *l, const struct dr_lane_config *c) {
    *l = (struct dr_lane){.c = *c, .arena = dr_arena_create(), .ready = true};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!make_ring(l) || !make_readback(l))
        return fail(DR_NO_DEVICE, "out of host memory: %s", "the input ring");
    const struct dr_exec_config config = {
        .plan = c->plan,
        .dev = c->dev,
        .slab = c->slab,
        .ring = &l->ring,
        .readback = c->plan->g->readback == DR_NONE ? NULL : &l->readback,
        .seed = c->seed,
        .device = c->device,
        .progress = moved,
        .progress_ctx = l,
        .delay_us = c->delay_us,
        .trace = c->trace,
    };
    return c->ops->create(&config, &l->exec);
}

static void stop_loader(struct dr_lane *l) {
    pthread_mutex_lock(&l->lock);
    struct dr_loader *loader = l->loader;
    l->loader = NULL;
    pthread_mutex_unlock(&l->lock);
    if (loader)
        l->waited_s += dr_loader_waited_s(loader);
    dr_loader_stop(loader);
}

void dr_lane_close(struct dr_lane *l) {
    if (!l->ready)
        return;
    if (l->exec)
        l->c.ops->destroy(l->exec);
    stop_loader(l);
    void *const blocks[] = {l->ring.base, (void *)l->ring.filled, (void *)l->ring.released,
                            l->readback.base, (void *)l->readback.done};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (blocks[i])
            l->c.ops->host_free(l->c.device, blocks[i]);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->moved);
    free(l->stamp_s);
    free(l->launch_s);
    dr_arena_destroy(l->arena);
    *l = (struct dr_lane){0};
}

double dr_lane_waited_s(const struct dr_lane *l) {
    return l->waited_s + (l->loader ? dr_loader_waited_s(l->loader) : 0);
}

/* ---- running ---- */

struct dr_status dr_lane_feed(struct dr_lane *l, uint64_t first, uint64_t end) {
    stop_loader(l);
    /* Tags as if every step below `first` had come and gone. */
    for (uint32_t i = 0; i < l->ring.slots; i++) {
        const uint64_t laps = (first + l->ring.slots - 1 - i) / l->ring.slots;
        const uint64_t tag = laps ? (laps - 1) * l->ring.slots + i + 1 : 0;
        atomic_store(&l->ring.filled[i], tag);
        atomic_store(&l->ring.released[i], tag);
    }
    for (uint32_t i = 0; i < l->readback.slots; i++)
        atomic_store(&l->readback.done[i], 0);
    struct dr_loader *loader = dr_loader_start(l->c.data, l->want, l->n_want, &l->ring, l->c.seed,
                                               first, end, l->c.loader_threads);
    pthread_mutex_lock(&l->lock);
    l->loader = loader;
    l->loader_end = end;
    pthread_mutex_unlock(&l->lock);
    return loader ? ok() : fail(DR_NO_DEVICE, "%s", "the loader's threads could not be started");
}

struct drive {
    struct dr_lane *l;
    int64_t s0, s1, loaded, collected;
    int64_t data_stage, readback_stage; /* highest; of the readback node */
    dr_on_record *on_record;
    void *ctx;
    bool stopped;
};

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* A device that has failed calls nobody back: after this long without news it is asked. */
#define PATIENCE_S 1

static struct dr_status wait_for_batches(struct drive *d, int64_t end) {
    struct dr_lane *l = d->l;
    for (; d->loaded < end; d->loaded++) {
        const uint64_t step = (uint64_t)d->loaded;
        const char *why = NULL;
        while (!dr_loader_wait_for(l->loader, step, PATIENCE_S)) {
            struct dr_status s;
            const bool idle = l->c.ops->idle(l->exec, &s);
            if (s.code != DR_OK)
                return s;
            if (idle && dr_loader_starves(l->loader))
                return fail(DR_FAILED, "internal: %s has released no slot of the input ring",
                            l->c.dev->name);
        }
        if (!dr_loader_wait(l->loader, step, &why))
            return fail(DR_FAILED, "data: %s", why ? why : "a batch could not be loaded");
    }
    return ok();
}

static struct dr_status wait_for_record(struct dr_lane *l, uint64_t step) {
    struct dr_status s = ok();
    pthread_mutex_lock(&l->lock);
    while (s.code == DR_OK && !record_there(l, step)) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += PATIENCE_S;
        if (!pthread_cond_timedwait(&l->moved, &l->lock, &until))
            continue;
        pthread_mutex_unlock(&l->lock); /* the executor's callback takes it */
        const bool idle = l->c.ops->idle(l->exec, &s);
        if (idle && s.code == DR_OK && !record_there(l, step))
            s = fail(DR_FAILED, "internal: %s has not recorded a step that is over",
                     l->c.dev->name);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return s;
}

/* Waits for the records below `end` and hands them on. */
static struct dr_status collect(struct drive *d, int64_t end) {
    struct dr_lane *l = d->l;
    for (; d->collected < end; d->collected++) {
        const uint64_t step = (uint64_t)d->collected;
        if (!record_there(l, step)) {
            const struct dr_status s = wait_for_record(l, step);
            if (s.code != DR_OK)
                return s;
        }
        const struct dr_record r = {
            .plan = l->c.plan,
            .at = &l->readback,
            .base = l->readback.base + step % l->readback.slots * l->readback.record_bytes,
            .step = d->collected,
        };
        if (d->on_record && !d->stopped && !d->on_record(&r, d->ctx))
            d->stopped = true;
    }
    return ok();
}

static struct dr_status launch(struct dr_lane *l, int64_t b, int64_t s0, int64_t s1) {
    if (!l->launch_s || b < 0 || (uint64_t)b >= l->n_launches)
        return l->c.ops->launch(l->exec, b, s0, s1);
    const double start = dr_now_s();
    const struct dr_status s = l->c.ops->launch(l->exec, b, s0, s1);
    l->launch_s[b] = dr_now_s() - start;
    return s;
}

static struct dr_status launch_all(struct drive *d, int64_t b, int64_t last, int64_t *executed) {
    struct dr_lane *l = d->l;
    const int64_t u = l->c.plan->unroll;
    const bool records = l->c.plan->g->readback != DR_NONE;
    for (; b <= last && !d->stopped; b++) {
        struct dr_status s = ok();
        if (records) /* those of block b - 2: its last slot is (b - 1) * u - 1 */
            s = collect(d, least(d->s1, (b - 1) * u + d->readback_stage));
        if (d->stopped || (l->c.stop && *l->c.stop))
            break;
        if (s.code == DR_OK)
            s = wait_for_batches(d, least(d->s1, (b + 1) * u + d->data_stage));
        if (s.code == DR_OK)
            s = launch(l, b, d->s0, d->s1);
        if (s.code != DR_OK)
            return s;
        *executed = least(d->s1, (b + 1) * u);
    }
    return ok();
}

struct dr_status dr_lane_run(struct dr_lane *l, int64_t s0, int64_t s1, dr_on_record *on_record,
                             void *ctx, int64_t *done) {
    const struct dr_plan *p = l->c.plan;
    struct drive d = {.l = l, .s0 = s0, .s1 = s1, .loaded = s0, .collected = s0};
    d.on_record = on_record;
    d.ctx = ctx;
    int64_t high = 0, low = DR_MAX_STAGE;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const int64_t stage = p->stage[i];
        high = stage > high ? stage : high;
        low = least(low, stage);
        if (p->g->node.at[i].role == DR_ROLE_DATA && stage > d.data_stage)
            d.data_stage = stage;
    }
    if (p->g->readback != DR_NONE)
        d.readback_stage = p->stage[p->g->readback];
    int64_t executed = s0;
    struct dr_status s = {.code = DR_OK, .node = DR_NONE};
    if (s0 < s1 && p->n_nodes)
        s = launch_all(&d, floor_div(s0 - high, p->unroll), floor_div(s1 - 1 - low, p->unroll),
                       &executed);
    struct dr_status t = l->c.ops->drain(l->exec);
    executed = executed < s0 ? s0 : executed;
    if (p->g->readback != DR_NONE && t.code == DR_OK)
        t = collect(&d, least(s1, executed + d.readback_stage));
    *done = executed;
    return s.code != DR_OK ? s : t;
}

struct dr_status dr_lane_recheck(struct dr_lane *l, int64_t step, uint32_t *node,
                                 const struct dr_batch **batch) {
    stop_loader(l);
    unsigned char *slot = l->ring.base + (uint64_t)step % l->ring.slots * l->ring.slot_bytes;
    const char *why =
        dr_dataset_batch(l->c.data, l->want, l->n_want, &l->ring, l->c.seed, (uint64_t)step, slot);
    if (why)
        return fail(DR_FAILED, "data: %s", why);
    *batch = (const struct dr_batch *)(slot + l->ring.offset[l->n_want]);
    return l->c.ops->step_checked(l->exec, step, node);
}
