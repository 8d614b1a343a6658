/* memory: one slab, planned offsets.
 *
 * Before: waits, so that happens-before inside a block is known. After: buffer[],
 * workspace_offset[], address[] and the three sums. The slab holds the states, then values with
 * several buffers, then the rest; a plan beside another one puts the states that only it has behind
 * both plans' values, since they are kept while the other runs. The rest may share: value A may lie
 * where B lies if every use of A happens before B is written in the same slot and, where a block
 * has several slots, every use of B happens before A is written in the next. Workspaces are values
 * that only their node uses. Placement is greedy by size, each in the tightest gap between what it
 * may not share with (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
 * Inference", 2020; XNNPACK's and TFLite's planners).
 *
 * All sums count states and round every buffer up to DR_ALIGN. */
#include "scheduler/parts.h"
#include <stdlib.h>
#include <string.h>

struct last_use { /* the last use of an item on one stream */
    uint32_t stream, index;
};

struct item { /* a value of depth 1 or a workspace */
    uint64_t bytes, offset;
    uint32_t id;                  /* value, or n_values + node for a workspace */
    uint32_t producer;            /* node */
    uint32_t first_pos, last_pos; /* in the plan's order */
    uint32_t use_first, use_n;    /* into planner.use */
    bool shared;
};

/* Placed items by offset, in chunks: an insertion moves one chunk, and a search passes over chunks
 * that lie under what it has seen. */
#define CHUNK 128
struct placed {
    uint64_t offset, end;
    uint32_t first_pos, last_pos; /* of the item: most pairs are told apart by these alone */
    uint32_t item;
};
struct chunk {
    struct chunk *next;
    uint64_t reach; /* the furthest end */
    uint32_t n;
    struct placed at[CHUNK];
};
struct placed_list {
    struct chunk *first;
};

struct planner {
    const struct dr_plan *p;
    struct dr_arena *scratch;
    struct dr_users users;
    struct dr_clocks clocks; /* of two slots; of one where a block has one */
    uint32_t *position;
    DR_VEC(struct item) item;
    DR_VEC(struct last_use) use;
    struct placed_list placed;
};

/* Keeps the last use of the item being built (its uses start at `from`) on each stream. */
static void note_use(struct planner *m, uint32_t from, uint32_t node) {
    uint32_t s = m->p->stream[node], index = m->clocks.index[node];
    for (uint32_t i = from; i < m->use.n; i++) {
        if (m->use.at[i].stream == s) {
            m->use.at[i].index = index > m->use.at[i].index ? index : m->use.at[i].index;
            return;
        }
    }
    *dr_push(m->scratch, &m->use) = (struct last_use){.stream = s, .index = index};
}

static void add_item(struct planner *m, uint32_t id, uint64_t bytes, uint32_t producer,
                     const uint32_t *user, uint32_t n_users) {
    uint32_t position = m->position[producer];
    struct item it = {.bytes = bytes,
                      .id = id,
                      .producer = producer,
                      .first_pos = position,
                      .last_pos = position,
                      .use_first = m->use.n};
    note_use(m, it.use_first, producer);
    for (uint32_t i = 0; i < n_users; i++) {
        note_use(m, it.use_first, user[i]);
        it.last_pos = m->position[user[i]] > it.last_pos ? m->position[user[i]] : it.last_pos;
    }
    it.use_n = m->use.n - it.use_first;
    *dr_push(m->scratch, &m->item) = it;
}

/* Does every use of `a`, `slots` slots ago, happen before `b` is written? */
static bool used_before(const struct planner *m, const struct item *a, const struct item *b,
                        uint32_t slots) {
    const uint32_t *clock = dr_clock(&m->clocks, slots, b->producer);
    for (uint32_t i = 0; i < a->use_n; i++) {
        const struct last_use *u = &m->use.at[a->use_first + i];
        if (clock[u->stream] < u->index + 1) {
            return false;
        }
    }
    return true;
}

/* Of two items whose positions do not overlap. */
static bool may_share(const struct planner *m, const struct item *a, const struct item *b) {
    const struct item *first = a->last_pos < b->first_pos ? a : b, *second = first == a ? b : a;
    return used_before(m, first, second, 0) &&
           (m->p->unroll == 1 || used_before(m, second, first, 1));
}

