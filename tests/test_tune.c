/* Which kernel computes a convolution on a GPU, as plans say it, and what --tune changes; nothing
 * here needs a GPU. */
#include "kernels/cuda/conv_f32_tile.h"
#include "kernels/cuda/conv_table.h"
#include "kernels/cuda/conv_way.h"
#include "scheduler/checkpoint.h"
#include "scheduler/cli.h"
#include "scheduler/tune.h"
#include "tests/fake_cli.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define H200 "NVIDIA H200 (sm_90, 132 SMs)"
static const struct dr_device_info h200 = {
    .name = "cuda:0 " H200,
    .card = H200,
    .cuda = true,
    .copies_ahead = true,
    .caps = {.arch = 90, .sms = 132, .hopper = true},
    .threads = 2,
    .flops_per_s = 6.7e13,
    .tf32_flops_per_s = 4.9e14,
    .fp16 = true,
    .bf16 = true,
    .half_flops_per_s = 9.9e14,
    .bytes_per_s = 4.8e12,
    .launch_us = 0.6,
};

/* ---- picks ---- */

struct layer {
    const char *name;
    int64_t n, c, size, k, kernel, stride, pad;
};
static struct dr_conv conv_of(const struct layer *l) {
    const int64_t out = (l->size + 2 * l->pad - l->kernel) / l->stride + 1;
    return (struct dr_conv){.n = l->n,
                            .h = l->size,
                            .w = l->size,
                            .c = l->c,
                            .k = l->k,
                            .kh = l->kernel,
                            .kw = l->kernel,
                            .ho = out,
                            .wo = out,
                            .sh = l->stride,
                            .sw = l->stride,
                            .dh = 1,
                            .dw = 1,
                            .pt = l->pad,
                            .pl = l->pad,
                            .pb = l->pad,
                            .pr = l->pad,
                            .groups = 1};
}
/* The im2win papers' layers at batch 128, and ResNet-50's, at 32 and 1. */
static const struct layer layers[] = {
    {"conv4", 128, 64, 224, 64, 7, 2, 0},      {"conv5", 128, 96, 24, 256, 5, 1, 0},
    {"conv6", 128, 256, 12, 512, 3, 1, 0},     {"conv8", 128, 64, 112, 128, 3, 1, 0},
    {"conv9", 128, 64, 56, 64, 3, 1, 0},       {"conv10", 128, 128, 28, 128, 3, 1, 0},
    {"conv11", 128, 256, 14, 256, 3, 1, 0},    {"conv12", 128, 512, 7, 512, 3, 1, 0},
    {"1x1 of 56", 32, 64, 56, 256, 1, 1, 0},   {"back", 32, 256, 56, 64, 1, 1, 0},
    {"3x3 of 56", 32, 64, 56, 64, 3, 1, 1},    {"3x3 / 2", 32, 128, 56, 128, 3, 2, 1},
    {"1x1 / 2", 32, 256, 56, 512, 1, 2, 0},    {"3x3 of 28", 32, 128, 28, 128, 3, 1, 1},
    {"1x1 of 28", 32, 512, 28, 128, 1, 1, 0},  {"3x3 of 14", 32, 256, 14, 256, 3, 1, 1},
    {"1x1 of 14", 32, 1024, 14, 256, 1, 1, 0}, {"3x3 of 7", 32, 512, 7, 512, 3, 1, 1},
    {"1x1 of 7", 32, 512, 7, 2048, 1, 1, 0},   {"one image", 1, 512, 7, 512, 3, 1, 1},
    {"one image", 1, 64, 56, 64, 3, 1, 1},     {"one image", 1, 128, 28, 512, 1, 1, 0},
    {"conv1", 128, 3, 227, 96, 11, 4, 0},      {"conv2", 128, 3, 231, 96, 11, 4, 0},
    {"conv3", 128, 3, 227, 64, 7, 2, 0},       {"conv7", 128, 3, 224, 64, 3, 1, 0},
    {"stem", 32, 3, 224, 64, 7, 2, 3},         {"one image", 1, 3, 224, 64, 7, 2, 3},
};
enum { LAYERS = sizeof layers / sizeof *layers };
static const struct dr_conv_card card = {.arch = 90, .sms = 132, .hopper = true, .tf32 = true};

