/* Strict scalars: whole-text decimal grammars, range checks, messages that quote the text.
 *
 * Grammars are checked by hand; strtod then only converts, under the C locale's own object, so that
 * a program that called setlocale reads the same numbers (strtol's and strtod's own grammars would
 * also take "0x10", " 3" and "nan"). */
#include "graph/scalar.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a value of the wrong kind is called. */
static const char *kind_name(const struct dr_yaml *y) {
    return y->kind == DR_YAML_SEQUENCE ? "a list" : "a mapping";
}

static bool is_scalar(struct dr_diag *d, const struct dr_yaml *y, const char *what,
                      const char *expected) {
    if (y->kind == DR_YAML_SCALAR)
        return true;
    return dr_error(d, y->mark, "%s: expected %s, found %s", what, expected, kind_name(y));
}

/* The text as messages quote it: whole characters, at most 40 bytes. */
static const char *quote(char out[64], const char *s) {
    size_t n = strnlen(s, 41);
    bool clipped = n > 40;
    if (clipped) {
        n = 40;
        while (n && ((unsigned char)s[n] & 0xC0) == 0x80)
            n--;
    }
    out[0] = '\'';
    memcpy(out + 1, s, n);
    strcpy(out + 1 + n, clipped ? "...'" : "'");
    return out;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static const char *skip_digits(const char *s) {
    while (is_digit(*s))
        s++;
    return s;
}

/* ---- grammars ---- */
enum parsed { OK, NOT_A_NUMBER, TOO_LARGE };

static enum parsed parse_int(const char *s, int64_t *out) {
    bool negative = *s == '-';
    const char *p = s + (*s == '-' || *s == '+');
    if (!is_digit(*p) || *skip_digits(p))
        return NOT_A_NUMBER;
    uint64_t limit = (uint64_t)INT64_MAX + negative, v = 0;
    for (; *p; p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (v > (limit - digit) / 10)
            return TOO_LARGE;
        v = 10 * v + digit;
    }
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return OK;
}

/* YAML 1.2 core, 10.3.2, without .inf and .nan. */
static bool is_float(const char *s) {
    s += *s == '-' || *s == '+';
    if (*s == '.') {
        if (!is_digit(*++s))
            return false;
        s = skip_digits(s);
    } else {
        if (!is_digit(*s))
            return false;
        s = skip_digits(s);
        if (*s == '.')
            s = skip_digits(s + 1);
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '-' || *s == '+';
        if (!is_digit(*s))
            return false;
        s = skip_digits(s);
    }
    return !*s;
}

static enum parsed parse_float(const char *s, double *out) {
    if (!is_float(s))
        return NOT_A_NUMBER;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* glibc: a constant, no allocation */
    DR_ASSERT(c);
    double v = strtod_l(s, NULL, c);
    freelocale(c);
    if (!isfinite(v))
        return TOO_LARGE;
    *out = v;
    return OK;
}

bool dr_parse_int(const char *s, int64_t *out) {
    return parse_int(s, out) == OK;
}

/* ---- values of a file ---- */
static bool int_range_error(struct dr_diag *d, const struct dr_yaml *y, const char *what,
                            bool below, int64_t min, int64_t max) {
    char q[64];
    quote(q, y->text);
    long long lo = min, hi = max;
    if (below && max == INT64_MAX)
        return dr_error(d, y->mark, "%s: %s is out of range (at least %lld)", what, q, lo);
    return dr_error(d, y->mark, "%s: %s is out of range (%lld to %lld)", what, q, lo, hi);
}

bool dr_scalar_int(struct dr_diag *d, const struct dr_yaml *y, const char *what, int64_t min,
                   int64_t max, int64_t *out) {
    char q[64];
    int64_t v = 0;
    if (!is_scalar(d, y, what, "a whole number"))
        return false;
    enum parsed p = parse_int(y->text, &v);
    if (p == NOT_A_NUMBER)
        return dr_error(d, y->mark, "%s: %s is not a whole number", what, quote(q, y->text));
    if (p == TOO_LARGE || v < min || v > max)
        return int_range_error(d, y, what, p == OK ? v < min : y->text[0] == '-', min, max);
    *out = v;
    return true;
}

/* A bound as people would write it: no decimals it does not have, a point in any locale. */
static const char *number(char out[32], double v) {
    snprintf(out, 32, "%.9g", v);
    for (char *p = out; *p; p++)
        if (*p == ',')
            *p = '.';
    return out;
}

#define BOUND 1e300 /* a schema's bounds beyond it mean none */

static bool float_range_error(struct dr_diag *d, const struct dr_yaml *y, const char *what,
                              double min, double max) {
    char q[64], lo[32], hi[32];
    quote(q, y->text);
    number(lo, min);
    number(hi, max);
    if (min > -BOUND && max < BOUND)
        return dr_error(d, y->mark, "%s: %s is out of range (%s to %s)", what, q, lo, hi);
    if (min > -BOUND)
        return dr_error(d, y->mark, "%s: %s is out of range (at least %s)", what, q, lo);
    if (max < BOUND)
        return dr_error(d, y->mark, "%s: %s is out of range (at most %s)", what, q, hi);
    return dr_error(d, y->mark, "%s: %s is out of range", what, q);
}

bool dr_scalar_float(struct dr_diag *d, const struct dr_yaml *y, const char *what, double min,
                     double max, double *out) {
    char q[64];
    double v = 0;
    if (!is_scalar(d, y, what, "a number"))
        return false;
    enum parsed p = parse_float(y->text, &v);
    if (p == NOT_A_NUMBER)
        return dr_error(d, y->mark, "%s: %s is not a number", what, quote(q, y->text));
    if (p == TOO_LARGE || v < min || v > max)
        return float_range_error(d, y, what, min, max);
    *out = v;
    return true;
}

/* strcasecmp would follow the locale (in Turkish, I is not the capital of i). */
static bool same_letters(const char *s, const char *lower) {
    for (; *s && *lower; s++, lower++)
        if ((*s >= 'A' && *s <= 'Z' ? *s | 32 : *s) != *lower)
            return false;
    return !*s && !*lower;
}

bool dr_scalar_bool(struct dr_diag *d, const struct dr_yaml *y, const char *what, bool *out) {
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
    char q[64];
    if (!is_scalar(d, y, what, "true or false"))
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (same_letters(y->text, words[i])) {
            *out = i % 2;
            return true;
        }
    return dr_error(d, y->mark, "%s: %s is not true or false", what, quote(q, y->text));
}

bool dr_scalar_word(struct dr_diag *d, const struct dr_yaml *y, const char *what,
                    const char *const *words, uint32_t n, int32_t *out) {
    char q[64];
    if (!is_scalar(d, y, what, "a word"))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(y->text, words[i])) {
            *out = (int32_t)i;
            return true;
        }
    struct dr_arena *a = dr_arena_create();
    struct dr_text list = {.arena = a};
    dr_text_bytes(&list, "", 0);
    for (uint32_t i = 0; i < n; i++)
        dr_text_add(&list, "%s%s", i ? ", " : "", words[i]);
    dr_error(d, y->mark, "%s: %s is not one of %s%s", what, quote(q, y->text), list.at,
             dr_did_you_mean(a, y->text, words, n));
    dr_arena_destroy(a);
    return false;
}

bool dr_scalar_text(struct dr_diag *d, const struct dr_yaml *y, const char *what,
                    const char **out) {
    if (!is_scalar(d, y, what, "a text"))
        return false;
    if (!y->n)
        return dr_error(d, y->mark, "%s: expected a text, found nothing", what);
    *out = y->text;
    return true;
}
