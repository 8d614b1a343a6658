/* Forward convolution: weights into panels, then one correlation. */
#include "kernels/cpu/im2win.h"

static struct dr_windows windows(const struct dr_conv *s) {
    return (struct dr_windows){
        .n = s->n,
        .h = s->h,
        .w = s->w,
        .c = s->c,
        .groups = dr_conv_is_depthwise(s) ? 1 : s->groups,
        .depthwise = dr_conv_is_depthwise(s),
        .kh = s->kh,
        .kw = s->kw,
        .sh = s->sh,
        .sw = s->sw,
        .dh = s->dh,
        .dw = s->dw,
        .pt = s->pt,
        .pl = s->pl,
        .ho = s->ho,
        .wo = s->wo,
        .out_n = dr_mul(dr_mul(s->ho, s->wo), s->k),
        .out_h = dr_mul(s->wo, s->k),
        .out_w = s->k,
    };
}

/* The convolution that has the same weights in the panels: depthwise weights [k, kh, kw, 1] are
 * those of k filters over one channel. */
static struct dr_conv packed_as(const struct dr_conv *s) {
    struct dr_conv p = *s;
    if (dr_conv_is_depthwise(s)) {
        p.c = p.groups = 1;
    }
    return p;
}

static int64_t weights_floats(const struct dr_conv *s) {
    const struct dr_conv p = packed_as(s);
    return dr_panel_floats(p.groups, p.k / p.groups, dr_mul(dr_mul(p.kh, p.kw), p.c / p.groups));
}

int64_t dr_conv_fprop_workspace(const struct dr_conv *s) {
    const struct dr_windows v = windows(s);
    const struct dr_tiling t = dr_windows_tiling(&v);
    const int64_t floats = dr_add(weights_floats(s), dr_mul(t.slots, t.window_floats));
    return dr_mul(floats, (int64_t)sizeof(float));
}

struct pack {
    const struct dr_conv *s;
    const float *w;
    float *to;
    int nr;
};

/* One panel: [kw][kh][c][nr] of w [k, kh, kw, c]. */
static void pack_panel(void *ctx, size_t item) {
    const struct pack *p = ctx;
    const struct dr_conv *s = p->s;
    const int64_t cg = s->c / s->groups, kg = s->k / s->groups, nr = p->nr;
    const int64_t panels = dr_div_up(kg, nr), group = (int64_t)item / panels;
    const int64_t first = (int64_t)item % panels * nr, lanes = dr_min(nr, kg - first);
    const int64_t window = s->kh * s->kw * cg;
    const float *w = p->w + (group * kg + first) * window;
    float *to = p->to + (int64_t)item * window * nr;
    for (int64_t j = 0; j < s->kw; j++) {
        for (int64_t i = 0; i < s->kh; i++) {
            const float *tap = w + (i * s->kw + j) * cg;
            for (int64_t c = 0; c < cg; c++, to += nr) {
                for (int64_t k = 0; k < nr; k++) {
                    to[k] = k < lanes ? tap[k * window + c] : 0;
                }
            }
        }
    }
}

void dr_conv_fprop(struct dr_cpu *cpu, const struct dr_tiles *t, const struct dr_conv *s,
                   const float *x, const float *w, const struct dr_epilogue *e, float *y,
                   void *workspace) {
    const struct dr_conv p = packed_as(s);
    struct pack pack = {&p, w, workspace, t->nr};
    const int64_t items = p.groups * dr_div_up(p.k / p.groups, t->nr);
    dr_cpu_for(cpu, pack_panel, &pack, (size_t)items,
               (double)(p.kh * p.kw * (p.c / p.groups) * t->nr));
    struct dr_correlation c = {
        .v = windows(s),
        .tiles = t,
        .filters = p.k / p.groups,
        .weights = workspace,
        .epilogue = e,
        .add = e->add,
        .out = y,
        .buffers = (float *)workspace + weights_floats(s),
    };
    c.v.src = x;
    c.tiling = dr_windows_tiling(&c.v);
    dr_correlate(cpu, &c);
}
