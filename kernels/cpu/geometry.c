/* Crops, resizing, rotation on the CPU: a sample is an item of work. A resized row is
 * made of its rows first, into a row of floats, then along it: the order of the sums that the GPU
 * has. */
#include "kernels/cpu/geometry.h"
#include <string.h>

enum { CHUNK = 4 }; /* channels that are summed at once */

struct job {
    const struct dr_resample *r;
    const struct dr_turn *t;
    const struct dr_batch *batch;
    const struct dr_plane *p;
    char *scratch;
};

/* A run of pixels from outside. */
static void fill(unsigned char *to, const struct dr_plane *p, int64_t pixels) {
    const size_t item = (size_t)p->item;
    for (int64_t i = 0; i < pixels * p->c; i++)
        memcpy(to + (size_t)i * item, &p->fill, item);
}

/* ---- windows ---- */
static void move_row(const struct dr_resample *r, const struct dr_plane *p,
                     const struct dr_window *v, const unsigned char *x, unsigned char *y,
                     int32_t row) {
    const size_t pixel = (size_t)p->c * (size_t)p->item;
    const int32_t sy = dr_moved_from(row, v->off_y, v->top, v->h, v->full_h);
    if (sy < 0 || sy >= r->h) {
        fill(y, p, r->wo);
        return;
    }
    x += (size_t)sy * (size_t)r->w * pixel;
    if (v->w == v->full_w) { /* a plain cut: what is inside is one run */
        const int32_t from = v->left + v->off_x;
        const int32_t first = from < 0 ? (-from < r->wo ? -from : r->wo) : 0;
        const int32_t last =
            r->w - from < r->wo ? (r->w - from > first ? r->w - from : first) : r->wo;
        fill(y, p, first);
        if (last > first)
            memcpy(y + (size_t)first * pixel, x + (size_t)(from + first) * pixel,
                   (size_t)(last - first) * pixel);
        fill(y + (size_t)last * pixel, p, r->wo - last);
        return;
    }
    for (int32_t o = 0; o < r->wo; o++, y += pixel) {
        const int32_t sx = dr_moved_from(o, v->off_x, v->left, v->w, v->full_w);
        if (sx < 0 || sx >= r->w)
            fill(y, p, 1);
        else
            memcpy(y, x + (size_t)sx * pixel, pixel);
    }
}

/* rows[i] = sum over the rows of `t`, of elements [first, first + n) of a row. */
static void add_rows(const struct dr_plane *p, const struct dr_taps *t, const void *x,
                     size_t row_elements, size_t first, size_t n, float *restrict rows) {
    for (int32_t j = 0; j < t->n; j++) {
        const float share = dr_tap_share(t, j);
        const size_t at = (size_t)(t->first + j) * row_elements + first;
        if (p->item == 1) {
            const uint8_t *from = (const uint8_t *)x + at;
            for (size_t i = 0; i < n; i++)
                rows[i] = (j ? rows[i] : 0.0f) + share * (float)from[i];
        } else {
            const float *from = (const float *)x + at;
            for (size_t i = 0; i < n; i++)
                rows[i] = (j ? rows[i] : 0.0f) + share * from[i];
        }
    }
}

/* One output pixel, a few channels: the sum along the row. */
static void resize_pixel(const struct dr_plane *p, const struct dr_column *across, float down_sum,
                         const float *rows, void *y, size_t at) {
    const float scale = 1.0f / (down_sum * across->sum);
    const size_t c = (size_t)p->c;
    for (size_t c0 = 0; c0 < c; c0 += CHUNK) {
        const size_t n = c - c0 < CHUNK ? c - c0 : CHUNK;
        float sum[CHUNK] = {0};
        for (int32_t j = 0; j < across->taps.n; j++) {
            const float share = dr_tap_share(&across->taps, j);
            const float *from = rows + (size_t)(across->taps.first + j) * c + c0;
            for (size_t k = 0; k < n; k++)
                sum[k] += share * from[k];
        }
        for (size_t k = 0; k < n; k++) {
            if (p->item == 1)
                ((uint8_t *)y)[at + c0 + k] = dr_round_u8(sum[k] * scale);
            else
                ((float *)y)[at + c0 + k] = sum[k] * scale;
        }
    }
}

