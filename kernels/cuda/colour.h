/* color_jitter and grayscale on CUDA: kernels/cpu/colour.h with the same bits. */
#ifndef DR_KERNELS_CUDA_COLOUR_H
#define DR_KERNELS_CUDA_COLOUR_H

#include "kernels/colour.h"
#include "kernels/cuda/stream.h"

#ifdef __cplusplus
extern "C" {
#endif
/* Scratch for the sums of greys, where contrast is on: one a block of pixels. */
#define DR_CUDA_GREYS 4096 /* pixels of a sum */
static inline int64_t dr_cuda_colour_bytes(const struct dr_colour *c) {
    const int64_t sums = (c->pixels + DR_CUDA_GREYS - 1) / DR_CUDA_GREYS;
    return !c->grayscale && c->on[DR_CONTRAST] ? c->n * sums * (int64_t)sizeof(int64_t) : 0;
}
/* Launches on `s`, twice where contrast is on; returns a cudaError_t. */
int dr_cuda_colour(const struct dr_colour *c, const struct dr_batch *batch, const void *x, void *y,
                   void *workspace, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
