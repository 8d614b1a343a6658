/* The six files of tests/yaml on data in the layout that they expect, smaller and shorter by --set:
 * five train, one infers; what they write is there. */
#include "augment/image.h"
#include "augment/npy.h"
#include "augment/png.h"
#include "graph/safetensors.h"
#include "tests/fake_cli.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <zlib.h>

static char *folder;
static void setup(void) {
    folder = cli_folder();
}
static void teardown(void) {
    cli_folder_remove(folder);
}
TestSuite(six, .init = setup, .fini = teardown, .timeout = 120);

static const char *in(const char *name) {
    static char path[4][1200];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void copy(const char *from, const char *to) {
    size_t n;
    char why[256];
    void *map = dr_file_map(from, &n, why, sizeof why);
    cr_assert(map, "%s: %s", from, why);
    cr_assert_eq(dr_write_file(in(to), map, n), 0);
    munmap(map, n);
}

/* Runs a copy of tests/yaml/NAME in the test's folder. */
static struct cli_run run(const char *name, const char *options) {
    char yaml[1200], args[4096];
    snprintf(yaml, sizeof yaml, DR_SOURCE_DIR "/tests/yaml/%s", name);
    copy(yaml, name);
    snprintf(args, sizeof args, "--device cpu --threads 2 %s %s", options, in(name));
    struct cli_run r = cli_run(DR_BINARY, args);
    cr_assert_eq(r.code, 0, "%s:\n%s", args, r.err);
    return r;
}

static void says(const struct cli_run *r, const char *text) {
    cr_expect(strstr(r->out, text), "'%s' is not in:\n%s\n%s", text, r->out, r->err);
}

static bool there(const char *name) {
    struct stat st;
    return stat(in(name), &st) == 0 && st.st_size > 0;
}

/* ---- data ---- */

/* A picture of one class: its colour, with a gradient. */
static void picture(unsigned char *p, int h, int w, int class) {
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++)
                *p++ = (unsigned char)(c == class % 3 ? 200 + y % 16 : 30 + x % 16);
}

static void photo(const char *name, int h, int w, int class) {
    unsigned char *p = malloc((size_t)h * (size_t)w * 3), *jpeg = NULL;
    unsigned long n = 0;
    tjhandle t = tjInitCompress();
    picture(p, h, w, class);
    cr_assert_eq(tjCompress2(t, p, w, 0, h, TJPF_RGB, &jpeg, &n, TJSAMP_420, 90, 0), 0);
    cr_assert_eq(dr_write_file(in(name), jpeg, n), 0);
    tjDestroy(t);
    tjFree(jpeg);
    free(p);
}

static void npy(const char *name, struct dr_shape s, int classes) {
    int64_t n = 1;
    for (uint32_t i = 0; i < s.rank; i++)
        n *= s.dim[i];
    unsigned char *p = malloc((size_t)n);
    for (int64_t i = 0; i < n; i++)
        p[i] = (unsigned char)(i * 7 % classes);
    cr_assert_eq(dr_npy_write(in(name), "|u1", s.dim, s.rank, p, (size_t)n), 0);
    free(p);
}

static void idx(const char *name, bool gzip, struct dr_shape s, int classes) {
    unsigned char *p = calloc(1, 65536), *to = p;
    int64_t n = 1;
    *to++ = 0;
    *to++ = 0;
    *to++ = 8;
    *to++ = (unsigned char)s.rank;
    for (uint32_t i = 0; i < s.rank; i++, to += 4) {
        to[3] = (unsigned char)s.dim[i];
        n *= s.dim[i];
    }
    for (int64_t i = 0; i < n; i++)
        *to++ = (unsigned char)(i * 7 % classes);
    if (gzip) {
        gzFile f = gzopen(in(name), "wb");
        cr_assert(f && gzwrite(f, p, (unsigned)(to - p)) == to - p && gzclose(f) == Z_OK);
    } else {
        cr_assert_eq(dr_write_file(in(name), p, (size_t)(to - p)), 0);
    }
    free(p);
}

/* A safetensors file: weights a little away from 0, running variances of 1. */
static void weights(const char *name, const struct dr_safetensors_entry *from, uint32_t n) {
    struct dr_file *f;
    struct dr_safetensors_entry entry[32];
    memcpy(entry, from, n * sizeof *entry);
    cr_assert_eq(dr_safetensors_create(&f, in(name), entry, n, NULL, 0), 0);
    for (uint32_t i = 0; i < n; i++)
        for (uint64_t k = 0; k < entry[i].bytes / 4; k++) {
            const float v =
                strstr(entry[i].name, "running_var") ? 1.0f : 0.01f * (float)((int)(k % 11) - 5);
            cr_assert_eq(dr_file_write(f, &v, sizeof v), 0);
        }
    cr_assert_eq(dr_file_commit(f), 0);
}

