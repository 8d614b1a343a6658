/* The IR: types, shapes, values, nodes, users, inference of outputs and states, errors that show
 * the path of shapes, dr_graph_verify on broken graphs, the text of a graph. */
#include "tests/fake_ops.h"
#include <criterion/criterion.h>
#include <string.h>

#define HAS(text, part) cr_assert(strstr((text), (part)), "'%s' is not in:\n%s", (part), (text))

static const struct dr_mark no_mark = {0};

Test(ir, types) {
    static const struct {
        enum dr_dtype t;
        const char *name;
        size_t bytes;
    } cases[] = {{DR_U8, "u8", 1},   {DR_U16, "u16", 2},   {DR_I32, "i32", 4}, {DR_I64, "i64", 8},
                 {DR_F16, "f16", 2}, {DR_BF16, "bf16", 2}, {DR_F32, "f32", 4}, {DR_F64, "f64", 8}};
    cr_assert_eq(sizeof cases / sizeof *cases, DR_DTYPES);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_str_eq(dr_dtype_name(cases[i].t), cases[i].name);
        cr_assert_eq(dr_dtype_bytes(cases[i].t), cases[i].bytes, "%s", cases[i].name);
    }
    cr_assert_str_eq(dr_role_name(DR_ROLE_READBACK), "readback");
    cr_assert_str_eq(dr_frozen_class_name(DR_IN_PATH), "in the path");
}

Test(ir, shapes) {
    struct dr_arena *a = dr_arena_create();
    static const struct {
        struct dr_shape s;
        bool ok;
        int64_t n;
        const char *text;
    } cases[] = {
        {{.rank = 0}, true, 1, "[]"},
        {{.rank = 4, .dim = {32, 56, 56, 64}}, true, 6422528, "[32, 56, 56, 64]"},
        {{.rank = 2, .dim = {3, 0}}, false, 0, "[3, 0]"},
        {{.rank = 1, .dim = {-1}}, false, 0, "[-1]"},
        {{.rank = 3, .dim = {INT64_C(1) << 31, INT64_C(1) << 31, 2}}, false, 0, NULL},
        {{.rank = 2, .dim = {INT64_C(1) << 31, INT64_C(1) << 31}}, true, INT64_C(1) << 62, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t n = 0;
        cr_assert_eq(dr_shape_elements(&cases[i].s, &n), cases[i].ok, "case %zu", i);
        cr_assert(!cases[i].ok || n == cases[i].n, "case %zu: %lld", i, (long long)n);
        if (cases[i].text) {
            cr_assert_str_eq(dr_shape_text(a, &cases[i].s), cases[i].text);
        }
    }
    const struct dr_shape x = DR_SHAPE(2, 3), y = DR_SHAPE(2, 3), z = DR_SHAPE(2, 3, 1);
    cr_assert(dr_shape_equal(&x, &y) && !dr_shape_equal(&x, &z));
    dr_arena_destroy(a);
}

Test(ir, impossible_sizes_are_errors) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    cr_assert_eq(dr_graph_value(g, "big", DR_STEP, DR_F64,
                                DR_SHAPE(INT64_C(1) << 30, INT64_C(1) << 30), no_mark),
                 DR_NONE);
    cr_assert_eq(dr_graph_value(g, "huge", DR_STEP, DR_U8,
                                DR_SHAPE(INT64_C(1) << 40, INT64_C(1) << 40), no_mark),
                 DR_NONE);
    const uint32_t v = dr_graph_value(g, "fits", DR_STATE, DR_U8,
                                      DR_SHAPE(INT64_C(1) << 30, INT64_C(1) << 30), no_mark);
    cr_assert_neq(v, DR_NONE);
    cr_assert_eq(g->value.at[v].bytes, INT64_C(1) << 60);
    cr_assert_eq(dr_diag_errors(g->diag), 2);
    HAS(fake_text(g), "'big' would be [1073741824, 1073741824] of f64");
    fake_free(g);
}

