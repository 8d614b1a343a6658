/* The plan as Graphviz: side tables for graph/dot.c, which knows no scheduler. */
#include "graph/passes.h"
#include "scheduler/plan.h"

void dr_plan_dot(const struct dr_plan *p, bool whole, struct dr_text *t) {
    struct dr_arena *a = dr_arena_create();
    uint32_t *depth = DR_NEW_N(a, uint32_t, p->g->value.n + 1);
    for (uint32_t x = 0; x < p->g->value.n; x++) {
        depth[x] = p->buffer[x].depth;
    }
    struct dr_dot d = {
        .g = p->g,
        .stream = p->stream,
        .stage = p->stage,
        .depth = depth,
        .n_streams = p->n_streams,
        .title = dr_printf(a, "%s: policy %s, %u stage%s, %u stream%s", p->g->name,
                           dr_policy_name(p->policy), p->n_stages, p->n_stages == 1 ? "" : "s",
                           p->n_streams, p->n_streams == 1 ? "" : "s"),
        .whole = whole,
    };
    dr_dot_write(&d, t);
    dr_arena_destroy(a);
}
