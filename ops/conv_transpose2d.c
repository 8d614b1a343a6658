/* conv_transpose2d: PyTorch's nn.ConvTranspose2d, NHWC; its gradients by input and weight. The
 * gradient by the bias is linear's.
 *
 * It is conv2d turned round: the convolution whose output has the shape of x and whose input has
 * the shape of y. Forward is that convolution's data gradient (and bias, activation), the gradient
 * by x is its forward pass, the gradient by the weight is its weight gradient with x and dy
 * exchanged. So all im2win kernels serve as they are, with the weight as they want it:
 * [C, Kh, Kw, filters / groups], C the channels of x, which are that convolution's filters. Files
 * hold PyTorch's IOHW, [C, filters / groups, Kh, Kw]: axes 0, 2, 3, 1 of it.
 *
 * Initial weights are He normal with PyTorch's fan_in: that of axis 1 of IOHW, filters / groups
 * times Kh times Kw, though each output really sums over the channels of x. */
#include "kernels/cpu/conv.h"
#include "kernels/cuda/conv.h"
#include "ops/common.h"
#include "ops/conv_ways.h"

extern const struct dr_op dr_op_conv_transpose2d_dgrad, dr_op_conv_transpose2d_wgrad,
    dr_op_linear_bgrad;

struct conv_transpose2d_attrs {
    struct dr_fused fused;
    int64_t filters, kernel[2], stride[2], output_padding[2], dilation[2], groups;
    struct dr_padding padding;
    bool bias;
    int64_t input[2]; /* h, w: set by infer, what dgrad cannot tell from dy */
};

#define LARGEST 65535 /* of a kernel, stride, dilation or pad */
static const struct dr_attr conv_transpose2d_attrs[] = {
    {.name = "filters",
     .doc = "output channels",
     .kind = DR_ATTR_INT,
     .required = true,
     .min = 1,
     .max = INT32_MAX,
     .offset = offsetof(struct conv_transpose2d_attrs, filters)},
    {.name = "kernel",
     .doc = "size of the filters",
     .kind = DR_ATTR_PAIR,
     .required = true,
     .min = 1,
     .max = LARGEST,
     .offset = offsetof(struct conv_transpose2d_attrs, kernel)},
    {.name = "stride",
     .doc = "step of the filters over the output",
     .kind = DR_ATTR_PAIR,
     .def = 1,
     .min = 1,
     .max = LARGEST,
     .offset = offsetof(struct conv_transpose2d_attrs, stride)},
    {.name = "padding",
     .doc = "taken off each side of the output; not 'same'",
     .kind = DR_ATTR_PADDING,
     .max = LARGEST,
     .offset = offsetof(struct conv_transpose2d_attrs, padding)},
    {.name = "output_padding",
     .doc = "rows and columns added at the bottom and right, fewer than stride or dilation",
     .kind = DR_ATTR_PAIR,
     .max = LARGEST,
     .offset = offsetof(struct conv_transpose2d_attrs, output_padding)},
    {.name = "dilation",
     .doc = "step between the taps of a filter",
     .kind = DR_ATTR_PAIR,
     .def = 1,
     .min = 1,
     .max = LARGEST,
     .offset = offsetof(struct conv_transpose2d_attrs, dilation)},
    {.name = "groups",
     .doc = "filters and channels are cut into as many groups",
     .kind = DR_ATTR_INT,
     .def = 1,
     .min = 1,
     .max = INT32_MAX,
     .offset = offsetof(struct conv_transpose2d_attrs, groups)},
    {.name = "bias",
     .doc = "adds a learnt value to each filter",
     .kind = DR_ATTR_BOOL,
     .def = 1,
     .max = 1,
     .offset = offsetof(struct conv_transpose2d_attrs, bias)},
};

