/* The candidates for a forward convolution, in the cost model's order. See conv_way.h. */
#include "kernels/cuda/conv_way.h"
#include "kernels/cuda/conv.h"
#include "kernels/cuda/conv_f32_tile.h"
#include "kernels/cuda/conv_small.h"
#include "kernels/cuda/conv_table.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MHZ 1500.0            /* under full load */
#define MEMORY_BYTES_US 4.0e6 /* DRAM of an H200 */
#define LAUNCH_US 3.0
#define TURNED_FLOPS 4e9 /* below it, turning the weights does not pay */

static int sms_of(const struct dr_conv_card *card) {
    return card->sms > 0 ? card->sms : 1;
}

static const char *type_name(enum dr_type t, bool tf32) {
    return t == DR_TYPE_F16 ? "fp16" : t == DR_TYPE_BF16 ? "bf16" : tf32 ? "tf32" : "f32";
}

/* The generic kernels reach about two thirds of the CUDA cores' 256 flops a clock, and a quarter of
 * what wgmma does (4096 in halves, 2048 in tf32), in tiles of about 128 x 128. */
static double generic_us(const struct dr_conv *c, enum dr_type t, enum dr_conv_pass pass,
                         const struct dr_conv_card *card) {
    const bool cores = dr_cuda_conv_few(c) || (t == DR_TYPE_F32 && !card->tf32);
    const double rate = cores ? 256 * 0.66 : (t == DR_TYPE_F32 ? 2048 : 4096) * 0.25;
    const double x = (double)c->n * (double)(c->h * c->w);
    const double y = (double)c->n * (double)(c->ho * c->wo);
    const double depth = (double)(c->kh * c->kw) * (double)(c->c / c->groups);
    const double bytes = dr_type_bytes(t) * (x * (double)c->c + (y + depth) * (double)c->k);
    const double flops = 2.0 * y * (double)c->k * depth;
    const double columns = (double)(pass == DR_CONV_DGRAD ? c->c : c->k);
    const double tiles = ceil((pass == DR_CONV_DGRAD ? x : y) / 128) * ceil(columns / 128);
    /* sums over pixels are cut into as many parts as keep all multiprocessors busy */
    const double full = ceil(tiles / sms_of(card)) * sms_of(card) / tiles;
    const double busy = flops / (rate * sms_of(card) * MHZ) * (pass == DR_CONV_WGRAD ? 1 : full);
    const double memory = bytes / MEMORY_BYTES_US;
    return LAUNCH_US + (busy > memory ? busy : memory);
}

/* dgrad of a stride is a correlation for each of its phases; the first is the largest. */
static struct dr_f32_problem f32_problem(const struct dr_conv *c, enum dr_conv_pass pass) {
    const bool back = pass == DR_CONV_DGRAD;
    const int64_t h = back ? (c->h + c->sh - 1) / c->sh : c->ho;
    const int64_t w = back ? (c->w + c->sw - 1) / c->sw : c->wo;
    return (struct dr_f32_problem){.pixels = c->n * h * w,
                                   .c = (back ? c->k : c->c) / c->groups,
                                   .k = (back ? c->c : c->k) / c->groups,
                                   .groups = c->groups,
                                   .taps = c->kh * c->kw,
                                   .forward = !back,
                                   .strided = c->sh > 1 || c->sw > 1};
}
static bool on_cuda_cores(const struct dr_conv *c, enum dr_type t, enum dr_conv_pass pass,
                          const struct dr_conv_card *card) {
    return t == DR_TYPE_F32 && !card->tf32 && pass != DR_CONV_WGRAD && !dr_cuda_conv_few(c);
}

struct dr_conv_way dr_cuda_conv_generic_way(const struct dr_conv *c, enum dr_type t,
                                            enum dr_conv_pass pass,
                                            const struct dr_conv_card *card) {
    struct dr_conv_way w = {.way = DR_CONV_GENERIC, .reason = "right for every shape and card"};
    const char *tile = "";
    if (on_cuda_cores(c, t, pass, card)) {
        const struct dr_f32_problem p = f32_problem(c, pass);
        int rows;
        tile = dr_f32_tiles(&rows)[dr_f32_tile_of(&p, sms_of(card))].name;
    }
    snprintf(w.name, sizeof w.name, "%s%s%s", dr_cuda_conv_name(c, t, card->tf32), *tile ? " " : "",
             tile);
    w.us = generic_us(c, t, pass, card);
    return w;
}

/* Ties keep the table's order, whatever qsort does. */
static int cheaper(const void *a, const void *b) {
    const struct dr_conv_way *x = a, *y = b;
    return x->us < y->us ? -1 : x->us > y->us ? 1 : x->way - y->way;
}

