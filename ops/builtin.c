/* The internal ops that passes put into every graph: graph/builtin.h says what they mean. data and
 * readback have neither inference (the pass that makes them knows their shapes) nor a launcher (the
 * executor copies). */
#include "graph/builtin.h"
#include "kernels/batch.h"
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
