/* The executor's interface: what walks a plan on a device. exec_cpu.c is one, exec_cuda.c another.
 *
 * The run loop (run.c) owns the flow: before block b it waits for the loader to have filled every
 * step the block copies, and for the readback of block b - 2; then it launches. The executor never
 * waits for the host inside a block. */
#ifndef DR_SCHEDULER_EXEC_H
#define DR_SCHEDULER_EXEC_H

#include "augment/ring.h"
#include "kernels/batch.h"
#include "scheduler/plan.h"
#include "scheduler/trace.h"

enum dr_exit {
    DR_OK = 0,
    DR_FAILED = 1,
    DR_WRONG_INPUT = 2,
    DR_NO_DEVICE = 3,
    DR_NOT_VERIFIED = 4,
    DR_INTERRUPTED = 130
};

/* A device or system failure: which call, its code, at which node. */
struct dr_status {
    enum dr_exit code;
    uint32_t node; /* DR_NONE */
    char text[232];
};

/* Readback records, one a step, in a ring of host memory. record(step) is at base + (step mod
 * slots) * record_bytes and complete once done[slot] == step + 1. Layout: the readback node's
 * inputs in order, each 8-byte aligned. */
struct dr_readback {
    uint32_t slots;
    size_t record_bytes;
    unsigned char *base;
    _Atomic uint64_t *done;
    const size_t *offset; /* by input of the readback node */
};

struct dr_exec_ops;
struct dr_exec {
    const struct dr_exec_ops *ops;
    char note[232]; /* to tell the user once ("running without a CUDA graph: ..."), or "" */
};

/* The device's memory for a whole run: one slab, shared by the training and the evaluation plan.
 * Training's states come first and are the evaluation's too; states that only the evaluation has
 * come last; what lies between is scratch that a drained pipeline leaves. */
struct dr_slab {
    unsigned char *base; /* device pointer */
    uint64_t bytes;
};

struct dr_exec_config {
    const struct dr_plan *plan;
    const struct dr_device_info *dev;
    struct dr_slab slab;
    struct dr_ring *ring;
    struct dr_readback *readback; /* NULL where the graph has no readback node */
    uint64_t seed;
    void *device; /* what ops->open gave */
    /* Called from a device thread or callback after a slot was released or a record was done; NULL.
     */
    void (*progress)(void *ctx);
    void *progress_ctx;
    /* Tests: microseconds to sleep before each node, by node; NULL. */
    const uint32_t *delay_us;
    struct dr_trace *trace; /* what runs is recorded here; outlives the executor; NULL */
};

struct dr_exec_ops {
    const char *name; /* "cpu", "cuda" */
    /* Opens a device and describes it. `which`: "cpu", "cuda", "cuda:1". */
    struct dr_status (*open)(void **device, const char *which, uint32_t threads,
                             struct dr_device_info *info);
    void (*close)(void *device);
    struct dr_status (*alloc)(void *device, uint64_t bytes, struct dr_slab *slab); /* zeroed */
    void (*free)(void *device, struct dr_slab *slab);
    void *(*host_alloc)(void *device, size_t bytes); /* pinned where that means something; zeroed */
    void (*host_free)(void *device, void *p);
    struct dr_status (*upload)(void *device, void *to, const void *from, size_t bytes);
    struct dr_status (*download)(void *device, void *to, const void *from, size_t bytes);
    /* Microseconds that each of `n` ways (dr_op.ways) takes for node `v` of a graph, in turns, with
     * operands of made-up numbers in memory of its own. NULL: a node has one way here. */
    struct dr_status (*measure)(void *device, const struct dr_graph *g, uint32_t v,
                                const struct dr_choice *way, uint32_t n, double *us);
    /* Bytes of device memory really in use; 0: unknown. */
    uint64_t (*memory_used)(void *device);

    struct dr_status (*create)(const struct dr_exec_config *c, struct dr_exec **out);
    /* Queues block `b` (slots [b*U, (b+1)*U), b may be negative) for steps [s0, s1); see plan.h. */
    struct dr_status (*launch)(struct dr_exec *e, int64_t b, int64_t s0, int64_t s1);
    struct dr_status (*drain)(struct dr_exec *e); /* until every launched block is done */
    /* Whether every launched block is done, without waiting; a device that has failed is idle, and
     * *s says so. It calls nobody back: whoever waits for it must ask. */
    bool (*idle)(struct dr_exec *e, struct dr_status *s);
    /* One step, node by node in id order, with a look at each float output: the node that first
     * made a value that is not finite, or DR_NONE. Buffers and state are left as a normal step
     * leaves them. */
    struct dr_status (*step_checked)(struct dr_exec *e, int64_t step, uint32_t *node);
    void (*destroy)(struct dr_exec *e);
};
extern const struct dr_exec_ops dr_exec_cpu;
#ifdef DR_WITH_CUDA
extern const struct dr_exec_ops dr_exec_cuda;
#endif

#endif
