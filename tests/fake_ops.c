/* The ops of fake_ops.h: what the passes and the scheduler need to know of an op, with CPU
 * launchers that are naive loops. */
#include "tests/fake_ops.h"
#include "kernels/batch.h"
#include <math.h>
#include <string.h>

#define NO_SHAPE ((struct dr_shape){.rank = 0})

static int64_t elements(const struct dr_value *v) {
    int64_t n = 0;
    dr_shape_elements(&v->shape, &n);
    return n;
}
static int64_t in_elements(const struct dr_launch *l, uint32_t i) {
    return elements(&l->value[l->node->in[i]]);
}
static int64_t out_elements(const struct dr_launch *l) {
    return elements(&l->value[l->node->out[0]]);
}
static struct dr_cost cost(const struct dr_graph *g, const struct dr_node *n) {
    struct dr_cost c = {0};
    for (uint32_t i = 0; i < n->n_in; i++) {
        c.bytes += (double)g->value.at[n->in[i]].bytes;
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        c.bytes += (double)g->value.at[n->out[i]].bytes;
        c.flops += (double)elements(&g->value.at[n->out[i]]);
    }
    return c;
}

/* ---- pointwise ---- */
static bool same_infer(struct dr_infer *c) {
    const struct dr_value *x = dr_infer_in(c, 0);
    if (x->dtype != DR_F32) {
        return dr_infer_error(c, "'%s' must be f32", x->name);
    }
    return dr_infer_out(c, NULL, DR_F32, x->shape, x->meaning);
}
static bool same_shapes_infer(struct dr_infer *c) {
    const uint32_t n = c->g->node.at[c->node].n_in;
    for (uint32_t i = 1; i < n; i++) {
        const struct dr_value *a = dr_infer_in(c, 0), *b = dr_infer_in(c, i);
        if (!dr_shape_equal(&a->shape, &b->shape)) {
            return dr_infer_error(c, "%s and %s differ", dr_shape_text(c->g->arena, &a->shape),
                                  dr_shape_text(c->g->arena, &b->shape));
        }
    }
    return same_infer(c);
}
/* The output of a new gradient node. (Not in one expression with g->node.at, which moves.) */
static uint32_t emitted(struct dr_grad *c, const char *suffix, const struct dr_op *op,
                        const void *attrs, const uint32_t *in, uint32_t n_in) {
    const uint32_t n = dr_grad_emit(c, suffix, op, attrs, in, n_in);
    return c->g->node.at[n].out[0];
}
/* "X:dgrad" from values of the forward node and dy. */
static void dgrad(struct dr_grad *c, const struct dr_op *op, uint32_t with) {
    if (c->need[0]) {
        const uint32_t in[] = {with, c->dy[0]};
        c->dx[0] = emitted(c, "dgrad", op, NULL, in, 2);
    }
}
static bool dgrad_infer(struct dr_infer *c) { /* anything, dy -> dx like dy */
    return dr_infer_out(c, NULL, DR_F32, dr_infer_in(c, 1)->shape, DR_PLAIN);
}

static void unary_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const float *x = l->in[0];
    float *y = l->out[0];
    for (int64_t i = 0; i < out_elements(l); i++) {
        y[i] = 2 * x[i] + 1;
    }
}
static bool unary_grad_infer(struct dr_infer *c) {
    return same_infer(c);
}
static void unary_grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const float *dy = l->in[0];
    float *dx = l->out[0];
    for (int64_t i = 0; i < out_elements(l); i++) {
        dx[i] = 2 * dy[i];
    }
}
static const struct dr_op op_unary_grad = {.name = "unary_grad",
                                           .flags = DR_OP_INTERNAL | DR_OP_POINTWISE,
                                           .min_in = 1,
                                           .max_in = 1,
                                           .outputs = 1,
                                           .infer = unary_grad_infer,
                                           .cost = cost,
                                           .cpu = unary_grad_cpu};
