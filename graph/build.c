/* load: the checked model as a graph, every node with its shapes.
 *
 * Before: a dr_model. After: one node for each node of the model (two where it has an activation),
 * data nodes and the batch header before them, losses, metrics, total loss and, outside training,
 * the readback after them; every value has its shape, states are declared, `term` and `output` say
 * where results are. In evaluation and inference ops stand in their eval forms. In frozen parts
 * they always do, but for augmentation: freezing is about weights, a flip in a frozen part still
 * flips.
 *
 * A node that could not be built leaves its values unknown (DR_NONE), and what needs them is left
 * out without a word: one mistake, one error. */
#include "graph/builtin.h"
#include "graph/passes.h"
#include <string.h>

struct needs;
struct build {
    const struct dr_model *m;
    struct dr_graph *g;
    const struct needs *keep;
    uint32_t *node;   /* graph's node by model's node */
    uint32_t **out;   /* by model's node: its values */
    bool *said;       /* by subgraph: that its weights or optimizer are missing */
    bool whole_batch; /* said so */
};

static uint32_t value_of(const struct build *b, const struct dr_ref *r) {
    if (r->is_input) {
        return b->g->input.at[r->index];
    }
    return b->out[r->index] ? b->out[r->index][r->output] : DR_NONE;
}

/* ---- what inference leaves out ---- */
/* What is needed: inputs of the model, and outputs of its nodes. */
struct needs {
    bool *input;
    bool **out; /* by node; NULL: none of its outputs */
};

static struct needs new_needs(const struct dr_model *m) {
    return (struct needs){.input = DR_NEW_N(m->arena, bool, (size_t)m->input.n + 1),
                          .out = DR_NEW_N(m->arena, bool *, (size_t)m->node.n + 1)};
}

static void need_output(const struct dr_model *m, struct needs *to, uint32_t node, uint32_t out) {
    if (!to->out[node]) {
        to->out[node] = DR_NEW_N(m->arena, bool, (size_t)m->node.at[node].n_out + 1);
    }
    to->out[node][out] = true;
}

static void need_ref(const struct dr_model *m, struct needs *to, const struct dr_ref *r) {
    if (r->is_input) {
        to->input[r->index] = true;
    } else {
        need_output(m, to, r->index, r->output);
    }
}

static void need_all_outputs(const struct dr_model *m, struct needs *to, uint32_t node) {
    for (uint32_t k = 0; k < m->node.at[node].n_out; k++) {
        need_output(m, to, node, k);
    }
}

/* An op with as many outputs as inputs makes one from the other, each from its own: without the
 * mask a flip of [image, mask] is a flip of [image]. */
static bool pairs(const struct dr_decl *d) {
    return d->op->outputs == 0 && d->n_in == d->n_out;
}

static void need_above(const struct dr_model *m, struct needs *to) {
    for (uint32_t i = m->node.n; i-- > 0;) { /* the list is in topological order */
        const struct dr_decl *d = &m->node.at[i];
        for (uint32_t j = 0; to->out[i] && j < d->n_in; j++) {
            if (!pairs(d) || to->out[i][j]) {
                need_ref(m, to, &d->in[j]);
            }
        }
        if (to->out[i] && d->share != DR_NONE) {
            need_all_outputs(m, to, d->share); /* the owner declares the weights */
        }
    }
}

static void need_terms(const struct dr_model *m, struct needs *to, const struct dr_loss *t,
                       uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < t[i].n_in; j++) {
            need_ref(m, to, &t[i].in[j]);
        }
    }
}

/* Inference needs what `outputs` need; the others need all. Nodes that feed neither outputs nor a
 * loss or metric stay, so that they are noticed as unused. */
