/* im2win on Hopper for 64 channels and 3x3 filters of stride 1, fp16 and bf16: weights stay in
 * registers (WS).
 *
 * A warpgroup keeps 64 filters, 9 taps, as the rows of the product (144 registers a thread) and
 * computes tile after tile of 16 x 8 output pixels, its columns. The patch of a tile, 18 x 10
 * pixels of 64 channels, lies in shared memory once; for tap (kh, kw) the operand is the patch
 * shifted by kh * 10 + kw pixels, read in place: eight pixels of a row are a group of the
 * descriptor, and groups lie one row of the patch apart. So shared memory feeds one operand, and
 * nothing is loaded twice. Padding is what the copy engine reads outside of the image, zeros.
 *
 *     patch (3 a warpgroup)           tap (1, 2)              tile
 *     . . . . . . . . . .             . . . . . . . . . .
 *     . . . . . . . . . .     ->      . . o o o o o o o o     64 filters x (16 x 8) pixels
 *     . . . . . . . . . .             . . o o o o o o o o
 *
 * Each of a block's two warpgroups has its own filters, tiles and patches; its first thread issues
 * the copies. Sums are turned through shared memory (stmatrix) into pixels by channels; the copy
 * engine stores them, clipping at the edges, and before that brings what the epilogue adds. POOL:
 * only the largest of each 2 x 2 pixels is stored, 8 x 4 of a tile. */
#include "kernels/cuda/conv_hopper.cuh"

namespace dr {
namespace {

constexpr int TH = 16, TW = 8, PH = TH + 2, PW = TW + 2, TAPS = 9;
[[maybe_unused]] constexpr int PATCHES = 3; /* stages of a warpgroup */
constexpr uint32_t PATCH = PH * PW * 128, PATCH_STAGE = (PATCH + 1023) / 1024 * 1024;
constexpr uint32_t OUT = TH * TW * 128; /* one of two buffers of a warpgroup's output */

/* Where tile t begins. */
struct corner {
    int n, h, w;
};
__device__ __forceinline__ corner corner_of(const dr_ws &p, int t) {
    int w, h;
    const int n = divide(divide(t, p.tiles_w, &w), p.tiles_h, &h);
    return {n, h * TH, w * TW};
}

/* A warpgroup's shared memory. */
struct memory {
    uint32_t out, patch, full, added; /* added: the barrier of what the epilogue adds */
    __device__ __forceinline__ uint32_t weights(int tap) const {
        return tap < 4 ? out + tap * 8192 : patch + (tap - 4) * 8192;
    }
};

__device__ __forceinline__ void bring(const dr_ws &p, const memory &m, int t, int stage) {
    const corner at = corner_of(p, t);
    ptx::barrier_expect(m.full + 8 * stage, PATCH);
    ptx::copy_box(m.patch + stage * PATCH_STAGE, &p.x, m.full + 8 * stage, 0, at.w - p.pl,
                  at.h - p.pt, at.n);
}

/* 64 filters of nine taps come into the warpgroup's own shared memory (buffers of output, then
 * patches: 9 of 8 KB), and from there to registers as wgmma wants them. */
__device__ __forceinline__ void bring_weights(const dr_ws &p, const memory &m, int k0) {
    ptx::barrier_expect(m.added, TAPS * 8192);
    for (int tap = 0; tap < TAPS; tap++) {
        ptx::copy_box(m.weights(tap), &p.w, m.added, 0, tap, k0);
    }
}
__device__ __forceinline__ void load_weights(const memory &m, int warp, int lane,
                                             uint32_t (&w)[TAPS][4][4]) {
    const int filter = warp * 16 + (lane & 15);
    const uint32_t row = filter * 128 + (((filter & 7) ^ lane >> 4) << 4);
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            ptx::load_matrices(w[tap][k], (m.weights(tap) + row) ^ k << 5);
        }
    }
}

/* A tile of all images as one may end in the next image: then rows go one by one. (The copy engine
 * takes no negative coordinates for stores.) */
__device__ __forceinline__ void store(const dr_ws &p, uint32_t out, int k0, corner at) {
    if (p.stacked) {
        at.n = at.h / p.stacked;
        at.h -= at.n * p.stacked;
        if (at.h + TH > p.stacked) {
            for (int i = 0; i < TH && at.n < p.n; i++) {
                ptx::store_box(&p.row, out + i * TW * 128, k0, at.w, at.h, at.n);
                if (++at.h == p.stacked) {
                    at.h = 0;
                    at.n++;
                }
            }
            return;
        }
    }
    ptx::store_box(&p.y, out, k0, at.w, at.h, at.n);
}

template <typename T>
__device__ __forceinline__ void multiply(float (&acc)[64], const uint32_t (&w)[TAPS][4][4],
                                         uint32_t patch) {
    const uint64_t pixels = ptx::descriptor(patch, PW * 128);
    ptx::product_fence();
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            ptx::product<T, 128>::rs(acc, w[tap][k], pixels + (tap / 3 * PW + tap % 3) * 8 + 2 * k,
                                     tap + k > 0);
        }
    }
    ptx::product_commit();
    ptx::product_wait<0>();
}

/* Filters and tiles of a warpgroup: k0 to k0 + 63; begin, begin + step, ... */
struct share {
    int k0, begin, step;
};

