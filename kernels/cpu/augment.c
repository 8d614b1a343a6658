/* CPU kernels of random_flip and normalize: both move every byte once, so they are split into
 * samples and into runs of whole pixels, and left to the compiler to vectorise. */
#include "kernels/cpu/augment.h"

#include <string.h>

struct flip_job {
    const struct dr_flip *f;
    const struct dr_batch *batch;
    const unsigned char *x;
    unsigned char *y;
    size_t h, w, pixel;
};

/* One row mirrored; the common pixel sizes get loops with a constant stride. */
static void mirror(const unsigned char *x, unsigned char *y, size_t w, size_t pixel) {
    switch (pixel) {
    case 1:
        for (size_t i = 0; i < w; i++)
            y[i] = x[w - 1 - i];
        break;
    case 3:
        for (size_t i = 0; i < w; i++)
            memcpy(y + 3 * i, x + 3 * (w - 1 - i), 3);
        break;
    case 4:
        for (size_t i = 0; i < w; i++)
            memcpy(y + 4 * i, x + 4 * (w - 1 - i), 4);
        break;
    default:
        for (size_t i = 0; i < w; i++)
            memcpy(y + pixel * i, x + pixel * (w - 1 - i), pixel);
    }
}

static void flip_sample(void *ctx, size_t i) {
    const struct flip_job *j = ctx;
    const struct dr_flipped d = dr_flip_draw(j->f, j->batch->epoch, j->batch->sample[i]);
    const size_t row = j->w * j->pixel;
    const unsigned char *x = j->x + i * j->h * row;
    unsigned char *y = j->y + i * j->h * row;
    for (size_t r = 0; r < j->h; r++) {
        const unsigned char *from = x + (d.vertical ? j->h - 1 - r : r) * row;
        if (d.horizontal)
            mirror(from, y + r * row, j->w, j->pixel);
        else
            memcpy(y + r * row, from, row);
    }
}

void dr_flip_cpu(struct dr_cpu *cpu, const struct dr_flip *f, const struct dr_batch *batch,
                 const void *x, void *y, int64_t n, int64_t h, int64_t w, size_t pixel) {
    struct flip_job j = {f, batch, x, y, (size_t)h, (size_t)w, pixel};
    dr_cpu_for(cpu, flip_sample, &j, (size_t)n, 0.3 * (double)(h * w) * (double)pixel);
}

struct normalize_job {
    const uint8_t *u8; /* one of the two */
    const float *f32;
    float *y;
    size_t pixels, c, run;
    const float *mul, *add;
};

/* One run of pixels: `run` is a number of pixels chosen from the shape alone. */
static void normalize_run(void *ctx, size_t i) {
    const struct normalize_job *j = ctx;
    const size_t first = i * j->run, c = j->c;
    const size_t n = j->pixels - first < j->run ? j->pixels - first : j->run;
    float *y = j->y + first * c;
    if (j->u8) {
        const uint8_t *x = j->u8 + first * c;
        for (size_t p = 0; p < n; p++, x += c, y += c)
            for (size_t k = 0; k < c; k++)
                y[k] = (float)x[k] * j->mul[k] + j->add[k];
    } else {
        const float *x = j->f32 + first * c;
        for (size_t p = 0; p < n; p++, x += c, y += c)
            for (size_t k = 0; k < c; k++)
                y[k] = x[k] * j->mul[k] + j->add[k];
    }
}

static void normalize(struct dr_cpu *cpu, struct normalize_job *j, int64_t n) {
    j->pixels = (size_t)n / j->c;
    j->run = j->c < 4096 ? 4096 / j->c : 1;
    dr_cpu_for(cpu, normalize_run, j, (j->pixels + j->run - 1) / j->run,
               0.7 * (double)(j->run * j->c));
}

void dr_normalize_u8_cpu(struct dr_cpu *cpu, const uint8_t *x, float *y, int64_t n, int64_t c,
                         const float *mul, const float *add) {
    struct normalize_job j = {.u8 = x, .y = y, .c = (size_t)c, .mul = mul, .add = add};
    normalize(cpu, &j, n);
}

void dr_normalize_f32_cpu(struct dr_cpu *cpu, const float *x, float *y, int64_t n, int64_t c,
                          const float *mul, const float *add) {
    struct normalize_job j = {.f32 = x, .y = y, .c = (size_t)c, .mul = mul, .add = add};
    normalize(cpu, &j, n);
}
