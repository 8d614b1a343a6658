/* The mode of fake_cuda_lab.h that stores what an op's row permits as fp16 or bf16. Conversions are
 * written out here, from the formats' definitions, so that they share nothing with the device's. */
#include "tests/fake_cuda_lab.h"
#include "ops/common.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */
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
/* Drops the last `drop` bits of the fraction, ties to even; a carry moves into the exponent. */
static float shortened(float x, int drop) {
    const uint32_t u = bits_of(x), even = u >> drop & 1;
    return float_of((u + (1u << (drop - 1)) - 1 + even) >> drop << drop);
}
/* fp16: 10 bits of fraction, normal from 2^-14, below that multiples of 2^-24 (a float's unit from
 * 1/2 to 1), none from 2^16 on. bf16: the upper half of a float. */
float lab_rounded(float x, enum dr_dtype t) {
    if (isnan(x) || (t != DR_F16 && t != DR_BF16)) {
        return x;
    }
    if (t == DR_BF16) {
        return shortened(x, 16);
    }
    if (fabsf(x) < 0x1p-14f) {
        return copysignf((fabsf(x) + 0.5f) - 0.5f, x);
    }
    const float y = shortened(x, 13);
    return fabsf(y) >= 0x1p16f ? copysignf(INFINITY, x) : y;
}

static uint16_t pack(float x, enum dr_dtype t) {
    const float y = lab_rounded(x, t);
    const uint32_t u = bits_of(y), sign = u >> 16 & 0x8000;
    if (t == DR_BF16) {
        return (uint16_t)(isnan(y) ? 0x7FC0 : u >> 16);
    }
    if (!isfinite(y)) {
        return (uint16_t)(isnan(y) ? 0x7E00 : sign | 0x7C00);
    }
    const uint32_t size = fabsf(y) < 0x1p-14f ? (uint32_t)(fabsf(y) * 0x1p24f)
                                              : ((u & 0x7FFFFFFF) >> 13) - ((127u - 15) << 10);
    return (uint16_t)(sign | size);
}
static float unpack(uint16_t h, enum dr_dtype t) {
    if (t == DR_BF16) {
        return float_of((uint32_t)h << 16);
    }
    const uint32_t size = h & 0x7FFF;
    const float y = size > 0x7C00    ? NAN
                    : size == 0x7C00 ? INFINITY
                    : size < 0x400   ? (float)size * 0x1p-24f
                                     : float_of((size << 13) + ((127u - 15) << 23));
    return h & 0x8000 ? -y : y;
}

uint16_t *lab_pack(const float *x, int64_t n, enum dr_dtype t) {
    uint16_t *h = malloc((size_t)(n + 1) * sizeof *h);
    DR_ASSERT(h);
    for (int64_t i = 0; i < n; i++) {
        h[i] = pack(x[i], t);
    }
    return h;
}
float *lab_unpack(const void *h, int64_t n, enum dr_dtype t) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    DR_ASSERT(x);
    for (int64_t i = 0; i < n; i++) {
        x[i] = unpack(((const uint16_t *)h)[i], t);
    }
    return x;
}

/* ---- values ---- */
static bool permits(uint32_t mask, uint32_t i) {
    return mask >> (i < 31 ? i : 31) & 1;
}
static void retype(struct dr_value *v, bool permitted, enum dr_dtype t) {
    if (v->dtype == DR_F32 && permitted) {
        v->dtype = t;
        v->bytes /= 2;
    } else {
        DR_ASSERT(v->dtype != t); /* one operand, but not the other of the same value */
    }
}
struct dr_value *lab_half_values(const struct dr_graph *g, const struct dr_node *n,
                                 enum dr_dtype t) {
    struct dr_value *v = malloc(sizeof *v * g->value.n);
    DR_ASSERT(v);
    memcpy(v, g->value.at, sizeof *v * g->value.n);
    /* The fuse pass appends a norm's vectors, f32, and an addend of the output's type. */
    const bool fuses = n->op->flags & (DR_OP_FUSES_NORM | DR_OP_FUSES_ADD);
    const struct dr_fused f = fuses ? *(const struct dr_fused *)n->attrs : (struct dr_fused){0};
    const uint32_t own = n->n_in - (f.norm ? 4 : 0) - (f.add ? 1 : 0);
    for (uint32_t i = 0; i < n->n_in && t != DR_F32; i++) {
        if (v[n->in[i]].dtype != t) { /* else the same operand once more */
            const bool addend = f.add && i == n->n_in - 1 && permits(n->op->half_out, 0);
            retype(&v[n->in[i]], addend || (i < own && permits(n->op->half_in, i)), t);
        }
    }
    for (uint32_t i = 0; i < n->n_out && t != DR_F32; i++) {
        retype(&v[n->out[i]], permits(n->op->half_out, i), t);
    }
    return v;
}

static bool is_half(const struct dr_value *v) {
    return v->dtype == DR_F16 || v->dtype == DR_BF16;
}

/* The CPU launcher sees floats. */
void lab_half_on_host(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_node *n = l->node;
    const uint32_t all = n->n_in + n->n_out;
    uint32_t values = 0;
    void **at = calloc(all + 1, sizeof *at);
    DR_ASSERT(at);
    for (uint32_t i = 0; i < all; i++) {
        const uint32_t id = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
        at[i] = i < n->n_in ? l->in[i] : l->out[i - n->n_in];
        at[i] = is_half(&l->value[id])
                    ? lab_unpack(at[i], dr_elements(&l->value[id]), l->value[id].dtype)
                    : at[i];
        values = id + 1 > values ? id + 1 : values;
    }
    struct dr_value *v = malloc(sizeof *v * values);
    DR_ASSERT(v);
    memcpy(v, l->value, sizeof *v * values);
    for (uint32_t i = 0; i < values; i++) {
        v[i].bytes *= is_half(&v[i]) ? 2 : 1;
        v[i].dtype = is_half(&v[i]) ? DR_F32 : v[i].dtype;
    }
    struct dr_launch f32 = *l;
    f32.value = v, f32.in = at, f32.out = at + n->n_in;
    n->op->cpu(&f32, cpu);
    for (uint32_t i = 0; i < all; i++) {
        const struct dr_value *was = &l->value[i < n->n_in ? n->in[i] : n->out[i - n->n_in]];
        if (is_half(was)) {
            if (i >= n->n_in) {
                uint16_t *h = lab_pack(at[i], dr_elements(was), was->dtype);
                memcpy(l->out[i - n->n_in], h, (size_t)was->bytes);
                free(h);
            }
            free(at[i]);
        }
    }
    free(v);
    free(at);
}
