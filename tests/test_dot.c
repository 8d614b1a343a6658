/* The Graphviz text: quoting, colours, what edges say, collapsing, size and time. Where dot is
 * installed it must be able to read all of it. */
#include "tests/fake_ops.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HAS(text, part) cr_assert(strstr((text), (part)), "'%s' is not in:\n%s", (part), (text))
#define ONE DR_SHAPE(1, 1)

static const char *write_dot(const struct dr_dot *d) {
    struct dr_text t = {.arena = d->g->arena};
    dr_dot_write(d, &t);
    return t.at;
}

/* By hand: AddressSanitizer's strstr looks at the whole rest of the text at every call. */
static uint32_t occurrences(const char *text, const char *part) {
    uint32_t n = 0;
    for (const char *p = text; *p; p++) {
        size_t i = 0;
        while (part[i] && p[i] == part[i]) {
            i++;
        }
        n += part[i] == 0;
    }
    return n;
}

/* What `dot FORMAT` makes of it; NULL where dot is not installed. Fails the test if dot does. */
static char *drawn(struct dr_arena *a, const char *text, const char *format) {
    if (system("command -v dot >/dev/null 2>&1") != 0) {
        cr_log_warn("dot is not installed: its reading of the text is not tested");
        return NULL;
    }
    char path[] = "/tmp/dagrun_dot_XXXXXX";
    const int fd = mkstemp(path);
    cr_assert(fd >= 0);
    FILE *f = fdopen(fd, "w");
    cr_assert(fputs(text, f) >= 0 && fclose(f) == 0);
    FILE *p = popen(dr_printf(a, "dot %s %s 2>&1", format, path), "r");
    cr_assert(p);
    struct dr_text out = {.arena = a};
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, p)) > 0;) {
        dr_text_bytes(&out, buffer, n);
    }
    cr_assert_eq(pclose(p), 0, "dot failed: %s", out.at);
    unlink(path);
    return out.at;
}

Test(dot, DOT_01_names_that_need_quoting) {
    char longest[301];
    memset(longest, 'x', 300);
    longest[300] = 0;
    const struct {
        const char *name, *label, *svg; /* as dot text, and as SVG shows it */
    } cases[] = {
        {"node", "node", ">node<"},
        {"graph", "graph", ">graph<"},
        {"Edge", "Edge", ">Edge<"},
        {"strict", "strict", ">strict<"},
        {"a:b", "a:b", ">a:b<"},
        {"a\"b", "a\\\"b", ">a&quot;b<"},
        {"a\"b\\c", "a\\\"b\\\\c", ">a&quot;b\\c<"},
        {"C:\\dir\\", "C:\\\\dir\\\\", ">C:\\dir\\<"},
        {"\\N", "\\\\N", ">\\N<"},
        {"-1", "-1", NULL},
        {"1.5.2", "1.5.2", ">1.5.2<"},
        {"conv 1", "conv 1", ">conv 1<"},
        {"\u5377\u79ef1", "\u5377\u79ef1", ">\u5377\u79ef1<"},
        {"two\nlines", "two\\nlines", ">two<"},
        {"R&D", "R&D", ">R&amp;D<"},
        {"a&lt;b", "a&amp;lt;b", ">a&amp;lt;b<"},
        {"<b>bold</b>", "<b>bold</b>", ">&lt;b&gt;bold&lt;/b&gt;<"},
        {longest, longest, longest},
    };
    struct dr_graph *g = fake_graph(DR_MODE_INFER, 1);
    fake_subgraph(g, "a\"b\\", false);
    const uint32_t x = fake_data(g, "x", ONE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        *dr_push(g->arena, &g->output) = fake_add1(g, cases[i].name, "unary", x);
    }
    const struct dr_dot d = {.g = g, .title = "a \"title\"\\"};
    const char *text = write_dot(&d);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t id = fake_node(g, cases[i].name);
        HAS(text, dr_printf(g->arena, "n%u [label=\"%s\\nunary\\n[1, 1]\"", id, cases[i].label));
    }
    HAS(text, "label=\"a \\\"title\\\"\\\\\"");
    HAS(text, "label=\"a\\\"b\\\\\"");
    const char *svg = drawn(g->arena, text, "-Tsvg");
    for (size_t i = 0; svg && i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].svg) {
            HAS(svg, cases[i].svg);
        }
    }
    fake_free(g);
}

