/* Element-wise kernels, the scalars of a step, random_flip and normalize. Memory-bound all:
 * one thread an element in a grid-stride loop, neighbouring threads on neighbouring addresses. */
#include "kernels/cuda/pointwise.h"
#include "kernels/cuda/activate.cuh"
#include "kernels/cuda/grid.cuh"
#include "kernels/philox.h"

namespace {

struct addends {
    const float *x[8];
    uint32_t n;
};
__global__ void add_kernel(int64_t n, const addends a, int act, float *y) {
    DR_GRID_LOOP(i, n) {
        float v = a.x[0][i];
        for (uint32_t k = 1; k < a.n; k++) {
            v += a.x[k][i];
        }
        y[i] = dr_activate(v, act);
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

template <class T>
__global__ void normalize_kernel(const T *x, float *y, int64_t rows, int64_t c,
                                 const dr_cuda_affine a) {
    DR_GRID_LOOP(i, rows * a.n) {
        const int64_t k = i % a.n, at = i / a.n * c + a.c0 + k;
        y[at] = __fmaf_rn((float)x[at], a.mul[k], a.add[k]);
    }
}

int done() {
    return (int)cudaGetLastError();
}

} // namespace

extern "C" int dr_cuda_add(int64_t n, const void *const *x, uint32_t n_x, int act, float *y,
                           cudaStream_t s) {
    uint32_t at = 0;
    while (at < n_x) {
        addends a = {};
        if (at > 0) {
            a.x[a.n++] = y; /* each thread reads its own element before it writes it */
        }
        while (a.n < 8 && at < n_x) {
            a.x[a.n++] = (const float *)x[at++];
        }
        add_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(n, a, at == n_x ? act : 0, y);
    }
    return done();
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

extern "C" int dr_cuda_normalize(const void *x, bool u8, float *y, int64_t rows, int64_t c,
                                 const struct dr_cuda_affine *a, cudaStream_t s) {
    const unsigned blocks = dr_blocks(rows * a->n);
    if (u8) {
        normalize_kernel<<<blocks, DR_THREADS, 0, s>>>((const uint8_t *)x, y, rows, c, *a);
    } else {
        normalize_kernel<<<blocks, DR_THREADS, 0, s>>>((const float *)x, y, rows, c, *a);
    }
    return done();
}
