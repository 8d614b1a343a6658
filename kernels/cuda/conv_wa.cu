/* im2win on Hopper for few filters and large images: weights are the rows of the
 * product and come through registers, pixels are its columns (WA).
 *
 * Two warpgroups have a tile each, 256 pixels in two blocks of 16 x 8, by 64 filters. As in
 * conv_ws.cu a tap is the patch of input pixels, in shared memory once, read in place at an offset;
 * but filters may have any taps and channels, so weights come one tap at a time (a slab, shared by
 * both warpgroups), and each fragment of them, loaded by ldmatrix, meets both blocks: shared memory
 * feeds 80 bytes a clock where 64 filters as columns would need 128, all there is. With a stride,
 * each phase of it is an image of its own, whose patches are dense.
 *
 *     warps 0 .. 3, 4 .. 7     a tile each: fragments, wgmma, stores
 *     warp 8                   brings both tiles' patches     \ one thread of
 *     warp 9                   brings slabs                   / each works
 *
 * Sums leave through the last patch's stage, which nothing else needs by then. POOL: only the
 * largest of each 2 x 2 pixels does. */
#include "kernels/cuda/conv_hopper.cuh"

namespace dr {
namespace {

constexpr uint32_t SLAB = 64 * 128;
[[maybe_unused]] constexpr uint32_t BLOCK = 128 * 128; /* 128 pixels of output */

struct corner {
    int n, h, w;
};
__device__ __forceinline__ corner corner_of(const dr_wa &p, int t) {
    int h, w;
    const int n = divide(divide(t, p.tiles_w, &w), p.tiles_h, &h);
    if (p.lines) { /* w: the first position's column */
        const int row = divide(h * 256, p.row, &w);
        return {n, row, w};
    }
    return {n * p.tn, h * p.th, w * p.tw};
}
/* Tile `half` of a pair; the last pair may lack its second, which then repeats the first. */
__device__ __forceinline__ int tile_of(const dr_wa &p, int pair, int half, int *k_tile) {
    const int t = divide(pair, p.k_tiles, k_tile) * 2 + half;
    return t < p.tiles ? t : t - half;
}

/* Shared memory: slabs, patches of warpgroup 0, of 1; barriers of slabs, of patches of 0, of 1. */
struct memory {
    uint32_t slab, patch, slab_bars, patch_bars;
};

/* Channels of a chunk. */
template <typename T> constexpr int WIDTH = 128 / (int)sizeof(typename T::real);

/* Producers. */
template <typename T>
__device__ __forceinline__ void bring_patches(const dr_wa &p, const memory &m) {
    ring r = {0, 0, 0};
    for (int pair = blockIdx.x; pair < p.pairs; pair += gridDim.x) {
        int k_tile, phase = 0, piece = 0;
        const corner at[2] = {corner_of(p, tile_of(p, pair, 0, &k_tile)),
                              corner_of(p, tile_of(p, pair, 1, &k_tile))};
        for (int c = 0; c < p.chunks; c++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                r.bars = m.patch_bars + 16 * half * p.patches;
                ptx::barrier_wait(r.empty(), r.parity ^ 1);
                ptx::barrier_expect(r.full(), p.patch_bytes);
                ptx::copy_box(m.patch + (half * p.patches + r.at) * p.patch_stage, &p.x[phase],
                              r.full(), piece * WIDTH<T>,
                              (p.lines ? 0 : at[half].w) + p.taps.ox[phase],
                              at[half].h + p.taps.oy[phase], at[half].n);
            }
            r.next(p.patches);
            if (++piece == p.pieces) {
                piece = 0;
                phase++;
            }
        }
    }
}
template <typename T> __device__ __forceinline__ void bring_slabs(const dr_wa &p, const memory &m) {
    ring r = {m.slab_bars, 0, 0};
    for (int pair = blockIdx.x; pair < p.pairs; pair += gridDim.x) {
        int k_tile, phase = 0, piece = 0;
        divide(pair, p.k_tiles, &k_tile);
        for (int c = 0; c < p.chunks; c++) {
            for (int i = p.taps.first[phase]; i < p.taps.first[phase + 1]; i++) {
                ptx::barrier_wait(r.empty(), r.parity ^ 1);
                ptx::barrier_expect(r.full(), SLAB);
                ptx::copy_box(m.slab + r.at * SLAB, &p.w, r.full(), piece * WIDTH<T>,
                              (int)(p.taps.tap[i] & 255), k_tile * 64);
                r.next(p.slabs);
            }
            if (++piece == p.pieces) {
                piece = 0;
                phase++;
            }
        }
    }
}

using fragment = uint32_t[4][4];

/* Where a consumer stands. */
struct consumer {
    ring slab, patch;
    uint32_t slabs, patches; /* addresses of the stages */
    int lane, phase, piece, tap, old_patch;
    uint32_t row; /* of this lane's filter in a slab */
    int start;    /* pixels of the patch before the tile's first */
};

template <typename T> __device__ __forceinline__ void load_fragment(consumer &s, fragment &f) {
    ptx::barrier_wait(s.slab.full(), s.slab.parity);
    const uint32_t at = s.slabs + s.slab.at * SLAB + s.row;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        ptx::load_matrices(f[k], at ^ k << 5);
        if constexpr (sizeof(typename T::real) == 4) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                f[k][i] = T::rounded(f[k][i]);
            }
        }
    }
}

