/* Sources that are files: IDX and CIFAR-10, patterns of image files, their order and pairs, folders
 * as classes, and batches decoded by several threads. */
#include "augment/data.h"
#include "augment/idx.h"
#include "augment/png.h"
#include "graph/base.h"
#include "kernels/batch.h"
#include "tests/fake_cli.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char *folder;
static void setup(void) {
    folder = cli_folder();
}
static void teardown(void) {
    cli_folder_remove(folder);
}
TestSuite(files, .init = setup, .fini = teardown, .timeout = 60);

#define IMAGES DR_SOURCE_DIR "/tests/data/images/"

static void put(const char *name, const void *bytes, size_t n) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(dr_write_file(path, bytes, n), 0, "%s", path);
}
/* A file of tests/data/images under another name. */
static void copy(const char *from, const char *name) {
    char path[1200], why[256];
    size_t n;
    snprintf(path, sizeof path, IMAGES "%s", from);
    void *map = dr_file_map(path, &n, why, sizeof why);
    cr_assert(map, "%s: %s", path, why);
    put(name, map, n);
    munmap(map, n);
}

/* ---- IDX ---- */

Test(files, idx_of_every_type) {
    static const struct {
        const char *text;
        size_t n;
        char kind;
        uint32_t item;
        const char *right;
    } t[] = {{"\0\0\x08\1\0\0\0\2\7\xff", 10, 'u', 1, "\7\xff"},
             {"\0\0\x09\1\0\0\0\2\7\xff", 10, 'i', 1, "\7\xff"},
             {"\0\0\x0b\1\0\0\0\2\1\2\xff\xfe", 12, 'i', 2, "\2\1\xfe\xff"},
             {"\0\0\x0c\2\0\0\0\1\0\0\0\2\1\2\3\4\xff\xff\xff\xfe", 20, 'i', 4,
              "\4\3\2\1\xfe\xff\xff\xff"},
             {"\0\0\x0d\1\0\0\0\1\xbf\x80\0\0", 12, 'f', 4, "\0\0\x80\xbf"}, /* -1 */
             {"\0\0\x0e\1\0\0\0\1\x40\x09\0\0\0\0\0\0", 16, 'f', 8, "\0\0\0\0\0\0\x09\x40"},
             {"\0\0\x08\2\0\0\0\0\0\0\0\5", 12, 'u', 1, ""}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct dr_npy a;
        char why[256];
        cr_assert(dr_idx_parse(t[i].text, t[i].n, &a, why, sizeof why), "%zu: %s", i, why);
        cr_assert(a.kind == t[i].kind && a.item == t[i].item, "%zu", i);
        int64_t n = a.item;
        for (uint32_t d = 0; d < a.rank; d++)
            n *= a.dim[d];
        cr_assert_eq(memcmp(a.data, t[i].right, (size_t)n), 0, "%zu", i);
        dr_npy_close(&a);
    }
}

