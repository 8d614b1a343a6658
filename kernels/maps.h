/* The pointwise functions, one definition for host and device. In a gradient, `a` is what it reads
 * of the forward node (its operand, or its output where named so) and `b` is dy. Formulas and what
 * happens to NaN and at borders are PyTorch's. */
#ifndef DR_KERNELS_MAPS_H
#define DR_KERNELS_MAPS_H
#include <math.h>
#include <stdint.h>
#if defined(__CUDACC__)
#define DR_MAP_FN __host__ __device__ static inline
#else
#define DR_MAP_FN static inline
#endif

/* X(name, expression in a, b, c and the parameters p, q) */
#define DR_MAPS(X)                                                                                 \
    X(add, a + b)                                                                                  \
    X(sub, a - b)                                                                                  \
    X(mul, (a * b))                                                                                \
    X(div, a / b)                                                                                  \
    X(neg, -a)                                                                                     \
    X(div_grad, -(a * b) / c) /* of a quotient a by its divisor c */                               \
    X(abs, fabsf(a))                                                                               \
    X(abs_grad, a > 0.0f ? b : (a < 0.0f ? -b : 0.0f))                                             \
    X(sqrt, sqrtf(a))                                                                              \
    X(sqrt_grad, b / (2.0f * a)) /* from the output */                                             \
    X(clamp, a < p ? p : (a > q ? q : a))                                                          \
    X(clamp_grad, a >= p && a <= q ? b : 0.0f)                                                     \
    X(relu, a <= 0.0f ? 0.0f : a)                                                                  \
    X(relu_grad, a <= 0.0f ? 0.0f : b) /* from the output */                                       \
    X(tanh, tanhf(a))                                                                              \
    X(tanh_grad, (b * (1.0f - a * a))) /* from the output */                                       \
    X(sigmoid, dr_sigmoid(a))                                                                      \
    X(sigmoid_grad, (b * (1.0f - a) * a)) /* from the output */                                    \
    X(leaky_relu, dr_leaky_relu(a, p))                                                             \
    X(leaky_relu_grad, a > 0.0f ? b : b * p) /* from the output too where p >= 0 */                \
    X(silu, dr_silu(a))                                                                            \
    X(silu_grad, (b * dr_silu_slope(a)))                                                           \
    X(gelu, dr_gelu(a))                                                                            \
    X(gelu_grad, (b * dr_gelu_slope(a)))                                                           \
    X(gelu_tanh, (a * dr_sigmoid(dr_gelu_inner(a))))                                               \
    X(gelu_tanh_grad, (b * dr_gelu_tanh_slope(a)))

enum dr_fn {
#define X(name, expression) DR_FN_##name,
    DR_MAPS(X)
#undef X
        DR_FN_COUNT
};

/* The slope of leaky_relu where none is given: what `activation: leaky_relu` means. */
#define DR_LEAKY_SLOPE 0.01f
#define DR_SQRT_HALF 0.70710678118654752440f

DR_MAP_FN float dr_sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}
DR_MAP_FN float dr_leaky_relu(float x, float slope) {
    return x > 0.0f ? x : x * slope;
}
DR_MAP_FN float dr_silu(float x) {
    return x / (1.0f + expf(-x));
}
DR_MAP_FN float dr_gelu(float x) {
    return x * 0.5f * erfcf(-x * DR_SQRT_HALF);
}
DR_MAP_FN float dr_silu_slope(float x) {
    const float s = dr_sigmoid(x);
    return s * (1.0f + x * dr_sigmoid(-x));
}
/* Phi(x) + x * phi(x); erfc keeps its digits where Phi is small. */
DR_MAP_FN float dr_gelu_slope(float x) {
    return 0.5f * erfcf(-x * DR_SQRT_HALF) + x * 0.39894228040143267794f * expf(-0.5f * x * x);
}
/* The tanh form (Hendrycks and Gimpel, arXiv 1606.08415): (1 + tanh(u)) / 2, u = sqrt(2 / pi) (x +
 * 0.044715 x^3), as sigmoid(2 u), which keeps its digits where tanh is near -1. */
DR_MAP_FN float dr_gelu_inner(float x) {
    return 1.59576912160573071176f * (x + 0.044715f * x * x * x);
}
DR_MAP_FN float dr_gelu_tanh_slope(float x) {
    const float u = dr_gelu_inner(x), s = dr_sigmoid(u);
    const float du = 1.59576912160573071176f * (1.0f + 3.0f * 0.044715f * x * x);
    return s + x * (s * dr_sigmoid(-u)) * du;
}

/* A chain of maps: step i works on the arrays x[] of these indexes, or (-1) on the result of step
 * i - 1; the last result is y. An operand that a map does not read is -1 too. */
#define DR_CHAIN_MOST 16
struct dr_map_step {
    int fn, a, b, c; /* enum dr_fn */
    float p, q;
};
struct dr_map_chain {
    int n, n_x;
    struct dr_map_step step[DR_CHAIN_MOST];
    const void *x[DR_CHAIN_MOST];
    void *y;
};

/* One map over an array, on the CPU of floats; operands that a map does not read may be NULL. */
struct dr_map_args {
    const void *a, *b, *c;
    float p, q;
    void *y;
};
#endif