static struct needs find_needs(const struct dr_model *m, enum dr_graph_mode mode) {
    struct needs keep = new_needs(m), dropped = new_needs(m);
    if (mode == DR_MODE_INFER) {
        for (uint32_t i = 0; i < m->output.n; i++) {
            need_ref(m, &keep, &m->output.at[i].in);
        }
        need_terms(m, &dropped, m->loss.at, m->loss.n);
        need_terms(m, &dropped, m->metric.at, m->metric.n);
        need_above(m, &dropped);
    }
    for (uint32_t i = 0; i < m->node.n; i++) {
        if (!dropped.out[i]) {
            need_all_outputs(m, &keep, i);
        }
    }
    need_above(m, &keep);
    for (uint32_t i = 0; i < m->input.n; i++) {
        keep.input[i] = keep.input[i] || mode != DR_MODE_INFER;
    }
    return keep;
}

static const struct dr_split *infer_split(const struct dr_model *m) {
    const char **names = DR_NEW_N(m->arena, const char *, (size_t)m->split.n + 1);
    for (uint32_t i = 0; i < m->split.n; i++) {
        names[i] = m->split.at[i].name;
        if (strcmp(names[i], "infer") == 0) {
            return &m->split.at[i];
        }
    }
    dr_error(m->diag, m->output.at[0].mark, "inference reads `data.infer`, which is not there%s",
             dr_did_you_mean(m->arena, "infer", names, m->split.n));
    return NULL;
}

/* Inference: every input that stays must have a source in `data.infer`. */
static bool check_fed(const struct build *b) {
    const struct dr_model *m = b->m;
    if (b->g->mode != DR_MODE_INFER) {
        return true;
    }
    const struct dr_split *s = infer_split(m);
    if (!s) {
        return false;
    }
    bool ok = true;
    for (uint32_t j = 0, k = 0; j < m->input.n; j++) {
        if (k < s->source.n && s->source.at[k].input == j) {
            k++; /* sources are in the order of the inputs */
        } else if (b->keep->input[j]) {
            ok = dr_error(m->diag, s->mark, "data.infer gives no source for input '%s'",
                          m->input.at[j].name);
        }
    }
    return ok;
}

/* ---- data ---- */
static uint32_t add_data(struct build *b, const char *name, const char *value, uint32_t input,
                         enum dr_dtype t, struct dr_shape s, enum dr_meaning meaning,
                         struct dr_mark mark) {
    const struct dr_data_attrs attrs = {.input = input};
    const char **names = DR_NEW(b->g->arena, const char *);
    names[0] = value;
    struct dr_infer c = {.g = b->g};
    c.node = dr_graph_node(b->g, name, dr_op_find(b->m->ops, "data"), &attrs, NULL, 0, DR_ROLE_DATA,
                           mark);
    b->g->node.at[c.node].out_names = names;
    return dr_infer_out(&c, NULL, t, s, meaning) ? b->g->node.at[c.node].out[0] : DR_NONE;
}

/* Bytes of struct dr_batch, which kernels and loaders share: step, epoch, n_valid, sample[batch].
 */
static int64_t header_bytes(int64_t batch) {
    return 16 + 8 * batch;
}

static bool is_integer(enum dr_dtype t) {
    return t == DR_U8 || t == DR_U16 || t == DR_I32 || t == DR_I64;
}

static void add_inputs(struct build *b) {
    const struct dr_model *m = b->m;
    b->g->header = add_data(b, "data.header", "data.header", DR_NONE, DR_U8,
                            DR_SHAPE(header_bytes(m->batch)), DR_HEADER, (struct dr_mark){0});
    for (uint32_t i = 0; i < m->input.n; i++) {
        const struct dr_input *in = &m->input.at[i];
        struct dr_shape s = {.rank = in->shape.rank + 1, .dim = {m->batch}};
        memcpy(s.dim + 1, in->shape.dim, in->shape.rank * sizeof *s.dim);
        const bool label = in->meaning == DR_LABEL && is_integer(in->dtype);
        *dr_push(b->g->arena, &b->g->input) =
            b->keep->input[i] ? add_data(b, dr_printf(b->g->arena, "data.%s", in->name), in->name,
                                         i, label ? DR_I32 : in->dtype, s, in->meaning, in->mark)
                              : DR_NONE;
    }
}

/* ---- nodes ---- */
/* Adds a node with the inputs `in`, and the header where the op wants it, and infers it. `like`:
 * the node of the model it comes from, or NULL. */
