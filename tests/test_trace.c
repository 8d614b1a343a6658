/* Traces: what the CPU executor records, the JSON of it, and the numbers drawn from it. */
#include "tests/fake_cli.h"
#include "tests/fake_exec.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Steps [s0, s1), then [s1, s2), traced. */
static void run_traced(const struct dr_plan *p, struct dr_trace *t, int64_t s1, int64_t s2,
                       const uint32_t *delay_us) {
    struct fake_exec e;
    fake_exec_open(&e, p, s2, NULL);
    dr_exec_cpu.destroy(e.exec);
    const struct dr_exec_config c = {
        .plan = p,
        .dev = &e.info,
        .slab = e.slab,
        .ring = &e.ring,
        .readback = &e.readback,
        .seed = p->g->seed,
        .device = e.device,
        .delay_us = delay_us,
        .trace = t,
    };
    cr_assert_eq(dr_exec_cpu.create(&c, &e.exec).code, DR_OK);
    fake_exec_run(&e, 0, s1);
    if (s2 > s1)
        fake_exec_run(&e, s1, s2);
    dr_trace_finish(t);
    cr_expect_eq(fake_exec_digest(&e), fake_digest_interpreted((struct dr_graph *)p->g, s2));
    fake_exec_close(&e);
}

static const struct dr_trace_record *find(const struct dr_trace *t, uint32_t node, int64_t step) {
    for (uint64_t i = 0; i < dr_trace_records(t); i++)
        if (t->at[i].node == node && t->at[i].step == step)
            return &t->at[i];
    return NULL;
}

static void check_order(const struct dr_plan *p, const struct dr_trace *t, int64_t s1,
                        int64_t steps) {
    const uint64_t n = dr_trace_records(t);
    uint64_t stream_end[DR_MAX_STREAMS] = {0};
    for (uint64_t i = 0; i < n; i++) { /* sorted by start */
        const struct dr_trace_record *r = &t->at[i];
        cr_assert_leq(r->start_ns, r->end_ns);
        cr_assert_leq(stream_end[r->stream], r->start_ns, "stream %u overlaps", r->stream);
        stream_end[r->stream] = r->end_ns;
        for (uint64_t k = i + 1; k < n; k++) { /* the barrier after each block of a run */
            const struct dr_trace_record *later = &t->at[k];
            cr_assert((later->step < s1) != (r->step < s1) || later->block == r->block ||
                      (later->block > r->block && later->start_ns >= r->end_ns));
        }
    }
    for (uint32_t w = 0; w < p->wait.n; w++) {
        const struct dr_wait *wait = &p->wait.at[w];
        for (int64_t step = 0; step < steps; step++) {
            const struct dr_trace_record *to = find(t, wait->to, step);
            const int64_t slot = step - p->stage[wait->to] - wait->slots;
            const struct dr_trace_record *from = find(t, wait->from, slot + p->stage[wait->from]);
            cr_assert(!from || from->end_ns <= to->start_ns, "wait %u, step %lld", w,
                      (long long)step);
        }
    }
}

Test(trace, every_node_of_every_step_once_and_in_order) {
    static const enum dr_policy policies[] = {DR_POLICY_SEQUENTIAL, DR_POLICY_STAGE,
                                              DR_POLICY_MATCHING};
    struct dr_graph *g = fake_training_graph();
    uint32_t *delay = DR_NEW_N(g->arena, uint32_t, g->node.n);
    for (uint32_t v = 0; v < g->node.n; v++)
        delay[v] = v % 5 ? 0 : 300;
    for (int i = 0; i < 3; i++) {
        const int64_t steps = 7;
        const struct dr_plan *p = fake_plan(g, policies[i], 4, DR_AUTO);
        struct dr_trace *t = dr_trace_create(1000);
        run_traced(p, t, 5, steps, delay);
        cr_assert_eq(dr_trace_records(t), (uint64_t)steps * p->n_nodes);
        cr_expect_eq(dr_trace_dropped(t), 0u);
        for (uint32_t v = 0; v < p->n_nodes; v++)
            for (int64_t s = 0; s < steps; s++) {
                const struct dr_trace_record *r = find(t, v, s);
                cr_assert(r, "'%s' of step %lld is missing", g->node.at[v].name, (long long)s);
                const int64_t slot = s - p->stage[v], u = p->unroll;
                cr_expect_eq(r->block, slot / u - (slot % u < 0));
                cr_expect_eq(r->stream, p->stream[v]);
                cr_expect_eq(r->how, DR_TRACE_WORKER);
                cr_expect(!delay[v] || r->end_ns - r->start_ns >= 300000);
            }
        check_order(p, t, 5, steps);
        dr_trace_destroy(t);
    }
    fake_free(g);
}

