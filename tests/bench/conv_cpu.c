/* Times im2win on the CPU, one thread, against im2col + OpenBLAS sgemm: fprop, dgrad and wgrad of a
 * few layers in GFLOP/s. Ours and the peer run in turns; the median of the rounds is printed.
 *
 *   gcc -std=c17 -O3 -D_GNU_SOURCE -I. tests/bench/conv_cpu.c kernels/cpu/{pool,im2win*}.c \
 *       -lopenblas -lpthreadpool -lm
 *
 * OpenBLAS 0.3.21 takes CPUs newer than itself for SSE3 machines, four times slower: the table says
 * which kernels it uses, OPENBLAS_CORETYPE=SkylakeX asks for AVX-512. */
#include "kernels/cpu/conv.h"
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 15

struct layer {
    const char *name;
    struct dr_conv s;
    float *x, *w, *y, *col;
    void *workspace;
};

static void *room(int64_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, 64, (size_t)bytes + 64) != 0) {
        abort();
    }
    memset(p, 0, (size_t)bytes + 64);
    return p;
}

static float *random_floats(int64_t n) {
    static uint64_t state = 1;
    float *p = room(n * 4);
    for (int64_t i = 0; i < n; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        p[i] = (float)(state >> 40) * 0x1p-23F - 1;
    }
    return p;
}

/* ---- the peer: one image at a time, columns [ho * wo, kh * kw * c] (groups 1, dilation 1) ---- */
static int64_t pixels(const struct dr_conv *s) {
    return s->ho * s->wo;
}
static int64_t window(const struct dr_conv *s) {
    return s->kh * s->kw * s->c;
}

static void im2col(const struct dr_conv *s, const float *x, float *col) {
    for (int64_t ho = 0; ho < s->ho; ho++) {
        for (int64_t wo = 0; wo < s->wo; wo++) {
            for (int64_t i = 0; i < s->kh; i++) {
                for (int64_t j = 0; j < s->kw; j++, col += s->c) {
                    const int64_t h = ho * s->sh + i - s->pt, w = wo * s->sw + j - s->pl;
                    if (h < 0 || h >= s->h || w < 0 || w >= s->w) {
                        memset(col, 0, (size_t)s->c * sizeof *col);
                    } else {
                        memcpy(col, x + (h * s->w + w) * s->c, (size_t)s->c * sizeof *col);
                    }
                }
            }
        }
    }
}

static void col2im(const struct dr_conv *s, const float *col, float *x) {
    memset(x, 0, (size_t)(s->h * s->w * s->c) * sizeof *x);
    for (int64_t ho = 0; ho < s->ho; ho++) {
        for (int64_t wo = 0; wo < s->wo; wo++) {
            for (int64_t i = 0; i < s->kh; i++) {
                for (int64_t j = 0; j < s->kw; j++, col += s->c) {
                    const int64_t h = ho * s->sh + i - s->pt, w = wo * s->sw + j - s->pl;
                    if (h < 0 || h >= s->h || w < 0 || w >= s->w) {
                        continue;
                    }
                    for (int64_t c = 0; c < s->c; c++) {
                        x[(h * s->w + w) * s->c + c] += col[c];
                    }
                }
            }
        }
    }
}

static void peer_fprop(struct layer *l) {
    const struct dr_conv *s = &l->s;
    for (int64_t n = 0; n < s->n; n++) {
        im2col(s, l->x + n * s->h * s->w * s->c, l->col);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)pixels(s), (int)s->k,
                    (int)window(s), 1, l->col, (int)window(s), l->w, (int)window(s), 0,
                    l->y + n * pixels(s) * s->k, (int)s->k);
    }
}
static void peer_dgrad(struct layer *l) {
    const struct dr_conv *s = &l->s;
    for (int64_t n = 0; n < s->n; n++) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)pixels(s), (int)window(s),
                    (int)s->k, 1, l->y + n * pixels(s) * s->k, (int)s->k, l->w, (int)window(s), 0,
                    l->col, (int)window(s));
        col2im(s, l->col, l->x + n * s->h * s->w * s->c);
    }
}
static void peer_wgrad(struct layer *l) {
    const struct dr_conv *s = &l->s;
    for (int64_t n = 0; n < s->n; n++) {
        im2col(s, l->x + n * s->h * s->w * s->c, l->col);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)s->k, (int)window(s),
                    (int)pixels(s), 1, l->y + n * pixels(s) * s->k, (int)s->k, l->col,
                    (int)window(s), n > 0, l->w, (int)window(s));
    }
}

