/* PTX of the Tensor cores that every sm_80 and later has (mma.sync), and of what feeds them
 * (ldmatrix, cp.async), wrapped in one place. */
#ifndef DR_KERNELS_CUDA_MMA_CUH
#define DR_KERNELS_CUDA_MMA_CUH
#include <cuda_bf16.h>
#include <cuda_fp16.h>
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
/* m16n8k16: each register holds two neighbours along k where that of tf32 holds one. */
static __device__ __forceinline__ void dr_mma_f16(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ __forceinline__ void dr_mma_bf16(float (&d)[4], const uint32_t (&a)[4],
                                                   const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7},"
                 " {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* One name for the three: of 32 bytes of k. tf32 rounds here what lies in memory as fp32. */
struct dr_op_tf32 {
    using T = float;
    static constexpr bool tf32 = true;
    static __device__ __forceinline__ uint32_t operand(uint32_t v) {
        return __float_as_uint(dr_to_tf32(__uint_as_float(v)));
    }
    static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2]) {
        dr_mma_tf32(d, a, b);
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
        dr_mma_f16(d, a, b);
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
        dr_mma_bf16(d, a, b);
    }
};

static __device__ __forceinline__ uint32_t dr_shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}
/* Four 8 x 8 matrices of 16 bits: lanes 8i to 8i + 7 name the rows, 16 bytes each, of matrix i;
 * lane (g, t) gets word t of row g of each. Rows of fp32 are rows of pairs of 16 bits. */
static __device__ __forceinline__ void dr_ldmatrix(uint32_t &a, uint32_t &b, uint32_t &c,
                                                   uint32_t &d, uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(row)
                 : "memory");
}
/* The same, each matrix transposed: 16-bit elements only. */
static __device__ __forceinline__ void dr_ldmatrix_trans(uint32_t &a, uint32_t &b, uint32_t &c,
                                                         uint32_t &d, uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(row)
                 : "memory");
}
static __device__ __forceinline__ uint32_t dr_load_shared(uint32_t at) {
    uint32_t v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}
/* Copies 16 bytes to shared memory in the background; zeros where `real` is false (`from` is not
 * read then). */
static __device__ __forceinline__ void dr_copy16(uint32_t to, const void *from, bool real) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(real ? 16 : 0)
                 : "memory");
}
static __device__ __forceinline__ void dr_copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until at most N of this thread's latest groups are on their way. */
template <int N> static __device__ __forceinline__ void dr_copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#endif
