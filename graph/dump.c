/* A graph as text for --dump: the states, then one line a node. */
#include "graph/op.h"

static const char *mode_name(enum dr_graph_mode m) {
    static const char *const name[] = {"train", "eval", "infer"};
    return name[m];
}

static const char *state_name(enum dr_state_class c) {
    static const char *const name[] = {"weight", "buffer", "moment", "health"};
    return name[c];
}

static void dump_values(const struct dr_graph *g, const uint32_t *ids, uint32_t n, bool typed,
                        struct dr_text *t) {
    for (uint32_t i = 0; i < n; i++) {
        const struct dr_value *v = &g->value.at[ids[i]];
        dr_text_add(t, "%s%s", i ? ", " : "", v->name);
        if (typed && v->kind == DR_STEP) {
            dr_text_add(t, " %s %s", dr_dtype_name(v->dtype), dr_shape_text(g->arena, &v->shape));
        }
        if (typed && v->classes) {
            dr_text_add(t, " of %lld classes", (long long)v->classes);
        }
    }
}

static void dump_node(const struct dr_graph *g, uint32_t id, struct dr_text *t) {
    const struct dr_node *n = &g->node.at[id];
    dr_text_add(t, "%5u  %-8s  %-11s  %s = %s", id, dr_role_name(n->role),
                dr_frozen_class_name(n->cls), n->name, n->op->name);
    if (n->op->n_attrs) {
        struct dr_text attrs = {.arena = g->arena};
        dr_attrs_print(n->op, n->attrs, &attrs);
        if (attrs.n) {
            dr_text_add(t, " %s", attrs.at);
        }
    }
    dr_text_add(t, " (");
    dump_values(g, n->in, n->n_in, false, t);
    dr_text_add(t, ")");
    if (n->n_out) {
        dr_text_add(t, " -> ");
        dump_values(g, n->out, n->n_out, true, t);
    }
    if (n->fused) {
        dr_text_add(t, "; does %s", n->fused);
    }
    if (n->forward != DR_NONE) {
        dr_text_add(t, "; of %s", g->node.at[n->forward].name);
    }
    dr_text_add(t, "%s\n", n->frozen ? "; frozen" : "");
}

void dr_graph_dump(const struct dr_graph *g, struct dr_text *t) {
    dr_text_add(t, "graph %s: %s, batch %lld, %u nodes, %u values\n", g->name, mode_name(g->mode),
                (long long)g->batch, g->node.n, g->value.n);
    for (uint32_t i = 0; i < g->value.n; i++) {
        const struct dr_value *v = &g->value.at[i];
        if (v->kind == DR_STATE) {
            dr_text_add(t, "state  %s  %s  %s %s%s\n", state_name(v->cls), v->name,
                        dr_dtype_name(v->dtype), dr_shape_text(g->arena, &v->shape),
                        v->frozen ? "; frozen" : "");
        }
    }
    for (uint32_t i = 0; i < g->node.n; i++) {
        dump_node(g, i, t);
    }
}
