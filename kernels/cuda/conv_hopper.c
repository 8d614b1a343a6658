/* Forward convolution in the way that was chosen; on Hopper: tensor maps, launch. */
#include "kernels/cuda/conv_hopper.h"
#include "kernels/cuda/conv.h"
#include "kernels/cuda/conv_small.h"
#include "kernels/cuda/conv_way.h"
#include "kernels/cuda/tma.h"
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <string.h>

static bool built;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void look(void) {
    built = dr_conv_hopper_built() && dr_tma_found();
}
bool dr_cuda_conv_hopper_runs(void) {
    pthread_once(&once, look);
    return built;
}

struct dr_divisor dr_divisor_of(int64_t d) {
    struct dr_divisor r = {(int)d, 0, 0};
    while ((int64_t)2 << r.shift < d) {
        r.shift++;
    }
    if (d > 1) {
        r.magic = (unsigned)((((uint64_t)1 << (32 + r.shift)) + (uint64_t)d - 1) / (uint64_t)d);
    }
    return r;
}

/* Images of one phase of the stride: every sh-th row and sw-th column from (ry, rx). */
static bool map_phase(CUtensorMap *map, const struct dr_conv *c, enum dr_type t,
                      const struct dr_conv_plan *p, const struct dr_conv_phase *f, const void *x) {
    const int64_t bytes = dr_type_bytes(t), pixel = c->c * bytes;
    const char *const base = (const char *)x + (f->ry * p->w + f->rx) * pixel;
    const int64_t rows = (p->h - f->ry + c->sh - 1) / c->sh;
    const int64_t columns = (p->w - f->rx + c->sw - 1) / c->sw;
    const int width = (int)(128 / bytes);
    if (p->linear && p->tile->kernel == DR_CONV_RS) {
        const int64_t size[] = {c->c, columns, p->n * p->h};
        const int64_t stride[] = {pixel, p->w * pixel};
        return dr_tma_map(map, t, base, 3, size, stride, (int[]){width, p->pw, p->ph});
    }
    const int64_t size[] = {c->c, columns, rows, p->n};
    const int64_t stride[] = {c->sw * pixel, c->sh * p->w * pixel, p->h * p->w * pixel};
    return dr_tma_map(map, t, base, 4, size, stride, (int[]){width, p->pw, p->ph, p->tn});
}

static bool fill_taps(CUtensorMap *map, struct dr_taps *a, const struct dr_conv *c, enum dr_type t,
                      const struct dr_conv_plan *p, const void *x) {
    bool ok = true;
    for (int f = 0; f < p->n_phases; f++) {
        const struct dr_conv_phase *ph = &p->phase[f];
        ok = ok && map_phase(&map[f], c, t, p, ph, x);
        a->oy[f] = ph->oy, a->ox[f] = ph->ox;
        a->first[f] = ph->first, a->first[f + 1] = ph->first + ph->taps;
        for (int i = ph->first; i < ph->first + ph->taps; i++) {
            const struct dr_conv_tap *tap = &p->tap[i];
            a->tap[i] = (unsigned)(tap->dy * p->pw + tap->dx) << 8 | (unsigned)tap->weight;
        }
    }
    return ok;
}

/* Weights [k, taps, c]: slabs of one tap, `filters` of them, 128 bytes of channels. */
static bool map_weights(CUtensorMap *map, const struct dr_conv *c, enum dr_type t, int filters,
                        const void *w) {
    const int64_t bytes = dr_type_bytes(t), row = c->c * bytes;
    const int64_t size[] = {c->c, c->kh * c->kw, c->k}, stride[] = {row, c->kh * c->kw * row};
    return dr_tma_map(map, t, w, 3, size, stride, (int[]){(int)(128 / bytes), 1, filters});
}

static bool half_piece(const struct dr_conv *c, enum dr_type t) {
    const int64_t rest = c->c * dr_type_bytes(t) % 128;
    return rest != 0 && rest <= 64;
}

