/* In place of kernels/cuda/ptx.cuh: the same words, done on the CPU (tests/emulated/emulated.h).
 * What they mean is said there. */
#ifndef DR_KERNELS_CUDA_PTX_CUH
#define DR_KERNELS_CUDA_PTX_CUH
#include "tests/emulated/matrix.h"
#include <chrono>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define DR_HOPPER 1

namespace dr {
namespace ptx {

template <class T> static inline T &shared_at(uint32_t address) {
    return *(T *)(uintptr_t)address;
}
static inline uint32_t shared_address(const void *p) {
    if ((uintptr_t)p >> 32) {
        emulated::fault("an address that is not of shared memory");
    }
    return (uint32_t)(uintptr_t)p;
}

/* ---- values ---- */
static inline float larger(float a, float b) {
    return std::isnan(a) || std::isnan(b) ? NAN : a > b || (a == b && !std::signbit(a)) ? a : b;
}
static inline float to_tf32(float x) {
    const uint32_t v = __float_as_uint(x);
    return __uint_as_float((v & 0x7f800000) == 0x7f800000 ? v : (v + 0x1000) & ~0x1fffu);
}
static inline uint64_t global_time() {
    return (uint64_t)std::chrono::steady_clock::now().time_since_epoch().count();
}
static inline void pin(uint32_t &) {
}
static inline void pin(uint32_t (&)[4]) {
}
template <class V> static inline const V *kept(const V *p) {
    return p;
}

/* ---- copies to shared memory in the background ---- */
static inline void copy_async_bytes(uint32_t to, const void *from, int bytes, int there) {
    if (to % (uint32_t)bytes || (there && (uintptr_t)from % (uintptr_t)bytes)) {
        emulated::fault("a copy to or from an address that is not aligned");
    }
    if (there < 0 || there > bytes) {
        emulated::fault("a copy of more bytes than it writes");
    }
    emulated::defer(emulated::COPIES, [=] {
        if (there > 0) {
            memcpy(&shared_at<char>(to), from, (size_t)there);
        }
        memset(&shared_at<char>(to) + there, 0, (size_t)(bytes - there));
    });
}
template <int BYTES>
static inline void copy_async(uint32_t to, const float *from, int offset, bool inside) {
    copy_async_bytes(to, from + offset, BYTES, inside ? BYTES : 0);
}
static inline void copy_async_part(uint32_t to, const void *from, int bytes) {
    copy_async_bytes(to, from, 16, bytes);
}
template <int BYTES>
static inline void copy_async_unless(uint32_t outside, uint32_t to, const float *from, int offset) {
    copy_async_bytes(to, from + offset, BYTES, outside ? 0 : BYTES);
}
static inline void copy_async16(uint32_t to, const void *from, bool inside) {
    copy_async_part(to, from, inside ? 16 : 0);
}
static inline void copies_commit() {
    emulated::commit(emulated::COPIES);
}
template <int N> static inline void copies_wait() {
    emulated::wait(emulated::COPIES, N);
}

/* ---- barriers ---- */
static inline void barrier_init(uint32_t bar, uint32_t arrivals) {
    emulated::barrier_init(bar, arrivals);
}
static inline void barrier_init_done() {
}
static inline void barrier_expect(uint32_t bar, uint32_t bytes) {
    emulated::barrier_arrive(bar, bytes);
}
static inline void barrier_arrive(uint32_t bar) {
    emulated::barrier_arrive(bar, 0);
}
static inline void barrier_arrive_copied(uint32_t bar) {
    emulated::barrier_arrive_copied(bar);
}
static inline void barrier_wait(uint32_t bar, uint32_t parity) {
    emulated::barrier_wait(bar, parity);
}
static inline void sync_threads(int id, int threads) {
    emulated::sync_some(id, threads);
}

/* ---- copies ---- */
static inline void prefetch_map(const CUtensorMap *) {
}
static inline void copy_box(uint32_t to, const CUtensorMap *m, uint32_t bar, int c0, int c1,
                            int c2) {
    emulated::load_box(to, m, bar, {c0, c1, c2});
}
static inline void copy_box(uint32_t to, const CUtensorMap *m, uint32_t bar, int c0, int c1, int c2,
                            int c3) {
    emulated::load_box(to, m, bar, {c0, c1, c2, c3});
}
static inline void store_box(const CUtensorMap *m, uint32_t from, int c0, int c1, int c2, int c3) {
    emulated::store_box(m, from, {c0, c1, c2, c3});
}
static inline void stores_commit() {
    emulated::commit(emulated::STORES);
}
template <int N> static inline void stores_wait_read() {
    emulated::wait(emulated::STORES, N);
}
template <int N> static inline void stores_wait() {
    emulated::wait(emulated::STORES, N);
}
static inline void fence_shared() {
}

static inline uint4 load_shared(uint32_t from) {
    return shared_at<uint4>(from);
}
static inline void store_shared(uint32_t to, uint4 v) {
    shared_at<uint4>(to) = v;
}
static inline uint32_t load_shared_word(uint32_t from) {
    return shared_at<uint32_t>(from);
}
static inline float load_shared_float(uint32_t from) {
    return shared_at<float>(from);
}
static inline void store_shared_float(uint32_t to, float v) {
    shared_at<float>(to) = v;
}

/* ---- 8 x 8 matrices of 16 bits ---- */
static inline void load_matrices(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d,
                                 uint32_t from) {
    emulated::load_matrices({&a, &b, &c, &d}, from, false);
}
static inline void load_matrices_turned(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d,
                                        uint32_t from) {
    emulated::load_matrices({&a, &b, &c, &d}, from, true);
}
static inline void load_matrices(uint32_t (&r)[4], uint32_t from) {
    load_matrices(r[0], r[1], r[2], r[3], from);
}
static inline void load_matrices_turned(uint32_t (&r)[4], uint32_t from) {
    load_matrices_turned(r[0], r[1], r[2], r[3], from);
}
static inline void store_matrices_turned(uint32_t to, const uint32_t (&r)[4]) {
    emulated::store_matrices_turned(to, r);
}

/* ---- matrix products of a warp ---- */
static inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    emulated::product_of_warp(emulated::TF32, d, a, b);
}
static inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    emulated::product_of_warp(emulated::F16, d, a, b);
}
static inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    emulated::product_of_warp(emulated::BF16, d, a, b);
}

