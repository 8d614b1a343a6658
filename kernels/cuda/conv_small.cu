/* Forward convolution of images with 1 to 8 channels on Hopper (wgmma, sm_90a): fp16, bf16, or fp32
 * rounded to tf32; sums in fp32. First layers have too few channels for TMA boxes and swizzled
 * operands, so this kernel keeps im2win's windows in shared memory in a form from which a thread
 * reads its part of the A operand with one instruction a pixel.
 *
 * Roles: two warpgroups fill: they widen rows of x into shared memory (two buffers); three
 * multiply; the filters of the block lie in shared memory as B, packed at the start, for all its
 * tiles. M = 64 output pixels, any 64 that follow each other in y (rows and images may end among
 * them: A comes from registers, so every row of it has an address of its own), N = 32, 48, 64 or 96
 * filters.
 *
 * 16-bit types. A pixel in shared memory has 4 slots (8 bytes), whatever C:
 * - C = 1: x[h][w], x[h + 1][w], x[h + 2][w], x[h + 3][w]: four rows, the window tensor of im2win
 * - C = 2: both channels of x[h][w], then of x[h + 1][w]
 * - C = 3, 4: the channels, then 0
 * - C = 5..8: rows come twice: channels 0 to 3, then the others, then 0
 *
 * A step of depth 16 is 4 neighbouring pixels of a row: lane t of a quad reads pixel t (8 bytes),
 * slots 0 and 1 as depth 2t and 2t + 1, slots 2 and 3 as depth 8 + 2t and 9 + 2t; B is packed in
 * this order. tf32: a row of x as it is; a step of depth 8 is 8 values of the run of kw * C that a
 * window has in a row, lane t reads values t and t + 4.
 *
 * A window's last step reaches past the window: there A's registers are masked to 0, so that an
 * infinity beside the window does not meet a weight of 0. Padding is zeros in shared memory.
 *
 * Where x is u8, those that fill normalize and round it as the nodes apart would: the same buffer,
 * so the same bits, and padding is 0 of the normalized image.
 *
 * Sums run over rows, then along a row: the same bits on any grid. */
#include "kernels/cuda/conv_small.h"
#include "kernels/cuda/conv_small.cuh"

#include <algorithm>
#include <climits>

namespace dr {
namespace {

/* ---- multiplying ---- */

template <class T, int J> struct fragments {
    uint32_t a[J][4];
    /* Step row `row` of the windows at lo and hi (the two pixels of this lane). */
    __device__ __forceinline__ void load(const uint8_t *lo, const uint8_t *hi, uint2 keep,
                                         uint2 keep_last) {
#pragma unroll
        for (int j = 0; j < J; j++) {
            form<T>::load(a[j], lo + j * 32, hi + j * 32);
            const uint2 m =
                j == J - 1 ? make_uint2(keep.x & keep_last.x, keep.y & keep_last.y) : keep;
            a[j][0] &= m.x, a[j][1] &= m.x, a[j][2] &= m.y, a[j][3] &= m.y;
            /* Nothing of this may sink below the fence: ptxas would serialize the products. */
            ptx::pin(a[j]);
        }
    }
    template <int N>
    __device__ __forceinline__ void multiply(float (&d)[N / 2], uint64_t b, int row) {
        b += (uint32_t)(row * (J * N * 2));
        ptx::product_fence();
#pragma unroll
        for (int j = 0; j < J; j++) {
            ptx::product<T, N>::rs(d, a[j], b + (uint32_t)(j * N * 2), row > 0 || j > 0);
        }
        ptx::product_commit();
    }
};

/* d = the 64 windows of which this lane has those at lo and hi, by N filters. While the steps of
 * one row are multiplied, the next row's fragments are loaded. */
template <class T, int N, int J>
__device__ __forceinline__ void windows(float (&d)[N / 2], const small &p, const uint8_t *lo,
                                        const uint8_t *hi, uint64_t b, uint2 last_row,
                                        uint2 last_step) {
    const uint2 all = make_uint2(~0u, ~0u);
    const int step = p.pitch * p.stack;
    fragments<T, J> f, g;
    f.load(lo, hi, p.rows == 1 ? last_row : all, last_step);
    int row = 0;
    for (; row + 2 <= p.rows; row += 2) { /* (a break in it, and ptxas serializes the products) */
        f.template multiply<N>(d, b, row);
        ptx::product_wait<1>(); /* g is free */
        lo += step, hi += step;
        g.load(lo, hi, row + 2 == p.rows ? last_row : all, last_step);
        g.template multiply<N>(d, b, row + 1);
        ptx::product_wait<1>();
        if (row + 2 < p.rows) {
            lo += step, hi += step;
            f.load(lo, hi, row + 3 == p.rows ? last_row : all, last_step);
        }
    }
    if (row < p.rows) {
        f.template multiply<N>(d, b, row);
    }
    ptx::product_wait<0>();
}

/* dr_finish before the activation, of 16 bytes of y: filters k, k + 1, ... of a pixel. */
template <class T>
__device__ __forceinline__ void affine(const dr_epilogue &e, float (&v)[form<T>::STORE],
                                       const float *scale, const float *shift, int64_t at) {
    constexpr int V = form<T>::STORE;
    if (e.bias || e.norm_var) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            v[i] = fmaf(v[i], scale[i], shift[i]);
        }
    }
    if (e.add) {
        const uint8_t *const add = static_cast<const uint8_t *>(e.add) + at * (16 / V);
        const uint4 a = __ldg(reinterpret_cast<const uint4 *>(add));
        const uint32_t word[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (V == 4) {
                v[i] += __uint_as_float(word[i]);
            } else {
                const float2 two = T::unpack(word[i]);
                v[2 * i] += two.x, v[2 * i + 1] += two.y;
            }
        }
    }
}
template <class T>
__device__ __forceinline__ void store(const float (&v)[form<T>::STORE], int64_t at, void *y) {
    if constexpr (form<T>::STORE == 4) {
        *reinterpret_cast<float4 *>(static_cast<float *>(y) + at) =
            make_float4(v[0], v[1], v[2], v[3]);
    } else {
        *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(y) + at) = make_uint4(
            T::pack(v[0], v[1]), T::pack(v[2], v[3]), T::pack(v[4], v[5]), T::pack(v[6], v[7]));
    }
}