static bool check_attrs(struct dr_infer *c, const struct conv_transpose2d_attrs *a,
                        int64_t channels) {
    if (channels % a->groups != 0) {
        return dr_infer_wrong(c, "groups", "%lld input channels are not divisible by groups %lld",
                              (long long)channels, (long long)a->groups);
    }
    if (a->filters % a->groups != 0) {
        return dr_infer_wrong(c, "filters", "%lld filters are not divisible by groups %lld",
                              (long long)a->filters, (long long)a->groups);
    }
    if (a->padding.mode == DR_PAD_SAME) {
        return dr_infer_wrong(
            c, "padding", "padding 'same' is not for transposed convolutions; write the number");
    }
    for (int i = 0; i < 2; i++) {
        if (a->output_padding[i] >= a->stride[i] && a->output_padding[i] >= a->dilation[i]) {
            return dr_infer_wrong(c, "output_padding",
                                  "output_padding %lld is not below stride %lld or dilation %lld",
                                  (long long)a->output_padding[i], (long long)a->stride[i],
                                  (long long)a->dilation[i]);
        }
    }
    return true;
}

static bool output_size(struct dr_infer *c, const struct conv_transpose2d_attrs *a, int axis,
                        int64_t padding, int64_t *out) {
    const int64_t reach = a->dilation[axis] * (a->kernel[axis] - 1) + 1 + a->output_padding[axis];
    int64_t size;
    if (__builtin_mul_overflow(a->input[axis] - 1, a->stride[axis], &size) ||
        __builtin_add_overflow(size, reach, &size)) {
        return dr_infer_error(c, "its output is too large");
    }
    if (size <= padding) {
        return dr_infer_wrong(c, "padding",
                              "padding takes %lld off an output of %lld along its %s; nothing is "
                              "left",
                              (long long)padding, (long long)size, axis ? "width" : "height");
    }
    *out = size - padding;
    return true;
}

static bool conv_transpose2d_infer(struct dr_infer *c) {
    struct conv_transpose2d_attrs *a = dr_infer_attrs(c);
    if (!dr_need_f32(c, 0) || !dr_need_rank(c, 0, 4, "[N, H, W, C]")) {
        return false;
    }
    const struct dr_shape x = dr_infer_in(c, 0)->shape;
    const struct dr_padding *p = &a->padding;
    struct dr_shape y = DR_SHAPE(x.dim[0], 0, 0, a->filters);
    a->input[0] = x.dim[1];
    a->input[1] = x.dim[2];
    if (!check_attrs(c, a, x.dim[3]) || !output_size(c, a, 0, p->top + p->bottom, &y.dim[1]) ||
        !output_size(c, a, 1, p->left + p->right, &y.dim[2])) {
        return false;
    }
    const int64_t lanes = a->filters / a->groups; /* the product is below 2^63 */
    const struct dr_init he = {.kind = DR_INIT_HE_NORMAL,
                               .fan_in = a->kernel[0] * a->kernel[1] * lanes};
    const struct dr_shape w = DR_SHAPE(x.dim[3], a->kernel[0], a->kernel[1], lanes);
    return dr_infer_state(c, "weight", DR_WEIGHT, DR_F32, w, he) &&
           (!a->bias || dr_infer_state(c, "bias", DR_WEIGHT, DR_F32, DR_SHAPE(a->filters),
                                       (struct dr_init){.kind = DR_INIT_ZERO})) &&
           dr_infer_out(c, NULL, DR_F32, y, DR_PLAIN);
}

