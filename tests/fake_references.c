/* The references of fake_references.h. */
#include "tests/fake_references.h"
#include "kernels/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t ref_count(const struct dr_shape *s) {
    int64_t n = 1;
    for (uint32_t i = 0; i < s->rank; i++)
        n *= s->dim[i];
    return n;
}
static int64_t last(const struct dr_shape *s) {
    return s->dim[s->rank - 1];
}

void ref_relu(const struct operands *o, double *y) {
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++)
        y[i] = o->x[0][i] > 0 ? o->x[0][i] : 0;
}
void ref_tanh(const struct operands *o, double *y) {
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++)
        y[i] = tanh(o->x[0][i]);
}
void ref_map(const struct operands *o, double *y) { /* p[0]: which; p[1]: of positive numbers */
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++) {
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
void ref_add(const struct operands *o, double *y) {
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++) {
        y[i] = 0;
        for (uint32_t j = 0; j < o->n; j++)
            y[i] += o->x[j][i];
    }
}
void ref_linear(const struct operands *o, double *y) {
    const int64_t in = last(&o->s[0]), out = last(&o->y), m = ref_count(&o->y) / out;
    for (int64_t r = 0; r < m; r++)
        for (int64_t f = 0; f < out; f++) {
            double s = o->n > 2 ? o->x[2][f] : 0;
            for (int64_t i = 0; i < in; i++)
                s += o->x[0][r * in + i] * o->x[1][f * in + i];
            y[r * out + f] = s;
        }
}
void ref_flatten(const struct operands *o, double *y) {
    const int64_t *d = o->s[0].dim, h = d[1], w = d[2], c = d[3];
    for (int64_t n = 0; n < d[0]; n++)
        for (int64_t k = 0; k < c; k++)
            for (int64_t i = 0; i < h; i++)
                for (int64_t j = 0; j < w; j++)
                    y[((n * c + k) * h + i) * w + j] = o->x[0][((n * h + i) * w + j) * c + k];
}
void ref_copy(const struct operands *o, double *y) {
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++)
        y[i] = o->x[0][i];
}
void ref_concat(const struct operands *o, double *y) { /* p[0]: the axis */
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
void ref_softmax(const struct operands *o, double *y) {
    const int64_t k = last(&o->y);
    for (int64_t r = 0, m = ref_count(&o->y) / k; r < m; r++) {
        double sum = 0;
        for (int64_t j = 0; j < k; j++)
            sum += exp(o->x[0][r * k + j]);
        for (int64_t j = 0; j < k; j++)
            y[r * k + j] = exp(o->x[0][r * k + j]) / sum;
    }
}
void ref_max_pool(const struct operands *o, double *y) { /* p: kh kw sh sw pt pl */
    const int *p = o->p;
    const int64_t *d = o->s[0].dim, *e = o->y.dim, c = d[3];
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++) {
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
void ref_avg_pool(const struct operands *o, double *y) {
    const int *p = o->p;
    const int64_t *d = o->s[0].dim, *e = o->y.dim, c = d[3];
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++) {
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
void ref_global_avg(const struct operands *o, double *y) {
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
void ref_upsample(const struct operands *o, double *y) {
    const int64_t *d = o->s[0].dim, *e = o->y.dim, c = d[3];
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++) {
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
void ref_slice(const struct operands *o, double *y) { /* p: axis, begin */
    int64_t before = 1, after = 1;
    const int64_t axis = o->p[0], in = o->s[0].dim[axis], out = o->y.dim[axis];
    for (int64_t i = 0; i < axis; i++)
        before *= o->y.dim[i];
    for (int64_t i = axis + 1; i < o->y.rank; i++)
        after *= o->y.dim[i];
    for (int64_t i = 0; i < before * out * after; i++)
        y[i] = o->x[0][(i / after / out * in + i / after % out + o->p[1]) * after + i % after];
}
void ref_pad(const struct operands *o, double *y) { /* p: top, left, value */
    const int64_t *d = o->s[0].dim, *e = o->y.dim, c = o->y.rank == 4 ? d[3] : 1;
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++) {
        const int64_t w = i / c % e[2] - o->p[1], h = i / c / e[2] % e[1] - o->p[0];
        const int64_t b = i / c / e[2] / e[1];
        const bool inside = h >= 0 && h < d[1] && w >= 0 && w < d[2];
        y[i] = inside ? o->x[0][((b * d[1] + h) * d[2] + w) * c + i % c] : o->p[2];
    }
}
void ref_transpose(const struct operands *o, double *y) { /* p: which axis each one was */
    const int64_t *d = o->s[0].dim, *e = o->y.dim;
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++) {
        int64_t at[DR_MAX_RANK] = {0}, rest = i, from = 0;
        for (int64_t a = o->y.rank - 1; a >= 0; a--, rest /= e[a + 1])
            at[o->p[a]] = rest % e[a];
        for (uint32_t a = 0; a < o->y.rank; a++)
            from = from * d[a] + at[a];
        y[i] = o->x[0][from];
    }
}
void ref_matmul(const struct operands *o, double *y) {
    const int64_t k = last(&o->s[0]), n = last(&o->y), m = o->y.dim[o->y.rank - 2];
    for (int64_t i = 0; i < ref_count(&o->y); i++) {
        const double *a = o->x[0] + i / n * k, *b = o->x[1] + i / n / m * k * n + i % n;
        y[i] = 0;
        for (int64_t j = 0; j < k; j++)
            y[i] += a[j] * b[j * n];
    }
}
/* p[0]: percent dropped. The rig: seed 1, a node "op", epoch 0, sample i is i. */
void ref_dropout(const struct operands *o, double *y) {
    const int64_t sample = ref_count(&o->y) / o->y.dim[0];
    const double p = o->p[0] / 100.0;
    for (int64_t i = 0; i < ref_count(&o->y); i++) {
        const uint64_t e = (uint64_t)(i % sample);
        const struct dr_draw d =
            dr_philox(1, dr_hash("op", 2), 0, (uint64_t)(i / sample), (uint32_t)(e / 4));
        y[i] = (double)dr_uniform(d.x[e % 4]) < p ? 0 : o->x[0][i] / (1 - p);
    }
}
void ref_conv(const struct operands *o, double *y) { /* p: stride dilation top left groups */
    const int *p = o->p;
    const int64_t *d = o->s[0].dim, *f = o->s[1].dim, *e = o->y.dim;
    const int64_t cg = d[3] / p[4], kg = f[0] / p[4];
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++) {
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
/* Every pixel adds its filter to the output; p: as ref_conv's */
void ref_conv_transpose(const struct operands *o, double *y) {
    const int *p = o->p;
    const int64_t *d = o->s[0].dim, *f = o->s[1].dim, *e = o->y.dim;
    const int64_t cg = d[3] / p[4], kg = f[3];
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++)
        y[i] = o->n > 2 ? o->x[2][i % e[3]] : 0;
    for (int64_t i = 0, n = ref_count(&o->s[0]); i < n; i++) {
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
void ref_norm(const struct operands *o, double *y) {
    const int64_t c = last(&o->y), rows = ref_count(&o->y) / c;
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
void ref_normalize(const struct operands *o, double *y) {
    static const double mean[] = {0.5, 0.25}, std[] = {2, 0.5};
    for (int64_t i = 0, n = ref_count(&o->y); i < n; i++)
        y[i] = (o->x[0][i] - mean[i % 2]) / std[i % 2];
}
/* logits, target; p: n_valid, ignore, smoothing in percent, weighted */
static const double class_weight[] = {0.5, 2, 1, 3};
void ref_cross_entropy(const struct operands *o, double *y) {
    const int64_t k = last(&o->s[0]), rows = ref_count(&o->s[1]), sample = rows / o->s[1].dim[0];
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
void ref_pair(const struct operands *o, double *y) {
    const int64_t n = ref_count(&o->s[0]), valid = n / o->s[0].dim[0] * o->p[5];
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
void ref_dice(const struct operands *o, double *y) {
    const int64_t k = last(&o->s[0]), rows = ref_count(&o->s[1]), per = rows / o->s[1].dim[0];
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
