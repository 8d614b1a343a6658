/* Pointwise functions: a loop a map; one block of 16 Ki elements is one item of work. */
#include "kernels/cpu/maps.h"

#define BLOCK 16384
#define PART                                                                                       \
    512 /* elements of a chain at a time: the results of its steps stay in the L1 cache            \
         */

/* Operands that a map has no use for point at another one, so that reading all is safe. */
#define X(name, expression)                                                                        \
    static void name##_loop(const struct dr_map_args *k, int64_t n) {                              \
        const float *const x0 = k->a, *const x1 = k->b, *const x2 = k->c, p = k->p, q = k->q;      \
        float *const y = k->y;                                                                     \
        for (int64_t at = 0; at < n; at++) {                                                       \
            const float a = x0[at], b = x1[at], c = x2[at];                                        \
            (void)b, (void)c, (void)p, (void)q;                                                    \
            y[at] = expression;                                                                    \
        }                                                                                          \
    }
DR_MAPS(X)
#undef X

static void (*const loops[DR_FN_COUNT])(const struct dr_map_args *, int64_t) = {
#define X(name, expression) [DR_FN_##name] = name##_loop,
    DR_MAPS(X)
#undef X
};

/* Some call expf and the like. */
static double ns_each(int fn) {
    return fn >= DR_FN_tanh ? 6 : 0.4;
}

struct work {
    const struct dr_map_args *args;
    const struct dr_map_chain *chain;
    int fn;
    int64_t n;
};

static int64_t block_end(const struct work *w, size_t i) {
    const int64_t end = ((int64_t)i + 1) * BLOCK;
    return end < w->n ? end : w->n;
}

static void map_block(void *ctx, size_t i) {
    const struct work *w = ctx;
    const int64_t at = (int64_t)i * BLOCK;
    struct dr_map_args k = *w->args;
    k.a = (const float *)k.a + at;
    k.b = k.b ? (const float *)k.b + at : k.a;
    k.c = k.c ? (const float *)k.c + at : k.a;
    k.y = (float *)k.y + at;
    loops[w->fn](&k, block_end(w, i) - at);
}

void dr_cpu_map(struct dr_cpu *cpu, enum dr_fn fn, int64_t n, const struct dr_map_args *args) {
    struct work w = {.args = args, .fn = (int)fn, .n = n};
    dr_cpu_for(cpu, map_block, &w, (size_t)((n + BLOCK - 1) / BLOCK), ns_each((int)fn) * BLOCK);
}

/* Before there is a result, -1 is an operand that is not read: anything that may be. */
static const float *operand(const struct dr_map_chain *c, int i, const float *last, int64_t at) {
    return i < 0 && last ? last : (const float *)c->x[i < 0 ? 0 : i] + at;
}

static void chain_block(void *ctx, size_t i) {
    const struct work *w = ctx;
    const struct dr_map_chain *c = w->chain;
    const int64_t end = block_end(w, i);
    float result[2][PART];
    for (int64_t at = (int64_t)i * BLOCK; at < end; at += PART) {
        const int64_t n = at + PART < end ? PART : end - at;
        const float *last = NULL;
        for (int s = 0; s < c->n; s++) {
            const struct dr_map_step *step = &c->step[s];
            const struct dr_map_args k = {.a = operand(c, step->a, last, at),
                                          .b = operand(c, step->b, last, at),
                                          .c = operand(c, step->c, last, at),
                                          .p = step->p,
                                          .q = step->q,
                                          .y = s + 1 < c->n ? result[s % 2] : (float *)c->y + at};
            loops[step->fn](&k, n);
            last = k.y;
        }
    }
}

void dr_cpu_chain(struct dr_cpu *cpu, int64_t n, const struct dr_map_chain *chain) {
    struct work w = {.chain = chain, .n = n};
    double ns = 0;
    for (int s = 0; s < chain->n; s++) {
        ns += ns_each(chain->step[s].fn);
    }
    dr_cpu_for(cpu, chain_block, &w, (size_t)((n + BLOCK - 1) / BLOCK), ns * BLOCK);
}
