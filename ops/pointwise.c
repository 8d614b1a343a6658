/* pointwise: a chain of functions of kernels/maps.h, element by element, which the fuse pass makes
 * of nodes that follow each other. */
#include "kernels/cpu/maps.h"
#include "kernels/cuda/chain.h"
#include "ops/common.h"

_Static_assert(DR_CHAIN_STEPS <= DR_CHAIN_MOST && DR_CHAIN_INPUTS <= DR_CHAIN_MOST, "too long");

static int operand(const struct dr_chain *c, uint32_t step, uint32_t i) {
    const bool read = i < c->at[step].n_in && c->at[step].in[i] != DR_NONE;
    return read ? (int)c->at[step].in[i] : -1;
}

static struct dr_map_chain chain_of(const struct dr_launch *l) {
    const struct dr_chain *c = l->node->attrs;
    struct dr_map_chain k = {.n = (int)c->n, .n_x = (int)l->node->n_in, .y = l->out[0]};
    for (uint32_t i = 0; i < c->n; i++) {
        const struct dr_step *s = &c->at[i].step;
        k.step[i] = (struct dr_map_step){
            s->fn, operand(c, i, 0), operand(c, i, 1), operand(c, i, 2), s->p, s->q};
    }
    for (uint32_t i = 0; i < l->node->n_in; i++) {
        k.x[i] = l->in[i];
    }
    return k;
}

static void pointwise_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_map_chain k = chain_of(l);
    dr_cpu_chain(cpu, dr_elements(dr_launch_out(l, 0)), &k);
}
DR_CUDA_LAUNCHER pointwise_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_map_chain k = chain_of(l);
    const struct dr_value *y = dr_launch_out(l, 0);
    return dr_cuda_chain(dr_type_of(y), dr_elements(y), &k, cuda->stream);
}

static struct dr_cost pointwise_cost(const struct dr_graph *g, const struct dr_node *n) {
    const struct dr_chain *c = n->attrs;
    return dr_cost_of(g, n, (double)dr_elements(dr_node_out(g, n, 0)) * c->n);
}

const struct dr_op dr_op_pointwise = {
    .name = "pointwise",
    .doc = "Pointwise ops that follow each other, in one pass over memory.",
    .flags = DR_OP_INTERNAL | DR_OP_POINTWISE,
    .attrs_bytes = sizeof(struct dr_chain),
    .min_in = 1,
    .max_in = DR_CHAIN_INPUTS,
    .half_in = DR_HALF_ALL,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_infer_same_shapes,
    .cost = pointwise_cost,
    .cpu = pointwise_cpu,
    DR_CUDA(pointwise_cuda),
};
