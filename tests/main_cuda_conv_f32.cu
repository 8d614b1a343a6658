/* Convolutions in fp32 on CUDA cores: random shapes, forward and data gradient by every tile of
 * conv_f32_tile.h, against the definition in double: main_cuda_conv_f32 [SHAPES [SEED [WORK]]]
 * (1000, 1, 100000000 multiply-adds at most a shape). Each result must be right within roundings,
 * NaN and infinity included, have every output written and nothing beside them; all tiles and the
 * choice among them, on any number of multiprocessors, must give the same bits. Without a device it
 * says so and exits 77 (skipped). */
#include "kernels/cuda/conv.h"
#include "kernels/cuda/conv_way.h"
#include "tests/conv_check.cuh"
#include <string.h>

namespace {

constexpr int64_t GUARD = 4096;
constexpr int COLUMNS = 1024; /* at most, of x and of y */

int64_t most_work = 100000000;

/* Channels of a group: in sixteens, in fours, odd. */
int some_channels() {
    const int form = below(3);
    return form == 0 ? 16 * (1 + below(6)) : form == 1 ? 4 * (1 + below(20)) : 1 + below(40);
}

dr_conv random_shape() {
    for (;;) {
        dr_conv c = {};
        const int form = below(4);
        c.groups = one_of({1, 1, 1, 1, 2, 3});
        c.c = c.groups * some_channels(), c.k = c.groups * some_channels();
        c.kh = form == 0 ? 3 : 1 + below(5), c.kw = form == 0 ? 3 : 1 + below(5);
        c.sh = below(2) ? 1 : 1 + below(3), c.sw = below(2) ? 1 : 1 + below(3);
        c.dh = below(3) ? 1 : 1 + below(3), c.dw = below(3) ? 1 : 1 + below(3);
        c.n = 1 + below(3), c.h = 1 + below(20), c.w = 1 + below(20);
        if (below(2)) {
            c.pt = below((int)(c.kh * c.dh)), c.pb = below((int)(c.kh * c.dh));
            c.pl = below((int)(c.kw * c.dw)), c.pr = below((int)(c.kw * c.dw));
        }
        const int64_t y = c.h + c.pt + c.pb - (c.kh - 1) * c.dh - 1;
        const int64_t x = c.w + c.pl + c.pr - (c.kw - 1) * c.dw - 1;
        c.ho = y / c.sh + 1, c.wo = x / c.sw + 1;
        const int64_t work = c.n * c.ho * c.wo * c.k * c.kh * c.kw * (c.c / c.groups);
        if (y >= 0 && x >= 0 && work <= most_work && c.c <= COLUMNS && c.k <= COLUMNS &&
            !dr_cuda_conv_few(&c)) {
            return c;
        }
    }
}

/* Floats on the device, which end where the allocation does; `off` floats after a multiple of 256
 * bytes. */
struct buffer {
    float *base, *at;
    buffer(int64_t n, int off) : at(NULL) {
        MUST(cudaMalloc(&base, (size_t)(n + off) * sizeof(float)));
        at = base + off;
    }
    ~buffer() {
        MUST(cudaFree(base));
    }
};

/* The data gradient as a forward convolution: dy with the zeros that the stride skips, and w
 * [k, taps, c of a group] as [c, taps from the last, k of a group]. */
__global__ void apart_kernel(const dr_conv c, int64_t h, int64_t w, const float *dy, float *to) {
    const int64_t n = c.n * h * w * c.k;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t k = i % c.k, x = i / c.k % w, y = i / c.k / w % h, image = i / c.k / w / h;
        const bool there = y % c.sh == 0 && x % c.sw == 0;
        to[i] = there ? dy[((image * c.ho + y / c.sh) * c.wo + x / c.sw) * c.k + k] : 0.0f;
    }
}
__global__ void turn_kernel(const dr_conv c, const float *w, float *to) {
    const int64_t cg = c.c / c.groups, kg = c.k / c.groups, taps = c.kh * c.kw;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < c.k * taps * cg;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t k = i / cg / taps, tap = i / cg % taps, ch = k / kg * cg + i % cg;
        to[(ch * taps + taps - 1 - tap) * kg + k % kg] = w[i];
    }
}
dr_conv turned_shape(const dr_conv &c) {
    dr_conv f = c;
    f.h = (c.ho - 1) * c.sh + 1, f.w = (c.wo - 1) * c.sw + 1, f.c = c.k;
    f.ho = c.h, f.wo = c.w, f.k = c.c, f.sh = f.sw = 1;
    f.pt = (c.kh - 1) * c.dh - c.pt, f.pl = (c.kw - 1) * c.dw - c.pl;
    return f;
}

