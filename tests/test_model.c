/* The YAML as a checked model: what the format can say, and what it refuses in which words. */
#include "graph/passes.h"
#include "ops/table.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct dr_arena *arena;
static struct dr_diag *diag;

static void setup(void) {
    arena = dr_arena_create();
    diag = dr_diag_create(arena);
}
static void teardown(void) {
    dr_arena_destroy(arena);
}
TestSuite(model, .init = setup, .fini = teardown, .timeout = 60);

#define INPUTS "inputs: {image: {shape: [8, 8, 1], dtype: u8}, label: {shape: [], dtype: u8}}\n"
#define DATA "data: {batch: 4, train: {image: {synthetic: uniform}, label: {synthetic: uniform}}}\n"
#define HEAD "dagrun: 1\n" INPUTS DATA
#define NODES "subgraphs:\n  net:\n    nodes:\n"
#define FIRST "      n: {op: normalize, in: image, mean: [0.5], std: [0.5]}\n"
#define LAST "      flat: {op: flatten}\n      logits: {op: linear, features: 10}\n"
#define TRAIN                                                                                      \
    "train:\n  losses: {ce: {op: cross_entropy, in: [net.logits, label]}}\n"                       \
    "  optimizer: {op: sgd, lr: 0.1}\n  steps: 10\n"
/* A whole model around some nodes: nodes begin on line 8. */
#define MODEL(nodes) HEAD NODES FIRST nodes LAST TRAIN

static struct dr_model *load(const char *text) {
    diag = dr_diag_create(arena);
    const struct dr_yaml *root = dr_yaml_read(arena, diag, "m.yaml", text, strlen(text));
    return root ? dr_model_from_tree(arena, diag, dr_ops(), root, "m.yaml") : NULL;
}

static struct dr_model *load_ok(const char *text) {
    struct dr_model *m = load(text);
    cr_assert(m, "%s\n%s", text, dr_diag_text(diag));
    return m;
}

/* Refused with exactly these errors, in the order of the file. NULL ends the list. */
static void refuse(const char *text, const char *const *want) {
    cr_assert_null(load(text), "%s", text);
    const char *all = dr_diag_text(diag);
    uint32_t n = 0;
    for (; want[n]; n++) {
        cr_expect(strstr(all, want[n]), "'%s' is not in:\n%s", want[n], all);
    }
    cr_expect_eq(dr_diag_errors(diag), n, "%u errors, not %u:\n%s\n%s", dr_diag_errors(diag), n,
                 text, all);
}
#define REFUSE(text, ...) refuse(text, (const char *const[]){__VA_ARGS__, NULL})

static const struct dr_decl *decl(const struct dr_model *m, const char *name) {
    for (uint32_t i = 0; i < m->node.n; i++) {
        if (strcmp(m->node.at[i].name, name) == 0) {
            return &m->node.at[i];
        }
    }
    cr_assert_fail("there is no node '%s'", name);
    return NULL;
}

/* "net.a.0" or the input's name: what input i of a node is. */
static const char *source(const struct dr_model *m, const struct dr_decl *d, uint32_t i) {
    const struct dr_ref *r = &d->in[i];
    return r->is_input ? m->input.at[r->index].name : m->node.at[r->index].out[r->output];
}

static const char *attrs(const struct dr_decl *d) {
    struct dr_text t = {.arena = arena};
    dr_text_add(&t, "%s", "");
    dr_attrs_print(d->op, d->attrs, &t);
    return t.at;
}

static const char *from_tests(const char *name) {
    return dr_printf(arena, DR_SOURCE_DIR "/tests/yaml/%s", name);
}

/* ---- the six files that the format must express ---- */
Test(model, six_files_load) {
    static const char *const files[] = {"a_lenet.yaml",   "b_resnet18.yaml", "c_unet.yaml",
                                        "d_siamese.yaml", "e_heads.yaml",    "f_infer.yaml"};
    for (uint32_t i = 0; i < sizeof files / sizeof *files; i++) {
        diag = dr_diag_create(arena);
        cr_expect(dr_model_load(arena, diag, dr_ops(), from_tests(files[i]), NULL, 0), "%s",
                  files[i]);
        cr_expect_str_empty(dr_diag_text(diag));
    }
}

/* ---- what the format can say ---- */
Test(model, every_section) {
    const struct dr_model *m = load_ok(
        "dagrun: 1\nmodel: seg\nprecision: bf16\nseed: 7\n"
        "inputs:\n  image: {shape: [8, 6, 3], dtype: f32}\n  mask: {shape: [8, 6], dtype: u8}\n"
        "  weight: {shape: [5], dtype: f32}\n  kind: {shape: [4, 4, 1], dtype: u8, kind: label}\n"
        "data:\n  batch: 16\n"
        "  train:\n    mask: {npy: m.npy, rows: [3, 9]}\n    image: {npy: /abs/i.npy}\n"
        "    weight: {synthetic: normal, count: 50}\n    kind: {synthetic: zeros, rows: [0, 10]}\n"
        "    shuffle: Off\n    last: pad\n"
        "  \"1.0\": {image: {npy: i.npy}, mask: {npy: m.npy}, weight: {npy: w.npy}, kind: {npy: "
        "k.npy}}\n" NODES
        "      a: {op: normalize, in: image, mean: [0.5, 0.5, 0.5], std: [1, 1, 1]}\n"
        "train:\n  losses: {seg: {op: cross_entropy, in: [net.a, mask], weight: 0.5, "
        "label_smoothing: 0.1}}\n"
        "  optimizer: {op: sgd, momentum: 0.9, lr: {base: 1e-1, schedule: step, every: 30, warmup: "
        "5}}\n"
        "  epochs: 3\n  clip_norm: 2\n"
        "eval: {on: 1.0, every: 5 steps, metrics: {acc: {op: accuracy, in: [net.a, mask]}}}\n"
        "outputs: {o: {in: net.a}}\n"
        "schedule: {pipeline: off, streams: 3, policy: list, graph: no}\n");
    cr_expect_str_eq(m->name, "seg");
    cr_expect(m->precision == DR_PRECISION_BF16 && m->seed == 7 && m->batch == 16);
    cr_assert(m->input.n == 4 && m->split.n == 2);
    static const enum dr_meaning meaning[] = {DR_IMAGE, DR_MASK, DR_PLAIN, DR_LABEL};
    for (uint32_t i = 0; i < 4; i++) {
        cr_expect_eq(m->input.at[i].meaning, meaning[i]);
    }
    const struct dr_split *s = &m->split.at[0];
    cr_assert_eq(s->source.n, 4);
    cr_expect(s->shuffle == 0 && s->last == 1);
    cr_expect(m->split.at[1].shuffle == -1 && m->split.at[1].last == -1);
    for (uint32_t i = 0; i < 4; i++) {
        cr_expect_eq(s->source.at[i].input, i);
    }
    cr_expect_str_eq(s->source.at[0].path, "/abs/i.npy");
    cr_expect_str_eq(s->source.at[1].path, "./m.npy");
    cr_expect(s->source.at[1].has_range && s->source.at[1].from == 3 && s->source.at[1].to == 9);
    cr_expect_eq(s->source.at[1].literal, 2);
    cr_expect(s->source.at[2].synthetic == DR_SYNTHETIC_NORMAL && s->source.at[2].rows == 50);
    cr_expect(s->source.at[3].synthetic == DR_SYNTHETIC_ZEROS && s->source.at[3].rows == 1024);
    const struct dr_optimizer *o = &m->optimizer.at[0];
    cr_expect(m->optimizer.n == 1 && o->lr.base == 0.1 && o->lr.gamma == 0.1 && o->lr.every == 30 &&
              o->lr.warmup == 5 && o->lr.schedule == DR_LR_STEP && o->lr.total == 0);
    cr_expect(m->loss.at[0].weight == 0.5 && m->loss.at[0].n_in == 2 &&
              m->loss.at[0].in[1].is_input && m->loss.at[0].in[1].index == 1);
    cr_expect(m->train.epochs == 3 && m->train.steps == 0 && m->train.clip_norm == 2);
    cr_expect(m->eval.split == 1 && m->eval.every_steps == 5 && m->eval.every_epochs == 0);
    cr_expect_str_eq(m->metric.at[0].name, "acc");
    cr_expect(!m->output.at[0].in.is_input && m->output.at[0].in.index == 0);
    cr_expect(m->schedule.pipeline == 0 && m->schedule.streams == 3 &&
              m->schedule.policy == DR_POLICY_LIST && !m->schedule.graph);
}

