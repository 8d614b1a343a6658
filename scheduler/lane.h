/* A lane: a plan made ready to run, with its executor, its data set, input ring and readback
 * records. Training is one lane, evaluation another over the same slab. run.c drives lanes.
 *
 * dr_lane_run owns the flow that exec.h describes: before block b it waits for the loader to have
 * filled every step that the block copies, and for the records of block b - 2; it launches; it
 * hands the records on in the order of steps. */
#ifndef DR_SCHEDULER_LANE_H
#define DR_SCHEDULER_LANE_H

#include "augment/data.h"
#include "scheduler/exec.h"

#include <pthread.h>
#include <signal.h>

struct dr_lane_config {
    const struct dr_plan *plan;
    struct dr_dataset *data;
    const struct dr_exec_ops *ops;
    void *device;
    const struct dr_device_info *dev;
    struct dr_slab slab;
    uint64_t seed;
    uint32_t loader_threads;
    const volatile sig_atomic_t *stop; /* not 0: launch no further block; NULL */
    const uint32_t *delay_us;          /* tests; NULL */
    struct dr_trace *trace;            /* NULL */
};

struct dr_lane {
    struct dr_lane_config c;
    struct dr_arena *arena;
    struct dr_column_want *want; /* by the model's inputs */
    uint32_t n_want;
    struct dr_ring ring;
    struct dr_readback readback;
    struct dr_exec *exec;
    struct dr_loader *loader;
    uint64_t loader_end;
    double waited_s; /* for the loader, by loaders that are gone */

    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t stamped; /* next step whose record gets a time stamp */
    double *stamp_s;  /* [n_stamps] when step i's record was there; NULL: not wanted */
    uint64_t n_stamps;
    double *launch_s; /* [n_launches] host time in the launch of block i; NULL: not wanted */
    uint64_t n_launches;
    bool ready;
};

/* The record of one step; gone when the callback returns. */
struct dr_record {
    const struct dr_plan *plan;
    const struct dr_readback *at;
    const unsigned char *base;
    int64_t step;
};
/* A value of the record, or NULL where it is not read back. */
const void *dr_record_value(const struct dr_record *r, uint32_t value);
/* False: stop launching. */
typedef bool dr_on_record(const struct dr_record *r, void *ctx);

struct dr_status dr_lane_open(struct dr_lane *l, const struct dr_lane_config *c);
void dr_lane_close(struct dr_lane *l);

/* How the graph's data nodes want the model's inputs: fills an array of g->input.n. */
void dr_lane_want(const struct dr_graph *g, struct dr_column_want *want);

/* Starts the loader for steps [first, end); stops one that runs. */
struct dr_status dr_lane_feed(struct dr_lane *l, uint64_t first, uint64_t end);
/* Runs steps [s0, s1) and drains. `*done`: the steps below it were executed, s1 unless stopped. */
struct dr_status dr_lane_run(struct dr_lane *l, int64_t s0, int64_t s1, dr_on_record *on_record,
                             void *ctx, int64_t *done);
/* Stops the loader, puts the batch of `step` into its slot and runs it with checks: the node that
 * first made a value that is not finite. The header of the batch is in *batch. */
struct dr_status dr_lane_recheck(struct dr_lane *l, int64_t step, uint32_t *node,
                                 const struct dr_batch **batch);
double dr_lane_waited_s(const struct dr_lane *l);
double dr_now_s(void); /* monotonic */

#endif
