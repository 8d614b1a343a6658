/* rotate and affine: torchvision.transforms.v2's RandomRotation and RandomAffine, around the
 * middle, the size stays. Images are taken from the nearest pixel, as torchvision's default, or
 * bilinear; masks always from the nearest. One draw a sample moves every input of the node. */
#include "augment/planes.h"
#include "kernels/cpu/geometry.h"
#include "kernels/cuda/geometry.h"

enum { NEAREST, BILINEAR };
static const char *const interpolations[] = {"nearest", "bilinear"};
#define INTERPOLATION_ATTR(T)                                                                      \
    {                                                                                              \
        .name = "interpolation", .doc = "of images", .kind = DR_ATTR_WORD, .def = NEAREST,         \
        .words = interpolations, .n_words = DR_COUNT(interpolations),                              \
        .offset = offsetof(struct T, interpolation)                                                \
    }

/* ---- a launch ---- */
static struct dr_turn turn_of(const struct dr_launch *l) {
    const struct dr_shape *x = &l->value[l->node->in[0]].shape;
    return (struct dr_turn){
        .h = (int32_t)x->dim[1],
        .w = (int32_t)x->dim[2],
        .n = x->dim[0],
        .scale = {1, 1},
        .seed = l->seed,
        .key = l->node->key,
    };
}
static void run_cpu(const struct dr_launch *l, struct dr_cpu *cpu, const struct dr_turn *t,
                    double fill, bool smooth) {
    for (uint32_t i = 0; i < l->node->n_out; i++) {
        const struct dr_plane p = dr_plane_of(l, i, fill, smooth);
        dr_cpu_turn(cpu, t, dr_planes_batch(l), &p);
    }
}
DR_CUDA_LAUNCHER run_cuda(const struct dr_launch *l, struct dr_cuda *cuda, const struct dr_turn *t,
                          double fill, bool smooth) {
    int err = 0;
    for (uint32_t i = 0; i < l->node->n_out && !err; i += DR_PLANES) {
        struct dr_plane p[DR_PLANES];
        const uint32_t n = dr_planes_of(l, i, fill, smooth, p);
        err = dr_cuda_turn(t, dr_planes_batch(l), p, n, cuda->stream);
    }
    return err;
}
static struct dr_cost turn_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_planes_cost(g, n, 10);
}

/* ---- rotate ---- */
struct rotate {
    struct dr_floats degrees;
    double fill;
    int32_t interpolation;
};
static const struct dr_attr rotate_attrs[] = {
    {.name = "degrees",
     .doc = "[least, most] angle, counter-clockwise",
     .kind = DR_ATTR_FLOATS,
     .required = true,
     .min = -360,
     .max = 360,
     .offset = offsetof(struct rotate, degrees)},
    DR_FILL_ATTR(rotate),
    INTERPOLATION_ATTR(rotate),
};

static bool rotate_infer(struct dr_infer *c) {
    const struct rotate *a = dr_infer_attrs(c);
    const uint32_t n = dr_planes_n(c->g, &c->g->node.at[c->node]);
    int64_t h, w;
    if (a->degrees.n == 0)
        return dr_infer_wrong(c, "degrees", "degrees must be [least, most]");
    return dr_planes_check(c, n, &h, &w) && dr_planes_check_range(c, "degrees", &a->degrees) &&
           dr_planes_check_value(c, n, "fill", a->fill) && dr_planes_out(c, n, h, w);
}
static struct dr_turn rotate_of(const struct dr_launch *l) {
    const struct rotate *a = l->node->attrs;
    struct dr_turn t = turn_of(l);
    t.degrees[0] = -a->degrees.at[1]; /* clockwise */
    t.degrees[1] = -a->degrees.at[0];
    return t;
}
static void rotate_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct rotate *a = l->node->attrs;
    const struct dr_turn t = rotate_of(l);
    run_cpu(l, cpu, &t, a->fill, a->interpolation == BILINEAR);
}
DR_CUDA_LAUNCHER rotate_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct rotate *a = l->node->attrs;
    const struct dr_turn t = rotate_of(l);
    return run_cuda(l, cuda, &t, a->fill, a->interpolation == BILINEAR);
}
const struct dr_op dr_op_rotate = {
    .name = "rotate",
    .doc = "Turned by a random angle around the middle.",
    .flags = DR_OP_AUGMENT | DR_OP_RANDOM | DR_OP_HEADER | DR_OP_EVAL_PASS,
    .attrs = rotate_attrs,
    .n_attrs = DR_COUNT(rotate_attrs),
    .attrs_bytes = sizeof(struct rotate),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .infer = rotate_infer,
    .cost = turn_cost,
    .cpu = rotate_cpu,
    DR_CUDA(rotate_cuda),
};

