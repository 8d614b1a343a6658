/* Blocks, repeats and shares written out: the model's flat list of nodes, in a topological order in
 * which the order of the file breaks ties.
 *
 * References may point forward, so values travel through ports: every instance of a scope has one
 * for each output of each of its nodes, set aside before any node is expanded. The outputs of a
 * used block are aliases of ports inside it. The size of the expansion is bounded as it grows. */
#include "graph/model_load.h"
#include <stdlib.h>
#include <string.h>

struct instance {
    uint32_t scope, subgraph, base; /* first port */
    const uint32_t *in;             /* blocks: ports of the inputs */
    const char *prefix;             /* "net.layer1.0" */
    const char *share;              /* the same of the instance that owns the weights; NULL */
    const struct dr_yaml **args;
    bool frozen;
    uint32_t optimizer;
    const struct dr_weights *weights;
};

static bool spend(struct dr_load *l, struct dr_mark mark, uint64_t n) {
    l->expansion += n;
    if (l->expansion > DR_MAX_EXPANSION && !l->too_large) {
        l->too_large = true;
        dr_error(l->d, mark,
                 "the model is too large: writing out its blocks and repeats passes "
                 "%d nodes, inputs and values",
                 DR_MAX_EXPANSION);
    }
    return !l->too_large;
}

static uint32_t new_ports(struct dr_load *l, uint32_t n) {
    const uint32_t base = l->port.n;
    for (uint32_t i = 0; i < n; i++) {
        *dr_push(l->a, &l->port) = (struct dr_port){.kind = DR_PORT_NONE};
    }
    return base;
}

static uint32_t port_of(const struct dr_load *l, const struct instance *in,
                        const struct dr_tref *r) {
    switch (r->kind) {
    case DR_TREF_INPUT:
        return r->index; /* the inputs' ports are the first */
    case DR_TREF_ARG:
        return in->in[r->index];
    case DR_TREF_NODE: {
        const struct dr_tnode *t = &l->node.at[r->index];
        const uint32_t base =
            t->scope == in->scope ? in->base : l->scope.at[t->scope].base; /* other subgraph */
        return base + t->port + r->output;
    }
    case DR_TREF_BAD:
        break;
    }
    return DR_NONE;
}

/* One node of the model. Its inputs stay ports until all is expanded. */
static void add_decl(struct dr_load *l, const struct instance *in, const struct dr_tnode *t,
                     const struct dr_tnode *of, const struct dr_reading *r, const char *name,
                     const char *share, const uint32_t *ports) {
    const uint32_t id = l->m->node.n;
    struct dr_decl d = {.name = name,
                        .op = of->op,
                        .attrs = r->attrs,
                        .n_in = t->n_in,
                        .n_out = t->n_out,
                        .activation = r->settings.activation,
                        .subgraph = in->subgraph,
                        .frozen = in->frozen,
                        .optimizer = in->optimizer,
                        .share = DR_NONE,
                        .weights = in->weights,
                        .written = of->map,
                        .mark = t->mark};
    d.in = DR_NEW_N(l->a, struct dr_ref, (size_t)t->n_in + 1);
    d.out = DR_NEW_N(l->a, const char *, (size_t)t->n_out + 1);
    for (uint32_t i = 0; i < t->n_in; i++) {
        d.in[i].mark = t->in[i].mark;
        d.in[i].text = t->in[i].text;
    }
    /* A repeated node's outputs bear its own name. */
    const bool named = t->out && !r->settings.repeat;
    for (uint32_t k = 0; k < t->n_out; k++) {
        d.out[k] = named    ? dr_printf(l->a, "%s.%s", in->prefix, t->out[k]->text)
                   : k == 0 ? name
                            : dr_printf(l->a, "%s.%u", name, k);
    }
    dr_map_put(l->decl_by_name, name, id);
    *dr_push(l->a, &l->m->node) = d;
    *dr_push(l->a, &l->decl_in) =
        memcpy(DR_NEW_N(l->a, uint32_t, (size_t)t->n_in + 1), ports, sizeof *ports * t->n_in);
    *dr_push(l->a, &l->decl_share) = share;
}

static void expand_scope(struct dr_load *l, struct instance *in);

