/* Kernels that only move values: transposes, column blocks (concat and its gradient), borders; the
 * semantics are those of kernels/cpu/layout.h. */
#ifndef DR_KERNELS_CUDA_SHAPE_H
#define DR_KERNELS_CUDA_SHAPE_H
#include "kernels/cuda/stream.h"
#include "kernels/layout_shape.h"
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* x [n, rows, cols] -> y [n, cols, rows], items of `unit` (2 or 4) bytes. */
int dr_cuda_transpose(int64_t n, int64_t rows, int64_t cols, int64_t unit, const void *x, void *y,
                      dr_stream s);
/* `rows` runs of `bytes`, each side with its own step in bytes (kernels/cpu/layout.h). */
int dr_cuda_copy_rows(int64_t rows, int64_t bytes, const void *from, int64_t from_step, void *to,
                      int64_t to_step, dr_stream s);
int dr_cuda_permute(const struct dr_permute *p, const void *x, void *y, dr_stream s);
/* value: host, of `unit` bytes, which divide b->bytes. */
int dr_cuda_pad(const struct dr_border *b, int64_t unit, const void *value, const void *x, void *y,
                dr_stream s);
int dr_cuda_crop(const struct dr_border *b, const void *x, void *y, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
