/* How the convolution benches time: graphs of 20 launches, in turns, for the card's clock falls
 * under load and whoever ran second would lose; medians of 7. */
#ifndef DR_TESTS_BENCH_TIMING_CUH
#define DR_TESTS_BENCH_TIMING_CUH
#include "kernels/cuda/conv.h"
#include "tests/conv_check.cuh"
#include <algorithm>
#include <vector>

namespace {

struct precision {
    const char *name;
    dr_type t;
    bool tf32;
    double tflops; /* of the card, measured */
};
const precision precisions[] = {{"f16", DR_TYPE_F16, false, 748},
                                {"bf16", DR_TYPE_BF16, false, 748},
                                {"tf32", DR_TYPE_F32, true, 406},
                                {"f32", DR_TYPE_F32, false, 51}};

constexpr int LAUNCHES = 20, ROUNDS = 7;
dr_cuda cuda;

template <typename F> cudaGraphExec_t capture(F launch) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(cuda.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < LAUNCHES; i++) {
        launch();
    }
    MUST(cudaStreamEndCapture(cuda.stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    return exec;
}

float replay(cudaGraphExec_t g) {
    static cudaEvent_t from, to;
    float ms;
    if (!from) {
        MUST(cudaEventCreate(&from));
        MUST(cudaEventCreate(&to));
    }
    MUST(cudaEventRecord(from, cuda.stream));
    MUST(cudaGraphLaunch(g, cuda.stream));
    MUST(cudaEventRecord(to, cuda.stream));
    MUST(cudaEventSynchronize(to));
    MUST(cudaEventElapsedTime(&ms, from, to));
    return ms / LAUNCHES;
}
float median(std::vector<float> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

/* The current device, a stream and what convolutions of cut tiles need; its name. */
void open_card(char *name, size_t n) {
    cudaDeviceProp prop;
    MUST(cudaGetDeviceProperties(&prop, 0));
    cuda.arch = 10 * prop.major + prop.minor;
    cuda.sms = prop.multiProcessorCount;
    MUST(cudaMalloc(&cuda.tickets, DR_CUDA_TICKETS * sizeof(unsigned)));
    MUST(cudaMemset(cuda.tickets, 0, DR_CUDA_TICKETS * sizeof(unsigned)));
    MUST(cudaStreamCreateWithFlags(&cuda.stream, cudaStreamNonBlocking));
    snprintf(name, n, "%s", prop.name);
}

} // namespace
#endif
