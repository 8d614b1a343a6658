/* Forward convolution against cuDNN, NHWC, random data:
 *
 *     conv12 [f16|bf16|tf32|f32] [resnet] [one] [other] [im2col] [ways] [LAYER ...]
 *
 * on the im2win papers' twelve layers, batch 128; with `resnet`, on all layers of ResNet-50 at
 * batch 32, with `one` at batch 1; with `other`, on depthwise, grouped and dilated ones. cuDNN is
 * the best of every engine configuration that its heuristics give (both modes and the fallback
 * list), whatever workspace it wants. `im2col` adds a third: windows written to memory as a matrix,
 * which cuBLASLt multiplies, by the best algorithm that it names. `ways` times dagrun alone, in
 * every way that it has for a layer (conv_way.h; the model's choice comes first).
 *
 * Each result is first compared with the definition in double (outputs poisoned before). Then
 * graphs of 20 launches are timed in turns, with pauses of 30 ms, for the card's clock falls under
 * load and whoever ran second would lose; the median of 7 counts. The floor is what the card's
 * measured rates allow: 4.27 TB/s, 748 (fp16, bf16), 406 (tf32), 51 TFLOP/s (fp32). A short table
 * comes last. */
#include "kernels/cuda/conv.h"
#include "kernels/cuda/conv_way.h"
#include "tests/bench/conv12_cudnn.h"
#include "tests/bench/conv12_im2col.h"
#include "tests/bench/timing.cuh"
#include <algorithm>
#include <string.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

struct layer {
    const char *name;
    int c, h, k, kernel, stride, pad, n;
    int groups = 1, dilation = 1;
};
const layer papers[] = {
    {"conv1", 3, 227, 96, 11, 4, 0, 128},   {"conv2", 3, 231, 96, 11, 4, 0, 128},
    {"conv3", 3, 227, 64, 7, 2, 0, 128},    {"conv4", 64, 224, 64, 7, 2, 0, 128},
    {"conv5", 96, 24, 256, 5, 1, 0, 128},   {"conv6", 256, 12, 512, 3, 1, 0, 128},
    {"conv7", 3, 224, 64, 3, 1, 0, 128},    {"conv8", 64, 112, 128, 3, 1, 0, 128},
    {"conv9", 64, 56, 64, 3, 1, 0, 128},    {"conv10", 128, 28, 128, 3, 1, 0, 128},
    {"conv11", 256, 14, 256, 3, 1, 0, 128}, {"conv12", 512, 7, 512, 3, 1, 0, 128}};
/* Each shape once, strides in the 3x3 filters. */
const layer resnet[] = {{"7x7/2", 3, 224, 64, 7, 2, 3, 32},
                        {"1x1 64-64", 64, 56, 64, 1, 1, 0, 32},
                        {"3x3 64", 64, 56, 64, 3, 1, 1, 32},
                        {"1x1 64-256", 64, 56, 256, 1, 1, 0, 32},
                        {"1x1 256-64", 256, 56, 64, 1, 1, 0, 32},
                        {"1x1 256-128", 256, 56, 128, 1, 1, 0, 32},
                        {"3x3/2 128", 128, 56, 128, 3, 2, 1, 32},
                        {"1x1 128-512", 128, 28, 512, 1, 1, 0, 32},
                        {"1x1/2 256-512", 256, 56, 512, 1, 2, 0, 32},
                        {"1x1 512-128", 512, 28, 128, 1, 1, 0, 32},
                        {"3x3 128", 128, 28, 128, 3, 1, 1, 32},
                        {"1x1 512-256", 512, 28, 256, 1, 1, 0, 32},
                        {"3x3/2 256", 256, 28, 256, 3, 2, 1, 32},
                        {"1x1 256-1024", 256, 14, 1024, 1, 1, 0, 32},
                        {"1x1/2 512-1024", 512, 28, 1024, 1, 2, 0, 32},
                        {"1x1 1024-256", 1024, 14, 256, 1, 1, 0, 32},
                        {"3x3 256", 256, 14, 256, 3, 1, 1, 32},
                        {"1x1 1024-512", 1024, 14, 512, 1, 1, 0, 32},
                        {"3x3/2 512", 512, 14, 512, 3, 2, 1, 32},
                        {"1x1 512-2048", 512, 7, 2048, 1, 1, 0, 32},
                        {"1x1/2 1024-2048", 1024, 14, 2048, 1, 2, 0, 32},
                        {"1x1 2048-512", 2048, 7, 512, 1, 1, 0, 32},
                        {"3x3 512", 512, 7, 512, 3, 1, 1, 32}};
