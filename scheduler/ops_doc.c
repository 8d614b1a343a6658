/* --ops: the op reference, as text and as a JSON Schema for editors; all of it from the op table.
 */
#include "scheduler/cli.h"

#include "ops/table.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static bool is_public(const struct dr_op *op) {
    return !(op->flags & DR_OP_INTERNAL);
}

const struct dr_op *dr_ops_doc_find(const char *name, const char **nearest) {
    const struct dr_op_table *t = dr_ops();
    const char *names[512];
    uint32_t n = 0;
    *nearest = NULL;
    for (uint32_t i = 0; i < t->n; i++) {
        if (!is_public(t->op[i]))
            continue;
        if (!strcmp(t->op[i]->name, name))
            return t->op[i];
        if (n < sizeof names / sizeof *names)
            names[n++] = t->op[i]->name;
    }
    *nearest = dr_nearest(name, names, n);
    return NULL;
}

/* ---- text ---- */

static void range_text(const struct dr_attr *a, struct dr_text *t) {
    const bool low = isfinite(a->min) && a->min > -9e15, high = isfinite(a->max) && a->max < 9e15;
    if (low && high)
        dr_text_add(t, ", %g to %g", a->min, a->max);
    else if (low)
        dr_text_add(t, ", at least %g", a->min);
    else if (high)
        dr_text_add(t, ", at most %g", a->max);
}

static void attr_text(const struct dr_attr *a, struct dr_text *t) {
    static const char *const kinds[] = {
        [DR_ATTR_INT] = "integer",
        [DR_ATTR_FLOAT] = "number",
        [DR_ATTR_BOOL] = "boolean",
        [DR_ATTR_WORD] = "word",
        [DR_ATTR_PAIR] = "n or [h, w]",
        [DR_ATTR_PADDING] = "valid | same | n | [h, w] | {top, left, bottom, right}",
        [DR_ATTR_FLOATS] = "list of numbers",
        [DR_ATTR_INTS] = "list of integers",
    };
    dr_text_add(t, "  %-16s ", a->name);
    if (a->kind == DR_ATTR_WORD)
        for (uint32_t i = 0; i < a->n_words; i++)
            dr_text_add(t, "%s%s", i ? " | " : "", a->words[i]);
    else
        dr_text_add(t, "%s", kinds[a->kind]);
    if (a->kind != DR_ATTR_WORD && a->kind != DR_ATTR_BOOL)
        range_text(a, t);
    if (a->required)
        dr_text_add(t, "; required");
    else if (a->kind == DR_ATTR_WORD && a->n_words)
        dr_text_add(t, "; default %s", a->words[(uint32_t)a->def]);
    else if (a->kind == DR_ATTR_BOOL)
        dr_text_add(t, "; default %s", a->def != 0 ? "true" : "false");
    else if (a->kind != DR_ATTR_FLOATS && a->kind != DR_ATTR_INTS)
        dr_text_add(t, "; default %g", a->def);
    dr_text_add(t, "\n%*s%s\n", 19, "", a->doc ? a->doc : "");
}

static void op_text(const struct dr_op *op, struct dr_text *t) {
    dr_text_add(t, "%s\n  %s\n", op->name, op->doc ? op->doc : "");
    if (op->flags & DR_OP_LATER)
        dr_text_add(t, "  (not in this version)\n");
    if (op->max_in == UINT32_MAX)
        dr_text_add(t, "  inputs: %u or more\n", op->min_in);
    else if (op->min_in == op->max_in)
        dr_text_add(t, "  inputs: %u\n", op->min_in);
    else
        dr_text_add(t, "  inputs: %u to %u\n", op->min_in, op->max_in);
    if (op->flags & DR_OP_LOSS)
        dr_text_add(t, "  a loss\n");
    if (op->flags & DR_OP_METRIC)
        dr_text_add(t, "  a metric\n");
    if (op->flags & DR_OP_OPTIMIZER)
        dr_text_add(t, "  an optimizer\n");
    for (uint32_t i = 0; i < op->n_attrs; i++)
        attr_text(&op->attrs[i], t);
    if (op->flags & DR_OP_ACTIVATION)
        dr_text_add(t, "  %-16s an activation applied to the result\n", "activation");
}

void dr_ops_doc_text(const struct dr_op *only, struct dr_text *t) {
    const struct dr_op_table *table = dr_ops();
    if (only) {
        op_text(only, t);
        return;
    }
    for (uint32_t i = 0; i < table->n; i++) {
        const struct dr_op *op = table->op[i];
        if (is_public(op))
            dr_text_add(t, "%-22s %s%s\n", op->name, op->doc ? op->doc : "",
                        op->flags & DR_OP_LATER ? " (not in this version)" : "");
    }
    dr_text_add(t, "\n`dagrun --ops OP` shows the attributes of one.\n");
}

/* ---- JSON Schema ---- */

static json_t *typed(const char *type) {
    return json_pack("{s:s}", "type", type);
}

static json_t *bounded(const char *type, const struct dr_attr *a) {
    json_t *j = typed(type);
    if (isfinite(a->min) && a->min > -9e15)
        json_object_set_new(j, "minimum", json_real(a->min));
    if (isfinite(a->max) && a->max < 9e15)
        json_object_set_new(j, "maximum", json_real(a->max));
    return j;
}

static json_t *list_of(json_t *item, int n) {
    json_t *j = json_pack("{s:s, s:o}", "type", "array", "items", item);
    if (n) {
        json_object_set_new(j, "minItems", json_integer(n));
        json_object_set_new(j, "maxItems", json_integer(n));
    }
    return j;
}

