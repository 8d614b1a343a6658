/* Loads and stores of fp32, fp16 and bf16 by one name: kernels compute in fp32 whatever is stored.
 * A store rounds to nearest even; fp16 overflows to infinity. */
#ifndef DR_KERNELS_CUDA_REAL_CUH
#define DR_KERNELS_CUDA_REAL_CUH
#include "kernels/dtype.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

static __device__ __forceinline__ float dr_load(const float *p) {
    return *p;
}
static __device__ __forceinline__ float dr_load(const __half *p) {
    return __half2float(*p);
}
static __device__ __forceinline__ float dr_load(const __nv_bfloat16 *p) {
    return __bfloat162float(*p);
}
static __device__ __forceinline__ void dr_store(float *p, float v) {
    *p = v;
}
static __device__ __forceinline__ void dr_store(__half *p, float v) {
    *p = __float2half_rn(v);
}
static __device__ __forceinline__ void dr_store(__nv_bfloat16 *p, float v) {
    *p = __float2bfloat16_rn(v);
}

/* Calls `f` with a null pointer of the storage type: dr_real(t, [&](auto *zero) { using T =
 * std::remove_pointer_t<decltype(zero)>; ... }). */
template <typename F> static inline int dr_real(enum dr_type t, F f) {
    return t == DR_TYPE_F32   ? f((float *)nullptr)
           : t == DR_TYPE_F16 ? f((__half *)nullptr)
                              : f((__nv_bfloat16 *)nullptr);
}
#endif
