/* Forward convolution of images with few channels (1 to 8, a network's first layer) on Hopper's
 * Tensor cores. What conv.h says holds here, too; no workspace. */
#ifndef DR_KERNELS_CUDA_CONV_SMALL_H
#define DR_KERNELS_CUDA_CONV_SMALL_H

#include "kernels/conv_shape.h"
#include "kernels/cuda/pointwise.h"
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"
#include "kernels/epilogue.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Rows of x that are staged at once: two for each warp that fills buffers. */
#define DR_SMALL_STAGES 16
/* How the kernel computes a shape (conv_small.cu says what these are). */
struct dr_small {
    int columns, steps; /* filters of a tile; products of a window's row */
    int stack, parts;   /* rows of x in the slots of one pixel; rows of the buffer for a row of x */
    int rows;           /* of the buffer, that a window has: ceil(kh / stack) * parts */
    int span;           /* rows of the buffer's numbering that an image takes */
    int pixel, pitch, buffer; /* bytes of a pixel, a row, a buffer */
    int stage;                /* bytes of a row of x as it lies there, 0: rows are not staged */
    int blocks;               /* of 64 pixels, a tile */
    int run, run_tiles;       /* pixels that tiles divide: all, or an image's; into how many */
    int tiles, tiles_k;
    int shared_bytes;
    double clocks; /* what it is expected to take */
};
/* False where it does not: it computes C <= 8, one group, no dilation, filters of at most 12 taps a
 * row (fp32, rounded to tf32: kw * c <= 40) whose window fits in shared memory, K divisible by 8
 * (fp32: 4), fewer than 2^31 elements. Tiles are cut for `sms` multiprocessors of a Hopper; results
 * do not depend on it. */
bool dr_cuda_conv_small_plan(const struct dr_conv *c, enum dr_type t, int sms,
                             struct dr_small *out);
/* Whether x of a shape that fits may be u8: three channels are read by words, none of which may
 * reach past the end of x. */
bool dr_cuda_conv_small_u8(const struct dr_conv *c, enum dr_type t);
/* y = epilogue(conv(x, w)) of a shape that fits, on a card of compute capability 9.0. Pointers are
 * multiples of 16 bytes, the activation none, relu or leaky_relu. DR_TYPE_F32 rounds weights
 * to tf32 and cuts x off. u8 NULL: x is stored as t; else it is u8, and the bits of y are those
 * that follow from dr_cuda_normalize of it, stored as t, with all of its channels. */
int dr_cuda_conv_small(const struct dr_conv *c, enum dr_type t, const void *x,
                       const struct dr_cuda_affine *u8, const void *w, const struct dr_epilogue *e,
                       void *y, const struct dr_cuda *cuda);
#ifdef __cplusplus
}
#endif
#endif
