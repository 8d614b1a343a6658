/* Dependencies and waits: worked by hand, and against the closure of the unrolled block. */
#include "tests/fake_graphs.h"
#include <criterion/criterion.h>
#include <string.h>

/* A plan whose streams the test sets. */
static struct dr_plan *on_streams(const struct toy *t, int32_t pipeline, const uint8_t *stream,
                                  uint32_t n_streams) {
    struct dr_plan_wish w = toy_wish(DR_POLICY_SEQUENTIAL, DR_AUTO, pipeline);
    struct dr_plan *p = dr_plan_begin(t->arena, t->g, &w);
    dr_plan_choose(p, &toy_gpu);
    cr_assert(dr_plan_stages(p, &w, &toy_gpu) && dr_plan_streams(p, &w, &toy_gpu));
    memcpy(p->stream, stream, p->n_nodes);
    p->n_streams = n_streams;
    dr_plan_waits(p);
    return p;
}

struct want {
    const char *from, *to;
    uint32_t slots;
    enum dr_why why;
};

static void expect(const struct toy *t, const struct dr_plan *p, const struct want *w, uint32_t n) {
    cr_expect_eq(p->wait.n, n, "%u waits, not %u", p->wait.n, n);
    for (uint32_t i = 0; i < p->wait.n; i++) {
        const struct dr_wait *found = &p->wait.at[i];
        const char *from = t->g->node.at[found->from].name, *to = t->g->node.at[found->to].name;
        bool same = i < n && !strcmp(from, w[i].from) && !strcmp(to, w[i].to) &&
                    found->slots == w[i].slots && found->why == w[i].why;
        cr_expect(same, "wait %u: %s -> %s, %u slots, reason %d", i, from, to, found->slots,
                  (int)found->why);
    }
}
#define EXPECT(t, p, ...)                                                                          \
    expect(t, p, (const struct want[]){__VA_ARGS__},                                               \
           sizeof((const struct want[]){__VA_ARGS__}) / sizeof(struct want))
#define NODE(name, ...)                                                                            \
    toy_add(&t, name, &toy_op, DR_ROLE_FORWARD, DR_UPDATED, 8, TOY_INS(__VA_ARGS__))

/* a -> b, c -> d and a -> d: one slot a block, so that nothing reaches across slots. */
Test(waits, diamond) {
    struct toy t = toy_create();
    uint32_t a = NODE("a", DR_NONE), b = NODE("b", a), c = NODE("c", a);
    NODE("d", b, c, a, a);
    struct dr_plan *p = on_streams(&t, 0, (const uint8_t[]){0, 0, 1, 0}, 2);
    EXPECT(&t, p, {"a", "c", 0, DR_WAIT_DATA}, {"c", "d", 0, DR_WAIT_DATA});
    p = on_streams(&t, 0, (const uint8_t[]){0, 1, 2, 3}, 4); /* a -> d is implied */
    EXPECT(&t, p, {"a", "b", 0, DR_WAIT_DATA}, {"a", "c", 0, DR_WAIT_DATA},
           {"b", "d", 0, DR_WAIT_DATA}, {"c", "d", 0, DR_WAIT_DATA});
    cr_expect_eq(p->waits_before_reduction, 5);
    p = on_streams(&t, 0, (const uint8_t[]){0, 0, 0, 0}, 1);
    cr_expect_eq(p->wait.n, 0);
    p = on_streams(&t, 0, (const uint8_t[]){0, 1, 1, 2}, 3); /* b -> d by stream order */
    EXPECT(&t, p, {"a", "b", 0, DR_WAIT_DATA}, {"c", "d", 0, DR_WAIT_DATA});
    toy_free(&t);
}

/* enc (a step ahead, two buffers) -> net -> sgd. In slot t net reads what enc wrote in slot t - 1;
 * enc overwrites in slot t what net read in slot t - 1, and the rest is implied. */
Test(waits, pipelined) {
    struct toy t = toy_create();
    uint32_t enc = toy_add(&t, "enc", &toy_op, DR_ROLE_FORWARD, DR_UPSTREAM, 8, NULL);
    uint32_t w = toy_state(&t, "w", 8, false);
    uint32_t y = NODE("net", enc, w);
    NODE("wgrad", y, enc);
    toy_add(&t, "sgd", &toy_op, DR_ROLE_UPDATE, DR_UPDATED, 0,
            TOY_INS(w, dr_map_get(t.g->value_by_name, "wgrad")));
    toy_writes(&t, w);
    struct dr_plan *p = on_streams(&t, DR_AUTO, (const uint8_t[]){1, 0, 0, 0}, 2);
    cr_expect_eq(p->unroll, 2);
    EXPECT(&t, p, {"wgrad", "enc", 1, DR_WAIT_REUSE}, {"enc", "net", 1, DR_WAIT_DATA});
    cr_expect_eq(p->waits_before_reduction, 4); /* both readers, both ways */
    p = on_streams(&t, DR_AUTO, (const uint8_t[]){0, 1, 2, 3}, 4);
    EXPECT(&t, p, {"wgrad", "enc", 1, DR_WAIT_REUSE}, {"enc", "net", 1, DR_WAIT_DATA},
           {"sgd", "net", 1, DR_WAIT_STATE}, {"net", "wgrad", 0, DR_WAIT_DATA},
           {"wgrad", "sgd", 0, DR_WAIT_DATA});
    toy_free(&t);
}

