/* Checkpoints. See checkpoint.h. */
#include "scheduler/checkpoint.h"

#include "graph/scalar.h"
#include "scheduler/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the kernels chosen ---- */

const char *dr_checkpoint_kernels(struct dr_session *s) {
    struct dr_text t = {.arena = s->arena};
    const struct dr_plan *p = s->main.plan;
    dr_text_add(&t, "%s", s->dev.cuda ? s->dev.name : "cpu");
    for (uint32_t v = 0; v < p->n_nodes; v++)
        dr_text_add(&t, "\n%s %s %s", p->g->node.at[v].name, p->g->node.at[v].op->name,
                    p->choice[v].kernel ? p->choice[v].kernel : "");
    return dr_printf(s->arena, "%016llx", (unsigned long long)dr_hash(t.at, t.n));
}

/* ---- writing ---- */

typedef DR_VEC(struct dr_safetensors_note) notes;

static void note(struct dr_session *s, notes *n, const char *key, const char *value) {
    *dr_push(s->arena, n) = (struct dr_safetensors_note){key, value};
}

static void note_number(struct dr_session *s, notes *n, const char *key, long long x) {
    note(s, n, key, dr_printf(s->arena, "%lld", x));
}

/* Hexadecimal: all of its bits. */
static const char *exact(struct dr_session *s, double x) {
    return dr_printf(s->arena, "%a", x);
}

static uint32_t sums(const struct dr_graph *g, uint32_t term) {
    return (uint32_t)(g->value.at[g->term.at[term].partial].bytes / (int64_t)sizeof(double));
}

/* What `best:` compares: "acc (accuracy)". A name alone may stand for another op, where less is
 * better. NULL: there is no `best:`. */
static const char *best_of(const struct dr_session *s) {
    const struct dr_model *m = s->model;
    for (uint32_t i = 0; m->train.save_best && i < m->loss.n + m->metric.n; i++) {
        const struct dr_loss *t = i < m->loss.n ? &m->loss.at[i] : &m->metric.at[i - m->loss.n];
        if (!strcmp(t->name, m->train.save_best))
            return dr_printf(s->arena, "%s (%s)", t->name, t->op->name);
    }
    return NULL;
}

static void note_position(struct dr_session *s, notes *n, const struct dr_results *r, double best) {
    const struct dr_graph *g = s->main.graph;
    note_number(s, n, DR_NOTE_STEP, (long long)r->steps);
    note_number(s, n, "dagrun.epoch", (long long)(s->batches ? r->steps / s->batches : 0));
    note(s, n, "dagrun.seed", dr_printf(s->arena, "%llu", (unsigned long long)s->model->seed));
    note_number(s, n, "dagrun.batch", (long long)g->batch);
    note_number(s, n, "dagrun.batches", (long long)s->batches);
    note(s, n, "dagrun.kernels", dr_checkpoint_kernels(s));
    note(s, n, "dagrun.best", exact(s, best));
    if (best_of(s))
        note(s, n, "dagrun.best_of", best_of(s));
    note_number(s, n, "dagrun.epoch_steps", (long long)r->train.steps);
    for (uint32_t i = 0; i < g->term.n; i++) {
        struct dr_text t = {.arena = s->arena};
        for (uint32_t k = 0; k < sums(g, i); k++)
            dr_text_add(&t, "%s%a", k ? " " : "", r->train.sum[i][k]);
        note(s, n, dr_printf(s->arena, "dagrun.sum.%s", g->term.at[i].name), t.at);
    }
}

struct stored { /* a state that goes into the file */
    const struct dr_plan *plan;
    uint32_t value;
};
typedef DR_VEC(struct stored) stored_list;

static bool is_weight(const struct dr_value *v) {
    return v->cls == DR_WEIGHT || v->cls == DR_BUFFER;
}

static void collect(struct dr_session *s, stored_list *out, const struct dr_plan *p, bool weights,
                    const struct dr_graph *beside) {
    for (uint32_t i = 0; i < p->g->value.n; i++) {
        const struct dr_value *v = &p->g->value.at[i];
        if (v->kind == DR_STATE && v->cls != DR_HEALTH && is_weight(v) == weights &&
            (!beside || dr_map_get(beside->value_by_name, v->name) == DR_NONE))
            *dr_push(s->arena, out) = (struct stored){p, i};
    }
}

static bool write_state(struct dr_session *s, const struct stored *x, struct dr_file *f,
                        const char *path) {
    const struct dr_memory m = dr_session_memory(s);
    const struct dr_value *v = &x->plan->g->value.at[x->value];
    const size_t n = (size_t)v->bytes;
    unsigned char *ours = malloc(2 * n + 1), *file = ours + n;
    if (!ours)
        return dr_session_fail(s, DR_NO_DEVICE, "out of host memory: a copy of '%s'", v->name);
    bool good = dr_session_check(s, dr_state_download(&m, x->plan, x->value, ours));
    if (good && is_weight(v))
        dr_weights_write(v, (const float *)(void *)ours, (float *)(void *)file);
    const int error = good ? dr_file_write(f, is_weight(v) ? file : ours, n) : 0;
    if (error)
        good = dr_session_fail(s, DR_FAILED, "cannot write %s: %s", path, strerror(error));
    free(ours);
    return good;
}

