/* What the tests of the model share: texts, and how they are loaded and refused. */
#ifndef DR_TESTS_TEST_MODEL_H
#define DR_TESTS_TEST_MODEL_H
#include "graph/passes.h"
#include "ops/table.h"

#include <criterion/criterion.h>
#include <string.h>

static struct dr_arena *arena;
static struct dr_diag *diag;

static inline void setup(void) {
    arena = dr_arena_create();
    diag = dr_diag_create(arena);
}
static inline void teardown(void) {
    dr_arena_destroy(arena);
}

#define INPUTS "inputs: {image: {shape: [8, 8, 1], dtype: u8}, label: {shape: [], dtype: u8}}\n"
#define DATA "data: {batch: 4, train: {image: {synthetic: uniform}, label: {synthetic: uniform}}}\n"
#define HEAD "dagrun: 1\n" INPUTS DATA
#define NODES "subgraphs:\n  net:\n    nodes:\n"
#define FIRST "      n: {op: normalize, in: image, mean: [0.5], std: [0.5]}\n"
#define LAST "      flat: {op: flatten}\n      logits: {op: linear, features: 10}\n"
#define TRAIN                                                                                      \
    "train:\n  losses: {ce: {op: cross_entropy, in: [net.logits, label]}}\n"                       \
    "  optimizer: {op: sgd, lr: 0.1}\n  steps: 10\n"
/* A whole model around some nodes: nodes begin on line 8. */
#define MODEL(nodes) HEAD NODES FIRST nodes LAST TRAIN

static inline struct dr_model *load(const char *text) {
    diag = dr_diag_create(arena);
    const struct dr_yaml *root = dr_yaml_read(arena, diag, "m.yaml", text, strlen(text));
    return root ? dr_model_from_tree(arena, diag, dr_ops(), root, "m.yaml") : NULL;
}

static inline struct dr_model *load_ok(const char *text) {
    struct dr_model *m = load(text);
    cr_assert(m, "%s\n%s", text, dr_diag_text(diag));
    return m;
}

/* Refused with exactly these errors, in the order of the file. NULL ends the list. */
static inline void refuse(const char *text, const char *const *want) {
    cr_assert_null(load(text), "%s", text);
    const char *all = dr_diag_text(diag);
    uint32_t n = 0;
    for (; want[n]; n++) {
        cr_expect(strstr(all, want[n]), "'%s' is not in:\n%s", want[n], all);
    }
    cr_expect_eq(dr_diag_errors(diag), n, "%u errors, not %u:\n%s\n%s", dr_diag_errors(diag), n,
                 text, all);
}
#define REFUSE(text, ...) refuse(text, (const char *const[]){__VA_ARGS__, NULL})

static inline const struct dr_decl *decl(const struct dr_model *m, const char *name) {
    for (uint32_t i = 0; i < m->node.n; i++) {
        if (strcmp(m->node.at[i].name, name) == 0) {
            return &m->node.at[i];
        }
    }
    cr_assert_fail("there is no node '%s'", name);
    return NULL;
}

/* "net.a.0" or the input's name: what input i of a node is. */
static inline const char *source(const struct dr_model *m, const struct dr_decl *d, uint32_t i) {
    const struct dr_ref *r = &d->in[i];
    return r->is_input ? m->input.at[r->index].name : m->node.at[r->index].out[r->output];
}

static inline const char *attrs(const struct dr_decl *d) {
    struct dr_text t = {.arena = arena};
    dr_text_add(&t, "%s", "");
    dr_attrs_print(d->op, d->attrs, &t);
    return t.at;
}

static inline const char *from_tests(const char *name) {
    return dr_printf(arena, DR_SOURCE_DIR "/tests/yaml/%s", name);
}

#endif
