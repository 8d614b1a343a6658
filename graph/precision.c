/* precision: which values are stored as fp16 or bf16, and the casts between them and f32.
 *
 * Before: every float value of a step is f32, nothing is fused; g->half is what the device is to
 * store. After: each node has all the operands that its op permits (half_in, half_out) in g->half,
 * or none of them; readers of the other kind read a cast, one a value. Weights stay f32
 * (optimizers, files and checksums see nothing else): the nodes that multiply with them read the
 * cast's copy. Whatever no op permits stays f32: weight gradients, biases, statistics, moments,
 * losses, metrics and what the host reads.
 *
 * Nodes that hand each other values in half form parts. A part is half if it has a node that is
 * more than element by element; a sum of weight gradients alone (a shared weight) stays f32.
 *
 * Casts stand where few bytes live long: to half right after the producer, to f32 right before the
 * first reader. Weights are cast in each step, those of a subgraph in one launch before their first
 * reader: 6 bytes a weight and step, little beside the activations, and no second copy of a frozen
 * weight that loading, saving and checksums would have to know. A cast of frozen weights reads no
 * state that changes, so it is upstream and runs ahead with its readers; all other nodes keep the
 * class that they have. Where no node is half, g->half is DR_F32 after the pass. */
#include "graph/builtin.h"
#include "graph/passes.h"

struct cast { /* of a node that was appended: where it belongs */
    uint32_t at;
    bool after; /* right after node `at`; else right before it */
};

struct precision {
    struct dr_graph *g;
    const struct dr_op *op;
    uint32_t n_nodes, n_values; /* before there were casts */
    uint32_t *part;             /* by node: union-find */
    bool *half;                 /* by node; before: by its part */
    bool *real;                 /* by value: f32 before the pass */
    uint32_t *reader;           /* by value: the first node that needs it cast; DR_NONE */
    uint32_t *copy;             /* by value: its cast */
    DR_VEC(struct cast) cast;   /* nodes n_nodes, n_nodes + 1, ... */
};

static bool permits(uint32_t mask, uint32_t i) {
    return mask >> (i < 31 ? i : 31) & 1;
}

/* May input i of a node be half? Of the states only weights are ever copied. */
static bool may_read(const struct precision *p, const struct dr_node *n, uint32_t i) {
    const struct dr_value *v = &p->g->value.at[n->in[i]];
    return permits(n->op->half_in, i) && p->real[n->in[i]] &&
           (v->kind == DR_STEP || v->cls == DR_WEIGHT);
}

static bool may_write(const struct precision *p, const struct dr_node *n, uint32_t i) {
    return permits(n->op->half_out, i) && p->real[n->out[i]] &&
           p->g->value.at[n->out[i]].kind == DR_STEP;
}

/* ---- which nodes ---- */
static uint32_t root_of(uint32_t *part, uint32_t i) {
    while (part[i] != i) {
        part[i] = part[part[i]];
        i = part[i];
    }
    return i;
}

static bool writes(const struct precision *p, const struct dr_node *n, uint32_t value) {
    for (uint32_t i = 0; i < n->n_out; i++) {
        if (n->out[i] == value) {
            return may_write(p, n, i);
        }
    }
    return false;
}

static void join_parts(struct precision *p) {
    const struct dr_graph *g = p->g;
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        const struct dr_node *n = &g->node.at[v];
        for (uint32_t i = 0; i < n->n_in; i++) {
            const uint32_t from = g->value.at[n->in[i]].producer;
            if (may_read(p, n, i) && from != DR_NONE && writes(p, &g->node.at[from], n->in[i])) {
                p->part[root_of(p->part, v)] = root_of(p->part, from);
            }
        }
    }
}

static bool permits_any(const struct precision *p, const struct dr_node *n) {
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (may_read(p, n, i)) {
            return true;
        }
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        if (may_write(p, n, i)) {
            return true;
        }
    }
    return false;
}

/* False: none. */
static bool choose_nodes(struct precision *p) {
    const struct dr_graph *g = p->g;
    bool *worth = DR_NEW_N(g->arena, bool, p->n_nodes), any = false;
    join_parts(p);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        const struct dr_node *n = &g->node.at[v];
        if (permits_any(p, n) && !(n->op->flags & DR_OP_POINTWISE)) {
            worth[root_of(p->part, v)] = true;
        }
    }
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        p->half[v] = worth[root_of(p->part, v)] && permits_any(p, &g->node.at[v]);
        any |= p->half[v];
    }
    return any;
}

/* ---- which values ---- */
static void store_as(struct dr_graph *g, uint32_t value, enum dr_dtype t) {
    struct dr_value *v = &g->value.at[value];
    v->bytes = v->bytes / (int64_t)dr_dtype_bytes(v->dtype) * (int64_t)dr_dtype_bytes(t);
    v->dtype = t;
}

