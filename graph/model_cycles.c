/* Cycles among things that name each other: nodes, blocks, shares. Depth first with a stack of our
 * own, since a chain in a file may be far longer than the C stack is deep. */
#include "graph/model_load.h"

struct search {
    const struct dr_edges *e;
    uint8_t *color; /* 0 new, 1 on the path, 2 done */
    bool *reported;
    uint32_t *path, *next; /* the path and the next edge of each vertex on it */
    uint32_t *position;    /* on the path */
};

static void report(struct search *s, uint32_t from, uint32_t n,
                   void (*found)(void *, const uint32_t *, uint32_t), void *ctx) {
    for (uint32_t i = from; i < n; i++) {
        if (s->reported[s->path[i]]) {
            return; /* another way round a tangle that is known */
        }
    }
    for (uint32_t i = from; i < n; i++) {
        s->reported[s->path[i]] = true;
    }
    found(ctx, s->path + from, n - from);
}

void dr_cycles(struct dr_arena *a, const struct dr_edges *e, uint32_t *order,
               void (*found)(void *ctx, const uint32_t *at, uint32_t n), void *ctx) {
    struct search s = {.e = e,
                       .color = DR_NEW_N(a, uint8_t, (size_t)e->n + 1),
                       .reported = DR_NEW_N(a, bool, (size_t)e->n + 1),
                       .path = DR_NEW_N(a, uint32_t, (size_t)e->n + 1),
                       .next = DR_NEW_N(a, uint32_t, (size_t)e->n + 1),
                       .position = DR_NEW_N(a, uint32_t, (size_t)e->n + 1)};
    uint32_t done = 0;
    for (uint32_t root = 0; root < e->n; root++) {
        uint32_t n = 0;
        if (s.color[root] == 0) {
            s.path[n++] = root;
        }
        while (n > 0) {
            const uint32_t v = s.path[n - 1];
            if (s.color[v] == 0) {
                s.color[v] = 1;
                s.position[v] = n - 1;
                s.next[v] = e->first[v];
            }
            if (s.next[v] == e->first[v + 1]) {
                s.color[v] = 2;
                n--;
                if (order) {
                    order[done] = v;
                }
                done++;
                continue;
            }
            const uint32_t to = e->to[s.next[v]++];
            if (s.color[to] == 1) {
                report(&s, s.position[to], n, found, ctx);
            } else if (s.color[to] == 0) {
                s.path[n++] = to;
            }
        }
    }
}

const char *dr_cycle_text(struct dr_arena *a, const char *const *name, uint32_t n) {
    enum { SHOWN = 16 };
    struct dr_text t = {.arena = a};
    for (uint32_t i = 0; i < n; i++) {
        if (n > SHOWN && i == SHOWN / 2) {
            dr_text_add(&t, "... (%u more) -> ", n - SHOWN);
            i = n - SHOWN / 2;
        }
        dr_text_add(&t, "%s -> ", name[i]);
    }
    dr_text_add(&t, "%s", name[0]);
    return t.at;
}
