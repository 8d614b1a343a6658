/* What the emulated GPU must find, each in a kernel that has just that fault, and that the kernel
 * without it gives what was worked out by hand. */
#include "kernels/cuda/ptx.cuh"
#include <functional>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace dr;

int wrong;
void expect(bool holds, const char *what) {
    printf("%s: %s\n", what, holds ? "ok" : "FAILED");
    wrong += !holds;
}
/* Whether work() ends the process and says so. */
bool faults(const std::function<void()> &work, const char *message) {
    int ends[2];
    char text[4096] = "";
    if (pipe(ends) != 0) {
        return false;
    }
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        work();
        cudaDeviceSynchronize();
        _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got;
         n < sizeof text - 1 && (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0;) {
        n += (size_t)got;
    }
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 1 && strstr(text, message);
}
/* Whether 20 launches of a kernel all leave to[i] = value(i), i < n. */
bool always(int n, float (*value)(int), const std::function<void(float *)> &launch) {
    float *to;
    cudaMalloc(&to, (size_t)n * sizeof *to);
    bool right = true;
    for (int run = 0; run < 20; run++) {
        memset(to, 0xff, (size_t)n * sizeof *to);
        launch(to);
        cudaDeviceSynchronize();
        for (int i = 0; i < n; i++) {
            right &= to[i] == value(i);
        }
    }
    cudaFree(to);
    return right;
}

/* ---- threads of a block ---- */
__global__ void turned_kernel(float *to, bool sync) {
    __shared__ float own[96];
    own[threadIdx.x] = (float)threadIdx.x;
    if (sync) {
        __syncthreads();
    }
    to[threadIdx.x] = own[95 - threadIdx.x];
    __syncthreads();
    own[threadIdx.x] = -1.0f; /* nothing is left from block to block */
}
__global__ void sum_kernel(float *to) {
    float v = (float)threadIdx.x;
    for (int o = 16; o > 0; o >>= 1) {
        v += __shfl_xor_sync(~0u, v, o);
    }
    to[threadIdx.x] = v;
}
__global__ void shared_kernel(float *to, int n) {
    extern __shared__ float own[];
    own[n] = 1.0f;
    to[0] = own[n];
}
__global__ void beside_kernel(float *to, int at) {
    to[at] = 1.0f;
}
__global__ void read_kernel(float *to, int at) {
    to[0] = to[at];
}

/* ---- copies in the background ---- */
__global__ void copy_kernel(const float *from, float *to, bool wait) {
    extern __shared__ float own[];
    ptx::copy_async<4>(ptx::shared_address(own + threadIdx.x), from, (int)threadIdx.x,
                       threadIdx.x % 4 != 0);
    ptx::copies_commit();
    if (wait) {
        ptx::copies_wait<0>();
    }
    to[threadIdx.x] = own[threadIdx.x];
}

/* ---- barriers in shared memory ---- */
__global__ void barrier_kernel(float *to, int arrivals, int extra) {
    extern __shared__ float own[];
    const uint32_t bar = ptx::shared_address(own + 32);
    if (threadIdx.x == 0) {
        ptx::barrier_init(bar, (uint32_t)arrivals);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        own[threadIdx.x] = (float)threadIdx.x + 1.0f;
        for (int i = 0; i <= extra; i++) {
            ptx::barrier_arrive(bar);
        }
    } else {
        ptx::barrier_wait(bar, 0);
        to[threadIdx.x - 32] = own[threadIdx.x - 32];
    }
}
template <int N> __global__ void registers_kernel() {
    ptx::registers_up<N>();
}

/* ---- tensor maps ---- */
/* A box of 8 rows of 32 floats, from row -1 and column 2 of 6 x 32: what lies where. */
__global__ void box_kernel(const __grid_constant__ CUtensorMap map, float *to, bool wait) {
    extern __shared__ float own[];
    const uint32_t bar = ptx::shared_address(own + 256);
    if (threadIdx.x == 0) {
        ptx::barrier_init(bar, 1);
        ptx::barrier_expect(bar, 1024);
        ptx::copy_box(ptx::shared_address(own), &map, bar, 2, -1, 0);
        if (wait) {
            ptx::barrier_wait(bar, 0);
        }
        for (int i = 0; i < 256; i++) {
            to[i] = own[i];
        }
    }
}
/* Row r, column c of the box lies, swizzled, in 16-byte unit c / 4 ^ r % 8 of 128-byte line r. */
float in_box(int i) {
    const int r = i / 32, c = (i % 32 / 4 ^ r) * 4 + i % 4, y = r - 1, x = c + 2;
    return y >= 0 && y < 6 && x < 32 ? (float)(y * 32 + x) : 0.0f;
}

