/* Copies and transposes; see layout.h. */
#include "kernels/cpu/layout.h"
#include <string.h>

#define COPY_BYTES 65536 /* about one item of work */
#define TILE 32          /* of a transpose: 32 x 32 floats stay in L1 */

struct layout {
    int64_t rows, bytes, from_step, to_step, chunk;
    const char *from;
    char *to;
    int64_t a, b, tiles;
    const float *x;
    float *y;
};

static void copy_chunk(void *ctx, size_t i) {
    const struct layout *t = ctx;
    const int64_t first = (int64_t)i * t->chunk, left = t->rows - first;
    const int64_t end = first + (left < t->chunk ? left : t->chunk);
    for (int64_t r = first; r < end; r++)
        memcpy(t->to + r * t->to_step, t->from + r * t->from_step, (size_t)t->bytes);
}

void dr_cpu_copy_rows(struct dr_cpu *cpu, int64_t rows, int64_t bytes, const void *from,
                      int64_t from_step, void *to, int64_t to_step) {
    struct layout t = {.rows = rows,
                       .bytes = bytes,
                       .from_step = from_step,
                       .to_step = to_step,
                       .from = from,
                       .to = to};
    t.chunk = bytes < COPY_BYTES ? COPY_BYTES / bytes : 1;
    dr_cpu_for(cpu, copy_chunk, &t, (size_t)((rows + t.chunk - 1) / t.chunk),
               (double)(t.chunk * bytes) * 0.15);
}

static void transpose_tiles(void *ctx, size_t i) {
    const struct layout *t = ctx;
    const int64_t n = (int64_t)i / t->tiles, a0 = (int64_t)i % t->tiles * TILE;
    const int64_t a1 = a0 + TILE < t->a ? a0 + TILE : t->a;
    const float *x = t->x + n * t->a * t->b;
    float *y = t->y + n * t->a * t->b;
    for (int64_t b0 = 0; b0 < t->b; b0 += TILE) {
        const int64_t b1 = b0 + TILE < t->b ? b0 + TILE : t->b;
        for (int64_t b = b0; b < b1; b++)
            for (int64_t a = a0; a < a1; a++)
                y[b * t->a + a] = x[a * t->b + b];
    }
}

void dr_cpu_transpose(struct dr_cpu *cpu, int64_t n, int64_t a, int64_t b, const float *x,
                      float *y) {
    struct layout t = {.a = a, .b = b, .tiles = (a + TILE - 1) / TILE, .x = x, .y = y};
    dr_cpu_for(cpu, transpose_tiles, &t, (size_t)(n * t.tiles), (double)(TILE * b));
}
