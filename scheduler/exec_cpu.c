/* The CPU executor: one worker thread a stream walks the plan, a block at a time.
 *
 * Waits are counting events: a node that others wait for counts the slots it has completed (active
 * or not), a waiter sleeps until the count is there. Every block ends in a barrier of all workers;
 * blocks queue up behind it, so a worker goes from one to the next without the host. Pointers are
 * resolved once, in create; nothing allocates afterwards.
 *
 * Work inside a node runs on one pthreadpool that all streams share, and is split by shape (see
 * kernels/cpu/cpu.h), so results depend neither on threads nor on the schedule. */
#include "scheduler/exec.h"

#include "graph/builtin.h"
#include "kernels/cpu/cpu.h"
#include "scheduler/cpu_info.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void openblas_set_num_threads(int n); /* cblas.h would bring all of BLAS in */

enum { QUEUE = 4, SPINS = 200 };

struct device {
    struct dr_cpu cpu;
    uint32_t threads;
    char name[64];
};

/* Sleeping place of those who wait for nodes of one stream. */
struct bell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
    _Atomic uint32_t sleepers;
};

struct block {
    int64_t b, s0, s1;
    bool whole; /* looked at only where a trace is made */
};

struct exec;
struct worker {
    struct exec *e;
    uint32_t stream;
    pthread_t thread;
};

struct exec {
    struct dr_exec base;
    struct dr_exec_config c;
    const struct dr_plan *p;
    struct dr_cpu *cpu;
    void **pointer;           /* [unroll * n_operands] */
    struct dr_launch *launch; /* [unroll * n_nodes] */
    _Atomic uint64_t *count;  /* [n_nodes] slots completed since create */
    bool *source;             /* [n_nodes] somebody waits for it */
    struct bell *bell;        /* [n_streams] */
    struct worker *worker;    /* [n_streams] */
    uint32_t n_started;
    bool spin;
    uint8_t traced; /* the plan's number in the trace */

    uint32_t n_data;         /* data nodes: the last one of a step releases its ring slot */
    _Atomic uint32_t *taken; /* [ring->slots] data nodes that have read the slot */

    pthread_mutex_t lock; /* of the queue and the barrier */
    pthread_cond_t work, done;
    struct block queue[QUEUE];
    uint64_t launched, finished; /* blocks, since create */
    uint32_t arrived;            /* workers at the barrier of block `finished` */
    bool quit;
};

static struct dr_status ok(void) {
    return (struct dr_status){.code = DR_OK, .node = DR_NONE};
}

static struct dr_status no_memory(const char *what) {
    struct dr_status s = {.code = DR_NO_DEVICE, .node = DR_NONE};
    snprintf(s.text, sizeof s.text, "out of host memory: %s", what);
    return s;
}

/* ---- the device ---- */

static struct dr_status cpu_open(void **device, const char *which, uint32_t threads,
                                 struct dr_device_info *info) {
    (void)which;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t cores = online > 0 ? (uint32_t)online : 1;
    struct device *d = calloc(1, sizeof *d);
    if (!d)
        return no_memory("device");
    d->threads = threads ? threads : cores;
    if (d->threads > 1) {
        d->cpu.pool = pthreadpool_create(d->threads);
        if (!d->cpu.pool) {
            free(d);
            return no_memory("thread pool");
        }
    }
    openblas_set_num_threads(1); /* its own threads would split sums by thread count */
    snprintf(d->name, sizeof d->name, "cpu: %u thread%s", d->threads, d->threads == 1 ? "" : "s");
    *info = (struct dr_device_info){.name = d->name, .threads = d->threads, .launch_us = 0.2};
    dr_cpu_ceilings(cores, &info->flops_per_s, &info->bytes_per_s, &info->memory_bytes);
    *device = d;
    return ok();
}

static void cpu_close(void *device) {
    struct device *d = device;
    if (!d)
        return;
    pthreadpool_destroy(d->cpu.pool);
    free(d);
}

static void *zeroed(size_t bytes) {
    const size_t room = (bytes + DR_ALIGN - 1) / DR_ALIGN * DR_ALIGN;
    if (room < bytes)
        return NULL;
    void *p = aligned_alloc(DR_ALIGN, room ? room : DR_ALIGN);
    if (p)
        memset(p, 0, room ? room : DR_ALIGN);
    return p;
}

static struct dr_status cpu_alloc(void *device, uint64_t bytes, struct dr_slab *slab) {
    (void)device;
    slab->bytes = bytes;
    slab->base = zeroed(bytes);
    return slab->base ? ok() : no_memory("the plan's memory");
}

