/* Trace records of the CUDA executor: from CUPTI, or from pairs of events. See trace_cuda.h. */
#include "scheduler/trace_cuda.h"

#include "scheduler/cupti_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Blocks whose events may be unread: b - 1 and b are under way, b - 3 is done (run loop). */
enum { SETS = 3 };

struct set { /* the events of one uncaptured block */
    cudaEvent_t start;
    cudaEvent_t *at; /* [unroll * nodes * 2] */
    int64_t b, s0, s1;
    double start_ns;
    bool used;
};

enum source { FROM_CUPTI, FROM_EVENTS, NOWHERE };

struct dr_trace_cuda {
    struct dr_trace *t;
    const struct dr_plan *p;
    uint8_t number; /* of the plan in the trace */
    enum source source;
    bool capturing;
    struct set set[SETS];
    uint64_t n_blocks;
    uint64_t nodes_before; /* tagged before this plan's capture */
};

/* CUPTI serves the whole process: the plans of one trace share it. */
static struct {
    struct dr_cupti *cupti;
    struct dr_trace *t;
    struct dr_trace_cuda *of[DR_TRACE_PLANS];
    uint32_t users;
} shared;

/* ---- tags ---- */

/* A launch: 1, plan (4 bits), node (22), step (36). A replay: 2, plan, block + 2^40. A graph's
 * node: 3, plan, phase (4), node. The first two bits are the kind, so that no tag is 0. */
enum { TAG_LAUNCH = 1, TAG_REPLAY = 2, TAG_NODE = 3 };
#define STEP_BITS 36
#define NODE_BITS 22
#define BLOCK_BIAS ((int64_t)1 << 40)

static uint64_t tag(const struct dr_trace_cuda *c, uint64_t kind, uint64_t rest) {
    return kind << 62 | (uint64_t)c->number << 58 | rest;
}

static uint64_t low_bits(uint64_t x, int n) {
    return x & (((uint64_t)1 << n) - 1);
}

static struct dr_trace_cuda *plan_of(uint64_t t) {
    const uint64_t number = low_bits(t >> 58, 4);
    return number < DR_TRACE_PLANS ? shared.of[number] : NULL;
}

/* ---- records from CUPTI ---- */

static int64_t block_of(const struct dr_plan *p, int64_t step, uint32_t v) {
    const int64_t slot = step - p->stage[v], u = p->unroll;
    return slot / u - (slot % u < 0);
}

static bool resolve_replayed(const struct dr_cupti_record *r, struct dr_trace_record *out) {
    const struct dr_trace_cuda *c = plan_of(r->node_tag);
    if (r->node_tag >> 62 != TAG_NODE || !c)
        return false;
    const uint32_t phase = (uint32_t)low_bits(r->node_tag >> NODE_BITS, 4);
    out->node = (uint32_t)low_bits(r->node_tag, NODE_BITS);
    out->plan = c->number;
    out->how = DR_TRACE_GRAPH;
    out->step = -1;
    if (r->launch_tag >> 62 == TAG_REPLAY && plan_of(r->launch_tag) == c) {
        out->block = (int64_t)low_bits(r->launch_tag, 42) - BLOCK_BIAS;
        out->step = out->block * (int64_t)c->p->unroll + phase + c->p->stage[out->node];
        out->whole = true;
    }
    return true;
}

static bool resolve_launched(const struct dr_cupti_record *r, struct dr_trace_record *out) {
    const struct dr_trace_cuda *c = plan_of(r->launch_tag);
    if (r->launch_tag >> 62 != TAG_LAUNCH || !c)
        return false;
    out->node = (uint32_t)low_bits(r->launch_tag >> STEP_BITS, NODE_BITS);
    out->plan = c->number;
    out->how = DR_TRACE_LAUNCHED;
    out->step = (int64_t)low_bits(r->launch_tag, STEP_BITS);
    out->block = block_of(c->p, out->step, out->node);
    return true;
}

/* Launches without a tag are not the plan's: uploads, checks. A graph is always a plan's. */
static void take_record(void *ctx, const struct dr_cupti_record *r) {
    struct dr_trace *t = ctx;
    struct dr_trace_record out = {
        .start_ns = r->start_ns, .end_ns = r->end_ns, .kernel = r->kernel};
    if (r->in_graph ? resolve_replayed(r, &out) : resolve_launched(r, &out)) {
        out.stream = plan_of(r->in_graph ? r->node_tag : r->launch_tag)->p->stream[out.node];
        dr_trace_add(t, &out);
    } else if (r->in_graph) {
        atomic_fetch_add(&t->lost, 1);
    }
}

static void collect_shared(void) {
    dr_cupti_collect(shared.cupti, take_record, shared.t);
    atomic_fetch_add(&shared.t->lost, dr_cupti_lost(shared.cupti));
}

/* ---- records from events ---- */

