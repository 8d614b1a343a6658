/* Making a picture the declared size, on the CPU and in integers: the same bits everywhere. */
#ifndef DR_AUGMENT_FIT_H
#define DR_AUGMENT_FIT_H
#include "augment/image.h"

/* Memory that grows and is kept. */
struct dr_buffer {
    void *at;
    size_t bytes;
};
bool dr_buffer_room(struct dr_buffer *b, size_t bytes); /* contents are lost; false: no memory */
void dr_buffer_free(struct dr_buffer *b);

/* src [height, width, channels] of 1- or 2-byte items becomes to [want->height, want->width,
 * channels].
 *   resize  both sides to size, whatever the proportions
 *   crop    scaled until it covers the size, proportions kept; then the middle
 *   pad     scaled down until it fits inside if it is larger, never up; then in the middle of
 *           zeros (masks: 255)
 * Images: the triangle filter, as wide as the reduction (Pillow's BILINEAR, torchvision's bilinear
 * with antialias): across, then down, weights of 22 bits, rounded after each pass. Masks: the
 * nearest pixel centre (Pillow's NEAREST). Crops begin where torchvision's center_crop does: half
 * of the rest, rounded half to even. False: no memory. */
bool dr_fit(const struct dr_image_want *want, const void *src, int64_t height, int64_t width,
            uint32_t channels, uint32_t item, void *to, struct dr_buffer *scratch);
#endif
