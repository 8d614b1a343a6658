/* Small real models, run on a device as a plan says, and what a run leaves behind: every record and
 * every state, to be compared bit for bit with another run's.
 *
 *     runs_open(&r, runs_classifier, DR_MODE_TRAIN, NULL);
 *     struct dr_plan *p = runs_plan(&r, arena, &wish);
 *     runs_lane_open(&l, &r, p, NULL);
 *     runs_lane_run(&l, steps, &tape);             as often as wanted; states start afresh
 *
 * Calls return false after a failure, which runs_why tells. */
#ifndef DR_TESTS_FAKE_RUNS_H
#define DR_TESTS_FAKE_RUNS_H

#include "scheduler/run.h"

/* A convolution, batch norm, pool and linear classifier; random flips, a frozen encoder and a
 * decoder with masks; branches, some frozen, with two losses. Synthetic data. */
extern const char runs_classifier[], runs_segment[], runs_branches[];

struct runs {
    struct dr_session *s;
    char *folder, *yaml;
    /* Called after the initial states are in the slab; NULL. */
    bool (*states)(struct runs *r, const struct dr_memory *m, const struct dr_plan *p);
};

/* The device of all that is opened from now on: "cpu", "cuda". On a CPU copies get a stage of their
 * own too, so that plans are what they are on a GPU. */
void runs_on(const char *device);

/* `sets` ends with NULL; NULL: none. */
bool runs_open(struct runs *r, const char *yaml, enum dr_graph_mode mode, const char *const *sets);
void runs_close(struct runs *r);
const char *runs_why(const struct runs *r);
/* The value called `name`; asserts that it is there. */
uint32_t runs_value(const struct runs *r, const char *name);

struct dr_plan_wish runs_wish(enum dr_policy policy, int32_t streams, int32_t depth, bool graph);
struct dr_plan *runs_plan(struct runs *r, struct dr_arena *a, struct dr_plan_wish wish);
const char *runs_wish_text(struct dr_arena *a, struct dr_plan_wish wish);
/* The same plan without one wait. */
struct dr_plan *runs_without_wait(const struct dr_plan *p, uint32_t gone, struct dr_arena *a);

struct runs_tape {
    int64_t steps;
    size_t record_bytes;
    unsigned char *records, *states; /* states one after another, by id */
};
void runs_tape_free(struct runs_tape *t);
/* The first difference in words, or NULL. */
const char *runs_difference(const struct runs *r, struct dr_arena *a, const struct runs_tape *x,
                            const struct runs_tape *y);
/* A value that is read back, in one step. */
const void *runs_tape_value(const struct runs *r, const struct runs_tape *t, int64_t step,
                            uint32_t value);
/* Where a state stands in tape->states. */
const float *runs_tape_state(const struct runs *r, const struct runs_tape *t, uint32_t value);

struct runs_lane {
    struct runs *r;
    const struct dr_plan *plan;
    struct dr_slab slab;
    struct dr_lane lane;
    dr_on_record *on_record; /* NULL */
    void *ctx;
};
bool runs_lane_open(struct runs_lane *l, struct runs *r, const struct dr_plan *p,
                    const uint32_t *delay_us);
void runs_lane_close(struct runs_lane *l);
const char *runs_lane_note(const struct runs_lane *l); /* "": nothing to tell */
/* Fresh states, then `steps` steps; the tape (NULL: none) is filled and is the caller's. */
bool runs_lane_run(struct runs_lane *l, int64_t steps, struct runs_tape *t);
/* A lane for one run. */
bool runs_once(struct runs *r, const struct dr_plan *p, const uint32_t *delay_us, int64_t steps,
               struct runs_tape *t);

#endif
