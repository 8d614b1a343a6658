/* The CPU executor on fake graphs: every schedule must give the interpreter's bits; a missing wait
 * must not; slots, records and checks. */
#include "tests/fake_exec.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const enum dr_policy policies[] = {DR_POLICY_SEQUENTIAL, DR_POLICY_STAGE, DR_POLICY_MATCHING,
                                          DR_POLICY_LIST};

Test(exec, same_bits_for_every_schedule) {
    struct dr_graph *g = fake_training_graph();
    cr_assert(g);
    static const int32_t depths[] = {0, 1, 2, 3, DR_AUTO}, streams[] = {1, 2, 5};
    static const int64_t steps[] = {1, 2, 3, 4, 5, 7, 13}; /* every remainder of U = 1, 2, 4 */
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        const uint64_t want = fake_digest_interpreted(g, steps[s]);
        for (int p = 0; p < 4; p++)
            for (int d = 0; d < 5; d++)
                for (int n = 0; n < 3; n++) {
                    const struct dr_plan *plan = fake_plan(g, policies[p], streams[n], depths[d]);
                    cr_assert(plan, "%s", fake_text(g));
                    cr_expect_eq(fake_digest_planned(plan, steps[s], NULL), want,
                                 "policy %d, pipeline %d, streams %d, %lld steps", p, depths[d],
                                 streams[n], (long long)steps[s]);
                }
    }
    fake_free(g);
}

Test(exec, same_bits_under_delays) {
    struct dr_graph *g = fake_training_graph();
    const int64_t steps = 5;
    const uint64_t want = fake_digest_interpreted(g, steps);
    uint32_t *delay = DR_NEW_N(g->arena, uint32_t, g->node.n);
    for (uint32_t seed = 1; seed <= 6; seed++) {
        uint32_t x = seed * 2654435761u;
        for (uint32_t v = 0; v < g->node.n; v++) {
            x = x * 1664525u + 1013904223u;
            delay[v] = x >> 29 ? 0 : 1500; /* one node in eight */
        }
        const struct dr_plan *p = fake_plan(g, policies[seed % 4], 4, DR_AUTO);
        cr_expect_eq(fake_digest_planned(p, steps, delay), want, "seed %u", seed);
    }
    fake_free(g);
}

/* The same plan without one wait. */
static struct dr_plan *without_wait(const struct dr_plan *p, uint32_t gone, struct dr_arena *a) {
    struct dr_plan *q = DR_NEW(a, struct dr_plan);
    *q = *p;
    q->wait.at = DR_NEW_N(a, struct dr_wait, p->wait.n);
    q->wait.n = 0;
    q->wait_first = DR_NEW_N(a, uint32_t, p->n_nodes + 1);
    for (uint32_t v = 0; v < p->n_nodes; v++) {
        q->wait_first[v] = q->wait.n;
        for (uint32_t w = p->wait_first[v]; w < p->wait_first[v + 1]; w++)
            if (w != gone)
                q->wait.at[q->wait.n++] = p->wait.at[w];
    }
    q->wait_first[p->n_nodes] = q->wait.n;
    return q;
}

Test(exec, a_missing_wait_changes_the_bits) {
    struct dr_graph *g = fake_training_graph();
    const int64_t steps = 4;
    const uint64_t want = fake_digest_interpreted(g, steps);
    const struct dr_plan *p = fake_plan(g, DR_POLICY_MATCHING, 6, DR_AUTO);
    uint32_t tried = 0, changed = 0;
    for (uint32_t w = 0; w < p->wait.n && tried < 6; w++) {
        if (p->wait.at[w].why != DR_WAIT_DATA || p->wait.at[w].slots)
            continue;
        uint32_t *delay = DR_NEW_N(g->arena, uint32_t, g->node.n);
        delay[p->wait.at[w].from] = 20000;
        tried++;
        cr_expect_eq(fake_digest_planned(p, steps, delay), want);
        changed += fake_digest_planned(without_wait(p, w, g->arena), steps, delay) != want;
    }
    cr_expect_gt(tried, 0u);
    cr_expect_eq(changed, tried, "%u of %u missing waits were seen", changed, tried);
    fake_free(g);
}

