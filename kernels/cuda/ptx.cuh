/* Every instruction that CUDA C has no word for, wrapped in one place. Of every sm_80 and later:
 * copies in the background (cp.async), 8 x 8 matrices (ldmatrix), matrix products of a warp
 * (mma.sync). Of Hopper alone (sm_90a): barriers in shared memory, the tensor copy engine (TMA),
 * matrix products of a warpgroup (wgmma), and what they need around them. Addresses of shared
 * memory are 32-bit, from shared_address. PTX ISA 8.x, sections 9.7.9 to 9.7.16.
 *
 * Hopper's compile for older cards, too: kernels leave their bodies out there (DR_HOPPER). */
#ifndef DR_KERNELS_CUDA_PTX_CUH
#define DR_KERNELS_CUDA_PTX_CUH
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define DR_HOPPER 1
#else
#define DR_HOPPER 0
#endif

namespace dr {
namespace ptx {

static __device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- values ---- */
/* The larger; NaN where one is. */
static __device__ __forceinline__ float larger(float a, float b) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
/* Rounds to tf32 (8 bits of exponent, 10 of fraction), ties away from zero. */
static __device__ __forceinline__ float to_tf32(float x) {
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return __uint_as_float(r);
}
/* Nanoseconds, the same clock on every multiprocessor. */
static __device__ __forceinline__ uint64_t global_time() {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
/* The compiler computes v here, not later. */
static __device__ __forceinline__ void pin(uint32_t &v) {
    asm volatile("" : "+r"(v));
}
/* Of four, and nothing that touches memory passes. */
static __device__ __forceinline__ void pin(uint32_t (&v)[4]) {
    asm volatile("" : "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3])::"memory");
}
/* p without its origin, from which the compiler would compute every address anew. */
template <class V> static __device__ __forceinline__ const V *kept(const V *p) {
    asm("" : "+l"(p));
    return p;
}

/* ---- copies to shared memory in the background, groups of them a thread ---- */
/* 4 or 16 bytes from value `offset`, zeros where they are not inside: nothing is read then. (The
 * address by one instruction: the compiler would take four.) */
template <int BYTES>
static __device__ __forceinline__ void copy_async(uint32_t to, const float *from, int offset,
                                                  bool inside) {
    uint64_t address;
    asm("mad.wide.s32 %0, %1, 4, %2;" : "=l"(address) : "r"(offset), "l"(from));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(address),
                 "n"(BYTES), "r"(inside ? BYTES : 0)
                 : "memory");
}
/* The same, zeros where any bit of `outside` is set. */
template <int BYTES>
static __device__ __forceinline__ void copy_async_unless(uint32_t outside, uint32_t to,
                                                         const float *from, int offset) {
    uint64_t address;
    asm("mad.wide.s32 %0, %1, 4, %2;" : "=l"(address) : "r"(offset), "l"(from));
    asm volatile("{.reg .pred p; setp.ne.u32 p, %3, 0;\n"
                 "cp.async.ca.shared.global [%0], [%1], %2, p;}" ::"r"(to),
                 "l"(address), "n"(BYTES), "r"(outside)
                 : "memory");
}
/* 16 bytes past the first cache: `bytes` from `from` (more is not read), then zeros. */
static __device__ __forceinline__ void copy_async_part(uint32_t to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
}
static __device__ __forceinline__ void copy_async16(uint32_t to, const void *from, bool inside) {
    copy_async_part(to, from, inside ? 16 : 0);
}
static __device__ __forceinline__ void copies_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until at most N of this thread's latest groups are on their way. */
template <int N> static __device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* ---- barriers ---- */
static __device__ __forceinline__ void barrier_init(uint32_t bar, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
/* Makes the inits visible to the copy engine. */
static __device__ __forceinline__ void barrier_init_done() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/* One arrival that also announces bytes, which copies will bring. */
static __device__ __forceinline__ void barrier_expect(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}
/* (With .release.cluster written out, nvcc 13.0 puts a fence of the whole GPU before it.) */
static __device__ __forceinline__ void barrier_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
static __device__ __forceinline__ void barrier_wait(uint32_t bar, uint32_t parity) {
    uint32_t done = 0;
    while (!done) {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}\n"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
    }
}
/* An arrival that happens when this thread's copies (copy_async) before it are done. */
static __device__ __forceinline__ void barrier_arrive_copied(uint32_t bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
/* A barrier of some warps: `threads` of them, barrier `id` of 16. */
static __device__ __forceinline__ void sync_threads(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- copies ---- */
static __device__ __forceinline__ void prefetch_map(const CUtensorMap *m) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory");
}
/* A box at coordinates, innermost first; outside of the tensor it is zeros. Its bytes, outside ones
 * too, count for `bar`. */
static __device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *m, uint32_t bar,
                                                int c0, int c1, int c2) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3,%4,%5}], [%2];" ::"r"(to),
                 "l"(m), "r"(bar), "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}
static __device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *m, uint32_t bar,
                                                int c0, int c1, int c2, int c3) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3,%4,%5,%6}], [%2];" ::"r"(to),
                 "l"(m), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}
