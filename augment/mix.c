/* random_erasing, mixup and cutmix: torchvision.transforms.v2's RandomErasing, MixUp and CutMix, on
 * the device and by sample.
 *
 * mixup and cutmix take images and what belongs to them. Class numbers become shares of `classes`
 * (f32 [N, classes], what cross_entropy takes as well); f32 labels are mixed as numbers. cutmix
 * moves the partner's pixels of a mask along with the image's; half a pixel of one class and half
 * of another is no mask, so mixup refuses them. In evaluation all pass through. */
#include "augment/planes.h"
#include "kernels/cpu/mix.h"
#include "kernels/cuda/mix.h"

/* ---- random_erasing ---- */
struct random_erasing {
    double p;
    struct dr_floats scale;
    struct dr_floats ratio;
    double value;
};
static const struct dr_attr random_erasing_attrs[] = {
    {.name = "p",
     .doc = "probability for a sample",
     .kind = DR_ATTR_FLOAT,
     .def = 0.5,
     .max = 1,
     .offset = offsetof(struct random_erasing, p)},
    DR_RANGE_ATTR(random_erasing, scale, "[least, most] share of the area; not given: [0.02, 0.33]",
                  0, 1),
    DR_RANGE_ATTR(random_erasing, ratio,
                  "[least, most] height / width, as torchvision's; not given: [0.3, 3.3]", 0.001,
                  1000.0),
    {.name = "value",
     .doc = "what is put there",
     .kind = DR_ATTR_FLOAT,
     .min = -1e+30,
     .max = 1e+30,
     .offset = offsetof(struct random_erasing, value)},
};

static bool random_erasing_infer(struct dr_infer *c) {
    const struct random_erasing *a = dr_infer_attrs(c);
    const uint32_t n = dr_planes_n(c->g, &c->g->node.at[c->node]);
    int64_t h, w;
    for (uint32_t i = 0; i < n; i++)
        if (!dr_planes_check_image(c, i, false))
            return false;
    return dr_planes_check(c, n, &h, &w) && dr_planes_check_range(c, "scale", &a->scale) &&
           dr_planes_check_range(c, "ratio", &a->ratio) &&
           dr_planes_check_value(c, n, "value", a->value) && dr_planes_out(c, n, h, w);
}
static struct dr_erase erase_of(const struct dr_launch *l, uint32_t i) {
    const struct random_erasing *a = l->node->attrs;
    const struct dr_value *x = &l->value[l->node->in[i]];
    double ratio[2];
    struct dr_erase e = {
        .n = x->shape.dim[0],
        .h = (int32_t)x->shape.dim[1],
        .w = (int32_t)x->shape.dim[2],
        .c = (int32_t)dr_planes_channels(x),
        .u8 = x->dtype == DR_U8,
        .value = (float)a->value,
        .p = a->p,
        .seed = l->seed,
        .key = l->node->key,
    };
    dr_planes_range(&a->scale, 0.02, 0.33, e.scale);
    dr_planes_range(&a->ratio, 0.3, 3.3, ratio);
    e.log_ratio[0] = dr_exact_log(ratio[0]);
    e.log_ratio[1] = dr_exact_log(ratio[1]);
    return e;
}
static void random_erasing_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    for (uint32_t i = 0; i < l->node->n_out; i++) {
        const struct dr_erase e = erase_of(l, i);
        dr_cpu_erase(cpu, &e, dr_planes_batch(l), l->in[i], l->out[i]);
    }
}
DR_CUDA_LAUNCHER random_erasing_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    int err = 0;
    for (uint32_t i = 0; i < l->node->n_out && !err; i++) {
        const struct dr_erase e = erase_of(l, i);
        err = dr_cuda_erase(&e, dr_planes_batch(l), l->in[i], l->out[i], cuda->stream);
    }
    return err;
}
static struct dr_cost move_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_planes_cost(g, n, 0);
}
const struct dr_op dr_op_random_erasing = {
    .name = "random_erasing",
    .doc = "A random rectangle of one value, in images.",
    .flags = DR_OP_AUGMENT | DR_OP_RANDOM | DR_OP_HEADER | DR_OP_EVAL_PASS,
    .attrs = random_erasing_attrs,
    .n_attrs = DR_COUNT(random_erasing_attrs),
    .attrs_bytes = sizeof(struct random_erasing),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .infer = random_erasing_infer,
    .cost = move_cost,
    .cpu = random_erasing_cpu,
    DR_CUDA(random_erasing_cuda),
};

