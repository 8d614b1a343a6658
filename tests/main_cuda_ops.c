/* Every op on a CUDA device against its reference (fake_cuda_lab.h): main_cuda_ops [OP...] [SEED].
 * `main_cuda_ops list` only counts: a line for each op that has cases, its name and their number.
 *
 * Without a device it says so and exits 77 (skipped). DR_CUDA_OPS_DRY=1 runs the CPU launchers in
 * place of the CUDA ones, which tests the cases and the references. DR_CUDA_OPS_TF32=1 lets
 * convolutions and matrix products round to tf32, and judges them by 1e-3. DR_CUDA_OPS_HALF=f16 or
 * bf16 stores what ops permit so, and judges it by 2e-3 or 1e-2. For compute-sanitizer:
 * DR_CUDA_OPS_SANITIZE=1 launches each case once, without guards, so that a step outside a buffer
 * is seen; DR_CUDA_OPS_MOST=BYTES leaves out the nodes whose operands are larger;
 * DR_CUDA_OPS_PART=I/N takes case I of every N. */
#include "tests/fake_cuda_lab.h"
#include "kernels/batch.h"
#include "ops/common.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SKIPPED = 77 };

/* ---- element by element ---- */
static void unary(struct lab *l, const char *op, int64_t n, bool odd) {
    if (lab_skip(l, op, op)) {
        return;
    }
    struct lab_case c = lab_case(l, n);
    const uint32_t x =
        odd ? lab_odd_floats(&c, "x", DR_SHAPE(n)) : lab_floats(&c, "x", DR_SHAPE(n), NULL);
    lab_grads(&c, lab_node(&c, op, "{}", DR_ACT_NONE, &x, 1));
    lab_check(&c);
}

static void add(struct lab *l, uint32_t n_in, int64_t n, int act) {
    struct lab_case c = lab_case(l, n);
    uint32_t in[300];
    for (uint32_t i = 0; i < n_in; i++) {
        in[i] = lab_floats(&c, dr_printf(c.r.g->arena, "x%u", i), DR_SHAPE(n, 1), NULL);
    }
    lab_node(&c, "add", "{}", act, in, n_in);
    lab_check(&c);
}

static void pointwise_cases(struct lab *l) {
    static const int64_t size[] = {1, 255, 256, 257, 2048 * 256 + 3};
    static const uint32_t addends[] = {2, 3, 8, 20, 127, 128, 129, 300}; /* 128 a launch */
    for (size_t i = 0; i < DR_COUNT(size); i++) {
        unary(l, "relu", size[i], false);
        unary(l, "relu", size[i], true);
        unary(l, "tanh", size[i], false);
        unary(l, "tanh", size[i], true);
        for (int act = DR_ACT_NONE; act < DR_ACT_FUSED; act++) {
            add(l, 2, size[i], act);
        }
    }
    for (size_t i = 0; i < DR_COUNT(addends); i++) {
        for (int act = DR_ACT_NONE; act < DR_ACT_FUSED; act++) {
            add(l, addends[i], 1000, act);
        }
    }
    struct lab_case twice = lab_case(l, 5); /* one value, two operands */
    const uint32_t v = lab_floats(&twice, "x", DR_SHAPE(5, 2), NULL);
    lab_node(&twice, "add", "{}", DR_ACT_NONE, (uint32_t[]){v, v}, 2);
    lab_check(&twice);
    /* CONV-11 (d) */
    struct lab_case c = lab_case(l, 4);
    const uint32_t x = lab_floats(&c, "x", DR_SHAPE(4), (const float[]){NAN, -1, -0.0F, 2});
    lab_node(&c, "relu", "{}", DR_ACT_NONE, &x, 1);
    lab_expect(&c, "relu", (const float[]){NAN, 0, 0, 2});
    const uint32_t y = lab_floats(&c, "y", DR_SHAPE(3), (const float[]){0, 0, 2});
    const uint32_t dy = lab_floats(&c, "dy", DR_SHAPE(3), (const float[]){1, 1, 1});
    lab_node(&c, "relu_grad", "{}", DR_ACT_NONE, (uint32_t[]){y, dy}, 2);
    lab_expect(&c, "relu_grad", (const float[]){0, 0, 1});
    lab_check(&c);
}

