/* im2win: windows of a tile, and the correlation that fprop and dgrad are made of.
 *
 * After Lu, Chu, Guo, Liu, "Im2win: Memory Efficient Convolution on SIMD Architectures" (arXiv
 * 2306.14320): for one output row, the kh x c values that column w of the input contributes lie
 * together, columns follow each other, and so the window of output column wo is the contiguous run
 * of kw * kh * c values that starts at column wo * sw; neighbours overlap, nothing is copied kw
 * times. Dilation: columns are grouped by w mod dw, which makes the taps of a window neighbours
 * again. Windows are built tile by tile into a buffer that stays in the cache, padding included. */
#include "kernels/cpu/im2win.h"
#include "kernels/cpu/epilogue.h"
#include <string.h>

#define PIXELS 128              /* of a tile, about */
#define BUFFER_FLOATS (1 << 18) /* 1 MiB: above it a tile gets narrower, down to ... */
#define FEWEST_COLS 16
#define SLOTS 64
#define SLOTS_FLOATS (8 << 20) /* all window buffers, about: 32 MiB */

static int64_t span(const struct dr_windows *v, int64_t cols) {
    return (cols - 1) * v->sw + (v->kw - 1) * v->dw + 1;
}

static int64_t row_floats(const struct dr_windows *v, int64_t cols) {
    const int64_t columns = dr_mul(v->dw, dr_div_up(span(v, cols), v->dw));
    return dr_mul(columns, dr_mul(v->kh, v->c / v->groups));
}

/* Every window of 1 x 1 taps is a pixel of src, if none lies outside. */
static bool is_direct(const struct dr_windows *v) {
    return !v->depthwise && v->kh == 1 && v->kw == 1 && v->pt == 0 && v->pl == 0 &&
           (v->ho - 1) * v->sh < v->h && (v->wo - 1) * v->sw < v->w;
}

struct dr_tiling dr_windows_tiling(const struct dr_windows *v) {
    struct dr_tiling t = {.rows = 1, .cols = v->wo, .direct = is_direct(v)};
    if (v->wo > DR_TILE_PIXELS) {
        t.cols = dr_div_up(v->wo, dr_div_up(v->wo, PIXELS));
    } else {
        t.rows = dr_min(dr_max(PIXELS / v->wo, 1), dr_mul(v->n, v->ho));
    }
    while (!t.direct && t.rows > 1 && dr_mul(t.rows, row_floats(v, t.cols)) > BUFFER_FLOATS) {
        t.rows = t.rows / 2;
    }
    while (!t.direct && t.cols > FEWEST_COLS && row_floats(v, t.cols) > BUFFER_FLOATS) {
        t.cols = dr_div_up(t.cols, 2);
    }
    t.segments = dr_div_up(v->wo, t.cols);
    t.tiles = dr_mul(dr_div_up(dr_mul(v->n, v->ho), t.rows), t.segments);
    t.phase_cols = dr_div_up(span(v, t.cols), v->dw);
    t.row_floats = t.direct ? 0 : row_floats(v, t.cols);
    t.window_floats = dr_mul(t.rows, t.row_floats);
    if (v->depthwise) { /* tiles load whole vectors past the last channel */
        t.window_floats = dr_add(t.window_floats, DR_PANEL);
    }
    t.window_floats = dr_mul(dr_div_up(t.window_floats, 16), 16);
    t.slots = t.window_floats ? dr_max(SLOTS_FLOATS / t.window_floats, SLOTS / 4) : SLOTS;
    t.slots = dr_min(dr_min(t.slots, SLOTS), t.tiles);
    return t;
}

/* cols columns of c values each, `from` apart in src (NULL: zeros) and `to` apart in the window. */
static void copy_columns(float *d, int64_t to, const float *s, int64_t from, int64_t cols,
                         int64_t c) {
    if (!s) {
        for (int64_t j = 0; j < cols; j++, d += to) {
            memset(d, 0, (size_t)c * sizeof *d);
        }
    } else if (c == 1) {
        for (int64_t j = 0; j < cols; j++) {
            d[j * to] = s[j * from];
        }
    } else {
        for (int64_t j = 0; j < cols; j++, d += to, s += from) {
            memcpy(d, s, (size_t)c * sizeof *d);
        }
    }
}

/* The first j >= 0 with at + j * step >= bound, at most n. */
static int64_t steps_to(int64_t bound, int64_t at, int64_t step, int64_t n) {
    return at >= bound ? 0 : dr_min(dr_div_up(bound - at, step), n);
}

/* The window row of output row (n, ho) from output column wo on. */
static void build_row(const struct dr_windows *v, const struct dr_tiling *t, int64_t n, int64_t ho,
                      int64_t wo, int64_t group, float *win) {
    const int64_t c = v->c / v->groups, column = v->kh * c, cols = t->phase_cols;
    const int64_t left = wo * v->sw - v->pl;
    for (int64_t i = 0; i < v->kh; i++) {
        const int64_t h = ho * v->sh - v->pt + i * v->dh;
        const bool outside = h < 0 || h >= v->h;
        const float *row = outside ? NULL : v->src + ((n * v->h + h) * v->w) * v->c + group * c;
        for (int64_t phase = 0; phase < v->dw; phase++) {
            float *d = win + phase * cols * column + i * c;
            if (outside) {
                copy_columns(d, column, NULL, 0, cols, c);
                continue;
            }
            const int64_t w = left + phase;
            const int64_t in = steps_to(0, w, v->dw, cols), out = steps_to(v->w, w, v->dw, cols);
            copy_columns(d, column, NULL, 0, in, c);
            if (out > in) {
                copy_columns(d + in * column, column, row + (w + in * v->dw) * v->c, v->dw * v->c,
                             out - in, c);
            }
            copy_columns(d + out * column, column, NULL, 0, cols - out, c);
        }
    }
}

