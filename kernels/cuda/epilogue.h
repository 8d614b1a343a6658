/* kernels/epilogue.h as a pass of its own, for products of a library. Returns a cudaError_t. */
#ifndef DR_KERNELS_CUDA_EPILOGUE_H
#define DR_KERNELS_CUDA_EPILOGUE_H
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include "kernels/epilogue.h"
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* y [rows, c] = epilogue(y), in place; no launch where there is nothing to do. */
int dr_cuda_epilogue(enum dr_type t, int64_t rows, int64_t c, const struct dr_epilogue *e, void *y,
                     dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
