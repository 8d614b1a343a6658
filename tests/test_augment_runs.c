/* Runs of the program that augment: every op before one network, planned and sequential alike, in
 * evaluation and inference, and what is said about labels. */
#include "tests/fake_cli.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 64 samples of cli_quadrants and 20 for evaluation, through everything. */
static const char yaml[] =
    "dagrun: 1\n"
    "model: all\n"
    "seed: 3\n"
    "inputs:\n"
    "  image: {shape: [4, 4, 1], dtype: u8}\n"
    "  mask: {shape: [4, 4], dtype: u8}\n"
    "  label: {shape: [], dtype: u8}\n"
    "data:\n"
    "  batch: 8\n"
    "  train: {image: {npy: images.npy, rows: [0, 64]}, mask: {synthetic: uniform, rows: [0, 64]}, "
    "label: {npy: labels.npy, rows: [0, 64]}}\n"
    "  test: {image: {npy: images.npy, rows: [64, 84]}, mask: {synthetic: uniform, rows: [64, "
    "84]}, label: {npy: labels.npy, rows: [64, 84]}}\n"
    "  infer: {image: {npy: images.npy}}\n"
    "subgraphs:\n"
    "  augment:\n"
    "    nodes:\n"
    "      part: {op: random_resized_crop, in: [image, mask], out: [i1, m1], size: 8}\n"
    "      turn: {op: rotate, out: [i2, m2], degrees: [-20, 20]}\n"
    "      bend: {op: affine, out: [i3, m3], shear: [-9, 9], interpolation: bilinear}\n"
    "      crop: {op: random_crop, out: [i4, m4], size: 8, padding: 1}\n"
    "      size: {op: resize, out: [i5, m5], size: [7, 9]}\n"
    "      cut: {op: center_crop, out: [i6, m6], size: 6}\n"
    "      light: {op: color_jitter, in: i6, brightness: 0.2, contrast: 0.2, saturation: 0.2, hue: "
    "0.1}\n"
    "      grey: {op: grayscale}\n"
    "      soft: {op: gaussian_blur, kernel: 3}\n"
    "      hole: {op: random_erasing}\n"
    "      mix: {op: cutmix, in: [hole, m6, label], out: [i7, m7, l7], classes: 4}\n"
    "      again: {op: mixup, in: [i7, l7], out: [i8, l8]}\n"
    "      norm: {op: normalize, in: i8, mean: [0.5], std: [0.5]}\n"
    "  net:\n"
    "    nodes:\n"
    "      c: {op: conv2d, in: augment.norm, filters: 8, kernel: 3, padding: 1, activation: relu}\n"
    "      seg: {op: conv2d, filters: 5, kernel: 1}\n"
    "      flat: {op: flatten, in: c}\n"
    "      logits: {op: linear, features: 4}\n"
    "train:\n"
    "  losses:\n"
    "    class: {op: cross_entropy, in: [net.logits, augment.l8], label_smoothing: 0.1}\n"
    "    seg: {op: cross_entropy, in: [net.seg, augment.m7]}\n"
    "  optimizer: {op: sgd, lr: 0.05}\n"
    "  epochs: 3\n"
    "eval: {on: test, every: 1 epoch, metrics: {right: {op: accuracy, in: [net.logits, "
    "augment.l8]}}}\n"
    "outputs: {logits: {in: net.logits, npy: out.npy}}\n";

static char *folder, *model;
static void begin(void) {
    folder = cli_folder();
    cli_quadrants(folder, 84);
    model = cli_file(folder, "all.yaml", yaml);
}
static void end(void) {
    cli_folder_remove(folder);
    free(model);
}
TestSuite(augment_runs, .init = begin, .fini = end, .timeout = 120);

static void says(const char *options, int code, const char *text) {
    char args[1024];
    snprintf(args, sizeof args, "%s %s", options, model);
    struct cli_run r = cli_run(DR_BINARY, args);
    cr_expect_eq(r.code, code, "%s: %s", args, r.err);
    cr_expect(strstr(code ? r.err : r.out, text), "%s: '%s' is not in:\n%s%s", args, text, r.out,
              r.err);
    cli_run_free(&r);
}

Test(augment_runs, AUG_03_schedules_give_the_same_bits) {
    says("--verify", 0, "equal bit for bit");
    says("--verify --set schedule.policy=list --set schedule.pipeline=3", 0, "equal bit for bit");
    says("--verify --set data.train.last=pad --set data.batch=12", 0, "equal bit for bit");
}

Test(augment_runs, trains_evaluates_and_infers) {
    says("", 0, "; eval ");
    says("--infer", 0, "all: ");
    says("--dump load", 0, "random_resized_crop");
}

Test(augment_runs, labels_are_checked) {
    says("--set subgraphs.augment.nodes.mix.classes=3", 2,
         "logits 'net.logits' are [8, 4], but 'augment.l8' holds shares of classes, [8, 3]");
    says("--set subgraphs.augment.nodes.mix.classes=3 --set subgraphs.net.nodes.logits.features=3",
         2, "input 'label' takes 0 to 2");
    says("--set subgraphs.augment.nodes.crop.size=11", 2,
         "a crop of 11x11 does not fit into 'augment.i3', which is 8x8, not with its padding "
         "either");
    says("--infer --set subgraphs.augment.nodes.crop.size=11", 2,
         "random_crop 'augment.crop': a crop of 11x11 does not fit"); /* not random_crop_eval */
    says("--set subgraphs.augment.nodes.crop.siez=11", 2, "did you mean 'size'?");
}