/* A graph with a plan: an input and a frozen node that run ahead, two streams. */
Test(dot, streams_stages_frozen_and_edges) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", DR_SHAPE(1, 8, 8, 3));
    fake_subgraph(g, "enc", true);
    const uint32_t e = fake_add1(g, "enc.a", "scale", x);
    fake_subgraph(g, "net", false);
    fake_loss(g, "loss", 1, fake_add1(g, "net.r", "relu", fake_add1(g, "net.b", "scale", e)));
    g = fake_passes(g);
    cr_assert(g);
    uint8_t *stream = DR_NEW_N(g->arena, uint8_t, g->node.n);
    uint8_t *stage = DR_NEW_N(g->arena, uint8_t, g->node.n);
    uint32_t *depth = DR_NEW_N(g->arena, uint32_t, g->value.n);
    const uint32_t nx = fake_node(g, "data.x"), na = fake_node(g, "enc.a");
    const uint32_t nb = fake_node(g, "net.b"), loss = fake_node(g, "loss");
    stream[nx] = stream[na] = 1;
    stage[nx] = 3;
    stage[na] = 1;
    for (uint32_t i = 0; i < g->value.n; i++) {
        depth[i] = i == e ? 2 : 4;
    }
    const struct dr_dot d = {.g = g,
                             .stream = stream,
                             .stage = stage,
                             .depth = depth,
                             .n_streams = 2,
                             .title = "fake: policy stage, 2 streams",
                             .whole = true};
    const char *text = write_dot(&d);
    cr_assert_eq(strncmp(text, "// dagrun: fake: ", 17), 0);
    HAS(text, dr_printf(g->arena, ": %u nodes, %u edges, 2 streams\ndigraph dagrun {\n", g->node.n,
                        occurrences(text, " -> ")));
    HAS(text, dr_printf(g->arena,
                        "n%u [label=\"\u2744 enc.a\\nscale\\n[1, 8, 8, 3]\", "
                        "color=\"#C8741A\", fillcolor=\"#FDE6CF\", peripheries=2, "
                        "tooltip=\"scale, stream 1, stage 1, forward, upstream, "
                        "frozen\"];\n",
                        na));
    HAS(text, dr_printf(g->arena,
                        "n%u [label=\"net.b\\nscale + relu\\n[1, 8, 8, 3]\", "
                        "color=\"#3B73B9\", ",
                        nb));
    HAS(text, dr_printf(g->arena,
                        "n%u -> n%u [color=\"#C8741A\", weight=4, label=\"  2 steps "
                        "ahead, 4 buffers\"];\n",
                        nx, na));
    HAS(text, dr_printf(g->arena,
                        "n%u -> n%u [color=\"#C8741A\", weight=4, style=dashed, "
                        "label=\"  1 step ahead, 2 buffers\"];\n",
                        na, nb));
    HAS(text, dr_printf(g->arena, "n%u -> n%u [color=\"#3B73B9\", weight=4];\n", nb, loss));
    HAS(text, "label=\"\u2744 enc (frozen)\"");
    HAS(text, "label=\"net, backward and updates\"");
    HAS(text, "stream 1: 2 nodes");
    HAS(text, "train:lr\\n1 edge not drawn"); /* to the one weight's sgd */
    HAS(text, "readback, stream 0, stage 0, readback, updated, sink");
    cr_assert_null(strstr(text, "weight\\n"), "states are not drawn");
    cr_assert_eq(occurrences(text, "tooltip="), g->node.n);
    drawn(g->arena, text, "-Tplain");
    fake_free(g);
}

