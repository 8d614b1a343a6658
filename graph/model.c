/* A file becomes a checked model: the top level, `schedule:`, and the order of the work.
 *
 * Every section is read even where another one was wrong, so that one run shows all mistakes; what
 * would only repeat an earlier error stays silent. */
#include "graph/model_load.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The folder that paths in the file are relative to: of the file itself, also by way of a link to
 * it, so that they mean the same from everywhere. */
static const char *folder_of(struct dr_arena *a, const char *path) {
    char *real = realpath(path, NULL);
    const char *file = real ? real : path;
    const char *slash = strrchr(file, '/');
    const char *folder = !slash          ? "."
                         : slash == file ? ""
                                         : dr_strndup(a, file, (size_t)(slash - file));
    free(real);
    return folder;
}

static const char *stem_of(struct dr_arena *a, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    return dot && dot != name ? dr_strndup(a, name, (size_t)(dot - name)) : dr_strdup(a, name);
}

static void read_head(struct dr_load *l, const struct dr_yaml *root) {
    static const char *const words[] = {"fp32", "tf32", "fp16", "bf16"};
    const struct dr_yaml *version = dr_yaml_get(root, "dagrun"), *name = dr_yaml_get(root, "model");
    const struct dr_yaml *precision = dr_yaml_get(root, "precision");
    const struct dr_yaml *seed = dr_yaml_get(root, "seed");
    int64_t number;
    int32_t word = 0;
    if (!version) {
        dr_error(l->d, root->mark, "'dagrun: 1' is missing: the version of the format");
    } else if (dr_scalar_int(l->d, version, "dagrun", 0, INT64_MAX, &number) && number != 1) {
        dr_error(l->d, version->mark, "format %lld is not known; this version reads format 1",
                 (long long)number);
    }
    l->m->name = stem_of(l->a, l->m->path);
    if (name) {
        dr_scalar_text(l->d, name, "model", &l->m->name);
    }
    if (precision) {
        dr_scalar_word(l->d, precision, "precision", words, 4, &word);
    }
    l->m->precision = (enum dr_precision)word;
    if (seed && dr_scalar_int(l->d, seed, "seed", 0, INT64_MAX, &number)) {
        l->m->seed = (uint64_t)number;
    }
}

/* auto, some words with a number each, or a number. */
static void read_auto(struct dr_load *l, const struct dr_yaml *y, const char *what, bool off,
                      int64_t min, int64_t max, int32_t *out) {
    int64_t n;
    if (y->kind == DR_YAML_SCALAR && strcmp(y->text, "auto") == 0) {
        *out = DR_AUTO;
    } else if (off && y->kind == DR_YAML_SCALAR && strcmp(y->text, "off") == 0) {
        *out = 0;
    } else if (y->kind == DR_YAML_SCALAR && dr_parse_int(y->text, &n)) {
        if (dr_scalar_int(l->d, y, what, min, max, &n)) {
            *out = (int32_t)n;
        }
    } else {
        dr_error(l->d, y->mark, "%s: %s%s%s is not %sauto or a number from %lld to %lld", what,
                 y->kind == DR_YAML_SCALAR ? "'" : "this", y->kind == DR_YAML_SCALAR ? y->text : "",
                 y->kind == DR_YAML_SCALAR ? "'" : "", off ? "off, " : "", (long long)min,
                 (long long)max);
    }
}

static void read_schedule(struct dr_load *l, const struct dr_yaml *y) {
    static const char *const policies[] = {"sequential", "stage", "matching", "list", "auto"};
    if (!dr_load_mapping(l, y, "schedule")) {
        return;
    }
    dr_load_section(l, y, DR_SECTION_SCHEDULE, "schedule");
    struct dr_schedule *s = &l->m->schedule;
    const struct dr_yaml *v;
    int32_t word;
    if ((v = dr_yaml_get(y, "pipeline"))) {
        read_auto(l, v, "schedule: pipeline", true, 0, 7, &s->pipeline);
    }
    if ((v = dr_yaml_get(y, "streams"))) {
        read_auto(l, v, "schedule: streams", false, 1, 32, &s->streams);
    }
    if ((v = dr_yaml_get(y, "policy")) &&
        dr_scalar_word(l->d, v, "schedule: policy", policies, 5, &word)) {
        s->policy = (enum dr_policy)word;
    }
    if ((v = dr_yaml_get(y, "graph"))) {
        dr_scalar_bool(l->d, v, "schedule: graph", &s->graph);
    }
}

