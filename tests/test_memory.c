/* The slab: worked by hand, and the three sums against plain definitions. */
#include "tests/fake_graphs.h"
#include "scheduler/parts.h"
#include <criterion/criterion.h>
#include <string.h>

#define NODE(name, bytes, ...)                                                                     \
    toy_add(&t, name, &toy_op, DR_ROLE_FORWARD, DR_UPDATED, bytes, TOY_INS(__VA_ARGS__))

static struct dr_plan *plan(const struct toy *t, enum dr_policy policy, int32_t pipeline) {
    struct dr_plan_wish w = toy_wish(policy, DR_AUTO, pipeline);
    return toy_plan(t, &w, &toy_gpu);
}

static struct dr_buffer *buffer(const struct toy *t, struct dr_plan *p, const char *name) {
    return &p->buffer[dr_map_get(t->g->value_by_name, name)];
}

/* A chain needs two buffers in turns; the largest two neighbours are the bound. */
Test(memory, chain) {
    struct toy t = toy_create();
    static const int64_t bytes[] = {1000, 200, 3000, 700, 50}; /* 1024 256 3072 768 256 */
    uint32_t x = DR_NONE;
    for (uint32_t i = 0; i < 5; i++) {
        x = NODE(dr_printf(t.arena, "n%u", i), bytes[i], x);
    }
    struct dr_plan *p = plan(&t, DR_POLICY_SEQUENTIAL, 0);
    cr_expect_eq(p->no_reuse_bytes, 1024 + 256 + 3072 + 768 + 256);
    cr_expect_eq(p->lower_bound_bytes, 3072 + 768);
    cr_expect_eq(p->slab_bytes, 3072 + 768);
    cr_expect(buffer(&t, p, "n0")->shared && buffer(&t, p, "n2")->shared);
    toy_free(&t);
}

/* Branches on different streams share nothing; after the join they may. */
Test(memory, branches) {
    struct toy t = toy_create();
    uint32_t a = NODE("a", 256, DR_NONE), b = NODE("b", 512, a), c = NODE("c", 1024, a);
    uint32_t d = NODE("d", 256, b, c);
    NODE("e", 1536, d);
    struct dr_plan *p = plan(&t, DR_POLICY_MATCHING, 0);
    cr_expect_eq(p->n_streams, 2);
    cr_expect_eq(p->lower_bound_bytes, 256 + 1536); /* d and e; b, c, d are as many */
    cr_expect_eq(p->slab_bytes, 256 + 1536);        /* e over b and c, a over d */
    p = plan(&t, DR_POLICY_SEQUENTIAL, 0);
    cr_expect_eq(p->lower_bound_bytes, 256 + 1536);
    cr_expect_eq(p->no_reuse_bytes, 256 + 512 + 1024 + 256 + 1536);
    cr_expect(!dr_plan_prove(p, DR_NONE, t.arena).found);
    toy_free(&t);
}

/* Values with several buffers and states never share; a workspace does, but not with its node's
 * own operands. */
Test(memory, states_buffers_and_workspaces) {
    struct toy t = toy_create();
    uint32_t x = toy_add(&t, "x", &toy_op, DR_ROLE_DATA, DR_UPSTREAM, 100, NULL);
    uint32_t w = toy_state(&t, "w", 1, false), f = toy_state(&t, "f", 300, true);
    uint32_t a = NODE("a", 256, x, w, f);
    toy_attrs(&t)->workspace = 600;
    uint32_t b = NODE("b", 256, a);
    toy_add(&t, "sgd", &toy_op, DR_ROLE_UPDATE, DR_UPDATED, 0, TOY_INS(w, b));
    toy_writes(&t, w);
    struct dr_plan *p = plan(&t, DR_POLICY_SEQUENTIAL, DR_AUTO);
    cr_expect_eq(buffer(&t, p, "x")->depth, 2);
    cr_expect_eq(buffer(&t, p, "x")->stride, 256);
    cr_expect_eq(buffer(&t, p, "w")->offset, 0);
    cr_expect_eq(buffer(&t, p, "f")->offset, 256);
    cr_expect_eq(p->state_bytes, 256 + 512);
    /* a and its workspace of 768; b lies over the workspace, since sgd is done before the next a */
    cr_expect_eq(p->slab_bytes, 768 + 512 + 256 + 768);
    cr_expect_eq(p->lower_bound_bytes, p->slab_bytes);
    cr_expect_eq(p->no_reuse_bytes, p->slab_bytes + 256);
    cr_expect(!buffer(&t, p, "x")->shared && !buffer(&t, p, "a")->shared);
    cr_expect(buffer(&t, p, "b")->shared);
    /* in phase 1 the data node fills buffer 0: it works on step t + 1 */
    uint32_t v = toy_node(&t, "x");
    cr_expect_eq(p->address[p->operand_first[v]], buffer(&t, p, "x")->offset + 256);
    cr_expect_eq(p->address[p->n_operands + p->operand_first[v]], buffer(&t, p, "x")->offset);
    toy_free(&t);
}

