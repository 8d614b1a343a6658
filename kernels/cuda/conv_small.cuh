/* Private to conv_small.cu: its parameters, and how it brings rows of x and the filters into shared
 * memory. */
#ifndef DR_KERNELS_CUDA_CONV_SMALL_CUH
#define DR_KERNELS_CUDA_CONV_SMALL_CUH
#include "kernels/cuda/conv_hopper.cuh"
#include <type_traits>

namespace dr {
namespace {

constexpr int MULTIPLIERS = 3, FILLERS = 2; /* warpgroups */
constexpr int FILLER_WARPS = 4 * FILLERS, THREADS = 128 * (MULTIPLIERS + FILLERS);

__device__ __forceinline__ uint32_t operator/(uint32_t n, const dr_divisor &d) {
    int rest;
    return (uint32_t)divide((int)n, d, &rest);
}

struct small {
    const void *x, *filters;
    void *y;
    int h, w, c, k, kh, kw, sh, sw, pt, pl;
    dr_divisor ho, wo;
    dr_divisor span; /* rows of the buffer's numbering that an image takes: see row_of */
    int rows;        /* steps of rows that a window has: ceil(kh / stack) * parts */
    int stack;       /* rows of x in the slots of one pixel */
    int parts;       /* rows of the buffer for a row of x */
    int pitch;       /* bytes of a row of the buffer */
    int pixel;       /* bytes of a pixel of the buffer */
    int buffer;      /* bytes of a buffer */
    int stage;       /* bytes of a row of x that is staged */
    int blocks;      /* of 64 pixels, a tile */
    /* Tiles divide runs of so many pixels: all, or, so that no tile meets two images, an image's.
     */
    int run;
    dr_divisor run_tiles;
    int tiles, tiles_k;
    int words; /* of 4 bytes, in x */
    bool u8;   /* x holds bytes that stand for byte * mul[channel] + add[channel] */
    float mul[8], add[8];
    dr_epilogue e;
};

/* Rows are numbered through all images, so that a tile may reach from one into the next: the first
 * row of output row `o` = image * ho + oy. Images are span apart: their windows share no rows. */
__device__ __forceinline__ int row_of(const small &p, uint32_t o) {
    const uint32_t image = o / p.ho;
    return (int)image * p.span.d + (int)(o - image * p.ho.d) * p.sh;
}

/* A tile's pixels of y. */
struct range {
    uint32_t from, to;
};
__device__ __forceinline__ range pixels_of(const small &p, uint32_t tile) {
    const uint32_t run = tile / p.run_tiles;
    const uint32_t from = (tile - run * p.run_tiles.d) * (p.blocks * 64);
    return {run * p.run + from, run * p.run + min(from + p.blocks * 64, (uint32_t)p.run)};
}
/* The rows of the buffer that its windows meet. */
struct window_rows {
    int first, count; /* first: of the numbering */
};
__device__ __forceinline__ window_rows rows_of(const small &p, int tile) {
    const range pixels = pixels_of(p, tile);
    const int row = row_of(p, pixels.from / p.wo), last = row_of(p, (pixels.to - 1) / p.wo);
    return {row, (last - row + (p.rows / p.parts - 1) * p.stack + 1) * p.parts};
}

/* ---- shapes of the operands, by type ---- */

/* 16-bit types: 4 slots a pixel, 4 pixels a step. */
template <class T> struct form {
    static constexpr int STORE = 8; /* values of a 16-byte store */
    static constexpr int B_ROW = 8; /* values of 16 bytes of B */
    static constexpr int LANE = 8;  /* bytes from lane to lane of a quad */
    /* Which weight is value i of the 16 bytes that are half `half` of the depth of step (row, j);
     * -1: none. */
    static __device__ __forceinline__ int weight(const small &p, int row, int j, int half, int i) {
        const int kw = 4 * j + i / 2, slot = half * 2 + i % 2;
        const int part = p.parts == 2 ? row % 2 : 0;
        const int down = p.stack == 1 ? 0 : p.stack == 2 ? slot / 2 : slot;
        const int kh = p.stack == 1 ? (p.parts == 2 ? row / 2 : row) : row * p.stack + down;
        const int ch = p.stack == 1 ? part * 4 + slot : p.stack == 2 ? slot % 2 : 0;
        return kw < p.kw && kh < p.kh && ch < p.c ? (kh * p.kw + kw) * p.c + ch : -1;
    }
    static __device__ __forceinline__ void load(uint32_t (&a)[4], const uint8_t *lo,
                                                const uint8_t *hi) {
        const uint2 u = *reinterpret_cast<const uint2 *>(lo);
        const uint2 v = *reinterpret_cast<const uint2 *>(hi);
        a[0] = u.x, a[1] = v.x, a[2] = u.y, a[3] = v.y;
    }
    /* What is kept of a[0], a[1] (.x) and a[2], a[3] (.y): of a window's last row, where it stacks
     * rows of x, the rows inside; of a row's last step the pixels inside. */
    static __device__ __forceinline__ uint2 last_row(const small &p) {
        if (p.stack == 1) {
            return make_uint2(~0u, ~0u);
        }
        const int slots = (p.kh - (p.rows - 1) * p.stack) * p.c; /* 1 to 4 */
        return make_uint2(slots > 1 ? ~0u : 0xffffu, slots > 3 ? ~0u : slots > 2 ? 0xffffu : 0u);
    }
    static __device__ __forceinline__ uint2 last_step(const small &p, int j, int t) {
        const uint32_t m = 4 * j + t < p.kw ? ~0u : 0u;
        return make_uint2(m, m);
    }
};
/* tf32: values as they lie in x, 8 a step. */
template <> struct form<ptx::tf32> {
    static constexpr int STORE = 4, B_ROW = 4, LANE = 4;
    static __device__ __forceinline__ int weight(const small &p, int row, int j, int half, int i) {
        const int at = 8 * j + 4 * half + i;
        return at < p.kw * p.c ? row * p.kw * p.c + at : -1;
    }
    static __device__ __forceinline__ void load(uint32_t (&a)[4], const uint8_t *lo,
                                                const uint8_t *hi) {
        a[0] = *reinterpret_cast<const uint32_t *>(lo);
        a[1] = *reinterpret_cast<const uint32_t *>(hi);
        a[2] = *reinterpret_cast<const uint32_t *>(lo + 16);
        a[3] = *reinterpret_cast<const uint32_t *>(hi + 16);
    }
    static __device__ __forceinline__ uint2 last_row(const small &) {
        return make_uint2(~0u, ~0u);
    }
    static __device__ __forceinline__ uint2 last_step(const small &p, int j, int t) {
        return make_uint2(8 * j + t < p.kw * p.c ? ~0u : 0u, 8 * j + t + 4 < p.kw * p.c ? ~0u : 0u);
    }
};

__device__ __forceinline__ uint16_t rounded(uint16_t v) {
    return v;
}
__device__ __forceinline__ float rounded(float v) {
    return ptx::to_tf32(v);
}

/* The filter that column n of B is: a lane's columns 8j + 2t + i become neighbours in y. */
template <class T> __device__ __forceinline__ int filter_of(int n) {
    constexpr int V = form<T>::STORE, SET = 4 * V;
    return n / SET * SET + n % 8 / 2 * V + n % SET / 8 * 2 + n % 2;
}

/* B: [step][half of the step's depth][n][16 bytes], the layout without a swizzle. By the threads
 * that multiply, `thread` of them. */
template <class T, int N, int J>
__device__ void pack_filters(const small &p, const void *w, int k0, int thread, uint8_t *to) {
    using bits = std::conditional_t<std::is_same_v<T, ptx::tf32>, float, uint16_t>;
    constexpr int V = form<T>::B_ROW;
    const bits *const from = static_cast<const bits *>(w);
    const int size = p.kh * p.kw * p.c;
#pragma unroll 2
    for (int i = thread; i < p.rows * J * 2 * N; i += 128 * MULTIPLIERS) {
        const int n = i % N, half = i / N % 2, step = i / N / 2;
        const int k = k0 + filter_of<T>(n);
        alignas(16) bits v[V];
#pragma unroll
        for (int j = 0; j < V; j++) {
            const int at = form<T>::weight(p, step / J, step % J, half, j);
            v[j] = at >= 0 && k < p.k ? rounded(__ldg(from + (int64_t)k * size + at)) : bits(0);
        }
        reinterpret_cast<uint4 *>(to)[i] = *reinterpret_cast<uint4 *>(v);
    }
}

/* ---- filling ---- */

/* A row of the buffer: which row of x it shows. */
struct source {
    int image, y; /* y: of a stack, the first; outside of [0, h): zeros */
};
__device__ __forceinline__ source source_of(const small &p, int first, int row) {
    const uint32_t v = first + (p.parts == 2 ? row / 2 : row), image = v / p.span;
    return {(int)image, (int)(v - image * p.span.d) - p.pt};
}

/* BLOCKS times `lanes` places of a row at a time, the others idle: all are loaded before the first
 * is stored. load(place), also past the last place, gives what store(place, value) takes. */
template <int BLOCKS, class L, class S>
__device__ __forceinline__ void move_row(int places, int lanes, L load, S store) {
    const int lane = threadIdx.x % 32;
    if (lane >= lanes) {
        return;
    }
    for (int place = lane; place - lane < places; place += lanes * BLOCKS) {
        decltype(load(0)) v[BLOCKS];
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            v[b] = load(place + lanes * b);
        }
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            if (place + lanes * b < places) {
                store(place + lanes * b, v[b]);
            }
        }
    }
}

