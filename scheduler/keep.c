/* The log and the saves of a training run. See keep.h. */
#include "scheduler/keep.h"

#include "ops/table.h"
#include "scheduler/checkpoint.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool cannot(struct dr_session *s, const char *path, int error) {
    return dr_session_fail(s, DR_FAILED, "cannot write %s: %s", path, strerror(error));
}

/* Known before the run: a mistake of the one who named the file. */
static bool refused(struct dr_session *s, struct dr_mark mark, const char *what, const char *path,
                    int error) {
    return dr_error(s->diag, mark, "%s: cannot write %s: %s", what, path, strerror(error));
}

/* ---- the log ---- */

/* A name as a field (RFC 4180). */
static void add_field(struct dr_text *t, const char *before, const char *name) {
    dr_text_add(t, ",%s", strpbrk(name, ",\"\r\n") ? "\"" : "");
    dr_text_add(t, "%s", before);
    for (const char *c = name; *c; c++) {
        if (*c == '"')
            dr_text_bytes(t, "\"", 1);
        dr_text_bytes(t, c, 1);
    }
    if (strpbrk(name, ",\"\r\n"))
        dr_text_bytes(t, "\"", 1);
}

static const char *header(const struct dr_keep *k, const struct dr_results *r) {
    struct dr_text t = {.arena = k->s->arena};
    const struct dr_graph *g = k->s->main.graph;
    dr_text_add(&t, "step,epoch");
    for (uint32_t i = 0; i < g->optimizer.n; i++) {
        const bool train = !strcmp(g->optimizer.at[i].where, "train");
        add_field(&t, train ? "" : "lr.", train ? "lr" : g->optimizer.at[i].where);
    }
    for (uint32_t i = 0; i < r->train.n_losses; i++)
        add_field(&t, "", r->train.loss[i].name);
    if (r->train.n_losses > 1)
        add_field(&t, "", "total");
    for (uint32_t i = 0; i < r->eval.n_losses && k->eval_columns; i++)
        add_field(&t, "eval.", r->eval.loss[i].name);
    for (uint32_t i = 0; i < r->eval.n_metrics && k->eval_columns; i++)
        add_field(&t, "", r->eval.metric[i].name);
    return t.at;
}

/* Where the lines up to a step end in a log with this header; 0: another log, begin afresh. */
static long kept_bytes(FILE *f, const char *head, int64_t step) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = getline(&line, &cap, f);
    long end = 0;
    if (n > 1 && (size_t)n == strlen(head) + 1 && !strncmp(line, head, (size_t)n - 1)) {
        end = n;
        while ((n = getline(&line, &cap, f)) > 0 && line[n - 1] == '\n' &&
               strtoll(line, NULL, 10) <= step)
            end += n;
    }
    free(line);
    return end;
}

static bool open_log(struct dr_keep *k, const struct dr_results *r) {
    struct dr_session *s = k->s;
    const char *path = s->model->train.log, *head = header(k, r);
    const struct dr_mark mark = s->model->train.log_mark;
    long end = 0;
    const int error = dr_make_folders(path);
    if (error)
        return refused(s, mark, "train.log", path, error);
    k->log = s->first_step ? fopen(path, "r+") : NULL;
    if (k->log) {
        end = kept_bytes(k->log, head, s->first_step);
        if (fseek(k->log, end, SEEK_SET) || ftruncate(fileno(k->log), end))
            return refused(s, mark, "train.log", path, errno);
    } else {
        k->log = fopen(path, "w");
    }
    if (!k->log)
        return refused(s, mark, "train.log", path, errno);
    setvbuf(k->log, NULL, _IOLBF, 0); /* to be watched while it grows */
    if (!end && fprintf(k->log, "%s\n", head) < 0)
        return refused(s, mark, "train.log", path, errno);
    return true;
}

