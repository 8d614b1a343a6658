/* Image files: JPEG (libjpeg-turbo) and PNG (libpng), told apart by their first bytes and not by
 * their names, EXIF orientation applied.
 *
 * Headers are read and judged before anything is allocated: sizes past DR_IMAGE_MAX_PIXELS, and
 * sizes that a file so small cannot hold, are refused. What the decoders warn of is an error: a
 * file that is cut or damaged gives no sample. */
#ifndef DR_AUGMENT_IMAGE_H
#define DR_AUGMENT_IMAGE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DR_IMAGE_MAX_PIXELS (INT64_C(1) << 27) /* 134 million */

struct dr_image_head {
    bool png;               /* else JPEG */
    bool palette;           /* png */
    bool cmyk;              /* jpeg: four inks */
    uint32_t width, height; /* as stored */
    uint32_t channels;      /* 1 grey, 2 grey and alpha, 3 RGB (palettes too), 4 RGBA */
    uint32_t bits;          /* of one value: 8 or 16; in a PNG also 1, 2, 4 */
    uint32_t orientation;   /* EXIF, 1 to 8; from 5 on width and height change places */
};
/* `n`: bytes of the whole file. False + reason. */
bool dr_image_head(const unsigned char *file, size_t n, struct dr_image_head *h, char *why,
                   size_t why_n);

/* In the order of `struct dr_source`. */
enum dr_fit { DR_FIT_ERROR, DR_FIT_RESIZE, DR_FIT_CROP, DR_FIT_PAD };
/* What a decoded file is to become. */
struct dr_image_want {
    int64_t height, width; /* at most 65535 */
    uint32_t channels;     /* 1, 3 or 4; 0: a mask, one number a pixel as it stands in the file */
    uint32_t item;         /* bytes of a channel, 1 or 2; a mask has what its file has */
    enum dr_fit fit;
};
static inline bool dr_image_turns(const struct dr_image_head *h) {
    return h->orientation >= 5;
}
/* Whether a file with this head can become `want`, size included. False + reason. */
bool dr_image_suits(const struct dr_image_head *h, const struct dr_image_want *want, char *why,
                    size_t why_n);

/* Decoders keep their memory from file to file; one is used by one thread at a time. */
struct dr_decoder;
struct dr_decoder *dr_decoder_create(void); /* NULL: no memory */
void dr_decoder_destroy(struct dr_decoder *d);
/* Decodes a file in memory. `to` gets height * width * channels items; NULL: the result is in the
 * decoder's memory, good until its next call. Returns where it is, or NULL + reason. `item`
 * (masks): bytes of a number. */
const void *dr_decoder_read(struct dr_decoder *d, const unsigned char *file, size_t n,
                            const struct dr_image_want *want, void *to, uint32_t *item, char *why,
                            size_t why_n);
/* The same of a file by its name. */
const void *dr_decoder_read_file(struct dr_decoder *d, const char *path,
                                 const struct dr_image_want *want, void *to, uint32_t *item,
                                 char *why, size_t why_n);

/* Decoders for the threads of a loader: taken for one file, given back after it. */
struct dr_decoders;
struct dr_decoders *dr_decoders_create(void);
void dr_decoders_destroy(struct dr_decoders *s);            /* NULL is fine; none may be out */
struct dr_decoder *dr_decoders_take(struct dr_decoders *s); /* NULL: no memory */
void dr_decoders_give(struct dr_decoders *s, struct dr_decoder *d);
#endif
