/* Convolutions of more than 2^31 elements on a CUDA device (CONV-09), every pass and precision:
 * main_cuda_large. Without a device, or with too little memory on it, it says so and exits 77
 * (skipped). */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED = 77 };

#ifdef DR_WITH_CUDA
#include "kernels/cuda/conv.h"
#include <cuda_runtime_api.h>

#define SIDE 2048
#define BLOCK (INT64_C(64) << 20) /* bytes copied at a time */
#define NEED (INT64_C(19) << 30)  /* two tensors of 2.2e9 floats, and the rest */

static const struct precision {
    const char *name;
    enum dr_type type;
    bool tf32;
    uint16_t one, two; /* of a half */
} precisions[] = {{"fp32", DR_TYPE_F32, false, 0, 0},
                  {"tf32", DR_TYPE_F32, true, 0, 0},
                  {"fp16", DR_TYPE_F16, false, 0x3C00, 0x4000},
                  {"bf16", DR_TYPE_BF16, false, 0x3F80, 0x4000}};

struct run {
    const struct precision *p;
    struct dr_cuda cuda;
    unsigned char *block; /* BLOCK bytes on the host */
    int failed;
};

static void check(int error, const char *what) {
    if (error) {
        printf("FAILED %s: %s\n", what, cudaGetErrorString((cudaError_t)error));
        exit(1);
    }
}
static void *allocate(int64_t bytes) {
    void *p = NULL;
    check((int)cudaMalloc(&p, (size_t)bytes + 16), "cudaMalloc");
    check((int)cudaMemset(p, 0xFF, (size_t)bytes), "cudaMemset");
    return p;
}
static void wait_for(const struct run *r, int error, const char *what) {
    check(error, what);
    check((int)cudaStreamSynchronize(r->cuda.stream), what);
}

/* ---- elements of the run's type: small whole numbers, exact in each ---- */
static void put(const struct run *r, void *to, int64_t i, int value) {
    if (r->p->type == DR_TYPE_F32) {
        ((float *)to)[i] = (float)value;
    } else {
        ((uint16_t *)to)[i] = value == 0 ? 0 : value == 1 ? r->p->one : r->p->two;
    }
}
static double get(const struct run *r, const void *from, int64_t i) {
    if (r->p->type == DR_TYPE_F32) {
        return ((const float *)from)[i];
    }
    const uint16_t h = ((const uint16_t *)from)[i];
    if (r->p->type == DR_TYPE_BF16) {
        const uint32_t bits = (uint32_t)h << 16;
        float v;
        memcpy(&v, &bits, sizeof v);
        return v;
    }
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    return exponent == 0 ? 0.0 : (1.0 + fraction / 1024.0) * (double)(1 << exponent) / 32768.0;
}

/* The block's first bytes, again and again. */
static void repeat(const struct run *r, void *to, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += BLOCK) {
        const int64_t n = bytes - at < BLOCK ? bytes - at : BLOCK;
        check((int)cudaMemcpy((char *)to + at, r->block, (size_t)n, cudaMemcpyHostToDevice),
              "copy");
    }
}
/* Elements first, ... of a tensor, into the block. */
static const void *read_back(const struct run *r, const void *from, int64_t first, int64_t n) {
    const int64_t size = dr_type_bytes(r->p->type);
    check((int)cudaMemcpy(r->block, (const char *)from + first * size, (size_t)(n * size),
                          cudaMemcpyDeviceToHost),
          "copy");
    return r->block;
}
static void expect(struct run *r, const char *what, int64_t at, double got, double want) {
    if (got != want && r->failed++ < 20) {
        printf("FAILED %s %s: [%lld] is %.9g, not %.9g\n", r->p->name, what, (long long)at, got,
               want);
    }
}

/* Output pixels or taps that see an input pixel of one axis: 2 at the borders, else 3. */
static int reach(int64_t i) {
    return i == 0 || i == SIDE - 1 ? 2 : 3;
}

/* ---- one image of 2048 x 2048 with c channels of ones, and one filter of 3 x 3 ones ---- */
/* In half precision only two channels' weights are not 0, so that sums stay exact. The last pixel
 * holds twos: an index that wraps does not find it. */
static int weight_of(const struct run *r, int64_t channel, int64_t c) {
    return r->p->type == DR_TYPE_F32 || channel == 0 || channel == c - 1;
}
static int64_t sum_of_weights(const struct run *r, int64_t c) {
    return r->p->type == DR_TYPE_F32 ? c : 2;
}

