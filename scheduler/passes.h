/* From a model to a plan: the one array of passes.
 *
 * A pass rewrites the graph or annotates it (the plan is the side tables). `--dump PASS` prints
 * what is known after a pass. */
#ifndef DR_SCHEDULER_PASSES_H
#define DR_SCHEDULER_PASSES_H

#include "graph/passes.h"
#include "scheduler/plan.h"

struct dr_compile {
    /* set by the caller */
    struct dr_arena *arena;
    const struct dr_model *model;
    enum dr_graph_mode mode;
    int64_t total_steps; /* for learning rates */
    struct dr_plan_wish wish;
    const struct dr_device_info *dev;
    const char *dump_after; /* a pass: stop there and write `dump`; NULL */
    struct dr_text *dump;
    /* results */
    struct dr_graph *graph;
    struct dr_plan *plan;
    bool too_large; /* the plan does not fit the device: exit 3 */
};

/* Runs all passes, or up to dump_after. False after errors in the model's sink. */
bool dr_compile(struct dr_compile *c);

/* Their names, in order. */
uint32_t dr_pass_names(const char *const **names);

/* What the model's precision means on a device: DR_F16, DR_BF16 where it computes in them. */
enum dr_dtype dr_half_of(const struct dr_model *m, const struct dr_device_info *dev);

/* The wish that `schedule:` of a model states. */
struct dr_plan_wish dr_plan_wish_of(const struct dr_model *m);

#endif
