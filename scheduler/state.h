/* The state of a model in a slab: initial values, transfers, checksums.
 *
 * A state is stored as the plan's buffer of its value; names are the graph's value names. All calls
 * expect a drained executor. */
#ifndef DR_SCHEDULER_STATE_H
#define DR_SCHEDULER_STATE_H

#include "scheduler/exec.h"

struct dr_memory { /* where the states are, and how to reach them */
    const struct dr_exec_ops *ops;
    void *device;
    struct dr_slab slab;
};

/* Initial values of every state of the plan's graph: He normal from Philox and Box-Muller, keyed by
 * (seed, hash of the state's name), so a value depends neither on other states nor on order. */
struct dr_status dr_state_init(const struct dr_memory *m, const struct dr_plan *p, uint64_t seed);
/* The same but for the states that another graph has too: they are there already. */
struct dr_status dr_state_init_beside(const struct dr_memory *m, const struct dr_plan *p,
                                      const struct dr_graph *other, uint64_t seed);
/* The host side of it: fills `bytes` of one state's initial value. */
void dr_state_initial(const struct dr_value *v, uint64_t seed, void *to);

/* States from files (graph/weights.h): tensor[v], where it is not NULL, becomes state v. */
struct dr_tensor;
struct dr_status dr_state_load(const struct dr_memory *m, const struct dr_plan *p,
                               const struct dr_tensor *const *tensor);

/* One state to or from host memory; v->bytes are moved. */
struct dr_status dr_state_download(const struct dr_memory *m, const struct dr_plan *p,
                                   uint32_t value, void *to);
struct dr_status dr_state_upload(const struct dr_memory *m, const struct dr_plan *p, uint32_t value,
                                 const void *from);

/* XXH3 of each state's bytes, by value id (0 for values that are no states), in the arena. */
struct dr_status dr_state_checksums(const struct dr_memory *m, const struct dr_plan *p,
                                    struct dr_arena *a, uint64_t **sums);
/* The first frozen state whose checksum differs, or DR_NONE. */
uint32_t dr_state_frozen_changed(const struct dr_plan *p, const uint64_t *before,
                                 const uint64_t *after);

#endif
