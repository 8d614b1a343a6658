/* Neighbouring elements of a storage type as floats, in one access of up to 16 bytes: what kernels
 * that are bound by memory read and write with, so that half the bytes take half the time. */
#ifndef DR_KERNELS_CUDA_PACK_CUH
#define DR_KERNELS_CUDA_PACK_CUH
#include "kernels/cuda/real.cuh"
#include <stdint.h>
#include <string.h>
#include <type_traits>

/* Elements of T in 16 bytes. */
template <typename T> constexpr int DR_PACK = 16 / (int)sizeof(T);

template <int BYTES> struct dr_word;
template <> struct dr_word<16> { using type = uint4; };
template <> struct dr_word<8> { using type = uint2; };
template <> struct dr_word<4> { using type = uint32_t; };
template <> struct dr_word<2> { using type = uint16_t; };
template <> struct dr_word<1> { using type = uint8_t; };

static __device__ __forceinline__ float dr_load(const uint8_t *p) { /* a pixel */
    return *p;
}

/* v = p[0 .. V); p is aligned to V elements, or to 16 bytes where those are more. */
template <int V, typename T>
static __device__ __forceinline__ void dr_load(const T *p, float (&v)[V]) {
    constexpr int STEP = V < DR_PACK<T> ? V : DR_PACK<T>;
    using word = typename dr_word<STEP * sizeof(T)>::type;
#pragma unroll
    for (int at = 0; at < V; at += STEP) {
        const word w = *(const word *)(p + at);
        T x[STEP];
        memcpy(x, &w, sizeof w);
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            v[at + i] = dr_load(&x[i]);
        }
    }
}

/* Two numbers are rounded by one instruction. */
static __device__ __forceinline__ void dr_store_two(float *p, float a, float b) {
    p[0] = a;
    p[1] = b;
}
static __device__ __forceinline__ void dr_store_two(__half *p, float a, float b) {
    const __half2 two = __floats2half2_rn(a, b);
    memcpy(p, &two, sizeof two);
}
static __device__ __forceinline__ void dr_store_two(__nv_bfloat16 *p, float a, float b) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(a, b);
    memcpy(p, &two, sizeof two);
}
/* p[0 .. V) = v; p is aligned as for dr_load. */
template <int V, typename T>
static __device__ __forceinline__ void dr_store(T *p, const float (&v)[V]) {
    constexpr int STEP = V < DR_PACK<T> ? V : DR_PACK<T>;
    using word = typename dr_word<STEP * sizeof(T)>::type;
#pragma unroll
    for (int at = 0; at < V; at += STEP) {
        T x[STEP];
        if constexpr (STEP == 1) {
            dr_store(&x[0], v[at]);
        } else {
#pragma unroll
            for (int i = 0; i < STEP; i += 2) {
                dr_store_two(&x[i], v[at + i], v[at + i + 1]);
            }
        }
        word w;
        memcpy(&w, x, sizeof w);
        *(word *)(p + at) = w;
    }
}

/* The same at the end of an array, of which `left` elements are left; the others count as 0. */
template <int V, typename T>
static __device__ __forceinline__ void dr_load_some(const T *p, int64_t left, float (&v)[V]) {
    if (left >= V) {
        dr_load<V>(p, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
        v[i] = i < left ? dr_load(p + i) : 0.0f;
    }
}
template <int V, typename T>
static __device__ __forceinline__ void dr_store_some(T *p, int64_t left, const float (&v)[V]) {
    if (left >= V) {
        dr_store<V>(p, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
        if (i < left) {
            dr_store(p + i, v[i]);
        }
    }
}

/* Packs of V elements of an array of n, a grid's turn at a time; i is the first element. */
#define DR_PACK_LOOP(V, i, n)                                                                      \
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * (V); i < (n);              \
         i += (int64_t)gridDim.x * blockDim.x * (V))

/* Calls `f` with a null pointer of the storage type and (as a type with a value) how many of the c
 * neighbouring channels a thread takes: 16 bytes of them where they divide c, else one. */
template <typename F> static inline int dr_real_packs(enum dr_type t, int64_t c, F f) {
    return dr_real(t, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return c % DR_PACK<T> == 0 ? f(type, std::integral_constant<int, DR_PACK<T>>())
                                   : f(type, std::integral_constant<int, 1>());
    });
}
#endif
