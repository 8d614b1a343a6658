/* IDX files, the format of MNIST, plain or gzipped: big-endian header 00 00 TYPE RANK, RANK sizes
 * of 4 bytes, items (types u8, i8, i16, i32, f32, f64).
 *
 * Gzip is told by the first bytes. Where `path` is not there but `path`.gz is, that is read. What
 * the header says is checked against the file, or against what the compressed bytes can become,
 * before memory is taken; gzip's own checksum and length are checked, too. */
#ifndef DR_AUGMENT_IDX_H
#define DR_AUGMENT_IDX_H
#include "augment/npy.h"
/* Little-endian items, as those of npy files; dr_npy_close frees. False + reason. */
bool dr_idx_open(const char *path, struct dr_npy *out, char *why, size_t why_n);
/* The same of a file in memory, which must outlive `out`. */
bool dr_idx_parse(const void *file, size_t n, struct dr_npy *out, char *why, size_t why_n);
#endif
