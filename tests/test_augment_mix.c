/* mixup and cutmix: shares, partners and boxes; and cross_entropy against shares of classes. */
#include "kernels/mix.h"
#include "tests/test_augment.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* N samples whose pixels are all their number, with their class. */
enum { N = 30, H = 12, W = 10, CLASSES = 7 };
struct mixed {
    struct rig r;
    uint8_t *byte, *mask;
    float *real, *share;
};
static struct mixed mix(const char *op, const char *yaml, uint64_t step, uint32_t n_valid) {
    static uint8_t byte[N * H * W], mask[N * H * W];
    static float real[N * H * W];
    static int32_t label[N];
    for (int i = 0; i < N * H * W; i++) {
        byte[i] = (uint8_t)(8 * (i / (H * W)));
        mask[i] = (uint8_t)(i / (H * W));
        real[i] = (float)(i / (H * W));
    }
    for (int i = 0; i < N; i++)
        label[i] = i % CLASSES;
    struct mixed m = {.r = rig_create(N)};
    const bool cut = op[0] == 'c';
    rig_header(&m.r, step, n_valid);
    const uint32_t in[] = {
        rig_input(&m.r, "byte", DR_U8, DR_SHAPE(N, H, W, 1), DR_IMAGE, byte),
        rig_input(&m.r, "label", DR_I32, DR_SHAPE(N), DR_LABEL, label),
        rig_input(&m.r, "real", DR_F32, DR_SHAPE(N, H, W, 1), DR_IMAGE, real),
        rig_input(&m.r, "mask", DR_U8, DR_SHAPE(N, H, W), DR_MASK, mask),
    };
    const uint32_t node = rig_op(&m.r, "mix", op, yaml, in, cut ? 4 : 3);
    cr_assert_neq(node, DR_NONE, "%s", rig_text(&m.r));
    const struct dr_value *soft = &m.r.g->value.at[rig_out(&m.r, node, 1)];
    cr_assert(soft->dtype == DR_F32 && soft->meaning == DR_LABEL && soft->shape.rank == 2 &&
              soft->shape.dim[1] == CLASSES);
    cr_expect_eq(m.r.g->value.at[in[1]].classes, CLASSES); /* what the loader checks by */
    rig_run(&m.r);
    m.byte = m.r.at[rig_out(&m.r, node, 0)];
    m.share = m.r.at[rig_out(&m.r, node, 1)];
    m.real = m.r.at[rig_out(&m.r, node, 2)];
    m.mask = cut ? m.r.at[rig_out(&m.r, node, 3)] : NULL;
    return m;
}

/* The label of sample i is `own` of its class and the rest of its partner's. */
static void check_share(const struct mixed *m, int i, int partner, double own) {
    for (int k = 0; k < CLASSES; k++) {
        const double want = (k == i % CLASSES ? own : 0) + (k == partner % CLASSES ? 1 - own : 0);
        cr_assert_float_eq((double)m->share[i * CLASSES + k], want, 1e-5, "sample %d class %d", i,
                           k);
    }
}

Test(augment_mix, mixup) {
    for (uint64_t step = 0; step < 20; step++) {
        const uint32_t n_valid = step % 2 ? N : 23;
        struct mixed m = mix("mixup", "{classes: 7}", step, n_valid);
        int distance = 0;
        for (int i = 0; i < (int)n_valid && !distance; i++) { /* from a share that is not 1 */
            for (int d = 1; d < (int)n_valid && !distance; d++) {
                const int p = (i + d) % (int)n_valid;
                const double own = ((double)m.real[i * H * W] - p) / (i - p);
                if (p % CLASSES != i % CLASSES && own > 0.05 && own < 0.95 &&
                    fabs((double)m.share[i * CLASSES + i % CLASSES] - own) < 1e-5 &&
                    fabs((double)m.share[i * CLASSES + p % CLASSES] - 1 + own) < 1e-5)
                    distance = d;
            }
        }
        cr_assert(distance, "step %d: no partner explains sample 0", (int)step);
        for (int i = 0; i < N; i++) {
            const bool alone = i >= (int)n_valid;
            const int p = alone ? i : (i + distance) % (int)n_valid;
            const double own = alone ? 1 : ((double)m.real[i * H * W] - p) / (i - p);
            cr_assert(own > -1e-5 && own < 1 + 1e-5);
            check_share(&m, i, p, own);
            for (int k = 0; k < H * W; k++) {
                cr_assert_float_eq((double)m.real[i * H * W + k], own * i + (1 - own) * p, 1e-4);
                cr_assert_float_eq((double)m.byte[i * H * W + k], 8 * (own * i + (1 - own) * p),
                                   0.501);
            }
        }
        rig_free(&m.r);
    }
}

