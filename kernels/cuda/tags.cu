/* Tags: the device tells the host of progress by writing sequence numbers to mapped pinned memory.
 * A system-wide fence stands between the payload and its tag; the host reads the tag with acquire
 * semantics. Also the two small tools of the executor: the look for non-finite values, and the
 * delay that tests plant. */
#include "kernels/cuda/tags.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/real.cuh"
#include <type_traits>

/* The writes of a block, or of an earlier kernel of the stream, come before this fence, and the
 * fence before the tag: whoever reads the tag (acquire) sees the record. */
static __device__ void publish(unsigned long long *tag, unsigned long long value) {
    __threadfence_system();
    *(volatile unsigned long long *)tag = value;
}

/* Records begin at multiples of 8 bytes, and so do the values in them and on the device. One block
 * gives each warp values of its own, so that their latencies overlap; more blocks share all. */
static __global__ void readback_kernel(const struct dr_readback_args a, bool whole) {
    const unsigned long long step = a.header->step;
    const uint64_t slot = step % a.slots;
    unsigned char *record = a.base + slot * a.record_bytes;
    const uint64_t first = whole ? threadIdx.x % 32 : blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t stride = whole ? 32 : gridDim.x * blockDim.x;
    for (uint32_t i = whole ? threadIdx.x / 32 : 0; i < a.n; i += whole ? blockDim.x / 32 : 1) {
        const unsigned char *from = (const unsigned char *)a.from[i];
        unsigned char *to = record + a.offset[i];
        const uint64_t words = a.bytes[i] / 8;
        for (uint64_t w = first; w < words; w += stride) {
            ((unsigned long long *)to)[w] = ((const unsigned long long *)from)[w];
        }
        for (uint64_t b = words * 8 + first; b < a.bytes[i]; b += stride) {
            to[b] = from[b];
        }
    }
    __syncthreads();
    if (whole && threadIdx.x == 0) {
        publish(&a.done[slot], step + 1);
    }
}

static __global__ void tag_kernel(const struct dr_batch *header, unsigned long long *tags,
                                  uint32_t slots) {
    const unsigned long long step = header->step;
    publish(&tags[step % slots], step + 1);
}

template <typename T> static __global__ void finite_kernel(const T *x, int64_t n, int32_t *flag) {
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        if (!isfinite(dr_load(x + i))) {
            *flag = 1;
        }
    }
}

static __global__ void delay_kernel(uint32_t us) {
    const uint64_t start = dr::ptx::global_time();
    do {
        __nanosleep(500);
    } while (dr::ptx::global_time() - start < (uint64_t)us * 1000u);
}

extern "C" int dr_cuda_readback(const struct dr_readback_args *a, cudaStream_t s) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        bytes += a->bytes[i];
    }
    /* The numbers of a training step are one block's work; the outputs of an inference are not. */
    const unsigned blocks = bytes <= 32768 ? 1 : bytes < (1u << 20) ? 16 : 64;
    readback_kernel<<<blocks, 256, 0, s>>>(*a, blocks == 1);
    if (blocks > 1) {
        tag_kernel<<<1, 1, 0, s>>>(a->header, a->done, a->slots);
    }
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_release(const struct dr_batch *header, unsigned long long *released,
                               uint32_t slots, cudaStream_t s) {
    tag_kernel<<<1, 1, 0, s>>>(header, released, slots);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_check_finite(enum dr_type t, const void *x, int64_t n, int32_t *flag,
                                    cudaStream_t s) {
    const int64_t blocks = (n + 255) / 256;
    return dr_real(t, [&](auto *zero) {
        using T = std::remove_pointer_t<decltype(zero)>;
        finite_kernel<<<(unsigned)(blocks < 1024 ? blocks : 1024), 256, 0, s>>>((const T *)x, n,
                                                                                flag);
        return (int)cudaGetLastError();
    });
}

extern "C" int dr_cuda_delay(uint32_t us, cudaStream_t s) {
    delay_kernel<<<1, 1, 0, s>>>(us);
    return (int)cudaGetLastError();
}