/* ---- shapes ---- */
static void reshaped(struct lab *l, const char *op, const char *yaml, struct dr_shape s, bool u8) {
    struct lab_case c = lab_case(l, s.dim[0]);
    const uint32_t x = u8 ? lab_bytes(&c, "x", s, DR_IMAGE, 256) : lab_floats(&c, "x", s, NULL);
    const uint32_t node = lab_node(&c, op, yaml, DR_ACT_NONE, &x, 1);
    if (!u8) {
        lab_grads(&c, node);
    }
    lab_check(&c);
}

static void concat(struct lab *l, int axis, const int64_t *sizes, uint32_t n, bool u8) {
    struct lab_case c = lab_case(l, 3);
    uint32_t in[40];
    char yaml[32];
    for (uint32_t i = 0; i < n; i++) {
        struct dr_shape s = DR_SHAPE(3, 4, 5, 6);
        s.dim[axis] = sizes[i];
        const char *name = dr_printf(c.r.g->arena, "x%u", i);
        in[i] = u8 ? lab_bytes(&c, name, s, DR_IMAGE, 256) : lab_floats(&c, name, s, NULL);
    }
    snprintf(yaml, sizeof yaml, "{axis: %d}", axis);
    const uint32_t node = lab_node(&c, "concat", yaml, DR_ACT_NONE, in, n);
    if (!u8) {
        lab_grads(&c, node);
    }
    lab_check(&c);
}

static void shape_cases(struct lab *l) {
    reshaped(l, "flatten", "{}", DR_SHAPE(2, 3, 4, 5), false);
    reshaped(l, "flatten", "{}", DR_SHAPE(3, 8, 4, 32), false);
    reshaped(l, "flatten", "{}", DR_SHAPE(1, 11, 3, 33), false);
    reshaped(l, "flatten", "{}", DR_SHAPE(2, 1, 1, 9), false);
    reshaped(l, "flatten", "{}", DR_SHAPE(2, 7, 9, 1), false);
    reshaped(l, "flatten", "{}", DR_SHAPE(2, 7, 9, 1), true);
    reshaped(l, "flatten", "{}", DR_SHAPE(2, 7, 9), true);
    reshaped(l, "flatten", "{}", DR_SHAPE(70000, 2, 1, 2), false);   /* more than 65535 samples */
    reshaped(l, "flatten", "{}", DR_SHAPE(1, 1025, 2048, 2), false); /* and 32-row tiles */
    reshaped(l, "reshape", "{shape: [-1]}", DR_SHAPE(2, 3, 4, 5), false);
    reshaped(l, "reshape", "{shape: [5, 2, -1]}", DR_SHAPE(3, 4, 5, 6), false);
    reshaped(l, "reshape", "{shape: [7]}", DR_SHAPE(3, 7), true);
    reshaped(l, "reshape", "{shape: [-1]}", DR_SHAPE(1, 1), false);
    reshaped(l, "reshape", "{shape: [-1]}", DR_SHAPE(1, 700, 1001), false);
    static const int64_t sizes[][3] = {{1, 2, 3}, {4, 4, 8}, {7, 1, 16}, {64, 16, 48}};
    for (int axis = 1; axis <= 3; axis++) {
        for (size_t i = 0; i < DR_COUNT(sizes); i++) {
            concat(l, axis, sizes[i], 3, false);
            concat(l, axis, sizes[i], 3, true);
        }
        concat(l, axis, sizes[0], 2, false);
        concat(l, axis, sizes[1], 2, true);
    }
    int64_t many[40];
    for (int64_t i = 0; i < 40; i++) {
        many[i] = i % 4 + 1;
    }
    concat(l, 3, many, 40, false);
}