Test(tune, every_layer_has_a_row_that_fits_and_is_stable) {
    for (int i = 0; i < LAYERS; i++) {
        for (int t = 0; t < 3; t++) {
            const struct dr_conv c = conv_of(&layers[i]);
            struct dr_conv_way a[DR_CONV_WAYS], b[DR_CONV_WAYS];
            struct dr_conv_plan p;
            struct dr_conv_card half = card;
            half.sms = 66;
            const int n = dr_cuda_conv_ways(&c, (enum dr_type)t, 0, &card, a);
            cr_assert_gt(n, 1, "%s", layers[i].name);
            cr_expect_geq(a[0].way, DR_CONV_FIRST_TILE, "%s: %s", layers[i].name, a[0].name);
            cr_expect(a[0].us > 0 && a[0].us < 10000, "%s: %g us", a[0].name, a[0].us);
            const int first = a[0].way - DR_CONV_FIRST_TILE;
            int rows, fit = 0;
            const struct dr_conv_tile *const tile = dr_cuda_conv_tiles(&rows);
            cr_assert(dr_cuda_conv_plan(&c, (enum dr_type)t, &tile[first / 2], first % 2, &p));
            cr_expect(strstr(a[0].name, p.tile->name), "%s, not %s", a[0].name, p.tile->name);
            cr_expect_eq(!strcmp(p.tile->name, "small"), c.c <= 8, "%s", a[0].name);
            cr_expect_eq(a[0].workspace_bytes, p.workspace_bytes);
            for (int k = 0; k < 2 * rows; k++) {
                if (dr_cuda_conv_plan(&c, (enum dr_type)t, &tile[k / 2], k % 2, &p)) {
                    cr_expect_geq(p.us, a[0].us, "%s, not %s", a[0].name, p.tile->name);
                    fit++;
                }
            }
            cr_expect_eq(n, fit + 1); /* and the generic kernels */
            /* another number of multiprocessors changes no bit, so no choice */
            cr_expect_eq(dr_cuda_conv_ways(&c, (enum dr_type)t, 0, &half, b), n);
            for (int k = 0; k < n; k++) {
                cr_expect_str_eq(a[k].name, b[k].name);
                cr_expect_eq(a[k].way, b[k].way);
                cr_expect(k == 0 || k == n - 1 || a[k].us >= a[k - 1].us);
                for (int other = 0; other < k; other++) {
                    cr_expect_str_neq(a[k].name, a[other].name);
                }
            }
            cr_expect_eq(a[n - 1].way, DR_CONV_GENERIC);
        }
    }
}

/* A block of sm_90 has 227 KiB of shared memory (CUDA programming guide, table of compute
 * capabilities). */
Test(tune, every_plan_fits_into_shared_memory) {
    int rows;
    const struct dr_conv_tile *tile = dr_cuda_conv_tiles(&rows);
    for (int i = 0; i < LAYERS * 3 * 2 * rows; i++) {
        const struct dr_conv c = conv_of(&layers[i % LAYERS]);
        struct dr_conv_plan p;
        const int of = i / LAYERS;
        if (dr_cuda_conv_plan(&c, (enum dr_type)(of % 3), &tile[of / 6], of / 3 % 2, &p)) {
            cr_expect_leq(p.shared_bytes, 227 * 1024, "%s: %d", p.tile->name, p.shared_bytes);
            cr_expect(p.shared_bytes > 0 || c.c <= 8); /* which a test of its own plans */
            cr_expect_eq(p.workspace_bytes > 0, p.parts > 0);
        }
    }
}

