/* The checked model as a graph: what stands in it in training, evaluation and inference. */
#include "graph/builtin.h"
#include "graph/passes.h"
#include "kernels/batch.h"
#include "ops/table.h"

#include <criterion/criterion.h>
#include <string.h>

static struct dr_arena *arena;
static struct dr_diag *diag;

static void setup(void) {
    arena = dr_arena_create();
    diag = dr_diag_create(arena);
}
static void teardown(void) {
    dr_arena_destroy(arena);
}
TestSuite(build, .init = setup, .fini = teardown, .timeout = 60);

#define INPUTS                                                                                     \
    "inputs: {image: {shape: [8, 8, 1], dtype: u8}, mask: {shape: [8, 8], dtype: u8}, "            \
    "label: {shape: [], dtype: u16}}\n"
#define SOURCES "{image: {npy: i.npy}, mask: {npy: m.npy}, label: {npy: l.npy}}"
#define HEAD                                                                                       \
    "dagrun: 1\nseed: 9\n" INPUTS "data: {batch: 4, train: " SOURCES ", infer: {image: {npy: "     \
    "i.npy}}}\n"
/* flip and normalize, a frozen encoder, two heads with an optimizer each */
#define NODES                                                                                      \
    "subgraphs:\n"                                                                                 \
    "  aug: {nodes: {f: {op: random_flip, in: [image, mask], out: [img, msk]}}}\n"                 \
    "  enc:\n    frozen: true\n    weights: random\n    nodes:\n"                                  \
    "      n: {op: normalize, in: aug.img, mean: [0.5], std: [0.5]}\n"                             \
    "      c: {op: conv2d, filters: 2, kernel: 3, padding: 1, activation: relu}\n"                 \
    "      bn: {op: batch_norm}\n"                                                                 \
    "  seg: {optimizer: {op: sgd, lr: 2}, nodes: {m: {op: conv2d, in: enc.bn, filters: 3, "        \
    "kernel: 1}}}\n"                                                                               \
    "  cls:\n    nodes:\n      b: {op: batch_norm, in: enc.bn, activation: tanh}\n"                \
    "      f: {op: flatten}\n      l: {op: linear, features: 10}\n      p: {op: softmax}\n"
#define TRAIN                                                                                      \
    "train:\n  losses:\n    seg: {op: cross_entropy, in: [seg.m, aug.msk], weight: 0.5}\n"         \
    "    cls: {op: cross_entropy, in: [cls.l, label]}\n"                                           \
    "  optimizer: {op: sgd, lr: {base: 1, schedule: cosine}}\n  steps: 10\n  clip_norm: 3\n"
#define REST                                                                                       \
    "eval: {on: train, metrics: {acc: {op: accuracy, in: [cls.l, label]}}}\n"                      \
    "outputs: {prob: {in: cls.p}}\n"

static struct dr_model *model(const char *text) {
    diag = dr_diag_create(arena);
    const struct dr_yaml *root = dr_yaml_read(arena, diag, "m.yaml", text, strlen(text));
    struct dr_model *m = root ? dr_model_from_tree(arena, diag, dr_ops(), root, "m.yaml") : NULL;
    cr_assert(m, "%s", dr_diag_text(diag));
    return m;
}

static struct dr_graph *build(const char *text, enum dr_graph_mode mode) {
    struct dr_graph *g = dr_pass_load(model(text), mode, 77);
    const char *why = "";
    cr_assert(g, "%s", dr_diag_text(diag));
    cr_assert(dr_graph_verify(g, &why), "%s", why);
    return g;
}

static void refuse(const char *text, enum dr_graph_mode mode, uint32_t errors, const char *want) {
    cr_expect_null(dr_pass_load(model(text), mode, 1), "%s", text);
    cr_expect_eq(dr_diag_errors(diag), errors, "%s", dr_diag_text(diag));
    cr_expect(strstr(dr_diag_text(diag), want), "'%s' is not in:\n%s", want, dr_diag_text(diag));
}

static const struct dr_node *node(const struct dr_graph *g, const char *name) {
    for (uint32_t i = 0; i < g->node.n; i++) {
        if (strcmp(g->node.at[i].name, name) == 0) {
            return &g->node.at[i];
        }
    }
    return NULL;
}

static const struct dr_value *value(const struct dr_graph *g, const char *name) {
    const uint32_t v = dr_map_get(g->value_by_name, name);
    return v == DR_NONE ? NULL : &g->value.at[v];
}

