/* flatten and reshape.
 *
 * flatten gives [N, C*H*W] in the order C, H, W, so that a linear layer above it takes PyTorch's
 * weights; from NHWC that is a transpose of each sample unless H*W or C is 1. reshape keeps the
 * order in memory (H, W, C). */
#include "kernels/cpu/layout.h"
#include "kernels/cuda/shape.h"
#include "ops/common.h"

struct reshape_attrs {
    struct dr_ints shape;
};
/* The gradient of either: back to a shape, with flatten's transpose undone or not. */
struct back_attrs {
    struct dr_shape shape;
    bool transpose;
};

/* Pixels and channels of a sample whose layout flatten changes. */
static bool transposes(const struct dr_shape *s, int64_t *pixels, int64_t *channels) {
    if (s->rank != 4)
        return false; /* [N, H, W] has no channels, [N, C] no pixels */
    *pixels = s->dim[1] * s->dim[2];
    *channels = s->dim[3];
    return *pixels > 1 && *channels > 1;
}

static struct dr_cost move_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, 0);
}
static inline int64_t item_of(const struct dr_launch *l) {
    return (int64_t)dr_dtype_bytes(dr_launch_out(l, 0)->dtype);
}
static void copy_all(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_value *y = dr_launch_out(l, 0);
    const int64_t rows = y->shape.dim[0], bytes = y->bytes / rows;
    dr_cpu_copy_rows(cpu, rows, bytes, l->in[0], bytes, l->out[0], bytes);
}
DR_CUDA_LAUNCHER copy_all_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const int64_t bytes = dr_launch_out(l, 0)->bytes;
    return dr_cuda_copy_rows(1, bytes, l->in[0], bytes, l->out[0], bytes, cuda->stream);
}

/* ---- gradient: dy -> dx ---- */
static bool back_infer(struct dr_infer *c) {
    const struct back_attrs *a = dr_infer_attrs(c);
    return dr_infer_out(c, NULL, DR_F32, a->shape, DR_PLAIN);
}
static void back_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct back_attrs *a = l->node->attrs;
    int64_t pixels, channels;
    if (a->transpose && transposes(&a->shape, &pixels, &channels))
        dr_cpu_transpose(cpu, a->shape.dim[0], channels, pixels, l->in[0], l->out[0]);
    else
        copy_all(l, cpu);
}
DR_CUDA_LAUNCHER back_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct back_attrs *a = l->node->attrs;
    int64_t pixels, channels;
    if (a->transpose && transposes(&a->shape, &pixels, &channels))
        return dr_cuda_transpose(a->shape.dim[0], channels, pixels, item_of(l), l->in[0], l->out[0],
                                 cuda->stream);
    return copy_all_cuda(l, cuda);
}
const struct dr_op dr_op_reshape_grad = {
    .name = "reshape_grad",
    .doc = "Gradient of flatten and reshape: back to the shape before.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct back_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = back_infer,
    .cost = move_cost,
    .cpu = back_cpu,
    DR_CUDA(back_cuda),
};
static void emit_back(struct dr_grad *c, bool transpose) {
    if (!c->need[0])
        return;
    const struct back_attrs a = {.shape = c->g->value.at[c->g->node.at[c->node].in[0]].shape,
                                 .transpose = transpose};
    const uint32_t n = dr_grad_emit(c, "dgrad", &dr_op_reshape_grad, &a, c->dy, 1);
    c->dx[0] = c->g->node.at[n].out[0];
}