/* ---- placement ---- */
static int by_size(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    if (x->first_pos != y->first_pos) {
        return x->first_pos < y->first_pos ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static void insert(struct planner *m, const struct item *it, uint32_t index) {
    struct chunk *c = m->placed.first;
    if (!c) {
        c = m->placed.first = DR_NEW(m->scratch, struct chunk);
    }
    while (c->next && c->next->at[0].offset <= it->offset) {
        c = c->next;
    }
    if (c->n == CHUNK) {
        struct chunk *half = DR_NEW(m->scratch, struct chunk);
        half->next = c->next;
        c->next = half;
        half->n = c->n -= CHUNK / 2;
        memcpy(half->at, c->at + CHUNK / 2, sizeof *c->at * (CHUNK / 2));
        c->reach = 0;
        for (uint32_t i = 0; i < CHUNK / 2; i++) {
            c->reach = c->at[i].end > c->reach ? c->at[i].end : c->reach;
            half->reach = half->at[i].end > half->reach ? half->at[i].end : half->reach;
        }
        c = half->at[0].offset <= it->offset ? half : c;
    }
    uint32_t at = c->n++;
    for (; at > 0 && c->at[at - 1].offset > it->offset; at--) {
        c->at[at] = c->at[at - 1];
    }
    uint64_t end = it->offset + it->bytes;
    c->at[at] = (struct placed){it->offset, end, it->first_pos, it->last_pos, index};
    c->reach = end > c->reach ? end : c->reach;
}

/* Puts an item into the smallest gap that holds it, or behind all that it may not share with. */
static void place(struct planner *m, uint32_t index) {
    struct item *it = &m->item.at[index];
    uint64_t end = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
    for (const struct chunk *c = m->placed.first; c && best_gap > it->bytes; c = c->next) {
        for (uint32_t i = 0; c->reach > end && i < c->n; i++) {
            const struct placed *o = &c->at[i];
            bool apart = o->last_pos < it->first_pos || it->last_pos < o->first_pos;
            if (o->end <= end || (apart && may_share(m, it, &m->item.at[o->item]))) {
                continue;
            }
            if (o->offset > end && o->offset - end >= it->bytes && o->offset - end < best_gap) {
                best_gap = o->offset - end;
                best = end;
            }
            end = o->end;
        }
    }
    it->offset = best == UINT64_MAX ? end : best;
    insert(m, it, index);
}

/* Places all items from offset 0; returns how far they reach. */
static uint64_t place_all(struct planner *m) {
    uint64_t reach = 0;
    if (m->item.n > 1) {
        qsort(m->item.at, m->item.n, sizeof *m->item.at, by_size);
    }
    m->placed.first = NULL;
    for (uint32_t i = 0; i < m->item.n; i++) {
        place(m, i);
        uint64_t end = m->item.at[i].offset + m->item.at[i].bytes;
        reach = end > reach ? end : reach;
    }
    return reach;
}

/* In the order of offsets an item overlaps an earlier one iff it begins before the furthest end so
 * far, and a later one iff the next begins before its own end. */
static void mark_shared(struct planner *m) {
    uint64_t reach = 0;
    struct item *previous = NULL;
    for (const struct chunk *c = m->placed.first; c; c = c->next) {
        for (uint32_t i = 0; i < c->n; i++) {
            struct item *it = &m->item.at[c->at[i].item];
            if (previous && it->offset < previous->offset + previous->bytes) {
                previous->shared = true;
            }
            it->shared = it->offset < reach;
            reach = c->at[i].end > reach ? c->at[i].end : reach;
            previous = it;
        }
    }
}

/* ---- what is to be placed ---- */

/* The bytes of a value or workspace for `batch` samples: those with the batch as first dimension
 * scale with it. */
static uint64_t value_bytes(const struct dr_graph *g, uint32_t x, int64_t batch) {
    const struct dr_value *v = &g->value.at[x];
    uint64_t bytes = (uint64_t)v->bytes;
    bool scales = v->meaning == DR_HEADER || (v->shape.rank > 0 && v->shape.dim[0] == g->batch);
    if (batch < g->batch && v->kind == DR_STEP && scales) {
        bytes = (uint64_t)((double)bytes * (double)batch / (double)g->batch);
    }
    return dr_align_up(bytes);
}

static uint64_t workspace_bytes(const struct dr_plan *p, uint32_t v, int64_t batch) {
    uint64_t bytes = (uint64_t)p->choice[v].workspace_bytes;
    if (batch < p->g->batch) {
        bytes = (uint64_t)((double)bytes * (double)batch / (double)p->g->batch);
    }
    return dr_align_up(bytes);
}

static void planner_start(struct planner *m, const struct dr_plan *p, struct dr_arena *a) {
    *m = (struct planner){.p = p, .scratch = a, .users = dr_graph_users(p->g, a)};
    m->clocks = dr_clocks_make(p, p->wait.at, p->wait_first, p->unroll > 1 ? 2 : 1, a);
    m->position = DR_NEW_N(a, uint32_t, p->n_nodes + 1);
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        m->position[p->order[i]] = i;
    }
}

/* Makes the items; returns the bytes of values with several buffers, which never share. */
static uint64_t gather(struct planner *m, int64_t batch) {
    const struct dr_plan *p = m->p;
    const struct dr_graph *g = p->g;
    uint64_t deep = 0;
    m->item.n = m->use.n = 0;
    for (uint32_t x = 0; x < g->value.n; x++) {
        if (g->value.at[x].kind != DR_STEP || g->value.at[x].producer == DR_NONE) {
            continue;
        }
        uint64_t bytes = value_bytes(g, x, batch);
        if (p->buffer[x].depth > 1) {
            deep += bytes * p->buffer[x].depth;
        } else {
            add_item(m, x, bytes, g->value.at[x].producer, m->users.user + m->users.first[x],
                     m->users.first[x + 1] - m->users.first[x]);
        }
    }
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        uint64_t bytes = workspace_bytes(p, v, batch);
        if (bytes > 0) {
            add_item(m, g->value.n + v, bytes, v, NULL, 0);
        }
    }
    return deep;
}

