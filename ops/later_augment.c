/* Augmentations that the format knows and this version does not compute, with their attributes, so
 * that a file that uses one gets one clear error instead of "unknown". Meanings as
 * torchvision v2; one draw a sample moves every input of a node. */
#include "ops/common.h"

#define LATER(id, text, more, least, most, outs)                                                   \
    .name = #id, .doc = text, .flags = DR_OP_LATER | (more), .min_in = least, .max_in = most,      \
    .outputs = outs, DR_CUDA(NULL)
#define ATTRS(id)                                                                                  \
    .attrs = id##_attrs, .n_attrs = DR_COUNT(id##_attrs), .attrs_bytes = sizeof(struct id)
#define ANY UINT32_MAX
#define DRAWS (DR_OP_AUGMENT | DR_OP_RANDOM | DR_OP_HEADER)

struct random_resized_crop {
    int64_t size[2];
    struct dr_floats scale;
    struct dr_floats ratio;
};
static const struct dr_attr random_resized_crop_attrs[] = {
    {.name = "size",
     .doc = "height and width of the result",
     .kind = DR_ATTR_PAIR,
     .required = true,
     .min = 1,
     .max = 65535,
     .offset = offsetof(struct random_resized_crop, size)},
    {.name = "scale",
     .doc = "[least, most] share of the area; not given: [0.08, 1]",
     .kind = DR_ATTR_FLOATS,
     .min = 0,
     .max = 1,
     .offset = offsetof(struct random_resized_crop, scale)},
    {.name = "ratio",
     .doc = "[least, most] width / height; not given: [3/4, 4/3]",
     .kind = DR_ATTR_FLOATS,
     .min = 0.001,
     .max = 1000.0,
     .offset = offsetof(struct random_resized_crop, ratio)},
};

const struct dr_op dr_op_random_resized_crop = {
    LATER(random_resized_crop, "A random part of random area and shape, resized.", DRAWS, 1, ANY,
          0),
    ATTRS(random_resized_crop),
};

struct random_crop {
    int64_t size[2];
    struct dr_padding padding;
    double fill;
};
static const struct dr_attr random_crop_attrs[] = {
    {.name = "size",
     .doc = "height and width of the result",
     .kind = DR_ATTR_PAIR,
     .required = true,
     .min = 1,
     .max = 65535,
     .offset = offsetof(struct random_crop, size)},
    {.name = "padding",
     .doc = "border added first",
     .kind = DR_ATTR_PADDING,
     .max = 65535,
     .offset = offsetof(struct random_crop, padding)},
    {.name = "fill",
     .doc = "value of image pixels from outside; masks get 255",
     .kind = DR_ATTR_FLOAT,
     .max = 255,
     .offset = offsetof(struct random_crop, fill)},
};

const struct dr_op dr_op_random_crop = {
    LATER(random_crop, "A random part of a fixed size; center_crop in evaluation.", DRAWS, 1, ANY,
          0),
    ATTRS(random_crop),
};

struct center_crop {
    int64_t size[2];
};
static const struct dr_attr center_crop_attrs[] = {
    {.name = "size",
     .doc = "height and width of the result",
     .kind = DR_ATTR_PAIR,
     .required = true,
     .min = 1,
     .max = 65535,
     .offset = offsetof(struct center_crop, size)},
};

const struct dr_op dr_op_center_crop = {
    LATER(center_crop, "The middle.", DR_OP_AUGMENT, 1, ANY, 0),
    ATTRS(center_crop),
};

struct resize {
    int64_t size[2];
};
static const struct dr_attr resize_attrs[] = {
    {.name = "size",
     .doc = "height and width of the result",
     .kind = DR_ATTR_PAIR,
     .required = true,
     .min = 1,
     .max = 65535,
     .offset = offsetof(struct resize, size)},
};

const struct dr_op dr_op_resize = {
    LATER(resize, "To a fixed size: images bilinear, masks nearest.", DR_OP_AUGMENT, 1, ANY, 0),
    ATTRS(resize),
};

struct rotate {
    struct dr_floats degrees;
    double fill;
};
static const struct dr_attr rotate_attrs[] = {
    {.name = "degrees",
     .doc = "[least, most] angle, counter-clockwise",
     .kind = DR_ATTR_FLOATS,
     .required = true,
     .min = -360,
     .max = 360,
     .offset = offsetof(struct rotate, degrees)},
    {.name = "fill",
     .doc = "value of image pixels from outside; masks get 255",
     .kind = DR_ATTR_FLOAT,
     .max = 255,
     .offset = offsetof(struct rotate, fill)},
};

const struct dr_op dr_op_rotate = {
    LATER(rotate, "Turned by a random angle around the middle.", DRAWS, 1, ANY, 0),
    ATTRS(rotate),
};

struct affine {
    struct dr_floats degrees;
    struct dr_floats translate;
    struct dr_floats scale;
    struct dr_floats shear;
    double fill;
};
static const struct dr_attr affine_attrs[] = {
    {.name = "degrees",
     .doc = "[least, most] angle; not given: 0",
     .kind = DR_ATTR_FLOATS,
     .min = -360,
     .max = 360,
     .offset = offsetof(struct affine, degrees)},
    {.name = "translate",
     .doc = "[x, y] largest shift as a share of the size; not given: 0",
     .kind = DR_ATTR_FLOATS,
     .min = 0,
     .max = 1,
     .offset = offsetof(struct affine, translate)},
    {.name = "scale",
     .doc = "[least, most] factor; not given: 1",
     .kind = DR_ATTR_FLOATS,
     .min = 0.001,
     .max = 1000.0,
     .offset = offsetof(struct affine, scale)},
    {.name = "shear",
     .doc = "[least, most] angle; not given: 0",
     .kind = DR_ATTR_FLOATS,
     .min = -90,
     .max = 90,
     .offset = offsetof(struct affine, shear)},
    {.name = "fill",
     .doc = "value of image pixels from outside; masks get 255",
     .kind = DR_ATTR_FLOAT,
     .max = 255,
     .offset = offsetof(struct affine, fill)},
};

