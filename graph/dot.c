/* A graph, and its plan where there is one, for Graphviz: `dot -Tsvg`.
 *
 * Top to bottom, a cluster a subgraph (its backward pass is one of its own), a colour a stream.
 * Forward nodes say name, op and shape; gradients and updates are small. Weights are not drawn. An
 * edge is dashed where it crosses streams, and says so where its value is made steps ahead.
 * Every id is synthetic and every text quoted, so that any name is safe. */
#include "graph/dot_groups.h"
#include <stdlib.h>
#include <string.h>

struct edge {
    uint32_t from, to; /* first nodes of groups */
    uint32_t value, index;
    uint32_t ahead, depth;
    bool crosses;
};

struct dot {
    const struct dr_dot *d;
    const struct dr_graph *g;
    struct dr_text *t;
    struct dr_dot_groups group;
    bool *alive; /* by node: something is done with its results */
    DR_VEC(struct edge) edge;
    uint32_t *unseen; /* by node: edges from it that are not drawn */
};

/* ---- text ---- */

/* Inside double quotes dot reads escapes (\N is the node's name) and, in labels, HTML entities. */
static void add_escaped(struct dr_text *t, const char *s) {
    while (*s) {
        const size_t plain = strcspn(s, "\"\\&\001\002\003\004\005\006\007\010\011\012\013\014\015"
                                        "\016\017\020\021\022\023\024\025\026\027\030\031\032\033"
                                        "\034\035\036\037\177");
        dr_text_bytes(t, s, plain);
        s += plain;
        if (*s == '"' || *s == '\\') {
            dr_text_add(t, "\\%c", *s);
        } else if (*s == '\n') {
            dr_text_add(t, "\\n");
        } else if (*s == '&') {
            const size_t n = strspn(s + 1, "#0123456789abcdefghijklmnopqrstuvwxyz"
                                           "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
            dr_text_add(t, n > 0 && s[1 + n] == ';' ? "&amp;" : "&");
        } else if (*s) {
            dr_text_add(t, " ");
        }
        s += *s != 0;
    }
}

/* Text for a comment: one line, whatever it holds. */
static void add_comment(struct dr_text *t, const char *s) {
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        dr_text_add(t, "%c", c < 0x20 || c == 0x7f ? ' ' : c);
    }
}

/* ---- colours ---- */
enum shade { FILL, LINE };

/* Light enough for black text, apart from each other for most eyes (after Okabe and Ito). */
static const char *const palette[8][2] = {
    {"#DCE9F9", "#3B73B9"}, {"#FDE6CF", "#C8741A"}, {"#D9F0DC", "#2F8F4E"}, {"#EADFF6", "#7A4FB0"},
    {"#FBF2C4", "#A58A12"}, {"#D3F0EE", "#1F8A84"}, {"#FADADF", "#B8404E"}, {"#E9E2DA", "#7D6750"}};

static void add_colour(struct dr_text *t, uint32_t i, enum shade shade) {
    if (i < 8) {
        dr_text_add(t, "%s", palette[i][shade]);
        return;
    }
    const uint32_t hue = i * 618 % 1000; /* golden section: neighbours differ most */
    dr_text_add(t, "0.%03u %s", hue, shade == FILL ? "0.160 0.970" : "0.700 0.650");
}

/* A colour a stream; without a plan, a role. */
static uint32_t colour_of(const struct dot *o, uint32_t node) {
    return o->d->stream ? o->d->stream[node] : (uint32_t)o->g->node.at[node].role;
}

