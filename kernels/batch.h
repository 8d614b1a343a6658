/* The header that every batch carries, on the host and on the device: what draws are keyed by, and
 * how many of its samples are real. Followed in memory by `uint64_t sample[batch]`. */
#ifndef DR_KERNELS_BATCH_H
#define DR_KERNELS_BATCH_H
#include <stddef.h>
#include <stdint.h>
struct dr_batch {
    uint64_t step;     /* counts batches of the run, from 0 */
    uint32_t epoch;    /* from 0 */
    uint32_t n_valid;  /* samples [n_valid, batch) are padding */
    uint64_t sample[]; /* index in the split, before shuffling */
};
static inline size_t dr_batch_bytes(int64_t batch) {
    return sizeof(struct dr_batch) + (size_t)batch * sizeof(uint64_t);
}
#endif