static uint32_t add_node(struct build *b, const char *name, const struct dr_op *op,
                         const void *attrs, const uint32_t *in, uint32_t n_in, enum dr_role role,
                         const struct dr_decl *like, const char *const *out_names,
                         const struct dr_yaml *written, struct dr_mark mark) {
    uint32_t *all = DR_NEW_N(b->g->arena, uint32_t, (size_t)n_in + 1);
    memcpy(all, in, n_in * sizeof *in);
    if (op->flags & DR_OP_HEADER) {
        all[n_in++] = b->g->header;
    }
    struct dr_infer c = {.g = b->g};
    c.node = dr_graph_node(b->g, name, op, attrs, all, n_in, role, mark);
    struct dr_node *n = &b->g->node.at[c.node];
    n->out_names = out_names;
    n->written = written;
    if (like) {
        n->subgraph = like->subgraph;
        n->frozen = like->frozen;
        n->optimizer = like->frozen ? DR_NONE : like->optimizer;
        n->share = like->share == DR_NONE ? DR_NONE : b->node[like->share];
    }
    return op->infer && !op->infer(&c) ? DR_NONE : c.node;
}

static bool has_weights(const struct dr_graph *g, const struct dr_node *n) {
    for (uint32_t i = 0; i < n->n_in; i++) {
        const struct dr_value *v = &g->value.at[n->in[i]];
        if (v->kind == DR_STATE && (v->cls == DR_WEIGHT || v->cls == DR_BUFFER)) {
            return true;
        }
    }
    return false;
}

/* Frozen needs weights from somewhere; training needs an optimizer. */
static void check_states(struct build *b, const struct dr_decl *d, uint32_t node) {
    const struct dr_decl *owner = d->share == DR_NONE ? d : &b->m->node.at[d->share];
    if (!has_weights(b->g, &b->g->node.at[node])) {
        return;
    }
    const struct dr_subgraph *s = &b->m->subgraph.at[d->subgraph];
    bool *said = &b->said[d->subgraph];
    if (d->frozen && !owner->weights && !*said) {
        *said = true;
        dr_error(b->m->diag, d->mark,
                 "%s '%s' is frozen but its weights come from nowhere: give `weights: FILE`, or "
                 "`weights: random` if that is meant",
                 d->op->name, d->name);
        if (s->frozen) {
            dr_note(b->m->diag, s->mark, "subgraph '%s' is frozen", s->name);
        }
    }
    if (b->g->mode == DR_MODE_TRAIN && !d->frozen && d->optimizer == DR_NONE && !*said) {
        *said = true;
        dr_error(b->m->diag, d->mark,
                 "nothing trains %s '%s': give `train.optimizer`, or an `optimizer` for subgraph "
                 "'%s', or freeze it",
                 d->op->name, d->name, s->name);
    }
}

static void check_whole_batch(struct build *b, const struct dr_decl *d, const struct dr_op *op) {
    const struct dr_model *m = b->m;
    if (b->g->mode != DR_MODE_TRAIN || !(op->flags & DR_OP_WHOLE_BATCH) || b->whole_batch) {
        return;
    }
    for (uint32_t i = 0; i < m->split.n; i++) {
        const struct dr_split *s = &m->split.at[i];
        if (strcmp(s->name, "train") == 0 && s->last == 1) {
            b->whole_batch = true;
            dr_error(m->diag, d->mark,
                     "%s '%s' takes statistics over the whole batch, padding included: `last: pad` "
                     "cannot be used in training",
                     d->op->name, d->name);
            dr_note(m->diag, s->mark, "data.%s says `last: pad`", s->name);
        }
    }
}

/* The values of a node of the model: `value` has those of its outputs that are needed, in order. */
static void keep_outputs(struct build *b, uint32_t decl, const uint32_t *value) {
    const struct dr_decl *d = &b->m->node.at[decl];
    b->out[decl] = DR_NEW_N(b->g->arena, uint32_t, (size_t)d->n_out + 1);
    for (uint32_t i = 0; i < d->n_out; i++) {
        b->out[decl][i] = pairs(d) && !b->keep->out[decl][i] ? DR_NONE : *value++;
    }
}

