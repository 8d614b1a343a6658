/* Folding nodes into nodes above them: what the parts of the fuse pass share.
 *
 * A group is a node (its root) and the nodes folded into it so far; its result is the output of the
 * last one. A node may join a group if nothing but it reads the group's result, so that the result
 * need not exist, and if the root may move down to the place where that node stands. */
#ifndef DR_GRAPH_FOLD_H
#define DR_GRAPH_FOLD_H
#include "graph/op.h"

struct dr_folding {
    struct dr_graph *g;
    struct dr_users users;
    uint32_t *to;      /* by node: its group's root */
    uint32_t *result;  /* by root: the value; DR_NONE: it has no outputs */
    uint32_t *until;   /* by root: the first node that the root must stay above */
    uint32_t *depth;   /* by node: nodes on the longest path to it */
    const char **text; /* by root: "conv2d + relu"; NULL: nothing is folded in */
    uint32_t n;        /* how many nodes were folded */
};
struct dr_folding dr_folding_create(struct dr_graph *g);
/* The root of the group whose result is input k of `node`, if the node may join it; else DR_NONE.
 */
uint32_t dr_folding_root(const struct dr_folding *f, uint32_t node, uint32_t k);
/* The same of a node whose output may have another shape and type than that input. */
uint32_t dr_folding_any_root(const struct dr_folding *f, uint32_t node, uint32_t k);
/* `label`: what people call the node. */
void dr_folding_join(struct dr_folding *f, uint32_t node, uint32_t root, const char *label);
/* The graph with every group as one node (g itself where nothing was folded); *id gets, by root,
 * the new node. A folded node's class is that of the last stage of the group (upstream only if all
 * of it is). */
struct dr_graph *dr_folding_end(struct dr_folding *f, uint32_t **id);

/* Nobody but its one reader, a node, needs the value. */
bool dr_folding_private(const struct dr_graph *g, const struct dr_users *u, uint32_t value);

/* A pool goes into the kernel above it. Part of dr_pass_fuse. */
struct dr_graph *dr_fuse_pools(struct dr_graph *g);
/* What turns u8 pixels into numbers goes into the kernel that reads these. Part of dr_pass_fuse. */
struct dr_graph *dr_fuse_pixels(struct dr_graph *g);
/* Pointwise ops that follow each other become one `pointwise` node. Part of dr_pass_fuse. */
struct dr_graph *dr_fuse_chains(struct dr_graph *g, const struct dr_op_table *ops);
#endif
