/* Private to graph/gradients.c and graph/updates.c: what the backward pass hands to the updates. */
#ifndef DR_GRAPH_GRADIENTS_H
#define DR_GRAPH_GRADIENTS_H

#include "graph/passes.h"

struct dr_updates {
    struct dr_graph *g;
    const struct dr_op_table *ops;
    uint32_t n_nodes, n_values; /* of the forward graph */
    const uint32_t *grad;       /* by value: a weight's gradient, DR_NONE: no loss reaches it */
};
/* False after errors in the sink. */
bool dr_emit_updates(const struct dr_updates *u);

#endif
