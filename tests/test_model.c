/* The YAML as a checked model: what the format can say. test_model_refused.c: what it refuses. */
#include "tests/test_model.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(model, .init = setup, .fini = teardown, .timeout = 60);

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
