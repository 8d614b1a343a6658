/* Cross-entropy against shares of classes on CUDA; the semantics are those of
 * kernels/cpu/soft_labels.h. Each function launches on `s` and returns a cudaError_t. */
#ifndef DR_KERNELS_CUDA_SOFT_LABELS_H
#define DR_KERNELS_CUDA_SOFT_LABELS_H

#include "kernels/batch.h"
#include "kernels/cuda/stream.h"
#include "kernels/soft_labels.h"

#ifdef __cplusplus
extern "C" {
#endif
#define DR_CUDA_SOFT_ROWS 64 /* rows of one partial sum */
static inline int64_t dr_cuda_soft_labels_bytes(int64_t rows) {
    return (rows + DR_CUDA_SOFT_ROWS - 1) / DR_CUDA_SOFT_ROWS * 2 * (int64_t)sizeof(double);
}
int dr_cuda_soft_labels(const struct dr_soft_labels *l, const struct dr_batch *header,
                        const float *x, void *workspace, float *mean, double *partial, dr_stream s);
/* partial (device) is the loss's. */
int dr_cuda_soft_labels_dgrad(const struct dr_soft_labels *l, const struct dr_batch *header,
                              const float *x, double weight, const double *partial, float *dx,
                              dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
