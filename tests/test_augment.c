/* The augmentation ops: random_flip and normalize. */
#include "graph/op.h"
#include "kernels/batch.h"
#include "kernels/cpu/cpu.h"
#include "ops/table.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a graph of data nodes and one op ---- */

static bool no_infer(struct dr_infer *c) {
    (void)c;
    return true;
}
static const struct dr_op source_op = {.name = "data", .flags = DR_OP_INTERNAL, .infer = no_infer};

struct world {
    struct dr_arena *a;
    struct dr_diag *d;
    struct dr_graph *g;
    uint32_t in[8], n_in;
};
static struct world world(void) {
    struct world w = {.a = dr_arena_create()};
    w.d = dr_diag_create(w.a);
    w.g = dr_graph_create(w.a, w.d, "test");
    return w;
}

static void add(struct world *w, const char *name, enum dr_dtype t, struct dr_shape s,
                enum dr_meaning meaning) {
    const struct dr_mark nowhere = {0};
    struct dr_infer c = {
        w->g, dr_graph_node(w->g, name, &source_op, NULL, NULL, 0, DR_ROLE_DATA, nowhere)};
    cr_assert(dr_infer_out(&c, NULL, t, s, meaning));
    w->in[w->n_in++] = w->g->node.at[c.node].out[0];
}
static void add_header(struct world *w, int64_t batch) {
    add(w, "header", DR_U8, DR_SHAPE((int64_t)dr_batch_bytes(batch)), DR_HEADER);
}

static const struct dr_op *op(const char *name) {
    const struct dr_op *o = dr_op_find(dr_ops(), name);
    cr_assert_not_null(o, "no op '%s'", name);
    return o;
}

/* The op as a node with the attributes of a YAML mapping; DR_NONE after an error. */
static uint32_t emit(struct world *w, const char *name, const char *what, const char *yaml) {
    const struct dr_mark nowhere = {0};
    const struct dr_yaml *y = dr_yaml_read(w->a, w->d, "test.yaml", yaml, strlen(yaml));
    void *attrs = dr_alloc(w->a, op(what)->attrs_bytes);
    if (!y || !dr_attrs_read(w->d, w->a, dr_ops(), op(what), y, name, NULL, 0, attrs))
        return DR_NONE;
    return dr_graph_emit(w->g, name, op(what), attrs, w->in, w->n_in, DR_ROLE_AUGMENT, nowhere);
}

static void launch(const struct world *w, uint32_t node, uint64_t seed, void *const *in,
                   void *const *out) {
    const struct dr_node *n = &w->g->node.at[node];
    struct dr_launch l = {.node = n, .value = w->g->value.at, .in = in, .out = out, .seed = seed};
    struct dr_cpu cpu = {NULL};
    if (n->op->choose)
        l.workspace = calloc(1, (size_t)n->op->choose(w->g, n, false).workspace_bytes);
    n->op->cpu(&l, &cpu);
    free(l.workspace);
}

static struct dr_batch *header(int64_t batch, uint32_t epoch, uint64_t first) {
    struct dr_batch *h = calloc(1, dr_batch_bytes(batch));
    h->epoch = epoch;
    h->n_valid = (uint32_t)batch;
    for (int64_t i = 0; i < batch; i++)
        h->sample[i] = first + (uint64_t)i;
    return h;
}

static void refused(struct world *w, uint32_t node, const char *text) {
    cr_assert_eq(node, DR_NONE, "accepted; wanted: %s", text);
    cr_assert(strstr(dr_diag_text(w->d), text), "'%s' lacks '%s'", dr_diag_text(w->d), text);
    dr_arena_destroy(w->a);
}

/* ---- random_flip ---- */