/* ---- max_pool2d ---- */
static void pool(struct lab *l, const char *yaml, struct dr_shape s, bool odd) {
    struct lab_case c = lab_case(l, s.dim[0]);
    const uint32_t x = odd ? lab_odd_floats(&c, "x", s) : lab_floats(&c, "x", s, NULL);
    lab_grads(&c, lab_node(&c, "max_pool2d", yaml, DR_ACT_NONE, &x, 1));
    lab_check(&c);
}

static void pool_literal(struct lab *l, const char *yaml, struct dr_shape s, const float *x,
                         const float *y, const float *dx) {
    struct lab_case c = lab_case(l, 1);
    const uint32_t v = lab_floats(&c, "x", s, x);
    const uint32_t node = lab_node(&c, "max_pool2d", yaml, DR_ACT_NONE, &v, 1);
    lab_expect(&c, "max_pool2d", y);
    if (dx) {
        lab_grads(&c, node);
        rig_f32(&c.r, rig_find(&c.r, dr_printf(c.r.g->arena, "dy%u", node)))[0] = 1;
        lab_expect(&c, "max_pool2d_grad", dx);
    }
    lab_check(&c);
}

static void pool_cases(struct lab *l) {
    const float inf = INFINITY;
    for (int odd = 0; odd < 2; odd++) {
        pool(l, "{kernel: 1}", DR_SHAPE(1, 1, 1, 1), odd);
        pool(l, "{kernel: 2}", DR_SHAPE(2, 4, 5, 3), odd);
        pool(l, "{kernel: 3, stride: 2, padding: 1}", DR_SHAPE(2, 9, 12, 70), odd);
        pool(l, "{kernel: 3, stride: 2, padding: 1}", DR_SHAPE(2, 9, 12, 1), odd);
        pool(l, "{kernel: [2, 3], stride: 1, padding: {top: 1, left: 0, bottom: 0, right: 1}}",
             DR_SHAPE(2, 3, 4, 65), odd);
        pool(l, "{kernel: [1, 5], stride: [3, 2], padding: [0, 2]}", DR_SHAPE(1, 7, 40, 2), odd);
        pool(l, "{kernel: [5, 5], stride: 1, padding: same}", DR_SHAPE(1, 7, 40, 2), odd);
        pool(l, "{kernel: 2, stride: 5}", DR_SHAPE(3, 12, 13, 4), odd);
        pool(l, "{kernel: 7, stride: 4, padding: [3, 2]}", DR_SHAPE(1, 30, 33, 8), odd);
        pool(l, "{kernel: 40}", DR_SHAPE(1, 40, 41, 3), odd);
        pool(l, "{kernel: 2}", DR_SHAPE(3, 70, 71, 64), odd);
    }
    /* CONV-11 (a), (b), (e) */
    const float a[] = {NAN, 3, 3, NAN, -inf, -inf}, ones[] = {-1, -1, -1, -1};
    pool_literal(l, "{kernel: [1, 2], stride: 2}", DR_SHAPE(1, 1, 6, 1), a,
                 (const float[]){NAN, NAN, -inf}, NULL);
    pool_literal(l, "{kernel: 2, stride: 2, padding: 1}", DR_SHAPE(1, 2, 2, 1), ones, ones, NULL);
    pool_literal(l, "{kernel: [1, 2]}", DR_SHAPE(1, 1, 2, 1), (const float[]){3, 3},
                 (const float[]){3}, (const float[]){1, 0});
}

/* ---- augmentation ---- */
/* An image and its mask by one draw, several epochs' worth of samples. */
static void flip(struct lab *l, const char *axis, double p, int64_t batch, struct dr_shape s) {
    struct lab_case c = lab_case(l, batch);
    char yaml[64];
    const uint32_t image = lab_bytes(&c, "image", s, DR_IMAGE, 256);
    const uint32_t mask = lab_bytes(&c, "mask", DR_SHAPE(s.dim[0], s.dim[1], s.dim[2]), DR_MASK, 9);
    const uint32_t floats = lab_floats(&c, "floats", s, NULL);
    struct dr_batch *h = c.r.at[c.r.g->header];
    h->epoch = 3;
    for (int64_t i = 0; i < batch; i++) {
        h->sample[i] = (uint64_t)lab_below(l, INT64_C(1) << 40);
    }
    snprintf(yaml, sizeof yaml, "{axis: %s, p: %g}", axis, p);
    lab_node(&c, "random_flip", yaml, DR_ACT_NONE, (uint32_t[]){image, mask, floats}, 3);
    lab_check(&c);
}