template <typename T, int DEPTH>
__device__ __forceinline__ void multiply(float (&acc)[2][64], const fragment &f, uint64_t pixels,
                                         uint64_t second, int keep) {
    ptx::product_fence();
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        ptx::product<T, 128>::rs(acc[0], f[k], pixels + 2 * k, k ? 1 : keep);
        ptx::product<T, 128>::rs(acc[1], f[k], second + 2 * k, k ? 1 : keep);
    }
    ptx::product_commit();
}

/* One tap of one chunk: its product is issued, the one before it finished, the next one's weights
 * loaded. */
template <typename T, int BUFFER>
__device__ __forceinline__ void step(const dr_wa &p, consumer &s, float (&acc)[2][64],
                                     fragment (&f)[2], int keep, bool last) {
    if (s.tap == p.taps.first[s.phase]) {
        ptx::barrier_wait(s.patch.full(), s.patch.parity);
    }
    const uint32_t at =
        s.patches + s.patch.at * p.patch_stage + (s.start + (p.taps.tap[s.tap] >> 8)) * 128;
    const uint64_t pixels = ptx::descriptor(at, p.lines ? 1024 : p.pw * 128),
                   second = pixels + p.second * 8;
    if (p.half_piece && s.piece == p.pieces - 1) {
        multiply<T, 2>(acc, f[BUFFER], pixels, second, keep);
    } else {
        multiply<T, 4>(acc, f[BUFFER], pixels, second, keep);
    }
    if (s.lane == 0) { /* its fragments are in an issued product */
        ptx::barrier_arrive(s.slab.empty());
    }
    s.slab.next(p.slabs);
    ptx::product_wait<1>();
    if (s.old_patch >= 0 && s.lane == 0) {
        ptx::barrier_arrive(s.patch.bars + 16 * s.old_patch + 8);
    }
    s.old_patch = -1;
    if (!last) {
        load_fragment<T>(s, f[BUFFER ^ 1]);
        if (++s.tap == p.taps.first[s.phase + 1]) {
            s.old_patch = s.patch.at;
            s.patch.next(p.patches);
            if (++s.piece == p.pieces) {
                s.piece = 0;
                s.phase++;
            }
            s.tap = p.taps.first[s.phase];
        }
    }
}

template <typename T>
__device__ __forceinline__ void sum(const dr_wa &p, consumer &s, float (&acc)[2][64], int steps) {
    fragment f[2];
    s.phase = s.piece = s.tap = 0;
    s.old_patch = -1;
    load_fragment<T>(s, f[0]);
    int i = 0;
    for (; i + 2 <= steps; i += 2) {
        step<T, 0>(p, s, acc, f, i > 0, false);
        step<T, 1>(p, s, acc, f, 1, i + 2 == steps);
    }
    if (i < steps) {
        step<T, 0>(p, s, acc, f, i > 0, true);
    }
    ptx::product_wait<0>();
}

/* Positions [first, first + n) of the tile between a buffer at `out`, 128 bytes a position, and y
 * (or what is added to it), filters k0 and up: 16 bytes a thread and turn. */
