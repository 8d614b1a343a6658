/* batch_norm: training, stored statistics, and what moves the running ones. */
#include "tests/fake_harness.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void near(double got, double want, double tolerance, const char *what) {
    cr_assert(fabs(got - want) <= tolerance, "%s: %.9g, not %.9g", what, got, want);
}

/* A batch of two 1x1 images [1, 3], gamma 1, beta 0, running mean 0, running var 1. */
static struct rig two_images(const char *op, uint32_t *node) {
    struct rig r = rig_create(2);
    const uint32_t x = rig_floats(&r, "x", DR_SHAPE(2, 1, 1, 1), (float[]){1, 3});
    *node = rig_op(&r, "bn", op, "{}", &x, 1);
    cr_assert_neq(*node, DR_NONE, "%s", rig_text(&r));
    return r;
}

Test(norm, FRZ_01_frozen_statistics_stay) {
    uint32_t node, dx[5];
    struct rig r = two_images("batch_norm_infer", &node);
    cr_assert_null(r.g->node.at[node].op->track);
    const uint32_t dy = rig_floats(&r, "dy", DR_SHAPE(2, 1, 1, 1), (float[]){1, -2});
    rig_grad(&r, node, &dy, (const bool[5]){true}, 1, dx);
    rig_run(&r);
    const float *y = rig_f32(&r, rig_out(&r, node, 0)), *d = rig_f32(&r, dx[0]);
    near(y[0], 0.999995, 1e-6, "y[0]");
    near(y[1], 2.999985, 1e-6, "y[1]");
    near(d[0], 1 / sqrt(1 + 1e-5), 1e-6, "dx[0] = dy * gamma / sqrt(var + eps)");
    near(d[1], -2 / sqrt(1 + 1e-5), 1e-6, "dx[1]");
    cr_assert_eq(rig_f32(&r, rig_find(&r, "bn.running_mean"))[0], 0);
    cr_assert_eq(rig_f32(&r, rig_find(&r, "bn.running_var"))[0], 1);
    cr_assert_eq(dr_op_find(dr_ops(), "batch_norm")->eval_form, r.g->node.at[node].op);
    rig_free(&r);
}

static void health(struct rig *r, int64_t bad) {
    r->g->health =
        rig_state(r, "health", DR_HEALTH, DR_I64, DR_SHAPE(2), (const int64_t[2]){bad, 0});
}

Test(norm, FRZ_01_training_statistics_move) {
    uint32_t node;
    struct rig r = two_images("batch_norm", &node);
    health(&r, 0);
    r.g->node.at[node].op->track(r.g, node);
    rig_run(&r);
    const float *y = rig_f32(&r, rig_out(&r, node, 0));
    near(y[0], -0.999995, 1e-6, "y[0]");
    near(y[1], 0.999995, 1e-6, "y[1]");
    near(rig_f32(&r, rig_out(&r, node, 1))[0], 2, 0, "the batch's mean");
    near(rig_f32(&r, rig_out(&r, node, 2))[0], 1, 0, "its biased variance");
    near(rig_f32(&r, rig_find(&r, "bn.running_mean"))[0], 0.2, 1e-7, "running mean");
    near(rig_f32(&r, rig_find(&r, "bn.running_var"))[0], 1.1, 1e-6, "running var, unbiased");
    const struct dr_node *stats = &r.g->node.at[r.g->node.n - 1];
    cr_assert_eq(stats->role, DR_ROLE_UPDATE);
    cr_assert_eq(stats->forward, node);
    rig_free(&r);
}

Test(norm, a_bad_loss_freezes_the_statistics) {
    uint32_t node;
    struct rig r = two_images("batch_norm", &node);
    health(&r, 1);
    r.g->node.at[node].op->track(r.g, node);
    rig_run(&r);
    cr_assert_eq(rig_f32(&r, rig_find(&r, "bn.running_mean"))[0], 0);
    cr_assert_eq(rig_f32(&r, rig_find(&r, "bn.running_var"))[0], 1);
    rig_free(&r);
}