/* ---- the files ---- */

Test(six, a_lenet) {
    idx("train-images-idx3-ubyte.gz", true, DR_SHAPE(40, 28, 28), 251);
    idx("train-labels-idx1-ubyte", false, DR_SHAPE(40), 10);
    idx("t10k-images-idx3-ubyte", false, DR_SHAPE(8, 28, 28), 251);
    idx("t10k-labels-idx1-ubyte.gz", true, DR_SHAPE(8), 10);
    struct cli_run r = run("a_lenet.yaml", "--set data.batch=8 --set train.epochs=2 "
                                           "--set data.train.image.rows=[0,24] "
                                           "--set data.train.label.rows=[0,24] "
                                           "--set data.val.image.rows=[24,40] "
                                           "--set data.val.label.rows=[24,40]");
    says(&r, "lenet: 6 steps");
    says(&r, "acc ");
    cr_expect(there("out/lenet.safetensors"));
    cli_run_free(&r);
    r = run("a_lenet.yaml", "--eval --set eval.on=test --set data.batch=8 "
                            "--set data.train.image.rows=[0,24] --set data.train.label.rows=[0,24] "
                            "--set data.val.image.rows=[24,40] --set data.val.label.rows=[24,40]");
    cli_run_free(&r);
}

Test(six, b_resnet18) {
    for (int i = 0; i < 12; i++) {
        static const char *const folders[] = {"n01", "n02", "n03"};
        char name[64];
        snprintf(name, sizeof name, "train/%s/%d.jpg", folders[i % 3], i);
        photo(name, 40 + i, 60 - i, i); /* of several sizes and proportions */
        snprintf(name, sizeof name, "val/%s/%d.jpg", folders[i % 3], i);
        photo(name, 50, 50, i);
    }
    struct cli_run r =
        run("b_resnet18.yaml", "--set inputs.image.shape=[40,40,3] --set data.batch=4 "
                               "--set subgraphs.augment.nodes.crop.size=[32,32] "
                               "--set train.epochs=1 --set train.optimizer.lr.warmup=0");
    says(&r, "resnet18: 3 steps");
    says(&r, "top5");
    cr_expect(there("out/resnet18.safetensors"));
    cli_run_free(&r);
}

#define CONV(name, k, c)                                                                           \
    { name ".weight", DR_F32, 4, {k, c, 3, 3}, 0 }
#define NORM(name, k)                                                                              \
    {name ".weight", DR_F32, 1, {k}, 0}, {name ".bias", DR_F32, 1, {k}, 0},                        \
        {name ".running_mean", DR_F32, 1, {k}, 0}, {                                               \
        name ".running_var", DR_F32, 1, {k}, 0                                                     \
    }
#define DOUBLE(name, k, c)                                                                         \
    CONV(name ".0", k, c), NORM(name ".1", k), CONV(name ".3", k, k), NORM(name ".4", k)

Test(six, c_unet) {
    static const struct dr_safetensors_entry encoder[] = {
        DOUBLE("module.inc.double_conv", 64, 3),
        DOUBLE("module.down1.maxpool_conv.1.double_conv", 128, 64), DOUBLE("module.mid", 256, 128)};
    weights("unet_torch.safetensors", encoder, sizeof encoder / sizeof *encoder);
    for (int i = 0; i < 6; i++) {
        char name[64], why[128];
        unsigned char mask[20 * 30];
        for (int k = 0; k < 20 * 30; k++)
            mask[k] = (unsigned char)(k % 30 < 15 ? i : k % 7 ? 9 : 255);
        snprintf(name, sizeof name, "photos/train/p%d.jpg", i);
        photo(name, 40, 60, i);
        snprintf(name, sizeof name, "masks/train/p%d.png", i);
        cr_assert(dr_make_folders(in(name)) == 0 &&
                      dr_png_write(in(name), mask, 30, 20, 1, why, sizeof why),
                  "%s", why);
    }
    struct cli_run r =
        run("c_unet.yaml", "--set inputs.image.shape=[16,16,3] --set inputs.mask.shape=[16,16] "
                           "--set data.batch=2 --set train.steps=4");
    says(&r, "unet: 4 steps");
    cli_run_free(&r);
}

Test(six, d_siamese) {
    npy("a.npy", DR_SHAPE(8, 16, 16, 3), 251);
    npy("b.npy", DR_SHAPE(8, 16, 16, 3), 239);
    npy("same.npy", DR_SHAPE(8), 2);
    struct cli_run r =
        run("d_siamese.yaml", "--set inputs.a.shape=[16,16,3] --set inputs.b.shape=[16,16,3] "
                              "--set data.batch=4 --set train.epochs=2");
    says(&r, "siamese: 4 steps");
    cli_run_free(&r);
}

