/* Safetensors files: what the safetensors package writes is read, what dagrun writes is read, and
 * what a hostile header says is not believed. */
#include "graph/safetensors.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A file in a block of exactly its size, so that a sanitizer sees the first byte read past it. */
struct file {
    unsigned char *at;
    size_t n;
};
static struct file make_sized(uint64_t length, const char *header, size_t header_n, size_t data) {
    struct file f = {NULL, 8 + header_n + data};
    f.at = calloc(1, f.n);
    for (int i = 0; i < 8; i++)
        f.at[i] = (unsigned char)(length >> 8 * i);
    memcpy(f.at + 8, header, header_n);
    for (size_t i = 0; i < data; i++)
        f.at[8 + header_n + i] = (unsigned char)(i + 1);
    return f;
}
static struct file make(const char *header, size_t data) {
    return make_sized(strlen(header), header, strlen(header), data);
}

static bool parse(struct dr_arena *a, struct file f, struct dr_safetensors *out, char why[256]) {
    why[0] = 0;
    return dr_safetensors_parse(a, f.at, f.n, out, why, 256);
}

static void refused(struct file f, const char *reason) {
    struct dr_arena *a = dr_arena_create();
    struct dr_safetensors s;
    char why[256];
    cr_expect(!parse(a, f, &s, why), "accepted; wanted: %s", reason);
    cr_expect(strstr(why, reason), "'%s' does not say '%s'", why, reason);
    dr_arena_destroy(a);
    free(f.at);
}

#define T(dtype, shape, from, to)                                                                  \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static long peak_kib(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_maxrss;
}

static struct file nested(void) {
    enum { DEEP = 100000 };
    static char text[6 * DEEP];
    size_t n = 0;
    for (int i = 0; i < DEEP; i++)
        n += (size_t)sprintf(text + n, "{\"a\":");
    return make_sized(n, text, n, 0);
}

/* Header of `tensors` empty tensors. */
static struct file crowded(uint32_t tensors) {
    char *text = malloc((size_t)tensors * 80 + 8);
    size_t n = 0;
    text[n++] = '{';
    for (uint32_t i = 0; i < tensors; i++)
        n += (size_t)sprintf(text + n, "%s\"%u\":" T("F32", "[0]", 0, 0), i ? "," : "", i);
    text[n++] = '}';
    const struct file f = make_sized(n, text, n, 0);
    free(text);
    return f;
}

Test(safetensors, WGT_02_hostile_headers) {
    const long before = peak_kib();
    static const char ff[8] = "";
    refused(make_sized(UINT64_MAX, ff, 0, 0), "its header says 18446744073709551615"); /* (a) */
    refused(make_sized(8 + 16, "{}              ", 16, 0), "its header says 24");      /* (b) */
    refused(make("{\"w\":" T("F32", "[4294967296,4294967296]", 0, 0) "}", 0),
            "more than 2^64 bytes"); /* (c) */
    refused(make("{\"w\":" T("F32", "[32,8]", 0, 65536) "}", 65536),
            "F32 [32, 8] needs 1024 bytes, its data_offsets span 65536");                 /* (d) */
    refused(make("{\"w\":" T("F32", "[2]", 16, 8) "}", 16), "ends (8) before it begins"); /* (e) */
    refused(make("{\"w\":" T("F32", "[2]", -4, 4) "}", 16), "an offset is negative");     /* (f) */
    refused(make("{\"a\":" T("F32", "[2]", 0, 8) ",\"b\":" T("F32", "[2]", 4, 12) "}", 12),
            "'b': it shares bytes with 'a'"); /* (g) */
    refused(make("{\"a\":" T("F32", "[1]", 0, 4) ",\"a\":" T("F32", "[1]", 4, 8) "}", 8),
            "two tensors called 'a'");                                                   /* (h) */
    refused(make("{\"w\":" T("F32", "[-1,4]", 0, 16) "}", 16), "dimension is negative"); /* (i) */
    refused(nested(), "unknown key 'a'");                                                /* (j) */
    refused(make("{\"a\\u0000b\":" T("F32", "[1]", 0, 4) "}", 4), "NUL");                /* (k) */
    refused(make("{\"a\\nb\":" T("F32", "[1]", 0, 4) "}", 4), "control characters");
    refused(make("{\"a\nb\":" T("F32", "[1]", 0, 4) "}", 4), "byte 0x0a");
    refused(make_sized(10, "{\"a\0b\":1}}", 10, 0), "byte 0x00");
    refused(crowded(DR_SAFETENSORS_TENSORS + 1), "more than 32768 tensors");
    struct file f = crowded(DR_SAFETENSORS_TENSORS);
    struct dr_arena *a = dr_arena_create();
    struct dr_safetensors s;
    char why[256];
    cr_expect(parse(a, f, &s, why), "%s", why);
    free(f.at);
    dr_arena_destroy(a);
#if !defined(__SANITIZE_ADDRESS__)
    cr_expect_lt(peak_kib() - before, 50 * 1024);
#else
    (void)before;
#endif
}

