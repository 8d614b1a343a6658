/* Exact minimum s-t cut of a small sparse network (Dinic). Used by the retiming. */
#ifndef DR_SCHEDULER_MINCUT_H
#define DR_SCHEDULER_MINCUT_H

#include "graph/base.h"

#define DR_MINCUT_S 0u /* the source, and the sink, are always there */
#define DR_MINCUT_T 1u
#define DR_MINCUT_INF (INT64_MAX / 4)

struct dr_mincut;
struct dr_mincut *dr_mincut_create(struct dr_arena *a);
uint32_t dr_mincut_node(struct dr_mincut *m);
/* Edges from a node to itself, into the source or out of the sink are left out. */
void dr_mincut_edge(struct dr_mincut *m, uint32_t from, uint32_t to, int64_t capacity);
int64_t dr_mincut_solve(struct dr_mincut *m);
/* After solve: is the node on the source's side of the minimum cut with the largest such side? */
bool dr_mincut_above(const struct dr_mincut *m, uint32_t node);

#endif
