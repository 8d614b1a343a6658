/* The CUDA executor's part of a trace. The executor says what it launches, and for which node:
 *
 *   capturing   dr_trace_cuda_capture(t, true); walk; dr_trace_cuda_capture(t, false);
 *               instantiate; dr_trace_cuda_captured(t, ...)
 *   replaying   dr_trace_cuda_replay(t, b), cudaGraphLaunch, dr_trace_cuda_launched(t)
 *   uncaptured  dr_trace_cuda_block(t, ...), then around the launches of each node
 *               dr_trace_cuda_node and dr_trace_cuda_node_end
 *
 * Times come from CUPTI (cupti_cuda.h). Where that cannot be used, `by_events` is true: the
 * executor must not capture, and a pair of events around each node is timed instead; coarser, and
 * the launches are not those of a run without a trace. A trace never makes a run fail: records that
 * cannot be had are counted as dropped. All functions but open may be called with NULL. */
#ifndef DR_SCHEDULER_TRACE_CUDA_H
#define DR_SCHEDULER_TRACE_CUDA_H

#include "scheduler/trace.h"

#include <cuda_runtime_api.h>

struct dr_trace_cuda;
/* `note` says how times are taken where it is not by CUPTI. NULL (out of memory): no trace. */
struct dr_trace_cuda *dr_trace_cuda_open(struct dr_trace *t, const struct dr_plan *p, char *note,
                                         size_t note_bytes);
/* Records not yet handed over go to the trace; the device must be idle. */
void dr_trace_cuda_close(struct dr_trace_cuda *c);
bool dr_trace_cuda_by_events(const struct dr_trace_cuda *c);

void dr_trace_cuda_capture(struct dr_trace_cuda *c, bool on);
/* After the instantiation. False: its nodes cannot be told apart; by_events from now on, and the
 * graph must not be replayed. */
bool dr_trace_cuda_captured(struct dr_trace_cuda *c, char *note, size_t note_bytes);
void dr_trace_cuda_replay(struct dr_trace_cuda *c, int64_t b);
void dr_trace_cuda_launched(struct dr_trace_cuda *c);
void dr_trace_cuda_block(struct dr_trace_cuda *c, int64_t b, int64_t s0, int64_t s1,
                         cudaStream_t origin);
void dr_trace_cuda_node(struct dr_trace_cuda *c, uint32_t phase, uint32_t v, int64_t step,
                        cudaStream_t s);
void dr_trace_cuda_node_end(struct dr_trace_cuda *c, uint32_t phase, uint32_t v, cudaStream_t s);

#endif
