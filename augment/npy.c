/* .npy files: a parser of the header by hand, mapping, writing.
 *
 * The format is numpy.lib.format's (NEP 1): "\x93NUMPY", two version bytes, the header's length (16
 * bits in 1.0, 32 bits in 2.0 and 3.0), then a Python dict literal with exactly the keys 'descr',
 * 'fortran_order' and 'shape', then the items. Nothing that the file says is used before it was
 * compared with the file's size, and nothing is allocated. */
#include "augment/npy.h"
#include "graph/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct cursor {
    const unsigned char *p, *end;
    char *why;
    size_t why_n;
};

static bool refuse(struct cursor *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(struct cursor *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->why, c->why_n, fmt, ap);
    va_end(ap);
    return false;
}

static void skip_blanks(struct cursor *c) {
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
        c->p++;
}

/* Skips blanks, then takes `ch` if it is next. */
static bool take(struct cursor *c, char ch) {
    skip_blanks(c);
    if (c->p == c->end || *c->p != (unsigned char)ch)
        return false;
    c->p++;
    return true;
}

/* A quoted string without escapes, as numpy writes keys and types. */
static bool take_string(struct cursor *c, char *to, size_t to_n) {
    skip_blanks(c);
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"'))
        return false;
    const unsigned char quote = *c->p++;
    const unsigned char *from = c->p;
    while (c->p < c->end && *c->p != quote && *c->p >= ' ' && *c->p < 127 && *c->p != '\\')
        c->p++;
    const size_t n = (size_t)(c->p - from);
    if (c->p == c->end || *c->p != quote || n >= to_n)
        return false;
    memcpy(to, from, n);
    to[n] = '\0';
    c->p++;
    return true;
}

static bool parse_descr(struct cursor *c, struct dr_npy *out) {
    char s[32];
    skip_blanks(c);
    if (c->p < c->end && *c->p == '[')
        return refuse(c, "a structured dtype is not supported");
    if (!take_string(c, s, sizeof s))
        return refuse(c, "'descr' is not a dtype string");
    if (strchr(s, 'O'))
        return refuse(c, "dtype '%s' holds Python objects", s);
    const char order = s[0], kind = order ? s[1] : '\0';
    if (!strchr("<>|=", order) || !order || !kind)
        return refuse(c, "dtype '%s' is not supported", s);
    static const char *const known[] = {"u1", "u2", "u4", "u8", "i1", "i2",
                                        "i4", "i8", "f2", "f4", "f8", "b1"};
    out->item = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(s + 1, known[i]) == 0)
            out->item = (uint32_t)(known[i][1] - '0');
    if (!out->item)
        return refuse(c, "dtype '%s' is not supported", s);
    if (out->item > 1 && order == '>')
        return refuse(c, "dtype '%s' is big-endian; write it with .astype('<%s')", s, s + 1);
    if (out->item > 1 && order != '<')
        return refuse(c, "dtype '%s' does not say its byte order", s);
    out->kind = kind;
    return true;
}

static bool parse_order(struct cursor *c) {
    skip_blanks(c);
    const size_t left = (size_t)(c->end - c->p);
    if (left >= 5 && memcmp(c->p, "False", 5) == 0) {
        c->p += 5;
        return true;
    }
    if (left >= 4 && memcmp(c->p, "True", 4) == 0)
        return refuse(c, "it is in Fortran order; write it with np.ascontiguousarray");
    return refuse(c, "'fortran_order' is neither True nor False");
}

static bool parse_dim(struct cursor *c, int64_t *out) {
    skip_blanks(c);
    if (c->p < c->end && *c->p == '-')
        return refuse(c, "its shape has a negative dimension");
    if (c->p == c->end || *c->p < '0' || *c->p > '9')
        return refuse(c, "'shape' is not a tuple of integers");
    int64_t v = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++)
        if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
            __builtin_add_overflow(v, (int64_t)(*c->p - '0'), &v))
            return refuse(c, "its shape has a dimension over 2^63");
    if (c->p < c->end && *c->p == 'L') /* a long of Python 2 */
        c->p++;
    *out = v;
    return true;
}

static bool parse_shape(struct cursor *c, struct dr_npy *out) {
    out->rank = 0;
    if (!take(c, '('))
        return refuse(c, "'shape' is not a tuple of integers");
    bool comma = true;
    while (!take(c, ')')) {
        if (!comma)
            return refuse(c, "'shape' is not a tuple of integers");
        if (out->rank == DR_NPY_MAX_RANK)
            return refuse(c, "its shape has more than %d dimensions", DR_NPY_MAX_RANK);
        if (!parse_dim(c, &out->dim[out->rank]))
            return false;
        out->rank++;
        comma = take(c, ',');
    }
    if (out->rank == 1 && !comma) /* Python reads (5) as a number */
        return refuse(c, "'shape' is not a tuple of integers");
    return true;
}

