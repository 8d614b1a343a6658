/* conv2d: 2-D cross-correlation, NHWC, PyTorch's nn.Conv2d; its gradients by input and weight. The
 * gradient by the bias is linear's. */
#include "kernels/cpu/conv.h"
#include "kernels/cuda/conv.h"
#include "ops/common.h"
#include "ops/conv_ways.h"
#include "ops/pool.h"
#include <string.h>

extern const struct dr_op dr_op_conv2d_dgrad, dr_op_conv2d_wgrad, dr_op_linear_bgrad,
    dr_op_max_pool2d;

struct conv2d_attrs {
    struct dr_fused fused;
    int64_t filters, kernel[2], stride[2], dilation[2], groups;
    struct dr_padding padding;
    bool bias;
    int64_t input[2];        /* h, w: set by infer, what dgrad cannot tell from dy */
    struct dr_pixels pixels; /* set by the fuse pass, as `pool`: */
    bool pool;               /* y is the largest of each 2 x 2 outputs */
};

#define LARGEST 65535 /* of a kernel, stride, dilation or pad */
static const struct dr_attr conv2d_attrs[] = {
    {.name = "filters",
     .doc = "output channels",
     .kind = DR_ATTR_INT,
     .required = true,
     .min = 1,
     .max = INT32_MAX,
     .offset = offsetof(struct conv2d_attrs, filters)},
    {.name = "kernel",
     .doc = "size of the filters",
     .kind = DR_ATTR_PAIR,
     .required = true,
     .min = 1,
     .max = LARGEST,
     .offset = offsetof(struct conv2d_attrs, kernel)},
    {.name = "stride",
     .doc = "step of the filters over the input",
     .kind = DR_ATTR_PAIR,
     .def = 1,
     .min = 1,
     .max = LARGEST,
     .offset = offsetof(struct conv2d_attrs, stride)},
    {.name = "padding",
     .doc = "zeros around the input; 'same' keeps its size",
     .kind = DR_ATTR_PADDING,
     .max = LARGEST,
     .offset = offsetof(struct conv2d_attrs, padding)},
    {.name = "dilation",
     .doc = "step between the taps of a filter",
     .kind = DR_ATTR_PAIR,
     .def = 1,
     .min = 1,
     .max = LARGEST,
     .offset = offsetof(struct conv2d_attrs, dilation)},
    {.name = "groups",
     .doc = "filters and channels are cut into as many groups; the input's channels: depthwise",
     .kind = DR_ATTR_INT,
     .def = 1,
     .min = 1,
     .max = INT32_MAX,
     .offset = offsetof(struct conv2d_attrs, groups)},
    {.name = "bias",
     .doc = "adds a learnt value to each filter",
     .kind = DR_ATTR_BOOL,
     .def = 1,
     .max = 1,
     .offset = offsetof(struct conv2d_attrs, bias)},
};

static int64_t effective(const struct conv2d_attrs *a, int axis) {
    return a->dilation[axis] * (a->kernel[axis] - 1) + 1;
}

/* `same`: an odd rest goes to the bottom and right, as PyTorch's does. */
static bool settle_padding(struct dr_infer *c, struct conv2d_attrs *a) {
    struct dr_padding *p = &a->padding;
    if (p->mode != DR_PAD_SAME) {
        return true;
    }
    if (a->stride[0] != 1 || a->stride[1] != 1) {
        return dr_infer_wrong(c, "padding",
                              "padding 'same' needs a stride of 1, not %lldx%lld; write the number",
                              (long long)a->stride[0], (long long)a->stride[1]);
    }
    p->top = (effective(a, 0) - 1) / 2;
    p->bottom = effective(a, 0) - 1 - p->top;
    p->left = (effective(a, 1) - 1) / 2;
    p->right = effective(a, 1) - 1 - p->left;
    return true;
}

static bool check_groups(struct dr_infer *c, const struct conv2d_attrs *a, int64_t channels) {
    if (channels % a->groups != 0) {
        return dr_infer_wrong(c, "groups", "%lld input channels are not divisible by groups %lld",
                              (long long)channels, (long long)a->groups);
    }
    if (a->filters % a->groups != 0) {
        return dr_infer_wrong(c, "filters", "%lld filters are not divisible by groups %lld",
                              (long long)a->filters, (long long)a->groups);
    }
    return true;
}

