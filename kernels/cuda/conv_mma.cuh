/* im2win convolution on Tensor cores by mma.sync (sm_80 and up), one template for tf32, fp16 and
 * bf16, forward and data gradient; sums in fp32. The idea of the tile in fast memory, of swizzled
 * rows and of double buffering: Lu, Chu, Guo, Liu, "Im2win: An Efficient Convolution Paradigm on
 * GPU", arXiv 2306.14316; copies in the background and ldmatrix take the place of their registers.
 *
 * A block computes TM output pixels (a box of images x rows x columns, numbered m along them) by TK
 * filters of one group. For a chunk of channels it holds the patch of input that its windows cover,
 * once: windows overlap in it along both axes, and tap (kh, kw) of pixel m is the patch's pixel
 * at(m) + tap.at. Rows of a fragment are 16 bytes of such pixels, so ldmatrix reads windows in
 * place, whatever stride and dilation are: what lies between all taps is not loaded (patch columns
 * step by the greatest common divisor of stride and taps). Where a pixel has few channels, the
 * patch is in the papers' window order instead: patch row = output row, [column][kh][c], and only
 * kw moves (`merged`).
 *
 *  - k runs over chunks of channels, kw, kh, c in this order, 32 bytes a step: the same bits on any
 *    grid. Patches and slabs of weights (TK filters by the chunk, a few taps) are double- or
 *    triple-buffered: an iteration's copies run while earlier ones are multiplied.
 *  - Swizzle: 16-byte unit u of the patch's pixel q lies at u ^ hash(q). The hash of tap (kh, kw)
 * of pixel m is m + a constant of the tap, so the eight rows of a matrix hit eight bank groups,
 *    though they may come from several rows and images. Weights: u ^ filter.
 *  - Outputs go through shared memory, so that stores are whole rows of filters. */
#ifndef DR_KERNELS_CUDA_CONV_MMA_CUH
#define DR_KERNELS_CUDA_CONV_MMA_CUH

#include "kernels/cuda/conv_corr.cuh"
#include "kernels/cuda/mma.cuh"

