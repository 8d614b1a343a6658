/* Opening a model on a device, step by step. See session.h. */
#include "scheduler/session.h"

#include "ops/table.h"
#include "scheduler/checkpoint.h"
#include "scheduler/tune.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dr_session *dr_session_create(void) {
    struct dr_arena *a = dr_arena_create();
    struct dr_session *s = DR_NEW(a, struct dr_session);
    s->arena = a;
    s->diag = dr_diag_create(a);
    s->status = (struct dr_status){.code = DR_OK, .node = DR_NONE};
    return s;
}

void dr_session_destroy(struct dr_session *s) {
    if (!s)
        return;
    dr_lane_close(&s->lane);
    dr_lane_close(&s->eval_lane);
    dr_trace_destroy(s->trace);
    dr_weights_close(&s->weights);
    if (s->data)
        dr_dataset_close(s->data);
    if (s->eval_data && s->eval_data != s->data)
        dr_dataset_close(s->eval_data);
    if (s->slab.base)
        s->ops->free(s->device, &s->slab);
    if (s->device)
        s->ops->close(s->device);
    dr_arena_destroy(s->arena);
}

bool dr_session_fail(struct dr_session *s, enum dr_exit code, const char *fmt, ...) {
    s->status = (struct dr_status){.code = code, .node = DR_NONE};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->status.text, sizeof s->status.text, fmt, ap);
    va_end(ap);
    return false;
}

bool dr_session_check(struct dr_session *s, struct dr_status status) {
    if (status.code != DR_OK)
        s->status = status;
    return status.code == DR_OK;
}

enum dr_exit dr_session_exit(const struct dr_session *s) {
    if (s->status.code != DR_OK)
        return s->status.code;
    if (s->main.too_large || s->eval.too_large)
        return DR_NO_DEVICE;
    return dr_diag_errors(s->diag) ? DR_WRONG_INPUT : DR_OK;
}

bool dr_session_load(struct dr_session *s, const char *path, const char *const *sets,
                     uint32_t n_sets) {
    s->model = dr_model_load(s->arena, s->diag, dr_ops(), path, sets, n_sets);
    return s->model != NULL;
}

static const struct dr_exec_ops *executor(const char *which) {
    if (!strcmp(which, "cpu"))
        return &dr_exec_cpu;
#ifdef DR_WITH_CUDA
    if (!strncmp(which, "cuda", 4))
        return &dr_exec_cuda;
#endif
    return NULL;
}

bool dr_session_device(struct dr_session *s, const char *which, uint32_t threads) {
    which = which ? which : "cpu";
    s->ops = executor(which);
    if (!s->ops)
        return dr_session_fail(s, DR_NO_DEVICE,
                               "device %s: this dagrun was built without CUDA (build it where the "
                               "CUDA Toolkit is found, or use --device cpu)",
                               which);
    if (!dr_session_check(s, s->ops->open(&s->device, which, threads, &s->dev)))
        return false;
    s->threads = s->dev.threads ? s->dev.threads : 1;
    if (s->dev.card)
        s->dev.tuned =
            dr_tuned_read(s->arena, s->diag, dr_tuned_path(s->arena, s->dev.card), s->dev.card);
    return true;
}

/* ---- data ---- */

static uint32_t find_split(const struct dr_model *m, const char *name) {
    for (uint32_t i = 0; i < m->split.n; i++)
        if (!strcmp(m->split.at[i].name, name))
            return i;
    return DR_NONE;
}

/* Which pictures a pattern stands for is known only now. */
static bool spares_pictures(struct dr_session *s, const struct dr_dataset *data) {
    bool good = true;
    for (uint32_t i = 0; i < s->model->file.n; i++) {
        const struct dr_named_file *f = &s->model->file.at[i];
        if (dr_file_is_written(f) && dr_dataset_reads(data, f->path))
            good = dr_error(s->diag, f->mark, "%s: it would be written over a picture that is read",
                            f->what);
    }
    return good;
}

static uint32_t split_of(const struct dr_model *m, enum dr_graph_mode mode) {
    return mode == DR_MODE_EVAL ? m->eval.split
                                : find_split(m, mode == DR_MODE_TRAIN ? "train" : "infer");
}

