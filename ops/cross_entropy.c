/* cross_entropy: torch.nn.CrossEntropyLoss over class indexes, reduction mean over the elements
 * that count: those of valid samples whose class is not ignore_index. Where none counts it is 0. */
#include "ops/labels.h"

struct cross_entropy_attrs {
    int64_t ignore_index;
    double label_smoothing;
    struct dr_floats class_weights;
};
struct cross_entropy_grad_attrs {
    struct cross_entropy_attrs forward;
    double weight;
};

static const struct dr_attr cross_entropy_attrs[] = {
    DR_IGNORE_ATTR(struct cross_entropy_attrs),
    {.name = "label_smoothing",
     .doc = "share of each target that is spread over all classes",
     .kind = DR_ATTR_FLOAT,
     .max = 1,
     .offset = offsetof(struct cross_entropy_attrs, label_smoothing)},
    {.name = "class_weights",
     .doc = "a weight for each class; the mean is weighted too",
     .kind = DR_ATTR_FLOATS,
     .max = 1e30,
     .offset = offsetof(struct cross_entropy_attrs, class_weights)},
};

static bool cross_entropy_infer(struct dr_infer *c) {
    struct cross_entropy_attrs *a = dr_infer_attrs(c);
    if (!dr_labels_infer(c, &a->ignore_index))
        return false;
    const int64_t k = dr_last(dr_infer_in(c, 0));
    if (a->class_weights.n != 0 && a->class_weights.n != k)
        return dr_infer_wrong(c, "class_weights", "%u class_weights for %lld classes",
                              a->class_weights.n, (long long)k);
    return dr_infer_out(c, "mean", DR_F32, (struct dr_shape){0}, DR_PLAIN) &&
           dr_infer_out(c, "partial", DR_F64, DR_SHAPE(2), DR_PLAIN);
}

static struct dr_cpu_loss loss_of(const struct cross_entropy_attrs *a) {
    return (struct dr_cpu_loss){.smoothing = a->label_smoothing,
                                .class_weight = a->class_weights.n ? a->class_weights.at : NULL};
}

static inline struct dr_cuda_classes classes_cuda(const struct dr_launch *l,
                                                  const struct cross_entropy_attrs *a) {
    struct dr_cuda_classes c = dr_labels_of_cuda(l, a->ignore_index);
    c.smoothing = a->label_smoothing;
    c.class_weight = a->class_weights.n ? a->class_weights.at : NULL;
    return c;
}

static void cross_entropy_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct cross_entropy_attrs *a = l->node->attrs;
    const struct dr_cpu_classes classes = dr_labels_of(l, a->ignore_index);
    const struct dr_cpu_loss loss = loss_of(a);
    dr_cpu_cross_entropy(cpu, &classes, &loss, l->in[0], l->workspace, l->out[0], l->out[1]);
}
DR_CUDA_LAUNCHER cross_entropy_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_cuda_classes c = classes_cuda(l, l->node->attrs);
    return dr_cuda_cross_entropy(&c, l->in[0], l->workspace, l->out[0], l->out[1], cuda->stream);
}

static struct dr_cost cross_entropy_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, 4.0 * (double)dr_elements(dr_node_in(g, n, 0)));
}

/* ---- gradient: logits, target, partial, header -> d logits ---- */
static bool grad_infer(struct dr_infer *c) {
    return dr_infer_out(c, NULL, DR_F32, dr_infer_in(c, 0)->shape, DR_PLAIN);
}

static void grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct cross_entropy_grad_attrs *a = l->node->attrs;
    const struct dr_cpu_classes classes = dr_labels_of(l, a->forward.ignore_index);
    const struct dr_cpu_loss loss = loss_of(&a->forward);
    dr_cpu_cross_entropy_dgrad(cpu, &classes, &loss, l->in[0], a->weight,
                               ((const double *)l->in[2])[1], l->out[0]);
}
DR_CUDA_LAUNCHER grad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct cross_entropy_grad_attrs *a = l->node->attrs;
    const struct dr_cuda_classes c = classes_cuda(l, &a->forward);
    return dr_cuda_cross_entropy_dgrad(&c, l->in[0], a->weight, l->in[2], l->workspace, l->out[0],
                                       cuda->stream);
}

const struct dr_op dr_op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    .doc = "Gradient of cross_entropy by its logits.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct cross_entropy_grad_attrs),
    .min_in = 4,
    .max_in = 4,
    .outputs = 1,
    .infer = grad_infer,
    .cost = cross_entropy_cost,
    .choose = dr_labels_choose,
    .cpu = grad_cpu,
    DR_CUDA(grad_cuda),
};

static void cross_entropy_grad(struct dr_grad *c) {
    const struct dr_node *n = &c->g->node.at[c->node];
    if (!c->need[0])
        return;
    const struct cross_entropy_grad_attrs attrs = {
        .forward = *(const struct cross_entropy_attrs *)n->attrs, .weight = c->weight};
    const uint32_t in[] = {n->in[0], n->in[1], n->out[1], n->in[2]};
    const uint32_t id = dr_grad_emit(c, "dgrad", &dr_op_cross_entropy_grad, &attrs, in, 4);
    c->dx[0] = c->g->node.at[id].out[0];
}

const struct dr_op dr_op_cross_entropy = {
    .name = "cross_entropy",
    .doc = "Softmax cross-entropy of [logits, classes]; the mean over the elements that count.",
    .flags = DR_OP_LOSS | DR_OP_HEADER,
    .attrs = cross_entropy_attrs,
    .n_attrs = DR_COUNT(cross_entropy_attrs),
    .attrs_bytes = sizeof(struct cross_entropy_attrs),
    .min_in = 2,
    .max_in = 2,
    .outputs = 1,
    .infer = cross_entropy_infer,
    .grad = cross_entropy_grad,
    .cost = cross_entropy_cost,
    .choose = dr_labels_choose,
    .finish = dr_finish_mean,
    .cpu = cross_entropy_cpu,
    DR_CUDA(cross_entropy_cuda),
};