/* A shape, its data, and what to expect. */
struct trial {
    dr_conv c;
    bool back;
    dr_epilogue e;
    check_case want; /* of y */
    const float *x, *w;
    float *y;
    dr_cuda cuda;
};

void tell(const trial &q, const char *name) {
    const dr_conv &c = q.c;
    printf("FAILED: %s%s, [%d,%d,%d,%d] -> %d, %dx%d, groups %d, stride %d,%d, dilation %d,%d, "
           "padding %d,%d,%d,%d; bias %d norm %d add %d act %d; %d sms: ",
           q.back ? "dgrad " : "", name, (int)c.n, (int)c.h, (int)c.w, (int)c.c, (int)c.k,
           (int)c.kh, (int)c.kw, (int)c.groups, (int)c.sh, (int)c.sw, (int)c.dh, (int)c.dw,
           (int)c.pt, (int)c.pl, (int)c.pb, (int)c.pr, q.e.bias != NULL, q.e.norm_var != NULL,
           q.e.add != NULL, q.e.act, q.cuda.sms);
}

/* One way; *bits: of its outputs. False: wrong. */
bool try_way(const trial &q, const dr_conv_way &way, bool check_too, unsigned *worst,
             unsigned long long *bits) {
    const dr_conv &f = q.want.c;
    const int64_t bytes = f.n * f.ho * f.wo * f.k * (int64_t)sizeof(float);
    MUST(cudaMemset(q.y, 0xff, (size_t)(bytes + GUARD)));
    must((cudaError_t)(q.back ? dr_cuda_conv_back(&q.c, DR_TYPE_F32, way.way, q.x, q.w, &q.e, q.y,
                                                  NULL, &q.cuda)
                              : dr_cuda_conv_fprop(&q.c, DR_TYPE_F32, way.way, q.x, q.w, &q.e, q.y,
                                                   NULL, &q.cuda)),
         way.name);
    MUST(cudaDeviceSynchronize());
    static unsigned char guard[GUARD];
    MUST(cudaMemcpy(guard, (char *)q.y + bytes, GUARD, cudaMemcpyDeviceToHost));
    bool outside = false;
    for (int64_t i = 0; i < GUARD; i++) {
        outside |= guard[i] != 0xff;
    }
    *bits = hash(q.y, bytes, q.cuda.stream);
    const check_result r = check_too ? check(q.want) : check_result{};
    *worst = r.worst > *worst ? r.worst : *worst;
    if (r.wrong || outside) {
        tell(q, way.name);
        printf("%llu wrong%s\n", r.wrong, outside ? ", writes outside" : "");
    }
    return r.wrong == 0 && !outside;
}

/* Every way; how many are wrong. */
int try_ways(trial &q, int *ways, unsigned *worst) {
    const dr_conv_card card = {90, q.cuda.sms, true, false};
    dr_conv_way way[DR_CONV_WAYS];
    const int n = (q.back ? dr_cuda_conv_back_ways : dr_cuda_conv_ways)(&q.c, DR_TYPE_F32, q.e.act,
                                                                        &card, way);
    unsigned long long first = 0, bits;
    int wrong = n < 2;
    for (int i = 0; i < n; i++) {
        wrong += !try_way(q, way[i], i == 0, worst, &bits);
        first = i ? first : bits;
        if (bits != first) {
            tell(q, way[i].name);
            puts("other bits");
            wrong++;
        }
        ++*ways;
    }
    return wrong;
}

