/* Resizing, cropping and padding of decoded pictures. See fit.h. */
#include "augment/fit.h"

#include <stdlib.h>
#include <string.h>

#define WEIGHT_BITS 22 /* 255 << 22 fits 31 bits, and so does a sum by weights that add up to 1 */

bool dr_buffer_room(struct dr_buffer *b, size_t bytes) {
    if (bytes <= b->bytes)
        return true;
    dr_buffer_free(b);
    b->at = malloc(bytes);
    b->bytes = b->at ? bytes : 0;
    return b->at != NULL;
}

void dr_buffer_free(struct dr_buffer *b) {
    free(b->at);
    *b = (struct dr_buffer){0};
}

/* ---- geometry ---- */

/* `in` pixels become `full`; [from, from + n) of those are wanted, the first at `at` of the result.
 */
struct axis {
    int64_t in, full, from, n, at;
};

/* Half of d, rounded half to even. */
static int64_t half_even(int64_t d) {
    return d / 2 + (d % 4 == 3);
}

/* A scaled side of `full` pixels against a wanted one of `out`. */
static struct axis centred(int64_t in, int64_t full, int64_t out) {
    if (full >= out)
        return (struct axis){in, full, half_even(full - out), out, 0};
    return (struct axis){in, full, 0, full, (out - full) / 2};
}

static void geometry(const struct dr_image_want *w, int64_t height, int64_t width, struct axis *y,
                     struct axis *x) {
    int64_t full_y = w->height, full_x = w->width;
    const bool wide = width * w->height >= height * w->width; /* wider than what is wanted */
    if (w->fit == DR_FIT_CROP) {
        if (wide)
            full_x = width * w->height / height;
        else
            full_y = height * w->width / width;
    } else if (w->fit == DR_FIT_PAD) {
        if (height <= w->height && width <= w->width) {
            full_y = height;
            full_x = width;
        } else if (wide) {
            full_y = (height * w->width + width / 2) / width;
            full_y = full_y > 0 ? full_y : 1;
        } else {
            full_x = (width * w->height + height / 2) / height;
            full_x = full_x > 0 ? full_x : 1;
        }
    }
    *y = centred(height, full_y, w->height);
    *x = centred(width, full_x, w->width);
}

/* ---- weights ---- */

struct taps { /* of each wanted position: its first input pixel, how many, and their weights */
    int32_t *first, *count, *weight;
    int32_t most;
};

static int64_t taps_most(const struct axis *a) {
    const int64_t reach = a->full < a->in ? (a->in + a->full - 1) / a->full : 1;
    return 2 * reach + 1;
}

static size_t taps_bytes(const struct axis *a) {
    return (size_t)a->n * (size_t)(2 + taps_most(a)) * sizeof(int32_t);
}

/* How much of pixel k a position with this centre takes; `near`: 1 / half the triangle's width. */
static double share(int64_t k, double centre, double near) {
    const double d = ((double)k - centre + 0.5) * near;
    return d < 0 ? (d > -1 ? 1 + d : 0) : (d < 1 ? 1 - d : 0);
}

static void taps_fill(struct taps *t, const struct axis *a, void *memory) {
    const double scale = (double)a->in / (double)a->full, reach = scale > 1 ? scale : 1;
    t->most = (int32_t)taps_most(a);
    t->first = memory;
    t->count = t->first + a->n;
    t->weight = t->count + a->n;
    for (int64_t i = 0; i < a->n; i++) {
        const double centre = ((double)(a->from + i) + 0.5) * scale;
        int64_t low = (int64_t)(centre - reach + 0.5), high = (int64_t)(centre + reach + 0.5);
        low = low > 0 ? low : 0; /* the conversion rounds towards 0, which is where this ends */
        high = high < a->in ? high : a->in;
        double sum = 0;
        for (int64_t k = low; k < high; k++)
            sum += share(k, centre, 1 / reach);
        int32_t *w = t->weight + i * t->most;
        for (int64_t k = low; k < high; k++)
            w[k - low] =
                (int32_t)(share(k, centre, 1 / reach) * (1 / sum) * (1 << WEIGHT_BITS) + 0.5);
        t->first[i] = (int32_t)low;
        t->count[i] = (int32_t)(high - low);
    }
}

/* ---- passes ---- */

