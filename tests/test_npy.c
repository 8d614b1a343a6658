/* npy files: what numpy writes is read, what a hostile file says is not believed. */
#include "augment/npy.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file in a block of exactly its size, so that a sanitizer sees the first byte read past it. */
struct file {
    unsigned char *at;
    size_t n;
};
static struct file make(int version, const char *dict, uint64_t length, size_t data) {
    const size_t start = version == 1 ? 10 : 12, dict_n = strlen(dict);
    struct file f = {NULL, start + dict_n + data};
    f.at = calloc(1, f.n);
    memcpy(f.at, "\x93NUMPY", 6);
    f.at[6] = (unsigned char)version;
    for (size_t i = 0; i < start - 8; i++)
        f.at[8 + i] = (unsigned char)(length >> 8 * i);
    memcpy(f.at + start, dict, dict_n);
    for (size_t i = 0; i < data; i++)
        f.at[start + dict_n + i] = (unsigned char)(i + 1);
    return f;
}

static void refused(struct file f, const char *reason) {
    struct dr_npy npy;
    char why[256] = "";
    cr_assert(!dr_npy_parse(f.at, f.n, &npy, why, sizeof why), "accepted; wanted: %s", reason);
    cr_assert(strstr(why, reason), "'%s' does not say '%s'", why, reason);
    free(f.at);
}

#define D(descr, order, shape)                                                                     \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape "}"

Test(npy, accepted_headers) {
    static const struct {
        int version;
        const char *dict;
        char kind;
        uint32_t item, rank;
        int64_t dim[3];
        size_t data;
    } t[] = {
        {1, D("'|u1'", "False", "(2, 3)"), 'u', 1, 2, {2, 3}, 6},
        {2, D("'<f4'", "False", "(2, 3)"), 'f', 4, 2, {2, 3}, 24},
        {3, D("'<i8'", "False", "(5,)"), 'i', 8, 1, {5}, 40},
        {1, D("'<f8'", "False", "()"), 'f', 8, 0, {0}, 8},
        {1, D("'<f2'", "False", "(0, 28, 28)"), 'f', 2, 3, {0, 28, 28}, 0},
        {1, D("'|b1'", "False", "(4, )"), 'b', 1, 1, {4}, 4},
        {1, D("'<u2'", "False", "(2,3,)"), 'u', 2, 2, {2, 3}, 12},
        /* any key order, blanks, trailing comma, double quotes, Python 2's longs, padding */
        {1,
         "{ \"shape\" :(2L,3L) ,'fortran_order':False,'descr' : \"<i4\" , }   \n",
         'i',
         4,
         2,
         {2, 3},
         24},
        {1, D("'>u1'", "False", "(3,)"), 'u', 1, 1, {3}, 3}, /* one byte has no order */
        {1, "{'descr':'|i1','fortran_order':False,'shape':(1,)}\n\n", 'i', 1, 1, {1}, 1},
    };
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct file f = make(t[i].version, t[i].dict, strlen(t[i].dict), t[i].data);
        struct dr_npy npy;
        char why[256] = "";
        cr_assert(dr_npy_parse(f.at, f.n, &npy, why, sizeof why), "case %zu: %s", i, why);
        cr_assert_eq(npy.kind, t[i].kind, "case %zu", i);
        cr_assert_eq(npy.item, t[i].item, "case %zu", i);
        cr_assert_eq(npy.rank, t[i].rank, "case %zu", i);
        for (uint32_t d = 0; d < npy.rank; d++)
            cr_assert_eq(npy.dim[d], t[i].dim[d], "case %zu", i);
        cr_assert_eq(npy.data, f.at + f.n - t[i].data, "case %zu", i);
        cr_assert_null(npy.map);
        free(f.at);
    }
}