namespace dr {

constexpr int MMA_THREADS = 256;
constexpr int MMA_NT = 4;                /* eights of filters a warp */
constexpr int MMA_RUNS = 64;             /* values of a merged window column at most */
constexpr size_t MMA_SHARED = 99 * 1024; /* the most that a block has on every sm_80 and later */

struct mma_tap {
    int at;         /* patch: pixels from a window's first to the tap; merged: source rows */
    int hash;       /* of the swizzle, against the window's first pixel */
    int64_t weight; /* offset in a filter */
};
/* The source pixel of a patch's pixel; -1: outside. row8 holds the hash in its low 3 bits, above
 * them (merged) the source row of kh = 0, which `pixel` then leaves out. */
struct mma_spot {
    int pixel, row8;
};
/* Where value j of a merged window column comes from. */
struct mma_run {
    int row;    /* from the source row of kh = 0 */
    int column; /* channel */
    int64_t weight;
};

struct mma_args {
    int n, h, w, c; /* source; c: channels of a group */
    int64_t c_total, k_total;
    int k, ho, wo, groups;
    int64_t w_group, w_k, w_c;
    dr_epilogue e;
    int oy_first, ox_first, oy_step, ox_step;
    int64_t out_h, out_w;
    int tn, th, tw;                       /* the box of output pixels */
    int tiles_n, tiles_y, tiles_x;        /* boxes */
    int ph, pw, pixels;                   /* the patch: rows and columns of an image, all */
    int first_y, first_x, step_y, step_x; /* source position of its first pixel, and steps */
    int patch_sy, patch_sx;               /* patch rows and columns from output to output */
    int source_sy, source_sx;             /* source rows and columns from output to output */
    int nx, ny;                           /* taps; merged: ny is 1 */
    int merged;                           /* taps along y in a window column, or 0 */
    int values;                           /* channels of a patch's pixel: c, or merged * c */
    int chunk, chunks;                    /* values at a time */
    int pitch_log;                        /* bytes of a patch's pixel: 2^this */
    int group_taps, groups_of_taps;       /* taps of an iteration; iterations of a chunk */
    int stages, patches;                  /* buffers of weights, of patches */
    uint32_t slab_bytes, patch_bytes;     /* of one */
    bool copy_x, copy_w, wide_y;          /* 16 bytes at a time */
    mma_tap x[TAPS], y[TAPS];
};

/* Shared memory, in this order. */
struct mma_shared {
    int64_t *out;    /* [TM] output pixel, -1: none */
    uint32_t *first; /* [TM] byte offset of a window's first pixel in the patch */
    mma_spot *spot;  /* [pixels] */
    mma_run *run;    /* [MMA_RUNS] if merged */
    unsigned char *patch, *slab;
};
static __host__ __device__ inline size_t mma_tables(const mma_args &p, int tm) {
    const size_t bytes = (size_t)tm * 12 + (size_t)p.pixels * sizeof(mma_spot) +
                         (p.merged ? MMA_RUNS * sizeof(mma_run) : 0);
    return (bytes + 127) / 128 * 128;
}
/* Units of 16 bytes of a row of 2^log bytes are stored at unit ^ mma_swizzle(log, hash). */
template <bool SWIZZLE> __device__ __forceinline__ uint32_t mma_swizzle(int log, uint32_t hash) {
    return SWIZZLE ? hash >> (7 - log) & ((1u << (log - 4)) - 1) : 0;
}
/* The same for row k of weights that lie as [k][filter]: fp32 is read by words, 4 rows at once. */
template <class T, int TK, bool SWIZZLE> __device__ __forceinline__ uint32_t mma_turned(int k) {
    constexpr int UNITS = TK * (int)sizeof(T) / 16;
    return !SWIZZLE         ? 0
           : sizeof(T) == 4 ? (uint32_t)(k & 3) << 1
           : UNITS >= 8     ? (uint32_t)k & 7
                            : (uint32_t)k >> 1 & 3;
}

template <class T> __device__ __forceinline__ T mma_zero() {
    T zero;
    dr_store(&zero, 0.0f);
    return zero;
}

/* Where the block's box begins. */
struct mma_box {
    int64_t image;
    int group, oy, ox, k;
};
template <int TK> __device__ __forceinline__ mma_box mma_box_of(const mma_args &p) {
    const int tiles_k = (p.k + TK - 1) / TK;
    mma_box b;
    unsigned id = blockIdx.x;
    b.k = (int)(id % tiles_k) * TK;
    id /= tiles_k;
    b.ox = (int)(id % p.tiles_x) * p.tw;
    id /= p.tiles_x;
    b.oy = (int)(id % p.tiles_y) * p.th;
    id /= p.tiles_y;
    b.group = (int)(id % p.groups);
    b.image = (int64_t)(id / p.groups) * p.tn;
    return b;
}

template <int TM>
__device__ __forceinline__ void mma_fill_tables(const mma_args &p, const mma_box &b,
                                                const mma_shared &s) {
    for (int m = threadIdx.x; m < TM; m += MMA_THREADS) {
        const int ox = m % p.tw, oy = m / p.tw % p.th, i = m / p.tw / p.th;
        const bool in = i < p.tn;
        s.first[m] = in ? (uint32_t)((i * p.ph + oy * p.patch_sy) * p.pw + ox * p.patch_sx)
                              << p.pitch_log
                        : 0;
        const bool out = in && b.image + i < p.n && b.oy + oy < p.ho && b.ox + ox < p.wo;
        s.out[m] = out ? ((b.image + i) * p.out_h + (int64_t)(b.oy + oy) * p.oy_step + p.oy_first) *
                                 p.out_w +
                             (int64_t)(b.ox + ox) * p.ox_step + p.ox_first
                       : -1;
    }
    const int iy0 = b.oy * p.source_sy + p.first_y, ix0 = b.ox * p.source_sx + p.first_x;
    for (int q = threadIdx.x; q < p.pixels; q += MMA_THREADS) {
        const int c = q % p.pw, r = q / p.pw % p.ph, i = q / p.pw / p.ph;
        const int iy = iy0 + r * p.step_y, ix = ix0 + c * p.step_x;
        const int hash = c / p.patch_sx + p.tw * (r / p.patch_sy + p.th * i);
        const bool in = b.image + i < p.n && ix >= 0 && ix < p.w;
        const bool row = p.merged || (iy >= 0 && iy < p.h);
        s.spot[q] = {in && row ? (i * p.h + (p.merged ? 0 : iy)) * p.w + ix : -1,
                     (int)((unsigned)iy << 3 | ((unsigned)hash & 7))};
    }
    if (p.merged) {
        for (int j = threadIdx.x; j < p.values; j += MMA_THREADS) {
            const int kh = j / p.c, c = j - kh * p.c;
            s.run[j] = {p.y[kh].at, c, p.y[kh].weight + c * p.w_c};
        }
    }
}

/* What of a chunk is real, and how many 32-byte steps it takes. */
struct mma_chunk {
    int first, steps;
};
template <class T> __device__ __forceinline__ mma_chunk mma_chunk_of(const mma_args &p, int q) {
    constexpr int STEP = 32 / (int)sizeof(T);
    const int first = q * p.chunk;
    return {first, (min(p.chunk, p.values - first) + STEP - 1) / STEP};
}

/* One chunk of the patch, zeros outside the image and up to whole steps. */
template <class T, bool SWIZZLE>
__device__ __forceinline__ void mma_load_patch(const mma_args &p, const mma_shared &s, const T *src,
                                               const mma_chunk &q, unsigned char *to) {
    constexpr int V = 16 / (int)sizeof(T);
    if (p.copy_x) {
        const int log = p.pitch_log - 4, unit = threadIdx.x & ((1 << log) - 1);
        const int c = q.first + unit * V;
        const uint32_t at = ptx::shared_address(to);
        if (unit >= 2 * q.steps) {
            return;
        }
        for (int i = threadIdx.x >> log; i < p.pixels; i += MMA_THREADS >> log) {
            const mma_spot spot = s.spot[i];
            const bool in = spot.pixel >= 0 && c < p.values;
            ptx::copy_async16(at + ((uint32_t)i << p.pitch_log) +
                                  ((unit ^ mma_swizzle<SWIZZLE>(p.pitch_log, spot.row8 & 7)) << 4),
                              in ? src + spot.pixel * p.c_total + c : src, in);
        }
        return;
    }
    const int log = p.pitch_log - (sizeof(T) == 4 ? 2 : 1), j = threadIdx.x & ((1 << log) - 1);
    const int value = q.first + j;
    if (j >= q.steps * 2 * V) {
        return;
    }
    const bool real = value < p.values;
    const mma_run run = p.merged && real ? s.run[value] : mma_run{0, value, 0};
    for (int i = threadIdx.x >> log; i < p.pixels; i += MMA_THREADS >> log) {
        const mma_spot spot = s.spot[i];
        const int row = (spot.row8 >> 3) + run.row;
        const bool in = spot.pixel >= 0 && real && (!p.merged || (row >= 0 && row < p.h));
        const int64_t pixel = spot.pixel + (p.merged ? (int64_t)row * p.w : 0);
        const uint32_t unit = (uint32_t)(j / V) ^ mma_swizzle<SWIZZLE>(p.pitch_log, spot.row8 & 7);
        *(T *)(to + ((size_t)i << p.pitch_log) + unit * 16 + j % V * sizeof(T)) =
            in ? src[pixel * p.c_total + run.column] : mma_zero<T>();
    }
}

/* How this thread copies the weights of a tap, 16 bytes at a time, so that a tap costs few
 * instructions: rows `row`, row + step, ... of the slab. */
template <class T> struct mma_feed {
    const T *from; /* tap 0, value 0 of its first row */
    uint32_t to;   /* in the slab; a step further are 4096 bytes, as 256 threads copy those */
    int row, step;
    int64_t stride; /* elements from step to step */
    int unit;       /* of 16 bytes in a row */
};
template <class T, bool TURNED, int TK, bool SWIZZLE>
__device__ __forceinline__ mma_feed<T> mma_feed_of(const mma_args &p, const T *w, int k0) {
    constexpr int V = 16 / (int)sizeof(T), UNITS = TK / V;
    mma_feed<T> f;
    if (TURNED) {
        f.unit = threadIdx.x % UNITS, f.row = threadIdx.x / UNITS, f.step = MMA_THREADS / UNITS;
        f.to = (uint32_t)(f.row * UNITS + (f.unit ^ mma_turned<T, TK, SWIZZLE>(f.row))) * 16;
        f.from = w + f.row * p.w_c + k0 + f.unit * V;
        f.stride = f.step * p.w_c;
    } else {
        const int log = p.pitch_log - 4;
        f.unit = threadIdx.x & ((1 << log) - 1), f.row = threadIdx.x >> log;
        f.step = MMA_THREADS >> log;
        f.to = ((uint32_t)f.row << p.pitch_log) +
               ((f.unit ^ mma_swizzle<SWIZZLE>(p.pitch_log, f.row & 7)) << 4);
        f.from = w + (k0 + f.row) * p.w_k + f.unit * V;
        f.stride = f.step * p.w_k;
    }
    return f;
}
template <class T, bool TURNED, int TK>
__device__ __forceinline__ void mma_copy_weights(const mma_args &p, const mma_feed<T> &f,
                                                 int64_t tap, int k0, const mma_chunk &q,
                                                 uint32_t to) {
    constexpr int V = 16 / (int)sizeof(T);
    const T *from = f.from + tap + (TURNED ? q.first * p.w_c : q.first);
    to += f.to;
    if (TURNED) { /* rows are values, units are filters */
        const bool in = k0 + f.unit * V < p.k;
        const int rows = q.steps * 2 * V, real = in ? p.values - q.first : 0;
#pragma unroll 4
        for (int j = f.row; j < rows; j += f.step, from += f.stride, to += 4096) {
            ptx::copy_async16(to, from, j < real);
        }
    } else if (f.unit < 2 * q.steps) {
        const int real = q.first + f.unit * V < p.values ? p.k - k0 : 0;
#pragma unroll 4
        for (int k = f.row; k < TK; k += f.step, from += f.stride, to += 4096) {
            ptx::copy_async16(to, from, k < real);
        }
    }
}

/* The weights of one tap for a chunk, element by element: [filter][value], or (TURNED)
 * [value][filter]. */
template <class T, bool TURNED, int TK, bool SWIZZLE>
__device__ __forceinline__ void mma_load_weights(const mma_args &p, const mma_shared &s, const T *w,
                                                 int k0, const mma_chunk &q, unsigned char *to) {
    constexpr int V = 16 / (int)sizeof(T), UNITS = TK / V;
    const int values = q.steps * 2 * V;
    for (int i = threadIdx.x; i < values * TK; i += MMA_THREADS) {
        const int k = TURNED ? i % TK : i / values, j = TURNED ? i / TK : i - k * values;
        const int value = q.first + j;
        T v = mma_zero<T>();
        if (k0 + k < p.k && value < p.values) {
            v = w[(k0 + k) * p.w_k + (p.merged ? s.run[value].weight : value * p.w_c)];
        }
        const uint32_t unit = TURNED
                                  ? j * UNITS + ((uint32_t)(k / V) ^ mma_turned<T, TK, SWIZZLE>(j))
                                  : (uint32_t)(j / V) ^ mma_swizzle<SWIZZLE>(p.pitch_log, k & 7);
        *(T *)(to + (TURNED ? 0 : (size_t)k << p.pitch_log) + unit * 16 +
               (TURNED ? k : j) % V * sizeof(T)) = v;
    }
}

/* A place in the walk over chunks and taps, iteration by iteration, and its buffers. */
struct mma_walk {
    int chunk, group, kw, kh; /* kw, kh: the group's first tap */
    int patch, slab;          /* of the buffers */
    __device__ __forceinline__ void next_tap(const mma_args &p) {
        if (++kh == p.ny) {
            kh = 0, kw++;
        }
    }
    /* After the group's taps were stepped over. */
    __device__ __forceinline__ void next_group(const mma_args &p) {
        slab = slab + 1 == p.stages ? 0 : slab + 1;
        if (++group == p.groups_of_taps) {
            group = kw = kh = 0, chunk++;
            patch = patch + 1 == p.patches ? 0 : patch + 1;
        }
    }
};

/* Copies for one iteration: its weights, and at a chunk's first the patch. */
template <class T, bool TURNED, int TK, bool SWIZZLE>
__device__ __forceinline__ void mma_fetch(const mma_args &p, const mma_shared &s, const T *src,
                                          const T *w, const mma_feed<T> &feed, int k0,
                                          mma_walk &at) {
    const mma_chunk q = mma_chunk_of<T>(p, at.chunk);
    if (at.group == 0) {
        mma_load_patch<T, SWIZZLE>(p, s, src, q, s.patch + (size_t)at.patch * p.patch_bytes);
    }
    unsigned char *slab = s.slab + (size_t)at.slab * p.slab_bytes;
    for (int i = 0; i < p.group_taps && at.kw < p.nx; i++) {
        const int64_t tap = p.x[at.kw].weight + (p.merged ? 0 : p.y[at.kh].weight);
        if (p.copy_w) {
            mma_copy_weights<T, TURNED, TK>(p, feed, tap, k0, q, ptx::shared_address(slab));
        } else {
            mma_load_weights<T, TURNED, TK, SWIZZLE>(p, s, w + tap, k0, q, slab);
        }
        slab += (size_t)TK << p.pitch_log;
        at.next_tap(p);
    }
    at.next_group(p);
}

/* NT eights of columns from n0 of a tile [k][TK] in shared memory, for one step of 32 bytes of k,
 * as fragments of B. */
template <class Op, int TK, int NT, bool SWIZZLE>
__device__ __forceinline__ void mma_turned_columns(uint32_t tile, int n0, int step,
                                                   uint32_t (&b)[NT][2]) {
    using T = typename Op::T;
    constexpr int V = 16 / (int)sizeof(T), UNITS = TK / V;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < NT; i += 2) {
        const int n = n0 + i * 8;
        if constexpr (!Op::tf32) {
            const int k = step * 16 + (lane & 15);
            const uint32_t unit = (uint32_t)(n / V + (lane >> 4)) ^ mma_turned<T, TK, SWIZZLE>(k);
            ptx::load_matrices_turned(b[i][0], b[i][1], b[i + 1][0], b[i + 1][1],
                                      tile + ((uint32_t)k * UNITS + unit) * 16);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) { /* eight i + j / 2, register j % 2 */
                const int k = step * 8 + (lane & 3) + j % 2 * 4, f = n + j / 2 * 8 + (lane >> 2);
                const uint32_t unit = (uint32_t)(f / V) ^ mma_turned<T, TK, SWIZZLE>(k);
                b[i + j / 2][j % 2] = Op::operand(
                    ptx::load_shared_word(tile + ((uint32_t)k * UNITS + unit) * 16 + f % V * 4));
            }
        }
    }
}