/* One of `repeat` uses of t, its outputs to ports [out, out + n_out). */
static void expand_use(struct dr_load *l, const struct instance *in, uint32_t id, uint32_t of,
                       const struct dr_reading *r, const char *name, const char *share,
                       const uint32_t *ports, uint32_t out) {
    const struct dr_tnode *t = &l->node.at[id];
    const struct dr_tnode *source = &l->node.at[of];
    if (source->op) {
        for (uint32_t k = 0; k < t->n_out; k++) {
            l->port.at[out + k] =
                (struct dr_port){.kind = DR_PORT_NODE, .index = l->m->node.n, .output = k};
        }
        add_decl(l, in, t, source, r, name, share, ports);
        return;
    }
    const struct dr_tscope *b = &l->scope.at[source->block];
    if (!spend(l, t->mark, b->n_ports + b->n)) {
        return;
    }
    struct instance inner = *in;
    inner.scope = source->block;
    inner.base = new_ports(l, b->n_ports);
    inner.in = ports;
    inner.prefix = name;
    inner.share = share;
    inner.args = r->args;
    for (uint32_t k = 0; k < t->n_out; k++) {
        l->port.at[out + k] = (struct dr_port){
            .kind = DR_PORT_ALIAS, .index = inner.base + l->node.at[b->output].port + k};
    }
    expand_scope(l, &inner);
}

static const char *joined(struct dr_load *l, const char *prefix, const char *name, int64_t i) {
    return i < 0 ? dr_printf(l->a, "%s.%s", prefix, name)
                 : dr_printf(l->a, "%s.%s.%lld", prefix, name, (long long)i);
}

/* What the node (and the use of a block) says about itself beats what stands around it. */
static void apply(struct instance *at, const struct dr_settings *s) {
    at->frozen = s->frozen >= 0 ? s->frozen == 1 : at->frozen;
    at->optimizer = s->optimizer != DR_NONE ? s->optimizer : at->optimizer;
    at->weights = s->weights ? s->weights : at->weights;
}

static void expand_node(struct dr_load *l, const struct instance *in, uint32_t id) {
    const struct dr_tnode *t = &l->node.at[id];
    const bool shares = t->kind == DR_TNODE_SHARE;
    const uint32_t of = shares ? t->share : id;
    const char *name = joined(l, in->prefix, t->name, -1);
    if (t->bad || l->node.at[of].bad) {
        return;
    }
    const struct dr_reading own = *dr_load_read(l, id, name, in->args);
    /* The owner's attributes, read in its own place: the same block, or a subgraph. */
    const struct dr_reading r = shares ? *dr_load_read(l, of, name, in->args) : own;
    const struct dr_tnode *source = &l->node.at[of];
    if (!own.ok || !r.ok || (source->block != DR_NONE && l->scope.at[source->block].bad)) {
        return;
    }
    struct instance at = *in;
    apply(&at, &own.settings);
    const char *owner_prefix =
        source->scope == in->scope ? in->prefix : l->scope.at[source->scope].name;
    uint32_t *ports = DR_NEW_N(l->a, uint32_t, (size_t)t->n_in + 1);
    for (uint32_t i = 0; i < t->n_in; i++) {
        ports[i] = port_of(l, in, &t->in[i]);
    }
    const int64_t repeat = r.settings.repeat;
    for (int64_t i = 0; i < (repeat ? repeat : 1); i++) {
        if (!spend(l, t->mark, 1 + t->n_in + t->n_out)) {
            return;
        }
        const int64_t number = repeat ? i : -1;
        const bool last = !repeat || i + 1 == repeat;
        const uint32_t out = last ? in->base + t->port : new_ports(l, t->n_out);
        const char *share = shares      ? joined(l, owner_prefix, source->name, number)
                            : in->share ? joined(l, in->share, t->name, number)
                                        : NULL;
        expand_use(l, &at, id, of, &r, repeat ? joined(l, in->prefix, t->name, i) : name, share,
                   ports, out);
        if (!last) {
            ports = DR_NEW(l->a, uint32_t);
            ports[0] = out;
        }
    }
}

static void expand_scope(struct dr_load *l, struct instance *in) {
    const struct dr_tscope *s = &l->scope.at[in->scope];
    const uint32_t first = s->first, n = s->n;
    for (uint32_t i = 0; i < n && !l->too_large; i++) {
        expand_node(l, in, first + i);
    }
}

