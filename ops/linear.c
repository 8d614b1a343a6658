/* linear: y = x w^T + b over the last axis, PyTorch's nn.Linear. It flattens nothing. */
#include "ops/common.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/sums.h"
#include "kernels/cuda/column_sum.h"
#include "kernels/cuda/linear.h"

struct linear_attrs {
    struct dr_fused fused;
    int64_t features;
    bool bias;
};

static const struct dr_attr linear_attrs[] = {
    {.name = "features",
     .doc = "size of the last axis of the output",
     .kind = DR_ATTR_INT,
     .required = true,
     .min = 1,
     .max = INT32_MAX,
     .offset = offsetof(struct linear_attrs, features)},
    {.name = "bias",
     .doc = "adds a learnt value to each feature",
     .kind = DR_ATTR_BOOL,
     .def = 1,
     .max = 1,
     .offset = offsetof(struct linear_attrs, bias)},
};

static bool linear_infer(struct dr_infer *c) {
    const struct linear_attrs *a = dr_infer_attrs(c);
    if (!dr_need_f32(c, 0))
        return false;
    struct dr_shape shape = dr_infer_in(c, 0)->shape;
    if (shape.rank < 2)
        return dr_infer_error(c, "its input has no axis of features; give the input a shape");
    const int64_t in = shape.dim[shape.rank - 1];
    const int64_t rows = dr_elements(dr_infer_in(c, 0)) / in;
    if (in > INT32_MAX || rows > INT32_MAX)
        return dr_infer_error(c, "%lld rows of %lld features are more than 2^31 - 1",
                              (long long)rows, (long long)in);
    const struct dr_init he = {.kind = DR_INIT_HE_NORMAL, .fan_in = in};
    if (!dr_infer_state(c, "weight", DR_WEIGHT, DR_F32, DR_SHAPE(a->features, in), he))
        return false;
    if (a->bias && !dr_infer_state(c, "bias", DR_WEIGHT, DR_F32, DR_SHAPE(a->features),
                                   (struct dr_init){.kind = DR_INIT_ZERO}))
        return false;
    shape.dim[shape.rank - 1] = a->features;
    return dr_infer_out(c, NULL, DR_F32, shape, DR_PLAIN);
}

static struct dr_epilogue epilogue_of(const struct dr_launch *l) {
    const struct linear_attrs *a = l->node->attrs;
    return dr_launch_epilogue(l, &a->fused, a->bias ? 3 : 2, a->bias ? l->in[2] : NULL);
}
static void linear_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct linear_attrs *a = l->node->attrs;
    const struct dr_value *x = dr_launch_in(l, 0);
    const int64_t in = dr_last(x);
    const struct dr_epilogue e = epilogue_of(l);
    dr_cpu_linear_fprop(cpu, dr_elements(x) / in, in, a->features, l->in[0], l->in[1], &e,
                        l->out[0]);
}
DR_CUDA_LAUNCHER linear_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct linear_attrs *a = l->node->attrs;
    const struct dr_value *x = dr_launch_in(l, 0);
    const int64_t in = dr_last(x);
    const struct dr_epilogue e = epilogue_of(l);
    return dr_cuda_linear_fprop(cuda, dr_type_of(x), dr_elements(x) / in, in, a->features, l->in[0],
                                l->in[1], &e, l->out[0]);
}

/* ---- gradients ---- */
static bool dgrad_infer(struct dr_infer *c) { /* dy, weight -> dx */
    struct dr_shape shape = dr_infer_in(c, 0)->shape;
    shape.dim[shape.rank - 1] = dr_infer_in(c, 1)->shape.dim[1];
    return dr_infer_out(c, NULL, DR_F32, shape, DR_PLAIN);
}
static void dgrad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_value *dy = dr_launch_in(l, 0), *w = dr_launch_in(l, 1);
    const int64_t out = w->shape.dim[0], in = w->shape.dim[1];
    dr_cpu_linear_dgrad(cpu, dr_elements(dy) / out, in, out, l->in[0], l->in[1], l->out[0]);
}
DR_CUDA_LAUNCHER dgrad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_value *dy = dr_launch_in(l, 0), *w = dr_launch_in(l, 1);
    const int64_t out = w->shape.dim[0], in = w->shape.dim[1];
    return dr_cuda_linear_dgrad(cuda, dr_type_of(dy), dr_elements(dy) / out, in, out, l->in[0],
                                l->in[1], l->out[0]);
}

static bool wgrad_infer(struct dr_infer *c) { /* x, dy -> dw */
    const int64_t in = dr_last(dr_infer_in(c, 0)), out = dr_last(dr_infer_in(c, 1));
    return dr_infer_out(c, NULL, DR_F32, DR_SHAPE(out, in), DR_PLAIN);
}
static void wgrad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const int64_t in = dr_last(dr_launch_in(l, 0)), out = dr_last(dr_launch_in(l, 1));
    dr_cpu_linear_wgrad(cpu, dr_elements(dr_launch_in(l, 0)) / in, in, out, l->in[0], l->in[1],
                        l->out[0]);
}
DR_CUDA_LAUNCHER wgrad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_value *x = dr_launch_in(l, 0);
    const int64_t in = dr_last(x), out = dr_last(dr_launch_in(l, 1));
    return dr_cuda_linear_wgrad(cuda, dr_type_of(x), dr_elements(x) / in, in, out, l->in[0],
                                l->in[1], l->out[0]);
}