static void normalize(struct lab *l, bool u8, struct dr_shape s) {
    struct lab_case c = lab_case(l, s.dim[0]);
    const uint32_t x =
        u8 ? lab_bytes(&c, "x", s, DR_IMAGE, 256) : rig_input(&c.r, "x", DR_F32, s, DR_IMAGE, NULL);
    const int64_t channels = s.rank == 4 ? s.dim[3] : 1;
    if (!u8) {
        rig_set(&c.r, x, NULL);
        for (int64_t i = 0, n = rig_elements(&c.r, x); i < n; i++) {
            rig_f32(&c.r, x)[i] = lab_uniform(l);
        }
    }
    struct dr_text t = {.arena = c.r.g->arena};
    dr_text_add(&t, "{mean: [");
    for (int64_t i = 0; i < channels; i++) {
        dr_text_add(&t, "%s0.%d", i ? ", " : "", (int)(i % 7 + 1));
    }
    dr_text_add(&t, "], std: [");
    for (int64_t i = 0; i < channels; i++) {
        dr_text_add(&t, "%s%d.25", i ? ", " : "", (int)(i % 5));
    }
    dr_text_add(&t, "]}");
    const uint32_t node = lab_node(&c, "normalize", t.at, DR_ACT_NONE, &x, 1);
    if (!u8) {
        lab_grads(&c, node);
    }
    lab_check(&c);
}

static void augment_cases(struct lab *l) {
    static const char *const axes[] = {"horizontal", "vertical", "both"};
    for (size_t i = 0; i < DR_COUNT(axes); i++) {
        for (int p = 0; p <= 2; p++) {
            flip(l, axes[i], p / 2.0, 33, DR_SHAPE(33, 5, 7, 3));
            flip(l, axes[i], p / 2.0, 9, DR_SHAPE(9, 6, 4, 4));
            flip(l, axes[i], p / 2.0, 3, DR_SHAPE(3, 1, 1, 1));
        }
    }
    flip(l, "both", 0.5, 2, DR_SHAPE(2, 130, 140, 3));
    flip(l, "both", 0.5, 70000, DR_SHAPE(70000, 2, 1, 1));
    static const int64_t channels[] = {1, 3, 63, 64, 65, 100, 200};
    for (size_t i = 0; i < DR_COUNT(channels); i++) {
        for (int u8 = 0; u8 < 2; u8++) {
            normalize(l, u8, DR_SHAPE(2, 5, 7, channels[i]));
        }
    }
    normalize(l, true, DR_SHAPE(2, 5, 7));
    normalize(l, false, DR_SHAPE(2, 5, 7));
    normalize(l, true, DR_SHAPE(2, 300, 301, 3));
}