/* Two trained nodes in a chain: gradients of each by input and weight, one update each. */
Test(dot, gradients_and_updates_of_a_subgraph_are_a_box_each) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", ONE);
    fake_subgraph(g, "net", false);
    fake_loss(g, "loss", 1, fake_add1(g, "net.b", "scale", fake_add1(g, "net.a", "scale", x)));
    g = fake_passes(g);
    cr_assert(g);
    uint32_t backward = 0, updates = 0;
    for (uint32_t i = 0; i < g->node.n; i++) {
        const struct dr_node *n = &g->node.at[i];
        backward += n->role == DR_ROLE_BACKWARD && n->subgraph != DR_NONE;
        updates += n->role == DR_ROLE_UPDATE && n->subgraph != DR_NONE;
    }
    cr_assert(backward >= 3 && updates == 2, "%u %u", backward, updates);
    const struct dr_dot d = {.g = g};
    const char *text = write_dot(&d);
    HAS(text, dr_printf(g->arena, "label=\"net: backward (%u nodes)\"", backward));
    HAS(text, "label=\"net: updates (2 nodes)\"");
    cr_assert_null(strstr(text, "net.a:"), "no gradient is a box of its own");
    drawn(g->arena, text, "-Tplain");
    fake_free(g);
}

Test(dot, STR_05_dead_nodes_and_sinks_are_marked) {
    struct dr_graph *g = fake_graph(DR_MODE_INFER, 1);
    const uint32_t x = fake_data(g, "x", ONE);
    *dr_push(g->arena, &g->output) = fake_add1(g, "net.out", "unary", x);
    const uint32_t c = fake_add1(g, "net.c", "unary", x);
    fake_add1(g, "net.d", "unary", c); /* nothing needs it, nor what it reads */
    const struct dr_dot d = {.g = g};
    const char *text = write_dot(&d);
    cr_assert_eq(occurrences(text, "dead: nothing needs it"), 2);
    HAS(text, "net.d\\nunary\\n[1, 1]\\ndead: nothing needs it");
    HAS(text, "unary, forward, upstream, sink");
    cr_assert_eq(occurrences(text, "penwidth=2.5"), 1);
    fake_free(g);
}

Test(dot, DOT_03_the_same_input_twice_is_two_edges) {
    struct dr_graph *g = fake_graph(DR_MODE_INFER, 1);
    const uint32_t x = fake_data(g, "x", ONE), h = fake_add1(g, "net.h", "unary", x);
    *dr_push(g->arena, &g->output) = fake_add2(g, "net.y", "add", h, h);
    const struct dr_dot d = {.g = g};
    const char *text = write_dot(&d);
    cr_assert_eq(occurrences(text, dr_printf(g->arena, "n%u -> n%u [", fake_node(g, "net.h"),
                                             fake_node(g, "net.y"))),
                 2);
    HAS(text, ": 4 nodes, 3 edges, 1 stream\n");
    fake_free(g);
}

/* A chain of n nodes; `streams` of them in turn, or one after another. */
static struct dr_graph *chain(uint32_t n, uint32_t streams, bool in_turn, uint8_t **stream) {
    struct dr_graph *g = fake_graph(DR_MODE_INFER, 1);
    fake_subgraph(g, "net", false);
    uint32_t v = fake_data(g, "x", ONE);
    for (uint32_t i = 0; i < n; i++) {
        v = fake_add1(g, dr_printf(g->arena, "net.n%u", i), i % 2 ? "unary" : "scale", v);
    }
    *dr_push(g->arena, &g->output) = v;
    *stream = DR_NEW_N(g->arena, uint8_t, g->node.n);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t node = fake_node(g, "net.n0") + i;
        (*stream)[node] = (uint8_t)(in_turn ? i % streams : i / (n / streams));
    }
    return g;
}

Test(dot, DOT_03_ten_thousand_nodes, .timeout = 30) {
    for (int in_turn = 0; in_turn < 2; in_turn++) {
        uint8_t *stream;
        struct dr_graph *g = chain(10000, 8, in_turn, &stream);
        struct dr_dot d = {.g = g, .stream = stream, .n_streams = 8};
        for (int whole = 0; whole < 2; whole++) {
            d.whole = whole;
            const clock_t start = clock();
            const char *text = write_dot(&d);
            cr_assert_lt((double)(clock() - start) / CLOCKS_PER_SEC, 2.0);
            const uint32_t boxes = occurrences(text, "tooltip=");
            const uint32_t edges = occurrences(text, " -> ");
            if (whole) {
                cr_assert_eq(boxes, g->node.n);
                cr_assert_eq(edges, 10000);
                HAS(text, ": 10002 nodes, 10000 edges, 8 streams\n");
                cr_assert_lt(strlen(text), 400 * (size_t)g->node.n);
            } else {
                cr_assert_lt(boxes, 200);
                HAS(text, dr_printf(g->arena, ": 10002 nodes in %u boxes, %u edges", boxes, edges));
                drawn(g->arena, text, "-Tplain");
                if (!in_turn) { /* one box a stream */
                    cr_assert_eq(boxes, 2 + 8);
                    HAS(text, "net.n1250 ... net.n2499\\nscale ... unary (1250 nodes)\\n[1, 1]");
                }
            }
        }
        fake_free(g);
    }
}

