/* Convolution in fp32 on CUDA cores, forward and data gradient: the implicit product of im2win's
 * windows (Lu, Chu, Guo, Liu: "Im2win: An Efficient Convolution Paradigm on GPU", arXiv 2306.14316)
 * and the filters, which no memory ever holds as matrices.
 *
 *     rows      output pixels of one phase, in order through all images
 *     columns   filters of one group
 *     depth     (kw, kh, c) with c innermost: a window
 *
 * A block computes BM pixels by BN filters, a thread 8 x 8 of them (64 multiply-adds for 16 values
 * loaded) or, with more registers, 8 x 12. Depth goes in steps of 16 through
 * a ring of stages that cp.async fills: value (pixel, depth) of the windows is copied straight from
 * where the tables of taps and of pixels say it is; outside of the image cp.async writes a zero.
 * A thread reads four values at a time, of filters [depth][filter], of windows as `form` says.
 *
 * Lanes of a warp share operands: 8 groups of pixels by 4 groups of filters, even and odd lanes
 * reading neighbouring groups of filters; every quarter of a warp then reads each bank at most
 * once.
 *
 * The data gradient is the same kernel over dy with flipped weights, read through strides instead
 * of being repacked. With a forward stride, the rows and columns of dx fall into stride x stride
 * phases, and each phase sees only every stride-th tap: each is a correlation of stride 1 with its
 * own list of taps, so taps that the stride skips cost nothing and add nothing.
 *
 * Sums run over kw, kh, c in this order: the same bits on any grid. */
#include "kernels/cuda/conv_corr.cuh"
#include "kernels/cuda/conv_f32_tile.h"
#include "kernels/cuda/ptx.cuh"

#include <algorithm>

