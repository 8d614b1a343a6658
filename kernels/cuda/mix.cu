/* random_erasing, mixup and cutmix on CUDA: a block has a sample of an operand and draws what
 * becomes of it once; then a thread makes elements, bytes four at once where a sample's size allows
 * it. */
#include "kernels/cuda/grid.cuh"
#include "kernels/cuda/make.cuh"
#include "kernels/cuda/mix.h"
#include "kernels/resample.h"

namespace {

template <class T>
__global__ void erase_kernel(const dr_erase e, const dr_batch *batch, const T *x, T *y) {
    __shared__ dr_box box;
    const int32_t row = e.w * e.c, count = e.h * row;
    for (int64_t sample = blockIdx.y; sample < e.n; sample += gridDim.y) {
        __syncthreads();
        if (threadIdx.x == 0) {
            box = dr_erase_of(&e, batch, sample);
        }
        __syncthreads();
        const int32_t x0 = box.x0 * e.c, x1 = box.x1 * e.c;
        const T *const from = x + sample * count;
        dr_make(y + sample * count, count, [&](int32_t i) {
            const int32_t r = i / row, at = i - r * row;
            const bool gone = r >= box.y0 && r < box.y1 && at >= x0 && at < x1;
            return gone ? (T)e.value : from[i];
        });
    }
}

/* Elements of T moved from the sample or, in the box, from its partner. */
template <class T>
__device__ void cut(const dr_mix &m, const dr_mix_operand &o, const dr_mixed &r, int64_t sample) {
    const int32_t row = m.w * o.c, count = (int32_t)o.per_sample;
    const int32_t x0 = r.box.x0 * o.c, x1 = r.box.x1 * o.c;
    const T *const own = (const T *)o.x + sample * count;
    const T *const other = (const T *)o.x + r.partner * count;
    dr_make((T *)o.y + sample * count, count, [&](int32_t i) {
        const int32_t y = i / row, at = i - y * row;
        const bool inside = y >= r.box.y0 && y < r.box.y1 && at >= x0 && at < x1;
        return inside ? other[i] : own[i];
    });
}

template <class T> __device__ void mix(const dr_mix_operand &o, const dr_mixed &r, int64_t sample) {
    const int32_t count = (int32_t)o.per_sample;
    const T *const own = (const T *)o.x + sample * count;
    const T *const other = (const T *)o.x + r.partner * count;
    dr_make((T *)o.y + sample * count, count, [&](int32_t i) {
        const float v = dr_mix_floats(&r, (float)own[i], (float)other[i]);
        return sizeof(T) == 1 ? (T)dr_round_u8(v) : (T)v;
    });
}

__device__ void mix_classes(const dr_mix_operand &o, const dr_mixed &r, int64_t sample) {
    const int32_t count = (int32_t)o.per_sample, rows = count / o.c;
    const int32_t *const own = (const int32_t *)o.x + sample * rows;
    const int32_t *const other = (const int32_t *)o.x + r.partner * rows;
    dr_make((float *)o.y + sample * count, count, [&](int32_t i) {
        const int32_t at = i / o.c;
        return dr_mix_classes(&r, own[at], other[at], i - at * o.c, o.c);
    });
}

struct operands {
    dr_mix_operand at[DR_MIX_OPERANDS];
};

__global__ void mix_kernel(const dr_mix m, const dr_batch *batch,
                           const __grid_constant__ operands all) {
    __shared__ dr_mixed mixed;
    const dr_mix_operand &o = all.at[blockIdx.z];
    for (int64_t sample = blockIdx.y; sample < m.n; sample += gridDim.y) {
        __syncthreads();
        if (threadIdx.x == 0) {
            mixed = dr_mix_of(&m, batch, sample);
        }
        __syncthreads();
        if (o.kind == DR_MIX_CLASSES) {
            mix_classes(o, mixed, sample);
        } else if (o.kind == DR_MIX_BYTES) {
            mix<uint8_t>(o, mixed, sample);
        } else if (o.kind == DR_MIX_FLOATS) {
            mix<float>(o, mixed, sample);
        } else if (o.item == 1) {
            cut<uint8_t>(m, o, mixed, sample);
        } else if (o.item == 2) {
            cut<uint16_t>(m, o, mixed, sample);
        } else if (o.item == 4) {
            cut<uint32_t>(m, o, mixed, sample);
        } else {
            cut<uint64_t>(m, o, mixed, sample);
        }
    }
}

} // namespace

extern "C" int dr_cuda_erase(const struct dr_erase *e, const struct dr_batch *batch, const void *x,
                             void *y, cudaStream_t s) {
    const dim3 grid = dr_sample_grid((int64_t)e->h * e->w * e->c, e->n, 1);
    if (e->u8) {
        erase_kernel<<<grid, DR_THREADS, 0, s>>>(*e, batch, (const uint8_t *)x, (uint8_t *)y);
    } else {
        erase_kernel<<<grid, DR_THREADS, 0, s>>>(*e, batch, (const float *)x, (float *)y);
    }
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_mix(const struct dr_mix *m, const struct dr_batch *batch,
                           const struct dr_mix_operand *o, uint32_t n, cudaStream_t s) {
    operands all = {};
    int64_t most = 1;
    for (uint32_t i = 0; i < n; i++) {
        all.at[i] = o[i];
        most = o[i].per_sample > most ? o[i].per_sample : most;
    }
    mix_kernel<<<dr_sample_grid(most, m->n, n), DR_THREADS, 0, s>>>(*m, batch, all);
    return (int)cudaGetLastError();
}
