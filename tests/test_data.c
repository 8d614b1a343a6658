/* Data sets and the loader: which samples a batch has, what is in them, and what is refused. */
#include "augment/data.h"
#include "augment/npy.h"
#include "augment/order.h"
#include "kernels/batch.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/dagrun-data-XXXXXX";

static void make_folder(void) {
    cr_assert_not_null(mkdtemp(folder));
}
static void remove_folder(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}
TestSuite(data, .init = make_folder, .fini = remove_folder);

/* ---- a model by hand ---- */

struct world {
    struct dr_arena *a;
    struct dr_model *m;
    struct dr_column_want want[4];
    struct dr_ring ring;
    unsigned char *slot;
};

static struct world world(int64_t batch) {
    struct world w = {.a = dr_arena_create()};
    w.m = DR_NEW(w.a, struct dr_model);
    w.m->arena = w.a;
    w.m->diag = dr_diag_create(w.a);
    w.m->batch = batch;
    struct dr_split *split = dr_push(w.a, &w.m->split);
    memset(split, 0, sizeof *split);
    split->name = "train";
    split->shuffle = split->last = -1;
    return w;
}
static void end(struct world *w, struct dr_dataset *s) {
    dr_dataset_close(s);
    free(w->slot);
    dr_arena_destroy(w->a);
}

static struct dr_source *add(struct world *w, const char *name, enum dr_dtype t, struct dr_shape s,
                             enum dr_meaning meaning, const char *npy) {
    const uint32_t i = w->m->input.n;
    struct dr_input *in = dr_push(w->a, &w->m->input);
    *in = (struct dr_input){.name = name, .dtype = t, .shape = s, .meaning = meaning};
    struct dr_source *src = dr_push(w->a, &w->m->split.at[0].source);
    *src = (struct dr_source){
        .input = i, .kind = npy ? DR_SOURCE_NPY : DR_SOURCE_SYNTHETIC, .path = npy, .rows = 64};
    struct dr_column_want *want = &w->want[i];
    const bool integer = t == DR_U8 || t == DR_U16 || t == DR_I32 || t == DR_I64;
    *want = (struct dr_column_want){.input = i,
                                    .dtype = meaning == DR_LABEL && integer ? DR_I32 : t,
                                    .ignore = meaning == DR_MASK ? 255 : 0};
    want->shape.rank = s.rank + 1;
    want->shape.dim[0] = w->m->batch;
    for (uint32_t d = 0; d < s.rank; d++)
        want->shape.dim[d + 1] = s.dim[d];
    return src;
}
static const struct dr_shape scalar = {.rank = 0};

static const char *write_npy(struct world *w, const char *name, const char *descr,
                             struct dr_shape s, const void *data, size_t bytes) {
    const char *path = dr_printf(w->a, "%s/%s", folder, name);
    cr_assert_eq(dr_npy_write(path, descr, s.dim, s.rank, data, bytes), 0);
    return path;
}

static struct dr_dataset *opened(struct world *w, bool training) {
    struct dr_dataset *s = dr_dataset_open(w->a, w->m, 0, training);
    cr_assert_not_null(s, "%s", dr_diag_text(w->m->diag));
    w->ring.slots = 1;
    dr_ring_layout(w->a, &w->ring, w->want, w->m->input.n, w->m->batch);
    w->slot = aligned_alloc(64, w->ring.slot_bytes);
    return s;
}
static void says(struct world *w, const char *text) {
    cr_assert(strstr(dr_diag_text(w->m->diag), text), "'%s' lacks '%s'", dr_diag_text(w->m->diag),
              text);
}
static void refused(struct world *w, bool training, const char *text) {
    cr_assert_null(dr_dataset_open(w->a, w->m, 0, training), "wanted: %s", text);
    says(w, text);
    cr_assert_eq(dr_diag_errors(w->m->diag), 1, "%s", dr_diag_text(w->m->diag));
    end(w, NULL);
}
static const struct dr_batch *batch_of(struct world *w, struct dr_dataset *s, uint64_t seed,
                                       uint64_t step) {
    const char *why = dr_dataset_batch(s, w->want, w->m->input.n, &w->ring, seed, step, w->slot);
    cr_assert_null(why, "%s", why);
    return (const struct dr_batch *)(w->slot + w->ring.offset[w->m->input.n]);
}
static const void *column(const struct world *w, uint32_t i) {
    return w->slot + w->ring.offset[i];
}