static void cpu_free(void *device, struct dr_slab *slab) {
    (void)device;
    free(slab->base);
    *slab = (struct dr_slab){0};
}

static void *cpu_host_alloc(void *device, size_t bytes) {
    (void)device;
    return zeroed(bytes);
}

static void cpu_host_free(void *device, void *p) {
    (void)device;
    free(p);
}

static struct dr_status cpu_copy(void *device, void *to, const void *from, size_t bytes) {
    (void)device;
    memcpy(to, from, bytes);
    return ok();
}

/* ---- events ---- */

static void ring_bell(struct bell *b) {
    if (!atomic_load(&b->sleepers))
        return;
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->rung);
    pthread_mutex_unlock(&b->lock);
}

/* Sleeper and bell ringer form Dekker's pattern: both sides are sequentially consistent, so either
 * the ringer sees the sleeper or the sleeper sees the count. */
static void wait_for(struct exec *e, uint32_t node, uint64_t target) {
    for (int i = 0; e->spin && i < SPINS; i++) {
        if (atomic_load_explicit(&e->count[node], memory_order_acquire) >= target)
            return;
        sched_yield();
    }
    if (atomic_load_explicit(&e->count[node], memory_order_acquire) >= target)
        return;
    struct bell *b = &e->bell[e->p->stream[node]];
    pthread_mutex_lock(&b->lock);
    atomic_fetch_add(&b->sleepers, 1);
    while (atomic_load(&e->count[node]) < target)
        pthread_cond_wait(&b->rung, &b->lock);
    atomic_fetch_sub(&b->sleepers, 1);
    pthread_mutex_unlock(&b->lock);
}

static void signal_done(struct exec *e, uint32_t node, uint64_t count) {
    if (!e->source[node])
        return;
    atomic_store(&e->count[node], count);
    ring_bell(&e->bell[e->p->stream[node]]);
}

/* ---- one node ---- */

static void progress(struct exec *e) {
    if (e->c.progress)
        e->c.progress(e->c.progress_ctx);
}

static void run_data(struct exec *e, const struct dr_launch *l, int64_t step) {
    const struct dr_ring *r = e->c.ring;
    const struct dr_data_attrs *a = l->node->attrs;
    const uint32_t input = a->input == DR_NONE ? e->p->g->input.n : a->input;
    const size_t slot = (size_t)((uint64_t)step % r->slots);
    memcpy(l->out[0], r->base + slot * r->slot_bytes + r->offset[input],
           (size_t)l->value[l->node->out[0]].bytes);
    if (atomic_fetch_add_explicit(&e->taken[slot], 1, memory_order_acq_rel) + 1 < e->n_data)
        return;
    atomic_store_explicit(&e->taken[slot], 0, memory_order_relaxed);
    atomic_store_explicit(&r->released[slot], (uint64_t)step + 1, memory_order_release);
    progress(e);
}

static void run_readback(struct exec *e, const struct dr_launch *l, int64_t step) {
    const struct dr_readback *r = e->c.readback;
    const size_t slot = (size_t)((uint64_t)step % r->slots);
    for (uint32_t i = 0; i < l->node->n_in; i++)
        memcpy(r->base + slot * r->record_bytes + r->offset[i], l->in[i],
               (size_t)l->value[l->node->in[i]].bytes);
    atomic_store_explicit(&r->done[slot], (uint64_t)step + 1, memory_order_release);
    progress(e);
}

static void sleep_us(uint32_t us) {
    const struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    nanosleep(&t, NULL);
}

static void run_node(struct exec *e, uint32_t phase, uint32_t node, int64_t step) {
    const struct dr_launch *l = &e->launch[(size_t)phase * e->p->n_nodes + node];
    if (e->c.delay_us && e->c.delay_us[node])
        sleep_us(e->c.delay_us[node]);
    switch (l->node->role) {
    case DR_ROLE_DATA:
        run_data(e, l, step);
        break;
    case DR_ROLE_READBACK:
        run_readback(e, l, step);
        break;
    default:
        l->node->op->cpu(l, e->cpu);
    }
}