Test(tune, what_no_row_computes_is_generic) {
    static const struct {
        int t, act;
        bool tf32, hopper;
        int64_t c, groups;
        const char *name;
    } cases[] = {
        {DR_TYPE_F32, 0, true, false, 64, 1, "im2win tf32 mma"},
        {DR_TYPE_F32, 0, false, true, 64, 1, "im2win f32 128x64 spread"},
        {DR_TYPE_F16, 0, false, false, 64, 1, "im2win fp16 mma"},
        {DR_TYPE_BF16, 2, false, true, 64, 1, "im2win bf16 mma"}, /* tanh */
        {DR_TYPE_F16, 0, false, true, 64, 64, "im2win fp16 depthwise"},
        {DR_TYPE_F16, 0, false, true, 64, 2, "im2win fp16 mma"},
        {DR_TYPE_F16, 0, false, true, 12, 1, "im2win fp16 mma"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct layer l = layers[4];
        l.c = cases[i].c;
        struct dr_conv c = conv_of(&l);
        struct dr_conv_card on = card;
        struct dr_conv_way way[DR_CONV_WAYS];
        c.groups = cases[i].groups;
        on.hopper = cases[i].hopper;
        on.tf32 = cases[i].tf32;
        const int n = dr_cuda_conv_ways(&c, (enum dr_type)cases[i].t, cases[i].act, &on, way);
        int tiles;
        dr_f32_tiles(&tiles);
        cr_expect_eq(n, cases[i].t == DR_TYPE_F32 && !cases[i].tf32 ? tiles : 1);
        cr_expect_eq(way[0].way, DR_CONV_GENERIC);
        cr_expect_str_eq(way[0].name, cases[i].name);
        cr_expect_eq(way[0].workspace_bytes, 0);
    }
}

/* The data gradient of stride 1 is a forward convolution with turned weights, which lie in its
 * workspace: 64 x 3 x 3 x 64 halves. */
Test(tune, data_gradients_are_turned) {
    for (int i = 0; i < LAYERS; i++) {
        const struct dr_conv c = conv_of(&layers[i]), f = dr_cuda_conv_turned_shape(&c);
        struct dr_conv_way way[DR_CONV_WAYS];
        const int n = dr_cuda_conv_back_ways(&c, DR_TYPE_F16, 0, &card, way);
        if (c.sh != 1) {
            cr_expect_eq(n, 1);
            continue;
        }
        /* as large as x, from what is as large as y: PyTorch's conv2d_input */
        cr_expect_eq(f.ho, f.h + f.pt + f.pb - (f.kh - 1));
        cr_expect_eq(f.wo, f.w + f.pl + f.pr - (f.kw - 1));
        cr_expect(n > 1 || c.c < 16, "%s", layers[i].name);
        const bool little = 2 * c.n * c.ho * c.wo * c.k * c.kh * c.kw * c.c < INT64_C(4000000000);
        for (int k = 0; k < n; k++) {
            const bool generic = k == (little ? 0 : n - 1);
            cr_expect_eq(way[k].way == DR_CONV_GENERIC, generic);
            cr_expect(generic || strstr(way[k].name, " turned "), "%s", way[k].name);
            cr_expect(generic ||
                      way[k].workspace_bytes >= dr_cuda_conv_turned_bytes(&c, DR_TYPE_F16));
        }
    }
    const struct dr_conv nine = conv_of(&layers[4]);
    cr_expect_eq(dr_cuda_conv_turned_bytes(&nine, DR_TYPE_F16), 64 * 3 * 3 * 64 * 2);
    struct dr_conv_way way[DR_CONV_WAYS];
    cr_expect_eq(dr_cuda_conv_back_ways(&nine, DR_TYPE_F16, 2, &card, way), 1); /* tanh */
}

/* In fp32 on CUDA cores: the kernels' own choice first, then each other tile once, the cheaper ones
 * before. */
Test(tune, tiles_of_fp32_are_ways) {
    const struct dr_conv_card on = {.arch = 90, .sms = 132, .hopper = true};
    for (int i = 0; i < 2 * LAYERS; i++) {
        const struct dr_conv c = conv_of(&layers[i / 2]);
        struct dr_conv_way way[DR_CONV_WAYS];
        int tiles;
        const struct dr_f32_tile *const tile = dr_f32_tiles(&tiles);
        const int n =
            (i % 2 ? dr_cuda_conv_back_ways : dr_cuda_conv_ways)(&c, DR_TYPE_F32, 2, &on, way);
        cr_assert_eq(n, tiles);
        cr_expect_eq(way[0].way, DR_CONV_GENERIC);
        for (int k = 0; k < n; k++) {
            const int row = way[k].way - DR_CONV_F32_TILE;
            cr_expect_eq(way[k].workspace_bytes, 0);
            cr_expect_eq(strncmp(way[k].name, "im2win f32 ", 11), 0, "%s", way[k].name);
            cr_expect(k == 0 ||
                      (row >= 0 && row < tiles && !strcmp(way[k].name + 11, tile[row].name)));
            cr_expect(k == 0 || way[k].us >= way[k - 1].us);
            for (int other = 0; other < k; other++) {
                cr_expect_str_neq(way[k].name, way[other].name);
            }
        }
    }
    struct dr_conv few = conv_of(&layers[4]);
    struct dr_conv_way way[DR_CONV_WAYS];
    few.groups = few.c;
    cr_expect_eq(dr_cuda_conv_ways(&few, DR_TYPE_F32, 0, &on, way), 1); /* depthwise */
    cr_expect_eq(dr_cuda_conv_back_ways(&few, DR_TYPE_F32, 0, &on, way), 1);
}

/* As measured on an H200 at batch 128. */
Test(tune, tiles_of_fp32_that_were_the_fastest) {
    static const struct {
        const char *layer, *tile, *back; /* back: of the data gradient */
    } want[] = {{"conv1", "128x96 spread", NULL},  {"conv3", "128x64 spread", NULL},
                {"conv4", "128x64", NULL},         {"conv5", "128x64 spread", NULL},
                {"conv6", "128x64 spread", NULL},  {"conv7", "128x64", NULL},
                {"conv8", "128x128 spread", NULL}, {"conv9", "128x64 spread", "128x64"},
                {"conv10", "128x64 spread", NULL}, {"conv11", "128x64 spread", NULL},
                {"conv12", "128x128 spread", NULL}};
    const struct dr_conv_card on = {.arch = 90, .sms = 132, .hopper = true};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        for (int k = 0; k < LAYERS; k++) {
            if (strcmp(layers[k].name, want[i].layer)) {
                continue;
            }
            const struct dr_conv c = conv_of(&layers[k]);
            const struct dr_conv_way w = dr_cuda_conv_generic_way(&c, DR_TYPE_F32, DR_CONV_FPROP,
                                                                  &on),
                                     b = dr_cuda_conv_generic_way(&c, DR_TYPE_F32, DR_CONV_DGRAD,
                                                                  &on);
            cr_expect_str_eq(w.name + strlen("im2win f32 "), want[i].tile, "%s", want[i].layer);
            cr_expect(!want[i].back || !strcmp(b.name + strlen("im2win f32 "), want[i].back));
            cr_expect(!strstr(b.name, "spread"));
        }
    }
}

