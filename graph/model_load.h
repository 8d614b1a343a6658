/* Private to graph/model*.c and graph/attr.c: how a YAML tree becomes a dr_model.
 *
 * Two levels. A `tnode` is a node as written, in a subgraph or in a block; names, keys, references
 * and cycles are checked there, once. An expanded node (dr_decl) is one use of it: argument values
 * differ from use to use, so attributes that name an argument are read per use. Values travel
 * between expanded nodes through ports, because references may point forward.
 *
 * Names. A name is any text that is not empty, has no control characters but line ends and tabs and
 * does not begin with '$'. Qualified names join with '.', and names that dagrun makes itself add
 * '.leaf' or ':suffix', so a name that contains '.' or ':' must not begin with another name of its
 * scope followed by that character ("1.0" is fine unless "1" is there too). */
#ifndef DR_GRAPH_MODEL_LOAD_H
#define DR_GRAPH_MODEL_LOAD_H

#include "graph/model.h"
#include "graph/scalar.h"

#define DR_MAX_BLOCK_DEPTH 64
#define DR_MAX_EXPANSION 1000000 /* nodes, their operands and the YAML read again for them */
#define DR_MAX_PATH 4095         /* PATH_MAX without its NUL */

/* ---- keys (graph/model_schema.c) ---- */
/* "unknown key 'K' in WHAT", with the nearest allowed key, or where K belongs, or what is allowed.
 * Returns false. */
bool dr_key_unknown(struct dr_diag *d, struct dr_arena *a, const struct dr_op_table *ops,
                    const struct dr_yaml *key, const char *what, const char *const *allowed,
                    uint32_t n);

/* ---- nodes as written ---- */
enum dr_tref_kind { DR_TREF_BAD, DR_TREF_INPUT, DR_TREF_ARG, DR_TREF_NODE };
struct dr_tref {
    enum dr_tref_kind kind;
    uint32_t index, output; /* model's input, block's input, or tnode and which output */
    struct dr_mark mark;
    const char *text;
};

/* What a node's keys say beside its attributes. */
struct dr_settings {
    enum dr_activation activation;
    int32_t frozen;     /* -1: as around it */
    uint32_t optimizer; /* DR_NONE: as around it */
    const struct dr_weights *weights;
    int64_t repeat; /* 0: not given */
};

/* One reading of a tnode with one set of argument values. */
struct dr_reading {
    bool ok;
    struct dr_settings settings;
    void *attrs;
    const struct dr_yaml **args; /* a block's argument values */
};

enum dr_tkind { DR_TNODE_OP, DR_TNODE_BLOCK, DR_TNODE_SHARE };
struct dr_tnode {
    const char *name;
    struct dr_mark mark; /* of the name */
    const struct dr_yaml *map;
    uint32_t scope;
    enum dr_tkind kind;
    bool bad;       /* an error was reported: users stay silent */
    bool uses_args; /* some value in it is $argument */
    bool checked;   /* its constant part was read */
    const struct dr_op *op;
    uint32_t block; /* scope */
    uint32_t share; /* tnode as written, then the one at the end of the chain */
    uint32_t n_in, n_out, n_named;
    uint32_t port; /* of its first output, within an instance of its scope */
    struct dr_tref *in;
    const struct dr_yaml *const *out; /* [n_named] names given by `out:` */
    struct dr_reading constant;
};

struct dr_tvalue { /* a name that references find in a scope */
    bool is_arg;
    uint32_t index, output; /* block's input, or tnode and output (DR_NONE: it has several) */
    struct dr_mark mark;
};

struct dr_tscope {
    const char *name;
    struct dr_mark mark;
    bool block, bad, used;
    const struct dr_yaml *map;
    uint32_t first, n;                  /* tnodes */
    uint32_t n_ports;                   /* of one instance */
    uint32_t n_args, n_in;              /* blocks */
    const char **arg;                   /* names */
    const struct dr_yaml **arg_default; /* NULL: required */
    const struct dr_yaml **in;          /* names of the inputs */
    uint32_t output;                    /* tnode whose outputs are the block's */
    struct dr_map *node;                /* name -> tnode */
    struct dr_map *value;               /* name -> index into dr_load.value */
    uint32_t base;                      /* subgraphs: first port */
};

enum dr_port_kind { DR_PORT_NONE, DR_PORT_INPUT, DR_PORT_NODE, DR_PORT_ALIAS };
struct dr_port {
    enum dr_port_kind kind;
    uint32_t index, output; /* input; decl and output; port */
};

struct dr_kept {
    const struct dr_tref *from;
    struct dr_ref *to;
    uint32_t n;
};

