/* One forward convolution by im2col, for conv12.cu: all windows are written to memory as rows of a
 * matrix, which cuBLASLt multiplies with the filters by the fastest algorithm that it names. */
#ifndef DR_TESTS_BENCH_CONV12_IM2COL_H
#define DR_TESTS_BENCH_CONV12_IM2COL_H
#include "kernels/conv_shape.h"
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif
struct conv12_im2col;
/* NULL: it has groups. x, w, y as kernels/cuda/conv.h has them, NHWC. Exits when CUDA fails. */
struct conv12_im2col *conv12_im2col_open(const struct dr_conv *c, enum dr_type t, bool tf32,
                                         dr_stream s);
/* Times every algorithm and keeps the fastest; how many there were. Of w it keeps a copy, with rows
 * of a multiple of 16 bytes, where they are not that already. */
int conv12_im2col_best(struct conv12_im2col *p, const void *x, const void *w, void *y);
void conv12_im2col_run(struct conv12_im2col *p, const void *x, const void *w, void *y);
int64_t conv12_im2col_bytes(const struct conv12_im2col *p); /* of the matrix */
void conv12_im2col_close(struct conv12_im2col *p);

/* The matrix alone [n * ho * wo, ld], a row: [kh][kw][c], then zeros. ld: values, a multiple of 16
 * bytes, as is `matrix`. */
int conv12_im2col_matrix(const struct dr_conv *c, enum dr_type t, int64_t ld, const void *x,
                         void *matrix, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