Test(files, idx_that_is_refused) {
    static const struct {
        const char *text;
        size_t n;
        const char *why;
    } t[] = {
        {"", 0, "the file is empty"},
        {"\0\0", 2, "it is not an IDX file"},
        {"\x93NUMPY", 6, "it is not an IDX file"},
        {"\0\0\x0a\1\0\0\0\1\1", 9, "IDX type 0x0a is not one of"},
        {"\0\0\x08\0\1", 5, "its header says 0 dimensions"},
        {"\0\0\x08\xff\1", 5, "its header says 255 dimensions"},
        {"\0\0\x08\3\0\0\0\1\0", 9, "it ends inside its header"},
        {"\0\0\x08\1\0\0\0\3\1\2", 10, "its header needs 3 bytes of items, it has 2"},
        {"\0\0\x08\1\0\0\0\1\1\2", 10, "1 bytes follow the 1 bytes"},
        {"\0\0\x08\1\xff\xff\xff\xff\1\2", 10, "its header needs 4294967295 bytes"},
        {"\0\0\x0e\3\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16, "more than 2^64 bytes"},
        {"\0\0\x0e\4\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 20,
         "more than 2^64 bytes"},
        {"\x1f\x8b", 2, "the gzip file is truncated"},
        {"\x1f\x8b\x09\0\0\0\0\0\0\0", 10, "the gzip file is damaged"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct dr_npy a;
        char why[256] = "";
        cr_assert(!dr_idx_parse(t[i].text, t[i].n, &a, why, sizeof why), "%zu", i);
        cr_assert(strstr(why, t[i].why), "%zu: '%s' lacks '%s'", i, why, t[i].why);
    }
}

static void open_idx(const char *name, struct dr_npy *a) {
    char path[1200], why[256];
    snprintf(path, sizeof path, IMAGES "%s", name);
    cr_assert(dr_idx_open(path, a, why, sizeof why), "%s: %s", path, why);
}

Test(files, idx_gzipped) {
    struct dr_npy a;
    static const float right[] = {1.5f, -2.25f, 3e38f, 0, 1e-40f, -1};
    open_idx("labels-idx1-ubyte", &a); /* only labels-idx1-ubyte.gz is there */
    cr_assert(a.rank == 1 && a.dim[0] == 6 && memcmp(a.data, "\3\1\4\1\5\x09", 6) == 0);
    dr_npy_close(&a);
    open_idx("floats-idx2.gz", &a);
    cr_assert(a.rank == 2 && a.dim[0] == 2 && a.dim[1] == 3 && a.kind == 'f');
    cr_assert_eq(memcmp(a.data, right, sizeof right), 0);
    dr_npy_close(&a);
    /* Cut anywhere, or with any bit of the compressed data, checksum and length flipped. */
    char why[256], path[1200];
    size_t n;
    snprintf(path, sizeof path, IMAGES "floats-idx2.gz");
    unsigned char *map = dr_file_map(path, &n, why, sizeof why), *own = malloc(n + 1);
    memcpy(own, map, n);
    own[n] = 0;
    munmap(map, n);
    for (size_t i = 0; i < n; i++)
        cr_assert(!dr_idx_parse(own, i, &a, why, sizeof why), "cut at %zu", i);
    cr_assert(!dr_idx_parse(own, n + 1, &a, why, sizeof why) && strstr(why, "something follows"));
    for (size_t i = 10; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            own[i] ^= (unsigned char)(1 << bit);
            cr_assert(!dr_idx_parse(own, n, &a, why, sizeof why), "bit %d of byte %zu", bit, i);
            own[i] ^= (unsigned char)(1 << bit);
        }
    free(own);
}

/* A gzip file of a header that asks for 2^40 bytes: refused before they are taken. */
Test(files, idx_bomb) {
    static const unsigned char stored[] = {/* RFC 1951: one stored block of 12 bytes */
                                           0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                           0x03, 0x01, 0x0c, 0x00, 0xf3, 0xff, 0x00, 0x00, 0x08,
                                           0x02, 0x00, 0x10, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00,
                                           0xa3, 0x91, 0x0c, 0x3d, 0x0c, 0x00, 0x00, 0x00};
    struct dr_npy a;
    char why[256];
    cr_assert(!dr_idx_parse(stored, sizeof stored, &a, why, sizeof why));
    cr_assert(strstr(why, "needs 1099511627776 bytes of items, more than 35 compressed bytes"),
              "%s", why);
}

/* ---- a model by hand ---- */

struct world {
    struct dr_arena *a;
    struct dr_model *m;
    struct dr_column_want want[4];
    struct dr_ring ring;
    unsigned char *slot;
};
static struct world world(int64_t batch) {
    struct world w = {.a = dr_arena_create()};
    w.m = DR_NEW(w.a, struct dr_model);
    w.m->arena = w.a;
    w.m->diag = dr_diag_create(w.a);
    w.m->batch = batch;
    struct dr_split *split = dr_push(w.a, &w.m->split);
    *split = (struct dr_split){.name = "train", .shuffle = 0, .last = 1};
    return w;
}
static void end(struct world *w, struct dr_dataset *s) {
    dr_dataset_close(s);
    free(w->slot);
    dr_arena_destroy(w->a);
}
/* `pattern` is relative to the test's folder. */
static struct dr_source *feed(struct world *w, const char *name, enum dr_source_kind kind,
                              const char *pattern, struct dr_shape shape, enum dr_dtype type) {
    const uint32_t i = w->m->input.n;
    const enum dr_meaning meaning = shape.rank == 3   ? DR_IMAGE
                                    : shape.rank == 2 ? DR_MASK
                                                      : DR_LABEL;
    *dr_push(w->a, &w->m->input) =
        (struct dr_input){.name = name, .dtype = type, .shape = shape, .meaning = meaning};
    w->want[i] = (struct dr_column_want){
        .input = i, .dtype = meaning == DR_LABEL ? DR_I32 : type, .ignore = 255};
    w->want[i].shape.rank = shape.rank + 1;
    w->want[i].shape.dim[0] = w->m->batch;
    for (uint32_t d = 0; d < shape.rank; d++)
        w->want[i].shape.dim[d + 1] = shape.dim[d];
    struct dr_source *s = dr_push(w->a, &w->m->split.at[0].source);
    *s = (struct dr_source){.input = i,
                            .kind = kind,
                            .path = dr_printf(w->a, "%s/%s", folder, pattern),
                            .literal = strlen(folder) + 1};
    return s;
}
static struct dr_dataset *opened(struct world *w, uint32_t split) {
    struct dr_dataset *s = dr_dataset_open(w->a, w->m, split, false);
    cr_assert_not_null(s, "%s", dr_diag_text(w->m->diag));
    w->ring.slots = 1;
    dr_ring_layout(w->a, &w->ring, w->want, w->m->input.n, w->m->batch);
    w->slot = aligned_alloc(64, w->ring.slot_bytes);
    return s;
}
static const unsigned char *batch(struct world *w, struct dr_dataset *s, uint64_t step) {
    const char *why = dr_dataset_batch(s, w->want, w->m->input.n, &w->ring, 0, step, w->slot);
    cr_assert_null(why, "%s", why);
    return w->slot;
}
static void refused(struct world *w, const char *text) {
    cr_assert_null(dr_dataset_open(w->a, w->m, 0, false), "wanted: %s", text);
    const char *all = dr_diag_text(w->m->diag);
    cr_assert(strstr(all, text), "'%s' lacks '%s'", all, text);
    cr_assert_eq(dr_diag_errors(w->m->diag), 1, "%s", all);
    end(w, NULL);
}
static const struct dr_shape one_grey = {3, {1, 1, 1}}, scalar = {0};

/* Grey pictures of one pixel: a PNG whose pixel is `value`. */
static void pixel(const char *name, unsigned char value) {
    char path[1200], why[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);

    cr_assert(dr_png_write(path, &value, 1, 1, 1, why, sizeof why), "%s: %s", path, why);
}

/* ---- arrays as columns ---- */

Test(files, idx_as_columns) {
    struct world w = world(2);
    copy("images-idx3-ubyte", "i");
    copy("labels-idx1-ubyte.gz", "l.gz");
    feed(&w, "image", DR_SOURCE_IDX, "i", DR_SHAPE(4, 3, 1), DR_U8); /* the channel is added */
    struct dr_source *s = feed(&w, "label", DR_SOURCE_IDX, "l", scalar, DR_U8);
    for (int i = 0; i < 2; i++) {
        w.m->split.at[0].source.at[i].has_range = true;
        w.m->split.at[0].source.at[i].from = 2;
        w.m->split.at[0].source.at[i].to = 6;
    }
    struct dr_dataset *d = opened(&w, 0);
    cr_assert_eq(dr_dataset_samples(d), 4);
    const unsigned char *slot = batch(&w, d, 1);
    struct dr_npy right;
    char why[256];
    cr_assert(dr_npy_open(IMAGES "idx_images.npy", &right, why, sizeof why));
    cr_assert_eq(memcmp(slot + w.ring.offset[0], right.data + 4 * 12, 24), 0);
    const int32_t *label = (const void *)(slot + w.ring.offset[1]);
    cr_assert(label[0] == 5 && label[1] == 9);
    w.want[1].classes = 9;
    w.want[1].ignore = 0;
    cr_assert(!dr_dataset_check(d, w.want, 2));
    cr_assert(strstr(dr_diag_text(w.m->diag), "row 5: value 9, input 'label' takes 0 to 8"));
    dr_npy_close(&right);
    end(&w, d);

    w = world(2);
    s = feed(&w, "image", DR_SOURCE_IDX, "i", DR_SHAPE(3, 4, 1), DR_U8);
    refused(&w, "is [6, 4, 3]: samples of input 'image' are declared [3, 4, 1]");
    w = world(2);
    s = feed(&w, "image", DR_SOURCE_IDX, "nowhere", DR_SHAPE(3, 4, 1), DR_U8);
    refused(&w, "nowhere': No such file");
    (void)s;
}

/* Two batches of CIFAR-10: record r has label r % 10; its planes are r, r + 100, and the column. */
Test(files, cifar10) {
    enum { RECORD = 3073 };
    static unsigned char bytes[3 * RECORD];
    for (int r = 0; r < 5; r++) {
        unsigned char *p = bytes + (r % 3) * RECORD;
        p[0] = (unsigned char)r;
        memset(p + 1, r, 1024);
        memset(p + 1025, 100 + r, 1024);
        for (int i = 0; i < 1024; i++)
            p[2049 + i] = (unsigned char)(i % 32);
        if (r == 2)
            put("data_batch_1.bin", bytes, 3 * RECORD);
        if (r == 4)
            put("data_batch_2.bin", bytes, 2 * RECORD);
    }
    struct world w = world(5);
    feed(&w, "image", DR_SOURCE_CIFAR10, "data_batch_*.bin", DR_SHAPE(32, 32, 3), DR_U8);
    feed(&w, "label", DR_SOURCE_CIFAR10, "data_batch_*.bin", scalar, DR_U8);
    struct dr_dataset *d = opened(&w, 0);
    cr_assert_eq(dr_dataset_samples(d), 5);
    w.want[1].classes = 10;
    cr_assert(dr_dataset_check(d, w.want, 2), "%s", dr_diag_text(w.m->diag));
    const unsigned char *slot = batch(&w, d, 0);
    for (int r = 0; r < 5; r++) {
        const unsigned char *p = slot + w.ring.offset[0] + r * 3072;
        /* files 1 and 2: records 0 1 2, then 3 4 */
        for (int i = 0; i < 1024; i++)
            cr_assert(p[3 * i] == r && p[3 * i + 1] == 100 + r && p[3 * i + 2] == i % 32);
        cr_assert_eq(((const int32_t *)(const void *)(slot + w.ring.offset[1]))[r], r);
    }
    w.want[1].classes = 4;
    w.want[1].ignore = 0;
    cr_assert(!dr_dataset_check(d, w.want, 2));
    cr_assert(strstr(dr_diag_text(w.m->diag), "row 4: value 4, input 'label' takes 0 to 3"));
    end(&w, d);

    w = world(1);
    put("short.bin", bytes, RECORD - 1);
    feed(&w, "image", DR_SOURCE_CIFAR10, "short.bin", DR_SHAPE(32, 32, 3), DR_U8);
    refused(&w, "short.bin: 3072 bytes are not whole records of 3073");
    w = world(1);
    feed(&w, "image", DR_SOURCE_CIFAR10, "data_batch_1.bin", DR_SHAPE(3, 32, 32), DR_U8);
    refused(&w, "u8 of [32, 32, 3], and integer labels of []; input 'image' is u8 of [3, 32, 32]");
    w = world(1);
    feed(&w, "image", DR_SOURCE_CIFAR10, "none*.bin", DR_SHAPE(32, 32, 3), DR_U8);
    refused(&w, "there is no such file");
}

/* ---- patterns ---- */

/* Bytewise order: capitals before small letters, '-' before '.', 10 before 9. */
Test(files, order_of_a_pattern) {
    static const char *const names[] = {"Z.png",   "a-b.png", "a.png",
                                        "n10.png", "n9.png",  "\xc3\xa9.png"};
    for (int i = 5; i >= 0; i--)
        pixel(names[i], (unsigned char)i);
    pixel(".hidden.png", 99); /* a leading dot is not matched, as in a shell */
    pixel("other.PNG", 99);
    struct world w = world(6);
    feed(&w, "image", DR_SOURCE_FILES, "*.png", one_grey, DR_U8);
    struct dr_dataset *d = opened(&w, 0);
    cr_assert_eq(dr_dataset_samples(d), 6);
    cr_assert_eq(memcmp(batch(&w, d, 0), "\0\1\2\3\4\5", 6), 0);
    cr_assert_str_eq(dr_dataset_stem(d, 1), "a-b");
    end(&w, d);
    w = world(2);
    struct dr_source *s = feed(&w, "image", DR_SOURCE_FILES, "*.png", one_grey, DR_U8);
    s->has_range = true;
    s->from = 3;
    s->to = 5;
    d = opened(&w, 0);
    cr_assert_eq(memcmp(batch(&w, d, 0), "\3\4", 2), 0);
    cr_assert_str_eq(dr_dataset_stem(d, 0), "n10");
    end(&w, d);
    w = world(2);
    feed(&w, "image", DR_SOURCE_FILES, "{a,n9,n1*}.[p-q]?g", one_grey, DR_U8);
    d = opened(&w, 0);
    cr_assert_eq(dr_dataset_samples(d), 3);
    end(&w, d);
    w = world(1);
    s = feed(&w, "image", DR_SOURCE_FILES, "*.png", one_grey, DR_U8);
    s->has_range = true;
    s->to = 7;
    refused(&w, "rows [0, 7] are not within the 6 rows of files '");
    w = world(1);
    feed(&w, "image", DR_SOURCE_FILES, "*.jpeg", one_grey, DR_U8);
    refused(&w, "there is no such file");
    static const struct {
        const char *pattern, *says;
    } braces[] = {
#define TWO_FOR_8 "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"
        {TWO_FOR_8 "{c,d}", "there is no such file"}, /* 512 */
        {TWO_FOR_8 "{c,d}{e,f}", "its braces stand for more than 1000 patterns"},
        {TWO_FOR_8 "{{c,d}{e,f},g}", "more than 1000 patterns"},
        {TWO_FOR_8 "{c,d}\\{e,f}", "there is no such file"},
        {TWO_FOR_8 TWO_FOR_8 TWO_FOR_8 TWO_FOR_8 TWO_FOR_8 TWO_FOR_8 TWO_FOR_8 TWO_FOR_8 TWO_FOR_8,
         "more than 1000 patterns"},
    };
    for (size_t i = 0; i < sizeof braces / sizeof *braces; i++) {
        w = world(1);
        feed(&w, "image", DR_SOURCE_FILES, braces[i].pattern, one_grey, DR_U8);
        refused(&w, braces[i].says);
    }
    w = world(1);
    feed(&w, "image", DR_SOURCE_FILES, ".", one_grey, DR_U8);
    refused(&w, "it is a folder: './*' would be all files in it");
    w = world(1);
    feed(&w, "image", DR_SOURCE_FILES, "*.png", DR_SHAPE(1, 1, 2), DR_U8);
    refused(&w, "feed images, u8 or u16 of [height, width, 1, 3 or 4], and masks");
    w = world(1);
    feed(&w, "image", DR_SOURCE_FILES, "*.png", one_grey, DR_F32);
    refused(&w, "input 'image' is f32 of [1, 1, 1]");
    w = world(1);
    feed(&w, "image", DR_SOURCE_FILES, "*.png", scalar, DR_U8);
    refused(&w, "input 'image' is u8 of []");
}

/* The folder of the YAML is no pattern, whatever it is called (blanks and other letters, too). */
Test(files, WGT_04_folders_with_special_names) {
    static const char *const names[] = {"a b", "[x]", "st*r", "{p,q}", "b\\c", "\xe6\x97\xa5", "~"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        struct world w = world(1);
        snprintf(name, sizeof name, "%s/cat 1.png", names[i]);
        pixel(name, (unsigned char)(i + 1));
        struct dr_source *s = feed(&w, "image", DR_SOURCE_FILES, name, one_grey, DR_U8);
        s->path = dr_printf(w.a, "%s/%s/cat*.png", folder, names[i]);
        s->literal = strlen(folder) + 1 + strlen(names[i]) + 1;
        struct dr_dataset *d = opened(&w, 0);
        cr_assert_eq(batch(&w, d, 0)[0], i + 1);
        cr_assert_str_eq(dr_dataset_stem(d, 0), "cat 1");
        end(&w, d);
    }
}

/* ---- pairs ---- */

/* An image and its mask by stem, whatever the order of their paths. */
Test(files, AUG_01_pairs_by_stem) {
    static const char *const stems[] = {"a", "a-b", "b", "c"};
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "p/%s.x.png", stems[i]); /* only the last ending goes */
        pixel(name, (unsigned char)(10 * i));
        snprintf(name, sizeof name, "m/%s/%s.x.tif", i % 2 ? "1" : "2", stems[i]);
        pixel(name, (unsigned char)i);
    }
    struct world w = world(4);
    feed(&w, "image", DR_SOURCE_FILES, "p/*.png", one_grey, DR_U8);
    feed(&w, "mask", DR_SOURCE_FILES, "m/*/*.tif", DR_SHAPE(1, 1), DR_U8);
    struct dr_dataset *d = opened(&w, 0);
    const unsigned char *slot = batch(&w, d, 0);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(slot[w.ring.offset[0] + (size_t)i], 10 * slot[w.ring.offset[1] + (size_t)i]);
    cr_assert_eq(slot[0], 10); /* a-b.x.png comes first */
    cr_assert_str_eq(dr_dataset_stem(d, 0), "a-b.x");
    end(&w, d);

    /* By position: the second in order is the second. */
    w = world(4);
    feed(&w, "image", DR_SOURCE_FILES, "p/*.png", one_grey, DR_U8);
    feed(&w, "mask", DR_SOURCE_FILES, "m/*/*.tif", DR_SHAPE(1, 1), DR_U8)->pair_by_position = true;
    d = opened(&w, 0);
    slot = batch(&w, d, 0);
    /* m/1/a-b m/1/c m/2/a m/2/b */
    cr_assert_eq(memcmp(slot + w.ring.offset[1], "\1\3\0\2", 4), 0);
    end(&w, d);
}

