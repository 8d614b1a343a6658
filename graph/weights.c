/* Matching states with tensors of files, and the order of their elements. See weights.h. */
#include "graph/weights.h"

#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

/* How many bytes of `name` the key covers as whole segments; 0: it does not. */
static size_t covers(const char *name, const char *key) {
    const size_t n = strlen(key);
    return n && !strncmp(name, key, n) && (name[n] == '.' || name[n] == 0) ? n : 0;
}

const char *dr_weights_rename(struct dr_arena *a, const struct dr_yaml *map, const char *name,
                              bool *mapped) {
    struct dr_text t = {.arena = a};
    dr_text_bytes(&t, "", 0);
    while (*name) {
        size_t longest = 0;
        uint32_t entry = 0;
        for (uint32_t i = 0; map && i < map->n; i++) {
            const size_t n = covers(name, map->pair[i].key->text);
            if (n > longest) {
                longest = n;
                entry = i;
            }
        }
        if (longest) {
            dr_text_add(&t, "%s", map->pair[entry].value->text);
            if (mapped)
                mapped[entry] = true;
        } else {
            longest = strcspn(name, ".");
            dr_text_bytes(&t, name, longest);
        }
        name += longest;
        if (*name == '.') {
            dr_text_bytes(&t, ".", 1);
            name++;
        }
    }
    return t.at;
}

/* ---- files ---- */

static struct dr_weights_file *open_file(struct dr_weights_files *w, const char *path,
                                         struct dr_mark mark) {
    const uint32_t old = dr_map_get(w->file_by_path, path);
    if (old != DR_NONE)
        return &w->file.at[old];
    char why[256];
    struct dr_weights_file f = {.path = path};
    f.there = dr_safetensors_open(w->arena, path, &f.f, why, sizeof why);
    f.used = DR_NEW_N(w->arena, bool, f.f.tensor.n + 1);
    f.seen = DR_NEW_N(w->arena, bool, f.f.tensor.n + 1);
    if (!f.there && w->planning && !w->load)
        dr_warn(w->diag, mark, "weights %s: %s; a run would need it", path, why);
    else if (!f.there)
        dr_error(w->diag, mark, "weights %s: %s", path, why);
    dr_map_put(w->file_by_path, path, w->file.n);
    *dr_push(w->arena, &w->file) = f;
    return &w->file.at[w->file.n - 1];
}

static struct dr_weights_use *use_of(struct dr_weights_files *w, const struct dr_weights *of) {
    for (uint32_t i = 0; i < w->use.n; i++)
        if (w->use.at[i].of == of)
            return &w->use.at[i];
    struct dr_weights_use *u = dr_push(w->arena, &w->use);
    *u = (struct dr_weights_use){.of = of, .missing = {.arena = w->arena}};
    u->mapped = DR_NEW_N(w->arena, bool, of->map ? of->map->n + 1 : 1);
    struct dr_weights_file *f = open_file(w, of->file, of->mark);
    const char *prefix = of->prefix ? of->prefix : "";
    for (uint32_t i = 0; i < f->f.tensor.n; i++)
        if (!strncmp(f->f.tensor.at[i].name, prefix, strlen(prefix)))
            f->seen[i] = true;
    return u;
}

/* ---- one state ---- */

void dr_weights_shape(const struct dr_value *v, struct dr_safetensors_entry *e) {
    e->rank = v->shape.rank;
    for (uint32_t i = 0; i < e->rank; i++)
        e->dim[i] = v->shape.dim[i];
    if (e->rank == 4) {
        e->dim[1] = v->shape.dim[3];
        e->dim[2] = v->shape.dim[1];
        e->dim[3] = v->shape.dim[2];
    }
}

static bool same_shape(const struct dr_safetensors_entry *e, const struct dr_tensor *t) {
    for (uint32_t i = 0; i < e->rank && e->rank == t->rank; i++)
        if (e->dim[i] != t->dim[i])
            return false;
    return e->rank == t->rank;
}

