/* Chains of pointwise ops: the second part of the fuse pass.
 *
 * Before: what kernels can do as they store is in them. After: ops that are one function of their
 * elements (op->step) and follow each other, each the only reader of the one above it, are one node
 * `pointwise`, whose attributes (struct dr_chain) list the functions in order. The values between
 * them are never in memory. A chain is a line: a second operand that is a chain too stays a node.
 *
 * The functions are those of the separate nodes, in the same order: the same bits in fp32. Stored
 * in half precision, what was between them is not rounded to it any more. */
#include "graph/fold.h"
#include <string.h>

struct chains {
    struct dr_folding f;
    const struct dr_op_table *ops;
    struct dr_chain **chain; /* by root; NULL: it is none */
    uint32_t *inputs;        /* by root: operands so far */
};

static bool is_step(const struct dr_node *n) {
    return n->op->step && n->n_out == 1 && n->n_in >= 1;
}

/* Appends the node's functions; operand `from` is the result so far (DR_NONE: none is), the others
 * are inputs from number `first` on. False: there is no room. */
static bool append(const struct chains *x, const struct dr_node *n, uint32_t from, uint32_t first,
                   struct dr_chain *c) {
    const bool many = n->op->max_in > 3; /* a function of two, from the left */
    const uint32_t steps = many ? n->n_in - 1 : 1;
    const int32_t act = n->op->flags & DR_OP_FUSES ? *(const int32_t *)n->attrs : DR_ACT_NONE;
    if (n->n_in > DR_CHAIN_INPUTS || c->n + steps + (act != DR_ACT_NONE) > DR_CHAIN_STEPS ||
        (many && from != DR_NONE && from > 1)) {
        return false;
    }
    for (uint32_t s = 0, k = 0; s < steps; s++, c->n++) {
        c->at[c->n].step = n->op->step(n);
        c->at[c->n].n_in = many ? 2 : n->n_in;
        for (uint32_t a = 0; a < c->at[c->n].n_in; a++) {
            if (s > 0 && a == 0) {
                c->at[c->n].in[a] = DR_NONE;
            } else {
                c->at[c->n].in[a] = k == from ? DR_NONE : first++;
                k++;
            }
        }
    }
    if (act != DR_ACT_NONE) {
        const struct dr_op *op = dr_op_find(x->ops, dr_activation_word[act]);
        struct dr_node alone = {.op = op, .attrs = dr_alloc(x->f.g->arena, op->attrs_bytes + 1)};
        dr_attrs_default(op, alone.attrs);
        c->at[c->n].step = op->step(&alone);
        c->at[c->n].n_in = 1;
        c->at[c->n].in[0] = DR_NONE;
        c->n++;
    }
    return true;
}

/* Lets node i join the chain that ends in its input k. */
static bool join(struct chains *x, uint32_t i, uint32_t k) {
    const struct dr_node *n = &x->f.g->node.at[i];
    const uint32_t root = dr_folding_root(&x->f, i, k);
    if (root == DR_NONE || !x->chain[root] || x->inputs[root] + n->n_in - 1 > DR_CHAIN_INPUTS) {
        return false;
    }
    struct dr_chain longer = *x->chain[root];
    if (!append(x, n, k, x->inputs[root], &longer)) {
        return false;
    }
    *x->chain[root] = longer;
    x->inputs[root] += n->n_in - 1;
    dr_folding_join(&x->f, i, root, n->fused ? n->fused : n->op->name);
    return true;
}

/* The operand on the longest path first: the others may be computed beside it. */
static void visit(struct chains *x, uint32_t i) {
    const struct dr_graph *g = x->f.g;
    const struct dr_node *n = &g->node.at[i];
    uint32_t deepest = 0;
    for (uint32_t k = 1; k < n->n_in; k++) {
        const uint32_t a = g->value.at[n->in[k]].producer;
        const uint32_t b = g->value.at[n->in[deepest]].producer;
        if (a != DR_NONE && (b == DR_NONE || x->f.depth[a] > x->f.depth[b])) {
            deepest = k;
        }
    }
    bool joined = join(x, i, deepest);
    for (uint32_t k = 0; k < n->n_in && !joined; k++) {
        joined = k != deepest && join(x, i, k);
    }
    struct dr_chain *alone = joined ? NULL : DR_NEW_N(g->arena, struct dr_chain, 1);
    if (alone && append(x, n, DR_NONE, 0, alone)) {
        x->chain[i] = alone;
        x->inputs[i] = n->n_in;
    }
}

struct dr_graph *dr_fuse_chains(struct dr_graph *g, const struct dr_op_table *ops) {
    const struct dr_op *op = dr_op_find(ops, "pointwise");
    if (!op) {
        return g;
    }
    struct chains x = {.f = dr_folding_create(g),
                       .ops = ops,
                       .chain = DR_NEW_N(g->arena, struct dr_chain *, g->node.n),
                       .inputs = DR_NEW_N(g->arena, uint32_t, g->node.n)};
    for (uint32_t i = 0; i < g->node.n; i++) {
        if (is_step(&g->node.at[i])) {
            visit(&x, i);
        }
    }
    uint32_t *id = NULL;
    struct dr_graph *ng = dr_folding_end(&x.f, &id);
    for (uint32_t i = 0; i < g->node.n; i++) {
        if (x.f.text[i]) {
            struct dr_node *n = &ng->node.at[id[i]];
            DR_ASSERT(n->n_in == x.inputs[i]);
            n->op = op;
            n->attrs = dr_alloc(g->arena, op->attrs_bytes);
            memcpy(n->attrs, x.chain[i], sizeof *x.chain[i]);
        }
    }
    return ng;
}
