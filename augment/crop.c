/* random_crop, center_crop, resize and random_resized_crop: torchvision.transforms.v2's RandomCrop,
 * CenterCrop, Resize (bilinear, antialias) and RandomResizedCrop. All show a window of their inputs
 * (kernels/resample.h), each sample its own, all inputs of a node the same: an image and its mask
 * cannot part ways.
 *
 * In evaluation random_crop is center_crop, and random_resized_crop brings the shorter side to size
 * / 0.875 and cuts out the middle. */
#include "augment/planes.h"
#include "kernels/cpu/geometry.h"
#include "kernels/cuda/geometry.h"
#include <math.h>

/* ---- a launch ---- */
/* Sizes and keys; the rest is the op's. */
static struct dr_resample resample_of(const struct dr_launch *l) {
    const struct dr_shape *x = &l->value[l->node->in[0]].shape;
    const struct dr_shape *y = &l->value[l->node->out[0]].shape;
    return (struct dr_resample){
        .how = DR_WINDOW_FIXED,
        .h = (int32_t)x->dim[1],
        .w = (int32_t)x->dim[2],
        .ho = (int32_t)y->dim[1],
        .wo = (int32_t)y->dim[2],
        .n = x->dim[0],
        .seed = l->seed,
        .key = l->node->key,
    };
}

/* `smooth`: images are resized, else cut out with a fill. On CUDA DR_PLANES planes a launch. */
static void run_cpu(const struct dr_launch *l, struct dr_cpu *cpu, const struct dr_resample *r,
                    double fill, bool smooth) {
    for (uint32_t i = 0; i < l->node->n_out; i++) {
        const struct dr_plane p = dr_plane_of(l, i, fill, smooth);
        dr_cpu_resample(cpu, r, dr_planes_batch(l), &p, l->workspace);
    }
}
DR_CUDA_LAUNCHER run_cuda(const struct dr_launch *l, struct dr_cuda *cuda,
                          const struct dr_resample *r, double fill, bool smooth) {
    int err = 0;
    for (uint32_t i = 0; i < l->node->n_out && !err; i += DR_PLANES) {
        struct dr_plane p[DR_PLANES];
        const uint32_t n = dr_planes_of(l, i, fill, smooth, p);
        err = dr_cuda_resample(r, dr_planes_batch(l), p, n, cuda->stream);
    }
    return err;
}

/* The CPU resizes through a row of floats a sample. */
static struct dr_choice resize_choose(const struct dr_graph *g, const struct dr_node *n,
                                      bool cuda) {
    struct dr_choice choice = {.kernel = "antialiased bilinear"};
    for (uint32_t i = 0; i < n->n_out && !cuda; i++) {
        const struct dr_value *v = &g->value.at[n->in[i]];
        const int64_t bytes =
            dr_cpu_resample_bytes(v->shape.dim[0], v->shape.dim[2], dr_planes_channels(v),
                                  g->value.at[n->out[i]].shape.dim[2]);
        choice.workspace_bytes = bytes > choice.workspace_bytes ? bytes : choice.workspace_bytes;
    }
    return choice;
}

static struct dr_cost move_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_planes_cost(g, n, 0);
}
static struct dr_cost resize_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_planes_cost(g, n, 20);
}

/* Python's round((have - want) / 2), as CenterCrop has it: halves to even. */
static int32_t middle(int64_t have, int64_t want) {
    return (int32_t)rint((double)(have - want) / 2);
}

/* ---- random_crop, center_crop ---- */
struct random_crop {
    int64_t size[2];
    struct dr_padding padding;
    double fill;
};
static const struct dr_attr random_crop_attrs[] = {
    DR_SIZE_ATTR(random_crop),
    {.name = "padding",
     .doc = "border added first",
     .kind = DR_ATTR_PADDING,
     .max = DR_PLANE_SIDE,
     .offset = offsetof(struct random_crop, padding)},
    DR_FILL_ATTR(random_crop),
};

static bool does_not_fit(struct dr_infer *c, const int64_t *size, const char *advice) {
    const struct dr_value *v = dr_infer_in(c, 0);
    return dr_infer_wrong(c, "size",
                          "a crop of %lldx%lld does not fit into '%s', which is %lldx%lld%s",
                          (long long)size[0], (long long)size[1], v->name,
                          (long long)v->shape.dim[1], (long long)v->shape.dim[2], advice);
}

