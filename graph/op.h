/* struct dr_op: all that dagrun knows of an op, declared in one place (one file in ops/ or
 * augment/).
 *
 * The YAML checks, "did you mean", the op reference, shape inference, gradients, costs, kernels and
 * launchers are read from here. graph/ sees ops only through this struct and dr_op_table. */
#ifndef DR_GRAPH_OP_H
#define DR_GRAPH_OP_H

#include "graph/ir.h"
#include "graph/yaml.h"

/* ---- attributes: typed fields of a struct of the op's own, filled through this schema ---- */
enum dr_attr_kind {
    DR_ATTR_INT,     /* int64_t */
    DR_ATTR_FLOAT,   /* double */
    DR_ATTR_BOOL,    /* bool */
    DR_ATTR_WORD,    /* int32_t, index into words */
    DR_ATTR_PAIR,    /* int64_t[2] {h, w}; written as one number or [h, w] */
    DR_ATTR_PADDING, /* struct dr_padding; valid | same | p | [h, w] | {top, left, bottom, right} */
    DR_ATTR_FLOATS,  /* struct dr_floats; a list */
    DR_ATTR_INTS,    /* struct dr_ints; a list */
};
struct dr_padding {
    enum { DR_PAD_EXPLICIT, DR_PAD_SAME } mode; /* `valid` is explicit zeros */
    int64_t top, left, bottom, right;           /* after infer always the real numbers */
};
struct dr_floats {
    uint32_t n;
    const double *at;
};
struct dr_ints {
    uint32_t n;
    const int64_t *at;
};
struct dr_attr {
    const char *name, *doc;
    enum dr_attr_kind kind;
    bool required;
    double def, min,
        max; /* of every number; defaults of lists are empty, of words an index; a
                default outside [min, max] is not a value: the doc says what it means */
    const char *const *words;
    uint32_t n_words;
    size_t offset;
};

/* ---- the words of `activation:`; also ops of their own ---- */
enum dr_activation {
    DR_ACT_NONE,
    DR_ACT_RELU,
    DR_ACT_TANH,
    DR_ACT_SIGMOID,
    DR_ACT_LEAKY_RELU,
    DR_ACT_FUSED, /* the gradients of those above read their output, so that kernels can
                     apply them as they store (DR_OP_FUSES) in training too */
    DR_ACT_GELU = DR_ACT_FUSED, /* those from here on read their input */
    DR_ACT_SILU,
    DR_ACTIVATIONS
};
/* "none", "relu", ...: the word, and the op's name. graph/attr.c */
extern const char *const dr_activation_word[DR_ACTIVATIONS];

/* What the fuse pass has a kernel do before it stores its result:
 *
 *     y = act(norm(result) + add)
 *
 * The operands are the node's last inputs: the norm's weight, bias, mean and variance by channel,
 * then the other addend, of y's shape and type. */
struct dr_fused {
    int32_t activation; /* dr_activation */
    bool norm, add;
    double eps; /* of the norm */
};

/* Or as it loads its first input, u8 pixels: channel c becomes x * mul[c] + add[c], one
 * multiply-add in fp32, rounded to what the input was stored as before. */
enum { DR_PIXEL_CHANNELS = 8 };
struct dr_pixels {
    uint32_t n; /* channels; 0: the input is what the op says */
    float mul[DR_PIXEL_CHANNELS], add[DR_PIXEL_CHANNELS];
};

/* ---- chains of pointwise ops ---- */
#define DR_CHAIN_STEPS 16
#define DR_CHAIN_INPUTS 16
/* One function of up to three values, as the op `pointwise` knows it: its number there, and its
 * parameters. */
struct dr_step {
    int32_t fn;
    float p, q;
};
/* Attributes of `pointwise`: step i works on inputs of the node, or (DR_NONE) the result of step i
 * - 1. The last result is the output. */
struct dr_chain {
    uint32_t n;
    struct {
        struct dr_step step;
        uint32_t in[3], n_in;
    } at[DR_CHAIN_STEPS];
};

/* ---- shape inference ---- */
struct dr_infer {
    struct dr_graph *g;
    uint32_t node;
};
/* Shape/value of input i as given in the file (or of states added so far). The pointer is good
 * until the next call that adds a value. */
const struct dr_value *dr_infer_in(const struct dr_infer *c, uint32_t i);
void *dr_infer_attrs(const struct dr_infer *c);
/* Adds the next output. The first takes the node's name, further ones "name.suffix". */
bool dr_infer_out(struct dr_infer *c, const char *suffix, enum dr_dtype t, struct dr_shape s,
                  enum dr_meaning meaning);
