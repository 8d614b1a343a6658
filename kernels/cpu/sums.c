/* Column sums and sums of squares in a fixed order; see sums.h. */
#include "kernels/cpu/sums.h"
#include <string.h>

struct sums {
    int64_t rows, c, chunk;
    const float *x;
    double *partial; /* [chunks, c] */
};

int64_t dr_cpu_sums_bytes(int64_t rows, int64_t c) {
    return dr_cpu_chunks(rows) * c * (int64_t)sizeof(double);
}

static void sum_chunk(void *ctx, size_t i) {
    const struct sums *s = ctx;
    const int64_t begin = (int64_t)i * s->chunk, left = s->rows - begin;
    const int64_t n = left < s->chunk ? left : s->chunk;
    double *acc = s->partial + (int64_t)i * s->c;
    memset(acc, 0, (size_t)s->c * sizeof *acc);
    for (int64_t r = 0; r < n; r++) {
        const float *x = s->x + (begin + r) * s->c;
        for (int64_t k = 0; k < s->c; k++)
            acc[k] += x[k];
    }
}

void dr_cpu_column_sums(struct dr_cpu *cpu, int64_t rows, int64_t c, const float *x,
                        void *workspace, float *out) {
    struct sums s = {rows, c, dr_cpu_chunk_rows(rows), x, workspace};
    const int64_t chunks = dr_cpu_chunks(rows);
    dr_cpu_for(cpu, sum_chunk, &s, (size_t)chunks, (double)(s.chunk * c) * 0.5);
    for (int64_t k = 0; k < c; k++) {
        double total = 0;
        for (int64_t i = 0; i < chunks; i++)
            total += s.partial[i * c + k];
        out[k] = (float)total;
    }
}

static void square_block(void *ctx, size_t i) {
    const struct sums *s = ctx;
    const int64_t begin = (int64_t)i * DR_CPU_SQUARE_BLOCK, left = s->rows - begin;
    const int64_t n = left < DR_CPU_SQUARE_BLOCK ? left : DR_CPU_SQUARE_BLOCK;
    const float *x = s->x + begin;
    double lane[8] = {0}; /* eight running sums, so that the adds do not wait for each other */
    int64_t k = 0;
    for (; k + 8 <= n; k += 8)
        for (int j = 0; j < 8; j++)
            lane[j] += (double)x[k + j] * x[k + j];
    for (int j = 0; k < n; k++, j++)
        lane[j] += (double)x[k] * x[k];
    s->partial[i] =
        ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

double dr_cpu_sum_squares(struct dr_cpu *cpu, int64_t n, const float *x, double *partial) {
    struct sums s = {.rows = n, .x = x, .partial = partial};
    const int64_t blocks = dr_cpu_square_blocks(n);
    dr_cpu_for(cpu, square_block, &s, (size_t)blocks, DR_CPU_SQUARE_BLOCK * 0.3);
    double total = 0;
    for (int64_t i = 0; i < blocks; i++)
        total += partial[i];
    return total;
}
