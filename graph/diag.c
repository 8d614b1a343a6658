/* The diagnostics sink: keeps messages, prints them in file order with source line and caret.
 *
 * Everything that came from a user (names, quoted scalars, source lines) may hold any bytes: what
 * could move a terminal's cursor or turn text around is escaped in messages and replaced one for
 * one in source lines, so that the caret stays below its text. */
#include "graph/diag.h"

#include <stdlib.h>
#include <string.h>

enum {
    KEEP = 20,          /* errors kept; the same bound for warnings, and for notes of one message */
    MESSAGE_MAX = 2048, /* bytes of one message */
    LINE_SHOWN = 100,   /* columns of a source line shown */
};

struct note {
    struct dr_mark mark;
    const char *text;
};
struct message {
    bool error;
    struct dr_mark mark;
    const char *text;
    uint32_t notes_dropped;
    DR_VEC(struct note) note;
};
struct source {
    const char *name, *text;
    size_t n;
};

struct dr_diag {
    struct dr_arena *arena;
    uint32_t errors, warnings;
    uint32_t printed, counted; /* messages, and errors and warnings, at the last dr_diag_print */
    bool dropped;              /* the last message was: so are its notes */
    DR_VEC(struct message) message;
    DR_VEC(struct source) source;
};

struct dr_diag *dr_diag_create(struct dr_arena *a) {
    struct dr_diag *d = DR_NEW(a, struct dr_diag);
    d->arena = a;
    return d;
}

uint16_t dr_diag_source(struct dr_diag *d, const char *name, const char *text, size_t n) {
    if (d->source.n >= UINT16_MAX)
        return UINT16_MAX; /* its marks are printed without a place */
    *dr_push(d->arena, &d->source) =
        (struct source){.name = dr_strdup(d->arena, name), .text = text, .n = n};
    return (uint16_t)(d->source.n - 1);
}

/* ---- text from outside ---- */
/* C0, DEL, C1, line and paragraph separators, and the marks that reorder text ("Trojan Source",
 * CVE-2021-42574). */
static bool is_control(uint32_t cp) {
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0x61C || cp == 0x200E || cp == 0x200F ||
           (cp >= 0x2028 && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069) || cp == 0xFEFF;
}

/* Columns a terminal gives it; the blocks of Unicode's EastAsianWidth that are wide, and the common
 * combining ones. wcwidth would depend on the locale. */
static unsigned width(uint32_t cp) {
    static const struct {
        uint32_t first, last;
        unsigned width;
    } block[] = {
        {0x0300, 0x036F, 0},   {0x0483, 0x0489, 0},   {0x0591, 0x05BD, 0},   {0x064B, 0x065F, 0},
        {0x1100, 0x115F, 2},   {0x1AB0, 0x1AFF, 0},   {0x1DC0, 0x1DFF, 0},   {0x200B, 0x200D, 0},
        {0x20D0, 0x20FF, 0},   {0x2E80, 0x303E, 2},   {0x3041, 0xA4CF, 2},   {0xA960, 0xA97F, 2},
        {0xAC00, 0xD7A3, 2},   {0xF900, 0xFAFF, 2},   {0xFE00, 0xFE0F, 0},   {0xFE20, 0xFE2F, 0},
        {0xFE30, 0xFE6F, 2},   {0xFF00, 0xFF60, 2},   {0xFFE0, 0xFFE6, 2},   {0x1F300, 0x1F64F, 2},
        {0x1F680, 0x1F6FF, 2}, {0x1F900, 0x1F9FF, 2}, {0x20000, 0x3FFFD, 2},
    };
    for (size_t i = 0; i < sizeof block / sizeof *block && cp >= block[i].first; i++)
        if (cp <= block[i].last)
            return block[i].width;
    return 1;
}

static void add_escaped(struct dr_text *t, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        size_t len = dr_utf8(s + i, n - i, &cp);
        if (!len)
            dr_text_add(t, "\\x%02x", (unsigned char)s[i]);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            dr_text_add(t, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (is_control(cp))
            dr_text_add(t, cp < 0x100 ? "\\x%02x" : "\\u%04x", cp);
        else
            dr_text_bytes(t, s + i, len);
        i += len ? len : 1;
    }
}

/* ---- keeping ---- */
/* The message's text, clipped between characters. */
static const char *format(struct dr_diag *d, const char *fmt, va_list ap) {
    char raw[MESSAGE_MAX];
    int want = vsnprintf(raw, sizeof raw, fmt, ap);
    DR_ASSERT(want >= 0);
    size_t n = strlen(raw);
    bool clipped = (size_t)want > n;
    if (clipped)
        while (n && ((unsigned char)raw[n - 1] & 0xC0) == 0x80)
            n--;
    if (clipped && n && (unsigned char)raw[n - 1] >= 0xC0)
        n--;
    struct dr_text t = {.arena = d->arena};
    dr_text_bytes(&t, "", 0);
    add_escaped(&t, raw, n);
    if (clipped)
        dr_text_add(&t, "...");
    return t.at;
}

