/* Any bytes as an npy file: a reason, or a description that stays inside them. */
#include "augment/npy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct dr_npy npy;
    char why[256];
    if (!dr_npy_parse(data, n, &npy, why, sizeof why))
        return 0;
    uint64_t bytes = npy.item;
    for (uint32_t i = 0; i < npy.rank; i++)
        bytes *= (uint64_t)npy.dim[i];
    if (npy.data < data || npy.data + bytes != data + n)
        abort();
    return 0;
}
