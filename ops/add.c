/* add: the sum of two or more values of one shape. Also how the gradients pass sums the gradients
 * of a value that is used more than once, in the order given. Nothing is broadcast. */
#include "ops/common.h"
#include "kernels/cpu/pointwise.h"
#include "kernels/cuda/pointwise.h"
#include "kernels/maps.h"

struct add_attrs {
    struct dr_fused fused;
};

static void add_grad(struct dr_grad *c) {
    const uint32_t n = c->g->node.at[c->node].n_in;
    for (uint32_t i = 0; i < n; i++)
        if (c->need[i])
            c->dx[i] = c->dy[0];
}

static struct dr_cost add_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, (double)dr_elements(dr_node_out(g, n, 0)) * (n->n_in - 1));
}

static void add_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct add_attrs *a = l->node->attrs;
    dr_cpu_add(cpu, dr_elements(dr_launch_out(l, 0)), (const void *const *)l->in, l->node->n_in,
               a->fused.activation, l->out[0]);
}
DR_CUDA_LAUNCHER add_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct add_attrs *a = l->node->attrs;
    const struct dr_value *y = dr_launch_out(l, 0);
    return dr_cuda_add(dr_type_of(y), dr_elements(y), (const void *const *)l->in, l->node->n_in,
                       a->fused.activation, l->out[0], cuda->stream);
}

static struct dr_step add_step(const struct dr_node *n) {
    (void)n;
    return (struct dr_step){.fn = DR_FN_add};
}

const struct dr_op dr_op_add = {
    .name = "add",
    .doc = "Sum of two or more values of one shape, left to right; nothing is broadcast.",
    .flags = DR_OP_POINTWISE | DR_OP_ACTIVATION | DR_OP_FUSES,
    .attrs_bytes = sizeof(struct add_attrs),
    .min_in = 2,
    .max_in = UINT32_MAX,
    .half_in = DR_HALF_ALL,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .grad = add_grad,
    .cost = add_cost,
    .step = add_step,
    .cpu = add_cpu,
    DR_CUDA(add_cuda),
};