/* ---- mixup, cutmix: operands ---- */
struct mix {
    double alpha;
    int64_t classes;
};
static const struct dr_attr mix_attrs[] = {
    {.name = "alpha",
     .doc = "of the Beta distribution",
     .kind = DR_ATTR_FLOAT,
     .def = 1,
     .min = 1e-06,
     .max = 1000.0,
     .offset = offsetof(struct mix, alpha)},
    {.name = "classes",
     .doc = "how many classes the labels have; needed where labels are class numbers",
     .kind = DR_ATTR_INT,
     .min = 1,
     .max = 1 << 24,
     .offset = offsetof(struct mix, classes)},
};

static bool is_plane(const struct dr_value *v) {
    return v->meaning == DR_IMAGE || v->meaning == DR_MASK ||
           (v->meaning == DR_PLAIN && v->shape.rank >= 3);
}

/* Class numbers [N, ...]: they become shares [N, ..., classes]. */
static bool classes_out(struct dr_infer *c, uint32_t i, const char *suffix) {
    const struct mix *a = dr_infer_attrs(c);
    const struct dr_value v = *dr_infer_in(c, i);
    struct dr_shape s = v.shape;
    if (a->classes == 0)
        return dr_infer_error(c, "'%s' holds class numbers: say how many there are, `classes: N`",
                              v.name);
    if (s.rank == DR_MAX_RANK)
        return dr_infer_error(c, "label '%s' is %s: with its classes it would have too many axes",
                              v.name, dr_shape_text(c->g->arena, &s));
    s.dim[s.rank++] = a->classes;
    int64_t shares;
    if (!dr_shape_elements(&s, &shares) || shares / s.dim[0] > INT32_MAX)
        return dr_infer_error(c, "label '%s' would become %s: a sample may have 2^31 values",
                              v.name, dr_shape_text(c->g->arena, &s));
    struct dr_value *target = &c->g->value.at[c->g->node.at[c->node].in[i]];
    if (target->classes == 0 || target->classes > a->classes)
        target->classes = a->classes;
    return dr_infer_out(c, suffix, DR_F32, s, DR_LABEL);
}

static bool number_out(struct dr_infer *c, uint32_t i, const char *suffix) {
    const struct dr_value v = *dr_infer_in(c, i);
    if (v.dtype == DR_I32 && v.meaning == DR_LABEL)
        return classes_out(c, i, suffix);
    if (v.dtype == DR_F32)
        return dr_infer_out(c, suffix, DR_F32, v.shape, v.meaning);
    return dr_infer_error(c, "'%s' is %s: images, labels and f32 values can be mixed", v.name,
                          dr_dtype_name(v.dtype));
}

/* Planes of mixup may differ in size; those of cutmix share the box. */
static bool mix_infer(struct dr_infer *c, bool cut) {
    const uint32_t n = dr_planes_n(c->g, &c->g->node.at[c->node]);
    uint32_t first = n; /* plane */
    for (uint32_t i = 0; i < n; i++) {
        const struct dr_value v = *dr_infer_in(c, i);
        const char *suffix = dr_printf(c->g->arena, "%u", (unsigned)i);
        if (v.shape.rank < 1 || v.bytes / v.shape.dim[0] > INT32_MAX)
            return dr_infer_error(c, "'%s' is %s: a sample may have 2^31 bytes", v.name,
                                  dr_shape_text(c->g->arena, &v.shape));
        if (!is_plane(&v)) {
            if (!number_out(c, i, suffix))
                return false;
            continue;
        }
        first = first == n ? i : first;
        if (!cut && v.meaning == DR_MASK)
            return dr_infer_error(c,
                                  "'%s' is a mask: a pixel cannot be a bit of two classes; "
                                  "cutmix takes masks",
                                  v.name);
        if (!dr_planes_check_one(c, i, cut ? first : i) ||
            !dr_infer_out(c, suffix, v.dtype, v.shape, v.meaning))
            return false;
    }
    return first < n || dr_infer_error(c, "it has no image to mix");
}

