/* Attributes: an op's schema read from a mapping into the op's own struct, its defaults, and the
 * struct as text again. */
#include "graph/model_load.h"
#include <float.h>
#include <math.h>
#include <string.h>

const char *const dr_activation_word[DR_ACTIVATIONS] = {
    [DR_ACT_NONE] = "none",
    [DR_ACT_RELU] = "relu",
    [DR_ACT_TANH] = "tanh",
    [DR_ACT_SIGMOID] = "sigmoid",
    [DR_ACT_LEAKY_RELU] = "leaky_relu",
    [DR_ACT_GELU] = "gelu",
    [DR_ACT_SILU] = "silu",
};

const struct dr_op *dr_op_find(const struct dr_op_table *t, const char *name) {
    for (uint32_t i = 0; i < t->n; i++) {
        if (strcmp(t->op[i]->name, name) == 0) {
            return t->op[i];
        }
    }
    return NULL;
}

/* Integers in doubles: a bound past 2^53 means "none". A schema without bounds has none. */
void dr_attr_range(const struct dr_attr *s, double *min, double *max) {
    const bool real = s->kind == DR_ATTR_FLOAT || s->kind == DR_ATTR_FLOATS;
    const double limit = real ? DBL_MAX : 9007199254740992.0;
    const bool open = s->min == 0 && s->max == 0;
    *min = open || s->min < -limit ? -INFINITY : s->min;
    *max = open || s->max > limit ? INFINITY : s->max;
}

static void int_range(const struct dr_attr *s, int64_t *min, int64_t *max) {
    double low, high;
    dr_attr_range(s, &low, &high);
    *min = isinf(low) ? INT64_MIN : (int64_t)low;
    *max = isinf(high) ? INT64_MAX : (int64_t)high;
}

static bool read_pair(struct dr_diag *d, const struct dr_attr *s, const struct dr_yaml *y,
                      const char *what, int64_t *out) {
    int64_t min, max;
    int_range(s, &min, &max);
    if (y->kind == DR_YAML_SCALAR) {
        if (!dr_scalar_int(d, y, what, min, max, &out[0])) {
            return false;
        }
        out[1] = out[0];
        return true;
    }
    if (y->kind != DR_YAML_SEQUENCE || y->n != 2) {
        return dr_error(d, y->mark, "%s must be one number or [height, width]", what);
    }
    const bool first = dr_scalar_int(d, y->item[0], what, min, max, &out[0]);
    return dr_scalar_int(d, y->item[1], what, min, max, &out[1]) && first;
}

static bool read_sides(struct dr_diag *d, struct dr_arena *a, const struct dr_op_table *t,
                       const struct dr_attr *s, const struct dr_yaml *y, const char *what,
                       struct dr_padding *p) {
    static const char *const sides[] = {"top", "left", "bottom", "right"};
    int64_t *const to[] = {&p->top, &p->left, &p->bottom, &p->right};
    int64_t min, max;
    int_range(s, &min, &max);
    bool ok = y->n > 0 || dr_error(d, y->mark, "%s: no side is named: {top: , left: , ...}", what);
    for (uint32_t i = 0; i < y->n; i++) {
        const struct dr_yaml *key = y->pair[i].key;
        uint32_t side = 0;
        while (side < 4 && strcmp(key->text, sides[side]) != 0) {
            side++;
        }
        ok = (side < 4 ? dr_scalar_int(d, y->pair[i].value, dr_printf(a, "%s.%s", what, key->text),
                                       min, max, to[side])
                       : dr_key_unknown(d, a, t, key, what, sides, 4)) &&
             ok;
    }
    return ok; /* sides that are not named have no padding */
}

static bool read_padding(struct dr_diag *d, struct dr_arena *a, const struct dr_op_table *t,
                         const struct dr_attr *s, const struct dr_yaml *y, const char *what,
                         struct dr_padding *p) {
    *p = (struct dr_padding){.mode = DR_PAD_EXPLICIT};
    if (y->kind == DR_YAML_MAPPING) {
        return read_sides(d, a, t, s, y, what, p);
    }
    if (y->kind == DR_YAML_SCALAR && strcmp(y->text, "valid") == 0) {
        return true;
    }
    if (y->kind == DR_YAML_SCALAR && strcmp(y->text, "same") == 0) {
        p->mode = DR_PAD_SAME;
        return true;
    }
    int64_t number;
    if (y->kind == DR_YAML_SCALAR && !dr_parse_int(y->text, &number)) {
        static const char *const words[] = {"valid", "same"};
        return dr_error(d, y->mark,
                        "%s: '%s' is not valid, same, a number, [height, width] or {top, left, "
                        "bottom, right}%s",
                        what, y->text, dr_did_you_mean(a, y->text, words, 2));
    }
    if (y->kind == DR_YAML_SEQUENCE && y->n == 4) {
        return dr_error(d, y->mark,
                        "%s: four numbers have no agreed order; name the sides: {top: , left: , "
                        "bottom: , right: }",
                        what);
    }
    int64_t pair[2];
    if (!read_pair(d, s, y, what, pair)) {
        return false;
    }
    p->top = p->bottom = pair[0];
    p->left = p->right = pair[1];
    return true;
}