namespace dr {
namespace {

constexpr int DEPTH = 16, STAGES = 3;
constexpr int MOST_TAPS = TAPS * TAPS;

/* How windows lie in shared memory (filters always [depth][filter]), and how they get there.
 *     VALUES  [depth][pixel], copied value by value: any shape
 *     QUADS   [pixel][depth], copied 16 bytes at a time: channels in multiples of 16
 *     SPREAD  as VALUES; copies go out between the multiply-adds, not before them
 *     SPREAD_ALONG  so, with filters that lie together, copied four at a time */
enum form { VALUES, QUADS, SPREAD, SPREAD_ALONG };

/* WP x WF warps, each 64 pixels by 4 TN filters; PER_SM blocks share a multiprocessor's registers.
 * Pitches are in floats: the rows that a quarter of a warp reads at once fall into different banks.
 */
template <form FORM_, int WP_, int WF_, int TN_, int PER_SM_> struct shape {
    static constexpr form FORM = FORM_;
    static constexpr int WP = WP_, WF = WF_, TN = TN_, THREADS = 32 * WP * WF;
    /* (168 registers are too few for 96 sums and the addresses of filters along) */
    static constexpr int PER_SM = FORM == SPREAD_ALONG && TN > 8 ? 2 : PER_SM_;
    static constexpr int BM = 64 * WP, BN = 4 * TN * WF;
    static constexpr bool BY_DEPTH = FORM != QUADS; /* windows are [depth][pixel] */
    static constexpr int PITCH_M = BY_DEPTH ? BM + 4 : DEPTH + 4, PITCH_N = BN + 4;
    static constexpr int STAGE_M = PITCH_M * (BY_DEPTH ? DEPTH : BM);
    static constexpr int STAGE = STAGE_M + PITCH_N * DEPTH;
    /* Of pixels and of filters, how many the block copies at once, and so the copies of a thread.
     */
    static constexpr int ALONG = BY_DEPTH ? DEPTH : DEPTH / 4; /* threads along the depth */
    static constexpr int M_AT_ONCE = THREADS / ALONG, N_AT_ONCE = THREADS / DEPTH;
    static constexpr int M_COPIES = (BM + M_AT_ONCE - 1) / M_AT_ONCE, N_COPIES = BN / N_AT_ONCE;
    static constexpr int M_TABLE = (M_COPIES + 3) / 4 * 4, N_TABLE = (N_COPIES + 3) / 4 * 4;
    /* A thread's pixels: its lane's first, and from there the i-th. */
    static __device__ __forceinline__ int first_pixel(int lane) {
        return BY_DEPTH ? lane / 2 % 8 * 4 : lane / 2 % 8;
    }
    static __device__ __forceinline__ constexpr int pixel(int i) {
        return BY_DEPTH ? i / 4 * 32 + i % 4 : 8 * i;
    }
};

struct gemm {
    corr c;
    int pixels; /* of the phase */
    int steps, taps;
    int tap_step, channel_step; /* of one step: DEPTH as taps and channels */
    bool borders;               /* some tap may fall outside of the image */
    int along; /* filters that lie together are copied so many at a time; 0: none do */
};

/* Where the window of a pixel begins in the image. */
struct pixel_entry {
    int y, x;
};
/* What a tap adds to it; where its weights are. */
struct tap_entry {
    int offset, y, x, weight;
};

/* N offsets at once: among the copies, each would wait for those before it. */
template <int N> __device__ __forceinline__ void load_offsets(int (&to)[N], const int *from) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const int4 v = *reinterpret_cast<const int4 *>(from + i);
        to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
}
/* What copying needs, in shared memory. Offsets are those of the rows that a thread copies, one
 * after the other: of pixels (from the row of the block's first window), and of filters. */
template <class S> struct tables {
    alignas(16) int m_offset[S::M_AT_ONCE * S::M_TABLE], n_offset[S::N_AT_ONCE * S::N_TABLE];
    pixel_entry pixel[S::BM];
    tap_entry tap[1]; /* as many as there are */

    __device__ void fill(const gemm &g, int first, int64_t row0, int filters) {
        const corr &p = g.c;
        for (int i = threadIdx.x; i < S::BM; i += S::THREADS) {
            const int m = min(first + i, g.pixels - 1), line = m / p.wo, image = line / p.ho;
            const int y = (line - image * p.ho) * p.sh, x = (m - line * p.wo) * p.sw;
            m_offset[i % S::M_AT_ONCE * S::M_TABLE + i / S::M_AT_ONCE] =
                (int)((((int64_t)image * p.h + y - row0) * p.w + x) * p.c_total);
            pixel[i] = {y, x};
        }
        for (int i = threadIdx.x; i < S::BN; i += S::THREADS) {
            /* what is copied past the last filter is never stored */
            n_offset[i % S::N_AT_ONCE * S::N_TABLE + i / S::N_AT_ONCE] =
                (int)(min(i, filters - 1) * p.w_k);
        }
        for (int i = threadIdx.x; i < g.taps; i += S::THREADS) {
            const int kw = i / p.ty.n, kh = i - kw * p.ty.n, y = p.ty.at[kh], x = p.tx.at[kw];
            tap[i] = {(int)(((int64_t)y * p.w + x) * p.c_total), y, x,
                      (int)(p.ty.weight[kh] * p.w_kh + p.tx.weight[kw] * p.w_kw)};
        }
    }
};

/* A thread's part in copying windows: one place in the depth (VALUES: one value, QUADS: four),
 * every M_AT_ONCE-th pixel. */
template <class S> struct copier {
    const float *source, *weights;
    int filters;      /* of the group, from the block's first */
    int place, row;   /* in the step; first pixel */
    int tap, channel; /* of the place, at the next step */
    int loaded;       /* the tap that the following are of */
    int offset, weight;
    uint32_t m_outside; /* which of its pixels the tap meets outside of the image */
    /* SPREAD: the place's values, before a row's offset; where they go in a stage; the next rows'
     * offsets; whether the last tap is behind */
    const float *m_from, *n_from;
    uint32_t m_to, n_to, past;
    int at[8];

    __device__ __forceinline__ void start(const gemm &g) {
        place = threadIdx.x % S::ALONG * (DEPTH / S::ALONG), row = threadIdx.x / S::ALONG;
        tap = place / g.c.c, channel = place - tap * g.c.c;
        loaded = -1;
        m_to = 4 * (place * S::PITCH_M + row), n_to = 4 * (S::STAGE_M + place * S::PITCH_N + row);
    }
    __device__ __forceinline__ void load_tap(const gemm &g, const tables<S> &t) {
        loaded = tap;
        m_outside = ~0u, offset = weight = 0;
        if (tap >= g.taps) {
            return;
        }
        const tap_entry e = t.tap[tap];
        offset = e.offset, weight = e.weight;
        m_outside = 0;
        if (!g.borders) {
            return;
        }
#pragma unroll
        for (int i = 0; i < S::M_COPIES; i++) {
            const pixel_entry at = t.pixel[min(row + i * S::M_AT_ONCE, S::BM - 1)];
            const bool in = (unsigned)(at.y + e.y) < (unsigned)g.c.h &&
                            (unsigned)(at.x + e.x) < (unsigned)g.c.w;
            m_outside |= (uint32_t)!in << i;
        }
    }
    __device__ __forceinline__ void copy_pixels(const tables<S> &t, uint32_t to) {
        constexpr int PART = S::M_TABLE % 8 ? 4 : 8, BYTES = S::BY_DEPTH ? 4 : 16;
        constexpr int PITCH = S::BY_DEPTH ? 1 : S::PITCH_M; /* of a pixel */
        const float *const from = source + offset + channel;
        to += 4 * (S::BY_DEPTH ? place * S::PITCH_M + row : row * S::PITCH_M + place);
#pragma unroll
        for (int i0 = 0; i0 < S::M_TABLE; i0 += PART) {
            int at[PART];
            load_offsets(at, t.m_offset + row * S::M_TABLE + i0);
#pragma unroll
            for (int i = i0; i < i0 + PART && i < S::M_COPIES; i++) {
                if (S::BM % S::M_AT_ONCE == 0 || i * S::M_AT_ONCE + row < S::BM) {
                    ptx::copy_async<BYTES>(to + 4 * i * S::M_AT_ONCE * PITCH, from, at[i - i0],
                                           !(m_outside >> i & 1));
                }
            }
        }
    }
    /* Filters whose channels lie together: lanes run along the depth. */
    __device__ __forceinline__ void copy_filters(const gemm &g, const tables<S> &t, uint32_t to) {
        const int d = threadIdx.x % DEPTH, f0 = threadIdx.x / DEPTH;
        const float *const from = weights + weight + (channel - place + d) * g.c.w_c;
        int at[S::N_TABLE];
        load_offsets(at, t.n_offset + f0 * S::N_TABLE);
#pragma unroll
        for (int i = 0; i < S::N_COPIES; i++) {
            const int f = f0 + i * S::N_AT_ONCE;
            ptx::copy_async<4>(to + 4 * (d * S::PITCH_N + f), from, at[i],
                               f < filters && tap < g.taps);
        }
    }
    /* Filters that lie together (data gradient), WIDTH at a time; all threads are at one tap. */
    template <int WIDTH>
    __device__ __forceinline__ void copy_filters_along(const gemm &g, uint32_t to) {
        constexpr int AT_ONCE = S::THREADS / (S::BN / WIDTH);
        const int f = threadIdx.x % (S::BN / WIDTH) * WIDTH, d0 = threadIdx.x / (S::BN / WIDTH);
        const float *const from = weights + f + weight + (channel - place + d0) * g.c.w_c;
#pragma unroll
        for (int d = 0; d < DEPTH; d += AT_ONCE) {
            if (DEPTH % AT_ONCE == 0 || d0 + d < DEPTH) {
                ptx::copy_async<4 * WIDTH>(to + 4 * ((d0 + d) * S::PITCH_N + f), from,
                                           d * (int)g.c.w_c, f < filters);
            }
        }
    }
    /* Copies the next step into a stage. */
    __device__ __forceinline__ void step(const gemm &g, const tables<S> &t, float *stage) {
        if (tap != loaded) {
            load_tap(g, t);
        }
        const uint32_t m = ptx::shared_address(stage), n = m + 4 * S::STAGE_M;
        copy_pixels(t, m);
        if (g.along == 4) {
            copy_filters_along<4>(g, n);
        } else if (g.along == 1) {
            copy_filters_along<1>(g, n);
        } else {
            copy_filters(g, t, n);
        }
        next(g);
    }
    __device__ __forceinline__ void next(const gemm &g) {
        tap += g.tap_step, channel += g.channel_step;
        if (channel >= g.c.c) {
            channel -= g.c.c, tap++;
        }
    }

    /* ---- SPREAD: a step's copies in parts. Past the last step, too: zeros, never read. ---- */
    __device__ __forceinline__ void begin(const gemm &g, const tables<S> &t) {
        if (tap != loaded) {
            load_tap(g, t);
        }
        m_from = source + (offset + channel);
        n_from = weights + (weight + channel * (int)g.c.w_c);
        past = tap < g.taps ? 0 : 1;
    }
    /* What is due at place d of the depth. */
    __device__ __forceinline__ void due(const gemm &g, const tables<S> &t, uint32_t stage, int d) {
        constexpr int COPIES = S::M_COPIES + (S::FORM == SPREAD ? S::N_COPIES : 0);
        constexpr int PART = COPIES > 16 && S::TN == 8 ? 8 : 4; /* as registers allow */
        constexpr int M_PARTS = (S::M_COPIES + PART - 1) / PART;
        constexpr int PARTS =
            S::FORM == SPREAD ? M_PARTS + (S::N_COPIES + PART - 1) / PART : M_PARTS + 1;
        if (d == 0) {
            begin(g, t);
        }
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            if (p * DEPTH / PARTS != d) {
                continue;
            }
            if (p < M_PARTS) {
                copy_rows<PART, S::M_AT_ONCE, S::M_COPIES>(t.m_offset + row * S::M_TABLE,
                                                           stage + m_to, m_from, p * PART, true);
            } else if (S::FORM == SPREAD) {
                copy_rows<PART, S::N_AT_ONCE, S::N_COPIES>(t.n_offset + row * S::N_TABLE,
                                                           stage + n_to, n_from,
                                                           (p - M_PARTS) * PART, false);
            } else {
                copy_along(g, stage + 4 * S::STAGE_M);
            }
        }
        if (d == DEPTH - 1) {
            next(g);
            ptx::copies_commit();
        }
    }
    template <int PART, int AT_ONCE, int COPIES>
    __device__ __forceinline__ void copy_rows(const int *offsets, uint32_t to, const float *from,
                                              int i0, bool pixels) {
        static_assert(COPIES % 4 == 0, "offsets are loaded four at a time");
#pragma unroll
        for (int i = i0; i < i0 + PART && i < COPIES; i += 4) {
            load_offsets(*reinterpret_cast<int(*)[4]>(at + i - i0), offsets + i);
        }
#pragma unroll
        for (int i = i0; i < i0 + PART && i < COPIES; i++) {
            ptx::copy_async_unless<4>(pixels ? m_outside & 1u << i : past, to + 4 * AT_ONCE * i,
                                      from, at[i - i0]);
        }
    }
    /* Filters that lie together, four at a time; all threads are at one tap. */
    __device__ __forceinline__ void copy_along(const gemm &g, uint32_t to) {
        constexpr int ROW = S::BN / 4, COPIES = ROW * DEPTH / S::THREADS;
        static_assert(ROW * DEPTH % S::THREADS == 0, "whole copies");
        const float *const from = weights + (weight + (channel - place) * (int)g.c.w_c);
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const int at = threadIdx.x + i * S::THREADS, d = at / ROW, f = at % ROW * 4;
            ptx::copy_async_unless<16>(past | (f >= filters), to + 4 * (d * S::PITCH_N + f), from,
                                       d * (int)g.c.w_c + f);
        }
    }
};

