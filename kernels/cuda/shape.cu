/* Moving values: a tiled transpose through shared memory (an odd pitch in words, so that neither
 * the rows nor the columns of a tile meet in one bank), a copy of rows, any order of axes, and
 * borders. All move whole units: the widest that divide every size and address. */
#include "kernels/cuda/shape.h"
#include "kernels/cuda/divide.cuh"
#include "kernels/cuda/grid.cuh"
#include <string.h>
#include <type_traits>

namespace {

/* Calls `f` with a null pointer of the widest unit that divides the bits in `all`. */
template <typename F> int by_unit(uint64_t all, F f) {
    return all % 16 == 0  ? f((uint4 *)nullptr)
           : all % 8 == 0 ? f((uint2 *)nullptr)
           : all % 4 == 0 ? f((uint32_t *)nullptr)
           : all % 2 == 0 ? f((uint16_t *)nullptr)
                          : f((uint8_t *)nullptr);
}
uint64_t bits(const void *p) {
    return (uint64_t)(uintptr_t)p;
}

/* blockIdx.x: the tiles of a matrix, `tiles_c` across; blockIdx.y: the matrix. A tile has 128 bytes
 * a side. */
template <typename T> constexpr int TILE = 128 / (int)sizeof(T);
template <typename T>
__global__ void transpose_kernel(int64_t rows, int64_t cols, unsigned tiles_c, const T *x, T *y) {
    constexpr int N = TILE<T>, TALL = N / 8, WIDE = N / 32;
    __shared__ T tile[N][N + 4 / sizeof(T)];
    const int64_t base = (int64_t)blockIdx.y * rows * cols;
    const int64_t r0 = (int64_t)(blockIdx.x / tiles_c) * N + threadIdx.y;
    const int64_t c0 = (int64_t)(blockIdx.x % tiles_c) * N + threadIdx.x;
    T v[TALL][WIDE] = {};
#pragma unroll
    for (int i = 0; i < TALL; i++) { /* all on their way before the first is waited for */
#pragma unroll
        for (int j = 0; j < WIDE; j++) {
            if (r0 + 8 * i < rows && c0 + 32 * j < cols) {
                v[i][j] = x[base + (r0 + 8 * i) * cols + c0 + 32 * j];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < TALL; i++) {
#pragma unroll
        for (int j = 0; j < WIDE; j++) {
            tile[threadIdx.y + 8 * i][threadIdx.x + 32 * j] = v[i][j];
        }
    }
    __syncthreads();
    const int64_t r1 = r0 - threadIdx.y + threadIdx.x, c1 = c0 - threadIdx.x + threadIdx.y;
#pragma unroll
    for (int i = 0; i < TALL; i++) {
#pragma unroll
        for (int j = 0; j < WIDE; j++) {
            if (c1 + 8 * i < cols && r1 + 32 * j < rows) {
                y[base + (c1 + 8 * i) * rows + r1 + 32 * j] =
                    tile[threadIdx.x + 32 * j][threadIdx.y + 8 * i];
            }
        }
    }
}
template <typename T>
int transpose(int64_t n, int64_t rows, int64_t cols, const T *x, T *y, cudaStream_t s) {
    const int64_t tiles_r = (rows + TILE<T> - 1) / TILE<T>,
                  tiles_c = (cols + TILE<T> - 1) / TILE<T>;
    if (tiles_r > INT32_MAX / tiles_c) {
        return (int)cudaErrorInvalidConfiguration;
    }
    for (int64_t at = 0; at < n; at += 65535) {
        const unsigned matrices = (unsigned)(n - at < 65535 ? n - at : 65535);
        transpose_kernel<<<dim3((unsigned)(tiles_r * tiles_c), matrices), dim3(32, 8), 0, s>>>(
            rows, cols, (unsigned)tiles_c, x + at * rows * cols, y + at * rows * cols);
    }
    return (int)cudaGetLastError();
}

template <class T>
__global__ void copy_rows_kernel(int64_t n, dr_divisor width, const T *from, int64_t from_step,
                                 T *to, int64_t to_step) {
    DR_GRID_LOOP(i, n) {
        const int64_t r = dr_divide(width, i), c = i - r * width.d;
        to[r * to_step + c] = from[r * from_step + c];
    }
}

template <class T>
int copy_rows(int64_t rows, int64_t bytes, const void *from, int64_t from_step, void *to,
              int64_t to_step, cudaStream_t s) {
    const int64_t unit = (int64_t)sizeof(T), n = rows * (bytes / unit);
    copy_rows_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(
        n, dr_divisor_of(bytes / unit), (const T *)from, from_step / unit, (T *)to, to_step / unit);
    return (int)cudaGetLastError();
}

/* p in units of T: sizes and steps. */
template <class T> __global__ void permute_kernel(int64_t n, const dr_permute p, const T *x, T *y) {
    DR_GRID_LOOP(i, n) {
        int64_t at = i % p.bytes, item = i / p.bytes;
        for (int a = (int)p.rank - 1; a >= 0; a--) {
            at += item % p.dim[a] * p.step[a];
            item /= p.dim[a];
        }
        y[i] = x[at];
    }
}
template <class T> int permute(dr_permute p, const void *x, void *y, cudaStream_t s) {
    int64_t n = p.bytes /= (int64_t)sizeof(T);
    for (int64_t a = 0; a < p.rank; a++) {
        p.step[a] /= (int64_t)sizeof(T);
        n *= p.dim[a];
    }
    permute_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(n, p, (const T *)x, (T *)y);
    return (int)cudaGetLastError();
}

/* b.bytes in units of T. Pad walks the frames, crop the pictures, whose places `g` finds. */
template <class T>
__global__ void pad_kernel(int64_t n, const dr_border b, const dr_grid_of g, T value, const T *x,
                           T *y) {
    DR_GRID_LOOP(i, n) {
        const dr_place at = dr_place_of(g, i);
        const int64_t h = at.row - b.top, w = at.column - b.left;
        y[i] = h >= 0 && h < b.h && w >= 0 && w < b.w
                   ? x[((at.image * b.h + h) * b.w + w) * b.bytes + at.c]
                   : value;
    }
}
template <class T>
__global__ void crop_kernel(int64_t n, const dr_border b, const dr_grid_of g, const T *x, T *y) {
    DR_GRID_LOOP(i, n) {
        const dr_place at = dr_place_of(g, i);
        const int64_t h = at.row + b.top, w = at.column + b.left;
        y[i] = x[((at.image * b.ho + h) * b.wo + w) * b.bytes + at.c];
    }
}
template <class T> int crop(dr_border b, const void *x, void *y, cudaStream_t s) {
    const int64_t n = b.n * b.h * b.w * (b.bytes /= (int64_t)sizeof(T));
    crop_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(n, b, dr_grid_of_shape(b.h, b.w, b.bytes),
                                                    (const T *)x, (T *)y);
    return (int)cudaGetLastError();
}

} // namespace

extern "C" int dr_cuda_transpose(int64_t n, int64_t rows, int64_t cols, int64_t unit, const void *x,
                                 void *y, cudaStream_t s) {
    return unit == 2 ? transpose(n, rows, cols, (const uint16_t *)x, (uint16_t *)y, s)
                     : transpose(n, rows, cols, (const uint32_t *)x, (uint32_t *)y, s);
}

extern "C" int dr_cuda_copy_rows(int64_t rows, int64_t bytes, const void *from, int64_t from_step,
                                 void *to, int64_t to_step, cudaStream_t s) {
    const uint64_t all =
        (uint64_t)bytes | (uint64_t)from_step | (uint64_t)to_step | bits(from) | bits(to);
    return by_unit(all, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return copy_rows<T>(rows, bytes, from, from_step, to, to_step, s);
    });
}

extern "C" int dr_cuda_permute(const struct dr_permute *p, const void *x, void *y, cudaStream_t s) {
    uint64_t all = (uint64_t)p->bytes | bits(x) | bits(y);
    for (int64_t a = 0; a < p->rank; a++) {
        all |= (uint64_t)p->step[a];
    }
    return by_unit(all, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return permute<T>(*p, x, y, s);
    });
}

/* The border is so many copies of the value. */
template <typename T>
static int pad(dr_border b, int64_t unit, const void *value, const void *x, void *y,
               cudaStream_t s) {
    unsigned char bytes[sizeof(T)];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = ((const unsigned char *)value)[i % (size_t)unit];
    }
    T v;
    memcpy(&v, bytes, sizeof v);
    const int64_t n = b.n * b.ho * b.wo * (b.bytes /= (int64_t)sizeof(T));
    pad_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(n, b, dr_grid_of_shape(b.ho, b.wo, b.bytes), v,
                                                   (const T *)x, (T *)y);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_pad(const struct dr_border *b, int64_t unit, const void *value,
                           const void *x, void *y, cudaStream_t s) {
    return by_unit((uint64_t)b->bytes | bits(x) | bits(y), [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return pad<T>(*b, unit, value, x, y, s);
    });
}

extern "C" int dr_cuda_crop(const struct dr_border *b, const void *x, void *y, cudaStream_t s) {
    return by_unit((uint64_t)b->bytes | bits(x) | bits(y), [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        return crop<T>(*b, x, y, s);
    });
}