__device__ __forceinline__ void clear_row(int places, uint4 *to) {
    for (int place = threadIdx.x % 32; place < places; place += 32) {
        to[place] = make_uint4(0, 0, 0, 0);
    }
}

/* ---- what x holds: values of the type, or bytes, which become what normalize would store ---- */
/* Byte i of a word as a number: 2^23 + n has n in its low bits. */
__device__ __forceinline__ float number(uint32_t word, int i) {
    return __uint_as_float(__byte_perm(word, 0x4b000000, 0x7440 + i)) - 8388608.0f;
}
/* As normalize_kernel computes it. */
__device__ __forceinline__ float normalized(const small &p, uint32_t word, int i, int ch) {
    return __fmaf_rn(number(word, i), p.mul[ch], p.add[ch]);
}
/* A value of channel ch, as its 16 bits. */
template <class T>
__device__ __forceinline__ uint32_t value_at(const small &, const uint16_t *from, int) {
    return __ldg(from);
}
template <class T>
__device__ __forceinline__ uint32_t value_at(const small &p, const uint8_t *from, int ch) {
    return T::pack(normalized(p, __ldg(from), 0, ch), 0.0f);
}
/* Four values, from channel ch (0, 4) on. */
template <class T>
__device__ __forceinline__ uint2 four_at(const small &, const uint16_t *from, int) {
    return __ldg(reinterpret_cast<const uint2 *>(from));
}
template <class T>
__device__ __forceinline__ uint2 four_at(const small &p, const uint8_t *from, int ch) {
    const uint32_t v = __ldg(reinterpret_cast<const uint32_t *>(from));
    return make_uint2(T::pack(normalized(p, v, 0, ch), normalized(p, v, 1, ch + 1)),
                      T::pack(normalized(p, v, 2, ch + 2), normalized(p, v, 3, ch + 3)));
}

