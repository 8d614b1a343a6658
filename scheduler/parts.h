/* What the files that make a plan share among themselves; everyone else uses plan.h.
 *
 * Clocks describe happens-before inside one block. Entry i of stream s's unrolled list (slot 0's
 * nodes, then slot 1's, ...) has time i + 1 on that stream; the clock of (node, slot) holds, for
 * each stream, the time of the last entry that happens at or before it. The proof has clocks of
 * its own and uses nothing from here. */
#ifndef DR_SCHEDULER_PARTS_H
#define DR_SCHEDULER_PARTS_H

#include "scheduler/plan.h"

struct dr_clocks {
    uint32_t n_nodes, n_streams, slots;
    uint32_t *index;  /* by node: its place in its stream's list */
    uint32_t *length; /* by stream */
    uint32_t *at;     /* [slots][n_nodes][n_streams] */
};

/* Clocks of the first `slots` slots of a block under the plan's streams and order and the given
 * waits (CSR by `to`). */
struct dr_clocks dr_clocks_make(const struct dr_plan *p, const struct dr_wait *wait,
                                const uint32_t *wait_first, uint32_t slots, struct dr_arena *a);

static inline const uint32_t *dr_clock(const struct dr_clocks *c, uint32_t slot, uint32_t node) {
    return c->at + ((size_t)slot * c->n_nodes + node) * c->n_streams;
}

/* time of (node, slot) on its own stream `s` */
static inline uint32_t dr_clock_time(const struct dr_clocks *c, uint32_t s, uint32_t slot,
                                     uint32_t node) {
    return slot * c->length[s] + c->index[node] + 1;
}

static inline uint64_t dr_align_up(uint64_t bytes) {
    return (bytes + DR_ALIGN - 1) / DR_ALIGN * DR_ALIGN;
}

/* Dependencies of one slot (slots == 0) as CSR: predecessors of each node, each once. */
struct dr_slot_dag {
    uint32_t *first, *pred;
};
struct dr_slot_dag dr_slot_dag_make(const struct dr_plan *p, struct dr_arena *a);

/* Microseconds of a node alone on the device at its ceilings, without the launch. */
double dr_plan_node_us(const struct dr_plan *p, uint32_t node, const struct dr_device_info *dev);

/* The largest batch below the graph's whose plan needs at most `limit` bytes (values that have the
 * batch as first dimension and workspaces are scaled); 0 where not even one sample fits. */
int64_t dr_plan_largest_batch(const struct dr_plan *p, uint64_t limit);

/* Places states, buffers and workspaces already decided into `address`. */
void dr_plan_addresses(struct dr_plan *p);

#endif
