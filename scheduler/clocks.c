/* Vector clocks over the first slots of a block (Fidge, Mattern), for the wait reduction and the
 * memory planner; and the dependencies inside one slot. */
#include "scheduler/parts.h"
#include <stdlib.h>
#include <string.h>

static void join(uint32_t *into, const uint32_t *from, uint32_t n) {
    for (uint32_t s = 0; s < n; s++) {
        into[s] = from[s] > into[s] ? from[s] : into[s];
    }
}

struct dr_clocks dr_clocks_make(const struct dr_plan *p, const struct dr_wait *wait,
                                const uint32_t *wait_first, uint32_t slots, struct dr_arena *a) {
    uint32_t n = p->n_nodes, S = p->n_streams;
    struct dr_clocks c = {.n_nodes = n,
                          .n_streams = S,
                          .slots = slots,
                          .index = DR_NEW_N(a, uint32_t, n + 1),
                          .length = DR_NEW_N(a, uint32_t, S),
                          .at = DR_NEW_N(a, uint32_t, (size_t)slots * n * S + 1)};
    uint32_t *now = DR_NEW_N(a, uint32_t, (size_t)S * S); /* by stream: clock of its last node */
    for (uint32_t i = 0; i < n; i++) {
        c.index[p->order[i]] = c.length[p->stream[p->order[i]]]++;
    }
    for (uint32_t slot = 0; slot < slots; slot++) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t v = p->order[i], s = p->stream[v];
            uint32_t *row = now + (size_t)s * S;
            for (uint32_t w = wait_first[v]; w < wait_first[v + 1]; w++) {
                if (wait[w].slots <= slot) {
                    join(row, dr_clock(&c, slot - wait[w].slots, wait[w].from), S);
                }
            }
            row[s] = dr_clock_time(&c, s, slot, v);
            memcpy(c.at + ((size_t)slot * n + v) * S, row, S * sizeof *row);
        }
    }
    return c;
}

static int by_to_from(const void *a, const void *b) {
    const struct dr_wait *x = a, *y = b;
    if (x->to != y->to) {
        return x->to < y->to ? -1 : 1;
    }
    return x->from < y->from ? -1 : x->from > y->from;
}

struct dr_slot_dag dr_slot_dag_make(const struct dr_plan *p, struct dr_arena *a) {
    struct dr_waits all = dr_plan_dependencies(p, a);
    uint32_t n = 0;
    for (uint32_t i = 0; i < all.at.n; i++) {
        if (all.at.at[i].slots == 0) {
            all.at.at[n++] = all.at.at[i];
        }
    }
    if (n > 0) {
        qsort(all.at.at, n, sizeof *all.at.at, by_to_from);
    }
    struct dr_slot_dag d = {.first = DR_NEW_N(a, uint32_t, p->n_nodes + 1),
                            .pred = DR_NEW_N(a, uint32_t, n + 1)};
    uint32_t kept = 0, i = 0;
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        d.first[v] = kept;
        for (; i < n && all.at.at[i].to == v; i++) {
            uint32_t from = all.at.at[i].from;
            if (kept == d.first[v] || d.pred[kept - 1] != from) {
                d.pred[kept++] = from;
            }
        }
    }
    d.first[p->n_nodes] = kept;
    return d;
}
