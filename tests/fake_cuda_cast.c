/* Cases of the op cast: groups of values with a factor and without; and both directions of each
 * half type on every bit pattern, the numbers half way between two of them, and their neighbours.
 */
#include "tests/fake_cuda_lab.h"
#include "graph/builtin.h"
#include "kernels/cpu/cast.h"
#include "ops/common.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void group(struct lab *l, uint32_t n, const int64_t *size, size_t n_sizes, float factor) {
    enum { MOST = 200 };
    struct lab_case c = lab_case(l, 1);
    uint32_t in[MOST + 1];
    DR_ASSERT(n <= MOST);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = dr_printf(c.r.g->arena, "x%u", i);
        in[i] = i % 2 ? lab_floats(&c, name, DR_SHAPE(size[i % n_sizes]), NULL)
                      : lab_odd_floats(&c, name, DR_SHAPE(size[i % n_sizes]));
    }
    in[n] = lab_floats(&c, "factor", (struct dr_shape){0}, &factor);
    const struct dr_cast_attrs attrs = {.scaled = factor != 1};
    snprintf(c.label, sizeof c.label, "cast of %u values times %g", n, (double)factor);
    rig_node(&c.r, "cast", "cast", &attrs, in, n + (factor != 1 ? 1 : 0));
    lab_check(&c);
}

/* ---- between fp32 and half precision ---- */
static bool same(enum dr_dtype t, const void *a, const void *b, int64_t i) {
    if (t == DR_F32) {
        const float x = ((const float *)a)[i], y = ((const float *)b)[i];
        return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y));
    }
    const uint16_t x = ((const uint16_t *)a)[i], y = ((const uint16_t *)b)[i];
    const uint16_t infinity = t == DR_F16 ? 0x7C00 : 0x7F80;
    return x == y || ((x & 0x7FFF) > infinity && (y & 0x7FFF) > infinity);
}

static struct lab_tally *tally(struct lab *l) {
    uint32_t i = 0;
    while (strcmp(dr_ops()->op[i]->name, "cast") != 0) {
        i++;
    }
    return &l->tally[i];
}

/* Launches x -> y on the device and compares with `want`. */
static void convert(struct lab *l, int64_t n, enum dr_dtype from, const void *x, enum dr_dtype to,
                    const void *want) {
    struct rig r = rig_create(1);
    const uint32_t in = rig_input(&r, "x", from, DR_SHAPE(n), DR_PLAIN, x);
    const uint32_t node = rig_node(&r, "cast", "cast", NULL, &in, 1);
    struct dr_value *v = &r.g->value.at[r.g->node.at[node].out[0]];
    v->dtype = to;
    v->bytes = n * (int64_t)dr_dtype_bytes(to);
    const size_t in_bytes = (size_t)n * dr_dtype_bytes(from), out_bytes = (size_t)v->bytes;
    void *dx = l->device.alloc(in_bytes), *dy = l->device.alloc(out_bytes);
    void *y = malloc(out_bytes);
    DR_ASSERT(dx && dy && y);
    const struct dr_launch launch = {
        .node = &r.g->node.at[node], .value = r.g->value.at, .in = &dx, .out = &dy};
    int err = l->device.upload(dx, x, in_bytes);
    err = err ? err : l->device.launch(&launch, false);
    err = err ? err : l->device.download(y, dy, out_bytes);
    int64_t bad = 0;
    while (!err && bad < n && same(to, y, want, bad)) {
        bad++;
    }
    tally(l)->cases++;
    if (err || bad < n) {
        printf("FAILED cast: %s to %s: %s, element %lld of %lld\n", dr_dtype_name(from),
               dr_dtype_name(to), err ? l->device.error_text(err) : "another number",
               (long long)bad, (long long)n);
        tally(l)->failed++;
        l->failed++;
    } else {
        l->passed++;
    }
    free(y);
    l->device.release(dx);
    l->device.release(dy);
    rig_free(&r);
}

static void every_pattern(struct lab *l, enum dr_dtype t) {
    enum { HALVES = 65536, FLOATS = 4 * HALVES };
    uint16_t *h = malloc(sizeof *h * HALVES), *to = malloc(sizeof *to * FLOATS);
    float *x = malloc(sizeof *x * HALVES), *f = malloc(sizeof *f * FLOATS);
    DR_ASSERT(h && to && x && f);
    for (uint32_t i = 0; i < HALVES; i++) {
        h[i] = (uint16_t)i;
        x[i] = t == DR_F16 ? dr_cpu_from_f16(h[i]) : dr_cpu_from_bf16(h[i]);
    }
    for (uint32_t i = 0; i < HALVES; i++) {
        const float next = i + 1 < HALVES ? x[i + 1] : 65520.0f;
        f[4 * i] = x[i];
        f[4 * i + 1] = 0.5f * x[i] + 0.5f * next;
        f[4 * i + 2] = nextafterf(f[4 * i + 1], 0);
        f[4 * i + 3] = nextafterf(f[4 * i + 1], INFINITY);
    }
    for (uint32_t i = 0; i < FLOATS; i++) {
        to[i] = t == DR_F16 ? dr_cpu_to_f16(f[i]) : dr_cpu_to_bf16(f[i]);
    }
    convert(l, HALVES, t, h, DR_F32, x);
    convert(l, FLOATS, DR_F32, f, t, to);
    for (int64_t n = 1; n < 20; n++) { /* the last elements of a value one by one */
        convert(l, n, t, h + 0x3C00, DR_F32, x + 0x3C00);
        convert(l, 2048 + n, DR_F32, f + 8000, t, to + 8000);
    }
    free(h);
    free(to);
    free(x);
    free(f);
}

void lab_cast_cases(struct lab *l) {
    static const int64_t size[] = {1, 7, 8, 2047, 2048, 2049, 100003};
    if (!lab_chosen(l, dr_op_find(dr_ops(), "cast"))) {
        return;
    }
    for (size_t i = 0; i < DR_COUNT(size); i++) {
        group(l, 1, &size[i], 1, 1);
        group(l, 1, &size[i], 1, 1024);
    }
    group(l, 7, size, 7, 0.5f);
    group(l, 128, size, 6, 1);
    group(l, 129, size, 6, 3);
    group(l, 200, size, 6, 1);
    every_pattern(l, DR_F16);
    every_pattern(l, DR_BF16);
}