/* Four values of pixel (y, x): its slots of part `part`. What is outside of the image, and slots
 * without a channel, are 0. */
template <class T, class F>
__device__ __forceinline__ uint2 pixel_of(const small &p, const F *from, source at, int x,
                                          int part) {
    uint32_t v[4];
#pragma unroll
    for (int slot = 0; slot < 4; slot++) {
        const int y = at.y + (p.stack == 1 ? 0 : p.stack == 2 ? slot / 2 : slot);
        const int ch = p.stack == 1 ? part * 4 + slot : p.stack == 2 ? slot % 2 : 0;
        const bool inside = y >= 0 && y < p.h && x >= 0 && x < p.w && ch < p.c;
        const uint32_t index = ((uint32_t)(at.image * p.h + y) * p.w + x) * p.c + ch;
        v[slot] = inside ? value_at<T>(p, from + index, ch) : 0;
    }
    return make_uint2(v[0] | v[1] << 16, v[2] | v[3] << 16);
}
template <class T, class F>
__device__ __forceinline__ void fill_any(const small &p, const F *from, source at, int part,
                                         uint4 *to) {
    const auto load = [&](int place) {
        const uint2 a = pixel_of<T>(p, from, at, 2 * place - p.pl, part);
        const uint2 b = pixel_of<T>(p, from, at, 2 * place - p.pl + 1, part);
        return make_uint4(a.x, a.y, b.x, b.y);
    };
    move_row<1>(p.pitch / 16, 32, load, [&](int place, uint4 v) { to[place] = v; });
}

