/* Headers of image files: the marker segments of a JPEG (ITU T.81, annex B), the chunks of a PNG
 * (W3C PNG, section 5), and the orientation from their EXIF blocks (TIFF 6.0, section 2). */
#include "augment/image.h"
#include "augment/why.h"

#include <string.h>

static uint32_t big2(const unsigned char *p) {
    return (uint32_t)p[0] << 8 | p[1];
}
static uint32_t big4(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* ---- EXIF ---- */

static uint32_t tiff2(const unsigned char *p, bool big) {
    return big ? big2(p) : (uint32_t)p[1] << 8 | p[0];
}
static uint32_t tiff4(const unsigned char *p, bool big) {
    return big ? big4(p) : (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* Tag 0x0112 of the first directory; 1 where the block makes no sense: cameras and editors write
 * many that do not, around pictures that are whole. */
static uint32_t exif_orientation(const unsigned char *p, size_t n) {
    if (n < 8 || (memcmp(p, "II*\0", 4) != 0 && memcmp(p, "MM\0*", 4) != 0))
        return 1;
    const bool big = *p == 'M';
    const size_t at = tiff4(p + 4, big);
    if (at > n - 2)
        return 1;
    const uint32_t entries = tiff2(p + at, big);
    for (uint32_t i = 0; i < entries && n - at - 2 >= 12 * ((size_t)i + 1); i++) {
        const unsigned char *e = p + at + 2 + 12 * (size_t)i;
        if (tiff2(e, big) == 0x0112 && tiff2(e + 2, big) == 3) { /* a SHORT */
            const uint32_t v = tiff2(e + 8, big);
            return v >= 1 && v <= 8 ? v : 1;
        }
    }
    return 1;
}

/* ---- JPEG ---- */

static bool jpeg_frame(const unsigned char *p, size_t n, uint32_t marker, struct dr_image_head *h,
                       char *why, size_t why_n) {
    if (n < 6 || n < 6 + 3 * (size_t)p[5])
        return dr_refuse(why, why_n, "its frame header is too short");
    h->bits = p[0];
    h->height = big2(p + 1);
    h->width = big2(p + 3);
    h->channels = p[5] == 1 ? 1 : 3;
    h->cmyk = p[5] == 4;
    if (h->bits != 8)
        return dr_refuse(why, why_n, "a JPEG of %u bits a channel is not supported", h->bits);
    if (marker == 0xc3 || (marker >= 0xc5 && marker != 0xc9 && marker != 0xca))
        return dr_refuse(why, why_n, "a lossless or hierarchical JPEG is not supported");
    if (p[5] != 1 && p[5] != 3 && p[5] != 4)
        return dr_refuse(why, why_n, "a JPEG of %u components is not supported", p[5]);
    return true;
}

/* From marker to marker up to the frame header. */
static bool jpeg_head(const unsigned char *f, size_t n, struct dr_image_head *h, char *why,
                      size_t why_n) {
    size_t at = 2;
    for (;;) {
        while (at < n && f[at] != 0xff) /* libjpeg skips such bytes, too, and warns */
            at++;
        while (at < n && f[at] == 0xff) /* fill bytes */
            at++;
        if (at >= n)
            return dr_refuse(why, why_n, "the file is truncated: it ends before its frame header");
        const uint32_t marker = f[at++];
        if (marker == 0xd9 || marker == 0xda)
            return dr_refuse(why, why_n, "it has no frame header");
        if (marker <= 1 || (marker >= 0xd0 && marker <= 0xd8)) /* these stand alone */
            continue;
        if (n - at < 2 || big2(f + at) < 2 || big2(f + at) > n - at)
            return dr_refuse(why, why_n, "the file is truncated: it ends inside its header");
        const unsigned char *p = f + at + 2;
        const size_t length = big2(f + at) - 2;
        if (marker == 0xe1 && length > 6 && memcmp(p, "Exif\0", 6) == 0 && h->orientation == 1)
            h->orientation = exif_orientation(p + 6, length - 6);
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc)
            return jpeg_frame(p, length, marker, h, why, why_n);
        at += 2 + length;
    }
}

/* ---- PNG ---- */

static bool png_kind(uint32_t bits, uint32_t type, struct dr_image_head *h) {
    static const uint32_t channels[7] = {1, 0, 3, 3, 2, 0, 4};
    if (type > 6 || !channels[type] || (bits & (bits - 1)) != 0 || bits == 0 || bits > 16)
        return false;
    h->bits = bits;
    h->channels = channels[type];
    h->palette = type == 3;
    return type == 0 || (type == 3 ? bits <= 8 : bits >= 8);
}

static bool png_head(const unsigned char *f, size_t n, struct dr_image_head *h, char *why,
                     size_t why_n) {
    if (n < 8 + 25)
        return dr_refuse(why, why_n, "the file is truncated: it ends inside its header");
    if (big4(f + 8) != 13 || memcmp(f + 12, "IHDR", 4) != 0)
        return dr_refuse(why, why_n, "its first chunk is not IHDR");
    h->width = big4(f + 16);
    h->height = big4(f + 20);
    if (!png_kind(f[24], f[25], h))
        return dr_refuse(why, why_n, "its header says %u bits of colour type %u, which PNG has not",
                         f[24], f[25]);
    for (size_t at = 8 + 25;;) { /* EXIF may stand behind the pixels */
        if (n - at < 12 || big4(f + at) > n - at - 12)
            return dr_refuse(why, why_n, "the file is truncated: it ends before its IEND chunk");
        const size_t length = big4(f + at);
        if (memcmp(f + at + 4, "eXIf", 4) == 0)
            h->orientation = exif_orientation(f + at + 8, length);
        if (memcmp(f + at + 4, "IEND", 4) == 0)
            return true;
        at += 12 + length;
    }
}

/* ---- both ---- */

/* Fewer bytes than the pixels must take. Deflate shrinks at most 1032:1 (zlib's technical notes); a
 * Huffman-coded JPEG has at least a bit for each block of 64 values, and small ones are harmless
 * whatever they say. */
static bool too_small(const struct dr_image_head *h, size_t n) {
    const int64_t pixels = (int64_t)h->width * h->height;
    if (!h->png)
        return pixels > INT64_C(1) << 24 && pixels / 1024 > (int64_t)n;
    const int64_t bits = pixels * (h->palette ? 1 : h->channels) * h->bits;
    return bits / 8 / 1040 > (int64_t)n;
}

bool dr_image_head(const unsigned char *file, size_t n, struct dr_image_head *h, char *why,
                   size_t why_n) {
    *h = (struct dr_image_head){.orientation = 1};
    const bool jpeg = n >= 3 && memcmp(file, "\xff\xd8\xff", 3) == 0;
    h->png = n >= 8 && memcmp(file, "\x89PNG\r\n\x1a\n", 8) == 0;
    if (!jpeg && !h->png)
        return dr_refuse(why, why_n,
                         n ? "it is neither a JPEG nor a PNG file" : "the file is empty");
    if (!(jpeg ? jpeg_head(file, n, h, why, why_n) : png_head(file, n, h, why, why_n)))
        return false;
    if (h->width == 0 || h->height == 0 || h->width > 65535 || h->height > 65535)
        return dr_refuse(why, why_n, "its header says %u x %u pixels; a side has 1 to 65535",
                         h->width, h->height);
    if ((int64_t)h->width * h->height > DR_IMAGE_MAX_PIXELS)
        return dr_refuse(why, why_n, "its header says %u x %u pixels, at most %lld are read",
                         h->width, h->height, (long long)DR_IMAGE_MAX_PIXELS);
    if (too_small(h, n))
        return dr_refuse(why, why_n,
                         "its header says %u x %u pixels, more than a file of %zu bytes can hold",
                         h->width, h->height, n);
    return true;
}

static const char *colours(const struct dr_image_head *h) {
    static const char *const names[] = {"", "grey", "grey and alpha", "RGB", "RGB and alpha"};
    return h->palette ? "palette colour" : h->cmyk ? "CMYK" : names[h->channels];
}

bool dr_image_suits(const struct dr_image_head *h, const struct dr_image_want *w, char *why,
                    size_t why_n) {
    if (w->channels == 0 && !h->png)
        return dr_refuse(why, why_n,
                         "a mask cannot be a JPEG, which changes class numbers: write it as PNG");
    if (w->channels == 0 && !h->palette && h->channels > 2)
        return dr_refuse(why, why_n,
                         "it is %s, a mask is grey or has a palette: its numbers are "
                         "the classes",
                         colours(h));
    if (w->channels == 1 && h->channels > 2)
        return dr_refuse(why, why_n, "it is %s (%u channels), 1 channel is declared", colours(h),
                         h->cmyk ? 4 : h->channels);
    if (w->channels && (h->bits == 16) != (w->item == 2))
        return dr_refuse(why, why_n, "it has %u bits a channel, %s is declared", h->bits,
                         w->item == 2 ? "u16" : "u8");
    const int64_t height = dr_image_turns(h) ? h->width : h->height;
    const int64_t width = dr_image_turns(h) ? h->height : h->width;
    if (w->fit == DR_FIT_ERROR && (height != w->height || width != w->width))
        return dr_refuse(why, why_n,
                         "it is [%lld, %lld] (height, width), [%lld, %lld] is declared; `fit: "
                         "resize`, `crop` or `pad` would make it so",
                         (long long)height, (long long)width, (long long)w->height,
                         (long long)w->width);
    return true;
}
