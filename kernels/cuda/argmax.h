/* argmax on CUDA; the semantics are those of kernels/cpu/argmax.h. x is stored as t. */
#ifndef DR_KERNELS_CUDA_ARGMAX_H
#define DR_KERNELS_CUDA_ARGMAX_H
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif
int dr_cuda_argmax(enum dr_type t, int64_t rows, int64_t k, const void *x, bool u8, void *y,
                   dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
