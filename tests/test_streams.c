/* Stream policies: worked by hand, and against brute force on small graphs. */
#include "tests/fake_graphs.h"
#include "scheduler/parts.h"
#include <criterion/criterion.h>
#include <string.h>

#define NODE(name, ...)                                                                            \
    toy_add(&t, name, &toy_op, DR_ROLE_FORWARD, DR_UPDATED, 8, TOY_INS(__VA_ARGS__))

static struct dr_plan *plan(const struct toy *t, enum dr_policy policy, int32_t streams,
                            int32_t pipeline) {
    struct dr_plan_wish w = toy_wish(policy, streams, pipeline);
    return toy_plan(t, &w, &toy_gpu);
}

/* The inception-like cell of Nimble's figure: a fork, branches of length 1, 2 and 2, a join. */
Test(streams, matching_by_hand) {
    struct toy t = toy_create();
    uint32_t a = NODE("a", DR_NONE);
    uint32_t b = NODE("b", a);
    uint32_t c1 = NODE("c1", a), c2 = NODE("c2", c1);
    uint32_t d1 = NODE("d1", a), d2 = NODE("d2", d1);
    NODE("e", b, c2, d2, a); /* a -> e is implied */
    struct dr_plan *p = plan(&t, DR_POLICY_MATCHING, DR_AUTO, 0);
    cr_expect_eq(p->n_streams, 3);
    cr_expect_eq(p->stream[toy_node(&t, "c1")], p->stream[toy_node(&t, "c2")]);
    cr_expect_eq(p->stream[toy_node(&t, "d1")], p->stream[toy_node(&t, "d2")]);
    /* Nimble: 8 edges in the minimum equivalent graph, 4 matched */
    cr_expect_eq(p->wait.n, 4);
    p = plan(&t, DR_POLICY_MATCHING, 2, 0); /* folded: still a plan */
    cr_expect_eq(p->n_streams, 2);
    cr_expect(!dr_plan_prove(p, DR_NONE, t.arena).found);
    cr_expect(strstr(p->reason, "3 chains on 2 streams"), "%s", p->reason);
    toy_free(&t);
}

Test(streams, sequential_stage_and_caps) {
    struct toy t = toy_create();
    toy_random(&t, (struct toy_size){.data = 2, .augment = 6, .frozen = 6, .trainable = 6});
    for (int32_t cap = 1; cap <= 32; cap++) {
        for (int policy = DR_POLICY_SEQUENTIAL; policy <= DR_POLICY_AUTO; policy++) {
            struct dr_plan *p = plan(&t, (enum dr_policy)policy, cap, DR_AUTO);
            cr_expect(p->n_streams >= 1 && p->n_streams <= (uint32_t)cap);
            cr_expect_neq(p->policy, DR_POLICY_AUTO);
            for (uint32_t s = 0; s < p->n_streams; s++) {
                cr_expect(p->stream_first[s + 1] > p->stream_first[s]);
            }
        }
    }
    struct dr_plan *p = plan(&t, DR_POLICY_SEQUENTIAL, DR_AUTO, DR_AUTO);
    cr_expect_eq(p->n_streams, 1);
    cr_expect_eq(p->wait.n, 0);
    p = plan(&t, DR_POLICY_AUTO, DR_AUTO, DR_AUTO);
    cr_expect_eq(p->policy, DR_POLICY_STAGE);
    cr_expect_eq(p->n_streams, p->n_stages);
    cr_expect(strstr(p->reason, "nothing was measured"));
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        cr_expect_eq(p->stream[v], p->stage[v]);
    }
    toy_free(&t);
}

