/* Dropout on CUDA: the same bits as kernels/cpu/dropout.h. */
#ifndef DR_KERNELS_CUDA_DROPOUT_H
#define DR_KERNELS_CUDA_DROPOUT_H
#include "kernels/cuda/stream.h"
#include "kernels/dropout.h"
#include "kernels/dtype.h"
#ifdef __cplusplus
extern "C" {
#endif
/* batch, x, y on the device; x and y are stored as t. */
int dr_cuda_dropout(enum dr_type t, const struct dr_dropout *d, const struct dr_batch *batch,
                    const void *x, void *y, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
