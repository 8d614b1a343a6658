/* dropout (torch.nn.Dropout): zeroes each element with probability p and scales the others by
 * 1 / (1 - p). Nothing is stored for the gradient: it draws the same mask again, from the header of
 * the same batch and the key of the forward node. */
#include "kernels/cpu/dropout.h"
#include "kernels/cuda/dropout.h"
#include "ops/common.h"

struct dropout_attrs {
    double p;
};
static const struct dr_attr dropout_attrs[] = {
    {.name = "p",
     .doc = "probability of a zero",
     .kind = DR_ATTR_FLOAT,
     .def = 0.5,
     .max = 1,
     .offset = offsetof(struct dropout_attrs, p)},
};
struct back_attrs {
    double p;
    uint64_t key; /* of the forward node */
};

static bool dropout_infer(struct dr_infer *c) {
    if (!dr_need_f32(c, 0))
        return false;
    const struct dr_value *x = dr_infer_in(c, 0);
    if (x->shape.rank < 1)
        return dr_infer_error(c, "its input is a single number");
    if (dr_elements(x) / x->shape.dim[0] > DR_DROPOUT_ELEMENTS)
        return dr_infer_error(c, "a sample has more than 2^34 elements");
    return dr_infer_out(c, NULL, DR_F32, x->shape, DR_PLAIN);
}

static struct dr_dropout dropout_of(const struct dr_launch *l, double p, uint64_t key) {
    const struct dr_value *x = dr_launch_in(l, 0);
    const int64_t n = x->shape.dim[0];
    return dr_dropout_of(p, l->seed, key, n, dr_elements(x) / n);
}
static void dropout_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dropout_attrs *a = l->node->attrs;
    const struct dr_dropout d = dropout_of(l, a->p, l->node->key);
    dr_cpu_dropout(cpu, &d, l->in[1], l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER dropout_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dropout_attrs *a = l->node->attrs;
    const struct dr_dropout d = dropout_of(l, a->p, l->node->key);
    return dr_cuda_dropout(dr_type_of(dr_launch_in(l, 0)), &d, l->in[1], l->in[0], l->out[0],
                           cuda->stream);
}
static struct dr_cost dropout_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, 12.0 * (double)dr_elements(dr_node_in(g, n, 0))); /* a quarter draw */
}

/* ---- gradient: dy, header -> dx ---- */
static void back_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct back_attrs *a = l->node->attrs;
    const struct dr_dropout d = dropout_of(l, a->p, a->key);
    dr_cpu_dropout(cpu, &d, l->in[1], l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER back_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct back_attrs *a = l->node->attrs;
    const struct dr_dropout d = dropout_of(l, a->p, a->key);
    return dr_cuda_dropout(dr_type_of(dr_launch_in(l, 0)), &d, l->in[1], l->in[0], l->out[0],
                           cuda->stream);
}
const struct dr_op dr_op_dropout_grad = {
    .name = "dropout_grad",
    .doc = "Gradient of dropout: the mask, drawn again.",
    .flags = DR_OP_INTERNAL | DR_OP_POINTWISE | DR_OP_RANDOM,
    .attrs_bytes = sizeof(struct back_attrs),
    .min_in = 2,
    .max_in = 2,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = dropout_infer,
    .cost = dropout_cost,
    .cpu = back_cpu,
    DR_CUDA(back_cuda),
};
static void dropout_grad(struct dr_grad *c) {
    if (!c->need[0])
        return;
    const struct dr_node *n = &c->g->node.at[c->node];
    const struct back_attrs a = {.p = ((const struct dropout_attrs *)n->attrs)->p, .key = n->key};
    const uint32_t in[] = {c->dy[0], n->in[1]};
    const uint32_t id = dr_grad_emit(c, "dgrad", &dr_op_dropout_grad, &a, in, 2);
    c->dx[0] = c->g->node.at[id].out[0];
}

const struct dr_op dr_op_dropout = {
    .name = "dropout",
    .doc = "Zeroes elements at random and scales the others by 1 / (1 - p); in evaluation and in "
           "frozen parts it passes its input through.",
    .flags = DR_OP_RANDOM | DR_OP_HEADER | DR_OP_EVAL_PASS | DR_OP_POINTWISE,
    .attrs = dropout_attrs,
    .n_attrs = DR_COUNT(dropout_attrs),
    .attrs_bytes = sizeof(struct dropout_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = dropout_infer,
    .grad = dropout_grad,
    .cost = dropout_cost,
    .cpu = dropout_cpu,
    DR_CUDA(dropout_cuda),
};
