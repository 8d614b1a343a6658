/* sub to sigmoid: values worked out by hand, what is refused, and the words of `activation:`. */
#include "graph/passes.h"
#include "tests/fake_harness.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define MOST 4

struct values {
    const char *op, *attrs;
    float a[MOST], b[MOST], y[MOST]; /* b: of ops of two inputs */
    float da[MOST], db[MOST];        /* for a dy of 1, 2, 3, 4 */
};

static void near(const float *got, const float *want, const struct values *c, const char *what) {
    for (int i = 0; i < MOST; i++)
        cr_assert(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])) ||
                      fabsf(got[i] - want[i]) <= 2e-6f * fabsf(want[i]),
                  "%s %s: %s[%d] is %.9g, not %.9g", c->op, c->attrs, what, i, (double)got[i],
                  (double)want[i]);
}

static void check(const struct values *c) {
    struct rig r = rig_create(2);
    const uint32_t n_in = dr_op_find(dr_ops(), c->op)->min_in;
    const uint32_t in[] = {rig_floats(&r, "a", DR_SHAPE(2, 2), c->a),
                           rig_floats(&r, "b", DR_SHAPE(2, 2), c->b)};
    const uint32_t dy = rig_floats(&r, "dy", DR_SHAPE(2, 2), (float[]){1, 2, 3, 4});
    const uint32_t n = rig_op(&r, "op", c->op, c->attrs, in, n_in);
    cr_assert_neq(n, DR_NONE, "%s", rig_text(&r));
    uint32_t dx[2];
    rig_grad(&r, n, &dy, (const bool[]){true, true}, 1, dx);
    rig_run(&r);
    near(rig_f32(&r, rig_out(&r, n, 0)), c->y, c, "y");
    near(rig_f32(&r, dx[0]), c->da, c, "da");
    if (n_in == 2)
        near(rig_f32(&r, dx[1]), c->db, c, "db");
    rig_free(&r);
}

Test(pointwise, values_by_hand) {
    const float inf = INFINITY, nan = NAN;
    /* Phi(1) = 0.841344746, phi(1) = 0.241970725; sigmoid(1) = 0.731058579; of the tanh form
     * 0.5 (1 + tanh(0.797884561 * 1.044715)) = 0.841191991 */
    const struct values row[] = {
        {"sub",
         "{}",
         {1, 5, -2, inf},
         {3, 2, -2, 1},
         {-2, 3, 0, inf},
         {1, 2, 3, 4},
         {-1, -2, -3, -4}},
        {"mul", "{}", {1, 5, -2, 0}, {3, 2, -2, 7}, {3, 10, 4, 0}, {3, 4, -6, 28}, {1, 10, -6, 0}},
        {"div",
         "{}",
         {1, 5, -6, 0},
         {4, 2, -2, 8},
         {0.25f, 2.5f, 3, 0},
         {0.25f, 1, -1.5f, 0.5f},
         {-0.0625f, -2.5f, 4.5f, 0}},
        {"abs", "{}", {-3, 2, 0, -inf}, {0}, {3, 2, 0, inf}, {-1, 2, 0, -4}, {0}},
        {"sqrt", "{}", {4, 0.25f, 0, -1}, {0}, {2, 0.5f, 0, nan}, {0.25f, 2, inf, nan}, {0}},
        {"clamp", "{min: -1, max: 1}", {-1, 1, 3, nan}, {0}, {-1, 1, 1, nan}, {1, 2, 0, 0}, {0}},
        {"clamp", "{max: 0}", {-inf, -9, 3, 0}, {0}, {-inf, -9, 0, 0}, {1, 2, 0, 4}, {0}},
        {"leaky_relu",
         "{}",
         {-3, 0, 2, nan},
         {0},
         {-0.03f, 0, 2, nan},
         {0.01f, 0.02f, 3, 0.04f},
         {0}},
        {"leaky_relu",
         "{negative_slope: -2}",
         {-3, 1, 2, -1},
         {0},
         {6, 1, 2, 2},
         {-2, 2, 3, -8},
         {0}},
        {"sigmoid",
         "{}",
         {0, 1, -inf, 200},
         {0},
         {0.5f, 0.731058579f, 0, 1},
         {0.25f, 2 * 0.196611933f, 0, 0},
         {0}},
        {"silu",
         "{}",
         {0, 1, 100, nan},
         {0},
         {0, 0.731058579f, 100, nan},
         {0.5f, 2 * 0.927670512f, 3, nan},
         {0}},
        {"gelu",
         "{}",
         {0, 1, 100, nan},
         {0},
         {0, 0.841344746f, 100, nan},
         {0.5f, 2 * 1.083315471f, 3, nan},
         {0}},
        {"gelu",
         "{approximate: tanh}",
         {0, 1, 100, nan},
         {0},
         {0, 0.841191991f, 100, nan},
         {0.5f, 2 * 1.082964089f, 3, nan},
         {0}},
    };
    for (size_t i = 0; i < COUNT(row); i++)
        check(&row[i]);
}

