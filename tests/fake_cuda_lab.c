/* The laboratory of fake_cuda_lab.h: building cases, launching a node between guards, judging it.
 */
#include "tests/fake_cuda_lab.h"
#include "kernels/cuda/pointwise.h"
#include "ops/common.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-5
#define TOLERANCE_TF32 1e-3 /* of what rounds its operands to tf32 */
#define TOLERANCE_F16 2e-3
#define TOLERANCE_BF16 1e-2
#define TOLERANCE_SUMS 1e-4 /* fp32 sums of products of halves */
#define TINY 1e-12          /* what cancels to less counts as 0 */
#define MAX_OPERANDS 512

/* ---- random numbers ---- */
static uint64_t next(struct lab *l) { /* splitmix64 */
    uint64_t z = l->random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}
void lab_begin(struct lab *l, uint32_t graph) {
    l->graphs = graph;
    l->random = l->seed;
    l->random = next(l) + UINT64_C(0xD1342543DE82EF95) * graph;
    l->random = next(l);
}
int64_t lab_below(struct lab *l, int64_t n) {
    return (int64_t)(next(l) % (uint64_t)n);
}
float lab_uniform(struct lab *l) {
    return (float)(next(l) >> 40) * 0x1p-23F - 1.0f;
}

/* ---- building ---- */
struct lab_case lab_case(struct lab *l, int64_t batch) {
    return (struct lab_case){.lab = l, .r = rig_create(batch)};
}

uint32_t lab_floats(struct lab_case *c, const char *name, struct dr_shape s, const float *x) {
    const uint32_t v = rig_floats(&c->r, name, s, x);
    if (!x) {
        rig_set(&c->r, v, NULL);
        for (int64_t i = 0, n = rig_elements(&c->r, v); i < n; i++) {
            rig_f32(&c->r, v)[i] = lab_uniform(c->lab);
        }
    }
    return v;
}

uint32_t lab_odd_floats(struct lab_case *c, const char *name, struct dr_shape s) {
    const uint32_t v = lab_floats(c, name, s, NULL);
    float *x = rig_f32(&c->r, v);
    for (int64_t i = 0, n = rig_elements(&c->r, v); i < n; i++) {
        const int64_t kind = lab_below(c->lab, 40);
        x[i] = kind == 0   ? NAN
               : kind == 1 ? INFINITY
               : kind == 2 ? -INFINITY
               : kind == 3 ? -0.0f
                           : (float)(lab_below(c->lab, 7) - 3);
    }
    return v;
}

uint32_t lab_bytes(struct lab_case *c, const char *name, struct dr_shape s, enum dr_meaning m,
                   int64_t classes) {
    const uint32_t v = rig_input(&c->r, name, DR_U8, s, m, NULL);
    rig_set(&c->r, v, NULL);
    for (int64_t i = 0, n = rig_elements(&c->r, v); i < n; i++) {
        ((uint8_t *)c->r.at[v])[i] = (uint8_t)lab_below(c->lab, classes);
    }
    return v;
}

void lab_states(struct lab_case *c) {
    struct rig *r = &c->r;
    for (uint32_t v = 0; v < r->g->value.n; v++) {
        const struct dr_value *value = &r->g->value.at[v];
        if (value->kind != DR_STATE || (v < r->n_at && r->at[v])) {
            continue;
        }
        const char *leaf = strrchr(value->name, '.');
        const bool variance =
            leaf && (strcmp(leaf, ".running_var") == 0 || strcmp(leaf, ".exp_avg_sq") == 0);
        rig_set(r, v, NULL);
        if (value->dtype == DR_I64) { /* a count */
            *(int64_t *)r->at[v] = lab_below(c->lab, 3000);
            continue;
        }
        for (int64_t i = 0, n = rig_elements(r, v); i < n; i++) {
            const float x = lab_uniform(c->lab);
            rig_f32(r, v)[i] = variance ? fabsf(x) + 0.5f : x;
        }
    }
}

