/* Devices for fake_cuda_lab.h: CUDA, and the host for dry runs. */
#include "tests/fake_cuda_lab.h"
#include <stdlib.h>
#include <string.h>

#define GUARD 4096 /* keeps the alignment of a plan's buffers, DR_ALIGN */

/* ---- the host ---- */
static void *host_alloc(size_t bytes) {
    void *p = NULL;
    return posix_memalign(&p, 256, bytes) ? NULL : p;
}
static int host_copy(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
    return 0;
}
static int host_launch(const struct dr_launch *l, bool captured) {
    (void)captured;
    struct dr_cpu inline_cpu = {NULL};
    lab_half_on_host(l, &inline_cpu);
    return 0;
}
static const char *host_error(int error) {
    (void)error;
    return "out of memory";
}
static bool host_usable(void) {
    return true;
}

void lab_open_host(struct lab_device *d) {
    *d = (struct lab_device){.name = "the CPU launchers (dry run)",
                             .guard = GUARD,
                             .launches = 4,
                             .alloc = host_alloc,
                             .release = free,
                             .upload = host_copy,
                             .download = host_copy,
                             .launch = host_launch,
                             .error_text = host_error,
                             .usable = host_usable};
}

/* ---- CUDA ---- */
#ifdef DR_WITH_CUDA
#include "kernels/cuda/conv_way.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/lt.h"
#include <cuda_runtime_api.h>

static struct dr_cuda context;

static void *cuda_alloc(size_t bytes) {
    void *p = NULL;
    return cudaMalloc(&p, bytes) == cudaSuccess ? p : NULL;
}
static void cuda_release(void *p) {
    cudaFree(p);
}
/* In the stream of the launches, which the default stream does not wait for. */
static int copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    const int err = (int)cudaMemcpyAsync(to, from, bytes, kind, context.stream);
    return err ? err : (int)cudaStreamSynchronize(context.stream);
}
static int cuda_upload(void *to, const void *from, size_t bytes) {
    return copy(to, from, bytes, cudaMemcpyHostToDevice);
}
static int cuda_download(void *to, const void *from, size_t bytes) {
    return copy(to, from, bytes, cudaMemcpyDeviceToHost);
}

static int replay_captured(const struct dr_launch *l) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    int err = (int)cudaStreamBeginCapture(context.stream, cudaStreamCaptureModeThreadLocal);
    if (err) {
        return err;
    }
    err = l->node->op->cuda(l, &context);
    const int end = (int)cudaStreamEndCapture(context.stream, &graph);
    err = err ? err : end;
    err = err ? err : (int)cudaGraphInstantiate(&exec, graph, 0);
    err = err ? err : (int)cudaGraphLaunch(exec, context.stream);
    const int done = (int)cudaStreamSynchronize(context.stream);
    if (exec) {
        cudaGraphExecDestroy(exec);
    }
    if (graph) {
        cudaGraphDestroy(graph);
    }
    return err ? err : done;
}

/* cuBLASLt for the ops that it computes; others start faster without it. */
static int create_lt(const struct dr_op *op) {
    if (context.lt ||
        (strncmp(op->name, "linear", 6) != 0 && strncmp(op->name, "matmul", 6) != 0)) {
        return 0;
    }
    if (!dr_lt()) {
        fprintf(stderr, "cuBLASLt: %s\n", dr_lt_why());
        return (int)cudaErrorInitializationError;
    }
    return dr_lt()->create(&context.lt) == CUBLAS_STATUS_SUCCESS
               ? 0
               : (int)cudaErrorInitializationError;
}

static int cuda_launch(const struct dr_launch *l, bool captured) {
    const int created = create_lt(l->node->op);
    if (created) {
        return created;
    }
    if (captured) {
        return replay_captured(l);
    }
    const int err = l->node->op->cuda(l, &context);
    const int done = (int)cudaStreamSynchronize(context.stream);
    return err ? err : done;
}
static const char *cuda_error(int error) {
    return cudaGetErrorString((cudaError_t)error);
}
static bool cuda_usable(void) {
    cudaGetLastError(); /* one that does not stick is gone now */
    return cudaDeviceSynchronize() == cudaSuccess;
}

static int create_context(int sms) {
    context.sms = sms;
    context.lt_workspace_bytes = (size_t)36 << 20;
    int err = (int)cudaStreamCreateWithFlags(&context.stream, cudaStreamNonBlocking);
    err = err ? err : (int)cudaMalloc(&context.lt_workspace, context.lt_workspace_bytes);
    const size_t tickets = DR_CUDA_TICKETS * sizeof(unsigned);
    err = err ? err : (int)cudaMalloc((void **)&context.tickets, tickets);
    return err ? err : (int)cudaMemset(context.tickets, 0, tickets);
}

bool lab_open_cuda(struct lab_device *d, char *why, size_t n) {
    int count = 0;
    struct cudaDeviceProp prop;
    cudaError_t err = cudaGetDeviceCount(&count);
    if (err != cudaSuccess || count == 0) {
        snprintf(why, n, "%s", cudaGetErrorString(err == cudaSuccess ? cudaErrorNoDevice : err));
        return false;
    }
    err = cudaGetDeviceProperties(&prop, 0);
    if (err == cudaSuccess) {
        context.arch = 10 * prop.major + prop.minor;
        err = (cudaError_t)create_context(prop.multiProcessorCount);
    }
    const bool sanitized = getenv("DR_CUDA_OPS_SANITIZE") != NULL;
    context.tf32 = getenv("DR_CUDA_OPS_TF32") != NULL;
    *d = (struct lab_device){.cuda = true,
                             .tf32 = context.tf32,
                             .caps = {.arch = context.arch,
                                      .sms = context.sms,
                                      .hopper = context.arch == 90 && dr_cuda_conv_hopper_runs()},
                             .guard = sanitized ? 0 : GUARD,
                             .launches = sanitized ? 1 : 4,
                             .alloc = cuda_alloc,
                             .release = cuda_release,
                             .upload = cuda_upload,
                             .download = cuda_download,
                             .launch = cuda_launch,
                             .error_text = cuda_error,
                             .usable = cuda_usable};
    snprintf(d->name, sizeof d->name, "%s", prop.name);
    if (err != cudaSuccess) { /* a device that does not work is no reason to skip */
        fprintf(stderr, "the device cannot be used: %s\n", cudaGetErrorString(err));
        exit(1);
    }
    return true;
}

void lab_close(struct lab_device *d) {
    if (d->cuda) {
        if (context.lt) {
            dr_lt()->destroy(context.lt);
        }
        cudaFree(context.lt_workspace);
        cudaFree(context.tickets);
        cudaStreamDestroy(context.stream);
    }
}
#else
bool lab_open_cuda(struct lab_device *d, char *why, size_t n) {
    (void)d;
    snprintf(why, n, "built without CUDA");
    return false;
}
void lab_close(struct lab_device *d) {
    (void)d;
}
#endif
