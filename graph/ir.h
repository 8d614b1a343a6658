/* The IR: one graph is one step of training, evaluation or inference, as a linear list of nodes.
 *
 * Ids are indexes into `value` and `node`. The node list is in program order: a topological order
 * of one step, deterministic (file order breaks ties). Its meaning is sequential consistency: a
 * step behaves as if its nodes ran one by one in id order, and steps as if they ran one after
 * another; every schedule keeps that.
 *
 * A value is either
 * - DR_STEP, produced by exactly one node in each step (activations, gradients, the batch), or
 * - DR_STATE, kept from step to step (weights, moments, running statistics, health). A node that
 *   changes a state lists it in `out`, and in `in` too if it reads it. Several nodes may write one
 *   state in a step; they do so in id order.
 *
 * Shapes are NHWC with the batch first; weights are [K, Kh, Kw, C/groups] (conv2d), [out, in]
 * (linear).
 *
 * Everything lives in the graph's arena. Rewriting passes build a new graph with the dr_graph_*
 * calls. */
#ifndef DR_GRAPH_IR_H
#define DR_GRAPH_IR_H

#include "graph/diag.h"

enum dr_dtype { DR_U8, DR_U16, DR_I32, DR_I64, DR_F16, DR_BF16, DR_F32, DR_F64, DR_DTYPES };
size_t dr_dtype_bytes(enum dr_dtype t);
const char *dr_dtype_name(enum dr_dtype t);

#define DR_MAX_RANK 5
struct dr_shape {
    uint32_t rank; /* 0: a scalar */
    int64_t dim[DR_MAX_RANK];
};
/* Checked 64-bit products: false on overflow or a dimension < 1. */
bool dr_shape_elements(const struct dr_shape *s, int64_t *out);
bool dr_shape_equal(const struct dr_shape *a, const struct dr_shape *b);
const char *dr_shape_text(struct dr_arena *a, const struct dr_shape *s); /* "[32, 56, 56, 64]" */
#define DR_SHAPE(...)                                                                              \
    ((struct dr_shape){.rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                 \
                       .dim = {__VA_ARGS__}})

enum dr_value_kind { DR_STEP, DR_STATE };
/* What a value means to augmentation and to data checks. */
enum dr_meaning { DR_PLAIN, DR_IMAGE, DR_MASK, DR_LABEL, DR_HEADER };
enum dr_state_class {
    DR_WEIGHT, /* a learnable tensor, saved */
    DR_BUFFER, /* running statistics, saved */
    DR_MOMENT, /* of optimizers and of loss scaling: in checkpoints alone */
    DR_HEALTH, /* int64 {bad, step}: 1 once a loss was not finite: then M is frozen; 2: in this step
                  alone, with loss scaling */
};
struct dr_init {
    enum { DR_INIT_ZERO, DR_INIT_ONE, DR_INIT_HE_NORMAL, DR_INIT_NUMBER } kind;
    int64_t fan_in; /* DR_INIT_HE_NORMAL: std = sqrt(2 / fan_in) */
    double number;  /* DR_INIT_NUMBER, of f32 */
};

struct dr_value {
    const char *name; /* qualified and unique: "encoder.l1.a", "encoder.l1.a.weight" */
    enum dr_value_kind kind;
    enum dr_dtype dtype;
    struct dr_shape shape;
    enum dr_meaning meaning;
    int64_t bytes;     /* of one buffer, from shape and dtype; set by dr_graph_value */
    uint32_t producer; /* DR_STEP: its node. DR_STATE: DR_NONE */
    struct dr_mark mark;
    int64_t classes; /* labels and masks: how many classes the readers accept; 0: unknown */
    int64_t ignored; /* ... and the one number more that they pass over (ignore_index); 0: none,
                        since 0 is a class */
    /* DR_STATE only */
    enum dr_state_class cls;
    struct dr_init init;
    bool frozen;    /* a weight or buffer that no step changes */
    uint32_t owner; /* node whose frozen mark decided (for messages); DR_NONE */
};

