/* What names mean: shares, the order of blocks, how many values a node takes and gives, the values
 * of each scope, references, and that nothing depends on itself.
 *
 * A reference is tried whole in its own scope, then among the inputs, then as subgraph + rest at
 * every dot; two matches are an error. A block's nodes see the block's inputs and each other only.
 * Every check is linear: names go through maps. */
#include "graph/model_load.h"
#include <string.h>

static const char *full_name(struct dr_load *l, const struct dr_tnode *t) {
    return dr_printf(l->a, "%s.%s", l->scope.at[t->scope].name, t->name);
}

static const char *kind_of(const struct dr_tnode *t) {
    return t->op ? t->op->name : t->kind == DR_TNODE_SHARE ? "share" : "block";
}

static const char *what_of(struct dr_load *l, const struct dr_tnode *t) {
    return dr_printf(l->a, "%s '%s'", kind_of(t), full_name(l, t));
}

/* ---- names that are not there ---- */
static void add_values(struct dr_load *l, const struct dr_tscope *s, bool qualified,
                       const char **to, uint32_t *n) {
    for (uint32_t i = 0; i < s->n; i++) {
        const struct dr_tnode *t = &l->node.at[s->first + i];
        for (uint32_t k = 0; k < (t->out ? t->n_named : 1); k++) {
            const char *name = t->out ? t->out[k]->text : t->name;
            to[(*n)++] = qualified ? dr_printf(l->a, "%s.%s", s->name, name) : name;
        }
    }
}

static uint32_t count_values(const struct dr_load *l) {
    uint32_t n = l->m->input.n;
    for (uint32_t i = 0; i < l->node.n; i++) {
        n += 2 * (l->node.at[i].out ? l->node.at[i].n_named : 1);
    }
    for (uint32_t i = 0; i < l->n_blocks; i++) {
        n += l->scope.at[i].n_in;
    }
    return n;
}

/* "; did you mean 'conv1'?", also where another subgraph has a value of just that name. */
static const char *near_values(struct dr_load *l, uint32_t scope, const char *text) {
    if (dr_diag_errors(l->d) > 20) {
        return ""; /* nobody reads it, and it takes a walk over all names */
    }
    const char **names = DR_NEW_N(l->a, const char *, (size_t)count_values(l) + 1);
    uint32_t n = 0;
    const bool block = scope != DR_NONE && l->scope.at[scope].block;
    if (scope != DR_NONE) {
        add_values(l, &l->scope.at[scope], false, names, &n);
    }
    for (uint32_t i = 0; block && i < l->scope.at[scope].n_in; i++) {
        names[n++] = l->scope.at[scope].in[i]->text;
    }
    for (uint32_t i = 0; !block && i < l->m->input.n; i++) {
        names[n++] = l->m->input.at[i].name;
    }
    for (uint32_t i = l->n_blocks; !block && i < l->scope.n; i++) {
        if (dr_map_get(l->scope.at[i].value, text) != DR_NONE) {
            return dr_printf(l->a, "; did you mean '%s.%s'?", l->scope.at[i].name, text);
        }
        add_values(l, &l->scope.at[i], true, names, &n);
    }
    return dr_did_you_mean(l->a, text, names, n);
}

/* ---- references ---- */
struct found {
    struct dr_tref ref;
    uint32_t n;
    const struct dr_tvalue *value;
    struct dr_mark mark[2]; /* of the first two matches */
    const char *where[2];
};

static void match(struct found *f, enum dr_tref_kind kind, uint32_t index, uint32_t output,
                  struct dr_mark mark, const char *where) {
    if (f->n == 0) {
        f->ref.kind = kind;
        f->ref.index = index;
        f->ref.output = output;
    }
    if (f->n < 2) {
        f->mark[f->n] = mark;
        f->where[f->n] = where;
    }
    f->n++;
}

static void match_in(struct dr_load *l, struct found *f, const struct dr_tscope *s,
                     const char *name, const char *where) {
    const uint32_t v = dr_map_get(s->value, name);
    if (v != DR_NONE) {
        const struct dr_tvalue *x = &l->value.at[v];
        match(f, x->is_arg ? DR_TREF_ARG : DR_TREF_NODE, x->index, x->output, x->mark, where);
    }
}

