/* The plan for people: --plan. The same plan always gives the same text. */
#include "graph/op.h"
#include "scheduler/plan.h"
#include <string.h>

#define MAX_LINES 24 /* of what was fused, waits and buffers, unless verbose */

struct printer {
    const struct dr_plan *p;
    const struct dr_graph *g;
    int verbose;
    struct dr_text *t;
    struct dr_arena *a;
};

static const char *plural(uint32_t n) {
    return n == 1 ? "" : "s";
}

/* "a, b (3 nodes), c": the stage's nodes by subgraph, else by role. */
static void stage_nodes(struct printer *x, uint32_t stage) {
    const struct dr_graph *g = x->g;
    uint32_t groups = g->subgraph.n * DR_ROLES + DR_ROLES;
    uint32_t *count = DR_NEW_N(x->a, uint32_t, groups), *order = DR_NEW_N(x->a, uint32_t, groups);
    uint32_t n = 0;
    for (uint32_t v = 0; v < x->p->n_nodes; v++) {
        const struct dr_node *node = &g->node.at[v];
        uint32_t sub = node->subgraph == DR_NONE || node->role == DR_ROLE_DATA ? g->subgraph.n
                                                                               : node->subgraph;
        /* forward and augmentation nodes of one subgraph are one group */
        enum dr_role role =
            sub < g->subgraph.n && node->role == DR_ROLE_AUGMENT ? DR_ROLE_FORWARD : node->role;
        uint32_t group = sub * DR_ROLES + role;
        if (x->p->stage[v] == stage && count[group]++ == 0) {
            order[n++] = group;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t sub = order[i] / DR_ROLES;
        enum dr_role role = (enum dr_role)(order[i] % DR_ROLES);
        dr_text_add(x->t, "%s", i ? ", " : "");
        if (sub < g->subgraph.n) {
            const struct dr_subgraph *s = &g->subgraph.at[sub];
            dr_text_add(x->t, "%s%s%s", s->name, s->frozen ? " (frozen)" : "",
                        role == DR_ROLE_BACKWARD ? " backward"
                        : role == DR_ROLE_UPDATE ? " update"
                                                 : "");
        } else {
            dr_text_add(x->t, "%s", dr_role_name(role));
        }
        dr_text_add(x->t, " %u", count[order[i]]);
    }
    dr_text_add(x->t, "\n");
}

static void stages_text(struct printer *x) {
    dr_text_add(x->t, "stages\n");
    for (uint32_t s = 0; s < x->p->n_stages; s++) {
        const char *when =
            s == 0 ? "in its step" : dr_printf(x->a, "%u step%s ahead", s, plural(s));
        dr_text_add(x->t, "  %u  %-13s  ", s, when);
        stage_nodes(x, s);
    }
}

static void streams_text(struct printer *x) {
    const struct dr_plan *p = x->p;
    dr_text_add(x->t, "streams\n");
    for (uint32_t s = 0; s < p->n_streams; s++) {
        uint32_t first = p->stream_first[s], n = p->stream_first[s + 1] - first;
        double flops = 0;
        for (uint32_t i = 0; i < n; i++) {
            flops += p->cost[p->stream_node[first + i]].flops;
        }
        dr_text_add(x->t, "  %-2u %u node%s, %.4g MFLOP", s, n, plural(n), flops / 1e6);
        if (n > 0) {
            dr_text_add(x->t, ", from %s to %s", x->g->node.at[p->stream_node[first]].name,
                        x->g->node.at[p->stream_node[first + n - 1]].name);
        }
        dr_text_add(x->t, "\n");
    }
}

static void waits_text(struct printer *x) {
    const struct dr_plan *p = x->p;
    dr_text_add(x->t, "waits: %u, for %u dependenc%s between streams\n", p->wait.n,
                p->waits_before_reduction, p->waits_before_reduction == 1 ? "y" : "ies");
    uint32_t shown = x->verbose || p->wait.n <= MAX_LINES ? p->wait.n : MAX_LINES;
    for (uint32_t i = 0; i < shown; i++) {
        const struct dr_wait *w = &p->wait.at[i];
        const char *value = x->g->value.at[w->value].name;
        dr_text_add(x->t, "  %s after %s", x->g->node.at[w->to].name, x->g->node.at[w->from].name);
        if (w->slots > 0) {
            dr_text_add(x->t, ", %u slot%s before", w->slots, plural(w->slots));
        }
        switch (w->why) {
        case DR_WAIT_DATA:
            dr_text_add(x->t, ": reads %s\n", value);
            break;
        case DR_WAIT_REUSE:
            dr_text_add(x->t, ": overwrites %s, which that read\n", value);
            break;
        case DR_WAIT_STATE:
            dr_text_add(x->t, ": needs the state %s\n", value);
            break;
        }
    }
    if (shown < p->wait.n) {
        dr_text_add(x->t, "  and %u more\n", p->wait.n - shown);
    }
}

static void buffers_text(struct printer *x) {
    const struct dr_plan *p = x->p;
    uint32_t deep = 0, shared = 0, single = 0, shown = 0;
    for (uint32_t v = 0; v < x->g->value.n; v++) {
        if (x->g->value.at[v].kind == DR_STEP) {
            deep += p->buffer[v].depth > 1;
            single += p->buffer[v].depth == 1;
            shared += p->buffer[v].shared;
        }
    }
    dr_text_add(x->t, "buffers: %u value%s with several, %u with one, of which %u share bytes\n",
                deep, plural(deep), single, shared);
    for (uint32_t v = 0; v < x->g->value.n; v++) {
        const struct dr_buffer *b = &p->buffer[v];
        if (x->g->value.at[v].kind == DR_STATE || b->depth == 1) {
            continue;
        }
        if (!x->verbose && shown == MAX_LINES) {
            dr_text_add(x->t, "  and %u more\n", deep - shown);
            break;
        }
        dr_text_add(x->t, "  %u x %s  %s\n", b->depth, dr_bytes_text(x->a, b->stride),
                    x->g->value.at[v].name);
        shown++;
    }
}

static double percent(uint64_t part, uint64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : 100.0;
}

static void memory_text(struct printer *x) {
    const struct dr_plan *p = x->p;
    dr_text_add(x->t, "memory\n  planned        %-10s of which states %s\n",
                dr_bytes_text(x->a, p->slab_bytes), dr_bytes_text(x->a, p->state_bytes));
    dr_text_add(x->t, "  lower bound    %-10s %.1f%% of planned\n",
                dr_bytes_text(x->a, p->lower_bound_bytes),
                percent(p->lower_bound_bytes, p->slab_bytes));
    dr_text_add(x->t, "  without reuse  %-10s %.1f%% of planned\n",
                dr_bytes_text(x->a, p->no_reuse_bytes), percent(p->no_reuse_bytes, p->slab_bytes));
}

static bool is_half(const struct dr_value *v) {
    return v->dtype == DR_F16 || v->dtype == DR_BF16;
}

/* In half precision: what is stored so. */
static void precision_text(struct printer *x) {
    uint32_t half = 0, all = 0, casts = 0;
    for (uint32_t v = 0; v < x->g->value.n; v++) {
        const struct dr_value *value = &x->g->value.at[v];
        half += is_half(value);
        all += value->kind == DR_STEP && (is_half(value) || value->dtype == DR_F32);
    }
    for (uint32_t v = 0; v < x->p->n_nodes; v++) {
        casts += strcmp(x->g->node.at[v].op->name, "cast") == 0;
    }
    if (half > 0) {
        dr_text_add(x->t, "%s: %u of %u float values of a step, %u cast%s\n",
                    dr_dtype_name(x->g->half), half, all, casts, plural(casts));
    }
}

/* What the fuse pass made of several nodes, by kinds. */
static void fused_text(struct printer *x) {
    const struct dr_graph *g = x->g;
    struct dr_map *kinds = dr_map_create(x->a);
    uint32_t *count = DR_NEW_N(x->a, uint32_t, g->node.n), n = 0;
    const char **text = DR_NEW_N(x->a, const char *, g->node.n);
    for (uint32_t v = 0; v < g->node.n; v++) {
        const char *fused = g->node.at[v].fused;
        if (!fused) {
            continue;
        }
        uint32_t kind = dr_map_get(kinds, fused);
        if (kind == DR_NONE) {
            kind = n++;
            dr_map_put(kinds, fused, kind);
            text[kind] = fused;
        }
        count[kind]++;
    }
    dr_text_add(x->t, "%s", n ? "fused\n" : "");
    for (uint32_t k = 0; k < n; k++) {
        if (!x->verbose && k == MAX_LINES) {
            dr_text_add(x->t, "  and %u more\n", n - k);
            break;
        }
        dr_text_add(x->t, "  %u x %s\n", count[k], text[k]);
    }
}

/* What a node does, and in what it stores that. */
static const char *does(struct printer *x, const struct dr_node *n) {
    const char *op = n->fused ? n->fused : n->op->name;
    const bool half = n->n_out > 0 && is_half(&x->g->value.at[n->out[0]]);
    return half ? dr_printf(x->a, "%s %s", op, dr_dtype_name(x->g->value.at[n->out[0]].dtype)) : op;
}

static void nodes_text(struct printer *x) {
    const struct dr_plan *p = x->p;
    size_t wide = 4, op_wide = 2;
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        size_t n = strlen(x->g->node.at[v].name);
        wide = n > wide ? n : wide;
        n = strlen(does(x, &x->g->node.at[v]));
        op_wide = n > op_wide ? n : op_wide;
    }
    wide = wide > 48 ? 48 : wide;
    op_wide = op_wide > 48 ? 48 : op_wide;
    dr_text_add(x->t, "nodes\n  %-*s  %-*s stage stream  MFLOP     kernel\n", (int)wide, "name",
                (int)op_wide, "op");
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        uint32_t v = p->order[i];
        const struct dr_node *n = &x->g->node.at[v];
        dr_text_add(x->t, "  %-*s  %-*s %5u %6u  %-9.4g %s", (int)wide, n->name, (int)op_wide,
                    does(x, n), p->stage[v], p->stream[v], p->cost[v].flops / 1e6,
                    p->choice[v].kernel ? p->choice[v].kernel : "-");
        if (p->choice[v].us > 0) {
            dr_text_add(x->t, ", %.1f us", p->choice[v].us);
        }
        if (p->choice[v].workspace_bytes > 0) {
            dr_text_add(x->t, ", workspace %s",
                        dr_bytes_text(x->a, (uint64_t)p->choice[v].workspace_bytes));
        }
        dr_text_add(x->t, "\n");
    }
}

