/* What follows the backward pass in a step, in this order: guard, clip (with loss scaling: clip,
 * guard, which reads what clip says of the gradients), one learning rate for each
 * optimizer in use, the optimizers in the order of their first weights, running statistics,
 * readback.
 *
 * All updates read health, which the guard wrote before them: in a step whose loss is not finite
 * they write nothing. Frozen weights appear in none of it, not even in the norm that is clipped. */
#include "graph/gradients.h"
#include "graph/builtin.h"
#include <math.h>
#include <string.h>

struct emitter {
    const struct dr_updates *u;
    struct dr_graph *g;
    uint32_t *lr;  /* by optimizer: value, DR_NONE */
    uint32_t clip; /* value, DR_NONE */
};

static const struct dr_op *op_of(const struct emitter *e, const char *name) {
    const struct dr_op *op = dr_op_find(e->u->ops, name);
    DR_ASSERT(op);
    return op;
}

/* Users may call an input anything, "train:lr" too. */
static const char *free_name(const struct dr_graph *g, const char *where, const char *suffix) {
    const char *name = dr_printf(g->arena, "%s:%s", where, suffix);
    for (uint32_t i = 2; dr_map_get(g->value_by_name, name) != DR_NONE; i++) {
        name = dr_printf(g->arena, "%s:%s%u", where, suffix, i);
    }
    return name;
}

static uint32_t emit_one(const struct emitter *e, const char *name, const struct dr_op *op,
                         const void *attrs, const uint32_t *in, uint32_t n_in,
                         struct dr_mark mark) {
    return dr_graph_emit(e->g, name, op, attrs, in, n_in, DR_ROLE_UPDATE, mark);
}

static bool is_trained(const struct emitter *e, uint32_t v) {
    const struct dr_value *s = &e->g->value.at[v];
    return s->kind == DR_STATE && s->cls == DR_WEIGHT && !s->frozen && e->u->grad[v] != DR_NONE;
}

/* Warns once a node about weights that no loss reaches. False: no weight is left to train. */
static bool check_reached(const struct emitter *e) {
    struct dr_graph *g = e->g;
    bool any = false, *warned = DR_NEW_N(g->arena, bool, g->node.n);
    for (uint32_t v = 0; v < e->u->n_values; v++) {
        const struct dr_value *s = &g->value.at[v];
        any |= is_trained(e, v);
        if (s->kind == DR_STATE && s->cls == DR_WEIGHT && !s->frozen && !is_trained(e, v) &&
            s->owner != DR_NONE && !warned[s->owner]) {
            warned[s->owner] = true;
            dr_warn(g->diag, s->mark, "'%s' is not trained: no loss reaches it", s->name);
        }
    }
    const struct dr_mark mark = g->optimizer.n ? g->optimizer.at[0].mark : (struct dr_mark){0};
    return any || dr_error(g->diag, mark, "nothing to train: no loss reaches a trainable weight");
}

uint32_t dr_add_scaling(struct dr_graph *g) {
    const struct dr_mark mark = {0};
    const char *name = free_name(g, "train", "scale");
    g->loss_scale = dr_graph_value(g, name, DR_STATE, DR_F32, (struct dr_shape){0}, mark);
    g->value.at[g->loss_scale].cls = DR_MOMENT;
    g->value.at[g->loss_scale].init =
        (struct dr_init){.kind = DR_INIT_NUMBER, .number = g->scaling.initial};
    const uint32_t good =
        dr_graph_value(g, free_name(g, name, "good"), DR_STATE, DR_I64, (struct dr_shape){0}, mark);
    g->value.at[good].cls = DR_MOMENT;
    return good;
}