static void unary_grad(struct dr_grad *c) {
    if (c->need[0]) {
        c->dx[0] = emitted(c, "dgrad", &op_unary_grad, NULL, c->dy, 1);
    }
}
static const struct dr_op op_unary = {.name = "unary",
                                      .flags = DR_OP_POINTWISE,
                                      .min_in = 1,
                                      .max_in = 1,
                                      .outputs = 1,
                                      .infer = same_infer,
                                      .grad = unary_grad,
                                      .cost = cost,
                                      .cpu = unary_cpu};

static void mul_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const float *a = l->in[0], *b = l->in[1];
    float *y = l->out[0];
    for (int64_t i = 0; i < out_elements(l); i++) {
        y[i] = a[i] * b[i];
    }
}
static const struct dr_op op_mul_grad = {.name = "mul_grad",
                                         .flags = DR_OP_INTERNAL | DR_OP_POINTWISE,
                                         .min_in = 2,
                                         .max_in = 2,
                                         .outputs = 1,
                                         .infer = dgrad_infer,
                                         .cost = cost,
                                         .cpu = mul_cpu};
static void mul_grad(struct dr_grad *c) {
    static const char *const suffix[] = {"agrad", "bgrad"};
    for (uint32_t i = 0; i < 2; i++) {
        if (c->need[i]) {
            const uint32_t in[] = {c->g->node.at[c->node].in[1 - i], c->dy[0]};
            const uint32_t n = dr_grad_emit(c, suffix[i], &op_mul_grad, NULL, in, 2);
            c->dx[i] = c->g->node.at[n].out[0];
        }
    }
}
static const struct dr_op op_mul = {.name = "mul",
                                    .flags = DR_OP_POINTWISE,
                                    .min_in = 2,
                                    .max_in = 2,
                                    .outputs = 1,
                                    .infer = same_shapes_infer,
                                    .grad = mul_grad,
                                    .cost = cost,
                                    .cpu = mul_cpu};

static void add_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    float *y = l->out[0];
    for (int64_t i = 0; i < out_elements(l); i++) {
        float sum = ((const float *)l->in[0])[i];
        for (uint32_t j = 1; j < l->node->n_in; j++) {
            sum += ((const float *)l->in[j])[i];
        }
        y[i] = sum;
    }
}
static void add_grad(struct dr_grad *c) {
    for (uint32_t i = 0; i < c->g->node.at[c->node].n_in; i++) {
        if (c->need[i]) {
            c->dx[i] = c->dy[0];
        }
    }
}
static const struct dr_op op_add = {.name = "add",
                                    .flags = DR_OP_POINTWISE,
                                    .min_in = 2,
                                    .max_in = UINT32_MAX,
                                    .outputs = 1,
                                    .infer = same_shapes_infer,
                                    .grad = add_grad,
                                    .cost = cost,
                                    .cpu = add_cpu};

/* ---- activations: gradients from the output ---- */
static void relu_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const float *x = l->in[0];
    float *y = l->out[0];
    for (int64_t i = 0; i < out_elements(l); i++) {
        y[i] = x[i] > 0 ? x[i] : 0;
    }
}
static void relu_grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const float *y = l->in[0], *dy = l->in[1];
    float *dx = l->out[0];
    for (int64_t i = 0; i < out_elements(l); i++) {
        dx[i] = y[i] > 0 ? dy[i] : 0;
    }
}
static const struct dr_op op_relu_grad = {.name = "relu_grad",
                                          .flags = DR_OP_INTERNAL | DR_OP_POINTWISE,
                                          .min_in = 2,
                                          .max_in = 2,
                                          .outputs = 1,
                                          .infer = dgrad_infer,
                                          .cost = cost,
                                          .cpu = relu_grad_cpu};
static void relu_grad(struct dr_grad *c) {
    dgrad(c, &op_relu_grad, c->g->node.at[c->node].out[0]);
}
static const struct dr_op op_relu = {.name = "relu",
                                     .flags = DR_OP_POINTWISE,
                                     .min_in = 1,
                                     .max_in = 1,
                                     .outputs = 1,
                                     .infer = same_infer,
                                     .grad = relu_grad,
                                     .cost = cost,
                                     .cpu = relu_cpu};
