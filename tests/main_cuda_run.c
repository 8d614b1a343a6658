/* Whole runs on a GPU: the CUDA executor under every schedule, planted races, learning rates and
 * draws inside a captured graph, the input ring under load, captures beside other threads, losses
 * that are not finite, memory, devices, half precision.
 *
 *     main_cuda_run [GROUP ...]        all groups, or those that are named
 *
 * Exits 77 where there is no CUDA device. DR_CUDA_RUN_DRY=1 runs on the CPU executor what makes
 * sense there, so that the harness itself is known to work. Linked with --wrap of dr_dataset_fill
 * (loaders that sleep, batches of known content) and of cudaGraphLaunch (replays are counted). */
#include "tests/cuda_run.h"

#include "augment/column.h"
#include "augment/npy.h"
#include "scheduler/cli.h"
#include "tests/fake_cli.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef DR_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

bool cuda;
struct dr_arena *arena;
int64_t replays;
void (*on_filled)(const struct dr_ring *ring, uint64_t step, unsigned char *slot);

/* ---- hooks: the linker puts these in front of the real ones ---- */

bool __real_dr_dataset_fill(struct dr_dataset *s, const struct dr_column_want *want, uint32_t n,
                            const struct dr_ring *ring, uint64_t seed, uint64_t step,
                            unsigned char *slot, char *why, size_t why_n);
bool __wrap_dr_dataset_fill(struct dr_dataset *s, const struct dr_column_want *want, uint32_t n,
                            const struct dr_ring *ring, uint64_t seed, uint64_t step,
                            unsigned char *slot, char *why, size_t why_n);
bool __wrap_dr_dataset_fill(struct dr_dataset *s, const struct dr_column_want *want, uint32_t n,
                            const struct dr_ring *ring, uint64_t seed, uint64_t step,
                            unsigned char *slot, char *why, size_t why_n) {
    const bool good = __real_dr_dataset_fill(s, want, n, ring, seed, step, slot, why, why_n);
    if (good && on_filled)
        on_filled(ring, step, slot);
    return good;
}

#ifdef DR_WITH_CUDA
cudaError_t __real_cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
    replays++;
    return __real_cudaGraphLaunch(exec, s);
}
#endif

/* ---- helpers ---- */

void say(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fputs("  ", stdout);
    vprintf(fmt, ap);
    putchar('\n');
    fflush(stdout);
    va_end(ap);
}

