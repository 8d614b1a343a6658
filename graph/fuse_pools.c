/* Pools, taken by the kernel that makes what they read: a part of the fuse pass, before pixels.
 *
 * Before: what kernels can do at their ends is in them. After: where the kernel that a node would
 * have on this device can store what a pool makes of its output instead of the output
 * (op->take_below: convolutions that end in relu, on Hopper, and the largest of 2 x 2), the pool is
 * gone, and with it a tensor four times as large as what it leaves.
 *
 * Rounding and relu keep the order of numbers, so that the bits are those of the two nodes. A value
 * that a gradient, another node or the host reads stays. */
#include "graph/fold.h"

struct dr_graph *dr_fuse_pools(struct dr_graph *g) {
    struct dr_folding f = dr_folding_create(g);
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        const uint32_t root = n->n_in == 1 ? dr_folding_any_root(&f, i, 0) : DR_NONE;
        struct dr_node *above = root == DR_NONE ? NULL : &g->node.at[root];
        if (above && above->op->take_below && above->op->take_below(g, above, n)) {
            dr_folding_join(&f, i, root, n->op->name);
        }
    }
    uint32_t *id = NULL;
    return dr_folding_end(&f, &id);
}
