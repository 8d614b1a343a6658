/* sub, mul, div, abs, sqrt and clamp: element by element, nothing is broadcast. */
#include "ops/maps.h"

extern const struct dr_op dr_op_mul, dr_op_div; /* their gradients are made of them */

/* ---- of two values ---- */
DR_MAP_LAUNCHERS(neg, DR_FN_neg, 0, 0)
DR_MAP_INTERNAL(neg, 1, "-x.");

DR_MAP_LAUNCHERS(sub, DR_FN_sub, 0, 0)
static void sub_grad(struct dr_grad *c) {
    if (c->need[0])
        c->dx[0] = c->dy[0];
    if (c->need[1])
        dr_map_grad(c, 1, &dr_op_neg, NULL, c->dy, 1);
}
const struct dr_op dr_op_sub = {
    .name = "sub",
    .doc = "Difference of two values of one shape.",
    .flags = DR_OP_POINTWISE,
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .grad = sub_grad,
    .cost = dr_cost_pointwise,
    .step = sub_step,
    .cpu = sub_cpu,
    DR_CUDA(sub_cuda),
};

DR_MAP_LAUNCHERS(mul, DR_FN_mul, 0, 0)
static void mul_grad(struct dr_grad *c) {
    const uint32_t a = c->g->node.at[c->node].in[0], b = c->g->node.at[c->node].in[1];
    if (c->need[0])
        dr_map_grad(c, 0, &dr_op_mul, NULL, (uint32_t[]){c->dy[0], b}, 2);
    if (c->need[1])
        dr_map_grad(c, 1, &dr_op_mul, NULL, (uint32_t[]){c->dy[0], a}, 2);
}
const struct dr_op dr_op_mul = {
    .name = "mul",
    .doc = "Product of two values of one shape.",
    .flags = DR_OP_POINTWISE,
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .grad = mul_grad,
    .cost = dr_cost_pointwise,
    .step = mul_step,
    .cpu = mul_cpu,
    DR_CUDA(mul_cuda),
};

DR_MAP_LAUNCHERS(div_grad, DR_FN_div_grad, 0, 0)
DR_MAP_INTERNAL(div_grad, 3, "Gradient of div by its divisor, from its output.");

DR_MAP_LAUNCHERS(div, DR_FN_div, 0, 0)
static void div_grad(struct dr_grad *c) {
    const uint32_t b = c->g->node.at[c->node].in[1], y = c->g->node.at[c->node].out[0];
    if (c->need[0])
        dr_map_grad(c, 0, &dr_op_div, NULL, (uint32_t[]){c->dy[0], b}, 2);
    if (c->need[1])
        dr_map_grad(c, 1, &dr_op_div_grad, NULL, (uint32_t[]){y, c->dy[0], b}, 3);
}
const struct dr_op dr_op_div = {
    .name = "div",
    .doc = "Quotient of two values of one shape.",
    .flags = DR_OP_POINTWISE,
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .grad = div_grad,
    .cost = dr_cost_pointwise,
    .step = div_step,
    .cpu = div_cpu,
    DR_CUDA(div_cuda),
};

/* ---- of one value ---- */
DR_MAP_LAUNCHERS(abs_grad, DR_FN_abs_grad, 0, 0)
DR_MAP_INTERNAL(abs_grad, 2, "Gradient of abs from its input.");

DR_MAP_LAUNCHERS(abs, DR_FN_abs, 0, 0)
static void abs_grad(struct dr_grad *c) {
    const uint32_t in[] = {c->g->node.at[c->node].in[0], c->dy[0]};
    if (c->need[0])
        dr_map_grad(c, 0, &dr_op_abs_grad, NULL, in, 2);
}
const struct dr_op dr_op_abs = {
    .name = "abs",
    .doc = "Absolute value; its gradient at 0 is 0.",
    .flags = DR_OP_POINTWISE,
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .grad = abs_grad,
    .cost = dr_cost_pointwise,
    .step = abs_step,
    .cpu = abs_cpu,
    DR_CUDA(abs_cuda),
};