Test(trace, whole_blocks_are_those_with_every_node) {
    struct dr_graph *g = fake_training_graph();
    const struct dr_plan *p = fake_plan(g, DR_POLICY_STAGE, DR_AUTO, DR_AUTO);
    struct dr_trace *t = dr_trace_create(1000);
    run_traced(p, t, 20, 20, NULL);
    uint32_t per_block[16] = {0}, whole = 0;
    for (uint64_t i = 0; i < dr_trace_records(t); i++)
        per_block[t->at[i].block + 4]++;
    for (uint64_t i = 0; i < dr_trace_records(t); i++) {
        cr_expect_eq(t->at[i].whole, per_block[t->at[i].block + 4] == p->n_nodes * p->unroll);
        whole += t->at[i].whole;
    }
    struct dr_trace_summary s;
    dr_trace_summarise(t, &s);
    cr_expect_gt(s.blocks, 1u);
    cr_expect_eq(s.blocks * p->n_nodes * p->unroll, whole);
    cr_expect(s.idle >= 0 && s.idle < 1 && s.busy_s <= s.span_s && s.gap_us >= 0);
    dr_trace_destroy(t);
    fake_free(g);
}

Test(trace, what_does_not_fit_is_counted) {
    struct dr_graph *g = fake_training_graph();
    const struct dr_plan *p = fake_plan(g, DR_POLICY_STAGE, DR_AUTO, DR_AUTO);
    struct dr_trace *t = dr_trace_create(10);
    run_traced(p, t, 3, 3, NULL);
    cr_expect_eq(dr_trace_records(t), 10u);
    cr_expect_eq(dr_trace_dropped(t), 3u * p->n_nodes - 10);
    char *text;
    size_t n;
    cr_assert(dr_trace_json(t, "cpu", &text, &n));
    json_t *j = json_loadb(text, n, 0, NULL);
    cr_assert(j);
    cr_expect_eq(json_integer_value(json_object_get(json_object_get(j, "otherData"), "dropped")),
                 3 * (json_int_t)p->n_nodes - 10);
    json_decref(j);
    free(text);
    dr_trace_destroy(t);
    fake_free(g);
}

