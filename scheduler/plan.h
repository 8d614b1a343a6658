/* The plan: plain data that says what runs where, when, and in which bytes. Text, JSON and dot
 * print it, the proof checks it, both executors walk it. All of it lives in the plan's arena.
 *
 * Time is counted in slots. In slot t, node v works on step t + stage(v). A block is `unroll`
 * slots, slots [b*U, (b+1)*U), in one captured graph; it begins with a fork and ends with a
 * barrier. Slot t is phase p = t mod U. A value of depth d keeps step s in buffer s mod d; d
 * divides U, so that every address in a phase is constant: address[p][operand].
 *
 * A stream runs phase 0's list, then phase 1's, ...; each list in position order. Wait {from, to,
 * slots}: in slot t, `to` starts after `from` of slot t - slots; where that slot lies before the
 * block, the barrier has seen to it. Order, streams and waits are the same in each phase, so
 * happens-before between (u, t) and (v, t + k) does not depend on t inside a block: the memory
 * planner and the wait reduction use that; the proof does not, it works on the unrolled block.
 *
 * In a run over steps [s0, s1), node v of slot t is active if s0 <= t + stage(v) < s1. Blocks in
 * which all are active replay the captured graph; others (prologue, remainder, epilogue) launch the
 * same lists with inactive nodes left out but all waits kept. */
#ifndef DR_SCHEDULER_PLAN_H
#define DR_SCHEDULER_PLAN_H

#include "graph/model.h"

#define DR_MAX_STREAMS 32
#define DR_MAX_STAGE 7 /* pipeline: D is at most this */
#define DR_ALIGN 256   /* of every buffer */

enum dr_why {                /* what a wait protects */
              DR_WAIT_DATA,  /* `to` reads what `from` wrote */
              DR_WAIT_REUSE, /* `to` overwrites a buffer (or state) that `from` reads */
              DR_WAIT_STATE, /* `to` reads or writes state that `from` wrote */
};
struct dr_wait {
    uint32_t from, to; /* nodes */
    uint32_t slots;    /* 0: same slot */
    uint32_t value;
    enum dr_why why;
};

struct dr_buffer {   /* by value id */
    uint64_t offset; /* in the slab, of buffer 0 */
    uint64_t stride; /* between buffers, a multiple of DR_ALIGN */
    uint32_t depth;  /* 1, 2, 4, 8; states: 1 */
    bool shared;     /* shares bytes with another value */
};

/* What --tune measured on a card: the kernel that is faster than the one that the cost model takes,
 * by problem (struct dr_choice). */
struct dr_tuned_row {
    const char *problem, *kernel;
    double us;
};
struct dr_tuned {
    const char *path; /* of its file */
    DR_VEC(struct dr_tuned_row) row;
};
/* NULL: the cost model's choice stands. `t` may be NULL. */
const struct dr_tuned_row *dr_tuned_find(const struct dr_tuned *t, const char *problem);

/* What the scheduler needs to know of a device. */
struct dr_device_info {
    const char *name; /* "cpu: 2 threads" */
    const char *card; /* of a GPU, its name without its number: whose measurements it shares */
    bool cuda;
    struct dr_device_caps caps;
    const struct dr_tuned *tuned; /* NULL: nothing was measured */
    bool copies_ahead;            /* has a copy engine: data nodes get a stage of their own */
    uint32_t threads;
    double flops_per_s;      /* ceilings: never exceeded, for the bound */
    double tf32_flops_per_s; /* of Tensor cores; 0: the device has no tf32 */
    bool fp16, bf16;         /* it computes in them, and keeps activations so */
    double half_flops_per_s; /* of Tensor cores, in either */
    double bytes_per_s;
    double launch_us;      /* of one node */
    uint64_t memory_bytes; /* 0: unknown */
};

struct dr_plan_wish {          /* schedule: of the YAML, resolved by the caller */
    int32_t pipeline, streams; /* DR_AUTO or a number */
    enum dr_policy policy;
    bool graph;
    /* Another plan that takes turns with this one in the same slab (training beside evaluation):
     * states of both stay where that plan has them. NULL: none. */
    const struct dr_plan *states_of;
    const struct dr_graph *states_graph;
};

