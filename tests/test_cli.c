/* The command line: exit codes, what goes to stdout and what to stderr, JSON keys, -o. */
#include "tests/fake_cli.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* "%" in `args` stands for the model. */
static struct cli_run run(const struct cli_place *p, const char *args) {
    char line[4096];
    const char *mark = strchr(args, '%');
    if (mark)
        snprintf(line, sizeof line, "%.*s%s%s", (int)(mark - args), args, p->yaml, mark + 1);
    else
        snprintf(line, sizeof line, "%s", args);
    return cli_run(DR_BINARY, line);
}

static char *bytes_of(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s", path);
    char *at = malloc(1 << 20);
    *n = fread(at, 1, 1 << 20, f);
    fclose(f);
    return at;
}

/* A run writes no file twice, and none over what it reads; what is there stays as it is. */
Test(cli, files_that_are_written_over) {
    struct cli_place p = cli_place_create();
    static const struct {
        const char *args, *says; /* "@": the folder */
    } cases[] = {
        {"--save @/q.yaml %", "--save: it would be written over the YAML itself"},
        {"--trace @/q.yaml %", "--trace: it would be written over the YAML itself"},
        {"--plan -o @/./q.yaml %", "-o: it would be written over the YAML itself"},
        {"--set train.save=q.yaml %", "train.save: it would be written over the YAML itself"},
        {"--set train.log=q.yaml %", "train.log: it would be written over the YAML itself"},
        {"--save @/images.npy %", "--save: it would be written over what data.train.image: npy"},
        {"--eval -o @/labels.npy %", "-o: it would be written over what data.train.label: npy"},
        {"--set train.log=l.csv --save @/l.csv %", "--save: train.log writes this file as well"},
        {"--save @/a --trace @/a %", "--trace: --save writes this file as well"},
        {"--trace @/a -o @/a %", "-o: --trace writes this file as well"},
        {"--eval --load @/w.st -o @/w.st %", "-o: it would be written over what --load reads"},
        {"--resume @/w.st --set train.log=w.st %",
         "train.log: it would be written over what --resume reads"},
    };
    static const char *const kept[] = {"q.yaml", "images.npy", "labels.npy", "w.st"};
    char *before[4], path[4096], args[4096];
    size_t n[4], now;
    free(cli_file(p.folder, "w.st", "weights"));
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", p.folder, kept[i]);
        before[i] = bytes_of(path, &n[i]);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *to = args;
        for (const char *c = cases[i].args; *c; c++)
            to += *c == '@' ? sprintf(to, "%s", p.folder) : sprintf(to, "%c", *c);
        struct cli_run r = run(&p, args);
        cr_expect_eq(r.code, 2, "%s: exit %d", args, r.code);
        cr_expect(strstr(r.err, cases[i].says), "%s: %s", args, r.err);
        cli_run_free(&r);
        for (int k = 0; k < 4; k++) {
            snprintf(path, sizeof path, "%s/%s", p.folder, kept[k]);
            char *after = bytes_of(path, &now);
            cr_expect(now == n[k] && !memcmp(after, before[k], now), "%s: %s", args, kept[k]);
            free(after);
        }
    }
    for (int i = 0; i < 4; i++)
        free(before[i]);
    cli_place_remove(&p);
}

