/* Kernels that only move values: NHWC <-> CHW order, and column blocks (concat and its gradient).
 */
#ifndef DR_KERNELS_CUDA_SHAPE_H
#define DR_KERNELS_CUDA_SHAPE_H
#include "kernels/cuda/stream.h"
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* x [n, rows, cols] -> y [n, cols, rows], 4-byte items. */
int dr_cuda_transpose(int64_t n, int64_t rows, int64_t cols, const void *x, void *y, dr_stream s);
/* to[r, to_at + i] = from[r, from_at + i] for i < width: rows of 4-byte items at their own pitch.
 */
int dr_cuda_copy_columns(int64_t rows, int64_t width, const void *from, int64_t from_pitch,
                         int64_t from_at, void *to, int64_t to_pitch, int64_t to_at, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
