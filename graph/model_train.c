/* `train:`, `eval:`, `outputs:`, optimizers and `weights:`. */
#include "graph/model_load.h"
#include <string.h>

/* ---- optimizers ---- */
static void forbid(struct dr_load *l, const struct dr_yaml *map, const char *key, const char *what,
                   const char *only) {
    const struct dr_yaml *v = dr_yaml_get(map, key);
    if (v) {
        dr_error(l->d, v->mark, "%s: '%s' is for `schedule: %s`", what, key, only);
    }
}

static bool read_lr(struct dr_load *l, const struct dr_yaml *y, const char *what,
                    struct dr_optimizer *o) {
    static const char *const schedules[] = {"constant", "cosine", "step"};
    const double most = 1e6;
    struct dr_lr *lr = &o->lr;
    *lr = (struct dr_lr){.gamma = 0.1};
    if (y->kind != DR_YAML_MAPPING) {
        return dr_scalar_float(l->d, y, what, 0, most, &lr->base);
    }
    const uint32_t before = dr_diag_errors(l->d);
    dr_load_section(l, y, DR_SECTION_LR, what);
    const struct dr_yaml *base = dr_yaml_get(y, "base"), *schedule = dr_yaml_get(y, "schedule");
    const struct dr_yaml *warmup = dr_yaml_get(y, "warmup"), *every = dr_yaml_get(y, "every");
    const struct dr_yaml *gamma = dr_yaml_get(y, "gamma"), *end = dr_yaml_get(y, "end");
    int32_t word = 0;
    if (!base) {
        dr_error(l->d, y->mark, "%s: 'base' is missing", what);
    } else {
        dr_scalar_float(l->d, base, dr_printf(l->a, "%s: base", what), 0, most, &lr->base);
    }
    if (schedule) {
        dr_scalar_word(l->d, schedule, dr_printf(l->a, "%s: schedule", what), schedules, 3, &word);
    }
    if (warmup) {
        dr_scalar_int(l->d, warmup, dr_printf(l->a, "%s: warmup", what), 0, INT32_MAX, &lr->warmup);
        o->warmup_mark = warmup->mark;
    }
    lr->schedule = word;
    if (lr->schedule != DR_LR_STEP) {
        forbid(l, y, "every", what, "step");
        forbid(l, y, "gamma", what, "step");
    } else if (!every) {
        dr_error(l->d, y->mark, "%s: `schedule: step` needs 'every' (steps)", what);
    } else {
        dr_scalar_int(l->d, every, dr_printf(l->a, "%s: every", what), 1, INT64_MAX, &lr->every);
        if (gamma) {
            dr_scalar_float(l->d, gamma, dr_printf(l->a, "%s: gamma", what), 0, most, &lr->gamma);
        }
    }
    if (lr->schedule != DR_LR_COSINE) {
        forbid(l, y, "end", what, "cosine");
    } else if (end) {
        dr_scalar_float(l->d, end, dr_printf(l->a, "%s: end", what), 0, most, &lr->end);
    }
    return dr_diag_errors(l->d) == before;
}

/* Attributes of an op that stands in `train:` or `eval:`. */
static void *read_attrs(struct dr_load *l, const struct dr_op *op, const struct dr_yaml *y,
                        const char *what, enum dr_section s) {
    uint32_t n;
    const char *const *keys = dr_section_keys(s, &n);
    void *attrs = dr_alloc(l->a, op->attrs_bytes);
    dr_attrs_read(l->d, l->a, l->ops, op, y, what, keys, n, attrs);
    return attrs;
}

uint32_t dr_load_optimizer(struct dr_load *l, const struct dr_yaml *y, const char *where,
                           const char *what) {
    what = dr_printf(l->a, "%s.optimizer", what);
    if (!dr_load_mapping(l, y, what)) {
        return DR_NONE;
    }
    const struct dr_yaml *name = dr_yaml_get(y, "op"), *lr = dr_yaml_get(y, "lr");
    const uint32_t before = dr_diag_errors(l->d);
    struct dr_optimizer o = {.where = where, .mark = y->mark};
    if (!lr) {
        dr_error(l->d, y->mark, "%s: 'lr' is missing", what);
    } else {
        read_lr(l, lr, dr_printf(l->a, "%s: lr", what), &o);
    }
    if (!name) {
        dr_error(l->d, y->mark, "%s: 'op' is missing (sgd, ...)", what);
    } else if ((o.op = dr_load_op(l, name, what, DR_OP_OPTIMIZER)) != NULL) {
        o.attrs = read_attrs(l, o.op, y, what, DR_SECTION_OPTIMIZER);
        o.mark = name->mark;
    }
    if (dr_diag_errors(l->d) != before) {
        return DR_NONE;
    }
    *dr_push(l->a, &l->m->optimizer) = o;
    return l->m->optimizer.n - 1;
}