/* ---- against plain definitions ---- */

/* before[u * n + v]: u happens before v in one slot. */
static bool *happens_before(const struct dr_plan *p, struct dr_arena *a) {
    uint32_t n = p->n_nodes;
    bool *r = DR_NEW_N(a, bool, (size_t)n *n);
    for (uint32_t s = 0; s < p->n_streams; s++) {
        for (uint32_t i = p->stream_first[s]; i < p->stream_first[s + 1]; i++) {
            for (uint32_t j = i + 1; j < p->stream_first[s + 1]; j++) {
                r[(size_t)p->stream_node[i] * n + p->stream_node[j]] = true;
            }
        }
    }
    for (uint32_t w = 0; w < p->wait.n; w++) {
        if (p->wait.at[w].slots == 0) {
            r[(size_t)p->wait.at[w].from * n + p->wait.at[w].to] = true;
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t j = 0; r[(size_t)i * n + k] && j < n; j++) {
                r[(size_t)i * n + j] |= r[(size_t)k * n + j];
            }
        }
    }
    for (uint32_t v = 0; v < n; v++) {
        r[(size_t)v * n + v] = true;
    }
    return r;
}

static uint64_t bound_by_definition(const struct toy *t, const struct dr_plan *p) {
    const struct dr_graph *g = t->g;
    uint32_t n = p->n_nodes;
    bool *hb = happens_before(p, t->arena);
    uint64_t fixed = p->state_bytes, most = 0;
    for (uint32_t x = 0; x < g->value.n; x++) {
        if (g->value.at[x].kind == DR_STEP && p->buffer[x].depth > 1) {
            fixed += p->buffer[x].depth * p->buffer[x].stride;
        }
    }
    for (uint32_t v = 0; v < n; v++) {
        uint64_t now = dr_align_up((uint64_t)p->choice[v].workspace_bytes);
        for (uint32_t x = 0; x < g->value.n; x++) {
            uint32_t u = g->value.at[x].producer;
            if (u == DR_NONE || p->buffer[x].depth > 1 || !hb[(size_t)u * n + v]) {
                continue;
            }
            bool used = u == v;
            for (uint32_t k = 0; k < n; k++) {
                for (uint32_t i = 0; i < g->node.at[k].n_in; i++) {
                    used |= g->node.at[k].in[i] == x && hb[(size_t)v * n + k];
                }
            }
            now += used ? p->buffer[x].stride : 0;
        }
        most = now > most ? now : most;
    }
    return fixed + most;
}

/* bound <= planned <= without reuse; the bound by its definition; what says it shares does. */
Test(memory, sums, .timeout = 120) {
    double planned = 0, bound = 0, none = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct toy t = toy_create();
        t.random = seed * 577 + 11;
        toy_random(&t, (struct toy_size){.data = 1 + toy_next(&t, 3),
                                         .augment = toy_next(&t, 5),
                                         .frozen = toy_next(&t, 9),
                                         .trainable = 1 + toy_next(&t, 9)});
        struct dr_plan_wish w = toy_wish((enum dr_policy)toy_next(&t, 4),
                                         (int32_t)(1 + toy_next(&t, 8)), (int32_t)toy_next(&t, 4));
        struct dr_plan *p = toy_plan(&t, &w, &toy_gpu);
        cr_assert(p->lower_bound_bytes <= p->slab_bytes && p->slab_bytes <= p->no_reuse_bytes);
        cr_assert_eq(p->lower_bound_bytes, bound_by_definition(&t, p), "seed %llu",
                     (unsigned long long)seed);
        planned += (double)p->slab_bytes;
        bound += (double)p->lower_bound_bytes;
        none += (double)p->no_reuse_bytes;
        toy_free(&t);
    }
    cr_log_info("planned is %.2f of the bound, %.2f of no reuse", planned / bound, planned / none);
    cr_assert(planned < none);
}

/* A second plan keeps the first one's states where they are, and its own where no step of either
 * plan writes. */
