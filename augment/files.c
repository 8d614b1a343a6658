/* Lists of files. See files.h. */
#include "augment/files.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- patterns ---- */

/* The folder of the YAML may have any name: what glob would read in it is escaped. */
static char *escaped(struct dr_arena *a, const struct dr_source *s) {
    char *pattern = dr_alloc(a, 2 * s->literal + strlen(s->path + s->literal) + 1), *to = pattern;
    for (size_t i = 0; i < s->literal; i++) {
        if (strchr("*?[]{},~\\", s->path[i]))
            *to++ = '\\';
        *to++ = s->path[i];
    }
    strcpy(to, s->path + s->literal);
    return pattern;
}

/* How many patterns the braces stand for, or more: each comma counts for the pair that it is in,
 * and pairs count as if they stood side by side. */
static int64_t alternatives(const char *p) {
    enum { DEEPEST = 64 };
    int64_t n = 1, of[DEEPEST + 1];
    for (int depth = 0; *p && n <= DR_FILES_PATTERNS; p++) {
        if (*p == '\\' && p[1]) {
            p++;
        } else if (*p == '{') {
            if (depth == DEEPEST)
                return INT64_MAX;
            of[++depth] = 1;
        } else if (*p == ',' && depth) {
            of[depth]++;
        } else if (*p == '}' && depth) {
            n *= of[depth--];
        }
    }
    return n;
}

static size_t base_of(const struct dr_source *s) {
    const size_t plain = s->literal + strcspn(s->path + s->literal, "*?[{\\");
    size_t base = s->literal;
    for (size_t i = base; i < plain; i++)
        if (s->path[i] == '/')
            base = i + 1;
    return base;
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool dr_files_list(struct dr_arena *a, const struct dr_source *s, struct dr_files *out, char *why,
                   size_t why_n) {
    glob_t found;
    *out = (struct dr_files){.base = base_of(s)};
    if (alternatives(s->path + s->literal) > DR_FILES_PATTERNS) {
        snprintf(why, why_n, "its braces stand for more than %d patterns", DR_FILES_PATTERNS);
        return false;
    }
    const int error = glob(escaped(a, s), GLOB_NOSORT | GLOB_BRACE, NULL, &found);
    if (error || found.gl_pathc > UINT32_MAX) {
        snprintf(why, why_n, "%s",
                 error == GLOB_NOMATCH   ? "there is no such file"
                 : error == GLOB_NOSPACE ? "out of host memory"
                 : error                 ? "its folder cannot be read"
                                         : "more than 2^32 files");
        globfree(&found);
        return false;
    }
    const char **path = DR_NEW_N(a, const char *, found.gl_pathc);
    for (size_t i = 0; i < found.gl_pathc; i++)
        path[i] = dr_strdup(a, found.gl_pathv[i]);
    out->path = path;
    uint32_t n = (uint32_t)found.gl_pathc;
    globfree(&found);
    qsort(path, n, sizeof *path, by_bytes);
    for (uint32_t i = 0; i < n; i++) /* {a*,*b} finds ab twice */
        if (!out->n || strcmp(path[out->n - 1], path[i]) != 0)
            path[out->n++] = path[i];
    struct stat st;
    if (out->n == 1 && stat(path[0], &st) == 0 && S_ISDIR(st.st_mode)) {
        snprintf(why, why_n, "it is a folder: '%s/*' would be all files in it",
                 s->path + s->literal);
        return false;
    }
    dr_files_stems(a, out, false);
    return true;
}

/* ---- stems ---- */

static const char *stem_of(struct dr_arena *a, const struct dr_files *f, uint32_t i) {
    const char *path = f->path[i], *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.'), *from = f->below ? path + f->base : name;
    const size_t n = dot && dot > name ? (size_t)(dot - from) : strlen(from);
    return dr_strndup(a, from, n);
}

void dr_files_stems(struct dr_arena *a, struct dr_files *f, bool below) {
    uint32_t second, first;
    const char **stem = DR_NEW_N(a, const char *, (size_t)f->n + 1);
    f->below = below;
    f->stem = stem;
    for (uint32_t i = 0; i < f->n; i++)
        stem[i] = stem_of(a, f, i);
    if (!below && dr_files_twice(f, &second, &first))
        dr_files_stems(a, f, true);
}

static struct dr_map *by_stem(struct dr_arena *a, const struct dr_files *f, uint32_t *second,
                              uint32_t *first) {
    struct dr_map *m = dr_map_create(a);
    *second = DR_NONE;
    for (uint32_t i = 0; i < f->n; i++) {
        const uint32_t old = dr_map_put(m, f->stem[i], i);
        if (old != DR_NONE && *second == DR_NONE) {
            *second = i;
            *first = old;
        }
    }
    return m;
}

bool dr_files_twice(const struct dr_files *f, uint32_t *second, uint32_t *first) {
    struct dr_arena *a = dr_arena_create();
    by_stem(a, f, second, first);
    dr_arena_destroy(a);
    return *second != DR_NONE;
}

uint32_t dr_files_pair(struct dr_arena *a, struct dr_files *f, const struct dr_files *to,
                       bool *missing_in_f) {
    uint32_t second, first;
    const struct dr_map *own = by_stem(a, f, &second, &first);
    const struct dr_map *others = by_stem(a, to, &second, &first);
    const char **path = DR_NEW_N(a, const char *, (size_t)to->n + 1);
    *missing_in_f = true;
    for (uint32_t i = 0; i < to->n; i++) {
        const uint32_t at = dr_map_get(own, to->stem[i]);
        if (at == DR_NONE)
            return i;
        path[i] = f->path[at];
    }
    *missing_in_f = false;
    for (uint32_t i = 0; i < f->n; i++)
        if (dr_map_get(others, f->stem[i]) == DR_NONE)
            return i;
    f->path = path;
    f->stem = to->stem;
    return DR_NONE;
}

/* ---- folders ---- */

const char *dr_folder_of(struct dr_arena *a, const char *path) {
    const char *end = strrchr(path, '/'), *from = end;
    while (from && from > path && from[-1] != '/')
        from--;
    return end ? dr_strndup(a, from, (size_t)(end - from)) : ".";
}

void dr_folders_of(struct dr_arena *a, const struct dr_files *f, struct dr_folders *out) {
    struct dr_map *seen = dr_map_create(a);
    const char **name = DR_NEW_N(a, const char *, (size_t)f->n + 1);
    *out = (struct dr_folders){.name = name};
    for (uint32_t i = 0; i < f->n; i++) {
        const char *folder = dr_folder_of(a, f->path[i]);
        if (dr_map_get(seen, folder) == DR_NONE) {
            dr_map_put(seen, folder, out->n);
            name[out->n++] = folder;
        }
    }
    if (out->n)
        qsort(name, out->n, sizeof *name, by_bytes);
}
