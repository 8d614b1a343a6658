/* stages: how many steps ahead each node runs (retiming, DESIGN section 5), and from that how many
 * buffers each value needs and how many slots a block has.
 *
 * Before: costs known. After: stage[] with stage(producer) >= stage(user) on every step edge, 0 for
 * every node that touches what a step changes; buffer[].depth a power of two; unroll the largest.
 *
 * Home stages come from roles: frozen forward 1, augmentation 2, copies to the device 3, empty
 * stages closed up, capped by `pipeline`. Pointwise nodes that draw nothing may then sink to a
 * lower stage: each boundary is a minimum cut over the values that cross it, a value with several
 * users behind the boundary counted once. Summed over boundaries this is distance x bytes
 * (Leiserson and Saxe, "Retiming synchronous circuitry", with registers of different widths). */
#include "scheduler/mincut.h"
#include "scheduler/parts.h"

struct retiming {
    const struct dr_plan *p;
    const struct dr_graph *g;
    struct dr_arena *scratch;
    struct dr_users users;
    bool *movable;  /* upstream and free to run ahead */
    bool *floating; /* may sink below its home */
    uint8_t *home, *stage;
    uint32_t top;  /* highest stage */
    uint32_t base; /* lowest stage that upstream nodes have: 0 where nothing is updated */
};

/* Values that some node of the graph writes in place: M. */
static bool *changed_states(const struct dr_graph *g, struct dr_arena *a) {
    bool *changed = DR_NEW_N(a, bool, g->value.n + 1);
    for (uint32_t v = 0; v < g->node.n; v++) {
        const struct dr_node *n = &g->node.at[v];
        for (uint32_t i = 0; i < n->n_out; i++) {
            changed[n->out[i]] |= g->value.at[n->out[i]].kind == DR_STATE;
        }
    }
    return changed;
}

static void find_movable(struct retiming *r) {
    const struct dr_graph *g = r->g;
    const bool *changed = changed_states(g, r->scratch);
    for (uint32_t v = 0; v < g->node.n; v++) {
        const struct dr_node *n = &g->node.at[v];
        bool can =
            n->cls == DR_UPSTREAM && n->role != DR_ROLE_UPDATE && n->role != DR_ROLE_READBACK;
        for (uint32_t i = 0; can && i < n->n_in; i++) {
            uint32_t producer = g->value.at[n->in[i]].producer;
            can = !changed[n->in[i]] && (producer == DR_NONE || r->movable[producer]);
        }
        for (uint32_t i = 0; can && i < n->n_out; i++) {
            can = !changed[n->out[i]];
        }
        r->movable[v] = can;
        r->floating[v] = can && n->role != DR_ROLE_DATA && (n->op->flags & DR_OP_POINTWISE) &&
                         !(n->op->flags & DR_OP_RANDOM);
    }
}

/* The highest stage among the users of a node's outputs; -1 where there are none. */
static int highest_user(const struct retiming *r, uint32_t v, const uint8_t *stage) {
    const struct dr_node *n = &r->g->node.at[v];
    int highest = -1;
    for (uint32_t i = 0; i < n->n_out; i++) {
        uint32_t out = n->out[i];
        for (uint32_t u = r->users.first[out]; u < r->users.first[out + 1]; u++) {
            int s = stage[r->users.user[u]];
            highest = s > highest ? s : highest;
        }
    }
    return highest;
}

/* Copies that need no engine of their own run in the stage of their earliest user. */
static void join_copies(struct retiming *r, uint8_t *stage) {
    for (uint32_t v = 0; v < r->g->node.n; v++) {
        if (r->g->node.at[v].role == DR_ROLE_DATA && r->movable[v]) {
            int highest = highest_user(r, v, stage);
            stage[v] = highest < 0 ? stage[v] : (uint8_t)highest;
        }
    }
}