/* ---- the lower bound ---- */

/* For each node the first entry of each stream's list that happens at or after it in its slot. */
static uint32_t *clocks_after(const struct planner *m) {
    const struct dr_plan *p = m->p;
    uint32_t S = p->n_streams;
    uint32_t *after = DR_NEW_N(m->scratch, uint32_t, (size_t)p->n_nodes * S + 1);
    memset(after, 0xff, (size_t)p->n_nodes * S * sizeof *after);
    for (uint32_t i = p->n_nodes; i-- > 0;) {
        uint32_t v = p->order[i], s = p->stream[v], index = m->clocks.index[v];
        uint32_t *row = after + (size_t)v * S;
        if (index + 1 < m->clocks.length[s]) {
            const uint32_t *next =
                after + (size_t)p->stream_node[p->stream_first[s] + index + 1] * S;
            for (uint32_t k = 0; k < S; k++) {
                row[k] = next[k] < row[k] ? next[k] : row[k];
            }
        }
        row[s] = index;
        for (uint32_t w = p->wait_first[v]; w < p->wait_first[v + 1]; w++) {
            if (p->wait.at[w].slots == 0) {
                uint32_t *from = after + (size_t)p->wait.at[w].from * S;
                for (uint32_t k = 0; k < S; k++) {
                    from[k] = row[k] < from[k] ? row[k] : from[k];
                }
            }
        }
    }
    return after;
}

/* Items by stream and index of their producer, and of each of their last uses, as lists. */
struct events {
    uint32_t *first, *item; /* CSR over stream_first[s] + index */
};

static struct events events_of(const struct planner *m, bool uses) {
    const struct dr_plan *p = m->p;
    struct events e = {.first = DR_NEW_N(m->scratch, uint32_t, p->n_nodes + 3),
                       .item = DR_NEW_N(m->scratch, uint32_t, m->use.n + m->item.n + 1)};
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t i = 0; i < m->item.n; i++) {
            const struct item *it = &m->item.at[i];
            for (uint32_t k = 0; k < (uses ? it->use_n : 1); k++) {
                const struct last_use *u = &m->use.at[it->use_first + k];
                uint32_t at =
                    uses ? p->stream_first[u->stream] + u->index
                         : p->stream_first[p->stream[it->producer]] + m->clocks.index[it->producer];
                if (fill) {
                    e.item[e.first[at + 1]++] = i;
                } else {
                    e.first[at + 2]++;
                }
            }
        }
        for (uint32_t at = 0; !fill && at < p->n_nodes; at++) {
            e.first[at + 2] += e.first[at + 1];
        }
    }
    return e;
}

