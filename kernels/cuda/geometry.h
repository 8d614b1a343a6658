/* Crops, resizing, rotation on CUDA: kernels/cpu/geometry.h with the same bits. Each function makes
 * one launch for DR_PLANES planes on `s` and returns a cudaError_t. */
#ifndef DR_KERNELS_CUDA_GEOMETRY_H
#define DR_KERNELS_CUDA_GEOMETRY_H

#include "kernels/cuda/stream.h"
#include "kernels/resample.h"
#include "kernels/turn.h"

#ifdef __cplusplus
extern "C" {
#endif
int dr_cuda_resample(const struct dr_resample *r, const struct dr_batch *batch,
                     const struct dr_plane *planes, uint32_t n_planes, dr_stream s);
int dr_cuda_turn(const struct dr_turn *t, const struct dr_batch *batch,
                 const struct dr_plane *planes, uint32_t n_planes, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