static int64_t padded_size(const struct conv2d_attrs *a, int axis) {
    const struct dr_padding *p = &a->padding;
    return a->input[axis] + (axis ? p->left + p->right : p->top + p->bottom);
}
/* Of a window that fits. */
static int64_t output_of(const struct conv2d_attrs *a, int axis) {
    return (padded_size(a, axis) - effective(a, axis)) / a->stride[axis] + 1;
}
static bool output_size(struct dr_infer *c, const struct conv2d_attrs *a, int axis, int64_t *out) {
    const int64_t padded = padded_size(a, axis), kernel = effective(a, axis);
    if (kernel > padded) {
        return dr_infer_wrong(c, "kernel", "effective kernel %lld > padded input %lld along its %s",
                              (long long)kernel, (long long)padded, axis ? "width" : "height");
    }
    *out = output_of(a, axis);
    return true;
}

static bool conv2d_infer(struct dr_infer *c) {
    struct conv2d_attrs *a = dr_infer_attrs(c);
    if (!dr_need_f32(c, 0) || !dr_need_rank(c, 0, 4, "[N, H, W, C]")) {
        return false;
    }
    const struct dr_shape x = dr_infer_in(c, 0)->shape;
    struct dr_shape y = DR_SHAPE(x.dim[0], 0, 0, a->filters);
    a->input[0] = x.dim[1];
    a->input[1] = x.dim[2];
    if (!check_groups(c, a, x.dim[3]) || !settle_padding(c, a) ||
        !output_size(c, a, 0, &y.dim[1]) || !output_size(c, a, 1, &y.dim[2])) {
        return false;
    }
    const struct dr_shape window = DR_SHAPE(a->kernel[0], a->kernel[1], x.dim[3] / a->groups);
    struct dr_init he = {.kind = DR_INIT_HE_NORMAL};
    if (!dr_shape_elements(&window, &he.fan_in)) {
        return dr_infer_wrong(
            c, "kernel", "its filters are too large: kernel %lldx%lld, %lld channels",
            (long long)a->kernel[0], (long long)a->kernel[1], (long long)window.dim[2]);
    }
    const struct dr_shape w = DR_SHAPE(a->filters, window.dim[0], window.dim[1], window.dim[2]);
    return dr_infer_state(c, "weight", DR_WEIGHT, DR_F32, w, he) &&
           (!a->bias || dr_infer_state(c, "bias", DR_WEIGHT, DR_F32, DR_SHAPE(a->filters),
                                       (struct dr_init){.kind = DR_INIT_ZERO})) &&
           dr_infer_out(c, NULL, DR_F32, y, DR_PLAIN);
}

/* x: the input, whether or not the node computes it. */
static struct dr_conv conv_of(const struct conv2d_attrs *a, const struct dr_value *x) {
    return (struct dr_conv){
        .n = x->shape.dim[0],
        .h = x->shape.dim[1],
        .w = x->shape.dim[2],
        .c = x->shape.dim[3],
        .k = a->filters,
        .kh = a->kernel[0],
        .kw = a->kernel[1],
        .ho = output_of(a, 0),
        .wo = output_of(a, 1),
        .sh = a->stride[0],
        .sw = a->stride[1],
        .dh = a->dilation[0],
        .dw = a->dilation[1],
        .pt = a->padding.top,
        .pl = a->padding.left,
        .pb = a->padding.bottom,
        .pr = a->padding.right,
        .groups = a->groups,
    };
}

/* One multiply-add for each output and each value of its window: the same in all three. */
static struct dr_cost cost_of(const struct dr_graph *g, const struct dr_node *n,
                              const struct dr_value *x) {
    const struct dr_conv s = conv_of(n->attrs, x);
    const double y = (double)s.n * (double)(s.ho * s.wo) * (double)s.k;
    return dr_cost_of(g, n, 2.0 * y * (double)(s.kh * s.kw) * ((double)s.c / (double)s.groups));
}

