/* Dropout on CUDA: the same bits as kernels/cpu/dropout.h. */
#ifndef DR_KERNELS_CUDA_DROPOUT_H
#define DR_KERNELS_CUDA_DROPOUT_H
#include "kernels/cuda/stream.h"
#include "kernels/dropout.h"
#ifdef __cplusplus
extern "C" {
#endif
/* batch, x, y on the device. */
int dr_cuda_dropout(const struct dr_dropout *d, const struct dr_batch *batch, const float *x,
                    float *y, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
