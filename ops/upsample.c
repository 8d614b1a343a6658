/* upsample: torch.nn.Upsample with align_corners false, NHWC; a size may also be smaller. */
#include "kernels/cpu/upsample.h"
#include "kernels/cuda/upsample.h"
#include "ops/common.h"

enum { NEAREST, BILINEAR };
#define MOST 1073741824 /* of a side: positions are exact in 64 bits */

struct upsample_attrs {
    int64_t scale[2], size[2]; /* 0: not given */
    int32_t mode;
};
static const char *const modes[] = {"nearest", "bilinear"};
static const struct dr_attr upsample_attrs[] = {
    {.name = "scale",
     .doc = "factor of height and width; either this or size",
     .kind = DR_ATTR_PAIR,
     .min = 1,
     .max = 65535,
     .offset = offsetof(struct upsample_attrs, scale)},
    {.name = "size",
     .doc = "height and width of the output",
     .kind = DR_ATTR_PAIR,
     .min = 1,
     .max = MOST,
     .offset = offsetof(struct upsample_attrs, size)},
    {.name = "mode",
     .doc = "how pixels in between are made",
     .kind = DR_ATTR_WORD,
     .def = NEAREST,
     .words = modes,
     .n_words = 2,
     .offset = offsetof(struct upsample_attrs, mode)},
};

static bool upsample_infer(struct dr_infer *c) {
    const struct upsample_attrs *a = dr_infer_attrs(c);
    if (!dr_need_f32(c, 0) || !dr_need_rank(c, 0, 4, "[N, H, W, C]"))
        return false;
    if (!a->scale[0] && !a->size[0])
        return dr_infer_error(c, "give `scale` or `size`");
    if (a->scale[0] && a->size[0])
        return dr_infer_wrong(c, "size", "give `scale` or `size`, not both");
    struct dr_shape s = dr_infer_in(c, 0)->shape;
    for (int i = 0; i < 2; i++) {
        int64_t out = a->size[i];
        if ((a->scale[0] && __builtin_mul_overflow(s.dim[i + 1], a->scale[i], &out)) ||
            out > MOST || s.dim[i + 1] > MOST)
            return dr_infer_error(c, "a side is longer than 2^30 pixels");
        s.dim[i + 1] = out;
    }
    return dr_infer_out(c, NULL, DR_F32, s, DR_PLAIN);
}

static struct dr_upsample shape_of(const struct dr_shape *x, const struct dr_shape *y,
                                   int32_t mode) {
    return (struct dr_upsample){.n = x->dim[0],
                                .h = x->dim[1],
                                .w = x->dim[2],
                                .c = x->dim[3],
                                .ho = y->dim[1],
                                .wo = y->dim[2],
                                .bilinear = mode == BILINEAR};
}
static void upsample_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct upsample_attrs *a = l->node->attrs;
    const struct dr_upsample u =
        shape_of(&dr_launch_in(l, 0)->shape, &dr_launch_out(l, 0)->shape, a->mode);
    dr_cpu_upsample_fprop(cpu, &u, l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER upsample_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct upsample_attrs *a = l->node->attrs;
    const struct dr_upsample u =
        shape_of(&dr_launch_in(l, 0)->shape, &dr_launch_out(l, 0)->shape, a->mode);
    return dr_cuda_upsample_fprop(dr_type_of(dr_launch_in(l, 0)), &u, l->in[0], l->out[0],
                                  cuda->stream);
}
static struct dr_cost upsample_cost(const struct dr_graph *g, const struct dr_node *n) {
    const struct upsample_attrs *a = n->attrs;
    return dr_cost_of(g, n,
                      a->mode == BILINEAR ? 7.0 * (double)dr_elements(dr_node_out(g, n, 0)) : 0.0);
}

/* ---- gradient: dy -> dx; its attributes are the geometry ---- */
static bool back_infer(struct dr_infer *c) {
    const struct dr_upsample u = *(const struct dr_upsample *)dr_infer_attrs(c);
    return dr_infer_out(c, NULL, DR_F32, DR_SHAPE(u.n, u.h, u.w, u.c), DR_PLAIN);
}
static void back_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    dr_cpu_upsample_dgrad(cpu, l->node->attrs, l->in[0], l->out[0]);
}
DR_CUDA_LAUNCHER back_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    return dr_cuda_upsample_dgrad(dr_type_of(dr_launch_in(l, 0)), l->node->attrs, l->in[0],
                                  l->out[0], cuda->stream);
}
static struct dr_cost back_cost(const struct dr_graph *g, const struct dr_node *n) {
    const struct dr_upsample *u = n->attrs;
    return dr_cost_of(g, n, (u->bilinear ? 8.0 : 1.0) * (double)dr_elements(dr_node_in(g, n, 0)));
}
const struct dr_op dr_op_upsample_grad = {
    .name = "upsample_grad",
    .doc = "Gradient of upsample: to each pixel what outputs took of it.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct dr_upsample),
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
static void upsample_grad(struct dr_grad *c) {
    if (!c->need[0])
        return;
    const struct dr_node *n = &c->g->node.at[c->node];
    const struct upsample_attrs *a = n->attrs;
    const struct dr_upsample u =
        shape_of(&dr_node_in(c->g, n, 0)->shape, &dr_node_out(c->g, n, 0)->shape, a->mode);
    const uint32_t id = dr_grad_emit(c, "dgrad", &dr_op_upsample_grad, &u, c->dy, 1);
    c->dx[0] = c->g->node.at[id].out[0];
}

const struct dr_op dr_op_upsample = {
    .name = "upsample",
    .doc = "An image in another size, nearest or bilinear with align_corners false.",
    .attrs = upsample_attrs,
    .n_attrs = DR_COUNT(upsample_attrs),
    .attrs_bytes = sizeof(struct upsample_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = upsample_infer,
    .grad = upsample_grad,
    .cost = upsample_cost,
    .cpu = upsample_cpu,
    DR_CUDA(upsample_cuda),
};
