/* Initial states: He normal has the right moments, depends on seed and name only; frozen checksums.
 */
#include "scheduler/state.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct dr_value weight(const char *name, int64_t n, int64_t fan_in) {
    return (struct dr_value){
        .name = name,
        .kind = DR_STATE,
        .dtype = DR_F32,
        .shape = DR_SHAPE(n),
        .bytes = n * 4,
        .init = {.kind = DR_INIT_HE_NORMAL, .fan_in = fan_in},
    };
}

Test(state, he_normal_moments) {
    const int64_t n = 200000;
    const struct dr_value v = weight("net.c1.weight", n, 50);
    float *x = malloc((size_t)v.bytes);
    dr_state_initial(&v, 7, x);
    double sum = 0, square = 0, fourth = 0;
    for (int64_t i = 0; i < n; i++) {
        const double z = (double)x[i] / 0.2; /* sqrt(2 / 50) */
        sum += z;
        square += z * z;
        fourth += z * z * z * z;
        cr_assert(isfinite(x[i]) && fabs(z) < 6.0);
    }
    cr_expect_float_eq(sum / (double)n, 0.0, 0.01); /* 4.5 standard errors */
    cr_expect_float_eq(square / (double)n, 1.0, 0.015);
    cr_expect_float_eq(fourth / (double)n, 3.0, 0.12); /* a normal's kurtosis */
    free(x);
}

Test(state, keyed_by_seed_and_name) {
    float a[10], b[10], longer[13];
    struct dr_value v = weight("a.weight", 10, 9), w = weight("a.weight", 13, 9);
    dr_state_initial(&v, 7, a);
    dr_state_initial(&v, 7, b);
    cr_expect_arr_eq(a, b, sizeof a);
    dr_state_initial(&w, 7, longer); /* a prefix does not depend on the size */
    cr_expect_arr_eq(a, longer, sizeof a);
    dr_state_initial(&v, 8, b);
    cr_expect_neq(a[0], b[0]);
    v.name = "b.weight";
    dr_state_initial(&v, 7, b);
    cr_expect_neq(a[0], b[0]);
}

Test(state, zero_and_one) {
    struct dr_value v = weight("x", 5, 1);
    float x[5];
    v.init.kind = DR_INIT_ONE;
    dr_state_initial(&v, 1, x);
    for (int i = 0; i < 5; i++)
        cr_expect_eq(x[i], 1.0f);
    v.init.kind = DR_INIT_ZERO;
    dr_state_initial(&v, 1, x);
    for (int i = 0; i < 5; i++)
        cr_expect_eq(x[i], 0.0f);
}

Test(state, a_changed_frozen_state_is_found) {
    struct dr_arena *arena = dr_arena_create();
    struct dr_graph *g = dr_graph_create(arena, dr_diag_create(arena), "g");
    for (int i = 0; i < 3; i++)
        dr_graph_value(g, dr_printf(arena, "w%d", i), DR_STATE, DR_F32, DR_SHAPE(4),
                       (struct dr_mark){0});
    g->value.at[1].frozen = true;
    const struct dr_plan p = {.arena = arena, .g = g};
    const uint64_t before[] = {1, 2, 3}, trained[] = {9, 2, 8}, broken[] = {1, 7, 3};
    cr_expect_eq(dr_state_frozen_changed(&p, before, before), DR_NONE);
    cr_expect_eq(dr_state_frozen_changed(&p, before, trained), DR_NONE);
    cr_expect_eq(dr_state_frozen_changed(&p, before, broken), 1u);
    dr_arena_destroy(arena);
}