/* momentum 1 takes the batch's statistics, 0 none of them. */
Test(norm, momentum) {
    const struct {
        const char *attrs;
        float mean, var;
    } row[] = {{"{momentum: 1}", 2, 2}, {"{momentum: 0}", 0, 1}};
    for (size_t i = 0; i < 2; i++) {
        struct rig r = rig_create(2);
        const uint32_t x = rig_floats(&r, "x", DR_SHAPE(2, 1), (float[]){1, 3});
        const uint32_t node = rig_op(&r, "bn", "batch_norm", row[i].attrs, &x, 1);
        health(&r, 0);
        r.g->node.at[node].op->track(r.g, node);
        rig_run(&r);
        near(rig_f32(&r, rig_find(&r, "bn.running_mean"))[0], row[i].mean, 0, row[i].attrs);
        near(rig_f32(&r, rig_find(&r, "bn.running_var"))[0], row[i].var, 1e-6, row[i].attrs);
        rig_free(&r);
    }
}

/* Many chunks, a mean far from 0, a constant channel: x = 10000 + {0, 1} by row, mean 10000.5,
 * variance 0.25; a naive sum of squares in fp32 would lose all of it. */
Test(norm, far_from_zero) {
    enum { ROWS = 70001, C = 3 };
    struct rig r = rig_create(ROWS);
    float *x = malloc(sizeof *x * ROWS * C);
    for (int i = 0; i < ROWS; i++) {
        x[i * C] = 10000 + (float)(i % 2);
        x[i * C + 1] = 7;
        x[i * C + 2] = (float)i;
    }
    const uint32_t in = rig_floats(&r, "x", DR_SHAPE(ROWS, C), x);
    const uint32_t node = rig_op(&r, "bn", "batch_norm", "{}", &in, 1);
    rig_run(&r);
    const float *y = rig_f32(&r, rig_out(&r, node, 0));
    const float *mean = rig_f32(&r, rig_out(&r, node, 1)), *var = rig_f32(&r, rig_out(&r, node, 2));
    near(mean[0], 10000.5, 1e-3, "mean");
    near(var[0], 0.25, 1e-6, "variance");
    near(mean[1], 7, 0, "constant mean");
    near(var[1], 0, 0, "constant variance");
    near(y[1], 0, 0, "a constant channel is 0");
    near(mean[2], (ROWS - 1) / 2.0, 0, "mean of 0 .. n - 1");
    const double exact = ((double)ROWS * ROWS - 1) / 12; /* of a discrete uniform */
    near(var[2] / exact, 1, 1e-7, "variance of 0 .. n - 1");
    free(x);
    rig_free(&r);
}

/* gamma, beta and a fused activation; the eval form takes the same attributes. */
Test(norm, affine_and_activation) {
    static const char *const ops[] = {"batch_norm", "batch_norm_infer"};
    for (size_t i = 0; i < 2; i++) {
        struct rig r = rig_create(2);
        const uint32_t x = rig_floats(&r, "x", DR_SHAPE(2, 2), (float[]){-1, -1, 1, 1});
        int32_t *attrs = rig_attrs(&r, ops[i], "{eps: 0}");
        attrs[0] = DR_ACT_RELU;
        const uint32_t node = rig_node(&r, "bn", ops[i], attrs, &x, 1);
        rig_set(&r, rig_find(&r, "bn.weight"), (float[]){2, -3});
        rig_set(&r, rig_find(&r, "bn.bias"), (float[]){0.5f, 1});
        rig_run(&r);
        const float want[] = {0, 4, 2.5f, 0}, *y = rig_f32(&r, rig_out(&r, node, 0));
        for (int k = 0; k < 4; k++)
            near(y[k], want[k], 1e-6, ops[i]);
        rig_free(&r);
    }
}

Test(norm, whole_batches_only) {
    cr_assert(dr_op_find(dr_ops(), "batch_norm")->flags & DR_OP_WHOLE_BATCH);
    cr_assert_not(dr_op_find(dr_ops(), "batch_norm_infer")->flags & DR_OP_WHOLE_BATCH);
}