/* ---- the program ---- */
static bool read_arguments(struct lab *l, int argc, char **argv) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    l->seed = (uint64_t)now.tv_sec * 1000003 + (uint64_t)now.tv_nsec;
    const char *half = getenv("DR_CUDA_OPS_HALF");
    l->half = !half ? DR_F32 : strcmp(half, "f16") == 0 ? DR_F16 : DR_BF16;
    if (half && strcmp(half, dr_dtype_name(l->half)) != 0) {
        fprintf(stderr, "DR_CUDA_OPS_HALF is f16 or bf16, not '%s'\n", half);
        return false;
    }
    const char *most = getenv("DR_CUDA_OPS_MOST");
    l->most = most ? strtoll(most, NULL, 10) : 0;
    l->parts = 1;
    const char *part = getenv("DR_CUDA_OPS_PART");
    if (part && (sscanf(part, "%u/%u", &l->part, &l->parts) != 2 || l->part >= l->parts)) {
        fprintf(stderr, "DR_CUDA_OPS_PART is I/N with I < N, not '%s'\n", part);
        return false;
    }
    for (int i = 1; i < argc; i++) {
        char *end;
        const unsigned long long seed = strtoull(argv[i], &end, 10);
        if (argv[i][0] != '\0' && *end == '\0') {
            l->seed = seed;
        } else if (strcmp(argv[i], "list") == 0) {
            l->listing = true;
        } else if (dr_op_find(dr_ops(), argv[i]) && l->n_only < DR_COUNT(l->only)) {
            l->only[l->n_only++] = argv[i];
        } else {
            fprintf(stderr, "usage: %s [list] [OP...] [SEED]; no op is called '%s'\n", argv[0],
                    argv[i]);
            return false;
        }
    }
    return true;
}

/* An op with a CPU launcher (in half precision: one that permits it) and no case is a failure. */
static void print_table(struct lab *l) {
    printf("%-24s %7s %7s %8s %12s\n", "op", "cases", "failed", "left out", "worst error");
    for (uint32_t i = 0; i < dr_ops()->n; i++) {
        const struct dr_op *op = dr_ops()->op[i];
        const struct lab_tally *t = &l->tally[i];
        if (!lab_chosen(l, op)) {
            continue;
        }
        printf("%-24s %7u %7u %8u %12.3g\n", op->name, t->cases, t->failed, t->left_out, t->worst);
        if (t->cases + t->left_out == 0) {
            printf("FAILED %s: no case ran\n", op->name);
            l->failed++;
        }
    }
}

static void print_list(const struct lab *l) {
    for (uint32_t i = 0; i < dr_ops()->n; i++) {
        if (l->tally[i].cases > 0) {
            printf("%s %u\n", dr_ops()->op[i]->name, l->tally[i].cases);
        }
    }
}

static void all_cases(struct lab *l) {
    void (*const groups[])(struct lab *) = {pointwise_cases,  lab_map_cases,
                                            lab_loss_cases,   shape_cases,
                                            pool_cases,       augment_cases,
                                            lab_class_cases,  lab_norm_cases,
                                            lab_step_cases,   lab_optimizer_cases,
                                            lab_shape_cases,  lab_linear_cases,
                                            lab_conv_cases,   lab_conv_transpose_cases,
                                            lab_cast_cases,   lab_fused_cases,
                                            lab_augment_cases};
    for (size_t i = 0; i < DR_COUNT(groups); i++) {
        lab_begin(l, (uint32_t)i << 16); /* whatever the groups before passed over */
        groups[i](l);
    }
}

int main(int argc, char **argv) {
    struct lab l = {0};
    char why[300];
    setvbuf(stdout, NULL, _IOLBF, 0); /* what failed is seen even if the rest is cut off */
    if (!read_arguments(&l, argc, argv)) {
        return 2;
    }
    if (l.listing || getenv("DR_CUDA_OPS_DRY")) {
        lab_open_host(&l.device);
    } else if (!lab_open_cuda(&l.device, why, sizeof why)) {
        printf("SKIPPED: no CUDA device (%s)\n", why);
        return SKIPPED;
    }
    l.tally = calloc(dr_ops()->n, sizeof *l.tally);
    DR_ASSERT(l.tally);
    if (l.listing) {
        all_cases(&l);
        print_list(&l);
        free(l.tally);
        return 0;
    }
    printf("on %s, %s, seed %llu\n", l.device.name, dr_dtype_name(l.half),
           (unsigned long long)l.seed);
    fflush(stdout);
    all_cases(&l);
    if (!l.device.usable()) {
        printf("FAILED: the device is lost; the cases after that did not run\n");
        l.failed++;
    }
    print_table(&l);
    printf("%u passed, %u failed\n", l.passed, l.failed);
    lab_close(&l.device);
    free(l.tally);
    return l.failed ? 1 : 0;
}
