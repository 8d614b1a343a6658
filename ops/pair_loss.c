/* bce, mse and l1: losses of x against a target of as many numbers; the mean over the elements of
 * valid samples. bce is PyTorch's BCEWithLogitsLoss, and leaves out integer targets that are
 * ignore_index. */
#include "kernels/batch.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cuda/pairs.h"
#include "ops/labels.h"

struct pair_attrs {
    int64_t ignore_index; /* these two: bce only */
    double pos_weight;
};
struct pair_grad_attrs {
    struct pair_attrs forward;
    double weight;
    int32_t loss; /* dr_pair_loss */
    bool of_target;
};

static const struct dr_attr bce_attrs[] = {
    DR_IGNORE_ATTR(struct pair_attrs),
    {.name = "pos_weight",
     .doc = "factor of the loss where the target is 1",
     .kind = DR_ATTR_FLOAT,
     .def = 1,
     .max = 1e30,
     .offset = offsetof(struct pair_attrs, pos_weight)},
};

/* Equal, or equal but for a last axis of 1 that only one of them has. */
static bool pairs_up(struct dr_shape a, struct dr_shape b) {
    if (a.rank == b.rank + 1 && a.dim[a.rank - 1] == 1)
        a.rank--;
    else if (b.rank == a.rank + 1 && b.dim[b.rank - 1] == 1)
        b.rank--;
    return dr_shape_equal(&a, &b);
}

static bool pair_infer(struct dr_infer *c) {
    if (!dr_need_f32(c, 0))
        return false;
    const struct dr_value *x = dr_infer_in(c, 0), *t = dr_infer_in(c, 1);
    if (t->dtype != DR_F32 && t->dtype != DR_I32 && t->dtype != DR_U8)
        return dr_infer_error(c, "its target '%s' is %s, not f32, i32 or u8", t->name,
                              dr_dtype_name(t->dtype));
    if (x->shape.rank == 0 || !pairs_up(x->shape, t->shape))
        return dr_infer_error(c, "'%s' %s and its target '%s' %s differ in shape", x->name,
                              dr_shape_text(c->g->arena, &x->shape), t->name,
                              dr_shape_text(c->g->arena, &t->shape));
    return dr_infer_out(c, "mean", DR_F32, (struct dr_shape){0}, DR_PLAIN) &&
           dr_infer_out(c, "partial", DR_F64, DR_SHAPE(2), DR_PLAIN);
}

static bool bce_infer(struct dr_infer *c) {
    struct pair_attrs *a = dr_infer_attrs(c);
    if (!pair_infer(c))
        return false;
    struct dr_value *t = &c->g->value.at[c->g->node.at[c->node].in[1]];
    if ((double)a->ignore_index == DR_IGNORE_BY_KIND)
        a->ignore_index = t->meaning == DR_MASK ? 255 : -100;
    if (t->dtype == DR_F32)
        return true;
    if (t->classes == 0 || t->classes > 2)
        t->classes = 2;
    if (t->ignored == 0)
        t->ignored = a->ignore_index; /* as dr_labels_infer */
    return true;
}

/* From the operands x, target and (last) header. */
static struct dr_pairs pairs_of(const struct dr_launch *l, const struct pair_attrs *a,
                                enum dr_pair_loss loss) {
    const struct dr_value *x = dr_launch_in(l, 0), *t = dr_launch_in(l, 1);
    const int64_t n = dr_elements(x);
    return (struct dr_pairs){
        .loss = loss,
        .type = t->dtype == DR_U8    ? DR_PAIR_U8
                : t->dtype == DR_I32 ? DR_PAIR_I32
                                     : DR_PAIR_F32,
        .n = n,
        .per_sample = n / x->shape.dim[0],
        .x = l->in[0],
        .target = l->in[1],
        .ignore = a->ignore_index,
        .pos_weight = a->pos_weight,
    };
}
static const struct dr_batch *header_of(const struct dr_launch *l) {
    return l->in[l->node->n_in - 1];
}

static void loss_cpu(const struct dr_launch *l, struct dr_cpu *cpu, enum dr_pair_loss loss) {
    const struct dr_pairs p = pairs_of(l, l->node->attrs, loss);
    dr_cpu_pairs(cpu, &p, header_of(l)->n_valid, l->workspace, l->out[0], l->out[1]);
}
DR_CUDA_LAUNCHER loss_cuda(const struct dr_launch *l, struct dr_cuda *cuda,
                           enum dr_pair_loss loss) {
    const struct dr_pairs p = pairs_of(l, l->node->attrs, loss);
    return dr_cuda_pairs(&p, header_of(l), l->workspace, l->out[0], l->out[1], cuda->stream);
}

static struct dr_choice pair_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    const int64_t count = dr_elements(dr_node_in(g, n, 0));
    return (struct dr_choice){.workspace_bytes =
                                  cuda ? dr_cuda_pairs_bytes(count) : dr_cpu_pairs_bytes(count),
                              .kernel = "chunked sums"};
}

static struct dr_cost pair_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, 3.0 * (double)dr_elements(dr_node_in(g, n, 0)));
}

