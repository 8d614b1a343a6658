/* Assertions, the arena, growable arrays and text, hashing, the name map.
 *
 * An arena is a list of chunks that grow with it; a reset keeps the largest for the next round, so
 * that a scratch arena stops asking the system after its first use. No state outside the arenas. */
#include "graph/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

_Noreturn void dr_assert_failed(const char *cond, const char *file, int line) {
    fprintf(stderr, "%s:%d: internal error: %s\n", file, line, cond);
    abort();
}

static _Noreturn void out_of_memory(size_t bytes) {
    fprintf(stderr, "out of host memory (asked for %zu bytes)\n", bytes);
    abort();
}

/* ---- arena ---- */
enum { CHUNK_MIN = 1 << 14, CHUNK_MAX = 1 << 20 };

struct chunk {
    struct chunk *next; /* the one before it in time */
    size_t used, cap;
    _Alignas(16) unsigned char at[];
};

struct dr_arena {
    struct chunk *top;
};

static struct chunk *chunk_create(size_t cap) {
    if (cap > SIZE_MAX - sizeof(struct chunk))
        out_of_memory(cap);
    struct chunk *c = malloc(sizeof *c + cap);
    if (!c)
        out_of_memory(cap);
    *c = (struct chunk){.cap = cap};
    return c;
}

struct dr_arena *dr_arena_create(void) {
    struct dr_arena *a = malloc(sizeof *a);
    if (!a)
        out_of_memory(sizeof *a);
    a->top = NULL;
    return a;
}

static void free_chunks(struct chunk *c) {
    while (c) {
        struct chunk *next = c->next;
        free(c);
        c = next;
    }
}

void dr_arena_destroy(struct dr_arena *a) {
    if (!a)
        return;
    free_chunks(a->top);
    free(a);
}

void dr_arena_reset(struct dr_arena *a) {
    if (!a->top)
        return;
    struct chunk *keep = a->top;
    for (struct chunk *c = a->top; c; c = c->next)
        if (c->cap > keep->cap)
            keep = c;
    for (struct chunk **p = &a->top; *p; p = &(*p)->next)
        if (*p == keep) {
            *p = keep->next;
            break;
        }
    free_chunks(a->top);
    keep->next = NULL;
    keep->used = 0;
    a->top = keep;
}

/* Room for `bytes`, not zeroed. */
static void *take(struct dr_arena *a, size_t bytes) {
    if (bytes > SIZE_MAX - 15)
        out_of_memory(bytes);
    bytes = bytes ? (bytes + 15) & ~(size_t)15 : 16; /* never two objects at one address */
    struct chunk *c = a->top;
    if (c && bytes <= c->cap - c->used) {
        void *p = c->at + c->used;
        c->used += bytes;
        return p;
    }
    size_t cap = c ? 2 * c->cap : CHUNK_MIN;
    cap = cap > CHUNK_MAX ? CHUNK_MAX : cap;
    if (bytes > cap / 4) { /* a chunk of its own, below the top, which goes on being filled */
        struct chunk *own = chunk_create(bytes);
        own->used = bytes;
        if (c) {
            own->next = c->next;
            c->next = own;
        } else {
            a->top = own;
        }
        return own->at;
    }
    struct chunk *fresh = chunk_create(cap);
    fresh->next = c;
    fresh->used = bytes;
    a->top = fresh;
    return fresh->at;
}

void *dr_alloc(struct dr_arena *a, size_t bytes) {
    void *p = take(a, bytes);
    memset(p, 0, bytes ? bytes : 1);
    return p;
}

