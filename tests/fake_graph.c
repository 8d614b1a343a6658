/* Builder and interpreter of fake_ops.h. */
#include "tests/fake_ops.h"
#include "kernels/batch.h"
#include <string.h>

static const struct dr_mark no_mark = {0};

struct dr_graph *fake_graph(enum dr_graph_mode mode, int64_t batch) {
    struct dr_arena *a = dr_arena_create();
    struct dr_graph *g = dr_graph_create(a, dr_diag_create(a), "fake");
    g->mode = mode;
    g->batch = batch;
    g->seed = 1;
    struct dr_optimizer *o = dr_push(a, &g->optimizer);
    *o = (struct dr_optimizer){.op = fake_op("sgd"),
                               .attrs = DR_NEW(a, struct fake_sgd_attrs),
                               .lr = {.base = 0.1, .gamma = 1, .total = 100},
                               .where = "train"};
    const struct dr_data_attrs attrs = {.input = DR_NONE};
    const uint32_t n =
        dr_graph_node(g, "data.header", fake_op("data"), &attrs, NULL, 0, DR_ROLE_DATA, no_mark);
    g->header = dr_graph_value(g, "data.header", DR_STEP, DR_U8,
                               DR_SHAPE((int64_t)dr_batch_bytes(batch)), no_mark);
    g->value.at[g->header].producer = n;
    g->value.at[g->header].meaning = DR_HEADER;
    g->node.at[n].out = DR_NEW(a, uint32_t);
    g->node.at[n].out[0] = g->header;
    g->node.at[n].n_out = 1;
    return g;
}

void fake_free(struct dr_graph *g) {
    dr_arena_destroy(g->arena);
}

const char *fake_text(const struct dr_graph *g) {
    return dr_diag_text(g->diag);
}

void fake_subgraph(struct dr_graph *g, const char *name, bool frozen) {
    struct dr_subgraph *s = dr_push(g->arena, &g->subgraph);
    *s = (struct dr_subgraph){.name = dr_strdup(g->arena, name), .frozen = frozen};
}

uint32_t fake_data(struct dr_graph *g, const char *name, struct dr_shape shape) {
    const struct dr_data_attrs attrs = {.input = g->input.n};
    const uint32_t n = dr_graph_node(g, dr_printf(g->arena, "data.%s", name), fake_op("data"),
                                     &attrs, NULL, 0, DR_ROLE_DATA, no_mark);
    const uint32_t v = dr_graph_value(g, name, DR_STEP, DR_F32, shape, no_mark);
    DR_ASSERT(v != DR_NONE);
    g->value.at[v].producer = n;
    g->node.at[n].out = DR_NEW(g->arena, uint32_t);
    g->node.at[n].out[0] = v;
    g->node.at[n].n_out = 1;
    *dr_push(g->arena, &g->input) = v;
    return v;
}

static uint32_t add_node(struct dr_graph *g, const char *name, const struct dr_op *op,
                         const uint32_t *in, uint32_t n_in, uint32_t share) {
    uint32_t *all = DR_NEW_N(g->arena, uint32_t, (size_t)n_in + 1);
    memcpy(all, in, sizeof *in * n_in);
    if (op->flags & DR_OP_HEADER) {
        all[n_in++] = g->header;
    }
    const bool frozen = g->subgraph.n > 0 && g->subgraph.at[g->subgraph.n - 1].frozen;
    if ((frozen || g->mode != DR_MODE_TRAIN) && op->eval_form) {
        op = op->eval_form;
    }
    const enum dr_role role = op->flags & DR_OP_AUGMENT ? DR_ROLE_AUGMENT : DR_ROLE_FORWARD;
    const uint32_t id = dr_graph_node(g, name, op, NULL, all, n_in, role, no_mark);
    struct dr_node *n = &g->node.at[id];
    n->optimizer = 0;
    n->share = share;
    if (g->subgraph.n > 0 && !(op->flags & (DR_OP_LOSS | DR_OP_METRIC))) {
        n->subgraph = g->subgraph.n - 1;
        n->frozen = frozen;
    }
    struct dr_infer c = {.g = g, .node = id};
    return op->infer(&c) ? g->node.at[id].out[0] : DR_NONE;
}

uint32_t fake_add(struct dr_graph *g, const char *name, const char *op, const uint32_t *in,
                  uint32_t n_in) {
    return add_node(g, name, fake_op(op), in, n_in, DR_NONE);
}
uint32_t fake_add1(struct dr_graph *g, const char *name, const char *op, uint32_t a) {
    return fake_add(g, name, op, &a, 1);
}
uint32_t fake_add2(struct dr_graph *g, const char *name, const char *op, uint32_t a, uint32_t b) {
    return fake_add(g, name, op, (uint32_t[]){a, b}, 2);
}

uint32_t fake_share(struct dr_graph *g, const char *name, const char *owner, uint32_t a) {
    const uint32_t o = fake_node(g, owner);
    DR_ASSERT(o != DR_NONE);
    return add_node(g, name, g->node.at[o].op, &a, 1, o);
}

