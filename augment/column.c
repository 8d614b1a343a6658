/* Columns: opening a source and checking it against its input, and reading one sample as the device
 * wants it. Images keep their type; class numbers may come in any integer width and are checked;
 * floats may be narrowed or widened. */
#include "augment/column.h"
#include "augment/idx.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- items of a file ---- */

/* Little-endian, as the file is. False: an unsigned value that int64 does not hold. */
static inline bool item_int(char kind, uint32_t item, const unsigned char *p, int64_t *out) {
    const bool negative = kind == 'i';
    uint16_t u2;
    uint32_t u4;
    uint64_t u8;
    switch (item) {
    case 1:
        *out = negative ? (int64_t)(int8_t)*p : (int64_t)*p;
        return true;
    case 2:
        memcpy(&u2, p, sizeof u2);
        *out = negative ? (int64_t)(int16_t)u2 : (int64_t)u2;
        return true;
    case 4:
        memcpy(&u4, p, sizeof u4);
        *out = negative ? (int64_t)(int32_t)u4 : (int64_t)u4;
        return true;
    default:
        memcpy(&u8, p, sizeof u8);
        *out = (int64_t)u8;
        return negative || *out >= 0;
    }
}

/* IEEE 754 binary16, by hand: _Float16 is not everywhere. */
static double half(uint16_t h) {
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    double v;
    if (exponent == 31)
        v = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        v = ldexp(fraction, -24);
    else
        v = ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -v : v;
}

static double item_float(uint32_t item, const unsigned char *p) {
    if (item == 2) {
        uint16_t h;
        memcpy(&h, p, sizeof h);
        return half(h);
    }
    if (item == 4) {
        float f;
        memcpy(&f, p, sizeof f);
        return (double)f;
    }
    double d;
    memcpy(&d, p, sizeof d);
    return d;
}

static float narrow(double v) { /* past the range of float: infinity, as numpy converts */
    return v > FLT_MAX    ? (v < 3.4028235677973366e38 ? FLT_MAX : INFINITY)
           : v < -FLT_MAX ? (v > -3.4028235677973366e38 ? -FLT_MAX : -INFINITY)
                          : (float)v;
}

static const char *item_name(struct dr_arena *a, const struct dr_npy *n) {
    return n->kind == 'b' ? "bool" : dr_printf(a, "%c%u", n->kind, (unsigned)n->item * 8);
}

/* ---- opening ---- */

static bool is_float(enum dr_dtype t) {
    return t == DR_F16 || t == DR_BF16 || t == DR_F32 || t == DR_F64;
}

bool dr_column_is_classes(const struct dr_column *c) {
    return (c->input->meaning == DR_LABEL || c->input->meaning == DR_MASK) &&
           !is_float(c->input->dtype);
}

static bool type_fits(const struct dr_column *c) {
    const enum dr_dtype t = c->input->dtype;
    const struct dr_npy *n = &c->npy;
    if (dr_column_is_classes(c))
        return n->kind != 'f';
    switch (t) {
    case DR_U8:
    case DR_U16:
        return n->kind == 'u' && n->item == dr_dtype_bytes(t);
    case DR_I32:
    case DR_I64:
        return n->kind == 'i' && n->item == dr_dtype_bytes(t);
    case DR_F32:
    case DR_F64:
        return n->kind == 'f';
    default: /* f16 as it is; bf16 has no npy form */
        return t == DR_F16 && n->kind == 'f' && n->item == 2;
    }
}

/* The file's sample shape is the declared one, or lacks a channel axis of 1. */
static bool shape_fits(const struct dr_npy *n, const struct dr_shape *s) {
    if (n->rank == 0)
        return false;
    const uint32_t rank = n->rank - 1;
    if (rank != s->rank && !(rank + 1 == s->rank && s->dim[rank] == 1))
        return false;
    for (uint32_t i = 0; i < rank; i++)
        if (n->dim[i + 1] != s->dim[i])
            return false;
    return true;
}

