/* See fake_exec.h. */
#include "tests/fake_exec.h"

#include "kernels/batch.h"
#include "scheduler/state.h"

#include <string.h>

const struct dr_device_info fake_device = {
    .name = "fake", .threads = 1, .flops_per_s = 1e10, .bytes_per_s = 1e10, .launch_us = 1};

struct dr_graph *fake_training_graph(void) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 4);
    const uint32_t x = fake_data(g, "x", DR_SHAPE(4, 16));
    fake_subgraph(g, "augment", false);
    const uint32_t a = fake_add1(g, "augment.a", "augment", x);
    fake_subgraph(g, "encoder", true);
    const uint32_t e1 = fake_add1(g, "encoder.e1", "scale", a);
    const uint32_t e2 = fake_add1(g, "encoder.e2", "tanh", a);
    const uint32_t e3 = fake_add2(g, "encoder.e3", "add", e1, e2);
    fake_subgraph(g, "net", false);
    const uint32_t n1 = fake_add1(g, "net.n1", "scale", e3);
    const uint32_t t1 = fake_add1(g, "net.t1", "tanh", n1);
    const uint32_t n2 = fake_add1(g, "net.n2", "scale", e3);
    const uint32_t b2 = fake_add1(g, "net.b2", "norm", n2);
    const uint32_t s2 = fake_share(g, "net.s2", "net.n1", b2);
    const uint32_t m = fake_add2(g, "net.m", "mul", t1, s2);
    const uint32_t y = fake_add2(g, "net.y", "add", m, t1);
    const uint32_t z = fake_add1(g, "net.z", "tanh", y);
    fake_loss(g, "loss.l", 1.0, z);
    return fake_passes(g);
}

struct dr_plan *fake_plan(struct dr_graph *g, enum dr_policy policy, int32_t streams,
                          int32_t pipeline) {
    const struct dr_plan_wish wish = {.pipeline = pipeline, .streams = streams, .policy = policy};
    bool too_large;
    return dr_plan_make(g->arena, g, &wish, &fake_device, &too_large);
}

static void fill_input(const struct dr_graph *g, uint32_t input, int64_t step, float *to) {
    const int64_t n = g->value.at[g->input.at[input]].bytes / (int64_t)sizeof *to;
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)((i * 7 + step * 13 + input) % 31) / 31.0f - 0.4f;
}

static bool starts_at_one(const struct dr_value *v) {
    return v->init.kind == DR_INIT_ONE;
}

/* ---- digests ---- */

struct digest {
    uint64_t h;
};

static void mix(struct digest *d, const void *p, size_t n) {
    const uint64_t pair[2] = {d->h, dr_hash(p, n)};
    d->h = dr_hash(pair, sizeof pair);
}

uint64_t fake_digest_interpreted(struct dr_graph *g, int64_t steps) {
    struct fake_run r = fake_run_create(g);
    const struct dr_node *readback = &g->node.at[g->readback];
    struct digest d = {0};
    for (int64_t s = 0; s < steps; s++) {
        for (uint32_t i = 0; i < g->input.n; i++)
            fill_input(g, i, s, r.at[g->input.at[i]]);
        fake_run_step(&r, (uint64_t)s);
        for (uint32_t i = 0; i < readback->n_in; i++)
            mix(&d, r.at[readback->in[i]], (size_t)g->value.at[readback->in[i]].bytes);
    }
    for (uint32_t i = 0; i < g->value.n; i++)
        if (g->value.at[i].kind == DR_STATE)
            mix(&d, r.at[i], (size_t)g->value.at[i].bytes);
    return d.h;
}

uint64_t fake_exec_digest(struct fake_exec *e) {
    const struct dr_graph *g = e->plan->g;
    const struct dr_node *n = &g->node.at[g->readback];
    struct digest d = {0};
    for (int64_t s = 0; s < e->steps; s++)
        for (uint32_t i = 0; i < n->n_in; i++)
            mix(&d, e->readback.base + (size_t)s * e->readback.record_bytes + e->readback.offset[i],
                (size_t)g->value.at[n->in[i]].bytes);
    for (uint32_t i = 0; i < g->value.n; i++)
        if (g->value.at[i].kind == DR_STATE)
            mix(&d, e->slab.base + e->plan->buffer[i].offset, (size_t)g->value.at[i].bytes);
    return d.h;
}

/* ---- the executor ---- */

static void must(struct dr_status s) {
    if (s.code != DR_OK)
        dr_assert_failed(s.text, __FILE__, __LINE__);
}

static void progressed(void *ctx) {
    atomic_fetch_add(&((struct fake_exec *)ctx)->progressed, 1);
}

static size_t padded(int64_t bytes) {
    return ((size_t)bytes + 63) / 64 * 64;
}

float *fake_exec_input(struct fake_exec *e, int64_t s, uint32_t i) {
    return (float *)(void *)(e->ring.base + (size_t)s * e->ring.slot_bytes + e->ring.offset[i]);
}

