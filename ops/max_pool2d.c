/* max_pool2d, NHWC. */
#include "kernels/cpu/max_pool.h"
#include "kernels/cuda/norm.h"
#include "ops/pool.h"

static const struct dr_attr pool_attrs[] = {
    DR_POOL_ATTRS("at most half the kernel on each side; it never wins"),
};

static void pool_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_pool p =
        dr_pool_of(l->node->attrs, &dr_launch_in(l, 0)->shape, &dr_launch_out(l, 0)->shape);
    dr_cpu_max_pool_fprop(cpu, &p, l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER pool_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_pool p =
        dr_pool_of(l->node->attrs, &dr_launch_in(l, 0)->shape, &dr_launch_out(l, 0)->shape);
    return dr_cuda_max_pool_fprop(dr_type_of(dr_launch_in(l, 0)), &p, l->in[0], l->out[0],
                                  cuda->stream);
}

static struct dr_cost pool_cost(const struct dr_graph *g, const struct dr_node *n) {
    const struct dr_pool_attrs *a = n->attrs;
    const struct dr_value *y = n->n_in > 1 ? dr_node_in(g, n, 1) : dr_node_out(g, n, 0);
    return dr_cost_of(g, n, (double)dr_elements(y) * (double)(a->kernel[0] * a->kernel[1]));
}

/* ---- gradient: x, dy -> dx ---- */
static bool grad_infer(struct dr_infer *c) {
    return dr_infer_out(c, NULL, DR_F32, dr_infer_in(c, 0)->shape, DR_PLAIN);
}
static void grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_pool p =
        dr_pool_of(l->node->attrs, &dr_launch_in(l, 0)->shape, &dr_launch_in(l, 1)->shape);
    dr_cpu_max_pool_dgrad(cpu, &p, l->in[0], l->in[1], l->out[0]);
}
DR_CUDA_LAUNCHER grad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_pool p =
        dr_pool_of(l->node->attrs, &dr_launch_in(l, 0)->shape, &dr_launch_in(l, 1)->shape);
    return dr_cuda_max_pool_dgrad(dr_type_of(dr_launch_in(l, 0)), &p, l->in[0], l->in[1],
                                  l->workspace, l->out[0], cuda->stream);
}
static struct dr_choice grad_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    const struct dr_pool p =
        dr_pool_of(n->attrs, &dr_node_in(g, n, 0)->shape, &dr_node_in(g, n, 1)->shape);
    return (struct dr_choice){.workspace_bytes = cuda ? dr_cuda_max_pool_bytes(&p) : 0,
                              .kernel = cuda ? "winners, then gather" : NULL};
}
const struct dr_op dr_op_max_pool2d_grad = {
    .name = "max_pool2d_grad",
    .doc = "Gradient of max_pool2d: to the first winner of each window.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct dr_pool_attrs),
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = grad_infer,
    .cost = pool_cost,
    .choose = grad_choose,
    .cpu = grad_cpu,
    DR_CUDA(grad_cuda),
};
static void pool_grad(struct dr_grad *c) {
    if (!c->need[0])
        return;
    const uint32_t in[] = {c->g->node.at[c->node].in[0], c->dy[0]};
    const uint32_t n = dr_grad_emit(c, "dgrad", &dr_op_max_pool2d_grad, NULL, in, 2);
    c->dx[0] = c->g->node.at[n].out[0];
}

const struct dr_op dr_op_max_pool2d = {
    .name = "max_pool2d",
    .doc = "Largest value of each window. NaN is kept; the gradient goes to the first winner.",
    .attrs = pool_attrs,
    .n_attrs = DR_COUNT(pool_attrs),
    .attrs_bytes = sizeof(struct dr_pool_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_pool_infer,
    .grad = pool_grad,
    .cost = pool_cost,
    .cpu = pool_cpu,
    DR_CUDA(pool_cuda),
};