/* Fragments of B for one step, for 32 filters from n0. */
template <class Op, bool TURNED, int TK, bool SWIZZLE>
__device__ __forceinline__ void mma_weights(const mma_args &p, uint32_t slab, int n0, int step,
                                            uint32_t (&b)[MMA_NT][2]) {
    if (TURNED) {
        mma_turned_columns<Op, TK, MMA_NT, SWIZZLE>(slab, n0, step, b);
        return;
    }
    const int lane = threadIdx.x % 32;
    const uint32_t unit =
        (2 * step + (lane >> 3 & 1)) ^ mma_swizzle<SWIZZLE>(p.pitch_log, lane & 7);
#pragma unroll
    for (int i = 0; i < MMA_NT; i += 2) {
        const uint32_t filter = (uint32_t)(n0 + i * 8 + (lane >> 4) * 8 + (lane & 7));
        ptx::load_matrices(b[i][0], b[i][1], b[i + 1][0], b[i + 1][1],
                           slab + (filter << p.pitch_log) + (unit << 4));
#pragma unroll
        for (int j = 0; j < 4; j++) {
            b[i + j / 2][j % 2] = Op::operand(b[i + j / 2][j % 2]);
        }
    }
}

/* STEPS steps of one tap. first: this lane's row of each fragment of A. */
template <class Op, bool TURNED, int TK, int MT, bool SWIZZLE, int STEPS>
__device__ __forceinline__ void mma_tap_steps(const mma_args &p, uint32_t patch, uint32_t hash,
                                              const uint32_t (&first)[MT], uint32_t slab, int n0,
                                              float (&acc)[MT][MMA_NT][4]) {
    const uint32_t x = mma_swizzle<SWIZZLE>(p.pitch_log, hash & 7);
    const uint32_t high = threadIdx.x % 32 >> 4;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        uint32_t a[MT][4], b[MMA_NT][2];
        const uint32_t unit = patch + (((2 * step + high) ^ x) << 4);
#pragma unroll
        for (int m = 0; m < MT; m++) {
            ptx::load_matrices(a[m][0], a[m][1], a[m][2], a[m][3], first[m] + unit);
        }
        mma_weights<Op, TURNED, TK, SWIZZLE>(p, slab, n0, step, b);
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int r = 0; r < 4; r++) {
                a[m][r] = Op::operand(a[m][r]);
            }
