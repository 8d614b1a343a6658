/* Any bytes as an image file: a reason, or pixels. Three channels, one, and a mask. Decoding is
 * left out where the header promises more than a megapixel: it would only be slow. */
#include "augment/image.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static struct dr_decoder *decoder;
    static const uint32_t channels[3] = {3, 1, 0};
    static unsigned char to[7 * 5 * 3 * 2];
    struct dr_image_head h;
    char why[256];
    if (!decoder && !(decoder = dr_decoder_create()))
        abort();
    if (!dr_image_head(data, n, &h, why, sizeof why))
        return 0;
    if (h.orientation < 1 || h.orientation > 8 || (int64_t)h.width * h.height > DR_IMAGE_MAX_PIXELS)
        abort();
    if ((int64_t)h.width * h.height > 1 << 20)
        return 0;
    for (int i = 0; i < 3; i++) {
        const struct dr_image_want w = {7, 5, channels[i], h.bits == 16 ? 2 : 1,
                                        (enum dr_fit)(DR_FIT_RESIZE + i)};
        uint32_t item;
        if (dr_decoder_read(decoder, data, n, &w, to, &item, why, sizeof why) &&
            item != (h.bits == 16 ? 2u : 1u))
            abort();
    }
    return 0;
}