/* `best:` names a metric or a loss; both are known only now. */
static void check_best(struct dr_load *l) {
    const char *best = l->m->train.save_best;
    const uint32_t n = l->m->metric.n + l->m->loss.n;
    if (!best) {
        return;
    }
    if (!l->m->eval.present) {
        dr_error(l->d, l->m->train.best_mark, "train.save: best: needs `eval:`, which measures it");
        return;
    }
    const char **names = DR_NEW_N(l->a, const char *, (size_t)n + 1);
    for (uint32_t i = 0; i < n; i++) {
        names[i] =
            i < l->m->metric.n ? l->m->metric.at[i].name : l->m->loss.at[i - l->m->metric.n].name;
        if (strcmp(names[i], best) == 0) {
            return;
        }
    }
    dr_error(l->d, l->m->train.best_mark, "train.save: best: there is no metric or loss '%s'%s",
             best, dr_load_suggest(l, best, names, n));
}

static void read_sections(struct dr_load *l, const struct dr_yaml *root) {
    const struct dr_yaml *inputs = dr_yaml_get(root, "inputs"), *data = dr_yaml_get(root, "data");
    const struct dr_yaml *subgraphs = dr_yaml_get(root, "subgraphs");
    const struct dr_yaml *train = dr_yaml_get(root, "train"), *eval = dr_yaml_get(root, "eval");
    const struct dr_yaml *outputs = dr_yaml_get(root, "outputs"), *optimizer = NULL;
    const struct dr_yaml *schedule = dr_yaml_get(root, "schedule");
    static const char *const needed[] = {"inputs", "data", "subgraphs"};
    for (uint32_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (!dr_yaml_get(root, needed[i])) {
            dr_error(l->d, root->mark, "'%s:' is missing", needed[i]);
        }
    }
    if (inputs) {
        dr_load_inputs(l, inputs);
    }
    if (data) {
        dr_load_data(l, data);
    }
    if (subgraphs) {
        dr_load_scopes(l, dr_yaml_get(root, "blocks"), subgraphs);
        dr_load_references(l);
    }
    if (train) {
        dr_load_train(l, train);
        optimizer = train->kind == DR_YAML_MAPPING ? dr_yaml_get(train, "optimizer") : NULL;
    }
    if (eval) {
        dr_load_eval(l, eval);
    }
    if (outputs) {
        dr_load_outputs(l, outputs);
    }
    if (schedule) {
        read_schedule(l, schedule);
    }
    check_best(l);
    if (!train && !eval && !outputs && subgraphs) {
        dr_error(l->d, root->mark, "nothing to do: there is no `train:`, `eval:` or `outputs:`");
    }
    dr_load_expand(l, optimizer ? dr_load_optimizer(l, optimizer, "train", "train") : DR_NONE);
    dr_load_check_files(l);
}

struct dr_model *dr_model_from_tree(struct dr_arena *a, struct dr_diag *d,
                                    const struct dr_op_table *ops, const struct dr_yaml *root,
                                    const char *path) {
    struct dr_load l = {.a = a,
                        .d = d,
                        .ops = ops,
                        .m = DR_NEW(a, struct dr_model),
                        .errors_before = dr_diag_errors(d)};
    *l.m = (struct dr_model){
        .arena = a,
        .diag = d,
        .ops = ops,
        .path = path,
        .folder = folder_of(a, path),
        .schedule = {
            .pipeline = DR_AUTO, .streams = DR_AUTO, .policy = DR_POLICY_AUTO, .graph = true}};
    l.input_by_name = dr_map_create(a);
    l.subgraph_by_name = dr_map_create(a);
    l.block_by_name = dr_map_create(a);
    l.reading_by_key = dr_map_create(a);
    l.decl_by_name = dr_map_create(a);
    l.reserved = dr_map_create(a);
    dr_map_put(l.reserved, "data", 0);
    dr_map_put(l.reserved, "loss", 0);
    dr_map_put(l.reserved, "metric", 0);
    dr_load_section(&l, root, DR_SECTION_TOP, "the top level");
    read_head(&l, root);
    dr_load_file(&l, path, (struct dr_mark){0}, "the YAML", DR_FILE_MODEL);
    read_sections(&l, root);
    return dr_diag_errors(d) == l.errors_before ? l.m : NULL;
}

struct dr_model *dr_model_load(struct dr_arena *a, struct dr_diag *d, const struct dr_op_table *ops,
                               const char *path, const char *const *sets, uint32_t n_sets) {
    const struct dr_yaml *root = dr_yaml_read_file(a, d, path);
    for (uint32_t i = 0; root && i < n_sets; i++) {
        root = dr_yaml_set(a, d, root, sets[i]);
    }
    return root ? dr_model_from_tree(a, d, ops, root, path) : NULL;
}
