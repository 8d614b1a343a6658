/* The harness of fake_harness.h. */
#include "tests/fake_harness.h"
#include "graph/passes.h"
#include "kernels/batch.h"
#include "ops/common.h"
#include <stdlib.h>
#include <string.h>

static const struct dr_mark no_mark = {0};

static void *fresh(size_t bytes) {
    void *p = NULL;
    const int failed = posix_memalign(&p, 64, bytes ? bytes : 1);
    DR_ASSERT(!failed);
    memset(p, 0xFF, bytes);
    return p;
}

static void **slot(struct rig *r, uint32_t value) {
    if (r->n_at < r->g->value.n) {
        r->at = realloc(r->at, sizeof *r->at * r->g->value.n);
        DR_ASSERT(r->at);
        memset(r->at + r->n_at, 0, sizeof *r->at * (r->g->value.n - r->n_at));
        r->n_at = r->g->value.n;
    }
    return &r->at[value];
}

void rig_set(struct rig *r, uint32_t value, const void *bytes) {
    void **p = slot(r, value);
    const size_t n = (size_t)r->g->value.at[value].bytes;
    if (!*p)
        *p = fresh(n);
    if (bytes)
        memcpy(*p, bytes, n);
}

uint32_t rig_input(struct rig *r, const char *name, enum dr_dtype t, struct dr_shape s,
                   enum dr_meaning meaning, const void *bytes) {
    struct dr_graph *g = r->g;
    const struct dr_data_attrs attrs = {.input = g->input.n};
    const uint32_t n =
        dr_graph_node(g, dr_printf(g->arena, "data.%s", name), dr_op_find(dr_ops(), "data"), &attrs,
                      NULL, 0, DR_ROLE_DATA, no_mark);
    const uint32_t v = dr_graph_value(g, name, DR_STEP, t, s, no_mark);
    DR_ASSERT(v != DR_NONE);
    g->value.at[v].producer = n;
    g->value.at[v].meaning = meaning;
    g->node.at[n].out = DR_NEW(g->arena, uint32_t);
    g->node.at[n].out[0] = v;
    g->node.at[n].n_out = 1;
    if (meaning != DR_HEADER)
        *dr_push(g->arena, &g->input) = v;
    if (bytes)
        rig_set(r, v, bytes);
    return v;
}

uint32_t rig_floats(struct rig *r, const char *name, struct dr_shape s, const float *x) {
    return rig_input(r, name, DR_F32, s, DR_PLAIN, x);
}

uint32_t rig_state(struct rig *r, const char *name, enum dr_state_class cls, enum dr_dtype t,
                   struct dr_shape s, const void *bytes) {
    const uint32_t v = dr_graph_value(r->g, name, DR_STATE, t, s, no_mark);
    DR_ASSERT(v != DR_NONE);
    r->g->value.at[v].cls = cls;
    rig_set(r, v, bytes);
    return v;
}

struct rig rig_create(int64_t batch) {
    struct dr_arena *a = dr_arena_create();
    struct rig r = {.g = dr_graph_create(a, dr_diag_create(a), "rig")};
    r.g->mode = DR_MODE_TRAIN;
    r.g->batch = batch;
    r.g->header =
        rig_input(&r, "header", DR_U8, DR_SHAPE((int64_t)dr_batch_bytes(batch)), DR_HEADER, NULL);
    rig_set(&r, r.g->header, NULL);
    rig_header(&r, 0, (uint32_t)batch);
    return r;
}

void rig_header(struct rig *r, uint64_t step, uint32_t n_valid) {
    struct dr_batch *h = *slot(r, r->g->header);
    memset(h, 0, dr_batch_bytes(r->g->batch));
    h->step = step;
    h->n_valid = n_valid;
    for (int64_t i = 0; i < r->g->batch; i++)
        h->sample[i] = (uint64_t)i;
}

void rig_free(struct rig *r) {
    for (uint32_t i = 0; i < r->n_at; i++)
        free(r->at[i]);
    free(r->at);
    dr_arena_destroy(r->g->arena);
}

const char *rig_text(const struct rig *r) {
    return dr_diag_text(r->g->diag);
}

void *rig_attrs(struct rig *r, const char *op_name, const char *yaml) {
    struct dr_graph *g = r->g;
    const struct dr_op *op = dr_op_find(dr_ops(), op_name);
    DR_ASSERT(op);
    char *attrs = dr_alloc(g->arena, op->attrs_bytes + 1);
    const struct dr_yaml *y = dr_yaml_read(g->arena, g->diag, "attrs", yaml, strlen(yaml));
    if (!y || !dr_attrs_read(g->diag, g->arena, dr_ops(), op, y, op_name, NULL, 0, attrs))
        return NULL;
    return attrs;
}

