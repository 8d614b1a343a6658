/* A small table of ops for tests of graph/ and scheduler/ that need no real kernel, a builder for
 * graphs of them, and an interpreter that runs a graph node by node in id order.
 *
 *   data          -> one input                       (filled by the caller or the executor)
 *   unary  x      -> 2 x + 1, pointwise              mul  a, b -> a b        add  a, b, ... -> sum
 *   scale  x      -> weight x (weight f32 [], so a 1x1 convolution of one channel), fuses
 *   relu, tanh                                       argmax x -> i32, no gradient
 *   norm   x      -> y = x - mean, mean (states weight, running_mean; updates it as momentum 0.1)
 *   norm_infer    -> x - running_mean
 *   half, twice   H and W halved (rounded down), doubled; infer only
 *   augment x, header -> x + (sample index + epoch), role augment
 *   flip  a, b, ... , header -> the same, as many as inputs
 *   loss   x, header  -> mean of x over valid samples, partial {sum, count}
 *   metric x, header  -> partial {sum, count}
 *   sgd           weight, gradient, lr, health[, clip]; momentum 0.9, decay 0.01 by attributes
 * and the internal ops of graph/builtin.h. */
#ifndef DR_TESTS_FAKE_OPS_H
#define DR_TESTS_FAKE_OPS_H

#include "graph/builtin.h"
#include "graph/passes.h"

extern const struct dr_op_table fake_ops;
const struct dr_op *fake_op(const char *name); /* asserts that it is there */

struct fake_sgd_attrs {
    double momentum, weight_decay;
};

/* A graph with an arena and a sink of its own, a header, and an optimizer (sgd, lr 0.1, momentum
 * and decay 0) that every node of fake_add uses. fake_free frees all of it. */
struct dr_graph *fake_graph(enum dr_graph_mode mode, int64_t batch);
void fake_free(struct dr_graph *g);
const char *fake_text(const struct dr_graph *g); /* its diagnostics */

/* Nodes added from now on stand in this subgraph. */
void fake_subgraph(struct dr_graph *g, const char *name, bool frozen);
/* An f32 input; the shape has the batch in front. Returns the value. */
uint32_t fake_data(struct dr_graph *g, const char *name, struct dr_shape shape);
/* The node's first output, DR_NONE after an error of its infer. The header is appended where the op
 * wants it. The role follows from the op's flags. */
uint32_t fake_add(struct dr_graph *g, const char *name, const char *op, const uint32_t *in,
                  uint32_t n_in);
uint32_t fake_add1(struct dr_graph *g, const char *name, const char *op, uint32_t a);
uint32_t fake_add2(struct dr_graph *g, const char *name, const char *op, uint32_t a, uint32_t b);
/* The same with the weights of the node called `owner`. */
uint32_t fake_share(struct dr_graph *g, const char *name, const char *owner, uint32_t a);
uint32_t fake_loss(struct dr_graph *g, const char *name, double weight, uint32_t of);
uint32_t fake_metric(struct dr_graph *g, const char *name, uint32_t of);
/* The total of the losses so far; after the last loss. */
void fake_total(struct dr_graph *g);
/* Total, then shapes, frozen, gradients and fuse, with dr_graph_verify between. NULL after an error
 * or a breach (printed to stderr). */
struct dr_graph *fake_passes(struct dr_graph *g);

uint32_t fake_node(const struct dr_graph *g, const char *name);  /* DR_NONE: not there */
uint32_t fake_value(const struct dr_graph *g, const char *name); /* DR_NONE: not there */

/* The interpreter. Values are zeroed at first; states too, except that weights are 1. */
struct fake_run {
    const struct dr_graph *g;
    void **at; /* by value */
};
struct fake_run fake_run_create(const struct dr_graph *g);
void fake_run_step(struct fake_run *r, uint64_t step);  /* fills the header; data as they are */
float *fake_f32(struct fake_run *r, const char *value); /* asserts that it is there */

#endif