/* X with an activation: node X gives value "X:pre", node "X:relu" turns that into value X. */
static uint32_t add_activation(struct build *b, const struct dr_decl *d, uint32_t pre) {
    const struct dr_op *op = dr_op_find(b->m->ops, dr_activation_word[d->activation]);
    DR_ASSERT(op);
    struct dr_decl like = *d;
    like.share = DR_NONE;
    void *attrs = dr_alloc(b->g->arena, op->attrs_bytes);
    dr_attrs_default(op, attrs);
    return add_node(b, dr_printf(b->g->arena, "%s:%s", d->name, op->name), op, attrs, &pre, 1,
                    DR_ROLE_FORWARD, &like, d->out, NULL, d->mark);
}

/* The operands of a node of the model that are needed. False: one of them could not be built. */
struct operands {
    uint32_t n, *in;
    const char **names;
};
static bool find_operands(const struct build *b, uint32_t id, struct operands *o) {
    const struct dr_decl *d = &b->m->node.at[id];
    const uint32_t room = d->n_in + d->n_out + 1;
    *o = (struct operands){.in = DR_NEW_N(b->g->arena, uint32_t, room),
                           .names = DR_NEW_N(b->g->arena, const char *, room)};
    memcpy(o->names, d->out, d->n_out * sizeof *d->out);
    for (uint32_t i = 0; i < d->n_in; i++) {
        if (pairs(d) && !b->keep->out[id][i]) {
            continue;
        }
        if (pairs(d)) {
            o->names[o->n] = d->out[i];
        }
        o->in[o->n] = value_of(b, &d->in[i]);
        if (o->in[o->n++] == DR_NONE) {
            return false;
        }
    }
    return d->share == DR_NONE || b->out[d->share]; /* an owner may pass through and have no node */
}

static void add_decl(struct build *b, uint32_t id) {
    const struct dr_decl *d = &b->m->node.at[id];
    const struct dr_op *op = d->op;
    const bool augment = op->flags & DR_OP_AUGMENT;
    const bool eval = b->g->mode != DR_MODE_TRAIN || (d->frozen && !augment);
    struct operands o;
    b->node[id] = DR_NONE;
    if (!find_operands(b, id, &o)) {
        return;
    }
    if (eval && (op->flags & DR_OP_EVAL_PASS)) {
        keep_outputs(b, id, o.in);
        return;
    }
    op = eval && op->eval_form ? op->eval_form : op;
    check_whole_batch(b, d, op);
    const bool act = d->activation != DR_ACT_NONE;
    if (act) {
        o.names[0] = dr_printf(b->g->arena, "%s:pre", d->out[0]);
    }
    const enum dr_role role =
        augment && !b->m->subgraph.at[d->subgraph].frozen ? DR_ROLE_AUGMENT : DR_ROLE_FORWARD;
    uint32_t node =
        add_node(b, d->name, op, d->attrs, o.in, o.n, role, d, o.names, d->written, d->mark);
    if (node == DR_NONE) {
        return;
    }
    b->node[id] = node;
    check_states(b, d, node);
    if (act) {
        node = add_activation(b, d, b->g->node.at[node].out[0]);
    }
    if (node != DR_NONE) {
        keep_outputs(b, id, b->g->node.at[node].out);
    }
}

/* ---- losses, metrics, outputs ---- */
static void add_term(struct build *b, const struct dr_loss *t, bool metric) {
    uint32_t *in = DR_NEW_N(b->g->arena, uint32_t, (size_t)t->n_in + 1);
    for (uint32_t i = 0; i < t->n_in; i++) {
        in[i] = value_of(b, &t->in[i]);
        if (in[i] == DR_NONE) {
            return;
        }
    }
    const bool eval = b->g->mode != DR_MODE_TRAIN && t->op->eval_form;
    const char *name = dr_printf(b->g->arena, "%s.%s", metric ? "metric" : "loss", t->name);
    const uint32_t id = add_node(b, name, eval ? t->op->eval_form : t->op, t->attrs, in, t->n_in,
                                 DR_ROLE_FORWARD, NULL, NULL, t->written, t->mark);
    if (id == DR_NONE) {
        return;
    }
    const uint32_t *out = b->g->node.at[id].out;
    *dr_push(b->g->arena, &b->g->term) = (struct dr_term){.name = t->name,
                                                          .metric = metric,
                                                          .weight = metric ? 0 : t->weight,
                                                          .node = id,
                                                          .partial = out[metric ? 0 : 1],
                                                          .scalar = metric ? DR_NONE : out[0],
                                                          .mark = t->mark};
}

