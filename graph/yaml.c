/* YAML text -> tree with places, from libyaml's events.
 *
 * libyaml's document interface is not used: it accepts duplicate keys, loses the places of aliases
 * and takes quadratic time on deep nesting and on many anchors. Here depth, nodes and anchors are
 * counted as events arrive, and an alias adds the whole size of its target, so that an alias bomb
 * ends at the alias that breaks the budget. There is no recursion: open collections are an array.
 *
 * Places are worked out from libyaml's character index, not from its line and column: those count
 * characters and take NEL, LS and PS for line ends, which no editor does. */
#include "graph/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

enum {
    FILE_MAX = 16 << 20,
    DEPTH_MAX = DR_YAML_DEPTH_MAX,
    NODES_MAX = DR_YAML_NODES_MAX,
    ANCHORS_MAX = 100000,
};

struct frame { /* an open sequence or mapping */
    struct dr_yaml *node;
    uint32_t first;  /* its first child in reader.child; a mapping's are key, value, key, value */
    uint32_t anchor; /* DR_NONE */
    uint32_t height; /* levels of collections in the children so far, aliases followed */
};

struct anchor {
    const struct dr_yaml *node; /* NULL while it is open */
    const char *name;
    struct dr_mark mark;
    uint32_t height;
};

struct reader {
    struct dr_arena *a, *scratch; /* the tree's; what goes at the end */
    struct dr_arena *round;       /* scratch that is reset after each mapping */
    struct dr_diag *d;
    uint16_t source;
    const char *text;
    size_t n, base; /* the source's bytes; where YAML begins in it */
    bool failed;    /* an error was reported */
    yaml_parser_t parser;

    /* A place in the text, moved forward: characters since base, byte, line and where it began. */
    size_t index, at, line_start;
    uint32_t line;

    struct frame frame[DEPTH_MAX];
    uint32_t depth, depth_before; /* open here; levels that the result will stand below */
    uint64_t nodes;
    DR_VEC(const struct dr_yaml *) child; /* finished children of the open frames */
    DR_VEC(struct anchor) anchor;
    bool too_many_anchors;
    struct dr_map *anchor_by_name;
    uint32_t documents;
    const struct dr_yaml *root;
};

/* ---- places ---- */
static void step(struct reader *r) {
    char c = r->text[r->at++];
    while (r->at < r->n && ((unsigned char)r->text[r->at] & 0xC0) == 0x80)
        r->at++;
    if (c == '\n' || (c == '\r' && (r->at == r->n || r->text[r->at] != '\n'))) {
        r->line++;
        r->line_start = r->at;
    }
}

static void rewind_place(struct reader *r) {
    r->index = r->at = r->line_start = 0;
    r->line = 1;
    while (r->at < r->base)
        step(r);
}

static void seek(struct reader *r, size_t index) {
    if (index < r->index)
        rewind_place(r); /* only errors look back */
    for (; r->index < index && r->at < r->n; r->index++)
        step(r);
}

/* The place itself; bytes up to the character `end` of the same line are underlined. */
static struct dr_mark mark_here(const struct reader *r, size_t end) {
    size_t p = r->at;
    for (size_t i = r->index; i < end && p < r->n && r->text[p] != '\n' && r->text[p] != '\r'; i++)
        for (p++; p < r->n && ((unsigned char)r->text[p] & 0xC0) == 0x80;)
            p++;
    return (struct dr_mark){.source = r->source,
                            .line = r->line,
                            .col = (uint32_t)(r->at - r->line_start) + 1,
                            .len = (uint32_t)(p - r->at)};
}

static struct dr_mark mark_at(struct reader *r, yaml_mark_t m) {
    seek(r, m.index);
    return mark_here(r, m.index);
}

static struct dr_mark mark_byte(struct reader *r, size_t at) {
    rewind_place(r);
    while (r->at < at)
        step(r);
    return mark_here(r, 0);
}

static bool is_name(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '-';
}

