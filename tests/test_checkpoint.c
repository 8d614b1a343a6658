/* What a run leaves behind: checkpoints that go on bit for bit, saves, the log, and the files of
 * inference. */
#include "augment/npy.h"
#include "graph/safetensors.h"
#include "scheduler/run.h"
#include "tests/fake_cli.h"

#include <criterion/criterion.h>
#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- runs ---- */

struct job {
    const char *yaml, *sets[8]; /* end with NULL */
    const char *load, *resume, *save;
    int64_t steps; /* 0: all */
    int64_t stop_at;
};
struct done {
    int code;
    int64_t first, steps;
    double ce, acc;
    char said[512];
};

struct stopper {
    int64_t at;
    volatile sig_atomic_t stop;
};
static void on_step(void *ctx, int64_t step, const struct dr_tally *t) {
    struct stopper *s = ctx;
    (void)t;
    if (s->at && step == s->at)
        s->stop = 1;
}

static struct done run(const struct job *j) {
    struct stopper stop = {.at = j->stop_at};
    struct done d = {0};
    struct dr_results r = {0};
    uint32_t n = 0;
    while (j->sets[n])
        n++;
    struct dr_session *s = dr_session_create();
    const struct dr_watcher w = {.step = on_step, .ctx = &stop};
    s->load = j->load;
    s->resume = j->resume;
    s->save = j->save;
    if (dr_session_load(s, j->yaml, j->sets, n) && dr_session_device(s, "cpu", 2)) {
        const enum dr_graph_mode mode = s->model->train.present ? DR_MODE_TRAIN : DR_MODE_INFER;
        if (dr_session_data(s, mode) && dr_session_plan(s, mode, NULL, NULL) &&
            dr_session_start(s, &stop.stop)) {
            dr_run(s, j->steps, &w, &r);
            d.first = r.first;
            d.steps = r.steps;
            d.ce = r.train.n_losses ? r.train.loss[0].mean : (double)NAN;
            d.acc = r.evaluated && r.eval.n_metrics ? r.eval.metric[0].mean : (double)NAN;
        }
    }
    d.code = dr_session_exit(s);
    snprintf(d.said, sizeof d.said, "%s%s", s->status.text, dr_diag_text(s->diag));
    dr_session_destroy(s);
    return d;
}

static char *slurp(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s is not there", path);
    char *text = calloc(1, 1 << 20);
    *n = fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    return text;
}

static void same_file(const char *x, const char *y, const char *what) {
    size_t n, m;
    char *a = slurp(x, &n), *b = slurp(y, &m);
    cr_expect(n == m && !memcmp(a, b, n), "%s: %s and %s differ", what, x, y);
    free(a);
    free(b);
}