static bool fill_rs(struct dr_rs *a, const struct dr_conv *c, enum dr_type t,
                    const struct dr_conv_plan *p, const void *x, const void *w) {
    const bool ok = map_weights(&a->w, c, t, p->tile->columns, w);
    a->n = (int)p->n, a->h = (int)p->h;
    a->ho = dr_divisor_of(p->ho), a->wo = dr_divisor_of(p->wo);
    a->k = (int)c->k, a->pixels = (int)(p->n * p->ho * p->wo);
    a->tn = p->tn, a->th = p->th, a->ph = p->ph, a->pw = p->pw;
    a->linear = p->linear;
    if (!p->linear) {
        a->box = dr_divisor_of(p->th * p->tw), a->tw = dr_divisor_of(p->tw);
        a->tiles_w = dr_divisor_of((p->wo + p->tw - 1) / p->tw);
        a->tiles_h = dr_divisor_of((p->ho + p->th - 1) / p->th);
    }
    a->k_tiles = dr_divisor_of(p->k_tiles), a->tiles = (int)(p->m_tiles * p->k_tiles);
    a->units = dr_divisor_of(p->units), a->pieces = p->chunks / p->n_phases;
    if (p->parts) {
        const int64_t units = p->m_tiles * p->k_tiles * p->units;
        a->parts = dr_divisor_of(p->parts);
        a->share = (int)(units / p->parts), a->share_rest = (int)(units % p->parts);
        a->shares_a_unit = (float)p->parts / (float)units;
    }
    a->half_piece = half_piece(c, t);
    a->dh = (int)c->dh, a->dw = (int)c->dw;
    a->patches = p->patches, a->slabs = p->slabs;
    a->patch_bytes = (unsigned)(p->tn * p->ph * p->pw) * 128;
    a->patch_stage = (a->patch_bytes + 1023) / 1024 * 1024;
    return fill_taps(a->x, &a->taps, c, t, p, x) && ok;
}

static int launch_rs(const struct dr_conv *c, enum dr_type t, const struct dr_conv_plan *p,
                     const void *x, const void *w, const struct dr_epilogue *e, void *y,
                     void *workspace, const struct dr_cuda *cuda, bool *done) {
    struct dr_rs a;
    memset(&a, 0, sizeof a);
    *done = fill_rs(&a, c, t, p, x, w);
    if (!*done) {
        return 0;
    }
    a.e = *e, a.y = y;
    a.partial = workspace, a.ticket = cuda->tickets;
    const int64_t shares = p->parts ? p->parts : a.tiles;
    const int blocks = (int)(shares < cuda->sms ? shares : cuda->sms);
    return (t == DR_TYPE_F16 ? dr_conv_rs_f16
            : t == DR_TYPE_BF16
                ? dr_conv_rs_bf16
                : dr_conv_rs_tf32)(&a, p->tile, p->shared_bytes, blocks, cuda->stream);
}

/* y, or what is added to it: boxes of `rows` x 8 pixels (or of as many as are left of these), 128
 * bytes of filters. */
static bool map_output(CUtensorMap *map, const struct dr_conv *c, enum dr_type t,
                       const struct dr_conv_plan *p, int rows, const void *y) {
    const int64_t pixel = c->k * dr_type_bytes(t);
    const int cut = p->pool ? 2 : 1;
    const int64_t ho = p->ho / cut, wo = p->wo / cut;
    const int64_t size[] = {c->k, wo, ho, p->n}, stride[] = {pixel, wo * pixel, ho * wo * pixel};
    const int width = 128 / dr_type_bytes(t);
    return dr_tma_map(map, t, y, 4, size, stride, (int[]){width, 8 / cut, rows / cut, 1});
}

