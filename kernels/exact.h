/* exp, log, sine and cosine in double that have the same bits on every device: made of + - * / and
 * scaling by powers of two alone, which IEEE 754 fixes. What draws with them finds the same angle
 * and the same rectangle on the CPU and the GPU, where the libraries' functions differ in the last
 * bit. Errors are below 4e-16 of the result.
 *
 * Files that include this are compiled without contraction (a * b + c rounds twice): see
 * CMakeLists.txt. */
#ifndef DR_KERNELS_EXACT_H
#define DR_KERNELS_EXACT_H
#include "kernels/philox.h"
#include <math.h>

#define DR_LN2_HIGH 6.93147180369123816490e-01 /* 32 bits, so that k times it is exact */
#define DR_LN2_LOW 1.90821492927058770002e-10

/* 0 below -700, exp(700) above 700. */
DR_HD static inline double dr_exact_exp(double x) {
    if (!(x > -700)) {
        return 0;
    }
    x = x > 700 ? 700 : x;
    const double k = floor(x * 1.4426950408889634074 + 0.5);
    const double r = (x - k * DR_LN2_HIGH) - k * DR_LN2_LOW; /* |r| < 0.35 */
    double y = 1.0 / 87178291200;                            /* Taylor's series: 1 / 14!, ... */
    y = y * r + 1.0 / 6227020800;
    y = y * r + 1.0 / 479001600;
    y = y * r + 1.0 / 39916800;
    y = y * r + 1.0 / 3628800;
    y = y * r + 1.0 / 362880;
    y = y * r + 1.0 / 40320;
    y = y * r + 1.0 / 5040;
    y = y * r + 1.0 / 720;
    y = y * r + 1.0 / 120;
    y = y * r + 1.0 / 24;
    y = y * r + 1.0 / 6;
    y = y * r + 0.5;
    y = y * r + 1;
    y = y * r + 1;
    return ldexp(y, (int)k);
}

/* Of a positive, finite x. With m in [0.7, 1.42): log m = 2 atanh((m - 1) / (m + 1)). */
DR_HD static inline double dr_exact_log(double x) {
    int e;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752440) {
        m = m * 2;
        e--;
    }
    const double s = (m - 1) / (m + 1), s2 = s * s;
    double sum = 1.0 / 23;
    sum = sum * s2 + 1.0 / 21;
    sum = sum * s2 + 1.0 / 19;
    sum = sum * s2 + 1.0 / 17;
    sum = sum * s2 + 1.0 / 15;
    sum = sum * s2 + 1.0 / 13;
    sum = sum * s2 + 1.0 / 11;
    sum = sum * s2 + 1.0 / 9;
    sum = sum * s2 + 1.0 / 7;
    sum = sum * s2 + 0.2;
    sum = sum * s2 + 1.0 / 3;
    sum = sum * s2 + 1;
    return e * DR_LN2_HIGH + (e * DR_LN2_LOW + 2 * s * sum);
}

/* Exact at multiples of 90 degrees. */
DR_HD static inline void dr_exact_turn(double degrees, double *sine, double *cosine) {
    const double quarter = floor(degrees / 90 + 0.5);
    const double x = (degrees - 90 * quarter) * 0.017453292519943295769, x2 = x * x;
    double s = -1.0 / 121645100408832000, c = -1.0 / 6402373705728000; /* |x| <= pi / 4 */
    s = s * x2 + 1.0 / 355687428096000;
    s = s * x2 - 1.0 / 1307674368000;
    s = s * x2 + 1.0 / 6227020800;
    s = s * x2 - 1.0 / 39916800;
    s = s * x2 + 1.0 / 362880;
    s = s * x2 - 1.0 / 5040;
    s = s * x2 + 1.0 / 120;
    s = s * x2 - 1.0 / 6;
    s = s * x2 + 1;
    c = c * x2 + 1.0 / 20922789888000;
    c = c * x2 - 1.0 / 87178291200;
    c = c * x2 + 1.0 / 479001600;
    c = c * x2 - 1.0 / 3628800;
    c = c * x2 + 1.0 / 40320;
    c = c * x2 - 1.0 / 720;
    c = c * x2 + 1.0 / 24;
    c = c * x2 - 0.5;
    c = c * x2 + 1;
    s = s * x;
    const int q = (int)(quarter - 4 * floor(quarter / 4));
    *sine = q == 0 ? s : q == 1 ? c : q == 2 ? -s : -c;
    *cosine = q == 0 ? c : q == 1 ? -s : q == 2 ? -c : s;
}

/* floor of |x| < 2^31 and of |x| < 2^62, and the nearest whole number, halves to even, of |x| <
 * 2^22: without the calls that a processor older than SSE 4.1 needs for them. */
DR_HD static inline float dr_floor_f(float x) {
    const float whole = (float)(int32_t)x;
    return whole > x ? whole - 1.0f : whole;
}
DR_HD static inline double dr_floor_d(double x) {
    const double whole = (double)(int64_t)x;
    return whole > x ? whole - 1.0 : whole;
}
DR_HD static inline float dr_nearest_f(float x) {
    return (x + 12582912.0f) - 12582912.0f; /* 1.5 * 2^23: its last bit is worth 1 */
}

/* A word of a draw as a number of [low, high), and as an integer of [0, n). */
DR_HD static inline double dr_between(uint32_t x, double low, double high) {
    return low + (high - low) * ((double)x * 0x1p-32);
}
DR_HD static inline int32_t dr_below(uint32_t x, int32_t n) {
    return (int32_t)((uint64_t)x * (uint64_t)n >> 32);
}
#endif
