/* Decoders: from a file in memory to pixels of the declared size. See image.h. */
#include "augment/fit.h"
#include "augment/png.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <turbojpeg.h>

struct dr_decoder {
    tjhandle jpeg;
    struct dr_buffer file, pixels, turned, fitted, scratch;
    struct dr_decoder *next; /* in a list of those that are free */
};

struct dr_decoder *dr_decoder_create(void) {
    struct dr_decoder *d = calloc(1, sizeof *d);
    if (d && !(d->jpeg = tjInitDecompress())) {
        free(d);
        return NULL;
    }
    return d;
}

void dr_decoder_destroy(struct dr_decoder *d) {
    if (!d)
        return;
    tjDestroy(d->jpeg);
    dr_buffer_free(&d->file);
    dr_buffer_free(&d->pixels);
    dr_buffer_free(&d->turned);
    dr_buffer_free(&d->fitted);
    dr_buffer_free(&d->scratch);
    free(d);
}

static bool no_memory(char *why, size_t why_n) {
    snprintf(why, why_n, "out of host memory");
    return false;
}

/* ---- JPEG ---- */

/* Adobe's files, the only four-ink ones there are, hold inks inverted: 255 is none. */
static void from_inks(const unsigned char *inks, int64_t pixels, uint32_t channels,
                      unsigned char *to) {
    for (int64_t i = 0; i < pixels; i++, inks += 4, to += channels) {
        for (int c = 0; c < 3; c++)
            to[c] = (unsigned char)((inks[c] * inks[3] + 127) / 255);
        if (channels == 4)
            to[3] = 255;
    }
}

/* STOPONWARNING: a file that is cut would be grey from there on. LIMITSCANS: a progressive file of
 * a few KiB can ask for hours (libjpeg-turbo, "Two issues with the JPEG standard"). */
static bool jpeg_pixels(struct dr_decoder *d, const unsigned char *file, size_t n,
                        const struct dr_image_head *h, uint32_t channels, unsigned char *to,
                        char *why, size_t why_n) {
    const int64_t pixels = (int64_t)h->width * h->height;
    unsigned char *inks = to;
    if (h->cmyk && !dr_buffer_room(&d->turned, (size_t)pixels * 4))
        return no_memory(why, why_n);
    if (h->cmyk)
        inks = d->turned.at;
    const int format = h->cmyk         ? TJPF_CMYK
                       : channels == 1 ? TJPF_GRAY
                       : channels == 3 ? TJPF_RGB
                                       : TJPF_RGBA;
    if (tjDecompress2(d->jpeg, file, n, inks, (int)h->width, 0, (int)h->height, format,
                      TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS) != 0) {
        snprintf(why, why_n, "%s", tjGetErrorStr2(d->jpeg));
        return false;
    }
    if (h->cmyk)
        from_inks(inks, pixels, channels, to);
    return true;
}

/* ---- orientation ---- */

/* The stored pixel of (y, x) is start + y * down + x * right: TIFF 6.0, tag Orientation, which says
 * on which sides of the scene row 0 and column 0 of the file are. */
static void turn(const struct dr_image_head *h, const unsigned char *src, size_t pixel,
                 unsigned char *to) {
    const int64_t w = h->width, last_x = w - 1, last_y = (int64_t)(h->height - 1) * w;
    const struct {
        int64_t start, down, right;
    } walks[8] = {{0, w, 1}, {last_x, w, -1}, {last_y + last_x, -w, -1}, {last_y, -w, 1},
                  {0, 1, w}, {last_y, 1, -w}, {last_y + last_x, -1, -w}, {last_x, -1, w}};
    const int64_t start = walks[h->orientation - 1].start, down = walks[h->orientation - 1].down,
                  right = walks[h->orientation - 1].right;
    const int64_t rows = dr_image_turns(h) ? h->width : h->height,
                  columns = dr_image_turns(h) ? h->height : w;
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < columns; x++, to += pixel)
            memcpy(to, src + (size_t)(start + y * down + x * right) * pixel, pixel);
}

/* ---- a file ---- */

/* The declared channels, or those of the file for a mask. */
static bool decode(struct dr_decoder *d, const unsigned char *file, size_t n,
                   const struct dr_image_head *h, const struct dr_image_want *w, void *to,
                   char *why, size_t why_n) {
    if (h->png)
        return dr_png_read(file, n, h, w->channels, to, why, why_n);
    return jpeg_pixels(d, file, n, h, w->channels, to, why, why_n);
}

