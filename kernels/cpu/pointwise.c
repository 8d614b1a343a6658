/* Pointwise kernels: one block of 16 Ki elements is one item of work. */
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/activation.h"
#include <string.h>

#define BLOCK 16384

struct pointwise {
    int64_t n;
    const float *a, *b;
    float *y;
    const void *const *x;
    uint32_t n_x;
    int act;
};

static int64_t block_end(const struct pointwise *p, size_t i) {
    const int64_t end = ((int64_t)i + 1) * BLOCK;
    return end < p->n ? end : p->n;
}

static void run(struct dr_cpu *cpu, void (*f)(void *, size_t), struct pointwise *p,
                double ns_each) {
    dr_cpu_for(cpu, f, p, (size_t)((p->n + BLOCK - 1) / BLOCK), ns_each * BLOCK);
}

static void relu_block(void *ctx, size_t i) {
    const struct pointwise *p = ctx;
    for (int64_t k = (int64_t)i * BLOCK, e = block_end(p, i); k < e; k++)
        p->y[k] = dr_cpu_relu(p->a[k]);
}

void dr_cpu_relu_fprop(struct dr_cpu *cpu, int64_t n, const float *x, float *y) {
    run(cpu, relu_block, &(struct pointwise){.n = n, .a = x, .y = y}, 0.2);
}

static void relu_dgrad_block(void *ctx, size_t i) {
    const struct pointwise *p = ctx;
    for (int64_t k = (int64_t)i * BLOCK, e = block_end(p, i); k < e; k++)
        p->y[k] = p->a[k] <= 0.0f ? 0.0f : p->b[k];
}

void dr_cpu_relu_dgrad(struct dr_cpu *cpu, int64_t n, const float *y, const float *dy, float *dx) {
    run(cpu, relu_dgrad_block, &(struct pointwise){.n = n, .a = y, .b = dy, .y = dx}, 0.3);
}

static void tanh_block(void *ctx, size_t i) {
    const struct pointwise *p = ctx;
    for (int64_t k = (int64_t)i * BLOCK, e = block_end(p, i); k < e; k++)
        p->y[k] = tanhf(p->a[k]);
}

void dr_cpu_tanh_fprop(struct dr_cpu *cpu, int64_t n, const float *x, float *y) {
    run(cpu, tanh_block, &(struct pointwise){.n = n, .a = x, .y = y}, 8);
}

static void tanh_dgrad_block(void *ctx, size_t i) {
    const struct pointwise *p = ctx;
    for (int64_t k = (int64_t)i * BLOCK, e = block_end(p, i); k < e; k++)
        p->y[k] = p->b[k] * (1.0f - p->a[k] * p->a[k]);
}

void dr_cpu_tanh_dgrad(struct dr_cpu *cpu, int64_t n, const float *y, const float *dy, float *dx) {
    run(cpu, tanh_dgrad_block, &(struct pointwise){.n = n, .a = y, .b = dy, .y = dx}, 0.3);
}

static void add_block(void *ctx, size_t i) {
    const struct pointwise *p = ctx;
    const int64_t begin = (int64_t)i * BLOCK, m = block_end(p, i) - begin;
    float *y = p->y + begin;
    memcpy(y, (const float *)p->x[0] + begin, (size_t)m * sizeof *y);
    for (uint32_t j = 1; j < p->n_x; j++) {
        const float *x = (const float *)p->x[j] + begin;
        for (int64_t k = 0; k < m; k++)
            y[k] += x[k];
    }
    dr_cpu_activate(y, m, p->act);
}

void dr_cpu_add(struct dr_cpu *cpu, int64_t n, const void *const *x, uint32_t n_x, int act,
                float *y) {
    struct pointwise p = {.n = n, .x = x, .n_x = n_x, .act = act, .y = y};
    run(cpu, add_block, &p, 0.2 * n_x);
}
