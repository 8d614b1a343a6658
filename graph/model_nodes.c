/* `blocks:` and `subgraphs:` as written: each node's kind, keys, arguments, inputs and output
 * names. What the names mean is model_refs.c's; attribute values are read by model_expand.c. */
#include "graph/model_load.h"
#include <string.h>

/* Names that scopes share with what dagrun makes itself: "data.image", "loss.ce", "metric.top1". */
static bool reserved_subgraph(const char *name) {
    return !strcmp(name, "data") || !strcmp(name, "loss") || !strcmp(name, "metric");
}

const struct dr_yaml *const *dr_load_names(struct dr_load *l, const struct dr_yaml *y,
                                           const char *what, uint32_t *n) {
    if (y->kind == DR_YAML_SCALAR && y->n > 0) {
        const struct dr_yaml **one = DR_NEW(l->a, const struct dr_yaml *);
        *one = y;
        *n = 1;
        return one;
    }
    bool ok = y->kind == DR_YAML_SEQUENCE && y->n > 0;
    for (uint32_t i = 0; ok && i < y->n; i++) {
        if (y->item[i]->kind != DR_YAML_SCALAR || y->item[i]->n == 0) {
            dr_error(l->d, y->item[i]->mark, "%s: a name is expected here", what);
            return NULL;
        }
    }
    if (!ok) {
        dr_error(l->d, y->mark, "%s: a name or a list of names is expected", what);
        return NULL;
    }
    *n = y->n;
    return y->item;
}