static int launch_ws(const struct dr_conv *c, enum dr_type t, const struct dr_conv_plan *p,
                     const void *x, const void *w, const struct dr_epilogue *e, void *y,
                     const struct dr_cuda *cuda, bool *done) {
    struct dr_ws a;
    memset(&a, 0, sizeof a);
    struct dr_conv_plan all = *p;              /* rows of all images as one */
    const bool stacked = p->linear && !e->add; /* which would come in two boxes */
    all.linear = false;
    if (stacked) {
        all.h = all.n * all.h, all.n = 1;
    }
    *done = map_phase(&a.x, c, t, &all, &p->phase[0], x) && map_output(&a.y, c, t, p, 16, y) &&
            map_weights(&a.w, c, t, 64, w) && (!stacked || map_output(&a.row, c, t, p, 1, y)) &&
            map_output(&a.add, c, t, p, 16, e->add ? e->add : y);
    if (!*done) {
        return 0;
    }
    a.e = *e, a.pool = p->pool;
    a.k = (int)c->k, a.pt = (int)c->pt, a.pl = (int)c->pl;
    const int64_t rows = stacked ? all.h : c->ho;
    const int64_t tiles_w = (c->wo + p->tw - 1) / p->tw, tiles_h = (rows + p->th - 1) / p->th;
    a.tiles_w = dr_divisor_of(tiles_w), a.tiles_h = dr_divisor_of(tiles_h);
    a.stacked = stacked ? (int)c->h : 0, a.n = (int)c->n;
    a.tiles = (int)(tiles_w * tiles_h * all.n), a.k_tiles = (int)p->k_tiles;
    const int64_t most = (a.tiles * p->k_tiles + 1) / 2, least = (p->k_tiles + 1) / 2;
    const int64_t blocks = most < cuda->sms ? most : cuda->sms > least ? cuda->sms : least;
    return dr_conv_ws(&a, t, p->shared_bytes, (int)blocks, cuda->stream);
}

static int launch_wa(const struct dr_conv *c, enum dr_type t, const struct dr_conv_plan *p,
                     const void *x, const void *w, const struct dr_epilogue *e, void *y,
                     const struct dr_cuda *cuda, bool *done) {
    struct dr_wa a;
    memset(&a, 0, sizeof a);
    *done = map_weights(&a.w, c, t, 64, w) && map_output(&a.y, c, t, p, 16, y) &&
            map_output(&a.add, c, t, p, 16, e->add ? e->add : y) &&
            fill_taps(a.x, &a.taps, c, t, p, x);
    if (!*done) {
        return 0;
    }
    a.e = *e, a.k = (int)c->k, a.pool = p->pool;
    a.tn = p->tn, a.th = p->th, a.tw = p->tw, a.pw = p->pw;
    if (p->linear) {
        a.lines = 1, a.ho = (int)p->ho, a.wo = (int)p->wo, a.row = dr_divisor_of(p->pw);
        a.y_at = y;
    }
    a.second_n = p->tn - 1, a.second_h = p->th - 16, a.second_w = p->tw - 8;
    a.second = p->linear ? 128 : (a.second_n * p->ph + a.second_h) * p->pw + a.second_w;
    a.k_tiles = dr_divisor_of(p->k_tiles);
    a.tiles_w = dr_divisor_of(p->linear ? 1 : (p->wo + p->tw - 1) / p->tw);
    a.tiles_h =
        dr_divisor_of(p->linear ? (p->ho * p->pw + 255) / 256 : (p->ho + p->th - 1) / p->th);
    a.tiles = (int)p->m_tiles, a.pairs = (int)((p->m_tiles + 1) / 2 * p->k_tiles);
    a.chunks = p->chunks, a.pieces = p->chunks / p->n_phases, a.half_piece = half_piece(c, t);
    a.patches = p->patches, a.slabs = p->slabs;
    a.patch_bytes = (unsigned)(p->tn * p->ph * p->pw) * 128;
    a.patch_stage = (a.patch_bytes + 1023) / 1024 * 1024;
    return dr_conv_wa(&a, t, p->shared_bytes, a.pairs < cuda->sms ? a.pairs : cuda->sms,
                      cuda->stream);
}