Test(exec, slots_are_released_and_records_done) {
    struct dr_graph *g = fake_training_graph();
    const struct dr_plan *p = fake_plan(g, DR_POLICY_STAGE, DR_AUTO, DR_AUTO);
    struct fake_exec e;
    fake_exec_open(&e, p, 7, NULL);
    fake_exec_run(&e, 0, 3); /* drained, then refilled */
    for (uint64_t s = 0; s < 7; s++) {
        cr_expect_eq(atomic_load(&e.ring.released[s]), s < 3 ? s + 1 : 0);
        cr_expect_eq(atomic_load(&e.readback.done[s]), s < 3 ? s + 1 : 0);
    }
    fake_exec_run(&e, 3, 7);
    for (uint64_t s = 0; s < 7; s++) {
        cr_expect_eq(atomic_load(&e.ring.released[s]), s + 1);
        cr_expect_eq(atomic_load(&e.readback.done[s]), s + 1);
    }
    cr_expect_eq(atomic_load(&e.progressed), 14u); /* one slot and one record a step */
    cr_expect_eq(fake_exec_digest(&e), fake_digest_interpreted(g, 7));
    fake_exec_close(&e);
    fake_free(g);
}

Test(exec, a_checked_step_is_a_step) {
    struct dr_graph *g = fake_training_graph();
    const struct dr_plan *p = fake_plan(g, DR_POLICY_STAGE, DR_AUTO, DR_AUTO);
    struct fake_exec e;
    fake_exec_open(&e, p, 5, NULL);
    for (int64_t s = 0; s < 5; s++) {
        uint32_t node = 0;
        cr_expect_eq(dr_exec_cpu.step_checked(e.exec, s, &node).code, DR_OK);
        cr_expect_eq(node, DR_NONE);
    }
    cr_expect_eq(fake_exec_digest(&e), fake_digest_interpreted(g, 5));
    fake_exec_close(&e);
    fake_free(g);
}

Test(exec, a_checked_step_names_the_first_bad_node) {
    struct dr_graph *g = fake_training_graph();
    const struct dr_plan *p = fake_plan(g, DR_POLICY_STAGE, DR_AUTO, DR_AUTO);
    struct fake_exec e;
    uint32_t node = DR_NONE;
    fake_exec_open(&e, p, 2, NULL);
    fake_exec_input(&e, 1, 0)[5] = NAN;
    dr_exec_cpu.step_checked(e.exec, 0, &node);
    cr_expect_eq(node, DR_NONE);
    dr_exec_cpu.step_checked(e.exec, 1, &node);
    cr_expect_eq(node, fake_node(g, "data.x"));
    fake_exec_close(&e);

    fake_exec_open(&e, p, 2, NULL);
    const uint32_t w = fake_value(g, "net.n2.weight");
    *(float *)(void *)(e.slab.base + p->buffer[w].offset) = INFINITY;
    dr_exec_cpu.step_checked(e.exec, 0, &node);
    cr_assert_neq(node, DR_NONE);
    cr_expect_str_eq(g->node.at[node].name, "net.n2");
    fake_exec_close(&e);
    fake_free(g);
}

Test(exec, ceilings_are_generous) {
    void *device;
    struct dr_device_info info;
    cr_assert_eq(dr_exec_cpu.open(&device, "cpu", 3, &info).code, DR_OK);
    cr_expect_eq(info.threads, 3u);
    cr_expect_str_eq(info.name, "cpu: 3 threads");
    cr_expect_not(info.cuda || info.copies_ahead);
    cr_expect_gt(info.flops_per_s, 1e10);
    cr_expect_gt(info.bytes_per_s, 1e10);
    cr_expect_gt(info.memory_bytes, (uint64_t)1 << 28);
    dr_exec_cpu.close(device);
}
