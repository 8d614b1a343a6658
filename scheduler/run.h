/* Running a started session: training with evaluations between epochs, or one pass over a split.
 *
 * Losses: per step the mean over the batch; per epoch the mean over its samples (sum and count
 * added up over the batches), which is also what the results hold: the mean over the last epoch
 * (or what was run of it); a step that loss scaling skipped counts only if its loss is finite.
 * Metrics: of the last evaluation. */
#ifndef DR_SCHEDULER_RUN_H
#define DR_SCHEDULER_RUN_H

#include "scheduler/session.h"

struct dr_number {
    const char *name;
    double last; /* of the last step; metrics: NaN */
    double mean; /* losses: over the epoch; metrics: the value */
};

struct dr_tally { /* numbers of one graph's terms, added up over batches */
    const struct dr_graph *g;
    uint32_t n_losses, n_metrics;
    struct dr_number *loss, *metric;
    double total_last, total_mean; /* the weighted sum; NaN where there is no loss */
    double **sum;                  /* by term: its partial, added up */
    int64_t steps;                 /* in the sums */
};

struct dr_watcher { /* any may be NULL */
    void (*step)(void *ctx, int64_t step, const struct dr_tally *t);
    void (*epoch)(void *ctx, int64_t epoch, int64_t steps, const struct dr_tally *t);
    void (*evaluated)(void *ctx, int64_t steps, const struct dr_tally *t);
    /* Every record as it is (verify). False: stop. */
    bool (*record)(void *ctx, const struct dr_record *r);
    void *ctx;
};

struct dr_results {
    int64_t first;  /* a resumed run: done before */
    int64_t steps;  /* done, those before included */
    double seconds; /* of the steps, without evaluations */
    struct dr_tally train, eval;
    bool evaluated;
    double loss_scale; /* after the last step; 0: losses are not scaled */
    int64_t skipped;   /* steps that updated nothing, because gradients were not finite */
};

/* Trains up to step `steps` (0: as the YAML says) and keeps what the YAML and the command line want
 * (keep.h, outputs.h), or passes once over the split in the other modes.
 * Frozen checksums are compared before and after. False: s->status (interrupted, a loss that is
 * not finite, a failure); what was done until then is in *r. */
bool dr_run(struct dr_session *s, int64_t steps, const struct dr_watcher *w, struct dr_results *r);

#endif
