/* One forward convolution by cuDNN: every engine configuration that its heuristics name (modes A
 * and B, the fallback list; about 120 in halves), made a plan and timed. */
#include "tests/bench/conv12_cudnn.h"
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

typedef cudnnBackendDescriptor_t desc;
enum { PLANS = 256, X = 1, W, Y };

struct conv12_cudnn {
    cudnnHandle_t handle;
    cudaStream_t stream;
    bool exact; /* fp32 as it is */
    desc graph, best;
    int64_t best_bytes;
    void *workspace;
};

static void must(cudnnStatus_t s, const char *what) {
    if (s != CUDNN_STATUS_SUCCESS) {
        fprintf(stderr, "%s: %s\n", what, cudnnGetErrorString(s));
        exit(1);
    }
}
static void must_cuda(cudaError_t e, const char *what) {
    if (e != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
        exit(1);
    }
}
static desc create(cudnnBackendDescriptorType_t type) {
    desc d;
    must(cudnnBackendCreateDescriptor(type, &d), "cudnnBackendCreateDescriptor");
    return d;
}
static void set(desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t n, const void *value) {
    must(cudnnBackendSetAttribute(d, name, type, n, value), "cudnnBackendSetAttribute");
}

static desc tensor(int64_t id, cudnnDataType_t type, const int64_t nchw[4]) {
    const desc d = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t c = nchw[1], h = nchw[2], w = nchw[3], alignment = 16;
    const int64_t stride[] = {c * h * w, 1, w * c, c};
    set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, nchw);
    set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    must(cudnnBackendFinalize(d), "a tensor");
    return d;
}

static desc convolution(const struct dr_conv *c) {
    const desc d = create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t two = 2, dilation[] = {c->dh, c->dw}, stride[] = {c->sh, c->sw};
    const int64_t before[] = {c->pt, c->pl}, after[] = {c->pb, c->pr};
    set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
    set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before);
    set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, after);
    must(cudnnBackendFinalize(d), "the convolution");
    return d;
}

struct conv12_cudnn *conv12_cudnn_open(const struct dr_conv *c, enum dr_type t, bool tf32,
                                       dr_stream s) {
    struct conv12_cudnn *p = calloc(1, sizeof *p);
    if (!p) {
        exit(1);
    }
    const cudnnDataType_t type = t == DR_TYPE_F32   ? CUDNN_DATA_FLOAT
                                 : t == DR_TYPE_F16 ? CUDNN_DATA_HALF
                                                    : CUDNN_DATA_BFLOAT16;
    p->stream = (cudaStream_t)s;
    p->exact = t == DR_TYPE_F32 && !tf32;
    must(cudnnCreate(&p->handle), "cudnnCreate");
    must(cudnnSetStream(p->handle, p->stream), "cudnnSetStream");
    const desc x = tensor(X, type, (int64_t[]){c->n, c->c, c->h, c->w});
    const desc w = tensor(W, type, (int64_t[]){c->k, c->c / c->groups, c->kh, c->kw});
    const desc y = tensor(Y, type, (int64_t[]){c->n, c->k, c->ho, c->wo});
    const desc conv = convolution(c);
    const desc op = create(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    const float one = 1.0f, zero = 0.0f;
    const cudnnBackendAttributeType_t part = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, part, 1, &x);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, part, 1, &w);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, part, 1, &y);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, part, 1, &conv);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    must(cudnnBackendFinalize(op), "the operation");
    p->graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(p->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, part, 1, &op);
    set(p->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->handle);
    must(cudnnBackendFinalize(p->graph), "the graph");
    return p;
}

/* Whether the engine keeps fp32 operands as they are. */
static bool exact(desc config) {
    desc engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0;
    bool as_is =
        cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &n, &engine) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n,
                                 note) == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; i < n && as_is; i++) {
        as_is = note[i] != CUDNN_NUMERICAL_NOTE_TENSOR_CORE &&
                note[i] != CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    }
    cudnnBackendDestroyDescriptor(engine);
    return as_is;
}

/* A plan of the configuration; NULL where cuDNN will not have it. */
static desc plan_of(const struct conv12_cudnn *p, desc config, int64_t *bytes) {
    const desc plan = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t n;
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->handle);
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                 1, &n, bytes) == CUDNN_STATUS_SUCCESS) {
        return plan;
    }
    cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

static cudnnStatus_t execute(const struct conv12_cudnn *p, desc plan, void *workspace,
                             const void *x, const void *w, void *y) {
    const desc pack = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    const int64_t ids[] = {X, W, Y};
    const void *const data[] = {x, w, y};
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data);
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    must(cudnnBackendFinalize(pack), "a variant pack");
    const cudnnStatus_t s = cudnnBackendExecute(p->handle, plan, pack);
    cudnnBackendDestroyDescriptor(pack);
    return s;
}

