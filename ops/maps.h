/* Ops that are one function of kernels/maps.h: launchers, and rows of their gradients. */
#ifndef DR_OPS_MAPS_H
#define DR_OPS_MAPS_H
#include "kernels/cpu/maps.h"
#include "kernels/cuda/maps.h"
#include "ops/common.h"

static inline struct dr_map_args dr_map_operands(const struct dr_launch *l,
                                                 const struct dr_step *s) {
    return (struct dr_map_args){.a = l->in[0],
                                .b = l->node->n_in > 1 ? l->in[1] : NULL,
                                .c = l->node->n_in > 2 ? l->in[2] : NULL,
                                .p = s->p,
                                .q = s->q,
                                .y = l->out[0]};
}

/* id_step, id_cpu and id_cuda; map, p and q may read the node `n`. */
#define DR_MAP_LAUNCHERS(id, map, p, q)                                                            \
    static struct dr_step id##_step(const struct dr_node *n) {                                     \
        (void)n;                                                                                   \
        return (struct dr_step){map, (float)(p), (float)(q)};                                      \
    }                                                                                              \
    static void id##_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {                          \
        const struct dr_step s = id##_step(l->node);                                               \
        const struct dr_map_args args = dr_map_operands(l, &s);                                    \
        dr_cpu_map(cpu, (enum dr_fn)s.fn, dr_elements(dr_launch_out(l, 0)), &args);                \
    }                                                                                              \
    DR_CUDA_LAUNCHER id##_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {                  \
        const struct dr_step s = id##_step(l->node);                                               \
        const struct dr_map_args args = dr_map_operands(l, &s);                                    \
        const struct dr_value *y = dr_launch_out(l, 0);                                            \
        return dr_cuda_map(dr_type_of(y), (enum dr_fn)s.fn, dr_elements(y), &args, cuda->stream);  \
    }

/* The op id: internal, of n values of one shape that a pass chose. */
#define DR_MAP_INTERNAL(id, n, text)                                                               \
    const struct dr_op dr_op_##id = {                                                              \
        .name = #id,                                                                               \
        .doc = text,                                                                               \
        .flags = DR_OP_INTERNAL | DR_OP_POINTWISE,                                                 \
        .min_in = n,                                                                               \
        .max_in = n,                                                                               \
        .half_in = (1u << (n)) - 1,                                                                \
        .half_out = 1,                                                                             \
        .outputs = 1,                                                                              \
        .infer = dr_infer_same_shapes,                                                             \
        .cost = dr_cost_pointwise,                                                                 \
        .step = id##_step,                                                                         \
        .cpu = id##_cpu,                                                                           \
        DR_CUDA(id##_cuda),                                                                        \
    }

/* Emits `op` of the given values as the gradient of input i. */
static inline void dr_map_grad(struct dr_grad *c, uint32_t i, const struct dr_op *op,
                               const void *attrs, const uint32_t *in, uint32_t n_in) {
    const uint32_t n = dr_grad_emit(c, i == 0 ? "dgrad" : "dgrad2", op, attrs, in, n_in);
    c->dx[i] = c->g->node.at[n].out[0];
}
#endif