__device__ __forceinline__ void load4(float *to, const float *from) {
    const float4 v = *reinterpret_cast<const float4 *>(from);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

/* What a thread multiplies, both operands [depth][row]: two places of the depth, one of which is
 * loaded while the other is multiplied. */
template <class S> struct fragments {
    float a[2][8], b[2][S::TN];

    /* Place d of the stages from m and n on. */
    __device__ __forceinline__ void load(int d, const float *m, const float *n) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            load4(a[d % 2] + 4 * i, m + d * S::PITCH_M + i * 32);
        }
#pragma unroll
        for (int i = 0; i < S::TN / 4; i++) {
            load4(b[d % 2] + 4 * i, n + d * S::PITCH_N + i * 16);
        }
    }
    __device__ __forceinline__ void multiply(float (&acc)[8][S::TN], int d) const {
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int j = 0; j < S::TN; j++) {
                acc[i][j] = fmaf(a[d % 2][i], b[d % 2][j], acc[i][j]);
            }
        }
    }
};

/* acc += the products of one stage. */
template <class S>
__device__ __forceinline__ void multiply_values(float (&acc)[8][S::TN], const float *m,
                                                const float *n) {
    fragments<S> f;
    f.load(0, m, n);
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
        if (d + 1 < DEPTH) {
            f.load(d + 1, m, n);
        }
        f.multiply(acc, d);
    }
}

