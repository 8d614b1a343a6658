/* Stages, depths and the cut: worked by hand, and against every assignment of small graphs. */
#include "tests/fake_graphs.h"
#include <criterion/criterion.h>

static struct dr_plan *stages_of(const struct toy *t, int32_t pipeline,
                                 const struct dr_device_info *dev) {
    struct dr_plan_wish w = toy_wish(DR_POLICY_STAGE, DR_AUTO, pipeline);
    struct dr_plan *p = dr_plan_begin(t->arena, t->g, &w);
    dr_plan_choose(p, dev);
    cr_assert(dr_plan_stages(p, &w, dev));
    return p;
}

static uint32_t stage(const struct toy *t, const struct dr_plan *p, const char *node) {
    return p->stage[toy_node(t, node)];
}

static uint32_t depth(const struct toy *t, const struct dr_plan *p, const char *value) {
    return p->buffer[dr_map_get(t->g->value_by_name, value)].depth;
}

struct want {
    const char *name;
    uint32_t stage, depth;
};

static void expect(const struct toy *t, const struct dr_plan *p, const struct want *w, uint32_t n,
                   uint32_t unroll) {
    for (uint32_t i = 0; i < n; i++) {
        cr_expect_eq(stage(t, p, w[i].name), w[i].stage, "%s in stage %u, not %u", w[i].name,
                     stage(t, p, w[i].name), w[i].stage);
        cr_expect_eq(depth(t, p, w[i].name), w[i].depth, "%s in %u buffers, not %u", w[i].name,
                     depth(t, p, w[i].name), w[i].depth);
    }
    cr_expect_eq(p->unroll, unroll);
}
#define EXPECT(t, p, unroll, ...)                                                                  \
    expect(t, p, (const struct want[]){__VA_ARGS__},                                               \
           sizeof((const struct want[]){__VA_ARGS__}) / sizeof(struct want), unroll)

#define DATA(name, bytes) toy_add(&t, name, &toy_op, DR_ROLE_DATA, DR_UPSTREAM, bytes, NULL)
#define AUGMENT(name, op, bytes, ...)                                                              \
    toy_add(&t, name, &op, DR_ROLE_AUGMENT, DR_UPSTREAM, bytes, TOY_INS(__VA_ARGS__))
#define FROZEN(name, op, bytes, ...)                                                               \
    toy_add(&t, name, &op, DR_ROLE_FORWARD, DR_UPSTREAM, bytes, TOY_INS(__VA_ARGS__))
#define TRAINED(name, bytes, ...)                                                                  \
    toy_add(&t, name, &toy_op, DR_ROLE_FORWARD, DR_UPDATED, bytes, TOY_INS(__VA_ARGS__))

/* u8 image -> crop -> flip (draws) -> normalize to f32, four times the bytes -> encoder -> head.
 * The cut between augmentation and encoder is cheapest above normalize. */
static struct toy pipeline(bool encoder) {
    struct toy t = toy_create();
    uint32_t header = DATA("header", 56), image = DATA("image", 100), label = DATA("label", 16);
    uint32_t crop = AUGMENT("crop", toy_op, 80, image, header);
    uint32_t flip = AUGMENT("flip", toy_draws, 80, crop, header);
    uint32_t norm = AUGMENT("norm", toy_pointwise, 320, flip);
    uint32_t e = encoder ? FROZEN("encoder", toy_op, 640, norm) : norm;
    uint32_t head = TRAINED("head", 40, e, toy_state(&t, "w", 64, false));
    toy_writes(&t, dr_map_get(t.g->value_by_name, "w"));
    TRAINED("loss", 4, head, label, header);
    return t;
}

Test(stages, by_role_and_cut) {
    struct toy t = pipeline(true);
    EXPECT(&t, stages_of(&t, DR_AUTO, &toy_gpu), 4, {"image", 3, 2}, {"label", 3, 4},
           {"header", 3, 4}, {"crop", 2, 1}, {"flip", 2, 2}, {"norm", 1, 1}, {"encoder", 1, 2},
           {"head", 0, 1}, {"loss", 0, 1});
    /* without a copy engine: copies in the stage of their earliest user */
    EXPECT(&t, stages_of(&t, DR_AUTO, &toy_cpu), 4, {"image", 2, 1}, {"label", 0, 1},
           {"header", 2, 4}, {"crop", 2, 1}, {"flip", 2, 2}, {"norm", 1, 1}, {"encoder", 1, 2},
           {"head", 0, 1});
    toy_free(&t);
    /* no encoder: augmentation is the stage above training, and nothing sinks into that */
    t = pipeline(false);
    EXPECT(&t, stages_of(&t, DR_AUTO, &toy_gpu), 4, {"image", 2, 2}, {"header", 2, 4},
           {"crop", 1, 1}, {"norm", 1, 2}, {"head", 0, 1});
    EXPECT(&t, stages_of(&t, DR_AUTO, &toy_cpu), 2, {"image", 1, 1}, {"header", 1, 2},
           {"crop", 1, 1}, {"norm", 1, 2}, {"head", 0, 1});
    toy_free(&t);
}

