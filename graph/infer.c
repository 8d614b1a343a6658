/* What an op's infer calls: its inputs, the outputs and states that it adds, and errors that show
 * the shapes on the way; and dr_graph_emit, which is a node plus its inference.
 *
 * A state belongs to the node that adds it and is named "NODE.leaf". A node that shares another's
 * weights finds that node's states instead of adding its own. A state of a frozen node is frozen:
 * weights, and statistics too, since a frozen norm never updates them. */
#include "graph/op.h"
#include <string.h>

#define MAX_PATH 12 /* shapes in one note */
#define MAX_NOTES 8 /* inputs that get a note */

static struct dr_node *node_of(const struct dr_infer *c) {
    return &c->g->node.at[c->node];
}

const struct dr_value *dr_infer_in(const struct dr_infer *c, uint32_t i) {
    const struct dr_node *n = node_of(c);
    DR_ASSERT(i < n->n_in);
    return &c->g->value.at[n->in[i]];
}

void *dr_infer_attrs(const struct dr_infer *c) {
    return node_of(c)->attrs;
}

static void append(struct dr_graph *g, uint32_t **list, uint32_t *n, uint32_t id) {
    uint32_t *longer = DR_NEW_N(g->arena, uint32_t, (size_t)*n + 1);
    if (*n) {
        memcpy(longer, *list, sizeof **list * *n);
    }
    longer[(*n)++] = id;
    *list = longer;
}

/* Names are the loader's to keep apart; what it lets through is still no reason to crash. */
static bool name_is_free(struct dr_infer *c, const char *name) {
    if (dr_map_get(c->g->value_by_name, name) == DR_NONE) {
        return true;
    }
    return dr_infer_error(c, "there are two values called '%s'", name);
}

bool dr_infer_out(struct dr_infer *c, const char *suffix, enum dr_dtype t, struct dr_shape s,
                  enum dr_meaning meaning) {
    struct dr_graph *g = c->g;
    struct dr_node *n = node_of(c);
    const uint32_t i = n->n_out;
    const bool has_name = n->out_names && (n->op->outputs == 0 || i < n->op->outputs);
    const char *name = i == 0 ? n->name : NULL;
    if (has_name && n->out_names[i]) {
        name = n->out_names[i];
    } else if (!name) {
        name = suffix ? dr_printf(g->arena, "%s.%s", n->name, suffix)
                      : dr_printf(g->arena, "%s.%u", n->name, i);
    }
    if (!name_is_free(c, name)) {
        return false;
    }
    const uint32_t v = dr_graph_value(g, name, DR_STEP, t, s, n->mark);
    if (v == DR_NONE) {
        return false;
    }
    g->value.at[v].producer = c->node;
    g->value.at[v].meaning = meaning;
    append(g, &n->out, &n->n_out, v);
    return true;
}

/* The state that a sharing node uses in place of one of its own. */
static bool shared_state(struct dr_infer *c, const char *leaf, enum dr_dtype t,
                         const struct dr_shape *s) {
    struct dr_graph *g = c->g;
    struct dr_node *n = node_of(c);
    uint32_t owner = n->share;
    while (g->node.at[owner].share != DR_NONE) {
        owner = g->node.at[owner].share;
    }
    const char *name = dr_printf(g->arena, "%s.%s", g->node.at[owner].name, leaf);
    const uint32_t v = dr_map_get(g->value_by_name, name);
    if (v == DR_NONE || g->value.at[v].kind != DR_STATE) {
        return dr_infer_error(c, "it shares the weights of '%s', which has no %s",
                              g->node.at[owner].name, leaf);
    }
    const struct dr_value *old = &g->value.at[v];
    if (old->dtype != t || !dr_shape_equal(&old->shape, s)) {
        return dr_infer_error(c, "it shares '%s', which is %s of %s, but needs %s of %s", name,
                              dr_shape_text(g->arena, &old->shape), dr_dtype_name(old->dtype),
                              dr_shape_text(g->arena, s), dr_dtype_name(t));
    }
    append(g, &n->in, &n->n_in, v);
    return true;
}

static bool own_state(struct dr_infer *c, const char *name, enum dr_state_class cls,
                      enum dr_dtype t, struct dr_shape s, struct dr_init init) {
    struct dr_graph *g = c->g;
    struct dr_node *n = node_of(c);
    if (!name_is_free(c, name)) {
        return false;
    }
    const uint32_t v = dr_graph_value(g, name, DR_STATE, t, s, n->mark);
    if (v == DR_NONE) {
        return false;
    }
    struct dr_value *value = &g->value.at[v];
    value->cls = cls;
    value->init = init;
    value->owner = c->node;
    value->frozen = n->frozen && (cls == DR_WEIGHT || cls == DR_BUFFER);
    append(g, &n->in, &n->n_in, v);
    return true;
}

bool dr_infer_state(struct dr_infer *c, const char *leaf, enum dr_state_class cls, enum dr_dtype t,
                    struct dr_shape s, struct dr_init init) {
    const struct dr_node *n = node_of(c);
    if (n->share != DR_NONE) {
        return shared_state(c, leaf, t, &s);
    }
    return own_state(c, dr_printf(c->g->arena, "%s.%s", n->name, leaf), cls, t, s, init);
}

