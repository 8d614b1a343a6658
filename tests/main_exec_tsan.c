/* For ThreadSanitizer, which cannot start Criterion's workers: a small training graph on several
 * streams, depths and delays; the bits must be the interpreter's and there must be no data race. */
#include "tests/fake_exec.h"

#include <stdio.h>

int main(void) {
    static const enum dr_policy policies[] = {DR_POLICY_SEQUENTIAL, DR_POLICY_STAGE,
                                              DR_POLICY_MATCHING, DR_POLICY_LIST};
    const int64_t steps = 9;
    struct dr_graph *g = fake_training_graph();
    if (!g)
        return 1;
    const uint64_t want = fake_digest_interpreted(g, steps);
    uint32_t *delay = DR_NEW_N(g->arena, uint32_t, g->node.n);
    int wrong = 0, runs = 0;
    for (int round = 0; round < 24; round++) {
        for (uint32_t v = 0; v < g->node.n; v++)
            delay[v] = (v * 7 + (uint32_t)round * 5) % 11 ? 0 : 300;
        const struct dr_plan *p =
            fake_plan(g, policies[round % 4], round % 5 + 1, round % 3 ? round % 3 : DR_AUTO);
        if (!p) {
            fprintf(stderr, "%s\n", fake_text(g));
            return 1;
        }
        runs++;
        if (fake_digest_planned(p, steps, round % 2 ? delay : NULL) != want) {
            fprintf(stderr, "round %d: other bits\n", round);
            wrong++;
        }
    }
    printf("%d runs, %d wrong\n", runs, wrong);
    fake_free(g);
    return wrong ? 1 : 0;
}
