/* color_jitter and grayscale: torchvision.transforms.v2's ColorJitter and RandomGrayscale, each
 * sample by its own draw, on images alone. Bytes keep the range 0..255, floats 0..1: colours come
 * before `normalize`, and an image that went through it is refused. */
#include "augment/planes.h"
#include "kernels/cpu/colour.h"
#include "kernels/cuda/colour.h"
#include <string.h>

/* ---- what both share ---- */
/* Whether one of the numbers that a node's attribute lists is not `value`. */
static bool lists_other_than(const struct dr_node *n, const char *attr, double value) {
    for (uint32_t i = 0; i < n->op->n_attrs; i++) {
        const struct dr_attr *a = &n->op->attrs[i];
        const void *at = (const char *)n->attrs + a->offset;
        if (a->kind != DR_ATTR_FLOATS || strcmp(a->name, attr) != 0)
            continue;
        const struct dr_floats *f = at;
        for (uint32_t k = 0; k < f->n; k++)
            if (f->at[k] != value)
                return true;
    }
    return false;
}

/* The normalize node that an operand went through, with a mean or std of its own; DR_NONE: none. */
static uint32_t normalized_by(const struct dr_graph *g, uint32_t value) {
    while (g->value.at[value].kind == DR_STEP) {
        const uint32_t id = g->value.at[value].producer;
        const struct dr_node *n = &g->node.at[id];
        if (strcmp(n->op->name, "normalize") == 0) {
            return lists_other_than(n, "mean", 0) || lists_other_than(n, "std", 1) ? id : DR_NONE;
        }
        uint32_t i = 0;
        while (i < n->n_out && n->out[i] != value)
            i++;
        if (!(n->op->flags & DR_OP_AUGMENT) || n->op->outputs != 0 || i >= n->n_in)
            return DR_NONE;
        value = n->in[i];
    }
    return DR_NONE;
}

static bool colour_infer(struct dr_infer *c) {
    const uint32_t n = dr_planes_n(c->g, &c->g->node.at[c->node]);
    for (uint32_t i = 0; i < n; i++) {
        if (!dr_planes_check_image(c, i, true))
            return false;
        const struct dr_value v = *dr_infer_in(c, i);
        const uint32_t by = normalized_by(c->g, c->g->node.at[c->node].in[i]);
        if (by != DR_NONE)
            return dr_infer_error(c,
                                  "'%s' is no longer in [0, 1], where colours are defined: '%s' "
                                  "normalizes it; put colours before it",
                                  v.name, c->g->node.at[by].name);
        if (!dr_infer_out(c, dr_printf(c->g->arena, "%u", (unsigned)i), v.dtype, v.shape,
                          v.meaning))
            return false;
    }
    return true;
}

/* Sizes and keys for one operand. */
static struct dr_colour colour_of(const struct dr_value *x) {
    const int64_t c = dr_planes_channels(x);
    return (struct dr_colour){
        .n = x->shape.dim[0],
        .pixels = x->shape.dim[1] * x->shape.dim[2],
        .c = (int32_t)c,
        .u8 = x->dtype == DR_U8,
    };
}

/* ---- color_jitter ---- */
struct color_jitter {
    double brightness;
    double contrast;
    double saturation;
    double hue;
};
#define JITTER_ATTR(field, text, high)                                                             \
    {                                                                                              \
        .name = #field, .doc = text, .kind = DR_ATTR_FLOAT, .max = high,                           \
        .offset = offsetof(struct color_jitter, field)                                             \
    }
static const struct dr_attr color_jitter_attrs[] = {
    JITTER_ATTR(brightness, "factor from 1 - b to 1 + b", 1000.0),
    JITTER_ATTR(contrast, "factor from 1 - c to 1 + c", 1000.0),
    JITTER_ATTR(saturation, "factor from 1 - s to 1 + s", 1000.0),
    JITTER_ATTR(hue, "shift from -h to h of the circle", 0.5),
};

