/* What the Hopper convolutions' kernels have in common. Private to kernels/cuda. */
#ifndef DR_KERNELS_CUDA_CONV_HOPPER_CUH
#define DR_KERNELS_CUDA_CONV_HOPPER_CUH
#include "kernels/cuda/conv_hopper.h"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/ptx.cuh"

namespace dr {

/* Launches `kernel` so that it may begin while the kernel before it ends; it then waits. */
template <typename P>
int launch_early(void (*kernel)(P), const P &p, int blocks, int threads, int shared_bytes,
                 cudaStream_t s) {
    cudaError_t err =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (err == cudaSuccess) {
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3((unsigned)blocks), config.blockDim = dim3((unsigned)threads);
        config.dynamicSmemBytes = (size_t)shared_bytes, config.stream = s;
        config.attrs = &early, config.numAttrs = 1;
        err = cudaLaunchKernelEx(&config, kernel, p);
    }
    return (int)err;
}

/* n / d and, in *rest, n % d. */
__device__ __forceinline__ int divide(int n, const dr_divisor &d, int *rest) {
    const int q = d.d == 1 ? n : (int)(__umulhi((unsigned)n, d.magic) >> d.shift);
    *rest = n - q * d.d;
    return q;
}

/* Where we are in a ring of `stages` in shared memory, each with a full and an empty barrier. */
struct ring {
    uint32_t bars;
    int at, parity;
    __device__ __forceinline__ uint32_t full() const {
        return bars + 16 * at;
    }
    __device__ __forceinline__ uint32_t empty() const {
        return bars + 16 * at + 8;
    }
    __device__ __forceinline__ void next(int stages) {
        if (++at == stages) {
            at = 0;
            parity ^= 1;
        }
    }
};

/* Activations by number, without a function call, which would serialise wgmma: none, relu, leaky
 * relu; max.NaN keeps NaN. Of halves, relu alone is left to the packed pair. */
__device__ __forceinline__ float leak(float v) {
    return ptx::larger(v, v * DR_LEAKY_SLOPE);
}
template <typename T> __device__ __forceinline__ uint32_t finish_pair(float2 r, int act) {
    if (act == 4) {
        r.x = leak(r.x), r.y = leak(r.y);
    }
    const uint32_t v = T::pack(r.x, r.y);
    return act == 1 ? T::relu(v) : v;
}

/* v[i] of lane t of four, S apart, becomes v[t] of lane i. */
template <int S> __device__ __forceinline__ void turn(uint32_t (&v)[4]) {
#pragma unroll
    for (int s = 1; s < 4; s *= 2) {
        const bool up = threadIdx.x & s * S;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (!(i & s)) {
                const uint32_t got = __shfl_xor_sync(~0u, up ? v[i] : v[i ^ s], s * S);
                if (up) {
                    v[i] = got;
                } else {
                    v[i ^ s] = got;
                }
            }
        }
    }
}

/* Where filters are the rows of the product: this lane's row of the four 8 x 8 matrices that
 * stmatrix turns, in a buffer of pixels by 64 filters, 128 bytes a pixel, swizzled. */
__device__ __forceinline__ uint32_t turned_row(int warp, int lane) {
    const int pixel = (lane & 7) + (lane >> 4 << 3), eight = warp * 2 + (lane >> 3 & 1);
    return pixel * 128 + ((eight ^ (lane & 7)) << 4);
}
/* The sums of 64 filters by 2 * N pixels become such a buffer: acc[4 * j + 2 * h + i] is filter g +
 * 8 * h, pixel 8 * j + 2 * t + i. `to` is this lane's row of the matrices that stmatrix turns; 16
 * pixels a time are written, past the last where those are 8. */