DR_MAP_LAUNCHERS(sqrt_grad, DR_FN_sqrt_grad, 0, 0)
DR_MAP_INTERNAL(sqrt_grad, 2, "Gradient of sqrt from its output.");

DR_MAP_LAUNCHERS(sqrt, DR_FN_sqrt, 0, 0)
static void sqrt_grad(struct dr_grad *c) {
    const uint32_t in[] = {c->g->node.at[c->node].out[0], c->dy[0]};
    if (c->need[0])
        dr_map_grad(c, 0, &dr_op_sqrt_grad, NULL, in, 2);
}
const struct dr_op dr_op_sqrt = {
    .name = "sqrt",
    .doc = "Square root; NaN below 0, an infinite gradient at 0.",
    .flags = DR_OP_POINTWISE,
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .grad = sqrt_grad,
    .cost = dr_cost_pointwise,
    .step = sqrt_step,
    .cpu = sqrt_cpu,
    DR_CUDA(sqrt_cuda),
};

/* ---- clamp ---- */
struct clamp_attrs {
    double min, max;
};
static const struct dr_attr clamp_attrs[] = {
    {.name = "min",
     .doc = "lower bound; where it is not given: none",
     .kind = DR_ATTR_FLOAT,
     .def = -INFINITY,
     .min = -1e30,
     .max = 1e30,
     .offset = offsetof(struct clamp_attrs, min)},
    {.name = "max",
     .doc = "upper bound; where it is not given: none",
     .kind = DR_ATTR_FLOAT,
     .def = INFINITY,
     .min = -1e30,
     .max = 1e30,
     .offset = offsetof(struct clamp_attrs, max)},
};
#define CLAMP(n) ((const struct clamp_attrs *)(n)->attrs)

static bool clamp_infer(struct dr_infer *c) {
    const struct clamp_attrs *a = dr_infer_attrs(c);
    if (isinf(a->min) && isinf(a->max))
        return dr_infer_error(c, "it has neither `min` nor `max`");
    if (a->min > a->max)
        return dr_infer_wrong(c, "min", "min %g is above max %g", a->min, a->max);
    return dr_infer_same_shapes(c);
}

DR_MAP_LAUNCHERS(clamp_grad, DR_FN_clamp_grad, CLAMP(n)->min, CLAMP(n)->max)
const struct dr_op dr_op_clamp_grad = {
    .name = "clamp_grad",
    .doc = "Gradient of clamp from its input.",
    .flags = DR_OP_INTERNAL | DR_OP_POINTWISE,
    .attrs_bytes = sizeof(struct clamp_attrs),
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .cost = dr_cost_pointwise,
    .step = clamp_grad_step,
    .cpu = clamp_grad_cpu,
    DR_CUDA(clamp_grad_cuda),
};

DR_MAP_LAUNCHERS(clamp, DR_FN_clamp, CLAMP(n)->min, CLAMP(n)->max)
static void clamp_grad(struct dr_grad *c) {
    const uint32_t in[] = {c->g->node.at[c->node].in[0], c->dy[0]};
    if (c->need[0])
        dr_map_grad(c, 0, &dr_op_clamp_grad, NULL, in, 2);
}
const struct dr_op dr_op_clamp = {
    .name = "clamp",
    .doc = "Between min and max. NaN stays NaN; the gradient at a bound is dy.",
    .flags = DR_OP_POINTWISE,
    .attrs = clamp_attrs,
    .n_attrs = DR_COUNT(clamp_attrs),
    .attrs_bytes = sizeof(struct clamp_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = clamp_infer,
    .grad = clamp_grad,
    .cost = dr_cost_pointwise,
    .step = clamp_step,
    .cpu = clamp_cpu,
    DR_CUDA(clamp_cuda),
};