/* ---- order ---- */

Test(data, order_of_an_epoch) {
    enum { N = 1000 };
    static uint32_t a[N], b[N], seen[N];
    dr_order_shuffle(a, N, 7, 0);
    dr_order_shuffle(b, N, 7, 0);
    cr_assert_eq(memcmp(a, b, sizeof a), 0);
    uint32_t fixed = 0;
    for (uint32_t i = 0; i < N; i++) {
        cr_assert(a[i] < N && !seen[a[i]]++);
        fixed += a[i] == i;
    }
    cr_assert(fixed < 8, "%u fixed points; one is expected", fixed);
    dr_order_shuffle(b, N, 7, 1);
    cr_assert_neq(memcmp(a, b, sizeof a), 0);
    dr_order_shuffle(b, N, 8, 0);
    cr_assert_neq(memcmp(a, b, sizeof a), 0);
    dr_order_shuffle(a, 1, 7, 0);
    cr_assert_eq(a[0], 0);
    dr_order_shuffle(a, 0, 7, 0);
}

/* Every permutation of 4 about equally often: 24 bins of 24000, chi-squared below the 1e-6 tail. */
Test(data, order_is_uniform) {
    uint32_t bin[256] = {0}, p[4];
    for (uint32_t epoch = 0; epoch < 24000; epoch++) {
        dr_order_shuffle(p, 4, 3, epoch);
        bin[p[0] | p[1] << 2 | p[2] << 4 | p[3] << 6]++;
    }
    double chi = 0;
    int used = 0;
    for (int i = 0; i < 256; i++)
        if (bin[i]) {
            chi += (bin[i] - 1000.0) * (bin[i] - 1000.0) / 1000.0;
            used++;
        }
    cr_assert_eq(used, 24);
    cr_assert(chi < 72, "chi-squared %g with 23 degrees of freedom", chi);
}

Test(data, drop_pad_and_the_header) {
    static const struct {
        int32_t shuffle, last;
        bool training;
        int64_t batches;
        bool pads;
    } t[] = {{0, 0, true, 2, false}, {0, 1, true, 3, true},    {1, 0, false, 2, false},
             {1, 1, false, 3, true}, {-1, -1, true, 2, false}, {-1, -1, false, 3, true}};
    uint8_t rows[10];
    for (int i = 0; i < 10; i++)
        rows[i] = (uint8_t)(100 + i);
    for (size_t k = 0; k < sizeof t / sizeof t[0]; k++) {
        struct world w = world(4);
        add(&w, "y", DR_U8, scalar, DR_LABEL,
            write_npy(&w, "y.npy", "|u1", DR_SHAPE(10), rows, sizeof rows));
        w.m->split.at[0].shuffle = t[k].shuffle;
        w.m->split.at[0].last = t[k].last;
        struct dr_dataset *s = opened(&w, t[k].training);
        const bool shuffled = t[k].shuffle == -1 ? t[k].training : t[k].shuffle == 1;
        cr_assert_eq(dr_dataset_samples(s), 10);
        cr_assert_eq(dr_dataset_batches(s), t[k].batches);
        cr_assert_eq(dr_dataset_pads(s), t[k].pads);
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
            uint32_t order[10], seen[10] = {0}, valid = 0;
            dr_order_shuffle(order, 10, 5, epoch);
            for (int64_t b = 0; b < t[k].batches; b++) {
                const uint64_t step = (uint64_t)(epoch * t[k].batches + b);
                const struct dr_batch *h = batch_of(&w, s, 5, step);
                cr_assert_eq(h->step, step);
                cr_assert_eq(h->epoch, epoch);
                cr_assert_eq(h->n_valid, b == 2 ? 2 : 4);
                for (uint32_t i = 0; i < 4; i++) {
                    const uint32_t at = (uint32_t)b * 4 + (i < h->n_valid ? i : h->n_valid - 1);
                    cr_assert_eq(h->sample[i], shuffled ? order[at] : at);
                    cr_assert_eq(((const int32_t *)column(&w, 0))[i], 100 + (int)h->sample[i]);
                    if (i < h->n_valid) {
                        cr_assert(!seen[h->sample[i]]++);
                        valid++;
                    }
                }
            }
            cr_assert_eq(valid, t[k].pads ? 10 : 8);
        }
        end(&w, s);
    }
}

