/* Dropout; see dropout.h. A block of one sample is an item of work. */
#include "kernels/cpu/dropout.h"

#define BLOCK 8192 /* elements, a multiple of 4 */

struct dropout {
    const struct dr_dropout *d;
    const struct dr_batch *batch;
    const float *x;
    float *y;
    int64_t blocks; /* of a sample */
};

static void dropout_block(void *ctx, size_t i) {
    const struct dropout *t = ctx;
    const int64_t sample = (int64_t)i / t->blocks, first = (int64_t)i % t->blocks * BLOCK;
    const int64_t left = t->d->elements - first, end = first + (left < BLOCK ? left : BLOCK);
    const float *x = t->x + sample * t->d->elements;
    float *y = t->y + sample * t->d->elements;
    for (int64_t e = first; e < end; e += 4)
        dr_dropout_four(t->d, t->batch->epoch, t->batch->sample[sample], e / 4,
                        end - e < 4 ? end - e : 4, x + e, y + e);
}

void dr_cpu_dropout(struct dr_cpu *cpu, const struct dr_dropout *d, const struct dr_batch *batch,
                    const float *x, float *y) {
    struct dropout t = {d, batch, x, y, (d->elements + BLOCK - 1) / BLOCK};
    dr_cpu_for(cpu, dropout_block, &t, (size_t)(d->n * t.blocks),
               4.0 * (double)(d->elements < BLOCK ? d->elements : BLOCK));
}
