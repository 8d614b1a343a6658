/* In place of CUDA's header of this name: kernels as ordinary C++, for a machine without a GPU.
 * What CUDA C adds to C++ is here; what has no word in it is in kernels/cuda/ptx.cuh beside this
 * file; emulated.h says how blocks run. Launches are rewritten from k<<<g, b, n, s>>>(args) to
 * EMULATED_KERNEL(k) ->*emulated::at(g, b, n, s)(args), shared arrays of unknown size to
 * EMULATED_SHARED (rewrite.sh). */
#ifndef DR_TESTS_EMULATED_CUDA_RUNTIME_H
#define DR_TESTS_EMULATED_CUDA_RUNTIME_H
#include "tests/emulated/emulated.h"
#include <algorithm>
#include <cmath>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <string.h>
#include <tuple>
#include <type_traits>
#include <vector_functions.h>

using std::isfinite;
using std::isinf;
using std::isnan;

/* ---- words ---- */
#define __launch_bounds__(...)
#define __noinline__ __attribute__((noinline))
#undef __shared__
#define __shared__ static /* one block runs at a time */
#define EMULATED_SHARED(type, name)                                                                \
    std::remove_reference_t<type> *const name = (std::remove_reference_t<type> *)emulated::shared()

/* ---- launches ---- */
/* A kernel whose template arguments follow from those of the call. */
#define EMULATED_KERNEL(...)                                                                       \
    emulated::deduce([=](const auto &...emulated_args) { __VA_ARGS__(emulated_args...); })
namespace emulated {
template <class... A> struct call {
    place where;
    std::tuple<A...> args;
};
struct at {
    place where;
    at(dim3 grid, dim3 block, size_t bytes = 0, cudaStream_t s = NULL)
        : where{grid, block, bytes, s} {
    }
    template <class... A> call<A...> operator()(const A &...args) const {
        return {where, std::tuple<A...>(args...)};
    }
};
template <class... P, class... A> void operator->*(void (*kernel)(P...), const call<A...> &c) {
    const std::tuple<std::decay_t<P>...> args(c.args);
    launch((const void *)kernel, c.where, [=] { std::apply(kernel, args); });
}
template <class F> struct deduced { F f; };
template <class F> deduced<F> deduce(F f) {
    return {f};
}
template <class F, class... A> void operator->*(const deduced<F> &kernel, const call<A...> &c) {
    launch(NULL, c.where, [f = kernel.f, args = c.args] { std::apply(f, args); });
}
} // namespace emulated

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...),
                               const A &...args) {
    kernel->*emulated::at(c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream)(args...);
    return cudaGetLastError();
}
template <class T> cudaError_t cudaMalloc(T **p, size_t bytes) {
    return cudaMalloc((void **)p, bytes);
}
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute a, int value) {
    return cudaFuncSetAttribute((const void *)kernel, a, value);
}
template <class... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, void (*kernel)(P...)) {
    return cudaFuncGetAttributes(a, (const void *)kernel);
}

/* ---- synchronization ---- */
static inline void __syncthreads() {
    emulated::sync_block();
}
static inline void __syncwarp(unsigned lanes = ~0u) {
    emulated::sync_lanes(lanes);
}
static inline void __threadfence() {
}
static inline void __threadfence_system() { /* the host may look on */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __nanosleep(unsigned) {
    emulated::pause();
}

/* ---- lanes ---- */
template <class T> T emulated_shuffle(unsigned lanes, T v, int from) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "a value of a lane");
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    bits = emulated::exchange(lanes, bits, from);
    memcpy(&v, &bits, sizeof v);
    return v;
}
template <class T> T __shfl_sync(unsigned lanes, T v, int from, int width = 32) {
    const int lane = emulated::lane();
    return emulated_shuffle(lanes, v, lane / width * width + from % width);
}
template <class T> T __shfl_xor_sync(unsigned lanes, T v, int mask, int width = 32) {
    const int lane = emulated::lane(), from = lane ^ mask;
    return emulated_shuffle(lanes, v, from / width == lane / width ? from : lane);
}
template <class T> T __shfl_down_sync(unsigned lanes, T v, unsigned by, int width = 32) {
    const int lane = emulated::lane(), from = lane + (int)by;
    return emulated_shuffle(lanes, v, from / width == lane / width ? from : lane);
}

/* ---- memory ---- */
template <class T> T __ldg(const T *p) {
    return *p;
}
template <class T> T __ldcg(const T *p) {
    return *p;
}
template <class T> void __stcg(T *p, T v) {
    *p = v;
}
template <class T, class V> T atomicAdd(T *p, V v) {
    const T old = *p;
    *p = (T)(old + (T)v);
    return old;
}
template <class T, class V> T atomicMax(T *p, V v) {
    const T old = *p;
    *p = std::max(old, (T)v);
    return old;
}

/* ---- values ---- */
static inline float __uint_as_float(unsigned v) {
    float f;
    memcpy(&f, &v, sizeof f);
    return f;
}
static inline unsigned __float_as_uint(float f) {
    unsigned v;
    memcpy(&v, &f, sizeof v);
    return v;
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned by) {
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (by & 31));
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
    const uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned byte = (unsigned)(bytes >> (s >> (4 * i) & 7) * 8 & 0xff);
        r |= (s >> (4 * i) & 8 ? byte >> 7 ? 0xffu : 0u : byte) << (8 * i);
    }
    return r;
}
static inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
static inline float rsqrtf(float v) {
    return 1.0f / sqrtf(v);
}
template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    return (T)b < (T)a ? (T)b : (T)a;
}
template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    return (T)a < (T)b ? (T)b : (T)a;
}
#endif
