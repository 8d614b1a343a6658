/* Division of indices by numbers that a launch knows: a product and a shift in place of some
 * hundred instructions (Granlund and Montgomery, "Division by invariant integers using
 * multiplication", 1994). Kernels that copy pixels are bound by their indices otherwise. */
#ifndef DR_KERNELS_CUDA_DIVIDE_CUH
#define DR_KERNELS_CUDA_DIVIDE_CUH
#include <stdint.h>

struct dr_divisor {
    int64_t d;
    uint32_t factor, shift;
};

/* d > 0 */
static inline dr_divisor dr_divisor_of(int64_t d) {
    dr_divisor v = {d, 0, 0};
    while ((INT64_C(1) << v.shift) < d && v.shift < 31) {
        v.shift++;
    }
    if (d <= INT64_C(1) << 31) {
        v.factor = (uint32_t)((((UINT64_C(1) << v.shift) - (uint64_t)d) << 32) / (uint64_t)d + 1);
    }
    return v;
}

/* i / d, 0 <= i. Below 2^31 the sum fits 32 bits. */
static __device__ __forceinline__ int64_t dr_divide(const dr_divisor &v, int64_t i) {
    if (i >> 31 != 0 || v.factor == 0) {
        return i / v.d;
    }
    return (__umulhi((uint32_t)i, v.factor) + (uint32_t)i) >> v.shift;
}

/* The channel and the place of element i of an NHWC image: [image][row][column][c]. */
struct dr_grid_of {
    dr_divisor c, w, h;
};
static inline dr_grid_of dr_grid_of_shape(int64_t h, int64_t w, int64_t c) {
    return {dr_divisor_of(c), dr_divisor_of(w), dr_divisor_of(h)};
}
struct dr_place {
    int64_t image, row, column, c;
};
static __device__ __forceinline__ dr_place dr_place_of(const dr_grid_of &g, int64_t i) {
    const int64_t pixel = dr_divide(g.c, i), line = dr_divide(g.w, pixel);
    dr_place p;
    p.c = i - pixel * g.c.d;
    p.column = pixel - line * g.w.d;
    p.image = dr_divide(g.h, line);
    p.row = line - p.image * g.h.d;
    return p;
}
#endif
