/* fuse: an activation becomes the last thing its producer does.
 *
 * Before: activations are nodes of their own, gradients are nodes. After: where an op's kernels can
 * apply the activation (DR_OP_FUSES), and nobody else reads the value before it, the activation's
 * node is gone: its producer makes its value, the first int32_t of the producer's attributes says
 * which, node->fused says so to people. Gradients of activations read only their output, so that
 * they stay as they are; a gradient that does read the value before it is a reader, and prevents
 * the fusion. */
#include "graph/passes.h"
#include <string.h>

/* A kernel knows an activation with its default attributes only. */
static bool has_defaults(struct dr_graph *g, const struct dr_node *n) {
    void *def = dr_alloc(g->arena, n->op->attrs_bytes + 1);
    dr_attrs_default(n->op, def);
    return memcmp(n->attrs, def, n->op->attrs_bytes) == 0;
}

static int32_t activation_of(struct dr_graph *g, const struct dr_node *n) {
    for (int32_t i = DR_ACT_NONE + 1; i < DR_ACT_FUSED; i++) {
        if (strcmp(n->op->name, dr_activation_word[i]) == 0) {
            return n->n_in == 1 && n->n_out == 1 && has_defaults(g, n) ? i : DR_ACT_NONE;
        }
    }
    return DR_ACT_NONE;
}

/* The value is also read by the host, or by its id in the graph. */
static bool is_asked_for(const struct dr_graph *g, uint32_t value) {
    for (uint32_t i = 0; i < g->output.n; i++) {
        if (g->output.at[i] == value) {
            return true;
        }
    }
    return false;
}

struct dr_graph *dr_pass_fuse(struct dr_graph *g) {
    const struct dr_users users = dr_graph_users(g, g->arena);
    uint32_t *to = DR_NEW_N(g->arena, uint32_t, g->node.n);
    int32_t *act = DR_NEW_N(g->arena, int32_t, g->node.n);
    uint32_t fused = 0;
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        const int32_t a = activation_of(g, n);
        to[i] = i;
        if (a == DR_ACT_NONE || g->value.at[n->in[0]].kind != DR_STEP) {
            continue;
        }
        const uint32_t x = n->in[0], p = g->value.at[x].producer;
        const struct dr_node *above = &g->node.at[p];
        if ((above->op->flags & DR_OP_FUSES) && to[p] == p && act[p] == DR_ACT_NONE &&
            *(const int32_t *)above->attrs == DR_ACT_NONE && above->out[0] == x &&
            users.first[x + 1] - users.first[x] == 1 && !is_asked_for(g, x)) {
            to[i] = p;
            act[p] = a;
            fused++;
        }
    }
    if (fused == 0) {
        return g;
    }
    struct dr_graph *ng = dr_graph_rewrite(g, to);
    for (uint32_t i = 0, id = 0; i < g->node.n; i++) {
        if (to[i] == i) {
            if (act[i] != DR_ACT_NONE) {
                *(int32_t *)ng->node.at[id].attrs = act[i];
            }
            id++;
        } else {
            const uint32_t out =
                dr_map_get(ng->value_by_name, g->value.at[g->node.at[i].out[0]].name);
            ng->node.at[ng->value.at[out].producer].fused = g->node.at[i].op->name;
        }
    }
    return ng;
}