static bool check_tensor(struct dr_weights_files *w, const struct dr_value *v,
                         const struct dr_weights_file *f, const struct dr_tensor *t,
                         struct dr_mark mark) {
    struct dr_safetensors_entry e = {0};
    dr_weights_shape(v, &e);
    const struct dr_shape file = {.rank = e.rank, .dim = {e.dim[0], e.dim[1], e.dim[2], e.dim[3]}};
    const char *want = dr_shape_text(w->arena, &file), *found = dr_tensor_text(w->arena, t);
    if (v->dtype == DR_F32 && dr_tensor_is_float(t) && same_shape(&e, t))
        return true;
    if (same_shape(&e, t))
        return dr_error(w->diag, mark,
                        "weights %s: tensor '%s' is %s; '%s' needs F32 %s (F16, BF16 and F64 are "
                        "read too)",
                        f->path, t->name, found, v->name, want);
    dr_error(w->diag, mark, "weights %s: tensor '%s' is %s; '%s' needs F32 %s", f->path, t->name,
             found, v->name, want);
    for (uint32_t i = 0; i < v->shape.rank; i++)
        if (v->shape.rank != 4 || t->rank != 4 || v->shape.dim[i] != t->dim[i])
            return false;
    return dr_note(w->diag, (struct dr_mark){0},
                   "that is dagrun's own order; files are in PyTorch's, channels before height");
}

static bool is_counter(const char *name) {
    const char *dot = strrchr(name, '.');
    return !strcmp(dot ? dot + 1 : name, "num_batches_tracked");
}

static void missing(struct dr_weights_files *w, const struct dr_value *v,
                    const struct dr_weights_file *f, const char *first, struct dr_mark mark) {
    const char **names = DR_NEW_N(w->arena, const char *, f->f.tensor.n + 1);
    uint32_t n = 0;
    if (dr_diag_full(w->diag)) {
        dr_error(w->diag, mark, "weights %s: no tensor for '%s'", f->path, v->name);
        return;
    }
    for (uint32_t i = 0; i < f->f.tensor.n; i++)
        if (!f->used[i] && !is_counter(f->f.tensor.at[i].name))
            names[n++] = f->f.tensor.at[i].name;
    const bool both = first && strcmp(first, v->name) != 0;
    struct dr_safetensors_entry e = {0};
    dr_weights_shape(v, &e);
    const struct dr_shape s = {.rank = e.rank, .dim = {e.dim[0], e.dim[1], e.dim[2], e.dim[3]}};
    dr_error(w->diag, mark, "weights %s: no tensor '%s'%s%s%s for F32 %s%s", f->path,
             both ? first : v->name, both ? " or '" : "", both ? v->name : "", both ? "'" : "",
             dr_shape_text(w->arena, &s),
             dr_did_you_mean(w->arena, both ? first : v->name, names, n));
}

static const struct dr_decl *decl_of(struct dr_weights_files *w, const struct dr_value *v) {
    const char *dot = strrchr(v->name, '.'); /* leaves have none */
    DR_ASSERT(dot);
    const uint32_t id =
        dr_map_get(w->decl_by_name, dr_strndup(w->arena, v->name, (size_t)(dot - v->name)));
    DR_ASSERT(id != DR_NONE);
    return &w->model->node.at[id];
}

/* Finds a state's tensor in `f`; `first`: the name to try before the full one, or NULL. */
static const struct dr_tensor *look_up(struct dr_weights_files *w, const struct dr_value *v,
                                       struct dr_weights_file *f, const char *first,
                                       struct dr_mark mark, bool *good) {
    const struct dr_tensor *t = first ? dr_safetensors_find(&f->f, first) : NULL;
    t = t ? t : dr_safetensors_find(&f->f, v->name);
    if (!t)
        return NULL;
    f->used[t - f->f.tensor.at] = true;
    *good &= check_tensor(w, v, f, t, mark);
    *dr_push(w->arena, &w->match) =
        (struct dr_weights_match){.state = v->name, .tensor = t, .path = f->path};
    return t;
}

