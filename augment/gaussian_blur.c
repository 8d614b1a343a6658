/* gaussian_blur: torchvision.transforms.v2's GaussianBlur, each sample by a width of its own, on
 * images alone. */
#include "augment/planes.h"
#include "kernels/cpu/blur.h"
#include "kernels/cuda/blur.h"

struct gaussian_blur {
    int64_t kernel[2];
    struct dr_floats sigma;
};
static const struct dr_attr gaussian_blur_attrs[] = {
    {.name = "kernel",
     .doc = "size of the kernel, odd",
     .kind = DR_ATTR_PAIR,
     .required = true,
     .min = 1,
     .max = DR_BLUR_MAX,
     .offset = offsetof(struct gaussian_blur, kernel)},
    DR_RANGE_ATTR(gaussian_blur, sigma, "[least, most] width; not given: [0.1, 2]", 1e-3, 1000.0),
};

static bool gaussian_blur_infer(struct dr_infer *c) {
    const struct gaussian_blur *a = dr_infer_attrs(c);
    const uint32_t n = dr_planes_n(c->g, &c->g->node.at[c->node]);
    if (a->kernel[0] % 2 == 0 || a->kernel[1] % 2 == 0)
        return dr_infer_wrong(c, "kernel", "a kernel of %lldx%lld has no middle: its sizes are odd",
                              (long long)a->kernel[0], (long long)a->kernel[1]);
    if (!dr_planes_check_range(c, "sigma", &a->sigma))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!dr_planes_check_image(c, i, false))
            return false;
        const struct dr_value v = *dr_infer_in(c, i);
        if (a->kernel[0] / 2 >= v.shape.dim[1] || a->kernel[1] / 2 >= v.shape.dim[2])
            return dr_infer_wrong(c, "kernel",
                                  "a kernel of %lldx%lld reaches over the reflection of '%s', %s",
                                  (long long)a->kernel[0], (long long)a->kernel[1], v.name,
                                  dr_shape_text(c->g->arena, &v.shape));
        if (!dr_infer_out(c, dr_printf(c->g->arena, "%u", (unsigned)i), v.dtype, v.shape,
                          v.meaning))
            return false;
    }
    return true;
}

static struct dr_blur blur_of(const struct gaussian_blur *a, const struct dr_value *x) {
    struct dr_blur b = {
        .n = x->shape.dim[0],
        .h = (int32_t)x->shape.dim[1],
        .w = (int32_t)x->shape.dim[2],
        .c = (int32_t)dr_planes_channels(x),
        .kh = (int32_t)a->kernel[0],
        .kw = (int32_t)a->kernel[1],
        .u8 = x->dtype == DR_U8,
    };
    dr_planes_range(&a->sigma, 0.1, 2.0, b.sigma);
    return b;
}
static struct dr_blur blur_launch(const struct dr_launch *l, uint32_t i) {
    struct dr_blur b = blur_of(l->node->attrs, &l->value[l->node->in[i]]);
    b.seed = l->seed;
    b.key = l->node->key;
    return b;
}
static void gaussian_blur_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    for (uint32_t i = 0; i < l->node->n_out; i++) {
        const struct dr_blur b = blur_launch(l, i);
        dr_cpu_blur(cpu, &b, dr_planes_batch(l), l->in[i], l->workspace, l->out[i]);
    }
}
DR_CUDA_LAUNCHER gaussian_blur_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    int err = 0;
    for (uint32_t i = 0; i < l->node->n_out && !err; i++) {
        const struct dr_blur b = blur_launch(l, i);
        err = dr_cuda_blur(&b, dr_planes_batch(l), l->in[i], l->out[i], cuda->stream);
    }
    return err;
}
static struct dr_choice gaussian_blur_choose(const struct dr_graph *g, const struct dr_node *n,
                                             bool cuda) {
    struct dr_choice choice = {.kernel = "rows, then columns"};
    for (uint32_t i = 0; i < n->n_out && !cuda; i++) {
        const struct dr_blur b = blur_of(n->attrs, &g->value.at[n->in[i]]);
        const int64_t bytes = dr_cpu_blur_bytes(&b);
        choice.workspace_bytes = bytes > choice.workspace_bytes ? bytes : choice.workspace_bytes;
    }
    return choice;
}
static struct dr_cost gaussian_blur_cost(const struct dr_graph *g, const struct dr_node *n) {
    const struct gaussian_blur *a = n->attrs;
    return dr_planes_cost(g, n, 2.0 * (double)(a->kernel[0] + a->kernel[1]));
}
const struct dr_op dr_op_gaussian_blur = {
    .name = "gaussian_blur",
    .doc = "Blurred by a random width.",
    .flags = DR_OP_AUGMENT | DR_OP_RANDOM | DR_OP_HEADER | DR_OP_EVAL_PASS,
    .attrs = gaussian_blur_attrs,
    .n_attrs = DR_COUNT(gaussian_blur_attrs),
    .attrs_bytes = sizeof(struct gaussian_blur),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .infer = gaussian_blur_infer,
    .cost = gaussian_blur_cost,
    .choose = gaussian_blur_choose,
    .cpu = gaussian_blur_cpu,
    DR_CUDA(gaussian_blur_cuda),
};
