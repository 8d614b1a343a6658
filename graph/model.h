/* The checked model: what a YAML file says, with every name resolved and every default filled in,
 * before shapes are known. Made by dr_model_load, read-only afterwards, lives in its arena.
 *
 * dr_model_load reports every mistake it can find and returns NULL if there was any.
 * Blocks, repeats and shares are expanded: `node` is a flat list in a topological order in which
 * file order breaks ties. */
#ifndef DR_GRAPH_MODEL_H
#define DR_GRAPH_MODEL_H

#include "graph/op.h"

enum dr_precision { DR_PRECISION_FP32, DR_PRECISION_TF32, DR_PRECISION_FP16, DR_PRECISION_BF16 };

struct dr_input {
    const char *name;
    enum dr_dtype dtype;   /* as declared; labels of integer type are i32 on the device */
    struct dr_shape shape; /* one sample, without the batch */
    enum dr_meaning meaning;
    struct dr_mark mark;
};

enum dr_source_kind {
    DR_SOURCE_FILES,
    DR_SOURCE_NPY,
    DR_SOURCE_IDX,
    DR_SOURCE_CIFAR10,
    DR_SOURCE_SYNTHETIC,
    DR_SOURCE_FOLDERS,
};
struct dr_source {
    uint32_t input; /* index of the model's input */
    enum dr_source_kind kind;
    const char *path; /* npy, idx, files, cifar10: resolved against the YAML's folder; NULL */
    size_t literal;   /* files, cifar10: path is a pattern from this byte on; before it a folder */
    uint32_t of;      /* folders: the input whose files lie in them */
    enum { DR_SYNTHETIC_UNIFORM, DR_SYNTHETIC_NORMAL, DR_SYNTHETIC_ZEROS } synthetic;
    int64_t rows;     /* synthetic: how many samples (`count`, default 1024) */
    bool has_range;   /* rows: [from, to] */
    int64_t from, to; /* half-open */
    int32_t fit;      /* 0 error, 1 resize, 2 crop, 3 pad */
    bool pair_by_position;
    struct dr_mark mark;
};
struct dr_split {
    const char *name; /* train, val, test, infer, ...: any name that is not `batch` */
    DR_VEC(struct dr_source) source; /* in the order of the model's inputs that it feeds */
    int32_t shuffle;                 /* -1: by mode (training yes), else 0 / 1 */
    int32_t last;                    /* -1: by mode, 0 drop, 1 pad */
    struct dr_mark mark;
};

struct dr_ref { /* a resolved reference */
    bool is_input;
    uint32_t index;  /* input, or node of the model */
    uint32_t output; /* which output of that node */
    struct dr_mark mark;
    const char *text; /* as written */
};

struct dr_weights { /* `weights:` of a subgraph or node */
    bool random;
    const char *file, *prefix;
    const struct dr_yaml *map;
    bool missing_init;
    struct dr_mark mark;
};

struct dr_decl {      /* one node of the file after blocks are expanded */
    const char *name; /* qualified: "net.layer1.0.c1" */
    const struct dr_op *op;
    void *attrs;
    uint32_t n_in;
    struct dr_ref *in;
    uint32_t n_out;
    const char **out; /* qualified value names */
    enum dr_activation activation;
    uint32_t subgraph;
    bool frozen;
    uint32_t optimizer; /* index into dr_model.optimizer, DR_NONE: not trained by any */
    uint32_t share;     /* earlier node of the model whose weights it uses; DR_NONE */
    const struct dr_weights *weights; /* the nearest `weights:` (node, use of a block, subgraph) */
    const struct dr_yaml *written;    /* the mapping that `attrs` were read from */
    struct dr_mark mark;
};

struct dr_loss { /* loss or metric */
    const char *name;
    const struct dr_op *op;
    void *attrs;
    uint32_t n_in;
    struct dr_ref *in;
    double weight;
    const struct dr_yaml *written;
    struct dr_mark mark;
};

enum dr_file_use { DR_FILE_MODEL, DR_FILE_DATA, DR_FILE_WEIGHTS, DR_FILE_SAVED, DR_FILE_WRITTEN };
struct dr_named_file {
    const char *path, *what; /* "outputs.a: npy" */
    struct dr_mark mark;
    enum dr_file_use use;
};
static inline bool dr_file_is_written(const struct dr_named_file *f) {
    return f->use == DR_FILE_SAVED || f->use == DR_FILE_WRITTEN;
}

