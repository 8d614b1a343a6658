/* What the Hopper convolutions' host code (conv_hopper.c) and their kernels have in common. Private
 * to kernels/cuda. */
#ifndef DR_KERNELS_CUDA_CONV_HOPPER_H
#define DR_KERNELS_CUDA_CONV_HOPPER_H
#include "kernels/cuda/conv_table.h"
#include "kernels/cuda/stream.h"
#include "kernels/epilogue.h"
#include <cuda.h>
#ifdef __cplusplus
extern "C" {
#endif

/* y = epilogue(conv(x, w)) by a Hopper kernel, as planned. *done is false, and nothing was
 * launched, where it cannot be. `workspace`: p->workspace_bytes, multiple of 16, for partial sums.
 */
int dr_cuda_conv_run(const struct dr_conv *c, enum dr_type t, const struct dr_conv_plan *p,
                     const void *x, const void *w, const struct dr_epilogue *e, void *y,
                     void *workspace, const struct dr_cuda *cuda, bool *done);

/* Division of 0 <= n < 2^31 by d through a product (Granlund and Montgomery 1994): magic =
 * ceil(2^(32 + shift) / d), shift = ceil(log2 d) - 1. */
struct dr_divisor {
    int d;
    unsigned magic;
    int shift;
};
struct dr_divisor dr_divisor_of(int64_t d);

/* The taps of each phase of the stride, as kernels walk them. */
struct dr_taps {
    int oy[DR_CONV_PHASES], ox[DR_CONV_PHASES]; /* where patches begin */
    int first[DR_CONV_PHASES + 1];              /* a phase's first tap */
    unsigned tap[DR_CONV_TAPS];                 /* pixels into the patch << 8 | index in filter */
};

/* Parameters of conv_rs.cuh, as dr_conv_plan has them. */
struct dr_rs {
    CUtensorMap x[DR_CONV_PHASES]; /* phase images: 4-D [n, h, w, c], or 3-D [n * h, w, c] */
    CUtensorMap w;                 /* [k, taps, c] */
    struct dr_epilogue e;
    void *y;
    float *partial; /* sums of tiles that are cut: two tiles a part */
    unsigned *ticket;
    int n, h, k;
    struct dr_divisor ho, wo;
    int pixels; /* n * ho * wo */
    int tn, ph, pw;
    struct dr_divisor box, tw, tiles_w, tiles_h; /* box: th * tw */
    int th, linear;
    struct dr_divisor k_tiles, units;
    int tiles, pieces; /* pieces: chunks of a phase */
    struct dr_divisor
        parts; /* 0: tiles are not cut; else tiles * units = share * parts + share_rest */
    int share, share_rest;
    float shares_a_unit;
    int half_piece; /* the last piece has at most 64 bytes of channels */
    int dh, dw;
    int patches, slabs;
    unsigned patch_bytes, patch_stage;
    struct dr_taps taps;
};
/* Parameters of conv_wa.cu. */
struct dr_wa {
    CUtensorMap x[DR_CONV_PHASES], w, y, add; /* y, add: 4-D [n, ho, wo, k] */
    struct dr_epilogue e;
    int k, tn, th, tw, pw;
    int second_n, second_h, second_w; /* from a tile's first 16 x 8 pixels to its others */
    int second;                       /* the same in pixels of the patch */
    struct dr_divisor k_tiles, tiles_w, tiles_h;
    /* Where a tile is 256 consecutive positions of an image of `row.d` columns, of which the first
     * wo count (pieces: of an image): */
    int lines, ho, wo;
    int pool; /* y is the largest of each 2 x 2 outputs */
    struct dr_divisor row;
    void *y_at;
    int tiles, pairs; /* of pixels; pairs of them times k_tiles */
    int chunks, pieces, half_piece, patches, slabs;
    unsigned patch_bytes, patch_stage;
    struct dr_taps taps;
};
/* Parameters of conv_ws.cu. */
struct dr_ws {
    CUtensorMap x, w, y, add, row; /* w: [k, taps, 64]; row: as y, boxes of one row */
    struct dr_epilogue e;
    int k, pt, pl, tiles, k_tiles;
    int stacked; /* rows of an image, where tiles cover rows of all images as one; or 0 */
    int n;
    int pool; /* y is the largest of each 2 x 2 outputs */
    struct dr_divisor tiles_w, tiles_h;
};
/* What one column of the filter reads of one phase of the stride (or, `wide`, what a phase's taps
 * read): boxes of phase `phase` at column x, row y from the tile; its first tap. */
struct dr_strip {
    int phase, x, y, first;
};
/* Parameters of conv_wl.cuh. */
struct dr_wl {
    CUtensorMap x[DR_CONV_PHASES], w, y, add; /* x, y, add: 4-D [h, n, w, c] */
    struct dr_epilogue e;
    void *y_at;
    int n, ho, wo, k, tn, th, tw, pw, tiles, taps;
    struct dr_divisor k_tiles, tiles_w, tiles_h;
    int strips, pieces, half_piece, strip_stages, slabs;
    unsigned strip_bytes, strip_stage, out_bytes, out_stage;
    struct dr_strip strip[DR_CONV_TAPS + 1]; /* the last: where taps end */
    unsigned tap[DR_CONV_TAPS];              /* pixels into the strip << 8 | index in filter */
};
/* Parameters of conv_wk.cu. */
struct dr_wk {
    CUtensorMap x, w; /* w: [k, taps, c] */
    struct dr_epilogue e;
    float *y;
    int ho, wo, k, pw, tiles, k_tiles; /* tiles: of pixels */
    struct dr_divisor tiles_w, tiles_h;
    int pieces, half_piece; /* pieces of 32 channels; the last has at most 16 */
    unsigned patch_bytes, patch_stage;
    struct dr_taps taps;
};
/* `blocks`: of the grid; any number gives the same bits (WS: at least k_tiles / 2, WK: k_tiles). */
int dr_conv_rs_f16(const struct dr_rs *p, const struct dr_conv_tile *tile, int shared_bytes,
                   int blocks, dr_stream s);
int dr_conv_rs_bf16(const struct dr_rs *p, const struct dr_conv_tile *tile, int shared_bytes,
                    int blocks, dr_stream s);
int dr_conv_rs_tf32(const struct dr_rs *p, const struct dr_conv_tile *tile, int shared_bytes,
                    int blocks, dr_stream s);
int dr_conv_wl_f16(const struct dr_wl *p, int pixels, int shared_bytes, int blocks, dr_stream s);
int dr_conv_wl_bf16(const struct dr_wl *p, int pixels, int shared_bytes, int blocks, dr_stream s);
int dr_conv_wl_tf32(const struct dr_wl *p, int pixels, int shared_bytes, int blocks, dr_stream s);
int dr_conv_ws(const struct dr_ws *p, enum dr_type t, int shared_bytes, int blocks, dr_stream s);
int dr_conv_wa(const struct dr_wa *p, enum dr_type t, int shared_bytes, int blocks, dr_stream s);
int dr_conv_wk(const struct dr_wk *p, int shared_bytes, int blocks, dr_stream s);
/* to [c, taps, k] = w [k, taps, c] with the taps in the other order: the weights of the forward
 * convolution that is a data gradient (conv_turn.cu). */
int dr_cuda_conv_turn(const struct dr_conv *c, enum dr_type t, const void *w, void *to,
                      dr_stream s);
/* Whether this program holds sm_90a's code: for another architecture's the kernels are empty. */
bool dr_conv_hopper_built(void);
#ifdef __cplusplus
}
#endif
#endif
