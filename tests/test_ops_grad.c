/* Every op that has a gradient: the fp32 forward against a naive reference in double, and its
 * gradient nodes against central differences of that reference.
 *
 * The scalar differentiated is sum(dy * y) with a random dy; of a loss, weight * mean. */
#include "kernels/batch.h"
#include "kernels/philox.h"
#include "tests/fake_harness.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_IN 8

struct operands {
    double *x[MAX_IN]; /* all operands of the node as doubles, in order */
    struct dr_shape s[MAX_IN];
    uint32_t n;
    struct dr_shape y;
    const int *p; /* the case's parameters */
};
typedef void reference(const struct operands *o, double *y);

static int64_t count(const struct dr_shape *s) {
    int64_t n = 1;
    for (uint32_t i = 0; i < s->rank; i++)
        n *= s->dim[i];
    return n;
}
static int64_t last(const struct dr_shape *s) {
    return s->dim[s->rank - 1];
}

/* ---- references ---- */
static void relu_ref(const struct operands *o, double *y) {
    for (int64_t i = 0, n = count(&o->y); i < n; i++)
        y[i] = o->x[0][i] > 0 ? o->x[0][i] : 0;
}
static void tanh_ref(const struct operands *o, double *y) {
    for (int64_t i = 0, n = count(&o->y); i < n; i++)
        y[i] = tanh(o->x[0][i]);
}
static void map_ref(const struct operands *o,
                    double *y) { /* p[0]: which; p[1]: of positive numbers */
    for (int64_t i = 0, n = count(&o->y); i < n; i++) {
        const double a = o->x[0][i], b = o->n > 1 ? o->x[1][i] : 0;
        const double all[] = {a - b,
                              a * b,
                              a / b,
                              fabs(a),
                              sqrt(a),
                              a < -0.5 ? -0.5 : fmin(a, 0.75),
                              fmax(a, -0.25),
                              a > 0 ? a : 0.01 * a,
                              a > 0 ? a : -0.5 * a,
                              1 / (1 + exp(-a)),
                              a / (1 + exp(-a)),
                              a * 0.5 * (1 + erf(a / sqrt(2))),
                              0.5 * a *
                                  (1 + tanh(sqrt(2 / acos(-1)) * (a + 0.044715 * a * a * a)))};
        y[i] = all[o->p[0]];
    }
}
static void add_ref(const struct operands *o, double *y) {
    for (int64_t i = 0, n = count(&o->y); i < n; i++) {
        y[i] = 0;
        for (uint32_t j = 0; j < o->n; j++)
            y[i] += o->x[j][i];
    }
}
static void linear_ref(const struct operands *o, double *y) {
    const int64_t in = last(&o->s[0]), out = last(&o->y), m = count(&o->y) / out;
    for (int64_t r = 0; r < m; r++)
        for (int64_t f = 0; f < out; f++) {
            double s = o->n > 2 ? o->x[2][f] : 0;
            for (int64_t i = 0; i < in; i++)
                s += o->x[0][r * in + i] * o->x[1][f * in + i];
            y[r * out + f] = s;
        }
}
static void flatten_ref(const struct operands *o, double *y) {
    const int64_t *d = o->s[0].dim, h = d[1], w = d[2], c = d[3];
    for (int64_t n = 0; n < d[0]; n++)
        for (int64_t k = 0; k < c; k++)
            for (int64_t i = 0; i < h; i++)
                for (int64_t j = 0; j < w; j++)
                    y[((n * c + k) * h + i) * w + j] = o->x[0][((n * h + i) * w + j) * c + k];
}
static void copy_ref(const struct operands *o, double *y) {
    for (int64_t i = 0, n = count(&o->y); i < n; i++)
        y[i] = o->x[0][i];
}
static void concat_ref(const struct operands *o, double *y) { /* p[0]: the axis */
    const int64_t rank = o->y.rank;
    int64_t before = 1, after = 1;
    for (int64_t i = 0; i < o->p[0]; i++)
        before *= o->y.dim[i];
    for (int64_t i = o->p[0] + 1; i < rank; i++)
        after *= o->y.dim[i];
    for (int64_t b = 0, at = 0; b < before; b++)
        for (uint32_t j = 0; j < o->n; j++)
            for (int64_t i = 0, n = o->s[j].dim[o->p[0]] * after; i < n; i++)
                y[at++] = o->x[j][b * n + i];
}
static void softmax_ref(const struct operands *o, double *y) {
    const int64_t k = last(&o->y);
    for (int64_t r = 0, m = count(&o->y) / k; r < m; r++) {
        double sum = 0;
        for (int64_t j = 0; j < k; j++)
            sum += exp(o->x[0][r * k + j]);
        for (int64_t j = 0; j < k; j++)
            y[r * k + j] = exp(o->x[0][r * k + j]) / sum;
    }
}
static void max_pool_ref(const struct operands *o, double *y) { /* p: kh kw sh sw pt pl */
    const int *p = o->p;
    const int64_t *d = o->s[0].dim, *e = o->y.dim, c = d[3];
    for (int64_t i = 0, n = count(&o->y); i < n; i++) {
        const int64_t k = i % c, wo = i / c % e[2], ho = i / c / e[2] % e[1],
                      b = i / c / e[2] / e[1];
        y[i] = -INFINITY;
        for (int64_t a = 0; a < p[0]; a++)
            for (int64_t q = 0; q < p[1]; q++) {
                const int64_t h = ho * p[2] - p[4] + a, w = wo * p[3] - p[5] + q;
                if (h >= 0 && h < d[1] && w >= 0 && w < d[2])
                    y[i] = fmax(y[i], o->x[0][((b * d[1] + h) * d[2] + w) * c + k]);
            }
    }
}
/* p: kh kw sh sw pt pl pb pr, padding counts; by torch's rule for the divisor */
static void avg_pool_ref(const struct operands *o, double *y) {
    const int *p = o->p;
    const int64_t *d = o->s[0].dim, *e = o->y.dim, c = d[3];
    for (int64_t i = 0, n = count(&o->y); i < n; i++) {
        const int64_t k = i % c, wo = i / c % e[2], ho = i / c / e[2] % e[1],
                      b = i / c / e[2] / e[1];
        double sum = 0;
        int inside = 0, padded = 0;
        for (int64_t a = 0; a < p[0]; a++)
            for (int64_t q = 0; q < p[1]; q++) {
                const int64_t h = ho * p[2] - p[4] + a, w = wo * p[3] - p[5] + q;
                padded += h < d[1] + p[6] && w < d[2] + p[7];
                if (h < 0 || h >= d[1] || w < 0 || w >= d[2])
                    continue;
                inside++;
                sum += o->x[0][((b * d[1] + h) * d[2] + w) * c + k];
            }
        y[i] = sum / (p[8] ? padded : inside);
    }
}
static void global_avg_ref(const struct operands *o, double *y) {
    const int64_t *d = o->s[0].dim, pixels = d[1] * d[2];
    for (int64_t i = 0; i < d[0] * d[3]; i++) {
        y[i] = 0;
        for (int64_t q = 0; q < pixels; q++)
            y[i] += o->x[0][(i / d[3] * pixels + q) * d[3] + i % d[3]] / (double)pixels;
    }
}
/* p[0]: bilinear. Positions in doubles, as torch writes them down. */
static double source(int64_t at, int64_t in, int64_t out, int64_t *lo, int64_t *hi) {
    const double x = fmax(0, ((double)at + 0.5) * (double)in / (double)out - 0.5);
    *lo = (int64_t)floor(x + 1e-9);
    *hi = *lo + 1 < in ? *lo + 1 : *lo;
    return x - (double)*lo;
}
static void upsample_ref(const struct operands *o, double *y) {
    const int64_t *d = o->s[0].dim, *e = o->y.dim, c = d[3];
    for (int64_t i = 0, n = count(&o->y); i < n; i++) {
        const int64_t k = i % c, wo = i / c % e[2], ho = i / c / e[2] % e[1];
        const double *x = o->x[0] + i / c / e[2] / e[1] * d[1] * d[2] * c + k;
        if (!o->p[0]) {
            y[i] = x[(ho * d[1] / e[1] * d[2] + wo * d[2] / e[2]) * c];
            continue;
        }
        int64_t h0, h1, w0, w1;
        const double h = source(ho, d[1], e[1], &h0, &h1), w = source(wo, d[2], e[2], &w0, &w1);
        y[i] = (1 - h) * ((1 - w) * x[(h0 * d[2] + w0) * c] + w * x[(h0 * d[2] + w1) * c]) +
               h * ((1 - w) * x[(h1 * d[2] + w0) * c] + w * x[(h1 * d[2] + w1) * c]);
    }
}
static void slice_ref(const struct operands *o, double *y) { /* p: axis, begin */
    int64_t before = 1, after = 1;
    const int64_t axis = o->p[0], in = o->s[0].dim[axis], out = o->y.dim[axis];
    for (int64_t i = 0; i < axis; i++)
        before *= o->y.dim[i];
    for (int64_t i = axis + 1; i < o->y.rank; i++)
        after *= o->y.dim[i];
    for (int64_t i = 0; i < before * out * after; i++)
        y[i] = o->x[0][(i / after / out * in + i / after % out + o->p[1]) * after + i % after];
}
static void pad_ref(const struct operands *o, double *y) { /* p: top, left, value */
    const int64_t *d = o->s[0].dim, *e = o->y.dim, c = o->y.rank == 4 ? d[3] : 1;
    for (int64_t i = 0, n = count(&o->y); i < n; i++) {
        const int64_t w = i / c % e[2] - o->p[1], h = i / c / e[2] % e[1] - o->p[0];
        const int64_t b = i / c / e[2] / e[1];
        const bool inside = h >= 0 && h < d[1] && w >= 0 && w < d[2];
        y[i] = inside ? o->x[0][((b * d[1] + h) * d[2] + w) * c + i % c] : o->p[2];
    }
}
static void transpose_ref(const struct operands *o, double *y) { /* p: which axis each one was */
    const int64_t *d = o->s[0].dim, *e = o->y.dim;
    for (int64_t i = 0, n = count(&o->y); i < n; i++) {
        int64_t at[DR_MAX_RANK] = {0}, rest = i, from = 0;
        for (int64_t a = o->y.rank - 1; a >= 0; a--, rest /= e[a + 1])
            at[o->p[a]] = rest % e[a];
        for (uint32_t a = 0; a < o->y.rank; a++)
            from = from * d[a] + at[a];
        y[i] = o->x[0][from];
    }
}
static void matmul_ref(const struct operands *o, double *y) {
    const int64_t k = last(&o->s[0]), n = last(&o->y), m = o->y.dim[o->y.rank - 2];
    for (int64_t i = 0; i < count(&o->y); i++) {
        const double *a = o->x[0] + i / n * k, *b = o->x[1] + i / n / m * k * n + i % n;
        y[i] = 0;
        for (int64_t j = 0; j < k; j++)
            y[i] += a[j] * b[j * n];
    }
}
/* p[0]: percent dropped. The rig: seed 1, a node "op", epoch 0, sample i is i. */
static void dropout_ref(const struct operands *o, double *y) {
    const int64_t sample = count(&o->y) / o->y.dim[0];
    const double p = o->p[0] / 100.0;
    for (int64_t i = 0; i < count(&o->y); i++) {
        const uint64_t e = (uint64_t)(i % sample);
        const struct dr_draw d =
            dr_philox(1, dr_hash("op", 2), 0, (uint64_t)(i / sample), (uint32_t)(e / 4));
        y[i] = (double)dr_uniform(d.x[e % 4]) < p ? 0 : o->x[0][i] / (1 - p);
    }
}
static void conv_ref(const struct operands *o, double *y) { /* p: stride dilation top left groups */
    const int *p = o->p;
    const int64_t *d = o->s[0].dim, *f = o->s[1].dim, *e = o->y.dim;
    const int64_t cg = d[3] / p[4], kg = f[0] / p[4];
    for (int64_t i = 0, n = count(&o->y); i < n; i++) {
        const int64_t k = i % e[3], wo = i / e[3] % e[2], ho = i / e[3] / e[2] % e[1];
        const int64_t b = i / e[3] / e[2] / e[1];
        y[i] = o->n > 2 ? o->x[2][k] : 0;
        for (int64_t a = 0; a < f[1]; a++)
            for (int64_t q = 0; q < f[2]; q++) {
                const int64_t h = ho * p[0] - p[2] + a * p[1], w = wo * p[0] - p[3] + q * p[1];
                if (h < 0 || h >= d[1] || w < 0 || w >= d[2])
                    continue;
                for (int64_t c = 0; c < cg; c++)
                    y[i] += o->x[0][((b * d[1] + h) * d[2] + w) * d[3] + k / kg * cg + c] *
                            o->x[1][((k * f[1] + a) * f[2] + q) * cg + c];
            }
    }
}
/* Every pixel adds its filter to the output; p: as conv_ref's */
static void conv_transpose_ref(const struct operands *o, double *y) {
    const int *p = o->p;
    const int64_t *d = o->s[0].dim, *f = o->s[1].dim, *e = o->y.dim;
    const int64_t cg = d[3] / p[4], kg = f[3];
    for (int64_t i = 0, n = count(&o->y); i < n; i++)
        y[i] = o->n > 2 ? o->x[2][i % e[3]] : 0;
    for (int64_t i = 0, n = count(&o->s[0]); i < n; i++) {
        const int64_t c = i % d[3], wi = i / d[3] % d[2], hi = i / d[3] / d[2] % d[1];
        const int64_t b = i / d[3] / d[2] / d[1];
        for (int64_t t = 0, taps = f[1] * f[2]; t < taps; t++) {
            const int64_t h = hi * p[0] + t / f[2] * p[1] - p[2];
            const int64_t w = wi * p[0] + t % f[2] * p[1] - p[3];
            if (h < 0 || h >= e[1] || w < 0 || w >= e[2])
                continue;
            for (int64_t k = 0; k < kg; k++)
                y[((b * e[1] + h) * e[2] + w) * e[3] + c / cg * kg + k] +=
                    o->x[0][i] * o->x[1][(c * taps + t) * kg + k];
        }
    }
}
/* x, weight, bias, running_mean, running_var; p[0]: by the batch's statistics */
static void norm_ref(const struct operands *o, double *y) {
    const int64_t c = last(&o->y), rows = count(&o->y) / c;
    for (int64_t k = 0; k < c; k++) {
        double mean = o->x[3][k], var = o->x[4][k];
        if (o->p[0]) {
            mean = var = 0;
            for (int64_t r = 0; r < rows; r++)
                mean += o->x[0][r * c + k] / (double)rows;
            for (int64_t r = 0; r < rows; r++)
                var += pow(o->x[0][r * c + k] - mean, 2) / (double)rows;
        }
        for (int64_t r = 0; r < rows; r++)
            y[r * c + k] = (o->x[0][r * c + k] - mean) / sqrt(var + 1e-5) * o->x[1][k] + o->x[2][k];
    }
}
static void normalize_ref(const struct operands *o, double *y) {
    static const double mean[] = {0.5, 0.25}, std[] = {2, 0.5};
    for (int64_t i = 0, n = count(&o->y); i < n; i++)
        y[i] = (o->x[0][i] - mean[i % 2]) / std[i % 2];
}
/* logits, target; p: n_valid, ignore, smoothing in percent, weighted */
static const double class_weight[] = {0.5, 2, 1, 3};
static void cross_entropy_ref(const struct operands *o, double *y) {
    const int64_t k = last(&o->s[0]), rows = count(&o->s[1]), sample = rows / o->s[1].dim[0];
    const double s = o->p[2] / 100.0;
    double sum = 0, weights = 0;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t t = (int64_t)o->x[1][r];
        if (r / sample >= o->p[0] || t == o->p[1])
            continue;
        double total = 0;
        for (int64_t j = 0; j < k; j++)
            total += exp(o->x[0][r * k + j]);
        for (int64_t j = 0; j < k; j++) {
            const double share = (j == t ? 1 - s : 0) + s / (double)k;
            sum -= share * (o->p[3] ? class_weight[j] : 1) * log(exp(o->x[0][r * k + j]) / total);
        }
        weights += o->p[3] ? class_weight[t] : 1;
    }
    y[0] = weights > 0 ? sum / weights : 0;
}