static void trace_node(struct exec *e, uint32_t phase, uint32_t node, const struct block *k) {
    const struct dr_plan *p = e->p;
    struct dr_trace_record r = {
        .step = k->b * (int64_t)p->unroll + phase + p->stage[node],
        .block = k->b,
        .node = node,
        .plan = e->traced,
        .stream = p->stream[node],
        .how = DR_TRACE_WORKER,
        .whole = k->whole,
    };
    r.start_ns = dr_trace_clock_ns();
    run_node(e, phase, node, r.step);
    r.end_ns = dr_trace_clock_ns();
    dr_trace_add(e->c.trace, &r);
}

/* ---- blocks ---- */

static void walk(struct exec *e, uint32_t stream, const struct block *k, uint64_t index) {
    const struct dr_plan *p = e->p;
    const uint64_t before = index * p->unroll;
    for (uint32_t phase = 0; phase < p->unroll; phase++) {
        for (uint32_t i = p->stream_first[stream]; i < p->stream_first[stream + 1]; i++) {
            const uint32_t v = p->stream_node[i];
            for (uint32_t w = p->wait_first[v]; w < p->wait_first[v + 1]; w++)
                if (p->wait.at[w].slots <= phase) /* else the barrier has seen to it */
                    wait_for(e, p->wait.at[w].from, before + phase - p->wait.at[w].slots + 1);
            const int64_t step = k->b * (int64_t)p->unroll + phase + p->stage[v];
            if (step >= k->s0 && step < k->s1) {
                if (e->c.trace)
                    trace_node(e, phase, v, k);
                else
                    run_node(e, phase, v, step);
            }
            signal_done(e, v, before + phase + 1);
        }
    }
}

static void barrier(struct exec *e, uint64_t index) {
    pthread_mutex_lock(&e->lock);
    if (++e->arrived == e->p->n_streams) {
        e->arrived = 0;
        e->finished = index + 1;
        pthread_cond_broadcast(&e->done);
        pthread_cond_broadcast(&e->work);
    } else {
        while (e->finished <= index)
            pthread_cond_wait(&e->work, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
}

static void *work(void *arg) {
    struct worker *w = arg;
    struct exec *e = w->e;
    for (uint64_t index = 0;; index++) {
        pthread_mutex_lock(&e->lock);
        while (e->launched <= index && !e->quit)
            pthread_cond_wait(&e->work, &e->lock);
        const bool quit = e->launched <= index;
        const struct block k = e->queue[index % QUEUE];
        pthread_mutex_unlock(&e->lock);
        if (quit)
            return NULL;
        walk(e, w->stream, &k, index);
        barrier(e, index);
    }
}

static struct dr_status cpu_launch(struct dr_exec *base, int64_t b, int64_t s0, int64_t s1) {
    struct exec *e = (struct exec *)base;
    const bool whole = e->c.trace && dr_trace_whole(e->p, b, s0, s1);
    pthread_mutex_lock(&e->lock);
    while (e->launched - e->finished == QUEUE)
        pthread_cond_wait(&e->done, &e->lock);
    e->queue[e->launched++ % QUEUE] = (struct block){b, s0, s1, whole};
    pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->lock);
    return ok();
}

static struct dr_status cpu_drain(struct dr_exec *base) {
    struct exec *e = (struct exec *)base;
    pthread_mutex_lock(&e->lock);
    while (e->finished < e->launched)
        pthread_cond_wait(&e->done, &e->lock);
    pthread_mutex_unlock(&e->lock);
    return ok();
}

static bool cpu_idle(struct dr_exec *base, struct dr_status *s) {
    struct exec *e = (struct exec *)base;
    pthread_mutex_lock(&e->lock);
    const bool idle = e->finished == e->launched;
    pthread_mutex_unlock(&e->lock);
    *s = ok();
    return idle;
}

/* ---- a step with a look at every value ---- */

static bool all_finite(const struct dr_value *v, const void *at) {
    const int64_t n = v->bytes / (int64_t)dr_dtype_bytes(v->dtype);
    if (v->dtype == DR_F32) {
        const float *x = at;
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(x[i]))
                return false;
    } else if (v->dtype == DR_F64) {
        const double *x = at;
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(x[i]))
                return false;
    }
    return true;
}

static struct dr_status cpu_step_checked(struct dr_exec *base, int64_t step, uint32_t *node) {
    struct exec *e = (struct exec *)base;
    const struct dr_plan *p = e->p;
    *node = DR_NONE;
    cpu_drain(base);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        const int64_t u = p->unroll;
        const uint32_t phase = (uint32_t)(((step - p->stage[v]) % u + u) % u);
        const struct dr_launch *l = &e->launch[(size_t)phase * p->n_nodes + v];
        run_node(e, phase, v, step);
        for (uint32_t i = 0; i < l->node->n_out && *node == DR_NONE; i++)
            if (!all_finite(&l->value[l->node->out[i]], l->out[i]))
                *node = v;
    }
    return ok();
}