/* ---- what is alive ---- */
static void find_alive(struct dot *o) {
    const struct dr_graph *g = o->g;
    o->alive = DR_NEW_N(g->arena, bool, g->node.n);
    for (uint32_t i = 0; i < g->term.n; i++) {
        o->alive[g->term.at[i].node] = true;
    }
    for (uint32_t i = 0; i < g->output.n; i++) {
        o->alive[g->value.at[g->output.at[i]].producer] = true;
    }
    if (g->total_loss != DR_NONE) {
        o->alive[g->value.at[g->total_loss].producer] = true;
    }
    for (uint32_t i = g->node.n; i-- > 0;) {
        const struct dr_node *n = &g->node.at[i];
        o->alive[i] |= n->role == DR_ROLE_READBACK;
        for (uint32_t j = 0; j < n->n_out; j++) {
            o->alive[i] |= g->value.at[n->out[j]].kind == DR_STATE || n->out[j] == g->header;
        }
        for (uint32_t j = 0; o->alive[i] && j < n->n_in; j++) {
            const struct dr_value *v = &g->value.at[n->in[j]];
            if (v->kind == DR_STEP) {
                o->alive[v->producer] = true;
            }
        }
    }
}

/* Its results leave the graph. */
static bool is_sink(const struct dr_graph *g, uint32_t node) {
    const struct dr_node *n = &g->node.at[node];
    for (uint32_t i = 0; i < g->output.n; i++) {
        if (g->value.at[g->output.at[i]].producer == node) {
            return true;
        }
    }
    return n->role == DR_ROLE_READBACK;
}

/* ---- nodes ---- */

/* At most `max` bytes, and no half characters. */
static const char *shortened(struct dr_arena *a, const char *s, size_t max) {
    size_t n = strlen(s);
    if (n <= max) {
        return s;
    }
    for (n = max; n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80;) {
        n--;
    }
    return dr_printf(a, "%.*s...", (int)n, s);
}

static void add_op_line(const struct dot *o, const struct dr_node *n) {
    struct dr_text attrs = {.arena = o->g->arena};
    if (strcmp(n->op->name, n->name) == 0) {
        return;
    }
    dr_text_add(o->t, "\\n");
    add_escaped(o->t, n->fused ? n->fused : n->op->name);
    if (n->op->n_attrs) {
        dr_attrs_print(n->op, n->attrs, &attrs);
    }
    if (attrs.n) {
        dr_text_add(o->t, " ");
        add_escaped(o->t, shortened(o->g->arena, attrs.at, 60));
    }
}

static void add_shape_line(const struct dot *o, const struct dr_node *n) {
    if (n->n_out && o->g->value.at[n->out[0]].kind == DR_STEP &&
        o->g->value.at[n->out[0]].shape.rank > 0) {
        const struct dr_value *v = &o->g->value.at[n->out[0]];
        dr_text_add(o->t, "\\n%s%s%s", v->dtype == DR_F32 ? "" : dr_dtype_name(v->dtype),
                    v->dtype == DR_F32 ? "" : " ", dr_shape_text(o->g->arena, &v->shape));
    }
}

/* Drawn small and grey: what is not the network itself. */
static bool is_small(const struct dr_node *n) {
    return n->role == DR_ROLE_BACKWARD || n->role == DR_ROLE_UPDATE || n->role == DR_ROLE_READBACK;
}

/* "decoder: backward (12 nodes)" */
static void add_small_group(const struct dot *o, uint32_t first) {
    const struct dr_node *n = &o->g->node.at[first];
    add_escaped(o->t, n->subgraph == DR_NONE ? "training" : o->g->subgraph.at[n->subgraph].name);
    dr_text_add(o->t, ": %s (%u nodes)", n->role == DR_ROLE_UPDATE ? "updates" : "backward",
                o->group.size[first]);
}

static void add_label(const struct dot *o, uint32_t first) {
    const struct dr_node *n = &o->g->node.at[first];
    const uint32_t size = o->group.size[first];
    if (size > 1 && is_small(n)) {
        add_small_group(o, first);
        return;
    }
    dr_text_add(o->t, "%s", n->frozen && !is_small(n) ? "\u2744 " : "");
    add_escaped(o->t, n->name);
    if (size > 1) {
        const struct dr_node *last = &o->g->node.at[o->group.last[first]];
        dr_text_add(o->t, " ... ");
        add_escaped(o->t, last->name);
        dr_text_add(o->t, "\\n");
        add_escaped(o->t, n->op->name);
        if (last->op != n->op || size > 2) {
            dr_text_add(o->t, " ... ");
            add_escaped(o->t, last->op->name);
        }
        dr_text_add(o->t, " (%u nodes)", size);
        add_shape_line(o, last);
    } else if (!is_small(n)) {
        add_op_line(o, n);
        add_shape_line(o, n);
    }
    if (size == 1 && o->unseen[first]) {
        dr_text_add(o->t, "\\n%u edge%s not drawn", o->unseen[first],
                    o->unseen[first] == 1 ? "" : "s");
    }
    if (!o->alive[first]) {
        dr_text_add(o->t, "\\ndead: nothing needs it");
    }
}

