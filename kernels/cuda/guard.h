/* What stands between gradients and updates on CUDA: the factor of the updates and the guard. The
 * decisions are those of kernels/guard.h. Each function launches on `s` and returns a cudaError_t.
 */
#ifndef DR_KERNELS_CUDA_GUARD_H
#define DR_KERNELS_CUDA_GUARD_H

#include "kernels/batch.h"
#include "kernels/cuda/stream.h"
#include "kernels/guard.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DR_CUDA_SQUARES 16384 /* elements of one partial sum */
static inline int64_t dr_cuda_square_blocks(int64_t n) {
    return (n + DR_CUDA_SQUARES - 1) / DR_CUDA_SQUARES;
}
#define DR_CUDA_GRADIENTS 128 /* of one launch: they travel as arguments */
struct dr_cuda_gradients {
    uint32_t n;
    struct {
        const float *x;
        int64_t n;
    } at[DR_CUDA_GRADIENTS];
};
/* Sums of squares in double, dr_cuda_square_blocks of each gradient in turn, to partial. */
int dr_cuda_squares(const struct dr_cuda_gradients *g, double *partial, dr_stream s);
/* dr_clip_factor of n such partial sums; scale: device, or NULL. */
int dr_cuda_clip(const double *partial, int64_t n, double max_norm, const float *scale, float *out,
                 dr_stream s);

int dr_cuda_guard(const float *total, const struct dr_batch *header, int64_t *health, dr_stream s);
/* dr_scaler_update; factor: what dr_cuda_clip wrote. */
int dr_cuda_guard_scaled(const struct dr_scaler *c, const float *total, const float *factor,
                         const struct dr_batch *header, int64_t *health, float *scale,
                         int64_t *good, dr_stream s);

#ifdef __cplusplus
}
#endif
#endif
