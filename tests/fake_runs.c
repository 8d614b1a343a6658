/* See fake_runs.h. */
#include "tests/fake_runs.h"

#include "tests/fake_cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char runs_classifier[] =
    "dagrun: 1\n"
    "model: classifier\n"
    "seed: 11\n"
    "inputs: {image: {shape: [12, 12, 3], dtype: u8}, label: {shape: [], dtype: u8}}\n"
    "data:\n"
    "  batch: 8\n"
    "  train: {image: {synthetic: uniform, count: 64}, label: {synthetic: uniform, count: 64}}\n"
    "subgraphs:\n"
    "  augment:\n"
    "    nodes:\n"
    "      flip: {op: random_flip, in: image, p: 0.5}\n"
    "  net:\n"
    "    nodes:\n"
    "      norm: {op: normalize, in: augment.flip, mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.4]}\n"
    "      c1: {op: conv2d, filters: 16, kernel: 3, padding: 1, bias: false}\n"
    "      n1: {op: batch_norm, activation: relu}\n"
    "      p1: {op: max_pool2d, kernel: 2}\n"
    "      c2: {op: conv2d, filters: 24, kernel: 3, stride: 2, padding: 1, activation: tanh}\n"
    "      flat: {op: flatten}\n"
    "      logits: {op: linear, features: 10}\n"
    "train:\n"
    "  losses: {ce: {op: cross_entropy, in: [net.logits, label], label_smoothing: 0.1}}\n"
    "  optimizer: {op: sgd, lr: {base: 0.1, schedule: cosine, warmup: 4}, momentum: 0.9,"
    " weight_decay: 1e-3}\n"
    "  clip_norm: 1.0\n"
    "  steps: 40\n";

const char runs_segment[] =
    "dagrun: 1\n"
    "model: segment\n"
    "seed: 12\n"
    "inputs: {image: {shape: [16, 16, 3], dtype: u8}, mask: {shape: [16, 16], dtype: u8}}\n"
    "data:\n"
    "  batch: 4\n"
    "  train: {image: {synthetic: uniform, count: 32}, mask: {synthetic: uniform, count: 32}}\n"
    "subgraphs:\n"
    "  augment:\n"
    "    nodes:\n"
    "      flip: {op: random_flip, in: [image, mask], out: [img, msk], p: 0.5, axis: both}\n"
    "  encoder:\n"
    "    frozen: true\n"
    "    weights: random\n"
    "    nodes:\n"
    "      norm: {op: normalize, in: augment.img, mean: [0.5], std: [0.25]}\n"
    "      c1: {op: conv2d, filters: 8, kernel: 3, padding: 1, activation: relu}\n"
    "      c2: {op: conv2d, filters: 16, kernel: 3, padding: 1, activation: relu}\n"
    "  decoder:\n"
    "    nodes:\n"
    "      d1: {op: conv2d, in: encoder.c2, filters: 8, kernel: 3, padding: 1, bias: false}\n"
    "      n1: {op: batch_norm, activation: relu}\n"
    "      logits: {op: conv2d, filters: 5, kernel: 1}\n"
    "train:\n"
    "  losses: {seg: {op: cross_entropy, in: [decoder.logits, augment.msk]}}\n"
    "  optimizer: {op: sgd, lr: 0.05, momentum: 0.9}\n"
    "  steps: 40\n";

