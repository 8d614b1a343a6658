/* What losses and metrics over classes share: [logits [N, ..., K], target [N, ...]], header. */
#ifndef DR_OPS_LABELS_H
#define DR_OPS_LABELS_H
#include "kernels/cpu/softmax.h"
#include "kernels/cuda/softmax.h"
#include "ops/common.h"

/* The attribute's default: below its range, so that no written value means it. */
#define DR_IGNORE_BY_KIND (-2147483649.0)
#define DR_IGNORE_ATTR(T)                                                                          \
    {                                                                                              \
        .name = "ignore_index",                                                                    \
        .doc = "class that does not count; where it is not given: 255 for masks, else -100",       \
        .kind = DR_ATTR_INT, .def = DR_IGNORE_BY_KIND, .min = -2147483648.0, .max = 2147483647.0,  \
        .offset = offsetof(T, ignore_index)                                                        \
    }
/* Checks both inputs, tells the target how many classes there are, and settles ignore_index. */
bool dr_labels_infer(struct dr_infer *c, int64_t *ignore_index);
/* The same where one logit tells class 1 from class 0. */
bool dr_labels_or_binary_infer(struct dr_infer *c, int64_t *ignore_index);
/* From the operands logits, target and (last) header. */
struct dr_cpu_classes dr_labels_of(const struct dr_launch *l, int64_t ignore_index);
struct dr_cuda_classes dr_labels_of_cuda(const struct dr_launch *l, int64_t ignore_index);
/* Scratch for sums over the rows of the target (input 1). */
struct dr_choice dr_labels_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda);
#endif