/* This lane's two pixels, `pixel` and pixel + 8, if they are before `to`. */
template <class T, int N>
__device__ __forceinline__ void finish(const small &p, const float (&d)[N / 2], uint32_t pixel,
                                       uint32_t to, int k0, const float *scale, const float *shift,
                                       void *y) {
    constexpr int V = form<T>::STORE;
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t at = pixel + 8 * h;
        if (at >= to) {
            continue;
        }
#pragma unroll
        for (int q = 0; q < N / (4 * V); q++) {
            const int k = q * 4 * V + t * V;
            const int64_t to_y = (int64_t)at * p.k + k0 + k;
            float v[V];
#pragma unroll
            for (int i = 0; i < V; i++) {
                v[i] = d[(q * V / 2 + i / 2) * 4 + 2 * h + i % 2];
            }
            if (k0 + k >= p.k) {
                continue;
            }
            affine<T>(p.e, v, scale + k, shift + k, to_y);
            if (p.e.act) { /* relu or leaky_relu: no other is let in */
#pragma unroll
                for (int i = 0; i < V; i++) {
                    v[i] = p.e.act == 1 ? (v[i] <= 0.0f ? 0.0f : v[i])
                                        : dr_leaky_relu(v[i], DR_LEAKY_SLOPE);
                }
            }
            store<T>(v, to_y, y);
        }
    }
}

/* Where things lie in shared memory. */
struct memory {
    uint8_t *filters, *buffers, *stages;
    float *scale, *shift;
    uint32_t full, empty; /* two barriers each, at which every thread of the role arrives */
};
template <int N, int J> __device__ __forceinline__ memory layout(const small &p, uint8_t *shared) {
    memory m;
    m.filters = shared;
    m.buffers = shared + p.rows * J * N * 32;
    m.scale = reinterpret_cast<float *>(m.buffers + 2 * p.buffer), m.shift = m.scale + N;
    m.full = ptx::shared_address(m.shift + N), m.empty = m.full + 16;
    m.stages = reinterpret_cast<uint8_t *>(m.shift + N) + 32;
    return m;
}