static struct dr_colour jitter_of(const struct color_jitter *a, const struct dr_value *x) {
    struct dr_colour c = colour_of(x);
    const double by[] = {a->brightness, a->contrast, a->saturation, a->hue};
    for (int k = 0; k < DR_JITTERS; k++) {
        const double middle = k == DR_HUE ? 0 : 1;
        c.on[k] = by[k] != 0;
        c.least[k] = k != DR_HUE && by[k] > 1 ? 0 : middle - by[k];
        c.most[k] = middle + by[k];
    }
    return c;
}
static struct dr_colour jitter_launch(const struct dr_launch *l, uint32_t i) {
    struct dr_colour c = jitter_of(l->node->attrs, &l->value[l->node->in[i]]);
    c.seed = l->seed;
    c.key = l->node->key;
    return c;
}
static void color_jitter_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    for (uint32_t i = 0; i < l->node->n_out; i++) {
        const struct dr_colour c = jitter_launch(l, i);
        dr_cpu_colour(cpu, &c, dr_planes_batch(l), l->in[i], l->out[i]);
    }
}
DR_CUDA_LAUNCHER color_jitter_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    int err = 0;
    for (uint32_t i = 0; i < l->node->n_out && !err; i++) {
        const struct dr_colour c = jitter_launch(l, i);
        err =
            dr_cuda_colour(&c, dr_planes_batch(l), l->in[i], l->out[i], l->workspace, cuda->stream);
    }
    return err;
}
static struct dr_choice color_jitter_choose(const struct dr_graph *g, const struct dr_node *n,
                                            bool cuda) {
    struct dr_choice choice = {.kernel = "pixel by pixel"};
    for (uint32_t i = 0; i < n->n_out && cuda; i++) {
        const struct dr_colour c = jitter_of(n->attrs, &g->value.at[n->in[i]]);
        const int64_t bytes = dr_cuda_colour_bytes(&c);
        choice.workspace_bytes = bytes > choice.workspace_bytes ? bytes : choice.workspace_bytes;
    }
    return choice;
}
static struct dr_cost color_jitter_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_planes_cost(g, n, 30);
}
const struct dr_op dr_op_color_jitter = {
    .name = "color_jitter",
    .doc = "Random brightness, contrast, saturation and hue of images, in a random order.",
    .flags = DR_OP_AUGMENT | DR_OP_RANDOM | DR_OP_HEADER | DR_OP_EVAL_PASS,
    .attrs = color_jitter_attrs,
    .n_attrs = DR_COUNT(color_jitter_attrs),
    .attrs_bytes = sizeof(struct color_jitter),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .infer = colour_infer,
    .cost = color_jitter_cost,
    .choose = color_jitter_choose,
    .cpu = color_jitter_cpu,
    DR_CUDA(color_jitter_cuda),
};

/* ---- grayscale ---- */
struct grayscale {
    double p;
};
static const struct dr_attr grayscale_attrs[] = {
    {.name = "p",
     .doc = "probability for a sample",
     .kind = DR_ATTR_FLOAT,
     .def = 0.1,
     .max = 1,
     .offset = offsetof(struct grayscale, p)},
};

static struct dr_colour grayscale_launch(const struct dr_launch *l, uint32_t i) {
    struct dr_colour c = colour_of(&l->value[l->node->in[i]]);
    c.grayscale = true;
    c.p = ((const struct grayscale *)l->node->attrs)->p;
    c.seed = l->seed;
    c.key = l->node->key;
    return c;
}
static void grayscale_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    for (uint32_t i = 0; i < l->node->n_out; i++) {
        const struct dr_colour c = grayscale_launch(l, i);
        dr_cpu_colour(cpu, &c, dr_planes_batch(l), l->in[i], l->out[i]);
    }
}
DR_CUDA_LAUNCHER grayscale_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    int err = 0;
    for (uint32_t i = 0; i < l->node->n_out && !err; i++) {
        const struct dr_colour c = grayscale_launch(l, i);
        err = dr_cuda_colour(&c, dr_planes_batch(l), l->in[i], l->out[i], NULL, cuda->stream);
    }
    return err;
}
static struct dr_cost grayscale_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_planes_cost(g, n, 3);
}
const struct dr_op dr_op_grayscale = {
    .name = "grayscale",
    .doc = "Without colour, at random; the channels stay.",
    .flags = DR_OP_AUGMENT | DR_OP_RANDOM | DR_OP_HEADER | DR_OP_EVAL_PASS,
    .attrs = grayscale_attrs,
    .n_attrs = DR_COUNT(grayscale_attrs),
    .attrs_bytes = sizeof(struct grayscale),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .infer = colour_infer,
    .cost = grayscale_cost,
    .cpu = grayscale_cpu,
    DR_CUDA(grayscale_cuda),
};
