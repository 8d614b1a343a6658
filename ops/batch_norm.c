/* batch_norm over the last axis, PyTorch's nn.BatchNorm2d.
 *
 * Training: normalizes by the batch's statistics, which are outputs too; the running ones are
 * operands only so that they exist and are found. batch_norm_stats, an update node after the guard,
 * moves them: running = (1 - momentum) * running + momentum * batch, with the unbiased variance.
 * Everywhere else (evaluation, inference, frozen parts) batch_norm_infer normalizes by the running
 * statistics, and nothing moves them. */
#include "kernels/cpu/norm.h"
#include "kernels/cuda/norm.h"
#include "ops/common.h"

struct batch_norm_attrs {
    struct dr_fused fused;
    double eps, momentum;
};
struct stats_attrs {
    double momentum;
    int64_t count; /* values a channel */
};

static const struct dr_attr batch_norm_attrs[] = {
    {.name = "eps",
     .doc = "added to the variance",
     .kind = DR_ATTR_FLOAT,
     .def = 1e-5,
     .max = 1,
     .offset = offsetof(struct batch_norm_attrs, eps)},
    {.name = "momentum",
     .doc = "share of the batch's statistics in the running ones",
     .kind = DR_ATTR_FLOAT,
     .def = 0.1,
     .max = 1,
     .offset = offsetof(struct batch_norm_attrs, momentum)},
};

enum { X, WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VAR }; /* inputs of both forms */

static int64_t rows_of(const struct dr_value *x) {
    return dr_elements(x) / dr_last(x);
}

static bool states_infer(struct dr_infer *c) {
    if (!dr_need_f32(c, 0))
        return false;
    if (dr_infer_in(c, 0)->shape.rank < 2)
        return dr_infer_error(c, "its input has no axis of channels");
    const struct dr_shape s = DR_SHAPE(dr_last(dr_infer_in(c, 0)));
    const struct dr_init zero = {.kind = DR_INIT_ZERO}, one = {.kind = DR_INIT_ONE};
    return dr_infer_state(c, "weight", DR_WEIGHT, DR_F32, s, one) &&
           dr_infer_state(c, "bias", DR_WEIGHT, DR_F32, s, zero) &&
           dr_infer_state(c, "running_mean", DR_BUFFER, DR_F32, s, zero) &&
           dr_infer_state(c, "running_var", DR_BUFFER, DR_F32, s, one);
}

static bool batch_norm_infer(struct dr_infer *c) {
    if (!states_infer(c))
        return false;
    const struct dr_shape shape = dr_infer_in(c, 0)->shape;
    const struct dr_shape channels = DR_SHAPE(shape.dim[shape.rank - 1]);
    if (rows_of(dr_infer_in(c, 0)) < 2)
        return dr_infer_error(c, "training needs more than one value a channel");
    return dr_infer_out(c, NULL, DR_F32, shape, DR_PLAIN) &&
           dr_infer_out(c, "mean", DR_F32, channels, DR_PLAIN) &&
           dr_infer_out(c, "var", DR_F32, channels, DR_PLAIN);
}

static bool eval_infer(struct dr_infer *c) {
    return states_infer(c) && dr_infer_out(c, NULL, DR_F32, dr_infer_in(c, 0)->shape, DR_PLAIN);
}

/* The workspace follows from x (or dy), the first operand of every node here. */
static struct dr_choice norm_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    const struct dr_value *x = dr_node_in(g, n, 0);
    return (struct dr_choice){.workspace_bytes = cuda ? dr_cuda_norm_bytes(rows_of(x), dr_last(x))
                                                      : dr_cpu_norm_bytes(rows_of(x), dr_last(x)),
                              .kernel = "chunked sums"};
}

static struct dr_cost norm_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, 6.0 * (double)dr_elements(dr_node_in(g, n, 0)));
}

/* The value that the fuse pass has them add: NULL, or the last input. */
static const void *added(const struct dr_launch *l) {
    const struct batch_norm_attrs *a = l->node->attrs;
    return a->fused.add ? l->in[l->node->n_in - 1] : NULL;
}

