/* cast: values in another storage type, and times a factor where there is one (graph/builtin.h).
 * The precision pass puts casts between fp32 and half precision; one with a factor begins the
 * backward pass where losses are scaled. */
#include "graph/builtin.h"
#include "kernels/cpu/cast.h"
#include "kernels/cuda/cast.h"
#include "ops/common.h"

static uint32_t values_of(const struct dr_node *n) {
    return n->n_in - (((const struct dr_cast_attrs *)n->attrs)->scaled ? 1u : 0u);
}

static bool cast_infer(struct dr_infer *c) {
    const uint32_t n = values_of(&c->g->node.at[c->node]);
    for (uint32_t i = 0; i < n; i++) {
        const struct dr_value *x = dr_infer_in(c, i);
        if (!dr_infer_out(c, NULL, DR_F32, x->shape, x->meaning))
            return false;
    }
    return true;
}

static struct dr_cost cast_cost(const struct dr_graph *g, const struct dr_node *n) {
    double elements = 0;
    for (uint32_t i = 0; i < n->n_out; i++)
        elements += (double)dr_elements(dr_node_out(g, n, i));
    return dr_cost_of(g, n, elements);
}

static const float *factor_of(const struct dr_launch *l) {
    const uint32_t n = values_of(l->node);
    return n < l->node->n_in ? l->in[n] : NULL;
}

static void cast_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const float *factor = factor_of(l);
    for (uint32_t i = 0; i < l->node->n_out; i++)
        dr_cpu_cast(cpu, dr_elements(dr_launch_in(l, i)), dr_type_of(dr_launch_in(l, i)), l->in[i],
                    factor ? *factor : 1.0f, dr_type_of(dr_launch_out(l, i)), l->out[i]);
}
DR_CUDA_LAUNCHER cast_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    struct dr_cuda_casts c = {0};
    int err = 0;
    for (uint32_t i = 0; i < l->node->n_out && !err; i++) {
        c.at[c.n].x = l->in[i];
        c.at[c.n].y = l->out[i];
        c.at[c.n++].n = dr_elements(dr_launch_in(l, i));
        if (c.n == DR_CUDA_CASTS || i + 1 == l->node->n_out) {
            err = dr_cuda_cast(&c, dr_type_of(dr_launch_in(l, 0)), factor_of(l),
                               dr_type_of(dr_launch_out(l, 0)), cuda->stream);
            c.n = 0;
        }
    }
    return err;
}

const struct dr_op dr_op_cast = {
    .name = "cast",
    .doc = "Values in another storage type, times a factor where there is one.",
    .flags = DR_OP_INTERNAL | DR_OP_POINTWISE,
    .attrs_bytes = sizeof(struct dr_cast_attrs),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .half_out = DR_HALF_ALL,
    .infer = cast_infer,
    .cost = cast_cost,
    .cpu = cast_cpu,
    DR_CUDA(cast_cuda),
};