/* ---- columns ---- */

Test(data, integer_labels_of_every_width) {
    static const uint8_t u1[3] = {0, 200, 255};
    static const int8_t i1[3] = {-128, 0, 127};
    static const uint16_t u2[3] = {0, 40000, 65535};
    static const int16_t i2[3] = {-32768, 1, 32767};
    static const int32_t i4[3] = {INT32_MIN, 0, INT32_MAX};
    static const uint32_t u4[3] = {0, 1, INT32_MAX};
    static const int64_t i8[3] = {INT32_MIN, 5, INT32_MAX};
    static const uint64_t u8[3] = {0, 9, INT32_MAX};
    static const uint8_t b1[3] = {0, 1, 1};
    static const struct {
        const char *descr;
        const void *data;
        size_t bytes;
        int32_t right[3];
    } t[] = {{"|u1", u1, sizeof u1, {0, 200, 255}},
             {"|i1", i1, sizeof i1, {-128, 0, 127}},
             {"<u2", u2, sizeof u2, {0, 40000, 65535}},
             {"<i2", i2, sizeof i2, {-32768, 1, 32767}},
             {"<i4", i4, sizeof i4, {INT32_MIN, 0, INT32_MAX}},
             {"<u4", u4, sizeof u4, {0, 1, INT32_MAX}},
             {"<i8", i8, sizeof i8, {INT32_MIN, 5, INT32_MAX}},
             {"<u8", u8, sizeof u8, {0, 9, INT32_MAX}},
             {"|b1", b1, sizeof b1, {0, 1, 1}}};
    for (size_t k = 0; k < sizeof t / sizeof t[0]; k++) {
        struct world w = world(3);
        add(&w, "y", k % 2 ? DR_I64 : DR_U8, scalar, DR_LABEL,
            write_npy(&w, "y.npy", t[k].descr, DR_SHAPE(3), t[k].data, t[k].bytes));
        struct dr_dataset *s = opened(&w, false);
        cr_assert(dr_dataset_check(s, w.want, 1), "%s", dr_diag_text(w.m->diag));
        batch_of(&w, s, 0, 0);
        cr_assert_eq(memcmp(column(&w, 0), t[k].right, 12), 0, "%s", t[k].descr);
        end(&w, s);
    }
}

Test(data, values_past_i32_are_refused) {
    static const int64_t i8[2] = {0, INT64_C(1) << 31};
    static const uint64_t u8[2] = {0, UINT64_MAX};
    for (int k = 0; k < 2; k++) {
        struct world w = world(2);
        add(&w, "y", DR_I64, scalar, DR_LABEL,
            k ? write_npy(&w, "y.npy", "<u8", DR_SHAPE(2), u8, sizeof u8)
              : write_npy(&w, "y.npy", "<i8", DR_SHAPE(2), i8, sizeof i8));
        struct dr_dataset *s = opened(&w, false);
        const char *why = dr_dataset_batch(s, w.want, 1, &w.ring, 0, 0, w.slot);
        cr_assert(why && strstr(why, "row 1"), "%s", why);
        cr_assert(!dr_dataset_check(s, w.want, 1));
        says(&w, "input 'y' takes -2147483648 to 2147483647");
        end(&w, s);
    }
}