Test(augment, AUG_01_exact) {
    static const struct {
        const char *yaml;
        uint8_t image[4], mask[4];
    } t[] = {
        {"{p: 1}", {20, 10, 40, 30}, {1, 0, 3, 2}},
        {"{p: 1, axis: horizontal}", {20, 10, 40, 30}, {1, 0, 3, 2}},
        {"{p: 1, axis: vertical}", {30, 40, 10, 20}, {2, 3, 0, 1}},
        {"{p: 1, axis: both}", {40, 30, 20, 10}, {3, 2, 1, 0}},
        {"{p: 0, axis: both}", {10, 20, 30, 40}, {0, 1, 2, 3}},
    };
    uint8_t image[4] = {10, 20, 30, 40}, mask[4] = {0, 1, 2, 3}, y[4], m[4];
    for (size_t k = 0; k < sizeof t / sizeof t[0]; k++) {
        struct world w = world();
        add(&w, "image", DR_U8, DR_SHAPE(1, 2, 2, 1), DR_IMAGE);
        add(&w, "mask", DR_U8, DR_SHAPE(1, 2, 2), DR_MASK);
        add_header(&w, 1);
        const uint32_t n = emit(&w, "flip", "random_flip", t[k].yaml);
        cr_assert_neq(n, DR_NONE, "%s", dr_diag_text(w.d));
        struct dr_batch *h = header(1, 0, 0);
        launch(&w, n, 1, (void *[]){image, mask, h}, (void *[]){y, m});
        cr_assert_eq(memcmp(y, t[k].image, 4), 0, "%s", t[k].yaml);
        cr_assert_eq(memcmp(m, t[k].mask, 4), 0, "%s", t[k].yaml);
        free(h);
        dr_arena_destroy(w.a);
    }
}

/* image = 10 * mask at every pixel before and after; images of 1, 3 and f32 channels, i32 masks. */
Test(augment, AUG_01_image_and_mask_move_together) {
    enum { N = 1000, H = 5, W = 7, P = H * W };
    static uint8_t image[N * P * 3], y[N * P * 3], mask[N * P], m[N * P];
    static float other[N * P * 2], o[N * P * 2];
    static int32_t wide[N * P], wi[N * P];
    for (int i = 0; i < N * P; i++) {
        mask[i] = (uint8_t)(i % P % 23); /* no row or column is like another */
        wide[i] = mask[i] * 100000;
        for (int c = 0; c < 3; c++)
            image[3 * i + c] = (uint8_t)(10 * mask[i] + c);
        for (int c = 0; c < 2; c++)
            other[2 * i + c] = (float)mask[i] + 0.5f * (float)c;
    }
    struct world w = world();
    add(&w, "image", DR_U8, DR_SHAPE(N, H, W, 3), DR_IMAGE);
    add(&w, "mask", DR_U8, DR_SHAPE(N, H, W), DR_MASK);
    add(&w, "other", DR_F32, DR_SHAPE(N, H, W, 2), DR_IMAGE);
    add(&w, "wide", DR_I32, DR_SHAPE(N, H, W), DR_MASK);
    add_header(&w, N);
    const uint32_t n = emit(&w, "flip", "random_flip", "{axis: both}");
    cr_assert_neq(n, DR_NONE, "%s", dr_diag_text(w.d));
    const struct dr_node *node = &w.g->node.at[n];
    cr_assert_eq(node->n_out, 4);
    cr_assert_eq(w.g->value.at[node->out[0]].meaning, DR_IMAGE);
    cr_assert_eq(w.g->value.at[node->out[3]].meaning, DR_MASK);
    cr_assert_eq(w.g->value.at[node->out[3]].dtype, DR_I32);
    struct dr_batch *h = header(N, 0, 0);
    launch(&w, n, 3, (void *[]){image, mask, other, wide, h}, (void *[]){y, m, o, wi});
    int state[4] = {0};
    for (int s = 0; s < N; s++) {
        int right = -1;
        for (int f = 0; f < 4; f++) { /* which flip does the mask show? */
            bool same = true;
            for (int r = 0; r < H; r++)
                for (int c = 0; c < W; c++)
                    same &= m[s * P + r * W + c] ==
                            mask[s * P + (f & 2 ? H - 1 - r : r) * W + (f & 1 ? W - 1 - c : c)];
            if (same)
                right = f;
        }
        cr_assert_neq(right, -1);
        state[right]++;
        for (int i = s * P; i < (s + 1) * P; i++) {
            for (int c = 0; c < 3; c++)
                cr_assert_eq(y[3 * i + c], (uint8_t)(10 * m[i] + c));
            for (int c = 0; c < 2; c++)
                cr_assert_eq(o[2 * i + c], (float)m[i] + 0.5f * (float)c);
            cr_assert_eq(wi[i], m[i] * 100000);
        }
    }
    const int horizontal = state[1] + state[3], vertical = state[2] + state[3];
    cr_assert(horizontal >= 400 && horizontal <= 600, "%d of 1000", horizontal);
    cr_assert(vertical >= 400 && vertical <= 600, "%d of 1000", vertical);
    for (int f = 0; f < 4; f++)
        cr_assert(state[f] >= 180 && state[f] <= 320, "state %d: %d of 1000", f, state[f]);
    free(h);
    dr_arena_destroy(w.a);
}