static void fail(struct lab *l, const char *op, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void fail(struct lab *l, const char *op, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    printf("FAILED %s: ", op);
    vprintf(fmt, ap);
    printf("\n");
    fflush(stdout);
    va_end(ap);
    l->failed++;
}

uint32_t lab_node(struct lab_case *c, const char *op, const char *yaml, int act, const uint32_t *in,
                  uint32_t n_in) {
    if (!c->label[0]) {
        snprintf(c->label, sizeof c->label, "%s %.300s %s", op, yaml,
                 act == DR_ACT_NONE ? "" : dr_activation_word[act]);
    }
    void *attrs = rig_attrs(&c->r, op, yaml);
    if (attrs && act != DR_ACT_NONE) {
        *(int32_t *)attrs = act; /* as the fuse pass does */
    }
    const uint32_t n = attrs ? rig_node(&c->r, dr_printf(c->r.g->arena, "n%u", c->r.g->node.n), op,
                                        attrs, in, n_in)
                             : DR_NONE;
    if (n == DR_NONE) {
        fail(c->lab, op, "%s: not built: %s", yaml, rig_text(&c->r));
        c->broken = true;
        return DR_NONE;
    }
    lab_states(c);
    return n;
}

void lab_grads(struct lab_case *c, uint32_t node) {
    if (node == DR_NONE) {
        return;
    }
    struct rig *r = &c->r;
    const struct dr_node n = r->g->node.at[node]; /* a copy: adding a node moves the list */
    uint32_t dy[3] = {DR_NONE, DR_NONE, DR_NONE}, dx[MAX_OPERANDS];
    bool need[MAX_OPERANDS];
    DR_ASSERT(n.n_out <= 3 && n.n_in <= MAX_OPERANDS);
    if (!(n.op->flags & DR_OP_LOSS)) {
        const struct dr_shape s = r->g->value.at[n.out[0]].shape;
        dy[0] = lab_floats(c, dr_printf(r->g->arena, "dy%u", node), s, NULL);
    }
    for (uint32_t i = 0; i < n.n_in; i++) {
        const struct dr_value *v = &r->g->value.at[n.in[i]];
        need[i] = v->dtype == DR_F32 && (v->kind == DR_STEP || v->cls == DR_WEIGHT);
    }
    rig_grad(r, node, dy, need, 0.7, dx);
}

void lab_expect(struct lab_case *c, const char *op, const float *want) {
    c->literal[c->n_literals].op = op;
    c->literal[c->n_literals++].want = want;
}

/* ---- comparing ---- */
/* Ops that move values or add them in one order, and augmentation: equal bits, whatever the device.
 */
static bool exact(const struct dr_node *n) {
    static const char *const ops[] = {"max_pool2d",   "max_pool2d_grad",
                                      "flatten",      "reshape",
                                      "reshape_grad", "concat",
                                      "concat_grad",  "relu",
                                      "relu_grad",    "guard",
                                      "accuracy",     "pixel_accuracy",
                                      "mean_iou",     "sub",
                                      "mul",          "neg",
                                      "abs",          "abs_grad",
                                      "clamp",        "clamp_grad",
                                      "leaky_relu",   "leaky_relu_grad",
                                      "slice",        "slice_grad",
                                      "pad",          "pad_grad",
                                      "transpose",    "argmax",
                                      "dropout",      "dropout_grad"};
    if ((n->op->flags & DR_OP_AUGMENT) && strcmp(n->op->name, "normalize") != 0) {
        return true;
    }
    for (size_t i = 0; i < DR_COUNT(ops); i++) {
        if (strcmp(ops[i], n->op->name) == 0) {
            return true;
        }
    }
    const int32_t act = lab_fused(n).activation;
    /* Halves are rounded between the launches of a long sum. */
    return strcmp(n->op->name, "add") == 0 && n->n_in <= DR_CUDA_ADDENDS &&
           (act == DR_ACT_NONE || act == DR_ACT_RELU || act == DR_ACT_LEAKY_RELU);
}

static double item(enum dr_dtype t, const void *p, int64_t i) {
    return t == DR_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

/* ||got - want|| / max(||want||, least) over finite elements; INFINITY where NaNs or infinities
 * differ. t: how got was stored; halves come as floats. */
static double error_of(enum dr_dtype t, const void *got, enum dr_dtype want_t, const void *want,
                       int64_t n, double least) {
    const double most = t == DR_F16    ? 65520
                        : t == DR_BF16 ? 3.3961775292304496e38
                        : t == DR_F32  ? 3.4028235677973366e38
                                       : INFINITY; /* from here on a number rounds to infinity */
    double norm = 0, off = 0;
    for (int64_t i = 0; i < n; i++) {
        const double a = item(t, got, i);
        double b = item(want_t, want, i);
        b = fabs(b) >= most ? copysign(INFINITY, b) : b;
        if (isnan(a) != isnan(b) || isinf(a) != isinf(b) || (isinf(a) && a != b)) {
            return INFINITY;
        }
        if (isfinite(b)) {
            norm += b * b;
            off += (a - b) * (a - b);
        }
    }
    norm = fmax(sqrt(norm), least);
    return off == 0 ? 0 : norm == 0 ? INFINITY : sqrt(off) / norm;
}

/* 0 or INFINITY; NaNs need not have the same bits. Halves come as floats, want is rounded here. */
static double exact_error(const struct dr_value *v, const void *got, const void *want) {
    const enum dr_dtype t = v->dtype;
    if (t != DR_F32 && t != DR_F64 && t != DR_F16 && t != DR_BF16) {
        return memcmp(got, want, (size_t)v->bytes) == 0 ? 0 : INFINITY;
    }
    for (int64_t i = 0, n = dr_elements(v); i < n; i++) {
        const double a = item(t, got, i), exact = item(t, want, i);
        const double b = t == DR_F64 ? exact : (double)lab_rounded((float)exact, t);
        if (!(a == b && signbit(a) == signbit(b)) && !(isnan(a) && isnan(b))) {
            return INFINITY;
        }
    }
    return 0;
}

/* ---- launching between guards ---- */
struct buffer {
    unsigned char *raw;  /* on the device: guard, bytes, guard */
    const void *content; /* what an operand holds; NULL: an output or workspace */
    uint16_t *half;      /* content, where it is halves */
    unsigned char *now;  /* on the host, after a launch */
    size_t bytes;
    uint32_t value; /* DR_NONE: the workspace */
    bool written;
};
struct bench {
    struct lab_case *c;
    const struct dr_node *n;
    struct dr_value *value; /* the graph's, as this node finds them */
    struct buffer b[MAX_OPERANDS];
    uint32_t n_b;
    void *in[MAX_OPERANDS], *out[MAX_OPERANDS];
    unsigned char *stage; /* on the host, as large as the largest buffer with its guards */
    char why[300];
};

/* NaN as float and as double; other NaNs around outputs than around operands, so that a copy from
 * guard to guard shows. */
static void fill_guard(unsigned char *p, size_t n, bool written) {
    static const unsigned char out[4] = {0xAD, 0xDB, 0xFF, 0x7F};
    for (size_t i = 0; i < n; i++) {
        p[i] = written ? out[i % 4] : 0xFF;
    }
}
static bool guard_intact(const unsigned char *p, size_t n, bool written) {
    static const unsigned char out[4] = {0xAD, 0xDB, 0xFF, 0x7F};
    for (size_t i = 0; i < n; i++) {
        if (p[i] != (written ? out[i % 4] : 0xFF)) {
            return false;
        }
    }
    return true;
}

static struct buffer *find(struct bench *t, uint32_t value) {
    for (uint32_t i = 0; i < t->n_b; i++) {
        if (t->b[i].value == value) {
            return &t->b[i];
        }
    }
    return NULL;
}

/* An operand that is stored in halves: it is rounded for the reference, too. */
static void round_content(struct bench *t, struct buffer *b) {
    const enum dr_dtype half = t->value[b->value].dtype;
    float *x = rig_f32(&t->c->r, b->value);
    const int64_t n = rig_elements(&t->c->r, b->value);
    for (int64_t i = 0; i < n; i++) {
        x[i] = lab_rounded(x[i], half);
    }
    b->content = b->half = lab_pack(x, n, half);
}
static bool stored_half(const struct dr_value *v) {
    return v->dtype == DR_F16 || v->dtype == DR_BF16;
}

/* The device address of an operand, of the workspace (DR_NONE); makes the buffer. */
static void *place(struct bench *t, uint32_t value, size_t bytes, bool written) {
    const struct lab_device *d = &t->c->lab->device;
    struct buffer *b = find(t, value);
    if (!b) {
        DR_ASSERT(t->n_b < MAX_OPERANDS);
        b = &t->b[t->n_b++];
        const size_t all = bytes + 2 * d->guard;
        *b = (struct buffer){.value = value, .bytes = bytes, .raw = d->alloc(all ? all : 1)};
        b->now = malloc(bytes + 1);
        if (value != DR_NONE && (!written || t->c->r.g->value.at[value].kind == DR_STATE)) {
            b->content = t->c->r.at[value];
            if (stored_half(&t->value[value])) {
                round_content(t, b);
            }
        }
        DR_ASSERT(b->now && (b->content || written));
        if (!b->raw) {
            snprintf(t->why, sizeof t->why, "out of memory: %zu bytes", all);
            return NULL;
        }
    }
    b->written |= written;
    return b->raw + d->guard;
}

static bool place_all(struct bench *t, size_t workspace_bytes, void **workspace) {
    const struct dr_value *v = t->value;
    const struct dr_node *n = t->n;
    size_t most = workspace_bytes;
    for (uint32_t i = 0; i < n->n_out && !t->why[0]; i++) {
        t->out[i] = place(t, n->out[i], (size_t)v[n->out[i]].bytes, true);
    }
    for (uint32_t i = 0; i < n->n_in && !t->why[0]; i++) {
        t->in[i] = place(t, n->in[i], (size_t)v[n->in[i]].bytes, false);
    }
    if (!t->why[0]) {
        *workspace = place(t, DR_NONE, workspace_bytes, true);
    }
    for (uint32_t i = 0; i < t->n_b; i++) {
        most = t->b[i].bytes > most ? t->b[i].bytes : most;
    }
    t->stage = malloc(most + 2 * t->c->lab->device.guard + 1);
    DR_ASSERT(t->stage);
    return !t->why[0];
}

/* Operands and states as they are in the rig; outputs and workspace NaN, or (keep) as they were. */
static int fill_buffers(struct bench *t, bool keep) {
    const struct lab_device *d = &t->c->lab->device;
    int err = 0;
    for (uint32_t i = 0; i < t->n_b && !err; i++) {
        const struct buffer *b = &t->b[i];
        if (keep && !b->content) {
            continue;
        }
        fill_guard(t->stage, d->guard, b->written);
        fill_guard(t->stage + d->guard + b->bytes, d->guard, b->written);
        if (b->content) {
            memcpy(t->stage + d->guard, b->content, b->bytes);
        } else {
            memset(t->stage + d->guard, 0xFF, b->bytes);
        }
        err = d->upload(b->raw, t->stage, b->bytes + 2 * d->guard);
    }
    return err;
}

/* Reads everything back. first: the bytes to hold later launches against. */
static bool check_buffers(struct bench *t, bool first, const char *when) {
    const struct lab_device *d = &t->c->lab->device;
    for (uint32_t i = 0; i < t->n_b; i++) {
        struct buffer *b = &t->b[i];
        const char *name =
            b->value == DR_NONE ? "the workspace" : t->c->r.g->value.at[b->value].name;
        const unsigned char *body = t->stage + d->guard;
        const int err = d->download(t->stage, b->raw, b->bytes + 2 * d->guard);
        if (err) {
            snprintf(t->why, sizeof t->why, "%s: %s", when, d->error_text(err));
        } else if (!guard_intact(t->stage, d->guard, b->written)) {
            snprintf(t->why, sizeof t->why, "%s: written before '%s'", when, name);
        } else if (!guard_intact(body + b->bytes, d->guard, b->written)) {
            snprintf(t->why, sizeof t->why, "%s: written behind '%s'", when, name);
        } else if (!b->written && memcmp(body, b->content, b->bytes) != 0) {
            snprintf(t->why, sizeof t->why, "%s: operand '%s' was changed", when, name);
        } else if (b->written && !first && b->value != DR_NONE &&
                   memcmp(body, b->now, b->bytes) != 0) {
            snprintf(t->why, sizeof t->why, "%s: other bytes in '%s' than at first", when, name);
        }
        if (t->why[0]) {
            return false;
        }
        if (first) {
            memcpy(b->now, body, b->bytes);
        }
    }
    return true;
}

static bool launch_all(struct bench *t, const struct dr_choice *choice, void *workspace) {
    static const char *const when[] = {"1st launch", "2nd launch", "3rd launch",
                                       "replay of a captured launch"};
    const struct lab_device *d = &t->c->lab->device;
    const struct dr_launch l = {.node = t->n,
                                .value = t->value,
                                .in = t->in,
                                .out = t->out,
                                .workspace = workspace,
                                .choice = choice,
                                .seed = 1}; /* the rig's */
    for (int i = 0; i < d->launches; i++) {
        int err = fill_buffers(t, i == 3);
        err = err ? err : d->launch(&l, i == 3);
        if (err) {
            snprintf(t->why, sizeof t->why, "%s: %s", when[i], d->error_text(err));
            return false;
        }
        if (!check_buffers(t, i == 0, when[i])) {
            return false;
        }
    }
    return true;
}

/* ---- judging ---- */
static double tolerance_of(const struct bench *t, uint32_t o, bool product) {
    const enum dr_dtype stored = t->value[t->n->out[o]].dtype;
    const struct lab *l = t->c->lab;
    return stored == DR_F16                      ? TOLERANCE_F16
           : stored == DR_BF16                   ? TOLERANCE_BF16
           : product && l->half != DR_F32        ? TOLERANCE_SUMS
           : product && o == 0 && l->device.tf32 ? TOLERANCE_TF32
                                                 : TOLERANCE;
}

/* got: the first output as floats. */
static void judge_literals(struct bench *t, const float *got) {
    const struct dr_value *v = &t->value[t->n->out[0]];
    const bool rounds = t->c->lab->device.tf32 || t->c->lab->half != DR_F32;
    for (uint32_t i = 0; i < t->c->n_literals; i++) {
        if (strcmp(t->c->literal[i].op, t->n->op->name) != 0) {
            continue;
        }
        for (int64_t k = 0, n = dr_elements(v); k < n && !t->why[0]; k++) {
            const float want = lab_rounded(t->c->literal[i].want[k], v->dtype);
            const bool near =
                rounds && (double)fabsf(got[k] - want) <= tolerance_of(t, 0, true) * fabs(want);
            if (got[k] != want && !near && !(isnan(got[k]) && isnan(want))) {
                snprintf(t->why, sizeof t->why, "[%lld] is %.9g, not %.9g", (long long)k,
                         (double)got[k], (double)want);
            }
        }
    }
}

/* How far output o, of which `got` is as floats where it is stored in halves, is off. */
static double error_at(const struct bench *t, uint32_t o, const void *got, const double *ref,
                       double size) {
    const uint32_t out = t->n->out[o];
    const struct dr_value *v = &t->value[out];
    const void *cpu = t->c->r.at[out];
    const int64_t n = dr_elements(v);
    const bool half = stored_half(v);
    /* Rounded operands err by their own size, however much of it cancels in a few sums. */
    const double floor = t->c->lab->device.tf32 ? 1.0 : 0.2;
    /* An update adds terms of about 1 that may cancel: in a weight of one element, to any depth.
     * Below the least normal number fp16 has fewer bits. */
    const bool update = t->n->op->flags & DR_OP_OPTIMIZER;
    const double least = update               ? 0.05 * sqrt((double)n)
                         : v->dtype == DR_F16 ? 0x1p-14 * sqrt((double)n)
                                              : TINY;
    if (o == 0 && ref) {
        return error_of(v->dtype, got, DR_F64, ref, n, fmax(floor * size, half ? least : 0));
    }
    return (half || v->dtype == DR_F32 || v->dtype == DR_F64) && !exact(t->n)
               ? error_of(v->dtype, got, half ? DR_F32 : v->dtype, cpu, n, least)
               : exact_error(v, got, cpu);
}

/* After the CPU launcher ran: its outputs are in the rig. */
static double judge(struct bench *t, const double *ref, double size) {
    double worst = 0;
    const bool product = ref || strncmp(t->n->op->name, "matmul", 6) == 0;
    for (uint32_t o = 0; o < t->n->n_out; o++) {
        const struct dr_value *v = &t->value[t->n->out[o]];
        const void *got = find(t, t->n->out[o])->now;
        float *floats = stored_half(v) ? lab_unpack(got, dr_elements(v), v->dtype) : NULL;
        const double e = error_at(t, o, floats ? floats : got, ref, size);
        worst = e > worst ? e : worst;
        if (e > tolerance_of(t, o, product) && !t->why[0]) {
            snprintf(t->why, sizeof t->why, "'%s': error %.3g", v->name, e);
        }
        if (o == 0) {
            judge_literals(t, floats ? floats : got);
        }
        free(floats);
    }
    return worst;
}

static void say_failed(struct bench *t) {
    struct dr_text s = {.arena = t->c->r.g->arena};
    const struct dr_value *v = t->c->r.g->value.at;
    for (uint32_t i = 0; i < t->n->n_in + t->n->n_out && i < 24; i++) {
        const bool out = i >= t->n->n_in;
        const uint32_t id = out ? t->n->out[i - t->n->n_in] : t->n->in[i];
        dr_text_add(&s, "%s%s", i == t->n->n_in ? " -> " : " ",
                    dr_shape_text(s.arena, &v[id].shape));
    }
    fail(t->c->lab, t->n->op->name, "(in: %s)%s: %s", t->c->label, s.at ? s.at : "", t->why);
}

static struct lab_tally *tally_of(struct lab *l, const struct dr_op *op) {
    uint32_t i = 0;
    while (dr_ops()->op[i] != op) {
        i++;
    }
    return &l->tally[i];
}

static void run_node(struct lab_case *c, uint32_t node) {
    struct lab *l = c->lab;
    struct bench *t = calloc(1, sizeof *t);
    DR_ASSERT(t);
    t->c = c;
    t->n = &c->r.g->node.at[node];
    struct lab_tally *tally = tally_of(l, t->n->op);
    struct dr_choice choice = {0};
    void *workspace = NULL;
    struct dr_graph g = *c->r.g; /* with the values of this precision */
    t->value = g.value.at = lab_half_values(&g, t->n, l->half);
    g.device = l->device.caps;
    g.tf32 = l->device.tf32;
    if (t->n->op->choose) {
        choice = t->n->op->choose(&g, t->n, l->device.cuda);
    }
    bool ran = false;
    if (l->device.cuda && !t->n->op->cuda) {
        snprintf(t->why, sizeof t->why, "no CUDA launcher");
    } else if (place_all(t, (size_t)choice.workspace_bytes, &workspace)) {
        ran = launch_all(t, &choice, workspace);
    }
    double size = 0, *ref = lab_reference(c, t->n, &size);
    if (!lab_reads_pixels(c, t->n) && !lab_pools(c, t->n)) {
        rig_run_node(&c->r, node);
    }
    const double worst = ran ? judge(t, ref, size) : 0;
    tally->cases++;
    if (worst > tally->worst) {
        tally->worst = worst;
    }
    if (t->why[0]) {
        tally->failed++;
        say_failed(t);
    } else {
        l->passed++;
    }
    for (uint32_t i = 0; i < t->n_b; i++) {
        l->device.release(t->b[i].raw);
        free(t->b[i].now);
        free(t->b[i].half);
    }
    free(t->stage);
    free(t->value);
    free(ref);
    free(t);
}

bool lab_chosen(const struct lab *l, const struct dr_op *op) {
    bool named = l->n_only == 0;
    for (uint32_t i = 0; i < l->n_only; i++) {
        named |= strcmp(l->only[i], op->name) == 0;
    }
    return named && op->cpu && (l->half == DR_F32 || op->half_in || op->half_out);
}

bool lab_skip(struct lab *l, const char *op, const char *other) {
    bool wanted = l->n_only == 0;
    for (uint32_t i = 0; i < l->n_only; i++) {
        wanted |= strncmp(l->only[i], op, strlen(op)) == 0 ||
                  strncmp(l->only[i], other, strlen(other)) == 0;
    }
    if (!wanted) {
        lab_begin(l, l->graphs + 1);
    }
    return !wanted;
}

/* Whether to judge a node: its op and its graph are chosen, and it is not too large for this run.
 */
static bool to_judge(struct lab_case *c, const struct dr_node *n) {
    struct lab *l = c->lab;
    if (!lab_chosen(l, n->op) || l->graphs % l->parts != l->part) {
        return false;
    }
    int64_t bytes = 0;
    for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
        const uint32_t v = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
        bytes += c->r.g->value.at[v].bytes;
    }
    return l->most == 0 || bytes <= l->most;
}

void lab_check(struct lab_case *c) {
    const struct dr_graph *g = c->r.g;
    uint32_t last = 0; /* past the last node that is to be judged */
    for (uint32_t v = c->first; v < g->node.n && !c->broken; v++) {
        const struct dr_node *n = &g->node.at[v];
        if (to_judge(c, n) && c->lab->listing) {
            tally_of(c->lab, n->op)->cases++;
        } else if (to_judge(c, n)) {
            last = v + 1;
        } else if (lab_chosen(c->lab, n->op)) {
            tally_of(c->lab, n->op)->left_out++;
        }
    }
    for (uint32_t v = c->first; v < last && c->lab->device.usable(); v++) {
        if (to_judge(c, &g->node.at[v])) {
            run_node(c, v);
        } else if (!lab_reads_pixels(c, &g->node.at[v]) && !lab_pools(c, &g->node.at[v])) {
            rig_run_node(&c->r, v);
        }
    }
    lab_begin(c->lab, c->lab->graphs + 1);
    rig_free(&c->r);
}