static void match_subgraphs(struct dr_load *l, struct found *f, const char *text) {
    for (const char *dot = strchr(text, '.'); dot; dot = strchr(dot + 1, '.')) {
        const uint32_t s =
            dr_map_get(l->subgraph_by_name, dr_strndup(l->a, text, (size_t)(dot - text)));
        if (s != DR_NONE) {
            match_in(l, f, &l->scope.at[s], dot + 1,
                     dr_printf(l->a, "in subgraph '%s'", l->scope.at[s].name));
        }
    }
}

/* A name that is no value but something else; what to write instead. */
static bool explain(struct dr_load *l, uint32_t scope, const struct dr_tref *r, const char *what) {
    const uint32_t sub = dr_map_get(l->subgraph_by_name, r->text);
    const bool block = scope != DR_NONE && l->scope.at[scope].block;
    if (sub != DR_NONE && !block) {
        return dr_error(l->d, r->mark, "%s: '%s' is a subgraph; name one of its nodes: %s.NODE",
                        what, r->text, r->text);
    }
    const uint32_t id = scope == DR_NONE ? DR_NONE : dr_map_get(l->scope.at[scope].node, r->text);
    if (id != DR_NONE && l->node.at[id].out) {
        const struct dr_tnode *t = &l->node.at[id];
        return dr_error(l->d, r->mark, "%s: the outputs of '%s' have names of their own: %s%s",
                        what, r->text, t->out[0]->text, t->n_named > 1 ? ", ..." : "");
    }
    if (block && (dr_map_get(l->input_by_name, r->text) != DR_NONE || strchr(r->text, '.'))) {
        return dr_error(l->d, r->mark,
                        "%s: there is no '%s' in block '%s': a block's nodes see its inputs and "
                        "each other only%s",
                        what, r->text, l->scope.at[scope].name, near_values(l, scope, r->text));
    }
    return dr_error(l->d, r->mark, "%s: there is no value '%s'%s", what, r->text,
                    near_values(l, scope, r->text));
}

static bool resolve(struct dr_load *l, uint32_t scope, struct dr_tref *r, const char *what) {
    struct found f = {.ref = *r};
    const bool block = scope != DR_NONE && l->scope.at[scope].block;
    if (scope != DR_NONE) {
        match_in(l, &f, &l->scope.at[scope], r->text, "in its own scope");
    }
    if (!block) {
        const uint32_t input = dr_map_get(l->input_by_name, r->text);
        if (input != DR_NONE) {
            match(&f, DR_TREF_INPUT, input, 0, l->m->input.at[input].mark, "among the inputs");
        }
        match_subgraphs(l, &f, r->text);
    }
    if (f.n == 0) {
        return explain(l, scope, r, what);
    }
    if (f.n > 1) {
        dr_error(l->d, r->mark, "%s: '%s' means two things", what, r->text);
        dr_note(l->d, f.mark[0], "this one, %s", f.where[0]);
        return dr_note(l->d, f.mark[1], "and this one, %s", f.where[1]);
    }
    if (f.ref.kind == DR_TREF_NODE && f.ref.output == DR_NONE) {
        const struct dr_tnode *t = &l->node.at[f.ref.index];
        return dr_error(l->d, r->mark,
                        "%s: '%s' has %u outputs without names; name them there with `out:`", what,
                        r->text, t->n_out);
    }
    *r = f.ref;
    return true;
}

struct dr_tref dr_load_top_ref(struct dr_load *l, const struct dr_yaml *y, const char *what) {
    struct dr_tref r = {.mark = y->mark};
    if (dr_scalar_text(l->d, y, dr_printf(l->a, "%s: in", what), &r.text)) {
        resolve(l, DR_NONE, &r, what);
    }
    return r;
}

/* ---- shares ---- */
static bool find_shared(struct dr_load *l, struct dr_tnode *t) {
    const struct dr_yaml *y = dr_yaml_get(t->map, "share");
    const struct dr_tscope *s = &l->scope.at[t->scope];
    t->share = dr_map_get(s->node, y->text);
    for (const char *dot = strchr(y->text, '.'); dot && !s->block && t->share == DR_NONE;
         dot = strchr(dot + 1, '.')) {
        const uint32_t sub =
            dr_map_get(l->subgraph_by_name, dr_strndup(l->a, y->text, (size_t)(dot - y->text)));
        if (sub != DR_NONE) {
            t->share = dr_map_get(l->scope.at[sub].node, dot + 1);
        }
    }
    if (t->share != DR_NONE) {
        return true;
    }
    const char **names = DR_NEW_N(l->a, const char *, (size_t)s->n + 1);
    for (uint32_t i = 0; i < s->n; i++) {
        names[i] = l->node.at[s->first + i].name;
    }
    return dr_error(l->d, y->mark, "%s: there is no node '%s' to share with%s", what_of(l, t),
                    y->text, dr_load_suggest(l, y->text, names, s->n));
}

