/* --tune on a device: what it measures is kept and used, and whatever way is chosen for each
 * convolution, every schedule of a run gives the same bits. */
#include "tests/cuda_run.h"

#include "scheduler/cli.h"
#include "scheduler/tune.h"
#include "tests/fake_cli.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char model[] =
    "dagrun: 1\nmodel: tuned\nprecision: PRECISION\nseed: 3\n"
    "inputs: {image: {shape: [26, 26, 3], dtype: u8}, label: {shape: [], dtype: u8}}\n"
    "data:\n  batch: 16\n"
    "  train: {image: {synthetic: uniform, count: 192}, label: {synthetic: uniform, count: 192}}\n"
    "subgraphs:\n"
    "  augment: {nodes: {flip: {op: random_flip, in: image, p: 0.5}}}\n"
    "  encoder:\n    frozen: true\n    weights: random\n    nodes:\n"
    "      n: {op: normalize, in: augment.flip, mean: [0.5], std: [0.25]}\n"
    "      a: {op: conv2d, filters: 64, kernel: 3, activation: relu}\n"
    "      b: {op: conv2d, filters: 64, kernel: 3, activation: relu}\n"
    "      c: {op: conv2d, filters: 128, kernel: 3, stride: 2, padding: 1, activation: relu}\n"
    "  head:\n    nodes:\n"
    "      d: {op: conv2d, in: encoder.c, filters: 128, kernel: 3, padding: 1, bias: false}\n"
    "      m: {op: batch_norm, activation: relu}\n"
    "      e: {op: conv2d, filters: 256, kernel: 1, activation: relu}\n"
    "      u: {op: conv_transpose2d, filters: 32, kernel: 2, stride: 2, activation: relu}\n"
    "      p: {op: global_avg_pool}\n"
    "      f: {op: flatten}\n"
    "      logits: {op: linear, features: 10}\n"
    "train:\n  losses: {ce: {op: cross_entropy, in: [head.logits, label]}}\n"
    "  optimizer: {op: sgd, lr: 0.02, momentum: 0.9}\n  steps: 13\n";

/* The program with these words, and the model where they say %. NULL, or what is wrong. */
static const char *expect(const char *yaml, const char *words, int code, const char *says) {
    const char *mark = strchr(words, '%');
    struct cli_run r = self_run(dr_printf(arena, "--cli --device cuda %.*s%s%s",
                                          (int)(mark - words), words, yaml, mark + 1));
    const char *wrong = NULL;
    if (r.code != code || (says && !strstr(r.out, says) && !strstr(r.err, says)))
        wrong = dr_printf(arena, "%s: exit code %d, \"%s\" expected in:\n%s%s", words, r.code,
                          says ? says : "", r.out, r.err);
    cli_run_free(&r);
    return wrong;
}

/* As planned and sequentially, in this process: NULL, or the difference. */
static const char *differs(const char *yaml) {
    struct dr_session *s = dr_session_create();
    struct dr_verify v = {0};
    const bool good = dr_session_load(s, yaml, NULL, 0) && dr_session_device(s, "cuda", 2) &&
                      dr_session_data(s, DR_MODE_TRAIN) &&
                      dr_session_plan(s, DR_MODE_TRAIN, NULL, NULL) &&
                      dr_verify(s, s->total_steps, NULL, &v);
    const char *wrong = NULL;
    if (!good || v.difference)
        wrong = dr_printf(arena, "%s%s%s", s->status.text, dr_diag_text(s->diag),
                          v.difference ? v.difference : "");
    dr_session_destroy(s);
    return wrong;
}

static const char *card_of_device(void) {
    struct dr_session *s = dr_session_create();
    const char *card =
        dr_session_device(s, "cuda", 2) ? dr_strdup(arena, s->dev.card) : s->status.text;
    dr_session_destroy(s);
    return card;
}

/* What --tune --json says of each problem. */
static json_t *measured(const char *yaml) {
    struct cli_run r = self_run(dr_printf(arena, "--cli --device cuda --tune --json %s", yaml));
    json_t *j = json_loads(r.out, 0, NULL);
    if (r.code != DR_OK || !json_is_array(json_object_get(j, "problems")))
        say("%s", r.err);
    cli_run_free(&r);
    return j;
}

