/* random_erasing, mixup and cutmix on the CPU: a sample is an item of work. */
#include "kernels/cpu/mix.h"
#include "kernels/resample.h"
#include <string.h>

/* ---- random_erasing ---- */
struct erase_job {
    const struct dr_erase *e;
    const struct dr_batch *batch;
    const char *x;
    char *y;
};

static void erase_sample(void *ctx, size_t i) {
    const struct erase_job *j = ctx;
    const struct dr_erase *e = j->e;
    const struct dr_box b = dr_erase_of(e, j->batch, (int64_t)i);
    const int64_t row = (int64_t)e->w * e->c, item = e->u8 ? 1 : (int64_t)sizeof(float);
    const size_t bytes = (size_t)(e->h * row * item);
    char *y = j->y + i * bytes;
    memcpy(y, j->x + i * bytes, bytes);
    for (int32_t r = b.y0; r < b.y1; r++) {
        const int64_t first = r * row + (int64_t)b.x0 * e->c, last = r * row + (int64_t)b.x1 * e->c;
        if (e->u8)
            memset(y + first, (uint8_t)e->value, (size_t)(last - first));
        else
            for (int64_t k = first; k < last; k++)
                ((float *)(void *)y)[k] = e->value;
    }
}

void dr_cpu_erase(struct dr_cpu *cpu, const struct dr_erase *e, const struct dr_batch *batch,
                  const void *x, void *y) {
    struct erase_job j = {e, batch, x, y};
    dr_cpu_for(cpu, erase_sample, &j, (size_t)e->n, 0.3 * e->h * e->w * e->c + 300);
}

/* ---- mixup, cutmix ---- */
struct mix_job {
    const struct dr_mix *m;
    const struct dr_batch *batch;
    const struct dr_mix_operand *o;
};

static void mix_bytes(const struct dr_mix_operand *o, const struct dr_mixed *m, size_t i) {
    const size_t n = (size_t)o->per_sample;
    const uint8_t *own = (const uint8_t *)o->x + i * n;
    const uint8_t *other = (const uint8_t *)o->x + (size_t)m->partner * n;
    uint8_t *y = (uint8_t *)o->y + i * n;
    for (size_t k = 0; k < n; k++)
        y[k] = dr_round_u8(dr_mix_floats(m, (float)own[k], (float)other[k]));
}

static void mix_floats(const struct dr_mix_operand *o, const struct dr_mixed *m, size_t i) {
    const size_t n = (size_t)o->per_sample;
    const float *own = (const float *)o->x + i * n;
    const float *other = (const float *)o->x + (size_t)m->partner * n;
    float *y = (float *)o->y + i * n;
    for (size_t k = 0; k < n; k++)
        y[k] = dr_mix_floats(m, own[k], other[k]);
}

static void mix_classes(const struct dr_mix_operand *o, const struct dr_mixed *m, size_t i) {
    const size_t rows = (size_t)(o->per_sample / o->c);
    const int32_t *own = (const int32_t *)o->x + i * rows;
    const int32_t *other = (const int32_t *)o->x + (size_t)m->partner * rows;
    float *y = (float *)o->y + i * (size_t)o->per_sample;
    for (size_t r = 0; r < rows; r++)
        for (int32_t k = 0; k < o->c; k++)
            *y++ = dr_mix_classes(m, own[r], other[r], k, o->c);
}

static void cut_pixels(const struct dr_mix *mix, const struct dr_mix_operand *o,
                       const struct dr_mixed *m, size_t i) {
    const size_t pixel = (size_t)o->c * (size_t)o->item, row = (size_t)mix->w * pixel;
    const size_t bytes = (size_t)mix->h * row;
    const char *other = (const char *)o->x + (size_t)m->partner * bytes;
    char *y = (char *)o->y + i * bytes;
    memcpy(y, (const char *)o->x + i * bytes, bytes);
    for (int32_t r = m->box.y0; r < m->box.y1; r++) {
        const size_t at = (size_t)r * row + (size_t)m->box.x0 * pixel;
        memcpy(y + at, other + at, (size_t)(m->box.x1 - m->box.x0) * pixel);
    }
}

static void mix_sample(void *ctx, size_t i) {
    const struct mix_job *j = ctx;
    const struct dr_mixed m = dr_mix_of(j->m, j->batch, (int64_t)i);
    switch (j->o->kind) {
    case DR_MIX_BYTES:
        mix_bytes(j->o, &m, i);
        break;
    case DR_MIX_FLOATS:
        mix_floats(j->o, &m, i);
        break;
    case DR_MIX_PIXELS:
        cut_pixels(j->m, j->o, &m, i);
        break;
    default:
        mix_classes(j->o, &m, i);
    }
}

void dr_cpu_mix(struct dr_cpu *cpu, const struct dr_mix *m, const struct dr_batch *batch,
                const struct dr_mix_operand *o) {
    struct mix_job j = {m, batch, o};
    dr_cpu_for(cpu, mix_sample, &j, (size_t)m->n, (double)o->per_sample + 600);
}
