/* Reductions over the rows of a matrix [rows, c], fp32 in, accumulated in double.
 *
 * The rows are cut into chunks by shape alone; each chunk is summed in row order into its own
 * partial, and the partials are merged in chunk order: the same bits on any number of threads. */
#ifndef DR_KERNELS_CPU_SUMS_H
#define DR_KERNELS_CPU_SUMS_H
#include "kernels/cpu/cpu.h"
#include <stdint.h>
/* How rows are cut: at least 256 a chunk, at most 128 chunks. */
static inline int64_t dr_cpu_chunk_rows(int64_t rows) {
    const int64_t r = (rows + 127) / 128;
    return r < 256 ? 256 : r;
}
static inline int64_t dr_cpu_chunks(int64_t rows) {
    const int64_t r = dr_cpu_chunk_rows(rows);
    return (rows + r - 1) / r;
}
/* out[c] = sum over rows of x[row, c]. workspace: dr_cpu_sums_bytes. */
int64_t dr_cpu_sums_bytes(int64_t rows, int64_t c);
void dr_cpu_column_sums(struct dr_cpu *cpu, int64_t rows, int64_t c, const float *x,
                        void *workspace, float *out);
/* The sum of squares of n values, by blocks of DR_CPU_SQUARE_BLOCK; partial: one a block. */
#define DR_CPU_SQUARE_BLOCK 16384
static inline int64_t dr_cpu_square_blocks(int64_t n) {
    return (n + DR_CPU_SQUARE_BLOCK - 1) / DR_CPU_SQUARE_BLOCK;
}
double dr_cpu_sum_squares(struct dr_cpu *cpu, int64_t n, const float *x, double *partial);
#endif