/* across: rows of `in` pixels to rows of n. down: n rows from rows of `width` values. */
#define PASSES(suffix, T, SUM, MOST)                                                               \
    static T rounded_##suffix(SUM v) {                                                             \
        v >>= WEIGHT_BITS;                                                                         \
        return (T)(v < MOST ? v : MOST); /* rounded weights may add up to a little over 1 */       \
    }                                                                                              \
    static void across_##suffix(const struct taps *t, int64_t n, const T *src, int64_t channels,   \
                                T *to) {                                                           \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const int32_t *w = t->weight + i * t->most;                                            \
            for (int64_t c = 0; c < channels; c++) {                                               \
                const T *p = src + t->first[i] * channels + c;                                     \
                SUM sum = (SUM)1 << (WEIGHT_BITS - 1);                                             \
                for (int32_t k = 0; k < t->count[i]; k++)                                          \
                    sum += (SUM)p[k * channels] * w[k];                                            \
                to[i * channels + c] = rounded_##suffix(sum);                                      \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void down_##suffix(const int32_t *w, int32_t count, const T *src, int64_t width,        \
                              T *to) {                                                             \
        for (int64_t i = 0; i < width; i++) {                                                      \
            SUM sum = (SUM)1 << (WEIGHT_BITS - 1);                                                 \
            for (int32_t k = 0; k < count; k++)                                                    \
                sum += (SUM)src[k * width + i] * w[k];                                             \
            to[i] = rounded_##suffix(sum);                                                         \
        }                                                                                          \
    }
PASSES(u8, uint8_t, int32_t, UINT8_MAX)
PASSES(u16, uint16_t, int64_t, UINT16_MAX)

static size_t rounded_up(size_t n) {
    return (n + 15) / 16 * 16;
}

static bool filtered(const struct axis *y, const struct axis *x, const unsigned char *src,
                     int64_t channels, size_t item, unsigned char *to, size_t to_stride,
                     struct dr_buffer *scratch) {
    const size_t row = (size_t)(x->n * channels) * item;
    const size_t tx = rounded_up(taps_bytes(x)), ty = rounded_up(taps_bytes(y));
    struct taps across, down;
    /* Of the rows only those that are read; there are at most y->in of them. */
    if (!dr_buffer_room(scratch, tx + ty + row * (size_t)y->in))
        return false;
    unsigned char *memory = scratch->at;
    taps_fill(&across, x, memory);
    taps_fill(&down, y, memory + tx);
    const int64_t low = down.first[0];
    const int64_t high = down.first[y->n - 1] + down.count[y->n - 1];
    unsigned char *rows = memory + tx + ty;
    for (int64_t i = low; i < high; i++) {
        const void *p = src + (size_t)(i * x->in * channels) * item;
        void *q = rows + (size_t)(i - low) * row;
        if (item == 1)
            across_u8(&across, x->n, p, channels, q);
        else
            across_u16(&across, x->n, p, channels, q);
    }
    for (int64_t i = 0; i < y->n; i++) {
        const void *p = rows + (size_t)(down.first[i] - low) * row;
        const int32_t *w = down.weight + i * down.most;
        void *q = to + (size_t)i * to_stride;
        if (item == 1)
            down_u8(w, down.count[i], p, x->n * channels, q);
        else
            down_u16(w, down.count[i], p, x->n * channels, q);
    }
    return true;
}

/* The pixel whose area holds the centre of position i. */
static int64_t nearest_of(const struct axis *a, int64_t i) {
    return (2 * (a->from + i) + 1) * a->in / (2 * a->full);
}

static void nearest(const struct axis *y, const struct axis *x, const unsigned char *src,
                    size_t pixel, unsigned char *to, size_t to_stride) {
    for (int64_t i = 0; i < y->n; i++) {
        const unsigned char *row = src + (size_t)(nearest_of(y, i) * x->in) * pixel;
        unsigned char *q = to + (size_t)i * to_stride;
        for (int64_t k = 0; k < x->n; k++)
            memcpy(q + (size_t)k * pixel, row + (size_t)nearest_of(x, k) * pixel, pixel);
    }
}

static void fill(void *to, int64_t n, uint32_t item, uint32_t value) {
    if (item == 1)
        memset(to, (int)value, (size_t)n);
    else
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)to)[i] = (uint16_t)value;
}

bool dr_fit(const struct dr_image_want *want, const void *src, int64_t height, int64_t width,
            uint32_t channels, uint32_t item, void *to, struct dr_buffer *scratch) {
    struct axis y, x;
    const bool mask = want->channels == 0;
    geometry(want, height, width, &y, &x);
    if (y.n < want->height || x.n < want->width)
        fill(to, want->height * want->width * channels, item, mask ? 255 : 0);
    const size_t pixel = (size_t)channels * item, stride = (size_t)want->width * pixel;
    unsigned char *corner = (unsigned char *)to + (size_t)y.at * stride + (size_t)x.at * pixel;
    if (mask || (y.in == y.full && x.in == x.full)) { /* nothing to filter: copied */
        nearest(&y, &x, src, pixel, corner, stride);
        return true;
    }
    return filtered(&y, &x, src, channels, item, corner, stride, scratch);
}