void dr_session_warn_data(struct dr_session *s, enum dr_graph_mode mode) {
    const struct dr_model *m = s->model;
    const uint32_t split = split_of(m, mode);
    struct dr_map *warned = dr_map_create(s->arena);
    if (split != DR_NONE)
        dr_dataset_warn(m, split, warned);
    if (mode == DR_MODE_TRAIN && m->eval.present)
        dr_dataset_warn(m, m->eval.split, warned);
}

bool dr_session_data(struct dr_session *s, enum dr_graph_mode mode) {
    const struct dr_model *m = s->model;
    s->split = split_of(m, mode);
    if (s->split == DR_NONE)
        return true; /* no `data.infer`: the load pass will say where it is missing */
    s->data = dr_dataset_open(s->arena, m, s->split, mode == DR_MODE_TRAIN);
    if (mode == DR_MODE_TRAIN && m->eval.present) {
        s->eval_split = m->eval.split;
        s->eval_data = dr_dataset_open(s->arena, m, s->eval_split, false);
        if (!s->eval_data)
            return false;
    }
    if (!s->data || !spares_pictures(s, s->data) ||
        (s->eval_data && !spares_pictures(s, s->eval_data)))
        return false;
    s->batches = dr_dataset_batches(s->data);
    s->total_steps = s->batches;
    if (mode == DR_MODE_TRAIN)
        s->total_steps = m->train.steps > 0 ? m->train.steps : m->train.epochs * s->batches;
    return true;
}

/* ---- plans ---- */

static bool feeds(const struct dr_split *split, uint32_t input) {
    for (uint32_t i = 0; i < split->source.n; i++)
        if (split->source.at[i].input == input)
            return true;
    return false;
}

/* What can be said of a split only once the graph is known. */
static bool check_data(struct dr_session *s, struct dr_dataset *data, uint32_t split_index,
                       const struct dr_graph *g) {
    if (!data)
        return true;
    const struct dr_split *split = &s->model->split.at[split_index];
    struct dr_column_want *want = DR_NEW_N(s->arena, struct dr_column_want, g->input.n + 1);
    dr_lane_want(g, want);
    for (uint32_t i = 0; i < g->input.n; i++)
        if (want[i].input != DR_NONE && !feeds(split, i))
            return dr_error(s->diag, split->mark, "data.%s has no source for input '%s'",
                            split->name, s->model->input.at[i].name);
    for (uint32_t i = 0; i < g->node.n; i++)
        if (g->mode == DR_MODE_TRAIN && (g->node.at[i].op->flags & DR_OP_WHOLE_BATCH) &&
            dr_dataset_pads(data))
            return dr_error(s->diag, g->node.at[i].mark,
                            "%s '%s' needs whole batches in training, but data.train has "
                            "`last: pad` and its last batch is padded",
                            g->node.at[i].op->name, g->node.at[i].name);
    return dr_dataset_check(data, want, g->input.n);
}

/* Once it is known how long the run is. The nodes of a block that is repeated have one place. */
static void check_warmups(struct dr_session *s) {
    const struct dr_model *m = s->model;
    struct dr_map *warned = dr_map_create(s->arena);
    for (uint32_t i = 0; i < m->optimizer.n; i++) {
        const struct dr_optimizer *o = &m->optimizer.at[i];
        const struct dr_mark mark = o->warmup_mark;
        if (o->lr.warmup <= s->total_steps ||
            dr_map_put(warned, dr_printf(s->arena, "%u:%u:%u", mark.source, mark.line, mark.col),
                       i) != DR_NONE)
            continue;
        dr_warn(s->diag, mark,
                "%s: warmup: %lld steps are more than the run has, %lld: the rate never comes to "
                "its base, %g",
                o->where, (long long)o->lr.warmup, (long long)s->total_steps, o->lr.base);
    }
}