static bool describe(struct dr_session *s, const struct stored *x, const char *path,
                     struct dr_safetensors_entry *e) {
    const struct dr_value *v = &x->plan->g->value.at[x->value];
    *e = (struct dr_safetensors_entry){.name = v->name, .dtype = v->dtype, .rank = v->shape.rank};
    memcpy(e->dim, v->shape.dim, v->shape.rank * sizeof *e->dim);
    if (is_weight(v))
        dr_weights_shape(v, e);
    return dr_safetensors_name(v->name) ||
           dr_session_fail(s, DR_FAILED, "cannot write %s: '%s' has a control character", path,
                           v->name);
}

bool dr_checkpoint_write(struct dr_session *s, const char *path, const struct dr_results *r,
                         double best) {
    stored_list list = {0};
    notes n = {0};
    struct dr_file *f = NULL;
    note(s, &n, "format", "pt");
    note(s, &n, "dagrun.version", DR_VERSION);
    note(s, &n, "dagrun.model", s->model->name);
    collect(s, &list, s->main.plan, true, NULL);
    if (s->with_eval)
        collect(s, &list, s->eval.plan, true, s->main.graph);
    if (r) {
        note_position(s, &n, r, best);
        collect(s, &list, s->main.plan, false, NULL);
    }
    struct dr_safetensors_entry *e = DR_NEW_N(s->arena, struct dr_safetensors_entry, list.n + 1);
    for (uint32_t i = 0; i < list.n; i++)
        if (!describe(s, &list.at[i], path, &e[i]))
            return false;
    int error = dr_safetensors_create(&f, path, e, list.n, n.at, n.n);
    if (error)
        return dr_session_fail(s, DR_FAILED, "cannot write %s: %s", path, strerror(error));
    for (uint32_t i = 0; i < list.n; i++)
        if (!write_state(s, &list.at[i], f, path)) {
            dr_file_drop(f);
            return false;
        }
    error = dr_file_commit(f);
    return !error || dr_session_fail(s, DR_FAILED, "cannot write %s: %s", path, strerror(error));
}

/* ---- going on ---- */

static bool wrong(struct dr_session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool wrong(struct dr_session *s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = dr_vprintf(s->arena, fmt, ap);
    va_end(ap);
    return dr_error(s->diag, (struct dr_mark){0}, "--resume %s: %s", s->resume, text);
}

static bool same_shape(const struct dr_value *v, const struct dr_tensor *t) {
    static const char *const names[DR_DTYPES] = {
        [DR_U8] = "U8",   [DR_U16] = "U16",   [DR_I32] = "I32", [DR_I64] = "I64",
        [DR_F16] = "F16", [DR_BF16] = "BF16", [DR_F32] = "F32", [DR_F64] = "F64"};
    if (strcmp(names[v->dtype], t->dtype) != 0 || v->shape.rank != t->rank)
        return false;
    for (uint32_t i = 0; i < t->rank; i++)
        if (v->shape.dim[i] != t->dim[i])
            return false;
    return true;
}

static bool find_moments(struct dr_session *s) {
    const struct dr_graph *g = s->main.graph;
    bool good = true;
    for (uint32_t i = 0; i < g->value.n; i++) {
        const struct dr_value *v = &g->value.at[i];
        if (v->kind != DR_STATE || v->cls == DR_HEALTH || is_weight(v))
            continue;
        const struct dr_tensor *t = dr_safetensors_find(s->checkpoint, v->name);
        if (!t)
            good = wrong(s, "it has no '%s': another optimizer or precision wrote it", v->name);
        else if (!same_shape(v, t))
            good = wrong(s, "'%s' is %s; the model has %s %s", v->name, dr_tensor_text(s->arena, t),
                         dr_dtype_name(v->dtype), dr_shape_text(s->arena, &v->shape));
        s->tensor[i] = t;
    }
    return good;
}

/* A count among the notes. */
static bool number(struct dr_session *s, const char *key, int64_t *out) {
    const char *text = dr_safetensors_note(s->checkpoint, key);
    if (!text)
        return wrong(s, "its note '%s' is missing", key);
    return (dr_parse_int(text, out) && *out >= 0) ||
           wrong(s, "its note '%s' is '%s', not a count", key, text);
}

/* n numbers with blanks between; false where the text is anything else. */
static bool reals(const char *text, double *out, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        char *end;
        out[i] = strtod(text, &end);
        if (end == text || (*end != ' ' && *end))
            return false;
        text = end;
    }
    return !*text;
}