/* Boxes of pixels in the order row, image, column. */
static bool map_turned(CUtensorMap *map, enum dr_type t, const void *base, const int64_t size[4],
                       int64_t pixel, int64_t row, int64_t image, const int box[4]) {
    return dr_tma_map(map, t, base, 4, size, (const int64_t[]){pixel, image, row}, box);
}

/* Taps by strips: those of one phase and column, or (wide) of one phase. */
static void fill_strips(struct dr_wl *a, const struct dr_conv_plan *p) {
    for (int f = 0; f < p->n_phases; f++) {
        const struct dr_conv_phase *ph = &p->phase[f];
        for (int i = ph->first; i < ph->first + ph->taps; i++) {
            if (!dr_conv_strip_begins(p, ph, i)) {
                continue;
            }
            const int dx = p->linear ? 0 : p->tap[i].dx;
            a->strip[a->strips++] = (struct dr_strip){f, ph->ox + dx, ph->oy, a->taps};
            for (int j = i; j < ph->first + ph->taps; j++) {
                const struct dr_conv_tap *tap = &p->tap[j];
                if (p->linear || tap->dx == dx) {
                    const int at = tap->dy * p->tn * p->pw + tap->dx - dx;
                    a->tap[a->taps++] = (unsigned)at << 8 | (unsigned)tap->weight;
                }
            }
        }
    }
    a->strip[a->strips].first = a->taps;
}

static bool fill_wl(struct dr_wl *a, const struct dr_conv *c, enum dr_type t,
                    const struct dr_conv_plan *p, const void *x, const void *w, const void *add,
                    void *y) {
    const int64_t bytes = dr_type_bytes(t), pixel = c->c * bytes, k = c->k * bytes;
    const int width = (int)(128 / bytes);
    bool ok = map_weights(&a->w, c, t, 128, w);
    for (int f = 0; f < p->n_phases; f++) {
        const struct dr_conv_phase *ph = &p->phase[f];
        const int64_t size[] = {c->c, (p->w - ph->rx + c->sw - 1) / c->sw, p->n,
                                (p->h - ph->ry + c->sh - 1) / c->sh};
        ok = ok && map_turned(&a->x[f], t, (const char *)x + (ph->ry * p->w + ph->rx) * pixel, size,
                              c->sw * pixel, c->sh * p->w * pixel, p->h * p->w * pixel,
                              (int[]){width, p->pw, p->tn, p->ph});
    }
    const int64_t size[] = {c->k, p->wo, p->n, p->ho};
    const int box[] = {width, p->pw, p->tn, p->th};
    ok = ok && map_turned(&a->y, t, y, size, k, p->wo * k, p->ho * p->wo * k, box) &&
         map_turned(&a->add, t, add ? add : y, size, k, p->wo * k, p->ho * p->wo * k, box);
    a->y_at = y, a->n = (int)p->n, a->ho = (int)p->ho, a->wo = (int)p->wo, a->k = (int)c->k;
    a->tn = p->tn, a->th = p->th, a->tw = p->tw, a->pw = p->pw;
    a->tiles = (int)(p->m_tiles * p->k_tiles);
    a->k_tiles = dr_divisor_of(p->k_tiles);
    a->tiles_w = dr_divisor_of((p->wo + p->tw - 1) / p->tw);
    a->tiles_h = dr_divisor_of((p->ho + p->th - 1) / p->th);
    a->pieces = p->chunks / p->n_phases, a->half_piece = half_piece(c, t);
    a->strip_stages = p->patches, a->slabs = p->slabs;
    a->strip_bytes = (unsigned)(p->tn * p->ph * p->pw) * 128;
    a->strip_stage = (a->strip_bytes + 1023) / 1024 * 1024;
    a->out_bytes = (unsigned)(p->tn * p->th * p->pw) * 128;
    a->out_stage = (unsigned)dr_conv_out_bytes(p->tile, t);
    fill_strips(a, p);
    return ok;
}