template <typename T, int N>
__device__ __forceinline__ void finish_turned(const dr_epilogue &e, const float (&acc)[N],
                                              uint32_t to, const dr_column (&c)[2]) {
#pragma unroll
    for (int j = 0; j < (N + 4) / 8; j++) {
        uint32_t a[4] = {0, 0, 0, 0}, v[4] = {0, 0, 0, 0};
        if (e.add) {
            ptx::load_matrices_turned(a, to + j * 2048);
        }
#pragma unroll
        for (int i = 0; i < 4 && 8 * j + 2 * i < N; i++) {
            const dr_column &col = c[i % 2];
            float2 r = make_float2(fmaf(acc[8 * j + 2 * i], col.scale, col.shift),
                                   fmaf(acc[8 * j + 2 * i + 1], col.scale, col.shift));
            if (e.add) {
                const float2 f = T::unpack(a[i]);
                r.x += f.x, r.y += f.y;
            }
            v[i] = finish_pair<T>(r, e.act);
        }
        ptx::store_matrices_turned(to + j * 2048, v);
    }
}

/* The same, but of each 2 x 2 of the 16 x 8 pixels only the largest, after relu; NaN is larger than
 * all. A lane has whole windows: both columns are neighbours in acc, rows follow each other.
 * Neither relu nor rounding changes which is the largest, so that comes first. The buffer becomes 8
 * x 4 pixels; a matrix has two rows of them, their columns in turns. */
__device__ __forceinline__ uint32_t pooled_row(int warp, int lane) {
    const int pixel = lane % 2 * 4 + lane % 8 / 2 + lane / 16 * 8, eight = warp * 2 + lane / 8 % 2;
    return pixel * 128 + ((eight ^ (pixel & 7)) << 4);
}
template <typename T>
__device__ __forceinline__ void finish_pooled(const float (&acc)[64], uint32_t to,
                                              const dr_column (&c)[2]) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const dr_column &col = c[i % 2];
            float r[2];
#pragma unroll
            for (int row = 0; row < 2; row++) {
                const int at = 32 * j + 16 * (i / 2) + 8 * row + 2 * (i % 2);
                r[row] = ptx::larger(ptx::larger(fmaf(acc[at], col.scale, col.shift),
                                                 fmaf(acc[at + 1], col.scale, col.shift)),
                                     ptx::larger(fmaf(acc[at + 4], col.scale, col.shift),
                                                 fmaf(acc[at + 5], col.scale, col.shift)));
            }
            v[i] = T::relu(T::pack(r[0], r[1]));
        }
        ptx::store_matrices_turned(to + j * 2048, v);
    }
}

/* The same for floats: a buffer of 2 * N pixels by 32 filters, 128 bytes a pixel, swizzled. This
 * lane's filters in it are `filter` and filter + 8. Activations without branches: relu is max(v,
 * 0), leaky relu max(v, v * slope). */
template <int N>
__device__ __forceinline__ void finish_turned_floats(const dr_epilogue &e, const float (&acc)[N],
                                                     uint32_t out, const dr_column (&c)[2],
                                                     int filter, int lane) {
    const float least = e.act == 1 ? 0.0f : -INFINITY, slope = e.act == 4 ? DR_LEAKY_SLOPE : 1.0f;
    const int pixel = lane % 4 * 2;
    const uint32_t row = out + pixel * 128 + filter % 4 * 4, four = filter / 4;
    const uint32_t at[4] = {row + ((four ^ pixel) << 4), row + 128 + ((four ^ (pixel + 1)) << 4),
                            row + (((four + 2) ^ pixel) << 4),
                            row + 128 + (((four + 2) ^ (pixel + 1)) << 4)};
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint32_t to = at[i % 4] + i / 4 * 1024;
        const dr_column &col = c[i / 2 % 2];
        float v = fmaf(acc[i], col.scale, col.shift);
        if (e.add) {
            v += ptx::load_shared_float(to);
        }
        ptx::store_shared_float(to, ptx::larger(ptx::larger(v, least), v * slope));
    }
}
} // namespace dr
#endif
