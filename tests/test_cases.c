/* Cases from the field, end to end: a YAML file goes in, an exit code and a located message or a
 * number come out. What the parts do with the same cases is tested beside each part. */
#include "augment/npy.h"
#include "graph/base.h"
#include "scheduler/dagrun.h"
#include "tests/fake_cli.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static char *folder;
static void set_up(void) {
    folder = cli_folder();
}
static void tear_down(void) {
    cli_folder_remove(folder);
}
TestSuite(cases, .init = set_up, .fini = tear_down, .timeout = 120);

/* A model with these nodes from line 7 on; `norm` is [N, 8, 8, 3] of f32, and the nodes must end in
 * a value of rank 2. */
#define TOP                                                                                        \
    "dagrun: 1\n"                                                                                  \
    "inputs: {image: {shape: [8, 8, 3], dtype: u8}, label: {shape: [], dtype: u8}}\n"              \
    "data: {batch: 4, train: {image: {synthetic: uniform, count: 16}, label: {synthetic: "         \
    "uniform, "                                                                                    \
    "count: 16}}}\n"                                                                               \
    "subgraphs:\n"                                                                                 \
    "  net:\n"                                                                                     \
    "    nodes:\n"
#define NORM "      norm: {op: normalize, in: image}\n"
#define TAIL "      flat: {op: flatten}\n      logits: {op: linear, features: 10}\n"
#define TRAIN_WITH(optimizer)                                                                      \
    "train: {losses: {ce: {op: cross_entropy, in: [net.logits, label]}}, optimizer: {" optimizer   \
    "}, steps: 6}\n"
#define TRAIN TRAIN_WITH("op: sgd, lr: 0.1")
#define MODEL(nodes) TOP NORM nodes TAIL TRAIN

/* Runs `args` with the model's path at their end. */
static struct cli_run tool(const char *args, const char *yaml) {
    char line[4096], *path = cli_file(folder, "m.yaml", yaml);
    snprintf(line, sizeof line, "%s %s", args, path);
    free(path);
    return cli_run(DR_BINARY, line);
}

/* Exit 2, nothing on stdout, and each of the texts (up to a NULL) on stderr. */
static void refused(const char *yaml, ...) {
    struct cli_run r = tool("--check", yaml);
    cr_expect_eq(r.code, 2, "exit %d:\n%s\n%s", r.code, r.err, yaml);
    cr_expect_str_empty(r.out);
    va_list ap;
    va_start(ap, yaml);
    for (const char *says; (says = va_arg(ap, const char *)) != NULL;)
        cr_expect(strstr(r.err, says), "'%s' is not in:\n%s", says, r.err);
    va_end(ap);
    cli_run_free(&r);
}

static void accepted(const char *yaml, const char *warns) {
    struct cli_run r = tool("--check", yaml);
    cr_expect_eq(r.code, 0, "exit %d: %s\n%s", r.code, r.err, yaml);
    cr_expect(warns ? strstr(r.err, warns) != NULL : !*r.err, "%s", r.err);
    cli_run_free(&r);
}