Test(ir, users_are_in_order_one_entry_a_use) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", DR_SHAPE(1, 4));
    const uint32_t y = fake_add2(g, "net.y", "add", x, x);
    const uint32_t z = fake_add2(g, "net.z", "mul", x, y);
    const struct dr_users u = dr_graph_users(g, g->arena);
    const uint32_t ny = g->value.at[y].producer, nz = g->value.at[z].producer;
    const uint32_t want[] = {ny, ny, nz};
    cr_assert_eq(u.first[x + 1] - u.first[x], 3);
    cr_assert_eq(memcmp(u.user + u.first[x], want, sizeof want), 0);
    cr_assert_eq(u.first[z + 1], u.first[z]);
    fake_free(g);
}

Test(ir, names_of_outputs_and_states) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 2);
    fake_subgraph(g, "net", false);
    const uint32_t x = fake_data(g, "x", DR_SHAPE(2, 4));
    const uint32_t n =
        dr_graph_node(g, "net.bn", fake_op("norm"), NULL, &x, 1, DR_ROLE_FORWARD, no_mark);
    static const char *const names[] = {"net.bn:pre"};
    g->node.at[n].out_names = names; /* the op has one output with a name in the YAML */
    struct dr_infer c = {.g = g, .node = n};
    cr_assert(g->node.at[n].op->infer(&c));
    cr_assert_eq(g->node.at[n].n_out, 2);
    cr_assert_str_eq(g->value.at[g->node.at[n].out[0]].name, "net.bn:pre");
    cr_assert_str_eq(g->value.at[g->node.at[n].out[1]].name, "net.bn.mean");
    cr_assert_neq(fake_value(g, "net.bn.weight"), DR_NONE);
    cr_assert_neq(fake_value(g, "net.bn.running_mean"), DR_NONE);
    cr_assert_eq(g->value.at[fake_value(g, "net.bn.running_mean")].cls, DR_BUFFER);
    fake_free(g);
}

Test(ir, shared_nodes_use_their_owners_states) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", DR_SHAPE(1, 4));
    fake_add1(g, "net.a", "scale", x);
    fake_share(g, "net.b", "net.a", x);
    fake_share(g, "net.c", "net.b", x); /* through a chain */
    const uint32_t w = fake_value(g, "net.a.weight");
    cr_assert_eq(g->node.at[fake_node(g, "net.b")].in[1], w);
    cr_assert_eq(g->node.at[fake_node(g, "net.c")].in[1], w);
    cr_assert_eq(g->value.at[w].owner, fake_node(g, "net.a"));
    cr_assert_eq(fake_value(g, "net.b.weight"), DR_NONE);
    fake_free(g);
}

static bool wide_infer(struct dr_infer *c) {
    return dr_infer_out(c, NULL, DR_F32, DR_SHAPE(1), DR_PLAIN) &&
           dr_infer_state(c, "weight", DR_WEIGHT, DR_F32, dr_infer_in(c, 0)->shape,
                          (struct dr_init){.kind = DR_INIT_ZERO});
}

Test(ir, shared_states_must_agree) {
    static const struct dr_op wide = {.name = "wide", .infer = wide_infer, .outputs = 1};
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "x", DR_SHAPE(1, 4)), y = fake_data(g, "y", DR_SHAPE(1, 5));
    const uint32_t a = dr_graph_emit(g, "net.a", &wide, NULL, &x, 1, DR_ROLE_FORWARD, no_mark);
    const uint32_t b = dr_graph_node(g, "net.b", &wide, NULL, &y, 1, DR_ROLE_FORWARD, no_mark);
    g->node.at[b].share = a;
    struct dr_infer c = {.g = g, .node = b};
    cr_assert_not(wide.infer(&c));
    HAS(fake_text(g), "wide 'net.b': it shares 'net.a.weight', which is [1, 4] of f32, but needs "
                      "[1, 5] of f32");
    fake_free(g);
}

Test(ir, two_values_of_one_name_are_an_error) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "net.a", DR_SHAPE(1, 4));
    cr_assert_eq(fake_add1(g, "net.a", "unary", x), DR_NONE);
    HAS(fake_text(g), "two values called 'net.a'");
    fake_free(g);
}

