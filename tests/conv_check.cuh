/* Forward convolution on the device by its definition, in double, and the comparison with it: for
 * main_cuda_conv*.cu and bench/conv12.cu. Header-only, plain kernels, no code of the product. */
#ifndef DR_TESTS_CONV_CHECK_CUH
#define DR_TESTS_CONV_CHECK_CUH
#include "kernels/conv_shape.h"
#include "kernels/dtype.h"
#include "kernels/epilogue.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <initializer_list>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline void must(cudaError_t e, const char *what) {
    if (e != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
        exit(1);
    }
}
#define MUST(x) must(x, #x)

/* ---- data: a hash of the index, about normal, times `scale` ---- */
__host__ __device__ static inline uint32_t mix(uint64_t x) {
    x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull;
    return (uint32_t)(x >> 32);
}
__host__ __device__ static inline float draw(uint64_t seed, int64_t i) {
    const uint32_t a = mix(seed * 0x9e3779b97f4a7c15ull + (uint64_t)i * 2 + 1);
    const uint32_t b = mix(seed * 0x9e3779b97f4a7c15ull + (uint64_t)i * 2 + 2);
    return ((float)(a & 0xffff) + (float)(a >> 16) + (float)(b & 0xffff) + (float)(b >> 16) -
            131070.0f) /
           37837.0f;
}
/* ---- draws, for shapes ---- */
static uint64_t draws; /* where the sequence stands: a seed, at first */
static inline int below(int n) {
    draws = draws * 6364136223846793005ull + 1442695040888963407ull;
    return (int)(mix(draws) % (uint32_t)n);
}
static inline int one_of(std::initializer_list<int> l) {
    return l.begin()[below((int)l.size())];
}

/* ---- values of a type ---- */
__device__ static inline double get(const void *p, int t, int64_t i) {
    return t == DR_TYPE_F32   ? (double)((const float *)p)[i]
           : t == DR_TYPE_F16 ? (double)__half2float(((const __half *)p)[i])
                              : (double)__bfloat162float(((const __nv_bfloat16 *)p)[i]);
}
__device__ static inline void put(void *p, int t, int64_t i, float v) {
    if (t == DR_TYPE_F32) {
        ((float *)p)[i] = v;
    } else if (t == DR_TYPE_F16) {
        ((__half *)p)[i] = __float2half_rn(v);
    } else {
        ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn(v);
    }
}
__global__ static void fill_kernel(void *p, int t, int64_t n, uint64_t seed, float scale,
                                   float shift) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        put(p, t, i, draw(seed, i) * scale + shift);
    }
}
static inline void fill(void *p, int t, int64_t n, uint64_t seed, float scale, float shift) {
    fill_kernel<<<1024, 256>>>(p, t, n, seed, scale, shift);
}
__global__ static void plant_kernel(void *p, int t, int64_t i, float v) {
    put(p, t, i, v);
}

