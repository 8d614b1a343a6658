/* im2win on Hopper for small and middle-sized images: weights are the rows of the product and come
 * through registers, the pixels of a tile are its columns, in one line (WL).
 *
 * A tile is N outputs by 128 filters, 64 for each of two warpgroups, which share the pixels. Its
 * outputs are tn images x th rows x tw columns, and they lie in the order row, image, column: the
 * copy engine brings pixels so, for its boxes may have their dimensions in any order. Then all
 * outputs of a tile are neighbours, also across rows and images, and so are the pixels that one tap
 * reads for them, at a distance that the tap's row alone gives:
 *
 *     x, 5 x 5, two images          strip of column kw = 1: rows 0 .. 4 of columns 1 .. 3
 *     (filter 3 x 3)
 *     a0 a1 a2 a3 a4                a1 a2 a3 A1 A2 A3 | b1 b2 b3 B1 B2 B3 | c1 ... | d1 ... | e1
 * ... b0 b1 b2 b3 b4                tap (0, 1): |------- 18 outputs, from a1 ------|
 *     ...                           tap (1, 1):                     |------- from b1 ------|
 *
 * as in the windows of im2win: no column of the product is idle at the end of a row. Each column
 * of the filter (each phase and column, with a stride) has such a strip, which is brought once for
 * all its rows. Or (`wide` tiles: whole rows) a phase has one strip, as wide as the patch; then the
 * outputs behind a row's end are idle, and a third of the pixels is brought.
 *
 *     warps 0 .. 3, 4 .. 7     64 filters each: fragments, wgmma, stores
 *     warp 8                   brings strips                  \ one thread of
 *     warp 9                   brings weights, a tap a slab   / each works
 *
 * While the product of one tap runs, the weights of the next come from their slab into the other
 * fragment. Halves leave through a buffer of their own, by the copy engine, while the next tile is
 * computed; what the epilogue adds comes into that buffer while the tile is computed. */
#ifndef DR_KERNELS_CUDA_CONV_WL_CUH
#define DR_KERNELS_CUDA_CONV_WL_CUH
#include "kernels/cuda/conv_hopper.cuh"

namespace dr {
namespace wl {

constexpr uint32_t SLAB = 128 * 128; /* 128 filters */

struct corner {
    int n, h, w, k; /* k: block of 128 filters */
};
__device__ __forceinline__ corner corner_of(const dr_wl &p, int tile) {
    int k, h, w;
    const int n = divide(divide(divide(tile, p.k_tiles, &k), p.tiles_w, &w), p.tiles_h, &h);
    return {n * p.tn, h * p.th, w * p.tw, k};
}

/* Shared memory: strips, slabs, outputs of both warpgroups (halves), barriers; of floats, where
 * each place of the tile lies. */
struct memory {
    uint32_t strip, slab, out, strip_bars, slab_bars, added;
    int2 *place;
};

/* Where we are among strips and their taps; pieces of a strip follow each other, then strips. */
struct cursor {
    int strip, piece;
    __device__ __forceinline__ void next(const dr_wl &p) {
        if (++piece == p.pieces) {
            piece = 0;
            strip++;
        }
    }
};

template <typename T> constexpr int WIDTH = 128 / (int)sizeof(typename T::real);

/* Producers: one thread each. */
template <typename T>
__device__ __forceinline__ void bring_strips(const dr_wl &p, const memory &m) {
    ring r = {m.strip_bars, 0, 0};
    for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        const corner at = corner_of(p, tile);
        for (cursor c = {0, 0}; c.strip < p.strips; c.next(p)) {
            const dr_strip &s = p.strip[c.strip];
            ptx::barrier_wait(r.empty(), r.parity ^ 1);
            ptx::barrier_expect(r.full(), p.strip_bytes);
            ptx::copy_box(m.strip + r.at * p.strip_stage, &p.x[s.phase], r.full(),
                          c.piece * WIDTH<T>, at.w + s.x, at.n, at.h + s.y);
            r.next(p.strip_stages);
        }
    }
}
template <typename T> __device__ __forceinline__ void bring_slabs(const dr_wl &p, const memory &m) {
    ring r = {m.slab_bars, 0, 0};
    for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        const int k0 = corner_of(p, tile).k * 128;
        for (cursor c = {0, 0}; c.strip < p.strips; c.next(p)) {
            for (int i = p.strip[c.strip].first; i < p.strip[c.strip + 1].first; i++) {
                ptx::barrier_wait(r.empty(), r.parity ^ 1);
                ptx::barrier_expect(r.full(), SLAB);
                ptx::copy_box(m.slab + r.at * SLAB, &p.w, r.full(), c.piece * WIDTH<T>,
                              (int)(p.tap[i] & 255), k0);
                r.next(p.slabs);
            }
        }
    }
}

