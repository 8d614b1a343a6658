/* Element by element, scalars of a step, and the two augmentation ops, on CUDA. The semantics are
 * those of kernels/cpu (pointwise.h, augment.h); draws are the same bits. Each function
 * launches on `s` and returns a cudaError_t. */
#ifndef DR_KERNELS_CUDA_POINTWISE_H
#define DR_KERNELS_CUDA_POINTWISE_H

#include "kernels/batch.h"
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y = act(x[0] + x[1] + ...), left to right; all stored as t, 16-byte aligned. What more inputs
 * than those of one launch add up to passes through y. */
#define DR_CUDA_ADDENDS 128
int dr_cuda_add(enum dr_type t, int64_t n, const void *const *x, uint32_t n_x, int act, void *y,
                dr_stream s);

/* ---- scalars of a step ---- */
/* More than 128 losses take several launches. */
int dr_cuda_total_loss(const void *const *loss, const double *weight, uint32_t n, float *out,
                       dr_stream s);
struct dr_cuda_lr {
    double base, end, gamma;
    int schedule; /* 0 constant, 1 cosine, 2 step */
    int64_t warmup, every, total;
};
int dr_cuda_lr(const struct dr_cuda_lr *lr, const struct dr_batch *header, float *out, dr_stream s);

/* ---- augmentation ---- */
/* y[i] = x[i] flipped by sample i's draw; [n, h, w] pixels of `pixel` bytes. */
int dr_cuda_flip(bool horizontal, bool vertical, double p, uint64_t seed, uint64_t key,
                 const struct dr_batch *batch, const void *x, void *y, int64_t n, int64_t h,
                 int64_t w, int64_t pixel, dr_stream s);
/* y = x * mul + add for channels [c0, c0 + n) of x, y [rows, c]; x is u8, or stored as from, y as
 * to. */
#define DR_CUDA_CHANNELS 64 /* of one launch: the factors travel as arguments */
struct dr_cuda_affine {
    int64_t c0, n;
    float mul[DR_CUDA_CHANNELS], add[DR_CUDA_CHANNELS];
};
int dr_cuda_normalize(enum dr_type from, bool u8, const void *x, enum dr_type to, void *y,
                      int64_t rows, int64_t c, const struct dr_cuda_affine *a, dr_stream s);

#ifdef __cplusplus
}
#endif
#endif
