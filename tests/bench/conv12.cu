/* Forward convolution against cuDNN on the im2win papers' twelve layers (and, with `resnet`, layers
 * of ResNet-50), batch 128, NHWC, random data:
 *
 *     conv12 [f16|bf16|tf32|f32] [LAYER ...]
 *
 * cuDNN is the best of every engine configuration that its heuristics give (both modes and the
 * fallback list), whatever workspace it wants. Each result is first compared with the
 * definition in double (outputs poisoned before). Then graphs of 20 launches are timed in turns,
 * with pauses of 30 ms, for the card's clock falls under load and whoever ran second would lose;
 * the median of 7 counts. The floor is what the card's measured rates allow: 4.27 TB/s, 748 (fp16,
 * bf16), 406 (tf32), 51 TFLOP/s (fp32). A short table comes last. */
#include "kernels/cuda/conv.h"
#include "kernels/cuda/conv_way.h"
#include "tests/bench/conv12_cudnn.h"
#include "tests/conv_check.cuh"
#include <algorithm>
#include <string.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

struct layer {
    const char *name;
    int c, h, k, kernel, stride, pad, n;
};
const layer layers[] = {
    {"conv1", 3, 227, 96, 11, 4, 0, 128},   {"conv2", 3, 231, 96, 11, 4, 0, 128},
    {"conv3", 3, 227, 64, 7, 2, 0, 128},    {"conv4", 64, 224, 64, 7, 2, 0, 128},
    {"conv5", 96, 24, 256, 5, 1, 0, 128},   {"conv6", 256, 12, 512, 3, 1, 0, 128},
    {"conv7", 3, 224, 64, 3, 1, 0, 128},    {"conv8", 64, 112, 128, 3, 1, 0, 128},
    {"conv9", 64, 56, 64, 3, 1, 0, 128},    {"conv10", 128, 28, 128, 3, 1, 0, 128},
    {"conv11", 256, 14, 256, 3, 1, 0, 128}, {"conv12", 512, 7, 512, 3, 1, 0, 128}};
const layer resnet[] = {
    {"7x7/2", 3, 224, 64, 7, 2, 3, 32},           {"1x1 64-64", 64, 56, 64, 1, 1, 0, 32},
    {"3x3 64", 64, 56, 64, 3, 1, 1, 32},          {"1x1 64-256", 64, 56, 256, 1, 1, 0, 32},
    {"1x1 256-64", 256, 56, 64, 1, 1, 0, 32},     {"1x1 256-128", 256, 56, 128, 1, 1, 0, 32},
    {"3x3/2 128", 128, 56, 128, 3, 2, 1, 32},     {"1x1/2 256-512", 256, 56, 512, 1, 2, 0, 32},
    {"3x3 128", 128, 28, 128, 3, 1, 1, 32},       {"1x1 128-512", 128, 28, 512, 1, 1, 0, 32},
    {"1x1 512-128", 512, 28, 128, 1, 1, 0, 32},   {"3x3/2 256", 256, 28, 256, 3, 2, 1, 32},
    {"3x3 256", 256, 14, 256, 3, 1, 1, 32},       {"1x1 256-1024", 256, 14, 1024, 1, 1, 0, 32},
    {"1x1 1024-256", 1024, 14, 256, 1, 1, 0, 32}, {"3x3/2 512", 512, 14, 512, 3, 2, 1, 32},
    {"3x3 512", 512, 7, 512, 3, 1, 1, 32},        {"1x1 512-2048", 512, 7, 2048, 1, 1, 0, 32},
    {"1x1 2048-512", 2048, 7, 512, 1, 1, 0, 32},  {"3x3 512 b1", 512, 7, 512, 3, 1, 1, 1},
    {"3x3 256 b1", 256, 14, 256, 3, 1, 1, 1},     {"1x1 1024 b1", 1024, 14, 256, 1, 1, 0, 1}};

