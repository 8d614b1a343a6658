/* What the augmentation ops share: checks of their operands and of [least, most] attributes, and
 * their operands as kernels take them. Geometry takes images and masks of one height and width;
 * colour takes images alone. Images are u8 or f32. */
#ifndef DR_AUGMENT_PLANES_H
#define DR_AUGMENT_PLANES_H

#include "graph/op.h"
#include "kernels/batch.h"
#include "kernels/plane.h"

#define DR_COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define DR_MASK_FILL 255 /* the default ignore_index of masks */

/* A [least, most] attribute: T is the op's struct. */
#define DR_RANGE_ATTR(T, field, text, low, high)                                                   \
    {                                                                                              \
        .name = #field, .doc = text, .kind = DR_ATTR_FLOATS, .min = low, .max = high,              \
        .offset = offsetof(struct T, field)                                                        \
    }
/* `size: [height, width]`. */
#define DR_SIZE_ATTR(T)                                                                            \
    {                                                                                              \
        .name = "size", .doc = "height and width of the result", .kind = DR_ATTR_PAIR,             \
        .required = true, .min = 1, .max = DR_PLANE_SIDE, .offset = offsetof(struct T, size)       \
    }
#define DR_FILL_ATTR(T)                                                                            \
    {                                                                                              \
        .name = "fill", .doc = "value of image pixels from outside; masks get 255",                \
        .kind = DR_ATTR_FLOAT, .min = -1e30, .max = 1e30, .offset = offsetof(struct T, fill)       \
    }

/* Operands written in the file: all but the header. */
uint32_t dr_planes_n(const struct dr_graph *g, const struct dr_node *n);

/* The first n operands are images or masks of one height and width. */
bool dr_planes_check(struct dr_infer *c, uint32_t n, int64_t *h, int64_t *w);
/* Operand i is an image or a mask, of operand `first`'s height and width. */
bool dr_planes_check_one(struct dr_infer *c, uint32_t i, uint32_t first);
/* Operand i is an image. `colours`: of 1 or 3 channels. */
bool dr_planes_check_image(struct dr_infer *c, uint32_t i, bool colours);
/* A value to be put into images: what a u8 image among the first n operands can hold. */
bool dr_planes_check_value(struct dr_infer *c, uint32_t n, const char *attr, double value);
/* The attribute is not given, or two numbers in order. */
bool dr_planes_check_range(struct dr_infer *c, const char *attr, const struct dr_floats *f);
/* Its two numbers, or the default ones. */
void dr_planes_range(const struct dr_floats *f, double low, double high, double *out);

/* Adds an output for each of the first n operands, like it but for height and width. */
bool dr_planes_out(struct dr_infer *c, uint32_t n, int64_t h, int64_t w);

/* Operand i of a launch. `smooth`: images are interpolated. */
struct dr_plane dr_plane_of(const struct dr_launch *l, uint32_t i, double fill, bool smooth);
/* Those from operand i on that one launch takes, DR_PLANES at most: how many. */
uint32_t dr_planes_of(const struct dr_launch *l, uint32_t i, double fill, bool smooth,
                      struct dr_plane *p);
/* The batch's header where the op has one, else NULL. */
const struct dr_batch *dr_planes_batch(const struct dr_launch *l);
int64_t dr_planes_channels(const struct dr_value *v);

/* Every operand and output once; `flops` for each element of the outputs. */
struct dr_cost dr_planes_cost(const struct dr_graph *g, const struct dr_node *n, double flops);

#endif
