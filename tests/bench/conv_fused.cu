/* What fused forward convolutions save on an H100 or H200, against two launches and against the
 * convolution alone: first layers that normalize u8 as they load it, and convolutions that store
 * the largest of 2 x 2 outputs alone, where the kernel can:
 *
 *     conv_fused [f16|bf16|tf32] [LAYER ...]
 */
#include "kernels/cuda/conv_way.h"
#include "kernels/cuda/norm.h"
#include "tests/bench/timing.cuh"
#include <string.h>
#include <unistd.h>

namespace {

/* The papers' layers, VGG's second, the first of a U-Net's second level; square images and filters.
 */
struct layer {
    const char *name;
    int c, h, k, kernel, stride, pad, n;
};
const layer layers[] = {{"conv1", 3, 227, 96, 11, 4, 0, 128}, {"conv2", 3, 231, 96, 11, 4, 0, 128},
                        {"conv3", 3, 227, 64, 7, 2, 0, 128},  {"conv4", 64, 224, 64, 7, 2, 0, 128},
                        {"conv7", 3, 224, 64, 3, 1, 0, 128},  {"conv8", 64, 112, 128, 3, 1, 0, 128},
                        {"vgg2", 64, 224, 64, 3, 1, 1, 32},   {"unet", 64, 56, 64, 3, 1, 1, 128}};

dr_conv shape_of(const layer &l) {
    dr_conv c = {l.n,      l.h,      l.h, l.c, l.k,   l.kernel, l.kernel, 0,     0,
                 l.stride, l.stride, 1,   1,   l.pad, l.pad,    l.pad,    l.pad, 1};
    c.ho = c.wo = (l.h + 2 * l.pad - l.kernel) / l.stride + 1;
    return c;
}

/* What a fused kernel saves: against the two launches, and against the convolution alone. */
template <typename B, typename A, typename F>
void take_turns(const layer &l, const precision &p, const char *kernel, B both, A alone, F fused) {
    both(), fused(); /* loads the kernels */
    MUST(cudaDeviceSynchronize());
    const cudaGraphExec_t graph[] = {capture(both), capture(alone), capture(fused)};
    std::vector<float> ms[3];
    for (int i = 0; i <= ROUNDS; i++) {
        for (int k = 0; k < 3; k++) {
            usleep(30000);
            const float one = replay(graph[k]);
            if (i > 0) {
                ms[k].push_back(one);
            }
        }
    }
    printf("%-14s %-5s %8.4f %8.4f %8.4f %6.2f  %s\n", l.name, p.name, median(ms[0]), median(ms[1]),
           median(ms[2]), median(ms[0]) / median(ms[2]), kernel);
    for (cudaGraphExec_t g : graph) {
        MUST(cudaGraphExecDestroy(g));
    }
}

/* u8, normalized by a launch or as it is loaded; or all outputs and a launch of max_pool, or the
 * largest of 2 x 2 alone. */
void measure_fused(const layer &l, const precision &p) {
    const dr_conv c = shape_of(l);
    const int64_t es = dr_type_bytes(p.t), nx = c.n * c.h * c.w * c.c;
    const int64_t nw = c.k * c.kh * c.kw * c.c, ny = c.n * c.ho * c.wo * c.k;
    const dr_conv_card card = {cuda.arch, cuda.sms, dr_cuda_conv_hopper_runs(), p.tf32};
    dr_conv_way bytes, pool;
    const bool reads = dr_cuda_conv_u8_way(&c, p.t, 1, &card, &bytes);
    if (!reads && !dr_cuda_conv_pool_way(&c, p.t, 1, &card, &pool)) {
        return;
    }
    void *x, *w, *y, *other; /* other: u8, or what is left of y */
    MUST(cudaMalloc(&x, nx * es));
    MUST(cudaMalloc(&w, nw * es));
    MUST(cudaMalloc(&y, ny * es));
    MUST(cudaMalloc(&other, std::max(nx, ny)));
    fill(x, p.t, nx, 100, 1.0f, 0.0f);
    fill(other, DR_TYPE_F32, nx / 4, 300, 1.0f, 0.0f);
    fill(w, p.t, nw, 200, 1.0f / sqrtf((float)(c.kh * c.kw * c.c)), 0.0f);
    MUST(cudaDeviceSynchronize());
    dr_epilogue e = {};
    e.act = 1;
    cuda.tf32 = p.tf32;
    dr_cuda_affine a = {};
    a.n = c.c;
    for (int i = 0; i < c.c && reads; i++) {
        a.mul[i] = 1.0f / 63.75f, a.add[i] = -2.0f;
    }
    const dr_pool two = {c.n, c.ho, c.wo, c.k, c.ho / 2, c.wo / 2, 2, 2, 2, 2, 0, 0, 0, 0};
    const auto conv = [&] {
        const int way = reads ? bytes.way : pool.way;
        must((cudaError_t)dr_cuda_conv_fprop(&c, p.t, way, x, w, &e, y, NULL, &cuda), "conv");
    };
    const auto before = [&] {
        must((cudaError_t)dr_cuda_normalize(p.t, true, other, p.t, x, nx / c.c, c.c, &a,
                                            cuda.stream),
             "normalize");
    };
    const auto after = [&] {
        must((cudaError_t)dr_cuda_max_pool_fprop(p.t, &two, y, other, cuda.stream), "max_pool");
    };
    if (reads) {
        take_turns(
            l, p, bytes.name, [&] { before(), conv(); }, conv,
            [&] {
                must((cudaError_t)dr_cuda_conv_u8(&c, p.t, other, &a, w, &e, y, &cuda), bytes.name);
            });
    } else {
        take_turns(
            l, p, pool.name, [&] { conv(), after(); }, conv,
            [&] {
                must((cudaError_t)dr_cuda_conv_pool(&c, p.t, pool.way, x, w, &e, other, &cuda),
                     pool.name);
            });
    }
    for (void *q : {x, w, y, other}) {
        MUST(cudaFree(q));
    }
}

/* Whether it is among the words, or none of its kind is. */
bool asked(int argc, char **argv, const char *name, bool precision_name) {
    bool any = false;
    for (int i = 1; i < argc; i++) {
        bool is_precision = false;
        for (const precision &p : precisions) {
            is_precision |= strcmp(argv[i], p.name) == 0;
        }
        if (is_precision == precision_name) {
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
    char card[64];
    open_card(card, sizeof card);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%s\nlayer          type   two ms  conv ms fused ms  ratio  kernel\n", card);
    for (const precision &p : precisions) {
        for (const layer &l : layers) {
            if (asked(argc, argv, p.name, true) && asked(argc, argv, l.name, false)) {
                measure_fused(l, p);
            }
        }
    }
    return 0;
}
