/* Element-wise kernels, the scalars of a step, random_flip and normalize. Memory-bound all: a few
 * elements a thread in a grid-stride loop, neighbouring threads on neighbouring addresses. */
#include "kernels/cuda/pointwise.h"
#include "kernels/cuda/activate.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/philox.h"

namespace {

struct addends {
    const void *x[DR_CUDA_ADDENDS];
    uint32_t n;
};
template <typename T>
__global__ void add_kernel(int64_t n, const __grid_constant__ addends a, int act, T *y) {
    constexpr int V = DR_PACK<T>;
    DR_PACK_LOOP(V, i, n) {
        float sum[V];
        dr_load_some<V>((const T *)a.x[0] + i, n - i, sum);
        for (uint32_t k = 1; k < a.n; k++) {
            float v[V];
            dr_load_some<V>((const T *)a.x[k] + i, n - i, v);
#pragma unroll
            for (int e = 0; e < V; e++) {
                sum[e] += v[e];
            }
        }
#pragma unroll
        for (int e = 0; e < V; e++) {
            sum[e] = dr_activate(sum[e], act);
        }
        dr_store_some<V>(y + i, n - i, sum);
    }
}

constexpr uint32_t LOSSES = 128; /* of one launch: they travel as arguments */
struct losses {
    const float *loss[LOSSES];
    double weight[LOSSES];
    uint32_t n;
};
__global__ void total_loss_kernel(const losses l, bool first, float *out) {
    double total = first ? 0.0 : *out;
    for (uint32_t i = 0; i < l.n; i++) {
        total += l.weight[i] * *l.loss[i];
    }
    *out = (float)total;
}

/* The same formula as the CPU's op lr. */
__global__ void lr_kernel(const struct dr_cuda_lr lr, const dr_batch *header, float *out) {
    const int64_t step = (int64_t)header->step;
    if (step < lr.warmup) {
        *out = (float)(lr.base * (double)(step + 1) / (double)lr.warmup);
        return;
    }
    const int64_t t = step - lr.warmup, span = lr.total - lr.warmup;
    double rate = lr.base;
    if (lr.schedule == 1) {
        const double part = span <= 0 || t >= span ? 1.0 : (double)t / (double)span;
        rate = lr.end + (lr.base - lr.end) * 0.5 * (1.0 + cos(part * 3.14159265358979323846));
    } else if (lr.schedule == 2 && lr.every > 0) {
        rate = lr.base * pow(lr.gamma, (double)(t / lr.every));
    }
    *out = (float)rate;
}

struct flip {
    bool horizontal, vertical;
    double p;
    uint64_t seed, key;
    int64_t h, w, pixel;
};
__global__ void flip_kernel(const flip f, const dr_batch *batch, int64_t n, const unsigned char *x,
                            unsigned char *y) {
    const int64_t bytes = f.h * f.w * f.pixel;
    for (int64_t sample = blockIdx.y; sample < n; sample += gridDim.y) {
        const dr_draw d = dr_philox(f.seed, f.key, batch->epoch, batch->sample[sample], 0);
        const bool across = f.horizontal && (double)dr_uniform(d.x[0]) < f.p;
        const bool down = f.vertical && (double)dr_uniform(d.x[1]) < f.p;
        const unsigned char *const from = x + sample * bytes;
        unsigned char *const to = y + sample * bytes;
        DR_GRID_LOOP(i, bytes) {
            const int64_t b = i % f.pixel, col = i / f.pixel % f.w, row = i / f.pixel / f.w;
            const int64_t from_row = down ? f.h - 1 - row : row;
            const int64_t from_col = across ? f.w - 1 - col : col;
            to[i] = from[(from_row * f.w + from_col) * f.pixel + b];
        }
    }
}

/* Of all channels at once: neighbours in memory, V at a time. */
template <typename From, typename To>
__global__ void normalize_kernel(const From *x, To *y, int64_t n,
                                 const __grid_constant__ dr_cuda_affine a) {
    constexpr int V = 4;
    DR_PACK_LOOP(V, i, n) {
        float v[V];
        dr_load_some<V>(x + i, n - i, v);
        int k = (int)(i % a.n);
#pragma unroll
        for (int e = 0; e < V; e++) {
            v[e] = __fmaf_rn(v[e], a.mul[k], a.add[k]);
            k = k + 1 < (int)a.n ? k + 1 : 0;
        }
        dr_store_some<V>(y + i, n - i, v);
    }
}
template <typename From, typename To>
__global__ void normalize_some_kernel(const From *x, To *y, int64_t rows, int64_t c,
                                      const __grid_constant__ dr_cuda_affine a) {
    DR_GRID_LOOP(i, rows * a.n) {
        const int64_t k = i % a.n, at = i / a.n * c + a.c0 + k;
        dr_store(y + at, __fmaf_rn(dr_load(x + at), a.mul[k], a.add[k]));
    }
}
template <typename From>
int normalize(const From *x, enum dr_type to, void *y, int64_t rows, int64_t c,
              const dr_cuda_affine &a, cudaStream_t s) {
    return dr_real(to, [&](auto *type) {
        using To = std::remove_pointer_t<decltype(type)>;
        if (a.n == c) {
            normalize_kernel<<<dr_blocks((rows * c + 3) / 4), DR_THREADS, 0, s>>>(x, (To *)y,
                                                                                  rows * c, a);
        } else {
            normalize_some_kernel<<<dr_blocks(rows * a.n), DR_THREADS, 0, s>>>(x, (To *)y, rows, c,
                                                                               a);
        }
        return (int)cudaGetLastError();
    });
}

int done() {
    return (int)cudaGetLastError();
}

} // namespace

