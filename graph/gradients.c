/* gradients: the backward pass as nodes (training only; other graphs pass through). The updates
 * behind it are in graph/updates.c.
 *
 * Before: frozen marks are decided, total_loss is there. After: gradient nodes in reverse program
 * order, each forward node once, after all that read it (the tape of reverse-mode differentiation);
 * then guard, clip, learning rates, optimizers in the order of the weights, running statistics and
 * readback. node->cls covers the new nodes too.
 *
 * A value that is used more than once gets its contributions in that order of visits, summed by one
 * "add" node, left to right: the same bits on every schedule. With loss scaling each loss's
 * gradient is multiplied by the scale before anything reads it, and the updates take the scale out
 * again. Frozen weights get no gradient; a frozen node passes one on only where something trainable
 * is above it. */
#include "graph/gradients.h"
#include "graph/builtin.h"
#include <string.h>

struct sum {
    DR_VEC(uint32_t) of; /* gradient values */
};

struct tape {
    struct dr_graph *g;
    const struct dr_op_table *ops;
    uint32_t n_nodes, n_values; /* of the forward graph */
    struct sum *sum;            /* by value: contributions so far */
    uint32_t *first_user;       /* by value: of states, the last node to be visited */
    uint32_t *term;             /* by node: its loss, DR_NONE */
    uint32_t *grad;             /* by value: of weights, the finished gradient */
    bool *blamed;               /* by node: an error was reported */
    bool ok;
};

uint32_t dr_grad_emit(struct dr_grad *c, const char *suffix, const struct dr_op *op,
                      const void *attrs, const uint32_t *in, uint32_t n_in) {
    struct dr_graph *g = c->g;
    const struct dr_node f = g->node.at[c->node];
    if (!attrs && op->attrs_bytes == f.op->attrs_bytes) {
        attrs = f.attrs;
    }
    const uint32_t id = dr_graph_node(g, dr_printf(g->arena, "%s:%s", f.name, suffix), op, attrs,
                                      in, n_in, DR_ROLE_BACKWARD, f.mark);
    g->node.at[id].subgraph = f.subgraph;
    g->node.at[id].forward = c->node;
    struct dr_infer infer = {.g = g, .node = id};
    /* Its shapes are those of the forward node, which are known to be good. */
    const bool fits = !op->infer || op->infer(&infer);
    DR_ASSERT(fits);
    return id;
}

/* The gradient of a value from all its contributions; DR_NONE: there is none. */
static uint32_t finish(struct tape *t, uint32_t value, uint32_t forward) {
    struct dr_graph *g = t->g;
    const struct sum *s = &t->sum[value];
    if (s->of.n < 2) {
        return s->of.n ? s->of.at[0] : DR_NONE;
    }
    const struct dr_op *add = dr_op_find(t->ops, "add");
    DR_ASSERT(add);
    const struct dr_node f = g->node.at[forward];
    const uint32_t id = dr_graph_emit(g, dr_printf(g->arena, "%s:sum", g->value.at[value].name),
                                      add, NULL, s->of.at, s->of.n, DR_ROLE_BACKWARD, f.mark);
    DR_ASSERT(id != DR_NONE);
    g->node.at[id].subgraph = f.subgraph;
    g->node.at[id].forward = forward;
    return g->node.at[id].out[0];
}

static bool is_float(enum dr_dtype t) {
    return t == DR_F16 || t == DR_BF16 || t == DR_F32 || t == DR_F64;
}

static void blame(struct tape *t, uint32_t node) {
    const struct dr_node *n = &t->g->node.at[node];
    t->ok = false;
    if (!t->blamed[node]) {
        t->blamed[node] = true;
        dr_error(t->g->diag, n->mark,
                 "no gradient goes through '%s': '%s' stands between a loss and trainable weights",
                 n->op->name, n->name);
    }
}

/* Integers have no gradient. As the target of a loss they end the path; anywhere else something
 * trainable would silently stay as it is. */
static void check_integer(struct tape *t, uint32_t node, uint32_t input) {
    const struct dr_graph *g = t->g;
    const struct dr_node *n = &g->node.at[node];
    if ((n->op->flags & DR_OP_LOSS) && input > 0) {
        return;
    }
    uint32_t p = g->value.at[n->in[input]].producer;
    while (g->node.at[p].op->grad && g->node.at[p].n_in > 0) {
        const struct dr_value *x = &g->value.at[g->node.at[p].in[0]];
        if (x->kind != DR_STEP || is_float(x->dtype)) {
            break;
        }
        p = x->producer;
    }
    blame(t, p);
}

/* Which inputs of a node want a gradient. */
static bool needs_of(struct tape *t, uint32_t node, bool *need) {
    const struct dr_graph *g = t->g;
    const struct dr_node *n = &g->node.at[node];
    bool any = false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const struct dr_value *v = &g->value.at[n->in[i]];
        if (v->kind == DR_STATE) {
            need[i] = v->cls == DR_WEIGHT && !v->frozen;
        } else {
            const bool wanted = g->node.at[v->producer].needs_grad;
            need[i] = wanted && is_float(v->dtype);
            if (wanted && !need[i]) {
                check_integer(t, node, i);
            }
        }
        any |= need[i];
    }
    return any;
}

