/* YAML text -> a tree in which every node keeps its place.
 *
 * Built from libyaml's events, with budgets counted as they arrive: 16 MiB of text, 64 levels,
 * 1,000,000 nodes after aliases are expanded. Duplicate keys are errors at every level; an alias to
 * an anchor that is still open is an error; `<<` merges mappings (keys written beside it win).
 * Aliases share their subtree: the tree is a DAG and must be treated as read-only.
 * Scalars stay text: graph/scalar.h reads them as the schema wants. */
#ifndef DR_GRAPH_YAML_H
#define DR_GRAPH_YAML_H

#include "graph/diag.h"

enum { DR_YAML_DEPTH_MAX = 64, DR_YAML_NODES_MAX = 1000000 };

enum dr_yaml_kind { DR_YAML_SCALAR, DR_YAML_SEQUENCE, DR_YAML_MAPPING };

struct dr_yaml;
struct dr_yaml_pair {
    const struct dr_yaml *key; /* always a scalar */
    const struct dr_yaml *value;
};
struct dr_yaml {
    enum dr_yaml_kind kind;
    bool quoted; /* a scalar in quotes or a block scalar */
    struct dr_mark mark;
    const char *text; /* scalar: NUL-terminated; embedded NULs are refused by the reader */
    uint32_t n;       /* bytes of a scalar, items of a sequence, pairs of a mapping */
    uint32_t size;    /* nodes below and including this one, aliases expanded */
    const struct dr_yaml **item;
    struct dr_yaml_pair *pair;
};

/* Both return NULL after an error in the sink. The root must be a mapping, the only document. */
const struct dr_yaml *dr_yaml_read_file(struct dr_arena *a, struct dr_diag *d, const char *path);
const struct dr_yaml *dr_yaml_read(struct dr_arena *a, struct dr_diag *d, const char *name,
                                   const char *text, size_t n);

/* The value under `key` of a mapping, or NULL. */
const struct dr_yaml *dr_yaml_get(const struct dr_yaml *map, const char *key);

/* `--set a.b.c=VALUE`: a new root with the value at that path replaced or added (VALUE is YAML;
 * sequence items are addressed by number). Keys containing dots cannot be addressed. NULL + error
 * if the path runs through a scalar or the assignment has no '='. */
const struct dr_yaml *dr_yaml_set(struct dr_arena *a, struct dr_diag *d, const struct dr_yaml *root,
                                  const char *assignment);

/* The YAML value from byte `base` to the end of a registered source, of any kind; nothing there is
 * an empty scalar. `depth`: levels that it will stand below. NULL after an error. */
const struct dr_yaml *dr_yaml_read_value(struct dr_arena *a, struct dr_diag *d, uint16_t source,
                                         const char *text, size_t n, size_t base, uint32_t depth);
#endif