static void add_total_loss(struct build *b) {
    struct dr_graph *g = b->g;
    uint32_t *in = DR_NEW_N(g->arena, uint32_t, (size_t)g->term.n + 1), n = 0;
    double *weight = DR_NEW_N(g->arena, double, (size_t)g->term.n + 1);
    for (uint32_t i = 0; i < g->term.n; i++) {
        if (!g->term.at[i].metric) {
            weight[n] = g->term.at[i].weight;
            in[n++] = g->term.at[i].scalar;
        }
    }
    if (n == 0) {
        return;
    }
    const struct dr_total_loss_attrs attrs = {.weight = {.n = n, .at = weight}};
    const uint32_t id = add_node(b, "total_loss", dr_op_find(b->m->ops, "total_loss"), &attrs, in,
                                 n, DR_ROLE_FORWARD, NULL, NULL, NULL, b->m->train.mark);
    if (id != DR_NONE) {
        g->total_loss = g->node.at[id].out[0];
    }
}

/* Evaluation: total loss, each loss's mean and partial, each metric's partial, header. Inference:
 * outputs, header. Training's comes with the updates. */
static void add_readback(struct build *b) {
    struct dr_graph *g = b->g;
    DR_VEC(uint32_t) in = {0};
    if (g->mode == DR_MODE_TRAIN) {
        return;
    }
    if (g->total_loss != DR_NONE) {
        *dr_push(g->arena, &in) = g->total_loss;
    }
    for (uint32_t i = 0; i < g->term.n; i++) {
        if (!g->term.at[i].metric) {
            *dr_push(g->arena, &in) = g->term.at[i].scalar;
        }
        *dr_push(g->arena, &in) = g->term.at[i].partial;
    }
    for (uint32_t i = 0; i < g->output.n; i++) {
        *dr_push(g->arena, &in) = g->output.at[i];
    }
    *dr_push(g->arena, &in) = g->header;
    g->readback = add_node(b, "readback", dr_op_find(b->m->ops, "readback"), NULL, in.at, in.n,
                           DR_ROLE_READBACK, NULL, NULL, NULL, (struct dr_mark){0});
}

static void add_results(struct build *b) {
    const struct dr_model *m = b->m;
    if (b->g->mode == DR_MODE_INFER) {
        for (uint32_t i = 0; i < m->output.n; i++) {
            *dr_push(b->g->arena, &b->g->output) = value_of(b, &m->output.at[i].in);
        }
    } else {
        for (uint32_t i = 0; i < m->loss.n; i++) {
            add_term(b, &m->loss.at[i], false);
        }
        for (uint32_t i = 0; i < m->metric.n && b->g->mode == DR_MODE_EVAL; i++) {
            add_term(b, &m->metric.at[i], true);
        }
    }
}

/* Training leaves out what only metrics and outputs read; that is no mistake of the file's. */
static void mark_elsewhere(struct build *b) {
    const struct dr_model *m = b->m;
    struct dr_graph *g = b->g;
    for (uint32_t i = 0; i < m->metric.n + m->output.n && g->mode == DR_MODE_TRAIN; i++) {
        const bool metric = i < m->metric.n;
        const struct dr_ref *r = metric ? m->metric.at[i].in : &m->output.at[i - m->metric.n].in;
        for (uint32_t j = 0; j < (metric ? m->metric.at[i].n_in : 1); j++) {
            const uint32_t v = value_of(b, &r[j]);
            if (v != DR_NONE) {
                g->node.at[g->value.at[v].producer].elsewhere = true;
            }
        }
    }
}