/* ---- arguments in a tree ---- */
static bool is_argument(const struct dr_yaml *y) {
    if (y->kind != DR_YAML_SCALAR || y->text[0] != '$' || !y->text[1]) {
        return false;
    }
    const char *c = y->text + 1;
    return c[strspn(c, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == 0;
}

/* Whether $argument stands somewhere in y; unknown ones are errors. Depth is bounded by the reader,
 * and the sum of all sizes by its budget. */
bool dr_load_uses_args(struct dr_load *l, const struct dr_yaml *y, const struct dr_tscope *s,
                       bool *ok) {
    bool uses = false;
    if (is_argument(y)) {
        for (uint32_t i = 0; i < s->n_args; i++) {
            if (strcmp(s->arg[i], y->text + 1) == 0) {
                return true;
            }
        }
        *ok = dr_error(l->d, y->mark, "block '%s' has no argument '%s'%s", s->name, y->text + 1,
                       dr_load_suggest(l, y->text + 1, s->arg, s->n_args));
        return true;
    }
    for (uint32_t i = 0; y->kind != DR_YAML_SCALAR && i < y->n; i++) {
        const bool inner =
            dr_load_uses_args(l, y->kind == DR_YAML_MAPPING ? y->pair[i].value : y->item[i], s, ok);
        uses = uses || inner;
    }
    return uses;
}

/* ---- one node ---- */
static bool among(const char *key, const char *const *keys, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool keys_of_share(struct dr_load *l, const struct dr_tnode *t, const char *what) {
    uint32_t n;
    const char *const *keys = dr_section_keys(DR_SECTION_SHARE, &n);
    bool ok = true;
    for (uint32_t i = 0; i < t->map->n; i++) {
        const struct dr_yaml *key = t->map->pair[i].key;
        if (!among(key->text, keys, n)) {
            ok = dr_error(l->d, key->mark,
                          "%s: `share` copies the attributes too, '%s' cannot be changed; allowed "
                          "beside it: in, out, frozen, optimizer",
                          what, key->text);
        }
    }
    return ok;
}

/* A use of a block: keys and arguments, and that none is missing. */
static bool keys_of_use(struct dr_load *l, const struct dr_tnode *t, const char *what) {
    const struct dr_tscope *b = &l->scope.at[t->block];
    uint32_t n;
    const char *const *keys = dr_section_keys(DR_SECTION_USE, &n);
    const char **allowed = DR_NEW_N(l->a, const char *, (size_t)n + b->n_args);
    for (uint32_t i = 0; i < b->n_args; i++) {
        allowed[i] = b->arg[i];
    }
    memcpy(allowed + b->n_args, keys, n * sizeof *keys);
    bool ok = true;
    for (uint32_t i = 0; i < t->map->n; i++) {
        const struct dr_yaml *key = t->map->pair[i].key;
        if (!among(key->text, allowed, n + b->n_args)) {
            ok = dr_key_unknown(l->d, l->a, l->ops, key, what, allowed, n + b->n_args);
        }
    }
    for (uint32_t i = 0; i < b->n_args && !b->bad; i++) {
        if (!b->arg_default[i] && !dr_yaml_get(t->map, b->arg[i])) {
            ok = dr_error(l->d, dr_yaml_get(t->map, "block")->mark,
                          "%s: argument '%s' of block '%s' is missing", what, b->arg[i], b->name);
        }
    }
    return ok;
}

static bool find_block(struct dr_load *l, const struct dr_yaml *y, const char *what,
                       struct dr_tnode *t) {
    const char *name;
    if (!dr_scalar_text(l->d, y, dr_printf(l->a, "%s: block", what), &name)) {
        return false;
    }
    t->block = dr_map_get(l->block_by_name, name);
    if (t->block != DR_NONE) {
        l->scope.at[t->block].used = true;
        return keys_of_use(l, t, what);
    }
    const char **names = DR_NEW_N(l->a, const char *, (size_t)l->n_blocks + 1);
    for (uint32_t i = 0; i < l->n_blocks; i++) {
        names[i] = l->scope.at[i].name;
    }
    return dr_error(l->d, y->mark, "%s: there is no block '%s'%s", what, name,
                    dr_load_suggest(l, name, names, l->n_blocks));
}

static bool read_kind(struct dr_load *l, struct dr_tnode *t, const char *what) {
    const struct dr_yaml *op = dr_yaml_get(t->map, "op"), *block = dr_yaml_get(t->map, "block");
    const struct dr_yaml *share = dr_yaml_get(t->map, "share");
    if (!op + !block + !share != 2) {
        return dr_error(l->d, t->mark, "%s: give %s of `op`, `block` and `share`", what,
                        op || block || share ? "only one" : "one");
    }
    if (op) {
        t->kind = DR_TNODE_OP;
        return (t->op = dr_load_op(l, op, what, 0)) != NULL;
    }
    if (block) {
        t->kind = DR_TNODE_BLOCK;
        return find_block(l, block, what, t);
    }
    const char *name;
    t->kind = DR_TNODE_SHARE;
    return dr_scalar_text(l->d, share, dr_printf(l->a, "%s: share", what), &name) &&
           keys_of_share(l, t, what);
}

static bool read_operands(struct dr_load *l, struct dr_tnode *t, const char *what) {
    const struct dr_yaml *in = dr_yaml_get(t->map, "in"), *out = dr_yaml_get(t->map, "out");
    bool ok = true;
    if (in) {
        uint32_t n = 0;
        const struct dr_yaml *const *names =
            dr_load_names(l, in, dr_printf(l->a, "%s: in", what), &n);
        t->in = DR_NEW_N(l->a, struct dr_tref, (size_t)n + 1);
        t->n_in = n;
        ok = names != NULL;
        for (uint32_t i = 0; i < n; i++) {
            t->in[i] = (struct dr_tref){.mark = names[i]->mark, .text = names[i]->text};
        }
    }
    if (out) {
        t->out = dr_load_names(l, out, dr_printf(l->a, "%s: out", what), &t->n_named);
        ok = t->out && ok;
        for (uint32_t i = 0; t->out && i < t->n_named; i++) {
            ok = dr_load_name(l, t->out[i], "an output") && ok;
        }
    }
    return ok;
}

static void read_node(struct dr_load *l, uint32_t scope, const struct dr_yaml_pair *p) {
    struct dr_tscope *s = &l->scope.at[scope];
    struct dr_tnode t = {.name = p->key->text,
                         .mark = p->key->mark,
                         .map = p->value,
                         .scope = scope,
                         .block = DR_NONE,
                         .share = DR_NONE};
    const char *what = dr_printf(l->a, "node '%s.%s'", s->name, t.name);
    bool ok = dr_load_name(l, p->key, "a node");
    if (!dr_load_mapping(l, p->value, what)) {
        t.bad = true;
    } else {
        ok = read_kind(l, &t, what) && ok;
        ok = read_operands(l, &t, what) && ok;
        if (s->block) {
            t.uses_args = dr_load_uses_args(l, p->value, s, &ok);
        }
        t.bad = !ok;
    }
    dr_map_put(s->node, t.name, l->node.n);
    *dr_push(l->a, &l->node) = t;
}

/* ---- scopes ---- */
static void read_args(struct dr_load *l, struct dr_tscope *s, const struct dr_yaml *y) {
    const char *what = dr_printf(l->a, "block '%s': args", s->name);
    if (y->kind != DR_YAML_SEQUENCE) {
        s->bad = !dr_error(l->d, y->mark, "%s must be a list [name, name=default, ...]", what);
        return;
    }
    s->arg = DR_NEW_N(l->a, const char *, (size_t)y->n + 1);
    s->arg_default = DR_NEW_N(l->a, const struct dr_yaml *, (size_t)y->n + 1);
    uint32_t n_keys;
    const char *const *keys = dr_section_keys(DR_SECTION_USE, &n_keys);
    for (uint32_t i = 0; i < y->n; i++) {
        const struct dr_yaml *item = y->item[i];
        const char *text;
        if (!dr_scalar_text(l->d, item, what, &text)) {
            s->bad = true;
            continue;
        }
        const size_t n = strcspn(text, "=");
        const char *name = dr_strndup(l->a, text, n);
        const struct dr_yaml ref = {.kind = DR_YAML_SCALAR, .text = dr_printf(l->a, "$%s", name)};
        if (!is_argument(&ref) || among(name, keys, n_keys) || !strcmp(name, "op") ||
            !strcmp(name, "share") || among(name, s->arg, s->n_args)) {
            s->bad = !dr_error(l->d, item->mark,
                               "%s: '%s' cannot be an argument: letters, digits and _, no key of "
                               "a node, no name twice",
                               what, name);
            continue;
        }
        if (text[n] == '=') {
            struct dr_yaml *def = DR_NEW(l->a, struct dr_yaml);
            *def = *item;
            def->text = text + n + 1;
            def->n = (uint32_t)strlen(def->text);
            s->arg_default[s->n_args] = def;
        }
        s->arg[s->n_args++] = name;
    }
}

static void read_block_head(struct dr_load *l, const struct dr_yaml_pair *p) {
    struct dr_tscope s = {.name = p->key->text,
                          .mark = p->key->mark,
                          .block = true,
                          .map = p->value,
                          .output = DR_NONE};
    static const char *const x[] = {"x"};
    const char *what = dr_printf(l->a, "block '%s'", s.name);
    s.bad = !dr_load_name(l, p->key, "a block") ||
            !dr_load_section(l, p->value, DR_SECTION_BLOCK, what);
    const bool map = p->value->kind == DR_YAML_MAPPING;
    const struct dr_yaml *args = map ? dr_yaml_get(p->value, "args") : NULL;
    const struct dr_yaml *inputs = map ? dr_yaml_get(p->value, "inputs") : NULL;
    if (args) {
        read_args(l, &s, args);
    }
    if (inputs) {
        uint32_t n = 0;
        const struct dr_yaml *const *names =
            dr_load_names(l, inputs, dr_printf(l->a, "%s: inputs", what), &n);
        s.bad = s.bad || !names;
        s.n_in = n;
        s.in = DR_NEW_N(l->a, const struct dr_yaml *, (size_t)n + 1);
        for (uint32_t i = 0; i < n; i++) {
            s.in[i] = names[i];
            s.bad = !dr_load_name(l, names[i], "a block's input") || s.bad;
        }
    } else {
        struct dr_yaml *only = DR_NEW(l->a, struct dr_yaml);
        *only = *p->key;
        only->text = x[0];
        only->n = 1;
        s.n_in = 1;
        s.in = DR_NEW(l->a, const struct dr_yaml *);
        s.in[0] = only;
    }
    dr_map_put(l->block_by_name, s.name, l->scope.n);
    *dr_push(l->a, &l->scope) = s;
}

static void read_nodes(struct dr_load *l, uint32_t scope, const char *what) {
    struct dr_tscope *s = &l->scope.at[scope];
    s->node = dr_map_create(l->a);
    s->value = dr_map_create(l->a);
    s->first = l->node.n;
    const struct dr_yaml *nodes =
        s->map->kind == DR_YAML_MAPPING ? dr_yaml_get(s->map, "nodes") : NULL;
    if (s->map->kind == DR_YAML_MAPPING && !nodes) {
        s->bad = !dr_error(l->d, s->mark, "%s: 'nodes' is missing", what);
    } else if (nodes && nodes->kind == DR_YAML_MAPPING && nodes->n == 0) {
        s->bad = !dr_error(l->d, nodes->mark, "%s: there must be at least one node", what);
    } else if (nodes && !dr_load_mapping(l, nodes, dr_printf(l->a, "%s: nodes", what))) {
        s->bad = true;
    } else if (nodes) {
        for (uint32_t i = 0; i < nodes->n; i++) {
            read_node(l, scope, &nodes->pair[i]);
        }
    }
    s = &l->scope.at[scope];
    s->n = l->node.n - s->first;
    s->bad = s->bad || s->n == 0;
}

static void read_block_output(struct dr_load *l, struct dr_tscope *s) {
    const struct dr_yaml *y =
        s->map->kind == DR_YAML_MAPPING ? dr_yaml_get(s->map, "output") : NULL;
    const char *name;
    s->output = s->n ? s->first + s->n - 1 : DR_NONE;
    if (!y || !dr_scalar_text(l->d, y, dr_printf(l->a, "block '%s': output", s->name), &name)) {
        s->bad = s->bad || y;
        return;
    }
    const uint32_t t = dr_map_get(s->node, name);
    if (t != DR_NONE) {
        s->output = t;
        return;
    }
    const char **names = DR_NEW_N(l->a, const char *, (size_t)s->n + 1);
    for (uint32_t i = 0; i < s->n; i++) {
        names[i] = l->node.at[s->first + i].name;
    }
    s->bad = !dr_error(l->d, y->mark, "block '%s': output: it has no node '%s'%s", s->name, name,
                       dr_load_suggest(l, name, names, s->n));
}

static void read_subgraph(struct dr_load *l, const struct dr_yaml_pair *p) {
    const uint32_t id = l->scope.n;
    struct dr_tscope s = {
        .name = p->key->text, .mark = p->key->mark, .map = p->value, .output = DR_NONE};
    const char *what = dr_printf(l->a, "subgraph '%s'", s.name);
    struct dr_subgraph sub = {.name = s.name, .mark = s.mark};
    struct dr_weights weights = {0};
    dr_load_name(l, p->key, "a subgraph");
    if (reserved_subgraph(s.name) || dr_load_prefix(l->reserved, s.name, l->a)) {
        dr_error(l->d, s.mark,
                 "a subgraph cannot be called '%s': dagrun names its own nodes data.*, loss.* and "
                 "metric.*",
                 s.name);
    }
    const bool map = dr_load_section(l, p->value, DR_SECTION_SUBGRAPH, what) ||
                     p->value->kind == DR_YAML_MAPPING;
    const struct dr_yaml *frozen = map ? dr_yaml_get(p->value, "frozen") : NULL;
    const struct dr_yaml *from = map ? dr_yaml_get(p->value, "weights") : NULL;
    if (frozen) {
        dr_scalar_bool(l->d, frozen, dr_printf(l->a, "%s: frozen", what), &sub.frozen);
    }
    if (from) {
        dr_load_weights(l, from, dr_printf(l->a, "%s: weights", what), &weights);
    }
    dr_map_put(l->subgraph_by_name, s.name, id);
    *dr_push(l->a, &l->scope) = s;
    *dr_push(l->a, &l->m->subgraph) = sub;
    *dr_push(l->a, &l->m->weights) = weights;
    read_nodes(l, id, what);
}

/* "a.b" beside "a" could be told apart neither by readers nor by names made from them. */
static void check_subgraph_names(struct dr_load *l) {
    for (uint32_t i = l->n_blocks; i < l->scope.n; i++) {
        const struct dr_tscope *s = &l->scope.at[i];
        const size_t k = dr_load_prefix(l->subgraph_by_name, s->name, l->a);
        if (k) {
            const char *other = dr_strndup(l->a, s->name, k);
            dr_error(l->d, s->mark, "the name '%s' clashes with subgraph '%s'", s->name, other);
            dr_note(l->d, l->scope.at[dr_map_get(l->subgraph_by_name, other)].mark, "'%s' is here",
                    other);
        }
    }
    for (uint32_t i = 0; i < l->m->input.n; i++) {
        const struct dr_input *in = &l->m->input.at[i];
        const size_t k = dr_load_prefix(l->subgraph_by_name, in->name, l->a);
        if (k) {
            const char *other = dr_strndup(l->a, in->name, k);
            dr_error(l->d, in->mark, "the input's name '%s' clashes with subgraph '%s'", in->name,
                     other);
            dr_note(l->d, l->scope.at[dr_map_get(l->subgraph_by_name, other)].mark, "'%s' is here",
                    other);
        }
    }
}

void dr_load_scopes(struct dr_load *l, const struct dr_yaml *blocks,
                    const struct dr_yaml *subgraphs) {
    if (blocks && dr_load_mapping(l, blocks, "blocks")) {
        for (uint32_t i = 0; i < blocks->n; i++) {
            read_block_head(l, &blocks->pair[i]);
        }
    }
    l->n_blocks = l->scope.n;
    for (uint32_t i = 0; i < l->n_blocks; i++) {
        read_nodes(l, i, dr_printf(l->a, "block '%s'", l->scope.at[i].name));
        read_block_output(l, &l->scope.at[i]);
    }
    if (!dr_load_mapping(l, subgraphs, "subgraphs")) {
        return;
    }
    if (subgraphs->n == 0) {
        dr_error(l->d, subgraphs->mark, "subgraphs: there must be at least one");
    }
    for (uint32_t i = 0; i < subgraphs->n; i++) {
        read_subgraph(l, &subgraphs->pair[i]);
    }
    check_subgraph_names(l);
}
