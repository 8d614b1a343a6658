/* One node's attributes and settings, read with the values of a block's arguments.
 *
 * What does not name an argument is read once, however often the block is used, so that a mistake
 * in it is reported once; the rest is read for each set of argument values (a `repeat` uses one
 * set). */
#include "graph/model_load.h"
#include <string.h>

/* y with each $argument replaced. Shares what has none. Unknown arguments were refused before. */
static const struct dr_yaml *substitute(struct dr_load *l, const struct dr_yaml *y,
                                        const struct dr_tscope *s, const struct dr_yaml **args) {
    if (y->kind == DR_YAML_SCALAR) {
        for (uint32_t i = 0; y->text[0] == '$' && i < s->n_args; i++) {
            if (strcmp(s->arg[i], y->text + 1) == 0) {
                return args[i];
            }
        }
        return y;
    }
    struct dr_yaml *copy = NULL;
    for (uint32_t i = 0; i < y->n; i++) {
        const bool map = y->kind == DR_YAML_MAPPING;
        const struct dr_yaml *old = map ? y->pair[i].value : y->item[i];
        const struct dr_yaml *new = substitute(l, old, s, args);
        if (new == old) {
            continue;
        }
        if (!copy) {
            copy = DR_NEW(l->a, struct dr_yaml);
            *copy = *y;
            copy->pair = map ? DR_NEW_N(l->a, struct dr_yaml_pair, y->n) : NULL;
            copy->item = map ? NULL : DR_NEW_N(l->a, const struct dr_yaml *, y->n);
            memcpy(map ? (void *)copy->pair : (void *)copy->item,
                   map ? (const void *)y->pair : (const void *)y->item,
                   y->n * (map ? sizeof *y->pair : sizeof *y->item));
        }
        if (map) {
            copy->pair[i].value = new;
        } else {
            copy->item[i] = new;
        }
    }
    return copy ? copy : y;
}

static bool read_activation(struct dr_load *l, const struct dr_op *op, const struct dr_yaml *y,
                            const char *what, enum dr_activation *out) {
    if (!(op->flags & DR_OP_ACTIVATION)) {
        return dr_error(l->d, y->mark, "%s: %s takes no `activation`; write it as a node", what,
                        op->name);
    }
    int32_t word;
    if (!dr_scalar_word(l->d, y, dr_printf(l->a, "%s: activation", what), dr_activation_word,
                        DR_ACTIVATIONS, &word)) {
        return false;
    }
    *out = (enum dr_activation)word;
    return true;
}

static bool has_args(struct dr_load *l, const struct dr_tnode *t, const struct dr_yaml *y) {
    bool ok = true;
    return t->uses_args && dr_load_uses_args(l, y, &l->scope.at[t->scope], &ok);
}

/* One key of settings: read now if its value is known now (`args` or nothing to replace) and was
 * not known before. */
static const struct dr_yaml *setting(struct dr_load *l, const struct dr_tnode *t, const char *key,
                                     const struct dr_yaml **args) {
    const struct dr_yaml *y = dr_yaml_get(t->map, key);
    if (!y || has_args(l, t, y) != (args != NULL)) {
        return NULL;
    }
    return args ? substitute(l, y, &l->scope.at[t->scope], args) : y;
}

static bool read_settings(struct dr_load *l, const struct dr_tnode *t, const char *what,
                          const char *name, const struct dr_yaml **args, struct dr_settings *s) {
    const uint32_t before = dr_diag_errors(l->d);
    const struct dr_yaml *y;
    bool frozen;
    if ((y = setting(l, t, "activation", args)) && t->kind == DR_TNODE_OP) {
        read_activation(l, t->op, y, what, &s->activation);
    }
    if ((y = setting(l, t, "frozen", args)) &&
        dr_scalar_bool(l->d, y, dr_printf(l->a, "%s: frozen", what), &frozen)) {
        s->frozen = frozen;
    }
    if ((y = setting(l, t, "optimizer", args))) {
        s->optimizer = dr_load_optimizer(l, y, name, name);
    }
    if ((y = setting(l, t, "repeat", args))) {
        dr_scalar_int(l->d, y, dr_printf(l->a, "%s: repeat", what), 1, 100000, &s->repeat);
    }
    if ((y = setting(l, t, "weights", args))) {
        struct dr_weights *w = DR_NEW(l->a, struct dr_weights);
        dr_load_weights(l, y, dr_printf(l->a, "%s: weights", what), w);
        s->weights = w;
    }
    return dr_diag_errors(l->d) == before;
}

