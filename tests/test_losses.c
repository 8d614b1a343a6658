/* bce, mse, l1 and dice; pixel_accuracy and mean_iou: values by hand, what does not count, and what
 * is refused. */
#include "tests/fake_harness.h"
#include <criterion/criterion.h>
#include <math.h>
#include <pthreadpool.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define MOST 24
static const float inf = INFINITY;

struct term {
    const char *op, *attrs;
    struct dr_shape x_shape, t_shape;
    float x[MOST];
    enum dr_dtype type;
    float t[MOST];
    uint32_t n_valid;
    double want[12]; /* its partial sums; of a loss {sum, count} */
    double number;   /* a metric's, from those */
};

static uint32_t target(struct rig *r, const struct term *c) {
    const enum dr_meaning m = c->type == DR_U8 ? DR_MASK : DR_LABEL;
    const uint32_t v =
        rig_input(r, "t", c->type, c->t_shape, c->type == DR_F32 ? DR_PLAIN : m, NULL);
    rig_set(r, v, NULL);
    for (int64_t i = 0; i < rig_elements(r, v); i++) {
        if (c->type == DR_U8)
            ((uint8_t *)r->at[v])[i] = (uint8_t)c->t[i];
        else if (c->type == DR_I32)
            ((int32_t *)r->at[v])[i] = (int32_t)c->t[i];
        else
            rig_f32(r, v)[i] = c->t[i];
    }
    return v;
}

static void near(double got, double want, const struct term *c, const char *what) {
    cr_assert(got == want || (isnan(got) && isnan(want)) ||
                  fabs(got - want) <= 1e-6 * fabs(want) + 1e-9,
              "%s %s: %s is %g, not %g", c->op, c->attrs, what, got, want);
}

static void check(const struct term *c) {
    struct rig r = rig_create(c->x_shape.dim[0]);
    const uint32_t in[] = {rig_floats(&r, "x", c->x_shape, c->x), target(&r, c)};
    rig_header(&r, 0, c->n_valid);
    const uint32_t n = rig_op(&r, "op", c->op, c->attrs, in, 2);
    cr_assert_neq(n, DR_NONE, "%s", rig_text(&r));
    const struct dr_op *op = r.g->node.at[n].op;
    const bool loss = op->flags & DR_OP_LOSS;
    const uint32_t partial = rig_out(&r, n, loss ? 1 : 0),
                   count = (uint32_t)rig_elements(&r, partial);
    rig_run(&r);
    const double *got = r.at[partial];
    cr_assert_leq(count, COUNT(c->want));
    for (uint32_t i = 0; i < count; i++)
        near(got[i], c->want[i], c, "a partial sum");
    if (loss)
        near(rig_f32(&r, rig_out(&r, n, 0))[0], c->want[1] > 0 ? c->want[0] / c->want[1] : 0, c,
             "the mean");
    else
        near(op->finish(r.g->node.at[n].attrs, got, count), c->number, c, "the number");
    rig_free(&r);
}