/* ---- ours ---- */
static struct dr_cpu one_thread = {NULL};
static void our_fprop(struct layer *l) {
    dr_conv_fprop(&one_thread, dr_tiles(), &l->s, l->x, l->w, &(struct dr_epilogue){0}, l->y,
                  l->workspace);
}
static void our_dgrad(struct layer *l) {
    dr_conv_dgrad(&one_thread, dr_tiles(), &l->s, l->y, l->w, l->x, l->workspace);
}
static void our_wgrad(struct layer *l) {
    dr_conv_wgrad(&one_thread, dr_tiles(), &l->s, l->x, l->y, l->w, l->workspace);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare(struct layer *l, const char *what, void (*ours)(struct layer *),
                    void (*peer)(struct layer *)) {
    double t[2][ROUNDS];
    ours(l);
    peer(l);
    for (int i = 0; i < ROUNDS; i++) {
        const double t0 = now();
        ours(l);
        const double t1 = now();
        peer(l);
        t[0][i] = t1 - t0;
        t[1][i] = now() - t1;
    }
    qsort(t[0], ROUNDS, sizeof(double), by_value);
    qsort(t[1], ROUNDS, sizeof(double), by_value);
    const struct dr_conv *s = &l->s;
    const double gflop = 2e-9 * (double)(s->n * pixels(s) * s->k) * (double)window(s);
    const double us = gflop / t[0][ROUNDS / 2], peers = gflop / t[1][ROUNDS / 2];
    printf("%-26s %-6s %8.3f ms %8.1f GFLOP/s | %8.1f GFLOP/s | %5.2f\n", l->name, what,
           t[0][ROUNDS / 2] * 1e3, us, peers, us / peers);
}

int main(void) {
    struct layer layers[] = {
        {.name = "[64,8,8,1] 3x3 -> 32",
         .s = {64, 8, 8, 1, 32, 3, 3, 6, 6, 1, 1, 1, 1, 0, 0, 0, 0, 1}},
        {.name = "[64,32,32,16] 3x3 -> 32",
         .s = {64, 32, 32, 16, 32, 3, 3, 32, 32, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
        {.name = "[16,56,56,64] 3x3 -> 64",
         .s = {16, 56, 56, 64, 64, 3, 3, 56, 56, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
        {.name = "[16,56,56,64] 3x3/2 -> 128",
         .s = {16, 56, 56, 64, 128, 3, 3, 28, 28, 2, 2, 1, 1, 1, 1, 1, 1, 1}},
        {.name = "[16,28,28,128] 1x1 -> 128",
         .s = {16, 28, 28, 128, 128, 1, 1, 28, 28, 1, 1, 1, 1, 0, 0, 0, 0, 1}},
        {.name = "[4,224,224,3] 7x7/2 -> 64",
         .s = {4, 224, 224, 3, 64, 7, 7, 112, 112, 2, 2, 1, 1, 3, 3, 3, 3, 1}},
    };
    openblas_set_num_threads(1);
    printf("tiles %s, OpenBLAS %s, one thread\n%-26s %-6s %30s | %16s | ratio\n",
           dr_tiles_name(dr_tiles()), openblas_get_corename(), "layer", "", "im2win",
           "im2col + sgemm");
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        struct layer *l = &layers[i];
        const struct dr_conv *s = &l->s;
        int64_t bytes = dr_conv_fprop_workspace(s);
        bytes = dr_conv_dgrad_workspace(s) > bytes ? dr_conv_dgrad_workspace(s) : bytes;
        bytes = dr_conv_wgrad_workspace(s) > bytes ? dr_conv_wgrad_workspace(s) : bytes;
        l->x = random_floats(s->n * s->h * s->w * s->c);
        l->w = random_floats(s->k * window(s));
        l->y = random_floats(s->n * pixels(s) * s->k);
        l->col = room(pixels(s) * window(s) * 4);
        l->workspace = room(bytes);
        compare(l, "fprop", our_fprop, peer_fprop);
        compare(l, "dgrad", our_dgrad, peer_dgrad);
        compare(l, "wgrad", our_wgrad, peer_wgrad);
        free(l->x);
        free(l->w);
        free(l->y);
        free(l->col);
        free(l->workspace);
    }
    return 0;
}
