/* Matrix products of linear: sgemm over blocks of output rows. Sizes above 2^31 - 1 do not fit
 * OpenBLAS's 32-bit interface; the ops refuse them (linear_infer). */
#include "kernels/cpu/linear.h"
#include "kernels/cpu/epilogue.h"
#include <cblas.h>
#include <string.h>

struct product {
    int64_t m, in, out, block;
    const float *x, *w, *dy;
    const struct dr_epilogue *e;
    float *y;
};

/* Rows a block: few enough for two to eight cores to share a batch, enough for sgemm to pay. */
static int64_t row_block(int64_t rows) {
    return rows >= 1024 ? 128 : 32;
}

static int64_t rows_of(int64_t rows, int64_t block, size_t i) {
    const int64_t left = rows - (int64_t)i * block;
    return left < block ? left : block;
}

static void fprop_block(void *ctx, size_t i) {
    const struct product *p = ctx;
    const int64_t begin = (int64_t)i * p->block, rows = rows_of(p->m, p->block, i);
    float *y = p->y + begin * p->out;
    const float *b = p->e->bias, *add = p->e->add;
    if (b)
        for (int64_t r = 0; r < rows; r++)
            memcpy(y + r * p->out, b, (size_t)p->out * sizeof *y);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)p->out, (int)p->in, 1.0f,
                p->x + begin * p->in, (int)p->in, p->w, (int)p->in, b ? 1.0f : 0.0f, y,
                (int)p->out);
    dr_cpu_finish(p->e, rows, p->out, add ? add + begin * p->out : NULL, y);
}

static void dgrad_block(void *ctx, size_t i) {
    const struct product *p = ctx;
    const int64_t begin = (int64_t)i * p->block, rows = rows_of(p->m, p->block, i);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)p->in, (int)p->out, 1.0f,
                p->dy + begin * p->out, (int)p->out, p->w, (int)p->in, 0.0f, p->y + begin * p->in,
                (int)p->in);
}

static void wgrad_block(void *ctx, size_t i) {
    const struct product *p = ctx;
    const int64_t begin = (int64_t)i * p->block, rows = rows_of(p->out, p->block, i);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)rows, (int)p->in, (int)p->m, 1.0f,
                p->dy + begin, (int)p->out, p->x, (int)p->in, 0.0f, p->y + begin * p->in,
                (int)p->in);
}

static void run(struct dr_cpu *cpu, void (*f)(void *, size_t), struct product *p, int64_t rows) {
    p->block = row_block(rows);
    /* about 20 GFLOP/s a core */
    const double ns =
        (double)p->block / (double)rows * (double)p->m * (double)p->in * (double)p->out / 10.0;
    dr_cpu_for(cpu, f, p, (size_t)((rows + p->block - 1) / p->block), ns);
}

void dr_cpu_linear_fprop(struct dr_cpu *cpu, int64_t m, int64_t in, int64_t out, const float *x,
                         const float *w, const struct dr_epilogue *e, float *y) {
    struct product p = {.m = m, .in = in, .out = out, .x = x, .w = w, .e = e, .y = y};
    run(cpu, fprop_block, &p, m);
}

void dr_cpu_linear_dgrad(struct dr_cpu *cpu, int64_t m, int64_t in, int64_t out, const float *dy,
                         const float *w, float *dx) {
    struct product p = {.m = m, .in = in, .out = out, .w = w, .dy = dy, .y = dx};
    run(cpu, dgrad_block, &p, m);
}

void dr_cpu_linear_wgrad(struct dr_cpu *cpu, int64_t m, int64_t in, int64_t out, const float *x,
                         const float *dy, float *dw) {
    struct product p = {.m = m, .in = in, .out = out, .x = x, .dy = dy, .y = dw};
    run(cpu, wgrad_block, &p, out);
}
