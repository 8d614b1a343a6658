/* Private to graph/gradients.c and graph/updates.c: what the backward pass hands to the updates. */
#ifndef DR_GRAPH_GRADIENTS_H
#define DR_GRAPH_GRADIENTS_H

#include "graph/passes.h"

struct dr_updates {
    struct dr_graph *g;
    const struct dr_op_table *ops;
    uint32_t n_nodes, n_values; /* of the forward graph */
    const uint32_t *grad;       /* by value: a weight's gradient, DR_NONE: no loss reaches it */
    uint32_t good;              /* state of loss scaling, with g->loss_scale; DR_NONE */
};
/* Adds the states of loss scaling: sets g->loss_scale, returns the count of good steps. */
uint32_t dr_add_scaling(struct dr_graph *g);
/* False after errors in the sink. */
bool dr_emit_updates(const struct dr_updates *u);

#endif
