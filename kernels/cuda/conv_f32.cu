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
#include "kernels/cuda/activate.cuh"
#include "kernels/cuda/conv.h"

#include <algorithm>

namespace {

constexpr int TW = 16, THREADS = 256, TAPS = 32;

/* The taps along one axis: where each reads in the source (relative to output * stride), and its
 * offset in the weights. */
struct taps {
    int n, low, high; /* low, high: the least and greatest `at` */
    int at[TAPS];
    int weight[TAPS]; /* index of the tap in the filter */
};

/* One correlation: what fprop and each phase of dgrad have in common. */
struct corr {
    int n, h, w, c; /* source [n, h, w, c_total]; c, k: of one group */
    int k, ho, wo;  /* outputs of this phase */
    int sh, sw;     /* source rows and columns from one output to the next */
    taps ty, tx;
    int groups, act;
    int64_t c_total, k_total;
    int64_t w_group, w_k, w_kh, w_kw, w_c; /* strides of the weights */
    /* output (oy, ox) of this phase is stored at row oy * oy_step + oy_first of [n, out_h, out_w]
     */
    int oy_first, ox_first, oy_step, ox_step;
    int64_t out_h, out_w;
    int cc, cols, pitch; /* chunk of channels, window columns, pitch of a column */
};

__device__ __forceinline__ float source(const corr &p, const float *src, int iy, int ix, int ch) {
    return iy >= 0 && ix >= 0 && iy < p.h && ix < p.w
               ? src[((int64_t)iy * p.w + ix) * p.c_total + ch]
               : 0.0f;
}

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
    corr_kernel(const corr p, const float *x, const float *w, const float *bias, float *y) {
    constexpr int LANES_K = TK / 4, TH = THREADS / TW / LANES_K * RPT;
    extern __shared__ float4 shared4[];
    float *const slab = reinterpret_cast<float *>(shared4);
    float *const win = slab + p.ty.n * p.cc * (TK + 4);
    const int tiles_x = (p.wo + TW - 1) / TW, tiles_y = (p.ho + TH - 1) / TH;
    const int tiles_k = (p.k + TK - 1) / TK;
    int64_t id = blockIdx.x;
    const int k0 = (int)(id % tiles_k) * TK;
    id /= tiles_k;
    const int ox0 = (int)(id % tiles_x) * TW;
    id /= tiles_x;
    const int oy0 = (int)(id % tiles_y) * TH;
    id /= tiles_y;
    const int group = (int)(id % p.groups);
    const int64_t image = id / p.groups;
    const float *const src = x + image * p.h * p.w * p.c_total + (int64_t)group * p.c;
    const float *const wg = w + group * p.w_group;
    const int tx = threadIdx.x % TW, ty = threadIdx.x / TW;
    const int kq = ty % LANES_K * 4, row0 = ty / LANES_K * RPT;

    float acc[RPT][4] = {};
    for (int c0 = 0; c0 < p.c; c0 += p.cc) {
        const int cc = min(p.cc, p.c - c0), run = p.ty.n * cc;
        __syncthreads();
        load_windows<TH>(p, src, oy0, ox0, c0, cc, win);
        for (int kw = 0; kw < p.tx.n; kw++) {
            __syncthreads();
            load_weights<TK>(p, wg, k0, kw, c0, cc, slab);
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
    for (int r = 0; r < RPT; r++) {
        const int oy = oy0 + row0 + r, ox = ox0 + tx;
        if (oy >= p.ho || ox >= p.wo) {
            continue;
        }
        const int64_t pixel =
            (image * p.out_h + oy * p.oy_step + p.oy_first) * p.out_w + ox * p.ox_step + p.ox_first;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int k = k0 + kq + j;
            if (k < p.k) {
                const int64_t kk = (int64_t)group * p.k + k;
                const float v = acc[r][j] + (bias ? bias[kk] : 0.0f);
                y[pixel * p.k_total + kk] = dr_activate(v, p.act);
            }
        }
    }
}

/* For taps too many for the tables or for shared memory: one thread an output. */
struct direct {
    dr_conv c;
    bool dgrad;
    int act;
    int64_t total, k_total, kg,
        cg; /* outputs; channels and filters of one group, as the filter has them */
};

__device__ float direct_fprop(const direct &p, const float *x, const float *w, int64_t image,
                              int64_t oy, int64_t ox, int64_t k) {
    const dr_conv &c = p.c;
    const int64_t group = k / p.kg;
    float acc = 0.0f;
    for (int64_t kw = 0; kw < c.kw; kw++) {
        for (int64_t kh = 0; kh < c.kh; kh++) {
            const int64_t iy = oy * c.sh + kh * c.dh - c.pt, ix = ox * c.sw + kw * c.dw - c.pl;
            const bool inside = iy >= 0 && ix >= 0 && iy < c.h && ix < c.w;
            for (int64_t ch = 0; ch < p.cg; ch++) {
                const float v =
                    inside ? x[((image * c.h + iy) * c.w + ix) * c.c + group * p.cg + ch] : 0.0f;
                acc = fmaf(v, w[((k * c.kh + kh) * c.kw + kw) * p.cg + ch], acc);
            }
        }
    }
    return acc;
}

__device__ float direct_dgrad(const direct &p, const float *dy, const float *w, int64_t image,
                              int64_t iy, int64_t ix, int64_t channel) {
    const dr_conv &c = p.c;
    const int64_t group = channel / p.cg, ch = channel % p.cg;
    float acc = 0.0f;
    for (int64_t kw = 0; kw < c.kw; kw++) {
        for (int64_t kh = 0; kh < c.kh; kh++) {
            const int64_t y = iy + c.pt - kh * c.dh, x = ix + c.pl - kw * c.dw;
            if (y % c.sh != 0 || x % c.sw != 0) {
                continue;
            }
            const int64_t oy = y / c.sh, ox = x / c.sw;
            const bool inside = y >= 0 && x >= 0 && oy < c.ho && ox < c.wo;
            for (int64_t k = 0; k < p.kg; k++) {
                const int64_t filter = group * p.kg + k;
                const float v =
                    inside ? dy[((image * c.ho + oy) * c.wo + ox) * c.k + filter] : 0.0f;
                acc = fmaf(v, w[((filter * c.kh + kh) * c.kw + kw) * p.cg + ch], acc);
            }
        }
    }
    return acc;
}

__global__ void direct_kernel(const direct p, const float *x, const float *w, const float *bias,
                              float *y) {
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    const int64_t width = p.dgrad ? p.c.w : p.c.wo, height = p.dgrad ? p.c.h : p.c.ho;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.total; i += stride) {
        const int64_t k = i % p.k_total, px = i / p.k_total % width;
        const int64_t py = i / p.k_total / width % height, image = i / p.k_total / width / height;
        const float v = p.dgrad ? direct_dgrad(p, x, w, image, py, px, k)
                                : direct_fprop(p, x, w, image, py, px, k);
        y[i] = dr_activate(v + (bias ? bias[k] : 0.0f), p.act);
    }
}

int launch_direct(const dr_conv *c, bool dgrad, const float *x, const float *w, const float *bias,
                  int act, float *y, cudaStream_t s) {
    direct p = {};
    p.c = *c, p.dgrad = dgrad, p.act = act;
    p.k_total = dgrad ? c->c : c->k;
    p.total = dgrad ? c->n * c->h * c->w * c->c : c->n * c->ho * c->wo * c->k;
    p.kg = c->k / c->groups, p.cg = c->c / c->groups;
    const int64_t blocks = std::min<int64_t>((p.total + 127) / 128, 1 << 16);
    direct_kernel<<<(unsigned)blocks, 128, 0, s>>>(p, x, w, bias, y);
    return (int)cudaGetLastError();
}

/* ---- launching ---- */

constexpr size_t SHARED_WANTED = 64 * 1024, SHARED_MOST = 96 * 1024;

size_t shared_bytes(const corr &p, int tk, int th, int cc) {
    const size_t run = (size_t)p.ty.n * cc;
    return sizeof(float) * (run * (tk + 4) + (size_t)th * p.cols * (run | 1));
}

template <int TK, int RPT>
int launch_tile(corr p, const float *x, const float *w, const float *bias, float *y, bool *fits,
                cudaStream_t s) {
    constexpr int TH = THREADS / TW / (TK / 4) * RPT;
    p.cols = (TW - 1) * p.sw + (p.tx.n ? p.tx.high - p.tx.low : 0) + 1;
    p.cc = std::min(p.c, 32);
    while (p.cc > 1 && shared_bytes(p, TK, TH, p.cc) > SHARED_WANTED) {
        p.cc = (p.cc + 1) / 2;
    }
    const size_t bytes = shared_bytes(p, TK, TH, p.cc);
    const int64_t blocks = (int64_t)((p.k + TK - 1) / TK) * ((p.wo + TW - 1) / TW) *
                           ((p.ho + TH - 1) / TH) * p.groups * p.n;
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
    corr_kernel<TK, RPT><<<(unsigned)blocks, THREADS, bytes, s>>>(p, x, w, bias, y);
    return (int)cudaGetLastError();
}

/* Fewer filters, taller tiles: the threads are always 256. */
int launch(const corr &p, const float *x, const float *w, const float *bias, float *y, bool *fits,
           cudaStream_t s) {
    if (p.k <= 16) {
        return launch_tile<16, 4>(p, x, w, bias, y, fits, s);
    }
    if (p.k <= 32) {
        return launch_tile<32, 8>(p, x, w, bias, y, fits, s);
    }
    return launch_tile<64, 8>(p, x, w, bias, y, fits, s);
}

void add_tap(taps *t, int at, int weight) {
    t->low = t->n ? std::min(t->low, at) : at;
    t->high = t->n ? std::max(t->high, at) : at;
    t->at[t->n] = at;
    t->weight[t->n++] = weight;
}

/* Taps of dgrad that reach outputs `first`, first + stride, ... along one axis: input i reads
 * output (i + pad - k * dilation) / stride. The last tap comes first, as in a correlation with the
 * flipped filter. */
taps phase_taps(int64_t kernel, int64_t dilation, int64_t stride, int64_t pad, int64_t first) {
    taps t = {};
    for (int64_t k = kernel - 1; k >= 0; k--) {
        const int64_t y = first + pad - k * dilation;
        if (y % stride == 0) {
            add_tap(&t, (int)(y / stride), (int)k);
        }
    }
    return t;
}

/* Whether the tables hold the taps, and an int each position: tiles, strides and pads (at most
 * 65535 each) reach past the borders, so not all of 2^31 is left. */
bool small(const dr_conv *c) {
    const int64_t most = std::max({c->n, c->h, c->w, c->c, c->k, c->ho, c->wo});
    return c->kh <= TAPS && c->kw <= TAPS && most <= 1 << 30;
}

} // namespace