Test(model, defaults) {
    const struct dr_model *m = load_ok(MODEL(""));
    cr_expect_str_eq(m->name, "m");
    cr_expect(m->precision == DR_PRECISION_FP32 && m->seed == 0);
    cr_expect(m->schedule.pipeline == DR_AUTO && m->schedule.streams == DR_AUTO &&
              m->schedule.policy == DR_POLICY_AUTO && m->schedule.graph);
    cr_expect(!m->eval.present && m->train.present && m->train.steps == 10);
    cr_expect(m->loss.at[0].weight == 1 && m->optimizer.at[0].lr.schedule == DR_LR_CONSTANT);
    cr_expect_str_eq(attrs(decl(m, "net.logits")), "features=10");
}

Test(model, padding_has_five_forms) {
    static const struct {
        const char *yaml, *printed;
    } cases[] = {
        {"valid", "filters=2 kernel=3x3"},
        {"same", "filters=2 kernel=3x3 padding=same"},
        {"2", "filters=2 kernel=3x3 padding=2"},
        {"[1, 2]", "filters=2 kernel=3x3 padding=1x2"},
        {"{top: 1, left: 2, bottom: 3, right: 4}",
         "filters=2 kernel=3x3 padding={top: 1, left: 2, bottom: 3, right: 4}"},
        {"{left: 1}", "filters=2 kernel=3x3 padding={top: 0, left: 1, bottom: 0, right: 0}"},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct dr_model *m =
            load_ok(dr_printf(arena,
                              MODEL("      c: {op: conv2d, filters: 2, kernel: 3, padding: "
                                    "%s}\n"),
                              cases[i].yaml));
        cr_expect_str_eq(attrs(decl(m, "net.c")), cases[i].printed);
    }
    REFUSE(MODEL("      c: {op: conv2d, filters: 2, kernel: 3, padding: [1, 2, 3, 4]}\n"),
           "8:55: error: conv2d 'net.c': padding: four numbers have no agreed order; name the "
           "sides");
    REFUSE(MODEL("      c: {op: conv2d, filters: 2, kernel: 3, padding: vaild}\n"),
           "'vaild' is not valid, same, a number");
    REFUSE(MODEL("      c: {op: conv2d, filters: 2, kernel: 3, padding: {topp: 1}}\n"),
           "unknown key 'topp' in conv2d 'net.c': padding; did you mean 'top'?");
    REFUSE(MODEL("      c: {op: conv2d, filters: 2, kernel: 3, padding: -1}\n"), "-1");
}

Test(model, blocks_arguments_and_repeat) {
    const struct dr_model *m = load_ok(
        HEAD
        "blocks:\n"
        "  cbr:\n    args: [channels, kernel, padding=0, act=relu]\n    nodes:\n"
        "      conv: {op: conv2d, filters: $channels, kernel: [$kernel, 1], padding: $padding, "
        "bias: false}\n"
        "      bn: {op: batch_norm, activation: $act}\n"
        "  pair:\n    args: [channels]\n    inputs: [a, b]\n    output: sum\n    nodes:\n"
        "      sum: {op: add, in: [left, right]}\n" /* forward references */
        "      left: {block: cbr, in: a, channels: $channels, kernel: 3}\n"
        "      right: {block: cbr, in: b, channels: $channels, kernel: 3, act: none}\n" NODES FIRST
        "      r: {block: cbr, channels: 4, kernel: 1, padding: [0, 0], repeat: 3}\n"
        "      p: {block: pair, in: [r, r], channels: 6}\n" LAST TRAIN);
    cr_assert_eq(m->node.n, 1 + 6 + 5 + 2);
    cr_expect_str_eq(attrs(decl(m, "net.r.1.conv")), "filters=4 kernel=1x1 bias=false");
    cr_expect_str_eq(source(m, decl(m, "net.r.0.conv"), 0), "net.n");
    cr_expect_str_eq(source(m, decl(m, "net.r.1.conv"), 0), "net.r.0.bn");
    cr_expect_str_eq(source(m, decl(m, "net.r.2.conv"), 0), "net.r.1.bn");
    cr_expect_str_eq(attrs(decl(m, "net.p.left.conv")), "filters=6 kernel=3x1 bias=false");
    cr_expect_str_eq(source(m, decl(m, "net.p.left.conv"), 0), "net.r.2.bn");
    cr_expect_str_eq(source(m, decl(m, "net.p.sum"), 0), "net.p.left.bn");
    cr_expect_str_eq(source(m, decl(m, "net.p.sum"), 1), "net.p.right.bn");
    cr_expect_str_eq(source(m, decl(m, "net.flat"), 0), "net.p.sum");
    cr_expect_eq(decl(m, "net.p.left.bn")->activation, DR_ACT_RELU);
    cr_expect_eq(decl(m, "net.p.right.bn")->activation, DR_ACT_NONE);
    for (uint32_t i = 0; i < m->node.n; i++) { /* a topological order */
        for (uint32_t j = 0; j < m->node.at[i].n_in; j++) {
            cr_expect(m->node.at[i].in[j].is_input || m->node.at[i].in[j].index < i);
        }
    }
}

