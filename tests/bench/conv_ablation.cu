/* What the parts of im2win on Tensor cores are worth (kernels/cuda/conv_mma.cuh): forward fp16 on
 * the papers' twelve layers, batch 128, without
 *
 *  - the swizzle of shared memory,
 *  - double buffering,
 *  - both,
 *  - windows in shared memory: the papers' `global` form builds the window tensor
 *    [n][ho][w][kh * c] in device memory, and convolves that with filters of 1 x Kw.
 *
 *     conv_ablation [LAYER ...]
 *
 * Variants take turns, 20 launches a time; the median of 7 rounds in milliseconds. Each result is
 * held against the product's own: ||difference|| / ||result||. */
#include "kernels/cuda/conv_mma.cuh"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace dr {
namespace {

constexpr int BATCH = 128, LAUNCHES = 20, ROUNDS = 7;

struct layer {
    const char *name;
    int c, h, k, kernel, stride;
};
const layer layers[] = {
    {"conv1", 3, 227, 96, 11, 4},   {"conv2", 3, 231, 96, 11, 4},   {"conv3", 3, 227, 64, 7, 2},
    {"conv4", 64, 224, 64, 7, 2},   {"conv5", 96, 24, 256, 5, 1},   {"conv6", 256, 12, 512, 3, 1},
    {"conv7", 3, 224, 64, 3, 1},    {"conv8", 64, 112, 128, 3, 1},  {"conv9", 64, 56, 64, 3, 1},
    {"conv10", 128, 28, 128, 3, 1}, {"conv11", 256, 14, 256, 3, 1}, {"conv12", 512, 7, 512, 3, 1}};

void check(int error, const char *what) {
    if (error) {
        printf("%s: %s\n", what, cudaGetErrorString((cudaError_t)error));
        exit(1);
    }
}

/* Hashed numbers in [-1, 1). */
__global__ void fill(__half *x, int64_t n, uint32_t seed) {
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint32_t z = (uint32_t)i * 2654435761u + seed;
        z = (z ^ z >> 15) * 2246822519u;
        z = (z ^ z >> 13) * 3266489917u;
        x[i] = __float2half_rn((float)((z ^ z >> 16) >> 8) * 0x1p-23f - 1.0f);
    }
}

/* window[n][ho][w][kh][c] = x[n][ho * stride + kh][w][c], V values at a time. */
template <int V> __global__ void build_windows(dr_conv c, const __half *x, __half *window) {
    struct alignas(2 * V) pack {
        __half at[V];
    };
    const int64_t channels = c.c / V, total = c.n * c.ho * c.w * c.kh * channels;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t ch = i % channels, kh = i / channels % c.kh, w = i / channels / c.kh % c.w;
        const int64_t row = i / channels / c.kh / c.w, image = row / c.ho, ho = row % c.ho;
        ((pack *)window)[i] =
            ((const pack *)x)[((image * c.h + ho * c.sh + kh) * c.w + w) * channels + ch];
    }
}
/* turned[k][kw][kh][c] = w[k][kh][kw][c]. */
__global__ void turn_weights(dr_conv c, const __half *w, __half *turned) {
    const int64_t total = c.k * c.kh * c.kw * c.c;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t ch = i % c.c, kh = i / c.c % c.kh, kw = i / c.c / c.kh % c.kw;
        const int64_t k = i / c.c / c.kh / c.kw;
        turned[i] = w[((k * c.kh + kh) * c.kw + kw) * c.c + ch];
    }
}
__global__ void distance(const __half *a, const __half *b, int64_t n, double *sums) {
    double off = 0, size = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        const double u = __half2float(a[i]), v = __half2float(b[i]);
        off += (u - v) * (u - v), size += u * u;
    }
    atomicAdd(sums, off);
    atomicAdd(sums + 1, size);
}

struct bench {
    dr_conv c;
    corr direct, windowed; /* from x, from the window tensor */
    __half *x, *w, *y, *want, *window, *turned;
    double *sums;
    cudaStream_t stream;
};

template <bool SWIZZLE, bool BUFFERED> int product(const bench &b, const corr &p, bool global) {
    bool fits;
    const __half *const x = global ? b.window : b.x, *const w = global ? b.turned : b.w;
    const int err =
        p.k <= 64
            ? mma_launch<dr_op_f16, false, 2, 4, SWIZZLE, BUFFERED>(p, x, w, b.y, &fits, b.stream)
            : mma_launch<dr_op_f16, false, 4, 4, SWIZZLE, BUFFERED>(p, x, w, b.y, &fits, b.stream);
    return err ? err : fits ? 0 : (int)cudaErrorInvalidConfiguration;
}
int windows(const bench &b) {
    if (b.c.c % 8 == 0) {
        build_windows<8><<<2048, 256, 0, b.stream>>>(b.c, b.x, b.window);
    } else {
        build_windows<1><<<2048, 256, 0, b.stream>>>(b.c, b.x, b.window);
    }
    return (int)cudaGetLastError();
}

enum variant { SHARED, NO_SWIZZLE, NO_BUFFERS, NEITHER, GLOBAL, WINDOWS, VARIANTS };
const char *const names[] = {"shared",  "no swizzle", "no buffers",
                             "neither", "global",     "(windows)"};