struct dr_plan {
    struct dr_arena *arena;
    const struct dr_graph *g;
    enum dr_policy policy; /* the one used, never auto */
    const char *reason;    /* why this one, for people */
    uint32_t n_nodes, n_stages, n_streams, unroll;
    uint8_t *stage, *stream; /* by node */
    uint32_t *order;         /* all nodes by position: a topological order of one slot */
    uint32_t *stream_first, *stream_node; /* CSR: nodes of each stream in position order */
    struct dr_choice *choice;             /* by node: kernel and workspace */
    DR_VEC(struct dr_wait) wait;          /* sorted by (to, from); none implied by others */
    uint32_t *wait_first;                 /* CSR by `to`: wait[wait_first[v] .. wait_first[v+1]) */
    uint32_t waits_before_reduction;
    struct dr_buffer *buffer;   /* by value */
    uint64_t *workspace_offset; /* by node; of its choice's workspace */
    /* Operands of a node: its inputs, its outputs. address[p * n_operands + operand_first[v] + i].
     */
    uint32_t *operand_first, n_operands;
    uint64_t *address;
    uint64_t state_bytes;       /* the slab begins with the states (of both plans, beside one) */
    uint64_t slab_bytes;        /* planned */
    uint64_t lower_bound_bytes; /* DESIGN "Memory" */
    uint64_t no_reuse_bytes;
    double bound_us; /* no schedule is faster, per step */
    const char
        *bound_by; /* "critical path of the updated part" | "arithmetic" | "memory traffic" */
    double predicted_us;
    struct dr_cost *cost; /* by node */
    bool graph;           /* capture wanted */
    uint32_t ring_slots;  /* input ring: at least 2U */
};

/* Runs choose .. proof over a graph that is through the graph passes. NULL after errors (in the
 * sink). Memory over the device's: an error naming the largest values and the largest batch that
 * fits, and *too_large is set (exit 3). */
struct dr_plan *dr_plan_make(struct dr_arena *a, const struct dr_graph *g,
                             const struct dr_plan_wish *wish, const struct dr_device_info *dev,
                             bool *too_large);

/* The steps of dr_plan_make, in the order of the pass array; each fills its part of the plan.
 * dr_plan_begin gives an empty one. */
struct dr_plan *dr_plan_begin(struct dr_arena *a, const struct dr_graph *g,
                              const struct dr_plan_wish *w);
void dr_plan_choose(struct dr_plan *p, const struct dr_device_info *dev);
bool dr_plan_stages(struct dr_plan *p, const struct dr_plan_wish *w,
                    const struct dr_device_info *dev);
bool dr_plan_streams(struct dr_plan *p, const struct dr_plan_wish *w,
                     const struct dr_device_info *dev);
void dr_plan_waits(struct dr_plan *p); /* order, dependencies, reduction */
bool dr_plan_memory(struct dr_plan *p, const struct dr_plan_wish *w);
void dr_plan_bound(struct dr_plan *p, const struct dr_device_info *dev);
/* False, after an error that names the largest values and the largest batch that fits, where the
 * plan needs more memory than the device has. */
bool dr_plan_fits(const struct dr_plan *p, const struct dr_device_info *dev);
const char *dr_policy_name(enum dr_policy policy);
/* "12.3 MiB" */
const char *dr_bytes_text(struct dr_arena *a, uint64_t bytes);

/* All dependencies of one slot against itself and earlier ones, before reduction: RAW, buffer
 * reuse, state. Independent of streams. */
struct dr_waits {
    DR_VEC(struct dr_wait) at;
};
struct dr_waits dr_plan_dependencies(const struct dr_plan *p, struct dr_arena *a);

/* ---- proof ---- */
struct dr_race {
    bool found;
    uint32_t first, second; /* nodes; DR_NONE: the host */
    uint32_t first_phase, second_phase;
    uint32_t first_value, second_value;
    uint64_t offset;  /* a byte that both touch */
    const char *text; /* "race: 'net.c1' writes ... in phase 1 while ..." */
};
/* Vector clocks over prologue -> block -> block -> remainder -> epilogue, the host a stream of its
 * own. `without`: index of a wait to leave out (tests), or DR_NONE. */
struct dr_race dr_plan_prove(const struct dr_plan *p, uint32_t without, struct dr_arena *a);

/* ---- printing ---- */
void dr_plan_text(const struct dr_plan *p, const struct dr_device_info *dev, int verbose,
                  struct dr_text *t);
struct json_t;
struct json_t *dr_plan_json(const struct dr_plan *p, bool nodes); /* the `plan` object of --json */
void dr_plan_dot(const struct dr_plan *p, bool whole, struct dr_text *t);

#endif
