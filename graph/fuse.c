/* fuse: what follows a kernel becomes the last thing that it does.
 *
 * Before: activations, norms and sums are nodes of their own, gradients are nodes. After, in this
 * order of preference:
 *
 * - A kernel that can (DR_OP_FUSES*) applies a norm by stored statistics, adds another value and
 *   applies an activation before it stores: y = act(norm(result) + add), each at most once and in
 *   this order; the first fields of its attributes (struct dr_fused) say what. The norm's tensors
 *   become operands of the kernel and stay as they are stored: nothing is folded into weights, so
 *   that files, checksums and numbers are the same.
 * - A kernel that can stores what a pool leaves of its result (fuse_pools.c).
 * - A kernel that can read u8 pixels does what a normalize above it does (fuse_pixels.c).
 * - Other pointwise ops that follow each other become one `pointwise` node (fuse_chains.c).
 *
 * Sums of gradients are left to the chains: with the gradient of the activation above, which reads
 * the sum and the output, as many bytes move as from the end of a dgrad.
 *
 * A value in between is gone, so it must have no other reader, and nobody may have asked for it.
 * Gradients read what they need: those of the activations that kernels know read the output, and
 * that of a norm by stored statistics reads only these, so that they stay as they are; a gradient
 * that does read the value before is a reader, and prevents the fusion.
 *
 * Of the two operands of a sum the one at the end of the longer path takes the other one up: the
 * shorter path may run beside it. A sum is the same bits whichever way round it is taken. On the
 * CPU the kernels do the arithmetic of the separate nodes, bit for bit; on CUDA a norm is one
 * multiply-add by scale and shift, which rounds otherwise. */
#include "graph/fold.h"
#include "graph/passes.h"
#include <string.h>

/* A kernel knows an activation with its default attributes only. */
static bool has_defaults(struct dr_graph *g, const struct dr_node *n) {
    void *def = dr_alloc(g->arena, n->op->attrs_bytes + 1);
    dr_attrs_default(n->op, def);
    return memcmp(n->attrs, def, n->op->attrs_bytes) == 0;
}

static int32_t activation_of(struct dr_graph *g, const struct dr_node *n) {
    for (int32_t i = DR_ACT_NONE + 1; i < DR_ACTIVATIONS; i++) {
        if (strcmp(n->op->name, dr_activation_word[i]) == 0) {
            return n->n_in == 1 && has_defaults(g, n) ? i : DR_ACT_NONE;
        }
    }
    return DR_ACT_NONE;
}

/* A number among the attributes of the op's schema. */
static double number_of(const struct dr_node *n, const char *name) {
    for (uint32_t i = 0; i < n->op->n_attrs; i++) {
        const struct dr_attr *a = &n->op->attrs[i];
        if (strcmp(a->name, name) == 0 && a->kind == DR_ATTR_FLOAT) {
            return *(const double *)((const char *)n->attrs + a->offset);
        }
    }
    DR_ASSERT(!"no such attribute");
    return 0;
}

struct fusing {
    struct dr_folding f;
    struct dr_fused *does; /* by root */
};

static struct dr_fused fused_of(const struct dr_node *n) {
    const uint32_t any = DR_OP_FUSES | DR_OP_FUSES_NORM | DR_OP_FUSES_ADD;
    if (!(n->op->flags & any)) {
        return (struct dr_fused){0};
    }
    DR_ASSERT(n->op->attrs_bytes >= sizeof(struct dr_fused));
    return *(const struct dr_fused *)n->attrs;
}

/* Does the group under input k take this up? flag: what its root's kernel must be able to do. */
static uint32_t taker(const struct fusing *x, uint32_t node, uint32_t k, uint32_t flag) {
    const uint32_t root = dr_folding_root(&x->f, node, k);
    if (root == DR_NONE || !(x->f.g->node.at[root].op->flags & flag)) {
        return DR_NONE;
    }
    const struct dr_fused *d = &x->does[root];
    const bool done = d->activation != DR_ACT_NONE || (flag != DR_OP_FUSES && d->add) ||
                      (flag == DR_OP_FUSES_NORM && d->norm);
    return done ? DR_NONE : root;
}

static void fuse_activation(struct fusing *x, uint32_t node, int32_t activation) {
    const uint32_t root = taker(x, node, 0, DR_OP_FUSES);
    if (root != DR_NONE) {
        x->does[root].activation = activation;
        dr_folding_join(&x->f, node, root, x->f.g->node.at[node].op->name);
    }
}

static void fuse_norm(struct fusing *x, uint32_t node) {
    const uint32_t root = taker(x, node, 0, DR_OP_FUSES_NORM);
    if (root != DR_NONE) {
        x->does[root].norm = true;
        x->does[root].eps = number_of(&x->f.g->node.at[node], "eps");
        dr_folding_join(&x->f, node, root, "batch_norm");
    }
}

static void fuse_add(struct fusing *x, uint32_t node) {
    uint32_t best = DR_NONE;
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t root = taker(x, node, k, DR_OP_FUSES_ADD);
        if (root != DR_NONE && (best == DR_NONE || x->f.depth[root] > x->f.depth[best])) {
            best = root;
        }
    }
    if (best != DR_NONE) {
        x->does[best].add = true;
        dr_folding_join(&x->f, node, best, "add");
    }
}

static struct dr_graph *fuse_into_kernels(struct dr_graph *g) {
    struct fusing x = {.f = dr_folding_create(g),
                       .does = DR_NEW_N(g->arena, struct dr_fused, g->node.n)};
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        const int32_t activation = activation_of(g, n);
        x.does[i] = fused_of(n);
        if (activation != DR_ACT_NONE) {
            fuse_activation(&x, i, activation);
        } else if (strcmp(n->op->name, "batch_norm_infer") == 0) {
            fuse_norm(&x, i);
        } else if (strcmp(n->op->name, "add") == 0 && n->n_in == 2) {
            fuse_add(&x, i);
        }
    }
    uint32_t *id = NULL;
    struct dr_graph *ng = dr_folding_end(&x.f, &id);
    for (uint32_t i = 0; i < g->node.n; i++) {
        if (x.f.text[i]) {
            *(struct dr_fused *)ng->node.at[id[i]].attrs = x.does[i];
        }
    }
    return ng;
}

struct dr_graph *dr_pass_fuse(struct dr_graph *g, const struct dr_op_table *ops) {
    return dr_fuse_chains(dr_fuse_pixels(dr_fuse_pools(fuse_into_kernels(g))), ops);
}