const layer others[] = {{"depthwise 3x3", 128, 56, 128, 3, 1, 1, 128, 128},
                        {"depthwise 5x5", 128, 56, 128, 5, 1, 2, 128, 128},
                        {"3x3 32 groups", 128, 56, 128, 3, 1, 1, 128, 32},
                        {"3x3 4 groups", 128, 56, 128, 3, 1, 1, 128, 4},
                        {"3x3 dilation 2", 128, 28, 128, 3, 1, 2, 128, 1, 2}};

bool with_im2col, with_ways;
std::string table;

/* Of the ratios to cuDNN and im2col: all, and those of 64 channels and more. */
struct mean {
    double logs[2];
    int n[2];
    void count(double ratio, int channels) {
        for (int i = 0; i < (channels >= 64 ? 2 : 1); i++) {
            logs[i] += log(ratio);
            n[i]++;
        }
    }
    void tell(const char *precision, const char *peer) const {
        for (int i = 0; i < 2 && n[i]; i++) {
            printf("%s, %s, %s: geometric mean of %d ratios %.3f\n", precision, peer,
                   i ? "C >= 64" : "all", n[i], exp(logs[i] / n[i]));
        }
    }
} means[4][2];

/* A layer in a precision: the data, and who takes part. */
struct contest {
    const layer &l;
    const precision &p;
    dr_conv c;
    int64_t es, nx, nw, ny; /* bytes of an element; elements */
    void *x, *w, *y;
    bool ok; /* all results were right */
};

contest begin(const layer &l, const precision &p, int index) {
    contest q = {l, p, {}, dr_type_bytes(p.t), 0, 0, 0, NULL, NULL, NULL, true};
    const int reach = l.dilation * (l.kernel - 1) + 1;
    q.c = {l.n,      l.h,      l.h,        l.c,        l.k,   l.kernel, l.kernel, 0,     0,
           l.stride, l.stride, l.dilation, l.dilation, l.pad, l.pad,    l.pad,    l.pad, l.groups};
    q.c.ho = q.c.wo = (l.h + 2 * l.pad - reach) / l.stride + 1;
    q.nx = q.c.n * q.c.h * q.c.w * q.c.c, q.ny = q.c.n * q.c.ho * q.c.wo * q.c.k;
    const int64_t depth = q.c.kh * q.c.kw * (q.c.c / q.c.groups);
    q.nw = q.c.k * depth;
    MUST(cudaMalloc(&q.x, q.nx * q.es));
    MUST(cudaMalloc(&q.w, q.nw * q.es));
    MUST(cudaMalloc(&q.y, q.ny * q.es));
    fill(q.x, p.t, q.nx, 100 + index, 1.0f, 0.0f);
    fill(q.w, p.t, q.nw, 200 + index, 1.0f / sqrtf((float)depth), 0.0f);
    MUST(cudaDeviceSynchronize());
    return q;
}

double floor_of(const contest &q) {
    return std::max((double)(q.nx + q.nw + q.ny) * q.es / 4.27e9,
                    2.0 * q.ny * (q.nw / q.c.k) / q.p.tflops / 1e9);
}

/* A graph of launches, after one whose outputs are right, every one of them written. */
template <typename F> cudaGraphExec_t enter(contest &q, const char *who, F launch) {
    MUST(cudaMemset(q.y, 0xff, q.ny * q.es));
    MUST(cudaDeviceSynchronize());
    launch();
    MUST(cudaDeviceSynchronize());
    const int64_t step = std::max<int64_t>(1, q.ny * (q.nw / q.c.k) / 4000000000) | 1;
    const check_result r = check({q.c, q.p.t, q.p.tf32, {}, q.x, q.w, q.y, step});
    const double norm = sqrt(r.error2 / r.ref2), most = q.p.t == DR_TYPE_BF16 ? 4e-3 : 1e-3;
    if (!(norm < most)) {
        printf("%s is wrong: norm of the error %.2g\n", who, norm);
        q.ok = false;
    }
    return capture(launch);
}

