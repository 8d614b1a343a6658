/* shapes: what is left to do once every node has been inferred.
 *
 * Before: the graph as loaded. After: `classes` and `ignored` of labels and masks have travelled
 * from the losses and metrics that read them back to the data; nodes that no loss, metric or output
 * needs are gone, with a warning (but not in evaluation, which is about the losses and metrics
 * alone). */
#include "graph/passes.h"

static bool is_target(const struct dr_value *v) {
    return v->kind == DR_STEP && (v->meaning == DR_LABEL || v->meaning == DR_MASK);
}

static void narrow(struct dr_value *v, int64_t classes) {
    if (is_target(v) && classes > 0 && (v->classes == 0 || classes < v->classes)) {
        v->classes = classes;
    }
}

/* [N, ..., C] against [N, ...] of classes. */
static int64_t classes_of(const struct dr_graph *g, const struct dr_node *n) {
    const struct dr_value *x = &g->value.at[n->in[0]], *t = &g->value.at[n->in[1]];
    const bool integers = t->dtype == DR_U8 || t->dtype == DR_U16 || t->dtype == DR_I32;
    const bool fits = integers && x->kind == DR_STEP && x->shape.rank == t->shape.rank + 1;
    return fits && x->shape.dim[x->shape.rank - 1] > 1 ? x->shape.dim[x->shape.rank - 1] : 0;
}

static void propagate_classes(struct dr_graph *g) {
    for (uint32_t i = g->node.n; i-- > 0;) {
        const struct dr_node *n = &g->node.at[i];
        if ((n->op->flags & (DR_OP_LOSS | DR_OP_METRIC)) && n->n_in >= 2) {
            narrow(&g->value.at[n->in[1]], classes_of(g, n));
        }
        for (uint32_t j = 0; j < n->n_out && n->n_in > 0; j++) {
            const struct dr_value *out = &g->value.at[n->out[j]];
            const uint32_t from = n->op->outputs == 0 && j < n->n_in ? j : 0;
            struct dr_value *in = &g->value.at[n->in[from]];
            if (is_target(out) && in->dtype != DR_F32) {
                narrow(in, out->classes);
                in->ignored = in->ignored ? in->ignored : out->ignored;
            }
        }
    }
}

static void need_value(const struct dr_graph *g, bool *needed, uint32_t v) {
    if (v != DR_NONE && g->value.at[v].kind == DR_STEP) {
        needed[g->value.at[v].producer] = true;
    }
}

static bool *find_needed(const struct dr_graph *g) {
    bool *needed = DR_NEW_N(g->arena, bool, g->node.n);
    for (uint32_t i = 0; i < g->term.n; i++) {
        needed[g->term.at[i].node] = true;
    }
    for (uint32_t i = 0; i < g->output.n; i++) {
        need_value(g, needed, g->output.at[i]);
    }
    need_value(g, needed, g->header);
    need_value(g, needed, g->total_loss);
    if (g->readback != DR_NONE) {
        needed[g->readback] = true;
    }
    for (uint32_t i = g->node.n; i-- > 0;) {
        const struct dr_node *n = &g->node.at[i];
        for (uint32_t j = 0; needed[i] && j < n->n_in; j++) {
            need_value(g, needed, n->in[j]);
        }
        if (needed[i] && n->share != DR_NONE) {
            needed[n->share] = true; /* the owner of its weights */
        }
    }
    return needed;
}

/* One warning for a dead chain: at its last node, which nothing reads. What another mode of the
 * same model needs (node->elsewhere, and all above it) is dropped without a word. */
static void warn_dead(const struct dr_graph *g, const bool *needed) {
    const struct dr_users users = dr_graph_users(g, g->arena);
    bool *quiet = DR_NEW_N(g->arena, bool, g->node.n);
    for (uint32_t i = g->node.n; i-- > 0;) {
        quiet[i] |= g->node.at[i].elsewhere;
        for (uint32_t j = 0; quiet[i] && j < g->node.at[i].n_in; j++) {
            need_value(g, quiet, g->node.at[i].in[j]);
        }
    }
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        bool read = false;
        for (uint32_t j = 0; j < n->n_out; j++) {
            read |= users.first[n->out[j]] != users.first[n->out[j] + 1];
        }
        if (needed[i] || quiet[i] || read) {
            continue;
        }
        if (n->role == DR_ROLE_DATA) {
            dr_warn(g->diag, n->mark, "input '%s' is not used", g->value.at[n->out[0]].name);
        } else {
            dr_warn(g->diag, n->mark, "%s '%s' is dropped: no loss, metric or output needs it",
                    n->op->name, n->name);
        }
    }
}

struct dr_graph *dr_pass_shapes(struct dr_graph *g) {
    propagate_classes(g);
    const bool *needed = find_needed(g);
    uint32_t *to = DR_NEW_N(g->arena, uint32_t, g->node.n), dead = 0;
    for (uint32_t i = 0; i < g->node.n; i++) {
        to[i] = needed[i] ? i : DR_NONE;
        dead += !needed[i];
    }
    if (dead == 0) {
        return g;
    }
    if (g->mode != DR_MODE_EVAL) {
        warn_dead(g, needed);
    }
    return dr_graph_rewrite(g, to);
}
