/* PNG files: pixels to a file, and from one. */
#ifndef DR_AUGMENT_PNG_H
#define DR_AUGMENT_PNG_H
#include "augment/image.h"
/* 8 bits a channel, 1 to 4 channels (grey, grey and alpha, RGB, RGBA), rows one after another. The
 * file is written atomically. False + reason. */
bool dr_png_write(const char *path, const unsigned char *pixels, uint32_t width, uint32_t height,
                  uint32_t channels, char *why, size_t why_n);
/* Decodes a file whose head was read to `channels` (1, 3, 4) of 8 bits, or of 16 where the file has
 * 16. Grey becomes RGB, palettes their colours, alpha is dropped, or opaque where there was none.
 * channels 0: one number a pixel as it stands in the file, a palette's index or a grey value that
 * is not scaled. False + reason. */
bool dr_png_read(const unsigned char *file, size_t n, const struct dr_image_head *h,
                 uint32_t channels, void *to, char *why, size_t why_n);
#endif