/* Median times; NULL takes no part. */
void in_turns(const cudaGraphExec_t *graph, double *ms, int n) {
    std::vector<std::vector<float>> times(n);
    for (int i = 0; i <= ROUNDS; i++) {
        for (int j = 0; j < n; j++) {
            if (graph[j]) {
                usleep(30000);
                const float one = replay(graph[j]);
                if (i > 0) { /* the first is to warm up */
                    times[j].push_back(one);
                }
            }
        }
    }
    for (int j = 0; j < n; j++) {
        ms[j] = graph[j] ? median(times[j]) : 0;
    }
}

/* A time, or `-`. */
std::string number(const char *format, double v) {
    char text[40];
    snprintf(text, sizeof text, format, v);
    return v > 0 ? text : "-";
}

void tell(const contest &q, const double *ms, const dr_conv_way &way, const double *peer_mib,
          int plans) {
    char line[300];
    const auto ratio = [&](int i) { return number("%.2f", ms[i] / ms[0]); };
    snprintf(line, sizeof line, "%-15s %-5s %8.4f %8s %6s %8s %6s %8.4f %8.1f %8s %8s %5d  %s%s\n",
             q.l.name, q.p.name, ms[0], number("%.4f", ms[1]).c_str(), ratio(1).c_str(),
             number("%.4f", ms[2]).c_str(), ratio(2).c_str(), floor_of(q),
             (double)way.workspace_bytes / 1048576, number("%.1f", peer_mib[0]).c_str(),
             number("%.1f", peer_mib[1]).c_str(), plans, way.name, q.ok ? "" : "  WRONG");
    table += line;
    fputs(line, stdout);
    for (int i = 1; i < 3; i++) {
        if (ms[i] > 0) {
            means[&q.p - precisions][i - 1].count(ms[i] / ms[0], q.l.c);
        }
    }
}

/* Every way, as expected and as measured. */
void measure_ways(contest &q, const dr_conv_way *way, int n) {
    const dr_epilogue e = {};
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        most = std::max(most, way[i].workspace_bytes);
    }
    void *workspace;
    MUST(cudaMalloc(&workspace, (size_t)most + 1));
    std::vector<cudaGraphExec_t> graph(n);
    std::vector<double> ms(n);
    for (int i = 0; i < n; i++) {
        graph[i] = enter(q, way[i].name, [&] {
            must((cudaError_t)dr_cuda_conv_fprop(&q.c, q.p.t, way[i].way, q.x, q.w, &e, q.y,
                                                 workspace, &cuda),
                 way[i].name);
        });
    }
    in_turns(graph.data(), ms.data(), n);
    for (int i = 0; i < n; i++) {
        printf("%-15s %-5s %8.4f ms, expected %8.4f, floor %8.4f  %s\n", q.l.name, q.p.name, ms[i],
               way[i].us / 1000, floor_of(q), way[i].name);
        MUST(cudaGraphExecDestroy(graph[i]));
    }
    MUST(cudaFree(workspace));
}

void end(contest &q) {
    MUST(cudaFree(q.x));
    MUST(cudaFree(q.w));
    MUST(cudaFree(q.y));
}

