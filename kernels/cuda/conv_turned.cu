/* The data gradient of stride 1 on Hopper, which is also the transposed convolution: forward
 * convolution of dy with weights that are turned, [c, Kh, Kw, k] with the last tap first, and
 * padding Kh - 1 - p (taps apart). The turned weights are a small copy in the stream's workspace.
 */
#include "kernels/cuda/conv_hopper.h"
#include "kernels/cuda/conv_way.h"

#include <cuda_runtime.h>

namespace dr {
namespace {

constexpr int SIDE = 32; /* of a tile of filters by channels, for one tap */

/* to[c, taps - 1 - t, k] = from[k, t, c]; V: an integer of the elements' size. */
template <typename V>
__global__ void __launch_bounds__(256) turn_kernel(const V *from, V *to, int k, int c, int taps) {
    __shared__ V tile[SIDE][SIDE + 1];
    const int tap = blockIdx.z, k0 = blockIdx.y * SIDE, c0 = blockIdx.x * SIDE;
    for (int i = threadIdx.y; i < SIDE && k0 + i < k; i += blockDim.y) {
        if (c0 + (int)threadIdx.x < c) {
            tile[i][threadIdx.x] = from[((int64_t)(k0 + i) * taps + tap) * c + c0 + threadIdx.x];
        }
    }
    __syncthreads();
    for (int i = threadIdx.y; i < SIDE && c0 + i < c; i += blockDim.y) {
        if (k0 + (int)threadIdx.x < k) {
            to[((int64_t)(c0 + i) * taps + taps - 1 - tap) * k + k0 + threadIdx.x] =
                tile[threadIdx.x][i];
        }
    }
}

/* The forward convolution that is c's data gradient. */
dr_conv turned(const dr_conv &c) {
    dr_conv f = c;
    f.h = c.ho, f.w = c.wo, f.c = c.k;
    f.k = c.c, f.ho = c.h, f.wo = c.w;
    f.pt = (c.kh - 1) * c.dh - c.pt, f.pb = (c.kh - 1) * c.dh - c.pb;
    f.pl = (c.kw - 1) * c.dw - c.pl, f.pr = (c.kw - 1) * c.dw - c.pr;
    return f;
}

} // namespace
} // namespace dr

extern "C" int dr_cuda_conv_turned(const struct dr_conv *c, enum dr_type t, const void *dy,
                                   const void *w, const struct dr_epilogue *e, void *dx,
                                   const struct dr_cuda *cuda, bool *done) {
    const dr_conv f = dr::turned(*c);
    const int64_t bytes = (c->k * c->kh * c->kw * c->c * dr_type_bytes(t) + 255) / 256 * 256;
    const int64_t rest = (int64_t)cuda->lt_workspace_bytes - bytes;
    dr_conv_plan p;
    *done = false;
    if (c->sh != 1 || c->sw != 1 || c->groups != 1 || (t == DR_TYPE_F32 && !cuda->tf32) ||
        !dr_cuda_conv_hopper_acts(e->act) || (uintptr_t)dy % 16 != 0 || (uintptr_t)dx % 16 != 0 ||
        (uintptr_t)e->add % 16 != 0 || c->k > 65535 * dr::SIDE || rest < 0 ||
        !dr_cuda_conv_pick(&f, t, cuda->arch, rest, &p) || !dr_cuda_conv_hopper_runs()) {
        return 0;
    }
    const int k = (int)c->k, channels = (int)c->c, taps = (int)(c->kh * c->kw);
    const dim3 grid((unsigned)((channels + dr::SIDE - 1) / dr::SIDE),
                    (unsigned)((k + dr::SIDE - 1) / dr::SIDE), (unsigned)taps);
    void *const copy = cuda->lt_workspace;
    if (t == DR_TYPE_F32) {
        dr::turn_kernel<<<grid, dim3(dr::SIDE, 8), 0, cuda->stream>>>(
            (const uint32_t *)w, (uint32_t *)copy, k, channels, taps);
    } else {
        dr::turn_kernel<<<grid, dim3(dr::SIDE, 8), 0, cuda->stream>>>(
            (const uint16_t *)w, (uint16_t *)copy, k, channels, taps);
    }
    const int err = (int)cudaGetLastError();
    return err ? err
               : dr_cuda_conv_run(&f, t, &p, dy, copy, e, dx, (char *)copy + bytes, cuda, done);
}