static bool random_crop_infer(struct dr_infer *c) {
    const struct random_crop *a = dr_infer_attrs(c);
    const uint32_t n = dr_planes_n(c->g, &c->g->node.at[c->node]);
    const struct dr_padding *p = &a->padding;
    int64_t h, w;
    if (!dr_planes_check(c, n, &h, &w) || !dr_planes_check_value(c, n, "fill", a->fill))
        return false;
    if (p->mode == DR_PAD_SAME)
        return dr_infer_wrong(c, "padding", "the padding of a crop is a number of pixels");
    const bool padded = p->top + p->bottom + p->left + p->right > 0;
    if (a->size[0] > h + p->top + p->bottom || a->size[1] > w + p->left + p->right)
        return does_not_fit(c, a->size,
                            padded ? ", not with its padding either" : "; `padding` adds a border");
    return dr_planes_out(c, n, a->size[0], a->size[1]);
}

static void random_crop_window(const struct dr_launch *l, struct dr_resample *r) {
    const struct random_crop *a = l->node->attrs;
    const struct dr_padding *p = &a->padding;
    r->how = DR_WINDOW_SHIFT;
    r->window =
        (struct dr_window){(int32_t)-p->top, (int32_t)-p->left, r->ho, r->wo, r->ho, r->wo, 0, 0};
    r->places_y = (int32_t)(r->h + p->top + p->bottom - r->ho + 1);
    r->places_x = (int32_t)(r->w + p->left + p->right - r->wo + 1);
}
static void random_crop_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    struct dr_resample r = resample_of(l);
    random_crop_window(l, &r);
    run_cpu(l, cpu, &r, ((const struct random_crop *)l->node->attrs)->fill, false);
}
DR_CUDA_LAUNCHER random_crop_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    struct dr_resample r = resample_of(l);
    random_crop_window(l, &r);
    return run_cuda(l, cuda, &r, ((const struct random_crop *)l->node->attrs)->fill, false);
}

/* The middle; of the padded input along an axis where the input alone is too small. */
static void random_crop_middle(const struct dr_launch *l, struct dr_resample *r) {
    const struct random_crop *a = l->node->attrs;
    const struct dr_padding *p = &a->padding;
    const bool tall = r->ho > r->h, wide = r->wo > r->w;
    const int64_t top =
        tall ? middle(r->h + p->top + p->bottom, r->ho) - p->top : middle(r->h, r->ho);
    const int64_t left =
        wide ? middle(r->w + p->left + p->right, r->wo) - p->left : middle(r->w, r->wo);
    r->window = (struct dr_window){(int32_t)top, (int32_t)left, r->ho, r->wo, r->ho, r->wo, 0, 0};
}
static void random_crop_eval_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    struct dr_resample r = resample_of(l);
    random_crop_middle(l, &r);
    run_cpu(l, cpu, &r, ((const struct random_crop *)l->node->attrs)->fill, false);
}
DR_CUDA_LAUNCHER random_crop_eval_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    struct dr_resample r = resample_of(l);
    random_crop_middle(l, &r);
    return run_cuda(l, cuda, &r, ((const struct random_crop *)l->node->attrs)->fill, false);
}

const struct dr_op dr_op_random_crop_eval = {
    .name = "random_crop_eval",
    .doc = "random_crop in evaluation: the middle.",
    .flags = DR_OP_AUGMENT | DR_OP_INTERNAL,
    .attrs = random_crop_attrs,
    .n_attrs = DR_COUNT(random_crop_attrs),
    .attrs_bytes = sizeof(struct random_crop),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .infer = random_crop_infer,
    .cost = move_cost,
    .cpu = random_crop_eval_cpu,
    DR_CUDA(random_crop_eval_cuda),
};
const struct dr_op dr_op_random_crop = {
    .name = "random_crop",
    .doc = "A random part of a fixed size; center_crop in evaluation.",
    .flags = DR_OP_AUGMENT | DR_OP_RANDOM | DR_OP_HEADER,
    .attrs = random_crop_attrs,
    .n_attrs = DR_COUNT(random_crop_attrs),
    .attrs_bytes = sizeof(struct random_crop),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .infer = random_crop_infer,
    .cost = move_cost,
    .eval_form = &dr_op_random_crop_eval,
    .cpu = random_crop_cpu,
    DR_CUDA(random_crop_cuda),
};

