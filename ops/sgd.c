/* sgd, in the order of torch.optim.SGD: g = clip * grad + decay * w; m = momentum * m + g (the
 * first m is g, as m starts at 0); g = nesterov ? g + momentum * m : m; w -= lr * g.
 *
 * Operands: weight, gradient, lr, health[, clip][, momentum] -> weight[, momentum]. Frozen weights
 * have no such node, so neither decay nor momentum can move them. */
#include "ops/common.h"
#include "kernels/cpu/sgd.h"
#include "kernels/cuda/pointwise.h"

struct sgd_attrs {
    double momentum, weight_decay;
    bool nesterov;
};

static const struct dr_attr sgd_attrs[] = {
    {.name = "momentum",
     .doc = "share of the last update that is kept",
     .kind = DR_ATTR_FLOAT,
     .max = 1,
     .offset = offsetof(struct sgd_attrs, momentum)},
    {.name = "weight_decay",
     .doc = "added to the gradient, times the weight",
     .kind = DR_ATTR_FLOAT,
     .max = 1e6,
     .offset = offsetof(struct sgd_attrs, weight_decay)},
    {.name = "nesterov",
     .doc = "Nesterov's momentum",
     .kind = DR_ATTR_BOOL,
     .max = 1,
     .offset = offsetof(struct sgd_attrs, nesterov)},
};

static bool sgd_infer(struct dr_infer *c) {
    const struct sgd_attrs *a = dr_infer_attrs(c);
    if (a->nesterov && a->momentum == 0)
        return dr_infer_error(c, "nesterov needs a momentum above 0");
    DR_NEED_SAME(c, 0, 1);
    if (!dr_infer_write(c, 0))
        return false;
    if (a->momentum == 0)
        return true;
    const struct dr_shape shape = dr_infer_in(c, 0)->shape;
    return dr_infer_state(c, "momentum", DR_MOMENT, DR_F32, shape,
                          (struct dr_init){.kind = DR_INIT_ZERO}) &&
           dr_infer_write(c, c->g->node.at[c->node].n_in - 1);
}

static struct dr_cost sgd_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, 6.0 * (double)dr_elements(dr_node_in(g, n, 0)));
}

static void sgd_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct sgd_attrs *a = l->node->attrs;
    if (*(const int64_t *)l->in[3] != 0)
        return;
    const bool moment = a->momentum != 0, clip = l->node->n_in > 4 + (moment ? 1u : 0u);
    const struct dr_cpu_sgd s = {
        .lr = *(const float *)l->in[2],
        .clip = clip ? *(const float *)l->in[4] : 1.0f,
        .momentum = (float)a->momentum,
        .decay = (float)a->weight_decay,
        .nesterov = a->nesterov,
    };
    dr_cpu_sgd(cpu, &s, dr_elements(dr_launch_in(l, 0)), l->in[1], l->out[0],
               moment ? l->out[1] : NULL);
}
DR_CUDA_LAUNCHER sgd_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct sgd_attrs *a = l->node->attrs;
    const bool moment = a->momentum != 0, clip = l->node->n_in > 4 + (moment ? 1u : 0u);
    const struct dr_cuda_sgd s = {
        .lr = l->in[2],
        .health = l->in[3],
        .clip = clip ? l->in[4] : NULL,
        .momentum = (float)a->momentum,
        .decay = (float)a->weight_decay,
        .nesterov = a->nesterov,
    };
    return dr_cuda_sgd(&s, dr_elements(dr_launch_in(l, 0)), l->in[1], l->out[0],
                       moment ? l->out[1] : NULL, cuda->stream);
}

const struct dr_op dr_op_sgd = {
    .name = "sgd",
    .doc = "Stochastic gradient descent with momentum and weight decay (torch.optim.SGD).",
    .flags = DR_OP_OPTIMIZER,
    .attrs = sgd_attrs,
    .n_attrs = DR_COUNT(sgd_attrs),
    .attrs_bytes = sizeof(struct sgd_attrs),
    .infer = sgd_infer,
    .cost = sgd_cost,
    .cpu = sgd_cpu,
    DR_CUDA(sgd_cuda),
};
