/* What nodes shall give, in double: products, with what the fuse pass has them do. */
#include "kernels/cpu/conv_ref.h"
#include "ops/common.h"
#include "tests/fake_cuda_lab.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double activated(double v, int act) {
    switch (act) {
    case DR_ACT_RELU:
        return v <= 0 ? 0 : v;
    case DR_ACT_TANH:
        return tanh(v);
    case DR_ACT_SIGMOID:
        return 1 / (1 + exp(-v));
    case DR_ACT_LEAKY_RELU:
        return v > 0 ? v : v * 0.01;
    case DR_ACT_GELU:
        return v * 0.5 * erfc(-v * sqrt(0.5));
    case DR_ACT_SILU:
        return v / (1 + exp(-v));
    default:
        return v;
    }
}

struct dr_fused lab_fused(const struct dr_node *n) {
    const bool fuses = n->op->flags & (DR_OP_FUSES | DR_OP_FUSES_NORM | DR_OP_FUSES_ADD);
    return fuses ? *(const struct dr_fused *)n->attrs : (struct dr_fused){0};
}
/* Its inputs but for those that follow from that. */
static uint32_t own_inputs(const struct dr_node *n) {
    const struct dr_fused f = lab_fused(n);
    return n->n_in - (f.norm ? 4 : 0) - (f.add ? 1 : 0);
}

/* Element i of a product with its bias, through norm, add and activation. */
static double finished(const struct lab_case *c, const struct dr_node *n, int64_t i, double v) {
    const struct dr_fused f = lab_fused(n);
    const uint32_t own = own_inputs(n);
    const int64_t k = i % dr_last(&c->r.g->value.at[n->out[0]]);
    if (f.norm) {
        const float *weight = c->r.at[n->in[own]], *bias = c->r.at[n->in[own + 1]];
        const float *mean = c->r.at[n->in[own + 2]], *var = c->r.at[n->in[own + 3]];
        v = (v - mean[k]) / sqrt(var[k] + f.eps) * weight[k] + bias[k];
    }
    if (f.add) {
        v += ((const float *)c->r.at[n->in[n->n_in - 1]])[i];
    }
    return activated(v, f.activation);
}

/* x [m, in], w [out, in], b [out] or NULL -> y [m, out]; and its gradients. */
static void linear_ref(int64_t m, int64_t in, int64_t out, const float *x, const float *w,
                       const float *b, double *y) {
    for (int64_t i = 0; i < m * out; i++) {
        y[i] = b ? b[i % out] : 0;
        for (int64_t k = 0; k < in; k++) {
            y[i] += (double)x[i / out * in + k] * w[i % out * in + k];
        }
    }
}
static void linear_dgrad_ref(int64_t m, int64_t in, int64_t out, const float *dy, const float *w,
                             double *dx) {
    for (int64_t i = 0; i < m * in; i++) {
        dx[i] = 0;
        for (int64_t k = 0; k < out; k++) {
            dx[i] += (double)dy[i / in * out + k] * w[k * in + i % in];
        }
    }
}
static void linear_wgrad_ref(int64_t m, int64_t in, int64_t out, const float *x, const float *dy,
                             double *dw) {
    memset(dw, 0, (size_t)(out * in) * sizeof *dw);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t k = 0; k < out * in; k++) {
            dw[k] += (double)dy[i * out + k / in] * x[i * in + k % in];
        }
    }
}
static void column_sums_ref(int64_t m, int64_t out, const float *dy, double *db) {
    memset(db, 0, (size_t)out * sizeof *db);
    for (int64_t i = 0; i < m * out; i++) {
        db[i % out] += dy[i];
    }
}

/* Output 0 from these operands, without activation, of a node whose reference is not its CPU
 * launcher; false for the others. */