Test(six, e_heads) {
    static const struct dr_safetensors_entry encoder[] = {CONV("c1", 64, 3),
                                                          {"c1.bias", DR_F32, 1, {64}, 0}};
    weights("encoder.safetensors", encoder, 2);
    npy("x.npy", DR_SHAPE(8, 16, 16, 3), 251);
    npy("m.npy", DR_SHAPE(8, 16, 16), 5);
    npy("y.npy", DR_SHAPE(8), 10);
    struct cli_run r =
        run("e_heads.yaml", "--set inputs.image.shape=[16,16,3] --set inputs.mask.shape=[16,16] "
                            "--set data.batch=4 --set train.steps=3");
    says(&r, "two_heads: 3 steps");
    says(&r, "seg");
    says(&r, "cls");
    cr_expect(there("out/heads.safetensors"));
    cli_run_free(&r);
}

/* Row i of an npy file of [n, 10] floats. */
static void row_of(const char *name, int64_t n, int64_t i, float to[10]) {
    struct dr_npy a;
    char why[256];
    cr_assert(dr_npy_open(in(name), &a, why, sizeof why), "%s", why);
    cr_assert(a.rank == 2 && a.dim[0] == n && a.dim[1] == 10 && a.kind == 'f' && a.item == 4);
    memcpy(to, a.data + (size_t)i * 40, 40);
    dr_npy_close(&a);
}

/* Five files in batches of two: five rows and five masks, each under the stem of its file. */
Test(six, f_infer) {
    static const struct dr_safetensors_entry net[] = {CONV("c1", 64, 3),
                                                      {"c1.bias", DR_F32, 1, {64}, 0},
                                                      {"seg.weight", DR_F32, 4, {5, 64, 1, 1}, 0},
                                                      {"seg.bias", DR_F32, 1, {5}, 0},
                                                      {"fc.weight", DR_F32, 2, {10, 64}, 0},
                                                      {"fc.bias", DR_F32, 1, {10}, 0}};
    weights("heads.safetensors", net, sizeof net / sizeof *net);
    static const char *const stems[] = {"B", "a", "a-1", "a.b", "z 9"};
    for (int i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "in/%s.jpg", stems[i]);
        photo(name, 30 + 5 * i, 40, i);
    }
    struct cli_run r = run("f_infer.yaml", "--set inputs.image.shape=[24,32,3] --set data.batch=2");
    cli_run_free(&r);
    for (int i = 0; i < 5; i++) {
        float row[10], alone[10], sum = 0;
        char rows[256];
        row_of("out/prob.npy", 5, i, row);
        for (int k = 0; k < 10; k++)
            sum += row[k];
        cr_expect(fabsf(sum - 1) < 1e-5f, "row %d: %g", i, (double)sum);
        /* The i-th row is the i-th file's: a run over that file alone gives the same. */
        snprintf(rows, sizeof rows,
                 "--set inputs.image.shape=[24,32,3] --set data.batch=2 --set "
                 "data.infer.image.rows=[%d,%d] --set outputs.prob.npy=one.npy",
                 i, i + 1);
        r = run("f_infer.yaml", rows);
        cli_run_free(&r);
        row_of("one.npy", 1, 0, alone);
        cr_expect_eq(memcmp(row, alone, sizeof row), 0, "row %d", i);
    }
    struct dr_decoder *d = dr_decoder_create();
    char why[256];
    for (int i = 0; i < 5; i++) {
        char name[64];
        uint32_t item;
        const struct dr_image_want w = {24, 32, 0, 1, DR_FIT_ERROR};
        unsigned char mask[24 * 32];
        snprintf(name, sizeof name, "out/mask/%s.png", stems[i]);
        cr_assert(dr_decoder_read_file(d, in(name), &w, mask, &item, why, sizeof why), "%s: %s",
                  name, why);
        for (int k = 0; k < 24 * 32; k++)
            cr_assert(mask[k] < 5);
    }
    dr_decoder_destroy(d);
    /* A mask in the photo's place would be the end of the photo. */
    char args[1300];
    snprintf(args, sizeof args, "--set outputs.mask.png=\"in/{stem}.jpg\" %s", in("f_infer.yaml"));
    r = cli_run(DR_BINARY, args);
    cr_expect(r.code == 2 && strstr(r.err, "in/B.jpg would be written over a file that is read"),
              "%s", r.err);
    cli_run_free(&r);
    /* Two files of one stem would be one mask. */
    photo("in/a.jpeg", 30, 40, 1);
    snprintf(args, sizeof args, "--set data.infer.image.files=in/* %s", in("f_infer.yaml"));
    r = cli_run(DR_BINARY, args);
    cr_expect(r.code == 2 && strstr(r.err, "two files have the stem 'a'"), "%s", r.err);
    cli_run_free(&r);
}
