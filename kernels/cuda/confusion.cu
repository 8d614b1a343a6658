/* Counts of predictions: one thread a row. They are integers, so that atomics give one result in
 * any order: a block counts in shared memory where the counters fit, and adds them to global ones.
 */
#include "kernels/cuda/confusion.h"
#include "kernels/cuda/classes.cuh"
#include "kernels/cuda/grid.cuh"

namespace {

constexpr int64_t SHARED = 4096; /* counters of a block */

__global__ void clear_kernel(int64_t n, unsigned long long *count) {
    DR_GRID_LOOP(i, n) {
        count[i] = 0;
    }
}
__global__ void result_kernel(int64_t n, const unsigned long long *count, double *out) {
    DR_GRID_LOOP(i, n) {
        out[i] = (double)count[i];
    }
}

/* 64-bit where the counters are global; a block has fewer rows than 2^32. */
template <class T>
__device__ void tally(const classes &c, int64_t row, bool by_class, const float *x, T *count) {
    const int64_t n = dr_predicted_classes(c.k);
    int64_t cls;
    if (!counts(c, row, &cls)) {
        return;
    }
    const int64_t named = dr_predict(x + row * c.k, c.k);
    if (!by_class) {
        atomicAdd(&count[1], (T)1);
    }
    if (named >= 0 && named == cls) {
        atomicAdd(&count[by_class ? named : 0], (T)1);
    }
    if (by_class && named >= 0) {
        atomicAdd(&count[n + named], (T)1);
    }
    if (by_class && cls >= 0 && cls < n) {
        atomicAdd(&count[2 * n + cls], (T)1);
    }
}

__global__ void tally_kernel(const classes c, bool by_class, int64_t width, const float *x,
                             unsigned long long *count) {
    __shared__ unsigned mine[SHARED];
    const bool fits = width <= SHARED;
    for (int64_t i = threadIdx.x; fits && i < width; i += blockDim.x) {
        mine[i] = 0;
    }
    __syncthreads();
    DR_GRID_LOOP(row, c.rows) {
        if (fits) {
            tally(c, row, by_class, x, mine);
        } else {
            tally(c, row, by_class, x, count);
        }
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; fits && i < width; i += blockDim.x) {
        if (mine[i] != 0) {
            atomicAdd(&count[i], (unsigned long long)mine[i]);
        }
    }
}

int run(const dr_cuda_classes *c, bool by_class, int64_t width, const float *x, void *workspace,
        double *out, cudaStream_t s) {
    const classes d = {c->target, c->u8,     c->rows, c->k,   c->rows_per_sample,
                       c->ignore, c->header, 0,       nullptr};
    unsigned long long *const count = (unsigned long long *)workspace;
    clear_kernel<<<dr_blocks(width), DR_THREADS, 0, s>>>(width, count);
    tally_kernel<<<dr_blocks(c->rows), DR_THREADS, 0, s>>>(d, by_class, width, x, count);
    result_kernel<<<dr_blocks(width), DR_THREADS, 0, s>>>(width, count, out);
    return (int)cudaGetLastError();
}

} // namespace

extern "C" int dr_cuda_pixel_accuracy(const struct dr_cuda_classes *c, const float *x,
                                      void *workspace, double *out, cudaStream_t s) {
    return run(c, false, 2, x, workspace, out, s);
}

extern "C" int dr_cuda_confusion(const struct dr_cuda_classes *c, const float *x, void *workspace,
                                 double *out, cudaStream_t s) {
    return run(c, true, 3 * dr_predicted_classes(c->k), x, workspace, out, s);
}