/* Names as written where all are in one scope, else with their scope. */
static const char *cycle_names(struct dr_load *l, const uint32_t *at, uint32_t n, bool backwards) {
    const char **name = DR_NEW_N(l->a, const char *, (size_t)n + 1);
    uint32_t start = 0;
    bool one = true;
    for (uint32_t i = 1; i < n; i++) {
        start = at[i] < at[start] ? i : start;
        one = one && l->node.at[at[i]].scope == l->node.at[at[0]].scope;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct dr_tnode *t =
            &l->node.at[at[backwards ? (start + n - i) % n : (start + i) % n]];
        name[i] = one ? t->name : full_name(l, t);
    }
    return dr_cycle_text(l->a, name, n);
}

static void share_cycle(void *ctx, const uint32_t *at, uint32_t n) {
    struct dr_load *l = ctx;
    dr_error(l->d, l->node.at[at[0]].mark, "nodes share with each other and none has an op: %s",
             cycle_names(l, at, n, false));
    for (uint32_t i = 1; i < n && i < 8; i++) {
        dr_note(l->d, l->node.at[at[i]].mark, "'%s' is here", l->node.at[at[i]].name);
    }
    for (uint32_t i = 0; i < n; i++) {
        l->node.at[at[i]].bad = true;
    }
}

static void resolve_shares(struct dr_load *l) {
    const uint32_t n = l->node.n;
    struct dr_edges e = {.n = n,
                         .first = DR_NEW_N(l->a, uint32_t, (size_t)n + 1),
                         .to = DR_NEW_N(l->a, uint32_t, (size_t)n + 1)};
    uint32_t *order = DR_NEW_N(l->a, uint32_t, (size_t)n + 1), edges = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct dr_tnode *t = &l->node.at[i];
        e.first[i] = edges;
        if (t->kind == DR_TNODE_SHARE && !t->bad) {
            t->bad = !find_shared(l, t);
            if (!t->bad) {
                e.to[edges++] = t->share;
            }
        }
    }
    e.first[n] = edges;
    dr_cycles(l->a, &e, order, share_cycle, l);
    for (uint32_t i = 0; i < n; i++) {
        struct dr_tnode *t = &l->node.at[order[i]];
        if (t->kind != DR_TNODE_SHARE || t->bad) {
            continue;
        }
        const struct dr_tnode *of = &l->node.at[t->share];
        t->bad = of->bad;
        t->op = of->op;
        t->block = of->block;
        if (of->kind == DR_TNODE_SHARE) {
            t->share = of->share;
        }
        if (t->op && (t->op->flags & DR_OP_AUGMENT) && (t->op->flags & DR_OP_RANDOM)) {
            dr_warn(l->d, t->mark,
                    "%s draws for itself, not as '%s' does: what is to change alike, an image and "
                    "its mask, goes through one node, `in: [image, mask]`",
                    what_of(l, t), of->name);
        }
    }
}

/* ---- blocks: none uses itself, those used come first ---- */
static void block_cycle(void *ctx, const uint32_t *at, uint32_t n) {
    struct dr_load *l = ctx;
    const char **name = DR_NEW_N(l->a, const char *, (size_t)n + 1);
    uint32_t start = 0;
    for (uint32_t i = 1; i < n; i++) {
        start = at[i] < at[start] ? i : start;
    }
    for (uint32_t i = 0; i < n; i++) {
        name[i] = l->scope.at[at[(start + i) % n]].name;
        l->scope.at[at[i]].bad = true;
    }
    dr_error(l->d, l->scope.at[at[start]].mark, "a block cannot use itself: %s",
             dr_cycle_text(l->a, name, n));
    for (uint32_t i = 0; i < n && i < 8; i++) {
        const struct dr_tscope *s = &l->scope.at[at[(start + i) % n]];
        const uint32_t next = at[(start + i + 1) % n];
        for (uint32_t j = s->first; j < s->first + s->n; j++) {
            if (l->node.at[j].kind == DR_TNODE_BLOCK && l->node.at[j].block == next) {
                dr_note(l->d, l->node.at[j].mark, "'%s' uses '%s' here", s->name,
                        l->scope.at[next].name);
                break;
            }
        }
    }
}

