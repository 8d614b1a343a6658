/* Against PyTorch: tests/data/torch holds what it computed (tests/data/make_torch.py), from weights
 * that it wrote. */
#include "augment/npy.h"
#include "scheduler/run.h"
#include "tests/fake_cli.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FOLDER DR_SOURCE_DIR "/tests/data/torch"
/* Relative. Sums in another order differ by some 4e-7. Without AdamW's decay losses differ
 * by 1.4e-5 here, without SGD's by 6e-5; another eps, Nesterov's momentum or order of a concat is
 * worth more.
 */
#define TOLERANCE 1e-5

/* A float32 array; NaN in it would pass comparisons of sums, so it is looked for here. */
static struct dr_npy floats(const char *folder, const char *name) {
    char path[1024], why[256];
    struct dr_npy x;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert(dr_npy_open(path, &x, why, sizeof why), "%s: %s", path, why);
    cr_assert(x.kind == 'f' && x.item == 4, "%s", path);
    return x;
}
static int64_t count(const struct dr_npy *x) {
    int64_t n = 1;
    for (uint32_t i = 0; i < x->rank; i++)
        n *= x->dim[i];
    return n;
}
static double at(const struct dr_npy *x, int64_t i) {
    float y;
    memcpy(&y, x->data + 4 * i, sizeof y);
    cr_assert(isfinite(y), "element %lld is %g", (long long)i, (double)y);
    return (double)y;
}

static struct dr_session *start(const char *model, enum dr_graph_mode mode, uint32_t threads,
                                const char *set) {
    char path[1024];
    snprintf(path, sizeof path, FOLDER "/%s.yaml", model);
    struct dr_session *s = dr_session_create();
    const bool ready = dr_session_load(s, path, &set, set != NULL) &&
                       dr_session_device(s, "cpu", threads) && dr_session_data(s, mode) &&
                       dr_session_plan(s, mode, NULL, NULL) && dr_session_start(s, NULL);
    cr_assert(ready, "%s: %s%s", model, dr_diag_text(s->diag), s->status.text);
    cr_expect_str_empty(dr_diag_text(s->diag)); /* every tensor of the file is used */
    return s;
}

/* ---- evaluation ---- */

/* |x - y| / |y| of the whole output, and of each sample. */
static void same_outputs(const struct dr_npy *x, const struct dr_npy *y, const char *model) {
    cr_assert_eq(x->rank, y->rank, "%s", model);
    for (uint32_t i = 0; i < x->rank; i++)
        cr_assert_eq(x->dim[i], y->dim[i], "%s: axis %u", model, i);
    const int64_t samples = x->dim[0], n = count(x) / samples;
    for (int64_t k = 0; k < samples; k++) {
        double error = 0, norm = 0;
        for (int64_t i = k * n; i < (k + 1) * n; i++) {
            const double e = at(x, i) - at(y, i);
            error += e * e;
            norm += at(y, i) * at(y, i);
        }
        cr_expect_gt(norm, 0);
        cr_expect_leq(sqrt(error / norm), TOLERANCE, "%s, sample %lld: %g", model, (long long)k,
                      sqrt(error / norm));
    }
}

static void evaluates(const char *model) {
    char *folder = cli_folder(), set[1024], name[64];
    snprintf(set, sizeof set, "outputs.y.npy=%s/y.npy", folder);
    snprintf(name, sizeof name, "%s_out.npy", model);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        struct dr_session *s = start(model, DR_MODE_INFER, threads, set);
        struct dr_results r = {0};
        cr_assert(dr_run(s, 0, NULL, &r), "%s: %s", model, s->status.text);
        cr_assert_eq(r.steps, 1);
        struct dr_npy x = floats(folder, "y.npy"), y = floats(FOLDER, name);
        same_outputs(&x, &y, model);
        dr_npy_close(&x);
        dr_npy_close(&y);
        dr_session_destroy(s);
    }
    cli_folder_remove(folder);
}

Test(torch, resnet18_evaluates_as_there) {
    evaluates("resnet");
}
Test(torch, unet_evaluates_as_there) {
    evaluates("unet");
}

/* ---- training ---- */

enum { STEPS = 10 };
struct losses {
    double at[STEPS];
    int n;
};
static void on_step(void *ctx, int64_t step, const struct dr_tally *t) {
    struct losses *l = ctx;
    (void)step;
    cr_assert(l->n < STEPS && t->n_losses == 1);
    l->at[l->n++] = t->loss[0].last;
}

static void trains(const char *model) {
    char name[64];
    snprintf(name, sizeof name, "%s_losses.npy", model);
    struct dr_npy want = floats(FOLDER, name);
    cr_assert(want.rank == 1 && want.dim[0] == STEPS);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        struct losses l = {.n = 0};
        const struct dr_watcher w = {.step = on_step, .ctx = &l};
        struct dr_session *s = start(model, DR_MODE_TRAIN, threads, NULL);
        struct dr_results r = {0};
        cr_assert(dr_run(s, 0, &w, &r), "%s: %s", model, s->status.text);
        cr_assert_eq(l.n, STEPS, "%s: %d steps", model, l.n);
        for (int i = 0; i < STEPS; i++)
            cr_expect_leq(fabs(l.at[i] / at(&want, i) - 1), TOLERANCE,
                          "%s, step %d: %.9g, not %.9g", model, i + 1, l.at[i], at(&want, i));
        dr_session_destroy(s);
    }
    dr_npy_close(&want);
}

Test(torch, ten_steps_of_sgd_have_the_same_losses) {
    trains("sgd");
}
Test(torch, ten_steps_of_adamw_have_the_same_losses) {
    trains("adamw");
}