/* What a run says of its losses and metrics, as one text. */
static char *numbers(const char *args, const char *yaml) {
    struct cli_run r = tool(args, yaml);
    cr_assert_eq(r.code, 0, "%s: %s", args, r.err);
    json_t *j = json_loads(r.out, 0, NULL);
    json_t *both = json_pack("{s:O, s:O}", "losses", json_object_get(j, "losses"), "metrics",
                             json_object_get(j, "metrics"));
    cr_assert(both && json_object_size(json_object_get(both, "losses")) > 0, "%s", r.out);
    char *text = json_dumps(both, JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    json_decref(both);
    json_decref(j);
    cli_run_free(&r);
    return text;
}

static void same_numbers(const char *const *args, size_t n, const char *yaml) {
    char *first = numbers(args[0], yaml);
    for (size_t i = 1; i < n; i++) {
        char *other = numbers(args[i], yaml);
        cr_expect_str_eq(other, first, "%s", args[i]);
        free(other);
    }
    free(first);
}

/* ---- convolution ---- */

Test(cases, CONV_05_impossible_geometry) {
    static const struct {
        const char *node, *says;
    } bad[] = {
        {"kernel: 9", "8:43: error: conv2d 'net.c': effective kernel 9 > padded input 8"},
        {"kernel: 4, dilation: 3", "8:43: error: conv2d 'net.c': effective kernel 10 > padded"},
        {"kernel: 3, stride: 0", "8:54: error: conv2d 'net.c': stride: '0' is out of range (1 to"},
        {"kernel: 3, dilation: 0", "error: conv2d 'net.c': dilation: '0' is out of range"},
        {"kernel: 3, groups: 0", "error: conv2d 'net.c': groups: '0' is out of range"},
        {"kernel: 3, groups: -1", "error: conv2d 'net.c': groups: '-1' is out of range"},
        {"kernel: 0", "8:43: error: conv2d 'net.c': kernel: '0' is out of range"},
        {"kernel: 3, padding: -1", "error: conv2d 'net.c': padding: '-1' is out of range"},
        {"kernel: 3, groups: 2", "8:54: error: conv2d 'net.c': 3 input channels are not divisible"},
        {"kernel: 3, padding: same, stride: 2", "8:55: error: conv2d 'net.c': padding 'same'"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        char yaml[2048];
        snprintf(yaml, sizeof yaml, TOP NORM "      c: {op: conv2d, filters: 4, %s}\n" TAIL TRAIN,
                 bad[i].node);
        refused(yaml, "m.yaml:8:", bad[i].says, NULL);
    }
    refused(MODEL("      c: {op: conv2d, filters: 0, kernel: 3}\n"),
            "m.yaml:8:32: error: conv2d 'net.c': filters: '0' is out of range", NULL);
    refused(MODEL("      p: {op: max_pool2d, kernel: 9}\n"),
            "m.yaml:8:35: error: max_pool2d 'net.p': kernel 9x9 > padded input 8x8",
            "note: its input 'net.norm' is [4, 8, 8, 3]", NULL);
    /* kernel 3 on input 1 with pads 1 + 1 */
    accepted(MODEL("      p: {op: max_pool2d, kernel: 8}\n"
                   "      c: {op: conv2d, filters: 4, kernel: 3, padding: 1}\n"),
             NULL);
}

Test(cases, CONV_11_padding_past_half_the_kernel) {
    refused(MODEL("      p: {op: max_pool2d, kernel: 2, padding: 2}\n"),
            "m.yaml:8:47: error: max_pool2d 'net.p': padding", "at most half the kernel 2x2", NULL);
}

/* (f): the same training twice, with 1 and 8 streams, and whatever else only schedules. */
Test(cases, CONV_13_same_bits_on_every_schedule) {
    static const char *const args[] = {
        "--json --set schedule.policy=sequential --set schedule.pipeline=off",
        "--json",
        "--json",
        "--json --threads 1",
        "--json --threads 3",
        "--json --set schedule.policy=matching --set schedule.streams=8",
        "--json --set schedule.policy=matching --set schedule.streams=1",
        "--json --set schedule.policy=list --set schedule.streams=8",
        "--json --set schedule.policy=stage --set schedule.pipeline=7",
    };
    cli_quadrants(folder, 84);
    same_numbers(args, COUNT(args), cli_quadrants_yaml);
}

/* ---- frozen ---- */

/* One channel, a batch of the two 1x1 images [1, 3]. */
static const char norm_yaml[] =
    "dagrun: 1\n"
    "inputs: {x: {shape: [1, 1, 1], dtype: f32}, label: {shape: [], dtype: u8}}\n"
    "data: {batch: 2, train: {x: {npy: x.npy}, label: {npy: y.npy}}, test: {x: {npy: x.npy}, "
    "label: {npy: y.npy}}}\n"
    "subgraphs:\n"
    "  bn: {%s, nodes: {n: {op: batch_norm, in: x}}}\n"
    "  net: {nodes: {flat: {op: flatten, in: bn.n}, logits: {op: linear, features: 2}}}\n"
    "train: {losses: {ce: {op: cross_entropy, in: [net.logits, label]}, moved: {op: mse, in: "
    "[bn.n, "
    "x]}}, optimizer: {op: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.5}, steps: %d}\n"
    "eval: {on: test, every: 1 steps, metrics: {acc: {op: accuracy, in: [net.logits, label]}}}\n";

struct norm {
    float weight, bias, mean, var, logits[2];
    double moved; /* the mean square of the norm's output less its input, in the last step */
};
static struct norm train_norm(const char *subgraph, int steps) {
    const float x[] = {1, 3};
    const unsigned char y[] = {0, 1};
    char text[2048], why[512] = "", file[600];
    snprintf(file, sizeof file, "%s/x.npy", folder);
    cr_assert_eq(dr_npy_write(file, "<f4", (int64_t[]){2, 1, 1, 1}, 4, x, sizeof x), 0);
    snprintf(file, sizeof file, "%s/y.npy", folder);
    cr_assert_eq(dr_npy_write(file, "|u1", (int64_t[]){2}, 1, y, sizeof y), 0);
    snprintf(text, sizeof text, norm_yaml, subgraph, steps);
    char *path = cli_file(folder, "m.yaml", text);
    struct dagrun *d = dagrun_open(path, NULL, why, sizeof why);
    cr_assert_not_null(d, "%s", why);
    cr_assert_eq(dagrun_run(d, why, sizeof why), 0, "%s", why);
    struct norm n;
    cr_assert_eq(dagrun_weight(d, "bn.n.weight", &n.weight, 1), 1);
    cr_assert_eq(dagrun_weight(d, "bn.n.bias", &n.bias, 1), 1);
    cr_assert_eq(dagrun_weight(d, "bn.n.running_mean", &n.mean, 1), 1);
    cr_assert_eq(dagrun_weight(d, "bn.n.running_var", &n.var, 1), 1);
    cr_assert_eq(dagrun_weight(d, "net.logits.weight", n.logits, 2), 2);
    n.moved = dagrun_loss(d, "moved");
    dagrun_close(d);
    free(path);
    return n;
}

/* Through evaluations between the steps, too. */
Test(cases, FRZ_01_statistics_of_a_frozen_norm) {
    const struct norm frozen = train_norm("frozen: true, weights: random", 5);
    cr_expect(frozen.mean == 0 && frozen.var == 1, "%g %g", (double)frozen.mean,
              (double)frozen.var);
    cr_expect(frozen.weight == 1 && frozen.bias == 0);
    /* [0.999995, 2.999985] by the statistics 0 and 1; [-0.999995, 0.999995] by the batch's */
    cr_expect(frozen.moved < 1e-9, "%g", frozen.moved);
    const struct norm trained = train_norm("frozen: false", 1);
    cr_expect_float_eq(trained.moved, 4.0, 1e-4);
    cr_expect_float_eq((double)trained.mean, 0.2, 1e-7);
    cr_expect_float_eq((double)trained.var, 1.1, 1e-6);
}

Test(cases, FRZ_03_decay_and_momentum_leave_frozen_weights) {
    const struct norm one = train_norm("frozen: true, weights: random", 1);
    const struct norm ten = train_norm("frozen: true, weights: random", 10);
    cr_expect(one.weight == 1 && ten.weight == 1, "decay would give 0.95 after one step");
    cr_expect(one.logits[0] != ten.logits[0] && one.logits[1] != ten.logits[1]);
    const struct norm trained = train_norm("frozen: false", 1);
    cr_expect(trained.weight != 1, "the file's decay works where it may");
}

/* One weight, one user frozen: the same answer whichever stands first or owns it. */
Test(cases, FRZ_04_one_user_frozen) {
    static const char *const nodes[] = {
        "      a: {op: linear, in: norm, features: 3, frozen: true, weights: random}\n"
        "      b: {share: a, in: norm, frozen: false}\n",
        "      b: {share: a, in: norm, frozen: false}\n"
        "      a: {op: linear, in: norm, features: 3, frozen: true, weights: random}\n",
        "      a: {op: linear, in: norm, features: 3, weights: random}\n"
        "      b: {share: a, in: norm, frozen: true}\n",
        "      b: {share: a, in: norm, frozen: true}\n"
        "      a: {op: linear, in: norm, features: 3, weights: random}\n",
    };
    for (size_t i = 0; i < COUNT(nodes); i++) {
        char yaml[2048];
        snprintf(yaml, sizeof yaml, TOP NORM "%s      sum: {op: add, in: [a, b]}\n" TAIL TRAIN,
                 nodes[i]);
        refused(yaml, "m.yaml:",
                i < 2 ? "'net.a.weight' is frozen by 'net.a' and trained by 'net.b'"
                      : "'net.a.weight' is frozen by 'net.b' and trained by 'net.a'",
                NULL);
    }
}

/* A key that changes nothing is said to. */
Test(cases, optimizers_that_train_nothing) {
    accepted(MODEL("      c: {op: conv2d, filters: 2, kernel: 1, frozen: true, weights: random, "
                   "optimizer: {op: sgd, lr: 1}}\n"),
             "m.yaml:8:93: warning: the optimizer of 'net.c' trains nothing");
    accepted(MODEL("      r: {op: relu, optimizer: {op: sgd, lr: 1}}\n"),
             "m.yaml:8:37: warning: the optimizer of 'net.r' trains nothing");
}
Test(cases, weights_and_shares_that_do_nothing) {
    accepted(MODEL("      r: {op: relu, weights: w.st}\n"),
             "w.st: nothing that they stand for has weights");
    accepted(MODEL("      r: {op: relu, weights: random}\n"), NULL);
    accepted("dagrun: 1\ninputs: {image: {shape: [8, 8, 1], dtype: u8}, mask: {shape: [8, 8], "
             "dtype: u8}}\ndata: {batch: 4, train: {image: {synthetic: uniform}, mask: {synthetic: "
             "uniform}}}\nsubgraphs:\n  net:\n    nodes:\n"
             "      a: {op: random_crop, in: image, size: 6}\n"
             "      b: {share: a, in: mask}\n"
             "      n: {op: normalize, in: a}\n      c: {op: conv2d, filters: 2, kernel: 1}\n"
             "train:\n  losses: {ce: {op: cross_entropy, in: [net.c, net.b]}}\n"
             "  optimizer: {op: sgd, lr: 0.1}\n  steps: 1\n",
             "m.yaml:8:7: warning: random_crop 'net.b' draws for itself, not as 'a' does");
}

/* ---- streams ---- */

/* A feeds the loss, B a metric that is read every second step, C (frozen) nothing. */
Test(cases, STR_05_a_branch_that_nobody_reads) {
    static const char yaml[] =
        "dagrun: 1\n"
        "inputs: {image: {shape: [4, 4, 1], dtype: u8}, label: {shape: [], dtype: u8}}\n"
        "data: {batch: 4, train: {image: {npy: images.npy}, label: {npy: labels.npy}}}\n"
        "subgraphs:\n"
        "  net:\n"
        "    nodes:\n"
        "      norm: {op: normalize, in: image}\n"
        "      a: {op: conv2d, in: norm, filters: 4, kernel: 3}\n"
        "      fa: {op: flatten, in: a}\n"
        "      la: {op: linear, features: 4}\n"
        "      b: {op: conv2d, in: norm, filters: 4, kernel: 3}\n"
        "      fb: {op: flatten, in: b}\n"
        "      lb: {op: linear, features: 4}\n"
        "      c: {op: conv2d, in: norm, filters: 4, kernel: 3, frozen: true, weights: random}\n"
        "train: {losses: {ce: {op: cross_entropy, in: [net.la, label]}}, optimizer: {op: sgd, lr: "
        "0.1}, steps: 6}\n"
        "eval: {on: train, every: 2 steps, metrics: {acc: {op: accuracy, in: [net.lb, label]}}}\n";
    static const char *const args[] = {
        "--json --set schedule.policy=sequential",
        "--json --set schedule.policy=matching --set schedule.streams=3",
        "--json --set schedule.policy=list --set schedule.streams=3",
    };
    cli_quadrants(folder, 24);
    same_numbers(args, COUNT(args), yaml);
    struct cli_run r = tool("--check", yaml);
    cr_expect(strstr(r.err, "m.yaml:14:7: warning: conv2d 'net.c' is dropped"), "%s", r.err);
    cli_run_free(&r);
}

/* ---- YAML ---- */

Test(cases, YML_01_numbers) {
    static const char *const rates[] = {
        "--json --set train.optimizer.lr=0.001", "--json --set train.optimizer.lr=1e-3",
        "--json --set train.optimizer.lr=1E-3",  "--json --set train.optimizer.lr=.001",
        "--json --set train.optimizer.lr=+1e-3", "--json --set train.optimizer.lr=1.e-3",
    };
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    same_numbers(rates, COUNT(rates), MODEL(""));
    static const struct {
        const char *text, *quoted;
    } wrong[] = {
        {"0x10", "0x10"}, {"0o10", "0o10"}, {"1_000", "1_000"},
        {"3.0", "3.0"},   {"3x", "3x"},     {"-1", "-1"},
        {"", ""},         {"\"3 \"", "3 "}, {"99999999999999999999", "99999999999999999999"},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        char yaml[2048], says[128];
        snprintf(yaml, sizeof yaml,
                 TOP NORM "      c: {op: conv2d, filters: 4, kernel: %s}\n" TAIL TRAIN,
                 wrong[i].text);
        snprintf(says, sizeof says, "error: conv2d 'net.c': kernel: '%s' is ", wrong[i].quoted);
        refused(yaml, "m.yaml:8:43: ", says, NULL);
    }
    /* 010 is ten, not eight; 08 is eight; "3" is 3 */
    refused(MODEL("      c: {op: conv2d, filters: 4, kernel: 010}\n"), "effective kernel 10 > ",
            NULL);
    accepted(MODEL("      c: {op: conv2d, filters: 4, kernel: 08}\n"), NULL);
    accepted(MODEL("      c: {op: conv2d, filters: 4, kernel: \"3\"}\n"), NULL);
    static const char *const no_rate[] = {"nan", ".nan", ".inf", "\"1,5\"", "0x1p-3", "abc", "-1"};
    for (size_t i = 0; i < COUNT(no_rate); i++) {
        char yaml[2048];
        snprintf(yaml, sizeof yaml, TOP NORM TAIL TRAIN_WITH("op: sgd, lr: %s"), no_rate[i]);
        refused(yaml, "m.yaml:10:94: error: train.optimizer: lr: '", NULL);
    }
}

Test(cases, YML_02_names_and_booleans) {
    static const char *const names[] = {"no", "on", "y", "null", "~", "true", "1.0"};
    struct cli_run r =
        tool("--check --json",
             MODEL("      no: {op: softmax}\n      on: {op: softmax, in: no}\n"
                   "      y: {op: softmax, in: on}\n      null: {op: softmax, in: y}\n"
                   "      ~: {op: softmax, in: null}\n      true: {op: softmax, in: ~}\n"
                   "      1.0: {op: softmax, in: \"true\"}\n"));
    cr_assert_eq(r.code, 0, "%s", r.err);
    for (size_t i = 0; i < COUNT(names); i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"net.%s\"", names[i]);
        cr_expect(strstr(r.out, quoted), "%s", quoted);
    }
    cli_run_free(&r);
    static const char *const truths[] = {"yes", "Yes", "on", "TRUE", "true", "\"true\"",
                                         "no",  "off", "1",  "~",    "",     "maybe"};
    for (size_t i = 0; i < COUNT(truths); i++) {
        char yaml[2048];
        snprintf(yaml, sizeof yaml,
                 TOP NORM "      c: {op: conv2d, filters: 2, kernel: 1, frozen: %s, weights: "
                          "random}\n" TAIL TRAIN,
                 truths[i]);
        if (i >= 8) {
            refused(yaml, "m.yaml:8:5", "conv2d 'net.c': frozen: '", "is not true or false", NULL);
            continue;
        }
        r = tool("--check", yaml);
        cr_expect_eq(r.code, 0, "%s: %s", truths[i], r.err);
        cr_expect(strstr(r.out, i < 6 ? "and 8 frozen parameters" : "and 0 frozen parameters"),
                  "%s: %s", truths[i], r.out);
        cli_run_free(&r);
    }
}

Test(cases, YML_03_duplicate_keys) {
    refused(TOP NORM TAIL "train:\n  optimizer:\n    op: sgd\n    lr: 0.1\n    momentum: 0.9\n"
                          "    \"lr\": 0.001\n",
            "m.yaml:15:5: error: duplicate key 'lr': it stands on line 13 already",
            "m.yaml:13:5: note: the first 'lr' is here", NULL);
    refused(TOP NORM TAIL "    nodes: {}\n" TRAIN, "m.yaml:10:5: error: duplicate key 'nodes'",
            "line 6", NULL);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

Test(cases, YML_05_bombs) {
    struct dr_arena *a = dr_arena_create();
    struct dr_text t = {.arena = a};
    dr_text_add(&t, "dagrun: 1\nx0: &x0 [n, n, n, n, n, n, n, n, n]\n");
    for (int i = 1; i < 10; i++) {
        dr_text_add(&t, "x%d: &x%d [*x%d", i, i, i - 1);
        for (int j = 1; j < 9; j++)
            dr_text_add(&t, ", *x%d", i - 1);
        dr_text_add(&t, "]\n");
    }
    const double start = now_s();
    refused(t.at, "m.yaml:8:10: error: more than 1000000 nodes after aliases are expanded", NULL);
    cr_expect_lt(now_s() - start, 5.0);
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
#ifndef __SANITIZE_ADDRESS__
    cr_expect_lt(children.ru_maxrss, 200 << 10, "%ld KiB", children.ru_maxrss);
#endif
    refused("a: &a [*a]\n", "m.yaml:1:8: error: the alias '*a' stands inside its own anchor", NULL);
    refused("a: &a {in: *a}\n", "m.yaml:1:12: error: the alias '*a' stands inside", NULL);
    accepted(MODEL("      a: &a {op: conv2d, filters: &f 4, kernel: &k 3, padding: 1}\n"
                   "      b: *a\n      c: *a\n"
                   "      d: {op: conv2d, filters: *f, kernel: *k}\n"),
             NULL);
    dr_arena_destroy(a);
}

/* With a stack of 256 KiB. */
Test(cases, YML_06_deep_nesting) {
    const struct rlimit small = {.rlim_cur = 256 << 10, .rlim_max = RLIM_INFINITY};
    static const char *const pairs[][2] = {{"[", "]"}, {"{a: ", "}"}};
    struct dr_arena *a = dr_arena_create();
    (void)setrlimit(RLIMIT_STACK, &small);
    for (int k = 0; k < 2; k++) {
        struct dr_text t = {.arena = a};
        dr_text_add(&t, "a: ");
        for (int i = 0; i < 200000; i++)
            dr_text_add(&t, "%s", pairs[k][i >= 100000]);
        const double start = now_s();
        refused(t.at, "m.yaml:1:", "error: nesting deeper than 64 levels", NULL);
        cr_expect_lt(now_s() - start, 5.0);
    }
    struct dr_text t = {.arena = a};
    for (int i = 0; i < 3000; i++)
        dr_text_add(&t, "%*sa:\n", i, "");
    refused(t.at, "m.yaml:65:65: error: nesting deeper than 64 levels", NULL);
    dr_arena_destroy(a);
}

Test(cases, YML_07_all_errors_of_a_file) {
    refused(
        "lr: 0.1\n" TOP NORM "      c: {op: conv2d, filters: 4, kernel: 3, paddding: 1}\n"
        "      r: {op: relu, kernel: 3}\n"
        "      v: {op: convv, in: norm}\n"
        "      s: {op: conv2d, in: norm, filters: 4, kernel: 3, stride: [2, 2, 2]}\n"
        "      a: {op: add, in: r}\n"
        "      flat: {op: flatten, in: norm}\n      logits: {op: linear, features: "
        "10}\n" TRAIN_WITH("op: sgd, \"lr \": 0.1, weight_deacy: 0.1"),
        "m.yaml:1:1: error: unknown key 'lr' in the top level; it belongs under train.optimizer",
        "m.yaml:9:46: error: unknown key 'paddding' in conv2d 'net.c'; did you mean 'padding'?",
        "m.yaml:10:21: error: unknown key 'kernel' in relu 'net.r'; it is an attribute of conv2d",
        "m.yaml:11:15: error: node 'net.v': unknown op 'convv'; did you mean 'conv2d'?",
        "m.yaml:12:64: error: conv2d 'net.s': stride must be one number or [height, width]",
        "m.yaml:13:24: error: add 'net.a' takes at least 2 inputs, `in` gives 1",
        "error: unknown key 'lr ' in train.optimizer; did you mean 'lr'?",
        "error: unknown key 'weight_deacy' in train.optimizer; did you mean 'weight_decay'?", NULL);
}

Test(cases, YML_09_cycles_and_names) {
    refused(MODEL("      a: {op: relu, in: c}\n      b: {op: relu, in: a}\n"
                  "      c: {op: relu, in: b}\n      s: {op: relu, in: s}\n"
                  "      ok: {op: relu, in: norm}\n"),
            "m.yaml:8:7: error: nodes of subgraph 'net' depend on each other in a cycle: a -> b -> "
            "c -> a",
            "m.yaml:9:25: note: 'b' needs 'a' here", "m.yaml:10:25: note: 'c' needs 'b' here",
            "in a cycle: s -> s", NULL);
    refused(MODEL("      conv1: {op: relu}\n      u: {op: relu, in: Convl}\n"),
            "m.yaml:9:25: error: relu 'net.u': there is no value 'Convl'; did you mean 'conv1'?",
            NULL);
    refused(MODEL("      conv: {op: relu}\n      conv: {op: relu}\n"),
            "m.yaml:9:7: error: duplicate key 'conv': it stands on line 8 already", NULL);
    refused(MODEL("      image: {op: relu, in: norm}\n"),
            "m.yaml:8:7: error: relu 'net.image': the name 'image' clashes with input 'image'",
            "m.yaml:2:10: note:", NULL);
    accepted(MODEL("      Conv: {op: relu, in: norm}\n      conv: {op: relu, in: norm}\n"
                   "      sum: {op: add, in: [conv, Conv, conv]}\n"),
             NULL);
    accepted(MODEL("      lost: {op: relu, in: norm}\n      on: {op: relu, in: norm}\n"),
             "m.yaml:8:7: warning: relu 'net.lost' is dropped");
    /* The order in the file does not matter. */
    static const char *const nodes[] = {
        "      l: {op: linear, in: f, features: 10}\n      f: {op: flatten, in: norm}\n",
        "      f: {op: flatten, in: norm}\n      l: {op: linear, in: f, features: 10}\n"};
    char *got[2];
    for (int i = 0; i < 2; i++) {
        char yaml[2048];
        snprintf(yaml, sizeof yaml,
                 TOP "%s" NORM "train: {losses: {ce: {op: cross_entropy, in: "
                     "[net.l, label]}}, optimizer: {op: sgd, lr: 0.1}, steps: "
                     "6}\n",
                 nodes[i]);
        got[i] = numbers("--json", yaml);
    }
    cr_expect_str_eq(got[0], got[1]);
    free(got[0]);
    free(got[1]);
}

/* ---- dropout ---- */

/* Above a frozen part, where a step runs ahead, and in the updated part, whose gradient draws the
 * mask again. */
static const char dropout_yaml[] =
    "dagrun: 1\n"
    "inputs: {image: {shape: [8, 8, 3], dtype: f32}, label: {shape: [], dtype: u8}}\n"
    "data: {batch: 4, train: {image: {synthetic: normal, count: 16}, label: {synthetic: uniform, "
    "count: 16}}, test: {image: {synthetic: normal, count: 6}, label: {synthetic: uniform, count: "
    "6}}}\n"
    "subgraphs:\n"
    "  encoder: {frozen: true, weights: random, nodes: {c: {op: conv2d, in: image, filters: 4, "
    "kernel: 3}, d: {op: dropout, p: 0.5}}}\n"
    "  net: {nodes: {a: {op: dropout, in: encoder.d, p: 0.2}, c: {op: conv2d, filters: 8, kernel: "
    "3}, b: {op: dropout}, g: {op: global_avg_pool}, logits: {op: linear, features: 10}}}\n"
    "train: {losses: {ce: {op: cross_entropy, in: [net.logits, label]}}, optimizer: {op: sgd, lr: "
    "0.1}, steps: 20}\n"
    "eval: {on: test, every: 1 epoch, metrics: {acc: {op: accuracy, in: [net.logits, label]}}}\n";

Test(cases, STR_01_masks_on_every_schedule) {
    static const char *const args[] = {
        "--json --threads 1 --set schedule.pipeline=off",
        "--json",
        "--json --threads 4",
        "--json --set schedule.policy=matching --set schedule.streams=8",
        "--json --set schedule.pipeline=4",
        "--json --set subgraphs.encoder.nodes.d.p=0.9", /* a frozen part drops nothing */
    };
    same_numbers(args, COUNT(args), dropout_yaml);
    char *with = numbers("--json", dropout_yaml);
    static const char *const fewer[] = {"--json --set subgraphs.net.nodes.a.p=0.3",
                                        "--json --set subgraphs.net.nodes.b.p=0.6"};
    for (size_t i = 0; i < COUNT(fewer); i++) {
        char *other = numbers(fewer[i], dropout_yaml);
        cr_expect_str_neq(other, with, "%s", fewer[i]);
        free(other);
    }
    free(with);
}

/* ---- augmentation ---- */

/* Flips that depend on the epoch and the sample alone. */
Test(cases, AUG_03_draws_on_every_schedule) {
    static const char *const args[] = {
        "--json --threads 1 --set schedule.pipeline=off",
        "--json --threads 1",
        "--json --threads 4",
        "--json --set schedule.pipeline=1",
        "--json --set schedule.pipeline=4",
    };
    same_numbers(args, COUNT(args),
                 TOP "      flip: {op: random_flip, in: image, axis: both}\n"
                     "      norm: {op: normalize}\n" TAIL TRAIN);
    char *seeds[2];
    for (int i = 0; i < 2; i++)
        seeds[i] = numbers(i ? "--json --set seed=2" : "--json --set seed=1", MODEL(""));
    cr_expect_str_neq(seeds[0], seeds[1]);
    free(seeds[0]);
    free(seeds[1]);
}

/* The way of shapes of a mask is the mask's, though the image stands before it. */
Test(cases, AUG_01_shapes_of_a_mask) {
    refused("dagrun: 1\n"
            "inputs: {image: {shape: [8, 8, 1], dtype: u8}, mask: {shape: [8, 8], dtype: u8}}\n"
            "data: {batch: 4, train: {image: {synthetic: uniform}, mask: {synthetic: zeros}}}\n"
            "subgraphs:\n"
            "  net:\n"
            "    nodes:\n"
            "      flip: {op: random_flip, in: [image, mask], out: [img, msk]}\n"
            "      norm: {op: normalize, in: img}\n"
            "      logits: {op: conv2d, filters: 3, kernel: 3}\n"
            "train: {losses: {ce: {op: cross_entropy, in: [net.logits, net.msk]}}, optimizer: {op: "
            "sgd, lr: 1}, steps: 1}\n",
            "m.yaml:10:18: error: cross_entropy 'loss.ce': logits 'net.logits' [4, 6, 6, 3] want",
            "m.yaml:7:7: note: its input 'net.msk' is [4, 8, 8]: mask [4, 8, 8] -> net.msk [4, 8, "
            "8]",
            "image [4, 8, 8, 1] -> net.img [4, 8, 8, 1] -> net.norm", NULL);
}

Test(cases, AUG_04_normalize_refuses) {
    refused(TOP "      norm: {op: normalize, in: image, std: [0.2, 0, 0.2]}\n" TAIL TRAIN,
            "m.yaml:7:45: error: normalize 'net.norm': std is 0 for channel 1", NULL);
    refused(
        TOP "      norm: {op: normalize, in: image, mean: [0.5, 0.5]}\n" TAIL TRAIN,
        "m.yaml:7:46: error: normalize 'net.norm': mean has 2 numbers, its input has 3 channels",
        NULL);
    refused(TOP "      norm: {op: normalize, in: image, scale: 0}\n" TAIL TRAIN,
            "m.yaml:7:47: error: normalize 'net.norm': scale: '0' is out of range", NULL);
}

/* A class that the loss passes over is one that the readers let through. */
Test(cases, ignored_labels_are_read) {
    static const char yaml[] =
        "dagrun: 1\n"
        "inputs: {image: {shape: [4, 4, 1], dtype: u8}, label: {shape: [], dtype: u8}}\n"
        "data: {batch: 4, train: {image: {npy: images.npy}, label: {npy: labels.npy}}}\n"
        "subgraphs: {net: {nodes: {n: {op: normalize, in: image}, f: {op: flatten}, l: {op: "
        "linear, features: 3}}}}\n"
        "train: {losses: {ce: {op: cross_entropy, in: [net.l, label], ignore_index: %d}}, "
        "optimizer: {op: sgd, lr: 0.1}, steps: 2}\n";
    char text[1024];
    cli_quadrants(folder, 24); /* labels 0 to 3 */
    snprintf(text, sizeof text, yaml, 3);
    free(numbers("--json", text));
    snprintf(text, sizeof text, yaml, 7);
    struct cli_run r = tool("", text);
    cr_expect_eq(r.code, 2);
    cr_expect(strstr(r.err, "m.yaml:3:65: error: npy '") &&
                  strstr(r.err, "row 1: value 3, input "
                                "'label' takes 0 to 2 or 7"),
              "%s", r.err);
    cli_run_free(&r);
}

/* ---- dot ---- */

Test(cases, DOT_01_names_from_yaml) {
    static const struct {
        const char *yaml, *dot;
    } names[] = {
        {"node", "net.node"},
        {"graph", "net.graph"},
        {"Edge", "net.Edge"},
        {"'a:b'", "net.a:b"},
        {"'a\"b'", "net.a\\\"b"},
        {"'C:\\dir\\'", "net.C:\\\\dir\\\\"},
        {"'\\N'", "net.\\\\N"},
        {"-1", "net.-1"},
        {"1.5.2", "net.1.5.2"},
        {"conv 1", "net.conv 1"},
        {"\xe5\x8d\xb7\xe7\xa7\xaf"
         "1",
         "net.\xe5\x8d\xb7\xe7\xa7\xaf"
         "1"},
        {"\"two\\nlines\"", "net.two\\nlines"},
    };
    char yaml[4096];
    int n = snprintf(yaml, sizeof yaml, "%s", TOP NORM);
    for (size_t i = 0; i < COUNT(names); i++)
        n +=
            snprintf(yaml + n, sizeof yaml - (size_t)n, "      %s: {op: softmax}\n", names[i].yaml);
    snprintf(yaml + n, sizeof yaml - (size_t)n, "%s", TAIL TRAIN);
    struct cli_run r = tool("--dot -v", yaml);
    cr_assert_eq(r.code, 0, "%s", r.err);
    for (size_t i = 0; i < COUNT(names); i++) {
        char label[128];
        snprintf(label, sizeof label, "[label=\"%s\\nsoftmax\\n[4, 8, 8, 3]\"", names[i].dot);
        cr_expect(strstr(r.out, label), "%s is not in:\n%s", label, r.out);
    }
    cli_run_free(&r);
}

static uint32_t occurrences(const char *text, const char *what) {
    uint32_t n = 0;
    for (; (text = strstr(text, what)) != NULL; text++)
        n++;
    return n;
}

Test(cases, DOT_03_ten_thousand_nodes) {
    struct dr_arena *a = dr_arena_create();
    struct dr_text t = {.arena = a};
    dr_text_add(&t, TOP NORM);
    for (int i = 0; i < 10000; i++)
        dr_text_add(&t, "      n%d: {op: softmax}\n", i);
    dr_text_add(&t, TAIL TRAIN);
    for (int whole = 0; whole < 2; whole++) {
        struct cli_run r = tool(whole ? "--dot -v" : "--dot", t.at);
        cr_assert_eq(r.code, 0, "%s", r.err);
        cr_expect_eq(strncmp(r.out, "// dagrun: ", 11), 0);
        const uint32_t boxes = occurrences(r.out, "tooltip=");
        cr_expect(whole ? boxes > 10000 : boxes < 200, "%u boxes", boxes);
        cli_run_free(&r);
    }
    static const char *const nowhere[] = {"--dot -o /proc/nothing/x", "--dot -o /dev/full"};
    for (size_t i = 0; i < COUNT(nowhere); i++) {
        struct cli_run r = tool(nowhere[i], MODEL(""));
        cr_expect_eq(r.code, i ? 1 : 2, "%s", nowhere[i]); /* a full disk shows in the run */
        cr_expect(strstr(r.err, "cannot write"), "%s", r.err);
        cli_run_free(&r);
    }
    char command[1024], *path = cli_file(folder, "m.yaml", MODEL(""));
    snprintf(command, sizeof command, "%s --dot %s >/dev/full 2>/dev/null", DR_BINARY, path);
    const int status = system(command);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "a full disk behind stdout");
    free(path);
    dr_arena_destroy(a);
}