/* The same, windows [pixel][depth]: four places in the depth of eight pixels at a time. */
template <class S>
__device__ __forceinline__ void multiply_quads(float (&acc)[8][S::TN], const float *m,
                                               const float *n) {
#pragma unroll
    for (int d0 = 0; d0 < DEPTH; d0 += 4) {
        float a[8][4];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            load4(a[i], m + S::pixel(i) * S::PITCH_M + d0);
        }
#pragma unroll
        for (int d = 0; d < 4; d++) {
            float b[S::TN];
#pragma unroll
            for (int j = 0; j < S::TN; j += 4) {
                load4(b + j, n + (d0 + d) * S::PITCH_N + j * 4);
            }
#pragma unroll
            for (int i = 0; i < 8; i++) {
#pragma unroll
                for (int j = 0; j < S::TN; j++) {
                    acc[i][j] = fmaf(a[i][d], b[j], acc[i][j]);
                }
            }
        }
    }
}

/* dr_finish before the activation. */
__device__ __forceinline__ float affine(const dr_epilogue &e, dr_column c, float sum, int64_t i) {
    const float v = e.norm_var ? fmaf(sum, c.scale, c.shift) : sum + c.shift;
    return e.add ? v + static_cast<const float *>(e.add)[i] : v;
}

/* Where pixel `first + i` of the phase is stored: index of its first filter, -1 past the end. */
__device__ __forceinline__ int64_t output_of(const gemm &g, int m) {
    const corr &p = g.c;
    if (m >= g.pixels) {
        return -1;
    }
    if (p.oy_step == 1 && p.ox_step == 1) {
        return (int64_t)m * p.k_total;
    }
    const int line = m / p.wo, image = line / p.ho;
    return pixel_of(p, image, line - image * p.ho, m - line * p.wo) * p.k_total;
}

