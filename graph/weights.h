/* Which tensor of which file a state gets: DESIGN "Weights files".
 *
 *     struct dr_weights_files w = {.arena = a, .diag = d, .model = m};
 *     const struct dr_tensor **tensor = dr_weights_match(&w, graph, NULL);
 *     dr_weights_report(&w);
 *     ... dr_weights_read(value, tensor[v], to) ...
 *     dr_weights_close(&w);
 *
 * A state "subgraph.node.leaf" with `weights: {file, prefix: P, map, missing}` around it is looked
 * up as P + "node.leaf" with the map's segments replaced (the longest key first, from the left,
 * once), else by its full name. Nothing is read before everything fits: names, shapes and types are
 * checked for all states, and every mistake is an error in the sink. Files are in PyTorch's layout,
 * a rank-4 weight [K, Kh, Kw, C] is [K, C, Kh, Kw] there: OIHW of a convolution, IOHW of a
 * transposed one. */
#ifndef DR_GRAPH_WEIGHTS_H
#define DR_GRAPH_WEIGHTS_H

#include "graph/model.h"
#include "graph/safetensors.h"

/* Notes of files that dagrun writes. */
#define DR_NOTE_STEP                                                                               \
    "dagrun.step" /* a checkpoint: it has optimizer states too ("W:sgd.momentum") */

struct dr_weights_file {
    const char *path;
    struct dr_safetensors f;
    bool there;
    bool *used; /* by tensor */
    bool *seen; /* by tensor: it begins with a prefix under which something was looked up */
};

struct dr_weights_match { /* for --check -v */
    const char *state;
    const struct dr_tensor *tensor; /* NULL: initial value, as `missing: init` allows */
    const char *path;
};

struct dr_weights_use { /* a `weights:` of the YAML */
    const struct dr_weights *of;
    bool *mapped; /* by entry of its map: it was applied */
    bool initial; /* some tensor is missing, as is allowed */
    struct dr_text missing;
};

struct dr_weights_files {
    struct dr_arena *arena;
    struct dr_diag *diag;
    const struct dr_model *model;
    const char *load; /* a file that is asked first, for full names; every state must be in it or in
                         a file of the YAML; NULL */
    bool planning;    /* a file of the YAML that is not there is worth a warning only */
    struct dr_map *decl_by_name, *file_by_path;
    DR_VEC(struct dr_weights_file) file;
    DR_VEC(struct dr_weights_use) use;
    DR_VEC(struct dr_weights_match) match;
    DR_VEC(const char *)
    random; /* of evaluation and inference: states that no file was named for */
};

/* By value: its tensor, or NULL (initial value, no weight). NULL after errors in the sink. States
 * that `beside` (NULL: none) has too are left out. */
const struct dr_tensor **dr_weights_match(struct dr_weights_files *w, const struct dr_graph *g,
                                          const struct dr_graph *beside);
/* Warns of tensors that no state takes, of what `missing: init` initialised, of maps' entries that
 * replaced nothing, of results that random weights would give. After the last match. */
void dr_weights_report(struct dr_weights_files *w);
/* What was matched, a line a file; `each`: and a line a tensor. */
void dr_weights_text(const struct dr_weights_files *w, bool each, struct dr_text *t);
void dr_weights_close(struct dr_weights_files *w);

/* The shape of a state in a file. */
void dr_weights_shape(const struct dr_value *v, struct dr_safetensors_entry *e);
/* A tensor that was matched, as the device wants it. False: no memory. */
bool dr_weights_read(const struct dr_value *v, const struct dr_tensor *t, float *to);
/* A state as files want it. */
void dr_weights_write(const struct dr_value *v, const float *from, float *to);
/* "l1.a.weight" with the segments of a map replaced; `mapped` (by entry) is set, may be NULL. */
const char *dr_weights_rename(struct dr_arena *a, const struct dr_yaml *map, const char *name,
                              bool *mapped);

#endif
