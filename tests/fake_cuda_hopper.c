/* Cases of convolutions that read u8 and normalize it as they load, or store the largest of 2 x 2
 * outputs: built as nodes of their own, then fused by the pass for the device under test. */
#include "kernels/cuda/conv_way.h"
#include "ops/common.h"
#include "tests/fake_cuda_lab.h"
#include <string.h>

struct shape {
    int64_t n, h, w, c, k, kernel, stride, pad;
};
struct end {
    bool norm, add;
    int act;
};

static struct dr_conv conv_of(const struct shape *s) {
    return (struct dr_conv){.n = s->n,
                            .h = s->h,
                            .w = s->w,
                            .c = s->c,
                            .k = s->k,
                            .kh = s->kernel,
                            .kw = s->kernel,
                            .ho = (s->h + 2 * s->pad - s->kernel) / s->stride + 1,
                            .wo = (s->w + 2 * s->pad - s->kernel) / s->stride + 1,
                            .sh = s->stride,
                            .sw = s->stride,
                            .dh = 1,
                            .dw = 1,
                            .pt = s->pad,
                            .pl = s->pad,
                            .pb = s->pad,
                            .pr = s->pad,
                            .groups = 1};
}

/* Means 0.1, 0.2, ..., deviations 0.25, 1.25, ... by channel. */
static uint32_t normalize(struct lab_case *c, uint32_t x, int64_t channels) {
    struct dr_text t = {.arena = c->r.g->arena};
    const int64_t n = rig_elements(&c->r, x);
    float *pixels = dr_alloc(c->r.g->arena, (size_t)n * sizeof *pixels);
    dr_text_add(&t, "{mean: [");
    for (int64_t i = 0; i < channels; i++) {
        dr_text_add(&t, "%s0.%d", i ? ", " : "", (int)i + 1);
    }
    dr_text_add(&t, "], std: [");
    for (int64_t i = 0; i < channels; i++) {
        dr_text_add(&t, "%s%d.25", i ? ", " : "", (int)i);
    }
    dr_text_add(&t, "]}");
    for (int64_t i = 0; i < n; i++) {
        const double ch = (double)(i % channels);
        const double v = ((const uint8_t *)c->r.at[x])[i] / 255.0 - (ch + 1) / 10;
        pixels[i] = lab_rounded((float)(v / (ch + 0.25)), c->lab->half);
    }
    c->pixels = pixels;
    const uint32_t node = lab_node(c, "normalize", t.at, DR_ACT_NONE, &x, 1);
    return node == DR_NONE ? DR_NONE : rig_out(&c->r, node, 0);
}

/* Float values of a step as if they were stored so. */
static void store_as(struct dr_graph *g, enum dr_dtype from, enum dr_dtype to) {
    for (uint32_t v = 0; v < g->value.n; v++) {
        struct dr_value *x = &g->value.at[v];
        if (x->kind == DR_STEP && x->dtype == from) {
            x->dtype = to;
            x->bytes = dr_elements(x) * (int64_t)dr_dtype_bytes(to);
        }
    }
}

/* As a plan for this device would be; says so if a node was to do `what` and does not, or does. */
static void fuse(struct lab_case *c, const char *what,
                 bool does(const struct lab_case *c, const struct dr_node *n), bool wanted) {
    struct lab *l = c->lab;
    c->r.g->device = l->device.caps;
    c->r.g->tf32 = l->device.tf32;
    store_as(c->r.g, DR_F32, l->half);
    rig_fuse(&c->r);
    store_as(c->r.g, l->half, DR_F32);
    bool found = false;
    for (uint32_t i = 0; i < c->r.g->node.n; i++) {
        found |= does(c, &c->r.g->node.at[i]);
    }
    if (found != wanted) {
        printf("FAILED conv2d: (in: %s): it does %s%s\n", c->label, found ? "" : "not ", what);
        l->failed++;
    }
}

static const char *yaml_of(struct lab_case *c, const struct shape *s) {
    return dr_printf(c->r.g->arena, "{filters: %d, kernel: %d, stride: %d, padding: %d}", (int)s->k,
                     (int)s->kernel, (int)s->stride, (int)s->pad);
}
/* The output of a node below v; DR_NONE: something is broken. */
static uint32_t below(struct lab_case *c, const char *op, const char *yaml, uint32_t v) {
    const uint32_t node = c->broken ? DR_NONE : lab_node(c, op, yaml, DR_ACT_NONE, &v, 1);
    return node == DR_NONE ? DR_NONE : rig_out(&c->r, node, 0);
}