char *dr_strndup(struct dr_arena *a, const char *s, size_t n) {
    char *p = take(a, n + 1);
    if (n)
        memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *dr_strdup(struct dr_arena *a, const char *s) {
    return dr_strndup(a, s, strlen(s));
}

char *dr_vprintf(struct dr_arena *a, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    DR_ASSERT(n >= 0);
    char *p = take(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

char *dr_printf(struct dr_arena *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *p = dr_vprintf(a, fmt, ap);
    va_end(ap);
    return p;
}

/* ---- growable arrays and text ---- */
void *dr_vec_room(struct dr_arena *a, void *at, uint32_t n, uint32_t *cap, size_t item) {
    if (n < *cap)
        return at;
    DR_ASSERT(n < UINT32_MAX);
    uint64_t want = *cap ? 2 * (uint64_t)*cap : 8;
    if (want > UINT32_MAX)
        want = UINT32_MAX;
    if (want > SIZE_MAX / item)
        out_of_memory(SIZE_MAX);
    void *p = take(a, (size_t)want * item);
    if (n)
        memcpy(p, at, (size_t)n * item);
    memset((char *)p + (size_t)n * item, 0, ((size_t)want - n) * item);
    *cap = (uint32_t)want;
    return p;
}

static void text_room(struct dr_text *t, size_t more) {
    if (more > SIZE_MAX / 4 - t->n)
        out_of_memory(more);
    size_t need = t->n + more + 1;
    if (need <= t->cap)
        return;
    size_t cap = t->cap ? t->cap : 256;
    while (cap < need)
        cap *= 2;
    char *p = take(t->arena, cap);
    if (t->n)
        memcpy(p, t->at, t->n);
    t->at = p;
    t->cap = cap;
}

void dr_text_bytes(struct dr_text *t, const char *s, size_t n) {
    text_room(t, n);
    if (n)
        memcpy(t->at + t->n, s, n);
    t->n += n;
    t->at[t->n] = 0;
}

void dr_text_add(struct dr_text *t, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    DR_ASSERT(n >= 0);
    text_room(t, (size_t)n);
    vsnprintf(t->at + t->n, (size_t)n + 1, fmt, again);
    va_end(again);
    t->n += (size_t)n;
}

size_t dr_utf8(const char *s, size_t n, uint32_t *cp) {
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *cp = u[0];
        return 1;
    }
    size_t len = u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : 2;
    if (u[0] < 0xC2 || u[0] > 0xF4 || len > n)
        return 0;
    *cp = u[0] & (0x7Fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((u[i] & 0xC0) != 0x80)
            return 0;
        *cp = *cp << 6 | (u[i] & 0x3Fu);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    bool bad = *cp < least[len] || *cp > 0x10FFFF || (*cp >= 0xD800 && *cp < 0xE000);
    return bad ? 0 : len;
}

/* ---- hashing ---- */
uint64_t dr_hash(const void *p, size_t n) {
    return XXH3_64bits(p, n);
}

struct slot {
    const char *key; /* NULL: free */
    uint32_t hash, value;
};

struct dr_map {
    struct dr_arena *arena;
    struct slot *slot;
    uint32_t cap, n; /* cap is 0 or a power of two, at most half full */
};

struct dr_map *dr_map_create(struct dr_arena *a) {
    struct dr_map *m = DR_NEW(a, struct dr_map);
    m->arena = a;
    return m;
}

/* The key's slot, or the free one where it belongs. */
static struct slot *map_find(const struct dr_map *m, const char *key, uint32_t hash) {
    for (uint32_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct slot *s = &m->slot[i];
        if (!s->key || (s->hash == hash && !strcmp(s->key, key)))
            return s;
    }
}

static uint32_t hash_of(const char *key) {
    uint64_t h = dr_hash(key, strlen(key));
    return (uint32_t)(h ^ h >> 32);
}

uint32_t dr_map_get(const struct dr_map *m, const char *key) {
    if (!m->n)
        return DR_NONE;
    const struct slot *s = map_find(m, key, hash_of(key));
    return s->key ? s->value : DR_NONE;
}

static void map_grow(struct dr_map *m) {
    struct dr_map old = *m;
    DR_ASSERT(old.cap <= UINT32_MAX / 4);
    m->cap = old.cap ? 2 * old.cap : 16;
    m->slot = DR_NEW_N(m->arena, struct slot, m->cap);
    for (uint32_t i = 0; i < old.cap; i++)
        if (old.slot[i].key)
            *map_find(m, old.slot[i].key, old.slot[i].hash) = old.slot[i];
}

uint32_t dr_map_put(struct dr_map *m, const char *key, uint32_t value) {
    if (2 * m->n >= m->cap)
        map_grow(m);
    uint32_t hash = hash_of(key);
    struct slot *s = map_find(m, key, hash);
    uint32_t old = s->key ? s->value : DR_NONE;
    if (!s->key) {
        m->n++;
        s->key = key;
        s->hash = hash;
    }
    s->value = value;
    return old;
}