/* An event begins at its anchor; people look for the value behind it. */
static void skip_anchor(struct reader *r, size_t end) {
    if (r->at == r->n || r->text[r->at] != '&')
        return;
    seek(r, r->index + 1);
    while (r->index < end && r->at < r->n && is_name(r->text[r->at]))
        seek(r, r->index + 1);
    bool comment = false;
    for (; r->index < end && r->at < r->n; seek(r, r->index + 1)) {
        char c = r->text[r->at];
        bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
        comment = c == '#' || (comment && c != '\n' && c != '\r');
        if (!blank && !comment)
            return;
    }
}

static struct dr_mark event_mark(struct reader *r, const yaml_event_t *e, bool anchor,
                                 bool underline) {
    seek(r, e->start_mark.index);
    if (anchor)
        skip_anchor(r, e->end_mark.index);
    return mark_here(r, underline ? e->end_mark.index : 0);
}

#define FAIL(r, ...) ((r)->failed = true, dr_error((r)->d, __VA_ARGS__))

/* ---- building ---- */
static bool count_nodes(struct reader *r, uint64_t more, struct dr_mark m) {
    r->nodes += more; /* both are at most about NODES_MAX */
    if (r->nodes <= NODES_MAX)
        return true;
    return FAIL(r, m, "more than %d nodes after aliases are expanded", NODES_MAX);
}

static bool in_key(const struct reader *r) {
    if (!r->depth)
        return false;
    const struct frame *f = &r->frame[r->depth - 1];
    return f->node->kind == DR_YAML_MAPPING && (r->child.n - f->first) % 2 == 0;
}

/* Hands a finished node to the collection that is open, or makes it the root. */
static void attach(struct reader *r, const struct dr_yaml *y, uint32_t height) {
    if (!r->depth) {
        r->root = y;
        return;
    }
    if (in_key(r) && y->kind != DR_YAML_SCALAR)
        FAIL(r, y->mark, "a key must be a single word or text, not a %s",
             y->kind == DR_YAML_MAPPING ? "mapping" : "list");
    struct frame *f = &r->frame[r->depth - 1];
    f->height = height > f->height ? height : f->height;
    *dr_push(r->scratch, &r->child) = y;
}

static struct dr_yaml *node_create(struct reader *r, enum dr_yaml_kind kind, struct dr_mark m) {
    struct dr_yaml *y = DR_NEW(r->a, struct dr_yaml);
    y->kind = kind;
    y->mark = m;
    y->size = 1;
    return y;
}

static uint32_t anchor_create(struct reader *r, const yaml_char_t *name, struct dr_mark m) {
    if (!name)
        return DR_NONE;
    if (r->anchor.n == ANCHORS_MAX) {
        if (!r->too_many_anchors)
            FAIL(r, m, "more than %d anchors", ANCHORS_MAX);
        r->too_many_anchors = true;
        return DR_NONE;
    }
    const char *kept = dr_strdup(r->scratch, (const char *)name);
    *dr_push(r->scratch, &r->anchor) = (struct anchor){.name = kept, .mark = m};
    dr_map_put(r->anchor_by_name, kept, r->anchor.n - 1); /* a later one of the name replaces it */
    return r->anchor.n - 1;
}

static void anchor_close(struct reader *r, uint32_t id, const struct dr_yaml *y, uint32_t height) {
    if (id == DR_NONE)
        return;
    r->anchor.at[id].node = y;
    r->anchor.at[id].height = height;
}

static void refuse_tag(struct reader *r, const yaml_event_t *e, const yaml_char_t *tag) {
    if (!tag)
        return;
    static const char yaml_org[] = "tag:yaml.org,2002:";
    const char *t = (const char *)tag;
    bool standard = !strncmp(t, yaml_org, sizeof yaml_org - 1);
    FAIL(r, mark_at(r, e->start_mark),
         "the tag '%s%.60s' is not supported: a value's type follows from its place",
         standard ? "!!" : "", standard ? t + sizeof yaml_org - 1 : t);
}