static bool read_list(struct dr_diag *d, struct dr_arena *a, const struct dr_attr *s,
                      const struct dr_yaml *y, const char *what, void *field) {
    if (y->kind != DR_YAML_SEQUENCE) {
        return dr_error(d, y->mark, "%s must be a list [a, b, ...]", what);
    }
    if (y->n == 0 && !s->required) { /* it would mean the default */
        return dr_error(d, y->mark, "%s: the list is empty", what);
    }
    int64_t min, max;
    double fmin, fmax;
    int_range(s, &min, &max);
    dr_attr_range(s, &fmin, &fmax);
    const bool ints = s->kind == DR_ATTR_INTS;
    int64_t *whole = ints ? DR_NEW_N(a, int64_t, (size_t)y->n + 1) : NULL;
    double *real = ints ? NULL : DR_NEW_N(a, double, (size_t)y->n + 1);
    bool ok = true;
    for (uint32_t i = 0; i < y->n; i++) {
        ok = (ints ? dr_scalar_int(d, y->item[i], what, min, max, &whole[i])
                   : dr_scalar_float(d, y->item[i], what, fmin, fmax, &real[i])) &&
             ok;
    }
    if (ints) {
        *(struct dr_ints *)field = (struct dr_ints){.n = y->n, .at = whole};
    } else {
        *(struct dr_floats *)field = (struct dr_floats){.n = y->n, .at = real};
    }
    return ok;
}

static bool read_one(struct dr_diag *d, struct dr_arena *a, const struct dr_op_table *t,
                     const struct dr_attr *s, const struct dr_yaml *y, const char *what,
                     void *field) {
    int64_t min, max;
    double fmin, fmax;
    int_range(s, &min, &max);
    dr_attr_range(s, &fmin, &fmax);
    switch (s->kind) {
    case DR_ATTR_INT:
        return dr_scalar_int(d, y, what, min, max, field);
    case DR_ATTR_FLOAT:
        return dr_scalar_float(d, y, what, fmin, fmax, field);
    case DR_ATTR_BOOL:
        return dr_scalar_bool(d, y, what, field);
    case DR_ATTR_WORD:
        return dr_scalar_word(d, y, what, s->words, s->n_words, field);
    case DR_ATTR_PAIR:
        return read_pair(d, s, y, what, field);
    case DR_ATTR_PADDING:
        return read_padding(d, a, t, s, y, what, field);
    case DR_ATTR_FLOATS:
    case DR_ATTR_INTS:
        return read_list(d, a, s, y, what, field);
    }
    return false;
}

void dr_attrs_default(const struct dr_op *op, void *attrs) {
    memset(attrs, 0, op->attrs_bytes);
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        const struct dr_attr *s = &op->attrs[i];
        char *field = (char *)attrs + s->offset;
        const int64_t whole = (int64_t)s->def;
        switch (s->kind) {
        case DR_ATTR_INT:
            *(int64_t *)field = whole;
            break;
        case DR_ATTR_FLOAT:
            *(double *)field = s->def;
            break;
        case DR_ATTR_BOOL:
            *(bool *)field = s->def != 0;
            break;
        case DR_ATTR_WORD:
            *(int32_t *)field = (int32_t)whole;
            break;
        case DR_ATTR_PAIR:
            ((int64_t *)field)[0] = ((int64_t *)field)[1] = whole;
            break;
        case DR_ATTR_PADDING:
            *(struct dr_padding *)field = (struct dr_padding){.mode = DR_PAD_EXPLICIT,
                                                              .top = whole,
                                                              .left = whole,
                                                              .bottom = whole,
                                                              .right = whole};
            break;
        case DR_ATTR_FLOATS:
        case DR_ATTR_INTS:
            break; /* empty */
        }
    }
}

static const char **known_keys(struct dr_arena *a, const struct dr_op *op, const char *const *other,
                               uint32_t n_other) {
    const char **all = DR_NEW_N(a, const char *, (size_t)op->n_attrs + n_other + 1);
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        all[i] = op->attrs[i].name;
    }
    for (uint32_t i = 0; i < n_other; i++) {
        all[op->n_attrs + i] = other[i];
    }
    return all;
}

