/* The proof's own parts: layout checks (proof_layout.c), shadow memory (proof_shadow.c) and the
 * walk (proof.c). Nothing that makes plans may include this, and the proof includes nothing of
 * theirs. */
#ifndef DR_SCHEDULER_PROOF_H
#define DR_SCHEDULER_PROOF_H

#include "scheduler/plan.h"

/* What a byte may hold besides values. */
#define DR_PROOF_NOTHING UINT32_MAX
#define DR_PROOF_WORKSPACE (UINT32_MAX - 1)
#define DR_PROOF_RING (UINT32_MAX - 2)
#define DR_PROOF_RECORD (UINT32_MAX - 3)

struct dr_proof_range { /* elementary byte ranges [from, to) */
    uint32_t from, to;
};

struct dr_epoch { /* one access; node DR_NONE: the host */
    uint32_t stream, time, seq, node, phase, value;
};

struct dr_tag { /* what the bytes hold: a value, as `writer` left it in step `step` */
    uint32_t value, writer;
    int64_t step;
};

struct dr_shadow {
    struct dr_epoch write; /* time 0: none */
    struct dr_tag tag;
    uint64_t readers; /* streams with a read since the last write */
};

struct dr_proof {
    const struct dr_plan *p;
    const struct dr_graph *g;
    struct dr_arena *a, *out; /* scratch; of the result's text */
    uint32_t width;           /* of a clock: the streams and the host */
    /* layout */
    uint64_t *edge; /* sorted borders of elementary ranges */
    uint32_t n_edge;
    struct dr_proof_range *operand, *workspace; /* by phase and operand; by node */
    uint32_t n_ranges;                          /* with those that stand for host memory */
    /* shadow memory */
    struct dr_shadow *shadow;
    struct dr_epoch *read; /* [ranges][width], valid where the shadow's bit is set */
    /* the access being checked */
    const uint32_t *clock; /* of its stream */
    struct dr_epoch current;
    /* the latest access that it races with */
    bool found, other_writes, current_writes;
    struct dr_epoch other;
    uint32_t value, range;
    struct dr_race lie; /* the first read that found something else than it should */
};

/* False, with *race filled, where the plan is none: lists, waits or addresses make no sense. */
bool dr_proof_structure(struct dr_proof *c, struct dr_race *race);
/* Elementary ranges of all operands; `extra` more follow them. */
void dr_proof_layout(struct dr_proof *c, uint32_t extra);
/* State values hold what their first operand's address holds when a run begins. */
void dr_proof_initial(struct dr_proof *c);

void dr_proof_read(struct dr_proof *c, struct dr_proof_range r, uint32_t value,
                   struct dr_tag expected);
void dr_proof_write(struct dr_proof *c, struct dr_proof_range r, uint32_t value, struct dr_tag tag);
/* The race found at the current access, in words. */
struct dr_race dr_proof_race(const struct dr_proof *c);

#endif
