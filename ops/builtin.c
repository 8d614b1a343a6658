/* The internal ops that passes put into every graph: graph/builtin.h says what they mean. data and
 * readback have neither inference (the pass that makes them knows their shapes) nor a launcher (the
 * executor copies). */
#include "graph/builtin.h"
#include "kernels/batch.h"
#include "kernels/cpu/sums.h"
#include "kernels/cuda/pointwise.h"
#include "ops/common.h"
#include "ops/table.h"
#include <math.h>

const struct dr_op dr_op_data = {
    .name = "data",
    .doc = "One input of the batch, or its header.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct dr_data_attrs),
    .outputs = 1,
    .cost = dr_cost_pointwise,
    DR_CUDA(NULL),
};

static bool readback_infer(struct dr_infer *c) {
    (void)c; /* no outputs */
    return true;
}
static struct dr_cost readback_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, 0);
}
const struct dr_op dr_op_readback = {
    .name = "readback",
    .doc = "Copies its inputs to the host's record of the step.",
    .flags = DR_OP_INTERNAL,
    .max_in = UINT32_MAX,
    .infer = readback_infer,
    .cost = readback_cost,
    DR_CUDA(NULL),
};

/* ---- total_loss ---- */
static bool total_loss_infer(struct dr_infer *c) {
    const struct dr_total_loss_attrs *a = dr_infer_attrs(c);
    DR_ASSERT(a->weight.n == c->g->node.at[c->node].n_in);
    return dr_infer_out(c, NULL, DR_F32, (struct dr_shape){0}, DR_PLAIN);
}
static void total_loss_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const struct dr_total_loss_attrs *a = l->node->attrs;
    double total = 0;
    for (uint32_t i = 0; i < a->weight.n; i++)
        total += a->weight.at[i] * *(const float *)l->in[i];
    *(float *)l->out[0] = (float)total;
}
DR_CUDA_LAUNCHER total_loss_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_total_loss_attrs *a = l->node->attrs;
    return dr_cuda_total_loss((const void *const *)l->in, a->weight.at, a->weight.n, l->out[0],
                              cuda->stream);
}
const struct dr_op dr_op_total_loss = {
    .name = "total_loss",
    .doc = "The weighted sum of the losses.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct dr_total_loss_attrs),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .outputs = 1,
    .infer = total_loss_infer,
    .cost = dr_cost_pointwise,
    .cpu = total_loss_cpu,
    DR_CUDA(total_loss_cuda),
};

/* ---- lr ---- */
static bool lr_infer(struct dr_infer *c) {
    return dr_infer_out(c, NULL, DR_F32, (struct dr_shape){0}, DR_PLAIN);
}
/* Linear warm-up to base, then the schedule counted from its end (PyTorch's CosineAnnealingLR and
 * StepLR behind a SequentialLR). */
double dr_lr_rate(const struct dr_lr *lr, int64_t step) {
    if (step < lr->warmup)
        return lr->base * (double)(step + 1) / (double)lr->warmup;
    const int64_t t = step - lr->warmup, span = lr->total - lr->warmup;
    switch (lr->schedule) {
    case DR_LR_COSINE: {
        const double part = span <= 0 || t >= span ? 1.0 : (double)t / (double)span;
        return lr->end + (lr->base - lr->end) * 0.5 * (1.0 + cos(part * 3.14159265358979323846));
    }
    case DR_LR_STEP:
        return lr->every > 0 ? lr->base * pow(lr->gamma, (double)(t / lr->every)) : lr->base;
    case DR_LR_CONSTANT:
        break;
    }
    return lr->base;
}
static void lr_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const struct dr_lr_attrs *a = l->node->attrs;
    const struct dr_batch *header = l->in[0];
    *(float *)l->out[0] = (float)dr_lr_rate(&a->lr, (int64_t)header->step);
}
DR_CUDA_LAUNCHER lr_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_lr *lr = &((const struct dr_lr_attrs *)l->node->attrs)->lr;
    const struct dr_cuda_lr c = {lr->base,   lr->end,   lr->gamma, (int)lr->schedule,
                                 lr->warmup, lr->every, lr->total};
    return dr_cuda_lr(&c, l->in[0], l->out[0], cuda->stream);
}
const struct dr_op dr_op_lr = {
    .name = "lr",
    .doc = "The learning rate of this step.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct dr_lr_attrs),
    .min_in = 1,
    .max_in = 1,
    .outputs = 1,
    .infer = lr_infer,
    .cost = dr_cost_pointwise,
    .cpu = lr_cpu,
    DR_CUDA(lr_cuda),
};