Test(stages, pipeline_caps) {
    struct toy t = pipeline(true);
    EXPECT(&t, stages_of(&t, 0, &toy_gpu), 1, {"image", 0, 1}, {"crop", 0, 1}, {"encoder", 0, 1},
           {"header", 0, 1});
    EXPECT(&t, stages_of(&t, 1, &toy_gpu), 2, {"image", 1, 1}, {"label", 1, 2}, {"crop", 1, 1},
           {"norm", 1, 1}, {"encoder", 1, 2});
    EXPECT(&t, stages_of(&t, 2, &toy_gpu), 4, {"image", 2, 1}, {"label", 2, 4}, {"crop", 2, 1},
           {"flip", 2, 2}, {"norm", 1, 1}, {"encoder", 1, 2});
    toy_free(&t);
}

/* A value with two readers below the cut is kept once: 60 bytes cross, not 120, so that `point`
 * stays above rather than letting the 100 bytes of `crop` cross. With equal bytes it stays too. */
Test(stages, a_cut_counts_each_value_once) {
    static const struct {
        int64_t bytes;
        uint32_t stage;
    } rows[] = {{60, 2}, {100, 2}, {101, 1}, {400, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct toy t = toy_create();
        uint32_t image = DATA("image", 100), crop = AUGMENT("crop", toy_op, 100, image);
        uint32_t point = AUGMENT("point", toy_pointwise, rows[i].bytes, crop);
        uint32_t a = FROZEN("a", toy_op, 10, point), b = FROZEN("b", toy_op, 10, point);
        TRAINED("head", 4, a, b, toy_state(&t, "w", 64, false));
        toy_writes(&t, dr_map_get(t.g->value_by_name, "w"));
        struct dr_plan *p = stages_of(&t, DR_AUTO, &toy_cpu);
        cr_expect_eq(stage(&t, p, "point"), rows[i].stage, "%lld bytes", (long long)rows[i].bytes);
        toy_free(&t);
    }
}

/* Whoever reads or writes what the step changes stays, and all below it, whatever it is called. */
Test(stages, nothing_that_touches_m_moves) {
    struct toy t = toy_create();
    uint32_t image = DATA("image", 10), w = toy_state(&t, "w", 64, false);
    uint32_t reads = FROZEN("reads", toy_op, 10, image, w); /* wrongly marked upstream */
    FROZEN("below", toy_op, 10, reads);
    toy_add(&t, "sgd", &toy_op, DR_ROLE_UPDATE, DR_UPDATED, 0, TOY_INS(w));
    toy_writes(&t, w);
    EXPECT(&t, stages_of(&t, DR_AUTO, &toy_gpu), 2, {"image", 1, 2}, {"reads", 0, 1},
           {"below", 0, 1});
    toy_free(&t);
}

/* Evaluation changes nothing: the forward part is the step itself; the readback alone does not
 * push it a step ahead. */
Test(stages, evaluation_has_the_forward_part_in_its_step) {
    struct toy t = toy_create();
    uint32_t header = DATA("header", 56), image = DATA("image", 100);
    uint32_t norm = AUGMENT("norm", toy_pointwise, 400, image);
    uint32_t crop = AUGMENT("crop", toy_op, 300, norm);
    uint32_t scale = AUGMENT("scale", toy_pointwise, 500, crop); /* sinks beside the net */
    uint32_t net = FROZEN("net", toy_op, 50, scale, toy_state(&t, "w", 64, true));
    uint32_t loss = FROZEN("loss", toy_op, 16, net, header);
    toy_add(&t, "readback", &toy_op, DR_ROLE_READBACK, DR_UPSTREAM, 0, TOY_INS(loss, header));
    EXPECT(&t, stages_of(&t, DR_AUTO, &toy_gpu), 4, {"image", 2, 2}, {"header", 2, 4},
           {"norm", 1, 1}, {"crop", 1, 2}, {"scale", 0, 1}, {"net", 0, 1});
    EXPECT(&t, stages_of(&t, DR_AUTO, &toy_cpu), 2, {"image", 1, 1}, {"header", 0, 1},
           {"norm", 1, 1}, {"crop", 1, 2}, {"scale", 0, 1}, {"net", 0, 1});
    toy_free(&t);
}

/* ---- against every assignment ---- */

static bool movable(const struct dr_node *n) {
    return (n->op->flags & DR_OP_POINTWISE) && !(n->op->flags & DR_OP_RANDOM) &&
           n->role == DR_ROLE_AUGMENT;
}

/* Sum over values of bytes times how far the lowest user is below the producer; -1 where a reader
 * would be ahead. */
static int64_t distance_bytes(const struct toy *t, const uint8_t *at) {
    const struct dr_graph *g = t->g;
    int64_t sum = 0;
    for (uint32_t x = 0; x < g->value.n; x++) {
        uint32_t u = g->value.at[x].producer;
        int furthest = 0;
        for (uint32_t v = 0; u != DR_NONE && v < g->node.n; v++) {
            for (uint32_t i = 0; i < g->node.at[v].n_in; i++) {
                if (g->node.at[v].in[i] != x) {
                    continue;
                }
                int d = at[u] - at[v];
                if (d < 0) {
                    return -1;
                }
                furthest = d > furthest ? d : furthest;
            }
        }
        sum += furthest * g->value.at[x].bytes;
    }
    return sum;
}

/* The least over all ways to put movable nodes at their home stage or below, at least 1. */
static int64_t least(const struct toy *t, const uint8_t *home, uint8_t *at, uint32_t v) {
    if (v == t->g->node.n) {
        return distance_bytes(t, at);
    }
    int64_t best = -1;
    for (int s = home[v]; s >= (movable(&t->g->node.at[v]) ? 1 : home[v]); s--) {
        at[v] = (uint8_t)s;
        int64_t sum = least(t, home, at, v + 1);
        best = sum >= 0 && (best < 0 || sum < best) ? sum : best;
    }
    return best;
}

Test(stages, cuts_are_the_least_of_all, .timeout = 60) {
    uint32_t sunk = 0;
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct toy t = toy_create();
        t.random = seed * 31 + 5;
        uint32_t at[16], n = 0, moving = 0;
        uint8_t home[32], found[32];
        at[n++] = DATA("image", 1 + toy_next(&t, 400));
        at[n++] = DATA("mask", 1 + toy_next(&t, 400));
        for (uint32_t i = 0; i < 9; i++) {
            uint32_t a = at[toy_next(&t, n)], b = toy_next(&t, 2) ? at[toy_next(&t, n)] : DR_NONE;
            const char *name = dr_printf(t.arena, "n%u", i);
            int64_t bytes = 1 + toy_next(&t, 400);
            uint32_t kind = moving < 6 ? toy_next(&t, 3) : 1; /* 6: at most 3^6 assignments */
            moving += kind == 0;
            at[n++] = kind == 0   ? AUGMENT(name, toy_pointwise, bytes, a, b)
                      : kind == 1 ? FROZEN(name, toy_op, bytes, a, b)
                                  : AUGMENT(name, toy_op, bytes, a, b);
        }
        TRAINED("head", 4, at[n - 1], at[toy_next(&t, n)], toy_state(&t, "w", 64, false));
        toy_writes(&t, dr_map_get(t.g->value_by_name, "w"));
        struct dr_plan *p = stages_of(&t, DR_AUTO, &toy_gpu);
        /* homes by the rule: a node is never ahead of what it reads */
        bool has_frozen = false, has_augment = false;
        for (uint32_t v = 0; v < t.g->node.n; v++) {
            const struct dr_node *node = &t.g->node.at[v];
            home[v] = node->role == DR_ROLE_DATA ? 3 : node->role == DR_ROLE_AUGMENT ? 2 : 1;
            for (uint32_t i = 0; i < node->n_in; i++) {
                uint32_t u = t.g->value.at[node->in[i]].producer;
                home[v] = u != DR_NONE && home[u] < home[v] ? home[u] : home[v];
            }
            home[v] = node->cls == DR_UPDATED ? 0 : home[v];
            has_frozen |= home[v] == 1;
            has_augment |= home[v] == 2 && !movable(node); /* holds the stage */
        }
        if (!has_frozen || !has_augment) {
            toy_free(&t);
            continue;
        }
        for (uint32_t v = 0; v < t.g->node.n; v++) {
            found[v] = p->stage[v];
            cr_assert(found[v] <= home[v] && (home[v] == 0 || found[v] >= 1));
            cr_assert(found[v] == home[v] || movable(&t.g->node.at[v]));
            sunk += found[v] < home[v];
        }
        uint8_t try[32];
        cr_assert_eq(distance_bytes(&t, found), least(&t, home, try, 0), "seed %llu",
                     (unsigned long long)seed);
        toy_free(&t);
    }
    cr_assert(sunk > 100);
}
