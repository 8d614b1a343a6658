/* --ops: the op reference as text, from the op table. */
#include "scheduler/cli.h"

#include "ops/table.h"

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

/* Numbers as a YAML file would have them: 2147483647, 0.1, 1e-05. */
static void range_text(const struct dr_attr *a, struct dr_text *t) {
    double min, max;
    dr_attr_range(a, &min, &max);
    if (isfinite(min) && isfinite(max))
        dr_text_add(t, ", %.15g to %.15g", min, max);
    else if (isfinite(min))
        dr_text_add(t, ", at least %.15g", min);
    else if (isfinite(max))
        dr_text_add(t, ", at most %.15g", max);
}

/* A default outside the range is no value: what it means stands in the doc. */
static void default_text(const struct dr_attr *a, struct dr_text *t) {
    double min, max;
    dr_attr_range(a, &min, &max);
    if (a->kind == DR_ATTR_WORD)
        dr_text_add(t, "; default %s", a->words[(uint32_t)a->def]);
    else if (a->kind == DR_ATTR_BOOL)
        dr_text_add(t, "; default %s", a->def != 0 ? "true" : "false");
    else if (a->kind != DR_ATTR_FLOATS && a->kind != DR_ATTR_INTS && isfinite(a->def) &&
             a->def >= min && a->def <= max)
        dr_text_add(t, "; default %.15g", a->def);
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
    else
        default_text(a, t);
    dr_text_add(t, "\n%*s%s\n", 19, "", a->doc ? a->doc : "");
}

static void op_text(const struct dr_op *op, struct dr_text *t) {
    dr_text_add(t, "%s\n  %s\n", op->name, op->doc ? op->doc : "");
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
    if (!(op->flags & DR_OP_ACTIVATION))
        return;
    dr_text_add(t, "  %-16s ", "activation");
    for (uint32_t i = 0; i < DR_ACTIVATIONS; i++)
        dr_text_add(t, "%s%s", i ? " | " : "", dr_activation_word[i]);
    dr_text_add(t, "; default none\n  %-16s applied to the result\n", "");
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
            dr_text_add(t, "%-22s %s\n", op->name, op->doc ? op->doc : "");
    }
    dr_text_add(t, "\n`dagrun --ops OP` shows the attributes of one.\n");
}