enum dr_role {
    DR_ROLE_DATA, /* copies one input of the batch from the host's ring; no inputs, one output */
    DR_ROLE_AUGMENT,
    DR_ROLE_FORWARD,
    DR_ROLE_BACKWARD,
    DR_ROLE_UPDATE,   /* optimizer, running statistics, guard, learning rate */
    DR_ROLE_READBACK, /* copies its inputs, in order, each 8-byte aligned, to the host's record */
    DR_ROLES
};
const char *dr_role_name(enum dr_role r);

/* DESIGN "Frozen": M is the state that a step changes. */
enum dr_frozen_class {
    DR_UPSTREAM, /* no path from M: may run any number of steps ahead */
    DR_IN_PATH,  /* frozen weights (or none), below something trainable: dgrad only, not movable */
    DR_UPDATED,  /* reads or writes M */
};
const char *dr_frozen_class_name(enum dr_frozen_class c);

struct dr_op;
struct dr_yaml; /* graph/yaml.h */
struct dr_node {
    const char *name; /* qualified and unique; gradient nodes "X:dgrad", updates "X:sgd" */
    const struct dr_op *op;
    void *attrs; /* op->attrs_bytes, typed by the op */
    uint32_t *in, *out;
    uint32_t n_in, n_out;
    enum dr_role role;
    enum dr_frozen_class cls; /* set by the frozen pass */
    bool frozen;              /* marked so in the YAML (by itself, its subgraph) */
    bool needs_grad;          /* some trainable weight is at or above it */
    bool elsewhere;           /* a metric or output that this mode leaves out needs it: may be
                                 dropped without a warning */
    uint32_t subgraph;        /* index into graph->subgraph; DR_NONE */
    uint32_t forward;         /* a gradient's or update's origin (id in this graph); DR_NONE */
    uint32_t optimizer;       /* index into graph->optimizer, for its weights; DR_NONE */
    uint32_t share;           /* node whose weights it uses (an earlier id); DR_NONE */
    const char *const
        *out_names; /* qualified names for its outputs; NULL: by dr_infer_out's rule */
    uint64_t key;   /* hash of the qualified name: part of the key of every draw */
    struct dr_mark mark;
    const struct dr_yaml
        *written;      /* the mapping its attributes were read from; NULL: a pass made it
                        */
    const char *fused; /* all that it does, for people: "conv2d + relu"; NULL: its op alone */
};

struct dr_subgraph {
    const char *name;
    bool frozen;
    struct dr_mark mark;
};

enum dr_graph_mode { DR_MODE_TRAIN, DR_MODE_EVAL, DR_MODE_INFER };

/* One loss or metric of the YAML, and where its numbers are. */
struct dr_term {
    const char *name;
    bool metric;
    double weight; /* of a loss */
    uint32_t node;
    uint32_t
        partial; /* f64 value the host adds up over batches; op->finish turns it into a number */
    uint32_t scalar; /* losses: f32 mean over this batch */
    struct dr_mark mark;
};

/* A learning rate over steps; every field in steps. */
struct dr_lr {
    double base, end, gamma;
    enum { DR_LR_CONSTANT, DR_LR_COSINE, DR_LR_STEP } schedule;
    int64_t warmup, every, total;
};
struct dr_optimizer {
    const struct dr_op *op;
    void *attrs;
    struct dr_lr lr;
    const char *where; /* "train" or the subgraph or node that overrides it */
    struct dr_mark mark, warmup_mark;
};

/* Dynamic loss scaling (torch.amp.GradScaler): gradients are those of the loss times a scale, so
 * that small ones survive in fp16; `interval` good steps in a row raise it. */
struct dr_loss_scaling {
    double initial; /* 0: none */
    double growth, backoff;
    int64_t interval;
};

/* What ops choose kernels by. */
struct dr_device_caps {
    int32_t arch; /* of a GPU, 10 * major + minor; 0: a CPU */
    int32_t sms;  /* its multiprocessors */
    bool hopper;  /* kernels of wgmma and TMA can run: a Hopper, and sm_90a's code is there */
};

