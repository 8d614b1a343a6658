/* The modes of the command line: each opens what it needs and reports. */
#include "scheduler/cli.h"

#include "scheduler/tune.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- output ---- */

void dr_cli_error(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fputs("dagrun: error: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}

/* Results: printed at once, or kept for -o. */
__attribute__((format(printf, 2, 3))) static void say_result(struct dr_cli *c, const char *fmt,
                                                             ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *s = dr_vprintf(c->arena, fmt, ap);
    va_end(ap);
    if (c->out) {
        dr_text_bytes(&c->text, s, strlen(s));
        return;
    }
    fputs(s, stdout);
    fflush(stdout); /* a long run's lines should be seen as they come */
}

static void result_json(struct dr_cli *c, json_t *j) {
    char *s = json_dumps(j, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    say_result(c, "%s\n", s ? s : "{}");
    free(s);
    json_decref(j);
}

/* Found out before a long run, not after it; NULL is no file. */
static bool can_write(const char *flag, const char *path) {
    const int error = path ? dr_file_try(path) : 0;
    if (error)
        dr_cli_error("%s: cannot write %s: %s", flag, path, strerror(error));
    return !error;
}

static int finish_output(struct dr_cli *c, int code) {
    if (!c->out || (!c->text.n && code != DR_OK))
        return code;
    const int error = dr_write_file(c->out, c->text.at ? c->text.at : "", c->text.n);
    if (error)
        dr_cli_error("cannot write %s: %s", c->out, strerror(error));
    return error && code == DR_OK ? DR_FAILED : code;
}

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig) {
    (void)sig;
    if (interrupted)
        _exit(DR_INTERRUPTED);
    interrupted = 1;
}

static void catch_interrupts(void) {
    struct sigaction a = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    interrupted = 0;
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

/* ---- watching a run ---- */

struct watch {
    struct dr_cli *c;
    struct dr_session *s;
    struct dr_progress progress;
};

/* Lines of epochs are results; beside a JSON object they would spoil it and go to stderr. */
static void line(struct watch *w, const char *text) {
    dr_progress_clear(&w->progress);
    if (w->c->quiet)
        return;
    if (w->c->json)
        fprintf(stderr, "%s\n", text);
    else
        say_result(w->c, "%s\n", text);
}

static void on_step(void *ctx, int64_t step, const struct dr_tally *t) {
    struct watch *w = ctx;
    dr_progress_step(&w->progress, step, t->total_last);
}

static void on_epoch(void *ctx, int64_t epoch, int64_t steps, const struct dr_tally *t) {
    struct watch *w = ctx;
    struct dr_text text = {.arena = w->c->arena};
    dr_text_add(&text, "epoch %lld, step %lld: ", (long long)epoch + 1, (long long)steps);
    dr_report_numbers(t, false, &text);
    line(w, text.at);
}

static void on_evaluated(void *ctx, int64_t steps, const struct dr_tally *t) {
    struct watch *w = ctx;
    struct dr_text text = {.arena = w->c->arena};
    if (w->s->mode != DR_MODE_TRAIN)
        return; /* the summary will say it */
    dr_text_add(&text, "  eval at step %lld: ", (long long)steps);
    dr_report_numbers(t, false, &text);
    line(w, text.at);
}

/* ---- modes ---- */

static int failed(struct dr_session *s) {
    if (s->status.code != DR_OK)
        dr_cli_error("%s", s->status.text);
    return (int)dr_session_exit(s);
}

static void say_note(const struct dr_cli *c, const struct dr_session *s) {
    const char *note = s->lane.exec->note, *eval = s->with_eval ? s->eval_lane.exec->note : "";
    if (*note && !c->quiet)
        fprintf(stderr, "dagrun: %s\n", note);
    if (*eval && strcmp(eval, note) != 0 && !c->quiet)
        fprintf(stderr, "dagrun: evaluation: %s\n", eval);
}

static void say_precision(const struct dr_cli *c, const struct dr_session *s) {
    static const char *const names[] = {"fp32", "tf32", "fp16", "bf16"};
    const char *real = dr_report_precision(s);
    const char *const wish = names[s->model->precision];
    if (c->quiet || strcmp(wish, real) == 0)
        return;
    if (s->dev.cuda)
        fprintf(stderr, "dagrun: precision %s: %s has no %s and computes in %s\n", wish,
                s->dev.name, wish, real);
    else
        fprintf(stderr, "dagrun: precision %s: the CPU computes in %s\n", wish, real);
}

static enum dr_graph_mode graph_mode(const struct dr_cli *c, const struct dr_model *m) {
    if (c->mode == DR_CLI_EVAL)
        return DR_MODE_EVAL;
    return c->mode == DR_CLI_INFER || !m->train.present ? DR_MODE_INFER : DR_MODE_TRAIN;
}

static int plan_modes(struct dr_cli *c, struct dr_session *s, enum dr_graph_mode mode) {
    struct dr_text text = {.arena = c->arena};
    if (!dr_session_plan(s, mode, c->mode == DR_CLI_DUMP ? c->dump : NULL, &text))
        return failed(s);
    if (c->mode == DR_CLI_CHECK && !dr_session_weights(s, true))
        return failed(s);
    if (c->mode == DR_CLI_CHECK)
        dr_session_warn_data(s, mode);
    if (c->json) {
        result_json(c, dr_report_json(s, NULL, NULL, true));
        return DR_OK;
    }
    if (c->mode == DR_CLI_CHECK) {
        dr_report_check(s, &text);
        dr_weights_text(&s->weights, c->verbose, &text);
        if (c->verbose)
            dr_report_layers(s, &text);
    } else if (c->mode == DR_CLI_PLAN) {
        dr_plan_text(s->main.plan, &s->dev, c->verbose, &text);
    } else if (c->mode == DR_CLI_DOT) {
        dr_plan_dot(s->main.plan, c->verbose, &text);
    }
    say_result(c, "%s", text.at ? text.at : "");
    return DR_OK;
}

static int run_mode(struct dr_cli *c, struct dr_session *s) {
    struct watch w = {.c = c, .s = s};
    const struct dr_watcher watcher = {
        .step = on_step, .epoch = on_epoch, .evaluated = on_evaluated, .ctx = &w};
    struct dr_results r;
    if (c->verbose) {
        struct dr_text text = {.arena = c->arena};
        dr_plan_text(s->main.plan, &s->dev, 0, &text);
        fputs(text.at ? text.at : "", stderr);
    }
    if (!dr_session_start(s, &interrupted))
        return failed(s);
    say_note(c, s);
    dr_diag_print(s->diag, stderr); /* before a long run, not after it */
    dr_progress_start(&w.progress, s->first_step, s->total_steps,
                      !c->quiet && s->mode == DR_MODE_TRAIN);
    const bool good = dr_run(s, 0, &watcher, &r);
    dr_progress_clear(&w.progress);
    if (s->trace)
        dr_trace_finish(s->trace);
    if (!good && s->status.code != DR_INTERRUPTED)
        return failed(s);
    if (c->json) {
        result_json(c, dr_report_json(s, &r, NULL, false));
    } else {
        const double rate = r.seconds > 0 ? (double)(r.steps - r.first) / r.seconds : 0;
        say_result(c, "%s: %lld steps in %.2f s, %.1f steps/s, %.0f images/s on %s, %s\n",
                   s->model->name, (long long)r.steps, r.seconds, rate,
                   rate * (double)s->main.graph->batch, s->dev.name, dr_report_precision(s));
        struct dr_text text = {.arena = c->arena};
        if (r.steps > r.first) /* else interrupted before there were any */
            dr_report_numbers(s->mode == DR_MODE_TRAIN ? &r.train : &r.eval, false, &text);
        if (s->mode == DR_MODE_TRAIN && r.evaluated) {
            dr_text_add(&text, "%s", text.n ? "; eval " : "eval ");
            dr_report_numbers(&r.eval, false, &text);
        }
        if (r.loss_scale > 0)
            dr_text_add(&text, "%sloss scale %g, %lld step%s skipped", text.n ? "\n" : "",
                        r.loss_scale, (long long)r.skipped, r.skipped == 1 ? "" : "s");
        dr_text_add(&text, "%smemory: ", text.n ? "\n" : "");
        dr_report_memory(s, &text);
        say_result(c, "%s\n", text.at);
    }
    return good ? DR_OK : failed(s);
}

static int bench_mode(struct dr_cli *c, struct dr_session *s) {
    struct dr_bench b;
    s->with_eval = false; /* only the plan's own lane is timed */
    if (!dr_session_start(s, &interrupted))
        return failed(s);
    say_note(c, s);
    const bool good = dr_bench(s, c->steps ? c->steps : 100, &b);
    if (s->trace)
        dr_trace_finish(s->trace);
    if (!good)
        return failed(s);
    if (c->json) {
        result_json(c, dr_report_json(s, NULL, &b, false));
        return DR_OK;
    }
    struct dr_text text = {.arena = c->arena};
    dr_report_memory(s, &text);
    say_result(c,
               "%s on %s, %s: %lld steps\n"
               "  step      median %.3f ms, p5 %.3f ms, p95 %.3f ms\n"
               "  rate      %.1f steps/s, %.0f images/s\n"
               "  bound     %.3f ms a step (%s)\n"
               "  memory    %s, process peak %.1f MiB\n"
               "  host      %.1f us a step in launches\n"
               "  waited    %.3f s for data\n",
               s->model->name, s->dev.name, dr_report_precision(s), (long long)b.steps,
               b.median_s * 1e3, b.p5_s * 1e3, b.p95_s * 1e3, b.steps_per_s, b.images_per_s,
               s->main.plan->bound_us * 1e-3, s->main.plan->bound_by, text.at,
               (double)b.peak_host_bytes / 1048576.0, b.host_us, b.waited_s);
    return DR_OK;
}

static int verify_mode(struct dr_cli *c, struct dr_session *s) {
    struct dr_verify v;
    const int64_t most = 200;
    const int64_t steps = c->steps ? c->steps : s->total_steps < most ? s->total_steps : most;
    if (!dr_verify(s, steps, &interrupted, &v))
        return failed(s);
    if (c->json) {
        json_t *j = dr_report_json(s, NULL, NULL, false);
        json_object_set_new(j, "steps", json_integer(v.steps));
        json_object_set_new(j, "verified", json_boolean(!v.difference));
        if (v.difference)
            json_object_set_new(j, "difference", json_string(v.difference));
        result_json(c, j);
    } else if (!v.difference) {
        say_result(c,
                   "%s: %lld steps as planned (%u stages, %u streams) and sequentially: %u "
                   "values a step and %u states equal bit for bit; %u frozen states unchanged\n",
                   s->model->name, (long long)v.steps, s->main.plan->n_stages,
                   s->main.plan->n_streams, v.values, v.states, v.frozen);
    }
    if (v.difference)
        dr_cli_error("verification failed: %s", v.difference);
    return v.difference ? DR_NOT_VERIFIED : DR_OK;
}

static int tune_mode(struct dr_cli *c, struct dr_session *s) {
    struct dr_tuning t;
    if (!s->ops->measure) {
        dr_cli_error("--tune times the kernels of a GPU; %s has one for each node (--device cuda?)",
                     s->dev.name);
        return DR_WRONG_INPUT;
    }
    if (!dr_tune(s, &interrupted, &t))
        return failed(s);
    if (c->json) {
        json_t *j = dr_report_json(s, NULL, NULL, false);
        json_object_set_new(j, "problems", dr_tune_json(&t));
        json_object_set_new(j, "file", json_string(t.tuned->path));
        result_json(c, j);
        return DR_OK;
    }
    struct dr_text text = {.arena = c->arena};
    dr_text_add(&text, "%s on %s, %s\n", s->model->name, s->dev.name, dr_report_precision(s));
    dr_tune_text(&t, c->verbose, &text);
    say_result(c, "%s", text.at);
    return DR_OK;
}

static int ops_mode(struct dr_cli *c) {
    const struct dr_op *only = NULL;
    if (c->model) {
        const char *nearest;
        only = dr_ops_doc_find(c->model, &nearest);
        if (!only) {
            dr_cli_error("--ops: no op is named '%s'%s%s%s", c->model,
                         nearest ? "; did you mean '" : "", nearest ? nearest : "",
                         nearest ? "'?" : "");
            return DR_WRONG_INPUT;
        }
    }
    struct dr_text text = {.arena = c->arena};
    if (c->json) {
        result_json(c, dr_ops_doc_schema(only));
    } else {
        dr_ops_doc_text(only, &text);
        say_result(c, "%s", text.at);
    }
    return DR_OK;
}

/* Also of a run that failed: it shows how far it came. */
static int write_trace(struct dr_cli *c, struct dr_session *s, int code) {
    struct dr_text line_text = {.arena = c->arena};
    char *text = NULL;
    size_t bytes = 0;
    if (!s->trace->n_plans)
        return code;
    const int error = dr_trace_json(s->trace, s->dev.name, &text, &bytes)
                          ? dr_write_file(c->trace, text, bytes)
                          : ENOMEM;
    free(text);
    if (error) {
        dr_cli_error("cannot write %s: %s", c->trace, strerror(error));
        return code == DR_OK ? DR_FAILED : code;
    }
    dr_report_trace(s, c->trace, &line_text);
    if (!c->quiet)
        fprintf(stderr, "%s\n", line_text.at);
    return code;
}

/* What the command line reads and writes, beside what the YAML does. */
static bool files_fit(struct dr_cli *c, struct dr_model *m) {
    return dr_model_file(m, c->load, "--load", DR_FILE_WEIGHTS) &&
           dr_model_file(m, c->resume, "--resume", DR_FILE_WEIGHTS) &&
           dr_model_file(m, c->save, "--save", DR_FILE_SAVED) &&
           dr_model_file(m, c->trace, "--trace", DR_FILE_WRITTEN) &&
           dr_model_file(m, c->out, "-o", DR_FILE_WRITTEN);
}

static int model_modes(struct dr_cli *c, struct dr_session *s) {
    if (!dr_session_load(s, c->model, c->sets, c->n_sets) || !files_fit(c, s->model) ||
        !dr_session_device(s, c->device, c->threads))
        return failed(s);
    const enum dr_graph_mode mode = graph_mode(c, s->model);
    if (c->mode == DR_CLI_EVAL && !s->model->eval.present) {
        dr_cli_error("--eval: %s has no `eval:`", c->model);
        return DR_WRONG_INPUT;
    }
    if ((c->save || c->resume) && mode != DR_MODE_TRAIN) {
        dr_cli_error("%s is for training, and %s has no `train:`", c->save ? "--save" : "--resume",
                     c->model);
        return DR_WRONG_INPUT;
    }
    s->load = c->load;
    s->save = c->save;
    s->resume = c->resume;
    say_precision(c, s);
    if (c->mode == DR_CLI_CHECK || c->mode == DR_CLI_PLAN || c->mode == DR_CLI_DOT ||
        c->mode == DR_CLI_DUMP)
        return plan_modes(c, s, mode);
    if (c->mode == DR_CLI_TUNE) {
        if (!dr_session_plan(s, mode, NULL, NULL))
            return failed(s);
        catch_interrupts();
        return tune_mode(c, s);
    }
    if (!dr_session_data(s, mode) || !dr_session_plan(s, mode, NULL, NULL))
        return failed(s);
    catch_interrupts();
    if (c->trace && !(s->trace = dr_trace_create(DR_TRACE_ROOM))) {
        dr_session_fail(s, DR_NO_DEVICE, "out of host memory: the trace");
        return failed(s);
    }
    const int code = c->mode == DR_CLI_BENCH    ? bench_mode(c, s)
                     : c->mode == DR_CLI_VERIFY ? verify_mode(c, s)
                                                : run_mode(c, s);
    return c->trace ? write_trace(c, s, code) : code;
}

int dr_cli_mode_run(struct dr_cli *c) {
    if (!can_write("-o", c->out) || !can_write("--trace", c->trace))
        return DR_WRONG_INPUT;
    if (c->mode == DR_CLI_OPS)
        return finish_output(c, ops_mode(c));
    struct dr_session *s = dr_session_create();
    const int code = model_modes(c, s);
    dr_diag_print(s->diag, stderr);
    dr_session_destroy(s);
    return finish_output(c, code);
}
