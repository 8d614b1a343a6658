/* Files of inference: `outputs:` of the YAML.
 *
 * Batches come in the order of the data set; every sample is written once, padding is not. An npy
 * file is written row by row and appears when all are there; a PNG file a sample appears at once.
 */
#ifndef DR_SCHEDULER_OUTPUTS_H
#define DR_SCHEDULER_OUTPUTS_H

#include "scheduler/session.h"

struct dr_outputs_files;
/* Opens the files of a session in inference mode. NULL: s->status, or an error in the sink. */
struct dr_outputs_files *dr_outputs_open(struct dr_session *s);
/* One batch. False: s->status. */
bool dr_outputs_add(struct dr_outputs_files *o, const struct dr_record *r);
/* `whole`: every batch came; else npy files are dropped. NULL is fine. False: s->status. */
bool dr_outputs_close(struct dr_outputs_files *o, bool whole);

#endif