static double elapsed_ns(cudaEvent_t from, cudaEvent_t to) {
    float ms = -1;
    if (cudaEventElapsedTime(&ms, from, to) != cudaSuccess) {
        cudaGetLastError();
        return -1;
    }
    return (double)ms * 1e6;
}

static void read_set(struct dr_trace_cuda *c, struct set *k) {
    const struct dr_plan *p = c->p;
    const bool whole = dr_trace_whole(p, k->b, k->s0, k->s1);
    for (uint32_t phase = 0; phase < p->unroll; phase++)
        for (uint32_t v = 0; v < p->n_nodes; v++) {
            const int64_t step = k->b * (int64_t)p->unroll + phase + p->stage[v];
            if (step < k->s0 || step >= k->s1)
                continue;
            cudaEvent_t *const e = k->at + 2 * ((size_t)phase * p->n_nodes + v);
            const double from = elapsed_ns(k->start, e[0]), to = elapsed_ns(k->start, e[1]);
            if (from < 0 || to < from) {
                atomic_fetch_add(&c->t->lost, 1);
                continue;
            }
            dr_trace_add(c->t, &(struct dr_trace_record){
                                   .start_ns = (uint64_t)(k->start_ns + from),
                                   .end_ns = (uint64_t)(k->start_ns + to),
                                   .step = step,
                                   .block = k->b,
                                   .node = v,
                                   .plan = c->number,
                                   .stream = p->stream[v],
                                   .how = DR_TRACE_EVENTS,
                                   .whole = whole,
                               });
        }
    k->used = false;
}

/* Reads block i's set. Times are taken from block to block: a float of milliseconds since the start
 * of a long run would be too coarse. */
static void read_block(struct dr_trace_cuda *c, uint64_t i) {
    struct set *k = &c->set[i % SETS], *next = &c->set[(i + 1) % SETS];
    if (!k->used)
        return;
    if (i + 1 < c->n_blocks) {
        cudaEventSynchronize(next->start);
        const double ns = elapsed_ns(k->start, next->start);
        next->start_ns = ns < 0 ? next->start_ns : k->start_ns + ns;
    }
    read_set(c, k);
}

static void read_all_blocks(struct dr_trace_cuda *c) {
    for (uint64_t i = c->n_blocks < SETS ? 0 : c->n_blocks - SETS; i < c->n_blocks; i++)
        read_block(c, i);
}

static void flush(void *executor) {
    struct dr_trace_cuda *c = executor;
    cudaDeviceSynchronize();
    if (c->source == FROM_EVENTS)
        read_all_blocks(c);
    else if (c->source == FROM_CUPTI)
        collect_shared();
}

/* ---- opening and closing ---- */

static bool make_events(struct dr_trace_cuda *c) {
    const size_t n = (size_t)c->p->unroll * c->p->n_nodes * 2;
    for (int i = 0; i < SETS; i++) {
        struct set *k = &c->set[i];
        k->at = calloc(n + 1, sizeof *k->at);
        if (!k->at || cudaEventCreate(&k->start) != cudaSuccess)
            return false;
        for (size_t e = 0; e < n; e++)
            if (cudaEventCreate(&k->at[e]) != cudaSuccess)
                return false;
    }
    return true;
}

static void destroy_events(struct dr_trace_cuda *c) {
    const size_t n = (size_t)c->p->unroll * c->p->n_nodes * 2;
    for (int i = 0; i < SETS; i++) {
        struct set *k = &c->set[i];
        for (size_t e = 0; k->at && e < n; e++)
            if (k->at[e])
                cudaEventDestroy(k->at[e]);
        if (k->start)
            cudaEventDestroy(k->start);
        free(k->at);
    }
}

/* From now on by events, or not at all. */
static void use_events(struct dr_trace_cuda *c, const char *why, char *note, size_t note_bytes) {
    const size_t at = strlen(note);
    c->source = make_events(c) ? FROM_EVENTS : NOWHERE;
    cudaGetLastError(); /* launches look at it */
    snprintf(note + at, note_bytes - at, "%s%s: CUPTI cannot be used (%s)", at ? "; " : "",
             c->source == FROM_EVENTS
                 ? "the trace is timed by CUDA events around uncaptured launches"
                 : "no trace",
             why);
}

static bool join_shared(struct dr_trace_cuda *c, char *why, size_t why_bytes) {
    if (c->p->n_nodes >> NODE_BITS || c->p->unroll > 16) {
        snprintf(why, why_bytes, "the plan has too many nodes");
        return false;
    }
    if (shared.users && shared.t != c->t) {
        snprintf(why, why_bytes, "another trace is being made");
        return false;
    }
    if (!shared.users) {
        shared.cupti = dr_cupti_open(c->t->room, why, why_bytes);
        shared.t = c->t;
    }
    if (!shared.cupti)
        return false;
    shared.users++;
    shared.of[c->number] = c;
    return true;
}

