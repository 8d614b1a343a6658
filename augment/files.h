/* Lists of files: what a pattern matches, in bytewise order; stems, pairs, and the folders that
 * files lie in as class numbers. */
#ifndef DR_AUGMENT_FILES_H
#define DR_AUGMENT_FILES_H
#include "graph/model.h"

struct dr_files {
    uint32_t n;
    const char **path; /* [n] in bytewise order */
    const char **stem; /* [n] see dr_files_stems */
    size_t base;       /* bytes of each path up to the first folder that a wildcard stands for */
    bool below;        /* stems begin there */
};
#define DR_FILES_PATTERNS 1000 /* that the braces of a source may stand for */
/* What the source's pattern matches: *, ?, [...] within one folder or name, {a,b}; no file at all
 * is an error. Everything is in the arena. False + reason. */
bool dr_files_list(struct dr_arena *a, const struct dr_source *s, struct dr_files *out, char *why,
                   size_t why_n);
/* A stem is a file's name without folder and ending, or, where such names repeat or `below` asks
 * for it, its path from `base` on without ending. */
void dr_files_stems(struct dr_arena *a, struct dr_files *f, bool below);
/* Two files with one stem: the second one's index and the first one's; false: there are none. */
bool dr_files_twice(const struct dr_files *f, uint32_t *second, uint32_t *first);
/* Reorders `f` so that its stems are those of `to`, one by one. DR_NONE, or an index of what cannot
 * be paired: of `to` (missing_in_f), or of `f` in its old order. */
uint32_t dr_files_pair(struct dr_arena *a, struct dr_files *f, const struct dr_files *to,
                       bool *missing_in_f);

/* The folders that files lie in directly, by name, in bytewise order. */
struct dr_folders {
    uint32_t n;
    const char **name;
};
void dr_folders_of(struct dr_arena *a, const struct dr_files *f, struct dr_folders *out);
/* The name of the folder that a file lies in, in the arena. */
const char *dr_folder_of(struct dr_arena *a, const char *path);
#endif