Test(augment_mix, cutmix) {
    int cut = 0;
    for (uint64_t step = 0; step < 20; step++) {
        const uint32_t n_valid = step % 2 ? N : 23;
        struct mixed m = mix("cutmix", "{classes: 7}", step, n_valid);
        int distance = -1;
        for (int i = 0; i < N; i++) {
            int top = H, left = W, bottom = -1, right = -1, count = 0, p = i;
            for (int k = 0; k < H * W; k++) {
                const int from = m.mask[i * H * W + k];
                cr_assert_eq(m.byte[i * H * W + k], 8 * from);
                cr_assert_eq((int)m.real[i * H * W + k], from);
                if (from == i)
                    continue;
                cr_assert(count == 0 || from == p, "two partners");
                p = from;
                count++;
                top = k / W < top ? k / W : top;
                bottom = k / W > bottom ? k / W : bottom;
                left = k % W < left ? k % W : left;
                right = k % W > right ? k % W : right;
            }
            if (count) {
                const int d = (p - i + (int)n_valid) % (int)n_valid;
                cr_assert(i < (int)n_valid && (distance < 0 || d == distance));
                distance = d;
                cr_assert_eq(count, (bottom - top + 1) * (right - left + 1), "not a rectangle");
                cut++;
            }
            check_share(&m, i, p, 1 - count / (double)(H * W));
        }
        rig_free(&m.r);
    }
    cr_expect(cut > 300, "%d of 530", cut);
}

/* Partners change from step to step and do not depend on the samples. */
Test(augment_mix, partners_belong_to_the_step) {
    struct dr_batch *b = calloc(1, dr_batch_bytes(N));
    b->n_valid = N;
    const struct dr_mix m = {.n = N, .h = H, .w = W, .alpha = 1, .seed = 3, .key = 4};
    int seen[N] = {0}, distinct = 0;
    for (b->step = 0; b->step < 1000; b->step++) {
        const int64_t p = dr_mix_of(&m, b, 0).partner;
        b->epoch = (uint32_t)b->step;
        b->sample[0] = b->step;
        cr_assert_eq(dr_mix_of(&m, b, 0).partner, p);
        cr_assert_eq(dr_mix_of(&m, b, 5).partner, (5 + p) % N);
        cr_assert_neq(p, 0);
        distinct += seen[p]++ == 0;
    }
    cr_expect_eq(distinct, N - 1);
    free(b);
}

/* Mean and variance of Beta(alpha, alpha): 1/2 and 1 / (4 (2 alpha + 1)). */
Test(augment_mix, shares_are_beta) {
    static const double alphas[] = {0.05, 0.2, 1, 4, 400};
    struct dr_batch *b = calloc(1, dr_batch_bytes(1));
    b->n_valid = 1;
    for (size_t k = 0; k < COUNT(alphas); k++) {
        const struct dr_mix m = {.n = 1, .h = 1, .w = 1, .alpha = alphas[k], .seed = 3, .key = 4};
        enum { DRAWS = 20000 };
        double sum = 0, squares = 0;
        for (b->sample[0] = 0; b->sample[0] < DRAWS; b->sample[0]++) {
            const double v = (double)dr_mix_of(&m, b, 0).own - 0.5;
            cr_assert(v >= -0.5 && v <= 0.5);
            sum += v;
            squares += v * v;
        }
        const double variance = 1 / (4 * (2 * alphas[k] + 1));
        cr_expect(fabs(sum / DRAWS) < 4 * sqrt(variance / DRAWS), "alpha %g: mean off by %g",
                  alphas[k], sum / DRAWS);
        cr_expect(fabs(squares / DRAWS / variance - 1) < 0.04, "alpha %g: variance %g, not %g",
                  alphas[k], squares / DRAWS, variance);
    }
    free(b);
}