static bool on_scalar(struct reader *r, const yaml_event_t *e) {
    const char *text = (const char *)e->data.scalar.value;
    size_t n = e->data.scalar.length;
    refuse_tag(r, e, e->data.scalar.tag);
    struct dr_mark m = event_mark(r, e, e->data.scalar.anchor, true);
    if (!count_nodes(r, 1, m))
        return false;
    if (memchr(text, 0, n))
        FAIL(r, m, "a NUL character in a text");
    struct dr_yaml *y = node_create(r, DR_YAML_SCALAR, m);
    y->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    y->text = dr_strndup(r->a, text, n);
    y->n = (uint32_t)n;
    anchor_close(r, anchor_create(r, e->data.scalar.anchor, m), y, 0);
    attach(r, y, 0);
    return true;
}

/* An alias that stands for nothing usable: an empty scalar lets the reading go on. */
static void attach_nothing(struct reader *r, struct dr_mark m) {
    struct dr_yaml *y = node_create(r, DR_YAML_SCALAR, m);
    y->text = "";
    attach(r, y, 0);
}

static void unknown_alias(struct reader *r, const char *name, struct dr_mark m) {
    const char *hint = "";
    if (!dr_diag_full(r->d)) {
        const char **names = DR_NEW_N(r->round, const char *, r->anchor.n);
        for (uint32_t i = 0; i < r->anchor.n; i++)
            names[i] = r->anchor.at[i].name;
        hint = dr_did_you_mean(r->round, name, names, r->anchor.n);
    }
    FAIL(r, m, "no anchor '&%s' above this alias%s", name, hint);
    dr_arena_reset(r->round);
}

static bool on_alias(struct reader *r, const yaml_event_t *e) {
    const char *name = (const char *)e->data.alias.anchor;
    struct dr_mark m = event_mark(r, e, false, true);
    uint32_t id = dr_map_get(r->anchor_by_name, name);
    if (id == DR_NONE) {
        unknown_alias(r, name, m);
        attach_nothing(r, m);
        return count_nodes(r, 1, m);
    }
    const struct anchor *anchor = &r->anchor.at[id];
    if (!anchor->node) {
        FAIL(r, m, "the alias '*%s' stands inside its own anchor", name);
        dr_note(r->d, anchor->mark, "the anchor '&%s' begins here", name);
        attach_nothing(r, m);
        return count_nodes(r, 1, m);
    }
    if (!count_nodes(r, anchor->node->size, m))
        return false;
    if (r->depth_before + r->depth + anchor->height > DEPTH_MAX)
        return FAIL(r, m, "nesting deeper than %d levels once the alias is expanded", DEPTH_MAX);
    attach(r, anchor->node, anchor->height);
    return true;
}

static bool on_start(struct reader *r, const yaml_event_t *e) {
    bool map = e->type == YAML_MAPPING_START_EVENT;
    const yaml_char_t *anchor = map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor;
    refuse_tag(r, e, map ? e->data.mapping_start.tag : e->data.sequence_start.tag);
    struct dr_mark m = event_mark(r, e, anchor, false);
    if (r->depth_before + r->depth >= DEPTH_MAX)
        return FAIL(r, m, "nesting deeper than %d levels", DEPTH_MAX);
    if (!count_nodes(r, 1, m))
        return false;
    struct dr_yaml *y = node_create(r, map ? DR_YAML_MAPPING : DR_YAML_SEQUENCE, m);
    r->frame[r->depth++] =
        (struct frame){.node = y, .first = r->child.n, .anchor = anchor_create(r, anchor, m)};
    return true;
}

static void close_frame(struct reader *r) {
    struct frame f = r->frame[--r->depth];
    r->child.n = f.first;
    anchor_close(r, f.anchor, f.node, f.height + 1);
    attach(r, f.node, f.height + 1);
}