template <typename T, typename F>
__device__ __forceinline__ void each_piece(const dr_wa &p, uint32_t out, const corner &at,
                                           int first, int n, int k0, F f) {
    const int tid = threadIdx.x % 128, eight = tid % 8;
    for (int i = tid / 8; i < n; i += 16) {
        int w;
        const int h = at.h + divide(at.w + first + i, p.row, &w);
        const int k = k0 + eight * (16 / (int)sizeof(typename T::real));
        if (h < p.ho && w < p.wo && k < p.k) {
            f(out + i * 128 + ((eight ^ (i & 7)) << 4),
              ((int64_t)(at.n * p.ho + h) * p.wo + w) * p.k + k);
        }
    }
}

/* What moves a tile's outputs, or what is added to them: block b's filters, from 32 (floats) or 64
 * (halves) of them at k0, through `out`. */
template <typename T, bool POOL> struct mover {
    using real = typename T::real;
    const dr_wa &p;
    const corner &at;
    __device__ __forceinline__ void add(uint32_t out, int b, int k0, uint32_t bar) const {
        if (p.lines) {
            each_piece<T>(p, out, at, b * 128, 128, k0, [&](uint32_t to, int64_t from) {
                ptx::store_shared(to,
                                  *reinterpret_cast<const uint4 *>((const real *)p.e.add + from));
            });
        } else if (threadIdx.x % 128 == 0) {
            ptx::copy_box(out, &p.add, bar, k0, at.w + b * p.second_w, at.h + b * p.second_h,
                          at.n + b * p.second_n);
        }
    }
    __device__ __forceinline__ void store(uint32_t out, int b, int k0) const {
        if (p.lines) {
            each_piece<T>(p, out, at, b * 128, 128, k0, [&](uint32_t from, int64_t to) {
                *reinterpret_cast<uint4 *>((real *)p.y_at + to) = ptx::load_shared(from);
            });
        } else if (threadIdx.x % 128 == 0) {
            constexpr int CUT = POOL ? 2 : 1;
            ptx::store_box(&p.y, out, k0, (at.w + b * p.second_w) / CUT,
                           (at.h + b * p.second_h) / CUT, at.n + b * p.second_n);
        }
    }
};

/* Sums leave through the stage of the last patch, 32 KB at least: halves of both blocks at once,
 * floats of one block after the other. Then it is free. `added`: a barrier for what the epilogue
 * adds. */
template <typename T, bool POOL>
__device__ __forceinline__ void store(const dr_wa &p, consumer &s, const float (&acc)[2][64],
                                      const corner &at, int k0, const dr_column (&c)[2],
                                      bool stored, uint32_t added, int *parity) {
    constexpr bool FLOATS = sizeof(typename T::real) == 4;
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
    const bool first = threadIdx.x % 128 == 0;
    const uint32_t out = s.patches + s.patch.at * p.patch_stage;
    const mover<T, POOL> move = {p, at};
#pragma unroll
    for (int turn = 0; turn < (FLOATS ? 2 : 1); turn++) {
        ptx::sync_threads(1 + group, 128); /* every warp is done with the patch */
        if (!POOL && p.e.add) {
            if (first && !p.lines) {
                ptx::barrier_expect(added, 2 * BLOCK);
            }
            move.add(out, turn, k0, added);
            move.add(out + BLOCK, FLOATS ? turn : 1, FLOATS ? k0 + 32 : k0, added);
            if (p.lines) {
                ptx::sync_threads(1 + group, 128);
            } else {
                ptx::barrier_wait(added, *parity);
                *parity ^= 1;
            }
        }
        if constexpr (FLOATS) {
            finish_turned_floats(p.e, acc[turn], out + warp / 2 * BLOCK, c,
                                 warp % 2 * 16 + s.lane / 4, s.lane);
        } else if constexpr (POOL) {
            finish_pooled<T>(acc[0], out + pooled_row(warp, s.lane), c);
            finish_pooled<T>(acc[1], out + BLOCK + pooled_row(warp, s.lane), c);
        } else {
            finish_turned<T>(p.e, acc[0], out + turned_row(warp, s.lane), c);
            finish_turned<T>(p.e, acc[1], out + BLOCK + turned_row(warp, s.lane), c);
        }
        ptx::fence_shared();
        ptx::sync_threads(1 + group, 128);
        if (stored) {
            move.store(out, turn, k0);
            move.store(out + BLOCK, FLOATS ? turn : 1, FLOATS ? k0 + 32 : k0);
        }
        if (first) {
            ptx::stores_commit();
            ptx::stores_wait_read<0>();
        }
    }
    if (p.lines) {
        ptx::sync_threads(1 + group, 128); /* every thread has read its pieces */
    }
    if (first) {
        for (int i = 0; i < 4; i++) { /* for each warp */
            ptx::barrier_arrive(s.patch.empty());
        }
    }
    s.patch.next(p.patches);
}