/* x, target; p: loss (bce, mse, l1), ignore, 10 pos_weight; p[5]: n_valid */
static void pair_ref(const struct operands *o, double *y) {
    const int64_t n = count(&o->s[0]), valid = n / o->s[0].dim[0] * o->p[5];
    double sum = 0, items = 0;
    for (int64_t i = 0; i < valid; i++) {
        const double x = o->x[0][i], t = o->x[1][i], p = 1 / (1 + exp(-x));
        if (o->p[0] == 0 && t == o->p[1])
            continue;
        const double all[] = {-o->p[2] / 10.0 * t * log(p) - (1 - t) * log(1 - p), pow(x - t, 2),
                              fabs(x - t)};
        sum += all[o->p[0]];
        items += 1;
    }
    y[0] = items > 0 ? sum / items : 0;
}
/* p of class j in a row of logits; of one logit: of class 1 */
static double probability(const double *x, int64_t k, int64_t j) {
    double sum = k == 1 ? 1 + exp(x[0]) : 0;
    for (int64_t i = 0; i < k && k > 1; i++)
        sum += exp(x[i]);
    return exp(x[j]) / sum;
}
/* logits, target; p: ignore, 10 smooth; p[5]: n_valid */
static void dice_ref(const struct operands *o, double *y) {
    const int64_t k = last(&o->s[0]), rows = count(&o->s[1]), per = rows / o->s[1].dim[0];
    double sum = 0, samples = 0;
    for (int64_t n = 0; n < o->p[5]; n++) {
        double loss = 0, seen = 0;
        for (int64_t j = 0; j < k; j++) {
            double both = 0, p = 0, t = 0;
            for (int64_t r = n * per; r < (n + 1) * per; r++) {
                const int64_t class = (int64_t)o->x[1][r];
                if (class == o->p[0])
                    continue;
                const double one = probability(&o->x[0][r * k], k, j);
                const bool own = k == 1 ? class == 1 : class == j;
                both += own * one, p += one, t += own, seen += 1;
            }
            loss += (1 - (2 * both + o->p[1] / 10.0) / (p + t + o->p[1] / 10.0)) / (double)k;
        }
        sum += seen > 0 ? loss : 0;
        samples += seen > 0;
    }
    y[0] = samples > 0 ? sum / samples : 0;
}

