/* Runs of fake graphs (fake_ops.h) on the CPU executor, reduced to digests that must agree.
 *
 * The input of step s is a formula of s; the header is the interpreter's. A digest covers what was
 * read back in every step and every state afterwards. */
#ifndef DR_TESTS_FAKE_EXEC_H
#define DR_TESTS_FAKE_EXEC_H

#include "scheduler/exec.h"
#include "tests/fake_ops.h"

/* Two augmentations, a frozen part of two branches, a trainable part with branches, a batch norm
 * and a weight used twice; one loss. Through the graph passes. */
struct dr_graph *fake_training_graph(void);

extern const struct dr_device_info fake_device;
struct dr_plan *fake_plan(struct dr_graph *g, enum dr_policy policy, int32_t streams,
                          int32_t pipeline);

/* What the interpreter gives, one node after another. */
uint64_t fake_digest_interpreted(struct dr_graph *g, int64_t steps);
/* What the executor gives. Blocks are launched as run.c does. `delay_us` by node or NULL. */
uint64_t fake_digest_planned(const struct dr_plan *p, int64_t steps, const uint32_t *delay_us);

/* Everything an executor needs for `steps` steps, with all batches in the ring from the start. */
struct fake_exec {
    const struct dr_plan *plan;
    void *device;
    struct dr_device_info info;
    struct dr_slab slab;
    struct dr_ring ring;
    struct dr_readback readback;
    struct dr_exec *exec;
    int64_t steps;
    _Atomic uint32_t progressed;
};
void fake_exec_open(struct fake_exec *e, const struct dr_plan *p, int64_t steps,
                    const uint32_t *delay_us);
void fake_exec_run(struct fake_exec *e, int64_t s0, int64_t s1); /* launches and drains */
uint64_t fake_exec_digest(struct fake_exec *e);
void fake_exec_close(struct fake_exec *e);
/* Input `i` of step `s` in the ring. */
float *fake_exec_input(struct fake_exec *e, int64_t s, uint32_t i);

#endif
