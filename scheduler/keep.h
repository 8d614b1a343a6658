/* Files that a training run keeps while it goes on: train.log, train.save and --save.
 *
 * The log is CSV with a line a step: step, epoch, learning rates, losses; and, in the line of the
 * step after which an evaluation ran, the evaluation's losses and metrics. A resumed run goes on
 * with the log it finds. train.save is written at the end, or with `best:` whenever an evaluation
 * was better than all before it (a metric: larger; a loss: smaller); --save at the end. An
 * interrupted run saves too, one that failed does not. */
#ifndef DR_SCHEDULER_KEEP_H
#define DR_SCHEDULER_KEEP_H

#include "scheduler/run.h"

#include <stdio.h>

struct dr_keep {
    struct dr_session *s;
    FILE *log;
    bool row; /* a line without its end */
    uint32_t eval_columns;
    double best; /* NaN: no evaluation so far */
};

/* Finds out what cannot be written before the run. Restores the sums of a resumed run. False:
 * an error in the sink. */
bool dr_keep_open(struct dr_keep *k, struct dr_session *s, struct dr_results *r);
void dr_keep_step(struct dr_keep *k, int64_t step, const struct dr_tally *t);
/* The session is drained. */
bool dr_keep_evaluated(struct dr_keep *k, const struct dr_tally *eval);
/* `save`: the run is over or was interrupted; the session is drained. */
bool dr_keep_close(struct dr_keep *k, const struct dr_results *r, bool save);

#endif
