/* im2win on Hopper, any filter: pixels are the rows of the product and come through registers (RS),
 * weights are its columns and come from shared memory.
 *
 * A tile is 64 * GROUPS output pixels by BN filters. For each chunk (one phase of the stride, 128
 * bytes of channels) the copy engine brings the patch of input pixels that the tile's windows
 * cover, once; each tap then reads it at an offset, through ldmatrix, so any mapping of rows to
 * pixels works: boxes of images, or consecutive pixels across images. Padding is what the copy
 * engine reads outside of the image, zeros. Weights come one tap (a slab, BN filters by 128 bytes)
 * at a time.
 *
 *     warps 0 .. 4 * GROUPS - 1     consumers: fragments, wgmma, stores
 *     the warp after those          brings patches        \ one thread of
 *     the warp after that           brings slabs          / each works
 *
 * While the product of tap i runs, the fragments of tap i + 1 are loaded into the other buffer.
 * Registers move from the producers to the consumers (setmaxnreg).
 *
 * Where `parts` is not 0, the chunks of all tiles are one list that is cut into so many equal
 * shares (stream-K, Osama et al., arXiv 2301.03598): the cuts depend on the shape alone, a block
 * takes shares b, b + grid, ... A tile that is cut has its partial sums written to memory; whoever
 * comes last (by a ticket, nobody waits) adds them in the order of the shares. */
#ifndef DR_KERNELS_CUDA_CONV_RS_CUH
#define DR_KERNELS_CUDA_CONV_RS_CUH
#include "kernels/cuda/conv_hopper.cuh"
#include <type_traits>

