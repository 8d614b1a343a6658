/* The command line: what its files share. Results go to stdout (or -o FILE), all else to stderr. */
#ifndef DR_SCHEDULER_CLI_H
#define DR_SCHEDULER_CLI_H

#include "scheduler/run.h"

#define DR_VERSION "0.1.0"

enum dr_cli_mode {
    DR_CLI_RUN,
    DR_CLI_CHECK,
    DR_CLI_PLAN,
    DR_CLI_DOT,
    DR_CLI_BENCH,
    DR_CLI_VERIFY,
    DR_CLI_EVAL,
    DR_CLI_INFER,
    DR_CLI_TUNE,
    DR_CLI_DUMP,
    DR_CLI_OPS,
    DR_CLI_HELP,
    DR_CLI_VERSION,
};

struct dr_cli {
    enum dr_cli_mode mode;
    const char *model;                /* or the op of --ops; NULL */
    const char *device;               /* NULL: cpu */
    const char *out;                  /* -o; NULL: stdout */
    const char *dump;                 /* a pass */
    const char *trace;                /* a file; NULL */
    const char *load, *save, *resume; /* weights files; NULL */
    const char **sets;
    uint32_t n_sets, threads;
    int64_t steps; /* 0: not given */
    bool json, quiet, verbose;
    struct dr_arena *arena;
    struct dr_text text; /* what goes to -o */
};

/* The whole program: an exit code. */
int dr_cli_main(int argc, char **argv);
/* One mode, after the command line was read. */
int dr_cli_mode_run(struct dr_cli *c);
void dr_cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- modes with files of their own ---- */
struct dr_bench {
    int64_t steps; /* measured */
    double seconds, median_s, p5_s, p95_s, waited_s;
    double images_per_s, steps_per_s;
    double host_us; /* a step: in the executor's launches of whole blocks; NaN: there were none */
    uint64_t peak_host_bytes;
};
/* Times `steps` steps of a started session after a warm-up. */
bool dr_bench(struct dr_session *s, int64_t steps, struct dr_bench *b);

struct dr_verify {
    int64_t steps;
    uint32_t states, frozen, values; /* compared */
    const char *difference;          /* NULL: none */
};
/* Runs a planned (not started) session as planned and sequentially. False: s->status. */
bool dr_verify(struct dr_session *s, int64_t steps, const volatile sig_atomic_t *stop,
               struct dr_verify *v);

/* ---- reports ---- */
struct json_t;
/* The object of --json; r and b may be NULL. */
struct json_t *dr_report_json(const struct dr_session *s, const struct dr_results *r,
                              const struct dr_bench *b, bool nodes);
/* The precision that is really used: "fp32". */
const char *dr_report_precision(const struct dr_session *s);
/* "planned 1.2 MiB, in use 1.5 MiB, bound 1.1 MiB" of a session that was started. */
void dr_report_memory(const struct dr_session *s, struct dr_text *t);
/* "trace: 512 blocks, GPU idle 1.3 % (...)"; the trace is finished. */
void dr_report_trace(const struct dr_session *s, const char *file, struct dr_text *t);
void dr_report_check(const struct dr_session *s, struct dr_text *t);
void dr_report_layers(const struct dr_session *s, struct dr_text *t);
/* "ce 0.0213, accuracy 0.9861" */
void dr_report_numbers(const struct dr_tally *t, bool last, struct dr_text *out);

/* ---- the progress bar, only where stderr is a terminal ---- */
struct dr_progress {
    bool on;
    int64_t first, total, drawn_step; /* first: done before, by a run that is resumed */
    double start_s, drawn_s;
};
void dr_progress_start(struct dr_progress *p, int64_t first, int64_t total, bool wanted);
void dr_progress_step(struct dr_progress *p, int64_t step, double loss);
void dr_progress_clear(struct dr_progress *p); /* before other output, and at the end */

/* ---- --ops ---- */
const struct dr_op *dr_ops_doc_find(const char *name, const char **nearest);
void dr_ops_doc_text(const struct dr_op *only, struct dr_text *t);
struct json_t *dr_ops_doc_schema(const struct dr_op *only);

#endif
