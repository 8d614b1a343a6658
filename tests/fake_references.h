/* Naive references of ops, in double: the forward value from all operands as doubles. */
#ifndef DR_TESTS_FAKE_REFERENCES_H
#define DR_TESTS_FAKE_REFERENCES_H

#include "graph/ir.h"

#define REF_OPERANDS 8
struct operands {
    double *x[REF_OPERANDS]; /* all operands of the node, in order */
    struct dr_shape s[REF_OPERANDS];
    uint32_t n;
    struct dr_shape y;
    const int *p; /* parameters: each reference's comment says which */
};
typedef void reference(const struct operands *o, double *y);
reference ref_relu, ref_tanh, ref_map, ref_add, ref_linear, ref_flatten, ref_copy, ref_concat,
    ref_softmax, ref_max_pool, ref_avg_pool, ref_global_avg, ref_upsample, ref_slice, ref_pad,
    ref_transpose, ref_matmul, ref_dropout, ref_conv, ref_conv_transpose, ref_norm, ref_normalize,
    ref_cross_entropy, ref_pair, ref_dice;

int64_t ref_count(const struct dr_shape *s); /* elements */

#endif
