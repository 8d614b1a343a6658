/* A CUDA device: opened, described, its memory. Shared by the CUDA executor and its trace. */
#ifndef DR_SCHEDULER_DEVICE_CUDA_H
#define DR_SCHEDULER_DEVICE_CUDA_H

#include "kernels/cuda/lt.h"
#include "kernels/cuda/tags.h"
#include "scheduler/exec.h"
#include <cuda_runtime_api.h>

struct dr_cuda_device {
    int id;
    struct cudaDeviceProp prop;
    char card[300], name[320];
    int priority_low, priority_high; /* of streams; higher priority is the smaller number */
    size_t free_bytes;               /* when it was opened */
};

/* A failed call as a status (exit 3 for a lack of memory, else 1), and forgotten by the runtime,
 * whose launches would report it again; cudaSuccess gives DR_OK. */
struct dr_status dr_cuda_status(int error, const char *call, uint32_t node);
struct dr_status dr_cuda_no_host_memory(const char *what);

/* The current device is a thread's: every call of an executor may come from another one. */
int dr_cuda_use(const struct dr_cuda_device *d);

struct dr_status dr_cuda_open(void **device, const char *which, uint32_t threads,
                              struct dr_device_info *info);
void dr_cuda_close(void *device);
struct dr_status dr_cuda_alloc(void *device, uint64_t bytes, struct dr_slab *slab);
void dr_cuda_free(void *device, struct dr_slab *slab);
void *dr_cuda_host_alloc(void *device, size_t bytes);
void dr_cuda_host_free(void *device, void *p);
struct dr_status dr_cuda_upload(void *device, void *to, const void *from, size_t bytes);
struct dr_status dr_cuda_download(void *device, void *to, const void *from, size_t bytes);
/* Taken from the device's free memory since it was opened, by whomever. */
uint64_t dr_cuda_memory_used(void *device);

#endif