/* The other way; what lies outside of the tensor is dropped. */
static __device__ __forceinline__ void store_box(const CUtensorMap *m, uint32_t from, int c0,
                                                 int c1, int c2, int c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2,%3,%4,%5}], [%1];" ::"l"(m),
        "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}
static __device__ __forceinline__ void stores_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Until at most N groups of stores still read shared memory. */
template <int N> static __device__ __forceinline__ void stores_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
template <int N> static __device__ __forceinline__ void stores_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}
/* Ordinary stores to shared memory become visible to the copy engine and to wgmma. */
static __device__ __forceinline__ void fence_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

static __device__ __forceinline__ uint4 load_shared(uint32_t from) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(from)
                 : "memory");
    return v;
}
static __device__ __forceinline__ void store_shared(uint32_t to, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}
static __device__ __forceinline__ uint32_t load_shared_word(uint32_t from) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
    return v;
}
static __device__ __forceinline__ float load_shared_float(uint32_t from) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
    return v;
}
static __device__ __forceinline__ void store_shared_float(uint32_t to, float v) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}

/* ---- four 8 x 8 matrices of 16 bits ----
 * Lane i gives the address of row i % 8, 16 bytes, of matrix i / 8; lane (g, t) = (lane / 4, lane %
 * 4) gets word t of row g of each. Rows of fp32 are rows of pairs of 16 bits. Turned: transposed,
 * 16 bits an element. */
static __device__ __forceinline__ void load_matrices(uint32_t &a, uint32_t &b, uint32_t &c,
                                                     uint32_t &d, uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(from)
                 : "memory");
}
static __device__ __forceinline__ void load_matrices_turned(uint32_t &a, uint32_t &b, uint32_t &c,
                                                            uint32_t &d, uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(from)
                 : "memory");
}
static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t from) {
    load_matrices(r[0], r[1], r[2], r[3], from);
}
static __device__ __forceinline__ void load_matrices_turned(uint32_t (&r)[4], uint32_t from) {
    load_matrices_turned(r[0], r[1], r[2], r[3], from);
}
static __device__ __forceinline__ void store_matrices_turned(uint32_t to, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* ---- matrix products of a warp ----
 * d += a b with fp32 sums. tf32: m16n8k8, lane (g, t) holds a as (g, t), (g + 8, t), (g, t + 4), (g
 * + 8, t + 4); b as (t, g), (t + 4, g); d as (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
 * The others: m16n8k16, each register holds two neighbours along k where that of tf32 holds one. */
static __device__ __forceinline__ void mma_tf32(float (&d)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ __forceinline__ void mma_f16(float (&d)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7},"
                 " {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* ---- launches that overlap (programmatic dependent launch) ---- */
/* Until the kernel before this one is done and its writes are seen: nothing that a kernel may have
 * written is to be read earlier. */
static __device__ __forceinline__ void wait_for_kernel_before() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
/* Blocks of the next kernel may begin where blocks of this one have ended. */
static __device__ __forceinline__ void let_next_kernel_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* ---- registers move between warpgroups ---- */
template <int N> static __device__ __forceinline__ void registers_up() {
#if DR_HOPPER
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N) : "memory");
#endif
}
template <int N> static __device__ __forceinline__ void registers_down() {
#if DR_HOPPER
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N) : "memory");
#endif
}

