/* The invariants of the IR (graph/ir.h), checked after each pass in debug builds and by tests. The
 * first breach is described; a graph that passes can be walked without further checks. */
#include "graph/op.h"

struct check {
    const struct dr_graph *g;
    const char **why;
};

__attribute__((format(printf, 2, 3))) static bool breach(const struct check *c, const char *fmt,
                                                         ...) {
    va_list ap;
    va_start(ap, fmt);
    *c->why = dr_vprintf(c->g->arena, fmt, ap);
    va_end(ap);
    return false;
}

static bool check_value(const struct check *c, uint32_t id) {
    const struct dr_graph *g = c->g;
    const struct dr_value *v = &g->value.at[id];
    int64_t n = 0;
    if (!v->name || !*v->name) {
        return breach(c, "value %u has no name", id);
    }
    if (dr_map_get(g->value_by_name, v->name) != id) {
        return breach(c, "value %u '%s': its name is another's or not in the index", id, v->name);
    }
    if (v->kind > DR_STATE || v->dtype >= DR_DTYPES || v->shape.rank > DR_MAX_RANK ||
        v->meaning > DR_HEADER) {
        return breach(c, "value '%s': kind, dtype, rank or meaning out of range", v->name);
    }
    if (!dr_shape_elements(&v->shape, &n) ||
        __builtin_mul_overflow(n, (int64_t)dr_dtype_bytes(v->dtype), &n) || n != v->bytes) {
        return breach(c, "value '%s': its bytes do not follow from its shape", v->name);
    }
    if (v->kind == DR_STATE) {
        if (v->producer != DR_NONE) {
            return breach(c, "state '%s' has a producer", v->name);
        }
        if (v->cls > DR_HEALTH || (v->owner != DR_NONE && v->owner >= g->node.n)) {
            return breach(c, "state '%s': class or owner out of range", v->name);
        }
        return true;
    }
    if (v->producer >= g->node.n) {
        return breach(c, "value '%s' has no producer", v->name);
    }
    const struct dr_node *p = &g->node.at[v->producer];
    for (uint32_t i = 0; i < p->n_out; i++) {
        if (p->out[i] == id) {
            return true;
        }
    }
    return breach(c, "value '%s': its producer '%s' does not list it", v->name, p->name);
}

static bool check_operands(const struct check *c, uint32_t id) {
    const struct dr_graph *g = c->g;
    const struct dr_node *n = &g->node.at[id];
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (n->in[i] >= g->value.n) {
            return breach(c, "node '%s': input %u is no value", n->name, i);
        }
        const struct dr_value *v = &g->value.at[n->in[i]];
        if (v->kind == DR_STEP && v->producer >= id && v->producer < g->node.n) {
            return breach(c, "node '%s' reads '%s' before it is made", n->name, v->name);
        }
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        if (n->out[i] >= g->value.n) {
            return breach(c, "node '%s': output %u is no value", n->name, i);
        }
        const struct dr_value *v = &g->value.at[n->out[i]];
        for (uint32_t j = 0; j < i; j++) {
            if (n->out[j] == n->out[i]) {
                return breach(c, "node '%s' lists its output '%s' twice", n->name, v->name);
            }
        }
        if (v->kind == DR_STEP && v->producer != id) {
            return breach(c, "node '%s' makes '%s', which another node makes", n->name, v->name);
        }
        if (v->kind == DR_STATE && n->role != DR_ROLE_UPDATE) {
            return breach(c, "node '%s' writes the state '%s' but is no update", n->name, v->name);
        }
        if (v->kind == DR_STATE && v->frozen) {
            return breach(c, "node '%s' writes the frozen state '%s'", n->name, v->name);
        }
    }
    return true;
}

static bool check_node(const struct check *c, uint32_t id, struct dr_map *names) {
    const struct dr_graph *g = c->g;
    const struct dr_node *n = &g->node.at[id];
    if (!n->name || !*n->name || !n->op) {
        return breach(c, "node %u has no name or no op", id);
    }
    if (dr_map_put(names, n->name, id) != DR_NONE) {
        return breach(c, "two nodes are called '%s'", n->name);
    }
    if (n->role >= DR_ROLES || n->cls > DR_UPDATED) {
        return breach(c, "node '%s': role or class out of range", n->name);
    }
    if ((n->subgraph != DR_NONE && n->subgraph >= g->subgraph.n) ||
        (n->optimizer != DR_NONE && n->optimizer >= g->optimizer.n)) {
        return breach(c, "node '%s': subgraph or optimizer out of range", n->name);
    }
    if ((n->forward != DR_NONE && n->forward >= id) || (n->share != DR_NONE && n->share >= id)) {
        return breach(c, "node '%s': the node it comes from or shares with is not above it",
                      n->name);
    }
    if (n->role == DR_ROLE_DATA && (n->n_in != 0 || n->n_out != 1)) {
        return breach(c, "data node '%s' must have no input and one output", n->name);
    }
    if (n->role == DR_ROLE_READBACK && n->n_out != 0) {
        return breach(c, "readback node '%s' has outputs", n->name);
    }
    return check_operands(c, id);
}

static bool is_value(const struct dr_graph *g, uint32_t v, bool none) {
    return v < g->value.n || (none && v == DR_NONE);
}

static bool check_graph(const struct check *c) {
    const struct dr_graph *g = c->g;
    if (!is_value(g, g->header, true) || !is_value(g, g->total_loss, true) ||
        !is_value(g, g->health, true) || !is_value(g, g->loss_scale, true) ||
        (g->readback != DR_NONE && g->readback >= g->node.n)) {
        return breach(
            c, "the graph's header, total loss, health, loss scale or readback is out of range");
    }
    for (uint32_t i = 0; i < g->input.n; i++) {
        if (!is_value(g, g->input.at[i], true)) {
            return breach(c, "input %u of the graph is no value", i);
        }
    }
    for (uint32_t i = 0; i < g->output.n; i++) {
        if (!is_value(g, g->output.at[i], false)) {
            return breach(c, "output %u of the graph is no value", i);
        }
    }
    for (uint32_t i = 0; i < g->term.n; i++) {
        const struct dr_term *t = &g->term.at[i];
        if (t->node >= g->node.n || !is_value(g, t->partial, false) ||
            !is_value(g, t->scalar, t->metric)) {
            return breach(c, "the node or values of '%s' are out of range", t->name);
        }
    }
    return true;
}

bool dr_graph_verify(const struct dr_graph *g, const char **why) {
    const struct check c = {.g = g, .why = why};
    *why = NULL;
    struct dr_map *names = dr_map_create(g->arena);
    for (uint32_t i = 0; i < g->node.n; i++) {
        if (!check_node(&c, i, names)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < g->value.n; i++) {
        if (!check_value(&c, i)) {
            return false;
        }
    }
    return check_graph(&c);
}