static bool keep(struct dr_diag *d, bool error, struct dr_mark m, const char *fmt, va_list ap) {
    uint32_t *count = error ? &d->errors : &d->warnings;
    d->dropped = *count >= KEEP;
    if (*count < UINT32_MAX)
        ++*count;
    if (!d->dropped)
        *dr_push(d->arena, &d->message) =
            (struct message){.error = error, .mark = m, .text = format(d, fmt, ap)};
    return false;
}

bool dr_error(struct dr_diag *d, struct dr_mark m, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    keep(d, true, m, fmt, ap);
    va_end(ap);
    return false;
}

bool dr_warn(struct dr_diag *d, struct dr_mark m, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    keep(d, false, m, fmt, ap);
    va_end(ap);
    return false;
}

bool dr_note(struct dr_diag *d, struct dr_mark m, const char *fmt, ...) {
    if (d->dropped || !d->message.n)
        return false;
    struct message *to = &d->message.at[d->message.n - 1];
    if (to->note.n >= KEEP) {
        to->notes_dropped++;
        return false;
    }
    va_list ap;
    va_start(ap, fmt);
    *dr_push(d->arena, &to->note) = (struct note){.mark = m, .text = format(d, fmt, ap)};
    va_end(ap);
    return false;
}

uint32_t dr_diag_errors(const struct dr_diag *d) {
    return d->errors;
}

uint32_t dr_diag_warnings(const struct dr_diag *d) {
    return d->warnings;
}

bool dr_diag_full(const struct dr_diag *d) {
    return d->errors >= KEEP;
}

/* ---- printing ---- */
/* Line `line` of a source, by the line ends LF, CR LF and CR, as graph/yaml.c counts them. */
static const char *find_line(const struct source *s, uint32_t line, size_t *n) {
    const char *p = s->text, *end = s->text + s->n;
    for (uint32_t at = 1; at < line && p < end; at++) {
        while (p < end && *p != '\n' && *p != '\r')
            p++;
        if (p < end)
            p += *p == '\r' && p + 1 < end && p[1] == '\n' ? 2 : 1;
    }
    const char *stop = p;
    while (stop < end && *stop != '\n' && *stop != '\r')
        stop++;
    *n = (size_t)(stop - p);
    return p;
}

/* The part of a long line that is shown, so that the marked bytes [from, to) are in it. */
static void clip_line(const char *s, size_t n, size_t from, size_t *first, size_t *last) {
    *first = 0;
    *last = n;
    if (n <= LINE_SHOWN)
        return;
    if (from > LINE_SHOWN * 3 / 4)
        *first = from - LINE_SHOWN / 2;
    *last = *first + LINE_SHOWN < n ? *first + LINE_SHOWN : n;
    while (*first && ((unsigned char)s[*first] & 0xC0) == 0x80)
        --*first;
    while (*last < n && ((unsigned char)s[*last] & 0xC0) == 0x80)
        ++*last;
}

/* The source line and the caret line below it. Tabs are copied into both: they stop at the same
 * columns since both lines begin alike. */
static void print_line(struct dr_text *out, struct dr_arena *a, const struct source *src,
                       struct dr_mark m) {
    size_t n;
    const char *s = find_line(src, m.line, &n);
    size_t from = m.col ? m.col - 1 : 0;
    from = from < n ? from : n;
    size_t to = m.len && m.len < n - from ? from + m.len : m.len ? n : from;
    size_t first, last;
    clip_line(s, n, from, &first, &last);
    struct dr_text caret = {.arena = a};
    dr_text_add(out, "%5u | %s", m.line, first ? "..." : "");
    dr_text_add(&caret, "      | %s", first ? "   " : "");
    bool begun = false;
    for (size_t i = first; i < last;) {
        uint32_t cp = 0;
        size_t len = dr_utf8(s + i, n - i, &cp);
        bool odd = !len || (is_control(cp) && cp != '\t');
        len = len ? len : 1;
        if (odd)
            dr_text_bytes(out, "\xEF\xBF\xBD", 3);
        else
            dr_text_bytes(out, s + i, len);
        if (cp == '\t' && (i < from || (begun && i < to))) {
            dr_text_bytes(&caret, "\t", 1);
        } else if (i < from || i < to) {
            for (unsigned w = odd ? 1 : width(cp); w; w--) {
                dr_text_bytes(&caret, i < from ? " " : begun ? "~" : "^", 1);
                begun = i >= from;
            }
        }
        i += len;
    }
    dr_text_add(out, "%s\n%s%s\n", last < n ? "..." : "", caret.at, begun ? "" : "^");
}

static const struct source *source_of(const struct dr_diag *d, struct dr_mark m) {
    return m.line && m.source < d->source.n ? &d->source.at[m.source] : NULL;
}

static void print_head(struct dr_text *out, const struct dr_diag *d, struct dr_mark m,
                       const char *kind, const char *text) {
    const struct source *s = source_of(d, m);
    if (s) {
        add_escaped(out, s->name, strlen(s->name));
        dr_text_add(out, ":%u:%u: ", m.line, m.col ? m.col : 1);
    }
    dr_text_add(out, "%s: %s\n", kind, text);
}

