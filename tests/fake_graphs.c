/* See fake_graphs.h. */
#include "tests/fake_graphs.h"
#include <string.h>

static struct dr_cost cost(const struct dr_graph *g, const struct dr_node *n) {
    const struct toy_attrs *a = n->attrs;
    struct dr_cost c = {.flops = a->flops, .bytes = a->bytes};
    for (uint32_t i = 0; i < n->n_in && a->bytes == 0; i++) {
        c.bytes += (double)g->value.at[n->in[i]].bytes;
    }
    return c;
}
static struct dr_choice choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    (void)g;
    (void)cuda;
    return (struct dr_choice){.workspace_bytes = ((const struct toy_attrs *)n->attrs)->workspace,
                              .kernel = "toy"};
}
const struct dr_op toy_op = {
    .name = "toy", .attrs_bytes = sizeof(struct toy_attrs), .cost = cost, .choose = choose};
const struct dr_op toy_pointwise = {.name = "toy_pointwise",
                                    .flags = DR_OP_POINTWISE,
                                    .attrs_bytes = sizeof(struct toy_attrs),
                                    .cost = cost,
                                    .choose = choose};
const struct dr_op toy_draws = {.name = "toy_draws",
                                .flags = DR_OP_POINTWISE | DR_OP_RANDOM,
                                .attrs_bytes = sizeof(struct toy_attrs),
                                .cost = cost,
                                .choose = choose};

const struct dr_device_info toy_cpu = {
    .name = "toy cpu", .threads = 2, .flops_per_s = 1e9, .bytes_per_s = 1e9};
const struct dr_device_info toy_gpu = {.name = "toy gpu",
                                       .cuda = true,
                                       .copies_ahead = true,
                                       .flops_per_s = 1e12,
                                       .bytes_per_s = 1e12,
                                       .launch_us = 1};

struct toy toy_create(void) {
    struct dr_arena *a = dr_arena_create();
    struct toy t = {.arena = a, .random = 1};
    t.g = dr_graph_create(a, dr_diag_create(a), "toy");
    t.g->batch = 4;
    return t;
}

void toy_free(struct toy *t) {
    dr_arena_destroy(t->arena);
}

uint32_t toy_next(struct toy *t, uint32_t below) { /* SplitMix64 */
    uint64_t z = t->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) % below);
}

static void add_out(struct toy *t, struct dr_node *n, uint32_t value) {
    uint32_t *longer = DR_NEW_N(t->arena, uint32_t, n->n_out + 1);
    if (n->n_out) {
        memcpy(longer, n->out, n->n_out * sizeof *longer);
    }
    longer[n->n_out++] = value;
    n->out = longer;
}

uint32_t toy_add(struct toy *t, const char *name, const struct dr_op *op, enum dr_role role,
                 enum dr_frozen_class cls, int64_t bytes, const uint32_t *ins) {
    uint32_t n = 0;
    while (ins && ins[n] != DR_NONE) {
        n++;
    }
    struct dr_mark none = {0};
    uint32_t v = dr_graph_node(t->g, name, op, NULL, ins, n, role, none);
    t->g->node.at[v].cls = cls;
    if (role == DR_ROLE_READBACK) {
        t->g->readback = v;
    }
    if (bytes == 0) {
        return DR_NONE;
    }
    uint32_t x = dr_graph_value(t->g, name, DR_STEP, DR_U8, DR_SHAPE(bytes), none);
    t->g->value.at[x].producer = v;
    add_out(t, &t->g->node.at[v], x);
    return x;
}

uint32_t toy_state(struct toy *t, const char *name, int64_t bytes, bool frozen) {
    uint32_t x = dr_graph_value(t->g, name, DR_STATE, DR_U8, DR_SHAPE(bytes), (struct dr_mark){0});
    t->g->value.at[x].frozen = frozen;
    return x;
}

void toy_writes(struct toy *t, uint32_t state) {
    add_out(t, &t->g->node.at[t->g->node.n - 1], state);
}

struct toy_attrs *toy_attrs(struct toy *t) {
    return t->g->node.at[t->g->node.n - 1].attrs;
}

uint32_t toy_node(const struct toy *t, const char *name) {
    for (uint32_t v = 0; v < t->g->node.n; v++) {
        if (strcmp(t->g->node.at[v].name, name) == 0) {
            return v;
        }
    }
    DR_ASSERT(!"there is no such node");
    return DR_NONE;
}

struct dr_plan_wish toy_wish(enum dr_policy policy, int32_t streams, int32_t pipeline) {
    return (struct dr_plan_wish){
        .policy = policy, .streams = streams, .pipeline = pipeline, .graph = true};
}

struct dr_plan *toy_plan(const struct toy *t, const struct dr_plan_wish *w,
                         const struct dr_device_info *dev) {
    struct dr_plan *p = dr_plan_begin(t->arena, t->g, w);
    dr_plan_choose(p, dev);
    DR_ASSERT(dr_plan_stages(p, w, dev));
    DR_ASSERT(dr_plan_streams(p, w, dev));
    dr_plan_waits(p);
    DR_ASSERT(dr_plan_memory(p, w));
    dr_plan_bound(p, dev);
    return p;
}

/* ---- random training steps ---- */
static const char *numbered(struct toy *t, const char *what, uint32_t i) {
    return dr_printf(t->arena, "%s%u", what, i);
}