Test(files, a_stem_that_is_missing) {
    pixel("p/a.png", 1);
    pixel("p/b.png", 1);
    pixel("m/a.png", 1);
    struct world w = world(1);
    feed(&w, "image", DR_SOURCE_FILES, "p/*.png", one_grey, DR_U8);
    feed(&w, "mask", DR_SOURCE_FILES, "m/*.png", DR_SHAPE(1, 1), DR_U8);
    refused(&w, "/p/b.png, but nothing of files '");
    w = world(1);
    feed(&w, "mask", DR_SOURCE_FILES, "m/*.png", DR_SHAPE(1, 1), DR_U8);
    feed(&w, "image", DR_SOURCE_FILES, "p/*.png", one_grey, DR_U8);
    refused(&w, "has the stem 'b' for input 'mask'");
    w = world(1);
    feed(&w, "image", DR_SOURCE_FILES, "p/*.png", one_grey, DR_U8)->pair_by_position = true;
    feed(&w, "mask", DR_SOURCE_FILES, "m/*.png", DR_SHAPE(1, 1), DR_U8);
    refused(&w, "input 'mask' has 1 samples in files '");
    pixel("m/b.png", 1);
    pixel("m/b.tif", 1);
    w = world(1);
    feed(&w, "image", DR_SOURCE_FILES, "p/*.png", one_grey, DR_U8);
    feed(&w, "mask", DR_SOURCE_FILES, "m/*", DR_SHAPE(1, 1), DR_U8);
    refused(&w, "/m/b.png and ");
}

