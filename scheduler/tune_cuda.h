/* Timing the ways to compute a node on a CUDA device, for --tune. */
#ifndef DR_SCHEDULER_TUNE_CUDA_H
#define DR_SCHEDULER_TUNE_CUDA_H

#include "scheduler/exec.h"

/* dr_exec_ops.measure. Memory for the node's operands is taken and given back. */
struct dr_status dr_cuda_measure(void *device, const struct dr_graph *g, uint32_t v,
                                 const struct dr_choice *way, uint32_t n, double *us);

#endif
