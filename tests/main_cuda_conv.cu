/* Forward convolutions on a Hopper GPU: random shapes, every row of the tile table that fits each,
 * against the definition in double: main_cuda_conv [SHAPES [SEED [WORK]]] (2000, 1, 400000000
 * multiply-adds at most a shape, fewer under a sanitizer). Each result must be right within
 * roundings, NaN and infinity included, have every output written and nothing beside them, and have
 * the same bits on another number of multiprocessors. Where u8 can be normalized on the way, or 2 x
 * 2 outputs pooled, the bits are those of two launches. `main_cuda_conv first ...`: shapes of 1 to
 * 8 channels alone. `main_cuda_conv noise [RUNS [SEED]]` (1000, 1) repeats each row in each type,
 * on the whole card and on half of it, beside a stream of other kernels that come and go: one hash.
 * Without such a device it says so and exits 77 (skipped). */
#include "kernels/cuda/conv.h"
#include "kernels/cuda/conv_hopper.h"
#include "kernels/cuda/conv_small.h"
#include "kernels/cuda/conv_way.h"
#include "kernels/cuda/norm.h"
#include "tests/conv_check.cuh"
#include <string.h>

namespace {

constexpr int64_t BUFFER = 48 << 20, GUARD = 4096, WORKSPACE = 64 << 20;

int64_t most_work = 400000000;
bool first_layers; /* shapes of few channels alone */

dr_conv random_shape(int t) {
    for (;;) {
        dr_conv c = {};
        const int form = below(6);
        c.groups = 1;
        c.c = one_of({16, 24, 32, 40, 64, 64, 64, 72, 96, 128, 136, 192, 256});
        const bool few = below(4) == 0 || first_layers;
        c.k = 8 * (1 + below(below(3) ? 20 : 48));
        if (t == DR_TYPE_F32) { /* which copies move in fours */
            c.c += below(4) ? 0 : 4;
            c.k -= below(4) ? 0 : 4;
        }
        c.kh = form < 3 ? 3 : form == 3 ? 1 : 1 + below(7);
        c.kw = form < 3 ? 3 : form == 3 ? 1 : 1 + below(7);
        c.sh = form < 2 ? 1 : 1 + below(2);
        c.sw = form < 2 ? 1 : 1 + below(2);
        c.dh = below(4) ? 1 : 1 + below(3);
        c.dw = below(4) ? 1 : 1 + below(3);
        if (few) {
            c.c = 1 + below(8);
            c.kh = 1 + below(12), c.kw = 1 + below(12);
            c.sh = 1 + below(4), c.sw = 1 + below(4);
            c.dh = c.dw = 1;
        }
        c.n = 1 + below(below(2) ? 4 : 40);
        c.h = 1 + below(below(2) ? 16 : 48);
        c.w = 1 + below(below(2) ? 16 : 48);
        const bool padded = below(2);
        c.pt = padded ? below((int)(c.kh * c.dh)) : 0;
        c.pb = padded ? below((int)(c.kh * c.dh)) : 0;
        c.pl = padded ? below((int)(c.kw * c.dw)) : 0;
        c.pr = padded ? below((int)(c.kw * c.dw)) : 0;
        const int64_t y = c.h + c.pt + c.pb - (c.kh - 1) * c.dh - 1;
        const int64_t x = c.w + c.pl + c.pr - (c.kw - 1) * c.dw - 1;
        c.ho = y / c.sh + 1, c.wo = x / c.sw + 1;
        const int64_t work = c.n * c.ho * c.wo * c.k * c.kh * c.kw * c.c;
        const int64_t most = (BUFFER - GUARD) / dr_type_bytes((dr_type)t);
        if (y >= 0 && x >= 0 && work < most_work && c.n * c.h * c.w * c.c < most &&
            c.n * c.ho * c.wo * c.k < most && c.k * c.kh * c.kw * c.c < most) {
            return c;
        }
    }
}

struct bench {
    void *x, *w, *y, *add, *turned;
    float *vector; /* bias and the four of a norm, 2048 each */
    void *workspace;
    dr_cuda cuda;
};

void tell(const dr_conv &c, int t, const dr_conv_plan &p, const dr_epilogue &e, int sms) {
    static const char *const type[] = {"tf32", "f16", "bf16"};
    printf(
        "[%d,%d,%d,%d] %dx%d k%d s%d,%d d%d,%d p%d,%d,%d,%d %s; %s%s; bias %d norm %d add %d act "
        "%d; %d sms: ",
        (int)c.n, (int)c.h, (int)c.w, (int)c.c, (int)c.kh, (int)c.kw, (int)c.k, (int)c.sh,
        (int)c.sw, (int)c.dh, (int)c.dw, (int)c.pt, (int)c.pl, (int)c.pb, (int)c.pr, type[t],
        p.tile->name, p.linear ? ", linear" : "", e.bias != NULL, e.norm_var != NULL, e.add != NULL,
        e.act, sms);
}

/* One plan; false: wrong. */
bool try_plan(bench &b, const dr_conv &c, int t, const dr_epilogue &e, const dr_conv_plan &p,
              int sms, unsigned *worst) {
    const int64_t bytes = c.n * c.ho * c.wo * c.k * dr_type_bytes((dr_type)t);
    unsigned long long bits[2];
    for (int pass = 0; pass < 2; pass++) {
        bool done;
        b.cuda.sms = pass ? 132 : sms;
        MUST(cudaMemset(b.y, 0xff, (size_t)(bytes + GUARD)));
        int err =
            dr_cuda_conv_run(&c, (dr_type)t, &p, b.x, b.w, &e, b.y, b.workspace, &b.cuda, &done);
        err = err ? err : (int)cudaDeviceSynchronize();
        if (err || !done) {
            tell(c, t, p, e, sms);
            printf("%s\n", err ? cudaGetErrorString((cudaError_t)err) : "declined");
            if (err) {
                exit(1);
            }
            return false;
        }
        bits[pass] = hash(b.y, bytes + GUARD, b.cuda.stream);
    }
    unsigned char guard[GUARD];
    MUST(cudaMemcpy(guard, (char *)b.y + bytes, GUARD, cudaMemcpyDeviceToHost));
    bool outside = false;
    for (int64_t i = 0; i < GUARD; i++) {
        outside |= guard[i] != 0xff;
    }
    const check_result r = check({c, t, t == DR_TYPE_F32, e, b.x, b.w, b.y, 1});
    *worst = r.worst > *worst ? r.worst : *worst;
    if (r.wrong || outside || bits[0] != bits[1]) {
        float ratio;
        memcpy(&ratio, &r.worst, 4);
        tell(c, t, p, e, sms);
        printf("%llu wrong, worst %g of allowed, norm %.2g%s%s\n", r.wrong, ratio,
               sqrt(r.error2 / r.ref2), outside ? ", writes outside" : "",
               bits[0] != bits[1] ? ", bits differ" : "");
        return false;
    }
    return true;
}

/* w[k, taps, c] as the data gradient reads it, [c, taps from the last, k]. */
__global__ void turn_kernel(const void *w, void *to, int t, int64_t k, int64_t taps, int64_t c) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < k * taps * c;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t from = i % k, tap = i / k % taps, ch = i / k / taps;
        put(to, t, i, (float)get(w, t, (from * taps + taps - 1 - tap) * c + ch));
    }
}