Test(pointwise, refused) {
    static const struct {
        const char *op, *attrs, *says;
        bool u8;
        struct dr_shape b;
    } row[] = {
        {"sub", "{}", "differ in shape: 'a' is [2, 2], 'b' is [2, 1]", false, {2, {2, 1}}},
        {"mul", "{}", "is u8, not f32", true, {2, {2, 2}}},
        {"abs", "{}", "is u8, not f32", true, {2, {2, 2}}},
        {"clamp", "{}", "neither `min` nor `max`", false, {2, {2, 2}}},
        {"clamp", "{min: 2, max: 1}", "min 2 is above max 1", false, {2, {2, 2}}},
        {"gelu", "{approximate: erf}", "none", false, {2, {2, 2}}},
        {"leaky_relu", "{slope: 0.1}", "unknown key 'slope'", false, {2, {2, 2}}},
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        struct rig r = rig_create(2);
        const uint32_t in[] = {
            rig_input(&r, "a", row[i].u8 ? DR_U8 : DR_F32, DR_SHAPE(2, 2), DR_PLAIN, NULL),
            rig_input(&r, "b", DR_F32, row[i].b, DR_PLAIN, NULL)};
        const uint32_t n_in = dr_op_find(dr_ops(), row[i].op)->min_in;
        void *attrs = rig_attrs(&r, row[i].op, row[i].attrs);
        if (attrs)
            cr_expect_eq(rig_node(&r, "op", row[i].op, attrs, in, n_in), DR_NONE, "%s", row[i].op);
        cr_expect(strstr(rig_text(&r), row[i].says), "'%s' is not in:\n%s", row[i].says,
                  rig_text(&r));
        rig_free(&r);
    }
}

/* ---- `activation:` ---- */
static struct dr_graph *load(struct dr_arena *a, const char *nodes) {
    struct dr_diag *d = dr_diag_create(a);
    const char *text = dr_printf(
        a,
        "dagrun: 1\ninputs: {x: {shape: [6], dtype: f32}, t: {shape: [], dtype: i32}}\n"
        "data: {batch: 2, train: {x: {synthetic: normal}, t: {synthetic: uniform}}}\n"
        "subgraphs:\n  net:\n    nodes:\n      a: {op: linear, in: x, features: 6}\n%s"
        "      z: {op: linear, features: 3}\n"
        "train: {losses: {ce: {op: cross_entropy, in: [net.z, t]}}, optimizer: {op: sgd, lr: 1}, "
        "steps: 1}\n",
        nodes);
    const struct dr_yaml *root = dr_yaml_read(a, d, "m.yaml", text, strlen(text));
    struct dr_model *m = root ? dr_model_from_tree(a, d, dr_ops(), root, "m.yaml") : NULL;
    struct dr_graph *g = m ? dr_pass_load(m, DR_MODE_TRAIN, 1) : NULL;
    g = g ? dr_pass_gradients(dr_pass_frozen(dr_pass_shapes(g)), dr_ops()) : NULL;
    cr_assert(g, "%s", dr_diag_text(d));
    g = dr_pass_fuse(g, dr_ops());
    const char *why = "";
    cr_assert(dr_graph_verify(g, &why), "%s", why);
    return g;
}