/* ---- weights ---- */
bool dr_load_weights(struct dr_load *l, const struct dr_yaml *y, const char *what,
                     struct dr_weights *out) {
    *out = (struct dr_weights){.mark = y->mark};
    const struct dr_yaml *file = y;
    const uint32_t before = dr_diag_errors(l->d);
    if (y->kind == DR_YAML_SCALAR && strcmp(y->text, "random") == 0) {
        out->random = true;
        return true;
    }
    if (y->kind == DR_YAML_MAPPING) {
        static const char *const words[] = {"error", "init"};
        dr_load_section(l, y, DR_SECTION_WEIGHTS, what);
        file = dr_yaml_get(y, "file");
        const struct dr_yaml *prefix = dr_yaml_get(y, "prefix");
        const struct dr_yaml *missing = dr_yaml_get(y, "missing");
        int32_t word = 0;
        if (prefix) {
            dr_scalar_text(l->d, prefix, dr_printf(l->a, "%s: prefix", what), &out->prefix);
        }
        if (missing) {
            dr_scalar_word(l->d, missing, dr_printf(l->a, "%s: missing", what), words, 2, &word);
        }
        out->missing_init = word == 1;
        out->map = dr_yaml_get(y, "map");
        if (out->map && dr_load_mapping(l, out->map, dr_printf(l->a, "%s: map", what))) {
            for (uint32_t i = 0; i < out->map->n; i++) {
                const char *to;
                dr_load_name(l, out->map->pair[i].key, "a segment of a map");
                dr_scalar_text(l->d, out->map->pair[i].value, dr_printf(l->a, "%s: map", what),
                               &to);
            }
        }
        if (!file) {
            return dr_error(l->d, y->mark, "%s: 'file' is missing", what);
        }
    }
    out->file = dr_load_path(l, file, what);
    dr_load_file(l, out->file, file->mark, what, DR_FILE_WEIGHTS);
    return dr_diag_errors(l->d) == before;
}

/* ---- losses and metrics ---- */
/* A name stands for one number: in `best:`, in the log's columns, in what is printed. */
static void check_term_name(struct dr_load *l, const struct dr_yaml *key, bool metric) {
    static const char *const columns[] = {"step", "epoch", "lr"};
    const char *kind = metric ? "a metric" : "a loss";
    if (strcmp(key->text, "total") == 0) {
        dr_error(l->d, key->mark, "%s cannot be called 'total': that is the sum of all%s", kind,
                 metric ? " losses" : "");
    }
    for (uint32_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        if (strcmp(key->text, columns[i]) == 0) {
            dr_error(l->d, key->mark, "%s cannot be called '%s': the log has a column of that name",
                     kind, key->text);
        }
    }
    for (uint32_t i = 0; metric && i < l->m->loss.n; i++) {
        if (strcmp(key->text, l->m->loss.at[i].name) == 0) {
            dr_error(l->d, key->mark, "the metric '%s' is called as a loss is", key->text);
            dr_note(l->d, l->m->loss.at[i].mark, "the loss '%s' is here", key->text);
        }
    }
}

static void read_terms(struct dr_load *l, const struct dr_yaml *y, const char *section,
                       bool metric) {
    if (!dr_load_mapping(l, y, section)) {
        return;
    }
    for (uint32_t i = 0; i < y->n; i++) {
        const struct dr_yaml *key = y->pair[i].key, *map = y->pair[i].value;
        const char *what = dr_printf(l->a, "%s.%s", section, key->text);
        if (!dr_load_name(l, key, metric ? "a metric" : "a loss") ||
            !dr_load_mapping(l, map, what)) {
            continue;
        }
        const struct dr_yaml *op = dr_yaml_get(map, "op"), *in = dr_yaml_get(map, "in");
        const struct dr_yaml *weight = dr_yaml_get(map, "weight");
        check_term_name(l, key, metric);
        struct dr_loss t = {.name = key->text, .weight = 1, .written = map, .mark = key->mark};
        if (!op || !in) {
            dr_error(l->d, key->mark, "%s: '%s' is missing", what, op ? "in" : "op");
            continue;
        }
        t.op = dr_load_op(l, op, what, metric ? DR_OP_METRIC : DR_OP_LOSS);
        if (weight && !metric) {
            dr_scalar_float(l->d, weight, dr_printf(l->a, "%s: weight", what), -1e30, 1e30,
                            &t.weight);
        }
        const struct dr_yaml *const *names = dr_load_names(l, in, what, &t.n_in);
        if (!t.op) {
            continue;
        }
        t.attrs = read_attrs(l, t.op, map, what, metric ? DR_SECTION_METRIC : DR_SECTION_LOSS);
        if (names && t.op->max_in && (t.n_in < t.op->min_in || t.n_in > t.op->max_in)) {
            dr_error(l->d, in->mark, "%s: %s takes %u inputs, `in` gives %u", what, t.op->name,
                     t.op->min_in, t.n_in);
            continue;
        }
        struct dr_tref *refs = DR_NEW_N(l->a, struct dr_tref, (size_t)t.n_in + 1);
        for (uint32_t j = 0; names && j < t.n_in; j++) {
            refs[j] = dr_load_top_ref(l, names[j], what);
        }
        t.in = DR_NEW_N(l->a, struct dr_ref, (size_t)t.n_in + 1);
        dr_load_keep(l, refs, t.in, names ? t.n_in : 0);
        if (metric) {
            *dr_push(l->a, &l->m->metric) = t;
        } else {
            *dr_push(l->a, &l->m->loss) = t;
        }
    }
}

