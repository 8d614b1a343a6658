/* Cases of kernels that do what stood below them (struct dr_fused), and of chains of pointwise ops:
 * built as nodes of their own, then fused by the pass. */
#include "tests/fake_cuda_lab.h"
#include "ops/common.h"
#include <math.h>
#include <string.h>

/* ---- kernels ---- */
struct base {
    const char *op, *yaml;
    struct dr_shape x;
    struct dr_conv conv; /* of convolutions: as the references take it */
};

/* add 1: the kernel's value comes first; 2: second. */
static void kernel(struct lab *l, const struct base *b, bool norm, int add, int act) {
    struct lab_case c = lab_case(l, b->x.dim[0]);
    c.conv = &b->conv;
    uint32_t v = lab_floats(&c, "x", b->x, NULL);
    uint32_t node = lab_node(&c, b->op, b->yaml, DR_ACT_NONE, &v, 1);
    v = node == DR_NONE ? DR_NONE : rig_out(&c.r, node, 0);
    if (norm && v != DR_NONE) {
        node = lab_node(&c, "batch_norm_infer", "{eps: 0.01}", DR_ACT_NONE, &v, 1);
        v = rig_out(&c.r, node, 0);
    }
    if (add && v != DR_NONE) {
        const uint32_t other = lab_floats(&c, "other", c.r.g->value.at[v].shape, NULL);
        const uint32_t in[2][2] = {{v, other}, {other, v}};
        v = rig_out(&c.r, lab_node(&c, "add", "{}", DR_ACT_NONE, in[add - 1], 2), 0);
    }
    if (act && v != DR_NONE) {
        lab_node(&c, dr_activation_word[act], "{}", DR_ACT_NONE, &v, 1);
    }
    if (!c.broken) {
        rig_fuse(&c.r);
    }
    lab_check(&c);
}

static void kernels(struct lab *l) {
    /* n, h, w, c, k, kh, kw, ho, wo, sh, sw, dh, dw, four pads, groups */
    const struct base base[] = {
        {"conv2d",
         "{filters: 5, kernel: 3}",
         DR_SHAPE(2, 6, 7, 3),
         {2, 6, 7, 3, 5, 3, 3, 4, 5, 1, 1, 1, 1, 0, 0, 0, 0, 1}},
        {"conv2d",
         "{filters: 72, kernel: 3, padding: 1, bias: no}",
         DR_SHAPE(1, 9, 20, 16),
         {1, 9, 20, 16, 72, 3, 3, 9, 20, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
        {"conv2d",
         "{filters: 64, kernel: 1}",
         DR_SHAPE(1, 12, 11, 64),
         {1, 12, 11, 64, 64, 1, 1, 12, 11, 1, 1, 1, 1, 0, 0, 0, 0, 1}},
        {"conv_transpose2d",
         "{filters: 6, kernel: 2, stride: 3}",
         DR_SHAPE(2, 4, 5, 3),
         {2, 11, 14, 6, 3, 2, 2, 4, 5, 3, 3, 1, 1, 0, 0, 0, 0, 1}},
        {"conv_transpose2d",
         "{filters: 64, kernel: 3, bias: no}",
         DR_SHAPE(1, 9, 8, 32),
         {1, 11, 10, 64, 32, 3, 3, 9, 8, 1, 1, 1, 1, 0, 0, 0, 0, 1}},
        {"linear", "{features: 33}", DR_SHAPE(70, 20), {0}},
        {"linear", "{features: 64, bias: no}", DR_SHAPE(3, 4, 64), {0}},
        {"batch_norm_infer", "{}", DR_SHAPE(2, 3, 4, 5), {0}},
        {"batch_norm", "{}", DR_SHAPE(130, 64), {0}},
    };
    for (size_t i = 0; i < DR_COUNT(base); i++) {
        const bool is_norm = strncmp(base[i].op, "batch", 5) == 0;
        for (int act = DR_ACT_NONE; act < DR_ACTIVATIONS; act++) {
            for (int add = 0; add < 3; add++) {
                kernel(l, &base[i], false, add, act);
                if (!is_norm) {
                    kernel(l, &base[i], true, add, act);
                }
            }
        }
    }
}

/* ---- chains ---- */
/* Ops one below the other over n values; further operands are new ones. */
static void chain(struct lab *l, const char *const *ops, uint32_t count, int64_t n, bool odd) {
    struct lab_case c = lab_case(l, n);
    uint32_t v = DR_NONE;
    for (uint32_t i = 0; i < count && !c.broken; i++) {
        const uint32_t n_in = dr_op_find(dr_ops(), ops[i])->min_in;
        const uint32_t at = (uint32_t)lab_below(l, n_in);
        uint32_t in[3];
        for (uint32_t k = 0; k < n_in; k++) {
            const char *name = dr_printf(c.r.g->arena, "x%u.%u", i, k);
            in[k] = k == at && v != DR_NONE ? v
                    : odd                   ? lab_odd_floats(&c, name, DR_SHAPE(n, 1))
                                            : lab_floats(&c, name, DR_SHAPE(n, 1), NULL);
        }
        const char *yaml = strcmp(ops[i], "clamp") == 0 ? "{min: -0.5, max: 0.75}" : "{}";
        const uint32_t node = lab_node(&c, ops[i], yaml, DR_ACT_NONE, in, n_in);
        v = c.broken ? DR_NONE : rig_out(&c.r, node, 0);
    }
    if (!c.broken) {
        rig_fuse(&c.r);
    }
    lab_check(&c);
}

static void chains(struct lab *l) {
    /* whose results differ little where their operands do */
    static const char *const smooth[] = {"add",  "sub",       "mul",          "abs",        "clamp",
                                         "relu", "tanh",      "sigmoid",      "leaky_relu", "silu",
                                         "gelu", "tanh_grad", "sigmoid_grad", "neg"};
    static const int64_t size[] = {1, 255, 1023, 1024, 1025, 4 * 2048 * 256 + 5};
    for (uint32_t i = 0; i < dr_ops()->n; i++) { /* each function, in the middle */
        if (dr_ops()->op[i]->step) {
            const char *const ops[] = {"mul", dr_ops()->op[i]->name, "neg"};
            chain(l, ops, 3, 1000, false);
            chain(l, ops, 3, 1000, true);
        }
    }
    for (size_t i = 0; i < DR_COUNT(size); i++) {
        chain(l, (const char *[]){"add", "mul", "relu_grad"}, 3, size[i], false);
    }
    for (uint32_t length = 2; length < 20; length++) {
        const char *ops[20] = {"mul"};
        for (uint32_t k = 1; k < length; k++) {
            ops[k] = smooth[lab_below(l, DR_COUNT(smooth))];
        }
        chain(l, ops, length, 700, false);
    }
}

void lab_fused_cases(struct lab *l) {
    kernels(l);
    lab_hopper_cases(l);
    chains(l);
}