/* As WGT-02: sizes are compared with the file first, products do not wrap, nothing is guessed. */
Test(npy, WGT_02_hostile_headers) {
    static const struct {
        const char *dict;
        size_t data;
        const char *reason;
    } t[] = {
        {D("'|u1'", "False", "(2, 3)"), 5, "needs 6 bytes of data, it has 5"},
        {D("'|u1'", "False", "(2, 3)"), 7, "1 bytes follow"},
        {D("'|u1'", "False", "(4294967296, 4294967296)"), 0, "2^64"},
        {D("'<f8'", "False", "(2305843009213693952,)"), 0, "2^64"}, /* 8 * 2^61 wraps to 0 */
        {D("'|u1'", "False", "(0, 4294967296, 4294967296)"), 0, "2^64"},
        {D("'|u1'", "False", "(9223372036854775808,)"), 0, "over 2^63"},
        {D("'|u1'", "False", "(-1, 4)"), 4, "negative"},
        {D("'|u1'", "False", "(1,1,1,1,1,1,1,1,1)"), 1, "more than 8 dimensions"},
        {D("'|u1'", "False", "(4)"), 4, "tuple"},
        {D("'|u1'", "False", "[4]"), 4, "tuple"},
        {D("'|u1'", "False", "(,)"), 1, "tuple"},
        {D("'|u1'", "False", "(4 4)"), 16, "tuple"},
        {D("'|u1'", "False", "(4.0,)"), 4, "tuple"},
        {D("'|u1'", "False", "(4,"), 4, "tuple"},
        {D("'|u1'", "True", "(2, 3)"), 6, "Fortran order"},
        {D("'|u1'", "0", "(2, 3)"), 6, "neither True nor False"},
        {D("'>f4'", "False", "(2,)"), 8, "'>f4' is big-endian"},
        {D("'=f4'", "False", "(2,)"), 8, "byte order"},
        {D("'|O'", "False", "(2,)"), 16, "'|O' holds Python objects"},
        {D("'<c8'", "False", "(2,)"), 16, "'<c8' is not supported"},
        {D("'<U5'", "False", "(2,)"), 40, "'<U5' is not supported"},
        {D("'<f16'", "False", "(2,)"), 32, "'<f16' is not supported"},
        {D("'u1'", "False", "(2,)"), 2, "'u1' is not supported"},
        {D("''", "False", "(2,)"), 2, "'' is not supported"},
        {D("[('a', '<f4')]", "False", "(2,)"), 8, "structured"},
        {D("4", "False", "(2,)"), 8, "not a dtype string"},
        {D("'|u1", "False", "(2,)"), 2, ""},
        {"{'descr': '|u1', 'shape': (2,)}", 2, "no 'fortran_order'"},
        {"{'descr': '|u1', 'fortran_order': False}", 2, "no 'shape'"},
        {"{'fortran_order': False, 'shape': (2,)}", 2, "no 'descr'"},
        {"{'descr': '|u1', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 2, "twice"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (2,), 'x': 1}", 2, "unknown key 'x'"},
        {"{'descr': '|u1' 'fortran_order': False, 'shape': (2,)}", 2, "not a Python dict"},
        {D("'|u1'", "False", "(2,)") " x", 2, "goes on"},
        {"", 0, "not a Python dict"},
        {"[1, 2]", 2, "not a Python dict"},
        {"{", 0, "not a Python dict"},
        {"{'descr': '\\x7cu1', 'fortran_order': False, 'shape': (2,)}", 2, "not a dtype string"},
    };
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++)
        refused(make(1, t[i].dict, strlen(t[i].dict), t[i].data), t[i].reason);
}

Test(npy, WGT_02_hostile_lengths) {
    const char *good = D("'|u1'", "False", "(2,)");
    refused(make(1, good, 65535, 2), "its header says 65535 bytes");
    refused(make(2, good, UINT32_MAX, 2), "its header says 4294967295 bytes");
    refused(make(2, good, strlen(good) + 3, 2), "the file has");
    refused(make(1, good, 0, 2), "not a Python dict");
    refused(make(1, good, strlen(good) - 1, 2), "");
    refused(make(4, good, strlen(good), 2), "version 4.0");
    refused(make(0, good, strlen(good), 2), "version 0.0");
    /* Every prefix of a good file is refused, and read no further than it goes. */
    struct file f = make(2, good, strlen(good), 2);
    for (size_t n = 0; n < f.n; n++) {
        struct file part = {malloc(n ? n : 1), n};
        memcpy(part.at, f.at, n);
        refused(part, n ? "" : "empty");
    }
    free(f.at);
    struct file other = {malloc(64), 64};
    memset(other.at, 'x', 64);
    refused(other, "not an npy file");
    /* 60 KB of blanks and of open brackets: linear, no recursion. */
    char *blank = malloc(60001);
    memset(blank, ' ', 60000);
    blank[60000] = '\0';
    refused(make(1, blank, 60000, 0), "not a Python dict");
    memset(blank, '(', 60000);
    refused(make(1, blank, 60000, 0), "not a Python dict");
    free(blank);
}

static char folder[] = "/tmp/dagrun-npy-XXXXXX";
static const char *in_folder(const char *name) {
    static char path[256];
    static bool made;
    if (!made)
        cr_assert_not_null(mkdtemp(folder));
    made = true;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}