static void on_sequence_end(struct reader *r) {
    struct frame *f = &r->frame[r->depth - 1];
    struct dr_yaml *y = f->node;
    y->n = r->child.n - f->first;
    y->item = DR_NEW_N(r->a, const struct dr_yaml *, y->n);
    for (uint32_t i = 0; i < y->n; i++) {
        y->item[i] = r->child.at[f->first + i];
        y->size += y->item[i]->size;
    }
    close_frame(r);
}

/* ---- mappings: duplicates and merges ---- */
static bool is_merge(const struct dr_yaml *key) {
    return !key->quoted && !strcmp(key->text, "<<");
}

struct pairs {
    DR_VEC(struct dr_yaml_pair) list; /* in reader.round */
    struct dr_map *by_key;            /* index into the mapping's children, or DR_NONE - 1 */
};

static void merge_one(struct reader *r, struct pairs *p, const struct dr_yaml *from) {
    for (uint32_t i = 0; i < from->n; i++) {
        const char *key = from->pair[i].key->text;
        if (dr_map_get(p->by_key, key) != DR_NONE)
            continue; /* written beside the merge, or by an earlier one */
        dr_map_put(p->by_key, key, DR_NONE - 1);
        *dr_push(r->round, &p->list) = from->pair[i];
    }
}

/* YAML 1.1's merge key: a mapping, or a list in which earlier mappings win. */
static void merge(struct reader *r, struct pairs *p, const struct dr_yaml *value) {
    if (value->kind == DR_YAML_MAPPING) {
        merge_one(r, p, value);
        return;
    }
    bool fits = value->kind == DR_YAML_SEQUENCE;
    for (uint32_t i = 0; fits && i < value->n; i++)
        fits = value->item[i]->kind == DR_YAML_MAPPING;
    if (!fits) {
        FAIL(r, value->mark, "'<<' merges a mapping or a list of mappings");
        return;
    }
    for (uint32_t i = 0; i < value->n; i++)
        merge_one(r, p, value->item[i]);
}

/* Keys of the mapping itself; an error for each that was there before. */
static void index_keys(struct reader *r, struct pairs *p, const struct dr_yaml *const *child,
                       uint32_t n) {
    for (uint32_t i = 0; i < n; i += 2) {
        const struct dr_yaml *key = child[i];
        if (key->kind != DR_YAML_SCALAR)
            continue;
        uint32_t first = dr_map_get(p->by_key, key->text);
        if (first == DR_NONE) {
            dr_map_put(p->by_key, key->text, i);
            continue;
        }
        FAIL(r, key->mark, "duplicate key '%.200s': it stands on line %u already", key->text,
             child[first]->mark.line);
        dr_note(r->d, child[first]->mark, "the first '%.200s' is here", key->text);
    }
}

/* Sizes need no check: what a merge adds was counted at its alias. */
static void on_mapping_end(struct reader *r) {
    struct frame *f = &r->frame[r->depth - 1];
    struct dr_yaml *y = f->node;
    uint32_t n = r->child.n - f->first;
    const struct dr_yaml *const *child = n ? r->child.at + f->first : NULL;
    struct pairs p = {.by_key = dr_map_create(r->round)};
    index_keys(r, &p, child, n);
    for (uint32_t i = 0; i < n; i += 2) {
        const struct dr_yaml *key = child[i];
        if (key->kind != DR_YAML_SCALAR)
            continue;
        if (is_merge(key))
            merge(r, &p, child[i + 1]);
        else
            *dr_push(r->round, &p.list) = (struct dr_yaml_pair){key, child[i + 1]};
    }
    y->n = p.list.n;
    y->pair = DR_NEW_N(r->a, struct dr_yaml_pair, y->n);
    for (uint32_t i = 0; i < y->n; i++) {
        y->pair[i] = p.list.at[i];
        y->size += y->pair[i].key->size + y->pair[i].value->size;
    }
    dr_arena_reset(r->round);
    close_frame(r);
}

