/* argmax by rows; see argmax.h. */
#include "kernels/cpu/argmax.h"

#define ITEM 16384 /* elements of x, about, in an item of work */

struct argmax {
    int64_t rows, k, chunk;
    const float *x;
    bool u8;
    void *y;
};

static int64_t winner(const float *x, int64_t k) {
    int64_t best = 0;
    for (int64_t j = 1; j < k; j++)
        if (x[j] > x[best] || (x[j] != x[j] && x[best] == x[best]))
            best = j;
    return best;
}

static void argmax_chunk(void *ctx, size_t i) {
    const struct argmax *t = ctx;
    const int64_t first = (int64_t)i * t->chunk, left = t->rows - first;
    const int64_t end = first + (left < t->chunk ? left : t->chunk);
    for (int64_t r = first; r < end; r++) {
        const int64_t best = winner(t->x + r * t->k, t->k);
        if (t->u8)
            ((uint8_t *)t->y)[r] = (uint8_t)best;
        else
            ((int32_t *)t->y)[r] = (int32_t)best;
    }
}

void dr_cpu_argmax(struct dr_cpu *cpu, int64_t rows, int64_t k, const float *x, bool u8, void *y) {
    struct argmax t = {.rows = rows, .k = k, .x = x, .u8 = u8, .y = y};
    t.chunk = k < ITEM ? ITEM / k : 1;
    dr_cpu_for(cpu, argmax_chunk, &t, (size_t)((rows + t.chunk - 1) / t.chunk),
               (double)(t.chunk * k) * 1.5);
}