/* ---- creation ---- */

static void cpu_destroy(struct dr_exec *base) {
    struct exec *e = (struct exec *)base;
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    e->quit = true;
    pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->lock);
    for (uint32_t s = 0; s < e->n_started; s++)
        pthread_join(e->worker[s].thread, NULL);
    for (uint32_t s = 0; e->bell && s < e->p->n_streams; s++) {
        pthread_mutex_destroy(&e->bell[s].lock);
        pthread_cond_destroy(&e->bell[s].rung);
    }
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->work);
    pthread_cond_destroy(&e->done);
    free(e->pointer);
    free(e->launch);
    free(e->count);
    free(e->source);
    free(e->bell);
    free(e->worker);
    free(e->taken);
    free(e);
}

static bool make_tables(struct exec *e) {
    const struct dr_plan *p = e->p;
    const size_t n = p->n_nodes, u = p->unroll;
    e->pointer = calloc(u * p->n_operands + 1, sizeof *e->pointer);
    e->launch = calloc(u * n + 1, sizeof *e->launch);
    e->count = calloc(n + 1, sizeof *e->count);
    e->source = calloc(n + 1, sizeof *e->source);
    e->bell = calloc(p->n_streams, sizeof *e->bell);
    e->worker = calloc(p->n_streams, sizeof *e->worker);
    e->taken = calloc(e->c.ring ? e->c.ring->slots : 1, sizeof *e->taken);
    if (!e->pointer || !e->launch || !e->count || !e->source || !e->bell || !e->worker || !e->taken)
        return false;
    for (uint32_t s = 0; s < p->n_streams; s++) {
        pthread_mutex_init(&e->bell[s].lock, NULL);
        pthread_cond_init(&e->bell[s].rung, NULL);
    }
    for (size_t i = 0; i < u * p->n_operands; i++)
        e->pointer[i] = e->c.slab.base + p->address[i];
    for (uint32_t i = 0; i < p->wait.n; i++)
        e->source[p->wait.at[i].from] = true;
    for (uint32_t phase = 0; phase < u; phase++)
        for (uint32_t v = 0; v < n; v++) {
            const struct dr_node *node = &p->g->node.at[v];
            void **at = e->pointer + (size_t)phase * p->n_operands + p->operand_first[v];
            e->launch[phase * n + v] = (struct dr_launch){
                .node = node,
                .value = p->g->value.at,
                .in = at,
                .out = at + node->n_in,
                .workspace =
                    p->choice[v].workspace_bytes ? e->c.slab.base + p->workspace_offset[v] : NULL,
                .choice = &p->choice[v],
                .seed = e->c.seed,
            };
            e->n_data += phase == 0 && node->role == DR_ROLE_DATA;
        }
    return true;
}

static struct dr_status cpu_create(const struct dr_exec_config *c, struct dr_exec **out) {
    struct exec *e = calloc(1, sizeof *e);
    if (!e)
        return no_memory("executor");
    const struct device *d = c->device;
    e->base.ops = &dr_exec_cpu;
    e->c = *c;
    e->p = c->plan;
    e->cpu = (struct dr_cpu *)&d->cpu;
    e->spin = sysconf(_SC_NPROCESSORS_ONLN) > (long)c->plan->n_streams;
    if (c->trace)
        e->traced = dr_trace_add_plan(c->trace, c->plan, NULL, NULL);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    pthread_cond_init(&e->done, NULL);
    bool good = make_tables(e);
    for (uint32_t s = 0; good && s < e->p->n_streams; s++) {
        e->worker[s] = (struct worker){.e = e, .stream = s};
        good = pthread_create(&e->worker[s].thread, NULL, work, &e->worker[s]) == 0;
        e->n_started += good;
    }
    if (!good) {
        cpu_destroy(&e->base);
        return no_memory("executor");
    }
    *out = &e->base;
    return ok();
}

const struct dr_exec_ops dr_exec_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .host_alloc = cpu_host_alloc,
    .host_free = cpu_host_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .memory_used = dr_cpu_memory_used,
    .create = cpu_create,
    .launch = cpu_launch,
    .drain = cpu_drain,
    .idle = cpu_idle,
    .step_checked = cpu_step_checked,
    .destroy = cpu_destroy,
};
