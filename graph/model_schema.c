/* The sections of the YAML and their keys, and the small checks that every section shares: names,
 * paths, and ops that fit a place. */
#include "graph/model_load.h"
#include <string.h>

struct section {
    const char *place; /* "belongs under ..." */
    const char *const *keys;
    uint32_t n;
};
#define KEYS(...)                                                                                  \
    (const char *const[]){__VA_ARGS__},                                                            \
        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)

static const struct section sections[DR_SECTIONS] = {
    [DR_SECTION_TOP] = {"the top level",
                        KEYS("dagrun", "model", "precision", "seed", "inputs", "data", "blocks",
                             "subgraphs", "train", "eval", "outputs", "schedule")},
    [DR_SECTION_INPUT] = {"inputs.NAME", KEYS("shape", "dtype", "kind")},
    [DR_SECTION_DATA] = {"data", KEYS("batch")},
    [DR_SECTION_SPLIT] = {"data.SPLIT", KEYS("shuffle", "last")},
    [DR_SECTION_SOURCE] = {"data.SPLIT.INPUT", KEYS("files", "npy", "idx", "cifar10", "synthetic",
                                                    "folders", "rows", "fit", "pair", "count")},
    [DR_SECTION_BLOCK] = {"blocks.NAME", KEYS("args", "inputs", "output", "nodes")},
    [DR_SECTION_SUBGRAPH] = {"subgraphs.NAME", KEYS("frozen", "weights", "optimizer", "nodes")},
    [DR_SECTION_OP] = {"a node with `op:`", KEYS("op", "in", "out", "activation", "frozen",
                                                 "optimizer", "repeat", "weights")},
    [DR_SECTION_USE] = {"a node with `block:`",
                        KEYS("block", "in", "out", "frozen", "optimizer", "repeat", "weights")},
    [DR_SECTION_SHARE] = {"a node with `share:`",
                          KEYS("share", "in", "out", "frozen", "optimizer")},
    [DR_SECTION_TRAIN] = {"train", KEYS("losses", "optimizer", "steps", "epochs", "clip_norm",
                                        "save", "log")},
    [DR_SECTION_LOSS] = {"train.losses.NAME", KEYS("op", "in", "weight")},
    [DR_SECTION_OPTIMIZER] = {"train.optimizer", KEYS("op", "lr")},
    [DR_SECTION_LR] = {"train.optimizer.lr",
                       KEYS("base", "schedule", "warmup", "every", "gamma", "end")},
    [DR_SECTION_SAVE] = {"train.save", KEYS("file", "best")},
    [DR_SECTION_EVAL] = {"eval", KEYS("on", "every", "metrics")},
    [DR_SECTION_METRIC] = {"eval.metrics.NAME", KEYS("op", "in")},
    [DR_SECTION_OUTPUT] = {"outputs.NAME", KEYS("in", "npy", "png")},
    [DR_SECTION_SCHEDULE] = {"schedule", KEYS("pipeline", "streams", "policy", "graph")},
    [DR_SECTION_WEIGHTS] = {"weights", KEYS("file", "prefix", "map", "missing")},
};

const char *const *dr_section_keys(enum dr_section s, uint32_t *n) {
    DR_ASSERT(s < DR_SECTIONS);
    *n = sections[s].n;
    return sections[s].keys;
}

