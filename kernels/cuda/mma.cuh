/* The three types of matrix products of a warp under one name. */
#ifndef DR_KERNELS_CUDA_MMA_CUH
#define DR_KERNELS_CUDA_MMA_CUH
#include "kernels/cuda/ptx.cuh"

/* Of 32 bytes of k. tf32 rounds here what lies in memory as fp32. */
struct dr_op_tf32 {
    using T = float;
    static constexpr bool tf32 = true;
    static __device__ __forceinline__ uint32_t operand(uint32_t v) {
        return __float_as_uint(dr::ptx::to_tf32(__uint_as_float(v)));
    }
    static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2]) {
        dr::ptx::mma_tf32(d, a, b);
    }
};
struct dr_op_f16 {
    using T = __half;
    static constexpr bool tf32 = false;
    static __device__ __forceinline__ uint32_t operand(uint32_t v) {
        return v;
    }
    static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2]) {
        dr::ptx::mma_f16(d, a, b);
    }
};
struct dr_op_bf16 {
    using T = __nv_bfloat16;
    static constexpr bool tf32 = false;
    static __device__ __forceinline__ uint32_t operand(uint32_t v) {
        return v;
    }
    static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2]) {
        dr::ptx::mma_bf16(d, a, b);
    }
};
#endif