/* A state in program order: read, written, read, written; then the same in the next step. */
Test(waits, states) {
    struct toy t = toy_create();
    uint32_t s = toy_state(&t, "s", 8, false);
    NODE("read1", s);
    toy_add(&t, "write1", &toy_op, DR_ROLE_UPDATE, DR_UPDATED, 0, NULL);
    toy_writes(&t, s);
    NODE("read2", s);
    toy_add(&t, "write2", &toy_op, DR_ROLE_UPDATE, DR_UPDATED, 0, TOY_INS(s));
    toy_writes(&t, s);
    uint32_t x = toy_add(&t, "up", &toy_op, DR_ROLE_DATA, DR_UPSTREAM, 8, NULL);
    NODE("down", x); /* so that a block has two slots */
    struct dr_plan *p = on_streams(&t, DR_AUTO, (const uint8_t[]){0, 1, 2, 3, 4, 4}, 5);
    EXPECT(&t, p, {"write2", "read1", 1, DR_WAIT_STATE}, {"read1", "write1", 0, DR_WAIT_REUSE},
           {"write1", "read2", 0, DR_WAIT_STATE}, {"read2", "write2", 0, DR_WAIT_REUSE});
    /* in one slot a block, the barrier sees to the next step */
    p = on_streams(&t, 0, (const uint8_t[]){0, 1, 2, 3, 4, 4}, 5);
    EXPECT(&t, p, {"read1", "write1", 0, DR_WAIT_REUSE}, {"write1", "read2", 0, DR_WAIT_STATE},
           {"read2", "write2", 0, DR_WAIT_REUSE});
    toy_free(&t);
}

/* ---- against the closure ---- */

/* reach[i][j]: entry i = slot * n + node happens before j, under stream order and the given waits
 * (`skip`: one to leave out). Warshall. */
static bool *closure(const struct dr_plan *p, const struct dr_wait *wait, uint32_t n_waits,
                     uint32_t skip, struct dr_arena *a) {
    uint32_t n = p->n_nodes, all = n * p->unroll;
    bool *reach = DR_NEW_N(a, bool, (size_t)all *all);
    uint32_t *position = DR_NEW_N(a, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) {
        position[p->order[i]] = i;
    }
    for (uint32_t i = 0; i < all; i++) {
        for (uint32_t j = 0; j < all; j++) {
            bool later = i / n < j / n || (i / n == j / n && position[i % n] < position[j % n]);
            reach[(size_t)i * all + j] = p->stream[i % n] == p->stream[j % n] && later;
        }
    }
    for (uint32_t w = 0; w < n_waits; w++) {
        for (uint32_t slot = wait[w].slots; slot < p->unroll && w != skip; slot++) {
            uint32_t i = (slot - wait[w].slots) * n + wait[w].from, j = slot * n + wait[w].to;
            reach[(size_t)i * all + j] = true;
        }
    }
    for (uint32_t k = 0; k < all; k++) {
        for (uint32_t i = 0; i < all; i++) {
            for (uint32_t j = 0; reach[(size_t)i * all + k] && j < all; j++) {
                reach[(size_t)i * all + j] |= reach[(size_t)k * all + j];
            }
        }
    }
    return reach;
}

/* The waits imply what all dependencies do, and no wait is implied by the rest. */
Test(waits, same_closure_and_none_to_spare, .timeout = 120) {
    uint32_t waits = 0, before = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct toy t = toy_create();
        t.random = seed * 101 + 7;
        toy_random(&t, (struct toy_size){.data = 1,
                                         .augment = toy_next(&t, 3),
                                         .frozen = toy_next(&t, 3),
                                         .trainable = 1 + toy_next(&t, 3)});
        uint8_t stream[64];
        uint32_t n_streams = 1 + toy_next(&t, 8);
        for (uint32_t v = 0; v < t.g->node.n; v++) {
            stream[v] = (uint8_t)(v < n_streams ? v : toy_next(&t, n_streams));
        }
        struct dr_plan *p = on_streams(&t, (int32_t)toy_next(&t, 4), stream, n_streams);
        size_t bytes = (size_t)p->n_nodes * p->unroll;
        bytes *= bytes;
        struct dr_waits all = dr_plan_dependencies(p, t.arena);
        bool *full = closure(p, all.at.at, all.at.n, DR_NONE, t.arena);
        bool *few = closure(p, p->wait.at, p->wait.n, DR_NONE, t.arena);
        cr_assert(memcmp(full, few, bytes) == 0, "seed %llu", (unsigned long long)seed);
        for (uint32_t w = 0; w < p->wait.n; w++) {
            bool *less = closure(p, p->wait.at, p->wait.n, w, t.arena);
            cr_assert(memcmp(full, less, bytes) != 0, "seed %llu: wait %u is implied",
                      (unsigned long long)seed, w);
        }
        waits += p->wait.n;
        before += p->waits_before_reduction;
        toy_free(&t);
    }
    cr_log_info("%u dependencies, %u waits", before, waits);
    cr_assert(waits > 300 && before > waits);
}

/* Sorted by (to, from) and indexed by `to`. */
Test(waits, csr) {
    struct toy t = toy_create();
    toy_random(&t, (struct toy_size){.data = 3, .augment = 5, .frozen = 5, .trainable = 9});
    struct dr_plan_wish w = toy_wish(DR_POLICY_LIST, 6, DR_AUTO);
    struct dr_plan *p = toy_plan(&t, &w, &toy_gpu);
    cr_assert_eq(p->wait_first[0], 0);
    cr_assert_eq(p->wait_first[p->n_nodes], p->wait.n);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        for (uint32_t i = p->wait_first[v]; i < p->wait_first[v + 1]; i++) {
            cr_assert_eq(p->wait.at[i].to, v);
            cr_assert(i == p->wait_first[v] || p->wait.at[i - 1].from < p->wait.at[i].from);
            cr_assert(p->stream[p->wait.at[i].from] != p->stream[v]);
            cr_assert(p->wait.at[i].slots < p->unroll);
        }
    }
    toy_free(&t);
}