/* 54 x 54 outputs of 64 filters; dgrad: 56 x 56 of 96 channels. */
Test(tune, generic_kernels_have_names) {
    struct layer l = layers[4];
    l.c = 96;
    const struct dr_conv c = conv_of(&l);
    struct dr_conv_card on = card;
    static const char *const want[2][3] = {
        {"im2win f32 128x64 spread", "im2win f32 128x96", "im2win f32"},
        {"im2win tf32 mma", "im2win tf32 mma", "im2win tf32 mma"}};
    for (int i = 0; i < 6; i++) {
        on.tf32 = i / 3;
        const struct dr_conv_way w =
            dr_cuda_conv_generic_way(&c, DR_TYPE_F32, (enum dr_conv_pass)(i % 3), &on);
        cr_expect_str_eq(w.name, want[i / 3][i % 3]);
        cr_expect_gt(w.us, 0);
    }
}

Test(tune, problems_are_told_apart) {
    struct dr_conv c = conv_of(&layers[4]);
    char text[200], other[200];
    dr_cuda_conv_problem(&c, DR_TYPE_F16, DR_CONV_FPROP, 0, false, text, sizeof text);
    cr_expect_str_eq(text, "fp16 128x56x56x64, 64 of 3x3");
    int64_t *const fields[] = {&c.n,  &c.h,  &c.w,  &c.c,  &c.k,  &c.kh, &c.kw, &c.sh,
                               &c.sw, &c.dh, &c.dw, &c.pt, &c.pl, &c.pb, &c.pr, &c.groups};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        ++*fields[i];
        dr_cuda_conv_problem(&c, DR_TYPE_F16, DR_CONV_FPROP, 0, false, other, sizeof other);
        cr_expect_str_neq(other, text, "field %zu", i);
        --*fields[i];
    }
    c.sh = c.sw = 2, c.pt = c.pb = 1, c.pl = c.pr = 2;
    dr_cuda_conv_problem(&c, DR_TYPE_F32, DR_CONV_FPROP, 1, true, text, sizeof text);
    cr_expect_str_eq(text, "tf32 128x56x56x64, 64 of 3x3 stride 2 padding 1x2");
    for (size_t n = 1; n < 60; n++) { /* a short buffer is filled and ended */
        char cut[64];
        memset(cut, '#', sizeof cut);
        dr_cuda_conv_problem(&c, DR_TYPE_F32, DR_CONV_FPROP, 3, true, cut, n);
        cr_expect_lt(strnlen(cut, n), n);
        cr_expect_eq(cut[n], '#');
    }
}

