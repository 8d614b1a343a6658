/* Batched sgemm; see matmul.h. */
#include "kernels/cpu/matmul.h"
#include <cblas.h>

#define ROWS 128 /* of c, a block */

struct matmul {
    const struct dr_matmul *p;
    int64_t blocks; /* of a product */
    const float *a, *b;
    float *c;
};

static void matmul_block(void *ctx, size_t i) {
    const struct matmul *t = ctx;
    const struct dr_matmul *p = t->p;
    const int64_t batch = (int64_t)i / t->blocks, first = (int64_t)i % t->blocks * ROWS;
    const int64_t rows = p->m - first < ROWS ? p->m - first : ROWS;
    const float *a = t->a + batch * p->m * p->k + first * (p->ta ? 1 : p->k);
    cblas_sgemm(CblasRowMajor, p->ta ? CblasTrans : CblasNoTrans, p->tb ? CblasTrans : CblasNoTrans,
                (int)rows, (int)p->n, (int)p->k, 1.0f, a, (int)(p->ta ? p->m : p->k),
                t->b + batch * p->k * p->n, (int)(p->tb ? p->k : p->n), 0.0f,
                t->c + (batch * p->m + first) * p->n, (int)p->n);
}

void dr_cpu_matmul(struct dr_cpu *cpu, const struct dr_matmul *p, const float *a, const float *b,
                   float *c) {
    struct matmul t = {p, (p->m + ROWS - 1) / ROWS, a, b, c};
    dr_cpu_for(cpu, matmul_block, &t, (size_t)(p->batch * t.blocks), /* about 20 GFLOP/s a core */
               (double)(p->m < ROWS ? p->m : ROWS) * (double)p->n * (double)p->k / 10.0);
}