/* The gradient of a loss by its operand i, times the scale. */
static uint32_t scaled(const struct tape *t, struct dr_grad *c, uint32_t i) {
    struct dr_graph *g = t->g;
    const struct dr_op *cast = dr_op_find(t->ops, "cast");
    DR_ASSERT(cast);
    const struct dr_cast_attrs attrs = {.scaled = 1};
    const uint32_t in[] = {c->dx[i], g->loss_scale};
    const char *suffix = i == 0 ? "scaled" : dr_printf(g->arena, "scaled%u", i);
    const uint32_t n = dr_grad_emit(c, suffix, cast, &attrs, in, 2);
    return g->node.at[n].out[0];
}

static void visit(struct tape *t, uint32_t node) {
    struct dr_graph *g = t->g;
    const struct dr_node n = g->node.at[node]; /* g->node moves as nodes are added */
    const bool loss = t->term[node] != DR_NONE;
    bool reached = loss;
    if (!n.needs_grad) {
        return;
    }
    uint32_t *dy = DR_NEW_N(g->arena, uint32_t, n.n_out);
    for (uint32_t i = 0; i < n.n_out; i++) {
        dy[i] = loss ? DR_NONE : finish(t, n.out[i], node);
        reached |= dy[i] != DR_NONE;
    }
    bool *need = DR_NEW_N(g->arena, bool, n.n_in);
    if (!reached || !needs_of(t, node, need)) {
        return;
    }
    if (!n.op->grad) {
        blame(t, node);
        return;
    }
    struct dr_grad c = {.g = g,
                        .node = node,
                        .dy = dy,
                        .need = need,
                        .dx = DR_NEW_N(g->arena, uint32_t, n.n_in),
                        .weight = loss ? g->term.at[t->term[node]].weight : 0};
    memset(c.dx, 0xff, sizeof *c.dx * n.n_in); /* DR_NONE */
    n.op->grad(&c);
    for (uint32_t i = 0; i < n.n_in; i++) {
        if (need[i] && c.dx[i] != DR_NONE) {
            if (loss && g->loss_scale != DR_NONE) {
                c.dx[i] = scaled(t, &c, i);
            }
            DR_ASSERT(dr_shape_equal(&g->value.at[c.dx[i]].shape, &g->value.at[n.in[i]].shape));
            *dr_push(g->arena, &t->sum[n.in[i]].of) = c.dx[i];
        }
    }
}

static void walk_back(struct tape *t) {
    struct dr_graph *g = t->g;
    for (uint32_t i = t->n_nodes; i-- > 0;) {
        visit(t, i);
        for (uint32_t j = 0; j < g->node.at[i].n_in; j++) {
            const uint32_t v = g->node.at[i].in[j];
            if (g->value.at[v].kind == DR_STATE && t->first_user[v] == i && t->grad[v] == DR_NONE) {
                t->grad[v] = finish(t, v, i);
            }
        }
    }
}

static struct tape start(struct dr_graph *g, const struct dr_op_table *ops) {
    struct dr_arena *a = g->arena;
    struct tape t = {.g = g,
                     .ops = ops,
                     .n_nodes = g->node.n,
                     .n_values = g->value.n,
                     .sum = DR_NEW_N(a, struct sum, g->value.n),
                     .first_user = DR_NEW_N(a, uint32_t, g->value.n),
                     .term = DR_NEW_N(a, uint32_t, g->node.n),
                     .grad = DR_NEW_N(a, uint32_t, g->value.n),
                     .blamed = DR_NEW_N(a, bool, g->node.n),
                     .ok = true};
    for (uint32_t i = 0; i < g->value.n; i++) {
        t.first_user[i] = t.grad[i] = DR_NONE;
    }
    for (uint32_t i = 0; i < g->node.n; i++) {
        t.term[i] = DR_NONE;
        for (uint32_t j = 0; j < g->node.at[i].n_in; j++) {
            uint32_t *first = &t.first_user[g->node.at[i].in[j]];
            *first = *first == DR_NONE ? i : *first;
        }
    }
    for (uint32_t i = 0; i < g->term.n; i++) {
        if (!g->term.at[i].metric) {
            t.term[g->term.at[i].node] = i;
        }
    }
    return t;
}

struct dr_graph *dr_pass_gradients(struct dr_graph *g, const struct dr_op_table *ops) {
    if (g->mode != DR_MODE_TRAIN) {
        return g;
    }
    struct tape t = start(g, ops);
    const uint32_t good = g->scaling.initial > 0 ? dr_add_scaling(g) : DR_NONE;
    walk_back(&t);
    if (!t.ok) {
        return NULL;
    }
    const struct dr_updates u = {.g = g,
                                 .ops = ops,
                                 .n_nodes = t.n_nodes,
                                 .n_values = t.n_values,
                                 .grad = t.grad,
                                 .good = good};
    if (!dr_emit_updates(&u)) {
        return NULL;
    }
    dr_graph_classify(g);
    return g;
}
