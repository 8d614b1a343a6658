/* Weight gradient: dw[k][l] = sum over pixels p of dy[p][k] * window(p)[l].
 *
 * Sums are blocked, in an order fixed by the shape: over the pixels of a tile in registers, over
 * the tiles of a chunk of the batch in memory, then over the chunks by index. One running fp32 sum
 * would stop growing at 2^24 equal terms. */
#include "kernels/cpu/im2win.h"
#include <string.h>

#define CHUNKS 32
#define FEWEST_CHUNKS 4
#define CHUNKS_FLOATS (16 << 20) /* all partial sums, about: 64 MiB */

struct wgrad {
    struct dr_windows v;
    struct dr_tiling tiling;
    const struct dr_tiles *tiles;
    int64_t channels, window, filters, panels; /* of a group; depthwise: one channel, all filters */
    int64_t partial_floats;
    const float *dy;
    float *buffers, *packed, *partial; // [chunks][...]
    float *dw;
};

/* The chunks are the tiling's slots, fewer where dw is large. */
static struct wgrad plan(const struct dr_conv *s) {
    const bool depthwise = dr_conv_is_depthwise(s);
    const int64_t groups = depthwise ? 1 : s->groups;
    struct wgrad g = {
        .v = {.n = s->n,
              .h = s->h,
              .w = s->w,
              .c = s->c,
              .groups = groups,
              .depthwise = depthwise,
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
              .out_w = s->k},
        .channels = s->c / s->groups,
        .window = dr_mul(dr_mul(s->kh, s->kw), s->c / s->groups),
        .filters = s->k / groups,
    };
    g.tiling = dr_windows_tiling(&g.v);
    g.partial_floats = dr_panel_floats(groups, g.filters, g.window);
    const int64_t chunks = dr_max(CHUNKS_FLOATS / g.partial_floats, FEWEST_CHUNKS);
    g.tiling.slots = dr_min(dr_min(chunks, CHUNKS), g.tiling.slots);
    return g;
}

int64_t dr_conv_wgrad_workspace(const struct dr_conv *s) {
    const struct wgrad g = plan(s);
    const int64_t chunk =
        dr_add(dr_add(g.tiling.window_floats, DR_TILE_PIXELS * DR_PANEL), g.partial_floats);
    return dr_mul(dr_mul(g.tiling.slots, chunk), (int64_t)sizeof(float));
}

/* Pointers to each pixel's gradients of one panel; copied out where the panel is not full, since
 * the tile reads whole vectors. */
static void panel_of_dy(const struct wgrad *g, int pixels, const int64_t *at, int64_t first,
                        int lanes, float *packed, const float **b) {
    const int nr = g->tiles->nr;
    for (int p = 0; p < pixels; p++) {
        const float *from = g->dy + at[p] + first;
        b[p] = from;
        if (lanes < nr) {
            b[p] = packed + (int64_t)p * nr;
            for (int k = 0; k < nr; k++) {
                packed[(int64_t)p * nr + k] = k < lanes ? from[k] : 0;
            }
        }
    }
}

static void tile_times_panel(const struct wgrad *g, int pixels, const float *const *px,
                             const float *const *b, int lanes, int64_t panel, float *sum) {
    struct dr_tile_wgrad tile = {.lanes = lanes, .a = px, .b = b, .n = pixels};
    tile.pitch = g->v.depthwise ? g->v.c : 0;
    const int64_t blocks = dr_div_up(g->window, g->tiles->rows);
    for (int64_t i = 0, l = 0; i < blocks; i++, l += tile.rows) {
        tile.rows = (int)((g->window - l) / (blocks - i));
        tile.at = g->v.depthwise ? l * tile.pitch + panel * g->tiles->nr : l;
        tile.sum = sum + l * g->tiles->nr;
        g->tiles->wgrad(&tile);
    }
}

static void chunk_sums(void *ctx, size_t chunk) {
    const struct wgrad *g = ctx;
    const struct dr_tiling *t = &g->tiling;
    const float *px[DR_TILE_PIXELS], *b[DR_TILE_PIXELS];
    int64_t at[DR_TILE_PIXELS];
    const int64_t i = (int64_t)chunk;
    const int nr = g->tiles->nr;
    float *buffer = g->buffers + i * t->window_floats;
    float *packed = g->packed + i * DR_TILE_PIXELS * DR_PANEL;
    float *partial = g->partial + i * g->partial_floats;
    memset(partial, 0, (size_t)g->partial_floats * sizeof *partial);
    const int64_t last = t->tiles * (i + 1) / t->slots;
    for (int64_t tile = t->tiles * i / t->slots; tile < last; tile++) {
        for (int64_t group = 0; group < g->v.groups; group++) {
            const int pixels = dr_windows_build(&g->v, t, tile, group, buffer, px, at);
            for (int64_t panel = 0; panel < g->panels; panel++) {
                const int64_t first = group * g->filters + panel * nr;
                const int lanes = (int)dr_min(nr, g->filters - panel * nr);
                panel_of_dy(g, pixels, at, first, lanes, packed, b);
                tile_times_panel(g, pixels, px, b, lanes, panel,
                                 partial + (group * g->panels + panel) * g->window * nr);
            }
        }
    }
}

/* One panel of one group: adds up the chunks and undoes the window order. */
static void reduce_panel(void *ctx, size_t item) {
    const struct wgrad *g = ctx;
    const int64_t nr = g->tiles->nr, cg = g->channels;
    const int64_t panel = (int64_t)item % g->panels, group = (int64_t)item / g->panels;
    const int64_t lanes = dr_min(nr, g->filters - panel * nr);
    float *dw = g->dw + (group * g->filters + panel * nr) * g->window;
    for (int64_t l = 0; l < g->window; l++) {
        float sum[DR_PANEL] = {0};
        const float *from = g->partial + ((int64_t)item * g->window + l) * nr;
        for (int64_t chunk = 0; chunk < g->tiling.slots; chunk++, from += g->partial_floats) {
            for (int64_t k = 0; k < lanes; k++) {
                sum[k] += from[k];
            }
        }
        const int64_t j = l / (g->v.kh * cg), i = l / cg % g->v.kh, c = l % cg;
        for (int64_t k = 0; k < lanes; k++) {
            dw[k * g->window + (i * g->v.kw + j) * cg + c] = sum[k];
        }
    }
}

void dr_conv_wgrad(struct dr_cpu *cpu, const struct dr_tiles *t, const struct dr_conv *s,
                   const float *x, const float *dy, float *dw, void *workspace) {
    struct wgrad g = plan(s);
    const int64_t chunks = g.tiling.slots;
    g.tiles = t;
    g.panels = dr_div_up(g.filters, t->nr);
    g.v.src = x;
    g.dy = dy;
    g.dw = dw;
    g.buffers = workspace;
    g.packed = g.buffers + chunks * g.tiling.window_floats;
    g.partial = g.packed + chunks * DR_TILE_PIXELS * DR_PANEL;
    const double macs = (double)(s->n * s->ho * s->wo) * (double)(g.window * s->k);
    dr_cpu_for(cpu, chunk_sums, &g, (size_t)chunks, macs / 10 / (double)chunks);
    dr_cpu_for(cpu, reduce_panel, &g, (size_t)(g.v.groups * g.panels),
               (double)(g.window * t->nr * (chunks + 4)) / 4);
}