static const char *text_of(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

Test(trace, json_has_rows_and_events) {
    struct dr_graph *g = fake_training_graph();
    const struct dr_plan *p = fake_plan(g, DR_POLICY_STAGE, DR_AUTO, DR_AUTO);
    struct dr_trace *t = dr_trace_create(1000);
    run_traced(p, t, 4, 4, NULL);
    char *text;
    size_t n;
    cr_assert(dr_trace_json(t, "cpu: \"2\" threads", &text, &n));
    json_error_t error;
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    cr_assert(j, "%s at line %d", error.text, error.line);
    cr_expect_str_eq(text_of(json_object_get(j, "otherData"), "device"), "cpu: \"2\" threads");
    json_t *events = json_object_get(j, "traceEvents"), *e;
    size_t i, slices = 0, rows = 0;
    json_array_foreach(events, i, e) {
        const json_t *args = json_object_get(e, "args");
        if (!strcmp(text_of(e, "ph"), "M")) {
            rows += !strcmp(text_of(e, "name"), "thread_name");
            cr_expect(strcmp(text_of(e, "name"), "process_name") != 0 ||
                      !strcmp(text_of(args, "name"), "training"));
            continue;
        }
        cr_assert_str_eq(text_of(e, "ph"), "X");
        const uint32_t v = fake_node(g, text_of(e, "name"));
        cr_assert_neq(v, DR_NONE);
        const struct dr_node *node = &g->node.at[v];
        cr_expect_str_eq(text_of(args, "op"), node->op->name);
        cr_expect_str_eq(text_of(args, "subgraph"),
                         node->subgraph == DR_NONE ? "" : g->subgraph.at[node->subgraph].name);
        cr_expect_str_eq(text_of(args, "from"), "worker thread");
        cr_expect_eq(json_integer_value(json_object_get(args, "stage")), p->stage[v]);
        cr_expect_eq(json_integer_value(json_object_get(e, "tid")), p->stream[v] + 1);
        const struct dr_trace_record *r =
            find(t, v, json_integer_value(json_object_get(args, "step")));
        cr_assert(r);
        const double ts = json_number_value(json_object_get(e, "ts"));
        cr_expect_float_eq(ts, (double)(r->start_ns - t->at[0].start_ns) / 1000, 1e-6);
        slices++;
    }
    cr_expect_eq(rows, p->n_streams);
    cr_expect_eq(slices, 4u * p->n_nodes);
    json_decref(j);
    free(text);
    dr_trace_destroy(t);
    fake_free(g);
}

Test(trace, kernels_keep_their_names) {
    static const struct {
        const char *symbol, *name;
    } cases[] = {
        {"_Z11tile_kernelPKfiPf", "tile_kernel"},
        {"_ZN8dagrun_a5innerIfLi4EEEvPKT_", "inner"},
        {"_ZL9fill_zeroPf", "fill_zero"},
        {"_ZN12_GLOBAL__N_14nameEv", "name"},
        {"sm90_xmma_gemm_f32f32", "sm90_xmma_gemm_f32f32"},
        {"copy", "copy"},
        {"_Z", "_Z"},
        {"_Z99short", "_Z99short"},
    };
    struct dr_graph *g = fake_training_graph();
    const struct dr_plan *p = fake_plan(g, DR_POLICY_STAGE, DR_AUTO, DR_AUTO);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dr_trace *t = dr_trace_create(4);
        dr_trace_add_plan(t, p, NULL, NULL);
        const struct dr_trace_record r = {.start_ns = 5,
                                          .end_ns = 6,
                                          .step = -1,
                                          .how = DR_TRACE_EVENTS,
                                          .kernel = cases[i].symbol};
        dr_trace_add(t, &r);
        char *text;
        size_t n;
        cr_assert(dr_trace_json(t, "x", &text, &n));
        json_t *j = json_loadb(text, n, 0, NULL);
        const json_t *events = json_object_get(j, "traceEvents");
        const json_t *args =
            json_object_get(json_array_get(events, json_array_size(events) - 1), "args");
        cr_expect_str_eq(text_of(args, "kernel"), cases[i].name);
        cr_expect_not(json_object_get(args, "step")); /* not known */
        cr_expect(strstr(text, "stream 0 (uncaptured, by events)"));
        json_decref(j);
        free(text);
        dr_trace_destroy(t);
    }
    fake_free(g);
}

