/* Average pooling on CUDA; the semantics are those of kernels/cpu/avg_pool.h. x, y, dy and dx are
 * stored as t. */
#ifndef DR_KERNELS_CUDA_AVG_POOL_H
#define DR_KERNELS_CUDA_AVG_POOL_H
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include "kernels/pool_shape.h"
#ifdef __cplusplus
extern "C" {
#endif
int dr_cuda_avg_pool_fprop(enum dr_type t, const struct dr_pool *p, int count_pad, const void *x,
                           void *y, dr_stream s);
int dr_cuda_avg_pool_dgrad(enum dr_type t, const struct dr_pool *p, int count_pad, const void *dy,
                           void *dx, dr_stream s);
/* y [n, c]: the means of x [n, rows, c], each by one block in a fixed order. */
int dr_cuda_global_avg_pool(enum dr_type t, int64_t n, int64_t rows, int64_t c, const void *x,
                            void *y, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