/* The dict: three keys in any order, each once. */
static bool parse_dict(struct cursor *c, struct dr_npy *out) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    bool seen[3] = {false, false, false}, comma = true;
    if (!take(c, '{'))
        return refuse(c, "its header is not a Python dict");
    while (!take(c, '}')) {
        char key[32];
        if (!comma || !take_string(c, key, sizeof key) || !take(c, ':'))
            return refuse(c, "its header is not a Python dict");
        int k = 0;
        while (k < 3 && strcmp(key, keys[k]) != 0)
            k++;
        if (k == 3)
            return refuse(c, "its header has an unknown key '%s'", key);
        if (seen[k])
            return refuse(c, "its header has the key '%s' twice", key);
        seen[k] = true;
        if (!(k == 0 ? parse_descr(c, out) : k == 1 ? parse_order(c) : parse_shape(c, out)))
            return false;
        comma = take(c, ',');
    }
    skip_blanks(c);
    if (c->p != c->end)
        return refuse(c, "its header goes on after the dict");
    for (int k = 0; k < 3; k++)
        if (!seen[k])
            return refuse(c, "its header has no '%s'", keys[k]);
    return true;
}

/* Bytes of the items by the shape; a zero dimension does not hide an overflow of the others. */
static bool shape_bytes(struct cursor *c, const struct dr_npy *npy, uint64_t *out) {
    uint64_t n = npy->item;
    bool empty = false;
    for (uint32_t i = 0; i < npy->rank; i++) {
        if (npy->dim[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(n, (uint64_t)npy->dim[i], &n))
            return refuse(c, "its shape has more than 2^64 bytes");
    }
    *out = empty ? 0 : n;
    return true;
}

bool dr_npy_parse(const void *file, size_t n, struct dr_npy *out, char *why, size_t why_n) {
    const unsigned char *f = file;
    struct cursor c = {f, f, why, why_n};
    memset(out, 0, sizeof *out);
    if (n < 10 || memcmp(f, "\x93NUMPY", 6) != 0)
        return refuse(&c, n ? "it is not an npy file" : "the file is empty");
    if (f[6] < 1 || f[6] > 3 || f[7] != 0)
        return refuse(&c, "npy version %d.%d is not supported", f[6], f[7]);
    const size_t start = f[6] == 1 ? 10 : 12;
    if (n < start)
        return refuse(&c, "the file ends inside its header");
    size_t length = (size_t)f[8] | (size_t)f[9] << 8;
    if (f[6] > 1)
        length |= (size_t)f[10] << 16 | (size_t)f[11] << 24;
    if (length > n - start)
        return refuse(&c, "its header says %zu bytes, the file has %zu left", length, n - start);
    c.p = f + start;
    c.end = c.p + length;
    if (!parse_dict(&c, out))
        return false;
    uint64_t want = 0;
    if (!shape_bytes(&c, out, &want))
        return false;
    const uint64_t have = n - start - length;
    if (have < want)
        return refuse(&c, "the file is truncated: its shape needs %llu bytes of data, it has %llu",
                      (unsigned long long)want, (unsigned long long)have);
    if (have > want)
        return refuse(&c, "%llu bytes follow the %llu bytes of its shape",
                      (unsigned long long)(have - want), (unsigned long long)want);
    out->data = f + start + length;
    return true;
}

bool dr_npy_open(const char *path, struct dr_npy *out, char *why, size_t why_n) {
    memset(out, 0, sizeof *out);
    size_t n;
    void *map = dr_file_map(path, &n, why, why_n);
    if (!map)
        return false;
    if (!dr_npy_parse(map, n, out, why, why_n)) {
        munmap(map, n);
        memset(out, 0, sizeof *out);
        return false;
    }
    out->map = map;
    out->map_bytes = n;
    return true;
}

void dr_npy_close(struct dr_npy *npy) {
    if (npy->map)
        munmap(npy->map, npy->map_bytes);
    free(npy->own);
    memset(npy, 0, sizeof *npy);
}

size_t dr_npy_header(char *head, const char *descr, const int64_t *dim, uint32_t rank) {
    enum { ROOM = 512 };
    DR_ASSERT(rank <= DR_NPY_MAX_RANK && strlen(descr) < 16);
    memcpy(head, "\x93NUMPY\x01", 8); /* version 1.0 */
    int n = 10 + snprintf(head + 10, ROOM - 10,
                          "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (uint32_t i = 0; i < rank; i++)
        n += snprintf(head + n, ROOM - (size_t)n, rank == 1 || i + 1 < rank ? "%lld, " : "%lld",
                      (long long)dim[i]);
    n += snprintf(head + n, ROOM - (size_t)n, "), }");
    while ((n + 1) % 64 != 0) /* data is aligned to 64 bytes, as numpy does it */
        head[n++] = ' ';
    head[n++] = '\n';
    head[8] = (char)((n - 10) & 255);
    head[9] = (char)((n - 10) >> 8);
    return (size_t)n;
}

int dr_npy_write(const char *path, const char *descr, const int64_t *dim, uint32_t rank,
                 const void *data, size_t bytes) {
    char head[512];
    const size_t n = dr_npy_header(head, descr, dim, rank);
    struct dr_file *f;
    int error = dr_file_create(&f, path);
    if (error)
        return error;
    error = dr_file_write(f, head, n);
    error = error || !bytes ? error : dr_file_write(f, data, bytes);
    if (!error)
        return dr_file_commit(f);
    dr_file_drop(f);
    return error;
}