static void make_ring(struct fake_exec *e) {
    const struct dr_graph *g = e->plan->g;
    const uint32_t n = g->input.n, slots = (uint32_t)e->steps;
    size_t *offset = DR_NEW_N(g->arena, size_t, n + 1);
    size_t at = 0;
    for (uint32_t i = 0; i <= n; i++) {
        offset[i] = at;
        at += padded(g->value.at[i < n ? g->input.at[i] : g->header].bytes);
    }
    e->ring = (struct dr_ring){.slots = slots, .slot_bytes = at, .offset = offset};
    e->ring.base = dr_exec_cpu.host_alloc(e->device, slots * at);
    e->ring.filled = dr_exec_cpu.host_alloc(e->device, slots * sizeof *e->ring.filled);
    e->ring.released = dr_exec_cpu.host_alloc(e->device, slots * sizeof *e->ring.released);
    for (int64_t s = 0; s < e->steps; s++) {
        for (uint32_t i = 0; i < n; i++)
            fill_input(g, i, s, fake_exec_input(e, s, i));
        struct dr_batch *h = (void *)fake_exec_input(e, s, n);
        *h = (struct dr_batch){.step = (uint64_t)s, .n_valid = (uint32_t)g->batch};
        for (int64_t i = 0; i < g->batch; i++)
            h->sample[i] = (uint64_t)(s * g->batch + i);
        atomic_store(&e->ring.filled[s], (uint64_t)s + 1);
    }
}

static void make_readback(struct fake_exec *e) {
    const struct dr_graph *g = e->plan->g;
    const struct dr_node *n = &g->node.at[g->readback];
    size_t *offset = DR_NEW_N(g->arena, size_t, n->n_in + 1);
    size_t at = 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        offset[i] = at;
        at += ((size_t)g->value.at[n->in[i]].bytes + 7) / 8 * 8;
    }
    e->readback =
        (struct dr_readback){.slots = (uint32_t)e->steps, .record_bytes = at, .offset = offset};
    e->readback.base = dr_exec_cpu.host_alloc(e->device, e->readback.slots * at);
    e->readback.done =
        dr_exec_cpu.host_alloc(e->device, e->readback.slots * sizeof *e->readback.done);
}

void fake_exec_open(struct fake_exec *e, const struct dr_plan *p, int64_t steps,
                    const uint32_t *delay_us) {
    *e = (struct fake_exec){.plan = p, .steps = steps};
    must(dr_exec_cpu.open(&e->device, "cpu", 2, &e->info));
    must(dr_exec_cpu.alloc(e->device, p->slab_bytes, &e->slab));
    make_ring(e);
    make_readback(e);
    for (uint32_t i = 0; i < p->g->value.n; i++) {
        const struct dr_value *v = &p->g->value.at[i];
        float *to = (float *)(void *)(e->slab.base + p->buffer[i].offset);
        for (int64_t k = 0; v->kind == DR_STATE && starts_at_one(v) && k < v->bytes / 4; k++)
            to[k] = 1;
    }
    const struct dr_exec_config c = {
        .plan = p,
        .dev = &e->info,
        .slab = e->slab,
        .ring = &e->ring,
        .readback = &e->readback,
        .seed = p->g->seed,
        .device = e->device,
        .progress = progressed,
        .progress_ctx = e,
        .delay_us = delay_us,
    };
    must(dr_exec_cpu.create(&c, &e->exec));
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && a < 0);
}

void fake_exec_run(struct fake_exec *e, int64_t s0, int64_t s1) {
    const struct dr_plan *p = e->plan;
    int64_t high = 0;
    for (uint32_t v = 0; v < p->n_nodes; v++)
        high = p->stage[v] > high ? p->stage[v] : high;
    for (int64_t b = floor_div(s0 - high, p->unroll); b <= floor_div(s1 - 1, p->unroll); b++)
        must(dr_exec_cpu.launch(e->exec, b, s0, s1));
    must(dr_exec_cpu.drain(e->exec));
}

void fake_exec_close(struct fake_exec *e) {
    dr_exec_cpu.destroy(e->exec);
    dr_exec_cpu.host_free(e->device, e->ring.base);
    dr_exec_cpu.host_free(e->device, (void *)e->ring.filled);
    dr_exec_cpu.host_free(e->device, (void *)e->ring.released);
    dr_exec_cpu.host_free(e->device, e->readback.base);
    dr_exec_cpu.host_free(e->device, (void *)e->readback.done);
    dr_exec_cpu.free(e->device, &e->slab);
    dr_exec_cpu.close(e->device);
}

uint64_t fake_digest_planned(const struct dr_plan *p, int64_t steps, const uint32_t *delay_us) {
    struct fake_exec e;
    fake_exec_open(&e, p, steps, delay_us);
    fake_exec_run(&e, 0, steps);
    const uint64_t h = fake_exec_digest(&e);
    fake_exec_close(&e);
    return h;
}
