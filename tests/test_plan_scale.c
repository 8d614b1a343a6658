/* Plans of 10,000 nodes, and the plan in text, JSON and dot. Times are printed, never judged. */
#include "tests/fake_graphs.h"
#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>
#include <time.h>

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Each step of a plan, timed (processor time: tests run beside each other). */
static struct dr_plan *timed(const struct toy *t, const struct dr_plan_wish *w, const char *what) {
    double at[8], first = now_s();
    struct dr_plan *p = dr_plan_begin(t->arena, t->g, w);
    dr_plan_choose(p, &toy_gpu);
    cr_assert(dr_plan_stages(p, w, &toy_gpu));
    at[0] = now_s();
    cr_assert(dr_plan_streams(p, w, &toy_gpu));
    at[1] = now_s();
    dr_plan_waits(p);
    at[2] = now_s();
    cr_assert(dr_plan_memory(p, w));
    at[3] = now_s();
    dr_plan_bound(p, &toy_gpu);
    at[4] = now_s();
    struct dr_race r = dr_plan_prove(p, DR_NONE, t->arena);
    at[5] = now_s();
    cr_assert(!r.found, "%s", r.text);
    cr_assert(p->lower_bound_bytes <= p->slab_bytes && p->slab_bytes <= p->no_reuse_bytes);
    printf("%s: %u nodes, %u streams, %u slots, %u waits: stages %.0f, streams %.0f, waits %.0f, "
           "memory %.0f, bound %.0f, proof %.0f, all %.0f ms; planned %.3f of the lower bound\n",
           what, p->n_nodes, p->n_streams, p->unroll, p->wait.n, 1e3 * (at[0] - first),
           1e3 * (at[1] - at[0]), 1e3 * (at[2] - at[1]), 1e3 * (at[3] - at[2]),
           1e3 * (at[4] - at[3]), 1e3 * (at[5] - at[4]), 1e3 * (at[5] - first),
           (double)p->slab_bytes / (double)p->lower_bound_bytes);
    return p;
}

Test(plan_scale, ten_thousand_nodes, .timeout = 120) {
    static const struct {
        enum dr_policy policy;
        int32_t streams, pipeline;
    } rows[] = {
        {DR_POLICY_SEQUENTIAL, DR_AUTO, 0},
        {DR_POLICY_STAGE, DR_AUTO, DR_AUTO},
        {DR_POLICY_LIST, 8, 0},
        {DR_POLICY_LIST, 8, DR_AUTO},
        {DR_POLICY_MATCHING, 8, DR_AUTO},
        {DR_POLICY_MATCHING, DR_AUTO, DR_AUTO},
    };
    struct toy t = toy_create();
    toy_random(&t, (struct toy_size){.data = 4, .augment = 100, .frozen = 1800, .trainable = 2020});
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dr_plan_wish w = toy_wish(rows[i].policy, rows[i].streams, rows[i].pipeline);
        timed(&t, &w, dr_policy_name(rows[i].policy));
    }
    toy_free(&t);
}

/* A chain of 10,000 nodes over 8 streams in turns: a wait for each step but stream order implies
 * none; dot has one line a node and edge, and the first line says how many. */