static const struct dr_node *node_of(const struct dr_graph *g, const char *name) {
    for (uint32_t i = 0; i < g->node.n; i++)
        if (strcmp(g->node.at[i].name, name) == 0)
            return &g->node.at[i];
    return NULL;
}

Test(pointwise, activation_words) {
    static const struct {
        const char *node, *fused, *alone;
    } row[] = {
        {"{op: linear, features: 6, activation: relu}", "linear + relu", NULL},
        {"{op: linear, features: 6, activation: tanh}", "linear + tanh", NULL},
        {"{op: linear, features: 6, activation: sigmoid}", "linear + sigmoid", NULL},
        {"{op: linear, features: 6, activation: leaky_relu}", "linear + leaky_relu", NULL},
        {"{op: linear, features: 6, activation: gelu}", NULL, "net.l:gelu"},
        {"{op: linear, features: 6, activation: silu}", NULL, "net.l:silu"},
        {"{op: linear, features: 6, activation: none}", NULL, NULL},
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        struct dr_arena *a = dr_arena_create();
        const struct dr_graph *g = load(a, dr_printf(a, "      l: %s\n", row[i].node));
        const struct dr_node *l = node_of(g, "net.l");
        cr_assert_not_null(l);
        cr_expect_eq(l->fused != NULL, row[i].fused != NULL, "%s", row[i].node);
        if (l->fused)
            cr_expect_str_eq(l->fused, row[i].fused);
        if (row[i].alone)
            cr_expect_not_null(node_of(g, row[i].alone), "%s", row[i].node);
        dr_arena_destroy(a);
    }
}

/* What a kernel does not know stays a node: another slope. */
Test(pointwise, only_default_attributes_fuse) {
    struct dr_arena *a = dr_arena_create();
    const struct dr_graph *g = load(a, "      s: {op: leaky_relu, negative_slope: 0.2}\n");
    cr_expect_not_null(node_of(g, "net.s"));
    cr_expect_null(node_of(g, "net.a")->fused);
    g = load(a, "      s: {op: leaky_relu, negative_slope: 0.01}\n");
    cr_expect_null(node_of(g, "net.s"));
    cr_expect_str_eq(node_of(g, "net.a")->fused, "linear + leaky_relu");
    dr_arena_destroy(a);
}

/* Fused or not, the same bits. */
Test(pointwise, fused_kernels_do_what_nodes_do) {
    const float x[] = {-3, -0.5f, 0, -0.0f, 1e-3f, 4, 30, -90}, zero[8] = {0};
    for (int32_t act = DR_ACT_NONE + 1; act < DR_ACT_FUSED; act++) {
        struct rig r = rig_create(2);
        const uint32_t in[] = {rig_floats(&r, "x", DR_SHAPE(2, 4), x),
                               rig_floats(&r, "z", DR_SHAPE(2, 4), zero)};
        const uint32_t sum = rig_op(&r, "add", "add", "{}", in, 2);
        const uint32_t pre = rig_out(&r, sum, 0);
        const uint32_t alone = rig_op(&r, "act", dr_activation_word[act], "{}", &pre, 1);
        const uint32_t fused =
            rig_node(&r, "fused", "add", &(struct dr_fused){.activation = act}, in, 2);
        rig_run(&r);
        cr_expect_eq(memcmp(rig_f32(&r, rig_out(&r, alone, 0)), rig_f32(&r, rig_out(&r, fused, 0)),
                            sizeof x),
                     0, "%s", dr_activation_word[act]);
        rig_free(&r);
    }
}