/* Flips of one-row samples [0, 1], by the header alone. */
static void flips(uint64_t seed, const char *node, const struct dr_batch *h, int64_t batch,
                  bool *out) {
    struct world w = world();
    add(&w, "x", DR_U8, DR_SHAPE(batch, 1, 2, 1), DR_IMAGE);
    add_header(&w, batch);
    const uint32_t n = emit(&w, node, "random_flip", "{}");
    cr_assert_neq(n, DR_NONE, "%s", dr_diag_text(w.d));
    uint8_t *x = calloc((size_t)batch, 2), *y = calloc((size_t)batch, 2);
    for (int64_t i = 0; i < batch; i++)
        x[2 * i + 1] = 1; /* every sample has the same content */
    launch(&w, n, seed, (void *[]){x, (void *)(uintptr_t)h}, (void *[]){y});
    for (int64_t i = 0; i < batch; i++)
        out[i] = y[2 * i] == 1;
    free(x);
    free(y);
    dr_arena_destroy(w.a);
}

Test(augment, AUG_03_draws_belong_to_epoch_and_sample) {
    bool epoch[2][64], again[64], other[64];
    for (uint32_t e = 0; e < 2; e++) {
        struct dr_batch *h = header(64, e, 0);
        flips(7, "flip", h, 64, epoch[e]);
        free(h);
    }
    int count = 0;
    for (int i = 0; i < 64; i++)
        count += epoch[0][i];
    cr_assert(count > 12 && count < 52, "%d of 64 equal samples flipped", count);
    cr_assert_neq(memcmp(epoch[0], epoch[1], 64), 0, "epoch 1 repeats epoch 0");

    /* Other batch sizes, other places in the batch, another step, padding: the same draws. */
    for (uint64_t first = 0; first < 64; first += 4) {
        struct dr_batch *h = header(4, 1, first);
        h->step = 1000 + first;
        h->n_valid = 3;
        const uint64_t swapped = h->sample[0];
        h->sample[0] = h->sample[2];
        h->sample[2] = swapped;
        flips(7, "flip", h, 4, again);
        for (int i = 0; i < 4; i++)
            cr_assert_eq(again[i], epoch[1][h->sample[i]]);
        free(h);
    }
    struct dr_batch *h = header(64, 0, 0);
    flips(8, "flip", h, 64, other);
    cr_assert_neq(memcmp(epoch[0], other, 64), 0, "the seed does not matter");
    flips(7, "flip2", h, 64, other);
    cr_assert_neq(memcmp(epoch[0], other, 64), 0, "two nodes share their draws");
    free(h);
}

