/* Column sums: a pass over chunks of rows, then the partial sums of a column in order. */
#include "kernels/cuda/column_sum.h"
#include "kernels/cuda/walk.cuh"

namespace {

/* blockIdx.y: the chunk. */
template <typename T, int V>
__global__ void chunk_kernel(const T *a, int64_t rows, int64_t chunk, int64_t c, float *partial) {
    __shared__ float part[V][DR_THREADS];
    const int64_t k = dr_walk_column<V>();
    const int64_t first = blockIdx.y * chunk, last = min(first + chunk, rows);
    float sum[V] = {};
    if (k < c) {
#pragma unroll 4
        for (int64_t r = first + threadIdx.y; r < last; r += blockDim.y) {
            float x[V];
            dr_load<V>(a + r * c + k, x);
#pragma unroll
            for (int i = 0; i < V; i++) {
                sum[i] += x[i];
            }
        }
    }
    dr_walk_sums<V>(part, sum);
    if (threadIdx.y == 0 && k < c) {
        dr_store<V>(partial + blockIdx.y * c + k, sum);
    }
}

/* 32 columns by 8 threads, each every eighth partial sum. */
__global__ void merge_kernel(const float *partial, int64_t chunks, int64_t c, float *out) {
    __shared__ double part[1][DR_THREADS];
    const int64_t k = dr_walk_column<1>();
    double sum[1] = {};
    for (int64_t i = threadIdx.y; i < chunks && k < c; i += blockDim.y) {
        sum[0] += partial[i * c + k];
    }
    dr_walk_sums<1>(part, sum);
    if (threadIdx.y == 0 && k < c) {
        out[k] = (float)sum[0];
    }
}

} // namespace

extern "C" int dr_cuda_column_sum(enum dr_type t, const void *a, int64_t rows, int64_t columns,
                                  float *out, void *workspace, cudaStream_t s) {
    const int64_t chunk = dr_cuda_sum_chunk(rows), chunks = (rows + chunk - 1) / chunk;
    float *const partial = (float *)workspace;
    const int err = dr_real_packs(t, columns, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        const dr_walk k = dr_walk_of(columns, V);
        chunk_kernel<T, V>
            <<<dim3((unsigned)k.blocks, (unsigned)chunks), dim3(k.across, k.down), 0, s>>>(
                (const T *)a, rows, chunk, columns, partial);
        return (int)cudaGetLastError();
    });
    merge_kernel<<<(unsigned)((columns + 31) / 32), dim3(32, DR_THREADS / 32), 0, s>>>(
        partial, chunks, columns, out);
    return err ? err : (int)cudaGetLastError();
}