using fragment = uint32_t[4][4];

/* A tile's columns are one product, or two where they are more than 256. */
template <int N> constexpr int BLOCKS = N > 256 ? 2 : 1;
template <int N> constexpr int COLUMNS = N / BLOCKS<N>;
template <int N> using sums = float[BLOCKS<N>][COLUMNS<N> / 2];

/* Where a consumer stands. */
struct consumer {
    ring slab, strip;
    cursor at;
    int tap, lane, old_strip;
    uint32_t row; /* this lane's filter in a slab */
};

template <typename T>
__device__ __forceinline__ void load_fragment(const memory &m, consumer &s, fragment &f) {
    ptx::barrier_wait(s.slab.full(), s.slab.parity);
    const uint32_t from = m.slab + s.slab.at * SLAB + s.row;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        ptx::load_matrices(f[k], from ^ k << 5);
        if constexpr (sizeof(typename T::real) == 4) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                f[k][i] = T::rounded(f[k][i]);
                ptx::pin(f[k][i]); /* not after the fence of the product */
            }
        }
    }
}

template <typename T, int N, int DEPTH>
__device__ __forceinline__ void multiply(sums<N> &acc, const fragment &f, uint64_t pixels,
                                         int keep) {
    ptx::product_fence();
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
#pragma unroll
        for (int b = 0; b < BLOCKS<N>; b++) {
            ptx::product<T, COLUMNS<N>>::rs(acc[b], f[k], pixels + b * COLUMNS<N> * 8 + 2 * k,
                                            k ? 1 : keep);
        }
    }
    ptx::product_commit();
}

/* One tap of one piece: its product is issued, the one before it finished, the next one's weights
 * loaded. A slab is free when the product that uses its fragments was issued, a strip when the
 * last product that reads it is done. */
template <typename T, int N, int BUFFER>
__device__ __forceinline__ void step(const dr_wl &p, const memory &m, consumer &s, sums<N> &acc,
                                     fragment (&f)[2], int keep, bool last) {
    if (s.tap == p.strip[s.at.strip].first) {
        ptx::barrier_wait(s.strip.full(), s.strip.parity);
    }
    const uint64_t pixels =
        ptx::descriptor(m.strip + s.strip.at * p.strip_stage + (p.tap[s.tap] >> 8) * 128, 1024);
    if (p.half_piece && s.at.piece == p.pieces - 1) {
        multiply<T, N, 2>(acc, f[BUFFER], pixels, keep);
    } else {
        multiply<T, N, 4>(acc, f[BUFFER], pixels, keep);
    }
    if (s.lane == 0) {
        ptx::barrier_arrive(s.slab.empty());
    }
    s.slab.next(p.slabs);
    ptx::product_wait<1>();
    if (s.old_strip >= 0 && s.lane == 0) {
        ptx::barrier_arrive(s.strip.bars + 16 * s.old_strip + 8);
    }
    s.old_strip = -1;
    if (++s.tap == p.strip[s.at.strip + 1].first) {
        s.old_strip = s.strip.at;
        s.strip.next(p.strip_stages);
        s.at.next(p);
        s.tap = p.strip[s.at.strip].first;
    }
    if (!last) {
        load_fragment<T>(m, s, f[BUFFER ^ 1]);
    }
}

template <typename T, int N>
__device__ __forceinline__ void sum(const dr_wl &p, const memory &m, consumer &s, sums<N> &acc) {
    const int steps = p.taps * p.pieces;
    fragment f[2];
    s.at = {0, 0};
    s.tap = 0;
    s.old_strip = -1;
    load_fragment<T>(m, s, f[0]);
    int i = 0;
    for (; i + 2 <= steps; i += 2) {
        step<T, N, 0>(p, m, s, acc, f, i > 0, false);
        step<T, N, 1>(p, m, s, acc, f, 1, i + 2 == steps);
    }
    if (i < steps) {
        step<T, N, 0>(p, m, s, acc, f, i > 0, true);
    }
    ptx::product_wait<0>();
    if (s.lane == 0) {
        ptx::barrier_arrive(s.strip.bars + 16 * s.old_strip + 8);
    }
}