static const char *file_shape(struct dr_arena *a, const struct dr_npy *n) {
    struct dr_text t = {.arena = a};
    dr_text_add(&t, "[");
    for (uint32_t i = 0; i < n->rank; i++)
        dr_text_add(&t, "%s%lld", i ? ", " : "", (long long)n->dim[i]);
    dr_text_add(&t, "]");
    return t.at;
}

static bool open_array(struct dr_column *c, const struct dr_model *m) {
    const struct dr_mark mark = c->source->mark;
    const struct dr_input *in = c->input;
    char why[256];
    if (!(c->source->kind == DR_SOURCE_IDX ? dr_idx_open : dr_npy_open)(c->source->path, &c->npy,
                                                                        why, sizeof why))
        return dr_error(m->diag, mark, "%s: %s", c->name, why);
    if (!type_fits(c))
        return dr_error(m->diag, mark, "%s holds %s, input '%s' is declared %s", c->name,
                        item_name(m->arena, &c->npy), in->name, dr_dtype_name(in->dtype));
    if (!shape_fits(&c->npy, &in->shape))
        return dr_error(m->diag, mark, "%s is %s: samples of input '%s' are declared %s", c->name,
                        file_shape(m->arena, &c->npy), in->name,
                        dr_shape_text(m->arena, &in->shape));
    c->rows = c->npy.dim[0];
    return true;
}

/* Pictures for an image, labels for a label: the input says which. */
static bool open_cifar(struct dr_column *c, const struct dr_model *m) {
    const struct dr_input *in = c->input;
    const struct dr_mark mark = c->source->mark;
    const struct dr_shape picture = DR_SHAPE(32, 32, 3);
    char why[512];
    const bool image = in->dtype == DR_U8 && dr_shape_equal(&in->shape, &picture);
    const bool label = dr_column_is_classes(c) && in->shape.rank == 0;
    if (!image && !label)
        return dr_error(m->diag, mark,
                        "%s has images, u8 of [32, 32, 3], and integer labels of []; input '%s' is "
                        "%s of %s",
                        c->name, in->name, dr_dtype_name(in->dtype),
                        dr_shape_text(m->arena, &in->shape));
    if (!dr_files_list(m->arena, c->source, &c->files, why, sizeof why) ||
        !dr_cifar_open(m->arena, &c->files, &c->cifar, why, sizeof why))
        return dr_error(m->diag, mark, "%s: %s", c->name, why);
    c->npy.kind = 'u';
    c->npy.item = 1;
    c->rows = c->cifar.records;
    return true;
}

static bool open_synthetic(struct dr_column *c, const struct dr_model *m) {
    const enum dr_dtype t = c->input->dtype;
    if (t == DR_F16 || t == DR_BF16)
        return dr_error(m->diag, c->source->mark, "synthetic data cannot make %s (input '%s')",
                        dr_dtype_name(t), c->input->name);
    c->rows = c->source->rows;
    return true;
}

static bool open_kind(struct dr_column *c, const struct dr_model *m) {
    switch (c->source->kind) {
    case DR_SOURCE_NPY:
    case DR_SOURCE_IDX:
        return open_array(c, m);
    case DR_SOURCE_CIFAR10:
        return open_cifar(c, m);
    case DR_SOURCE_FILES:
        return dr_column_open_files(c, m);
    case DR_SOURCE_SYNTHETIC:
        return open_synthetic(c, m);
    default: /* folders: dr_columns_settle */
        return true;
    }
}

static const char *name_of(struct dr_arena *a, const struct dr_model *m,
                           const struct dr_source *s) {
    static const char *const kinds[] = {"files", "npy", "idx", "cifar10", "synthetic", "folders"};
    return s->kind == DR_SOURCE_SYNTHETIC ? "synthetic data"
           : s->kind == DR_SOURCE_FOLDERS
               ? dr_printf(a, "folders of '%s'", m->input.at[s->of].name)
               : dr_printf(a, "%s '%s'", kinds[s->kind], s->path ? s->path : "");
}

