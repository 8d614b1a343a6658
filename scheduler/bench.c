/* --bench: the time of a step in the steady state.
 *
 * A block is what is launched and what a device reports at once, so times are taken between the
 * last records of blocks, and a step's time is its block's divided by the block's steps. */
#include "scheduler/cli.h"

#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Linear interpolation between order statistics. */
static double percentile(const double *sorted, int64_t n, double q) {
    const double at = q * (double)(n - 1);
    const int64_t i = (int64_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

static uint64_t peak_host_bytes(void) {
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}

/* warm and b->steps are whole blocks. */
static void summarise(struct dr_session *s, int64_t warm, struct dr_bench *b) {
    const double *at = s->lane.stamp_s;
    const int64_t unroll = s->main.plan->unroll, n = b->steps / unroll;
    double *d = malloc((size_t)n * sizeof *d);
    if (!d)
        return;
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = warm + i * unroll;
        d[i] = (at[first + unroll - 1] - at[first - 1]) / (double)unroll;
    }
    qsort(d, (size_t)n, sizeof *d, compare);
    b->median_s = percentile(d, n, 0.5);
    b->p5_s = percentile(d, n, 0.05);
    b->p95_s = percentile(d, n, 0.95);
    b->seconds = at[warm + b->steps - 1] - at[warm - 1];
    b->steps_per_s = b->seconds > 0 ? (double)b->steps / b->seconds : 0;
    b->images_per_s = b->steps_per_s * (double)s->main.graph->batch;
    free(d);
}

/* Whole blocks after the warm-up: in others the host launches node by node. */
static double host_us(const struct dr_session *s, int64_t warm, int64_t total) {
    const struct dr_plan *p = s->main.plan;
    double sum_s = 0;
    int64_t blocks = 0;
    for (int64_t b = warm / p->unroll + 1; b < (int64_t)s->lane.n_launches; b++)
        if (dr_trace_whole(p, b, 0, total)) {
            sum_s += s->lane.launch_s[b];
            blocks++;
        }
    return blocks ? sum_s * 1e6 / (double)(blocks * p->unroll) : (double)NAN;
}

bool dr_bench(struct dr_session *s, int64_t steps, struct dr_bench *b) {
    const int64_t unroll = s->main.plan->unroll;
    const int64_t warm = (10 + unroll - 1) / unroll * unroll + 2 * unroll;
    steps = (steps + unroll - 1) / unroll * unroll; /* whole blocks */
    const int64_t total = warm + steps;
    *b = (struct dr_bench){.steps = steps};
    if (s->main.graph->readback == DR_NONE)
        return dr_session_fail(s, DR_FAILED, "nothing is read back: no step can be timed");
    s->lane.stamp_s = calloc((size_t)total, sizeof *s->lane.stamp_s);
    if (!s->lane.stamp_s)
        return dr_session_fail(s, DR_NO_DEVICE, "out of host memory: time stamps");
    s->lane.n_stamps = (uint64_t)total;
    s->lane.n_launches = (uint64_t)(total / unroll) + 1;
    s->lane.launch_s = calloc((size_t)s->lane.n_launches, sizeof *s->lane.launch_s);
    if (!s->lane.launch_s)
        return dr_session_fail(s, DR_NO_DEVICE, "out of host memory: time stamps");
    int64_t done;
    if (!dr_session_check(s, dr_lane_feed(&s->lane, 0, (uint64_t)total)) ||
        !dr_session_check(s, dr_lane_run(&s->lane, 0, total, NULL, NULL, &done)))
        return false;
    if (done < total)
        return dr_session_fail(s, DR_INTERRUPTED, "interrupted after step %lld of %lld",
                               (long long)done, (long long)total);
    b->waited_s = dr_lane_waited_s(&s->lane);
    summarise(s, warm, b);
    b->host_us = host_us(s, warm, total);
    b->peak_host_bytes = peak_host_bytes();
    return true;
}
