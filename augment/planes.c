/* Checks and operands that the augmentation ops share; see planes.h. */
#include "augment/planes.h"
#include <math.h>
#include <string.h>

uint32_t dr_planes_n(const struct dr_graph *g, const struct dr_node *n) {
    const bool header = n->n_in > 0 && g->value.at[n->in[n->n_in - 1]].meaning == DR_HEADER;
    return n->n_in - header;
}

int64_t dr_planes_channels(const struct dr_value *v) {
    return v->shape.rank == 4 ? v->shape.dim[3] : 1;
}

static bool check_image_type(struct dr_infer *c, const struct dr_value *v) {
    if (v->dtype == DR_U8 || v->dtype == DR_F32)
        return true;
    return dr_infer_error(c, "'%s' is %s; images of u8 and f32 are supported", v->name,
                          dr_dtype_name(v->dtype));
}

static bool check_plane(struct dr_infer *c, uint32_t i) {
    const struct dr_value v = *dr_infer_in(c, i);
    if (v.meaning == DR_LABEL)
        return dr_infer_error(c, "'%s' is a label: only images and masks have pixels", v.name);
    if (v.shape.rank != 3 && v.shape.rank != 4)
        return dr_infer_error(c, "'%s' is %s, not an image [N, H, W, C] or a mask [N, H, W]",
                              v.name, dr_shape_text(c->g->arena, &v.shape));
    if (v.meaning == DR_MASK && (v.dtype == DR_F16 || v.dtype == DR_BF16 || v.dtype == DR_F64))
        return dr_infer_error(c, "mask '%s' is %s; masks hold integers", v.name,
                              dr_dtype_name(v.dtype));
    if (v.meaning != DR_MASK && !check_image_type(c, &v))
        return false;
    const int64_t h = v.shape.dim[1], w = v.shape.dim[2];
    if (h > DR_PLANE_SIDE || w > DR_PLANE_SIDE ||
        v.bytes / (int64_t)dr_dtype_bytes(v.dtype) / v.shape.dim[0] > INT32_MAX)
        return dr_infer_error(c, "'%s' is %s: a sample may have %d pixels a side and 2^31 values",
                              v.name, dr_shape_text(c->g->arena, &v.shape), DR_PLANE_SIDE);
    return true;
}

bool dr_planes_check_one(struct dr_infer *c, uint32_t i, uint32_t first) {
    if (!check_plane(c, i))
        return false;
    const struct dr_value *a = dr_infer_in(c, first), *b = dr_infer_in(c, i);
    return (b->shape.dim[1] == a->shape.dim[1] && b->shape.dim[2] == a->shape.dim[2]) ||
           dr_infer_error(c,
                          "'%s' is %s and '%s' is %s: one draw moves both, so they must have the "
                          "same height and width",
                          a->name, dr_shape_text(c->g->arena, &a->shape), b->name,
                          dr_shape_text(c->g->arena, &b->shape));
}

bool dr_planes_check(struct dr_infer *c, uint32_t n, int64_t *h, int64_t *w) {
    for (uint32_t i = 0; i < n; i++)
        if (!dr_planes_check_one(c, i, 0))
            return false;
    *h = dr_infer_in(c, 0)->shape.dim[1];
    *w = dr_infer_in(c, 0)->shape.dim[2];
    return true;
}

bool dr_planes_check_image(struct dr_infer *c, uint32_t i, bool colours) {
    const struct dr_value v = *dr_infer_in(c, i);
    if (v.meaning == DR_MASK || v.meaning == DR_LABEL)
        return dr_infer_error(c, "'%s' is a %s: %s changes images alone; leave it out of `in`",
                              v.name, v.meaning == DR_MASK ? "mask" : "label",
                              c->g->node.at[c->node].op->name);
    if (!check_plane(c, i))
        return false;
    const int64_t channels = dr_planes_channels(&v);
    if (colours && channels != 1 && channels != 3)
        return dr_infer_error(c, "'%s' has %lld channels: colours are 1 (grey) or 3 (RGB)", v.name,
                              (long long)channels);
    return true;
}

