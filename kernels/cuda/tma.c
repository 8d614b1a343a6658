/* Tensor maps. The driver's encoder is asked for by name, so that nothing links to libcuda, which
 * machines without a GPU do not have. */
#include "kernels/cuda/tma.h"
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stddef.h>

typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_fn *encode;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void) {
    void *fn = NULL;
    enum cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000, cudaEnableDefault,
                                         &found) == cudaSuccess &&
        found == cudaDriverEntryPointSuccess) {
        *(void **)&encode = fn;
    } else {
        cudaGetLastError(); /* an old driver is no error of the launch that asks */
    }
}

bool dr_tma_found(void) {
    pthread_once(&once, find);
    return encode != NULL;
}

bool dr_tma_map(CUtensorMap *map, enum dr_type t, const void *base, int rank, const int64_t *size,
                const int64_t *stride, const int *box) {
    static const CUtensorMapDataType type[] = {[DR_TYPE_F32] = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                                               [DR_TYPE_F16] = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                                               [DR_TYPE_BF16] = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16};
    if (!dr_tma_found()) {
        return false;
    }
    cuuint64_t sizes[5], strides[4];
    cuuint32_t boxes[5], ones[5];
    for (int i = 0; i < rank; i++) {
        sizes[i] = (cuuint64_t)size[i];
        boxes[i] = (cuuint32_t)box[i];
        ones[i] = 1;
        if (i + 1 < rank) {
            strides[i] = (cuuint64_t)stride[i];
        }
    }
    return encode(map, type[t], (cuuint32_t)rank, (void *)(uintptr_t)base, sizes, strides, boxes,
                  ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
