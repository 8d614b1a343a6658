/* Data sets: the columns of a split, zipped; which samples make up a batch; the batch itself. */
#include "augment/column.h"
#include "augment/order.h"
#include "kernels/batch.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct dr_dataset {
    const struct dr_model *m;
    const struct dr_split *split;
    struct dr_column *column; /* in the order of split->source */
    uint32_t n_columns;
    int64_t samples, batch, batches;
    bool pad, shuffle;
    struct dr_order order; /* where shuffle */
};

static bool columns_agree(const struct dr_dataset *s) {
    const struct dr_column *a = &s->column[0];
    for (uint32_t i = 1; i < s->n_columns; i++) {
        const struct dr_column *b = &s->column[i];
        if (a->rows != b->rows)
            return dr_error(s->m->diag, b->source->mark,
                            "input '%s' has %lld samples in %s, input '%s' has %lld in %s",
                            b->input->name, (long long)b->rows, b->name, a->input->name,
                            (long long)a->rows, a->name);
    }
    return true;
}

/* Samples, batches and what happens to the tail. */
static bool settle(struct dr_dataset *s, bool training) {
    const struct dr_split *split = s->split;
    s->samples = s->column[0].rows;
    s->batch = s->m->batch;
    s->shuffle = split->shuffle < 0 ? training : split->shuffle == 1;
    s->pad = split->last < 0 ? !training : split->last == 1;
    if (s->samples == 0)
        return dr_error(s->m->diag, split->mark, "split '%s' has no samples", split->name);
    if (!s->pad && s->samples < s->batch)
        return dr_error(s->m->diag, split->mark,
                        "split '%s' has %lld samples, fewer than a batch of %lld; with `last: pad` "
                        "the batch is filled up",
                        split->name, (long long)s->samples, (long long)s->batch);
    s->batches = s->samples / s->batch + (s->pad && s->samples % s->batch != 0);
    if (s->shuffle && (s->samples > UINT32_MAX || !dr_order_init(&s->order, (uint32_t)s->samples)))
        return dr_error(s->m->diag, split->mark,
                        "split '%s' is too large to shuffle: %lld samples; use `shuffle: false`",
                        split->name, (long long)s->samples);
    return true;
}

struct dr_dataset *dr_dataset_open(struct dr_arena *a, const struct dr_model *m, uint32_t split,
                                   bool training) {
    struct dr_dataset *s = DR_NEW(a, struct dr_dataset);
    s->m = m;
    s->split = &m->split.at[split];
    s->n_columns = s->split->source.n;
    s->column = DR_NEW_N(a, struct dr_column, s->n_columns);
    if (s->n_columns == 0) {
        dr_error(m->diag, s->split->mark, "split '%s' feeds no input", s->split->name);
        return NULL;
    }
    bool good = true;
    for (uint32_t i = 0; i < s->n_columns; i++)
        good &= dr_column_open(&s->column[i], m, &s->split->source.at[i]);
    if (good && dr_columns_settle(s->column, s->n_columns, m, s->split) && columns_agree(s) &&
        settle(s, training))
        return s;
    s->shuffle = false; /* if it was to be, the order is not there */
    dr_dataset_close(s);
    return NULL;
}

void dr_dataset_warn(const struct dr_model *m, uint32_t split, struct dr_map *warned) {
    const struct dr_split *s = &m->split.at[split];
    char why[512];
    for (uint32_t i = 0; i < s->source.n; i++) {
        const struct dr_source *x = &s->source.at[i];
        if (dr_column_missing(m, x, why, sizeof why) && dr_map_put(warned, x->path, i) == DR_NONE)
            dr_warn(m->diag, x->mark, "data %s: %s; a run would need it", x->path, why);
    }
}

void dr_dataset_close(struct dr_dataset *s) {
    if (!s)
        return;
    for (uint32_t i = 0; i < s->n_columns; i++)
        dr_column_close(&s->column[i]);
    if (s->shuffle)
        dr_order_free(&s->order);
    s->shuffle = false;
}

int64_t dr_dataset_samples(const struct dr_dataset *s) {
    return s->samples;
}
int64_t dr_dataset_batches(const struct dr_dataset *s) {
    return s->batches;
}
const char *dr_dataset_stem(const struct dr_dataset *s, int64_t sample) {
    for (uint32_t i = 0; i < s->n_columns; i++)
        if (s->column[i].source->kind == DR_SOURCE_FILES)
            return s->column[i].files.stem[sample];
    return NULL;
}
void dr_dataset_paths(const struct dr_dataset *s, struct dr_map *to) {
    for (uint32_t i = 0; i < s->n_columns; i++)
        for (uint32_t j = 0; j < s->column[i].files.n; j++)
            dr_map_put(to, s->column[i].files.path[j], j);
}
bool dr_dataset_reads(const struct dr_dataset *s, const char *path) {
    struct stat st, its;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    for (uint32_t i = 0; i < s->n_columns; i++)
        for (uint32_t j = 0; j < s->column[i].files.n; j++) {
            const char *at = s->column[i].files.path[j], *of = strrchr(at, '/');
            if (strcmp(of ? of + 1 : at, name) == 0 && stat(at, &its) == 0 &&
                its.st_ino == st.st_ino && its.st_dev == st.st_dev)
                return true;
        }
    return false;
}
bool dr_dataset_pads(const struct dr_dataset *s) {
    return s->pad && s->samples % s->batch != 0;
}

