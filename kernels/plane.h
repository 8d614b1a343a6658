/* One tensor that an augmentation moves: an image [N, H, W, C] or a mask [N, H, W], as the kernels
 * of both devices see it. Whatever is not interpolated is moved as elements of 1, 2, 4 or 8 bytes,
 * whose type does not matter. */
#ifndef DR_KERNELS_PLANE_H
#define DR_KERNELS_PLANE_H
#include <stdbool.h>
#include <stdint.h>

struct dr_plane {
    const void *x;
    void *y;
    uint64_t fill; /* the bits of an element from outside */
    float outside; /* the same as a number, for what is interpolated */
    int32_t c;     /* channels; 1 for a mask */
    int32_t item;  /* bytes of an element */
    bool smooth;   /* interpolated: u8 (item 1) or f32 (item 4) */
};
#define DR_PLANES 4 /* of one launch */

/* Samples are smaller than 2^31 elements and 65536 pixels a side. */
#define DR_PLANE_SIDE 65535
#endif