Test(losses, pairs_by_hand) {
    const double ln2 = log(2);
    const struct dr_shape s31 = DR_SHAPE(3, 1), s3 = DR_SHAPE(3), s22 = DR_SHAPE(2, 2);
    const struct term row[] = {
        /* -log sigmoid(0) = ln 2; far out, softplus(x) = x, and nothing overflows or is lost */
        {"bce", "{}", s31, s3, {0, 1000, -1000}, DR_I32, {1, 0, 1}, 3, {ln2 + 2000, 3}, 0},
        {"bce", "{}", s31, s3, {-20, inf, -inf}, DR_I32, {0, 1, 0}, 3, {2.0611536e-9, 3}, 0},
        {"bce", "{}", s31, s3, {0, 5, 0}, DR_U8, {1, 255, 0}, 3, {2 * ln2, 2}, 0},
        {"bce", "{}", s31, s3, {0, 5, 0}, DR_U8, {1, 255, 0}, 2, {ln2, 1}, 0},
        {"bce", "{}", s31, s3, {0, 5, 0}, DR_I32, {1, 2, 0}, 3, {NAN, 3}, 0},
        {"bce", "{ignore_index: 0}", s31, s31, {0, 5, 9}, DR_I32, {1, 0, 0}, 3, {ln2, 1}, 0},
        {"bce", "{pos_weight: 3}", s31, s31, {0, 0, 0}, DR_F32, {1, 0, 0.5f}, 3, {6 * ln2, 3}, 0},
        {"bce", "{}", s31, s3, {NAN, 0, 0}, DR_I32, {0, 0, 0}, 3, {NAN, 3}, 0},
        {"bce", "{}", s31, s3, {3, 0, 0}, DR_U8, {255, 255, 255}, 3, {0, 0}, 0},
        {"mse", "{}", s22, s22, {1, 2, 3, 4}, DR_F32, {3, 2, 0, 5}, 2, {14, 4}, 0},
        {"mse", "{}", s22, s22, {1, 2, 3, 4}, DR_F32, {3, 2, 0, 5}, 1, {4, 2}, 0},
        {"mse", "{}", s22, s22, {1, 2, 255, 4}, DR_U8, {3, 2, 255, 5}, 2, {5, 4}, 0},
        {"l1", "{}", s22, s22, {1, 2, 3, 4}, DR_F32, {3, 2, 0, 5}, 2, {6, 4}, 0},
        {"l1", "{}", s31, s3, {1, 2, 3}, DR_I32, {-4, 2, 0}, 3, {8, 3}, 0},
        {"l1", "{}", s31, s3, {1, 2, 3}, DR_I32, {-4, 2, 0}, 0, {0, 0}, 0},
    };
    for (size_t i = 0; i < COUNT(row); i++)
        check(&row[i]);
}

/* Two pixels and two classes of equal logits, p = 1/2: I = 1/2, P = 1, T = 1, D = (1 + s) / (2 +
 * s).
 */
Test(losses, dice_by_hand) {
    const struct dr_shape x = DR_SHAPE(1, 2, 2), t = DR_SHAPE(1, 2), one = DR_SHAPE(1, 2, 1);
    const struct dr_shape x2 = DR_SHAPE(2, 1, 2), t2 = DR_SHAPE(2, 1);
    const struct term row[] = {
        {"dice", "{}", x, t, {0}, DR_U8, {0, 1}, 1, {1.0 / 3, 1}, 0},
        {"dice", "{smooth: 0}", x, t, {0}, DR_U8, {0, 1}, 1, {0.5, 1}, 0},
        {"dice", "{}", one, t, {0}, DR_U8, {1, 0}, 1, {1.0 / 3, 1}, 0},
        {"dice", "{}", x, t, {100, 0, 0, 100}, DR_I32, {0, 1}, 1, {0, 1}, 0},
        /* one pixel left: D of class 0 is 2/2.5, of class 1 1/1.5 */
        {"dice", "{}", x, t, {0}, DR_U8, {0, 255}, 1, {1 - (2 / 2.5 + 1 / 1.5) / 2, 1}, 0},
        {"dice", "{}", x, t, {0}, DR_U8, {255, 255}, 1, {0, 0}, 0},
        {"dice", "{}", x, t, {0}, DR_I32, {0, 2}, 1, {NAN, 1}, 0},
        {"dice", "{}", one, t, {0}, DR_I32, {0, 2}, 1, {NAN, 1}, 0},
        {"dice", "{}", x2, t2, {0}, DR_I32, {0, 0}, 1, {1 - (2 / 2.5 + 1 / 1.5) / 2, 1}, 0},
        {"dice", "{}", x2, t2, {0}, DR_I32, {0, -100}, 2, {1 - (2 / 2.5 + 1 / 1.5) / 2, 1}, 0},
        /* nothing is predicted, nothing is there, and no smoothing: all is well */
        {"dice", "{smooth: 0}", one, t, {-inf, -inf}, DR_U8, {0, 0}, 1, {0, 1}, 0},
    };
    for (size_t i = 0; i < COUNT(row); i++)
        check(&row[i]);
}

