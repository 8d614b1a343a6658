/* ONNX's own operator tests, as models that tests/onnx/convert.py wrote: each runs, and gives what
 * ONNX says. Prints how many of its cases that are, op by op, and why the others are not. */
#include "augment/npy.h"
#include "graph/safetensors.h"
#include "scheduler/run.h"
#include "tests/fake_cli.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER DR_SOURCE_DIR "/tests/onnx"
/* |got - want| <= ABSOLUTE + RELATIVE * |want|; ONNX's own runner asks for 1e-7 and 1e-3. */
#define ABSOLUTE 2e-6
#define RELATIVE 1e-5
#define FOUR_DIGITS 5e-4 /* a case whose values were written so */
static const char four_digits[] = "test_averagepool_2d_ceil_last_window_starts_on_pad";

enum { MOST_OPS = 64, MOST_REASONS = 256 };
struct tally {
    const char *op[MOST_OPS];
    uint32_t passed[MOST_OPS], all[MOST_OPS], n;
    const char *reason[MOST_REASONS]; /* "Conv: ..." */
    uint32_t times[MOST_REASONS], n_reasons;
};

static uint32_t counted(const char **list, uint32_t *n, uint32_t most, const char *what) {
    for (uint32_t i = 0; i < *n; i++)
        if (strcmp(list[i], what) == 0)
            return i;
    cr_assert_lt(*n, most);
    list[*n] = what;
    return (*n)++;
}

/* Tensors "CASE.x0", "CASE.x1", ... as npy files. */
static void write_inputs(const struct dr_safetensors *f, const char *name, const char *folder) {
    for (int k = 0;; k++) {
        char key[256], path[1024];
        snprintf(key, sizeof key, "%s.x%d", name, k);
        const struct dr_tensor *t = dr_safetensors_find(f, key);
        if (!t)
            return;
        snprintf(path, sizeof path, "%s/x%d.npy", folder, k);
        cr_assert_eq(dr_npy_write(path, strcmp(t->dtype, "I32") == 0 ? "<i4" : "<f4", t->dim,
                                  t->rank, t->data, t->bytes),
                     0, "%s", path);
    }
}

static bool near(double got, double want, double relative) {
    return got == want || fabs(got - want) <= ABSOLUTE + relative * fabs(want) ||
           (isnan(got) && isnan(want));
}

/* The output file, or the loss, against the tensor "CASE:y". */
static bool as_wanted(const struct dr_tensor *want, const struct dr_results *r,
                      const char *folder) {
    float *y = malloc(want->elements * sizeof *y);
    cr_assert(y);
    dr_tensor_floats(want, y);
    const double relative =
        strncmp(want->name, four_digits, sizeof four_digits - 1) == 0 ? FOUR_DIGITS : RELATIVE;
    bool same = true;
    if (r->eval.n_losses == 1) {
        same = near(r->eval.loss[0].mean, y[0], relative);
    } else {
        char path[1024], why[256];
        struct dr_npy x;
        snprintf(path, sizeof path, "%s/y.npy", folder);
        cr_assert(dr_npy_open(path, &x, why, sizeof why), "%s: %s", path, why);
        same = x.kind == 'f' && x.item == 4 && x.rank == want->rank;
        for (uint32_t i = 0; same && i < x.rank; i++)
            same = x.dim[i] == want->dim[i];
        for (uint64_t i = 0; same && i < want->elements; i++) {
            float got;
            memcpy(&got, x.data + 4 * i, sizeof got);
            same = near(got, y[i], relative);
        }
        dr_npy_close(&x);
    }
    free(y);
    return same;
}

static bool run(const struct dr_safetensors *f, const char *name, const char *yaml,
                const char *folder) {
    char key[256];
    snprintf(key, sizeof key, "%s:y", name);
    const struct dr_tensor *want = dr_safetensors_find(f, key);
    cr_assert(want, "%s", key);
    write_inputs(f, name, folder);
    char *path = cli_file(folder, "m.yaml", yaml);
    struct dr_session *s = dr_session_create();
    const enum dr_graph_mode mode = strstr(yaml, "\neval:") ? DR_MODE_EVAL : DR_MODE_INFER;
    struct dr_results r = {0};
    const bool ran = dr_session_load(s, path, NULL, 0) && dr_session_device(s, "cpu", 1) &&
                     dr_session_data(s, mode) && dr_session_plan(s, mode, NULL, NULL) &&
                     dr_session_start(s, NULL) && dr_run(s, 0, NULL, &r);
    cr_expect(ran, "%s: %s%s", name, dr_diag_text(s->diag), s->status.text);
    const bool right = ran && as_wanted(want, &r, folder);
    cr_expect(right || !ran, "%s gives something else", name);
    dr_session_destroy(s);
    free(path);
    return right;
}

static char *read_text(const char *path) {
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s", path);
    char *text = calloc(1, 1 << 20);
    cr_assert(text);
    const size_t n = fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    cr_assert(n > 0 && n < (1 << 20) - 1);
    return text;
}

static void print_table(const struct tally *t) {
    uint32_t passed = 0, all = 0;
    printf("ONNX's operator tests\n");
    for (uint32_t i = 0; i < t->n; i++) {
        printf("  %-26s %3u of %3u\n", t->op[i], t->passed[i], t->all[i]);
        passed += t->passed[i];
        all += t->all[i];
    }
    printf("  %-26s %3u of %3u\nthe others\n", "all", passed, all);
    for (uint32_t i = 0; i < t->n_reasons; i++)
        printf("  %3u %s\n", t->times[i], t->reason[i]);
    fflush(stdout);
}

Test(onnx, operators) {
    struct dr_arena *a = dr_arena_create();
    struct dr_safetensors f;
    struct tally t = {.n = 0};
    char why[256] = "", *text = read_text(FOLDER "/cases.txt"), *folder = cli_folder();
    cr_assert(dr_safetensors_open(a, FOLDER "/data.safetensors", &f, why, sizeof why), "%s", why);
    char link[1024];
    snprintf(link, sizeof link, "%s/data.safetensors", folder);
    cr_assert_eq(symlink(FOLDER "/data.safetensors", link), 0);
    for (char *at = strchr(text, '\n') + 1; *at;) { /* the first line is a comment */
        char *const body = strchr(at, '\n') + 1, *end = body;
        while (*end && *end != '=' && *end != '-') /* blocks; no line of YAML begins so */
            end = strchr(end, '\n') + 1;
        char name[200], op[64];
        cr_assert_eq(sscanf(at + 1, "%199s %63[^:\n]", name, op), 2);
        const uint32_t k = counted(t.op, &t.n, MOST_OPS, dr_strdup(a, op));
        t.all[k]++;
        if (*at == '=') {
            const char *yaml = dr_printf(a, "%.*s", (int)(end - body), body);
            t.passed[k] += run(&f, name, yaml, folder);
        } else {
            const char *from = strchr(at + 2, ' ') + 1;
            const char *reason = dr_printf(a, "%.*s", (int)(body - 1 - from), from);
            t.times[counted(t.reason, &t.n_reasons, MOST_REASONS, reason)]++;
        }
        at = end;
    }
    print_table(&t);
    cr_expect_eq(t.n, 27);
    dr_safetensors_close(&f);
    cli_folder_remove(folder);
    free(text);
    dr_arena_destroy(a);
}
