/* Softmax, cross-entropy and accuracy over the last axis of [rows, k] on CUDA; the semantics are
 * those of kernels/cpu/softmax.h. Sums over rows go by fixed chunks, merged in order. */
#ifndef DR_KERNELS_CUDA_SOFTMAX_H
#define DR_KERNELS_CUDA_SOFTMAX_H

#include "kernels/batch.h"
#include "kernels/cuda/stream.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
int dr_cuda_softmax(int64_t rows, int64_t k, const float *x, float *y, dr_stream s);
int dr_cuda_softmax_dgrad(int64_t rows, int64_t k, const float *y, const float *dy, float *dx,
                          dr_stream s);

struct dr_cuda_classes {
    const void *target; /* [rows] u8 or i32, device */
    bool u8;
    int64_t rows, k, rows_per_sample, ignore;
    const struct dr_batch *header; /* device: n_valid */
    double smoothing;
    const double *class_weight; /* [k], HOST, or NULL; travels as kernel arguments */
};
/* Scratch of the loss, its gradient and accuracy, in bytes. */
#define DR_CUDA_CLASS_ROWS 64 /* rows of one partial sum */
static inline int64_t dr_cuda_classes_bytes(int64_t rows, int64_t k) {
    return (2 * ((rows + DR_CUDA_CLASS_ROWS - 1) / DR_CUDA_CLASS_ROWS) + k) *
           (int64_t)sizeof(double);
}
int dr_cuda_cross_entropy(const struct dr_cuda_classes *c, const float *x, void *workspace,
                          float *mean, double *partial, dr_stream s);
/* dx = weight * d mean / dx; partial (device) is the loss's. */
int dr_cuda_cross_entropy_dgrad(const struct dr_cuda_classes *c, const float *x, double weight,
                                const double *partial, void *workspace, float *dx, dr_stream s);
int dr_cuda_accuracy(const struct dr_cuda_classes *c, int64_t top, const float *x, void *workspace,
                     double *partial, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
