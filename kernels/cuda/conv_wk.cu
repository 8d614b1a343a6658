/* im2win on Hopper for up to 64 channels, few taps of stride 1 and tf32: weights are kept in shared
 * memory (WK).
 *
 * WS (conv_ws.cu) keeps 64 filters, nine taps of 64 channels, in registers; floats would need twice
 * as many as there are. Here they lie in shared memory, once for a block, [piece of 32 channels]
 * [tap][64 filters] of 128 bytes: 144 KB. wgmma reads both operands from there by descriptors: 2 KB
 * of weights and 3.5 KB of pixels in 56 clocks, 100 of the 128 bytes a clock that there are.
 *
 * Two warpgroups compute tile after tile of 14 x 8 output pixels, the product's columns, each its
 * own, so that one stores while the other multiplies. 14 rows, for then the patch of a piece, 16 x
 * 10 pixels, takes 20 KB, and two of them for each warpgroup fit beside the weights: while one is
 * multiplied the other is brought. (Images of 14, 28, 56, 112 rows waste nothing, either.) As in WS
 * a tap is the patch read in place at an offset.
 *
 *     warps 0 .. 3, 4 .. 7     a tile each: wgmma, stores
 *     warps 8, 9               bring their patches, warp 8 before that the weights: one thread each
 *
 * Weights are rounded to tf32 where they lie, once. Warps 4 to 7 alone round those of the second
 * piece, while the others multiply the first: so the two begin half a tile apart, and stay so.
 *
 * Sums go from registers to memory: neighbouring lanes exchange theirs, so that 16 lanes write 64
 * bytes of a pixel. */
#include "kernels/cuda/conv_hopper.cuh"

