/* The libraries that dagrun loads at run time, in place of kernels/cuda/lt.c and
 * scheduler/cupti_cuda.c: cuBLASLt, as far as kernels/cuda/linear.c calls it, by plain loops; no
 * CUPTI. */
#include "tests/emulated/emulated.h"
#include <cuda_bf16.h>
#include <cublasLt.h>
#include <cuda_fp16.h>
#include <stdio.h>
#include <string.h>
#include <vector>
extern "C" {
#include "kernels/cuda/lt.h"
#include "scheduler/cupti_cuda.h"
}

namespace {

/* What these descriptors hold, in the place of NVIDIA's. */
struct desc {
    cublasComputeType_t compute;
    cublasOperation_t ta, tb;
};
struct layout {
    cudaDataType type;
    int64_t rows, cols, ld, step;
    int32_t batch;
};
struct preference {
    uint64_t bytes;
    uint32_t reductions;
};
static_assert(sizeof(desc) <= sizeof(cublasLtMatmulDescOpaque_t) &&
                  sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t) &&
                  sizeof(preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t),
              "they fit");

template <class T> cublasStatus_t set(T *to, const void *from, size_t bytes) {
    if (bytes != sizeof *to) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t create(cublasLtHandle_t *h) {
    *h = (cublasLtHandle_t) new char;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t destroy(cublasLtHandle_t h) {
    delete (char *)h;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t desc_init(cublasLtMatmulDesc_t d, size_t, cublasComputeType_t compute,
                         cudaDataType_t scale) {
    *(desc *)d = {compute, CUBLAS_OP_N, CUBLAS_OP_N};
    return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t desc_set(cublasLtMatmulDesc_t opaque, cublasLtMatmulDescAttributes_t a,
                        const void *value, size_t bytes) {
    desc *const d = (desc *)opaque;
    return a == CUBLASLT_MATMUL_DESC_TRANSA   ? set(&d->ta, value, bytes)
           : a == CUBLASLT_MATMUL_DESC_TRANSB ? set(&d->tb, value, bytes)
                                              : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t layout_init(cublasLtMatrixLayout_t l, size_t, cudaDataType type, uint64_t rows,
                           uint64_t cols, int64_t ld) {
    *(layout *)l = {type, (int64_t)rows, (int64_t)cols, ld, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t layout_set(cublasLtMatrixLayout_t opaque, cublasLtMatrixLayoutAttribute_t a,
                          const void *value, size_t bytes) {
    layout *const l = (layout *)opaque;
    return a == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT            ? set(&l->batch, value, bytes)
           : a == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET ? set(&l->step, value, bytes)
                                                              : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t preference_init(cublasLtMatmulPreference_t p, size_t) {
    *(preference *)p = {0, ~0u};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t preference_set(cublasLtMatmulPreference_t opaque,
                              cublasLtMatmulPreferenceAttributes_t a, const void *value,
                              size_t bytes) {
    preference *const p = (preference *)opaque;
    return a == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES     ? set(&p->bytes, value, bytes)
           : a == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK ? set(&p->reductions, value, bytes)
                                                             : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* op(A) (m x k), op(B) (k x n), C (m x n) agree, and no column overlaps the next. */
bool agree(const desc &d, const layout &a, const layout &b, const layout &c) {
    const bool ta = d.ta == CUBLAS_OP_T, tb = d.tb == CUBLAS_OP_T;
    const bool half = a.type == CUDA_R_16F || a.type == CUDA_R_16BF;
    return (ta ? a.cols : a.rows) == c.rows && (tb ? b.rows : b.cols) == c.cols &&
           (ta ? a.rows : a.cols) == (tb ? b.cols : b.rows) && a.ld >= a.rows && b.ld >= b.rows &&
           c.ld >= c.rows && a.batch == b.batch && b.batch == c.batch && a.batch >= 1 &&
           a.type == b.type && (c.type == CUDA_R_32F || c.type == a.type) &&
           (half || a.type == CUDA_R_32F);
}
cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                         cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t *best,
                         int *found) {
    *best = {};
    *found = agree(*(desc *)d, *(layout *)a, *(layout *)b, *(layout *)c);
    return CUBLAS_STATUS_SUCCESS;
}

float read(const layout &l, const void *p, int64_t i, bool tf32) {
    float f;
    if (l.type == CUDA_R_16F) {
        return __half2float(((const __half *)p)[i]);
    }
    if (l.type == CUDA_R_16BF) {
        return __bfloat162float(((const __nv_bfloat16 *)p)[i]);
    }
    uint32_t v;
    memcpy(&v, (const float *)p + i, 4);
    if (tf32 && (v & 0x7f800000) != 0x7f800000) {
        v = (v + 0x1000) & ~0x1fffu;
    }
    memcpy(&f, &v, 4);
    return f;
}
void write(const layout &l, void *p, int64_t i, float f) {
    if (l.type == CUDA_R_16F) {
        ((__half *)p)[i] = __float2half_rn(f);
    } else if (l.type == CUDA_R_16BF) {
        ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn(f);
    } else {
        ((float *)p)[i] = f;
    }
}
void multiply(const desc &d, float alpha, const void *a, const layout &la, const void *b,
              const layout &lb, void *c, const layout &lc) {
    const bool ta = d.ta == CUBLAS_OP_T, tb = d.tb == CUBLAS_OP_T;
    const bool tf32 = d.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const int64_t m = lc.rows, n = lc.cols, k = ta ? la.rows : la.cols;
    std::vector<float> rows((size_t)(m * k)), sums((size_t)m); /* op(A), column after column */
    for (int32_t at = 0; at < lc.batch; at++) {
        for (int64_t i = 0; i < m * k; i++) {
            const int64_t row = i % m, column = i / m;
            rows[(size_t)i] = read(
                la, a, at * la.step + (ta ? row * la.ld + column : column * la.ld + row), tf32);
        }
        for (int64_t column = 0; column < n; column++) {
            std::fill(sums.begin(), sums.end(), 0.0f);
            for (int64_t i = 0; i < k; i++) {
                const float v = read(
                    lb, b, at * lb.step + (tb ? i * lb.ld + column : column * lb.ld + i), tf32);
                const float *const from = &rows[(size_t)(i * m)];
                for (int64_t row = 0; row < m; row++) {
                    sums[(size_t)row] += v * from[row];
                }
            }
            for (int64_t row = 0; row < m; row++) {
                write(lc, c, at * lc.step + column * lc.ld + row, alpha * sums[(size_t)row]);
            }
        }
    }
}
cublasStatus_t matmul(cublasLtHandle_t, cublasLtMatmulDesc_t opaque, const void *alpha,
                      const void *a, cublasLtMatrixLayout_t a_at, const void *b,
                      cublasLtMatrixLayout_t b_at, const void *beta, const void *,
                      cublasLtMatrixLayout_t, void *c, cublasLtMatrixLayout_t c_at,
                      const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t s) {
    const desc d = *(desc *)opaque;
    const layout la = *(layout *)a_at, lb = *(layout *)b_at, lc = *(layout *)c_at;
    const float times = *(const float *)alpha;
    if (!agree(d, la, lb, lc) || *(const float *)beta != 0.0f) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return emulated::in_order(s, [=] { multiply(d, times, a, la, b, lb, c, lc); })
               ? CUBLAS_STATUS_EXECUTION_FAILED
               : CUBLAS_STATUS_SUCCESS;
}
} // namespace

extern "C" {

const struct dr_lt *dr_lt(void) {
    static const struct dr_lt table = {create,      destroy,    desc_init,       desc_set,
                                       layout_init, layout_set, preference_init, preference_set,
                                       heuristic,   matmul};
    return &table;
}
const char *dr_lt_why(void) {
    return "";
}

/* Runs are traced by events. */
struct dr_cupti *dr_cupti_open(uint64_t, char *why, size_t n) {
    snprintf(why, n, "the emulated GPU has none");
    return NULL;
}
void dr_cupti_close(struct dr_cupti *) {
}
void dr_cupti_push(struct dr_cupti *, uint64_t) {
}
void dr_cupti_pop(struct dr_cupti *) {
}
void dr_cupti_tag_nodes(struct dr_cupti *, uint64_t) {
}
uint64_t dr_cupti_tagged(struct dr_cupti *) {
    return 0;
}
void dr_cupti_collect(struct dr_cupti *, void (*)(void *, const dr_cupti_record *), void *) {
}
uint64_t dr_cupti_lost(struct dr_cupti *) {
    return 0;
}
} // extern "C"
