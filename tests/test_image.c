/* Image files: what is decoded, in which colours, which way up and at which size, against what
 * Pillow makes of the same files (tests/data/make_images.py); and files that are cut, damaged or
 * made to harm. */
#include "augment/image.h"
#include "augment/npy.h"
#include "graph/base.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static struct dr_decoder *decoder;
static void setup(void) {
    decoder = dr_decoder_create();
}
static void teardown(void) {
    dr_decoder_destroy(decoder);
}
TestSuite(image, .init = setup, .fini = teardown, .timeout = 60);

static char *at(const char *name) {
    static char path[4][1024];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], DR_SOURCE_DIR "/tests/data/images/%s", name);
    return path[turn];
}

struct bytes {
    unsigned char *p;
    size_t n;
};
static struct bytes load(const char *name) { /* to be freed: sanitizers see its ends */
    size_t n;
    char why[256];
    void *map = dr_file_map(at(name), &n, why, sizeof why);
    cr_assert(map, "%s: %s", name, why);
    struct bytes b = {malloc(n), n};
    memcpy(b.p, map, n);
    munmap(map, n);
    return b;
}

/* Decodes as declared, and compares with NAME.npy; `off`: how far a value may be away. */
static void same(const char *file, const char *npy, uint32_t channels, uint32_t item,
                 enum dr_fit fit, int off) {
    struct dr_npy right;
    char why[512];
    uint32_t got_item;
    cr_assert(dr_npy_open(at(npy), &right, why, sizeof why), "%s: %s", npy, why);
    const struct dr_image_want w = {right.dim[0], right.dim[1], channels, item, fit};
    const size_t n = (size_t)w.height * (size_t)w.width * (channels ? channels : 1);
    unsigned char *to = malloc(n * item);
    const bool good = dr_decoder_read_file(decoder, at(file), &w, to, &got_item, why, sizeof why);
    cr_assert(good, "%s: %s", file, why);
    cr_assert(got_item == item && right.item == item, "%s", file);
    cr_assert_eq((size_t)right.dim[0] * (size_t)right.dim[1] *
                     (right.rank == 3 ? (size_t)right.dim[2] : 1),
                 n, "%s", npy);
    for (size_t i = 0; i < n; i++) {
        const int a = item == 1 ? to[i] : ((uint16_t *)(void *)to)[i];
        uint16_t two;
        memcpy(&two, right.data + i * item, item);
        const int b = item == 1 ? right.data[i] : two;
        cr_assert(abs(a - b) <= off, "%s, %s: value %zu is %d, not %d", file, npy, i, a, b);
    }
    free(to);
    dr_npy_close(&right);
}

/* ---- colours ---- */

/* Pillow carries a libjpeg-turbo of another version: one unit for its upsampling. */
Test(image, jpeg) {
    same("rgb.jpg", "rgb.npy", 3, 1, DR_FIT_ERROR, 1);
    same("rgb444.jpg", "rgb444.npy", 3, 1, DR_FIT_ERROR, 1);
    same("progressive.jpg", "progressive.npy", 3, 1, DR_FIT_ERROR, 1);
    same("grey.jpg", "grey.npy", 3, 1, DR_FIT_ERROR, 0); /* grey three times */
    same("grey.jpg", "grey_one.npy", 1, 1, DR_FIT_ERROR, 0);
    same("cmyk.jpg", "cmyk.npy", 3, 1, DR_FIT_ERROR, 1);
}