extern "C" int dr_cuda_add(enum dr_type t, int64_t n, const void *const *x, uint32_t n_x, int act,
                           void *y, cudaStream_t s) {
    return dr_real(t, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        uint32_t at = 0;
        while (at < n_x) {
            addends a = {};
            if (at > 0) {
                a.x[a.n++] = y; /* each thread reads its own elements before it writes them */
            }
            while (a.n < DR_CUDA_ADDENDS && at < n_x) {
                a.x[a.n++] = x[at++];
            }
            add_kernel<<<dr_blocks((n + DR_PACK<T> - 1) / DR_PACK<T>), DR_THREADS, 0, s>>>(
                n, a, at == n_x ? act : 0, (T *)y);
        }
        return done();
    });
}

extern "C" int dr_cuda_total_loss(const void *const *loss, const double *weight, uint32_t n,
                                  float *out, cudaStream_t s) {
    for (uint32_t at = 0; at < n; at += LOSSES) {
        losses l = {};
        for (; l.n < LOSSES && at + l.n < n; l.n++) {
            l.loss[l.n] = (const float *)loss[at + l.n];
            l.weight[l.n] = weight[at + l.n];
        }
        total_loss_kernel<<<1, 1, 0, s>>>(l, at == 0, out);
    }
    return done();
}

extern "C" int dr_cuda_lr(const struct dr_cuda_lr *lr, const struct dr_batch *header, float *out,
                          cudaStream_t s) {
    lr_kernel<<<1, 1, 0, s>>>(*lr, header, out);
    return done();
}

extern "C" int dr_cuda_flip(bool horizontal, bool vertical, double p, uint64_t seed, uint64_t key,
                            const struct dr_batch *batch, const void *x, void *y, int64_t n,
                            int64_t h, int64_t w, int64_t pixel, cudaStream_t s) {
    const flip f = {horizontal, vertical, p, seed, key, h, w, pixel};
    const int64_t per_sample = (h * w * pixel + DR_THREADS - 1) / DR_THREADS;
    const dim3 grid((unsigned)(per_sample < 64 ? per_sample : 64),
                    (unsigned)(n < 65535 ? n : 65535));
    flip_kernel<<<grid, DR_THREADS, 0, s>>>(f, batch, n, (const unsigned char *)x,
                                            (unsigned char *)y);
    return done();
}

extern "C" int dr_cuda_normalize(enum dr_type from, bool u8, const void *x, enum dr_type to,
                                 void *y, int64_t rows, int64_t c, const struct dr_cuda_affine *a,
                                 cudaStream_t s) {
    if (u8) {
        return normalize((const uint8_t *)x, to, y, rows, c, *a, s);
    }
    return dr_real(from, [&](auto *type) {
        using From = std::remove_pointer_t<decltype(type)>;
        return normalize((const From *)x, to, y, rows, c, *a, s);
    });
}