int dr_windows_build(const struct dr_windows *v, const struct dr_tiling *t, int64_t tile,
                     int64_t group, float *buffer, const float **px, int64_t *at) {
    const int64_t c = v->c / v->groups, column = v->kh * c;
    const int64_t wo0 = tile % t->segments * t->cols, wo1 = dr_min(wo0 + t->cols, v->wo);
    const int64_t row0 = tile / t->segments * t->rows, row1 = dr_min(row0 + t->rows, v->n * v->ho);
    int pixels = 0;
    for (int64_t row = row0; row < row1; row++, buffer += t->row_floats) {
        const int64_t n = row / v->ho, ho = row % v->ho;
        if (!t->direct) {
            build_row(v, t, n, ho, wo0, group, buffer);
        }
        for (int64_t wo = wo0; wo < wo1; wo++, pixels++) {
            const int64_t w = (wo - wo0) * v->sw;
            px[pixels] = t->direct ? v->src + ((n * v->h + ho * v->sh) * v->w + wo * v->sw) * v->c +
                                         group * c
                                   : buffer + (w % v->dw * t->phase_cols + w / v->dw) * column;
            at[pixels] = n * v->out_n + ho * v->out_h + wo * v->out_w;
        }
    }
    return pixels;
}

/* What every sum of a panel's filters meets. */
struct columns {
    float bias[DR_PANEL], mean[DR_PANEL], scale[DR_PANEL], shift[DR_PANEL];
};
static void load_columns(const struct dr_epilogue *e, int64_t first, int lanes, struct columns *c) {
    const size_t bytes = (size_t)lanes * sizeof *c->bias;
    memset(c, 0, sizeof *c);
    if (e->bias) {
        memcpy(c->bias, e->bias + first, bytes);
    }
    if (e->norm_var) {
        memcpy(c->mean, e->norm_mean + first, bytes);
        memcpy(c->shift, e->norm_bias + first, bytes);
        dr_cpu_norm_scale(e, first, lanes, c->scale);
    }
}

/* All pixels of a tile times one panel of nr filters. */
static void tile_times_panel(const struct dr_correlation *c, int pixels, const float *const *px,
                             const int64_t *at, int64_t group, int64_t panel) {
    const int nr = c->tiles->nr, act = c->epilogue->act;
    const int64_t window = c->v.kh * c->v.kw * (c->v.depthwise ? 1 : c->v.c / c->v.groups);
    const int64_t first = group * c->filters + panel * nr;
    const int lanes = (int)dr_min(nr, c->filters - panel * nr);
    struct columns column;
    load_columns(c->epilogue, first, lanes, &column);
    float *y[DR_TILE_ROWS];
    const float *add[DR_TILE_ROWS];
    const bool norm = c->epilogue->norm_var != NULL;
    struct dr_tile_fprop tile = {
        .lanes = lanes,
        .at = c->v.depthwise ? panel * nr : 0,
        .pitch = c->v.depthwise ? c->v.c : 0,
        .b = c->weights + (group * dr_div_up(c->filters, nr) + panel) * window * nr,
        .n = window,
        .bias = column.bias,
        .mean = column.mean,
        .scale = norm ? column.scale : NULL,
        .shift = column.shift,
        .add = c->add ? add : NULL,
        .relu = act == 1,
        .y = y,
    };
    const int blocks = (pixels + c->tiles->rows - 1) / c->tiles->rows;
    for (int b = 0, p = 0; b < blocks; b++, p += tile.rows) {
        tile.rows = (pixels - p) / (blocks - b); /* nearly even: 16 is 8 + 8, not 12 + 4 */
        tile.a = px + p;
        for (int i = 0; i < tile.rows; i++) {
            y[i] = c->out + at[p + i] + first;
            add[i] = c->add ? c->add + at[p + i] + first : NULL;
        }
        c->tiles->fprop(&tile);
        for (int i = 0; i < tile.rows && !tile.relu && act; i++) {
            dr_cpu_activate(y[i], lanes, act);
        }
    }
}

static void correlate_slot(void *ctx, size_t slot) {
    const struct dr_correlation *c = ctx;
    const struct dr_tiling *t = &c->tiling;
    const float *px[DR_TILE_PIXELS];
    int64_t at[DR_TILE_PIXELS];
    float *buffer = c->buffers + (int64_t)slot * t->window_floats;
    const int64_t panels = dr_div_up(c->filters, c->tiles->nr), i = (int64_t)slot;
    const int64_t last = t->tiles * (i + 1) / t->slots;
    for (int64_t tile = t->tiles * i / t->slots; tile < last; tile++) {
        for (int64_t group = 0; group < c->v.groups; group++) {
            const int pixels = dr_windows_build(&c->v, t, tile, group, buffer, px, at);
            for (int64_t panel = 0; panel < panels; panel++) {
                tile_times_panel(c, pixels, px, at, group, panel);
            }
        }
    }
}

void dr_correlate(struct dr_cpu *cpu, const struct dr_correlation *c) {
    struct dr_correlation copy = *c;
    const double pixels = (double)c->v.n * (double)c->v.ho * (double)c->v.wo;
    const double macs =
        pixels * (double)(c->v.kh * c->v.kw * (c->v.depthwise ? 1 : c->v.c)) * (double)c->filters;
    dr_cpu_for(cpu, correlate_slot, &copy, (size_t)c->tiling.slots,
               macs / 10 / (double)c->tiling.slots); /* 10 multiply-adds a nanosecond */
}
