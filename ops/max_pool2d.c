/* max_pool2d, NHWC. Sizes are PyTorch's with ceil_mode off: (h + pads - kernel) / stride + 1. */
#include "kernels/cpu/max_pool.h"
#include "kernels/cuda/norm.h"
#include "ops/common.h"

struct pool_attrs {
    int64_t kernel[2], stride[2]; /* stride 0: the kernel's */
    struct dr_padding padding;
};

static const struct dr_attr pool_attrs[] = {
    {.name = "kernel",
     .doc = "size of the window",
     .kind = DR_ATTR_PAIR,
     .required = true,
     .min = 1,
     .max = 65535,
     .offset = offsetof(struct pool_attrs, kernel)},
    {.name = "stride",
     .doc = "step of the window; where it is not given: the kernel",
     .kind = DR_ATTR_PAIR,
     .min = 1,
     .max = 65535,
     .offset = offsetof(struct pool_attrs, stride)},
    {.name = "padding",
     .doc = "at most half the kernel on each side; it never wins",
     .kind = DR_ATTR_PADDING,
     .max = 65535,
     .offset = offsetof(struct pool_attrs, padding)},
};

/* `same`: the output is as large as the input, an odd rest goes to the bottom and right. */
static bool settle_padding(struct dr_infer *c, struct pool_attrs *a) {
    struct dr_padding *p = &a->padding;
    if (p->mode == DR_PAD_SAME) {
        if (a->stride[0] != 1 || a->stride[1] != 1)
            return dr_infer_wrong(c, "padding",
                                  "padding 'same' needs a stride of 1; write the number");
        p->mode = DR_PAD_EXPLICIT;
        p->top = (a->kernel[0] - 1) / 2, p->bottom = a->kernel[0] - 1 - p->top;
        p->left = (a->kernel[1] - 1) / 2, p->right = a->kernel[1] - 1 - p->left;
    }
    const int64_t tall = a->kernel[0] / 2, wide = a->kernel[1] / 2;
    if (p->top > tall || p->bottom > tall || p->left > wide || p->right > wide)
        return dr_infer_wrong(c, "padding",
                              "padding [top %lld, left %lld, bottom %lld, right %lld] must be at "
                              "most half the kernel %lldx%lld",
                              (long long)p->top, (long long)p->left, (long long)p->bottom,
                              (long long)p->right, (long long)a->kernel[0],
                              (long long)a->kernel[1]);
    return true;
}

static bool pool_infer(struct dr_infer *c) {
    struct pool_attrs *a = dr_infer_attrs(c);
    if (!dr_need_f32(c, 0) || !dr_need_rank(c, 0, 4, "[N, H, W, C]"))
        return false;
    for (int i = 0; i < 2; i++)
        a->stride[i] = a->stride[i] ? a->stride[i] : a->kernel[i];
    if (!settle_padding(c, a))
        return false;
    const struct dr_padding *p = &a->padding;
    struct dr_shape s = dr_infer_in(c, 0)->shape;
    const int64_t h = s.dim[1] + p->top + p->bottom, w = s.dim[2] + p->left + p->right;
    if (a->kernel[0] > h || a->kernel[1] > w)
        return dr_infer_wrong(c, "kernel", "kernel %lldx%lld > padded input %lldx%lld",
                              (long long)a->kernel[0], (long long)a->kernel[1], (long long)h,
                              (long long)w);
    s.dim[1] = (h - a->kernel[0]) / a->stride[0] + 1;
    s.dim[2] = (w - a->kernel[1]) / a->stride[1] + 1;
    return dr_infer_out(c, NULL, DR_F32, s, DR_PLAIN);
}

static struct dr_pool pool_of(const struct pool_attrs *a, const struct dr_shape *x,
                              const struct dr_shape *y) {
    return (struct dr_pool){
        .n = x->dim[0],
        .h = x->dim[1],
        .w = x->dim[2],
        .c = x->dim[3],
        .ho = y->dim[1],
        .wo = y->dim[2],
        .kh = a->kernel[0],
        .kw = a->kernel[1],
        .sh = a->stride[0],
        .sw = a->stride[1],
        .pt = a->padding.top,
        .pl = a->padding.left,
    };
}

static void pool_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_pool p =
        pool_of(l->node->attrs, &dr_launch_in(l, 0)->shape, &dr_launch_out(l, 0)->shape);
    dr_cpu_max_pool_fprop(cpu, &p, l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER pool_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_pool p =
        pool_of(l->node->attrs, &dr_launch_in(l, 0)->shape, &dr_launch_out(l, 0)->shape);
    return dr_cuda_max_pool_fprop(&p, l->in[0], l->out[0], cuda->stream);
}

static struct dr_cost pool_cost(const struct dr_graph *g, const struct dr_node *n) {
    const struct pool_attrs *a = n->attrs;
    const struct dr_value *y = n->n_in > 1 ? dr_node_in(g, n, 1) : dr_node_out(g, n, 0);
    return dr_cost_of(g, n, (double)dr_elements(y) * (double)(a->kernel[0] * a->kernel[1]));
}

/* ---- gradient: x, dy -> dx ---- */
static bool grad_infer(struct dr_infer *c) {
    return dr_infer_out(c, NULL, DR_F32, dr_infer_in(c, 0)->shape, DR_PLAIN);
}
static void grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_pool p =
        pool_of(l->node->attrs, &dr_launch_in(l, 0)->shape, &dr_launch_in(l, 1)->shape);
    dr_cpu_max_pool_dgrad(cpu, &p, l->in[0], l->in[1], l->out[0]);
}
DR_CUDA_LAUNCHER grad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_pool p =
        pool_of(l->node->attrs, &dr_launch_in(l, 0)->shape, &dr_launch_in(l, 1)->shape);
    return dr_cuda_max_pool_dgrad(&p, l->in[0], l->in[1], l->out[0], cuda->stream);
}
const struct dr_op dr_op_max_pool2d_grad = {
    .name = "max_pool2d_grad",
    .doc = "Gradient of max_pool2d: to the first winner of each window.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct pool_attrs),
    .min_in = 2,
    .max_in = 2,
    .outputs = 1,
    .infer = grad_infer,
    .cost = pool_cost,
    .cpu = grad_cpu,
    DR_CUDA(grad_cuda),
};
static void pool_grad(struct dr_grad *c) {
    if (!c->need[0])
        return;
    const uint32_t in[] = {c->g->node.at[c->node].in[0], c->dy[0]};
    const uint32_t n = dr_grad_emit(c, "dgrad", &dr_op_max_pool2d_grad, NULL, in, 2);
    c->dx[0] = c->g->node.at[n].out[0];
}

const struct dr_op dr_op_max_pool2d = {
    .name = "max_pool2d",
    .doc = "Largest value of each window. NaN is kept; the gradient goes to the first winner.",
    .attrs = pool_attrs,
    .n_attrs = DR_COUNT(pool_attrs),
    .attrs_bytes = sizeof(struct pool_attrs),
    .min_in = 1,
    .max_in = 1,
    .outputs = 1,
    .infer = pool_infer,
    .grad = pool_grad,
    .cost = pool_cost,
    .cpu = pool_cpu,
    DR_CUDA(pool_cuda),
};
