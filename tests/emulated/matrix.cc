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

/* Calls f(bytes of shared memory, bytes of the tensor or NULL) for every 16 bytes of a box. */
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
        for (int b = 0; b < bytes; b += m.bytes) {
            const int64_t c = at[0] + b / m.bytes;
            f(shared_at(swizzled(shared + (uint32_t)(row * bytes + b) / 16 * 16) + b % 16),
              inside && c >= 0 && c < m.size[0] ? line + c * m.bytes : NULL);
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

float value(type t, const char *at) {
    if (t == F16) {
        __half h;
        memcpy(&h, at, 2);
        return __half2float(h);
    }
    uint32_t v = 0;
    if (t == BF16) {
        uint16_t h;
        memcpy(&h, at, 2);
        v = (uint32_t)h << 16;
    } else {
        memcpy(&v, at, 4);
        v &= ~0x1fffu; /* what tf32 does not have is not read */
    }
    float f;
    memcpy(&f, &v, 4);
    return f;
}
int bytes_of(type t) {
    return t == TF32 ? 4 : 2;
}
/* Rows g and g + 8 of a, where lane (g, t) holds them in four registers; k: how many a row has. */
void unpack_rows(type t, const uint32_t *a, int lane, float *rows, int k) {
    const int g = lane / 4, at = lane % 4, size = bytes_of(t), each = 4 / size;
    for (int r = 0; r < 4; r++) {
        for (int i = 0; i < each; i++) {
            rows[(g + r % 2 * 8) * k + r / 2 * (k / 2) + at * each + i] =
                value(t, (const char *)&a[r] + i * size);
        }
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
        for (int i = 0; i < k; i++) {
            const uint32_t b = (uint32_t)(i * size), group = (uint32_t)(r / 8) * stride;
            const uint32_t at =
                swizzle ? swizzled(start + group + (uint32_t)(r % 8) * 128 + b / 16 * 16)
                        : start + group + b / 16 * leading + (uint32_t)(r % 8) * 16;
            to[r * k + i] = value(t, shared_at(at + b % 16));
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
        for_box(map, to, c, [&](char *here, const char *there) {
            there ? memcpy(here, there, (size_t)map.bytes) : memset(here, 0, (size_t)map.bytes);
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
        for_box(map, from, c, [&](const char *here, char *there) {
            if (there) {
                memcpy(there, here, (size_t)map.bytes);
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
        const int size = bytes_of(t), k = 32 / size, each = 4 / size;
        float rows[16 * 16], columns[8 * 16];
        for (int i = 0; i < 32; i++) {
            unpack_rows(t, of[w][i].a, i, rows, k);
            for (int r = 0; r < 2; r++) {
                for (int j = 0; j < each; j++) {
                    columns[i / 4 * k + r * (k / 2) + i % 4 * each + j] =
                        value(t, (const char *)&of[w][i].b[r] + j * size);
                }
            }
        }
        for (int i = 0; i < 32; i++) {
            for (int j = 0; j < 4; j++) {
                const int row = i / 4 + j / 2 * 8, column = i % 4 * 2 + j % 2;
                float sum = 0.0f;
                for (int at = 0; at < k; at++) {
                    sum += rows[row * k + at] * columns[column * k + at];
                }
                of[w][i].d[j] += sum;
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
            std::vector<float> rows((size_t)(64 * k)), columns((size_t)(n * k));
            if (a) {
                for (int i = 0; i < 128; i++) {
                    unpack_rows(t, own->a[i], i % 32, rows.data() + i / 32 * 16 * k, k);
                }
            } else {
                read_rows(t, a_at, 64, rows.data());
            }
            read_rows(t, b_at, n, columns.data());
            for (int i = 0; i < 128; i++) {
                for (int j = 0; j < n / 2; j++) {
                    const int row = i / 32 * 16 + i % 32 / 4 + j % 4 / 2 * 8;
                    const int column = j / 4 * 8 + i % 4 * 2 + j % 2;
                    float sum = 0.0f;
                    for (int at = 0; at < k; at++) {
                        sum += rows[(size_t)(row * k + at)] * columns[(size_t)(column * k + at)];
                    }
                    own->d[i][j] = keep ? own->d[i][j] + sum : sum;
                }
            }
        });
    });
}
} // namespace emulated
