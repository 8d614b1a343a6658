/* Writing PNG files. */
#ifndef DR_AUGMENT_PNG_H
#define DR_AUGMENT_PNG_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* 8 bits a channel, 1 to 4 channels (grey, grey and alpha, RGB, RGBA), rows one after another. The
 * file is written atomically. False + reason. */
bool dr_png_write(const char *path, const unsigned char *pixels, uint32_t width, uint32_t height,
                  uint32_t channels, char *why, size_t why_n);
#endif
