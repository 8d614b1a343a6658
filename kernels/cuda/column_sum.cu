/* Column sums: a pass over chunks of rows, then the partial sums of a column in order. */
#include "kernels/cuda/column_sum.h"
#include "kernels/cuda/walk.cuh"

namespace {

/* blockIdx.y: the chunk. */
template <typename T, int V>
__global__ void __launch_bounds__(DR_THREADS, 2)
    chunk_kernel(const T *a, int64_t rows, int64_t chunk, int64_t c, float *partial) {
    __shared__ float part[V][DR_THREADS];
    const int64_t k = dr_walk_column<V>();
    const int64_t first = blockIdx.y * chunk, last = min(first + chunk, rows);
    float sum[V] = {};
    for (int64_t r = first + threadIdx.y; r < last && k < c; r += DR_RUN * (int64_t)blockDim.y) {
        float x[DR_RUN][V];
        dr_load_rows(a + k, r, blockDim.y, last, c, x);
#pragma unroll
        for (int j = 0; j < DR_RUN; j++) {
            const bool there = r + j * (int64_t)blockDim.y < last;
#pragma unroll
            for (int i = 0; i < V; i++) {
                sum[i] += there ? x[j][i] : 0.0f;
            }
        }
    }
    dr_walk_sums<V>(part, sum);
    if (threadIdx.y == 0 && k < c) {
        dr_store<V>(partial + blockIdx.y * c + k, sum);
    }
}

/* 8 columns by 32 threads, each every 32nd partial sum. */
__global__ void __launch_bounds__(DR_THREADS, 2)
    merge_kernel(const float *partial, int64_t chunks, int64_t c, float *out) {
    __shared__ double part[1][DR_THREADS];
    const int64_t k = dr_walk_column<1>();
    double sum[1] = {};
    const int64_t end = k < c ? chunks : 0, down = blockDim.y;
    for (int64_t i = threadIdx.y; i < end; i += DR_RUN * down) {
        float v[DR_RUN][1];
        dr_load_rows(partial + k, i, down, end, c, v);
#pragma unroll
        for (int j = 0; j < DR_RUN; j++) {
            sum[0] += i + j * down < end ? v[j][0] : 0.0f;
        }
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
    float *const partial = chunks > 1 ? (float *)workspace : out; /* one is the sum */
    const int err = dr_real_packs(t, columns, [&](auto *type, auto v) {
        using T = std::remove_pointer_t<decltype(type)>;
        constexpr int V = decltype(v)::value;
        const dr_walk k = dr_walk_of(columns, V);
        chunk_kernel<T, V>
            <<<dim3((unsigned)k.blocks, (unsigned)chunks), dim3(k.across, k.down), 0, s>>>(
                (const T *)a, rows, chunk, columns, partial);
        return (int)cudaGetLastError();
    });
    if (chunks > 1) {
        merge_kernel<<<(unsigned)((columns + 7) / 8), dim3(8, DR_THREADS / 8), 0, s>>>(
            partial, chunks, columns, out);
    }
    return err ? err : (int)cudaGetLastError();
}