uint32_t rig_node(struct rig *r, const char *name, const char *op_name, const void *attrs,
                  const uint32_t *in, uint32_t n_in) {
    struct dr_graph *g = r->g;
    const struct dr_op *op = dr_op_find(dr_ops(), op_name);
    DR_ASSERT(op);
    uint32_t *all = DR_NEW_N(g->arena, uint32_t, n_in + 1);
    memcpy(all, in, sizeof *in * n_in);
    if (op->flags & DR_OP_HEADER)
        all[n_in++] = g->header;
    return dr_graph_emit(g, name, op, attrs, all, n_in, DR_ROLE_FORWARD, no_mark);
}

uint32_t rig_op(struct rig *r, const char *name, const char *op, const char *yaml,
                const uint32_t *in, uint32_t n_in) {
    const void *attrs = rig_attrs(r, op, yaml);
    return attrs ? rig_node(r, name, op, attrs, in, n_in) : DR_NONE;
}

uint32_t rig_in(const struct rig *r, uint32_t node, uint32_t i) {
    DR_ASSERT(node != DR_NONE && i < r->g->node.at[node].n_in);
    return r->g->node.at[node].in[i];
}

uint32_t rig_out(const struct rig *r, uint32_t node, uint32_t i) {
    DR_ASSERT(node != DR_NONE && i < r->g->node.at[node].n_out);
    return r->g->node.at[node].out[i];
}

uint32_t rig_find(const struct rig *r, const char *value) {
    const uint32_t v = dr_map_get(r->g->value_by_name, value);
    DR_ASSERT(v != DR_NONE);
    return v;
}

int64_t rig_elements(const struct rig *r, uint32_t value) {
    return dr_elements(&r->g->value.at[value]);
}

void rig_grad(struct rig *r, uint32_t node, const uint32_t *dy, const bool *need, double weight,
              uint32_t *dx) {
    const struct dr_node n = r->g->node.at[node];
    for (uint32_t i = 0; i < n.n_in; i++)
        dx[i] = DR_NONE;
    struct dr_grad c = {
        .g = r->g, .node = node, .dy = dy, .need = need, .dx = dx, .weight = weight};
    n.op->grad(&c);
}

void rig_fuse(struct rig *r) {
    const struct dr_graph *old = r->g;
    const char *why = "";
    r->g = dr_pass_fuse(r->g, dr_ops());
    const bool sound = dr_graph_verify(r->g, &why);
    DR_ASSERT(sound);
    if (r->g == old)
        return;
    void **at = calloc(r->g->value.n + 1, sizeof *at);
    DR_ASSERT(at);
    for (uint32_t v = 0; v < r->n_at; v++) {
        const uint32_t id = dr_map_get(r->g->value_by_name, old->value.at[v].name);
        if (id == DR_NONE)
            free(r->at[v]);
        else
            at[id] = r->at[v];
    }
    free(r->at);
    r->at = at;
    r->n_at = r->g->value.n;
}

static void init_state(struct rig *r, uint32_t v) {
    if (*slot(r, v))
        return;
    const struct dr_value *s = &r->g->value.at[v];
    rig_set(r, v, NULL);
    memset(r->at[v], 0, (size_t)s->bytes);
    if (s->init.kind == DR_INIT_NUMBER)
        *(float *)r->at[v] = (float)s->init.number;
    if (s->init.kind == DR_INIT_ONE)
        for (int64_t i = 0; i < dr_elements(s); i++)
            ((float *)r->at[v])[i] = 1;
}

void rig_run_node(struct rig *r, uint32_t node) {
    const struct dr_graph *g = r->g;
    const struct dr_node *n = &g->node.at[node];
    if (!n->op->cpu)
        return;
    void **in = calloc(n->n_in + 1, sizeof *in), **out = calloc(n->n_out + 1, sizeof *out);
    DR_ASSERT(in && out);
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (g->value.at[n->in[i]].kind == DR_STATE)
            init_state(r, n->in[i]);
        in[i] = *slot(r, n->in[i]);
        DR_ASSERT(in[i]);
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        const uint32_t v = n->out[i];
        if (g->value.at[v].kind == DR_STEP) {
            rig_set(r, v, NULL);
            memset(r->at[v], 0xFF, (size_t)g->value.at[v].bytes);
        }
        out[i] = *slot(r, v);
    }
    struct dr_choice choice = {0};
    if (n->op->choose)
        choice = n->op->choose(g, n, false);
    void *workspace = fresh((size_t)choice.workspace_bytes);
    const struct dr_launch l = {
        .node = n, .value = g->value.at, .in = in, .out = out, .workspace = workspace, .seed = 1};
    n->op->cpu(&l, &r->cpu);
    free(workspace);
    free(in);
    free(out);
}

void rig_run(struct rig *r) {
    for (uint32_t i = 0; i < r->g->node.n; i++)
        rig_run_node(r, i);
}

float *rig_f32(const struct rig *r, uint32_t value) {
    DR_ASSERT(value < r->n_at && r->at[value] && r->g->value.at[value].dtype == DR_F32);
    return r->at[value];
}