static uint32_t *order_blocks(struct dr_load *l) {
    const uint32_t n = l->n_blocks;
    const uint32_t n_nodes = n ? l->scope.at[n - 1].first + l->scope.at[n - 1].n : 0;
    struct dr_edges e = {.n = n,
                         .first = DR_NEW_N(l->a, uint32_t, (size_t)n + 1),
                         .to = DR_NEW_N(l->a, uint32_t, (size_t)n_nodes + 1)};
    uint32_t *order = DR_NEW_N(l->a, uint32_t, (size_t)n + 1), edges = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct dr_tscope *s = &l->scope.at[i];
        e.first[i] = edges;
        for (uint32_t j = s->first; j < s->first + s->n; j++) {
            if (l->node.at[j].kind == DR_TNODE_BLOCK && l->node.at[j].block != DR_NONE) {
                e.to[edges++] = l->node.at[j].block;
            }
        }
    }
    e.first[n] = edges;
    dr_cycles(l->a, &e, order, block_cycle, l);
    uint32_t *depth = DR_NEW_N(l->a, uint32_t, (size_t)n + 1);
    for (uint32_t i = 0; i < n; i++) {
        struct dr_tscope *s = &l->scope.at[order[i]];
        uint32_t *mine = &depth[order[i]];
        for (uint32_t j = e.first[order[i]]; j < e.first[order[i] + 1]; j++) {
            *mine = depth[e.to[j]] > *mine ? depth[e.to[j]] : *mine;
            s->bad = s->bad || l->scope.at[e.to[j]].bad;
        }
        if (++*mine > DR_MAX_BLOCK_DEPTH && !s->bad) {
            s->bad = !dr_error(l->d, s->mark, "block '%s': blocks are nested deeper than %d",
                               s->name, DR_MAX_BLOCK_DEPTH);
        }
    }
    return order;
}

/* ---- how many values a node takes and gives ---- */
static bool check_arity(struct dr_load *l, const struct dr_tnode *t, bool above) {
    const struct dr_yaml *in = dr_yaml_get(t->map, "in");
    const struct dr_mark mark = in ? in->mark : t->mark;
    const uint32_t most = t->op ? t->op->max_in : l->scope.at[t->block].n_in;
    const uint32_t least = t->op ? t->op->min_in : most;
    if (above && least > 1) {
        return dr_error(l->d, mark, "%s takes several inputs: name them with `in:`", what_of(l, t));
    }
    if ((t->n_in >= least && t->n_in <= most) || (above && t[-1].bad)) {
        return true;
    }
    const char *range = least == most        ? dr_printf(l->a, "%u", least)
                        : most == UINT32_MAX ? dr_printf(l->a, "at least %u", least)
                                             : dr_printf(l->a, "%u to %u", least, most);
    return dr_error(l->d, mark, "%s takes %s input%s, %s %u", what_of(l, t), range,
                    least == 1 && most == 1 ? "" : "s", in ? "`in` gives" : "the node above gives",
                    t->n_in);
}

/* A missing `in:` means all outputs of the node above; in a block's first node, the block's inputs.
 */
static bool imply_inputs(struct dr_load *l, uint32_t id) {
    struct dr_tnode *t = &l->node.at[id];
    const struct dr_tscope *s = &l->scope.at[t->scope];
    if (id == s->first && !s->block) {
        return dr_error(l->d, t->mark,
                        "%s: the first node of a subgraph needs `in:`, there is none above it",
                        what_of(l, t));
    }
    const bool args = id == s->first;
    t->n_in = args ? s->n_in : t[-1].n_out;
    t->in = DR_NEW_N(l->a, struct dr_tref, (size_t)t->n_in + 1);
    for (uint32_t i = 0; i < t->n_in; i++) {
        t->in[i] = (struct dr_tref){.kind = args ? DR_TREF_ARG : DR_TREF_NODE,
                                    .index = args ? i : id - 1,
                                    .output = args ? 0 : i,
                                    .mark = t->mark,
                                    .text = args ? s->in[i]->text : t[-1].name};
    }
    return true;
}

