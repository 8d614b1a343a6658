/* The tile table of the Hopper convolutions and its cost model. Times are counted in clocks of one
 * multiprocessor: a wgmma of 64 x N takes N / 2, whatever the type. */
#include "kernels/cuda/conv_table.h"
#include "kernels/cuda/conv_small.h"
#include <limits.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum {
    SMS = 132,                  /* that the costs are meant for: H100 SXM, H200 */
    SHARED_BYTES = 232448,      /* a block's most */
    ROW_BYTES = 128,            /* channels of a pixel in a patch */
    BOX = 256,                  /* a tensor map's most, each way */
    SLABS_LEAST = 3,            /* stages of weights */
    LAUNCH_CLOCKS = 4000,       /* start, first loads, last stores */
    LINE_CLOCKS = 1500,         /* the same of WL, which stores while it goes on */
    FLOAT_CLOCKS = 15,          /* of WL in tf32 instead, for each pixel of a tile */
    TILE_CLOCKS = 3000,         /* a tile's stores, and filling the pipeline again */
    CUT_CLOCKS = 8000,          /* of a tile that is cut, beside moving its sums */
    TILE_PARTS = 8,             /* of a tile, on average at most */
    SUM_BYTES_PER_CLOCK = 40,   /* of the L2 cache, for each multiprocessor: partial sums */
    PIXEL_BYTES_PER_CLOCK = 30, /* pixels, of which each wants its own */
    WEIGHT_BYTES_PER_CLOCK = 70 /* weights, which all want at about one time */
};
#define MHZ 1500.0            /* under full load */
#define IDLE_MHZ 1100.0       /* more, the fewer multiprocessors work: power is what limits it */
#define MEMORY_BYTES_US 4.0e6 /* DRAM */

static const struct dr_conv_tile table[] = {
    {"ws 128x64", 90, DR_CONV_WS, 64, 2, 0, true, false, 0, 0.95, 0.95,
     "64 channels: weights stay in registers, so shared memory feeds one operand alone"},
    {"wa 256x64 any", 90, DR_CONV_WA, 64, 2, 0, false, false, 0, 0.90, 0.90,
     "large images and few filters: each fragment of weights meets 256 pixels"},
    {"wk 112x64", 90, DR_CONV_WK, 64, 2, 0, false, false, 0, 0.88, 0.88,
     "tf32 of up to 64 channels: weights stay in shared memory, stores overlap with products"},
    {"rs 128x128", 90, DR_CONV_RS, 128, 2, 0, true, false, 0, 0.95, 0.95,
     "few tiles: the smaller loss in the last wave"},
    {"rs 128x128 cut", 90, DR_CONV_RS, 128, 2, 0, true, true, SMS, 0.95, 0.95,
     "a last wave that would be nearly empty"},
    {"rs 192x128", 90, DR_CONV_RS, 128, 3, 0, true, false, 0, 0.95, 0.95,
     "three warpgroups share the weights, and hide each other's waits"},
    {"rs 192x128 cut", 90, DR_CONV_RS, 128, 3, 0, true, true, SMS, 0.95, 0.95,
     "a last wave that would be nearly empty"},
    {"rs 128x64", 90, DR_CONV_RS, 64, 2, 0, true, false, 0, 0.70, 0.70,
     "at most 64 filters, channels that WS does not take"},
    {"rs 128x128 any", 90, DR_CONV_RS, 128, 2, 0, false, false, 0, 0.92, 0.92,
     "any filter and stride"},
    {"rs 128x128 any cut", 90, DR_CONV_RS, 128, 2, 0, false, true, SMS, 0.92, 0.92,
     "a last wave that would be nearly empty"},
    {"rs 192x128 any", 90, DR_CONV_RS, 128, 3, 0, false, false, 0, 0.92, 0.92,
     "any filter and stride"},
    {"rs 192x128 any cut", 90, DR_CONV_RS, 128, 3, 0, false, true, SMS, 0.92, 0.92,
     "a last wave that would be nearly empty"},
    {"rs 128x256 any", 90, DR_CONV_RS, 256, 2, 0, false, false, 0, 0.85, 0.85,
     "many filters: each fragment of pixels meets 256, and shared memory rests"},
    {"rs 128x256 any cut", 90, DR_CONV_RS, 256, 2, 0, false, true, SMS, 0.85, 0.85,
     "a last wave that would be nearly empty"},
    {"wl 104x128", 90, DR_CONV_WL, 128, 2, 104, false, false, 0, 0.90, 0.72,
     "few and small images: all of a small batch in one wave"},
    {"wl 128x128", 90, DR_CONV_WL, 128, 2, 128, false, false, 0, 0.92, 0.80, "few outputs"},
    {"wl 160x128", 90, DR_CONV_WL, 128, 2, 160, false, false, 0, 0.95, 0.92, "middle-sized tiles"},
    {"wl 200x128", 90, DR_CONV_WL, 128, 2, 200, false, false, 0, 0.98, 1.00,
     "images of 7, 10, 14 or 20 pixels a side"},
    {"wl 240x128", 90, DR_CONV_WL, 128, 2, 240, false, false, 0, 0.96, 0.87,
     "images of 26 to 60 pixels a side"},
    {"wl 256x128", 90, DR_CONV_WL, 128, 2, 256, false, false, 0, 0.95, 0.90,
     "many outputs: the most pixels that one product takes"},
    {"wl 288x128", 90, DR_CONV_WL, 128, 2, 288, false, false, 0, 0.95, 0.99,
     "few images: twice 144, two of 12 x 12 pixels"},
    {"rs 128x64 any", 90, DR_CONV_RS, 64, 2, 0, false, false, 0, 0.65, 0.65, "at most 64 filters"},
    {"small", 90, DR_CONV_SMALL, 0, 3, 0, false, false, 0, 0.60, 0.60,
     "1 to 8 channels, a first layer: too few for boxes of 128 bytes"},
};

