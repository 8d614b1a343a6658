/* Conversions between fp32, fp16 and bf16 on CUDA, many values a launch; what is computed is that
 * of kernels/cpu/cast.h. Returns a cudaError_t. */
#ifndef DR_KERNELS_CUDA_CAST_H
#define DR_KERNELS_CUDA_CAST_H

#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DR_CUDA_CASTS 128 /* values of one launch: they travel as arguments */
struct dr_cuda_casts {
    uint32_t n;
    struct {
        const void *x; /* 32-byte aligned, as y */
        void *y;
        int64_t n;
    } at[DR_CUDA_CASTS];
};
/* scale: device, or NULL. */
int dr_cuda_cast(const struct dr_cuda_casts *c, enum dr_type from, const float *scale,
                 enum dr_type to, dr_stream s);

#ifdef __cplusplus
}
#endif
#endif
