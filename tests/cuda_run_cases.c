/* Cases that once went wrong elsewhere: draws and rates frozen in a captured graph, staging buffers
 * refilled too early, branches that nobody joins, captures that another thread disturbs; and long
 * runs, which must not grow. */
#include "tests/cuda_run.h"

#include "ops/table.h"
#include "tests/fake_cli.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#ifdef DR_WITH_CUDA
#include "kernels/cuda/stream.h"
#include <cuda_runtime_api.h>
#endif

static struct dr_status upload(const struct dr_memory *m, const struct dr_plan *p, uint32_t value,
                               float (*f)(int64_t i)) {
    const int64_t n = p->g->value.at[value].bytes / (int64_t)sizeof(float);
    float *x = DR_NEW_N(arena, float, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = f(i);
    return dr_state_upload(m, p, value, x);
}

/* A lane from an open model; NULL after a failure. */
static const struct dr_plan *open_lane(struct runs_lane *l, struct runs *r,
                                       struct dr_plan_wish wish) {
    const struct dr_plan *p = runs_plan(r, arena, wish);
    if (!p)
        return NULL;
    if (runs_lane_open(l, r, p, NULL))
        return p;
    runs_lane_close(l);
    return NULL;
}

/* ---- STR-01 ---- */

static const char flips_yaml[] =
    "dagrun: 1\n"
    "model: flips\n"
    "inputs: {image: {shape: [2, 2, 1], dtype: f32}, label: {shape: [], dtype: u8}}\n"
    "data:\n"
    "  batch: 64\n"
    "  train: {image: {synthetic: zeros, count: 128}, label: {synthetic: zeros, count: 128},"
    " shuffle: false}\n"
    "subgraphs:\n"
    "  augment: {nodes: {flip: {op: random_flip, in: image, p: 0.5}}}\n"
    "  net:\n"
    "    nodes:\n"
    "      flat: {op: flatten, in: augment.flip}\n"
    "      logits: {op: linear, features: 2, bias: false}\n"
    "train:\n"
    "  losses: {ce: {op: cross_entropy, in: [net.logits, label]}}\n"
    "  optimizer: {op: sgd, lr: 0}\n"
    "  steps: 20\n";

/* Every batch has the same 64 images, so that losses differ only by what was drawn. */
static void fill_pattern(const struct dr_ring *ring, uint64_t step, unsigned char *slot) {
    float *x = (float *)(void *)(slot + ring->offset[0]);
    (void)step;
    for (uint32_t i = 0; i < 64 * 4; i++)
        x[i] = (float)(scrambled(i) % 1000) / 1000.0f;
}

static float uneven(int64_t i) {
    return (float)(i * i % 7) * 0.3f - 0.5f;
}

static bool uneven_weights(struct runs *r, const struct dr_memory *m, const struct dr_plan *p) {
    return dr_session_check(r->s, upload(m, p, runs_value(r, "net.logits.weight"), uneven));
}

static bool draw(const char *seed, struct dr_plan_wish w, double sum[20]) {
    const char *const sets[] = {seed, NULL};
    struct runs r;
    struct runs_tape t = {0};
    const struct dr_plan *p;
    bool good = runs_open(&r, flips_yaml, DR_MODE_TRAIN, sets);
    r.states = uneven_weights;
    good = good && (p = runs_plan(&r, arena, w)) && runs_once(&r, p, NULL, 20, &t);
    for (int64_t s = 0; good && s < 20; s++) {
        const struct dr_graph *g = r.s->main.graph;
        sum[s] = ((const double *)runs_tape_value(&r, &t, s, g->term.at[0].partial))[0];
    }
    if (!good)
        say("%s", runs_why(&r));
    runs_tape_free(&t);
    runs_close(&r);
    return good;
}

const char *draws_differ(void) {
    double x[20], y[20];
    on_filled = fill_pattern;
    for (int32_t depth = 0; depth <= 3; depth++) {
        if (!draw("seed=1", runs_wish(DR_POLICY_STAGE, 4, depth, true), x))
            WRONG("pipeline %d, graph on: the run failed", depth);
        for (int i = 0; i < 20; i++)
            for (int k = 0; k < i; k++)
                if (x[i] == x[k])
                    WRONG("pipeline %d: steps %d and %d drew the same flips", depth, k, i);
        for (int graph = 0; graph <= 1; graph++) {
            if (!draw("seed=1", runs_wish(DR_POLICY_STAGE, 4, depth, graph == 1), y))
                WRONG("the second run failed");
            if (memcmp(x, y, sizeof x))
                WRONG("pipeline %d: seed 1 again, graph %s: other flips", depth,
                      graph ? "on" : "off");
        }
        if (!draw("seed=2", runs_wish(DR_POLICY_STAGE, 4, depth, true), y))
            WRONG("seed 2: the run failed");
        for (int i = 0; i < 20; i++)
            if (x[i] == y[i])
                WRONG("pipeline %d, step %d: seed 2 drew what seed 1 did", depth, i);
    }
    return NULL;
}

/* ---- STR-02 ---- */

/* Inputs are 0, so logits are the biases. Softmax of (-1000, w) is (0, 1) in every bit, and with
 * label 0 the gradient of w is exactly 1. */
/* The gradient of the second bias is 1 in every step: w falls by the rate of each. */
#define RATES(optimizer)                                                                           \
    "dagrun: 1\n"                                                                                  \
    "model: rates\n"                                                                               \
    "inputs: {x: {shape: [1], dtype: f32}, label: {shape: [], dtype: u8}}\n"                       \
    "data: {batch: 1, train: {x: {synthetic: zeros}, label: {synthetic: zeros}}}\n"                \
    "subgraphs: {net: {nodes: {logits: {op: linear, in: x, features: 2}}}}\n"                      \
    "train:\n"                                                                                     \
    "  losses: {ce: {op: cross_entropy, in: [net.logits, label]}}\n"                               \
    "  optimizer: " optimizer "\n"                                                                 \
    "  steps: 12\n"

struct rates_case {
    const char *yaml;
    struct {
        int64_t steps;
        double w;
    } want[12]; /* ends at steps 0 */
};
static const struct rates_case rates[] = {
    {RATES("{op: sgd, lr: {base: 0.1, schedule: step, every: 1, gamma: 0.1}}"),
     {{1, 0.9}, {2, 0.89}, {3, 0.889}}},
    {RATES("{op: sgd, lr: {base: 0.1, schedule: step, every: 4, gamma: 0.1}}"),
     {{1, 0.9}, {3, 0.7}, {4, 0.6}, {5, 0.59}, {8, 0.56}, {9, 0.559}, {12, 0.556}}},
    {RATES("{op: sgd, lr: 0.1}"), {{1, 0.9}, {6, 0.4}, {12, -0.2}}},
    /* rates of 4 steps of warm-up: 0.025, 0.05, 0.075, 0.1; the last is base */
    {RATES("{op: sgd, lr: {base: 0.1, warmup: 4}}"),
     {{1, 0.975}, {3, 0.85}, {4, 0.75}, {5, 0.65}, {8, 0.35}, {12, -0.05}}},
    /* then half a cosine over 8: 0.1, ..., 0.06 (the middle), ..., 0.02304 (the last) */
    {RATES("{op: sgd, lr: {base: 0.1, schedule: cosine, warmup: 4, end: 0.02}}"),
     {{1, 0.975}, {3, 0.85}, {4, 0.75}, {5, 0.65}, {8, 0.38945321}, {9, 0.32945321}, {12, 0.23}}},
    {RATES("{op: sgd, lr: {base: 0.1, schedule: step, warmup: 4, every: 3, gamma: 0.5}}"),
     {{1, 0.975}, {4, 0.75}, {5, 0.65}, {7, 0.45}, {8, 0.4}, {12, 0.25}}},
    /* of a constant gradient, a step is the rate; a correction that stands still drifts away */
    {RATES("{op: adam, lr: 0.1}"), {{1, 0.9}, {2, 0.8}, {3, 0.7}, {12, -0.2}}},
    {RATES("{op: adam, lr: {base: 0.1, schedule: step, every: 1, gamma: 0.1}}"),
     {{1, 0.9}, {2, 0.89}, {3, 0.889}}},
    {RATES("{op: adamw, lr: 0.1, weight_decay: 0.1}"),
     {{1, 0.89}, {2, 0.7811}, {3, 0.673289}, {12, -0.249766411}}},
};

static float bias_at_first(int64_t i) {
    return i ? 1.0f : -1000.0f;
}

static bool first_bias(struct runs *r, const struct dr_memory *m, const struct dr_plan *p) {
    return dr_session_check(r->s, upload(m, p, runs_value(r, "net.logits.bias"), bias_at_first));
}

/* w after some numbers of steps; the graph is replayed where a block is whole. */
static const char *rates_of(struct runs *r, const struct dr_plan *p, const struct rates_case *c) {
    for (int i = 0; c->want[i].steps; i++) {
        struct runs_tape t;
        if (!runs_once(r, p, NULL, c->want[i].steps, &t))
            WRONG("%s", runs_why(r));
        const double w = (double)runs_tape_state(r, &t, runs_value(r, "net.logits.bias"))[1];
        runs_tape_free(&t);
        if (!(fabs(w - c->want[i].w) <= 1e-6))
            WRONG("after %d steps w is %.7f, not %.7f", (int)c->want[i].steps, w, c->want[i].w);
    }
    return NULL;
}

static bool is_long(const struct rates_case *c) {
    for (int i = 0; c->want[i].steps; i++)
        if (c->want[i].steps == 12)
            return true;
    return false;
}

const char *rates_follow_steps(void) {
    for (size_t which = 0; which < sizeof rates / sizeof *rates; which++) {
        struct runs r;
        const char *wrong = NULL;
        if (!runs_open(&r, rates[which].yaml, DR_MODE_TRAIN, NULL))
            wrong = runs_why(&r);
        r.states = first_bias;
        for (int32_t depth = 0; depth <= 3 && !wrong; depth++)
            for (int graph = 0; graph <= 1 && !wrong; graph++) {
                const int64_t before = replays;
                const struct dr_plan *p =
                    runs_plan(&r, arena, runs_wish(DR_POLICY_STAGE, 4, depth, graph == 1));
                wrong = p ? rates_of(&r, p, &rates[which]) : runs_why(&r);
                if (!wrong && cuda && (replays > before) != (graph == 1) &&
                    (is_long(&rates[which]) || depth == 0))
                    wrong = "the graph was not replayed as it should";
                if (wrong)
                    wrong = dr_printf(arena, "case %d, pipeline %d, graph %s: %s", (int)which,
                                      depth, graph ? "on" : "off", wrong);
            }
        wrong = wrong ? dr_printf(arena, "%s", wrong) : NULL;
        runs_close(&r);
        if (wrong)
            return wrong;
    }
    return NULL;
}

/* ---- STR-04, and batches of known content for long runs ---- */

static const char sums_yaml[] =
    "dagrun: 1\n"
    "model: sums\n"
    "inputs: {image: {shape: [64, 64, 3], dtype: f32}}\n"
    "data: {batch: 8, infer: {image: {synthetic: zeros, count: 16000}}}\n"
    "subgraphs:\n"
    "  net:\n"
    "    nodes:\n"
    "      flat: {op: flatten, in: image}\n"
    "      sum: {op: linear, features: 1, bias: false}\n"
    "outputs: {sum: {in: net.sum}}\n";

static float one(int64_t i) {
    (void)i;
    return 1.0f;
}

static bool weights_of_one(struct runs *r, const struct dr_memory *m, const struct dr_plan *p) {
    return dr_session_check(r->s, upload(m, p, runs_value(r, "net.sum.weight"), one));
}

static long loader_sleep_us; /* at most, at random */

static void fill_with_step(const struct dr_ring *ring, uint64_t step, unsigned char *slot) {
    float *x = (float *)(void *)(slot + ring->offset[0]);
    if (loader_sleep_us)
        sleep_us((long)(scrambled(step) % (uint32_t)loader_sleep_us));
    for (size_t i = 0; i < (size_t)8 * 64 * 64 * 3; i++)
        x[i] = (float)step;
}

static void only_sleep(const struct dr_ring *ring, uint64_t step, unsigned char *slot) {
    (void)ring, (void)slot;
    sleep_us((long)(scrambled(step) % (uint32_t)loader_sleep_us));
}

struct sums {
    int64_t next;          /* record */
    int64_t bad;           /* the first step whose sum is wrong; -1 */
    double got;            /* there */
    uint64_t device, host; /* memory in use at step `look` */
    int64_t look;          /* -1: never */
    struct runs *r;
};

static uint64_t resident(void) {
    return dr_exec_cpu.memory_used(NULL);
}

static bool add_up(const struct dr_record *rec, void *ctx) {
    struct sums *s = ctx;
    const float *x = dr_record_value(rec, rec->plan->g->output.at[0]);
    double sum = 0;
    for (int i = 0; i < 8; i++)
        sum += (double)x[i];
    if (s->bad < 0 && (rec->step != s->next || sum != (double)rec->step * 98304)) {
        s->bad = rec->step;
        s->got = sum;
    }
    if (rec->step == s->look) {
        s->device = s->r->s->ops->memory_used(s->r->s->device);
        s->host = resident();
    }
    s->next++;
    return true;
}

static const char *sums_of(struct runs_lane *l, int64_t steps, struct sums *s) {
    s->next = 0;
    s->bad = -1;
    s->r = l->r;
    l->on_record = add_up;
    l->ctx = s;
    if (!runs_lane_run(l, steps, NULL))
        WRONG("%s", runs_why(l->r));
    if (s->bad >= 0)
        WRONG("step %lld: sum %.0f, not %.0f", (long long)s->bad, s->got, (double)s->bad * 98304);
    return NULL;
}

const char *batches_arrive(void) {
    struct runs r;
    struct runs_lane l;
    struct sums s = {.look = -1};
    const char *wrong = NULL;
    int repeats = 0;
    on_filled = fill_with_step;
    const bool open = runs_open(&r, sums_yaml, DR_MODE_INFER, NULL);
    r.states = weights_of_one;
    if (!open || !open_lane(&l, &r, runs_wish(DR_POLICY_STAGE, 4, 2, true))) {
        wrong = dr_printf(arena, "%s", runs_why(&r));
        runs_close(&r);
        return wrong;
    }
    const double start = dr_now_s();
    while (repeats < 100 && !wrong && dr_now_s() - start < 60) {
        wrong = sums_of(&l, 200, &s);
        repeats += !wrong;
    }
    say("fast loader: %d runs of 200 batches", repeats);
    loader_sleep_us = 5000;
    wrong = wrong ? wrong : sums_of(&l, 200, &s);
    loader_sleep_us = 0;
    runs_lane_close(&l);
    runs_close(&r);
    return wrong;
}

/* ---- STR-05 ---- */

static const char joins_yaml[] =
    "dagrun: 1\n"
    "model: joins\n"
    "inputs: {x: {shape: [8, 8, 4], dtype: f32}, label: {shape: [], dtype: u8}}\n"
    "data:\n"
    "  batch: 4\n"
    "  train: {x: {synthetic: normal, count: 40}, label: {synthetic: uniform, count: 40}}\n"
    "  test: {x: {synthetic: normal, count: 22}, label: {synthetic: uniform, count: 22}}\n"
    "subgraphs:\n"
    "  a: {nodes: {c: {op: conv2d, in: x, filters: 4, kernel: 3}, f: {op: flatten},"
    " y: {op: linear, features: 5}}}\n"
    "  b: {nodes: {c: {op: conv2d, in: x, filters: 8, kernel: 5}, f: {op: flatten},"
    " y: {op: linear, features: 5, in: f}}}\n"
    "  c: {frozen: true, weights: random, nodes: {c: {op: conv2d, in: x, filters: 4, kernel: 1}}}\n"
    "train:\n"
    "  losses: {ce: {op: cross_entropy, in: [a.y, label]}}\n"
    "  optimizer: {op: sgd, lr: 0.05}\n"
    "  steps: 30\n"
    "eval: {on: test, every: 10 steps, metrics: {other: {op: accuracy, in: [b.y, label]},"
    " own: {op: accuracy, in: [a.y, label]}}}\n";

struct seen {
    double number[32];
    uint32_t n;
};

static void on_evaluated(void *ctx, int64_t steps, const struct dr_tally *t) {
    struct seen *s = ctx;
    (void)steps;
    for (uint32_t i = 0; i < t->n_metrics && s->n < 32; i++)
        s->number[s->n++] = t->metric[i].mean;
}

static const char *joined_run(const char *const *sets, struct seen *seen) {
    const struct dr_watcher w = {.evaluated = on_evaluated, .ctx = seen};
    struct runs r;
    struct dr_results results;
    const char *wrong = NULL;
    if (!runs_open(&r, joins_yaml, DR_MODE_TRAIN, sets) || !dr_session_start(r.s, NULL) ||
        !dr_run(r.s, 0, &w, &results))
        wrong = dr_printf(arena, "%s", runs_why(&r));
    else if (r.s->lane.exec->note[0] || r.s->eval_lane.exec->note[0])
        wrong = dr_printf(arena, "%s%s", r.s->lane.exec->note, r.s->eval_lane.exec->note);
    else if (!strstr(dr_diag_text(r.s->diag), "'c.c' is dropped"))
        wrong = dr_printf(arena, "no warning names c.c: %s", dr_diag_text(r.s->diag));
    else
        seen->number[seen->n++] = results.train.total_last;
    runs_close(&r);
    return wrong;
}

/* Past the passes nothing is dropped: a branch that ends in the air, in a plan with streams. */
static const char *dead_end(void) {
    struct runs r;
    struct runs_tape got = {0}, want = {0};
    const char *wrong = NULL;
    if (!runs_open(&r, runs_branches, DR_MODE_TRAIN, NULL))
        wrong = runs_why(&r);
    struct dr_graph *g = r.s->main.graph;
    for (int i = 0; i < 2 && !wrong; i++) {
        const uint32_t in = runs_value(&r, i ? "net.m" : "frozen.b");
        const uint32_t v =
            dr_graph_emit(g, i ? "net.dead" : "frozen.dead", dr_op_find(dr_ops(), "tanh"), NULL,
                          &in, 1, DR_ROLE_FORWARD, (struct dr_mark){0});
        if (v == DR_NONE)
            wrong = "the graph takes no further node";
        else
            g->node.at[v].cls = i ? DR_UPDATED : DR_UPSTREAM;
    }
    const struct dr_plan *p = NULL, *sequential = NULL;
    if (!wrong) {
        p = runs_plan(&r, arena, runs_wish(DR_POLICY_MATCHING, 8, 2, true));
        sequential = runs_plan(&r, arena, runs_wish(DR_POLICY_SEQUENTIAL, 1, 0, false));
    }
    if (!wrong && (!p || !sequential || !runs_once(&r, p, NULL, 21, &got) ||
                   !runs_once(&r, sequential, NULL, 21, &want)))
        wrong = runs_why(&r);
    wrong = wrong ? dr_printf(arena, "%s", wrong) : runs_difference(&r, arena, &got, &want);
    runs_tape_free(&got);
    runs_tape_free(&want);
    runs_close(&r);
    return wrong;
}

const char *branches_are_joined(void) {
    static const char *const streams[] = {"schedule={policy: matching, streams: 3}", NULL};
    static const char *const plain[] = {
        "schedule={policy: sequential, streams: 1, pipeline: off, graph: false}", NULL};
    struct seen x = {0}, y = {0};
    const char *wrong = joined_run(streams, &x);
    wrong = wrong ? wrong : joined_run(plain, &y);
    if (wrong)
        return wrong;
    if (x.n != 7 || y.n != 7)
        WRONG("%u and %u numbers, not 3 evaluations of 2 metrics and a loss", x.n, y.n);
    for (uint32_t i = 0; i < x.n; i++)
        if (x.number[i] != y.number[i])
            WRONG("number %u: %.17g on three streams, %.17g on one", i, x.number[i], y.number[i]);
    return dead_end();
}

/* ---- STR-07 ---- */

static _Atomic bool pinning;
static _Atomic uint64_t pinned;

static void *pin(void *ctx) {
    struct dr_session *s = ctx;
    for (uint64_t i = 0; atomic_load(&pinning); i++) {
        void *p = s->ops->host_alloc(s->device, 4096 + scrambled(i) % (1 << 20));
        if (p)
            s->ops->host_free(s->device, p);
        atomic_fetch_add(&pinned, p != NULL);
    }
    return NULL;
}

/* `times` executors that capture while another thread pins memory: how many did. */
static const char *capture_beside(const char *yaml, int times, int *captured) {
    struct runs r;
    pthread_t thread;
    const struct dr_plan *p;
    const char *wrong = NULL;
    if (!runs_open(&r, yaml, DR_MODE_TRAIN, NULL) ||
        !(p = runs_plan(&r, arena, runs_wish(DR_POLICY_MATCHING, 6, 2, true)))) {
        wrong = dr_printf(arena, "%s", runs_why(&r));
        runs_close(&r);
        return wrong;
    }
    atomic_store(&pinning, true);
    if (pthread_create(&thread, NULL, pin, r.s))
        WRONG("no thread");
    for (int i = 0; i < times && !wrong; i++) {
        struct runs_lane l;
        if (!runs_lane_open(&l, &r, p, NULL))
            wrong = dr_printf(arena, "%s", runs_why(&r));
        else if (!runs_lane_note(&l)[0])
            ++*captured;
        else
            say("%s", runs_lane_note(&l));
        runs_lane_close(&l);
    }
    atomic_store(&pinning, false);
    pthread_join(thread, NULL);
    runs_close(&r);
    return wrong;
}

const char *cold_captures(void) {
    static const char *const models[] = {runs_classifier, runs_segment, runs_branches};
    int captured = 0;
    for (int i = 0; i < 3; i++) {
        const char *wrong = capture_beside(models[i], 1, &captured);
        if (wrong)
            return wrong;
    }
    if (captured < 3)
        WRONG("%d of 3 first captures", captured);
    return NULL;
}

static const struct dr_op *spoilt; /* the op whose launcher is spoilt */
static int spoil_by;               /* 0: a synchronisation; 1: an error */

static int spoilt_launcher(const struct dr_launch *l, struct dr_cuda *c) {
#ifdef DR_WITH_CUDA
    enum cudaStreamCaptureStatus status;
    if (spoil_by == 0)
        cudaStreamSynchronize(c->stream);
    else if (cudaStreamIsCapturing(c->stream, &status) != cudaSuccess ||
             status != cudaStreamCaptureStatusNone)
        return (int)cudaErrorNotSupported;
#endif
    return spoilt->cuda(l, c);
}

/* A capture that must fail: said once, the same bits without a graph, and the next one works. */
static const char *failing_capture(void) {
    struct runs r;
    struct runs_tape got = {0}, want = {0};
    struct runs_lane l;
    const struct dr_plan *p = NULL;
    const char *wrong = NULL;
    if (!runs_open(&r, runs_classifier, DR_MODE_TRAIN, NULL) ||
        !(p = runs_plan(&r, arena, runs_wish(DR_POLICY_STAGE, 4, 2, true))) ||
        !runs_once(&r, p, NULL, 21, &want))
        wrong = dr_printf(arena, "%s", runs_why(&r));
    struct dr_node *n = wrong ? NULL : &r.s->main.graph->node.at[0];
    while (n && strcmp(n->name, "net.p1"))
        n++;
    struct dr_op op = n ? *n->op : (struct dr_op){0};
    spoilt = n ? n->op : NULL;
    op.cuda = spoilt_launcher;
    for (spoil_by = 0; spoil_by < 2 && !wrong; spoil_by++) {
        const int64_t before = replays;
        n->op = &op;
        if (!runs_lane_open(&l, &r, p, NULL) || !runs_lane_run(&l, 21, &got))
            wrong = dr_printf(arena, "%s", runs_why(&r));
        else if (cuda && !strstr(runs_lane_note(&l), "'net.p1'"))
            wrong = dr_printf(arena, "the note is '%s'", runs_lane_note(&l));
        else if (replays != before)
            wrong = "a graph was replayed";
        else
            wrong = runs_difference(&r, arena, &got, &want);
        if (!wrong && spoil_by == 0 && cuda)
            say("note: %s", runs_lane_note(&l));
        runs_lane_close(&l);
        runs_tape_free(&got);
        n->op = spoilt;
        if (wrong || !runs_lane_open(&l, &r, p, NULL))
            wrong = wrong ? wrong : dr_printf(arena, "%s", runs_why(&r));
        else if (runs_lane_note(&l)[0])
            wrong = dr_printf(arena, "the next capture: %s", runs_lane_note(&l));
        runs_lane_close(&l);
    }
    runs_tape_free(&want);
    runs_close(&r);
    return wrong;
}

const char *captures_stand_alone(void) {
    int captured = 0;
    for (int i = 0; i < 3; i++) { /* a process that has not launched a kernel yet, three times */
        struct cli_run run = self_run("--cold");
        const char *out = dr_printf(arena, "%s%s", run.out, run.err);
        const int code = run.code;
        cli_run_free(&run);
        if (code)
            WRONG("a new process: exit %d: %s", code, out);
    }
    const char *wrong = capture_beside(runs_classifier, 100, &captured);
    say("%d of 100 captured, while %llu blocks of host memory were pinned; 9 of 9 cold", captured,
        (unsigned long long)atomic_load(&pinned));
    if (!wrong && captured < 100)
        WRONG("%d of 100 captured", captured);
    return wrong ? wrong : failing_capture();
}

/* ---- long runs ---- */

static bool look(const struct dr_record *rec, void *ctx) {
    struct sums *s = ctx;
    if (rec->step == s->look) {
        s->device = s->r->s->ops->memory_used(s->r->s->device);
        s->host = resident();
    }
    return true;
}

static const char *grown(const struct sums *s, const char *what) {
    const uint64_t device = s->r->s->ops->memory_used(s->r->s->device), host = resident();
    const double mib = 1048576.0;
    say("%s: device %.1f then %.1f MiB, host %.1f then %.1f MiB", what, (double)s->device / mib,
        (double)device / mib, (double)s->host / mib, (double)host / mib);
    if (fabs((double)device - (double)s->device) > mib && cuda)
        WRONG("%s: device memory has changed", what);
    if ((double)host - (double)s->host > mib)
        WRONG("%s: host memory has grown", what);
    return NULL;
}

const char *long_runs(void) {
    const int64_t steps = 2000;
    struct sums s = {.look = 500};
    const char *wrong = NULL;
    loader_sleep_us = 2000;
    for (int i = 0; i < 2 && !wrong; i++) {
        struct runs r;
        struct runs_lane l;
        const bool open =
            runs_open(&r, i ? runs_classifier : sums_yaml, i ? DR_MODE_TRAIN : DR_MODE_INFER, NULL);
        on_filled = i ? only_sleep : fill_with_step;
        r.states = i ? NULL : weights_of_one;
        s.r = &r;
        if (!open || !open_lane(&l, &r, runs_wish(DR_POLICY_STAGE, 4, 2, true))) {
            wrong = dr_printf(arena, "%s", runs_why(&r));
            runs_close(&r);
            break;
        }
        l.on_record = look;
        l.ctx = &s;
        if (!i)
            wrong = sums_of(&l, steps, &s);
        else if (!runs_lane_run(&l, steps, NULL))
            wrong = dr_printf(arena, "%s", runs_why(&r));
        wrong = wrong ? wrong : grown(&s, i ? "2000 training steps" : "2000 sums");
        runs_lane_close(&l);
        runs_close(&r);
    }
    loader_sleep_us = 0;
    return wrong;
}
