/* Opening and describing a CUDA device, with messages that say what to do when there is none. */
#include "scheduler/device_cuda.h"

#include "kernels/cuda/conv_way.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dr_status dr_cuda_status(int error, const char *call, uint32_t node) {
    struct dr_status s = {DR_OK, node, ""};
    if (error == cudaSuccess) {
        return s;
    }
    s.code = error == cudaErrorMemoryAllocation ? DR_NO_DEVICE : DR_FAILED;
    snprintf(s.text, sizeof s.text, "%s: %s (%s)", call, cudaGetErrorString((cudaError_t)error),
             cudaGetErrorName((cudaError_t)error));
    cudaGetLastError();
    return s;
}

struct dr_status dr_cuda_no_host_memory(const char *what) {
    struct dr_status s = {DR_NO_DEVICE, DR_NONE, ""};
    snprintf(s.text, sizeof s.text, "out of host memory: %s", what);
    return s;
}

int dr_cuda_use(const struct dr_cuda_device *d) {
    return (int)cudaSetDevice(d->id);
}

/* "cuda" -> 0, "cuda:N" -> N; -1: not a device name. */
static int device_number(const char *which) {
    if (strcmp(which, "cuda") == 0) {
        return 0;
    }
    if (strncmp(which, "cuda:", 5) != 0 || which[5] == '\0') {
        return -1;
    }
    char *end;
    const long n = strtol(which + 5, &end, 10);
    return *end != '\0' || n < 0 || n > 4095 ? -1 : (int)n;
}

static struct dr_status check_driver(int *count) {
    struct dr_status s = {DR_NO_DEVICE, DR_NONE, ""};
    int driver = 0, runtime = 0;
    const cudaError_t e = cudaGetDeviceCount(count);
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
        snprintf(s.text, sizeof s.text,
                 "no NVIDIA driver is loaded; install one for CUDA %d.%d or newer, or use "
                 "--device cpu",
                 runtime / 1000, runtime % 1000 / 10);
    } else if (e == cudaErrorInsufficientDriver) {
        snprintf(s.text, sizeof s.text,
                 "the NVIDIA driver is too old: it knows CUDA %d.%d, this dagrun was built with "
                 "%d.%d; update the driver, or use --device cpu",
                 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    } else if (e != cudaSuccess || *count == 0) {
        snprintf(s.text, sizeof s.text, "no CUDA device: %s; use --device cpu",
                 cudaGetErrorString(e == cudaSuccess ? cudaErrorNoDevice : e));
    } else {
        s.code = DR_OK;
    }
    return s;
}

/* Beside the slab executors take memory for library workspaces, kernels' code and graphs. */
#define RESERVE ((size_t)512 << 20)

/* Peak arithmetic and memory traffic of the card: CUDA cores at their highest clock (2 flops per
 * lane and cycle), and the memory bus. Ceilings, never reached. */
static void describe(struct dr_cuda_device *d, uint32_t threads, struct dr_device_info *info) {
    int clock_khz = 0, memory_khz = 0;
    cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, d->id);
    cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, d->id);
    const bool a100 = d->prop.major == 8 && d->prop.minor == 0;
    const int lanes = a100 ? 64 : 128;                      /* fp32 lanes a multiprocessor */
    const double tensor_flops = d->prop.major > 9    ? 4096 /* tf32 flops a cycle, dense */
                                : d->prop.major == 9 ? 2048
                                : a100               ? 1024
                                                     : 512;
    snprintf(d->card, sizeof d->card, "%s (sm_%d%d, %d SMs)", d->prop.name, d->prop.major,
             d->prop.minor, d->prop.multiProcessorCount);
    snprintf(d->name, sizeof d->name, "cuda:%d %s", d->id, d->card);
    *info = (struct dr_device_info){
        .name = d->name,
        .card = d->card,
        .cuda = true,
        .caps = {.arch = 10 * d->prop.major + d->prop.minor,
                 .sms = d->prop.multiProcessorCount,
                 .hopper = d->prop.major == 9 && d->prop.minor == 0 && dr_cuda_conv_hopper_runs()},
        .copies_ahead = true,
        .threads = threads,
        .flops_per_s = 2.0 * lanes * d->prop.multiProcessorCount * clock_khz * 1e3,
        .tf32_flops_per_s =
            d->prop.major < 8 ? 0 : tensor_flops * d->prop.multiProcessorCount * clock_khz * 1e3,
        .fp16 = d->prop.major >= 8, /* the kernels' mma.sync is sm_80's */
        .bf16 = d->prop.major >= 8,
        .half_flops_per_s = 2 * tensor_flops * d->prop.multiProcessorCount * clock_khz * 1e3,
        .bytes_per_s = 2.0 * memory_khz * 1e3 * d->prop.memoryBusWidth / 8,
        .launch_us = 0.6,
        .memory_bytes = d->free_bytes > 2 * RESERVE ? d->free_bytes - RESERVE : d->free_bytes / 2,
    };
}