Test(safetensors, refusals) {
    static const struct {
        const char *header;
        size_t data;
        const char *reason;
    } t[] = {
        {"", 0, "ends where '{' should stand"},
        {" {}", 0, "byte 0x20 where '{'"},
        {"[]", 0, "'[' where '{'"},
        {"{", 0, "ends where a name"},
        {"{} x", 0, "goes on after the object"},
        {"{}", 4, "4 bytes at its end belong to no tensor"},
        {"{\"a\":" T("F32", "[1]", 4, 8) "}", 8, "4 bytes before it belong to no tensor"},
        {"{\"a\":" T("F32", "[1]", 0, 4) ",}", 4, "'}' where a name"},
        {"{\"a\":" T("F32", "[1]", 0, 4) " \"b\":0}", 4, "'\"' where '}'"},
        {"{\"a\":" T("F32", "[1]", 0, 4) "}", 3, "ends at 4, the file has 3 bytes"},
        {"{\"a\":" T("F33", "[1]", 0, 4) "}", 4, "dtype 'F33' is not known"},
        {"{\"a\":" T("F32", "[1.0]", 0, 4) "}", 4, "not a whole number"},
        {"{\"a\":" T("F32", "[01]", 0, 4) "}", 4, "not a whole number"},
        {"{\"a\":" T("F32", "[1e0]", 0, 4) "}", 4, "not a whole number"},
        {"{\"a\":" T("F32", "[1 2]", 0, 4) "}", 4, "its shape is not a list"},
        {"{\"a\":" T("F32", "[9223372036854775808]", 0, 4) "}", 4, "2^63 or more"},
        {"{\"a\":" T("F32", "[0,9223372036854775807,9]", 0, 0) "}", 0, "2^64"},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "more than 8 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "it has no data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 4, "key 'dtype' twice"},
        {"{\"a\":{}}", 0, "a key"},
        {"{\"a\":7}", 0, "it is no object"},
        {"{\"\":" T("F32", "[1]", 0, 4) "}", 4, "no name"},
        {"{\"a\\x\":0}", 0, "escape"},
        {"{\"a\\ud800\":0}", 0, "surrogate"},
        {"{\"a\\ud800\\u0041\":0}", 0, "surrogate"},
        {"{\"a\\u12\":0}", 0, "hexadecimal"},
        {"{\"a\xc0\x80\":0}", 0, "not UTF-8"},
        {"{\"a", 0, "ends inside a string"},
        {"{\"a\\", 0, "ends inside a string"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "a text of __metadata__"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ twice"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        refused(make(t[i].header, t[i].data), t[i].reason);
    struct file f = make("{}", 0);
    refused((struct file){calloc(1, 1), 0}, "empty");
    refused((struct file){calloc(1, 7), 7}, "7 bytes");
    f.n = 9; /* cut inside the header */
    refused(f, "its header says 2 bytes, the file has 1 left");
    /* torch.save's files: zip archives, and pickles of before */
    static const char *const pickles[] = {"PK\3\4\0\0\10\10\0\0\0\0",
                                          "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8"};
    for (size_t i = 0; i < 2; i++) {
        struct file p = {malloc(12), 12};
        memcpy(p.at, pickles[i], 12);
        refused(p, "it is a pickle, as torch.save writes it");
    }
}

/* Every cut of a good file, and every byte of it changed: a reason or a good description. */
Test(safetensors, cuts_and_changed_bytes) {
    const struct file good =
        make("{\"__metadata__\":{\"k\":\"v\"},\"a\":" T("F32", "[2,1]", 0, 8) ",\"b\\u00e9\":" T(
                 "U8", "[3]", 8, 11) "}  ",
             11);
    struct dr_safetensors s;
    char why[256];
    for (size_t n = 0; n < good.n; n++) {
        struct dr_arena *a = dr_arena_create();
        struct file cut = {malloc(n + !n), n};
        memcpy(cut.at, good.at, n);
        cr_expect(!parse(a, cut, &s, why) && *why, "%zu bytes of it", n);
        free(cut.at);
        dr_arena_destroy(a);
    }
    for (size_t i = 0; i < good.n - 11; i++)
        for (unsigned x = 1; x < 256; x += 7) {
            struct dr_arena *a = dr_arena_create();
            good.at[i] ^= (unsigned char)x;
            if (parse(a, good, &s, why)) {
                for (uint32_t k = 0; k < s.tensor.n; k++)
                    cr_expect(s.tensor.at[k].data + s.tensor.at[k].bytes <= good.at + good.n);
            } else {
                cr_expect(*why, "no reason");
            }
            good.at[i] ^= (unsigned char)x;
            dr_arena_destroy(a);
        }
    free(good.at);
}

Test(safetensors, WGT_02_l_floats_at_an_odd_offset) {
    struct dr_arena *a = dr_arena_create();
    const char *header = "{\"x\":" T("U8", "[1]", 0, 1) ",\"y\":" T("F32", "[2]", 1, 9) "}";
    const float want[] = {1.5f, -3.25f};
    struct file f = make(header, 9);
    memcpy(f.at + 8 + strlen(header) + 1, want, sizeof want);
    struct dr_safetensors s;
    char why[256];
    cr_assert(parse(a, f, &s, why), "%s", why);
    const struct dr_tensor *t = dr_safetensors_find(&s, "y");
    float got[2];
    cr_assert(t && dr_tensor_is_float(t));
    dr_tensor_floats(t, got);
    cr_expect_arr_eq(got, want, sizeof want);
    cr_expect_not(dr_tensor_is_float(dr_safetensors_find(&s, "x")));
    free(f.at);
    dr_arena_destroy(a);
}

/* tests/data/make_safetensors.py wrote it with the safetensors package. */
Test(safetensors, the_reference_file) {
    struct dr_arena *a = dr_arena_create();
    struct dr_safetensors s;
    char why[256];
    cr_assert(dr_safetensors_open(a, DR_SOURCE_DIR "/tests/data/reference.safetensors", &s, why,
                                  sizeof why),
              "%s", why);
    cr_expect_eq(s.tensor.n, 8u);
    cr_expect_str_eq(dr_safetensors_note(&s, "format"), "pt");
    cr_expect_str_eq(dr_safetensors_note(&s, "quote"), "a \"quoted\"\nline");
    cr_expect_null(dr_safetensors_note(&s, "none"));
    static const float f32[] = {1.5f, -0.25f, 3e38f, 0, 1e-40f, -7};
    static const float f16[] = {0, -0.0f, 1, -2.5f, 65504, 0x1p-14f, 0x1p-24f, INFINITY};
    static const float f64[] = {1, 0.1f, -10};
    static const float one[] = {42};
    static const struct {
        const char *name, *text;
        const float *want;
    } cases[] = {
        {"f32", "F32 [2, 3]", f32}, {"f16", "F16 [8]", f16},
        {"f64", "F64 [3]", f64},    {"a\"b\\c/\u00e9 \u5377\u79ef \U0001f600", "F32 [1]", one},
        {"i64", "I64 []", NULL},    {"u8", "U8 [1]", NULL},
        {"bool", "BOOL [3]", NULL}, {"empty", "F32 [0, 4]", f32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct dr_tensor *t = dr_safetensors_find(&s, cases[i].name);
        float got[8];
        cr_assert(t, "%s", cases[i].name);
        cr_expect_str_eq(dr_tensor_text(a, t), cases[i].text);
        cr_assert_eq(dr_tensor_is_float(t), cases[i].want != NULL);
        if (!cases[i].want)
            continue;
        dr_tensor_floats(t, got);
        cr_expect_arr_eq(got, cases[i].want, (size_t)t->elements * sizeof *got, "%s",
                         cases[i].name);
    }
    dr_safetensors_close(&s);
    dr_arena_destroy(a);
}

/* bfloat16 is the upper half of a float; a half that is not a number stays none. */
Test(safetensors, sixteen_bits) {
    struct dr_arena *a = dr_arena_create();
    const char *header = "{\"b\":" T("BF16", "[3]", 0, 6) ",\"h\":" T("F16", "[2]", 6, 10) "}";
    struct file f = make(header, 10);
    static const unsigned char bytes[] = {0x80, 0x3f, 0x49, 0xc0, 0x80,
                                          0x7f, 0x01, 0x7e, 0x01, 0x80};
    memcpy(f.at + 8 + strlen(header), bytes, sizeof bytes);
    struct dr_safetensors s;
    char why[256];
    cr_assert(parse(a, f, &s, why), "%s", why);
    float b[3], h[2];
    dr_tensor_floats(dr_safetensors_find(&s, "b"), b);
    dr_tensor_floats(dr_safetensors_find(&s, "h"), h);
    cr_expect(b[0] == 1 && b[1] == -3.140625f && isinf(b[2]));
    cr_expect(isnan(h[0]) && h[1] == -0x1p-24f);
    free(f.at);
    dr_arena_destroy(a);
}

Test(safetensors, written_files_are_read) {
    struct dr_arena *a = dr_arena_create();
    char path[] = "/tmp/dagrun-st-XXXXXX", why[256];
    close(mkstemp(path));
    struct dr_safetensors_entry e[] = {
        {.name = "a \"b\"\\c", .dtype = DR_F32, .rank = 2, .dim = {1, 3}},
        {.name = "\u5377.step", .dtype = DR_I64, .rank = 0},
    };
    const struct dr_safetensors_note note[] = {{"k", "v\n\"w\""}};
    const float x[] = {1, 2, 3};
    const int64_t y = -5;
    struct dr_file *f;
    for (int drop = 1; drop >= 0; drop--) {
        cr_assert_eq(dr_safetensors_create(&f, path, e, 2, note, 1), 0);
        cr_expect_eq(e[0].bytes, sizeof x);
        cr_expect_eq(e[1].bytes, sizeof y);
        cr_assert_eq(dr_file_write(f, x, sizeof x), 0);
        if (drop) { /* the file stays as it was: empty */
            dr_file_drop(f);
            struct dr_safetensors s;
            cr_expect_not(dr_safetensors_open(a, path, &s, why, sizeof why));
            cr_expect_str_eq(why, "the file is empty");
        }
    }
    cr_assert_eq(dr_file_write(f, &y, sizeof y), 0);
    cr_assert_eq(dr_file_commit(f), 0);
    struct dr_safetensors s;
    cr_assert(dr_safetensors_open(a, path, &s, why, sizeof why), "%s", why);
    const struct dr_tensor *t = dr_safetensors_find(&s, e[0].name);
    cr_assert(t);
    cr_expect_arr_eq(t->data, x, sizeof x);
    cr_expect_eq((uintptr_t)t->data % 8, 0u, "data begins at a multiple of 8");
    t = dr_safetensors_find(&s, e[1].name);
    cr_assert(t && t->bytes == sizeof y);
    cr_expect_arr_eq(t->data, &y, sizeof y);
    cr_expect_str_eq(dr_safetensors_note(&s, "k"), note[0].value);
    dr_safetensors_close(&s);
    unlink(path);
    cr_expect_not(dr_safetensors_open(a, path, &s, why, sizeof why));
    cr_expect_not(dr_safetensors_open(a, "/tmp", &s, why, sizeof why));
    cr_expect(dr_safetensors_name("a.b") && !dr_safetensors_name("") &&
              !dr_safetensors_name("a\tb") && !dr_safetensors_name("\xff") &&
              !dr_safetensors_name("\x7f"));
    dr_arena_destroy(a);
}