static void find_homes(struct retiming *r, bool copies_ahead) {
    const struct dr_graph *g = r->g;
    for (uint32_t v = 0; v < g->node.n; v++) {
        const struct dr_node *n = &g->node.at[v];
        if (!r->movable[v]) {
            continue;
        }
        uint8_t home = n->role == DR_ROLE_DATA ? 3 : n->role == DR_ROLE_AUGMENT ? 2 : 1;
        for (uint32_t i = 0; i < n->n_in; i++) { /* never ahead of what it reads */
            uint32_t u = g->value.at[n->in[i]].producer;
            if (u != DR_NONE && r->home[u] < home) {
                home = r->home[u];
            }
        }
        r->home[v] = home;
    }
    if (!copies_ahead) {
        join_copies(r, r->home);
    }
}

/* Renumbers stages so that none up to the highest is empty; `zero` says whether stage 0 counts. */
static void close_up(struct retiming *r, uint8_t *stage, bool zero) {
    bool used[DR_MAX_STAGE + 1] = {false};
    for (uint32_t v = 0; v < r->g->node.n; v++) {
        used[stage[v]] = true;
    }
    used[0] = zero;
    uint8_t to[DR_MAX_STAGE + 1] = {0}, next = 0;
    for (uint32_t s = 0; s <= DR_MAX_STAGE; s++) {
        to[s] = next;
        next = (uint8_t)(next + used[s]);
    }
    r->top = next ? next - 1u : 0;
    for (uint32_t v = 0; v < r->g->node.n; v++) {
        stage[v] = to[stage[v]];
    }
}

/* Is there work that must stay in its step? A readback alone does not hold stage 0: where nothing
 * is updated (evaluation, inference), the forward part is the step itself. */
static bool has_updated_part(const struct retiming *r) {
    for (uint32_t v = 0; v < r->g->node.n; v++) {
        if (!r->movable[v] && r->g->node.at[v].role != DR_ROLE_READBACK) {
            return true;
        }
    }
    return false;
}

/* The nodes at or above boundary k as a minimum cut. Anchored nodes and those that the boundary
 * above took are merged with the source or the sink. On a tie a node stays at home. */
static void cut_boundary(struct retiming *r, uint32_t k, bool *above) {
    const struct dr_graph *g = r->g;
    struct dr_arena *a = dr_arena_create();
    uint32_t *id = DR_NEW_N(a, uint32_t, g->node.n + 1);
    struct dr_mincut *m = dr_mincut_create(a);
    bool any = false;
    for (uint32_t v = 0; v < g->node.n; v++) {
        bool may = r->floating[v] && r->home[v] >= k && !above[v];
        id[v] = may ? dr_mincut_node(m) : above[v] || r->home[v] >= k ? DR_MINCUT_S : DR_MINCUT_T;
        any |= may;
    }
    for (uint32_t x = 0; any && x < g->value.n; x++) {
        uint32_t u = g->value.at[x].producer, n = r->users.first[x + 1] - r->users.first[x];
        const uint32_t *user = r->users.user + r->users.first[x];
        bool touches = false;
        for (uint32_t i = 0; u != DR_NONE && i < n; i++) {
            touches |= id[u] != id[user[i]];
        }
        if (!touches) {
            continue;
        }
        uint32_t crossing = dr_mincut_node(m);
        /* no device holds 2^40 bytes; the clamp keeps sums in range */
        int64_t bytes = g->value.at[x].bytes;
        dr_mincut_edge(m, id[u], crossing, bytes < (int64_t)1 << 40 ? bytes : (int64_t)1 << 40);
        for (uint32_t i = 0; i < n; i++) {
            dr_mincut_edge(m, crossing, id[user[i]], DR_MINCUT_INF);
            dr_mincut_edge(m, id[user[i]], id[u], DR_MINCUT_INF); /* readers are not ahead */
        }
    }
    if (any) {
        dr_mincut_solve(m);
    }
    for (uint32_t v = 0; v < g->node.n; v++) {
        above[v] = id[v] == DR_MINCUT_S || (id[v] != DR_MINCUT_T && dr_mincut_above(m, id[v]));
    }
    dr_arena_destroy(a);
}