static void batch_norm_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct batch_norm_attrs *a = l->node->attrs;
    const struct dr_value *x = dr_launch_in(l, X);
    float *mean = l->out[1], *var = l->out[2];
    dr_cpu_norm_stats(cpu, rows_of(x), dr_last(x), l->in[X], l->workspace, mean, var);
    dr_cpu_norm_apply(cpu, rows_of(x), dr_last(x), l->in[X], mean, var, l->in[WEIGHT], l->in[BIAS],
                      a->eps, added(l), a->fused.activation, l->workspace, l->out[0]);
}
DR_CUDA_LAUNCHER batch_norm_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct batch_norm_attrs *a = l->node->attrs;
    const struct dr_value *x = dr_launch_in(l, X);
    const int64_t rows = rows_of(x), c = dr_last(x);
    float *mean = l->out[1], *var = l->out[2];
    const int err =
        dr_cuda_norm_stats(dr_type_of(x), rows, c, l->in[X], l->workspace, mean, var, cuda->stream);
    return err ? err
               : dr_cuda_norm_apply(dr_type_of(x), rows, c, l->in[X], mean, var, l->in[WEIGHT],
                                    l->in[BIAS], a->eps, added(l), a->fused.activation, l->out[0],
                                    cuda->stream);
}

static void eval_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct batch_norm_attrs *a = l->node->attrs;
    const struct dr_value *x = dr_launch_in(l, X);
    dr_cpu_norm_apply(cpu, rows_of(x), dr_last(x), l->in[X], l->in[RUNNING_MEAN],
                      l->in[RUNNING_VAR], l->in[WEIGHT], l->in[BIAS], a->eps, added(l),
                      a->fused.activation, l->workspace, l->out[0]);
}
DR_CUDA_LAUNCHER eval_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct batch_norm_attrs *a = l->node->attrs;
    const struct dr_value *x = dr_launch_in(l, X);
    return dr_cuda_norm_apply(dr_type_of(x), rows_of(x), dr_last(x), l->in[X], l->in[RUNNING_MEAN],
                              l->in[RUNNING_VAR], l->in[WEIGHT], l->in[BIAS], a->eps, added(l),
                              a->fused.activation, l->out[0], cuda->stream);
}

/* ---- gradients ---- */
static bool wgrad_infer(struct dr_infer *c) { /* x, dy, mean, var -> dgamma, dbeta */
    DR_NEED_SAME(c, 0, 1);
    const struct dr_shape s = dr_infer_in(c, 2)->shape;
    return dr_infer_out(c, NULL, DR_F32, s, DR_PLAIN) &&
           dr_infer_out(c, "bias", DR_F32, s, DR_PLAIN);
}
static void wgrad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct batch_norm_attrs *a = l->node->attrs;
    const struct dr_value *x = dr_launch_in(l, 0);
    dr_cpu_norm_wgrad(cpu, rows_of(x), dr_last(x), l->in[0], l->in[1], l->in[2], l->in[3], a->eps,
                      l->workspace, l->out[0], l->out[1]);
}
DR_CUDA_LAUNCHER wgrad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct batch_norm_attrs *a = l->node->attrs;
    const struct dr_value *x = dr_launch_in(l, 0);
    return dr_cuda_norm_wgrad(dr_type_of(x), rows_of(x), dr_last(x), l->in[0], l->in[1], l->in[2],
                              l->in[3], a->eps, l->workspace, l->out[0], l->out[1], cuda->stream);
}
/* x, dy, mean, var, weight, dgamma, dbeta -> dx; stored statistics: dy, var, weight -> dx. */
static bool dgrad_infer(struct dr_infer *c) {
    return dr_infer_out(c, NULL, DR_F32, dr_infer_in(c, 0)->shape, DR_PLAIN);
}
static void dgrad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct batch_norm_attrs *a = l->node->attrs;
    const struct dr_value *x = dr_launch_in(l, 0);
    dr_cpu_norm_dgrad(cpu, rows_of(x), dr_last(x), l->in[0], l->in[1], l->in[2], l->in[3], l->in[4],
                      l->in[5], l->in[6], a->eps, l->workspace, l->out[0]);
}
DR_CUDA_LAUNCHER dgrad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct batch_norm_attrs *a = l->node->attrs;
    const struct dr_value *x = dr_launch_in(l, 0);
    return dr_cuda_norm_dgrad(dr_type_of(x), rows_of(x), dr_last(x), l->in[0], l->in[1], l->in[2],
                              l->in[3], l->in[4], l->in[5], l->in[6], a->eps, l->out[0],
                              cuda->stream);
}
static void eval_dgrad_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct batch_norm_attrs *a = l->node->attrs;
    const struct dr_value *dy = dr_launch_in(l, 0);
    dr_cpu_norm_dgrad(cpu, rows_of(dy), dr_last(dy), NULL, l->in[0], NULL, l->in[1], l->in[2], NULL,
                      NULL, a->eps, l->workspace, l->out[0]);
}
DR_CUDA_LAUNCHER eval_dgrad_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct batch_norm_attrs *a = l->node->attrs;
    const struct dr_value *dy = dr_launch_in(l, 0);
    return dr_cuda_norm_dgrad(dr_type_of(dy), rows_of(dy), dr_last(dy), NULL, l->in[0], NULL,
                              l->in[1], l->in[2], NULL, NULL, a->eps, l->out[0], cuda->stream);
}

