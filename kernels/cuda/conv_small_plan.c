/* How conv_small.cu computes a shape: what it can, its tiles, what they are expected to take. Pure
 * functions of the shape, in every build. */
#include "kernels/cuda/conv_small.h"
#include <string.h>

enum { SHARED_BYTES = 232448 /* a block's most */, MOST_BLOCKS = 48 };

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* What indexes of 32 bits, copies and stores can do. */
static bool possible(const struct dr_conv *c, bool tf32) {
    const double n = (double)c->n, h = (double)c->h, ho = (double)c->ho;
    const double y = n * ho * (double)c->wo * (double)c->k;
    const double x = n * h * (double)c->w * (double)c->c;
    const double rows = n * (ho * (double)c->sh + (double)(c->kh + c->sh));
    return c->groups == 1 && c->c <= 8 && c->dh == 1 && c->dw == 1 && c->k % (tf32 ? 4 : 8) == 0 &&
           c->kh <= 32 && (tf32 ? c->kw * c->c <= 40 : c->kw <= 12) && y > 0 && y < INT32_MAX &&
           x < INT32_MAX && rows < INT32_MAX / 2 && c->pt < 1 << 15 && c->pl < 1 << 15 &&
           (c->c != 3 || tf32 || c->n * c->h * c->w % 2 == 0);
}

bool dr_cuda_conv_small_u8(const struct dr_conv *c, enum dr_type t) {
    return c->c != 3 || t == DR_TYPE_F32 || c->n * c->h * c->w % 4 == 0;
}

/* Tiles of p->blocks, of all images as one run or (through: false) of each image; false: their rows
 * do not fit. */
static bool cut(const struct dr_conv *c, bool through, struct dr_small *p) {
    const int64_t pixels = p->blocks * 64, wo = c->wo, ho = c->ho;
    const int64_t images = through ? c->n : 1; /* of a run */
    /* As many output rows as a tile can touch, and as many borders of images among them. */
    const int64_t rows = least((pixels + wo - 2) / wo + 1, images * ho);
    const int64_t borders = least((rows + ho - 2) / ho, images - 1);
    const int64_t last = (rows - 1) * c->sh + borders * (p->span - ho * c->sh);
    const int64_t buffer = (last + (p->rows / p->parts - 1) * p->stack + 1) * p->parts * p->pitch;
    if (buffer > SHARED_BYTES) {
        return false;
    }
    p->buffer = (int)(buffer + 15) / 16 * 16;
    p->run = (int)(images * ho * wo);
    p->run_tiles = (int)ceil_div(p->run, pixels);
    p->tiles = (int)(c->n / images) * p->run_tiles;
    const int64_t bytes = (int64_t)p->rows * p->steps * p->columns * 32 + 2 * (int64_t)p->buffer +
                          8 * (int64_t)p->columns + 32 + DR_SMALL_STAGES * (int64_t)p->stage;
    p->shared_bytes = (int)least(bytes, INT32_MAX);
    return bytes <= SHARED_BYTES;
}

/* The tile that fits and keeps `sms` multiprocessors busy for the shortest time, in clocks: of the
 * products (both operands come through shared memory at 128 bytes a clock; a lone warpgroup waits
 * for itself), and of filling a tile (some 25 clocks for 32 places of 16 bytes). */
static bool choose_blocks(const struct dr_conv *c, int sms, struct dr_small *p) {
    double best = 0.0;
    int blocks = 0;
    bool through = false;
    for (p->blocks = 1; p->blocks <= MOST_BLOCKS; p->blocks += p->blocks < 3 ? 1 : 3) {
        for (int i = 0; i < 2; i++) {
            if (!cut(c, i != 0, p)) {
                continue;
            }
            const double waves = (double)ceil_div((int64_t)p->tiles * p->tiles_k, sms);
            const double waiting = p->blocks == 1 ? 1.6 : p->blocks == 2 ? 1.15 : 1.0;
            const double multiply =
                p->blocks * waiting *
                (p->rows * p->steps * (16 + p->columns / 4.0) + p->columns * 4.0);
            const double fill = p->buffer / 512.0 * 25;
            const double time = waves * ((multiply > fill ? multiply : fill) + 600);
            if (!blocks || time < best) {
                best = time, blocks = p->blocks, through = i != 0;
            }
        }
    }
    p->blocks = blocks, p->clocks = best;
    return blocks && cut(c, through, p);
}

/* Fewest columns of B that stand for no filter, then the widest; fewer than `below`. */
static int columns_of(int64_t k, bool tf32, int below) {
    const int candidates[3] = {tf32 ? 64 : 96, tf32 ? 48 : 64, 32};
    int best = 0;
    int64_t waste = 0;
    for (int i = 0; i < 3; i++) {
        const int n = candidates[i];
        const int64_t w = ceil_div(k, n) * n - k;
        if (n < below && (!best || w < waste)) {
            best = n, waste = w;
        }
    }
    return best;
}

bool dr_cuda_conv_small_plan(const struct dr_conv *c, enum dr_type t, int sms,
                             struct dr_small *out) {
    const bool tf32 = t == DR_TYPE_F32;
    if (!possible(c, tf32)) {
        return false;
    }
    struct dr_small p;
    memset(&p, 0, sizeof p);
    p.steps = (int)(tf32 ? ceil_div(c->kw * c->c, 8) : ceil_div(c->kw, 4));
    p.stack = !tf32 && c->c == 1 ? 4 : !tf32 && c->c == 2 ? 2 : 1;
    p.parts = !tf32 && c->c > 4 ? 2 : 1;
    p.rows = (int)ceil_div(c->kh, p.stack) * p.parts;
    p.span = (int)((c->ho - 1) * c->sh + (c->kh > c->sh ? c->kh : c->sh));
    p.pixel = tf32 ? 4 * (int)c->c : 8;
    const int64_t reach = (c->wo - 1) * c->sw;
    const int64_t pitch =
        tf32 ? (reach * c->c + 8 * p.steps) * 4 : ceil_div(reach + 4 * p.steps, 2) * 16;
    if (pitch > SHARED_BYTES) {
        return false;
    }
    p.pitch = (int)pitch;
    /* Halves of three channels: words of places, one more, and up to three before the first. */
    p.stage = !tf32 && c->c == 3 ? (int)ceil_div(3 * pitch / 16 + 1 + 3, 4) * 16 : 0;
    for (p.columns = columns_of(c->k, tf32, 128); p.columns;
         p.columns = columns_of(c->k, tf32, p.columns)) {
        p.tiles_k = (int)ceil_div(c->k, p.columns);
        if (choose_blocks(c, sms, &p)) {
            *out = p;
            return true;
        }
    }
    return false;
}