static void tanh_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const float *x = l->in[0];
    float *y = l->out[0];
    for (int64_t i = 0; i < out_elements(l); i++) {
        y[i] = tanhf(x[i]);
    }
}
static void tanh_grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const float *y = l->in[0], *dy = l->in[1];
    float *dx = l->out[0];
    for (int64_t i = 0; i < out_elements(l); i++) {
        dx[i] = dy[i] * (1 - y[i] * y[i]);
    }
}
static const struct dr_op op_tanh_grad = {.name = "tanh_grad",
                                          .flags = DR_OP_INTERNAL | DR_OP_POINTWISE,
                                          .min_in = 2,
                                          .max_in = 2,
                                          .outputs = 1,
                                          .infer = dgrad_infer,
                                          .cost = cost,
                                          .cpu = tanh_grad_cpu};
static void tanh_grad(struct dr_grad *c) {
    dgrad(c, &op_tanh_grad, c->g->node.at[c->node].out[0]);
}
static const struct dr_op op_tanh = {.name = "tanh",
                                     .flags = DR_OP_POINTWISE,
                                     .min_in = 1,
                                     .max_in = 1,
                                     .outputs = 1,
                                     .infer = same_infer,
                                     .grad = tanh_grad,
                                     .cost = cost,
                                     .cpu = tanh_cpu};

/* ---- scale: one weight ---- */
struct scale_attrs {
    struct dr_fused fused;
};
static bool scale_infer(struct dr_infer *c) {
    const struct dr_init one = {.kind = DR_INIT_ONE};
    return same_infer(c) && dr_infer_state(c, "weight", DR_WEIGHT, DR_F32, NO_SHAPE, one);
}
static void scale_cpu(const struct dr_launch *l, struct dr_cpu *cpu) { /* x, weight -> y */
    (void)cpu;
    const struct scale_attrs *a = l->node->attrs;
    const float *x = l->in[0], w = *(const float *)l->in[1];
    float *y = l->out[0];
    for (int64_t i = 0; i < out_elements(l); i++) {
        const float v = w * x[i];
        y[i] = a->fused.activation == DR_ACT_RELU
                   ? (v > 0 ? v : 0)
                   : (a->fused.activation == DR_ACT_TANH ? tanhf(v) : v);
    }
}
static void scale_dgrad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) { /* weight, dy -> dx */
    (void)cpu;
    const float w = *(const float *)l->in[0], *dy = l->in[1];
    float *dx = l->out[0];
    for (int64_t i = 0; i < out_elements(l); i++) {
        dx[i] = w * dy[i];
    }
}
static bool wgrad_infer(struct dr_infer *c) {
    return dr_infer_out(c, NULL, DR_F32, NO_SHAPE, DR_PLAIN);
}
static void scale_wgrad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) { /* x, dy -> dw */
    (void)cpu;
    const float *x = l->in[0], *dy = l->in[1];
    float sum = 0;
    for (int64_t i = 0; i < in_elements(l, 0); i++) {
        sum += x[i] * dy[i];
    }
    *(float *)l->out[0] = sum;
}
static struct dr_choice wgrad_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    (void)g, (void)n, (void)cuda;
    return (struct dr_choice){.workspace_bytes = 512, .kernel = "naive"};
}
static const struct dr_op op_scale_dgrad = {.name = "scale_dgrad",
                                            .flags = DR_OP_INTERNAL,
                                            .attrs_bytes = sizeof(struct scale_attrs),
                                            .min_in = 2,
                                            .max_in = 2,
                                            .outputs = 1,
                                            .infer = dgrad_infer,
                                            .cost = cost,
                                            .cpu = scale_dgrad_cpu};
static const struct dr_op op_scale_wgrad = {.name = "scale_wgrad",
                                            .flags = DR_OP_INTERNAL,
                                            .min_in = 2,
                                            .max_in = 2,
                                            .outputs = 1,
                                            .infer = wgrad_infer,
                                            .cost = cost,
                                            .choose = wgrad_choose,
                                            .cpu = scale_wgrad_cpu};