template <class T>
__device__ __forceinline__ void filler(const small &p, const memory &m, int first, int step,
                                       const void *x) {
    const auto each_tile = [&](auto fill_buffer) {
        int b = 0, phase = 0;
        for (int tile = first; tile < p.tiles; tile += step) {
            const window_rows rows = rows_of(p, tile);
            ptx::barrier_wait(m.empty + 8 * b, phase ^ 1);
            fill_buffer(rows, m.buffers + b * p.buffer);
            if (std::is_same_v<T, ptx::tf32> && !p.u8) {
                ptx::barrier_arrive_copied(m.full + 8 * b);
            } else {
                ptx::barrier_arrive(m.full + 8 * b);
            }
            phase ^= b, b ^= 1;
        }
    };
    if (!std::is_same_v<T, ptx::tf32> && p.c == 3 && !p.u8) {
        stager staged(p, static_cast<const uint32_t *>(x), m.stages, first, step);
        each_tile([&](window_rows rows, uint8_t *to) { staged.fill(rows, to); });
    } else {
        each_tile(
            [&](window_rows rows, uint8_t *to) { fill<T>(p, x, rows.first, rows.count, to); });
    }
}

template <class T, int N, int J>
__device__ __forceinline__ void multiplier(const small &p, const memory &m, int first, int step,
                                           int k0, void *y) {
    const int lane = threadIdx.x % 32, t = lane % 4;
    const int group = threadIdx.x / 128 - FILLERS, in_group = threadIdx.x / 32 % 4 * 16 + lane / 4;
    /* LBO: from depth 0..7 to 8..15; SBO: from 8 filters to the next. */
    const uint64_t weights = (uint64_t)((ptx::shared_address(m.filters) & 0x3ffff) >> 4) |
                             (uint64_t)N << 16 | (uint64_t)8 << 32;
    const uint2 last_row = form<T>::last_row(p), last_step = form<T>::last_step(p, J - 1, t);
    float d[N / 2];
    int b = 0, phase = 0;
    for (int tile = first; tile < p.tiles; tile += step) {
        const range pixels = pixels_of(p, tile);
        const int row = row_of(p, pixels.from / p.wo);
        const uint8_t *const buffer = m.buffers + b * p.buffer;
        const auto window = [&](uint32_t pixel) {
            const uint32_t q = min(pixel, pixels.to - 1), o = q / p.wo;
            return buffer + (row_of(p, o) - row) * p.parts * p.pitch +
                   (int)(q - o * p.wo.d) * p.sw * p.pixel + t * form<T>::LANE;
        };
        const int blocks = (int)(pixels.to - pixels.from + 63) / 64;
        ptx::barrier_wait(m.full + 8 * b, phase);
        if (group >= blocks) {
            ptx::barrier_arrive(m.empty + 8 * b);
        }
        for (int block = group; block < blocks; block += MULTIPLIERS) {
            const uint32_t pixel = pixels.from + block * 64 + in_group;
            windows<T, N, J>(d, p, window(pixel), window(pixel + 8), weights, last_row, last_step);
            if (block + MULTIPLIERS >= blocks) {
                ptx::barrier_arrive(m.empty + 8 * b);
            }
            finish<T, N>(p, d, pixel, pixels.to, k0, m.scale, m.shift, y);
        }
        phase ^= b, b ^= 1;
    }
}

template <class T, int N, int J>
__global__ void __launch_bounds__(THREADS, 1) small_kernel(const __grid_constant__ small p) {
#if DR_HOPPER
    extern __shared__ __align__(128) uint8_t shared[];
    const memory m = layout<N, J>(p, shared);
    const int k0 = blockIdx.x % p.tiles_k * N, first = blockIdx.x / p.tiles_k;
    const int step = gridDim.x / p.tiles_k;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            ptx::barrier_init(m.full + 8 * i, FILLERS * 128);
            ptx::barrier_init(m.empty + 8 * i, MULTIPLIERS * 128);
        }
    }
    __syncthreads();
    ptx::let_next_kernel_begin();
    ptx::wait_for_kernel_before();
    if (threadIdx.x < 128 * FILLERS) { /* 640 threads have 96 registers each */
        ptx::registers_down<72>();
        filler<T>(p, m, first, step, p.x);
    } else { /* the filters are packed while the first tile is filled */
        ptx::registers_up<112>();
        const int thread = threadIdx.x - 128 * FILLERS;
        for (int i = thread; i < N && k0 + i < p.k; i += 128 * MULTIPLIERS) {
            const dr_column c = dr_column_of(p.e, k0 + i);
            m.scale[i] = c.scale, m.shift[i] = c.shift;
        }
        pack_filters<T, N, J>(p, p.filters, k0, thread, shared);
        ptx::fence_shared();
        ptx::sync_threads(1, 128 * MULTIPLIERS);
        multiplier<T, N, J>(p, m, first, step, k0, p.y);
    }
