/* normalize: (x * scale - mean) / std by channel, to f32. scale brings 8-bit pixels to [0, 1], so
 * that mean and std are those of torchvision's Normalize after ToTensor, in RGB order. */
#include "graph/op.h"
#include "kernels/cpu/augment.h"
#include "kernels/cuda/pointwise.h"

struct normalize_attrs {
    struct dr_floats mean, std;
    double scale;
};
static const struct dr_attr normalize_schema[] = {
    {.name = "mean",
     .doc = "one number, or one a channel; default 0",
     .kind = DR_ATTR_FLOATS,
     .min = -1e6,
     .max = 1e6,
     .offset = offsetof(struct normalize_attrs, mean)},
    {.name = "std",
     .doc = "one number, or one a channel, not 0; default 1",
     .kind = DR_ATTR_FLOATS,
     .min = 0,
     .max = 1e6,
     .offset = offsetof(struct normalize_attrs, std)},
    {.name = "scale",
     .doc = "multiplies x first; where it is not given: 1/255 of u8, 1 of float",
     .kind = DR_ATTR_FLOAT,
     .def = 0,
     .min = 1e-30,
     .max = 1e6,
     .offset = offsetof(struct normalize_attrs, scale)},
};

static int64_t channels(const struct dr_shape *s) {
    return s->rank == 4 ? s->dim[3] : 1;
}
static double scale_of(const struct normalize_attrs *a, enum dr_dtype t) {
    return a->scale != 0 ? a->scale : t == DR_U8 ? 1.0 / 255.0 : 1.0;
}
static double item(const struct dr_floats *f, int64_t c, double otherwise) {
    return f->n == 0 ? otherwise : f->at[f->n == 1 ? 0 : c];
}

static bool check_list(struct dr_infer *c, const char *name, const struct dr_floats *f, int64_t n) {
    if (f->n > 1 && (int64_t)f->n != n)
        return dr_infer_wrong(c, name, "%s has %u numbers, its input has %lld channel%s", name,
                              (unsigned)f->n, (long long)n, n == 1 ? "" : "s");
    return true;
}

static bool normalize_infer(struct dr_infer *c) {
    const struct normalize_attrs *a = dr_infer_attrs(c);
    const struct dr_value v = *dr_infer_in(c, 0);
    if (v.meaning == DR_MASK || v.meaning == DR_LABEL)
        return dr_infer_error(c, "'%s' is a %s: only images are normalized", v.name,
                              v.meaning == DR_MASK ? "mask" : "label");
    if (v.shape.rank != 3 && v.shape.rank != 4)
        return dr_infer_error(c, "'%s' is %s, not an image [N, H, W, C] or [N, H, W]", v.name,
                              dr_shape_text(c->g->arena, &v.shape));
    if (v.dtype != DR_U8 && v.dtype != DR_F32)
        return dr_infer_error(c, "'%s' is %s; u8 and f32 are supported", v.name,
                              dr_dtype_name(v.dtype));
    const int64_t n = channels(&v.shape);
    if (!check_list(c, "mean", &a->mean, n) || !check_list(c, "std", &a->std, n))
        return false;
    for (uint32_t i = 0; i < a->std.n; i++)
        if (a->std.at[i] == 0)
            return dr_infer_wrong(c, "std", "std is 0 for channel %u", (unsigned)i);
    return dr_infer_out(c, "y", DR_F32, v.shape, v.meaning);
}

/* dx = dy * scale / std; only f32 inputs can want one. */
static void normalize_backward(struct dr_grad *c);

static struct dr_cost normalize_cost(const struct dr_graph *g, const struct dr_node *n) {
    const struct dr_value *x = &g->value.at[n->in[0]], *y = &g->value.at[n->out[0]];
    struct dr_cost cost = {(double)y->bytes / (double)dr_dtype_bytes(y->dtype) * 2,
                           (double)x->bytes + (double)y->bytes};
    return cost;
}

/* The workspace holds the channels' factors and offsets. */
static struct dr_choice normalize_choose(const struct dr_graph *g, const struct dr_node *n,
                                         bool cuda) {
    (void)cuda;
    const int64_t c = channels(&g->value.at[n->in[0]].shape);
    struct dr_choice choice = {.workspace_bytes = c * 2 * (int64_t)sizeof(float),
                               .kernel = "multiply-add"};
    return choice;
}

/* (x * scale - mean) / std as x * mul + add; `offset` false: without the add (the gradient). */
static void affine(const struct normalize_attrs *a, enum dr_dtype t, int64_t channel, bool offset,
                   float *mul, float *add) {
    const double std = item(&a->std, channel, 1);
    *mul = (float)(scale_of(a, t) / std);
    *add = offset ? (float)(-item(&a->mean, channel, 0) / std) : 0.0f;
}

