/* The register tiles of im2win for each instruction set, and the choice among them.
 *
 * Rows: as many as leave room for two vectors of the other operand and a broadcast: 12 x 2 of 32
 * registers (AVX-512), 6 x 2 of 16 (AVX2, SSE2, NEON). The sets differ in rounding (fused or not),
 * but a machine always takes the same one. Explicit FMA: GCC contracts nothing under -std=c17. */
#include "kernels/cpu/im2win.h"
#include <string.h>

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef float vec4 __attribute__((vector_size(16)));
typedef float vec4_unaligned __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t ints4 __attribute__((vector_size(16)));
#define TILE(name) name##_portable
#define TARGET
#define VEC vec4
#define INTS ints4
#define LANES 4
#define ROWS 6
#define SET1(x) ((vec4){(x), (x), (x), (x)})
#define LOAD(p) ((vec4) * (const vec4_unaligned *)(p))
#define STORE(p, v) (*(vec4_unaligned *)(p) = (v))
#define FMA(a, b, c) ((a) * (b) + (c))
#include "kernels/cpu/im2win_tile.h"
static const struct dr_tiles portable = {"portable 6x8", 6, 8, fprop_portable, wgrad_portable};

#if defined(__x86_64__)
#include <immintrin.h>

typedef int32_t ints8 __attribute__((vector_size(32)));
#define TILE(name) name##_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define VEC __m256
#define INTS ints8
#define LANES 8
#define ROWS 6
#define SET1(x) _mm256_set1_ps(x)
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#include "kernels/cpu/im2win_tile.h"
static const struct dr_tiles avx2 = {"avx2 6x16", 6, 16, fprop_avx2, wgrad_avx2};

typedef int32_t ints16 __attribute__((vector_size(64)));
#define TILE(name) name##_avx512
#define TARGET __attribute__((target("avx512f")))
#define VEC __m512
#define INTS ints16
#define LANES 16
#define ROWS 12
#define SET1(x) _mm512_set1_ps(x)
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#include "kernels/cpu/im2win_tile.h"
static const struct dr_tiles avx512 = {"avx512 12x32", 12, 32, fprop_avx512, wgrad_avx512};
#endif

const struct dr_tiles *dr_tiles_at(unsigned i) {
    const struct dr_tiles *all[3];
    unsigned n = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        all[n++] = &avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        all[n++] = &avx2;
    }
#endif
    all[n++] = &portable;
    return i < n ? all[i] : NULL;
}

const struct dr_tiles *dr_tiles(void) {
    return dr_tiles_at(0);
}

const char *dr_tiles_name(const struct dr_tiles *t) {
    return t->name;
}
