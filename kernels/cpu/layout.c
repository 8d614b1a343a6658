/* Copies, transposes and borders; see layout.h. */
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

/* ---- any order of axes: a row of the output, its last axis, at a time ---- */
struct permute {
    const struct dr_permute *p;
    int64_t rows, chunk;
    const char *x;
    char *y;
};

static const char *row_start(const struct permute *t, int64_t row) {
    const char *x = t->x;
    for (int64_t a = t->p->rank - 2; a >= 0; a--) {
        x += row % t->p->dim[a] * t->p->step[a];
        row /= t->p->dim[a];
    }
    return x;
}

static void permute_row(const char *x, int64_t step, int64_t n, int64_t bytes, char *y) {
    switch (bytes) { /* constant sizes: one load and one store each */
    case 1:
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i * step];
        break;
    case 4:
        for (int64_t i = 0; i < n; i++)
            memcpy(y + i * 4, x + i * step, 4);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(y + i * bytes, x + i * step, (size_t)bytes);
    }
}

static void permute_chunk(void *ctx, size_t i) {
    const struct permute *t = ctx;
    const struct dr_permute *p = t->p;
    const int64_t first = (int64_t)i * t->chunk, left = t->rows - first, last = p->rank - 1;
    const int64_t end = first + (left < t->chunk ? left : t->chunk), row = p->dim[last] * p->bytes;
    for (int64_t r = first; r < end; r++)
        permute_row(row_start(t, r), p->step[last], p->dim[last], p->bytes, t->y + r * row);
}

void dr_cpu_permute(struct dr_cpu *cpu, const struct dr_permute *p, const void *x, void *y) {
    struct permute t = {.p = p, .rows = 1, .x = x, .y = y};
    const int64_t row = p->dim[p->rank - 1] * p->bytes;
    for (int64_t a = 0; a < p->rank - 1; a++)
        t.rows *= p->dim[a];
    t.chunk = row < COPY_BYTES ? COPY_BYTES / row : 1;
    dr_cpu_for(cpu, permute_chunk, &t, (size_t)((t.rows + t.chunk - 1) / t.chunk),
               (double)(t.chunk * row) * 0.3);
}

/* ---- borders: a row of the frame, or of the picture, at a time ---- */
struct border {
    const struct dr_border *b;
    int64_t rows, chunk, unit;
    const void *value;
    const char *x;
    char *y;
};

static void fill(char *p, int64_t bytes, int64_t unit, const void *value) {
    if (unit == 1)
        memset(p, *(const unsigned char *)value, (size_t)bytes);
    else
        for (int64_t i = 0; i < bytes; i += 4)
            memcpy(p + i, value, 4);
}

static void pad_chunk(void *ctx, size_t i) {
    const struct border *t = ctx;
    const struct dr_border *b = t->b;
    const int64_t first = (int64_t)i * t->chunk, left = t->rows - first;
    const int64_t end = first + (left < t->chunk ? left : t->chunk), row = b->w * b->bytes;
    const int64_t before = b->left * b->bytes, after = b->wo * b->bytes - before - row;
    for (int64_t r = first; r < end; r++) {
        const int64_t h = r % b->ho - b->top;
        char *y = t->y + r * b->wo * b->bytes;
        if (h < 0 || h >= b->h) {
            fill(y, b->wo * b->bytes, t->unit, t->value);
            continue;
        }
        fill(y, before, t->unit, t->value);
        memcpy(y + before, t->x + (r / b->ho * b->h + h) * row, (size_t)row);
        fill(y + before + row, after, t->unit, t->value);
    }
}

static void crop_chunk(void *ctx, size_t i) {
    const struct border *t = ctx;
    const struct dr_border *b = t->b;
    const int64_t first = (int64_t)i * t->chunk, left = t->rows - first;
    const int64_t end = first + (left < t->chunk ? left : t->chunk), row = b->w * b->bytes;
    for (int64_t r = first; r < end; r++) {
        const int64_t from = r / b->h * b->ho + r % b->h + b->top;
        memcpy(t->y + r * row, t->x + (from * b->wo + b->left) * b->bytes, (size_t)row);
    }
}

static void run_border(struct dr_cpu *cpu, void (*f)(void *, size_t), struct border *t,
                       int64_t row) {
    t->chunk = row < COPY_BYTES ? COPY_BYTES / row : 1;
    dr_cpu_for(cpu, f, t, (size_t)((t->rows + t->chunk - 1) / t->chunk),
               (double)(t->chunk * row) * 0.15);
}

void dr_cpu_pad(struct dr_cpu *cpu, const struct dr_border *b, int64_t unit, const void *value,
                const void *x, void *y) {
    struct border t = {.b = b, .rows = b->n * b->ho, .unit = unit, .value = value, .x = x, .y = y};
    run_border(cpu, pad_chunk, &t, b->wo * b->bytes);
}

void dr_cpu_crop(struct dr_cpu *cpu, const struct dr_border *b, const void *x, void *y) {
    struct border t = {.b = b, .rows = b->n * b->h, .x = x, .y = y};
    run_border(cpu, crop_chunk, &t, b->w * b->bytes);
}