int launch(const bench &b, int v) {
    switch (v) {
    case SHARED:
        return product<true, true>(b, b.direct, false);
    case NO_SWIZZLE:
        return product<false, true>(b, b.direct, false);
    case NO_BUFFERS:
        return product<true, false>(b, b.direct, false);
    case NEITHER:
        return product<false, false>(b, b.direct, false);
    case GLOBAL: {
        const int err = windows(b);
        return err ? err : product<true, true>(b, b.windowed, true);
    }
    default:
        return windows(b);
    }
}

double error_of(const bench &b, int v, int64_t n) {
    double sums[2];
    check((int)cudaMemset(b.y, 0xFF, (size_t)n * 2), "poison");
    check(launch(b, v), names[v]);
    check((int)cudaStreamSynchronize(b.stream), names[v]);
    check((int)cudaMemset(b.sums, 0, sizeof sums), "clear");
    distance<<<512, 256>>>(b.want, b.y, n, b.sums);
    check((int)cudaMemcpy(sums, b.sums, sizeof sums, cudaMemcpyDeviceToHost), "distance");
    return std::sqrt(sums[0] / sums[1]);
}

double time_ms(const bench &b, int v, cudaEvent_t from, cudaEvent_t to) {
    float ms;
    check((int)cudaEventRecord(from, b.stream), "event");
    for (int i = 0; i < LAUNCHES; i++) {
        check(launch(b, v), names[v]);
    }
    check((int)cudaEventRecord(to, b.stream), "event");
    check((int)cudaEventSynchronize(to), names[v]);
    check((int)cudaEventElapsedTime(&ms, from, to), "event");
    return ms / LAUNCHES;
}

template <class T> T *allocate(int64_t n) {
    void *p = nullptr;
    check((int)cudaMalloc(&p, (size_t)n * sizeof(T)), "cudaMalloc");
    return (T *)p;
}

bench make(const layer &l, cudaStream_t stream) {
    const int64_t ho = (l.h - l.kernel) / l.stride + 1;
    bench b = {};
    b.c = {BATCH,    l.h,      l.h, l.c, l.k, l.kernel, l.kernel, ho, ho,
           l.stride, l.stride, 1,   1,   0,   0,        0,        0,  1};
    b.stream = stream;
    const dr_epilogue none = {};
    b.direct = fprop_corr(&b.c, none);
    dr_conv rows =
        b.c; /* over the window tensor: an image of kh * c channels and filters of 1 x Kw */
    rows.h = ho, rows.c = l.kernel * l.c, rows.kh = 1, rows.sh = 1;
    b.windowed = fprop_corr(&rows, none);
    const int64_t weights = (int64_t)l.k * l.kernel * l.kernel * l.c;
    const int64_t pixels = (int64_t)BATCH * l.h * l.h * l.c, outputs = BATCH * ho * ho * l.k;
    b.x = allocate<__half>(pixels), b.w = allocate<__half>(weights);
    b.turned = allocate<__half>(weights);
    b.y = allocate<__half>(outputs), b.want = allocate<__half>(outputs);
    b.window = allocate<__half>(BATCH * ho * l.h * l.kernel * l.c), b.sums = allocate<double>(2);
    fill<<<1024, 256>>>(b.x, pixels, 1);
    fill<<<1024, 256>>>(b.w, weights, 2);
    turn_weights<<<256, 256>>>(b.c, b.w, b.turned);
    dr_cuda cuda = {};
    cuda.stream = stream;
    check((int)cudaDeviceSynchronize(), "data");
    check(dr_cuda_conv_generic(&b.c, DR_TYPE_F16, b.x, b.w, &none, b.want, &cuda), "product");
    check((int)cudaStreamSynchronize(stream), "product");
    return b;
}

void run(const layer &l, cudaStream_t stream, cudaEvent_t from, cudaEvent_t to) {
    const bench b = make(l, stream);
    std::vector<double> ms[VARIANTS];
    double worst = 0;
    for (int v = 0; v < WINDOWS; v++) {
        worst = std::max(worst, error_of(b, v, b.c.n * b.c.ho * b.c.wo * b.c.k));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int v = 0; v < VARIANTS; v++) {
            ms[v].push_back(time_ms(b, v, from, to));
        }
    }
    printf("%-8s", l.name);
    for (auto &times : ms) {
        std::sort(times.begin(), times.end());
        printf(" %10.4f", times[ROUNDS / 2]);
    }
    printf("  %.1e\n", worst);
    fflush(stdout);
    for (void *p : {(void *)b.x, (void *)b.w, (void *)b.turned, (void *)b.y, (void *)b.want,
                    (void *)b.window, (void *)b.sums}) {
        check((int)cudaFree(p), "cudaFree");
    }
}

} // namespace
} // namespace dr

int main(int argc, char **argv) {
    cudaStream_t stream;
    cudaEvent_t from, to;
    dr::check((int)cudaStreamCreate(&stream), "stream");
    dr::check((int)cudaEventCreate(&from), "event");
    dr::check((int)cudaEventCreate(&to), "event");
    printf("%-8s", "ms");
    for (const char *name : dr::names) {
        printf(" %10s", name);
    }
    printf("  difference\n");
    for (const dr::layer &l : dr::layers) {
        bool asked = argc == 1;
        for (int i = 1; i < argc; i++) {
            asked |= strcmp(argv[i], l.name) == 0;
        }
        if (asked) {
            dr::run(l, stream, from, to);
        }
    }
    return 0;
}
