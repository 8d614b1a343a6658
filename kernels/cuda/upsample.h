/* Nearest and bilinear resizing on CUDA; the semantics are those of kernels/cpu/upsample.h. x, y,
 * dy and dx are stored as t. */
#ifndef DR_KERNELS_CUDA_UPSAMPLE_H
#define DR_KERNELS_CUDA_UPSAMPLE_H
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include "kernels/upsample_shape.h"
#ifdef __cplusplus
extern "C" {
#endif
int dr_cuda_upsample_fprop(enum dr_type t, const struct dr_upsample *u, const void *x, void *y,
                           dr_stream s);
int dr_cuda_upsample_dgrad(enum dr_type t, const struct dr_upsample *u, const void *dy, void *dx,
                           dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