/* ---- cross_entropy ---- */

static uint32_t soft(struct rig *r, struct dr_shape s, const float *t) {
    return rig_input(r, "t", DR_F32, s, DR_LABEL, t);
}

/* log softmax of (0, log 2, log 5) is -log 8 plus these. */
Test(augment_mix, cross_entropy_of_shares_by_hand) {
    const float x[] = {0, 0.69314718056f, 1.60943791243f, 1, 1, 1, 5, -5, 0};
    const float t[] = {0.5f, 0.25f, 0.25f, 0, 1, 0, 0.1f, 0.2f, 0.7f};
    const double log2 = log(2), log5 = log(5), log8 = log(8);
    struct rig r = rig_create(3);
    rig_header(&r, 0, 2); /* the third does not count */
    const uint32_t in[] = {rig_floats(&r, "x", DR_SHAPE(3, 3), x), soft(&r, DR_SHAPE(3, 3), t)};
    const uint32_t loss = rig_op(&r, "loss", "cross_entropy", "{}", in, 2);
    cr_assert_neq(loss, DR_NONE, "%s", rig_text(&r));
    uint32_t dx[3];
    const bool need[3] = {true};
    rig_grad(&r, loss, NULL, need, 1, dx);
    rig_run(&r);
    const double first = log8 - 0.25 * log2 - 0.25 * log5;
    cr_expect_float_eq((double)rig_f32(&r, rig_out(&r, loss, 0))[0], (first + log(3)) / 2, 1e-6);
    /* (softmax - t) / 2 */
    const double grad[] = {
        (0.125 - 0.5) / 2, 0, (0.625 - 0.25) / 2, 1.0 / 6, -1.0 / 3, 1.0 / 6, 0, 0, 0};
    for (int i = 0; i < 9; i++)
        cr_expect_float_eq((double)rig_f32(&r, dx[0])[i], grad[i], 1e-6);
    rig_free(&r);
}

/* Shares of one class each are class numbers, with and without smoothing, by pixel too. */
Test(augment_mix, cross_entropy_of_one_class_each) {
    enum { B = 3, P = 8, K = 5 };
    float x[B * P * K], t[B * P * K] = {0};
    int32_t label[B * P];
    for (int i = 0; i < B * P * K; i++)
        x[i] = (float)(i * 29 % 37) * 0.1f - 1;
    for (int i = 0; i < B * P; i++) {
        label[i] = i * 3 % K;
        t[i * K + label[i]] = 1;
    }
    for (int smooth = 0; smooth < 2; smooth++) {
        const char *yaml = smooth ? "{label_smoothing: 0.2}" : "{}";
        const struct dr_shape s = DR_SHAPE(B, 2, 4, K);
        struct rig r = rig_create(B);
        const uint32_t v = rig_floats(&r, "x", s, x), shares = soft(&r, s, t);
        const uint32_t hard = rig_input(&r, "label", DR_I32, DR_SHAPE(B, 2, 4), DR_LABEL, label);
        uint32_t dx[2][3], loss[2];
        const bool need[3] = {true};
        for (int k = 0; k < 2; k++) {
            const uint32_t in[] = {v, k ? hard : shares};
            loss[k] = rig_op(&r, k ? "hard" : "soft", "cross_entropy", yaml, in, 2);
            rig_grad(&r, loss[k], NULL, need, 0.5, dx[k]);
        }
        rig_run(&r);
        cr_expect_float_eq((double)rig_f32(&r, rig_out(&r, loss[0], 0))[0],
                           (double)rig_f32(&r, rig_out(&r, loss[1], 0))[0], 1e-6);
        for (int i = 0; i < B * P * K; i++)
            cr_expect_float_eq((double)rig_f32(&r, dx[0][0])[i], (double)rig_f32(&r, dx[1][0])[i],
                               1e-7);
        rig_free(&r);
    }
}

