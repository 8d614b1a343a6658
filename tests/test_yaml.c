/* The YAML reader, --set and strict scalars. */
#include "graph/scalar.h"

#include <criterion/criterion.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static struct dr_arena *arena;
static struct dr_diag *diag;

static void setup(void) {
    arena = dr_arena_create();
    diag = dr_diag_create(arena);
}

static void teardown(void) {
    dr_arena_destroy(arena);
}

TestSuite(yaml, .init = setup, .fini = teardown);
TestSuite(scalar, .init = setup, .fini = teardown);

static const struct dr_yaml *read_n(const char *text, size_t n) {
    diag = dr_diag_create(arena);
    return dr_yaml_read(arena, diag, "m.yaml", text, n);
}

static const struct dr_yaml *read_ok(const char *text) {
    const struct dr_yaml *y = read_n(text, strlen(text));
    cr_assert(y, "%s", dr_diag_text(diag));
    cr_assert_eq(dr_diag_errors(diag), 0);
    return y;
}

/* Refused, and the messages begin or go on with `want`. */
static void read_bad_n(const char *text, size_t n, const char *want) {
    cr_assert_null(read_n(text, n), "accepted: %.200s", text);
    cr_assert_gt(dr_diag_errors(diag), 0);
    cr_assert(strstr(dr_diag_text(diag), want), "%.200s\ngot:\n%s\nwant:\n%s", text,
              dr_diag_text(diag), want);
}

static void read_bad(const char *text, const char *want) {
    read_bad_n(text, strlen(text), want);
}

/* The tree in one line: {a: "b", c: [d]}. */
static void add_flat(struct dr_text *t, const struct dr_yaml *y) {
    if (y->kind == DR_YAML_SCALAR) {
        cr_assert_eq(strlen(y->text), y->n);
        dr_text_add(t, y->quoted ? "\"%s\"" : "%s", y->text);
        return;
    }
    bool map = y->kind == DR_YAML_MAPPING;
    dr_text_add(t, map ? "{" : "[");
    uint32_t size = 1;
    for (uint32_t i = 0; i < y->n; i++) {
        dr_text_add(t, i ? ", " : "");
        if (map) {
            add_flat(t, y->pair[i].key);
            dr_text_add(t, ": ");
        }
        add_flat(t, map ? y->pair[i].value : y->item[i]);
        size += map ? y->pair[i].key->size + y->pair[i].value->size : y->item[i]->size;
    }
    cr_assert_eq(y->size, size);
    dr_text_add(t, map ? "}" : "]");
}

static const char *flat(const struct dr_yaml *y) {
    struct dr_text t = {.arena = arena};
    add_flat(&t, y);
    return t.at;
}

static void expect_mark(const struct dr_yaml *y, uint32_t line, uint32_t col, uint32_t len) {
    cr_assert(y->mark.line == line && y->mark.col == col && y->mark.len == len,
              "'%s' is at %u:%u+%u, not %u:%u+%u", y->text ? y->text : "", y->mark.line,
              y->mark.col, y->mark.len, line, col, len);
}

static char *repeat(const char *before, const char *s, size_t times, const char *after) {
    struct dr_text t = {.arena = arena};
    dr_text_add(&t, "%s", before);
    for (size_t i = 0; i < times; i++)
        dr_text_bytes(&t, s, strlen(s));
    dr_text_add(&t, "%s", after);
    return t.at;
}

