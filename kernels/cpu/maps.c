/* Pointwise functions: a loop a map; one block of 16 Ki elements is one item of work. */
#include "kernels/cpu/maps.h"

#define BLOCK 16384

struct block {
    struct dr_map_args args;
    int64_t n;
};

/* Operands that a map has no use for point at the first one, so that reading all is safe. */
#define X(name, expression)                                                                        \
    static void name##_block(void *ctx, size_t i) {                                                \
        const struct block *k = ctx;                                                               \
        const float p = k->args.p, q = k->args.q;                                                  \
        const int64_t begin = (int64_t)i * BLOCK;                                                  \
        const int64_t end = begin + BLOCK < k->n ? begin + BLOCK : k->n;                           \
        for (int64_t at = begin; at < end; at++) {                                                 \
            const float a = k->args.a[at], b = k->args.b[at], c = k->args.c[at];                   \
            (void)b, (void)c, (void)p, (void)q;                                                    \
            k->args.y[at] = expression;                                                            \
        }                                                                                          \
    }
DR_MAPS(X)
#undef X

void dr_cpu_map(struct dr_cpu *cpu, enum dr_fn fn, int64_t n, const struct dr_map_args *args) {
    static void (*const blocks[DR_FN_COUNT])(void *, size_t) = {
#define X(name, expression) [DR_FN_##name] = name##_block,
        DR_MAPS(X)
#undef X
    };
    struct block k = {.args = *args, .n = n};
    k.args.b = args->b ? args->b : args->a;
    k.args.c = args->c ? args->c : args->a;
    const double ns_each = fn >= DR_FN_sigmoid ? 6 : 0.4; /* those call expf and the like */
    dr_cpu_for(cpu, blocks[fn], &k, (size_t)((n + BLOCK - 1) / BLOCK), ns_each * BLOCK);
}