static void emit_guard(struct emitter *e) {
    struct dr_graph *g = e->g;
    const struct dr_mark mark = {0};
    g->health =
        dr_graph_value(g, free_name(g, "train", "health"), DR_STATE, DR_I64, DR_SHAPE(2), mark);
    g->value.at[g->health].cls = DR_HEALTH;
    DR_ASSERT(g->total_loss != DR_NONE && g->header != DR_NONE);
    if (g->loss_scale == DR_NONE) {
        const uint32_t in[] = {g->total_loss, g->header, g->health};
        emit_one(e, "train:guard", op_of(e, "guard"), NULL, in, 3, mark);
    } else {
        const struct dr_guard_scaled_attrs attrs = {.scaling = g->scaling};
        const uint32_t in[] = {g->total_loss, g->header,     e->clip,
                               g->health,     g->loss_scale, e->u->good};
        emit_one(e, "train:guard", op_of(e, "guard_scaled"), &attrs, in, 6, mark);
    }
}

static void emit_clip(struct emitter *e) {
    struct dr_graph *g = e->g;
    uint32_t *in = DR_NEW_N(g->arena, uint32_t, (size_t)e->u->n_values + 1), n = 0;
    for (uint32_t v = 0; v < e->u->n_values; v++) {
        if (is_trained(e, v)) {
            in[n++] = e->u->grad[v];
        }
    }
    const struct dr_clip_attrs attrs = {.max_norm = g->clip_norm > 0 ? g->clip_norm : INFINITY,
                                        .scaled = g->loss_scale != DR_NONE};
    if (attrs.scaled) {
        in[n++] = g->loss_scale;
    }
    const uint32_t id = emit_one(e, free_name(g, "train", "clip"), op_of(e, "clip"), &attrs, in, n,
                                 (struct dr_mark){0});
    e->clip = g->node.at[id].out[0];
}

static uint32_t optimizer_of(const struct emitter *e, uint32_t weight) {
    const uint32_t owner = e->g->value.at[weight].owner;
    DR_ASSERT(owner != DR_NONE && e->g->node.at[owner].optimizer < e->g->optimizer.n);
    return e->g->node.at[owner].optimizer;
}

static void emit_rates(struct emitter *e) {
    struct dr_graph *g = e->g;
    e->lr = DR_NEW_N(g->arena, uint32_t, g->optimizer.n);
    bool *used = DR_NEW_N(g->arena, bool, g->optimizer.n);
    for (uint32_t v = 0; v < e->u->n_values; v++) {
        if (is_trained(e, v)) {
            used[optimizer_of(e, v)] = true;
        }
    }
    for (uint32_t i = 0; i < g->optimizer.n; i++) {
        const struct dr_optimizer *o = &g->optimizer.at[i];
        if (!used[i]) {
            dr_warn(g->diag, o->mark,
                    "the optimizer of '%s' trains nothing: what it stands for is frozen, or has "
                    "no weights, or another optimizer",
                    o->where);
            continue;
        }
        const struct dr_lr_attrs attrs = {.lr = o->lr};
        const uint32_t id = emit_one(e, free_name(g, o->where, "lr"), op_of(e, "lr"), &attrs,
                                     &g->header, 1, o->mark);
        e->lr[i] = g->node.at[id].out[0];
    }
}

/* The weights that one node updates with v: of the same optimizer and subgraph, where the op can.
 * One launch is worth much where weights are small, and the parts of a model that run beside each
 * other keep updates of their own. v itself comes first; all are marked as done. */
static uint32_t take_group(const struct emitter *e, uint32_t v, bool *done, uint32_t *group) {
    const struct dr_graph *g = e->g;
    const uint32_t i = optimizer_of(e, v), subgraph = g->node.at[g->value.at[v].owner].subgraph;
    const bool groups = g->optimizer.at[i].op->flags & DR_OP_GROUPS;
    uint32_t n = 0;
    for (uint32_t w = v; w < e->u->n_values && (groups || n == 0); w++) {
        if (!done[w] && is_trained(e, w) && optimizer_of(e, w) == i &&
            g->node.at[g->value.at[w].owner].subgraph == subgraph) {
            done[w] = true;
            group[n++] = w;
        }
    }
    return n;
}

/* "a.weight:sgd", or, of several weights, "net:sgd" by the subgraph, "net.a:sgd" by the node that
 * has an optimizer of its own. */