Test(memory, states_of_another_plan) {
    struct toy t = toy_create(), e = toy_create();
    uint32_t w = toy_state(&t, "w", 300, false), m = toy_state(&t, "w:sgd.m", 300, false);
    uint32_t b = toy_state(&t, "b", 10, false);
    NODE("y", 64, w, m, b);
    struct dr_plan *p = plan(&t, DR_POLICY_SEQUENTIAL, 0);
    uint32_t eb = toy_state(&e, "b", 10, true), own = toy_state(&e, "own", 20, true);
    uint32_t ew = toy_state(&e, "w", 300, true);
    toy_add(&e, "y", &toy_op, DR_ROLE_FORWARD, DR_UPSTREAM, 64, TOY_INS(eb, ew, own));
    struct dr_plan_wish wish = toy_wish(DR_POLICY_SEQUENTIAL, DR_AUTO, 0);
    wish.states_of = p;
    wish.states_graph = t.g;
    struct dr_plan *q = toy_plan(&e, &wish, &toy_gpu);
    cr_expect_eq(buffer(&e, q, "w")->offset, buffer(&t, p, "w")->offset);
    cr_expect_eq(buffer(&e, q, "b")->offset, buffer(&t, p, "b")->offset);
    cr_expect_eq(p->slab_bytes, p->state_bytes + 256);
    cr_expect_eq(buffer(&e, q, "own")->offset, p->slab_bytes);
    cr_expect_eq(q->slab_bytes, p->slab_bytes + 256);
    cr_expect_eq(q->state_bytes, p->state_bytes);
    cr_expect_eq(buffer(&e, q, "y")->offset, q->state_bytes);
    cr_expect(!dr_plan_prove(q, DR_NONE, e.arena).found);
    toy_free(&t);
    toy_free(&e);
}

/* Batch 4: x, y and z are [4, 1000] bytes, so that 3 of a chain's values need 2 buffers. */
Test(memory, too_large_names_what_would_fit) {
    struct toy t = toy_create();
    struct dr_mark none = {0};
    uint32_t w = toy_state(&t, "w", 2560, false), x = DR_NONE;
    for (uint32_t i = 0; i < 3; i++) {
        const char *name = dr_printf(t.arena, "n%u", i);
        toy_add(&t, name, &toy_op, DR_ROLE_FORWARD, DR_UPDATED, 0, TOY_INS(w, x));
        x = dr_graph_value(t.g, name, DR_STEP, DR_U8, DR_SHAPE(4, 1024), none);
        t.g->value.at[x].producer = i;
        toy_writes(&t, x);
    }
    static const struct {
        uint64_t memory;
        int64_t fits;
    } rows[] = {{2560 + 8192, 4}, {2560 + 8191, 3}, {2560 + 4096, 2}, {2560 + 2048, 1}, {4000, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dr_device_info dev = toy_cpu;
        dev.memory_bytes = rows[i].memory;
        struct dr_plan_wish wish = toy_wish(DR_POLICY_AUTO, DR_AUTO, DR_AUTO);
        bool too_large = false;
        t.g->diag = dr_diag_create(t.arena);
        struct dr_plan *p = dr_plan_make(t.arena, t.g, &wish, &dev, &too_large);
        const char *text = dr_diag_text(t.g->diag);
        cr_expect_eq(too_large, rows[i].fits < 4);
        cr_expect_eq(p == NULL, too_large);
        if (too_large && rows[i].fits > 0) {
            const char *want =
                dr_printf(t.arena, "largest batch that fits is %lld", (long long)rows[i].fits);
            cr_expect(strstr(text, want), "%s", text);
            cr_expect(strstr(text, "'n0' u8 [4, 1024]"), "%s", text);
        } else if (too_large) {
            cr_expect(strstr(text, "not even a batch of 1"), "%s", text);
        }
    }
    toy_free(&t);
}

/* Sizes whose sum passes 64 bits are an error, not a small number. */
Test(memory, impossible_sums) {
    struct toy t = toy_create();
    for (uint32_t i = 0; i < 40; i++) {
        NODE(dr_printf(t.arena, "n%u", i), INT64_C(1) << 60, DR_NONE);
    }
    struct dr_plan_wish wish = toy_wish(DR_POLICY_AUTO, DR_AUTO, DR_AUTO);
    bool too_large = false;
    cr_expect_null(dr_plan_make(t.arena, t.g, &wish, &toy_cpu, &too_large));
    cr_expect(too_large);
    cr_expect_eq(dr_diag_errors(t.g->diag), 1);
    toy_free(&t);
}