/* The last user closes CUPTI, with what the others' graphs have left in it. */
static void leave_shared(struct dr_trace_cuda *c) {
    collect_shared();
    shared.of[c->number] = NULL;
    if (--shared.users)
        return;
    dr_cupti_close(shared.cupti);
    shared.cupti = NULL;
    shared.t = NULL;
}

struct dr_trace_cuda *dr_trace_cuda_open(struct dr_trace *t, const struct dr_plan *p, char *note,
                                         size_t note_bytes) {
    struct dr_trace_cuda *c = t ? calloc(1, sizeof *c) : NULL;
    char why[128] = "out of host memory";
    if (!c)
        return NULL;
    c->t = t;
    c->p = p;
    c->number = dr_trace_add_plan(t, p, flush, c);
    if (!join_shared(c, why, sizeof why))
        use_events(c, why, note, note_bytes);
    return c;
}

void dr_trace_cuda_close(struct dr_trace_cuda *c) {
    if (!c)
        return;
    c->t->plan[c->number].flush = NULL;
    if (c->source == FROM_EVENTS)
        read_all_blocks(c);
    else if (c->source == FROM_CUPTI)
        leave_shared(c);
    destroy_events(c);
    free(c);
}

bool dr_trace_cuda_by_events(const struct dr_trace_cuda *c) {
    return c && c->source == FROM_EVENTS;
}

/* ---- what the executor says ---- */

void dr_trace_cuda_capture(struct dr_trace_cuda *c, bool on) {
    if (!c)
        return;
    if (on)
        c->nodes_before = dr_cupti_tagged(shared.cupti);
    c->capturing = on;
}

bool dr_trace_cuda_captured(struct dr_trace_cuda *c, char *note, size_t note_bytes) {
    if (!c || c->source != FROM_CUPTI || dr_cupti_tagged(shared.cupti) > c->nodes_before)
        return true;
    leave_shared(c);
    use_events(c, "it does not report the nodes of a captured graph", note, note_bytes);
    return false;
}

void dr_trace_cuda_replay(struct dr_trace_cuda *c, int64_t b) {
    if (c && c->source == FROM_CUPTI)
        dr_cupti_push(shared.cupti, tag(c, TAG_REPLAY, low_bits((uint64_t)(b + BLOCK_BIAS), 42)));
}

void dr_trace_cuda_launched(struct dr_trace_cuda *c) {
    if (c && c->source == FROM_CUPTI)
        dr_cupti_pop(shared.cupti);
}

void dr_trace_cuda_block(struct dr_trace_cuda *c, int64_t b, int64_t s0, int64_t s1,
                         cudaStream_t origin) {
    if (!c || c->source != FROM_EVENTS)
        return;
    struct set *k = &c->set[c->n_blocks % SETS];
    if (c->n_blocks >= SETS)
        read_block(c, c->n_blocks - SETS);
    c->n_blocks++;
    *k = (struct set){.start = k->start, .at = k->at, .b = b, .s0 = s0, .s1 = s1};
    k->start_ns = (double)dr_trace_clock_ns(); /* until the block before it has been read */
    k->used = k->start && cudaEventRecord(k->start, origin) == cudaSuccess;
}

/* Event 0 before the launches of a node, 1 after them. */
static void record_event(struct dr_trace_cuda *c, uint32_t phase, uint32_t v, int which,
                         cudaStream_t s) {
    const struct set *k = &c->set[(c->n_blocks - 1) % SETS];
    if (cudaEventRecord(k->at[2 * ((size_t)phase * c->p->n_nodes + v) + which], s) != cudaSuccess)
        cudaGetLastError();
}

void dr_trace_cuda_node(struct dr_trace_cuda *c, uint32_t phase, uint32_t v, int64_t step,
                        cudaStream_t s) {
    if (!c || c->source == NOWHERE)
        return;
    if (c->source == FROM_EVENTS)
        record_event(c, phase, v, 0, s);
    else if (c->capturing)
        dr_cupti_tag_nodes(shared.cupti, tag(c, TAG_NODE, (uint64_t)phase << NODE_BITS | v));
    else
        dr_cupti_push(
            shared.cupti,
            tag(c, TAG_LAUNCH, (uint64_t)v << STEP_BITS | low_bits((uint64_t)step, STEP_BITS)));
}

void dr_trace_cuda_node_end(struct dr_trace_cuda *c, uint32_t phase, uint32_t v, cudaStream_t s) {
    if (!c || c->source == NOWHERE)
        return;
    if (c->source == FROM_EVENTS)
        record_event(c, phase, v, 1, s);
    else if (c->capturing)
        dr_cupti_tag_nodes(shared.cupti, 0);
    else
        dr_cupti_pop(shared.cupti);
}