static void clean(const char *name) {
    unlink(in_folder(name));
    rmdir(folder);
}

Test(npy, files_written_are_files_read) {
    static const float data[6] = {1.5f, -2.0f, 0.0f, 3e38f, 1e-45f, 7.0f};
    static const int64_t dims[][3] = {{6, 0, 0}, {2, 3, 0}, {1, 2, 3}};
    for (uint32_t rank = 0; rank <= 3; rank++) {
        const char *path = in_folder("x.npy");
        const size_t bytes = rank ? sizeof data : sizeof data[0];
        cr_assert_eq(dr_npy_write(path, "<f4", rank ? dims[rank - 1] : NULL, rank, data, bytes), 0);
        struct dr_npy npy;
        char why[256] = "";
        cr_assert(dr_npy_open(path, &npy, why, sizeof why), "%s", why);
        cr_assert_eq(npy.kind, 'f');
        cr_assert_eq(npy.rank, rank);
        cr_assert_eq((size_t)(npy.data - (unsigned char *)npy.map) % 64, 0, "numpy aligns to 64");
        cr_assert_eq(memcmp(npy.data, data, bytes), 0);
        dr_npy_close(&npy);
        cr_assert_null(npy.map);
    }
    const int64_t none[2] = {0, 4};
    cr_assert_eq(dr_npy_write(in_folder("x.npy"), "<i4", none, 2, NULL, 0), 0);
    struct dr_npy npy;
    char why[256] = "";
    cr_assert(dr_npy_open(in_folder("x.npy"), &npy, why, sizeof why), "%s", why);
    cr_assert_eq(npy.dim[0], 0);
    cr_assert_eq(npy.dim[1], 4);
    dr_npy_close(&npy);
    clean("x.npy");
}

/* The bytes that numpy 1.24 writes for np.arange(3, dtype='<u2'). */
Test(npy, written_bytes_are_numpys) {
    static const uint16_t data[3] = {0, 1, 2};
    const int64_t dim = 3;
    cr_assert_eq(dr_npy_write(in_folder("y.npy"), "<u2", &dim, 1, data, sizeof data), 0);
    FILE *f = fopen(in_folder("y.npy"), "rb");
    unsigned char got[256];
    const size_t n = fread(got, 1, sizeof got, f);
    fclose(f);
    cr_assert_eq(n % 64, 6);
    cr_assert_eq(memcmp(got, "\x93NUMPY\x01\0", 8), 0);
    cr_assert_eq((size_t)(got[8] | got[9] << 8), n - 6 - 10);
    const char *dict = "{'descr': '<u2', 'fortran_order': False, 'shape': (3,";
    cr_assert_eq(memcmp(got + 10, dict, strlen(dict)), 0);
    cr_assert_eq(got[n - 7], '\n');
    cr_assert_eq(memcmp(got + n - 6, "\0\0\1\0\2\0", 6), 0);
    clean("y.npy");
}

Test(npy, files_that_are_none) {
    struct dr_npy npy;
    char why[256] = "";
    cr_assert(!dr_npy_open(in_folder("none.npy"), &npy, why, sizeof why));
    cr_assert(strstr(why, "No such file"), "%s", why);
    cr_assert(!dr_npy_open(folder, &npy, why, sizeof why));
    cr_assert(strstr(why, "not a file"), "%s", why);
    const char *path = in_folder("empty.npy");
    close(open(path, O_CREAT | O_WRONLY, 0600));
    cr_assert(!dr_npy_open(path, &npy, why, sizeof why));
    cr_assert(strstr(why, "empty"), "%s", why);
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0); /* does not hang */
    cr_assert(!dr_npy_open(path, &npy, why, sizeof why));
    cr_assert(strstr(why, "not a file"), "%s", why);
    clean("empty.npy");
}

Test(npy, digits_of_the_examples) {
    struct dr_npy npy;
    char why[256] = "";
    cr_assert(dr_npy_open(DR_SOURCE_DIR "/examples/data/digits_images.npy", &npy, why, sizeof why),
              "%s", why);
    cr_assert_eq(npy.rank, 4);
    cr_assert_eq(npy.dim[0], 1797);
    cr_assert_eq(npy.dim[3], 1);
    /* The first row of the first digit: 0 0 5 13 9 1 0 0 (sklearn's documentation). */
    static const unsigned char row[8] = {0, 0, 5, 13, 9, 1, 0, 0};
    cr_assert_eq(memcmp(npy.data, row, 8), 0);
    dr_npy_close(&npy);
}