/* The node's mapping without the attributes that name arguments: they are checked per use. Their
 * keys go into `other`, so that they count as known. */
static bool check_constant_attrs(struct dr_load *l, const struct dr_tnode *t, const char *what,
                                 void *attrs) {
    uint32_t n;
    const char *const *keys = dr_section_keys(DR_SECTION_OP, &n);
    const char **other = DR_NEW_N(l->a, const char *, (size_t)n + t->map->n);
    memcpy(other, keys, n * sizeof *keys);
    for (uint32_t i = 0; i < t->map->n && t->uses_args; i++) {
        const struct dr_yaml_pair *p = &t->map->pair[i];
        for (uint32_t j = 0; j < t->op->n_attrs; j++) {
            if (strcmp(t->op->attrs[j].name, p->key->text) == 0 && has_args(l, t, p->value)) {
                other[n++] = p->key->text;
            }
        }
    }
    return dr_attrs_read(l->d, l->a, l->ops, t->op, t->map, what, other, n, attrs);
}

static void read_constant(struct dr_load *l, uint32_t id, const char *name, const char *what) {
    struct dr_tnode *t = &l->node.at[id];
    t->checked = true;
    t->constant.settings = (struct dr_settings){.frozen = -1, .optimizer = DR_NONE};
    t->constant.attrs = t->op ? dr_alloc(l->a, t->op->attrs_bytes) : NULL;
    bool ok = t->kind != DR_TNODE_OP || check_constant_attrs(l, t, what, t->constant.attrs);
    ok = read_settings(l, t, what, name, NULL, &t->constant.settings) && ok;
    t->constant.ok = ok;
    t->bad = t->bad || !ok;
}

/* Values for the arguments of the block that t uses: as written there, else the defaults. */
static void bind_args(struct dr_load *l, const struct dr_tnode *t, const struct dr_yaml **args,
                      struct dr_reading *r) {
    const struct dr_tscope *b = &l->scope.at[t->block];
    r->args = DR_NEW_N(l->a, const struct dr_yaml *, (size_t)b->n_args + 1);
    for (uint32_t i = 0; i < b->n_args; i++) {
        const struct dr_yaml *y = dr_yaml_get(t->map, b->arg[i]);
        r->args[i] = !y     ? b->arg_default[i]
                     : args ? substitute(l, y, &l->scope.at[t->scope], args)
                            : y;
    }
}

static void read_with_args(struct dr_load *l, const struct dr_tnode *t, const char *name,
                           const char *what, const struct dr_yaml **args, struct dr_reading *r) {
    uint32_t n;
    const char *const *keys = dr_section_keys(DR_SECTION_OP, &n);
    *r = t->constant;
    r->ok = read_settings(l, t, what, name, args, &r->settings);
    if (t->kind == DR_TNODE_OP) {
        r->attrs = dr_alloc(l->a, t->op->attrs_bytes);
        r->ok = dr_attrs_read(l->d, l->a, l->ops, t->op,
                              substitute(l, t->map, &l->scope.at[t->scope], args), what, keys, n,
                              r->attrs) &&
                r->ok;
    }
    if (!r->ok) {
        dr_note(l->d, t->mark, "in block '%s', node '%s'", l->scope.at[t->scope].name, t->name);
    }
}

const struct dr_reading *dr_load_read(struct dr_load *l, uint32_t id, const char *name,
                                      const struct dr_yaml **args) {
    struct dr_tnode *t = &l->node.at[id];
    const char *what = NULL;
    if (!t->checked) {
        what = dr_printf(l->a, "%s '%s'", t->op ? t->op->name : "block", name);
        read_constant(l, id, name, what);
        if (t->kind == DR_TNODE_BLOCK && !t->uses_args) {
            bind_args(l, t, NULL, &t->constant);
        }
    }
    if (!t->uses_args || !t->constant.ok || !args) {
        return &t->constant;
    }
    char key[64];
    snprintf(key, sizeof key, "%u %p", id, (const void *)args);
    uint32_t at = dr_map_get(l->reading_by_key, key);
    if (at == DR_NONE) {
        struct dr_reading r = {0};
        what = dr_printf(l->a, "%s '%s'", t->op ? t->op->name : "block", name);
        l->expansion += t->map->size;
        read_with_args(l, t, name, what, args, &r);
        if (t->kind == DR_TNODE_BLOCK) {
            bind_args(l, t, args, &r);
        }
        at = l->reading.n;
        dr_map_put(l->reading_by_key, dr_strdup(l->a, key), at);
        *dr_push(l->a, &l->reading) = r;
    }
    return &l->reading.at[at];
}
