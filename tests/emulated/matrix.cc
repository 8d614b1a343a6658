#include "tests/emulated/matrix.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <memory>
#include <string.h>
#include <vector>

namespace emulated {
namespace {

constexpr int WARPS = 32;

char *shared_at(uint32_t address) {
    return (char *)(uintptr_t)address;
}
uint32_t swizzled(uint32_t address) {
    return address ^ (address >> 7 & 7) << 4;
}

/* Calls f(where in shared memory, where in the tensor or NULL, bytes) for all of a box. */
template <class F> void for_box(const tensor_map &m, uint32_t shared, std::array<int, 5> at, F f) {
    int64_t rows = 1;
    for (int i = 1; i < m.rank; i++) {
        rows *= m.box[i];
    }
    const int bytes = m.box[0] * m.bytes;
    for (int64_t row = 0; row < rows; row++) {
        int64_t rest = row;
        char *line = m.base;
        bool inside = true;
        for (int i = 1; i < m.rank; i++) {
            const int64_t c = at[(size_t)i] + rest % m.box[i];
            rest /= m.box[i];
            inside &= c >= 0 && c < m.size[i];
            line += c * m.stride[i];
        }
        for (int b = 0; b < bytes; b += 16) {
            char *const here = shared_at(swizzled(shared + (uint32_t)(row * bytes + b)));
            for (int i = 0; i < 16; i += m.bytes) {
                const int64_t c = at[0] + (b + i) / m.bytes;
                if (inside && i == 0 && c >= 0 && c + 16 / m.bytes <= m.size[0]) {
                    f(here, line + c * m.bytes, 16);
                    break;
                }
                f(here + i, inside && c >= 0 && c < m.size[0] ? line + c * m.bytes : NULL,
                  (size_t)m.bytes);
            }
        }
    }
}
int64_t box_bytes(const tensor_map &m) {
    int64_t n = m.bytes;
    for (int i = 0; i < m.rank; i++) {
        n *= m.box[i];
    }
    return n;
}
std::array<int, 5> coordinates(const tensor_map &m, std::initializer_list<int> at) {
    std::array<int, 5> c = {};
    if ((int)at.size() != m.rank) {
        fault("a box of another rank than its map");
    }
    std::copy(at.begin(), at.end(), c.begin());
    return c;
}

/* All 65536 halves as floats. */
const float *halves() {
    static const std::vector<float> table = [] {
        std::vector<float> all(1 << 16);
        for (uint32_t i = 0; i < 1 << 16; i++) {
            __half_raw h;
            h.x = (unsigned short)i;
            all[i] = __half2float(h);
        }
        return all;
    }();
    return table.data();
}
/* n values that lie one after the other. */
void values(type t, const char *at, int n, float *to) {
    uint16_t half;
    uint32_t v;
    if (t == F16) {
        const float *const table = halves();
        for (int i = 0; i < n; i++) {
            memcpy(&half, at + 2 * i, 2);
            to[i] = table[half];
        }
        return;
    }
    for (int i = 0; i < n; i++) {
        if (t == BF16) {
            memcpy(&half, at + 2 * i, 2);
            v = (uint32_t)half << 16;
        } else {
            memcpy(&v, at + 4 * i, 4);
            v &= ~0x1fffu; /* what tf32 does not have is not read */
        }
        memcpy(&to[i], &v, 4);
    }
}
int bytes_of(type t) {
    return t == TF32 ? 4 : 2;
}
/* Rows g and g + 8 of a, where lane (g, t) holds them in four registers; k: how many a row has. */
void unpack_rows(type t, const uint32_t *a, int lane, float *rows, int k) {
    const int g = lane / 4, at = lane % 4, each = 4 / bytes_of(t);
    for (int r = 0; r < 4; r++) {
        values(t, (const char *)&a[r], each,
               &rows[(g + r % 2 * 8) * k + r / 2 * (k / 2) + at * each]);
    }
}

/* `rows` rows of 32 bytes in shared memory, by a descriptor: K-major, under the 128-byte swizzle or
 * none. The addresses it holds have 18 bits. */
void read_rows(type t, uint64_t descriptor, int rows, float *to) {
    const uint32_t window = (uint32_t)(uintptr_t)shared() & ~0x3ffffu;
    const uint32_t start = window | (uint32_t)(descriptor & 0x3fff) << 4;
    const uint32_t leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4;
    const uint32_t stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4;
    const int swizzle = (int)(descriptor >> 62), size = bytes_of(t), k = 32 / size;
    if (swizzle > 1 || (descriptor >> 49 & 7) != 0) {
        fault("a descriptor of a layout that is not emulated");
    }
    for (int r = 0; r < rows; r++) {
        for (uint32_t unit = 0; unit < 2; unit++) {
            const uint32_t group = (uint32_t)(r / 8) * stride;
            const uint32_t at = swizzle
                                    ? swizzled(start + group + (uint32_t)(r % 8) * 128 + unit * 16)
                                    : start + group + unit * leading + (uint32_t)(r % 8) * 16;
            values(t, shared_at(at), k / 2, to + r * k + (int)unit * (k / 2));
        }
    }
}
/* sums[row][column] = rows[row] columns[column] over k, n columns: what a row needs lies so that a
 * CPU takes several columns at once. */
void multiply(const float *rows, int m, const float *columns, int n, int k, float *sums) {
    float turned[256 * 16];
    for (int i = 0; i < n; i++) {
        for (int at = 0; at < k; at++) {
            turned[at * n + i] = columns[i * k + at];
        }
    }
    for (int row = 0; row < m; row++) {
        float *const to = sums + row * n;
        memset(to, 0, (size_t)n * sizeof *to);
        for (int at = 0; at < k; at++) {
            const float a = rows[row * k + at];
            const float *const b = turned + at * n;
            for (int i = 0; i < n; i++) {
                to[i] += a * b[i];
            }
        }
    }
}
} // namespace

void load_box(uint32_t to, const CUtensorMap *m, uint32_t bar, std::initializer_list<int> at) {
    tensor_map map;
    memcpy(&map, m, sizeof map);
    const std::array<int, 5> c = coordinates(map, at);
    if (to % 128) {
        fault("a box at an address that is no multiple of 128");
    }
    some_time([=] {
        for_box(map, to, c, [](char *here, const char *there, size_t n) {
            there ? memcpy(here, there, n) : memset(here, 0, n);
        });
        barrier_complete(bar, (uint32_t)box_bytes(map));
    });
}
void store_box(const CUtensorMap *m, uint32_t from, std::initializer_list<int> at) {
    tensor_map map;
    memcpy(&map, m, sizeof map);
    const std::array<int, 5> c = coordinates(map, at);
    if (from % 128) {
        fault("a box at an address that is no multiple of 128");
    }
    defer(STORES, [=] {
        for_box(map, from, c, [](const char *here, char *there, size_t n) {
            if (there) {
                memcpy(there, here, n);
            }
        });
    });
}

void load_matrices(std::array<uint32_t *, 4> to, uint32_t row, bool turned) {
    static uint32_t rows[WARPS][32];
    static std::array<uint32_t *, 4> results[WARPS][32];
    const int w = thread() / 32;
    if (row % 16) {
        fault("a row of a matrix that is not 16-byte aligned");
    }
    rows[w][lane()] = row, results[w][lane()] = to;
    together(32, [=] {
        for (int i = 0; i < 32; i++) {
            const int g = i / 4, t = i % 4;
            uint32_t v[4];
            for (int m = 0; m < 4; m++) {
                const uint32_t *const of = rows[w] + 8 * m;
                if (!turned) {
                    memcpy(&v[m], shared_at(of[g]) + 4 * t, 4);
                    continue;
                }
                uint16_t pair[2];
                memcpy(&pair[0], shared_at(of[2 * t]) + 2 * g, 2);
                memcpy(&pair[1], shared_at(of[2 * t + 1]) + 2 * g, 2);
                memcpy(&v[m], pair, 4);
            }
            for (int m = 0; m < 4; m++) {
                *results[w][i][(size_t)m] = v[m];
            }
        }
    });
}
void store_matrices_turned(uint32_t row, const uint32_t *from) {
    static uint32_t rows[WARPS][32], values[WARPS][32][4];
    const int w = thread() / 32;
    if (row % 16) {
        fault("a row of a matrix that is not 16-byte aligned");
    }
    rows[w][lane()] = row;
    memcpy(values[w][lane()], from, 16);
    together(32, [=] {
        for (int i = 0; i < 32; i++) {
            for (int m = 0; m < 4; m++) {
                uint16_t pair[2];
                memcpy(pair, &values[w][i][m], 4);
                memcpy(shared_at(rows[w][8 * m + i % 4 * 2]) + 2 * (i / 4), &pair[0], 2);
                memcpy(shared_at(rows[w][8 * m + i % 4 * 2 + 1]) + 2 * (i / 4), &pair[1], 2);
            }
        }
    });
}

void product_of_warp(type t, float *d, const uint32_t *a, const uint32_t *b) {
    struct operands {
        float *d;
        uint32_t a[4], b[2];
    };
    static operands of[WARPS][32];
    const int w = thread() / 32;
    operands &mine = of[w][lane()];
    mine.d = d;
    memcpy(mine.a, a, sizeof mine.a);
    memcpy(mine.b, b, sizeof mine.b);
    together(32, [=] {
        const int k = 32 / bytes_of(t), each = 4 / bytes_of(t);
        float rows[16 * 16], columns[8 * 16], sums[16 * 8];
        for (int i = 0; i < 32; i++) {
            unpack_rows(t, of[w][i].a, i, rows, k);
            for (int r = 0; r < 2; r++) {
                values(t, (const char *)&of[w][i].b[r], each,
                       &columns[i / 4 * k + r * (k / 2) + i % 4 * each]);
            }
        }
        multiply(rows, 16, columns, 8, k, sums);
        for (int i = 0; i < 32; i++) {
            for (int j = 0; j < 4; j++) {
                of[w][i].d[j] += sums[(i / 4 + j / 2 * 8) * 8 + i % 4 * 2 + j % 2];
            }
        }
    });
}

void product_of_warpgroup(type t, int n, float *d, const uint32_t *a, uint64_t a_at, uint64_t b_at,
                          bool keep) {
    struct operands {
        float *d[128];
        uint32_t a[128][4];
    };
    static operands all[WARPS / 4];
    const int group = thread() / 128, mine = thread() % 128;
    operands &of = all[group];
    of.d[mine] = d;
    if (a) {
        memcpy(of.a[mine], a, 16);
    }
    together(128, [=] {
        const std::shared_ptr<operands> own = std::make_shared<operands>(all[group]);
        defer(PRODUCTS, [=] {
            const int k = 32 / bytes_of(t);
            float rows[64 * 16], columns[256 * 16], sums[64 * 256];
            if (a) {
                for (int i = 0; i < 128; i++) {
                    unpack_rows(t, own->a[i], i % 32, rows + i / 32 * 16 * k, k);
                }
            } else {
                read_rows(t, a_at, 64, rows);
            }
            read_rows(t, b_at, n, columns);
            multiply(rows, 64, columns, n, k, sums);
            for (int i = 0; i < 128; i++) {
                float *const to = own->d[i];
                for (int j = 0; j < n / 2; j++) {
                    const int row = i / 32 * 16 + i % 32 / 4 + j % 4 / 2 * 8;
                    const float sum = sums[row * n + j / 4 * 8 + i % 4 * 2 + j % 2];
                    to[j] = keep ? to[j] + sum : sum;
                }
            }
        });
    });
}
} // namespace emulated