/* "op(in, in) -> out, out" by the names of values. */
static const char *text_of(const struct dr_graph *g, const char *name) {
    const struct dr_node *n = node(g, name);
    cr_assert(n, "there is no node '%s'", name);
    struct dr_text t = {.arena = arena};
    dr_text_add(&t, "%s(", n->op->name);
    for (uint32_t i = 0; i < n->n_in; i++) {
        dr_text_add(&t, "%s%s", i ? ", " : "", g->value.at[n->in[i]].name);
    }
    dr_text_add(&t, ") ->");
    for (uint32_t i = 0; i < n->n_out; i++) {
        dr_text_add(&t, "%s %s", i ? "," : "", g->value.at[n->out[i]].name);
    }
    return t.at;
}

Test(build, training) {
    const struct dr_graph *g = build(HEAD NODES TRAIN REST, DR_MODE_TRAIN);
    cr_expect(g->mode == DR_MODE_TRAIN && g->batch == 4 && g->seed == 9 && g->clip_norm == 3);
    static const char *const want[][2] = {
        {"data.header", "data() -> data.header"},
        {"data.mask", "data() -> mask"},
        {"aug.f", "random_flip(image, mask, data.header) -> aug.img, aug.msk"},
        {"enc.c", "conv2d(enc.n, enc.c.weight, enc.c.bias) -> enc.c:pre"},
        {"enc.c:relu", "relu(enc.c:pre) -> enc.c"},
        {"enc.bn", "batch_norm_infer(enc.c, enc.bn.weight, enc.bn.bias, enc.bn.running_mean, "
                   "enc.bn.running_var) -> enc.bn"},
        {"cls.b:tanh", "tanh(cls.b:pre) -> cls.b"},
        {"loss.seg", "cross_entropy(seg.m, aug.msk, data.header) -> loss.seg, loss.seg.partial"},
        {"total_loss", "total_loss(loss.seg, loss.cls) -> total_loss"},
    };
    for (uint32_t i = 0; i < sizeof want / sizeof *want; i++) {
        cr_expect_str_eq(text_of(g, want[i][0]), want[i][1]);
    }
    cr_expect_str_eq(node(g, "cls.b")->op->name, "batch_norm");
    cr_expect_null(node(g, "metric.acc")); /* evaluation's */
    cr_expect_null(node(g, "readback"));   /* comes with the updates */
    cr_expect_eq(g->readback, DR_NONE);

    const struct dr_value *header = value(g, "data.header"), *label = value(g, "label");
    cr_expect_eq((uint32_t)(header - g->value.at), g->header);
    cr_expect_eq((size_t)header->bytes, dr_batch_bytes(4));
    cr_expect_eq(header->meaning, DR_HEADER);
    cr_expect(label->dtype == DR_I32 && label->shape.rank == 1 && label->shape.dim[0] == 4);
    cr_expect(value(g, "image")->dtype == DR_U8 && value(g, "image")->meaning == DR_IMAGE);
    cr_expect(value(g, "mask")->shape.rank == 3 && value(g, "mask")->meaning == DR_MASK);
    cr_assert_eq(g->input.n, 3);
    cr_expect_str_eq(g->value.at[g->input.at[2]].name, "label");

    static const struct {
        const char *name;
        enum dr_role role;
        bool frozen;
    } roles[] = {
        {"data.image", DR_ROLE_DATA, false}, {"aug.f", DR_ROLE_AUGMENT, false},
        {"enc.n", DR_ROLE_FORWARD, true},    {"enc.c:relu", DR_ROLE_FORWARD, true},
        {"seg.m", DR_ROLE_FORWARD, false},   {"loss.seg", DR_ROLE_FORWARD, false},
    };
    for (uint32_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        cr_expect_eq(node(g, roles[i].name)->role, roles[i].role, "%s", roles[i].name);
        cr_expect_eq(node(g, roles[i].name)->frozen, roles[i].frozen, "%s", roles[i].name);
    }
    cr_assert_eq(g->optimizer.n, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct dr_node *n = node(g, i ? "cls.l" : "seg.m");
        cr_expect_eq(g->optimizer.at[n->optimizer].lr.base, i ? 1 : 2);
        cr_expect_eq(g->optimizer.at[i].lr.total, 77);
    }
    cr_expect_eq(node(g, "enc.c")->optimizer, DR_NONE);
    cr_expect(value(g, "enc.c.weight")->frozen && !value(g, "seg.m.weight")->frozen);
    cr_expect_str_eq(g->subgraph.at[node(g, "cls.l")->subgraph].name, "cls");
    cr_expect_eq(node(g, "aug.f")->key, dr_hash("aug.f", 5));

    cr_assert_eq(g->term.n, 2);
    cr_expect_str_eq(g->term.at[0].name, "seg");
    cr_expect(g->term.at[0].weight == 0.5 && g->term.at[1].weight == 1 && !g->term.at[0].metric);
    cr_expect_str_eq(g->value.at[g->term.at[0].scalar].name, "loss.seg");
    cr_expect_str_eq(g->value.at[g->term.at[0].partial].name, "loss.seg.partial");
    const struct dr_total_loss_attrs *total = node(g, "total_loss")->attrs;
    cr_expect(total->weight.n == 2 && total->weight.at[0] == 0.5 && total->weight.at[1] == 1);
}

