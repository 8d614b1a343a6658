/* --trace: what really ran, and when. Executors add records while they run; afterwards the whole is
 * written as Chrome trace events (chrome://tracing, ui.perfetto.dev) and summed up.
 *
 *     struct dr_trace *t = dr_trace_create(DR_TRACE_ROOM);
 *     ... dr_exec_config.trace = t; create executors, run, drain ...
 *     dr_trace_finish(t);
 *     dr_trace_json(t, &text, &n); ... free(text); ... destroy executors
 *     dr_trace_destroy(t);
 *
 * Memory for the records is taken at the start. Those that no longer fit are counted, not kept. The
 * CPU has one record a node; CUDA one a kernel, copy or fill, so a node may have several. */
#ifndef DR_SCHEDULER_TRACE_H
#define DR_SCHEDULER_TRACE_H

#include "scheduler/plan.h"

#include <stdatomic.h>

#define DR_TRACE_ROOM ((uint64_t)1 << 20) /* records; 48 MiB once all are used */
#define DR_TRACE_PLANS 4

enum dr_trace_how {
    DR_TRACE_WORKER,   /* CPU: by the worker thread of its stream */
    DR_TRACE_GRAPH,    /* CUDA: as a node of the captured graph */
    DR_TRACE_LAUNCHED, /* CUDA: launched by itself */
    DR_TRACE_EVENTS,   /* CUDA: launched by itself, timed by a pair of events */
};

struct dr_trace_record {
    uint64_t start_ns, end_ns; /* any clock, one for all records of a trace */
    int64_t step;              /* -1: not known */
    int64_t block;             /* see plan.h; may be negative */
    const char *kernel;        /* CUDA: the kernel's symbol, "copy", "fill"; NULL: the whole node */
    uint32_t node;
    uint8_t plan, stream;
    uint8_t how; /* enum dr_trace_how */
    bool whole;  /* of a block in which every node was active: the steady state */
};

struct dr_trace_plan {
    const struct dr_plan *plan;
    /* Hands over the records that the executor still holds, after a drain. NULL: none. */
    void (*flush)(void *executor);
    void *executor;
};

struct dr_trace {
    struct dr_trace_record *at;
    uint64_t room;
    _Atomic uint64_t n;    /* asked for; more than room: the rest was dropped */
    _Atomic uint64_t lost; /* dropped before they came here */
    struct dr_trace_plan plan[DR_TRACE_PLANS];
    uint32_t n_plans;
};

struct dr_trace *dr_trace_create(uint64_t room); /* NULL: out of memory */
void dr_trace_destroy(struct dr_trace *t);       /* NULL is fine; after its executors */

/* For executors: registers a plan and returns its number, for records. Any number of threads may
 * add records. */
uint8_t dr_trace_add_plan(struct dr_trace *t, const struct dr_plan *p, void (*flush)(void *),
                          void *executor);
void dr_trace_add(struct dr_trace *t, const struct dr_trace_record *r);
uint64_t dr_trace_clock_ns(void); /* monotonic */
/* All nodes of block b are active in a run over steps [s0, s1). */
bool dr_trace_whole(const struct dr_plan *p, int64_t b, int64_t s0, int64_t s1);

/* Collects what executors still hold and sorts by start. */
void dr_trace_finish(struct dr_trace *t);
uint64_t dr_trace_records(const struct dr_trace *t);
uint64_t dr_trace_dropped(const struct dr_trace *t);

/* The trace as JSON text (malloc); false: out of memory. `device` names the machine. */
bool dr_trace_json(const struct dr_trace *t, const char *device, char **text, size_t *bytes);

/* The steady state: whole blocks of the trace's first plan that follow each other. Time counts as
 * idle where no record of any stream is under way; between the last record of one block and the
 * first of the next it is a gap. */
struct dr_trace_summary {
    uint64_t blocks;
    double span_s, busy_s, gap_s;
    double idle;   /* 1 - busy / span; NaN without blocks */
    double gap_us; /* the median; NaN without two blocks that follow each other */
};
void dr_trace_summarise(const struct dr_trace *t, struct dr_trace_summary *s);

#endif
