/* The op table: the one list of ops (ops/list.def), handed to graph/. */
#ifndef DR_OPS_TABLE_H
#define DR_OPS_TABLE_H
#include "graph/op.h"
const struct dr_op_table *dr_ops(void);
/* The learning rate of a step, as the op `lr` computes it. */
double dr_lr_rate(const struct dr_lr *lr, int64_t step);
#endif