uint32_t fake_loss(struct dr_graph *g, const char *name, double weight, uint32_t of) {
    const uint32_t v = fake_add1(g, name, "loss", of);
    const uint32_t n = g->value.at[v].producer;
    struct dr_term *t = dr_push(g->arena, &g->term);
    *t = (struct dr_term){.name = dr_strdup(g->arena, name),
                          .weight = weight,
                          .node = n,
                          .scalar = v,
                          .partial = g->node.at[n].out[1]};
    return v;
}

uint32_t fake_metric(struct dr_graph *g, const char *name, uint32_t of) {
    const uint32_t v = fake_add1(g, name, "metric", of);
    struct dr_term *t = dr_push(g->arena, &g->term);
    *t = (struct dr_term){.name = dr_strdup(g->arena, name),
                          .metric = true,
                          .node = g->value.at[v].producer,
                          .scalar = DR_NONE,
                          .partial = v};
    return v;
}

void fake_total(struct dr_graph *g) {
    uint32_t *in = DR_NEW_N(g->arena, uint32_t, g->term.n), n = 0;
    double *weight = DR_NEW_N(g->arena, double, g->term.n);
    for (uint32_t i = 0; i < g->term.n; i++) {
        if (!g->term.at[i].metric) {
            weight[n] = g->term.at[i].weight;
            in[n++] = g->term.at[i].scalar;
        }
    }
    const struct dr_total_loss_attrs attrs = {.weight = {.n = n, .at = weight}};
    const uint32_t id = dr_graph_emit(g, "total_loss", fake_op("total_loss"), &attrs, in, n,
                                      DR_ROLE_FORWARD, no_mark);
    g->total_loss = g->node.at[id].out[0];
}

static struct dr_graph *checked(struct dr_graph *g, const char *pass) {
    const char *why;
    if (g && !dr_graph_verify(g, &why)) {
        fprintf(stderr, "after %s: %s\n", pass, why);
        return NULL;
    }
    return g;
}

struct dr_graph *fake_passes(struct dr_graph *g) {
    if (g->total_loss == DR_NONE) {
        fake_total(g);
    }
    g = checked(dr_pass_shapes(g), "shapes");
    g = g ? checked(dr_pass_frozen(g), "frozen") : NULL;
    g = g ? checked(dr_pass_gradients(g, &fake_ops), "gradients") : NULL;
    return g ? checked(dr_pass_fuse(g, &fake_ops), "fuse") : NULL;
}

uint32_t fake_node(const struct dr_graph *g, const char *name) {
    for (uint32_t i = 0; i < g->node.n; i++) {
        if (strcmp(g->node.at[i].name, name) == 0) {
            return i;
        }
    }
    return DR_NONE;
}

uint32_t fake_value(const struct dr_graph *g, const char *name) {
    return dr_map_get(g->value_by_name, name);
}

struct fake_run fake_run_create(const struct dr_graph *g) {
    struct fake_run r = {.g = g, .at = DR_NEW_N(g->arena, void *, g->value.n)};
    for (uint32_t i = 0; i < g->value.n; i++) {
        const struct dr_value *v = &g->value.at[i];
        r.at[i] = dr_alloc(g->arena, (size_t)v->bytes);
        if (v->kind == DR_STATE && v->init.kind == DR_INIT_ONE) {
            for (int64_t j = 0; j < v->bytes / (int64_t)sizeof(float); j++) {
                ((float *)r.at[i])[j] = 1;
            }
        }
    }
    return r;
}

void fake_run_step(struct fake_run *r, uint64_t step) {
    const struct dr_graph *g = r->g;
    struct dr_batch *h = r->at[g->header];
    *h = (struct dr_batch){.step = step, .n_valid = (uint32_t)g->batch};
    for (int64_t i = 0; i < g->batch; i++) {
        h->sample[i] = step * (uint64_t)g->batch + (uint64_t)i;
    }
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        if (!n->op->cpu) { /* data and readback */
            continue;
        }
        void *in[64], *out[64];
        void **ins = n->n_in <= 64 ? in : DR_NEW_N(g->arena, void *, n->n_in);
        DR_ASSERT(n->n_out <= 64);
        for (uint32_t j = 0; j < n->n_in; j++) {
            ins[j] = r->at[n->in[j]];
        }
        for (uint32_t j = 0; j < n->n_out; j++) {
            out[j] = r->at[n->out[j]];
        }
        const struct dr_launch l = {
            .node = n, .value = g->value.at, .in = ins, .out = out, .seed = g->seed};
        n->op->cpu(&l, NULL);
    }
}

float *fake_f32(struct fake_run *r, const char *value) {
    const uint32_t v = fake_value(r->g, value);
    DR_ASSERT(v != DR_NONE && r->g->value.at[v].dtype == DR_F32);
    return r->at[v];
}
