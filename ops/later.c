/* Ops that the format knows and this version does not compute: losses, metrics and
 * optimizers with their attributes, so that a file that uses one gets one clear error instead of
 * "unknown". An op leaves this file when its kernel comes. */
#include "ops/labels.h"

#define LATER(id, text, more, least, most, outs)                                                   \
    .name = #id, .doc = text, .flags = DR_OP_LATER | (more), .min_in = least, .max_in = most,      \
    .outputs = outs, DR_CUDA(NULL)
#define ATTRS(id)                                                                                  \
    .attrs = id##_attrs, .n_attrs = DR_COUNT(id##_attrs), .attrs_bytes = sizeof(struct id)

/* ---- Losses and metrics ---- */

const struct dr_op dr_op_bce = {
    LATER(bce, "Binary cross-entropy of [logits, targets].", DR_OP_LOSS | DR_OP_HEADER, 2, 2, 1),
};

const struct dr_op dr_op_mse = {
    LATER(mse, "Mean squared difference.", DR_OP_LOSS | DR_OP_HEADER, 2, 2, 1),
};

const struct dr_op dr_op_l1 = {
    LATER(l1, "Mean absolute difference.", DR_OP_LOSS | DR_OP_HEADER, 2, 2, 1),
};

struct dice {
    int64_t ignore_index;
    double smooth;
};
static const struct dr_attr dice_attrs[] = {
    DR_IGNORE_ATTR(struct dice),
    {.name = "smooth",
     .doc = "added to both sides of the quotient",
     .kind = DR_ATTR_FLOAT,
     .def = 1,
     .max = 1000000.0,
     .offset = offsetof(struct dice, smooth)},
};

const struct dr_op dr_op_dice = {
    LATER(dice, "1 - Dice coefficient of softmax(logits) and classes, mean over the classes.",
          DR_OP_LOSS | DR_OP_HEADER, 2, 2, 1),
    ATTRS(dice),
};

struct pixel_accuracy {
    int64_t ignore_index;
};
static const struct dr_attr pixel_accuracy_attrs[] = {
    DR_IGNORE_ATTR(struct pixel_accuracy),
};

const struct dr_op dr_op_pixel_accuracy = {
    LATER(pixel_accuracy, "Share of pixels whose largest logit is their class.",
          DR_OP_METRIC | DR_OP_HEADER, 2, 2, 1),
    ATTRS(pixel_accuracy),
};

struct mean_iou {
    int64_t ignore_index;
};
static const struct dr_attr mean_iou_attrs[] = {
    DR_IGNORE_ATTR(struct mean_iou),
};

const struct dr_op dr_op_mean_iou = {
    LATER(mean_iou, "Intersection over union, mean over the classes that occur.",
          DR_OP_METRIC | DR_OP_HEADER, 2, 2, 1),
    ATTRS(mean_iou),
};

/* ---- Optimizers ---- */

struct adam {
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
};
static const struct dr_attr adam_attrs[] = {
    {.name = "beta1",
     .doc = "decay of the mean of the gradient",
     .kind = DR_ATTR_FLOAT,
     .def = 0.9,
     .max = 1,
     .offset = offsetof(struct adam, beta1)},
    {.name = "beta2",
     .doc = "decay of the mean of its square",
     .kind = DR_ATTR_FLOAT,
     .def = 0.999,
     .max = 1,
     .offset = offsetof(struct adam, beta2)},
    {.name = "eps",
     .doc = "added to the root",
     .kind = DR_ATTR_FLOAT,
     .def = 1e-08,
     .max = 1,
     .offset = offsetof(struct adam, eps)},
    {.name = "weight_decay",
     .doc = "pulls weights to zero",
     .kind = DR_ATTR_FLOAT,
     .def = 0,
     .max = 1000000.0,
     .offset = offsetof(struct adam, weight_decay)},
};

const struct dr_op dr_op_adam = {
    LATER(adam, "Adam (torch.optim.Adam).", DR_OP_OPTIMIZER, 0, 0, 0),
    ATTRS(adam),
};

struct adamw {
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
};
static const struct dr_attr adamw_attrs[] = {
    {.name = "beta1",
     .doc = "decay of the mean of the gradient",
     .kind = DR_ATTR_FLOAT,
     .def = 0.9,
     .max = 1,
     .offset = offsetof(struct adamw, beta1)},
    {.name = "beta2",
     .doc = "decay of the mean of its square",
     .kind = DR_ATTR_FLOAT,
     .def = 0.999,
     .max = 1,
     .offset = offsetof(struct adamw, beta2)},
    {.name = "eps",
     .doc = "added to the root",
     .kind = DR_ATTR_FLOAT,
     .def = 1e-08,
     .max = 1,
     .offset = offsetof(struct adamw, eps)},
    {.name = "weight_decay",
     .doc = "pulls weights to zero",
     .kind = DR_ATTR_FLOAT,
     .def = 0.01,
     .max = 1000000.0,
     .offset = offsetof(struct adamw, weight_decay)},
};

const struct dr_op dr_op_adamw = {
    LATER(adamw, "Adam with decoupled weight decay (torch.optim.AdamW).", DR_OP_OPTIMIZER, 0, 0, 0),
    ATTRS(adamw),
};