namespace dr {
namespace {

constexpr int TH = 14, TW = 8, PIXELS = TH * TW;
constexpr uint32_t SLAB = 64 * 128; /* 64 filters of one tap and piece */
[[maybe_unused]] constexpr int PATCHES = 2;

struct corner {
    int n, h, w;
};
__device__ __forceinline__ corner corner_of(const dr_wk &p, int t) {
    int h, w;
    const int n = divide(divide(t, p.tiles_w, &w), p.tiles_h, &h);
    return {n, h * TH, w * TW};
}

/* Shared memory: weights, patches of warpgroup 0, of 1; barriers of the patches likewise, of each
 * piece's weights, and that of the second piece's, rounded. */
struct memory {
    uint32_t weights, patch, bars, brought, rounded;
};
__device__ __forceinline__ memory lay_out(const dr_wk &p, uint32_t base) {
    memory m;
    m.weights = base;
    m.patch = base + p.pieces * p.taps.first[1] * SLAB;
    m.bars = m.patch + 2 * PATCHES * p.patch_stage;
    m.brought = m.bars + 2 * PATCHES * 16;
    m.rounded = m.brought + 16;
    return m;
}

/* What a block computes: filters k0 to k0 + 63 of tiles begin, begin + step, ..., which its two
 * warpgroups take in turns. */
struct share {
    int k0, begin, step;
};

/* ---- producers: one thread each ---- */
template <typename T>
__device__ __forceinline__ void bring_weights(const dr_wk &p, const memory &m, int k0) {
    const int taps = p.taps.first[1];
    for (int piece = 0; piece < p.pieces; piece++) {
        const uint32_t bar = m.brought + 8 * piece;
        ptx::barrier_expect(bar, taps * SLAB);
        for (int i = 0; i < taps; i++) {
            ptx::copy_box(m.weights + (piece * taps + i) * SLAB, &p.w, bar, piece * 32,
                          (int)(p.taps.tap[i] & 255), k0);
        }
    }
}
template <typename T>
__device__ __forceinline__ void bring_patches(const dr_wk &p, const memory &m, const share &s,
                                              int group) {
    ring r = {m.bars + 16 * PATCHES * group, 0, 0};
    for (int t = s.begin + group * s.step; t < p.tiles; t += 2 * s.step) {
        const corner at = corner_of(p, t);
        for (int piece = 0; piece < p.pieces; piece++) {
            ptx::barrier_wait(r.empty(), r.parity ^ 1);
            ptx::barrier_expect(r.full(), p.patch_bytes);
            ptx::copy_box(m.patch + (PATCHES * group + r.at) * p.patch_stage, &p.x, r.full(),
                          piece * 32, at.w + p.taps.ox[0], at.h + p.taps.oy[0], at.n);
            r.next(PATCHES);
        }
    }
}

/* ---- consumers ---- */
/* Rounds the weights of a piece in place: thread `tid` of THREADS. */
template <typename T, int THREADS>
__device__ __forceinline__ void round_weights(const dr_wk &p, const memory &m, int piece, int tid) {
    constexpr int TURN = 16 * THREADS, TURNS = (int)SLAB / TURN;
    const int taps = p.taps.first[1];
    ptx::barrier_wait(m.brought + 8 * piece, 0);
    for (int i = 0; i < taps; i++) {
        const uint32_t at = m.weights + (piece * taps + i) * SLAB + tid * 16;
        uint4 v[TURNS];
#pragma unroll
        for (int j = 0; j < TURNS; j++) {
            v[j] = ptx::load_shared(at + j * TURN);
        }
#pragma unroll
        for (int j = 0; j < TURNS; j++) {
            ptx::store_shared(at + j * TURN, make_uint4(T::rounded(v[j].x), T::rounded(v[j].y),
                                                        T::rounded(v[j].z), T::rounded(v[j].w)));
        }
    }
    ptx::fence_shared();
}

/* Taps [begin, end) of a piece, DEPTH quarters of it. */
template <typename T, int DEPTH>
__device__ __forceinline__ void multiply(const dr_wk &p, float (&acc)[PIXELS / 2], uint64_t weights,
                                         uint64_t pixels, int begin, int end, int keep) {
    for (int i = begin; i < end; i++) {
        const uint64_t w = weights + i * (SLAB / 16), x = pixels + (p.taps.tap[i] >> 8) * 8;
        ptx::product_fence();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            ptx::product<T, PIXELS>::ss(acc, w + 2 * k, x + 2 * k, i + k > 0 ? 1 : keep);
        }
        ptx::product_commit();
    }
}

/* A patch is free when the product that read it is done. That is seen after the first tap of the
 * next one was issued, so that wgmma always has work. */
template <typename T, int DEPTH>
__device__ __forceinline__ void multiply_piece(const dr_wk &p, const memory &m, ring &r,
                                               float (&acc)[PIXELS / 2], int piece, int group) {
    const int taps = p.taps.first[1];
    const uint64_t weights = ptx::descriptor(m.weights + piece * taps * SLAB, 1024);
    const uint64_t pixels =
        ptx::descriptor(m.patch + (PATCHES * group + r.at) * p.patch_stage, p.pw * 128);
    ptx::barrier_wait(r.full(), r.parity);
    if (piece > 0) {
        ptx::barrier_wait(m.rounded, 0);
    }
    multiply<T, DEPTH>(p, acc, weights, pixels, 0, 1, piece > 0);
    if (piece > 0) {
        ptx::product_wait<1>();
        if (threadIdx.x % 32 == 0) {
            ptx::barrier_arrive(r.bars + 16 * (r.at ^ 1) + 8);
        }
    }
    multiply<T, DEPTH>(p, acc, weights, pixels, 1, taps, 1);
}

/* This lane's outputs of a tile: of one filter, four pixels of each row from index `at`. */
struct place {
    int64_t at;
    int rows, columns; /* that lie in the image */
};
__device__ __forceinline__ place place_of(const dr_wk &p, int t, int k) {
    const corner at = corner_of(p, t);
    const int w = at.w + threadIdx.x % 4 / 2 * 4;
    return {((int64_t)(at.n * p.ho + at.h) * p.wo + w) * p.k + k, p.ho - at.h,
            k < p.k ? p.wo - w : 0};
}
/* f(number of the output, its index in y). */
template <typename F>
__device__ __forceinline__ void each_output(const dr_wk &p, const place &at, F f) {
    const int64_t row = (int64_t)p.wo * p.k;
#pragma unroll
    for (int j = 0; j < TH; j++) {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            if (j < at.rows && q < at.columns) {
                f(4 * j + q, at.at + j * row + q * p.k);
            }
        }
    }
}

/* acc[4 * j + 2 * h + i] of lane (g, t) is filter g + 8 * h, pixel 2 * t + i of row j. Lanes of
 * even and odd t exchange, and acc[4 * j + q] is filter g + 8 * (t % 2), pixel t / 2 * 4 + q. */
__device__ __forceinline__ void exchange(float (&acc)[PIXELS / 2], const dr_column (&c)[2]) {
    const bool odd = threadIdx.x & 1;
#pragma unroll
    for (int j = 0; j < TH; j++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float a = fmaf(acc[4 * j + i], c[0].scale, c[0].shift);
            const float b = fmaf(acc[4 * j + 2 + i], c[1].scale, c[1].shift);
            const float got = __shfl_xor_sync(~0u, odd ? a : b, 1);
            acc[4 * j + i] = odd ? got : a;
            acc[4 * j + 2 + i] = odd ? b : got;
        }
    }
}