/* Names that repeat in several folders: the folders count, in both columns. */
Test(files, stems_of_several_folders) {
    pixel("p/x/1.png", 10);
    pixel("p/y/1.png", 20);
    pixel("m/x/1.png", 1);
    pixel("m/y/1.png", 2);
    struct world w = world(2);
    feed(&w, "image", DR_SOURCE_FILES, "p/*/*.png", one_grey, DR_U8);
    feed(&w, "mask", DR_SOURCE_FILES, "m/*/*.png", DR_SHAPE(1, 1), DR_U8);
    struct dr_dataset *d = opened(&w, 0);
    const unsigned char *slot = batch(&w, d, 0);
    cr_assert(slot[0] == 10 && slot[1] == 20);
    cr_assert_eq(memcmp(slot + w.ring.offset[1], "\1\2", 2), 0);
    cr_assert_str_eq(dr_dataset_stem(d, 1), "y/1");
    end(&w, d);
}

/* ---- folders ---- */

static struct dr_source *folders(struct world *w) {
    struct dr_source *s = feed(w, "label", DR_SOURCE_FOLDERS, "", scalar, DR_U16);
    s->path = NULL;
    s->of = 0;
    return s;
}

/* Also where the pattern goes another way to the picture than the name that is written. */
Test(files, pictures_are_not_written_over) {
    static const char model[] =
        "dagrun: 1\n"
        "inputs: {image: {shape: [8, 8, 3], dtype: u8}}\n"
        "data: {batch: 1, train: {image: {files: \"x/../p/*.png\", fit: resize}}}\n"
        "subgraphs: {n: {nodes: {s: {op: normalize, in: image}, c: {op: conv2d, filters: 3, "
        "kernel: 1}}}}\n"
        "train: {losses: {l: {op: mse, in: [n.c, n.s]}}, optimizer: {op: sgd, lr: 0}, steps: 1}\n";
    static const char *const args[][2] = {
        {"--save %s/p/a.png", "--save"},
        {"-o %s/p/./b.png", "-o"},
        {"--set train.log=p/b.png", "train.log"},
        {"--set train.save=x/../p/a.png", "train.save"},
    };
    copy("rgb.png", "p/a.png");
    copy("rgb.png", "p/b.png");
    put("x/y", "", 0);
    char *yaml = cli_file(folder, "m.yaml", model), line[4096], want[200];
    for (size_t i = 0; i < sizeof args / sizeof *args; i++) {
        int n = snprintf(line, sizeof line, args[i][0], folder);
        snprintf(line + n, sizeof line - (size_t)n, " %s", yaml);
        struct cli_run r = cli_run(DR_BINARY, line);
        snprintf(want, sizeof want, "%s: it would be written over a picture that is read",
                 args[i][1]);
        cr_expect_eq(r.code, 2, "%s: %d", line, r.code);
        cr_expect(strstr(r.err, want), "%s: %s", line, r.err);
        cli_run_free(&r);
    }
    struct cli_run r = cli_run(DR_BINARY, yaml);
    cr_expect_eq(r.code, 0, "%s", r.err); /* the pictures are still there */
    cli_run_free(&r);
    free(yaml);
}

