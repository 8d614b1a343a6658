/* Softmax and what is computed from it. Rows of many classes: one warp a row, lanes across the
 * classes, sums in double by a fixed tree. Rows of few classes (SHORT): one thread a row, which
 * finds it in shared memory, where the block has put a tile of rows in whole lines (odd pitch, so
 * that threads of a warp meet in no bank). Losses and counts of a chunk of rows make one partial
 * sum; a last block adds them in order. */
#include "kernels/cuda/softmax.h"
#include "kernels/cuda/classes.cuh"
#include "kernels/cuda/grid.cuh"
#include <type_traits>

namespace {

constexpr int WARPS = 8; /* of a block */
constexpr int SHORT = DR_CUDA_SHORT_ROW, TILE = DR_CUDA_SHORT_TILE;

/* ---- rows of few classes ---- */
struct tile {
    int k, pitch;
};
/* Calls f(element of the rows, place in the tile) for this thread's share of `rows` rows. */
template <typename F> __device__ __forceinline__ void each(const tile &t, int rows, F f) {
    const int step_row = TILE / t.k, step_col = TILE % t.k;
    int row = (int)threadIdx.x / t.k, col = (int)threadIdx.x % t.k;
    for (int i = threadIdx.x; i < rows * t.k; i += TILE) {
        f(i, row * t.pitch + col);
        row += step_row;
        col += step_col;
        if (col >= t.k) {
            col -= t.k;
            row++;
        }
    }
}

/* sum(exp(x - m)) is 1 + rest: so that its logarithm keeps its digits where one class has nearly
 * all. Not finite where m is not. */
struct weighed {
    float m, rest;
};
__device__ weighed weigh(const float *row, int k) {
    weighed w = {row[0], 0.0f};
    int at = 0;
    for (int j = 1; j < k; j++) {
        at = row[j] > w.m ? j : at;
        w.m = larger(w.m, row[j]);
    }
    for (int j = 0; j < k; j++) {
        w.rest += j == at ? 0.0f : expf(row[j] - w.m);
    }
    w.rest = isfinite(w.m) ? w.rest : NAN;
    return w;
}

template <typename T>
__global__ void softmax_short_kernel(int64_t rows, const tile t, const T *x, T *y) {
    extern __shared__ float shared[];
    const int64_t first = (int64_t)blockIdx.x * TILE;
    const int n = (int)min(rows - first, (int64_t)TILE);
    each(t, n, [&](int i, int at) { shared[at] = dr_load(x + first * t.k + i); });
    __syncthreads();
    if (threadIdx.x < n) {
        float *const row = shared + threadIdx.x * t.pitch;
        const weighed w = weigh(row, t.k);
        const float scale = 1.0f / (1.0f + w.rest);
        for (int j = 0; j < t.k; j++) {
            row[j] = expf(row[j] - w.m) * scale;
        }
    }
    __syncthreads();
    each(t, n, [&](int i, int at) { dr_store(y + first * t.k + i, shared[at]); });
}

template <typename T>
__global__ void softmax_dgrad_short_kernel(int64_t rows, const tile t, const T *y, const T *dy,
                                           T *dx) {
    extern __shared__ float shared[];
    float *const other = shared + TILE * t.pitch;
    const int64_t first = (int64_t)blockIdx.x * TILE;
    const int n = (int)min(rows - first, (int64_t)TILE);
    each(t, n, [&](int i, int at) {
        shared[at] = dr_load(y + first * t.k + i);
        other[at] = dr_load(dy + first * t.k + i);
    });
    __syncthreads();
    if (threadIdx.x < n) {
        float *const p = shared + threadIdx.x * t.pitch;
        const float *const d = other + threadIdx.x * t.pitch;
        double dot = 0;
        for (int j = 0; j < t.k; j++) {
            dot += (double)p[j] * d[j];
        }
        for (int j = 0; j < t.k; j++) {
            p[j] *= d[j] - (float)dot;
        }
    }
    __syncthreads();
    each(t, n, [&](int i, int at) { dr_store(dx + first * t.k + i, shared[at]); });
}

/* ---- rows of many classes ---- */
template <typename T> __global__ void softmax_kernel(int64_t rows, int64_t k, const T *x, T *y) {
    const int lane = threadIdx.x % 32;
    for (int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; r < rows;
         r += (int64_t)gridDim.x * WARPS) {
        const float m = row_max(x + r * k, k, lane);
        const float scale = (float)(1.0 / exp_sum(x + r * k, k, m, lane));
        for (int64_t j = lane; j < k; j += 32) {
            dr_store(y + r * k + j, expf(dr_load(x + r * k + j) - m) * scale);
        }
    }
}

template <typename T>
__global__ void softmax_dgrad_kernel(int64_t rows, int64_t k, const T *y, const T *dy, T *dx) {
    const int lane = threadIdx.x % 32;
    for (int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; r < rows;
         r += (int64_t)gridDim.x * WARPS) {
        double dot = 0;
        for (int64_t j = lane; j < k; j += 32) {
            dot += (double)dr_load(y + r * k + j) * dr_load(dy + r * k + j);
        }
        dot = warp_sum(dot);
        for (int64_t j = lane; j < k; j += 32) {
            const float p = dr_load(y + r * k + j);
            dr_store(dx + r * k + j, p * (dr_load(dy + r * k + j) - (float)dot));
        }
    }
}

/* ---- losses and counts ---- */
__device__ double weight_of(const classes &c, int64_t cls) {
    return c.class_weight ? c.class_weight[cls] : 1.0;
}

/* PyTorch: (1 - s) * w[t] * -log p[t] + s / K * sum_j w[j] * -log p[j]. */
__device__ double row_loss(const classes &c, const float *x, int64_t cls, int lane) {
    const float m = row_max(x, c.k, lane);
    const double lse = log(exp_sum(x, c.k, m, lane)), s = c.smoothing;
    double loss = (1.0 - s) * weight_of(c, cls) * (lse - ((double)x[cls] - m));
    if (s > 0) {
        double all = 0;
        for (int64_t j = lane; j < c.k; j += 32) {
            all += weight_of(c, j) * (lse - ((double)x[j] - m));
        }
        loss += s / (double)c.k * warp_sum(all);
    }
    return loss;
}

__device__ double row_right(const float *x, int64_t k, int64_t cls, int64_t top, int lane) {
    if (cls < 0 || cls >= k || x[cls] != x[cls]) {
        return 0;
    }
    double above = 0;
    for (int64_t j = lane; j < k; j += 32) {
        above += !(x[j] <= x[cls]) || (x[j] == x[cls] && j < cls);
    }
    return warp_sum(above) < (double)top;
}

/* The same of a row in shared memory, by one thread. No term is below 0, so nothing cancels. */
__device__ double short_loss(const classes &c, const float *x, int64_t cls) {
    const weighed w = weigh(x, (int)c.k);
    const float log_sum = log1pf(w.rest);
    const double s = c.smoothing;
    double loss = (1.0 - s) * weight_of(c, cls) * (log_sum + (w.m - x[cls]));
    if (s > 0) {
        double all = 0;
        for (int j = 0; j < (int)c.k; j++) {
            all += weight_of(c, j) * (log_sum + (w.m - x[j]));
        }
        loss += s / (double)c.k * all;
    }
    return loss;
}
__device__ bool short_right(const float *x, int k, int64_t cls, int64_t top) {
    if (cls < 0 || cls >= k || x[cls] != x[cls]) {
        return false;
    }
    int above = 0;
    for (int j = 0; j < k; j++) {
        above += !(x[j] <= x[cls]) || (x[j] == x[cls] && j < cls);
    }
    return above < top;
}

/* What a row adds to a partial sum; top 0: the loss, else accuracy. right, loss: how to find them.
 */
struct tally {
    double sum, count;
};
template <typename R, typename L>
__device__ void take(const classes &c, int64_t row, int64_t top, tally *t, R right, L loss) {
    int64_t cls;
    if (!counts(c, row, &cls)) {
        return;
    }
    if (top > 0) {
        t->sum += right(cls);
        t->count += 1;
    } else if (cls < 0 || cls >= c.k) {
        t->sum = NAN;
        t->count += 1;
    } else {
        t->sum += loss(cls);
        t->count += weight_of(c, cls);
    }
}

/* partial[block] = {sum, count} of a chunk of rows, added up by a fixed tree. */
__global__ void rows_short_kernel(const classes c, int64_t top, const tile t, int64_t chunk,
                                  const float *x, double *partial) {
    extern __shared__ float shared[];
    __shared__ double part[2][TILE];
    const int64_t begin = blockIdx.x * chunk, end = min(begin + chunk, c.rows);
    tally all = {0, 0};
    for (int64_t first = begin; first < end; first += TILE) {
        const int n = (int)min(end - first, (int64_t)TILE);
        each(t, n, [&](int i, int at) { shared[at] = x[first * t.k + i]; });
        __syncthreads();
        if (threadIdx.x < n) {
            const float *const row = shared + threadIdx.x * t.pitch;
            take(
                c, first + threadIdx.x, top, &all,
                [&](int64_t cls) { return (double)short_right(row, t.k, cls, top); },
                [&](int64_t cls) { return short_loss(c, row, cls); });
        }
        __syncthreads();
    }
    part[0][threadIdx.x] = all.sum;
    part[1][threadIdx.x] = all.count;
    for (int half = TILE / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            part[0][threadIdx.x] += part[0][threadIdx.x + half];
            part[1][threadIdx.x] += part[1][threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        partial[2 * (int64_t)blockIdx.x] = part[0][0];
        partial[2 * (int64_t)blockIdx.x + 1] = part[1][0];
    }
}

__global__ void rows_kernel(const classes c, int64_t top, int64_t chunk, const float *x,
                            double *partial) {
    __shared__ double part[WARPS][2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t begin = blockIdx.x * chunk, end = min(begin + chunk, c.rows);
    tally all = {0, 0};
    for (int64_t row = begin + warp; row < end; row += WARPS) {
        const float *const at = x + row * c.k;
        take(
            c, row, top, &all, [&](int64_t cls) { return row_right(at, c.k, cls, top, lane); },
            [&](int64_t cls) { return row_loss(c, at, cls, lane); });
    }
    if (lane == 0) {
        part[warp][0] = all.sum;
        part[warp][1] = all.count;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        double total = 0;
        for (int i = 0; i < WARPS; i++) {
            total += part[i][threadIdx.x];
        }
        partial[2 * (int64_t)blockIdx.x + threadIdx.x] = total;
    }
}

/* What gradients have in common: d logits[j] = scale * (total * p[j] - spread * weight[j] - (own,
 * of the row's class)), total = own + spread * weight_k. */
struct slope {
    double scale, spread, weight_k;
};
__device__ slope slope_of(const classes &c, double weight, const double *partial, int lane) {
    slope v = {partial[1] != 0 ? weight / partial[1] : 0, c.smoothing / (double)c.k, (double)c.k};
    if (c.class_weight) {
        v.weight_k = 0;
        for (int64_t j = lane; j < c.k; j += 32) {
            v.weight_k += c.class_weight[j];
        }
        v.weight_k = warp_sum(v.weight_k);
    }
    return v;
}
/* Those of one row, of class cls. */
struct row_slope {
    float total, own;
};
__device__ row_slope row_slope_of(const classes &c, const slope &v, int64_t cls) {
    const double own = (1.0 - c.smoothing) * weight_of(c, cls);
    return {(float)(v.scale * (own + v.spread * v.weight_k)), (float)(v.scale * own)};
}
__device__ float slope_at(const classes &c, const slope &v, const row_slope &r, bool is_class,
                          int64_t j, float p) {
    float d = r.total * p;
    if (c.smoothing > 0) {
        d -= (float)(v.scale * v.spread * weight_of(c, j));
    }
    return is_class ? d - r.own : d;
}
/* Whether a row has a gradient; else it is *same in every class: 0, or NaN where the class is out
 * of range, whose loss is NaN: nothing will be updated. */
__device__ bool slopes(const classes &c, const slope &v, int64_t row, int64_t *cls, float *same) {
    const bool used = counts(c, row, cls) && v.scale != 0;
    const bool wrong = used && (*cls < 0 || *cls >= c.k);
    *same = wrong ? NAN : 0.0f;
    return used && !wrong;
}

__global__ void loss_dgrad_short_kernel(const classes c, const tile t, const float *x,
                                        double weight, const double *partial, float *dx) {
    extern __shared__ float shared[];
    const slope v = slope_of(c, weight, partial, threadIdx.x % 32);
    const int64_t first = (int64_t)blockIdx.x * TILE;
    const int n = (int)min(c.rows - first, (int64_t)TILE);
    each(t, n, [&](int i, int at) { shared[at] = x[first * t.k + i]; });
    __syncthreads();
    if (threadIdx.x < n) {
        float *const row = shared + threadIdx.x * t.pitch, same;
        int64_t cls;
        if (slopes(c, v, first + threadIdx.x, &cls, &same)) {
            const weighed w = weigh(row, t.k);
            const row_slope r = row_slope_of(c, v, cls);
            const float scale = 1.0f / (1.0f + w.rest);
            for (int j = 0; j < t.k; j++) {
                row[j] = slope_at(c, v, r, j == cls, j, expf(row[j] - w.m) * scale);
            }
        } else {
            for (int j = 0; j < t.k; j++) {
                row[j] = same;
            }
        }
    }
    __syncthreads();
    each(t, n, [&](int i, int at) { dx[first * t.k + i] = shared[at]; });
}

__global__ void loss_dgrad_kernel(const classes c, const float *x, double weight,
                                  const double *partial, float *dx) {
    const int lane = threadIdx.x % 32;
    const slope v = slope_of(c, weight, partial, lane);
    for (int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; r < c.rows;
         r += (int64_t)gridDim.x * WARPS) {
        const float *const row = x + r * c.k;
        float *const d = dx + r * c.k, same;
        int64_t cls;
        if (!slopes(c, v, r, &cls, &same)) {
            for (int64_t j = lane; j < c.k; j += 32) {
                d[j] = same;
            }
            continue;
        }
        const float m = row_max(row, c.k, lane);
        const float shift = m + (float)log(exp_sum(row, c.k, m, lane));
        const row_slope own = row_slope_of(c, v, cls);
        for (int64_t j = lane; j < c.k; j += 32) {
            d[j] = slope_at(c, v, own, j == cls, j, expf(row[j] - shift));
        }
    }
}

/* Host numbers reach the device as kernel arguments: nothing to keep alive, nothing to copy. */
constexpr int FILL = 256;
struct numbers {
    double v[FILL];
};
__global__ void fill_kernel(const numbers a, int n, double *to) {
    if (threadIdx.x < n) {
        to[threadIdx.x] = a.v[threadIdx.x];
    }
}

unsigned warp_blocks(int64_t rows) {
    const int64_t b = (rows + WARPS - 1) / WARPS;
    return (unsigned)(b < 4096 ? b : 4096);
}
unsigned tiles(int64_t rows) {
    return (unsigned)((rows + TILE - 1) / TILE);
}
/* Whether one thread takes a row; blocks are numbered in 31 bits. */
bool is_short(int64_t rows, int64_t k) {
    return k <= SHORT && (rows + TILE - 1) / TILE <= INT32_MAX;
}
tile tile_of(int64_t k) {
    return {(int)k, (int)k | 1};
}
size_t tile_bytes(int64_t k) {
    return TILE * (size_t)tile_of(k).pitch * sizeof(float);
}

classes on_device(const dr_cuda_classes *c, void *workspace, cudaStream_t s) {
    classes d = {c->target, c->u8,     c->rows,      c->k,   c->rows_per_sample,
                 c->ignore, c->header, c->smoothing, nullptr};
    if (c->class_weight) {
        double *const to = (double *)workspace + 2 * dr_cuda_class_chunks(c->rows, c->k);
        for (int64_t at = 0; at < c->k; at += FILL) {
            numbers a;
            const int n = (int)(c->k - at < FILL ? c->k - at : FILL);
            for (int i = 0; i < n; i++) {
                a.v[i] = c->class_weight[at + i];
            }
            fill_kernel<<<1, FILL, 0, s>>>(a, n, to + at);
        }
        d.class_weight = to;
    }
    return d;
}

int sum_rows(const dr_cuda_classes *c, int64_t top, const float *x, void *workspace, float *mean,
             double *partial, cudaStream_t s) {
    const classes d = on_device(c, workspace, s);
    double *const part = (double *)workspace;
    const int64_t chunk = dr_cuda_class_chunk(c->rows, c->k);
    const int64_t chunks = dr_cuda_class_chunks(c->rows, c->k);
    if (c->k <= SHORT) {
        rows_short_kernel<<<(unsigned)chunks, TILE, tile_bytes(c->k), s>>>(d, top, tile_of(c->k),
                                                                           chunk, x, part);
    } else {
        rows_kernel<<<(unsigned)chunks, WARPS * 32, 0, s>>>(d, top, chunk, x, part);
    }
    merge_kernel<<<1, 32, 0, s>>>(part, chunks, mean, partial);
    return (int)cudaGetLastError();
}

} // namespace

extern "C" int dr_cuda_softmax(enum dr_type t, int64_t rows, int64_t k, const void *x, void *y,
                               cudaStream_t s) {
    return dr_real(t, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        if (is_short(rows, k)) {
            softmax_short_kernel<<<tiles(rows), TILE, tile_bytes(k), s>>>(rows, tile_of(k),
                                                                          (const T *)x, (T *)y);
        } else {
            softmax_kernel<<<warp_blocks(rows), WARPS * 32, 0, s>>>(rows, k, (const T *)x, (T *)y);
        }
        return (int)cudaGetLastError();
    });
}

extern "C" int dr_cuda_softmax_dgrad(enum dr_type t, int64_t rows, int64_t k, const void *y,
                                     const void *dy, void *dx, cudaStream_t s) {
    return dr_real(t, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        if (is_short(rows, k)) {
            softmax_dgrad_short_kernel<<<tiles(rows), TILE, 2 * tile_bytes(k), s>>>(
                rows, tile_of(k), (const T *)y, (const T *)dy, (T *)dx);
        } else {
            softmax_dgrad_kernel<<<warp_blocks(rows), WARPS * 32, 0, s>>>(rows, k, (const T *)y,
                                                                          (const T *)dy, (T *)dx);
        }
        return (int)cudaGetLastError();
    });
}

extern "C" int dr_cuda_cross_entropy(const struct dr_cuda_classes *c, const float *x,
                                     void *workspace, float *mean, double *partial,
                                     cudaStream_t s) {
    return sum_rows(c, 0, x, workspace, mean, partial, s);
}

extern "C" int dr_cuda_cross_entropy_dgrad(const struct dr_cuda_classes *c, const float *x,
                                           double weight, const double *partial, void *workspace,
                                           float *dx, cudaStream_t s) {
    const classes d = on_device(c, workspace, s);
    if (is_short(c->rows, c->k)) {
        loss_dgrad_short_kernel<<<tiles(c->rows), TILE, tile_bytes(c->k), s>>>(d, tile_of(c->k), x,
                                                                               weight, partial, dx);
    } else {
        loss_dgrad_kernel<<<warp_blocks(c->rows), WARPS * 32, 0, s>>>(d, x, weight, partial, dx);
    }
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_accuracy(const struct dr_cuda_classes *c, int64_t top, const float *x,
                                void *workspace, double *partial, cudaStream_t s) {
    return sum_rows(c, top, x, workspace, nullptr, partial, s);
}
