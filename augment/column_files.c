/* Columns of image files and of the folders that they lie in: opening, pairing, numbering, reading.
 */
#include "augment/column.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* ---- opening ---- */

static bool integer(enum dr_dtype t) {
    return t == DR_U8 || t == DR_U16 || t == DR_I32 || t == DR_I64;
}

/* What the input makes of a file. */
static bool want_of(struct dr_column *c, const struct dr_model *m) {
    const struct dr_input *in = c->input;
    const struct dr_shape *s = &in->shape;
    const bool image = in->meaning == DR_IMAGE && s->rank == 3 &&
                       (in->dtype == DR_U8 || in->dtype == DR_U16) &&
                       (s->dim[2] == 1 || s->dim[2] == 3 || s->dim[2] == 4);
    const bool mask = in->meaning == DR_MASK && s->rank == 2 && integer(in->dtype);
    if (!image && !mask)
        return dr_error(m->diag, c->source->mark,
                        "%s feed images, u8 or u16 of [height, width, 1, 3 or 4], and masks, "
                        "integers of [height, width]; input '%s' is %s of %s",
                        c->name, in->name, dr_dtype_name(in->dtype), dr_shape_text(m->arena, s));
    if (s->dim[0] > 65535 || s->dim[1] > 65535)
        return dr_error(m->diag, c->source->mark,
                        "%s: at most 65535 pixels a side; input '%s' is %s", c->name, in->name,
                        dr_shape_text(m->arena, s));
    c->image = (struct dr_image_want){.height = s->dim[0],
                                      .width = s->dim[1],
                                      .channels = mask ? 0 : (uint32_t)s->dim[2],
                                      .item = in->dtype == DR_U16 ? 2 : 1,
                                      .fit = (enum dr_fit)c->source->fit};
    return true;
}

bool dr_column_open_files(struct dr_column *c, const struct dr_model *m) {
    char why[512];
    if (!want_of(c, m))
        return false;
    if (!dr_files_list(m->arena, c->source, &c->all, why, sizeof why))
        return dr_error(m->diag, c->source->mark, "%s: %s", c->name, why);
    c->decoders = dr_decoders_create();
    if (!c->decoders)
        return dr_error(m->diag, c->source->mark, "%s: out of host memory", c->name);
    c->rows = c->all.n;
    return true;
}

/* ---- pairs ---- */

static bool is_files(const struct dr_column *c) {
    return c->source->kind == DR_SOURCE_FILES;
}
static bool by_stem(const struct dr_column *c) {
    return is_files(c) && !c->source->pair_by_position;
}

static bool twice(const struct dr_column *c, const struct dr_model *m) {
    uint32_t second, first;
    return dr_files_twice(&c->files, &second, &first) &&
           !dr_error(m->diag, c->source->mark,
                     "%s and %s have the same stem '%s': they cannot be paired with the files of "
                     "another input; `pair: position` pairs by order",
                     c->files.path[first], c->files.path[second], c->files.stem[first]);
}

static bool pair(struct dr_column *c, const struct dr_column *to, const struct dr_model *m) {
    bool missing;
    const uint32_t at = dr_files_pair(m->arena, &c->files, &to->files, &missing);
    if (at == DR_NONE)
        return true;
    const struct dr_column *has = missing ? to : c, *lacks = missing ? c : to;
    return dr_error(m->diag, lacks->source->mark,
                    "input '%s' has %s, but nothing of %s has the stem '%s' for input '%s'; `pair: "
                    "position` pairs by order",
                    has->input->name, has->files.path[at], lacks->name, has->files.stem[at],
                    lacks->input->name);
}

/* All columns that pair by stem follow the first one's order. */
static bool pair_all(struct dr_column *c, uint32_t n, const struct dr_model *m) {
    struct dr_column *leader = NULL;
    uint32_t followers = 0;
    bool below = false, good = true;
    for (uint32_t i = 0; i < n; i++) {
        if (!by_stem(&c[i]))
            continue;
        below |= c[i].files.below;
        followers += leader != NULL;
        leader = leader ? leader : &c[i];
    }
    for (uint32_t i = 0; i < n && followers; i++)
        if (by_stem(&c[i])) {
            dr_files_stems(m->arena, &c[i].files, below);
            good &= !twice(&c[i], m);
        }
    for (uint32_t i = 0; i < n && followers && good; i++)
        if (by_stem(&c[i]) && &c[i] != leader)
            good &= pair(&c[i], leader, m);
    return good;
}

/* ---- folders as classes ---- */

/* The folders of training count, so that a class has one number in all splits. */
static struct dr_folders numbering(const struct dr_column *c, const struct dr_column *of,
                                   const struct dr_model *m, const struct dr_split *split) {
    struct dr_folders own;
    dr_folders_of(m->arena, &of->all, &own);
    for (uint32_t i = 0; i < m->split.n && strcmp(split->name, "train") != 0; i++) {
        const struct dr_split *train = &m->split.at[i];
        for (uint32_t j = 0; j < train->source.n && !strcmp(train->name, "train"); j++) {
            const struct dr_source *s = &train->source.at[j];
            struct dr_files files;
            char why[128];
            if (s->input != c->source->of || s->kind != DR_SOURCE_FILES)
                continue;
            if (dr_files_list(m->arena, s, &files, why, sizeof why))
                dr_folders_of(m->arena, &files, &own);
            else
                dr_warn(m->diag, c->source->mark,
                        "%s: classes are numbered by the folders of data.%s alone: data.train: %s",
                        c->name, split->name, why);
        }
    }
    return own;
}