Test(plan_scale, DOT_03_long_chain_on_8_streams, .timeout = 60) {
    struct toy t = toy_create();
    uint32_t x = DR_NONE;
    for (uint32_t v = 0; v < 10000; v++) {
        x = toy_add(&t, dr_printf(t.arena, "n%u", v), &toy_op, DR_ROLE_FORWARD, DR_UPDATED, 8,
                    TOY_INS(x));
    }
    struct dr_plan_wish w = toy_wish(DR_POLICY_SEQUENTIAL, DR_AUTO, 0);
    struct dr_plan *p = toy_plan(&t, &w, &toy_gpu);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        p->stream[v] = v % 8;
    }
    p->n_streams = 8;
    dr_plan_waits(p);
    cr_assert_eq(p->wait.n, 9999);
    cr_assert(dr_plan_memory(p, &w));
    cr_assert_eq(p->slab_bytes, 2 * DR_ALIGN);
    cr_assert(!dr_plan_prove(p, DR_NONE, t.arena).found);
    for (int whole = 0; whole < 2; whole++) {
        struct dr_text dot = {.arena = t.arena};
        double start = now_s();
        dr_plan_dot(p, whole, &dot);
        uint32_t lines = 0;
        for (size_t i = 0; i < dot.n; i++) {
            lines += dot.at[i] == '\n';
        }
        printf("dot%s: %u lines, %zu bytes, %.0f ms\n", whole ? ", whole" : "", lines, dot.n,
               1e3 * (now_s() - start));
        char *end = strchr(dot.at, '\n');
        cr_assert(end);
        *end = 0;
        cr_expect(strstr(dot.at, "10000"), "%s", dot.at);
        cr_expect(!whole || (lines >= 10000 + 9999 && lines < 25000));
    }
    toy_free(&t);
}

/* One node with 5,000 inputs, and one input twice. */
Test(plan_scale, DOT_03_many_inputs, .timeout = 60) {
    struct toy t = toy_create();
    uint32_t *in = DR_NEW_N(t.arena, uint32_t, 5002);
    for (uint32_t v = 0; v < 5000; v++) {
        in[v] = toy_add(&t, dr_printf(t.arena, "n%u", v), &toy_op, DR_ROLE_FORWARD, DR_UPDATED, 8,
                        NULL);
    }
    in[5000] = in[17];
    in[5001] = DR_NONE;
    toy_add(&t, "all", &toy_op, DR_ROLE_FORWARD, DR_UPDATED, 8, in);
    for (int policy = DR_POLICY_SEQUENTIAL; policy <= DR_POLICY_LIST; policy++) {
        struct dr_plan_wish w = toy_wish((enum dr_policy)policy, 8, 0);
        struct dr_plan *p = timed(&t, &w, dr_policy_name((enum dr_policy)policy));
        cr_expect_leq(p->wait.n, 7); /* the last of each other stream */
    }
    toy_free(&t);
}

/* The same plan prints the same words, with what a reader looks for. */
Test(plan_scale, text_and_json) {
    struct toy t = toy_create();
    toy_random(&t, (struct toy_size){.data = 2, .augment = 4, .frozen = 5, .trainable = 6});
    struct dr_plan_wish w = toy_wish(DR_POLICY_AUTO, DR_AUTO, DR_AUTO);
    struct dr_plan *p = toy_plan(&t, &w, &toy_gpu), *q = toy_plan(&t, &w, &toy_gpu);
    struct dr_text a = {.arena = t.arena}, b = {.arena = t.arena}, all = {.arena = t.arena};
    dr_plan_text(p, &toy_gpu, 0, &a);
    dr_plan_text(q, &toy_gpu, 0, &b);
    dr_plan_text(p, &toy_gpu, 1, &all);
    cr_expect_str_eq(a.at, b.at);
    static const char *const words[] = {"policy stage: nothing was measured",
                                        "stages\n",
                                        "streams\n",
                                        "waits: ",
                                        "lower bound",
                                        "without reuse",
                                        "bound  ",
                                        "predicted  ",
                                        "ring slots"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        cr_expect(strstr(a.at, words[i]), "no '%s' in\n%s", words[i], a.at);
    }
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        cr_expect(strstr(all.at, t.g->node.at[v].name));
    }
    json_t *o = dr_plan_json(p, true);
    cr_expect_str_eq(json_string_value(json_object_get(o, "policy")), "stage");
    cr_expect_eq(json_integer_value(json_object_get(o, "planned_bytes")),
                 (json_int_t)p->slab_bytes);
    cr_expect_eq(json_integer_value(json_object_get(o, "waits")), p->wait.n);
    cr_expect_eq(json_array_size(json_object_get(o, "nodes")), p->n_nodes);
    json_decref(o);
    toy_free(&t);
}
