/* relu and tanh as nodes of their own. Their gradients read only the output, so that the fuse pass
 * may drop the value before the activation. */
#include "ops/common.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cuda/pointwise.h"

static bool same_infer(struct dr_infer *c) {
    if (!dr_need_f32(c, 0))
        return false;
    const struct dr_value *x = dr_infer_in(c, 0);
    return dr_infer_out(c, NULL, DR_F32, x->shape, x->meaning);
}

static bool grad_infer(struct dr_infer *c) { /* y, dy -> dx */
    DR_NEED_SAME(c, 0, 1);
    return dr_infer_out(c, NULL, DR_F32, dr_infer_in(c, 0)->shape, DR_PLAIN);
}

static void emit_grad(struct dr_grad *c, const struct dr_op *op) {
    if (!c->need[0])
        return;
    const uint32_t in[] = {c->g->node.at[c->node].out[0], c->dy[0]};
    const uint32_t n = dr_grad_emit(c, "dgrad", op, NULL, in, 2);
    c->dx[0] = c->g->node.at[n].out[0];
}

static void relu_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    dr_cpu_relu_fprop(cpu, dr_elements(dr_launch_out(l, 0)), l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER relu_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    return dr_cuda_act_fprop(dr_elements(dr_launch_out(l, 0)), DR_ACT_RELU, l->in[0], l->out[0],
                             cuda->stream);
}
static void relu_grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    dr_cpu_relu_dgrad(cpu, dr_elements(dr_launch_out(l, 0)), l->in[0], l->in[1], l->out[0]);
}
DR_CUDA_LAUNCHER relu_grad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    return dr_cuda_act_dgrad(dr_elements(dr_launch_out(l, 0)), DR_ACT_RELU, l->in[0], l->in[1],
                             l->out[0], cuda->stream);
}
static void tanh_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    dr_cpu_tanh_fprop(cpu, dr_elements(dr_launch_out(l, 0)), l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER tanh_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    return dr_cuda_act_fprop(dr_elements(dr_launch_out(l, 0)), DR_ACT_TANH, l->in[0], l->out[0],
                             cuda->stream);
}
static void tanh_grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    dr_cpu_tanh_dgrad(cpu, dr_elements(dr_launch_out(l, 0)), l->in[0], l->in[1], l->out[0]);
}
DR_CUDA_LAUNCHER tanh_grad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    return dr_cuda_act_dgrad(dr_elements(dr_launch_out(l, 0)), DR_ACT_TANH, l->in[0], l->in[1],
                             l->out[0], cuda->stream);
}

const struct dr_op dr_op_relu_grad = {
    .name = "relu_grad",
    .doc = "Gradient of relu from its output.",
    .flags = DR_OP_INTERNAL | DR_OP_POINTWISE,
    .min_in = 2,
    .max_in = 2,
    .outputs = 1,
    .infer = grad_infer,
    .cost = dr_cost_pointwise,
    .cpu = relu_grad_cpu,
    DR_CUDA(relu_grad_cuda),
};
static void relu_grad(struct dr_grad *c) {
    emit_grad(c, &dr_op_relu_grad);
}
const struct dr_op dr_op_relu = {
    .name = "relu",
    .doc = "max(x, 0), element by element. NaN stays NaN; the gradient at 0 is 0.",
    .flags = DR_OP_POINTWISE,
    .min_in = 1,
    .max_in = 1,
    .outputs = 1,
    .infer = same_infer,
    .grad = relu_grad,
    .cost = dr_cost_pointwise,
    .cpu = relu_cpu,
    DR_CUDA(relu_cuda),
};

const struct dr_op dr_op_tanh_grad = {
    .name = "tanh_grad",
    .doc = "Gradient of tanh from its output.",
    .flags = DR_OP_INTERNAL | DR_OP_POINTWISE,
    .min_in = 2,
    .max_in = 2,
    .outputs = 1,
    .infer = grad_infer,
    .cost = dr_cost_pointwise,
    .cpu = tanh_grad_cpu,
    DR_CUDA(tanh_grad_cuda),
};
static void tanh_grad(struct dr_grad *c) {
    emit_grad(c, &dr_op_tanh_grad);
}
const struct dr_op dr_op_tanh = {
    .name = "tanh",
    .doc = "Hyperbolic tangent, element by element.",
    .flags = DR_OP_POINTWISE,
    .min_in = 1,
    .max_in = 1,
    .outputs = 1,
    .infer = same_infer,
    .grad = tanh_grad,
    .cost = dr_cost_pointwise,
    .cpu = tanh_cpu,
    DR_CUDA(tanh_cuda),
};
