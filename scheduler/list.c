/* The policy `list`: whenever a stream is idle it takes the ready node of highest priority. The
 * updated part comes first, since it alone must fit into its step; then the upward rank, the
 * longest way to the end of the slot (Topcuoglu, Hariri, Wu: HEFT, 2002). */
#include "scheduler/streams.h"
#include <math.h>
#include <stdlib.h>

struct list {
    const struct dr_plan *p;
    uint32_t *succ_first, *succ, *missing; /* predecessors not finished */
    double *us, *rank;
    uint32_t *place, *by_place; /* priority: place 0 first */
    uint32_t *heap, n_heap;     /* of places that are ready */
};

static void heap_push(struct list *l, uint32_t place) {
    uint32_t i = l->n_heap++;
    while (i > 0 && l->heap[(i - 1) / 2] > place) {
        l->heap[i] = l->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    l->heap[i] = place;
}

static uint32_t heap_pop(struct list *l) {
    uint32_t top = l->heap[0], last = l->heap[--l->n_heap], i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child + 1 < l->n_heap && l->heap[child + 1] < l->heap[child]) {
            child++;
        }
        if (child >= l->n_heap || l->heap[child] >= last) {
            break;
        }
        l->heap[i] = l->heap[child];
        i = child;
    }
    l->heap[i] = last;
    return top;
}

static void find_successors(struct list *l, const struct dr_slot_dag *dag, struct dr_arena *a) {
    uint32_t n = l->p->n_nodes;
    l->succ_first = DR_NEW_N(a, uint32_t, n + 2);
    l->succ = DR_NEW_N(a, uint32_t, dag->first[n] + 1);
    for (uint32_t i = 0; i < dag->first[n]; i++) {
        l->succ_first[dag->pred[i] + 1]++;
    }
    for (uint32_t v = 0; v < n; v++) {
        l->succ_first[v + 1] += l->succ_first[v];
    }
    for (uint32_t v = n; v-- > 0;) {
        for (uint32_t i = dag->first[v + 1]; i-- > dag->first[v];) {
            l->succ[--l->succ_first[dag->pred[i] + 1]] = v;
        }
    }
    for (uint32_t v = 0; v < n; v++) { /* first[v + 1] is now where v begins */
        l->succ_first[v] = l->succ_first[v + 1];
    }
    l->succ_first[n] = dag->first[n];
}

struct ranked {
    uint32_t node;
    bool updated;
    double rank;
};

static int by_priority(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->updated != y->updated) {
        return x->updated ? -1 : 1;
    }
    if (x->rank < y->rank || x->rank > y->rank) {
        return x->rank > y->rank ? -1 : 1;
    }
    return x->node < y->node ? -1 : x->node > y->node;
}

static void rank_nodes(struct list *l, const struct dr_device_info *dev, struct dr_arena *a) {
    uint32_t n = l->p->n_nodes;
    struct ranked *ranked = DR_NEW_N(a, struct ranked, n + 1);
    l->us = DR_NEW_N(a, double, n + 1);
    l->place = DR_NEW_N(a, uint32_t, n + 1);
    l->by_place = DR_NEW_N(a, uint32_t, n + 1);
    for (uint32_t v = n; v-- > 0;) {
        double tail = 0;
        for (uint32_t i = l->succ_first[v]; i < l->succ_first[v + 1]; i++) {
            tail = fmax(tail, ranked[l->succ[i]].rank);
        }
        l->us[v] = dr_plan_node_us(l->p, v, dev) + dev->launch_us;
        ranked[v] =
            (struct ranked){.node = v, .updated = l->p->stage[v] == 0, .rank = l->us[v] + tail};
    }
    if (n > 1) {
        qsort(ranked, n, sizeof *ranked, by_priority);
    }
    for (uint32_t i = 0; i < n; i++) {
        l->by_place[i] = ranked[i].node;
        l->place[ranked[i].node] = i;
    }
}

struct lane { /* a stream while the schedule is made */
    double free_at;
    uint32_t running, last; /* DR_NONE: nothing */
};

/* The idle stream for a node: one that ran a predecessor of it last (no wait then), else the
 * lowest. */
static uint32_t pick_lane(const struct lane *lane, uint32_t cap, const struct dr_slot_dag *dag,
                          uint32_t v) {
    uint32_t lowest = DR_NONE;
    for (uint32_t s = 0; s < cap; s++) {
        if (lane[s].running != DR_NONE) {
            continue;
        }
        lowest = lowest == DR_NONE ? s : lowest;
        for (uint32_t i = dag->first[v]; lane[s].last != DR_NONE && i < dag->first[v + 1]; i++) {
            if (dag->pred[i] == lane[s].last) {
                return s;
            }
        }
    }
    return lowest;
}

/* Lets the running node that ends first end; the nodes that waited for it alone become ready. */
static double finish_next(struct list *l, struct lane *lane, uint32_t cap) {
    uint32_t first = DR_NONE;
    for (uint32_t s = 0; s < cap; s++) {
        if (lane[s].running != DR_NONE &&
            (first == DR_NONE || lane[s].free_at < lane[first].free_at)) {
            first = s;
        }
    }
    DR_ASSERT(first != DR_NONE);
    uint32_t v = lane[first].running;
    lane[first].running = DR_NONE;
    for (uint32_t i = l->succ_first[v]; i < l->succ_first[v + 1]; i++) {
        if (--l->missing[l->succ[i]] == 0) {
            heap_push(l, l->place[l->succ[i]]);
        }
    }
    return lane[first].free_at;
}

void dr_streams_list(struct dr_plan *p, const struct dr_slot_dag *dag, uint32_t cap,
                     const struct dr_device_info *dev, struct dr_arena *a) {
    uint32_t n = p->n_nodes, done = 0, busy = 0;
    struct list l = {
        .p = p, .missing = DR_NEW_N(a, uint32_t, n + 1), .heap = DR_NEW_N(a, uint32_t, n + 1)};
    struct lane lane[DR_MAX_STREAMS];
    double now = 0;
    find_successors(&l, dag, a);
    rank_nodes(&l, dev, a);
    for (uint32_t s = 0; s < cap; s++) {
        lane[s] = (struct lane){.running = DR_NONE, .last = DR_NONE};
    }
    for (uint32_t v = 0; v < n; v++) {
        l.missing[v] = dag->first[v + 1] - dag->first[v];
        if (l.missing[v] == 0) {
            heap_push(&l, l.place[v]);
        }
    }
    while (done < n) {
        while (l.n_heap > 0 && busy < cap) {
            uint32_t v = l.by_place[heap_pop(&l)], s = pick_lane(lane, cap, dag, v);
            lane[s] = (struct lane){.free_at = now + l.us[v], .running = v, .last = v};
            p->stream[v] = (uint8_t)s;
            p->order[done++] = v;
            busy++;
        }
        if (done < n) {
            now = finish_next(&l, lane, cap);
            busy--;
        }
    }
}
