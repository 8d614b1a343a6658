/* What a CPU kernel may use: the pool shared by all streams. Work is split by shape, never by the
 * number of threads, so results do not depend on it. */
#ifndef DR_KERNELS_CPU_H
#define DR_KERNELS_CPU_H
#include <pthreadpool.h>
#include <stddef.h>
#include <stdint.h>
struct dr_cpu {
    pthreadpool_t pool; /* may be called from several threads at once; NULL: run inline */
};
/* f(ctx, i) for i in [0, n), in parallel. `grain_ns`: the caller's guess of one item's time; below
 * about 20 us in all it runs inline. */
void dr_cpu_for(struct dr_cpu *cpu, void (*f)(void *ctx, size_t i), void *ctx, size_t n,
                double item_ns);
#endif