namespace dr {
namespace rs {

template <int V> using number = std::integral_constant<int, V>;

/* Addresses of the block's shared memory. */
struct memory {
    uint32_t slab, patch, bars;
    float2 *column; /* scale and shift of each filter */
    volatile int *note;
};
template <int BN> __device__ __forceinline__ memory lay_out(const dr_rs &p, uint8_t *raw) {
    memory m;
    const uint32_t raw_at = ptx::shared_address(raw), base = (raw_at + 1023) & ~1023u;
    m.slab = base;
    m.patch = base + p.slabs * (BN * 128);
    m.bars = m.patch + p.patches * p.patch_stage;
    uint8_t *const rest = raw + (m.bars - raw_at);
    m.note = (volatile int *)(rest + 16 * (p.patches + p.slabs));
    m.column = (float2 *)(rest + 512);
    return m;
}

/* ---- which chunks a block computes ---- */
/* The units [c0, c1) of a tile, out of the share that ends at unit `end` of all. */
struct work {
    int tile, c0, c1, share, unit, end;
};
/* A step is one tap of one chunk; pieces of a phase follow each other, then phases. */
struct cursor {
    int phase, piece, tap;
    __device__ __forceinline__ void next_chunk(const dr_rs &p) {
        if (++piece == p.pieces) {
            piece = 0;
            phase++;
        }
        tap = p.taps.first[phase];
    }
    /* True where that was the last of the chunk. */
    __device__ __forceinline__ bool next(const dr_rs &p) {
        const bool last = ++tap == p.taps.first[phase + 1];
        if (last) {
            next_chunk(p);
        }
        return last;
    }
};
__device__ __forceinline__ cursor cursor_at(const dr_rs &p, int step) {
    cursor c = {0, 0, 0};
    int taps = p.taps.first[1];
    while (step >= taps * p.pieces) {
        step -= taps * p.pieces;
        c.phase++;
        taps = p.taps.first[c.phase + 1] - p.taps.first[c.phase];
    }
    c.piece = step / taps;
    c.tap = p.taps.first[c.phase] + step - c.piece * taps;
    return c;
}
/* tiles * units * share / parts, and the share that has unit `unit`, without 64-bit divisions. */
__device__ __forceinline__ int share_start(const dr_rs &p, int share) {
    int rest;
    return p.share * share + divide(p.share_rest * share, p.parts, &rest);
}
__device__ __forceinline__ int share_of(const dr_rs &p, int unit) {
    int s = (int)(((float)unit + 0.5f) * p.shares_a_unit);
    while (s > 0 && share_start(p, s) > unit) {
        s--;
    }
    while (share_start(p, s + 1) <= unit) {
        s++;
    }
    return s;
}
__device__ __forceinline__ void set(const dr_rs &p, work &w) {
    w.tile = divide(w.unit, p.units, &w.c0);
    w.c1 = min(p.units.d, w.c0 + w.end - w.unit);
}
/* The first piece of work of share `share` (whole tiles are shares of one tile). */
__device__ __forceinline__ bool start(const dr_rs &p, int share, work &w) {
    w.share = share;
    if (share >= (p.parts.d ? p.parts.d : p.tiles)) {
        return false;
    }
    w.unit = p.parts.d ? share_start(p, share) : share * p.units.d;
    w.end = p.parts.d ? share_start(p, share + 1) : w.unit + p.units.d;
    set(p, w);
    return true;
}
__device__ __forceinline__ bool next(const dr_rs &p, work &w) {
    w.unit += w.c1 - w.c0;
    if (w.unit == w.end) {
        return start(p, w.share + gridDim.x, w);
    }
    set(p, w);
    return true;
}

/* ---- pixels ---- */
/* Where a tile of outputs begins: image, row, column; of a linear tile, its first row counted
 * through all images. */
struct corner {
    int n, h, w;
};
__device__ __forceinline__ corner corner_of(const dr_rs &p, int m_tile, int bm) {
    int h, w;
    if (p.linear) {
        const int n = divide(divide(m_tile * bm, p.wo, &w), p.ho, &h);
        return {0, n * p.h + h, 0};
    }
    const int n = divide(divide(m_tile, p.tiles_w, &w), p.tiles_h, &h);
    return {n * p.tn, h * p.th, w * p.tw.d};
}
/* Row `row` of the tile: its pixel in the patch (0 if it has none), and in y (-1 if none). */
__device__ __forceinline__ void locate(const dr_rs &p, int m_tile, const corner &at, int bm,
                                       int row, int *patch, int *pixel) {
    int h, w;
    if (p.linear) {
        const int m = m_tile * bm + row;
        const bool inside = m < p.pixels;
        const int n = divide(divide(inside ? m : m_tile * bm, p.wo, &w), p.ho, &h);
        *patch = (n * p.h + h - at.h) * p.pw + w;
        *pixel = inside ? m : -1;
        return;
    }
    const int tn = divide(row, p.box, &w), th = divide(w, p.tw, &w);
    const int n = at.n + tn;
    h = at.h + th;
    *patch = tn < p.tn ? (tn * p.ph + th) * p.pw + w : 0;
    w += at.w;
    *pixel = tn < p.tn && n < p.n && h < p.ho.d && w < p.wo.d ? (n * p.ho.d + h) * p.wo.d + w : -1;
}

/* ---- producers: one thread each ---- */
/* UNIT: steps of a unit. */
template <typename T, int BM, int UNIT>
__device__ __forceinline__ void bring_patches(const dr_rs &p, const memory &m, ring a) {
    constexpr int WIDTH = 128 / (int)sizeof(typename T::real); /* channels of a chunk */
    work w;
    for (bool go = start(p, blockIdx.x, w); go; go = next(p, w)) {
        int k_tile, steps = (w.c1 - w.c0) * UNIT;
        const corner at = corner_of(p, divide(w.tile, p.k_tiles, &k_tile), BM);
        for (cursor c = cursor_at(p, w.c0 * UNIT); steps > 0; c.next_chunk(p)) {
            steps -= p.taps.first[c.phase + 1] - c.tap;
            ptx::barrier_wait(a.empty(), a.parity ^ 1);
            ptx::barrier_expect(a.full(), p.patch_bytes);
            const uint32_t to = m.patch + a.at * p.patch_stage;
            if (p.linear) {
                ptx::copy_box(to, &p.x[0], a.full(), c.piece * WIDTH, p.taps.ox[0], at.h);
            } else {
                ptx::copy_box(to, &p.x[c.phase], a.full(), c.piece * WIDTH,
                              at.w + p.taps.ox[c.phase], at.h + p.taps.oy[c.phase], at.n);
            }
            a.next(p.patches);
        }
    }
}

template <typename T, int BN, int UNIT>
__device__ __forceinline__ void bring_slabs(const dr_rs &p, const memory &m, ring b) {
    constexpr int WIDTH = 128 / (int)sizeof(typename T::real);
    work w;
    for (bool go = start(p, blockIdx.x, w); go; go = next(p, w)) {
        int k_tile;
        divide(w.tile, p.k_tiles, &k_tile);
        cursor c = cursor_at(p, w.c0 * UNIT);
        for (int i = w.c0 * UNIT; i < w.c1 * UNIT; i++) {
            ptx::barrier_wait(b.empty(), b.parity ^ 1);
            ptx::barrier_expect(b.full(), BN * 128);
            ptx::copy_box(m.slab + b.at * (BN * 128), &p.w, b.full(), c.piece * WIDTH,
                          (int)(p.taps.tap[c.tap] & 255), k_tile * BN);
            b.next(p.slabs);
            c.next(p);
        }
    }
}

/* ---- the product ---- */
/* 64 pixels by 128 bytes of channels, a quarter at a time. */
using fragment = uint32_t[4][4];

template <typename T>
__device__ __forceinline__ void load_fragment(fragment &f, uint32_t row, int upper) {
    const uint32_t at = row + ((row >> 7 & 7) ^ upper) * 16; /* rows lie on multiples of 128 */
#pragma unroll
    for (int k = 0; k < 4; k++) {
        ptx::load_matrices(f[k], at ^ k << 5);
        if constexpr (std::is_same<T, ptx::tf32>::value) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                f[k][i] = T::rounded(f[k][i]);
            }
        }
    }
}

