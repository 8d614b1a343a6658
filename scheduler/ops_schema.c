/* --ops --json: a JSON Schema (draft 7) of the YAML for editors: the sections and their keys, and
 * every op's attributes from the op table. What a schema cannot say (references, shapes) --check
 * says. */
#include "scheduler/cli.h"

#include "ops/table.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* ---- values ---- */

static json_t *typed(const char *type) {
    return json_pack("{s:s}", "type", type);
}

static json_t *at_least(const char *type, int64_t min) {
    return json_pack("{s:s, s:I}", "type", type, "minimum", (json_int_t)min);
}

static json_t *words(const char *const *w, uint32_t n) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(w[i]));
    return json_pack("{s:o}", "enum", list);
}

static json_t *boolean(void) {
    return json_pack("{s:[b,b,s,s,s,s]}", "enum", 1, 0, "yes", "no", "on", "off");
}

static json_t *list_of(json_t *item, int n) {
    json_t *j = json_pack("{s:s, s:o}", "type", "array", "items", item);
    if (n) {
        json_object_set_new(j, "minItems", json_integer(n));
        json_object_set_new(j, "maxItems", json_integer(n));
    }
    return j;
}

static json_t *map_of(json_t *item) {
    return json_pack("{s:s, s:o}", "type", "object", "additionalProperties", item);
}

static json_t *ref(const char *to) {
    return json_pack("{s:s}", "$ref", to);
}

static json_t *either(json_t *a, json_t *b) {
    return json_pack("{s:[o,o]}", "anyOf", a, b);
}

/* ---- attributes ---- */

static json_t *number(double x, bool real) {
    return real ? json_real(x) : json_integer((json_int_t)x);
}

static json_t *bounded(const struct dr_attr *a) {
    const bool real = a->kind == DR_ATTR_FLOAT || a->kind == DR_ATTR_FLOATS;
    json_t *j = typed(real ? "number" : "integer");
    double min, max;
    dr_attr_range(a, &min, &max);
    if (isfinite(min))
        json_object_set_new(j, "minimum", number(min, real));
    if (isfinite(max))
        json_object_set_new(j, "maximum", number(max, real));
    return j;
}

static json_t *padding(const struct dr_attr *a) {
    static const char *const names[] = {"valid", "same"};
    static const char *const sides[] = {"top", "left", "bottom", "right"};
    json_t *map = json_object();
    for (int i = 0; i < 4; i++)
        json_object_set_new(map, sides[i], bounded(a));
    return json_pack("{s:[o, o, o, {s:s, s:o, s:b}]}", "anyOf", words(names, 2), bounded(a),
                     list_of(bounded(a), 2), "type", "object", "properties", map,
                     "additionalProperties", 0);
}

static json_t *attr_value(const struct dr_attr *a) {
    switch (a->kind) {
    case DR_ATTR_INT:
    case DR_ATTR_FLOAT:
        return bounded(a);
    case DR_ATTR_BOOL:
        return boolean();
    case DR_ATTR_WORD:
        return words(a->words, a->n_words);
    case DR_ATTR_PAIR:
        return either(bounded(a), list_of(bounded(a), 2));
    case DR_ATTR_PADDING:
        return padding(a);
    case DR_ATTR_FLOATS:
    case DR_ATTR_INTS:
        return list_of(bounded(a), 0);
    }
    return json_object();
}

/* Inside a block any attribute may be an argument: "$channels". */
static json_t *or_argument(json_t *value) {
    return either(value, json_pack("{s:s, s:s}", "type", "string", "pattern", "^\\$"));
}

/* ---- sections ---- */

/* An object with the section's keys, of any value, and no others. */
static json_t *section(enum dr_section s) {
    uint32_t n;
    const char *const *keys = dr_section_keys(s, &n);
    json_t *p = json_object();
    for (uint32_t i = 0; i < n; i++)
        json_object_set_new(p, keys[i], json_object());
    return json_pack("{s:s, s:o, s:b}", "type", "object", "properties", p, "additionalProperties",
                     0);
}

static json_t *with(json_t *object, const char *key, json_t *value) {
    json_object_set_new(json_object_get(object, "properties"), key, value);
    return object;
}

static json_t *op_schema(const struct dr_op *op) {
    const enum dr_section s = op->flags & DR_OP_OPTIMIZER ? DR_SECTION_OPTIMIZER
                              : op->flags & DR_OP_LOSS    ? DR_SECTION_LOSS
                              : op->flags & DR_OP_METRIC  ? DR_SECTION_METRIC
                                                          : DR_SECTION_OP;
    json_t *j = with(section(s), "op", json_pack("{s:s}", "const", op->name));
    json_t *required = json_pack("[s]", "op");
    if (op->flags & DR_OP_ACTIVATION)
        with(j, "activation", or_argument(words(dr_activation_word, DR_ACTIVATIONS)));
    else if (s == DR_SECTION_OP)
        json_object_del(json_object_get(j, "properties"), "activation");
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        const struct dr_attr *a = &op->attrs[i];
        json_t *value = or_argument(attr_value(a));
        if (a->doc)
            json_object_set_new(value, "description", json_string(a->doc));
        with(j, a->name, value);
        if (a->required)
            json_array_append_new(required, json_string(a->name));
    }
    json_object_set_new(j, "required", required);
    json_object_set_new(j, "description", json_string(op->doc ? op->doc : ""));
    return j;
}