#pragma unroll
            for (int n = 0; n < MMA_NT; n++) {
                Op::mma(acc[m][n], a[m], b[n]);
            }
        }
    }
}

/* One iteration: the taps of a group. */
template <class Op, bool TURNED, int TK, int MT, bool SWIZZLE>
__device__ __forceinline__ void mma_multiply(const mma_args &p, const mma_shared &s,
                                             const uint32_t (&first)[MT], int n0, mma_walk &at,
                                             float (&acc)[MT][MMA_NT][4]) {
    const int steps = mma_chunk_of<typename Op::T>(p, at.chunk).steps;
    const uint32_t patch = ptx::shared_address(s.patch) + (uint32_t)at.patch * p.patch_bytes;
    uint32_t slab = ptx::shared_address(s.slab) + (uint32_t)at.slab * p.slab_bytes;
    for (int i = 0; i < p.group_taps && at.kw < p.nx; i++) {
        const int tap = p.x[at.kw].at + (p.merged ? 0 : p.y[at.kh].at);
        const uint32_t hash =
            (uint32_t)(p.x[at.kw].hash + (p.merged ? 0 : p.y[at.kh].hash)) + threadIdx.x % 8;
        const uint32_t from = patch + ((uint32_t)tap << p.pitch_log);
        switch (steps) { /* unrolled, whatever the chunk is */
        case 4:
            mma_tap_steps<Op, TURNED, TK, MT, SWIZZLE, 4>(p, from, hash, first, slab, n0, acc);
            break;
        case 3:
            mma_tap_steps<Op, TURNED, TK, MT, SWIZZLE, 3>(p, from, hash, first, slab, n0, acc);
            break;
        case 2:
            mma_tap_steps<Op, TURNED, TK, MT, SWIZZLE, 2>(p, from, hash, first, slab, n0, acc);
            break;
        default:
            mma_tap_steps<Op, TURNED, TK, MT, SWIZZLE, 1>(p, from, hash, first, slab, n0, acc);
        }
        slab += (uint32_t)TK << p.pitch_log;
        at.next_tap(p);
    }
    at.next_group(p);
}