/* Two streams: the updated part first, then the longer way; equal branches side by side. */
Test(streams, list_by_hand) {
    struct toy t = toy_create();
    uint32_t a = NODE("a", DR_NONE);
    toy_attrs(&t)->flops = 1e6; /* 1 us */
    uint32_t s = NODE("short", a);
    toy_attrs(&t)->flops = 1e6;
    uint32_t l = NODE("long", a);
    toy_attrs(&t)->flops = 9e6;
    uint32_t s2 = NODE("short2", s);
    toy_attrs(&t)->flops = 1e6;
    NODE("join", l, s2);
    struct dr_plan *p = plan(&t, DR_POLICY_LIST, 2, 0);
    cr_expect_eq(p->n_streams, 2);
    cr_expect_eq(p->stream[toy_node(&t, "long")], p->stream[toy_node(&t, "a")]);
    cr_expect_eq(p->stream[toy_node(&t, "join")], p->stream[toy_node(&t, "long")]);
    cr_expect_eq(p->stream[toy_node(&t, "short2")], p->stream[toy_node(&t, "short")]);
    cr_expect_eq(p->order[1], toy_node(&t, "long"));
    cr_expect_eq(p->wait.n, 2);
    /* launches of 1 us each: a, long, join on one stream: 1 + 9 + 0 and 3 launches */
    cr_expect_float_eq(p->predicted_us, 13, 0.01, "%g", p->predicted_us);
    toy_free(&t);
}

/* ---- brute force ---- */
struct dag {
    uint32_t n, edge[16]; /* bit v of edge[u]: u -> v */
    uint32_t reach[16];
};

static void close_dag(struct dag *d) {
    for (uint32_t u = d->n; u-- > 0;) {
        d->reach[u] = d->edge[u];
        for (uint32_t v = u + 1; v < d->n; v++) {
            d->reach[u] |= d->edge[u] >> v & 1 ? d->reach[v] : 0;
        }
    }
}

/* Edges that no longer way implies. */
static struct dag minimum_equivalent(const struct dag *d) {
    struct dag m = *d;
    for (uint32_t u = 0; u < d->n; u++) {
        for (uint32_t v = 0; v < d->n; v++) {
            for (uint32_t w = 0; w < d->n; w++) {
                if (d->edge[u] >> w & 1 && d->reach[w] >> v & 1) {
                    m.edge[u] &= ~(1u << v);
                }
            }
        }
    }
    return m;
}

/* The largest matching of nodes with successors, by trying all. */
static uint32_t best_matching(const struct dag *d, uint32_t u, uint32_t taken) {
    if (u == d->n) {
        return 0;
    }
    uint32_t best = best_matching(d, u + 1, taken);
    for (uint32_t v = 0; v < d->n; v++) {
        if (d->edge[u] >> v & 1 && !(taken >> v & 1)) {
            uint32_t with = 1 + best_matching(d, u + 1, taken | 1u << v);
            best = with > best ? with : best;
        }
    }
    return best;
}

static uint32_t width(const struct dag *d) { /* the largest set without a path inside */
    uint32_t best = 0;
    for (uint32_t set = 0; set < 1u << d->n; set++) {
        bool apart = true;
        for (uint32_t u = 0; u < d->n; u++) {
            apart &= !(set >> u & 1) || (d->reach[u] & set) == 0;
        }
        uint32_t size = (uint32_t)__builtin_popcount(set);
        best = apart && size > best ? size : best;
    }
    return best;
}

/* Nimble's theorems: as many chains as a maximum matching leaves, nodes without a path between them
 * on different streams (hence at least the width), waits = edges - matched. */
