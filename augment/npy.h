/* .npy files (format 1.0 to 3.0, little-endian, C order; u1 u2 u4 u8 i1 i2 i4 i8 f2 f4 f8 b1),
 * memory-mapped. Hostile files are refused with a reason: sizes are checked against the file before
 * anything else. */
#ifndef DR_AUGMENT_NPY_H
#define DR_AUGMENT_NPY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#define DR_NPY_MAX_RANK 8
struct dr_npy {
    char kind;     /* 'u', 'i', 'f', 'b' */
    uint32_t item; /* bytes of one item */
    uint32_t rank;
    int64_t dim[DR_NPY_MAX_RANK];
    const unsigned char *data; /* inside the mapping, or `own`; may be unaligned */
    void *map;
    size_t map_bytes;
    void *own; /* items that no file holds as they are (idx); NULL */
};
/* Parses a file in memory (no mapping is made): `n` is the size of the whole file. False + reason
 * in why. */
bool dr_npy_parse(const void *file, size_t n, struct dr_npy *out, char *why, size_t why_n);
bool dr_npy_open(const char *path, struct dr_npy *out, char *why, size_t why_n);
void dr_npy_close(struct dr_npy *npy);
/* The header of an npy file, to be followed by its items: its bytes; `head` has room for 512. */
size_t dr_npy_header(char *head, const char *descr, const int64_t *dim, uint32_t rank);
/* A whole file written atomically; 0 or errno. `descr` like "<f4". */
int dr_npy_write(const char *path, const char *descr, const int64_t *dim, uint32_t rank,
                 const void *data, size_t bytes);
#endif
