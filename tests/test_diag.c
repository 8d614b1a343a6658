/* The base of graph/ (arena, map, files) and the diagnostics sink. */
#include "graph/diag.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

TestSuite(base, .init = setup, .fini = teardown);
TestSuite(diag, .init = setup, .fini = teardown);

static void expect_text(const char *want) {
    const char *got = dr_diag_text(diag);
    cr_assert(!strcmp(got, want), "got:\n%s\nwant:\n%s", got, want);
}

/* ---- base ---- */
Test(base, arena) {
    char *a[2000];
    for (size_t i = 0; i < 2000; i++) {
        a[i] = dr_alloc(arena, i * 7 % 5000);
        cr_assert_eq((uintptr_t)a[i] % 16, 0);
        for (size_t j = 0; j < i * 7 % 5000; j++)
            cr_assert_eq(a[i][j], 0);
        memset(a[i], (int)(i % 255) + 1, i * 7 % 5000);
    }
    for (size_t i = 0; i < 2000; i++)
        for (size_t j = 0; j < i * 7 % 5000; j++)
            cr_assert_eq((unsigned char)a[i][j], i % 255 + 1);
    dr_arena_reset(arena);
    char *again = dr_alloc(arena, 4096);
    for (size_t j = 0; j < 4096; j++)
        cr_assert_eq(again[j], 0, "memory given again is zeroed");
    cr_assert_str_eq(dr_printf(arena, "%s-%d", "x", 7), "x-7");
    cr_assert_str_eq(dr_strndup(arena, "abcdef", 3), "abc");
    dr_arena_destroy(NULL);
}

Test(base, vec_and_text) {
    DR_VEC(uint64_t) v = {0};
    struct dr_text t = {.arena = arena};
    for (uint32_t i = 0; i < 10000; i++) {
        *dr_push(arena, &v) = (uint64_t)i * i;
        dr_text_add(&t, "%u,", i % 10);
    }
    cr_assert_eq(v.n, 10000);
    for (uint32_t i = 0; i < v.n; i++)
        cr_assert_eq(v.at[i], (uint64_t)i * i);
    cr_assert_eq(t.n, 20000);
    cr_assert_eq(strlen(t.at), 20000);
    for (size_t i = 0; i < 10000; i++)
        cr_assert_eq(t.at[2 * i], (char)('0' + i % 10));
}

Test(base, map) {
    struct dr_map *m = dr_map_create(arena);
    cr_assert_eq(dr_map_get(m, "x"), DR_NONE);
    for (uint32_t i = 0; i < 5000; i++)
        cr_assert_eq(dr_map_put(m, dr_printf(arena, "k%u", i), i), DR_NONE);
    for (uint32_t i = 0; i < 5000; i++)
        cr_assert_eq(dr_map_get(m, dr_printf(arena, "k%u", i)), i);
    cr_assert_eq(dr_map_put(m, "k77", 1), 77);
    cr_assert_eq(dr_map_get(m, "k77"), 1);
    cr_assert_eq(dr_map_get(m, "k5000"), DR_NONE);
    cr_assert_eq(dr_map_get(m, ""), DR_NONE);
    /* XXH3's published value for no bytes. */
    cr_assert_eq(dr_hash("", 0), UINT64_C(0x2d06800538d394c2));
}

Test(base, utf8) {
    static const struct {
        const char *s;
        size_t n, want;
        uint32_t cp;
    } c[] = {
        {"a", 1, 1, 'a'},
        {"\xC3\xB6", 2, 2, 0xF6},
        {"\xE6\x97\xA5", 3, 3, 0x65E5},
        {"\xF0\x9F\x98\x80", 4, 4, 0x1F600},
        {"\xC0\x80", 2, 0, 0},
        {"\xE0\x80\x80", 3, 0, 0},
        {"\xED\xA0\x80", 3, 0, 0},
        {"\xF4\x90\x80\x80", 4, 0, 0},
        {"\xC3", 1, 0, 0},
        {"\x80", 1, 0, 0},
        {"\xFF", 1, 0, 0},
        {"\xE6\x97"
         "a",
         3, 0, 0},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        uint32_t cp = 0;
        cr_assert_eq(dr_utf8(c[i].s, c[i].n, &cp), c[i].want, "case %zu", i);
        cr_assert(!c[i].want || cp == c[i].cp, "case %zu", i);
    }
}

