/* Convolution on CUDA: forward, data gradient, transposed. Each becomes one correlation, or one a
 * phase of the stride, for the fp32 or the Tensor core kernel; what has too many taps for their
 * tables or for shared memory goes to a direct kernel, one thread an output. */
#include "kernels/cuda/conv_corr.cuh"

#include <algorithm>
#include <type_traits>

namespace dr {
namespace {

struct direct {
    dr_conv c;
    bool dgrad;
    dr_epilogue e;
    int64_t total, k_total, kg,
        cg; /* outputs; channels and filters of one group, as the filter has them */
};

template <typename T>
__device__ float direct_fprop(const direct &p, const T *x, const T *w, int64_t image, int64_t oy,
                              int64_t ox, int64_t k) {
    const dr_conv &c = p.c;
    const int64_t group = k / p.kg;
    float acc = 0.0f;
    for (int64_t kw = 0; kw < c.kw; kw++) {
        for (int64_t kh = 0; kh < c.kh; kh++) {
            const int64_t iy = oy * c.sh + kh * c.dh - c.pt, ix = ox * c.sw + kw * c.dw - c.pl;
            const bool inside = iy >= 0 && ix >= 0 && iy < c.h && ix < c.w;
            for (int64_t ch = 0; ch < p.cg; ch++) {
                const float v =
                    inside ? dr_load(x + ((image * c.h + iy) * c.w + ix) * c.c + group * p.cg + ch)
                           : 0.0f;
                acc = fmaf(v, dr_load(w + ((k * c.kh + kh) * c.kw + kw) * p.cg + ch), acc);
            }
        }
    }
    return acc;
}

template <typename T>
__device__ float direct_dgrad(const direct &p, const T *dy, const T *w, int64_t image, int64_t iy,
                              int64_t ix, int64_t channel) {
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
                    inside ? dr_load(dy + ((image * c.ho + oy) * c.wo + ox) * c.k + filter) : 0.0f;
                acc = fmaf(v, dr_load(w + ((filter * c.kh + kh) * c.kw + kw) * p.cg + ch), acc);
            }
        }
    }
    return acc;
}

template <typename T> __global__ void direct_kernel(const direct p, const T *x, const T *w, T *y) {
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    const int64_t width = p.dgrad ? p.c.w : p.c.wo, height = p.dgrad ? p.c.h : p.c.ho;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.total; i += stride) {
        const int64_t k = i % p.k_total, px = i / p.k_total % width;
        const int64_t py = i / p.k_total / width % height, image = i / p.k_total / width / height;
        const float v = p.dgrad ? direct_dgrad(p, x, w, image, py, px, k)
                                : direct_fprop(p, x, w, image, py, px, k);
        dr_store(y + i, dr_finish<T>(p.e, dr_column_of(p.e, k), v, i));
    }
}

int launch_direct(const dr_conv *c, bool dgrad, enum dr_type t, const void *x, const void *w,
                  const dr_epilogue &e, void *y, cudaStream_t s) {
    direct p = {};
    p.c = *c, p.dgrad = dgrad, p.e = e;
    p.k_total = dgrad ? c->c : c->k;
    p.total = dgrad ? c->n * c->h * c->w * c->c : c->n * c->ho * c->wo * c->k;
    p.kg = c->k / c->groups, p.cg = c->c / c->groups;
    const int64_t blocks = std::min<int64_t>((p.total + 127) / 128, 1 << 16);
    return dr_real(t, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        direct_kernel<<<(unsigned)blocks, 128, 0, s>>>(p, (const T *)x, (const T *)w, (T *)y);
        return (int)cudaGetLastError();
    });
}

/* As dr_cuda_conv_few, whichever way it goes. */
bool few(const corr &p) {
    return p.groups > 1 && p.c <= 8 && p.k <= 8 && p.c * p.k <= 32;
}

/* Whichever of the tiled kernels computes in t; *fits is false where it has no tile for p. row: of
 * fp32's tiles, or -1. */
int launch_corr(const corr &p, enum dr_type t, int row, const void *x, const void *w, void *y,
                bool *fits, const dr_cuda *cuda) {
    if (few(p)) {
        const int err = corr_few(p, t, x, w, y, fits, cuda->stream);
        if (err || *fits) {
            return err;
        }
    }
    return t == DR_TYPE_F32 && !cuda->tf32 ? corr_f32(p, row, (const float *)x, (const float *)w,
                                                      (float *)y, fits, cuda->sms, cuda->stream)
                                           : corr_mma(p, t, x, w, y, fits, cuda->stream);
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

corr fprop_corr(const dr_conv *c, const dr_epilogue &e) {
    const int64_t cg = c->c / c->groups, kg = c->k / c->groups;
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
    p.groups = (int)c->groups, p.e = e;
    p.c_total = c->c, p.k_total = c->k;
    p.w_c = 1, p.w_kw = cg, p.w_kh = c->kw * cg, p.w_k = c->kh * c->kw * cg;
    p.w_group = kg * p.w_k;
    p.oy_step = p.ox_step = 1, p.out_h = c->ho, p.out_w = c->wo;
    return p;
}
} // namespace dr