static void resize_sample(const struct dr_resample *r, const struct dr_plane *p,
                          const struct dr_window *v, const void *x, void *y,
                          struct dr_column *columns, float *rows) {
    const size_t c = (size_t)p->c, row_elements = (size_t)r->w * c;
    for (int32_t ox = 0; ox < r->wo; ox++) {
        columns[ox].taps = dr_taps_of(ox, v->off_x, 0, v->w, v->full_w);
        columns[ox].sum = dr_taps_sum(&columns[ox].taps);
    }
    for (int32_t oy = 0; oy < r->ho; oy++) {
        const struct dr_taps down = dr_taps_of(oy, v->off_y, v->top, v->h, v->full_h);
        const float down_sum = dr_taps_sum(&down);
        add_rows(p, &down, x, row_elements, (size_t)v->left * c, (size_t)v->w * c, rows);
        for (int32_t ox = 0; ox < r->wo; ox++)
            resize_pixel(p, &columns[ox], down_sum, rows, y,
                         ((size_t)oy * (size_t)r->wo + (size_t)ox) * c);
    }
}

static void resample_item(void *ctx, size_t i) {
    const struct job *j = ctx;
    const struct dr_resample *r = j->r;
    const struct dr_plane *p = j->p;
    const size_t pixel = (size_t)p->c * (size_t)p->item;
    const struct dr_window v = dr_window_of(r, j->batch, (int64_t)i);
    const size_t row = (size_t)r->wo * pixel;
    const unsigned char *x = (const unsigned char *)p->x + i * (size_t)(r->h * r->w) * pixel;
    unsigned char *y = (unsigned char *)p->y + i * (size_t)r->ho * row;
    if (p->smooth) {
        char *scratch = j->scratch + i * (size_t)dr_cpu_resample_bytes(1, r->w, p->c, r->wo);
        struct dr_column *columns = (void *)scratch;
        resize_sample(r, p, &v, x, y, columns, (float *)(columns + r->wo));
        return;
    }
    for (int32_t oy = 0; oy < r->ho; oy++, y += row)
        move_row(r, p, &v, x, y, oy);
}

void dr_cpu_resample(struct dr_cpu *cpu, const struct dr_resample *r, const struct dr_batch *batch,
                     const struct dr_plane *plane, void *workspace) {
    struct job j = {.r = r, .batch = batch, .p = plane, .scratch = workspace};
    const double ns = plane->smooth ? 20.0 : 0.5;
    dr_cpu_for(cpu, resample_item, &j, (size_t)r->n, ns * r->ho * r->wo * plane->c + 300);
}

/* ---- rotations ---- */
static void turn_smooth(const struct dr_plane *p, const struct dr_corners *k, const void *x,
                        void *y, size_t at) {
    for (int32_t ch = 0; ch < p->c; ch++) {
        float v[4];
        for (int i = 0; i < 4; i++) {
            const size_t from = (size_t)k->at[i] * (size_t)p->c + (size_t)ch;
            v[i] = k->at[i] < 0   ? p->outside
                   : p->item == 1 ? (float)((const uint8_t *)x)[from]
                                  : ((const float *)x)[from];
        }
        const float value = dr_blend_corners(k, v);
        if (p->item == 1)
            ((uint8_t *)y)[at + (size_t)ch] = dr_round_u8(value);
        else
            ((float *)y)[at + (size_t)ch] = value;
    }
}

static void turn_item(void *ctx, size_t i) {
    const struct job *j = ctx;
    const struct dr_turn *t = j->t;
    const struct dr_plane *p = j->p;
    const size_t pixel = (size_t)p->c * (size_t)p->item;
    const size_t bytes = (size_t)(t->h * t->w) * pixel;
    const unsigned char *x = (const unsigned char *)p->x + i * bytes;
    unsigned char *y = (unsigned char *)p->y + i * bytes;
    const struct dr_turned m = dr_turn_of(t, j->batch, (int64_t)i);
    for (int32_t row = 0; row < t->h; row++) {
        for (int32_t col = 0; col < t->w; col++) {
            const struct dr_place from = dr_turned_from(&m, col, row);
            const size_t o = (size_t)(row * t->w + col);
            if (p->smooth) {
                const struct dr_corners k = dr_corners_of(from, t->h, t->w);
                turn_smooth(p, &k, x, y, o * (size_t)p->c);
                continue;
            }
            const int32_t at = dr_nearest_pixel(from, t->h, t->w);
            if (at < 0)
                fill(y + o * pixel, p, 1);
            else
                memcpy(y + o * pixel, x + (size_t)at * pixel, pixel);
        }
    }
}

void dr_cpu_turn(struct dr_cpu *cpu, const struct dr_turn *t, const struct dr_batch *batch,
                 const struct dr_plane *plane) {
    struct job j = {.t = t, .batch = batch, .p = plane};
    dr_cpu_for(cpu, turn_item, &j, (size_t)t->n, 6.0 * t->h * t->w + 500);
}
