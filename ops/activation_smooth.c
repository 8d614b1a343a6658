/* sigmoid, leaky_relu, silu and gelu as nodes of their own. The first two are differentiated from
 * their output, so that the fuse pass may drop the value before them; silu and gelu are not
 * monotone, and their gradients read their input. */
#include "ops/maps.h"

/* ---- sigmoid ---- */
DR_MAP_LAUNCHERS(sigmoid_grad, DR_FN_sigmoid_grad, 0, 0)
DR_MAP_INTERNAL(sigmoid_grad, 2, "Gradient of sigmoid from its output.");

DR_MAP_LAUNCHERS(sigmoid, DR_FN_sigmoid, 0, 0)
static void sigmoid_grad(struct dr_grad *c) {
    const uint32_t in[] = {c->g->node.at[c->node].out[0], c->dy[0]};
    if (c->need[0])
        dr_map_grad(c, 0, &dr_op_sigmoid_grad, NULL, in, 2);
}
const struct dr_op dr_op_sigmoid = {
    .name = "sigmoid",
    .doc = "1 / (1 + exp(-x)), element by element.",
    .flags = DR_OP_POINTWISE,
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .grad = sigmoid_grad,
    .cost = dr_cost_pointwise,
    .step = sigmoid_step,
    .cpu = sigmoid_cpu,
    DR_CUDA(sigmoid_cuda),
};

/* ---- leaky_relu ---- */
struct leaky_relu_attrs {
    double negative_slope;
};
static const struct dr_attr leaky_relu_attrs[] = {
    {.name = "negative_slope",
     .doc = "slope below zero",
     .kind = DR_ATTR_FLOAT,
     .def = 0.01, /* DR_LEAKY_SLOPE */
     .min = -1e6,
     .max = 1e6,
     .offset = offsetof(struct leaky_relu_attrs, negative_slope)},
};
#define SLOPE(n) (((const struct leaky_relu_attrs *)(n)->attrs)->negative_slope)

DR_MAP_LAUNCHERS(leaky_relu_grad, DR_FN_leaky_relu_grad, SLOPE(n), 0)
const struct dr_op dr_op_leaky_relu_grad = {
    .name = "leaky_relu_grad",
    .doc = "Gradient of leaky_relu from its output or, where the slope is negative, its input.",
    .flags = DR_OP_INTERNAL | DR_OP_POINTWISE,
    .attrs_bytes = sizeof(struct leaky_relu_attrs),
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .cost = dr_cost_pointwise,
    .step = leaky_relu_grad_step,
    .cpu = leaky_relu_grad_cpu,
    DR_CUDA(leaky_relu_grad_cuda),
};

DR_MAP_LAUNCHERS(leaky_relu, DR_FN_leaky_relu, SLOPE(n), 0)
static void leaky_relu_grad(struct dr_grad *c) {
    const struct dr_node *n = &c->g->node.at[c->node];
    const bool falls = ((const struct leaky_relu_attrs *)n->attrs)->negative_slope < 0;
    const uint32_t in[] = {falls ? n->in[0] : n->out[0], c->dy[0]};
    if (c->need[0])
        dr_map_grad(c, 0, &dr_op_leaky_relu_grad, NULL, in, 2);
}
const struct dr_op dr_op_leaky_relu = {
    .name = "leaky_relu",
    .doc = "x where x > 0, else negative_slope * x. `activation: leaky_relu` has a slope of 0.01.",
    .flags = DR_OP_POINTWISE,
    .attrs = leaky_relu_attrs,
    .n_attrs = DR_COUNT(leaky_relu_attrs),
    .attrs_bytes = sizeof(struct leaky_relu_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .grad = leaky_relu_grad,
    .cost = dr_cost_pointwise,
    .step = leaky_relu_step,
    .cpu = leaky_relu_cpu,
    DR_CUDA(leaky_relu_cuda),
};

/* ---- silu ---- */
DR_MAP_LAUNCHERS(silu_grad, DR_FN_silu_grad, 0, 0)
DR_MAP_INTERNAL(silu_grad, 2, "Gradient of silu from its input.");

DR_MAP_LAUNCHERS(silu, DR_FN_silu, 0, 0)
static void silu_grad(struct dr_grad *c) {
    const uint32_t in[] = {c->g->node.at[c->node].in[0], c->dy[0]};
    if (c->need[0])
        dr_map_grad(c, 0, &dr_op_silu_grad, NULL, in, 2);
}
const struct dr_op dr_op_silu = {
    .name = "silu",
    .doc = "x * sigmoid(x), element by element.",
    .flags = DR_OP_POINTWISE,
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .grad = silu_grad,
    .cost = dr_cost_pointwise,
    .step = silu_step,
    .cpu = silu_cpu,
    DR_CUDA(silu_cuda),
};

/* ---- gelu ---- */
enum { GELU_NONE, GELU_TANH };
static const char *const approximations[] = {[GELU_NONE] = "none", [GELU_TANH] = "tanh"};
struct gelu_attrs {
    int32_t approximate;
};
static const struct dr_attr gelu_attrs[] = {
    {.name = "approximate",
     .doc = "none: x * Phi(x); tanh: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))",
     .kind = DR_ATTR_WORD,
     .words = approximations,
     .n_words = DR_COUNT(approximations),
     .offset = offsetof(struct gelu_attrs, approximate)},
};
#define BY_TANH(n) (((const struct gelu_attrs *)(n)->attrs)->approximate == GELU_TANH)

DR_MAP_LAUNCHERS(gelu_grad, BY_TANH(n) ? DR_FN_gelu_tanh_grad : DR_FN_gelu_grad, 0, 0)
const struct dr_op dr_op_gelu_grad = {
    .name = "gelu_grad",
    .doc = "Gradient of gelu from its input.",
    .flags = DR_OP_INTERNAL | DR_OP_POINTWISE,
    .attrs_bytes = sizeof(struct gelu_attrs),
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .cost = dr_cost_pointwise,
    .step = gelu_grad_step,
    .cpu = gelu_grad_cpu,
    DR_CUDA(gelu_grad_cuda),
};

DR_MAP_LAUNCHERS(gelu, BY_TANH(n) ? DR_FN_gelu_tanh : DR_FN_gelu, 0, 0)
static void gelu_grad(struct dr_grad *c) {
    const uint32_t in[] = {c->g->node.at[c->node].in[0], c->dy[0]};
    if (c->need[0])
        dr_map_grad(c, 0, &dr_op_gelu_grad, NULL, in, 2);
}
const struct dr_op dr_op_gelu = {
    .name = "gelu",
    .doc = "x * Phi(x), element by element, exact unless `approximate: tanh`.",
    .flags = DR_OP_POINTWISE,
    .attrs = gelu_attrs,
    .n_attrs = DR_COUNT(gelu_attrs),
    .attrs_bytes = sizeof(struct gelu_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .grad = gelu_grad,
    .cost = dr_cost_pointwise,
    .step = gelu_step,
    .cpu = gelu_cpu,
    DR_CUDA(gelu_cuda),
};