static const char *update_name(const struct emitter *e, const uint32_t *group, uint32_t n) {
    const struct dr_graph *g = e->g;
    const struct dr_value *v = &g->value.at[group[0]];
    const struct dr_optimizer *o = &g->optimizer.at[optimizer_of(e, group[0])];
    const uint32_t subgraph = g->node.at[v->owner].subgraph;
    const char *what = n == 1                           ? v->name
                       : strcmp(o->where, "train") != 0 ? o->where
                       : subgraph != DR_NONE            ? g->subgraph.at[subgraph].name
                                                        : "train";
    return dr_printf(g->arena, "%s:%s", what, o->op->name);
}

static bool emit_optimizer(const struct emitter *e, const uint32_t *group, uint32_t n) {
    struct dr_graph *g = e->g;
    const uint32_t i = optimizer_of(e, group[0]), owner = g->value.at[group[0]].owner;
    const struct dr_optimizer *o = &g->optimizer.at[i];
    uint32_t *in = DR_NEW_N(g->arena, uint32_t, 2 * (size_t)n + 3), n_in = 2 * n;
    for (uint32_t k = 0; k < n; k++) {
        in[k] = group[k];
        in[n + k] = e->u->grad[group[k]];
    }
    in[n_in++] = e->lr[i];
    in[n_in++] = g->health;
    if (e->clip != DR_NONE) {
        in[n_in++] = e->clip;
    }
    const uint32_t id = emit_one(e, update_name(e, group, n), o->op, o->attrs, in, n_in, o->mark);
    if (id == DR_NONE) {
        return false;
    }
    g->node.at[id].forward = owner;
    g->node.at[id].subgraph = g->node.at[owner].subgraph;
    return true;
}

static bool emit_optimizers(const struct emitter *e) {
    bool *done = DR_NEW_N(e->g->arena, bool, e->u->n_values);
    uint32_t *group = DR_NEW_N(e->g->arena, uint32_t, e->u->n_values);
    for (uint32_t v = 0; v < e->u->n_values; v++) {
        if (is_trained(e, v) && !done[v] &&
            !emit_optimizer(e, group, take_group(e, v, done, group))) {
            return false;
        }
    }
    return true;
}

static void emit_tracks(struct emitter *e) {
    struct dr_graph *g = e->g;
    for (uint32_t i = 0; i < e->u->n_nodes; i++) {
        if (g->node.at[i].frozen || !g->node.at[i].op->track) {
            continue;
        }
        const uint32_t first = g->node.n;
        g->node.at[i].op->track(g, i);
        for (uint32_t j = first; j < g->node.n; j++) {
            g->node.at[j].forward = i;
            g->node.at[j].subgraph = g->node.at[i].subgraph;
        }
    }
}

static void emit_readback(struct emitter *e) {
    struct dr_graph *g = e->g;
    uint32_t *in = DR_NEW_N(g->arena, uint32_t, 4 + 2 * (size_t)g->term.n), n = 0;
    in[n++] = g->total_loss;
    for (uint32_t i = 0; i < g->term.n; i++) {
        if (!g->term.at[i].metric) {
            in[n++] = g->term.at[i].scalar;
        }
        in[n++] = g->term.at[i].partial;
    }
    in[n++] = g->health;
    if (g->loss_scale != DR_NONE) {
        in[n++] = g->loss_scale;
    }
    in[n++] = g->header;
    g->readback = dr_graph_emit(g, "readback", op_of(e, "readback"), NULL, in, n, DR_ROLE_READBACK,
                                (struct dr_mark){0});
}

bool dr_emit_updates(const struct dr_updates *u) {
    struct emitter e = {.u = u, .g = u->g, .clip = DR_NONE};
    if (!check_reached(&e)) {
        return false;
    }
    const bool scaled = u->g->loss_scale != DR_NONE;
    if (scaled) {
        emit_clip(&e);
    }
    emit_guard(&e);
    if (u->g->clip_norm > 0 && !scaled) {
        emit_clip(&e);
    }
    emit_rates(&e);
    if (!emit_optimizers(&e)) {
        return false;
    }
    emit_tracks(&e);
    emit_readback(&e);
    return true;
}