/* ---- events ---- */
/* libyaml's own complaint, in our form. */
static void syntax_error(struct reader *r) {
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) {
        FAIL(r, (struct dr_mark){0}, "out of memory while reading YAML");
        return;
    }
    if (p->error == YAML_READER_ERROR) {
        size_t at = p->problem_offset < r->n - r->base ? r->base + p->problem_offset : r->n;
        FAIL(r, mark_byte(r, at), "not YAML: %s", p->problem);
        return;
    }
    struct dr_mark m = mark_at(r, p->problem_mark);
    bool tab = r->at < r->n && r->text[r->at] == '\t';
    FAIL(r, m, "not YAML: %s%s", p->problem ? p->problem : "the parser gave up",
         tab ? " (a tab cannot indent: use spaces)" : "");
    if (p->context && p->context_mark.index != p->problem_mark.index)
        dr_note(r->d, mark_at(r, p->context_mark), "%s that begins here", p->context);
}

static bool on_document(struct reader *r, const yaml_event_t *e) {
    if (r->documents++)
        return FAIL(r, mark_at(r, e->start_mark), "a second document: a file holds one");
    return true;
}

/* False: reading ends here. */
static bool on_event(struct reader *r, const yaml_event_t *e) {
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        return on_document(r, e);
    case YAML_ALIAS_EVENT:
        return on_alias(r, e);
    case YAML_SCALAR_EVENT:
        return on_scalar(r, e);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        return on_start(r, e);
    case YAML_SEQUENCE_END_EVENT:
        on_sequence_end(r);
        return true;
    case YAML_MAPPING_END_EVENT:
        on_mapping_end(r);
        return true;
    case YAML_STREAM_END_EVENT:
        return false;
    default:
        return true;
    }
}

static void read_events(struct reader *r) {
    if (!yaml_parser_initialize(&r->parser)) {
        FAIL(r, (struct dr_mark){0}, "out of memory while reading YAML");
        return;
    }
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)r->text + r->base,
                                 r->n - r->base);
    for (bool more = true; more;) {
        yaml_event_t e;
        if (!yaml_parser_parse(&r->parser, &e)) {
            syntax_error(r);
            break;
        }
        more = on_event(r, &e);
        yaml_event_delete(&e);
    }
    yaml_parser_delete(&r->parser);
}

/* What is wrong with the character at byte i, or NULL; *len are its bytes. */
static const char *bad_character(struct reader *r, size_t i, size_t *len) {
    unsigned char c = (unsigned char)r->text[i];
    uint32_t cp = 0;
    *len = dr_utf8(r->text + i, r->n - i, &cp);
    if (!*len && i == 0 && r->n > 1 && (c == 0xFE || c == 0xFF))
        return "this is UTF-16 text: save it as UTF-8";
    if (!*len)
        return dr_printf(r->scratch, "the byte 0x%02X is not UTF-8 text", c);
    if (!cp)
        return "a NUL byte: this is not a text file";
    bool control =
        cp < 0x20 ? cp != '\t' && cp != '\n' && cp != '\r' : cp >= 0x7F && cp < 0xA0 && cp != 0x85;
    return control ? dr_printf(r->scratch, "the control character U+%04X", cp) : NULL;
}

/* As libyaml sees lines: after LF, CR, NEL, LS or PS. */
static bool begins_line(const struct reader *r, size_t i) {
    const char *p = r->text + i;
    return i == 0 || i == r->base || p[-1] == '\n' || p[-1] == '\r' ||
           (i > 1 && !memcmp(p - 2, "\xC2\x85", 2)) ||
           (i > 2 && (!memcmp(p - 3, "\xE2\x80\xA8", 3) || !memcmp(p - 3, "\xE2\x80\xA9", 3)));
}

/* What is no text at all is said before libyaml sees it. So are %TAG lines: tags are refused
 * anyway, and libyaml compares each such line with all before it (1 MiB of them: 10 s). */
static bool check_text(struct reader *r) {
    for (size_t i = 0; i < r->n;) {
        unsigned char c = (unsigned char)r->text[i];
        size_t len = 1;
        const char *bad = NULL;
        if (c < 0x20 || c >= 0x7F)
            bad = bad_character(r, i, &len);
        else if (c == '%' && r->n - i > 4 && !memcmp(r->text + i, "%TAG", 4) && begins_line(r, i))
            bad = "%TAG is not supported: a value's type follows from its place";
        if (bad)
            return FAIL(r, mark_byte(r, i), "%s", bad);
        i += len;
    }
    return true;
}