Test(files, folders_are_classes) {
    pixel("train/cat/1.png", 1);
    pixel("train/Dog/1.png", 2);
    pixel("train/ant/1.png", 3);
    pixel("train/cat/2.png", 4);
    pixel("val/cat/7.png", 5); /* the same number as in training, although it is the first here */
    struct world w = world(4);
    feed(&w, "image", DR_SOURCE_FILES, "train/*/*.png", one_grey, DR_U8);
    folders(&w);
    struct dr_split *val = dr_push(w.a, &w.m->split);
    *val = (struct dr_split){.name = "val", .shuffle = 0, .last = 1};
    for (int i = 0; i < 2; i++)
        *dr_push(w.a, &val->source) = w.m->split.at[0].source.at[i];
    val->source.at[0].path = dr_printf(w.a, "%s/val/*/*.png", folder);
    struct dr_dataset *d = opened(&w, 0);
    const unsigned char *slot = batch(&w, d, 0);
    const int32_t *label = (const void *)(slot + w.ring.offset[1]);
    cr_assert_eq(memcmp(slot, "\2\3\1\4", 4), 0); /* Dog, ant, cat, cat */
    cr_assert(label[0] == 0 && label[1] == 1 && label[2] == 2 && label[3] == 2);
    cr_assert_str_eq(dr_dataset_stem(d, 0), "Dog/1");
    w.want[1].classes = 2;
    cr_assert(!dr_dataset_check(d, w.want, 2));
    cr_assert(strstr(dr_diag_text(w.m->diag), "are 3 classes, input 'label' takes 0 to 1"));
    dr_dataset_close(d);
    free(w.slot);
    d = opened(&w, 1);
    slot = batch(&w, d, 0);
    cr_assert_eq(*(const int32_t *)(const void *)(slot + w.ring.offset[1]), 2);
    end(&w, d);

    /* A range of the images is one of the labels, and does not change their numbers. */
    w = world(1);
    struct dr_source *s = feed(&w, "image", DR_SOURCE_FILES, "train/*/*.png", one_grey, DR_U8);
    s->has_range = true;
    s->from = 3;
    s->to = 4;
    folders(&w);
    d = opened(&w, 0);
    slot = batch(&w, d, 0);
    cr_assert_eq(*(const int32_t *)(const void *)(slot + w.ring.offset[1]), 2);
    end(&w, d);
}

