/* Counts of predictions, by chunks of rows (sums.h). Counts in double are exact to 2^53. */
#include "kernels/cpu/confusion.h"
#include "kernels/cpu/classes.h"
#include <string.h>

struct tally {
    const struct dr_cpu_classes *c;
    const float *x;
    int64_t chunk, width; /* counts of a chunk: 2, or 3 a class */
    bool by_class;
    double *partial; /* [chunks, width] */
};

static void tally_chunk(void *ctx, size_t i) {
    const struct tally *t = ctx;
    const int64_t begin = (int64_t)i * t->chunk, k = t->c->k, n = dr_predicted_classes(k);
    const int64_t end = begin + t->chunk < t->c->rows ? begin + t->chunk : t->c->rows;
    double *count = t->partial + (int64_t)i * t->width;
    int64_t class;
    memset(count, 0, (size_t)t->width * sizeof *count);
    for (int64_t row = begin; row < end; row++) {
        if (!counts(t->c, row, &class))
            continue;
        const int64_t named = dr_predict(t->x + row * k, k);
        if (!t->by_class) {
            count[0] += named == class;
            count[1] += 1;
            continue;
        }
        if (named >= 0) {
            count[named] += named == class;
            count[n + named] += 1;
        }
        if (class >= 0 && class < n)
            count[2 * n + class] += 1;
    }
}

static void tally(struct dr_cpu *cpu, struct tally *t, double *out) {
    const int64_t chunks = dr_cpu_chunks(t->c->rows);
    t->chunk = dr_cpu_chunk_rows(t->c->rows);
    dr_cpu_for(cpu, tally_chunk, t, (size_t)chunks, (double)(t->chunk * (t->c->k + 2)));
    memset(out, 0, (size_t)t->width * sizeof *out);
    for (int64_t i = 0; i < chunks; i++)
        for (int64_t j = 0; j < t->width; j++)
            out[j] += t->partial[i * t->width + j];
}

void dr_cpu_pixel_accuracy(struct dr_cpu *cpu, const struct dr_cpu_classes *c, const float *x,
                           void *workspace, double *out) {
    tally(cpu, &(struct tally){.c = c, .x = x, .width = 2, .partial = workspace}, out);
}

void dr_cpu_confusion(struct dr_cpu *cpu, const struct dr_cpu_classes *c, const float *x,
                      void *workspace, double *out) {
    struct tally t = {.c = c,
                      .x = x,
                      .width = 3 * dr_predicted_classes(c->k),
                      .by_class = true,
                      .partial = workspace};
    tally(cpu, &t, out);
}
