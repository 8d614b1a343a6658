/* `--set a.b.c=VALUE`: a tree with one value replaced or added.
 *
 * Trees are shared and read-only, so the collections along the path are copied and all else is
 * kept. */
#include "graph/yaml.h"

#include <string.h>

struct setter {
    struct dr_arena *a;
    struct dr_diag *d;
    const char *text;
    uint16_t source;
    const char *key[DR_YAML_DEPTH_MAX]; /* the path's parts */
    struct dr_mark mark[DR_YAML_DEPTH_MAX];
    uint32_t n;
};

static bool split_path(struct setter *s, size_t path) {
    for (size_t from = 0; from <= path;) {
        size_t to = from;
        while (to < path && s->text[to] != '.')
            to++;
        struct dr_mark m = {.source = s->source,
                            .line = 1,
                            .col = (uint32_t)from + 1,
                            .len = (uint32_t)(to - from)};
        if (to == from)
            return dr_error(s->d, m, "an empty name in a path like 'train.steps'");
        if (s->n == DR_YAML_DEPTH_MAX - 1)
            return dr_error(s->d, m, "a path of more than %d names", DR_YAML_DEPTH_MAX - 1);
        s->key[s->n] = dr_strndup(s->a, s->text + from, to - from);
        s->mark[s->n++] = m;
        from = to + 1;
    }
    return true;
}

static bool sequence_index(const struct setter *s, const struct dr_yaml *seq, uint32_t level,
                           uint32_t *out) {
    const char *k = s->key[level];
    uint64_t i = 0;
    size_t n = strspn(k, "0123456789");
    for (size_t c = 0; c < n && i < UINT32_MAX; c++)
        i = 10 * i + (uint64_t)(k[c] - '0');
    if (k[n] || i >= seq->n) {
        dr_error(s->d, s->mark[level], "'%s' is not an item of this list, which has %u (from 0)", k,
                 seq->n);
        return dr_note(s->d, seq->mark, "the list is here");
    }
    *out = (uint32_t)i;
    return true;
}

static bool is_nothing(const struct dr_yaml *y) {
    return y->kind == DR_YAML_SCALAR && !y->quoted && !y->n;
}

/* What stands at each level of the path now; NULL: nothing, from there on. */
static bool walk_path(const struct setter *s, const struct dr_yaml *root,
                      const struct dr_yaml **at) {
    for (uint32_t level = 0; level < s->n; level++) {
        at[level] = root && !is_nothing(root) ? root : NULL;
        if (!at[level])
            continue;
        if (root->kind == DR_YAML_SCALAR) {
            dr_error(s->d, s->mark[level], "no '%s' here: '%s' is a single value", s->key[level],
                     s->key[level - 1]);
            return dr_note(s->d, root->mark, "it is set here");
        }
        uint32_t i = 0;
        if (root->kind == DR_YAML_SEQUENCE && !sequence_index(s, root, level, &i))
            return false;
        root = root->kind == DR_YAML_SEQUENCE ? root->item[i] : dr_yaml_get(root, s->key[level]);
    }
    return true;
}

static const struct dr_yaml *with_item(const struct setter *s, const struct dr_yaml *seq,
                                       uint32_t level, const struct dr_yaml *value) {
    struct dr_yaml *y = DR_NEW(s->a, struct dr_yaml);
    *y = *seq;
    y->item = DR_NEW_N(s->a, const struct dr_yaml *, y->n);
    memcpy(y->item, seq->item, y->n * sizeof *y->item);
    uint32_t i = 0;
    DR_ASSERT(sequence_index(s, seq, level, &i)); /* walk_path saw that it is */
    y->size = seq->size - seq->item[i]->size + value->size;
    y->item[i] = value;
    return y;
}

/* `map` (NULL: an empty one) with the level's key set to `value`. */
static const struct dr_yaml *with_pair(const struct setter *s, const struct dr_yaml *map,
                                       uint32_t level, const struct dr_yaml *value) {
    struct dr_yaml *y = DR_NEW(s->a, struct dr_yaml);
    *y = map ? *map : (struct dr_yaml){.kind = DR_YAML_MAPPING, .mark = s->mark[level], .size = 1};
    struct dr_yaml_pair *old = y->pair;
    y->pair = DR_NEW_N(s->a, struct dr_yaml_pair, y->n + 1);
    if (y->n)
        memcpy(y->pair, old, y->n * sizeof *old);
    uint32_t i = 0;
    while (i < y->n && strcmp(y->pair[i].key->text, s->key[level]))
        i++;
    if (i < y->n) {
        y->size -= y->pair[i].value->size;
    } else {
        struct dr_yaml *key = DR_NEW(s->a, struct dr_yaml);
        *key = (struct dr_yaml){.mark = s->mark[level], .text = s->key[level], .size = 1};
        key->n = (uint32_t)strlen(key->text);
        y->pair[y->n++].key = key;
        y->size++;
    }
    y->pair[i].value = value;
    y->size += value->size;
    return y;
}

const struct dr_yaml *dr_yaml_set(struct dr_arena *a, struct dr_diag *d, const struct dr_yaml *root,
                                  const char *assignment) {
    struct setter s = {.a = a, .d = d, .text = dr_strdup(a, assignment)};
    s.source = dr_diag_source(d, dr_printf(a, "--set %s", assignment), s.text, strlen(s.text));
    const char *equals = strchr(s.text, '=');
    struct dr_mark whole = {.source = s.source, .line = 1, .col = 1};
    if (!equals) {
        dr_error(d, whole, "--set needs KEY=VALUE, like 'train.steps=10'");
        return NULL;
    }
    const struct dr_yaml *at[DR_YAML_DEPTH_MAX];
    if (!split_path(&s, (size_t)(equals - s.text)))
        return NULL;
    const struct dr_yaml *value = dr_yaml_read_value(a, d, s.source, s.text, strlen(s.text),
                                                     (size_t)(equals - s.text) + 1, s.n);
    if (!value || !walk_path(&s, root, at))
        return NULL;
    for (uint32_t level = s.n; level-- > 0;)
        value = at[level] && at[level]->kind == DR_YAML_SEQUENCE
                    ? with_item(&s, at[level], level, value)
                    : with_pair(&s, at[level], level, value);
    if (value->size > DR_YAML_NODES_MAX) {
        dr_error(d, whole, "more than %d nodes once this is set", DR_YAML_NODES_MAX);
        return NULL;
    }
    return value;
}