Test(data, floats_of_every_width) {
    /* f2: 1.0, -2.5, the smallest subnormal 2^-24, 65504, infinity, not a number */
    static const uint16_t f2[6] = {0x3c00, 0xc100, 0x0001, 0x7bff, 0x7c00, 0x7e00};
    static const double f8[6] = {1.0, -2.5, 0x1p-24, 65504.0, 1e300, NAN};
    static const float right[6] = {1.0f, -2.5f, 0x1p-24f, 65504.0f, INFINITY, NAN};
    for (int k = 0; k < 3; k++) {
        struct world w = world(2);
        const struct dr_shape s3 = DR_SHAPE(2, 1, 3);
        const char *path = k == 0   ? write_npy(&w, "x.npy", "<f2", s3, f2, sizeof f2)
                           : k == 1 ? write_npy(&w, "x.npy", "<f4", s3, right, sizeof right)
                                    : write_npy(&w, "x.npy", "<f8", s3, f8, sizeof f8);
        add(&w, "x", DR_F32, DR_SHAPE(1, 3, 1), DR_IMAGE, path); /* the channel axis is added */
        struct dr_dataset *s = opened(&w, false);
        batch_of(&w, s, 0, 0);
        const float *got = column(&w, 0);
        for (int i = 0; i < 5; i++)
            cr_assert_eq(got[i], right[i], "%d: %g", i, (double)got[i]);
        cr_assert(isnan(got[5]));
        end(&w, s);
    }
}

/* As AUG-06 (d): a range that is the whole file works, one past it names both. */
Test(data, AUG_06_row_ranges) {
    uint8_t rows[10];
    for (int i = 0; i < 10; i++)
        rows[i] = (uint8_t)i;
    static const struct {
        int64_t from, to;
        const char *text; /* NULL: right */
    } t[] = {{0, 10, NULL},
             {3, 7, NULL},
             {9, 10, NULL},
             {0, 11, "rows [0, 11] are not within the 10 rows of npy '"},
             {10, 12, "rows [10, 12]"},
             {-1, 4, "rows [-1, 4]"},
             {7, 3, "rows [7, 3]"},
             {4, 4, "split 'train' has no samples"},
             {0, INT64_MAX, "are not within the 10 rows"}};
    for (size_t k = 0; k < sizeof t / sizeof t[0]; k++) {
        struct world w = world(1);
        struct dr_source *src = add(&w, "y", DR_U8, scalar, DR_LABEL,
                                    write_npy(&w, "y.npy", "|u1", DR_SHAPE(10), rows, sizeof rows));
        src->has_range = true;
        src->from = t[k].from;
        src->to = t[k].to;
        if (t[k].text) {
            refused(&w, false, t[k].text);
            continue;
        }
        struct dr_dataset *s = opened(&w, false);
        cr_assert_eq(dr_dataset_samples(s), t[k].to - t[k].from);
        const struct dr_batch *h = batch_of(&w, s, 0, 0);
        cr_assert_eq(h->sample[0], 0);
        cr_assert_eq(*(const int32_t *)column(&w, 0), t[k].from);
        end(&w, s);
    }
}

