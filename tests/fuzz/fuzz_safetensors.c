/* Any bytes as a safetensors file: a reason, or tensors that tile the data and can be read. */
#include "graph/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct dr_arena *a = dr_arena_create();
    struct dr_safetensors f;
    char why[256];
    if (!dr_safetensors_parse(a, data, n, &f, why, sizeof why)) {
        DR_ASSERT(*why);
        dr_arena_destroy(a);
        return 0;
    }
    for (uint32_t i = 0; i < f.tensor.n; i++) {
        const struct dr_tensor *t = &f.tensor.at[i];
        DR_ASSERT(t->data >= data && t->data + t->bytes <= data + n);
        DR_ASSERT(dr_safetensors_find(&f, t->name) == t && dr_safetensors_name(t->name));
        (void)dr_tensor_text(a, t);
        if (dr_tensor_is_float(t))
            dr_tensor_floats(t, dr_alloc(a, (size_t)t->elements * sizeof(float) + 1));
    }
    (void)dr_safetensors_note(&f, "format");
    dr_arena_destroy(a);
    return 0;
}