/* ---- forward: x, weight[, bias] -> y ---- */
static struct dr_cost conv2d_cost(const struct dr_graph *g, const struct dr_node *n) {
    return cost_of(g, n, dr_node_in(g, n, 0));
}
static uint32_t conv2d_ways(const struct dr_graph *g, const struct dr_node *n,
                            struct dr_choice *way) {
    const struct conv2d_attrs *a = n->attrs;
    const struct dr_conv s = conv_of(a, dr_node_in(g, n, 0));
    const enum dr_type t = dr_type_of(dr_node_out(g, n, 0));
    const int act = a->fused.activation;
    return a->pixels.n ? dr_conv_u8_ways(g, &s, t, act, way)
           : a->pool   ? dr_conv_pool_ways(g, &s, t, act, way)
                       : dr_conv_ways(g, &s, t, DR_CONV_FPROP, act, way);
}
/* The largest of 2 x 2, side by side, without padding; of an odd number the last is left out. */
static bool conv2d_take_below(const struct dr_graph *g, struct dr_node *n,
                              const struct dr_node *below) {
    struct conv2d_attrs *a = n->attrs;
    const struct dr_pool_attrs *p = below->attrs;
    const struct dr_value *x = dr_node_out(g, n, 0), *y = dr_node_out(g, below, 0);
    struct dr_choice way[DR_WAYS];
    if (below->op != &dr_op_max_pool2d || a->pool || a->fused.add || p->kernel[0] != 2 ||
        p->kernel[1] != 2 || p->stride[0] != 2 || p->stride[1] != 2 || p->padding.top ||
        p->padding.bottom || p->padding.left || p->padding.right || x->dtype != y->dtype ||
        y->shape.dim[1] != x->shape.dim[1] / 2 || y->shape.dim[2] != x->shape.dim[2] / 2) {
        return false;
    }
    a->pool = true;
    a->pool = conv2d_ways(g, n, way) > 0;
    return a->pool;
}
static bool conv2d_take_pixels(const struct dr_graph *g, struct dr_node *n,
                               const struct dr_pixels *p) {
    struct conv2d_attrs *a = n->attrs;
    struct dr_choice way[DR_WAYS];
    a->pixels = *p;
    if (conv2d_ways(g, n, way) == 0) {
        a->pixels.n = 0;
    }
    return a->pixels.n > 0;
}
static struct dr_choice conv2d_choose(const struct dr_graph *g, const struct dr_node *n,
                                      bool cuda) {
    const struct dr_conv s = conv_of(n->attrs, dr_node_in(g, n, 0));
    struct dr_choice way[DR_WAYS];
    if (cuda) {
        conv2d_ways(g, n, way);
        return way[0];
    }
    return (struct dr_choice){.workspace_bytes = dr_conv_fprop_workspace(&s), .kernel = "im2win"};
}
static struct dr_epilogue epilogue_of(const struct dr_launch *l) {
    const struct conv2d_attrs *a = l->node->attrs;
    return dr_launch_epilogue(l, &a->fused, a->bias ? 3 : 2, a->bias ? l->in[2] : NULL);
}
static void conv2d_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct conv2d_attrs *a = l->node->attrs;
    const struct dr_conv s = conv_of(a, dr_launch_in(l, 0));
    const struct dr_epilogue e = epilogue_of(l);
    DR_ASSERT(a->pixels.n == 0 && !a->pool);
    dr_conv_fprop(cpu, dr_tiles(), &s, l->in[0], l->in[1], &e, l->out[0], l->workspace);
}
DR_CUDA_LAUNCHER conv2d_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct conv2d_attrs *a = l->node->attrs;
    const struct dr_conv s = conv_of(a, dr_launch_in(l, 0));
    const struct dr_epilogue e = epilogue_of(l);
    const enum dr_type t = dr_type_of(dr_launch_out(l, 0));
    if (a->pixels.n) {
        struct dr_cuda_affine u8 = {.n = a->pixels.n};
        memcpy(u8.mul, a->pixels.mul, sizeof a->pixels.mul);
        memcpy(u8.add, a->pixels.add, sizeof a->pixels.add);
        return dr_cuda_conv_u8(&s, t, l->in[0], &u8, l->in[1], &e, l->out[0], cuda);
    }
    return a->pool
               ? dr_cuda_conv_pool(&s, t, l->choice->way, l->in[0], l->in[1], &e, l->out[0], cuda)
               : dr_cuda_conv_fprop(&s, t, l->choice->way, l->in[0], l->in[1], &e, l->out[0],
                                    l->workspace, cuda);
}

