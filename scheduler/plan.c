/* dr_plan_make: choose .. proof in order. A plan that the proof refuses is never handed out. */
#include "scheduler/parts.h"
#include <stdlib.h>

struct dr_plan *dr_plan_begin(struct dr_arena *a, const struct dr_graph *g,
                              const struct dr_plan_wish *w) {
    struct dr_plan *p = DR_NEW(a, struct dr_plan);
    p->arena = a;
    p->g = g;
    p->n_nodes = g->node.n;
    p->n_stages = p->n_streams = p->unroll = 1;
    p->graph = w->graph;
    return p;
}

const char *dr_policy_name(enum dr_policy policy) {
    static const char *const name[] = {"sequential", "stage", "matching", "list", "auto"};
    DR_ASSERT(policy <= DR_POLICY_AUTO);
    return name[policy];
}

const char *dr_bytes_text(struct dr_arena *a, uint64_t bytes) {
    static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        return dr_printf(a, "%llu B", (unsigned long long)bytes);
    }
    double x = (double)bytes / 1024;
    uint32_t u = 0;
    for (; x >= 1023.95 && u < 5; u++) {
        x /= 1024;
    }
    return dr_printf(a, "%.1f %s", x, unit[u]);
}

struct large {
    uint32_t value;
    uint64_t bytes;
};

static int by_bytes(const void *a, const void *b) {
    const struct large *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->value < y->value ? -1 : x->value > y->value;
}

static void name_largest(const struct dr_plan *p) {
    const struct dr_graph *g = p->g;
    struct dr_arena *a = dr_arena_create();
    struct large *l = DR_NEW_N(a, struct large, g->value.n + 1);
    for (uint32_t x = 0; x < g->value.n; x++) {
        l[x] = (struct large){x, (uint64_t)g->value.at[x].bytes * p->buffer[x].depth};
    }
    if (g->value.n > 1) {
        qsort(l, g->value.n, sizeof *l, by_bytes);
    }
    for (uint32_t i = 0; i < g->value.n && i < 3; i++) {
        const struct dr_value *v = &g->value.at[l[i].value];
        uint32_t depth = p->buffer[l[i].value].depth;
        dr_note(g->diag, v->mark, "'%s' %s %s takes %s%s", v->name, dr_dtype_name(v->dtype),
                dr_shape_text(a, &v->shape), dr_bytes_text(a, l[i].bytes),
                depth > 1 ? dr_printf(a, " in %u buffers", depth) : "");
    }
    dr_arena_destroy(a);
}

bool dr_plan_fits(const struct dr_plan *p, const struct dr_device_info *dev) {
    if (dev->memory_bytes == 0 || p->slab_bytes <= dev->memory_bytes) {
        return true;
    }
    struct dr_arena *a = dr_arena_create();
    int64_t fits = dr_plan_largest_batch(p, dev->memory_bytes);
    dr_error(p->g->diag, (struct dr_mark){0},
             "the plan needs %s, but %s has %s (states %s, batch %lld); %s",
             dr_bytes_text(a, p->slab_bytes), dev->name, dr_bytes_text(a, dev->memory_bytes),
             dr_bytes_text(a, p->state_bytes), (long long)p->g->batch,
             fits > 0 ? dr_printf(a, "the largest batch that fits is %lld", (long long)fits)
                      : "not even a batch of 1 fits");
    dr_arena_destroy(a);
    name_largest(p);
    return false;
}

struct dr_plan *dr_plan_make(struct dr_arena *a, const struct dr_graph *g,
                             const struct dr_plan_wish *wish, const struct dr_device_info *dev,
                             bool *too_large) {
    *too_large = false;
    struct dr_plan *p = dr_plan_begin(a, g, wish);
    dr_plan_choose(p, dev);
    if (!dr_plan_stages(p, wish, dev) || !dr_plan_streams(p, wish, dev)) {
        return NULL;
    }
    dr_plan_waits(p);
    if (!dr_plan_memory(p, wish)) {
        *too_large = true;
        return NULL;
    }
    dr_plan_bound(p, dev);
    if (!dr_plan_fits(p, dev)) {
        *too_large = true;
        return NULL;
    }
    struct dr_race race = dr_plan_prove(p, DR_NONE, a);
    if (race.found) {
        dr_error(g->diag, (struct dr_mark){0}, "internal error: the plan is not proven: %s",
                 race.text);
        return NULL;
    }
    return p;
}