const struct dr_op dr_op_batch_norm_wgrad = {
    .name = "batch_norm_wgrad",
    .doc = "Gradients of batch_norm by weight and bias.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct batch_norm_attrs),
    .min_in = 4,
    .max_in = 4,
    .half_in = 3,
    .outputs = 2,
    .infer = wgrad_infer,
    .cost = norm_cost,
    .choose = norm_choose,
    .cpu = wgrad_cpu,
    DR_CUDA(wgrad_cuda),
};
const struct dr_op dr_op_batch_norm_dgrad = {
    .name = "batch_norm_dgrad",
    .doc = "Gradient of batch_norm by its input, through the batch's statistics.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct batch_norm_attrs),
    .min_in = 7,
    .max_in = 7,
    .half_in = 3,
    .half_out = 1,
    .outputs = 1,
    .infer = dgrad_infer,
    .cost = norm_cost,
    .choose = norm_choose,
    .cpu = dgrad_cpu,
    DR_CUDA(dgrad_cuda),
};
const struct dr_op dr_op_batch_norm_infer_dgrad = {
    .name = "batch_norm_infer_dgrad",
    .doc = "Gradient of batch_norm by its input where the statistics are stored ones.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct batch_norm_attrs),
    .min_in = 3,
    .max_in = 3,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = dgrad_infer,
    .cost = norm_cost,
    .choose = norm_choose,
    .cpu = eval_dgrad_cpu,
    DR_CUDA(eval_dgrad_cuda),
};

/* dgamma and dbeta into dx[], where they are wanted or dx needs them; gives their node. */
static uint32_t emit_wgrad(struct dr_grad *c, uint32_t mean, uint32_t var, bool always) {
    if (!always && !c->need[WEIGHT] && !c->need[BIAS])
        return DR_NONE;
    const uint32_t in[] = {c->g->node.at[c->node].in[X], c->dy[0], mean, var};
    const uint32_t n = dr_grad_emit(c, "wgrad", &dr_op_batch_norm_wgrad, NULL, in, 4);
    if (c->need[WEIGHT])
        c->dx[WEIGHT] = c->g->node.at[n].out[0];
    if (c->need[BIAS])
        c->dx[BIAS] = c->g->node.at[n].out[1];
    return n;
}

static void batch_norm_grad(struct dr_grad *c) {
    const uint32_t *fin = c->g->node.at[c->node].in, *fout = c->g->node.at[c->node].out;
    const uint32_t x = fin[X], w = fin[WEIGHT], mean = fout[1], var = fout[2], dy = c->dy[0];
    const uint32_t sums = emit_wgrad(c, mean, var, c->need[X]);
    if (!c->need[X])
        return;
    const uint32_t *s = c->g->node.at[sums].out;
    const uint32_t in[] = {x, dy, mean, var, w, s[0], s[1]};
    const uint32_t n = dr_grad_emit(c, "dgrad", &dr_op_batch_norm_dgrad, NULL, in, 7);
    c->dx[X] = c->g->node.at[n].out[0];
}

static void eval_grad(struct dr_grad *c) {
    const uint32_t *fin = c->g->node.at[c->node].in;
    const uint32_t w = fin[WEIGHT], mean = fin[RUNNING_MEAN], var = fin[RUNNING_VAR];
    if (c->need[X]) {
        const uint32_t in[] = {c->dy[0], var, w};
        const uint32_t n = dr_grad_emit(c, "dgrad", &dr_op_batch_norm_infer_dgrad, NULL, in, 3);
        c->dx[X] = c->g->node.at[n].out[0];
    }
    emit_wgrad(c, mean, var, false);
}

