/* Softmax, cross-entropy and accuracy over the last axis of [rows, k] on CUDA; the semantics are
 * those of kernels/cpu/softmax.h. Sums over rows go by fixed chunks, merged in order. Softmax's
 * values are stored as t, those of losses and metrics in fp32. */
#ifndef DR_KERNELS_CUDA_SOFTMAX_H
#define DR_KERNELS_CUDA_SOFTMAX_H

#include "kernels/batch.h"
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
int dr_cuda_softmax(enum dr_type t, int64_t rows, int64_t k, const void *x, void *y, dr_stream s);
int dr_cuda_softmax_dgrad(enum dr_type t, int64_t rows, int64_t k, const void *y, const void *dy,
                          void *dx, dr_stream s);

struct dr_cuda_classes {
    const void *target; /* [rows] u8 or i32, device */
    bool u8;
    int64_t rows, k, rows_per_sample, ignore;
    const struct dr_batch *header; /* device: n_valid */
    double smoothing;
    const double *class_weight; /* [k], HOST, or NULL; travels as kernel arguments */
};
/* Rows of one partial sum, of which there are about 1024 at most: whole tiles of short rows (a
 * thread each), or a few rows for each of 8 warps. Cut by the shape alone. */
#define DR_CUDA_SHORT_ROW 32
#define DR_CUDA_SHORT_TILE 128
static inline int64_t dr_cuda_class_chunk(int64_t rows, int64_t k) {
    const int64_t unit = k <= DR_CUDA_SHORT_ROW ? DR_CUDA_SHORT_TILE : 8;
    return ((rows + 1023) / 1024 + unit - 1) / unit * unit;
}
static inline int64_t dr_cuda_class_chunks(int64_t rows, int64_t k) {
    const int64_t chunk = dr_cuda_class_chunk(rows, k);
    return (rows + chunk - 1) / chunk;
}
/* Scratch of the loss, its gradient and accuracy, in bytes. */
static inline int64_t dr_cuda_classes_bytes(int64_t rows, int64_t k) {
    return (2 * dr_cuda_class_chunks(rows, k) + k) * (int64_t)sizeof(double);
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