/* ---- the file ---- */

static struct dr_arena *arena;
static struct dr_diag *diag;
static char *folder;
static const char *path;

static void setup(void) {
    arena = dr_arena_create();
    diag = dr_diag_create(arena);
    folder = cli_folder();
    setenv("XDG_CACHE_HOME", folder, 1);
    path = dr_tuned_path(arena, H200);
}
static void teardown(void) {
    dr_arena_destroy(arena);
    cli_folder_remove(folder);
}

Test(tune, where_the_file_is, .init = setup, .fini = teardown) {
    cr_expect_str_eq(path,
                     dr_printf(arena, "%s/dagrun/tune-nvidia-h200-sm-90-132-sms.json", folder));
    setenv("HOME", "/home/x", 1);
    setenv("XDG_CACHE_HOME", "relative", 1); /* is to be ignored */
    cr_expect_str_eq(dr_tuned_path(arena, "../A"), "/home/x/.cache/dagrun/tune-a.json");
    unsetenv("XDG_CACHE_HOME");
    cr_expect_str_eq(dr_tuned_path(arena, "A"), "/home/x/.cache/dagrun/tune-a.json");
    unsetenv("HOME");
    cr_expect_null(dr_tuned_path(arena, "A"));
}

Test(tune, what_is_written_is_read, .init = setup, .fini = teardown) {
    struct dr_tuned t = {.path = path};
    cr_expect_null(dr_tuned_read(arena, diag, path, H200));
    cr_expect_null(dr_tuned_read(arena, diag, NULL, H200));
    *dr_push(arena, &t.row) = (struct dr_tuned_row){"fp16 \"one\"\n", "im2win a", 12.5};
    *dr_push(arena, &t.row) = (struct dr_tuned_row){"two", "im2win b lines", 1e-3};
    cr_assert_eq(dr_tuned_write(&t, H200), 0);
    const struct dr_tuned *r = dr_tuned_read(arena, diag, path, H200);
    cr_assert(r, "%s", dr_diag_text(diag));
    cr_expect_eq(r->row.n, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct dr_tuned_row *row = dr_tuned_find(r, t.row.at[i].problem);
        cr_assert(row);
        cr_expect_str_eq(row->kernel, t.row.at[i].kernel);
        cr_expect_float_eq(row->us, t.row.at[i].us, 1e-9);
    }
    cr_expect_null(dr_tuned_find(r, "three"));
    cr_expect_null(dr_tuned_find(NULL, "two"));
    cr_expect_null(dr_tuned_find(r, NULL));
    cr_expect_eq(dr_diag_warnings(diag), 0);
}

/* What is around the choices of a file that is right. */
static char *around(const char *version, const char *kernels, const char *device,
                    const char *choices) {
    return dr_printf(arena,
                     "{\"dagrun\": %s, \"kernels\": \"%s\", \"device\": \"%s\", \"choices\": %s}",
                     version, kernels, device, choices);
}

