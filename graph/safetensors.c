/* Reading safetensors files: the header's JSON by hand, mapping, conversion to float.
 *
 * The format (github.com/huggingface/safetensors): an object of tensors, each {"dtype", "shape",
 * "data_offsets"}, beside an optional "__metadata__" of strings. The grammar has a fixed depth, so
 * the parser does not recurse, whatever a file contains. */
#include "graph/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Every type of the format that fills whole bytes. */
static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[] = {{"F32", 4},  {"F16", 2}, {"BF16", 2},    {"F64", 8},     {"I64", 8},    {"I32", 4},
              {"I16", 2},  {"I8", 1},  {"U8", 1},      {"U16", 2},     {"U32", 4},    {"U64", 8},
              {"BOOL", 1}, {"C64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};

struct reader {
    struct dr_arena *a;
    const char *p, *end;
    struct dr_safetensors *f;
    uint64_t data_bytes;
    bool has_notes;
    char *why;
    size_t why_n;
};

static bool refuse(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(struct reader *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->why, r->why_n, fmt, ap);
    va_end(ap);
    return false;
}

static bool not_json(struct reader *r, const char *wanted) {
    if (r->p == r->end)
        return refuse(r, "its header ends where %s should stand", wanted);
    const unsigned char c = (unsigned char)*r->p;
    return c > ' ' && c < 127
               ? refuse(r, "its header has '%c' where %s should stand", c, wanted)
               : refuse(r, "its header has byte 0x%02x where %s should stand", c, wanted);
}

/* ---- tokens ---- */

static void skip_blanks(struct reader *r) {
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

/* Skips blanks, then takes `c` if it is next. */
static bool take(struct reader *r, char c) {
    skip_blanks(r);
    if (r->p == r->end || *r->p != c)
        return false;
    r->p++;
    return true;
}

static bool hex4(struct reader *r, uint32_t *out) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++, r->p++) {
        static const char digits[] = "0123456789abcdef";
        const char c = r->p < r->end ? *r->p : 0;
        const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
        if (!at)
            return refuse(r, "its header has a \\u without four hexadecimal digits");
        v = v * 16 + (uint32_t)(at - digits);
    }
    *out = v;
    return true;
}

static char *put_utf8(char *to, uint32_t c) {
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 63));
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    }
    return to;
}

/* What follows a backslash. An escape is never shorter than what it stands for. */
static bool take_escape(struct reader *r, char **to) {
    static const char from[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    const char c = r->p < r->end ? *r->p++ : 0;
    const char *at = c ? strchr(from, c) : NULL;
    uint32_t v = 0, low = 0;
    if (at) {
        *(*to)++ = means[at - from];
        return true;
    }
    if (c != 'u')
        return refuse(r, "its header has an escape that JSON does not have");
    if (!hex4(r, &v))
        return false;
    if (v >= 0xd800 && v < 0xdc00 && r->end - r->p >= 2 && r->p[0] == '\\' && r->p[1] == 'u') {
        r->p += 2;
        if (!hex4(r, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return refuse(r, "its header has half a surrogate pair");
        v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
    }
    if (v >= 0xd800 && v < 0xe000)
        return refuse(r, "its header has half a surrogate pair");
    if (v == 0)
        return refuse(r, "its header has a string with a NUL");
    *to = put_utf8(*to, v);
    return true;
}

/* A string, unescaped, in the arena. */
static bool take_string(struct reader *r, const char *wanted, const char **out) {
    if (!take(r, '"'))
        return not_json(r, wanted);
    const char *close = r->p;
    while (close < r->end && *close != '"')
        close += *close == '\\' ? 2 : 1;
    if (close >= r->end)
        return refuse(r, "its header ends inside a string");
    char *text = dr_alloc(r->a, (size_t)(close - r->p) + 1), *to = text;
    while (r->p < close) {
        const unsigned char c = (unsigned char)*r->p;
        uint32_t cp;
        const size_t n = dr_utf8(r->p, (size_t)(close - r->p), &cp);
        if (c < ' ')
            return refuse(r, "its header has a string with byte 0x%02x", c);
        if (!n)
            return refuse(r, "its header is not UTF-8");
        if (c == '\\') {
            r->p++;
            if (!take_escape(r, &to))
                return false;
            continue;
        }
        memcpy(to, r->p, n);
        to += n;
        r->p += n;
    }
    r->p = close + 1;
    *out = text;
    return true;
}

static bool take_number(struct reader *r, const char *name, const char *what, uint64_t *out) {
    skip_blanks(r);
    if (r->p < r->end && *r->p == '-')
        return refuse(r, "tensor '%s': %s is negative", name, what);
    if (r->p == r->end || *r->p < '0' || *r->p > '9')
        return refuse(r, "tensor '%s': %s is not a whole number", name, what);
    const bool zero = *r->p == '0';
    uint64_t v = 0;
    const char *first = r->p;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++)
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*r->p - '0'), &v) || v > INT64_MAX)
            return refuse(r, "tensor '%s': %s is 2^63 or more", name, what);
    if ((zero && r->p > first + 1) || (r->p < r->end && strchr(".eE", *r->p)))
        return refuse(r, "tensor '%s': %s is not a whole number", name, what);
    *out = v;
    return true;
}