/* ---- the cases ---- */
struct grad_case {
    const char *op, *attrs;
    reference *ref;
    int p[9];
    uint32_t n_in;
    struct dr_shape in[3];
    int64_t classes; /* the second input is a target below this (and 255s, where masks) */
    bool spread;     /* distinct values, 0.05 apart: no maximum changes within a difference */
};
#define S2(a, b)                                                                                   \
    {                                                                                              \
        .rank = 2, .dim = { a, b }                                                                 \
    }
#define S3(a, b, c)                                                                                \
    {                                                                                              \
        .rank = 3, .dim = { a, b, c }                                                              \
    }
#define S4(a, b, c, d)                                                                             \
    {                                                                                              \
        .rank = 4, .dim = { a, b, c, d }                                                           \
    }

static const struct grad_case cases[] = {
    {"relu", "{}", relu_ref, {0}, 1, {S4(2, 3, 2, 3)}, 0, true},
    {"tanh", "{}", tanh_ref, {0}, 1, {S2(3, 5)}, 0, false},
    {"add", "{}", add_ref, {0}, 3, {S3(2, 3, 2), S3(2, 3, 2), S3(2, 3, 2)}, 0, false},
    {"sub", "{}", map_ref, {0}, 2, {S3(2, 3, 2), S3(2, 3, 2)}, 0, false},
    {"mul", "{}", map_ref, {1}, 2, {S3(2, 3, 2), S3(2, 3, 2)}, 0, false},
    {"div", "{}", map_ref, {2, 1}, 2, {S3(2, 3, 2), S3(2, 3, 2)}, 0, true},
    {"abs", "{}", map_ref, {3}, 1, {S3(2, 3, 2)}, 0, true},
    {"sqrt", "{}", map_ref, {4, 1}, 1, {S3(2, 3, 2)}, 0, true},
    {"clamp", "{min: -0.5, max: 0.75}", map_ref, {5}, 1, {S3(5, 3, 3)}, 0, true},
    {"clamp", "{min: -0.25}", map_ref, {6}, 1, {S3(5, 3, 3)}, 0, true},
    {"leaky_relu", "{}", map_ref, {7}, 1, {S3(2, 3, 2)}, 0, true},
    {"leaky_relu", "{negative_slope: -0.5}", map_ref, {8}, 1, {S3(2, 3, 2)}, 0, true},
    {"sigmoid", "{}", map_ref, {9}, 1, {S2(3, 7)}, 0, false},
    {"silu", "{}", map_ref, {10}, 1, {S2(3, 7)}, 0, false},
    {"gelu", "{}", map_ref, {11}, 1, {S2(3, 7)}, 0, false},
    {"gelu", "{approximate: tanh}", map_ref, {12}, 1, {S2(3, 7)}, 0, false},
    {"linear", "{features: 4}", linear_ref, {0}, 1, {S2(3, 5)}, 0, false},
    {"linear", "{features: 1, bias: no}", linear_ref, {0}, 1, {S2(33, 2)}, 0, false},
    {"linear", "{features: 35}", linear_ref, {0}, 1, {S4(2, 2, 3, 2)}, 0, false},
    {"flatten", "{}", flatten_ref, {0}, 1, {S4(2, 3, 4, 5)}, 0, false},
    {"flatten", "{}", flatten_ref, {0}, 1, {S4(2, 1, 1, 5)}, 0, false},
    {"flatten", "{}", copy_ref, {0}, 1, {S3(2, 3, 4)}, 0, false},
    {"reshape", "{shape: [2, -1, 3]}", copy_ref, {0}, 1, {S3(2, 3, 4)}, 0, false},
    {"concat", "{}", concat_ref, {3}, 3, {S4(2, 2, 3, 1), S4(2, 2, 3, 4), S4(2, 2, 3, 2)}, 0, 0},
    {"concat", "{axis: 1}", concat_ref, {1}, 2, {S4(2, 2, 3, 2), S4(2, 1, 3, 2)}, 0, false},
    {"softmax", "{}", softmax_ref, {0}, 1, {S3(2, 3, 5)}, 0, false},
    {"max_pool2d", "{kernel: 2}", max_pool_ref, {2, 2, 2, 2, 0, 0}, 1, {S4(2, 4, 5, 3)}, 0, true},
    {"max_pool2d",
     "{kernel: 3, stride: 2, padding: 1}",
     max_pool_ref,
     {3, 3, 2, 2, 1, 1},
     1,
     {S4(1, 5, 6, 2)},
     0,
     true},
    {"max_pool2d",
     "{kernel: [2, 3], stride: 1, padding: {top: 1, left: 0, bottom: 0, right: 1}}",
     max_pool_ref,
     {2, 3, 1, 1, 1, 0},
     1,
     {S4(2, 3, 4, 70)},
     0,
     true},
    {"max_pool2d",
     "{kernel: 3, stride: 2, ceil_mode: yes}",
     max_pool_ref,
     {3, 3, 2, 2, 0, 0},
     1,
     {S4(2, 6, 4, 3)},
     0,
     true},
    {"avg_pool2d",
     "{kernel: 2}",
     avg_pool_ref,
     {2, 2, 2, 2, 0, 0, 0, 0, 1},
     1,
     {S4(2, 4, 5, 3)},
     0,
     0},
    {"avg_pool2d",
     "{kernel: [3, 2], stride: [1, 2], padding: {top: 1, left: 1, bottom: 0, right: 1}}",
     avg_pool_ref,
     {3, 2, 1, 2, 1, 1, 0, 1, 1},
     1,
     {S4(1, 4, 5, 70)},
     0,
     0},
    {"avg_pool2d",
     "{kernel: 3, stride: 2, padding: 1, ceil_mode: yes}",
     avg_pool_ref,
     {3, 3, 2, 2, 1, 1, 1, 1, 1},
     1,
     {S4(2, 6, 4, 2)},
     0,
     0},
    {"avg_pool2d",
     "{kernel: 3, stride: 2, padding: 1, ceil_mode: yes, count_include_pad: no}",
     avg_pool_ref,
     {3, 3, 2, 2, 1, 1, 1, 1, 0},
     1,
     {S4(2, 6, 4, 2)},
     0,
     0},
    {"avg_pool2d",
     "{kernel: 1, stride: 3}",
     avg_pool_ref,
     {1, 1, 3, 3, 0, 0, 0, 0, 1},
     1,
     {S4(1, 5, 4, 1)},
     0,
     0},
    {"global_avg_pool", "{}", global_avg_ref, {0}, 1, {S4(2, 3, 5, 67)}, 0, 0},
    {"global_avg_pool", "{}", global_avg_ref, {0}, 1, {S4(3, 1, 1, 2)}, 0, 0},
    {"upsample", "{scale: 2}", upsample_ref, {0}, 1, {S4(2, 3, 2, 3)}, 0, 0},
    {"upsample", "{size: [7, 2]}", upsample_ref, {0}, 1, {S4(1, 3, 5, 2)}, 0, 0},
    {"upsample", "{scale: [3, 2], mode: bilinear}", upsample_ref, {1}, 1, {S4(2, 3, 2, 67)}, 0, 0},
    {"upsample", "{size: [5, 7], mode: bilinear}", upsample_ref, {1}, 1, {S4(1, 4, 3, 2)}, 0, 0},
    {"upsample", "{size: [2, 3], mode: bilinear}", upsample_ref, {1}, 1, {S4(1, 7, 10, 1)}, 0, 0},
    {"upsample", "{size: [4, 1], mode: bilinear}", upsample_ref, {1}, 1, {S4(1, 1, 4, 3)}, 0, 0},
    {"slice", "{begin: 1, end: 3}", slice_ref, {3, 1}, 1, {S4(2, 2, 3, 5)}, 0, 0},
    {"slice", "{axis: 1, begin: -2}", slice_ref, {1, 3}, 1, {S4(2, 5, 3, 2)}, 0, 0},
    {"slice", "{axis: -2, end: -1}", slice_ref, {2, 0}, 1, {S4(2, 2, 4, 3)}, 0, 0},
    {"pad",
     "{padding: {top: 1, left: 2, bottom: 0, right: 3}, value: -4}",
     pad_ref,
     {1, 2, -4},
     1,
     {S4(2, 3, 2, 3)},
     0,
     0},
    {"pad", "{padding: 1}", pad_ref, {1, 1, 0}, 1, {S3(2, 3, 2)}, 0, 0},
    {"transpose", "{axes: [3, 1, 2]}", transpose_ref, {0, 3, 1, 2}, 1, {S4(2, 3, 4, 5)}, 0, 0},
    {"transpose", "{axes: [2, 1, 3]}", transpose_ref, {0, 2, 1, 3}, 1, {S4(2, 3, 4, 5)}, 0, 0},
    {"transpose", "{axes: [3, 2, 1]}", transpose_ref, {0, 3, 2, 1}, 1, {S4(2, 3, 4, 5)}, 0, 0},
    {"transpose", "{axes: [1, 2]}", transpose_ref, {0, 1, 2}, 1, {S3(2, 3, 4)}, 0, 0},
    {"transpose",
     "{axes: [3, 1, 4, 2]}",
     transpose_ref,
     {0, 3, 1, 4, 2},
     1,
     {{.rank = 5, .dim = {2, 3, 4, 2, 5}}},
     0,
     0},
    {"matmul", "{}", matmul_ref, {0}, 2, {S3(2, 3, 5), S3(2, 5, 4)}, 0, 0},
    {"matmul", "{}", matmul_ref, {0}, 2, {S4(2, 3, 130, 2), S4(2, 3, 2, 3)}, 0, 0},
    {"matmul", "{}", matmul_ref, {0}, 2, {S3(3, 1, 2), S3(3, 2, 1)}, 0, 0},
    {"dropout", "{}", dropout_ref, {50}, 1, {S4(3, 3, 2, 5)}, 0, 0},
    {"dropout", "{p: 0.25}", dropout_ref, {25}, 1, {S2(5, 7)}, 0, 0},
    {"dropout", "{p: 0}", dropout_ref, {0}, 1, {{.rank = 1, .dim = {3}}}, 0, 0},
    {"conv2d",
     "{filters: 4, kernel: 3, padding: 1}",
     conv_ref,
     {1, 1, 1, 1, 1},
     1,
     {S4(2, 4, 5, 3)},
     0,
     0},
    {"conv2d",
     "{filters: 4, kernel: [2, 3], stride: 2, dilation: 2, groups: 2, bias: no, padding: {top: 2, "
     "left: 1, bottom: 0, right: 3}}",
     conv_ref,
     {2, 2, 2, 1, 2},
     1,
     {S4(2, 6, 7, 4)},
     0,
     false},
    {"conv_transpose2d",
     "{filters: 4, kernel: 2, stride: 2}",
     conv_transpose_ref,
     {2, 1, 0, 0, 1},
     1,
     {S4(2, 3, 4, 3)},
     0,
     false},
    {"conv_transpose2d",
     "{filters: 3, kernel: 3, stride: 2, padding: 1, output_padding: 1, bias: no}",
     conv_transpose_ref,
     {2, 1, 1, 1, 1},
     1,
     {S4(1, 4, 3, 5)},
     0,
     false},
    {"conv_transpose2d",
     "{filters: 6, kernel: [2, 3], stride: 3, dilation: 2, groups: 2, output_padding: [2, 0], "
     "padding: {top: 2, left: 1, bottom: 0, right: 3}}",
     conv_transpose_ref,
     {3, 2, 2, 1, 2},
     1,
     {S4(2, 3, 4, 4)},
     0,
     false},
    {"conv_transpose2d", /* more output_padding than stride */
     "{filters: 3, kernel: 2, dilation: 4, groups: 3, output_padding: 3}",
     conv_transpose_ref,
     {1, 4, 0, 0, 3},
     1,
     {S4(1, 2, 3, 3)},
     0,
     false},
    {"batch_norm", "{}", norm_ref, {1}, 1, {S4(3, 2, 2, 3)}, 0, false},
    {"batch_norm", "{}", norm_ref, {1}, 1, {S2(5, 2)}, 0, false},
    {"batch_norm_infer", "{}", norm_ref, {0}, 1, {S4(3, 2, 2, 3)}, 0, false},
    {"normalize",
     "{mean: [0.5, 0.25], std: [2, 0.5]}",
     normalize_ref,
     {0},
     1,
     {S4(2, 3, 2, 2)},
     0,
     0},
    {"cross_entropy",
     "{}",
     cross_entropy_ref,
     {2, -100, 0, 0},
     2,
     {S2(3, 4), {.rank = 1, .dim = {3}}},
     4,
     0},
    {"cross_entropy",
     "{ignore_index: 1, label_smoothing: 0.1, class_weights: [0.5, 2, 1, 3]}",
     cross_entropy_ref,
     {2, 1, 10, 1},
     2,
     {S4(2, 2, 3, 4), S3(2, 2, 3)},
     4,
     false},
    {"bce", "{}", pair_ref, {0, -1, 10, 0, 0, 2}, 2, {S2(3, 1), {.rank = 1, .dim = {3}}}, 2, false},
    {"bce", "{}", pair_ref, {0, -9, 10, 0, 0, 3}, 2, {S3(3, 2, 2), S3(3, 2, 2)}, 0, false},
    {"bce",
     "{pos_weight: 2.5}",
     pair_ref,
     {0, -9, 25, 0, 0, 2},
     2,
     {S3(3, 2, 1), S2(3, 2)},
     2,
     false},
    {"mse", "{}", pair_ref, {1, 0, 0, 0, 0, 2}, 2, {S3(3, 2, 2), S3(3, 2, 2)}, 0, false},
    {"mse", "{}", pair_ref, {1, 0, 0, 0, 0, 3}, 2, {S2(3, 2), S3(3, 2, 1)}, 5, false},
    {"l1", "{}", pair_ref, {2, 0, 0, 0, 0, 2}, 2, {S3(3, 2, 2), S3(3, 2, 2)}, 0, false},
    {"dice", "{}", dice_ref, {-100, 10, 0, 0, 0, 2}, 2, {S3(3, 5, 4), S2(3, 5)}, 4, false},
    {"dice",
     "{smooth: 0, ignore_index: 1}",
     dice_ref,
     {1, 0, 0, 0, 0, 3},
     2,
     {S4(3, 2, 3, 3), S3(3, 2, 3)},
     3,
     false},
    {"dice", "{}", dice_ref, {-100, 10, 0, 0, 0, 3}, 2, {S4(3, 2, 3, 1), S3(3, 2, 3)}, 2, false},
};

