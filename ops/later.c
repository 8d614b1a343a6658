/* Ops that the format knows and this version does not compute: layers and optimizers with their
 * attributes, so that a file that uses one gets one clear error instead of "unknown". An op leaves
 * this file when its kernel comes. */
#include "ops/common.h"

#define LATER(id, text, more, least, most, outs)                                                   \
    .name = #id, .doc = text, .flags = DR_OP_LATER | (more), .min_in = least, .max_in = most,      \
    .outputs = outs, DR_CUDA(NULL)
#define ATTRS(id)                                                                                  \
    .attrs = id##_attrs, .n_attrs = DR_COUNT(id##_attrs), .attrs_bytes = sizeof(struct id)

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
