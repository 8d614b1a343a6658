/* torch.optim.Adam and AdamW, single-tensor form: same operations in the same order, in fp32, with
 * the step's factors in double. */
#include "kernels/cpu/adam.h"
#include <math.h>

#define BLOCK 16384

struct update {
    float clip, decay, keep, new1, beta2, new2, rate, root, eps;
    int64_t n;
    const float *g;
    float *w, *m, *v;
};

static void update_block(void *ctx, size_t block) {
    const struct update u = *(const struct update *)ctx;
    const int64_t begin = (int64_t)block * BLOCK, left = u.n - begin,
                  n = left < BLOCK ? left : BLOCK;
    const float *restrict g = u.g + begin;
    float *restrict w = u.w + begin, *restrict m = u.m + begin, *restrict v = u.v + begin;
    for (int64_t i = 0; i < n; i++) {
        const float d = g[i] * u.clip + u.decay * w[i];
        m[i] += u.new1 * (d - m[i]);
        v[i] = u.beta2 * v[i] + u.new2 * d * d;
        w[i] = w[i] * u.keep - u.rate * m[i] / (sqrtf(v[i]) / u.root + u.eps);
    }
}

void dr_cpu_adam(struct dr_cpu *cpu, const struct dr_cpu_adam *s, int64_t n, const float *g,
                 float *w, float *m, float *v) {
    struct update u = {
        .clip = s->clip,
        .decay = s->decoupled ? 0.0f : (float)s->decay,
        .keep = s->decoupled ? (float)(1.0 - s->lr * s->decay) : 1.0f,
        .new1 = (float)(1.0 - s->beta1),
        .beta2 = (float)s->beta2,
        .new2 = (float)(1.0 - s->beta2),
        .rate = (float)(s->lr / (1.0 - pow(s->beta1, (double)s->step))),
        .root = (float)sqrt(1.0 - pow(s->beta2, (double)s->step)),
        .eps = (float)s->eps,
        .n = n,
        .g = g,
        .w = w,
        .m = m,
        .v = v,
    };
    dr_cpu_for(cpu, update_block, &u, (size_t)((n + BLOCK - 1) / BLOCK), BLOCK * 2.0);
}
