/* im2win convolution in fp32 on CUDA cores (Lu, Chu, Guo, Liu: "Im2win: An Efficient Convolution
 * Paradigm on GPU", arXiv 2306.14316), windows built tile by tile in shared memory.
 *
 * A block computes 4 x 16 output pixels of one image by 64 filters of one group. For a chunk of
 * channels it loads, once, the window columns of its four output rows: win[row][column][kh][c]. The
 * window of output (row, wo) is then the contiguous run that starts at column wo * stride, and
 * neighbouring windows overlap instead of being copied. Tap column kw of every pixel is one run of
 * Kh * c values; against it stands a slab of weights [Kh * c][64]. The pitch of a column is odd, so
 * that the 16 pixels of a half warp fall into different banks.
 *
 * The data gradient is the same kernel: the full correlation of dy, spread by the stride, with
 * flipped weights, which are read through strides instead of being repacked.
 *
 * The weight gradient is a product over pixels: a block takes 64 filters by 64 window positions and
 * a fixed chunk of pixels; partial sums are added in chunk order, so no result depends on the grid.
 */
#include "kernels/cuda/activate.cuh"
#include "kernels/cuda/conv.h"

#include <algorithm>

namespace {

constexpr int TH = 4, TW = 16, TK = 64, THREADS = 256;

/* One correlation: what fprop and dgrad have in common. */
struct corr {
    int n, h, w, c;     /* source [n, h, w, c_total] */
    int k, kh, kw;      /* filters and taps of one group; c: channels of one group */
    int ho, wo;         /* result */
    int sh, sw, dh, dw; /* stride and dilation of taps */
    int ih, iw;         /* the source is spread by these (dgrad: the forward stride) */
    int pt, pl;
    int groups;
    int64_t c_total, k_total;
    int64_t w_group, w_k, w_kh, w_kw, w_c, w_base; /* strides of the weights */
    int act, cc, cols, pitch;                      /* chunk of channels, window columns, pitch */
};

/* The source value under tap-space row y, column x (before spreading), or 0 outside. */
__device__ __forceinline__ bool source_at(const corr &p, int y, int x, int *iy, int *ix) {
    if (p.ih == 1 && p.iw == 1) {
        *iy = y;
        *ix = x;
    } else {
        if (y < 0 || x < 0 || y % p.ih != 0 || x % p.iw != 0) {
            return false;
        }
        *iy = y / p.ih;
        *ix = x / p.iw;
    }
    return *iy >= 0 && *ix >= 0 && *iy < p.h && *ix < p.w;
}

__device__ void load_windows(const corr &p, const float *src, int oy0, int ox0, int c0, int cc,
                             float *win) {
    const int run = p.kh * cc, total = TH * p.cols * run;
    for (int i = threadIdx.x; i < total; i += THREADS) {
        const int t = i % run, col = i / run % p.cols, row = i / (run * p.cols);
        const int kh = t / cc, ch = t % cc;
        int iy, ix;
        float v = 0.0f;
        if (source_at(p, (oy0 + row) * p.sh + kh * p.dh - p.pt, ox0 * p.sw + col - p.pl, &iy,
                      &ix)) {
            v = src[((int64_t)iy * p.w + ix) * p.c_total + c0 + ch];
        }
        win[(row * p.cols + col) * p.pitch + t] = v;
    }
}

__device__ void load_weights(const corr &p, const float *w, int k0, int kw, int c0, int cc,
                             float *slab) {
    const int total = p.kh * cc * TK;
    for (int i = threadIdx.x; i < total; i += THREADS) {
        const int k = i % TK, t = i / TK, kh = t / cc, ch = t % cc;
        float v = 0.0f;
        if (k0 + k < p.k) {
            v = w[(k0 + k) * p.w_k + kh * p.w_kh + kw * p.w_kw + (c0 + ch) * p.w_c];
        }
        slab[t * TK + k] = v;
    }
}

__global__ void __launch_bounds__(THREADS)
    corr_kernel(const corr p, const float *x, const float *w, const float *bias, float *y) {
    extern __shared__ float4 shared4[];
    float *const slab = reinterpret_cast<float *>(shared4);
    float *const win = slab + p.kh * p.cc * TK;
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
    const float *const wg = w + p.w_base + group * p.w_group;
    const int tx = threadIdx.x % TW, ty = threadIdx.x / TW;

    float acc[TH][4] = {};
    for (int c0 = 0; c0 < p.c; c0 += p.cc) {
        const int cc = min(p.cc, p.c - c0), run = p.kh * cc;
        __syncthreads();
        load_windows(p, src, oy0, ox0, c0, cc, win);
        for (int kw = 0; kw < p.kw; kw++) {
            __syncthreads();
            load_weights(p, wg, k0, kw, c0, cc, slab);
            __syncthreads();
            const float *const a = win + (tx * p.sw + kw * p.dw) * p.pitch;
            const int row = p.cols * p.pitch;
#pragma unroll 4
            for (int t = 0; t < run; t++) {
                const float4 b = *reinterpret_cast<const float4 *>(&slab[t * TK + ty * 4]);
#pragma unroll
                for (int r = 0; r < TH; r++) {
                    const float v = a[r * row + t];
                    acc[r][0] = fmaf(v, b.x, acc[r][0]);
                    acc[r][1] = fmaf(v, b.y, acc[r][1]);
                    acc[r][2] = fmaf(v, b.z, acc[r][2]);
                    acc[r][3] = fmaf(v, b.w, acc[r][3]);
                }
            }
        }
    }
    for (int r = 0; r < TH; r++) {
        const int oy = oy0 + r, ox = ox0 + tx;
        if (oy >= p.ho || ox >= p.wo) {
            continue;
        }
        for (int j = 0; j < 4; j++) {
            const int k = k0 + ty * 4 + j;
            if (k < p.k) {
                const int64_t kk = (int64_t)group * p.k + k;
                const float v = acc[r][j] + (bias ? bias[kk] : 0.0f);
                y[((image * p.ho + oy) * p.wo + ox) * p.k_total + kk] = dr_activate(v, p.act);
            }
        }
    }
}

/* For taps too many for shared memory: one thread an output, the same order of sums as above. */
__global__ void corr_direct_kernel(const corr p, const float *x, const float *w, const float *bias,
                                   float *y, int64_t total) {
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += stride) {
        const int64_t kk = i % p.k_total;
        const int group = (int)(kk / p.k), k = (int)(kk % p.k);
        const int ox = (int)(i / p.k_total % p.wo), oy = (int)(i / p.k_total / p.wo % p.ho);
        const int64_t image = i / p.k_total / p.wo / p.ho;
        const float *const src = x + image * p.h * p.w * p.c_total + (int64_t)group * p.c;
        const float *const wk = w + p.w_base + group * p.w_group + k * p.w_k;
        float acc = 0.0f;
        for (int kw = 0; kw < p.kw; kw++) {
            for (int kh = 0; kh < p.kh; kh++) {
                int iy, ix;
                if (source_at(p, oy * p.sh + kh * p.dh - p.pt, ox * p.sw + kw * p.dw - p.pl, &iy,
                              &ix)) {
                    for (int c = 0; c < p.c; c++) {
                        acc = fmaf(src[((int64_t)iy * p.w + ix) * p.c_total + c],
                                   wk[kh * p.w_kh + kw * p.w_kw + c * p.w_c], acc);
                    }
                }
            }
        }
        y[i] = dr_activate(acc + (bias ? bias[kk] : 0.0f), p.act);
    }
}