static bool refer(const struct lab_case *c, const struct dr_node *n, float *const *in, double *y) {
    const struct dr_value *v = c->r.g->value.at, *a = &v[n->in[0]];
    const struct dr_value *b = n->n_in > 1 ? &v[n->in[1]] : a;
    const char *op = n->op->name;
    const int64_t last = dr_last(a), m = dr_elements(a) / last;
    if (strcmp(op, "conv2d") == 0) {
        dr_conv_ref_fprop(c->conv, in[0], in[1], in[2], y);
    } else if (strcmp(op, "conv2d_dgrad") == 0) {
        dr_conv_ref_dgrad(c->conv, in[0], in[1], y);
    } else if (strcmp(op, "conv2d_wgrad") == 0) {
        dr_conv_ref_wgrad(c->conv, in[0], in[1], y);
    } else if (strcmp(op, "conv_transpose2d") == 0) {
        dr_conv_ref_dgrad(c->conv, in[0], in[1], y);
        for (int64_t i = 0, k = c->conv->c, all = c->conv->n * c->conv->h * c->conv->w * k;
             i < all && in[2]; i++) {
            y[i] += in[2][i % k];
        }
    } else if (strcmp(op, "conv_transpose2d_dgrad") == 0) {
        dr_conv_ref_fprop(c->conv, in[0], in[1], NULL, y);
    } else if (strcmp(op, "conv_transpose2d_wgrad") == 0) {
        dr_conv_ref_wgrad(c->conv, in[1], in[0], y);
    } else if (strcmp(op, "linear") == 0) {
        linear_ref(m, last, b->shape.dim[0], in[0], in[1], in[2], y);
    } else if (strcmp(op, "linear_dgrad") == 0) {
        linear_dgrad_ref(m, b->shape.dim[1], last, in[0], in[1], y);
    } else if (strcmp(op, "linear_wgrad") == 0) {
        linear_wgrad_ref(m, last, dr_last(b), in[0], in[1], y);
    } else if (strcmp(op, "linear_bgrad") == 0) {
        column_sums_ref(m, last, in[0], y);
    } else {
        return false;
    }
    return true;
}

bool lab_reads_pixels(const struct lab_case *c, const struct dr_node *n) {
    return strcmp(n->op->name, "conv2d") == 0 && c->r.g->value.at[n->in[0]].dtype == DR_U8;
}
bool lab_pools(const struct lab_case *c, const struct dr_node *n) {
    return strcmp(n->op->name, "conv2d") == 0 && c->conv &&
           c->r.g->value.at[n->out[0]].shape.dim[1] != c->conv->ho;
}
/* y of the convolution s becomes the largest of each 2 x 2, none of which is NaN. */
static void pool(const struct dr_conv *s, double *y) {
    const int64_t ho = s->ho / 2, wo = s->wo / 2, row = s->wo * s->k;
    for (int64_t i = 0; i < s->n * ho * wo * s->k; i++) {
        const int64_t k = i % s->k, w = i / s->k % wo, h = i / s->k / wo % ho,
                      n = i / s->k / wo / ho;
        const double *at = y + (n * s->ho + 2 * h) * row + 2 * w * s->k + k;
        y[i] = fmax(fmax(at[0], at[s->k]), fmax(at[row], at[row + s->k]));
    }
}
static float *operand(const struct lab_case *c, const struct dr_node *n, uint32_t i) {
    return i == 0 && lab_reads_pixels(c, n) ? (float *)c->pixels : c->r.at[n->in[i]];
}

double *lab_reference(const struct lab_case *c, const struct dr_node *n, double *size) {
    const bool pools = lab_pools(c, n);
    const int64_t elements = pools      ? c->conv->n * c->conv->ho * c->conv->wo * c->conv->k
                             : n->n_out ? dr_elements(&c->r.g->value.at[n->out[0]])
                                        : 0;
    double *y = malloc((size_t)(elements + 1) * sizeof *y), sum = 0;
    float *in[3] = {0};
    DR_ASSERT(y);
    for (uint32_t i = 0; i < own_inputs(n) && i < 3; i++) {
        in[i] = operand(c, n, i);
    }
    if (!refer(c, n, in, y)) {
        free(y);
        return NULL;
    }
    double *squares = malloc((size_t)(elements + 1) * sizeof *squares);
    DR_ASSERT(squares);
    for (uint32_t i = 0; i < own_inputs(n) && i < 3; i++) {
        const int64_t count = dr_elements(&c->r.g->value.at[n->in[i]]);
        in[i] = malloc((size_t)(count + 1) * sizeof *in[i]);
        DR_ASSERT(in[i]);
        for (int64_t k = 0; k < count; k++) {
            const float x = operand(c, n, i)[k];
            in[i][k] = x * x;
        }
    }
    refer(c, n, in, squares);
    for (int64_t i = 0; i < elements; i++) {
        y[i] = finished(c, n, i, y[i]);
        sum += isfinite(squares[i]) ? squares[i] : 0;
    }
    if (pools) {
        pool(c->conv, y);
    }
    *size = sqrt(sum);
    for (int i = 0; i < 3; i++) {
        free(in[i]);
    }
    free(squares);
    return y;
}
