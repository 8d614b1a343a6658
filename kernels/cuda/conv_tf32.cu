/* im2win convolution on Tensor cores in tf32 (mma.sync m16n8k8, sm_80 and up), forward and data
 * gradient: fp32 in memory, operands rounded to tf32 (10 bits) as they enter shared memory, sums in
 * fp32.
 *
 * The windows are those of conv_f32.cu: win[row][column][kh][c], a window a contiguous run. One
 * output row of 16 pixels is the M = 16 of an mma, so its A fragment is read from the overlapping
 * windows in place: lane (g, t) reads the run of pixels g and g + 8 at t and t + 4. Banks: the
 * pitch of a column is chosen so that pitch * stride is an odd multiple of 4, the pitch of the
 * weights is TK + 8: both fragments are free of conflicts. The slab of weights is double-buffered:
 * tap column kw + 1 is fetched while kw is multiplied.
 *
 * Sums run over channel chunks, kw, then eights of (kh, c), in this order: the same bits on any
 * grid. */
#include "kernels/cuda/conv_corr.cuh"
#include "kernels/cuda/mma.cuh"

#include <algorithm>

namespace dr {
namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32;

/* Windows of TH rows for channels [c0, c0 + cc), zeros up to run8. */
template <int TH>
__device__ void load_windows(const corr &p, const float *src, int oy0, int ox0, int c0, int cc,
                             int run8, float *win) {
    const int ix0 = ox0 * p.sw + p.tx.low, pairs = TH * p.cols, run = p.ty.n * cc;
    if (cc >= 16) { /* a warp a (row, column), lanes along the channels */
        for (int i = threadIdx.x / 32; i < pairs; i += WARPS) {
            const int row = i / p.cols, col = i - row * p.cols;
            float *const to = win + i * p.pitch;
            for (int kh = 0; kh < p.ty.n; kh++) {
                const int iy = (oy0 + row) * p.sh + p.ty.at[kh];
                for (int ch = threadIdx.x % 32; ch < cc; ch += 32) {
                    to[kh * cc + ch] = dr_to_tf32(source(p, src, iy, ix0 + col, c0 + ch));
                }
            }
            for (int t = run + threadIdx.x % 32; t < run8; t += 32) {
                to[t] = 0.0f;
            }
        }
        return;
    }
    for (int i = threadIdx.x; i < pairs * run8; i += THREADS) {
        const int pair = i / run8, t = i - pair * run8, kh = t / cc;
        const int row = pair / p.cols, col = pair - row * p.cols;
        float v = 0.0f;
        if (t < run) {
            v = source(p, src, (oy0 + row) * p.sh + p.ty.at[kh], ix0 + col, c0 + t - kh * cc);
        }
        win[pair * p.pitch + t] = dr_to_tf32(v);
    }
}

/* slab[t][k]: the weights of tap column kw, zeros up to run8. */
template <int TK>
__device__ void load_weights(const corr &p, const float *w, int k0, int kw, int c0, int cc,
                             int run8, float *slab) {
    const int run = p.ty.n * cc;
    const float *const column = w + p.tx.weight[kw] * p.w_kw;
    for (int i = threadIdx.x; i < run8 * TK; i += THREADS) {
        int k, t;
        if (p.w_c == 1) { /* lanes run along whatever lies together in memory */
            k = i / run8;
            t = i - k * run8;
        } else {
            t = i / TK;
            k = i - t * TK;
        }
        const int kh = t / cc, ch = t - kh * cc;
        float v = 0.0f;
        if (t < run && k0 + k < p.k) {
            v = column[(k0 + k) * p.w_k + p.ty.weight[kh] * p.w_kh + (c0 + ch) * p.w_c];
        }
        slab[t * (TK + 8) + k] = dr_to_tf32(v);
    }
}

/* A warp multiplies MT rows by NT eights of filters; WN warps share a row group. */
template <int WN, int MT, int NT>
__global__ void __launch_bounds__(THREADS)
    corr_tf32_kernel(const corr p, const float *x, const float *w, float *y) {
    constexpr int TH = WARPS / WN * MT, TK = WN * NT * 8, PITCH_K = TK + 8;
    extern __shared__ float4 shared4[];
    const int run8_most = (p.ty.n * p.cc + 7) / 8 * 8;
    float *const slab = reinterpret_cast<float *>(shared4);
    float *const win = slab + 2 * run8_most * PITCH_K;
    const tile at = tile_of<TH, TK>(p);
    const float *const src = x + at.image * p.h * p.w * p.c_total + (int64_t)at.group * p.c;
    const float *const wg = w + at.group * p.w_group;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int row0 = warp / WN * MT, n0 = warp % WN * NT * 8;

    float acc[MT][NT][4] = {};
    for (int c0 = 0; c0 < p.c; c0 += p.cc) {
        const int cc = min(p.cc, p.c - c0), run8 = (p.ty.n * cc + 7) / 8 * 8;
        __syncthreads();
        load_windows<TH>(p, src, at.oy, at.ox, c0, cc, run8, win);
        if (p.tx.n > 0) {
            load_weights<TK>(p, wg, at.k, 0, c0, cc, run8, slab);
        }
        for (int kw = 0; kw < p.tx.n; kw++) {
            __syncthreads();
            if (kw + 1 < p.tx.n) {
                load_weights<TK>(p, wg, at.k, kw + 1, c0, cc, run8,
                                 slab + (kw + 1) % 2 * run8_most * PITCH_K);
            }
            const float *const b0 = slab + kw % 2 * run8_most * PITCH_K + t * PITCH_K + n0 + g;
            const int row = p.cols * p.pitch, eight = 8 * p.sw * p.pitch;
            const float *const a0 =
                win + row0 * row + (g * p.sw + p.tx.at[kw] - p.tx.low) * p.pitch + t;
            for (int k = 0; k < run8; k += 8) {
                uint32_t a[MT][4], b[NT][2];
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    const float *const from = a0 + m * row + k;
                    a[m][0] = __float_as_uint(from[0]);
                    a[m][1] = __float_as_uint(from[eight]);
                    a[m][2] = __float_as_uint(from[4]);
                    a[m][3] = __float_as_uint(from[eight + 4]);
                }
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    b[n][0] = __float_as_uint(b0[k * PITCH_K + n * 8]);
                    b[n][1] = __float_as_uint(b0[(k + 4) * PITCH_K + n * 8]);
                }
#pragma unroll
                for (int m = 0; m < MT; m++) {
#pragma unroll
                    for (int n = 0; n < NT; n++) {
                        dr_mma_tf32(acc[m][n], a[m], b[n]);
                    }
                }
            }
        }
    }
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int j = 0; j < 2; j++) { /* acc[..][i]: pixel g or g + 8, filter 2t or 2t + 1 */
            const int k = at.k + n0 + n * 8 + 2 * t + j;
            if (k >= p.k) {
                continue;
            }
            const int64_t kk = (int64_t)at.group * p.k + k;
            const dr_column column = dr_column_of(p.e, kk);
#pragma unroll
            for (int m = 0; m < MT; m++) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int oy = at.oy + row0 + m, ox = at.ox + g + half * 8;
                    if (oy < p.ho && ox < p.wo) {
                        const int64_t i = pixel_of(p, at.image, oy, ox) * p.k_total + kk;
                        y[i] = dr_finish<float>(p.e, column, acc[m][n][half * 2 + j], i);
                    }
                }
            }
        }
    }
}

