/* Batch normalization and max pooling on CUDA; the semantics are those of kernels/cpu/norm.h and
 * max_pool.h. x, y, dy and dx are stored as t, channels' numbers in fp32. Statistics are summed
 * over fixed chunks of rows, short runs in fp32 and those in double, and merged in order. */
#ifndef DR_KERNELS_CUDA_NORM_H
#define DR_KERNELS_CUDA_NORM_H
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include "kernels/pool_shape.h"
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* Scratch of the functions that take a workspace, bytes. */
static inline int64_t dr_cuda_norm_chunk(int64_t rows) { /* rows of a partial sum: 512 at most */
    const int64_t r = (rows + 511) / 512;
    return r < 64 ? 64 : r;
}
static inline int64_t dr_cuda_norm_bytes(int64_t rows, int64_t c) {
    const int64_t chunk = dr_cuda_norm_chunk(rows);
    return (rows + chunk - 1) / chunk * 2 * c * (int64_t)sizeof(double);
}
/* Means and biased variances of the columns of x [rows, c]. */
int dr_cuda_norm_stats(enum dr_type t, int64_t rows, int64_t c, const void *x, void *workspace,
                       float *mean, float *var, dr_stream s);
int dr_cuda_norm_apply(enum dr_type t, int64_t rows, int64_t c, const void *x, const float *mean,
                       const float *var, const float *gamma, const float *beta, double eps,
                       const void *add, int act, void *y, dr_stream s);
int dr_cuda_norm_wgrad(enum dr_type t, int64_t rows, int64_t c, const void *x, const void *dy,
                       const float *mean, const float *var, double eps, void *workspace,
                       float *dgamma, float *dbeta, dr_stream s);
/* dgamma, dbeta NULL: stored statistics; x and mean are not read then. */
int dr_cuda_norm_dgrad(enum dr_type t, int64_t rows, int64_t c, const void *x, const void *dy,
                       const float *mean, const float *var, const float *gamma, const float *dgamma,
                       const float *dbeta, double eps, void *dx, dr_stream s);
/* running = (1 - momentum) * running + momentum * batch while health[0] == 0; unbiased scales var.
 */
int dr_cuda_norm_track(int64_t c, const float *mean, const float *var, double momentum,
                       double unbiased, const int64_t *health, float *running_mean,
                       float *running_var, dr_stream s);

int dr_cuda_max_pool_fprop(enum dr_type t, const struct dr_pool *p, const void *x, void *y,
                           dr_stream s);
/* Bytes of a place in a window, and workspace of the gradient: a place for each of y. */
static inline int64_t dr_cuda_max_pool_place_bytes(const struct dr_pool *p) {
    return p->kh * p->kw <= 256 ? 1 : 4;
}
static inline int64_t dr_cuda_max_pool_bytes(const struct dr_pool *p) {
    return p->n * p->ho * p->wo * p->c * dr_cuda_max_pool_place_bytes(p);
}
int dr_cuda_max_pool_dgrad(enum dr_type t, const struct dr_pool *p, const void *x, const void *dy,
                           void *workspace, void *dx, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
