/* What streams, events and graphs order on the emulated GPU, that what they leave open does happen
 * in other orders, and what a capture refuses. */
#include <cuda_runtime.h>
#include <functional>
#include <stdio.h>
#include <string.h>
#include <thread>

namespace {

int wrong;
void expect(bool holds, const char *what) {
    printf("%s: %s\n", what, holds ? "ok" : "FAILED");
    wrong += !holds;
}
/* Of 200 times, those where once() is true. */
int times(const std::function<bool(void)> &once) {
    int n = 0;
    for (int i = 0; i < 200; i++) {
        n += once();
    }
    return n;
}

__global__ void set_kernel(float *x, float value) {
    *x = value;
}
__global__ void twice_kernel(const float *x, float *y) {
    *y = 2.0f * *x;
}

cudaStream_t s, t;
cudaEvent_t made, both;
float *x, *y; /* of the device */
float *a, *b; /* of the host, pinned */
float out;

void clear() {
    cudaDeviceSynchronize();
    *x = *y = -1.0f;
}
/* x = 3 in one stream, y = 2 x in the other. */
void two_streams(bool wait) {
    set_kernel<<<1, 1, 0, s>>>(x, 3.0f);
    cudaEventRecord(made, s);
    if (wait) {
        cudaStreamWaitEvent(t, made, 0);
    }
    twice_kernel<<<1, 1, 0, t>>>(x, y);
}
void in_streams() {
    const auto right = [](bool wait) {
        return times([=] {
            clear();
            two_streams(wait);
            cudaStreamSynchronize(t);
            return *y == 6.0f;
        });
    };
    expect(right(true) == 200, "a stream that waits for an event");
    expect(right(false) < 200, "without the wait it is wrong");
    const int late = times([] {
        clear();
        set_kernel<<<1, 1, 0, s>>>(x, 3.0f);
        return *(volatile float *)x != 3.0f;
    });
    expect(late > 0, "a launch returns before the kernel is done");
    const int before = times([] {
        clear();
        for (int i = 0; i < 4; i++) {
            set_kernel<<<1, 1, 0, s>>>(x, 3.0f);
        }
        cudaEventRecord(made, s);
        return cudaEventQuery(made) == cudaErrorNotReady;
    });
    cudaGetLastError();
    expect(before > 0, "an event that has not happened");
    expect(times([] {
               clear();
               two_streams(false);
               cudaEventSynchronize(made);
               return *x == 3.0f;
           }) == 200,
           "a host that waits for an event");
}
void copies() {
    float host = 5.0f;
    const auto right = [&](bool wait) {
        return times([&] {
            clear();
            cudaMemcpy(x, &host, sizeof host, cudaMemcpyHostToDevice);
            if (wait) {
                cudaStreamSynchronize(NULL);
            }
            twice_kernel<<<1, 1, 0, s>>>(x, y);
            cudaStreamSynchronize(s);
            return *y == 10.0f;
        });
    };
    expect(right(true) == 200, "a copy from pageable memory, waited for");
    expect(right(false) < 200, "it returns before the bytes are there");
    expect(times([] {
               clear();
               set_kernel<<<1, 1, 0, s>>>(x, 3.0f);
               cudaMemcpyAsync(&out, x, sizeof out, cudaMemcpyDeviceToHost, s);
               return out == 3.0f;
           }) == 200,
           "a copy to pageable memory is there on return");
    expect(times([] {
               clear();
               *a = 1.0f;
               cudaMemcpyAsync(x, a, sizeof *a, cudaMemcpyHostToDevice, s);
               *a = 2.0f;
               cudaStreamSynchronize(s);
               return *x == 2.0f;
           }) > 0,
           "pinned memory is read when the copy is made");
}

/* The streams of two_streams as a graph; NULL and the error. */
cudaGraph_t captured(bool wait, bool joined, cudaError_t *e) {
    cudaGraph_t g;
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(both, s);
    cudaStreamWaitEvent(t, both, 0);
    two_streams(wait);
    cudaEventRecord(both, t);
    if (joined) {
        cudaStreamWaitEvent(s, both, 0);
    }
    *e = cudaStreamEndCapture(s, &g);
    return g;
}
void graphs() {
    const auto right = [](bool wait) {
        cudaError_t e;
        cudaGraphExec_t exec;
        const cudaGraph_t g = captured(wait, true, &e);
        if (e || cudaGraphInstantiate(&exec, g, 0)) {
            return -1;
        }
        cudaGraphDestroy(g);
        const int n = times([=] {
            clear();
            cudaGraphLaunch(exec, s);
            cudaStreamSynchronize(s);
            return *y == 6.0f;
        });
        cudaGraphExecDestroy(exec);
        return n;
    };
    clear();
    cudaError_t e;
    cudaGraphDestroy(captured(true, true, &e));
    cudaDeviceSynchronize();
    expect(e == cudaSuccess && *x == -1.0f, "what is captured does not run");
    expect(right(true) == 200, "a graph of two streams");
    const int n = right(false);
    expect(n >= 0 && n < 200, "without an edge it is wrong");
}
/* Launches have the parameters that they were launched with. */
void retargeted() {
    cudaGraph_t g;
    cudaGraphExec_t exec;
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t *last;
    size_t n = 0;
    *a = 7.0f, *b = 8.0f;
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    cudaMemcpyAsync(x, a, sizeof *a, cudaMemcpyHostToDevice, s);
    cudaStreamGetCaptureInfo(s, &status, NULL, NULL, &last, NULL, &n);
    const cudaGraphNode_t node = n == 1 ? *last : NULL;
    twice_kernel<<<1, 1, 0, s>>>(x, y);
    cudaMemcpyAsync(&out, y, sizeof out, cudaMemcpyDeviceToHost, s);
    cudaStreamEndCapture(s, &g);
    cudaGraphInstantiate(&exec, g, 0);
    cudaGraphLaunch(exec, s);
    cudaGraphExecMemcpyNodeSetParams1D(exec, node, x, b, sizeof *b, cudaMemcpyHostToDevice);
    cudaStreamSynchronize(s);
    expect(out == 14.0f, "a launch before a copy was given another source");
    cudaGraphLaunch(exec, s);
    cudaStreamSynchronize(s);
    expect(out == 16.0f, "and one after it");
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(g);
}

/* Whether a capture in which work() is called ends with this error. */
bool ends(cudaError_t with, const std::function<void(void)> &work,
          cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    cudaGraph_t g;
    cudaStreamBeginCapture(s, mode);
    set_kernel<<<1, 1, 0, s>>>(x, 3.0f);
    work();
    const cudaError_t e = cudaStreamEndCapture(s, &g);
    cudaGraphDestroy(g);
    cudaGetLastError();
    return e == with;
}
void refused() {
    const cudaError_t spoilt = cudaErrorStreamCaptureInvalidated;
    const auto allocate = [] {
        void *p = NULL;
        if (cudaHostAlloc(&p, 8, 0) == cudaSuccess) {
            cudaFreeHost(p);
        }
    };
    cudaError_t e;
    captured(true, false, &e);
    cudaGetLastError();
    expect(e == cudaErrorStreamCaptureUnjoined, "a stream that is not joined");
    expect(ends(cudaSuccess, [] {}), "a capture");
    expect(ends(spoilt, [] { cudaStreamSynchronize(s); }), "a wait for the captured stream");
    expect(ends(spoilt, [] { cudaDeviceSynchronize(); }), "a wait for the device");
    expect(ends(spoilt, [] { cudaEventRecord(made, s), cudaEventSynchronize(made); }),
           "a wait for a captured event");
    expect(ends(spoilt,
                [] {
                    cudaEventRecord(made, t); /* outside of the capture */
                    cudaStreamWaitEvent(s, made, 0);
                }),
           "a wait for work that is not captured");
    expect(ends(spoilt, allocate), "an allocation");
    expect(ends(cudaSuccess, [=] { std::thread(allocate).join(); }), "one by another thread");
    expect(ends(
               spoilt, [=] { std::thread(allocate).join(); }, cudaStreamCaptureModeGlobal),
           "one by another thread, in a global capture");
    expect(ends(spoilt,
                [] {
                    cudaStreamSynchronize(s);
                    cudaGetLastError();
                    set_kernel<<<1, 1, 0, s>>>(x, 3.0f);
                    expect(cudaGetLastError() == cudaErrorStreamCaptureInvalidated,
                           "a launch into a spoilt capture");
                }),
           "and its end");
}
} // namespace

int main(void) {
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&both, cudaEventDisableTiming);
    cudaMalloc(&x, sizeof *x);
    cudaMalloc(&y, sizeof *y);
    cudaHostAlloc((void **)&a, sizeof *a, cudaHostAllocMapped);
    cudaHostAlloc((void **)&b, sizeof *b, cudaHostAllocMapped);
    in_streams();
    copies();
    graphs();
    retargeted();
    refused();
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