static void check_fprop(struct run *r, const struct dr_conv *c, const void *x, const void *w,
                        void *y) {
    const struct dr_epilogue none = {0};
    wait_for(r, dr_cuda_conv_generic(c, r->p->type, x, w, &none, y, &r->cuda), "fprop");
    const void *got = read_back(r, y, 0, SIDE * SIDE);
    const int64_t sum = sum_of_weights(r, c->c);
    for (int64_t i = 0; i < SIDE * SIDE; i++) {
        const int64_t oy = i / SIDE, ox = i % SIDE;
        const int64_t taps = reach(oy) * reach(ox) + (oy >= SIDE - 2 && ox >= SIDE - 2);
        expect(r, "fprop", i, get(r, got, i), (double)(sum * taps));
    }
}

static void check_dgrad(struct run *r, const struct dr_conv *c, const void *dy, const void *w,
                        void *dx) {
    wait_for(r, dr_cuda_conv_dgrad(c, r->p->type, dy, w, dx, &r->cuda), "dgrad");
    const int64_t row = SIDE * c->c;
    for (int64_t k = 0; k < 5; k++) {
        const int64_t iy = k == 0 ? 0 : k == 1 ? SIDE / 2 : SIDE - 4 + k - 1;
        const void *got = read_back(r, dx, iy * row, row);
        for (int64_t i = 0; i < row; i++) {
            expect(r, "dgrad", iy * row + i, get(r, got, i),
                   weight_of(r, i % c->c, c->c) * reach(iy) * reach(i / c->c));
        }
    }
}

static void check_wgrad(struct run *r, const struct dr_conv *c, const void *x, const void *dy) {
    float *dw = allocate(9 * c->c * 4);
    void *workspace = allocate(dr_cuda_conv_wgrad_bytes(c));
    wait_for(r, dr_cuda_conv_wgrad(c, r->p->type, x, dy, dw, workspace, &r->cuda), "wgrad");
    float *got = (float *)r->block;
    check((int)cudaMemcpy(got, dw, (size_t)(9 * c->c * 4), cudaMemcpyDeviceToHost), "copy");
    for (int64_t i = 0; i < 9 * c->c; i++) {
        const int64_t kh = i / c->c / 3, kw = i / c->c % 3;
        const int64_t rows = SIDE - (kh != 1), columns = SIDE - (kw != 1);
        expect(r, "wgrad", i, got[i], (double)(rows * columns + (kh >= 1 && kw >= 1)));
    }
    cudaFree(dw);
    cudaFree(workspace);
}

static void many_channels(struct run *r, int64_t channels) {
    const struct dr_conv c = {.n = 1,
                              .h = SIDE,
                              .w = SIDE,
                              .c = channels,
                              .k = 1,
                              .kh = 3,
                              .kw = 3,
                              .ho = SIDE,
                              .wo = SIDE,
                              .sh = 1,
                              .sw = 1,
                              .dh = 1,
                              .dw = 1,
                              .pt = 1,
                              .pl = 1,
                              .pb = 1,
                              .pr = 1,
                              .groups = 1};
    const int64_t size = dr_type_bytes(r->p->type), pixels = SIDE * SIDE;
    void *x = allocate(pixels * channels * size), *w = allocate(9 * channels * size);
    void *y = allocate(pixels * size);
    for (int64_t i = 0; i < BLOCK / size; i++) {
        put(r, r->block, i, 1);
    }
    repeat(r, x, pixels * channels * size);
    for (int64_t i = 0; i < channels; i++) {
        put(r, r->block, i, 2);
    }
    check((int)cudaMemcpy((char *)x + (pixels - 1) * channels * size, r->block,
                          (size_t)(channels * size), cudaMemcpyHostToDevice),
          "copy");
    for (int64_t i = 0; i < 9 * channels; i++) {
        put(r, r->block, i, weight_of(r, i % channels, channels));
    }
    check((int)cudaMemcpy(w, r->block, (size_t)(9 * channels * size), cudaMemcpyHostToDevice),
          "copy");
    check_fprop(r, &c, x, w, y);
    for (int64_t i = 0; i < BLOCK / size; i++) {
        put(r, r->block, i, 1);
    }
    repeat(r, y, pixels * size); /* dy from here on */
    check_wgrad(r, &c, x, y);
    check_dgrad(r, &c, y, w, x);
    cudaFree(x);
    cudaFree(w);
    cudaFree(y);
}