static void print_message(struct dr_text *out, const struct dr_diag *d, const struct message *m) {
    print_head(out, d, m->mark, m->error ? "error" : "warning", m->text);
    const struct source *s = source_of(d, m->mark);
    if (s)
        print_line(out, d->arena, s, m->mark);
    for (uint32_t i = 0; i < m->note.n; i++)
        print_head(out, d, m->note.at[i].mark, "note", m->note.at[i].text);
    if (m->notes_dropped)
        dr_text_add(out, "note: %u more not shown\n", m->notes_dropped);
}

/* By source and line, else as they came: DESIGN wants the file's order, while checks run in their
 * own. */
static int by_line(const void *a, const void *b) {
    const struct message *x = *(const struct message *const *)a;
    const struct message *y = *(const struct message *const *)b;
    uint64_t kx = (uint64_t)x->mark.source << 32 | x->mark.line;
    uint64_t ky = (uint64_t)y->mark.source << 32 | y->mark.line;
    return kx != ky ? (kx < ky ? -1 : 1) : (x > y) - (x < y);
}

/* The messages from the first-th on. */
static const char *text_from(const struct dr_diag *d, uint32_t first) {
    struct dr_text out = {.arena = d->arena};
    dr_text_bytes(&out, "", 0);
    const struct message *order[2 * KEEP];
    const uint32_t n = d->message.n - first;
    for (uint32_t i = 0; i < n; i++)
        order[i] = &d->message.at[first + i];
    if (n)
        qsort(order, n, sizeof *order, by_line);
    for (uint32_t i = 0; i < n; i++)
        print_message(&out, d, order[i]);
    if (d->errors > KEEP)
        dr_text_add(&out, "%u more error%s not shown\n", d->errors - KEEP,
                    d->errors - KEEP == 1 ? "" : "s");
    if (d->warnings > KEEP)
        dr_text_add(&out, "%u more warning%s not shown\n", d->warnings - KEEP,
                    d->warnings - KEEP == 1 ? "" : "s");
    return out.at;
}

const char *dr_diag_text(const struct dr_diag *d) {
    return text_from(d, 0);
}

void dr_diag_print(struct dr_diag *d, FILE *to) {
    if (d->errors + d->warnings == d->counted)
        return;
    fputs(text_from(d, d->printed), to);
    d->printed = d->message.n;
    d->counted = d->errors + d->warnings;
}

/* ---- "did you mean" ---- */
enum {
    NAME_MAX_BYTES = 100,   /* longer names get no suggestion: the distance is quadratic */
    CANDIDATES_MAX = 20000, /* looked at */
    EDIT = 4,               /* cost of an edit; another case of the same letter costs 1 */
};

static unsigned substitution(char a, char b) {
    if (a == b)
        return 0;
    bool letters = (a | 32) == (b | 32) && (a | 32) >= 'a' && (a | 32) <= 'z';
    return letters ? 1 : EDIT;
}

static unsigned least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

/* Damerau-Levenshtein in its restricted form (optimal string alignment), three rows. */
static unsigned distance(const char *a, size_t n, const char *b, size_t m) {
    unsigned row[3][NAME_MAX_BYTES * 2 + 1];
    unsigned *before = row[0], *last = row[1], *now = row[2];
    for (size_t j = 0; j <= m; j++)
        last[j] = (unsigned)j * EDIT;
    for (size_t i = 1; i <= n; i++) {
        now[0] = (unsigned)i * EDIT;
        for (size_t j = 1; j <= m; j++) {
            unsigned best = least(last[j], now[j - 1]) + EDIT;
            best = least(best, last[j - 1] + substitution(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = least(best, before[j - 2] + EDIT);
            now[j] = best;
        }
        unsigned *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[m];
}

const char *dr_nearest(const char *name, const char *const *candidates, uint32_t n) {
    size_t len = strlen(name);
    if (!len || len > NAME_MAX_BYTES)
        return NULL;
    size_t edits = len / 3 ? len / 3 : 1;
    unsigned best = (unsigned)(edits + 1) * EDIT;
    const char *nearest = NULL;
    for (uint32_t i = 0; i < n && i < CANDIDATES_MAX; i++) {
        size_t m = strnlen(candidates[i], NAME_MAX_BYTES * 2 + 1);
        if (m > len + edits || len > m + edits)
            continue;
        unsigned cost = distance(name, len, candidates[i], m);
        bool nothing_in_common = cost >= EDIT * (m > len ? m : len);
        if (cost < best && !nothing_in_common) {
            best = cost;
            nearest = candidates[i];
        }
    }
    return nearest;
}

const char *dr_did_you_mean(struct dr_arena *a, const char *name, const char *const *candidates,
                            uint32_t n) {
    const char *nearest = dr_nearest(name, candidates, n);
    return nearest ? dr_printf(a, "; did you mean '%s'?", nearest) : "";
}