void sleep_us(long us) {
    const struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

uint32_t scrambled(uint64_t x) {
    return (uint32_t)(dr_hash(&x, sizeof x) >> 32);
}

struct cli_run self_run(const char *words) {
    char path[PATH_MAX] = "";
    DR_ASSERT(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    return cli_run(path, words);
}

/* ---- same bits ---- */

static int64_t whole_blocks(const struct dr_plan *p, int64_t steps) {
    int64_t n = 0;
    for (int64_t b = -DR_MAX_STAGE; b <= steps; b++)
        n += dr_trace_whole(p, b, 0, steps);
    return n;
}

/* Runs a plan for each of `n` step counts in one lane and compares with the tapes in `want`. */
static const char *compare_runs(struct runs *r, const struct dr_plan *p, const uint32_t *delay_us,
                                const int64_t *steps, uint32_t n, const struct runs_tape *want) {
    struct runs_lane l;
    const char *wrong = NULL;
    if (!runs_lane_open(&l, r, p, delay_us))
        wrong = dr_printf(arena, "%s", runs_why(r));
    else if (cuda && runs_lane_note(&l)[0])
        wrong = dr_printf(arena, "%s", runs_lane_note(&l));
    for (uint32_t i = 0; i < n && !wrong; i++) {
        struct runs_tape got = {0};
        const int64_t before = replays, blocks = p->graph ? whole_blocks(p, steps[i]) : 0;
        if (!runs_lane_run(&l, steps[i], &got))
            wrong = dr_printf(arena, "%s", runs_why(r));
        else
            wrong = runs_difference(r, arena, &got, &want[i]);
        if (!wrong && cuda && replays - before != blocks)
            wrong = dr_printf(arena, "%lld replays of %lld whole blocks",
                              (long long)(replays - before), (long long)blocks);
        if (wrong)
            wrong = dr_printf(arena, "%lld steps: %s", (long long)steps[i], wrong);
        runs_tape_free(&got);
    }
    runs_lane_close(&l);
    return wrong;
}

/* Step counts that leave every remainder of U = 1, 2, 4, 8, after several whole blocks. */
enum { COUNTS = 8 };
static const int64_t counts[COUNTS] = {17, 18, 19, 20, 21, 22, 23, 24};

/* One stream, no pipeline, no graph. */
static const char *reference(struct runs *r, struct runs_tape *want) {
    const struct dr_plan *p = runs_plan(r, arena, runs_wish(DR_POLICY_SEQUENTIAL, 1, 0, false));
    for (int i = 0; i < COUNTS; i++)
        if (!p || !runs_once(r, p, NULL, counts[i], &want[i]))
            WRONG("sequential run: %s", runs_why(r));
    return NULL;
}

static const char *every_schedule(struct runs *r, const struct runs_tape *want, uint32_t *runs) {
    static const enum dr_policy policies[] = {DR_POLICY_SEQUENTIAL, DR_POLICY_STAGE,
                                              DR_POLICY_MATCHING, DR_POLICY_LIST};
    for (int p = 0; p < 4; p++)
        for (int32_t depth = 0; depth <= 3; depth++) {
            uint32_t seen = 0; /* stream counts that have come up, as bits */
            for (int32_t streams = 1; streams <= 8; streams++)
                for (int graph = cuda ? 1 : 0; graph >= 0; graph--) {
                    struct dr_arena *a = dr_arena_create();
                    const struct dr_plan_wish w =
                        runs_wish(policies[p], streams, depth, graph == 1);
                    const struct dr_plan *plan = runs_plan(r, a, w);
                    const uint32_t bit = plan ? 1u << (2 * plan->n_streams + (uint32_t)graph) : 0;
                    const char *wrong = plan ? NULL : runs_why(r);
                    if (plan && !(seen & bit)) {
                        const uint32_t n = plan->unroll < COUNTS ? plan->unroll : COUNTS;
                        wrong = compare_runs(r, plan, NULL, counts, n, want);
                        *runs += n;
                    }
                    seen |= bit;
                    dr_arena_destroy(a);
                    if (wrong)
                        WRONG("%s: %s", runs_wish_text(arena, w), wrong);
                }
        }
    return NULL;
}

static const char *with_delays(struct runs *r, const struct runs_tape *want) {
    static const enum dr_policy policies[] = {DR_POLICY_STAGE, DR_POLICY_MATCHING, DR_POLICY_LIST};
    const uint32_t n = r->s->main.graph->node.n;
    for (uint64_t seed = 1; seed <= 9; seed++) {
        const struct dr_plan_wish w =
            runs_wish(policies[seed % 3], 6, (int32_t)(seed / 3), seed % 2 == 1);
        const struct dr_plan *p = runs_plan(r, arena, w);
        uint32_t *delay = DR_NEW_N(arena, uint32_t, n);
        for (uint32_t v = 0; v < n; v++) {
            const uint32_t x = scrambled(seed << 32 | v);
            delay[v] = x % 6 == 0 ? 50 + x / 6 % 450 : 0;
        }
        const char *wrong = p ? compare_runs(r, p, delay, counts, 1, want) : runs_why(r);
        if (wrong)
            WRONG("delays of seed %llu, %s: %s", (unsigned long long)seed, runs_wish_text(arena, w),
                  wrong);
    }
    return NULL;
}

static const char *bits_of(const char *yaml) {
    struct runs r;
    struct runs_tape want[COUNTS] = {0};
    uint32_t runs = 0;
    const char *wrong =
        runs_open(&r, yaml, DR_MODE_TRAIN, NULL) ? reference(&r, want) : runs_why(&r);
    wrong = wrong ? wrong : every_schedule(&r, want, &runs);
    wrong = wrong ? wrong : with_delays(&r, want);
    wrong = wrong ? dr_printf(arena, "%s: %s", r.s->model ? r.s->model->name : "?", wrong) : NULL;
    if (!wrong)
        say("%s: %u runs and 9 with delays equal the sequential one", r.s->model->name, runs);
    for (int i = 0; i < COUNTS; i++)
        runs_tape_free(&want[i]);
    runs_close(&r);
    return wrong;
}

static const char *bits(void) {
    const char *wrong = bits_of(runs_classifier);
    wrong = wrong ? wrong : bits_of(runs_segment);
    return wrong ? wrong : bits_of(runs_branches);
}

/* ---- planted races ---- */

struct planted {
    uint32_t removed, named, changed, failed;
};

/* A run without wait w: *changed: other bits came out; *failed: or it ended, as a run may whose
 * batch header was overwritten. */
static const char *without_wait(struct runs *r, const struct dr_plan *p, uint32_t w,
                                const struct runs_tape *want, bool *changed, bool *failed) {
    struct dr_arena *a = dr_arena_create();
    struct runs_tape got = {0};
    uint32_t *delay = DR_NEW_N(a, uint32_t, p->n_nodes);
    delay[p->wait.at[w].from] = cuda ? 2000 : 10000; /* us */
    const char *wrong = NULL;
    if (runs_once(r, runs_without_wait(p, w, a), delay, want->steps, &got))
        *changed = runs_difference(r, a, &got, want) != NULL;
    else if (!strncmp(runs_why(r), "internal: ", 10))
        *failed = true;
    else
        wrong = dr_printf(arena, "without wait %u: %s", w, runs_why(r));
    runs_tape_free(&got);
    dr_arena_destroy(a);
    return wrong;
}

/* Each wait removed in turn; what a run's order hides, a second run may show. */
static const char *without_each_wait(struct runs *r, const struct dr_plan *p,
                                     const struct runs_tape *want, struct planted *n) {
    for (uint32_t w = 0; w < p->wait.n; w++) {
        struct dr_arena *a = dr_arena_create();
        const struct dr_race race = dr_plan_prove(p, w, a);
        n->removed++;
        n->named += race.found && race.text && strstr(race.text, "race");
        dr_arena_destroy(a);
        bool changed = false, failed = false;
        for (int run = 0; run < 2 && !changed && !failed; run++) {
            const char *const wrong = without_wait(r, p, w, want, &changed, &failed);
            if (wrong)
                return wrong;
        }
        n->changed += changed, n->failed += failed;
    }
    return NULL;
}

static const char *planted_in(const char *yaml, struct dr_plan_wish wish) {
    struct runs r;
    struct runs_tape want = {0};
    struct planted n = {0};
    const struct dr_plan *p = NULL;
    const char *wrong = NULL;
    if (!runs_open(&r, yaml, DR_MODE_TRAIN, NULL) || !(p = runs_plan(&r, arena, wish)) ||
        !runs_once(&r, p, NULL, 12, &want))
        wrong = dr_printf(arena, "%s", runs_why(&r));
    else
        wrong = without_each_wait(&r, p, &want, &n);
    if (!wrong) {
        say("%s (%s): %u waits removed, the proof named %u races, %u changed the bits, %u more "
            "failed cleanly",
            r.s->model->name, runs_wish_text(arena, wish), n.removed, n.named, n.changed, n.failed);
        if (n.removed < 10)
            wrong = dr_printf(arena, "only %u waits", n.removed);
        else if (n.named < n.removed)
            wrong =
                dr_printf(arena, "the proof missed %u of %u races", n.removed - n.named, n.removed);
        else if (2 * (n.changed + n.failed) < n.removed)
            wrong = dr_printf(arena, "%u of %u removed waits were seen", n.changed + n.failed,
                              n.removed);
    }
    runs_tape_free(&want);
    runs_close(&r);
    return wrong;
}

static const char *planted(void) {
    const char *wrong = planted_in(runs_branches, runs_wish(DR_POLICY_MATCHING, 8, 2, true));
    return wrong ? wrong : planted_in(runs_segment, runs_wish(DR_POLICY_MATCHING, 6, 3, false));
}

/* ---- losses that are not finite ---- */

struct bad_run {
    enum dr_exit code;
    char text[256];
    int64_t steps;
    struct runs_tape left; /* its states */
};

static bool keep_states(struct runs *r, struct bad_run *b) {
    const struct dr_memory m = dr_session_memory(r->s);
    const struct dr_graph *g = r->s->main.graph;
    size_t bytes = 0;
    for (int fill = 0; fill < 2; fill++) {
        size_t at = 0;
        for (uint32_t i = 0; i < g->value.n; i++) {
            const struct dr_value *v = &g->value.at[i];
            if (v->kind != DR_STATE || v->cls == DR_HEALTH)
                continue;
            if (fill && !dr_session_check(
                            r->s, dr_state_download(&m, r->s->main.plan, i, b->left.states + at)))
                return false;
            at += (size_t)v->bytes;
        }
        if (!fill)
            b->left.states = calloc(1, (bytes = at) + 1);
    }
    b->left.record_bytes = bytes;
    return true;
}

/* Trains `steps` steps (0: all) of the quadrants model by the run loop itself. */
static bool train_quadrants(const char *folder, const char *const *sets, int64_t steps,
                            struct bad_run *b) {
    uint32_t n = 0;
    while (sets[n])
        n++;
    char *yaml = cli_file(folder, "q.yaml", cli_quadrants_yaml);
    struct runs r = {.s = dr_session_create()};
    struct dr_session *s = r.s;
    struct dr_results results;
    const bool ready = dr_session_load(s, yaml, sets, n) &&
                       dr_session_device(s, cuda ? "cuda" : "cpu", 2) &&
                       dr_session_data(s, DR_MODE_TRAIN) &&
                       dr_session_plan(s, DR_MODE_TRAIN, NULL, NULL) && dr_session_start(s, NULL);
    if (ready) {
        dr_run(s, steps, NULL, &results);
        b->steps = results.steps;
    }
    b->code = dr_session_exit(s);
    snprintf(b->text, sizeof b->text, "%s", runs_why(&r));
    const bool kept = ready && keep_states(&r, b);
    dr_session_destroy(s);
    free(yaml);
    return kept;
}

/* The step and the samples that a message names, without the node. */
static bool same_place(const char *x, const char *y) {
    const char *const sx = strstr(x, "samples"), *const sy = strstr(y, "samples");
    return sx && sy && !strcmp(sx, sy) && atoi(x + 5) == atoi(y + 5);
}

static const char *explode(const char *folder, const char *const *sets, const char *node) {
    struct bad_run bad = {0}, before = {0}, host = {0};
    const char *wrong = NULL;
    if (!train_quadrants(folder, sets, 0, &bad))
        wrong = dr_printf(arena, "%s", bad.text);
    else if (bad.code != DR_FAILED || !strstr(bad.text, "the loss is not finite") ||
             !strstr(bad.text, node) || strncmp(bad.text, "step ", 5))
        wrong = dr_printf(arena, "exit %d: %s", (int)bad.code, bad.text);
    else if (bad.steps > 0 && !train_quadrants(folder, sets, bad.steps, &before))
        wrong = dr_printf(arena, "%s", before.text);
    else if (bad.steps > 0 && before.code != DR_OK)
        wrong = dr_printf(arena, "the steps before it: %s", before.text);
    else if (bad.steps > 0 && memcmp(bad.left.states, before.left.states, bad.left.record_bytes))
        wrong = "M did not freeze at the last good step";
    if (!wrong) {
        const bool was = cuda;
        cuda = false;
        train_quadrants(folder, sets, 0, &host);
        cuda = was;
        say("%s", bad.text);
        if (strcmp(bad.text, host.text))
            say("on the CPU: %s", host.text);
        if (!same_place(bad.text, host.text) && strstr(node, "data"))
            wrong = "the CPU names another step or other samples";
    }
    runs_tape_free(&bad.left);
    runs_tape_free(&before.left);
    runs_tape_free(&host.left);
    return wrong;
}

static const char *not_finite_by_cli(const char *folder) {
    struct cli_run r = self_run(dr_printf(arena,
                                          "--cli --device %s --set train.optimizer.lr=1e6 --set "
                                          "train.optimizer.weight_decay=0.1 %s/q.yaml",
                                          cuda ? "cuda" : "cpu", folder));
    const char *wrong = r.code == 1 && strstr(r.err, "the loss is not finite")
                            ? NULL
                            : dr_printf(arena, "exit %d: %s", r.code, r.err);
    cli_run_free(&r);
    return wrong;
}

static const char *nonfinite(void) {
    enum { N = 84, BAD = 37 };
    static float image[N * 16];
    static const char
        *const rate[] = {"train.optimizer={op: sgd, lr: 1e6, weight_decay: 0.1}", NULL},
               *const off[] = {"train.optimizer={op: sgd, lr: 1e6, weight_decay: 0.1}",
                               "schedule={pipeline: off, graph: false}", NULL},
               *const data[] = {"inputs.image.dtype=f32", NULL};
    char *folder = cli_folder();
    cli_quadrants(folder, N);
    const char *wrong = explode(folder, rate, "'net.");
    wrong = wrong ? wrong : explode(folder, off, "'net.");
    wrong = wrong ? wrong : not_finite_by_cli(folder);
    for (int i = 0; i < N * 16; i++)
        image[i] = (float)(i % 7) / 7.0f;
    image[BAD * 16 + 3] = INFINITY;
    const int64_t dim[] = {N, 4, 4, 1};
    if (dr_npy_write(dr_printf(arena, "%s/images.npy", folder), "<f4", dim, 4, image, sizeof image))
        wrong = "no images";
    wrong = wrong ? wrong : explode(folder, data, "'data.image'");
    cli_folder_remove(folder);
    return wrong;
}

/* ---- memory ---- */

static const char *too_large(uint64_t memory_bytes, const char *batch) {
    struct dr_session *s = dr_session_create();
    struct runs r = {.s = s, .folder = cli_folder()};
    char *yaml = cli_file(r.folder, "m.yaml", runs_classifier);
    const char *const sets[] = {batch};
    const char *wrong = NULL;
    if (!dr_session_load(s, yaml, sets, 1) || !dr_session_device(s, cuda ? "cuda" : "cpu", 2))
        wrong = runs_why(&r);
    s->dev.memory_bytes = memory_bytes ? memory_bytes : s->dev.memory_bytes;
    if (!wrong && dr_session_plan(s, DR_MODE_TRAIN, NULL, NULL))
        wrong = "it was planned all the same";
    const char *text = dr_diag_text(s->diag);
    if (!wrong && (dr_session_exit(s) != DR_NO_DEVICE || !strstr(text, "largest batch that fits") ||
                   !strstr(text, "takes")))
        wrong = dr_printf(arena, "exit %d: %s", (int)dr_session_exit(s), text);
    if (!wrong)
        say("%.*s", (int)strcspn(text, "\n"), text);
    wrong = wrong ? dr_printf(arena, "%s", wrong) : NULL;
    dr_session_destroy(s);
    cli_folder_remove(r.folder);
    free(yaml);
    return wrong;
}

static const char *memory_in_json(const char *folder, const char *mode) {
    struct cli_run r = self_run(dr_printf(arena, "--cli --device %s --json %s %s/q.yaml",
                                          cuda ? "cuda" : "cpu", mode, folder));
    json_t *j = r.code == 0 ? json_loads(r.out, 0, NULL) : NULL;
    const json_t *plan = json_object_get(j, "plan");
    const double used = json_number_value(json_object_get(j, "memory_used_bytes")),
                 planned = json_number_value(json_object_get(plan, "planned_bytes")),
                 bound = json_number_value(json_object_get(plan, "lower_bound_bytes"));
    const char *wrong = NULL;
    if (!j)
        wrong = dr_printf(arena, "exit %d: %s", r.code, r.err);
    else if (!(used >= planned && planned >= bound && bound > 0))
        wrong = dr_printf(arena, "used %.0f, planned %.0f, bound %.0f bytes", used, planned, bound);
    else
        say("%s: planned %.2f MiB, in use %.2f MiB, bound %.2f MiB", *mode ? mode : "run",
            planned / 1048576, used / 1048576, bound / 1048576);
    json_decref(j);
    cli_run_free(&r);
    return wrong;
}

static const char *memory(void) {
    char *folder = cli_folder();
    cli_quadrants(folder, 84);
    char *yaml = cli_file(folder, "q.yaml", cli_quadrants_yaml);
    const char *wrong = too_large(1000000, "data.batch=64");
    wrong = wrong ? wrong : too_large(0, "data.batch=16000000");
    wrong = wrong ? wrong : memory_in_json(folder, "--bench --steps 20");
    wrong = wrong ? wrong : memory_in_json(folder, "");
    free(yaml);
    cli_folder_remove(folder);
    return wrong;
}

/* ---- devices ---- */

static const char *device_says(const char *device, int code, const char *says, const char *yaml) {
    struct cli_run r =
        self_run(dr_printf(arena, "--cli -q --device %s --set train.epochs=1 %s", device, yaml));
    const char *wrong = NULL;
    if (r.code != code || !strstr(r.err, says))
        wrong = dr_printf(arena, "%s: exit %d: %s", device, r.code, r.err);
    else if (*says)
        say("%s: %.*s", device, (int)strcspn(r.err, "\n"), r.err);
    cli_run_free(&r);
    return wrong;
}

static const char *devices(void) {
    char *folder = cli_folder();
    cli_quadrants(folder, 84);
    char *yaml = cli_file(folder, "q.yaml", cli_quadrants_yaml);
    const char *wrong = device_says("cpu", 0, "", yaml);
    wrong =
        wrong ? wrong : device_says("cuda:99", 3, cuda ? "'cuda:99'" : "use --device cpu", yaml);
    if (!wrong && cuda) {
        const char *const hidden = getenv("CUDA_VISIBLE_DEVICES");
        char *const old = hidden ? strdup(hidden) : NULL;
        wrong = device_says("cuda", 0, "", yaml);
        wrong = wrong ? wrong : device_says("cuda:0", 0, "", yaml);
        setenv("CUDA_VISIBLE_DEVICES", "", 1);
        wrong = wrong ? wrong : device_says("cuda", 3, "no CUDA device", yaml);
        wrong = wrong ? wrong : device_says("cpu", 0, "", yaml);
        if (old)
            setenv("CUDA_VISIBLE_DEVICES", old, 1);
        else
            unsetenv("CUDA_VISIBLE_DEVICES");
        free(old);
    } else if (!wrong) {
        wrong = device_says("cuda", 3, "use --device cpu", yaml);
    }
    free(yaml);
    cli_folder_remove(folder);
    return wrong;
}

/* ---- main ---- */

static const struct group {
    const char *name;
    const char *(*run)(void);
} groups[] = {
    {"devices", devices},
    {"STR-02", rates_follow_steps},
    {"STR-01", draws_differ},
    {"STR-05", branches_are_joined},
    {"STR-07", captures_stand_alone},
    {"nonfinite", nonfinite},
    {"memory", memory},
    {"files", files_of_runs},
    {"half", half_runs},
    {"tune", tuned_runs},
    {"STR-04", batches_arrive},
    {"long", long_runs},
    {"planted", planted},
    {"bits", bits},
};
enum { GROUPS = sizeof groups / sizeof *groups };

static bool run_group(const struct group *g) {
    const double start = dr_now_s();
    arena = dr_arena_create();
    printf("%s\n", g->name);
    fflush(stdout);
    on_filled = NULL;
    const char *wrong = g->run();
    printf("%s: %s (%.1f s)\n", g->name, wrong ? wrong : "ok", dr_now_s() - start);
    fflush(stdout);
    dr_arena_destroy(arena);
    return !wrong;
}

static bool find_device(char *why, size_t n) {
#ifdef DR_WITH_CUDA
    struct dr_device_info info;
    void *device = NULL;
    const struct dr_status s = dr_exec_cuda.open(&device, "cuda", 2, &info);
    snprintf(why, n, "%s", s.code == DR_OK ? info.name : s.text);
    if (s.code == DR_OK)
        dr_exec_cuda.close(device);
    return s.code == DR_OK;
#else
    snprintf(why, n, "built without CUDA");
    return false;
#endif
}

static int cold(void) {
    arena = dr_arena_create();
    const char *wrong = cold_captures();
    if (wrong)
        puts(wrong);
    dr_arena_destroy(arena);
    return wrong != NULL;
}

int main(int argc, char **argv) {
    char why[300];
    int failed = 0, run = 0;
    if (argc > 1 && !strcmp(argv[1], "--cli")) {
        argv[1] = argv[0];
        return dr_cli_main(argc - 1, argv + 1);
    }
    cuda = !getenv("DR_CUDA_RUN_DRY");
    runs_on(cuda ? "cuda" : "cpu");
    if (argc > 1 && !strcmp(argv[1], "--cold"))
        return cold();
    if (cuda && !find_device(why, sizeof why)) {
        printf("SKIPPED: no CUDA device (%s)\n", why);
        return 77;
    }
    printf("on %s\n", cuda ? why : "the CPU: a dry run");
    for (int k = 1; k < argc; k++) {
        int i = 0;
        while (i < GROUPS && strcmp(argv[k], groups[i].name))
            i++;
        if (i == GROUPS) {
            printf("no group is called '%s'\n", argv[k]);
            return 2;
        }
    }
    for (int i = 0; i < GROUPS; i++) {
        bool wanted = argc < 2;
        for (int k = 1; k < argc; k++)
            wanted |= !strcmp(argv[k], groups[i].name);
        run += wanted;
        failed += wanted && !run_group(&groups[i]);
    }
    printf("%d groups, %d failed\n", run, failed);
    return failed > 0;
}
