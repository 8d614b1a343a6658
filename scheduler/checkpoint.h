/* What a training run leaves behind and goes on from.
 *
 * A weights file (train.save) has weights and buffers, in PyTorch's layout under their full names.
 * A checkpoint (--save in training) has them too, then what else a step changes, as it is in memory
 * ("net.c1.weight:sgd.momentum"), and notes: the step, what draws are keyed by, the sums of the
 * epoch that was under way, the best metric so far and which one it is, and a hash of the kernels
 * chosen. A run that goes on from it computes the bits of one that was never interrupted. Where
 * `best:` names another metric, it begins afresh, with a warning; a best value without a name, of
 * a dagrun that wrote none, is taken for the model's, with another. Both files are read by
 * `weights:` and --load. */
#ifndef DR_SCHEDULER_CHECKPOINT_H
#define DR_SCHEDULER_CHECKPOINT_H

#include "scheduler/run.h"

/* Writes the states of a drained session; `r` NULL: weights and buffers only. `best`: NaN, none. */
bool dr_checkpoint_write(struct dr_session *s, const char *path, const struct dr_results *r,
                         double best);
/* --resume, after weights were matched: finds the other states, checks that the run can go on, sets
 * s->first_step. */
bool dr_checkpoint_open(struct dr_session *s);
/* Hash of the kernels that the plan has chosen, by name, in the order of the nodes; on CUDA of the
 * device too: another GPU may sum in another order. */
const char *dr_checkpoint_kernels(struct dr_session *s);
/* The sums of the epoch under way and the best metric (NaN: none, or another one)
 * of a session that was resumed. */
void dr_checkpoint_restore(const struct dr_session *s, struct dr_tally *t, double *best);

#endif
