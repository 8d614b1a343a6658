/* The proof: finds nothing in plans as made, and every fault that is planted. */
#include "tests/fake_graphs.h"
#include "scheduler/parts.h"
#include <criterion/criterion.h>
#include <string.h>

static const enum dr_policy policies[] = {DR_POLICY_SEQUENTIAL, DR_POLICY_STAGE, DR_POLICY_MATCHING,
                                          DR_POLICY_LIST};

static struct toy random_step(uint64_t seed) {
    struct toy t = toy_create();
    t.random = seed * 7919 + 13;
    struct toy_size n = {.data = 1 + toy_next(&t, 3),
                         .augment = toy_next(&t, 8),
                         .frozen = toy_next(&t, 10),
                         .trainable = 1 + toy_next(&t, 10)};
    toy_random(&t, n);
    const char *why = NULL;
    cr_assert(dr_graph_verify(t.g, &why), "seed %llu: %s", (unsigned long long)seed, why);
    return t;
}

static struct dr_plan *random_plan(struct toy *t) {
    struct dr_plan_wish w =
        toy_wish(policies[toy_next(t, 4)], (int32_t)(1 + toy_next(t, 8)), (int32_t)toy_next(t, 4));
    if (toy_next(t, 4) == 0) {
        w.streams = DR_AUTO;
        w.pipeline = DR_AUTO;
    }
    return toy_plan(t, &w, toy_next(t, 3) ? &toy_gpu : &toy_cpu);
}

/* Every policy, 1 to 8 streams, pipelines of 0 to 3: nothing is found. Each wait taken out opens a
 * race between its two ends, so that none is there in vain. */
Test(proof, random_plans_hold_and_need_every_wait, .timeout = 120) {
    uint32_t waits = 0, deep = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct toy t = random_step(seed);
        struct dr_plan *p = random_plan(&t);
        struct dr_race r = dr_plan_prove(p, DR_NONE, t.arena);
        cr_assert(!r.found, "seed %llu: %s", (unsigned long long)seed, r.text);
        deep += p->unroll > 1;
        for (uint32_t i = 0; i < p->wait.n; i++, waits++) {
            const struct dr_wait *w = &p->wait.at[i];
            r = dr_plan_prove(p, i, t.arena);
            cr_assert(r.found, "seed %llu: wait '%s' -> '%s' (%u slots) is not needed",
                      (unsigned long long)seed, t.g->node.at[w->from].name,
                      t.g->node.at[w->to].name, w->slots);
            cr_assert(r.first == w->from && r.second == w->to,
                      "seed %llu: without '%s' -> '%s' (%u slots): %s", (unsigned long long)seed,
                      t.g->node.at[w->from].name, t.g->node.at[w->to].name, w->slots, r.text);
        }
        toy_free(&t);
    }
    cr_log_info("%u waits, %u plans with several slots", waits, deep);
    cr_assert(waits > 2000 && deep > 100);
}

/* ---- planted faults ---- */

