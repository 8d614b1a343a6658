/* Casts on the CPU by integer arithmetic on the bits: the same on every machine, and not the
 * compiler's or the processor's own conversions. */
#include "kernels/cpu/cast.h"
#include <string.h>

#define BLOCK 16384

static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

uint16_t dr_cpu_to_bf16(float x) {
    const uint32_t u = bits_of(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) {
        return (uint16_t)(u >> 16 | 0x40u); /* the low bits alone may have made it a NaN */
    }
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}
float dr_cpu_from_bf16(uint16_t h) {
    return float_of((uint32_t)h << 16);
}

uint16_t dr_cpu_to_f16(float x) {
    const uint32_t u = bits_of(x), sign = u >> 16 & 0x8000u, size = u & 0x7FFFFFFFu;
    if (size > 0x7F800000u) {
        return (uint16_t)(sign | 0x7E00u);
    }
    if (size >= 0x477FF000u) { /* 65520: half way from the largest number to the next */
        return (uint16_t)(sign | 0x7C00u);
    }
    if (size < 0x38800000u) { /* below 2^-14 numbers are multiples of 2^-24: those of this sum */
        return (uint16_t)(sign | (bits_of(float_of(size) + 0.5f) - 0x3F000000u));
    }
    return (uint16_t)(sign | ((size - 0x38000000u + 0x0FFFu + (size >> 13 & 1u)) >> 13));
}
float dr_cpu_from_f16(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31u, f = h & 0x3FFu;
    if (e == 31) {
        return float_of(sign | 0x7F800000u | f << 13);
    }
    if (e == 0) {
        return float_of(sign | bits_of((float)f * 0x1p-24f));
    }
    return float_of(sign | (e + 112u) << 23 | f << 13);
}

struct cast {
    int64_t n;
    enum dr_type from, to;
    const void *x;
    void *y;
    float scale;
};

static void cast_block(void *ctx, size_t block) {
    const struct cast *c = ctx;
    const int64_t begin = (int64_t)block * BLOCK;
    const int64_t end = begin + BLOCK < c->n ? begin + BLOCK : c->n;
    for (int64_t i = begin; i < end; i++) {
        float v = c->from == DR_TYPE_F32   ? ((const float *)c->x)[i]
                  : c->from == DR_TYPE_F16 ? dr_cpu_from_f16(((const uint16_t *)c->x)[i])
                                           : dr_cpu_from_bf16(((const uint16_t *)c->x)[i]);
        v *= c->scale;
        if (c->to == DR_TYPE_F32) {
            ((float *)c->y)[i] = v;
        } else {
            ((uint16_t *)c->y)[i] = c->to == DR_TYPE_F16 ? dr_cpu_to_f16(v) : dr_cpu_to_bf16(v);
        }
    }
}

void dr_cpu_cast(struct dr_cpu *cpu, int64_t n, enum dr_type from, const void *x, float scale,
                 enum dr_type to, void *y) {
    struct cast c = {n, from, to, x, y, scale};
    dr_cpu_for(cpu, cast_block, &c, (size_t)((n + BLOCK - 1) / BLOCK), 1.0 * BLOCK);
}
