/* Activations as device functions, shared by every kernel that fuses one. */
#ifndef DR_KERNELS_CUDA_ACTIVATE_CUH
#define DR_KERNELS_CUDA_ACTIVATE_CUH
#include "kernels/maps.h"
/* NaN is kept: relu(NaN) = NaN. */
static __device__ __forceinline__ float dr_activate(float v, int act) {
    if (act == 1) {
        return v <= 0.0f ? 0.0f : v;
    }
    return act == 2   ? tanhf(v)
           : act == 3 ? dr_sigmoid(v)
           : act == 4 ? dr_leaky_relu(v, DR_LEAKY_SLOPE)
           : act == 5 ? dr_gelu(v)
           : act == 6 ? dr_silu(v)
                      : v;
}
#endif