const char runs_branches[] =
    "dagrun: 1\n"
    "model: branches\n"
    "seed: 13\n"
    "inputs: {image: {shape: [8, 8, 4], dtype: f32}, label: {shape: [], dtype: u8}}\n"
    "data:\n"
    "  batch: 4\n"
    "  train: {image: {synthetic: normal, count: 32}, label: {synthetic: uniform, count: 32}}\n"
    "subgraphs:\n"
    "  frozen:\n"
    "    frozen: true\n"
    "    weights: random\n"
    "    nodes:\n"
    "      a: {op: conv2d, in: image, filters: 8, kernel: 3, padding: 1, activation: relu}\n"
    "      b: {op: conv2d, in: image, filters: 8, kernel: 1, activation: tanh}\n"
    "      c: {op: conv2d, in: image, filters: 8, kernel: 5, padding: 2}\n"
    "      all: {op: concat, in: [a, b, c]}\n"
    "  net:\n"
    "    nodes:\n"
    "      l: {op: conv2d, in: frozen.all, filters: 8, kernel: 3, padding: 1, activation: relu}\n"
    "      m: {op: conv2d, in: frozen.all, filters: 8, kernel: 1, activation: relu}\n"
    "      r: {share: l, in: frozen.all}\n"
    "      sum: {op: add, in: [l, m, r]}\n"
    "      pool: {op: max_pool2d, kernel: 2}\n"
    "      flat: {op: flatten}\n"
    "      big: {op: linear, features: 6}\n"
    "      flat2: {op: flatten, in: m}\n"
    "      small: {op: linear, features: 6, in: flat2}\n"
    "train:\n"
    "  losses:\n"
    "    one: {op: cross_entropy, in: [net.big, label]}\n"
    "    two: {op: cross_entropy, in: [net.small, label], weight: 0.3}\n"
    "  optimizer: {op: sgd, lr: 0.02, momentum: 0.9}\n"
    "  steps: 40\n";

static const char *device_name = "cpu";

void runs_on(const char *device) {
    device_name = device;
}

/* ---- a model ---- */

bool runs_open(struct runs *r, const char *yaml, enum dr_graph_mode mode, const char *const *sets) {
    static const char *const none[] = {NULL};
    uint32_t n = 0;
    sets = sets ? sets : none;
    while (sets[n])
        n++;
    *r = (struct runs){.s = dr_session_create(), .folder = cli_folder()};
    r->yaml = cli_file(r->folder, "m.yaml", yaml);
    if (!dr_session_load(r->s, r->yaml, sets, n) || !dr_session_device(r->s, device_name, 2))
        return false;
    r->s->dev.copies_ahead = true;
    return dr_session_data(r->s, mode) && dr_session_plan(r->s, mode, NULL, NULL);
}

void runs_close(struct runs *r) {
    dr_session_destroy(r->s);
    cli_folder_remove(r->folder);
    free(r->yaml);
}

const char *runs_why(const struct runs *r) {
    return r->s->status.code != DR_OK ? r->s->status.text : dr_diag_text(r->s->diag);
}

uint32_t runs_value(const struct runs *r, const char *name) {
    const struct dr_graph *g = r->s->main.graph;
    uint32_t v = 0;
    while (v < g->value.n && strcmp(g->value.at[v].name, name))
        v++;
    DR_ASSERT(v < g->value.n);
    return v;
}

/* ---- plans ---- */

struct dr_plan_wish runs_wish(enum dr_policy policy, int32_t streams, int32_t depth, bool graph) {
    return (struct dr_plan_wish){
        .pipeline = depth, .streams = streams, .policy = policy, .graph = graph};
}

const char *runs_wish_text(struct dr_arena *a, struct dr_plan_wish w) {
    return dr_printf(a, "%s, streams %d, pipeline %d, graph %s", dr_policy_name(w.policy),
                     w.streams, w.pipeline, w.graph ? "on" : "off");
}

struct dr_plan *runs_plan(struct runs *r, struct dr_arena *a, struct dr_plan_wish wish) {
    bool too_large;
    return dr_plan_make(a, r->s->main.graph, &wish, &r->s->dev, &too_large);
}