Test(augment, flip_refuses) {
    struct world w = world();
    add(&w, "label", DR_I32, DR_SHAPE(4), DR_LABEL);
    add_header(&w, 4);
    refused(&w, emit(&w, "flip", "random_flip", "{}"),
            "'label' is a label: it has no axis to flip");
    w = world();
    add(&w, "v", DR_F32, DR_SHAPE(4, 10), DR_PLAIN);
    add_header(&w, 4);
    refused(&w, emit(&w, "flip", "random_flip", "{}"), "'v' is [4, 10]");
    static const char *const yaml[] = {"{p: 1.5}", "{p: -0.1}", "{axis: diagonal}", "{prob: 0.5}"};
    for (size_t k = 0; k < 4; k++) {
        w = world();
        add(&w, "x", DR_U8, DR_SHAPE(4, 2, 2, 1), DR_IMAGE);
        add_header(&w, 4);
        refused(&w, emit(&w, "flip", "random_flip", yaml[k]), "error");
    }
}

/* ---- normalize ---- */

static void near(float got, double right, double tolerance) {
    cr_assert(fabs((double)got - right) <= tolerance, "%.9g, wanted %.9g", (double)got, right);
}

Test(augment, AUG_04_normalize_values) {
    static const char *const imagenet = "{mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}";
    static const double right[3] = {2.248908, -2.035714, 0.426492};
    uint8_t pixel[3] = {255, 0, 128};
    float real[3] = {1.0f, 0.0f, (float)(128.0 / 255.0)}, y[3];
    for (int k = 0; k < 2; k++) { /* u8 is scaled by 1/255, float is not */
        struct world w = world();
        add(&w, "x", k ? DR_F32 : DR_U8, DR_SHAPE(1, 1, 1, 3), DR_IMAGE);
        const uint32_t n = emit(&w, "norm", "normalize", imagenet);
        cr_assert_neq(n, DR_NONE, "%s", dr_diag_text(w.d));
        const struct dr_value *v = &w.g->value.at[w.g->node.at[n].out[0]];
        cr_assert(v->dtype == DR_F32 && v->meaning == DR_IMAGE);
        launch(&w, n, 0, (void *[]){k ? (void *)real : (void *)pixel}, (void *[]){y});
        for (int c = 0; c < 3; c++)
            near(y[c], right[c], 1e-6);
        dr_arena_destroy(w.a);
    }
}

/* Against a double loop: lists of C and of 1, defaults, scale, odd sizes, rank 3. */
Test(augment, normalize_against_a_double_loop) {
    enum { N = 3, H = 31, W = 47, C = 3, E = N * H * W * C };
    static uint8_t x8[E];
    static float x32[E], y[E];
    for (int i = 0; i < E; i++) {
        x8[i] = (uint8_t)(i * 37 % 256);
        x32[i] = (float)(i % 101) * 0.07f - 3;
    }
    static const struct {
        const char *yaml;
        bool u8;
        uint32_t rank;
        double mean[3], std[3], scale;
    } t[] = {
        {"{}", true, 4, {0, 0, 0}, {1, 1, 1}, 1.0 / 255},
        {"{}", false, 4, {0, 0, 0}, {1, 1, 1}, 1},
        {"{mean: [0.5]}", true, 4, {0.5, 0.5, 0.5}, {1, 1, 1}, 1.0 / 255},
        {"{std: [2, 3, 4]}", false, 4, {0, 0, 0}, {2, 3, 4}, 1},
        {"{mean: [-1, 0.25, 7], std: [0.5]}", true, 4, {-1, 0.25, 7}, {0.5, 0.5, 0.5}, 1.0 / 255},
        {"{mean: [8], std: [16], scale: 1}", true, 4, {8, 8, 8}, {16, 16, 16}, 1},
        {"{mean: [1], scale: 0.5}", false, 3, {1, 1, 1}, {1, 1, 1}, 0.5},
    };
    for (size_t k = 0; k < sizeof t / sizeof t[0]; k++) {
        struct world w = world();
        add(&w, "x", t[k].u8 ? DR_U8 : DR_F32,
            t[k].rank == 4 ? DR_SHAPE(N, H, W, C) : DR_SHAPE(N, H, W * C), DR_IMAGE);
        const uint32_t n = emit(&w, "norm", "normalize", t[k].yaml);
        cr_assert_neq(n, DR_NONE, "%s", dr_diag_text(w.d));
        launch(&w, n, 0, (void *[]){t[k].u8 ? (void *)x8 : (void *)x32}, (void *[]){y});
        for (int i = 0; i < E; i++) {
            const double x = t[k].u8 ? (double)x8[i] : (double)x32[i];
            const double right = (x * t[k].scale - t[k].mean[i % C]) / t[k].std[i % C];
            near(y[i], right, 2e-6 * (1 + fabs(right)));
        }
        dr_arena_destroy(w.a);
    }
}

