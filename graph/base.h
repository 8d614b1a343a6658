/* The few things every folder but kernels/ needs: assertions, an arena, growable arrays, hashing.
 *
 * Ownership: memory comes from an arena and lives as long as it; nothing is freed one by one.
 * Running out of host memory aborts with a message: sizes are bounded by the reader's budgets. */
#ifndef DR_GRAPH_BASE_H
#define DR_GRAPH_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DR_NONE UINT32_MAX /* "no id" */

/* A programmer's mistake. Never for a user's input. */
#define DR_ASSERT(cond) ((cond) ? (void)0 : dr_assert_failed(#cond, __FILE__, __LINE__))
_Noreturn void dr_assert_failed(const char *cond, const char *file, int line);

struct dr_arena;
struct dr_arena *dr_arena_create(void);
void dr_arena_destroy(struct dr_arena *a); /* NULL is fine */
void dr_arena_reset(struct dr_arena *a);   /* everything allocated so far is gone */

void *dr_alloc(struct dr_arena *a, size_t bytes); /* zeroed, 16-byte aligned, never NULL */
char *dr_strndup(struct dr_arena *a, const char *s, size_t n);
char *dr_strdup(struct dr_arena *a, const char *s);
char *dr_printf(struct dr_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *dr_vprintf(struct dr_arena *a, const char *fmt, va_list ap);

#define DR_NEW(arena, T) ((T *)dr_alloc((arena), sizeof(T)))
#define DR_NEW_N(arena, T, n) ((T *)dr_alloc((arena), sizeof(T) * (size_t)(n)))

/* Growable array in an arena: DR_VEC(int) v = {0}; *dr_push(a, &v) = 7; v.at[0], v.n. */
#define DR_VEC(T)                                                                                  \
    struct {                                                                                       \
        T *at;                                                                                     \
        uint32_t n, cap;                                                                           \
    }
#define dr_push(arena, v)                                                                          \
    ((v)->at = dr_vec_room((arena), (v)->at, (v)->n, &(v)->cap, sizeof *(v)->at),                  \
     &(v)->at[(v)->n++])
void *dr_vec_room(struct dr_arena *a, void *at, uint32_t n, uint32_t *cap, size_t item);

/* Growable text, for everything that prints a plan, a graph or JSON into memory. */
struct dr_text {
    struct dr_arena *arena;
    char *at; /* always NUL-terminated once something was added */
    size_t n, cap;
};
void dr_text_add(struct dr_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void dr_text_bytes(struct dr_text *t, const char *s, size_t n);

/* One UTF-8 character at s, n > 0: its bytes, or 0 if there is none (overlong, surrogate, cut). */
size_t dr_utf8(const char *s, size_t n, uint32_t *cp);

uint64_t dr_hash(const void *p, size_t n); /* XXH3, 64 bit */

/* Name -> id map, open addressing, names are not copied. */
struct dr_map;
struct dr_map *dr_map_create(struct dr_arena *a);
uint32_t dr_map_get(const struct dr_map *m, const char *key);           /* DR_NONE: not there */
uint32_t dr_map_put(struct dr_map *m, const char *key, uint32_t value); /* the old one or DR_NONE */

/* Writes `n` bytes to `path` by way of a temporary name, fsync and rename; creates folders.
 * Returns 0 or errno. */
int dr_write_file(const char *path, const void *bytes, size_t n);
int dr_make_folders(const char *path_of_file); /* all folders above a file; 0 or errno */

/* Whether dr_write_file would work, found out before the bytes are there; folders are made. 0 or
 * errno. */
int dr_file_try(const char *path);

/* The same piece by piece: after dr_file_create exactly one of commit and drop, which free it. Each
 * returns 0 or errno. */
struct dr_file;
int dr_file_create(struct dr_file **out, const char *path);
int dr_file_write(struct dr_file *f, const void *bytes, size_t n);
int dr_file_commit(struct dr_file *f);
void dr_file_drop(struct dr_file *f); /* the file at `path` stays as it was; NULL is fine */

/* A whole, not empty, regular file mapped read-only; NULL and why otherwise. The caller unmaps it.
 */
void *dr_file_map(const char *path, size_t *n, char *why, size_t why_n);

#endif