static void scale_grad(struct dr_grad *c) {
    const uint32_t x = c->g->node.at[c->node].in[0], w = c->g->node.at[c->node].in[1];
    dgrad(c, &op_scale_dgrad, w);
    if (c->need[1]) {
        const uint32_t in[] = {x, c->dy[0]};
        c->dx[1] = emitted(c, "wgrad", &op_scale_wgrad, NULL, in, 2);
    }
}
static const struct dr_op op_scale = {.name = "scale",
                                      .flags = DR_OP_ACTIVATION | DR_OP_FUSES,
                                      .attrs_bytes = sizeof(struct scale_attrs),
                                      .min_in = 1,
                                      .max_in = 1,
                                      .outputs = 1,
                                      .infer = scale_infer,
                                      .grad = scale_grad,
                                      .cost = cost,
                                      .cpu = scale_cpu};

/* ---- norm: a weight and a running statistic ---- */
static bool norm_states(struct dr_infer *c) {
    const struct dr_init one = {.kind = DR_INIT_ONE}, zero = {.kind = DR_INIT_ZERO};
    return dr_infer_state(c, "weight", DR_WEIGHT, DR_F32, NO_SHAPE, one) &&
           dr_infer_state(c, "running_mean", DR_BUFFER, DR_F32, NO_SHAPE, zero);
}
static bool norm_infer_infer(struct dr_infer *c) {
    return same_infer(c) && norm_states(c);
}
static bool norm_infer(struct dr_infer *c) {
    return same_infer(c) && dr_infer_out(c, "mean", DR_F32, NO_SHAPE, DR_PLAIN) && norm_states(c);
}
static void norm_infer_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu; /* x, weight, running_mean -> y */
    const float *x = l->in[0], w = *(const float *)l->in[1], mean = *(const float *)l->in[2];
    float *y = l->out[0];
    for (int64_t i = 0; i < out_elements(l); i++) {
        y[i] = w * (x[i] - mean);
    }
}
static void norm_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const float *x = l->in[0], w = *(const float *)l->in[1];
    float *y = l->out[0], mean = 0;
    const int64_t n = out_elements(l);
    for (int64_t i = 0; i < n; i++) {
        mean += x[i] / (float)n;
    }
    for (int64_t i = 0; i < n; i++) {
        y[i] = w * (x[i] - mean);
    }
    *(float *)l->out[1] = mean;
}
static bool stats_infer(struct dr_infer *c) { /* mean, running_mean, health -> running_mean */
    return dr_infer_write(c, 1);
}
static void stats_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    float *running = l->out[0];
    if (*(const int64_t *)l->in[2] == 0) {
        *running = 0.9f * *running + 0.1f * *(const float *)l->in[0];
    }
}
static const struct dr_op op_norm_stats = {.name = "norm_stats",
                                           .flags = DR_OP_INTERNAL,
                                           .min_in = 3,
                                           .max_in = 3,
                                           .outputs = 1,
                                           .infer = stats_infer,
                                           .cost = cost,
                                           .cpu = stats_cpu};
static void norm_track(struct dr_graph *g, uint32_t node) {
    const struct dr_node *n = &g->node.at[node];
    const uint32_t in[] = {n->out[1], n->in[2], g->health};
    dr_graph_emit(g, dr_printf(g->arena, "%s:stats", n->name), &op_norm_stats, NULL, in, 3,
                  DR_ROLE_UPDATE, n->mark);
}
static const struct dr_op op_norm_infer = {.name = "norm_infer",
                                           .flags = DR_OP_INTERNAL,
                                           .min_in = 1,
                                           .max_in = 1,
                                           .outputs = 1,
                                           .infer = norm_infer_infer,
                                           .grad = scale_grad,
                                           .cost = cost,
                                           .cpu = norm_infer_cpu};
static const struct dr_op op_norm = {.name = "norm",
                                     .flags = DR_OP_WHOLE_BATCH,
                                     .min_in = 1,
                                     .max_in = 1,
                                     .outputs = 1,
                                     .infer = norm_infer,
                                     .grad = scale_grad,
                                     .track = norm_track,
                                     .cost = cost,
                                     .eval_form = &op_norm_infer,
                                     .cpu = norm_cpu};

