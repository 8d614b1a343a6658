/* The bound and the prediction, worked by hand: a device with 1 GFLOP/s and 1 GB/s, so that 1e3
 * operations or bytes are 1 us. */
#include "tests/fake_graphs.h"
#include <criterion/criterion.h>

static const struct dr_device_info dev = {
    .name = "toy", .copies_ahead = true, .flops_per_s = 1e9, .bytes_per_s = 1e9, .launch_us = 1};

static uint32_t node(struct toy *t, const char *name, enum dr_role role, double flops, double bytes,
                     const uint32_t *in) {
    uint32_t x =
        toy_add(t, name, &toy_op, role, role == DR_ROLE_DATA ? DR_UPSTREAM : DR_UPDATED, 8, in);
    toy_attrs(t)->flops = flops;
    toy_attrs(t)->bytes = bytes;
    return x;
}

struct want {
    double bound, predicted;
    const char *by;
};

static void expect(struct toy *t, enum dr_policy policy, struct want want) {
    struct dr_plan_wish w = toy_wish(policy, DR_AUTO, DR_AUTO);
    struct dr_plan *p = toy_plan(t, &w, &dev);
    cr_expect_float_eq(p->bound_us, want.bound, 1e-6, "bound %g", p->bound_us);
    cr_expect_float_eq(p->predicted_us, want.predicted, 1e-6, "predicted %g", p->predicted_us);
    cr_expect_str_eq(p->bound_by, want.by);
}

/* a (10 us) reads w; long (20) and short (5) follow; sgd (2) needs both: 32 us of 37 lie on the way
 * from the reader of w to its writer. `after` (7) reads w after all that, but leads to no write. */
Test(bound, critical_path_of_the_updated_part) {
    struct toy t = toy_create();
    uint32_t w = toy_state(&t, "w", 8, false);
    uint32_t a = node(&t, "a", DR_ROLE_FORWARD, 10e3, 1, TOY_INS(w));
    uint32_t l = node(&t, "long", DR_ROLE_BACKWARD, 1, 20e3, TOY_INS(a));
    uint32_t s = node(&t, "short", DR_ROLE_BACKWARD, 5e3, 1, TOY_INS(a));
    toy_add(&t, "sgd", &toy_op, DR_ROLE_UPDATE, DR_UPDATED, 0, TOY_INS(w, l, s));
    toy_writes(&t, w);
    toy_attrs(&t)->flops = 2e3;
    toy_attrs(&t)->bytes = 1;
    node(&t, "after", DR_ROLE_FORWARD, 7e3, 1, TOY_INS(w));
    /* one stream: 10 + 20 + 5 + 2 + 7, and 5 launches */
    expect(&t, DR_POLICY_SEQUENTIAL, (struct want){32, 49, "critical path of the updated part"});
    /* two: `short` beside `long`, then 3 launches to the end of sgd, and `after` */
    expect(&t, DR_POLICY_MATCHING, (struct want){32, 43, "critical path of the updated part"});
    toy_free(&t);
}

/* Work that may run ahead is on no critical path, but the device must do it all. */
Test(bound, arithmetic_and_traffic) {
    for (int traffic = 0; traffic < 2; traffic++) {
        struct toy t = toy_create();
        uint32_t x = node(&t, "x", DR_ROLE_DATA, traffic ? 1 : 30e3, traffic ? 30e3 : 1, NULL);
        uint32_t w = toy_state(&t, "w", 8, false);
        node(&t, "y", DR_ROLE_FORWARD, traffic ? 1 : 9e3, traffic ? 9e3 : 1, TOY_INS(x, w));
        toy_add(&t, "sgd", &toy_op, DR_ROLE_UPDATE, DR_UPDATED, 0, TOY_INS(w));
        toy_writes(&t, w);
        toy_attrs(&t)->flops = traffic ? 1 : 1e3;
        toy_attrs(&t)->bytes = traffic ? 1e3 : 1;
        /* two slots of x (31 us with its launch) on a stream of their own hide the rest; the device
         * needs 40 us a step */
        expect(&t, DR_POLICY_STAGE,
               (struct want){40, 40, traffic ? "memory traffic" : "arithmetic"});
        expect(&t, DR_POLICY_SEQUENTIAL,
               (struct want){40, 43, traffic ? "memory traffic" : "arithmetic"});
        toy_free(&t);
    }
}
