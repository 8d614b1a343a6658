/* softmax over the last axis. */
#include "kernels/cpu/softmax.h"
#include "kernels/cuda/softmax.h"
#include "ops/common.h"

static bool softmax_infer(struct dr_infer *c) {
    if (!dr_need_f32(c, 0))
        return false;
    return dr_infer_out(c, NULL, DR_F32, dr_infer_in(c, 0)->shape, DR_PLAIN);
}

static struct dr_cost softmax_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, 4.0 * (double)dr_elements(dr_node_in(g, n, 0)));
}

static void softmax_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_value *x = dr_launch_in(l, 0);
    dr_cpu_softmax(cpu, dr_elements(x) / dr_last(x), dr_last(x), l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER softmax_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_value *x = dr_launch_in(l, 0);
    return dr_cuda_softmax(dr_type_of(x), dr_elements(x) / dr_last(x), dr_last(x), l->in[0],
                           l->out[0], cuda->stream);
}

static void softmax_grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_value *y = dr_launch_in(l, 0);
    dr_cpu_softmax_dgrad(cpu, dr_elements(y) / dr_last(y), dr_last(y), l->in[0], l->in[1],
                         l->out[0]);
}
DR_CUDA_LAUNCHER softmax_grad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_value *y = dr_launch_in(l, 0);
    return dr_cuda_softmax_dgrad(dr_type_of(y), dr_elements(y) / dr_last(y), dr_last(y), l->in[0],
                                 l->in[1], l->out[0], cuda->stream);
}

const struct dr_op dr_op_softmax_grad = {
    .name = "softmax_grad",
    .doc = "Gradient of softmax from its output.",
    .flags = DR_OP_INTERNAL,
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = softmax_infer,
    .cost = softmax_cost,
    .cpu = softmax_grad_cpu,
    DR_CUDA(softmax_grad_cuda),
};

static void softmax_grad(struct dr_grad *c) {
    if (!c->need[0])
        return;
    const uint32_t in[] = {c->g->node.at[c->node].out[0], c->dy[0]};
    const uint32_t n = dr_grad_emit(c, "dgrad", &dr_op_softmax_grad, NULL, in, 2);
    c->dx[0] = c->g->node.at[n].out[0];
}

const struct dr_op dr_op_softmax = {
    .name = "softmax",
    .doc = "exp(x) / sum(exp(x)) over the last axis.",
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = softmax_infer,
    .grad = softmax_grad,
    .cost = softmax_cost,
    .cpu = softmax_cpu,
    DR_CUDA(softmax_cuda),
};