/* ---- no gradient; augmentation ---- */
static bool argmax_infer(struct dr_infer *c) {
    return dr_infer_out(c, NULL, DR_I32, dr_infer_in(c, 0)->shape, DR_PLAIN);
}
static void argmax_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    for (int64_t i = 0; i < out_elements(l); i++) {
        ((int32_t *)l->out[0])[i] = (int32_t)((const float *)l->in[0])[i];
    }
}
static const struct dr_op op_argmax = {.name = "argmax",
                                       .min_in = 1,
                                       .max_in = 1,
                                       .outputs = 1,
                                       .infer = argmax_infer,
                                       .cost = cost,
                                       .cpu = argmax_cpu};
static void augment_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const struct dr_batch *h = l->in[1];
    const int64_t batch = l->value[l->node->out[0]].shape.dim[0];
    const int64_t per = out_elements(l) / batch;
    for (int64_t i = 0; i < batch * per; i++) {
        ((float *)l->out[0])[i] =
            ((const float *)l->in[0])[i] + (float)(h->sample[i / per] + h->epoch);
    }
}
static const struct dr_op op_augment = {.name = "augment",
                                        .flags = DR_OP_AUGMENT | DR_OP_HEADER | DR_OP_RANDOM,
                                        .min_in = 1,
                                        .max_in = 1,
                                        .outputs = 1,
                                        .infer = same_infer,
                                        .cost = cost,
                                        .cpu = augment_cpu};
static bool flip_infer(struct dr_infer *c) {
    static const char *const suffix[] = {NULL, "1", "2", "3"};
    const uint32_t n = c->g->node.at[c->node].n_in - 1;
    for (uint32_t i = 0; i < n; i++) {
        const struct dr_value v = *dr_infer_in(c, i);
        if (!dr_infer_out(c, suffix[i], v.dtype, v.shape, v.meaning)) {
            return false;
        }
    }
    return true;
}
static void flip_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    for (uint32_t i = 0; i < l->node->n_out; i++) {
        memcpy(l->out[i], l->in[i], (size_t)l->value[l->node->out[i]].bytes);
    }
}
static const struct dr_op op_flip = {.name = "flip",
                                     .flags = DR_OP_AUGMENT | DR_OP_HEADER | DR_OP_RANDOM,
                                     .min_in = 1,
                                     .max_in = 4,
                                     .outputs = 0,
                                     .infer = flip_infer,
                                     .cost = cost,
                                     .cpu = flip_cpu};

/* ---- shapes only: [N, H, W, C] halved and doubled ---- */
static bool half_infer(struct dr_infer *c) {
    struct dr_shape s = dr_infer_in(c, 0)->shape;
    s.dim[1] /= 2;
    s.dim[2] /= 2;
    return dr_infer_out(c, NULL, DR_F32, s, DR_IMAGE);
}
static const struct dr_op op_half = {
    .name = "half", .min_in = 1, .max_in = 1, .outputs = 1, .infer = half_infer, .cost = cost};
static bool twice_infer(struct dr_infer *c) {
    struct dr_shape s = dr_infer_in(c, 0)->shape;
    s.dim[1] *= 2;
    s.dim[2] *= 2;
    return dr_infer_out(c, NULL, DR_F32, s, DR_IMAGE);
}
static const struct dr_op op_twice = {
    .name = "twice", .min_in = 1, .max_in = 1, .outputs = 1, .infer = twice_infer, .cost = cost};