Test(build, evaluation) {
    const struct dr_graph *g = build(HEAD NODES TRAIN REST, DR_MODE_EVAL);
    cr_expect_null(node(g, "aug.f")); /* a flip passes through */
    static const char *const want[][2] = {
        {"enc.n", "normalize(image) -> enc.n"},
        {"cls.b", "batch_norm_infer(enc.bn, cls.b.weight, cls.b.bias, cls.b.running_mean, "
                  "cls.b.running_var) -> cls.b:pre"},
        {"loss.seg", "cross_entropy(seg.m, mask, data.header) -> loss.seg, loss.seg.partial"},
        {"metric.acc", "accuracy(cls.l, label, data.header) -> metric.acc"},
        {"readback", "readback(total_loss, loss.seg, loss.seg.partial, loss.cls, loss.cls.partial, "
                     "metric.acc, data.header) ->"},
    };
    for (uint32_t i = 0; i < sizeof want / sizeof *want; i++) {
        cr_expect_str_eq(text_of(g, want[i][0]), want[i][1]);
    }
    cr_assert_eq(g->term.n, 3);
    cr_expect(g->term.at[2].metric && g->term.at[2].scalar == DR_NONE);
    cr_expect_eq(g->node.at[g->readback].role, DR_ROLE_READBACK);
}

Test(build, inference_keeps_what_outputs_need) {
    const struct dr_graph *g = build(HEAD NODES TRAIN REST, DR_MODE_INFER);
    static const char *const gone[] = {"data.mask", "data.label", "seg.m",
                                       "loss.cls",  "metric.acc", "total_loss"};
    for (uint32_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        cr_expect_null(node(g, gone[i]), "%s", gone[i]);
    }
    cr_expect(g->input.n == 3 && g->input.at[0] != DR_NONE && g->input.at[2] == DR_NONE);
    cr_expect_str_eq(text_of(g, "readback"), "readback(cls.p, data.header) ->");
    cr_assert_eq(g->output.n, 1);
    cr_expect_str_eq(g->value.at[g->output.at[0]].name, "cls.p");
    cr_expect_eq(g->term.n, 0);
    cr_expect_eq(g->total_loss, DR_NONE);
}

Test(build, shared_weights_and_training_augmentation_in_frozen_parts) {
    const struct dr_graph *g = build(
        HEAD
        "subgraphs:\n  net:\n    nodes:\n"
        "      b: {share: a, in: mn}\n      n: {op: normalize, in: image, mean: [0], std: [1]}\n"
        "      mn: {op: relu}\n      a: {op: conv2d, in: n, filters: 2, kernel: 1}\n"
        "      s: {op: add, in: [a, b]}\n"
        "  cold: {frozen: true, nodes: {f: {op: random_flip, in: image}}}\n"
        "train: {losses: {l: {op: cross_entropy, in: [net.s, mask]}}, optimizer: {op: sgd, lr: "
        "1}, steps: 1}\n",
        DR_MODE_TRAIN);
    cr_expect_str_eq(text_of(g, "net.a"), "conv2d(net.n, net.a.weight, net.a.bias) -> net.a");
    cr_expect_str_eq(text_of(g, "net.b"), "conv2d(net.mn, net.a.weight, net.a.bias) -> net.b");
    cr_expect_eq(&g->node.at[node(g, "net.b")->share], node(g, "net.a"));
    cr_expect_str_eq(text_of(g, "cold.f"), "random_flip(image, data.header) -> cold.f");
    cr_expect_eq(node(g, "cold.f")->role, DR_ROLE_FORWARD);

    /* What passes through in evaluation passes through where it is shared, too. */
    g = build(HEAD
              "subgraphs: {net: {nodes: {f: {op: random_flip, in: image}, g: {share: f, in: f}, "
              "n: {op: normalize, mean: [0], std: [1]}}}}\n"
              "eval: {on: train, metrics: {a: {op: accuracy, in: [net.n, mask]}}}\n",
              DR_MODE_EVAL);
    cr_expect_str_eq(text_of(g, "net.n"), "normalize(image) -> net.n");
}

