/* Checks, sizes and costs that several ops share. */
#include "ops/common.h"

bool dr_need_f32(struct dr_infer *c, uint32_t i) {
    const struct dr_value *v = dr_infer_in(c, i);
    if (v->dtype == DR_F32)
        return true;
    return dr_infer_error(c, "its input '%s' is %s, not f32%s", v->name, dr_dtype_name(v->dtype),
                          v->dtype == DR_U8 ? " ('normalize' makes it so)" : "");
}

bool dr_need_all_f32(struct dr_infer *c) {
    const uint32_t n = c->g->node.at[c->node].n_in;
    for (uint32_t i = 0; i < n; i++)
        if (!dr_need_f32(c, i))
            return false;
    return true;
}

bool dr_need_rank(struct dr_infer *c, uint32_t i, uint32_t rank, const char *layout) {
    const struct dr_value *v = dr_infer_in(c, i);
    if (v->shape.rank == rank)
        return true;
    return dr_infer_error(c, "its input '%s' is %s, but should be %s", v->name,
                          dr_shape_text(c->g->arena, &v->shape), layout);
}

bool dr_infer_same_shapes(struct dr_infer *c) {
    const uint32_t n = c->g->node.at[c->node].n_in;
    if (!dr_need_all_f32(c))
        return false;
    const struct dr_value *a = dr_infer_in(c, 0);
    enum dr_meaning meaning = a->meaning;
    for (uint32_t i = 1; i < n; i++) {
        const struct dr_value *b = dr_infer_in(c, i);
        if (!dr_shape_equal(&a->shape, &b->shape))
            return dr_infer_error(c, "its inputs differ in shape: '%s' is %s, '%s' is %s", a->name,
                                  dr_shape_text(c->g->arena, &a->shape), b->name,
                                  dr_shape_text(c->g->arena, &b->shape));
        if (b->meaning != meaning)
            meaning = DR_PLAIN;
    }
    return dr_infer_out(c, NULL, DR_F32, a->shape, meaning);
}

bool dr_need_axis(struct dr_infer *c, int64_t *axis) {
    const struct dr_shape *s = &dr_infer_in(c, 0)->shape;
    const int64_t a = *axis < 0 ? *axis + s->rank : *axis;
    if (a < 1 || a >= s->rank)
        return dr_infer_wrong(c, "axis", "axis %lld of %s is %s", (long long)*axis,
                              dr_shape_text(c->g->arena, s), a == 0 ? "the batch" : "not there");
    *axis = a;
    return true;
}

int64_t dr_elements(const struct dr_value *v) {
    int64_t n = 0;
    const bool fits = dr_shape_elements(&v->shape, &n);
    DR_ASSERT(fits);
    return n;
}

int64_t dr_last(const struct dr_value *v) {
    return v->shape.rank ? v->shape.dim[v->shape.rank - 1] : 1;
}

int64_t dr_bytes_after(const struct dr_value *v, int64_t axis) {
    int64_t n = (int64_t)dr_dtype_bytes(v->dtype);
    for (uint32_t i = (uint32_t)axis + 1; i < v->shape.rank; i++)
        n *= v->shape.dim[i];
    return n;
}
int64_t dr_runs_before(const struct dr_value *v, int64_t axis) {
    int64_t n = 1;
    for (int64_t i = 0; i < axis; i++)
        n *= v->shape.dim[i];
    return n;
}

struct dr_epilogue dr_launch_epilogue(const struct dr_launch *l, const struct dr_fused *f,
                                      uint32_t own, const float *bias) {
    struct dr_epilogue e = {.bias = bias, .act = f->activation};
    DR_ASSERT(l->node->n_in == own + (f->norm ? 4 : 0) + (f->add ? 1 : 0));
    if (f->norm) {
        e.norm_weight = l->in[own];
        e.norm_bias = l->in[own + 1];
        e.norm_mean = l->in[own + 2];
        e.norm_var = l->in[own + 3];
        e.eps = f->eps;
    }
    if (f->add)
        e.add = l->in[l->node->n_in - 1];
    return e;
}

double dr_finish_mean(const void *attrs, const double *partial, uint32_t n) {
    (void)attrs, (void)n;
    return partial[1] != 0 ? partial[0] / partial[1] : partial[0];
}

struct dr_cost dr_cost_of(const struct dr_graph *g, const struct dr_node *n, double flops) {
    struct dr_cost cost = {.flops = flops};
    for (uint32_t i = 0; i < n->n_in; i++) {
        bool seen = false;
        for (uint32_t j = 0; j < i && !seen && i < 64; j++)
            seen = n->in[j] == n->in[i];
        if (!seen)
            cost.bytes += (double)g->value.at[n->in[i]].bytes;
    }
    for (uint32_t i = 0; i < n->n_out; i++)
        cost.bytes += (double)g->value.at[n->out[i]].bytes;
    return cost;
}

struct dr_cost dr_cost_pointwise(const struct dr_graph *g, const struct dr_node *n) {
    const struct dr_value *v = n->n_out ? dr_node_out(g, n, 0) : dr_node_in(g, n, 0);
    return dr_cost_of(g, n, (double)dr_elements(v));
}
