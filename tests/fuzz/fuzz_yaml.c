/* Fuzzes what a YAML file goes through: the reader, --set, the schema, and the passes of graph/.
 *
 * Bytes behind the first NUL are an assignment for --set. A model that loads is taken through every
 * pass in every mode, each of which must leave a graph that dr_graph_verify accepts. */
#include "graph/passes.h"
#include "ops/table.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Reads every node: a mark that points nowhere or a size that lies would show. Trees share
 * subtrees, but their expanded size is bounded. */
static uint32_t visit(const struct dr_yaml *y, uint32_t depth) {
    DR_ASSERT(depth <= DR_YAML_DEPTH_MAX && y->mark.line && y->mark.col);
    uint32_t size = 1;
    for (uint32_t i = 0; i < y->n && y->kind == DR_YAML_SEQUENCE; i++)
        size += visit(y->item[i], depth + 1);
    for (uint32_t i = 0; i < y->n && y->kind == DR_YAML_MAPPING; i++)
        size += visit(y->pair[i].key, depth + 1) + visit(y->pair[i].value, depth + 1);
    DR_ASSERT(y->kind != DR_YAML_SCALAR || strlen(y->text) == y->n);
    DR_ASSERT(size == y->size);
    return size;
}

static void check(const struct dr_graph *g) {
    const char *why = "";
    if (g && !dr_graph_verify(g, &why)) {
        fprintf(stderr, "broken graph: %s\n", why);
        abort();
    }
}

static void passes(const struct dr_model *m, enum dr_graph_mode mode) {
    struct dr_graph *g = dr_pass_load(m, mode, 100);
    check(g);
    if (g)
        check(g = dr_pass_shapes(g));
    if (g)
        check(g = dr_pass_frozen(g));
    if (g)
        check(g = dr_pass_gradients(g, dr_ops()));
    if (g)
        check(g = dr_pass_fuse(g, dr_ops()));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct dr_arena *a = dr_arena_create();
    struct dr_diag *d = dr_diag_create(a);
    const char *text = dr_strndup(a, (const char *)data, n);
    size_t yaml = strlen(text);
    const struct dr_yaml *root = dr_yaml_read(a, d, "fuzz.yaml", text, yaml);
    DR_ASSERT(!root == (dr_diag_errors(d) > 0));
    if (root && yaml < n)
        root = dr_yaml_set(a, d, root, text + yaml + 1);
    DR_ASSERT(!root == (dr_diag_errors(d) > 0));
    struct dr_model *m = NULL;
    if (root) {
        visit(root, 0);
        m = dr_model_from_tree(a, d, dr_ops(), root, "fuzz.yaml");
        DR_ASSERT(m || dr_diag_errors(d) > 0);
    }
    if (m && m->train.present)
        passes(m, DR_MODE_TRAIN);
    if (m && m->eval.present)
        passes(m, DR_MODE_EVAL);
    if (m && m->output.n)
        passes(m, DR_MODE_INFER);
    (void)dr_diag_text(d);
    dr_arena_destroy(a);
    return 0;
}
