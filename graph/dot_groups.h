/* Private to graph/dot*.c: which nodes are drawn as one box. */
#ifndef DR_GRAPH_DOT_GROUPS_H
#define DR_GRAPH_DOT_GROUPS_H

#include "graph/passes.h"

#define DR_DOT_MANY 200 /* from here on chains collapse: dot slows down, and so does the reader */

struct dr_dot_groups {
    uint32_t *of;   /* by node: the group's first node */
    uint32_t *size; /* by node: of a first node, the group's nodes */
    uint32_t *last; /* by node: of a first node, the group's last node */
    uint32_t n;     /* groups */
};
struct dr_dot_groups dr_dot_group(const struct dr_dot *d, struct dr_arena *a);

/* An edge that is drawn. States are not, nor is what a step has one of and nearly everything reads:
 * the batch header, the learning rates, the clip factor. */
bool dr_dot_is_plain(const struct dr_graph *g, uint32_t value);
uint8_t dr_dot_stream(const struct dr_dot *d, uint32_t node);

#endif
