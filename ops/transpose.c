/* transpose: the axes of a sample in another order (torch.permute). Its gradient is the transpose
 * back. */
#include "kernels/cpu/layout.h"
#include "kernels/cuda/shape.h"
#include "ops/common.h"

struct transpose_attrs {
    struct dr_ints axes;
};
static const struct dr_attr transpose_attrs[] = {
    {.name = "axes",
     .doc = "the axes of a sample, from 1, in their new order: [3, 1, 2] makes H, W, C to C, H, W",
     .kind = DR_ATTR_INTS,
     .required = true,
     .min = 1,
     .max = DR_MAX_RANK - 1,
     .offset = offsetof(struct transpose_attrs, axes)},
};

static bool transpose_infer(struct dr_infer *c) {
    const struct transpose_attrs *a = dr_infer_attrs(c);
    const struct dr_value *x = dr_infer_in(c, 0);
    struct dr_shape s = x->shape;
    bool seen[DR_MAX_RANK] = {false};
    if (a->axes.n + 1 != s.rank)
        return dr_infer_wrong(c, "axes", "%u axes for a sample of %u: %s", a->axes.n,
                              s.rank ? s.rank - 1 : 0, dr_shape_text(c->g->arena, &s));
    for (uint32_t i = 0; i < a->axes.n; i++) {
        const int64_t from = a->axes.at[i];
        if (from < 1 || from >= s.rank || seen[from])
            return dr_infer_wrong(c, "axes", "axis %lld of %s is %s", (long long)from,
                                  dr_shape_text(c->g->arena, &s),
                                  from < 1 || from >= s.rank ? "not there" : "given twice");
        seen[from] = true;
    }
    for (uint32_t i = 0; i < a->axes.n; i++)
        s.dim[i + 1] = x->shape.dim[a->axes.at[i]];
    return dr_infer_out(c, NULL, x->dtype, s, DR_PLAIN);
}

/* Axes of one element go, axes that stay neighbours become one, and what is left of the last one in
 * the order of memory becomes the item. */
static struct dr_permute permute_of(const struct dr_launch *l) {
    const struct transpose_attrs *a = l->node->attrs;
    const struct dr_value *x = dr_launch_in(l, 0);
    struct dr_permute p = {.bytes = (int64_t)dr_dtype_bytes(x->dtype)};
    for (uint32_t i = 0; i < x->shape.rank; i++) {
        const int64_t from = i == 0 ? 0 : a->axes.at[i - 1];
        const int64_t dim = x->shape.dim[from], step = dr_bytes_after(x, from);
        if (dim == 1)
            continue;
        if (p.rank > 0 && p.step[p.rank - 1] == dim * step) {
            p.dim[p.rank - 1] *= dim;
            p.step[p.rank - 1] = step;
        } else {
            p.dim[p.rank] = dim;
            p.step[p.rank++] = step;
        }
    }
    if (p.rank > 0 && p.step[p.rank - 1] == p.bytes)
        p.bytes *= p.dim[--p.rank];
    if (p.rank == 0)
        p.dim[p.rank++] = 1;
    return p;
}
/* Matrices of items of 2 or 4 bytes [n, rows, cols] -> [n, cols, rows] have a kernel of their own.
 */
static bool is_matrix(const struct dr_permute *p, int64_t *n, int64_t *rows, int64_t *cols) {
    const int64_t r = p->rank;
    if ((p->bytes != 4 && p->bytes != 2) || r < 2 || r > 3)
        return false;
    *rows = p->dim[r - 1], *cols = p->dim[r - 2], *n = r == 3 ? p->dim[0] : 1;
    return p->step[r - 2] == p->bytes && p->step[r - 1] == p->bytes * *cols &&
           (r == 2 || p->step[0] == p->bytes * *rows * *cols);
}
static void transpose_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_permute p = permute_of(l);
    int64_t n, rows, cols;
    if (p.bytes == 4 && is_matrix(&p, &n, &rows, &cols))
        dr_cpu_transpose(cpu, n, rows, cols, l->in[0], l->out[0]);
    else
        dr_cpu_permute(cpu, &p, l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER transpose_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_permute p = permute_of(l);
    int64_t n, rows, cols;
    /* its tiles of 32 x 32 are the blocks of one launch, of which there are 2^31 - 1 */
    if (is_matrix(&p, &n, &rows, &cols) && (rows + 31) / 32 <= INT32_MAX / ((cols + 31) / 32))
        return dr_cuda_transpose(n, rows, cols, p.bytes, l->in[0], l->out[0], cuda->stream);
    return dr_cuda_permute(&p, l->in[0], l->out[0], cuda->stream);
}
static struct dr_cost transpose_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, 0);
}

extern const struct dr_op dr_op_transpose;
static void transpose_grad(struct dr_grad *c) {
    if (!c->need[0])
        return;
    const struct transpose_attrs *a = c->g->node.at[c->node].attrs;
    int64_t *back = DR_NEW_N(c->g->arena, int64_t, a->axes.n + 1);
    for (uint32_t i = 0; i < a->axes.n; i++)
        back[a->axes.at[i] - 1] = i + 1;
    const struct transpose_attrs b = {.axes = {.n = a->axes.n, .at = back}};
    const uint32_t n = dr_grad_emit(c, "dgrad", &dr_op_transpose, &b, c->dy, 1);
    c->dx[0] = c->g->node.at[n].out[0];
}
const struct dr_op dr_op_transpose = {
    .name = "transpose",
    .doc = "The axes of a sample in another order.",
    .attrs = transpose_attrs,
    .n_attrs = DR_COUNT(transpose_attrs),
    .attrs_bytes = sizeof(struct transpose_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = transpose_infer,
    .grad = transpose_grad,
    .cost = transpose_cost,
    .cpu = transpose_cpu,
    DR_CUDA(transpose_cuda),
};