bool dr_attrs_read(struct dr_diag *d, struct dr_arena *a, const struct dr_op_table *t,
                   const struct dr_op *op, const struct dr_yaml *map, const char *what,
                   const char *const *other, uint32_t n_other, void *attrs) {
    dr_attrs_default(op, attrs);
    bool ok = true;
    for (uint32_t i = 0; i < map->n; i++) {
        const struct dr_yaml *key = map->pair[i].key;
        bool known = false;
        for (uint32_t j = 0; j < n_other && !known; j++) {
            known = strcmp(other[j], key->text) == 0;
        }
        for (uint32_t j = 0; j < op->n_attrs && !known; j++) {
            const struct dr_attr *s = &op->attrs[j];
            if (strcmp(s->name, key->text) == 0) {
                known = true;
                ok = read_one(d, a, t, s, map->pair[i].value, dr_printf(a, "%s: %s", what, s->name),
                              (char *)attrs + s->offset) &&
                     ok;
            }
        }
        if (!known) {
            ok = dr_key_unknown(d, a, t, key, what, known_keys(a, op, other, n_other),
                                op->n_attrs + n_other);
        }
    }
    const struct dr_yaml *name = dr_yaml_get(map, "op");
    for (uint32_t j = 0; j < op->n_attrs; j++) {
        if (op->attrs[j].required && !dr_yaml_get(map, op->attrs[j].name)) {
            ok = dr_error(d, name ? name->mark : map->mark, "%s: '%s' is missing (%s)", what,
                          op->attrs[j].name, op->attrs[j].doc ? op->attrs[j].doc : "required");
        }
    }
    return ok;
}

static void print_padding(const struct dr_padding *p, struct dr_text *t) {
    if (p->mode == DR_PAD_SAME) {
        dr_text_add(t, "same");
    } else if (p->top != p->bottom || p->left != p->right) {
        dr_text_add(t, "{top: %lld, left: %lld, bottom: %lld, right: %lld}", (long long)p->top,
                    (long long)p->left, (long long)p->bottom, (long long)p->right);
    } else if (p->top == p->left) {
        dr_text_add(t, "%lld", (long long)p->top);
    } else {
        dr_text_add(t, "%lldx%lld", (long long)p->top, (long long)p->left);
    }
}

static void print_value(const struct dr_attr *s, const void *field, struct dr_text *t) {
    const int64_t *whole = field;
    switch (s->kind) {
    case DR_ATTR_INT:
        dr_text_add(t, "%lld", (long long)*whole);
        break;
    case DR_ATTR_FLOAT:
        dr_text_add(t, "%.9g", *(const double *)field);
        break;
    case DR_ATTR_BOOL:
        dr_text_add(t, "%s", *(const bool *)field ? "true" : "false");
        break;
    case DR_ATTR_WORD:
        dr_text_add(t, "%s", s->words[*(const int32_t *)field]);
        break;
    case DR_ATTR_PAIR:
        dr_text_add(t, "%lldx%lld", (long long)whole[0], (long long)whole[1]);
        break;
    case DR_ATTR_PADDING:
        print_padding(field, t);
        break;
    case DR_ATTR_FLOATS: {
        const struct dr_floats *f = field;
        for (uint32_t i = 0; i < f->n; i++) {
            dr_text_add(t, "%s%.9g", i ? "," : "[", f->at[i]);
        }
        dr_text_add(t, "%s", f->n ? "]" : "[]");
        break;
    }
    case DR_ATTR_INTS: {
        const struct dr_ints *f = field;
        for (uint32_t i = 0; i < f->n; i++) {
            dr_text_add(t, "%s%lld", i ? "," : "[", (long long)f->at[i]);
        }
        dr_text_add(t, "%s", f->n ? "]" : "[]");
        break;
    }
    }
}

static bool is_default(const struct dr_attr *s, const void *field) {
    const int64_t *whole = field;
    const struct dr_padding *p = field;
    const int64_t def = (int64_t)s->def;
    switch (s->kind) {
    case DR_ATTR_INT:
        return *whole == def;
    case DR_ATTR_FLOAT:
        return *(const double *)field == s->def;
    case DR_ATTR_BOOL:
        return *(const bool *)field == (s->def != 0);
    case DR_ATTR_WORD:
        return *(const int32_t *)field == (int32_t)def;
    case DR_ATTR_PAIR:
        return whole[0] == def && whole[1] == def;
    case DR_ATTR_PADDING:
        return p->mode == DR_PAD_EXPLICIT && p->top == def && p->left == def && p->bottom == def &&
               p->right == def;
    case DR_ATTR_FLOATS:
        return ((const struct dr_floats *)field)->n == 0;
    case DR_ATTR_INTS:
        return ((const struct dr_ints *)field)->n == 0;
    }
    return false;
}

void dr_attrs_print(const struct dr_op *op, const void *attrs, struct dr_text *t) {
    bool first = true;
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        const struct dr_attr *s = &op->attrs[i];
        const void *field = (const char *)attrs + s->offset;
        if (s->required || !is_default(s, field)) {
            dr_text_add(t, "%s%s=", first ? "" : " ", s->name);
            print_value(s, field, t);
            first = false;
        }
    }
}
