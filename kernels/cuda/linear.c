/* linear and matmul through cuBLASLt. Row-major [rows, columns] is cuBLAS's column-major [columns,
 * rows]: every product is asked for transposed. Descriptors live on the stack, so a launch
 * allocates nothing. */
#include "kernels/cuda/linear.h"
#include "kernels/cuda/epilogue.h"
#include "kernels/cuda/lt.h"
#include <stdbool.h>

/* Products of one call: kernels may number them by a dimension of the grid, and the next call's
 * operands shall be as well aligned as the first one's. */
#define MOST_PRODUCTS (65536 - 128)

/* c [n, m] (row-major) = op(b) op(a) in column-major terms: C (m x n) = opA(A) opB(B), depth k. */
struct product {
    int64_t m, n, k, lda, ldb, ldc;
    cublasOperation_t ta, tb;
    int32_t batch;          /* products, one after the other in memory; 0: one */
    enum dr_type type;      /* of a and b */
    enum dr_type type_of_c; /* fp32 or the same */
};

static int as_cuda(cublasStatus_t s) {
    switch (s) {
    case CUBLAS_STATUS_SUCCESS:
        return cudaSuccess;
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return cudaErrorInitializationError;
    case CUBLAS_STATUS_INVALID_VALUE:
        return cudaErrorInvalidValue;
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return cudaErrorNotSupported;
    default:
        return cudaErrorLaunchFailure;
    }
}

static void layout(const struct dr_lt *lt, cublasLtMatrixLayoutOpaque_t *l, enum dr_type type,
                   cublasOperation_t t, int64_t rows, int64_t cols, int64_t ld, int32_t batch) {
    static const cudaDataType_t types[] = {
        [DR_TYPE_F32] = CUDA_R_32F, [DR_TYPE_F16] = CUDA_R_16F, [DR_TYPE_BF16] = CUDA_R_16BF};
    const bool flip = t == CUBLAS_OP_T;
    const int64_t step = rows * cols;
    lt->layout_init(l, sizeof *l, types[type], (uint64_t)(flip ? cols : rows),
                    (uint64_t)(flip ? rows : cols), ld);
    if (batch) {
        lt->layout_set(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
        lt->layout_set(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
    }
}

static int multiply(struct dr_cuda *cuda, const struct product *p, const void *a, const void *b,
                    void *c) {
    const struct dr_lt *const lt = dr_lt();
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t la, lb, lc;
    cublasLtMatmulPreferenceOpaque_t pref;
    const float one = 1.0f, zero = 0.0f;
    const bool tf32 = cuda->tf32 && p->type == DR_TYPE_F32;
    cublasStatus_t s = lt->matmul_desc_init(
        &op, sizeof op, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (s != CUBLAS_STATUS_SUCCESS) {
        return as_cuda(s);
    }
    lt->matmul_desc_set(&op, CUBLASLT_MATMUL_DESC_TRANSA, &p->ta, sizeof p->ta);
    lt->matmul_desc_set(&op, CUBLASLT_MATMUL_DESC_TRANSB, &p->tb, sizeof p->tb);
    layout(lt, &la, p->type, p->ta, p->m, p->k, p->lda, p->batch);
    layout(lt, &lb, p->type, p->tb, p->k, p->n, p->ldb, p->batch);
    layout(lt, &lc, p->type_of_c, CUBLAS_OP_N, p->m, p->n, p->ldc, p->batch);
    lt->preference_init(&pref, sizeof pref);
    lt->preference_set(&pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &cuda->lt_workspace_bytes,
                       sizeof cuda->lt_workspace_bytes);
    if (p->type_of_c != DR_TYPE_F32) { /* partial sums are not rounded to halves */
        const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        lt->preference_set(&pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction,
                           sizeof reduction);
    }
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    s = lt->heuristic(cuda->lt, &op, &la, &lb, &lc, &lc, &pref, 1, &best, &found);
    if (s != CUBLAS_STATUS_SUCCESS || found == 0) {
        return as_cuda(s == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : s);
    }
    return as_cuda(lt->matmul(cuda->lt, &op, &one, a, &la, b, &lb, &zero, c, &lc, c, &lc,
                              &best.algo, cuda->lt_workspace, cuda->lt_workspace_bytes,
                              cuda->stream));
}

int dr_cuda_linear_fprop(struct dr_cuda *cuda, enum dr_type t, int64_t m, int64_t in, int64_t out,
                         const void *x, const void *w, const struct dr_epilogue *e, void *y) {
    const struct product p = {out, m, in, in, in, out, CUBLAS_OP_T, CUBLAS_OP_N, 0, t, t};
    const int err = multiply(cuda, &p, w, x, y);
    return err ? err : dr_cuda_epilogue(t, m, out, e, y, cuda->stream);
}

int dr_cuda_linear_dgrad(struct dr_cuda *cuda, enum dr_type t, int64_t m, int64_t in, int64_t out,
                         const void *dy, const void *w, void *dx) {
    const struct product p = {in, m, out, in, out, in, CUBLAS_OP_N, CUBLAS_OP_N, 0, t, t};
    return multiply(cuda, &p, w, dy, dx);
}

int dr_cuda_linear_wgrad(struct dr_cuda *cuda, enum dr_type t, int64_t m, int64_t in, int64_t out,
                         const void *x, const void *dy, float *dw) {
    const struct product p = {in, out, m, in, out, in, CUBLAS_OP_N, CUBLAS_OP_T, 0, t, DR_TYPE_F32};
    return multiply(cuda, &p, x, dy, dw);
}

int dr_cuda_matmul(struct dr_cuda *cuda, enum dr_type t, const struct dr_matmul *p, const void *a,
                   const void *b, void *c) {
    int err = 0;
    const int64_t bytes = dr_type_bytes(t);
    struct product q = {.m = p->n,
                        .n = p->m,
                        .k = p->k,
                        .lda = p->tb ? p->k : p->n,
                        .ldb = p->ta ? p->m : p->k,
                        .ldc = p->n,
                        .ta = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                        .tb = p->ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                        .type = t,
                        .type_of_c = t};
    for (int64_t at = 0; at < p->batch && !err; at += q.batch) {
        q.batch = p->batch - at < MOST_PRODUCTS ? (int32_t)(p->batch - at) : MOST_PRODUCTS;
        err = multiply(cuda, &q, (const char *)b + at * p->k * p->n * bytes,
                       (const char *)a + at * p->m * p->k * bytes,
                       (char *)c + at * p->m * p->n * bytes);
    }
    return err;
}
