/* PTX of the Tensor cores that every sm_80 and later has (mma.sync), wrapped in one place. */
#ifndef DR_KERNELS_CUDA_MMA_CUH
#define DR_KERNELS_CUDA_MMA_CUH
#include <stdint.h>

/* Rounds to tf32 (8 bits of exponent, 10 of fraction), ties away from zero. */
static __device__ __forceinline__ float dr_to_tf32(float x) {
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return __uint_as_float(r);
}

/* d += a b, m16n8k8 in tf32 with fp32 sums. Lane (g, t) = (lane / 4, lane % 4) holds a as (g, t),
 * (g + 8, t), (g, t + 4), (g + 8, t + 4); b as (t, g), (t + 4, g); d as (g, 2t), (g, 2t + 1), (g +
 * 8, 2t), (g + 8, 2t + 1). */
static __device__ __forceinline__ void dr_mma_tf32(float (&d)[4], const uint32_t (&a)[4],
                                                   const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
