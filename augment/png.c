/* Writing PNG files through libpng's simplified interface, into memory first: a file appears whole
 * or not at all. */
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