/* ---- 33 images of 1024 x 1024 x 64, through filters that are the identity ---- */
static void many_images(struct run *r, int64_t groups) {
    const struct dr_conv c = {.n = 33,
                              .h = 1024,
                              .w = 1024,
                              .c = 64,
                              .k = 64,
                              .kh = 3,
                              .kw = 3,
                              .ho = 1024,
                              .wo = 1024,
                              .sh = 1,
                              .sw = 1,
                              .dh = 1,
                              .dw = 1,
                              .pt = 1,
                              .pl = 1,
                              .pb = 1,
                              .pr = 1,
                              .groups = groups};
    const int64_t size = dr_type_bytes(r->p->type), elements = c.n * c.h * c.w * c.c;
    const int64_t cg = c.c / groups, each = BLOCK / size;
    void *x = allocate(elements * size), *y = allocate(elements * size);
    void *w = allocate(64 * 9 * cg * size);
    for (int64_t i = 0; i < 64 * 9 * cg; i++) {
        const int64_t k = i / cg / 9, tap = i / cg % 9;
        put(r, r->block, i, tap == 4 && i % cg == k % cg);
    }
    check((int)cudaMemcpy(w, r->block, (size_t)(64 * 9 * cg * size), cudaMemcpyHostToDevice),
          "copy");
    for (int64_t i = 0; i < each; i++) {
        put(r, r->block, i, (int)(i * 2654435761 >> 16) % 3);
    }
    repeat(r, x, elements * size);
    unsigned char *want = malloc((size_t)BLOCK);
    if (!want) {
        check((int)cudaErrorMemoryAllocation, "malloc");
    }
    memcpy(want, r->block, (size_t)BLOCK);
    const struct dr_epilogue none = {0};
    for (int pass = 0; pass < 2; pass++) {
        const char *what = pass == 0 ? "fprop of 33 images" : "dgrad of 33 images";
        check((int)cudaMemset(y, 0xFF, (size_t)(elements * size)), "cudaMemset");
        wait_for(r,
                 pass == 0 ? dr_cuda_conv_generic(&c, r->p->type, x, w, &none, y, &r->cuda)
                           : dr_cuda_conv_dgrad(&c, r->p->type, x, w, y, &r->cuda),
                 what);
        const int64_t blocks = elements / each;
        for (int64_t k = 0; k < 4; k++) { /* the first, around 2^31, the last */
            const int64_t b = k == 0 ? 0 : k == 3 ? blocks - 1 : (INT64_C(1) << 31) / each + k - 2;
            const void *got = read_back(r, y, b * each, each);
            for (int64_t i = 0; i < each; i++) {
                expect(r, what, b * each + i, get(r, got, i), get(r, want, i));
            }
        }
    }
    free(want);
    cudaFree(x);
    cudaFree(w);
    cudaFree(y);
}

int main(void) {
    size_t available = 0, all = 0;
    const cudaError_t e = cudaMemGetInfo(&available, &all);
    if (e != cudaSuccess) {
        printf("SKIPPED: no CUDA device (%s)\n", cudaGetErrorString(e));
        return SKIPPED;
    }
    if ((int64_t)available < NEED) {
        printf("SKIPPED: tensors of more than 2^31 elements need %lld bytes, the device has %zu\n",
               (long long)NEED, available);
        return SKIPPED;
    }
    struct cudaDeviceProp properties;
    check((int)cudaGetDeviceProperties(&properties, 0), "properties");
    struct run r = {.cuda.sms = properties.multiProcessorCount, .block = malloc((size_t)BLOCK)};
    if (!r.block) {
        check((int)cudaErrorMemoryAllocation, "malloc");
    }
    check((int)cudaStreamCreate(&r.cuda.stream), "stream");
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        r.p = &precisions[i];
        r.cuda.tf32 = r.p->tf32;
        for (int64_t c = 512; c <= 514; c++) { /* 512 channels: 2^31 elements */
            many_channels(&r, c);
        }
        many_images(&r, 1);
        many_images(&r, 64);
        printf("%s: %d failed so far\n", r.p->name, r.failed);
        fflush(stdout);
    }
    free(r.block);
    return r.failed ? 1 : 0;
}
#else
int main(void) {
    printf("SKIPPED: built without CUDA\n");
    return SKIPPED;
}
#endif