/* dx of dy = b.x by one way, against f with the weights b.turned; false: wrong. */
bool try_back(bench &b, const dr_conv &c, const dr_conv &f, int t, const dr_epilogue &e,
              const dr_conv_way &way, unsigned *worst) {
    const int64_t bytes = f.n * f.ho * f.wo * f.k * dr_type_bytes((dr_type)t);
    if (way.workspace_bytes > WORKSPACE) {
        printf("%s: a workspace of %lld bytes\n", way.name, (long long)way.workspace_bytes);
        return false;
    }
    MUST(cudaMemset(b.y, 0xff, (size_t)(bytes + GUARD)));
    must((cudaError_t)dr_cuda_conv_back(&c, (dr_type)t, way.way, b.x, b.w, &e, b.y, b.workspace,
                                        &b.cuda),
         way.name);
    MUST(cudaDeviceSynchronize());
    const check_result r = check({f, t, t == DR_TYPE_F32, e, b.x, b.turned, b.y, 1});
    *worst = r.worst > *worst ? r.worst : *worst;
    if (r.wrong) {
        printf("data gradient, %s, [%d,%d,%d,%d] -> %d, %dx%d: %llu wrong\n", way.name, (int)f.n,
               (int)f.h, (int)f.w, (int)f.c, (int)f.k, (int)f.kh, (int)f.kw, r.wrong);
    }
    return r.wrong == 0;
}

/* The data gradient whose forward convolution is f: by the first row of the list, and by the first
 * whose partial sums lie behind the turned weights; try_plan has every row. How many are wrong. */