static bool number_folders(struct dr_column *c, const struct dr_column *of,
                           const struct dr_model *m, const struct dr_split *split) {
    const struct dr_source *s = c->source, *o = of->source;
    if (s->has_range && (!o->has_range || s->from != o->from || s->to != o->to))
        return dr_error(m->diag, s->mark, "%s: rows are those of input '%s': leave them out here",
                        c->name, of->input->name);
    const struct dr_folders names = numbering(c, of, m, split);
    if (names.n < 2)
        return dr_error(m->diag, s->mark, "%s: all of %s lies in one folder, '%s'", c->name,
                        of->name, names.name[0]);
    struct dr_map *number = dr_map_create(m->arena);
    for (uint32_t i = 0; i < names.n; i++)
        dr_map_put(number, names.name[i], i);
    uint32_t *folder = DR_NEW_N(m->arena, uint32_t, (size_t)of->files.n + 1);
    for (uint32_t i = 0; i < of->files.n; i++) {
        const char *name = dr_folder_of(m->arena, of->files.path[i]);
        folder[i] = dr_map_get(number, name);
        if (folder[i] == DR_NONE)
            return dr_error(m->diag, s->mark,
                            "%s: %s lies in '%s', which is none of the %u folders "
                            "of data.train",
                            c->name, of->files.path[i], name, names.n);
    }
    c->folder = folder;
    c->n_folders = names.n;
    c->rows = of->files.n;
    return true;
}

bool dr_columns_settle(struct dr_column *c, uint32_t n, const struct dr_model *m,
                       const struct dr_split *split) {
    for (uint32_t i = 0; i < n; i++)
        if (is_files(&c[i])) {
            c[i].files = c[i].all;
            c[i].files.path += c[i].first;
            c[i].files.stem += c[i].first;
            c[i].files.n = (uint32_t)c[i].rows;
        }
    if (!pair_all(c, n, m))
        return false;
    bool good = true;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n && c[i].source->kind == DR_SOURCE_FOLDERS; j++)
            if (c[j].source->input == c[i].source->of)
                good &= number_folders(&c[i], &c[j], m, split);
    return good;
}

/* ---- checks before the run ---- */

static bool head_suits(const struct dr_column *c, const char *path, char *why, size_t why_n) {
    struct dr_image_head h;
    size_t n;
    void *file = dr_file_map(path, &n, why, why_n);
    if (!file)
        return false;
    const bool good =
        dr_image_head(file, n, &h, why, why_n) && dr_image_suits(&h, &c->image, why, why_n);
    munmap(file, n);
    return good;
}

bool dr_column_check_files(const struct dr_column *c, const struct dr_model *m) {
    enum { SHOWN = 5, MOST = 4096 }; /* a disk may take an hour to find a million headers */
    char why[256];
    uint32_t bad = 0;
    for (uint32_t i = 0; i < c->files.n && i < MOST; i++) {
        if (head_suits(c, c->files.path[i], why, sizeof why))
            continue;
        if (bad == 0)
            dr_error(m->diag, c->source->mark, "input '%s': %s: %s", c->input->name,
                     c->files.path[i], why);
        else if (bad < SHOWN)
            dr_note(m->diag, (struct dr_mark){0}, "%s: %s", c->files.path[i], why);
        bad++;
    }
    if (bad > SHOWN)
        dr_note(m->diag, (struct dr_mark){0}, "and %u more files", bad - SHOWN);
    return bad == 0;
}

bool dr_column_check_folders(const struct dr_column *c, const struct dr_model *m,
                             const struct dr_column_want *w) {
    return w->classes <= 0 || c->n_folders <= w->classes ||
           dr_error(m->diag, c->source->mark, "%s are %u classes, input '%s' takes 0 to %lld",
                    c->name, c->n_folders, c->input->name, (long long)(w->classes - 1));
}

/* ---- reading ---- */

bool dr_column_read_file(const struct dr_column *c, const struct dr_column_want *w, int64_t sample,
                         void *to, char *why, size_t why_n) {
    const char *path = c->files.path[sample];
    struct dr_decoder *d = dr_decoders_take(c->decoders);
    char reason[256] = "out of host memory";
    const bool mask = c->image.channels == 0;
    uint32_t item;
    int64_t bad = 0;
    const void *pixels =
        d ? dr_decoder_read_file(d, path, &c->image, mask ? NULL : to, &item, reason, sizeof reason)
          : NULL;
    bool good = pixels != NULL;
    if (good && mask && !dr_column_store(c, w, 'u', item, pixels, to, &bad)) {
        char range[96];
        dr_column_allowed(c, w, range, sizeof range);
        snprintf(reason, sizeof reason, "value %lld, masks of input '%s' take %s", (long long)bad,
                 c->input->name, range);
        good = false;
    }
    if (!good)
        snprintf(why, why_n, "input '%s': %s: %s", c->input->name, path, reason);
    if (d)
        dr_decoders_give(c->decoders, d);
    return good;
}