/* Four filters' sums of a pixel, stored at `at` of y: the first `count` of them. Activations but
 * relu take their values one at a time out of shared memory, so that their code is there once a
 * pixel. */
__device__ __forceinline__ void store4(const dr_epilogue &e, const float *sum,
                                       const dr_column (&column)[4], int count, int64_t at,
                                       float *own, float *y) {
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        v[j] = j < count ? affine(e, column[j], sum[j], at + j) : 0.0f;
        v[j] = e.act == 1 && v[j] <= 0.0f ? 0.0f : v[j];
    }
    if (e.act > 1) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            own[j] = v[j];
        }
#pragma unroll 1
        for (int j = 0; j < 4; j++) {
            own[j] = dr_activate(own[j], e.act);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v[j] = own[j];
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (j < count) {
            y[at + j] = v[j];
        }
    }
}

/* Stores a thread's sums: its pixels from m, filters k + 0..3 and k + 16..19 of the group. */
template <class S>
__device__ __forceinline__ void store(const gemm &g, float (&acc)[8][S::TN], int m, int k,
                                      int group, float *spare, float *y) {
    const corr &p = g.c;
    /* The common case by itself: whole float4s of pixels in order. */
    const bool simple = p.k % 4 == 0 && p.k_total % 4 == 0 && p.oy_step == 1 && p.ox_step == 1 &&
                        !p.e.add && p.e.act <= 1;
    const int64_t k0 = (int64_t)group * p.k;
#pragma unroll
    for (int q = 0; q < S::TN / 4; q++) {
        const int kq = k + 16 * q;
        if (kq >= p.k) {
            continue;
        }
        dr_column column[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            column[j] = dr_column_of(p.e, k0 + min(kq + j, p.k - 1));
        }
        if (simple) {
            float *const to = y + m * p.k_total + k0 + kq;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float4 v;
                float *const f = &v.x;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    f[j] = fmaf(acc[i][4 * q + j], column[j].scale, column[j].shift);
                    f[j] = p.e.act && f[j] <= 0.0f ? 0.0f : f[j];
                }
                if (m + S::pixel(i) < g.pixels) {
                    *reinterpret_cast<float4 *>(to + S::pixel(i) * p.k_total) = v;
                }
            }
            continue;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int64_t pixel = output_of(g, m + S::pixel(i));
            if (pixel >= 0) {
                store4(p.e, &acc[i][4 * q], column, min(4, p.k - kq), pixel + k0 + kq,
                       spare + 4 * threadIdx.x, y);
            }
        }
    }
}

