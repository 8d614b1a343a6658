/* color_jitter and grayscale on the CPU: a sample is an item of work. */
#include "kernels/cpu/colour.h"
#include <string.h>

struct job {
    const struct dr_colour *c;
    const struct dr_batch *batch;
    const void *x;
    void *y;
};

static inline void load(const struct job *j, int64_t at, float *p) {
    for (int32_t k = 0; k < j->c->c; k++)
        p[k] = j->c->u8 ? (float)((const uint8_t *)j->x)[at + k] : ((const float *)j->x)[at + k];
}
static inline void store(const struct job *j, int64_t at, const float *p) {
    for (int32_t k = 0; k < j->c->c; k++) {
        if (j->c->u8)
            ((uint8_t *)j->y)[at + k] = (uint8_t)p[k];
        else
            ((float *)j->y)[at + k] = p[k];
    }
}

/* The mean grey of a sample before contrast. */
static float mean_of(const struct job *j, const struct dr_coloured *r, int64_t first) {
    const struct dr_colour *c = j->c;
    const int steps = dr_colour_before_contrast(r);
    int64_t sum = 0;
    for (int64_t i = 0; i < c->pixels; i++) {
        float p[3] = {0};
        load(j, first + i * c->c, p);
        dr_colour_pixel(c, r, 0, steps, p);
        sum += dr_grey_units(dr_grey(p, c->c, c->u8), c->u8);
    }
    return dr_grey_mean(sum, c->pixels, c->u8);
}

static void colour_sample(void *ctx, size_t i) {
    const struct job *j = ctx;
    const struct dr_colour *c = j->c;
    const struct dr_coloured r = dr_colour_of(c, j->batch, (int64_t)i);
    const int64_t first = (int64_t)i * c->pixels * c->c;
    const size_t bytes = (size_t)(c->pixels * c->c) * (c->u8 ? 1 : sizeof(float));
    if (c->grayscale && !r.grey) {
        memcpy((char *)j->y + i * bytes, (const char *)j->x + i * bytes, bytes);
        return;
    }
    const float mean = !c->grayscale && c->on[DR_CONTRAST] ? mean_of(j, &r, first) : 0;
    for (int64_t k = 0; k < c->pixels; k++) {
        float p[3] = {0};
        load(j, first + k * c->c, p);
        if (c->grayscale)
            dr_colour_grey(c, p);
        else
            dr_colour_pixel(c, &r, mean, DR_JITTERS, p);
        store(j, first + k * c->c, p);
    }
}

void dr_cpu_colour(struct dr_cpu *cpu, const struct dr_colour *c, const struct dr_batch *batch,
                   const void *x, void *y) {
    struct job j = {c, batch, x, y};
    const double ns = c->grayscale ? 3.0 : 30.0;
    dr_cpu_for(cpu, colour_sample, &j, (size_t)c->n, ns * (double)c->pixels + 300);
}
