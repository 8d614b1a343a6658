/* The op table, from the one list. */
#include "ops/table.h"

#define DR_OP(x) extern const struct dr_op dr_op_##x;
#include "ops/list.def"
#undef DR_OP

static const struct dr_op *const all_ops[] = {
#define DR_OP(x) &dr_op_##x,
#include "ops/list.def"
#undef DR_OP
};

static const struct dr_op_table table = {
    .op = all_ops,
    .n = sizeof all_ops / sizeof all_ops[0],
};

const struct dr_op_table *dr_ops(void) {
    return &table;
}