Test(dot, DOT_03_a_node_with_5000_inputs, .timeout = 30) {
    struct dr_graph *g = fake_graph(DR_MODE_INFER, 1);
    const uint32_t n = 5000;
    uint32_t *in = DR_NEW_N(g->arena, uint32_t, n);
    const uint32_t x = fake_data(g, "x", ONE);
    for (uint32_t i = 0; i < n; i++) {
        in[i] = i % 2 ? fake_add1(g, dr_printf(g->arena, "u%u", i), "unary", x) : x;
    }
    *dr_push(g->arena, &g->output) = fake_add(g, "y", "add", in, n);
    struct dr_dot d = {.g = g, .whole = true};
    cr_assert_eq(occurrences(write_dot(&d), " -> "), n + n / 2);
    d.whole = false;
    const char *text = write_dot(&d);
    cr_assert_lt(occurrences(text, "tooltip="), 200);
    drawn(g->arena, text, "-Tplain");
    fake_free(g);
}

/* A deep training graph: the backward pass reads every activation, which must not keep the chains
 * of the forward pass from collapsing. */
Test(dot, DOT_03_deep_training_graphs_collapse, .timeout = 30) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    fake_subgraph(g, "net", false);
    uint32_t v = fake_data(g, "x", ONE);
    for (uint32_t i = 0; i < 400; i++) {
        v = fake_add1(g, dr_printf(g->arena, "net.n%u", i), i % 2 ? "norm" : "scale", v);
    }
    fake_loss(g, "loss", 1, v);
    g = fake_passes(g);
    cr_assert(g);
    uint8_t *stream = DR_NEW_N(g->arena, uint8_t, g->node.n);
    for (uint32_t i = 0; i < g->node.n; i++) {
        stream[i] = strstr(g->node.at[i].name, "wgrad") != NULL;
    }
    const struct dr_dot d = {.g = g, .stream = stream, .n_streams = 2};
    const char *text = write_dot(&d);
    cr_assert_lt(occurrences(text, "tooltip="), 200);
    HAS(text, "net.n0 ... net.n399\\nscale ... norm (400 nodes)");
    drawn(g->arena, text, "-Tplain");
    fake_free(g);
}

Test(dot, many_streams_have_colours_of_their_own) {
    uint8_t *stream;
    struct dr_graph *g = chain(32, 32, true, &stream);
    const struct dr_dot d = {.g = g, .stream = stream, .n_streams = 32};
    const char *text = write_dot(&d), *colour[32];
    for (uint32_t i = 0; i < 32; i++) {
        const char *at =
            strstr(text, dr_printf(g->arena, "    n%u [label", fake_node(g, "net.n0") + i));
        cr_assert(at);
        at = strstr(at, "fillcolor=\"");
        colour[i] = dr_strndup(g->arena, at, strcspn(at, ","));
        for (uint32_t j = 0; j < i; j++) {
            cr_assert_str_neq(colour[i], colour[j], "streams %u and %u", i, j);
        }
    }
    drawn(g->arena, text, "-Tplain");
    fake_free(g);
}

Test(dot, an_empty_graph_is_a_file_too) {
    struct dr_arena *a = dr_arena_create();
    struct dr_graph *g = dr_graph_create(a, dr_diag_create(a), "two\nlines");
    const struct dr_dot d = {.g = g};
    const char *text = write_dot(&d);
    HAS(text, "// dagrun: two lines: 0 nodes, 0 edges, 1 stream\n");
    drawn(a, text, "-Tplain");
    dr_arena_destroy(a);
}
