/* Bias gradient: column sums of dy [rows, k], blocked as in im2win_wgrad.c so that long sums keep
 * their small terms: 128 rows, then the blocks of a chunk, then the chunks, in index order. */
#include "kernels/cpu/im2win.h"
#include <string.h>

#define BLOCK 128
#define CHUNKS 32

struct sums {
    int64_t rows, k, chunks;
    const float *dy;
    float *at; // [chunks][2][k]: the chunk's sum, and its block's
};

static int64_t chunks_of(int64_t rows) {
    return dr_min(dr_div_up(rows, 8 * BLOCK), CHUNKS);
}

int64_t dr_bias_grad_workspace(int64_t rows, int64_t k) {
    return dr_mul(dr_mul(chunks_of(rows), 2 * (int64_t)sizeof(float)), k);
}

static void add_rows(float *restrict to, const float *restrict from, int64_t rows, int64_t k) {
    for (int64_t r = 0; r < rows; r++, from += k) {
        for (int64_t i = 0; i < k; i++) {
            to[i] += from[i];
        }
    }
}

static void chunk_sums(void *ctx, size_t chunk) {
    const struct sums *s = ctx;
    const int64_t i = (int64_t)chunk, blocks = dr_div_up(s->rows, BLOCK);
    float *sum = s->at + i * 2 * s->k, *block = sum + s->k;
    memset(sum, 0, (size_t)s->k * sizeof *sum);
    const int64_t last = blocks * (i + 1) / s->chunks;
    for (int64_t b = blocks * i / s->chunks; b < last; b++) {
        memset(block, 0, (size_t)s->k * sizeof *block);
        add_rows(block, s->dy + b * BLOCK * s->k, dr_min(BLOCK, s->rows - b * BLOCK), s->k);
        add_rows(sum, block, 1, s->k);
    }
}

void dr_bias_grad(struct dr_cpu *cpu, int64_t rows, int64_t k, const float *dy, float *db,
                  void *workspace) {
    struct sums s = {rows, k, chunks_of(rows), dy, workspace};
    dr_cpu_for(cpu, chunk_sums, &s, (size_t)s.chunks, (double)rows * (double)k / (double)s.chunks);
    memset(db, 0, (size_t)k * sizeof *db);
    for (int64_t i = 0; i < s.chunks; i++) {
        add_rows(db, s.at + i * 2 * k, 1, k);
    }
}