template <typename T, bool POOL>
__device__ __forceinline__ void compute_tiles(const dr_ws &p, const memory &m, const share &s,
                                              const uint32_t (&w)[TAPS][4][4]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, group = threadIdx.x / 128;
    const bool first = threadIdx.x % 128 == 0;
    const int filter = s.k0 + warp * 16 + lane / 4;
    const dr_column c[2] = {dr_column_of(p.e, min(filter, p.k - 1)),
                            dr_column_of(p.e, min(filter + 8, p.k - 1))};
    const uint32_t row = POOL ? pooled_row(warp, lane) : turned_row(warp, lane);
    float acc[64];
    int stage = 0, parity = 0, buffer = 0, added = 1; /* weights had the barrier's first phase */
    for (int t = s.begin; t < p.tiles; t += s.step) {
        const uint32_t out = m.out + buffer * OUT;
        if (!POOL && first && p.e.add) { /* comes while the product runs */
            const corner at = corner_of(p, t);
            ptx::stores_wait_read<1>();
            ptx::barrier_expect(m.added, OUT);
            ptx::copy_box(out, &p.add, m.added, s.k0, at.w, at.h, at.n);
        }
        ptx::barrier_wait(m.full + 8 * stage, parity);
        multiply<T>(acc, w, m.patch + stage * PATCH_STAGE);
        if (first) {
            ptx::stores_wait_read<1>();
        }
        ptx::sync_threads(1 + group, 128); /* and every warp is done with the patch */
        if (first && t + PATCHES * s.step < p.tiles) {
            bring(p, m, t + PATCHES * s.step, stage);
        }
        if (++stage == PATCHES) {
            stage = 0;
            parity ^= 1;
        }
        if (!POOL && p.e.add) {
            ptx::barrier_wait(m.added, added);
            added ^= 1;
        }
        if constexpr (POOL) {
            finish_pooled<T>(acc, out + row, c);
        } else {
            finish_turned<T>(p.e, acc, out + row, c);
        }
        ptx::fence_shared();
        ptx::sync_threads(1 + group, 128);
        if (first) {
            const corner at = corner_of(p, t);
            if constexpr (POOL) {
                ptx::store_box(&p.y, out, s.k0, at.w / 2, at.h / 2, at.n);
            } else {
                store(p, out, s.k0, at);
            }
            ptx::stores_commit();
        }
        buffer ^= 1;
    }
    if (first) {
        ptx::stores_wait<0>();
    }
}

template <typename T, bool POOL>
__global__ void __launch_bounds__(256, 1) kernel(const __grid_constant__ dr_ws p) {
#if DR_HOPPER
    extern __shared__ __align__(1024) uint8_t raw[];
    const uint32_t base = (ptx::shared_address(raw) + 1023) & ~1023u;
    const int tid = threadIdx.x, group = tid / 128;
    const uint32_t bars = base + 4 * OUT + 2 * PATCHES * PATCH_STAGE + 8 * group * (PATCHES + 1);
    const memory m = {base + group * 2 * OUT, base + 4 * OUT + group * PATCHES * PATCH_STAGE, bars,
                      bars + 8 * PATCHES};
    const bool first = tid % 128 == 0;
    if (first) {
        for (int i = 0; i <= PATCHES; i++) {
            ptx::barrier_init(m.full + 8 * i, 1);
        }
        ptx::barrier_init_done();
    }
    __syncthreads();
    ptx::let_next_kernel_begin();
    ptx::wait_for_kernel_before();
    /* warpgroup u of the grid has filters u % k_tiles and every step-th tile */
    const int u = blockIdx.x * 2 + group, step = gridDim.x * 2 / p.k_tiles;
    const share s = {u % p.k_tiles * 64, u / p.k_tiles, step};
    if (s.begin >= step) {
        return; /* more warpgroups than a whole number for each block of filters */
    }
    uint32_t w[TAPS][4][4];
    if (first) {
        bring_weights(p, m, s.k0);
    }
    ptx::barrier_wait(m.added, 0);
    load_weights(m, tid / 32 % 4, tid % 32, w);
    ptx::fence_shared();
    ptx::sync_threads(1 + group, 128); /* every warp has its weights: patches may come */
    if (first) {
        for (int i = 0; i < PATCHES && s.begin + i * step < p.tiles; i++) {
            bring(p, m, s.begin + i * step, i);
        }
    }
    compute_tiles<T, POOL>(p, m, s, w);
#endif
}

template <typename T> int launch(const dr_ws *p, int shared_bytes, int blocks, cudaStream_t s) {
    return launch_early(p->pool ? kernel<T, true> : kernel<T, false>, *p, blocks, 256, shared_bytes,
                        s);
}

} // namespace
} // namespace dr

extern "C" int dr_conv_ws(const struct dr_ws *p, enum dr_type t, int shared_bytes, int blocks,
                          dr_stream s) {
    return (t == DR_TYPE_F16 ? dr::launch<dr::ptx::f16>
                             : dr::launch<dr::ptx::bf16>)(p, shared_bytes, blocks, s);
}

/* A kernel whose body was left out needs few registers. */
extern "C" bool dr_conv_hopper_built(void) {
    cudaFuncAttributes a;
    const cudaError_t err = cudaFuncGetAttributes(&a, dr::kernel<dr::ptx::f16, false>);
    cudaGetLastError();
    return err == cudaSuccess && a.numRegs > 128;
}
