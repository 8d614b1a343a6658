/* CPU kernels of the augmentation ops. Images are NHWC; a mask [N, H, W] has one channel. */
#ifndef DR_KERNELS_CPU_AUGMENT_H
#define DR_KERNELS_CPU_AUGMENT_H
#include "kernels/batch.h"
#include "kernels/cpu/cpu.h"
#include "kernels/philox.h"
#include <stdbool.h>

/* The draw of one sample: each axis flips with probability p, by its own word of one draw. */
struct dr_flip {
    bool horizontal, vertical; /* which axes may flip */
    double p;
    uint64_t seed, key; /* of the model, of the node */
};
struct dr_flipped {
    bool horizontal, vertical;
};
DR_HD static inline struct dr_flipped dr_flip_draw(const struct dr_flip *f, uint32_t epoch,
                                                   uint64_t sample) {
    const struct dr_draw d = dr_philox(f->seed, f->key, epoch, sample, 0);
    struct dr_flipped r = {f->horizontal && (double)dr_uniform(d.x[0]) < f->p,
                           f->vertical && (double)dr_uniform(d.x[1]) < f->p};
    return r;
}

/* y[i] = x[i] flipped by sample i's draw; x, y [n, h, w] pixels of `pixel` bytes. */
void dr_flip_cpu(struct dr_cpu *cpu, const struct dr_flip *f, const struct dr_batch *batch,
                 const void *x, void *y, int64_t n, int64_t h, int64_t w, size_t pixel);

/* y = x * mul[c] + add[c]; x, y [n / c, c], y f32. */
void dr_normalize_u8_cpu(struct dr_cpu *cpu, const uint8_t *x, float *y, int64_t n, int64_t c,
                         const float *mul, const float *add);
void dr_normalize_f32_cpu(struct dr_cpu *cpu, const float *x, float *y, int64_t n, int64_t c,
                          const float *mul, const float *add);
#endif