static bool bgrad_infer(struct dr_infer *c) { /* dy -> db: the sum over all but the last axis */
    return dr_infer_out(c, NULL, DR_F32, DR_SHAPE(dr_last(dr_infer_in(c, 0))), DR_PLAIN);
}
static struct dr_choice bgrad_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    const struct dr_value *dy = dr_node_in(g, n, 0);
    const int64_t c = dr_last(dy), rows = dr_elements(dy) / c;
    return (struct dr_choice){.workspace_bytes = cuda ? dr_cuda_column_sum_bytes(rows, c)
                                                      : dr_cpu_sums_bytes(rows, c),
                              .kernel = "chunked sums"};
}
static void bgrad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_value *dy = dr_launch_in(l, 0);
    dr_cpu_column_sums(cpu, dr_elements(dy) / dr_last(dy), dr_last(dy), l->in[0], l->workspace,
                       l->out[0]);
}
DR_CUDA_LAUNCHER bgrad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_value *dy = dr_launch_in(l, 0);
    return dr_cuda_column_sum(dr_type_of(dy), l->in[0], dr_elements(dy) / dr_last(dy), dr_last(dy),
                              l->out[0], l->workspace, cuda->stream);
}

/* 2 flops for each pair of an element of x (or dx) and a feature. */
static struct dr_cost linear_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n,
                      2.0 * (double)dr_elements(dr_node_in(g, n, 0)) *
                          (double)dr_last(dr_node_out(g, n, 0)));
}
static struct dr_cost wgrad_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n,
                      2.0 * (double)dr_elements(dr_node_in(g, n, 0)) *
                          (double)dr_last(dr_node_in(g, n, 1)));
}
static struct dr_cost bgrad_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, (double)dr_elements(dr_node_in(g, n, 0)));
}
static struct dr_choice sgemm_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    (void)g, (void)n, (void)cuda;
    return (struct dr_choice){.kernel = "sgemm"};
}

const struct dr_op dr_op_linear_dgrad = {
    .name = "linear_dgrad",
    .doc = "Gradient of linear by its input.",
    .flags = DR_OP_INTERNAL,
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = dgrad_infer,
    .cost = linear_cost,
    .choose = sgemm_choose,
    .cpu = dgrad_cpu,
    DR_CUDA(dgrad_cuda),
};
const struct dr_op dr_op_linear_wgrad = {
    .name = "linear_wgrad",
    .doc = "Gradient of linear by its weight.",
    .flags = DR_OP_INTERNAL,
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .outputs = 1,
    .infer = wgrad_infer,
    .cost = wgrad_cost,
    .choose = sgemm_choose,
    .cpu = wgrad_cpu,
    DR_CUDA(wgrad_cuda),
};
const struct dr_op dr_op_linear_bgrad = {
    .name = "linear_bgrad",
    .doc = "Gradient by a bias: the sum over all axes but the last.",
    .flags = DR_OP_INTERNAL,
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .outputs = 1,
    .infer = bgrad_infer,
    .cost = bgrad_cost,
    .choose = bgrad_choose,
    .cpu = bgrad_cpu,
    DR_CUDA(bgrad_cuda),
};

void dr_weighted_grad(struct dr_grad *c, const struct dr_op *dgrad, const struct dr_op *wgrad) {
    const uint32_t *in = c->g->node.at[c->node].in; /* x, weight[, bias] */
    const uint32_t x = in[0], w = in[1], dy = c->dy[0];
    const bool bias = c->g->node.at[c->node].n_in > 2;
    if (c->need[0]) {
        const uint32_t n = dr_grad_emit(c, "dgrad", dgrad, NULL, (uint32_t[]){dy, w}, 2);
        c->dx[0] = c->g->node.at[n].out[0];
    }
    if (c->need[1]) {
        const uint32_t n = dr_grad_emit(c, "wgrad", wgrad, NULL, (uint32_t[]){x, dy}, 2);
        c->dx[1] = c->g->node.at[n].out[0];
    }
    if (bias && c->need[2]) {
        const uint32_t n = dr_grad_emit(c, "bgrad", &dr_op_linear_bgrad, NULL, &dy, 1);
        c->dx[2] = c->g->node.at[n].out[0];
    }
}

static void linear_grad(struct dr_grad *c) {
    dr_weighted_grad(c, &dr_op_linear_dgrad, &dr_op_linear_wgrad);
}

const struct dr_op dr_op_linear = {
    .name = "linear",
    .doc = "y = x w^T + b over the last axis; weight [features, in]. It flattens nothing.",
    .flags = DR_OP_ACTIVATION | DR_OP_FUSES | DR_OP_FUSES_NORM | DR_OP_FUSES_ADD,
    .attrs = linear_attrs,
    .n_attrs = DR_COUNT(linear_attrs),
    .attrs_bytes = sizeof(struct linear_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = linear_infer,
    .grad = linear_grad,
    .cost = linear_cost,
    .choose = sgemm_choose,
    .cpu = linear_cpu,
    DR_CUDA(linear_cuda),
};