extern "C" int dr_cuda_conv_fprop(const struct dr_conv *c, const float *x, const float *w,
                                  const float *bias, int act, float *y, cudaStream_t s) {
    const int64_t cg = c->c / c->groups, kg = c->k / c->groups;
    bool fits = small(c);
    int err = cudaSuccess;
    if (fits) {
        corr p = {};
        p.n = (int)c->n, p.h = (int)c->h, p.w = (int)c->w, p.c = (int)cg;
        p.k = (int)kg, p.ho = (int)c->ho, p.wo = (int)c->wo;
        p.sh = (int)c->sh, p.sw = (int)c->sw;
        for (int64_t k = 0; k < c->kh; k++) {
            add_tap(&p.ty, (int)(k * c->dh - c->pt), (int)k);
        }
        for (int64_t k = 0; k < c->kw; k++) {
            add_tap(&p.tx, (int)(k * c->dw - c->pl), (int)k);
        }
        p.groups = (int)c->groups, p.act = act;
        p.c_total = c->c, p.k_total = c->k;
        p.w_c = 1, p.w_kw = cg, p.w_kh = c->kw * cg, p.w_k = c->kh * c->kw * cg;
        p.w_group = kg * p.w_k;
        p.oy_step = p.ox_step = 1, p.out_h = c->ho, p.out_w = c->wo;
        err = launch(p, x, w, bias, y, &fits, s);
    }
    return fits || err ? err : launch_direct(c, false, x, w, bias, act, y, s);
}