bool dr_column_missing(const struct dr_model *m, const struct dr_source *s, char *why,
                       size_t why_n) {
    struct dr_files files;
    if (s->kind == DR_SOURCE_FILES || s->kind == DR_SOURCE_CIFAR10)
        return !dr_files_list(m->arena, s, &files, why, why_n);
    if (!s->path || access(s->path, R_OK) == 0)
        return false;
    snprintf(why, why_n, "%s", strerror(errno));
    return s->kind != DR_SOURCE_IDX || access(dr_printf(m->arena, "%s.gz", s->path), R_OK) != 0;
}

bool dr_column_open(struct dr_column *c, const struct dr_model *m, const struct dr_source *src) {
    c->source = src;
    c->input = &m->input.at[src->input];
    c->name = name_of(m->arena, m, src);
    if (!dr_shape_elements(&c->input->shape, &c->items))
        return dr_error(m->diag, c->input->mark, "input '%s' is too large", c->input->name);
    if (!open_kind(c, m))
        return false;
    if (!src->has_range || src->kind == DR_SOURCE_FOLDERS)
        return true;
    if (src->from < 0 || src->from > src->to || src->to > c->rows)
        return dr_error(m->diag, src->mark, "rows [%lld, %lld] are not within the %lld rows of %s",
                        (long long)src->from, (long long)src->to, (long long)c->rows, c->name);
    c->first = src->from;
    c->rows = src->to - src->from;
    return true;
}

void dr_column_close(struct dr_column *c) {
    dr_npy_close(&c->npy);
    dr_cifar_close(&c->cifar);
    dr_decoders_destroy(c->decoders);
    c->decoders = NULL;
}

/* ---- reading ---- */

struct limits {
    int64_t low, high, ignore; /* ignore 0: none */
};

static struct limits limits(const struct dr_column_want *w) {
    static const int64_t high[DR_DTYPES] = {
        [DR_U8] = UINT8_MAX, [DR_U16] = UINT16_MAX, [DR_I32] = INT32_MAX, [DR_I64] = INT64_MAX};
    struct limits l = {0, high[w->dtype], w->ignore};
    if (w->dtype == DR_I32 || w->dtype == DR_I64)
        l.low = -l.high - 1;
    if (l.ignore < l.low || l.ignore > l.high)
        l.ignore = 0; /* the device's type has no such number */
    if (w->classes > 0) {
        l.low = 0;
        if (w->classes - 1 < l.high)
            l.high = w->classes - 1;
    }
    return l;
}

void dr_column_allowed(const struct dr_column *c, const struct dr_column_want *w, char *text,
                       size_t n) {
    const struct limits l = limits(w);
    const bool can_be_there = l.ignore > l.high || (l.ignore < l.low && c->npy.kind == 'i');
    const int at = snprintf(text, n, "%lld to %lld", (long long)l.low, (long long)l.high);
    if (can_be_there && at > 0 && (size_t)at < n)
        snprintf(text + at, n - (size_t)at, " or %lld", (long long)l.ignore);
}

static bool allowed(const struct limits *l, int64_t v) {
    return (v >= l->low && v <= l->high) || (l->ignore != 0 && v == l->ignore);
}

bool dr_column_in_memory(const struct dr_column *c) {
    return c->source->kind == DR_SOURCE_NPY || c->source->kind == DR_SOURCE_IDX ||
           c->source->kind == DR_SOURCE_CIFAR10;
}

static const unsigned char *row_of(const struct dr_column *c, int64_t sample) {
    if (c->source->kind == DR_SOURCE_CIFAR10) /* its label comes first */
        return dr_cifar_record(&c->cifar, c->first + sample);
    return c->npy.data + (size_t)(c->first + sample) * (size_t)c->items * c->npy.item;
}

