/* Soft Dice loss on CUDA; the semantics are those of kernels/cpu/dice.h. */
#ifndef DR_KERNELS_CUDA_DICE_H
#define DR_KERNELS_CUDA_DICE_H
#include "kernels/cuda/softmax.h"
#ifdef __cplusplus
extern "C" {
#endif
/* Rows of a sample that make one partial sum: at most 128 of them a sample. */
static inline int64_t dr_cuda_dice_chunk(int64_t rows_per_sample) {
    const int64_t r = (rows_per_sample + 127) / 128;
    return r < 64 ? 64 : r;
}
static inline int64_t dr_cuda_dice_chunks(int64_t rows_per_sample) {
    const int64_t r = dr_cuda_dice_chunk(rows_per_sample);
    return (rows_per_sample + r - 1) / r;
}
static inline int64_t dr_cuda_dice_bytes(int64_t samples, int64_t rows_per_sample, int64_t k) {
    return samples * dr_cuda_dice_chunks(rows_per_sample) * (3 * k + 1) * (int64_t)sizeof(double);
}
int dr_cuda_dice(const struct dr_cuda_classes *c, double smooth, const float *x, void *workspace,
                 float *mean, double *partial, double *sums, dr_stream s);
static inline int64_t dr_cuda_dice_dgrad_bytes(int64_t samples, int64_t k) {
    return samples * 2 * k * (int64_t)sizeof(double);
}
int dr_cuda_dice_dgrad(const struct dr_cuda_classes *c, double smooth, const float *x,
                       double weight, const double *partial, const double *sums, void *workspace,
                       float *dx, dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