static const struct dr_column *column_of(const struct dr_dataset *s, uint32_t input) {
    for (uint32_t i = 0; i < s->n_columns; i++)
        if (s->column[i].source->input == input)
            return &s->column[i];
    return NULL;
}

/* ---- class numbers, all of them, before the run ---- */

static bool check_rows(const struct dr_dataset *s, const struct dr_column *c,
                       const struct dr_column_want *w) {
    enum { SHOWN = 5 };
    struct {
        int64_t row, value;
    } bad[SHOWN];
    int64_t n = 0, value;
    for (int64_t i = 0; i < c->rows; i++)
        if (dr_column_offender(c, w, i, &value)) {
            if (n < SHOWN) {
                bad[n].row = c->first + i;
                bad[n].value = value;
            }
            n++;
        }
    if (n == 0)
        return true;
    char range[96];
    const struct dr_mark nowhere = {0};
    dr_column_allowed(c, w, range, sizeof range);
    dr_error(s->m->diag, c->source->mark, "%s, row %lld: value %lld, input '%s' takes %s", c->name,
             (long long)bad[0].row, (long long)bad[0].value, c->input->name, range);
    for (int64_t i = 1; i < n && i < SHOWN; i++)
        dr_note(s->m->diag, nowhere, "row %lld: value %lld", (long long)bad[i].row,
                (long long)bad[i].value);
    if (n > SHOWN)
        dr_note(s->m->diag, nowhere, "and %lld more rows", (long long)(n - SHOWN));
    return false;
}

bool dr_dataset_check(struct dr_dataset *s, const struct dr_column_want *want, uint32_t n) {
    bool good = true;
    for (uint32_t i = 0; i < n; i++) {
        const struct dr_column *c = want[i].input == DR_NONE ? NULL : column_of(s, want[i].input);
        if (!c)
            continue;
        if (c->source->kind == DR_SOURCE_FILES)
            good &= dr_column_check_files(c, s->m);
        else if (c->source->kind == DR_SOURCE_FOLDERS)
            good &= dr_column_check_folders(c, s->m, &want[i]);
        else if (!dr_column_is_classes(c))
            continue;
        else if (dr_column_in_memory(c))
            good &= check_rows(s, c, &want[i]);
        else if (want[i].classes <= 0 && c->source->synthetic != DR_SYNTHETIC_ZEROS)
            good &= dr_error(s->m->diag, c->source->mark,
                             "input '%s' is synthetic, and nothing says how many classes it has",
                             c->input->name);
    }
    return good;
}

/* ---- batches ---- */

static void fill_header(struct dr_dataset *s, uint64_t seed, uint64_t step, struct dr_batch *head) {
    const uint64_t epoch = step / (uint64_t)s->batches;
    const int64_t first = (int64_t)(step % (uint64_t)s->batches) * s->batch;
    const int64_t left = s->samples - first;
    head->step = step;
    head->epoch = (uint32_t)epoch;
    head->n_valid = (uint32_t)(left < s->batch ? left : s->batch);
    const struct dr_permutation *p =
        s->shuffle ? dr_order_take(&s->order, seed, head->epoch) : NULL;
    for (int64_t i = 0; i < s->batch; i++) {
        const int64_t at = first + (i < head->n_valid ? i : head->n_valid - 1);
        head->sample[i] = p ? p->at[at] : (uint64_t)at;
    }
    if (p)
        dr_order_give(&s->order, p);
}

static bool fill_column(const struct dr_dataset *s, const struct dr_column_want *w, uint64_t seed,
                        const struct dr_batch *head, unsigned char *to, char *why, size_t why_n) {
    const struct dr_column *c = column_of(s, w->input);
    if (!c) {
        snprintf(why, why_n, "split '%s' does not feed input '%s'", s->split->name,
                 s->m->input.at[w->input].name);
        return false;
    }
    const size_t bytes = (size_t)c->items * dr_dtype_bytes(w->dtype);
    for (int64_t i = 0; i < s->batch; i++) {
        unsigned char *at = to + (size_t)i * bytes;
        if (i >= head->n_valid)
            memcpy(at, to + (size_t)(head->n_valid - 1) * bytes, bytes);
        else if (!dr_column_read(c, w, seed, (int64_t)head->sample[i], at, why, why_n))
            return false;
    }
    return true;
}

bool dr_dataset_fill(struct dr_dataset *s, const struct dr_column_want *want, uint32_t n,
                     const struct dr_ring *ring, uint64_t seed, uint64_t step, unsigned char *slot,
                     char *why, size_t why_n) {
    struct dr_batch *head = (struct dr_batch *)(void *)(slot + ring->offset[n]);
    fill_header(s, seed, step, head);
    for (uint32_t i = 0; i < n; i++)
        if (want[i].input != DR_NONE &&
            !fill_column(s, &want[i], seed, head, slot + ring->offset[i], why, why_n))
            return false;
    return true;
}

const char *dr_dataset_batch(struct dr_dataset *s, const struct dr_column_want *want, uint32_t n,
                             const struct dr_ring *ring, uint64_t seed, uint64_t step,
                             unsigned char *slot) {
    static _Thread_local char why[512]; /* any thread, no allocation */
    return dr_dataset_fill(s, want, n, ring, seed, step, slot, why, sizeof why) ? NULL : why;
}
