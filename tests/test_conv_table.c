/* The tile table of the Hopper convolutions: what a plan says must hold together, whatever the
 * shape (kernels/cuda/conv_table.h). What the kernels make of it is in main_cuda_conv.cu. */
#include "kernels/cuda/conv_table.h"
#include "kernels/cuda/conv_way.h"
#include <criterion/criterion.h>
#include <string.h>

static uint64_t state = 1;
static int below(int n) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)((state >> 33) % (uint64_t)n);
}

static struct dr_conv shape(void) {
    for (;;) {
        struct dr_conv c = {.n = 1 + below(40),
                            .h = 1 + below(60),
                            .w = 1 + below(60),
                            .c = 8 * (1 + below(40)),
                            .k = 8 * (1 + below(70)),
                            .kh = 1 + below(7),
                            .kw = 1 + below(7),
                            .sh = 1 + below(2),
                            .sw = 1 + below(2),
                            .dh = 1 + below(2),
                            .dw = 1 + below(2),
                            .groups = 1};
        if (below(2)) {
            c.kh = c.kw = 3;
            c.sh = c.sw = 1;
        }
        c.pt = below((int)(c.kh * c.dh)), c.pb = below((int)(c.kh * c.dh));
        c.pl = below((int)(c.kw * c.dw)), c.pr = below((int)(c.kw * c.dw));
        const int64_t y = c.h + c.pt + c.pb - (c.kh - 1) * c.dh - 1;
        const int64_t x = c.w + c.pl + c.pr - (c.kw - 1) * c.dw - 1;
        if (y >= 0 && x >= 0) {
            c.ho = y / c.sh + 1, c.wo = x / c.sw + 1;
            return c;
        }
    }
}

static const struct dr_conv_card card = {.arch = 90, .sms = 132, .hopper = true};

/* The row that the cost model takes; NULL: the generic kernels. */
static const struct dr_conv_tile *first_row(const struct dr_conv *c, enum dr_type t, int arch) {
    struct dr_conv_way way[DR_CONV_WAYS];
    struct dr_conv_card on = card;
    int rows;
    on.arch = arch, on.tf32 = t == DR_TYPE_F32;
    dr_cuda_conv_ways(c, t, 0, &on, way);
    return way[0].way == DR_CONV_GENERIC
               ? NULL
               : &dr_cuda_conv_tiles(&rows)[(way[0].way - DR_CONV_FIRST_TILE) / 2];
}

/* Every tap once, in the phase whose pixels it reads, at its place in a patch that holds it. */
static void check_taps(const struct dr_conv *c, const struct dr_conv_plan *p) {
    bool seen[DR_CONV_TAPS] = {false};
    int taps = 0;
    for (int f = 0; f < p->n_phases; f++) {
        const struct dr_conv_phase *ph = &p->phase[f];
        cr_expect_eq(ph->first, taps);
        for (int i = ph->first; i < ph->first + ph->taps; i++, taps++) {
            const struct dr_conv_tap *t = &p->tap[i];
            const int64_t kh = t->weight / c->kw, kw = t->weight % c->kw;
            cr_expect_not(seen[t->weight]);
            seen[t->weight] = true;
            /* row of x that output row 5 reads: by the definition, and by the plan */
            cr_expect_eq(5 * c->sh + kh * c->dh - c->pt,
                         (5 + ph->oy + t->dy) * (int64_t)c->sh + ph->ry);
            cr_expect_eq(5 * c->sw + kw * c->dw - c->pl,
                         (5 + ph->ox + t->dx) * (int64_t)c->sw + ph->rx);
            cr_expect(t->dy >= 0 && t->dx >= 0);
            const bool wl = p->tile->kernel == DR_CONV_WL;
            const int dx = wl && !p->linear ? 0 : t->dx; /* a strip begins at its taps' column */
            cr_expect((p->linear && !wl) || (t->dy + p->th <= p->ph && dx + p->tw <= p->pw));
        }
    }
    cr_expect_eq(taps, c->kh * c->kw);
}

/* WL: each tap is in one strip, that of its column, or (wide) the only one of its phase. */
static void check_strips(const struct dr_conv_plan *p) {
    for (int f = 0; f < p->n_phases; f++) {
        const struct dr_conv_phase *ph = &p->phase[f];
        for (int i = ph->first; i < ph->first + ph->taps; i++) {
            int strips = 0;
            for (int j = ph->first; j <= i; j++) {
                strips +=
                    dr_conv_strip_begins(p, ph, j) && (p->linear || p->tap[j].dx == p->tap[i].dx);
            }
            cr_expect_eq(strips, 1);
        }
    }
}