/* ---- the definition ---- */
struct check_case {
    dr_conv c;
    int t;
    bool tf32;
    dr_epilogue e;
    const void *x, *w, *y;
    int64_t step; /* every step-th output is checked */
};
struct check_result {
    unsigned worst; /* bits of the largest error / allowed error, a float */
    unsigned long long wrong;
    double error2, ref2; /* squares of error and reference, for a norm */
};
__device__ static inline double act_of(double v, int act) {
    return act == 1 ? (v <= 0.0 ? 0.0 : v) : act == 4 ? (v > 0.0 || v != v ? v : v * 0.01) : v;
}
__global__ static void check_kernel(const check_case q, check_result *r) {
    const dr_conv &c = q.c;
    const int64_t total = (c.n * c.ho * c.wo * c.k + q.step - 1) / q.step;
    const int64_t cg = c.c / c.groups, kg = c.k / c.groups;
    for (int64_t j = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; j < total;
         j += (int64_t)gridDim.x * blockDim.x) {
        const int64_t i = j * q.step, k = i % c.k, ox = i / c.k % c.wo, oy = i / c.k / c.wo % c.ho;
        const int64_t n = i / c.k / c.wo / c.ho;
        double sum = 0.0, size = 0.0;
        for (int64_t kh = 0; kh < c.kh; kh++) {
            for (int64_t kw = 0; kw < c.kw; kw++) {
                const int64_t iy = oy * c.sh + kh * c.dh - c.pt, ix = ox * c.sw + kw * c.dw - c.pl;
                const bool inside = iy >= 0 && ix >= 0 && iy < c.h && ix < c.w;
                for (int64_t ch = 0; ch < cg; ch++) {
                    const double a =
                        inside ? get(q.x, q.t, ((n * c.h + iy) * c.w + ix) * c.c + k / kg * cg + ch)
                               : 0.0;
                    const double b = get(q.w, q.t, ((k * c.kh + kh) * c.kw + kw) * cg + ch);
                    sum += a * b;
                    size += fabs(a * b);
                }
            }
        }
        double ref = sum + (q.e.bias ? q.e.bias[k] : 0.0), scale = 1.0;
        if (q.e.norm_var) {
            scale = q.e.norm_weight[k] / sqrt((double)q.e.norm_var[k] + q.e.eps);
            ref = (ref - q.e.norm_mean[k]) * scale + q.e.norm_bias[k];
        }
        ref += q.e.add ? get(q.e.add, q.t, i) : 0.0;
        /* roundings: of the store; of fp32 sums; of operands to tf32, one of which is cut off */
        const double store = q.t == DR_TYPE_F32 ? 0x1p-23 : q.t == DR_TYPE_F16 ? 0x1p-11 : 0x1p-8;
        const double allowed = store * fabs(ref) + fabs(scale) * size * 0x1p-18 + 1e-6 +
                               (q.tf32 ? fabs(scale) * size * 0x1.9p-10 : 0.0) +
                               (q.t == DR_TYPE_F16 ? 0x1p-24 : 0.0);
        ref = act_of(ref, q.e.act);
        const double got = get(q.y, q.t, i), most = q.t == DR_TYPE_F16 ? 65520.0 : 3e38;
        if (isnan(ref) || fabs(ref) >= most * 0.999) {
            if (isnan(ref) != isnan(got) || (fabs(ref) > most && !isnan(ref) && !isinf(got))) {
                atomicAdd(&r->wrong, 1ull);
            }
            continue;
        }
        const double error = fabs(got - ref);
        if (!(error <= allowed)) {
            atomicAdd(&r->wrong, 1ull);
        }
        atomicMax(&r->worst, __float_as_uint((float)(error / allowed)));
        atomicAdd(&r->error2, error * error);
        atomicAdd(&r->ref2, ref * ref);
    }
}
static inline check_result check(const check_case &q) {
    static check_result *device;
    check_result r;
    if (!device) {
        MUST(cudaMalloc(&device, sizeof *device));
    }
    MUST(cudaMemset(device, 0, sizeof *device));
    check_kernel<<<2048, 128>>>(q, device);
    MUST(cudaMemcpy(&r, device, sizeof r, cudaMemcpyDeviceToHost));
    return r;
}

/* ---- bits ---- */
__global__ static void hash_kernel(const uint32_t *p, int64_t words, unsigned long long *sum) {
    unsigned long long h = 0;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < words;
         i += (int64_t)gridDim.x * blockDim.x) {
        h += mix((uint64_t)p[i] << 32 ^ (uint64_t)i);
    }
    atomicAdd(sum, h);
}
static inline unsigned long long hash(const void *p, int64_t bytes, cudaStream_t s) {
    static unsigned long long *device;
    unsigned long long h;
    if (!device) {
        MUST(cudaMalloc(&device, sizeof *device));
    }
    MUST(cudaMemsetAsync(device, 0, sizeof *device, s));
    hash_kernel<<<512, 256, 0, s>>>((const uint32_t *)p, bytes / 4, device);
    MUST(cudaMemcpyAsync(&h, device, sizeof h, cudaMemcpyDeviceToHost, s));
    MUST(cudaStreamSynchronize(s));
    return h;
}
#endif
