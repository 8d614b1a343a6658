/* The policy `matching` (Kwon, Yu, Jeong, Chun: "Nimble: Lightweight and Parallel GPU Task
 * Scheduling for Deep Learning", NeurIPS 2020, section 4.2): in the minimum equivalent graph G',
 * match each node with at most one successor. Chains of matched nodes become streams. Any two
 * nodes without a path between them are then on different streams (all concurrency is kept), and
 * the waits left are the edges of G' less the matched ones, the fewest for which that holds. */
#include "scheduler/streams.h"
#include <string.h>

struct reduced { /* successors in the minimum equivalent graph, CSR */
    uint32_t *first, *next;
};

/* Reachability as one bitset a node, filled backwards. A predecessor edge u -> v is redundant iff
 * some other predecessor of v is reachable from u; looking at predecessors from the latest back,
 * iff v's set of ancestors gathered so far has u. */
static struct reduced reduce(const struct dr_slot_dag *dag, uint32_t n, struct dr_arena *a) {
    size_t words = ((size_t)n + 63) / 64;
    uint64_t *ancestors = DR_NEW_N(a, uint64_t, words * n + 1);
    bool *keep = DR_NEW_N(a, bool, dag->first[n] + 1);
    struct reduced r = {.first = DR_NEW_N(a, uint32_t, n + 2)};
    for (uint32_t v = 0; v < n; v++) {
        uint64_t *mine = ancestors + words * v;
        for (uint32_t i = dag->first[v + 1]; i-- > dag->first[v];) { /* sorted by id */
            uint32_t u = dag->pred[i];
            if (mine[u / 64] >> (u % 64) & 1) {
                continue;
            }
            keep[i] = true;
            r.first[u + 2]++;
            const uint64_t *theirs = ancestors + words * u;
            for (size_t w = 0; w <= u / 64; w++) {
                mine[w] |= theirs[w];
            }
            mine[u / 64] |= UINT64_C(1) << (u % 64);
        }
    }
    for (uint32_t v = 0; v < n; v++) {
        r.first[v + 2] += r.first[v + 1];
    }
    r.next = DR_NEW_N(a, uint32_t, r.first[n + 1] + 1);
    for (uint32_t v = 0; v < n; v++) {
        for (uint32_t i = dag->first[v]; i < dag->first[v + 1]; i++) {
            if (keep[i]) {
                r.next[r.first[dag->pred[i] + 1]++] = v;
            }
        }
    }
    return r;
}

/* ---- Hopcroft and Karp, without recursion ---- */
struct matching {
    const struct reduced *g;
    uint32_t n;
    uint32_t *to;   /* matched successor of a node on the left */
    uint32_t *from; /* matched predecessor of a node on the right */
    uint32_t *level, *at, *stack, *queue;
};

static bool find_levels(struct matching *m) {
    uint32_t head = 0, tail = 0;
    bool found = false;
    for (uint32_t u = 0; u < m->n; u++) {
        m->level[u] = DR_NONE;
        m->at[u] = m->g->first[u];
        if (m->to[u] == DR_NONE) {
            m->level[u] = 0;
            m->queue[tail++] = u;
        }
    }
    while (head < tail) {
        uint32_t u = m->queue[head++];
        for (uint32_t i = m->g->first[u]; i < m->g->first[u + 1]; i++) {
            uint32_t w = m->from[m->g->next[i]];
            if (w == DR_NONE) {
                found = true;
            } else if (m->level[w] == DR_NONE) {
                m->level[w] = m->level[u] + 1;
                m->queue[tail++] = w;
            }
        }
    }
    return found;
}

/* Depth first along levels from a free left node; flips the path found. */
static void grow(struct matching *m, uint32_t root) {
    uint32_t depth = 0;
    m->stack[depth++] = root;
    while (depth > 0) {
        uint32_t u = m->stack[depth - 1];
        if (m->at[u] == m->g->first[u + 1]) { /* dead end: its parent goes on */
            m->level[u] = DR_NONE;
            if (--depth > 0) {
                m->at[m->stack[depth - 1]]++;
            }
            continue;
        }
        uint32_t w = m->from[m->g->next[m->at[u]]];
        if (w == DR_NONE) {
            while (depth > 0) {
                uint32_t x = m->stack[--depth], y = m->g->next[m->at[x]++];
                m->from[y] = x;
                m->to[x] = y;
            }
        } else if (m->level[w] == m->level[u] + 1) {
            m->stack[depth++] = w;
        } else {
            m->at[u]++;
        }
    }
}

static void match(struct matching *m) {
    for (uint32_t u = 0; u < m->n; u++) { /* a greedy start is most of it */
        for (uint32_t i = m->g->first[u]; m->to[u] == DR_NONE && i < m->g->first[u + 1]; i++) {
            if (m->from[m->g->next[i]] == DR_NONE) {
                m->to[u] = m->g->next[i];
                m->from[m->to[u]] = u;
            }
        }
    }
    while (find_levels(m)) {
        for (uint32_t u = 0; u < m->n; u++) {
            if (m->to[u] == DR_NONE) {
                grow(m, u);
            }
        }
    }
}

/* Chains in the order of their heads; the first `cap` get streams, each further one goes to the
 * stream whose last node is earliest. */
static uint32_t fold(struct dr_plan *p, const struct matching *m, uint32_t cap) {
    uint32_t last[DR_MAX_STREAMS] = {0}, chains = 0;
    for (uint32_t head = 0; head < m->n; head++) {
        if (m->from[head] != DR_NONE) {
            continue;
        }
        uint32_t s = chains;
        if (chains >= cap) {
            s = 0;
            for (uint32_t k = 1; k < cap; k++) {
                s = last[k] < last[s] ? k : s;
            }
        }
        chains++;
        for (uint32_t v = head; v != DR_NONE; v = m->to[v]) {
            p->stream[v] = (uint8_t)s;
            last[s] = v > last[s] ? v : last[s];
        }
    }
    return chains;
}

uint32_t dr_streams_matching(struct dr_plan *p, const struct dr_slot_dag *dag, uint32_t cap,
                             struct dr_arena *a) {
    uint32_t n = p->n_nodes;
    struct reduced g = reduce(dag, n, a);
    struct matching m = {.g = &g,
                         .n = n,
                         .to = DR_NEW_N(a, uint32_t, n + 1),
                         .from = DR_NEW_N(a, uint32_t, n + 1),
                         .level = DR_NEW_N(a, uint32_t, n + 1),
                         .at = DR_NEW_N(a, uint32_t, n + 1),
                         .stack = DR_NEW_N(a, uint32_t, n + 1),
                         .queue = DR_NEW_N(a, uint32_t, n + 1)};
    memset(m.to, 0xff, n * sizeof *m.to);
    memset(m.from, 0xff, n * sizeof *m.from);
    match(&m);
    return fold(p, &m, cap);
}