static void check_plan(const struct dr_conv *c, enum dr_type t, const struct dr_conv_plan *p) {
    if (p->tile->kernel == DR_CONV_SMALL) {
        cr_expect(c->c <= 8 && p->us > 0 && p->workspace_bytes == 0);
        return;
    }
    const int64_t outputs = p->n * p->ho * p->wo;
    const int pixels = p->tile->kernel == DR_CONV_RS   ? 64 * p->tile->groups
                       : p->tile->kernel == DR_CONV_WA ? 256
                       : p->tile->kernel == DR_CONV_WK ? 112
                       : p->tile->kernel == DR_CONV_WL ? p->tile->pixels
                                                       : 128;
    if (p->tile->kernel == DR_CONV_WL) { /* whose products take lines with their ends */
        cr_expect(p->tn * p->th * p->pw <= pixels);
        check_strips(p);
    }
    cr_expect_eq(outputs, c->n * c->ho * c->wo);
    cr_expect(p->m_tiles * pixels >= outputs);
    cr_expect(p->k_tiles * p->tile->columns >= c->k);
    cr_expect(p->linear || p->tn * p->th * p->tw <= pixels);
    cr_expect(p->pw <= 256 && p->ph <= 256 && p->tn <= 256, "a tensor map's box");
    cr_expect(p->shared_bytes <= 232448);
    cr_expect(p->patches >= 2);
    const int64_t piece = 128 / dr_type_bytes(t);
    cr_expect_eq(p->chunks, p->n_phases * ((c->c + piece - 1) / piece));
    cr_expect(p->parts <= p->m_tiles * p->k_tiles * p->units);
    cr_expect_eq(p->workspace_bytes,
                 (int64_t)p->parts * 2 * 64 * p->tile->groups * p->tile->columns * 4);
    cr_expect(p->us > 0);
}

Test(conv_table, plans_hold_together) {
    int rows, plans = 0;
    const struct dr_conv_tile *tile = dr_cuda_conv_tiles(&rows);
    for (int i = 0; i < 3000; i++) {
        const struct dr_conv c = shape();
        for (int of = 0; of < 6 * rows; of++) {
            struct dr_conv_plan p;
            if (dr_cuda_conv_plan(&c, (enum dr_type)(of % 3), &tile[of / 6], of / 3 % 2, &p)) {
                check_plan(&c, (enum dr_type)(of % 3), &p);
                const bool flat = p.w != c.w; /* 1x1: all pixels are one row */
                if (!flat && p.tile->kernel != DR_CONV_SMALL) {
                    check_taps(&c, &p);
                }
                plans++;
            }
        }
    }
    cr_expect(plans > 10000, "%d plans", plans);
}

/* What copies of 16 bytes, or indexes, cannot do has no plan. */
Test(conv_table, what_no_kernel_takes) {
    const struct dr_conv good = {.n = 2,
                                 .h = 9,
                                 .w = 9,
                                 .c = 64,
                                 .k = 64,
                                 .kh = 3,
                                 .kw = 3,
                                 .ho = 9,
                                 .wo = 9,
                                 .sh = 1,
                                 .sw = 1,
                                 .dh = 1,
                                 .dw = 1,
                                 .pt = 1,
                                 .pl = 1,
                                 .pb = 1,
                                 .pr = 1,
                                 .groups = 1};
    struct dr_conv bad[6];
    for (int i = 0; i < 6; i++) {
        bad[i] = good;
    }
    bad[0].c = 60, bad[1].k = 60, bad[2].groups = 2, bad[3].sh = 5, bad[4].kh = 70;
    bad[5].n = (int64_t)1 << 40;
    int rows, plans = 0;
    const struct dr_conv_tile *tile = dr_cuda_conv_tiles(&rows);
    for (int i = 0; i < 2 * rows; i++) {
        struct dr_conv_plan p;
        plans += dr_cuda_conv_plan(&good, DR_TYPE_F16, &tile[i / 2], i % 2, &p);
        for (int b = 0; b < 6; b++) {
            cr_expect_not(dr_cuda_conv_plan(&bad[b], DR_TYPE_F16, &tile[i / 2], i % 2, &p), "%d",
                          b);
        }
    }
    cr_expect(plans > 0);
}

/* The papers' layers of 3 channels, LeNet's first, ResNet's. */
Test(conv_table, first_layers) {
    static const int layer[][7] = {/* n, h = w, c, k, kh = kw, stride, padding */
                                   {128, 227, 3, 96, 11, 4, 0}, {128, 231, 3, 96, 11, 4, 0},
                                   {128, 227, 3, 64, 7, 2, 0},  {128, 224, 3, 64, 3, 1, 0},
                                   {64, 28, 1, 32, 5, 1, 0},    {1, 224, 3, 64, 7, 2, 3}};
    for (int i = 0; i < 6; i++) {
        const int *l = layer[i], o = (l[1] + 2 * l[6] - l[4]) / l[5] + 1;
        struct dr_conv c = {.n = l[0], .h = l[1], .w = l[1], .c = l[2], .k = l[3], .kh = l[4]};
        c.kw = c.kh, c.ho = c.wo = o, c.sh = c.sw = l[5], c.dh = c.dw = c.groups = 1;
        c.pt = c.pl = c.pb = c.pr = l[6];
        for (int t = 0; t < 3; t++) {
            const struct dr_conv_tile *const row = first_row(&c, (enum dr_type)t, 90);
            cr_assert(row, "layer %d, type %d", i, t);
            cr_expect_eq(row->kernel, DR_CONV_SMALL);
            cr_expect_null(first_row(&c, (enum dr_type)t, 80));
        }
        c.dw = 2; /* which it does not take */
        cr_expect_null(first_row(&c, DR_TYPE_F16, 90));
    }
}

