/* slice and pad: a part of a value, and a border around it. Each is the other's gradient.
 *
 * Both are pictures in frames (kernels/layout_shape.h): along one axis, a picture one pixel wide
 * whose pixels are what follows the axis. */
#include "kernels/cpu/cast.h"
#include "kernels/cpu/layout.h"
#include "kernels/cuda/shape.h"
#include "ops/common.h"
#include <math.h>
#include <string.h>

#define TO_THE_END 0x1p62 /* the default of slice's end: above its range */

struct slice_attrs {
    int64_t axis, begin, end; /* after infer: 1 .. rank - 1, 0 <= begin < end */
};
static const struct dr_attr slice_attrs[] = {
    {.name = "axis",
     .doc = "axis of [N, H, W, C], not 0 (the batch); negative ones count from the end",
     .kind = DR_ATTR_INT,
     .def = -1,
     .min = 1 - DR_MAX_RANK,
     .max = DR_MAX_RANK - 1,
     .offset = offsetof(struct slice_attrs, axis)},
    {.name = "begin",
     .doc = "first index; negative ones count from the end",
     .kind = DR_ATTR_INT,
     .min = -1e12,
     .max = 1e12,
     .offset = offsetof(struct slice_attrs, begin)},
    {.name = "end",
     .doc = "index after the last; negative ones count from the end; where it is not given: all "
            "that is left",
     .kind = DR_ATTR_INT,
     .def = TO_THE_END,
     .min = -1e12,
     .max = 1e12,
     .offset = offsetof(struct slice_attrs, end)},
};

struct pad_attrs {
    struct dr_padding padding;
    double value;
};
static const struct dr_attr pad_attrs[] = {
    {.name = "padding",
     .doc = "width of the border",
     .kind = DR_ATTR_PADDING,
     .required = true,
     .max = 65535,
     .offset = offsetof(struct pad_attrs, padding)},
    {.name = "value",
     .doc = "value of the border; of integers it must be one of them",
     .kind = DR_ATTR_FLOAT,
     .min = -1e30,
     .max = 1e30,
     .offset = offsetof(struct pad_attrs, value)},
};

/* A gradient: its output, and where the picture is in the frame. */
struct back_attrs {
    struct dr_shape shape;
    struct dr_border border;
};

static struct dr_cost move_cost(const struct dr_graph *g, const struct dr_node *n) {
    return (struct dr_cost){.bytes = 2.0 * (double)dr_node_out(g, n, 0)->bytes};
}
static bool back_infer(struct dr_infer *c) {
    const struct back_attrs *a = dr_infer_attrs(c);
    return dr_infer_out(c, NULL, DR_F32, a->shape, DR_PLAIN);
}
static void emit_back(struct dr_grad *c, const struct dr_op *op, struct dr_border b) {
    if (!c->need[0])
        return;
    const struct back_attrs a = {.shape = c->g->value.at[c->g->node.at[c->node].in[0]].shape,
                                 .border = b};
    const uint32_t n = dr_grad_emit(c, "dgrad", op, &a, c->dy, 1);
    c->dx[0] = c->g->node.at[n].out[0];
}

