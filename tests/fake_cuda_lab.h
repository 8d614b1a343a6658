/* The laboratory of main_cuda_ops: every node of a small graph is launched on a device, in buffers
 * of its own and exact size between guard bytes, and compared with a reference.
 *
 * A case: lab_rig, inputs, lab_node, lab_grads, lab_check. Each node with a launcher counts as one
 * case of its op. It is launched three times over poisoned outputs and workspace, and once more as
 * a replayed CUDA graph over its old outputs: the same bytes each time, no guard and no operand
 * changed. (Once only where a sanitizer looks on.) References: convolutions, linear and their
 * gradients by naive loops in double, all others by their CPU launchers, which sum in double.
 *
 * In half precision (lab.half) only ops whose row permits it run. Their permitted operands are
 * rounded before, in the reference too. */
#ifndef DR_TESTS_FAKE_CUDA_LAB_H
#define DR_TESTS_FAKE_CUDA_LAB_H

#include "kernels/conv_shape.h"
#include "tests/fake_harness.h"
#include <stdio.h>

/* Where launchers run. Calls return 0 or an error for error_text. */
struct lab_device {
    bool cuda;
    char name[300];
    bool tf32; /* convolutions and products round to tf32 */
    struct dr_device_caps caps;
    size_t guard; /* bytes on either side of a buffer */
    int launches; /* of a case: 4 as above, or only the first */
    void *(*alloc)(size_t bytes);
    void (*release)(void *p);
    int (*upload)(void *to, const void *from, size_t bytes);
    int (*download)(void *to, const void *from, size_t bytes);
    /* Launches the node's op and waits. captured: in a graph, which is replayed once. */
    int (*launch)(const struct dr_launch *l, bool captured);
    const char *(*error_text)(int error);
    bool (*usable)(void); /* false: an error that no later call survives */
};
/* The first CUDA device; false and why: there is none. */
bool lab_open_cuda(struct lab_device *d, char *why, size_t n);
/* A dry run: CPU launchers in place of CUDA ones. */
void lab_open_host(struct lab_device *d);
void lab_close(struct lab_device *d);

struct lab_tally {
    uint32_t cases, failed, left_out; /* left_out: too large, or of another part */
    double worst;                     /* relative error of an output */
};
struct lab {
    struct lab_device device;
    const char *only[64];    /* ops */
    uint32_t n_only;         /* 0: all */
    bool listing;            /* cases are counted, not run */
    enum dr_dtype half;      /* DR_F16, DR_BF16: what is stored so where it may be; else DR_F32 */
    int64_t most;            /* bytes of operands of a node that is judged; 0: any number */
    uint32_t part, parts;    /* of every `parts` graphs that of this number is judged */
    uint32_t graphs;         /* so far, as if none were passed over */
    uint64_t seed, random;   /* state of the generator: set anew from the seed for each graph */
    struct lab_tally *tally; /* by op, as dr_ops() lists them */
    uint32_t passed, failed;
};
/* Whether the run is to judge this op. */
bool lab_chosen(const struct lab *l, const struct dr_op *op);
/* Whether a graph of these two ops, and of others whose names begin so, may be passed over, which
 * takes less time than to build it; what follows is as if it had been built. */
bool lab_skip(struct lab *l, const char *op, const char *other);
/* A new graph, the one of this number, begins. */
void lab_begin(struct lab *l, uint32_t graph);
/* Random numbers of the run's seed: [0, n), [-1, 1). */
int64_t lab_below(struct lab *l, int64_t n);
float lab_uniform(struct lab *l);

/* One graph under test. */
struct lab_case {
    struct lab *lab;
    struct rig r;
    char label[400];            /* of the first node: op and attributes */
    const struct dr_conv *conv; /* of its convolutions */
    const float *pixels;        /* what u8 that one of them reads stand for */
    uint32_t first;             /* nodes before this one are not launched */
    struct {
        const char *op;
        const float *want; /* its first output, exactly */
    } literal[3];
    uint32_t n_literals;
    bool broken; /* could not be built */
};
struct lab_case lab_case(struct lab *l, int64_t batch);
/* Inputs of uniform numbers in [-1, 1), or of those at x. */
uint32_t lab_floats(struct lab_case *c, const char *name, struct dr_shape s, const float *x);
/* The same with numbers that repeat and a few that are not finite. */
uint32_t lab_odd_floats(struct lab_case *c, const char *name, struct dr_shape s);
/* Bytes below `classes`. */
uint32_t lab_bytes(struct lab_case *c, const char *name, struct dr_shape s, enum dr_meaning m,
                   int64_t classes);
/* A node with the activation that its kernel shall apply (dr_activation); states that it adds get
 * random values, variances above 0. DR_NONE: not built, counted as a failure. */
uint32_t lab_node(struct lab_case *c, const char *op, const char *yaml, int act, const uint32_t *in,
                  uint32_t n_in);
void lab_states(struct lab_case *c);
/* The gradient nodes for every operand that can want one, from a random dy. */
void lab_grads(struct lab_case *c, uint32_t node);
void lab_expect(struct lab_case *c, const char *op, const float *want);
/* What the fuse pass has a node do; nothing, of other nodes. */
struct dr_fused lab_fused(const struct dr_node *n);
/* A convolution that the fuse pass had read u8, or store the largest of 2 x 2: no CPU launcher does
 * that, there is a reference alone. */
bool lab_reads_pixels(const struct lab_case *c, const struct dr_node *n);
bool lab_pools(const struct lab_case *c, const struct dr_node *n);
/* The reference of output 0 (NULL: the CPU launcher's), and in *size the norm that it would have
 * if its terms were of random signs: what an error is measured by where they happen to cancel. */
double *lab_reference(const struct lab_case *c, const struct dr_node *n, double *size);
/* Runs and judges the nodes, then frees the graph. */
void lab_check(struct lab_case *c);

/* ---- half precision (fake_cuda_half.c); t: DR_F16 or DR_BF16, or DR_F32, which changes nothing */
float lab_rounded(float x, enum dr_dtype t);
uint16_t *lab_pack(const float *x, int64_t n, enum dr_dtype t); /* malloc'ed, as what follows */
float *lab_unpack(const void *h, int64_t n, enum dr_dtype t);
/* The graph's values as this node would find them in a graph of that precision. */
struct dr_value *lab_half_values(const struct dr_graph *g, const struct dr_node *n,
                                 enum dr_dtype t);
/* Launches the node on the CPU, which computes in fp32, whatever is stored. */
void lab_half_on_host(const struct dr_launch *l, struct dr_cpu *cpu);

/* The groups of cases. */
void lab_map_cases(struct lab *l);    /* sub ... sigmoid */
void lab_loss_cases(struct lab *l);   /* bce ... mean_iou */
void lab_fused_cases(struct lab *l);  /* kernels with all that the fuse pass gives them; chains */
void lab_hopper_cases(struct lab *l); /* convolutions that read u8, or pool */
void lab_conv_cases(struct lab *l);
void lab_conv_transpose_cases(struct lab *l);
void lab_linear_cases(struct lab *l);
void lab_class_cases(struct lab *l); /* softmax, losses, metrics */
void lab_norm_cases(struct lab *l);
void lab_shape_cases(struct lab *l); /* pools, upsample, moves, argmax, dropout, matmul */
void lab_step_cases(struct lab *l);  /* scalars of a step */
void lab_cast_cases(struct lab *l);
void lab_optimizer_cases(struct lab *l);
void lab_augment_cases(struct lab *l); /* crops, rotations, colours, blur, mixing */

#endif