/* ---- running statistics: mean, var, running_mean, running_var, health -> running_* ---- */
static bool stats_infer(struct dr_infer *c) {
    return dr_infer_write(c, 2) && dr_infer_write(c, 3);
}
static void stats_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const struct stats_attrs *a = l->node->attrs;
    if (*(const int64_t *)l->in[4] != 0)
        return;
    const float *mean = l->in[0], *var = l->in[1];
    float *running_mean = l->out[0], *running_var = l->out[1];
    const double unbiased = (double)a->count / (double)(a->count - 1), keep = 1.0 - a->momentum;
    for (int64_t k = 0, c = dr_last(dr_launch_in(l, 0)); k < c; k++) {
        running_mean[k] = (float)(keep * running_mean[k] + a->momentum * mean[k]);
        running_var[k] = (float)(keep * running_var[k] + a->momentum * (var[k] * unbiased));
    }
}
DR_CUDA_LAUNCHER stats_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct stats_attrs *a = l->node->attrs;
    const double unbiased = (double)a->count / (double)(a->count - 1);
    return dr_cuda_norm_track(dr_last(dr_launch_in(l, 0)), l->in[0], l->in[1], a->momentum,
                              unbiased, l->in[4], l->out[0], l->out[1], cuda->stream);
}
const struct dr_op dr_op_batch_norm_stats = {
    .name = "batch_norm_stats",
    .doc = "Moves the running statistics of a batch_norm towards the batch's.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct stats_attrs),
    .min_in = 5,
    .max_in = 5,
    .infer = stats_infer,
    .cost = norm_cost,
    .cpu = stats_cpu,
    DR_CUDA(stats_cuda),
};

static void batch_norm_track(struct dr_graph *g, uint32_t node) {
    const struct dr_node n = g->node.at[node]; /* a copy: adding a node moves the list */
    const struct stats_attrs attrs = {
        .momentum = ((const struct batch_norm_attrs *)n.attrs)->momentum,
        .count = rows_of(&g->value.at[n.in[X]]),
    };
    const uint32_t in[] = {n.out[1], n.out[2], n.in[RUNNING_MEAN], n.in[RUNNING_VAR], g->health};
    const char *name = dr_printf(g->arena, "%s:stats", n.name);
    const uint32_t id =
        dr_graph_emit(g, name, &dr_op_batch_norm_stats, &attrs, in, 5, DR_ROLE_UPDATE, n.mark);
    g->node.at[id].subgraph = n.subgraph;
    g->node.at[id].forward = node;
}

const struct dr_op dr_op_batch_norm_infer = {
    .name = "batch_norm_infer",
    .doc = "batch_norm by its running statistics.",
    .flags = DR_OP_INTERNAL | DR_OP_ACTIVATION | DR_OP_FUSES | DR_OP_FUSES_ADD,
    .attrs = batch_norm_attrs,
    .n_attrs = DR_COUNT(batch_norm_attrs),
    .attrs_bytes = sizeof(struct batch_norm_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = eval_infer,
    .grad = eval_grad,
    .cost = norm_cost,
    .choose = norm_choose,
    .cpu = eval_cpu,
    DR_CUDA(eval_cuda),
};
const struct dr_op dr_op_batch_norm = {
    .name = "batch_norm",
    .doc = "Batch normalization over the last axis. In evaluation, inference and frozen parts by "
           "the running statistics, which then do not move.",
    .flags = DR_OP_ACTIVATION | DR_OP_FUSES | DR_OP_FUSES_ADD | DR_OP_WHOLE_BATCH,
    .attrs = batch_norm_attrs,
    .n_attrs = DR_COUNT(batch_norm_attrs),
    .attrs_bytes = sizeof(struct batch_norm_attrs),
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .half_out = 1,
    .outputs = 1,
    .infer = batch_norm_infer,
    .grad = batch_norm_grad,
    .track = batch_norm_track,
    .cost = norm_cost,
    .choose = norm_choose,
    .eval_form = &dr_op_batch_norm_infer,
    .cpu = batch_norm_cpu,
    DR_CUDA(batch_norm_cuda),
};