Test(files, folders_that_are_refused) {
    pixel("train/cat/1.png", 1);
    pixel("val/cow/1.png", 1);
    struct world w = world(1);
    feed(&w, "image", DR_SOURCE_FILES, "train/*/*.png", one_grey, DR_U8);
    folders(&w);
    refused(&w, "lies in one folder, 'cat'");
    pixel("train/dog/1.png", 1);
    w = world(1);
    feed(&w, "image", DR_SOURCE_FILES, "train/*/*.png", one_grey, DR_U8);
    struct dr_source *s = folders(&w);
    s->has_range = true;
    s->to = 1;
    refused(&w, "rows are those of input 'image'");
    w = world(1);
    feed(&w, "image", DR_SOURCE_FILES, "train/*/*.png", one_grey, DR_U8);
    folders(&w);
    struct dr_split *train = dr_push(w.a, &w.m->split);
    *train = w.m->split.at[0];
    train->source.at =
        memcpy(DR_NEW_N(w.a, struct dr_source, 2), train->source.at, 2 * sizeof(struct dr_source));
    w.m->split.at[0].name = "val";
    w.m->split.at[0].source.at[0].path = dr_printf(w.a, "%s/val/*/*.png", folder);
    refused(&w, "lies in 'cow', which is none of the 2 folders of data.train");
}

