/* Images as bytes, up to the kernel that reads them: a part of the fuse pass, before the chains.
 *
 * Before: a node makes numbers of u8 pixels (op->pixels: a normalize), another reads them, four or
 * two bytes each. After: where the kernel that the other one would have on this device can do that
 * as it loads (op->take_pixels: convolutions of few channels on Hopper), that node reads the
 * pixels, and the first one and its value are gone. What the kernel does at its end must be known
 * by then, since which kernel it has depends on it.
 *
 * The arithmetic and the roundings are those of the separate nodes, in the same order: the same
 * bits. A value that is also read by a gradient, by another node or by the host stays. That a
 * normalize could run ahead of the step, where its reader cannot, does not keep it: within the load
 * it is as good as free. */
#include "graph/fold.h"

/* The node above that n can do the work of; DR_NONE. */
static uint32_t above(const struct dr_graph *g, const struct dr_users *users, struct dr_node *n) {
    if (!n->op->take_pixels || !dr_folding_private(g, users, n->in[0])) {
        return DR_NONE;
    }
    const uint32_t a = g->value.at[n->in[0]].producer;
    const struct dr_node *maker = &g->node.at[a];
    struct dr_pixels p;
    const bool can = maker->op->pixels && maker->op->pixels(g, maker, &p);
    return can && n->op->take_pixels(g, n, &p) ? a : DR_NONE;
}

struct dr_graph *dr_fuse_pixels(struct dr_graph *g) {
    const struct dr_users users = dr_graph_users(g, g->arena);
    uint32_t *to = DR_NEW_N(g->arena, uint32_t, g->node.n), gone = 0;
    for (uint32_t i = 0; i < g->node.n; i++) {
        struct dr_node *n = &g->node.at[i];
        const uint32_t a = above(g, &users, n);
        to[i] = i;
        if (a != DR_NONE) {
            const char *op = g->node.at[a].op->name;
            n->fused = dr_printf(g->arena, "%s + %s", op, n->fused ? n->fused : n->op->name);
            n->in[0] = g->node.at[a].in[0];
            to[a] = DR_NONE;
            gone++;
        }
    }
    return gone ? dr_graph_rewrite(g, to) : g;
}
