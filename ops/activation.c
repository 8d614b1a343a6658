/* relu and tanh as nodes of their own. Their gradients read only the output, so that the fuse pass
 * may drop the value before the activation. */
#include "ops/maps.h"

DR_MAP_LAUNCHERS(relu_grad, DR_FN_relu_grad, 0, 0)
DR_MAP_INTERNAL(relu_grad, 2, "Gradient of relu from its output.");

DR_MAP_LAUNCHERS(relu, DR_FN_relu, 0, 0)
static void relu_grad(struct dr_grad *c) {
    const uint32_t in[] = {c->g->node.at[c->node].out[0], c->dy[0]};
    if (c->need[0])
        dr_map_grad(c, 0, &dr_op_relu_grad, NULL, in, 2);
}
const struct dr_op dr_op_relu = {
    .name = "relu",
    .doc = "max(x, 0), element by element. NaN stays NaN; the gradient at 0 is 0.",
    .flags = DR_OP_POINTWISE,
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .grad = relu_grad,
    .cost = dr_cost_pointwise,
    .step = relu_step,
    .cpu = relu_cpu,
    DR_CUDA(relu_cuda),
};

DR_MAP_LAUNCHERS(tanh_grad, DR_FN_tanh_grad, 0, 0)
DR_MAP_INTERNAL(tanh_grad, 2, "Gradient of tanh from its output.");

DR_MAP_LAUNCHERS(tanh, DR_FN_tanh, 0, 0)
static void tanh_grad(struct dr_grad *c) {
    const uint32_t in[] = {c->g->node.at[c->node].out[0], c->dy[0]};
    if (c->need[0])
        dr_map_grad(c, 0, &dr_op_tanh_grad, NULL, in, 2);
}
const struct dr_op dr_op_tanh = {
    .name = "tanh",
    .doc = "Hyperbolic tangent, element by element.",
    .flags = DR_OP_POINTWISE,
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .grad = tanh_grad,
    .cost = dr_cost_pointwise,
    .step = tanh_step,
    .cpu = tanh_cpu,
    DR_CUDA(tanh_cuda),
};
