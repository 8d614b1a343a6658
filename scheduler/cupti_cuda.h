/* CUPTI, NVIDIA's tracing library: when each kernel, copy and fill ran on the device, and for whom.
 *
 * The library is loaded when a trace is asked for; nothing is linked. There is one open handle a
 * process. Whom a record belongs to is said by tags, numbers of the caller's that are not 0:
 *   - a launch carries the tag that its thread pushed around it (CUPTI's external correlation);
 *   - a node of a graph carries the tag set when its thread created it in a capture, also in the
 *     clones that instantiation makes (CUPTI's resource callbacks).
 * All functions may be called with NULL. */
#ifndef DR_SCHEDULER_CUPTI_CUDA_H
#define DR_SCHEDULER_CUPTI_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dr_cupti;
/* Takes memory for `room` records. NULL: `why` says what failed. */
struct dr_cupti *dr_cupti_open(uint64_t room, char *why, size_t why_bytes);
void dr_cupti_close(struct dr_cupti *c);

void dr_cupti_push(struct dr_cupti *c, uint64_t tag);
void dr_cupti_pop(struct dr_cupti *c);
void dr_cupti_tag_nodes(struct dr_cupti *c, uint64_t tag); /* 0: no longer */
uint64_t dr_cupti_tagged(struct dr_cupti *c);              /* nodes so far, clones included */

struct dr_cupti_record {
    uint64_t start_ns, end_ns;
    uint64_t launch_tag, node_tag; /* 0: none */
    const char *kernel;            /* its symbol, "copy" or "fill"; good until the process ends */
    bool in_graph;
};
/* Hands over all records so far and forgets them; the device must be idle. */
void dr_cupti_collect(struct dr_cupti *c, void (*take)(void *ctx, const struct dr_cupti_record *r),
                      void *ctx);
uint64_t dr_cupti_lost(struct dr_cupti *c); /* records that found no room, since the last call */

#endif
