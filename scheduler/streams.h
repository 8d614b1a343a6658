/* The policies that put nodes on streams, each in a file of its own. All work on one slot's DAG
 * and the assignment repeats in each slot. */
#ifndef DR_SCHEDULER_STREAMS_H
#define DR_SCHEDULER_STREAMS_H

#include "scheduler/parts.h"

#define DR_MATCHING_MAX_NODES 20000u

/* Nimble: chains of the minimum equivalent graph by maximum matching. Fills p->stream with chain
 * numbers folded onto at most `cap` streams; returns the number of chains before folding. */
uint32_t dr_streams_matching(struct dr_plan *p, const struct dr_slot_dag *dag, uint32_t cap,
                             struct dr_arena *a);

/* List scheduling on at most `cap` streams; also sets p->order, the order of its picks. */
void dr_streams_list(struct dr_plan *p, const struct dr_slot_dag *dag, uint32_t cap,
                     const struct dr_device_info *dev, struct dr_arena *a);

#endif
