/* Synthetic samples: what is in one depends on (seed, input, sample) and nothing else. */
#include "augment/column.h"
#include "kernels/philox.h"

#include <math.h>
#include <string.h>

#define SYNTHETIC_KEY UINT64_C(0x73796e746800) /* "synth": the inputs count up from it */

/* Box-Muller: two words to two N(0, 1) values. u1 is in (0, 1], so the logarithm is finite. */
static void normals(uint32_t a, uint32_t b, double *out) {
    const double u1 = ((double)a + 1.0) * 0x1p-32, u2 = (double)b * 0x1p-32;
    const double r = sqrt(-2.0 * log(u1)), angle = 6.283185307179586 * u2;
    out[0] = r * cos(angle);
    out[1] = r * sin(angle);
}

static void store(enum dr_dtype t, void *to, int64_t i, double v) {
    switch (t) {
    case DR_U8:
        ((uint8_t *)to)[i] = (uint8_t)v;
        break;
    case DR_U16:
        ((uint16_t *)to)[i] = (uint16_t)v;
        break;
    case DR_I32:
        ((int32_t *)to)[i] = (int32_t)v;
        break;
    case DR_I64:
        ((int64_t *)to)[i] = (int64_t)v;
        break;
    case DR_F64:
        ((double *)to)[i] = v;
        break;
    default:
        DR_ASSERT(t == DR_F32);
        ((float *)to)[i] = (float)v;
    }
}

static double normal_value(enum dr_dtype t, double z) {
    if (t == DR_F32 || t == DR_F64)
        return z;
    const double max = t == DR_U16 ? 65535 : 255, v = floor(max / 2 + z * (max + 1) / 4 + 0.5);
    return v < 0 ? 0 : v > max ? max : v;
}

static double uniform_value(enum dr_dtype t, int64_t classes, uint32_t x) {
    if (t == DR_F32 || t == DR_F64)
        return (double)dr_uniform(x);
    const uint64_t n = classes > 0 ? (uint64_t)classes : t == DR_U16 ? 65536 : 256;
    return (double)((x * n) >> 32); /* n is at most 2^31: checked by the caller */
}

void dr_synthetic_fill(int kind, uint64_t seed, uint32_t input, uint64_t sample, enum dr_dtype t,
                       int64_t classes, int64_t items, void *to) {
    if (kind == DR_SYNTHETIC_ZEROS) {
        memset(to, 0, (size_t)items * dr_dtype_bytes(t));
        return;
    }
    const uint64_t key = SYNTHETIC_KEY + input;
    const bool bytes = t == DR_U8 && kind == DR_SYNTHETIC_UNIFORM && classes <= 0;
    const int64_t step = bytes ? 16 : 4; /* values a draw */
    for (int64_t i = 0; i < items; i += step) {
        const struct dr_draw d = dr_philox(seed, key, 0, sample, (uint32_t)(i / step));
        const int64_t n = items - i < step ? items - i : step;
        if (bytes) {
            for (int64_t k = 0; k < n; k++)
                ((uint8_t *)to)[i + k] = (uint8_t)(d.x[k >> 2] >> 8 * (k & 3));
        } else if (kind == DR_SYNTHETIC_NORMAL && classes <= 0) {
            double z[4];
            normals(d.x[0], d.x[1], z);
            normals(d.x[2], d.x[3], z + 2);
            for (int64_t k = 0; k < n; k++)
                store(t, to, i + k, normal_value(t, z[k]));
        } else {
            for (int64_t k = 0; k < n; k++)
                store(t, to, i + k, uniform_value(t, classes, d.x[k]));
        }
    }
}
