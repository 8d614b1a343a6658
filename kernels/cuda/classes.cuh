/* What kernels over rows of logits share: sums and maxima of a warp, whether a row counts, and how
 * partial sums become a mean. One warp a row, lanes across the classes. */
#ifndef DR_KERNELS_CUDA_CLASSES_CUH
#define DR_KERNELS_CUDA_CLASSES_CUH
#include "kernels/batch.h"
#include "kernels/cuda/real.cuh"
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr unsigned ALL = 0xffffffffu;

__device__ double warp_sum(double v) {
    for (int o = 16; o > 0; o >>= 1) {
        v += __shfl_xor_sync(ALL, v, o);
    }
    return v;
}

/* NaN wins, so that it is not hidden behind a finite maximum. */
__device__ float larger(float a, float b) {
    return a <= b ? b : (b <= a ? a : NAN);
}
template <typename T> __device__ float row_max(const T *x, int64_t k, int lane) {
    float m = -INFINITY;
    for (int64_t j = lane; j < k; j += 32) {
        m = larger(m, dr_load(x + j));
    }
    for (int o = 16; o > 0; o >>= 1) {
        m = larger(m, __shfl_xor_sync(ALL, m, o));
    }
    return m;
}

template <typename T> __device__ double exp_sum(const T *x, int64_t k, float m, int lane) {
    double sum = 0;
    for (int64_t j = lane; j < k; j += 32) {
        sum += expf(dr_load(x + j) - m);
    }
    return warp_sum(sum);
}

/* What the kernels over classes get; class_weight is on the device here. */
struct classes {
    const void *target;
    bool u8;
    int64_t rows, k, rows_per_sample, ignore;
    const dr_batch *header;
    double smoothing;
    const double *class_weight;
};

/* Whether a row counts, and its class. */
__device__ bool counts(const classes &c, int64_t row, int64_t *cls) {
    if (row / c.rows_per_sample >= c.header->n_valid) {
        return false;
    }
    *cls = c.u8 ? ((const uint8_t *)c.target)[row] : ((const int32_t *)c.target)[row];
    return *cls != c.ignore;
}

/* One warp: lane l adds partials l, l + 32, ... in order, then a fixed tree. */
static __global__ void merge_kernel(const double *in, int64_t n, float *mean, double *out) {
    double a = 0, b = 0;
    for (int64_t i = threadIdx.x; i < n; i += 32) {
        a += in[2 * i];
        b += in[2 * i + 1];
    }
    a = warp_sum(a);
    b = warp_sum(b);
    if (threadIdx.x == 0) {
        out[0] = a;
        out[1] = b;
        if (mean) {
            *mean = b != 0 ? (float)(a / b) : (float)(a * 0.0);
        }
    }
}

} // namespace
#endif
