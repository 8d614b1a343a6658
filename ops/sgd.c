/* sgd, in the order of torch.optim.SGD: g = clip * grad + decay * w; m = momentum * m + g (the
 * first m is g, as m starts at 0); g = nesterov ? g + momentum * m : m; w -= lr * g.
 *
 * Operands as in ops/optimizer.h; with momentum one state a weight. Frozen weights are in no such
 * node, so neither decay nor momentum can move them. */
#include "ops/optimizer.h"
#include "kernels/cpu/sgd.h"
#include "kernels/cuda/optimizer.h"

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
        return dr_update_wrong(c, "nesterov needs a momentum above 0");
    return dr_infer_update(c, &(struct dr_moment){.leaf = "momentum"}, a->momentum != 0);
}

static uint32_t states_of(const struct dr_node *n) {
    return ((const struct sgd_attrs *)n->attrs)->momentum != 0;
}

static struct dr_cost sgd_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_update_cost(g, n, states_of(n), 6.0);
}

static void sgd_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct sgd_attrs *a = l->node->attrs;
    const struct dr_update u = dr_update_of(l->node, states_of(l->node));
    if (*(const int64_t *)l->in[u.health] != 0)
        return;
    const struct dr_cpu_sgd s = {
        .lr = *(const float *)l->in[u.lr],
        .clip = dr_update_clip(l, &u),
        .momentum = (float)a->momentum,
        .decay = (float)a->weight_decay,
        .nesterov = a->nesterov,
    };
    for (uint32_t i = 0; i < u.n; i++)
        dr_cpu_sgd(cpu, &s, dr_elements(dr_launch_in(l, i)), l->in[u.n + i], l->out[i],
                   u.n_states ? dr_update_state(l, &u, i, 0) : NULL);
}
DR_CUDA_LAUNCHER sgd_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct sgd_attrs *a = l->node->attrs;
    const struct dr_update u = dr_update_of(l->node, states_of(l->node));
    const struct dr_cuda_sgd s = {
        .lr = l->in[u.lr],
        .health = l->in[u.health],
        .clip = u.clip == DR_NONE ? NULL : l->in[u.clip],
        .momentum = (float)a->momentum,
        .decay = (float)a->weight_decay,
        .nesterov = a->nesterov,
    };
    struct dr_cuda_weights w = {0};
    int err = 0;
    for (uint32_t i = 0; i < u.n && !err; i++) {
        w.at[w.n++] = (struct dr_cuda_weight){
            .n = dr_elements(dr_launch_in(l, i)),
            .g = l->in[u.n + i],
            .w = l->out[i],
            .m = u.n_states ? dr_update_state(l, &u, i, 0) : NULL,
        };
        if (w.n == DR_CUDA_WEIGHTS || i + 1 == u.n) {
            err = dr_cuda_sgd(&s, &w, cuda->stream);
            w.n = 0;
        }
    }
    return err;
}

const struct dr_op dr_op_sgd = {
    .name = "sgd",
    .doc = "Stochastic gradient descent with momentum and weight decay (torch.optim.SGD).",
    .flags = DR_OP_OPTIMIZER | DR_OP_GROUPS,
    .attrs = sgd_attrs,
    .n_attrs = DR_COUNT(sgd_attrs),
    .attrs_bytes = sizeof(struct sgd_attrs),
    .infer = sgd_infer,
    .cost = sgd_cost,
    .cpu = sgd_cpu,
    DR_CUDA(sgd_cuda),
};