static void sink_pointwise(struct retiming *r) {
    bool *above = DR_NEW_N(r->scratch, bool, r->g->node.n + 1);
    for (uint32_t v = 0; v < r->g->node.n; v++) {
        r->stage[v] = r->movable[v] && r->home[v] > r->base ? (uint8_t)r->base : r->home[v];
    }
    for (uint32_t k = r->top; k > r->base; k--) {
        cut_boundary(r, k, above);
        for (uint32_t v = 0; v < r->g->node.n; v++) {
            if (above[v] && r->stage[v] < k) {
                r->stage[v] = (uint8_t)k;
            }
        }
    }
}

static uint32_t round_up_pow2(uint32_t x) {
    uint32_t p = 1;
    while (p < x) {
        p *= 2;
    }
    return p;
}

static void find_depths(struct dr_plan *p, const struct dr_users *users) {
    const struct dr_graph *g = p->g;
    p->buffer = DR_NEW_N(p->arena, struct dr_buffer, g->value.n + 1);
    p->unroll = 1;
    for (uint32_t x = 0; x < g->value.n; x++) {
        uint32_t u = g->value.at[x].producer, furthest = 0;
        for (uint32_t i = users->first[x]; u != DR_NONE && i < users->first[x + 1]; i++) {
            uint32_t user = users->user[i];
            DR_ASSERT(p->stage[u] >= p->stage[user]);
            uint32_t distance = (uint32_t)(p->stage[u] - p->stage[user]);
            furthest = distance > furthest ? distance : furthest;
        }
        p->buffer[x].depth = round_up_pow2(1 + furthest);
        p->unroll = p->buffer[x].depth > p->unroll ? p->buffer[x].depth : p->unroll;
    }
}

bool dr_plan_stages(struct dr_plan *p, const struct dr_plan_wish *w,
                    const struct dr_device_info *dev) {
    struct dr_arena *a = dr_arena_create();
    uint32_t n = p->n_nodes;
    p->stage = DR_NEW_N(p->arena, uint8_t, n + 1);
    struct retiming r = {.p = p,
                         .g = p->g,
                         .scratch = a,
                         .users = dr_graph_users(p->g, a),
                         .movable = DR_NEW_N(a, bool, n + 1),
                         .floating = DR_NEW_N(a, bool, n + 1),
                         .home = DR_NEW_N(a, uint8_t, n + 1),
                         .stage = p->stage};
    find_movable(&r);
    find_homes(&r, dev->copies_ahead);
    r.base = has_updated_part(&r);
    close_up(&r, r.home, r.base == 1);
    uint32_t cap = w->pipeline == DR_AUTO ? DR_MAX_STAGE : (uint32_t)w->pipeline;
    for (uint32_t v = 0; v < n; v++) {
        r.home[v] = r.home[v] > cap ? (uint8_t)cap : r.home[v];
    }
    r.top = r.top > cap ? cap : r.top;
    sink_pointwise(&r);
    if (!dev->copies_ahead) {
        join_copies(&r, p->stage);
    }
    close_up(&r, p->stage, true);
    p->n_stages = r.top + 1;
    find_depths(p, &r.users);

    /* Two blocks of batches, plus how far the copies of one step lie apart. */
    uint32_t low = DR_MAX_STAGE, high = 0;
    for (uint32_t v = 0; v < n; v++) {
        if (p->g->node.at[v].role == DR_ROLE_DATA) {
            low = p->stage[v] < low ? p->stage[v] : low;
            high = p->stage[v] > high ? p->stage[v] : high;
        }
    }
    p->ring_slots = 2 * p->unroll + (high > low ? high - low : 0);
    dr_arena_destroy(a);
    return true;
}