bool dr_planes_check_value(struct dr_infer *c, uint32_t n, const char *attr, double value) {
    for (uint32_t i = 0; i < n; i++) {
        const struct dr_value *v = dr_infer_in(c, i);
        if (v->dtype == DR_U8 && v->meaning != DR_MASK &&
            !(value >= 0 && value <= 255 && value == floor(value)))
            return dr_infer_wrong(c, attr, "%s %g is no value of '%s', which is u8", attr, value,
                                  v->name);
    }
    return true;
}

bool dr_planes_check_range(struct dr_infer *c, const char *attr, const struct dr_floats *f) {
    if (f->n == 0 || (f->n == 2 && f->at[0] <= f->at[1]))
        return true;
    if (f->n != 2)
        return dr_infer_wrong(c, attr, "%s must be [least, most]", attr);
    return dr_infer_wrong(c, attr, "%s: the least, %g, is above the most, %g", attr, f->at[0],
                          f->at[1]);
}

void dr_planes_range(const struct dr_floats *f, double low, double high, double *out) {
    out[0] = f->n == 2 ? f->at[0] : low;
    out[1] = f->n == 2 ? f->at[1] : high;
}

bool dr_planes_out(struct dr_infer *c, uint32_t n, int64_t h, int64_t w) {
    for (uint32_t i = 0; i < n; i++) {
        const struct dr_value v = *dr_infer_in(c, i);
        struct dr_shape s = v.shape;
        s.dim[1] = h;
        s.dim[2] = w;
        int64_t elements;
        if (dr_shape_elements(&s, &elements) && elements / s.dim[0] > INT32_MAX)
            return dr_infer_error(c, "its result would be %s: a sample may have 2^31 values",
                                  dr_shape_text(c->g->arena, &s));
        const char *suffix = dr_printf(c->g->arena, "%u", (unsigned)i);
        if (!dr_infer_out(c, suffix, v.dtype, s, v.meaning))
            return false;
    }
    return true;
}

static uint64_t bits_of(enum dr_dtype t, double value) {
    const float f = (float)value;
    const uint64_t whole = t == DR_F32 ? 0 : (uint64_t)(int64_t)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return t == DR_F32 ? bits : whole;
}

struct dr_plane dr_plane_of(const struct dr_launch *l, uint32_t i, double fill, bool smooth) {
    const struct dr_value *v = &l->value[l->node->in[i]];
    const bool mask = v->meaning == DR_MASK;
    return (struct dr_plane){
        .x = l->in[i],
        .y = l->out[i],
        .fill = bits_of(v->dtype, mask ? DR_MASK_FILL : fill),
        .outside = (float)fill,
        .c = (int32_t)dr_planes_channels(v),
        .item = (int32_t)dr_dtype_bytes(v->dtype),
        .smooth = smooth && !mask,
    };
}

uint32_t dr_planes_of(const struct dr_launch *l, uint32_t i, double fill, bool smooth,
                      struct dr_plane *p) {
    uint32_t n = 0;
    for (; n < DR_PLANES && i + n < l->node->n_out; n++)
        p[n] = dr_plane_of(l, i + n, fill, smooth);
    return n;
}

const struct dr_batch *dr_planes_batch(const struct dr_launch *l) {
    return l->node->op->flags & DR_OP_HEADER ? l->in[l->node->n_in - 1] : NULL;
}

struct dr_cost dr_planes_cost(const struct dr_graph *g, const struct dr_node *n, double flops) {
    struct dr_cost cost = {0, 0};
    for (uint32_t i = 0; i < n->n_in; i++)
        cost.bytes += (double)g->value.at[n->in[i]].bytes;
    for (uint32_t i = 0; i < n->n_out; i++) {
        const struct dr_value *v = &g->value.at[n->out[i]];
        cost.bytes += (double)v->bytes;
        cost.flops += flops * (double)v->bytes / (double)dr_dtype_bytes(v->dtype);
    }
    return cost;
}
