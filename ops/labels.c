/* Checks of [logits, target]; see labels.h. */
#include "ops/labels.h"
#include "kernels/batch.h"

bool dr_labels_infer(struct dr_infer *c, int64_t *ignore_index) {
    if (!dr_need_f32(c, 0))
        return false;
    const struct dr_value *x = dr_infer_in(c, 0), *t = dr_infer_in(c, 1);
    if (t->dtype != DR_I32 && t->dtype != DR_U8)
        return dr_infer_error(c, "its target '%s' is %s; classes are integers (u8 or i32)", t->name,
                              dr_dtype_name(t->dtype));
    struct dr_shape want = x->shape;
    if (want.rank < 2)
        return dr_infer_error(c, "its logits '%s' have no axis of classes", x->name);
    const int64_t k = want.dim[--want.rank];
    if (!dr_shape_equal(&want, &t->shape))
        return dr_infer_error(c, "logits '%s' %s want a target of shape %s, but '%s' is %s",
                              x->name, dr_shape_text(c->g->arena, &x->shape),
                              dr_shape_text(c->g->arena, &want), t->name,
                              dr_shape_text(c->g->arena, &t->shape));
    if ((double)*ignore_index == DR_IGNORE_BY_KIND)
        *ignore_index = t->meaning == DR_MASK ? 255 : -100;
    struct dr_value *target = &c->g->value.at[c->g->node.at[c->node].in[1]];
    if (target->classes == 0 || target->classes > k)
        target->classes = k; /* what every reader accepts */
    if (target->ignored == 0)
        target->ignored = *ignore_index; /* losses come before metrics: theirs counts */
    return true;
}

bool dr_labels_or_binary_infer(struct dr_infer *c, int64_t *ignore_index) {
    const uint32_t t = c->g->node.at[c->node].in[1];
    const int64_t before = c->g->value.at[t].classes;
    if (!dr_labels_infer(c, ignore_index))
        return false;
    if (dr_last(dr_infer_in(c, 0)) == 1)
        c->g->value.at[t].classes = before == 1 ? 1 : 2;
    return true;
}

struct dr_cpu_classes dr_labels_of(const struct dr_launch *l, int64_t ignore_index) {
    const struct dr_value *x = dr_launch_in(l, 0), *t = dr_launch_in(l, 1);
    const struct dr_batch *header = l->in[l->node->n_in - 1];
    const int64_t rows = dr_elements(t);
    return (struct dr_cpu_classes){
        .target = l->in[1],
        .u8 = t->dtype == DR_U8,
        .rows = rows,
        .k = dr_last(x),
        .rows_per_sample = rows / t->shape.dim[0],
        .n_valid = header->n_valid,
        .ignore = ignore_index,
    };
}

struct dr_cuda_classes dr_labels_of_cuda(const struct dr_launch *l, int64_t ignore_index) {
    const struct dr_value *x = dr_launch_in(l, 0), *t = dr_launch_in(l, 1);
    const int64_t rows = dr_elements(t);
    return (struct dr_cuda_classes){
        .target = l->in[1],
        .u8 = t->dtype == DR_U8,
        .rows = rows,
        .k = dr_last(x),
        .rows_per_sample = rows / t->shape.dim[0],
        .ignore = ignore_index,
        .header = l->in[l->node->n_in - 1],
    };
}

struct dr_choice dr_labels_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    const int64_t rows = dr_elements(dr_node_in(g, n, 1)), k = dr_last(dr_node_in(g, n, 0));
    return (struct dr_choice){.workspace_bytes = cuda ? dr_cuda_classes_bytes(rows, k)
                                                      : dr_cpu_cross_entropy_bytes(rows),
                              .kernel = "chunked sums"};
}