static json_t *words(const char *const *w, uint32_t n) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(w[i]));
    return json_pack("{s:o}", "enum", list);
}

/* Inside a block any attribute may be an argument: "$channels". */
static json_t *or_argument(json_t *a, json_t *b, json_t *c, json_t *d) {
    json_t *any = json_array();
    json_t *const each[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (each[i])
            json_array_append_new(any, each[i]);
    json_array_append_new(any, json_pack("{s:s, s:s}", "type", "string", "pattern", "^\\$"));
    return json_pack("{s:o}", "anyOf", any);
}

static json_t *attr_schema(const struct dr_attr *a) {
    static const char *const pads[] = {"valid", "same"};
    static const char *const sides[] = {"top", "left", "bottom", "right"};
    switch (a->kind) {
    case DR_ATTR_INT:
        return or_argument(bounded("integer", a), NULL, NULL, NULL);
    case DR_ATTR_FLOAT:
        return or_argument(bounded("number", a), NULL, NULL, NULL);
    case DR_ATTR_BOOL:
        return or_argument(typed("boolean"), NULL, NULL, NULL);
    case DR_ATTR_WORD:
        return or_argument(words(a->words, a->n_words), NULL, NULL, NULL);
    case DR_ATTR_PAIR:
        return or_argument(bounded("integer", a), list_of(bounded("integer", a), 2), NULL, NULL);
    case DR_ATTR_PADDING: {
        json_t *map = json_object();
        for (int i = 0; i < 4; i++)
            json_object_set_new(map, sides[i], bounded("integer", a));
        map = json_pack("{s:s, s:o, s:b}", "type", "object", "properties", map,
                        "additionalProperties", 0);
        return or_argument(bounded("integer", a), list_of(bounded("integer", a), 2), map,
                           words(pads, 2));
    }
    case DR_ATTR_FLOATS:
        return or_argument(list_of(bounded("number", a), 0), NULL, NULL, NULL);
    case DR_ATTR_INTS:
        return or_argument(list_of(bounded("integer", a), 0), NULL, NULL, NULL);
    }
    return json_object();
}

static json_t *op_schema(const struct dr_op *op) {
    static const char *const node_keys[] = {"in", "out", "share", "weights", "optimizer", "frozen"};
    json_t *p = json_object(), *required = json_pack("[s]", "op");
    json_object_set_new(p, "op", json_pack("{s:s}", "const", op->name));
    if (op->flags & DR_OP_OPTIMIZER)
        json_object_set_new(p, "lr", json_object());
    else
        for (size_t i = 0; i < sizeof node_keys / sizeof *node_keys; i++)
            json_object_set_new(p, node_keys[i], json_object());
    if (op->flags & DR_OP_LOSS)
        json_object_set_new(p, "weight", typed("number"));
    if (op->flags & DR_OP_ACTIVATION)
        json_object_set_new(p, "activation", typed("string"));
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        json_t *a = attr_schema(&op->attrs[i]);
        if (op->attrs[i].doc)
            json_object_set_new(a, "description", json_string(op->attrs[i].doc));
        json_object_set_new(p, op->attrs[i].name, a);
        if (op->attrs[i].required)
            json_array_append_new(required, json_string(op->attrs[i].name));
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:b}", "description", op->doc ? op->doc : "", "type",
                     "object", "properties", p, "required", required, "additionalProperties", 0);
}

static json_t *ref(const char *to) {
    return json_pack("{s:s}", "$ref", to);
}

static json_t *map_of(json_t *item) {
    return json_pack("{s:s, s:o}", "type", "object", "additionalProperties", item);
}

static json_t *file_properties(void) {
    static const char *const precisions[] = {"fp32", "tf32", "fp16", "bf16"};
    json_t *group =
        json_pack("{s:s, s:{s:o, s:{}, s:{}, s:{}}}", "type", "object", "properties", "nodes",
                  map_of(ref("#/definitions/node")), "frozen", "weights", "optimizer");
    json_t *block =
        json_pack("{s:s, s:{s:o, s:{}, s:{}, s:{}}}", "type", "object", "properties", "nodes",
                  map_of(ref("#/definitions/node")), "args", "inputs", "output");
    return json_pack("{s:{s:i}, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "dagrun",
                     "const", 1, "model", typed("string"), "precision", words(precisions, 4),
                     "seed", typed("integer"), "inputs", typed("object"), "data", typed("object"),
                     "blocks", map_of(block), "subgraphs", map_of(group), "train", typed("object"),
                     "eval", typed("object"), "outputs", typed("object"), "schedule",
                     typed("object"));
}

struct json_t *dr_ops_doc_schema(const struct dr_op *only) {
    if (only)
        return op_schema(only);
    const struct dr_op_table *table = dr_ops();
    json_t *any = json_array();
    for (uint32_t i = 0; i < table->n; i++)
        if (is_public(table->op[i]) && !(table->op[i]->flags & DR_OP_OPTIMIZER))
            json_array_append_new(any, op_schema(table->op[i]));
    json_array_append_new(any, json_pack("{s:s, s:[s]}", "type", "object", "required", "block"));
    json_array_append_new(any, json_pack("{s:s, s:[s]}", "type", "object", "required", "share"));
    return json_pack("{s:s, s:s, s:s, s:[s,s,s,s], s:o, s:b, s:{s:{s:o}}}", "$schema",
                     "http://json-schema.org/draft-07/schema#", "title", "dagrun model", "type",
                     "object", "required", "dagrun", "model", "inputs", "subgraphs", "properties",
                     file_properties(), "additionalProperties", 0, "definitions", "node", "anyOf",
                     any);
}
