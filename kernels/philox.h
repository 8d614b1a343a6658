/* Draws: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) by
 * Random123, for host and device alike. A draw depends only on what it is keyed by, never on order.
 */
#ifndef DR_KERNELS_PHILOX_H
#define DR_KERNELS_PHILOX_H
#include <Random123/philox.h>
#include <stdint.h>
#if defined(__CUDACC__)
#define DR_HD __host__ __device__
#else
#define DR_HD
#endif
struct dr_draw {
    uint32_t x[4];
};
/* Four words for draw number `i` of a sample: key = (seed folded with the node's key), counter =
 * (i, epoch, sample low, sample high). */
DR_HD static inline struct dr_draw dr_philox(uint64_t seed, uint64_t node_key, uint32_t epoch,
                                             uint64_t sample, uint32_t i) {
    const uint64_t k = seed ^ (node_key * UINT64_C(0x9E3779B97F4A7C15));
    philox4x32_ctr_t c = {{i, epoch, (uint32_t)sample, (uint32_t)(sample >> 32)}};
    philox4x32_key_t key = {{(uint32_t)k, (uint32_t)(k >> 32)}};
    const philox4x32_ctr_t r = philox4x32(c, key);
    struct dr_draw d = {{r.v[0], r.v[1], r.v[2], r.v[3]}};
    return d;
}
/* [0, 1) with 24 bits. */
DR_HD static inline float dr_uniform(uint32_t x) {
    return (float)(x >> 8) * 0x1p-24f;
}
#endif