Test(augment, AUG_04_normalize_refuses) {
    static const struct {
        const char *yaml;
        enum dr_dtype t;
        struct dr_shape s;
        enum dr_meaning meaning;
        const char *text;
    } t[] = {
        {"{mean: [0, 0, 0], std: [1, 0, 1]}", DR_U8, {4, {1, 2, 2, 3}}, DR_IMAGE, "channel 1"},
        {"{std: [0]}", DR_U8, {4, {1, 2, 2, 3}}, DR_IMAGE, "std is 0"},
        {"{mean: [0.5, 0.5]}",
         DR_U8,
         {4, {1, 2, 2, 3}},
         DR_IMAGE,
         "mean has 2 numbers, its input has 3 channels"},
        {"{std: [1, 1, 1]}",
         DR_U8,
         {4, {1, 2, 2, 1}},
         DR_IMAGE,
         "std has 3 numbers, its input has 1 channel"},
        {"{}", DR_U8, {3, {1, 2, 2}}, DR_MASK, "'x' is a mask"},
        {"{}", DR_I32, {1, {4}}, DR_LABEL, "'x' is a label"},
        {"{}", DR_I32, {4, {1, 2, 2, 1}}, DR_IMAGE, "'x' is i32"},
        {"{}", DR_F32, {2, {1, 8}}, DR_PLAIN, "'x' is [1, 8]"},
        {"{std: [-1]}", DR_U8, {4, {1, 2, 2, 3}}, DR_IMAGE, "error"},
    };
    for (size_t k = 0; k < sizeof t / sizeof t[0]; k++) {
        struct world w = world();
        add(&w, "x", t[k].t, t[k].s, t[k].meaning);
        refused(&w, emit(&w, "norm", "normalize", t[k].yaml), t[k].text);
    }
}

/* dx = dy * scale / std; by central differences of the forward too (it is linear). */
Test(augment, normalize_gradient) {
    struct world w = world();
    add(&w, "x", DR_F32, DR_SHAPE(1, 1, 2, 2), DR_PLAIN);
    const uint32_t n = emit(&w, "norm", "normalize", "{mean: [3, 4], std: [0.5, 4], scale: 3}");
    cr_assert_neq(n, DR_NONE, "%s", dr_diag_text(w.d));
    w.n_in = 0;
    add(&w, "dy", DR_F32, DR_SHAPE(1, 1, 2, 2), DR_PLAIN);
    uint32_t dx = DR_NONE;
    const bool need = true;
    struct dr_grad c = {.g = w.g, .node = n, .dy = w.in, .need = &need, .dx = &dx};
    w.g->node.at[n].op->grad(&c);
    cr_assert_neq(dx, DR_NONE);
    float dy[4] = {1, -2, 0.5f, 8}, got[4];
    launch(&w, w.g->value.at[dx].producer, 0, (void *[]){dy}, (void *[]){got});
    static const float right[4] = {6, -1.5f, 3, 6};
    for (int i = 0; i < 4; i++)
        cr_assert_eq(got[i], right[i]);
    float x[4] = {1, 2, 3, 4}, high[4], low[4];
    for (int i = 0; i < 4; i++) {
        const float x0 = x[i];
        x[i] = x0 + 0.25f;
        launch(&w, n, 0, (void *[]){x}, (void *[]){high});
        x[i] = x0 - 0.25f;
        launch(&w, n, 0, (void *[]){x}, (void *[]){low});
        x[i] = x0;
        near(got[i], (double)dy[i] * (double)(high[i] - low[i]) / 0.5, 1e-4);
    }
    dr_arena_destroy(w.a);
}