using namespace dr;

static int fprop(const struct dr_conv *c, enum dr_type t, int row, const void *x, const void *w,
                 const struct dr_epilogue *e, void *y, const struct dr_cuda *cuda) {
    int err = cudaSuccess;
    bool fits = small(c);
    if (fits) {
        err = launch_corr(fprop_corr(c, *e), t, row, x, w, y, &fits, cuda);
    }
    return fits || err ? err : launch_direct(c, false, t, x, w, *e, y, cuda->stream);
}
extern "C" int dr_cuda_conv_generic(const struct dr_conv *c, enum dr_type t, const void *x,
                                    const void *w, const struct dr_epilogue *e, void *y,
                                    const struct dr_cuda *cuda) {
    return fprop(c, t, -1, x, w, e, y, cuda);
}
extern "C" int dr_cuda_conv_f32(const struct dr_conv *c, int row, const void *x, const void *w,
                                const struct dr_epilogue *e, void *y, const struct dr_cuda *cuda) {
    return fprop(c, DR_TYPE_F32, row, x, w, e, y, cuda);
}

/* One phase of dx: rows fy, fy + sh, ... and columns fx, fx + sw, ... */
static corr dgrad_phase(const struct dr_conv *c, const dr_epilogue &e, int64_t fy, int64_t fx) {
    const int64_t cg = c->c / c->groups, kg = c->k / c->groups;
    corr p = {};
    p.n = (int)c->n, p.h = (int)c->ho, p.w = (int)c->wo, p.c = (int)kg;
    p.k = (int)cg;
    p.ho = (int)((c->h - fy + c->sh - 1) / c->sh), p.wo = (int)((c->w - fx + c->sw - 1) / c->sw);
    p.sh = p.sw = 1;
    p.ty = phase_taps(c->kh, c->dh, c->sh, c->pt, fy);
    p.tx = phase_taps(c->kw, c->dw, c->sw, c->pl, fx);
    p.groups = (int)c->groups, p.e = e;
    p.c_total = c->k, p.k_total = c->c;
    p.w_k = 1, p.w_kw = cg, p.w_kh = c->kw * cg, p.w_c = c->kh * c->kw * cg;
    p.w_group = kg * p.w_c;
    p.oy_first = (int)fy, p.ox_first = (int)fx, p.oy_step = (int)c->sh, p.ox_step = (int)c->sw;
    p.out_h = c->h, p.out_w = c->w;
    return p;
}

static int dgrad(const struct dr_conv *c, enum dr_type t, int row, const void *dy, const void *w,
                 const struct dr_epilogue *e, void *dx, const struct dr_cuda *cuda) {
    bool fits = small(c) && c->sh * c->sw <= 64;
    int err = cudaSuccess;
    for (int64_t fy = 0; fy < c->sh && fy < c->h && fits && !err; fy++) {
        for (int64_t fx = 0; fx < c->sw && fx < c->w && fits && !err; fx++) {
            err = launch_corr(dgrad_phase(c, *e, fy, fx), t, row, dy, w, dx, &fits, cuda);
        }
    }
    return fits || err ? err : launch_direct(c, true, t, dy, w, *e, dx, cuda->stream);
}
extern "C" int dr_cuda_conv_transpose(const struct dr_conv *c, enum dr_type t, const void *dy,
                                      const void *w, const struct dr_epilogue *e, void *dx,
                                      const struct dr_cuda *cuda) {
    return dgrad(c, t, -1, dy, w, e, dx, cuda);
}
extern "C" int dr_cuda_conv_f32_back(const struct dr_conv *c, int row, const void *dy,
                                     const void *w, const struct dr_epilogue *e, void *dx,
                                     const struct dr_cuda *cuda) {
    return dgrad(c, DR_TYPE_F32, row, dy, w, e, dx, cuda);
}

extern "C" int dr_cuda_conv_dgrad(const struct dr_conv *c, enum dr_type t, const void *dy,
                                  const void *w, void *dx, const struct dr_cuda *cuda) {
    const dr_epilogue none = {};
    return dr_cuda_conv_transpose(c, t, dy, w, &none, dx, cuda);
}