Test(model, share_copies_ops_and_blocks) {
    const struct dr_model *m = load_ok(
        HEAD "blocks:\n  tower:\n    nodes:\n"
             "      c: {op: conv2d, filters: 2, kernel: 3, padding: 1, activation: relu}\n"
             "      d: {share: c}\n      p: {op: max_pool2d, kernel: 2}\n" NODES
             "      right: {share: left, in: image}\n" FIRST
             "      left: {block: tower, in: n}\n      third: {share: right, in: n, frozen: true}\n"
             "      s: {op: add, in: [left, right, third]}\n" LAST TRAIN);
    /* The owner comes first, although the file names it later. */
    const struct dr_decl *owner = decl(m, "net.left.c");
    static const char *const sharers[] = {"net.left.d", "net.right.c", "net.right.d", "net.third.c",
                                          "net.third.d"};
    for (uint32_t i = 0; i < 5; i++) {
        const struct dr_decl *d = decl(m, sharers[i]);
        cr_expect_eq(d->share, (uint32_t)(owner - m->node.at), "%s", sharers[i]);
        cr_expect(d > owner);
        cr_expect_str_eq(attrs(d), "filters=2 kernel=3x3 padding=1");
        cr_expect_eq(d->activation, DR_ACT_RELU);
        cr_expect_eq(d->frozen, i >= 3);
    }
    cr_expect_eq(owner->share, DR_NONE);
    cr_expect_str_eq(source(m, decl(m, "net.right.c"), 0), "image");

    REFUSE(MODEL("      a: {op: linear, features: 3}\n      b: {share: a, features: 4}\n"),
           "9:21: error: node 'net.b': `share` copies");
    REFUSE(MODEL("      a: {share: b}\n      b: {share: a}\n"), "a -> b -> a");
    REFUSE(MODEL("      a: {share: a}\n"), "a -> a");
    REFUSE(MODEL("      conv: {op: relu}\n      b: {share: cnv}\n"),
           "there is no node 'cnv' to share with; did you mean 'conv'?");
}

Test(model, frozen_optimizer_and_weights_are_inherited) {
    const struct dr_model *m = load_ok(
        HEAD "blocks:\n  b: {nodes: {c: {op: linear, features: 3}, d: {op: linear, features: 3, "
             "frozen: false, optimizer: {op: sgd, lr: 3}}}}\n" NODES FIRST
             "      f: {op: flatten}\n"
             "      free: {block: b}\n      cold: {block: b, frozen: YES, weights: random}\n"
             "      own: {op: linear, features: 2, optimizer: {op: sgd, lr: 2}}\n"
             "      logits: {op: linear, features: 10}\n"
             "  side:\n    frozen: true\n    weights: random\n    optimizer: {op: sgd, lr: 4}\n    "
             "nodes: {x: {op: linear, in: net.f, features: 2}}\n" TRAIN);
    static const struct {
        const char *name;
        bool frozen, weights;
        double lr;
    } want[] = {
        {"net.free.c", false, false, 0.1}, {"net.free.d", false, false, 3},
        {"net.cold.c", true, true, 0.1},   {"net.cold.d", false, true, 3},
        {"net.own", false, false, 2},      {"net.logits", false, false, 0.1},
        {"side.x", true, true, 4},
    };
    for (uint32_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct dr_decl *d = decl(m, want[i].name);
        cr_expect_eq(d->frozen, want[i].frozen, "%s", want[i].name);
        cr_expect_eq(d->weights && d->weights->random, want[i].weights, "%s", want[i].name);
        cr_assert_neq(d->optimizer, DR_NONE);
        cr_expect_eq(m->optimizer.at[d->optimizer].lr.base, want[i].lr, "%s", want[i].name);
    }
}

Test(model, outputs_have_names) {
    const struct dr_model *m = load_ok(
        "dagrun: 1\ninputs: {image: {shape: [8, 8, 1], dtype: u8}, mask: {shape: [8, 8], dtype: "
        "u8}}\ndata: {batch: 4, train: {image: {synthetic: uniform}, mask: {synthetic: uniform}}}\n"
        "subgraphs:\n  aug:\n    nodes:\n      f: {op: random_flip, in: [image, mask], out: [img, "
        "msk]}\n      g: {op: random_flip, in: [img, msk]}\n      h: {op: random_flip, out: [x, "
        "y]}\n"
        "  net: {nodes: {n: {op: normalize, in: aug.x, mean: [0], std: [1]}}}\n"
        "train: {losses: {l: {op: cross_entropy, in: [net.n, aug.y]}}, optimizer: {op: sgd, lr: "
        "1}, "
        "steps: 1}\n");
    const struct dr_decl *h = decl(m, "aug.h");
    cr_assert(h->n_in == 2 && h->n_out == 2); /* all outputs of the node above */
    cr_expect_str_eq(h->out[1], "aug.y");
    cr_expect(h->in[1].output == 1 && !strcmp(m->node.at[h->in[1].index].name, "aug.g"));
    cr_expect_eq(m->loss.at[0].in[1].output, 1);

    REFUSE(MODEL("      f: {op: random_flip, in: [image, n]}\n      r: {op: relu, in: f}\n"),
           "'f' has 2 outputs without names; name them there with `out:`");
    REFUSE(
        MODEL("      f: {op: random_flip, in: [image, n], out: [a]}\n      r: {op: relu, in: n}\n"),
        "has 2 outputs, `out` names 1");
    REFUSE(MODEL("      f: {op: relu, out: g}\n      r: {op: relu, in: f}\n"),
           "the outputs of 'f' have names of their own: g");
}