/* ---- losses and metrics ---- */
static bool loss_infer(struct dr_infer *c) { /* x, header -> mean, partial */
    return dr_infer_out(c, NULL, DR_F32, NO_SHAPE, DR_PLAIN) &&
           dr_infer_out(c, "partial", DR_F64, DR_SHAPE(2), DR_PLAIN);
}
static void sum_of_valid(const struct dr_launch *l, double *partial) {
    const struct dr_value *x = &l->value[l->node->in[0]];
    const struct dr_batch *h = l->in[1];
    const int64_t per = x->shape.rank ? elements(x) / x->shape.dim[0] : 1;
    partial[0] = 0;
    partial[1] = (double)(per * h->n_valid);
    for (int64_t i = 0; i < per * h->n_valid; i++) {
        partial[0] += (double)((const float *)l->in[0])[i];
    }
}
static void loss_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    double *partial = l->out[1];
    sum_of_valid(l, partial);
    *(float *)l->out[0] = (float)(partial[0] / partial[1]);
}
struct loss_grad_attrs {
    double weight;
};
static bool loss_grad_infer(struct dr_infer *c) { /* x, header -> dx */
    return dr_infer_out(c, NULL, DR_F32, dr_infer_in(c, 0)->shape, DR_PLAIN);
}
static void loss_grad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const struct loss_grad_attrs *a = l->node->attrs;
    const struct dr_value *x = &l->value[l->node->in[0]];
    const struct dr_batch *h = l->in[1];
    const int64_t valid = x->shape.rank ? elements(x) / x->shape.dim[0] * h->n_valid : 1;
    for (int64_t i = 0; i < elements(x); i++) {
        ((float *)l->out[0])[i] = i < valid ? (float)(a->weight / (double)valid) : 0;
    }
}
static const struct dr_op op_loss_grad = {.name = "loss_grad",
                                          .flags = DR_OP_INTERNAL,
                                          .attrs_bytes = sizeof(struct loss_grad_attrs),
                                          .min_in = 2,
                                          .max_in = 2,
                                          .outputs = 1,
                                          .infer = loss_grad_infer,
                                          .cost = cost,
                                          .cpu = loss_grad_cpu};
static void loss_grad(struct dr_grad *c) {
    if (c->need[0]) {
        const struct loss_grad_attrs a = {.weight = c->weight};
        const uint32_t n =
            dr_grad_emit(c, "dgrad", &op_loss_grad, &a, c->g->node.at[c->node].in, 2);
        c->dx[0] = c->g->node.at[n].out[0];
    }
}
static double mean_finish(const void *attrs, const double *partial, uint32_t n) {
    (void)attrs, (void)n;
    return partial[0] / partial[1];
}
static const struct dr_op op_loss = {.name = "loss",
                                     .flags = DR_OP_LOSS | DR_OP_HEADER,
                                     .min_in = 1,
                                     .max_in = 1,
                                     .outputs = 1,
                                     .infer = loss_infer,
                                     .grad = loss_grad,
                                     .cost = cost,
                                     .finish = mean_finish,
                                     .cpu = loss_cpu};
static bool metric_infer(struct dr_infer *c) {
    return dr_infer_out(c, NULL, DR_F64, DR_SHAPE(2), DR_PLAIN);
}
static void metric_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    sum_of_valid(l, l->out[0]);
}
static const struct dr_op op_metric = {.name = "metric",
                                       .flags = DR_OP_METRIC | DR_OP_HEADER,
                                       .min_in = 1,
                                       .max_in = 1,
                                       .outputs = 1,
                                       .infer = metric_infer,
                                       .cost = cost,
                                       .finish = mean_finish,
                                       .cpu = metric_cpu};

/* ---- internal ops ---- */
static bool scalar_infer(struct dr_infer *c) {
    return dr_infer_out(c, NULL, DR_F32, NO_SHAPE, DR_PLAIN);
}
static void total_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const struct dr_total_loss_attrs *a = l->node->attrs;
    double sum = 0;
    for (uint32_t i = 0; i < l->node->n_in; i++) {
        sum += a->weight.at[i] * (double)*(const float *)l->in[i];
    }
    *(float *)l->out[0] = (float)sum;
}
static void lr_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    *(float *)l->out[0] = (float)((const struct dr_lr_attrs *)l->node->attrs)->lr.base;
}
static void clip_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    double sum = 0;
    for (uint32_t j = 0; j < l->node->n_in; j++) {
        for (int64_t i = 0; i < in_elements(l, j); i++) {
            const double x = (double)((const float *)l->in[j])[i];
            sum += x * x;
        }
    }
    const double max = ((const struct dr_clip_attrs *)l->node->attrs)->max_norm;
    *(float *)l->out[0] = (float)fmin(1, max / (sqrt(sum) + 1e-6));
}
static bool guard_infer(struct dr_infer *c) {
    return dr_infer_write(c, 2);
}
static void guard_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    int64_t *health = l->out[0];
    if (!isfinite(*(const float *)l->in[0]) && health[0] == 0) {
        health[0] = 1;
        health[1] = (int64_t)((const struct dr_batch *)l->in[1])->step;
    }
}
static bool nothing_infer(struct dr_infer *c) {
    (void)c;
    return true;
}
static bool sgd_infer(struct dr_infer *c) {
    const struct dr_init zero = {.kind = DR_INIT_ZERO};
    const struct dr_shape shape = dr_infer_in(c, 0)->shape;
    const uint32_t n = c->g->node.at[c->node].n_in;
    return dr_infer_state(c, "momentum", DR_MOMENT, DR_F32, shape, zero) && dr_infer_write(c, 0) &&
           dr_infer_write(c, n);
}
static void sgd_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu; /* weight, gradient, lr, health[, clip], momentum */
    const struct fake_sgd_attrs *a = l->node->attrs;
    float *w = l->out[0], *m = l->out[1];
    const float *g = l->in[1], lr = *(const float *)l->in[2];
    const float clip = l->node->n_in == 6 ? *(const float *)l->in[4] : 1;
    if (*(const int64_t *)l->in[3] != 0) {
        return;
    }
    for (int64_t i = 0; i < in_elements(l, 0); i++) {
        m[i] = (float)a->momentum * m[i] + clip * g[i] + (float)a->weight_decay * w[i];
        w[i] -= lr * m[i];
    }
}