/* A state's tensor by the YAML's `weights:` around its node. */
static const struct dr_tensor *match_yaml(struct dr_weights_files *w, const struct dr_value *v,
                                          const struct dr_decl *d, bool *good) {
    const struct dr_weights *of = d->weights;
    struct dr_weights_use *u = use_of(w, of);
    struct dr_weights_file *f = open_file(w, of->file, of->mark);
    if (!f->there) {
        *good &= w->planning;
        return NULL;
    }
    const char *rest = v->name + strlen(w->model->subgraph.at[d->subgraph].name) + 1;
    const char *first = dr_weights_rename(w->arena, of->map, rest, u->mapped);
    first = of->prefix ? dr_printf(w->arena, "%s%s", of->prefix, first) : first;
    const struct dr_tensor *t = look_up(w, v, f, first, of->mark, good);
    if (!t && of->missing_init) {
        dr_text_add(&u->missing, "%s%s", u->initial ? ", " : "", v->name);
        u->initial = true;
        *dr_push(w->arena, &w->match) =
            (struct dr_weights_match){.state = v->name, .path = f->path};
    } else if (!t) {
        *good = false;
        missing(w, v, f, first, of->mark);
    }
    return t;
}

static const struct dr_tensor *match_state(struct dr_weights_files *w, const struct dr_value *v,
                                           bool *good) {
    const struct dr_mark none = {0};
    const struct dr_decl *d = decl_of(w, v);
    const struct dr_weights *of = d->weights;
    if (w->load) {
        struct dr_weights_file *f = open_file(w, w->load, none);
        const struct dr_tensor *t = f->there ? look_up(w, v, f, NULL, none, good) : NULL;
        if (t || !f->there || !of || of->random) {
            *good &= t != NULL;
            if (!t && f->there)
                missing(w, v, f, NULL, none);
            return t;
        }
    }
    return of && !of->random ? match_yaml(w, v, d, good) : NULL;
}

const struct dr_tensor **dr_weights_match(struct dr_weights_files *w, const struct dr_graph *g,
                                          const struct dr_graph *beside) {
    bool good = true;
    if (!w->decl_by_name) {
        w->decl_by_name = dr_map_create(w->arena);
        w->file_by_path = dr_map_create(w->arena);
        for (uint32_t i = 0; i < w->model->node.n; i++)
            dr_map_put(w->decl_by_name, w->model->node.at[i].name, i);
    }
    const struct dr_tensor **of = DR_NEW_N(w->arena, const struct dr_tensor *, g->value.n + 1);
    for (uint32_t i = 0; i < g->value.n; i++) {
        const struct dr_value *v = &g->value.at[i];
        if (v->kind == DR_STATE && (v->cls == DR_WEIGHT || v->cls == DR_BUFFER) &&
            (!beside || dr_map_get(beside->value_by_name, v->name) == DR_NONE))
            of[i] = match_state(w, v, &good);
        else
            continue;
        if (!of[i] && !decl_of(w, v)->weights && !w->load && !beside && g->mode != DR_MODE_TRAIN)
            *dr_push(w->arena, &w->random) = v->name;
    }
    return good ? of : NULL;
}

/* ---- afterwards ---- */

enum { SHOWN = 8 };

static void report_random(struct dr_weights_files *w) {
    struct dr_text names = {.arena = w->arena};
    for (uint32_t i = 0; i < w->random.n && i < SHOWN; i++)
        dr_text_add(&names, "%s%s", i ? ", " : "", w->random.at[i]);
    if (w->random.n > SHOWN)
        dr_text_add(&names, " and %u more", w->random.n - SHOWN);
    if (w->random.n)
        dr_warn(w->diag, (struct dr_mark){0},
                "no file is named for %s: initial values are used (--load FILE; `weights: random` "
                "if that is meant)",
                names.at);
}