static void count_operands(struct dr_load *l, uint32_t id) {
    struct dr_tnode *t = &l->node.at[id];
    const bool implied = t->map->kind == DR_YAML_MAPPING && !dr_yaml_get(t->map, "in");
    const bool known = t->op || t->block != DR_NONE;
    const bool above = implied && id != l->scope.at[t->scope].first;
    if (implied && !imply_inputs(l, id)) {
        t->bad = true;
    } else if (!t->bad && known) {
        t->bad = !check_arity(l, t, above);
    }
    if (t->block != DR_NONE && l->scope.at[t->block].bad) {
        t->bad = true;
    }
    if (t->bad || !known) {
        t->n_out = t->n_named ? t->n_named : 1;
        return;
    }
    t->n_out = t->block != DR_NONE ? l->node.at[l->scope.at[t->block].output].n_out
               : t->op->outputs    ? t->op->outputs
               : t->op->max_in     ? t->n_in
               : t->n_named        ? t->n_named
                                   : 1;
    if (t->out && t->n_named != t->n_out) {
        t->bad = !dr_error(l->d, t->out[0]->mark, "%s has %u output%s, `out` names %u",
                           what_of(l, t), t->n_out, t->n_out == 1 ? "" : "s", t->n_named);
        t->n_out = t->n_named;
    }
    const struct dr_yaml *repeat = dr_yaml_get(t->map, "repeat");
    if (repeat && (t->n_in != 1 || t->n_out != 1)) {
        t->bad = !dr_error(l->d, repeat->mark,
                           "%s: `repeat` chains nodes of one input and one output, this one has "
                           "%u and %u",
                           what_of(l, t), t->n_in, t->n_out);
    }
}

/* ---- the values of a scope ---- */
static void clash(struct dr_load *l, struct dr_tnode *t, const char *name, struct dr_mark mark,
                  const char *with, struct dr_mark other) {
    dr_error(l->d, mark, "%s: the name '%s' clashes with %s", what_of(l, t), name, with);
    dr_note(l->d, other, "%s is here", with);
    t->bad = true;
}

static void add_value(struct dr_load *l, struct dr_tscope *s, uint32_t id, uint32_t output,
                      const char *name, struct dr_mark mark) {
    struct dr_tnode *t = &l->node.at[id];
    const uint32_t old = dr_map_get(s->value, name), input = dr_map_get(l->input_by_name, name);
    const uint32_t node = dr_map_get(s->node, name);
    if (old != DR_NONE) {
        clash(l, t, name, mark, dr_printf(l->a, "another '%s'", name), l->value.at[old].mark);
        return;
    }
    if (!s->block && input != DR_NONE) {
        clash(l, t, name, mark, dr_printf(l->a, "input '%s'", name), l->m->input.at[input].mark);
        return;
    }
    if (node != DR_NONE && node != id) {
        clash(l, t, name, mark, dr_printf(l->a, "node '%s'", name), l->node.at[node].mark);
        return;
    }
    dr_map_put(s->value, name, l->value.n);
    *dr_push(l->a, &l->value) = (struct dr_tvalue){.index = id, .output = output, .mark = mark};
}

static void check_prefix(struct dr_load *l, struct dr_tscope *s, uint32_t id, const char *name,
                         struct dr_mark mark) {
    const struct dr_map *maps[] = {s->node, s->value};
    for (uint32_t i = 0; i < 2; i++) {
        const size_t k = dr_load_prefix(maps[i], name, l->a);
        if (k) {
            const char *other = dr_strndup(l->a, name, k);
            const uint32_t at = dr_map_get(maps[i], other);
            clash(l, &l->node.at[id], name, mark, dr_printf(l->a, "'%s'", other),
                  i ? l->value.at[at].mark : l->node.at[at].mark);
            return;
        }
    }
}