struct dr_plan *runs_without_wait(const struct dr_plan *p, uint32_t gone, struct dr_arena *a) {
    struct dr_plan *q = DR_NEW(a, struct dr_plan);
    *q = *p;
    q->wait.at = DR_NEW_N(a, struct dr_wait, p->wait.n);
    q->wait.n = 0;
    q->wait_first = DR_NEW_N(a, uint32_t, p->n_nodes + 1);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        q->wait_first[v] = q->wait.n;
        for (uint32_t w = p->wait_first[v]; w < p->wait_first[v + 1]; w++)
            if (w != gone)
                q->wait.at[q->wait.n++] = p->wait.at[w];
    }
    q->wait_first[p->n_nodes] = q->wait.n;
    return q;
}

/* ---- tapes ---- */

static bool is_state(const struct dr_value *v) {
    return v->kind == DR_STATE;
}

static size_t states_bytes(const struct dr_graph *g) {
    size_t n = 0;
    for (uint32_t i = 0; i < g->value.n; i++)
        n += is_state(&g->value.at[i]) ? (size_t)g->value.at[i].bytes : 0;
    return n;
}

static size_t record_bytes(const struct dr_graph *g) {
    size_t n = 0;
    for (uint32_t i = 0; g->readback != DR_NONE && i < g->node.at[g->readback].n_in; i++)
        n += ((size_t)g->value.at[g->node.at[g->readback].in[i]].bytes + 7) / 8 * 8;
    return n;
}

void runs_tape_free(struct runs_tape *t) {
    free(t->records);
    free(t->states);
    *t = (struct runs_tape){0};
}

static const char *describe(struct dr_arena *a, const struct dr_value *v, const char *where,
                            const unsigned char *x, const unsigned char *y) {
    const size_t item = dr_dtype_bytes(v->dtype);
    size_t i = 0;
    while (!memcmp(x + i * item, y + i * item, item))
        i++;
    if (v->dtype != DR_F32)
        return dr_printf(a, "%s: '%s' differs at element %zu", where, v->name, i);
    float p, q;
    memcpy(&p, x + i * item, sizeof p);
    memcpy(&q, y + i * item, sizeof q);
    return dr_printf(a, "%s: '%s' differs at element %zu: %.9g and %.9g", where, v->name, i,
                     (double)p, (double)q);
}

const char *runs_difference(const struct runs *r, struct dr_arena *a, const struct runs_tape *x,
                            const struct runs_tape *y) {
    const struct dr_graph *g = r->s->main.graph;
    const struct dr_node *n = &g->node.at[g->readback];
    DR_ASSERT(x->steps == y->steps && x->record_bytes == y->record_bytes);
    for (int64_t s = 0; s < x->steps; s++) {
        size_t at = (size_t)s * x->record_bytes;
        for (uint32_t i = 0; i < n->n_in; i++) {
            const struct dr_value *v = &g->value.at[n->in[i]];
            if (memcmp(x->records + at, y->records + at, (size_t)v->bytes))
                return describe(a, v, dr_printf(a, "step %lld", (long long)s), x->records + at,
                                y->records + at);
            at += ((size_t)v->bytes + 7) / 8 * 8;
        }
    }
    size_t at = 0;
    for (uint32_t i = 0; i < g->value.n; i++) {
        const struct dr_value *v = &g->value.at[i];
        if (!is_state(v))
            continue;
        if (memcmp(x->states + at, y->states + at, (size_t)v->bytes))
            return describe(a, v, "after the run", x->states + at, y->states + at);
        at += (size_t)v->bytes;
    }
    return NULL;
}

const void *runs_tape_value(const struct runs *r, const struct runs_tape *t, int64_t step,
                            uint32_t value) {
    const struct dr_graph *g = r->s->main.graph;
    const struct dr_node *n = &g->node.at[g->readback];
    size_t at = (size_t)step * t->record_bytes;
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (n->in[i] == value)
            return t->records + at;
        at += ((size_t)g->value.at[n->in[i]].bytes + 7) / 8 * 8;
    }
    return NULL;
}

