/* argmax over the last axis. It has no gradient. */
#include "kernels/cpu/argmax.h"
#include "kernels/cuda/argmax.h"
#include "ops/common.h"

static bool argmax_infer(struct dr_infer *c) {
    if (!dr_need_f32(c, 0))
        return false;
    struct dr_shape s = dr_infer_in(c, 0)->shape;
    if (s.rank < 2)
        return dr_infer_error(c, "its input has no axis of channels");
    const int64_t k = s.dim[s.rank - 1];
    if (k > INT32_MAX)
        return dr_infer_error(c, "%lld channels are more than 2^31 - 1", (long long)k);
    s.dim[--s.rank] = 0;
    return dr_infer_out(c, NULL, k <= 256 ? DR_U8 : DR_I32, s, DR_PLAIN);
}
static void argmax_cpu(const struct dr_launch *l, struct dr_cpu *cpu) {
    const struct dr_value *x = dr_launch_in(l, 0), *y = dr_launch_out(l, 0);
    dr_cpu_argmax(cpu, dr_elements(y), dr_last(x), l->in[0], y->dtype == DR_U8, l->out[0]);
}
DR_CUDA_LAUNCHER argmax_cuda(const struct dr_launch *l, struct dr_cuda *cuda) {
    const struct dr_value *x = dr_launch_in(l, 0), *y = dr_launch_out(l, 0);
    return dr_cuda_argmax(dr_type_of(x), dr_elements(y), dr_last(x), l->in[0], y->dtype == DR_U8,
                          l->out[0], cuda->stream);
}
static struct dr_cost argmax_cost(const struct dr_graph *g, const struct dr_node *n) {
    return dr_cost_of(g, n, (double)dr_elements(dr_node_in(g, n, 0)));
}
const struct dr_op dr_op_argmax = {
    .name = "argmax",
    .doc = "Index of the largest value of the last axis, the first of equals, NaN above all: u8 to "
           "256 channels, else i32.",
    .min_in = 1,
    .max_in = 1,
    .half_in = 1,
    .outputs = 1,
    .infer = argmax_infer,
    .cost = argmax_cost,
    .cpu = argmax_cpu,
    DR_CUDA(argmax_cuda),
};