/* ---- after expansion ---- */
static struct dr_port follow(const struct dr_load *l, uint32_t port) {
    struct dr_port p = {.kind = DR_PORT_NONE};
    while (port != DR_NONE) {
        p = l->port.at[port];
        port = p.kind == DR_PORT_ALIAS ? p.index : DR_NONE;
    }
    return p;
}

static void set_ref(struct dr_ref *r, struct dr_port p) {
    DR_ASSERT(p.kind == DR_PORT_INPUT || p.kind == DR_PORT_NODE);
    r->is_input = p.kind == DR_PORT_INPUT;
    r->index = p.index;
    r->output = p.output;
}

static void link_decls(struct dr_load *l) {
    for (uint32_t i = 0; i < l->m->node.n; i++) {
        struct dr_decl *d = &l->m->node.at[i];
        for (uint32_t j = 0; j < d->n_in; j++) {
            set_ref(&d->in[j], follow(l, l->decl_in.at[i][j]));
        }
        for (const char *s = l->decl_share.at[i]; s; s = l->decl_share.at[d->share]) {
            d->share = dr_map_get(l->decl_by_name, s);
            DR_ASSERT(d->share != DR_NONE);
        }
    }
}

struct heap {
    uint32_t *at, n;
};
static void heap_push(struct heap *h, uint32_t v) {
    uint32_t i = h->n++;
    for (; i > 0 && h->at[(i - 1) / 2] > v; i = (i - 1) / 2) {
        h->at[i] = h->at[(i - 1) / 2];
    }
    h->at[i] = v;
}
static uint32_t heap_pop(struct heap *h) {
    const uint32_t top = h->at[0], v = h->at[--h->n];
    uint32_t i = 0;
    for (uint32_t c; (c = 2 * i + 1) < h->n; i = c) {
        c += c + 1 < h->n && h->at[c + 1] < h->at[c];
        if (h->at[c] >= v) {
            break;
        }
        h->at[i] = h->at[c];
    }
    h->at[i] = v;
    return top;
}

/* Edges from node to user, and from the owner of shared weights to the sharer. */
static uint32_t *count_users(const struct dr_load *l, uint32_t *wait, uint32_t **user) {
    const uint32_t n = l->m->node.n;
    uint32_t *first = DR_NEW_N(l->a, uint32_t, (size_t)n + 2);
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t i = 0; i < n; i++) {
            const struct dr_decl *d = &l->m->node.at[i];
            for (uint32_t j = 0; j <= d->n_in; j++) {
                const uint32_t from = j == d->n_in        ? d->share
                                      : d->in[j].is_input ? DR_NONE
                                                          : d->in[j].index;
                if (from == DR_NONE) {
                    continue;
                }
                if (fill) {
                    (*user)[first[from + 1]++] = i; /* first[v + 1] ends as v's end */
                    wait[i]++;
                } else {
                    first[from + 2]++;
                }
            }
        }
        if (!fill) {
            for (uint32_t i = 0; i <= n; i++) {
                first[i + 1] += first[i];
            }
            *user = DR_NEW_N(l->a, uint32_t, (size_t)first[n + 1] + 1);
        }
    }
    return first;
}

static void sort_decls(struct dr_load *l) {
    const uint32_t n = l->m->node.n;
    uint32_t *wait = DR_NEW_N(l->a, uint32_t, (size_t)n + 1), *user;
    const uint32_t *first = count_users(l, wait, &user);
    uint32_t *place = DR_NEW_N(l->a, uint32_t, (size_t)n + 1), done = 0;
    struct dr_decl *sorted = DR_NEW_N(l->a, struct dr_decl, (size_t)n + 1);
    struct heap ready = {.at = DR_NEW_N(l->a, uint32_t, (size_t)n + 1)};
    for (uint32_t i = 0; i < n; i++) {
        if (wait[i] == 0) {
            heap_push(&ready, i);
        }
    }
    while (ready.n > 0) {
        const uint32_t v = heap_pop(&ready);
        place[v] = done;
        sorted[done++] = l->m->node.at[v];
        for (uint32_t i = first[v]; i < first[v + 1]; i++) {
            if (--wait[user[i]] == 0) {
                heap_push(&ready, user[i]);
            }
        }
    }
    DR_ASSERT(done == n); /* model_refs.c has looked for cycles */
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < sorted[i].n_in; j++) {
            struct dr_ref *r = &sorted[i].in[j];
            r->index = r->is_input ? r->index : place[r->index];
        }
        sorted[i].share = sorted[i].share == DR_NONE ? DR_NONE : place[sorted[i].share];
    }
    for (uint32_t i = 0; i < l->kept.n; i++) {
        for (uint32_t j = 0; j < l->kept.at[i].n; j++) {
            struct dr_ref *r = &l->kept.at[i].to[j];
            r->index = r->is_input ? r->index : place[r->index];
        }
    }
    if (n) {
        memcpy(l->m->node.at, sorted, sizeof *sorted * n);
    }
}

