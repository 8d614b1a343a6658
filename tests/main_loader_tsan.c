/* The loader under ThreadSanitizer: a consumer that is slower or faster than it, 1 or 4 threads,
 * rings of 2 to 8 slots; each step has the content that (seed, step) gives. Exit 0: all right. */
#include "augment/data.h"
#include "augment/image.h"
#include "kernels/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 3, STEPS = 60, SEED = 5 };

static const struct dr_column_want want[2] = {
    {.input = 0, .dtype = DR_U8, .shape = {4, {BATCH, 4, 4, 1}}},
    {.input = 1, .dtype = DR_I32, .shape = {1, {BATCH}}, .classes = 10},
};
static const size_t bytes[3] = {(size_t)BATCH * 16, (size_t)BATCH * 4,
                                sizeof(struct dr_batch) + BATCH * sizeof(uint64_t)};

/* Eight samples are pictures that the loader's threads decode and resize. */
static struct dr_model *make_model(struct dr_arena *a, int64_t samples) {
    struct dr_model *m = DR_NEW(a, struct dr_model);
    m->arena = a;
    m->diag = dr_diag_create(a);
    m->batch = BATCH;
    *dr_push(a, &m->input) = (struct dr_input){
        .name = "x", .dtype = DR_U8, .shape = DR_SHAPE(4, 4, 1), .meaning = DR_IMAGE};
    *dr_push(a, &m->input) = (struct dr_input){.name = "y", .dtype = DR_U8, .meaning = DR_LABEL};
    struct dr_split *split = dr_push(a, &m->split);
    memset(split, 0, sizeof *split);
    split->name = "train";
    split->shuffle = split->last = 1;
    for (uint32_t i = 0; i < 2; i++)
        *dr_push(a, &split->source) =
            (struct dr_source){.input = i, .kind = DR_SOURCE_SYNTHETIC, .rows = samples};
    if (samples == 8) {
        split->source.at[0].kind = DR_SOURCE_FILES;
        split->source.at[0].path = DR_SOURCE_DIR "/tests/data/images/six?.png";
        split->source.at[0].literal = sizeof DR_SOURCE_DIR;
        split->source.at[0].fit = DR_FIT_RESIZE;
    }
    return m;
}

static void pause_us(long us) {
    const struct timespec t = {0, us * 1000};
    nanosleep(&t, NULL);
}

static int failures;
static void check(bool good, const char *what, uint64_t step) {
    if (!good) {
        fprintf(stderr, "step %llu: %s\n", (unsigned long long)step, what);
        failures++;
    }
}

static void run(struct dr_arena *a, struct dr_dataset *s, uint32_t threads, uint32_t slots,
                bool slow) {
    struct dr_ring ring = {.slots = slots};
    dr_ring_layout(a, &ring, want, 2, BATCH);
    ring.base = aligned_alloc(64, slots * ring.slot_bytes);
    ring.filled = calloc(slots, sizeof *ring.filled);
    ring.released = calloc(slots, sizeof *ring.released);
    unsigned char *own = aligned_alloc(64, ring.slot_bytes);
    struct dr_loader *l = dr_loader_start(s, want, 2, &ring, SEED, 0, STEPS, threads);
    for (uint64_t step = 0; step < STEPS; step++) {
        const char *why = "";
        if (step % slots == 0) /* as the run loop does: all steps of a block at once */
            check(dr_loader_wait(l, step + slots - 1 < STEPS ? step + slots - 1 : STEPS - 1, &why),
                  why, step);
        if (slow)
            pause_us(200);
        const uint64_t at = step % slots;
        check(atomic_load_explicit(&ring.filled[at], memory_order_acquire) == step + 1,
              "not filled", step);
        check(!dr_dataset_batch(s, want, 2, &ring, SEED, step, own), "batch", step);
        for (int i = 0; i < 3; i++)
            check(!memcmp(own + ring.offset[i], ring.base + at * ring.slot_bytes + ring.offset[i],
                          bytes[i]),
                  "content", step);
        atomic_store_explicit(&ring.released[at], step + 1, memory_order_release);
        dr_loader_wake(l);
    }
    dr_loader_stop(l);
    /* And stopped while its threads are at work. */
    l = dr_loader_start(s, want, 2, &ring, SEED, 0, UINT64_MAX, threads);
    if (slow)
        pause_us(300);
    dr_loader_stop(l);
    free(own);
    free(ring.base);
    free((void *)ring.filled);
    free((void *)ring.released);
}

/* 20 samples are 7 batches an epoch; 2 are one, so that every thread is in an epoch of its own and
 * they outnumber the permutations that are kept. */
int main(void) {
    static const int64_t samples[] = {20, 2, 8};
    for (int k = 0; k < 3; k++) {
        struct dr_arena *a = dr_arena_create();
        struct dr_dataset *s = dr_dataset_open(a, make_model(a, samples[k]), 0, true);
        if (!s)
            return 1;
        for (uint32_t slots = 2; slots <= 8; slots++)
            for (uint32_t threads = 1; threads <= 4; threads += 3)
                for (int slow = 0; slow < 2; slow++)
                    run(a, s, threads, slots, slow);
        dr_dataset_close(s);
        dr_arena_destroy(a);
    }
    return failures != 0;
}