/* The whole sum, over all chunks and taps. */
template <class Op, bool TURNED, int TK, int MT, bool SWIZZLE, bool BUFFERED>
__device__ __forceinline__ void
mma_sum(const mma_args &p, const mma_shared &s, const typename Op::T *src, const typename Op::T *w,
        int k0, const uint32_t (&first)[MT], int n0, float (&acc)[MT][MMA_NT][4]) {
    const int total = p.chunks * p.groups_of_taps, ahead = BUFFERED ? p.stages - 1 : 0;
    const auto feed = mma_feed_of<typename Op::T, TURNED, TK, SWIZZLE>(p, w, k0);
    mma_walk fetched = {}, done = {};
    for (int i = 0; i < ahead; i++) {
        if (i < total) {
            mma_fetch<typename Op::T, TURNED, TK, SWIZZLE>(p, s, src, w, feed, k0, fetched);
        }
        ptx::copies_commit();
    }
    for (int i = 0; i < total; i++) {
        if (BUFFERED) {
            if (ahead == 2) {
                ptx::copies_wait<1>();
            } else {
                ptx::copies_wait<0>();
            }
            __syncthreads(); /* iteration i is there, i - 1 is read */
        }
        if (i + ahead < total) {
            mma_fetch<typename Op::T, TURNED, TK, SWIZZLE>(p, s, src, w, feed, k0, fetched);
        }
        ptx::copies_commit();
        if (!BUFFERED) {
            ptx::copies_wait<0>();
            __syncthreads();
        }
        mma_multiply<Op, TURNED, TK, MT, SWIZZLE>(p, s, first, n0, done, acc);
        if (!BUFFERED) {
            __syncthreads();
        }
    }
}

