/* Sums: one block of 16 Ki elements is one item of work. */
#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/activation.h"
#include <string.h>

#define BLOCK 16384

struct addends {
    int64_t n;
    float *y;
    const void *const *x;
    uint32_t n_x;
    int act;
};

static void add_block(void *ctx, size_t i) {
    const struct addends *p = ctx;
    const int64_t begin = (int64_t)i * BLOCK;
    const int64_t m = begin + BLOCK < p->n ? BLOCK : p->n - begin;
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
    struct addends p = {.n = n, .x = x, .n_x = n_x, .act = act, .y = y};
    dr_cpu_for(cpu, add_block, &p, (size_t)((n + BLOCK - 1) / BLOCK), 0.2 * n_x * BLOCK);
}