static void add_tooltip(const struct dot *o, uint32_t first) {
    const struct dr_node *n = &o->g->node.at[first];
    dr_text_add(o->t, "%s", n->fused ? n->fused : n->op->name);
    if (o->d->stream) {
        dr_text_add(o->t, ", stream %u", o->d->stream[first]);
    }
    if (o->d->stage) {
        dr_text_add(o->t, ", stage %u", o->d->stage[first]);
    }
    dr_text_add(o->t, ", %s, %s%s%s", dr_role_name(n->role), dr_frozen_class_name(n->cls),
                n->frozen ? ", frozen" : "", is_sink(o->g, first) ? ", sink" : "");
}

static void write_node(const struct dot *o, uint32_t first, const char *indent) {
    const struct dr_node *n = &o->g->node.at[first];
    struct dr_text *t = o->t;
    const uint32_t colour = colour_of(o, first);
    dr_text_add(t, "%sn%u [label=\"", indent, first);
    add_label(o, first);
    dr_text_add(t, "\"");
    if (!o->alive[first]) {
        dr_text_add(t, ", style=\"rounded,filled,dashed\", fillcolor=\"#FFFFFF\", "
                       "color=\"#C00000\", fontcolor=\"#C00000\"");
    } else {
        dr_text_add(t, ", color=\"");
        add_colour(t, colour, LINE);
        dr_text_add(t, "\", fillcolor=\"");
        if (is_small(n)) {
            dr_text_add(t, "#F5F5F5");
        } else {
            add_colour(t, colour, FILL);
        }
        dr_text_add(t, "\"");
    }
    if (is_small(n)) {
        dr_text_add(t, ", fontsize=8, fontcolor=\"#666666\", margin=\"0.06,0.02\"");
    }
    if (n->frozen && !is_small(n)) {
        dr_text_add(t, ", peripheries=2");
    }
    if (is_sink(o->g, first)) {
        dr_text_add(t, ", penwidth=2.5");
    }
    dr_text_add(t, ", tooltip=\"");
    add_tooltip(o, first);
    dr_text_add(t, "\"];\n");
}

/* ---- clusters: forward and backward parts of each subgraph, updates with the latter ---- */
enum part { NO_CLUSTER, FORWARD_PART, BACKWARD_PART };

static enum part part_of(const struct dr_node *n) {
    if (n->subgraph == DR_NONE || n->role == DR_ROLE_READBACK) {
        return NO_CLUSTER;
    }
    const bool behind = n->role == DR_ROLE_BACKWARD || n->role == DR_ROLE_UPDATE;
    return behind ? BACKWARD_PART : FORWARD_PART;
}

static void open_cluster(const struct dot *o, uint32_t subgraph, enum part part) {
    const struct dr_subgraph *s = &o->g->subgraph.at[subgraph];
    dr_text_add(o->t, "  subgraph cluster_%u_%s {\n    label=\"", subgraph,
                part == FORWARD_PART ? "forward" : "backward");
    dr_text_add(o->t, "%s", s->frozen ? "\u2744 " : "");
    add_escaped(o->t, s->name);
    dr_text_add(o->t, "%s%s\";\n", part == BACKWARD_PART ? ", backward and updates" : "",
                s->frozen ? " (frozen)" : "");
    dr_text_add(o->t,
                "    style=\"rounded,filled\"; color=\"#C9CDD2\"; fillcolor=\"%s\"; "
                "fontcolor=\"#555555\"; fontsize=12;\n",
                s->frozen ? "#F3F8FC" : "#FAFAFA");
}

