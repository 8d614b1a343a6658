/* avg_pool2d and global_avg_pool, NHWC: means summed in double. The gradient needs no x, only its
 * shape. */
#include "kernels/cpu/avg_pool.h"
#include "kernels/cuda/avg_pool.h"
#include "ops/pool.h"

static const struct dr_attr pool_attrs[] = {
    DR_POOL_ATTRS("zeros, at most half the kernel on each side"),
    {.name = "count_include_pad",
     .doc = "divides by the window with its padding, not by the pixels in it",
     .kind = DR_ATTR_BOOL,
     .def = 1,
     .max = 1,
     .offset = offsetof(struct dr_pool_attrs, count_include_pad)},
};
struct back_attrs {
    struct dr_pool pool;
    bool count_pad;
};

static double window_flops(const struct dr_pool *p) {
    return (double)p->n * (double)(p->ho * p->wo) * (double)p->c * (double)p->kh * (double)p->kw;
}

/* ---- gradient of both: dy -> dx ---- */
static bool back_infer(struct dr_infer *c) {
    const struct dr_pool p = ((const struct back_attrs *)dr_infer_attrs(c))->pool;
    return dr_infer_out(c, NULL, DR_F32, DR_SHAPE(p.n, p.h, p.w, p.c), DR_PLAIN);
}
static void back_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct back_attrs *a = l->node->attrs;
    dr_cpu_avg_pool_dgrad(cpu, &a->pool, a->count_pad, l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER back_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct back_attrs *a = l->node->attrs;
    return dr_cuda_avg_pool_dgrad(dr_type_of(dr_launch_in(l, 0)), &a->pool, a->count_pad, l->in[0],
                                  l->out[0], cuda->stream);
}
static struct dr_cost back_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, window_flops(&((const struct back_attrs *)n->attrs)->pool));
}
const struct dr_op dr_op_avg_pool2d_grad = {
    .name = "avg_pool2d_grad",
    .doc = "Gradient of avg_pool2d and global_avg_pool: an equal share to each pixel of a window.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct back_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = back_infer,
    .cost = back_cost,
    .cpu = back_cpu,
    DR_CUDA(back_cuda),
};
static void emit_back(struct dr_grad *c, struct dr_pool p, bool count_pad) {
    if (!c->need[0])
        return;
    const struct back_attrs a = {.pool = p, .count_pad = count_pad};
    const uint32_t n = dr_grad_emit(c, "dgrad", &dr_op_avg_pool2d_grad, &a, c->dy, 1);
    c->dx[0] = c->g->node.at[n].out[0];
}

/* ---- avg_pool2d ---- */
static void pool_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_pool_attrs *a = l->node->attrs;
    const struct dr_pool p = dr_pool_of(a, &dr_launch_in(l, 0)->shape, &dr_launch_out(l, 0)->shape);
    dr_cpu_avg_pool_fprop(cpu, &p, a->count_include_pad, l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER pool_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_pool_attrs *a = l->node->attrs;
    const struct dr_pool p = dr_pool_of(a, &dr_launch_in(l, 0)->shape, &dr_launch_out(l, 0)->shape);
    return dr_cuda_avg_pool_fprop(dr_type_of(dr_launch_in(l, 0)), &p, a->count_include_pad,
                                  l->in[0], l->out[0], cuda->stream);
}
static struct dr_cost pool_cost(const struct dr_graph *g, const struct dr_node *n) {
    const struct dr_pool p =
        dr_pool_of(n->attrs, &dr_node_in(g, n, 0)->shape, &dr_node_out(g, n, 0)->shape);
    return dr_cost_of(g, n, window_flops(&p));
}
static void pool_grad(struct dr_grad *c) {
    const struct dr_node *n = &c->g->node.at[c->node];
    const struct dr_pool_attrs *a = n->attrs;
    emit_back(c, dr_pool_of(a, &dr_node_in(c->g, n, 0)->shape, &dr_node_out(c->g, n, 0)->shape),
              a->count_include_pad);
}
const struct dr_op dr_op_avg_pool2d = {
    .name = "avg_pool2d",
    .doc = "Mean of each window.",
    .attrs = pool_attrs,
    .n_attrs = DR_COUNT(pool_attrs),
    .attrs_bytes = sizeof(struct dr_pool_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = dr_pool_infer,
    .grad = pool_grad,
    .cost = pool_cost,
    .cpu = pool_cpu,
    DR_CUDA(pool_cuda),
};

/* ---- global_avg_pool: one window, the image ---- */
static struct dr_pool image_of(const struct dr_value *x) {
    const int64_t *d = x->shape.dim;
    return (struct dr_pool){.n = d[0],
                            .h = d[1],
                            .w = d[2],
                            .c = d[3],
                            .ho = 1,
                            .wo = 1,
                            .kh = d[1],
                            .kw = d[2],
                            .sh = 1,
                            .sw = 1};
}
static bool global_infer(struct dr_infer *c) {
    if (!dr_need_f32(c, 0) || !dr_need_rank(c, 0, 4, "[N, H, W, C]"))
        return false;
    const int64_t *d = dr_infer_in(c, 0)->shape.dim;
    return dr_infer_out(c, NULL, DR_F32, DR_SHAPE(d[0], d[3]), DR_PLAIN);
}
static void global_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_pool p = image_of(dr_launch_in(l, 0));
    dr_cpu_avg_pool_fprop(cpu, &p, false, l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER global_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_value *x = dr_launch_in(l, 0);
    const int64_t *d = x->shape.dim;
    return dr_cuda_global_avg_pool(dr_type_of(x), d[0], d[1] * d[2], d[3], l->in[0], l->out[0],
                                   cuda->stream);
}
static struct dr_cost global_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, (double)dr_elements(dr_node_in(g, n, 0)));
}
static void global_grad(struct dr_grad *c) {
    emit_back(c, image_of(&c->g->value.at[c->g->node.at[c->node].in[0]]), false);
}
const struct dr_op dr_op_global_avg_pool = {
    .name = "global_avg_pool",
    .doc = "Mean over H and W: [N, C].",
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = global_infer,
    .grad = global_grad,
    .cost = global_cost,
    .cpu = global_cpu,
    DR_CUDA(global_cuda),
};
