/* waits: what must happen before what (dependencies), and the fewest waits between streams that
 * see to it.
 *
 * Before: stages, depths, streams and order. After: stream_first/stream_node and the wait list. A
 * dependency needs a wait unless both ends share a stream, it reaches past the block (the barrier),
 * or stream order and the other waits imply it. The last is the transitive reduction of a DAG, so
 * it is unique and all implied waits can go at once. Order, streams and dependencies repeat in
 * each slot: whether one is implied is decided at the block's last slot, where all of them fit. */
#include "scheduler/parts.h"
#include <stdlib.h>
#include <string.h>

static void add(struct dr_waits *w, struct dr_arena *a, uint32_t from, uint32_t to, uint32_t slots,
                uint32_t value, enum dr_why why) {
    if (from == to && slots == 0) {
        return; /* one node reading and writing a state */
    }
    *dr_push(a, &w->at) =
        (struct dr_wait){.from = from, .to = to, .slots = slots, .value = value, .why = why};
}

/* Producer u at slot s - r(u), reader v at slot s - r(v), the producer again in the same buffer
 * for step s + d. */
static void step_value(const struct dr_plan *p, uint32_t x, const uint32_t *user, uint32_t n,
                       struct dr_waits *w, struct dr_arena *a) {
    uint32_t u = p->g->value.at[x].producer;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = user[i];
        if (i > 0 && user[i - 1] == v) {
            continue; /* the same input twice */
        }
        uint32_t ahead = (uint32_t)(p->stage[u] - p->stage[v]);
        add(w, a, u, v, ahead, x, DR_WAIT_DATA);
        add(w, a, v, u, p->buffer[x].depth - ahead, x, DR_WAIT_REUSE);
    }
}

struct access {
    uint32_t node;
    bool write;
};

/* The accesses of a state in program order: its readers and writers merged, a node that does both
 * once, as a writer. */
static uint32_t state_accesses(const uint32_t *user, uint32_t n_users, const uint32_t *writer,
                               uint32_t n_writers, struct access *out) {
    uint32_t n = 0, i = 0, j = 0;
    while (i < n_users || j < n_writers) {
        uint32_t u = i < n_users ? user[i] : DR_NONE, w = j < n_writers ? writer[j] : DR_NONE;
        uint32_t node = u < w ? u : w;
        out[n++] = (struct access){.node = node, .write = w == node};
        while (i < n_users && user[i] == node) {
            i++;
        }
        while (j < n_writers && writer[j] == node) {
            j++;
        }
    }
    return n;
}

/* Two rounds over the accesses of a step: what the first leaves behind is what the next step
 * meets. Each access depends on the last write, and a write on the reads since. */
static void state_value(uint32_t x, const struct access *at, uint32_t n, struct access *reader,
                        struct dr_waits *w, struct dr_arena *a) {
    uint32_t last = DR_NONE, last_round = 0, n_readers = 0;
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t v = at[i].node;
            if (last != DR_NONE && (round == 0 || last_round == 0)) {
                add(w, a, last, v, round - last_round, x, DR_WAIT_STATE);
            }
            if (!at[i].write) {
                reader[n_readers++] = (struct access){.node = v, .write = round == 1};
                continue;
            }
            for (uint32_t k = 0; k < n_readers; k++) { /* `write` holds the reader's round here */
                if (round == 0 || !reader[k].write) {
                    add(w, a, reader[k].node, v, round - reader[k].write, x, DR_WAIT_REUSE);
                }
            }
            n_readers = 0;
            last = v;
            last_round = round;
        }
    }
}

/* Writers of each state, in node order, as CSR. */
static struct dr_users state_writers(const struct dr_graph *g, struct dr_arena *a) {
    struct dr_users w = {.first = DR_NEW_N(a, uint32_t, g->value.n + 2)};
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t v = 0; v < g->node.n; v++) {
            const struct dr_node *n = &g->node.at[v];
            for (uint32_t i = 0; i < n->n_out; i++) {
                if (g->value.at[n->out[i]].kind != DR_STATE) {
                    continue;
                }
                if (fill) {
                    w.user[w.first[n->out[i] + 1]++] = v;
                } else {
                    w.first[n->out[i] + 2]++;
                }
            }
        }
        for (uint32_t x = 0; !fill && x < g->value.n; x++) {
            w.first[x + 2] += w.first[x + 1];
        }
        if (!fill) {
            w.user = DR_NEW_N(a, uint32_t, w.first[g->value.n + 1] + 1);
        }
    }
    return w;
}

struct dr_waits dr_plan_dependencies(const struct dr_plan *p, struct dr_arena *a) {
    const struct dr_graph *g = p->g;
    struct dr_waits w = {0};
    struct dr_arena *scratch = dr_arena_create();
    struct dr_users users = dr_graph_users(g, scratch);
    struct dr_users writers = state_writers(g, scratch);
    struct access *at = DR_NEW_N(scratch, struct access, p->n_nodes + 1);
    struct access *reader = DR_NEW_N(scratch, struct access, 2 * (size_t)p->n_nodes + 1);
    for (uint32_t x = 0; x < g->value.n; x++) {
        const uint32_t *user = users.user + users.first[x];
        uint32_t n_users = users.first[x + 1] - users.first[x];
        uint32_t n_writers = writers.first[x + 1] - writers.first[x];
        if (g->value.at[x].kind == DR_STEP) {
            if (g->value.at[x].producer != DR_NONE) {
                step_value(p, x, user, n_users, &w, a);
            }
        } else if (n_writers > 0) { /* a frozen state orders nothing */
            uint32_t n =
                state_accesses(user, n_users, writers.user + writers.first[x], n_writers, at);
            state_value(x, at, n, reader, &w, a);
        }
    }
    dr_arena_destroy(scratch);
    return w;
}

