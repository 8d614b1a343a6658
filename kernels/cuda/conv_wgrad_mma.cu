/* The weight gradient on Tensor cores (mma.sync, sm_80 and up), one template for tf32, fp16 and
 * bf16, fp32 sums: M = filters, N = window positions (kh, kw, c), K = output pixels.
 *
 * Both operands lie in memory with K as the slow axis: dy as [pixel][filter], windows as
 * [pixel][kh, kw, c], the latter read in place (16 bytes of a window's position at a time;
 * neighbouring taps find each other's pixels in the caches). They enter shared memory in that
 * order, swizzled by pixel, three stages deep, and ldmatrix turns them; tf32 reads single words. A
 * chunk of pixels is one chain of sums in this order: the same bits on any grid. */
#include "kernels/cuda/conv_mma.cuh"
#include "kernels/cuda/conv_wgrad.cuh"

namespace dr {
namespace {

constexpr int STAGES = 3;

struct wgrad_args {
    wgrad p;
    bool copy_x, copy_dy; /* 16 bytes at a time */
};

/* TM filters by TJ window positions a block, WM warps along the filters. */
template <class Op, int TM_, int TJ_, int WM_> struct shape {
    using op = Op;
    using T = typename Op::T;
    static constexpr int TM = TM_, TJ = TJ_, WM = WM_, WN = 8 / WM;
    static constexpr int MT = TM / 16 / WM, NT = TJ / 8 / WN;
    static constexpr int V = 16 / (int)sizeof(T), QP = 8 * V; /* pixels a stage: 64 or 32 */
    static constexpr int STEPS = 4;                           /* of 32 bytes of pixels */
    static constexpr int A_BYTES = QP * TM * (int)sizeof(T), B_BYTES = QP * TJ * (int)sizeof(T);
    static constexpr int BYTES = STAGES * (A_BYTES + B_BYTES);
};

/* What a block works on. */
struct part {
    int k0, group;
    int64_t j0, chunk, first, last; /* window positions, pixels */
};
template <class S> __device__ __forceinline__ part part_of(const wgrad &p) {
    const int tiles_k = (p.kg + S::TM - 1) / S::TM;
    const int64_t tiles_j = (p.columns + S::TJ - 1) / S::TJ;
    part b;
    int64_t id = blockIdx.x;
    b.k0 = (int)(id % tiles_k) * S::TM;
    id /= tiles_k;
    b.j0 = id % tiles_j * S::TJ;
    id /= tiles_j;
    b.group = (int)(id % p.c.groups);
    b.chunk = id / p.c.groups;
    b.first = b.chunk * p.chunk;
    b.last = min(b.first + p.chunk, p.pixels);
    return b;
}

/* The place of element `column` of pixel q in a [QP][N] tile. */
template <class T, int N> __device__ __forceinline__ uint32_t place(int q, int column) {
    constexpr int V = 16 / (int)sizeof(T);
    return (uint32_t)(q * (N / V) + ((column / V) ^ mma_turned<T, N, true>(q))) * 16 +
           column % V * (uint32_t)sizeof(T);
}

/* What a thread copies of each stage's dy: 16 bytes (or one element) of every ROWS-th pixel. */
template <class S>
__device__ __forceinline__ void fetch_dy(const wgrad_args &a, const part &b,
                                         const typename S::T *dy, int64_t p0, unsigned char *to) {
    using T = typename S::T;
    const wgrad &p = a.p;
    const int left = (int)min(b.last - p0, (int64_t)S::QP);
    if (a.copy_dy) {
        constexpr int UNITS = S::TM / S::V, ROWS = MMA_THREADS / UNITS;
        const int k = threadIdx.x % UNITS * S::V, row = threadIdx.x / UNITS;
        const uint32_t at = ptx::shared_address(to) + place<T, S::TM>(row, k);
        const T *from = dy + (p0 + row) * p.c.k + (int64_t)b.group * p.kg + b.k0 + k;
        const int real = b.k0 + k < p.kg ? left : 0;
#pragma unroll
        for (int i = 0; i < S::QP / ROWS; i++) { /* the swizzle repeats after ROWS pixels */
            ptx::copy_async16(at + (uint32_t)(i * ROWS * UNITS) * 16, from + i * ROWS * p.c.k,
                              row + i * ROWS < real);
        }
        return;
    }
    const T *const from = dy + p0 * p.c.k + (int64_t)b.group * p.kg + b.k0;
    const int k = threadIdx.x % S::TM;
    for (int q = threadIdx.x / S::TM; q < S::QP; q += MMA_THREADS / S::TM) {
        *(T *)(to + place<T, S::TM>(q, k)) =
            q < left && b.k0 + k < p.kg ? from[q * p.c.k + k] : mma_zero<T>();
    }
}

/* A thread's window position: how far it lies from a window's first, and where its channel is. */
template <class T> struct position {
    const T *from;
    int oy, ox;
    bool real;
};
template <class T>
__device__ __forceinline__ position<T> position_of(const wgrad &p, const part &b, const T *x,
                                                   int column) {
    const int64_t j = b.j0 + column, tap = j / p.cg;
    const int ox = (int)(tap % p.c.kw) * (int)p.c.dw, oy = (int)(tap / p.c.kw) * (int)p.c.dh;
    return {x + ((int64_t)oy * p.c.w + ox) * p.c.c + (int64_t)b.group * p.cg + (j - tap * p.cg), oy,
            ox, j < p.columns};
}

template <class S>
__device__ __forceinline__ void fetch_windows(const wgrad_args &a, const position<typename S::T> &w,
                                              const origin *at, unsigned char *to) {
    using T = typename S::T;
    const wgrad &p = a.p;
    const unsigned height = w.real ? (unsigned)p.c.h : 0, width = (unsigned)p.c.w;
    if (a.copy_x) {
        constexpr int UNITS = S::TJ / S::V, ROWS = MMA_THREADS / UNITS;
        const int row = threadIdx.x / UNITS;
        const uint32_t first =
            ptx::shared_address(to) + place<T, S::TJ>(row, threadIdx.x % UNITS * S::V);
#pragma unroll
        for (int i = 0; i < S::QP / ROWS; i++) {
            const origin o = at[row + i * ROWS];
            ptx::copy_async16(first + (uint32_t)(i * ROWS * UNITS) * 16, w.from + o.at,
                              (unsigned)(o.iy + w.oy) < height && (unsigned)(o.ix + w.ox) < width);
        }
        return;
    }
    const int column = threadIdx.x % S::TJ;
    for (int q = threadIdx.x / S::TJ; q < S::QP; q += MMA_THREADS / S::TJ) {
        const origin o = at[q];
        const bool in = (unsigned)(o.iy + w.oy) < height && (unsigned)(o.ix + w.ox) < width;
        *(T *)(to + place<T, S::TJ>(q, column)) = in ? w.from[o.at] : mma_zero<T>();
    }
}

/* Filters m .. m + 15 of one step as a fragment of A. */
template <class S>
__device__ __forceinline__ void filters(uint32_t tile, int m, int step, uint32_t (&a)[4]) {
    using T = typename S::T;
    const int lane = threadIdx.x % 32;
    if constexpr (!S::op::tf32) {
        const int q = step * 16 + (lane & 7) + (lane >> 4) * 8;
        ptx::load_matrices_turned(a[0], a[1], a[2], a[3],
                                  tile + place<T, S::TM>(q, m + (lane >> 3 & 1) * S::V));
    } else {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int q = step * 8 + (lane & 3) + r / 2 * 4;
            a[r] = S::op::operand(
                ptx::load_shared_word(tile + place<T, S::TM>(q, m + (lane >> 2) + r % 2 * 8)));
        }
    }
}

template <class S>
__device__ __forceinline__ void multiply(uint32_t a_tile, uint32_t b_tile, int m0, int n0,
                                         float (&acc)[S::MT][S::NT][4]) {
#pragma unroll(S::op::tf32 ? 1 : S::STEPS) /* tf32 holds an address a fragment */
    for (int step = 0; step < S::STEPS; step++) {
        uint32_t a[S::MT][4], b[S::NT][2];
#pragma unroll
        for (int m = 0; m < S::MT; m++) {
            filters<S>(a_tile, m0 + m * 16, step, a[m]);
        }
        mma_turned_columns<typename S::op, S::TJ, S::NT, true>(b_tile, n0, step, b);
#pragma unroll
        for (int m = 0; m < S::MT; m++) {
#pragma unroll
            for (int n = 0; n < S::NT; n++) {
                S::op::mma(acc[m][n], a[m], b[n]);
            }
        }
    }
}

template <class S>
__device__ __forceinline__ void store(const wgrad &p, const part &b, int m0, int n0,
                                      const float (&acc)[S::MT][S::NT][4], float *partial) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float *const to = partial + b.chunk * p.elements + (int64_t)b.group * p.kg * p.columns;
#pragma unroll
    for (int m = 0; m < S::MT; m++) {
#pragma unroll
        for (int n = 0; n < S::NT; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int k = b.k0 + m0 + m * 16 + g + i / 2 * 8;
                const int64_t j = b.j0 + n0 + n * 8 + 2 * t + i % 2;
                if (k < p.kg && j < p.columns) {
                    to[k * p.columns + j] = acc[m][n][i];
                }
            }
        }
    }
}

