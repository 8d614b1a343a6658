/* Dinic's algorithm, without recursion: networks are as deep as graphs are long. */
#include "scheduler/mincut.h"

struct arc {
    uint32_t to, next; /* next arc out of the same node */
    int64_t left;      /* residual capacity; the reverse arc is the index with bit 0 flipped */
};

struct dr_mincut {
    struct dr_arena *arena;
    uint32_t n;
    DR_VEC(uint32_t) first; /* by node, DR_NONE: no arc */
    DR_VEC(struct arc) arc;
    uint32_t *level, *at, *queue, *path;
    bool *reaches; /* can still push to the sink */
};

struct dr_mincut *dr_mincut_create(struct dr_arena *a) {
    struct dr_mincut *m = DR_NEW(a, struct dr_mincut);
    m->arena = a;
    dr_mincut_node(m);
    dr_mincut_node(m);
    return m;
}

uint32_t dr_mincut_node(struct dr_mincut *m) {
    *dr_push(m->arena, &m->first) = DR_NONE;
    return m->n++;
}

static void add_arc(struct dr_mincut *m, uint32_t from, uint32_t to, int64_t capacity) {
    struct arc *arc = dr_push(m->arena, &m->arc);
    *arc = (struct arc){.to = to, .next = m->first.at[from], .left = capacity};
    m->first.at[from] = m->arc.n - 1;
}

void dr_mincut_edge(struct dr_mincut *m, uint32_t from, uint32_t to, int64_t capacity) {
    if (from == to || to == DR_MINCUT_S || from == DR_MINCUT_T) {
        return;
    }
    add_arc(m, from, to, capacity);
    add_arc(m, to, from, 0);
}

static bool find_levels(struct dr_mincut *m) {
    for (uint32_t v = 0; v < m->n; v++) {
        m->level[v] = DR_NONE;
        m->at[v] = m->first.at[v];
    }
    uint32_t head = 0, tail = 0;
    m->level[DR_MINCUT_S] = 0;
    m->queue[tail++] = DR_MINCUT_S;
    while (head < tail) {
        uint32_t v = m->queue[head++];
        for (uint32_t e = m->first.at[v]; e != DR_NONE; e = m->arc.at[e].next) {
            uint32_t to = m->arc.at[e].to;
            if (m->arc.at[e].left > 0 && m->level[to] == DR_NONE) {
                m->level[to] = m->level[v] + 1;
                m->queue[tail++] = to;
            }
        }
    }
    return m->level[DR_MINCUT_T] != DR_NONE;
}

/* Pushes along the path of `length` arcs from the source to the sink; returns how much, and in
 * *keep the arcs that stay usable at its front. */
static int64_t augment(struct dr_mincut *m, uint32_t length, uint32_t *keep) {
    int64_t flow = DR_MINCUT_INF;
    for (uint32_t i = 0; i < length; i++) {
        int64_t left = m->arc.at[m->path[i]].left;
        flow = left < flow ? left : flow;
    }
    *keep = length;
    for (uint32_t i = length; i-- > 0;) {
        struct arc *arc = &m->arc.at[m->path[i]], *back = &m->arc.at[m->path[i] ^ 1];
        if (arc->left < DR_MINCUT_INF) { /* uncuttable arcs stay so */
            arc->left -= flow;
        }
        if (back->left < DR_MINCUT_INF) {
            back->left += flow;
        }
        if (arc->left == 0) {
            *keep = i;
        }
    }
    return flow;
}

static int64_t blocking_flow(struct dr_mincut *m) {
    int64_t flow = 0;
    uint32_t length = 0, v = DR_MINCUT_S;
    for (;;) {
        if (v == DR_MINCUT_T) {
            flow += augment(m, length, &length);
            v = length ? m->arc.at[m->path[length - 1]].to : DR_MINCUT_S;
            if (length == 0 && flow >= DR_MINCUT_INF) {
                return flow;
            }
            continue;
        }
        uint32_t e = m->at[v];
        while (e != DR_NONE &&
               (m->arc.at[e].left == 0 || m->level[m->arc.at[e].to] != m->level[v] + 1)) {
            e = m->arc.at[e].next;
        }
        m->at[v] = e;
        if (e != DR_NONE) {
            m->path[length++] = e;
            v = m->arc.at[e].to;
        } else if (length == 0) {
            return flow;
        } else { /* dead end: step back and go past the arc that led here */
            uint32_t last = m->path[--length];
            v = m->arc.at[last ^ 1].to;
            m->at[v] = m->arc.at[last].next;
        }
    }
}

/* Backwards from the sink over arcs that still have room. */
static void find_reaching(struct dr_mincut *m) {
    uint32_t head = 0, tail = 0;
    m->reaches[DR_MINCUT_T] = true;
    m->queue[tail++] = DR_MINCUT_T;
    while (head < tail) {
        uint32_t v = m->queue[head++];
        for (uint32_t e = m->first.at[v]; e != DR_NONE; e = m->arc.at[e].next) {
            uint32_t from = m->arc.at[e].to;
            if (m->arc.at[e ^ 1].left > 0 && !m->reaches[from]) {
                m->reaches[from] = true;
                m->queue[tail++] = from;
            }
        }
    }
}

int64_t dr_mincut_solve(struct dr_mincut *m) {
    m->level = DR_NEW_N(m->arena, uint32_t, m->n);
    m->at = DR_NEW_N(m->arena, uint32_t, m->n);
    m->queue = DR_NEW_N(m->arena, uint32_t, m->n);
    m->path = DR_NEW_N(m->arena, uint32_t, m->n);
    m->reaches = DR_NEW_N(m->arena, bool, m->n);
    int64_t flow = 0;
    while (flow < DR_MINCUT_INF && find_levels(m)) {
        flow += blocking_flow(m);
    }
    find_reaching(m);
    return flow;
}

bool dr_mincut_above(const struct dr_mincut *m, uint32_t node) {
    return !m->reaches[node];
}