/* 4 or 8 channels: 4 values of a pixel are its slots. */
template <class T, class F>
__device__ __forceinline__ void fill_four(const small &p, const F *from, source at, int part,
                                          uint4 *to) {
    const bool row = at.y >= 0 && at.y < p.h;
    const F *const line =
        from + (((int64_t)at.image * p.h + (row ? at.y : 0)) * p.w - p.pl) * p.c + part * 4;
    const auto load = [&](int place) {
        const int x = 2 * place - p.pl;
        const F *const pixel = line + 2 * place * p.c;
        const uint2 none = make_uint2(0, 0);
        const uint2 a = row && (unsigned)x < (unsigned)p.w ? four_at<T>(p, pixel, part * 4) : none;
        const uint2 b =
            row && (unsigned)(x + 1) < (unsigned)p.w ? four_at<T>(p, pixel + p.c, part * 4) : none;
        return make_uint4(a.x, a.y, b.x, b.y);
    };
    move_row<2>(p.pitch / 16, 32, load, [&](int place, uint4 v) { to[place] = v; });
}

/* 3 channels of 16 bits: a warp's rows of x are copied in the background as they lie there, the
 * next one while it widens one. Two pixels are 12 bytes, in four words, from which they are
 * shifted; by how much is the same in all of a row. */
struct stager {
    const small &p;
    const uint32_t *x;
    uint8_t *stages;  /* this warp's */
    int step;         /* from tile to tile */
    int tile, row;    /* of the next row to copy */
    window_rows rows; /* of that tile */
    int at;           /* the stage of the row to widen next, of two */
    int begin;        /* where in it the row begins, in halves; -1: zeros */

    __device__ __forceinline__ stager(const small &small, const uint32_t *from, uint8_t *to,
                                      int first, int next)
        : p(small), x(from), step(next), tile(first), at(0) {
        row = threadIdx.x / 32;
        stages = to + row * 2 * p.stage;
        rows = rows_of(p, tile);
        begin = copy(stages);
    }
    /* Begins to copy the next row, if there is one. */
    __device__ __forceinline__ int copy(uint8_t *stage) {
        int place = -1;
        while (row >= rows.count && tile < p.tiles) {
            row = threadIdx.x / 32;
            tile += step;
            rows = rows_of(p, tile);
        }
        if (tile < p.tiles) {
            const source from = source_of(p, rows.first, row);
            row += FILLER_WARPS;
            if (from.y >= 0 && from.y < p.h) {
                const int half = ((from.image * p.h + from.y) * p.w - p.pl) * 3;
                const int first = half >> 1 & ~3; /* word of 4, 16 bytes */
                const uint32_t to = ptx::shared_address(stage);
                for (int i = threadIdx.x % 32; 16 * i < p.stage; i += 32) {
                    const int word = first + 4 * i, left = 4 * (p.words - word);
                    ptx::copy_async_part(to + 16 * i, x + word,
                                         word < 0 ? 0 : max(0, min(left, 16)));
                }
                place = half - 2 * first;
            }
        }
        ptx::copies_commit();
        return place;
    }
    __device__ __forceinline__ void widen(int half, const uint8_t *stage, uint4 *to) const {
        const int places = p.pitch / 16;
        if (half < 0) {
            clear_row(places, to);
            return;
        }
        const uint32_t shift = (half & 1) * 16;
        const uint32_t *const line = reinterpret_cast<const uint32_t *>(stage) + (half >> 1);
        const auto load = [&](int place) {
            const uint32_t *const v = line + 3 * min(place, places - 1);
            return make_uint4(v[0], v[1], v[2], v[3]);
        };
        const auto store = [&](int place, uint4 v) {
            const int left = 2 * place - p.pl;
            const uint32_t a = __funnelshift_r(v.x, v.y, shift);
            const uint32_t b = __funnelshift_r(v.y, v.z, shift);
            const uint32_t c = __funnelshift_r(v.z, v.w, shift);
            const bool in0 = (unsigned)left < (unsigned)p.w;
            const bool in1 = (unsigned)(left + 1) < (unsigned)p.w;
            to[place] = make_uint4(in0 ? a : 0, in0 ? b & 0xffff : 0,
                                   in1 ? __byte_perm(b, c, 0x5432) : 0, in1 ? c >> 16 : 0);
        };
        move_row<4>(places, 32, load, store);
    }
    /* This warp's rows of a tile, the one that follows those filled so far. */
    __device__ __forceinline__ void fill(window_rows tile_rows, uint8_t *to) {
        for (int i = threadIdx.x / 32; i < tile_rows.count; i += FILLER_WARPS) {
            ptx::copies_wait<0>();
            __syncwarp(); /* the row is there for all lanes, and they are done with the one before
                           */
            const int half = begin;
            begin = copy(stages + (at ^ 1) * p.stage);
            widen(half, stages + at * p.stage, reinterpret_cast<uint4 *>(to + i * p.pitch));
            at ^= 1;
        }
    }
};

