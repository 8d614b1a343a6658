/* argmax by rows: a thread a row where rows are short, a warp a row where they are long. Which of
 * two candidates wins does not depend on the order in which they meet. */
#include "kernels/cuda/argmax.h"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/real.cuh"
#include <type_traits>

namespace {

/* The larger value, NaN above all; of equals the lower index. at < 0: no candidate. */
__device__ bool beats(float a, int64_t a_at, float b, int64_t b_at) {
    if (a_at < 0 || b_at < 0) {
        return a_at >= 0;
    }
    const bool a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) {
        return a_nan;
    }
    return a > b || ((a_nan || a == b) && a_at < b_at);
}

template <class T, class I>
__global__ void short_kernel(int64_t rows, int64_t k, const T *x, I *y) {
    DR_GRID_LOOP(r, rows) {
        const T *const row = x + r * k;
        float top = dr_load(row);
        int64_t best = 0;
        for (int64_t j = 1; j < k; j++) {
            const float v = dr_load(row + j);
            if (v > top || (v != v && top == top)) {
                top = v;
                best = j;
            }
        }
        y[r] = (I)best;
    }
}

template <class T, class I> __global__ void long_kernel(int64_t rows, int64_t k, const T *x, I *y) {
    const int lane = threadIdx.x % 32;
    const int64_t warps = (int64_t)gridDim.x * (DR_THREADS / 32);
    for (int64_t r = (int64_t)blockIdx.x * (DR_THREADS / 32) + threadIdx.x / 32; r < rows;
         r += warps) {
        float top = 0;
        int64_t best = -1;
        for (int64_t j = lane; j < k; j += 32) {
            const float v = dr_load(x + r * k + j);
            if (beats(v, j, top, best)) {
                top = v;
                best = j;
            }
        }
        for (int o = 16; o > 0; o >>= 1) {
            const float v = __shfl_down_sync(0xffffffffu, top, o);
            const int64_t at = __shfl_down_sync(0xffffffffu, (long long)best, o);
            if (beats(v, at, top, best)) {
                top = v;
                best = at;
            }
        }
        if (lane == 0) {
            y[r] = (I)best;
        }
    }
}

template <class T, class I> int argmax(int64_t rows, int64_t k, const T *x, I *y, cudaStream_t s) {
    if (k < 32) {
        short_kernel<<<dr_blocks(rows), DR_THREADS, 0, s>>>(rows, k, x, y);
    } else {
        const int64_t blocks = (rows + DR_THREADS / 32 - 1) / (DR_THREADS / 32);
        long_kernel<<<(unsigned)(blocks < 8192 ? blocks : 8192), DR_THREADS, 0, s>>>(rows, k, x, y);
    }
    return (int)cudaGetLastError();
}

} // namespace

extern "C" int dr_cuda_argmax(enum dr_type t, int64_t rows, int64_t k, const void *x, bool u8,
                              void *y, cudaStream_t s) {
    return dr_real(t, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return u8 ? argmax(rows, k, (const T *)x, (uint8_t *)y, s)
                  : argmax(rows, k, (const T *)x, (int32_t *)y, s);
    });
}