/* ---- the header ---- */

bool dr_safetensors_name(const char *name) {
    const size_t n = strlen(name);
    for (size_t i = 0, k; i < n; i += k) {
        uint32_t cp;
        k = dr_utf8(name + i, n - i, &cp);
        if (!k || cp < ' ' || (cp >= 0x7f && cp < 0xa0))
            return false;
    }
    return n > 0;
}

static bool take_shape(struct reader *r, struct dr_tensor *t) {
    uint64_t v;
    if (!take(r, '['))
        return refuse(r, "tensor '%s': its shape is not a list", t->name);
    if (take(r, ']'))
        return true;
    do {
        if (t->rank == DR_TENSOR_RANK)
            return refuse(r, "tensor '%s': its shape has more than %d dimensions", t->name,
                          DR_TENSOR_RANK);
        if (!take_number(r, t->name, "a dimension", &v))
            return false;
        t->dim[t->rank++] = (int64_t)v;
    } while (take(r, ','));
    return take(r, ']') || refuse(r, "tensor '%s': its shape is not a list of numbers", t->name);
}

struct range {
    uint64_t begin, end;
    uint32_t tensor;
};

static bool take_offsets(struct reader *r, const char *name, struct range *at) {
    if (!take(r, '[') || !take_number(r, name, "an offset", &at->begin) || !take(r, ',') ||
        !take_number(r, name, "an offset", &at->end) || !take(r, ']'))
        return *r->why ? false : refuse(r, "tensor '%s': data_offsets is not [begin, end]", name);
    return true;
}

static bool take_dtype(struct reader *r, struct dr_tensor *t, uint32_t *bytes) {
    const char *text;
    if (!take_string(r, "a dtype", &text))
        return false;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(text, dtypes[i].name)) {
            t->dtype = dtypes[i].name;
            *bytes = dtypes[i].bytes;
            return true;
        }
    return refuse(r, "tensor '%s': dtype '%.40s' is not known", t->name, text);
}

/* Its bytes are what shape and type say, and lie in the file. A dimension of 0 hides no overflow of
 * the others. */
static bool check_tensor(struct reader *r, struct dr_tensor *t, const struct range *at,
                         uint32_t item) {
    uint64_t n = item;
    bool empty = false;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (t->dim[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(n, (uint64_t)t->dim[i], &n))
            return refuse(r, "tensor '%s': its shape has more than 2^64 bytes", t->name);
    }
    n = empty ? 0 : n;
    if (at->end < at->begin)
        return refuse(r, "tensor '%s': its data ends (%llu) before it begins (%llu)", t->name,
                      (unsigned long long)at->end, (unsigned long long)at->begin);
    if (at->end > r->data_bytes)
        return refuse(r, "tensor '%s': its data ends at %llu, the file has %llu bytes of data",
                      t->name, (unsigned long long)at->end, (unsigned long long)r->data_bytes);
    if (at->end - at->begin != n)
        return refuse(r, "tensor '%s': %s needs %llu bytes, its data_offsets span %llu", t->name,
                      dr_tensor_text(r->a, t), (unsigned long long)n,
                      (unsigned long long)(at->end - at->begin));
    t->bytes = n;
    t->elements = n / item;
    return true;
}