Test(data, sources_that_do_not_fit) {
    static const uint8_t bytes[96] = {0};
    static const struct {
        enum dr_dtype declared;
        enum dr_meaning meaning;
        struct dr_shape shape;
        const char *descr;
        struct dr_shape file;
        const char *text;
    } t[] = {
        {DR_U8,
         DR_IMAGE,
         {2, {2, 2}},
         "<i8",
         {3, {3, 2, 2}},
         "holds i64, input 'x' is declared u8"},
        {DR_U8, DR_IMAGE, {2, {2, 2}}, "|b1", {3, {3, 2, 2}}, "holds bool"},
        {DR_U8, DR_IMAGE, {2, {2, 2}}, "<f4", {3, {3, 2, 2}}, "holds f32"},
        {DR_F32,
         DR_IMAGE,
         {2, {2, 2}},
         "|u1",
         {3, {3, 2, 2}},
         "holds u8, input 'x' is declared f32"},
        {DR_U8, DR_LABEL, {0, {0}}, "<f8", {1, {3}}, "holds f64, input 'x' is declared u8"},
        {DR_BF16, DR_IMAGE, {2, {2, 2}}, "<f2", {3, {3, 2, 2}}, "declared bf16"},
        {DR_U8,
         DR_IMAGE,
         {3, {2, 2, 1}},
         "|u1",
         {4, {3, 2, 2, 2}},
         "is [3, 2, 2, 2]: samples of input 'x' are declared [2, 2, 1]"},
        {DR_U8, DR_IMAGE, {3, {2, 2, 3}}, "|u1", {3, {3, 2, 2}}, "is [3, 2, 2]"},
        {DR_U8, DR_LABEL, {0, {0}}, "|u1", {2, {3, 1}}, "is [3, 1]"},
        {DR_U8, DR_LABEL, {0, {0}}, "|u1", {0, {0}}, "is []"},
        {DR_U8, DR_LABEL, {0, {0}}, "|u1", {1, {0}}, "has no samples"},
    };
    for (size_t k = 0; k < sizeof t / sizeof t[0]; k++) {
        struct world w = world(1);
        int64_t n = 1;
        for (uint32_t d = 0; d < t[k].file.rank; d++)
            n *= t[k].file.dim[d];
        const size_t item = (size_t)(t[k].descr[2] - '0');
        add(&w, "x", t[k].declared, t[k].shape, t[k].meaning,
            write_npy(&w, "x.npy", t[k].descr, t[k].file, bytes, (size_t)n * item));
        refused(&w, false, t[k].text);
    }
    struct world w = world(1);
    add(&w, "x", DR_U8, scalar, DR_LABEL, "/nowhere/x.npy");
    refused(&w, false, "npy '/nowhere/x.npy': No such file");
    w = world(1);
    refused(&w, false, "feeds no input");
    w = world(5);
    add(&w, "x", DR_U8, scalar, DR_LABEL, write_npy(&w, "x.npy", "|u1", DR_SHAPE(4), bytes, 4));
    refused(&w, true, "split 'train' has 4 samples, fewer than a batch of 5");
}

Test(data, columns_must_agree) {
    static const uint8_t bytes[10] = {0};
    struct world w = world(1);
    add(&w, "image", DR_U8, DR_SHAPE(1, 1, 1), DR_IMAGE,
        write_npy(&w, "x.npy", "|u1", DR_SHAPE(10, 1, 1), bytes, 10));
    add(&w, "label", DR_U8, scalar, DR_LABEL, write_npy(&w, "y.npy", "|u1", DR_SHAPE(9), bytes, 9));
    const char *text = dr_printf(w.a,
                                 "input 'label' has 9 samples in npy '%s/y.npy', input 'image' has "
                                 "10 in npy '%s/x.npy'",
                                 folder, folder);
    refused(&w, true, text);
}

