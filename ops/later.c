/* Ops that the format knows and this version does not compute: layers, losses, metrics and
 * optimizers with their attributes, so that a file that uses one gets one clear error instead of
 * "unknown". An op leaves this file when its kernel comes. */
#include "ops/labels.h"

#define LATER(id, text, more, least, most, outs)                                                   \
    .name = #id, .doc = text, .flags = DR_OP_LATER | (more), .min_in = least, .max_in = most,      \
    .outputs = outs, DR_CUDA(NULL)
#define ATTRS(id)                                                                                  \
    .attrs = id##_attrs, .n_attrs = DR_COUNT(id##_attrs), .attrs_bytes = sizeof(struct id)

/* ---- Layers ---- */

const struct dr_op dr_op_matmul = {
    LATER(matmul, "Matrix product over the last two axes.", 0, 2, 2, 1),
};

struct avg_pool2d {
    int64_t kernel[2];
    int64_t stride[2];
    struct dr_padding padding;
};
static const struct dr_attr avg_pool2d_attrs[] = {
    {.name = "kernel",
     .doc = "size of the window",
     .kind = DR_ATTR_PAIR,
     .required = true,
     .min = 1,
     .max = 65535,
     .offset = offsetof(struct avg_pool2d, kernel)},
    {.name = "stride",
     .doc = "step of the window; where it is not given: the kernel",
     .kind = DR_ATTR_PAIR,
     .min = 1,
     .max = 65535,
     .offset = offsetof(struct avg_pool2d, stride)},
    {.name = "padding",
     .doc = "at most half the kernel on each side",
     .kind = DR_ATTR_PADDING,
     .max = 65535,
     .offset = offsetof(struct avg_pool2d, padding)},
};

const struct dr_op dr_op_avg_pool2d = {
    LATER(avg_pool2d, "Mean of each window; padding counts as zeros.", 0, 1, 1, 1),
    ATTRS(avg_pool2d),
};

const struct dr_op dr_op_global_avg_pool = {
    LATER(global_avg_pool, "Mean over H and W: [N, C].", 0, 1, 1, 1),
};

static const char *const upsample_mode[] = {"nearest", "bilinear"};
struct upsample {
    int64_t scale[2];
    int32_t mode;
};
static const struct dr_attr upsample_attrs[] = {
    {.name = "scale",
     .doc = "factor of height and width",
     .kind = DR_ATTR_PAIR,
     .required = true,
     .min = 1,
     .max = 65535,
     .offset = offsetof(struct upsample, scale)},
    {.name = "mode",
     .doc = "how pixels in between are made",
     .kind = DR_ATTR_WORD,
     .words = upsample_mode,
     .n_words = 2,
     .offset = offsetof(struct upsample, mode)},
};

const struct dr_op dr_op_upsample = {
    LATER(upsample, "Larger by a factor, align_corners false.", 0, 1, 1, 1),
    ATTRS(upsample),
};

struct slice {
    int64_t axis;
    int64_t begin;
    int64_t end;
};
static const struct dr_attr slice_attrs[] = {
    {.name = "axis",
     .doc = "axis, not 0 (the batch); negative ones count from the end",
     .kind = DR_ATTR_INT,
     .def = -1,
     .min = -4,
     .max = 4,
     .offset = offsetof(struct slice, axis)},
    {.name = "begin",
     .doc = "first index",
     .kind = DR_ATTR_INT,
     .max = 9007199254740992.0,
     .offset = offsetof(struct slice, begin)},
    {.name = "end",
     .doc = "index after the last",
     .kind = DR_ATTR_INT,
     .required = true,
     .min = 1,
     .max = 9007199254740992.0,
     .offset = offsetof(struct slice, end)},
};

const struct dr_op dr_op_slice = {
    LATER(slice, "A part along one axis.", 0, 1, 1, 1),
    ATTRS(slice),
};

struct pad {
    struct dr_padding padding;
    double value;
};
static const struct dr_attr pad_attrs[] = {
    {.name = "padding",
     .doc = "width of the border",
     .kind = DR_ATTR_PADDING,
     .required = true,
     .max = 65535,
     .offset = offsetof(struct pad, padding)},
    {.name = "value",
     .doc = "value of the border",
     .kind = DR_ATTR_FLOAT,
     .min = -1e+30,
     .max = 1e+30,
     .offset = offsetof(struct pad, value)},
};

const struct dr_op dr_op_pad = {
    LATER(pad, "A border of one value.", 0, 1, 1, 1),
    ATTRS(pad),
};

struct transpose {
    struct dr_ints axes;
};
static const struct dr_attr transpose_attrs[] = {
    {.name = "axes",
     .doc = "the axes of a sample, from 1, in their new order",
     .kind = DR_ATTR_INTS,
     .required = true,
     .min = 1,
     .max = 4,
     .offset = offsetof(struct transpose, axes)},
};

const struct dr_op dr_op_transpose = {
    LATER(transpose, "Axes in another order.", 0, 1, 1, 1),
    ATTRS(transpose),
};

struct dropout {
    double p;
};
static const struct dr_attr dropout_attrs[] = {
    {.name = "p",
     .doc = "probability of a zero",
     .kind = DR_ATTR_FLOAT,
     .def = 0.5,
     .max = 1,
     .offset = offsetof(struct dropout, p)},
};

const struct dr_op dr_op_dropout = {
    LATER(dropout,
          "Zeroes elements at random and scales the others by 1 / (1 - p); in evaluation it passes "
          "its input through.",
          DR_OP_RANDOM | DR_OP_HEADER | DR_OP_EVAL_PASS | DR_OP_POINTWISE, 1, 1, 1),
    ATTRS(dropout),
};

const struct dr_op dr_op_argmax = {
    LATER(argmax, "Index of the largest value of the last axis: u8 to 256 channels, else i32.", 0,
          1, 1, 1),
};

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