static uint64_t state;
static double uniform(void) { /* -1 .. 1 */
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state >> 11) * 0x1p-52 - 1.0;
}

static void fill(float *x, int64_t n, bool spread) {
    for (int64_t i = 0; i < n; i++)
        x[i] = spread ? 0.05f * (float)(i - n / 2) + 0.02f : (float)(2 * uniform());
    for (int64_t i = n - 1; spread && i > 0; i--) { /* Fisher-Yates */
        const int64_t j = (int64_t)((uniform() + 1) / 2 * (double)(i + 1)) % (i + 1);
        const float t = x[i];
        x[i] = x[j], x[j] = t;
    }
}

/* The node of a case, all its operands set. */
static uint32_t build(struct rig *r, const struct grad_case *c) {
    uint32_t in[MAX_IN];
    rig_header(r, 0,
               c->ref == cross_entropy_ref ? (uint32_t)c->p[0]
               : c->p[5]                   ? (uint32_t)c->p[5]
                                           : (uint32_t)c->in[0].dim[0]);
    for (uint32_t i = 0; i < c->n_in; i++) {
        char name[] = "x0";
        name[1] = (char)('0' + i);
        if (i == 1 && c->classes) {
            in[i] = rig_input(r, name, DR_I32, c->in[i], DR_LABEL, NULL);
            rig_set(r, in[i], NULL);
            for (int64_t k = 0; k < count(&c->in[i]); k++)
                ((int32_t *)r->at[in[i]])[k] = (int32_t)(k * 7 % c->classes);
        } else {
            in[i] = rig_floats(r, name, c->in[i], NULL);
            rig_set(r, in[i], NULL);
            fill(rig_f32(r, in[i]), count(&c->in[i]), c->spread);
            for (int64_t k = 0; c->ref == map_ref && c->p[1] && k < count(&c->in[i]); k++)
                rig_f32(r, in[i])[k] = fabsf(rig_f32(r, in[i])[k]) + 0.5f;
        }
    }
    const uint32_t n = rig_op(r, "op", c->op, c->attrs, in, c->n_in);
    cr_assert_neq(n, DR_NONE, "%s %s: %s", c->op, c->attrs, rig_text(r));
    for (uint32_t i = 0; i < r->g->node.at[n].n_in; i++) {
        const uint32_t v = rig_in(r, n, i);
        if (r->g->value.at[v].kind != DR_STATE)
            continue;
        rig_set(r, v, NULL);
        fill(rig_f32(r, v), rig_elements(r, v), false);
        for (int64_t k = 0; i == 4 && k < rig_elements(r, v); k++) /* a variance */
            rig_f32(r, v)[k] = fabsf(rig_f32(r, v)[k]) + 0.5f;
    }
    return n;
}