/* A file that takes way `k` of every problem (counted round). */
static int take_ways(const char *path, const char *card, const json_t *problems, size_t k) {
    struct dr_tuned t = {.path = path};
    for (size_t i = 0; i < json_array_size(problems); i++) {
        json_t *p = json_array_get(problems, i), *us = json_object_get(p, "us");
        size_t at = k % json_object_size(us);
        const char *kernel;
        json_t *x;
        json_object_foreach(us, kernel, x) {
            if (at-- == 0)
                *dr_push(arena, &t.row) = (struct dr_tuned_row){
                    json_string_value(json_object_get(p, "problem")), kernel, 1};
        }
    }
    return dr_tuned_write(&t, card);
}

static size_t most_ways(const json_t *problems) {
    size_t most = 0;
    for (size_t i = 0; i < json_array_size(problems); i++) {
        const size_t n = json_object_size(json_object_get(json_array_get(problems, i), "us"));
        most = n > most ? n : most;
    }
    return most;
}

static bool same_files(const char *a, const char *b) {
    size_t na, nb;
    char why[160];
    void *x = dr_file_map(a, &na, why, sizeof why), *y = dr_file_map(b, &nb, why, sizeof why);
    return x && y && na == nb && !memcmp(x, y, na); /* mapped until the end */
}

/* Every way in turn: as planned and sequentially the same bits, and two runs the same file. */
static const char *every_way(const char *folder, const char *yaml, const char *path,
                             const json_t *problems) {
    const char *const card = card_of_device();
    const char *const first = dr_printf(arena, "%s/first.st", folder);
    const char *const second = dr_printf(arena, "%s/second.st", folder);
    const size_t ways = most_ways(problems);
    const char *wrong = NULL;
    for (size_t k = 0; k < ways && !wrong; k++) {
        if (take_ways(path, card, problems, k))
            WRONG("%s was not written", path);
        wrong = differs(yaml);
        wrong = wrong ? dr_printf(arena, "way %zu: %s", k, wrong) : NULL;
    }
    wrong = wrong ? wrong : expect(yaml, dr_printf(arena, "--save %s %%", first), DR_OK, NULL);
    wrong = wrong ? wrong : expect(yaml, dr_printf(arena, "--save %s %%", second), DR_OK, NULL);
    if (!wrong && !same_files(first, second))
        wrong = "two runs with the kernels that were chosen leave other bytes";
    say("%zu ways of %zu problems", ways, json_array_size(problems));
    return wrong;
}

static const char *tune(const char *folder, const char *precision) {
    const char *const at = strstr(model, "PRECISION");
    char *yaml = cli_file(folder, "tuned.yaml",
                          dr_printf(arena, "%.*s%s%s", (int)(at - model), model, precision,
                                    at + strlen("PRECISION")));
    const char *const path = dr_tuned_path(arena, card_of_device());
    const char *const half = dr_printf(arena, "%s/half.st", folder);
    json_t *j = NULL;
    unlink(path);
    const char *wrong = expect(yaml, "--plan -v %", DR_OK, "choices, by the time");
    wrong = wrong ? wrong
                  : expect(yaml, dr_printf(arena, "--set train.steps=6 --save %s %%", half), DR_OK,
                           NULL);
    wrong = wrong ? wrong : expect(yaml, "--tune -v %", DR_OK, "tune"); /* or its file's name */
    wrong = wrong ? wrong : expect(yaml, "--verify %", DR_OK, "equal bit for bit");
    j = wrong ? NULL : measured(yaml);
    json_t *problems = json_object_get(j, "problems");
    if (!wrong && !json_is_array(problems))
        wrong = "--tune --json gave no problems";
    if (!wrong && json_array_size(problems) > 0)
        wrong = every_way(folder, yaml, path, problems);
    if (!wrong && json_array_size(problems) > 0)
        wrong = expect(yaml, dr_printf(arena, "--resume %s %%", half), DR_OK,
                       "other kernels are chosen now");
    if (!wrong && dr_write_file(path, "{", 1) == 0)
        wrong = expect(yaml, "--check %", DR_OK, "choices of kernels are ignored");
    json_decref(j);
    free(yaml);
    return wrong;
}

const char *tuned_runs(void) {
    char *folder = cli_folder();
    const char *wrong = NULL;
    setenv("XDG_CACHE_HOME", folder, 1);
    if (cuda)
        wrong = tune(folder, "fp16");
    if (cuda && !wrong)
        wrong = tune(folder, "tf32");
    unsetenv("XDG_CACHE_HOME");
    cli_folder_remove(folder);
    return wrong;
}