struct precision {
    const char *name;
    dr_type t;
    bool tf32;
    double tflops;
};
const precision precisions[] = {{"f16", DR_TYPE_F16, false, 748},
                                {"bf16", DR_TYPE_BF16, false, 748},
                                {"tf32", DR_TYPE_F32, true, 406},
                                {"f32", DR_TYPE_F32, false, 51}};

constexpr int LAUNCHES = 20, ROUNDS = 7;
dr_cuda cuda;
std::string table;
double log_ratio[4][2];
int counted[4][2];

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

/* Outputs are right, and every one is written. */
bool right(const char *who, const dr_conv &c, const precision &p, const void *x, const void *w,
           const void *y) {
    const int64_t work = c.n * c.ho * c.wo * c.k * c.kh * c.kw * c.c / c.groups;
    check_case q = {c, p.t, p.tf32, {}, x, w, y, std::max<int64_t>(1, work / 4000000000) | 1};
    const check_result r = check(q);
    const double norm = sqrt(r.error2 / r.ref2), most = p.t == DR_TYPE_BF16 ? 4e-3 : 1e-3;
    if (!(norm < most)) {
        printf("%s is wrong: norm of the error %.2g\n", who, norm);
    }
    return norm < most;
}

void measure(const layer &l, const precision &p, int index) {
    dr_conv c = {l.n,      l.h,      l.h, l.c, l.k,   l.kernel, l.kernel, 0,     0,
                 l.stride, l.stride, 1,   1,   l.pad, l.pad,    l.pad,    l.pad, 1};
    c.ho = c.wo = (l.h + 2 * l.pad - l.kernel) / l.stride + 1;
    const int64_t es = dr_type_bytes(p.t), nx = c.n * c.h * c.w * c.c;
    const int64_t nw = c.k * c.kh * c.kw * c.c, ny = c.n * c.ho * c.wo * c.k;
    void *x, *w, *y;
    MUST(cudaMalloc(&x, nx * es));
    MUST(cudaMalloc(&w, nw * es));
    MUST(cudaMalloc(&y, ny * es));
    fill(x, p.t, nx, 100 + index, 1.0f, 0.0f);
    fill(w, p.t, nw, 200 + index, 1.0f / sqrtf((float)(c.kh * c.kw * c.c)), 0.0f);
    MUST(cudaDeviceSynchronize());
    const dr_epilogue e = {};
    cuda.tf32 = p.tf32;
    const dr_conv_card card = {cuda.arch, cuda.sms, dr_cuda_conv_hopper_runs(), p.tf32};
    dr_conv_way way[DR_CONV_WAYS];
    dr_cuda_conv_ways(&c, p.t, e.act, &card, way);
    void *workspace;
    MUST(cudaMalloc(&workspace, (size_t)way->workspace_bytes + 1));
    const auto ours = [&] {
        must((cudaError_t)dr_cuda_conv_fprop(&c, p.t, way->way, x, w, &e, y, workspace, &cuda),
             way->name);
    };
    MUST(cudaMemset(y, 0xff, ny * es));
    MUST(cudaDeviceSynchronize());
    ours();
    MUST(cudaDeviceSynchronize());
    bool ok = right("ours", c, p, x, w, y);
    const cudaGraphExec_t a = capture(ours);

    struct conv12_cudnn *peer = conv12_cudnn_open(&c, p.t, p.tf32, cuda.stream);
    const int plans = conv12_cudnn_best(peer, x, w, y);
    MUST(cudaMemset(y, 0xff, ny * es));
    MUST(cudaDeviceSynchronize());
    const auto theirs = [&] { conv12_cudnn_run(peer, x, w, y); };
    theirs();
    MUST(cudaDeviceSynchronize());
    ok &= right("cuDNN", c, p, x, w, y);
    const cudaGraphExec_t b = capture(theirs);

    std::vector<float> ta, tb;
    for (int i = 0; i <= ROUNDS; i++) {
        usleep(30000);
        const float one = replay(a);
        usleep(30000);
        const float two = replay(b);
        if (i > 0) { /* the first is to warm up */
            ta.push_back(one);
            tb.push_back(two);
        }
    }
    const double ms = median(ta), peer_ms = median(tb), ratio = peer_ms / ms;
    const double floor_ms = std::max((double)(nx + nw + ny) * es / 4.27e9,
                                     2.0 * ny * c.kh * c.kw * c.c / p.tflops / 1e9);
    char line[300];
    snprintf(line, sizeof line, "%-14s %-5s %8.4f %8.4f %6.2f %8.4f %8.1f %8.1f  %3d  %s%s\n",
             l.name, p.name, ms, peer_ms, ratio, floor_ms, (double)way->workspace_bytes / 1048576,
             (double)conv12_cudnn_workspace(peer) / 1048576, plans, way->name, ok ? "" : "  WRONG");
    table += line;
    fputs(line, stdout);
    fflush(stdout);
    for (int group = 0; group < (l.c >= 64 ? 2 : 1); group++) {
        log_ratio[&p - precisions][group] += log(ratio);
        counted[&p - precisions][group]++;
    }
    conv12_cudnn_close(peer);
    MUST(cudaGraphExecDestroy(a));
    MUST(cudaGraphExecDestroy(b));
    MUST(cudaFree(x));
    MUST(cudaFree(w));
    MUST(cudaFree(y));
    MUST(cudaFree(workspace));
}

