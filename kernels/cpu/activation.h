/* The activation that a kernel applies as it stores, by number: 0 none, 1 relu, 2 tanh, 3 sigmoid,
 * 4 leaky_relu, 5 gelu, 6 silu (the order of dr_activation in graph/op.h). relu keeps NaN, as
 * PyTorch's does. */
#ifndef DR_KERNELS_CPU_ACTIVATION_H
#define DR_KERNELS_CPU_ACTIVATION_H
#include "kernels/maps.h"
#include <math.h>
#include <stdint.h>
static inline float dr_cpu_relu(float x) {
    return x <= 0.0f ? 0.0f : x;
}
/* In place over n values. */
static inline void dr_cpu_activate(float *y, int64_t n, int act) {
    if (act == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] = dr_cpu_relu(y[i]);
    else if (act == 2)
        for (int64_t i = 0; i < n; i++)
            y[i] = tanhf(y[i]);
    else if (act == 3)
        for (int64_t i = 0; i < n; i++)
            y[i] = dr_sigmoid(y[i]);
    else if (act == 4)
        for (int64_t i = 0; i < n; i++)
            y[i] = dr_leaky_relu(y[i], DR_LEAKY_SLOPE);
    else if (act == 5)
        for (int64_t i = 0; i < n; i++)
            y[i] = dr_gelu(y[i]);
    else if (act == 6)
        for (int64_t i = 0; i < n; i++)
            y[i] = dr_silu(y[i]);
}
#endif