/* Who keeps the weights of 64 channels: halves in registers, tf32 in shared memory where they fit
 * beside four patches of (14 + rows) x (8 + columns) pixels, 128 bytes each: 3x3, 4x4 for half of
 * the channels. */
Test(conv_table, sixty_four_channels) {
    static const struct {
        int h, c, k, kernel, pad;
        bool fits;
        int64_t tiles; /* of 14 x 8, in 128 images */
    } shape[] = {{112, 64, 128, 3, 0, true, 128 * 8 * 14},
                 {56, 64, 64, 3, 0, true, 128 * 4 * 7},
                 {56, 64, 64, 3, 1, true, 128 * 4 * 7},
                 {30, 36, 4, 3, 0, true, 128 * 2 * 4},
                 {59, 32, 64, 4, 0, true, 128 * 4 * 7},
                 {112, 68, 128, 3, 0, false, 0},
                 {59, 36, 64, 4, 0, false, 0},
                 {60, 32, 64, 5, 0, false, 0}};
    int rows;
    const struct dr_conv_tile *tile = dr_cuda_conv_tiles(&rows);
    while (tile->kernel != DR_CONV_WK) {
        tile++;
    }
    for (int i = 0; i < (int)(sizeof shape / sizeof *shape); i++) {
        const int o = shape[i].h + 2 * shape[i].pad - shape[i].kernel + 1;
        struct dr_conv c = {.n = 128, .h = shape[i].h, .w = shape[i].h, .c = shape[i].c};
        c.k = shape[i].k, c.kh = c.kw = shape[i].kernel, c.ho = c.wo = o;
        c.sh = c.sw = c.dh = c.dw = c.groups = 1;
        c.pt = c.pl = c.pb = c.pr = shape[i].pad;
        struct dr_conv_plan p;
        cr_expect_eq(dr_cuda_conv_plan(&c, DR_TYPE_F32, tile, false, &p), shape[i].fits, "%d", i);
        cr_expect(!shape[i].fits || p.m_tiles == shape[i].tiles, "%d: %d", i, (int)p.m_tiles);
        cr_expect_not(dr_cuda_conv_plan(&c, DR_TYPE_F32, tile, true, &p));
        cr_expect_not(dr_cuda_conv_plan(&c, DR_TYPE_F16, tile, false, &p));
        c.sh = 2, c.ho = (o + 1) / 2;
        cr_expect_not(dr_cuda_conv_plan(&c, DR_TYPE_F32, tile, false, &p));
        c.sh = 1, c.ho = o;
        if (i < 3) { /* layers of the papers, and ResNet's */
            for (int t = 0; t < 3; t++) {
                const struct dr_conv_tile *const row = first_row(&c, (enum dr_type)t, 90);
                cr_assert(row);
                cr_expect_eq(row->kernel, t == DR_TYPE_F32 ? DR_CONV_WK : DR_CONV_WS, "%d", i);
            }
        }
    }
}

/* The papers' layers of many filters: the row that was measured to be the fastest on an H200, in
 * halves and in tf32 (of the third, two rows are alike there). */
Test(conv_table, lines_of_pixels) {
    static const int layer[][4] = {/* h = w, c, k, kh = kw */
                                   {24, 96, 256, 5},
                                   {12, 256, 512, 3},
                                   {28, 128, 128, 3},
                                   {14, 256, 256, 3},
                                   {7, 512, 512, 3}};
    static const char *const name[][2] = {{"wl 200x128", "wl 200x128"},
                                          {"wl 200x128", "wl 200x128"},
                                          {"wl 240x128", NULL},
                                          {"wl 288x128", "wl 288x128"},
                                          {"wl 104x128", "rs 128x128"}};
    for (int i = 0; i < (int)(sizeof layer / sizeof *layer); i++) {
        const int *l = layer[i];
        struct dr_conv c = {.n = 128, .h = l[0], .w = l[0], .c = l[1], .k = l[2]};
        c.kh = c.kw = l[3], c.ho = c.wo = l[0] - l[3] + 1;
        c.sh = c.sw = c.dh = c.dw = c.groups = 1;
        for (int t = 0; t < 2; t++) {
            const enum dr_type type = t ? DR_TYPE_F32 : DR_TYPE_F16;
            const struct dr_conv_tile *const row = first_row(&c, type, 90);
            cr_assert(row, "layer %d", i);
            cr_expect(!name[i][t] || strcmp(row->name, name[i][t]) == 0, "layer %d: %s", i,
                      row->name);
        }
    }
}
