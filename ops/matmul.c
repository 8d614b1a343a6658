/* matmul: a matrix product for each sample (torch.matmul of equal leading axes; nothing is
 * broadcast). The batch is the first axis, so that no product mixes samples. */
#include "kernels/cpu/matmul.h"
#include "kernels/cuda/linear.h"
#include "ops/common.h"

/* Operands [.., m, k] and [.., k, n], or transposed. */
struct product_attrs {
    bool ta, tb;
};

static struct dr_matmul shape_of(const struct dr_shape *a, const struct dr_shape *b, bool ta,
                                 bool tb) {
    const uint32_t r = a->rank;
    struct dr_matmul p = {.batch = 1,
                          .m = a->dim[ta ? r - 1 : r - 2],
                          .k = a->dim[ta ? r - 2 : r - 1],
                          .n = b->dim[tb ? r - 2 : r - 1],
                          .ta = ta,
                          .tb = tb};
    for (uint32_t i = 0; i + 2 < r; i++)
        p.batch *= a->dim[i];
    return p;
}

static bool matmul_infer(struct dr_infer *c) {
    if (!dr_need_all_f32(c))
        return false;
    const struct dr_value *a = dr_infer_in(c, 0), *b = dr_infer_in(c, 1);
    const uint32_t r = a->shape.rank;
    if (r < 3 || b->shape.rank != r)
        return dr_infer_error(c,
                              "it multiplies matrices [N, .., m, k] and [N, .., k, n], but '%s' "
                              "is %s, '%s' is %s",
                              a->name, dr_shape_text(c->g->arena, &a->shape), b->name,
                              dr_shape_text(c->g->arena, &b->shape));
    bool fits = a->shape.dim[r - 1] == b->shape.dim[r - 2];
    for (uint32_t i = 0; i + 2 < r; i++)
        fits &= a->shape.dim[i] == b->shape.dim[i];
    if (!fits)
        return dr_infer_error(c, "its inputs do not fit: '%s' is %s, '%s' is %s", a->name,
                              dr_shape_text(c->g->arena, &a->shape), b->name,
                              dr_shape_text(c->g->arena, &b->shape));
    struct dr_shape s = a->shape;
    s.dim[r - 1] = b->shape.dim[r - 1];
    if (a->shape.dim[r - 2] > INT32_MAX || a->shape.dim[r - 1] > INT32_MAX ||
        s.dim[r - 1] > INT32_MAX)
        return dr_infer_error(c, "a matrix has more than 2^31 - 1 rows or columns");
    return dr_infer_out(c, NULL, DR_F32, s, DR_PLAIN);
}

static struct dr_matmul matmul_of(const struct dr_launch *l, bool ta, bool tb) {
    return shape_of(&dr_launch_in(l, 0)->shape, &dr_launch_in(l, 1)->shape, ta, tb);
}
static void matmul_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_matmul p = matmul_of(l, false, false);
    dr_cpu_matmul(cpu, &p, l->in[0], l->in[1], l->out[0]);
}
DR_CUDA_LAUNCHER matmul_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_matmul p = matmul_of(l, false, false);
    return dr_cuda_matmul(cuda, dr_type_of(dr_launch_in(l, 0)), &p, l->in[0], l->in[1], l->out[0]);
}
static struct dr_cost cost_of(const struct dr_graph *g, const struct dr_node *n, bool ta, bool tb) {
    const struct dr_matmul p =
        shape_of(&dr_node_in(g, n, 0)->shape, &dr_node_in(g, n, 1)->shape, ta, tb);
    return dr_cost_of(g, n, 2.0 * (double)p.batch * (double)p.m * (double)p.n * (double)p.k);
}
static struct dr_cost matmul_cost(const struct dr_graph *g, const struct dr_node *n) {
    return cost_of(g, n, false, false);
}
static struct dr_choice sgemm_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    (void)g, (void)n, (void)cuda;
    return (struct dr_choice){.kernel = "sgemm"};
}

/* ---- gradients: da = dc b^T, db = a^T dc ---- */
static bool back_infer(struct dr_infer *c) {
    const struct product_attrs *at = dr_infer_attrs(c);
    struct dr_shape s = dr_infer_in(c, 0)->shape;
    const struct dr_matmul p = shape_of(&s, &dr_infer_in(c, 1)->shape, at->ta, at->tb);
    s.dim[s.rank - 2] = p.m, s.dim[s.rank - 1] = p.n;
    return dr_infer_out(c, NULL, DR_F32, s, DR_PLAIN);
}
static void back_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct product_attrs *at = l->node->attrs;
    const struct dr_matmul p = matmul_of(l, at->ta, at->tb);
    dr_cpu_matmul(cpu, &p, l->in[0], l->in[1], l->out[0]);
}
DR_CUDA_LAUNCHER back_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct product_attrs *at = l->node->attrs;
    const struct dr_matmul p = matmul_of(l, at->ta, at->tb);
    return dr_cuda_matmul(cuda, dr_type_of(dr_launch_in(l, 0)), &p, l->in[0], l->in[1], l->out[0]);
}
static struct dr_cost back_cost(const struct dr_graph *g, const struct dr_node *n) {
    const struct product_attrs *at = n->attrs;
    return cost_of(g, n, at->ta, at->tb);
}
const struct dr_op dr_op_matmul_grad = {
    .name = "matmul_grad",
    .doc = "Gradient of matmul by one input: a product with one operand transposed.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct product_attrs),
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = back_infer,
    .cost = back_cost,
    .choose = sgemm_choose,
    .cpu = back_cpu,
    DR_CUDA(back_cuda),
};
static void matmul_grad(struct dr_grad *c) {
    const uint32_t a = c->g->node.at[c->node].in[0], b = c->g->node.at[c->node].in[1];
    const uint32_t dy = c->dy[0];
    if (c->need[0]) {
        const uint32_t n =
            dr_grad_emit(c, "dgrad0", &dr_op_matmul_grad, &(struct product_attrs){.tb = true},
                         (uint32_t[]){dy, b}, 2);
        c->dx[0] = c->g->node.at[n].out[0];
    }
    if (c->need[1]) {
        const uint32_t n =
            dr_grad_emit(c, "dgrad1", &dr_op_matmul_grad, &(struct product_attrs){.ta = true},
                         (uint32_t[]){a, dy}, 2);
        c->dx[1] = c->g->node.at[n].out[0];
    }
}
const struct dr_op dr_op_matmul = {
    .name = "matmul",
    .doc = "Matrix product of [N, .., m, k] and [N, .., k, n]; nothing is broadcast.",
    .min_in = 2,
    .max_in = 2,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = matmul_infer,
    .grad = matmul_grad,
    .cost = matmul_cost,
    .choose = sgemm_choose,
    .cpu = matmul_cpu,
    DR_CUDA(matmul_cuda),
};
