/* Forward convolution of images with few channels (1 to 8, a network's first layer) on Hopper's
 * Tensor cores. What conv.h says holds here, too; no workspace. */
#ifndef DR_KERNELS_CUDA_CONV_SMALL_H
#define DR_KERNELS_CUDA_CONV_SMALL_H

#include "kernels/conv_shape.h"
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include "kernels/epilogue.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Whether the kernel computes this shape: C <= 8, one group, no dilation, filters of at most 12
 * taps a row (fp32, rounded to tf32: kw * c <= 40) whose window fits in shared memory, K divisible
 * by 8 (fp32: 4), fewer than 2^31 elements. Not whether the card is a Hopper. *clocks: what it
 * expects to take on `sms` multiprocessors of one. */
bool dr_cuda_conv_small_fits(const struct dr_conv *c, enum dr_type t, int sms, double *clocks);
/* y = epilogue(conv(x, w)) of a shape that fits, on a card of compute capability 9.0. Pointers are
 * multiples of 16 bytes, the activation none, relu or leaky_relu. DR_TYPE_F32 rounds its operands
 * to tf32. */
int dr_cuda_conv_small(const struct dr_conv *c, enum dr_type t, const void *x, const void *w,
                       const struct dr_epilogue *e, void *y, const struct dr_cuda *cuda);
#ifdef __cplusplus
}
#endif
#endif