const struct dr_op dr_op_affine = {
    LATER(affine, "A random rotation, shift, scale and shear.", DRAWS, 1, ANY, 0),
    ATTRS(affine),
};

struct color_jitter {
    double brightness;
    double contrast;
    double saturation;
    double hue;
};
static const struct dr_attr color_jitter_attrs[] = {
    {.name = "brightness",
     .doc = "factor from 1 - b to 1 + b",
     .kind = DR_ATTR_FLOAT,
     .max = 1000.0,
     .offset = offsetof(struct color_jitter, brightness)},
    {.name = "contrast",
     .doc = "factor from 1 - c to 1 + c",
     .kind = DR_ATTR_FLOAT,
     .max = 1000.0,
     .offset = offsetof(struct color_jitter, contrast)},
    {.name = "saturation",
     .doc = "factor from 1 - s to 1 + s",
     .kind = DR_ATTR_FLOAT,
     .max = 1000.0,
     .offset = offsetof(struct color_jitter, saturation)},
    {.name = "hue",
     .doc = "shift from -h to h of the circle",
     .kind = DR_ATTR_FLOAT,
     .max = 0.5,
     .offset = offsetof(struct color_jitter, hue)},
};

const struct dr_op dr_op_color_jitter = {
    LATER(color_jitter, "Random brightness, contrast, saturation and hue of images.", DRAWS, 1, ANY,
          0),
    ATTRS(color_jitter),
};

struct grayscale {
    double p;
};
static const struct dr_attr grayscale_attrs[] = {
    {.name = "p",
     .doc = "probability for a sample",
     .kind = DR_ATTR_FLOAT,
     .def = 0.1,
     .max = 1,
     .offset = offsetof(struct grayscale, p)},
};

const struct dr_op dr_op_grayscale = {
    LATER(grayscale, "Without colour, at random.", DRAWS, 1, ANY, 0),
    ATTRS(grayscale),
};

struct gaussian_blur {
    int64_t kernel[2];
    struct dr_floats sigma;
};
static const struct dr_attr gaussian_blur_attrs[] = {
    {.name = "kernel",
     .doc = "size of the kernel, odd",
     .kind = DR_ATTR_PAIR,
     .required = true,
     .min = 1,
     .max = 65535,
     .offset = offsetof(struct gaussian_blur, kernel)},
    {.name = "sigma",
     .doc = "[least, most] width; not given: [0.1, 2]",
     .kind = DR_ATTR_FLOATS,
     .min = 1e-06,
     .max = 1000.0,
     .offset = offsetof(struct gaussian_blur, sigma)},
};

const struct dr_op dr_op_gaussian_blur = {
    LATER(gaussian_blur, "Blurred by a random width.", DRAWS, 1, ANY, 0),
    ATTRS(gaussian_blur),
};

struct random_erasing {
    double p;
    struct dr_floats scale;
    struct dr_floats ratio;
    double value;
};
static const struct dr_attr random_erasing_attrs[] = {
    {.name = "p",
     .doc = "probability for a sample",
     .kind = DR_ATTR_FLOAT,
     .def = 0.5,
     .max = 1,
     .offset = offsetof(struct random_erasing, p)},
    {.name = "scale",
     .doc = "[least, most] share of the area; not given: [0.02, 0.33]",
     .kind = DR_ATTR_FLOATS,
     .min = 0,
     .max = 1,
     .offset = offsetof(struct random_erasing, scale)},
    {.name = "ratio",
     .doc = "[least, most] width / height; not given: [0.3, 3.3]",
     .kind = DR_ATTR_FLOATS,
     .min = 0.001,
     .max = 1000.0,
     .offset = offsetof(struct random_erasing, ratio)},
    {.name = "value",
     .doc = "what is put there",
     .kind = DR_ATTR_FLOAT,
     .min = -1e+30,
     .max = 1e+30,
     .offset = offsetof(struct random_erasing, value)},
};

const struct dr_op dr_op_random_erasing = {
    LATER(random_erasing, "A random rectangle of one value.", DRAWS, 1, ANY, 0),
    ATTRS(random_erasing),
};

struct mixup {
    double alpha;
};
static const struct dr_attr mixup_attrs[] = {
    {.name = "alpha",
     .doc = "of the Beta distribution",
     .kind = DR_ATTR_FLOAT,
     .def = 1,
     .min = 1e-06,
     .max = 1000.0,
     .offset = offsetof(struct mixup, alpha)},
};

const struct dr_op dr_op_mixup = {
    LATER(mixup, "Mixes each sample, and its label, with a partner.", DRAWS, 2, ANY, 0),
    ATTRS(mixup),
};

struct cutmix {
    double alpha;
};
static const struct dr_attr cutmix_attrs[] = {
    {.name = "alpha",
     .doc = "of the Beta distribution",
     .kind = DR_ATTR_FLOAT,
     .def = 1,
     .min = 1e-06,
     .max = 1000.0,
     .offset = offsetof(struct cutmix, alpha)},
};

const struct dr_op dr_op_cutmix = {
    LATER(cutmix, "Puts a rectangle of a partner into each sample.", DRAWS, 2, ANY, 0),
    ATTRS(cutmix),
};
