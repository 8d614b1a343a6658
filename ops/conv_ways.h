/* The ways to compute a convolution or its data gradient on a GPU. */
#ifndef DR_OPS_CONV_WAYS_H
#define DR_OPS_CONV_WAYS_H

#include "kernels/cuda/conv_way.h"
#include "ops/common.h"

/* dr_op.ways: of the forward pass or the data gradient, operands of type t; `act`: of the epilogue.
 */
uint32_t dr_conv_ways(const struct dr_graph *g, const struct dr_conv *c, enum dr_type t,
                      enum dr_conv_pass pass, int act, struct dr_choice *way);
/* The same of the forward pass where x is u8 pixels; 0: no kernel takes them. */
uint32_t dr_conv_u8_ways(const struct dr_graph *g, const struct dr_conv *c, enum dr_type t, int act,
                         struct dr_choice *way);
/* ... and where the largest of each 2 x 2 outputs alone is stored. */
uint32_t dr_conv_pool_ways(const struct dr_graph *g, const struct dr_conv *c, enum dr_type t,
                           int act, struct dr_choice *way);
/* The choice of a pass that has one way, on either device. */
struct dr_choice dr_conv_choice(const struct dr_graph *g, const struct dr_conv *c, enum dr_type t,
                                enum dr_conv_pass pass, bool cuda, int64_t workspace_bytes);

#endif