Test(data, class_numbers_are_checked_with_their_rows) {
    uint8_t rows[20];
    for (int i = 0; i < 20; i++)
        rows[i] = i >= 4 && i < 12 ? 10 : (uint8_t)(i % 10); /* rows 4 to 11 are wrong */
    struct world w = world(2);
    struct dr_source *src = add(&w, "y", DR_U8, scalar, DR_LABEL,
                                write_npy(&w, "y.npy", "|u1", DR_SHAPE(20), rows, sizeof rows));
    src->has_range = true;
    src->from = 2;
    src->to = 20;
    struct dr_dataset *s = opened(&w, false);
    cr_assert(dr_dataset_check(s, w.want, 1)); /* classes unknown */
    w.want[0].classes = 10;
    cr_assert(!dr_dataset_check(s, w.want, 1));
    cr_assert_eq(dr_diag_errors(w.m->diag), 1);
    says(&w, "y.npy', row 4: value 10, input 'y' takes 0 to 9");
    says(&w, "row 8: value 10");
    says(&w, "and 3 more rows");
    cr_assert(!strstr(dr_diag_text(w.m->diag), "row 9"));
    const char *why = dr_dataset_batch(s, w.want, 1, &w.ring, 0, 1, w.slot);
    cr_assert(why && strstr(why, "row 4: value 10"), "%s", why);
    end(&w, s);

    static const uint8_t mask[2][4] = {{0, 1, 255, 2}, {0, 3, 255, 1}};
    w = world(2);
    add(&w, "m", DR_U8, DR_SHAPE(2, 2), DR_MASK,
        write_npy(&w, "m.npy", "|u1", DR_SHAPE(2, 2, 2), mask, sizeof mask));
    s = opened(&w, false);
    w.want[0].classes = 4;
    cr_assert(dr_dataset_check(s, w.want, 1), "%s", dr_diag_text(w.m->diag));
    batch_of(&w, s, 0, 0);
    cr_assert_eq(memcmp(column(&w, 0), mask, sizeof mask), 0);
    w.want[0].classes = 3;
    cr_assert(!dr_dataset_check(s, w.want, 1));
    says(&w, "row 1: value 3, input 'm' takes 0 to 2 or 255");
    w.want[0].classes = 4;
    w.want[0].ignore = 0;
    cr_assert(!dr_dataset_check(s, w.want, 1));
    end(&w, s);

    /* PyTorch's -100, where the file and the device's type have such numbers */
    static const int8_t signed_labels[4] = {0, -100, 2, -1};
    w = world(2);
    add(&w, "y", DR_I32, scalar, DR_LABEL,
        write_npy(&w, "s.npy", "|i1", DR_SHAPE(4), signed_labels, sizeof signed_labels));
    s = opened(&w, false);
    w.want[0].classes = 3;
    w.want[0].ignore = -100;
    cr_assert(!dr_dataset_check(s, w.want, 1));
    says(&w, "row 3: value -1, input 'y' takes 0 to 2 or -100");
    batch_of(&w, s, 0, 0);
    cr_assert_eq(((const int32_t *)column(&w, 0))[1], -100);
    w.want[0].dtype = DR_U8;
    why = dr_dataset_batch(s, w.want, 1, &w.ring, 0, 0, w.slot);
    cr_assert(why && strstr(why, "row 1: value -100, input 'y' takes 0 to 2"), "%s", why);
    end(&w, s);
}

/* ---- synthetic ---- */

Test(data, synthetic_depends_on_the_sample_only) {
    struct world w = world(4);
    add(&w, "x", DR_U8, DR_SHAPE(5, 5, 3), DR_IMAGE, NULL);
    add(&w, "z", DR_U8, DR_SHAPE(5, 5, 3), DR_IMAGE, NULL);
    add(&w, "y", DR_U8, scalar, DR_LABEL, NULL);
    w.want[2].classes = 3;
    struct dr_dataset *s = opened(&w, true);
    cr_assert(dr_dataset_check(s, w.want, 3));
    cr_assert_eq(dr_dataset_batches(s), 16);
    static unsigned char first[64][75];
    static int32_t label[64];
    for (uint64_t step = 0; step < 32; step++) { /* epoch 1 has another order */
        const struct dr_batch *h = batch_of(&w, s, 11, step);
        const unsigned char *x = column(&w, 0), *z = column(&w, 1);
        cr_assert_neq(memcmp(x, z, 75), 0, "two inputs with the same content");
        for (int i = 0; i < 4; i++) {
            const uint64_t k = h->sample[i];
            const int32_t y = ((const int32_t *)column(&w, 2))[i];
            if (step < 16) {
                memcpy(first[k], x + 75 * i, 75);
                label[k] = y;
                cr_assert(y >= 0 && y < 3);
            }
            cr_assert_eq(memcmp(first[k], x + 75 * i, 75), 0);
            cr_assert_eq(label[k], y);
        }
    }
    int count[3] = {0}, low = 0;
    for (int k = 0; k < 64; k++) {
        count[label[k]]++;
        for (int i = 0; i < 75; i++)
            low += first[k][i] < 128;
    }
    for (int c = 0; c < 3; c++)
        cr_assert(count[c] > 5, "class %d: %d of 64", c, count[c]);
    cr_assert(low > 2200 && low < 2600, "%d of 4800 bytes below 128", low); /* 2400 +- 6 sigma */
    end(&w, s);
}