/* Sums to shared memory: [TM][TK] fp32 with 32 bytes between rows, free of conflicts here. */
template <int TK, int MT>
__device__ __forceinline__ void mma_stage(int m0, int n0, const float (&acc)[MT][MMA_NT][4],
                                          float *stage) {
    constexpr int PITCH = TK + 8;
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < MMA_NT; n++) {
            float *const to = stage + (m0 + m * 16 + g) * PITCH + n0 + n * 8 + 2 * t;
            *(float2 *)to = make_float2(acc[m][n][0], acc[m][n][1]);
            *(float2 *)(to + 8 * PITCH) = make_float2(acc[m][n][2], acc[m][n][3]);
        }
    }
}

/* N neighbouring filters of row after row: the epilogue, and stores of N elements. A thread keeps
 * its filters, so what they have in common is worked out once. PLAIN: no addend, and at most relu.
 */
template <class T, int N, int TM, int TK, bool PLAIN>
__device__ __forceinline__ void mma_store(const mma_args &p, const mma_shared &s, const mma_box &b,
                                          const float *stage, T *y) {
    constexpr int LANES = TK / N, PITCH = TK + 8;
    struct alignas(N * sizeof(T)) pack {
        T at[N];
    };
    const int k = threadIdx.x % LANES * N;
    if (b.k + k >= p.k) {
        return;
    }
    const int64_t filter = (int64_t)b.group * p.k + b.k + k;
    dr_column column[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        column[i] = dr_column_of(p.e, filter + i);
    }
    const bool relu = p.e.act == 1;
    for (int m = threadIdx.x / LANES; m < TM; m += MMA_THREADS / LANES) {
        if (s.out[m] < 0) {
            continue;
        }
        const int64_t at = s.out[m] * p.k_total + filter;
        pack out, add = {};
        if (!PLAIN && p.e.add) {
            add = *(const pack *)((const T *)p.e.add + at);
        }
        alignas(16) float v[N];
        if constexpr (N % 4 == 0) {
#pragma unroll
            for (int i = 0; i < N; i += 4) {
                *(float4 *)&v[i] = *(const float4 *)(stage + m * PITCH + k + i);
            }
        } else {
            v[0] = stage[m * PITCH + k];
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (PLAIN) {
                v[i] = fmaf(v[i], column[i].scale, column[i].shift);
                v[i] = relu && v[i] <= 0.0f ? 0.0f : v[i];
            } else {
                v[i] = dr_activate_short(dr_finish_sum(p.e, column[i], v[i], dr_load(&add.at[i])),
                                         p.e.act);
            }
            dr_store(&out.at[i], v[i]);
        }
        *(pack *)(y + at) = out;
    }
}