struct center_crop {
    int64_t size[2];
};
static const struct dr_attr center_crop_attrs[] = {DR_SIZE_ATTR(center_crop)};

static bool center_crop_infer(struct dr_infer *c) {
    const struct center_crop *a = dr_infer_attrs(c);
    const uint32_t n = c->g->node.at[c->node].n_in;
    int64_t h, w;
    if (!dr_planes_check(c, n, &h, &w))
        return false;
    if (a->size[0] > h || a->size[1] > w)
        return does_not_fit(c, a->size, "");
    return dr_planes_out(c, n, a->size[0], a->size[1]);
}
static struct dr_resample center_crop_of(const struct dr_launch *l) {
    struct dr_resample r = resample_of(l);
    r.window =
        (struct dr_window){middle(r.h, r.ho), middle(r.w, r.wo), r.ho, r.wo, r.ho, r.wo, 0, 0};
    return r;
}
static void center_crop_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_resample r = center_crop_of(l);
    run_cpu(l, cpu, &r, 0, false);
}
DR_CUDA_LAUNCHER center_crop_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_resample r = center_crop_of(l);
    return run_cuda(l, cuda, &r, 0, false);
}
const struct dr_op dr_op_center_crop = {
    .name = "center_crop",
    .doc = "The middle.",
    .flags = DR_OP_AUGMENT,
    .attrs = center_crop_attrs,
    .n_attrs = DR_COUNT(center_crop_attrs),
    .attrs_bytes = sizeof(struct center_crop),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .infer = center_crop_infer,
    .cost = move_cost,
    .cpu = center_crop_cpu,
    DR_CUDA(center_crop_cuda),
};

/* ---- resize, random_resized_crop ---- */
struct resize {
    int64_t size[2];
};
static const struct dr_attr resize_attrs[] = {DR_SIZE_ATTR(resize)};

static bool resize_infer(struct dr_infer *c) {
    const struct resize *a = dr_infer_attrs(c);
    const uint32_t n = c->g->node.at[c->node].n_in;
    int64_t h, w;
    return dr_planes_check(c, n, &h, &w) && dr_planes_out(c, n, a->size[0], a->size[1]);
}
static struct dr_resample resize_of(const struct dr_launch *l) {
    struct dr_resample r = resample_of(l);
    r.window = (struct dr_window){0, 0, r.h, r.w, r.ho, r.wo, 0, 0};
    return r;
}
static void resize_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_resample r = resize_of(l);
    run_cpu(l, cpu, &r, 0, true);
}
DR_CUDA_LAUNCHER resize_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_resample r = resize_of(l);
    return run_cuda(l, cuda, &r, 0, true);
}
const struct dr_op dr_op_resize = {
    .name = "resize",
    .doc = "To a fixed size: images bilinear with antialias, masks nearest.",
    .flags = DR_OP_AUGMENT,
    .attrs = resize_attrs,
    .n_attrs = DR_COUNT(resize_attrs),
    .attrs_bytes = sizeof(struct resize),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .infer = resize_infer,
    .cost = resize_cost,
    .choose = resize_choose,
    .cpu = resize_cpu,
    DR_CUDA(resize_cuda),
};

struct random_resized_crop {
    int64_t size[2];
    struct dr_floats scale;
    struct dr_floats ratio;
};
static const struct dr_attr random_resized_crop_attrs[] = {
    DR_SIZE_ATTR(random_resized_crop),
    DR_RANGE_ATTR(random_resized_crop, scale,
                  "[least, most] share of the area; not given: [0.08, 1]", 0, 1),
    DR_RANGE_ATTR(random_resized_crop, ratio, "[least, most] width / height; not given: [3/4, 4/3]",
                  0.001, 1000.0),
};