int try_turned(bench &b, const dr_conv &f, int t, const dr_epilogue &e, unsigned *worst) {
    dr_conv c = f;
    c.h = f.ho, c.w = f.wo, c.c = f.k, c.k = f.c, c.ho = f.h, c.wo = f.w;
    c.pt = (f.kh - 1) * f.dh - f.pt, c.pl = (f.kw - 1) * f.dw - f.pl;
    c.pb = (f.kh - 1) * f.dh - f.pb, c.pr = (f.kw - 1) * f.dw - f.pr;
    if (f.sh != 1 || f.sw != 1 || c.pt < 0 || c.pl < 0 || c.pb < 0 || c.pr < 0) {
        return 0;
    }
    turn_kernel<<<512, 256>>>(b.w, b.turned, t, c.k, c.kh * c.kw, c.c);
    const dr_conv_card card = {90, 132, true, true};
    const int64_t weights = dr_cuda_conv_turned_bytes(&c, (dr_type)t);
    dr_conv_way way[DR_CONV_WAYS];
    const int n = dr_cuda_conv_back_ways(&c, (dr_type)t, e.act, &card, way);
    bool first = true, cut = false;
    int wrong = 0;
    for (int i = 0; i < n; i++) {
        const bool sums = way[i].workspace_bytes > weights;
        if (way[i].way != DR_CONV_GENERIC && (first || (sums && !cut))) {
            wrong += !try_back(b, c, f, t, e, way[i], worst);
            first = false, cut = cut || sums;
        }
    }
    return wrong;
}

__global__ void bytes_kernel(uint8_t *x, int64_t n, uint64_t seed) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        x[i] = (uint8_t)mix(seed * 0x9e3779b97f4a7c15ull + (uint64_t)i);
    }
}

/* Bytes, normalized as the kernel loads them and by a launch of their own; false: other bits. */
bool try_bytes(bench &b, const dr_conv &c, int t, const dr_epilogue &e, int sms) {
    dr_small fits;
    if (!dr_cuda_conv_small_plan(&c, (dr_type)t, 132, &fits) ||
        !dr_cuda_conv_small_u8(&c, (dr_type)t)) {
        return true;
    }
    const int64_t pixels = c.n * c.h * c.w,
                  bytes = c.n * c.ho * c.wo * c.k * dr_type_bytes(dr_type(t));
    dr_cuda_affine a = {};
    a.n = c.c;
    for (int i = 0; i < c.c; i++) {
        a.mul[i] = 0.003f * (float)(1 + below(5)), a.add[i] = -0.25f * (float)below(9);
    }
    bytes_kernel<<<512, 256>>>((uint8_t *)b.turned, pixels * c.c, draws);
    MUST((cudaError_t)dr_cuda_normalize((dr_type)t, true, b.turned, (dr_type)t, b.x, pixels, c.c,
                                        &a, b.cuda.stream));
    unsigned long long bits[3];
    for (int pass = 0; pass < 3; pass++) {
        b.cuda.sms = pass == 1 ? sms : 132;
        MUST(cudaMemset(b.y, 0xff, (size_t)(bytes + GUARD)));
        must((cudaError_t)(pass ? dr_cuda_conv_u8(&c, (dr_type)t, b.turned, &a, b.w, &e, b.y,
                                                  &b.cuda)
                                : dr_cuda_conv_small(&c, (dr_type)t, b.x, NULL, b.w, &e, b.y,
                                                     &b.cuda)),
             "conv_small");
        MUST(cudaDeviceSynchronize());
        bits[pass] = hash(b.y, bytes + GUARD, b.cuda.stream);
    }
    if (bits[0] != bits[1] || bits[0] != bits[2]) {
        printf("u8, type %d, [%d,%d,%d,%d] %dx%d k%d s%d,%d p%d,%d, %d sms: other bits\n", t,
               (int)c.n, (int)c.h, (int)c.w, (int)c.c, (int)c.kh, (int)c.kw, (int)c.k, (int)c.sh,
               (int)c.sw, (int)c.pt, (int)c.pl, sms);
    }
    return bits[0] == bits[1] && bits[0] == bits[2];
}

/* The largest of 2 x 2 outputs, by the kernel as it stores and by a launch of max_pool; false:
 * other bits. */