struct dr_load {
    struct dr_arena *a;
    struct dr_diag *d;
    const struct dr_op_table *ops;
    struct dr_model *m;
    struct dr_map *input_by_name, *subgraph_by_name, *block_by_name; /* the latter two: scopes */
    struct dr_map *reserved; /* first segments of names that dagrun makes itself */
    uint32_t n_blocks;
    DR_VEC(struct dr_tscope) scope; /* blocks, then subgraphs */
    DR_VEC(struct dr_tnode) node;
    DR_VEC(struct dr_tvalue) value;
    /* expansion */
    DR_VEC(struct dr_port) port;
    DR_VEC(uint32_t *) decl_in;      /* by decl: the ports of its inputs */
    DR_VEC(const char *) decl_share; /* by decl: name of the node it shares with; NULL */
    DR_VEC(struct dr_reading) reading;
    struct dr_map *reading_by_key, *decl_by_name;
    DR_VEC(struct dr_kept) kept;
    DR_VEC(struct dr_ref *) output_in; /* by output */
    uint32_t errors_before;
    uint64_t expansion;
    bool too_large;
};

/* ---- helpers (model_schema.c) ---- */
/* A mapping with no keys but the section's. */
bool dr_load_section(struct dr_load *l, const struct dr_yaml *y, enum dr_section s,
                     const char *what);
bool dr_load_mapping(struct dr_load *l, const struct dr_yaml *y, const char *what);
bool dr_load_name(struct dr_load *l, const struct dr_yaml *key, const char *what);
/* A name that begins with another one of the map and '.' or ':' : that one's length, or 0. */
size_t dr_load_prefix(const struct dr_map *names, const char *name, struct dr_arena *a);
const char *dr_load_path(struct dr_load *l, const struct dr_yaml *y, const char *what);
/* Finds an op for a place (`want`: DR_OP_LOSS, DR_OP_METRIC, DR_OP_OPTIMIZER, 0: a node's). */
const struct dr_op *dr_load_op(struct dr_load *l, const struct dr_yaml *y, const char *what,
                               uint32_t want);
const char *dr_load_suggest(struct dr_load *l, const char *name, const char *const *names,
                            uint32_t n);

/* ---- files (model_files.c) ---- */
/* Notes a file; a path of NULL is none. */
void dr_load_file(struct dr_load *l, const char *path, struct dr_mark mark, const char *what,
                  enum dr_file_use use);
/* Errors about files that are written twice, or over what is read. */
void dr_load_check_files(struct dr_load *l);

/* ---- sections ---- */
void dr_load_inputs(struct dr_load *l, const struct dr_yaml *y); /* model_data.c */
void dr_load_data(struct dr_load *l, const struct dr_yaml *y);
/* `where` stands in names that dagrun makes; "WHAT.optimizer" in messages. DR_NONE after errors. */
uint32_t dr_load_optimizer(struct dr_load *l, const struct dr_yaml *y, const char *where,
                           const char *what);
bool dr_load_weights(struct dr_load *l, const struct dr_yaml *y, const char *what,
                     struct dr_weights *out); /* model_train.c */
void dr_load_train(struct dr_load *l, const struct dr_yaml *y);
void dr_load_eval(struct dr_load *l, const struct dr_yaml *y);
void dr_load_outputs(struct dr_load *l, const struct dr_yaml *y);

/* Nodes: write down (model_nodes.c), give names a meaning (model_refs.c), expand and sort
 * (model_expand.c). */
void dr_load_scopes(struct dr_load *l, const struct dr_yaml *blocks,
                    const struct dr_yaml *subgraphs);
void dr_load_references(struct dr_load *l);
void dr_load_expand(struct dr_load *l, uint32_t optimizer);
/* Whether $argument of this block stands somewhere in y; unknown ones clear *ok. */
bool dr_load_uses_args(struct dr_load *l, const struct dr_yaml *y, const struct dr_tscope *s,
                       bool *ok);
/* Reads a tnode's attributes and settings with these argument values (NULL: none). */
const struct dr_reading *dr_load_read(struct dr_load *l, uint32_t t, const char *name,
                                      const struct dr_yaml **args);
/* References of `train`, `eval` and `outputs`: given a meaning by dr_load_top_ref, kept by
 * dr_load_keep, and filled in by dr_load_expand once the nodes are in order. */
struct dr_tref dr_load_top_ref(struct dr_load *l, const struct dr_yaml *y, const char *what);
void dr_load_keep(struct dr_load *l, const struct dr_tref *from, struct dr_ref *to, uint32_t n);
/* Names in `in:`: one or a list. Returns the items, or NULL after an error. */
const struct dr_yaml *const *dr_load_names(struct dr_load *l, const struct dr_yaml *y,
                                           const char *what, uint32_t *n);

/* Finds one cycle in each tangle of v -> to[first[v] .. first[v + 1]); `found` gets its vertices in
 * edge order. order (optional): every vertex after those it points to. */
struct dr_edges {
    uint32_t n, *first, *to;
};
void dr_cycles(struct dr_arena *a, const struct dr_edges *e, uint32_t *order,
               void (*found)(void *ctx, const uint32_t *at, uint32_t n), void *ctx);
/* "a -> b -> c -> a"; long ones are shortened in the middle. */
const char *dr_cycle_text(struct dr_arena *a, const char *const *name, uint32_t n);

#endif