Test(image, png) {
    same("rgb.png", "rgb_png.npy", 3, 1, DR_FIT_ERROR, 0);
    same("rgba.png", "rgba.npy", 4, 1, DR_FIT_ERROR, 0);
    same("rgba.png", "rgb_png.npy", 3, 1, DR_FIT_ERROR, 0); /* alpha dropped, not blended */
    same("grey.png", "grey_png.npy", 1, 1, DR_FIT_ERROR, 0);
    same("grey_alpha.png", "grey_png.npy", 1, 1, DR_FIT_ERROR, 0);
    same("palette.png", "palette_rgb.npy", 3, 1, DR_FIT_ERROR, 0);
    same("palette_clear.png", "palette_rgb.npy", 3, 1, DR_FIT_ERROR, 0);
    same("palette_clear.png", "palette_clear.npy", 4, 1, DR_FIT_ERROR, 0);
    same("grey1.png", "grey1.npy", 1, 1, DR_FIT_ERROR, 0);
    same("grey2.png", "grey2.npy", 1, 1, DR_FIT_ERROR, 0);
    same("grey4.png", "grey4.npy", 1, 1, DR_FIT_ERROR, 0);
    same("grey16.png", "grey16.npy", 1, 2, DR_FIT_ERROR, 0);
    same("rgb16.png", "rgb16.npy", 3, 2, DR_FIT_ERROR, 0);
    same("interlaced.png", "rgb_png.npy", 3, 1, DR_FIT_ERROR, 0);
    same("profile.png", "rgb_png.npy", 3, 1, DR_FIT_ERROR, 0); /* a wrong profile is passed over */
}

/* A mask's numbers are those in the file: palette indexes, grey values that nothing scales. */
Test(image, masks) {
    same("palette.png", "palette_numbers.npy", 0, 1, DR_FIT_ERROR, 0);
    same("palette_clear.png", "palette_numbers.npy", 0, 1, DR_FIT_ERROR, 0);
    same("grey1.png", "grey1_numbers.npy", 0, 1, DR_FIT_ERROR, 0);
    same("grey2.png", "grey2_numbers.npy", 0, 1, DR_FIT_ERROR, 0);
    same("grey4.png", "grey4_numbers.npy", 0, 1, DR_FIT_ERROR, 0);
    same("grey.png", "grey_png.npy", 0, 1, DR_FIT_ERROR, 0);
    same("grey_alpha.png", "grey_png.npy", 0, 1, DR_FIT_ERROR, 0);
    same("grey16.png", "grey16.npy", 0, 2, DR_FIT_ERROR, 0);
}

static const void *decoded(const char *file, int64_t h, int64_t w, uint32_t channels,
                           unsigned char *to) {
    static char why[512];
    uint32_t item;
    const struct dr_image_want want = {h, w, channels, 1, DR_FIT_ERROR};
    const void *p = dr_decoder_read_file(decoder, at(file), &want, to, &item, why, sizeof why);
    cr_assert(p, "%s: %s", file, why);
    return p;
}

/* (c): a grey 100 as three channels and as one; a pixel of its own; alpha is dropped (see `png`).
 */
Test(image, AUG_07_grey_alpha_and_one_pixel) {
    unsigned char p[4];
    decoded("one.png", 1, 1, 3, p);
    cr_assert(p[0] == 100 && p[1] == 100 && p[2] == 100);
    decoded("one.png", 1, 1, 1, p);
    cr_assert_eq(p[0], 100);
    decoded("one.png", 1, 1, 4, p);
    cr_assert(p[0] == 100 && p[1] == 100 && p[2] == 100 && p[3] == 255);
}

static void refused(const char *file, uint32_t channels, uint32_t item, const char *text) {
    const struct dr_image_want w = {5, 7, channels, item, DR_FIT_RESIZE};
    unsigned char to[5 * 7 * 4 * 2];
    char why[512] = "nothing";
    uint32_t got;
    cr_assert_null(dr_decoder_read_file(decoder, at(file), &w, to, &got, why, sizeof why), "%s",
                   file);
    cr_assert(strstr(why, text), "%s: '%s' lacks '%s'", file, why, text);
}