/* One phase of dx: rows fy, fy + sh, ... and columns fx, fx + sw, ... */
static corr dgrad_phase(const struct dr_conv *c, int act, int64_t fy, int64_t fx) {
    const int64_t cg = c->c / c->groups, kg = c->k / c->groups;
    corr p = {};
    p.n = (int)c->n, p.h = (int)c->ho, p.w = (int)c->wo, p.c = (int)kg;
    p.k = (int)cg;
    p.ho = (int)((c->h - fy + c->sh - 1) / c->sh), p.wo = (int)((c->w - fx + c->sw - 1) / c->sw);
    p.sh = p.sw = 1;
    p.ty = phase_taps(c->kh, c->dh, c->sh, c->pt, fy);
    p.tx = phase_taps(c->kw, c->dw, c->sw, c->pl, fx);
    p.groups = (int)c->groups, p.act = act;
    p.c_total = c->k, p.k_total = c->c;
    p.w_k = 1, p.w_kw = cg, p.w_kh = c->kw * cg, p.w_c = c->kh * c->kw * cg;
    p.w_group = kg * p.w_c;
    p.oy_first = (int)fy, p.ox_first = (int)fx, p.oy_step = (int)c->sh, p.ox_step = (int)c->sw;
    p.out_h = c->h, p.out_w = c->w;
    return p;
}

extern "C" int dr_cuda_conv_transpose(const struct dr_conv *c, const float *dy, const float *w,
                                      const float *bias, int act, float *dx, cudaStream_t s) {
    bool fits = small(c) && c->sh * c->sw <= 64;
    int err = cudaSuccess;
    for (int64_t fy = 0; fy < c->sh && fy < c->h && fits && !err; fy++) {
        for (int64_t fx = 0; fx < c->sw && fx < c->w && fits && !err; fx++) {
            err = launch(dgrad_phase(c, act, fy, fx), dy, w, bias, dx, &fits, s);
        }
    }
    return fits || err ? err : launch_direct(c, true, dy, w, bias, act, dx, s);
}

extern "C" int dr_cuda_conv_dgrad(const struct dr_conv *c, const float *dy, const float *w,
                                  float *dx, cudaStream_t s) {
    return dr_cuda_conv_transpose(c, dy, w, nullptr, 0, dx, s);
}
