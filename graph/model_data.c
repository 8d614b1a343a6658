/* `inputs:` and `data:`: what one sample is, and where each split's samples come from. */
#include "graph/model_load.h"
#include <stdlib.h>
#include <string.h>

#define MAX_DIM (INT64_C(1) << 40)

/* ---- inputs ---- */
/* Names of values and nodes that passes make themselves, and keys that stand beside inputs. */
static bool reserved_input(const char *name) {
    static const char *const words[] = {"header", "total_loss", "readback", "shuffle", "last"};
    for (uint32_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(name, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool read_shape(struct dr_load *l, const struct dr_yaml *y, const char *what,
                       struct dr_shape *s) {
    if (y->kind != DR_YAML_SEQUENCE || y->n >= DR_MAX_RANK) {
        return dr_error(l->d, y->mark,
                        "%s: shape must be a list of at most %d sizes, without the batch: "
                        "[height, width, channels]",
                        what, DR_MAX_RANK - 1);
    }
    bool ok = true;
    int64_t elements;
    s->rank = y->n;
    for (uint32_t i = 0; i < y->n; i++) {
        ok = dr_scalar_int(l->d, y->item[i], dr_printf(l->a, "%s: shape", what), 1, MAX_DIM,
                           &s->dim[i]) &&
             ok;
    }
    return ok && (dr_shape_elements(s, &elements) ||
                  dr_error(l->d, y->mark, "%s: shape: too many elements", what));
}

static bool read_kind(struct dr_load *l, const struct dr_yaml *y, const char *what,
                      struct dr_input *in) {
    static const char *const words[] = {"image", "mask", "label"};
    static const enum dr_meaning meaning[] = {DR_IMAGE, DR_MASK, DR_LABEL};
    int32_t kind;
    if (!y) {
        in->meaning = in->shape.rank == 3   ? DR_IMAGE
                      : in->shape.rank == 2 ? DR_MASK
                      : in->shape.rank == 0 ? DR_LABEL
                                            : DR_PLAIN;
        return true;
    }
    if (!dr_scalar_word(l->d, y, dr_printf(l->a, "%s: kind", what), words, 3, &kind)) {
        return false;
    }
    in->meaning = meaning[kind];
    if (in->meaning == DR_IMAGE && in->shape.rank != 3) {
        return dr_error(l->d, y->mark, "%s: an image has the shape [height, width, channels]",
                        what);
    }
    if (in->meaning == DR_MASK && in->shape.rank != 2) {
        return dr_error(l->d, y->mark, "%s: a mask has the shape [height, width]", what);
    }
    return true;
}

static bool read_input(struct dr_load *l, const struct dr_yaml_pair *p, struct dr_input *in) {
    if (!dr_load_name(l, p->key, "an input")) {
        return false;
    }
    *in = (struct dr_input){.name = p->key->text, .mark = p->key->mark};
    const char *what = dr_printf(l->a, "input '%s'", in->name);
    bool ok = !reserved_input(in->name) ||
              dr_error(l->d, p->key->mark,
                       "an input cannot be called '%s': dagrun uses that name itself", in->name);
    if (!dr_load_section(l, p->value, DR_SECTION_INPUT, what)) {
        return false;
    }
    const struct dr_yaml *shape = dr_yaml_get(p->value, "shape");
    const struct dr_yaml *dtype = dr_yaml_get(p->value, "dtype");
    if (!shape || !dtype) {
        return dr_error(l->d, p->key->mark, "%s: '%s' is missing", what, shape ? "dtype" : "shape");
    }
    const char *names[DR_DTYPES];
    for (uint32_t t = 0; t < DR_DTYPES; t++) {
        names[t] = dr_dtype_name((enum dr_dtype)t);
    }
    int32_t word = 0;
    ok = dr_scalar_word(l->d, dtype, dr_printf(l->a, "%s: dtype", what), names, DR_DTYPES, &word) &&
         ok;
    in->dtype = (enum dr_dtype)word;
    return read_shape(l, shape, what, &in->shape) &&
           read_kind(l, dr_yaml_get(p->value, "kind"), what, in) && ok;
}

void dr_load_inputs(struct dr_load *l, const struct dr_yaml *y) {
    if (!dr_load_mapping(l, y, "inputs")) {
        return;
    }
    if (y->n == 0) {
        dr_error(l->d, y->mark, "inputs: there must be at least one");
    }
    for (uint32_t i = 0; i < y->n; i++) {
        /* Wrong ones are kept too: their users are right about the name. */
        struct dr_input in;
        read_input(l, &y->pair[i], &in);
        in.name = y->pair[i].key->text;
        in.mark = y->pair[i].key->mark;
        dr_map_put(l->input_by_name, in.name, l->m->input.n);
        *dr_push(l->a, &l->m->input) = in;
    }
}

/* ---- data ---- */
static bool read_rows(struct dr_load *l, const struct dr_yaml *y, const char *what,
                      struct dr_source *s) {
    if (y->kind != DR_YAML_SEQUENCE || y->n != 2) {
        return dr_error(l->d, y->mark, "%s: rows must be [from, to]", what);
    }
    const char *rows = dr_printf(l->a, "%s: rows", what);
    if (!dr_scalar_int(l->d, y->item[0], rows, 0, INT64_MAX, &s->from) ||
        !dr_scalar_int(l->d, y->item[1], rows, 0, INT64_MAX, &s->to)) {
        return false;
    }
    if (s->from >= s->to) {
        return dr_error(l->d, y->mark,
                        "%s: rows [%lld, %lld] is empty: the range goes up to, not including, its "
                        "end",
                        what, (long long)s->from, (long long)s->to);
    }
    s->has_range = true;
    return true;
}

static const char *const source_words[] = {"files",   "npy",       "idx",
                                           "cifar10", "synthetic", "folders"};
enum { N_SOURCES = sizeof source_words / sizeof *source_words };

/* fit and pair speak of decoded files, count of synthetic samples. */
static bool read_options(struct dr_load *l, const struct dr_yaml *y, const char *what,
                         struct dr_source *s) {
    static const char *const fits[] = {"error", "resize", "crop", "pad"};
    static const char *const pairs[] = {"stem", "position"};
    const struct dr_yaml *fit = dr_yaml_get(y, "fit"), *pair = dr_yaml_get(y, "pair");
    const struct dr_yaml *count = dr_yaml_get(y, "count"), *rows = dr_yaml_get(y, "rows");
    int32_t word = 0;
    bool ok = true;
    if (fit || pair) {
        const struct dr_yaml *which = fit ? fit : pair;
        if (s->kind != DR_SOURCE_FILES) {
            return dr_error(l->d, which->mark, "%s: '%s' is for `files:` sources", what,
                            fit ? "fit" : "pair");
        }
        ok = !fit || dr_scalar_word(l->d, fit, dr_printf(l->a, "%s: fit", what), fits, 4, &s->fit);
        ok = (!pair ||
              dr_scalar_word(l->d, pair, dr_printf(l->a, "%s: pair", what), pairs, 2, &word)) &&
             ok;
        s->pair_by_position = word == 1;
    }
    s->rows = 1024;
    if (count && s->kind != DR_SOURCE_SYNTHETIC) {
        return dr_error(l->d, count->mark, "%s: 'count' is for `synthetic:` sources", what);
    }
    if (count &&
        !dr_scalar_int(l->d, count, dr_printf(l->a, "%s: count", what), 1, MAX_DIM, &s->rows)) {
        return false;
    }
    if (rows && read_rows(l, rows, what, s) && s->kind == DR_SOURCE_SYNTHETIC && s->to > s->rows) {
        return dr_error(l->d, rows->mark, "%s: rows end at %lld, but there are %lld", what,
                        (long long)s->to, (long long)s->rows);
    }
    return (!rows || s->has_range) && ok;
}

static const char *suggest_input(struct dr_load *l, const char *name, const char *const *more,
                                 uint32_t n_more) {
    const uint32_t n = l->m->input.n;
    const char **names = DR_NEW_N(l->a, const char *, (size_t)n + n_more);
    for (uint32_t i = 0; i < n; i++) {
        names[i] = l->m->input.at[i].name;
    }
    for (uint32_t i = 0; i < n_more; i++) {
        names[n + i] = more[i];
    }
    return dr_load_suggest(l, name, names, n + n_more);
}

/* `folders: image`: a label by the folder that the image's file lies in. */
static bool read_folders(struct dr_load *l, const struct dr_yaml *y, const char *what,
                         struct dr_source *s) {
    const struct dr_input *in = &l->m->input.at[s->input];
    const char *name;
    if (!dr_scalar_text(l->d, y, what, &name)) {
        return false;
    }
    s->of = dr_map_get(l->input_by_name, name);
    if (s->of == DR_NONE) {
        return dr_error(l->d, y->mark, "%s: '%s' is not an input%s", what, name,
                        suggest_input(l, name, NULL, 0));
    }
    if (in->meaning != DR_LABEL || in->shape.rank != 0 || in->dtype > DR_I64) {
        s->of = DR_NONE; /* nothing more about it */
        return dr_error(l->d, y->mark,
                        "%s: the number of a folder is a label, an integer of shape []; input '%s' "
                        "is %s of %s",
                        what, in->name, dr_shape_text(l->a, &in->shape), dr_dtype_name(in->dtype));
    }
    return true;
}

/* The value of the source's own key. */
static bool read_from(struct dr_load *l, const struct dr_yaml *y, const char *what,
                      struct dr_source *s) {
    static const char *const kinds[] = {"uniform", "normal", "zeros"};
    int32_t word;
    s->of = DR_NONE;
    if (s->kind == DR_SOURCE_SYNTHETIC) {
        const bool good = dr_scalar_word(l->d, y, what, kinds, 3, &word);
        s->synthetic = good ? word : DR_SYNTHETIC_UNIFORM;
        return good;
    }
    if (s->kind == DR_SOURCE_FOLDERS) {
        return read_folders(l, y, what, s);
    }
    s->path = dr_load_path(l, y, what);
    if (s->path && y->text[0] != '/') {
        s->literal = strlen(l->m->folder) + 1;
    }
    dr_load_file(l, s->path, y->mark, what, DR_FILE_DATA);
    return s->path != NULL;
}

static bool read_source(struct dr_load *l, const struct dr_yaml *y, const char *what,
                        struct dr_source *s) {
    if (!dr_load_section(l, y, DR_SECTION_SOURCE, what)) {
        return false;
    }
    const struct dr_yaml *from = NULL;
    for (uint32_t i = 0; i < N_SOURCES; i++) {
        const struct dr_yaml *v = dr_yaml_get(y, source_words[i]);
        if (v && from) {
            return dr_error(l->d, v->mark, "%s: two sources, '%s' and '%s'", what,
                            source_words[s->kind], source_words[i]);
        }
        if (v) {
            from = v;
            s->kind = (enum dr_source_kind)i;
        }
    }
    if (!from) {
        return dr_error(l->d, y->mark,
                        "%s: no source; give one of files, npy, idx, cifar10, synthetic, folders",
                        what);
    }
    s->mark = from->mark;
    return read_from(l, from, dr_printf(l->a, "%s: %s", what, source_words[s->kind]), s) &&
           read_options(l, y, what, s);
}

static void read_split_key(struct dr_load *l, const struct dr_yaml_pair *p, struct dr_split *s,
                           bool *fed) {
    static const char *const lasts[] = {"drop", "pad"}, *const more[] = {"shuffle", "last"};
    const char *what = dr_printf(l->a, "data.%s.%s", s->name, p->key->text);
    if (strcmp(p->key->text, "shuffle") == 0) {
        bool yes = false;
        dr_scalar_bool(l->d, p->value, what, &yes);
        s->shuffle = yes;
        return;
    }
    if (strcmp(p->key->text, "last") == 0) {
        dr_scalar_word(l->d, p->value, what, lasts, 2, &s->last);
        return;
    }
    const uint32_t input = dr_map_get(l->input_by_name, p->key->text);
    if (input == DR_NONE) {
        dr_error(l->d, p->key->mark, "data.%s: '%s' is not an input%s", s->name, p->key->text,
                 suggest_input(l, p->key->text, more, 2));
        return;
    }
    struct dr_source source = {.input = input, .mark = p->value->mark};
    read_source(l, p->value, what, &source);
    fed[input] = true;
    *dr_push(l->a, &s->source) = source;
}

static int by_input(const void *a, const void *b) {
    const struct dr_source *x = a, *y = b;
    return x->input < y->input ? -1 : x->input > y->input;
}

/* `folders: image` needs `image: {files: ...}` beside it. */
static void check_folders(struct dr_load *l, const struct dr_split *s) {
    for (uint32_t i = 0; i < s->source.n; i++) {
        const struct dr_source *x = &s->source.at[i];
        bool found = x->kind != DR_SOURCE_FOLDERS || x->of == DR_NONE;
        for (uint32_t j = 0; j < s->source.n && !found; j++) {
            found = s->source.at[j].input == x->of && s->source.at[j].kind == DR_SOURCE_FILES;
        }
        if (!found) {
            dr_error(l->d, x->mark, "data.%s.%s: folders: input '%s' has no `files:` in data.%s",
                     s->name, l->m->input.at[x->input].name, l->m->input.at[x->of].name, s->name);
        }
    }
}

static void read_split(struct dr_load *l, const struct dr_yaml_pair *p) {
    struct dr_split s = {.name = p->key->text, .shuffle = -1, .last = -1, .mark = p->key->mark};
    const char *what = dr_printf(l->a, "data.%s", s.name);
    if (p->value->kind != DR_YAML_MAPPING) {
        uint32_t n;
        const char *const *keys = dr_section_keys(DR_SECTION_DATA, &n);
        static const char *const in_split[] = {"shuffle", "last"};
        if (!strcmp(s.name, in_split[0]) || !strcmp(s.name, in_split[1]) ||
            *dr_did_you_mean(l->a, s.name, keys, n)) {
            dr_key_unknown(l->d, l->a, l->ops, p->key, "data", keys, n);
        } else {
            dr_load_mapping(l, p->value, what);
        }
        return;
    }
    bool *fed = DR_NEW_N(l->a, bool, (size_t)l->m->input.n + 1);
    for (uint32_t i = 0; i < p->value->n; i++) {
        read_split_key(l, &p->value->pair[i], &s, fed);
    }
    /* Inference reads no labels; what else it may leave out is known once outputs are traced. */
    for (uint32_t i = 0; i < l->m->input.n && strcmp(s.name, "infer") != 0; i++) {
        if (!fed[i]) {
            dr_error(l->d, s.mark, "data.%s gives no source for input '%s'", s.name,
                     l->m->input.at[i].name);
        }
    }
    if (s.source.n) {
        qsort(s.source.at, s.source.n, sizeof *s.source.at, by_input);
    }
    check_folders(l, &s);
    *dr_push(l->a, &l->m->split) = s;
}

void dr_load_data(struct dr_load *l, const struct dr_yaml *y) {
    if (!dr_load_mapping(l, y, "data")) {
        return;
    }
    const struct dr_yaml *batch = dr_yaml_get(y, "batch");
    if (!batch) {
        dr_error(l->d, y->mark, "data: 'batch' is missing (samples in a step)");
    } else {
        dr_scalar_int(l->d, batch, "data: batch", 1, 1 << 24, &l->m->batch);
    }
    for (uint32_t i = 0; i < y->n; i++) {
        if (strcmp(y->pair[i].key->text, "batch") != 0 &&
            dr_load_name(l, y->pair[i].key, "a split of the data")) {
            read_split(l, &y->pair[i]);
        }
    }
}
