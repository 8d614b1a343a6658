/* The part of CUDA's runtime that dagrun calls, for kernels that run on the CPU. A stream does its
 * work when it is given, so every order that events and streams allow is kept. */
#include "tests/emulated/matrix.h"
#include <cuda_runtime_api.h>
#include <map>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

namespace emulated {

namespace {

constexpr size_t PAGE = 4096, ALIGNED = 256, DEFAULT_SHARED = 48 << 10, MOST_SHARED = 232448;
constexpr unsigned char PATTERN = 0xa5, FRESH = 0xff;

/* An allocation ends, rounded up to 256 bytes, where a guard page begins. */
struct allocation {
    char *pages;
    size_t length, bytes;
};

std::mutex lock;
std::map<char *, allocation> allocations;
std::map<const void *, int> most_shared;
thread_local cudaError_t last;

cudaError_t failed(cudaError_t e) {
    return last = e;
}
size_t up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}
void check_ends(const char *p, const allocation &a) {
    for (const char *q = a.pages; q < a.pages + a.length; q++) {
        if ((q < p || q >= p + a.bytes) && (unsigned char)*q != PATTERN) {
            fault("a write beside an allocation");
        }
    }
}
} // namespace

void in_order(cudaStream_t, std::function<void()> work) {
    work();
}
void launch(const void *kernel, const place &p, std::function<void()> thread) {
    const auto most = most_shared.find(kernel);
    const size_t allowed = !kernel                     ? MOST_SHARED /* of no known name */
                           : most == most_shared.end() ? DEFAULT_SHARED
                                                       : (size_t)most->second;
    const uint64_t threads = (uint64_t)p.block.x * p.block.y * p.block.z;
    if (threads == 0 || threads > 1024 || p.block.z > 64 || p.grid.x == 0 || p.grid.y == 0 ||
        p.grid.z == 0 || p.grid.x > 0x7fffffff || p.grid.y > 65535 || p.grid.z > 65535 ||
        p.shared_bytes > allowed) {
        last = cudaErrorInvalidConfiguration;
        return;
    }
    in_order(p.stream, [=] { run_grid(kernel, p, thread); });
}
} // namespace emulated

using namespace emulated;

extern "C" {

/* ---- errors, devices ---- */
cudaError_t cudaGetLastError(void) {
    const cudaError_t e = last;
    last = cudaSuccess;
    return e;
}
const char *cudaGetErrorString(cudaError_t e) {
    return e == cudaSuccess                     ? "no error"
           : e == cudaErrorInvalidConfiguration ? "invalid configuration argument"
           : e == cudaErrorInvalidValue         ? "invalid argument"
           : e == cudaErrorMemoryAllocation     ? "out of memory"
                                                : "an error";
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
    *p = {};
    snprintf(p->name, sizeof p->name, "emulated GPU");
    p->major = 9, p->minor = 0, p->multiProcessorCount = 132;
    p->sharedMemPerBlockOptin = MOST_SHARED, p->sharedMemPerMultiprocessor = 233472;
    p->totalGlobalMem = (size_t)8 << 30;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    return cudaSuccess;
}

/* ---- kernels ---- */
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute a, int value) {
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > (int)MOST_SHARED) {
        return failed(cudaErrorInvalidValue);
    }
    const std::lock_guard<std::mutex> l(lock);
    most_shared[kernel] = value;
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *) {
    *a = {};
    a->numRegs = 168, a->maxThreadsPerBlock = 1024, a->binaryVersion = 90;
    return cudaSuccess;
}

/* ---- memory ---- */
cudaError_t cudaMalloc(void **p, size_t bytes) {
    const size_t end = up(bytes ? bytes : 1, ALIGNED), length = up(end, PAGE);
    char *const pages = (char *)mmap(NULL, length + 2 * PAGE, PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + PAGE, length, PROT_READ | PROT_WRITE) != 0) {
        return failed(cudaErrorMemoryAllocation);
    }
    char *const at = pages + PAGE + length - end;
    memset(pages + PAGE, PATTERN, length);
    memset(at, FRESH, bytes);
    const std::lock_guard<std::mutex> l(lock);
    allocations[at] = {pages + PAGE, length, bytes};
    *p = at;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
    const std::lock_guard<std::mutex> l(lock);
    const auto a = allocations.find((char *)p);
    if (a == allocations.end()) {
        return p ? failed(cudaErrorInvalidValue) : cudaSuccess;
    }
    check_ends(a->first, a->second);
    munmap(a->second.pages - PAGE, a->second.length + 2 * PAGE);
    allocations.erase(a);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t s) {
    in_order(s, [=] { memcpy(to, from, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s) {
    in_order(s, [=] { memset(to, value, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    memset(to, value, bytes);
    return cudaSuccess;
}

/* ---- streams ---- */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned) {
    *s = (cudaStream_t)malloc(1);
    return *s ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    free(s);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
    return cudaSuccess;
}

/* ---- tensor maps ---- */
static CUresult encode(CUtensorMap *map, CUtensorMapDataType t, cuuint32_t rank, void *base,
                       const cuuint64_t *size, const cuuint64_t *stride, const cuuint32_t *box,
                       const cuuint32_t *step, CUtensorMapInterleave interleave,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                       CUtensorMapFloatOOBfill fill) {
    tensor_map m = {};
    m.base = (char *)base, m.rank = (int)rank;
    m.bytes = t == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
    bool right = (uintptr_t)base % 16 == 0 && rank >= 1 && rank <= 5 &&
                 interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
                 swizzle == CU_TENSOR_MAP_SWIZZLE_128B && fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    for (cuuint32_t i = 0; right && i < rank; i++) {
        m.size[i] = (int64_t)size[i], m.box[i] = (int)box[i];
        m.stride[i] = i ? (int64_t)stride[i - 1] : m.bytes;
        right = size[i] >= 1 && size[i] <= (cuuint64_t)1 << 32 && box[i] >= 1 && box[i] <= 256 &&
                step[i] == 1 && (i == 0 || (m.stride[i] % 16 == 0 && m.stride[i] < 1ll << 40));
    }
    right = right && m.box[0] * m.bytes <= 128 && m.box[0] * m.bytes % 16 == 0;
    memcpy(map, &m, sizeof m);
    return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **fn, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult *found) {
    const bool known = strcmp(name, "cuTensorMapEncodeTiled") == 0;
    *fn = known ? (void *)encode : NULL;
    *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
} // extern "C"
