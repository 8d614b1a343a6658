/* bce, mse and l1 over arrays (kernels/pairs.h) on CUDA; the semantics are those of
 * kernels/cpu/pairs.h. Blocks of DR_CUDA_PAIRS elements make one partial sum, merged in order. */
#ifndef DR_KERNELS_CUDA_PAIRS_H
#define DR_KERNELS_CUDA_PAIRS_H
#include "kernels/batch.h"
#include "kernels/cuda/stream.h"
#include "kernels/pairs.h"
#ifdef __cplusplus
extern "C" {
#endif
#define DR_CUDA_PAIRS 4096
static inline int64_t dr_cuda_pairs_bytes(int64_t n) {
    return (n + DR_CUDA_PAIRS - 1) / DR_CUDA_PAIRS * 2 * (int64_t)sizeof(double);
}
int dr_cuda_pairs(const struct dr_pairs *p, const struct dr_batch *header, void *workspace,
                  float *mean, double *partial, dr_stream s);
/* partial (device) is the loss's. */
int dr_cuda_pairs_dgrad(const struct dr_pairs *p, const struct dr_batch *header, double weight,
                        const double *partial, bool of_target, float *dx, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