static const char *sum_key(const struct dr_session *s, const struct dr_graph *g, uint32_t term) {
    return dr_printf(s->arena, "dagrun.sum.%s", g->term.at[term].name);
}

/* What dr_checkpoint_restore reads; a loss may be new. */
static bool check_sums(struct dr_session *s) {
    const struct dr_graph *g = s->main.graph;
    const char *best = dr_safetensors_note(s->checkpoint, "dagrun.best");
    double x;
    int64_t steps;
    bool good = number(s, "dagrun.epoch_steps", &steps);
    if (best && !reals(best, &x, 1))
        good = wrong(s, "its note 'dagrun.best' is '%s', not a number", best);
    for (uint32_t i = 0; i < g->term.n; i++) {
        const char *key = sum_key(s, g, i), *text = dr_safetensors_note(s->checkpoint, key);
        if (text && !reals(text, DR_NEW_N(s->arena, double, sums(g, i) + 1), sums(g, i)))
            good = wrong(s, "its note '%s' is '%s', not %u numbers", key, text, sums(g, i));
    }
    return good;
}

/* A checkpoint of an older dagrun does not say; most runs go on as they began. */
static bool best_fits(const struct dr_session *s) {
    const char *was = dr_safetensors_note(s->checkpoint, "dagrun.best_of"), *is = best_of(s);
    return is && (!was || !strcmp(was, is));
}

/* After check_sums. */
static void check_best(struct dr_session *s) {
    const char *was = dr_safetensors_note(s->checkpoint, "dagrun.best_of"), *is = best_of(s);
    const char *text = dr_safetensors_note(s->checkpoint, "dagrun.best");
    const struct dr_mark mark = s->model->train.best_mark;
    double best = (double)NAN;
    if (!is || !text || !reals(text, &best, 1) || isnan(best))
        return; /* nothing to compare */
    if (!was)
        dr_warn(s->diag, mark,
                "--resume %s: it does not say what its best value, %g, is of: it is taken for one "
                "of %s",
                s->resume, best, is);
    else if (!best_fits(s))
        dr_warn(s->diag, mark,
                "--resume %s: its best value is of %s: the best of %s is looked for afresh",
                s->resume, was, is);
}

static bool check_position(struct dr_session *s) {
    const char *seed = dr_safetensors_note(s->checkpoint, "dagrun.seed");
    const char *kernels = dr_safetensors_note(s->checkpoint, "dagrun.kernels");
    const struct dr_mark none = {0};
    int64_t batch = 0, batches = 0;
    if (!number(s, DR_NOTE_STEP, &s->first_step) || !number(s, "dagrun.batch", &batch) ||
        !number(s, "dagrun.batches", &batches) || !check_sums(s))
        return false;
    if (s->first_step >= s->total_steps)
        return wrong(s, "it is of step %lld, and training ends at step %lld",
                     (long long)s->first_step, (long long)s->total_steps);
    if (!seed || strtoull(seed, NULL, 10) != s->model->seed)
        return wrong(s, "it was drawn with seed %s, the model says %llu", seed ? seed : "?",
                     (unsigned long long)s->model->seed);
    if (batch != s->main.graph->batch || batches != s->batches)
        return wrong(s, "it is of epochs of %lld batches of %lld, not %lld of %lld",
                     (long long)batches, (long long)batch, (long long)s->batches,
                     (long long)s->main.graph->batch);
    if (!kernels || strcmp(kernels, dr_checkpoint_kernels(s)) != 0)
        dr_warn(s->diag, none,
                "--resume %s: other kernels are chosen now: the run will go on, but not with the "
                "bits of an unbroken one",
                s->resume);
    check_best(s);
    return true;
}

bool dr_checkpoint_open(struct dr_session *s) {
    const uint32_t file = dr_map_get(s->weights.file_by_path, s->resume);
    if (file == DR_NONE)
        return wrong(s, "the model has no weights");
    s->checkpoint = &s->weights.file.at[file].f;
    if (!dr_safetensors_note(s->checkpoint, DR_NOTE_STEP))
        return wrong(s, "it is no checkpoint (--save writes them in training); to begin with its "
                        "weights use --load");
    return find_moments(s) && check_position(s);
}

void dr_checkpoint_restore(const struct dr_session *s, struct dr_tally *t, double *best) {
    *best = (double)NAN;
    if (!s->checkpoint)
        return;
    const char *text = dr_safetensors_note(s->checkpoint, "dagrun.best");
    if (text && best_fits(s))
        reals(text, best, 1);
    text = dr_safetensors_note(s->checkpoint, "dagrun.epoch_steps");
    dr_parse_int(text, &t->steps);
    for (uint32_t i = 0; i < t->g->term.n; i++) {
        text = dr_safetensors_note(s->checkpoint, sum_key(s, t->g, i));
        if (text)
            reals(text, t->sum[i], sums(t->g, i));
    }
}