/* The convolution that makes x of y: their shapes, whichever of them the node computes. */
static struct dr_conv conv_of(const struct conv_transpose2d_attrs *a, const struct dr_value *x,
                              const struct dr_value *y) {
    return (struct dr_conv){
        .n = y->shape.dim[0],
        .h = y->shape.dim[1],
        .w = y->shape.dim[2],
        .c = a->filters,
        .k = x->shape.dim[3],
        .kh = a->kernel[0],
        .kw = a->kernel[1],
        .ho = x->shape.dim[1],
        .wo = x->shape.dim[2],
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

/* One multiply-add for each value of x and each value that it reaches: the same in all three. */
static struct dr_cost cost_of(const struct dr_graph *g, const struct dr_node *n,
                              const struct dr_value *x) {
    const struct conv_transpose2d_attrs *a = n->attrs;
    return dr_cost_of(g, n,
                      2.0 * (double)dr_elements(x) * (double)(a->kernel[0] * a->kernel[1]) *
                          (double)(a->filters / a->groups));
}

/* ---- forward: x, weight[, bias] -> y ---- */
static struct dr_cost conv_transpose2d_cost(const struct dr_graph *g, const struct dr_node *n) {
    return cost_of(g, n, dr_node_in(g, n, 0));
}
static uint32_t conv_transpose2d_ways(const struct dr_graph *g, const struct dr_node *n,
                                      struct dr_choice *way) {
    const struct conv_transpose2d_attrs *a = n->attrs;
    const struct dr_conv s = conv_of(a, dr_node_in(g, n, 0), dr_node_out(g, n, 0));
    return dr_conv_ways(g, &s, dr_type_of(dr_node_in(g, n, 0)), DR_CONV_DGRAD, a->fused.activation,
                        way);
}
static struct dr_choice conv_transpose2d_choose(const struct dr_graph *g, const struct dr_node *n,
                                                bool cuda) {
    const struct dr_conv s = conv_of(n->attrs, dr_node_in(g, n, 0), dr_node_out(g, n, 0));
    struct dr_choice way[DR_WAYS];
    if (cuda) {
        conv_transpose2d_ways(g, n, way);
        return way[0];
    }
    return (struct dr_choice){.workspace_bytes = dr_conv_dgrad_workspace(&s), .kernel = "im2win"};
}
static struct dr_epilogue epilogue_of(const struct dr_launch *l) {
    const struct conv_transpose2d_attrs *a = l->node->attrs;
    return dr_launch_epilogue(l, &a->fused, a->bias ? 3 : 2, a->bias ? l->in[2] : NULL);
}
static void conv_transpose2d_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct conv_transpose2d_attrs *a = l->node->attrs;
    const struct dr_conv s = conv_of(a, dr_launch_in(l, 0), dr_launch_out(l, 0));
    const struct dr_epilogue e = epilogue_of(l);
    dr_conv_transpose(cpu, dr_tiles(), &s, l->in[0], l->in[1], &e, l->out[0], l->workspace);
}
DR_CUDA_LAUNCHER conv_transpose2d_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct conv_transpose2d_attrs *a = l->node->attrs;
    const struct dr_conv s = conv_of(a, dr_launch_in(l, 0), dr_launch_out(l, 0));
    const struct dr_epilogue e = epilogue_of(l);
    return dr_cuda_conv_back(&s, dr_type_of(dr_launch_in(l, 0)), l->choice->way, l->in[0], l->in[1],
                             &e, l->out[0], l->workspace, cuda);
}

/* ---- gradient by the input: dy, weight -> dx ---- */
static bool dgrad_infer(struct dr_infer *c) {
    const struct conv_transpose2d_attrs *a = dr_infer_attrs(c);
    const struct dr_shape *dy = &dr_infer_in(c, 0)->shape, *w = &dr_infer_in(c, 1)->shape;
    const struct dr_shape dx = DR_SHAPE(dy->dim[0], a->input[0], a->input[1], w->dim[0]);
    return dr_infer_out(c, NULL, DR_F32, dx, DR_PLAIN);
}
static struct dr_cost dgrad_cost(const struct dr_graph *g, const struct dr_node *n) {
    return cost_of(g, n, dr_node_out(g, n, 0));
}
static uint32_t dgrad_ways(const struct dr_graph *g, const struct dr_node *n,
                           struct dr_choice *way) {
    const struct dr_conv s = conv_of(n->attrs, dr_node_out(g, n, 0), dr_node_in(g, n, 0));
    return dr_conv_ways(g, &s, dr_type_of(dr_node_in(g, n, 0)), DR_CONV_FPROP, DR_ACT_NONE, way);
}
static struct dr_choice dgrad_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    const struct dr_conv s = conv_of(n->attrs, dr_node_out(g, n, 0), dr_node_in(g, n, 0));
    struct dr_choice way[DR_WAYS];
    if (cuda) {
        dgrad_ways(g, n, way);
        return way[0];
    }
    return (struct dr_choice){.workspace_bytes = dr_conv_fprop_workspace(&s), .kernel = "im2win"};
}
static void dgrad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_conv s = conv_of(l->node->attrs, dr_launch_out(l, 0), dr_launch_in(l, 0));
    const struct dr_epilogue none = {0};
    dr_conv_fprop(cpu, dr_tiles(), &s, l->in[0], l->in[1], &none, l->out[0], l->workspace);
}
DR_CUDA_LAUNCHER dgrad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_conv s = conv_of(l->node->attrs, dr_launch_out(l, 0), dr_launch_in(l, 0));
    const struct dr_epilogue e = {.act = DR_ACT_NONE};
    return dr_cuda_conv_fprop(&s, dr_type_of(dr_launch_in(l, 0)), l->choice->way, l->in[0],
                              l->in[1], &e, l->out[0], l->workspace, cuda);
}