/* ---- slice ---- */
static struct dr_border slice_border(const struct slice_attrs *a, const struct dr_value *x) {
    return (struct dr_border){.n = dr_runs_before(x, a->axis),
                              .h = a->end - a->begin,
                              .w = 1,
                              .ho = x->shape.dim[a->axis],
                              .wo = 1,
                              .top = a->begin,
                              .bytes = dr_bytes_after(x, a->axis)};
}
static bool slice_infer(struct dr_infer *c) {
    struct slice_attrs *a = dr_infer_attrs(c);
    if (!dr_need_axis(c, &a->axis))
        return false;
    const struct dr_value *x = dr_infer_in(c, 0);
    struct dr_shape s = x->shape;
    const int64_t size = s.dim[a->axis];
    const int64_t begin = a->begin < 0 ? a->begin + size : a->begin;
    const int64_t end = (double)a->end == TO_THE_END ? size : a->end < 0 ? a->end + size : a->end;
    if (begin < 0 || begin >= size)
        return dr_infer_wrong(c, "begin", "begin %lld is outside axis %lld of %s",
                              (long long)a->begin, (long long)a->axis,
                              dr_shape_text(c->g->arena, &s));
    if (end <= begin || end > size)
        return dr_infer_wrong(
            c, "end", "end %lld is %s of %s", (long long)a->end,
            end > size ? dr_printf(c->g->arena, "outside axis %lld", (long long)a->axis)
                       : dr_printf(c->g->arena, "not behind begin %lld", (long long)a->begin),
            dr_shape_text(c->g->arena, &s));
    a->begin = begin, a->end = end;
    s.dim[a->axis] = end - begin;
    return dr_infer_out(c, NULL, x->dtype, s, x->meaning);
}
static void slice_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_border b = slice_border(l->node->attrs, dr_launch_in(l, 0));
    dr_cpu_crop(cpu, &b, l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER slice_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_border b = slice_border(l->node->attrs, dr_launch_in(l, 0));
    return dr_cuda_crop(&b, l->in[0], l->out[0], cuda->stream);
}