/* image, header -> crop (2 ahead) -> frozen conv (1 ahead) -> net with weight w -> loss -> sgd */
static struct toy small_step(void) {
    struct toy t = toy_create();
    uint32_t header = toy_add(&t, "header", &toy_op, DR_ROLE_DATA, DR_UPSTREAM, 56, NULL);
    uint32_t image = toy_add(&t, "image", &toy_op, DR_ROLE_DATA, DR_UPSTREAM, 1000, NULL);
    uint32_t crop =
        toy_add(&t, "crop", &toy_op, DR_ROLE_AUGMENT, DR_UPSTREAM, 1000, TOY_INS(image, header));
    uint32_t fw = toy_state(&t, "conv.weight", 100, true);
    uint32_t conv =
        toy_add(&t, "conv", &toy_op, DR_ROLE_FORWARD, DR_UPSTREAM, 2000, TOY_INS(crop, fw));
    toy_attrs(&t)->workspace = 300;
    uint32_t w = toy_state(&t, "w", 500, false);
    uint32_t y = toy_add(&t, "net", &toy_op, DR_ROLE_FORWARD, DR_UPDATED, 700, TOY_INS(conv, w));
    toy_attrs(&t)->workspace = 400;
    uint32_t loss =
        toy_add(&t, "loss", &toy_op, DR_ROLE_FORWARD, DR_UPDATED, 4, TOY_INS(y, header));
    uint32_t dy =
        toy_add(&t, "dloss", &toy_op, DR_ROLE_BACKWARD, DR_UPDATED, 700, TOY_INS(y, loss));
    uint32_t dw =
        toy_add(&t, "wgrad", &toy_op, DR_ROLE_BACKWARD, DR_UPDATED, 500, TOY_INS(conv, dy));
    toy_add(&t, "sgd", &toy_op, DR_ROLE_UPDATE, DR_UPDATED, 0, TOY_INS(w, dw));
    toy_writes(&t, w);
    toy_add(&t, "readback", &toy_op, DR_ROLE_READBACK, DR_UPDATED, 0, TOY_INS(loss, header));
    return t;
}

static struct dr_plan *small_plan(struct toy *t) {
    struct dr_plan_wish w = toy_wish(DR_POLICY_STAGE, DR_AUTO, DR_AUTO);
    return toy_plan(t, &w, &toy_gpu);
}

static uint32_t value(const struct toy *t, const char *name) {
    return dr_map_get(t->g->value_by_name, name);
}

/* A value laid over another, addresses to match. */
static void lay_over(struct toy *t, struct dr_plan *p, const char *a, const char *b) {
    p->buffer[value(t, a)].offset = p->buffer[value(t, b)].offset;
    dr_plan_addresses(p);
}

static void swap_u32(uint32_t *a, uint32_t *b) {
    uint32_t c = *a;
    *a = *b;
    *b = c;
}

static uint32_t *place_in(struct dr_plan *p, uint32_t *list, uint32_t node) {
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        if (list[i] == node) {
            return &list[i];
        }
    }
    return NULL;
}

static void plant(struct toy *t, struct dr_plan *p, int fault) {
    uint32_t net = toy_node(t, "net"), loss = toy_node(t, "loss"), conv = toy_node(t, "conv");
    switch (fault) {
    case 0: /* one address off by a line */
        p->address[p->operand_first[net]] += DR_ALIGN;
        break;
    case 1: /* the phases of a value with two buffers swapped for its reader alone */
        p->address[p->operand_first[net]] =
            p->address[(size_t)p->n_operands + p->operand_first[net]];
        break;
    case 2: /* one buffer where the producer is a step ahead */
        p->buffer[value(t, "conv")].depth = 1;
        dr_plan_addresses(p);
        break;
    case 3: /* the same, the table alone */
        p->buffer[value(t, "conv")].depth = 1;
        break;
    case 4: /* a node that runs a step later than its buffers say */
        p->stage[conv] = 0;
        break;
    case 5:
        p->stage[conv] = 0;
        dr_plan_addresses(p);
        break;
    case 6: /* loss before what it reads, in the stream's list alone */
        swap_u32(place_in(p, p->stream_node, net), place_in(p, p->stream_node, loss));
        break;
    case 7: /* and in the order as well */
        swap_u32(place_in(p, p->stream_node, net), place_in(p, p->stream_node, loss));
        swap_u32(place_in(p, p->order, net), place_in(p, p->order, loss));
        break;
    case 8:
        lay_over(t, p, "dloss", "net"); /* dloss reads net and writes over it */
        break;
    case 9:
        lay_over(t, p, "w", "conv.weight");
        break;
    case 10: /* a workspace over an input of its node */
        p->workspace_offset[net] = p->buffer[value(t, "conv")].offset;
        break;
    case 11:
        p->ring_slots = 1;
        break;
    case 12:
        lay_over(t, p, "crop", "image"); /* two pipelined values in the same buffers */
        break;
    case 13:
        p->slab_bytes -= DR_ALIGN;
        break;
    case 14: /* a wait for something later: no executor would ever end */
        p->wait.at[p->wait_first[conv]].slots = 0;
        p->wait.at[p->wait_first[conv]].from = toy_node(t, "readback");
        break;
    default:
        break;
    }
}

