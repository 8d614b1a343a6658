/* Nearest and bilinear resizing on CUDA; the semantics are those of kernels/cpu/upsample.h. */
#ifndef DR_KERNELS_CUDA_UPSAMPLE_H
#define DR_KERNELS_CUDA_UPSAMPLE_H
#include "kernels/cuda/stream.h"
#include "kernels/upsample_shape.h"
#ifdef __cplusplus
extern "C" {
#endif
int dr_cuda_upsample_fprop(const struct dr_upsample *u, const float *x, float *y, dr_stream s);
int dr_cuda_upsample_dgrad(const struct dr_upsample *u, const float *dy, float *dx, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
