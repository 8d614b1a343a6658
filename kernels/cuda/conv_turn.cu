/* Weights turned, for the data gradient of stride 1 on Hopper: forward convolution of dy with
 * weights [c, Kh, Kw, k], the last tap first. Blocks move squares of channels by filters through
 * shared memory, so that reads and writes are of neighbours. */
#include "kernels/cuda/conv_hopper.h"

#include <cuda_runtime.h>

namespace dr {
namespace {

constexpr int SIDE = 32;

/* V: an integer of the elements' size. */
template <typename V>
__global__ void __launch_bounds__(256) turn_kernel(const V *from, V *to, int k, int c, int taps) {
    __shared__ V square[SIDE][SIDE + 1];
    const int tap = blockIdx.z, k0 = blockIdx.y * SIDE, c0 = blockIdx.x * SIDE;
    const int x = threadIdx.x;
    for (int i = threadIdx.y; i < SIDE && k0 + i < k && c0 + x < c; i += blockDim.y) {
        square[i][x] = from[((int64_t)(k0 + i) * taps + tap) * c + c0 + x];
    }
    __syncthreads();
    for (int i = threadIdx.y; i < SIDE && c0 + i < c && k0 + x < k; i += blockDim.y) {
        to[((int64_t)(c0 + i) * taps + taps - 1 - tap) * k + k0 + x] = square[x][i];
    }
}

} // namespace
} // namespace dr

extern "C" int dr_cuda_conv_turn(const struct dr_conv *c, enum dr_type t, const void *w, void *to,
                                 dr_stream s) {
    const int k = (int)c->k, channels = (int)c->c, taps = (int)(c->kh * c->kw);
    const dim3 grid((unsigned)(channels + dr::SIDE - 1) / dr::SIDE,
                    (unsigned)(k + dr::SIDE - 1) / dr::SIDE, (unsigned)taps);
    const dim3 block(dr::SIDE, 8);
    if (t == DR_TYPE_F32) {
        dr::turn_kernel<<<grid, block, 0, s>>>((const uint32_t *)w, (uint32_t *)to, k, channels,
                                               taps);
    } else {
        dr::turn_kernel<<<grid, block, 0, s>>>((const uint16_t *)w, (uint16_t *)to, k, channels,
                                               taps);
    }
    return (int)cudaGetLastError();
}
