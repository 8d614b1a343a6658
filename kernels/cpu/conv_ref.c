/* Naive convolutions in double, written from the definition and as far from im2win as can be: one
 * output element at a time, every index worked out anew. */
#include "kernels/cpu/conv_ref.h"

/* x[n, h, w, c], or the zero that surrounds it. */
static double at(const float *x, int64_t n, int64_t h, int64_t w, int64_t c, int64_t dim_h,
                 int64_t dim_w, int64_t dim_c) {
    if (h < 0 || h >= dim_h || w < 0 || w >= dim_w) {
        return 0.0;
    }
    return x[((n * dim_h + h) * dim_w + w) * dim_c + c];
}

static double fprop_one(const struct dr_conv *s, const float *x, const float *w, int64_t n,
                        int64_t ho, int64_t wo, int64_t k) {
    const int64_t cg = s->c / s->groups, group = k / (s->k / s->groups);
    double sum = 0;
    for (int64_t i = 0; i < s->kh; i++) {
        for (int64_t j = 0; j < s->kw; j++) {
            for (int64_t c = 0; c < cg; c++) {
                sum += at(x, n, ho * s->sh + i * s->dh - s->pt, wo * s->sw + j * s->dw - s->pl,
                          group * cg + c, s->h, s->w, s->c) *
                       w[((k * s->kh + i) * s->kw + j) * cg + c];
            }
        }
    }
    return sum;
}

void dr_conv_ref_fprop(const struct dr_conv *s, const float *x, const float *w, const float *bias,
                       double *y) {
    for (int64_t n = 0; n < s->n; n++) {
        for (int64_t ho = 0; ho < s->ho; ho++) {
            for (int64_t wo = 0; wo < s->wo; wo++) {
                for (int64_t k = 0; k < s->k; k++) {
                    *y++ = fprop_one(s, x, w, n, ho, wo, k) + (bias ? bias[k] : 0);
                }
            }
        }
    }
}

/* Every tap through which x[n, h, w, c] reached an output. */
static double dgrad_one(const struct dr_conv *s, const float *dy, const float *w, int64_t n,
                        int64_t h, int64_t x, int64_t c) {
    const int64_t cg = s->c / s->groups, kg = s->k / s->groups, group = c / cg;
    double sum = 0;
    for (int64_t i = 0; i < s->kh; i++) {
        for (int64_t j = 0; j < s->kw; j++) {
            const int64_t up = h + s->pt - i * s->dh, left = x + s->pl - j * s->dw;
            if (up % s->sh != 0 || left % s->sw != 0) {
                continue;
            }
            for (int64_t k = group * kg; k < (group + 1) * kg; k++) {
                sum += at(dy, n, up / s->sh, left / s->sw, k, s->ho, s->wo, s->k) *
                       w[((k * s->kh + i) * s->kw + j) * cg + c % cg];
            }
        }
    }
    return sum;
}

void dr_conv_ref_dgrad(const struct dr_conv *s, const float *dy, const float *w, double *dx) {
    for (int64_t n = 0; n < s->n; n++) {
        for (int64_t h = 0; h < s->h; h++) {
            for (int64_t x = 0; x < s->w; x++) {
                for (int64_t c = 0; c < s->c; c++) {
                    *dx++ = dgrad_one(s, dy, w, n, h, x, c);
                }
            }
        }
    }
}

static double wgrad_one(const struct dr_conv *s, const float *x, const float *dy, int64_t k,
                        int64_t i, int64_t j, int64_t c) {
    double sum = 0;
    for (int64_t n = 0; n < s->n; n++) {
        for (int64_t ho = 0; ho < s->ho; ho++) {
            for (int64_t wo = 0; wo < s->wo; wo++) {
                sum += at(x, n, ho * s->sh + i * s->dh - s->pt, wo * s->sw + j * s->dw - s->pl, c,
                          s->h, s->w, s->c) *
                       dy[((n * s->ho + ho) * s->wo + wo) * s->k + k];
            }
        }
    }
    return sum;
}

void dr_conv_ref_wgrad(const struct dr_conv *s, const float *x, const float *dy, double *dw) {
    const int64_t cg = s->c / s->groups, kg = s->k / s->groups;
    for (int64_t k = 0; k < s->k; k++) {
        for (int64_t i = 0; i < s->kh; i++) {
            for (int64_t j = 0; j < s->kw; j++) {
                for (int64_t c = 0; c < cg; c++) {
                    *dw++ = wgrad_one(s, x, dy, k, i, j, k / kg * cg + c);
                }
            }
        }
    }
}
