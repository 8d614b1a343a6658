/* What several ops need: checks of operands, sizes, launch pointers, costs. */
#ifndef DR_OPS_COMMON_H
#define DR_OPS_COMMON_H

#include "graph/op.h"
#include "kernels/dtype.h"
#include "kernels/epilogue.h"

#define DR_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Input i must be f32; the error says what makes it so. */
bool dr_need_f32(struct dr_infer *c, uint32_t i);
/* All inputs are f32 (the node's inputs so far, states included). */
bool dr_need_all_f32(struct dr_infer *c);
/* `infer` of pointwise ops: f32 inputs of one shape, nothing broadcast; one output like them. */
bool dr_infer_same_shapes(struct dr_infer *c);
/* Input i must have this rank; `layout` is for people: "[N, H, W, C]". */
bool dr_need_rank(struct dr_infer *c, uint32_t i, uint32_t rank, const char *layout);
/* The same for an internal op, whose operands a pass chose: a mismatch is a programmer's mistake.
 */
#define DR_NEED_SAME(c, i, j)                                                                      \
    DR_ASSERT(dr_shape_equal(&dr_infer_in((c), (i))->shape, &dr_infer_in((c), (j))->shape))

/* An attribute `axis` of input 0: a negative one counts from the end, the batch has none. */
bool dr_need_axis(struct dr_infer *c, int64_t *axis);

int64_t dr_elements(const struct dr_value *v); /* of a value of the graph: known to fit */
int64_t dr_last(const struct dr_value *v);     /* the last axis; 1 for a scalar */

/* Bytes of one step along an axis, and how many runs of it there are. */
int64_t dr_bytes_after(const struct dr_value *v, int64_t axis);
int64_t dr_runs_before(const struct dr_value *v, int64_t axis);

/* Operands of a launch and of a node. */
static inline const struct dr_value *dr_launch_in(const struct dr_launch *l, uint32_t i) {
    return &l->value[l->node->in[i]];
}
static inline const struct dr_value *dr_launch_out(const struct dr_launch *l, uint32_t i) {
    return &l->value[l->node->out[i]];
}
static inline const struct dr_value *dr_node_in(const struct dr_graph *g, const struct dr_node *n,
                                                uint32_t i) {
    return &g->value.at[n->in[i]];
}
static inline const struct dr_value *dr_node_out(const struct dr_graph *g, const struct dr_node *n,
                                                 uint32_t i) {
    return &g->value.at[n->out[i]];
}

/* How a float value is stored, as kernels name it. */
static inline enum dr_type dr_type_of(const struct dr_value *v) {
    DR_ASSERT(v->dtype == DR_F32 || v->dtype == DR_F16 || v->dtype == DR_BF16);
    return v->dtype == DR_F16 ? DR_TYPE_F16 : v->dtype == DR_BF16 ? DR_TYPE_BF16 : DR_TYPE_F32;
}

/* What a launch of a node does as it stores: `own` inputs are its op's, those that the fuse pass
 * added follow (struct dr_fused). The bias is the op's own part. */
struct dr_epilogue dr_launch_epilogue(const struct dr_launch *l, const struct dr_fused *f,
                                      uint32_t own, const float *bias);

/* `finish` of losses and metrics whose partial sums are {sum, count}; 0 where nothing counts. */
double dr_finish_mean(const void *attrs, const double *partial, uint32_t n);

/* Every operand once (a state that is read and written: twice), and the given flops. */
struct dr_cost dr_cost_of(const struct dr_graph *g, const struct dr_node *n, double flops);
/* One flop for each element of the first output (or input, where there is none). */
struct dr_cost dr_cost_pointwise(const struct dr_graph *g, const struct dr_node *n);

/* The gradient of y = op(x, weight[, bias]), bias on the last axis: emits "dgrad" (dy, weight ->
 * dx), "wgrad" (x, dy -> dw) and "bgrad" (dy -> db), each where it is wanted. */
void dr_weighted_grad(struct dr_grad *c, const struct dr_op *dgrad, const struct dr_op *wgrad);

#endif