static bool take_tensor(struct reader *r, const char *name, struct range *at) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    struct dr_tensor t = {.name = name};
    bool seen[3] = {false, false, false};
    uint32_t item = 1;
    if (!dr_safetensors_name(name))
        return refuse(r, "a tensor has no name, or one with control characters");
    if (!take(r, '{'))
        return refuse(r, "tensor '%s': it is no object", name);
    do {
        const char *key;
        if (!take_string(r, "a key", &key))
            return false;
        int k = 0;
        while (k < 3 && strcmp(key, keys[k]))
            k++;
        if (k == 3)
            return refuse(r, "tensor '%s': unknown key '%.40s'", name, key);
        if (seen[k])
            return refuse(r, "tensor '%s': key '%s' twice", name, key);
        seen[k] = true;
        if (!take(r, ':'))
            return not_json(r, "':'");
        if (!(k == 0   ? take_dtype(r, &t, &item)
              : k == 1 ? take_shape(r, &t)
                       : take_offsets(r, name, at)))
            return false;
    } while (take(r, ','));
    if (!take(r, '}'))
        return not_json(r, "'}'");
    for (int k = 0; k < 3; k++)
        if (!seen[k])
            return refuse(r, "tensor '%s': it has no %s", name, keys[k]);
    if (!check_tensor(r, &t, at, item))
        return false;
    *dr_push(r->a, &r->f->tensor) = t;
    return true;
}

static bool take_notes(struct reader *r) {
    if (r->has_notes)
        return refuse(r, "its header has __metadata__ twice");
    r->has_notes = true;
    if (!take(r, '{'))
        return not_json(r, "the object of __metadata__");
    if (take(r, '}'))
        return true;
    do {
        struct dr_safetensors_note n;
        if (!take_string(r, "a key", &n.key))
            return false;
        if (!take(r, ':'))
            return not_json(r, "':'");
        if (!take_string(r, "a text of __metadata__", &n.value))
            return false;
        if (r->f->note.n == DR_SAFETENSORS_TENSORS)
            return refuse(r, "its __metadata__ has more than %u entries", DR_SAFETENSORS_TENSORS);
        *dr_push(r->a, &r->f->note) = n;
    } while (take(r, ','));
    return take(r, '}') || not_json(r, "'}'");
}

static int by_place(const void *x, const void *y) {
    const struct range *a = x, *b = y;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

/* No byte belongs to two tensors or to none. */
static bool check_ranges(struct reader *r, struct range *at, uint32_t n) {
    uint64_t end = 0;
    if (n)
        qsort(at, n, sizeof *at, by_place);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = r->f->tensor.at[at[i].tensor].name;
        if (at[i].begin < end)
            return refuse(r, "tensor '%s': it shares bytes with '%s'", name,
                          r->f->tensor.at[at[i - 1].tensor].name);
        if (at[i].begin > end)
            return refuse(r, "tensor '%s': %llu bytes before it belong to no tensor", name,
                          (unsigned long long)(at[i].begin - end));
        end = at[i].end;
    }
    if (end < r->data_bytes)
        return refuse(r, "%llu bytes at its end belong to no tensor",
                      (unsigned long long)(r->data_bytes - end));
    return true;
}

static bool take_header(struct reader *r) {
    DR_VEC(struct range) at = {0};
    if (r->p == r->end || *r->p != '{')
        return not_json(r, "'{'");
    r->p++;
    bool more = !take(r, '}');
    while (more) {
        const char *name;
        struct range range = {0};
        if (!take_string(r, "a name", &name))
            return false;
        if (!take(r, ':'))
            return not_json(r, "':'");
        if (!strcmp(name, "__metadata__")) {
            if (!take_notes(r))
                return false;
        } else {
            range.tensor = r->f->tensor.n;
            if (range.tensor == DR_SAFETENSORS_TENSORS)
                return refuse(r, "it has more than %u tensors", DR_SAFETENSORS_TENSORS);
            if (!take_tensor(r, name, &range))
                return false;
            if (dr_map_put(r->f->by_name, name, range.tensor) != DR_NONE)
                return refuse(r, "it has two tensors called '%s'", name);
            *dr_push(r->a, &at) = range;
            r->f->tensor.at[range.tensor].data = (const unsigned char *)r->end + range.begin;
        }
        more = take(r, ',');
        if (!more && !take(r, '}'))
            return not_json(r, "'}'");
    }
    skip_blanks(r);
    if (r->p != r->end)
        return refuse(r, "its header goes on after the object");
    return check_ranges(r, at.at, at.n);
}