static struct operands operands_of(const struct rig *r, uint32_t node, const struct grad_case *c) {
    const struct dr_node *n = &r->g->node.at[node];
    struct operands o = {.n = n->n_in, .y = r->g->value.at[n->out[0]].shape, .p = c->p};
    cr_assert_leq(o.n, MAX_IN);
    for (uint32_t i = 0; i < o.n; i++) {
        const struct dr_value *v = &r->g->value.at[n->in[i]];
        o.s[i] = v->shape;
        o.x[i] = calloc((size_t)count(&v->shape), sizeof(double));
        for (int64_t k = 0; k < count(&v->shape); k++)
            o.x[i][k] = v->dtype == DR_F32   ? ((float *)r->at[n->in[i]])[k]
                        : v->dtype == DR_I32 ? ((int32_t *)r->at[n->in[i]])[k]
                                             : 0;
    }
    return o;
}

static double objective(const struct operands *o, reference *ref, const float *dy, double weight,
                        double *y) {
    ref(o, y);
    double sum = 0;
    for (int64_t i = 0, n = count(&o->y); i < n; i++)
        sum += y[i] * (dy ? dy[i] : weight);
    return sum;
}

static void check_near(double got, double want, const struct grad_case *c, const char *what,
                       uint32_t input, int64_t at) {
    cr_assert(fabs(got - want) <= 2e-5 + 1e-4 * fabs(want),
              "%s %s: %s of input %u at %lld: %g, not %g", c->op, c->attrs, what, input,
              (long long)at, got, want);
}