bool dr_session_plan(struct dr_session *s, enum dr_graph_mode mode, const char *dump_after,
                     struct dr_text *dump) {
    const struct dr_model *m = s->model;
    s->mode = mode;
    if (!s->total_steps && mode == DR_MODE_TRAIN)
        s->total_steps = m->train.steps > 0 ? m->train.steps : m->train.epochs;
    if (mode == DR_MODE_TRAIN && (s->data || m->train.steps > 0))
        check_warmups(s);
    s->main = (struct dr_compile){
        .arena = s->arena,
        .model = m,
        .mode = mode,
        .total_steps = s->total_steps ? s->total_steps : 1,
        .wish = dr_plan_wish_of(m),
        .dev = &s->dev,
        .dump_after = dump_after,
        .dump = dump,
    };
    if (!dr_compile(&s->main))
        return false;
    if (dump_after)
        return true;
    s->with_eval = mode == DR_MODE_TRAIN && m->eval.present;
    if (s->with_eval) {
        s->eval = s->main;
        s->eval.mode = DR_MODE_EVAL;
        s->eval.wish.states_of = s->main.plan;
        s->eval.wish.states_graph = s->main.graph;
        s->eval.graph = NULL;
        s->eval.plan = NULL;
        if (!dr_compile(&s->eval) || !check_data(s, s->eval_data, s->eval_split, s->eval.graph))
            return false;
    }
    return check_data(s, s->data, s->split, s->main.graph);
}

/* ---- weights ---- */

bool dr_session_weights(struct dr_session *s, bool planning) {
    if (s->matched)
        return true;
    s->matched = true;
    s->weights = (struct dr_weights_files){.arena = s->arena,
                                           .diag = s->diag,
                                           .model = s->model,
                                           .load = s->resume ? s->resume : s->load,
                                           .planning = planning};
    s->tensor = dr_weights_match(&s->weights, s->main.graph, NULL);
    if (s->tensor && s->with_eval) /* weights that only metrics read */
        s->eval_tensor = dr_weights_match(&s->weights, s->eval.graph, s->main.graph);
    if (!s->tensor || (s->with_eval && !s->eval_tensor))
        return false;
    if (s->resume && !dr_checkpoint_open(s))
        return false;
    dr_weights_report(&s->weights);
    return true;
}

/* ---- start ---- */

struct dr_memory dr_session_memory(const struct dr_session *s) {
    return (struct dr_memory){.ops = s->ops, .device = s->device, .slab = s->slab};
}

static bool open_lane(struct dr_session *s, struct dr_lane *l, const struct dr_plan *p,
                      struct dr_dataset *data, const volatile sig_atomic_t *stop) {
    const struct dr_lane_config c = {
        .plan = p,
        .data = data,
        .ops = s->ops,
        .device = s->device,
        .dev = &s->dev,
        .slab = s->slab,
        .seed = s->model->seed,
        .loader_threads = s->threads > 4 ? 4 : s->threads,
        .stop = stop,
        .trace = s->trace,
    };
    return dr_session_check(s, dr_lane_open(l, &c));
}

static bool init_states(struct dr_session *s) {
    const struct dr_memory m = dr_session_memory(s);
    const uint64_t seed = s->model->seed;
    return dr_session_check(s, dr_state_init(&m, s->main.plan, seed)) &&
           dr_session_check(s, dr_state_load(&m, s->main.plan, s->tensor)) &&
           (!s->with_eval ||
            (dr_session_check(s, dr_state_init_beside(&m, s->eval.plan, s->main.graph, seed)) &&
             dr_session_check(s, dr_state_load(&m, s->eval.plan, s->eval_tensor))));
}

bool dr_session_start(struct dr_session *s, const volatile sig_atomic_t *stop) {
    uint64_t bytes = s->main.plan->slab_bytes;
    if (!dr_session_weights(s, false))
        return false;
    if (s->with_eval && s->eval.plan->slab_bytes > bytes)
        bytes = s->eval.plan->slab_bytes;
    if (!dr_session_check(s, s->ops->alloc(s->device, bytes, &s->slab)) || !init_states(s))
        return false;
    if (!open_lane(s, &s->lane, s->main.plan, s->data, stop))
        return false;
    return !s->with_eval || open_lane(s, &s->eval_lane, s->eval.plan, s->eval_data, stop);
}