/* 3 channels of bytes: 6 in three words, the last of which is wanted by the last shift alone.
 * Places of one lane are even or odd, 48 words apart. CHECK: near the borders of x, where words
 * before and after it count 0. */
template <class T, bool CHECK>
__device__ __forceinline__ void fill_three_bytes(const small &p, const uint32_t *from, source at,
                                                 uint4 *to) {
    const int odd = threadIdx.x % 2;
    const int begin = ((at.image * p.h + at.y) * p.w - p.pl) * 3 + 6 * odd, word = begin >> 2;
    const uint32_t shift = (begin & 3) * 8;
    const uint32_t *const line = ptx::kept(from + word);
    const auto load = [&](int place) {
        const bool any = (unsigned)(2 * place - p.pl + 1) <= (unsigned)p.w;
        const uint32_t first = (uint32_t)(place >> 1) * 3;
        const uint32_t *const words = ptx::kept(line + first);
        uint32_t v[3];
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const bool there = !CHECK || (uint32_t)(word + first + i) < (uint32_t)p.words;
            v[i] = any && there && (i < 2 || shift == 24) ? __ldg(words + i) : 0;
        }
        return make_uint3(v[0], v[1], v[2]);
    };
    const auto store = [&](int place, uint3 v) {
        const int x = 2 * place - p.pl;
        const uint32_t a = __funnelshift_r(v.x, v.y, shift), b = __funnelshift_r(v.y, v.z, shift);
        const bool in0 = (unsigned)x < (unsigned)p.w, in1 = (unsigned)(x + 1) < (unsigned)p.w;
        const uint32_t rg0 = T::pack(normalized(p, a, 0, 0), normalized(p, a, 1, 1));
        const uint32_t rg1 = T::pack(normalized(p, a, 3, 0), normalized(p, b, 0, 1));
        const uint32_t b0 = T::pack(normalized(p, a, 2, 2), 0.0f);
        const uint32_t b1 = T::pack(normalized(p, b, 1, 2), 0.0f);
        to[place] = make_uint4(in0 ? rg0 : 0, in0 ? b0 : 0, in1 ? rg1 : 0, in1 ? b1 : 0);
    };
    move_row<4>(p.pitch / 16, 32, load, store);
}

