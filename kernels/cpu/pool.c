/* dr_cpu_for: the only place where kernels meet threads. */
#include "kernels/cpu/cpu.h"

/* Waking the pool costs a few microseconds a thread: less work than this stays inline. */
#define INLINE_BELOW_NS 20e3

void dr_cpu_for(struct dr_cpu *cpu, void (*f)(void *ctx, size_t i), void *ctx, size_t n,
                double item_ns) {
    if (n > 1 && cpu->pool && (double)n * item_ns >= INLINE_BELOW_NS) {
        /* Workers yield: several streams share the cores, none may spin on them. */
        pthreadpool_parallelize_1d(cpu->pool, f, ctx, n, PTHREADPOOL_FLAG_YIELD_WORKERS);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        f(ctx, i);
    }
}
