/* Data gradient: correlations of dy with the flipped weights, one for each phase of the stride.
 *
 * x[h] meets the taps i with h + pt - i * dh = ho * sh. Rows h of one phase, h = first + u * sh,
 * meet the same taps: i = i0 + q * sh / gcd(sh, dh), for which ho = u + base - q * dh / gcd. That
 * is a correlation of stride 1 and dilation dh / gcd over dy with the taps in falling order; no
 * zero is stuffed between the rows of dy and none multiplied. Columns alike. A phase that meets no
 * tap (stride above the kernel) is zeros.
 *
 * The transposed convolution is the same, with an epilogue where the sums are stored. */
#include "kernels/cpu/epilogue.h"
#include "kernels/cpu/im2win.h"
#include <string.h>

struct axis {
    int64_t first, count;    /* positions first + u * stride, u < count */
    int64_t taps, tap, step; /* tap + q * step, q < taps */
    int64_t dilation, pad;
};

static int64_t gcd(int64_t a, int64_t b) {
    return b ? gcd(b, a % b) : a;
}

static struct axis phase(int64_t first, int64_t size, int64_t taps, int64_t stride,
                         int64_t dilation, int64_t pad) {
    const int64_t g = gcd(stride, dilation);
    struct axis a = {.first = first,
                     .count = first < size ? (size - first - 1) / stride + 1 : 0,
                     .step = stride / g,
                     .dilation = dilation / g};
    for (int64_t i = 0; i < dr_min(taps, a.step); i++) {
        const int64_t at = first + pad - i * dilation;
        if (at % stride == 0) {
            a.tap = i;
            a.taps = (taps - 1 - i) / a.step + 1;
            a.pad = (a.taps - 1) * a.dilation - at / stride;
        }
    }
    return a;
}

/* The windows over dy of a phase, as output rows and columns of dx. */
static struct dr_windows windows(const struct dr_conv *s, const struct axis *v,
                                 const struct axis *h) {
    return (struct dr_windows){
        .n = s->n,
        .h = s->ho,
        .w = s->wo,
        .c = s->k,
        .groups = dr_conv_is_depthwise(s) ? 1 : s->groups,
        .depthwise = dr_conv_is_depthwise(s),
        .kh = v->taps,
        .kw = h->taps,
        .sh = 1,
        .sw = 1,
        .dh = v->dilation,
        .dw = h->dilation,
        .pt = v->pad,
        .pl = h->pad,
        .ho = v->count,
        .wo = h->count,
        .out_n = dr_mul(dr_mul(s->h, s->w), s->c),
        .out_h = dr_mul(dr_mul(s->sh, s->w), s->c),
        .out_w = dr_mul(s->sw, s->c),
    };
}

static struct axis rows_of(const struct dr_conv *s, int64_t first) {
    return phase(first, s->h, s->kh, s->sh, s->dh, s->pt);
}
static struct axis cols_of(const struct dr_conv *s, int64_t first) {
    return phase(first, s->w, s->kw, s->sw, s->dw, s->pl);
}

/* How the weights lie in panels: channels are the filters of dgrad, filters its channels.
 * Depthwise, all channels are in one group, each with a filter of its own: `lane` floats apart. */
struct layout {
    int64_t groups, lanes, kg, lane;
};
static struct layout layout(const struct dr_conv *s) {
    if (dr_conv_is_depthwise(s)) {
        return (struct layout){1, s->c, 1, s->kh * s->kw};
    }
    return (struct layout){s->groups, s->c / s->groups, s->k / s->groups, 1};
}

/* Phases share one area of packed weights: the largest counts. */
static int64_t weights_floats(const struct dr_conv *s) {
    const struct layout y = layout(s);
    return dr_panel_floats(y.groups, y.lanes, dr_mul(dr_mul(s->kh, s->kw), y.kg));
}

int64_t dr_conv_dgrad_workspace(const struct dr_conv *s) {
    int64_t buffers = 0;
    for (int64_t i = 0; i < dr_min(s->sh, s->h); i++) {
        for (int64_t j = 0; j < dr_min(s->sw, s->w); j++) {
            const struct axis v = rows_of(s, i), h = cols_of(s, j);
            if (v.taps && h.taps) {
                const struct dr_windows win = windows(s, &v, &h);
                const struct dr_tiling t = dr_windows_tiling(&win);
                buffers = dr_max(buffers, dr_mul(t.slots, t.window_floats));
            }
        }
    }
    return dr_mul(dr_add(weights_floats(s), buffers), (int64_t)sizeof(float));
}

