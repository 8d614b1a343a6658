/* Multi-tensor optimizers: the weights of a launch are cut into chunks of 1024 elements, a block
 * each; a block finds its weight by the list of first blocks. All are bound by memory: four
 * independent elements a thread, neighbouring threads on neighbouring addresses. */
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/optimizer.h"

namespace {

constexpr int64_t CHUNK = 4 * DR_THREADS;

struct group {
    dr_cuda_weights w;
    unsigned first[DR_CUDA_WEIGHTS + 1]; /* block of each weight, and how many there are */
};
static_assert(sizeof(group) + sizeof(struct dr_cuda_adam) <= 4000, "kernel arguments have 4 KB");

group cut(const struct dr_cuda_weights *w) {
    group l = {};
    l.w = *w;
    for (uint32_t i = 0; i < w->n; i++) {
        l.first[i + 1] = l.first[i] + (unsigned)((w->at[i].n + CHUNK - 1) / CHUNK);
    }
    return l;
}

__device__ uint32_t weight_of(const group &l) {
    uint32_t i = 0;
    while (blockIdx.x >= l.first[i + 1]) {
        i++;
    }
    return i;
}

__global__ void sgd_kernel(const struct dr_cuda_sgd a, const __grid_constant__ group l) {
    if (a.health[0] != 0) {
        return;
    }
    const uint32_t id = weight_of(l);
    const dr_cuda_weight &t = l.w.at[id];
    const int64_t begin = (int64_t)(blockIdx.x - l.first[id]) * CHUNK + threadIdx.x;
    const float lr = *a.lr, clip = a.clip ? *a.clip : 1.0f;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int64_t i = begin + k * DR_THREADS;
        if (i < t.n) {
            const float d = t.g[i] * clip + a.decay * t.w[i];
            float step = d;
            if (t.m) {
                const float m = a.momentum * t.m[i] + d;
                t.m[i] = m;
                step = a.nesterov ? d + a.momentum * m : m;
            }
            t.w[i] -= lr * step;
        }
    }
}

/* The step's factors in double, once a weight: the rate by which m / (root of v) is scaled, and the
 * root of v's own correction. */
__global__ void adam_scalars(const struct dr_cuda_adam a, const __grid_constant__ group l,
                             float *scalars) {
    const uint32_t i = threadIdx.x;
    if (i >= l.w.n || a.health[0] != 0) {
        return;
    }
    const int64_t step = ++*l.w.at[i].step;
    scalars[DR_CUDA_ADAM_SCALARS * i] = (float)(*a.lr / (1.0 - pow(a.beta1, (double)step)));
    scalars[DR_CUDA_ADAM_SCALARS * i + 1] = (float)sqrt(1.0 - pow(a.beta2, (double)step));
}

__global__ void adam_kernel(const struct dr_cuda_adam a, const __grid_constant__ group l,
                            const float *scalars) {
    if (a.health[0] != 0) {
        return;
    }
    const uint32_t id = weight_of(l);
    const dr_cuda_weight &t = l.w.at[id];
    const int64_t begin = (int64_t)(blockIdx.x - l.first[id]) * CHUNK + threadIdx.x;
    const float clip = a.clip ? *a.clip : 1.0f;
    const float rate = scalars[DR_CUDA_ADAM_SCALARS * id];
    const float root = scalars[DR_CUDA_ADAM_SCALARS * id + 1];
    const float beta2 = (float)a.beta2, new1 = (float)(1.0 - a.beta1),
                new2 = (float)(1.0 - a.beta2);
    const float keep = a.decoupled ? (float)(1.0 - *a.lr * a.decay) : 1.0f;
    const float decay = a.decoupled ? 0.0f : (float)a.decay, eps = (float)a.eps;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int64_t i = begin + k * DR_THREADS;
        if (i < t.n) {
            const float w = t.w[i] * keep, g = t.g[i] * clip + decay * t.w[i];
            const float m = t.m[i] + new1 * (g - t.m[i]), v = beta2 * t.v[i] + new2 * g * g;
            t.m[i] = m;
            t.v[i] = v;
            t.w[i] = w - rate * m / (sqrtf(v) / root + eps);
        }
    }
}

} // namespace

extern "C" int dr_cuda_sgd(const struct dr_cuda_sgd *a, const struct dr_cuda_weights *w,
                           cudaStream_t s) {
    const group l = cut(w);
    sgd_kernel<<<l.first[w->n], DR_THREADS, 0, s>>>(*a, l);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_adam(const struct dr_cuda_adam *a, const struct dr_cuda_weights *w,
                            float *scalars, cudaStream_t s) {
    const group l = cut(w);
    adam_scalars<<<1, DR_CUDA_WEIGHTS, 0, s>>>(*a, l, scalars);
    adam_kernel<<<l.first[w->n], DR_THREADS, 0, s>>>(*a, l, scalars);
    return (int)cudaGetLastError();
}