/* Milliseconds: the least of three runs of five; of one run, if that is far above `best`. */
static float time_of(const struct conv12_cudnn *p, desc plan, void *workspace, float best_ms,
                     const void *x, const void *w, void *y) {
    cudaEvent_t from, to;
    float best = FLT_MAX;
    if (execute(p, plan, workspace, x, w, y) != CUDNN_STATUS_SUCCESS) {
        return best;
    }
    must_cuda(cudaStreamSynchronize(p->stream), "a cuDNN plan");
    must_cuda(cudaEventCreate(&from), "cudaEventCreate");
    must_cuda(cudaEventCreate(&to), "cudaEventCreate");
    for (int i = 0; i < 4 && (i == 0 || best < 3.0f * best_ms); i++) {
        const int runs = i ? 5 : 1;
        float ms;
        cudaEventRecord(from, p->stream);
        for (int j = 0; j < runs; j++) {
            execute(p, plan, workspace, x, w, y);
        }
        cudaEventRecord(to, p->stream);
        must_cuda(cudaEventSynchronize(to), "a cuDNN plan");
        cudaEventElapsedTime(&ms, from, to);
        best = ms / (float)runs < best ? ms / (float)runs : best;
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return best;
}

/* Tries a configuration; 1 if it made a plan that ran. */
static int try_config(struct conv12_cudnn *p, desc config, float *best_ms, const void *x,
                      const void *w, void *y) {
    int64_t bytes;
    void *workspace = NULL;
    const desc plan = p->exact && !exact(config) ? NULL : plan_of(p, config, &bytes);
    if (!plan) {
        return 0;
    }
    if (bytes > 0 && cudaMalloc(&workspace, (size_t)bytes) != cudaSuccess) {
        cudaGetLastError();
        cudnnBackendDestroyDescriptor(plan);
        return 0;
    }
    const float ms = time_of(p, plan, workspace, *best_ms, x, w, y);
    if (ms < *best_ms) {
        *best_ms = ms;
        cudaFree(p->workspace);
        if (p->best) {
            cudnnBackendDestroyDescriptor(p->best);
        }
        p->best = plan, p->best_bytes = bytes, p->workspace = workspace;
    } else {
        cudaFree(workspace);
        cudnnBackendDestroyDescriptor(plan);
    }
    return ms < FLT_MAX;
}

static int try_mode(struct conv12_cudnn *p, cudnnBackendHeurMode_t mode, float *best_ms,
                    const void *x, const void *w, void *y) {
    const desc heur = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    static desc config[PLANS];
    int64_t n = 0;
    int ran = 0;
    set(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p->graph);
    set(heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (cudnnBackendFinalize(heur) == CUDNN_STATUS_SUCCESS) {
        for (int i = 0; i < PLANS; i++) {
            config[i] = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        }
        if (cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, PLANS, &n,
                                     config) != CUDNN_STATUS_SUCCESS) {
            n = 0;
        }
        for (int i = 0; i < PLANS; i++) {
            ran += i < n ? try_config(p, config[i], best_ms, x, w, y) : 0;
            cudnnBackendDestroyDescriptor(config[i]);
        }
    }
    cudnnBackendDestroyDescriptor(heur);
    return ran;
}

int conv12_cudnn_best(struct conv12_cudnn *p, const void *x, const void *w, void *y) {
    float best = FLT_MAX;
    int ran = 0;
    ran += try_mode(p, CUDNN_HEUR_MODE_A, &best, x, w, y);
    ran += try_mode(p, CUDNN_HEUR_MODE_B, &best, x, w, y);
    ran += try_mode(p, CUDNN_HEUR_MODE_FALLBACK, &best, x, w, y);
    return p->best ? ran : 0;
}

void conv12_cudnn_run(struct conv12_cudnn *p, const void *x, const void *w, void *y) {
    must(execute(p, p->best, p->workspace, x, w, y), "cudnnBackendExecute");
}

int64_t conv12_cudnn_workspace(const struct conv12_cudnn *p) {
    return p->best_bytes;
}

size_t conv12_cudnn_version(void) {
    return cudnnGetVersion();
}

void conv12_cudnn_close(struct conv12_cudnn *p) {
    if (p->best) {
        cudnnBackendDestroyDescriptor(p->best);
    }
    cudnnBackendDestroyDescriptor(p->graph);
    cudnnDestroy(p->handle);
    cudaFree(p->workspace);
    free(p);
}
