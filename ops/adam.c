/* adam and adamw, in the order of torch.optim.Adam and AdamW (without amsgrad):
 *
 *   g = clip * grad                          adam: + decay * w      adamw: w *= 1 - lr * decay
 *   m = m + (1 - beta1) * (g - m)            v = beta2 * v + (1 - beta2) * g * g
 *   w -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
 *
 * Operands as in ops/optimizer.h; states a weight: exp_avg, exp_avg_sq, step, PyTorch's names. step
 * counts the weight's own updates in device memory: it stands still while health is not 0. */
#include "kernels/cpu/adam.h"
#include "kernels/cuda/optimizer.h"
#include "ops/optimizer.h"

extern const struct dr_op dr_op_adamw;

struct adam_attrs {
    struct dr_floats betas;
    double eps, weight_decay;
};
enum { EXP_AVG, EXP_AVG_SQ, STEP, STATES };

#define ADAM_ATTRS(decay_doc, decay)                                                               \
    {.name = "betas",                                                                              \
     .doc = "shares of the means of the gradient and of its square that are kept; [0.9, 0.999] "   \
            "where it is not given",                                                               \
     .kind = DR_ATTR_FLOATS,                                                                       \
     .max = 1,                                                                                     \
     .offset = offsetof(struct adam_attrs, betas)},                                                \
        {.name = "eps",                                                                            \
         .doc = "added to the root of the mean of squares",                                        \
         .kind = DR_ATTR_FLOAT,                                                                    \
         .def = 1e-8,                                                                              \
         .max = 1,                                                                                 \
         .offset = offsetof(struct adam_attrs, eps)},                                              \
        {.name = "weight_decay",                                                                   \
         .doc = decay_doc,                                                                         \
         .kind = DR_ATTR_FLOAT,                                                                    \
         .def = decay,                                                                             \
         .max = 1e6,                                                                               \
         .offset = offsetof(struct adam_attrs, weight_decay)},
static const struct dr_attr adam_attrs[] = {
    ADAM_ATTRS("added to the gradient, times the weight", 0)};
static const struct dr_attr adamw_attrs[] = {
    ADAM_ATTRS("taken off the weight, times the weight and the learning rate", 0.01)};

static double beta(const struct adam_attrs *a, uint32_t i) {
    return a->betas.n ? a->betas.at[i] : i ? 0.999 : 0.9;
}

static bool adam_infer(struct dr_infer *c) {
    static const struct dr_moment moments[STATES] = {
        [EXP_AVG] = {.leaf = "exp_avg"},
        [EXP_AVG_SQ] = {.leaf = "exp_avg_sq"},
        [STEP] = {.leaf = "step", .counter = true},
    };
    const struct adam_attrs *a = dr_infer_attrs(c);
    if (a->betas.n != 0 && (a->betas.n != 2 || beta(a, 0) >= 1 || beta(a, 1) >= 1))
        return dr_update_wrong(c, "betas should be two numbers from 0 to below 1");
    return dr_infer_update(c, moments, STATES);
}

static struct dr_cost adam_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_update_cost(g, n, STATES, 14.0);
}

static struct dr_choice adam_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    (void)g;
    const int64_t scalars = (int64_t)dr_update_of(n, STATES).n * DR_CUDA_ADAM_SCALARS;
    return (struct dr_choice){.workspace_bytes = cuda ? scalars * (int64_t)sizeof(float) : 0,
                              .kernel = "multi-tensor"};
}

static void adam_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct adam_attrs *a = l->node->attrs;
    const struct dr_update u = dr_update_of(l->node, STATES);
    if (*(const int64_t *)l->in[u.health] != 0)
        return;
    struct dr_cpu_adam s = {
        .beta1 = beta(a, 0),
        .beta2 = beta(a, 1),
        .eps = a->eps,
        .decay = a->weight_decay,
        .decoupled = l->node->op == &dr_op_adamw,
        .lr = *(const float *)l->in[u.lr],
        .clip = dr_update_clip(l, &u),
    };
    for (uint32_t i = 0; i < u.n; i++) {
        s.step = ++*(int64_t *)dr_update_state(l, &u, i, STEP);
        dr_cpu_adam(cpu, &s, dr_elements(dr_launch_in(l, i)), l->in[u.n + i], l->out[i],
                    dr_update_state(l, &u, i, EXP_AVG), dr_update_state(l, &u, i, EXP_AVG_SQ));
    }
}
DR_CUDA_LAUNCHER adam_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct adam_attrs *a = l->node->attrs;
    const struct dr_update u = dr_update_of(l->node, STATES);
    const struct dr_cuda_adam s = {
        .beta1 = beta(a, 0),
        .beta2 = beta(a, 1),
        .eps = a->eps,
        .decay = a->weight_decay,
        .decoupled = l->node->op == &dr_op_adamw,
        .lr = l->in[u.lr],
        .clip = u.clip == DR_NONE ? NULL : l->in[u.clip],
        .health = l->in[u.health],
    };
    struct dr_cuda_weights w = {0};
    int err = 0;
    for (uint32_t i = 0; i < u.n && !err; i++) {
        w.at[w.n++] = (struct dr_cuda_weight){
            .n = dr_elements(dr_launch_in(l, i)),
            .g = l->in[u.n + i],
            .w = l->out[i],
            .m = dr_update_state(l, &u, i, EXP_AVG),
            .v = dr_update_state(l, &u, i, EXP_AVG_SQ),
            .step = dr_update_state(l, &u, i, STEP),
        };
        if (w.n == DR_CUDA_WEIGHTS || i + 1 == u.n) {
            float *scalars = (float *)l->workspace + (i + 1 - w.n) * DR_CUDA_ADAM_SCALARS;
            err = dr_cuda_adam(&s, &w, scalars, cuda->stream);
            w.n = 0;
        }
    }
    return err;
}

#define ADAM(id, text)                                                                             \
    .name = #id, .doc = text, .flags = DR_OP_OPTIMIZER | DR_OP_GROUPS, .attrs = id##_attrs,        \
    .n_attrs = DR_COUNT(id##_attrs), .attrs_bytes = sizeof(struct adam_attrs),                     \
    .infer = adam_infer, .cost = adam_cost, .choose = adam_choose, .cpu = adam_cpu,                \
    DR_CUDA(adam_cuda)
const struct dr_op dr_op_adam = {
    ADAM(adam, "Adam (torch.optim.Adam); weight decay joins the gradient."),
};
const struct dr_op dr_op_adamw = {
    ADAM(adamw, "Adam with decoupled weight decay (torch.optim.AdamW)."),
};
