/* gaussian_blur on CUDA: kernels/cpu/blur.h with the same bits. */
#ifndef DR_KERNELS_CUDA_BLUR_H
#define DR_KERNELS_CUDA_BLUR_H

#include "kernels/blur.h"
#include "kernels/cuda/stream.h"

#ifdef __cplusplus
extern "C" {
#endif
/* One launch on `s`; returns a cudaError_t. */
int dr_cuda_blur(const struct dr_blur *b, const struct dr_batch *batch, const void *x, void *y,
                 dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
