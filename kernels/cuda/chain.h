/* Chains of the pointwise functions of kernels/maps.h on CUDA; x and y are stored as `t`. Returns a
 * cudaError_t. */
#ifndef DR_KERNELS_CUDA_CHAIN_H
#define DR_KERNELS_CUDA_CHAIN_H
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include "kernels/maps.h"
#ifdef __cplusplus
extern "C" {
#endif
int dr_cuda_chain(enum dr_type t, int64_t n, const struct dr_map_chain *chain, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