/* ---- gradient by the weight: x, dy -> dw ---- */
static bool wgrad_infer(struct dr_infer *c) {
    const struct conv_transpose2d_attrs *a = dr_infer_attrs(c);
    const int64_t channels = dr_infer_in(c, 0)->shape.dim[3];
    return dr_infer_out(c, NULL, DR_F32,
                        DR_SHAPE(channels, a->kernel[0], a->kernel[1], a->filters / a->groups),
                        DR_PLAIN);
}
static struct dr_cost wgrad_cost(const struct dr_graph *g, const struct dr_node *n) {
    return cost_of(g, n, dr_node_in(g, n, 0));
}
static struct dr_choice wgrad_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    const struct dr_conv s = conv_of(n->attrs, dr_node_in(g, n, 0), dr_node_in(g, n, 1));
    return dr_conv_choice(g, &s, dr_type_of(dr_node_in(g, n, 0)), DR_CONV_WGRAD, cuda,
                          cuda ? dr_cuda_conv_wgrad_bytes(&s) : dr_conv_wgrad_workspace(&s));
}
static void wgrad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_conv s = conv_of(l->node->attrs, dr_launch_in(l, 0), dr_launch_in(l, 1));
    dr_conv_wgrad(cpu, dr_tiles(), &s, l->in[1], l->in[0], l->out[0], l->workspace);
}
DR_CUDA_LAUNCHER wgrad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_conv s = conv_of(l->node->attrs, dr_launch_in(l, 0), dr_launch_in(l, 1));
    return dr_cuda_conv_wgrad(&s, dr_type_of(dr_launch_in(l, 0)), l->in[1], l->in[0], l->out[0],
                              l->workspace, cuda);
}

static void conv_transpose2d_grad(struct dr_grad *c) {
    dr_weighted_grad(c, &dr_op_conv_transpose2d_dgrad, &dr_op_conv_transpose2d_wgrad);
}

const struct dr_op dr_op_conv_transpose2d = {
    .name = "conv_transpose2d",
    .doc = "2-D transposed convolution, NHWC; weight [C, Kh, Kw, filters / groups], in files IOHW. "
           "A size becomes (size - 1) * stride - padding + dilation * (kernel - 1) + 1 + "
           "output_padding.",
    .flags = DR_OP_ACTIVATION | DR_OP_FUSES | DR_OP_FUSES_NORM | DR_OP_FUSES_ADD,
    .attrs = conv_transpose2d_attrs,
    .n_attrs = DR_COUNT(conv_transpose2d_attrs),
    .attrs_bytes = sizeof(struct conv_transpose2d_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = conv_transpose2d_infer,
    .grad = conv_transpose2d_grad,
    .cost = conv_transpose2d_cost,
    .choose = conv_transpose2d_choose,
    .ways = conv_transpose2d_ways,
    .cpu = conv_transpose2d_cpu,
    DR_CUDA(conv_transpose2d_cuda),
};
const struct dr_op dr_op_conv_transpose2d_dgrad = {
    .name = "conv_transpose2d_dgrad",
    .doc = "Gradient of conv_transpose2d by its input.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct conv_transpose2d_attrs),
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
const struct dr_op dr_op_conv_transpose2d_wgrad = {
    .name = "conv_transpose2d_wgrad",
    .doc = "Gradient of conv_transpose2d by its weight.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct conv_transpose2d_attrs),
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