/* `depth` quarters of one tap. */
template <typename T, int BN, int DEPTH>
__device__ __forceinline__ void multiply(float (&acc)[BN / 2], const fragment &f, uint64_t slab,
                                         int keep) {
    ptx::product_fence();
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        ptx::product<T, BN>::rs(acc, f[k], slab + 2 * k, k ? 1 : keep);
    }
    ptx::product_commit();
}

/* Where a consumer stands. A slab is free when the product that read it is done; a patch when the
 * product that uses its last fragments was issued: an arrival right after ldmatrix could overtake
 * it. */
struct consumer {
    ring a, b;
    int lane, upper, old_slab, old_patch;
    __device__ __forceinline__ void release_slab() {
        if (old_slab >= 0 && lane == 0) {
            ptx::barrier_arrive(b.bars + 16 * old_slab + 8);
        }
    }
    __device__ __forceinline__ void release_patch() {
        if (old_patch >= 0 && lane == 0) {
            ptx::barrier_arrive(a.bars + 16 * old_patch + 8);
        }
        old_patch = -1;
    }
};

/* 3x3 filters of stride 1, a chunk: nine taps unrolled. PARITY: the buffer of the first. The pitch
 * of a patch's rows is a multiple of 8 pixels: a shift by rows leaves the swizzle as it is. */