/* ---- trees and places ---- */
Test(yaml, trees) {
    static const struct {
        const char *text, *want;
    } c[] = {
        {"a: 1", "{a: 1}"},
        {"{}", "{}"},
        {"a:\nb: ~\nc: ''\n", "{a: , b: ~, c: \"\"}"},
        {"a: [1, [2, 3], {b: c}]\n", "{a: [1, [2, 3], {b: c}]}"},
        {"a:\n- x\n- y z\nb: |\n  text\n", "{a: [x, y z], b: \"text\n\"}"},
        {"# nothing\n---\na: \"x\\ty\"\n...\n", "{a: \"x\ty\"}"},
        {"%YAML 1.1\n---\na: 1\n", "{a: 1}"},
        {"\xEF\xBB\xBF"
         "a: gr\xC3\xB6\xC3\x9F"
         "e\n",
         "{a: gr\xC3\xB6\xC3\x9F"
         "e}"},
        {"a: &a 1\nb: &b [x, *a]\nc: {p: *b}\n", "{a: 1, b: [x, 1], c: {p: [x, 1]}}"},
        {"a: &x 1\nb: &x 2\nc: *x\n", "{a: 1, b: 2, c: 2}"},
        {"a: &x k\n*x : v\n", "{a: k, k: v}"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        const char *got = flat(read_ok(c[i].text));
        cr_assert_str_eq(got, c[i].want, "%s\ngot %s\nwant %s", c[i].text, got, c[i].want);
    }
    const struct dr_yaml *y = read_ok("a: 1\nb: 2\n");
    cr_assert_str_eq(dr_yaml_get(y, "b")->text, "2");
    cr_assert_null(dr_yaml_get(y, "c"));
    cr_assert_null(dr_yaml_get(dr_yaml_get(y, "b"), "c"));
}

Test(yaml, places_count_bytes) {
    const struct dr_yaml *y = read_ok("gr\xC3\xB6\xC3\x9F"
                                      "e: \xE6\x97\xA5\xE6\x9C\xAC\n"
                                      "b: &x 3x\n"
                                      "c: &y\n"
                                      "  d: 'two words'\n"
                                      "e: &z # comment\n"
                                      "  [1, *x]\n"
                                      "f:\n");
    expect_mark(y, 1, 1, 0);
    expect_mark(y->pair[0].key, 1, 1, 7);
    expect_mark(y->pair[0].value, 1, 10, 6);
    expect_mark(y->pair[1].value, 2, 7, 2);
    expect_mark(y->pair[2].value, 4, 3, 0);
    expect_mark(y->pair[2].value->pair[0].value, 4, 6, 11);
    expect_mark(y->pair[3].value, 6, 3, 0);
    cr_assert_eq(y->pair[3].value->item[1], y->pair[1].value, "aliases share");
    expect_mark(y->pair[4].value, 7, 3, 0);
}

Test(yaml, WGT_04_windows_line_ends) {
    static const char *const text[] = {
        "weights: \"w 1.bin\"\n\nlist:\n  - cat 1.png\n  - b\nlast: end",
        "weights: \"w 1.bin\"\r\n\r\nlist:\r\n  - cat 1.png\r\n  - b\r\nlast: end",
        "weights: \"w 1.bin\"\r\rlist:\r  - cat 1.png\r  - b\rlast: end",
    };
    for (size_t i = 0; i < 3; i++) {
        const struct dr_yaml *y = read_ok(text[i]);
        cr_assert_str_eq(flat(y), "{weights: \"w 1.bin\", list: [cat 1.png, b], last: end}");
        expect_mark(dr_yaml_get(y, "list")->item[0], 4, 5, 9);
        expect_mark(dr_yaml_get(y, "last"), 6, 7, 3);
    }
    /* Other Unicode line ends are none to an editor. */
    const struct dr_yaml *y = read_ok("a: \"x\xE2\x80\xA8y\xC2\x85z\"\nb: 1\n");
    expect_mark(dr_yaml_get(y, "b"), 2, 4, 1);
}

Test(yaml, merge_keys) {
    static const struct {
        const char *text, *want;
    } c[] = {
        {"a: &a {p: 1, q: 2}\nb: {<<: *a, q: 3}\n", "{a: {p: 1, q: 2}, b: {p: 1, q: 3}}"},
        {"a: &a {p: 1}\nb: {q: 2, <<: *a, r: 3}\n", "{a: {p: 1}, b: {q: 2, p: 1, r: 3}}"},
        {"a: &a {p: 1}\nb: &b {p: 2, q: 2}\nc: {<<: [*a, *b]}\n",
         "{a: {p: 1}, b: {p: 2, q: 2}, c: {p: 1, q: 2}}"},
        {"a: {<<: {p: 1}}\n", "{a: {p: 1}}"},
        {"a: {\"<<\": {p: 1}}\n", "{a: {\"<<\": {p: 1}}}"},
        {"a: {<<: []}\n", "{a: {}}"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        cr_assert_str_eq(flat(read_ok(c[i].text)), c[i].want, "%s", c[i].text);
    read_bad("a: {<<: 1}\n", "m.yaml:1:9: error: '<<' merges a mapping or a list of mappings\n");
    read_bad("a: {<<: [{}, 1]}\n", "m.yaml:1:9: error: '<<' merges");
    read_bad("a: {<<: {}, <<: {}}\n", "m.yaml:1:13: error: duplicate key '<<'");
}

/* ---- refusals ---- */
Test(yaml, refused_files) {
    static const struct {
        const char *text, *want;
    } c[] = {
        {"", "m.yaml:1:1: error: the file is empty\n"},
        {"# only\n\n", "m.yaml:1:1: error: the file is empty\n"},
        {"---\n", "error: the file is empty\n"},
        {"- a\n", "m.yaml:1:1: error: the file must be a mapping"},
        {"text\n", "m.yaml:1:1: error: the file must be a mapping"},
        {"a: 1\n---\nb: 2\n", "m.yaml:2:1: error: a second document"},
        {"a: 1\n---\n", "m.yaml:2:1: error: a second document"},
        {"a: !!str 3\n", "m.yaml:1:4: error: the tag '!!str' is not supported"},
        {"a: !foo {}\n", "m.yaml:1:4: error: the tag '!foo' is not supported"},
        {"a: ! x\n", "m.yaml:1:4: error: the tag '!' is not supported"},
        {"%TAG ! x\n---\na: 1\n", "m.yaml:1:1: error: %TAG is not supported"},
        {"a: 1\n? [x]\n: 2\n",
         "m.yaml:2:3: error: a key must be a single word or text, not a list"},
        {"{a: 1}: 2\n", "m.yaml:1:1: error: a key must be a single word or text, not a mapping"},
        {"a: *b\n", "m.yaml:1:4: error: no anchor '&b' above this alias\n"},
        {"a: &base 1\nb: *bsae\n", "m.yaml:2:4: error: no anchor '&bsae' above this alias; did "
                                   "you mean 'base'?\n    2 | b: *bsae\n      |    ^~~~~\n"},
        {"a: [1, 2\nb: 3\n", "m.yaml:2:2: error: not YAML: did not find expected ',' or ']'\n"
                             "    2 | b: 3\n"
                             "      |  ^\n"
                             "m.yaml:1:4: note: while parsing a flow sequence that begins here\n"},
        {"a:\n\tb: 1\n", "m.yaml:2:1: error: not YAML: found character that cannot start any "
                         "token (a tab cannot indent: use spaces)\n"},
        {"a: \"x\n", "error: not YAML: found unexpected end of stream"},
        {"a: b: c\n", "m.yaml:1:5: error: not YAML: mapping values are not allowed"},
        {"a: \"x\\0y\"\n", "m.yaml:1:4: error: a NUL character in a text\n"},
        {"a: gr\xF6\xDF"
         "e\n",
         "m.yaml:1:6: error: the byte 0xF6 is not UTF-8 text\n"},
        {"a: 1\nb: \xED\xA0\x80\n", "m.yaml:2:4: error: the byte 0xED is not UTF-8 text\n"},
        {"a: \x07\n", "m.yaml:1:4: error: the control character U+0007\n"},
        {"\xFF\xFE", "m.yaml:1:1: error: this is UTF-16 text: save it as UTF-8\n"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        read_bad(c[i].text, c[i].want);
    read_bad_n("a: 1\nb: \0\n", 10, "m.yaml:2:4: error: a NUL byte: this is not a text file\n");
}

Test(yaml, several_errors_in_one_run) {
    read_bad("a: 1\na: 2\nb: *c\nd: !!int 3\ne: {<<: 4}\n", "m.yaml:5:9: error: '<<'");
    cr_assert_eq(dr_diag_errors(diag), 4);
}

Test(yaml, YML_03_duplicate_keys) {
    read_bad("train:\n"
             "  a: 1\n"
             "  lr: 0.1\n"
             "  b: 2\n"
             "  lr: 0.001\n",
             "m.yaml:5:3: error: duplicate key 'lr': it stands on line 3 already\n"
             "    5 |   lr: 0.001\n"
             "      |   ^~\n"
             "m.yaml:3:3: note: the first 'lr' is here\n");
    cr_assert_eq(dr_diag_errors(diag), 1);
    read_bad("lr: 1\n\"lr\": 2\n'lr': 3\n", "m.yaml:2:1: error: duplicate key 'lr': it stands on "
                                            "line 1 already\n");
    cr_assert_eq(dr_diag_errors(diag), 2, "each one is named");
    read_bad("nodes: {a: 1}\nnodes: {b: 2}\n", "m.yaml:2:1: error: duplicate key 'nodes'");
    read_bad("a: [{x: 1, x: 2}]\n", "m.yaml:1:12: error: duplicate key 'x'");
    read_ok("a: {lr: 1}\nb: {lr: 1}\nlr: 1\nLr: 1\n");
    /* Many keys: found by a map, not by comparing each with each. */
    struct dr_text t = {.arena = arena};
    for (int i = 0; i < 200000; i++)
        dr_text_add(&t, "k%d: v\n", i);
    read_ok(t.at);
    dr_text_add(&t, "k7: again\n");
    read_bad(t.at, "m.yaml:200001:1: error: duplicate key 'k7': it stands on line 8 already");
}

/* Seconds of this process's own work. */
static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Ten levels of nine aliases each: 9^10 leaves. `leaf` is level 0. */
static const char *bomb(void) {
    struct dr_text t = {.arena = arena};
    dr_text_add(&t, "a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for (int level = 1; level < 10; level++) {
        dr_text_add(&t, "a%d: &a%d [", level, level);
        for (int i = 0; i < 9; i++)
            dr_text_add(&t, "%s*a%d", i ? ", " : "", level - 1);
        dr_text_add(&t, "]\n");
    }
    return t.at;
}

Test(yaml, YML_05_alias_bombs_and_cycles) {
    double start = seconds();
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    /* Level k has (9^(k+1) * 9 - 1) / 8 nodes or so; the sum passes a million inside level 6, line
     * 7: levels 0 to 5 hold 10 + 91 + 820 + 7381 + 66430 + 597871 = 672603 nodes. */
    read_bad(bomb(), "m.yaml:7:10: error: more than 1000000 nodes after aliases are expanded\n"
                     "    7 | a6: &a6 [*a5, ");
    read_bad("a: &a [*a]\n", "m.yaml:1:8: error: the alias '*a' stands inside its own anchor\n"
                             "    1 | a: &a [*a]\n"
                             "      |        ^~\n"
                             "m.yaml:1:7: note: the anchor '&a' begins here\n");
    read_bad("a: &a {in: *a}\n", "m.yaml:1:12: error: the alias '*a' stands inside its own anchor");
    read_bad("a: &a\n  b: {<<: *a}\n", "m.yaml:2:11: error: the alias '*a' stands inside");

    /* Merges of merges are bounded too. */
    char *pairs = repeat("m0: &m0 {z: 1", "", 0, "");
    for (int i = 0; i < 1000; i++)
        pairs = i % 100 ? pairs : dr_printf(arena, "%s, k%d: 1, l%d: 1", pairs, i, i);
    struct dr_text t = {.arena = arena};
    dr_text_add(&t, "%s}\nx: [", pairs);
    for (int i = 0; i < 40000; i++)
        dr_text_add(&t, "{<<: *m0}, ");
    dr_text_add(&t, "]\n");
    read_bad(t.at, "m.yaml:2:");
    cr_assert(strstr(dr_diag_text(diag), "more than 1000000 nodes"));
    getrusage(RUSAGE_SELF, &after);
    cr_assert_lt(seconds() - start, 10.0, "bounded work, not 3.5e9 leaves");
    cr_assert_lt(after.ru_maxrss - before.ru_maxrss, 200 << 10, "KiB");

    read_ok("a: &a {op: relu}\nb: &b [1, 2]\nc: &c x\nd: [*a, *a, *b, *b, *c]\n");
}

Test(yaml, YML_06_deep_nesting) {
    struct rlimit small = {.rlim_cur = 256 << 10, .rlim_max = RLIM_INFINITY};
    (void)setrlimit(RLIMIT_STACK, &small);
    double start = seconds();
    char *closed = repeat("a: ", "[", 100000, repeat("", "]", 100000, "\n"));
    read_bad(closed, "m.yaml:1:67: error: nesting deeper than 64 levels\n");
    read_bad(repeat("", "{a: ", 100000, repeat("", "}", 100000, "\n")),
             "m.yaml:1:257: error: nesting deeper than 64 levels\n");
    read_bad(repeat("", "[\n", 100000, ""), "m.yaml:65:1: error: nesting deeper than 64 levels\n");
    read_bad(repeat("", "? ", 100000, ""), "error: nesting deeper than 64 levels\n");
    read_bad(repeat("a:\n", "- ", 100000, ""), "error: nesting deeper than 64 levels\n");
    struct dr_text t = {.arena = arena};
    for (int i = 0; i < 3000; i++)
        dr_text_add(&t, "%*sa:\n", i, "");
    read_bad(t.at, "m.yaml:65:65: error: nesting deeper than 64 levels\n");

    /* The last level that is allowed: the root and 63 lists. */
    read_ok(repeat("a: ", "[", 63, repeat("", "]", 63, "\n")));
    read_bad(repeat("a: ", "[", 64, repeat("", "]", 64, "\n")), "m.yaml:1:67: error: nesting");

    /* Depth through aliases counts as what it expands to. */
    t = (struct dr_text){.arena = arena};
    dr_text_add(&t, "l:\n- &a0 []\n");
    for (int i = 1; i < 100; i++)
        dr_text_add(&t, "- &a%d [*a%d]\n", i, i - 1);
    read_bad(t.at, "m.yaml:64:9: error: nesting deeper than 64 levels once the alias is expanded");

    t = (struct dr_text){.arena = arena};
    dr_text_add(&t, "l:\n");
    for (int i = 0; i < 60000; i++)
        dr_text_add(&t, "- &a%d x%d\n", i, i);
    dr_text_add(&t, "z: *a59999\n");
    cr_assert_str_eq(dr_yaml_get(read_ok(t.at), "z")->text, "x59999");
    cr_assert_lt(seconds() - start, 10.0, "linear, even with sanitizers");
    t = (struct dr_text){.arena = arena};
    dr_text_add(&t, "l:\n");
    for (int i = 0; i < 100001; i++)
        dr_text_add(&t, "- &a%d x\n", i);
    read_bad(t.at, "m.yaml:100002:");
    cr_assert(strstr(dr_diag_text(diag), "more than 100000 anchors"));
    cr_assert_eq(dr_diag_errors(diag), 1);
}

Test(yaml, budgets) {
    /* 1 root + key + list + 999,997 items: exactly a million. */
    read_ok(repeat("a: [x", ",x", 999996, "]"));
    read_bad(repeat("a: [x", ",x", 999997, "]"), "error: more than 1000000 nodes");
    char *fits = repeat("a: 1\n#", "x", (16 << 20) - 6, "");
    read_ok(fits);
    char *large = repeat("a: 1\n#", "x", (16 << 20) - 5, "");
    read_bad(large, "error: 'm.yaml' is larger than 16 MiB\n");
}

Test(yaml, files) {
    char root[] = "/tmp/dr_yaml_XXXXXX";
    cr_assert(mkdtemp(root));
    char *path = dr_printf(arena, "%s/a b.yaml", root);
    cr_assert_eq(dr_write_file(path, "a: 3x\n", 6), 0);
    const struct dr_yaml *y = dr_yaml_read_file(arena, diag, path);
    cr_assert_str_eq(flat(y), "{a: 3x}");
    int64_t v;
    cr_assert_not(dr_scalar_int(diag, dr_yaml_get(y, "a"), "conv2d 'c1': kernel", 1, 9, &v));
    cr_assert_str_eq(dr_diag_text(diag),
                     dr_printf(arena,
                               "%s:1:4: error: conv2d 'c1': kernel: '3x' is not a whole number\n"
                               "    1 | a: 3x\n"
                               "      |    ^~\n",
                               path));
    diag = dr_diag_create(arena);
    cr_assert_null(dr_yaml_read_file(arena, diag, root));
    cr_assert_str_eq(dr_diag_text(diag),
                     dr_printf(arena, "error: cannot read '%s': Is a directory\n", root));
    diag = dr_diag_create(arena);
    cr_assert_null(dr_yaml_read_file(arena, diag, dr_printf(arena, "%s/none.yaml", root)));
    cr_assert(strstr(dr_diag_text(diag), "/none.yaml': No such file or directory\n"));
    diag = dr_diag_create(arena);
    cr_assert_null(dr_yaml_read_file(arena, diag, repeat("/", "p", 5000, "")));
    cr_assert(strstr(dr_diag_text(diag), "error: cannot read '/ppp"));
    size_t n = (16 << 20) + 1;
    char *large = repeat("", "#", n, "");
    cr_assert_eq(dr_write_file(path, large, n), 0);
    cr_assert_null(dr_yaml_read_file(arena, diag, path));
    cr_assert(strstr(dr_diag_text(diag), "a b.yaml' is larger than 16 MiB\n"));
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(rmdir(root), 0);
}

/* ---- --set ---- */
Test(yaml, set) {
    static const char text[] = "train: {steps: 5}\nl: &l [1, {k: v}]\nm: *l\nempty:\n";
    static const struct {
        const char *set, *want;
    } c[] = {
        {"train.steps=10", "{train: {steps: 10}, l: [1, {k: v}], m: [1, {k: v}], empty: }"},
        {"train.lr={base: 1, x: [a]}",
         "{train: {steps: 5, lr: {base: 1, x: [a]}}, l: [1, {k: v}], m: [1, {k: v}], empty: }"},
        {"l.1.k=w", "{train: {steps: 5}, l: [1, {k: w}], m: [1, {k: v}], empty: }"},
        {"l.0=[]", "{train: {steps: 5}, l: [[], {k: v}], m: [1, {k: v}], empty: }"},
        {"l=", "{train: {steps: 5}, l: , m: [1, {k: v}], empty: }"},
        {"empty.a.b=c=d",
         "{train: {steps: 5}, l: [1, {k: v}], m: [1, {k: v}], empty: {a: {b: c=d}}}"},
        {"x.y= \"q\" # comment",
         "{train: {steps: 5}, l: [1, {k: v}], m: [1, {k: v}], empty: , x: {y: \"q\"}}"},
    };
    const struct dr_yaml *root = read_ok(text);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        const struct dr_yaml *y = dr_yaml_set(arena, diag, root, c[i].set);
        cr_assert(y, "%s: %s", c[i].set, dr_diag_text(diag));
        cr_assert_str_eq(flat(y), c[i].want, "%s\ngot %s", c[i].set, flat(y));
    }
    cr_assert_str_eq(flat(root), "{train: {steps: 5}, l: [1, {k: v}], m: [1, {k: v}], empty: }",
                     "the old tree is as it was");
    cr_assert_eq(dr_diag_errors(diag), 0);
}

Test(yaml, set_errors) {
    static const struct {
        const char *set, *want;
    } c[] = {
        {"train.steps",
         "--set train.steps:1:1: error: --set needs KEY=VALUE, like 'train.steps=10'\n"},
        {"=1", "--set =1:1:1: error: an empty name in a path like 'train.steps'\n"},
        {"a..b=1", "--set a..b=1:1:3: error: an empty name in a path"},
        {"train.steps.x=1", "--set train.steps.x=1:1:13: error: no 'x' here: 'steps' is a single "
                            "value\n"
                            "    1 | train.steps.x=1\n"
                            "      |             ^\n"
                            "m.yaml:1:16: note: it is set here\n"},
        {"l.2=1", "--set l.2=1:1:3: error: '2' is not an item of this list, which has 2 (from 0)"},
        {"l.-1=1", "error: '-1' is not an item of this list"},
        {"l.99999999999999999999=1", "error: '99999999999999999999' is not an item"},
        {"l.x=1", "error: 'x' is not an item of this list"},
        {"train.steps=[1", "--set train.steps=[1:1:15: error: not YAML: did not find expected"},
        {"train.steps=a\n---\nb", "error: a second document"},
        {"train.steps=*l", "error: no anchor '&l' above this alias\n"},
        {"tr\xFFin=1", "error: the byte 0xFF is not UTF-8 text\n"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        const struct dr_yaml *root = read_ok("train: {steps: 5}\nl: [1, 2]\n");
        cr_assert_null(dr_yaml_set(arena, diag, root, c[i].set), "%s", c[i].set);
        const char *got = dr_diag_text(diag);
        cr_assert(strstr(got, c[i].want), "%s\ngot:\n%s", c[i].set, got);
    }
    /* The value's place is in the assignment. */
    const struct dr_yaml *y = dr_yaml_set(arena, diag, read_ok("a: 1\n"), "train.steps=ten");
    int64_t v;
    cr_assert_not(
        dr_scalar_int(diag, dr_yaml_get(dr_yaml_get(y, "train"), "steps"), "steps", 1, 9, &v));
    cr_assert_str_eq(dr_diag_text(diag),
                     "--set train.steps=ten:1:13: error: steps: 'ten' is not a whole number\n"
                     "    1 | train.steps=ten\n"
                     "      |             ^~~\n");
    /* Budgets hold for the tree that results. */
    const struct dr_yaml *root = read_ok("a: 1\n");
    const char *path = repeat("p", ".p", 61, "");
    cr_assert(dr_yaml_set(arena, diag, root, dr_printf(arena, "%s=[[1]]", path)));
    cr_assert_null(dr_yaml_set(arena, diag, root, dr_printf(arena, "%s=[[[1]]]", path)));
    cr_assert_null(dr_yaml_set(arena, diag, root, repeat("p", ".p", 100000, "=1")));
    root = read_ok(repeat("a: [x", ",x", 600000, "]"));
    cr_assert_null(dr_yaml_set(arena, diag, root, repeat("b=[x", ",x", 600000, "]")));
    cr_assert(strstr(dr_diag_text(diag), "more than 1000000 nodes once this is set"));
}

/* ---- scalars ---- */
static const struct dr_yaml *value_of(const char *text) {
    return dr_yaml_get(read_ok(dr_printf(arena, "v: %s\n", text)), "v");
}

static void expect_error(const char *want) {
    const char *got = dr_diag_text(diag);
    cr_assert(strstr(got, dr_printf(arena, "error: %s\n", want)), "got:\n%s\nwant: %s", got, want);
}

static void numbers(void) {
    static const char *const milli[] = {"1e-3",  "1E-3",  ".001",     "+1e-3",
                                        "1.e-3", "0.001", "\"1e-3\"", "00.1e-2"};
    double f = 0;
    int64_t v = 0;
    for (size_t i = 0; i < sizeof milli / sizeof *milli; i++) {
        cr_assert(dr_scalar_float(diag, value_of(milli[i]), "lr", 0, 1, &f), "%s", milli[i]);
        cr_assert_eq(f, 0.001, "%s", milli[i]);
    }
    static const char *const no_float[] = {
        "nan", ".nan", ".inf",   "-.inf",  "inf",  "1,5", "0x1p-3", "1_000", "1e",  "e3",      ".",
        "''",  "1 2",  "\" 1\"", "\"1 \"", "1.5f", "+",   "--1",    "~",     "1e+", "\"1\\n\""};
    for (size_t i = 0; i < sizeof no_float / sizeof *no_float; i++) {
        const struct dr_yaml *y = value_of(no_float[i]);
        cr_assert_not(dr_scalar_float(diag, y, "lr", -INFINITY, INFINITY, &f), "%s", no_float[i]);
        cr_assert(strstr(dr_diag_text(diag), "' is not a number\n"));
    }
    static const struct {
        const char *text;
        int64_t want;
    } whole[] = {
        {"3", 3},
        {"\"3\"", 3},
        {"010", 10},
        {"08", 8},
        {"+7", 7},
        {"-1", -1},
        {"-0", 0},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"000000000000000000000000000000012", 12},
    };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        cr_assert(dr_scalar_int(diag, value_of(whole[i].text), "n", INT64_MIN, INT64_MAX, &v));
        cr_assert_eq(v, whole[i].want, "%s", whole[i].text);
    }
    static const char *const no_int[] = {"0x10", "0o10", "1_000", "3.0",   "3x",  "''",
                                         "1e3",  "~",    "+",     "\"-\"", "3 4", "\"3 \""};
    for (size_t i = 0; i < sizeof no_int / sizeof *no_int; i++) {
        const struct dr_yaml *y = value_of(no_int[i]);
        cr_assert_not(dr_scalar_int(diag, y, "kernel", 1, 99, &v), "%s", no_int[i]);
        expect_error(dr_printf(arena, "kernel: '%s' is not a whole number", y->text));
    }
}

Test(scalar, YML_01_numbers) {
    numbers();
    int64_t v = 77;
    double f = 77;
    static const struct {
        const char *text, *want;
        int64_t min, max;
    } range[] = {
        {"-1", "k: '-1' is out of range (1 to 99)", 1, 99},
        {"100", "k: '100' is out of range (1 to 99)", 1, 99},
        {"99999999999999999999", "k: '99999999999999999999' is out of range (1 to 99)", 1, 99},
        {"-1", "k: '-1' is out of range (at least 0)", 0, INT64_MAX},
        {"9223372036854775808",
         "k: '9223372036854775808' is out of range (0 to 9223372036854775807)", 0, INT64_MAX},
    };
    for (size_t i = 0; i < sizeof range / sizeof *range; i++) {
        const struct dr_yaml *y = value_of(range[i].text);
        cr_assert_not(dr_scalar_int(diag, y, "k", range[i].min, range[i].max, &v));
        expect_error(range[i].want);
    }
    cr_assert_not(dr_scalar_float(diag, value_of("1.5"), "p", 0, 1, &f));
    expect_error("p: '1.5' is out of range (0 to 1)");
    cr_assert_not(dr_scalar_float(diag, value_of("-1e-9"), "p", 0, INFINITY, &f));
    expect_error("p: '-1e-9' is out of range (at least 0)");
    cr_assert_not(dr_scalar_float(diag, value_of("2"), "p", -INFINITY, 0.5, &f));
    expect_error("p: '2' is out of range (at most 0.5)");
    cr_assert_not(dr_scalar_float(diag, value_of("1e999"), "p", -INFINITY, INFINITY, &f));
    expect_error("p: '1e999' is out of range");
    cr_assert_not(dr_scalar_int(diag, value_of("[1]"), "k", 1, 9, &v));
    expect_error("k: expected a whole number, found a list");
    cr_assert_not(dr_scalar_float(diag, value_of("{a: 1}"), "p", 0, 1, &f));
    expect_error("p: expected a number, found a mapping");
    cr_assert_not(
        dr_scalar_int(diag, value_of(repeat("", "\xE6\x97\xA5", 200, "")), "k", 1, 9, &v));
    expect_error(
        dr_printf(arena, "k: '%s...' is not a whole number", repeat("", "\xE6\x97\xA5", 13, "")));
    cr_assert(v == 77 && f == 77, "nothing is stored after an error");
    cr_assert(dr_parse_int("12", &v) && v == 12);
    cr_assert_not(dr_parse_int("12 ", &v) || dr_parse_int("", &v));
    cr_assert_not(dr_parse_int("99999999999999999999", &v));
}

/* A locale with a decimal comma, compiled on the spot: machines rarely have one installed. */
static bool comma_locale(const char *root) {
    static const char source[] =
        "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n";
    char *path = dr_printf(arena, "%s/comma.src", root);
    cr_assert_eq(dr_write_file(path, source, sizeof source - 1), 0);
    const char *make = dr_printf(
        arena, "localedef -c -i %s -f ANSI_X3.4-1968 %s/comma >/dev/null 2>&1", path, root);
    if (system(make) == -1 || setenv("LOCPATH", root, 1) || !setlocale(LC_NUMERIC, "comma"))
        return false;
    cr_assert_eq(strtod("1,5", NULL), 1.5, "the locale is in force");
    return true;
}

Test(scalar, YML_01_comma_locale) {
    char root[] = "/tmp/dr_locale_XXXXXX";
    cr_assert(mkdtemp(root));
    if (!comma_locale(root))
        cr_log_warn("no localedef: only the grammar is tested");
    numbers();
    double f;
    cr_assert_not(dr_scalar_float(diag, value_of("1.5"), "p", 0, 0.25, &f));
    expect_error("p: '1.5' is out of range (0 to 0.25)");
    setlocale(LC_NUMERIC, "C");
    cr_assert_eq(system(dr_printf(arena, "rm -r '%s'", root)), 0);
}

Test(scalar, YML_02_booleans_and_names) {
    static const struct {
        const char *text;
        int want; /* -1: an error */
    } c[] = {
        {"yes", 1},    {"Yes", 1},  {"on", 1},  {"TRUE", 1},   {"true", 1}, {"\"true\"", 1},
        {"oN", 1},     {"no", 0},   {"off", 0}, {"False", 0},  {"1", -1},   {"0", -1},
        {"~", -1},     {"''", -1},  {"", -1},   {"maybe", -1}, {"y", -1},   {"null", -1},
        {"truee", -1}, {"tru", -1}, {"n", -1},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        bool b = !c[i].want;
        const struct dr_yaml *y = value_of(c[i].text);
        cr_assert_eq(dr_scalar_bool(diag, y, "frozen", &b), c[i].want >= 0, "%s", c[i].text);
        if (c[i].want >= 0)
            cr_assert_eq(b, c[i].want, "%s", c[i].text);
        else
            expect_error(dr_printf(arena, "frozen: '%s' is not true or false", y->text));
    }
    const struct dr_yaml *y =
        read_ok("no: 1\non: 2\ny: 3\nnull: 4\n~: 5\ntrue: 6\n1.0: 7\nNO: 8\nclasses: [yes, no]\n");
    cr_assert_str_eq(flat(y), "{no: 1, on: 2, y: 3, null: 4, ~: 5, true: 6, 1.0: 7, NO: 8, "
                              "classes: [yes, no]}");
    const char *name = NULL;
    cr_assert(dr_scalar_text(diag, dr_yaml_get(y, "classes")->item[1], "class", &name));
    cr_assert_str_eq(name, "no");
    cr_assert_not(dr_scalar_text(diag, value_of("''"), "file", &name));
    expect_error("file: expected a text, found nothing");
}

Test(scalar, words) {
    static const char *const words[] = {"constant", "cosine", "step"};
    int32_t w = -1;
    cr_assert(dr_scalar_word(diag, value_of("cosine"), "schedule", words, 3, &w));
    cr_assert_eq(w, 1);
    cr_assert_not(dr_scalar_word(diag, value_of("cosin"), "schedule", words, 3, &w));
    expect_error("schedule: 'cosin' is not one of constant, cosine, step; did you mean 'cosine'?");
    cr_assert_not(dr_scalar_word(diag, value_of("linear"), "schedule", words, 3, &w));
    expect_error("schedule: 'linear' is not one of constant, cosine, step");
    cr_assert_not(dr_scalar_word(diag, value_of("[step]"), "schedule", words, 3, &w));
    expect_error("schedule: expected a word, found a list");
    cr_assert_eq(w, 1);
}