void measure(const layer &l, const precision &p, int index) {
    contest q = begin(l, p, index);
    const dr_epilogue e = {};
    cuda.tf32 = p.tf32;
    const dr_conv_card card = {cuda.arch, cuda.sms, dr_cuda_conv_hopper_runs(), p.tf32};
    dr_conv_way way[DR_CONV_WAYS];
    const int ways = dr_cuda_conv_ways(&q.c, p.t, e.act, &card, way);
    if (with_ways) {
        measure_ways(q, way, ways);
        end(q);
        return;
    }
    void *workspace;
    MUST(cudaMalloc(&workspace, (size_t)way->workspace_bytes + 1));
    cudaGraphExec_t graph[3] = {};
    graph[0] = enter(q, "ours", [&] {
        must((cudaError_t)dr_cuda_conv_fprop(&q.c, p.t, way->way, q.x, q.w, &e, q.y, workspace,
                                             &cuda),
             way->name);
    });
    struct conv12_cudnn *const cudnn = conv12_cudnn_open(&q.c, p.t, p.tf32, cuda.stream);
    const int plans = conv12_cudnn_best(cudnn, q.x, q.w, q.y);
    if (plans) {
        graph[1] = enter(q, "cuDNN", [&] { conv12_cudnn_run(cudnn, q.x, q.w, q.y); });
    }
    struct conv12_im2col *const im2col =
        with_im2col ? conv12_im2col_open(&q.c, p.t, p.tf32, cuda.stream) : NULL;
    if (im2col) {
        conv12_im2col_best(im2col, q.x, q.w, q.y);
        graph[2] = enter(q, "im2col", [&] { conv12_im2col_run(im2col, q.x, q.w, q.y); });
    }
    double ms[3];
    in_turns(graph, ms, 3);
    const double mib[] = {(double)conv12_cudnn_workspace(cudnn) / 1048576,
                          im2col ? (double)conv12_im2col_bytes(im2col) / 1048576 : 0};
    tell(q, ms, *way, mib, plans);
    conv12_cudnn_close(cudnn);
    if (im2col) {
        conv12_im2col_close(im2col);
    }
    for (int i = 0; i < 3; i++) {
        if (graph[i]) {
            MUST(cudaGraphExecDestroy(graph[i]));
        }
    }
    end(q);
    MUST(cudaFree(workspace));
}

/* ---- the command line ---- */
enum kind { PRECISION, LIST, PEER, FORM, LAYER };
kind kind_of(const char *word) {
    for (const precision &p : precisions) {
        if (strcmp(word, p.name) == 0) {
            return PRECISION;
        }
    }
    for (const char *list : {"resnet", "one", "other"}) {
        if (strcmp(word, list) == 0) {
            return LIST;
        }
    }
    return strcmp(word, "im2col") == 0 ? PEER : strcmp(word, "ways") == 0 ? FORM : LAYER;
}
/* Whether the word is there, or (any) no word of its kind is. */
bool asked(int argc, char **argv, const char *name, kind k, bool any) {
    for (int i = 1; i < argc; i++) {
        if (kind_of(argv[i]) == k) {
            any = false;
            if (strcmp(argv[i], name) == 0) {
                return true;
            }
        }
    }
    return any;
}

std::vector<layer> layers_of(int argc, char **argv) {
    std::vector<layer> all;
    if (asked(argc, argv, "", LIST, true)) {
        all.assign(std::begin(papers), std::end(papers));
    }
    if (asked(argc, argv, "resnet", LIST, false)) {
        all.insert(all.end(), std::begin(resnet), std::end(resnet));
    }
    if (asked(argc, argv, "one", LIST, false)) {
        for (layer l : resnet) {
            l.n = 1;
            all.push_back(l);
        }
    }
    if (asked(argc, argv, "other", LIST, false)) {
        all.insert(all.end(), std::begin(others), std::end(others));
    }
    return all;
}

} // namespace

int main(int argc, char **argv) {
    char card[64];
    open_card(card, sizeof card);
    const char *const head =
        "layer           type   ours ms cuDNN ms  ratio   im2col  ratio floor ms   MiB ws"
        " cuDNN ws   matrix plans  kernel\n";
    setvbuf(stdout, NULL, _IOLBF, 0);
    with_im2col = asked(argc, argv, "im2col", PEER, false);
    with_ways = asked(argc, argv, "ways", FORM, false);
    printf("%s, cuDNN %zu\n%s", card, conv12_cudnn_version(), with_ways ? "" : head);
    const std::vector<layer> layers = layers_of(argc, argv);
    for (const precision &p : precisions) {
        for (size_t i = 0; i < layers.size() && asked(argc, argv, p.name, PRECISION, true); i++) {
            if (asked(argc, argv, layers[i].name, LAYER, true)) {
                measure(layers[i], p, (int)i);
            }
        }
    }
    if (with_ways) {
        return 0;
    }
    printf("\n%s%s", head, table.c_str());
    for (int i = 0; i < 4; i++) {
        means[i][0].tell(precisions[i].name, "cuDNN");
        means[i][1].tell(precisions[i].name, "im2col");
    }
    return 0;
}
