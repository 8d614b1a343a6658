/* The tiles of conv_f32.cu, and which of them computes a correlation. Plain C: plans ask, too.
 * Every tile adds in the same order, so the choice changes no bit. */
#ifndef DR_KERNELS_CUDA_CONV_F32_TILE_H
#define DR_KERNELS_CUDA_CONV_F32_TILE_H
#include <stdint.h>

/* WP x WF warps, each 64 pixels by 4 TN filters; pixels x filters. */
#define DR_F32_TILES(X)                                                                            \
    X(2, 4, 8, "128x128") /* least traffic */                                                      \
    X(2, 3, 8, "128x96")  /* 96 filters */                                                         \
    X(2, 2, 8, "128x64")  /* twice as many blocks, a fuller last wave */                           \
    X(4, 1, 8, "256x32")                                                                           \
    X(4, 1, 4, "256x16") /* few filters */                                                         \
    X(1, 2, 8, "64x64")  /* few pixels */

struct dr_f32_tile {
    int bm, bn, threads; /* pixels, filters, threads of a block */
    const char *name;
};

/* The least work on the busiest multiprocessor: its blocks times the size of one; fewer than 8
 * warps on it do not keep it busy. `k`: filters of a group. Returns the row. */
static inline int dr_f32_tile_of(int64_t pixels, int64_t k, int64_t groups, int sms,
                                 struct dr_f32_tile *tile) {
#define DR_F32_ROW(wp, wf, tn, name) {64 * (wp), 4 * (tn) * (wf), 32 * (wp) * (wf), name},
    static const struct dr_f32_tile row[] = {DR_F32_TILES(DR_F32_ROW)};
#undef DR_F32_ROW
    int best = 0;
    double least = 0.0;
    for (int i = 0; i < (int)(sizeof row / sizeof *row); i++) {
        const struct dr_f32_tile *t = &row[i];
        const int64_t blocks = (k + t->bn - 1) / t->bn * ((pixels + t->bm - 1) / t->bm) * groups;
        const int64_t busiest = (blocks + sms - 1) / sms;
        const int64_t warps = busiest * t->threads / 32;
        const double copied = 1.0 + 6.0 / t->bm + 6.0 / t->bn; /* copies beside the products */
        const double time = (double)busiest * t->bm * t->bn * copied * (warps < 8 ? 1.25 : 1.0);
        if (i == 0 || time < least) {
            best = i, least = time;
        }
    }
    *tile = row[best];
    return best;
}
#endif