/* ---- YML-07: unknown or misplaced keys ---- */
Test(model, YML_07_unknown_and_misplaced_keys) {
    REFUSE(HEAD "lr: 0.1\n" NODES FIRST
                "      c1: {op: conv2d, filters: 4, kernel: 3, paddding: 1}\n"
                "      r: {op: relu, kernel: 3}\n      v: {op: convv, filters: 3}\n"
                "      s: {op: conv2d, in: n, filters: 4, kernel: 3, stride: [2, 2, 2]}\n"
                "      a1: {op: add, in: r}\n      a2: {op: add}\n" LAST
                "train:\n  losses: {ce: {op: cross_entropy, in: net.logits}}\n"
                "  optimizer: {op: sgd, lr: 1, \"lr \": 0.1, weight_deacy: 0.1}\n  steps: 10\n",
           "4:1: error: unknown key 'lr' in the top level; it belongs under train.optimizer",
           "9:47: error: unknown key 'paddding' in conv2d 'net.c1'; did you mean 'padding'?",
           "10:21: error: unknown key 'kernel' in relu 'net.r'; it is an attribute of conv2d",
           "11:15: error: node 'net.v': unknown op 'convv'; did you mean 'conv2d'?",
           "12:61: error: conv2d 'net.s': stride must be one number or [height, width]",
           "13:25: error: add 'net.a1' takes at least 2 inputs, `in` gives 1",
           "14:7: error: add 'net.a2' takes several inputs: name them with `in:`",
           "train.losses.ce: cross_entropy takes 2 inputs, `in` gives 1",
           "unknown key 'lr ' in train.optimizer; did you mean 'lr'?",
           "unknown key 'weight_deacy' in train.optimizer; did you mean 'weight_decay'?");
    REFUSE(HEAD "momentum: 0.9\nsteps: 3\nzzz: 1\n" NODES FIRST LAST TRAIN,
           "unknown key 'momentum' in the top level; it is an attribute of batch_norm, sgd (under "
           "train.optimizer)",
           "unknown key 'steps' in the top level; it belongs under train",
           "unknown key 'zzz' in the top level; allowed: dagrun, model, precision");
    REFUSE(MODEL("      d: {op: sgd}\n      e: {op: cross_entropy, in: [n, label]}\n"
                 "      g: {op: accuracy, in: [n, label]}\n      h: {op: conv2d_wgrad, in: n}\n"),
           "'sgd' is an optimizer: it belongs under train.optimizer", "'cross_entropy' is a loss",
           "'accuracy' is a metric", "unknown op 'conv2d_wgrad'");
    REFUSE(MODEL("      d: {op: conv2d, kernel: 3}\n"), "conv2d 'net.d': 'filters' is missing");
}

