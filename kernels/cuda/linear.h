/* linear by cuBLASLt in fp32 (or tf32, by cuda->tf32), row-major as in kernels/cpu/linear.h. The
 * workspace is fixed and of the stream alone, so the library's choice and its bits do not change
 * from run to run. */
#ifndef DR_KERNELS_CUDA_LINEAR_H
#define DR_KERNELS_CUDA_LINEAR_H
#include "kernels/cuda/stream.h"
#include "kernels/epilogue.h"
#include "kernels/matmul_shape.h"
/* y [m, out] = epilogue(x [m, in] w [out, in]^T). All return a cudaError_t. */
int dr_cuda_linear_fprop(struct dr_cuda *cuda, int64_t m, int64_t in, int64_t out, const float *x,
                         const float *w, const struct dr_epilogue *e, float *y);
int dr_cuda_linear_dgrad(struct dr_cuda *cuda, int64_t m, int64_t in, int64_t out, const float *dy,
                         const float *w, float *dx);
int dr_cuda_linear_wgrad(struct dr_cuda *cuda, int64_t m, int64_t in, int64_t out, const float *x,
                         const float *dy, float *dw);
int dr_cuda_matmul(struct dr_cuda *cuda, const struct dr_matmul *p, const float *a, const float *b,
                   float *c);
#endif