/* The most bytes of items that must be there at once at some node of stream q: produced at or
 * before it and used at or after it. Along a stream both clocks only grow, so that each item comes
 * in once and goes out once. */
static uint64_t most_at_stream(const struct planner *m, uint32_t q, const uint32_t *after,
                               const struct events *made, const struct events *used, uint32_t *open,
                               bool *in) {
    const struct dr_plan *p = m->p;
    uint32_t S = p->n_streams, come[DR_MAX_STREAMS] = {0}, gone[DR_MAX_STREAMS] = {0};
    uint64_t now = 0, most = 0;
    for (uint32_t i = 0; i < m->item.n; i++) {
        open[i] = m->item.at[i].use_n;
        in[i] = false;
    }
    for (uint32_t i = p->stream_first[q]; i < p->stream_first[q + 1]; i++) {
        uint32_t v = p->stream_node[i];
        const uint32_t *clock = dr_clock(&m->clocks, 0, v), *until = after + (size_t)v * S;
        for (uint32_t s = 0; s < S; s++) {
            uint32_t base = p->stream_first[s], length = m->clocks.length[s];
            for (; gone[s] < until[s] && gone[s] < length; gone[s]++) {
                uint32_t at = base + gone[s];
                for (uint32_t k = used->first[at]; k < used->first[at + 1]; k++) {
                    uint32_t x = used->item[k];
                    if (--open[x] == 0 && in[x]) {
                        now -= m->item.at[x].bytes;
                    }
                }
            }
        }
        for (uint32_t s = 0; s < S; s++) {
            for (; come[s] < clock[s]; come[s]++) {
                uint32_t at = p->stream_first[s] + come[s];
                for (uint32_t k = made->first[at]; k < made->first[at + 1]; k++) {
                    uint32_t x = made->item[k];
                    in[x] = true;
                    now += open[x] > 0 ? m->item.at[x].bytes : 0;
                }
            }
        }
        most = now > most ? now : most;
    }
    return most;
}

static uint64_t lower_bound(const struct planner *m) {
    uint32_t *after = clocks_after(m);
    struct events made = events_of(m, false), used = events_of(m, true);
    uint32_t *open = DR_NEW_N(m->scratch, uint32_t, m->item.n + 1);
    bool *in = DR_NEW_N(m->scratch, bool, m->item.n + 1);
    uint64_t most = 0;
    for (uint32_t q = 0; q < m->p->n_streams; q++) {
        uint64_t here = most_at_stream(m, q, after, &made, &used, open, in);
        most = here > most ? here : most;
    }
    return most;
}

/* ---- states ---- */
static bool is_borrowed(const struct dr_plan_wish *w, const struct dr_value *v, uint32_t *theirs) {
    *theirs = w->states_of ? dr_map_get(w->states_graph->value_by_name, v->name) : DR_NONE;
    return *theirs != DR_NONE;
}

/* Those of another plan stay where that has them. Returns the bytes of the others. */
static uint64_t place_borrowed(struct dr_plan *p, const struct dr_plan_wish *w) {
    const struct dr_graph *g = p->g;
    uint64_t own = 0;
    for (uint32_t x = 0; x < g->value.n; x++) {
        const struct dr_value *v = &g->value.at[x];
        uint32_t theirs;
        if (v->kind != DR_STATE) {
            continue;
        }
        p->buffer[x].stride = dr_align_up((uint64_t)v->bytes);
        if (is_borrowed(w, v, &theirs)) {
            DR_ASSERT(w->states_graph->value.at[theirs].bytes == v->bytes);
            p->buffer[x].offset = w->states_of->buffer[theirs].offset;
        } else {
            own += p->buffer[x].stride;
        }
    }
    return own;
}

static void place_own(struct dr_plan *p, const struct dr_plan_wish *w, uint64_t at) {
    for (uint32_t x = 0; x < p->g->value.n; x++) {
        uint32_t theirs;
        if (p->g->value.at[x].kind == DR_STATE && !is_borrowed(w, &p->g->value.at[x], &theirs)) {
            p->buffer[x].offset = at;
            at += p->buffer[x].stride;
        }
    }
}

