/* adam and adamw: values by hand, ten steps against torch.optim's rule in double, groups, what bad
 * health freezes, refusals. */
#include "tests/fake_harness.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct dr_shape scalar = {0};

/* n weights of these shapes, gradients, lr, health and clip (0: none), and their update. */
struct setup {
    struct rig r;
    uint32_t n, w[3], g[3], lr, health, node;
};

static struct setup setup(const char *op, const char *attrs, uint32_t n,
                          const struct dr_shape *shape, float lr, float clip) {
    struct setup s = {.r = rig_create(1), .n = n};
    uint32_t in[9];
    for (uint32_t i = 0; i < n; i++) {
        char name[2][3] = {"w0", "g0"};
        name[0][1] = name[1][1] = (char)('0' + i);
        in[i] = s.w[i] = rig_state(&s.r, name[0], DR_WEIGHT, DR_F32, shape[i], NULL);
        rig_set(&s.r, s.w[i], NULL);
        in[n + i] = s.g[i] = rig_floats(&s.r, name[1], shape[i], NULL);
        rig_set(&s.r, s.g[i], NULL);
    }
    in[2 * n] = s.lr = rig_floats(&s.r, "lr", scalar, &lr);
    in[2 * n + 1] = s.health =
        rig_state(&s.r, "health", DR_HEALTH, DR_I64, DR_SHAPE(2), (int64_t[2]){0});
    in[2 * n + 2] = rig_floats(&s.r, "clip", scalar, &clip);
    s.node = rig_op(&s.r, "update", op, attrs, in, 2 * n + (clip != 0 ? 3 : 2));
    return s;
}

static int64_t count_of(const struct setup *s, const char *step) {
    return *(int64_t *)s->r.at[rig_find(&s->r, step)];
}

/* One weight of value 1 with a constant gradient, three steps. */
Test(adam, STR_02_values) {
    static const struct {
        const char *op, *attrs;
        float gradient, clip;
        double want[3];
    } row[] = {
        {"adam", "{}", 1, 0, {0.9, 0.8, 0.7}},
        {"adam", "{betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0}", 1, 0, {0.9, 0.8, 0.7}},
        {"adam", "{betas: [0.5, 0.9]}", -3, 0, {1.1, 1.2, 1.3}},
        /* 1 / (1 + eps) of the rate; what is clipped counts */
        {"adam", "{eps: 1}", 1, 0, {0.95, 0.9, 0.85}},
        {"adam", "{eps: 1}", 4, 0.25f, {0.95, 0.9, 0.85}},
        {"adam", "{eps: 1}", 4, 0, {0.92, 0.84, 0.76}},
        /* a gradient of 0 and no decay: nothing moves */
        {"adam", "{}", 0, 0, {1, 1, 1}},
        {"adamw", "{}", 1, 0, {0.899, 0.798101, 0.697302899}},
        {"adamw", "{weight_decay: 0}", 1, 0, {0.9, 0.8, 0.7}},
        {"adamw", "{weight_decay: 0.5}", 0, 0, {0.95, 0.9025, 0.857375}},
        /* the gradient is decay * w = 0.5 at first, and its step the rate, whatever its size */
        {"adam", "{weight_decay: 0.5, betas: [0, 0]}", 0, 0, {0.9, 0.8, 0.7}},
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        struct setup s = setup(row[i].op, row[i].attrs, 1, &DR_SHAPE(1), 0.1f, row[i].clip);
        cr_assert_neq(s.node, DR_NONE, "%s", rig_text(&s.r));
        rig_f32(&s.r, s.w[0])[0] = 1;
        rig_f32(&s.r, s.g[0])[0] = row[i].gradient;
        for (int step = 0; step < 3; step++) {
            rig_run(&s.r);
            const double got = rig_f32(&s.r, s.w[0])[0];
            cr_expect(fabs(got - row[i].want[step]) <= 1e-6, "%s %s, step %d: %.9g, not %.9g",
                      row[i].op, row[i].attrs, step, got, row[i].want[step]);
        }
        rig_free(&s.r);
    }
}

/* ---- ten steps in double ---- */
static uint64_t state;
static double uniform(void) { /* -1 .. 1 */
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state >> 11) * 0x1p-52 - 1.0;
}

struct rule {
    double lr, beta1, beta2, eps, decay, clip;
    bool decoupled;
};
static void torch_step(const struct rule *u, int step, double g, double *w, double *m, double *v) {
    g *= u->clip;
    if (u->decoupled)
        *w *= 1 - u->lr * u->decay;
    else
        g += u->decay * *w;
    *m = u->beta1 * *m + (1 - u->beta1) * g;
    *v = u->beta2 * *v + (1 - u->beta2) * g * g;
    const double c1 = 1 - pow(u->beta1, step), c2 = 1 - pow(u->beta2, step);
    *w -= u->lr / c1 * *m / (sqrt(*v) / sqrt(c2) + u->eps);
}

