/* Which nodes are drawn as one box. Unless the whole graph is asked for, the gradients of a
 * subgraph on one stream are a box, and so are its updates: the picture is of the network. Then, in
 * turn, each only while more than DR_DOT_MANY boxes are left:
 *   1. chains within one subgraph, stream and role;
 *   2. chains across streams;
 *   3. all nodes of one subgraph, stream and role.
 * Chains look at edges between nodes of one role: that the backward pass reads an activation does
 * not break the chain that made it. */
#include "graph/dot_groups.h"

struct groups {
    const struct dr_dot *d;
    const struct dr_graph *g;
    uint32_t *parent; /* union-find by node; the root is the smallest id */
    uint32_t n;
};

bool dr_dot_is_plain(const struct dr_graph *g, uint32_t value) {
    const struct dr_value *v = &g->value.at[value];
    if (v->kind != DR_STEP || v->meaning == DR_HEADER) {
        return false;
    }
    const struct dr_node *p = &g->node.at[v->producer];
    return p->role != DR_ROLE_UPDATE || p->forward != DR_NONE;
}

uint8_t dr_dot_stream(const struct dr_dot *d, uint32_t node) {
    return d->stream ? d->stream[node] : 0;
}

static uint32_t find(struct groups *s, uint32_t v) {
    while (s->parent[v] != v) {
        s->parent[v] = s->parent[s->parent[v]];
        v = s->parent[v];
    }
    return v;
}

static void join(struct groups *s, uint32_t a, uint32_t b) {
    a = find(s, a);
    b = find(s, b);
    if (a != b) {
        s->parent[a > b ? a : b] = a > b ? b : a;
        s->n--;
    }
}

static bool same(const struct groups *s, uint32_t a, uint32_t b, bool stream) {
    const struct dr_node *x = &s->g->node.at[a], *y = &s->g->node.at[b];
    return x->role == y->role && x->subgraph == y->subgraph && x->frozen == y->frozen &&
           (!stream || dr_dot_stream(s->d, a) == dr_dot_stream(s->d, b));
}

/* The one group before (after) each group among those of its role: NONE, or SEVERAL. */
#define SEVERAL (DR_NONE - 1)
static void note(uint32_t *one, uint32_t other) {
    *one = *one == DR_NONE || *one == other ? other : SEVERAL;
}

static void join_chains(struct groups *s, bool stream) {
    const struct dr_graph *g = s->g;
    uint32_t *before = DR_NEW_N(g->arena, uint32_t, g->node.n);
    uint32_t *after = DR_NEW_N(g->arena, uint32_t, g->node.n);
    for (uint32_t i = 0; i < g->node.n; i++) {
        before[i] = after[i] = DR_NONE;
    }
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        for (uint32_t j = 0; j < n->n_in; j++) {
            if (!dr_dot_is_plain(g, n->in[j])) {
                continue;
            }
            const uint32_t p = g->value.at[n->in[j]].producer;
            const uint32_t from = find(s, p), to = find(s, i);
            if (from != to && g->node.at[p].role == n->role) {
                note(&before[to], from);
                note(&after[from], to);
            }
        }
    }
    for (uint32_t i = 0; i < g->node.n; i++) {
        const uint32_t p = before[i];
        if (p < SEVERAL && after[p] == i && same(s, p, i, stream)) {
            join(s, p, i);
        }
    }
}

/* Joins nodes with one key; keys are below n_keys, DR_NONE: stay alone. */
static void join_keys(struct groups *s, const uint32_t *key, uint32_t n_keys) {
    uint32_t *first = DR_NEW_N(s->g->arena, uint32_t, n_keys);
    for (uint32_t i = 0; i < n_keys; i++) {
        first[i] = DR_NONE;
    }
    for (uint32_t i = 0; i < s->g->node.n; i++) {
        if (key[i] == DR_NONE) {
            continue;
        }
        if (first[key[i]] == DR_NONE) {
            first[key[i]] = i;
        } else {
            join(s, first[key[i]], i);
        }
    }
}

static uint32_t section(const struct groups *s, uint32_t node) {
    const struct dr_node *n = &s->g->node.at[node];
    const uint32_t subgraph = n->subgraph == DR_NONE ? 0 : n->subgraph + 1;
    return (subgraph * DR_ROLES + (uint32_t)n->role) * 256 + dr_dot_stream(s->d, node);
}

static uint32_t n_sections(const struct groups *s) {
    return (s->g->subgraph.n + 1) * DR_ROLES * 256;
}

static void join_sections(struct groups *s, bool small_only) {
    const struct dr_graph *g = s->g;
    uint32_t *key = DR_NEW_N(g->arena, uint32_t, g->node.n);
    for (uint32_t i = 0; i < g->node.n; i++) {
        const enum dr_role role = g->node.at[i].role;
        const bool small = role == DR_ROLE_BACKWARD || role == DR_ROLE_UPDATE;
        key[i] = small || !small_only ? section(s, i) : DR_NONE;
    }
    join_keys(s, key, n_sections(s));
}

struct dr_dot_groups dr_dot_group(const struct dr_dot *d, struct dr_arena *a) {
    const uint32_t n = d->g->node.n;
    struct groups s = {.d = d, .g = d->g, .parent = DR_NEW_N(a, uint32_t, n), .n = n};
    for (uint32_t i = 0; i < n; i++) {
        s.parent[i] = i;
    }
    if (!d->whole) {
        join_sections(&s, true);
    }
    for (int step = 1; step <= 3 && !d->whole && s.n > DR_DOT_MANY; step++) {
        if (step <= 2) {
            join_chains(&s, step < 2);
        } else {
            join_sections(&s, false);
        }
    }
    struct dr_dot_groups r = {.of = s.parent,
                              .size = DR_NEW_N(a, uint32_t, n),
                              .last = DR_NEW_N(a, uint32_t, n),
                              .n = s.n};
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t first = find(&s, i);
        s.parent[i] = first; /* smaller ids are done: their roots are themselves */
        r.size[first]++;
        r.last[first] = i;
    }
    return r;
}
