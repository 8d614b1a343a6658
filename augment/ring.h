/* The input ring: slots in host memory that the loader fills and data nodes read. One slot is one
 * batch: every input at its offset, then the header. Slot of step s is s mod slots.
 *
 * Both sides speak in steps: `filled[slot]` and `released[slot]` hold step + 1 of the last batch
 * that was put in and taken out. The loader fills step s once released[slot] == s - slots + 1 (the
 * first `slots` steps of a run at once); a data node may read it once filled[slot] == s + 1. The
 * memory is owned by the device for the whole run (pinned on CUDA); tags are atomics, so a device
 * can write `released` in mapped memory. */
#ifndef DR_AUGMENT_RING_H
#define DR_AUGMENT_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dr_ring {
    uint32_t slots;
    size_t slot_bytes;
    unsigned char *base;        /* slots * slot_bytes, 64-byte aligned */
    _Atomic uint64_t *filled;   /* [slots] written by the loader */
    _Atomic uint64_t *released; /* [slots] written by the executor */
    const size_t *offset;       /* [inputs + 1] of each input in a slot; the last is the header */
};
#endif