bool dr_infer_moment(struct dr_infer *c, uint32_t i, const char *leaf, enum dr_dtype t,
                     struct dr_shape s) {
    const char *name =
        dr_printf(c->g->arena, "%s:%s.%s", dr_infer_in(c, i)->name, node_of(c)->op->name, leaf);
    return own_state(c, name, DR_MOMENT, t, s, (struct dr_init){.kind = DR_INIT_ZERO});
}

bool dr_infer_write(struct dr_infer *c, uint32_t i) {
    struct dr_node *n = node_of(c);
    DR_ASSERT(i < n->n_in && c->g->value.at[n->in[i]].kind == DR_STATE);
    append(c->g, &n->out, &n->n_out, n->in[i]);
    return true;
}

/* The operand that a value is made from: the one in its place where an op makes each output from
 * one input (flips), else the first. DR_NONE: it comes from the data. */
static uint32_t made_from(const struct dr_graph *g, uint32_t value) {
    const uint32_t p = g->value.at[value].producer;
    if (p == DR_NONE) {
        return DR_NONE;
    }
    const struct dr_node *n = &g->node.at[p];
    uint32_t i = 0;
    while (n->op->outputs == 0 && i + 1 < n->n_out && n->out[i] != value) {
        i++;
    }
    const bool there = i < n->n_in && g->value.at[n->in[i]].kind == DR_STEP;
    return there ? n->in[i] : DR_NONE;
}

/* "image [1, 143, 90, 3] -> net.p1 [1, 71, 45, 3] -> net.p2 [1, 35, 22, 3]": the value and what it
 * is made from, up to where the data comes in. What an activation reads
 * ("net.p1:pre") bears a name that no file has, and is left out. */
static const char *path_of_shapes(struct dr_graph *g, uint32_t value) {
    uint32_t path[MAX_PATH], n = 0;
    bool longer = false;
    for (uint32_t v = value; v != DR_NONE; v = made_from(g, v)) {
        if (n == MAX_PATH) {
            longer = true;
            break;
        }
        const char *end = strrchr(g->value.at[v].name, ':');
        if (v == value || !end || strcmp(end, ":pre") != 0) {
            path[n++] = v;
        }
    }
    struct dr_text t = {.arena = g->arena};
    dr_text_add(&t, "%s", longer ? "... -> " : "");
    while (n > 0) {
        const struct dr_value *v = &g->value.at[path[--n]];
        dr_text_add(&t, "%s %s%s", v->name, dr_shape_text(g->arena, &v->shape), n ? " -> " : "");
    }
    return t.at;
}

/* As the file calls it: "batch_norm", not "batch_norm_eval". */
static const char *op_name(const struct dr_node *n) {
    const struct dr_yaml *op = n->written ? dr_yaml_get(n->written, "op") : NULL;
    return op && (n->op->flags & DR_OP_INTERNAL) ? op->text : n->op->name;
}

static bool report(struct dr_infer *c, struct dr_mark mark, const char *fmt, va_list ap) {
    struct dr_graph *g = c->g;
    const struct dr_node *n = node_of(c);
    dr_error(g->diag, mark, "%s '%s': %s", op_name(n), n->name, dr_vprintf(g->arena, fmt, ap));
    uint32_t notes = 0;
    for (uint32_t i = 0; i < n->n_in && notes < MAX_NOTES; i++) {
        const struct dr_value *v = &g->value.at[n->in[i]];
        if (v->kind != DR_STEP || v->meaning == DR_HEADER) {
            continue;
        }
        const char *shape = dr_shape_text(g->arena, &v->shape);
        const char *path = path_of_shapes(g, n->in[i]);
        notes++;
        if (strstr(path, " -> ")) {
            dr_note(g->diag, v->mark, "its input '%s' is %s: %s", v->name, shape, path);
        } else {
            dr_note(g->diag, v->mark, "its input '%s' is %s", v->name, shape);
        }
    }
    return false;
}

bool dr_infer_error(struct dr_infer *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    report(c, node_of(c)->mark, fmt, ap);
    va_end(ap);
    return false;
}

bool dr_infer_wrong(struct dr_infer *c, const char *attr, const char *fmt, ...) {
    const struct dr_node *n = node_of(c);
    const struct dr_yaml *value = n->written ? dr_yaml_get(n->written, attr) : NULL;
    va_list ap;
    va_start(ap, fmt);
    report(c, value ? value->mark : n->mark, fmt, ap);
    va_end(ap);
    return false;
}

uint32_t dr_graph_emit(struct dr_graph *g, const char *name, const struct dr_op *op,
                       const void *attrs, const uint32_t *in, uint32_t n_in, enum dr_role role,
                       struct dr_mark mark) {
    const uint32_t id = dr_graph_node(g, name, op, attrs, in, n_in, role, mark);
    struct dr_infer c = {.g = g, .node = id};
    return op->infer && !op->infer(&c) ? DR_NONE : id;
}