int shape(int index, int *ways, unsigned *worst) {
    const dr_conv c = random_shape(), f = turned_shape(c);
    const int64_t nx = c.n * c.h * c.w * c.c, nw = c.k * c.kh * c.kw * (c.c / c.groups);
    const int64_t ny = c.n * c.ho * c.wo * c.k, napart = f.n * f.h * f.w * f.c;
    const int off = below(4) ? 0 : 1; /* not to be copied by 16 bytes */
    const buffer x(nx, off), w(nw, off), y(ny, off), apart(napart, 0), turned(nw, 0);
    const buffer add(nx > ny ? nx : ny, 0), vector(5 * COLUMNS, 0);
    const buffer out((nx > ny ? nx : ny) + GUARD / 4, 0);
    fill(x.at, DR_TYPE_F32, nx, index * 8 + 1, 1.0f, 0.0f);
    fill(w.at, DR_TYPE_F32, nw, index * 8 + 2, 1.0f / sqrtf((float)(nw / c.k)), 0.0f);
    fill(y.at, DR_TYPE_F32, ny, index * 8 + 3, 1.0f, 0.0f);
    fill(add.at, DR_TYPE_F32, nx > ny ? nx : ny, index * 8 + 4, 1.0f, 0.0f);
    fill(vector.at, DR_TYPE_F32, COLUMNS * 4, index * 8 + 5, 1.0f, 0.0f);
    fill(vector.at + COLUMNS * 4, DR_TYPE_F32, COLUMNS, index * 8 + 6, 0.2f, 2.0f);
    apart_kernel<<<512, 256>>>(c, f.h, f.w, y.at, apart.at);
    /* What must come out where the definition has it, and nowhere else: in x, or among the first
     * weights of a filter, which are what lies where no tap is left. (Where the data gradient skips
     * taps, the one with zeros between has 0 times infinity.) */
    const int odd = below(6);
    if (odd == 0) {
        plant_kernel<<<1, 1>>>(x.at, DR_TYPE_F32, (mix(draws) * 2654435761u) % nx,
                               below(2) ? INFINITY : NAN);
    } else if (odd < 3 && c.sh == 1 && c.sw == 1) {
        const int64_t at =
            below((int)c.k) * (nw / c.k) + below((int)(nw / c.k < 16 ? nw / c.k : 16));
        plant_kernel<<<1, 1>>>(w.at, DR_TYPE_F32, at, INFINITY);
    }
    turn_kernel<<<512, 256>>>(c, w.at, turned.at);
    dr_epilogue e = {};
    e.act = one_of({0, 0, 1, 4});
    e.bias = below(2) ? vector.at : NULL;
    e.add = below(3) ? NULL : add.at;
    if (below(2)) {
        e.norm_weight = vector.at + COLUMNS, e.norm_bias = vector.at + 2 * COLUMNS;
        e.norm_mean = vector.at + 3 * COLUMNS, e.norm_var = vector.at + 4 * COLUMNS, e.eps = 1e-5f;
    }
    trial q = {c,    false, e,      {c, DR_TYPE_F32, false, e, x.at, w.at, out.at, 1},
               x.at, w.at,  out.at, {}};
    q.cuda.sms = 1 + below(140), q.cuda.arch = 90;
    int wrong = try_ways(q, ways, worst);
    q.back = true, q.x = y.at;
    q.want = {f, DR_TYPE_F32, false, e, apart.at, turned.at, out.at, 1};
    return wrong + try_ways(q, ways, worst);
}

} // namespace

int main(int argc, char **argv) {
    const int count = argc > 1 ? atoi(argv[1]) : 1000;
    setvbuf(stdout, NULL, _IOLBF, 0); /* what is wrong is seen even if the rest is cut off */
    draws = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    most_work = argc > 3 ? atoll(argv[3]) : most_work;
    cudaDeviceProp prop;
    if (cudaGetDeviceProperties(&prop, 0) != cudaSuccess) {
        puts("no GPU: skipped");
        return 77;
    }
    int wrong = 0, ways = 0;
    unsigned worst = 0;
    for (int i = 0; i < count && wrong < 20; i++) {
        wrong += shape(i, &ways, &worst);
    }
    float ratio;
    memcpy(&ratio, &worst, 4);
    printf("%d shapes, %d ways on %s: %d wrong; largest error %.2f of what is allowed\n", count,
           ways, prop.name, wrong, ratio);
    return wrong ? 1 : 0;
}