Test(proof, planted_faults_are_found) {
    static const char *const says[] = {
        "'net' finds 'conv' at",
        "'net' finds 'conv' at",
        "conv",
        "'conv'",
        "conv",
        "conv",
        "against the order",
        "'loss'",
        "'dloss'",
        "conv.weight",
        "its workspace",
        "input ring",
        "race",
        "the slab",
        "deadlock",
    };
    for (int fault = -1; fault < 15; fault++) {
        struct toy t = small_step();
        struct dr_plan *p = small_plan(&t);
        cr_assert_eq(p->unroll, 4);
        plant(&t, p, fault);
        struct dr_race r = dr_plan_prove(p, DR_NONE, t.arena);
        if (fault < 0) {
            cr_assert(!r.found, "%s", r.text);
        } else {
            cr_assert(r.found, "fault %d is not found", fault);
            cr_assert(strstr(r.text, says[fault]), "fault %d: %s", fault, r.text);
        }
        toy_free(&t);
    }
}

/* The words name both nodes, what they do, where and when. */
Test(proof, a_race_in_words) {
    struct toy t = small_step();
    struct dr_plan *p = small_plan(&t);
    for (uint32_t i = 0; i < p->wait.n; i++) {
        struct dr_race r = dr_plan_prove(p, i, t.arena);
        cr_assert(r.found && r.first < p->n_nodes && r.second < p->n_nodes);
        cr_assert(strstr(r.text, t.g->node.at[r.first].name) &&
                      strstr(r.text, t.g->node.at[r.second].name) && strstr(r.text, "race: ") &&
                      strstr(r.text, "phase"),
                  "%s", r.text);
        cr_assert_eq(r.first_value, p->wait.at[i].value);
        cr_assert_eq(r.second_value, p->wait.at[i].value);
        cr_assert(r.offset >= p->buffer[r.first_value].offset);
    }
    toy_free(&t);
}

/* Any single address changed to another buffer's is found, wherever it is. */
Test(proof, any_wrong_address_is_found, .timeout = 60) {
    for (uint64_t seed = 1000; seed < 1060; seed++) {
        struct toy t = random_step(seed);
        struct dr_plan *p = random_plan(&t);
        for (int k = 0; k < 10; k++) {
            size_t at = toy_next(&t, p->unroll * p->n_operands);
            uint64_t old = p->address[at], other = p->address[toy_next(&t, p->n_operands)];
            p->address[at] = other;
            struct dr_race r = dr_plan_prove(p, DR_NONE, t.arena);
            cr_assert_eq(r.found, other != old);
            p->address[at] = old;
        }
        toy_free(&t);
    }
}

/* Nothing to run is a plan too. */
Test(proof, empty_graph) {
    struct toy t = toy_create();
    for (int policy = DR_POLICY_SEQUENTIAL; policy <= DR_POLICY_AUTO; policy++) {
        struct dr_plan_wish w = toy_wish((enum dr_policy)policy, DR_AUTO, DR_AUTO);
        bool too_large = false;
        struct dr_plan *p = dr_plan_make(t.arena, t.g, &w, &toy_gpu, &too_large);
        cr_assert(p && p->n_nodes == 0 && p->wait.n == 0 && p->slab_bytes == 0);
        struct dr_text text = {.arena = t.arena};
        dr_plan_text(p, &toy_gpu, 1, &text);
        cr_assert(text.n > 0);
    }
    toy_free(&t);
}