/* ---- reduction ---- */

static void fill_stream_lists(struct dr_plan *p) {
    p->stream_first = DR_NEW_N(p->arena, uint32_t, p->n_streams + 2);
    p->stream_node = DR_NEW_N(p->arena, uint32_t, p->n_nodes + 1);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        p->stream_first[p->stream[v] + 2]++;
    }
    for (uint32_t s = 0; s < p->n_streams; s++) {
        p->stream_first[s + 2] += p->stream_first[s + 1];
    }
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        p->stream_node[p->stream_first[p->stream[p->order[i]] + 1]++] = p->order[i];
    }
}

/* Of the dependencies of each node, the one to the latest node of each other stream (CSR by `to`):
 * stream order implies the earlier ones. Fills p->waits_before_reduction. */
static struct dr_wait *latest_by_stream(struct dr_plan *p, const struct dr_waits *all,
                                        uint32_t *first, struct dr_arena *a) {
    uint32_t n = p->n_nodes, S = p->n_streams;
    uint32_t *position = DR_NEW_N(a, uint32_t, n + 1), *start = DR_NEW_N(a, uint32_t, n + 2);
    for (uint32_t i = 0; i < n; i++) {
        position[p->order[i]] = i;
    }
    for (uint32_t i = 0; i < all->at.n; i++) {
        start[all->at.at[i].to + 1]++;
    }
    for (uint32_t v = 0; v < n; v++) {
        start[v + 1] += start[v];
    }
    uint32_t *sorted = DR_NEW_N(a, uint32_t, all->at.n + 1);
    for (uint32_t i = all->at.n; i-- > 0;) {
        sorted[--start[all->at.at[i].to + 1]] = i;
    }
    struct dr_wait *kept = DR_NEW_N(a, struct dr_wait, all->at.n + 1);
    uint32_t *best = DR_NEW_N(a, uint32_t, S), n_kept = 0;
    for (uint32_t v = 0; v < n; v++) {
        first[v] = n_kept;
        memset(best, 0xff, S * sizeof *best);
        uint32_t end = v + 2 <= n ? start[v + 2] : all->at.n;
        for (uint32_t i = start[v + 1]; i < end; i++) {
            const struct dr_wait *w = &all->at.at[sorted[i]];
            uint32_t s = p->stream[w->from];
            if (s == p->stream[v] || w->slots >= p->unroll) {
                continue;
            }
            p->waits_before_reduction++;
            struct dr_wait *b = best[s] == DR_NONE ? NULL : &kept[best[s]];
            if (!b) {
                best[s] = n_kept;
                kept[n_kept++] = *w;
            } else if (w->slots < b->slots ||
                       (w->slots == b->slots && position[w->from] > position[b->from])) {
                *b = *w;
            }
        }
    }
    first[n] = n_kept;
    return kept;
}

static int by_from(const void *a, const void *b) {
    const struct dr_wait *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Does another way into v, its stream's previous node or another wait, already follow wait `w`? */
static bool implied(const struct dr_plan *p, const struct dr_clocks *c, const struct dr_wait *wait,
                    const uint32_t *first, uint32_t w, uint32_t previous) {
    uint32_t last = p->unroll - 1, s = p->stream[wait[w].from], v = wait[w].to;
    uint32_t time = dr_clock_time(c, s, last - wait[w].slots, wait[w].from);
    if (previous != DR_NONE) {
        bool wraps = c->index[v] == 0; /* the previous node is the last of the slot before */
        if ((!wraps || last > 0) && dr_clock(c, last - wraps, previous)[s] >= time) {
            return true;
        }
    }
    for (uint32_t o = first[v]; o < first[v + 1]; o++) {
        if (o != w && dr_clock(c, last - wait[o].slots, wait[o].from)[s] >= time) {
            return true;
        }
    }
    return false;
}

void dr_plan_waits(struct dr_plan *p) {
    struct dr_arena *a = dr_arena_create();
    fill_stream_lists(p);
    struct dr_waits all = dr_plan_dependencies(p, a);
    uint32_t *first = DR_NEW_N(a, uint32_t, p->n_nodes + 2);
    p->waits_before_reduction = 0;
    struct dr_wait *wait = latest_by_stream(p, &all, first, a);
    struct dr_clocks c = dr_clocks_make(p, wait, first, p->unroll, a);
    memset(&p->wait, 0, sizeof p->wait);
    p->wait_first = DR_NEW_N(p->arena, uint32_t, p->n_nodes + 2);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        const uint32_t *list = p->stream_node + p->stream_first[p->stream[v]];
        uint32_t previous = c.index[v] ? list[c.index[v] - 1] : list[c.length[p->stream[v]] - 1];
        p->wait_first[v] = p->wait.n;
        for (uint32_t w = first[v]; w < first[v + 1]; w++) {
            if (!implied(p, &c, wait, first, w, previous)) {
                *dr_push(p->arena, &p->wait) = wait[w];
            }
        }
        uint32_t n = p->wait.n - p->wait_first[v];
        if (n > 1) {
            qsort(p->wait.at + p->wait_first[v], n, sizeof *p->wait.at, by_from);
        }
    }
    p->wait_first[p->n_nodes] = p->wait.n;
    dr_arena_destroy(a);
}