/* The least pitch of at least `run8` for which pitch * stride is an odd multiple of 4 (where there
 * is one). */
int pitch_of(int run8, int stride) {
    for (int pitch = run8; pitch < run8 + 8; pitch++) {
        if ((int64_t)pitch * stride % 8 == 4) {
            return pitch;
        }
    }
    return run8;
}

size_t shared_bytes(const corr &p, int tk, int th, int cc) {
    const int run8 = (p.ty.n * cc + 7) / 8 * 8;
    return sizeof(float) *
           (2 * (size_t)run8 * (tk + 8) + (size_t)th * p.cols * pitch_of(run8, p.sw));
}

template <int WN, int MT, int NT>
int launch_tile(corr p, const float *x, const float *w, float *y, bool *fits, cudaStream_t s) {
    constexpr int TH = WARPS / WN * MT, TK = WN * NT * 8;
    p.cols = window_columns(p);
    p.cc = std::min(p.c, 32);
    while (p.cc > 1 && shared_bytes(p, TK, TH, p.cc) > SHARED_WANTED) {
        p.cc = (p.cc + 1) / 2;
    }
    p.pitch = pitch_of((p.ty.n * p.cc + 7) / 8 * 8, p.sw);
    const size_t bytes = shared_bytes(p, TK, TH, p.cc);
    const int64_t blocks = blocks_of(p, TH, TK);
    *fits = bytes <= SHARED_MOST && blocks <= INT32_MAX;
    if (!*fits || blocks == 0) {
        return cudaSuccess;
    }
    const cudaError_t e =
        cudaFuncSetAttribute(corr_tf32_kernel<WN, MT, NT>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SHARED_MOST);
    if (e != cudaSuccess) {
        return (int)e;
    }
    corr_tf32_kernel<WN, MT, NT><<<(unsigned)blocks, THREADS, bytes, s>>>(p, x, w, y);
    return (int)cudaGetLastError();
}

} // namespace

int corr_tf32(const corr &p, const float *x, const float *w, float *y, bool *fits, cudaStream_t s) {
    if (p.k <= 16) {
        return launch_tile<1, 2, 2>(p, x, w, y, fits, s); /* 16 rows x 16 pixels by 16 filters */
    }
    if (p.k <= 32) {
        return launch_tile<1, 2, 4>(p, x, w, y, fits, s); /* 16 x 16 by 32 */
    }
    return launch_tile<2, 2, 4>(p, x, w, y, fits, s); /* 8 x 16 by 64 */
}

} // namespace dr
