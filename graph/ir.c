/* The IR's building blocks: types, shapes, graphs, values, nodes and the users of values. */
#include "graph/ir.h"
#include "graph/op.h"
#include <string.h>

#define MAX_BYTES (INT64_C(1) << 60) /* of one value: leaves room for sums of a few */

size_t dr_dtype_bytes(enum dr_dtype t) {
    static const uint8_t bytes[DR_DTYPES] = {1, 2, 4, 8, 2, 2, 4, 8};
    DR_ASSERT(t < DR_DTYPES);
    return bytes[t];
}

const char *dr_dtype_name(enum dr_dtype t) {
    static const char *const name[DR_DTYPES] = {"u8",  "u16",  "i32", "i64",
                                                "f16", "bf16", "f32", "f64"};
    DR_ASSERT(t < DR_DTYPES);
    return name[t];
}

const char *dr_role_name(enum dr_role r) {
    static const char *const name[DR_ROLES] = {"data",     "augment", "forward",
                                               "backward", "update",  "readback"};
    DR_ASSERT(r < DR_ROLES);
    return name[r];
}

const char *dr_frozen_class_name(enum dr_frozen_class c) {
    static const char *const name[] = {"upstream", "in the path", "updated"};
    DR_ASSERT(c <= DR_UPDATED);
    return name[c];
}

bool dr_shape_elements(const struct dr_shape *s, int64_t *out) {
    int64_t n = 1;
    DR_ASSERT(s->rank <= DR_MAX_RANK);
    for (uint32_t i = 0; i < s->rank; i++) {
        if (s->dim[i] < 1 || __builtin_mul_overflow(n, s->dim[i], &n)) {
            return false;
        }
    }
    *out = n;
    return true;
}

bool dr_shape_equal(const struct dr_shape *a, const struct dr_shape *b) {
    if (a->rank != b->rank) {
        return false;
    }
    for (uint32_t i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i]) {
            return false;
        }
    }
    return true;
}

const char *dr_shape_text(struct dr_arena *a, const struct dr_shape *s) {
    char text[DR_MAX_RANK * 24 + 8];
    size_t n = 0;
    text[n++] = '[';
    for (uint32_t i = 0; i < s->rank; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%lld", i ? ", " : "",
                              (long long)s->dim[i]);
    }
    text[n++] = ']';
    return dr_strndup(a, text, n);
}

struct dr_graph *dr_graph_create(struct dr_arena *a, struct dr_diag *d, const char *name) {
    struct dr_graph *g = DR_NEW(a, struct dr_graph);
    g->arena = a;
    g->diag = d;
    g->name = dr_strdup(a, name);
    g->header = g->total_loss = g->health = g->loss_scale = g->readback = DR_NONE;
    g->half = DR_F32;
    g->value_by_name = dr_map_create(a);
    return g;
}

struct dr_graph *dr_graph_like(const struct dr_graph *g) {
    struct dr_graph *to = dr_graph_create(g->arena, g->diag, g->name);
    to->mode = g->mode;
    to->batch = g->batch;
    to->seed = g->seed;
    to->clip_norm = g->clip_norm;
    to->tf32 = g->tf32;
    to->half = g->half;
    to->device = g->device;
    to->scaling = g->scaling;
    for (uint32_t i = 0; i < g->subgraph.n; i++) {
        *dr_push(to->arena, &to->subgraph) = g->subgraph.at[i];
    }
    for (uint32_t i = 0; i < g->optimizer.n; i++) {
        *dr_push(to->arena, &to->optimizer) = g->optimizer.at[i];
    }
    return to;
}

