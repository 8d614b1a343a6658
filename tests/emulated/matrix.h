/* Tensor maps, matrices in shared memory, and matrix products, as the PTX ISA lays them out. */
#ifndef DR_TESTS_EMULATED_MATRIX_H
#define DR_TESTS_EMULATED_MATRIX_H
#include "tests/emulated/emulated.h"
#include <array>
#include <cuda.h>
#include <initializer_list>

namespace emulated {

enum type { F16, BF16, TF32 };

/* What this encoder puts into a CUtensorMap; sizes in values, strides in bytes. */
struct tensor_map {
    char *base;
    int rank, bytes; /* of a value */
    int64_t size[5], stride[5];
    int box[5];
};
static_assert(sizeof(tensor_map) <= sizeof(CUtensorMap), "a map holds it");

/* Coordinates innermost first; 128-byte swizzle. Zeros where a load is outside of the tensor;
 * stores leave that out. */
void load_box(uint32_t to, const CUtensorMap *m, uint32_t bar, std::initializer_list<int> at);
void store_box(const CUtensorMap *m, uint32_t from, std::initializer_list<int> at);

void load_matrices(std::array<uint32_t *, 4> to, uint32_t row, bool turned);
void store_matrices_turned(uint32_t row, const uint32_t *from);
void product_of_warp(type t, float *d, const uint32_t *a, const uint32_t *b);
/* d (64 x n) = a b + (keep ? d : 0); a: registers, or NULL and a descriptor. */
void product_of_warpgroup(type t, int n, float *d, const uint32_t *a, uint64_t a_at, uint64_t b_at,
                          bool keep);

} // namespace emulated
#endif