/* A class number that is none makes shares that are no numbers, and a loss that stops the run. */
Test(augment_mix, a_wrong_class_is_not_a_number) {
    const uint8_t x[2] = {0};
    const int32_t label[2] = {1, 5};
    const float logits[4] = {0};
    struct rig r = rig_create(2);
    const uint32_t in[] = {rig_input(&r, "x", DR_U8, DR_SHAPE(2, 1, 1, 1), DR_IMAGE, x),
                           rig_input(&r, "label", DR_I32, DR_SHAPE(2), DR_LABEL, label)};
    const uint32_t node = rig_op(&r, "mix", "mixup", "{classes: 2}", in, 2);
    const uint32_t pair[] = {rig_floats(&r, "logits", DR_SHAPE(2, 2), logits),
                             rig_out(&r, node, 1)};
    const uint32_t loss = rig_op(&r, "loss", "cross_entropy", "{}", pair, 2);
    cr_assert_neq(loss, DR_NONE, "%s", rig_text(&r));
    rig_run(&r);
    cr_expect(isnan(rig_f32(&r, rig_out(&r, loss, 0))[0]));
    rig_free(&r);
}

Test(augment_mix, refuses) {
    static const struct rig_refused t[] = {
        {"mixup", "{}", DR_I32, {1, {4}}, DR_LABEL, "say how many there are, `classes: N`"},
        {"mixup",
         "{classes: 2}",
         DR_U8,
         {3, {4, 3, 3}},
         DR_MASK,
         "'v' is a mask: a pixel cannot be a bit of two classes; cutmix takes masks"},
        {"cutmix", "{classes: 2}", DR_U8, {3, {4, 3, 2}}, DR_MASK, "same height and width"},
        {"mixup", "{classes: 2}", DR_U8, {2, {4, 3}}, DR_PLAIN, "'v' is u8"},
        {"mixup", "{classes: 2}", DR_I64, {4, {4, 3, 3, 1}}, DR_IMAGE, "'v' is i64"},
        {"mixup", "{classes: 2}", DR_I32, {5, {4, 1, 1, 1, 1}}, DR_LABEL, "too many axes"},
        {"mixup",
         "{classes: 8192}",
         DR_I32,
         {3, {4, 512, 512}},
         DR_LABEL,
         "'v' would become [4, 512, 512, 8192]: a sample may have 2^31 values"},
        {"mixup", "{alpha: 0}", DR_F32, {1, {4}}, DR_LABEL, "alpha"},
        {"mixup", "{classes: 0}", DR_I32, {1, {4}}, DR_LABEL, "classes"},
        {"cross_entropy",
         "{}",
         DR_F32,
         {4, {4, 3, 3, 2}},
         DR_LABEL,
         "'v' holds shares of classes, [4, 3, 3, 2]"},
        {"cross_entropy",
         "{class_weights: [1]}",
         DR_F32,
         {4, {4, 3, 3, 1}},
         DR_LABEL,
         "class_weights are for class numbers"},
        {"cross_entropy",
         "{ignore_index: 1}",
         DR_F32,
         {4, {4, 3, 3, 1}},
         DR_LABEL,
         "ignore_index is a class number; 'v' holds shares of classes"},
        {"cross_entropy", "{}", DR_F32, {4, {4, 3, 3, 1}}, DR_PLAIN, "classes are integers"},
    };
    rig_refuses(t, COUNT(t), true);
    struct rig r = rig_create(4);
    const uint32_t in[] = {rig_input(&r, "a", DR_F32, DR_SHAPE(4), DR_LABEL, NULL),
                           rig_input(&r, "b", DR_F32, DR_SHAPE(4, 2), DR_PLAIN, NULL)};
    cr_expect_eq(rig_op(&r, "op", "mixup", "{}", in, 2), DR_NONE);
    cr_expect(strstr(rig_text(&r), "it has no image to mix"), "%s", rig_text(&r));
    rig_free(&r);
}