uint32_t dr_graph_value(struct dr_graph *g, const char *name, enum dr_value_kind kind,
                        enum dr_dtype dtype, struct dr_shape shape, struct dr_mark mark) {
    int64_t bytes = 0;
    if (!dr_shape_elements(&shape, &bytes) ||
        __builtin_mul_overflow(bytes, (int64_t)dr_dtype_bytes(dtype), &bytes) ||
        bytes > MAX_BYTES) {
        dr_error(g->diag, mark, "'%s' would be %s of %s: that size is impossible", name,
                 dr_shape_text(g->arena, &shape), dr_dtype_name(dtype));
        return DR_NONE;
    }
    const uint32_t id = g->value.n;
    struct dr_value *v = dr_push(g->arena, &g->value);
    *v = (struct dr_value){.name = dr_strdup(g->arena, name),
                           .kind = kind,
                           .dtype = dtype,
                           .shape = shape,
                           .bytes = bytes,
                           .producer = DR_NONE,
                           .mark = mark,
                           .owner = DR_NONE};
    const uint32_t old = dr_map_put(g->value_by_name, v->name, id);
    DR_ASSERT(old == DR_NONE);
    return id;
}

uint32_t dr_graph_node(struct dr_graph *g, const char *name, const struct dr_op *op,
                       const void *attrs, const uint32_t *in, uint32_t n_in, enum dr_role role,
                       struct dr_mark mark) {
    const uint32_t id = g->node.n;
    struct dr_node *n = dr_push(g->arena, &g->node);
    *n = (struct dr_node){.name = dr_strdup(g->arena, name),
                          .op = op,
                          .attrs = dr_alloc(g->arena, op->attrs_bytes),
                          .in = DR_NEW_N(g->arena, uint32_t, n_in),
                          .n_in = n_in,
                          .role = role,
                          .subgraph = DR_NONE,
                          .forward = DR_NONE,
                          .optimizer = DR_NONE,
                          .share = DR_NONE,
                          .key = dr_hash(name, strlen(name)),
                          .mark = mark};
    if (attrs && op->attrs_bytes) {
        memcpy(n->attrs, attrs, op->attrs_bytes);
    }
    if (n_in) {
        memcpy(n->in, in, sizeof *in * n_in);
    }
    return id;
}

static uint32_t mapped(const uint32_t *to, uint32_t id) {
    return id == DR_NONE ? DR_NONE : to[id];
}

void dr_graph_reorder(struct dr_graph *g, const uint32_t *order) {
    struct dr_node *old = DR_NEW_N(g->arena, struct dr_node, g->node.n);
    uint32_t *to = DR_NEW_N(g->arena, uint32_t, g->node.n);
    for (uint32_t k = 0; k < g->node.n; k++) {
        old[k] = g->node.at[k];
        to[order[k]] = k;
    }
    for (uint32_t k = 0; k < g->node.n; k++) {
        struct dr_node *n = &g->node.at[k];
        *n = old[order[k]];
        n->forward = mapped(to, n->forward);
        n->share = mapped(to, n->share);
    }
    for (uint32_t i = 0; i < g->value.n; i++) {
        struct dr_value *v = &g->value.at[i];
        v->producer = mapped(to, v->producer);
        v->owner = mapped(to, v->owner);
    }
    for (uint32_t i = 0; i < g->term.n; i++) {
        g->term.at[i].node = to[g->term.at[i].node];
    }
    g->readback = mapped(to, g->readback);
}

struct dr_users dr_graph_users(const struct dr_graph *g, struct dr_arena *a) {
    struct dr_users u = {.first = DR_NEW_N(a, uint32_t, (size_t)g->value.n + 1)};
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        for (uint32_t j = 0; j < n->n_in; j++) {
            u.first[n->in[j] + 1]++;
        }
    }
    for (uint32_t v = 0; v < g->value.n; v++) {
        u.first[v + 1] += u.first[v];
    }
    u.user = DR_NEW_N(a, uint32_t, u.first[g->value.n]);
    uint32_t *next = DR_NEW_N(a, uint32_t, g->value.n);
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        for (uint32_t j = 0; j < n->n_in; j++) {
            const uint32_t v = n->in[j];
            u.user[u.first[v] + next[v]++] = i;
        }
    }
    return u;
}