template <typename T, int BN, int PARITY>
__device__ __forceinline__ void chunk_of_nine(const dr_rs &p, const memory &m, consumer &s,
                                              float (&acc)[BN / 2], fragment (&f)[2],
                                              const uint32_t (&column)[3], int keep, bool last) {
    const uint32_t patch = m.patch + s.a.at * p.patch_stage, row = p.dh * p.pw * 128;
    const int here = s.a.at;
    s.a.next(p.patches);
#pragma unroll
    for (int tap = 0; tap < 9; tap++) {
        ptx::barrier_wait(s.b.full(), s.b.parity);
        const uint64_t slab = ptx::descriptor(m.slab + s.b.at * (BN * 128), 1024);
        multiply<T, BN, 4>(acc, f[(PARITY + tap) & 1], slab, tap ? 1 : keep);
        ptx::product_wait<1>();
        s.release_slab();
        if (tap == 0) {
            s.release_patch();
        }
        s.old_slab = s.b.at;
        s.b.next(p.slabs);
        if (tap < 8) {
            load_fragment<T>(f[(PARITY + tap + 1) & 1],
                             patch + (tap + 1) / 3 * row + column[(tap + 1) % 3], s.upper);
        } else if (!last) {
            ptx::barrier_wait(s.a.full(), s.a.parity);
            load_fragment<T>(f[(PARITY + 1) & 1], m.patch + s.a.at * p.patch_stage + column[0],
                             s.upper);
        }
    }
    s.old_patch = here;
}

template <typename T, int BN>
__device__ __forceinline__ void sum_of_nines(const dr_rs &p, const memory &m, consumer &s,
                                             float (&acc)[BN / 2], int n, int pixel) {
    fragment f[2];
    const uint32_t column[3] = {(uint32_t)pixel * 128, (uint32_t)(pixel + p.dw) * 128,
                                (uint32_t)(pixel + 2 * p.dw) * 128};
    ptx::barrier_wait(s.a.full(), s.a.parity);
    load_fragment<T>(f[0], m.patch + s.a.at * p.patch_stage + column[0], s.upper);
    int c = 0;
    for (; c + 2 <= n; c += 2) {
        chunk_of_nine<T, BN, 0>(p, m, s, acc, f, column, c > 0, false);
        chunk_of_nine<T, BN, 1>(p, m, s, acc, f, column, 1, c + 2 == n);
    }
    if (c < n) {
        chunk_of_nine<T, BN, 0>(p, m, s, acc, f, column, c > 0, true);
    }
}

/* Any taps, step by step; fragments are loaded one step ahead, at `t`. */
template <typename T, int BN, int BUFFER>
__device__ __forceinline__ void load_step(const dr_rs &p, const memory &m, consumer &s, cursor &t,
                                          bool &fresh, fragment (&f)[2], bool (&half)[2],
                                          int pixel) {
    if (fresh) { /* the first tap of its patch that we read */
        ptx::barrier_wait(s.a.full(), s.a.parity);
    }
    const uint32_t row = (pixel + (p.taps.tap[t.tap] >> 8)) * 128;
    load_fragment<T>(f[BUFFER], m.patch + s.a.at * p.patch_stage + row, s.upper);
    half[BUFFER] = p.half_piece && t.piece == p.pieces - 1;
    fresh = t.next(p);
    if (fresh) {
        s.old_patch = s.a.at;
        s.a.next(p.patches);
    }
}

template <typename T, int BN, int BUFFER>
__device__ __forceinline__ void step(const dr_rs &p, const memory &m, consumer &s, cursor &t,
                                     bool &fresh, float (&acc)[BN / 2], fragment (&f)[2],
                                     bool (&half)[2], int keep, bool last, int pixel) {
    ptx::barrier_wait(s.b.full(), s.b.parity);
    const uint64_t slab = ptx::descriptor(m.slab + s.b.at * (BN * 128), 1024);
    if (half[BUFFER]) {
        multiply<T, BN, 2>(acc, f[BUFFER], slab, keep);
    } else {
        multiply<T, BN, 4>(acc, f[BUFFER], slab, keep);
    }
    ptx::product_wait<1>();
    s.release_slab();
    s.release_patch();
    s.old_slab = s.b.at;
    s.b.next(p.slabs);
    if (!last) {
        load_step<T, BN, BUFFER ^ 1>(p, m, s, t, fresh, f, half, pixel);
    }
}

