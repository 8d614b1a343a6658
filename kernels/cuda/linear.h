/* linear by cuBLASLt, row-major as in kernels/cpu/linear.h: of fp32 (rounded to tf32 by
 * cuda->tf32), fp16 or bf16, with fp32 sums. The workspace is fixed and of the stream alone, so the
 * library's choice and its bits do not change from run to run. */
#ifndef DR_KERNELS_CUDA_LINEAR_H
#define DR_KERNELS_CUDA_LINEAR_H
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include "kernels/epilogue.h"
#include "kernels/matmul_shape.h"
/* y [m, out] = epilogue(x [m, in] w [out, in]^T); x, w and y are stored as t. In half precision the
 * product is rounded before the epilogue, too. All return a cudaError_t. */
int dr_cuda_linear_fprop(struct dr_cuda *cuda, enum dr_type t, int64_t m, int64_t in, int64_t out,
                         const void *x, const void *w, const struct dr_epilogue *e, void *y);
int dr_cuda_linear_dgrad(struct dr_cuda *cuda, enum dr_type t, int64_t m, int64_t in, int64_t out,
                         const void *dy, const void *w, void *dx);
/* dw is fp32. */
int dr_cuda_linear_wgrad(struct dr_cuda *cuda, enum dr_type t, int64_t m, int64_t in, int64_t out,
                         const void *x, const void *dy, float *dw);
int dr_cuda_matmul(struct dr_cuda *cuda, enum dr_type t, const struct dr_matmul *p, const void *a,
                   const void *b, void *c);
#endif