template <typename T, bool POOL>
__device__ __forceinline__ void consume(const dr_wa &p, const memory &m) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, group = threadIdx.x / 128;
    const int filter = warp * 16 + (lane & 15);
    consumer s = {};
    s.slab.bars = m.slab_bars, s.patch.bars = m.patch_bars + 16 * group * p.patches;
    s.slabs = m.slab, s.patches = m.patch + group * p.patches * p.patch_stage;
    s.lane = lane;
    s.row = filter * 128 + (((filter & 7) ^ lane >> 4) << 4);
    const uint32_t added = m.patch_bars + 32 * p.patches + 8 * group;
    const int steps = p.taps.first[p.chunks / p.pieces] * p.pieces;
    int parity = 0, k_before = -1;
    dr_column c[2];
    float acc[2][64];
    for (int pair = blockIdx.x; pair < p.pairs; pair += gridDim.x) {
        int k_tile;
        const int t = tile_of(p, pair, group, &k_tile);
        if (k_tile != k_before) {
            const int k = k_tile * 64 + warp * 16 + lane / 4;
            c[0] = dr_column_of(p.e, min(k, p.k - 1));
            c[1] = dr_column_of(p.e, min(k + 8, p.k - 1));
            k_before = k_tile;
        }
        const corner at = corner_of(p, t);
        s.start = p.lines ? at.w : 0;
        sum<T>(p, s, acc, steps);
        const bool stored = divide(pair, p.k_tiles, &k_tile) * 2 + group < p.tiles;
        store<T, POOL>(p, s, acc, at, k_tile * 64, c, stored, added, &parity);
    }
}

template <typename T, bool POOL>
__global__ void __launch_bounds__(384, 1) kernel(const __grid_constant__ dr_wa p) {
#if DR_HOPPER
    extern __shared__ __align__(1024) uint8_t raw[];
    const uint32_t base = (ptx::shared_address(raw) + 1023) & ~1023u;
    memory m;
    m.slab = base;
    m.patch = base + p.slabs * SLAB;
    m.slab_bars = m.patch + 2 * p.patches * p.patch_stage;
    m.patch_bars = m.slab_bars + 16 * p.slabs;
    const int tid = threadIdx.x, warp = tid / 32;
    if (tid == 0) {
        for (int i = 0; i < p.slabs + 2 * p.patches; i++) {
            ptx::barrier_init(m.slab_bars + 16 * i, 1);
            ptx::barrier_init(m.slab_bars + 16 * i + 8, i < p.slabs ? 8 : 4);
        }
        ptx::barrier_init(m.patch_bars + 32 * p.patches, 1);
        ptx::barrier_init(m.patch_bars + 32 * p.patches + 8, 1);
        ptx::barrier_init_done();
    }
    __syncthreads();
    ptx::let_next_kernel_begin();
    ptx::wait_for_kernel_before();
    if (warp >= 8) {
        ptx::registers_down<40>();
        if (tid % 32 == 0 && warp == 8) {
            bring_patches<T>(p, m);
        } else if (tid % 32 == 0 && warp == 9) {
            bring_slabs<T>(p, m);
        }
    } else {
        ptx::registers_up<232>();
        consume<T, POOL>(p, m);
    }
    if (warp < 8 && tid % 128 == 0) { /* here, or setmaxnreg would be ignored */
        ptx::stores_wait<0>();
    }
#endif
}

template <typename T> int launch(const dr_wa *p, int shared_bytes, int blocks, cudaStream_t s) {
    if constexpr (sizeof(typename T::real) == 2) {
        if (p->pool) {
            return launch_early(kernel<T, true>, *p, blocks, 384, shared_bytes, s);
        }
    }
    return launch_early(kernel<T, false>, *p, blocks, 384, shared_bytes, s);
}

} // namespace
} // namespace dr

extern "C" int dr_conv_wa(const struct dr_wa *p, enum dr_type t, int shared_bytes, int blocks,
                          dr_stream s) {
    return (t == DR_TYPE_F16    ? dr::launch<dr::ptx::f16>
            : t == DR_TYPE_BF16 ? dr::launch<dr::ptx::bf16>
                                : dr::launch<dr::ptx::tf32>)(p, shared_bytes, blocks, s);
}