bool asked(int argc, char **argv, const char *name, bool precision_name) {
    bool any = false;
    for (int i = 1; i < argc; i++) {
        bool is_precision = false;
        for (const precision &p : precisions) {
            is_precision |= strcmp(argv[i], p.name) == 0;
        }
        if (is_precision == precision_name && strcmp(argv[i], "resnet") != 0) {
            any = true;
            if (strcmp(argv[i], name) == 0) {
                return true;
            }
        }
    }
    return !any;
}

} // namespace

int main(int argc, char **argv) {
    cudaDeviceProp prop;
    MUST(cudaGetDeviceProperties(&prop, 0));
    cuda.arch = 10 * prop.major + prop.minor;
    cuda.sms = prop.multiProcessorCount;
    MUST(cudaMalloc(&cuda.tickets, DR_CUDA_TICKETS * sizeof(unsigned)));
    MUST(cudaMemset(cuda.tickets, 0, DR_CUDA_TICKETS * sizeof(unsigned)));
    MUST(cudaStreamCreateWithFlags(&cuda.stream, cudaStreamNonBlocking));
    const char *const head = "layer          type   ours ms cuDNN ms  ratio floor ms   MiB ws"
                             " cuDNN ws plans  kernel\n";
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%s, cuDNN %zu\n%s", prop.name, conv12_cudnn_version(), head);
    bool with_resnet = false;
    for (int i = 1; i < argc; i++) {
        with_resnet |= strcmp(argv[i], "resnet") == 0;
    }
    const layer *const list = with_resnet ? resnet : layers;
    const size_t n = with_resnet ? sizeof resnet / sizeof *resnet : sizeof layers / sizeof *layers;
    for (const precision &p : precisions) {
        for (size_t i = 0; i < n && asked(argc, argv, p.name, true); i++) {
            if (asked(argc, argv, list[i].name, false)) {
                measure(list[i], p, (int)i);
            }
        }
    }
    printf("\n%s%s", head, table.c_str());
    for (int i = 0; i < 4; i++) {
        for (int group = 0; group < 2 && counted[i][0]; group++) {
            if (counted[i][group]) {
                printf("%s, %s: geometric mean of %d ratios %.3f\n", precisions[i].name,
                       group ? "C >= 64" : "all", counted[i][group],
                       exp(log_ratio[i][group] / counted[i][group]));
            }
        }
    }
    return 0;
}