static void check_case(const struct grad_case *c) {
    state = 11;
    struct rig r = rig_create(c->in[0].dim[0]);
    const uint32_t node = build(&r, c);
    const bool loss = r.g->node.at[node].op->flags & DR_OP_LOSS;
    const double weight = 0.7;
    const uint32_t n_out = r.g->node.at[node].n_out, y = rig_out(&r, node, 0);
    uint32_t dy[MAX_IN] = {DR_NONE, DR_NONE, DR_NONE}, dx[MAX_IN];
    bool need[MAX_IN] = {false};
    cr_assert_leq(n_out, 3);
    if (!loss) {
        dy[0] = rig_floats(&r, "dy", r.g->value.at[y].shape, NULL);
        rig_set(&r, dy[0], NULL);
        fill(rig_f32(&r, dy[0]), rig_elements(&r, dy[0]), false);
    }
    for (uint32_t i = 0; i < r.g->node.at[node].n_in; i++) {
        const struct dr_value *v = &r.g->value.at[rig_in(&r, node, i)];
        need[i] = v->dtype == DR_F32 && (v->kind == DR_STEP || v->cls == DR_WEIGHT);
    }
    rig_grad(&r, node, dy, need, weight, dx);
    rig_run(&r);

    struct operands o = operands_of(&r, node, c);
    double *t = calloc((size_t)count(&o.y), sizeof *t);
    c->ref(&o, t);
    for (int64_t i = 0; i < count(&o.y); i++)
        check_near(rig_f32(&r, y)[i], t[i], c, "forward", 0, i);
    for (uint32_t i = 0; i < o.n; i++) {
        cr_assert_eq(dx[i] != DR_NONE, need[i], "%s: gradient of input %u", c->op, i);
        for (int64_t k = 0; need[i] && k < count(&o.s[i]); k++) {
            const double x = o.x[i][k], h = 1e-5;
            o.x[i][k] = x + h;
            const double up = objective(&o, c->ref, loss ? NULL : rig_f32(&r, dy[0]), weight, t);
            o.x[i][k] = x - h;
            const double down = objective(&o, c->ref, loss ? NULL : rig_f32(&r, dy[0]), weight, t);
            o.x[i][k] = x;
            check_near(rig_f32(&r, dx[i])[k], (up - down) / (2 * h), c, "gradient", i, k);
        }
    }
    for (uint32_t i = 0; i < o.n; i++)
        free(o.x[i]);
    free(t);
    rig_free(&r);
}