struct work {
    const struct dr_conv *s;
    struct axis v, h;
    const float *w;
    const struct dr_epilogue *e;
    float *to; /* packed weights, or dx */
    int nr;
};

/* One panel: [kw][kh][k][nr] with the taps of this phase in falling order; lanes are channels. */
static void pack_panel(void *ctx, size_t item) {
    const struct work *p = ctx;
    const struct dr_conv *s = p->s;
    const struct layout y = layout(s);
    const int64_t nr = p->nr, cg = s->c / s->groups;
    const int64_t panels = dr_div_up(y.lanes, nr), group = (int64_t)item / panels;
    const int64_t first = (int64_t)item % panels * nr, lanes = dr_min(nr, y.lanes - first);
    const float *w = p->w + group * y.kg * s->kh * s->kw * cg + first * y.lane;
    float *to = p->to + (int64_t)item * p->v.taps * p->h.taps * y.kg * nr;
    for (int64_t j = p->h.taps - 1; j >= 0; j--) {
        for (int64_t i = p->v.taps - 1; i >= 0; i--) {
            const int64_t tap = (p->v.tap + i * p->v.step) * s->kw + p->h.tap + j * p->h.step;
            for (int64_t k = 0; k < y.kg; k++, to += nr) {
                const float *from = w + (k * s->kh * s->kw + tap) * cg;
                for (int64_t c = 0; c < nr; c++) {
                    to[c] = c < lanes ? from[c * y.lane] : 0;
                }
            }
        }
    }
}

/* The pixels of a phase that meets no tap: the epilogue of 0. */
static void fill_image(void *ctx, size_t n) {
    const struct work *p = ctx;
    const struct dr_conv *s = p->s;
    const size_t bytes = (size_t)s->c * sizeof(float);
    for (int64_t h = p->v.first; h < s->h; h += s->sh) {
        for (int64_t w = p->h.first; w < s->w; w += s->sw) {
            const int64_t at = (((int64_t)n * s->h + h) * s->w + w) * s->c;
            float *to = p->to + at;
            if (p->e->bias) {
                memcpy(to, p->e->bias, bytes);
            } else {
                memset(to, 0, bytes);
            }
            dr_cpu_finish(p->e, 1, s->c, p->e->add ? (const float *)p->e->add + at : NULL, to);
        }
    }
}

void dr_conv_transpose(struct dr_cpu *cpu, const struct dr_tiles *t, const struct dr_conv *s,
                       const float *dy, const float *w, const struct dr_epilogue *e, float *dx,
                       void *workspace) {
    const struct layout y = layout(s);
    for (int64_t i = 0; i < dr_min(s->sh, s->h); i++) {
        for (int64_t j = 0; j < dr_min(s->sw, s->w); j++) {
            struct work p = {s, rows_of(s, i), cols_of(s, j), w, e, dx, t->nr};
            if (!p.v.taps || !p.h.taps) {
                dr_cpu_for(cpu, fill_image, &p, (size_t)s->n,
                           (double)(p.v.count * p.h.count * s->c) / 4);
                continue;
            }
            p.to = workspace;
            const int64_t items = y.groups * dr_div_up(y.lanes, t->nr);
            dr_cpu_for(cpu, pack_panel, &p, (size_t)items,
                       (double)(p.v.taps * p.h.taps * y.kg * t->nr) / 4);
            struct dr_correlation c = {
                .v = windows(s, &p.v, &p.h),
                .tiles = t,
                .filters = y.lanes,
                .weights = workspace,
                .epilogue = e,
                .add = e->add ? (const float *)e->add + (i * s->w + j) * s->c : NULL,
                .out = dx + (i * s->w + j) * s->c,
                .buffers = (float *)workspace + weights_floats(s),
            };
            c.v.src = dy;
            c.tiling = dr_windows_tiling(&c.v);
            dr_correlate(cpu, &c);
        }
    }
}

void dr_conv_dgrad(struct dr_cpu *cpu, const struct dr_tiles *t, const struct dr_conv *s,
                   const float *dy, const float *w, float *dx, void *workspace) {
    const struct dr_epilogue none = {0};
    dr_conv_transpose(cpu, t, s, dy, w, &none, dx, workspace);
}