/* ---- wgmma ---- */
/* Storage types of operands: fp16, bf16, and fp32 of which the product reads tf32. */
struct f16 {
    using real = __half;
    /* Of a packed pair; NaN stays NaN. */
    static __device__ __forceinline__ uint32_t relu(uint32_t v) {
        uint32_t r;
        asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(v), "r"(0));
        return r;
    }
    static __device__ __forceinline__ uint32_t pack(float a, float b) {
        const __half2 h = __floats2half2_rn(a, b);
        return *reinterpret_cast<const uint32_t *>(&h);
    }
    static __device__ __forceinline__ float2 unpack(uint32_t v) {
        return __half22float2(*reinterpret_cast<const __half2 *>(&v));
    }
};
struct bf16 {
    using real = __nv_bfloat16;
    static __device__ __forceinline__ uint32_t relu(uint32_t v) {
        uint32_t r;
        asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(v), "r"(0));
        return r;
    }
    static __device__ __forceinline__ uint32_t pack(float a, float b) {
        const __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
        return *reinterpret_cast<const uint32_t *>(&h);
    }
    static __device__ __forceinline__ float2 unpack(uint32_t v) {
        return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&v));
    }
};
struct tf32 {
    using real = float;
    /* wgmma ignores the low 13 bits: half of what they can hold makes that rounding to nearest.
     * (cvt.rna.tf32 does the same at a quarter of the rate.) Infinity and NaN stay. */
    static __device__ __forceinline__ uint32_t rounded(uint32_t v) {
        return (v & 0x7f800000) == 0x7f800000 ? v : v + 0x1000;
    }
};

static __device__ __forceinline__ void product_fence() {
#if DR_HOPPER
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
static __device__ __forceinline__ void product_commit() {
#if DR_HOPPER
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int N> static __device__ __forceinline__ void product_wait() {
#if DR_HOPPER
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}
/* The descriptor of a K-major operand in shared memory: rows of 128 bytes under the 128-byte
 * swizzle, 8 rows a group, `pitch` bytes from group to group (any multiple of 128). The swizzle is
 * a function of the address alone, so a row may begin at any multiple of 128 bytes. */
static __device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t pitch) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)1 << 16 |
           (uint64_t)((pitch & 0x3ffff) >> 4) << 32 | (uint64_t)1 << 62;
}

/* product<T, N>::rs: d (64 x N, fp32) = a b + (keep ? d : 0) over 32 bytes of depth: 16 of f16 and
 * bf16, 8 of tf32. a is in registers, laid out as load_matrices gives it; b has N rows in shared
 * memory. ss: a, too, has its 64 rows there. Warp w of the warpgroup has rows 16w to 16w + 15: lane
 * (g, t) = (lane / 4, lane % 4) holds d[4j + i] = (16w + g + i / 2 * 8, 8j + 2t + i % 2). */
template <typename T, int N> struct product;

#define DR_OUT4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define DR_OUT8(d, i) DR_OUT4(d, i), DR_OUT4(d, i + 4)
#define DR_OUT16(d, i) DR_OUT8(d, i), DR_OUT8(d, i + 8)
#define DR_OUT24(d, i) DR_OUT16(d, i), DR_OUT8(d, i + 16)
#define DR_OUT32(d, i) DR_OUT16(d, i), DR_OUT16(d, i + 16)
#define DR_OUT48(d, i) DR_OUT32(d, i), DR_OUT16(d, i + 32)
#define DR_OUT52(d, i) DR_OUT48(d, i), DR_OUT4(d, i + 48)
#define DR_OUT56(d, i) DR_OUT48(d, i), DR_OUT8(d, i + 48)
#define DR_OUT64(d, i) DR_OUT32(d, i), DR_OUT32(d, i + 32)
#define DR_OUT72(d, i) DR_OUT64(d, i), DR_OUT8(d, i + 64)
#define DR_OUT80(d, i) DR_OUT64(d, i), DR_OUT16(d, i + 64)
#define DR_OUT100(d, i) DR_OUT52(d, i), DR_OUT48(d, i + 52)
#define DR_OUT120(d, i) DR_OUT72(d, i), DR_OUT48(d, i + 72)
#define DR_OUT128(d, i) DR_OUT64(d, i), DR_OUT64(d, i + 64)
#define DR_D16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define DR_D24 DR_D16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define DR_D32 DR_D24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define DR_D48 DR_D32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define DR_D52 DR_D48 ",%48,%49,%50,%51"
#define DR_D56 DR_D52 ",%52,%53,%54,%55"
#define DR_D64 DR_D56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define DR_D72 DR_D64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define DR_D80 DR_D72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define DR_D100                                                                                    \
    DR_D80 ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99"
#define DR_D120                                                                                    \
    DR_D100 ",%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115"     \
            ",%116,%117,%118,%119"
#define DR_D128 DR_D120 ",%120,%121,%122,%123,%124,%125,%126,%127"
#if DR_HOPPER
#define DR_RS(N, KIND, D, A, B, KEEP, TAIL, ...)                                                   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " KEEP ", 0;\n"                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #N KIND " {" D "}, {" A "}, " B               \
                 ", p, 1, 1" TAIL ";\n}\n"                                                         \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep))
