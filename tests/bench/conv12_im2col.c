/* The product of conv12_im2col.h: cuBLASLt, every algorithm that its heuristics name, timed. */
#include "tests/bench/conv12_im2col.h"
#include "kernels/cuda/lt.h"
#include <cuda_runtime_api.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

enum { ALGORITHMS = 64 };
#define WORKSPACE ((size_t)256 << 20)

struct conv12_im2col {
    struct dr_conv c;
    enum dr_type type;
    int64_t ld; /* values of a row of the matrix */
    cudaStream_t stream;
    const struct dr_lt *lt;
    cublasLtHandle_t handle;
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t filters, rows, y; /* of columns, as BLAS has them */
    cublasLtMatmulAlgo_t algo;
    void *matrix; /* NULL: it is x */
    void *padded; /* filters with rows of ld; NULL: they are so */
    void *workspace;
};

static void must(bool ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "im2col: %s\n", what);
        exit(1);
    }
}
static void must_cuda(cudaError_t e, const char *what) {
    if (e != cudaSuccess) {
        fprintf(stderr, "im2col: %s: %s\n", what, cudaGetErrorString(e));
        exit(1);
    }
}

static int64_t pixels(const struct dr_conv *c) {
    return c->n * c->ho * c->wo;
}
static int64_t depth(const struct dr_conv *c) {
    return c->kh * c->kw * c->c;
}
/* x itself is the matrix. */
static bool trivial(const struct dr_conv *c) {
    return c->kh == 1 && c->kw == 1 && c->sh == 1 && c->sw == 1 && c->pt == 0 && c->pl == 0 &&
           c->pb == 0 && c->pr == 0;
}
int64_t conv12_im2col_bytes(const struct conv12_im2col *p) {
    return p->matrix ? pixels(&p->c) * p->ld * dr_type_bytes(p->type) : 0;
}

/* y [pixels, k] = rows [pixels, ld] * filters [k, ld]^T, all with rows one after the other: in
 * columns, y' = filters * rows. */
static void describe(struct conv12_im2col *p, bool tf32) {
    static const cudaDataType_t types[] = {
        [DR_TYPE_F32] = CUDA_R_32F, [DR_TYPE_F16] = CUDA_R_16F, [DR_TYPE_BF16] = CUDA_R_16BF};
    const cudaDataType_t t = types[p->type];
    const cublasOperation_t turned = CUBLAS_OP_T, as_is = CUBLAS_OP_N;
    const uint64_t k = (uint64_t)p->c.k, m = (uint64_t)pixels(&p->c), ld = (uint64_t)p->ld;
    const bool fast = tf32 && p->type == DR_TYPE_F32;
    bool ok = p->lt->matmul_desc_init(&p->op, sizeof p->op,
                                      fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                      CUDA_R_32F) == CUBLAS_STATUS_SUCCESS;
    ok &= p->lt->matmul_desc_set(&p->op, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned) ==
          CUBLAS_STATUS_SUCCESS;
    ok &= p->lt->matmul_desc_set(&p->op, CUBLASLT_MATMUL_DESC_TRANSB, &as_is, sizeof as_is) ==
          CUBLAS_STATUS_SUCCESS;
    ok &= p->lt->layout_init(&p->filters, sizeof p->filters, t, ld, k, p->ld) ==
          CUBLAS_STATUS_SUCCESS;
    ok &= p->lt->layout_init(&p->rows, sizeof p->rows, t, ld, m, p->ld) == CUBLAS_STATUS_SUCCESS;
    ok &= p->lt->layout_init(&p->y, sizeof p->y, t, k, m, p->c.k) == CUBLAS_STATUS_SUCCESS;
    must(ok, "the product's description");
}

struct conv12_im2col *conv12_im2col_open(const struct dr_conv *c, enum dr_type t, bool tf32,
                                         dr_stream s) {
    if (c->groups > 1) {
        return NULL;
    }
    struct conv12_im2col *p = calloc(1, sizeof *p);
    const int64_t v = 16 / dr_type_bytes(t);
    must(p != NULL, "out of memory");
    p->c = *c, p->type = t, p->stream = (cudaStream_t)s;
    p->ld = (depth(c) + v - 1) / v * v;
    p->lt = dr_lt();
    must(p->lt != NULL, dr_lt_why());
    must(p->lt->create(&p->handle) == CUBLAS_STATUS_SUCCESS, "cublasLtCreate");
    describe(p, tf32);
    if (!trivial(c) || p->ld != depth(c)) {
        const size_t bytes = (size_t)(pixels(c) * p->ld * dr_type_bytes(t));
        must_cuda(cudaMalloc(&p->matrix, bytes), "the matrix");
    }
    if (p->ld != depth(c)) {
        must_cuda(cudaMalloc(&p->padded, (size_t)(c->k * p->ld * dr_type_bytes(t))), "filters");
    }
    must_cuda(cudaMalloc(&p->workspace, WORKSPACE), "the workspace");
    return p;
}