Test(streams, matching_is_nimbles, .timeout = 60) {
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct toy t = toy_create();
        t.random = seed * 17 + 3;
        struct dag d = {.n = 2 + toy_next(&t, 8)};
        uint32_t value[16], density = 2 + toy_next(&t, 5);
        for (uint32_t v = 0; v < d.n; v++) {
            uint32_t in[17], k = 0;
            for (uint32_t u = 0; u < v; u++) {
                if (toy_next(&t, density) == 0) {
                    in[k++] = value[u];
                    d.edge[u] |= 1u << v;
                }
            }
            in[k] = DR_NONE;
            value[v] = toy_add(&t, dr_printf(t.arena, "n%u", v), &toy_op, DR_ROLE_FORWARD,
                               DR_UPDATED, 8, in);
        }
        close_dag(&d);
        struct dag m = minimum_equivalent(&d);
        uint32_t matched = best_matching(&m, 0, 0), edges = 0;
        for (uint32_t u = 0; u < d.n; u++) {
            edges += (uint32_t)__builtin_popcount(m.edge[u]);
        }
        struct dr_plan *p = plan(&t, DR_POLICY_MATCHING, DR_AUTO, 0);
        cr_assert_eq(p->n_streams, d.n - matched, "seed %llu", (unsigned long long)seed);
        cr_assert(p->n_streams >= width(&d));
        cr_assert_eq(p->wait.n, edges - matched, "seed %llu: %u waits, %u edges, %u matched",
                     (unsigned long long)seed, p->wait.n, edges, matched);
        for (uint32_t u = 0; u < d.n; u++) {
            for (uint32_t v = u + 1; v < d.n; v++) {
                cr_assert(d.reach[u] >> v & 1 || p->stream[u] != p->stream[v]);
            }
        }
        toy_free(&t);
    }
}

/* Past its limit `matching` says so and takes one stream a stage. */
Test(streams, matching_has_a_limit) {
    struct toy t = toy_create();
    uint32_t x = DR_NONE;
    for (uint32_t v = 0; v < 20001; v++) {
        x = toy_add(&t, dr_printf(t.arena, "n%u", v), &toy_op, DR_ROLE_FORWARD, DR_UPDATED, 8,
                    TOY_INS(x));
    }
    struct dr_plan_wish w = toy_wish(DR_POLICY_MATCHING, DR_AUTO, 0);
    struct dr_plan *p = dr_plan_begin(t.arena, t.g, &w);
    dr_plan_choose(p, &toy_gpu);
    cr_assert(dr_plan_stages(p, &w, &toy_gpu) && dr_plan_streams(p, &w, &toy_gpu));
    cr_expect_eq(p->policy, DR_POLICY_STAGE);
    cr_expect(strstr(p->reason, "20000 nodes"), "%s", p->reason);
    toy_free(&t);
}

/* Results that nobody waits for: the node is on a stream like any other, listed once, and the end
 * of the block (structure, not a wait) joins its stream. */
Test(streams, STR_05_streams_that_nobody_waits_for) {
    struct toy t = toy_create();
    uint32_t x = toy_add(&t, "x", &toy_op, DR_ROLE_DATA, DR_UPSTREAM, 64, NULL);
    uint32_t a = NODE("A", x), loss = NODE("loss", a);
    uint32_t b = NODE("B", x), metric = NODE("metric", b);
    NODE("C", x); /* no reader at all */
    toy_add(&t, "readback", &toy_op, DR_ROLE_READBACK, DR_UPDATED, 0, TOY_INS(loss, metric));
    for (int32_t pipeline = 0; pipeline <= 1; pipeline++) {
        struct dr_plan *p = plan(&t, DR_POLICY_MATCHING, 3, pipeline);
        struct dr_plan *one = plan(&t, DR_POLICY_SEQUENTIAL, DR_AUTO, pipeline);
        cr_expect_eq(p->n_streams, 3);
        cr_expect_eq(one->n_streams, 1);
        uint32_t listed = 0, c = toy_node(&t, "C");
        for (uint32_t i = 0; i < p->stream_first[p->n_streams]; i++) {
            listed += p->stream_node[i] == c;
        }
        cr_expect_eq(p->stream_first[p->n_streams], p->n_nodes);
        cr_expect_eq(listed, 1);
        for (uint32_t w = 0; w < p->wait.n; w++) {
            cr_expect_neq(p->wait.at[w].from, pipeline ? DR_NONE : c, "nothing waits for C");
        }
        /* each step's metric is that step's, and the host's records are never overwritten */
        struct dr_race r = dr_plan_prove(p, DR_NONE, t.arena);
        cr_expect(!r.found, "%s", r.text);
    }
    toy_free(&t);
}