/* A file of weights that no weight is read from was meant for something else. Where a part of what
 * it stands for is left out of the graph, that part may have them. */
static void check_weights_used(const struct build *b) {
    const struct dr_model *m = b->m;
    struct dr_map *seen = dr_map_create(b->g->arena);
    for (uint32_t i = 0; i < m->node.n; i++) {
        const struct dr_decl *d = &m->node.at[i];
        const struct dr_weights *w = d->weights;
        const char *key = w ? dr_printf(b->g->arena, "%p", (const void *)w) : "";
        if (!w || w->random || !w->file || dr_map_put(seen, key, i) != DR_NONE) {
            continue;
        }
        bool used = false;
        for (uint32_t j = i; j < m->node.n && !used; j++) {
            const uint32_t node = b->node[j];
            used =
                m->node.at[j].weights == w &&
                (!b->keep->out[j] || (node != DR_NONE && has_weights(b->g, &b->g->node.at[node])));
        }
        if (!used) {
            dr_warn(m->diag, w->mark, "weights %s: nothing that they stand for has weights",
                    w->file);
        }
    }
}

/* What the mode needs of the file. */
static bool check_mode(const struct dr_model *m, enum dr_graph_mode mode) {
    const struct dr_mark none = {0};
    if (mode == DR_MODE_TRAIN && !m->train.present) {
        return dr_error(m->diag, none, "training needs `train:` in %s", m->path);
    }
    if (mode == DR_MODE_EVAL && m->loss.n + m->metric.n == 0) {
        return dr_error(m->diag, none, "evaluation needs losses or `eval.metrics` in %s", m->path);
    }
    if (mode == DR_MODE_INFER && m->output.n == 0) {
        return dr_error(m->diag, none, "inference needs `outputs:` in %s", m->path);
    }
    return true;
}

static struct dr_graph *start(const struct dr_model *m, enum dr_graph_mode mode,
                              int64_t total_steps) {
    struct dr_graph *g = dr_graph_create(m->arena, m->diag, m->name);
    g->mode = mode;
    g->batch = m->batch;
    g->seed = m->seed;
    g->tf32 = m->precision != DR_PRECISION_FP32;
    g->clip_norm = m->train.clip_norm;
    for (uint32_t i = 0; i < m->subgraph.n; i++) {
        *dr_push(g->arena, &g->subgraph) = m->subgraph.at[i];
    }
    for (uint32_t i = 0; i < m->optimizer.n; i++) {
        struct dr_optimizer *o = dr_push(g->arena, &g->optimizer);
        *o = m->optimizer.at[i];
        o->lr.total = total_steps;
    }
    return g;
}

struct dr_graph *dr_pass_load(const struct dr_model *m, enum dr_graph_mode mode,
                              int64_t total_steps) {
    const uint32_t before = dr_diag_errors(m->diag);
    if (!check_mode(m, mode)) {
        return NULL;
    }
    const struct needs keep = find_needs(m, mode);
    struct build b = {.m = m,
                      .g = start(m, mode, total_steps),
                      .keep = &keep,
                      .node = DR_NEW_N(m->arena, uint32_t, (size_t)m->node.n + 1),
                      .out = DR_NEW_N(m->arena, uint32_t *, (size_t)m->node.n + 1),
                      .said = DR_NEW_N(m->arena, bool, (size_t)m->subgraph.n + 1)};
    if (!check_fed(&b)) {
        return NULL;
    }
    add_inputs(&b);
    for (uint32_t i = 0; i < m->node.n; i++) {
        if (keep.out[i]) {
            add_decl(&b, i);
        }
    }
    add_results(&b);
    mark_elsewhere(&b);
    if (mode == DR_MODE_TRAIN) {
        check_weights_used(&b);
    }
    if (dr_diag_errors(m->diag) != before) {
        return NULL;
    }
    add_total_loss(&b);
    add_readback(&b);
    return dr_diag_errors(m->diag) == before ? b.g : NULL;
}