/* The sums of a thread, one stage after the other; its rows begin at m_at and n_at of a stage. */
template <class S>
__device__ __forceinline__ void product(const gemm &g, const tables<S> &t, copier<S> &in,
                                        float (&acc)[8][S::TN], float *stages, int m_at, int n_at) {
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < g.steps) {
            in.step(g, t, stages + s * S::STAGE);
        }
        ptx::copies_commit();
    }
    int read = 0, write = STAGES - 1;
    for (int s = 0; s < g.steps; s++) {
        ptx::copies_wait<STAGES - 2>();
        __syncthreads();
        if (s + STAGES - 1 < g.steps) {
            in.step(g, t, stages + write * S::STAGE);
        }
        ptx::copies_commit();
        const float *const stage = stages + read * S::STAGE;
        if constexpr (S::FORM == VALUES) {
            multiply_values<S>(acc, stage + m_at, stage + n_at);
        } else {
            multiply_quads<S>(acc, stage + m_at, stage + n_at);
        }
        read = read + 1 == STAGES ? 0 : read + 1;
        write = write + 1 == STAGES ? 0 : write + 1;
    }
}

/* The same. A stage is filled while another is multiplied; one barrier a stage, before its last
 * place: then all have read it, and the next one is there. */
template <class S>
__device__ __forceinline__ void product_spread(const gemm &g, const tables<S> &t, copier<S> &in,
                                               float (&acc)[8][S::TN], float *stages, int m_at,
                                               int n_at) {
    const uint32_t ring = ptx::shared_address(stages);
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            in.due(g, t, ring + 4 * s * S::STAGE, d);
        }
    }
    ptx::copies_wait<STAGES - 2>();
    __syncthreads();
    const float *m = stages + m_at, *n = stages + n_at;
    fragments<S> f;
    f.load(0, m, n);
    int read = 0;
    uint32_t write = ring + 4 * (STAGES - 1) * S::STAGE;
