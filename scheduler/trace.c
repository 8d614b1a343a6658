/* Trace records: keeping them, and what they say of the steady state. See trace.h. */
#include "scheduler/trace.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

struct dr_trace *dr_trace_create(uint64_t room) {
    struct dr_trace *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->at = calloc(room ? room : 1, sizeof *t->at);
    t->room = room;
    if (!t->at) {
        free(t);
        return NULL;
    }
    return t;
}

void dr_trace_destroy(struct dr_trace *t) {
    if (!t)
        return;
    free(t->at);
    free(t);
}

uint8_t dr_trace_add_plan(struct dr_trace *t, const struct dr_plan *p, void (*flush)(void *),
                          void *executor) {
    DR_ASSERT(t->n_plans < DR_TRACE_PLANS);
    t->plan[t->n_plans] = (struct dr_trace_plan){p, flush, executor};
    return (uint8_t)t->n_plans++;
}

void dr_trace_add(struct dr_trace *t, const struct dr_trace_record *r) {
    const uint64_t i = atomic_fetch_add_explicit(&t->n, 1, memory_order_relaxed);
    if (i < t->room)
        t->at[i] = *r;
}

uint64_t dr_trace_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool dr_trace_whole(const struct dr_plan *p, int64_t b, int64_t s0, int64_t s1) {
    uint32_t low = UINT32_MAX, high = 0;
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        low = p->stage[v] < low ? p->stage[v] : low;
        high = p->stage[v] > high ? p->stage[v] : high;
    }
    const int64_t first = b * (int64_t)p->unroll;
    return first + low >= s0 && first + p->unroll - 1 + high < s1;
}

uint64_t dr_trace_records(const struct dr_trace *t) {
    const uint64_t n = atomic_load(&t->n);
    return n < t->room ? n : t->room;
}

uint64_t dr_trace_dropped(const struct dr_trace *t) {
    return atomic_load(&t->n) - dr_trace_records(t) + atomic_load(&t->lost);
}

static int by_start(const void *a, const void *b) {
    const struct dr_trace_record *x = a, *y = b;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    if (x->end_ns != y->end_ns)
        return x->end_ns < y->end_ns ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

void dr_trace_finish(struct dr_trace *t) {
    for (uint32_t i = 0; i < t->n_plans; i++)
        if (t->plan[i].flush)
            t->plan[i].flush(t->plan[i].executor);
    qsort(t->at, (size_t)dr_trace_records(t), sizeof *t->at, by_start);
}

/* ---- the steady state ---- */

struct block {
    int64_t b;
    uint64_t start_ns, end_ns, busy_ns; /* busy: the union of its records */
};

/* The whole blocks of plan 0 in the order of time. A block starts when the one before it has ended,
 * so records sorted by start are grouped by block already. */
static uint64_t group(const struct dr_trace *t, struct block *k) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < dr_trace_records(t); i++) {
        const struct dr_trace_record *r = &t->at[i];
        if (!r->whole || r->plan)
            continue;
        if (!n || k[n - 1].b != r->block)
            k[n++] = (struct block){r->block, r->start_ns, r->start_ns, 0};
        struct block *last = &k[n - 1];
        if (r->end_ns > last->end_ns) {
            const uint64_t from = r->start_ns > last->end_ns ? r->start_ns : last->end_ns;
            last->busy_ns += r->end_ns - from;
            last->end_ns = r->end_ns;
        }
    }
    return n;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void dr_trace_summarise(const struct dr_trace *t, struct dr_trace_summary *s) {
    *s = (struct dr_trace_summary){.idle = NAN, .gap_us = NAN};
    const uint64_t records = dr_trace_records(t);
    struct block *k = calloc((size_t)records + 1, sizeof *k);
    double *gap = calloc((size_t)records + 1, sizeof *gap);
    uint64_t gaps = 0;
    s->blocks = k && gap ? group(t, k) : 0;
    for (uint64_t i = 0; i < s->blocks; i++) {
        s->span_s += (double)(k[i].end_ns - k[i].start_ns) * 1e-9;
        s->busy_s += (double)k[i].busy_ns * 1e-9;
        if (i && k[i].b == k[i - 1].b + 1) {
            const double between = (double)k[i].start_ns - (double)k[i - 1].end_ns;
            gap[gaps++] = between > 0 ? between * 1e-3 : 0;
            s->gap_s += gap[gaps - 1] * 1e-6;
        }
    }
    s->span_s += s->gap_s;
    if (s->span_s > 0)
        s->idle = 1 - s->busy_s / s->span_s;
    if (gaps) {
        qsort(gap, (size_t)gaps, sizeof *gap, by_size);
        s->gap_us = gaps % 2 ? gap[gaps / 2] : (gap[gaps / 2 - 1] + gap[gaps / 2]) / 2;
    }
    free(k);
    free(gap);
}