void dr_load_keep(struct dr_load *l, const struct dr_tref *from, struct dr_ref *to, uint32_t n) {
    *dr_push(l->a, &l->kept) = (struct dr_kept){.from = from, .to = to, .n = n};
}

static void link_kept(struct dr_load *l) {
    const struct instance top = {.scope = DR_NONE};
    for (uint32_t i = 0; i < l->kept.n; i++) {
        const struct dr_kept *k = &l->kept.at[i];
        for (uint32_t j = 0; j < k->n; j++) {
            k->to[j].mark = k->from[j].mark;
            k->to[j].text = k->from[j].text;
            set_ref(&k->to[j], follow(l, port_of(l, &top, &k->from[j])));
        }
    }
    for (uint32_t i = 0; i < l->m->output.n; i++) {
        l->m->output.at[i].in = *l->output_in.at[i];
    }
}

static void expand_subgraph(struct dr_load *l, uint32_t scope, uint32_t optimizer) {
    const uint32_t sub = scope - l->n_blocks;
    const struct dr_tscope *s = &l->scope.at[scope];
    const struct dr_yaml *y =
        s->map->kind == DR_YAML_MAPPING ? dr_yaml_get(s->map, "optimizer") : NULL;
    const struct dr_weights *w = &l->m->weights.at[sub];
    if (y) {
        const uint32_t own =
            dr_load_optimizer(l, y, s->name, dr_printf(l->a, "subgraphs.%s", s->name));
        optimizer = own != DR_NONE ? own : optimizer;
    }
    struct instance in = {.scope = scope,
                          .subgraph = sub,
                          .base = s->base,
                          .prefix = s->name,
                          .frozen = l->m->subgraph.at[sub].frozen,
                          .optimizer = optimizer,
                          .weights = w->file || w->random ? w : NULL};
    expand_scope(l, &in);
}

/* Blocks that nothing uses are checked all the same, as far as they can be without arguments. */
static void check_unused(struct dr_load *l) {
    for (uint32_t i = 0; i < l->n_blocks; i++) {
        const struct dr_tscope *s = &l->scope.at[i];
        if (!s->used) {
            dr_warn(l->d, s->mark, "block '%s' is used by nothing", s->name);
        }
        for (uint32_t j = s->first; j < s->first + s->n; j++) {
            const struct dr_tnode *t = &l->node.at[j];
            if (!t->checked && !t->bad && t->kind == DR_TNODE_OP) {
                dr_load_read(l, j, dr_printf(l->a, "%s.%s", s->name, t->name), NULL);
            }
        }
    }
}

void dr_load_expand(struct dr_load *l, uint32_t optimizer) {
    for (uint32_t i = 0; i < l->m->input.n; i++) {
        *dr_push(l->a, &l->port) = (struct dr_port){.kind = DR_PORT_INPUT, .index = i};
    }
    for (uint32_t i = l->n_blocks; i < l->scope.n; i++) {
        l->scope.at[i].base = new_ports(l, l->scope.at[i].n_ports);
    }
    for (uint32_t i = l->n_blocks; i < l->scope.n; i++) {
        expand_subgraph(l, i, optimizer);
    }
    check_unused(l);
    if (dr_diag_errors(l->d) != l->errors_before) {
        return; /* some nodes are missing */
    }
    link_decls(l);
    link_kept(l);
    sort_decls(l);
}