static void write_nodes(const struct dot *o) {
    const struct dr_graph *g = o->g;
    const uint32_t n_lists = 2 * g->subgraph.n + 1; /* by cluster, linked in id order */
    uint32_t *head = DR_NEW_N(g->arena, uint32_t, n_lists), *next = NULL;
    next = DR_NEW_N(g->arena, uint32_t, g->node.n);
    memset(head, 0xff, sizeof *head * n_lists);
    for (uint32_t i = g->node.n; i-- > 0;) {
        if (o->group.of[i] != i) {
            continue;
        }
        const enum part part = part_of(&g->node.at[i]);
        const uint32_t list =
            part == NO_CLUSTER ? n_lists - 1 : 2 * g->node.at[i].subgraph + (part == BACKWARD_PART);
        next[i] = head[list];
        head[list] = i;
    }
    for (uint32_t l = 0; l < n_lists; l++) {
        const bool cluster = l < n_lists - 1;
        if (head[l] == DR_NONE) {
            continue;
        }
        if (cluster) {
            open_cluster(o, l / 2, l % 2 ? BACKWARD_PART : FORWARD_PART);
        }
        for (uint32_t i = head[l]; i != DR_NONE; i = next[i]) {
            write_node(o, i, cluster ? "    " : "  ");
        }
        dr_text_add(o->t, "%s", cluster ? "  }\n" : "");
    }
}