Test(image, AUG_07_what_does_not_convert_is_named) {
    refused("rgb.png", 1, 1, "it is RGB (3 channels), 1 channel is declared");
    refused("rgb.jpg", 1, 1, "it is RGB (3 channels), 1 channel is declared");
    refused("rgba.png", 1, 1, "it is RGB and alpha (4 channels), 1 channel");
    refused("palette.png", 1, 1, "it is palette colour (3 channels), 1 channel");
    refused("cmyk.jpg", 1, 1, "it is CMYK (4 channels), 1 channel");
    refused("grey16.png", 1, 1, "it has 16 bits a channel, u8 is declared");
    refused("rgb16.png", 3, 1, "it has 16 bits a channel, u8 is declared");
    refused("grey.png", 1, 2, "it has 8 bits a channel, u16 is declared");
    refused("rgb.jpg", 3, 2, "it has 8 bits a channel, u16 is declared");
    refused("grey.jpg", 0, 1, "a mask cannot be a JPEG");
    refused("rgb.png", 0, 1, "it is RGB, a mask is grey or has a palette");
    refused("../make_images.py", 3, 1, "it is neither a JPEG nor a PNG file");
    refused("nowhere.png", 3, 1, "No such file");
    refused(".", 3, 1, "it is not a file");
}

/* ---- orientation ---- */

/* (a) and its seven relatives: raw [[1, 2, 3], [4, 5, 6]], by the definition of the tag. */
Test(image, AUG_07_exif_orientation) {
    static const struct {
        int h, w;
        unsigned char right[6];
    } t[8] = {{2, 3, {1, 2, 3, 4, 5, 6}}, {2, 3, {3, 2, 1, 6, 5, 4}}, {2, 3, {6, 5, 4, 3, 2, 1}},
              {2, 3, {4, 5, 6, 1, 2, 3}}, {3, 2, {1, 4, 2, 5, 3, 6}}, {3, 2, {4, 1, 5, 2, 6, 3}},
              {3, 2, {6, 3, 5, 2, 4, 1}}, {3, 2, {3, 6, 2, 5, 1, 4}}};
    for (int k = 1; k <= 8; k++)
        for (int mask = 0; mask < 2; mask++) { /* masks follow the same rule */
            char name[16];
            unsigned char got[6];
            snprintf(name, sizeof name, "six%d.png", k);
            decoded(name, t[k - 1].h, t[k - 1].w, mask ? 0 : 1, got);
            cr_assert_eq(memcmp(got, t[k - 1].right, 6), 0, "orientation %d", k);
        }
    for (int k = 1; k <= 8; k++) {
        char name[16], npy[16];
        snprintf(name, sizeof name, "turned%d.jpg", k);
        snprintf(npy, sizeof npy, "turned%d.npy", k);
        same(name, npy, 3, 1, DR_FIT_ERROR, 1);
    }
}

/* ---- sizes ---- */

Test(image, resize_as_pillow) {
    static const char *const sizes[] = {"5x7", "20x31", "3x40", "9x6", "1x1"};
    char npy[32];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(npy, sizeof npy, "resize_%s.npy", sizes[i]);
        /* 3x40: Pillow 13 goes down first where that is cheaper, and rounds in between. */
        same("noise.png", npy, 3, 1, DR_FIT_RESIZE, i == 2);
        snprintf(npy, sizeof npy, "mask_%s.npy", sizes[i]);
        same("mask.png", npy, 0, 1, DR_FIT_RESIZE, 0);
        snprintf(npy, sizeof npy, "deep_%s.npy", sizes[i]); /* rounded twice: between the passes */
        same("deep.png", npy, 1, 2, DR_FIT_RESIZE, 1);
    }
}