Test(trace, summary_by_hand) {
    struct dr_graph *g = fake_training_graph();
    const struct dr_plan *p = fake_plan(g, DR_POLICY_STAGE, DR_AUTO, DR_AUTO);
    /* Blocks 3, 4, 5, then 9 after other work. Busy: 100 + 30 of 150, 80 of 80, 60 of 60, 50 of 50;
     * gaps 10 and 30. */
    static const struct dr_trace_record at[] = {
        {.start_ns = 0, .end_ns = 500, .block = 2},
        {.start_ns = 1000, .end_ns = 1060, .block = 3, .whole = true},
        {.start_ns = 1040, .end_ns = 1100, .block = 3, .stream = 1, .whole = true},
        {.start_ns = 1120, .end_ns = 1150, .block = 3, .whole = true},
        {.start_ns = 1125, .end_ns = 1140, .block = 3, .stream = 1, .whole = true},
        {.start_ns = 1160, .end_ns = 1240, .block = 4, .whole = true},
        {.start_ns = 1270, .end_ns = 1330, .block = 5, .whole = true},
        {.start_ns = 1200, .end_ns = 1300, .block = 5, .plan = 1, .whole = true},
        {.start_ns = 1500, .end_ns = 1700, .block = 6},
        {.start_ns = 2000, .end_ns = 2050, .block = 9, .whole = true},
    };
    struct dr_trace *t = dr_trace_create(64);
    dr_trace_add_plan(t, p, NULL, NULL);
    dr_trace_add_plan(t, p, NULL, NULL);
    struct dr_trace_summary s;
    dr_trace_summarise(t, &s);
    cr_expect_eq(s.blocks, 0u);
    cr_expect(isnan(s.idle) && isnan(s.gap_us));
    for (size_t i = sizeof at / sizeof *at; i--;)
        dr_trace_add(t, &at[i]);
    dr_trace_finish(t);
    dr_trace_summarise(t, &s);
    cr_expect_eq(s.blocks, 4u);
    cr_expect_float_eq(s.busy_s, 320e-9, 1e-15);
    cr_expect_float_eq(s.gap_s, 40e-9, 1e-15);
    cr_expect_float_eq(s.span_s, 380e-9, 1e-15);
    cr_expect_float_eq(s.idle, 60.0 / 380, 1e-12);
    cr_expect_float_eq(s.gap_us, 0.020, 1e-12); /* the median of 10 and 30 ns */
    dr_trace_destroy(t);
    fake_free(g);
}

Test(trace, command_line) {
    char *folder = cli_folder();
    cli_quadrants(folder, 84);
    char *model = cli_file(folder, "m.yaml", cli_quadrants_yaml);
    char args[512], file[256];
    static const char *const modes[] = {"", "--json --bench --steps 20"};
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s/deep/er/t%d.json", folder, i);
        snprintf(args, sizeof args, "--trace %s %s %s", file, modes[i], model);
        struct cli_run r = cli_run(DR_BINARY, args);
        cr_expect_eq(r.code, 0, "%s", r.err);
        cr_expect(strstr(r.err, "trace: ") && strstr(r.err, file), "%s", r.err);
        json_t *j = json_load_file(file, 0, NULL), *e;
        cr_assert(j);
        size_t k, plans = 0, slices = 0;
        json_array_foreach(json_object_get(j, "traceEvents"), k, e) {
            plans += !strcmp(text_of(e, "name"), "process_name");
            slices += !strcmp(text_of(e, "ph"), "X");
        }
        cr_expect_eq(plans, i ? 1u : 2u); /* a run has its evaluation too */
        cr_expect_gt(slices, 100u);
        json_decref(j);
        if (i) {
            j = json_loads(r.out, 0, NULL);
            const json_t *t = json_object_get(j, "trace");
            cr_expect_eq((size_t)json_integer_value(json_object_get(t, "records")), slices);
            cr_expect_gt(json_integer_value(json_object_get(t, "blocks")), 1);
            cr_expect_gt(json_number_value(json_object_get(t, "busy_s")), 0);
            cr_expect_gt(json_number_value(json_object_get(j, "host_us_per_step")), 0);
            json_decref(j);
        }
        cli_run_free(&r);
    }
    snprintf(args, sizeof args, "--trace %s %s", folder, model);
    struct cli_run r = cli_run(DR_BINARY, args);
    cr_expect_neq(r.code, 0);
    cr_expect_not_null(strstr(r.err, "cannot write"));
    cli_run_free(&r);
    cli_folder_remove(folder);
    free(model);
}
