/* im2win convolution in fp32 on CUDA cores, forward and data gradient (Lu, Chu, Guo, Liu: "Im2win:
 * An Efficient Convolution Paradigm on GPU", arXiv 2306.14316), windows built tile by tile in
 * shared memory.
 *
 * A block computes TH x 16 output pixels of one image by TK filters of one group. For a chunk of
 * channels it loads, once, the window columns of its output rows: win[row][column][kh][c]. The
 * window of output (row, wo) is then the contiguous run that starts at column wo * stride, and
 * neighbouring windows overlap instead of being copied. Tap column kw of every pixel is one run of
 * Kh * c values; against it stands a slab of weights [Kh * c][TK]. A thread sums 8 (or 4) rows by 4
 * filters. The pitch of a column is odd, so that the 16 pixels of a half warp fall into different
 * banks.
 *
 * The data gradient is the same kernel over dy with flipped weights, read through strides instead
 * of being repacked. With a forward stride, the rows and columns of dx fall into stride x stride
 * phases, and each phase sees only every stride-th tap: each is a correlation of stride 1 with its
 * own list of taps, so taps that the stride skips cost nothing and add nothing.
 *
 * Sums run over channel chunks, kw, kh, c in this order: the same bits on any grid. */
#include "kernels/cuda/conv_corr.cuh"

#include <algorithm>