#endif
}

/* ---- launch ---- */

small small_of(const dr_conv *c, const dr_small &d, const void *x, const dr_cuda_affine *u8,
               const void *w, const dr_epilogue &e, void *y) {
    small p = {};
    p.x = x, p.filters = w, p.y = y;
    p.h = (int)c->h, p.w = (int)c->w, p.c = (int)c->c, p.k = (int)c->k;
    p.kh = (int)c->kh, p.kw = (int)c->kw, p.sh = (int)c->sh, p.sw = (int)c->sw;
    p.pt = (int)c->pt, p.pl = (int)c->pl;
    p.ho = dr_divisor_of(c->ho), p.wo = dr_divisor_of(c->wo);
    p.stack = d.stack, p.parts = d.parts, p.rows = d.rows, p.span = dr_divisor_of(d.span);
    p.pixel = d.pixel, p.pitch = d.pitch, p.buffer = d.buffer, p.blocks = d.blocks;
    p.stage = d.stage;
    p.run = d.run, p.run_tiles = dr_divisor_of(d.run_tiles);
    p.tiles = d.tiles, p.tiles_k = d.tiles_k;
    p.words = (int)(c->n * c->h * c->w * c->c / (u8 ? 4 : 2));
    p.u8 = u8 != NULL;
    for (int i = 0; u8 && i < p.c; i++) {
        p.mul[i] = u8->mul[i], p.add[i] = u8->add[i];
    }
    p.e = e;
    return p;
}

struct choice {
    dr_small d;
    small p;
};

template <class T, int N, int J> int launch(const choice &ch, const dr_cuda *cuda) {
    const int share = std::max(cuda->sms / ch.p.tiles_k, 1); /* blocks for each tile of filters */
    const int grid = std::min(share, ch.p.tiles) * ch.p.tiles_k;
    return launch_early(small_kernel<T, N, J>, ch.p, grid, THREADS, ch.d.shared_bytes,
                        cuda->stream);
}
template <class T, int N> int launch_j(const choice &ch, const dr_cuda *cuda) {
    if constexpr (std::is_same_v<T, ptx::tf32>) {
        if (ch.d.steps > 3) {
            return (ch.d.steps == 4 ? launch<T, N, 4> : launch<T, N, 5>)(ch, cuda);
        }
    }
    return (ch.d.steps == 1   ? launch<T, N, 1>
            : ch.d.steps == 2 ? launch<T, N, 2>
                              : launch<T, N, 3>)(ch, cuda);
}
template <class T> int launch_n(const choice &ch, const dr_cuda *cuda) {
    constexpr int MIDDLE = std::is_same_v<T, ptx::tf32> ? 48 : 64;
    constexpr int MOST = std::is_same_v<T, ptx::tf32> ? 64 : 96;
    const int n = ch.d.columns;
    return n == 32       ? launch_j<T, 32>(ch, cuda)
           : n == MIDDLE ? launch_j<T, MIDDLE>(ch, cuda)
                         : launch_j<T, MOST>(ch, cuda);
}

} // namespace
} // namespace dr

using namespace dr;

extern "C" int dr_cuda_conv_small(const struct dr_conv *c, enum dr_type t, const void *x,
                                  const struct dr_cuda_affine *u8, const void *w,
                                  const struct dr_epilogue *e, void *y,
                                  const struct dr_cuda *cuda) {
    choice ch;
    if (!dr_cuda_conv_small_plan(c, t, cuda->sms, &ch.d) ||
        (u8 && (!dr_cuda_conv_small_u8(c, t) || u8->n != c->c))) {
        return (int)cudaErrorInvalidValue;
    }
    ch.p = small_of(c, ch.d, x, u8, w, *e, y);
    return (t == DR_TYPE_F32   ? launch_n<ptx::tf32>
            : t == DR_TYPE_F16 ? launch_n<ptx::f16>
                               : launch_n<ptx::bf16>)(ch, cuda);
}
