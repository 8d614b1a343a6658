/* Reading IDX files. See idx.h. */
#include "augment/idx.h"
#include "augment/why.h"
#include "graph/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

/* ---- the header ---- */

enum { MOST_HEADER = 4 + 4 * DR_NPY_MAX_RANK };

/* `n`: bytes that are there. *start: of the header; *bytes: of the items. */
static bool parse_header(const unsigned char *p, size_t n, struct dr_npy *out, size_t *start,
                         uint64_t *bytes, char *why, size_t why_n) {
    static const struct {
        unsigned char code;
        char kind;
        uint32_t item;
    } types[] = {{0x08, 'u', 1}, {0x09, 'i', 1}, {0x0b, 'i', 2},
                 {0x0c, 'i', 4}, {0x0d, 'f', 4}, {0x0e, 'f', 8}};
    if (n < 4 || p[0] != 0 || p[1] != 0)
        return dr_refuse(why, why_n, n ? "it is not an IDX file" : "the file is empty");
    out->item = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].code == p[2]) {
            out->kind = types[i].kind;
            out->item = types[i].item;
        }
    if (!out->item)
        return dr_refuse(why, why_n, "IDX type 0x%02x is not one of 08 09 0b 0c 0d 0e", p[2]);
    out->rank = p[3];
    if (out->rank < 1 || out->rank > DR_NPY_MAX_RANK)
        return dr_refuse(why, why_n, "its header says %u dimensions; 1 to %d are read", out->rank,
                         DR_NPY_MAX_RANK);
    *start = 4 + 4 * (size_t)out->rank;
    if (n < *start)
        return dr_refuse(why, why_n, "the file is truncated: it ends inside its header");
    *bytes = out->item;
    for (uint32_t i = 0; i < out->rank; i++) {
        const unsigned char *d = p + 4 + 4 * (size_t)i;
        out->dim[i] = (int64_t)d[0] << 24 | d[1] << 16 | d[2] << 8 | d[3];
        /* Rank times 32 bits can pass 64; a zero among them hides nothing. */
        if (out->dim[i] && __builtin_mul_overflow(*bytes, (uint64_t)out->dim[i], bytes))
            return dr_refuse(why, why_n, "its header says more than 2^64 bytes");
    }
    for (uint32_t i = 0; i < out->rank; i++)
        if (out->dim[i] == 0)
            *bytes = 0;
    return true;
}

static bool right_length(uint64_t want, uint64_t have, char *why, size_t why_n) {
    if (have < want)
        return dr_refuse(why, why_n,
                         "the file is truncated: its header needs %llu bytes of items, it has %llu",
                         (unsigned long long)want, (unsigned long long)have);
    return have == want ||
           dr_refuse(why, why_n, "%llu bytes follow the %llu bytes that its header needs",
                     (unsigned long long)(have - want), (unsigned long long)want);
}

static void to_little(unsigned char *p, uint64_t bytes, uint32_t item) {
    for (uint64_t at = 0; at < bytes; at += item)
        for (uint32_t i = 0; i < item / 2; i++) {
            const unsigned char t = p[at + i];
            p[at + i] = p[at + item - 1 - i];
            p[at + item - 1 - i] = t;
        }
}

/* ---- plain ---- */

static bool parse_plain(const unsigned char *file, size_t n, struct dr_npy *out, char *why,
                        size_t why_n) {
    size_t start;
    uint64_t bytes;
    if (!parse_header(file, n, out, &start, &bytes, why, why_n) ||
        !right_length(bytes, n - start, why, why_n))
        return false;
    out->data = file + start;
    if (out->item == 1)
        return true;
    if (!(out->own = malloc(bytes ? bytes : 1)))
        return dr_refuse(why, why_n, "out of host memory");
    memcpy(out->own, out->data, bytes);
    to_little(out->own, bytes, out->item);
    out->data = out->own;
    return true;
}

/* ---- gzip ---- */