static bool random_resized_crop_infer(struct dr_infer *c) {
    const struct random_resized_crop *a = dr_infer_attrs(c);
    const uint32_t n = dr_planes_n(c->g, &c->g->node.at[c->node]);
    int64_t h, w;
    return dr_planes_check(c, n, &h, &w) && dr_planes_check_range(c, "scale", &a->scale) &&
           dr_planes_check_range(c, "ratio", &a->ratio) &&
           dr_planes_out(c, n, a->size[0], a->size[1]);
}
static struct dr_resample random_resized_crop_of(const struct dr_launch *l) {
    const struct random_resized_crop *a = l->node->attrs;
    struct dr_resample r = resample_of(l);
    r.how = DR_WINDOW_PART;
    dr_planes_range(&a->scale, 0.08, 1, r.scale);
    dr_planes_range(&a->ratio, 3.0 / 4, 4.0 / 3, r.ratio);
    r.log_ratio[0] = dr_exact_log(r.ratio[0]);
    r.log_ratio[1] = dr_exact_log(r.ratio[1]);
    return r;
}
static void random_resized_crop_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_resample r = random_resized_crop_of(l);
    run_cpu(l, cpu, &r, 0, true);
}
DR_CUDA_LAUNCHER random_resized_crop_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_resample r = random_resized_crop_of(l);
    return run_cuda(l, cuda, &r, 0, true);
}

/* The size before the cut: the axis that needs the larger factor gets size / 0.875, rounded down
 * (of a square size: the shorter side, 224 -> 256), the other follows. */
static void eval_size(const int64_t *size, int64_t h, int64_t w, int64_t *full) {
    const int64_t tall = size[0] * 8 / 7, wide = size[1] * 8 / 7;
    const bool by_height = tall * w >= wide * h;
    full[0] = by_height ? tall : wide * h / w;
    full[1] = by_height ? tall * w / h : wide;
}
static bool eval_infer(struct dr_infer *c) {
    const struct random_resized_crop *a = dr_infer_attrs(c);
    int64_t full[2];
    if (!random_resized_crop_infer(c))
        return false;
    const struct dr_shape *s = &dr_infer_in(c, 0)->shape;
    eval_size(a->size, s->dim[1], s->dim[2], full);
    if (full[0] > DR_PLANE_SIDE || full[1] > DR_PLANE_SIDE)
        return dr_infer_wrong(
            c, "size",
            "in evaluation the image would first be resized to %lldx%lld; at most "
            "%d pixels a side are supported",
            (long long)full[0], (long long)full[1], DR_PLANE_SIDE);
    return true;
}
static struct dr_resample eval_of(const struct dr_launch *l) {
    const struct random_resized_crop *a = l->node->attrs;
    struct dr_resample r = resample_of(l);
    int64_t full[2];
    eval_size(a->size, r.h, r.w, full);
    r.window = (struct dr_window){0,
                                  0,
                                  r.h,
                                  r.w,
                                  (int32_t)full[0],
                                  (int32_t)full[1],
                                  middle(full[0], r.ho),
                                  middle(full[1], r.wo)};
    return r;
}
static void eval_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_resample r = eval_of(l);
    run_cpu(l, cpu, &r, 0, true);
}
DR_CUDA_LAUNCHER eval_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_resample r = eval_of(l);
    return run_cuda(l, cuda, &r, 0, true);
}

const struct dr_op dr_op_random_resized_crop_eval = {
    .name = "random_resized_crop_eval",
    .doc = "random_resized_crop in evaluation: the shorter side to size / 0.875, then the middle.",
    .flags = DR_OP_AUGMENT | DR_OP_INTERNAL,
    .attrs = random_resized_crop_attrs,
    .n_attrs = DR_COUNT(random_resized_crop_attrs),
    .attrs_bytes = sizeof(struct random_resized_crop),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .infer = eval_infer,
    .cost = resize_cost,
    .choose = resize_choose,
    .cpu = eval_cpu,
    DR_CUDA(eval_cuda),
};
const struct dr_op dr_op_random_resized_crop = {
    .name = "random_resized_crop",
    .doc = "A random part of random area and shape, resized: images bilinear with antialias, masks "
           "nearest; in evaluation the shorter side to size / 0.875, then the middle.",
    .flags = DR_OP_AUGMENT | DR_OP_RANDOM | DR_OP_HEADER,
    .attrs = random_resized_crop_attrs,
    .n_attrs = DR_COUNT(random_resized_crop_attrs),
    .attrs_bytes = sizeof(struct random_resized_crop),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .infer = random_resized_crop_infer,
    .cost = resize_cost,
    .choose = resize_choose,
    .eval_form = &dr_op_random_resized_crop_eval,
    .cpu = random_resized_crop_cpu,
    DR_CUDA(random_resized_crop_cuda),
};