Test(model, sections_check_their_values) {
    static const struct {
        const char *line, *want; /* in place of the line of that section */
    } cases[] = {
        {"dagrun: 2\n" INPUTS DATA NODES FIRST LAST TRAIN, "format 2 is not known"},
        {INPUTS DATA NODES FIRST LAST TRAIN, "'dagrun: 1' is missing"},
        {HEAD NODES FIRST LAST TRAIN "precision: fp31\n", "precision"},
        {HEAD NODES FIRST LAST TRAIN "seed: -1\n", "seed"},
        {HEAD NODES FIRST LAST TRAIN "schedule: {pipeline: 8}\n", "schedule: pipeline"},
        {HEAD NODES FIRST LAST TRAIN "schedule: {pipeline: on}\n",
         "'on' is not off, auto or a number from 0 to 7"},
        {HEAD NODES FIRST LAST TRAIN "schedule: {streams: 0}\n", "schedule: streams"},
        {HEAD NODES FIRST LAST TRAIN "schedule: {graph: 1}\n", "schedule: graph"},
        {HEAD NODES FIRST LAST TRAIN "schedule: {policy: stages}\n", "did you mean 'stage'"},
        {HEAD NODES FIRST LAST TRAIN "eval: {on: tets}\n", "there is no `data.tets`"},
        {HEAD NODES FIRST LAST TRAIN "eval: {on: trian}\n", "did you mean 'train'?"},
        {HEAD NODES FIRST LAST TRAIN "eval: {on: train, every: 1 epok}\n",
         "'1 epok' is not like `1 epoch` or `100 steps`"},
        {HEAD NODES FIRST LAST TRAIN "eval: {on: train, every: 0 steps}\n", "'0 steps'"},
        {HEAD NODES FIRST LAST TRAIN "  epochs: 3\n", "give only one of `steps` or `epochs`"},
        {HEAD NODES FIRST LAST TRAIN "  clip_norm: -1\n", "clip_norm"},
        {HEAD NODES FIRST LAST, "nothing to do"},
        {"dagrun: 1\n" INPUTS
         "data: {batch: 4, trian: {image: {npy: a}, label: {npy: b}}}\n" NODES FIRST LAST TRAIN,
         "there is no `data.train`; did you mean 'trian'?"},
        {"dagrun: 1\ninputs: {image: {shape: [1099511627776, 1099511627776, 1], dtype: u8}, label: "
         "{shape: [], dtype: u8}}\n" DATA NODES FIRST LAST TRAIN,
         "2:25: error: input 'image': shape: too many elements"},
        {HEAD NODES FIRST LAST
         "train: {losses: {total: {op: cross_entropy, in: [net.logits, label]}}, optimizer: {op: "
         "sgd, lr: 1}, steps: 1}\n",
         "a loss cannot be called 'total'"},
        {"dagrun: 1\n" INPUTS
         "data: {batch: 4, test: {image: {npy: a}, label: {npy: b}}}\n" NODES FIRST LAST TRAIN,
         "there is no `data.train`"},
        {"dagrun: 1\n" INPUTS "data: {batch: 4, train: {image: {npy: a}}}\n" NODES FIRST LAST TRAIN,
         "data.train gives no source for input 'label'"},
        {"dagrun: 1\n" INPUTS "data: {batch: 4, train: {imgae: {npy: a}, image: {npy: a}, label: "
         "{npy: b}}}\n" NODES FIRST LAST TRAIN,
         "data.train: 'imgae' is not an input; did you mean 'image'?"},
        {"dagrun: 1\n" INPUTS
         "data: {batch: 4, train: {image: {npy: a, rows: [5, 5]}, label: {npy: "
         "b}}}\n" NODES FIRST LAST TRAIN,
         "rows [5, 5] is empty"},
        {"dagrun: 1\n" INPUTS "data: {batch: 4, train: {image: {npy: a, synthetic: normal}, label: "
         "{npy: b}}}\n" NODES FIRST LAST TRAIN,
         "two sources, 'npy' and 'synthetic'"},
        {"dagrun: 1\n" INPUTS "data: {batch: 4, train: {image: {npy: a, fit: crop}, label: {npy: "
         "b}}}\n" NODES FIRST LAST TRAIN,
         "'fit' is for `files:` sources"},
        {"dagrun: 1\n" INPUTS "data: {batch: 4, train: {image: {npy: a, count: 3}, label: {npy: "
         "b}}}\n" NODES FIRST LAST TRAIN,
         "'count' is for `synthetic:` sources"},
        {"dagrun: 1\n" INPUTS "data: {batch: 4, train: {image: {files: a, fit: squeeze}, label: "
         "{folders: image}}}\n" NODES FIRST LAST TRAIN,
         "'squeeze' is not"},
        {"dagrun: 1\n" INPUTS "data: {batch: 4, train: {image: {files: a, pair: name}, label: "
         "{folders: image}}}\n" NODES FIRST LAST TRAIN,
         "'name' is not"},
        {"dagrun: 1\n" INPUTS "data: {batch: 4, train: {image: {files: a}, label: "
         "{folders: imgae}}}\n" NODES FIRST LAST TRAIN,
         "folders: 'imgae' is not an input; did you mean 'image'?"},
        {"dagrun: 1\n" INPUTS "data: {batch: 4, train: {image: {npy: a}, label: "
         "{folders: image}}}\n" NODES FIRST LAST TRAIN,
         "folders: input 'image' has no `files:` in data.train"},
        {"dagrun: 1\n" INPUTS "data: {batch: 4, train: {image: {folders: label}, label: "
         "{npy: a}}}\n" NODES FIRST LAST TRAIN,
         "input 'image' is [8, 8, 1] of u8"},
        {"dagrun: 1\n" INPUTS "data: {batch: 4, shuffle: true, train: {image: {npy: a}, label: "
         "{npy: b}}}\n" NODES FIRST LAST TRAIN,
         "unknown key 'shuffle' in data; it belongs under data.SPLIT"},
        {"dagrun: 1\n" INPUTS
         "data: {train: {image: {npy: a}, label: {npy: b}}}\n" NODES FIRST LAST TRAIN,
         "'batch' is missing"},
        {"dagrun: 1\ninputs: {image: {shape: [8, 8], dtype: u8, kind: image}, label: {shape: [], "
         "dtype: u8}}\n" DATA NODES FIRST LAST TRAIN,
         "an image has the shape"},
        {"dagrun: 1\ninputs: {image: {shape: [8, 0, 1], dtype: u8}, label: {shape: [], dtype: "
         "u8}}\n" DATA NODES FIRST LAST TRAIN,
         "shape"},
        {"dagrun: 1\ninputs: {image: {shape: [8, 8, 1], dtype: u9}, label: {shape: [], dtype: "
         "u8}}\n" DATA NODES FIRST LAST TRAIN,
         "dtype"},
        {"dagrun: 1\ninputs: {image: {shape: [8, 8, 1], dtype: u8}, label: {shape: []}}\n" DATA
             NODES FIRST LAST TRAIN,
         "'dtype' is missing"},
        {HEAD "subgraphs: {data: {nodes: {a: {op: relu, in: image}}}}\n"
              "eval: {on: train}\n",
         "a subgraph cannot be called 'data'"},
        {HEAD "subgraphs: {net: {frozn: true, nodes: {a: {op: relu, in: image}}}}\n"
              "eval: {on: train}\n",
         "unknown key 'frozn' in subgraph 'net'; did you mean 'frozen'?"},
        {HEAD "subgraphs: {net: {frozen: maybe, nodes: {a: {op: relu, in: image}}}}\n"
              "eval: {on: train}\n",
         "subgraph 'net': frozen"},
        {HEAD "subgraphs: {net: {nodes: {}}}\neval: {on: train}\n", "at least one node"},
        {HEAD "subgraphs: {net: {nodes: {a: relu}}}\neval: {on: train}\n", "must be a mapping"},
        {HEAD NODES FIRST LAST "train: {losses: {}, optimizer: {op: sgd, lr: 1}, steps: 1}\n",
         "training needs `losses:`"},
        {HEAD NODES FIRST LAST
         "train: {losses: {ce: {op: cross_entropy, in: [net.logits, label]}}, "
         "optimizer: {op: sgd, lr: {base: 1, gamma: 2}}, steps: 1}\n",
         "'gamma' is for `schedule: step`"},
        {HEAD NODES FIRST LAST
         "train: {losses: {ce: {op: cross_entropy, in: [net.logits, label]}}, "
         "optimizer: {op: sgd, lr: {base: 1, schedule: step}}, steps: 1}\n",
         "needs 'every'"},
        {HEAD NODES FIRST LAST
         "train: {losses: {ce: {op: cross_entropy, in: [net.logits, label]}}, "
         "optimizer: {op: sgd}, steps: 1}\n",
         "train.optimizer: 'lr' is missing"},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        REFUSE(cases[i].line, cases[i].want);
    }
    REFUSE("dagrun: 1\nmodel: m\n", "'inputs:' is missing", "'data:' is missing",
           "'subgraphs:' is missing");
}

