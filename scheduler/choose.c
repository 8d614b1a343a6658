/* choose: kernel, workspace and cost of every node, asked of its op. Static: the same on every
 * run, so that results keep their bits. */
#include "scheduler/parts.h"

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

void dr_plan_choose(struct dr_plan *p, const struct dr_device_info *dev) {
    const struct dr_graph *g = p->g;
    p->choice = DR_NEW_N(p->arena, struct dr_choice, p->n_nodes);
    p->cost = DR_NEW_N(p->arena, struct dr_cost, p->n_nodes);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        const struct dr_node *n = &g->node.at[v];
        if (n->op->choose) {
            p->choice[v] = n->op->choose(g, n, dev->cuda);
        }
        DR_ASSERT(p->choice[v].workspace_bytes >= 0);
        p->cost[v] = n->op->cost ? n->op->cost(g, n)
                                 : (struct dr_cost){.flops = 0, .bytes = operand_bytes(g, n)};
    }
}