/* ---- clip ---- */
static int64_t clip_blocks(const struct dr_value *value, const struct dr_node *n) {
    _Static_assert(DR_CUDA_SQUARES == DR_CPU_SQUARE_BLOCK, "both devices cut sums alike");
    int64_t most = 0; /* the gradients take turns in one workspace */
    for (uint32_t i = 0; i < n->n_in; i++) {
        const int64_t blocks = dr_cpu_square_blocks(dr_elements(&value[n->in[i]]));
        most = blocks > most ? blocks : most;
    }
    return most;
}
static struct dr_choice clip_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    const int64_t blocks = clip_blocks(g->value.at, n) + (cuda ? 1 : 0); /* and the running sum */
    return (struct dr_choice){.workspace_bytes = blocks * (int64_t)sizeof(double),
                              .kernel = "chunked sums"};
}
/* torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6), at most 1; and exactly 1 up to
 * max_norm, where that quotient would be 1 - 1e-6 / max_norm. */
static void clip_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_clip_attrs *a = l->node->attrs;
    double squares = 0;
    for (uint32_t i = 0; i < l->node->n_in; i++)
        squares += dr_cpu_sum_squares(cpu, dr_elements(dr_launch_in(l, i)), l->in[i], l->workspace);
    const double norm = sqrt(squares);
    *(float *)l->out[0] = norm <= a->max_norm ? 1.0f : (float)(a->max_norm / (norm + 1e-6));
}
DR_CUDA_LAUNCHER clip_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_clip_attrs *a = l->node->attrs;
    double *squares = l->workspace, *partial = squares + 1;
    int err = 0;
    for (uint32_t i = 0; i < l->node->n_in && !err; i++)
        err = dr_cuda_add_squares(l->in[i], dr_elements(dr_launch_in(l, i)), i == 0, partial,
                                  squares, cuda->stream);
    return err ? err : dr_cuda_clip(squares, a->max_norm, l->out[0], cuda->stream);
}
static bool clip_infer(struct dr_infer *c) {
    return dr_infer_out(c, NULL, DR_F32, (struct dr_shape){0}, DR_PLAIN);
}
static struct dr_cost clip_cost(const struct dr_graph *g, const struct dr_node *n) {
    double flops = 0;
    for (uint32_t i = 0; i < n->n_in; i++)
        flops += 2.0 * (double)dr_elements(dr_node_in(g, n, i));
    return dr_cost_of(g, n, flops);
}
const struct dr_op dr_op_clip = {
    .name = "clip",
    .doc = "The factor that brings the global norm of the gradients down to clip_norm.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct dr_clip_attrs),
    .min_in = 1,
    .max_in = UINT32_MAX,
    .outputs = 1,
    .infer = clip_infer,
    .cost = clip_cost,
    .choose = clip_choose,
    .cpu = clip_cpu,
    DR_CUDA(clip_cuda),
};

/* ---- guard ---- */
static bool guard_infer(struct dr_infer *c) { /* total loss, header, health -> health */
    return dr_infer_write(c, 2);
}
static void guard_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const float total = *(const float *)l->in[0];
    const struct dr_batch *header = l->in[1];
    int64_t *health = l->out[0];
    if (health[0] == 0 && !isfinite(total)) {
        health[0] = 1;
        health[1] = (int64_t)header->step;
    }
}
DR_CUDA_LAUNCHER guard_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    return dr_cuda_guard(l->in[0], l->in[1], l->out[0], cuda->stream);
}
const struct dr_op dr_op_guard = {
    .name = "guard",
    .doc = "Notes the first step whose total loss is not finite; nothing is updated from then on.",
    .flags = DR_OP_INTERNAL,
    .min_in = 3,
    .max_in = 3,
    .infer = guard_infer,
    .cost = dr_cost_pointwise,
    .cpu = guard_cpu,
    DR_CUDA(guard_cuda),
};