static char *read_back(const char *path) {
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s", path);
    char *s = dr_alloc(arena, 100);
    size_t n = fread(s, 1, 99, f);
    (void)n;
    fclose(f);
    return s;
}

static int entries(const char *folder) {
    char *command = dr_printf(arena, "ls -A '%s' | wc -l", folder);
    FILE *p = popen(command, "r");
    int n = -1;
    cr_assert_eq(fscanf(p, "%d", &n), 1);
    pclose(p);
    return n;
}

Test(base, write_file) {
    char root[] = "/tmp/dr_base_XXXXXX";
    cr_assert(mkdtemp(root));
    char *deep = dr_printf(arena, "%s/a b/c/out.txt", root);
    cr_assert_eq(dr_write_file(deep, "one", 3), 0);
    cr_assert_str_eq(read_back(deep), "one");
    cr_assert_eq(chmod(deep, 0640), 0);
    cr_assert_eq(dr_write_file(deep, "second", 6), 0);
    cr_assert_str_eq(read_back(deep), "second");
    struct stat st;
    cr_assert_eq(stat(deep, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0640, "the old file's mode is kept");
    cr_assert_eq(entries(dr_printf(arena, "%s/a b/c", root)), 1, "no temporary file stays");

    char *link = dr_printf(arena, "%s/link", root);
    cr_assert_eq(symlink("a b/c/out.txt", link), 0);
    cr_assert_eq(dr_write_file(link, "by link", 7), 0);
    cr_assert_str_eq(read_back(deep), "by link");

    cr_assert_eq(dr_write_file(dr_printf(arena, "%s/a b", root), "x", 1), EISDIR);
    cr_assert_eq(dr_write_file(dr_printf(arena, "%s/x.txt", deep), "x", 1), ENOTDIR);
    cr_assert_eq(dr_write_file("/dev/full", "x", 1), ENOSPC);
    cr_assert_eq(dr_write_file("/proc/nope/x", "x", 1), ENOENT);
    char *name = dr_alloc(arena, 256);
    memset(name, 'n', 255);
    cr_assert_eq(dr_write_file(dr_printf(arena, "%s/%s", root, name), "x", 1), 0,
                 "the longest name a folder can hold");
    char *far = dr_alloc(arena, 5001);
    memset(far, 'p', 5000);
    cr_assert_eq(dr_write_file(dr_printf(arena, "%s/%s", root, far), "x", 1), ENAMETOOLONG);
    cr_assert_eq(entries(root), 3);
    cr_assert_eq(system(dr_printf(arena, "rm -r '%s'", root)), 0);
}

/* ---- diag ---- */
static struct dr_mark at(uint32_t line, uint32_t col, uint32_t len) {
    return (struct dr_mark){.line = line, .col = col, .len = len};
}

static void source(const char *name, const char *text) {
    dr_diag_source(diag, name, text, strlen(text));
}

Test(diag, file_order_and_notes) {
    source("resnet.yaml", "one\n  two: 2\nthree: 33\n");
    cr_assert_not(dr_error(diag, at(3, 8, 2), "%s is bad", "33"));
    dr_note(diag, at(1, 1, 3), "first seen here");
    dr_error(diag, at(2, 3, 0), "second");
    dr_warn(diag, at(3, 1, 5), "a warning");
    dr_error(diag, at(0, 0, 0), "no place");
    expect_text("error: no place\n"
                "resnet.yaml:2:3: error: second\n"
                "    2 |   two: 2\n"
                "      |   ^\n"
                "resnet.yaml:3:8: error: 33 is bad\n"
                "    3 | three: 33\n"
                "      |        ^~\n"
                "resnet.yaml:1:1: note: first seen here\n"
                "resnet.yaml:3:1: warning: a warning\n"
                "    3 | three: 33\n"
                "      | ^~~~~\n");
    cr_assert_eq(dr_diag_errors(diag), 3);
    cr_assert_eq(dr_diag_warnings(diag), 1);
}

Test(diag, carets_line_up) {
    source("f", "\tk:\tbad x\n"
                "gr\xC3\xB6\xC3\x9F"
                "e: bad\n"
                "\xE6\x97\xA5\xE6\x9C\xAC: bad\n"
                "a\x1b[0m bad\n"
                "\xFF: bad\n");
    dr_error(diag, at(1, 5, 3), "tabs");
    dr_error(diag, at(2, 10, 3), "two bytes a letter");
    dr_error(diag, at(3, 9, 3), "two columns a letter");
    dr_error(diag, at(4, 7, 3), "control character");
    dr_error(diag, at(5, 4, 99), "not UTF-8; marked past the end");
    expect_text("f:1:5: error: tabs\n"
                "    1 | \tk:\tbad x\n"
                "      | \t  \t^~~\n"
                "f:2:10: error: two bytes a letter\n"
                "    2 | gr\xC3\xB6\xC3\x9F"
                "e: bad\n"
                "      |        ^~~\n"
                "f:3:9: error: two columns a letter\n"
                "    3 | \xE6\x97\xA5\xE6\x9C\xAC: bad\n"
                "      |       ^~~\n"
                "f:4:7: error: control character\n"
                "    4 | a\xEF\xBF\xBD[0m bad\n"
                "      |       ^~~\n"
                "f:5:4: error: not UTF-8; marked past the end\n"
                "    5 | \xEF\xBF\xBD: bad\n"
                "      |    ^~~\n");
}

Test(diag, line_ends) {
    source("f", "one\r\ntwo\rthree\nfour");
    for (uint32_t line = 1; line <= 6; line++)
        dr_error(diag, at(line, 1, 0), "x");
    expect_text("f:1:1: error: x\n    1 | one\n      | ^\n"
                "f:2:1: error: x\n    2 | two\n      | ^\n"
                "f:3:1: error: x\n    3 | three\n      | ^\n"
                "f:4:1: error: x\n    4 | four\n      | ^\n"
                "f:5:1: error: x\n    5 | \n      | ^\n"
                "f:6:1: error: x\n    6 | \n      | ^\n");
}

Test(diag, long_lines_are_clipped_around_the_caret) {
    char *line = dr_alloc(arena, 10001);
    memset(line, '.', 10000);
    memcpy(line + 5000, "bad", 3);
    source("f", line);
    dr_error(diag, at(1, 5001, 3), "x");
    struct dr_text want = {.arena = arena};
    dr_text_add(&want, "f:1:5001: error: x\n    1 | ...");
    for (int i = 0; i < 50; i++)
        dr_text_add(&want, ".");
    dr_text_add(&want, "bad");
    for (int i = 0; i < 47; i++)
        dr_text_add(&want, ".");
    dr_text_add(&want, "...\n      |    %50s^~~\n", "");
    expect_text(want.at);
}

Test(diag, hostile_text_is_escaped) {
    source("a\nb", "x\n");
    dr_error(diag, at(1, 1, 1), "'%s'",
             "\x1b[2J\n\t\xFF\xC2\x9B\xE2\x80\xAE"
             "\xC3\xB6\\");
    expect_text("a\\nb:1:1: error: '\\x1b[2J\\n\\t\\xff\\x9b\\u202e\xC3\xB6\\'\n"
                "    1 | x\n"
                "      | ^\n");
}

Test(diag, long_messages_are_clipped_between_characters) {
    char *s = dr_alloc(arena, 300001);
    for (size_t i = 0; i < 300000; i += 3)
        memcpy(s + i, "\xE6\x97\xA5", 3);
    dr_error(diag, at(0, 0, 0), "%s", s);
    const char *got = dr_diag_text(diag);
    size_t n = strlen(got);
    cr_assert_lt(n, 2200);
    cr_assert_str_eq(got + n - 7, "\xE6\x97\xA5...\n");
    cr_assert_null(strstr(got, "\\x"));
}

Test(diag, twenty_errors) {
    source("f", "x\n");
    for (int i = 0; i < 25; i++) {
        cr_assert_eq(dr_diag_full(diag), i >= 20);
        dr_error(diag, at(1, 1, 0), "number <%d>", i);
        dr_note(diag, at(1, 1, 0), "note <%d>", i);
    }
    for (int i = 0; i < 21; i++)
        dr_warn(diag, at(1, 1, 0), "warning <%d>", i);
    const char *got = dr_diag_text(diag);
    cr_assert(strstr(got, "number <19>") && strstr(got, "note <19>"));
    cr_assert_not(strstr(got, "number <20>") || strstr(got, "note <20>"));
    cr_assert(strstr(got, "\n5 more errors not shown\n"));
    cr_assert(strstr(got, "\n1 more warning not shown\n"));
    cr_assert_eq(dr_diag_errors(diag), 25);
    cr_assert_eq(dr_diag_warnings(diag), 21);
}

/* What a print said, it does not say again. */
Test(diag, each_message_is_printed_once) {
    const uint16_t src = dr_diag_source(diag, "m.yaml", "a\nb\n", 4);
    char *said = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&said, &n);
    cr_assert(to);
    dr_diag_print(diag, to);
    fflush(to);
    cr_expect_eq(n, 0);
    dr_warn(diag, (struct dr_mark){.source = src, .line = 2, .col = 1}, "second line");
    dr_diag_print(diag, to);
    dr_diag_print(diag, to);
    dr_error(diag, (struct dr_mark){.source = src, .line = 1, .col = 1}, "first line");
    dr_diag_print(diag, to);
    fclose(to);
    const char *warning = strstr(said, "m.yaml:2:1: warning: second line\n");
    const char *error = strstr(said, "m.yaml:1:1: error: first line\n");
    cr_expect(warning == said && error > warning, "%s", said);
    cr_expect(error && !strstr(error, "second line") &&
                  !strstr(strstr(said, "warning:") + 1, "warning:"),
              "%s", said);
    free(said);
    cr_expect(strstr(dr_diag_text(diag), "second line"), "the whole text keeps all");
}

