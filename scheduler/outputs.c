/* Files of inference. See outputs.h. */
#include "scheduler/outputs.h"

#include "augment/npy.h"
#include "augment/png.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sink { /* one entry of `outputs:` */
    const struct dr_outputs *o;
    uint32_t value;
    int64_t row_bytes, row_items; /* of a sample, in the graph */
    struct dr_file *npy;
    uint32_t width, height, channels; /* png */
    unsigned char *pixels;
    float *floats; /* a row */
};

struct dr_outputs_files {
    struct dr_session *s;
    struct sink *sink;
    uint32_t n;
};

static bool cannot(struct dr_session *s, const char *path, const char *why) {
    return dr_session_fail(s, DR_FAILED, "cannot write %s: %s", path, why);
}

/* Known before the run: a mistake of the one who named the file. */
static bool refused(struct dr_session *s, const struct sink *k, bool png, const char *path,
                    int error) {
    return dr_error(s->diag, png ? k->o->png_mark : k->o->npy_mark,
                    "outputs.%s: %s: cannot write %s: %s", k->o->name, png ? "png" : "npy", path,
                    strerror(error));
}

/* ---- opening ---- */

static const char *descr(enum dr_dtype t) {
    static const char *const names[DR_DTYPES] = {
        [DR_U8] = "|u1",  [DR_U16] = "<u2",  [DR_I32] = "<i4", [DR_I64] = "<i8",
        [DR_F16] = "<f2", [DR_BF16] = "<f4", [DR_F32] = "<f4", [DR_F64] = "<f8"};
    return names[t];
}

/* As files of weights call it; NULL: no float. */
static const char *float_name(enum dr_dtype t) {
    static const char *const names[DR_DTYPES] = {
        [DR_F16] = "F16", [DR_BF16] = "BF16", [DR_F32] = "F32", [DR_F64] = "F64"};
    return names[t];
}

static bool open_npy(struct dr_session *s, struct sink *k, const struct dr_value *v, int64_t rows) {
    int64_t dim[DR_MAX_RANK];
    char head[512];
    memcpy(dim, v->shape.dim, sizeof dim);
    dim[0] = rows;
    const size_t n = dr_npy_header(head, descr(v->dtype), dim, v->shape.rank);
    const int refusal = dr_file_create(&k->npy, k->o->npy);
    if (refusal)
        return refused(s, k, false, k->o->npy, refusal);
    const int error = dr_file_write(k->npy, head, n);
    return !error || cannot(s, k->o->npy, strerror(error));
}

/* "out/{stem}.png" of one sample. */
static void png_path(struct dr_text *t, const struct dr_dataset *d, const char *pattern,
                     int64_t sample) {
    while (*pattern) {
        const size_t plain = strcspn(pattern, "{");
        dr_text_bytes(t, pattern, plain);
        pattern += plain;
        if (!strncmp(pattern, "{stem}", 6)) {
            dr_text_add(t, "%s", dr_dataset_stem(d, sample));
            pattern += 6;
        } else if (!strncmp(pattern, "{index}", 7)) {
            dr_text_add(t, "%lld", (long long)sample);
            pattern += 7;
        } else if (*pattern) {
            dr_text_bytes(t, pattern++, 1);
        }
    }
}

/* Two samples with one stem would be one file, and a picture that is read would be gone; a folder
 * that takes its first file takes the others. */
static bool files_are_new(struct dr_session *s, const struct sink *k) {
    struct dr_arena *a = dr_arena_create();
    struct dr_map *seen = dr_map_create(a), *read = dr_map_create(a), *tried = dr_map_create(a);
    const bool stems = strstr(k->o->png, "{stem}") != NULL;
    bool good = true;
    dr_dataset_paths(s->data, read);
    for (int64_t i = 0; i < dr_dataset_samples(s->data) && good; i++) {
        struct dr_text path = {.arena = a};
        png_path(&path, s->data, k->o->png, i);
        if (stems && dr_map_put(seen, dr_dataset_stem(s->data, i), 0) != DR_NONE)
            good = dr_error(s->diag, k->o->mark,
                            "outputs.%s: png: two files have the stem '%s'; {index} counts the "
                            "samples",
                            k->o->name, dr_dataset_stem(s->data, i));
        else if (dr_map_get(read, path.at) != DR_NONE)
            good = dr_error(s->diag, k->o->mark,
                            "outputs.%s: png: %s would be written over a file that is read",
                            k->o->name, path.at);
        const char *slash = strrchr(path.at, '/');
        const size_t folder = slash ? (size_t)(slash - path.at) : 0;
        if (good && dr_map_put(tried, dr_strndup(a, path.at, folder), 0) == DR_NONE) {
            const int error = dr_file_try(path.at);
            good = !error || refused(s, k, true, path.at, error);
        }
    }
    dr_arena_destroy(a);
    return good;
}

/* [N, H, W] or [N, H, W, C] with 1 to 4 channels, of bytes or of floats from 0 to 1. */
static bool open_png(struct dr_session *s, struct sink *k, const struct dr_value *v) {
    const struct dr_shape *d = &v->shape;
    const int64_t channels = d->rank == 4 ? d->dim[3] : 1;
    if ((d->rank != 3 && d->rank != 4) || channels > 4 || d->dim[1] > 65535 || d->dim[2] > 65535)
        return dr_error(s->diag, k->o->mark,
                        "outputs.%s: a PNG holds [height, width] or [height, width, 1 to 4]; '%s' "
                        "is %s with the batch",
                        k->o->name, v->name, dr_shape_text(s->arena, d));
    if (v->dtype != DR_U8 && !float_name(v->dtype))
        return dr_error(
            s->diag, k->o->mark,
            "outputs.%s: a PNG is written from u8, or from floats between 0 and 1; '%s' is "
            "%s",
            k->o->name, v->name, dr_dtype_name(v->dtype));
    if (strstr(k->o->png, "{stem}") && !dr_dataset_stem(s->data, 0))
        return dr_error(s->diag, k->o->mark,
                        "outputs.%s: png: no source of the data has file names for {stem}; "
                        "{index} counts the samples",
                        k->o->name);
    if (!files_are_new(s, k))
        return false;
    k->height = (uint32_t)d->dim[1];
    k->width = (uint32_t)d->dim[2];
    k->channels = (uint32_t)channels;
    k->pixels = dr_alloc(s->arena, (size_t)k->row_items);
    return true;
}