/* Appends a state as the next input: leaf "weight", "bias", ...; shared nodes get their owner's. */
bool dr_infer_state(struct dr_infer *c, const char *leaf, enum dr_state_class cls, enum dr_dtype t,
                    struct dr_shape s, struct dr_init init);
/* The same for what an optimizer keeps of the weight that is input i: "WEIGHT:OP.leaf", 0 at first,
 * whichever weights the node updates beside it. */
bool dr_infer_moment(struct dr_infer *c, uint32_t i, const char *leaf, enum dr_dtype t,
                     struct dr_shape s);
/* Declares that the node writes the state that is its input i (an update): adds it to the outputs.
 */
bool dr_infer_write(struct dr_infer *c, uint32_t i);
/* An error at the node, "conv2d 'net.c1': ...", followed by a note on each input's shape and where
 * it comes from (the path of shapes up to the nearest data node). Returns false. */
bool dr_infer_error(struct dr_infer *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same at the value of an attribute, where the file gives it. */
bool dr_infer_wrong(struct dr_infer *c, const char *attr, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- gradients ---- */
struct dr_grad {
    struct dr_graph *g;
    uint32_t node;      /* the forward node */
    const uint32_t *dy; /* [n_out] gradient of each output, DR_NONE: none */
    const bool *need;   /* [n_in] which inputs want one */
    uint32_t *dx;       /* [n_in] out: the gradient of each wanted input */
    double weight;      /* losses: their weight in the total (dy is DR_NONE then) */
};
/* Emits "X:suffix" with role backward, subgraph, mark and origin of the forward node; attrs NULL: a
 * copy of the forward node's if the op's sizes agree. Returns the node id. */
uint32_t dr_grad_emit(struct dr_grad *c, const char *suffix, const struct dr_op *op,
                      const void *attrs, const uint32_t *in, uint32_t n_in);

/* ---- cost ---- */
struct dr_cost {
    double flops;
    double bytes; /* compulsory: every operand once */
};

/* ---- kernel choice: static, the same on every run ---- */
struct dr_choice {
    int64_t workspace_bytes; /* planned scratch, one a node, 64-byte aligned, contents undefined */
    const char *kernel;      /* for people: "im2win 8x16"; what checkpoints know the choice by */
    /* Of ops with several ways to compute a node (dr_op.ways): */
    int32_t way;         /* the op's own number, for its launcher */
    double us;           /* that it is expected to take; 0: unknown */
    const char *problem; /* all that the choice depends on, as text */
    const char *reason;  /* why this way exists, for people */
};
enum { DR_WAYS = 48 }; /* of a node, at most */

/* ---- launching ---- */
/* What a launcher gets: pointers in the order of node->in and node->out. A state that is in both
 * has the same pointer twice. Step values never alias. Nothing may be allocated or waited for. */
struct dr_launch {
    const struct dr_node *node;
    const struct dr_value *value; /* the graph's values: shapes and dtypes by id */
    void *const *in, *const *out;
    void *workspace;
    const struct dr_choice *choice; /* the plan's for this node; never NULL on CUDA */
    uint64_t seed; /* of the model; draws are keyed by (seed, epoch, sample, node->key) */
};
struct dr_cpu;  /* kernels/cpu/cpu.h: the shared pool */
struct dr_cuda; /* kernels/cuda/stream.h: the stream, its library handles */

enum dr_op_flags {
    DR_OP_HEADER = 1 << 0,     /* wants the batch header as its last step input (draws, n_valid) */
    DR_OP_LOSS = 1 << 1,       /* outputs: f32 mean [], f64 partial [2] {sum, count} */
    DR_OP_METRIC = 1 << 2,     /* output: f64 partial, finished on the host by op->finish */
    DR_OP_OPTIMIZER = 1 << 3,  /* an update of one weight, named in `optimizer:` */
    DR_OP_AUGMENT = 1 << 4,    /* role augment unless it stands in a frozen subgraph with weights */
    DR_OP_POINTWISE = 1 << 5,  /* cheap and element by element: the retiming may move it */
    DR_OP_ACTIVATION = 1 << 6, /* takes `activation:` */
    DR_OP_FUSES = 1 << 7,      /* its kernels can apply dr_activation at the end: attrs begin with
                                  a struct dr_fused that the fuse pass sets */
    DR_OP_INTERNAL = 1 << 8,   /* made by passes, not to be written in YAML */
    DR_OP_EVAL_PASS = 1 << 9,  /* eval form: outputs are the inputs, in order */
    DR_OP_WHOLE_BATCH = 1 << 10, /* `last: pad` is an error with it (training batch norm) */
    DR_OP_RANDOM = 1 << 11,      /* draws */
    DR_OP_GROUPS = 1 << 12,      /* an optimizer whose node updates any number of weights */
    DR_OP_FUSES_NORM = 1 << 13,  /* as DR_OP_FUSES: also a norm by stored statistics, */
    DR_OP_FUSES_ADD = 1 << 14,   /* ... also the sum with another value */
};

#define DR_HALF_ALL UINT32_MAX

struct dr_op {
    const char *name, *doc;
    uint32_t flags;
    const struct dr_attr *attrs;
    uint32_t n_attrs;
    size_t attrs_bytes;
    uint32_t min_in, max_in; /* inputs written in the YAML; max UINT32_MAX: any number */
    /* Operands that may be stored as fp16 or bf16, by bit; the last bit stands for all from there
     * on (DR_HALF_ALL: every one). A node has all of them so, or none. */
    uint32_t half_in, half_out;
    uint32_t outputs; /* outputs with names in the YAML; 0: as many as inputs */
    bool (*infer)(struct dr_infer *c);
    void (*grad)(struct dr_grad *c); /* NULL: no gradient goes through it */
    /* Training only, after the guard: adds updates of the op's own states (running statistics). */
    void (*track)(struct dr_graph *g, uint32_t node);
    struct dr_cost (*cost)(const struct dr_graph *g, const struct dr_node *n);
    struct dr_choice (*choose)(const struct dr_graph *g, const struct dr_node *n, bool cuda);
    /* The ways in which g->device could compute the node, [DR_WAYS]; the first is what choose
     * takes. Returns how many. --tune measures them all. NULL: there is one. */
    uint32_t (*ways)(const struct dr_graph *g, const struct dr_node *n, struct dr_choice *way);
    const struct dr_op
        *eval_form; /* in eval, inference and frozen parts; same attrs; NULL: itself */
    double (*finish)(const void *attrs, const double *partial, uint32_t n); /* losses, metrics */
    /* A pointwise op that may become part of a chain: the function it is. Of more than two inputs,
     * it is applied from the left: f(f(a, b), c). NULL: none. */
    struct dr_step (*step)(const struct dr_node *n);
    /* What the node makes of u8 pixels, if it is that alone. NULL, false: it is not. */
    bool (*pixels)(const struct dr_graph *g, const struct dr_node *n, struct dr_pixels *out);
    /* Whether the kernel that g->device would take for the node can do that as it loads input 0;
     * then its attributes keep it. NULL, false: it cannot, or it would not pay. */
    bool (*take_pixels)(const struct dr_graph *g, struct dr_node *n, const struct dr_pixels *p);
    /* Whether that kernel can also do what `below` does, the one reader of the node's output: then
     * its attributes keep it, and below's output is the node's. NULL, false: as above. */
    bool (*take_below)(const struct dr_graph *g, struct dr_node *n, const struct dr_node *below);
    void (*cpu)(const struct dr_launch *l, struct dr_cpu *cpu);
    int (*cuda)(const struct dr_launch *l, struct dr_cuda *cuda); /* a cudaError_t; NULL: none */
};
/* A CUDA launcher stands beside its CPU one in the op's file: DR_CUDA_LAUNCHER f(l, cuda) {...},
 * and DR_CUDA(f) in the row. It compiles everywhere (kernels/cuda/ headers need no toolkit) and is
 * dropped from builds without CUDA, where nothing refers to it (at -O0 only because it is inline).
 */
#define DR_CUDA_LAUNCHER static inline __attribute__((unused)) int
#ifdef DR_WITH_CUDA
#define DR_CUDA(f) .cuda = f
#else
#define DR_CUDA(f) .cuda = NULL
#endif

/* The table that graph/ is handed: every op, internal ones too, sorted as the X-macro lists them.
 */
struct dr_op_table {
    const struct dr_op *const *op;
    uint32_t n;
};
const struct dr_op *dr_op_find(const struct dr_op_table *t, const char *name);

/* ---- schema reading (graph/attr.c) ---- */
/* Fills attrs from a mapping by the op's schema; keys in `other` are left to the caller. Unknown
 * keys, missing required ones, wrong types and ranges are errors ("did you mean", and where a key
 * that another op or section knows belongs). Returns false after any. */
bool dr_attrs_read(struct dr_diag *d, struct dr_arena *a, const struct dr_op_table *t,
                   const struct dr_op *op, const struct dr_yaml *map, const char *what,
                   const char *const *other, uint32_t n_other, void *attrs);
/* Bounds of an attribute's numbers; -INFINITY, INFINITY: none. */
void dr_attr_range(const struct dr_attr *a, double *min, double *max);
/* Defaults only. */
void dr_attrs_default(const struct dr_op *op, void *attrs);
/* "filters=64 kernel=3x3 padding=1" : attributes that are not at their default. */
void dr_attrs_print(const struct dr_op *op, const void *attrs, struct dr_text *t);

#endif
