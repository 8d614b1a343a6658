/* choose: kernel, workspace and cost of every node, asked of its op. Static: the same on every
 * run, so that results keep their bits; --tune alone changes it. */
#include "scheduler/parts.h"

#include <string.h>

static double operand_bytes(const struct dr_graph *g, const struct dr_node *n) {
    double bytes = 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        bytes += (double)g->value.at[n->in[i]].bytes;
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        bytes += (double)g->value.at[n->out[i]].bytes;
    }
    return bytes;
}

/* The op's first way, unless --tune has measured a better one. */
static struct dr_choice choose_way(const struct dr_graph *g, const struct dr_node *n,
                                   const struct dr_device_info *dev, struct dr_map *warned) {
    struct dr_choice way[DR_WAYS] = {0};
    const uint32_t ways = n->op->ways(g, n, way);
    DR_ASSERT(ways > 0 && ways <= DR_WAYS);
    const struct dr_tuned_row *row = dr_tuned_find(dev->tuned, way[0].problem);
    for (uint32_t i = 0; row && i < ways; i++) {
        if (!strcmp(way[i].kernel, row->kernel)) {
            way[i].us = row->us;
            way[i].reason = "measured by --tune";
            return way[i];
        }
    }
    if (row && dr_map_put(warned, row->problem, 0) == DR_NONE) {
        dr_warn(g->diag, (struct dr_mark){0},
                "%s: no kernel '%s' computes %s; its choice is ignored", dev->tuned->path,
                row->kernel, row->problem);
    }
    return way[0];
}

void dr_plan_choose(struct dr_plan *p, const struct dr_device_info *dev) {
    const struct dr_graph *g = p->g;
    struct dr_map *const warned = dr_map_create(p->arena);
    p->choice = DR_NEW_N(p->arena, struct dr_choice, p->n_nodes);
    p->cost = DR_NEW_N(p->arena, struct dr_cost, p->n_nodes);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        const struct dr_node *n = &g->node.at[v];
        if (dev->cuda && n->op->ways) {
            p->choice[v] = choose_way(g, n, dev, warned);
        } else if (n->op->choose) {
            p->choice[v] = n->op->choose(g, n, dev->cuda);
        }
        DR_ASSERT(p->choice[v].workspace_bytes >= 0);
        p->cost[v] = n->op->cost ? n->op->cost(g, n)
                                 : (struct dr_cost){.flops = 0, .bytes = operand_bytes(g, n)};
    }
}
