/* torch.optim.SGD, single-tensor form: same operations in the same order, in fp32. */
#include "kernels/cpu/sgd.h"

#define BLOCK 16384

struct update {
    const struct dr_cpu_sgd *s;
    int64_t n;
    const float *g;
    float *w, *m;
};

static void update_block(void *ctx, size_t i) {
    const struct update *u = ctx;
    const struct dr_cpu_sgd s = *u->s;
    const int64_t begin = (int64_t)i * BLOCK, left = u->n - begin, n = left < BLOCK ? left : BLOCK;
    const float *restrict g = u->g + begin;
    float *restrict w = u->w + begin;
    if (!u->m) {
        for (int64_t k = 0; k < n; k++)
            w[k] -= s.lr * (g[k] * s.clip + s.decay * w[k]);
        return;
    }
    float *restrict m = u->m + begin;
    for (int64_t k = 0; k < n; k++) {
        const float d = g[k] * s.clip + s.decay * w[k];
        m[k] = s.momentum * m[k] + d;
        w[k] -= s.lr * (s.nesterov ? d + s.momentum * m[k] : m[k]);
    }
}

void dr_cpu_sgd(struct dr_cpu *cpu, const struct dr_cpu_sgd *s, int64_t n, const float *g, float *w,
                float *m) {
    struct update u = {s, n, g, w, m};
    dr_cpu_for(cpu, update_block, &u, (size_t)((n + BLOCK - 1) / BLOCK), BLOCK * 0.5);
}