static void pixels(struct lab *l, const struct shape *s, struct end e, bool reads) {
    struct lab_case c = lab_case(l, s->n);
    const struct dr_conv conv = conv_of(s);
    const char *yaml = yaml_of(&c, s);
    const uint32_t x = lab_bytes(&c, "x", DR_SHAPE(s->n, s->h, s->w, s->c), DR_IMAGE, 256);
    c.conv = &conv;
    snprintf(c.label, sizeof c.label, "u8, conv2d %s", yaml);
    uint32_t v = below(&c, "conv2d", yaml, normalize(&c, x, s->c));
    v = e.norm ? below(&c, "batch_norm_infer", "{eps: 0.01}", v) : v;
    if (e.add && !c.broken) {
        const uint32_t other = lab_floats(&c, "other", c.r.g->value.at[v].shape, NULL);
        const uint32_t node = lab_node(&c, "add", "{}", DR_ACT_NONE, (uint32_t[]){v, other}, 2);
        v = node == DR_NONE ? DR_NONE : rig_out(&c.r, node, 0);
    }
    if (e.act) {
        below(&c, dr_activation_word[e.act], "{}", v);
    }
    if (!c.broken) {
        const bool tensor_cores = l->half != DR_F32 || l->device.tf32;
        fuse(&c, "read u8", lab_reads_pixels, reads && l->device.caps.hopper && tensor_cores);
    }
    lab_check(&c);
}

/* A convolution, and the largest of 2 x 2. */
static void pools(struct lab *l, const struct shape *s, struct end e, bool ceil, bool taken) {
    struct lab_case c = lab_case(l, s->n);
    const struct dr_conv conv = conv_of(s);
    const char *yaml = yaml_of(&c, s);
    uint32_t v = lab_floats(&c, "x", DR_SHAPE(s->n, s->h, s->w, s->c), NULL);
    c.conv = &conv;
    snprintf(c.label, sizeof c.label, "conv2d %s, pooled", yaml);
    v = below(&c, "conv2d", yaml, v);
    v = e.norm ? below(&c, "batch_norm_infer", "{eps: 0.01}", v) : v;
    v = e.act ? below(&c, dr_activation_word[e.act], "{}", v) : v;
    below(&c, "max_pool2d", ceil ? "{kernel: 2, ceil_mode: true}" : "{kernel: 2}", v);
    if (!c.broken) {
        fuse(&c, "pool", lab_pools, taken);
    }
    lab_check(&c);
}

static void pixel_cases(struct lab *l) {
    static const struct shape shapes[] = {
        {2, 19, 22, 3, 24, 7, 2, 3}, {4, 9, 13, 3, 96, 11, 4, 5}, {1, 14, 10, 3, 8, 3, 1, 0},
        {2, 31, 70, 3, 64, 3, 1, 1}, {3, 11, 8, 1, 32, 5, 1, 2},  {2, 9, 7, 2, 16, 3, 2, 1},
        {2, 10, 9, 4, 40, 3, 1, 1},  {1, 12, 7, 5, 24, 4, 3, 2},  {1, 9, 8, 6, 16, 3, 1, 1},
        {1, 8, 9, 7, 8, 2, 1, 1},    {3, 6, 7, 8, 32, 3, 1, 1},
    };
    static const struct end ends[] = {
        {false, false, DR_ACT_NONE},
        {true, false, DR_ACT_RELU},
        {true, true, DR_ACT_LEAKY_RELU},
    };
    for (size_t i = 0; i < DR_COUNT(shapes); i++) {
        for (size_t k = 0; k < DR_COUNT(ends); k++) {
            pixels(l, &shapes[i], ends[k], true);
        }
    }
    pixels(l, &shapes[0], (struct end){false, false, DR_ACT_TANH}, false);
    pixels(l, &(struct shape){1, 8, 8, 16, 32, 3, 1, 1}, ends[0], false);
}

/* Whether the kernel of this device for that shape can pool. */
static bool can_pool(const struct lab *l, const struct shape *s) {
    const struct dr_device_caps *d = &l->device.caps;
    const struct dr_conv_card card = {d->arch, d->sms, d->hopper, l->device.tf32};
    const struct dr_conv conv = conv_of(s);
    struct dr_conv_way way;
    return l->half != DR_F32 &&
           dr_cuda_conv_pool_way(&conv, l->half == DR_F16 ? DR_TYPE_F16 : DR_TYPE_BF16, DR_ACT_RELU,
                                 &card, &way);
}

static void pool_cases(struct lab *l) {
    static const struct shape shapes[] = {
        {2, 18, 20, 64, 64, 3, 1, 1}, {1, 33, 25, 64, 72, 3, 1, 1},  {3, 16, 8, 64, 200, 3, 1, 1},
        {2, 40, 37, 32, 64, 5, 2, 2}, {1, 50, 50, 16, 24, 7, 1, 3},  {4, 21, 11, 128, 64, 3, 2, 1},
        {1, 70, 60, 64, 64, 3, 2, 1}, {1, 150, 151, 32, 64, 3, 1, 1}};
    for (size_t i = 0; i < DR_COUNT(shapes); i++) {
        for (int norm = 0; norm < 2; norm++) {
            pools(l, &shapes[i], (struct end){norm, false, DR_ACT_RELU}, false,
                  can_pool(l, &shapes[i]));
        }
    }
    const struct end relu = {false, false, DR_ACT_RELU}, leaky = {false, false, DR_ACT_LEAKY_RELU};
    pools(l, &shapes[0], leaky, false, false);
    pools(l, &shapes[0], relu, true, can_pool(l, &shapes[0])); /* 18 x 20: the same windows */
    pools(l, &shapes[1], relu, true, false);
}

void lab_hopper_cases(struct lab *l) {
    pixel_cases(l);
    pool_cases(l);
}
