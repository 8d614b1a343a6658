/* The YAML as a checked model: what it refuses, in which words. */
#include "tests/test_model.h"

#include <stdlib.h>

TestSuite(model_refused, .init = setup, .fini = teardown, .timeout = 60);

/* ---- YML-07: unknown or misplaced keys ---- */
Test(model_refused, YML_07_unknown_and_misplaced_keys) {
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

/* A run writes a file once, and none that it reads. */
Test(model_refused, files_that_are_written_over) {
#define RUN HEAD NODES FIRST LAST TRAIN
#define OUTPUTS(a, b) RUN "outputs: {a: {in: net.n, " a "}, b: {in: net.flat, " b "}}\n"
    load_ok(OUTPUTS("npy: o.npy", "npy: p.npy"));
    load_ok(OUTPUTS("npy: /dev/null", "npy: /dev/null"));
    REFUSE(OUTPUTS("npy: o.npy", "npy: o.npy"),
           "14:62: error: outputs.b: npy: outputs.a: npy writes this file as well");
    REFUSE(OUTPUTS("npy: o.npy", "npy: ./o.npy"), "outputs.b: npy: outputs.a: npy writes this");
    REFUSE(OUTPUTS("npy: q/r/o.npy", "npy: .//q/./r//o.npy"), "outputs.a: npy writes this");
    load_ok(OUTPUTS("npy: q/o.npy", "npy: r/o.npy"));
    load_ok(OUTPUTS("npy: /nothing/o.npy", "npy: nothing/o.npy"));
    REFUSE(OUTPUTS("png: \"{index}.png\"", "png: \"{index}.png\""),
           "outputs.b: png: outputs.a: png writes this file as well");
    REFUSE(RUN "  save: a.st\n  log: a.st\n", "train.log: train.save writes this file as well");
    REFUSE(RUN "  log: a.csv\noutputs: {o: {in: net.n, npy: a.csv}}\n",
           "outputs.o: npy: train.log writes this file as well");
    REFUSE("dagrun: 1\n" INPUTS
           "data: {batch: 4, train: {image: {npy: x.npy}, label: {idx: y.idx}}, "
           "test: {image: {npy: x.npy}, label: {idx: y.idx}}}\n" NODES FIRST LAST TRAIN
           "  log: y.idx\noutputs: {o: {in: net.n, npy: x.npy}}\n",
           "train.log: it would be written over what data.train.label: idx reads",
           "outputs.o: npy: it would be written over what data.train.image: npy reads");
    REFUSE(HEAD "subgraphs:\n  net:\n    weights: w.st\n    nodes:\n" FIRST LAST TRAIN
                "  log: w.st\n",
           "train.log: it would be written over what subgraph 'net': weights reads");
    load_ok(HEAD "subgraphs:\n  net:\n    weights: w.st\n    nodes:\n" FIRST LAST TRAIN
                 "  save: w.st\n");
#undef OUTPUTS
#undef RUN
}

Test(model_refused, sections_check_their_values) {
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
        {HEAD NODES FIRST LAST
         "train: {losses: {step: {op: cross_entropy, in: [net.logits, label]}}, optimizer: {op: "
         "sgd, lr: 1}, steps: 1}\n",
         "a loss cannot be called 'step'"},
        {HEAD NODES FIRST LAST TRAIN
         "eval: {on: train, metrics: {total: {op: accuracy, in: [net.logits, label]}}}\n",
         "a metric cannot be called 'total'"},
        {HEAD NODES FIRST LAST TRAIN
         "eval: {on: train, metrics: {ce: {op: accuracy, in: [net.logits, label]}}}\n",
         "the metric 'ce' is called as a loss is"},
        {HEAD NODES FIRST LAST
         "train: {losses: {ce: {op: cross_entropy, in: [net.logits, label], class_weights: []}}, "
         "optimizer: {op: sgd, lr: 1}, steps: 1}\n",
         "train.losses.ce: class_weights: the list is empty"},
        {HEAD NODES FIRST LAST
         "train: {losses: {ce: {op: cross_entropy, in: [net.logits, label]}}, optimizer: {op: "
         "adam, betas: [], lr: 1}, steps: 1}\n",
         "train.optimizer: betas: the list is empty"},
        {HEAD NODES "      norm: {op: normalize, in: image, mean: []}\n" FIRST LAST TRAIN,
         "normalize 'net.norm': mean: the list is empty"},
        {HEAD NODES FIRST "      c: {op: conv2d, filters: 2, kernel: 3, padding: {}}\n" LAST TRAIN,
         "conv2d 'net.c': padding: no side is named"},
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
Test(model_refused, YML_09_cycles) {
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

Test(model_refused, YML_09_undefined_and_clashing_names) {
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

Test(model_refused, references_with_two_meanings) {
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

/* ---- YML-05: small texts that grow ---- */
Test(model_refused, YML_05_bombs) {
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
/* ---- blocks refuse ---- */
Test(model_refused, blocks_refuse) {
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

/* Whatever the text, a verdict: bytes lost, doubled and changed in files that use the whole format.
 */
Test(model_refused, mutated_files_never_crash) {
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