void dr_plan_addresses(struct dr_plan *p) {
    const struct dr_graph *g = p->g;
    p->operand_first = DR_NEW_N(p->arena, uint32_t, p->n_nodes + 1);
    p->n_operands = 0;
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        p->operand_first[v] = p->n_operands;
        p->n_operands += g->node.at[v].n_in + g->node.at[v].n_out;
    }
    p->operand_first[p->n_nodes] = p->n_operands;
    p->address = DR_NEW_N(p->arena, uint64_t, (size_t)p->unroll * p->n_operands + 1);
    for (uint32_t phase = 0; phase < p->unroll; phase++) {
        uint64_t *to = p->address + (size_t)phase * p->n_operands;
        for (uint32_t v = 0; v < p->n_nodes; v++) {
            const struct dr_node *n = &g->node.at[v];
            for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
                const struct dr_buffer *b =
                    &p->buffer[i < n->n_in ? n->in[i] : n->out[i - n->n_in]];
                *to++ = b->offset + b->stride * ((phase + p->stage[v]) % b->depth);
            }
        }
    }
}

/* Would the sums fit 64 bits whatever the placement? */
static bool sums_fit(const struct dr_plan *p) {
    double sum = 0;
    for (uint32_t x = 0; x < p->g->value.n; x++) {
        sum += ((double)p->g->value.at[x].bytes + DR_ALIGN) * p->buffer[x].depth;
    }
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        sum += (double)p->choice[v].workspace_bytes + DR_ALIGN;
    }
    return sum < 4e18;
}

bool dr_plan_memory(struct dr_plan *p, const struct dr_plan_wish *w) {
    const struct dr_graph *g = p->g;
    if (!sums_fit(p)) {
        return dr_error(g->diag, (struct dr_mark){0},
                        "the buffers of this model need more than "
                        "2^61 bytes");
    }
    struct dr_arena *a = dr_arena_create();
    struct planner m;
    planner_start(&m, p, a);
    const uint64_t own = place_borrowed(p, w);
    p->state_bytes = w->states_of ? w->states_of->state_bytes : own;
    uint64_t at = p->state_bytes, single = 0;
    uint64_t deep = gather(&m, g->batch);
    for (uint32_t x = 0; x < g->value.n; x++) {
        if (g->value.at[x].kind == DR_STEP) {
            p->buffer[x].stride = value_bytes(g, x, g->batch);
            if (p->buffer[x].depth > 1) {
                p->buffer[x].offset = at;
                at += p->buffer[x].stride * p->buffer[x].depth;
            }
        }
    }
    DR_ASSERT(at == p->state_bytes + deep);
    p->lower_bound_bytes = at + lower_bound(&m);
    p->slab_bytes = at + place_all(&m);
    mark_shared(&m);
    p->workspace_offset = DR_NEW_N(p->arena, uint64_t, p->n_nodes + 1);
    for (uint32_t i = 0; i < m.item.n; i++) {
        const struct item *it = &m.item.at[i];
        single += it->bytes;
        if (it->id < g->value.n) {
            p->buffer[it->id].offset = at + it->offset;
            p->buffer[it->id].shared = it->shared;
        } else {
            p->workspace_offset[it->id - g->value.n] = at + it->offset;
        }
    }
    p->no_reuse_bytes = at + single;
    if (!w->states_of) {
        place_own(p, w, 0);
    } else if (own > 0) { /* where no step of either plan writes */
        const uint64_t theirs = w->states_of->slab_bytes;
        place_own(p, w, theirs > p->slab_bytes ? theirs : p->slab_bytes);
        p->slab_bytes = own + (theirs > p->slab_bytes ? theirs : p->slab_bytes);
        p->lower_bound_bytes += own;
        p->no_reuse_bytes += own;
    }
    dr_plan_addresses(p);
    dr_arena_destroy(a);
    return true;
}

int64_t dr_plan_largest_batch(const struct dr_plan *p, uint64_t limit) {
    struct dr_arena *a = dr_arena_create();
    struct planner m;
    planner_start(&m, p, a);
    int64_t fits = 0, too_many = p->g->batch;
    while (too_many - fits > 1) {
        int64_t batch = fits + (too_many - fits) / 2;
        uint64_t bytes = p->state_bytes + gather(&m, batch);
        bytes += place_all(&m);
        if (bytes <= limit) {
            fits = batch;
        } else {
            too_many = batch;
        }
    }
    dr_arena_destroy(a);
    return fits;
}
