/* Dropout: a thread for each draw, which is four elements of a sample. */
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/pack.cuh"

namespace {

/* V: 4 where samples begin at multiples of four elements, else 1. */
template <typename T, int V>
__global__ void dropout_kernel(const dr_dropout d, dr_divisor draws, const dr_batch *batch,
                               const T *x, T *y) {
    DR_GRID_LOOP(i, d.n * draws.d) {
        const int64_t sample = dr_divide(draws, i), e = (i - sample * draws.d) * 4;
        const int64_t at = sample * d.elements + e;
        const int64_t left = d.elements - e < 4 ? d.elements - e : 4;
        float v[4] = {}, w[4];
#pragma unroll
        for (int k = 0; k < 4; k += V) {
            if (k < left) {
                dr_load<V>(x + at + k, *(float(*)[V])(v + k));
            }
        }
        dr_dropout_four(&d, batch->epoch, batch->sample[sample], e / 4, 4, v, w);
#pragma unroll
        for (int k = 0; k < 4; k += V) {
            if (k < left) {
                dr_store<V>(y + at + k, *(float(*)[V])(w + k));
            }
        }
    }
}

} // namespace

extern "C" int dr_cuda_dropout(enum dr_type t, const struct dr_dropout *d,
                               const struct dr_batch *batch, const void *x, void *y,
                               cudaStream_t s) {
    const int64_t draws = (d->elements + 3) / 4;
    return dr_real(t, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        auto *const kernel = d->elements % 4 == 0 ? dropout_kernel<T, 4> : dropout_kernel<T, 1>;
        kernel<<<dr_blocks(d->n * draws), DR_THREADS, 0, s>>>(*d, dr_divisor_of(draws), batch,
                                                              (const T *)x, (T *)y);
        return (int)cudaGetLastError();
    });
}