/* Where an op had several ways: what was taken, why, and what comes next. */
static void choices_text(struct printer *x) {
    const struct dr_plan *p = x->p;
    struct dr_map *seen = dr_map_create(x->a);
    const char *title = "choices, by the time that is expected of each\n";
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const struct dr_node *n = &x->g->node.at[p->order[i]];
        const struct dr_choice *c = &p->choice[p->order[i]];
        struct dr_choice way[DR_WAYS] = {0};
        if (!c->problem || dr_map_put(seen, c->problem, 0) != DR_NONE) {
            continue;
        }
        const uint32_t ways = n->op->ways(x->g, n, way);
        dr_text_add(x->t, "%s  %s: %s, %.1f us (%s)", title, c->problem, c->kernel, c->us,
                    c->reason);
        title = "";
        for (uint32_t k = 0, shown = 0; k < ways && shown < 3; k++) {
            if (strcmp(way[k].kernel, c->kernel) != 0) {
                dr_text_add(x->t, "%s %s %.1f", shown++ ? "," : "; not", way[k].kernel, way[k].us);
            }
        }
        dr_text_add(x->t, "\n");
    }
}

void dr_plan_text(const struct dr_plan *p, const struct dr_device_info *dev, int verbose,
                  struct dr_text *t) {
    struct printer x = {.p = p, .g = p->g, .verbose = verbose, .t = t, .a = dr_arena_create()};
    static const char *const mode[] = {"training", "evaluation", "inference"};
    dr_text_add(t, "%s: %s, batch %lld, on %s\n", p->g->name, mode[p->g->mode],
                (long long)p->g->batch, dev->name);
    dr_text_add(t, "policy %s: %s\n", dr_policy_name(p->policy), p->reason);
    dr_text_add(t, "%u node%s, %u stage%s, %u stream%s, %u step%s a block, %u ring slots%s\n",
                p->n_nodes, plural(p->n_nodes), p->n_stages, plural(p->n_stages), p->n_streams,
                plural(p->n_streams), p->unroll, plural(p->unroll), p->ring_slots,
                p->graph && dev->cuda ? ", captured as one graph" : "");
    precision_text(&x);
    fused_text(&x);
    stages_text(&x);
    streams_text(&x);
    waits_text(&x);
    buffers_text(&x);
    memory_text(&x);
    dr_text_add(t, "bound      %.1f us a step, by %s\n", p->bound_us, p->bound_by);
    dr_text_add(t, "predicted  %.1f us a step", p->predicted_us);
    if (p->bound_us > 0) {
        dr_text_add(t, ", %.2f times the bound", p->predicted_us / p->bound_us);
    }
    dr_text_add(t, "\n");
    if (verbose) {
        nodes_text(&x);
        choices_text(&x);
    }
    dr_arena_destroy(x.a);
}