/* ---- launches that overlap: here they do not ---- */
static inline void wait_for_kernel_before() {
}
static inline void let_next_kernel_begin() {
}

/* ---- registers ---- */
template <int N> static inline void registers_up() {
    static_assert(N % 8 == 0 && N >= 24 && N <= 256, "setmaxnreg takes 24 to 256, in eights");
    emulated::registers(N);
}
template <int N> static inline void registers_down() {
    registers_up<N>();
}

/* ---- wgmma ---- */
struct f16 {
    using real = __half;
    static constexpr emulated::type TYPE = emulated::F16;
    static uint32_t pack(float a, float b) {
        const __half2 h = __floats2half2_rn(a, b);
        uint32_t v;
        memcpy(&v, &h, 4);
        return v;
    }
    static float2 unpack(uint32_t v) {
        __half2 h;
        memcpy(&h, &v, 4);
        return __half22float2(h);
    }
    static uint32_t relu(uint32_t v) {
        const float2 f = unpack(v);
        return pack(larger(f.x, 0.0f), larger(f.y, 0.0f));
    }
};
struct bf16 {
    using real = __nv_bfloat16;
    static constexpr emulated::type TYPE = emulated::BF16;
    static uint32_t pack(float a, float b) {
        const __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
        uint32_t v;
        memcpy(&v, &h, 4);
        return v;
    }
    static float2 unpack(uint32_t v) {
        return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000));
    }
    static uint32_t relu(uint32_t v) {
        const float2 f = unpack(v);
        return pack(larger(f.x, 0.0f), larger(f.y, 0.0f));
    }
};
struct tf32 {
    using real = float;
    static constexpr emulated::type TYPE = emulated::TF32;
    static uint32_t rounded(uint32_t v) {
        return (v & 0x7f800000) == 0x7f800000 ? v : v + 0x1000;
    }
};
static inline void product_fence() {
}
static inline void product_commit() {
    emulated::together(128, [] { emulated::commit(emulated::PRODUCTS); });
}
template <int N> static inline void product_wait() {
    emulated::together(128, [] { emulated::wait(emulated::PRODUCTS, N); });
}
static inline uint64_t descriptor(uint32_t address, uint32_t pitch) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)1 << 16 |
           (uint64_t)((pitch & 0x3ffff) >> 4) << 32 | (uint64_t)1 << 62;
}
template <typename T, int N> struct product {
    static_assert(N % 8 == 0 && N >= 8 && N <= 256, "wgmma has columns in eights, 256 at most");
    static void rs(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int keep) {
        emulated::product_of_warpgroup(T::TYPE, N, d, a, 0, b, keep);
    }
    static void ss(float (&d)[N / 2], uint64_t a, uint64_t b, int keep) {
        emulated::product_of_warpgroup(T::TYPE, N, d, NULL, a, b, keep);
    }
};

} // namespace ptx
} // namespace dr
#endif