bool dr_safetensors_parse(struct dr_arena *a, const void *file, size_t n,
                          struct dr_safetensors *out, char *why, size_t why_n) {
    const unsigned char *f = file;
    struct reader r = {.a = a, .f = out, .why = why, .why_n = why_n};
    *out = (struct dr_safetensors){.by_name = dr_map_create(a)};
    if (why_n)
        *why = 0;
    if (n < 8)
        return refuse(
            &r, n ? "it is no safetensors file: it has %zu bytes" : "the file is empty (%zu bytes)",
            n);
    if (memcmp(f, "PK\3\4", 4) == 0 || (f[0] == 0x80 && f[1] <= 5 && f[7]))
        return refuse(&r, "it is a pickle, as torch.save writes it; "
                          "safetensors.torch.save_file(model.state_dict(), ...) writes what is "
                          "read here");
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | f[i];
    if (length > n - 8)
        return refuse(&r, "its header says %llu bytes, the file has %zu left",
                      (unsigned long long)length, n - 8);
    if (length > DR_SAFETENSORS_HEADER)
        return refuse(&r, "its header has %llu bytes, at most %u are read",
                      (unsigned long long)length, DR_SAFETENSORS_HEADER);
    r.p = (const char *)f + 8;
    r.end = r.p + length;
    r.data_bytes = n - 8 - length;
    return take_header(&r);
}

bool dr_safetensors_open(struct dr_arena *a, const char *path, struct dr_safetensors *out,
                         char *why, size_t why_n) {
    *out = (struct dr_safetensors){0};
    size_t n;
    void *map = dr_file_map(path, &n, why, why_n);
    if (!map)
        return false;
    const bool good = dr_safetensors_parse(a, map, n, out, why, why_n);
    out->map = map;
    out->map_bytes = n;
    if (!good)
        dr_safetensors_close(out);
    return good;
}

void dr_safetensors_close(struct dr_safetensors *f) {
    if (f->map)
        munmap(f->map, f->map_bytes);
    *f = (struct dr_safetensors){0};
}

const struct dr_tensor *dr_safetensors_find(const struct dr_safetensors *f, const char *name) {
    const uint32_t i = dr_map_get(f->by_name, name);
    return i == DR_NONE ? NULL : &f->tensor.at[i];
}

const char *dr_safetensors_note(const struct dr_safetensors *f, const char *key) {
    for (uint32_t i = 0; i < f->note.n; i++)
        if (!strcmp(f->note.at[i].key, key))
            return f->note.at[i].value;
    return NULL;
}

/* ---- tensors ---- */

const char *dr_tensor_text(struct dr_arena *a, const struct dr_tensor *t) {
    struct dr_text s = {.arena = a};
    dr_text_add(&s, "%s [", t->dtype ? t->dtype : "");
    for (uint32_t i = 0; i < t->rank; i++)
        dr_text_add(&s, "%s%lld", i ? ", " : "", (long long)t->dim[i]);
    dr_text_add(&s, "]");
    return s.at;
}

bool dr_tensor_is_float(const struct dr_tensor *t) {
    return !strcmp(t->dtype, "F32") || !strcmp(t->dtype, "F16") || !strcmp(t->dtype, "BF16") ||
           !strcmp(t->dtype, "F64");
}

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* binary16 (IEEE 754): every value is a float. */
static float half(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, m = h & 1023;
    if (exponent == 31)
        return from_bits(sign | 0x7f800000u | m << 13);
    if (exponent == 0) { /* a subnormal is m * 2^-24 */
        const float x = (float)m * 0x1p-24f;
        return sign ? -x : x;
    }
    return from_bits(sign | (exponent + 112) << 23 | m << 13);
}

void dr_tensor_floats(const struct dr_tensor *t, float *to) {
    DR_ASSERT(dr_tensor_is_float(t));
    if (!strcmp(t->dtype, "F32")) {
        if (t->bytes)
            memcpy(to, t->data, t->bytes);
        return;
    }
    if (!strcmp(t->dtype, "F64")) {
        for (uint64_t i = 0; i < t->elements; i++) {
            double x;
            memcpy(&x, t->data + 8 * i, sizeof x);
            to[i] = (float)x;
        }
        return;
    }
    const bool is_half = !strcmp(t->dtype, "F16");
    for (uint64_t i = 0; i < t->elements; i++) {
        const uint16_t h = (uint16_t)(t->data[2 * i] | t->data[2 * i + 1] << 8);
        to[i] = is_half ? half(h) : from_bits((uint32_t)h << 16);
    }
}