/* What a warpgroup keeps of its outputs' buffer. */
struct output {
    uint32_t at, added; /* shared memory, and the barrier of what the epilogue adds */
    int parity, k0;
    bool first; /* this thread talks to the copy engine */
};
/* What is added to the tile's outputs is on its way into the buffer, which nothing reads
 * any more. */
__device__ __forceinline__ void bring_added(const dr_wl &p, const output &o, const corner &at) {
    if (p.e.add && o.first) {
        ptx::stores_wait_read<0>();
        ptx::barrier_expect(o.added, p.out_bytes);
        ptx::copy_box(o.at, &p.add, o.added, o.k0, at.w, at.n, at.h);
    }
}

template <typename T, int N>
__device__ __forceinline__ void store_halves(const dr_wl &p, const sums<N> &acc, output &o,
                                             const corner &at, int lane, const dr_column (&c)[2]) {
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4;
    if (p.e.add) {
        ptx::barrier_wait(o.added, o.parity);
        o.parity ^= 1;
    } else {
        if (o.first) {
            ptx::stores_wait_read<0>();
        }
        ptx::sync_threads(1 + group, 128);
    }
#pragma unroll
    for (int b = 0; b < BLOCKS<N>; b++) {
        finish_turned<T>(p.e, acc[b], o.at + b * COLUMNS<N> * 128 + turned_row(warp, lane), c);
    }
    ptx::fence_shared();
    ptx::sync_threads(1 + group, 128);
    if (o.first) {
        ptx::store_box(&p.y, o.at, o.k0, at.w, at.n, at.h);
        ptx::stores_commit();
    }
}

/* Places of a tile: pixels from its corner, and row, image and column in it (9 bits each); -1 where
 * there is no output. */
__device__ __forceinline__ void list_places(const dr_wl &p, const memory &m, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const int w = i % p.pw, image = i / p.pw % p.tn, h = i / p.pw / p.tn;
        m.place[i] = make_int2((image * p.ho + h) * p.wo + w,
                               h < p.th && w < p.tw ? h | image << 9 | w << 18 : -1);
    }
}

/* Floats go from registers to memory: four lanes exchange what they have, so that each stores four
 * filters of one pixel, and four 64 bytes. */
template <int N>
__device__ __forceinline__ void store_floats(const dr_wl &p, const memory &m, const sums<N> &acc,
                                             const corner &at, int k0, int lane,
                                             const dr_column (&c)[2]) {
    const float least = p.e.act == 1 ? 0.0f : -INFINITY,
                slope = p.e.act == 4 ? DR_LEAKY_SLOPE : 1.0f;
    const int r = lane / 4 % 4, k = k0 + lane / 16 * 4 + r / 2 * 8;
    const int rows = p.ho - at.h, images = p.n - at.n, columns = p.wo - at.w;
    const int64_t corner = (int64_t)((at.n * p.ho + at.h) * p.wo + at.w) * p.k + k;
    const int2 *const place = m.place + lane % 4 * 2 + r % 2;
#pragma unroll
    for (int b = 0; b < BLOCKS<N>; b++) {
#pragma unroll
        for (int j = 0; j < COLUMNS<N> / 8; j++) {
            uint32_t v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                v[i] = __float_as_uint(fmaf(acc[b][4 * j + i], c[i / 2].scale, c[i / 2].shift));
            }
            turn<4>(v);
            const int2 to = place[b * COLUMNS<N> + 8 * j];
            if (to.y < 0 || (to.y & 511) >= rows || (to.y >> 9 & 511) >= images ||
                to.y >> 18 >= columns || k >= p.k) {
                continue;
            }
            const int64_t from = corner + (int64_t)to.x * p.k;
            float4 f = make_float4(__uint_as_float(v[0]), __uint_as_float(v[1]),
                                   __uint_as_float(v[2]), __uint_as_float(v[3]));
            if (p.e.add) {
                const float4 a = *reinterpret_cast<const float4 *>((const float *)p.e.add + from);
                f.x += a.x, f.y += a.y, f.z += a.z, f.w += a.w;
            }
            f.x = ptx::larger(ptx::larger(f.x, least), f.x * slope);
            f.y = ptx::larger(ptx::larger(f.y, least), f.y * slope);
            f.z = ptx::larger(ptx::larger(f.z, least), f.z * slope);
            f.w = ptx::larger(ptx::larger(f.w, least), f.w * slope);
            *reinterpret_cast<float4 *>((float *)p.y_at + from) = f;
        }
    }
}