template <typename T, int BN>
__device__ __forceinline__ void sum_of_steps(const dr_rs &p, const memory &m, consumer &s,
                                             float (&acc)[BN / 2], const work &w, int pixel) {
    fragment f[2];
    bool half[2], fresh = true;
    cursor t = cursor_at(p, w.c0);
    const int n = w.c1 - w.c0;
    load_step<T, BN, 0>(p, m, s, t, fresh, f, half, pixel);
    int i = 0;
    for (; i + 2 <= n; i += 2) {
        step<T, BN, 0>(p, m, s, t, fresh, acc, f, half, i > 0, false, pixel);
        step<T, BN, 1>(p, m, s, t, fresh, acc, f, half, 1, i + 2 == n, pixel);
    }
    if (i < n) {
        step<T, BN, 0>(p, m, s, t, fresh, acc, f, half, i > 0, true, pixel);
    }
    if (!fresh) { /* cut inside of a chunk */
        s.old_patch = s.a.at;
        s.a.next(p.patches);
    }
}

/* ---- a tile that is cut ---- */
/* Adds up the parts of the tile in acc; false: others are still to come, and add this one. */
template <int BN, int THREADS>
__device__ __forceinline__ bool gather(const dr_rs &p, const memory &m, const work &w,
                                       float (&acc)[BN / 2]) {
    const int tid = threadIdx.x, unit = w.tile * p.units.d;
    const int first = share_of(p, unit), parts = share_of(p, unit + p.units.d - 1) - first + 1;
    float4 *const slots = reinterpret_cast<float4 *>(p.partial) + tid;
    /* the share where a tile begins keeps it in its second slot, the others in their first */
    auto slot = [&](int share) {
        return slots + (int64_t)(2 * share + (share == first)) * (BN / 8) * THREADS;
    };
    ptx::sync_threads(1, THREADS); /* all have read the note of the tile before */
    /* of two parts, the last need not pass through memory: a + b = b + a */
    if (tid == 0) {
        *m.note = parts == 2 && *(volatile unsigned *)(p.ticket + first) == 1;
        __threadfence();
    }
    ptx::sync_threads(1, THREADS);
    bool last = *m.note;
    if (!last) {
        float4 *const to = slot(w.share);
#pragma unroll
        for (int i = 0; i < BN / 8; i++) {
            __stcg(to + i * THREADS,
                   make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]));
        }
        __threadfence();
        ptx::sync_threads(1, THREADS);
        if (tid == 0) {
            *m.note = atomicAdd(p.ticket + first, 1u) == (unsigned)parts - 1;
            __threadfence();
        }
        ptx::sync_threads(1, THREADS);
        last = *m.note;
    }
    if (!last) {
        return false;
    }
    if (parts > 2) {
#pragma unroll
        for (int i = 0; i < BN / 2; i++) {
            acc[i] = 0.0f;
        }
    }
    for (int share = first; share < first + parts; share++) {
        if (parts == 2 && share == w.share) {
            continue;
        }
        const float4 *const from = slot(share);
#pragma unroll
        for (int i = 0; i < BN / 8; i++) {
            const float4 v = __ldcg(from + i * THREADS);
            acc[4 * i] += v.x, acc[4 * i + 1] += v.y, acc[4 * i + 2] += v.z;
            acc[4 * i + 3] += v.w;
        }
    }
    if (tid == 0) {
        p.ticket[first] = 0; /* as every launch finds it */
    }
    return true;
}

/* ---- stores ---- */
/* Filters k0 + 8q to k0 + 8q + 31 of one row: sums acc[4 * i + 2 * h], ... of pieces i = q to q
 * + 3. Halves: four lanes exchange their pairs, so that each stores 16 bytes. */
