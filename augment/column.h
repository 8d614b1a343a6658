/* One column of a split: the source that feeds one input of the model. Internal to augment/. */
#ifndef DR_AUGMENT_COLUMN_H
#define DR_AUGMENT_COLUMN_H

#include "augment/cifar.h"
#include "augment/data.h"
#include "augment/files.h"
#include "augment/image.h"
#include "augment/npy.h"

struct dr_column {
    const struct dr_source *source;
    const struct dr_input *input;
    const char *name; /* for messages: "npy 'data/x.npy'" */
    int64_t first;    /* row of the source that is sample 0 */
    int64_t rows;     /* samples */
    int64_t items;    /* values of a sample */
    /* what the source's kind needs */
    struct dr_npy npy;          /* npy, idx; cifar10's labels have its kind and item */
    struct dr_cifar cifar;      /* cifar10 */
    struct dr_files files;      /* files, cifar10; files: of the samples, once it is settled */
    struct dr_files all;        /* files: before `rows` */
    struct dr_image_want image; /* files */
    struct dr_decoders *decoders;
    const uint32_t *folder; /* folders: [rows] numbers */
    uint32_t n_folders;     /* ... are below this */
};

/* Opens the source and checks its type, shape and range against the input. False after an error.
 * Columns of files are still in the order of their paths then, and columns of folders only begun:
 * dr_columns_settle does what concerns several. */
bool dr_column_open(struct dr_column *c, const struct dr_model *m, const struct dr_source *source);
void dr_column_close(struct dr_column *c);
/* Whether the file of a source is not there, or nothing matches its pattern, and why. */
bool dr_column_missing(const struct dr_model *m, const struct dr_source *s, char *why,
                       size_t why_n);
/* Pairs columns of files by stem; numbers folders. */
bool dr_columns_settle(struct dr_column *c, uint32_t n, const struct dr_model *m,
                       const struct dr_split *split);

/* An integer label or mask: its values are class numbers, and change width on the way. */
bool dr_column_is_classes(const struct dr_column *c);
/* Writes one sample as the device wants it. False + reason. */
bool dr_column_read(const struct dr_column *c, const struct dr_column_want *w, uint64_t seed,
                    int64_t sample, void *to, char *why, size_t why_n);
/* Whether class numbers lie in memory, so that all can be checked before the run. */
bool dr_column_in_memory(const struct dr_column *c);
/* The first value of a sample that the wish does not allow; false: all are fine. Only where they
 * are in memory. */
bool dr_column_offender(const struct dr_column *c, const struct dr_column_want *w, int64_t sample,
                        int64_t *value);
/* "0 to 9 or 255": what the wish allows, of what the file can hold. */
void dr_column_allowed(const struct dr_column *c, const struct dr_column_want *w, char *text,
                       size_t n);
/* Numbers of `item` bytes to what the device wants; false: *bad is not allowed. */
bool dr_column_store(const struct dr_column *c, const struct dr_column_want *w, char kind,
                     uint32_t item, const unsigned char *p, void *to, int64_t *bad);

/* ---- files and folders (column_files.c) ---- */
bool dr_column_open_files(struct dr_column *c, const struct dr_model *m);
bool dr_column_read_file(const struct dr_column *c, const struct dr_column_want *w, int64_t sample,
                         void *to, char *why, size_t why_n);
/* Reads headers, of all samples or the first few thousand; what does not suit is an error. */
bool dr_column_check_files(const struct dr_column *c, const struct dr_model *m);
bool dr_column_check_folders(const struct dr_column *c, const struct dr_model *m,
                             const struct dr_column_want *w);

/* Values by (seed, input, sample): integers `[0, classes)` where classes > 0. Uniform floats are in
 * [0, 1), normal ones N(0, 1); integers cover 0..255 (u16: 0..65535), normal ones with the mean in
 * the middle and a quarter of the range as deviation, clamped. */
void dr_synthetic_fill(int kind, uint64_t seed, uint32_t input, uint64_t sample, enum dr_dtype t,
                       int64_t classes, int64_t items, void *to);

/* dr_dataset_batch with the reason in the caller's buffer. */
bool dr_dataset_fill(struct dr_dataset *s, const struct dr_column_want *want, uint32_t n,
                     const struct dr_ring *ring, uint64_t seed, uint64_t step, unsigned char *slot,
                     char *why, size_t why_n);
#endif