Test(cli, wrong_command_lines_exit_2) {
    struct cli_place p = cli_place_create();
    static const struct {
        const char *args, *says;
    } cases[] = {
        {"", "MODEL.yaml is missing"},
        {"--check", "MODEL.yaml is missing"},
        {"--chekc %", "did you mean '--check'"},
        {"--plan --dot %", "one mode at most: --plan or --dot"},
        {"--check --check %", "one mode at most"},
        {"% other.yaml", "one MODEL.yaml at most"},
        {"-z %", "unknown option -z"},
        {"--dump", "needs a value"},
        {"-o", "needs a value"},
        {"--dump nothing %", "no pass is named 'nothing'"},
        {"--dump stagse %", "did you mean 'stages'"},
        {"--check=1 %", "takes no value"},
        {"--device gpu %", "cpu, cuda or cuda:N"},
        {"--device cuda:x %", "cpu, cuda or cuda:N"},
        {"--threads 0 %", "--threads wants"},
        {"--threads 2x %", "--threads wants"},
        {"--steps 10 %", "--steps"},
        {"--steps -1 --bench %", "--steps wants"},
        {"--json --dot %", "--json does not go with --dot"},
        {"-v --dump load %", "-v does not go with --dump"},
        {"--ops --set a=b", "--set does not go with --ops"},
        {"--ops convv", "no op is named 'convv'"},
        {"-q -v %", "contradict"},
        {"--load x --plan %", "--load does not go with --plan"},
        {"--save x --bench %", "--save does not go with --bench"},
        {"--resume x --eval %", "--resume does not go with --eval"},
        {"--resume x --load y %", "--load begins a run, --resume goes on"},
        {"--save= %", "--save wants the name of a file"},
        {"--load /nowhere.safetensors %", "weights /nowhere.safetensors: No such file"},
        {"--resume /nowhere.safetensors %", "weights /nowhere.safetensors: No such file"},
        {"--set subgraphs.encoder.weights=x.safetensors %", "x.safetensors: No such file"},
        {"--set train.save={best:acc} %", "'file' is missing"},
        {"--trace= %", "--trace wants the name of a file"},
        {"--trace x --plan %", "--trace does not go with --plan"},
        {"--verify --trace x %", "--trace does not go with --verify"},
        {"--set nonsense %", "nonsense"},
        {"--set train.stepz=3 %", "stepz"},
        {"/nowhere/at/all.yaml", "/nowhere/at/all.yaml"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cli_run r = run(&p, cases[i].args);
        cr_expect_eq(r.code, 2, "'%s': exit %d, %s", cases[i].args, r.code, r.err);
        cr_expect_not_null(strstr(r.err, cases[i].says), "'%s' says: %s", cases[i].args, r.err);
        cr_expect_str_empty(r.out, "'%s' printed: %s", cases[i].args, r.out);
        cli_run_free(&r);
    }
    cli_place_remove(&p);
}

Test(cli, help_and_version_go_to_stdout) {
    static const char *const args[] = {"--help", "-h", "--version", "--help --bogus"};
    for (int i = 0; i < 4; i++) {
        struct cli_run r = cli_run(DR_BINARY, args[i]);
        cr_expect_eq(r.code, 0);
        cr_expect_not_null(strstr(r.out, "dagrun"));
        cr_expect_str_empty(r.err);
        cli_run_free(&r);
    }
}

Test(cli, ops_reference) {
    struct cli_run r = cli_run(DR_BINARY, "--ops");
    cr_expect_eq(r.code, 0);
    cr_expect_not_null(strstr(r.out, "conv2d"));
    cr_expect_null(strstr(r.out, "total_loss"), "an internal op is listed");
    cli_run_free(&r);
    r = cli_run(DR_BINARY, "--ops conv2d");
    cr_expect_eq(r.code, 0);
    cr_expect_not_null(strstr(r.out, "filters"));
    cr_expect_not_null(strstr(r.out, "required"));
    cli_run_free(&r);
    /* Bounds as a file would have them, and no default that is not a value. */
    static const struct {
        const char *args, *says, *not ;
    } docs[] = {
        {"--ops conv2d", "groups           integer, 1 to 2147483647; default 1\n", "e+0"},
        {"--ops max_pool2d", "stride           n or [h, w], 1 to 65535\n",
         "default 0\n     "
         "              step"},
        {"--ops cross_entropy", "integer, -2147483648 to 2147483647\n", "default -"},
        {"--ops batch_norm", "eps              number, 0 to 1; default 1e-05\n", "default 0.00001"},
        {"--ops clamp", "min              number", "inf"},
        {"--ops add", "activation       none | relu | tanh | sigmoid | leaky_relu | gelu | silu",
         "(not"},
    };
    for (size_t i = 0; i < sizeof docs / sizeof *docs; i++) {
        r = cli_run(DR_BINARY, docs[i].args);
        cr_expect(strstr(r.out, docs[i].says) && !strstr(r.out, docs[i].not ), "%s:\n%s",
                  docs[i].args, r.out);
        cli_run_free(&r);
    }
    static const char *const json[] = {"--ops --json", "--ops conv2d --json"};
    for (int i = 0; i < 2; i++) {
        r = cli_run(DR_BINARY, json[i]);
        json_t *j = json_loads(r.out, 0, NULL);
        cr_expect_not_null(j, "%s", json[i]);
        cr_expect_str_eq(json_string_value(json_object_get(j, "type")), "object");
        json_decref(j);
        cli_run_free(&r);
    }
}

Test(cli, no_cuda_is_exit_3) {
    struct cli_place p = cli_place_create();
    setenv("CUDA_VISIBLE_DEVICES", "", 1); /* also where there is one */
    struct cli_run r = run(&p, "--device cuda %");
    cr_expect_eq(r.code, 3, "exit %d: %s", r.code, r.err);
#ifdef DR_WITH_CUDA /* "no NVIDIA driver is loaded", "no CUDA device" */
    cr_expect(strstr(r.err, ": no ") && strstr(r.err, "use --device cpu"), "%s", r.err);
#else
    cr_expect_not_null(strstr(r.err, "without CUDA"));
#endif
    cli_run_free(&r);
    r = run(&p, "--device cpu --check %");
    cr_expect_eq(r.code, 0, "%s", r.err);
    cli_run_free(&r);
    cli_place_remove(&p);
}

Test(cli, planning_modes) {
    struct cli_place p = cli_place_create();
    static const struct {
        const char *args, *says;
    } cases[] = {
        {"--check %", "quadrants: training plan"},
        {"--check -v %", "encoder.c0"},
        {"--plan %", "stream"},
        {"--dot %", "digraph"},
        {"--dump load %", "net.c1"},
        {"--dump fuse %", "net.c1"},
        {"--dump stages %", "stage"},
        {"--dump order %", "waits for"},
        {"--dump memory %", "bytes"},
        {"--dump proof %", "no race"},
        {"--dump plan %", "net.c1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cli_run r = run(&p, cases[i].args);
        cr_expect_eq(r.code, 0, "'%s': %s", cases[i].args, r.err);
        cr_expect_not_null(strstr(r.out, cases[i].says), "'%s' printed: %s", cases[i].args, r.out);
        cr_expect_str_empty(r.err, "'%s': %s", cases[i].args, r.err);
        cli_run_free(&r);
    }
    cli_place_remove(&p);
}

/* `text` with `from`, which stands there once, replaced. */
static void replace(char *text, size_t room, const char *from, const char *to) {
    char *at = strstr(text, from);
    const size_t n = strlen(from), m = strlen(to);
    cr_assert(at && strlen(text) + m < room, "%s", from);
    memmove(at + m, at + n, strlen(at + n) + 1);
    memcpy(at, to, m);
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

/* As for weights: a plan needs no data, and says what a run would. */
Test(cli, check_says_what_data_is_missing) {
    struct cli_place p = cli_place_create();
    char path[1024], text[4096], says[2048];
    struct cli_run r = run(&p, "--check %");
    cr_expect(r.code == 0 && !*r.err, "%s", r.err);
    cli_run_free(&r);
    snprintf(path, sizeof path, "%s/images.npy", p.folder);
    cr_assert_eq(remove(path), 0);
    snprintf(says, sizeof says, "q.yaml:9:24: warning: data %s: No such file or directory; ", path);
    r = run(&p, "--check %");
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect(strstr(r.err, says) && count(r.err, "warning") == 1, "%s: %s", says, r.err);
    cli_run_free(&r);
    r = run(&p, "--plan %"); /* which does not speak of weights either */
    cr_expect(r.code == 0 && !*r.err, "%s", r.err);
    cli_run_free(&r);
    /* patterns; an IDX file may be compressed; evaluation's own split */
    snprintf(text, sizeof text, "%s", cli_quadrants_yaml);
    replace(text, sizeof text, "npy: images.npy, rows: [0, 64]", "files: \"gone/*.png\"");
    replace(text, sizeof text, "npy: labels.npy, rows: [0, 64]", "idx: train-labels");
    replace(text, sizeof text, "npy: images.npy", "synthetic: zeros, count: 84");
    replace(text, sizeof text, "npy: labels.npy", "idx: test-labels");
    char *yaml = cli_file(p.folder, "q.yaml", text);
    char *label = cli_file(p.folder, "train-labels.gz", "x");
    r = run(&p, "--check %");
    cr_expect_eq(r.code, 0, "%s", r.err);
    snprintf(says, sizeof says, "data %s/gone/*.png: there is no such file; a run would need it",
             p.folder);
    cr_expect(strstr(r.err, says), "%s: %s", says, r.err);
    snprintf(says, sizeof says, "data %s/test-labels: No such file or directory; ", p.folder);
    cr_expect(strstr(r.err, says) && count(r.err, "warning") == 2, "%s: %s", says, r.err);
    cli_run_free(&r);
    free(label);
    free(yaml);
    cli_place_remove(&p);
}

static void has_keys(const json_t *j, const char *const *keys, const char *what) {
    for (; *keys; keys++)
        cr_expect_not_null(json_object_get(j, *keys), "%s: no key %s", what, *keys);
}

Test(cli, json_objects) {
    struct cli_place p = cli_place_create();
    static const char *const base[] = {"model",     "version", "seed", "device",
                                       "precision", "plan",    NULL};
    static const char *const ran[] = {"steps",  "seconds", "steps_per_s", "images_per_s",
                                      "losses", "metrics", NULL};
    static const char *const plan[] = {
        "policy",         "stages",   "streams",      "waits", "planned_bytes", "lower_bound_bytes",
        "no_reuse_bytes", "bound_us", "predicted_us", NULL};
    static const char *const bench[] = {"median", "p5", "p95", "steps_per_s", NULL};
    static const char *const args[] = {"--json %",
                                       "--check --json %",
                                       "--plan --json %",
                                       "--bench --steps 5 --json %",
                                       "--verify --steps 5 --json %",
                                       "--eval --json %"};
    for (int i = 0; i < 6; i++) {
        struct cli_run r = run(&p, args[i]);
        cr_expect_eq(r.code, 0, "%s: %s", args[i], r.err);
        json_t *j = json_loads(r.out, 0, NULL);
        cr_assert_not_null(j, "%s printed: %s", args[i], r.out);
        has_keys(j, base, args[i]);
        has_keys(json_object_get(j, "plan"), plan, args[i]);
        cr_expect_str_eq(json_string_value(json_object_get(j, "precision")), "fp32");
        if (i == 0 || i == 5)
            has_keys(j, ran, args[i]);
        if (i == 1 || i == 2)
            cr_expect_gt(json_array_size(json_object_get(json_object_get(j, "plan"), "nodes")), 5u);
        if (i == 3)
            has_keys(j, bench, args[i]);
        json_decref(j);
        cli_run_free(&r);
    }
    cli_place_remove(&p);
}

Test(cli, a_run_learns_and_reports) {
    struct cli_place p = cli_place_create();
    struct cli_run r = run(&p, "--json %");
    cr_assert_eq(r.code, 0, "%s", r.err);
    json_t *j = json_loads(r.out, 0, NULL);
    cr_expect_eq(json_integer_value(json_object_get(j, "steps")), 6 * 64 / 8);
    cr_expect_lt(json_number_value(json_object_get(json_object_get(j, "losses"), "ce")), 0.5);
    cr_expect_geq(json_number_value(json_object_get(json_object_get(j, "metrics"), "acc")), 0.9);
    json_decref(j);
    cli_run_free(&r);
    r = run(&p, "%");
    cr_expect_eq(r.code, 0);
    cr_expect_not_null(strstr(r.out, "epoch 6, step 48"), "%s", r.out);
    cr_expect_not_null(strstr(r.out, "eval at step 48"), "%s", r.out);
    cr_expect_str_empty(r.err, "no bar where stderr is no terminal: %s", r.err);
    cli_run_free(&r);
    r = run(&p, "-q %");
    cr_expect_eq(r.code, 0);
    cr_expect_null(strstr(r.out, "epoch"), "%s", r.out);
    cli_run_free(&r);
    cli_place_remove(&p);
}

Test(cli, output_file) {
    struct cli_place p = cli_place_create();
    char args[4096], path[1024];
    snprintf(path, sizeof path, "%s/new/plan.dot", p.folder);
    snprintf(args, sizeof args, "--dot -o %s %%", path);
    struct cli_run r = run(&p, args);
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect_str_empty(r.out);
    struct stat st;
    cr_expect(stat(path, &st) == 0 && st.st_size > 100);
    cli_run_free(&r);
    static const char *const bad[] = {"/proc/nothing/x", "/dev/null/x", "/tmp"};
    for (int i = 0; i < 3; i++) {
        for (int trace = 0; trace < 2; trace++) {
            snprintf(args, sizeof args, "%s %s %%", trace ? "--trace" : "--check -o", bad[i]);
            r = run(&p, args);
            cr_expect_eq(r.code, 2, "%s: exit %d", args, r.code);
            snprintf(path, sizeof path, "%s: cannot write %s", trace ? "--trace" : "-o", bad[i]);
            cr_expect(strstr(r.err, path) && !*r.out, "%s: %s", args, r.err);
            cli_run_free(&r);
        }
    }
    cli_place_remove(&p);
}

Test(cli, precision_is_said_once) {
    struct cli_place p = cli_place_create();
    struct cli_run r = run(&p, "--set precision=bf16 --set train.epochs=1 --json %");
    cr_expect_eq(r.code, 0, "%s", r.err);
    const char *first = strstr(r.err, "precision bf16");
    cr_expect(first && !strstr(first + 1, "precision bf16"), "%s", r.err);
    cr_expect_not_null(strstr(r.out, "\"fp32\""));
    cli_run_free(&r);
    cli_place_remove(&p);
}
