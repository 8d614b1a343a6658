/* The layout of a ring's slots. */
#include "augment/data.h"
#include "kernels/batch.h"

static size_t aligned(size_t n) {
    return (n + 63) & ~(size_t)63;
}

void dr_ring_layout(struct dr_arena *a, struct dr_ring *r, const struct dr_column_want *want,
                    uint32_t n, int64_t batch) {
    size_t *offset = DR_NEW_N(a, size_t, n + 1), at = 0;
    for (uint32_t i = 0; i < n; i++) {
        offset[i] = at;
        int64_t elements, bytes;
        if (want[i].input == DR_NONE)
            continue;
        /* The graph has refused values of 2^60 bytes and more. */
        const bool sound =
            dr_shape_elements(&want[i].shape, &elements) &&
            !__builtin_mul_overflow(elements, (int64_t)dr_dtype_bytes(want[i].dtype), &bytes) &&
            !__builtin_add_overflow(at, aligned((size_t)bytes), &at);
        DR_ASSERT(sound);
    }
    offset[n] = at;
    r->slot_bytes = at + aligned(dr_batch_bytes(batch));
    r->offset = offset;
}