/* Predictions 0, 1, 1, 2 of four classes against 0, 1, 2 and what is ignored. */
Test(losses, segmentation_by_hand) {
    const struct dr_shape x = DR_SHAPE(1, 4, 4), t = DR_SHAPE(1, 4), one = DR_SHAPE(1, 4, 1);
    const struct dr_shape x2 = DR_SHAPE(2, 2, 2), t2 = DR_SHAPE(2, 2);
#define FOUR                                                                                       \
    { 9, 0, 0, 0, 1, 2, 2, 0, -1, 5, 0, 5, 0, 0, 3, 0 }
    const struct term row[] = {
        {"pixel_accuracy", "{}", x, t, FOUR, DR_U8, {0, 1, 2, 255}, 1, {2, 3}, 2.0 / 3},
        {"mean_iou",
         "{}",
         x,
         t,
         FOUR,
         DR_U8,
         {0, 1, 2, 255},
         1,
         {1, 1, 0, 0, /* predicted */ 1, 2, 0, 0, /* there */ 1, 1, 1, 0},
         (1 + 0.5 + 0) / 3},
        {"mean_iou",
         "{ignore_index: 1}",
         x,
         t,
         FOUR,
         DR_U8,
         {0, 1, 2, 2},
         1,
         {1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 2, 0},
         (1 + 0 + 0.5) / 3},
        {"mean_iou", "{}", x, t, FOUR, DR_U8, {255, 255, 255, 255}, 1, {0}, 0},
        /* a class that does not exist: a wrong prediction, and no index */
        {"mean_iou",
         "{}",
         x,
         t,
         FOUR,
         DR_I32,
         {0, 1, 1, -7},
         1,
         {1, 2, 0, 0, 1, 2, 1, 0, 1, 2, 0, 0},
         (1 + 1 + 0) / 3.0},
        {"pixel_accuracy", "{}", x, t, FOUR, DR_I32, {0, 1, 1, 4}, 1, {3, 4}, 0.75},
        /* a NaN names nothing */
        {"mean_iou",
         "{}",
         x2,
         t2,
         {NAN, 1, 1, 0, 0, 1, 0, 1},
         DR_U8,
         {1, 0, 1, 1},
         2,
         {1, 2, 1, 2, 1, 3},
         (1 + 2.0 / 3) / 2},
        {"pixel_accuracy",
         "{}",
         x2,
         t2,
         {1, NAN, 1, 0, 0, 1, 0, 1},
         DR_U8,
         {1, 0, 1, 1},
         2,
         {3, 4},
         0.75},
        {"pixel_accuracy",
         "{}",
         x2,
         t2,
         {1, 0, 1, 0, 0, 1, 0, 1},
         DR_U8,
         {1, 0, 1, 1},
         1,
         {1, 2},
         0.5},
        /* one logit: class 1 above 0 */
        {"mean_iou",
         "{}",
         one,
         t,
         {-1, 0, 2, 3},
         DR_U8,
         {0, 1, 1, 0},
         1,
         {1, 1, 2, 2, 2, 2},
         1.0 / 3},
        {"pixel_accuracy", "{}", one, t, {-1, 0, 2, NAN}, DR_U8, {0, 1, 1, 0}, 1, {2, 4}, 0.5},
        {"pixel_accuracy", "{}", one, t, {0}, DR_U8, {0}, 0, {0, 0}, 0},
    };
    for (size_t i = 0; i < COUNT(row); i++)
        check(&row[i]);
}