size_t shared_bytes(const corr &p, int cc) {
    const int run = p.kh * cc;
    return sizeof(float) * ((size_t)run * TK + (size_t)TH * p.cols * (run | 1));
}

int launch(corr p, const float *x, const float *w, const float *bias, float *y, cudaStream_t s) {
    p.cols = (TW - 1) * p.sw + (p.kw - 1) * p.dw + 1;
    p.cc = std::min(p.c, 32);
    while (p.cc > 1 && shared_bytes(p, p.cc) > 40 * 1024) {
        p.cc = (p.cc + 1) / 2;
    }
    const size_t bytes = shared_bytes(p, p.cc);
    if (bytes > 48 * 1024) {
        const int64_t total = (int64_t)p.n * p.ho * p.wo * p.k_total;
        const int64_t blocks = std::min<int64_t>((total + 127) / 128, 1 << 16);
        corr_direct_kernel<<<(unsigned)blocks, 128, 0, s>>>(p, x, w, bias, y, total);
        return (int)cudaGetLastError();
    }
    p.pitch = (p.kh * p.cc) | 1;
    const int64_t blocks = (int64_t)((p.k + TK - 1) / TK) * ((p.wo + TW - 1) / TW) *
                           ((p.ho + TH - 1) / TH) * p.groups * p.n;
    if (blocks > INT32_MAX) {
        return (int)cudaErrorInvalidConfiguration;
    }
    corr_kernel<<<(unsigned)blocks, THREADS, bytes, s>>>(p, x, w, bias, y);
    return (int)cudaGetLastError();
}

/* ---- weight gradient ---- */

