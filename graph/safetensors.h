/* Safetensors files: 8 bytes of length (little-endian), a JSON header of that length, the tensors.
 *
 *     struct dr_safetensors f;
 *     if (!dr_safetensors_open(arena, path, &f, why, sizeof why)) ...
 *     const struct dr_tensor *t = dr_safetensors_find(&f, "net.c1.weight");
 *     if (dr_tensor_is_float(t)) dr_tensor_floats(t, to);
 *     dr_safetensors_close(&f);
 *
 * The file is mapped; names and shapes are copied to the arena, data stays in the mapping and may
 * be unaligned. Hostile files are refused with a reason: every length is compared with the file's
 * size before it is used, and every tensor's bytes are what its shape and type say, without
 * overlaps or holes. Nothing here knows of models: graph/weights.h does. */
#ifndef DR_GRAPH_SAFETENSORS_H
#define DR_GRAPH_SAFETENSORS_H

#include "graph/ir.h"

#define DR_TENSOR_RANK 8
#define DR_SAFETENSORS_HEADER                                                                      \
    (8u << 20) /* bytes of a header; a name of 100 bytes fits 40,000 times */
#define DR_SAFETENSORS_TENSORS 32768u

struct dr_tensor {
    const char *name;
    const char *dtype; /* as in the file: "F32", "BF16", ... */
    uint32_t rank;
    int64_t dim[DR_TENSOR_RANK];
    const unsigned char *data;
    uint64_t bytes, elements;
};

struct dr_safetensors_note { /* of "__metadata__" */
    const char *key, *value;
};

struct dr_safetensors {
    DR_VEC(struct dr_tensor) tensor; /* in the order of the header */
    DR_VEC(struct dr_safetensors_note) note;
    struct dr_map *by_name;
    void *map;
    size_t map_bytes;
};

/* A whole file in memory (no mapping is made). False + reason. */
bool dr_safetensors_parse(struct dr_arena *a, const void *file, size_t n,
                          struct dr_safetensors *out, char *why, size_t why_n);
bool dr_safetensors_open(struct dr_arena *a, const char *path, struct dr_safetensors *out,
                         char *why, size_t why_n);
void dr_safetensors_close(struct dr_safetensors *f);

const struct dr_tensor *dr_safetensors_find(const struct dr_safetensors *f, const char *name);
const char *dr_safetensors_note(const struct dr_safetensors *f, const char *key); /* or NULL */

/* F32, F16, BF16 and F64 are read as float (F64 rounded); I64 as it is. */
bool dr_tensor_is_float(const struct dr_tensor *t);
void dr_tensor_floats(const struct dr_tensor *t, float *to);
const char *dr_tensor_text(struct dr_arena *a, const struct dr_tensor *t); /* "F32 [2, 1, 3, 3]" */

/* ---- writing ---- */
struct dr_safetensors_entry {
    const char *name;
    enum dr_dtype dtype;
    uint32_t rank;
    int64_t dim[DR_TENSOR_RANK];
    uint64_t bytes; /* set by dr_safetensors_create */
};
/* Whether a reader takes this name: UTF-8 without control characters. */
bool dr_safetensors_name(const char *name);
/* Begins a file: the header, padded so that data is 8-byte aligned. The caller writes the tensors'
 * bytes in the order of the entries, then commits (graph/base.h). 0 or errno. */
int dr_safetensors_create(struct dr_file **out, const char *path,
                          struct dr_safetensors_entry *entry, uint32_t n,
                          const struct dr_safetensors_note *note, uint32_t n_notes);

#endif