/* 143 x 90 halved twice and doubled back misses its skip connection by one. */
Test(ir, AUG_09_the_message_shows_the_path_of_shapes) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    const uint32_t x = fake_data(g, "image", DR_SHAPE(1, 143, 90, 3));
    const uint32_t p1 = fake_add1(g, "net.p1", "half", x);
    const uint32_t p2 = fake_add1(g, "net.p2", "half", p1);
    const uint32_t up = fake_add1(g, "net.up", "twice", p2);
    cr_assert_eq(fake_add2(g, "net.join", "add", up, p1), DR_NONE);
    const char *text = fake_text(g);
    HAS(text, "error: add 'net.join': [1, 70, 44, 3] and [1, 71, 45, 3] differ");
    HAS(text, "its input 'net.up' is [1, 70, 44, 3]: image [1, 143, 90, 3] -> net.p1 [1, 71, 45, "
              "3] -> net.p2 [1, 35, 22, 3] -> net.up [1, 70, 44, 3]");
    HAS(text, "its input 'net.p1' is [1, 71, 45, 3]: image [1, 143, 90, 3] -> net.p1 [1, 71, 45, "
              "3]");
    cr_assert_eq(dr_diag_errors(g->diag), 1);
    fake_free(g);
}

Test(ir, long_paths_and_many_inputs_stay_short) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    uint32_t v = fake_data(g, "x", DR_SHAPE(1, 4)), in[100];
    for (int i = 0; i < 100; i++) {
        v = fake_add1(g, dr_printf(g->arena, "net.n%d", i), "unary", v);
        in[i] = v;
    }
    in[99] = fake_data(g, "y", DR_SHAPE(1, 5));
    cr_assert_eq(fake_add(g, "net.all", "add", in, 100), DR_NONE);
    const char *text = fake_text(g);
    uint32_t notes = 0;
    for (const char *p = text; (p = strstr(p, "its input")); p++) {
        notes++;
    }
    cr_assert_eq(notes, 8);
    cr_assert_lt(strlen(text), 4000);
    fake_free(g);
}

/* ---- dr_graph_verify ---- */
enum breach {
    FINE,
    INPUT_RANGE,
    OUTPUT_RANGE,
    READ_BEFORE,
    TWO_PRODUCERS,
    NO_PRODUCER,
    NOT_LISTED,
    SAME_NODE_NAME,
    WRONG_BYTES,
    STATE_BY_FORWARD,
    FROZEN_WRITTEN,
    DATA_WITH_INPUT,
    READBACK_OUT,
    SUBGRAPH_RANGE,
    SHARE_BELOW,
    HEADER_RANGE,
    TERM_RANGE,
    RENAMED,
    OUTPUT_TWICE,
    BREACHES
};
static const char *const breach_text[BREACHES] = {
    [INPUT_RANGE] = "node 'net.a': input 0 is no value",
    [OUTPUT_RANGE] = "node 'net.a': output 0 is no value",
    [READ_BEFORE] = "node 'net.a' reads 'net.b' before it is made",
    [TWO_PRODUCERS] = "node 'net.b' makes 'net.a', which another node makes",
    [NO_PRODUCER] = "value 'net.b' has no producer",
    [NOT_LISTED] = "value 'net.b': its producer 'net.b' does not list it",
    [SAME_NODE_NAME] = "two nodes are called 'net.a'",
    [WRONG_BYTES] = "value 'net.a': its bytes do not follow from its shape",
    [STATE_BY_FORWARD] = "node 'net.b' writes the state 'net.a.weight' but is no update",
    [FROZEN_WRITTEN] = "writes the frozen state 'net.a.weight'",
    [DATA_WITH_INPUT] = "data node 'data.x' must have no input and one output",
    [READBACK_OUT] = "readback node 'net.b' has outputs",
    [SUBGRAPH_RANGE] = "node 'net.a': subgraph or optimizer out of range",
    [SHARE_BELOW] = "is not above it",
    [HEADER_RANGE] = "the graph's header",
    [TERM_RANGE] = "the node or values of 'loss' are out of range",
    [RENAMED] = "its name is another's or not in the index",
    [OUTPUT_TWICE] = "node 'net.b' lists its output 'net.b' twice",
};