#pragma unroll 1
    for (int s = 0; s < g.steps; s++) {
#pragma unroll
        for (int d = 0; d < DEPTH - 1; d++) {
            f.load(d + 1, m, n);
            in.due(g, t, write, d);
            f.multiply(acc, d);
        }
        in.due(g, t, write, DEPTH - 1);
        ptx::copies_wait<STAGES - 2>();
        __syncthreads();
        write = ring + 4 * read;
        const int on = read == (STAGES - 1) * S::STAGE ? -(STAGES - 1) * S::STAGE : S::STAGE;
        read += on, m += on, n += on;
        f.load(0, m, n);
        f.multiply(acc, DEPTH - 1);
    }
    ptx::copies_wait<0>();
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::PER_SM)
    corr_kernel(const __grid_constant__ gemm g, const float *x, const float *w, float *y) {
    extern __shared__ float4 shared4[];
    const corr &p = g.c;
    float *const stages = reinterpret_cast<float *>(shared4);
    tables<S> &t = *reinterpret_cast<tables<S> *>(stages + STAGES * S::STAGE);
    const int tiles_k = (p.k + S::BN - 1) / S::BN, tiles_m = (g.pixels + S::BM - 1) / S::BM;
    const int k0 = blockIdx.x % tiles_k * S::BN, tile = blockIdx.x / tiles_k;
    const int group = tile / tiles_m, m0 = (tile - group * tiles_m) * S::BM;
    const int line0 = m0 / p.wo, image0 = line0 / p.ho;
    const int64_t row0 = (int64_t)image0 * p.h + (int64_t)(line0 - image0 * p.ho) * p.sh;
    t.fill(g, m0, row0, p.k - k0);
    __syncthreads();

    copier<S> in;
    in.source = x + row0 * p.w * p.c_total + (int64_t)group * p.c;
    in.weights = w + group * p.w_group + k0 * p.w_k;
    in.filters = p.k - k0;
    in.start(g);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, lane_f = lane % 2 + lane / 16 * 2;
    const int m = warp % S::WP * 64 + S::first_pixel(lane), n = warp / S::WP * 4 * S::TN;
    const int m_at = m * (S::BY_DEPTH ? 1 : S::PITCH_M);
    const int n_at = S::STAGE_M + n + lane_f * 4;

    float acc[8][S::TN] = {};
    if constexpr (S::FORM == VALUES || S::FORM == QUADS) {
        product<S>(g, t, in, acc, stages, m_at, n_at);
    } else {
        product_spread<S>(g, t, in, acc, stages, m_at, n_at);
    }
    __syncthreads();
    store<S>(g, acc, m0 + m, k0 + n + 4 * lane_f, group, stages, y);
}

/* ---- choice ---- */

/* By form: of a tile with spread copies SPREAD and SPREAD_ALONG, of others VALUES and QUADS. */
struct launchers {
    int (*launch[2])(const gemm &g, const float *x, const float *w, float *y, cudaStream_t s);
};

template <class S> int64_t blocks_of(const gemm &g) {
    return ((int64_t)g.c.k + S::BN - 1) / S::BN * (((int64_t)g.pixels + S::BM - 1) / S::BM) *
           g.c.groups;
}

template <class S>
int launch_tile(const gemm &g, const float *x, const float *w, float *y, cudaStream_t s) {
    const size_t bytes =
        sizeof(float) * STAGES * S::STAGE + sizeof(tables<S>) + sizeof(tap_entry) * g.taps;
    const cudaError_t e = cudaFuncSetAttribute(
        corr_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SHARED_MOST);
    if (e != cudaSuccess) {
        return (int)e;
    }
    corr_kernel<S><<<(unsigned)blocks_of<S>(g), S::THREADS, bytes, s>>>(g, x, w, y);
    return (int)cudaGetLastError();
}