static int launch_wl(const struct dr_conv *c, enum dr_type t, const struct dr_conv_plan *p,
                     const void *x, const void *w, const struct dr_epilogue *e, void *y,
                     const struct dr_cuda *cuda, bool *done) {
    struct dr_wl a;
    memset(&a, 0, sizeof a);
    *done = fill_wl(&a, c, t, p, x, w, e->add, y);
    if (!*done) {
        return 0;
    }
    a.e = *e;
    const int blocks = a.tiles < cuda->sms ? a.tiles : cuda->sms;
    return (t == DR_TYPE_F16 ? dr_conv_wl_f16
            : t == DR_TYPE_BF16
                ? dr_conv_wl_bf16
                : dr_conv_wl_tf32)(&a, p->tile->pixels, p->shared_bytes, blocks, cuda->stream);
}

static int launch_wk(const struct dr_conv *c, enum dr_type t, const struct dr_conv_plan *p,
                     const void *x, const void *w, const struct dr_epilogue *e, void *y,
                     const struct dr_cuda *cuda, bool *done) {
    struct dr_wk a;
    memset(&a, 0, sizeof a);
    *done = map_weights(&a.w, c, t, 64, w) && fill_taps(&a.x, &a.taps, c, t, p, x);
    if (!*done) {
        return 0;
    }
    a.e = *e, a.y = y;
    a.ho = (int)p->ho, a.wo = (int)p->wo, a.k = (int)c->k, a.pw = p->pw;
    a.tiles = (int)p->m_tiles, a.k_tiles = (int)p->k_tiles;
    a.tiles_w = dr_divisor_of((p->wo + p->tw - 1) / p->tw);
    a.tiles_h = dr_divisor_of((p->ho + p->th - 1) / p->th);
    a.pieces = p->chunks, a.half_piece = half_piece(c, t);
    a.patch_bytes = (unsigned)(p->ph * p->pw) * 128;
    a.patch_stage = (a.patch_bytes + 1023) / 1024 * 1024;
    const int64_t most = p->m_tiles * p->k_tiles, blocks = most < cuda->sms ? most : cuda->sms;
    return dr_conv_wk(&a, p->shared_bytes, (int)(blocks > p->k_tiles ? blocks : p->k_tiles),
                      cuda->stream);
}

static bool aligned(const void *p) {
    return (uintptr_t)p % 16 == 0;
}
static bool can_run(int arch, const void *x, const void *w, const struct dr_epilogue *e,
                    const void *y, const struct dr_cuda *cuda) {
    return dr_cuda_conv_hopper_runs() && cuda->arch == arch && dr_cuda_conv_hopper_acts(e->act) &&
           aligned(x) && aligned(w) && aligned(y) && aligned(e->add);
}

int dr_cuda_conv_run(const struct dr_conv *c, enum dr_type t, const struct dr_conv_plan *p,
                     const void *x, const void *w, const struct dr_epilogue *e, void *y,
                     void *workspace, const struct dr_cuda *cuda, bool *done) {
    *done = false;
    if (!can_run(p->tile->arch, x, w, e, y, cuda) ||
        (p->workspace_bytes > 0 && (!cuda->tickets || !workspace))) {
        return 0;
    }
    if (p->tile->kernel == DR_CONV_SMALL) {
        *done = true;
        return dr_cuda_conv_small(c, t, x, NULL, w, e, y, cuda);
    }
    if (p->tile->kernel == DR_CONV_RS) {
        return launch_rs(c, t, p, x, w, e, y, workspace, cuda, done);
    }
    return (p->tile->kernel == DR_CONV_WS   ? launch_ws
            : p->tile->kernel == DR_CONV_WL ? launch_wl
            : p->tile->kernel == DR_CONV_WA ? launch_wa
                                            : launch_wk)(c, t, p, x, w, e, y, cuda, done);
}

