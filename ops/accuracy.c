/* accuracy: how often the class is among the `top` largest logits. Ties: the lowest index wins. */
#include "ops/labels.h"

struct accuracy_attrs {
    int64_t top, ignore_index;
};

static const struct dr_attr accuracy_attrs[] = {
    {.name = "top",
     .doc = "how many of the largest logits may hold the class",
     .kind = DR_ATTR_INT,
     .def = 1,
     .min = 1,
     .max = INT32_MAX,
     .offset = offsetof(struct accuracy_attrs, top)},
    DR_IGNORE_ATTR(struct accuracy_attrs),
};

static bool accuracy_infer(struct dr_infer *c) {
    struct accuracy_attrs *a = dr_infer_attrs(c);
    if (!dr_labels_infer(c, &a->ignore_index))
        return false;
    const int64_t k = dr_last(dr_infer_in(c, 0));
    if (a->top > k)
        return dr_infer_wrong(c, "top", "top %lld of %lld classes", (long long)a->top,
                              (long long)k);
    return dr_infer_out(c, NULL, DR_F64, DR_SHAPE(2), DR_PLAIN);
}

static struct dr_cost accuracy_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, (double)dr_elements(dr_node_in(g, n, 0)));
}

static void accuracy_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct accuracy_attrs *a = l->node->attrs;
    const struct dr_cpu_classes classes = dr_labels_of(l, a->ignore_index);
    dr_cpu_accuracy(cpu, &classes, a->top, l->in[0], l->workspace, l->out[0]);
}
DR_CUDA_LAUNCHER accuracy_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct accuracy_attrs *a = l->node->attrs;
    const struct dr_cuda_classes c = dr_labels_of_cuda(l, a->ignore_index);
    return dr_cuda_accuracy(&c, a->top, l->in[0], l->workspace, l->out[0], cuda->stream);
}

const struct dr_op dr_op_accuracy = {
    .name = "accuracy",
    .doc = "Share of [logits, classes] whose class is among the top logits; of equal logits the "
           "lowest index wins.",
    .flags = DR_OP_METRIC | DR_OP_HEADER,
    .attrs = accuracy_attrs,
    .n_attrs = DR_COUNT(accuracy_attrs),
    .attrs_bytes = sizeof(struct accuracy_attrs),
    .min_in = 2,
    .max_in = 2,
    .outputs = 1,
    .infer = accuracy_infer,
    .cost = accuracy_cost,
    .choose = dr_labels_choose,
    .finish = dr_finish_mean,
    .cpu = accuracy_cpu,
    DR_CUDA(accuracy_cuda),
};