/* The attributes are those of fp32 pixels. */
static inline struct dr_border stored_border(const struct dr_launch *l) {
    struct dr_border b = ((const struct back_attrs *)l->node->attrs)->border;
    b.bytes = b.bytes / (int64_t)sizeof(float) * (int64_t)dr_dtype_bytes(dr_launch_in(l, 0)->dtype);
    return b;
}
static const float zero = 0; /* of halves, too */
static void slice_grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct back_attrs *a = l->node->attrs;
    dr_cpu_pad(cpu, &a->border, sizeof zero, &zero, l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER slice_grad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_border b = stored_border(l);
    return dr_cuda_pad(&b, (int64_t)dr_dtype_bytes(dr_launch_in(l, 0)->dtype), &zero, l->in[0],
                       l->out[0], cuda->stream);
}
const struct dr_op dr_op_slice_grad = {
    .name = "slice_grad",
    .doc = "Gradient of slice: zeros around it.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct back_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = back_infer,
    .cost = move_cost,
    .cpu = slice_grad_cpu,
    DR_CUDA(slice_grad_cuda),
};
static void slice_grad(struct dr_grad *c) {
    const struct dr_node *n = &c->g->node.at[c->node];
    emit_back(c, &dr_op_slice_grad, slice_border(n->attrs, dr_node_in(c->g, n, 0)));
}
const struct dr_op dr_op_slice = {
    .name = "slice",
    .doc = "A part along one axis.",
    .attrs = slice_attrs,
    .n_attrs = DR_COUNT(slice_attrs),
    .attrs_bytes = sizeof(struct slice_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = slice_infer,
    .grad = slice_grad,
    .cost = move_cost,
    .cpu = slice_cpu,
    DR_CUDA(slice_cuda),
};

/* ---- pad ---- */
static struct dr_border pad_border(const struct dr_padding *p, const struct dr_value *x) {
    const int64_t *d = x->shape.dim;
    return (struct dr_border){.n = d[0],
                              .h = d[1],
                              .w = d[2],
                              .ho = d[1] + p->top + p->bottom,
                              .wo = d[2] + p->left + p->right,
                              .top = p->top,
                              .left = p->left,
                              .bytes = dr_bytes_after(x, 2)};
}
/* The value as the input's type has it. */
static bool value_bits(double value, enum dr_dtype t, uint32_t *bits) {
    const float f = (float)value;
    if (t == DR_F32)
        memcpy(bits, &f, sizeof f);
    else if (t == DR_F16 || t == DR_BF16)
        *(uint16_t *)bits = t == DR_F16 ? dr_cpu_to_f16(f) : dr_cpu_to_bf16(f);
    else if (floor(value) != value || value < (t == DR_U8 ? 0.0 : -0x1p31) ||
             value > (t == DR_U8 ? 255.0 : 0x1p31 - 1))
        return false;
    else if (t == DR_U8)
        *(uint8_t *)bits = (uint8_t)value;
    else
        *(int32_t *)bits = (int32_t)value;
    return true;
}
static bool pad_infer(struct dr_infer *c) {
    const struct pad_attrs *a = dr_infer_attrs(c);
    const struct dr_value *x = dr_infer_in(c, 0);
    uint32_t bits;
    if (x->shape.rank != 3 && x->shape.rank != 4)
        return dr_infer_error(c, "its input '%s' is %s, but should be [N, H, W, C] or [N, H, W]",
                              x->name, dr_shape_text(c->g->arena, &x->shape));
    if (x->dtype != DR_F32 && x->dtype != DR_U8 && x->dtype != DR_I32)
        return dr_infer_error(c, "its input '%s' is %s, not f32, u8 or i32", x->name,
                              dr_dtype_name(x->dtype));
    if (a->padding.mode == DR_PAD_SAME)
        return dr_infer_wrong(c, "padding", "padding 'same' has no meaning here; write the number");
    if (!value_bits(a->value, x->dtype, &bits))
        return dr_infer_wrong(c, "value", "value %g is not a %s", a->value,
                              dr_dtype_name(x->dtype));
    struct dr_shape s = x->shape;
    if (__builtin_add_overflow(s.dim[1], a->padding.top + a->padding.bottom, &s.dim[1]) ||
        __builtin_add_overflow(s.dim[2], a->padding.left + a->padding.right, &s.dim[2]))
        return dr_infer_error(c, "its output is too large");
    return dr_infer_out(c, NULL, x->dtype, s, x->meaning);
}
static void pad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct pad_attrs *a = l->node->attrs;
    const struct dr_value *x = dr_launch_in(l, 0);
    const struct dr_border b = pad_border(&a->padding, x);
    uint32_t bits = 0;
    value_bits(a->value, x->dtype, &bits);
    dr_cpu_pad(cpu, &b, (int64_t)dr_dtype_bytes(x->dtype), &bits, l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER pad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct pad_attrs *a = l->node->attrs;
    const struct dr_value *x = dr_launch_in(l, 0);
    const struct dr_border b = pad_border(&a->padding, x);
    uint32_t bits = 0;
    value_bits(a->value, x->dtype, &bits);
    return dr_cuda_pad(&b, (int64_t)dr_dtype_bytes(x->dtype), &bits, l->in[0], l->out[0],
                       cuda->stream);
}

static void pad_grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct back_attrs *a = l->node->attrs;
    dr_cpu_crop(cpu, &a->border, l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER pad_grad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_border b = stored_border(l);
    return dr_cuda_crop(&b, l->in[0], l->out[0], cuda->stream);
}
const struct dr_op dr_op_pad_grad = {
    .name = "pad_grad",
    .doc = "Gradient of pad: without the border.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct back_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = back_infer,
    .cost = move_cost,
    .cpu = pad_grad_cpu,
    DR_CUDA(pad_grad_cuda),
};
static void pad_grad(struct dr_grad *c) {
    const struct dr_node *n = &c->g->node.at[c->node];
    const struct pad_attrs *a = n->attrs;
    emit_back(c, &dr_op_pad_grad, pad_border(&a->padding, dr_node_in(c->g, n, 0)));
}
const struct dr_op dr_op_pad = {
    .name = "pad",
    .doc = "A border of one value around images or masks.",
    .attrs = pad_attrs,
    .n_attrs = DR_COUNT(pad_attrs),
    .attrs_bytes = sizeof(struct pad_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = pad_infer,
    .grad = pad_grad,
    .cost = move_cost,
    .cpu = pad_cpu,
    DR_CUDA(pad_cuda),
};
