/* frozen: who may run ahead, who only passes gradients on, who is trained (DESIGN "Frozen").
 *
 * Before: shapes are known; node->frozen is what the YAML says. After: state->frozen says which
 * weights and statistics no step changes; node->cls is the node's class; node->needs_grad is set
 * where a trainable weight is at or above a node. Works alike for evaluation and inference, where M
 * is what training would change, though nothing is written.
 *
 * By dependency, not by name: M is every state that is not frozen. A node that touches M is
 * updated; one with something of M above it is in the path; the rest is upstream. */
#include "graph/passes.h"

static bool is_in_m(const struct dr_value *v) {
    return v->kind == DR_STATE && !v->frozen;
}

void dr_graph_classify(struct dr_graph *g) {
    for (uint32_t i = 0; i < g->node.n; i++) {
        struct dr_node *n = &g->node.at[i];
        n->cls = DR_UPSTREAM;
        for (uint32_t j = 0; j < n->n_in + n->n_out; j++) {
            const bool input = j < n->n_in;
            const struct dr_value *v = &g->value.at[input ? n->in[j] : n->out[j - n->n_in]];
            if (is_in_m(v)) {
                n->cls = DR_UPDATED;
                break;
            }
            if (input && v->kind == DR_STEP && g->node.at[v->producer].cls != DR_UPSTREAM) {
                n->cls = DR_IN_PATH;
            }
        }
    }
}

/* A weight belongs to every node that uses it: freezing it for one and training it for another has
 * no meaning that does not depend on the order of the file. */
static bool check_shared(struct dr_graph *g) {
    bool ok = true;
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        if (n->share == DR_NONE) {
            continue;
        }
        for (uint32_t j = 0; j < n->n_in; j++) {
            const struct dr_value *v = &g->value.at[n->in[j]];
            if (v->kind != DR_STATE || v->owner == DR_NONE) {
                continue;
            }
            const struct dr_node *o = &g->node.at[v->owner];
            if (o->frozen != n->frozen) {
                const struct dr_node *frozen = o->frozen ? o : n, *trained = o->frozen ? n : o;
                dr_error(g->diag, n->mark, "'%s' is frozen by '%s' and trained by '%s'", v->name,
                         frozen->name, trained->name);
                dr_note(g->diag, o->mark, "'%s' is declared here", o->name);
                ok = false;
            }
            break; /* the others of this node would say the same */
        }
    }
    return ok;
}

static bool check_trainable(struct dr_graph *g) {
    bool any = false;
    for (uint32_t i = 0; i < g->value.n; i++) {
        const struct dr_value *v = &g->value.at[i];
        if (v->kind == DR_STATE && v->cls == DR_WEIGHT) {
            any = true;
            if (!v->frozen) {
                return true;
            }
        }
    }
    const struct dr_mark mark = g->optimizer.n ? g->optimizer.at[0].mark : (struct dr_mark){0};
    return dr_error(g->diag, mark, "nothing to train: %s",
                    any ? "every weight that a loss reads is frozen"
                        : "no loss reads an op with weights");
}

static void mark_states(struct dr_graph *g) {
    for (uint32_t i = 0; i < g->value.n; i++) {
        struct dr_value *v = &g->value.at[i];
        if (v->kind == DR_STATE && (v->cls == DR_WEIGHT || v->cls == DR_BUFFER)) {
            v->frozen = v->owner != DR_NONE && g->node.at[v->owner].frozen;
        }
    }
}

static void mark_needs(struct dr_graph *g) {
    for (uint32_t i = 0; i < g->node.n; i++) {
        struct dr_node *n = &g->node.at[i];
        n->needs_grad = false;
        for (uint32_t j = 0; j < n->n_in && !n->needs_grad; j++) {
            const struct dr_value *v = &g->value.at[n->in[j]];
            n->needs_grad = v->kind == DR_STEP ? g->node.at[v->producer].needs_grad
                                               : v->cls == DR_WEIGHT && !v->frozen;
        }
    }
}

struct dr_graph *dr_pass_frozen(struct dr_graph *g) {
    mark_states(g);
    if (!check_shared(g)) {
        return NULL;
    }
    if (g->mode == DR_MODE_TRAIN && !check_trainable(g)) {
        return NULL;
    }
    mark_needs(g);
    dr_graph_classify(g);
    return g;
}
