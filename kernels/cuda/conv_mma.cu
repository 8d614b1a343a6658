/* What conv_mma.cuh leaves to the host: the box of output pixels of a block, the patch under it,
 * how much of it at a time; and the kernels that the library holds. */
#include "kernels/cuda/conv_mma.cuh"

#include <algorithm>
#include <numeric>

namespace dr {
namespace {

/* The taps along one axis, seen from the patch. */
struct axis {
    int step;   /* source steps between neighbours in the patch */
    int stride; /* patch steps between outputs */
    int reach;  /* patch steps from a window's first tap to its last */
};
axis axis_of(const taps &t, int stride) {
    if (t.n == 0) {
        return {1, 1, 0};
    }
    int step = stride;
    for (int i = 0; i < t.n; i++) {
        step = std::gcd(step, t.at[i] - t.low);
    }
    return {step, stride / step, (t.high - t.low) / step};
}

/* The box whose patches and wasted pixels cost least. Multiplying a tap for a pixel takes as long
 * as bringing in 32 / tk of a pixel; patches of more than `most` pixels do not fit. */
struct box {
    int tn, th, tw;
};
bool best_box(const corr &c, const axis &ay, const axis &ax, int taps, int tm, int tk, int most,
              box *best) {
    int64_t least = INT64_MAX;
    for (int parts = (c.wo + tm - 1) / tm, tried = 0; parts <= c.wo && tried < 24; tried++) {
        const int tw = (c.wo + parts - 1) / parts;
        int rows = (c.ho + tm / tw - 1) / (tm / tw);
        for (int more = 0; more < 5 && rows <= c.ho; more++) {
            const int th = (c.ho + rows - 1) / rows, tn = std::min(c.n, tm / (tw * th));
            const int64_t pixels = (int64_t)tn * ((int64_t)(th - 1) * ay.stride + ay.reach + 1) *
                                   ((int64_t)(tw - 1) * ax.stride + ax.reach + 1);
            const int64_t blocks =
                (int64_t)((c.n + tn - 1) / tn) * ((c.ho + th - 1) / th) * ((c.wo + tw - 1) / tw);
            const int64_t cost = blocks * ((int64_t)taps * tm * tk / 32 + pixels);
            if (pixels <= most && cost < least) {
                least = cost;
                *best = {tn, th, tw};
            }
            rows = th == 1 ? c.ho + 1 : more == 3 ? c.ho : (c.ho + th - 2) / (th - 1);
        }
        parts = tw > 1 ? (c.wo + tw - 2) / (tw - 1) : c.wo + 1;
    }
    return least != INT64_MAX;
}

/* Source, weights and outputs of p as c has them. */
void copy_shape(const corr &c, mma_args *p) {
    p->n = c.n, p->h = c.h, p->w = c.w, p->c = c.c;
    p->c_total = c.c_total, p->k_total = c.k_total;
    p->k = c.k, p->ho = c.ho, p->wo = c.wo, p->groups = c.groups;
    p->w_group = c.w_group, p->w_k = c.w_k, p->w_c = c.w_c;
    p->e = c.e;
    p->oy_first = c.oy_first, p->ox_first = c.ox_first;
    p->oy_step = c.oy_step, p->ox_step = c.ox_step;
    p->out_h = c.out_h, p->out_w = c.out_w;
}

/* What can be moved 16 bytes (v elements) at a time. */
void copy_widths(const corr &c, int v, bool turned, const void *x, const void *w, const void *y,
                 mma_args *p) {
    const auto aligned = [](const void *q) { return (uintptr_t)q % 16 == 0; };
    const bool taps = c.w_kh % v == 0 && c.w_kw % v == 0 && c.w_group % v == 0;
    p->copy_x = aligned(x) && c.c % v == 0 && c.c_total % v == 0;
    p->copy_w = aligned(w) && taps && !p->merged &&
                (turned ? c.w_k == 1 && c.k % v == 0 && c.w_c % v == 0
                        : c.w_c == 1 && c.c % v == 0 && c.w_k % v == 0);
    p->wide_y = aligned(y) && aligned(c.e.add) && c.k % v == 0 && c.k_total % v == 0;
}

void place_box(const corr &c, const box &b, const axis &ay, const axis &ax, mma_args *p) {
    p->tn = b.tn, p->th = b.th, p->tw = b.tw;
    p->tiles_n = (c.n + b.tn - 1) / b.tn;
    p->tiles_y = (c.ho + b.th - 1) / b.th;
    p->tiles_x = (c.wo + b.tw - 1) / b.tw;
    p->ph = (b.th - 1) * ay.stride + ay.reach + 1;
    p->pw = (b.tw - 1) * ax.stride + ax.reach + 1;
    p->pixels = b.tn * p->ph * p->pw;
    p->first_y = p->merged || !c.ty.n ? 0 : c.ty.low;
    p->first_x = c.tx.n ? c.tx.low : 0;
    p->step_y = ay.step, p->step_x = ax.step;
    p->patch_sy = ay.stride, p->patch_sx = ax.stride;
    p->source_sy = c.sh, p->source_sx = c.sw;
    for (int i = 0; i < c.tx.n; i++) {
        const int at = (c.tx.at[i] - c.tx.low) / ax.step;
        p->x[i] = {at, at / ax.stride, c.tx.weight[i] * c.w_kw};
    }
    for (int i = 0; i < c.ty.n; i++) {
        const int at = p->merged ? c.ty.at[i] : (c.ty.at[i] - c.ty.low) / ay.step;
        p->y[i] = {p->merged ? at : at * p->pw, p->merged ? 0 : b.tw * (at / ay.stride),
                   c.ty.weight[i] * c.w_kh};
    }
}

/* Chunks of values that take at most 2^log bytes, and the taps of an iteration. */
void cut(int log, int bytes_of_type, mma_args *p) {
    const int step = 32 / bytes_of_type, most = (1 << log) / bytes_of_type;
    p->chunks = (p->values + most - 1) / most;
    p->chunk = ((p->values + p->chunks - 1) / p->chunks + step - 1) / step * step;
    p->chunks = (p->values + p->chunk - 1) / p->chunk;
    for (p->pitch_log = 5; p->chunk * bytes_of_type > 1 << p->pitch_log;) {
        p->pitch_log++;
    }
    const int taps = p->nx * p->ny;
    p->group_taps = std::max(1, std::min(taps, 128 >> p->pitch_log));
    p->groups_of_taps = (taps + p->group_taps - 1) / p->group_taps;
}

size_t shared_bytes(const mma_args &p, int tm, int tk) {
    const size_t stage = (size_t)tm * (tk + 8) * sizeof(float);
    const size_t buffers = (size_t)p.patches * p.patch_bytes + (size_t)p.stages * p.slab_bytes;
    return mma_tables(p, tm) + std::max(stage, buffers);
}

} // namespace

size_t mma_plan(const corr &c, int bytes_of_type, bool turned, int tm, int tk, int stages,
                const void *x, const void *w, const void *y, mma_args *p) {
    const int v = 16 / bytes_of_type;
    copy_shape(c, p);
    p->merged = c.c % v != 0 && c.c < 2 * v && c.ty.n > 1 && c.ty.n * c.c <= MMA_RUNS ? c.ty.n : 0;
    p->values = p->merged ? p->merged * c.c : c.c;
    p->nx = c.tx.n, p->ny = p->merged ? 1 : c.ty.n;
    copy_widths(c, v, turned, x, w, y, p);
    const axis ay = p->merged ? axis{c.sh, 1, 0} : axis_of(c.ty, c.sh), ax = axis_of(c.tx, c.sw);
    /* at the least two patches and two slabs of 32 bytes a pixel and a filter, and the tables */
    const int most = (int)((MMA_SHARED - 1024 * 5 - (size_t)tk * 256) / (64 + sizeof(mma_spot)));
    box b;
    if (!best_box(c, ay, ax, p->nx * p->ny, tm, tk, most, &b) ||
        (int64_t)b.tn * c.h * c.w > INT32_MAX || (int64_t)c.ho * c.sh > 1 << 27 || c.h > 1 << 27) {
        return 0; /* mma_spot holds the pixel of a box's images, and a row, in an int */
    }
    place_box(c, b, ay, ax, p);
    for (int log = 7; log >= 5; log--) {
        cut(log, bytes_of_type, p);
        p->patch_bytes = (uint32_t)p->pixels << p->pitch_log;
        p->slab_bytes = (uint32_t)(tk * p->group_taps) << p->pitch_log;
        for (p->stages = stages; p->stages >= std::min(stages, 2); p->stages--) {
            const int live =
                p->groups_of_taps ? (p->stages - 2 + p->groups_of_taps) / p->groups_of_taps + 1 : 1;
            p->patches = std::min(p->chunks, live);
            const size_t bytes = shared_bytes(*p, tm, tk);
            if (bytes <= MMA_SHARED) {
                return bytes;
            }
        }
    }
    return 0;
}

namespace {
/* Few filters, more pixels: the threads are always 256. Where tiles of 128 x 128 would be fewer
 * than a card has multiprocessors or not many more, those of 128 x 64. */
template <class Op, bool TURNED>
int launch(const corr &c, const void *x, const void *w, void *y, bool *fits, cudaStream_t s) {
    const int64_t pixels = (int64_t)c.n * c.ho * c.wo;
    const int64_t tiles = (pixels + 127) / 128 * ((c.k + 127) / 128) * c.groups;
    return c.k <= 32     ? mma_launch<Op, TURNED, 1, 2, true, true>(c, x, w, y, fits, s)
           : tiles < 160 ? mma_launch<Op, TURNED, 2, 2, true, true>(c, x, w, y, fits, s)
           : c.k <= 64   ? mma_launch<Op, TURNED, 2, 4, true, true>(c, x, w, y, fits, s)
                         : mma_launch<Op, TURNED, 4, 4, true, true>(c, x, w, y, fits, s);
}
template <class Op>
int launch(const corr &c, const void *x, const void *w, void *y, bool *fits, cudaStream_t s) {
    return c.w_c == 1 ? launch<Op, false>(c, x, w, y, fits, s)
                      : launch<Op, true>(c, x, w, y, fits, s);
}
} // namespace

int corr_mma(const corr &c, enum dr_type t, const void *x, const void *w, void *y, bool *fits,
             cudaStream_t s) {
    return t == DR_TYPE_F32   ? launch<dr_op_tf32>(c, x, w, y, fits, s)
           : t == DR_TYPE_F16 ? launch<dr_op_f16>(c, x, w, y, fits, s)
                              : launch<dr_op_bf16>(c, x, w, y, fits, s);
}

} // namespace dr
