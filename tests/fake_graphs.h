/* Graphs for tests of the plan alone: nodes with any number of inputs, sizes, roles and classes as
 * the test says, no kernels. toy_random makes whole training steps of random shape. */
#ifndef DR_TESTS_FAKE_GRAPHS_H
#define DR_TESTS_FAKE_GRAPHS_H

#include "graph/op.h"
#include "scheduler/plan.h"

struct toy_attrs {
    int64_t workspace; /* bytes that `choose` asks for */
    double flops, bytes;
};
extern const struct dr_op toy_op;        /* anchored */
extern const struct dr_op toy_pointwise; /* may sink to a lower stage */
extern const struct dr_op toy_draws;     /* pointwise, but draws */

struct toy {
    struct dr_arena *arena;
    struct dr_graph *g;
    uint64_t random; /* state of toy_next */
};
struct toy toy_create(void);
void toy_free(struct toy *t);
uint32_t toy_next(struct toy *t, uint32_t below); /* 0 .. below - 1 */

/* A node and its one output of `bytes` bytes (0: no output), both called `name`. Returns the value,
 * or DR_NONE without one. `ins` are value ids ended by DR_NONE. */
uint32_t toy_add(struct toy *t, const char *name, const struct dr_op *op, enum dr_role role,
                 enum dr_frozen_class cls, int64_t bytes, const uint32_t *ins);
#define TOY_INS(...) ((const uint32_t[]){__VA_ARGS__, DR_NONE})
uint32_t toy_state(struct toy *t, const char *name, int64_t bytes, bool frozen);
void toy_writes(struct toy *t, uint32_t state);           /* the last node added writes it */
struct toy_attrs *toy_attrs(struct toy *t);               /* of the last node added */
uint32_t toy_node(const struct toy *t, const char *name); /* asserts that it is there */

/* A training step: data, augmentation, a frozen part, a trainable part with shared and unshared
 * weights, gradients, guard, updates, readback; everything with random shape and size. */
struct toy_size {
    uint32_t data, augment, frozen, trainable;
};
void toy_random(struct toy *t, struct toy_size n);

extern const struct dr_device_info toy_cpu, toy_gpu;
struct dr_plan_wish toy_wish(enum dr_policy policy, int32_t streams, int32_t pipeline);
/* All steps but the proof. */
struct dr_plan *toy_plan(const struct toy *t, const struct dr_plan_wish *w,
                         const struct dr_device_info *dev);

#endif
