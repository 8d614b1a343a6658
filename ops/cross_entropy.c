/* cross_entropy: torch.nn.CrossEntropyLoss over class indexes, reduction mean over the elements
 * that count: those of valid samples whose class is not ignore_index. Where none counts it is 0.
 *
 * Labels may also be shares of classes, f32 and of the logits' shape, as mixup and cutmix make them
 * of class numbers in training: then every element of a valid sample counts. */
#include "kernels/cpu/soft_labels.h"
#include "kernels/cuda/soft_labels.h"
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

/* ---- shares of classes ---- */
static bool is_soft(const struct dr_value *target) {
    return target->dtype == DR_F32 && target->meaning == DR_LABEL;
}

static bool soft_infer(struct dr_infer *c) {
    const struct cross_entropy_attrs *a = dr_infer_attrs(c);
    if (!dr_need_f32(c, 0))
        return false;
    const struct dr_value *x = dr_infer_in(c, 0), *t = dr_infer_in(c, 1);
    if (x->shape.rank < 2 || !dr_shape_equal(&x->shape, &t->shape))
        return dr_infer_error(c, "logits '%s' are %s, but '%s' holds shares of classes, %s",
                              x->name, dr_shape_text(c->g->arena, &x->shape), t->name,
                              dr_shape_text(c->g->arena, &t->shape));
    if (a->class_weights.n != 0)
        return dr_infer_wrong(c, "class_weights",
                              "class_weights are for class numbers; '%s' holds shares of classes",
                              t->name);
    if ((double)a->ignore_index != DR_IGNORE_BY_KIND)
        return dr_infer_wrong(c, "ignore_index",
                              "ignore_index is a class number; '%s' holds shares of classes",
                              t->name);
    return true;
}

static struct dr_soft_labels soft_of(const struct dr_launch *l,
                                     const struct cross_entropy_attrs *a) {
    const struct dr_value *x = dr_launch_in(l, 0);
    const int64_t rows = dr_elements(x) / dr_last(x);
    return (struct dr_soft_labels){
        .target = l->in[1],
        .rows = rows,
        .k = dr_last(x),
        .rows_per_sample = rows / x->shape.dim[0],
        .smoothing = a->label_smoothing,
    };
}
static const struct dr_batch *header_of(const struct dr_launch *l) {
    return l->in[l->node->n_in - 1];
}

static struct dr_choice cross_entropy_choose(const struct dr_graph *g, const struct dr_node *n,
                                             bool cuda) {
    const struct dr_value *t = dr_node_in(g, n, 1);
    if (!is_soft(t))
        return dr_labels_choose(g, n, cuda);
    const int64_t rows = dr_elements(t) / dr_last(t);
    return (struct dr_choice){.workspace_bytes = cuda ? dr_cuda_soft_labels_bytes(rows)
                                                      : dr_cpu_soft_labels_bytes(rows),
                              .kernel = "chunked sums"};
}

/* ---- the loss ---- */
static bool hard_infer(struct dr_infer *c) {
    struct cross_entropy_attrs *a = dr_infer_attrs(c);
    if (!dr_labels_infer(c, &a->ignore_index))
        return false;
    const int64_t k = dr_last(dr_infer_in(c, 0));
    return a->class_weights.n == 0 || a->class_weights.n == k ||
           dr_infer_wrong(c, "class_weights", "%u class_weights for %lld classes",
                          a->class_weights.n, (long long)k);
}

static bool cross_entropy_infer(struct dr_infer *c) {
    if (!(is_soft(dr_infer_in(c, 1)) ? soft_infer(c) : hard_infer(c)))
        return false;
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
    if (is_soft(dr_launch_in(l, 1))) {
        const struct dr_soft_labels soft = soft_of(l, a);
        dr_cpu_soft_labels(cpu, &soft, header_of(l)->n_valid, l->in[0], l->workspace, l->out[0],
                           l->out[1]);
        return;
    }
    const struct dr_cpu_classes classes = dr_labels_of(l, a->ignore_index);
    const struct dr_cpu_loss loss = loss_of(a);
    dr_cpu_cross_entropy(cpu, &classes, &loss, l->in[0], l->workspace, l->out[0], l->out[1]);
}
DR_CUDA_LAUNCHER cross_entropy_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    if (is_soft(dr_launch_in(l, 1))) {
        const struct dr_soft_labels soft = soft_of(l, l->node->attrs);
        return dr_cuda_soft_labels(&soft, header_of(l), l->in[0], l->workspace, l->out[0],
                                   l->out[1], cuda->stream);
    }
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
    if (is_soft(dr_launch_in(l, 1))) {
        const struct dr_soft_labels soft = soft_of(l, &a->forward);
        dr_cpu_soft_labels_dgrad(cpu, &soft, header_of(l)->n_valid, l->in[0], a->weight,
                                 ((const double *)l->in[2])[1], l->out[0]);
        return;
    }
    const struct dr_cpu_classes classes = dr_labels_of(l, a->forward.ignore_index);
    const struct dr_cpu_loss loss = loss_of(&a->forward);
    dr_cpu_cross_entropy_dgrad(cpu, &classes, &loss, l->in[0], a->weight,
                               ((const double *)l->in[2])[1], l->out[0]);
}
DR_CUDA_LAUNCHER grad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct cross_entropy_grad_attrs *a = l->node->attrs;
    if (is_soft(dr_launch_in(l, 1))) {
        const struct dr_soft_labels soft = soft_of(l, &a->forward);
        return dr_cuda_soft_labels_dgrad(&soft, header_of(l), l->in[0], a->weight, l->in[2],
                                         l->out[0], cuda->stream);
    }
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
    .choose = cross_entropy_choose,
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
    .doc = "Softmax cross-entropy of [logits, classes]; the mean over the elements that count. "
           "Labels may be shares of classes (f32), as mixup makes them.",
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
    .choose = cross_entropy_choose,
    .finish = dr_finish_mean,
    .cpu = cross_entropy_cpu,
    DR_CUDA(cross_entropy_cuda),
};