/* Any op of a kind (DR_OP_LOSS, ..., 0: of nodes). */
static json_t *any_op(uint32_t kind) {
    const struct dr_op_table *t = dr_ops();
    const uint32_t kinds = DR_OP_OPTIMIZER | DR_OP_LOSS | DR_OP_METRIC;
    json_t *any = json_array();
    for (uint32_t i = 0; i < t->n; i++)
        if (!(t->op[i]->flags & DR_OP_INTERNAL) && (t->op[i]->flags & kinds) == kind)
            json_array_append_new(any, op_schema(t->op[i]));
    if (kind == 0) {
        json_t *share = section(DR_SECTION_SHARE);
        json_object_set_new(share, "required", json_pack("[s]", "share"));
        json_array_append_new(any, share);
        json_array_append_new(any,
                              json_pack("{s:s, s:[s]}", "type", "object", "required", "block"));
    }
    return json_pack("{s:o}", "anyOf", any);
}

static json_t *data_schema(void) {
    static const char *const lasts[] = {"drop", "pad"};
    json_t *split = section(DR_SECTION_SPLIT);
    with(with(split, "shuffle", boolean()), "last", words(lasts, 2));
    json_object_set_new(split, "additionalProperties", section(DR_SECTION_SOURCE));
    json_t *data = with(section(DR_SECTION_DATA), "batch", at_least("integer", 1));
    json_object_set_new(data, "additionalProperties", split);
    json_object_set_new(data, "required", json_pack("[s]", "batch"));
    return data;
}

static json_t *schedule_schema(void) {
    static const char *const policies[] = {"sequential", "stage", "matching", "list", "auto"};
    static const char *const automatic[] = {"off", "auto"};
    json_t *s = with(section(DR_SECTION_SCHEDULE), "policy", words(policies, 5));
    with(s, "streams", either(at_least("integer", 1), words(automatic + 1, 1)));
    json_t *depth = either(at_least("integer", 0), words(automatic, 2));
    json_array_append_new(json_object_get(depth, "anyOf"), json_pack("{s:b}", "const", 0));
    return with(with(s, "pipeline", depth), "graph", boolean());
}

static json_t *train_schema(void) {
    json_t *t = with(section(DR_SECTION_TRAIN), "losses", map_of(any_op(DR_OP_LOSS)));
    with(t, "optimizer", ref("#/definitions/optimizer"));
    with(with(t, "steps", at_least("integer", 1)), "epochs", at_least("integer", 1));
    json_object_set_new(t, "required", json_pack("[s]", "losses"));
    return t;
}

static json_t *file_schema(void) {
    static const char *const precisions[] = {"fp32", "tf32", "fp16", "bf16"};
    json_t *nodes = map_of(ref("#/definitions/node"));
    json_t *input = section(DR_SECTION_INPUT);
    json_object_set_new(input, "required", json_pack("[s,s]", "shape", "dtype"));
    json_t *group = with(section(DR_SECTION_SUBGRAPH), "frozen", boolean());
    with(with(group, "nodes", nodes), "optimizer", ref("#/definitions/optimizer"));
    json_t *f = with(section(DR_SECTION_TOP), "dagrun", json_pack("{s:i}", "const", 1));
    with(with(f, "precision", words(precisions, 4)), "seed", at_least("integer", 0));
    with(with(f, "inputs", map_of(input)), "data", data_schema());
    with(f, "blocks", map_of(with(section(DR_SECTION_BLOCK), "nodes", json_incref(nodes))));
    with(with(f, "subgraphs", map_of(group)), "train", train_schema());
    with(f, "eval", with(section(DR_SECTION_EVAL), "metrics", map_of(any_op(DR_OP_METRIC))));
    with(with(f, "outputs", map_of(section(DR_SECTION_OUTPUT))), "schedule", schedule_schema());
    return f;
}

struct json_t *dr_ops_doc_schema(const struct dr_op *only) {
    if (only)
        return op_schema(only);
    json_t *f = file_schema();
    json_object_set_new(f, "$schema", json_string("http://json-schema.org/draft-07/schema#"));
    json_object_set_new(f, "title", json_string("dagrun model"));
    json_object_set_new(f, "required",
                        json_pack("[s,s,s,s]", "dagrun", "inputs", "data", "subgraphs"));
    json_object_set_new(
        f, "definitions",
        json_pack("{s:o, s:o}", "node", any_op(0), "optimizer", any_op(DR_OP_OPTIMIZER)));
    return f;
}