/* ---- edges ---- */
static int by_ends(const void *a, const void *b) {
    const struct edge *x = a, *y = b;
    if (x->from != y->from) {
        return x->from < y->from ? -1 : 1;
    }
    if (x->to != y->to) {
        return x->to < y->to ? -1 : 1;
    }
    if (x->ahead != y->ahead) {
        return x->ahead > y->ahead ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

static void collect_edges(struct dot *o) {
    const struct dr_graph *g = o->g;
    const struct dr_dot *d = o->d;
    o->unseen = DR_NEW_N(g->arena, uint32_t, g->node.n);
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        for (uint32_t j = 0; j < n->n_in; j++) {
            const struct dr_value *v = &g->value.at[n->in[j]];
            if (!dr_dot_is_plain(g, n->in[j])) {
                if (v->kind == DR_STEP) {
                    o->unseen[v->producer]++;
                }
                continue;
            }
            const uint32_t p = v->producer, from = o->group.of[p], to = o->group.of[i];
            if (from == to) {
                continue;
            }
            struct edge *e = dr_push(g->arena, &o->edge);
            *e = (struct edge){.from = from, .to = to, .value = n->in[j], .index = o->edge.n};
            e->crosses = dr_dot_stream(d, p) != dr_dot_stream(d, i);
            if (d->stage && d->stage[p] > d->stage[i]) {
                e->ahead = (uint32_t)(d->stage[p] - d->stage[i]);
            }
            e->depth = d->depth ? d->depth[n->in[j]] : 1;
        }
    }
    if (o->edge.n == 0) {
        return;
    }
    qsort(o->edge.at, o->edge.n, sizeof *o->edge.at, by_ends);
    uint32_t kept = 0; /* between groups one edge is enough; between nodes each one counts */
    for (uint32_t i = 0; i < o->edge.n; i++) {
        const struct edge *e = &o->edge.at[i];
        const bool twice =
            kept > 0 && o->edge.at[kept - 1].from == e->from && o->edge.at[kept - 1].to == e->to;
        if (!twice || (o->group.size[e->from] == 1 && o->group.size[e->to] == 1)) {
            o->edge.at[kept++] = *e;
        }
    }
    o->edge.n = kept;
}

static void write_edge(const struct dot *o, const struct edge *e) {
    const struct dr_node *to = &o->g->node.at[e->to];
    struct dr_text *t = o->t;
    dr_text_add(t, "  n%u -> n%u [", e->from, e->to);
    if (is_small(to) && !is_small(&o->g->node.at[e->from])) {
        /* what backward reads of forward is pale, and must not bend the network */
        dr_text_add(t, "color=\"#D0D0D0\", penwidth=0.5, arrowsize=0.4, weight=0");
    } else if (is_small(to)) {
        dr_text_add(t, "color=\"#999999\", penwidth=0.8, arrowsize=0.5");
    } else {
        dr_text_add(t, "color=\"");
        add_colour(t, colour_of(o, e->from), LINE);
        dr_text_add(t, "\", weight=4");
    }
    if (e->crosses) {
        dr_text_add(t, ", style=dashed");
    }
    if (e->ahead > 0 && !is_small(to)) {
        dr_text_add(t, ", label=\"  %u step%s ahead, %u buffer%s\"", e->ahead,
                    e->ahead == 1 ? "" : "s", e->depth, e->depth == 1 ? "" : "s");
    }
    dr_text_add(t, "];\n");
}

/* ---- the picture ---- */
static void write_legend(const struct dot *o) {
    struct dr_text *t = o->t;
    const uint32_t n = o->d->stream ? o->d->n_streams : DR_ROLES;
    uint32_t *nodes = DR_NEW_N(o->g->arena, uint32_t, 256);
    for (uint32_t i = 0; i < o->g->node.n; i++) {
        nodes[colour_of(o, i)]++;
    }
    dr_text_add(t, "  legend [shape=plain, style=\"\", label=<<table border=\"0\" "
                   "cellborder=\"1\" cellspacing=\"3\" cellpadding=\"4\">");
    for (uint32_t i = 0; i < n && i < 256; i++) {
        if (nodes[i] == 0) {
            continue;
        }
        dr_text_add(t, "<tr><td align=\"left\" style=\"rounded\" color=\"");
        add_colour(t, i, LINE);
        dr_text_add(t, "\" bgcolor=\"");
        add_colour(t, i, FILL);
        if (o->d->stream) {
            dr_text_add(t, "\">stream %u: %u node%s</td></tr>", i, nodes[i],
                        nodes[i] == 1 ? "" : "s");
        } else {
            dr_text_add(t, "\">%s: %u node%s</td></tr>", dr_role_name((enum dr_role)i), nodes[i],
                        nodes[i] == 1 ? "" : "s");
        }
    }
    dr_text_add(t, "<tr><td align=\"left\" border=\"0\">\u2744 frozen%s</td></tr></table>>];\n",
                o->d->stream ? "; dashed: across streams" : "");
}

void dr_dot_write(const struct dr_dot *d, struct dr_text *t) {
    struct dot o = {.d = d, .g = d->g, .t = t, .group = dr_dot_group(d, d->g->arena)};
    find_alive(&o);
    collect_edges(&o);
    dr_text_add(t, "// dagrun: ");
    add_comment(t, d->g->name);
    dr_text_add(t, ": %u nodes", d->g->node.n);
    if (o.group.n != d->g->node.n) {
        dr_text_add(t, " in %u boxes", o.group.n);
    }
    const uint32_t streams = d->stream ? d->n_streams : 1;
    dr_text_add(t, ", %u edges, %u stream%s\n", o.edge.n, streams, streams == 1 ? "" : "s");
    dr_text_add(t, "digraph dagrun {\n"
                   "  graph [rankdir=TB, labelloc=t, labeljust=l, fontsize=18, nodesep=0.25, "
                   "ranksep=0.4, fontname=\"Helvetica,Arial,sans-serif\", label=\"");
    add_escaped(t, d->title ? d->title : d->g->name);
    dr_text_add(t, "\"];\n"
                   "  node [shape=box, style=\"rounded,filled\", fontsize=11, height=0.2, "
                   "margin=\"0.12,0.06\", fontname=\"Helvetica,Arial,sans-serif\"];\n"
                   "  edge [fontsize=9, fontcolor=\"#555555\", arrowsize=0.7, "
                   "fontname=\"Helvetica,Arial,sans-serif\"];\n");
    if (d->g->node.n > 0) {
        write_legend(&o);
    }
    write_nodes(&o);
    for (uint32_t i = 0; i < o.edge.n; i++) {
        write_edge(&o, &o.edge.at[i]);
    }
    dr_text_add(t, "}\n");
}
