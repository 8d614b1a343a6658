/* The pointwise functions of kernels/maps.h over arrays on CUDA, stored as t and 16-byte aligned.
 * Returns a cudaError_t. */
#ifndef DR_KERNELS_CUDA_MAPS_H
#define DR_KERNELS_CUDA_MAPS_H
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include "kernels/maps.h"
#ifdef __cplusplus
extern "C" {
#endif
int dr_cuda_map(enum dr_type t, enum dr_fn fn, int64_t n, const struct dr_map_args *args,
                dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