static bool among(const char *key, const char *const *keys, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

static const char *list(struct dr_arena *a, const char *const *names, uint32_t n) {
    struct dr_text t = {.arena = a};
    dr_text_add(&t, "%s", "");
    for (uint32_t i = 0; i < n; i++) {
        dr_text_add(&t, "%s%s", i ? ", " : "", names[i]);
    }
    return t.at;
}

/* Where a key that is wrong here would be right, or NULL. */
static const char *home_of(struct dr_arena *a, const struct dr_op_table *ops, const char *key) {
    for (uint32_t s = 0; s < DR_SECTIONS; s++) {
        if (among(key, sections[s].keys, sections[s].n)) {
            return dr_printf(a, "it belongs %s %s",
                             s == DR_SECTION_TOP ? "at"
                             : s == DR_SECTION_OP || s == DR_SECTION_USE || s == DR_SECTION_SHARE
                                 ? "in"
                                 : "under",
                             sections[s].place);
        }
    }
    struct dr_text t = {.arena = a};
    uint32_t found = 0;
    for (uint32_t i = 0; i < ops->n; i++) {
        const struct dr_op *op = ops->op[i];
        if (op->flags & DR_OP_INTERNAL) {
            continue;
        }
        for (uint32_t j = 0; j < op->n_attrs; j++) {
            if (strcmp(op->attrs[j].name, key) == 0) {
                dr_text_add(&t, "%s%s%s", found++ ? ", " : "it is an attribute of ", op->name,
                            op->flags & DR_OP_OPTIMIZER ? " (under train.optimizer)" : "");
            }
        }
    }
    return found ? t.at : NULL;
}

bool dr_key_unknown(struct dr_diag *d, struct dr_arena *a, const struct dr_op_table *ops,
                    const struct dr_yaml *key, const char *what, const char *const *allowed,
                    uint32_t n) {
    const char *near = dr_nearest(key->text, allowed, n);
    const char *home = near ? NULL : home_of(a, ops, key->text);
    if (near) {
        return dr_error(d, key->mark, "unknown key '%s' in %s; did you mean '%s'?", key->text, what,
                        near);
    }
    if (home) {
        return dr_error(d, key->mark, "unknown key '%s' in %s; %s", key->text, what, home);
    }
    return dr_error(d, key->mark, "unknown key '%s' in %s; allowed: %s", key->text, what,
                    list(a, allowed, n));
}

bool dr_load_mapping(struct dr_load *l, const struct dr_yaml *y, const char *what) {
    return y->kind == DR_YAML_MAPPING ||
           dr_error(l->d, y->mark, "%s must be a mapping {key: value, ...}", what);
}

bool dr_load_section(struct dr_load *l, const struct dr_yaml *y, enum dr_section s,
                     const char *what) {
    if (!dr_load_mapping(l, y, what)) {
        return false;
    }
    bool ok = true;
    for (uint32_t i = 0; i < y->n; i++) {
        const struct dr_yaml *key = y->pair[i].key;
        if (!among(key->text, sections[s].keys, sections[s].n)) {
            ok = dr_key_unknown(l->d, l->a, l->ops, key, what, sections[s].keys, sections[s].n);
        }
    }
    return ok;
}

bool dr_load_name(struct dr_load *l, const struct dr_yaml *key, const char *what) {
    if (key->kind != DR_YAML_SCALAR || key->n == 0) {
        return dr_error(l->d, key->mark, "the name of %s must be text that is not empty", what);
    }
    if (key->text[0] == '$') {
        return dr_error(l->d, key->mark,
                        "the name of %s cannot begin with '$': that marks a block's argument",
                        what);
    }
    for (const unsigned char *c = (const unsigned char *)key->text; *c; c++) {
        if ((*c < ' ' && *c != '\n' && *c != '\t') || *c == 0x7f) {
            return dr_error(l->d, key->mark,
                            "the name of %s contains a control character (\\x%02x)", what, *c);
        }
    }
    return true;
}

size_t dr_load_prefix(const struct dr_map *names, const char *name, struct dr_arena *a) {
    for (size_t i = 1; name[0] && name[i]; i++) {
        if ((name[i] == '.' || name[i] == ':') &&
            dr_map_get(names, dr_strndup(a, name, i)) != DR_NONE) {
            return i;
        }
    }
    return 0;
}

const char *dr_load_path(struct dr_load *l, const struct dr_yaml *y, const char *what) {
    const char *text;
    if (!dr_scalar_text(l->d, y, what, &text)) {
        return NULL;
    }
    const char *path = text[0] == '/' ? text : dr_printf(l->a, "%s/%s", l->m->folder, text);
    if (strlen(path) > DR_MAX_PATH) {
        dr_error(l->d, y->mark, "%s: a path of %zu bytes is too long (at most %d)", what,
                 strlen(path), DR_MAX_PATH);
        return NULL;
    }
    return path;
}

const char *dr_load_suggest(struct dr_load *l, const char *name, const char *const *names,
                            uint32_t n) {
    /* Past the errors that are kept nobody reads suggestions, and each costs a walk of all names.
     */
    return dr_diag_errors(l->d) > 20 ? "" : dr_did_you_mean(l->a, name, names, n);
}

/* Where an op of another kind should stand. */
static const char *place_of(const struct dr_op *op) {
    return op->flags & DR_OP_OPTIMIZER ? "an optimizer: it belongs under train.optimizer"
           : op->flags & DR_OP_LOSS    ? "a loss: it belongs under train.losses"
           : op->flags & DR_OP_METRIC  ? "a metric: it belongs under eval.metrics"
                                       : "an op of a subgraph's or block's node";
}

/* "; did you mean 'conv2d'?" also where the name only begins like one ("convv"), else the list. */
static const char *near_ops(struct dr_load *l, const char *name, uint32_t kinds, uint32_t want) {
    const char **names = DR_NEW_N(l->a, const char *, l->ops->n + 1);
    uint32_t n = 0;
    const char *begins = NULL;
    size_t common = 2;
    for (uint32_t i = 0; i < l->ops->n; i++) {
        const struct dr_op *op = l->ops->op[i];
        if ((op->flags & DR_OP_INTERNAL) || (op->flags & kinds) != want) {
            continue;
        }
        names[n++] = op->name;
        size_t k = 0;
        while (name[k] && name[k] == op->name[k]) {
            k++;
        }
        if (k > common || (begins && k == common && strlen(op->name) < strlen(begins))) {
            common = k;
            begins = op->name;
        }
    }
    const char *near = dr_did_you_mean(l->a, name, names, n);
    if (*near) {
        return near;
    }
    return begins ? dr_printf(l->a, "; did you mean '%s'?", begins)
                  : dr_printf(l->a, "; there are: %s", list(l->a, names, n));
}

const struct dr_op *dr_load_op(struct dr_load *l, const struct dr_yaml *y, const char *what,
                               uint32_t want) {
    const uint32_t kinds = DR_OP_LOSS | DR_OP_METRIC | DR_OP_OPTIMIZER;
    const char *name;
    if (!dr_scalar_text(l->d, y, dr_printf(l->a, "%s: op", what), &name)) {
        return NULL;
    }
    const struct dr_op *op = dr_op_find(l->ops, name);
    if (!op || (op->flags & DR_OP_INTERNAL)) {
        const char *kind = want == DR_OP_LOSS        ? "loss"
                           : want == DR_OP_METRIC    ? "metric"
                           : want == DR_OP_OPTIMIZER ? "optimizer"
                                                     : "op";
        dr_error(l->d, y->mark, "%s: unknown %s '%s'%s", what, kind, name,
                 near_ops(l, name, kinds, want));
        return NULL;
    }
    if ((op->flags & kinds) != want) {
        dr_error(l->d, y->mark, "%s: '%s' is %s", what, name, place_of(op));
        return NULL;
    }
    return op;
}
