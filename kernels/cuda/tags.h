/* How the device speaks to the host without a synchronisation: tags in mapped pinned memory. And
 * two tools of the executor. All functions launch on a stream and return a cudaError_t. */
#ifndef DR_KERNELS_CUDA_TAGS_H
#define DR_KERNELS_CUDA_TAGS_H

#include "kernels/batch.h"
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DR_READBACK_MAX 200 /* inputs of a readback node */
struct dr_readback_args {
    const struct dr_batch *header; /* device */
    unsigned char *base;           /* mapped host memory: the records */
    unsigned long long *done;      /* mapped: [slots] */
    uint64_t record_bytes;
    uint32_t slots, n;
    const void *from[DR_READBACK_MAX]; /* device */
    uint32_t offset[DR_READBACK_MAX], bytes[DR_READBACK_MAX];
};
/* Copies the values to record header.step mod slots, then publishes done[slot] = step + 1. */
int dr_cuda_readback(const struct dr_readback_args *a, dr_stream s);
/* released[header.step mod slots] = header.step + 1 in mapped host memory. */
int dr_cuda_release(const struct dr_batch *header, unsigned long long *released, uint32_t slots,
                    dr_stream s);
/* *flag (device) = 1 if any of n numbers is not finite; never clears it. */
int dr_cuda_check_finite(enum dr_type t, const void *x, int64_t n, int32_t *flag, dr_stream s);
/* Busy-waits for about `us` microseconds on the device: tests plant it between nodes. */
int dr_cuda_delay(uint32_t us, dr_stream s);

#ifdef __cplusplus
}
#endif
#endif
