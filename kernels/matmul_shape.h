/* `batch` products c [m, n] = op(a) op(b) of depth k, row-major, one after the other in memory.
 * op(a) is [m, k]: a as it is or, with ta, a [k, m] transposed; likewise op(b) [k, n]. */
#ifndef DR_KERNELS_MATMUL_SHAPE_H
#define DR_KERNELS_MATMUL_SHAPE_H
#include <stdbool.h>
#include <stdint.h>
struct dr_matmul {
    int64_t batch, m, n, k; /* m, n, k at most 2^31 - 1 */
    bool ta, tb;
};
#endif