Test(data, synthetic_kinds) {
    struct world w = world(64);
    add(&w, "n", DR_F32, DR_SHAPE(8, 8, 1), DR_IMAGE, NULL)->synthetic = DR_SYNTHETIC_NORMAL;
    add(&w, "u", DR_F32, DR_SHAPE(8, 8, 1), DR_IMAGE, NULL);
    add(&w, "o", DR_U8, scalar, DR_LABEL, NULL)->synthetic = DR_SYNTHETIC_ZEROS;
    struct dr_dataset *s = opened(&w, true);
    cr_assert(dr_dataset_check(s, w.want, 3)); /* zeros need no classes */
    batch_of(&w, s, 1, 0);
    double sum[2] = {0}, square[2] = {0};
    for (uint32_t c = 0; c < 2; c++)
        for (int i = 0; i < 4096; i++) {
            const double v = (double)((const float *)column(&w, c))[i];
            cr_assert(isfinite(v) && (c == 0 || (v >= 0 && v < 1)));
            sum[c] += v / 4096;
            square[c] += v * v / 4096;
        }
    /* Six sigma of the mean of 4096: 6/64 of the deviation; of the second moment likewise. */
    cr_assert(fabs(sum[0]) < 0.094 && fabs(square[0] - 1) < 0.14, "%g %g", sum[0], square[0]);
    cr_assert(fabs(sum[1] - 0.5) < 0.028 && fabs(square[1] - 1.0 / 3) < 0.028);
    for (int i = 0; i < 64; i++)
        cr_assert_eq(((const int32_t *)column(&w, 2))[i], 0);
    end(&w, s);
}

Test(data, synthetic_labels_need_their_classes) {
    struct world w = world(4);
    add(&w, "y", DR_U8, scalar, DR_LABEL, NULL);
    struct dr_dataset *s = opened(&w, true);
    const char *why = dr_dataset_batch(s, w.want, 1, &w.ring, 0, 0, w.slot);
    cr_assert(why && strstr(why, "how many classes"), "%s", why);
    cr_assert(!dr_dataset_check(s, w.want, 1));
    says(&w, "input 'y' is synthetic, and nothing says how many classes it has");
    end(&w, s);
}

Test(data, inputs_that_are_not_fed) {
    static const uint8_t bytes[4] = {1, 2, 3, 4};
    struct world w = world(4);
    add(&w, "x", DR_U8, scalar, DR_PLAIN, write_npy(&w, "x.npy", "|u1", DR_SHAPE(4), bytes, 4));
    add(&w, "y", DR_U8, scalar, DR_LABEL, NULL);
    w.m->split.at[0].source.n = 1; /* infer: {x: ...} */
    w.want[1].input = DR_NONE;
    struct dr_dataset *s = opened(&w, false);
    cr_assert_eq(w.ring.offset[1], w.ring.offset[2]);
    cr_assert(dr_dataset_check(s, w.want, 2));
    batch_of(&w, s, 0, 0);
    cr_assert_eq(memcmp(column(&w, 0), bytes, 4), 0);
    w.want[1].input = 1;
    const char *why = dr_dataset_batch(s, w.want, 2, &w.ring, 0, 0, w.slot);
    cr_assert(why && strstr(why, "does not feed input 'y'"), "%s", why);
    end(&w, s);
}

Test(data, ring_layout) {
    struct world w = world(3);
    add(&w, "x", DR_U8, DR_SHAPE(5, 5, 3), DR_IMAGE, NULL); /* 225 bytes: 256 */
    add(&w, "y", DR_U8, scalar, DR_LABEL, NULL);            /* 12 bytes: 64 */
    dr_ring_layout(w.a, &w.ring, w.want, 2, 3);
    cr_assert_eq(w.ring.offset[0], 0);
    cr_assert_eq(w.ring.offset[1], 256);
    cr_assert_eq(w.ring.offset[2], 320);
    cr_assert_eq(w.ring.slot_bytes, 320 + 64); /* header of 16 + 3 * 8 */
    end(&w, NULL);
}

/* ---- loader ---- */

static void start_ring(struct world *w, uint32_t slots) {
    w->ring.slots = slots;
    w->ring.base = aligned_alloc(64, slots * w->ring.slot_bytes);
    w->ring.filled = calloc(slots, sizeof *w->ring.filled);
    w->ring.released = calloc(slots, sizeof *w->ring.released);
}
static void end_ring(struct world *w) {
    free(w->ring.base);
    free((void *)w->ring.filled);
    free((void *)w->ring.released);
}