/* ---- bad samples ---- */

/* Before the run: the first of them with its place, the others named or counted. */
Test(files, AUG_06_AUG_09_sizes_are_checked_before_the_run) {
    for (int i = 0; i < 9; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d.png", i);
        copy(i < 2 ? "rgb.png" : i < 8 ? "noise.png" : "rgb16.png", name);
    }
    struct world w = world(1);
    struct dr_source *s = feed(&w, "image", DR_SOURCE_FILES, "*.png", DR_SHAPE(5, 7, 3), DR_U8);
    struct dr_dataset *d = opened(&w, 0);
    cr_assert(!dr_dataset_check(d, w.want, 1));
    const char *all = dr_diag_text(w.m->diag);
    cr_assert_eq(dr_diag_errors(w.m->diag), 1);
    cr_assert(strstr(all, "/2.png: it is [9, 13] (height, width), [5, 7] is declared; `fit: "
                          "resize`, `crop` or `pad` would make it so"),
              "%s", all);
    cr_assert(strstr(all, "/6.png: it is [9, 13]") && !strstr(all, "/7.png"), "%s", all);
    cr_assert(strstr(all, "and 2 more files"), "%s", all);
    const char *why = dr_dataset_batch(d, w.want, 1, &w.ring, 0, 2, w.slot);
    cr_assert(why && strstr(why, "input 'image': ") && strstr(why, "/2.png: it is [9, 13]"), "%s",
              why);
    dr_dataset_close(d);
    free(w.slot);
    w.slot = NULL;
    s->fit = 1;
    s->has_range = true;
    s->to = 8;
    d = opened(&w, 0);
    cr_assert(dr_dataset_check(d, w.want, 1));
    end(&w, d);
}