Test(image, crop_and_pad) {
    static const char *const crops[] = {"6x6", "12x5", "4x10"}, *const pads[] = {"6x6", "5x20",
                                                                                 "12x14"};
    char npy[32];
    for (int i = 0; i < 3; i++) {
        snprintf(npy, sizeof npy, "crop_%s.npy", crops[i]);
        same("noise.png", npy, 3, 1, DR_FIT_CROP, 0);
        snprintf(npy, sizeof npy, "crop_mask_%s.npy", crops[i]);
        same("mask.png", npy, 0, 1, DR_FIT_CROP, 0);
        snprintf(npy, sizeof npy, "pad_%s.npy", pads[i]);
        same("noise.png", npy, 3, 1, DR_FIT_PAD, 0);
        snprintf(npy, sizeof npy, "pad_mask_%s.npy", pads[i]);
        same("mask.png", npy, 0, 1, DR_FIT_PAD, 0);
    }
}

/* (a): 2 x 3 pixels where 3 x 3 are declared: refused with both sizes; padded if asked, with zeros
 * and, in a mask, with 255. */
Test(image, AUG_06_smaller_than_declared) {
    struct dr_image_want w = {3, 3, 1, 1, DR_FIT_ERROR};
    unsigned char to[9];
    char why[512];
    uint32_t item;
    cr_assert_null(dr_decoder_read_file(decoder, at("six1.png"), &w, to, &item, why, sizeof why));
    cr_assert(strstr(why, "it is [2, 3] (height, width), [3, 3] is declared"), "%s", why);
    w.fit = DR_FIT_PAD;
    cr_assert(dr_decoder_read_file(decoder, at("six1.png"), &w, to, &item, why, sizeof why));
    cr_assert_eq(memcmp(to, "\1\2\3\4\5\6\0\0\0", 9), 0);
    w.channels = 0;
    cr_assert(dr_decoder_read_file(decoder, at("six1.png"), &w, to, &item, why, sizeof why));
    cr_assert_eq(memcmp(to, "\1\2\3\4\5\6\377\377\377", 9), 0);
    /* Orientation 6 makes it 3 x 2: one column is added to the right. */
    w.channels = 1;
    cr_assert(dr_decoder_read_file(decoder, at("six6.png"), &w, to, &item, why, sizeof why));
    cr_assert_eq(memcmp(to, "\4\1\0\5\2\0\6\3\0", 9), 0);
}

/* ---- hostile files ---- */

static bool decodes(const unsigned char *p, size_t n, char *why, size_t why_n) {
    const struct dr_image_want w = {8, 8, 3, 1, DR_FIT_RESIZE};
    unsigned char to[8 * 8 * 3];
    uint32_t item;
    return dr_decoder_read(decoder, p, n, &w, to, &item, why, why_n);
}

/* (b): cut at every byte, the last marker and chunk included. */
Test(image, AUG_07_truncated) {
    static const char *const files[] = {"rgb.jpg", "progressive.jpg", "rgb.png", "interlaced.png",
                                        "turned6.jpg"};
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        const struct bytes b = load(files[k]);
        for (size_t n = 0; n < b.n; n++) {
            char why[512] = "";
            unsigned char *cut = malloc(n ? n : 1); /* its end is where reading must end */
            memcpy(cut, b.p, n);
            cr_assert(!decodes(cut, n, why, sizeof why), "%s cut at %zu of %zu", files[k], n, b.n);
            cr_assert(*why);
            free(cut);
        }
        char why[512];
        cr_assert(decodes(b.p, b.n, why, sizeof why), "%s", why);
        free(b.p);
    }
    char why[512];
    cr_assert(!decodes((const unsigned char *)"", 0, why, sizeof why) && strstr(why, "is empty"));
}

/* Every bit of a PNG is under some checksum, or a signature or length. Those of a JPEG are not. */
Test(image, damaged) {
    static const char *const files[] = {"rgb.png", "palette.png",     "six6.png", "profile.png",
                                        "rgb.jpg", "progressive.jpg", "cmyk.jpg"};
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
        struct bytes b = load(files[k]);
        for (size_t i = 0; i < b.n; i++)
            for (int bit = 0; bit < 8; bit += k < 4 ? 1 : 3) {
                char why[512] = "";
                b.p[i] ^= (unsigned char)(1 << bit);
                const bool good = decodes(b.p, b.n, why, sizeof why);
                cr_assert(k >= 4 || !good, "%s: bit %d of byte %zu", files[k], bit, i);
                cr_assert(good || *why);
                b.p[i] ^= (unsigned char)(1 << bit);
            }
        free(b.p);
    }
}