#define PATH(name)                                                                                 \
    char name[1024];                                                                               \
    snprintf(name, sizeof name, "%s/" #name, p.folder)

static bool there(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

/* ---- checkpoints ---- */

/* 20 steps against 10 and 10 more, inside an epoch of 8 steps, with momentum, a cosine rate and
 * running statistics; other schedules in the two halves. */
Test(checkpoint, a_resumed_run_leaves_the_same_bytes) {
    struct cli_place p = cli_place_create();
    PATH(whole);
    PATH(half);
    PATH(rest);
    static const char *const lr =
        "train.optimizer={op: sgd, momentum: 0.9, lr: {base: 0.05, schedule: cosine, warmup: 5}}";
    static const char *const schedules[] = {"schedule={policy: sequential, pipeline: off}",
                                            "schedule={policy: list, pipeline: auto, streams: 3}"};
    const struct job all = {.yaml = p.yaml, .sets = {lr}, .save = whole};
    const struct done want = run(&all);
    cr_assert_eq(want.code, 0, "%s", want.said);
    for (int64_t at = 7; at <= 10; at++)
        for (int i = 0; i < 2; i++) {
            const struct job first = {
                .yaml = p.yaml, .sets = {lr, schedules[i]}, .save = half, .steps = at};
            const struct job second = {
                .yaml = p.yaml, .sets = {lr, schedules[!i]}, .resume = half, .save = rest};
            struct done d = run(&first);
            cr_expect(d.code == 0 && d.steps == at, "%s", d.said);
            d = run(&second);
            cr_expect_eq(d.code, 0, "%s", d.said);
            cr_expect(d.first == at && d.steps == want.steps, "%s", d.said);
            cr_expect(d.ce == want.ce && d.acc == want.acc, "%g and %g", d.ce, want.ce);
            cr_expect_str_empty(d.said);
            same_file(whole, rest, schedules[i]);
        }
    cli_place_remove(&p);
}

/* Ctrl-C saves; the run goes on from there. */
Test(checkpoint, an_interrupted_run_saves) {
    struct cli_place p = cli_place_create();
    PATH(whole);
    PATH(cut);
    PATH(rest);
    PATH(weights);
    char save[1100];
    snprintf(save, sizeof save, "train.save={file: %s, best: acc}", weights);
    const struct job all = {.yaml = p.yaml, .save = whole};
    struct job first = {.yaml = p.yaml, .sets = {save, "eval.every=40 steps"}, .save = cut};
    const struct job second = {.yaml = p.yaml, .resume = cut, .save = rest};
    first.stop_at = 5;
    const struct done want = run(&all), d = run(&first), r = run(&second);
    cr_expect_eq(d.code, DR_INTERRUPTED, "%s", d.said);
    cr_expect(there(weights), "no evaluation was best: the interrupted run's are saved");
    cr_expect(d.steps > 5 && r.first == d.steps && r.steps == want.steps, "%s", r.said);
    size_t n, m;
    char *x = slurp(whole, &n), *y = slurp(rest, &m);
    cr_expect_eq(n, m);
    cr_expect_arr_eq(x, y, n);
    free(x);
    free(y);
    cli_place_remove(&p);
}

Test(checkpoint, what_does_not_fit_is_said) {
    struct cli_place p = cli_place_create();
    PATH(half);
    PATH(plain);
    char save[1100];
    snprintf(save, sizeof save, "train.save=%s", plain);
    const struct job first = {.yaml = p.yaml, .sets = {save}, .save = half, .steps = 10};
    cr_assert_eq(run(&first).code, 0);
    static const struct {
        const char *set, *says;
        bool plain;
    } cases[] = {
        {"seed=4", "it was drawn with seed 3, the model says 4", false},
        {"train.epochs=1", "it is of step 10, and training ends at step 8", false},
        {"data.batch=4", "it is of epochs of 8 batches of 8, not 16 of 4", false},
        {"train.optimizer.momentum=0.5", NULL, false},
        {"model=x", "it is no checkpoint", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct job j = {
            .yaml = p.yaml, .sets = {cases[i].set}, .resume = cases[i].plain ? plain : half};
        const struct done d = run(&j);
        cr_expect_eq(d.code, cases[i].says ? 2 : 0, "%s: %s", cases[i].set, d.said);
        cr_expect(!cases[i].says || strstr(d.said, cases[i].says), "%s: %s", cases[i].set, d.said);
    }
    /* notes that are no numbers: nothing begins at step 0 for want of a better one */
    static const char *const notes[][2] = {
        {"dagrun.step", "not a count"},    {"dagrun.batch", "not a count"},
        {"dagrun.batches", "not a count"}, {"dagrun.epoch_steps", "not a count"},
        {"dagrun.best", "not a number"},   {"dagrun.sum.ce", "not 2 numbers"},
    };
    PATH(torn);
    size_t n;
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        char *bytes = slurp(half, &n), key[64];
        snprintf(key, sizeof key, "%s\":\"", notes[i][0]);
        char *at = memmem(bytes, n, key, strlen(key));
        cr_assert(at, "%s", key);
        at[strlen(key)] = 'x';
        cr_assert_eq(dr_write_file(torn, bytes, n), 0);
        free(bytes);
        const struct job j = {.yaml = p.yaml, .resume = torn};
        const struct done d = run(&j);
        cr_expect_eq(d.code, 2, "%s: %s", key, d.said);
        cr_expect(strstr(d.said, notes[i][0]) && strstr(d.said, notes[i][1]), "%s: %s", key,
                  d.said);
    }
    /* other kernels: a warning; the hash is 16 digits of the header */
    char *bytes = slurp(half, &n), *at = memmem(bytes, n, "dagrun.kernels\":\"", 17);
    cr_assert(at);
    at[17] = at[17] == '0' ? '1' : '0';
    cr_assert_eq(dr_write_file(half, bytes, n), 0);
    free(bytes);
    const struct job other = {.yaml = p.yaml, .resume = half};
    const struct done d = run(&other);
    cr_expect_eq(d.code, 0, "%s", d.said);
    cr_expect(strstr(d.said, "warning: ") && strstr(d.said, "other kernels are chosen"), "%s",
              d.said);
    cli_place_remove(&p);
}

/* Decay and momentum are on; what is frozen is, in the saved file, the bytes that were loaded. */
Test(checkpoint, FRZ_03_frozen_weights_are_saved_as_loaded) {
    struct cli_place p = cli_place_create();
    PATH(first);
    PATH(second);
    char weights[1100], save[1100], load[1100];
    snprintf(save, sizeof save, "train.save=%s", first);
    const struct job a = {.yaml = p.yaml, .sets = {save, "seed=11"}};
    cr_assert_eq(run(&a).code, 0);
    snprintf(weights, sizeof weights, "subgraphs.encoder.weights=%s", first);
    snprintf(load, sizeof load, "train.save=%s", second);
    const struct job b = {.yaml = p.yaml,
                          .sets = {weights, load,
                                   "train.optimizer={op: sgd, lr: 0.1, momentum: 0.9, "
                                   "weight_decay: 0.01}",
                                   "train.clip_norm=3"}};
    const struct done d = run(&b);
    cr_assert_eq(d.code, 0, "%s", d.said);
    struct dr_arena *arena = dr_arena_create();
    struct dr_safetensors x, y;
    char why[256];
    cr_assert(dr_safetensors_open(arena, first, &x, why, sizeof why), "%s", why);
    cr_assert(dr_safetensors_open(arena, second, &y, why, sizeof why), "%s", why);
    cr_expect_null(dr_safetensors_note(&x, "dagrun.step"), "weights alone are no checkpoint");
    cr_expect_eq(x.tensor.n, 9u); /* 2 + 1 + 4 + 2 */
    static const char *const frozen[] = {"encoder.c0.weight", "encoder.c0.bias"};
    for (int i = 0; i < 2; i++) {
        const struct dr_tensor *t = dr_safetensors_find(&x, frozen[i]);
        const struct dr_tensor *u = dr_safetensors_find(&y, frozen[i]);
        cr_assert(t && u && t->bytes == u->bytes);
        cr_expect_arr_eq(t->data, u->data, t->bytes, "%s", frozen[i]);
    }
    const struct dr_tensor *t = dr_safetensors_find(&x, "net.c1.weight");
    const struct dr_tensor *u = dr_safetensors_find(&y, "net.c1.weight");
    cr_assert(t && u);
    cr_expect_neq(memcmp(t->data, u->data, t->bytes), 0);
    dr_safetensors_close(&x);
    dr_safetensors_close(&y);
    dr_arena_destroy(arena);
    cli_place_remove(&p);
}

/* The bytes of a tensor in a file, which is there, or not. */
static const void *bytes_of(const struct dr_safetensors *f, const char *name, uint64_t *n) {
    const struct dr_tensor *t = dr_safetensors_find(f, name);
    *n = t ? t->bytes : 0;
    return t ? t->data : NULL;
}

/* Trained for 2 steps with momentum and decay, then frozen for 3: the value at the freeze is kept,
 * and nobody reads the momentum that is left. */
Test(checkpoint, FRZ_03_trained_then_frozen) {
    struct cli_place p = cli_place_create();
    PATH(one);
    PATH(two);
    PATH(five);
    static const char *const decay =
        "train.optimizer={op: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.01}";
    static const char *const trained = "subgraphs.encoder.frozen=false";
    const struct job jobs[] = {
        {.yaml = p.yaml, .sets = {decay, trained}, .steps = 1, .save = one},
        {.yaml = p.yaml, .sets = {decay, trained}, .steps = 2, .save = two},
        {.yaml = p.yaml,
         .sets = {decay, "train.clip_norm=3"},
         .load = two,
         .steps = 3,
         .save = five},
    };
    const char *const path[] = {one, two, five};
    struct dr_safetensors f[3];
    struct dr_arena *arena = dr_arena_create();
    for (int i = 0; i < 3; i++) {
        char why[256] = "";
        const struct done d = run(&jobs[i]);
        cr_assert_eq(d.code, 0, "%s", d.said);
        cr_assert(dr_safetensors_open(arena, path[i], &f[i], why, sizeof why), "%s", why);
    }
    static const char *const names[] = {"encoder.c0.weight", "encoder.c0.bias"};
    for (int k = 0; k < 2; k++) {
        uint64_t n[3], m;
        const void *x[3];
        for (int i = 0; i < 3; i++) {
            x[i] = bytes_of(&f[i], names[k], &n[i]);
            cr_assert(x[i] && n[i] == n[0], "%s", names[k]);
        }
        cr_expect_neq(memcmp(x[0], x[1], n[0]), 0, "%s was trained", names[k]);
        cr_expect_eq(memcmp(x[1], x[2], n[0]), 0, "%s is kept", names[k]);
        const char *moment = dr_printf(arena, "%s:sgd.momentum", names[k]);
        cr_expect_not_null(bytes_of(&f[1], moment, &m));
        cr_expect_null(bytes_of(&f[2], moment, &m));
    }
    for (int i = 0; i < 3; i++)
        dr_safetensors_close(&f[i]);
    dr_arena_destroy(arena);
    cli_place_remove(&p);
}

/* ---- train.save, train.log ---- */

/* An evaluation of the saved weights finds the best of the evaluations that the log has. */
Test(checkpoint, best_is_what_the_log_says) {
    struct cli_place p = cli_place_create();
    static const char *const names[] = {"acc", "ce"};
    /* one rises from 0.05 to 1, the other falls and rises again */
    static const double rates[] = {0.001, 0.3};
    for (int i = 0; i < 2; i++) {
        PATH(best);
        PATH(log);
        char save[1100], line[1100], rate[100], args[4200];
        snprintf(save, sizeof save, "train.save={file: %s, best: %s}", best, names[i]);
        snprintf(rate, sizeof rate, "train.optimizer={op: sgd, lr: %g, momentum: 0.9}", rates[i]);
        snprintf(line, sizeof line, "train.log=%s", log);
        const struct job j = {.yaml = p.yaml, .sets = {save, line, "eval.every=5 steps", rate}};
        const struct done d = run(&j);
        cr_assert_eq(d.code, 0, "%s", d.said);
        size_t n;
        char *text = slurp(log, &n), *rest = text;
        const char *row = strsep(&rest, "\n");
        cr_expect_str_eq(row, "step,epoch,lr,ce,eval.ce,acc");
        double want = i ? HUGE_VAL : -HUGE_VAL, worst = -want;
        int rows = 0, evals = 0;
        while ((row = strsep(&rest, "\n")) && *row) {
            int step, epoch, used = 0;
            double lr, ce, eval, acc;
            const int got =
                sscanf(row, "%d,%d,%lf,%lf%n,%lf,%lf", &step, &epoch, &lr, &ce, &used, &eval, &acc);
            rows++;
            cr_expect(step == rows && epoch == (step - 1) / 8 + 1 && lr == rates[i], "%s", row);
            cr_expect_eq(got == 6, step % 5 == 0 || step == 48, "%s", row);
            cr_expect(got == 6 || !strcmp(row + used, ",,"), "%s", row);
            evals += got == 6;
            if (got == 6) {
                want = i ? fmin(want, eval) : fmax(want, acc);
                worst = i ? fmax(worst, eval) : fmin(worst, acc);
            }
        }
        cr_expect(rows == 48 && evals == 10 && worst != want);
        free(text);
        snprintf(args, sizeof args, "--eval --load %s --json %s", best, p.yaml);
        struct cli_run r = cli_run(DR_BINARY, args);
        cr_expect_eq(r.code, 0, "%s", r.err);
        const char *at = strstr(r.out, i ? "\"ce\": " : "\"acc\": ");
        cr_assert(at, "%s", r.out);
        cr_expect_float_eq(strtod(strchr(at, ':') + 1, NULL), want, 1e-6, "%s: %g\n%s", names[i],
                           want, r.out);
        cli_run_free(&r);
    }
    cli_place_remove(&p);
}

/* The note of a checkpoint; in the arena, or NULL. */
static const char *note_of(struct dr_arena *a, const char *path, const char *key) {
    struct dr_safetensors f;
    char why[256];
    cr_assert(dr_safetensors_open(a, path, &f, why, sizeof why), "%s: %s", path, why);
    const char *text = dr_safetensors_note(&f, key);
    text = text ? dr_strdup(a, text) : NULL;
    dr_safetensors_close(&f);
    return text;
}

/* Least or largest of a column of the log, of the lines that have it. */
static double column(const char *path, int at, bool largest) {
    size_t n;
    char *text = slurp(path, &n), *rest = text, *row;
    double best = largest ? -HUGE_VAL : HUGE_VAL;
    strsep(&rest, "\n");
    while ((row = strsep(&rest, "\n")) && *row) {
        const char *field = NULL;
        for (int i = 0; i <= at; i++)
            field = strsep(&row, ",");
        if (field && *field)
            best = largest ? fmax(best, strtod(field, NULL)) : fmin(best, strtod(field, NULL));
    }
    free(text);
    return best;
}

/* Accuracies up to step 10 are below 0.5, cross-entropies above 1: by the number alone no
 * cross-entropy would be better. */
Test(checkpoint, a_best_value_is_of_its_metric) {
    struct cli_place p = cli_place_create();
    struct dr_arena *a = dr_arena_create();
    PATH(whole);
    PATH(half);
    PATH(unnamed);
    static const char *const rate = "train.optimizer={op: sgd, lr: 0.001, momentum: 0.9}",
                             *const every = "eval.every=5 steps";
    static const char *const acc = "train.save={file: first, best: acc}";
    const struct job all = {.yaml = p.yaml, .sets = {acc, rate, every}, .save = whole};
    const struct job ten = {.yaml = p.yaml, .sets = {acc, rate, every}, .save = half, .steps = 10};
    cr_assert(run(&all).code == 0 && run(&ten).code == 0);
    cr_expect_str_eq(note_of(a, half, "dagrun.best_of"), "acc (accuracy)");
    cr_expect_lt(strtod(note_of(a, half, "dagrun.best"), NULL), 0.5);
    size_t n;
    char *bytes = slurp(half, &n), *at = memmem(bytes, n, "dagrun.best_of", 14);
    cr_assert(at);
    memcpy(at, "dagrun.nothing", 14); /* as written before there were names */
    cr_assert_eq(dr_write_file(unnamed, bytes, n), 0);
    free(bytes);
    static const struct {
        const char *save, *metrics, *says, *of; /* says NULL: nothing */
        bool unnamed, afresh, largest;
        int column; /* of the log: step,epoch,lr,ce,eval.ce,acc */
    } cases[] = {
        {"{file: b, best: acc}", "{op: accuracy, in: [net.logits, label]}", NULL, "acc (accuracy)",
         false, false, true, 5},
        {"{file: b, best: acc}", "{op: accuracy, in: [net.logits, label]}",
         ":1:28: warning: --resume %s: it does not say what its best value, %g, is of: it is taken "
         "for one of acc (accuracy)",
         "acc (accuracy)", true, false, true, 5},
        {"{file: b, best: ce}", "{op: accuracy, in: [net.logits, label]}",
         ":1:28: warning: --resume %s: its best value is of acc (accuracy): the best of ce "
         "(cross_entropy) is looked for afresh",
         "ce (cross_entropy)", false, true, false, 4},
        {"{file: b, best: acc}", "{op: pixel_accuracy, in: [net.logits, label]}",
         ":1:28: warning: --resume %s: its best value is of acc (accuracy): the best of acc "
         "(pixel_accuracy) is looked for afresh",
         "acc (pixel_accuracy)", false, true, true, 5},
        {"b", "{op: accuracy, in: [net.logits, label]}", NULL, NULL, false, true, true, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PATH(rest);
        PATH(log);
        const struct job j = {.yaml = p.yaml,
                              .sets = {dr_printf(a, "train.save=%s", cases[i].save),
                                       dr_printf(a, "eval.metrics.acc=%s", cases[i].metrics),
                                       dr_printf(a, "train.log=%s", log), rate, every},
                              .resume = cases[i].unnamed ? unnamed : half,
                              .save = rest};
        remove(log);
        const struct done d = run(&j);
        cr_assert_eq(d.code, 0, "%s", d.said);
        const double old = strtod(note_of(a, half, "dagrun.best"), NULL);
        const char *of = note_of(a, rest, "dagrun.best_of");
        const double best = strtod(note_of(a, rest, "dagrun.best"), NULL);
        if (cases[i].says) {
            char says[2048];
            snprintf(says, sizeof says, cases[i].says, j.resume, old);
            cr_expect(strstr(d.said, says), "%s\n%s", says, d.said);
        } else {
            cr_expect_str_empty(d.said, "%s", d.said);
        }
        if (!cases[i].of) {
            cr_expect(!of && isnan(best), "%g", best);
            continue;
        }
        cr_expect(of && !strcmp(of, cases[i].of), "%s", of ? of : "");
        double want = column(log, cases[i].column, cases[i].largest);
        want = cases[i].afresh ? want : fmax(want, old);
        cr_expect_float_eq(best, want, 1e-6, "%zu: %g, %g", i, best, want);
        if (i == 0)
            same_file(whole, rest, "resumed with the same metric");
    }
    dr_arena_destroy(a);
    cli_place_remove(&p);
}

/* Resumed from step 10 of a run that had logged 13: the lines after it are written anew. */
Test(checkpoint, the_log_goes_on) {
    struct cli_place p = cli_place_create();
    PATH(whole);
    PATH(log);
    PATH(half);
    char one[1100], two[1100];
    snprintf(one, sizeof one, "train.log=%s", whole);
    snprintf(two, sizeof two, "train.log=%s", log);
    static const char *const every = "eval.every=40 steps";
    const struct job all = {.yaml = p.yaml, .sets = {one, every}};
    const struct job ten = {.yaml = p.yaml, .sets = {every}, .save = half, .steps = 10};
    const struct job more = {.yaml = p.yaml, .sets = {two, every}, .steps = 13};
    const struct job rest = {.yaml = p.yaml, .sets = {two, every}, .resume = half};
    cr_assert(run(&all).code == 0 && run(&ten).code == 0 && run(&more).code == 0);
    cr_assert_eq(run(&rest).code, 0);
    same_file(whole, log, "log");
    cli_place_remove(&p);
}

Test(checkpoint, what_cannot_be_written_is_known_before) {
    struct cli_place p = cli_place_create();
    char name[300] = "train.log="; /* a name has 255 bytes at most */
    memset(name + strlen(name), 'x', 256);
    const struct {
        const char *set, *save, *says;
    } cases[] = {
        {"train.save=/proc/none/x", NULL, ":1:12: error: train.save: cannot write /proc/none/x: "},
        {"train.save={best: acc, file: /proc/none/x}", NULL, ":1:30: error: train.save: cannot"},
        {"train.log=/proc/none/x", NULL, ":1:11: error: train.log: cannot write /proc/none/x: "},
        {"train.log=/tmp", NULL, ":1:11: error: train.log: cannot write /tmp: Is a directory"},
        {name, NULL, ":1:11: error: train.log: cannot write "},
        {"train.save=/tmp", "/dev/null/x", ":1:12: error: train.save: cannot write /tmp: Is a d"},
        {"train.save=/tmp", "/dev/null/x", "error: --save: cannot write /dev/null/x: Not a dir"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct job j = {.yaml = p.yaml, .sets = {cases[i].set}, .save = cases[i].save};
        const struct done d = run(&j);
        cr_expect(d.code == 2 && d.steps == 0, "%d %s", d.code, d.said);
        cr_expect(strstr(d.said, cases[i].says), "%s: %s", cases[i].says, d.said);
    }
    /* in the file itself: at its line */
    char text[4096], *train;
    snprintf(text, sizeof text, "%s", cli_quadrants_yaml);
    train = strstr(text, "\ntrain:\n");
    cr_assert(train);
    int line = 3;
    for (const char *c = text; c < train; c++)
        line += *c == '\n';
    static const char log[] = "  log: /proc/none/x\n";
    train += strlen("\ntrain:\n");
    memmove(train + strlen(log), train, strlen(train) + 1);
    memcpy(train, log, strlen(log));
    char *yaml = cli_file(p.folder, "log.yaml", text);
    const struct job j = {.yaml = yaml};
    const struct done d = run(&j);
    snprintf(text, sizeof text, "log.yaml:%d:8: error: train.log: cannot write", line);
    cr_expect(d.code == 2 && strstr(d.said, text), "%d %s", d.code, d.said);
    free(yaml);
    cli_place_remove(&p);
}

/* ---- files of inference ---- */

static const char infer_yaml[] =
    "dagrun: 1\nmodel: infer\n"
    "inputs: {image: {shape: [4, 4, 1], dtype: u8}}\n"
    "data: {batch: 8, infer: {image: {npy: images.npy, rows: [3, 22]}}}\n" /* 19: 8, 8, 3 */
    "subgraphs:\n  net:\n    nodes:\n"
    "      half: {op: normalize, in: image, mean: [0.25], std: [0.5]}\n"
    "outputs:\n"
    "  copy: {in: image, npy: out/copy.npy, png: \"out/{index}.png\"}\n"
    "  half: {in: net.half, npy: out/half.npy, png: \"out/h {index}.png\"}\n";

static void read_png(const char *path, unsigned char to[16]) {
    png_image image = {.version = PNG_IMAGE_VERSION};
    cr_assert(png_image_begin_read_from_file(&image, path), "%s: %s", path, image.message);
    cr_expect_eq(image.format, (png_uint_32)PNG_FORMAT_GRAY, "%s", path);
    cr_assert(image.width == 4 && image.height == 4);
    image.format = PNG_FORMAT_GRAY;
    cr_assert(png_image_finish_read(&image, NULL, to, 0, NULL));
}

Test(outputs, exactly_the_samples_in_order) {
    struct cli_place p = cli_place_create();
    char *yaml = cli_file(p.folder, "infer.yaml", infer_yaml), path[1024], why[256];
    const struct job j = {.yaml = yaml};
    const struct done d = run(&j);
    cr_assert_eq(d.code, 0, "%s", d.said);
    struct dr_npy in, copy, half;
    snprintf(path, sizeof path, "%s/images.npy", p.folder);
    cr_assert(dr_npy_open(path, &in, why, sizeof why), "%s", why);
    snprintf(path, sizeof path, "%s/out/copy.npy", p.folder);
    cr_assert(dr_npy_open(path, &copy, why, sizeof why), "%s", why);
    snprintf(path, sizeof path, "%s/out/half.npy", p.folder);
    cr_assert(dr_npy_open(path, &half, why, sizeof why), "%s", why);
    cr_expect(copy.kind == 'u' && copy.item == 1 && copy.rank == 4 && copy.dim[0] == 19);
    cr_expect(half.kind == 'f' && half.item == 4 && half.rank == 4 && half.dim[0] == 19);
    cr_expect_arr_eq(copy.data, in.data + 3 * 16, 19 * 16);
    for (int i = 0; i < 19; i++) {
        unsigned char grey[16], dark[16];
        snprintf(path, sizeof path, "%s/out/%d.png", p.folder, i);
        read_png(path, grey);
        cr_expect_arr_eq(grey, copy.data + i * 16, 16);
        snprintf(path, sizeof path, "%s/out/h %d.png", p.folder, i);
        read_png(path, dark);
        for (int k = 0; k < 16; k++) {
            const double x = (grey[k] / 255.0 - 0.25) / 0.5;
            float y;
            memcpy(&y, half.data + 4 * (i * 16 + k), sizeof y);
            cr_expect_float_eq((double)y, x, 1e-5);
            cr_expect_float_eq(dark[k], fmin(fmax(x, 0), 1) * 255, 0.51);
        }
    }
    snprintf(path, sizeof path, "%s/out/19.png", p.folder);
    cr_expect_not(there(path), "the padding has a file");
    dr_npy_close(&in);
    dr_npy_close(&copy);
    dr_npy_close(&half);
    free(yaml);
    cli_place_remove(&p);
}

Test(outputs, mistakes) {
    struct cli_place p = cli_place_create();
    char *yaml = cli_file(p.folder, "infer.yaml", infer_yaml);
    static const struct {
        const char *set;
        int code;
        const char *says;
    } cases[] = {
        {"outputs.copy.png=out/x.png", 2, "must contain {stem} (the input's file name) or {index}"},
        {"outputs.copy.png=out/{name}{index}.png", 2,
         "only {stem} and {index} may stand in braces"},
        {"outputs.copy.png=out/{stem}.png", 2, "no source of the data has file names for {stem}"},
        {"inputs.image.shape=[4, 4, 1, 1]", 2, NULL},
        {"data.infer.shuffle=true", 2, "`shuffle: true` cannot be used"},
        {"outputs.copy.npy=/proc/none/x.npy", 2,
         ":1:18: error: outputs.copy: npy: cannot write /proc/none/x.npy"},
        {"outputs.copy.png=/proc/none/{index}", 2,
         ":1:18: error: outputs.copy: png: cannot write /proc/none/0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct job j = {.yaml = yaml, .sets = {cases[i].set}};
        const struct done d = run(&j);
        cr_expect_eq(d.code, cases[i].code, "%s: %d %s", cases[i].set, d.code, d.said);
        cr_expect(!cases[i].says || strstr(d.said, cases[i].says), "%s: %s", cases[i].set, d.said);
        char path[1024];
        snprintf(path, sizeof path, "%s/out/half.npy", p.folder);
        cr_expect_not(there(path), "%s: half of it was written", cases[i].set);
    }
    /* `last: drop` leaves the tail out */
    const struct job drop = {.yaml = yaml, .sets = {"data.infer.last=drop"}};
    cr_assert_eq(run(&drop).code, 0);
    struct dr_npy copy;
    char path[1024], why[256];
    snprintf(path, sizeof path, "%s/out/copy.npy", p.folder);
    cr_assert(dr_npy_open(path, &copy, why, sizeof why), "%s", why);
    cr_expect_eq(copy.dim[0], 16);
    dr_npy_close(&copy);
    free(yaml);
    cli_place_remove(&p);
}

/* A model with `train:` infers too: losses and labels are left out, weights come from its save. */
Test(outputs, a_trained_model_infers) {
    struct cli_place p = cli_place_create();
    PATH(saved);
    char text[4096], args[4200], why[256];
    snprintf(text, sizeof text, "%soutputs: {logits: {in: net.logits, npy: out/logits.npy}}\n",
             cli_quadrants_yaml);
    char *at = strstr(text, "  test:  {");
    cr_assert(at);
    static const char infer[] = "  infer: {image: {npy: images.npy}}\n";
    memmove(at + strlen(infer), at, strlen(at) + 1);
    memcpy(at, infer, strlen(infer));
    char *yaml = cli_file(p.folder, "t.yaml", text);
    snprintf(args, sizeof args, "-q --save %s %s", saved, yaml);
    struct cli_run r = cli_run(DR_BINARY, args);
    cr_assert_eq(r.code, 0, "%s", r.err);
    cli_run_free(&r);
    static const struct {
        const char *args, *warns; /* weights that were never trained are worth a word */
    } untrained[] = {
        {"--infer", "no file is named for net.c1.weight, net.n1.weight, "},
        {"--eval", "net.n1.running_mean, net.n1.running_var, net.logits.weight, net.logits.bias: "
                   "initial values are used"},
        {"--infer --set subgraphs.net.weights=random", NULL},
    };
    for (int i = 0; i < 3; i++) {
        snprintf(args, sizeof args, "%s %s", untrained[i].args, yaml);
        r = cli_run(DR_BINARY, args);
        cr_expect_eq(r.code, 0, "%s", r.err);
        cr_expect(untrained[i].warns ? strstr(r.err, untrained[i].warns) != NULL : !*r.err,
                  "%s: %s", args, r.err);
        cli_run_free(&r);
    }
    snprintf(args, sizeof args, "--infer --load %s %s", saved, yaml);
    r = cli_run(DR_BINARY, args);
    cr_assert_eq(r.code, 0, "%s", r.err);
    cr_expect_str_empty(r.err, "%s", r.err);
    cli_run_free(&r);
    struct dr_npy logits, labels;
    char path[1024];
    snprintf(path, sizeof path, "%s/out/logits.npy", p.folder);
    cr_assert(dr_npy_open(path, &logits, why, sizeof why), "%s", why);
    snprintf(path, sizeof path, "%s/labels.npy", p.folder);
    cr_assert(dr_npy_open(path, &labels, why, sizeof why), "%s", why);
    cr_assert(logits.rank == 2 && logits.dim[0] == 84 && logits.dim[1] == 4);
    int hits = 0;
    for (int i = 0; i < 84; i++) {
        float x[4];
        memcpy(x, logits.data + i * 16, sizeof x);
        int best = 0;
        for (int k = 1; k < 4; k++)
            best = x[k] > x[best] ? k : best;
        hits += best == labels.data[i];
    }
    cr_expect_geq(hits, 76);
    dr_npy_close(&logits);
    dr_npy_close(&labels);
    free(yaml);
    cli_place_remove(&p);
}
