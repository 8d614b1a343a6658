/* Copying a graph without some of its nodes: what the passes that drop or fold nodes share. */
#include "graph/op.h"
#include <string.h>

struct maps {
    uint32_t *node, *value; /* id in the old graph -> id in the new one */
};

static uint32_t mapped(const uint32_t *map, uint32_t id) {
    return id == DR_NONE ? DR_NONE : map[id];
}

/* Who makes each output now. `out` is by old node: its outputs by old ids. */
static uint32_t **outputs_of(const struct dr_graph *g, const uint32_t *to) {
    uint32_t **out = DR_NEW_N(g->arena, uint32_t *, g->node.n);
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        out[i] = DR_NEW_N(g->arena, uint32_t, n->n_out);
        if (n->n_out) {
            memcpy(out[i], n->out, sizeof *out[i] * n->n_out);
        }
    }
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        const uint32_t p = to[i];
        if (p == i || p == DR_NONE) {
            continue;
        }
        DR_ASSERT(p < i && to[p] == p && n->n_out == 1);
        for (uint32_t k = 0; k < n->n_in; k++) {
            if (out[p][0] == n->in[k]) {
                out[p][0] = n->out[0];
            }
        }
    }
    return out;
}

/* Where a node stands: the id of the last that is folded into it. */
static uint32_t *places_of(const struct dr_graph *g, const uint32_t *to) {
    uint32_t *last = DR_NEW_N(g->arena, uint32_t, g->node.n);
    for (uint32_t i = 0; i < g->node.n; i++) {
        if (to[i] != DR_NONE) {
            last[to[i]] = i;
        }
    }
    return last;
}

struct inputs {
    DR_VEC(uint32_t) at; /* new ids */
};
/* What each node that stays reads, and what was read by those that are folded into it, but for the
 * values that are no more. */
static struct inputs *inputs_of(const struct dr_graph *g, const uint32_t *to,
                                const struct maps *m) {
    struct inputs *in = DR_NEW_N(g->arena, struct inputs, g->node.n);
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        for (uint32_t k = 0; k < n->n_in && to[i] != DR_NONE; k++) {
            const uint32_t v = m->value[n->in[k]];
            DR_ASSERT(to[i] != i || v != DR_NONE);
            if (v != DR_NONE) {
                *dr_push(g->arena, &in[to[i]].at) = v;
            }
        }
    }
    return in;
}

static void copy_values(const struct dr_graph *g, struct dr_graph *ng, const uint32_t *to,
                        uint32_t *const *out, struct maps *m) {
    bool *keep = DR_NEW_N(g->arena, bool, g->value.n);
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        for (uint32_t j = 0; j < n->n_in && to[i] != DR_NONE; j++) {
            keep[n->in[j]] |= g->value.at[n->in[j]].kind == DR_STATE;
        }
        for (uint32_t j = 0; j < n->n_out && to[i] == i; j++) {
            keep[out[i][j]] = true;
        }
    }
    for (uint32_t i = 0; i < g->value.n; i++) {
        const struct dr_value *v = &g->value.at[i];
        m->value[i] = DR_NONE;
        if (keep[i]) {
            const uint32_t id = dr_graph_value(ng, v->name, v->kind, v->dtype, v->shape, v->mark);
            const char *name = ng->value.at[id].name;
            ng->value.at[id] = *v;
            ng->value.at[id].name = name;
            ng->value.at[id].owner = mapped(m->node, v->owner);
            ng->value.at[id].producer = DR_NONE;
            m->value[i] = id;
        }
    }
}

static void copy_node(const struct dr_graph *g, struct dr_graph *ng, uint32_t i,
                      const struct inputs *in, const uint32_t *out, const struct maps *m) {
    const struct dr_node *n = &g->node.at[i];
    const uint32_t id =
        dr_graph_node(ng, n->name, n->op, n->attrs, in->at.at, in->at.n, n->role, n->mark);
    struct dr_node *copy = &ng->node.at[id];
    const struct dr_node made = *copy;
    DR_ASSERT(id == m->node[i]);
    *copy = *n;
    copy->name = made.name;
    copy->attrs = made.attrs;
    copy->in = made.in;
    copy->n_in = made.n_in;
    copy->out = DR_NEW_N(g->arena, uint32_t, n->n_out);
    copy->forward = mapped(m->node, n->forward);
    copy->share = mapped(m->node, n->share);
    for (uint32_t j = 0; j < n->n_out; j++) {
        const uint32_t v = m->value[out[j]];
        copy->out[j] = v;
        if (ng->value.at[v].kind == DR_STEP) {
            ng->value.at[v].producer = id;
        }
    }
}

static void copy_fields(const struct dr_graph *g, struct dr_graph *ng, const struct maps *m) {
    for (uint32_t i = 0; i < g->term.n; i++) {
        const struct dr_term *t = &g->term.at[i];
        if (m->node[t->node] == DR_NONE) {
            continue;
        }
        struct dr_term *copy = dr_push(ng->arena, &ng->term);
        *copy = *t;
        copy->node = m->node[t->node];
        copy->partial = mapped(m->value, t->partial);
        copy->scalar = mapped(m->value, t->scalar);
    }
    for (uint32_t i = 0; i < g->input.n; i++) {
        *dr_push(ng->arena, &ng->input) = mapped(m->value, g->input.at[i]);
    }
    for (uint32_t i = 0; i < g->output.n; i++) {
        *dr_push(ng->arena, &ng->output) = mapped(m->value, g->output.at[i]);
    }
    ng->header = mapped(m->value, g->header);
    ng->total_loss = mapped(m->value, g->total_loss);
    ng->health = mapped(m->value, g->health);
    ng->loss_scale = mapped(m->value, g->loss_scale);
    ng->readback = mapped(m->node, g->readback);
}

struct dr_graph *dr_graph_rewrite(const struct dr_graph *g, const uint32_t *to) {
    struct dr_graph *ng = dr_graph_like(g);
    struct maps m = {.node = DR_NEW_N(g->arena, uint32_t, g->node.n),
                     .value = DR_NEW_N(g->arena, uint32_t, g->value.n)};
    const uint32_t *last = places_of(g, to);
    for (uint32_t i = 0, n = 0; i < g->node.n; i++) {
        m.node[i] = DR_NONE;
        if (to[i] != DR_NONE && last[to[i]] == i) {
            m.node[to[i]] = n++;
        }
    }
    for (uint32_t i = 0; i < g->node.n; i++) {
        if (to[i] != DR_NONE && to[i] != i) {
            m.node[i] = m.node[to[i]];
        }
    }
    uint32_t **out = outputs_of(g, to);
    copy_values(g, ng, to, out, &m);
    const struct inputs *in = inputs_of(g, to, &m);
    for (uint32_t i = 0; i < g->node.n; i++) {
        if (to[i] != DR_NONE && last[to[i]] == i) {
            copy_node(g, ng, to[i], &in[to[i]], out[to[i]], &m);
        }
    }
    copy_fields(g, ng, &m);
    return ng;
}
