/* random_erasing, mixup and cutmix on CUDA: kernels/cpu/mix.h with the same bits. Each function
 * makes one launch on `s` and returns a cudaError_t. */
#ifndef DR_KERNELS_CUDA_MIX_H
#define DR_KERNELS_CUDA_MIX_H

#include "kernels/cuda/stream.h"
#include "kernels/mix.h"

#ifdef __cplusplus
extern "C" {
#endif
int dr_cuda_erase(const struct dr_erase *e, const struct dr_batch *batch, const void *x, void *y,
                  dr_stream s);
/* At most DR_MIX_OPERANDS operands. */
int dr_cuda_mix(const struct dr_mix *m, const struct dr_batch *batch,
                const struct dr_mix_operand *o, uint32_t n, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
