/* concat along one axis, by default the channels. The other axes must agree: nothing is broadcast
 * or cropped. The gradient of each input is its slice. */
#include "kernels/cpu/layout.h"
#include "kernels/cuda/shape.h"
#include "ops/common.h"

struct concat_attrs {
    int64_t axis; /* after infer 1 .. rank - 1 */
};
struct slice_attrs {
    int64_t axis, begin, size;
};

static const struct dr_attr concat_attrs[] = {
    {.name = "axis",
     .doc = "axis of [N, H, W, C], not 0 (the batch); negative ones count from the end",
     .kind = DR_ATTR_INT,
     .def = -1,
     .min = 1 - DR_MAX_RANK,
     .max = DR_MAX_RANK - 1,
     .offset = offsetof(struct concat_attrs, axis)},
};

static bool concat_check(struct dr_infer *c, uint32_t i, int64_t axis) {
    const struct dr_value *a = dr_infer_in(c, 0), *b = dr_infer_in(c, i);
    struct dr_shape other = b->shape;
    if (other.rank == a->shape.rank)
        other.dim[axis] = a->shape.dim[axis];
    if (!dr_shape_equal(&a->shape, &other))
        return dr_infer_error(c, "its inputs differ in more than axis %lld: '%s' is %s, '%s' is %s",
                              (long long)axis, a->name, dr_shape_text(c->g->arena, &a->shape),
                              b->name, dr_shape_text(c->g->arena, &b->shape));
    if (a->dtype != b->dtype)
        return dr_infer_error(c, "its inputs differ in type: '%s' is %s, '%s' is %s", a->name,
                              dr_dtype_name(a->dtype), b->name, dr_dtype_name(b->dtype));
    return true;
}

static bool concat_infer(struct dr_infer *c) {
    struct concat_attrs *at = dr_infer_attrs(c);
    if (!dr_need_axis(c, &at->axis))
        return false;
    const struct dr_value *a = dr_infer_in(c, 0);
    const int64_t axis = at->axis;
    struct dr_shape s = a->shape;
    enum dr_meaning meaning = a->meaning;
    for (uint32_t i = 1, n = c->g->node.at[c->node].n_in; i < n; i++) {
        if (!concat_check(c, i, axis))
            return false;
        const struct dr_value *b = dr_infer_in(c, i);
        if (__builtin_add_overflow(s.dim[axis], b->shape.dim[axis], &s.dim[axis]))
            return dr_infer_error(c, "its output is too large");
        if (b->meaning != meaning)
            meaning = DR_PLAIN;
    }
    return dr_infer_out(c, NULL, a->dtype, s, meaning);
}

static void concat_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct concat_attrs *at = l->node->attrs;
    const struct dr_value *y = dr_launch_out(l, 0);
    const int64_t one = dr_bytes_after(y, at->axis), runs = dr_runs_before(y, at->axis);
    const int64_t step = one * y->shape.dim[at->axis];
    char *to = l->out[0];
    for (uint32_t i = 0; i < l->node->n_in; i++) {
        const int64_t bytes = one * dr_launch_in(l, i)->shape.dim[at->axis];
        dr_cpu_copy_rows(cpu, runs, bytes, l->in[i], bytes, to, step);
        to += bytes;
    }
}
DR_CUDA_LAUNCHER concat_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct concat_attrs *at = l->node->attrs;
    const struct dr_value *y = dr_launch_out(l, 0);
    const int64_t one = dr_bytes_after(y, at->axis), runs = dr_runs_before(y, at->axis);
    const int64_t step = one * y->shape.dim[at->axis];
    char *to = l->out[0];
    int err = 0;
    for (uint32_t i = 0; i < l->node->n_in && !err; i++) {
        const int64_t bytes = one * dr_launch_in(l, i)->shape.dim[at->axis];
        err = dr_cuda_copy_rows(runs, bytes, l->in[i], bytes, to, step, cuda->stream);
        to += bytes;
    }
    return err;
}

static struct dr_cost copy_cost(const struct dr_graph *g, const struct dr_node *n) {
    struct dr_cost cost = {.bytes = 2.0 * (double)dr_node_out(g, n, 0)->bytes};
    return cost;
}

/* ---- gradient: dy -> the part that one input became ---- */
static bool slice_infer(struct dr_infer *c) {
    const struct slice_attrs *at = dr_infer_attrs(c);
    struct dr_shape s = dr_infer_in(c, 0)->shape;
    s.dim[at->axis] = at->size;
    return dr_infer_out(c, NULL, DR_F32, s, DR_PLAIN);
}
static void slice_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct slice_attrs *at = l->node->attrs;
    const struct dr_value *dy = dr_launch_in(l, 0);
    const int64_t one = dr_bytes_after(dy, at->axis);
    dr_cpu_copy_rows(cpu, dr_runs_before(dy, at->axis), one * at->size,
                     (const char *)l->in[0] + one * at->begin, one * dy->shape.dim[at->axis],
                     l->out[0], one * at->size);
}
DR_CUDA_LAUNCHER slice_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct slice_attrs *at = l->node->attrs;
    const struct dr_value *dy = dr_launch_in(l, 0);
    const int64_t one = dr_bytes_after(dy, at->axis);
    return dr_cuda_copy_rows(
        dr_runs_before(dy, at->axis), one * at->size, (const char *)l->in[0] + one * at->begin,
        one * dy->shape.dim[at->axis], l->out[0], one * at->size, cuda->stream);
}
const struct dr_op dr_op_concat_grad = {
    .name = "concat_grad",
    .doc = "Gradient of concat by one input: its slice.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct slice_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = slice_infer,
    .cost = copy_cost,
    .cpu = slice_cpu,
    DR_CUDA(slice_cuda),
};
static void concat_grad(struct dr_grad *c) {
    const struct dr_node n = c->g->node.at[c->node]; /* a copy: adding a node moves the list */
    struct slice_attrs at = {.axis = ((const struct concat_attrs *)n.attrs)->axis};
    for (uint32_t i = 0; i < n.n_in; i++, at.begin += at.size) {
        at.size = dr_node_in(c->g, &n, i)->shape.dim[at.axis];
        if (!c->need[i])
            continue;
        const char *suffix = dr_printf(c->g->arena, "dgrad%u", i);
        const uint32_t id = dr_grad_emit(c, suffix, &dr_op_concat_grad, &at, c->dy, 1);
        c->dx[i] = c->g->node.at[id].out[0];
    }
}

const struct dr_op dr_op_concat = {
    .name = "concat",
    .doc = "Values side by side along an axis; the other axes must agree.",
    .attrs = concat_attrs,
    .n_attrs = DR_COUNT(concat_attrs),
    .attrs_bytes = sizeof(struct concat_attrs),
    .min_in = 2,
    .max_in = UINT32_MAX,
    .half_in = DR_HALF_ALL,
    .half_out = 1,
    .outputs = 1,
    .infer = concat_infer,
    .grad = concat_grad,
    .cost = copy_cost,
    .cpu = concat_cpu,
    DR_CUDA(concat_cuda),
};