static int run_row(const struct dr_conv *c, enum dr_type t, int row, bool linear, const void *x,
                   const void *w, const struct dr_epilogue *e, void *y, void *workspace,
                   const struct dr_cuda *cuda) {
    struct dr_conv_plan p;
    int rows;
    bool done;
    const struct dr_conv_tile *const tile = dr_cuda_conv_tiles(&rows);
    if (row >= rows || !dr_cuda_conv_plan(c, t, &tile[row], linear, &p)) {
        return (int)cudaErrorInvalidValue;
    }
    const int err = dr_cuda_conv_run(c, t, &p, x, w, e, y, workspace, cuda, &done);
    return err || done ? err : (int)cudaErrorNotSupported;
}

int dr_cuda_conv_fprop(const struct dr_conv *c, enum dr_type t, int way, const void *x,
                       const void *w, const struct dr_epilogue *e, void *y, void *workspace,
                       const struct dr_cuda *cuda) {
    const int i = way - DR_CONV_FIRST_TILE;
    return way == DR_CONV_GENERIC    ? dr_cuda_conv_generic(c, t, x, w, e, y, cuda)
           : way >= DR_CONV_F32_TILE ? dr_cuda_conv_f32(c, way - DR_CONV_F32_TILE, x, w, e, y, cuda)
                                     : run_row(c, t, i / 2, i % 2, x, w, e, y, workspace, cuda);
}

int dr_cuda_conv_pool(const struct dr_conv *c, enum dr_type t, int way, const void *x,
                      const void *w, const struct dr_epilogue *e, void *y,
                      const struct dr_cuda *cuda) {
    struct dr_conv_plan p;
    int rows;
    bool done;
    const struct dr_conv_tile *const tile = dr_cuda_conv_tiles(&rows);
    const int i = way - DR_CONV_FIRST_TILE;
    if (i < 0 || i / 2 >= rows || !dr_cuda_conv_plan(c, t, &tile[i / 2], i % 2, &p) ||
        !dr_cuda_conv_pools(c, t, &p, e->act) || e->add) {
        return (int)cudaErrorInvalidValue;
    }
    p.pool = true;
    const int err = dr_cuda_conv_run(c, t, &p, x, w, e, y, NULL, cuda, &done);
    return err || done ? err : (int)cudaErrorNotSupported;
}

int dr_cuda_conv_u8(const struct dr_conv *c, enum dr_type t, const void *x,
                    const struct dr_cuda_affine *u8, const void *w, const struct dr_epilogue *e,
                    void *y, const struct dr_cuda *cuda) {
    return can_run(90, x, w, e, y, cuda) ? dr_cuda_conv_small(c, t, x, u8, w, e, y, cuda)
                                         : (int)cudaErrorNotSupported;
}

int dr_cuda_conv_back(const struct dr_conv *c, enum dr_type t, int way, const void *dy,
                      const void *w, const struct dr_epilogue *e, void *dx, void *workspace,
                      const struct dr_cuda *cuda) {
    const struct dr_conv f = dr_cuda_conv_turned_shape(c);
    const int i = way - DR_CONV_FIRST_TILE;
    if (way == DR_CONV_GENERIC) {
        return dr_cuda_conv_transpose(c, t, dy, w, e, dx, cuda);
    }
    if (way >= DR_CONV_F32_TILE) {
        return dr_cuda_conv_f32_back(c, way - DR_CONV_F32_TILE, dy, w, e, dx, cuda);
    }
    const int err = dr_cuda_conv_turn(c, t, w, workspace, cuda->stream);
    void *const rest = (char *)workspace + dr_cuda_conv_turned_bytes(c, t);
    return err ? err : run_row(&f, t, i / 2, i % 2, dy, workspace, e, dx, rest, cuda);
}