static bool open_sink(struct dr_session *s, struct sink *k, int64_t rows) {
    const struct dr_graph *g = s->main.graph;
    const struct dr_value *v = &g->value.at[k->value];
    int64_t items;
    if (v->shape.rank == 0 || v->shape.dim[0] != g->batch || !dr_shape_elements(&v->shape, &items))
        return dr_error(s->diag, k->o->mark,
                        "outputs.%s: '%s' is %s, its first axis is not the batch", k->o->name,
                        v->name, dr_shape_text(s->arena, &v->shape));
    k->row_bytes = v->bytes / g->batch;
    k->row_items = items / g->batch;
    k->floats = DR_NEW_N(s->arena, float, k->row_items);
    return (!k->o->npy || open_npy(s, k, v, rows)) && (!k->o->png || open_png(s, k, v));
}

struct dr_outputs_files *dr_outputs_open(struct dr_session *s) {
    const struct dr_graph *g = s->main.graph;
    const struct dr_split *split = &s->model->split.at[s->split];
    struct dr_outputs_files *o = DR_NEW(s->arena, struct dr_outputs_files);
    const int64_t all = dr_dataset_batches(s->data) * g->batch, n = dr_dataset_samples(s->data);
    *o = (struct dr_outputs_files){.s = s, .n = g->output.n};
    o->sink = DR_NEW_N(s->arena, struct sink, o->n + 1);
    bool good = split->shuffle != 1 ||
                dr_error(s->diag, split->mark,
                         "inference writes samples in the order of the data: `shuffle: true` "
                         "cannot be used");
    for (uint32_t i = 0; i < o->n && good; i++) {
        o->sink[i].o = &s->model->output.at[i];
        o->sink[i].value = g->output.at[i];
        good = open_sink(s, &o->sink[i], all < n ? all : n);
    }
    if (good)
        return o;
    dr_outputs_close(o, false);
    return NULL;
}

/* ---- writing ---- */

static void to_floats(const struct sink *k, enum dr_dtype type, const unsigned char *row) {
    const struct dr_tensor t = {.dtype = float_name(type),
                                .data = row,
                                .bytes = (uint64_t)k->row_bytes,
                                .elements = (uint64_t)k->row_items};
    dr_tensor_floats(&t, k->floats);
}

static bool add_npy(struct dr_session *s, struct sink *k, const unsigned char *rows, int64_t n) {
    const enum dr_dtype type = s->main.graph->value.at[k->value].dtype;
    int error = 0;
    for (int64_t i = 0; i < n && type == DR_BF16 && !error; i++) { /* numpy has none: as float */
        to_floats(k, type, rows + i * k->row_bytes);
        error = dr_file_write(k->npy, k->floats, (size_t)k->row_items * sizeof *k->floats);
    }
    if (type != DR_BF16)
        error = dr_file_write(k->npy, rows, (size_t)(n * k->row_bytes));
    return !error || cannot(s, k->o->npy, strerror(error));
}

static bool add_png(struct dr_session *s, struct sink *k, const unsigned char *row,
                    int64_t sample) {
    char why[128];
    const unsigned char *pixels = row;
    const enum dr_dtype type = s->main.graph->value.at[k->value].dtype;
    if (type != DR_U8) {
        to_floats(k, type, row);
        for (int64_t i = 0; i < k->row_items; i++) {
            const float x = k->floats[i];
            k->pixels[i] = (unsigned char)lrintf((x > 0 ? x < 1 ? x : 1 : 0) * 255); /* NaN: 0 */
        }
        pixels = k->pixels;
    }
    struct dr_arena *a = dr_arena_create();
    struct dr_text path = {.arena = a};
    png_path(&path, s->data, k->o->png, sample);
    const bool good =
        dr_png_write(path.at, pixels, k->width, k->height, k->channels, why, sizeof why) ||
        cannot(s, path.at, why);
    dr_arena_destroy(a);
    return good;
}

bool dr_outputs_add(struct dr_outputs_files *o, const struct dr_record *r) {
    const struct dr_batch *header = dr_record_value(r, r->plan->g->header);
    for (uint32_t i = 0; i < o->n; i++) {
        struct sink *k = &o->sink[i];
        const unsigned char *rows = dr_record_value(r, k->value);
        if (k->npy && !add_npy(o->s, k, rows, header->n_valid))
            return false;
        for (uint32_t b = 0; k->o->png && b < header->n_valid; b++)
            if (!add_png(o->s, k, rows + (int64_t)b * k->row_bytes, (int64_t)header->sample[b]))
                return false;
    }
    return true;
}

bool dr_outputs_close(struct dr_outputs_files *o, bool whole) {
    bool good = true;
    for (uint32_t i = 0; o && i < o->n; i++) {
        struct dr_file *npy = o->sink[i].npy;
        const int error = npy && whole && good ? dr_file_commit(npy) : 0;
        if (!whole || (!good && npy))
            dr_file_drop(npy);
        if (error)
            good = cannot(o->s, o->sink[i].o->npy, strerror(error));
        o->sink[i].npy = NULL;
    }
    return good;
}
