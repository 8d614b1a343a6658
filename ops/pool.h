/* What the pools share: attributes and output sizes, PyTorch's. */
#ifndef DR_OPS_POOL_H
#define DR_OPS_POOL_H
#include "kernels/pool_shape.h"
#include "ops/common.h"

struct dr_pool_attrs {
    int64_t kernel[2], stride[2]; /* stride 0: the kernel's */
    struct dr_padding padding;
    bool ceil_mode, count_include_pad;
};

/* The schema's rows, of both pools; padding_doc says what padding does. */
#define DR_POOL_ATTRS(padding_doc)                                                                 \
    {.name = "kernel",                                                                             \
     .doc = "size of the window",                                                                  \
     .kind = DR_ATTR_PAIR,                                                                         \
     .required = true,                                                                             \
     .min = 1,                                                                                     \
     .max = 65535,                                                                                 \
     .offset = offsetof(struct dr_pool_attrs, kernel)},                                            \
        {.name = "stride",                                                                         \
         .doc = "step of the window; where it is not given: the kernel",                           \
         .kind = DR_ATTR_PAIR,                                                                     \
         .min = 1,                                                                                 \
         .max = 65535,                                                                             \
         .offset = offsetof(struct dr_pool_attrs, stride)},                                        \
        {.name = "padding",                                                                        \
         .doc = padding_doc,                                                                       \
         .kind = DR_ATTR_PADDING,                                                                  \
         .max = 65535,                                                                             \
         .offset = offsetof(struct dr_pool_attrs, padding)},                                       \
    {                                                                                              \
        .name = "ceil_mode", .doc = "rounds the output's size up: the last window may stick out",  \
        .kind = DR_ATTR_BOOL, .max = 1, .offset = offsetof(struct dr_pool_attrs, ceil_mode)        \
    }

/* f32 [N, H, W, C] -> f32 [N, Ho, Wo, C]; settles stride and padding. */
bool dr_pool_infer(struct dr_infer *c);
struct dr_pool dr_pool_of(const struct dr_pool_attrs *a, const struct dr_shape *x,
                          const struct dr_shape *y);
#endif