Test(ops_grad, finite_differences) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_case(&cases[i]);
}

/* A gradient that is not asked for is not made. */
Test(ops_grad, only_what_is_needed) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct grad_case *c = &cases[i];
        state = 3;
        struct rig r = rig_create(c->in[0].dim[0]);
        const uint32_t node = build(&r, c), y = rig_out(&r, node, 0);
        uint32_t dy[MAX_IN] = {DR_NONE, DR_NONE, DR_NONE}, dx[MAX_IN];
        const bool need[MAX_IN] = {false};
        dy[0] = rig_floats(&r, "dy", r.g->value.at[y].shape, NULL);
        const uint32_t before = r.g->node.n;
        rig_grad(&r, node, dy, need, 1, dx);
        cr_assert_eq(r.g->node.n, before, "%s", c->op);
        rig_free(&r);
    }
}

/* No op with a gradient is missing from the table above. */
Test(ops_grad, every_op_is_covered) {
    for (uint32_t i = 0; i < dr_ops()->n; i++) {
        const struct dr_op *op = dr_ops()->op[i];
        bool found = !op->grad;
        for (size_t j = 0; j < sizeof cases / sizeof cases[0] && !found; j++)
            found = strcmp(cases[j].op, op->name) == 0;
        cr_assert(found || strcmp(op->name, "random_flip") == 0, "%s has no gradient test",
                  op->name);
    }
}
