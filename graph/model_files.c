/* The files that a model names: a run writes each of them once, and none that it reads. */
#include "graph/model_load.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* One name for one file: links followed as far as the path is there, and of what is not there yet
 * "." and doubled slashes dropped. */
static const char *one_name(struct dr_arena *a, const char *path) {
    char *copy = dr_strdup(a, path), *rest = copy + strlen(copy);
    const char *tail = "";
    for (;;) {
        char *real = realpath(*copy ? copy : ".", NULL);
        if (real) {
            const char *name =
                dr_printf(a, "%s%s", strcmp(real, "/") == 0 && *tail ? "" : real, tail);
            free(real);
            return name;
        }
        while (rest > copy && rest[-1] != '/') {
            rest--;
        }
        if (strcmp(rest, "..") == 0) {
            return path; /* out of a folder that is not there: the run will say so */
        }
        if (*rest && strcmp(rest, ".") != 0) {
            tail = dr_printf(a, "/%s%s", rest, tail);
        }
        if (rest == copy && *copy == '\0') {
            return path;
        }
        *rest = '\0';
        while (rest > copy + 1 && rest[-1] == '/') {
            *--rest = '\0';
        }
    }
}

/* Devices and pipes (/dev/null) may be written to by all. */
static bool note_file(struct dr_model *m, const char *path, struct dr_mark mark, const char *what,
                      enum dr_file_use use) {
    struct stat st;
    if (!path || (stat(path, &st) == 0 && !S_ISREG(st.st_mode))) {
        return false;
    }
    *dr_push(m->arena, &m->file) =
        (struct dr_named_file){one_name(m->arena, path), what, mark, use};
    return true;
}

void dr_load_file(struct dr_load *l, const char *path, struct dr_mark mark, const char *what,
                  enum dr_file_use use) {
    note_file(l->m, path, mark, what, use);
}

/* Saved weights may take the place of those that the run began with. */
static bool may_replace(const struct dr_named_file *written, const struct dr_named_file *read) {
    return written->use == DR_FILE_SAVED && read->use == DR_FILE_WEIGHTS;
}

static bool twice(struct dr_diag *d, const struct dr_named_file *f,
                  const struct dr_named_file *first) {
    return dr_error(d, f->mark, "%s: %s writes this file as well", f->what, first->what);
}

static bool over(struct dr_diag *d, const struct dr_named_file *written,
                 const struct dr_named_file *read) {
    return read->use == DR_FILE_MODEL
               ? dr_error(d, written->mark, "%s: it would be written over the YAML itself",
                          written->what)
               : dr_error(d, written->mark, "%s: it would be written over what %s reads",
                          written->what, read->what);
}

void dr_load_check_files(struct dr_load *l) {
    struct dr_map *by_path = dr_map_create(l->a);
    const uint32_t n = l->m->file.n;
    bool *said = DR_NEW_N(l->a, bool, (size_t)n + 1);
    for (uint32_t i = 0; i < n; i++) {
        const struct dr_named_file *f = &l->m->file.at[i];
        const uint32_t first = dr_file_is_written(f) ? dr_map_put(by_path, f->path, i) : DR_NONE;
        if (first != DR_NONE) {
            twice(l->d, f, &l->m->file.at[first]);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct dr_named_file *f = &l->m->file.at[i];
        const uint32_t writer = dr_file_is_written(f) ? DR_NONE : dr_map_get(by_path, f->path);
        if (writer != DR_NONE && !said[writer] && !may_replace(&l->m->file.at[writer], f)) {
            said[writer] = true;
            over(l->d, &l->m->file.at[writer], f);
        }
    }
}

bool dr_model_file(struct dr_model *m, const char *path, const char *what, enum dr_file_use use) {
    if (!note_file(m, path, (struct dr_mark){0}, what, use)) {
        return true;
    }
    const struct dr_named_file *f = &m->file.at[m->file.n - 1];
    for (uint32_t i = 0; i + 1 < m->file.n; i++) {
        const struct dr_named_file *other = &m->file.at[i];
        if (strcmp(other->path, f->path) != 0 ||
            (!dr_file_is_written(f) && !dr_file_is_written(other))) {
            continue;
        }
        if (dr_file_is_written(f) && dr_file_is_written(other)) {
            return twice(m->diag, f, other);
        }
        const struct dr_named_file *writer = dr_file_is_written(f) ? f : other;
        const struct dr_named_file *reader = dr_file_is_written(f) ? other : f;
        if (!may_replace(writer, reader)) {
            return over(m->diag, writer, reader);
        }
    }
    return true;
}
