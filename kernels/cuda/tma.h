/* Tensor maps: what the tensor copy engine of sm_90 knows of a tensor. They are encoded on the host
 * and passed to kernels by value (__grid_constant__), so that launches can be captured. */
#ifndef DR_KERNELS_CUDA_TMA_H
#define DR_KERNELS_CUDA_TMA_H
#include "kernels/dtype.h"
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* Whether the driver can encode tensor maps. */
bool dr_tma_found(void);
/* A map of `rank` dimensions, innermost first, of `t` at `base` (16-byte aligned). size[rank] in
 * elements, stride[rank - 1] in bytes of dimensions 1 and up (multiples of 16), box[rank] in
 * elements (at most 256; the innermost at most 128 bytes). Shared memory is swizzled by 128 bytes;
 * what a box has outside of the tensor is read as zeros. False: the driver will not have it. */
bool dr_tma_map(CUtensorMap *map, enum dr_type t, const void *base, int rank, const int64_t *size,
                const int64_t *stride, const int *box);
#ifdef __cplusplus
}
#endif
#endif