/* The tiles of fp32 that way[n - 1], the generic kernels, would not take. */
static void by_f32_tiles(const struct dr_conv *c, enum dr_type t, enum dr_conv_pass pass,
                         const struct dr_conv_card *card, struct dr_conv_way *way, int *n) {
    const struct dr_f32_problem p = f32_problem(c, pass);
    const double us = way[*n - 1].us;
    int rows;
    const struct dr_f32_tile *const row = dr_f32_tiles(&rows);
    if (!on_cuda_cores(c, t, pass, card)) {
        return;
    }
    const int first = *n, best = dr_f32_tile_of(&p, sms_of(card));
    for (int i = 0; i < rows; i++) {
        if (i != best) {
            struct dr_conv_way *w = &way[(*n)++];
            *w = (struct dr_conv_way){.way = DR_CONV_F32_TILE + i,
                                      .reason = "another tile, the same bits",
                                      .us = us * dr_f32_work(&p, &row[i], sms_of(card)) /
                                            dr_f32_work(&p, &row[best], sms_of(card))};
            snprintf(w->name, sizeof w->name, "%s %s", dr_cuda_conv_name(c, t, false), row[i].name);
        }
    }
    qsort(way + first, (size_t)(*n - first), sizeof *way, cheaper);
}

static void by_rows(const struct dr_conv *c, enum dr_type t, const char *form,
                    const struct dr_conv_card *card, struct dr_conv_way *way, int *n) {
    int rows;
    const struct dr_conv_tile *row = dr_cuda_conv_tiles(&rows);
    for (int i = 0; i < 2 * rows && *n < DR_CONV_WAYS - 2; i++) {
        struct dr_conv_plan p;
        if (row[i / 2].arch != card->arch ||
            !dr_cuda_conv_plan(c, t, &row[i / 2], i % 2 != 0, &p)) {
            continue;
        }
        struct dr_conv_way *w = &way[(*n)++];
        *w = (struct dr_conv_way){.way = DR_CONV_FIRST_TILE + i,
                                  .reason = row[i / 2].reason,
                                  .workspace_bytes = p.workspace_bytes,
                                  .us = p.us};
        snprintf(w->name, sizeof w->name, "im2win %s %s%s%s", type_name(t, true), form,
                 row[i / 2].name,
                 i % 2 == 0                        ? ""
                 : row[i / 2].kernel == DR_CONV_WL ? " wide"
                                                   : " lines");
    }
}

int dr_cuda_conv_ways(const struct dr_conv *c, enum dr_type t, int act,
                      const struct dr_conv_card *card, struct dr_conv_way *way) {
    int n = 0;
    if (card->hopper && (t != DR_TYPE_F32 || card->tf32) && dr_cuda_conv_hopper_acts(act)) {
        by_rows(c, t, "", card, way, &n);
    }
    qsort(way, (size_t)n, sizeof *way, cheaper);
    way[n++] = dr_cuda_conv_generic_way(c, t, DR_CONV_FPROP, card);
    by_f32_tiles(c, t, DR_CONV_FPROP, card, way, &n);
    return n;
}

bool dr_cuda_conv_pools(const struct dr_conv *c, enum dr_type t, const struct dr_conv_plan *p,
                        int act) {
    const bool boxes = p->tile->kernel == DR_CONV_WS || p->tile->kernel == DR_CONV_WA;
    const bool flat = p->wo != c->wo || p->ho != c->ho; /* 1x1: all pixels are one row */
    return boxes && !p->linear && !flat && t != DR_TYPE_F32 && act == 1 && c->ho > 1 && c->wo > 1;
}

bool dr_cuda_conv_pool_way(const struct dr_conv *c, enum dr_type t, int act,
                           const struct dr_conv_card *card, struct dr_conv_way *way) {
    struct dr_conv_way all[DR_CONV_WAYS];
    struct dr_conv_plan p;
    int rows;
    const struct dr_conv_tile *const row = dr_cuda_conv_tiles(&rows);
    dr_cuda_conv_ways(c, t, act, card, all);
    const int i = all->way - DR_CONV_FIRST_TILE;
    if (i < 0 || !dr_cuda_conv_plan(c, t, &row[i / 2], i % 2, &p) ||
        !dr_cuda_conv_pools(c, t, &p, act)) {
        return false;
    }
    *way = *all;
    snprintf(way->name, sizeof way->name, "im2win %s %s pool", type_name(t, true), row[i / 2].name);
    return true;
}

bool dr_cuda_conv_u8_way(const struct dr_conv *c, enum dr_type t, int act,
                         const struct dr_conv_card *card, struct dr_conv_way *way) {
    struct dr_conv_way all[DR_CONV_WAYS];
    int rows;
    const struct dr_conv_tile *const row = dr_cuda_conv_tiles(&rows);
    dr_cuda_conv_ways(c, t, act, card, all);
    if (all->way == DR_CONV_GENERIC || !dr_cuda_conv_small_u8(c, t) ||
        row[(all->way - DR_CONV_FIRST_TILE) / 2].kernel != DR_CONV_SMALL) {
        return false;
    }
    *way = *all;
    snprintf(way->name, sizeof way->name, "im2win %s u8 %s", type_name(t, true),
             row[(all->way - DR_CONV_FIRST_TILE) / 2].name);
    return true;
}