/* ---- products of a warpgroup: 64 x 8 = (64 x 16 halves) (16 x 8) ---- */
float a_of(int row, int k) {
    return (float)((row * 3 + k * 5) % 7 - 3);
}
float b_of(int k, int column) {
    return (float)((k * 2 + column * 3) % 5 - 2);
}
float product_of(int i) {
    float sum = 1.0f; /* what it is added to */
    for (int k = 0; k < 16; k++) {
        sum += a_of(i / 8, k) * b_of(k, i % 8);
    }
    return sum;
}
__global__ void product_kernel(float *to, bool wait) {
    extern __shared__ float own[];
    uint16_t *const b = (uint16_t *)own; /* 8 rows of 128 bytes, swizzled */
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < 8 * 16; i += 128) {
        const int column = i / 16, k = i % 16;
        const uint32_t two = ptx::f16::pack(b_of(k, column), 0.0f);
        b[column * 64 + (k / 8 ^ column) * 8 + k % 8] = (uint16_t)two;
    }
    __syncthreads();
    uint32_t a[4];
    for (int r = 0; r < 4; r++) {
        const int row = 16 * warp + g + r % 2 * 8, k = r / 2 * 8 + 2 * t;
        a[r] = ptx::f16::pack(a_of(row, k), a_of(row, k + 1));
    }
    float d[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    ptx::product_fence();
    ptx::product<ptx::f16, 8>::rs(d, a, ptx::descriptor(ptx::shared_address(own), 1024), 1);
    ptx::product_commit();
    if (wait) {
        ptx::product_wait<0>();
    }
    for (int i = 0; i < 4; i++) {
        to[(16 * warp + g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
    }
    ptx::product_wait<0>();
}

void threads() {
    const auto turned = [](bool sync) {
        return always(
            96, [](int i) { return (float)(95 - i); },
            [=](float *to) { turned_kernel<<<2, 96>>>(to, sync); });
    };
    expect(turned(true), "what other threads wrote, after a barrier");
    expect(!turned(false), "without the barrier it is wrong");
    expect(always(
               32, [](int) { return 496.0f; }, [](float *to) { sum_kernel<<<1, 32>>>(to); }),
           "the sum of a warp");
}
void memory() {
    float *p;
    cudaMalloc(&p, 1024 * sizeof *p);
    const char *const outside = "an access outside of memory";
    const char *const beside = "a write beside an allocation";
    expect(!faults([=] { shared_kernel<<<1, 1, 512>>>(p, 127); }, ""), "the last shared value");
    expect(faults([=] { shared_kernel<<<1, 1, 4096>>>(p, 1024); }, outside),
           "past the end of shared memory");
    expect(faults([=] { shared_kernel<<<1, 1, 400>>>(p, 101); },
                  "a write outside of the block's shared memory"),
           "past the end, before the page's");
    expect(faults([=] { beside_kernel<<<1, 1>>>(p, 1024); }, outside), "a store past the end");
    expect(faults([=] { read_kernel<<<1, 1>>>(p, 1024); }, outside), "a load past the end");
    float *q;
    cudaMalloc(&q, 100 * sizeof *q);
    expect(faults([=] { beside_kernel<<<1, 1>>>(q, 101), cudaFree(q); }, beside),
           "a store past the end, before the page's");
    expect(faults([=] { beside_kernel<<<1, 1>>>(q, -1), cudaFree(q); }, beside),
           "a store before the beginning");
    expect(isnan(q[5]), "what was never written is NaN");
    cudaFree(q);
    shared_kernel<<<1, 1, 240 << 10>>>(p, 0);
    expect(cudaGetLastError() == cudaErrorInvalidConfiguration, "more shared memory than there is");
    cudaFree(p);
}
void background() {
    float *from;
    cudaMalloc(&from, 64 * sizeof *from);
    for (int i = 0; i < 64; i++) {
        from[i] = (float)i;
    }
    const auto copied = [=](bool wait) {
        return always(
            64, [](int i) { return i % 4 ? (float)i : 0.0f; },
            [=](float *to) { copy_kernel<<<1, 64, 256>>>(from, to, wait); });
    };
    expect(copied(true), "a copy in the background");
    expect(!copied(false), "without the wait it is wrong");
    cudaFree(from);

    expect(always(
               32, [](int i) { return (float)i + 1.0f; },
               [](float *to) { barrier_kernel<<<1, 64, 256>>>(to, 32, 0); }),
           "a barrier in shared memory");
    float *to;
    cudaMalloc(&to, 32 * sizeof *to);
    expect(faults([=] { barrier_kernel<<<1, 64, 256>>>(to, 33, 0); },
                  "threads wait for each other for ever"),
           "an arrival too few");
    expect(!faults([=] { registers_kernel<168><<<1, 384>>>(); }, ""), "as many registers as are");
    expect(faults([=] { registers_kernel<176><<<1, 384>>>(); },
                  "more registers than a multiprocessor has"),
           "more registers than there are");
    cudaFree(to);
}
void matrices() {
    float *x;
    cudaMalloc(&x, 6 * 32 * sizeof *x);
    for (int i = 0; i < 6 * 32; i++) {
        x[i] = (float)i;
    }
    void *encode;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault,
                                     &found);
    CUtensorMap map;
    const cuuint64_t size[3] = {32, 6, 1}, stride[2] = {128, 768};
    const cuuint32_t box[3] = {32, 8, 1}, step[3] = {1, 1, 1};
    const CUresult err = ((decltype(&cuTensorMapEncodeTiled))encode)(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, x, size, stride, box, step,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    const auto boxed = [=](bool wait) {
        return always(256, in_box, [=](float *to) { box_kernel<<<1, 32, 2048>>>(map, to, wait); });
    };
    expect(err == CUDA_SUCCESS && boxed(true), "a box of a tensor, swizzled, zeros outside");
    expect(!boxed(false), "without the wait it is wrong");
    cudaFree(x);
    const auto multiplied = [](bool wait) {
        return always(512, product_of,
                      [=](float *to) { product_kernel<<<1, 128, 1024>>>(to, wait); });
    };
    expect(multiplied(true), "a product of a warpgroup");
    expect(!multiplied(false), "without the wait it is wrong");
}
} // namespace

int main(void) {
    threads();
    memory();
    background();
    matrices();
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
