/* Weights files and models: which tensor goes where, what does not fit, the order of elements. */
#include "graph/weights.h"
#include "scheduler/run.h"
#include "tests/fake_cli.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define T(dtype, shape, from, to)                                                                  \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

/* A safetensors file with this header and `data` bytes, floats 1, 2, 3, ...; header NULL: nothing.
 */
static void put(const char *folder, const char *name, const char *header, size_t data) {
    char path[1024];
    unsigned char file[4096] = {0};
    const size_t n = header ? strlen(header) : 0;
    file[0] = (unsigned char)n;
    file[1] = (unsigned char)(n >> 8);
    if (header)
        memcpy(file + 8, header, n);
    for (size_t i = 0; i < data / 4; i++) {
        const float x = (float)(i + 1);
        memcpy(file + 8 + n + 4 * i, &x, sizeof x);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(dr_write_file(path, file, header ? 8 + n + data : 0), 0);
}

static bool is_there(const char *folder, const char *name) {
    char path[1024];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &st) == 0;
}

static struct cli_run dagrun(const char *options, const char *folder, const char *name) {
    char line[2048];
    snprintf(line, sizeof line, "%s %s/%s", options, folder, name);
    return cli_run(DR_BINARY, line);
}

/* A convolution of 2x1x3x3 and its bias; `weights` is what stands behind `weights:`. */
static void put_model(const char *folder, const char *weights) {
    char text[2048];
    snprintf(text, sizeof text,
             "dagrun: 1\nmodel: one\n"
             "inputs: {image: {shape: [4, 4, 1], dtype: f32}}\n"
             "data: {batch: 2, infer: {image: {synthetic: zeros, count: 3}}}\n"
             "subgraphs:\n  net:\n    frozen: true\n    weights: %s\n"
             "    nodes:\n      conv: {op: conv2d, in: image, filters: 2, kernel: 3}\n"
             "outputs: {y: {in: net.conv, npy: out/y.npy}}\n",
             weights);
    free(cli_file(folder, "one.yaml", text));
}

#define BIAS ",\"conv.bias\":" T("F32", "[2]", 72, 80) "}"

Test(weights, WGT_01_files_that_do_not_fit) {
    char *folder = cli_folder();
    put_model(folder, "w.safetensors");
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } cases[] = {
        {"{\"conv.weight\":" T("F32", "[2,1,3,3]", 0, 72) "}", 71,
         "w.safetensors: tensor 'conv.weight': its data ends at 72, the file has 71 bytes"},
        {"{\"conv.weight\":" T("F32", "[2,1,3,3]", 0, 72) "}", 76,
         "w.safetensors: 4 bytes at its end belong to no tensor"},
        {NULL, 0, "w.safetensors: the file is empty"},
        {"{\"conv.weight\":" T("F32", "[3,3,1,2]", 0, 72) BIAS, 80,
         "tensor 'conv.weight' is F32 [3, 3, 1, 2]; 'net.conv.weight' needs F32 [2, 1, 3, 3]"},
        {"{\"conv.weight\":" T("F32", "[2,3,3,1]", 0, 72) BIAS, 80, "that is dagrun's own order"},
        {"{\"conv.weight\":" T("F16", "[18]", 0, 36) ",\"conv.bias\":" T("F32", "[2]", 36, 44) "}",
         44, "tensor 'conv.weight' is F16 [18]; 'net.conv.weight' needs F32 [2, 1, 3, 3]"},
        {"{\"conv.weight\":" T("F16", "[36]", 0, 72) BIAS, 80,
         "tensor 'conv.weight' is F16 [36]; 'net.conv.weight' needs F32 [2, 1, 3, 3]"},
        {"{\"conv.weight\":" T("I32", "[2,1,3,3]", 0, 72) BIAS, 80,
         "tensor 'conv.weight' is I32 [2, 1, 3, 3]; 'net.conv.weight' needs F32 [2, 1, 3, 3] "
         "(F16, BF16 and F64 are read too)"},
        {"{\"conv.weigth\":" T("F32", "[2,1,3,3]", 0, 72) BIAS, 80,
         "no tensor 'conv.weight' or 'net.conv.weight' for F32 [2, 1, 3, 3]; did you mean "
         "'conv.weigth'?"},
        {"{\"conv.weight\":" T("F32", "[2,1,3,3]", 0, 72) "}", 72,
         "no tensor 'conv.bias' or 'net.conv.bias' for F32 [2]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(folder, "w.safetensors", cases[i].header, cases[i].data);
        struct cli_run r = dagrun("", folder, "one.yaml");
        cr_expect_eq(r.code, 2, "%zu: exit %d, %s", i, r.code, r.err);
        cr_expect(strstr(r.err, cases[i].says), "%zu: %s", i, r.err);
        cr_expect(strstr(r.err, "one.yaml:8:14: error: "), "%zu: %s", i, r.err);
        cr_expect_str_empty(r.out, "%zu: %s", i, r.out);
        cr_expect_not(is_there(folder, "out"), "%zu: it ran", i);
        cli_run_free(&r);
    }
    put(folder, "w.safetensors",
        "{\"conv.weight\":" T("F32", "[2,1,3,3]", 0, 72) ",\"extra\":" T("F32", "[2]", 80, 88) BIAS,
        88);
    struct cli_run r = dagrun("", folder, "one.yaml");
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect(strstr(r.err, "warning: ") && strstr(r.err, "1 tensor is not used: extra"), "%s",
              r.err);
    cr_expect(is_there(folder, "out/y.npy"));
    cli_run_free(&r);
    cli_folder_remove(folder);
}

