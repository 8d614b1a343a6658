/* The internal ops that passes put into a graph: their names, operands and attributes. The ops
 * themselves are in ops/builtin.c (and ops/sgd.c ...) like all others; the passes find them by
 * name.
 *
 * - data: -> one input of the batch, or its header. Launched by the executor.
 * - total_loss: loss means (f32 []) -> f32 []: the sum of weight[i] * in[i], in order.
 * - lr: header -> f32 []: the rate of header.step.
 * - clip: gradients[, scale] -> f32 []: min(1, max_norm / (global L2 norm + 1e-6)), in a fixed
 * order; where `scaled`, of the gradients over the scale and itself over it: what updates multiply
 * by; NaN then if a gradient is not finite.
 * - guard: total loss, header, health -> health: {1, step} once the total is not finite; sticky.
 * - guard_scaled, with loss scaling: total loss, header, clip, health, scale, good -> health,
 * scale, good. A step whose loss or gradients are not finite makes health {2, step}, for that step
 * alone, and lowers the scale; where the scale is at its least, {1, step}. `good` counts the steps
 * since the scale last changed.
 * - cast: n values -> as many of the same shapes and other storage (the types of the outputs say
 *   which, f32 at first), times a factor (f32 [], the last input) where `scaled`.
 * - add: n values of one shape -> their sum, left to right (also a YAML op).
 * - readback: anything -> nothing. Launched by the executor.
 * - optimizers: n weights, their gradients, lr, health[, clip] + own moments -> weights, moments; n
 *   is 1 without DR_OP_GROUPS. They write nothing while health[0] != 0. Named "WEIGHT:OP" or
 *   "SUBGRAPH:OP"; moments "WEIGHT:OP.leaf" always.
 * - what op->track adds, e.g. batch_norm_stats: batch statistics, states, health -> states; the
 *   same rule. */
#ifndef DR_GRAPH_BUILTIN_H
#define DR_GRAPH_BUILTIN_H
#include "graph/op.h"
struct dr_data_attrs {
    uint32_t input; /* index of the model's input; DR_NONE: the batch header */
};
struct dr_total_loss_attrs {
    struct dr_floats weight;
};
struct dr_lr_attrs {
    struct dr_lr lr;
};
struct dr_cast_attrs {
    int32_t scaled;
};
struct dr_clip_attrs {
    double max_norm; /* INFINITY: none */
    int64_t scaled;
};
struct dr_guard_scaled_attrs {
    struct dr_loss_scaling scaling;
};
#endif