/* Adds and activates. Branches are for all outputs at once. */
__device__ __forceinline__ void finish(const dr_epilogue &e, float (&acc)[PIXELS / 2],
                                       const float (&added)[PIXELS / 2]) {
    if (e.add) {
#pragma unroll
        for (int i = 0; i < PIXELS / 2; i++) {
            acc[i] += added[i];
        }
    }
    if (e.act == 1) {
#pragma unroll
        for (int i = 0; i < PIXELS / 2; i++) {
            acc[i] = ptx::larger(acc[i], 0.0f);
        }
    } else if (e.act == 4) {
#pragma unroll
        for (int i = 0; i < PIXELS / 2; i++) {
            acc[i] = leak(acc[i]);
        }
    }
}

template <typename T>
__device__ __forceinline__ void compute(const dr_wk &p, const memory &m, const share &s) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0); /* so the compiler knows it is one */
    const int filter = s.k0 + warp * 16 + lane / 4;
    const dr_column c[2] = {dr_column_of(p.e, min(filter, p.k - 1)),
                            dr_column_of(p.e, min(filter + 8, p.k - 1))};
    const float *const add = (const float *)p.e.add;
    float acc[PIXELS / 2], added[PIXELS / 2];
    ring r = {m.bars + 16 * PATCHES * group, 0, 0};
    for (int t = s.begin + group * s.step; t < p.tiles; t += 2 * s.step) {
        for (int piece = 0; piece < p.pieces; piece++) {
            if (p.half_piece && piece == p.pieces - 1) {
                multiply_piece<T, 2>(p, m, r, acc, piece, group);
            } else {
                multiply_piece<T, 4>(p, m, r, acc, piece, group);
            }
            r.next(PATCHES);
        }
        const place at = place_of(p, t, filter + lane % 2 * 8);
        if (add) { /* comes while the product runs */
            each_output(p, at, [&](int i, int64_t from) { added[i] = add[from]; });
        }
        ptx::product_wait<0>();
        if (lane == 0) {
            ptx::barrier_arrive(r.bars + 16 * (r.at ^ 1) + 8);
        }
        exchange(acc, c);
        finish(p.e, acc, added);
        each_output(p, at, [&](int i, int64_t to) { p.y[to] = acc[i]; });
    }
}

template <typename T>
__global__ void __launch_bounds__(320, 1) kernel(const __grid_constant__ dr_wk p) {
#if DR_HOPPER
    extern __shared__ __align__(1024) uint8_t raw[];
    const memory m = lay_out(p, (ptx::shared_address(raw) + 1023) & ~1023u);
    const int tid = threadIdx.x, warp = tid / 32;
    if (tid == 0) {
        for (int i = 0; i < 2 * PATCHES; i++) {
            ptx::barrier_init(m.bars + 16 * i, 1);
            ptx::barrier_init(m.bars + 16 * i + 8, 4);
        }
        ptx::barrier_init(m.brought, 1);
        ptx::barrier_init(m.brought + 8, 1);
        ptx::barrier_init(m.rounded, 128);
        ptx::barrier_init_done();
    }
    __syncthreads();
    ptx::let_next_kernel_begin();
    ptx::wait_for_kernel_before();
    const share s = {(int)blockIdx.x % p.k_tiles * 64, (int)blockIdx.x / p.k_tiles,
                     (int)gridDim.x / p.k_tiles};
    if (s.begin >= s.step) {
        return; /* more blocks than a whole number for each 64 filters */
    }
    if (warp >= 8) {
        if (tid == 256) {
            bring_weights<T>(p, m, s.k0);
        }
        if (tid % 32 == 0) {
            bring_patches<T>(p, m, s, warp - 8);
        }
        return;
    }
    round_weights<T, 256>(p, m, 0, tid);
    ptx::sync_threads(1, 256);
    if (p.pieces > 1 && warp >= 4) {
        round_weights<T, 128>(p, m, 1, tid - 128);
        ptx::barrier_arrive(m.rounded);
    }
    compute<T>(p, m, s);
#endif
}

} // namespace
} // namespace dr

extern "C" int dr_conv_wk(const struct dr_wk *p, int shared_bytes, int blocks, dr_stream s) {
    return dr::launch_early(dr::kernel<dr::ptx::tf32>, *p, blocks, 320, shared_bytes, s);
}