struct dr_outputs { /* one entry of `outputs:` */
    const char *name;
    struct dr_ref in;
    const char *npy, *png; /* resolved paths or NULL */
    struct dr_mark mark, npy_mark, png_mark;
};

enum dr_policy {
    DR_POLICY_SEQUENTIAL,
    DR_POLICY_STAGE,
    DR_POLICY_MATCHING,
    DR_POLICY_LIST,
    DR_POLICY_AUTO
};
#define DR_AUTO (-1)
struct dr_schedule {
    int32_t pipeline; /* 0: off, D, DR_AUTO */
    int32_t streams;  /* 1..32, DR_AUTO */
    enum dr_policy policy;
    bool graph;
};

struct dr_model {
    struct dr_arena *arena;
    struct dr_diag *diag;
    const struct dr_op_table *ops;
    const char *path, *folder; /* the YAML and where it stands */
    const char *name;
    enum dr_precision precision;
    uint64_t seed;
    DR_VEC(struct dr_input) input;
    int64_t batch;
    DR_VEC(struct dr_split) split;
    DR_VEC(struct dr_subgraph) subgraph;
    DR_VEC(struct dr_weights)
    weights; /* one a subgraph, in order; file NULL and not random: none */
    DR_VEC(struct dr_decl) node;
    DR_VEC(struct dr_optimizer) optimizer; /* lr.total is still 0: it depends on the data */
    DR_VEC(struct dr_loss) loss;
    DR_VEC(struct dr_loss) metric;
    DR_VEC(struct dr_outputs) output;
    struct {
        bool present;
        int64_t steps, epochs;              /* one of them is > 0 */
        double clip_norm;                   /* 0: none */
        const char *save, *save_best, *log; /* resolved paths, metric's name; NULL */
        struct dr_mark mark, best_mark, save_mark, log_mark;
    } train;
    struct {
        bool present;
        uint32_t split;
        int64_t every_epochs, every_steps; /* one is > 0 */
        struct dr_mark mark;
    } eval;
    struct dr_schedule schedule;
    DR_VEC(struct dr_named_file) file; /* that a run reads or writes, the YAML among them */
};

/* `sets`: assignments of --set, applied to the tree before it is checked. NULL after errors. */
struct dr_model *dr_model_load(struct dr_arena *a, struct dr_diag *d, const struct dr_op_table *ops,
                               const char *path, const char *const *sets, uint32_t n_sets);
/* The same from text already read (tests, fuzzers). */
struct dr_model *dr_model_from_tree(struct dr_arena *a, struct dr_diag *d,
                                    const struct dr_op_table *ops, const struct dr_yaml *root,
                                    const char *path);

/* Notes a file of the command line (`what`: "--save"; a path of NULL is none). False after an
 * error: it is written twice, or over what is read. */
bool dr_model_file(struct dr_model *m, const char *path, const char *what, enum dr_file_use use);

/* The sections of the file; which keys each may have (for checks, and for editors). */
enum dr_section {
    DR_SECTION_TOP,
    DR_SECTION_INPUT,
    DR_SECTION_DATA,
    DR_SECTION_SPLIT,
    DR_SECTION_SOURCE,
    DR_SECTION_BLOCK,
    DR_SECTION_SUBGRAPH,
    DR_SECTION_OP,    /* keys of a node with `op:`, beside the op's attributes */
    DR_SECTION_USE,   /* keys of a node with `block:`, beside the block's arguments */
    DR_SECTION_SHARE, /* keys of a node with `share:` */
    DR_SECTION_TRAIN,
    DR_SECTION_LOSS,
    DR_SECTION_OPTIMIZER,
    DR_SECTION_LR,
    DR_SECTION_SAVE,
    DR_SECTION_EVAL,
    DR_SECTION_METRIC,
    DR_SECTION_OUTPUT,
    DR_SECTION_SCHEDULE,
    DR_SECTION_WEIGHTS,
    DR_SECTIONS
};
const char *const *dr_section_keys(enum dr_section s, uint32_t *n);

#endif