/* ---- gradient by the input: dy, weight -> dx ---- */
static bool dgrad_infer(struct dr_infer *c) {
    const struct conv2d_attrs *a = dr_infer_attrs(c);
    const struct dr_shape *dy = &dr_infer_in(c, 0)->shape, *w = &dr_infer_in(c, 1)->shape;
    const struct dr_shape dx =
        DR_SHAPE(dy->dim[0], a->input[0], a->input[1], w->dim[3] * a->groups);
    return dr_infer_out(c, NULL, DR_F32, dx, DR_PLAIN);
}
static struct dr_cost dgrad_cost(const struct dr_graph *g, const struct dr_node *n) {
    return cost_of(g, n, dr_node_out(g, n, 0));
}
static uint32_t dgrad_ways(const struct dr_graph *g, const struct dr_node *n,
                           struct dr_choice *way) {
    const struct dr_conv s = conv_of(n->attrs, dr_node_out(g, n, 0));
    return dr_conv_ways(g, &s, dr_type_of(dr_node_in(g, n, 0)), DR_CONV_DGRAD, DR_ACT_NONE, way);
}
static struct dr_choice dgrad_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    const struct dr_conv s = conv_of(n->attrs, dr_node_out(g, n, 0));
    struct dr_choice way[DR_WAYS];
    if (cuda) {
        dgrad_ways(g, n, way);
        return way[0];
    }
    return (struct dr_choice){.workspace_bytes = dr_conv_dgrad_workspace(&s), .kernel = "im2win"};
}
static void dgrad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_conv s = conv_of(l->node->attrs, dr_launch_out(l, 0));
    dr_conv_dgrad(cpu, dr_tiles(), &s, l->in[0], l->in[1], l->out[0], l->workspace);
}
DR_CUDA_LAUNCHER dgrad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_conv s = conv_of(l->node->attrs, dr_launch_out(l, 0));
    const struct dr_epilogue e = {.act = DR_ACT_NONE};
    return dr_cuda_conv_back(&s, dr_type_of(dr_launch_in(l, 0)), l->choice->way, l->in[0], l->in[1],
                             &e, l->out[0], l->workspace, cuda);
}

/* ---- gradient by the weight: x, dy -> dw ---- */
static bool wgrad_infer(struct dr_infer *c) {
    const struct conv2d_attrs *a = dr_infer_attrs(c);
    const int64_t channels = dr_infer_in(c, 0)->shape.dim[3];
    return dr_infer_out(c, NULL, DR_F32,
                        DR_SHAPE(a->filters, a->kernel[0], a->kernel[1], channels / a->groups),
                        DR_PLAIN);
}
static struct dr_cost wgrad_cost(const struct dr_graph *g, const struct dr_node *n) {
    return cost_of(g, n, dr_node_in(g, n, 0));
}
static struct dr_choice wgrad_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    const struct dr_conv s = conv_of(n->attrs, dr_node_in(g, n, 0));
    return dr_conv_choice(g, &s, dr_type_of(dr_node_in(g, n, 0)), DR_CONV_WGRAD, cuda,
                          cuda ? dr_cuda_conv_wgrad_bytes(&s) : dr_conv_wgrad_workspace(&s));
}
static void wgrad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_conv s = conv_of(l->node->attrs, dr_launch_in(l, 0));
    dr_conv_wgrad(cpu, dr_tiles(), &s, l->in[0], l->in[1], l->out[0], l->workspace);
}
DR_CUDA_LAUNCHER wgrad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_conv s = conv_of(l->node->attrs, dr_launch_in(l, 0));
    return dr_cuda_conv_wgrad(&s, dr_type_of(dr_launch_in(l, 0)), l->in[0], l->in[1], l->out[0],
                              l->workspace, cuda);
}

static void conv2d_grad(struct dr_grad *c) {
    dr_weighted_grad(c, &dr_op_conv2d_dgrad, &dr_op_conv2d_wgrad);
}

const struct dr_op dr_op_conv2d = {
    .name = "conv2d",
    .doc = "2-D convolution (cross-correlation), NHWC; weight [filters, Kh, Kw, C / groups].",
    .flags = DR_OP_ACTIVATION | DR_OP_FUSES | DR_OP_FUSES_NORM | DR_OP_FUSES_ADD,
    .attrs = conv2d_attrs,
    .n_attrs = DR_COUNT(conv2d_attrs),
    .attrs_bytes = sizeof(struct conv2d_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = conv2d_infer,
    .grad = conv2d_grad,
    .cost = conv2d_cost,
    .choose = conv2d_choose,
    .ways = conv2d_ways,
    .take_pixels = conv2d_take_pixels,
    .take_below = conv2d_take_below,
    .cpu = conv2d_cpu,
    DR_CUDA(conv2d_cuda),
};
const struct dr_op dr_op_conv2d_dgrad = {
    .name = "conv2d_dgrad",
    .doc = "Gradient of conv2d by its input.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct conv2d_attrs),
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = dgrad_infer,
    .cost = dgrad_cost,
    .choose = dgrad_choose,
    .ways = dgrad_ways,
    .cpu = dgrad_cpu,
    DR_CUDA(dgrad_cuda),
};
const struct dr_op dr_op_conv2d_wgrad = {
    .name = "conv2d_wgrad",
    .doc = "Gradient of conv2d by its weight.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct conv2d_attrs),
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .outputs = 1,
    .infer = wgrad_infer,
    .cost = wgrad_cost,
    .choose = wgrad_choose,
    .cpu = wgrad_cpu,
    DR_CUDA(wgrad_cuda),
};