/* WN warps side by side along the filters, 8 / WN along the pixels, of MT sixteens each. */
template <class Op, bool TURNED, int WN, int MT, bool SWIZZLE, bool BUFFERED>
__global__ void __launch_bounds__(MMA_THREADS, 2)
    mma_kernel(const __grid_constant__ mma_args p, const typename Op::T *x, const typename Op::T *w,
               typename Op::T *y) {
    using T = typename Op::T;
    constexpr int TM = 8 / WN * MT * 16, TK = WN * MMA_NT * 8;
    extern __shared__ __align__(128) unsigned char shared[];
    mma_shared s;
    s.out = (int64_t *)shared;
    s.first = (uint32_t *)(s.out + TM);
    s.spot = (mma_spot *)(s.first + TM);
    s.run = (mma_run *)(s.spot + p.pixels);
    s.patch = shared + mma_tables(p, TM);
    s.slab = s.patch + (size_t)p.patches * p.patch_bytes;

    const mma_box b = mma_box_of<TK>(p);
    mma_fill_tables<TM>(p, b, s);
    __syncthreads();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int m0 = warp / WN * MT * 16, n0 = warp % WN * MMA_NT * 8;
    uint32_t first[MT];
#pragma unroll
    for (int m = 0; m < MT; m++) {
        first[m] = s.first[m0 + m * 16 + (lane & 15)];
    }
    float acc[MT][MMA_NT][4] = {};
    mma_sum<Op, TURNED, TK, MT, SWIZZLE, BUFFERED>(
        p, s, x + b.image * p.h * p.w * p.c_total + (int64_t)b.group * p.c, w + b.group * p.w_group,
        b.k, first, n0, acc);
    __syncthreads(); /* patches and slabs make room for the outputs */
    float *const stage = (float *)s.patch;
    mma_stage<TK, MT>(m0, n0, acc, stage);
    __syncthreads();
    constexpr int V = 16 / (int)sizeof(T);
    if (p.wide_y && !p.e.add && p.e.act <= 1) {
        mma_store<T, V, TM, TK, true>(p, s, b, stage, y);
    } else if (p.wide_y) {
        mma_store<T, V, TM, TK, false>(p, s, b, stage, y);
    } else {
        mma_store<T, 1, TM, TK, false>(p, s, b, stage, y);
    }
}