Test(build, one_mistake_one_error) {
#define NET(nodes)                                                                                 \
    HEAD "subgraphs:\n  net:\n    nodes:\n      n: {op: normalize, in: image, mean: [0], std: "    \
         "[1]}\n" nodes
#define LOSS                                                                                       \
    "train: {losses: {l: {op: cross_entropy, in: [net.l, label]}}, optimizer: {op: sgd, lr: 1}, "  \
    "steps: 1}\n"
    /* 9 rows of kernel on 8 of image; nothing below says a word. */
    refuse(NET("      c: {op: conv2d, filters: 2, kernel: 9, activation: relu}\n"
               "      d: {op: conv2d, filters: 2, kernel: 3}\n      e: {op: add, in: [c, d]}\n"
               "      f: {op: flatten}\n      l: {op: linear, features: 3}\n") LOSS,
           DR_MODE_TRAIN, 1, "error: conv2d 'net.c'");
    refuse(NET("      f: {op: flatten}\n      l: {op: linear, features: 3, frozen: true}\n") LOSS,
           DR_MODE_TRAIN, 1,
           "10:7: error: linear 'net.l' is frozen but its weights come from nowhere");
    refuse(NET("      f: {op: flatten}\n      l: {op: linear, features: 3}\n"
               "      l2: {op: linear, features: 3}\n") "train: {losses: {l: {op: cross_entropy, "
                                                        "in: [net.l, label]}}, steps: 1}\n",
           DR_MODE_TRAIN, 1, "10:7: error: nothing trains linear 'net.l'");
    refuse("dagrun: 1\n" INPUTS "data: {batch: 4, train: {image: {npy: i}, mask: {npy: m}, label: "
           "{npy: l}, last: pad}}\n"
           "subgraphs: {net: {nodes: {n: {op: normalize, in: image, mean: [0], std: [1]}, b: {op: "
           "batch_norm}, b2: {op: batch_norm}, f: {op: flatten}, l: {op: linear, features: "
           "2}}}}\n" LOSS,
           DR_MODE_TRAIN, 1, "`last: pad` cannot be used in training");
    refuse("dagrun: 1\ninputs: {x: {shape: [65536, 65536, 65536], dtype: f32}, label: {shape: [], "
           "dtype: u8}}\ndata: {batch: 65536, train: {x: {npy: i}, label: {npy: l}}}\n"
           "subgraphs: {net: {nodes: {l: {op: softmax, in: x}}}}\n" LOSS,
           DR_MODE_TRAIN, 1, "that size is impossible");
    refuse(NET("") "outputs: {o: {in: net.n}}\n", DR_MODE_TRAIN, 1, "training needs `train:`");
    refuse(NET("") "outputs: {o: {in: net.n}}\n", DR_MODE_EVAL, 1, "evaluation needs losses");
    refuse(NET("      l: {op: flatten}\n") LOSS, DR_MODE_INFER, 1, "inference needs `outputs:`");
    refuse(NET("") "outputs: {o: {in: mask}, p: {in: net.n}}\n", DR_MODE_INFER, 1,
           "data.infer gives no source for input 'mask'");
    refuse("dagrun: 1\n" INPUTS "data: {batch: 4, infr: {image: {npy: i}, mask: {npy: m}, label: "
           "{npy: l}}}\nsubgraphs: {net: {nodes: {n: {op: normalize, in: image}}}}\n"
           "outputs: {o: {in: net.n}}\n",
           DR_MODE_INFER, 1,
           "error: inference reads `data.infer`, which is not there; did you mean 'infr'?");
}