/* Nothing is broadcast or cut: a bias of another shape is refused. */
Test(weights, CONV_07_a_bias_of_another_length) {
    char *folder = cli_folder();
    put_model(folder, "w.safetensors");
    static const struct {
        const char *bias;
        size_t data;
        const char *says;
    } cases[] = {
        {",\"conv.bias\":" T("F32", "[1]", 72, 76) "}", 76,
         "tensor 'conv.bias' is F32 [1]; 'net.conv.bias' needs F32 [2]"},
        {",\"conv.bias\":" T("F32", "[]", 72, 76) "}", 76,
         "tensor 'conv.bias' is F32 []; 'net.conv.bias' needs F32 [2]"},
        {",\"conv.bias\":" T("F32", "[3]", 72, 84) "}", 84,
         "tensor 'conv.bias' is F32 [3]; 'net.conv.bias' needs F32 [2]"},
        {",\"conv.bias\":" T("F32", "[1,2]", 72, 80) "}", 80,
         "tensor 'conv.bias' is F32 [1, 2]; 'net.conv.bias' needs F32 [2]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[512];
        snprintf(header, sizeof header, "{\"conv.weight\":" T("F32", "[2,1,3,3]", 0, 72) "%s",
                 cases[i].bias);
        put(folder, "w.safetensors", header, cases[i].data);
        struct cli_run r = dagrun("", folder, "one.yaml");
        cr_expect_eq(r.code, 2, "%zu: exit %d, %s", i, r.code, r.err);
        cr_expect(strstr(r.err, cases[i].says), "%zu: %s", i, r.err);
        cr_expect_not(is_there(folder, "out"), "%zu: it ran", i);
        cli_run_free(&r);
    }
    cli_folder_remove(folder);
}

Test(weights, WGT_01_missing_may_be_initialised) {
    char *folder = cli_folder();
    put_model(folder, "{file: w.safetensors, missing: init}");
    put(folder, "w.safetensors", "{\"net.conv.weight\":" T("F32", "[2,1,3,3]", 0, 72) "}", 72);
    struct cli_run r = dagrun("", folder, "one.yaml");
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect(strstr(r.err, "missing, with initial values: net.conv.bias\n"), "%s", r.err);
    cli_run_free(&r);
    r = dagrun("--check -v", folder, "one.yaml");
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect(strstr(r.out, "w.safetensors: 1 of 1 tensors taken, 1 initial values\n"), "%s",
              r.out);
    cr_expect(strstr(r.out, "net.conv.weight <- net.conv.weight  F32 [2, 1, 3, 3]\n"), "%s", r.out);
    cr_expect(strstr(r.out, "net.conv.bias <- initial value\n"), "%s", r.out);
    cli_run_free(&r);
    put_model(folder, "{file: w.safetensors, missing: perhaps}");
    r = dagrun("", folder, "one.yaml");
    cr_expect_eq(r.code, 2);
    cr_expect(strstr(r.err, "missing"), "%s", r.err);
    cli_run_free(&r);
    put_model(folder, "nowhere.safetensors"); /* a plan needs no weights */
    r = dagrun("--check", folder, "one.yaml");
    cr_expect_eq(r.code, 0, "%s", r.err);
    cr_expect(strstr(r.err, "nowhere.safetensors: No such file or directory; a run would need it"),
              "%s", r.err);
    cli_run_free(&r);
    cli_folder_remove(folder);
}

/* ---- maps ---- */

Test(weights, maps_replace_whole_segments) {
    struct dr_arena *a = dr_arena_create();
    struct dr_diag *d = dr_diag_create(a);
    static const struct {
        const char *map, *from, *to;
    } cases[] = {
        {"{l1: inc.double_conv, a: 0}", "l1.a.weight", "inc.double_conv.0.weight"},
        {"{l1: inc.double_conv, a: 0}", "l11.ab.weight", "l11.ab.weight"},
        {"{l1: x, l1.a: y}", "l1.a.weight", "y.weight"}, /* the longest first */
        {"{l1: x, l1.a: y}", "l1.b.weight", "x.b.weight"},
        {"{a: b, b: c}", "a.b.weight", "b.c.weight"}, /* once */
        {"{weight: w}", "l1.weight", "l1.w"},
        {"{a: b}", "a", "b"},
        {"{1: one}", "c.1.bias", "c.one.bias"},
        {"{x: y}", "weight", "weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = dr_printf(a, "m: %s\n", cases[i].map);
        const struct dr_yaml *y = dr_yaml_read(a, d, "m.yaml", text, strlen(text));
        cr_assert(y, "%s", dr_diag_text(d));
        cr_expect_str_eq(dr_weights_rename(a, dr_yaml_get(y, "m"), cases[i].from, NULL),
                         cases[i].to);
    }
    cr_expect_str_eq(dr_weights_rename(a, NULL, "l1.a.weight", NULL), "l1.a.weight");
    dr_arena_destroy(a);
}

/* ---- in process ---- */

static struct dr_session *start(const char *yaml, const char *load) {
    struct dr_session *s = dr_session_create();
    s->load = load;
    const bool ready = dr_session_load(s, yaml, NULL, 0) && dr_session_device(s, "cpu", 1) &&
                       dr_session_data(s, DR_MODE_INFER) &&
                       dr_session_plan(s, DR_MODE_INFER, NULL, NULL) && dr_session_start(s, NULL);
    cr_assert(ready, "%s%s", dr_diag_text(s->diag), s->status.text);
    return s;
}

static const float *state(struct dr_session *s, const char *name) {
    const struct dr_graph *g = s->main.graph;
    const struct dr_memory m = dr_session_memory(s);
    const uint32_t id = dr_map_get(g->value_by_name, name);
    cr_assert_neq(id, DR_NONE, "%s", name);
    float *x = dr_alloc(s->arena, (size_t)g->value.at[id].bytes);
    cr_assert_eq(dr_state_download(&m, s->main.plan, id, x).code, DR_OK);
    return x;
}

/* tests/data/make_safetensors.py: an element says where it stands in PyTorch's order. */
Test(weights, pytorch_names_and_layout) {
    static const char yaml[] =
        "dagrun: 1\nmodel: torch\n"
        "inputs: {image: {shape: [4, 8, 3], dtype: f32}, x: {shape: [6], dtype: f32}}\n"
        "data: {batch: 2, infer: {image: {synthetic: zeros}, x: {synthetic: zeros}}}\n"
        "blocks:\n  double:\n    nodes:\n"
        "      a: {op: conv2d, filters: 4, kernel: [2, 5]}\n      an: {op: batch_norm}\n"
        "subgraphs:\n"
        "  net:\n    frozen: true\n"
        "    weights: {file: " DR_SOURCE_DIR "/tests/data/torch.safetensors, prefix: \"module.\",\n"
        "              map: {d1: inc.double_conv, a: 0, an: 1}}\n"
        "    nodes:\n      d1: {block: double, in: image}\n"
        "      up: {op: conv_transpose2d, filters: 2, kernel: [3, 1]}\n"
        "      fc: {op: linear, in: x, features: 2}\n"
        "outputs: {y: {in: net.up}, z: {in: net.fc}}\n";
    char *folder = cli_folder(), *path = cli_file(folder, "t.yaml", yaml);
    struct dr_session *s = start(path, NULL);
    cr_expect_eq(dr_diag_warnings(s->diag), 0u, "%s", dr_diag_text(s->diag));
    const float *x = state(s, "net.d1.a.weight"); /* [4, 2, 5, 3], there [4, 3, 2, 5] */
    for (int o = 0; o < 4; o++)
        for (int h = 0; h < 2; h++)
            for (int w = 0; w < 5; w++)
                for (int i = 0; i < 3; i++)
                    cr_assert_eq(*x++, (float)(1000 * o + 100 * i + 10 * h + w));
    x = state(s, "net.up.weight"); /* [4, 3, 1, 2], there IOHW [4, 2, 3, 1] */
    for (int i = 0; i < 4; i++)
        for (int h = 0; h < 3; h++)
            for (int o = 0; o < 2; o++)
                cr_assert_eq(*x++, (float)(1000 * i + 100 * o + 10 * h));
    x = state(s, "net.fc.weight"); /* F64 there */
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < 6; i++)
            cr_assert_eq(*x++, (float)(10 * o + i));
    static const char *const leaves[] = {"net.d1.a.bias", "net.d1.an.weight", "net.d1.an.bias",
                                         "net.d1.an.running_mean", "net.d1.an.running_var"};
    for (int k = 0; k < 5; k++)
        for (int i = 0; i < 4; i++)
            cr_expect_eq(state(s, leaves[k])[i], (float)(10 * k + i), "%s", leaves[k]);
    cr_expect_eq(state(s, "net.fc.bias")[1], 1.0f); /* F16 there */
    dr_session_destroy(s);
    free(path);
    cli_folder_remove(folder);
}

/* Without a prefix the name without the subgraph comes first, then the full one; a node's `weights`
 * holds for it alone; --load takes full names before what the YAML says. */
Test(weights, names_are_tried_in_order) {
    static const char yaml[] =
        "dagrun: 1\nmodel: names\ninputs: {x: {shape: [1], dtype: f32}}\n"
        "data: {batch: 1, infer: {x: {synthetic: zeros}}}\n"
        "subgraphs:\n  net:\n    frozen: true\n    weights: w.safetensors\n    nodes:\n"
        "      a: {op: linear, in: x, features: 1, bias: false}\n"
        "      b: {op: linear, features: 1, bias: false}\n"
        "      c: {op: linear, features: 1, bias: false, weights: {file: w.safetensors, map: {c: "
        "d}}}\n"
        "      r: {op: linear, features: 1, bias: false, weights: random}\n"
        "outputs: {y: {in: net.r}}\n";
    char *folder = cli_folder(), *path = cli_file(folder, "n.yaml", yaml), load[1024];
#define W(i, j) T("F32", "[1,1]", i, j)
    put(folder, "w.safetensors",
        "{\"a.weight\":" W(0, 4) ",\"net.a.weight\":" W(4, 8) ",\"net.b.weight\":" W(
            8, 12) ",\"c.weight\":" W(12, 16) ",\"d.weight\":" W(16, 20) "}",
        20);
    struct dr_session *s = start(path, NULL);
    cr_expect_eq(state(s, "net.a.weight")[0], 1.0f);
    cr_expect_eq(state(s, "net.b.weight")[0], 3.0f);
    cr_expect_eq(state(s, "net.c.weight")[0], 5.0f);
    cr_expect(strstr(dr_diag_text(s->diag), "2 tensors are not used: net.a.weight, c.weight"));
    dr_session_destroy(s);
    put(folder, "l.safetensors", "{\"net.r.weight\":" W(0, 4) ",\"net.a.weight\":" W(4, 8) "}", 8);
    snprintf(load, sizeof load, "%s/l.safetensors", folder);
    s = start(path, load);
    cr_expect_eq(state(s, "net.r.weight")[0], 1.0f);
    cr_expect_eq(state(s, "net.a.weight")[0], 2.0f);
    cr_expect_eq(state(s, "net.b.weight")[0], 3.0f);
    dr_session_destroy(s);
    free(path);
    cli_folder_remove(folder);
}

/* Relative to the YAML, wherever it is called from, blanks and a symbolic link included. */
Test(weights, WGT_04_paths) {
    char *folder = cli_folder(), path[1024], link[1024];
    snprintf(path, sizeof path, "%s/a b/x", folder);
    cr_assert_eq(dr_make_folders(path), 0);
    snprintf(path, sizeof path, "%s/a b", folder);
    put_model(path, "\"w 1.bin\"");
    put(path, "w 1.bin", "{\"conv.weight\":" T("F32", "[2,1,3,3]", 0, 72) BIAS, 80);
    snprintf(path, sizeof path, "%s/a b/one.yaml", folder);
    snprintf(link, sizeof link, "%s/a b/link.yaml", folder);
    cr_assert_eq(symlink("one.yaml", link), 0);
    char here[1024];
    cr_assert(getcwd(here, sizeof here));
    const char *const from[] = {"/", folder, here};
    const char *const names[] = {path, link};
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(chdir(from[i / 2]), 0);
        struct dr_session *s = start(names[i % 2], NULL);
        cr_expect_eq(state(s, "net.conv.bias")[1], 20.0f);
        dr_session_destroy(s);
    }
    snprintf(path, sizeof path, "%s/a b", folder);
    put_model(path, "../up.safetensors");
    cr_assert_eq(chdir(path), 0);
    struct cli_run r = cli_run(DR_BINARY, "one.yaml");
    cr_expect_eq(r.code, 2);
    cr_expect(strstr(r.err, "a b/../up.safetensors: No such file"), "%s", r.err);
    cli_run_free(&r);
    char *far = malloc(5010);
    memset(far, 'x', 5000);
    strcpy(far + 5000, ".bin");
    snprintf(path, sizeof path, "%s/a b", folder);
    char *yaml = malloc(8000);
    snprintf(yaml, 8000,
             "dagrun: 1\nmodel: far\ninputs: {x: {shape: [1], dtype: f32}}\n"
             "data: {batch: 1, infer: {x: {synthetic: zeros}}}\n"
             "subgraphs: {net: {weights: %s, nodes: {a: {op: linear, in: x, features: 1}}}}\n"
             "outputs: {y: {in: net.a}}\n",
             far);
    free(cli_file(path, "far.yaml", yaml));
    r = cli_run(DR_BINARY, "far.yaml");
    cr_expect_eq(r.code, 2);
    cr_expect(strstr(r.err, "is too long"), "%.300s", r.err);
    cli_run_free(&r);
    free(far);
    free(yaml);
    cr_assert_eq(chdir(here), 0);
    cli_folder_remove(folder);
}