/* Fills in *p for corr c and a kernel of tm x tk; the shared memory it takes, or 0: it does not
 * fit. `stages`: 3 or 2 as fits; 1: not buffered. */
size_t mma_plan(const corr &c, int bytes_of_type, bool turned, int tm, int tk, int stages,
                const void *x, const void *w, const void *y, mma_args *p);
static inline int64_t mma_blocks(const mma_args &p, int tk) {
    return (int64_t)((p.k + tk - 1) / tk) * p.tiles_x * p.tiles_y * p.groups * p.tiles_n;
}

template <class Op, bool TURNED, int WN, int MT, bool SWIZZLE, bool BUFFERED>
int mma_launch(const corr &c, const void *x, const void *w, void *y, bool *fits, cudaStream_t s) {
    using T = typename Op::T;
    constexpr int TM = 8 / WN * MT * 16, TK = WN * MMA_NT * 8;
    mma_args p;
    const size_t bytes = mma_plan(c, (int)sizeof(T), TURNED, TM, TK, BUFFERED ? 3 : 1, x, w, y, &p);
    const int64_t blocks = bytes ? mma_blocks(p, TK) : 0;
    *fits = bytes != 0 && blocks <= INT32_MAX;
    if (!*fits || blocks == 0) {
        return (int)cudaSuccess;
    }
    const auto kernel = mma_kernel<Op, TURNED, WN, MT, SWIZZLE, BUFFERED>;
    const cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)MMA_SHARED);
    if (e != cudaSuccess) {
        return (int)e;
    }
    kernel<<<(unsigned)blocks, MMA_THREADS, bytes, s>>>(p, (const T *)x, (const T *)w, (T *)y);
    return (int)cudaGetLastError();
}

} // namespace dr
#endif
