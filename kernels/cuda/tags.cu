/* Tags: the device tells the host of progress by writing sequence numbers to mapped pinned memory.
 * A system-wide fence stands between the payload and its tag; the host reads the tag with acquire
 * semantics. Also the two small tools of the executor: the look for non-finite values, and the
 * delay that tests plant. */
#include "kernels/cuda/tags.h"

static __global__ void readback_kernel(const struct dr_readback_args a) {
    const unsigned long long step = a.header->step;
    const uint64_t slot = step % a.slots;
    unsigned char *record = a.base + slot * a.record_bytes;
    for (uint32_t i = blockIdx.x; i < a.n; i += gridDim.x) {
        const unsigned char *from = (const unsigned char *)a.from[i];
        for (uint32_t b = threadIdx.x; b < a.bytes[i]; b += blockDim.x) {
            record[a.offset[i] + b] = from[b];
        }
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        *(volatile unsigned long long *)&a.done[slot] = step + 1;
    }
}

static __global__ void release_kernel(const struct dr_batch *header, unsigned long long *released,
                                      uint32_t slots) {
    const unsigned long long step = header->step;
    *(volatile unsigned long long *)&released[step % slots] = step + 1;
}

static __global__ void finite_kernel(const float *x, int64_t n, int32_t *flag) {
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        if (!isfinite(x[i])) {
            *flag = 1;
        }
    }
}

static __global__ void delay_kernel(uint32_t us) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        __nanosleep(500);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < (unsigned long long)us * 1000u);
}

extern "C" int dr_cuda_readback(const struct dr_readback_args *a, cudaStream_t s) {
    readback_kernel<<<1, 128, 0, s>>>(*a);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_release(const struct dr_batch *header, unsigned long long *released,
                               uint32_t slots, cudaStream_t s) {
    release_kernel<<<1, 1, 0, s>>>(header, released, slots);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_check_finite(const float *x, int64_t n, int32_t *flag, cudaStream_t s) {
    const int64_t blocks = (n + 255) / 256;
    finite_kernel<<<(unsigned)(blocks < 1024 ? blocks : 1024), 256, 0, s>>>(x, n, flag);
    return (int)cudaGetLastError();
}

extern "C" int dr_cuda_delay(uint32_t us, cudaStream_t s) {
    delay_kernel<<<1, 1, 0, s>>>(us);
    return (int)cudaGetLastError();
}