/* Three weights in one node, the second larger than a block of a kernel. */
Test(adam, ten_steps_against_double) {
    static const struct {
        const char *op, *attrs;
        struct rule rule;
    } row[] = {
        {"adam", "{}", {0.01, 0.9, 0.999, 1e-8, 0, 1, false}},
        {"adam",
         "{betas: [0.8, 0.95], eps: 1e-3, weight_decay: 0.1}",
         {0.01, 0.8, 0.95, 1e-3, 0.1, 0.25, false}},
        {"adamw", "{}", {0.01, 0.9, 0.999, 1e-8, 0.01, 1, true}},
        {"adamw", "{betas: [0, 0.5], weight_decay: 0.3}", {0.01, 0, 0.5, 1e-8, 0.3, 0.5, true}},
    };
    static double w[20000], m[20000], v[20000];
    const struct dr_shape shape[] = {DR_SHAPE(7), DR_SHAPE(3, 5, 1201), DR_SHAPE(1)};
    for (size_t i = 0; i < COUNT(row); i++) {
        const struct rule *u = &row[i].rule;
        struct setup s = setup(row[i].op, row[i].attrs, 3, shape, (float)u->lr,
                               u->clip == 1 ? 0 : (float)u->clip);
        cr_assert_neq(s.node, DR_NONE, "%s", rig_text(&s.r));
        state = 7;
        int64_t at = 0;
        for (uint32_t t = 0; t < 3; t++)
            for (int64_t k = 0; k < rig_elements(&s.r, s.w[t]); k++, at++) {
                w[at] = rig_f32(&s.r, s.w[t])[k] = (float)uniform();
                m[at] = v[at] = 0;
            }
        for (int step = 1; step <= 10; step++) {
            at = 0;
            for (uint32_t t = 0; t < 3; t++)
                for (int64_t k = 0; k < rig_elements(&s.r, s.w[t]); k++, at++) {
                    const float g = (float)uniform();
                    rig_f32(&s.r, s.g[t])[k] = g;
                    torch_step(u, step, g, &w[at], &m[at], &v[at]);
                }
            rig_run(&s.r);
            at = 0;
            for (uint32_t t = 0; t < 3; t++)
                for (int64_t k = 0; k < rig_elements(&s.r, s.w[t]); k++, at++)
                    cr_assert(fabs(rig_f32(&s.r, s.w[t])[k] - w[at]) <= 2e-6,
                              "%s %s, step %d, weight %u [%d]: %.9g, not %.9g", row[i].op,
                              row[i].attrs, step, t, (int)k, (double)rig_f32(&s.r, s.w[t])[k],
                              w[at]);
        }
        cr_assert_eq(count_of(&s, i < 2 ? "w2:adam.step" : "w2:adamw.step"), 10);
        rig_free(&s.r);
    }
}

/* While health is bad nothing is written, the count neither; afterwards it is as if those steps had
 * not been. */
Test(adam, bad_health_freezes_all) {
    struct setup s = setup("adam", "{}", 1, &DR_SHAPE(2), 0.1f, 0);
    rig_set(&s.r, s.w[0], (float[]){1, 2});
    rig_set(&s.r, s.g[0], (float[]){1, -1});
    for (int step = 0; step < 5; step++) {
        rig_set(&s.r, s.health, (int64_t[]){step == 1 || step == 2, step});
        rig_set(&s.r, s.g[0], (float[]){step == 1 ? NAN : 1, step == 2 ? INFINITY : -1});
        rig_run(&s.r);
        static const double want[] = {0.9, 0.9, 0.9, 0.8, 0.7};
        static const int64_t count[] = {1, 1, 1, 2, 3};
        cr_assert(fabs(rig_f32(&s.r, s.w[0])[0] - want[step]) <= 1e-6);
        cr_assert(fabs(rig_f32(&s.r, s.w[0])[1] - (3 - want[step])) <= 1e-6);
        cr_assert_eq(count_of(&s, "w0:adam.step"), count[step]);
    }
    cr_assert(fabs(rig_f32(&s.r, rig_find(&s.r, "w0:adam.exp_avg"))[0] - 0.271) <= 1e-6);
    cr_assert(fabs(rig_f32(&s.r, rig_find(&s.r, "w0:adam.exp_avg_sq"))[1] - 0.002997001) <= 1e-8);
    rig_free(&s.r);
}

Test(adam, states_and_refusals) {
    struct setup s =
        setup("adamw", "{}", 2, (struct dr_shape[]){DR_SHAPE(3), DR_SHAPE(2, 2)}, 1, 1);
    static const char *const leaves[] = {"w0:adamw.exp_avg",    "w0:adamw.exp_avg_sq",
                                         "w0:adamw.step",       "w1:adamw.exp_avg",
                                         "w1:adamw.exp_avg_sq", "w1:adamw.step"};
    const struct dr_node *n = &s.r.g->node.at[s.node];
    cr_assert(n->n_in == 7 + 6 && n->n_out == 2 + 6);
    for (uint32_t i = 0; i < 6; i++) {
        const struct dr_value *v = &s.r.g->value.at[n->in[7 + i]];
        cr_expect_str_eq(v->name, leaves[i]);
        cr_expect(v->cls == DR_MOMENT && v->kind == DR_STATE && v->init.kind == DR_INIT_ZERO);
        cr_expect_eq(v->dtype, i % 3 == 2 ? DR_I64 : DR_F32);
        cr_expect_eq(n->in[7 + i], n->out[2 + i]);
    }
    rig_free(&s.r);
    static const char *const bad[] = {"{betas: [0.9]}", "{betas: [0.9, 1]}", "{betas: [1, 0.9]}",
                                      "{betas: [0.9, 0.99, 0.999]}"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        s = setup("adam", bad[i], 1, &DR_SHAPE(1), 1, 0);
        cr_expect_eq(s.node, DR_NONE, "%s", bad[i]);
        cr_expect_not_null(strstr(rig_text(&s.r), "betas should be two numbers from 0 to below 1"),
                           "%s", rig_text(&s.r));
        rig_free(&s.r);
    }
}