static void end_row(struct dr_keep *k, const struct dr_tally *eval) {
    if (!k->row)
        return;
    for (uint32_t i = 0; i < k->eval_columns; i++) {
        const uint32_t metric = i - (eval ? eval->n_losses : 0);
        if (eval)
            fprintf(k->log, ",%.9g",
                    i < eval->n_losses ? eval->loss[i].mean : eval->metric[metric].mean);
        else
            fputc(',', k->log);
    }
    fputc('\n', k->log);
    k->row = false;
}

void dr_keep_step(struct dr_keep *k, int64_t step, const struct dr_tally *t) {
    if (!k->log)
        return;
    const struct dr_graph *g = k->s->main.graph;
    end_row(k, NULL);
    fprintf(k->log, "%lld,%lld", (long long)step + 1, (long long)(step / k->s->batches) + 1);
    for (uint32_t i = 0; i < g->optimizer.n; i++)
        fprintf(k->log, ",%.9g", dr_lr_rate(&g->optimizer.at[i].lr, step));
    for (uint32_t i = 0; i < t->n_losses; i++)
        fprintf(k->log, ",%.9g", t->loss[i].last);
    if (t->n_losses > 1)
        fprintf(k->log, ",%.9g", t->total_last);
    k->row = true;
}

/* ---- saving ---- */

/* Better than any before it, by the metric or loss that `best:` names. */
static bool is_best(struct dr_keep *k, const struct dr_tally *eval) {
    const char *name = k->s->model->train.save_best;
    double x = (double)NAN;
    bool larger = false;
    for (uint32_t i = 0; i < eval->n_losses; i++)
        if (!strcmp(eval->loss[i].name, name))
            x = eval->loss[i].mean;
    for (uint32_t i = 0; i < eval->n_metrics; i++)
        if (!strcmp(eval->metric[i].name, name)) {
            x = eval->metric[i].mean;
            larger = true;
        }
    if (isnan(x) || (!isnan(k->best) && !(larger ? x > k->best : x < k->best)))
        return false;
    k->best = x;
    return true;
}

bool dr_keep_evaluated(struct dr_keep *k, const struct dr_tally *eval) {
    const struct dr_model *m = k->s->model;
    if (k->log)
        end_row(k, eval);
    return !m->train.save || !m->train.save_best || !is_best(k, eval) ||
           dr_checkpoint_write(k->s, m->train.save, NULL, (double)NAN);
}

static bool can_write(struct dr_session *s, struct dr_mark mark, const char *what,
                      const char *path) {
    const int error = path ? dr_file_try(path) : 0;
    return !error || refused(s, mark, what, path, error);
}

bool dr_keep_open(struct dr_keep *k, struct dr_session *s, struct dr_results *r) {
    const struct dr_model *m = s->model;
    *k = (struct dr_keep){.s = s, .best = (double)NAN};
    k->eval_columns = s->with_eval ? r->eval.n_losses + r->eval.n_metrics : 0;
    dr_checkpoint_restore(s, &r->train, &k->best);
    bool good = can_write(s, m->train.save_mark, "train.save", m->train.save);
    good &= can_write(s, (struct dr_mark){0}, "--save", s->save);
    return good && (!m->train.log || open_log(k, r)); /* an old log is kept till all is well */
}

bool dr_keep_close(struct dr_keep *k, const struct dr_results *r, bool save) {
    struct dr_session *s = k->s;
    const struct dr_model *m = s->model;
    bool good = true;
    if (k->log) {
        end_row(k, NULL);
        const bool bad = ferror(k->log);
        if (fclose(k->log) || bad)
            good = cannot(s, m->train.log, errno ? errno : EIO);
        k->log = NULL;
    }
    if (!save)
        return good;
    if (m->train.save && (!m->train.save_best || isnan(k->best)))
        good &= dr_checkpoint_write(s, m->train.save, NULL, (double)NAN);
    if (s->save)
        good &= dr_checkpoint_write(s, s->save, r, k->best);
    return good;
}