static void retype(struct precision *p) {
    struct dr_graph *g = p->g;
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        const struct dr_node *n = &g->node.at[v];
        for (uint32_t i = 0; p->half[v] && i < n->n_out; i++) {
            if (may_write(p, n, i)) {
                store_as(g, n->out[i], g->half);
            }
        }
    }
}

static bool wants_cast(const struct precision *p, uint32_t node, uint32_t i) {
    const struct dr_node *n = &p->g->node.at[node];
    if (!p->real[n->in[i]]) {
        return false;
    }
    const bool half = p->half[node] && may_read(p, n, i);
    return p->g->value.at[n->in[i]].dtype != (half ? p->g->half : DR_F32);
}

static void find_readers(struct precision *p) {
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        const struct dr_node *n = &p->g->node.at[v];
        for (uint32_t i = 0; i < n->n_in; i++) {
            if (p->reader[n->in[i]] == DR_NONE && wants_cast(p, v, i)) {
                p->reader[n->in[i]] = v;
            }
        }
    }
}

/* ---- casts ---- */
/* Users may call an input anything, "a:f16" too. */
static const char *free_name(const struct dr_graph *g, const char *of, const char *suffix) {
    const char *name = dr_printf(g->arena, "%s:%s", of, suffix);
    for (uint32_t i = 2; dr_map_get(g->value_by_name, name) != DR_NONE; i++) {
        name = dr_printf(g->arena, "%s:%s%u", of, suffix, i);
    }
    return name;
}

/* Who read a weight stays in its class: that a cast stands between now changes nothing. */
static enum dr_frozen_class class_of(const struct dr_graph *g, const struct dr_value *read) {
    if (read->kind == DR_STATE) {
        return read->frozen ? DR_UPSTREAM : DR_UPDATED;
    }
    return g->node.at[read->producer].cls == DR_UPSTREAM ? DR_UPSTREAM : DR_IN_PATH;
}

/* A cast of n values to `to`, with the place of node `like` in the model. */
static void add_cast(struct precision *p, const char *name, const uint32_t *in, uint32_t n,
                     enum dr_dtype to, uint32_t like, enum dr_role role, struct cast where) {
    struct dr_graph *g = p->g;
    const struct dr_node l = g->node.at[like];
    const char **names = DR_NEW_N(g->arena, const char *, n);
    for (uint32_t i = 0; i < n; i++) {
        names[i] = free_name(g, g->value.at[in[i]].name, dr_dtype_name(to));
    }
    const uint32_t id = dr_graph_node(g, name ? name : names[0], p->op, NULL, in, n, role, l.mark);
    struct dr_node *c = &g->node.at[id];
    c->out_names = names;
    c->subgraph = l.subgraph;
    c->forward = role == DR_ROLE_BACKWARD ? l.forward : DR_NONE;
    c->cls = class_of(g, &g->value.at[in[0]]);
    c->frozen = l.frozen;
    c->needs_grad = l.needs_grad;
    struct dr_infer infer = {.g = g, .node = id};
    const bool fits = p->op->infer(&infer);
    DR_ASSERT(fits);
    for (uint32_t i = 0; i < n; i++) {
        p->copy[in[i]] = g->node.at[id].out[i];
        g->value.at[p->copy[in[i]]].meaning = g->value.at[in[i]].meaning;
        store_as(g, p->copy[in[i]], to);
    }
    *dr_push(g->arena, &p->cast) = where;
}

static void cast_values(struct precision *p) {
    struct dr_graph *g = p->g;
    for (uint32_t v = 0; v < p->n_values; v++) {
        const struct dr_value x = g->value.at[v];
        if (p->reader[v] == DR_NONE || x.kind != DR_STEP) {
            continue;
        }
        const bool to_half = x.dtype == DR_F32;
        const bool data = g->node.at[x.producer].role == DR_ROLE_DATA;
        const uint32_t like = data ? p->reader[v] : x.producer;
        const struct cast where = {to_half ? x.producer : p->reader[v], to_half};
        add_cast(p, NULL, &v, 1, to_half ? g->half : DR_F32, like, g->node.at[like].role, where);
    }
}

static uint32_t subgraph_of(const struct precision *p, uint32_t state) {
    return p->g->node.at[p->reader[state]].subgraph;
}

/* The weights that are cast together with v, itself first. */
static uint32_t take_weights(const struct precision *p, uint32_t v, bool *done, uint32_t *group) {
    const struct dr_graph *g = p->g;
    uint32_t n = 0;
    for (uint32_t w = v; w < p->n_values; w++) {
        if (p->reader[w] != DR_NONE && g->value.at[w].kind == DR_STATE && !done[w] &&
            g->value.at[w].frozen == g->value.at[v].frozen &&
            subgraph_of(p, w) == subgraph_of(p, v)) {
            done[w] = true;
            group[n++] = w;
        }
    }
    return n;
}