struct dr_conv dr_cuda_conv_turned_shape(const struct dr_conv *c) {
    struct dr_conv f = *c;
    f.h = c->ho, f.w = c->wo, f.c = c->k;
    f.k = c->c, f.ho = c->h, f.wo = c->w;
    f.pt = (c->kh - 1) * c->dh - c->pt, f.pb = (c->kh - 1) * c->dh - c->pb;
    f.pl = (c->kw - 1) * c->dw - c->pl, f.pr = (c->kw - 1) * c->dw - c->pr;
    return f;
}

int64_t dr_cuda_conv_turned_bytes(const struct dr_conv *c, enum dr_type t) {
    return (c->k * c->kh * c->kw * c->c * dr_type_bytes(t) + 255) / 256 * 256;
}

int dr_cuda_conv_back_ways(const struct dr_conv *c, enum dr_type t, int act,
                           const struct dr_conv_card *card, struct dr_conv_way *way) {
    const struct dr_conv f = dr_cuda_conv_turned_shape(c);
    int n = 0;
    if (card->hopper && (t != DR_TYPE_F32 || card->tf32) && dr_cuda_conv_hopper_acts(act) &&
        c->sh == 1 && c->sw == 1 && c->groups == 1 && f.pt >= 0 && f.pl >= 0) {
        by_rows(&f, t, "turned ", card, way, &n);
    }
    const int64_t bytes = dr_cuda_conv_turned_bytes(c, t);
    for (int i = 0; i < n; i++) {
        way[i].workspace_bytes += bytes;
        way[i].us += LAUNCH_US + 2 * (double)bytes / MEMORY_BYTES_US;
    }
    qsort(way, (size_t)n, sizeof *way, cheaper);
    way[n] = dr_cuda_conv_generic_way(c, t, DR_CONV_DGRAD, card);
    if (2.0 * (double)(c->n * c->ho * c->wo) * (double)(c->k * c->kh * c->kw * c->c) <
        TURNED_FLOPS) {
        const struct dr_conv_way first = way[n]; /* one launch instead of two */
        memmove(way + 1, way, (size_t)n * sizeof *way);
        way[0] = first;
    }
    n++;
    by_f32_tiles(c, t, DR_CONV_DGRAD, card, way, &n);
    return n;
}

void dr_cuda_conv_problem(const struct dr_conv *c, enum dr_type t, enum dr_conv_pass pass, int act,
                          bool tf32, char *text, size_t n) {
    const int used = snprintf(text, n, "%s%s %lldx%lldx%lldx%lld, %lld of %lldx%lld",
                              pass == DR_CONV_DGRAD ? "dgrad " : "", type_name(t, tf32),
                              (long long)c->n, (long long)c->h, (long long)c->w, (long long)c->c,
                              (long long)c->k, (long long)c->kh, (long long)c->kw);
    const struct {
        const char *name;
        int64_t a, b, usual;
    } part[] = {{"stride", c->sh, c->sw, 1},
                {"dilation", c->dh, c->dw, 1},
                {"padding", c->pt, c->pl, 0},
                {"and", c->pb, c->pr, 0}, /* bottom and right, where they differ */
                {"groups", c->groups, c->groups, 1}};
    size_t at = used > 0 && (size_t)used < n ? (size_t)used : n;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        const bool same = i == 3 && part[3].a == part[2].a && part[3].b == part[2].b;
        if ((part[i].a == part[i].usual && part[i].b == part[i].usual && i != 3) || same ||
            at >= n) {
            continue;
        }
        const int more =
            part[i].a == part[i].b
                ? snprintf(text + at, n - at, " %s %lld", part[i].name, (long long)part[i].a)
                : snprintf(text + at, n - at, " %s %lldx%lld", part[i].name, (long long)part[i].a,
                           (long long)part[i].b);
        at += more > 0 ? (size_t)more : 0;
    }
    if (!dr_cuda_conv_hopper_acts(act) && at < n) {
        snprintf(text + at, n - at, " activation %d", act);
    }
}

/* FNV-1a, 64 bit. */
static uint64_t mixed(uint64_t h, const char *text) {
    for (; *text; text++) {
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    }
    return h;
}

uint64_t dr_cuda_conv_ways_hash(void) {
    int rows;
    const struct dr_conv_tile *row = dr_cuda_conv_tiles(&rows);
    uint64_t h = mixed(0xcbf29ce484222325u, "generic");
    for (int i = 0; i < rows; i++) {
        char text[160];
        snprintf(text, sizeof text, "\n%s %d %d %d %d %d %d %d %d", row[i].name, row[i].arch,
                 (int)row[i].kernel, row[i].columns, row[i].groups, row[i].pixels, row[i].three,
                 row[i].split, row[i].parts);
        h = mixed(h, text);
    }
    const struct dr_f32_tile *const tile = dr_f32_tiles(&rows);
    for (int i = 0; i < rows; i++) {
        h = mixed(mixed(h, "\n"), tile[i].name);
    }
    return h;
}