/* The same bits whatever the threads: losses, their gradients, a metric. */
static uint64_t hash_of_run(size_t threads) {
    struct rig r = rig_create(3);
    r.cpu.pool = threads ? pthreadpool_create(threads) : NULL;
    const uint32_t x = rig_floats(&r, "x", DR_SHAPE(3, 70, 90, 4), NULL);
    const uint32_t t = rig_input(&r, "t", DR_U8, DR_SHAPE(3, 70, 90), DR_MASK, NULL);
    const uint32_t like = rig_floats(&r, "like", DR_SHAPE(3, 70, 90, 4), NULL);
    rig_set(&r, x, NULL), rig_set(&r, t, NULL), rig_set(&r, like, NULL);
    uint32_t bits = 1;
    for (int64_t i = 0; i < rig_elements(&r, x); i++) {
        bits = bits * 1664525 + 1013904223;
        rig_f32(&r, x)[i] = (float)(bits >> 8) * 0x1p-22f - 2;
        rig_f32(&r, like)[i] = (float)(bits >> 20) * 0x1p-12f;
        ((uint8_t *)r.at[t])[i / 4] = (uint8_t)(bits >> 30);
    }
    static const char *const ops[] = {"dice", "bce", "mse", "l1"};
    for (size_t i = 0; i < COUNT(ops); i++) {
        const uint32_t n = rig_op(&r, ops[i], ops[i], "{}", (uint32_t[]){x, i ? like : t}, 2);
        uint32_t dx[3];
        rig_grad(&r, n, (uint32_t[]){DR_NONE, DR_NONE, DR_NONE}, (const bool[]){true, false, false},
                 1, dx);
    }
    rig_op(&r, "miou", "mean_iou", "{}", (uint32_t[]){x, t}, 2);
    rig_run(&r);
    uint64_t hash = 0;
    for (uint32_t v = 0; v < r.g->value.n; v++)
        if (v < r.n_at && r.at[v])
            hash = hash * 31 + dr_hash(r.at[v], (size_t)r.g->value.at[v].bytes);
    pthreadpool_destroy(r.cpu.pool);
    rig_free(&r);
    return hash;
}

Test(losses, fixed_orders) {
    const uint64_t alone = hash_of_run(0);
    for (size_t threads = 1; threads <= 8; threads *= 2)
        cr_assert_eq(hash_of_run(threads), alone, "%zu threads", threads);
}

/* What the data may hold, from what the losses accept. */
Test(losses, classes_of_targets) {
    static const struct {
        const char *op;
        int64_t k, classes;
    } row[] = {{"bce", 1, 2},      {"dice", 1, 2},           {"dice", 3, 3},
               {"mean_iou", 1, 2}, {"pixel_accuracy", 7, 7}, {"mse", 1, 0}};
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rig r = rig_create(2);
        const uint32_t in[] = {rig_floats(&r, "x", DR_SHAPE(2, 3, row[i].k), NULL),
                               rig_input(&r, "t", DR_U8, DR_SHAPE(2, 3), DR_MASK, NULL)};
        cr_expect_neq(rig_op(&r, "op", row[i].op, "{}", in, 2), DR_NONE, "%s", rig_text(&r));
        cr_expect_eq(r.g->value.at[in[1]].classes, row[i].classes, "%s of %d", row[i].op,
                     (int)row[i].k);
        rig_free(&r);
    }
}

Test(losses, refused) {
    static const struct {
        const char *op, *attrs;
        struct dr_shape x, t;
        enum dr_dtype type;
        const char *says;
    } row[] = {
        {"bce", "{}", {2, {2, 3}}, {1, {2}}, DR_I32, "'x' [2, 3] and its target 't' [2] differ"},
        {"mse", "{}", {2, {2, 1}}, {3, {2, 1, 2}}, DR_F32, "differ in shape"},
        {"l1", "{}", {2, {2, 1}}, {1, {2}}, DR_I64, "its target 't' is i64"},
        {"bce", "{pos_weight: -1}", {2, {2, 1}}, {1, {2}}, DR_I32, "pos_weight"},
        {"mse", "{ignore_index: 3}", {2, {2, 1}}, {1, {2}}, DR_I32, "unknown key 'ignore_index'"},
        {"dice", "{}", {3, {2, 3, 4}}, {1, {2}}, DR_I32, "want a target of shape [2, 3]"},
        {"dice", "{}", {3, {2, 3, 4}}, {2, {2, 3}}, DR_F32, "classes are integers"},
        {"mean_iou", "{}", {3, {2, 3, 4}}, {3, {2, 3, 4}}, DR_U8, "want a target of shape [2, 3]"},
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rig r = rig_create(2);
        const uint32_t in[] = {rig_floats(&r, "x", row[i].x, NULL),
                               rig_input(&r, "t", row[i].type, row[i].t, DR_LABEL, NULL)};
        void *attrs = rig_attrs(&r, row[i].op, row[i].attrs);
        if (attrs)
            cr_expect_eq(rig_node(&r, "op", row[i].op, attrs, in, 2), DR_NONE, "%s", row[i].op);
        cr_expect(strstr(rig_text(&r), row[i].says), "'%s' is not in:\n%s", row[i].says,
                  rig_text(&r));
        rig_free(&r);
    }
}
