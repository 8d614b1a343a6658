/* A session: one YAML file on one device. Everything that the modes of the CLI and the embedding
 * API share: the model, its data, graphs, plans, the slab and the lanes.
 *
 * Calls are made in the order in which they stand here; each returns false after a failure. Then
 * either the sink has the user's mistakes, or `status` says what failed; dr_session_exit tells
 * which exit code belongs to it. Nothing is printed. */
#ifndef DR_SCHEDULER_SESSION_H
#define DR_SCHEDULER_SESSION_H

#include "graph/weights.h"
#include "scheduler/lane.h"
#include "scheduler/passes.h"
#include "scheduler/state.h"

struct dr_session {
    struct dr_arena *arena;
    struct dr_diag *diag;
    struct dr_model *model;
    struct dr_status status;

    const struct dr_exec_ops *ops;
    void *device;
    struct dr_device_info dev;
    uint32_t threads;

    enum dr_graph_mode mode;
    struct dr_dataset *data, *eval_data; /* NULL before dr_session_data */
    uint32_t split, eval_split;          /* theirs, indexes of the model */
    int64_t batches;                     /* of an epoch; 0: data not opened */
    int64_t total_steps;

    struct dr_compile main, eval; /* eval: beside training, where the YAML has one */
    bool with_eval;

    /* Files of the command line; set before dr_session_weights; NULL: none. */
    const char *load, *resume, *save;
    struct dr_weights_files weights;
    bool matched;
    const struct dr_tensor **tensor, **eval_tensor; /* by value of either graph: its tensor */
    const struct dr_safetensors *checkpoint;        /* of --resume */
    int64_t first_step;                             /* steps done before: of the checkpoint */

    struct dr_slab slab;
    struct dr_trace *trace; /* made before dr_session_start where one is wanted; owned here */
    struct dr_lane lane, eval_lane;
};

struct dr_session *dr_session_create(void);
void dr_session_destroy(struct dr_session *s); /* NULL is fine */

/* Reads and checks the YAML. */
bool dr_session_load(struct dr_session *s, const char *path, const char *const *sets,
                     uint32_t n_sets);
/* "cpu" | "cuda" | "cuda:N" (NULL: cpu); threads 0: all online cores. */
bool dr_session_device(struct dr_session *s, const char *which, uint32_t threads);
/* Opens the splits that a mode reads; settles batches and total_steps. Without it (planning only)
 * an epoch counts as one step. */
bool dr_session_data(struct dr_session *s, enum dr_graph_mode mode);
/* In place of it: warns of files that a run of the mode would not find. */
void dr_session_warn_data(struct dr_session *s, enum dr_graph_mode mode);
/* Graph and plan of the mode; for training also of the evaluation. `dump_after`: a pass, or NULL.
 */
bool dr_session_plan(struct dr_session *s, enum dr_graph_mode mode, const char *dump_after,
                     struct dr_text *dump);
/* Finds the tensor of every state of the planned graphs in the weights files; nothing is loaded
 * yet. `planning`: a file that is not there is worth a warning only. Once a session. */
bool dr_session_weights(struct dr_session *s, bool planning);
/* Weights, slab, initial states, lanes. `stop`: set by a signal handler, or NULL. */
bool dr_session_start(struct dr_session *s, const volatile sig_atomic_t *stop);

struct dr_memory dr_session_memory(const struct dr_session *s);
enum dr_exit dr_session_exit(const struct dr_session *s);
/* Sets status and returns false. */
bool dr_session_fail(struct dr_session *s, enum dr_exit code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool dr_session_check(struct dr_session *s, struct dr_status status);

#endif