const struct dr_conv_tile *dr_cuda_conv_tiles(int *n) {
    *n = COUNT(table);
    return table;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* What every row needs. Copies move 16 bytes, stores of halves 16 and of floats 8; indexes are
 * ints.
 */
static bool possible(const struct dr_conv *c, enum dr_type t) {
    const int bytes = dr_type_bytes(t);
    const int64_t largest = 1 << 30;
    return c->groups == 1 && c->c * bytes % 16 == 0 && c->k * bytes % 16 == 0 && c->c >= 16 &&
           c->kh * c->kw <= DR_CONV_TAPS && c->sh * c->sw <= DR_CONV_PHASES && c->n > 0 &&
           c->ho > 0 && c->wo > 0 && c->n * c->h * c->w < largest &&
           c->n * c->ho * c->wo < largest && c->k < 1 << 16 && c->c < 1 << 16 && c->pt < 1 << 15 &&
           c->pl < 1 << 15 && c->dh < 1 << 10 && c->dw < 1 << 10;
}

/* 1x1 filters of stride 1 without padding multiply pixels as if they were one row. */
static struct dr_conv flat(const struct dr_conv *c) {
    struct dr_conv f = *c;
    if (c->kh == 1 && c->kw == 1 && c->sh == 1 && c->sw == 1 && c->h == c->ho && c->w == c->wo &&
        c->pt == 0 && c->pl == 0) {
        f.w = f.wo = c->n * c->h * c->w;
        f.n = f.h = f.ho = 1;
    }
    return f;
}

static int floor_mod(int64_t a, int64_t b) {
    return (int)((a % b + b) % b);
}

/* Output (i, j) reads input row i * sh + kh * dh - pt: of the image of phase ry = that mod sh, row
 * i + dy. False where a phase has no pixels at all. */
static bool cut_phases(const struct dr_conv *c, struct dr_conv_plan *p) {
    int n_taps = 0;
    for (int f = 0; f < (int)(c->sh * c->sw); f++) {
        const int ry = f / (int)c->sw, rx = f % (int)c->sw;
        struct dr_conv_phase ph = {ry, rx, INT_MAX, INT_MAX, n_taps, 0};
        for (int i = 0; i < (int)(c->kh * c->kw); i++) {
            const int64_t y = i / c->kw * c->dh - c->pt, x = i % c->kw * c->dw - c->pl;
            if (floor_mod(y, c->sh) != ry || floor_mod(x, c->sw) != rx) {
                continue;
            }
            const int dy = (int)((y - ry) / c->sh), dx = (int)((x - rx) / c->sw);
            p->tap[n_taps++] = (struct dr_conv_tap){dy, dx, i};
            ph.taps++;
            ph.oy = dy < ph.oy ? dy : ph.oy;
            ph.ox = dx < ph.ox ? dx : ph.ox;
        }
        if (ph.taps == 0) {
            continue; /* 1x1 filters read one phase of the stride alone */
        }
        if (ry >= c->h || rx >= c->w) {
            return false;
        }
        for (int i = ph.first; i < n_taps; i++) {
            p->tap[i].dy -= ph.oy;
            p->tap[i].dx -= ph.ox;
        }
        p->phase[p->n_phases++] = ph;
    }
    return true;
}

/* Rows and columns of a patch beyond those of the tile. */
static void reach(const struct dr_conv_plan *p, int *rows, int *columns) {
    *rows = *columns = 0;
    for (int f = 0; f < p->n_phases; f++) {
        for (int i = p->phase[f].first; i < p->phase[f].first + p->phase[f].taps; i++) {
            *rows = p->tap[i].dy > *rows ? p->tap[i].dy : *rows;
            *columns = p->tap[i].dx > *columns ? p->tap[i].dx : *columns;
        }
    }
}

/* The pitch of a patch's rows. 8 consecutive pixels of a tile are then 8 numbers modulo 8, also
 * where they go on in the next row, so that ldmatrix meets no bank twice. */
static int64_t pitch(int64_t tile_columns, int columns) {
    return tile_columns + (columns + 7) / 8 * 8;
}

/* The box of at most `pixels` outputs whose patch has at most `patch_bytes` that needs the fewest
 * tiles, then the smallest patch, then has the longest rows. */
static bool cut_boxes(int pixels, int64_t patch_bytes, struct dr_conv_plan *p) {
    int rows, columns;
    int64_t best_tiles = INT64_MAX, best_patch = INT64_MAX;
    reach(p, &rows, &columns);
    for (int64_t tw = 1; tw <= least(pixels, p->wo); tw++) {
        const int64_t pw = pitch(tw, columns);
        if (pw > BOX) {
            break;
        }
        for (int64_t th = 1; th <= least(pixels / tw, p->ho) && th + rows <= BOX; th++) {
            const int64_t tn = least(pixels / (tw * th), p->n);
            const int64_t tiles = ceil_div(p->wo, tw) * ceil_div(p->ho, th) * ceil_div(p->n, tn);
            const int64_t patch = pw * (th + rows) * tn;
            if (patch * ROW_BYTES <= patch_bytes &&
                (tiles < best_tiles || (tiles == best_tiles && patch <= best_patch))) {
                best_tiles = tiles, best_patch = patch;
                p->tn = (int)tn, p->th = (int)th, p->tw = (int)tw;
                p->ph = (int)th + rows, p->pw = (int)pw;
            }
        }
    }
    p->m_tiles = best_tiles;
    return best_tiles < INT32_MAX;
}

/* Consecutive outputs: no pixel of a tile is idle, whatever the image's size. The images stand
 * above each other as one, so rows of padding above or below are impossible. */
static bool cut_lines(const struct dr_conv *c, int pixels, struct dr_conv_plan *p) {
    int rows, columns;
    reach(p, &rows, &columns);
    const int64_t lines = (pixels + p->wo - 2) / p->wo + 1; /* that a tile can touch */
    const int64_t borders = (lines + p->ho - 2) / p->ho;    /* between images, among them */
    const int64_t ph = lines + borders * (p->h - p->ho) + rows, pw = pitch(p->wo, columns);
    p->ph = (int)ph, p->pw = (int)pw, p->tn = 1, p->linear = true;
    p->m_tiles = ceil_div(p->n * p->ho * p->wo, pixels);
    return c->sh == 1 && c->sw == 1 && p->phase[0].oy == 0 && p->ho + rows <= p->h && ph <= BOX &&
           pw <= BOX;
}

/* What a block's shared memory holds beside its stages: scale and shift of each filter, barriers,
 * what aligning to 1024 bytes costs. */
static int64_t fixed_bytes(const struct dr_conv *c, const struct dr_conv_tile *t) {
    return 1024 + ceil_div(c->k, t->columns) * t->columns * 8 + 512;
}

/* Stages: two patches, weights as many as fit up to 8, then more patches. */
static bool fill_shared(const struct dr_conv *c, const struct dr_conv_tile *t,
                        struct dr_conv_plan *p) {
    const int64_t patch = ceil_div((int64_t)p->tn * p->ph * p->pw * ROW_BYTES, 1024) * 1024;
    const int64_t slab = (int64_t)t->columns * ROW_BYTES;
    const int64_t room = SHARED_BYTES - fixed_bytes(c, t) - 2 * patch;
    if (room < SLABS_LEAST * slab) {
        return false;
    }
    p->patches = 2;
    p->slabs = (int)least(8, room / slab);
    while (p->patches < 4 && room - p->slabs * slab >= (p->patches - 1) * patch) {
        p->patches++;
    }
    p->shared_bytes = (int)(fixed_bytes(c, t) + p->patches * patch + p->slabs * slab);
    return true;
}

/* Of so many rows of 128 bytes: pixels, and weights. */
static double load_clocks(double pixels, double weights) {
    return ROW_BYTES * (pixels / PIXEL_BYTES_PER_CLOCK + weights / WEIGHT_BYTES_PER_CLOCK);
}

/* Of the type's peak, what the row's products reach. */
static double share_of(const struct dr_conv_tile *r, enum dr_type t) {
    return t == DR_TYPE_F32 ? r->share_tf32 : r->share;
}

/* Clocks of a multiprocessor for one chunk, taken over the phases; what the loads take, if more. */
static double chunk_clocks(const struct dr_conv *c, enum dr_type t, const struct dr_conv_tile *r,
                           const struct dr_conv_plan *p) {
    const double taps = (double)(c->kh * c->kw) / p->n_phases;
    const int64_t width = ROW_BYTES / dr_type_bytes(t), pieces = ceil_div(c->c, width);
    /* the last piece is multiplied by halves where taps are not unrolled */
    const bool half = !r->three && c->c % width != 0 && c->c % width <= width / 2;
    const double depth = 4.0 * ((double)pieces - (half ? 0.5 : 0.0)) / (double)pieces;
    /* 128 bytes a clock of shared memory: a wgmma reads its columns, ldmatrix its rows */
    const bool wa = r->kernel == DR_CONV_WA;
    const double product = wa ? 128 : (double)most(r->columns / 2, r->columns / 4 + 16);
    const double compute = taps * depth * product * r->groups / share_of(r, t);
    const double patch = (double)p->tn * p->ph * p->pw * (wa ? 2 : 1);
    const double load = load_clocks(patch, taps * r->columns);
    return compute > load ? compute : load;
}

/* Sums of a tile written and read again, per part; of two parts only one is. */
static double cut_clocks(const struct dr_conv_tile *r, const struct dr_conv_plan *p) {
    const double bytes = 64.0 * r->groups * r->columns * (double)sizeof(float);
    const double parts = (double)p->parts / (double)(p->m_tiles * p->k_tiles) + 1.0;
    return CUT_CLOCKS + bytes / SUM_BYTES_PER_CLOCK * (parts > 2.0 ? parts + 1.0 : 3.0);
}

/* Of `clocks` on each multiprocessor, or, if that is longer, of moving each value once. `busy` of
 * the multiprocessors work. */
static double time_us(const struct dr_conv *c, enum dr_type t, double clocks, double busy) {
    const double bytes = (double)dr_type_bytes(t) *
                         ((double)c->n * c->h * c->w * c->c + (double)c->n * c->ho * c->wo * c->k +
                          (double)c->k * c->kh * c->kw * c->c);
    const double compute = (LAUNCH_CLOCKS + clocks) / (MHZ + (1.0 - busy) * IDLE_MHZ);
    const double memory = bytes / MEMORY_BYTES_US;
    return compute > memory ? compute : memory;
}

/* Whether tap i is the first of its column in its phase: then a strip begins (conv_wl.cuh). */
bool dr_conv_strip_begins(const struct dr_conv_plan *p, const struct dr_conv_phase *f, int i) {
    for (int j = f->first; j < i; j++) {
        if (p->linear || p->tap[j].dx == p->tap[i].dx) {
            return false;
        }
    }
    return true;
}

int dr_conv_out_bytes(const struct dr_conv_tile *r, enum dr_type t) {
    const int blocks = r->pixels > 256 ? 2 : 1;
    return t == DR_TYPE_F32 ? 0 : (r->pixels / blocks + 15) / 16 * 16 * blocks * ROW_BYTES;
}

/* A tile of WL: its products, or bringing its strips and weights, if that is longer. */
static double line_clocks(const struct dr_conv *c, enum dr_type t, const struct dr_conv_tile *r,
                          const struct dr_conv_plan *p) {
    const int64_t width = ROW_BYTES / dr_type_bytes(t), pieces = ceil_div(c->c, width);
    const bool half = c->c % width != 0 && c->c % width <= width / 2;
    const double depth = 4.0 * ((double)pieces - (half ? 0.5 : 0.0));
    int strips = 0;
    for (int f = 0; f < p->n_phases; f++) {
        for (int i = p->phase[f].first; i < p->phase[f].first + p->phase[f].taps; i++) {
            strips += dr_conv_strip_begins(p, &p->phase[f], i);
        }
    }
    const double taps = (double)(c->kh * c->kw);
    const double compute = taps * depth * r->pixels / share_of(r, t);
    const double strip = (double)(p->tn * p->ph * p->pw);
    const double load = (double)pieces * load_clocks(strips * strip, taps * r->columns);
    return (compute > load ? compute : load) +
           (t == DR_TYPE_F32 ? FLOAT_CLOCKS * r->pixels : LINE_CLOCKS);
}

/* Weights come and are rounded once; of its tiles a multiprocessor stores all but the last while it
 * multiplies. */
static double wk_clocks(const struct dr_conv *c, enum dr_type t, const struct dr_conv_tile *r,
                        const struct dr_conv_plan *p) {
    const double taps = (double)(c->kh * c->kw), weights = taps * p->chunks * 64 * ROW_BYTES;
    const double depth = c->c % 32 != 0 && c->c % 32 <= 16 ? p->chunks - 0.5 : p->chunks;
    const int64_t blocks = most(1, SMS / p->k_tiles); /* with the same filters */
    const int64_t tiles = ceil_div(p->m_tiles, blocks) * ceil_div(p->k_tiles, SMS);
    const double product = taps * depth * 4 * (p->th * p->tw / 2) / share_of(r, t);
    const double load = p->chunks * load_clocks((double)p->ph * p->pw, 0.0);
    return weights / WEIGHT_BYTES_PER_CLOCK + weights / 64 + TILE_CLOCKS +
           (double)tiles * (product > load ? product : load);
}

static double cost_us(const struct dr_conv *c, enum dr_type t, const struct dr_conv_tile *r,
                      const struct dr_conv_plan *p) {
    const int64_t tiles = p->m_tiles * p->k_tiles;
    const double busy = p->parts ? 1.0 : (double)tiles / (double)(ceil_div(tiles, SMS) * SMS);
    double clocks = 0;
    if (r->kernel == DR_CONV_WS) {
        clocks += (double)ceil_div(tiles, 2 * SMS) * 2 * 9 * 4 * 64 / share_of(r, t);
    } else if (r->kernel == DR_CONV_WK) {
        clocks += wk_clocks(c, t, r, p);
    } else if (r->kernel == DR_CONV_WA) { /* 256 pixels a warpgroup: as a tile of 256 filters */
        clocks += (double)ceil_div(ceil_div(p->m_tiles, 2) * p->k_tiles, SMS) *
                  (p->chunks * chunk_clocks(c, t, r, p) + TILE_CLOCKS);
    } else if (r->kernel == DR_CONV_WL) {
        clocks += (double)ceil_div(tiles, SMS) * line_clocks(c, t, r, p);
    } else {
        const double chunk = chunk_clocks(c, t, r, p);
        const double unit = chunk * p->chunks / p->units;
        clocks += p->parts ? (double)ceil_div(tiles * p->units, p->parts) * unit +
                                 cut_clocks(r, p) + (double)tiles / p->parts * TILE_CLOCKS
                           : (double)ceil_div(tiles, SMS) * (p->chunks * chunk + TILE_CLOCKS);
    }
    return time_us(c, t, clocks, busy);
}

static bool plan_small(const struct dr_conv *c, enum dr_type t, const struct dr_conv_tile *tile,
                       bool linear, struct dr_conv_plan *out) {
    struct dr_small d;
    if (linear || !dr_cuda_conv_small_plan(c, t, SMS, &d)) {
        return false;
    }
    memset(out, 0, sizeof *out);
    out->tile = tile;
    out->n = c->n, out->h = c->h, out->w = c->w, out->ho = c->ho, out->wo = c->wo;
    out->m_tiles = d.tiles, out->k_tiles = d.tiles_k, out->shared_bytes = d.shared_bytes;
    out->us = time_us(c, t, d.clocks / share_of(tile, t), 1.0);
    return true;
}

/* WS: patches of 18 x 10 pixels, 64 channels (conv_ws.cu), three a warpgroup. */
static bool plan_ws(const struct dr_conv *c, enum dr_type t, bool stacked, struct dr_conv_plan *p) {
    if (c->c != 64 || t == DR_TYPE_F32 || c->dh != 1 || c->dw != 1 || c->k > 64 * 2 * SMS) {
        return false;
    }
    p->tn = 1, p->th = 16, p->tw = 8, p->ph = 18, p->pw = 10;
    p->linear = stacked;
    p->m_tiles =
        (stacked ? ceil_div(c->n * c->h, 16) : c->n * ceil_div(c->ho, 16)) * ceil_div(c->wo, 8);
    if (stacked && (c->pt != 0 || c->ho + 2 > c->h || c->h < 16)) {
        return false;
    }
    p->k_tiles = ceil_div(c->k, 64);
    p->chunks = 1, p->patches = 3;
    p->shared_bytes = 1024 + 4 * 128 * 128 + 2 * 3 * 23 * 1024 + 128;
    return p->m_tiles < INT32_MAX / p->k_tiles;
}

/* WA: a warpgroup's tile is two blocks of 16 x 8 pixels, beside or above each other or in two
 * images, whichever needs the fewest tiles; each warpgroup has its own patches. */
static bool plan_wa(const struct dr_conv *c, enum dr_type t, bool linear, struct dr_conv_plan *p) {
    static const int form[][3] = {{1, 16, 16}, {1, 32, 8}, {2, 16, 8}};
    int rows, columns;
    int64_t best = INT64_MAX, bytes = 0;
    reach(p, &rows, &columns);
    if (linear) {
        const int64_t pw = c->wo + columns, ph = (255 + pw - 1) / pw + 1 + rows;
        const int64_t stage = ceil_div(most(ph * pw, 256) * ROW_BYTES, 1024) * 1024;
        if (pw <= BOX && ph <= BOX &&
            1024 + 512 + 4 * stage + SLABS_LEAST * 64 * ROW_BYTES <= SHARED_BYTES) {
            best = c->n * ceil_div(c->ho * pw, 256), bytes = stage;
            p->tn = 1, p->th = p->tw = 16;
            p->ph = (int)ph, p->pw = (int)pw, p->linear = true;
        }
    }
    for (int i = 0; i < COUNT(form) && !linear; i++) {
        const int *f = form[i];
        const int64_t patch = (int64_t)f[0] * (f[1] + rows) * (f[2] + columns) * ROW_BYTES;
        const int64_t tiles = ceil_div(c->n, f[0]) * ceil_div(c->ho, f[1]) * ceil_div(c->wo, f[2]);
        const int64_t stage = ceil_div(most(patch, 256 * ROW_BYTES), 1024) * 1024;
        if (tiles < best && f[1] + rows <= BOX && f[2] + columns <= BOX &&
            1024 + 512 + 4 * stage + SLABS_LEAST * 64 * ROW_BYTES <= SHARED_BYTES) {
            best = tiles, bytes = stage;
            p->tn = f[0], p->th = f[1], p->tw = f[2];
            p->ph = f[1] + rows, p->pw = f[2] + columns;
        }
    }
    if (best == INT64_MAX) {
        return false;
    }
    const int64_t room = SHARED_BYTES - 1024 - 512 - 4 * bytes;
    p->m_tiles = best, p->k_tiles = ceil_div(c->k, 64);
    p->chunks = p->n_phases * (int)ceil_div(c->c * dr_type_bytes(t), ROW_BYTES);
    p->patches = 2, p->slabs = (int)least(8, room / (64 * ROW_BYTES));
    p->shared_bytes = (int)(1024 + 512 + 4 * bytes + p->slabs * 64 * ROW_BYTES);
    return p->m_tiles < INT32_MAX / 4 / p->k_tiles;
}

/* WK: tiles of 14 x 8 pixels; two patches a warpgroup, and weights of 64 filters (conv_wk.cu). */
static bool plan_wk(const struct dr_conv *c, enum dr_type t, bool linear, struct dr_conv_plan *p) {
    int rows, columns;
    reach(p, &rows, &columns);
    if (linear || t != DR_TYPE_F32 || c->sh != 1 || c->sw != 1 || c->c > 64 || rows + 14 > BOX ||
        columns + 8 > BOX) {
        return false;
    }
    p->tn = 1, p->th = 14, p->tw = 8, p->ph = 14 + rows, p->pw = 8 + columns;
    p->m_tiles = c->n * ceil_div(c->ho, 14) * ceil_div(c->wo, 8), p->k_tiles = ceil_div(c->k, 64);
    p->chunks = (int)ceil_div(c->c * dr_type_bytes(t), ROW_BYTES);
    p->patches = 2, p->slabs = (int)(c->kh * c->kw) * p->chunks;
    const int64_t patch = ceil_div((int64_t)p->ph * p->pw * ROW_BYTES, 1024) * 1024;
    const int64_t bytes = 1024 + (int64_t)p->slabs * 64 * ROW_BYTES + 4 * patch + 128;
    p->shared_bytes = (int)least(bytes, INT_MAX);
    return bytes <= SHARED_BYTES && p->m_tiles < INT32_MAX / 2 / p->k_tiles;
}

static bool plan_rs(const struct dr_conv *c, enum dr_type t, const struct dr_conv_tile *r,
                    bool linear, struct dr_conv_plan *p) {
    const int pixels = 64 * r->groups;
    const int64_t stages = SHARED_BYTES - fixed_bytes(c, r) - SLABS_LEAST * r->columns * ROW_BYTES;
    if (!(linear ? cut_lines(c, pixels, p) : cut_boxes(pixels, stages / 2 - 1023, p)) ||
        !fill_shared(c, r, p)) {
        return false;
    }
    p->k_tiles = ceil_div(c->k, r->columns);
    p->chunks = p->n_phases * (int)ceil_div(c->c * dr_type_bytes(t), ROW_BYTES);
    p->units = p->chunks;
    if (!r->three) {
        p->units = (int)(c->kh * c->kw) * (p->chunks / p->n_phases);
    }
    const int64_t units = p->m_tiles * p->k_tiles * p->units;
    if (units > INT32_MAX / 2 || (r->columns == 64) != (c->k <= 64) ||
        (r->columns == 256 && c->k <= 128)) {
        return false;
    }
    if (r->split) {
        p->parts = (int)least(r->parts, least(units, TILE_PARTS * p->m_tiles * p->k_tiles));
        p->workspace_bytes = (int64_t)p->parts * 2 * pixels * r->columns * (int64_t)sizeof(float);
    }
    return true;
}

/* WL: the tile of at most r->pixels outputs that takes the fewest waves, then brings the least,
 * then has the longest rows. */
static bool plan_wl(const struct dr_conv *c, enum dr_type t, const struct dr_conv_tile *r,
                    bool wide, struct dr_conv_plan *p) {
    const int64_t slab = (int64_t)r->columns * ROW_BYTES, k_tiles = ceil_div(c->k, r->columns);
    const int64_t place = t == DR_TYPE_F32 ? r->pixels * 8 : 0; /* tables of floats' pixels */
    const int64_t room = SHARED_BYTES - 1024 - 512 - place - 2 * dr_conv_out_bytes(r, t);
    int rows, columns;
    int64_t best = INT64_MAX, best_patch = INT64_MAX;
    reach(p, &rows, &columns);
    if (c->k <= 64 || (wide && columns == 0)) {
        return false;
    }
    p->linear = wide, p->k_tiles = k_tiles;
    for (int64_t tw = wide ? p->wo : 1; tw <= least(p->wo, r->pixels); tw++) {
        const int64_t pw = wide ? tw + columns : tw;
        for (int64_t th = 1; th <= least(r->pixels / pw, p->ho) && th + rows <= BOX; th++) {
            const int64_t tn = least(least(r->pixels / (pw * th), p->n), BOX);
            const int64_t tiles = ceil_div(p->wo, tw) * ceil_div(p->ho, th) * ceil_div(p->n, tn);
            const int64_t patch = ceil_div(pw * (th + rows) * tn * ROW_BYTES, 1024) * 1024;
            if (pw > BOX || 2 * patch + SLABS_LEAST * slab > room || tiles >= INT32_MAX / k_tiles) {
                continue;
            }
            const int64_t waves = ceil_div(tiles * k_tiles, SMS);
            if (waves < best || (waves == best && patch <= best_patch)) {
                best = waves, best_patch = patch, p->m_tiles = tiles;
                p->tn = (int)tn, p->th = (int)th, p->tw = (int)tw;
                p->ph = (int)th + rows, p->pw = (int)pw;
            }
        }
    }
    if (best == INT64_MAX) {
        return false;
    }
    p->chunks = p->n_phases * (int)ceil_div(c->c * dr_type_bytes(t), ROW_BYTES);
    p->patches = 2, p->slabs = (int)least(8, (room - 2 * best_patch) / slab);
    while (p->patches < 4 && (p->patches + 1) * best_patch + p->slabs * slab <= room) {
        p->patches++;
    }
    p->shared_bytes = (int)(SHARED_BYTES - room + p->patches * best_patch + p->slabs * slab);
    return true;
}

bool dr_cuda_conv_plan(const struct dr_conv *c, enum dr_type t, const struct dr_conv_tile *tile,
                       bool linear, struct dr_conv_plan *out) {
    const bool three = c->kh == 3 && c->kw == 3 && c->sh == 1 && c->sw == 1;
    if (tile->kernel == DR_CONV_SMALL) {
        return plan_small(c, t, tile, linear, out);
    }
    if (!possible(c, t) || (tile->three && !three) ||
        (three && !tile->three && tile->kernel == DR_CONV_RS && tile->columns < 256)) {
        return false;
    }
    const struct dr_conv f = flat(c);
    struct dr_conv_plan p;
    memset(&p, 0, sizeof p);
    p.tile = tile;
    p.n = f.n, p.h = f.h, p.w = f.w, p.ho = f.ho, p.wo = f.wo;
    if (!cut_phases(&f, &p) || !(tile->kernel == DR_CONV_WS   ? plan_ws(&f, t, linear, &p)
                                 : tile->kernel == DR_CONV_WA ? plan_wa(&f, t, linear, &p)
                                 : tile->kernel == DR_CONV_WL ? plan_wl(&f, t, tile, linear, &p)
                                 : tile->kernel == DR_CONV_WK ? plan_wk(&f, t, linear, &p)
                                                              : plan_rs(&f, t, tile, linear, &p))) {
        return false;
    }
    p.us = cost_us(&f, t, tile, &p);
    *out = p;
    return true;
}
