/* Devices, kernels and tensor maps of CUDA's runtime. */
#include "tests/emulated/matrix.h"
#include "tests/emulated/runtime.h"
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace emulated {

namespace {

constexpr size_t DEFAULT_SHARED = 48 << 10, MOST_SHARED = 232448;

std::mutex kernels_lock;
std::map<const void *, int> most_shared;
thread_local cudaError_t last;

size_t shared_of(const void *kernel) {
    const std::lock_guard<std::mutex> l(kernels_lock);
    const auto most = most_shared.find(kernel);
    return !kernel                     ? MOST_SHARED /* of no known name */
           : most == most_shared.end() ? DEFAULT_SHARED
                                       : (size_t)most->second;
}
} // namespace

cudaError_t failed(cudaError_t e) {
    return last = e;
}
void launch(const void *kernel, const place &p, std::function<void()> thread) {
    const uint64_t threads = (uint64_t)p.block.x * p.block.y * p.block.z;
    if (threads == 0 || threads > 1024 || p.block.z > 64 || p.grid.x == 0 || p.grid.y == 0 ||
        p.grid.z == 0 || p.grid.x > 0x7fffffff || p.grid.y > 65535 || p.grid.z > 65535 ||
        p.shared_bytes > shared_of(kernel)) {
        last = cudaErrorInvalidConfiguration;
        return;
    }
    const cudaError_t e = in_order(p.stream, [=] { run_grid(p, thread); });
    if (e) {
        last = e;
    }
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
static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
#define ERROR(e, text)                                                                             \
    { e, #e, text }
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated,
          "operation failed due to a previous error during capture"),
    ERROR(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate captures"),
    ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR(cudaErrorStreamCaptureIsolation,
          "dependency created on uncaptured work in another stream"),
    ERROR(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR(cudaErrorCapturedEvent,
          "operation not permitted on an event last recorded in a capturing stream"),
#undef ERROR
};
const char *cudaGetErrorString(cudaError_t e) {
    for (const auto &known : errors) {
        if (known.error == e) {
            return known.text;
        }
    }
    return "an error that the emulated GPU has no text for";
}
const char *cudaGetErrorName(cudaError_t e) {
    for (const auto &known : errors) {
        if (known.error == e) {
            return known.name;
        }
    }
    return "an error";
}
cudaError_t cudaGetDeviceCount(int *n) {
    const char *const visible = getenv("CUDA_VISIBLE_DEVICES");
    *n = !visible || *visible;
    return *n ? cudaSuccess : failed(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
    return device ? failed(cudaErrorInvalidDevice) : cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v) {
    *v = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v) {
    *v = CUDART_VERSION;
    return cudaSuccess;
}
/* What plans are made by: an H200's. */
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
    *p = {};
    snprintf(p->name, sizeof p->name, "emulated GPU");
    p->major = 9, p->minor = 0, p->multiProcessorCount = 132, p->memoryBusWidth = 6144;
    p->sharedMemPerBlockOptin = MOST_SHARED, p->sharedMemPerMultiprocessor = 233472;
    size_t left;
    return cudaMemGetInfo(&left, &p->totalGlobalMem);
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr a, int) {
    *value = a == cudaDevAttrClockRate ? 1980000 : a == cudaDevAttrMemoryClockRate ? 3201000 : 0;
    return *value ? cudaSuccess : failed(cudaErrorInvalidValue);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high) {
    *low = 0, *high = -5;
    return cudaSuccess;
}

/* ---- kernels ---- */
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute a, int value) {
    if (a != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > (int)MOST_SHARED) {
        return failed(cudaErrorInvalidValue);
    }
    const std::lock_guard<std::mutex> l(kernels_lock);
    most_shared[kernel] = value;
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *) {
    *a = {};
    a->numRegs = 168, a->maxThreadsPerBlock = 1024, a->binaryVersion = 90;
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