/* ---- YML-09: cycles, undefined names, clashes ---- */
Test(model, YML_09_cycles) {
    REFUSE(MODEL("      a: {op: relu, in: c}\n      b: {op: relu, in: a}\n      c: {op: relu, in: "
                 "b}\n      self: {op: relu, in: [self]}\n      ok: {op: relu, in: n}\n"),
           "8:7: error: nodes of subgraph 'net' depend on each other in a cycle: a -> b -> c -> a",
           "11:7: error: nodes of subgraph 'net' depend on each other in a cycle: self -> self");
    const char *all = dr_diag_text(diag);
    cr_expect(strstr(all, "9:25: note: 'b' needs 'a' here"), "%s", all);
    cr_expect(strstr(all, "10:25: note: 'c' needs 'b' here"), "%s", all);
    cr_expect(strstr(all, "8:25: note: 'a' needs 'c' here"), "%s", all);
    /* Across subgraphs, and in a block that is used twice: said once. */
    REFUSE(HEAD "subgraphs:\n  p: {nodes: {a: {op: relu, in: q.b}}}\n  q: {nodes: {b: {op: relu, "
                "in: p.a}}}\neval: {on: train}\n",
           "p.a -> q.b -> p.a");
    REFUSE(HEAD "blocks: {k: {nodes: {a: {op: add, in: [x, b]}, b: {op: relu}}}}\n" NODES FIRST
                "      u: {block: k}\n      v: {block: k}\n" LAST TRAIN,
           "nodes of block 'k' depend on each other in a cycle: a -> b -> a");
    REFUSE(HEAD "blocks:\n  p: {nodes: {q: {block: q}}}\n  q: {nodes: {q: {block: p}}}\n"
                "  z: {nodes: {q: {block: z}}}\n" NODES FIRST "      u: {block: p}\n" LAST TRAIN,
           "5:3: error: a block cannot use itself: p -> q -> p",
           "7:3: error: a block cannot use itself: z -> z");
}

Test(model, YML_09_undefined_and_clashing_names) {
    REFUSE(MODEL("      conv1: {op: relu}\n      u: {op: relu, in: Convl}\n"
                 "      v: {op: relu, in: net}\n      w: {op: relu, in: net.conv2}\n"),
           "9:25: error: relu 'net.u': there is no value 'Convl'; did you mean 'conv1'?",
           "'net' is a subgraph; name one of its nodes: net.NODE",
           "there is no value 'net.conv2'; did you mean 'net.conv1'?");
    REFUSE(MODEL("      conv: {op: relu}\n      conv: {op: relu}\n"), "9:7: error:");
    cr_expect(strstr(dr_diag_text(diag), "8:"), "%s", dr_diag_text(diag));
    REFUSE(MODEL("      image: {op: relu}\n"),
           "8:7: error: relu 'net.image': the name 'image' clashes with input 'image'");
    cr_expect(strstr(dr_diag_text(diag), "2:10: note:"), "%s", dr_diag_text(diag));
    REFUSE(MODEL("      a: {op: relu, out: y}\n      b: {op: relu, out: y}\n"),
           "9:26: error: relu 'net.b': the name 'y' clashes with another 'y'");
    REFUSE(MODEL("      a: {op: relu}\n      a.b: {op: relu}\n      'a:b': {op: relu}\n"),
           "the name 'a.b' clashes with 'a'", "the name 'a:b' clashes with 'a'");
    /* One mistake, one error: what depends on it stays silent. */
    REFUSE(MODEL("      a: {op: rellu}\n      b: {op: relu}\n      c: {op: add, in: [a, b]}\n"),
           "unknown op 'rellu'; did you mean 'relu'?");
    /* Legal: names that differ in case, one value twice, any order of the file. */
    const struct dr_model *m =
        load_ok(MODEL("      sum: {op: add, in: [Conv, conv, Conv]}\n"
                      "      Conv: {op: relu, in: n}\n      conv: {op: relu, in: n}\n"
                      "      end: {op: relu, in: sum}\n"));
    cr_expect_str_eq(source(m, decl(m, "net.sum"), 2), "net.Conv");
    cr_expect_str_eq(source(m, decl(m, "net.flat"), 0), "net.end");
}

Test(model, references_with_two_meanings) {
    REFUSE(HEAD "subgraphs:\n  enc: {nodes: {p: {op: relu, in: image}}}\n"
                "  net: {nodes: {enc.p: {op: relu, in: image}, q: {op: relu, in: enc.p}}}\n"
                "eval: {on: train}\n",
           "6:65: error: relu 'net.q': 'enc.p' means two things");
    cr_expect(strstr(dr_diag_text(diag), "6:17: note:") &&
                  strstr(dr_diag_text(diag), "5:17: note:"),
              "%s", dr_diag_text(diag));
    REFUSE(HEAD "subgraphs:\n  a: {nodes: {p: {op: relu, in: image}}}\n"
                "  a.b: {nodes: {q: {op: relu, in: image}}}\neval: {on: train}\n",
           "the name 'a.b' clashes with subgraph 'a'");
    REFUSE(HEAD
           "blocks: {k: {nodes: {a: {op: relu, in: image}, b: {op: add, in: [a, net.n]}}}}\n" NODES
               FIRST "      u: {block: k}\n" LAST TRAIN,
           "there is no 'image' in block 'k'", "there is no 'net.n' in block 'k'");
}

/* ---- YML-02: names keep their text ---- */
Test(model, YML_02_names_are_text) {
    static const char *const names[] = {"no",   "on",  "y",  "null", "~",
                                        "true", "1.0", "-1", "0x10", "\xe5\x8d\xb7"};
    for (int quoted = 0; quoted < 2; quoted++) {
        const char *q = quoted ? "\"" : "";
        struct dr_text t = {.arena = arena};
        dr_text_add(&t, HEAD NODES FIRST);
        for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
            dr_text_add(&t, "      %s%s%s: {op: relu, in: %s}\n", q, names[i], q,
                        i ? names[i - 1] : "n");
        }
        dr_text_add(&t, "      flat: {op: flatten, in: net.1.0}\n      logits: {op: linear, "
                        "features: 10}\n" TRAIN);
        const struct dr_model *m = load_ok(t.at);
        for (uint32_t i = 1; i < sizeof names / sizeof *names; i++) {
            const struct dr_decl *d = decl(m, dr_printf(arena, "net.%s", names[i]));
            cr_expect_str_eq(source(m, d, 0), dr_printf(arena, "net.%s", names[i - 1]));
        }
        cr_expect_str_eq(source(m, decl(m, "net.flat"), 0), "net.1.0");
    }
    static const char *const truth[] = {"yes", "Yes", "on", "TRUE", "true", "\"true\""};
    static const char *const wrong[] = {"1", "~", "\"\"", "maybe"};
    const char *node = MODEL("      l: {op: relu, frozen: %s}\n");
    for (uint32_t i = 0; i < 6; i++) {
        struct dr_text t = {.arena = arena};
        dr_text_add(&t, "%.*s%s%s", (int)(strstr(node, "%s") - node), node, truth[i],
                    strstr(node, "%s") + 2);
        cr_expect(decl(load_ok(t.at), "net.l")->frozen);
    }
    for (uint32_t i = 0; i < 4; i++) {
        struct dr_text t = {.arena = arena};
        dr_text_add(&t, "%.*s%s%s", (int)(strstr(node, "%s") - node), node, wrong[i],
                    strstr(node, "%s") + 2);
        REFUSE(t.at, "relu 'net.l': frozen");
    }
    REFUSE(MODEL("      \"\": {op: relu}\n"), "must be text that is not empty");
    REFUSE(MODEL("      $a: {op: relu}\n"), "cannot begin with '$'");
    REFUSE(MODEL("      \"a\\x1b\": {op: relu}\n"), "control character");
}

