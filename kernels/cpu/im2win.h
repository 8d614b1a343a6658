/* What the im2win kernels share: windows, how outputs are cut into tiles, and the register tiles.
 * Internal to kernels/cpu; kernels/README.md has the drawing. */
#ifndef DR_KERNELS_CPU_IM2WIN_H
#define DR_KERNELS_CPU_IM2WIN_H
#include "kernels/cpu/conv.h"
#include <stdbool.h>

#define DR_TILE_PIXELS 192 /* most output pixels in a tile */
#define DR_PANEL 32     /* a multiple of every tile set's `nr`; sizes of workspaces count in it */
#define DR_TILE_ROWS 12 /* most rows of a register tile */

/* ---- register tiles (im2win_tile.c) ---- */
/* y[i][0, lanes) = (bias[.] + sum over l < n of a[i][l] * b[l * nr + .]) for i < rows; with a
 * scale, (that - mean[.]) * scale[.] + shift[.]; with add, + add[i][.]; then relu. Depthwise (pitch
 * > 0): a[i][at + l * pitch + .] in place of a[i][l]; reads whole vectors. */
struct dr_tile_fprop {
    int rows, lanes;
    const float *const *a;
    int64_t at, pitch;
    const float *b;
    int64_t n;
    const float *bias;                 // [nr]
    const float *mean, *scale, *shift; // [nr]; or NULL
    const float *const *add;           // or NULL
    bool relu;
    float *const *y;
};
/* sum[i * nr + .] += sum over p < n of a[p][at + i] * b[p][.] for i < rows; reads `lanes` rounded
 * up to whole vectors from b[p]. Depthwise: a[p][at + i * pitch + .], whole vectors too. */
struct dr_tile_wgrad {
    int rows, lanes;
    const float *const *a;
    int64_t at, pitch;
    const float *const *b;
    int64_t n;
    float *sum;
};
struct dr_tiles {
    const char *name;
    int rows; /* at most DR_TILE_ROWS */
    int nr;   /* two vectors */
    void (*fprop)(const struct dr_tile_fprop *t);
    void (*wgrad)(const struct dr_tile_wgrad *t);
};

/* ---- windows (im2win.c) ---- */
/* The windows of a correlation over src. pt and pl may be negative (a crop), and windows may reach
 * past every border: zeros are there. `out_*` are the pitches, in floats, of the output tensor. */
struct dr_windows {
    const float *src; // [n, h, w, c]
    int64_t n, h, w, c, groups;
    int64_t kh, kw, sh, sw, dh, dw, pt, pl;
    int64_t ho, wo;
    int64_t out_n, out_h, out_w;
    bool depthwise; /* windows of all channels, groups 1; vectors run over channels */
};
/* How the output is cut, by shape alone: a tile is `rows` whole rows (of one image or several), or
 * `cols` columns of one row. `slots` tasks share the tiles; each has one window buffer. */
struct dr_tiling {
    int64_t rows, cols, segments, tiles, slots;
    int64_t phase_cols; /* columns a window row keeps of each phase of the dilation */
    int64_t row_floats, window_floats;
    bool direct; /* 1 x 1 taps without padding: src is in window order already */
};
struct dr_tiling dr_windows_tiling(const struct dr_windows *v);
/* Builds the windows of a tile and a group in `buffer`. Returns how many pixels the tile has;
 * px[i] is the window of pixel i, kw * kh * c / groups values in the order [kw][kh][c]; at[i] is
 * where the pixel lies in the output tensor. */
int dr_windows_build(const struct dr_windows *v, const struct dr_tiling *t, int64_t tile,
                     int64_t group, float *buffer, const float **px, int64_t *at);

/* ---- correlation: fprop, and each phase of dgrad ---- */
struct dr_correlation {
    struct dr_windows v;
    struct dr_tiling tiling;
    const struct dr_tiles *tiles;
    int64_t filters;      /* a group; depthwise: all of them, with windows of one channel */
    const float *weights; // [groups][ceil(filters / nr)][kw][kh][c][nr], zeros past the last filter
    const struct dr_epilogue *epilogue; /* of groups * filters columns */
    const float *add;                   /* ... its part that `out` meets */
    float *out;
    float *buffers; // [slots][window_floats]
};
void dr_correlate(struct dr_cpu *cpu, const struct dr_correlation *c);

/* One channel and one filter a group: a panel holds nr channels in place of nr filters. */
static inline bool dr_conv_is_depthwise(const struct dr_conv *s) {
    return s->groups > 1 && s->groups == s->c && s->groups == s->k;
}

/* ---- sizes: products and sums that stick at INT64_MAX ---- */
static inline int64_t dr_mul(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}
static inline int64_t dr_add(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_add_overflow(a, b, &r) ? INT64_MAX : r;
}
static inline int64_t dr_div_up(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}
static inline int64_t dr_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t dr_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}
/* Floats of packed weights (or of weight-gradient sums): filters in whole panels. */
static inline int64_t dr_panel_floats(int64_t groups, int64_t filters, int64_t window) {
    return dr_mul(dr_mul(groups, dr_mul(dr_div_up(filters, DR_PANEL), DR_PANEL)), window);
}
#endif