Test(diag, more_sources_than_marks_can_name) {
    for (uint32_t i = 0; i < 70000; i++)
        source("s", "x");
    struct dr_mark m = at(1, 1, 1);
    m.source = dr_diag_source(diag, "last", "x", 1);
    dr_error(diag, m, "still said");
    expect_text("error: still said\n");
}

Test(diag, did_you_mean) {
    static const char *const names[] = {
        "conv2d", "conv1", "weight_decay", "kernel", "learning_rate", "p", "in"};
    static const struct {
        const char *name, *want;
    } c[] = {
        {"convv2d", "conv2d"}, {"Convl", "conv1"},   {"weight_deacy", "weight_decay"},
        {"KERNEL", "kernel"},  {"kernal", "kernel"}, {"leraning_rate", "learning_rate"},
        {"zebra", NULL},       {"q", NULL},          {"", NULL},
        {"ni", "in"},          {"stride", NULL},     {"P", "p"},
    };
    uint32_t n = sizeof names / sizeof *names;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        const char *got = dr_nearest(c[i].name, names, n);
        cr_assert(c[i].want ? got && !strcmp(got, c[i].want) : !got, "%s -> %s", c[i].name,
                  got ? got : "nothing");
    }
    cr_assert_str_eq(dr_did_you_mean(arena, "kernl", names, n), "; did you mean 'kernel'?");
    cr_assert_str_eq(dr_did_you_mean(arena, "zebra", names, n), "");
    char *huge = dr_alloc(arena, 1 << 20);
    memset(huge, 'x', (1 << 20) - 1);
    const char *one[] = {huge};
    cr_assert_null(dr_nearest(huge, one, 1), "no quadratic work on huge names");
}
