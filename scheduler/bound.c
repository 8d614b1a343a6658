/* bound: what no schedule beats, and what this one is predicted to take.
 *
 * The bound is the largest of three. Critical path of the updated part: a state written in one step
 * is read in the next, so a step takes at least the longest way from a reader of a state to a
 * writer of it. Arithmetic: all operations at the device's ceiling. Memory traffic: every operand
 * once at the ceiling. Launch costs are in the prediction only. */
#include "scheduler/parts.h"
#include <math.h>
#include <stdlib.h>

/* The fastest that any operation can go. */
static double flops_ceiling(const struct dr_plan *p, const struct dr_device_info *dev) {
    if (p->g->half != DR_F32 && dev->half_flops_per_s > 0) {
        return dev->half_flops_per_s;
    }
    return p->g->tf32 && dev->tf32_flops_per_s > 0 ? dev->tf32_flops_per_s : dev->flops_per_s;
}

double dr_plan_node_us(const struct dr_plan *p, uint32_t node, const struct dr_device_info *dev) {
    const double ceiling = flops_ceiling(p, dev);
    double compute = ceiling > 0 ? p->cost[node].flops / ceiling : 0;
    double traffic = dev->bytes_per_s > 0 ? p->cost[node].bytes / dev->bytes_per_s : 0;
    return 1e6 * fmax(compute, traffic);
}

struct longest {
    const struct dr_plan *p;
    struct dr_slot_dag dag;
    double *us, *tail, *reach; /* tail: the longest way from the node to the end of the slot */
};

struct touch {                          /* one state's readers and writers */
    uint32_t state, first, last_writer; /* node ids; DR_NONE: never */
    double most;                        /* no way through it is longer */
};

static int by_most(const void *a, const void *b) {
    const struct touch *x = a, *y = b;
    if (x->most < y->most || x->most > y->most) {
        return x->most > y->most ? -1 : 1;
    }
    return x->state < y->state ? -1 : x->state > y->state;
}

static bool has(const uint32_t *list, uint32_t n, uint32_t x) {
    for (uint32_t i = 0; i < n; i++) {
        if (list[i] == x) {
            return true;
        }
    }
    return false;
}

/* The longest way from a reader of the state to a writer of it inside the slot (ids are in
 * program order, so predecessors come first). */
static double longest_through(struct longest *l, const struct touch *t) {
    double longest = 0;
    for (uint32_t v = t->first; v <= t->last_writer; v++) {
        const struct dr_node *n = &l->p->g->node.at[v];
        double before = has(n->in, n->n_in, t->state) ? 0 : -1;
        for (uint32_t i = l->dag.first[v]; i < l->dag.first[v + 1]; i++) {
            if (l->dag.pred[i] >= t->first) {
                before = fmax(before, l->reach[l->dag.pred[i]]);
            }
        }
        l->reach[v] = before < 0 ? -1 : before + l->us[v];
        if (has(n->out, n->n_out, t->state)) {
            longest = fmax(longest, l->reach[v]);
        }
    }
    return longest;
}

static void find_tails(struct longest *l) {
    uint32_t n = l->p->n_nodes;
    for (uint32_t v = n; v-- > 0;) {
        l->tail[v] += l->us[v]; /* held the longest of its successors */
        for (uint32_t i = l->dag.first[v]; i < l->dag.first[v + 1]; i++) {
            uint32_t u = l->dag.pred[i];
            l->tail[u] = fmax(l->tail[u], l->tail[v]);
        }
    }
}

/* States by the most that a way through each could be: usually the first tells that no other can
 * be longer. */
static double critical_path(struct longest *l, struct dr_arena *a) {
    const struct dr_graph *g = l->p->g;
    struct touch *t = DR_NEW_N(a, struct touch, g->value.n + 1);
    for (uint32_t x = 0; x < g->value.n; x++) {
        t[x] = (struct touch){.state = x, .first = DR_NONE, .last_writer = DR_NONE};
    }
    for (uint32_t v = 0; v < g->node.n; v++) {
        const struct dr_node *n = &g->node.at[v];
        for (uint32_t i = 0; i < n->n_in; i++) {
            struct touch *s = &t[n->in[i]];
            if (g->value.at[n->in[i]].kind == DR_STATE) {
                s->first = s->first == DR_NONE ? v : s->first;
                s->most = fmax(s->most, l->tail[v]);
            }
        }
        for (uint32_t i = 0; i < n->n_out; i++) {
            if (g->value.at[n->out[i]].kind == DR_STATE) {
                t[n->out[i]].last_writer = v;
            }
        }
    }
    uint32_t kept = 0;
    for (uint32_t x = 0; x < g->value.n; x++) {
        if (t[x].first != DR_NONE && t[x].last_writer != DR_NONE) {
            t[kept++] = t[x];
        }
    }
    if (kept > 1) {
        qsort(t, kept, sizeof *t, by_most);
    }
    double longest = 0;
    for (uint32_t i = 0; i < kept && t[i].most > longest; i++) {
        longest = fmax(longest, longest_through(l, &t[i]));
    }
    return longest;
}

/* One block of the plan on streams that each run at the ceilings; a step takes a block's time over
 * its slots, and no less than the ceilings allow for all streams together. */
static double simulate(const struct dr_plan *p, const double *us, const struct dr_device_info *dev,
                       struct dr_arena *a) {
    double *end = DR_NEW_N(a, double, (size_t)p->unroll * p->n_nodes + 1);
    double *stream = DR_NEW_N(a, double, p->n_streams + 1), last = 0;
    for (uint32_t slot = 0; slot < p->unroll; slot++) {
        for (uint32_t i = 0; i < p->n_nodes; i++) {
            uint32_t v = p->order[i];
            double start = stream[p->stream[v]];
            for (uint32_t w = p->wait_first[v]; w < p->wait_first[v + 1]; w++) {
                const struct dr_wait *wait = &p->wait.at[w];
                if (wait->slots <= slot) {
                    size_t from = (size_t)(slot - wait->slots) * p->n_nodes + wait->from;
                    start = fmax(start, end[from]);
                }
            }
            double done = start + us[v] + dev->launch_us;
            end[(size_t)slot * p->n_nodes + v] = stream[p->stream[v]] = done;
            last = fmax(last, done);
        }
    }
    return last / p->unroll;
}

void dr_plan_bound(struct dr_plan *p, const struct dr_device_info *dev) {
    struct dr_arena *a = dr_arena_create();
    struct longest l = {.p = p,
                        .dag = dr_slot_dag_make(p, a),
                        .us = DR_NEW_N(a, double, p->n_nodes + 1),
                        .tail = DR_NEW_N(a, double, p->n_nodes + 1),
                        .reach = DR_NEW_N(a, double, p->n_nodes + 1)};
    double flops = 0, bytes = 0;
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        l.us[v] = dr_plan_node_us(p, v, dev);
        flops += p->cost[v].flops;
        bytes += p->cost[v].bytes;
    }
    find_tails(&l);
    double path = critical_path(&l, a);
    const double ceiling = flops_ceiling(p, dev);
    double arithmetic = ceiling > 0 ? 1e6 * flops / ceiling : 0;
    double traffic = dev->bytes_per_s > 0 ? 1e6 * bytes / dev->bytes_per_s : 0;
    p->bound_us = fmax(path, fmax(arithmetic, traffic));
    p->bound_by = p->bound_us <= path         ? "critical path of the updated part"
                  : p->bound_us <= arithmetic ? "arithmetic"
                                              : "memory traffic";
    p->predicted_us = fmax(simulate(p, l.us, dev, a), p->bound_us);
    dr_arena_destroy(a);
}