template <class S>
__global__ void __launch_bounds__(MMA_THREADS, 2)
    wgrad_mma_kernel(const __grid_constant__ wgrad_args a, const typename S::T *x,
                     const typename S::T *dy, float *partial) {
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ origin at[2][S::QP];
    const part b = part_of<S>(a.p);
    const int warp = threadIdx.x / 32;
    const int m0 = warp / S::WN * S::MT * 16, n0 = warp % S::WN * S::NT * 8;
    const int stages = (int)((b.last - b.first + S::QP - 1) / S::QP);
    const auto window = position_of(
        a.p, b, x, a.copy_x ? threadIdx.x % (S::TJ / S::V) * S::V : threadIdx.x % S::TJ);
    const auto locate = [&](int stage) {
        if (threadIdx.x < S::QP) {
            at[stage % 2][threadIdx.x] =
                origin_of(a.p, b.first + (int64_t)stage * S::QP + threadIdx.x, b.last);
        }
    };
    const auto fetch = [&](int stage) {
        if (stage < stages) {
            unsigned char *const to = shared + stage % STAGES * (S::A_BYTES + S::B_BYTES);
            fetch_dy<S>(a, b, dy, b.first + (int64_t)stage * S::QP, to);
            fetch_windows<S>(a, window, at[stage % 2], to + S::A_BYTES);
        }
        ptx::copies_commit();
    };
    locate(0);
    locate(1);
    __syncthreads();
    fetch(0);
    fetch(1);
    __syncthreads();
    locate(2);
    float acc[S::MT][S::NT][4] = {};
    for (int i = 0; i < stages; i++) {
        ptx::copies_wait<1>();
        __syncthreads(); /* stage i is there, i - 1 and the origins of i + 1 are read */
        fetch(i + 2);
        locate(i + 3);
        const uint32_t tile =
            ptx::shared_address(shared) + i % STAGES * (uint32_t)(S::A_BYTES + S::B_BYTES);
        multiply<S>(tile, tile + S::A_BYTES, m0, n0, acc);
    }
    store<S>(a.p, b, m0, n0, acc, partial);
}

