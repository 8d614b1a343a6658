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
void dr_load_file(struct dr_load *l, const char *path, struct dr_mark mark, const char *what,
                  enum dr_file_use use) {
    struct stat st;
    if (path && (stat(path, &st) != 0 || S_ISREG(st.st_mode))) {
        *dr_push(l->a, &l->file) = (struct dr_named_file){one_name(l->a, path), what, mark, use};
    }
}

/* Saved weights may take the place of those that the run began with. */
static bool may_replace(const struct dr_named_file *written, const struct dr_named_file *read) {
    return written->use == DR_FILE_SAVED && read->use == DR_FILE_WEIGHTS;
}

void dr_load_check_files(struct dr_load *l) {
    struct dr_map *by_path = dr_map_create(l->a);
    bool *said = DR_NEW_N(l->a, bool, (size_t)l->file.n + 1);
    for (uint32_t i = 0; i < l->file.n; i++) {
        const struct dr_named_file *f = &l->file.at[i];
        if (f->use == DR_FILE_DATA || f->use == DR_FILE_WEIGHTS) {
            continue;
        }
        const uint32_t first = dr_map_put(by_path, f->path, i);
        if (first != DR_NONE) {
            dr_error(l->d, f->mark, "%s: %s writes this file as well", f->what,
                     l->file.at[first].what);
        }
    }
    for (uint32_t i = 0; i < l->file.n; i++) {
        const struct dr_named_file *f = &l->file.at[i];
        const uint32_t writer = dr_map_get(by_path, f->path);
        if ((f->use != DR_FILE_DATA && f->use != DR_FILE_WEIGHTS) || writer == DR_NONE ||
            said[writer] || may_replace(&l->file.at[writer], f)) {
            continue;
        }
        said[writer] = true;
        dr_error(l->d, l->file.at[writer].mark, "%s: it would be written over what %s reads",
                 l->file.at[writer].what, f->what);
    }
}