static void read_save(struct dr_load *l, const struct dr_yaml *y, const char **best) {
    const struct dr_yaml *file = y;
    if (y->kind == DR_YAML_MAPPING) {
        dr_load_section(l, y, DR_SECTION_SAVE, "train.save");
        file = dr_yaml_get(y, "file");
        const struct dr_yaml *b = dr_yaml_get(y, "best");
        if (b && dr_scalar_text(l->d, b, "train.save: best", best)) {
            l->m->train.best_mark = b->mark;
        }
        if (!file) {
            dr_error(l->d, y->mark, "train.save: 'file' is missing");
            return;
        }
    }
    l->m->train.save = dr_load_path(l, file, "train.save");
    l->m->train.save_mark = file->mark;
    dr_load_file(l, l->m->train.save, file->mark, "train.save", DR_FILE_SAVED);
}

/* ---- train ---- */
static uint32_t find_split(const struct dr_load *l, const char *name) {
    for (uint32_t i = 0; i < l->m->split.n; i++) {
        if (strcmp(l->m->split.at[i].name, name) == 0) {
            return i;
        }
    }
    return DR_NONE;
}

static void no_split(struct dr_load *l, struct dr_mark mark, const char *what, const char *name) {
    const uint32_t n = l->m->split.n;
    const char **names = DR_NEW_N(l->a, const char *, (size_t)n + 1);
    for (uint32_t i = 0; i < n; i++) {
        names[i] = l->m->split.at[i].name;
    }
    dr_error(l->d, mark, "%s: there is no `data.%s`%s", what, name,
             dr_load_suggest(l, name, names, n));
}

void dr_load_train(struct dr_load *l, const struct dr_yaml *y) {
    l->m->train.present = true;
    l->m->train.mark = y->mark;
    if (!dr_load_mapping(l, y, "train")) {
        return;
    }
    dr_load_section(l, y, DR_SECTION_TRAIN, "train");
    const struct dr_yaml *losses = dr_yaml_get(y, "losses");
    const struct dr_yaml *steps = dr_yaml_get(y, "steps"), *epochs = dr_yaml_get(y, "epochs");
    const struct dr_yaml *clip = dr_yaml_get(y, "clip_norm"), *save = dr_yaml_get(y, "save");
    const struct dr_yaml *log = dr_yaml_get(y, "log");
    if (!losses || (losses->kind == DR_YAML_MAPPING && losses->n == 0)) {
        dr_error(l->d, losses ? losses->mark : y->mark, "train: training needs `losses:`");
    } else {
        read_terms(l, losses, "train.losses", false);
    }
    if (!steps == !epochs) {
        dr_error(l->d, steps ? epochs->mark : y->mark, "train: give %s `steps` or `epochs`",
                 steps ? "only one of" : "either");
    }
    if (steps) {
        dr_scalar_int(l->d, steps, "train: steps", 1, INT64_MAX / 2, &l->m->train.steps);
    }
    if (epochs) {
        dr_scalar_int(l->d, epochs, "train: epochs", 1, INT32_MAX, &l->m->train.epochs);
    }
    if (clip) {
        dr_scalar_float(l->d, clip, "train: clip_norm", 1e-30, 1e30, &l->m->train.clip_norm);
    }
    if (save) {
        read_save(l, save, &l->m->train.save_best);
    }
    if (log) {
        l->m->train.log = dr_load_path(l, log, "train.log");
        l->m->train.log_mark = log->mark;
        dr_load_file(l, l->m->train.log, log->mark, "train.log", DR_FILE_WRITTEN);
    }
    if (find_split(l, "train") == DR_NONE && l->m->batch) {
        no_split(l, y->mark, "train", "train");
    }
}

