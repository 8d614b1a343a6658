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
constexpr int MMA_NT = 4;    /* eights of filters a warp */
constexpr int MMA_RUNS = 64; /* values of a merged window column at most */

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
static __host__ __device__ inline size_t mma_slab(const mma_args &p, int tk) {
    return ((size_t)tk * p.group_taps) << p.pitch_log;
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
        const uint32_t at = dr_shared_address(to);
        if (unit >= 2 * q.steps) {
            return;
        }
        for (int i = threadIdx.x >> log; i < p.pixels; i += MMA_THREADS >> log) {
            const mma_spot spot = s.spot[i];
            const bool in = spot.pixel >= 0 && c < p.values;
            dr_copy16(at + ((uint32_t)i << p.pitch_log) +
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

/* The weights of one tap for a chunk: [filter][value], or (TURNED) [value][filter]. */
template <class T, bool TURNED, int TK, bool SWIZZLE>
__device__ __forceinline__ void mma_load_weights(const mma_args &p, const mma_shared &s, const T *w,
                                                 int k0, const mma_chunk &q, unsigned char *to) {
    constexpr int V = 16 / (int)sizeof(T), UNITS = TK / V;
    const uint32_t at = dr_shared_address(to);
    if (p.copy_w && !TURNED) {
        const int log = p.pitch_log - 4, unit = threadIdx.x & ((1 << log) - 1);
        const int c = q.first + unit * V;
        for (int k = threadIdx.x >> log; k < TK && unit < 2 * q.steps; k += MMA_THREADS >> log) {
            const bool in = k0 + k < p.k && c < p.values;
            dr_copy16(at + ((uint32_t)k << p.pitch_log) +
                          ((unit ^ mma_swizzle<SWIZZLE>(p.pitch_log, k & 7)) << 4),
                      in ? w + (k0 + k) * p.w_k + c : w, in);
        }
        return;
    }
    if (p.copy_w) {
        const int unit = threadIdx.x % UNITS, k = k0 + unit * V;
        for (int j = threadIdx.x / UNITS; j < q.steps * 2 * V; j += MMA_THREADS / UNITS) {
            const bool in = q.first + j < p.values && k < p.k;
            dr_copy16(at + (uint32_t)(j * UNITS + (unit ^ mma_turned<T, TK, SWIZZLE>(j))) * 16,
                      in ? w + (q.first + j) * p.w_c + k : w, in);
        }
        return;
    }
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

/* A place in the walk over chunks and taps: iteration by iteration, or tap by tap in one. */
struct mma_walk {
    int chunk, group, kw, kh; /* kw, kh: the group's first tap */
    __device__ __forceinline__ void next_tap(const mma_args &p) {
        if (++kh == p.ny) {
            kh = 0, kw++;
        }
    }
    /* After the group's taps were stepped over. */
    __device__ __forceinline__ void next_group(const mma_args &p) {
        if (++group == p.groups_of_taps) {
            group = kw = kh = 0, chunk++;
        }
    }
};

/* Copies for one iteration: its weights, and at a chunk's first the patch. */
template <class T, bool TURNED, int TK, bool SWIZZLE>
__device__ __forceinline__ void mma_fetch(const mma_args &p, const mma_shared &s, const T *src,
                                          const T *w, int k0, mma_walk &at, int iteration) {
    const mma_chunk q = mma_chunk_of<T>(p, at.chunk);
    if (at.group == 0) {
        mma_load_patch<T, SWIZZLE>(
            p, s, src, q, s.patch + (((size_t)(at.chunk % p.patches) * p.pixels) << p.pitch_log));
    }
    unsigned char *slab = s.slab + iteration % p.stages * mma_slab(p, TK);
    for (int i = 0; i < p.group_taps && at.kw < p.nx; i++) {
        mma_load_weights<T, TURNED, TK, SWIZZLE>(
            p, s, w + p.x[at.kw].weight + (p.merged ? 0 : p.y[at.kh].weight), k0, q, slab);
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
            dr_ldmatrix_trans(b[i][0], b[i][1], b[i + 1][0], b[i + 1][1],
                              tile + ((uint32_t)k * UNITS + unit) * 16);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) { /* eight i + j / 2, register j % 2 */
                const int k = step * 8 + (lane & 3) + j % 2 * 4, f = n + j / 2 * 8 + (lane >> 2);
                const uint32_t unit = (uint32_t)(f / V) ^ mma_turned<T, TK, SWIZZLE>(k);
                b[i + j / 2][j % 2] = Op::operand(
                    dr_load_shared(tile + ((uint32_t)k * UNITS + unit) * 16 + f % V * 4));
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
        dr_ldmatrix(b[i][0], b[i][1], b[i + 1][0], b[i + 1][1],
                    slab + (filter << p.pitch_log) + (unit << 4));
#pragma unroll
        for (int j = 0; j < 4; j++) {
            b[i + j / 2][j % 2] = Op::operand(b[i + j / 2][j % 2]);
        }
    }
}

/* STEPS steps (0: `steps`) of one tap. first: this lane's row of each fragment of A. */
template <class Op, bool TURNED, int TK, int MT, bool SWIZZLE, int STEPS>
__device__ __forceinline__ void mma_tap_steps(const mma_args &p, uint32_t patch, uint32_t hash,
                                              const uint32_t (&first)[MT], uint32_t slab, int n0,
                                              int steps, float (&acc)[MT][MMA_NT][4]) {
    const uint32_t x = mma_swizzle<SWIZZLE>(p.pitch_log, hash & 7);
    const uint32_t high = threadIdx.x % 32 >> 4;
#pragma unroll
    for (int step = 0; step < (STEPS ? STEPS : steps); step++) {
        uint32_t a[MT][4], b[MMA_NT][2];
        const uint32_t unit = patch + (((2 * step + high) ^ x) << 4);
#pragma unroll
        for (int m = 0; m < MT; m++) {
            dr_ldmatrix(a[m][0], a[m][1], a[m][2], a[m][3], first[m] + unit);
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
                                             int iteration, float (&acc)[MT][MMA_NT][4]) {
    const int steps = mma_chunk_of<typename Op::T>(p, at.chunk).steps;
    const uint32_t patch = dr_shared_address(s.patch) +
                           ((uint32_t)(at.chunk % p.patches) * (uint32_t)p.pixels << p.pitch_log);
    uint32_t slab =
        dr_shared_address(s.slab) + (uint32_t)(iteration % p.stages) * (uint32_t)mma_slab(p, TK);
    for (int i = 0; i < p.group_taps && at.kw < p.nx; i++) {
        const int tap = p.x[at.kw].at + (p.merged ? 0 : p.y[at.kh].at);
        const uint32_t hash =
            (uint32_t)(p.x[at.kw].hash + (p.merged ? 0 : p.y[at.kh].hash)) + threadIdx.x % 8;
        const uint32_t from = patch + ((uint32_t)tap << p.pitch_log);
        if (steps == 4) {
            mma_tap_steps<Op, TURNED, TK, MT, SWIZZLE, 4>(p, from, hash, first, slab, n0, 4, acc);
        } else {
            mma_tap_steps<Op, TURNED, TK, MT, SWIZZLE, 0>(p, from, hash, first, slab, n0, steps,
                                                          acc);
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
    mma_walk fetched = {}, done = {};
    for (int i = 0; i < ahead; i++) {
        if (i < total) {
            mma_fetch<typename Op::T, TURNED, TK, SWIZZLE>(p, s, src, w, k0, fetched, i);
        }
        dr_copy_commit();
    }
    for (int i = 0; i < total; i++) {
        if (BUFFERED) {
            if (ahead == 2) {
                dr_copy_wait<1>();
            } else {
                dr_copy_wait<0>();
            }
            __syncthreads(); /* iteration i is there, i - 1 is read */
        }
        if (i + ahead < total) {
            mma_fetch<typename Op::T, TURNED, TK, SWIZZLE>(p, s, src, w, k0, fetched, i + ahead);
        }
        dr_copy_commit();
        if (!BUFFERED) {
            dr_copy_wait<0>();
            __syncthreads();
        }
        mma_multiply<Op, TURNED, TK, MT, SWIZZLE>(p, s, first, n0, done, i, acc);
        if (!BUFFERED) {
            __syncthreads();
        }
    }
}

/* The epilogue, into shared memory: [TM][TK] with 16 bytes between rows. */
template <class T, int TK, int MT>
__device__ __forceinline__ void mma_finish(const mma_args &p, const mma_shared &s, const mma_box &b,
                                           int m0, int n0, const float (&acc)[MT][MMA_NT][4],
                                           T *stage) {
    constexpr int PITCH = TK + 16 / (int)sizeof(T);
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < MMA_NT; n++) {
        const int k = n0 + n * 8 + 2 * t; /* and k + 1 */
        const int64_t kk = (int64_t)b.group * p.k + b.k + k;
        const bool in[2] = {b.k + k < p.k, b.k + k + 1 < p.k};
        const dr_column none = {1.0f, 0.0f};
        const dr_column column[2] = {in[0] ? dr_column_of(p.e, kk) : none,
                                     in[1] ? dr_column_of(p.e, kk + 1) : none};
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int half = 0; half < 2; half++) { /* acc[..][i]: pixel g or g + 8, k or k + 1 */
                const int row = m0 + m * 16 + g + half * 8;
                const int64_t pixel = s.out[row];
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if (pixel >= 0 && in[j]) {
                        dr_store(stage + row * PITCH + k + j,
                                 dr_finish<T>(p.e, column[j], acc[m][n][half * 2 + j],
                                              pixel * p.k_total + kk + j));
                    }
                }
            }
        }
    }
}

template <class T, int TM, int TK>
__device__ __forceinline__ void mma_store(const mma_args &p, const mma_shared &s, const mma_box &b,
                                          const T *stage, T *y) {
    constexpr int V = 16 / (int)sizeof(T), UNITS = TK / V, PITCH = TK + V;
    T *const to = y + (int64_t)b.group * p.k + b.k;
    if (p.wide_y) {
        const int k = threadIdx.x % UNITS * V;
        for (int m = threadIdx.x / UNITS; m < TM && b.k + k < p.k; m += MMA_THREADS / UNITS) {
            if (s.out[m] >= 0) {
                *(uint4 *)(to + s.out[m] * p.k_total + k) = *(const uint4 *)(stage + m * PITCH + k);
            }
        }
        return;
    }
    const int k = threadIdx.x % TK;
    for (int m = threadIdx.x / TK; m < TM && b.k + k < p.k; m += MMA_THREADS / TK) {
        if (s.out[m] >= 0) {
            to[s.out[m] * p.k_total + k] = stage[m * PITCH + k];
        }
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
    s.slab = s.patch + (((size_t)p.patches * p.pixels) << p.pitch_log);

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
    mma_finish<T, TK, MT>(p, s, b, m0, n0, acc, (T *)s.patch);
    __syncthreads();
    mma_store<T, TM, TK>(p, s, b, (const T *)s.patch, y);
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
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SHARED_MOST);
    if (e != cudaSuccess) {
        return (int)e;
    }
    kernel<<<(unsigned)blocks, MMA_THREADS, bytes, s>>>(p, (const T *)x, (const T *)w, (T *)y);
    return (int)cudaGetLastError();
}

} // namespace dr
#endif