/* ---- gradient: x, target, partial, header -> dx, or d target ---- */
static bool grad_infer(struct dr_infer *c) {
    const struct pair_grad_attrs *a = dr_infer_attrs(c);
    return dr_infer_out(c, NULL, DR_F32, dr_infer_in(c, a->of_target)->shape, DR_PLAIN);
}
static void grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct pair_grad_attrs *a = l->node->attrs;
    const struct dr_pairs p = pairs_of(l, &a->forward, a->loss);
    dr_cpu_pairs_dgrad(cpu, &p, header_of(l)->n_valid, a->weight, ((const double *)l->in[2])[1],
                       a->of_target, l->out[0]);
}
DR_CUDA_LAUNCHER grad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct pair_grad_attrs *a = l->node->attrs;
    const struct dr_pairs p = pairs_of(l, &a->forward, a->loss);
    return dr_cuda_pairs_dgrad(&p, header_of(l), a->weight, l->in[2], a->of_target, l->out[0],
                               cuda->stream);
}
const struct dr_op dr_op_pair_loss_grad = {
    .name = "pair_loss_grad",
    .doc = "Gradient of bce, mse or l1 by its first input or its target.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct pair_grad_attrs),
    .min_in = 4,
    .max_in = 4,
    .outputs = 1,
    .infer = grad_infer,
    .cost = pair_cost,
    .cpu = grad_cpu,
    DR_CUDA(grad_cuda),
};

static void pair_grad(struct dr_grad *c, enum dr_pair_loss loss) {
    const struct dr_node n = c->g->node.at[c->node]; /* emitting moves the list */
    for (uint32_t i = 0; i < 2; i++) {
        if (!c->need[i])
            continue;
        const struct pair_grad_attrs attrs = {.forward = *(const struct pair_attrs *)n.attrs,
                                              .weight = c->weight,
                                              .loss = (int32_t)loss,
                                              .of_target = i == 1};
        const uint32_t in[] = {n.in[0], n.in[1], n.out[1], n.in[2]};
        const uint32_t id =
            dr_grad_emit(c, i ? "dgrad2" : "dgrad", &dr_op_pair_loss_grad, &attrs, in, 4);
        c->dx[i] = c->g->node.at[id].out[0];
    }
}

/* ---- the three ---- */
static void bce_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    loss_cpu(l, cpu, DR_PAIR_BCE);
}
DR_CUDA_LAUNCHER bce_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    return loss_cuda(l, cuda, DR_PAIR_BCE);
}
static void bce_grad(struct dr_grad *c) {
    pair_grad(c, DR_PAIR_BCE);
}
const struct dr_op dr_op_bce = {
    .name = "bce",
    .doc = "Binary cross-entropy of [logits, targets in 0 to 1]; the mean over the elements that "
           "count.",
    .flags = DR_OP_LOSS | DR_OP_HEADER,
    .attrs = bce_attrs,
    .n_attrs = DR_COUNT(bce_attrs),
    .attrs_bytes = sizeof(struct pair_attrs),
    .min_in = 2,
    .max_in = 2,
    .outputs = 1,
    .infer = bce_infer,
    .grad = bce_grad,
    .cost = pair_cost,
    .choose = pair_choose,
    .finish = dr_finish_mean,
    .cpu = bce_cpu,
    DR_CUDA(bce_cuda),
};

static void mse_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    loss_cpu(l, cpu, DR_PAIR_MSE);
}
DR_CUDA_LAUNCHER mse_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    return loss_cuda(l, cuda, DR_PAIR_MSE);
}
static void mse_grad(struct dr_grad *c) {
    pair_grad(c, DR_PAIR_MSE);
}
const struct dr_op dr_op_mse = {
    .name = "mse",
    .doc = "Mean of the squared differences of [x, target].",
    .flags = DR_OP_LOSS | DR_OP_HEADER,
    .attrs_bytes = sizeof(struct pair_attrs),
    .min_in = 2,
    .max_in = 2,
    .outputs = 1,
    .infer = pair_infer,
    .grad = mse_grad,
    .cost = pair_cost,
    .choose = pair_choose,
    .finish = dr_finish_mean,
    .cpu = mse_cpu,
    DR_CUDA(mse_cuda),
};

static void l1_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    loss_cpu(l, cpu, DR_PAIR_L1);
}
DR_CUDA_LAUNCHER l1_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    return loss_cuda(l, cuda, DR_PAIR_L1);
}
static void l1_grad(struct dr_grad *c) {
    pair_grad(c, DR_PAIR_L1);
}
const struct dr_op dr_op_l1 = {
    .name = "l1",
    .doc = "Mean of the absolute differences of [x, target]; the gradient of a difference of 0 is "
           "0.",
    .flags = DR_OP_LOSS | DR_OP_HEADER,
    .attrs_bytes = sizeof(struct pair_attrs),
    .min_in = 2,
    .max_in = 2,
    .outputs = 1,
    .infer = pair_infer,
    .grad = l1_grad,
    .cost = pair_cost,
    .choose = pair_choose,
    .finish = dr_finish_mean,
    .cpu = l1_cpu,
    DR_CUDA(l1_cuda),
};
