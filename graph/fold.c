/* Groups of nodes that become one; see fold.h. */
#include "graph/fold.h"

static void lower(uint32_t *to, uint32_t value) {
    *to = value < *to ? value : *to;
}

/* Whom a node must stay above: the readers of its outputs but the first (that is up to who folds),
 * and the nodes whose share or origin it is, which stand below it (graph/verify.c). */
static void find_until(struct dr_folding *f) {
    const struct dr_graph *g = f->g;
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        for (uint32_t k = 1; k < n->n_out; k++) {
            const uint32_t v = n->out[k];
            if (f->users.first[v] < f->users.first[v + 1]) {
                lower(&f->until[i], f->users.user[f->users.first[v]]);
            }
        }
        if (n->share != DR_NONE) {
            lower(&f->until[n->share], i);
        }
        if (n->forward != DR_NONE) {
            lower(&f->until[n->forward], i);
        }
    }
}

struct dr_folding dr_folding_create(struct dr_graph *g) {
    struct dr_folding f = {.g = g,
                           .users = dr_graph_users(g, g->arena),
                           .to = DR_NEW_N(g->arena, uint32_t, g->node.n),
                           .result = DR_NEW_N(g->arena, uint32_t, g->node.n),
                           .until = DR_NEW_N(g->arena, uint32_t, g->node.n),
                           .depth = DR_NEW_N(g->arena, uint32_t, g->node.n),
                           .text = DR_NEW_N(g->arena, const char *, g->node.n)};
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        f.to[i] = i;
        f.until[i] = DR_NONE;
        f.result[i] = n->n_out ? n->out[0] : DR_NONE;
        for (uint32_t k = 0; k < n->n_in; k++) {
            const uint32_t p = g->value.at[n->in[k]].producer;
            if (p != DR_NONE && f.depth[p] >= f.depth[i]) {
                f.depth[i] = f.depth[p] + 1;
            }
        }
    }
    find_until(&f);
    return f;
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

bool dr_folding_private(const struct dr_graph *g, const struct dr_users *u, uint32_t value) {
    return g->value.at[value].kind == DR_STEP && !is_asked_for(g, value) &&
           u->first[value + 1] - u->first[value] == 1;
}

uint32_t dr_folding_any_root(const struct dr_folding *f, uint32_t node, uint32_t k) {
    const struct dr_graph *g = f->g;
    const struct dr_node *n = &g->node.at[node];
    const uint32_t x = n->in[k];
    if (n->n_out != 1 || !dr_folding_private(g, &f->users, x)) {
        return DR_NONE;
    }
    const uint32_t root = f->to[g->value.at[x].producer];
    const struct dr_node *above = &g->node.at[root];
    /* What runs ahead of the step must not come to wait for it. */
    const bool held = above->cls == DR_UPSTREAM && n->cls != DR_UPSTREAM;
    return f->result[root] == x && node < f->until[root] && above->role == n->role && !held
               ? root
               : DR_NONE;
}

uint32_t dr_folding_root(const struct dr_folding *f, uint32_t node, uint32_t k) {
    const struct dr_node *n = &f->g->node.at[node];
    const uint32_t root = dr_folding_any_root(f, node, k);
    if (root == DR_NONE) {
        return DR_NONE;
    }
    const struct dr_value *x = &f->g->value.at[n->in[k]], *y = &f->g->value.at[n->out[0]];
    return x->dtype == y->dtype && dr_shape_equal(&x->shape, &y->shape) ? root : DR_NONE;
}

void dr_folding_join(struct dr_folding *f, uint32_t node, uint32_t root, const char *label) {
    const struct dr_node *above = &f->g->node.at[root];
    const char *text = f->text[root] ? f->text[root] : above->fused;
    f->text[root] = dr_printf(f->g->arena, "%s + %s", text ? text : above->op->name, label);
    f->to[node] = root;
    f->result[root] = f->g->node.at[node].out[0];
    lower(&f->until[root], f->until[node]);
    f->n++;
}

struct dr_graph *dr_folding_end(struct dr_folding *f, uint32_t **id) {
    struct dr_graph *g = f->g;
    if (f->n == 0) {
        return g;
    }
    struct dr_graph *ng = dr_graph_rewrite(g, f->to);
    *id = DR_NEW_N(g->arena, uint32_t, g->node.n);
    for (uint32_t i = 0; i < g->node.n; i++) {
        const uint32_t root = f->to[i];
        if (!f->text[root]) {
            continue;
        }
        const char *name = g->value.at[f->result[root]].name;
        (*id)[root] = ng->value.at[dr_map_get(ng->value_by_name, name)].producer;
        struct dr_node *n = &ng->node.at[(*id)[root]];
        n->fused = f->text[root];
        n->cls = g->node.at[i].cls > n->cls ? g->node.at[i].cls : n->cls;
    }
    return ng;
}