bool try_pool(bench &b, const dr_conv &c, int t, const dr_epilogue &given, dr_conv_plan p,
              int sms) {
    dr_epilogue e = given;
    e.add = NULL, e.act = 1;
    if (!dr_cuda_conv_pools(&c, (dr_type)t, &p, e.act)) {
        return true;
    }
    const dr_pool two = {c.n, c.ho, c.wo, c.k, c.ho / 2, c.wo / 2, 2, 2, 2, 2, 0, 0, 0, 0};
    const int64_t bytes = c.n * two.ho * two.wo * c.k * dr_type_bytes((dr_type)t);
    unsigned long long bits[3];
    for (int pass = 0; pass < 3; pass++) {
        bool done;
        b.cuda.sms = pass == 1 ? sms : 132;
        p.pool = pass > 0;
        MUST(cudaMemset(b.turned, 0xff, (size_t)(bytes + GUARD)));
        must((cudaError_t)dr_cuda_conv_run(&c, (dr_type)t, &p, b.x, b.w, &e, pass ? b.turned : b.y,
                                           b.workspace, &b.cuda, &done),
             "pooled");
        if (pass == 0) {
            MUST((cudaError_t)dr_cuda_max_pool_fprop((dr_type)t, &two, b.y, b.turned,
                                                     b.cuda.stream));
        }
        MUST(cudaDeviceSynchronize());
        bits[pass] = done ? hash(b.turned, bytes + GUARD, b.cuda.stream) : (unsigned long long)pass;
    }
    const bool same = bits[0] == bits[1] && bits[0] == bits[2];
    if (!same) {
        tell(c, t, p, e, sms);
        puts("pooled: other bits");
    }
    return same;
}

int shape(bench &b, int index, int *plans, unsigned *worst) {
    const int t = index % 3;
    const dr_conv c = random_shape(t);
    const int64_t nx = c.n * c.h * c.w * c.c, nw = c.k * c.kh * c.kw * c.c;
    const int64_t ny = c.n * c.ho * c.wo * c.k;
    fill(b.x, t, nx, index * 8 + 1, 1.0f, 0.0f);
    fill(b.w, t, nw, index * 8 + 2, 1.0f / sqrtf((float)(c.kh * c.kw * c.c)), 0.0f);
    fill(b.add, t, ny, index * 8 + 3, 1.0f, 0.0f);
    fill(b.vector, DR_TYPE_F32, 2048 * 4, index * 8 + 4, 1.0f, 0.0f);
    fill(b.vector + 2048 * 4, DR_TYPE_F32, 2048, index * 8 + 5, 0.2f, 2.0f);
    if (below(6) == 0) { /* they must come out where the definition has them, and nowhere else */
        const float odd[] = {INFINITY, -INFINITY, NAN};
        const bool in_w = below(2);
        plant_kernel<<<1, 1>>>(in_w ? b.w : b.x, t, (mix(draws) * 2654435761u) % (in_w ? nw : nx),
                               odd[below(3)]);
    }
    dr_epilogue e = {};
    const int act[] = {0, 1, 4};
    e.act = act[below(3)];
    e.bias = below(2) ? b.vector : NULL;
    e.add = below(2) ? b.add : NULL;
    if (below(2)) {
        e.norm_weight = b.vector + 2048, e.norm_bias = b.vector + 2 * 2048;
        e.norm_mean = b.vector + 3 * 2048, e.norm_var = b.vector + 4 * 2048, e.eps = 1e-5f;
    }
    const int sms = 1 + below(below(2) ? 140 : 3); /* few: a block has several tiles */
    b.cuda.sms = sms;
    int n, wrong = try_turned(b, c, t, e, worst);
    const dr_conv_tile *const tile = dr_cuda_conv_tiles(&n);
    for (int i = 0; i < n; i++) {
        for (int linear = 0; linear < 2; linear++) {
            dr_conv_plan p;
            if (dr_cuda_conv_plan(&c, (dr_type)t, &tile[i], linear, &p)) {
                wrong += !try_plan(b, c, t, e, p, sms, worst);
                wrong += !try_pool(b, c, t, e, p, sms);
                ++*plans;
            }
        }
    }
    wrong += !try_bytes(b, c, t, e, sms);
    return wrong;
}

/* ---- the same bits beside other work ---- */
__global__ void noise_kernel(float *p, int64_t n, int rounds) {
    for (int r = 0; r < rounds; r++) {
        for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
             i += (int64_t)gridDim.x * blockDim.x) {
            p[i] = p[i] * 0.5f + 1.0f;
        }
    }
}

/* A shape that the row computes; false: none was found. */
bool shape_for(const dr_conv_tile *tile, int t, dr_conv *c, dr_conv_plan *p) {
    for (int i = 0; i < 20000; i++) {
        *c = random_shape(t);
        if (c->n * c->ho * c->wo > 2000 && dr_cuda_conv_plan(c, (dr_type)t, tile, false, p)) {
            return true;
        }
    }
    return false;
}

