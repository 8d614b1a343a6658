/* Data sets and the loader.
 *
 * A dr_dataset is one split of the YAML, opened: headers read and checked, nothing decoded. A
 * dr_loader fills the ring ahead of the run from its own threads; what is in a batch depends only
 * on (seed, step), never on threads or timing.
 *
 * Order: epoch e shows every sample once, in the order given by a Fisher-Yates shuffle
 * whose draws are Philox keyed by (seed, e); unshuffled: 0, 1, 2, ... A step belongs to epoch step
 * / batches_per_epoch. `last: drop` leaves out the tail of the (shuffled) order, `pad` repeats the
 * last valid sample and sets n_valid. */
#ifndef DR_AUGMENT_DATA_H
#define DR_AUGMENT_DATA_H

#include "augment/ring.h"
#include "graph/model.h"

struct dr_dataset;
/* How the device wants one input: from the graph's data values. */
struct dr_column_want {
    uint32_t input;        /* index in the model; DR_NONE entries are not fed (dropped labels) */
    enum dr_dtype dtype;   /* on the device: i32 for labels */
    struct dr_shape shape; /* with the batch */
    int64_t classes;       /* labels and masks must be < this (0: not checked) ... */
    int64_t ignore;        /* ... or equal to this (ignore_index; 0: none) */
};

/* Opens split `split` for a batch size. Errors (missing file, bad header, wrong dtype or shape,
 * counts that differ, a range outside the file, fewer samples than a batch under `drop`) go to the
 * sink with the source's mark. `training` settles shuffle and last where the YAML is silent. */
struct dr_dataset *dr_dataset_open(struct dr_arena *a, const struct dr_model *m, uint32_t split,
                                   bool training);
/* Opens nothing: warns once of each path of a split that a run would not find. */
void dr_dataset_warn(const struct dr_model *m, uint32_t split, struct dr_map *warned);
void dr_dataset_close(struct dr_dataset *s); /* unmaps files; the struct itself is the arena's */
int64_t dr_dataset_samples(const struct dr_dataset *s);
int64_t dr_dataset_batches(const struct dr_dataset *s); /* per epoch */
/* The name of a sample's file without folder and ending (augment/files.h has the whole rule); NULL:
 * no source has files. */
const char *dr_dataset_stem(const struct dr_dataset *s, int64_t sample);
/* Puts the paths of all image files into the map. */
void dr_dataset_paths(const struct dr_dataset *s, struct dr_map *to);
/* Whether the file is one of them. */
bool dr_dataset_reads(const struct dr_dataset *s, const char *path);
bool dr_dataset_pads(const struct dr_dataset *s); /* some batch has n_valid < batch */
/* Classes per label/mask column are known after the graph is built: checks every value of integer
 * label sources that are in memory (npy, idx, cifar10) once, naming the file and row, the number of
 * folders, and the headers of image files (of the first 4096; masks show their numbers only when
 * they are decoded). */
bool dr_dataset_check(struct dr_dataset *s, const struct dr_column_want *want, uint32_t n);

/* Layout of a slot for these columns: fills ring->slot_bytes and ring->offset (in the arena). */
void dr_ring_layout(struct dr_arena *a, struct dr_ring *r, const struct dr_column_want *want,
                    uint32_t n, int64_t batch);

/* Writes the batch of `step` to `slot` (layout of `ring`): pure, any thread; only decoders of image
 * files allocate, and keep what they have. Returns NULL, or what failed (a sample that cannot be
 * decoded), good until this thread's next call. */
const char *dr_dataset_batch(struct dr_dataset *s, const struct dr_column_want *want, uint32_t n,
                             const struct dr_ring *ring, uint64_t seed, uint64_t step,
                             unsigned char *slot);

struct dr_loader;
/* Starts `threads` threads that fill the ring for steps [first, end) in ring order. The ring must
 * be idle: its tags are cleared. `want` is kept, not copied. NULL: no memory, no thread. */
struct dr_loader *dr_loader_start(struct dr_dataset *s, const struct dr_column_want *want,
                                  uint32_t n, struct dr_ring *ring, uint64_t seed, uint64_t first,
                                  uint64_t end, uint32_t threads);
/* Blocks until every step up to `step` was put into the ring; false: one of them failed (the first
 * in order), and *why says so, until dr_loader_stop. */
bool dr_loader_wait(struct dr_loader *l, uint64_t step, const char **why);
/* Blocks as dr_loader_wait does, but only so long: true once that would not block. */
bool dr_loader_wait_for(struct dr_loader *l, uint64_t step, double seconds);
/* Whether nothing is being loaded because no slot is released. */
bool dr_loader_starves(const struct dr_loader *l);
void dr_loader_stop(struct dr_loader *l); /* joins the threads, frees; NULL is fine */
/* A slot was released: wakes loaders (released[] itself is written by the executor). */
void dr_loader_wake(struct dr_loader *l);
/* Seconds that dr_loader_wait blocked in all. */
double dr_loader_waited_s(const struct dr_loader *l);

#endif