static struct dr_mix_operand operand_of(const struct dr_launch *l, uint32_t i, bool cut) {
    const struct dr_value *x = &l->value[l->node->in[i]], *y = &l->value[l->node->out[i]];
    const int64_t item = (int64_t)dr_dtype_bytes(y->dtype);
    struct dr_mix_operand o = {
        .kind = y->dtype == DR_U8 ? DR_MIX_BYTES : DR_MIX_FLOATS,
        .item = (int32_t)item,
        .per_sample = y->bytes / item / y->shape.dim[0],
        .x = l->in[i],
        .y = l->out[i],
    };
    if (is_plane(x)) {
        o.c = (int32_t)dr_planes_channels(x);
        o.kind = cut ? DR_MIX_PIXELS : o.kind;
    } else if (x->dtype == DR_I32) {
        o.c = (int32_t)y->shape.dim[y->shape.rank - 1];
        o.kind = DR_MIX_CLASSES;
    }
    return o;
}

static struct dr_mix mix_of(const struct dr_launch *l, bool cut) {
    const struct mix *a = l->node->attrs;
    struct dr_mix m = {.cut = cut, .alpha = a->alpha, .seed = l->seed, .key = l->node->key};
    for (uint32_t i = 0; i < l->node->n_out && m.n == 0; i++) {
        const struct dr_value *x = &l->value[l->node->in[i]];
        if (is_plane(x)) {
            m.n = x->shape.dim[0];
            m.h = (int32_t)x->shape.dim[1];
            m.w = (int32_t)x->shape.dim[2];
        }
    }
    return m;
}

static void mix_cpu(const struct dr_launch *l, struct dr_cpu *cpu, bool cut) {
    const struct dr_mix m = mix_of(l, cut);
    for (uint32_t i = 0; i < l->node->n_out; i++) {
        const struct dr_mix_operand o = operand_of(l, i, cut);
        dr_cpu_mix(cpu, &m, dr_planes_batch(l), &o);
    }
}
DR_CUDA_LAUNCHER mix_cuda(const struct dr_launch *l, struct dr_cuda *cuda, bool cut) {
    const struct dr_mix m = mix_of(l, cut);
    int err = 0;
    for (uint32_t i = 0; i < l->node->n_out && !err; i += DR_MIX_OPERANDS) {
        struct dr_mix_operand o[DR_MIX_OPERANDS];
        uint32_t n = 0;
        for (; n < DR_MIX_OPERANDS && i + n < l->node->n_out; n++)
            o[n] = operand_of(l, i + n, cut);
        err = dr_cuda_mix(&m, dr_planes_batch(l), o, n, cuda->stream);
    }
    return err;
}

/* ---- mixup ---- */
static bool mixup_infer(struct dr_infer *c) {
    return mix_infer(c, false);
}
static void mixup_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    mix_cpu(l, cpu, false);
}
DR_CUDA_LAUNCHER mixup_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    return mix_cuda(l, cuda, false);
}
static struct dr_cost mixup_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_planes_cost(g, n, 3);
}
const struct dr_op dr_op_mixup = {
    .name = "mixup",
    .doc = "Mixes each sample, and its label, with a partner; labels become shares of classes.",
    .flags = DR_OP_AUGMENT | DR_OP_RANDOM | DR_OP_HEADER | DR_OP_EVAL_PASS,
    .attrs = mix_attrs,
    .n_attrs = DR_COUNT(mix_attrs),
    .attrs_bytes = sizeof(struct mix),
    .min_in = 2,
    .max_in = UINT32_MAX,
    .infer = mixup_infer,
    .cost = mixup_cost,
    .cpu = mixup_cpu,
    DR_CUDA(mixup_cuda),
};

/* ---- cutmix ---- */
static bool cutmix_infer(struct dr_infer *c) {
    return mix_infer(c, true);
}
static void cutmix_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    mix_cpu(l, cpu, true);
}
DR_CUDA_LAUNCHER cutmix_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    return mix_cuda(l, cuda, true);
}
const struct dr_op dr_op_cutmix = {
    .name = "cutmix",
    .doc = "Puts a rectangle of a partner into each sample, its mask too; labels become shares of "
           "classes.",
    .flags = DR_OP_AUGMENT | DR_OP_RANDOM | DR_OP_HEADER | DR_OP_EVAL_PASS,
    .attrs = mix_attrs,
    .n_attrs = DR_COUNT(mix_attrs),
    .attrs_bytes = sizeof(struct mix),
    .min_in = 2,
    .max_in = UINT32_MAX,
    .infer = cutmix_infer,
    .cost = move_cost,
    .cpu = cutmix_cpu,
    DR_CUDA(cutmix_cuda),
};
