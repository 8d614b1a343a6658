/* Fuzzes `weights:`: the bytes before the first NUL are keys of its mapping ("prefix: a, map: {b:
 * c}"), those behind it the file. A match that holds must be readable. */
#include "graph/passes.h"
#include "graph/weights.h"
#include "ops/table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char model[] =
    "dagrun: 1\nmodel: w\ninputs: {x: {shape: [4, 4, 2], dtype: f32}}\n"
    "data: {batch: 1, infer: {x: {synthetic: zeros}}}\n"
    "blocks: {b: {nodes: {c: {op: conv2d, filters: 2, kernel: 1}, n: {op: batch_norm}}}}\n"
    "subgraphs:\n  net:\n    frozen: true\n    nodes:\n"
    "      l1: {block: b, in: x}\n      l2: {block: b, repeat: 2}\n      f: {op: flatten}\n"
    "      fc: {op: linear, features: 2}\n"
    "outputs: {y: {in: net.fc}}\n";

static void match(struct dr_arena *a, struct dr_diag *d, const char *keys, int fd) {
    const struct dr_yaml *root = dr_yaml_read(a, d, "w.yaml", model, strlen(model));
    DR_ASSERT(root);
    root = dr_yaml_set(a, d, root,
                       dr_printf(a, "subgraphs.net.weights={file: /proc/self/fd/%d%s%s}", fd,
                                 *keys ? ", " : "", keys));
    struct dr_model *m = root ? dr_model_from_tree(a, d, dr_ops(), root, "w.yaml") : NULL;
    struct dr_graph *g = m ? dr_pass_load(m, DR_MODE_INFER, 1) : NULL;
    if (!g) {
        DR_ASSERT(dr_diag_errors(d) > 0);
        return;
    }
    struct dr_weights_files w = {.arena = a, .diag = d, .model = m};
    const struct dr_tensor **t = dr_weights_match(&w, g, NULL);
    DR_ASSERT(t || dr_diag_errors(d) > 0);
    for (uint32_t i = 0; t && i < g->value.n; i++)
        if (t[i])
            dr_weights_read(&g->value.at[i], t[i], dr_alloc(a, (size_t)g->value.at[i].bytes));
    dr_weights_report(&w);
    struct dr_text text = {.arena = a};
    dr_weights_text(&w, true, &text);
    dr_weights_close(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("weights", MFD_CLOEXEC);
    struct dr_arena *a = dr_arena_create();
    struct dr_diag *d = dr_diag_create(a);
    const char *keys = dr_strndup(a, (const char *)data, n);
    const size_t used = strlen(keys) + (strlen(keys) < n);
    DR_ASSERT(fd >= 0 && ftruncate(fd, 0) == 0);
    DR_ASSERT(pwrite(fd, data + used, n - used, 0) == (ssize_t)(n - used));
    match(a, d, keys, fd);
    (void)dr_diag_text(d);
    dr_arena_destroy(a);
    return 0;
}