struct dr_status dr_cuda_open(void **device, const char *which, uint32_t threads,
                              struct dr_device_info *info) {
    int count = 0;
    struct dr_status s = check_driver(&count);
    if (s.code != DR_OK) {
        return s;
    }
    const int id = device_number(which);
    if (id < 0 || id >= count) {
        s = (struct dr_status){DR_NO_DEVICE, DR_NONE, ""};
        snprintf(s.text, sizeof s.text,
                 "device '%s': this machine has %d CUDA device%s, cuda:0 to "
                 "cuda:%d",
                 which, count, count == 1 ? "" : "s", count - 1);
        return s;
    }
    if (!dr_lt()) {
        s = (struct dr_status){DR_NO_DEVICE, DR_NONE, ""};
        snprintf(s.text, sizeof s.text,
                 "cuBLASLt of the CUDA Toolkit cannot be loaded (%.120s); set LD_LIBRARY_PATH, or "
                 "use --device cpu",
                 dr_lt_why());
        return s;
    }
    struct dr_cuda_device *d = calloc(1, sizeof *d);
    if (!d) {
        return dr_cuda_no_host_memory("the device");
    }
    d->id = id;
    int e = dr_cuda_use(d);
    if (e == cudaSuccess) {
        e = cudaGetDeviceProperties(&d->prop, id);
    }
    if (e == cudaSuccess) {
        e = dr_cuda_delay(0, 0); /* a kernel for this card exists? */
    }
    if (e == cudaSuccess) {
        e = cudaDeviceSynchronize();
    }
    size_t total = 0;
    if (e == cudaSuccess) {
        e = cudaMemGetInfo(&d->free_bytes, &total);
    }
    if (e == cudaErrorNoKernelImageForDevice) {
        s = (struct dr_status){DR_NO_DEVICE, DR_NONE, ""};
        snprintf(s.text, sizeof s.text,
                 "this dagrun has no kernels for %.60s (sm_%d%d); configure with "
                 "-DCMAKE_CUDA_ARCHITECTURES=%d%d, or use --device cpu",
                 d->prop.name, d->prop.major, d->prop.minor, d->prop.major, d->prop.minor);
        free(d);
        return s;
    }
    if (e != cudaSuccess) {
        free(d);
        s = dr_cuda_status(e, "opening the device", DR_NONE);
        s.code = DR_NO_DEVICE;
        return s;
    }
    cudaDeviceGetStreamPriorityRange(&d->priority_low, &d->priority_high);
    describe(d, threads, info);
    *device = d;
    return s;
}

void dr_cuda_close(void *device) {
    free(device);
}

/* The streams of an executor do not wait for the default stream, on which the calls below work: all
 * of them are over when they return. cudaMemcpy from pageable memory alone is not: it returns once
 * the bytes are in a staging buffer. */
static int settle(int e) {
    return e ? e : (int)cudaStreamSynchronize(NULL);
}

struct dr_status dr_cuda_alloc(void *device, uint64_t bytes, struct dr_slab *slab) {
    void *p = NULL;
    int e = dr_cuda_use(device);
    e = e ? e : (int)cudaMalloc(&p, bytes ? bytes : 1);
    if (e == cudaSuccess) {
        *slab = (struct dr_slab){p, bytes};
        e = settle((int)cudaMemset(p, 0, bytes));
    }
    return dr_cuda_status(e, "allocating the slab", DR_NONE);
}

void dr_cuda_free(void *device, struct dr_slab *slab) {
    dr_cuda_use(device);
    cudaFree(slab->base);
    *slab = (struct dr_slab){0};
}

void *dr_cuda_host_alloc(void *device, size_t bytes) {
    void *p = NULL;
    int e = dr_cuda_use(device);
    e = e ? e
          : (int)cudaHostAlloc(&p, bytes ? bytes : 1, cudaHostAllocMapped | cudaHostAllocPortable);
    if (e) {
        cudaGetLastError();
        return NULL;
    }
    memset(p, 0, bytes);
    return p;
}

void dr_cuda_host_free(void *device, void *p) {
    dr_cuda_use(device);
    cudaFreeHost(p);
}

struct dr_status dr_cuda_upload(void *device, void *to, const void *from, size_t bytes) {
    int e = dr_cuda_use(device);
    e = e ? e : settle((int)cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    return dr_cuda_status(e, "upload", DR_NONE);
}

struct dr_status dr_cuda_download(void *device, void *to, const void *from, size_t bytes) {
    int e = dr_cuda_use(device);
    e = e ? e : settle((int)cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
    return dr_cuda_status(e, "download", DR_NONE);
}

uint64_t dr_cuda_memory_used(void *device) {
    const struct dr_cuda_device *d = device;
    size_t now = 0, total = 0;
    if (dr_cuda_use(d) || cudaMemGetInfo(&now, &total)) {
        cudaGetLastError();
        return 0;
    }
    return d->free_bytes > now ? d->free_bytes - now : 0;
}
