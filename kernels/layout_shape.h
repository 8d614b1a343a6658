/* The geometry of kernels that only move values, shared by every device. */
#ifndef DR_KERNELS_LAYOUT_SHAPE_H
#define DR_KERNELS_LAYOUT_SHAPE_H
#include <stdint.h>

/* `n` pictures [h, w] inside frames [ho, wo], their first pixel at (top, left); pixels of `bytes`.
 */
struct dr_border {
    int64_t n, h, w, ho, wo, top, left, bytes;
};

/* y [dim[0], ..., dim[rank - 1]] of items of `bytes`, in order; the item with indexes i is found
 * sum(i[a] * step[a]) bytes into x. */
#define DR_PERMUTE_RANK 5
struct dr_permute {
    int64_t rank, dim[DR_PERMUTE_RANK], step[DR_PERMUTE_RANK], bytes;
};
#endif