template <typename T, int BN>
__device__ __forceinline__ void store_half(const dr_rs &p, const float (&acc)[BN / 2], int q, int h,
                                           const float4 (&column)[4], int64_t at, bool stored) {
    uint32_t a[4] = {0, 0, 0, 0}, v[4];
    if (p.e.add) {
        if (stored) {
            const uint4 got = *reinterpret_cast<const uint4 *>((const __half *)p.e.add + at);
            a[0] = got.x, a[1] = got.y, a[2] = got.z, a[3] = got.w;
        }
        turn<1>(a);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float *const sum = &acc[4 * (q + i) + 2 * h];
        float2 r = make_float2(fmaf(sum[0], column[i].x, column[i].y),
                               fmaf(sum[1], column[i].z, column[i].w));
        if (p.e.add) {
            const float2 f = T::unpack(a[i]);
            r.x += f.x, r.y += f.y;
        }
        v[i] = finish_pair<T>(r, p.e.act);
    }
    turn<1>(v);
    if (stored) {
        *reinterpret_cast<uint4 *>((__half *)p.y + at) = make_uint4(v[0], v[1], v[2], v[3]);
    }
}

/* The same of floats; a lane stores pairs, four lanes 32 bytes. */
template <int BN>
__device__ __forceinline__ void store_float(const dr_rs &p, const float (&acc)[BN / 2], int q,
                                            int h, const float4 (&column)[4], int64_t at,
                                            int filters) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (i * 8 < filters) {
            const float *const sum = &acc[4 * (q + i) + 2 * h];
            float2 r = make_float2(fmaf(sum[0], column[i].x, column[i].y),
                                   fmaf(sum[1], column[i].z, column[i].w));
            if (p.e.add) {
                const float2 f =
                    *reinterpret_cast<const float2 *>((const float *)p.e.add + at + i * 8);
                r.x += f.x, r.y += f.y;
            }
            if (p.e.act == 1) {
                r.x = ptx::larger(r.x, 0.0f), r.y = ptx::larger(r.y, 0.0f);
            } else if (p.e.act == 4) {
                r.x = leak(r.x), r.y = leak(r.y);
            }
            *reinterpret_cast<float2 *>((float *)p.y + at + i * 8) = r;
        }
    }
}

/* Rows g and g + 8 of the warp; filters k0 and up. */
template <typename T, int BN>
__device__ __forceinline__ void store_tile(const dr_rs &p, const memory &m,
                                           const float (&acc)[BN / 2], int k0,
                                           const int (&pixel)[2]) {
    const int t = threadIdx.x & 3;
#pragma unroll
    for (int q = 0; q < BN / 8; q += 4) {
        float4 column[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            column[i] = *reinterpret_cast<const float4 *>(m.column + k0 + (q + i) * 8 + 2 * t);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int64_t row = (int64_t)pixel[h] * p.k;
            if constexpr (sizeof(typename T::real) == 2) {
                const int k = k0 + q * 8 + t * 8;
                store_half<T, BN>(p, acc, q, h, column, row + k, pixel[h] >= 0 && k < p.k);
            } else {
                const int k = k0 + q * 8 + t * 2;
                store_float<BN>(p, acc, q, h, column, row + k, pixel[h] >= 0 ? p.k - k : 0);
            }
        }
    }
}

template <typename T, int BN, int GROUPS, bool THREE>
__device__ __forceinline__ void consume(const dr_rs &p, const memory &m, consumer s) {
    constexpr int BM = 64 * GROUPS;
    const int warp = threadIdx.x / 32, row = warp * 16 + (s.lane & 15), g = s.lane / 4;
    float acc[BN / 2];
    work w;
    for (bool go = start(p, blockIdx.x, w); go; go = next(p, w)) {
        int k_tile;
        const int m_tile = divide(w.tile, p.k_tiles, &k_tile);
        const corner at = corner_of(p, m_tile, BM);
        int patch, pixel[2];
        locate(p, m_tile, at, BM, row, &patch, &pixel[0]);
        s.old_slab = s.old_patch = -1;
        if constexpr (THREE) {
            sum_of_nines<T, BN>(p, m, s, acc, w.c1 - w.c0, patch);
        } else {
            sum_of_steps<T, BN>(p, m, s, acc, w, patch);
        }
        ptx::product_wait<0>();
        s.release_slab();
        s.release_patch();
        if (w.c1 - w.c0 == p.units.d || gather<BN, 128 * GROUPS>(p, m, w, acc)) {
            locate(p, m_tile, at, BM, warp * 16 + g, &patch, &pixel[0]);
            locate(p, m_tile, at, BM, warp * 16 + g + 8, &patch, &pixel[1]);
            store_tile<T, BN>(p, m, acc, k_tile * BN, pixel);
        }
    }
}

