/* random_flip: torchvision's RandomHorizontalFlip and RandomVerticalFlip. One draw a sample, keyed
 * by (seed, node, epoch, sample), moves every input of the node, so an image and its mask cannot
 * part ways. */
#include "graph/op.h"
#include "kernels/cpu/augment.h"
#include "kernels/cuda/pointwise.h"

enum { HORIZONTAL, VERTICAL, BOTH };

struct random_flip_attrs {
    double p;
    int32_t axis;
};
static const char *const axes[] = {"horizontal", "vertical", "both"};
static const struct dr_attr random_flip_schema[] = {
    {.name = "p",
     .doc = "probability of a flip",
     .kind = DR_ATTR_FLOAT,
     .def = 0.5,
     .min = 0,
     .max = 1,
     .offset = offsetof(struct random_flip_attrs, p)},
    {.name = "axis",
     .doc = "left-right, top-bottom, or each of them with probability p",
     .kind = DR_ATTR_WORD,
     .def = HORIZONTAL,
     .words = axes,
     .n_words = 3,
     .offset = offsetof(struct random_flip_attrs, axis)},
};

static bool random_flip_infer(struct dr_infer *c) {
    const uint32_t n = c->g->node.at[c->node].n_in;
    DR_ASSERT(n > 1 && dr_infer_in(c, n - 1)->meaning == DR_HEADER);
    for (uint32_t i = 0; i + 1 < n; i++) {
        const struct dr_value v = *dr_infer_in(c, i);
        if (v.meaning == DR_LABEL)
            return dr_infer_error(c, "'%s' is a label: it has no axis to flip", v.name);
        if (v.shape.rank != 3 && v.shape.rank != 4)
            return dr_infer_error(c,
                                  "'%s' is %s: only images [N, H, W, C] and masks [N, H, W] flip",
                                  v.name, dr_shape_text(c->g->arena, &v.shape));
        const char *suffix = dr_printf(c->g->arena, "%u", (unsigned)i);
        if (!dr_infer_out(c, suffix, v.dtype, v.shape, v.meaning))
            return false;
    }
    return true;
}

static struct dr_cost random_flip_cost(const struct dr_graph *g, const struct dr_node *n) {
    struct dr_cost cost = {0, 0};
    for (uint32_t i = 0; i < n->n_out; i++)
        cost.bytes += 2.0 * (double)g->value.at[n->out[i]].bytes;
    return cost;
}

static void random_flip_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct random_flip_attrs *a = l->node->attrs;
    const struct dr_flip f = {a->axis != VERTICAL, a->axis != HORIZONTAL, a->p, l->seed,
                              l->node->key};
    const struct dr_batch *batch = l->in[l->node->n_in - 1];
    for (uint32_t i = 0; i < l->node->n_out; i++) {
        const struct dr_value *v = &l->value[l->node->out[i]];
        const int64_t c = v->shape.rank == 4 ? v->shape.dim[3] : 1;
        dr_flip_cpu(cpu, &f, batch, l->in[i], l->out[i], v->shape.dim[0], v->shape.dim[1],
                    v->shape.dim[2], (size_t)c * dr_dtype_bytes(v->dtype));
    }
}

DR_CUDA_LAUNCHER random_flip_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct random_flip_attrs *a = l->node->attrs;
    const struct dr_batch *batch = l->in[l->node->n_in - 1];
    int err = 0;
    for (uint32_t i = 0; i < l->node->n_out && !err; i++) {
        const struct dr_value *v = &l->value[l->node->out[i]];
        const int64_t c = v->shape.rank == 4 ? v->shape.dim[3] : 1;
        err = dr_cuda_flip(a->axis != VERTICAL, a->axis != HORIZONTAL, a->p, l->seed, l->node->key,
                           batch, l->in[i], l->out[i], v->shape.dim[0], v->shape.dim[1],
                           v->shape.dim[2], c * (int64_t)dr_dtype_bytes(v->dtype), cuda->stream);
    }
    return err;
}

const struct dr_op dr_op_random_flip = {
    .name = "random_flip",
    .doc = "Flips each sample with probability p; all inputs (images, masks) by the same draw.",
    .flags = DR_OP_AUGMENT | DR_OP_HEADER | DR_OP_RANDOM | DR_OP_EVAL_PASS,
    .attrs = random_flip_schema,
    .n_attrs = sizeof random_flip_schema / sizeof random_flip_schema[0],
    .attrs_bytes = sizeof(struct random_flip_attrs),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .outputs = 0,
    .infer = random_flip_infer,
    .cost = random_flip_cost,
    .cpu = random_flip_cpu,
    DR_CUDA(random_flip_cuda),
};
