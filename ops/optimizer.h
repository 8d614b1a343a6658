/* What optimizers share: one node updates a group of n weights.
 *
 * Operands: n weights, their n gradients, lr, health[, clip], then each weight's own states, those
 * of one weight together -> the weights, then the states. */
#ifndef DR_OPS_OPTIMIZER_H
#define DR_OPS_OPTIMIZER_H
#include "ops/common.h"

struct dr_update {
    uint32_t n;                /* weights; weight i is operand i, its gradient operand n + i */
    uint32_t lr, health, clip; /* operands; clip DR_NONE: none */
    uint32_t state, n_states;  /* state k of weight i is operand state + i * n_states + k */
};
/* Of a node that has `states` states a weight. */
struct dr_update dr_update_of(const struct dr_node *n, uint32_t states);

struct dr_moment {
    const char *leaf;
    bool counter; /* i64 [], else f32 and the weight's shape; both start at 0 */
};
/* Adds the states and declares what is written. */
bool dr_infer_update(struct dr_infer *c, const struct dr_moment *moments, uint32_t n);

/* An error at the optimizer in the file: "adam: ...". No notes on operands, which a pass chose.
 * Returns false. */
bool dr_update_wrong(struct dr_infer *c, const char *why);

/* Flops for each element of the weights. */
struct dr_cost dr_update_cost(const struct dr_graph *g, const struct dr_node *n, uint32_t states,
                              double flops);

/* Output of state k of weight i, of a launch. */
static inline void *dr_update_state(const struct dr_launch *l, const struct dr_update *u,
                                    uint32_t i, uint32_t k) {
    return l->out[u->n + i * u->n_states + k];
}
static inline float dr_update_clip(const struct dr_launch *l, const struct dr_update *u) {
    return u->clip == DR_NONE ? 1.0f : *(const float *)l->in[u->clip];
}
#endif