template <typename T, int BN, int GROUPS, bool THREE>
__global__ void __launch_bounds__(128 * GROUPS + 128, 1) kernel(const __grid_constant__ dr_rs p) {
#if DR_HOPPER
    extern __shared__ __align__(1024) uint8_t raw[];
    const memory m = lay_out<BN>(p, raw);
    const int tid = threadIdx.x, warp = tid / 32;
    const ring a = {m.bars, 0, 0}, b = {m.bars + 16 * p.patches, 0, 0};
    if (tid < p.patches + p.slabs) {
        ptx::barrier_init(m.bars + 16 * tid, 1);
        ptx::barrier_init(m.bars + 16 * tid + 8, 4 * GROUPS);
        ptx::barrier_init_done();
    }
    if (tid == 32 * 4 * GROUPS) {
        ptx::prefetch_map(&p.x[0]);
        ptx::prefetch_map(&p.w);
    }
    ptx::let_next_kernel_begin();
    ptx::wait_for_kernel_before();
    for (int k = tid; k < p.k_tiles.d * BN; k += 128 * GROUPS + 128) {
        const dr_column c = k < p.k ? dr_column_of(p.e, k) : dr_column{0.0f, 0.0f};
        m.column[k] = make_float2(c.scale, c.shift);
    }
    __syncthreads();
    if (warp >= 4 * GROUPS) {
        ptx::registers_down<GROUPS == 2 ? 40 : 32>();
        if (tid % 32 == 0 && warp == 4 * GROUPS) {
            bring_patches<T, 64 * GROUPS, THREE ? 9 : 1>(p, m, a);
        } else if (tid % 32 == 0 && warp == 4 * GROUPS + 1) {
            bring_slabs<T, BN, THREE ? 9 : 1>(p, m, b);
        }
    } else {
        ptx::registers_up<GROUPS == 2 ? 232 : 160>();
        consume<T, BN, GROUPS, THREE>(p, m, consumer{a, b, tid % 32, tid % 32 / 16, -1, -1});
    }
#endif
}

template <typename T, int BN, int GROUPS, bool THREE>
int launch(const dr_rs *p, int shared_bytes, int blocks, cudaStream_t s) {
    return launch_early(kernel<T, BN, GROUPS, THREE>, *p, blocks, 128 * GROUPS + 128, shared_bytes,
                        s);
}

template <typename T>
int launch_tile(const dr_rs *p, const dr_conv_tile *t, int shared_bytes, int blocks,
                cudaStream_t s) {
    if (t->columns == 64) {
        return (t->three ? launch<T, 64, 2, true> : launch<T, 64, 2, false>)(p, shared_bytes,
                                                                             blocks, s);
    }
    if (t->columns == 256) {
        return launch<T, 256, 2, false>(p, shared_bytes, blocks, s);
    }
    if (t->groups == 2) {
        return (t->three ? launch<T, 128, 2, true> : launch<T, 128, 2, false>)(p, shared_bytes,
                                                                               blocks, s);
    }
    return (t->three ? launch<T, 128, 3, true> : launch<T, 128, 3, false>)(p, shared_bytes, blocks,
                                                                           s);
}

} // namespace rs
} // namespace dr
#endif
