/* Dropout: a thread for each draw, which is four elements of a sample. */
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/grid.cuh"

namespace {

__global__ void dropout_kernel(const dr_dropout d, int64_t draws, const dr_batch *batch,
                               const float *x, float *y) {
    DR_GRID_LOOP(i, d.n * draws) {
        const int64_t sample = i / draws, e = i % draws * 4, at = sample * d.elements + e;
        dr_dropout_four(&d, batch->epoch, batch->sample[sample], e / 4,
                        d.elements - e < 4 ? d.elements - e : 4, x + at, y + at);
    }
}

} // namespace

extern "C" int dr_cuda_dropout(const struct dr_dropout *d, const struct dr_batch *batch,
                               const float *x, float *y, cudaStream_t s) {
    const int64_t draws = (d->elements + 3) / 4;
    dropout_kernel<<<dr_blocks(d->n * draws), DR_THREADS, 0, s>>>(*d, draws, batch, x, y);
    return (int)cudaGetLastError();
}