static const struct dr_yaml *read_tree(struct reader *r) {
    r->scratch = dr_arena_create();
    r->round = dr_arena_create();
    r->anchor_by_name = dr_map_create(r->scratch);
    if (check_text(r)) {
        rewind_place(r);
        read_events(r);
    }
    dr_arena_destroy(r->round);
    dr_arena_destroy(r->scratch);
    return r->failed ? NULL : r->root;
}

const struct dr_yaml *dr_yaml_read_value(struct dr_arena *a, struct dr_diag *d, uint16_t source,
                                         const char *text, size_t n, size_t base, uint32_t depth) {
    struct reader r = {.a = a, .d = d, .text = text, .n = n, .base = base, .line = 1};
    r.source = source;
    r.depth_before = depth;
    const struct dr_yaml *value = read_tree(&r);
    if (value || r.failed)
        return value;
    struct dr_yaml *nothing = node_create(&r, DR_YAML_SCALAR, mark_byte(&r, base));
    nothing->text = "";
    return nothing;
}

/* ---- files ---- */
const struct dr_yaml *dr_yaml_read(struct dr_arena *a, struct dr_diag *d, const char *name,
                                   const char *text, size_t n) {
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) { /* a byte order mark */
        text += 3;
        n -= 3;
    }
    if (n > FILE_MAX) {
        dr_error(d, (struct dr_mark){0}, "'%s' is larger than %d MiB", name, FILE_MAX >> 20);
        return NULL;
    }
    struct reader r = {.a = a, .d = d, .text = text, .n = n, .line = 1};
    r.source = dr_diag_source(d, name, text, n);
    const struct dr_yaml *root = read_tree(&r);
    if (r.failed)
        return NULL;
    struct dr_mark start = {.source = r.source, .line = 1, .col = 1};
    if (!root || (root->kind == DR_YAML_SCALAR && !root->n))
        dr_error(d, start, "the file is empty");
    else if (root->kind != DR_YAML_MAPPING)
        dr_error(d, root->mark, "the file must be a mapping ('key: value' lines), not a %s",
                 root->kind == DR_YAML_SEQUENCE ? "list" : "single text");
    else
        return root;
    return NULL;
}

/* Reads until the end or one byte past the limit; 0 or errno. */
static int read_bytes(int fd, char *to, size_t cap, size_t *n) {
    for (*n = 0; *n < cap;) {
        ssize_t got = read(fd, to + *n, cap - *n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno;
        if (!got)
            break;
        *n += (size_t)got;
    }
    return 0;
}

const struct dr_yaml *dr_yaml_read_file(struct dr_arena *a, struct dr_diag *d, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    int err = fd < 0 || fstat(fd, &st) ? errno : 0;
    size_t n = 0;
    char *text = NULL;
    if (!err) {
        /* A pipe does not tell its size. */
        bool sized = S_ISREG(st.st_mode) && st.st_size < FILE_MAX;
        size_t cap = (sized ? (size_t)st.st_size : FILE_MAX) + 3 + 1;
        text = DR_NEW_N(a, char, cap);
        err = read_bytes(fd, text, cap, &n);
    }
    if (fd >= 0)
        close(fd);
    if (err) {
        dr_error(d, (struct dr_mark){0}, "cannot read '%s': %s", path, strerror(err));
        return NULL;
    }
    return dr_yaml_read(a, d, path, text, n);
}

const struct dr_yaml *dr_yaml_get(const struct dr_yaml *map, const char *key) {
    if (map->kind != DR_YAML_MAPPING)
        return NULL;
    for (uint32_t i = 0; i < map->n; i++)
        if (!strcmp(map->pair[i].key->text, key))
            return map->pair[i].value;
    return NULL;
}
