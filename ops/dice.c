/* dice: the soft Dice loss of [logits, classes] (kernels/cpu/dice.h has the formula): over softmax
 * probabilities, or of one logit over its sigmoid. Its third output, the sums of each sample, is
 * what the gradient needs. */
#include "kernels/cpu/dice.h"
#include "kernels/cuda/dice.h"
#include "ops/labels.h"

struct dice_attrs {
    int64_t ignore_index;
    double smooth;
};
struct dice_grad_attrs {
    struct dice_attrs forward;
    double weight;
};
static const struct dr_attr dice_attrs[] = {
    DR_IGNORE_ATTR(struct dice_attrs),
    {.name = "smooth",
     .doc = "added to both sides of the quotient",
     .kind = DR_ATTR_FLOAT,
     .def = 1,
     .max = 1e6,
     .offset = offsetof(struct dice_attrs, smooth)},
};

static bool dice_infer(struct dr_infer *c) {
    struct dice_attrs *a = dr_infer_attrs(c);
    if (!dr_labels_or_binary_infer(c, &a->ignore_index))
        return false;
    const struct dr_value *x = dr_infer_in(c, 0);
    const int64_t width = 3 * dr_last(x) + 1, samples = x->shape.dim[0];
    return dr_infer_out(c, "mean", DR_F32, (struct dr_shape){0}, DR_PLAIN) &&
           dr_infer_out(c, "partial", DR_F64, DR_SHAPE(2), DR_PLAIN) &&
           dr_infer_out(c, "sums", DR_F64, DR_SHAPE(samples, width), DR_PLAIN);
}

static void dice_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dice_attrs *a = l->node->attrs;
    const struct dr_cpu_classes c = dr_labels_of(l, a->ignore_index);
    dr_cpu_dice(cpu, &c, a->smooth, l->in[0], l->workspace, l->out[0], l->out[1], l->out[2]);
}
DR_CUDA_LAUNCHER dice_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dice_attrs *a = l->node->attrs;
    const struct dr_cuda_classes c = dr_labels_of_cuda(l, a->ignore_index);
    return dr_cuda_dice(&c, a->smooth, l->in[0], l->workspace, l->out[0], l->out[1], l->out[2],
                        cuda->stream);
}

static struct dr_choice dice_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    const struct dr_value *t = dr_node_in(g, n, 1);
    const int64_t samples = t->shape.dim[0], per = dr_elements(t) / samples;
    const int64_t k = dr_last(dr_node_in(g, n, 0));
    return (struct dr_choice){.workspace_bytes = cuda ? dr_cuda_dice_bytes(samples, per, k)
                                                      : dr_cpu_dice_bytes(samples, per, k),
                              .kernel = "chunked sums"};
}
static struct dr_choice grad_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    const int64_t samples = dr_node_in(g, n, 1)->shape.dim[0], k = dr_last(dr_node_in(g, n, 0));
    return (struct dr_choice){.workspace_bytes = cuda ? dr_cuda_dice_dgrad_bytes(samples, k)
                                                      : dr_cpu_dice_dgrad_bytes(samples, k),
                              .kernel = "chunked"};
}

static struct dr_cost dice_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, 6.0 * (double)dr_elements(dr_node_in(g, n, 0)));
}

/* ---- gradient: logits, target, partial, sums, header -> d logits ---- */
static bool grad_infer(struct dr_infer *c) {
    return dr_infer_out(c, NULL, DR_F32, dr_infer_in(c, 0)->shape, DR_PLAIN);
}
static void grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dice_grad_attrs *a = l->node->attrs;
    const struct dr_cpu_classes c = dr_labels_of(l, a->forward.ignore_index);
    dr_cpu_dice_dgrad(cpu, &c, a->forward.smooth, l->in[0], a->weight,
                      ((const double *)l->in[2])[1], l->in[3], l->workspace, l->out[0]);
}
DR_CUDA_LAUNCHER grad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dice_grad_attrs *a = l->node->attrs;
    const struct dr_cuda_classes c = dr_labels_of_cuda(l, a->forward.ignore_index);
    return dr_cuda_dice_dgrad(&c, a->forward.smooth, l->in[0], a->weight, l->in[2], l->in[3],
                              l->workspace, l->out[0], cuda->stream);
}
const struct dr_op dr_op_dice_grad = {
    .name = "dice_grad",
    .doc = "Gradient of dice by its logits.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct dice_grad_attrs),
    .min_in = 5,
    .max_in = 5,
    .outputs = 1,
    .infer = grad_infer,
    .cost = dice_cost,
    .choose = grad_choose,
    .cpu = grad_cpu,
    DR_CUDA(grad_cuda),
};

static void dice_grad(struct dr_grad *c) {
    const struct dr_node *n = &c->g->node.at[c->node];
    if (!c->need[0])
        return;
    const struct dice_grad_attrs attrs = {.forward = *(const struct dice_attrs *)n->attrs,
                                          .weight = c->weight};
    const uint32_t in[] = {n->in[0], n->in[1], n->out[1], n->out[2], n->in[2]};
    const uint32_t id = dr_grad_emit(c, "dgrad", &dr_op_dice_grad, &attrs, in, 5);
    c->dx[0] = c->g->node.at[id].out[0];
}

const struct dr_op dr_op_dice = {
    .name = "dice",
    .doc = "1 - soft Dice coefficient of softmax(logits), of one logit sigmoid, and classes; by "
           "sample, the mean over classes, then over samples.",
    .flags = DR_OP_LOSS | DR_OP_HEADER,
    .attrs = dice_attrs,
    .n_attrs = DR_COUNT(dice_attrs),
    .attrs_bytes = sizeof(struct dice_attrs),
    .min_in = 2,
    .max_in = 2,
    .outputs = 1,
    .infer = dice_infer,
    .grad = dice_grad,
    .cost = dice_cost,
    .choose = dice_choose,
    .finish = dr_finish_mean,
    .cpu = dice_cpu,
    DR_CUDA(dice_cuda),
};
