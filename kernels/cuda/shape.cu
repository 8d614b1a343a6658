/* Moving values: a tiled transpose through shared memory (pitch 33, so that neither the rows nor
 * the columns of a tile meet in one bank), a copy of rows, any order of axes, and borders. */
#include "kernels/cuda/shape.h"
#include "kernels/cuda/grid.cuh"

namespace {

/* blockIdx.x: the tiles of a matrix, `tiles_c` across; blockIdx.y: the matrix. */
__global__ void transpose_kernel(int64_t rows, int64_t cols, unsigned tiles_c, const uint32_t *x,
                                 uint32_t *y) {
    __shared__ uint32_t tile[32][33];
    const int64_t base = (int64_t)blockIdx.y * rows * cols;
    const int64_t r0 = (int64_t)(blockIdx.x / tiles_c) * 32;
    const int64_t c0 = (int64_t)(blockIdx.x % tiles_c) * 32;
    for (int i = threadIdx.y; i < 32; i += 8) {
        const int64_t r = r0 + i, c = c0 + threadIdx.x;
        if (r < rows && c < cols) {
            tile[i][threadIdx.x] = x[base + r * cols + c];
        }
    }
    __syncthreads();
    for (int i = threadIdx.y; i < 32; i += 8) {
        const int64_t c = c0 + i, r = r0 + threadIdx.x;
        if (r < rows && c < cols) {
            y[base + c * rows + r] = tile[threadIdx.x][i];
        }
    }
}

/* T is the widest unit that divides every size and address. */
template <class T>
__global__ void copy_rows_kernel(int64_t n, int64_t width, const T *from, int64_t from_step, T *to,
                                 int64_t to_step) {
    DR_GRID_LOOP(i, n) {
        const int64_t r = i / width, c = i % width;
        to[r * to_step + c] = from[r * from_step + c];
    }
}

template <class T>
int copy_rows(int64_t rows, int64_t bytes, const void *from, int64_t from_step, void *to,
              int64_t to_step, cudaStream_t s) {
    const int64_t unit = (int64_t)sizeof(T), n = rows * (bytes / unit);
    copy_rows_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(n, bytes / unit, (const T *)from,
                                                         from_step / unit, (T *)to, to_step / unit);
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

/* b.bytes in units of T. Pad walks the frames, crop the pictures. */
template <class T>
__global__ void pad_kernel(int64_t n, const dr_border b, T value, const T *x, T *y) {
    DR_GRID_LOOP(i, n) {
        const int64_t k = i % b.bytes, w = i / b.bytes % b.wo - b.left;
        const int64_t row = i / b.bytes / b.wo, h = row % b.ho - b.top;
        y[i] = h >= 0 && h < b.h && w >= 0 && w < b.w
                   ? x[((row / b.ho * b.h + h) * b.w + w) * b.bytes + k]
                   : value;
    }
}
template <class T> __global__ void crop_kernel(int64_t n, const dr_border b, const T *x, T *y) {
    DR_GRID_LOOP(i, n) {
        const int64_t k = i % b.bytes, w = i / b.bytes % b.w + b.left;
        const int64_t row = i / b.bytes / b.w, h = row % b.h + b.top;
        y[i] = x[((row / b.h * b.ho + h) * b.wo + w) * b.bytes + k];
    }
}
template <class T> int crop(dr_border b, const void *x, void *y, cudaStream_t s) {
    const int64_t n = b.n * b.h * b.w * (b.bytes /= (int64_t)sizeof(T));
    crop_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(n, b, (const T *)x, (T *)y);
    return (int)cudaGetLastError();
}

} // namespace

extern "C" int dr_cuda_transpose(int64_t n, int64_t rows, int64_t cols, const void *x, void *y,
                                 cudaStream_t s) {
    const int64_t tiles_r = (rows + 31) / 32, tiles_c = (cols + 31) / 32;
    if (tiles_r > INT32_MAX / tiles_c) {
        return (int)cudaErrorInvalidConfiguration;
    }
    for (int64_t at = 0; at < n; at += 65535) {
        const unsigned matrices = (unsigned)(n - at < 65535 ? n - at : 65535);
        transpose_kernel<<<dim3((unsigned)(tiles_r * tiles_c), matrices), dim3(32, 8), 0, s>>>(
            rows, cols, (unsigned)tiles_c, (const uint32_t *)x + at * rows * cols,
            (uint32_t *)y + at * rows * cols);
    }
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_copy_rows(int64_t rows, int64_t bytes, const void *from, int64_t from_step,
                                 void *to, int64_t to_step, cudaStream_t s) {
    const uint64_t all = (uint64_t)bytes | (uint64_t)from_step | (uint64_t)to_step |
                         (uint64_t)(uintptr_t)from | (uint64_t)(uintptr_t)to;
    if (all % 16 == 0) {
        return copy_rows<uint4>(rows, bytes, from, from_step, to, to_step, s);
    }
    if (all % 4 == 0) {
        return copy_rows<uint32_t>(rows, bytes, from, from_step, to, to_step, s);
    }
    return copy_rows<uint8_t>(rows, bytes, from, from_step, to, to_step, s);
}

extern "C" int dr_cuda_permute(const struct dr_permute *p, const void *x, void *y, cudaStream_t s) {
    uint64_t all = (uint64_t)p->bytes | (uint64_t)(uintptr_t)x | (uint64_t)(uintptr_t)y;
    for (int64_t a = 0; a < p->rank; a++) {
        all |= (uint64_t)p->step[a];
    }
    return all % 16 == 0  ? permute<uint4>(*p, x, y, s)
           : all % 4 == 0 ? permute<uint32_t>(*p, x, y, s)
                          : permute<uint8_t>(*p, x, y, s);
}

extern "C" int dr_cuda_pad(const struct dr_border *b, int64_t unit, const void *value,
                           const void *x, void *y, cudaStream_t s) {
    dr_border u = *b;
    const int64_t n = b->n * b->ho * b->wo * (u.bytes /= unit);
    if (unit == 1) {
        pad_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(n, u, *(const uint8_t *)value,
                                                       (const uint8_t *)x, (uint8_t *)y);
    } else {
        pad_kernel<<<dr_blocks(n), DR_THREADS, 0, s>>>(n, u, *(const uint32_t *)value,
                                                       (const uint32_t *)x, (uint32_t *)y);
    }
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_crop(const struct dr_border *b, const void *x, void *y, cudaStream_t s) {
    const uint64_t all = (uint64_t)b->bytes | (uint64_t)(uintptr_t)x | (uint64_t)(uintptr_t)y;
    return all % 16 == 0  ? crop<uint4>(*b, x, y, s)
           : all % 4 == 0 ? crop<uint32_t>(*b, x, y, s)
                          : crop<uint8_t>(*b, x, y, s);
}