#define DR_F32_ROW(wp, wf, tn, per_sm, spread, name)                                               \
    {{launch_tile<shape<spread ? SPREAD : VALUES, wp, wf, tn, per_sm>>,                            \
      launch_tile<shape<spread ? SPREAD_ALONG : QUADS, wp, wf, tn, per_sm>>}},
const launchers TILES[] = {DR_F32_TILES(DR_F32_ROW)};
#undef DR_F32_ROW

} // namespace

int corr_f32(const corr &p, int row, const float *x, const float *w, float *y, bool *fits, int sms,
             cudaStream_t s) {
    gemm g = {};
    g.c = p;
    const int64_t pixels = (int64_t)p.n * p.ho * p.wo, image = (int64_t)p.h * p.w * p.c_total;
    if (pixels == 0 || p.k == 0) {
        *fits = true;
        return cudaSuccess;
    }
    g.taps = p.ty.n * p.tx.n;
    const int64_t depth = (int64_t)g.taps * p.c;
    /* Offsets from a block's first row are ints: a block meets 256 pixels, so this many rows, or,
     * if one image ends among them, this many images. */
    const int64_t rows = std::min<int64_t>((256 / p.wo + 2) * (int64_t)p.sh, p.h) * p.w * p.c_total;
    const int64_t images = std::min<int64_t>(256 / ((int64_t)p.ho * p.wo) + 1, p.n - 1) * image;
    const int64_t reach =
        std::max<int64_t>(std::abs((int64_t)p.ty.low), std::abs((int64_t)p.ty.high)) * p.w *
            p.c_total +
        (int64_t)(p.w + std::abs((int64_t)p.tx.low) + std::abs((int64_t)p.tx.high)) * p.c_total;
    const int64_t weights = p.w_k * p.k + p.w_c * p.c + p.w_kh * TAPS + p.w_kw * TAPS;
    *fits = pixels < INT32_MAX - 256 && depth < INT32_MAX / 2 && weights < INT32_MAX &&
            (p.n > 1 ? images + image : rows) + reach < INT32_MAX && g.taps <= MOST_TAPS;
    if (!*fits) {
        return cudaSuccess;
    }
    g.pixels = (int)pixels;
    g.steps = (int)((depth + DEPTH - 1) / DEPTH);
    g.tap_step = DEPTH / p.c, g.channel_step = DEPTH % p.c;
    g.borders = p.ty.low < 0 || p.tx.low < 0 || (int64_t)(p.ho - 1) * p.sh + p.ty.high >= p.h ||
                (int64_t)(p.wo - 1) * p.sw + p.tx.high >= p.w;
    int n;
    const dr_f32_tile *const tiles = dr_f32_tiles(&n);
    if (row < 0) {
        const dr_f32_problem q = {
            pixels, p.c, p.k, p.groups, g.taps, p.w_c == 1, p.sh > 1 || p.sw > 1};
        row = dr_f32_tile_of(&q, sms);
    }
    const dr_f32_tile &t = tiles[row];
    const int64_t blocks =
        ((int64_t)p.k + t.bn - 1) / t.bn * ((pixels + t.bm - 1) / t.bm) * p.groups;
    *fits = blocks <= INT32_MAX;
    if (!*fits) {
        return cudaSuccess;
    }
    const bool sixteen = p.c % DEPTH == 0;
    const bool aligned = (uintptr_t)w % 16 == 0 && p.k % 4 == 0 && p.w_c % 4 == 0 &&
                         p.w_kw % 4 == 0 && p.w_kh % 4 == 0 && p.w_group % 4 == 0;
    g.along = p.w_k != 1 || p.w_c == 1 || !sixteen ? 0 : aligned ? 4 : 1;
    const bool quads = sixteen && p.c_total % 4 == 0 && (uintptr_t)x % 16 == 0;
    return TILES[row].launch[t.spread ? g.along == 4 : quads](g, x, w, y, s);
}

} // namespace dr