constexpr int WP = 16;                         /* pixels a step */
constexpr int64_t CHUNK = DR_CUDA_WGRAD_CHUNK; /* pixels a partial sum */

struct wgrad {
    dr_conv c;
    int64_t pixels, columns, elements; /* of dw: columns = Kh * Kw * C/groups */
    int kg, cg;
};

__global__ void __launch_bounds__(THREADS)
    wgrad_kernel(const wgrad p, const float *x, const float *dy, float *partial) {
    __shared__ float a[WP][TK + 4], b[WP][TK + 4];
    const int tiles_k = (p.kg + TK - 1) / TK;
    const int64_t tiles_j = (p.columns + TK - 1) / TK;
    int64_t id = blockIdx.x;
    const int k0 = (int)(id % tiles_k) * TK;
    id /= tiles_k;
    const int64_t j0 = id % tiles_j * TK;
    id /= tiles_j;
    const int group = (int)(id % p.c.groups);
    const int64_t chunk = id / p.c.groups;
    const int64_t first = chunk * CHUNK, last = min(first + CHUNK, p.pixels);
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;

    /* This thread loads column j of the window for pixels lp, lp + 4, ... */
    const int lj = threadIdx.x % TK, lp = threadIdx.x / TK;
    const int64_t j = j0 + lj;
    const int ch = (int)(j % p.cg);
    const int kw = (int)(j / p.cg % p.c.kw), kh = (int)(j / p.cg / p.c.kw);

    float acc[4][4] = {};
    for (int64_t p0 = first; p0 < last; p0 += WP) {
        __syncthreads();
        for (int q = lp; q < WP; q += THREADS / TK) {
            const int64_t pixel = p0 + q;
            float va = 0.0f, vb = 0.0f;
            if (pixel < last) {
                const int64_t wo = pixel % p.c.wo, ho = pixel / p.c.wo % p.c.ho;
                const int64_t image = pixel / p.c.wo / p.c.ho;
                const int64_t iy = ho * p.c.sh + kh * p.c.dh - p.c.pt;
                const int64_t ix = wo * p.c.sw + kw * p.c.dw - p.c.pl;
                if (k0 + lj < p.kg) {
                    va = dy[pixel * p.c.k + (int64_t)group * p.kg + k0 + lj];
                }
                if (j < p.columns && iy >= 0 && ix >= 0 && iy < p.c.h && ix < p.c.w) {
                    vb =
                        x[((image * p.c.h + iy) * p.c.w + ix) * p.c.c + (int64_t)group * p.cg + ch];
                }
            }
            a[q][lj] = va;
            b[q][lj] = vb;
        }
        __syncthreads();
#pragma unroll
        for (int q = 0; q < WP; q++) {
            const float4 u = *reinterpret_cast<const float4 *>(&a[q][ty * 4]);
            const float4 v = *reinterpret_cast<const float4 *>(&b[q][tx * 4]);
            const float us[4] = {u.x, u.y, u.z, u.w}, vs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int m = 0; m < 4; m++) {
                    acc[i][m] = fmaf(us[i], vs[m], acc[i][m]);
                }
            }
        }
    }
    float *const out = partial + chunk * p.elements;
    for (int i = 0; i < 4; i++) {
        for (int m = 0; m < 4; m++) {
            const int k = k0 + ty * 4 + i;
            const int64_t col = j0 + tx * 4 + m;
            if (k < p.kg && col < p.columns) {
                out[((int64_t)group * p.kg + k) * p.columns + col] = acc[i][m];
            }
        }
    }
}

/* out[i] = sum over chunks of partial[chunk][i], in order, in double: long sums stay right. */
__global__ void add_partials(const float *partial, int64_t chunks, int64_t n, float *out) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    double sum = 0.0;
    for (int64_t c = 0; c < chunks; c++) {
        sum += partial[c * n + i];
    }
    out[i] = (float)sum;
}

int64_t chunks_of(int64_t pixels) {
    return (pixels + CHUNK - 1) / CHUNK;
}

constexpr int64_t ROWS = DR_CUDA_SUM_CHUNK; /* rows a partial column sum */

__global__ void column_sum_kernel(const float *a, int64_t rows, int64_t columns, float *partial) {
    __shared__ float sum[8][33];
    const int64_t col = (int64_t)blockIdx.x * 32 + threadIdx.x;
    const int64_t first = (int64_t)blockIdx.y * ROWS, last = min(first + ROWS, rows);
    float acc = 0.0f;
    if (col < columns) {
        for (int64_t r = first + threadIdx.y; r < last; r += 8) {
            acc += a[r * columns + col];
        }
    }
    sum[threadIdx.y][threadIdx.x] = acc;
    __syncthreads();
    if (threadIdx.y == 0 && col < columns) {
        float total = 0.0f;
        for (int i = 0; i < 8; i++) {
            total += sum[i][threadIdx.x];
        }
        partial[blockIdx.y * columns + col] = total;
    }
}

} // namespace