static void run(const struct dr_launch *l, struct dr_cpu *cpu, bool offset) {
    const struct normalize_attrs *a = l->node->attrs;
    const struct dr_value *x = &l->value[l->node->in[0]], *y = &l->value[l->node->out[0]];
    const int64_t c = channels(&x->shape), n = y->bytes / (int64_t)sizeof(float);
    float *mul = l->workspace, *add = mul + c;
    for (int64_t i = 0; i < c; i++)
        affine(a, x->dtype, i, offset, &mul[i], &add[i]);
    if (x->dtype == DR_U8)
        dr_normalize_u8_cpu(cpu, l->in[0], l->out[0], n, c, mul, add);
    else
        dr_normalize_f32_cpu(cpu, l->in[0], l->out[0], n, c, mul, add);
}
static inline enum dr_type type_of(const struct dr_value *v) {
    return v->dtype == DR_F16 ? DR_TYPE_F16 : v->dtype == DR_BF16 ? DR_TYPE_BF16 : DR_TYPE_F32;
}
DR_CUDA_LAUNCHER run_cuda(const struct dr_launch *l, struct dr_cuda *cuda, bool offset) {
    const struct normalize_attrs *a = l->node->attrs;
    const struct dr_value *x = &l->value[l->node->in[0]], *y = &l->value[l->node->out[0]];
    const int64_t c = channels(&x->shape), rows = y->bytes / (int64_t)dr_dtype_bytes(y->dtype) / c;
    int err = 0;
    for (int64_t c0 = 0; c0 < c && !err; c0 += DR_CUDA_CHANNELS) {
        struct dr_cuda_affine f = {.c0 = c0};
        for (f.n = 0; f.n < DR_CUDA_CHANNELS && c0 + f.n < c; f.n++)
            affine(a, x->dtype, c0 + f.n, offset, &f.mul[f.n], &f.add[f.n]);
        err = dr_cuda_normalize(type_of(x), x->dtype == DR_U8, l->in[0], type_of(y), l->out[0],
                                rows, c, &f, cuda->stream);
    }
    return err;
}
static void normalize_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    run(l, cpu, true);
}
DR_CUDA_LAUNCHER normalize_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    return run_cuda(l, cuda, true);
}

static bool normalize_pixels(const struct dr_graph *g, const struct dr_node *n,
                             struct dr_pixels *out) {
    const struct normalize_attrs *a = n->attrs;
    const struct dr_value *x = &g->value.at[n->in[0]];
    const int64_t c = channels(&x->shape);
    if (x->dtype != DR_U8 || c > DR_PIXEL_CHANNELS)
        return false;
    out->n = (uint32_t)c;
    for (int64_t i = 0; i < c; i++)
        affine(a, DR_U8, i, true, &out->mul[i], &out->add[i]);
    return true;
}

const struct dr_op dr_op_normalize = {
    .name = "normalize",
    .doc = "(x * scale - mean) / std by channel, RGB order, to f32.",
    .flags = DR_OP_AUGMENT | DR_OP_POINTWISE,
    .attrs = normalize_schema,
    .n_attrs = sizeof normalize_schema / sizeof normalize_schema[0],
    .attrs_bytes = sizeof(struct normalize_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = normalize_infer,
    .grad = normalize_backward,
    .cost = normalize_cost,
    .choose = normalize_choose,
    .pixels = normalize_pixels,
    .cpu = normalize_cpu,
    DR_CUDA(normalize_cuda),
};

static bool normalize_grad_infer(struct dr_infer *c) {
    const struct dr_value dy = *dr_infer_in(c, 0);
    return dr_infer_out(c, "dx", DR_F32, dy.shape, DR_PLAIN);
}
static void normalize_grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    run(l, cpu, false);
}
DR_CUDA_LAUNCHER normalize_grad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    return run_cuda(l, cuda, false);
}

const struct dr_op dr_op_normalize_grad = {
    .name = "normalize_grad",
    .doc = "Gradient of normalize: dy * scale / std.",
    .flags = DR_OP_INTERNAL | DR_OP_POINTWISE,
    .attrs = normalize_schema,
    .n_attrs = sizeof normalize_schema / sizeof normalize_schema[0],
    .attrs_bytes = sizeof(struct normalize_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .outputs = 1,
    .infer = normalize_grad_infer,
    .cost = normalize_cost,
    .choose = normalize_choose,
    .cpu = normalize_grad_cpu,
    DR_CUDA(normalize_grad_cuda),
};

static void normalize_backward(struct dr_grad *c) {
    if (!c->need[0])
        return;
    const uint32_t node = dr_grad_emit(c, "dgrad", &dr_op_normalize_grad, NULL, c->dy, 1);
    c->dx[0] = c->g->node.at[node].out[0];
}