/* ---- YML-05: small texts that grow ---- */
Test(model, YML_05_bombs) {
    struct dr_text t = {.arena = arena};
    dr_text_add(&t, "dagrun: 1\nx0: &x0 [n, n, n, n, n, n, n, n, n]\n");
    for (int i = 1; i < 10; i++) {
        dr_text_add(&t, "x%d: &x%d [", i, i);
        for (int j = 0; j < 9; j++) {
            dr_text_add(&t, "%s*x%d", j ? ", " : "", i - 1);
        }
        dr_text_add(&t, "]\n");
    }
    dr_text_add(&t, INPUTS DATA NODES FIRST "      a: {op: add, in: *x9}\n" LAST TRAIN);
    cr_expect_null(load(t.at));
    cr_expect(strstr(dr_diag_text(diag), "error:"), "%s", dr_diag_text(diag));
    REFUSE(MODEL("      a: &a {op: relu, in: *a}\n"), "8:28: error:");
    REFUSE(MODEL("      a: {op: add, in: [[n, n], n]}\n"), "a name is expected here");

    /* Blocks of blocks: 9^10 nodes in 500 bytes. */
    t = (struct dr_text){.arena = arena};
    dr_text_add(&t, HEAD "blocks:\n  b0: {nodes: {c: {op: relu}}}\n");
    for (int i = 1; i <= 10; i++) {
        dr_text_add(&t, "  b%d: {nodes: {c: {block: b%d, repeat: 9}}}\n", i, i - 1);
    }
    dr_text_add(&t, NODES FIRST "      r: {block: b10}\n" LAST TRAIN);
    REFUSE(t.at, "the model is too large");

    t = (struct dr_text){.arena = arena};
    dr_text_add(&t, HEAD "blocks:\n  b0: {nodes: {c: {op: relu}}}\n");
    for (int i = 1; i <= 70; i++) {
        dr_text_add(&t, "  b%d: {nodes: {c: {block: b%d}}}\n", i, i - 1);
    }
    dr_text_add(&t, NODES FIRST "      r: {block: b70}\n" LAST TRAIN);
    REFUSE(t.at, "blocks are nested deeper than 64");

    const struct dr_model *m =
        load_ok(HEAD NODES FIRST
                "      a: &a {op: conv2d, filters: &f 4, kernel: &k 3}\n      b: *a\n"
                "      c: {<<: *a, filters: 2, kernel: *k}\n      d: {op: conv2d, filters: "
                "*f, kernel: 1}\n" LAST TRAIN);
    cr_expect_str_eq(attrs(decl(m, "net.c")), "filters=2 kernel=3x3");
}

Test(model, ten_thousand_nodes) {
    for (int kind = 0; kind < 3; kind++) {
        struct dr_text t = {.arena = arena};
        dr_text_add(&t, HEAD "%s" NODES FIRST,
                    kind == 2 ? "blocks: {b: {nodes: {c: {op: relu}}}}\n" : "");
        for (int i = 0; i < 10000 && kind < 2; i++) { /* in order, and backwards */
            const int j = kind ? 9999 - i : i;
            dr_text_add(&t,
                        j ? "      r%d: {op: relu, in: r%d}\n" : "      r0: {op: relu, in: n}\n", j,
                        j - 1);
        }
        dr_text_add(&t, kind == 2 ? "      r9999: {block: b, repeat: 10000}\n" : "");
        dr_text_add(&t,
                    "      flat: {op: flatten, in: r9999}\n      logits: {op: linear, features: "
                    "10}\n" TRAIN);
        const struct dr_model *m = load_ok(t.at);
        cr_assert_eq(m->node.n, 10003);
        cr_expect_str_eq(m->node.at[10000].name, kind == 2 ? "net.r9999.9999.c" : "net.r9999");
    }
}

/* ---- blocks refuse ---- */
Test(model, blocks_refuse) {
#define USE(block, nodes) HEAD "blocks:\n" block NODES FIRST nodes LAST TRAIN
    REFUSE(USE("  k: {args: [c], nodes: {a: {op: linear, features: $cc}}}\n",
               "      u: {block: k, c: 1}\n"),
           "block 'k' has no argument 'cc'; did you mean 'c'?");
    REFUSE(
        USE("  k: {args: [c], nodes: {a: {op: linear, features: $c}}}\n", "      u: {block: k}\n"),
        "argument 'c' of block 'k' is missing");
    REFUSE(USE("  k: {args: [size], nodes: {a: {op: linear, features: $size}}}\n",
               "      u: {block: k, siez: 3}\n"),
           "unknown key 'siez' in node 'net.u'; did you mean 'size'?",
           "argument 'size' of block 'k' is missing");
    REFUSE(USE("  kk: {nodes: {a: {op: relu}}}\n", "      u: {block: kj}\n      v: {block: kk}\n"),
           "there is no block 'kj'; did you mean 'kk'?");
    REFUSE(USE("  k: {args: [in], nodes: {a: {op: relu}}}\n", "      u: {block: k}\n"),
           "'in' cannot be an argument");
    REFUSE(USE("  k: {args: [c], nodes: {a: {op: linear, features: $c}}}\n",
               "      u: {block: k, c: -1}\n      v: {block: k, c: x}\n"),
           "10:24: error: linear 'net.u.a': features", "11:24: error: linear 'net.v.a': features");
    /* A mistake that no argument makes is said once, however often the block is used. */
    REFUSE(USE("  k: {args: [c], nodes: {a: {op: linear, features: $c, bais: false}}}\n",
               "      u: {block: k, c: 1, repeat: 3}\n      v: {block: k, c: 2}\n"),
           "unknown key 'bais'");
    REFUSE(USE("  k: {args: [c], nodes: {a: {op: linear, features: $c}}}\n",
               "      u: {block: k, c: 0, repeat: 30}\n"),
           "linear 'net.u.0.a': features");
    REFUSE(
        USE("  k: {inputs: [x, y], nodes: {a: {op: add, in: [x, y]}}}\n", "      u: {block: k}\n"),
        "takes several inputs");
    REFUSE(USE("  k: {inputs: [x, y], nodes: {a: {op: add, in: [x, y]}}}\n",
               "      u: {block: k, in: [n, n], repeat: 2}\n"),
           "`repeat` chains nodes of one input and one output");
    REFUSE(USE("  k: {output: b, nodes: {a: {op: relu}}}\n", "      u: {block: k}\n"),
           "output: it has no node 'b'");
    REFUSE(USE("  k: {nodes: {x: {op: relu}}}\n", "      u: {block: k}\n"), "clashes with");
    REFUSE(USE("  k: {nodes: {a: {op: relu}}}\n", "      u: {block: k, op: relu}\n"),
           "give only one of `op`, `block` and `share`");
    REFUSE(MODEL("      u: {in: n}\n"), "give one of `op`, `block` and `share`");
    REFUSE(HEAD "subgraphs: {net: {nodes: {a: {op: relu}}}}\neval: {on: train}\n",
           "the first node of a subgraph needs `in:`");
    /* Unused blocks are checked too, and are worth a warning. */
    REFUSE(USE("  k: {nodes: {a: {op: linear, features: -3}}}\n", ""), "linear 'k.a': features");
    cr_expect_eq(dr_diag_warnings(diag), 1);
}