struct dr_graph {
    struct dr_arena *arena;
    struct dr_diag *diag;
    const char *name;
    enum dr_graph_mode mode;
    int64_t batch;
    uint64_t seed;
    DR_VEC(struct dr_value) value;
    DR_VEC(struct dr_node) node;
    DR_VEC(struct dr_subgraph) subgraph;
    DR_VEC(struct dr_optimizer) optimizer;
    DR_VEC(struct dr_term) term;
    DR_VEC(uint32_t) input;  /* values of the data nodes, in the order of the model's inputs */
    DR_VEC(uint32_t) output; /* values asked for by `outputs:` (inference) */
    uint32_t header;         /* value of the batch header */
    uint32_t total_loss;     /* f32 scalar, or DR_NONE */
    uint32_t health;         /* state, or DR_NONE */
    uint32_t loss_scale;     /* state, f32 [], or DR_NONE */
    uint32_t readback;       /* node, or DR_NONE */
    double clip_norm;        /* 0: none */
    struct dr_loss_scaling scaling;
    bool tf32; /* convolutions and matrix products may round operands to tf32, where a device can */
    enum dr_dtype half; /* DR_F16, DR_BF16: how activations and copies of weights are stored where
                           the ops permit it (the precision pass); DR_F32: none of it */
    struct dr_device_caps device; /* that it is to run on */
    struct dr_map *value_by_name;
};

struct dr_graph *dr_graph_create(struct dr_arena *a, struct dr_diag *d, const char *name);
/* A new graph with the same properties (name, mode, seed, subgraphs, optimizers, ...) and no
 * values, nodes, terms, inputs or outputs: what a rewriting pass starts from. */
struct dr_graph *dr_graph_like(const struct dr_graph *g);

/* Adds a value; `name` must be unique (asserted) and is copied. bytes is computed here; a shape
 * whose size overflows 64 bits or exceeds 2^60 is reported at `mark` and gives DR_NONE. */
uint32_t dr_graph_value(struct dr_graph *g, const char *name, enum dr_value_kind kind,
                        enum dr_dtype dtype, struct dr_shape shape, struct dr_mark mark);
/* Adds a node whose `in` ids are copied; attrs are copied (NULL: zeroed). No inference is run. */
uint32_t dr_graph_node(struct dr_graph *g, const char *name, const struct dr_op *op,
                       const void *attrs, const uint32_t *in, uint32_t n_in, enum dr_role role,
                       struct dr_mark mark);
/* dr_graph_node, then op->infer, which adds outputs and states. DR_NONE after an error. */
uint32_t dr_graph_emit(struct dr_graph *g, const char *name, const struct dr_op *op,
                       const void *attrs, const uint32_t *in, uint32_t n_in, enum dr_role role,
                       struct dr_mark mark);

/* A copy of the graph in which node v stays (to[v] == v), is left out (to[v] == DR_NONE), or is
 * folded into an earlier node that stays: to[v] makes v's output instead of the one that v read
 * from it, what else v read become its last inputs, and it stands where the last node folded into
 * it stood. Nothing that stays may read what goes, or need to stand behind to[v] sooner. Values and
 * states without a node go too, and every id in the graph's own fields follows (DR_NONE where it
 * pointed at something that went). */
struct dr_graph *dr_graph_rewrite(const struct dr_graph *g, const uint32_t *to);

/* Puts the nodes into another order, which keeps producers before readers: order[k] is the node
 * that becomes node k. Ids in nodes, values and the graph's fields follow. */
void dr_graph_reorder(struct dr_graph *g, const uint32_t *order);

/* Users of each value, by CSR: user[first[v] .. first[v + 1]) are node ids in order, one entry a
 * use. */
struct dr_users {
    uint32_t *first, *user;
};
struct dr_users dr_graph_users(const struct dr_graph *g, struct dr_arena *a);

/* Asserts-as-errors of the invariants above (ids in range, program order, one producer, unique
 * names, bytes right, states only written by updates...). Returns false and describes the first
 * breach in *why (in the graph's arena). Run after each pass in debug builds and by tests. */
bool dr_graph_verify(const struct dr_graph *g, const char **why);

/* The graph as text, one line a node, for --dump. */
void dr_graph_dump(const struct dr_graph *g, struct dr_text *t);

#endif