static void name_values(struct dr_load *l, uint32_t scope) {
    struct dr_tscope *s = &l->scope.at[scope];
    for (uint32_t i = 0; i < s->n_in && s->block; i++) {
        const struct dr_yaml *in = s->in[i];
        if (dr_map_get(s->value, in->text) != DR_NONE) {
            s->bad = !dr_error(l->d, in->mark, "block '%s': two inputs are called '%s'", s->name,
                               in->text);
            continue;
        }
        dr_map_put(s->value, in->text, l->value.n);
        *dr_push(l->a, &l->value) =
            (struct dr_tvalue){.is_arg = true, .index = i, .mark = in->mark};
    }
    for (uint32_t id = s->first; id < s->first + s->n; id++) {
        count_operands(l, id);
        const struct dr_tnode *t = &l->node.at[id];
        for (uint32_t k = 0; k < t->n_named && t->out; k++) {
            add_value(l, s, id, k, t->out[k]->text, t->out[k]->mark);
        }
        if (!t->out) {
            add_value(l, s, id, t->n_out == 1 ? 0 : DR_NONE, t->name, t->mark);
        }
        l->node.at[id].port = s->n_ports;
        s->n_ports += t->n_out;
    }
    for (uint32_t id = s->first; id < s->first + s->n; id++) {
        const struct dr_tnode *t = &l->node.at[id];
        check_prefix(l, s, id, t->name, t->mark);
        for (uint32_t k = 0; k < t->n_named && t->out; k++) {
            check_prefix(l, s, id, t->out[k]->text, t->out[k]->mark);
        }
    }
}

/* ---- nothing depends on itself ---- */
static void node_cycle(void *ctx, const uint32_t *at, uint32_t n) {
    struct dr_load *l = ctx;
    uint32_t start = 0;
    for (uint32_t i = 1; i < n; i++) {
        start = at[i] < at[start] ? i : start;
    }
    const struct dr_tnode *first = &l->node.at[at[start]];
    dr_error(l->d, first->mark, "nodes of %s '%s' depend on each other in a cycle: %s",
             l->scope.at[first->scope].block ? "block" : "subgraph", l->scope.at[first->scope].name,
             cycle_names(l, at, n, true));
    for (uint32_t i = 0; i < n && i < 8; i++) { /* in the direction of the data */
        const uint32_t from = at[(start + n - i) % n], to = at[(start + n - i + n - 1) % n];
        const struct dr_tnode *t = &l->node.at[to];
        struct dr_mark mark = t->mark;
        for (uint32_t j = 0; j < t->n_in; j++) {
            if (t->in[j].kind == DR_TREF_NODE && t->in[j].index == from) {
                mark = t->in[j].mark;
            }
        }
        dr_note(l->d, mark, "'%s' needs '%s' here", t->name, l->node.at[from].name);
    }
    for (uint32_t i = 0; i < n; i++) {
        l->node.at[at[i]].bad = true;
    }
}

static void check_cycles(struct dr_load *l) {
    const uint32_t n = l->node.n;
    uint32_t edges = 0;
    for (uint32_t i = 0; i < n; i++) {
        edges += l->node.at[i].n_in + 1;
    }
    struct dr_edges e = {.n = n,
                         .first = DR_NEW_N(l->a, uint32_t, (size_t)n + 1),
                         .to = DR_NEW_N(l->a, uint32_t, (size_t)edges + 1)};
    edges = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct dr_tnode *t = &l->node.at[i];
        e.first[i] = edges;
        for (uint32_t j = 0; j < t->n_in; j++) {
            if (t->in[j].kind == DR_TREF_NODE) {
                e.to[edges++] = t->in[j].index;
            }
        }
        if (t->share != DR_NONE && !t->bad) {
            e.to[edges++] = t->share; /* who owns the weights comes first */
        }
    }
    e.first[n] = edges;
    dr_cycles(l->a, &e, NULL, node_cycle, l);
}

void dr_load_references(struct dr_load *l) {
    resolve_shares(l);
    const uint32_t *order = order_blocks(l);
    for (uint32_t i = 0; i < l->n_blocks; i++) {
        name_values(l, order[i]);
    }
    for (uint32_t i = l->n_blocks; i < l->scope.n; i++) {
        name_values(l, i);
    }
    for (uint32_t i = 0; i < l->node.n; i++) {
        struct dr_tnode *t = &l->node.at[i];
        for (uint32_t j = 0; j < t->n_in; j++) {
            if (t->in[j].kind == DR_TREF_BAD && !resolve(l, t->scope, &t->in[j], what_of(l, t))) {
                t->bad = true;
            }
        }
    }
    check_cycles(l);
}