/* Same content for every number of threads, depth and start (AUG-03: workers 0, 1, 4; depths 1, 4;
 * resumed from epoch 1). */
Test(data, AUG_03_loader_order) {
    static const uint32_t threads[] = {0, 1, 4}, depths[] = {1, 4};
    for (int k = 0; k < 12; k++) {
        struct world w = world(4);
        add(&w, "x", DR_U8, DR_SHAPE(4, 4, 1), DR_IMAGE, NULL);
        add(&w, "y", DR_U8, scalar, DR_LABEL, NULL);
        w.want[1].classes = 10;
        struct dr_dataset *s = opened(&w, true);
        start_ring(&w, depths[k / 3 % 2]);
        const uint64_t first = k < 6 ? 0 : 16;
        struct dr_loader *l = dr_loader_start(s, w.want, 2, &w.ring, 9, first, 32, threads[k % 3]);
        for (uint64_t step = first; step < 32; step++) {
            const char *why = "";
            cr_assert(dr_loader_wait(l, step, &why), "%s", why);
            const uint32_t slot = (uint32_t)(step % w.ring.slots);
            cr_assert_eq(w.ring.filled[slot], step + 1);
            batch_of(&w, s, 9, step);
            const size_t bytes[3] = {64, 16, dr_batch_bytes(4)};
            const unsigned char *got = w.ring.base + slot * w.ring.slot_bytes;
            for (int i = 0; i < 3; i++)
                cr_assert_eq(memcmp(w.slot + w.ring.offset[i], got + w.ring.offset[i], bytes[i]),
                             0);
            w.ring.released[slot] = step + 1;
            dr_loader_wake(l);
        }
        cr_assert(dr_loader_waited_s(l) >= 0);
        dr_loader_stop(l);
        end_ring(&w);
        end(&w, s);
    }
}

/* Samples 8 and 9 are bad: steps before theirs come through, then the first of them is named. */
Test(data, loader_reports_the_first_failure_in_order) {
    uint8_t rows[16];
    for (int i = 0; i < 16; i++)
        rows[i] = i >= 8 && i < 10 ? 77 : 1;
    for (uint32_t threads = 1; threads <= 4; threads++)
        for (int again = 0; again < 20; again++) {
            struct world w = world(1);
            struct dr_source *src =
                add(&w, "y", DR_U8, scalar, DR_LABEL,
                    write_npy(&w, "y.npy", "|u1", DR_SHAPE(16), rows, sizeof rows));
            src->has_range = false;
            w.want[0].classes = 10;
            struct dr_dataset *s = opened(&w, false);
            start_ring(&w, 16);
            struct dr_loader *l = dr_loader_start(s, w.want, 1, &w.ring, 0, 0, 16, threads);
            const char *why = "";
            for (uint64_t step = 0; step < 8; step++)
                cr_assert(dr_loader_wait(l, step, &why), "step %d: %s", (int)step, why);
            cr_assert(!dr_loader_wait(l, 12, &why));
            cr_assert(strstr(why, "row 8: value 77"), "%s", why);
            cr_assert(dr_loader_wait(l, 7, &why));
            dr_loader_stop(l);
            end_ring(&w);
            end(&w, s);
        }
}

Test(data, loader_stops_at_any_time) {
    for (int k = 0; k < 60; k++) {
        struct world w = world(2);
        add(&w, "x", DR_U8, DR_SHAPE(32, 32, 3), DR_IMAGE, NULL);
        struct dr_dataset *s = opened(&w, true);
        start_ring(&w, 1 + (uint32_t)k % 3);
        struct dr_loader *l =
            dr_loader_start(s, w.want, 1, &w.ring, 0, 0, UINT64_MAX, 1 + (uint32_t)k % 4);
        const char *why;
        if (k % 2)
            cr_assert(dr_loader_wait(l, 0, &why));
        if (k % 5 == 0)
            usleep(500); /* every worker waits for a slot that nobody releases */
        dr_loader_stop(l);
        end_ring(&w);
        end(&w, s);
    }
    dr_loader_stop(NULL);
}