#define DR_SS(N, KIND, D, A, B, KEEP, TAIL, ...)                                                   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " KEEP ", 0;\n"                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #N KIND " {" D "}, " A ", " B                 \
                 ", p, 1, 1" TAIL ";\n}\n"                                                         \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b), "r"(keep))
#else
#define DR_SS(N, KIND, D, A, B, KEEP, TAIL, ...) (void)d, (void)a, (void)b, (void)keep
#define DR_RS(N, KIND, D, A, B, KEEP, TAIL, ...) (void)d, (void)a, (void)b, (void)keep
#endif
#define DR_PRODUCT(T, N, KIND, D, OUT, A, B, KEEP, TAIL)                                           \
    template <> struct product<T, N> {                                                             \
        static __device__ __forceinline__ void rs(float (&d)[N / 2], const uint32_t (&a)[4],       \
                                                  uint64_t b, int keep) {                          \
            DR_RS(N, KIND, D, A, B, KEEP, TAIL, OUT);                                              \
        }                                                                                          \
    };
#define DR_PRODUCTS(T, KIND, TAIL)                                                                 \
    DR_PRODUCT(T, 32, KIND, DR_D16, DR_OUT16(d, 0), "%16,%17,%18,%19", "%20", "%21", TAIL)         \
    DR_PRODUCT(T, 48, KIND, DR_D24, DR_OUT24(d, 0), "%24,%25,%26,%27", "%28", "%29", TAIL)         \
    DR_PRODUCT(T, 64, KIND, DR_D32, DR_OUT32(d, 0), "%32,%33,%34,%35", "%36", "%37", TAIL)         \
    DR_PRODUCT(T, 96, KIND, DR_D48, DR_OUT48(d, 0), "%48,%49,%50,%51", "%52", "%53", TAIL)         \
    DR_PRODUCT(T, 104, KIND, DR_D52, DR_OUT52(d, 0), "%52,%53,%54,%55", "%56", "%57", TAIL)        \
    DR_PRODUCT(T, 128, KIND, DR_D64, DR_OUT64(d, 0), "%64,%65,%66,%67", "%68", "%69", TAIL)        \
    DR_PRODUCT(T, 144, KIND, DR_D72, DR_OUT72(d, 0), "%72,%73,%74,%75", "%76", "%77", TAIL)        \
    DR_PRODUCT(T, 160, KIND, DR_D80, DR_OUT80(d, 0), "%80,%81,%82,%83", "%84", "%85", TAIL)        \
    DR_PRODUCT(T, 200, KIND, DR_D100, DR_OUT100(d, 0), "%100,%101,%102,%103", "%104", "%105",      \
               TAIL)                                                                               \
    DR_PRODUCT(T, 240, KIND, DR_D120, DR_OUT120(d, 0), "%120,%121,%122,%123", "%124", "%125",      \
               TAIL)                                                                               \
    DR_PRODUCT(T, 256, KIND, DR_D128, DR_OUT128(d, 0), "%128,%129,%130,%131", "%132", "%133", TAIL)
DR_PRODUCTS(f16, "k16.f32.f16.f16", ", 0")
DR_PRODUCTS(bf16, "k16.f32.bf16.bf16", ", 0")
DR_PRODUCTS(tf32, "k8.f32.tf32.tf32", "")
template <> struct product<tf32, 112> {
    static __device__ __forceinline__ void ss(float (&d)[56], uint64_t a, uint64_t b, int keep) {
        DR_SS(112, "k8.f32.tf32.tf32", DR_D56, "%56", "%57", "%58", "", DR_OUT56(d, 0));
    }
};
#undef DR_PRODUCTS
#undef DR_PRODUCT
#undef DR_RS
#undef DR_SS
#undef DR_D128
#undef DR_D120
#undef DR_D100
#undef DR_D80
#undef DR_D72
#undef DR_D64
#undef DR_D52
#undef DR_D56
#undef DR_D48
#undef DR_D32
#undef DR_D24
#undef DR_D16
#undef DR_OUT128
#undef DR_OUT120
#undef DR_OUT100
#undef DR_OUT80
#undef DR_OUT72
#undef DR_OUT64
#undef DR_OUT52
#undef DR_OUT56
#undef DR_OUT48
#undef DR_OUT32
#undef DR_OUT24
#undef DR_OUT16
#undef DR_OUT8
#undef DR_OUT4

} // namespace ptx
} // namespace dr
#endif
