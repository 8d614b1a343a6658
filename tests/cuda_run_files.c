/* Files of runs on a device: a run that is resumed leaves the bytes of an unbroken one, frozen
 * weights are saved as they were loaded, and what was saved infers. */
#include "tests/cuda_run.h"

#include "augment/npy.h"
#include "tests/fake_cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    const char *yaml, *sets[6]; /* end with NULL */
    const char *load, *resume, *save;
    int64_t steps; /* 0: all */
    bool infer;
};

/* NULL, or what went wrong. */
static const char *run(const struct job *j) {
    const enum dr_graph_mode mode = j->infer ? DR_MODE_INFER : DR_MODE_TRAIN;
    struct dr_session *s = dr_session_create();
    struct dr_results r;
    uint32_t n = 0;
    while (j->sets[n])
        n++;
    s->load = j->load;
    s->resume = j->resume;
    s->save = j->save;
    const bool good = dr_session_load(s, j->yaml, j->sets, n) &&
                      dr_session_device(s, cuda ? "cuda" : "cpu", 2) && dr_session_data(s, mode) &&
                      dr_session_plan(s, mode, NULL, NULL) && dr_session_start(s, NULL) &&
                      dr_run(s, j->steps, NULL, &r);
    const char *wrong =
        good ? NULL : dr_printf(arena, "%s%s", s->status.text, dr_diag_text(s->diag));
    dr_session_destroy(s);
    return wrong;
}

static const char *resumes(const struct cli_place *p, const char *graph, const char *precision) {
    static const char *const lr = "train.optimizer={op: sgd, momentum: 0.9, weight_decay: 0.01, "
                                  "lr: {base: 0.05, schedule: cosine, warmup: 5}}";
    const char *whole = dr_printf(arena, "%s/whole", p->folder);
    const char *half = dr_printf(arena, "%s/half", p->folder);
    const char *rest = dr_printf(arena, "%s/rest", p->folder);
    const struct job all = {.yaml = p->yaml, .sets = {lr, precision}, .save = whole};
    const char *wrong = run(&all);
    for (int64_t at = 9; at <= 10 && !wrong; at++) {
        const struct job first = {
            .yaml = p->yaml, .sets = {lr, precision, graph}, .save = half, .steps = at};
        const struct job second = {
            .yaml = p->yaml, .sets = {lr, precision}, .resume = half, .save = rest};
        struct dr_safetensors x, y;
        char why[256];
        wrong = run(&first);
        wrong = wrong ? wrong : run(&second);
        if (wrong)
            break;
        if (!dr_safetensors_open(arena, whole, &x, why, sizeof why))
            WRONG("%s: %s", whole, why);
        if (!dr_safetensors_open(arena, rest, &y, why, sizeof why))
            WRONG("%s: %s", rest, why);
        if (x.map_bytes != y.map_bytes || memcmp(x.map, y.map, x.map_bytes))
            wrong = dr_printf(arena, "%s, %s: resumed from step %lld, the run leaves other bytes",
                              precision, graph, (long long)at);
        dr_safetensors_close(&x);
        dr_safetensors_close(&y);
    }
    return wrong;
}

/* From weights of another seed; decay, momentum and clipping are on. */
static const char *keeps_frozen(const struct cli_place *p) {
    const char *first = dr_printf(arena, "%s/first", p->folder);
    const char *second = dr_printf(arena, "%s/second", p->folder);
    const struct job a = {.yaml = p->yaml, .sets = {"seed=11"}, .save = first, .steps = 9};
    const struct job b = {
        .yaml = p->yaml,
        .sets = {dr_printf(arena, "subgraphs.encoder.weights=%s", first), "train.clip_norm=3",
                 "train.optimizer={op: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.01}"},
        .save = second};
    const char *wrong = run(&a);
    wrong = wrong ? wrong : run(&b);
    if (wrong)
        return wrong;
    struct dr_safetensors x, y;
    char why[256];
    if (!dr_safetensors_open(arena, first, &x, why, sizeof why) ||
        !dr_safetensors_open(arena, second, &y, why, sizeof why))
        WRONG("%s", why);
    const struct dr_tensor *t = dr_safetensors_find(&x, "encoder.c0.weight");
    const struct dr_tensor *u = dr_safetensors_find(&y, "encoder.c0.weight");
    if (!t || !u || t->bytes != u->bytes || memcmp(t->data, u->data, t->bytes))
        wrong = "FRZ-03: a frozen weight is not saved as it was loaded";
    dr_safetensors_close(&x);
    dr_safetensors_close(&y);
    return wrong;
}

/* A trained classifier's logits of all its samples: most of them are right. */
static const char *infers(const struct cli_place *p, const char *precision) {
    char *yaml, why[256];
    const char *saved = dr_printf(arena, "%s/saved", p->folder);
    const char *at = strstr(cli_quadrants_yaml, "  test:  {");
    const char *text = dr_printf(arena,
                                 "%.*s  infer: {image: {npy: images.npy}}\n%s"
                                 "outputs: {logits: {in: net.logits, npy: logits.npy}}\n",
                                 (int)(at - cli_quadrants_yaml), cli_quadrants_yaml, at);
    yaml = cli_file(p->folder, "i.yaml", text);
    const struct job train = {.yaml = yaml, .sets = {precision}, .save = saved};
    const struct job infer = {.yaml = yaml, .sets = {precision}, .load = saved, .infer = true};
    const char *wrong = run(&train);
    wrong = wrong ? wrong : run(&infer);
    free(yaml);
    if (wrong)
        return wrong;
    struct dr_npy logits, labels;
    int hits = 0;
    if (!dr_npy_open(dr_printf(arena, "%s/logits.npy", p->folder), &logits, why, sizeof why) ||
        !dr_npy_open(dr_printf(arena, "%s/labels.npy", p->folder), &labels, why, sizeof why))
        WRONG("%s", why);
    for (int i = 0; i < 84; i++) {
        float x[4];
        memcpy(x, logits.data + i * 16, sizeof x);
        int best = 0;
        for (int k = 1; k < 4; k++)
            best = x[k] > x[best] ? k : best;
        hits += best == labels.data[i];
    }
    if (logits.dim[0] != 84 || hits < 76)
        wrong = dr_printf(arena, "%lld rows, %d of 84 right", (long long)logits.dim[0], hits);
    dr_npy_close(&logits);
    dr_npy_close(&labels);
    return wrong;
}

const char *files_of_runs(void) {
    struct cli_place p = cli_place_create();
    static const char *const precision[] = {"precision=fp32", "precision=fp16", "precision=bf16"};
    const char *wrong = NULL;
    for (int i = 0; i < 3 && !wrong; i++) {
        wrong = resumes(&p, "schedule={graph: true}", precision[i]);
        wrong = wrong ? wrong
                      : resumes(&p, "schedule={policy: sequential, pipeline: off, graph: false}",
                                precision[i]);
        wrong = wrong ? wrong : infers(&p, precision[i]);
    }
    wrong = wrong ? wrong : keeps_frozen(&p);
    cli_place_remove(&p);
    return wrong;
}