template <class T>
__device__ __forceinline__ void fill_three(const small &p, const uint8_t *from, source at,
                                           uint4 *to) {
    if (at.y < 0 || at.y >= p.h) {
        clear_row(p.pitch / 16, to);
        return;
    }
    const uint32_t *const words = reinterpret_cast<const uint32_t *>(from);
    const int begin = (at.image * p.h + at.y) * p.w * 3;
    if (begin < 8 || begin + p.w * 3 + 8 > p.words * 4) {
        fill_three_bytes<T, true>(p, words, at, to);
    } else {
        fill_three_bytes<T, false>(p, words, at, to);
    }
}

/* tf32: values as they follow each other in a row of x, in the background: so many are on their way
 * that nobody waits for one. (The products cut off what tf32 does not have.) */
__device__ __forceinline__ void fill_floats(const small &p, const float *from, source at,
                                            float *to) {
    const bool row = at.y >= 0 && at.y < p.h;
    const int left = p.pl * p.c, run = row ? p.w * p.c : 0, places = p.pitch / 4;
    const float *const line = from + ((int64_t)at.image * p.h + (row ? at.y : 0)) * run - left;
    const uint32_t first = ptx::shared_address(to);
#pragma unroll 4
    for (int place = threadIdx.x % 32; place < places; place += 32) {
        ptx::copy_async<4>(first + 4 * place, line, place,
                           (unsigned)(place - left) < (unsigned)run);
    }
}
/* The same of bytes. As many lanes work as are a multiple of the channels, so that each keeps its
 * channel from place to place. */
__device__ __forceinline__ void fill_bytes(const small &p, const uint8_t *from, source at,
                                           float *to) {
    const bool row = at.y >= 0 && at.y < p.h;
    const int left = p.pl * p.c, run = row ? p.w * p.c : 0;
    const int ch = threadIdx.x % 32 % p.c;
    const float mul = p.mul[ch], add = p.add[ch];
    const uint8_t *const line = from + ((int64_t)at.image * p.h + (row ? at.y : 0)) * run - left;
    const auto load = [&](int place) {
        const bool inside = (unsigned)(place - left) < (unsigned)run;
        return inside ? __fmaf_rn(number(__ldg(line + place), 0), mul, add) : 0.0f;
    };
    move_row<8>(p.pitch / 4, 32 / p.c * p.c, load, [&](int place, float v) { to[place] = v; });
}

/* A row of the buffer. */
__device__ __forceinline__ void fill_row(ptx::tf32, const small &p, const float *x, source at, int,
                                         uint8_t *to) {
    fill_floats(p, x, at, reinterpret_cast<float *>(to));
}
__device__ __forceinline__ void fill_row(ptx::tf32, const small &p, const uint8_t *x, source at,
                                         int, uint8_t *to) {
    fill_bytes(p, x, at, reinterpret_cast<float *>(to));
}
template <class T, class F>
__device__ __forceinline__ void fill_row(T, const small &p, const F *x, source at, int part,
                                         uint8_t *to) {
    uint4 *const line = reinterpret_cast<uint4 *>(to);
    if constexpr (sizeof(F) == 1) { /* halves: stager */
        if (p.c == 3) {
            fill_three<T>(p, x, at, line);
            return;
        }
    }
    if (p.c % 4 == 0) {
        fill_four<T>(p, x, at, part, line);
    } else {
        fill_any<T>(p, x, at, part, line);
    }
}

/* Rows first to first + count - 1 of the numbering, a warp a row. */
template <class T, class F>
__device__ __forceinline__ void fill_rows(const small &p, const F *x, int first, int count,
                                          uint8_t *to) {
    for (int row = threadIdx.x / 32; row < count; row += FILLER_WARPS) {
        fill_row(T(), p, x, source_of(p, first, row), p.parts == 2 ? row % 2 : 0,
                 to + row * p.pitch);
    }
}
template <class T>
__device__ __forceinline__ void fill(const small &p, const void *x, int first, int count,
                                     uint8_t *to) {
    using values = std::conditional_t<std::is_same_v<T, ptx::tf32>, float, uint16_t>;
    if (p.u8) {
        fill_rows<T>(p, static_cast<const uint8_t *>(x), first, count, to);
    } else {
        fill_rows<T>(p, static_cast<const values *>(x), first, count, to);
    }
}

} // namespace
} // namespace dr
#endif