/* The frame header of a JPEG: where its height is. */
static unsigned char *frame(struct bytes b) {
    for (size_t i = 2; i + 8 < b.n; i++)
        if (b.p[i] == 0xff && (b.p[i + 1] == 0xc0 || b.p[i + 1] == 0xc2))
            return b.p + i + 5;
    cr_assert_fail("no frame");
    return NULL;
}

static void big(unsigned char *p, uint32_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(v >> 8 * (bytes - 1 - i));
}

static uint32_t crc(const unsigned char *p, size_t n) { /* as the PNG specification gives it */
    uint32_t c = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
    }
    return ~c;
}

/* Headers that promise gigabytes are refused before memory is taken: the process stays small. */
Test(image, bombs) {
    static const struct {
        uint32_t h, w;
        const char *text;
    } t[] = {{65500, 65500, "at most 134217728 are read"},
             {11000, 11000, "more than a file of"},
             {0, 17, "its header says 17 x 0 pixels"},
             {17, 0, "its header says 0 x 17 pixels"},
             {4000, 4000, ""}};
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (size_t k = 0; k < sizeof t / sizeof *t; k++) {
        char why[512] = "";
        struct bytes b = load("progressive.jpg");
        if (t[k].h == 4000) { /* of a baseline file, whose decoder keeps only a few rows */
            free(b.p);
            b = load("rgb.jpg");
        }
        big(frame(b), t[k].h, 2);
        big(frame(b) + 2, t[k].w, 2);
        cr_assert(!decodes(b.p, b.n, why, sizeof why));
        cr_assert(strstr(why, t[k].text), "%s", why);
        free(b.p);
        b = load("rgb.png");
        big(b.p + 16, t[k].w, 4);
        big(b.p + 20, t[k].h, 4);
        big(b.p + 29, crc(b.p + 12, 17), 4);
        cr_assert(!decodes(b.p, b.n, why, sizeof why));
        cr_assert(strstr(why, t[k].text), "%s", why);
        free(b.p);
    }
    struct bytes b = load("rgb.png");
    big(b.p + 16, 0x80000000u, 4);
    char why[512];
    cr_assert(!decodes(b.p, b.n, why, sizeof why) && strstr(why, "a side has 1 to 65535"));
    free(b.p);
    getrusage(RUSAGE_SELF, &after);
    cr_assert(after.ru_maxrss - before.ru_maxrss < 200 << 10, "%ld KiB more",
              after.ru_maxrss - before.ru_maxrss);
}

/* A progressive file whose one scan comes a thousand times costs a moment, not minutes. */
Test(image, many_scans) {
    const struct bytes b = load("progressive.jpg");
    size_t scan = 0;
    for (size_t i = 2; i + 1 < b.n && !scan; i++)
        if (b.p[i] == 0xff && b.p[i + 1] == 0xda)
            scan = i;
    size_t end = scan + 2; /* of that scan: the next marker that is not inside the data */
    while (b.p[end] != 0xff || b.p[end + 1] == 0 || end < scan + 12)
        end++;
    const size_t n = end - scan, times = 1000;
    unsigned char *p = malloc(scan + n * times + 2);
    memcpy(p, b.p, scan);
    for (size_t i = 0; i < times; i++)
        memcpy(p + scan + n * i, b.p + scan, n);
    memcpy(p + scan + n * times, "\xff\xd9", 2);
    char why[512] = "";
    cr_assert(!decodes(p, scan + n * times + 2, why, sizeof why));
    free(p);
    free(b.p);
}