static cublasStatus_t multiply(struct conv12_im2col *p, const cublasLtMatmulAlgo_t *algo,
                               const void *x, const void *w, void *y) {
    const float one = 1.0f, zero = 0.0f;
    return p->lt->matmul(p->handle, &p->op, &one, p->padded ? p->padded : w, &p->filters,
                         p->matrix ? p->matrix : x, &p->rows, &zero, y, &p->y, y, &p->y, algo,
                         p->workspace, WORKSPACE, p->stream);
}

/* Milliseconds of the product: the least of three runs of three, after one to warm up. */
static float time_of(struct conv12_im2col *p, const cublasLtMatmulAlgo_t *algo, const void *x,
                     const void *w, void *y) {
    cudaEvent_t from, to;
    float best = FLT_MAX;
    if (multiply(p, algo, x, w, y) != CUBLAS_STATUS_SUCCESS) {
        return best;
    }
    must_cuda(cudaEventCreate(&from), "cudaEventCreate");
    must_cuda(cudaEventCreate(&to), "cudaEventCreate");
    for (int i = 0; i < 3; i++) {
        float ms;
        cudaEventRecord(from, p->stream);
        for (int j = 0; j < 3; j++) {
            multiply(p, algo, x, w, y);
        }
        cudaEventRecord(to, p->stream);
        must_cuda(cudaEventSynchronize(to), "a product");
        cudaEventElapsedTime(&ms, from, to);
        best = ms / 3 < best ? ms / 3 : best;
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return best;
}

int conv12_im2col_best(struct conv12_im2col *p, const void *x, const void *w, void *y) {
    static cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
    const size_t most = WORKSPACE, row = (size_t)(depth(&p->c) * dr_type_bytes(p->type));
    const size_t pitch = (size_t)(p->ld * dr_type_bytes(p->type));
    cublasLtMatmulPreferenceOpaque_t preference;
    float best = FLT_MAX;
    int n = 0, ran = 0;
    if (p->padded) {
        const size_t k = (size_t)p->c.k;
        must_cuda(cudaMemsetAsync(p->padded, 0, k * pitch, p->stream), "filters");
        must_cuda(cudaMemcpy2DAsync(p->padded, pitch, w, row, row, k, cudaMemcpyDeviceToDevice,
                                    p->stream),
                  "filters");
    }
    if (p->matrix) {
        must_cuda((cudaError_t)conv12_im2col_matrix(&p->c, p->type, p->ld, x, p->matrix,
                                                    (dr_stream)p->stream),
                  "the matrix");
    }
    p->lt->preference_init(&preference, sizeof preference);
    p->lt->preference_set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                          sizeof most);
    p->lt->heuristic(p->handle, &p->op, &p->filters, &p->rows, &p->y, &p->y, &preference,
                     ALGORITHMS, found, &n);
    for (int i = 0; i < n; i++) {
        const float ms =
            found[i].state == CUBLAS_STATUS_SUCCESS ? time_of(p, &found[i].algo, x, w, y) : FLT_MAX;
        ran += ms < FLT_MAX;
        if (ms < best) {
            best = ms;
            p->algo = found[i].algo;
        }
    }
    must(ran > 0, "cuBLASLt has no algorithm");
    return ran;
}

void conv12_im2col_run(struct conv12_im2col *p, const void *x, const void *w, void *y) {
    if (p->matrix) {
        must_cuda((cudaError_t)conv12_im2col_matrix(&p->c, p->type, p->ld, x, p->matrix,
                                                    (dr_stream)p->stream),
                  "the matrix");
    }
    must(multiply(p, &p->algo, x, w, y) == CUBLAS_STATUS_SUCCESS, "cublasLtMatmul");
}

void conv12_im2col_close(struct conv12_im2col *p) {
    p->lt->destroy(p->handle);
    cudaFree(p->matrix);
    cudaFree(p->padded);
    cudaFree(p->workspace);
    free(p);
}