/* Numbers past the classes show when a mask is decoded: named with the file. */
Test(files, class_numbers_of_masks) {
    pixel("m/1.png", 3);
    pixel("m/2.png", 255);
    pixel("m/3.png", 7);
    struct world w = world(1);
    feed(&w, "mask", DR_SOURCE_FILES, "m/*.png", DR_SHAPE(1, 1), DR_U8);
    w.want[0].classes = 4;
    struct dr_dataset *d = opened(&w, 0);
    cr_assert(dr_dataset_check(d, w.want, 1));
    cr_assert_eq(batch(&w, d, 0)[0], 3);
    cr_assert_eq(batch(&w, d, 1)[0], 255);
    const char *why = dr_dataset_batch(d, w.want, 1, &w.ring, 0, 2, w.slot);
    cr_assert(why && strstr(why, "/m/3.png: value 7, masks of input 'mask' take 0 to 3 or 255"),
              "%s", why);
    end(&w, d);
}

/* ---- threads ---- */

static void free_ring(struct dr_ring *r) {
    free(r->base);
    free((void *)r->filled);
    free((void *)r->released);
}

/* JPEG, PNG, EXIF and resizing in the loader's threads: the same batches for any number of them. */
Test(files, AUG_03_decoding_threads) {
    static const char *const kinds[] = {"rgb.jpg",     "progressive.jpg", "rgb.png",  "noise.png",
                                        "turned6.jpg", "interlaced.png",  "grey.jpg", "cmyk.jpg"};
    for (int i = 0; i < 40; i++) {
        char name[32];
        snprintf(name, sizeof name, "%02d.img", i); /* files are told apart by their first bytes */
        copy(kinds[i % 8], name);
    }
    uint64_t digest[40] = {0};
    for (uint32_t threads = 1; threads <= 4; threads += threads == 1 ? 1 : 2) {
        struct world w = world(3);
        feed(&w, "image", DR_SOURCE_FILES, "*.img", DR_SHAPE(16, 12, 3), DR_U8)->fit = 2;
        w.m->split.at[0].shuffle = 1;
        struct dr_dataset *s = opened(&w, 0);
        w.ring.slots = 5;
        w.ring.base = aligned_alloc(64, 5 * w.ring.slot_bytes);
        w.ring.filled = calloc(5, sizeof *w.ring.filled);
        w.ring.released = calloc(5, sizeof *w.ring.released);
        struct dr_loader *l = dr_loader_start(s, w.want, 1, &w.ring, 9, 0, 40, threads);
        for (uint64_t step = 0; step < 40; step++) {
            const char *why = "";
            cr_assert(dr_loader_wait(l, step, &why), "%s", why);
            const uint64_t h =
                dr_hash(w.ring.base + step % 5 * w.ring.slot_bytes, (size_t)3 * 16 * 12 * 3);
            cr_assert(threads == 1 || digest[step] == h, "step %d", (int)step);
            digest[step] = h;
            w.ring.released[step % 5] = step + 1;
            dr_loader_wake(l);
        }
        dr_loader_stop(l);
        free_ring(&w.ring);
        end(&w, s);
    }
}