static int64_t some_bytes(struct toy *t) {
    return 1 + toy_next(t, toy_next(t, 4) ? 900 : 9000);
}

/* One of the last few values of a list, so that graphs have length as well as width. */
static uint32_t recent(struct toy *t, const uint32_t *list, uint32_t n) {
    uint32_t window = n < 6 ? n : 6;
    return toy_next(t, 8) ? list[n - 1 - toy_next(t, window)] : list[toy_next(t, n)];
}

static void some_workspace(struct toy *t) {
    toy_attrs(t)->workspace = toy_next(t, 3) ? 0 : some_bytes(t);
}

/* Data, augmentation and frozen nodes; fills `at` with their values. */
static uint32_t random_upstream(struct toy *t, struct toy_size size, uint32_t header,
                                uint32_t *at) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < size.data; i++) {
        at[n++] = toy_add(t, numbered(t, "data", i), &toy_op, DR_ROLE_DATA, DR_UPSTREAM,
                          some_bytes(t), NULL);
    }
    for (uint32_t i = 0; i < size.augment + size.frozen; i++) {
        bool augment = i < size.augment;
        uint32_t kind = toy_next(t, 3), in[4] = {recent(t, at, n), DR_NONE, DR_NONE, DR_NONE};
        const struct dr_op *op = kind == 0 ? &toy_op : kind == 1 ? &toy_pointwise : &toy_draws;
        if (toy_next(t, 3) == 0) {
            in[1] = recent(t, at, n);
        }
        if (augment && op == &toy_draws) {
            in[in[1] == DR_NONE ? 1 : 2] = header;
        }
        if (!augment) {
            in[in[1] == DR_NONE ? 1 : 2] = toy_state(t, numbered(t, "frozen.w", i), 64, true);
        }
        at[n++] =
            toy_add(t, numbered(t, augment ? "augment" : "frozen", i), op,
                    augment ? DR_ROLE_AUGMENT : DR_ROLE_FORWARD, DR_UPSTREAM, some_bytes(t), in);
        some_workspace(t);
    }
    return n;
}

struct layer {
    uint32_t weight, x, y, grad;
};

static uint32_t random_layers(struct toy *t, struct toy_size size, uint32_t *at, uint32_t n,
                              struct layer *layer) {
    for (uint32_t i = 0; i < size.trainable; i++) {
        struct layer *l = &layer[i];
        l->weight = i > 0 && toy_next(t, 6) == 0
                        ? layer[toy_next(t, i)].weight
                        : toy_state(t, numbered(t, "w", i), some_bytes(t), false);
        l->x = recent(t, at, n);
        uint32_t also = toy_next(t, 4) ? DR_NONE : recent(t, at, n);
        l->y = at[n++] = toy_add(t, numbered(t, "net", i), &toy_op, DR_ROLE_FORWARD, DR_UPDATED,
                                 some_bytes(t), TOY_INS(l->x, l->weight, also));
        some_workspace(t);
    }
    return n;
}

void toy_random(struct toy *t, struct toy_size size) {
    uint32_t most = size.data + size.augment + size.frozen + 2 * size.trainable + 4;
    uint32_t *at = DR_NEW_N(t->arena, uint32_t, most);
    struct layer *layer = DR_NEW_N(t->arena, struct layer, size.trainable + 1);
    uint32_t header = toy_add(t, "data.header", &toy_op, DR_ROLE_DATA, DR_UPSTREAM, 56, NULL);
    uint32_t n = random_upstream(t, size, header, at);
    n = random_layers(t, size, at, n, layer);
    uint32_t health = toy_state(t, "health", 16, false);
    uint32_t loss = toy_add(t, "loss", &toy_op, DR_ROLE_FORWARD, DR_UPDATED, 4,
                            TOY_INS(at[n - 1], at[0], header));
    toy_add(t, "guard", &toy_op, DR_ROLE_UPDATE, DR_UPDATED, 0, TOY_INS(loss, header, health));
    toy_writes(t, health);
    uint32_t above = loss;
    for (uint32_t i = size.trainable; i-- > 0;) {
        struct layer *l = &layer[i];
        l->grad = toy_add(t, numbered(t, "wgrad", i), &toy_op, DR_ROLE_BACKWARD, DR_UPDATED,
                          t->g->value.at[l->weight].bytes, TOY_INS(l->x, above));
        some_workspace(t);
        above = toy_add(t, numbered(t, "dgrad", i), &toy_op, DR_ROLE_BACKWARD, DR_UPDATED,
                        t->g->value.at[l->x].bytes, TOY_INS(l->weight, above, l->y));
        if (toy_next(t, 2)) {
            toy_add(t, numbered(t, "sgd", i), &toy_op, DR_ROLE_UPDATE, DR_UPDATED, 0,
                    TOY_INS(l->weight, l->grad, health));
            toy_writes(t, l->weight);
            l->grad = DR_NONE;
        }
    }
    for (uint32_t i = 0; i < size.trainable; i++) {
        if (layer[i].grad != DR_NONE) {
            toy_add(t, numbered(t, "sgd", i), &toy_op, DR_ROLE_UPDATE, DR_UPDATED, 0,
                    TOY_INS(layer[i].weight, layer[i].grad, health));
            toy_writes(t, layer[i].weight);
        }
    }
    toy_add(t, "readback", &toy_op, DR_ROLE_READBACK, DR_UPDATED, 0, TOY_INS(loss, health, header));
}
