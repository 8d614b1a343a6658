/* Groups of weights that one optimizer node updates. */
#include "ops/optimizer.h"

struct dr_update dr_update_of(const struct dr_node *n, uint32_t states) {
    struct dr_update u = {.n = n->n_out / (1 + states), .n_states = states};
    u.lr = 2 * u.n;
    u.health = u.lr + 1;
    u.state = n->n_in - u.n * states;
    u.clip = u.state > u.health + 1 ? u.health + 1 : DR_NONE;
    return u;
}

bool dr_infer_update(struct dr_infer *c, const struct dr_moment *moments, uint32_t n_moments) {
    const uint32_t given = c->g->node.at[c->node].n_in;
    const uint32_t n = (given - 2) / 2; /* an odd one is clip */
    DR_ASSERT(n >= 1);
    for (uint32_t i = 0; i < n; i++) {
        DR_NEED_SAME(c, i, n + i);
        if (!dr_infer_write(c, i)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < n * n_moments; i++) {
        const struct dr_moment *m = &moments[i % n_moments];
        const struct dr_shape shape =
            m->counter ? (struct dr_shape){0} : dr_infer_in(c, i / n_moments)->shape;
        if (!dr_infer_moment(c, i / n_moments, m->leaf, m->counter ? DR_I64 : DR_F32, shape) ||
            !dr_infer_write(c, given + i)) {
            return false;
        }
    }
    return true;
}

bool dr_update_wrong(struct dr_infer *c, const char *why) {
    const struct dr_node *n = &c->g->node.at[c->node];
    return dr_error(c->g->diag, n->mark, "%s: %s", n->op->name, why);
}

struct dr_cost dr_update_cost(const struct dr_graph *g, const struct dr_node *n, uint32_t states,
                              double flops) {
    const struct dr_update u = dr_update_of(n, states);
    double elements = 0;
    for (uint32_t i = 0; i < u.n; i++) {
        elements += (double)dr_elements(dr_node_in(g, n, i));
    }
    return dr_cost_of(g, n, flops * elements);
}