static void cast_weights(struct precision *p) {
    struct dr_graph *g = p->g;
    bool *done = DR_NEW_N(g->arena, bool, p->n_values);
    uint32_t *group = DR_NEW_N(g->arena, uint32_t, p->n_values);
    for (uint32_t v = 0; v < p->n_values; v++) {
        if (p->reader[v] == DR_NONE || g->value.at[v].kind != DR_STATE || done[v]) {
            continue;
        }
        const uint32_t n = take_weights(p, v, done, group), subgraph = subgraph_of(p, v);
        uint32_t first = p->reader[v];
        for (uint32_t i = 1; i < n; i++) {
            first = p->reader[group[i]] < first ? p->reader[group[i]] : first;
        }
        const char *name = NULL;
        if (n > 1) {
            name = free_name(g, subgraph == DR_NONE ? "weights" : g->subgraph.at[subgraph].name,
                             dr_printf(g->arena, "%s%s", g->value.at[v].frozen ? "frozen:" : "",
                                       dr_dtype_name(g->half)));
        }
        add_cast(p, name, group, n, g->half, first, DR_ROLE_FORWARD, (struct cast){first, false});
    }
}

static void rewire(struct precision *p) {
    struct dr_graph *g = p->g;
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        const struct dr_node *n = &g->node.at[v];
        bool *cast = DR_NEW_N(g->arena, bool, n->n_in);
        for (uint32_t i = 0; i < n->n_in; i++) {
            cast[i] = wants_cast(p, v, i);
        }
        for (uint32_t i = 0; i < n->n_in; i++) {
            n->in[i] = cast[i] ? p->copy[n->in[i]] : n->in[i];
        }
    }
    for (uint32_t i = 0; i < g->output.n;
         i++) { /* the host finds them by what the readback reads */
        const uint32_t v = g->output.at[i];
        g->output.at[i] = p->real[v] && g->value.at[v].dtype != DR_F32 ? p->copy[v] : v;
    }
}

/* The nodes with each cast in its place; several in one place in the order of their ids. */
static void put_in_order(struct precision *p) {
    struct dr_graph *g = p->g;
    uint32_t *order = DR_NEW_N(g->arena, uint32_t, g->node.n), n = 0;
    uint32_t *first = DR_NEW_N(g->arena, uint32_t, 2 * (size_t)p->n_nodes + 1);
    uint32_t *sorted = DR_NEW_N(g->arena, uint32_t, p->cast.n + 1);
    for (uint32_t i = 0; i < p->cast.n; i++) {
        first[2 * p->cast.at[i].at + p->cast.at[i].after + 1]++;
    }
    for (uint32_t k = 0; k < 2 * p->n_nodes; k++) {
        first[k + 1] += first[k];
    }
    uint32_t *next = DR_NEW_N(g->arena, uint32_t, 2 * (size_t)p->n_nodes + 1);
    for (uint32_t i = 0; i < p->cast.n; i++) {
        const uint32_t k = 2 * p->cast.at[i].at + p->cast.at[i].after;
        sorted[first[k] + next[k]++] = p->n_nodes + i;
    }
    for (uint32_t v = 0, i = 0; v < p->n_nodes; v++) {
        while (i < first[2 * v + 1]) {
            order[n++] = sorted[i++];
        }
        order[n++] = v;
        while (i < first[2 * v + 2]) {
            order[n++] = sorted[i++];
        }
    }
    dr_graph_reorder(g, order);
}

static struct precision start(struct dr_graph *g, const struct dr_op *op) {
    struct dr_arena *a = g->arena;
    struct precision p = {.g = g,
                          .op = op,
                          .n_nodes = g->node.n,
                          .n_values = g->value.n,
                          .part = DR_NEW_N(a, uint32_t, g->node.n),
                          .half = DR_NEW_N(a, bool, g->node.n),
                          .real = DR_NEW_N(a, bool, g->value.n),
                          .reader = DR_NEW_N(a, uint32_t, g->value.n),
                          .copy = DR_NEW_N(a, uint32_t, g->value.n)};
    for (uint32_t v = 0; v < g->node.n; v++) {
        p.part[v] = v;
    }
    for (uint32_t i = 0; i < g->value.n; i++) {
        p.real[i] = g->value.at[i].dtype == DR_F32;
        p.reader[i] = p.copy[i] = DR_NONE;
    }
    return p;
}

struct dr_graph *dr_pass_precision(struct dr_graph *g, const struct dr_op_table *ops) {
    if (g->half == DR_F32) {
        return g;
    }
    const struct dr_op *op = dr_op_find(ops, "cast");
    DR_ASSERT(op);
    struct precision p = start(g, op);
    if (!choose_nodes(&p)) {
        g->half = DR_F32;
        return g;
    }
    retype(&p);
    find_readers(&p);
    cast_values(&p);
    cast_weights(&p);
    rewire(&p);
    put_in_order(&p);
    return g;
}