template <typename T, int N>
__device__ __forceinline__ void consume(const dr_wl &p, const memory &m) {
    constexpr bool FLOATS = sizeof(typename T::real) == 4;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, group = threadIdx.x / 128;
    const int filter = group * 64 + warp * 16 + (lane & 15);
    consumer s = {};
    s.slab.bars = m.slab_bars, s.strip.bars = m.strip_bars;
    s.lane = lane;
    s.row = filter * 128 + (((filter & 7) ^ lane >> 4) << 4);
    output o = {m.out + group * p.out_stage, m.added + 8 * group, 0, 0, threadIdx.x % 128 == 0};
    sums<N> acc;
    for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        const corner at = corner_of(p, tile);
        o.k0 = at.k * 128 + group * 64;
        if (!FLOATS) {
            bring_added(p, o, at);
        }
        sum<T, N>(p, m, s, acc);
        const int k = o.k0 + warp * 16 + lane / 4;
        const dr_column c[2] = {dr_column_of(p.e, min(k, p.k - 1)),
                                dr_column_of(p.e, min(k + 8, p.k - 1))};
        if constexpr (FLOATS) {
            store_floats<N>(p, m, acc, at, o.k0 + warp * 16, lane, c);
        } else {
            store_halves<T, N>(p, acc, o, at, lane, c);
        }
    }
}

template <typename T, int N>
__global__ void __launch_bounds__(384, 1) kernel(const __grid_constant__ dr_wl p) {
#if DR_HOPPER
    extern __shared__ __align__(1024) uint8_t raw[];
    memory m;
    m.strip = (ptx::shared_address(raw) + 1023) & ~1023u;
    m.slab = m.strip + p.strip_stages * p.strip_stage;
    m.out = m.slab + p.slabs * SLAB;
    m.strip_bars = m.out + 2 * p.out_stage;
    m.slab_bars = m.strip_bars + 16 * p.strip_stages;
    m.added = m.slab_bars + 16 * p.slabs;
    m.place = reinterpret_cast<int2 *>(raw + (m.added + 16 - ptx::shared_address(raw)));
    const int tid = threadIdx.x, warp = tid / 32, stages = p.strip_stages + p.slabs;
    if (tid < stages) {
        ptx::barrier_init(m.strip_bars + 16 * tid, 1);
        ptx::barrier_init(m.strip_bars + 16 * tid + 8, 8);
        ptx::barrier_init_done();
    } else if (tid < stages + 2) {
        ptx::barrier_init(m.added + 8 * (tid - stages), 1);
        ptx::barrier_init_done();
    }
    if (sizeof(typename T::real) == 4) {
        list_places(p, m, N);
    }
    if (tid == 256) {
        ptx::prefetch_map(&p.x[0]);
        ptx::prefetch_map(&p.w);
        ptx::prefetch_map(&p.y);
    }
    __syncthreads();
    ptx::let_next_kernel_begin();
    ptx::wait_for_kernel_before();
    if (warp >= 8) {
        ptx::registers_down<40>();
        if (tid == 256) {
            bring_strips<T>(p, m);
        } else if (tid == 288) {
            bring_slabs<T>(p, m);
        }
    } else {
        ptx::registers_up<232>();
        consume<T, N>(p, m);
    }
    if (warp < 8 && tid % 128 == 0) { /* (in the branch, setmaxnreg would be ignored) */
        ptx::stores_wait<0>();
    }
#endif
}

template <typename T, int N>
int launch(const dr_wl *p, int shared_bytes, int blocks, cudaStream_t s) {
    return launch_early(kernel<T, N>, *p, blocks, 384, shared_bytes, s);
}

template <typename T>
int launch_tile(const dr_wl *p, int pixels, int shared_bytes, int blocks, cudaStream_t s) {
    switch (pixels) {
    case 104:
        return launch<T, 104>(p, shared_bytes, blocks, s);
    case 128:
        return launch<T, 128>(p, shared_bytes, blocks, s);
    case 160:
        return launch<T, 160>(p, shared_bytes, blocks, s);
    case 200:
        return launch<T, 200>(p, shared_bytes, blocks, s);
    case 240:
        return launch<T, 240>(p, shared_bytes, blocks, s);
    case 256:
        return launch<T, 256>(p, shared_bytes, blocks, s);
    case 288:
        return launch<T, 288>(p, shared_bytes, blocks, s);
    default:
        return (int)cudaErrorInvalidValue;
    }
}

} // namespace wl
} // namespace dr
#endif