/* ---- affine ---- */
struct affine {
    struct dr_floats degrees;
    struct dr_floats translate;
    struct dr_floats scale;
    struct dr_floats shear;
    double fill;
    int32_t interpolation;
};
static const struct dr_attr affine_attrs[] = {
    DR_RANGE_ATTR(affine, degrees, "[least, most] angle, clockwise as torchvision's; not given: 0",
                  -360, 360),
    DR_RANGE_ATTR(affine, translate, "[x, y] largest shift as a share of the size; not given: 0", 0,
                  1),
    DR_RANGE_ATTR(affine, scale, "[least, most] factor; not given: 1", 0.001, 1000.0),
    DR_RANGE_ATTR(
        affine, shear,
        "[least, most] angle along x, or four numbers: along x, then along y; not given: 0", -89,
        89),
    DR_FILL_ATTR(affine),
    INTERPOLATION_ATTR(affine),
};

static bool affine_infer(struct dr_infer *c) {
    const struct affine *a = dr_infer_attrs(c);
    const uint32_t n = dr_planes_n(c->g, &c->g->node.at[c->node]);
    int64_t h, w;
    const struct dr_floats *s = &a->shear;
    const struct dr_floats along_x = {s->n == 4 ? 2 : s->n, s->at};
    const struct dr_floats along_y = {s->n == 4 ? 2 : 0, s->n == 4 ? s->at + 2 : NULL};
    if (a->translate.n != 0 && a->translate.n != 2)
        return dr_infer_wrong(c, "translate", "translate must be [x, y]");
    return dr_planes_check(c, n, &h, &w) && dr_planes_check_range(c, "degrees", &a->degrees) &&
           dr_planes_check_range(c, "scale", &a->scale) &&
           dr_planes_check_range(c, "shear", &along_x) &&
           dr_planes_check_range(c, "shear", &along_y) &&
           dr_planes_check_value(c, n, "fill", a->fill) && dr_planes_out(c, n, h, w);
}
static struct dr_turn affine_of(const struct dr_launch *l) {
    const struct affine *a = l->node->attrs;
    struct dr_turn t = turn_of(l);
    dr_planes_range(&a->degrees, 0, 0, t.degrees);
    dr_planes_range(&a->scale, 1, 1, t.scale);
    dr_planes_range(&a->translate, 0, 0, t.translate);
    t.translate[0] *= t.w;
    t.translate[1] *= t.h;
    for (uint32_t i = 0; i < a->shear.n; i++)
        t.shear[i] = a->shear.at[i];
    return t;
}
static void affine_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct affine *a = l->node->attrs;
    const struct dr_turn t = affine_of(l);
    run_cpu(l, cpu, &t, a->fill, a->interpolation == BILINEAR);
}
DR_CUDA_LAUNCHER affine_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct affine *a = l->node->attrs;
    const struct dr_turn t = affine_of(l);
    return run_cuda(l, cuda, &t, a->fill, a->interpolation == BILINEAR);
}
const struct dr_op dr_op_affine = {
    .name = "affine",
    .doc = "A random rotation, shift, scale and shear around the middle.",
    .flags = DR_OP_AUGMENT | DR_OP_RANDOM | DR_OP_HEADER | DR_OP_EVAL_PASS,
    .attrs = affine_attrs,
    .n_attrs = DR_COUNT(affine_attrs),
    .attrs_bytes = sizeof(struct affine),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .infer = affine_infer,
    .cost = turn_cost,
    .cpu = affine_cpu,
    DR_CUDA(affine_cuda),
};