template <class S>
int launch(const wgrad_args &a, const void *x, const void *dy, float *partial, cudaStream_t s) {
    using T = typename S::T;
    const wgrad &p = a.p;
    const int64_t blocks = (int64_t)((p.kg + S::TM - 1) / S::TM) *
                           ((p.columns + S::TJ - 1) / S::TJ) * p.c.groups *
                           ((p.pixels + p.chunk - 1) / p.chunk);
    if (blocks > INT32_MAX) {
        return (int)cudaErrorInvalidConfiguration;
    }
    const cudaError_t e = cudaFuncSetAttribute(
        wgrad_mma_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    if (e != cudaSuccess) {
        return (int)e;
    }
    wgrad_mma_kernel<S>
        <<<(unsigned)blocks, MMA_THREADS, S::BYTES, s>>>(a, (const T *)x, (const T *)dy, partial);
    return (int)cudaGetLastError();
}

template <class Op>
int launch(const wgrad &p, const void *x, const void *dy, float *partial, cudaStream_t s) {
    constexpr int V = 16 / (int)sizeof(typename Op::T);
    const auto aligned = [](const void *q) { return (uintptr_t)q % 16 == 0; };
    const wgrad_args a = {p, aligned(x) && p.cg % V == 0, aligned(dy) && p.kg % V == 0};
    return p.kg <= 32        ? launch<shape<Op, 32, 128, 1>>(a, x, dy, partial, s)
           : p.columns <= 32 ? launch<shape<Op, 64, 32, 4>>(a, x, dy, partial, s)
           : p.kg <= 64      ? launch<shape<Op, 64, 128, 2>>(a, x, dy, partial, s)
                             : launch<shape<Op, 128, 128, 2>>(a, x, dy, partial, s);
}
} // namespace

int wgrad_mma(const wgrad &p, enum dr_type t, const void *x, const void *dy, float *partial,
              cudaStream_t s) {
    return t == DR_TYPE_F32   ? launch<dr_op_tf32>(p, x, dy, partial, s)
           : t == DR_TYPE_F16 ? launch<dr_op_f16>(p, x, dy, partial, s)
                              : launch<dr_op_bf16>(p, x, dy, partial, s);
}

} // namespace dr
