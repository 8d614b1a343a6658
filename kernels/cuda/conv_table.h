/* The Hopper kernels that could compute a convolution, with which tiles, and what each is expected
 * to take. Pure functions of the shape: they need no GPU, and a plan (so every bit of the result)
 * does not depend on how many multiprocessors a launch may use. */
#ifndef DR_KERNELS_CUDA_CONV_TABLE_H
#define DR_KERNELS_CUDA_CONV_TABLE_H
#include "kernels/conv_shape.h"
#include "kernels/dtype.h"
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum dr_conv_kernel {
    DR_CONV_WS,    /* weights in registers, conv_ws.cu */
    DR_CONV_WA,    /* weights through registers, conv_wa.cu */
    DR_CONV_WK,    /* weights kept in shared memory, conv_wk.cu */
    DR_CONV_RS,    /* pixels in registers, conv_rs.cuh */
    DR_CONV_WL,    /* weights through registers, pixels in a line, conv_wl.cuh */
    DR_CONV_SMALL, /* 1 to 8 channels, conv_small.cu; of a plan it needs the tile alone */
};

enum {
    DR_CONV_TAPS = 64,  /* of a filter, at most */
    DR_CONV_PHASES = 4, /* sh * sw, at most */
};

/* A row of the tile table. */
struct dr_conv_tile {
    const char *name; /* as plans print it */
    int arch;         /* 90: sm_90a */
    enum dr_conv_kernel kernel;
    int columns, groups; /* filters of a tile; consumer warpgroups, 64 pixels each (WL: filters) */
    int pixels;          /* of a tile of WL */
    bool three;          /* 3x3 filters of stride 1 alone, taps unrolled */
    bool split;          /* tiles are cut where `parts` equal shares of the work end */
    int parts;
    double share, share_tf32; /* of the Tensor cores' rate, measured in the main loop */
    const char *reason;       /* why this row is here */
};

/* One phase of the stride: the taps that read pixels (i * sh + ry, j * sw + rx). Its patch begins
 * at row oy, column ox of that image, relative to the tile. */
struct dr_conv_phase {
    int ry, rx, oy, ox, first, taps;
};
struct dr_conv_tap {
    int dy, dx, weight; /* place in the phase's patch; index kh * Kw + kw in the filter */
};

struct dr_conv_plan {
    const struct dr_conv_tile *tile;
    /* The problem as the kernel sees it: 1x1 filters take all pixels as one row. */
    int64_t n, h, w, ho, wo;
    int n_phases;
    struct dr_conv_phase phase[DR_CONV_PHASES];
    struct dr_conv_tap tap[DR_CONV_TAPS];
    /* A tile is tn images x th rows x tw columns of outputs, or (linear) consecutive outputs. Its
     * patch is tn * ph rows of pw pixels, 128 bytes of channels each. WL: linear tiles are wide. */
    bool linear;
    int tn, th, tw, ph, pw;
    int64_t m_tiles, k_tiles;
    int chunks;         /* of a tile: phases x pieces of 128 bytes of channels */
    int units;          /* where a tile may be cut: chunks, or (not three) taps of all chunks */
    int parts;          /* shares that the units of all tiles are cut into; 0: tiles stay whole */
    int patches, slabs; /* stages of shared memory: patches, and weights of a tap */
    int shared_bytes;
    int64_t workspace_bytes; /* partial sums of tiles that are cut */
    double us;               /* what the cost model expects on an H200 */
    bool pool; /* WS, WA, set after planning: y is the largest of each 2 x 2 outputs */
};

const struct dr_conv_tile *dr_cuda_conv_tiles(int *n);
/* What a row makes of a convolution; false where it does not fit. fp32 means tf32 here. Which rows
 * are candidates, and which is expected to be the fastest, says dr_cuda_conv_ways (conv_way.h). */
bool dr_cuda_conv_plan(const struct dr_conv *c, enum dr_type t, const struct dr_conv_tile *tile,
                       bool linear, struct dr_conv_plan *out);
/* Of WL: whether tap i of phase f begins a strip, and the bytes of a warpgroup's outputs' buffer.
 */
bool dr_conv_strip_begins(const struct dr_conv_plan *p, const struct dr_conv_phase *f, int i);
int dr_conv_out_bytes(const struct dr_conv_tile *r, enum dr_type t);
#ifdef __cplusplus
}
#endif
#endif