bool dr_column_offender(const struct dr_column *c, const struct dr_column_want *w, int64_t sample,
                        int64_t *value) {
    const struct limits l = limits(w);
    const unsigned char *p = row_of(c, sample);
    for (int64_t i = 0; i < c->items; i++, p += c->npy.item)
        if (!item_int(c->npy.kind, c->npy.item, p, value) || !allowed(&l, *value))
            return true;
    return false;
}

static void store_int(enum dr_dtype t, void *to, int64_t i, int64_t v) {
    if (t == DR_U8)
        ((uint8_t *)to)[i] = (uint8_t)v;
    else if (t == DR_U16)
        ((uint16_t *)to)[i] = (uint16_t)v;
    else if (t == DR_I32)
        ((int32_t *)to)[i] = (int32_t)v;
    else
        ((int64_t *)to)[i] = v;
}

bool dr_column_store(const struct dr_column *c, const struct dr_column_want *w, char kind,
                     uint32_t item, const unsigned char *p, void *to, int64_t *bad) {
    const struct limits l = limits(w);
    for (int64_t i = 0; i < c->items; i++, p += item) {
        int64_t v;
        if (!item_int(kind, item, p, &v) || !allowed(&l, v)) {
            *bad = v;
            return false;
        }
        store_int(w->dtype, to, i, v);
    }
    return true;
}

static bool read_classes(const struct dr_column *c, const struct dr_column_want *w, int64_t sample,
                         void *to, char *why, size_t why_n) {
    int64_t bad;
    char range[96];
    if (dr_column_store(c, w, c->npy.kind, c->npy.item, row_of(c, sample), to, &bad))
        return true;
    dr_column_allowed(c, w, range, sizeof range);
    snprintf(why, why_n, "%s, row %lld: value %lld, input '%s' takes %s", c->name,
             (long long)(c->first + sample), (long long)bad, c->input->name, range);
    return false;
}

static void read_plain(const struct dr_column *c, enum dr_dtype t, int64_t sample, void *to) {
    const unsigned char *p = row_of(c, sample);
    const uint32_t item = c->npy.item;
    if (item == dr_dtype_bytes(t)) {
        memcpy(to, p, (size_t)c->items * item);
        return;
    }
    for (int64_t i = 0; i < c->items; i++, p += item) {
        if (t == DR_F32)
            ((float *)to)[i] = narrow(item_float(item, p));
        else
            ((double *)to)[i] = item_float(item, p);
    }
}

static bool read_synthetic(const struct dr_column *c, const struct dr_column_want *w, uint64_t seed,
                           int64_t sample, void *to, char *why, size_t why_n) {
    const bool classes = dr_column_is_classes(c);
    if (classes && w->classes <= 0 && c->source->synthetic != DR_SYNTHETIC_ZEROS) {
        snprintf(why, why_n, "input '%s' is synthetic, and nothing says how many classes it has",
                 c->input->name);
        return false;
    }
    dr_synthetic_fill((int)c->source->synthetic, seed, c->source->input,
                      (uint64_t)(c->first + sample), w->dtype, classes ? limits(w).high + 1 : 0,
                      c->items, to);
    return true;
}

bool dr_column_read(const struct dr_column *c, const struct dr_column_want *w, uint64_t seed,
                    int64_t sample, void *to, char *why, size_t why_n) {
    if (c->source->kind == DR_SOURCE_SYNTHETIC)
        return read_synthetic(c, w, seed, sample, to, why, why_n);
    if (c->source->kind == DR_SOURCE_FILES)
        return dr_column_read_file(c, w, sample, to, why, why_n);
    if (c->source->kind == DR_SOURCE_FOLDERS) {
        DR_ASSERT(c->n_folders <= INT32_MAX);
        store_int(w->dtype, to, 0, c->folder[sample]);
        return true;
    }
    if (dr_column_is_classes(c))
        return read_classes(c, w, sample, to, why, why_n);
    DR_ASSERT(w->dtype == c->input->dtype);
    if (c->source->kind == DR_SOURCE_CIFAR10)
        dr_cifar_pixels(row_of(c, sample), to);
    else
        read_plain(c, w->dtype, sample, to);
    return true;
}
