/* --tune: which of the ways to compute a node is really the fastest on this card, and the file that
 * keeps it for later runs: $XDG_CACHE_HOME (or ~/.cache) /dagrun/tune-CARD.json. It is JSON:
 *
 *     {"dagrun": "0.1.0", "kernels": "8d21...", "device": "NVIDIA H200 (sm_90, 132 SMs)",
 *      "choices": {PROBLEM: {"kernel": NAME, "us": 41.2}, ...}}
 *
 * Problems that are not there keep the cost model's choice. What another version, other kernels or
 * another card measured is not used. */
#ifndef DR_SCHEDULER_TUNE_H
#define DR_SCHEDULER_TUNE_H

#include "scheduler/exec.h"
#include <signal.h>

struct dr_session; /* scheduler/session.h */

/* ---- the file (tune_file.c) ---- */

/* Of a card; NULL where there is no home for it. */
const char *dr_tuned_path(struct dr_arena *a, const char *card);
/* NULL where there is no such file, and after a warning where it cannot be used. */
const struct dr_tuned *dr_tuned_read(struct dr_arena *a, struct dr_diag *d, const char *path,
                                     const char *card);
/* 0 or errno. Creates folders; the file is replaced whole. */
int dr_tuned_write(const struct dr_tuned *t, const char *card);
/* Of the version and the kernels that can be chosen. */
const char *dr_tuned_kernels(struct dr_arena *a);

/* ---- measuring (tune.c) ---- */

/* A problem of the plan's graphs, and what each way took. */
struct dr_tune_problem {
    const struct dr_graph *g;
    uint32_t node;    /* one that has it */
    uint32_t n_nodes; /* that have it */
    uint32_t n, best; /* ways; way[0] is the cost model's */
    struct dr_choice way[DR_WAYS];
    double us[DR_WAYS];
    bool better; /* the best is at least DR_TUNE_GAIN faster than way[0]: worth keeping */
};
#define DR_TUNE_GAIN 0.03
struct dr_tuning {
    DR_VEC(struct dr_tune_problem) problem;
    const struct dr_tuned *tuned; /* what the file holds now; its path */
};
/* Measures the problems of a planned session and writes the file. False: s->status. */
bool dr_tune(struct dr_session *s, const volatile sig_atomic_t *stop, struct dr_tuning *t);
/* The table of --tune; verbose: every way. */
void dr_tune_text(const struct dr_tuning *t, bool verbose, struct dr_text *text);
struct json_t;
/* The objects of --tune --json. */
struct json_t *dr_tune_json(const struct dr_tuning *t);

#endif
