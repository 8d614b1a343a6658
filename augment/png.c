/* Writing PNG files through libpng's simplified interface, into memory first: a file appears whole
 * or not at all. Reading them through the full one: the simplified interface changes values by
 * gamma, and palettes. */
#include "augment/png.h"

#include "graph/base.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool dr_png_write(const char *path, const unsigned char *pixels, uint32_t width, uint32_t height,
                  uint32_t channels, char *why, size_t why_n) {
    static const uint32_t formats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB,
                                       PNG_FORMAT_RGBA};
    DR_ASSERT(channels >= 1 && channels <= 4);
    png_image image = {.version = PNG_IMAGE_VERSION, .width = width, .height = height};
    image.format = formats[channels - 1];
    png_alloc_size_t bytes = 0;
    void *file = NULL;
    bool good = png_image_write_get_memory_size(image, bytes, 0, pixels, 0, NULL) &&
                (file = malloc(bytes)) != NULL &&
                png_image_write_to_memory(&image, file, &bytes, 0, pixels, 0, NULL);
    const int error = good ? dr_write_file(path, file, bytes) : 0;
    if (!good || error)
        snprintf(why, why_n, "%s",
                 error            ? strerror(error)
                 : *image.message ? image.message
                                  : "out of memory");
    png_image_free(&image);
    free(file);
    return good && !error;
}

/* ---- reading ---- */

struct reading {
    const unsigned char *at;
    size_t left;
    char *why;
    size_t why_n;
};

/* Never returns: libpng's own jump buffer goes back to read_all. Warnings are errors, too. */
static void failed(png_structp png, png_const_charp text) {
    const struct reading *r = png_get_error_ptr(png);
    snprintf(r->why, r->why_n, "libpng: %s", text);
    png_longjmp(png, 1);
}

static void more(png_structp png, png_bytep to, size_t n) {
    struct reading *r = png_get_io_ptr(png);
    if (n > r->left)
        png_error(png, "the file is truncated");
    memcpy(to, r->at, n);
    r->at += n;
    r->left -= n;
}

/* What libpng is to do to every row. */
static void transform(png_structp png, png_infop info, const struct dr_image_head *h,
                      uint32_t channels) {
    const uint16_t one = 1;
    const bool alpha = channels == 4, has_alpha = h->channels == 2 || h->channels == 4;
    if (h->bits == 16 && *(const unsigned char *)&one == 1)
        png_set_swap(png);
    if (channels == 0)
        png_set_packing(png);
    else if (h->palette)
        png_set_palette_to_rgb(png);
    else if (h->bits < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    if (channels == 0 || !alpha) {
        png_set_strip_alpha(png);
    } else if (png_get_valid(png, info, PNG_INFO_tRNS)) {
        png_set_tRNS_to_alpha(png);
    } else if (!has_alpha) {
        png_set_add_alpha(png, h->bits == 16 ? 65535 : 255, PNG_FILLER_AFTER);
    }
    if (channels >= 3 && h->channels <= 2)
        png_set_gray_to_rgb(png);
}

static void read_rows(png_structp png, png_infop info, const struct dr_image_head *h,
                      uint32_t channels, unsigned char *to) {
    /* Texts and profiles are passed over: they can be large once inflated, and are often wrong. */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_read_info(png, info);
    transform(png, info, h, channels);
    const int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    const size_t item = h->bits == 16 ? 2 : 1;
    const size_t row = (size_t)h->width * (channels ? channels : 1) * item;
    if (png_get_image_width(png, info) != h->width ||
        png_get_image_height(png, info) != h->height || png_get_rowbytes(png, info) != row)
        png_error(png, "its rows are not what its header says");
    for (int pass = 0; pass < passes; pass++)
        for (uint32_t y = 0; y < h->height; y++)
            png_read_row(png, to + y * row, NULL);
    png_read_end(png, NULL);
}

static bool read_all(png_structp png, png_infop info, const struct dr_image_head *h,
                     uint32_t channels, unsigned char *to) {
    if (setjmp(png_jmpbuf(png)))
        return false;
    read_rows(png, info, h, channels, to);
    return true;
}

bool dr_png_read(const unsigned char *file, size_t n, const struct dr_image_head *h,
                 uint32_t channels, void *to, char *why, size_t why_n) {
    struct reading r = {file, n, why, why_n};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, failed, failed);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    bool good = false;
    if (info) {
        png_set_read_fn(png, &r, more);
        good = read_all(png, info, h, channels, to);
    } else {
        snprintf(why, why_n, "out of host memory");
    }
    png_destroy_read_struct(&png, &info, NULL);
    return good;
}
