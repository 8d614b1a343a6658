/* Sums of columns on CUDA: gradients by biases. Returns a cudaError_t. */
#ifndef DR_KERNELS_CUDA_COLUMN_SUM_H
#define DR_KERNELS_CUDA_COLUMN_SUM_H
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#ifdef __cplusplus
extern "C" {
#endif
/* Rows of one partial sum: at most 512 of them, cut by the shape alone; a batch is one. */
static inline int64_t dr_cuda_sum_chunk(int64_t rows) {
    const int64_t r = (rows + 511) / 512;
    return rows <= 256 ? 256 : r < 64 ? 64 : r;
}
/* Workspace in bytes. */
static inline int64_t dr_cuda_column_sum_bytes(int64_t rows, int64_t columns) {
    const int64_t chunk = dr_cuda_sum_chunk(rows);
    return (rows + chunk - 1) / chunk * columns * (int64_t)sizeof(float);
}
/* out[k] = the sum over rows of a[row, k], a [rows, columns] stored as t. Sums are fp32 in a chunk,
 * the chunks are added in index order in double. */
int dr_cuda_column_sum(enum dr_type t, const void *a, int64_t rows, int64_t columns, float *out,
                       void *workspace, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