/* Inflates up to `n` bytes more; *got of them came. False: the stream is damaged or cut. */
static bool inflate_some(z_stream *z, const unsigned char **in, size_t *left, unsigned char *to,
                         uint64_t n, uint64_t *got, bool *ended, char *why, size_t why_n) {
    enum { PIECE = 1 << 30 };
    *got = 0;
    while (*got < n && !*ended) {
        const uint64_t room = n - *got;
        z->next_out = to + *got;
        z->avail_out = room < PIECE ? (uInt)room : PIECE;
        z->next_in = (unsigned char *)*in; /* zlib does not write to it */
        z->avail_in = *left < PIECE ? (uInt)*left : PIECE;
        const uInt in_before = z->avail_in, out_before = z->avail_out;
        const int code = inflate(z, Z_NO_FLUSH);
        *in += in_before - z->avail_in;
        *left -= in_before - z->avail_in;
        *got += out_before - z->avail_out;
        *ended = code == Z_STREAM_END;
        if (code == Z_BUF_ERROR || (code == Z_OK && !*left && z->avail_out))
            return dr_refuse(why, why_n, "the gzip file is truncated");
        if (code != Z_OK && code != Z_STREAM_END)
            return dr_refuse(why, why_n, "the gzip file is damaged: %s",
                             z->msg ? z->msg : "no memory");
    }
    return true;
}

static bool inflate_all(z_stream *z, const unsigned char *file, size_t n, struct dr_npy *out,
                        char *why, size_t why_n) {
    unsigned char head[MOST_HEADER + 1];
    size_t start, left = n;
    uint64_t bytes, got, more;
    bool ended = false;
    if (!inflate_some(z, &file, &left, head, 4, &got, &ended, why, why_n))
        return false;
    const size_t rank = got == 4 && head[3] <= DR_NPY_MAX_RANK ? head[3] : 0;
    if (!inflate_some(z, &file, &left, head + got, 4 * rank, &more, &ended, why, why_n) ||
        !parse_header(head, got + more, out, &start, &bytes, why, why_n))
        return false;
    if (bytes / 1040 > n) /* deflate shrinks at most 1032:1 (zlib's technical notes) */
        return dr_refuse(
            why, why_n,
            "its header needs %llu bytes of items, more than %zu compressed bytes become",
            (unsigned long long)bytes, n);
    if (!(out->own = malloc(bytes ? bytes : 1)))
        return dr_refuse(why, why_n, "out of host memory");
    if (!inflate_some(z, &file, &left, out->own, bytes, &got, &ended, why, why_n) ||
        !right_length(bytes, got, why, why_n))
        return false;
    unsigned char extra; /* the end of the stream, with its checksum, comes with the next byte */
    if (!inflate_some(z, &file, &left, &extra, 1, &got, &ended, why, why_n))
        return false;
    if (got || left)
        return dr_refuse(why, why_n, "something follows the %llu bytes that its header needs",
                         (unsigned long long)bytes);
    to_little(out->own, bytes, out->item);
    out->data = out->own;
    return true;
}

static bool parse_gzip(const unsigned char *file, size_t n, struct dr_npy *out, char *why,
                       size_t why_n) {
    z_stream z = {0};
    if (inflateInit2(&z, 15 + 16) != Z_OK) /* the largest window; gzip's header and trailer */
        return dr_refuse(why, why_n, "out of host memory");
    const bool good = inflate_all(&z, file, n, out, why, why_n);
    inflateEnd(&z);
    return good;
}

/* ---- both ---- */

bool dr_idx_parse(const void *file, size_t n, struct dr_npy *out, char *why, size_t why_n) {
    const unsigned char *f = file;
    memset(out, 0, sizeof *out);
    const bool gzip = n >= 2 && f[0] == 0x1f && f[1] == 0x8b;
    if (gzip ? parse_gzip(f, n, out, why, why_n) : parse_plain(f, n, out, why, why_n))
        return true;
    dr_npy_close(out);
    return false;
}

bool dr_idx_open(const char *path, struct dr_npy *out, char *why, size_t why_n) {
    size_t n;
    char zipped[4096 + 4];
    memset(out, 0, sizeof *out);
    snprintf(zipped, sizeof zipped, "%s.gz", path);
    const bool plain = access(path, F_OK) == 0 || access(zipped, F_OK) != 0;
    void *map = dr_file_map(plain ? path : zipped, &n, why, why_n);
    if (!map)
        return false;
    if (!dr_idx_parse(map, n, out, why, why_n)) {
        munmap(map, n);
        return false;
    }
    if (out->own) { /* nothing points into the file */
        munmap(map, n);
    } else {
        out->map = map;
        out->map_bytes = n;
    }
    return true;
}
