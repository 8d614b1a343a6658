/* The tiles of conv_f32.cu, and which of them computes a correlation. Plain C: plans ask, too.
 * Every tile adds in the same order, so the choice changes no bit. */
#ifndef DR_KERNELS_CUDA_CONV_F32_TILE_H
#define DR_KERNELS_CUDA_CONV_F32_TILE_H
#include <stdbool.h>
#include <stdint.h>

/* WP x WF warps, each 64 pixels by 4 TN filters; blocks that share a multiprocessor; whether copies
 * are spread among the multiply-adds; pixels x filters. */
#define DR_F32_TILES(X)                                                                            \
    X(2, 4, 8, 2, false, "128x128") /* least traffic */                                            \
    X(2, 3, 8, 2, false, "128x96")  /* 96 filters */                                               \
    X(2, 2, 8, 4, false, "128x64")  /* twice as many blocks, a fuller last wave */                 \
    X(4, 1, 8, 4, false, "256x32")                                                                 \
    X(4, 1, 4, 4, false, "256x16") /* few filters */                                               \
    X(1, 2, 8, 8, false, "64x64")  /* few pixels */                                                \
    X(2, 4, 8, 2, true, "128x128 spread")                                                          \
    X(2, 2, 12, 3, true, "128x96 spread") /* more sums for a value read, fewer warps */            \
    X(2, 2, 8, 3, true, "128x64 spread")

struct dr_f32_tile {
    int bm, bn, threads; /* pixels, filters, threads of a block */
    bool spread;
    const char *name;
};
static inline const struct dr_f32_tile *dr_f32_tiles(int *n) {
#define DR_F32_ROW(wp, wf, tn, per_sm, spread, name)                                               \
    {64 * (wp), 4 * (tn) * (wf), 32 * (wp) * (wf), spread, name},
    static const struct dr_f32_tile row[] = {DR_F32_TILES(DR_F32_ROW)};
#undef DR_F32_ROW
    *n = (int)(sizeof row / sizeof *row);
    return row;
}

/* A correlation as far as the choice goes. */
struct dr_f32_problem {
    int64_t pixels, c, k, groups; /* of one phase; channels and filters of a group */
    int64_t taps;
    bool forward, strided;
};

/* Where spread copies were measured to pay: they take long windows (nine taps of three channels do
 * not fill the ring twice); channels in sixteens whose pixels are apart stay with copies of 16
 * bytes. */
static inline bool dr_f32_spreads(const struct dr_f32_problem *p) {
    return p->forward && p->taps > 1 && p->taps * p->c >= 128 && !(p->strided && p->c % 16 == 0);
}

/* Work on the busiest multiprocessor: its blocks times the size of one; fewer than 8 warps on it do
 * not keep it busy. */
static inline double dr_f32_work(const struct dr_f32_problem *p, const struct dr_f32_tile *t,
                                 int sms) {
    const int64_t tiles_m = (p->pixels + t->bm - 1) / t->bm, tiles_k = (p->k + t->bn - 1) / t->bn;
    const int64_t busiest = (tiles_m * tiles_k * p->groups + sms - 1) / sms;
    const int64_t warps = busiest * t->threads / 32;
    const double copied = 1.0 + 6.0 / t->bm + 6.0 / t->bn; /* copies beside the products */
    const double spread = t->spread && dr_f32_spreads(p) ? 0.9 : 1.0; /* measured: 0.77 to 0.91 */
    return (double)busiest * t->bm * t->bn * copied * (warps < 8 ? 1.25 : 1.0) * spread;
}

/* The row of the least work, the first of several: where spread copies are not known to pay, a row
 * without them. */
static inline int dr_f32_tile_of(const struct dr_f32_problem *p, int sms) {
    int rows, best = 0;
    const struct dr_f32_tile *const row = dr_f32_tiles(&rows);
    for (int i = 1; i < rows; i++) {
        if (dr_f32_work(p, &row[i], sms) < dr_f32_work(p, &row[best], sms)) {
            best = i;
        }
    }
    return best;
}
#endif