extern "C" int dr_cuda_conv_fprop(const struct dr_conv *c, const float *x, const float *w,
                                  const float *bias, int act, float *y, cudaStream_t s) {
    const int cg = (int)(c->c / c->groups), kg = (int)(c->k / c->groups);
    corr p = {};
    p.n = (int)c->n, p.h = (int)c->h, p.w = (int)c->w, p.c = cg;
    p.k = kg, p.kh = (int)c->kh, p.kw = (int)c->kw;
    p.ho = (int)c->ho, p.wo = (int)c->wo;
    p.sh = (int)c->sh, p.sw = (int)c->sw, p.dh = (int)c->dh, p.dw = (int)c->dw;
    p.ih = p.iw = 1;
    p.pt = (int)c->pt, p.pl = (int)c->pl;
    p.groups = (int)c->groups;
    p.c_total = c->c, p.k_total = c->k;
    p.w_c = 1, p.w_kw = cg, p.w_kh = c->kw * cg, p.w_k = c->kh * c->kw * cg;
    p.w_group = kg * p.w_k;
    p.act = act;
    return launch(p, x, w, bias, y, s);
}

extern "C" int dr_cuda_conv_dgrad(const struct dr_conv *c, const float *dy, const float *w,
                                  float *dx, cudaStream_t s) {
    const int cg = (int)(c->c / c->groups), kg = (int)(c->k / c->groups);
    corr p = {};
    p.n = (int)c->n, p.h = (int)c->ho, p.w = (int)c->wo, p.c = kg;
    p.k = cg, p.kh = (int)c->kh, p.kw = (int)c->kw;
    p.ho = (int)c->h, p.wo = (int)c->w;
    p.sh = p.sw = 1, p.dh = (int)c->dh, p.dw = (int)c->dw;
    p.ih = (int)c->sh, p.iw = (int)c->sw;
    p.pt = (int)(c->dh * (c->kh - 1) - c->pt), p.pl = (int)(c->dw * (c->kw - 1) - c->pl);
    p.groups = (int)c->groups;
    p.c_total = c->k, p.k_total = c->c;
    const int64_t tap = cg, row = c->kw * cg, filter = c->kh * row;
    p.w_k = 1, p.w_c = filter, p.w_kh = -row, p.w_kw = -tap;
    p.w_base = (c->kh - 1) * row + (c->kw - 1) * tap; /* flipped: the last tap first */
    p.w_group = kg * filter;
    return launch(p, dy, w, nullptr, dx, s);
}

extern "C" int dr_cuda_conv_wgrad(const struct dr_conv *c, const float *x, const float *dy,
                                  float *dw, void *workspace, cudaStream_t s) {
    wgrad p = {};
    p.c = *c;
    p.cg = (int)(c->c / c->groups), p.kg = (int)(c->k / c->groups);
    p.pixels = c->n * c->ho * c->wo;
    p.columns = c->kh * c->kw * p.cg;
    p.elements = c->k * p.columns;
    const int64_t chunks = chunks_of(p.pixels);
    const int64_t blocks =
        ((p.kg + TK - 1) / TK) * ((p.columns + TK - 1) / TK) * c->groups * chunks;
    if (blocks > INT32_MAX) {
        return (int)cudaErrorInvalidConfiguration;
    }
    float *const partial = static_cast<float *>(workspace);
    wgrad_kernel<<<(unsigned)blocks, THREADS, 0, s>>>(p, x, dy, partial);
    add_partials<<<(unsigned)((p.elements + 255) / 256), 256, 0, s>>>(partial, chunks, p.elements,
                                                                      dw);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_column_sum(const float *a, int64_t rows, int64_t columns, float *out,
                                  void *workspace, cudaStream_t s) {
    const int64_t chunks = (rows + ROWS - 1) / ROWS;
    if (chunks > 65535) {
        return (int)cudaErrorInvalidConfiguration;
    }
    float *const partial = static_cast<float *>(workspace);
    column_sum_kernel<<<dim3((unsigned)((columns + 31) / 32), (unsigned)chunks), dim3(32, 8), 0,
                        s>>>(a, rows, columns, partial);
    add_partials<<<(unsigned)((columns + 255) / 256), 256, 0, s>>>(partial, chunks, columns, out);
    return (int)cudaGetLastError();
}