/* ---- flatten ---- */
static bool flatten_infer(struct dr_infer *c) {
    const struct dr_value *x = dr_infer_in(c, 0);
    int64_t pixels, channels;
    if (transposes(&x->shape, &pixels, &channels) && !dr_need_f32(c, 0))
        return false;
    if (x->shape.rank < 1)
        return dr_infer_error(c, "its input is a single number");
    const int64_t n = x->shape.dim[0];
    return dr_infer_out(c, NULL, x->dtype, DR_SHAPE(n, dr_elements(x) / n), DR_PLAIN);
}
static void flatten_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_shape *s = &dr_launch_in(l, 0)->shape;
    int64_t pixels, channels;
    if (transposes(s, &pixels, &channels))
        dr_cpu_transpose(cpu, s->dim[0], pixels, channels, l->in[0], l->out[0]);
    else
        copy_all(l, cpu);
}
DR_CUDA_LAUNCHER flatten_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_shape *s = &dr_launch_in(l, 0)->shape;
    int64_t pixels, channels;
    if (transposes(s, &pixels, &channels))
        return dr_cuda_transpose(s->dim[0], pixels, channels, item_of(l), l->in[0], l->out[0],
                                 cuda->stream);
    return copy_all_cuda(l, cuda);
}
static void flatten_grad(struct dr_grad *c) {
    emit_back(c, true);
}
const struct dr_op dr_op_flatten = {
    .name = "flatten",
    .doc = "Each sample as one vector, in the order C, H, W.",
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = flatten_infer,
    .grad = flatten_grad,
    .cost = move_cost,
    .cpu = flatten_cpu,
    DR_CUDA(flatten_cuda),
};

/* ---- reshape ---- */
static const struct dr_attr reshape_attrs[] = {
    {.name = "shape",
     .doc = "shape of one sample, without the batch; one number may be -1: what is left",
     .kind = DR_ATTR_INTS,
     .required = true,
     .min = -1,
     .max = 9007199254740992.0, /* 2^53: exact as a double */
     .offset = offsetof(struct reshape_attrs, shape)},
};
static bool reshape_infer(struct dr_infer *c) {
    const struct reshape_attrs *a = dr_infer_attrs(c);
    const struct dr_value *x = dr_infer_in(c, 0);
    if (a->shape.n + 1 > DR_MAX_RANK)
        return dr_infer_wrong(c, "shape", "shape has %u axes, at most %d fit", a->shape.n,
                              DR_MAX_RANK - 1);
    if (x->shape.rank < 1)
        return dr_infer_error(c, "its input is a single number");
    struct dr_shape s = {.rank = a->shape.n + 1, .dim = {x->shape.dim[0]}};
    const int64_t sample = dr_elements(x) / s.dim[0];
    int64_t known = 1;
    uint32_t rest = 0; /* the axis written as -1 */
    for (uint32_t i = 0; i < a->shape.n; i++) {
        const int64_t d = s.dim[i + 1] = a->shape.at[i];
        if (d == 0 || (d == -1 && rest != 0))
            return dr_infer_wrong(c, "shape",
                                  d == 0 ? "shape has a 0" : "shape has more than one -1");
        if (d == -1)
            rest = i + 1;
        else if (__builtin_mul_overflow(known, d, &known))
            return dr_infer_wrong(c, "shape", "shape is too large");
    }
    if (rest != 0 ? sample % known != 0 : sample != known)
        return dr_infer_wrong(c, "shape", "%lld elements a sample do not fit a shape of %lld%s",
                              (long long)sample, (long long)known, rest != 0 ? " times any" : "");
    if (rest != 0)
        s.dim[rest] = sample / known;
    return dr_infer_out(c, NULL, x->dtype, s, DR_PLAIN);
}
static void reshape_grad(struct dr_grad *c) {
    emit_back(c, false);
}
const struct dr_op dr_op_reshape = {
    .name = "reshape",
    .doc = "The same elements, in the order of memory (H, W, C), as another shape.",
    .attrs = reshape_attrs,
    .n_attrs = DR_COUNT(reshape_attrs),
    .attrs_bytes = sizeof(struct reshape_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = reshape_infer,
    .grad = reshape_grad,
    .cost = move_cost,
    .cpu = copy_all,
    DR_CUDA(copy_all_cuda),
};
