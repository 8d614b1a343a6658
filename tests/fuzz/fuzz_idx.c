/* Any bytes as an IDX file, plain or gzipped: a reason, or items that are all there to be read. */
#include "augment/idx.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct dr_npy a;
    char why[256];
    if (!dr_idx_parse(data, n, &a, why, sizeof why))
        return 0;
    uint64_t bytes = a.item, sum = 0;
    for (uint32_t i = 0; i < a.rank; i++)
        bytes *= (uint64_t)a.dim[i];
    for (uint64_t i = 0; i < bytes; i++)
        sum += a.data[i];
    if (sum > bytes * 255)
        abort();
    dr_npy_close(&a);
    return 0;
}