/* ---- eval ---- */
static bool read_every(struct dr_load *l, const struct dr_yaml *y) {
    const char *text;
    if (!dr_scalar_text(l->d, y, "eval: every", &text)) {
        return false;
    }
    const char *space = strchr(text, ' ');
    const char *unit = space ? space + strspn(space, " ") : "";
    int64_t n;
    if (space && dr_parse_int(dr_strndup(l->a, text, (size_t)(space - text)), &n) && n >= 1) {
        if (strcmp(unit, "epoch") == 0 || strcmp(unit, "epochs") == 0) {
            l->m->eval.every_epochs = n;
            return true;
        }
        if (strcmp(unit, "step") == 0 || strcmp(unit, "steps") == 0) {
            l->m->eval.every_steps = n;
            return true;
        }
    }
    return dr_error(l->d, y->mark, "eval: every: '%s' is not like `1 epoch` or `100 steps`", text);
}

void dr_load_eval(struct dr_load *l, const struct dr_yaml *y) {
    l->m->eval.present = true;
    l->m->eval.mark = y->mark;
    if (!dr_load_mapping(l, y, "eval")) {
        return;
    }
    dr_load_section(l, y, DR_SECTION_EVAL, "eval");
    const struct dr_yaml *on = dr_yaml_get(y, "on"), *every = dr_yaml_get(y, "every");
    const struct dr_yaml *metrics = dr_yaml_get(y, "metrics");
    const char *name;
    if (!on) {
        dr_error(l->d, y->mark, "eval: 'on' is missing (a split of the data)");
    } else if (dr_scalar_text(l->d, on, "eval: on", &name)) {
        l->m->eval.split = find_split(l, name);
        if (l->m->eval.split == DR_NONE) {
            no_split(l, on->mark, "eval: on", name);
        }
    }
    l->m->eval.every_epochs = every ? 0 : 1;
    if (every) {
        read_every(l, every);
    }
    if (metrics) {
        read_terms(l, metrics, "eval.metrics", true);
    }
}

/* ---- outputs ---- */
/* The name of a PNG file must differ from sample to sample. */
static void check_pattern(struct dr_load *l, const struct dr_yaml *y, const char *what) {
    bool differs = false;
    for (const char *at = y->kind == DR_YAML_SCALAR ? y->text : ""; (at = strchr(at, '{')); at++) {
        if (strncmp(at, "{stem}", 6) == 0 || strncmp(at, "{index}", 7) == 0) {
            differs = true;
        } else {
            dr_error(l->d, y->mark, "%s: png: only {stem} and {index} may stand in braces", what);
            return;
        }
    }
    if (!differs && y->kind == DR_YAML_SCALAR) {
        dr_error(l->d, y->mark,
                 "%s: png: every sample has a file: the name must contain {stem} (the input's file "
                 "name) or {index}",
                 what);
    }
}

/* A value with neither npy nor png is computed and stays in memory. */
void dr_load_outputs(struct dr_load *l, const struct dr_yaml *y) {
    if (!dr_load_mapping(l, y, "outputs")) {
        return;
    }
    for (uint32_t i = 0; i < y->n; i++) {
        const struct dr_yaml *key = y->pair[i].key, *map = y->pair[i].value;
        const char *what = dr_printf(l->a, "outputs.%s", key->text);
        if (!dr_load_name(l, key, "an output") ||
            !dr_load_section(l, map, DR_SECTION_OUTPUT, what)) {
            continue;
        }
        const struct dr_yaml *in = dr_yaml_get(map, "in"), *npy = dr_yaml_get(map, "npy");
        const struct dr_yaml *png = dr_yaml_get(map, "png");
        struct dr_outputs o = {.name = key->text, .mark = key->mark};
        if (npy) {
            const char *file = dr_printf(l->a, "%s: npy", what);
            o.npy = dr_load_path(l, npy, file);
            o.npy_mark = npy->mark;
            dr_load_file(l, o.npy, npy->mark, file, DR_FILE_WRITTEN);
        }
        if (png) {
            const char *files = dr_printf(l->a, "%s: png", what);
            o.png = dr_load_path(l, png, files);
            o.png_mark = png->mark;
            dr_load_file(l, o.png, png->mark, files, DR_FILE_WRITTEN);
            check_pattern(l, png, what);
        }
        struct dr_tref *ref = DR_NEW(l->a, struct dr_tref);
        if (!in) {
            dr_error(l->d, key->mark, "%s: 'in' is missing", what);
            continue;
        }
        *ref = dr_load_top_ref(l, in, what);
        struct dr_ref *to = DR_NEW(l->a, struct dr_ref);
        dr_load_keep(l, ref, to, 1);
        *dr_push(l->a, &l->output_in) = to;
        *dr_push(l->a, &l->m->output) = o;
    }
}
