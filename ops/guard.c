/* clip, guard and guard_scaled: what stands between the gradients of a step and its updates
 * (graph/builtin.h). The decisions are in kernels/guard.h, for both devices. */
#include "graph/builtin.h"
#include "kernels/batch.h"
#include "kernels/cpu/sums.h"
#include "kernels/cuda/guard.h"
#include "ops/common.h"
#include <math.h>

/* ---- clip ---- */
static uint32_t gradients_of(const struct dr_node *n) {
    return n->n_in - (((const struct dr_clip_attrs *)n->attrs)->scaled ? 1u : 0u);
}
static const float *scale_of(const struct dr_launch *l) {
    const uint32_t n = gradients_of(l->node);
    return n < l->node->n_in ? l->in[n] : NULL;
}

static struct dr_choice clip_choose(const struct dr_graph *g, const struct dr_node *n, bool cuda) {
    _Static_assert(DR_CUDA_SQUARES == DR_CPU_SQUARE_BLOCK, "both devices cut sums alike");
    int64_t most = 0, all = 0; /* on a CPU the gradients take turns in one workspace */
    for (uint32_t i = 0; i < gradients_of(n); i++) {
        const int64_t blocks = dr_cpu_square_blocks(dr_elements(dr_node_in(g, n, i)));
        most = blocks > most ? blocks : most;
        all += blocks;
    }
    return (struct dr_choice){.workspace_bytes = (cuda ? all : most) * (int64_t)sizeof(double),
                              .kernel = "chunked sums"};
}
static void clip_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_clip_attrs *a = l->node->attrs;
    double squares = 0;
    for (uint32_t i = 0; i < gradients_of(l->node); i++)
        squares += dr_cpu_sum_squares(cpu, dr_elements(dr_launch_in(l, i)), l->in[i], l->workspace);
    *(float *)l->out[0] = dr_clip_factor(squares, a->max_norm, scale_of(l));
}
DR_CUDA_LAUNCHER clip_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_clip_attrs *a = l->node->attrs;
    const uint32_t n = gradients_of(l->node);
    struct dr_cuda_gradients g = {0};
    double *partial = l->workspace;
    int64_t done = 0, blocks = 0;
    int err = 0;
    for (uint32_t i = 0; i < n && !err; i++) {
        g.at[g.n].x = l->in[i];
        g.at[g.n].n = dr_elements(dr_launch_in(l, i));
        blocks += dr_cuda_square_blocks(g.at[g.n++].n);
        if (g.n == DR_CUDA_GRADIENTS || i + 1 == n) {
            err = dr_cuda_squares(&g, partial + done, cuda->stream);
            done = blocks;
            g.n = 0;
        }
    }
    return err ? err
               : dr_cuda_clip(partial, blocks, a->max_norm, scale_of(l), l->out[0], cuda->stream);
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
    .doc = "The factor that brings the global norm of the gradients down to clip_norm, and takes "
           "the loss's scale out of them.",
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
        health[0] = DR_HEALTH_BAD;
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

/* ---- guard_scaled: total loss, header, clip, health, scale, good -> health, scale, good ---- */
static bool guard_scaled_infer(struct dr_infer *c) {
    return dr_infer_write(c, 3) && dr_infer_write(c, 4) && dr_infer_write(c, 5);
}
static struct dr_scaler scaler_of(const struct dr_launch *l) {
    const struct dr_loss_scaling *s =
        &((const struct dr_guard_scaled_attrs *)l->node->attrs)->scaling;
    return (struct dr_scaler){s->growth, s->backoff, s->interval};
}
static void guard_scaled_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    (void)cpu;
    const struct dr_scaler s = scaler_of(l);
    const float total = *(const float *)l->in[0], factor = *(const float *)l->in[2];
    const struct dr_batch *header = l->in[1];
    dr_scaler_update(&s, isfinite(total) && isfinite(factor), (int64_t)header->step, l->out[0],
                     l->out[1], l->out[2]);
}
DR_CUDA_LAUNCHER guard_scaled_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_scaler s = scaler_of(l);
    return dr_cuda_guard_scaled(&s, l->in[0], l->in[2], l->in[1], l->out[0], l->out[1], l->out[2],
                                cuda->stream);
}
const struct dr_op dr_op_guard_scaled = {
    .name = "guard_scaled",
    .doc = "Where losses are scaled: a step with a gradient or loss that is not finite updates "
           "nothing and lowers the scale; at the least scale it is the last to be tried.",
    .flags = DR_OP_INTERNAL,
    .attrs_bytes = sizeof(struct dr_guard_scaled_attrs),
    .min_in = 6,
    .max_in = 6,
    .infer = guard_scaled_infer,
    .cost = dr_cost_pointwise,
    .cpu = guard_scaled_cpu,
    DR_CUDA(guard_scaled_cuda),
};