namespace dr {
namespace {

constexpr int THREADS = 256;

template <int TH>
__device__ void load_windows(const corr &p, const float *src, int oy0, int ox0, int c0, int cc,
                             float *win) {
    const int ix0 = ox0 * p.sw + p.tx.low, pairs = TH * p.cols;
    if (cc >= 16) { /* a warp a (row, column), lanes along the channels */
        for (int i = threadIdx.x / 32; i < pairs; i += THREADS / 32) {
            const int row = i / p.cols, col = i - row * p.cols;
            for (int kh = 0; kh < p.ty.n; kh++) {
                const int iy = (oy0 + row) * p.sh + p.ty.at[kh];
                for (int ch = threadIdx.x % 32; ch < cc; ch += 32) {
                    win[i * p.pitch + kh * cc + ch] = source(p, src, iy, ix0 + col, c0 + ch);
                }
            }
        }
        return;
    }
    const int run = p.ty.n * cc;
    for (int i = threadIdx.x; i < pairs * run; i += THREADS) {
        const int pair = i / run, t = i - pair * run, kh = t / cc;
        const int row = pair / p.cols, col = pair - row * p.cols;
        win[pair * p.pitch + t] =
            source(p, src, (oy0 + row) * p.sh + p.ty.at[kh], ix0 + col, c0 + t - kh * cc);
    }
}

/* slab[t][k]: the weights of tap column kw; lanes run along whatever lies together in memory. */
template <int TK>
__device__ void load_weights(const corr &p, const float *w, int k0, int kw, int c0, int cc,
                             float *slab) {
    const int run = p.ty.n * cc;
    const float *const column = w + p.tx.weight[kw] * p.w_kw;
    for (int i = threadIdx.x; i < run * TK; i += THREADS) {
        int k, t;
        if (p.w_c == 1) {
            k = i / run;
            t = i - k * run;
        } else {
            t = i / TK;
            k = i - t * TK;
        }
        const int kh = t / cc, ch = t - kh * cc;
        float v = 0.0f;
        if (k0 + k < p.k) {
            v = column[(k0 + k) * p.w_k + p.ty.weight[kh] * p.w_kh + (c0 + ch) * p.w_c];
        }
        slab[t * (TK + 4) + k] = v;
    }
}

template <int TK, int RPT>
__global__ void __launch_bounds__(THREADS)
    corr_kernel(const corr p, const float *x, const float *w, float *y) {
    constexpr int LANES_K = TK / 4, TH = THREADS / TW / LANES_K * RPT;
    extern __shared__ float4 shared4[];
    float *const slab = reinterpret_cast<float *>(shared4);
    float *const win = slab + p.ty.n * p.cc * (TK + 4);
    const tile at = tile_of<TH, TK>(p);
    const float *const src = x + at.image * p.h * p.w * p.c_total + (int64_t)at.group * p.c;
    const float *const wg = w + at.group * p.w_group;
    const int tx = threadIdx.x % TW, ty = threadIdx.x / TW;
    const int kq = ty % LANES_K * 4, row0 = ty / LANES_K * RPT;

    float acc[RPT][4] = {};
    for (int c0 = 0; c0 < p.c; c0 += p.cc) {
        const int cc = min(p.cc, p.c - c0), run = p.ty.n * cc;
        __syncthreads();
        load_windows<TH>(p, src, at.oy, at.ox, c0, cc, win);
        for (int kw = 0; kw < p.tx.n; kw++) {
            __syncthreads();
            load_weights<TK>(p, wg, at.k, kw, c0, cc, slab);
            __syncthreads();
            const int row = p.cols * p.pitch;
            const float *const a =
                win + row0 * row + (tx * p.sw + p.tx.at[kw] - p.tx.low) * p.pitch;
#pragma unroll 2
            for (int t = 0; t < run; t++) {
                const float4 b = *reinterpret_cast<const float4 *>(&slab[t * (TK + 4) + kq]);
#pragma unroll
                for (int r = 0; r < RPT; r++) {
                    const float v = a[r * row + t];
                    acc[r][0] = fmaf(v, b.x, acc[r][0]);
                    acc[r][1] = fmaf(v, b.y, acc[r][1]);
                    acc[r][2] = fmaf(v, b.z, acc[r][2]);
                    acc[r][3] = fmaf(v, b.w, acc[r][3]);
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int64_t kk = (int64_t)at.group * p.k + at.k + kq + j;
        if (at.k + kq + j >= p.k) {
            continue;
        }
        const dr_column column = dr_column_of(p.e, kk);
#pragma unroll
        for (int r = 0; r < RPT; r++) {
            const int oy = at.oy + row0 + r, ox = at.ox + tx;
            if (oy < p.ho && ox < p.wo) {
                const int64_t i = pixel_of(p, at.image, oy, ox) * p.k_total + kk;
                y[i] = dr_finish<float>(p.e, column, acc[r][j], i);
            }
        }
    }
}

size_t shared_bytes(const corr &p, int tk, int th, int cc) {
    const size_t run = (size_t)p.ty.n * cc;
    return sizeof(float) * (run * (tk + 4) + (size_t)th * p.cols * (run | 1));
}

template <int TK, int RPT>
int launch_tile(corr p, const float *x, const float *w, float *y, bool *fits, cudaStream_t s) {
    constexpr int TH = THREADS / TW / (TK / 4) * RPT;
    p.cols = window_columns(p);
    p.cc = std::min(p.c, 32);
    while (p.cc > 1 && shared_bytes(p, TK, TH, p.cc) > SHARED_WANTED) {
        p.cc = (p.cc + 1) / 2;
    }
    const size_t bytes = shared_bytes(p, TK, TH, p.cc);
    const int64_t blocks = blocks_of(p, TH, TK);
    *fits = bytes <= SHARED_MOST && blocks <= INT32_MAX;
    if (!*fits || blocks == 0) {
        return cudaSuccess;
    }
    const cudaError_t e = cudaFuncSetAttribute(
        corr_kernel<TK, RPT>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SHARED_MOST);
    if (e != cudaSuccess) {
        return (int)e;
    }
    p.pitch = (p.ty.n * p.cc) | 1;
    corr_kernel<TK, RPT><<<(unsigned)blocks, THREADS, bytes, s>>>(p, x, w, y);
    return (int)cudaGetLastError();
}

} // namespace

/* Fewer filters, taller tiles: the threads are always 256. */
int corr_f32(const corr &p, const float *x, const float *w, float *y, bool *fits, cudaStream_t s) {
    if (p.k <= 16) {
        return launch_tile<16, 4>(p, x, w, y, fits, s);
    }
    if (p.k <= 32) {
        return launch_tile<32, 8>(p, x, w, y, fits, s);
    }
    return launch_tile<64, 8>(p, x, w, y, fits, s);
}

} // namespace dr