const float *runs_tape_state(const struct runs *r, const struct runs_tape *t, uint32_t value) {
    const struct dr_graph *g = r->s->main.graph;
    size_t at = 0;
    for (uint32_t i = 0; i < value; i++)
        at += is_state(&g->value.at[i]) ? (size_t)g->value.at[i].bytes : 0;
    return (const float *)(const void *)(t->states + at);
}

/* ---- lanes ---- */

bool runs_lane_open(struct runs_lane *l, struct runs *r, const struct dr_plan *p,
                    const uint32_t *delay_us) {
    struct dr_session *s = r->s;
    *l = (struct runs_lane){.r = r, .plan = p};
    s->status = (struct dr_status){.code = DR_OK, .node = DR_NONE};
    if (!dr_session_check(s, s->ops->alloc(s->device, p->slab_bytes, &l->slab)))
        return false;
    const struct dr_lane_config c = {
        .plan = p,
        .data = s->data,
        .ops = s->ops,
        .device = s->device,
        .dev = &s->dev,
        .slab = l->slab,
        .seed = s->model->seed,
        .loader_threads = 2,
        .delay_us = delay_us,
    };
    return dr_session_check(s, dr_lane_open(&l->lane, &c));
}

void runs_lane_close(struct runs_lane *l) {
    struct dr_session *s = l->r->s;
    dr_lane_close(&l->lane);
    if (l->slab.base)
        s->ops->free(s->device, &l->slab);
}

const char *runs_lane_note(const struct runs_lane *l) {
    return l->lane.exec->note;
}

struct recorder {
    struct runs_lane *l;
    struct runs_tape *t;
};

static bool record(const struct dr_record *x, void *ctx) {
    struct recorder *r = ctx;
    if (r->t)
        memcpy(r->t->records + (size_t)x->step * r->t->record_bytes, x->base, r->t->record_bytes);
    return !r->l->on_record || r->l->on_record(x, r->l->ctx);
}

static bool download_states(struct runs_lane *l, const struct dr_memory *m, struct runs_tape *t) {
    const struct dr_graph *g = l->plan->g;
    unsigned char *to = t->states;
    for (uint32_t i = 0; i < g->value.n; i++) {
        if (!is_state(&g->value.at[i]))
            continue;
        if (!dr_session_check(l->r->s, dr_state_download(m, l->plan, i, to)))
            return false;
        to += g->value.at[i].bytes;
    }
    return true;
}

bool runs_lane_run(struct runs_lane *l, int64_t steps, struct runs_tape *t) {
    struct dr_session *s = l->r->s;
    const struct dr_memory m = {.ops = s->ops, .device = s->device, .slab = l->slab};
    struct recorder x = {l, t};
    int64_t done = 0;
    if (t) {
        *t = (struct runs_tape){.steps = steps, .record_bytes = record_bytes(l->plan->g)};
        t->records = calloc((size_t)steps + 1, t->record_bytes);
        t->states = calloc(1, states_bytes(l->plan->g) + 1);
        DR_ASSERT(t->records && t->states);
    }
    if (!dr_session_check(s, dr_state_init(&m, l->plan, s->model->seed)) ||
        (l->r->states && !l->r->states(l->r, &m, l->plan)) ||
        !dr_session_check(s, dr_lane_feed(&l->lane, 0, (uint64_t)steps)) ||
        !dr_session_check(s, dr_lane_run(&l->lane, 0, steps, record, &x, &done)))
        return false;
    if (done != steps)
        return dr_session_fail(s, DR_FAILED, "%lld of %lld steps were run", (long long)done,
                               (long long)steps);
    return !t || download_states(l, &m, t);
}

bool runs_once(struct runs *r, const struct dr_plan *p, const uint32_t *delay_us, int64_t steps,
               struct runs_tape *t) {
    struct runs_lane l;
    const bool good = runs_lane_open(&l, r, p, delay_us) && runs_lane_run(&l, steps, t);
    runs_lane_close(&l);
    return good;
}