/* One row and type; the number of runs that gave other bits than the first, alone on the card. */
int repeat(bench &b, const dr_conv &c, int t, const dr_conv_plan &p, int runs, cudaStream_t other) {
    const dr_epilogue e = {};
    const int64_t bytes = c.n * c.ho * c.wo * c.k * dr_type_bytes((dr_type)t);
    unsigned long long first = 0;
    int differ = 0;
    for (int i = 0; i < runs; i++) {
        bool done;
        b.cuda.sms = i % 2 ? 66 : 132;
        if (i > 0) {
            noise_kernel<<<1 + below(200), 32 << below(5), 0, other>>>((float *)b.add, BUFFER / 64,
                                                                       1 + below(8));
        }
        MUST(cudaMemsetAsync(b.y, 0xff, (size_t)bytes, b.cuda.stream));
        MUST((cudaError_t)dr_cuda_conv_run(&c, (dr_type)t, &p, b.x, b.w, &e, b.y, b.workspace,
                                           &b.cuda, &done));
        const unsigned long long bits = done ? hash(b.y, bytes, b.cuda.stream) : ~0ull;
        first = i ? first : bits;
        differ += !done || bits != first;
        if (i % 16 == 0) {
            MUST(cudaStreamSynchronize(other)); /* or its queue grows without end */
        }
    }
    return differ;
}

int noise(bench &b, int runs) {
    cudaStream_t other;
    MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    int n, rows = 0, wrong = 0;
    const dr_conv_tile *const tile = dr_cuda_conv_tiles(&n);
    for (int i = 0; i < 3 * n; i++) {
        const int t = i % 3;
        dr_conv c;
        dr_conv_plan p;
        if (!shape_for(&tile[i / 3], t, &c, &p)) {
            continue;
        }
        fill(b.x, t, c.n * c.h * c.w * c.c, i * 8 + 1, 1.0f, 0.0f);
        fill(b.w, t, c.k * c.kh * c.kw * c.c, i * 8 + 2, 0.1f, 0.0f);
        MUST(cudaDeviceSynchronize());
        const int differ = repeat(b, c, t, p, runs, other);
        rows++;
        wrong += differ > 0;
        if (differ) {
            tell(c, t, p, dr_epilogue{}, 132);
            printf("FAILED: %d of %d runs gave other bits\n", differ, runs);
        }
    }
    MUST(cudaStreamDestroy(other));
    printf("%d rows and types, %d runs each beside another stream: %d wrong;\n", rows, runs, wrong);
    return wrong || rows == 0;
}

} // namespace

int main(int argc, char **argv) {
    const bool noisy = argc > 1 && strcmp(argv[1], "noise") == 0;
    first_layers = argc > 1 && strcmp(argv[1], "first") == 0;
    argc -= noisy || first_layers, argv += noisy || first_layers;
    const int count = argc > 1 ? atoi(argv[1]) : noisy ? 1000 : 2000;
    setvbuf(stdout, NULL, _IOLBF, 0); /* what is wrong is seen even if the rest is cut off */
    draws = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    most_work = argc > 3 ? atoll(argv[3]) : most_work;
    cudaDeviceProp prop;
    if (cudaGetDeviceProperties(&prop, 0) != cudaSuccess || prop.major != 9 || prop.minor != 0 ||
        !dr_conv_hopper_built()) {
        puts("no Hopper GPU, or a build without sm_90a: skipped");
        return 77;
    }
    bench b = {};
    MUST(cudaMalloc(&b.x, BUFFER));
    MUST(cudaMalloc(&b.w, BUFFER));
    MUST(cudaMalloc(&b.y, BUFFER + GUARD));
    MUST(cudaMalloc(&b.add, BUFFER));
    MUST(cudaMalloc(&b.turned, BUFFER));
    MUST(cudaMalloc(&b.vector, 2048 * 5 * sizeof(float)));
    MUST(cudaMalloc(&b.workspace, WORKSPACE));
    MUST(cudaMalloc(&b.cuda.tickets, DR_CUDA_TICKETS * sizeof(unsigned)));
    MUST(cudaMemset(b.cuda.tickets, 0, DR_CUDA_TICKETS * sizeof(unsigned)));
    b.cuda.arch = 90;
    b.cuda.tf32 = true;
    if (noisy) {
        return noise(b, count);
    }
    int wrong = 0, plans = 0;
    unsigned worst = 0;
    for (int i = 0; i < count && wrong < 20; i++) {
        wrong += shape(b, i, &plans, &worst);
    }
    float ratio;
    memcpy(&ratio, &worst, 4);
    printf("%d shapes, %d plans on %s: %d wrong; largest error %.2f of what is allowed\n", count,
           plans, prop.name, wrong, ratio);
    return wrong ? 1 : 0;
}
