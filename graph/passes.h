/* The passes of graph/, in the order in which scheduler/passes.c lists them. Each returns the graph
 * to go on with (the same one for annotating passes), or NULL after errors in the sink. The first
 * comment of each file says what holds before and after. */
#ifndef DR_GRAPH_PASSES_H
#define DR_GRAPH_PASSES_H

#include "graph/model.h"

/* load: the model's nodes as a graph with data nodes, the header, eval forms and terms; runs
 * op->infer node by node on the way, so that `shapes` has only labels' classes and unused nodes
 * left to do. By mode:
 * - train: everything of `train:`; metrics are left out (they belong to eval)
 * - eval: eval forms, losses and metrics
 * - infer: eval forms; losses, metrics, labels and what only feeds them are dropped, `outputs` kept
 *
 * total_steps: for learning rates (steps, or epochs times batches). */
struct dr_graph *dr_pass_load(const struct dr_model *m, enum dr_graph_mode mode,
                              int64_t total_steps);

/* shapes: propagates `classes` from losses and metrics back to the data inputs; warns about and
 * drops nodes that nothing needs. */
struct dr_graph *dr_pass_shapes(struct dr_graph *g);

/* frozen: node->cls, node->needs_grad; frozen state; FRZ-04 (a weight frozen by one user and
 * trained by another is an error), frozen without weights, nothing trainable in training. */
struct dr_graph *dr_pass_frozen(struct dr_graph *g);

/* node->cls alone, from the states that are frozen: for passes that add nodes. */
void dr_graph_classify(struct dr_graph *g);

/* gradients (train only; others pass through): backward nodes, gradient sums in a fixed order,
 * guard, clip, learning rates, optimizers, op->track, readback. `ops` finds the internal ops by
 * name. */
struct dr_graph *dr_pass_gradients(struct dr_graph *g, const struct dr_op_table *ops);

/* precision: fp16 or bf16 storage, as g->half says, and the casts that it takes; `ops` finds them.
 */
struct dr_graph *dr_pass_precision(struct dr_graph *g, const struct dr_op_table *ops);

/* fuse: norms, sums and activations into the kernel above, pointwise ops into chains; `ops` finds
 * the op `pointwise`. */
struct dr_graph *dr_pass_fuse(struct dr_graph *g, const struct dr_op_table *ops);

/* Graphviz of a graph and, where there is one, its plan: plain side tables, so that graph/ needs no
 * scheduler. All arrays are by node or value id and may be NULL. */
struct dr_dot {
    const struct dr_graph *g;
    const uint8_t *stream, *stage; /* by node */
    const uint32_t *depth;         /* by value: buffers */
    uint32_t n_streams;
    const char *title; /* "segment: policy stage, 3 streams" */
    bool whole;        /* every node a box of its own */
};
/* One line a node and edge, synthetic ids, the first line a comment with the counts. The gradients
 * of a subgraph and its updates are a box each; past 200 boxes chains within one subgraph, stream
 * and role are collapsed too. */
void dr_dot_write(const struct dr_dot *d, struct dr_text *t);

#endif