static void report_extra(struct dr_weights_files *w, const struct dr_weights_file *f) {
    struct dr_text names = {.arena = w->arena};
    const bool checkpoint = dr_safetensors_note(&f->f, DR_NOTE_STEP) != NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->f.tensor.n; i++) {
        const char *name = f->f.tensor.at[i].name;
        if (f->used[i] || is_counter(name) || (!f->seen[i] && !w->load) ||
            (checkpoint && strchr(name, ':')))
            continue;
        if (n++ < SHOWN)
            dr_text_add(&names, "%s%s", n > 1 ? ", " : "", name);
    }
    if (n > SHOWN)
        dr_text_add(&names, " and %u more", n - SHOWN);
    if (n)
        dr_warn(w->diag, (struct dr_mark){0}, "weights %s: %u tensor%s not used: %s", f->path, n,
                n == 1 ? " is" : "s are", names.at);
}

void dr_weights_report(struct dr_weights_files *w) {
    report_random(w);
    for (uint32_t i = 0; i < w->file.n; i++)
        if (w->file.at[i].there)
            report_extra(w, &w->file.at[i]);
    for (uint32_t i = 0; i < w->use.n; i++) {
        const struct dr_weights_use *u = &w->use.at[i];
        if (u->initial)
            dr_warn(w->diag, u->of->mark, "weights %s: missing, with initial values: %s",
                    u->of->file, u->missing.at);
        const uint32_t file = dr_map_get(w->file_by_path, u->of->file);
        for (uint32_t j = 0; u->of->map && j < u->of->map->n && w->file.at[file].there; j++)
            if (!u->mapped[j])
                dr_warn(w->diag, u->of->map->pair[j].key->mark,
                        "weights: map: no name has the segment '%s'",
                        u->of->map->pair[j].key->text);
    }
}

void dr_weights_text(const struct dr_weights_files *w, bool each, struct dr_text *t) {
    for (uint32_t i = 0; i < w->file.n; i++) {
        const struct dr_weights_file *f = &w->file.at[i];
        uint32_t taken = 0, initial = 0;
        for (uint32_t j = 0; j < w->match.n; j++)
            if (w->match.at[j].path == f->path)
                *(w->match.at[j].tensor ? &taken : &initial) += 1;
        if (!f->there)
            continue;
        dr_text_add(t, "  weights %s: %u of %u tensors taken, %u initial values\n", f->path, taken,
                    f->f.tensor.n, initial);
        for (uint32_t j = 0; each && j < w->match.n; j++) {
            const struct dr_weights_match *m = &w->match.at[j];
            if (m->path == f->path)
                dr_text_add(t, "    %s <- %s%s%s\n", m->state,
                            m->tensor ? m->tensor->name : "initial value", m->tensor ? "  " : "",
                            m->tensor ? dr_tensor_text(t->arena, m->tensor) : "");
        }
    }
}

void dr_weights_close(struct dr_weights_files *w) {
    for (uint32_t i = 0; i < w->file.n; i++)
        dr_safetensors_close(&w->file.at[i].f);
    w->file.n = 0;
}

/* ---- the order of elements ---- */

/* Swaps channels and space of [k][n][c] (ours) or back; both are contiguous. */
static void transpose(const float *from, float *to, int64_t k, int64_t n, int64_t c) {
    for (int64_t i = 0; i < k; i++, from += n * c, to += n * c)
        for (int64_t x = 0; x < n; x++)
            for (int64_t y = 0; y < c; y++)
                to[y * n + x] = from[x * c + y];
}

bool dr_weights_read(const struct dr_value *v, const struct dr_tensor *t, float *to) {
    const int64_t *d = v->shape.dim;
    DR_ASSERT(t->elements * sizeof *to == (uint64_t)v->bytes);
    if (v->shape.rank != 4) {
        dr_tensor_floats(t, to);
        return true;
    }
    float *file = malloc((size_t)v->bytes);
    if (!file)
        return false;
    dr_tensor_floats(t, file);
    transpose(file, to, d[0], d[3], d[1] * d[2]);
    free(file);
    return true;
}

void dr_weights_write(const struct dr_value *v, const float *from, float *to) {
    const int64_t *d = v->shape.dim;
    if (v->shape.rank == 4)
        transpose(from, to, d[0], d[1] * d[2], d[3]);
    else
        memcpy(to, from, (size_t)v->bytes);
}