/* Decodes to `to`, the declared size. */
static bool produce(struct dr_decoder *d, const unsigned char *file, size_t n,
                    const struct dr_image_head *h, const struct dr_image_want *w, size_t pixel,
                    void *to, char *why, size_t why_n) {
    const int64_t height = dr_image_turns(h) ? h->width : h->height,
                  width = dr_image_turns(h) ? h->height : h->width;
    const bool same = height == w->height && width == w->width, turned = h->orientation != 1;
    const size_t all = (size_t)height * (size_t)width * pixel;
    void *at = to; /* straight into its place where it can be */
    if ((!same || turned) && !dr_buffer_room(&d->pixels, all))
        return no_memory(why, why_n);
    if (!same || turned)
        at = d->pixels.at;
    if (!decode(d, file, n, h, w, at, why, why_n))
        return false;
    if (turned) {
        if (!same && !dr_buffer_room(&d->turned, all))
            return no_memory(why, why_n);
        turn(h, at, pixel, same ? to : d->turned.at);
        at = same ? to : d->turned.at;
    }
    const uint32_t channels = w->channels ? w->channels : 1;
    return same ||
           dr_fit(w, at, height, width, channels, (uint32_t)pixel / channels, to, &d->scratch) ||
           no_memory(why, why_n);
}

const void *dr_decoder_read(struct dr_decoder *d, const unsigned char *file, size_t n,
                            const struct dr_image_want *w, void *to, uint32_t *item, char *why,
                            size_t why_n) {
    struct dr_image_head h;
    if (!dr_image_head(file, n, &h, why, why_n) || !dr_image_suits(&h, w, why, why_n))
        return NULL;
    *item = h.bits == 16 ? 2 : 1;
    const size_t pixel = (size_t)(w->channels ? w->channels : 1) * *item;
    if (!to && !dr_buffer_room(&d->fitted, (size_t)w->height * (size_t)w->width * pixel)) {
        no_memory(why, why_n);
        return NULL;
    }
    to = to ? to : d->fitted.at;
    return produce(d, file, n, &h, w, pixel, to, why, why_n) ? to : NULL;
}

/* Read and not mapped: a file that is cut meanwhile would end the program by a signal, and threads
 * that map and unmap get into each other's way. */
static bool slurp(struct dr_decoder *d, int fd, size_t *n, char *why, size_t why_n) {
    const int64_t most = INT64_C(1) << 30;
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        snprintf(why, why_n, "%s", strerror(errno));
        return false;
    }
    if (!S_ISREG(st.st_mode) || st.st_size > most) {
        snprintf(why, why_n, S_ISREG(st.st_mode) ? "it is over 1 GiB" : "it is not a file");
        return false;
    }
    if (!dr_buffer_room(&d->file, st.st_size ? (size_t)st.st_size : 1))
        return no_memory(why, why_n);
    *n = 0;
    for (ssize_t got = 1; got && *n < (size_t)st.st_size;) {
        got = read(fd, (unsigned char *)d->file.at + *n, (size_t)st.st_size - *n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            snprintf(why, why_n, "%s", strerror(errno));
            return false;
        }
        *n += (size_t)got;
    }
    return true;
}

const void *dr_decoder_read_file(struct dr_decoder *d, const char *path,
                                 const struct dr_image_want *w, void *to, uint32_t *item, char *why,
                                 size_t why_n) {
    size_t n;
    /* O_NONBLOCK: opening a FIFO must not hang; regular files ignore it. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool good = slurp(d, fd, &n, why, why_n);
    if (fd >= 0)
        close(fd);
    return good ? dr_decoder_read(d, d->file.at, n, w, to, item, why, why_n) : NULL;
}

/* ---- a pool ---- */

struct dr_decoders {
    pthread_mutex_t lock;
    struct dr_decoder *free;
};

struct dr_decoders *dr_decoders_create(void) {
    struct dr_decoders *s = calloc(1, sizeof *s);
    if (s)
        pthread_mutex_init(&s->lock, NULL);
    return s;
}

void dr_decoders_destroy(struct dr_decoders *s) {
    if (!s)
        return;
    while (s->free) {
        struct dr_decoder *d = s->free;
        s->free = d->next;
        dr_decoder_destroy(d);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct dr_decoder *dr_decoders_take(struct dr_decoders *s) {
    pthread_mutex_lock(&s->lock);
    struct dr_decoder *d = s->free;
    if (d)
        s->free = d->next;
    pthread_mutex_unlock(&s->lock);
    return d ? d : dr_decoder_create();
}

void dr_decoders_give(struct dr_decoders *s, struct dr_decoder *d) {
    pthread_mutex_lock(&s->lock);
    d->next = s->free;
    s->free = d;
    pthread_mutex_unlock(&s->lock);
}
