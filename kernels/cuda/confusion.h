/* Counts of predictions on CUDA; the semantics are those of kernels/cpu/confusion.h. */
#ifndef DR_KERNELS_CUDA_CONFUSION_H
#define DR_KERNELS_CUDA_CONFUSION_H
#include "kernels/cuda/softmax.h"
#include "kernels/predict.h"
#ifdef __cplusplus
extern "C" {
#endif
static inline int64_t dr_cuda_confusion_bytes(int64_t k) {
    return 3 * dr_predicted_classes(k) * (int64_t)sizeof(unsigned long long);
}
int dr_cuda_pixel_accuracy(const struct dr_cuda_classes *c, const float *x, void *workspace,
                           double *out, dr_stream s);
int dr_cuda_confusion(const struct dr_cuda_classes *c, const float *x, void *workspace, double *out,
                      dr_stream s);
#ifdef __cplusplus
}
#endif
#endif
