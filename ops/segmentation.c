/* pixel_accuracy and mean_iou: metrics of [logits, classes]. The prediction is the largest logit,
 * the lowest index of equals; of one logit, class 1 where it is above 0; a NaN is no prediction and
 * never right. Both add up counts over the whole evaluation; the host divides. */
#include "kernels/cpu/confusion.h"
#include "kernels/cuda/confusion.h"
#include "ops/labels.h"

struct segmentation_attrs {
    int64_t ignore_index;
};
static const struct dr_attr segmentation_attrs[] = {
    DR_IGNORE_ATTR(struct segmentation_attrs),
};

static struct dr_cost segmentation_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, (double)dr_elements(dr_node_in(g, n, 0)));
}

static struct dr_choice segmentation_choose(const struct dr_graph *g, const struct dr_node *n,
                                            bool cuda) {
    const int64_t rows = dr_elements(dr_node_in(g, n, 1)), k = dr_last(dr_node_in(g, n, 0));
    return (struct dr_choice){.workspace_bytes = cuda ? dr_cuda_confusion_bytes(k)
                                                      : dr_cpu_confusion_bytes(rows, k),
                              .kernel = "counts"};
}

static bool infer(struct dr_infer *c, int64_t counts) {
    return dr_infer_out(c, NULL, DR_F64, DR_SHAPE(counts), DR_PLAIN);
}

/* ---- pixel_accuracy ---- */
static bool pixel_accuracy_infer(struct dr_infer *c) {
    struct segmentation_attrs *a = dr_infer_attrs(c);
    return dr_labels_or_binary_infer(c, &a->ignore_index) && infer(c, 2);
}
static void pixel_accuracy_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct segmentation_attrs *a = l->node->attrs;
    const struct dr_cpu_classes c = dr_labels_of(l, a->ignore_index);
    dr_cpu_pixel_accuracy(cpu, &c, l->in[0], l->workspace, l->out[0]);
}
DR_CUDA_LAUNCHER pixel_accuracy_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct segmentation_attrs *a = l->node->attrs;
    const struct dr_cuda_classes c = dr_labels_of_cuda(l, a->ignore_index);
    return dr_cuda_pixel_accuracy(&c, l->in[0], l->workspace, l->out[0], cuda->stream);
}
const struct dr_op dr_op_pixel_accuracy = {
    .name = "pixel_accuracy",
    .doc = "Share of the elements of [logits, classes] whose prediction is their class.",
    .flags = DR_OP_METRIC | DR_OP_HEADER,
    .attrs = segmentation_attrs,
    .n_attrs = DR_COUNT(segmentation_attrs),
    .attrs_bytes = sizeof(struct segmentation_attrs),
    .min_in = 2,
    .max_in = 2,
    .outputs = 1,
    .infer = pixel_accuracy_infer,
    .cost = segmentation_cost,
    .choose = segmentation_choose,
    .finish = dr_finish_mean,
    .cpu = pixel_accuracy_cpu,
    DR_CUDA(pixel_accuracy_cuda),
};

/* ---- mean_iou ---- */
static bool mean_iou_infer(struct dr_infer *c) {
    struct segmentation_attrs *a = dr_infer_attrs(c);
    return dr_labels_or_binary_infer(c, &a->ignore_index) &&
           infer(c, 3 * dr_predicted_classes(dr_last(dr_infer_in(c, 0))));
}
static void mean_iou_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct segmentation_attrs *a = l->node->attrs;
    const struct dr_cpu_classes c = dr_labels_of(l, a->ignore_index);
    dr_cpu_confusion(cpu, &c, l->in[0], l->workspace, l->out[0]);
}
DR_CUDA_LAUNCHER mean_iou_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct segmentation_attrs *a = l->node->attrs;
    const struct dr_cuda_classes c = dr_labels_of_cuda(l, a->ignore_index);
    return dr_cuda_confusion(&c, l->in[0], l->workspace, l->out[0], cuda->stream);
}
/* torchmetrics' JaccardIndex, macro: a class that is neither predicted nor there is left out. */
static double mean_iou_finish(const void *attrs, const double *partial, uint32_t n) {
    const uint32_t classes = n / 3;
    double sum = 0, present = 0;
    (void)attrs;
    for (uint32_t k = 0; k < classes; k++) {
        const double both = partial[k];
        const double either = partial[classes + k] + partial[2 * classes + k] - both;
        if (either > 0) {
            sum += both / either;
            present += 1;
        }
    }
    return present > 0 ? sum / present : 0;
}
const struct dr_op dr_op_mean_iou = {
    .name = "mean_iou",
    .doc = "Intersection over union of predictions and classes, over all elements of the "
           "evaluation; the mean over the classes that are predicted or there.",
    .flags = DR_OP_METRIC | DR_OP_HEADER,
    .attrs = segmentation_attrs,
    .n_attrs = DR_COUNT(segmentation_attrs),
    .attrs_bytes = sizeof(struct segmentation_attrs),
    .min_in = 2,
    .max_in = 2,
    .outputs = 1,
    .infer = mean_iou_infer,
    .cost = segmentation_cost,
    .choose = segmentation_choose,
    .finish = mean_iou_finish,
    .cpu = mean_iou_cpu,
    DR_CUDA(mean_iou_cuda),
};