/* ---- WGT-04: paths ---- */
static void write_text(const char *path, const char *text) {
    cr_assert_eq(dr_write_file(path, text, strlen(text)), 0);
}

Test(model, WGT_04_paths_are_relative_to_the_yaml) {
    char folder[] = "/tmp/dagrun test XXXXXX";
    cr_assert(mkdtemp(folder));
    const char *text =
        "dagrun: 1\r\n" INPUTS
        "data: {batch: 4, train: {image: {npy: \"w 1.npy\"}, label: {npy: ../up.npy}}}\n" NODES
            FIRST LAST TRAIN;
    const char *file = dr_printf(arena, "%s/a b/model.yaml", folder);
    const char *link = dr_printf(arena, "%s/link.yaml", folder);
    write_text(file, text);
    cr_assert_eq(symlink("a b/model.yaml", link), 0);
    const char *const ways[][2] = {{"/", file},
                                   {dr_printf(arena, "%s/a b", folder), "model.yaml"},
                                   {folder, "a b/../a b/model.yaml"},
                                   {folder, "link.yaml"},
                                   {"/", link}};
    for (uint32_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        cr_assert_eq(chdir(ways[i][0]), 0);
        const struct dr_model *m = dr_model_load(arena, diag, dr_ops(), ways[i][1], NULL, 0);
        cr_assert(m, "%s", dr_diag_text(diag));
        cr_expect_str_eq(m->split.at[0].source.at[0].path,
                         dr_printf(arena, "%s/a b/w 1.npy", folder));
        cr_expect_str_eq(m->split.at[0].source.at[1].path,
                         dr_printf(arena, "%s/a b/../up.npy", folder));
    }
    /* --set is relative to the YAML too. */
    const char *const sets[] = {"data.train.image.npy=x.npy", "train.steps=3"};
    const struct dr_model *m = dr_model_load(arena, diag, dr_ops(), file, sets, 2);
    cr_assert(m, "%s", dr_diag_text(diag));
    cr_expect_str_eq(m->split.at[0].source.at[0].path, dr_printf(arena, "%s/a b/x.npy", folder));
    cr_expect_eq(m->train.steps, 3);
    unlink(link);
    unlink(file);
    rmdir(dr_printf(arena, "%s/a b", folder));
    rmdir(folder);

    char *big = dr_alloc(arena, 5001);
    memset(big, 'p', 5000);
    REFUSE(dr_printf(arena,
                     "dagrun: 1\n" INPUTS "data: {batch: 4, train: {image: {npy: %s}, label: {npy: "
                     "b}}}\n" NODES FIRST LAST TRAIN,
                     big),
           "is too long (at most 4095)");
}

/* Whatever the text, a verdict: bytes lost, doubled and changed in files that use the whole format.
 */
Test(model, mutated_files_never_crash) {
    static const char *const files[] = {"a_lenet.yaml",   "b_resnet18.yaml", "c_unet.yaml",
                                        "d_siamese.yaml", "e_heads.yaml",    "f_infer.yaml"};
    static const char *const bits[] = {"$channels", "in", "[",     "]", "{}", ": ",
                                       "repeat: 3", "x",  "share", ",", "-1", "*a",
                                       "&a ",       "~",  "a.b",   "\n"};
    uint64_t r = 88172645463325252u;
    for (uint32_t i = 0; i < sizeof files / sizeof *files; i++) {
        FILE *f = fopen(from_tests(files[i]), "rb");
        cr_assert(f);
        static char text[8192], changed[8192];
        const size_t n = fread(text, 1, sizeof text - 64, f);
        fclose(f);
        for (int round = 0; round < 400; round++) {
            memcpy(changed, text, n);
            size_t len = n;
            for (int k = 0; k <= round % 3; k++) {
                r ^= r << 13, r ^= r >> 7, r ^= r << 17;
                const size_t at = (size_t)(r >> 16) % len, cut = (r >> 8) % 4;
                const char *bit = bits[r % 16];
                const size_t add = strlen(bit), gone = cut < len - at ? cut : 0;
                memmove(changed + at + add, changed + at + gone, len - at - gone);
                memcpy(changed + at, bit, add);
                len += add - gone;
            }
            struct dr_arena *a = dr_arena_create();
            struct dr_diag *d = dr_diag_create(a);
            const struct dr_yaml *root = dr_yaml_read(a, d, "m.yaml", changed, len);
            struct dr_model *m = root ? dr_model_from_tree(a, d, dr_ops(), root, "m.yaml") : NULL;
            cr_expect(m || dr_diag_errors(d) > 0, "refused without a word:\n%.*s", (int)len,
                      changed);
            for (int mode = DR_MODE_TRAIN; m && mode <= DR_MODE_INFER; mode++) {
                const uint32_t before = dr_diag_errors(d);
                const struct dr_graph *g = dr_pass_load(m, (enum dr_graph_mode)mode, 10);
                const char *why = "";
                cr_expect(g || dr_diag_errors(d) > before);
                cr_expect(!g || dr_graph_verify(g, &why), "%s", why);
            }
            dr_arena_destroy(a);
        }
    }
}