static void break_it(struct dr_graph *g, enum breach b) {
    struct dr_node *na = &g->node.at[fake_node(g, "net.a")],
                   *nb = &g->node.at[fake_node(g, "net.b")];
    const uint32_t a = fake_value(g, "net.a"), vb = fake_value(g, "net.b");
    const uint32_t w = fake_value(g, "net.a.weight");
    switch (b) {
    case INPUT_RANGE:
        na->in[0] = 1000;
        break;
    case OUTPUT_RANGE:
        na->out[0] = DR_NONE;
        break;
    case READ_BEFORE:
        na->in[0] = vb;
        break;
    case TWO_PRODUCERS:
        nb->out[0] = a;
        break;
    case NO_PRODUCER:
        nb->n_out = 0;
        g->value.at[vb].producer = DR_NONE;
        break;
    case NOT_LISTED:
        nb->n_out = 0;
        break;
    case SAME_NODE_NAME:
        nb->name = "net.a";
        break;
    case WRONG_BYTES:
        g->value.at[a].bytes++;
        break;
    case STATE_BY_FORWARD:
        nb->out[0] = w;
        break;
    case FROZEN_WRITTEN:
        g->value.at[w].frozen = true;
        break;
    case DATA_WITH_INPUT:
        g->node.at[fake_node(g, "data.x")].n_out = 0;
        break;
    case READBACK_OUT:
        nb->role = DR_ROLE_READBACK;
        break;
    case SUBGRAPH_RANGE:
        na->subgraph = 7;
        break;
    case SHARE_BELOW:
        na->share = fake_node(g, "net.b");
        break;
    case HEADER_RANGE:
        g->header = 1000;
        break;
    case TERM_RANGE:
        g->term.at[0].partial = DR_NONE;
        break;
    case RENAMED:
        g->value.at[a].name = "other";
        break;
    case OUTPUT_TWICE:
        nb->out = (uint32_t *)memcpy(DR_NEW_N(g->arena, uint32_t, 2), (uint32_t[]){vb, vb}, 8);
        nb->n_out = 2;
        break;
    case FINE:
    case BREACHES:
        break;
    }
}

Test(ir, verify_names_the_breach) {
    for (enum breach b = FINE; b < BREACHES; b++) {
        struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
        const uint32_t x = fake_data(g, "x", DR_SHAPE(1, 4));
        const uint32_t a = fake_add1(g, "net.a", "scale", x);
        fake_loss(g, "loss", 1, fake_add1(g, "net.b", "unary", a));
        g = fake_passes(g);
        cr_assert(g);
        break_it(g, b);
        const char *why = NULL;
        cr_assert_eq(dr_graph_verify(g, &why), b == FINE, "breach %d", (int)b);
        if (b != FINE) {
            cr_assert(why && strstr(why, breach_text[b]), "breach %d: %s", (int)b, why);
        }
        fake_free(g);
    }
}

Test(ir, dump_is_one_line_a_node) {
    struct dr_graph *g = fake_graph(DR_MODE_TRAIN, 1);
    fake_subgraph(g, "enc", true);
    const uint32_t x = fake_data(g, "x", DR_SHAPE(1, 4));
    const uint32_t a = fake_add1(g, "enc.a", "scale", x);
    fake_subgraph(g, "net", false);
    fake_loss(g, "loss", 1, fake_add1(g, "net.b", "scale", a));
    g = fake_passes(g);
    cr_assert(g);
    struct dr_text t = {.arena = g->arena};
    dr_graph_dump(g, &t);
    HAS(t.at, "graph fake: train, batch 1, ");
    HAS(t.at, "state  weight  enc.a.weight  f32 []; frozen\n");
    HAS(t.at,
        "forward   upstream     enc.a = scale (x, enc.a.weight) -> enc.a f32 [1, 4]; frozen\n");
    HAS(t.at, "update    updated      net.b.weight:sgd = sgd (net.b.weight, net.b:wgrad, train:lr, "
              "train:health, net.b.weight:sgd.momentum) -> net.b.weight, "
              "net.b.weight:sgd.momentum; of net.b\n");
    uint32_t lines = 0, states = 0;
    for (const char *p = t.at; *p; p++) {
        lines += *p == '\n';
    }
    for (uint32_t i = 0; i < g->value.n; i++) {
        states += g->value.at[i].kind == DR_STATE;
    }
    cr_assert_eq(lines, 1 + states + g->node.n);
    fake_free(g);
}