#define INTERNAL(n, in0, in1, attrs_type, inf, f)                                                  \
    {                                                                                              \
        .name = n, .flags = DR_OP_INTERNAL, .attrs_bytes = sizeof(attrs_type), .min_in = in0,      \
        .max_in = in1, .outputs = 1, .infer = inf, .cost = cost, .cpu = f                          \
    }
static const struct dr_op op_data = {.name = "data",
                                     .flags = DR_OP_INTERNAL,
                                     .attrs_bytes = sizeof(struct dr_data_attrs),
                                     .outputs = 1,
                                     .cost = cost};
static const struct dr_op op_total =
    INTERNAL("total_loss", 1, UINT32_MAX, struct dr_total_loss_attrs, scalar_infer, total_cpu);
static const struct dr_op op_lr = INTERNAL("lr", 1, 1, struct dr_lr_attrs, scalar_infer, lr_cpu);
static const struct dr_op op_clip =
    INTERNAL("clip", 1, UINT32_MAX, struct dr_clip_attrs, scalar_infer, clip_cpu);
static const struct dr_op op_guard = {.name = "guard",
                                      .flags = DR_OP_INTERNAL,
                                      .min_in = 3,
                                      .max_in = 3,
                                      .infer = guard_infer,
                                      .cost = cost,
                                      .cpu = guard_cpu};
static const struct dr_op op_readback = {.name = "readback",
                                         .flags = DR_OP_INTERNAL,
                                         .min_in = 1,
                                         .max_in = UINT32_MAX,
                                         .infer = nothing_infer,
                                         .cost = cost};
static const struct dr_op op_sgd = {.name = "sgd",
                                    .flags = DR_OP_OPTIMIZER,
                                    .attrs_bytes = sizeof(struct fake_sgd_attrs),
                                    .min_in = 4,
                                    .max_in = 5,
                                    .infer = sgd_infer,
                                    .cost = cost,
                                    .cpu = sgd_cpu};

static const struct dr_op *const table[] = {
    &op_data,        &op_unary,     &op_unary_grad, &op_mul,        &op_mul_grad,  &op_add,
    &op_relu,        &op_relu_grad, &op_tanh,       &op_tanh_grad,  &op_scale,     &op_scale_dgrad,
    &op_scale_wgrad, &op_norm,      &op_norm_infer, &op_norm_stats, &op_argmax,    &op_half,
    &op_twice,       &op_augment,   &op_flip,       &op_loss,       &op_loss_grad, &op_metric,
    &op_total,       &op_lr,        &op_clip,       &op_guard,      &op_readback,  &op_sgd};
const struct dr_op_table fake_ops = {.op = table, .n = sizeof table / sizeof *table};

const struct dr_op *fake_op(const char *name) {
    for (uint32_t i = 0; i < fake_ops.n; i++) {
        if (strcmp(table[i]->name, name) == 0) {
            return table[i];
        }
    }
    DR_ASSERT(!"a fake op of this name");
    return NULL;
}