Test(tune, hostile_files_are_named_and_ignored, .init = setup, .fini = teardown) {
    const char *const k = dr_tuned_kernels(arena), *const v = "\"" DR_VERSION "\"";
    char *deep = dr_alloc(arena, 100001), *large = dr_alloc(arena, (5 << 20) + 1);
    memset(deep, '[', 100000);
    memset(large, ' ', 5 << 20);
    const struct {
        const char *text, *says;
    } cases[] = {
        {"", "empty"},
        {"{", "not JSON"},
        {"\xff\xfe\x1b[2J", "not JSON"},
        {deep, "not JSON"},
        {large, "too large"},
        {"[]", "no file of --tune"},
        {"{\"dagrun\": 1, \"choices\": {}}", "no file of --tune"},
        {around(v, k, H200, "[]"), "no file of --tune"},
        {around(v, k, H200, "null"), "no file of --tune"},
        {around("\"0.0.1\"", k, H200, "{}"), "another version"},
        {around(v, "0123456789abcdef", H200, "{}"), "another version"},
        {around(v, k, "NVIDIA A100", "{}"), "another card"},
        {around(v, k, H200, "{\"a\": 1}"), "damaged"},
        {around(v, k, H200, "{\"a\": {\"kernel\": \"x\"}}"), "damaged"},
        {around(v, k, H200, "{\"a\": {\"kernel\": \"x\", \"us\": -1}}"), "damaged"},
        {around(v, k, H200, "{\"a\": {\"kernel\": \"x\", \"us\": \"1\"}}"), "damaged"},
        {around(v, k, H200, "{\"a\": {\"kernel\": 3, \"us\": 1}}"), "damaged"},
        {around(v, k, H200, "{\"a\": {\"kernel\": \"x\", \"us\": 1e999}}"), "not JSON"},
        {around(v, k, H200, "{\"a\": {\"kernel\": \"x\", \"us\": 1}, \"a\": {}}"), "not JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dr_diag *d = dr_diag_create(arena);
        dr_make_folders(path);
        FILE *f = fopen(path, "wb");
        cr_assert(f && fputs(cases[i].text, f) >= 0 && fclose(f) == 0);
        cr_expect_null(dr_tuned_read(arena, d, path, H200), "case %zu", i);
        cr_expect_eq(dr_diag_warnings(d), 1, "case %zu", i);
        cr_expect_eq(dr_diag_errors(d), 0, "case %zu", i);
        cr_expect(strstr(dr_diag_text(d), path) && strstr(dr_diag_text(d), cases[i].says),
                  "case %zu: %s", i, dr_diag_text(d));
    }
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_expect_null(dr_tuned_read(arena, diag, path, H200));
    cr_expect_eq(dr_diag_warnings(diag), 1);
    struct dr_tuned t = {.path = path};
    cr_expect_neq(dr_tuned_write(&t, H200), 0);
}

/* ---- plans and sessions ---- */

static const char model[] =
    "dagrun: 1\nprecision: fp16\n"
    "inputs: {image: {shape: [30, 30, 3], dtype: u8}, label: {shape: [], dtype: u8}}\n"
    "data: {batch: 32, train: {image: {synthetic: uniform}, label: {synthetic: uniform}}}\n"
    "subgraphs:\n  net:\n    nodes:\n"
    "      n: {op: normalize, in: image, mean: [0.5], std: [0.5]}\n"
    "      a: {op: conv2d, filters: 64, kernel: 1, activation: relu}\n"
    "      b: {op: conv2d, filters: 64, kernel: 3, padding: 1, activation: relu}\n"
    "      c: {op: conv2d, filters: 64, kernel: 3, padding: 1}\n"
    "      d: {op: conv2d, filters: 64, kernel: 3, padding: 1, groups: 64}\n"
    "      u: {op: conv_transpose2d, filters: 32, kernel: 2, stride: 2}\n"
    "      p: {op: global_avg_pool}\n"
    "      f: {op: flatten}\n"
    "      logits: {op: linear, features: 10}\n"
    "train:\n  losses: {ce: {op: cross_entropy, in: [net.logits, label]}}\n"
    "  optimizer: {op: sgd, lr: 0.1}\n  steps: 10\n";

static double faked[DR_WAYS]; /* us of each way, of any problem */
static uint32_t asked;
static struct dr_status measure(void *device, const struct dr_graph *g, uint32_t v,
                                const struct dr_choice *way, uint32_t n, double *us) {
    (void)device, (void)g, (void)v, (void)way;
    struct dr_status s = {.code = faked[0] > 0 ? DR_OK : DR_FAILED, .node = DR_NONE};
    snprintf(s.text, sizeof s.text, "no luck");
    memcpy(us, faked, n * sizeof *us);
    asked++;
    return s;
}
static const struct dr_exec_ops ops = {.name = "fake", .measure = measure};

static struct dr_session *planned(const struct dr_tuned *tuned) {
    char *yaml = cli_file(folder, "m.yaml", model);
    struct dr_session *s = dr_session_create();
    s->ops = &ops;
    s->dev = h200;
    s->dev.tuned = tuned;
    cr_assert(dr_session_load(s, yaml, NULL, 0) && dr_session_plan(s, DR_MODE_TRAIN, NULL, NULL),
              "%s", dr_diag_text(s->diag));
    free(yaml);
    return s;
}

static const struct dr_choice *choice_of(const struct dr_session *s, const char *node) {
    for (uint32_t v = 0; v < s->main.graph->node.n; v++) {
        if (!strcmp(s->main.graph->node.at[v].name, node)) {
            return &s->main.plan->choice[v];
        }
    }
    cr_assert_fail("no node '%s'", node);
    return NULL;
}

Test(tune, plans_name_the_kernel, .init = setup, .fini = teardown) {
    struct dr_session *s = planned(NULL);
    struct dr_text text = {.arena = arena}, layer = {.arena = arena};
    const struct dr_choice *b = choice_of(s, "net.b");
    cr_expect_str_eq(b->problem, "fp16 32x30x30x64, 64 of 3x3 padding 1");
    cr_expect(!strncmp(b->kernel, "im2win fp16 w", 13) || !strncmp(b->kernel, "im2win fp16 rs", 14),
              "%s", b->kernel);
    cr_expect_gt(b->us, 0);
    cr_expect_str_eq(choice_of(s, "net.c")->kernel, b->kernel);
    cr_expect_str_eq(choice_of(s, "net.d")->kernel, "im2win fp16 depthwise");
    cr_expect(strstr(choice_of(s, "net.a")->kernel, "im2win fp16"));
    cr_expect(choice_of(s, "net.u:dgrad")->problem);
    cr_expect_null(choice_of(s, "net.b:wgrad")->problem);
    cr_expect_str_eq(choice_of(s, "net.c:dgrad")->problem,
                     "dgrad fp16 32x30x30x64, 64 of 3x3 padding 1");
    dr_plan_text(s->main.plan, &s->dev, 1, &text);
    dr_report_layers(s, &layer);
    cr_expect(strstr(text.at, "\nchoices, by the time that is expected of each\n"), "%s", text.at);
    cr_expect(strstr(text.at, dr_printf(arena, "%s: %s, %.1f us (", b->problem, b->kernel, b->us)),
              "%s", text.at);
    cr_expect(strstr(layer.at, dr_printf(arena, "  %s, %.1f us\n", b->kernel, b->us)), "%s",
              layer.at);
    dr_session_destroy(s);
}

Test(tune, workspace_is_planned, .init = setup, .fini = teardown) {
    struct dr_conv_way way[DR_CONV_WAYS];
    const struct dr_conv c = conv_of(&(struct layer){"", 32, 64, 30, 64, 3, 1, 1});
    const int n = dr_cuda_conv_ways(&c, DR_TYPE_F16, 1, &card, way);
    for (int i = 0; i < n; i++) {
        struct dr_tuned t = {.path = path};
        *dr_push(arena, &t.row) =
            (struct dr_tuned_row){"fp16 32x30x30x64, 64 of 3x3 padding 1", way[i].name, 5};
        struct dr_session *s = planned(&t);
        cr_expect_str_eq(choice_of(s, "net.b")->kernel, way[i].name);
        cr_expect_eq(choice_of(s, "net.b")->way, way[i].way);
        cr_expect_eq(choice_of(s, "net.b")->workspace_bytes, way[i].workspace_bytes);
        cr_expect_eq(choice_of(s, "net.b")->us, 5);
        cr_expect_eq(dr_diag_warnings(s->diag), 0, "%s", dr_diag_text(s->diag));
        dr_session_destroy(s);
    }
}

Test(tune, the_choice_changes_the_hash, .init = setup, .fini = teardown) {
    struct dr_session *s = planned(NULL), *again = planned(NULL);
    struct dr_choice way[DR_WAYS];
    uint32_t v = 0;
    while (strcmp(s->main.graph->node.at[v].name, "net.b")) {
        v++;
    }
    const struct dr_node *n = &s->main.graph->node.at[v];
    cr_assert_gt(n->op->ways(s->main.graph, n, way), 2);
    struct dr_tuned t = {.path = path}, odd = {.path = path};
    *dr_push(arena, &t.row) = (struct dr_tuned_row){way[0].problem, way[1].kernel, 5};
    *dr_push(arena, &odd.row) = (struct dr_tuned_row){way[0].problem, "im2win of old", 5};
    struct dr_session *tuned = planned(&t), *unknown = planned(&odd);
    cr_expect_str_eq(dr_checkpoint_kernels(s), dr_checkpoint_kernels(again));
    cr_expect_str_neq(dr_checkpoint_kernels(s), dr_checkpoint_kernels(tuned));
    /* a kernel that is not there: the model's choice, and one warning for both nodes */
    cr_expect_str_eq(dr_checkpoint_kernels(s), dr_checkpoint_kernels(unknown));
    cr_expect_eq(dr_diag_warnings(unknown->diag), 1, "%s", dr_diag_text(unknown->diag));
    cr_expect(strstr(dr_diag_text(unknown->diag), path));
    dr_session_destroy(s);
    dr_session_destroy(again);
    dr_session_destroy(tuned);
    dr_session_destroy(unknown);
}

static void set_faked(double first, double second) {
    faked[0] = first;
    faked[1] = second;
    for (int i = 2; i < DR_WAYS; i++) {
        faked[i] = 1000;
    }
    asked = 0;
}

/* Problems: a, b and c, the gradient of u; d has one way. */
Test(tune, better_kernels_are_kept, .init = setup, .fini = teardown) {
    struct dr_tuned other = {.path = path};
    struct dr_text text = {.arena = arena};
    struct dr_tuning t;
    *dr_push(arena, &other.row) = (struct dr_tuned_row){"of another model", "im2win x", 7};
    struct dr_session *s = planned(&other);
    set_faked(100, 96);
    cr_assert(dr_tune(s, NULL, &t), "%s", s->status.text);
    cr_expect_eq(asked, t.problem.n);
    cr_assert_geq(t.problem.n, 2);
    const struct dr_tuned *r = dr_tuned_read(arena, diag, path, H200);
    cr_assert(r, "%s", dr_diag_text(diag));
    cr_expect_eq(r->row.n, t.problem.n + 1);
    cr_expect_str_eq(dr_tuned_find(r, "of another model")->kernel, "im2win x");
    bool found = false;
    for (uint32_t i = 0; i < t.problem.n; i++) {
        const struct dr_tuned_row *row = dr_tuned_find(r, t.problem.at[i].way[0].problem);
        cr_assert(row);
        cr_expect_str_eq(row->kernel, t.problem.at[i].way[1].kernel);
        cr_expect_eq(row->us, 96);
        if (!strcmp(row->problem, "fp16 32x30x30x64, 64 of 3x3 padding 1")) {
            found = true;
            cr_expect_eq(t.problem.at[i].n_nodes, 2);
        }
    }
    cr_expect(found);
    dr_tune_text(&t, true, &text);
    cr_expect(strstr(text.at, "4.2 % faster") && strstr(text.at, path), "%s", text.at);
    /* 2 % is not worth it: the choice goes, the other model's stays */
    set_faked(100, 98);
    s->dev.tuned = r;
    cr_assert(dr_tune(s, NULL, &t));
    r = dr_tuned_read(arena, diag, path, H200);
    cr_assert(r);
    cr_expect_eq(r->row.n, 1);
    dr_session_destroy(s);
}

Test(tune, failures_write_nothing, .init = setup, .fini = teardown) {
    struct dr_session *s = planned(NULL);
    const volatile sig_atomic_t stopped = 1;
    struct dr_tuning t;
    set_faked(0, 1);
    cr_expect_not(dr_tune(s, NULL, &t));
    cr_expect_eq(s->status.code, DR_FAILED);
    set_faked(100, 1);
    cr_expect_not(dr_tune(s, &stopped, &t));
    cr_expect_eq(s->status.code, DR_INTERRUPTED);
    cr_expect_eq(asked, 0);
    cr_expect_neq(access(path, F_OK), 0);
    s->status.code = DR_OK;
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    cr_expect_not(dr_tune(s, NULL, &t));
    cr_expect_eq(s->status.code, DR_FAILED);
    dr_session_destroy(s);
}

Test(tune, a_cpu_has_nothing_to_tune, .init = setup, .fini = teardown) {
    char *yaml = cli_file(folder, "m.yaml", model);
    struct cli_run r = cli_run(DR_BINARY, dr_printf(arena, "--tune %s", yaml));
    cr_expect_eq(r.code, DR_WRONG_INPUT);
    cr_expect(strstr(r.err, "--tune times the kernels of a GPU"), "%s", r.err);
    cr_expect_str_empty(r.out);
    cr_expect_neq(access(path, F_OK), 0);
    cli_run_free(&r);
    free(yaml);
}
